// Budgets and occupancy: pure arithmetic, so every figure is spelled out.
#include "contract/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/catalogue.h"
#include "contract/occupancy.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

TEST(Budget, TightestLimitWinsAndIsNamed) {
  Policy policy = DefaultPolicy();
  policy.defaults.set_max_sgpr_delta(16);
  policy.ceiling.set_max_sgpr_delta(32);
  const auto sgpr = [&](std::optional<uint32_t> asked) {
    v1::Budget b;
    if (asked) b.set_max_sgpr_delta(*asked);
    return LimitText(ComputeBudget(b, policy).sgpr, "SGPRs");
  };
  EXPECT_EQ(sgpr(std::nullopt), "16 SGPRs (the daemon's default)");
  EXPECT_EQ(sgpr(8), "8 SGPRs (the attachment)");
  EXPECT_EQ(sgpr(0), "0 SGPRs (the attachment)");
  EXPECT_EQ(sgpr(100), "32 SGPRs (the daemon's ceiling)");
  policy.ceiling.set_max_sgpr_delta(4);
  EXPECT_EQ(sgpr(std::nullopt), "4 SGPRs (the daemon's ceiling)");
}

TEST(Budget, SiteChecksCompareEachField) {
  v1::Budget asked;
  asked.set_max_sgpr_delta(8);
  asked.set_max_vgpr_delta(0);
  asked.set_max_injected_instructions_per_event(10);
  const EffectiveBudget budget = ComputeBudget(asked, DefaultPolicy());
  v1::ResourceDelta delta;
  delta.set_sgpr(8);
  delta.set_injected_instructions(10);
  EXPECT_TRUE(CheckSiteBudget(budget, delta, {}).empty());
  delta.set_sgpr(9);
  delta.set_vgpr(1);
  delta.set_injected_instructions(11);
  const auto v = CheckSiteBudget(budget, delta, {});
  ASSERT_EQ(v.size(), 3u);
  EXPECT_EQ(v[0].constraint_id(), id::kSgprBudget);
  EXPECT_EQ(v[0].observed(), "9 SGPRs");
  EXPECT_EQ(v[0].limit(), "8 SGPRs (the attachment)");
  EXPECT_EQ(v[1].constraint_id(), id::kVgprBudget);
  EXPECT_EQ(v[2].constraint_id(), id::kInstructionBudget);
}

TEST(Budget, LostOccupancyIsUnlimitedUntilSomebodyLimitsIt) {
  Policy policy = DefaultPolicy();
  v1::ResourceDelta delta;
  delta.set_occupancy_waves_before(10);
  delta.set_occupancy_waves_after(7);
  EXPECT_TRUE(CheckSiteBudget(ComputeBudget({}, policy), delta, {}).empty());
  v1::Budget asked;
  asked.set_max_occupancy_loss(3);
  EXPECT_TRUE(CheckSiteBudget(ComputeBudget(asked, policy), delta, {}).empty());
  policy.ceiling.set_max_occupancy_loss(2);
  const auto v = CheckSiteBudget(ComputeBudget(asked, policy), delta, {});
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].constraint_id(), id::kOccupancyBudget);
  EXPECT_EQ(v[0].limit(), "2 wavefronts per SIMD (the daemon's ceiling)");
  EXPECT_EQ(CheckCeiling(asked, policy).size(), 1u);
  EXPECT_EQ(CheckSiteBudget(ComputeBudget({}, policy), delta, {}).size(), 1u)
      << "ceilings bind all";
}

TEST(Budget, TelemetryAddsUpAndLaterCheaperSitesStillFit) {
  v1::Budget asked;
  asked.set_max_telemetry_bytes_per_second(1000);
  asked.set_expected_events_per_second(50);
  TelemetryBudget t(ComputeBudget(asked, DefaultPolicy()));
  EXPECT_FALSE(t.Take(8, {}));      // 400
  EXPECT_FALSE(t.Take(8, {}));      // 800
  const auto over = t.Take(8, {});  // 1200
  ASSERT_TRUE(over);
  EXPECT_EQ(over->constraint_id(), id::kTelemetryBudget);
  EXPECT_EQ(over->observed(), "1200 bytes per second");
  EXPECT_THAT(over->limit(), HasSubstr("1000 bytes per second (the attachment)"));
  EXPECT_FALSE(t.Take(4, {}));  // 1000
  EXPECT_FALSE(t.Take(0, {}));
}

TEST(Budget, TelemetryEstimateSaturates) {
  v1::Budget asked;
  asked.set_expected_events_per_second(~uint64_t{0});
  TelemetryBudget t(ComputeBudget(asked, DefaultPolicy()));
  EXPECT_TRUE(t.Take(16, {}));
}

TEST(Budget, CeilingRefusesOnlyWhatExceedsIt) {
  Policy policy = DefaultPolicy();
  policy.ceiling.set_max_vgpr_delta(8);
  v1::Budget asked;
  asked.set_max_vgpr_delta(8);
  EXPECT_TRUE(CheckCeiling(asked, policy).empty());
  asked.set_max_vgpr_delta(9);
  const auto v = CheckCeiling(asked, policy);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].constraint_id(), id::kOverCeiling);
  EXPECT_EQ(v[0].limit(), "8 VGPRs (the daemon's ceiling)");
}

// Figures: the occupancy that LLVM 19 states for kernels of these sizes.
TEST(Occupancy, StepsOfEachGeneration) {
  const struct {
    const char* processor;
    uint32_t wave, vgprs, sgprs;
    int32_t waves;
  } cases[] = {
      {"gfx900", 64, 24, 16, 10}, {"gfx900", 64, 28, 16, 9},   {"gfx900", 64, 256, 16, 1},
      {"gfx900", 64, 4, 96, 8},   {"gfx900", 64, 4, 112, 7},   {"gfx90a", 64, 64, 16, 8},
      {"gfx90a", 64, 72, 16, 7},  {"gfx90a", 64, 128, 16, 4},  {"gfx90a", 64, 512, 16, 1},
      {"gfx1030", 32, 64, 0, 16}, {"gfx1030", 32, 65, 0, 12},  {"gfx1030", 32, 128, 0, 8},
      {"gfx1100", 32, 96, 0, 16}, {"gfx1100", 32, 120, 0, 12}, {"gfx1100", 32, 144, 0, 10},
  };
  for (const auto& c : cases) {
    const auto g = patch::FindGeneration(c.processor);
    ASSERT_TRUE(g.ok());
    EXPECT_EQ(WavesPerSimd(**g, {c.wave, c.vgprs, c.sgprs, 0, 0}), c.waves)
        << c.processor << " wave" << c.wave << " v" << c.vgprs << " s" << c.sgprs;
  }
}

TEST(Occupancy, LdsLimitsWorkgroups) {
  const auto g = patch::FindGeneration("gfx90a");
  ASSERT_TRUE(g.ok());
  // 64 KiB per compute unit: two groups of four wavefronts on four SIMDs.
  EXPECT_EQ(WavesPerSimd(**g, {64, 8, 16, 32768, 256}), 2);
  EXPECT_EQ(WavesPerSimd(**g, {64, 8, 16, 65536, 256}), 1);
}

TEST(Occupancy, AllocationFromTheDescriptor) {
  patch::KernelDescriptor d;
  d.compute_pgm_rsrc1 = 3 | 4u << 6;  // VGPR field 3, SGPR field 4
  d.compute_pgm_rsrc3 = 5;            // ACCUM_OFFSET
  const auto gfx900 = patch::FindGeneration("gfx900"), gfx90a = patch::FindGeneration("gfx90a");
  const auto gfx1030 = patch::FindGeneration("gfx1030");
  const Allocation a = DescriptorAllocation(**gfx900, d, 64);
  EXPECT_EQ(a.vgprs, 16u);
  EXPECT_EQ(a.sgprs, 48u);
  EXPECT_EQ(a.usable_sgprs, 42u);
  const Allocation b = DescriptorAllocation(**gfx90a, d, 64);
  EXPECT_EQ(b.vgprs, 32u);
  EXPECT_EQ(b.arch_vgprs, 24u);
  EXPECT_EQ(b.agprs, 8u);
  EXPECT_EQ(DescriptorAllocation(**gfx1030, d, 32).vgprs, 32u);
  EXPECT_EQ(DescriptorAllocation(**gfx1030, d, 64).vgprs, 16u);
  EXPECT_EQ(DescriptorAllocation(**gfx1030, d, 32).usable_sgprs, 106u);
}

}  // namespace
}  // namespace rjdbi::contract
