// Budgets and occupancy: pure arithmetic, so every figure is spelled out.
#include "contract/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

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
  const EffectiveBudget budget = ComputeBudget(asked, DefaultPolicy());
  const v1::EventRate rate = RateAt(budget, 3);
  EXPECT_EQ(rate.events_per_second(), 50u) << "the attachment has said it, loops or not";
  TelemetryBudget t(budget);
  EXPECT_FALSE(t.Take(8, rate, {}));      // 400
  EXPECT_FALSE(t.Take(8, rate, {}));      // 800
  const auto over = t.Take(8, rate, {});  // 1200
  ASSERT_TRUE(over);
  EXPECT_EQ(over->constraint_id(), id::kTelemetryBudget);
  EXPECT_EQ(over->observed(), "1200 bytes per second");
  EXPECT_THAT(over->limit(), HasSubstr("1000 bytes per second (the attachment)"));
  EXPECT_THAT(over->message(), HasSubstr("50 events per second and site, as the attachment says"));
  EXPECT_FALSE(t.Take(4, rate, {}));  // 1000
  EXPECT_FALSE(t.Take(0, rate, {}));
}

TEST(Budget, TelemetryEstimateSaturates) {
  v1::Budget asked;
  asked.set_expected_events_per_second(~uint64_t{0});
  const EffectiveBudget budget = ComputeBudget(asked, DefaultPolicy());
  TelemetryBudget t(budget);
  EXPECT_TRUE(t.Take(16, RateAt(budget, 0), {}));
  EXPECT_EQ(RateAt(ComputeBudget({}, DefaultPolicy()), 1'000'000).events_per_second(),
            ~uint64_t{0});
}

TEST(Budget, RatesGrowWithEachLoopUnlessTheAttachmentSaysOtherwise) {
  Policy policy = DefaultPolicy();
  policy.defaults.set_expected_events_per_second(3);
  policy.loop_factor = 10;
  const EffectiveBudget budget = ComputeBudget({}, policy);
  EXPECT_EQ(RateAt(budget, 0).events_per_second(), 3u);
  EXPECT_EQ(RateAt(budget, 2).events_per_second(), 300u);
  EXPECT_EQ(RateAt(budget, 2).loop_depth(), 2u);
  EXPECT_EQ(RateAt(budget, 2).source(), v1::STATIC_LOOP_DEPTH);
  policy.loop_factor = 1;
  EXPECT_EQ(RateAt(ComputeBudget({}, policy), 2).events_per_second(), 3u);
}

// No probe of this engine has any of these; the checks do not know that.
TEST(Budget, DescriptorsThatAskForMoreAreOverBudget) {
  const auto gfx90a = patch::FindGeneration("gfx90a"), gfx908 = patch::FindGeneration("gfx908");
  const auto gfx1100 = patch::FindGeneration("gfx1100");
  patch::KernelDescriptor before, after;
  before.compute_pgm_rsrc1 = 3;  // 32 registers of the unified file
  before.compute_pgm_rsrc3 = 5;  // 24 of them VGPRs
  before.private_segment_fixed_size = 16;
  before.group_segment_fixed_size = 1024;
  after = before;
  after.compute_pgm_rsrc1 = 5;  // 48
  after.private_segment_fixed_size = 48;
  after.group_segment_fixed_size = 1536;
  v1::ResourceDelta delta;
  SetDescriptorDelta(**gfx90a, 64, before, after, delta);
  EXPECT_EQ(delta.agpr(), 16);
  EXPECT_EQ(delta.scratch_bytes(), 32);
  EXPECT_EQ(delta.lds_bytes(), 512);
  v1::ResourceDelta other;
  SetDescriptorDelta(**gfx908, 64, before, after, other);
  EXPECT_EQ(other.agpr(), 8) << "a file of its own, of the same size";
  other.Clear();
  SetDescriptorDelta(**gfx1100, 32, before, after, other);
  EXPECT_EQ(other.agpr(), 0);

  v1::Budget asked;
  asked.set_max_agpr_delta(16);
  asked.set_max_local_memory_delta(32);
  asked.set_max_shared_memory_delta(512);
  EXPECT_TRUE(CheckSiteBudget(ComputeBudget(asked, DefaultPolicy()), delta, {}).empty());
  asked.set_max_agpr_delta(15);
  asked.set_max_local_memory_delta(31);
  asked.set_max_shared_memory_delta(511);
  const auto v = CheckSiteBudget(ComputeBudget(asked, DefaultPolicy()), delta, {});
  ASSERT_EQ(v.size(), 3u);
  EXPECT_EQ(v[0].constraint_id(), id::kAgprBudget);
  EXPECT_EQ(v[0].observed(), "16 AGPRs");
  EXPECT_EQ(v[0].limit(), "15 AGPRs (the attachment)");
  EXPECT_EQ(v[1].constraint_id(), id::kScratchBudget);
  EXPECT_EQ(v[1].observed(), "32 bytes of scratch per work-item");
  EXPECT_EQ(v[2].constraint_id(), id::kLdsBudget);
  EXPECT_EQ(v[2].limit(), "511 bytes of LDS per workgroup (the attachment)");
  EXPECT_EQ(CheckSiteBudget(ComputeBudget({}, DefaultPolicy()), delta, {}).size(), 2u)
      << "scratch and LDS by default not at all";
}

// Each limit's tightest owner is named.
TEST(Budget, EveryLimitSaysWhoseItIs) {
  for (int i = 0; i < v1::Budget::descriptor()->field_count(); ++i) {
    const auto* field = v1::Budget::descriptor()->field(i);
    if (field->number() == v1::Budget::kExpectedEventsPerSecondFieldNumber) continue;
    const auto set = [&](v1::Budget& budget, uint32_t value) {
      if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
        budget.GetReflection()->SetUInt64(&budget, field, value);
      } else {
        budget.GetReflection()->SetUInt32(&budget, field, value);
      }
    };
    Policy policy;
    v1::Budget asked;
    const auto sources = [&] {
      const EffectiveBudget b = ComputeBudget(asked, policy);
      std::set<std::string_view> out;
      for (const Limit* limit :
           {&b.sgpr, &b.vgpr, &b.instructions, &b.telemetry, &b.code_growth, &b.occupancy_loss,
            &b.agpr, &b.scratch, &b.lds, &b.sampled_fraction, &b.admission_time}) {
        if (limit->value != Limit::kNone) out.insert(limit->source);
      }
      return out;
    };
    EXPECT_THAT(sources(), testing::IsEmpty());
    set(policy.defaults, 9);
    EXPECT_THAT(sources(), testing::ElementsAre("the daemon's default")) << field->name();
    set(asked, 8);
    EXPECT_THAT(sources(), testing::ElementsAre("the attachment")) << field->name();
    set(policy.ceiling, 7);
    EXPECT_THAT(sources(), testing::ElementsAre("the daemon's ceiling")) << field->name();
    EXPECT_EQ(CheckCeiling(asked, policy).size(), 1u) << field->name();
  }
}

TEST(Budget, TimeIsComparedInMilliseconds) {
  v1::Budget asked;
  asked.set_max_admission_time_ms(250);
  const EffectiveBudget budget = ComputeBudget(asked, DefaultPolicy());
  EXPECT_FALSE(CheckAdmissionTime(budget, 250));
  const auto late = CheckAdmissionTime(budget, 251);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->constraint_id(), id::kAdmissionTime);
  EXPECT_EQ(late->observed(), "251 ms");
  EXPECT_EQ(late->limit(), "250 ms (the attachment)");
  EXPECT_FALSE(CheckAdmissionTime(ComputeBudget({}, DefaultPolicy()), ~uint64_t{0} - 1));
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
