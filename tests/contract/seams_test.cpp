// Sequences that are too close to what may stand around them.
#include "contract/seams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "contract/validate.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

class Code {
 public:
  Code(const std::string& processor, uint32_t wave, const std::string& text) {
    patch::TargetId target;
    target.processor = processor;
    auto isa = patch::Isa::Create(target, wave);
    EXPECT_TRUE(isa.ok()) << isa.status();
    isa_ = *std::move(isa);
    const auto bytes = isa_->Assemble(text);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (bytes.ok()) bytes_ = *bytes;
  }
  std::string Hazard() { return SeamHazard(*isa_, bytes_).value_or(""); }
  std::string Matrix(const patch::RegisterSet& vectors, const patch::RegisterSet& settled = {}) {
    return MatrixHazard(*isa_, bytes_, vectors, settled).value_or("");
  }

 private:
  std::unique_ptr<patch::Isa> isa_;
  std::vector<uint8_t> bytes_;
};

struct SeamCase {
  const char* processor;
  uint32_t wave;
  const char *text, *finding;  // "": none
};

TEST(Seams, WhatIsTooCloseIsFound) {
  const SeamCase cases[] = {
      {"gfx90a", 64, "s_nop 0", ""},
      {"gfx90a", 64, "s_nop 3\nglobal_atomic_add_x2 v5, v[4:5], s[2:3]",
       "global_atomic_add_x2 is 4 wait states from the code before it, which takes 5"},
      {"gfx90a", 64, "s_nop 4\nglobal_atomic_add_x2 v5, v[4:5], s[2:3]",
       "global_atomic_add_x2 is 0 wait states from the code behind it, which takes 1"},
      {"gfx90a", 64, "s_nop 4\nglobal_atomic_add_x2 v5, v[4:5], s[2:3]\ns_nop 0", ""},
      {"gfx90a", 64, "s_nop 0\nv_mov_b32_e32 v4, 1\ns_nop 3",
       "v_mov_b32 is 1 wait states from the code before it, which takes 3"},
      {"gfx900", 64, "s_nop 0\nv_mov_b32_e32 v4, 1\ns_nop 3", ""},
      {"gfx900", 64, "s_nop 0\nv_mov_b32_e32 v4, 1\ns_nop 0",
       "v_mov_b32 is 1 wait states from the code behind it, which takes 2"},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 3",
       "v_readfirstlane_b32 is 4 wait states from the code behind it, which takes 5"},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 4", ""},
      {"gfx942", 64, "s_mov_b32 s9, 0\nv_mov_b32_e32 v4, s9\ns_nop 4",
       "v_mov_b32 is 1 wait states from the code before it"},
      {"gfx90a", 64, "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 3",
       "s_setreg_imm32_b32 is 0 wait states from the code"},

      // Along the shortest path, and of the sequence's own instructions.
      {"gfx90a", 64,
       "s_nop 0\ns_cbranch_execz 4\ns_nop 7\ns_nop 7\ns_nop 7\ns_nop 7\n"
       "global_load_dword v4, v4, s[2:3]\ns_nop 7",
       "global_load_dword is 2 wait states from the code before it, which takes 5"},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_cbranch_execz 1\ns_nop 7\ns_nop 0",
       "v_readfirstlane_b32 is 2 wait states from the code behind it, which takes 5"},
      {"gfx90a", 64,
       "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 3\nglobal_load_dword v4, v4, s[4:5]\ns_nop 7",
       "global_load_dword is 4 wait states behind v_readfirstlane_b32, which takes 5"},
      {"gfx90a", 64,
       "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 4\nglobal_load_dword v4, v4, s[4:5]\ns_nop 7",
       ""},
      {"gfx90a", 64,
       "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 3\nglobal_load_dword v4, v4, s[6:7]\ns_nop 7",
       ""},
      {"gfx942", 64,
       "s_nop 7\nv_add_co_u32_e64 v4, s[4:5], s2, v1\nv_addc_co_u32_e64 v5, s[4:5], 0, v2, s[4:5]\n"
       "s_nop 7",
       "v_addc_co_u32 is 0 wait states behind v_add_co_u32, which takes 2"},

      {"gfx1030", 32, "v_mov_b32_e32 v4, 1", ""},
      {"gfx1100", 32, "v_mov_b32_e32 v4, 1\ns_waitcnt_depctr 0x80",
       "no fence is in front of v_mov_b32"},
      {"gfx1100", 32, "s_waitcnt_depctr 0x80\nv_mov_b32_e32 v4, 1", "no fence is behind v_mov_b32"},
      {"gfx1100", 32, "s_waitcnt_depctr 0xff\nv_mov_b32_e32 v4, 1\ns_waitcnt_depctr 0x80",
       "no fence is in front"},
      {"gfx1100", 32, "s_waitcnt_depctr 0x80\nv_mov_b32_e32 v4, 1\ns_waitcnt_depctr 0x80", ""},
      {"gfx1100", 32, "s_nop 0", ""},
      {"gfx1201", 32, "s_wait_alu 0xf19c\ns_mov_b32 s4, 0\nv_mov_b32_e32 v4, s4\ns_wait_alu 0xf19c",
       "no fence is between s_mov_b32 and v_mov_b32"},
      {"gfx1201", 32,
       "s_wait_alu 0xf19c\ns_mov_b32 s4, 0\ns_wait_alu 0xf19c\nv_mov_b32_e32 v4, s4\n"
       "s_wait_alu 0xf19c",
       ""},
      // A fence that a path goes around is none.
      {"gfx1201", 32,
       "s_wait_alu 0xf19c\ns_mov_b32 s4, 0\ns_cbranch_execz 1\ns_wait_alu 0xf19c\n"
       "v_mov_b32_e32 v4, s4\ns_wait_alu 0xf19c",
       "no fence is between s_mov_b32 and v_mov_b32"},
      {"gfx1100", 32,
       "s_waitcnt_depctr 0x80\nv_mov_b32_e32 v4, 1\ns_cbranch_execz 1\n"
       "s_waitcnt_depctr 0x80\ns_nop 0",
       "no fence is behind s_cbranch_execz"},
      {"gfx1010", 32,
       "s_waitcnt_depctr 0xffe2\ns_mov_b32 null, 0\ns_waitcnt_vscnt null, 0x0\n"
       "global_atomic_add_x2 v4, v[4:5], s[2:3]\ns_mov_b32 exec_lo, s9\n"
       "s_waitcnt_depctr 0xffe2\ns_mov_b32 null, 0\ns_waitcnt_vscnt null, 0x0",
       "no fence is between global_atomic_add_x2 and s_mov_b32"},

      // A branch is the shorter way: past the wait, or past the fence.
      {"gfx90a", 64, "s_cbranch_scc1 1\ns_nop 7\nv_readfirstlane_b32 s4, v0\ns_nop 4",
       "v_readfirstlane_b32 is 1 wait states from the code before it"},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_cbranch_scc1 1\ns_nop 7",
       "v_readfirstlane_b32 is 1 wait states from the code behind it"},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_cbranch_scc1 0xfffe\ns_nop 3", ""},
      {"gfx90a", 64, "s_nop 7\nv_readfirstlane_b32 s4, v0\ns_cbranch_scc1 100\ns_nop 3",
       "v_readfirstlane_b32 is 1 wait states from the code behind it"},
      {"gfx1100", 32,
       "s_branch 1\ns_waitcnt_depctr 0x80\nv_mov_b32_e32 v4, 1\ns_waitcnt_depctr 0x80",
       "no fence is in front of v_mov_b32"},
      {"gfx1100", 32,
       "s_waitcnt_depctr 0x80\nv_mov_b32_e32 v4, 1\ns_branch 1\ns_waitcnt_depctr 0x80",
       "no fence is behind v_mov_b32"},
      {"gfx1201", 32,
       "s_wait_alu 0xf19c\ns_mov_b32 s4, 0\ns_branch 1\ns_wait_alu 0xf19c\n"
       "v_mov_b32_e32 v4, s4\ns_wait_alu 0xf19c",
       "no fence is between s_mov_b32 and v_mov_b32"},
      {"gfx1201", 32,
       "s_wait_alu 0xf19c\nv_mov_b32_e32 v4, s4\ns_mov_b32 s4, 0\ns_cbranch_scc1 0xfffd\n"
       "s_wait_alu 0xf19c",
       "no fence is between s_mov_b32 and v_mov_b32"},
  };
  for (const SeamCase& c : cases) {
    const std::string found = Code(c.processor, c.wave, c.text).Hazard();
    SCOPED_TRACE(std::string(c.processor) + ": " + c.text);
    if (*c.finding == '\0') {
      EXPECT_EQ(found, "");
    } else {
      EXPECT_THAT(found, HasSubstr(c.finding));
    }
  }
}

TEST(Seams, MatrixResultsAreWaitedFor) {
  patch::RegisterSet four;
  four.Add(patch::kVgpr0 + 4);
  const std::string touch = "v_mov_b32_e32 v4, 1";
  EXPECT_THAT(Code("gfx90a", 64, "s_nop 7\ns_nop 7\ns_nop 1\n" + touch).Matrix(four),
              HasSubstr("v_mov_b32 is 18 wait states from the code before it"));
  EXPECT_EQ(Code("gfx90a", 64, "s_nop 7\ns_nop 7\ns_nop 2\n" + touch).Matrix(four), "");
  EXPECT_EQ(Code("gfx90a", 64, touch).Matrix({}), "") << "nothing that the kernel uses";
  EXPECT_EQ(Code("gfx900", 64, touch).Matrix(four), "") << "no matrix instructions";
  EXPECT_THAT(Code("gfx90a", 64, touch).Matrix(four, four), HasSubstr("v_mov_b32 is 0"))
      << "a write may be too early for a matrix instruction that reads";
  const std::string read = "global_store_dword v4, v4, s[2:3]";
  EXPECT_THAT(Code("gfx90a", 64, read).Matrix(four), HasSubstr("global_store_dword is 0"));
  EXPECT_EQ(Code("gfx90a", 64, read).Matrix(four, four), "");
  // Past the wait.
  EXPECT_THAT(Code("gfx90a", 64, "s_branch 3\ns_nop 7\ns_nop 7\ns_nop 2\n" + touch).Matrix(four),
              HasSubstr("v_mov_b32 is 1 wait states"));
}

// The rewriter's own sequence, its fence taken out: what is emitted is refused.
TEST(SeamsValidation, AnImageWithoutAFenceIsRefused) {
  test::Loaded loaded(test::AssembleObject(
      "gfx1100", 32,
      {{.body = "v_add_f32_e32 v2, v0, v1\nglobal_store_b32 v2, v2, s[0:1]\ns_endpgm\n",
        .sgprs = 8}}));
  auto rewriter = patch::MakeTrampolineRewriter();
  for (const auto placement : {patch::Placement::kTrampoline, patch::Placement::kClone}) {
    auto planned = rewriter->Plan(loaded.Kernel(), 1,
                                  {.probe = patch::Probe::kCountWaves, .placement = placement});
    ASSERT_TRUE(std::holds_alternative<patch::SitePlan>(planned));
    patch::SitePlan plan = std::get<patch::SitePlan>(planned);
    const auto findings = [&] {
      const auto result = rewriter->Emit(loaded.object(), loaded.All(), {plan});
      EXPECT_TRUE(result.ok()) << result.status();
      return ValidateImage(loaded.object(), loaded.All(), {plan}, *result).findings;
    };
    EXPECT_TRUE(findings().empty());
    ASSERT_TRUE(loaded.isa().Print(plan.sequence, 0).starts_with("s_waitcnt_depctr"));
    plan.sequence = std::vector<uint8_t>(plan.sequence.begin() + 4, plan.sequence.end());
    std::vector<patch::WordFixup> fixups(plan.fixups.begin(), plan.fixups.end());
    for (patch::WordFixup& fixup : fixups) fixup.offset -= 4;
    plan.fixups = fixups;
    ASSERT_EQ(findings().size(), 1u);
    EXPECT_THAT(findings()[0].what, HasSubstr("a sequence keeps no distance: no fence"));
  }
}

}  // namespace
}  // namespace rjdbi::contract
