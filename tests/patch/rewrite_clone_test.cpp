// Clones as text: what is inserted where, and what becomes of branches,
// addresses, clauses and delay hints; what is no clone and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::Placement;
using patch::Position;
using patch::Probe;
using patch::SitePlan;
using test::Loaded;
using testing::HasSubstr;

struct At {
  uint32_t instruction = 0;
  Position position = Position::kBefore;
};

// s_nop 0 at each site.
patch::RewriteResult CloneWithNops(Loaded& original, const std::vector<At>& sites,
                                   bool beside = false) {
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  for (const At& at : sites) {
    const auto plan = rewriter->Plan(
        original.Kernel(), at.instruction,
        {.probe = Probe::kNop, .position = at.position, .placement = Placement::kClone});
    EXPECT_TRUE(std::holds_alternative<SitePlan>(plan));
    plans.push_back(std::get<SitePlan>(plan));
  }
  auto result = rewriter->Emit(original.object(), original.All(), plans, beside);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : patch::RewriteResult();
}

std::string Text(const patch::RewriteResult& result) {
  Loaded image(result.image);
  const patch::KernelOutcome& outcome = result.kernels.at(0);
  EXPECT_EQ(image.Kernel().kernel().entry_vaddr, outcome.clone_vaddr);
  return image.Disassemble(outcome.clone_vaddr, outcome.code_bytes);
}

TEST(CloneText, BranchesAddressesAndClauses) {
  const struct {
    const char *processor, *load, *extend, *add, *addc;
    uint32_t wave;
  } kTargets[] = {
      {"gfx90a", "global_load_dword", "", "s_add_u32", "s_addc_u32", 64},
      {"gfx942", "global_load_dword", "", "s_add_u32", "s_addc_u32", 64},
      {"gfx1030", "global_load_dword", "", "s_add_u32", "s_addc_u32", 32},
      {"gfx1100", "global_load_b32", "", "s_add_u32", "s_addc_u32", 32},
      {"gfx1201", "global_load_b32", "s_sext_i32_i16 s7, s7\n", "s_add_co_u32", "s_add_co_ci_u32",
       32},
  };
  for (const auto& target : kTargets) {
    SCOPED_TRACE(target.processor);
    const bool clauses = std::string(target.processor).compare(0, 4, "gfx9") != 0;
    const std::string load = std::string(target.load) + " v2, v0, s[4:5]\n";
    const std::string extend = target.extend;
    const uint32_t load_index = clauses ? 2 : 1;
    Loaded original(test::AssembleObject(
        target.processor, target.wave,
        {{.body = ".Lback:\n" + std::string(clauses ? "s_clause 0x2\n" : "") + load + load + load +
                  "s_getpc_b64 s[6:7]\n" + extend + target.add + " s6, s6, 0x12345678\n" +
                  target.addc + " s7, s7, 0x23456789\ns_cmp_lg_u32 s8, s9\ns_cbranch_scc1 .Lend\n" +
                  "s_cbranch_scc0 .Lback\n.Lend:\ns_endpgm\n"}}));
    const patch::KernelAnalysis& kernel = original.Kernel();
    const uint32_t getpc = Loaded::Find(kernel, "s_getpc_b64");
    const auto last = static_cast<uint32_t>(kernel.instructions().size() - 1);
    const std::vector<At> sites = {{0}, {load_index}, {getpc, Position::kAfter}, {last}};
    const auto result = CloneWithNops(original, sites);
    const patch::KernelOutcome& outcome = result.kernels.at(0);
    // The address behind s_getpc_b64, in the original and in the clone.
    const uint64_t from = kernel.kernel().entry_vaddr + kernel.instructions()[getpc].offset + 4;
    const uint64_t to = outcome.clone_vaddr + outcome.pcs[getpc].emitted + 4;
    const uint64_t sum = 0x2345678912345678 + from - to;
    const auto back =
        static_cast<uint16_t>(-static_cast<int32_t>(outcome.pcs[last - 1].emitted / 4) - 1);
    const auto expected = [&](const char* begin, uint64_t words) {
      return absl::StrCat("s_nop 0\n", clauses ? "s_nop 0\n" : "", load, "s_nop 0\n",
                          clauses ? "s_clause 0x1\n" : "", load, load, begin, "\ns_nop 0\n", extend,
                          target.add, " s6, s6, 0x", absl::Hex(static_cast<uint32_t>(words)), "\n",
                          target.addc, " s7, s7, 0x", absl::Hex(words >> 32),
                          "\ns_cmp_lg_u32 s8, s9\ns_cbranch_scc1 1\ns_cbranch_scc0 ", back,
                          "\ns_nop 0\ns_endpgm\n");
    };
    EXPECT_EQ(Text(result), expected("s_getpc_b64 s[6:7]", sum));
    // Beside an original that is loaded at 0.
    auto beside = CloneWithNops(original, sites, /*beside=*/true);
    ASSERT_EQ(beside.fixups.size(), 2u);
    for (const patch::WordFixup& f : beside.fixups) {
      EXPECT_EQ(f.base, patch::FixupBase::kOriginal);
      EXPECT_EQ(f.addend, 0x2345678912345678 + from);
      const auto word = static_cast<uint32_t>(f.high_half ? f.addend >> 32 : f.addend);
      std::memcpy(beside.image.data() + f.offset, &word, sizeof word);
    }
    EXPECT_EQ(Text(beside), expected("s_mov_b64 s[6:7], 0", 0x2345678912345678 + from));
    // The original is as it was, to the byte.
    Loaded image(result.image);
    const auto left = image.object().AtVaddr(kernel.kernel().entry_vaddr, kernel.code().size());
    EXPECT_TRUE(std::equal(left.begin(), left.end(), kernel.code().begin(), kernel.code().end()));
    EXPECT_EQ(outcome.clone_vaddr % 256, 0u);
  }
}

TEST(CloneText, DelayHints) {
  constexpr char kBody[] =
      "v_mov_b32_e32 v1, 0\n"
      "s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_2)\n"
      "v_add_f32_e32 v2, v1, v1\nv_mov_b32_e32 v3, 0\nv_add_f32_e32 v4, v1, v2\ns_endpgm\n";
  const struct {
    At site;
    const char* hint;
  } kCases[] = {
      {{0}, "s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_2)"},
      {{1}, "s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_2)"},
      {{1, Position::kAfter}, "s_delay_alu 0"},
      {{2}, "s_delay_alu 0"},
      {{2, Position::kAfter}, "s_delay_alu instid0(VALU_DEP_1)"},
      {{3}, "s_delay_alu instid0(VALU_DEP_1)"},
      {{4}, "s_delay_alu instid0(VALU_DEP_1)"},
      {{4, Position::kAfter},
       "s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_1) | instid1(VALU_DEP_2)"},
  };
  for (const auto& test : kCases) {
    Loaded original(test::AssembleObject("gfx1100", 32, {{.body = kBody}}));
    const std::string text = Text(CloneWithNops(original, {test.site}));
    const size_t at = text.find("s_delay_alu");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(text.substr(at, text.find('\n', at) - at), test.hint);
  }
}

// A clone grows what the descriptor allocates as trampolines do, and pads its end.
TEST(CloneText, DescriptorAndPadding) {
  Loaded original(test::AssembleObject("gfx1100", 32,
                                       {{.body = "v_mov_b32_e32 v7, 0\ns_endpgm\n", .vgprs = 8}}));
  const auto rewriter = patch::MakeTrampolineRewriter();
  const auto plan = rewriter->Plan(
      original.Kernel(), 1,
      {.probe = Probe::kCountWaves, .max_vgpr_delta = 8, .placement = Placement::kClone});
  ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
  const SitePlan& wanted = std::get<SitePlan>(plan);
  const auto result = rewriter->Emit(original.object(), original.All(), {wanted});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->fixups.size(), 2u);
  Loaded image(result->image);
  const uint64_t end = result->kernels[0].clone_vaddr + result->kernels[0].code_bytes;
  const auto& segment = image.object().segments().back();
  EXPECT_GE(segment.vaddr + segment.filesz - end, 384u) << "instruction prefetch";
  EXPECT_THAT(image.Disassemble(segment.vaddr + segment.filesz - 8, 8),
              HasSubstr("s_code_end\ns_code_end\n"));
}

// Firmware that preloads arguments enters 256 bytes behind the entry, in a clone, too:
// before that nothing is inserted.
TEST(CloneText, BothEntriesOfPreloadedArguments) {
  Loaded original(test::AssembleObject("gfx90a", 64,
                                       {{.body = "s_load_dwordx2 s[2:3], s[0:1], 0x0\n"
                                                 "s_waitcnt lgkmcnt(0)\n"
                                                 "s_branch .Lmain\n"
                                                 ".p2align 8, , 256\n"
                                                 ".Lmain:\n"
                                                 "v_mov_b32_e32 v0, s2\n"
                                                 "s_endpgm\n",
                                         .preload_dwords = 2}}));
  const patch::KernelAnalysis& kernel = original.Kernel();
  ASSERT_EQ(kernel.preload_entry(), 256u);
  ASSERT_FALSE(kernel.CloneObstacle().has_value()) << kernel.CloneObstacle()->detail;
  const auto main = kernel.InstructionAt(256);
  ASSERT_TRUE(main.has_value());
  const auto rewriter = patch::MakeTrampolineRewriter();
  const auto plan = [&](uint32_t i, patch::Position position) {
    return rewriter->Plan(
        kernel, i, {.probe = Probe::kNop, .position = position, .placement = Placement::kClone});
  };
  for (uint32_t i = 0; i < *main; ++i) {
    for (const auto position : {patch::Position::kBefore, patch::Position::kAfter}) {
      const auto refused = plan(i, position);
      ASSERT_TRUE(std::holds_alternative<patch::Refusal>(refused));
    }
  }
  const auto at_entry = plan(*main, patch::Position::kBefore);
  ASSERT_TRUE(std::holds_alternative<SitePlan>(at_entry));
  const auto result =
      rewriter->Emit(original.object(), original.All(), {std::get<SitePlan>(at_entry)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sites[0].trampoline_vaddr, result->kernels[0].clone_vaddr + 256)
      << "the sequence runs under both kinds of firmware";
}

TEST(NoClone, ForAReason) {
  const struct {
    const char *body, *reason;
    uint32_t preload = 0;
  } kCases[] = {
      {"s_setpc_b64 s[4:5]\ns_endpgm", "through a register"},
      {"s_getpc_b64 s[4:5]\ns_endpgm", "the program counter is not certain"},
      {"s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 4\ns_addc_u32 s5, s5, 0\ns_endpgm",
       "the program counter is not certain"},
      {"s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
       "s_cbranch_execz .Lx\nv_mov_b32_e32 v0, 0\n.Lx:\ns_cselect_b32 s6, 1, 0\ns_endpgm",
       "the carry of an address is read"},
      {"s_branch 4000\ns_endpgm", "a branch leaves the kernel"},
      {"v_mov_b32_e32 v0, 0", "leaves the kernel at its end"},
      {".long 0xffffffff\ns_endpgm", "do not decode"},
      {"s_cbranch_cdbgsys .Lx\n.Lx:\ns_endpgm", "an uncommon way"},
      {".fill 62, 4, 0xbf800000\ns_branch .Lx\ns_mov_b32 s4, 0x12345678\n.Lx:\ns_endpgm",
       "no instruction begins at the entry", 2},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.body);
    Loaded loaded(
        test::AssembleObject("gfx90a", 64, {{.body = test.body, .preload_dwords = test.preload}}));
    const auto& obstacle = loaded.Kernel().CloneObstacle();
    ASSERT_TRUE(obstacle.has_value());
    EXPECT_EQ(obstacle->reason, patch::Reason::kNotClonable);
    EXPECT_THAT(obstacle->detail, HasSubstr(test.reason));
    const auto plan = patch::MakeTrampolineRewriter()->Plan(
        loaded.Kernel(), 0, {.probe = Probe::kNop, .placement = Placement::kClone});
    EXPECT_TRUE(std::holds_alternative<patch::Refusal>(plan));
  }
}

TEST(NoClone, WhenABranchWouldNotReach) {
  Loaded loaded(test::AssembleObject(
      "gfx90a", 64,
      {{.body = "s_cbranch_scc1 .Lend\n.rept 32760\ns_nop 1\n.endr\n.Lend:\ns_endpgm"}}));
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  for (uint32_t i = 0; i < 16; ++i) {
    plans.push_back(std::get<SitePlan>(rewriter->Plan(
        loaded.Kernel(), i, {.probe = Probe::kNop, .placement = Placement::kClone})));
  }
  const auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->image.empty());
  ASSERT_EQ(result->kernels.size(), 1u);
  ASSERT_TRUE(result->kernels[0].not_cloned.has_value());
  EXPECT_THAT(result->kernels[0].not_cloned->detail, HasSubstr("would not reach"));
  for (const auto& site : result->sites) EXPECT_TRUE(site.refusal.has_value());
}

}  // namespace
}  // namespace rjdbi
