// Which instructions may not be displaced, and why.
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::Reason;
using test::AssembleObject;
using test::Loaded;

Reason Why(const patch::KernelAnalysis& kernel, uint32_t i,
           patch::Position position = patch::Position::kBefore) {
  const auto refusal = kernel.Immovable(i, position);
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
    s_cbranch_cdbguser 0
    s_swappc_b64 s[30:31], s[4:5]
    s_setpc_b64 s[4:5]
    s_endpgm
    s_endpgm_saved)"}}));
  const auto& k = loaded.Kernel();
  const Reason expected[] = {Reason::kNone,
                             Reason::kNone,
                             Reason::kNone,
                             Reason::kSitePcRelative,
                             Reason::kNone,
                             Reason::kNone,
                             Reason::kSiteBranch,
                             Reason::kSiteIndirectTransfer,
                             Reason::kSiteIndirectTransfer,
                             Reason::kNone,
                             Reason::kSiteProgramEnd};
  ASSERT_EQ(k.instructions().size(), std::size(expected));
  for (uint32_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(Why(k, i), expected[i]) << i;
}

TEST(Immovable, NothingIsBehindATransferOfControl) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_mov_b32_e32 v0, 0
    global_load_dword v1, v[2:3], off
    s_cbranch_scc0 0
    s_branch 0
    s_call_b64 s[30:31], 0
    s_getpc_b64 s[4:5]
    s_swappc_b64 s[30:31], s[4:5]
    s_setpc_b64 s[4:5]
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  const Reason expected[] = {Reason::kNone,
                             Reason::kNone,
                             Reason::kSiteNothingAfter,
                             Reason::kSiteNothingAfter,
                             Reason::kSiteNothingAfter,
                             Reason::kSitePcRelative,
                             Reason::kSiteNothingAfter,
                             Reason::kSiteNothingAfter,
                             Reason::kSiteNothingAfter};
  ASSERT_EQ(k.instructions().size(), std::size(expected));
  for (uint32_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(Why(k, i, patch::Position::kAfter), expected[i]) << i;
  }
}

TEST(Immovable, RegionsThatBeginBehindTheInstruction) {
  Loaded index(AssembleObject("gfx900", 64, {{.body = R"(
    s_nop 0
    s_set_gpr_idx_on s2, gpr_idx(SRC0)
    v_mov_b32_e32 v1, v2
    s_set_gpr_idx_off
    s_endpgm)"}}));
  EXPECT_EQ(Why(index.Kernel(), 1), Reason::kNone);
  EXPECT_EQ(Why(index.Kernel(), 1, patch::Position::kAfter), Reason::kSiteInsideGprIndexRegion);
  Loaded dealloc(AssembleObject("gfx1100", 32, {{.body = R"(
    s_nop 0
    s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
    s_endpgm)"}}));
  EXPECT_EQ(Why(dealloc.Kernel(), 0, patch::Position::kAfter), Reason::kNone);
  EXPECT_EQ(Why(dealloc.Kernel(), 1), Reason::kNone);
  EXPECT_EQ(Why(dealloc.Kernel(), 1, patch::Position::kAfter), Reason::kSiteDealloc);
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
  for (uint32_t i = 0; i <= 4; ++i) EXPECT_EQ(Why(k, i), Reason::kNone) << i;
  EXPECT_EQ(k.SplittableClause(0), std::nullopt);
  for (uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(k.SplittableClause(i), 1u) << i;
  EXPECT_EQ(k.SplittableClause(4), std::nullopt);
}

TEST(Immovable, EachClauseIsItsOwn) {
  Loaded loaded(AssembleObject("gfx1100", 32, {{.body = R"(
    s_clause 0x0
    global_load_b32 v4, v[0:1], off
    s_clause 0x1
    global_load_b32 v5, v[0:1], off offset:4
    global_load_b32 v6, v[0:1], off offset:8
    s_cbranch_scc0 .Lend
    s_clause 0x1
    ds_load_b32 v2, v0
    .Lend:
    ds_load_b32 v3, v0 offset:4
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  const std::optional<uint32_t> expected[] = {0, 0, 2, 2, 2, std::nullopt, 6, 6, 6, std::nullopt};
  ASSERT_EQ(k.instructions().size(), std::size(expected));
  for (uint32_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(k.SplittableClause(i), expected[i]) << i;
  }
  // Whoever branches into a run is in no clause; those who come from above are.
  EXPECT_EQ(Why(k, 8), Reason::kNone);
}

// What no compiler makes: the run's extent is uncertain, so it stays whole.
TEST(Immovable, OddClausesAreNotSplit) {
  const struct {
    const char *what, *body;
    uint32_t first, last;  // instructions of the clause
  } cases[] = {
      {"a branch ends the block inside the run", R"(
         s_clause 0x2
         s_load_dword s4, s[0:1], 0x0
         s_cbranch_scc0 .Lend
         s_load_dword s5, s[0:1], 0x4
         .Lend:
         s_endpgm)",
       0, 3},
      {"the run reaches the program's end", R"(
         s_nop 0
         s_clause 0x1
         s_load_dword s4, s[0:1], 0x0
         s_endpgm
         s_nop 0)",
       1, 3},
      {"the run reaches past the kernel", R"(
         s_branch .Lend
         s_clause 0x3e
         s_load_dword s4, s[0:1], 0x0
         .Lend:
         s_nop 0)",
       1, 3},
      {"a clause in a clause", R"(
         s_clause 0x4
         s_load_dword s4, s[0:1], 0x0
         s_clause 0x0
         s_load_dword s5, s[0:1], 0x4
         s_load_dword s6, s[0:1], 0x8
         s_load_dword s7, s[0:1], 0xc
         s_endpgm)",
       0, 5},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Loaded loaded(AssembleObject("gfx1030", 32, {{.body = c.body}}));
    const auto& k = loaded.Kernel();
    for (uint32_t i = c.first; i <= c.last; ++i) {
      EXPECT_EQ(k.SplittableClause(i), std::nullopt) << i;
      EXPECT_NE(Why(k, i), Reason::kNone) << i;
    }
    EXPECT_TRUE(Why(k, c.first) == Reason::kSiteInsideClause ||
                Why(k, c.first) == Reason::kSiteUndecodable);
  }
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
