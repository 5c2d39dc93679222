// Admission end to end with the real rewriter, over objects made by the
// installed compiler.
#include "contract/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/patch_record.h"
#include "contract/text.h"
#include "patch/codeobject/appendix.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using test::AsmKernel;
using test::AssembleObject;
using test::CompileOpenCl;
using testing::HasSubstr;

constexpr char kSource[] = R"(
kernel void add(global int* a, global const int* b) {
  local int tile[256];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = a[i];
  __builtin_amdgcn_s_barrier();
  a[i] += b[i] + tile[i ^ 1];
}
kernel void scale(global double* a, double by) {
  a[__builtin_amdgcn_workitem_id_x()] *= by;
}
)";

v1::Attachment Attach(const std::string& id, const std::string& kernel, const std::string& sites,
                      const std::string& probe) {
  v1::Attachment a;
  a.set_id(id);
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe(probe);
  return a;
}

v1::Attachment Placed(v1::Attachment attachment, v1::Placement placement) {
  attachment.mutable_spec()->set_placement(placement);
  return attachment;
}

Admission AdmitAll(const std::vector<uint8_t>& object,
                   const std::vector<v1::Attachment>& attachments,
                   const Policy& policy = DefaultPolicy()) {
  auto rewriter = patch::MakeTrampolineRewriter();
  return WithDecisions(Admit(object, attachments, policy, *rewriter));
}

bool IsAttached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

size_t CountAttached(const v1::AdmissionRecord& r) {
  size_t n = 0;
  for (const auto& d : r.decisions()) n += IsAttached(d);
  return n;
}

// What must hold of every record, whatever was asked.
void ExpectConserved(const Admission& a) {
  const v1::AdmissionRecord& r = a.record;
  std::map<std::pair<std::string, std::string>, std::array<uint64_t, 3>> seen;
  std::set<uint32_t> counters;
  for (const v1::Decision& d : r.decisions()) {
    auto& tally = seen[{d.site().location().kernel(), d.attachment_id()}];
    ++tally[0];
    if (IsAttached(d)) {
      ++tally[1];
      EXPECT_EQ(d.violations_size(), 0);
      if (d.has_counter_index() && !d.has_counted_at()) {
        EXPECT_TRUE(counters.insert(d.counter_index()).second);
      }
      continue;
    }
    ++tally[2];
    EXPECT_FALSE(d.has_counter_index());
    ASSERT_GT(d.violations_size(), 0) << d.ShortDebugString();
    for (const v1::Violation& v : d.violations()) {
      EXPECT_NE(Find(v.constraint_id()), nullptr) << v.constraint_id();
      EXPECT_FALSE(v.message().empty());
      EXPECT_FALSE(v.next_step().empty());
      EXPECT_EQ(v.location().kernel(), d.site().location().kernel());
    }
  }
  EXPECT_EQ(counters.size(), r.counter_count());
  if (!counters.empty()) {
    EXPECT_EQ(*counters.rbegin(), r.counter_count() - 1) << "dense";
  }
  for (const v1::Coverage& c : r.coverage()) {
    uint64_t refused = 0;
    for (const auto& reason : c.refused()) refused += reason.sites();
    EXPECT_EQ(c.requested(), c.attached() + c.degraded() + refused) << c.ShortDebugString();
    EXPECT_TRUE(Conserved(c)) << c.ShortDebugString();
    const auto& tally = seen[{c.kernel(), c.attachment_id()}];
    EXPECT_EQ(c.requested(), tally[0]);
    EXPECT_EQ(c.attached() + c.degraded(), tally[1]);
    EXPECT_EQ(refused, tally[2]);
  }
  EXPECT_EQ(r.patched_size(), a.patched.size());
  EXPECT_EQ(a.patched.empty(), CountAttached(r) == 0);
}

// gfx9 reserves six scalar registers at the top of an allocation for VCC and kin, which
// a kernel that has no use for them may use: what it mentions is there.
TEST(Admission, ScalarRegistersThatTheKernelMentionsAreAllocated) {
  for (const char* processor : {"gfx900", "gfx90a", "gfx942"}) {
    const auto object =
        AssembleObject(processor, 64,
                       {{.body = "global_load_dword v2, v1, s[10:11]\ns_waitcnt vmcnt(0)\n"
                                 "global_store_dword v1, v2, s[10:11]\ns_endpgm\n",
                         .sgprs = 10}});
    for (const char* probe : {"count-waves", "trace-address"}) {
      for (const v1::Placement placement : {v1::TRAMPOLINE, v1::CLONE}) {
        const Admission a =
            AdmitAll(object, {Placed(Attach("a1", "*", "memory", probe), placement)});
        EXPECT_EQ(a.record.object_violations_size(), 0) << a.record.ShortDebugString();
        ASSERT_EQ(a.record.decisions_size(), 2);
        for (const v1::Decision& d : a.record.decisions()) {
          EXPECT_TRUE(IsAttached(d)) << processor << ", " << probe << ": " << d.ShortDebugString();
          EXPECT_EQ(d.delta().sgpr(), 0) << processor << ", " << probe;
        }
      }
    }
  }
}

class EachProcessor : public testing::TestWithParam<const char*> {};

TEST_P(EachProcessor, EveryProbeAtEveryMemoryInstruction) {
  const auto object = CompileOpenCl(GetParam(), kSource);
  for (const char* probe : {"nop", "count-waves", "count-lanes", "block-count"}) {
    const Admission a = AdmitAll(object, {Attach("a1", "*", "memory", probe)});
    ExpectConserved(a);
    EXPECT_EQ(a.record.object_violations_size(), 0) << a.record.ShortDebugString();
    EXPECT_EQ(a.record.kernels(), 2u);
    ASSERT_GT(a.record.decisions_size(), 4);
    // These small kernels can take any probe anywhere.
    for (const v1::Decision& d : a.record.decisions()) {
      EXPECT_TRUE(IsAttached(d)) << d.ShortDebugString();
    }
    EXPECT_EQ(a.record.counter_count() == 0, std::string(probe) == "nop");
    EXPECT_EQ(a.fixups.size(), 2 * a.record.counter_count());
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, EachProcessor,
                         testing::Values("gfx900", "gfx908", "gfx90a", "gfx942", "gfx1010",
                                         "gfx1030", "gfx1100", "gfx1200"));

TEST_P(EachProcessor, BothSidesOfEveryMemoryInstructionAndTheEnd) {
  const auto object = CompileOpenCl(GetParam(), kSource);
  std::vector<v1::Attachment> attachments;
  for (const char* probe : {"nop", "count-waves", "count-lanes"}) {
    for (const v1::Position position : {v1::BEFORE, v1::AFTER}) {
      attachments.push_back(Attach(StrCat("a", attachments.size()), "*", "memory", probe));
      attachments.back().mutable_spec()->set_position(position);
    }
  }
  attachments.push_back(Attach("b0", "*", "exit", "count-waves"));
  Policy policy = DefaultPolicy();  // six probes share a site
  policy.defaults.set_max_injected_instructions_per_event(256);
  policy.ceiling.set_max_injected_instructions_per_event(256);
  const Admission a = AdmitAll(object, attachments, policy);
  ExpectConserved(a);
  EXPECT_EQ(a.record.object_violations_size(), 0) << a.record.ShortDebugString();
  std::map<std::string, int> sites;
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_TRUE(IsAttached(d)) << d.ShortDebugString();
    ++sites[d.attachment_id()];
    const bool after = d.attachment_id()[0] == 'a' && (d.attachment_id()[1] - '0') % 2 == 1;
    EXPECT_EQ(d.site().position() == v1::AFTER, after);
  }
  for (int i = 1; i < 6; ++i) EXPECT_EQ(sites[StrCat("a", i)], sites["a0"]);
  EXPECT_GE(sites["b0"], 2);
  EXPECT_GT(a.fixups.size(), 0u);
}

TEST(Admission, BehindATransferOfControlIsNoPlace) {
  AsmKernel k;
  k.body = "s_cbranch_scc0 .Lend\ns_nop 0\n.Lend:\ns_endpgm";
  v1::Attachment attachment = Attach("a1", "k", "*", "count-waves");
  attachment.mutable_spec()->set_position(v1::AFTER);
  const Admission a = AdmitAll(AssembleObject("gfx90a", 64, {k}), {attachment});
  ExpectConserved(a);
  ASSERT_EQ(a.record.decisions_size(), 3);
  EXPECT_EQ(a.record.decisions(0).violations(0).constraint_id(), "RJD-S014");
  EXPECT_TRUE(IsAttached(a.record.decisions(1))) << a.record.ShortDebugString();
  EXPECT_EQ(a.record.decisions(2).violations(0).constraint_id(), "RJD-S014");
}

TEST(Admission, LinesWithoutALineTableAreRefusedOncePerKernel) {
  const Admission a = AdmitAll(CompileOpenCl("gfx90a", kSource),
                               {Attach("a1", "*", "memory or x.cl:7", "count-waves")});
  ExpectConserved(a);
  ASSERT_EQ(a.record.decisions_size(), 2);
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(d.outcome(), v1::UNSUPPORTED_SITE);
    EXPECT_EQ(d.violations(0).constraint_id(), "RJD-S015");
  }
  for (const v1::Coverage& c : a.record.coverage()) {
    EXPECT_EQ(c.requested(), 1u);
    EXPECT_GT(c.not_selected(), 0u);
  }
}

TEST(Admission, ABadSelectorIsPointedAt) {
  const auto violations = CheckSpec(Attach("a1", "*", "ds_* and (", "nop").spec(), DefaultPolicy());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].constraint_id(), "RJD-A001");
  EXPECT_THAT(violations[0].message(), HasSubstr("column 11: expected "));
  EXPECT_EQ(violations[0].excerpt(), "ds_* and (\n          ^");
}

constexpr char kClauses[] = R"(
kernel void gather(global const int* a, global int* out) {
  int i = __builtin_amdgcn_workitem_id_x();
  out[i] = a[i] + a[i + 64] * a[i + 128];
}
)";

bool Splits(const v1::Decision& d) {
  for (const auto& degradation : d.degradations()) {
    if (degradation.constraint_id() != id::kSplitsClause) continue;
    EXPECT_THAT(degradation.message(), HasSubstr("clause of"));
    EXPECT_THAT(degradation.message(), HasSubstr("is split"));
    return true;
  }
  return false;
}

TEST(Admission, ASplitClauseIsADeclaredDegradation) {
  for (const char* processor : {"gfx1010:xnack+", "gfx1030", "gfx1100", "gfx1201"}) {
    SCOPED_TRACE(processor);
    const Admission a = AdmitAll(
        CompileOpenCl(processor, kClauses),
        {Placed(Attach("a1", "gather", "memory,s_clause", "count-waves"), v1::TRAMPOLINE)});
    ExpectConserved(a);
    EXPECT_EQ(a.record.object_violations_size(), 0) << a.record.ShortDebugString();
    size_t split = 0, on_clause = 0, whole = 0;
    for (const v1::Decision& d : a.record.decisions()) {
      ASSERT_TRUE(IsAttached(d)) << d.ShortDebugString();
      EXPECT_TRUE(d.site().movable());
      EXPECT_EQ(Splits(d), d.site().has_splits_clause_at());
      if (!Splits(d)) {
        ++whole;
        continue;
      }
      ++split;
      EXPECT_EQ(d.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION);
      EXPECT_LE(d.site().splits_clause_at(), d.site().location().kernel_offset());
      on_clause += d.site().splits_clause_at() == d.site().location().kernel_offset();
    }
    EXPECT_GE(split, 3u);
    EXPECT_GE(on_clause, 1u);
    EXPECT_GE(whole, 1u) << "the store is in no clause";
    ASSERT_EQ(a.record.coverage_size(), 1);
    const v1::Coverage& c = a.record.coverage(0);
    EXPECT_GE(c.degraded(), split);
    EXPECT_EQ(c.degraded() + c.attached(), c.requested());
    EXPECT_EQ(c.refused_size(), 0);
  }
}

// Not what compilers make: see RJD-S005.
TEST(Admission, AnOddClauseIsRefusedAndStays) {
  AsmKernel k;
  k.body =
      "s_clause 0x2\ns_load_dword s4, s[0:1], 0x0\ns_cbranch_scc0 .Lend\n"
      "s_load_dword s5, s[0:1], 0x4\n.Lend:\ns_waitcnt lgkmcnt(0)\ns_nop 0\ns_endpgm";
  const Admission a =
      AdmitAll(AssembleObject("gfx1030", 32, {k}), {Attach("a1", "k", "s_load*,s_nop", "nop")});
  ExpectConserved(a);
  ASSERT_EQ(a.record.decisions_size(), 3);
  for (int i = 0; i < 2; ++i) {
    const v1::Decision& d = a.record.decisions(i);
    EXPECT_EQ(d.outcome(), v1::UNSUPPORTED_SITE);
    EXPECT_EQ(d.violations(0).constraint_id(), "RJD-S005");
    EXPECT_EQ(d.site().site_class(), v1::INSIDE_CLAUSE);
    EXPECT_FALSE(d.site().has_splits_clause_at());
  }
  EXPECT_EQ(a.record.decisions(2).outcome(), v1::VERIFIED_ATTACH);
  test::Loaded patched(a.patched);
  EXPECT_EQ(patched.Kernel().instructions()[0].opcode, "s_clause");
}

TEST(Admission, SiteRecordIsComplete) {
  const Admission a = AdmitAll(CompileOpenCl("gfx90a", kSource),
                               {Attach("a1", "add", "ds_*,s_barrier,kernel+0x2", "count-waves")});
  ExpectConserved(a);
  std::set<int> classes;
  bool missing = false;
  for (const v1::Decision& d : a.record.decisions()) {
    if (d.outcome() == v1::UNSUPPORTED_SITE) {
      missing |= d.violations(0).constraint_id() == id::kNoInstruction;
      continue;
    }
    const v1::Site& s = d.site();
    classes.insert(s.site_class());
    EXPECT_TRUE(s.movable());
    EXPECT_EQ(s.location().kernel(), "add");
    EXPECT_GT(s.location().code_object_vaddr(), s.location().kernel_offset());
    EXPECT_THAT(s.location().instruction(),
                testing::AnyOf(HasSubstr("ds_"), HasSubstr("s_barrier")));
    EXPECT_GT(s.free_vgprs() + s.free_sgprs(), 0u);
    EXPECT_EQ(d.effects().certainty(), v1::PROVEN);
    EXPECT_EQ(d.delta().telemetry_bytes_per_event(), 8u);
    EXPECT_GT(d.delta().injected_instructions(), 5u);
    EXPECT_GT(d.delta().occupancy_waves_before(), 0);
  }
  EXPECT_TRUE(missing);
  EXPECT_EQ(classes, (std::set<int>{v1::MEMORY, v1::BARRIER}));
}

TEST(Admission, IsDeterministicWhateverTheOrderOfAttachments) {
  const auto object = CompileOpenCl("gfx1030", kSource);
  const auto x = Attach("a1", "*", "memory", "count-waves"),
             y = Attach("a2", "*", "ds_*", "count-lanes");
  const Admission a = AdmitAll(object, {x, y}), b = AdmitAll(object, {y, x});
  EXPECT_EQ(a.patched, b.patched);
  EXPECT_EQ(a.record.SerializeAsString(), b.record.SerializeAsString());
  ExpectConserved(a);
  EXPECT_GT(CountAttached(a.record), 0u);
}

TEST(Admission, UnmatchedPatternIsARowOfCoverageAndNoError) {
  const Admission a =
      AdmitAll(CompileOpenCl("gfx90a", kSource), {Attach("a1", "nosuch*", "memory", "count-waves"),
                                                  Attach("a2", "scale", "memory", "count-waves")});
  EXPECT_EQ(a.record.object_violations_size(), 0);
  bool row = false;
  for (const auto& c : a.record.coverage()) {
    if (c.attachment_id() != "a1") continue;
    row = c.kernel().empty() && c.requested() == 0;
  }
  EXPECT_TRUE(row);
  EXPECT_GT(CountAttached(a.record), 0u);
}

TEST(Admission, OneBadAttachmentLeavesOthersAlone) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const Admission a = AdmitAll(
      object,
      {Attach("a1", "*", "memory", "nosuch"), Attach("a2", "*", "[", "count-waves"),
       Attach("a3", "*", "kernel+zz", "count-waves"), Attach("a4", "*", "memory", "sabotage"),
       Attach("a5", "*", "memory", "count-waves")});
  ExpectConserved(a);
  std::map<std::string, size_t> attached;
  for (const auto& d : a.record.decisions()) attached[d.attachment_id()] += IsAttached(d);
  EXPECT_EQ(attached["a4"], 0u);
  EXPECT_GT(attached["a5"], 0u);
  EXPECT_GE(a.record.object_violations_size(), 2);
}

TEST(Admission, SabotageNeedsBothConsents) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  for (const bool by_policy : {false, true}) {
    for (const bool by_spec : {false, true}) {
      Policy policy = DefaultPolicy();
      policy.allow_sabotage = by_policy;
      v1::Attachment asked = Attach("a1", "scale", "memory", "sabotage");
      asked.mutable_spec()->set_allow_sabotage(by_spec);
      const Admission a = AdmitAll(object, {asked}, policy);
      ExpectConserved(a);
      EXPECT_EQ(CountAttached(a.record) > 0, by_policy && by_spec);
      std::set<std::string> expected, found;
      if (!by_policy) expected.insert(std::string(id::kSabotageForbidden));
      if (!by_spec) expected.insert(std::string(id::kSabotageNotAsked));
      for (const auto& v : CheckSpec(asked.spec(), policy)) found.insert(v.constraint_id());
      EXPECT_EQ(found, expected);
      found.clear();
      for (const auto& d : a.record.decisions()) {
        for (const auto& v : d.violations()) found.insert(v.constraint_id());
        if (!expected.empty()) {
          EXPECT_EQ(d.outcome(), v1::REJECTED_EFFECT);
        }
      }
      EXPECT_EQ(found, expected);
    }
  }
}

TEST(Admission, SpecsAreCheckedBeforeAnythingIsLoaded) {
  const auto ids = [](v1::AttachmentSpec spec) {
    std::set<std::string> out;
    for (const auto& v : CheckSpec(spec, DefaultPolicy())) out.insert(v.constraint_id());
    return out;
  };
  v1::AttachmentSpec good = Attach("", "*", "ds_*", "nop").spec();
  EXPECT_TRUE(ids(good).empty());
  v1::AttachmentSpec spec = good;
  spec.set_probe("nosuch");
  EXPECT_EQ(ids(spec), std::set<std::string>{"RJD-A002"});
  spec = good;
  spec.set_sites("kernel+zz");
  EXPECT_EQ(ids(spec), std::set<std::string>{"RJD-A001"});
  spec = good;
  spec.clear_kernel_glob();
  EXPECT_EQ(ids(spec), std::set<std::string>{"RJD-A006"});
  spec = good;
  spec.mutable_budget()->set_max_vgpr_delta(1000);
  EXPECT_EQ(ids(spec), std::set<std::string>{"RJD-A005"});
}

// Every register of the allocation is live across the load.
std::string AllLive(int vgprs) {
  std::string body = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n";
  for (int i = 1; i < vgprs; ++i) {
    body += "v_mov_b32_e32 v" + std::to_string(i) + ", s4\n";
  }
  body += "v_mov_b32_e32 v0, 0\nglobal_load_dword v0, v0, s[4:5]\ns_waitcnt vmcnt(0)\n";
  for (int i = 1; i < vgprs; ++i) {
    body += "v_add_u32_e32 v0, v0, v" + std::to_string(i) + "\n";
  }
  return body + "v_mov_b32_e32 v1, 0\nglobal_store_dword v1, v0, s[4:5]\ns_endpgm";
}

TEST(Admission, GrowthIsHeldAgainstTheBudgetAndTheOwnerOfTheLimitIsNamed) {
  AsmKernel k;
  k.body = AllLive(64);
  k.vgprs = 64;
  k.sgprs = 10;
  const auto object = AssembleObject("gfx90a", 64, {k});
  v1::Attachment asked = Attach("a1", "k", "global_load*", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_max_vgpr_delta(0);
  const Admission refused = AdmitAll(object, {asked});
  ExpectConserved(refused);
  ASSERT_EQ(refused.record.decisions_size(), 1);
  const v1::Decision& d = refused.record.decisions(0);
  EXPECT_EQ(d.outcome(), v1::OVER_BUDGET) << d.ShortDebugString();
  EXPECT_EQ(d.violations(0).constraint_id(), id::kVgprBudget);
  EXPECT_THAT(d.violations(0).limit(), HasSubstr("0 VGPRs (the attachment)"));

  asked.mutable_spec()->mutable_budget()->set_max_vgpr_delta(8);
  const Admission grown = AdmitAll(object, {asked});
  ExpectConserved(grown);
  const v1::Decision& e = grown.record.decisions(0);
  EXPECT_EQ(e.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION) << e.ShortDebugString();
  EXPECT_EQ(e.delta().vgpr(), 8);
  EXPECT_EQ(e.delta().occupancy_waves_before(), 8);
  EXPECT_EQ(e.delta().occupancy_waves_after(), 7);
  ASSERT_EQ(e.degradations_size(), 1);
  EXPECT_EQ(e.degradations(0).constraint_id(), id::kOccupancyFalls);
}

TEST(Admission, InstructionBudget) {
  v1::Attachment asked = Attach("a1", "*", "memory", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_max_injected_instructions_per_event(5);
  const Admission a = AdmitAll(CompileOpenCl("gfx90a", kSource), {asked});
  ExpectConserved(a);
  EXPECT_EQ(CountAttached(a.record), 0u);
  for (const auto& d : a.record.decisions()) {
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
    EXPECT_EQ(d.violations(0).constraint_id(), id::kInstructionBudget);
  }
}

// Probes of several attachments at one site share the budget of an event.
TEST(Admission, AttachmentsShareASiteInTheirOrder) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  std::vector<v1::Attachment> attachments;
  for (int i = 1; i <= 30; ++i) {
    attachments.push_back(Attach("a" + std::to_string(i), "scale", "global_store*", "count-waves"));
  }
  const Admission admission = AdmitAll(object, attachments);
  ExpectConserved(admission);
  ASSERT_EQ(admission.record.decisions_size(), 30);
  std::vector<std::string> holders;
  for (const v1::Decision& d : admission.record.decisions()) {
    SCOPED_TRACE(d.attachment_id());
    if (IsAttached(d)) {
      EXPECT_EQ(d.attachment_id(), "a" + std::to_string(holders.size() + 1)) << "the first ones";
      EXPECT_LE(d.delta().injected_instructions(), 64u);
      holders.push_back(d.attachment_id());
      continue;
    }
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
    ASSERT_EQ(d.violations_size(), 1);
    const v1::Violation& v = d.violations(0);
    EXPECT_EQ(v.constraint_id(), id::kInstructionBudget);
    EXPECT_EQ(std::vector<std::string>(v.taken_by().begin(), v.taken_by().end()), holders);
    EXPECT_THAT(v.message(), HasSubstr("with this probe the site executes "));
  }
  EXPECT_GE(holders.size(), 2u);
  EXPECT_LT(holders.size(), 30u);

  // A modest neighbour is not outvoted: its own limit holds for the site.
  attachments.resize(3);
  attachments[0].mutable_spec()->mutable_budget()->set_max_injected_instructions_per_event(
      admission.record.decisions(0).effects().instructions() + 2);
  const Admission modest = AdmitAll(object, attachments);
  ASSERT_TRUE(IsAttached(modest.record.decisions(0)));
  for (const int i : {1, 2}) {
    const v1::Decision& d = modest.record.decisions(i);
    ASSERT_EQ(d.violations_size(), 1);
    EXPECT_THAT(d.violations(0).limit(), HasSubstr("an earlier attachment"));
    ASSERT_EQ(d.violations(0).taken_by_size(), 1);
    EXPECT_EQ(d.violations(0).taken_by(0), "a1");
  }
}

TEST(Admission, AttachmentsOfAnObjectAreLimited) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  Policy policy = DefaultPolicy();
  policy.max_attachments_per_object = 3;
  std::vector<v1::Attachment> attachments;
  for (int i = 1; i <= 12; ++i) {
    attachments.push_back(
        Attach("a" + std::to_string(i), i == 1 ? "no_such" : "scale", "global_store*", "nop"));
  }
  const v1::AdmissionRecord record = AdmitAll(object, attachments, policy).record;
  std::set<std::string> judged;
  for (const v1::Decision& d : record.decisions()) judged.insert(d.attachment_id());
  EXPECT_EQ(judged, (std::set<std::string>{"a2", "a3", "a4"}));
  EXPECT_GT(record.patched_size(), 0u) << "these are in place";
  ASSERT_EQ(record.object_violations_size(), 1);
  EXPECT_EQ(record.object_violations(0).constraint_id(), id::kTooManyAttachments);
  EXPECT_THAT(record.object_violations(0).message(), HasSubstr("the last 8 are left out"));
  EXPECT_EQ(record.coverage_size(), 12) << "each has a row";
}

TEST(Admission, TelemetryBudgetKeepsTheFirstSites) {
  v1::Attachment asked = Attach("a1", "*", "memory", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_expected_events_per_second(1000);
  asked.mutable_spec()->mutable_budget()->set_max_telemetry_bytes_per_second(16000);
  const Admission a = AdmitAll(CompileOpenCl("gfx90a", kSource), {asked});
  ExpectConserved(a);
  EXPECT_EQ(CountAttached(a.record), 2u);
  EXPECT_TRUE(IsAttached(a.record.decisions(0)));
  EXPECT_TRUE(IsAttached(a.record.decisions(1)));
  EXPECT_EQ(a.record.decisions(2).violations(0).constraint_id(), id::kTelemetryBudget);
}

TEST(Admission, CodeGrowthBudgetGivesUpSitesFromTheEnd) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  v1::Attachment asked = Placed(Attach("a1", "*", "memory", "count-waves"), v1::TRAMPOLINE);
  const Admission all = AdmitAll(object, {asked});
  // Up to the new code's end: the record behind it is not loaded, and not limited.
  const auto code = patch::FindSection(all.patched, ".rjdbi.text");
  ASSERT_TRUE(code.has_value());
  const auto growth =
      static_cast<size_t>(code->data() + code->size() - all.patched.data()) - object.size();
  asked.mutable_spec()->mutable_budget()->set_max_code_growth_bytes(growth - 1);
  const Admission some = AdmitAll(object, {asked});
  ExpectConserved(some);
  EXPECT_LT(CountAttached(some.record), CountAttached(all.record));
  bool refused = false;
  for (const auto& d : some.record.decisions()) {
    if (refused) {
      EXPECT_FALSE(IsAttached(d));
    }
    refused |= d.outcome() == v1::OVER_BUDGET;
  }
  EXPECT_TRUE(refused);
  asked.mutable_spec()->mutable_budget()->set_max_code_growth_bytes(0);
  EXPECT_TRUE(AdmitAll(object, {asked}).patched.empty());
}

TEST(Admission, ObjectsThatCannotBeWorkedOnAreRefusedWithCoverage) {
  const std::vector<uint8_t> good = CompileOpenCl("gfx90a", kSource);
  std::vector<uint8_t> truncated(good.begin(), good.begin() + 100),
      text = {'h', 'e', 'l', 'l', 'o'};
  std::vector<uint8_t> foreign = good;
  foreign[18] = 62;  // EM_X86_64
  for (const auto& bytes : {truncated, text, std::vector<uint8_t>(), foreign}) {
    const Admission a = AdmitAll(bytes, {Attach("a1", "*", "memory", "count-waves")});
    EXPECT_TRUE(a.patched.empty());
    ASSERT_EQ(a.record.object_violations_size(), 1);
    EXPECT_EQ(a.record.object_violations(0).constraint_id(), id::kObjectMalformed);
    ASSERT_EQ(a.record.coverage_size(), 1);
    EXPECT_EQ(a.record.coverage(0).attachment_id(), "a1");
    EXPECT_EQ(a.record.code_object_sha256().size(), 64u);
  }
  Policy small = DefaultPolicy();
  small.max_code_object_bytes = 1000;
  const Admission a = AdmitAll(good, {Attach("a1", "*", "memory", "count-waves")}, small);
  EXPECT_EQ(a.record.object_violations(0).constraint_id(), id::kObjectTooLarge);
}

TEST(Admission, BlockCountPutsOneProbeIntoEachBlock) {
  const std::vector<uint8_t> object = AssembleObject("gfx90a", 64, {{.name = "k", .body = R"(
    s_nop 0
    s_nop 1
    s_cbranch_scc1 2
    s_nop 2
    s_nop 3
    s_endpgm)"}});
  const Admission a = AdmitAll(object, {Attach("a1", "k", "s_nop", "block-count")});
  ExpectConserved(a);
  ASSERT_EQ(a.record.decisions_size(), 4);
  EXPECT_EQ(a.record.counter_count(), 2u);
  const auto& d = a.record.decisions();
  EXPECT_FALSE(d[0].has_counted_at());
  EXPECT_GT(d[0].delta().injected_instructions(), 0u);
  EXPECT_EQ(d[1].counted_at(), d[0].site().location().kernel_offset());
  EXPECT_EQ(d[1].counter_index(), d[0].counter_index());
  EXPECT_FALSE(d[1].has_delta());
  EXPECT_EQ(d[3].counted_at(), d[2].site().location().kernel_offset());
  EXPECT_NE(d[2].counter_index(), d[0].counter_index());
  EXPECT_EQ(a.record.coverage(0).requested(), 4u);
  EXPECT_EQ(a.record.coverage(0).attached(), 4u);
}

// A call may not be able to carry a probe, but it is executed as often as the
// instruction before it.
TEST(Admission, BlockCountCountsInstructionsThatCannotCarryAProbe) {
  const std::vector<uint8_t> object = AssembleObject("gfx90a", 64, {{.name = "k", .body = R"(
    s_nop 0
    s_swappc_b64 s[30:31], s[4:5]
    s_swappc_b64 s[30:31], s[4:5]
    s_endpgm)"}});
  v1::Attachment attachment = Attach("a1", "k", "*", "block-count");
  attachment.mutable_spec()->set_placement(v1::TRAMPOLINE);  // which cannot take a call
  const Admission a = AdmitAll(object, {attachment});
  ExpectConserved(a);
  ASSERT_EQ(a.record.decisions_size(), 4);
  const auto& d = a.record.decisions();
  EXPECT_EQ(d[0].outcome(), v1::VERIFIED_ATTACH);
  EXPECT_EQ(d[1].outcome(), v1::VERIFIED_ATTACH);
  EXPECT_EQ(d[1].counted_at(), 0u);
  EXPECT_TRUE(d[1].violations().empty());
  EXPECT_EQ(d[2].outcome(), v1::UNSUPPORTED_SITE);  // alone between two calls
  EXPECT_FALSE(d[2].has_counted_at());
}

TEST(Admission, WhatBecomesOfABlocksProbeBecomesOfTheBlock) {
  const std::vector<uint8_t> object = AssembleObject("gfx90a", 64, {{.name = "k", .body = R"(
    s_nop 0
    s_nop 1
    s_endpgm)"}});
  v1::Attachment attachment = Attach("a1", "k", "s_nop", "block-count");
  attachment.mutable_spec()->mutable_budget()->set_max_code_growth_bytes(1);
  const Admission a = AdmitAll(object, {attachment});
  ExpectConserved(a);
  EXPECT_TRUE(a.patched.empty());
  ASSERT_EQ(a.record.decisions_size(), 2);
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(d.outcome(), v1::OVER_BUDGET);
    EXPECT_EQ(d.violations(0).constraint_id(), id::kCodeGrowthBudget);
  }
}

// Known by name, beyond the tables: named, refused, and covered by a record.
TEST(Admission, ProcessorsWithoutTablesAreNamedAndRefused) {
  std::vector<uint8_t> object = CompileOpenCl("gfx90a", kSource);
  std::vector<std::pair<uint8_t, const char*>> without = {{0x40, "gfx940"}, {0x55, "gfx1152"}};
  if (patch::LlvmVersion() < 20) without.emplace_back(0x4f, "gfx950");
  if (patch::LlvmVersion() < 22) without.emplace_back(0x49, "gfx1250");
  for (const auto& [machine, processor] : without) {
    object[48] = machine;  // the low byte of e_flags
    const Admission a = AdmitAll(object, {Attach("a1", "add", "memory", "count-waves")});
    EXPECT_TRUE(a.patched.empty());
    EXPECT_THAT(a.record.isa(), HasSubstr(processor));
    ASSERT_EQ(a.record.object_violations_size(), 1) << processor;
    EXPECT_EQ(a.record.object_violations(0).constraint_id(), "RJD-O005");
    EXPECT_EQ(a.record.object_violations(0).observed(), processor);
    EXPECT_EQ(a.record.coverage_size(), 1);
  }
}

// A rewriter whose plans do something else than they say: the engine's own
// reading of the machine code decides.
class LyingRewriter : public patch::Rewriter {
 public:
  explicit LyingRewriter(std::string text) : text_(std::move(text)) {}
  std::variant<patch::SitePlan, patch::Refusal> Plan(const patch::KernelAnalysis& kernel,
                                                     uint32_t instruction,
                                                     const patch::ProbeRequest& request) override {
    auto plan = honest_->Plan(kernel, instruction, request);
    auto bytes = kernel.isa().Assemble(text_);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (auto* p = std::get_if<patch::SitePlan>(&plan)) {
      p->sequence = *bytes;
      p->fixups = {};
    }
    return plan;
  }
  absl::StatusOr<patch::RewriteResult> Emit(
      const patch::CodeObject& object, const std::vector<const patch::KernelAnalysis*>& kernels,
      const std::vector<patch::SitePlan>& plans, bool beside) override {
    auto result = honest_->Emit(object, kernels, plans, beside);
    if (result.ok() && corrupt_) result->image[object.bytes().size() / 2] ^= 0xff;
    return result;
  }
  bool corrupt_ = false;

 private:
  std::unique_ptr<patch::Rewriter> honest_ = patch::MakeTrampolineRewriter();
  std::string text_;
};

// The placement of each kernel's row: all the same, or UNSPECIFIED.
v1::Placement PlacementOf(const Admission& a, const std::string& kernel) {
  std::set<v1::Placement> found;
  for (const auto& c : a.record.coverage()) {
    if (c.kernel() != kernel) continue;
    found.insert(c.placement().placement());
    EXPECT_EQ(c.placement().code_bytes() > 0, c.has_placement());
  }
  return found.size() == 1 ? *found.begin() : v1::PLACEMENT_UNSPECIFIED;
}

TEST(Placement, ClonesWhereNothingElseIsAsked) {
  const auto object = CompileOpenCl("gfx1100", kClauses);
  Policy policy = DefaultPolicy();
  policy.placement = v1::AUTO;
  const Admission clone =
      AdmitAll(object, {Attach("a1", "gather", "memory,s_clause", "count-waves")}, policy);
  ExpectConserved(clone);
  EXPECT_EQ(PlacementOf(clone, "gather"), v1::CLONE);
  const Admission trampolines = AdmitAll(
      object, {Placed(Attach("a1", "gather", "memory,s_clause", "count-waves"), v1::TRAMPOLINE)},
      policy);
  EXPECT_EQ(PlacementOf(trampolines, "gather"), v1::TRAMPOLINE);
  ASSERT_EQ(clone.record.decisions_size(), trampolines.record.decisions_size());
  for (int i = 0; i < clone.record.decisions_size(); ++i) {
    const v1::Decision &c = clone.record.decisions(i), &t = trampolines.record.decisions(i);
    ASSERT_EQ(c.outcome(), v1::VERIFIED_ATTACH) << c.ShortDebugString();
    EXPECT_EQ(c.placement(), v1::CLONE);
    EXPECT_EQ(t.placement(), v1::TRAMPOLINE);
    // No jumps; at most the second part's s_clause.
    EXPECT_LE(c.delta().injected_instructions(), t.delta().injected_instructions() - 1);
  }
  ASSERT_EQ(clone.kernels.size(), 1u);
  EXPECT_FALSE(clone.kernels[0].pcs.empty());
  EXPECT_FALSE(clone.record.coverage(0).placement().has_not_cloned());
}

TEST(Placement, OneAttachmentsTrampolinesAreAllAttachmentsTrampolines) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const Admission a =
      AdmitAll(object, {Placed(Attach("a1", "add", "memory", "count-waves"), v1::AUTO),
                        Placed(Attach("a2", "add", "memory", "nop"), v1::TRAMPOLINE),
                        Placed(Attach("a3", "add", "memory", "nop"), v1::CLONE),
                        Placed(Attach("a4", "scale", "memory", "nop"), v1::CLONE)});
  ExpectConserved(a);
  EXPECT_EQ(PlacementOf(a, "add"), v1::TRAMPOLINE);
  EXPECT_EQ(PlacementOf(a, "scale"), v1::CLONE);
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(IsAttached(d), d.attachment_id() != "a3") << d.ShortDebugString();
    if (d.attachment_id() != "a3") continue;
    EXPECT_EQ(d.violations(0).constraint_id(), "RJD-P003");
    EXPECT_THAT(d.violations(0).message(), HasSubstr("another attachment asks for trampolines"));
  }
  EXPECT_EQ(a.record.coverage(0).placement().not_cloned().constraint_id(), "RJD-P003");
}

// Sites that only a clone can take, and a kernel whose branches then do not reach.
TEST(Placement, FallsBackWhenBranchesDoNotReach) {
  test::AsmKernel k;
  k.body =
      "s_cbranch_scc1 .Lend\n.rept 1100\ns_nop 1\n.rept 20\nv_mov_b32_e32 v0, "
      "0\n.endr\n.endr\n.Lend:\ns_endpgm";
  const auto object = test::AssembleObject("gfx90a", 64, {k});
  v1::Attachment asked = Placed(Attach("a1", "k", "s_nop", "count-waves"), v1::AUTO);
  asked.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  const Admission a = AdmitAll(object, {asked});
  ExpectConserved(a);
  ASSERT_EQ(CountAttached(a.record), 1100u);
  EXPECT_EQ(PlacementOf(a, "k"), v1::TRAMPOLINE);
  const v1::Violation& why = a.record.coverage(0).placement().not_cloned();
  EXPECT_EQ(why.constraint_id(), "RJD-P003");
  EXPECT_THAT(why.message(), HasSubstr("would not reach its target"));
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(d.placement(), v1::TRAMPOLINE);
  }
  asked.mutable_spec()->set_placement(v1::CLONE);
  const Admission none = AdmitAll(object, {asked});
  ExpectConserved(none);
  EXPECT_EQ(CountAttached(none.record), 0u);
  EXPECT_EQ(none.record.decisions(0).violations(0).constraint_id(), "RJD-P003");
}

// ---- Beside the loaded original ------------------------------------------------------

Policy Beside() {
  Policy policy = DefaultPolicy();
  policy.beside = true;
  return policy;
}

TEST(BesideImages, SwitchKernelsThatHaveProbesAndNoOthers) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  for (const v1::Placement placement : {v1::PLACEMENT_UNSPECIFIED, v1::AUTO, v1::CLONE}) {
    Policy policy = Beside();
    policy.placement = v1::TRAMPOLINE;  // a default, which does not count
    const Admission a =
        AdmitAll(object, {Placed(Attach("a1", "add", "memory", "count-waves"), placement)}, policy);
    ExpectConserved(a);
    EXPECT_TRUE(a.record.beside());
    EXPECT_EQ(PlacementOf(a, "add"), v1::CLONE);
    const auto original = patch::CodeObject::Parse(object);
    const auto image = patch::CodeObject::Parse(a.patched);
    ASSERT_TRUE(original.ok() && image.ok());
    ASSERT_EQ(a.switches.size(), 1u);
    const KernelSwitch& s = a.switches[0];
    EXPECT_EQ(s.kernel, "add");
    for (size_t k = 0; k < original->kernels().size(); ++k) {
      const patch::Kernel &before = original->kernels()[k], &after = image->kernels()[k];
      EXPECT_EQ(before.entry_vaddr == after.entry_vaddr, before.name != "add");
      if (before.name != "add") continue;
      EXPECT_EQ(s.original_descriptor, before.descriptor_vaddr);
      EXPECT_EQ(s.descriptor, after.descriptor_vaddr);
      EXPECT_EQ(s.group_segment_bytes, 1024u);
      EXPECT_EQ(s.private_segment_bytes, 0u);
    }
  }
}

TEST(BesideImages, NothingAttachedIsNoSwitch) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const Admission a = AdmitAll(object, {Attach("a1", "add", "s_memtime", "nop")}, Beside());
  EXPECT_TRUE(a.patched.empty());
  EXPECT_TRUE(a.switches.empty());
  const Admission instead = AdmitAll(object, {Attach("a1", "add", "memory", "nop")});
  EXPECT_FALSE(instead.patched.empty());
  EXPECT_TRUE(instead.switches.empty());
  EXPECT_FALSE(instead.record.beside());
}

TEST(BesideImages, TrampolinesAreRefused) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const Admission a =
      AdmitAll(object,
               {Placed(Attach("a1", "add", "memory", "count-waves"), v1::TRAMPOLINE),
                Attach("a2", "add", "memory", "count-waves")},
               Beside());
  ExpectConserved(a);
  ASSERT_EQ(a.switches.size(), 1u);
  for (const v1::Decision& d : a.record.decisions()) {
    EXPECT_EQ(IsAttached(d), d.attachment_id() == "a2") << d.ShortDebugString();
    if (d.attachment_id() == "a2") continue;
    EXPECT_EQ(d.outcome(), v1::UNSUPPORTED_SITE);
    EXPECT_EQ(d.violations(0).constraint_id(), "RJD-P004");
    EXPECT_THAT(d.violations(0).message(), HasSubstr("asks for trampolines"));
    EXPECT_THAT(d.violations(0).next_step(), HasSubstr("Restart the process"));
  }
}

// Obstacles to a clone, found before and when it is made.
TEST(BesideImages, WhatCannotBeClonedIsRefused) {
  AsmKernel jumps, carries, far, fine;
  jumps.name = "jumps";
  jumps.body = "v_mov_b32_e32 v0, 0\ns_setpc_b64 s[4:5]\ns_endpgm";
  carries.name = "carries";
  carries.body =
      "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
      "v_mov_b32_e32 v0, 0\ns_cselect_b32 s6, 1, 0\ns_endpgm";
  far.name = "far";
  far.body =
      "s_cbranch_scc1 .Lfar\n.rept 1100\nv_mov_b32_e32 v0, 1\n.rept 20\ns_nop 1\n.endr\n.endr\n"
      ".Lfar:\ns_endpgm";
  fine.name = "fine";
  fine.body = "v_mov_b32_e32 v0, 0\ns_endpgm";
  const auto object = AssembleObject("gfx90a", 64, {jumps, carries, far, fine});
  v1::Attachment asked = Attach("a1", "*", "v_mov_b32", "count-waves");
  asked.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  const Admission a = AdmitAll(object, {asked}, Beside());
  ExpectConserved(a);
  ASSERT_EQ(a.switches.size(), 1u);
  EXPECT_EQ(a.switches[0].kernel, "fine");
  std::map<std::string, std::string> why;
  for (const v1::Decision& d : a.record.decisions()) {
    if (IsAttached(d)) continue;
    EXPECT_EQ(d.violations(0).constraint_id(), "RJD-P004");
    why[d.site().location().kernel()] = d.violations(0).message();
  }
  EXPECT_EQ(why.size(), 3u);
  EXPECT_THAT(why["jumps"], HasSubstr("branches through a register"));
  EXPECT_THAT(why["carries"], HasSubstr("the carry of an address is read"));
  EXPECT_THAT(why["far"], HasSubstr("would not reach its target"));
}

TEST(BesideImages, ReferToTheOriginal) {
  AsmKernel k;
  k.body =
      "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
      "s_load_dword s6, s[4:5], 0x0\ns_endpgm";
  const auto object = AssembleObject("gfx90a", 64, {k});
  const Admission a =
      AdmitAll(object, {Attach("a1", "k", "s_load_dword", "count-waves")}, Beside());
  ASSERT_EQ(CountAttached(a.record), 1u);
  const auto original = patch::CodeObject::Parse(object);
  const uint64_t target = original->kernels()[0].entry_vaddr + 4 + 0x1234567812345678;
  size_t halves[2] = {}, counters = 0;
  for (const patch::WordFixup& f : a.fixups) {
    if (f.base == patch::FixupBase::kCounters) {
      ++counters;
      continue;
    }
    EXPECT_EQ(f.addend, target);
    ++halves[f.high_half];
  }
  EXPECT_EQ(counters, 2u);
  EXPECT_EQ(halves[0], 1u);
  EXPECT_EQ(halves[1], 1u);
}

// The patches in an image stand for its original, beside it as instead of it.
TEST(BesideImages, LeadBackToTheirOriginal) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const Admission a = AdmitAll(object, {Attach("a1", "add", "memory", "count-waves")}, Beside());
  const auto opened = OpenPatched(a.patched);
  ASSERT_TRUE(opened.ok() && opened->has_value()) << opened.status();
  EXPECT_EQ((*opened)->original, object);
  EXPECT_TRUE((*opened)->record.beside());
  const Admission again =
      AdmitAll(a.patched, {Attach("a1", "add", "memory", "count-waves")}, Beside());
  EXPECT_EQ(again.patched, a.patched);
  EXPECT_TRUE(again.record.has_prior_patch());
  ASSERT_EQ(again.switches.size(), 1u);
}

TEST(Placement, TakesTheProgramCounterOnlyInClones) {
  test::AsmKernel k;
  k.body =
      "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
      "s_load_dword s6, s[4:5], 0x0\ns_endpgm";
  const auto object = test::AssembleObject("gfx90a", 64, {k});
  for (const auto placement : {v1::CLONE, v1::TRAMPOLINE}) {
    const Admission a =
        AdmitAll(object, {Placed(Attach("a1", "k", "s_getpc_b64", "count-waves"), placement)});
    ASSERT_EQ(a.record.decisions_size(), 1);
    EXPECT_TRUE(a.record.decisions(0).site().movable());
    EXPECT_EQ(IsAttached(a.record.decisions(0)), placement == v1::CLONE);
  }
}

TEST(Placement, GrowthBudgetGivesUpClonesBeforeSites) {
  // One site in much code: the clone costs more than the trampoline.
  test::AsmKernel k;
  k.body = ".rept 4000\ns_nop 1\n.endr\ns_endpgm";
  const auto object = test::AssembleObject("gfx90a", 64, {k});
  v1::Attachment asked = Placed(Attach("a1", "k", "entry", "count-waves"), v1::AUTO);
  EXPECT_EQ(PlacementOf(AdmitAll(object, {asked}), "k"), v1::CLONE);
  asked.mutable_spec()->mutable_budget()->set_max_code_growth_bytes(12000);
  const Admission a = AdmitAll(object, {asked});
  ExpectConserved(a);
  EXPECT_EQ(CountAttached(a.record), 1u);
  EXPECT_EQ(PlacementOf(a, "k"), v1::TRAMPOLINE);
  EXPECT_THAT(a.record.coverage(0).placement().not_cloned().message(), HasSubstr("budget"));
}

TEST(Admission, PlansAreNotBelieved) {
  const auto object = CompileOpenCl("gfx90a", kSource);
  const std::pair<const char*, std::string_view> lies[] = {
      {"s_barrier", id::kSyncUndeclared},
      {"s_mov_b64 exec, 0", id::kStateChanged},
      {"global_store_dword v[0:1], v2, off", id::kMemoryUndeclared},
      {"s_trap 2", id::kForbidden},
  };
  for (const auto& [text, expected] : lies) {
    LyingRewriter liar(text);
    const Admission a =
        WithDecisions(Admit(object, {Attach("a1", "*", "memory", "nop")}, DefaultPolicy(), liar));
    ExpectConserved(a);
    EXPECT_EQ(CountAttached(a.record), 0u) << text;
    std::set<std::string> ids;
    for (const auto& v : a.record.decisions(0).violations()) ids.insert(v.constraint_id());
    EXPECT_EQ(a.record.decisions(0).outcome(), v1::REJECTED_EFFECT);
    EXPECT_EQ(ids.count(std::string(expected)), 1u) << text;
  }
}

TEST(Admission, AnImageThatFailsValidationIsNeverShipped) {
  LyingRewriter corrupting("s_nop 0");
  corrupting.corrupt_ = true;
  const Admission a =
      WithDecisions(Admit(CompileOpenCl("gfx90a", kSource), {Attach("a1", "*", "memory", "nop")},
                          DefaultPolicy(), corrupting));
  ExpectConserved(a);
  EXPECT_TRUE(a.patched.empty());
  EXPECT_TRUE(a.fixups.empty());
  ASSERT_GE(a.record.object_violations_size(), 1);
  EXPECT_EQ(a.record.object_violations(0).constraint_id(), id::kValidationFailed);
}

}  // namespace
}  // namespace rjdbi::contract
