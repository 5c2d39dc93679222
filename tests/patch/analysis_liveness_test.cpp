// Backward liveness on small kernels.
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::kScc;
using patch::kSgpr0;
using patch::kVccHi;
using patch::kVccLo;
using patch::kVgpr0;
using test::AssembleObject;
using test::Loaded;

TEST(Liveness, ScalarWritesKill) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    s_mov_b32 s4, 1
    s_nop 1
    s_add_u32 s5, s4, 2
    s_mov_b32 s6, s5
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_FALSE(k.LiveBefore(0).Has(kSgpr0 + 4));
  EXPECT_TRUE(k.LiveBefore(2).Has(kSgpr0 + 4));
  EXPECT_FALSE(k.LiveBefore(4).Has(kSgpr0 + 4));
  EXPECT_TRUE(k.LiveBefore(4).Has(kSgpr0 + 5));
  EXPECT_TRUE(k.LiveBefore(5).Empty()) << k.LiveBefore(5).ToString();
}

TEST(Liveness, SccLivesAcrossASite) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_cmp_eq_u32 s0, 0
    v_mov_b32_e32 v0, 0
    s_cbranch_scc1 1
    v_mov_b32_e32 v1, 0
    s_cmp_eq_u32 s1, 0
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_FALSE(k.LiveBefore(0).Has(kScc));
  EXPECT_TRUE(k.LiveBefore(1).Has(kScc));
  EXPECT_TRUE(k.LiveBefore(2).Has(kScc));
  EXPECT_FALSE(k.LiveBefore(3).Has(kScc));
}

TEST(Liveness, VccInWave64AndWave32) {
  const char* body = R"(
    v_cmp_eq_u32_e32 vcc, 0, v0
    s_nop 0
    v_cndmask_b32_e32 v1, v2, v3, vcc
    s_endpgm)";
  Loaded wave64(AssembleObject("gfx90a", 64, {{.body = body}}));
  EXPECT_TRUE(wave64.Kernel().LiveBefore(1).Has(kVccLo));
  EXPECT_TRUE(wave64.Kernel().LiveBefore(1).Has(kVccHi));
  EXPECT_FALSE(wave64.Kernel().LiveBefore(0).Has(kVccLo));
  // In wave32 the high half may be data: a vector compare does not end its life.
  Loaded wave32(AssembleObject("gfx1030", 32, {{.body = R"(
    s_mov_b32 vcc_hi, 7
    v_cmp_eq_u32_e32 vcc_lo, 0, v0
    v_cndmask_b32_e32 v1, v2, v3, vcc_lo
    s_mov_b32 s4, vcc_hi
    v_mov_b32_e32 v4, s4
    s_endpgm)"}}));
  EXPECT_FALSE(wave32.Kernel().LiveBefore(0).Has(kVccHi));
  EXPECT_TRUE(wave32.Kernel().LiveBefore(1).Has(kVccHi));
  EXPECT_FALSE(wave32.Kernel().LiveBefore(1).Has(kVccLo));
}

// v2 is written in one arm; the other arm's lanes keep their old value, which
// the join reads. On the wave-level graph the write in the first arm looks like
// a kill of v2: it must not be one.
TEST(Liveness, DivergentVectorWriteIsNoKill) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_mov_b32_e32 v2, 5
    v_cmp_eq_u32_e32 vcc, 0, v0
    s_and_saveexec_b64 s[4:5], vcc
    s_nop 0
    v_mov_b32_e32 v2, 6
    s_or_b64 exec, exec, s[4:5]
    global_store_dword v[0:1], v2, off
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.LiveBefore(3).Has(kVgpr0 + 2));  // between the saveexec and the write
  EXPECT_TRUE(k.LiveBefore(3).Has(kSgpr0 + 4));
  EXPECT_FALSE(k.LiveBefore(7).Has(kVgpr0 + 2));
}

TEST(Liveness, LoopsReachAFixpoint) {
  Loaded loaded(AssembleObject("gfx1030", 32, {{.body = R"(
    s_mov_b32 s4, 10
    s_mov_b32 s5, 0
    s_add_u32 s5, s5, s6
    s_sub_u32 s4, s4, 1
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 65532
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_EQ(k.blocks().size(), 3u);
  EXPECT_TRUE(k.LiveBefore(4).Has(kSgpr0 + 6));  // read again by the next round
  EXPECT_TRUE(k.LiveBefore(0).Has(kSgpr0 + 6));
  EXPECT_FALSE(k.LiveBefore(0).Has(kSgpr0 + 4));
  EXPECT_FALSE(k.LiveBefore(6).Has(kSgpr0 + 6));
}

TEST(Liveness, UnknownControlKeepsEverythingMentioned) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_mov_b32 s9, 1
    s_nop 0
    s_setpc_b64 s[2:3]
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.has_indirect_branch());
  EXPECT_TRUE(k.LiveBefore(1).Has(kSgpr0 + 9));
  EXPECT_TRUE(k.LiveBefore(1).Has(kScc));
  EXPECT_TRUE(k.PendingBefore(1).Has(kSgpr0 + 9));
}

TEST(Liveness, CalleesCountAsMentioned) {
  Loaded loaded(AssembleObject("gfx90a", 64,
                               {{.body = R"(
    s_getpc_b64 s[4:5]
    s_swappc_b64 s[30:31], s[4:5]
    s_endpgm)",
                                 .after = R"(
    .type helper,@function
    helper:
    v_mov_b32_e32 v40, 1
    s_setpc_b64 s[30:31]
    .size helper, .-helper)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.has_calls());
  EXPECT_TRUE(k.mentioned().Has(kVgpr0 + 40));
  EXPECT_TRUE(k.LiveBefore(0).Has(kVgpr0 + 40));
}

TEST(Liveness, RelativeIndexingKeepsTheFileLive) {
  Loaded loaded(AssembleObject("gfx1030", 32,
                               {{.body = R"(
    s_nop 0
    v_movrels_b32_e32 v1, v2
    s_endpgm)",
                                 .vgprs = 16}}));
  EXPECT_TRUE(loaded.Kernel().LiveBefore(0).Has(kVgpr0 + 15));
  EXPECT_TRUE(loaded.Kernel().mentioned().Has(kVgpr0 + 15));
}

}  // namespace
}  // namespace rjdbi
