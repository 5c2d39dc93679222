// Bodies with other registers: by disassembly, and against LLVM's own encoder.
#include <gtest/gtest.h>

#include <string>

#include "patch/codeobject/device_object.h"
#include "patch/probe/rename.h"
#include "tests/patch/probe_samples.h"

namespace rjdbi {
namespace {

using namespace patch;  // NOLINT: register names
using test::Disassemble;
using test::MakeIsa;

// v0.. to v40.., s0.. to s20..: everything moves.
RegisterRenaming Shifted(int vgprs, int sgprs) {
  RegisterRenaming renaming = NoRenaming();
  for (int n = 0; n < 30; ++n) {
    renaming[static_cast<size_t>(kVgpr0 + n)] = static_cast<uint16_t>(kVgpr0 + n + vgprs);
    renaming[static_cast<size_t>(kSgpr0 + n)] = static_cast<uint16_t>(kSgpr0 + n + sgprs);
  }
  return renaming;
}

struct Golden {
  const char* object;
  const char* function;
  const char* expected;
};
const Golden kGoldens[] = {
    {"gfx90a.hip.19", "misaligned", R"(v_and_b32_e32 v40, 3, v40
v_mov_b32_e32 v41, 0
v_cmp_ne_u64_e32 vcc, 0, v[40:41]
s_and_saveexec_b64 s[26:27], vcc
s_cbranch_execz 13
v_mbcnt_lo_u32_b32 v40, vcc_lo, 0
v_mbcnt_hi_u32_b32 v40, vcc_hi, v40
v_cmp_eq_u32_e64 s[24:25], 0, v40
s_and_b64 exec, exec, s[24:25]
s_cbranch_execz 5
s_bcnt1_i32_b64 s24, vcc
v_mov_b32_e32 v40, s24
v_mov_b32_e32 v41, 0
global_atomic_add_x2 v[42:43], v[40:41], off
s_or_b64 exec, exec, s[26:27]
s_mov_b64 s[26:27], exec
v_mbcnt_lo_u32_b32 v40, s26, 0
v_mbcnt_hi_u32_b32 v40, s27, v40
v_cmp_eq_u32_e32 vcc, 0, v40
s_and_saveexec_b64 s[24:25], vcc
s_cbranch_execz 5
s_bcnt1_i32_b64 s26, s[26:27]
v_mov_b32_e32 v40, s26
v_mov_b32_e32 v41, 0
global_atomic_add_x2 v[42:43], v[40:41], off offset:8
s_or_b64 exec, exec, s[24:25]
)"},
    {"gfx1030.hip.19", "word_histogram", R"(v_lshlrev_b32_e32 v40, 1, v40
v_and_b32_e32 v44, 56, v40
v_mov_b32_e32 v40, 1
v_mov_b32_e32 v41, 0
v_add_co_u32 v42, vcc_lo, v42, v44
v_add_co_ci_u32_e32 v43, vcc_lo, 0, v43, vcc_lo
global_atomic_add_x2 v[42:43], v[40:41], off
)"},
    {"gfx1100.hip.19", "word_histogram", R"(v_lshlrev_b32_e32 v40, 1, v40
s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_3)
v_and_b32_e32 v44, 56, v40
v_mov_b32_e32 v40, 1
v_mov_b32_e32 v41, 0
v_add_co_u32 v42, vcc_lo, v42, v44
v_add_co_ci_u32_e32 v43, vcc_lo, 0, v43, vcc_lo
global_atomic_add_u64 v[42:43], v[40:41], off
)"},
    {"gfx1201.hip.19", "misaligned", R"(v_dual_mov_b32 v41, 0 :: v_dual_and_b32 v40, 3, v40
s_delay_alu instid0(VALU_DEP_1)
v_cmp_ne_u64_e32 vcc_lo, 0, v[40:41]
s_and_saveexec_b32 s21, vcc_lo
s_cbranch_execz 14
)"},
};

TEST(RenameBody, Goldens) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(std::string(golden.object) + " " + golden.function);
    const std::vector<uint8_t> bytes = test::ReadProbeObject(golden.object);
    const auto object = DeviceObject::Parse(bytes);
    ASSERT_TRUE(object.ok());
    const auto isa = MakeIsa(object->target().processor);
    const BodyReading read = ReadBody(*object->Find(golden.function), *isa);
    ASSERT_TRUE(read.ok());
    const auto renamed = RenameBody(read.body, Shifted(40, 20), *isa);
    ASSERT_TRUE(renamed.ok()) << renamed.status();
    const std::string text = Disassemble(renamed->bytes, *isa);
    const std::string expected = golden.expected;
    EXPECT_EQ(text.substr(0, expected.size()), expected) << text;
    EXPECT_EQ(renamed->instructions,
              static_cast<uint32_t>(std::count(text.begin(), text.end(), '\n')));
  }
}

// Nothing renamed: the body's own bytes, but for its ends.
TEST(RenameBody, TheSameRegistersGiveTheSameBytes) {
  for (const char* name : test::kProbeObjects) {
    SCOPED_TRACE(name);
    const std::vector<uint8_t> bytes = test::ReadProbeObject(name);
    const auto object = DeviceObject::Parse(bytes);
    ASSERT_TRUE(object.ok());
    const auto isa = MakeIsa(object->target().processor);
    for (const DeviceFunction& function : object->functions()) {
      const BodyReading read = ReadBody(function, *isa);
      ASSERT_TRUE(read.ok());
      const auto same = RenameBody(read.body, NoRenaming(), *isa);
      ASSERT_TRUE(same.ok()) << same.status();
      std::vector<uint8_t> expected;
      for (size_t i = 0; i < read.body.instructions.size(); ++i) {
        if (read.body.roles[i] != BodyRole::kKept) continue;
        const Instruction& in = read.body.instructions[i];
        const auto begin = read.body.code.begin() + static_cast<std::ptrdiff_t>(in.offset);
        expected.insert(expected.end(), begin, begin + in.size);
      }
      EXPECT_EQ(same->bytes, expected);
    }
  }
}

TEST(RenameBody, ReturnsInTheMiddleBecomeBranches) {
  const auto isa = MakeIsa("gfx90a");
  const BodyReading read = test::ReadLines(
      "s_waitcnt vmcnt(0)\nv_cmp_eq_u32 vcc, 0, v0\ns_cbranch_vccz 2\ns_waitcnt vmcnt(0)\n"
      "s_setpc_b64 s[30:31]\nv_mov_b32 v1, 0\ns_waitcnt vmcnt(0)\ns_setpc_b64 s[30:31]",
      *isa);
  ASSERT_TRUE(read.ok());
  const auto renamed = RenameBody(read.body, NoRenaming(), *isa);
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  EXPECT_EQ(Disassemble(renamed->bytes, *isa),
            "v_cmp_eq_u32_e32 vcc, 0, v0\ns_cbranch_vccz 1\ns_branch 1\nv_mov_b32_e32 v1, 0\n");
}

// gfx10.1 must not branch by 0x3f words: a word behind the branch changes that.
TEST(RenameBody, AvoidsTheBrokenBranchOffset) {
  const auto isa = MakeIsa("gfx1010");
  std::string lines = "v_cmp_eq_u32 vcc_lo, 0, v0\ns_cbranch_vccz 1\ns_setpc_b64 s[30:31]\n";
  for (int n = 0; n < 0x3f; ++n) lines += "v_mov_b32 v1, 0\n";
  const BodyReading read = test::ReadLines(lines + "s_setpc_b64 s[30:31]", *isa);
  ASSERT_TRUE(read.ok());
  const auto renamed = RenameBody(read.body, NoRenaming(), *isa);
  ASSERT_TRUE(renamed.ok()) << renamed.status();
  const std::string text = Disassemble(renamed->bytes, *isa);
  EXPECT_EQ(text.find("s_branch 63\n"), std::string::npos);
  EXPECT_NE(text.find("s_cbranch_vccz 2\ns_branch 64\ns_nop 0\n"), std::string::npos) << text;
}

TEST(RenameBody, RefusesWhatCannotBeEncoded) {
  const auto isa = MakeIsa("gfx90a");
  const BodyReading read =
      test::ReadLines("v_lshlrev_b64 v[2:3], 2, v[2:3]\ns_setpc_b64 s[30:31]", *isa);
  ASSERT_TRUE(read.ok());
  RegisterRenaming odd = NoRenaming();
  odd[kVgpr0 + 2] = kVgpr0 + 5;
  odd[kVgpr0 + 3] = kVgpr0 + 6;
  const auto misaligned = RenameBody(read.body, odd, *isa);
  EXPECT_EQ(misaligned.status().code(), absl::StatusCode::kInvalidArgument);
  RegisterRenaming torn = NoRenaming();
  torn[kVgpr0 + 3] = kVgpr0 + 7;
  const auto apart = RenameBody(read.body, torn, *isa);
  ASSERT_FALSE(apart.ok());
  EXPECT_NE(apart.status().message().find("torn apart"), absl::string_view::npos);
  EXPECT_NE(apart.status().message().find("2 registers from v2"), absl::string_view::npos);
}

}  // namespace
}  // namespace rjdbi
