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

}  // namespace
}  // namespace rjdbi
