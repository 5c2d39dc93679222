// Whether s[30:31] is available for probes that call.
#include "contract/link_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

test::Loaded Load(const std::string& processor, uint32_t wave, const std::string& body,
                  uint32_t sgprs) {
  test::AsmKernel k;
  k.body = body;
  k.sgprs = sgprs;
  return test::Loaded(test::AssembleObject(processor, wave, {k}));
}

TEST(LinkPair, DeadAndAllocatedIsAvailable) {
  auto o = Load("gfx90a", 64, "s_mov_b32 s31, 0\ns_nop 0\ns_endpgm", 40);
  EXPECT_FALSE(LinkPairUnavailable(o.Kernel(), 1, 0));
}

TEST(LinkPair, EitherHalfLiveIsRefused) {
  for (const char* half : {"s30", "s31"}) {
    auto o = Load("gfx90a", 64,
                  std::string("s_mov_b32 ") + half + ", 0\ns_nop 0\ns_mov_b32 s0, " + half +
                      "\nv_mov_b32_e32 v0, s0\nglobal_store_dword v[0:1], v0, off\ns_endpgm",
                  40);
    const auto refusal = LinkPairUnavailable(o.Kernel(), 1, 64);
    ASSERT_TRUE(refusal) << half;
    EXPECT_EQ(refusal->reason, patch::Reason::kLinkPairUnavailable);
    EXPECT_THAT(refusal->observed, HasSubstr("live"));
    EXPECT_FALSE(LinkPairUnavailable(o.Kernel(), 0, 64)) << "dead before it is written";
  }
}

TEST(LinkPair, LoadInFlightIsRefused) {
  auto o = Load("gfx90a", 64,
                "s_load_dwordx2 s[30:31], s[0:1], 0x0\ns_nop 0\ns_waitcnt lgkmcnt(0)\ns_nop 0\n"
                "s_endpgm",
                40);
  const auto refusal = LinkPairUnavailable(o.Kernel(), 1, 64);
  ASSERT_TRUE(refusal);
  EXPECT_THAT(refusal->observed, HasSubstr("load in flight"));
  EXPECT_FALSE(LinkPairUnavailable(o.Kernel(), 3, 64)) << "the wait is over";
}

TEST(LinkPair, OutsideTheAllocationNeedsGrowthWithinBudget) {
  auto o = Load("gfx90a", 64, "s_nop 0\ns_endpgm", 10);  // one granule of 16
  EXPECT_TRUE(LinkPairUnavailable(o.Kernel(), 0, 0));
  EXPECT_TRUE(LinkPairUnavailable(o.Kernel(), 0, 16));
  EXPECT_FALSE(LinkPairUnavailable(o.Kernel(), 0, 32)) << "10 usable, 32 needed: two granules";
}

TEST(LinkPair, AlwaysAllocatedFromGfx10On) {
  for (const char* processor : {"gfx1030", "gfx1100", "gfx1200"}) {
    auto o = Load(processor, 32, "s_nop 0\ns_endpgm", 4);
    EXPECT_FALSE(LinkPairUnavailable(o.Kernel(), 0, 0)) << processor;
  }
}

TEST(LinkPair, ReturnAddressOfACallingFunctionIsLive) {
  auto o = test::Loaded(test::CompileOpenCl("gfx90a", R"(
    __attribute__((noinline)) int twice(int x) { return x * 2 + __builtin_amdgcn_workitem_id_x(); }
    kernel void k(global int* a) { a[0] = twice(a[0]); a[1] = twice(a[1]); })"));
  const auto& k = o.Kernel("k");
  ASSERT_TRUE(k.has_calls());
  uint32_t call = 0;
  for (uint32_t i = 0; i < k.instructions().size(); ++i) {
    if (k.instructions()[i].call) call = i;
  }
  ASSERT_GT(call, 0u);
  const auto& ins = k.instructions()[call];
  // The call writes s[30:31]; the instruction before it may use them freely
  // only if nothing says otherwise, and analysis decides that: both answers
  // have to agree with liveness.
  const bool free = !k.LiveBefore(call).HasAny(patch::kSgpr0 + 30, 2) &&
                    !k.PendingBefore(call).HasAny(patch::kSgpr0 + 30, 2);
  EXPECT_TRUE(ins.defs.Has(patch::kSgpr0 + 30));
  EXPECT_EQ(!LinkPairUnavailable(k, call, 64).has_value(), free);
}

}  // namespace
}  // namespace rjdbi::contract
