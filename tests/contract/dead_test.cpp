// The proof's own control flow and liveness, on small kernels. The site is in front of
// the kernel's only s_nop.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "contract/dead.h"
#include "contract/kernel_code.h"
#include "contract/lanes.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using patch::RegisterSet;

RegisterSet Parse(const std::string& names) {
  RegisterSet set;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const auto range = patch::ParseRange(word);
    EXPECT_TRUE(range.has_value()) << word;
    if (range) set.Add(range->first, range->count);
  }
  return set;
}

struct Case {
  const char* name;
  const char* processor;
  uint32_t wavefront_size;
  const char* body;
  const char* dead;   // proven
  const char* alive;  // each of them is not
};

class Code {
 public:
  explicit Code(const Case& test)
      : loaded_(test::AssembleObject(test.processor, test.wavefront_size, {{.body = test.body}})),
        object_(loaded_.object()),
        kernel_(object_, 0, loaded_.isa()) {}
  const KernelCode& kernel() const { return kernel_; }
  uint32_t site() {
    for (uint32_t i = 0; i < kernel_.instructions().size(); ++i) {
      if (kernel_.instructions().Shared(i).opcode == "s_nop") return i;
    }
    ADD_FAILURE() << "no s_nop";
    return 0;
  }
  // Of one register, or of several together.
  std::vector<NotDead> Refute(const RegisterSet& dead, bool behind = false) {
    return proof_.Refute(kernel_, {{site(), behind, &dead}});
  }

 private:
  test::Loaded loaded_;
  ObjectCode object_;
  KernelCode kernel_;
  DeadProof proof_;
};

class Dead : public testing::TestWithParam<Case> {};

TEST_P(Dead, IsProvenOrNot) {
  Code code(GetParam());
  EXPECT_TRUE(code.Refute(Parse(GetParam().dead)).empty());
  Parse(GetParam().alive).ForEach([&](uint16_t reg) {
    RegisterSet one;
    one.Add(reg);
    EXPECT_EQ(code.Refute(one).size(), 1u) << patch::RegisterName(reg);
  });
}

constexpr Case kCases[] = {
    {"ScalarsEndWithAWrite", "gfx90a", 64,
     "s_nop 0\ns_mov_b32 s4, 1\ns_add_u32 s5, s4, s6\nv_mov_b32_e32 v0, s5\ns_endpgm",
     "s4 s5 scc v0", "s6"},
    {"HalfOfAPair", "gfx90a", 64,
     "s_nop 0\ns_mov_b32 s4, 1\ns_mov_b64 s[6:7], s[4:5]\nv_mov_b32_e32 v0, s6\ns_endpgm", "s4 s6",
     "s5"},
    {"SccBetweenCompareAndBranch", "gfx90a", 64,
     "s_cmp_eq_u32 s0, 0\ns_nop 0\ns_cbranch_scc1 .L\nv_mov_b32_e32 v1, v0\n.L:\ns_endpgm", "v1 s0",
     "scc v0"},
    {"SccAfterItsLastReader", "gfx90a", 64,
     "s_cmp_eq_u32 s0, 0\ns_cselect_b32 s1, 1, 2\ns_nop 0\nv_mov_b32_e32 v1, s1\ns_endpgm",
     "scc s0", "s1"},
    {"VccIsReadByABranch", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_nop 0\ns_cbranch_vccz .L\nv_mov_b32_e32 v1, 0\n.L:\ns_endpgm",
     "v1", "vcc"},
    {"VccHighIsDataInWave32", "gfx1030", 32,
     "s_mov_b32 vcc_hi, 7\ns_nop 0\nv_cmp_eq_u32_e32 vcc_lo, 0, v0\n"
     "v_cndmask_b32_e32 v1, v2, v3, vcc_lo\ns_add_u32 s0, vcc_hi, s1\nv_mov_b32_e32 v4, s0\n"
     "s_endpgm",
     "vcc_lo v1 v4", "vcc_hi v0 v2 v3 s1"},
    {"ConditionalMoveKeepsAScalar", "gfx90a", 64,
     "s_nop 0\ns_cmp_eq_u32 s0, 0\ns_cmov_b32 s4, 1\nv_mov_b32_e32 v0, s4\ns_endpgm", "scc",
     "s4 s0"},
    {"VectorWrittenInEveryLane", "gfx90a", 64,
     "s_nop 0\nv_mov_b32_e32 v1, v0\nv_add_u32_e32 v2, v1, v1\nglobal_store_dword v3, v2, s[0:1]\n"
     "s_endpgm",
     "v1 v2", "v0 v3 s[0:1]"},
    {"BothSidesOfADivergence", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\ns_nop 0\n"
     "v_mov_b32_e32 v1, 1\ns_or_b64 exec, exec, s[2:3]\nv_add_u32_e32 v2, v1, v0\n"
     "global_store_dword v3, v2, s[0:1]\ns_endpgm",
     "v2 vcc", "v1 v0 s[2:3]"},
    {"WrittenAnewBehindTheDivergence", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\ns_nop 0\n"
     "v_mov_b32_e32 v1, 1\ns_or_b64 exec, exec, s[2:3]\nv_mov_b32_e32 v1, v0\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "v1", "v0 v3"},
    {"WrittenInSomeLanesOnly", "gfx90a", 64,
     "s_nop 0\nv_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\n"
     "v_mov_b32_e32 v1, 1\ns_or_b64 exec, exec, s[2:3]\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "s[2:3] vcc", "v1"},
    {"SavedMaskThatIsOverwrittenIsNoFullMask", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\ns_nop 0\n"
     "s_mov_b32 s3, 0\ns_or_b64 exec, exec, s[2:3]\nv_mov_b32_e32 v1, v0\n"
     "s_mov_b64 exec, s[4:5]\nglobal_store_dword v3, v1, s[0:1]\ns_endpgm",
     "vcc", "v1 s2"},
    {"LanesBeyondTheEntrys", "gfx90a", 64,
     "s_nop 0\nv_mov_b32_e32 v1, v0\ns_mov_b64 exec, -1\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "scc", "v1"},
    {"ComparedOutOfExec", "gfx90a", 64,
     "s_nop 0\nv_mov_b32_e32 v1, v0\nv_cmpx_eq_u32_e32 vcc, 0, v0\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "v1 vcc", "v0"},
    {"LoopWithABreak", "gfx90a", 64,
     "s_mov_b64 s[2:3], 0\n.L:\ns_nop 0\nv_add_u32_e32 v0, 1, v0\nv_cmp_lt_u32_e32 vcc, 9, v0\n"
     "v_mov_b32_e32 v1, v0\ns_or_b64 s[2:3], vcc, s[2:3]\ns_andn2_b64 exec, exec, s[2:3]\n"
     "s_cbranch_execnz .L\ns_or_b64 exec, exec, s[2:3]\nglobal_store_dword v3, v1, s[0:1]\n"
     "s_endpgm",
     "vcc scc", "v0 v1 s[2:3]"},
    {"HalfARegister", "gfx90a", 64,
     "s_nop 0\nglobal_load_short_d16 v1, v2, s[0:1]\ns_waitcnt vmcnt(0)\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "scc", "v1 v2"},
    {"ALoad", "gfx90a", 64,
     "s_nop 0\nglobal_load_dword v1, v2, s[0:1]\ns_waitcnt vmcnt(0)\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "v1", "v2"},
    {"AnotherLaneIsRead", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\ns_nop 0\n"
     "v_mov_b32_e32 v1, 1\nv_readlane_b32 s4, v1, 5\nv_mov_b32_e32 v2, s4\n"
     "global_store_dword v3, v2, s[0:1]\ns_endpgm",
     "v2 s4 vcc", "v1"},
    {"DppReadsOtherLanes", "gfx90a", 64,
     "v_cmp_eq_u32_e32 vcc, 0, v0\ns_and_saveexec_b64 s[2:3], vcc\ns_nop 0\n"
     "v_mov_b32_e32 v1, 1\nv_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf\n"
     "global_store_dword v3, v2, s[0:1]\ns_endpgm",
     "vcc", "v1"},
    {"OneLaneIsWritten", "gfx90a", 64,
     "s_nop 0\nv_writelane_b32 v1, s4, 3\nv_readlane_b32 s5, v1, 3\nv_mov_b32_e32 v2, s5\n"
     "global_store_dword v3, v2, s[0:1]\ns_endpgm",
     "s5", "v1 s4"},
    {"ACallReadsEverything", "gfx90a", 64,
     "s_nop 0\ns_mov_b32 s4, 1\ns_swappc_b64 s[30:31], s[6:7]\nv_mov_b32_e32 v5, v1\n"
     "v_mov_b32_e32 v1, 0\ns_endpgm",
     "s4", "v1 v5 s[6:7] scc vcc"},
    {"AComputedBranch", "gfx90a", 64,
     "s_nop 0\nv_mov_b32_e32 v1, 0\ns_setpc_b64 s[6:7]\nv_mov_b32_e32 v5, v1\ns_endpgm", "",
     "v5 v1 vcc"},
    {"APathThatJumpsOverTheWrite", "gfx90a", 64,
     "s_nop 0\ns_cbranch_scc1 .L\nv_mov_b32_e32 v1, 0\n.L:\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "vcc s4", "v1 scc"},
    {"UnreachedReadersDoNotCount", "gfx90a", 64,
     "s_nop 0\ns_branch .L\nv_mov_b32_e32 v2, v1\n.L:\ns_endpgm", "v1 v2", ""},
    {"RelativeNumbersReadAnything", "gfx90a", 64,
     "s_nop 0\nv_mov_b32_e32 v1, 0\ns_set_gpr_idx_on s0, gpr_idx(SRC0)\nv_mov_b32_e32 v2, v3\n"
     "s_set_gpr_idx_off\ns_endpgm",
     "s4", "v1 v2 v7"},
    {"Wave32Masks", "gfx1030", 32,
     "v_cmp_eq_u32_e32 vcc_lo, 0, v0\ns_and_saveexec_b32 s2, vcc_lo\ns_nop 0\n"
     "v_mov_b32_e32 v1, 1\ns_or_b32 exec_lo, exec_lo, s2\nv_mov_b32_e32 v1, v0\n"
     "global_store_dword v3, v1, s[0:1]\ns_endpgm",
     "v1 vcc_lo", "s2 v0"},
    {"Gfx11Names", "gfx1100", 32,
     "v_cmp_eq_u32_e32 vcc_lo, 0, v0\ns_and_saveexec_b32 s2, vcc_lo\ns_nop 0\n"
     "s_and_not1_saveexec_b32 s3, s2\ns_or_b32 exec_lo, exec_lo, s3\n"
     "s_mov_b32 exec_lo, s2\nv_mov_b32_e32 v1, v0\nglobal_store_b32 v3, v1, s[0:1]\ns_endpgm",
     "v1 s3", "s2 v0"},
    {"AccumulationRegisters", "gfx90a", 64,
     "s_nop 0\nv_accvgpr_read_b32 v1, a2\nglobal_store_dword v3, v1, s[0:1]\ns_endpgm", "v1", "v3"},
};
INSTANTIATE_TEST_SUITE_P(Cases, Dead, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DeadBehind, TheSiteHasWritten) {
  Code code({"", "gfx90a", 64,
             "v_mov_b32_e32 v1, v0\ns_nop 0\nglobal_store_dword v3, v1, s[0:1]\ns_endpgm", "", ""});
  EXPECT_EQ(code.Refute(Parse("v1"), true).size(), 1u);
  EXPECT_TRUE(code.Refute(Parse("v0"), true).empty());
}

// More registers than are looked at in one go.
TEST(DeadMany, EachIsFound) {
  std::string body = "s_nop 0\n";
  for (int i = 0; i < 90; ++i) body += "v_mov_b32_e32 v" + std::to_string(i) + ", 0\n";
  for (int i = 90; i < 150; ++i) {
    body += "v_add_u32_e32 v0, v" + std::to_string(i) + ", v0\n";
  }
  test::Loaded loaded(
      test::AssembleObject("gfx90a", 64, {{.body = body + "s_endpgm", .vgprs = 160}}));
  ObjectCode object(loaded.object());
  const KernelCode kernel(object, 0, loaded.isa());
  DeadProof proof;
  std::vector<RegisterSet> sets(150);
  std::vector<DeadClaim> claims;
  for (uint16_t i = 0; i < 150; ++i) {
    sets[i].Add(static_cast<uint16_t>(patch::kVgpr0 + i));
    claims.push_back({0, false, &sets[i]});
  }
  const auto found = proof.Refute(kernel, claims);
  ASSERT_EQ(found.size(), 60u);
  for (size_t n = 0; n < found.size(); ++n) {
    EXPECT_EQ(found[n].claim, n + 90);
    EXPECT_EQ(found[n].reg, patch::kVgpr0 + n + 90);
    EXPECT_EQ(found[n].reader, kernel.instructions().OffsetOf(static_cast<uint32_t>(n) + 91));
  }
}

TEST(DeadNothing, IsProvenOfCodeThatIsNotKnown) {
  const char* kBodies[] = {
      "s_nop 0\ns_branch 1\ns_mov_b32 s0, 0x12345678\ns_endpgm",  // into a literal
      "s_nop 0\n.long 0xffffffff\ns_endpgm",
  };
  for (const char* body : kBodies) {
    SCOPED_TRACE(body);
    Code code({"", "gfx90a", 64, body, "", ""});
    EXPECT_TRUE(code.kernel().broken());
    const auto found = code.Refute(Parse("v7"));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].why, NotDead::Why::kUnknownCode);
  }
}

TEST(DeadPlaces, WhereNumbersAreRelative) {
  Code code({"", "gfx90a", 64,
             "s_set_gpr_idx_on s0, gpr_idx(SRC0)\ns_nop 0\nv_mov_b32_e32 v2, v3\n"
             "s_set_gpr_idx_off\ns_endpgm",
             "", ""});
  const auto found = code.Refute(RegisterSet());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].why, NotDead::Why::kPlace);
}

TEST(DeadReaders, AreNamed) {
  Code code({"", "gfx90a", 64,
             "s_nop 0\ns_branch .L\ns_endpgm\n.L:\nv_mov_b32_e32 v1, v2\ns_endpgm", "", ""});
  const auto found = code.Refute(Parse("v2"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(DescribeNotDead(found[0], code.kernel()),
            "v2 is not proven to be dead: v_mov_b32 at kernel+0xc may read it");
}

TEST(Together, IsABlockWithoutCalls) {
  Code code({"", "gfx90a", 64,
             "s_nop 0\nv_mov_b32_e32 v1, v2\ns_cbranch_scc1 .L\nv_mov_b32_e32 v1, v2\n.L:\n"
             "v_mov_b32_e32 v1, v2\ns_swappc_b64 s[30:31], s[6:7]\nv_mov_b32_e32 v1, v2\ns_endpgm",
             "", ""});
  const KernelCode& k = code.kernel();
  EXPECT_TRUE(k.TogetherWith(0, 2));
  EXPECT_FALSE(k.TogetherWith(2, 3));
  EXPECT_FALSE(k.TogetherWith(3, 4));
  EXPECT_TRUE(k.TogetherWith(4, 5));
  EXPECT_FALSE(k.TogetherWith(5, 6));
}

}  // namespace
}  // namespace rjdbi::contract
