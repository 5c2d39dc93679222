// What a person reads.
#include "contract/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/coverage.h"
#include "contract/natural_order.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Violation Example() {
  v1::Location l;
  l.set_kernel("reduce");
  l.set_kernel_offset(0x40);
  l.set_instruction("ds_add_u32 v1, v2");
  return MakeViolation(id::kSgprBudget, "12 SGPRs", "8 SGPRs (the attachment)", l,
                       "the probe needs 12 SGPRs, the attachment allows 8");
}

TEST(Render, ViolationNamesPlaceLimitAndNextStep) {
  EXPECT_EQ(RenderViolation(Example()),
            "error[RJD-B001]: the probe needs 12 SGPRs, the attachment allows 8\n"
            "  --> reduce+0x40: ds_add_u32 v1, v2\n"
            "  observed: 12 SGPRs\n"
            "  limit: 8 SGPRs (the attachment)\n"
            "  help: raise --max-sgpr-delta, or choose a site with more free scalar registers.\n");
}

TEST(Render, ProbeWitnessAndManifestLine) {
  v1::Violation v = Example();
  v.mutable_location()->set_in_probe(true);
  v.mutable_location()->set_probe_offset(12);
  v.mutable_location()->set_manifest_line(7);
  EXPECT_THAT(RenderViolation(v), HasSubstr("  --> reduce+0x40\n"
                                            "  --> probe+0xc: ds_add_u32 v1, v2\n"
                                            "  --> manifest line 7\n"));
}

TEST(Render, ColourOnlyWhenAsked) {
  EXPECT_THAT(RenderViolation(Example()), Not(HasSubstr("\033")));
  EXPECT_THAT(RenderViolation(Example(), {true}), HasSubstr("\033[1;31merror[RJD-B001]"));
}

TEST(Render, ForeignNamesCannotDriveTheTerminal) {
  v1::Violation v = Example();
  v.mutable_location()->set_kernel("evil\033[2Jname\n");
  EXPECT_THAT(RenderViolation(v), HasSubstr("evil?[2Jname?+0x40"));
}

v1::Decision Refused(const std::string& attachment, uint64_t offset, const std::string& message) {
  v1::Decision d;
  d.set_attachment_id(attachment);
  d.set_outcome(v1::OVER_BUDGET);
  d.mutable_site()->mutable_location()->set_kernel("_Z6reducePf");
  d.mutable_site()->mutable_location()->set_kernel_offset(offset);
  v1::Violation& v = *d.add_violations();
  v.set_constraint_id("RJD-B001");
  v.set_message(message);
  *v.mutable_location() = d.site().location();
  return d;
}

TEST(Render, EqualRefusalsArePrintedOnce) {
  google::protobuf::RepeatedPtrField<v1::Decision> decisions;
  for (uint64_t i = 0; i < 12; ++i) *decisions.Add() = Refused("a1", 0x10 * i, "too many");
  *decisions.Add() = Refused("a1", 0x200, "something else");
  *decisions.Add() = Refused("a2", 0x0, "too many");
  *decisions.Add() = Refused("a2", 0x10, "too many");
  decisions.Add()->set_outcome(v1::VERIFIED_ATTACH);
  EXPECT_EQ(RenderRefusals(decisions),
            "error[RJD-B001]: too many\n"
            "  --> reduce(float*)+0x0\n"
            "  and 11 more sites: +0x10, +0x20, +0x30, +0x40, +0x50, +0x60, +0x70, +0x80, ...\n"
            "  of attachments a1, a2\n"
            "error[RJD-B001]: something else\n"
            "  --> reduce(float*)+0x200\n");
}

TEST(Render, CoverageShowsReasonsAndUnmatchedAttachments) {
  v1::AdmissionRecord r;
  v1::Coverage* c = r.add_coverage();
  c->set_kernel("_Z5scalePfi");
  c->set_attachment_id("a1");
  c->set_requested(5);
  c->set_attached(2);
  c->set_degraded(1);
  c->set_not_selected(30);
  auto* reason = c->add_refused();
  reason->set_constraint_id("RJD-S005");
  reason->set_sites(2);
  r.add_coverage()->set_attachment_id("a2");
  const std::string text = RenderCoverage(r.coverage());
  EXPECT_THAT(text, HasSubstr("scale(float*, int)"));
  EXPECT_THAT(text, HasSubstr("RJD-S005 x2"));
  EXPECT_THAT(text, HasSubstr("attachment a2 covers no kernel"));
}

TEST(Render, DegradationsAreNamed) {
  v1::Coverage c;
  c.set_kernel("k");
  c.set_attachment_id("a10");
  c.set_requested(5);
  c.set_attached(2);
  c.set_degraded(3);
  CountReason(*c.mutable_degradations(), "RJD-D003", 2);
  CountReason(*c.mutable_degradations(), "RJD-D001", 1);
  google::protobuf::RepeatedPtrField<v1::Coverage> rows;
  *rows.Add() = c;
  c.set_attachment_id("a2");
  c.clear_degradations();
  *rows.Add() = c;
  const std::string table = RenderCoverage(rows);
  EXPECT_THAT(table, HasSubstr("RJD-D001 x1, RJD-D003 x2"));
  EXPECT_LT(table.find("a2 "), table.find("a10 "));
  v1::Coverage total;
  for (const v1::Coverage& row : rows) AddCoverage(total, row);
  EXPECT_EQ(RenderTotal(total),
            "10 sites requested: 4 attached, 6 degraded (RJD-D001 x1, RJD-D003 x2), 0 refused; "
            "0 instructions not selected");

  google::protobuf::RepeatedPtrField<v1::Decision> decisions;
  for (const uint64_t offset : {0x10, 0x20}) {
    v1::Decision& d = *decisions.Add();
    d.set_outcome(v1::ATTACH_WITH_DECLARED_DEGRADATION);
    d.mutable_site()->mutable_location()->set_kernel("k");
    d.mutable_site()->mutable_location()->set_kernel_offset(offset);
    *d.add_degradations() = MakeDegradation(id::kDrainsWaits, "waits");
  }
  EXPECT_EQ(RenderDegradations(decisions),
            "degraded[RJD-D001]: waits\n"
            "  --> k+0x10\n"
            "  help: allow growth of the register allocation if timing matters at this site.\n"
            "  and 1 more site: +0x20\n");
  EXPECT_EQ(RenderRefusals(decisions), "");
}

TEST(Order, NumbersCompareByValue) {
  const char* const kOrdered[] = {"",    "#2",   "#10",   "a1",     "a01x", "a2",
                                  "a10", "a10b", "a10c2", "a10c11", "b"};
  for (size_t i = 0; i < std::size(kOrdered); ++i) {
    for (size_t j = 0; j < std::size(kOrdered); ++j) {
      EXPECT_EQ(NaturalLess(kOrdered[i], kOrdered[j]), i < j) << kOrdered[i] << " " << kOrdered[j];
    }
  }
  EXPECT_NE(NaturalLess("a01", "a1"), NaturalLess("a1", "a01"));
}

TEST(Render, EntryIsWrapped) {
  const std::string text = RenderEntry(*Find("RJD-S005"));
  EXPECT_EQ(text.rfind("RJD-S005: the site lies inside a clause that cannot be split\n", 0), 0u);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 78u) << text.substr(begin, end - begin);
  }
}

}  // namespace
}  // namespace rjdbi::contract
