// Which instructions may not be displaced, and why.
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::Reason;
using test::AssembleObject;
using test::Loaded;

Reason Why(const patch::KernelAnalysis& kernel, uint32_t i) {
  const auto refusal = kernel.Immovable(i);
  return refusal ? refusal->reason : Reason::kNone;
}

TEST(Immovable, ByInstruction) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_mov_b32_e32 v0, 0
    s_barrier
    s_waitcnt vmcnt(0)
    s_getpc_b64 s[4:5]
    s_cbranch_scc0 0
    s_branch 0
    s_swappc_b64 s[30:31], s[4:5]
    s_setpc_b64 s[4:5]
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  const Reason expected[] = {Reason::kNone,
                             Reason::kNone,
                             Reason::kNone,
                             Reason::kSitePcRelative,
                             Reason::kSiteBranch,
                             Reason::kSiteBranch,
                             Reason::kSiteIndirectTransfer,
                             Reason::kSiteIndirectTransfer,
                             Reason::kSiteProgramEnd};
  ASSERT_EQ(k.instructions().size(), std::size(expected));
  for (uint32_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(Why(k, i), expected[i]) << i;
}

TEST(Immovable, ClauseCoversExactlyItsRun) {
  Loaded loaded(AssembleObject("gfx1030", 32, {{.body = R"(
    s_nop 0
    s_clause 0x1
    global_load_dword v4, v[0:1], off
    global_load_dword v5, v[0:1], off offset:4
    s_nop 0
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(Why(k, 0), Reason::kNone);
  for (uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(Why(k, i), Reason::kSiteInsideClause) << i;
  EXPECT_EQ(Why(k, 4), Reason::kNone);
}

TEST(Immovable, GprIndexRegionFollowsPaths) {
  Loaded loaded(AssembleObject("gfx900", 64, {{.body = R"(
    s_cbranch_scc0 1
    s_set_gpr_idx_on s2, gpr_idx(SRC0)
    v_mov_b32_e32 v1, v2
    s_set_gpr_idx_off
    v_mov_b32_e32 v1, v2
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(Why(k, Loaded::Find(k, "v_mov_b32", 0)), Reason::kSiteInsideGprIndexRegion);
  EXPECT_EQ(Why(k, Loaded::Find(k, "v_mov_b32", 1)), Reason::kNone);
}

TEST(Immovable, AfterVgprDeallocation) {
  Loaded loaded(AssembleObject("gfx1100", 32, {{.body = R"(
    s_nop 0
    s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
    s_nop 1
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(Why(k, 1), Reason::kNone);
  EXPECT_EQ(Why(k, 2), Reason::kSiteDealloc);
}

TEST(Immovable, BranchIntoAnInstruction) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    s_cbranch_scc0 1
    s_mov_b32 s4, 0xbf800001
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(Why(k, 2), Reason::kSiteBranchTargetInside);
  EXPECT_EQ(Why(k, 0), Reason::kSiteUndecodable);
}

TEST(Immovable, UndecodableBytesMatterOnlyWhenReached) {
  Loaded reached(AssembleObject("gfx1030", 32, {{.body = R"(
    s_nop 0
    .long 0xffffffff
    s_endpgm)"}}));
  EXPECT_EQ(Why(reached.Kernel(), 0), Reason::kSiteUndecodable);
  EXPECT_EQ(reached.Kernel().undecodable_offset(), 4u);
  Loaded unreached(AssembleObject("gfx1030", 32, {{.body = R"(
    s_nop 0
    s_endpgm
    .long 0xffffffff)"}}));
  EXPECT_EQ(Why(unreached.Kernel(), 0), Reason::kNone);
}

TEST(Immovable, FirstEntryOfAPreloadingKernel) {
  Loaded loaded(AssembleObject("gfx90a", 64,
                               {{.body = R"(
    s_load_dwordx2 s[2:3], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_branch .Lmain
    .p2align 8
    .Lmain:
    v_mov_b32_e32 v0, s2
    s_endpgm)",
                                 .preload_dwords = 2}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(Why(k, 0), Reason::kKernargPreloadEntry);
  const auto main = k.InstructionAt(256);
  ASSERT_TRUE(main.has_value());
  EXPECT_EQ(Why(k, *main), Reason::kNone);
}

}  // namespace
}  // namespace rjdbi
