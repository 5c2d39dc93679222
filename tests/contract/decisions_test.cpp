// Decisions in columns and one by one are the same decisions, whatever a site's
// verdict is; tables from elsewhere that say nonsense are read without harm.
#include "contract/decisions.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "contract/admission.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

v1::Attachment Attach(const std::string& id, const std::string& sites, const std::string& probe) {
  v1::Attachment attachment;
  attachment.set_id(id);
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites(sites);
  attachment.mutable_spec()->set_probe(probe);
  return attachment;
}

// Attached, degraded, refused for reasons of the site and of the attachment, counted
// elsewhere, and with records; two kernels.
v1::AdmissionRecord ManyKinds() {
  const std::string body = R"(
    s_clause 0x1
    global_load_dword v4, v[0:1], off
    global_load_dword v5, v[0:1], off offset:4
    s_waitcnt vmcnt(0)
    v_add_nc_u32_e32 v4, v4, v5
    global_store_dword v[0:1], v4, off
    s_endpgm)";
  const auto object = test::AssembleObject("gfx1030", 32,
                                           {{.name = "a", .body = body, .vgprs = 8, .sgprs = 10},
                                            {.name = "b", .body = body, .vgprs = 8, .sgprs = 10}});
  std::vector<v1::Attachment> attachments = {
      Attach("a1", "memory or kernel+0x3", "count-waves"),
      Attach("a2", "memory or valu", "block-count"), Attach("a3", "memory", "trace-address"),
      Attach("a4", "memory", "sabotage"), Attach("a5", "memory", "count-lanes")};
  attachments[0].mutable_spec()->set_placement(v1::TRAMPOLINE);
  attachments[4].mutable_spec()->mutable_budget()->set_max_injected_instructions_per_event(1);
  const auto rewriter = patch::MakeTrampolineRewriter();
  return Admit(object, attachments, DefaultPolicy(), *rewriter).record;
}

TEST(Decisions, OneByOneAndInColumnsAreTheSame) {
  const v1::AdmissionRecord record = ManyKinds();
  ASSERT_EQ(record.decisions_size(), 0);
  ASSERT_GT(record.table().kernels_size(), 4);
  const v1::AdmissionRecord expanded = Expanded(record);
  EXPECT_FALSE(expanded.has_table());
  const Decisions columns(record), single(expanded);
  ASSERT_EQ(columns.size(), static_cast<size_t>(expanded.decisions_size()));
  ASSERT_EQ(single.size(), columns.size());
  std::set<v1::Outcome> outcomes;
  size_t n = 0, degraded = 0, followers = 0, records = 0;
  for (const v1::Decision& d : columns) {
    EXPECT_EQ(d.SerializeAsString(), columns[n].SerializeAsString());
    EXPECT_EQ(d.SerializeAsString(), single[n].SerializeAsString());
    outcomes.insert(d.outcome());
    degraded += d.degradations().empty() ? 0 : 1;
    followers += d.has_counted_at() ? 1 : 0;
    records += d.has_record_layout() ? 1 : 0;
    ++n;
  }
  EXPECT_EQ(n, columns.size());
  EXPECT_EQ(outcomes,
            (std::set<v1::Outcome>{v1::VERIFIED_ATTACH, v1::ATTACH_WITH_DECLARED_DEGRADATION,
                                   v1::UNSUPPORTED_SITE, v1::REJECTED_EFFECT, v1::OVER_BUDGET}));
  EXPECT_GT(degraded, 0u);
  EXPECT_GT(followers, 0u);
  EXPECT_GT(records, 0u);
}

TEST(Decisions, GroupsAnswerWhatTheirDecisionsSay) {
  const v1::AdmissionRecord record = ManyKinds();
  size_t n = 0;
  const Decisions all(record);
  for (const DecisionGroup& group : DecisionGroups(record)) {
    for (size_t i = 0; i < group.size(); ++i, ++n) {
      const v1::Decision d = group.At(i);
      EXPECT_EQ(d.SerializeAsString(), all[n].SerializeAsString());
      EXPECT_EQ(group.kernel(), d.site().location().kernel());
      EXPECT_EQ(group.attachment_id(), d.attachment_id());
      EXPECT_EQ(group.kernel_offset(i), d.site().location().kernel_offset());
      EXPECT_EQ(group.Location(i).SerializeAsString(), d.site().location().SerializeAsString());
      EXPECT_EQ(group.counter_index(i).has_value(), d.has_counter_index());
      EXPECT_EQ(group.counter_index(i).value_or(0), d.counter_index());
      EXPECT_EQ(group.Form(i).outcome(), d.outcome());
      EXPECT_EQ(group.has_record_layout(i), d.has_record_layout());
      if (!d.has_record_layout()) continue;
      EXPECT_EQ(group.RecordLayout(i).SerializeAsString(), d.record_layout().SerializeAsString());
    }
  }
  EXPECT_EQ(n, all.size());
}

// Every refused site says where, and every place is its own.
TEST(Decisions, ViolationsArePlaced) {
  size_t violations = 0;
  const v1::AdmissionRecord record = ManyKinds();
  for (const v1::Decision& d : Decisions(record)) {
    EXPECT_EQ(d.site().location().code_object_vaddr() % 4, d.site().location().kernel_offset() % 4);
    for (const v1::Violation& v : d.violations()) {
      ++violations;
      EXPECT_EQ(v.location().kernel(), d.site().location().kernel());
      EXPECT_EQ(v.location().kernel_offset(), d.site().location().kernel_offset());
      if (!v.location().in_probe()) {
        EXPECT_EQ(v.location().instruction(), d.site().location().instruction());
      }
    }
  }
  EXPECT_GT(violations, 0u);
}

TEST(Decisions, TheTableIsSmallerThanTheDecisions) {
  const v1::AdmissionRecord record = ManyKinds();
  EXPECT_LT(record.ByteSizeLong() * 2, Expanded(record).ByteSizeLong());
}

TEST(Decisions, NumbersThatNameNothingAreEmpty) {
  v1::AdmissionRecord record;
  v1::KernelDecisions& group = *record.mutable_table()->add_kernels();
  group.set_kernel("k");
  group.add_kernel_offset(8);
  group.add_kernel_offset(16);
  group.add_form(7);
  group.add_instruction(9);
  const Decisions decisions(record);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[1].site().location().kernel_offset(), 16u);
  for (const v1::Decision& d : decisions) {
    EXPECT_EQ(d.outcome(), v1::OUTCOME_UNSPECIFIED);
    EXPECT_EQ(d.site().location().instruction(), "");
    EXPECT_FALSE(d.has_counter_index());
  }
}

TEST(Decisions, AnEmptyRecordHasNone) { EXPECT_TRUE(Decisions(v1::AdmissionRecord()).empty()); }

}  // namespace
}  // namespace rjdbi::contract
