// What probes cost, added up: over one kernel whose figures are known.
#include "contract/perturbation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/catalogue.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using test::AsmKernel;
using test::AssembleObject;
using testing::HasSubstr;

// All 64 VGPRs of a gfx90a kernel are live at the load, none at the store.
std::vector<uint8_t> FullKernel() {
  std::string body;
  for (int i = 0; i < 64; ++i) body += "v_mov_b32_e32 v" + std::to_string(i) + ", 1\n";
  body += "v_mov_b32_e32 v0, 0\nglobal_load_dword v0, v0, s[4:5]\ns_waitcnt vmcnt(0)\n";
  for (int i = 1; i < 64; ++i) body += "v_add_u32_e32 v0, v0, v" + std::to_string(i) + "\n";
  body += "v_mov_b32_e32 v1, 0\nglobal_store_dword v1, v0, s[4:5]\ns_endpgm";
  return AssembleObject("gfx90a", 64, {{.body = body, .vgprs = 64, .sgprs = 10}});
}

Admission CountAt(const std::vector<uint8_t>& object, const std::string& sites) {
  v1::Attachment a;
  a.set_id("a1");
  a.mutable_spec()->set_kernel_glob("*");
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe("count-waves");
  auto rewriter = patch::MakeTrampolineRewriter();
  return WithDecisions(Admit(object, {a}, DefaultPolicy(), *rewriter));
}

v1::Perturbation Only(const PerturbationTally& tally) {
  const std::vector<v1::Perturbation> rows = tally.Rows();
  EXPECT_EQ(rows.size(), 1u);
  return rows.empty() ? v1::Perturbation() : rows[0];
}

TEST(Perturbation, GrowthAndTheOccupancyThatItCosts) {
  const auto object = FullKernel();
  PerturbationTally tally;
  tally.Add("count-waves", object, CountAt(object, "memory"));
  const v1::Perturbation p = Only(tally);
  EXPECT_EQ(p.probe(), "count-waves");
  EXPECT_EQ(p.processor(), "gfx90a");
  EXPECT_EQ(p.objects_patched(), 1u);
  EXPECT_EQ(p.kernels_patched(), 1u);
  EXPECT_EQ(p.sites(), 2u);
  EXPECT_EQ(p.sites_admitted(), 2u);
  EXPECT_EQ(p.sites_inside_allocation(), 1u);
  EXPECT_EQ(p.kernels_inside_allocation(), 0u);
  ASSERT_EQ(p.growth_size(), 1);
  EXPECT_EQ(p.growth(0).registers(), "VGPR");
  EXPECT_EQ(p.growth(0).by(), 8u);
  EXPECT_EQ(p.growth(0).kernels(), 1u);
  EXPECT_EQ(p.growth(0).sites(), 1u);
  EXPECT_EQ(p.kernels_same_occupancy(), 0u);
  ASSERT_EQ(p.occupancy_steps_size(), 1);
  EXPECT_EQ(p.occupancy_steps(0).waves_before(), 8);
  EXPECT_EQ(p.occupancy_steps(0).waves_after(), 7);
  EXPECT_EQ(p.occupancy_steps(0).declared(), 1u);
  EXPECT_EQ(p.kernels_undeclared_step(), 0u);
  EXPECT_GT(p.code_added(), p.code_before()) << "a clone";
  EXPECT_GT(p.bytes_after(), p.bytes_before());
  EXPECT_THAT(RenderPerturbation(p), HasSubstr("8 to 7 waves per SIMD"));
}

TEST(Perturbation, AnUndeclaredStepIsSeen) {
  const auto object = FullKernel();
  Admission silent = CountAt(object, "memory");
  for (v1::Decision& d : *silent.record.mutable_decisions()) d.clear_degradations();
  PerturbationTally tally;
  tally.Add("count-waves", object, silent);
  EXPECT_EQ(Only(tally).kernels_undeclared_step(), 1u);
  EXPECT_THAT(RenderPerturbation(Only(tally)), HasSubstr("BUG: 1 kernels"));

  // What is declared has to be as much as what was lost.
  Admission modest = CountAt(object, "memory");
  for (v1::Decision& d : *modest.record.mutable_decisions()) {
    d.mutable_delta()->set_occupancy_waves_after(8);
  }
  PerturbationTally other;
  other.Add("count-waves", object, modest);
  EXPECT_EQ(Only(other).kernels_undeclared_step(), 1u);
}

TEST(Perturbation, ReasonsAndPercentiles) {
  const auto object = FullKernel();
  PerturbationTally tally;
  tally.Add("count-waves", object, CountAt(object, "memory"));
  tally.Add("count-waves", object, CountAt(object, "global_store*,kernel+0x2"));
  const v1::Perturbation p = Only(tally);
  EXPECT_EQ(p.objects(), 2u);
  EXPECT_EQ(p.sites(), 4u);
  ASSERT_EQ(p.refused_size(), 1);
  EXPECT_EQ(p.refused(0).constraint_id(), id::kNoInstruction);
  EXPECT_EQ(p.injected_instructions().count(), 3u);
  EXPECT_LE(p.injected_instructions().median(), p.injected_instructions().p90());
  EXPECT_LE(p.injected_instructions().p90(), p.injected_instructions().max());
  EXPECT_GT(p.injected_instructions().median(), 0u);

  const std::vector<uint8_t> nothing = {1, 2, 3};
  tally.Add("count-waves", nothing, CountAt(nothing, "memory"));
  ASSERT_EQ(tally.Rows().size(), 2u);
  EXPECT_EQ(tally.Rows()[0].processor(), "");
  EXPECT_EQ(tally.Rows()[0].objects_refused(), 1u);
}

}  // namespace
}  // namespace rjdbi::contract
