// Loads in flight, and the waits that end them.
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::kSgpr0;
using patch::kVgpr0;
using test::AssembleObject;
using test::Loaded;

struct Row {
  const char* processor;
  uint32_t wave;
  const char* load;  // writes v4 or s4
  bool scalar;
  const char* weak;  // does not certainly cover it
  const char* wait;  // does
};

TEST(Pending, ClearedOnlyByItsCounterAtZero) {
  const Row rows[] = {
      {"gfx900", 64, "global_load_dword v4, v[0:1], off", false, "s_waitcnt vmcnt(1) lgkmcnt(0)",
       "s_waitcnt vmcnt(0)"},
      {"gfx900", 64, "s_load_dword s4, s[0:1], 0x0", true, "s_waitcnt vmcnt(0) lgkmcnt(1)",
       "s_waitcnt lgkmcnt(0)"},
      {"gfx900", 64, "s_memtime s[4:5]", true, "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"},
      {"gfx90a", 64, "ds_read_b32 v4, v0", false, "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"},
      {"gfx90a", 64, "ds_bpermute_b32 v4, v0, v1", false, "s_waitcnt vmcnt(0)",
       "s_waitcnt lgkmcnt(0)"},
      {"gfx90a", 64, "flat_load_dword v4, v[0:1]", false, "s_waitcnt vmcnt(0)",
       "s_waitcnt vmcnt(0) lgkmcnt(0)"},
      {"gfx90a", 64, "global_atomic_add v4, v[0:1], v2, off glc", false, "s_waitcnt lgkmcnt(0)",
       "s_waitcnt vmcnt(0)"},
      {"gfx1030", 32, "global_load_dword v4, v[0:1], off", false, "s_waitcnt_vscnt null, 0x0",
       "s_waitcnt_vmcnt null, 0x0"},
      {"gfx1030", 32, "s_load_dword s4, s[0:1], 0x0", true, "s_waitcnt lgkmcnt(16)",
       "s_waitcnt lgkmcnt(0)"},
      {"gfx1030", 32, "s_load_dword s4, s[0:1], 0x0", true, "s_waitcnt_lgkmcnt s1, 0x0",
       "s_waitcnt_lgkmcnt null, 0x0"},
      {"gfx1100", 32, "global_load_b32 v4, v[0:1], off", false, "s_waitcnt lgkmcnt(0)",
       "s_waitcnt vmcnt(0)"},
      {"gfx1100", 32, "ds_load_b32 v4, v0", false, "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"},
      {"gfx1201", 32, "global_load_b32 v4, v[0:1], off", false, "s_wait_dscnt 0x0",
       "s_wait_loadcnt 0x0"},
      {"gfx1201", 32, "ds_load_b32 v4, v0", false, "s_wait_loadcnt_dscnt 0x1",
       "s_wait_loadcnt_dscnt 0x100"},
      {"gfx1201", 32, "s_load_b32 s4, s[0:1], 0x0", true, "s_wait_loadcnt_dscnt 0x0",
       "s_wait_kmcnt 0x0"},
      {"gfx1201", 32, "flat_load_b32 v4, v[0:1]", false, "s_wait_loadcnt 0x0",
       "s_wait_loadcnt_dscnt 0x0"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.processor) + ": " + row.load);
    const std::string body =
        std::string("s_nop 0\n") + row.load + "\n" + row.weak + "\n" + row.wait + "\ns_endpgm\n";
    Loaded loaded(AssembleObject(row.processor, row.wave, {{.body = body}}));
    const auto& k = loaded.Kernel();
    ASSERT_EQ(k.instructions().size(), 5u);
    const auto reg = static_cast<uint16_t>((row.scalar ? kSgpr0 : kVgpr0) + 4);
    EXPECT_FALSE(k.PendingBefore(1).Has(reg));
    EXPECT_TRUE(k.PendingBefore(2).Has(reg));
    EXPECT_TRUE(k.PendingBefore(3).Has(reg));
    EXPECT_FALSE(k.PendingBefore(4).Has(reg));
  }
}

TEST(Pending, ForgottenWaitOnOnePath) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    global_load_dword v4, v[0:1], off
    s_cbranch_scc0 1
    s_waitcnt vmcnt(0)
    s_nop 0
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.PendingBefore(Loaded::Find(k, "s_nop")).Has(kVgpr0 + 4));
}

TEST(Pending, MatrixResultsLandWhenAnOrdinaryInstructionTouchesThem) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_mfma_f32_4x4x1f32 v[4:7], v0, v1, 0
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_mov_b32_e32 v1, v4
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.PendingBefore(1).Has(kVgpr0 + 4));
  EXPECT_TRUE(k.PendingBefore(2).Has(kVgpr0 + 4));
  EXPECT_FALSE(k.PendingBefore(3).Has(kVgpr0 + 4));
  EXPECT_TRUE(k.PendingBefore(3).Has(kVgpr0 + 5));
}

// What a callee leaves in flight is not known, but nothing lands late in EXEC.
TEST(Pending, AfterACallAnythingButExec) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    s_call_b64 s[30:31], 0
    v_mov_b32_e32 v1, v0
    s_endpgm)"}}));
  const auto& pending = loaded.Kernel().PendingBefore(1);
  EXPECT_TRUE(pending.Has(patch::kVgpr0) && pending.Has(patch::kVccLo));
  EXPECT_FALSE(pending.HasAny(patch::kExecLo, 2) || pending.Has(patch::kScc) ||
               pending.Has(patch::kMode));
}

// Behind an instruction: what it loads is in flight, and what it reads late may
// still be read; both until somebody waits, the latter until the next instruction.
TEST(Position, BehindALoadItsRegistersAreNotFree) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    v_mov_b32_e32 v4, 0
    global_load_dword v5, v[2:3], off
    s_load_dword s8, s[10:11], 0x0
    v_mov_b32_e32 v2, 0
    s_waitcnt vmcnt(0) lgkmcnt(0)
    global_store_dword v4, v5, s[10:11]
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  using patch::Position;
  const auto has = [&](uint32_t i, uint16_t reg) {
    return k.PendingAt(i, Position::kAfter).Has(reg);
  };
  EXPECT_FALSE(has(0, patch::kVgpr0 + 4));
  EXPECT_TRUE(has(1, patch::kVgpr0 + 5));
  EXPECT_TRUE(has(1, patch::kVgpr0 + 2) && has(1, patch::kVgpr0 + 3));
  EXPECT_FALSE(has(1, patch::kExecLo));
  EXPECT_FALSE(k.LiveAt(1, Position::kAfter).HasAny(patch::kVgpr0 + 2, 2));
  EXPECT_TRUE(has(2, patch::kSgpr0 + 8) && has(2, patch::kSgpr0 + 10));
  EXPECT_TRUE(has(2, patch::kVgpr0 + 5));
  EXPECT_FALSE(has(2, patch::kVgpr0 + 3)) << "the compiler could write it here, too";
  EXPECT_FALSE(has(4, patch::kVgpr0 + 5) || has(4, patch::kSgpr0 + 8));
  EXPECT_TRUE(k.LiveAt(4, Position::kAfter).Has(patch::kVgpr0 + 5));
  EXPECT_TRUE(has(5, patch::kVgpr0 + 5)) << "data of a store";
  for (uint32_t i = 0; i + 1 < k.instructions().size(); ++i) {
    EXPECT_EQ(k.LiveAt(i, Position::kAfter), k.LiveBefore(i + 1)) << i;
    EXPECT_EQ(k.PendingAt(i, Position::kBefore), k.PendingBefore(i)) << i;
  }
}

TEST(Position, BehindABlocksEndWhatSuccessorsNeedIsLive) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    s_mov_b32 s4, 0
    s_mov_b32 s5, 0
    .Lloop:
    s_add_u32 s5, s5, 1
    s_cmp_lt_u32 s5, s6
    s_cbranch_scc1 .Lloop
    v_mov_b32_e32 v0, s4
    global_store_dword v0, v0, s[10:11]
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  const auto live = k.LiveAt(1, patch::Position::kAfter);
  EXPECT_TRUE(live.Has(patch::kSgpr0 + 4) && live.Has(patch::kSgpr0 + 5) &&
              live.Has(patch::kSgpr0 + 6));
  EXPECT_FALSE(live.Has(patch::kScc));
  EXPECT_TRUE(k.LiveAt(3, patch::Position::kAfter).Has(patch::kScc));
}

}  // namespace
}  // namespace rjdbi
