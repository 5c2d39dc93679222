// Kernels at the steps of each generation's occupancy table, and one granule below:
// with max_occupancy_loss the probe is admitted and refused on the right side.
//
// What is expected is reckoned here from the manuals' numbers, not by the engine's
// tables: registers of a SIMD's file per lane, granule and wavefront slots from the
// ISA documents and the HSA kernel descriptor's definition (LLVM AMDGPUUsage).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

struct Simd {
  const char* processor;
  uint32_t wave;
  uint32_t file, granule;  // VGPRs per lane
  int32_t slots;           // wavefronts
  // What descriptors count in: never more than a granule.
  uint32_t Unit() const {
    const bool unified = file == 512 && granule == 8 && slots == 8;
    return wave == 32 || unified ? 8 : 4;
  }
};

void PrintTo(const Simd& s, std::ostream* out) { *out << s.processor << "/" << s.wave; }

constexpr Simd kSimds[] = {
    {"gfx900", 64, 256, 4, 10},    {"gfx906", 64, 256, 4, 10},    {"gfx908", 64, 256, 4, 10},
    {"gfx90a", 64, 512, 8, 8},     {"gfx942", 64, 512, 8, 8},     {"gfx1010", 32, 1024, 8, 20},
    {"gfx1010", 64, 512, 4, 20},   {"gfx1030", 32, 1024, 16, 16}, {"gfx1030", 64, 512, 8, 16},
    {"gfx1100", 32, 1536, 24, 16}, {"gfx1100", 64, 768, 12, 16},  {"gfx1102", 32, 1024, 16, 16},
    {"gfx1201", 32, 1536, 24, 16}, {"gfx1201", 64, 768, 12, 16},
};

// A kernel whose `vgprs` vector and `sgprs` scalar registers all hold something at s_sleep.
test::AsmKernel Full(const Simd& simd, uint32_t vgprs, uint32_t sgprs, uint32_t lds_bytes) {
  std::string body;
  for (uint32_t i = 0; i < vgprs; ++i) absl::StrAppend(&body, "v_mov_b32_e32 v", i, ", s0\n");
  for (uint32_t i = 2; i < sgprs; ++i) absl::StrAppend(&body, "s_mov_b32 s", i, ", s0\n");
  if (sgprs > 4) absl::StrAppend(&body, "s_mov_b64 vcc, s[0:1]\n");
  absl::StrAppend(&body, "s_sleep 1\n");
  for (uint32_t i = 1; i < vgprs; ++i) absl::StrAppend(&body, "v_add_f32_e32 v0, v0, v", i, "\n");
  for (uint32_t i = 2; i < sgprs; ++i) absl::StrAppend(&body, "v_add_f32_e32 v0, s", i, ", v0\n");
  if (sgprs > 4) {
    absl::StrAppend(&body, "v_add_f32_e32 v0, vcc_lo, v0\nv_add_f32_e32 v0, vcc_hi, v0\n");
  }
  const bool renamed =
      std::string(simd.processor) >= "gfx11" && std::string(simd.processor).size() > 6;
  absl::StrAppend(&body, renamed ? "global_store_b32" : "global_store_dword",
                  " v0, v0, s[0:1]\ns_endpgm\n");
  return {.body = body, .vgprs = vgprs, .sgprs = sgprs, .lds_bytes = lds_bytes};
}

v1::Decision Ask(const Simd& simd, const test::AsmKernel& kernel, int loss) {
  const auto object = test::AssembleObject(simd.processor, simd.wave, {kernel});
  v1::Attachment a;
  a.set_id("a-1");
  a.mutable_spec()->set_kernel_glob("*");
  a.mutable_spec()->set_sites("s_sleep");
  a.mutable_spec()->set_probe("count-waves");
  a.mutable_spec()->mutable_budget()->set_max_vgpr_delta(64);
  a.mutable_spec()->mutable_budget()->set_max_sgpr_delta(64);
  if (loss >= 0) {
    a.mutable_spec()->mutable_budget()->set_max_occupancy_loss(static_cast<uint32_t>(loss));
  }
  auto rewriter = patch::MakeTrampolineRewriter();
  const Admission admission = WithDecisions(Admit(object, {a}, DefaultPolicy(), *rewriter));
  EXPECT_EQ(admission.record.decisions_size(), 1) << admission.record.ShortDebugString();
  return admission.record.decisions_size() == 1 ? admission.record.decisions(0) : v1::Decision();
}

// And loses no wavefront. (gfx10.1 waits, which is a degradation of another kind.)
void ExpectWithinStep(const v1::Decision& d) {
  EXPECT_TRUE(d.outcome() == v1::VERIFIED_ATTACH ||
              d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION)
      << d.ShortDebugString();
  for (const v1::Degradation& g : d.degradations()) {
    EXPECT_EQ(g.constraint_id(), id::kDrainsWaits) << g.message();
  }
}

class OccupancyBoundary : public testing::TestWithParam<Simd> {
 protected:
  int32_t Waves(uint32_t vgprs) const {
    const Simd& s = GetParam();
    const uint32_t allocated = (vgprs + s.granule - 1) / s.granule * s.granule;
    return std::min(s.slots, static_cast<int32_t>(s.file / allocated));
  }
  static constexpr uint32_t kSgprs = 16;  // of which free ones do for the probe
  v1::Decision At(uint32_t vgprs, int loss) const {
    test::AsmKernel kernel = Full(GetParam(), vgprs, 4, 0);
    kernel.sgprs = kSgprs + 8;
    return Ask(GetParam(), kernel, loss);
  }
};

TEST_P(OccupancyBoundary, VgprsOnEitherSideOfEachStep) {
  const Simd& simd = GetParam();
  int steps = 0, inside = 0;
  // Allocations that one more granule takes over a step; from small ones up, where a
  // step costs most.
  for (uint32_t vgprs = simd.granule; steps < 4; vgprs += simd.granule) {
    ASSERT_LE(vgprs + simd.granule, 250u);
    const int32_t waves = Waves(vgprs), next = Waves(vgprs + simd.granule);
    if (waves == next) continue;
    ++steps;
    SCOPED_TRACE(absl::StrCat(simd.processor, " wave", simd.wave, " with ", vgprs, " VGPRs"));
    const v1::Decision none = At(vgprs, 0);
    EXPECT_EQ(none.outcome(), v1::OVER_BUDGET) << none.ShortDebugString();
    ASSERT_EQ(none.violations_size(), 1);
    EXPECT_EQ(none.violations(0).constraint_id(), id::kOccupancyBudget);
    EXPECT_EQ(none.violations(0).observed(), absl::StrCat(simd.Unit(), " VGPRs"));
    EXPECT_EQ(none.violations(0).limit(), "0 VGPRs");
    EXPECT_THAT(none.violations(0).message(), HasSubstr("the attachment"));
    EXPECT_THAT(none.violations(0).next_step(), HasSubstr("--max-occupancy-loss"));
    const int loss = waves - next;
    if (loss > 1) {
      EXPECT_EQ(At(vgprs, loss - 1).outcome(), v1::OVER_BUDGET);
    }
    const v1::Decision granted = At(vgprs, loss);
    EXPECT_EQ(granted.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION)
        << granted.ShortDebugString();
    EXPECT_EQ(granted.delta().occupancy_waves_before(), waves);
    EXPECT_EQ(granted.delta().occupancy_waves_after(), next);
    EXPECT_EQ(At(vgprs, -1).outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION);

    // As little below the step as can be said.
    const uint32_t below = vgprs - simd.Unit();
    if (below == 0 || Waves(below) != waves) continue;
    ++inside;
    const v1::Decision fits = At(below, 0);
    ExpectWithinStep(fits);
    EXPECT_EQ(fits.delta().occupancy_waves_before(), waves);
    EXPECT_EQ(fits.delta().occupancy_waves_after(), waves);
    EXPECT_EQ(fits.delta().vgpr(), static_cast<int32_t>(simd.Unit()));
  }
  EXPECT_GE(inside, 1);
}

// LDS: what a workgroup takes leaves room for so many on the compute unit, or on the
// workgroup processor's half of it; then registers are no longer what limits.
TEST_P(OccupancyBoundary, LdsLimitsFirst) {
  const Simd& simd = GetParam();
  constexpr uint32_t kGroupSize = 256;
  // 64 KiB for the four SIMDs of a compute unit (gfx9), 128 KiB for those of a
  // workgroup processor (gfx10 and later).
  const bool gfx9 = std::string(simd.processor).size() == 6;
  const uint32_t lds = gfx9 ? 65536 : 131072;
  const auto waves = static_cast<int32_t>(kGroupSize / simd.wave);
  for (const uint32_t groups : {2u, 3u, 4u}) {
    const uint32_t most = lds / groups / 512 * 512;
    if (most > 65536) continue;  // of one workgroup
    const auto fit = static_cast<int32_t>(groups) * waves;
    // The largest that leaves room for as many, and the next.
    for (const auto& [bytes, total] : {std::pair(most, fit), std::pair(most + 1, fit - waves)}) {
      if (bytes > 65536) continue;
      const int32_t expected = std::min(Waves(simd.granule), (total + 3) / 4);
      test::AsmKernel kernel = Full(simd, simd.granule, 4, bytes);
      kernel.sgprs = kSgprs + 8;
      const v1::Decision d = Ask(simd, kernel, 0);
      EXPECT_EQ(d.delta().occupancy_waves_before(), expected) << bytes << " bytes of LDS";
      ExpectWithinStep(d);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Generations, OccupancyBoundary, testing::ValuesIn(kSimds),
                         [](const testing::TestParamInfo<Simd>& info) {
                           return absl::StrCat(info.param.processor, "_wave", info.param.wave);
                         });

// Scalar registers cost wavefronts on gfx9 alone: 800 per SIMD, in granules of 16, of
// which VCC, FLAT_SCRATCH and XNACK_MASK take six.
TEST(OccupancyBoundarySgprs, OnEitherSide) {
  for (const char* processor : {"gfx900", "gfx906", "gfx908", "gfx90a", "gfx942"}) {
    const auto simd = std::find_if(std::begin(kSimds), std::end(kSimds), [&](const Simd& s) {
      return std::string(s.processor) == processor;
    });
    for (const uint32_t allocated : {64u, 80u}) {
      SCOPED_TRACE(absl::StrCat(processor, ", ", allocated, " SGPRs"));
      const int32_t waves = std::min(simd->slots, static_cast<int32_t>(800 / allocated));
      const int32_t next = std::min(simd->slots, static_cast<int32_t>(800 / (allocated + 16)));
      test::AsmKernel kernel = Full(*simd, 4, allocated - 6, 0);
      kernel.vgprs = 16;
      const v1::Decision d = Ask(*simd, kernel, 0);
      if (waves == next) {
        ExpectWithinStep(d);
        EXPECT_EQ(d.delta().sgpr(), 16);
        EXPECT_EQ(d.delta().occupancy_waves_after(), waves);
      } else {
        EXPECT_EQ(d.outcome(), v1::OVER_BUDGET) << d.ShortDebugString();
        ASSERT_EQ(d.violations_size(), 1);
        EXPECT_EQ(d.violations(0).constraint_id(), id::kOccupancyBudget);
        EXPECT_EQ(d.violations(0).observed(), "16 SGPRs");
      }
    }
  }
}

}  // namespace
}  // namespace rjdbi::contract
