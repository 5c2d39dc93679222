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

// Of the lanes that are active, a write leaves nothing; what others hold is kept
// only if they may read it again before they write.
TEST(Liveness, VectorWritesKillWhatNoOtherLaneReads) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_mov_b32_e32 v2, 5
    v_cmp_eq_u32_e32 vcc, 0, v0
    s_and_saveexec_b64 s[4:5], vcc
    s_nop 0
    v_mov_b32_e32 v3, 6
    v_add_u32_e32 v2, v2, v3
    s_nop 1
    s_or_b64 exec, exec, s[4:5]
    s_nop 2
    v_mov_b32_e32 v3, 7
    global_store_dword v[0:1], v2, off
    global_store_dword v[0:1], v3, off
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_FALSE(k.LiveBefore(0).Has(kVgpr0 + 2)) << "written in all lanes";
  EXPECT_TRUE(k.LiveBefore(1).Has(kVgpr0 + 2));
  EXPECT_FALSE(k.LiveBefore(3).Has(kVgpr0 + 3)) << "other lanes write it before they read it";
  EXPECT_TRUE(k.LiveBefore(5).Has(kVgpr0 + 3));
  EXPECT_FALSE(k.LiveBefore(6).Has(kVgpr0 + 3));
  EXPECT_FALSE(k.LiveBefore(8).Has(kVgpr0 + 3)) << "EXEC is what it was at the entry";
  EXPECT_TRUE(k.LiveBefore(6).Has(kVgpr0 + 2));
}

// The other arm of a divergence runs later, in lanes that are not active now.
TEST(Liveness, TheOtherArmsLanesKeepTheirValues) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    v_cmp_eq_u32_e32 vcc, 0, v0
    s_and_saveexec_b64 s[4:5], vcc
    s_xor_b64 s[4:5], exec, s[4:5]
    s_nop 0
    v_mov_b32_e32 v2, 6
    global_store_dword v[0:1], v2, off
    s_nop 1
    s_mov_b64 exec, s[4:5]
    global_store_dword v[0:1], v2, off
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE(k.LiveBefore(3).Has(kVgpr0 + 2));
  EXPECT_TRUE(k.LiveBefore(6).Has(kVgpr0 + 2));
  EXPECT_TRUE(k.LiveBefore(0).Has(kVgpr0 + 2));
  EXPECT_FALSE(k.LiveBefore(9).Has(kVgpr0 + 2));
}

// Lanes leave a loop one after the other; what it writes before it reads is dead
// at its head, what those that left have written is not.
TEST(Liveness, LoopsThatLanesLeave) {
  Loaded loaded(AssembleObject("gfx1030", 32, {{.body = R"(
    s_mov_b32 s4, exec_lo
    v_mov_b32_e32 v2, 0
    v_mov_b32_e32 v3, v0
    v_add_nc_u32_e32 v2, v2, v3
    v_mov_b32_e32 v4, v2
    v_cmp_gt_u32_e32 vcc_lo, 64, v4
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execnz 65530
    s_mov_b32 exec_lo, s4
    global_store_dword v[0:1], v4, off
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  ASSERT_EQ(k.instructions()[7].target_offset, int64_t(k.instructions()[2].offset));
  EXPECT_FALSE(k.LiveBefore(2).Has(kVgpr0 + 3));
  EXPECT_TRUE(k.LiveBefore(2).Has(kVgpr0 + 4)) << "of lanes that are through";
  EXPECT_TRUE(k.LiveBefore(2).Has(kVgpr0 + 2));
  EXPECT_FALSE(k.LiveBefore(1).Has(kVgpr0 + 2));
}

struct NoKill {
  const char *why, *processor, *write, *read;
};

// Each writes v2 and ends no life: of lanes that another instruction reads or that
// are never active, of the other half of the register.
TEST(Liveness, WritesThatDoNotReachAllOfTheRegister) {
  const NoKill cases[] = {
      {"one lane", "gfx90a", "v_writelane_b32 v2, s6, 3", "v_mov_b32_e32 v4, v2"},
      {"half a register", "gfx1030", "v_add_f16_e32 v2, v4, v5", "v_mov_b32_e32 v4, v2"},
      {"half a register, loaded", "gfx90a", "global_load_short_d16 v2, v[0:1], off",
       "v_mov_b32_e32 v4, v2"},
      {"half a register, converted", "gfx1030", "v_cvt_f16_f32_e32 v2, v4", "v_mov_b32_e32 v4, v2"},
      {"a byte", "gfx90a",
       "v_mov_b32_sdwa v2, v4 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE src0_sel:DWORD",
       "v_mov_b32_e32 v4, v2"},
      {"some lanes of a row", "gfx90a", "v_mov_b32_dpp v2, v4 row_shr:1 row_mask:0xf bank_mask:0xf",
       "v_mov_b32_e32 v4, v2"},
      {"a sum", "gfx90a", "v_fmac_f32_e32 v2, v4, v5", "v_mov_b32_e32 v4, v2"},
      {"under another mask", "gfx90a", "s_mov_b64 exec, s[8:9]\nv_mov_b32_e32 v2, 1",
       "s_mov_b64 exec, s[10:11]\nv_mov_b32_e32 v4, v2"},
      {"read by other lanes", "gfx90a", "s_and_saveexec_b64 s[4:5], vcc\nv_mov_b32_e32 v2, 1",
       "v_readlane_b32 s6, v2, 3"},
      {"read by other lanes, DPP", "gfx90a", "s_and_saveexec_b64 s[4:5], vcc\nv_mov_b32_e32 v2, 1",
       "v_mov_b32_dpp v4, v2 row_shr:1 row_mask:0xf bank_mask:0xf"},
      {"lanes that are written whatever EXEC is", "gfx90a",
       "v_mov_b32_e32 v2, 1\nv_writelane_b32 v3, s6, 63", "v_readlane_b32 s6, v2, 63"},
      {"lanes beyond those of the entry", "gfx90a",
       "s_mov_b64 s[4:5], exec\nv_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[6:7], vcc\n"
       "s_or_b64 exec, exec, s[6:7]\nv_mov_b32_e32 v2, 1",
       "s_mov_b64 exec, -1\nv_mov_b32_e32 v4, v2"},
  };
  for (const NoKill& c : cases) {
    Loaded loaded(
        AssembleObject(c.processor, c.processor[3] == '9' ? 64 : 32,
                       {{.body = std::string("s_nop 0\n") + c.write + "\n" + c.read + "\ns_endpgm",
                         .sgprs = 24}}));
    EXPECT_TRUE(loaded.Kernel().LiveBefore(0).Has(kVgpr0 + 2)) << c.why;
  }
}

TEST(Liveness, WholeWritesOfEveryKind) {
  for (const char* write :
       {"v_mov_b32_e32 v2, 1", "global_load_dword v2, v[4:5], off", "ds_read_b64 v[2:3], v0",
        "v_lshlrev_b64 v[2:3], 0, v[4:5]", "v_add3_u32 v2, v4, v5, v6",
        "global_load_ubyte v2, v[4:5], off", "v_mad_u64_u32 v[2:3], s[6:7], v4, v5, v[6:7]"}) {
    Loaded loaded(AssembleObject("gfx90a", 64,
                                 {{.body = std::string("s_nop 0\n") + write +
                                           "\ns_waitcnt 0\nv_mov_b32_e32 v7, v2\n" + "s_endpgm"}}));
    EXPECT_FALSE(loaded.Kernel().LiveBefore(0).Has(kVgpr0 + 2)) << write;
  }
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
