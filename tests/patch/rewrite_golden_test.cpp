// The exact code that is injected, per generation, as disassembly: registers,
// guards, scope bits, the displaced instruction and the way back.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::Probe;
using patch::ProbeRequest;
using patch::SitePlan;
using test::Loaded;

struct Golden {
  const char* processor;
  uint32_t wave;
  Probe probe;
  const char* store;     // displaced instruction, in the kernel
  const char* expected;  // the whole trampoline, branches' offsets removed
};

const char* const kGfx900Waves = R"(s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v4, 0
v_mov_b32_e32 v3, 1
global_atomic_add_x2 v4, v[3:4], s[2:3]
s_mov_b64 exec, s[4:5]
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx90aLanes = R"(s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v5, 0
v_bcnt_u32_b32 v4, s4, 0
v_bcnt_u32_b32 v4, s5, v4
global_atomic_add_x2 v5, v[4:5], s[2:3]
s_mov_b64 exec, s[4:5]
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx942Waves = R"(s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v5, 0
v_mov_b32_e32 v4, 1
global_atomic_add_x2 v5, v[4:5], s[2:3] sc1
s_mov_b64 exec, s[4:5]
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx1010Waves = R"(s_waitcnt_vscnt null, 0x0
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
s_mov_b32 s4, exec_lo
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v4, 0
v_mov_b32_e32 v3, 1
global_atomic_add_x2 v4, v[3:4], s[2:3]
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
s_mov_b32 exec_lo, s4
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
global_store_dword v2, v2, s[0:1]
s_waitcnt_vscnt null, 0x0
s_branch
)";
const char* const kGfx1030Lanes = R"(s_mov_b32 s4, exec_lo
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v4, 0
v_bcnt_u32_b32 v3, s4, 0
global_atomic_add_x2 v4, v[3:4], s[2:3]
s_mov_b32 exec_lo, s4
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx1100Waves = R"(s_waitcnt_depctr 0x80
s_mov_b32 s4, exec_lo
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v4, 0
v_mov_b32_e32 v3, 1
global_atomic_add_u64 v4, v[3:4], s[2:3]
s_mov_b32 exec_lo, s4
s_waitcnt_depctr 0x80
global_store_b32 v2, v2, s[0:1]
s_branch
)";
const char* const kGfx1201Lanes = R"(s_wait_alu 0xf19c
s_mov_b32 s4, exec_lo
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b32 exec_lo, 1
s_wait_alu 0xf19c
v_mov_b32_e32 v4, 0
v_bcnt_u32_b32 v3, s4, 0
global_atomic_add_u64 v4, v[3:4], s[2:3] scope:SCOPE_SYS
s_mov_b32 exec_lo, s4
s_wait_alu 0xf19c
global_store_b32 v2, v2, s[0:1]
s_branch
)";

const Golden kGoldens[] = {
    {"gfx900", 64, Probe::kCountWaves, "global_store_dword v2, v2, s[0:1]", kGfx900Waves},
    {"gfx90a", 64, Probe::kCountLanes, "global_store_dword v2, v2, s[0:1]", kGfx90aLanes},
    {"gfx942", 64, Probe::kCountWaves, "global_store_dword v2, v2, s[0:1]", kGfx942Waves},
    {"gfx1010", 32, Probe::kCountWaves, "global_store_dword v2, v2, s[0:1]", kGfx1010Waves},
    {"gfx1030", 32, Probe::kCountLanes, "global_store_dword v2, v2, s[0:1]", kGfx1030Lanes},
    {"gfx1100", 32, Probe::kCountWaves, "global_store_b32 v2, v2, s[0:1]", kGfx1100Waves},
    {"gfx1201", 32, Probe::kCountLanes, "global_store_b32 v2, v2, s[0:1]", kGfx1201Lanes},
    {"gfx1030", 32, Probe::kNop, "global_store_dword v2, v2, s[0:1]",
     "s_nop 0\nglobal_store_dword v2, v2, s[0:1]\ns_branch\n"},
    {"gfx90a", 64, Probe::kSabotage, "global_store_dword v2, v2, s[0:1]",
     "s_endpgm\nglobal_store_dword v2, v2, s[0:1]\ns_branch\n"},
};

// The trampoline's text; the last branch loses its operand.
std::string TrampolineText(Loaded& image, uint64_t vaddr) {
  std::string text;
  for (;;) {
    const auto bytes = image.object().AtVaddr(vaddr, 4);
    if (bytes.empty()) return text + "outside\n";
    auto longest = image.object().AtVaddr(vaddr, 12);
    if (longest.empty()) longest = bytes;  // at the segment's end
    const auto in = image.isa().Decode(longest, 0);
    if (!in) return text + "undecodable\n";
    if (in->opcode == "s_branch") return text + "s_branch\n";
    text += image.isa().Print(longest, 0) + "\n";
    vaddr += in->size;
  }
}

// The guards, whose fields LLVM spells differently from release to release.
std::string Compact(std::string text) {
  const std::pair<std::string, std::string> rows[] = {
      {"s_waitcnt_depctr depctr_sa_sdst(0) depctr_va_vdst(0) depctr_va_sdst(0) "
       "depctr_va_ssrc(0) depctr_va_vcc(0) depctr_vm_vsrc(0)",
       "s_waitcnt_depctr 0x80"},
      {"s_wait_alu depctr_sa_sdst(0) depctr_va_sdst(0) depctr_va_vcc(0)", "s_wait_alu 0xf19c"},
      {"s_waitcnt_depctr 0xf19c", "s_wait_alu 0xf19c"},
  };
  for (const auto& [from, to] : rows) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) {
      text.replace(at, from.size(), to);
    }
  }
  return test::WithoutLiteralMarks(text);
}

TEST(Golden, TrampolinesPerGeneration) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.processor);
    const std::string body =
        "v_add_f32_e32 v2, v0, v1\n" + std::string(golden.store) + "\ns_endpgm\n";
    Loaded original(
        test::AssembleObject(golden.processor, golden.wave, {{.body = body, .sgprs = 8}}));
    const auto rewriter = patch::MakeTrampolineRewriter();
    const ProbeRequest request{.probe = golden.probe, .counter_index = 3};
    const auto planned = rewriter->Plan(original.Kernel(), 1, request);
    const SitePlan* plan = std::get_if<SitePlan>(&planned);
    ASSERT_NE(plan, nullptr) << std::get<patch::Refusal>(planned).detail;
    const auto result = rewriter->Emit(original.object(), original.All(), {*plan});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_FALSE(result->sites[0].refusal.has_value());
    Loaded patched(result->image);
    EXPECT_EQ(Compact(TrampolineText(patched, result->sites[0].trampoline_vaddr)), golden.expected);
    // The anchor: a branch and, for an 8-byte instruction, one s_nop.
    const auto& kernel = patched.Kernel();
    EXPECT_EQ(kernel.instructions()[1].opcode, "s_branch");
    EXPECT_EQ(kernel.instructions()[2].opcode, "s_nop");
    const bool counts = golden.probe == Probe::kCountWaves || golden.probe == Probe::kCountLanes;
    ASSERT_EQ(result->fixups.size(), counts ? 2u : 0u);
    for (const auto& fixup : result->fixups) {
      EXPECT_EQ(fixup.addend, 24u);
      ASSERT_LE(fixup.offset + 4, result->image.size());
      for (int b = 0; b < 4; ++b) EXPECT_EQ(result->image[fixup.offset + b], 0) << "placeholder";
    }
    if (counts) {
      EXPECT_FALSE(result->fixups[0].high_half);
      EXPECT_TRUE(result->fixups[1].high_half);
    }
    EXPECT_EQ(plan->vgpr_delta, 0);
    EXPECT_EQ(plan->sgpr_delta, 0);
  }
}

struct ClauseGolden {
  const char* processor;
  const char *load, *load_from;  // first and later members of the clause
  const char* kernel;            // as patched: branches' offsets removed
  const char* guard = "";        // around a displaced memory instruction
};

const ClauseGolden kClauseGoldens[] = {
    {"gfx1030", "global_load_dword v4, v[0:1], off", "global_load_dword v5, v[0:1], off offset:4",
     "s_nop 0\nglobal_load_dword v4, v[0:1], off\ns_branch\ns_nop 0\n"},
    {"gfx1010:xnack+", "global_load_dword v4, v[0:1], off",
     "global_load_dword v5, v[0:1], off offset:4",
     "s_nop 0\nglobal_load_dword v4, v[0:1], off\ns_branch\ns_nop 0\n",
     "s_waitcnt_vscnt null, 0x0\n"},
    {"gfx1100", "global_load_b32 v4, v[0:1], off", "global_load_b32 v5, v[0:1], off offset:4",
     "s_nop 0\nglobal_load_b32 v4, v[0:1], off\ns_branch\ns_nop 0\n"},
    {"gfx1201", "global_load_b32 v4, v[0:1], off", "global_load_b32 v5, v[0:1], off offset:4",
     "s_nop 0\nglobal_load_b32 v4, v[0:1], off\ns_branch\ns_nop 0\ns_nop 0\n"},
};

// A kernel whose first clause is to be split, and whose second is not.
Loaded ClauseKernel(const ClauseGolden& golden) {
  const std::string first(golden.load), second(golden.load_from);
  return Loaded(
      test::AssembleObject(golden.processor, 32,
                           {{.body = "s_clause 0x1\n" + first + "\n" + second + "\ns_clause 0x1\n" +
                                     first + "\n" + second + "\ns_nop 7\ns_endpgm\n"}}));
}

std::string WithoutBranchOffsets(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    out += (line.starts_with("s_branch") ? "s_branch" : line) + "\n";
    at = end + 1;
  }
  return out;
}

std::string KernelText(Loaded& image, uint64_t size) {
  return WithoutBranchOffsets(image.Disassemble(image.Kernel().kernel().entry_vaddr, size));
}

patch::RewriteResult NopAt(Loaded& original, const std::vector<uint32_t>& instructions) {
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  for (const uint32_t i : instructions) {
    const auto plan = rewriter->Plan(original.Kernel(), i, {.probe = Probe::kNop});
    EXPECT_TRUE(std::holds_alternative<SitePlan>(plan));
    if (!std::holds_alternative<SitePlan>(plan)) return {};
    plans.push_back(std::get<SitePlan>(plan));
    EXPECT_EQ(plans.back().broken_clause, original.Kernel().SplittableClause(i));
  }
  auto result = rewriter->Emit(original.object(), original.All(), plans);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : patch::RewriteResult();
}

TEST(Golden, AProbedClauseIsSplitAndItsNeighbourIsNot) {
  for (const ClauseGolden& golden : kClauseGoldens) {
    SCOPED_TRACE(golden.processor);
    Loaded original = ClauseKernel(golden);
    const auto& kernel = original.Kernel().kernel();
    const std::string before = KernelText(original, kernel.code_size);
    const std::string second_clause = before.substr(before.rfind("s_clause"));
    EXPECT_EQ(original.Kernel().SplittableClause(2), 0u);
    const auto result = NopAt(original, {2});
    ASSERT_FALSE(result.image.empty());
    Loaded patched(result.image);
    EXPECT_EQ(KernelText(patched, kernel.code_size), golden.kernel + second_clause);
    EXPECT_EQ(TrampolineText(patched, result.sites[0].trampoline_vaddr),
              golden.guard + std::string("s_nop 0\n") + golden.load_from + "\n" + golden.guard +
                  "s_branch\n");
  }
}

TEST(Golden, ASiteOnTheClauseInstructionRunsInItsOwnPlace) {
  for (const ClauseGolden& golden : kClauseGoldens) {
    SCOPED_TRACE(golden.processor);
    Loaded original = ClauseKernel(golden);
    const std::string before = KernelText(original, original.Kernel().kernel().code_size);
    // Alone, and with a member: the s_clause becomes the anchor, not s_nop.
    const std::vector<std::vector<uint32_t>> orders = {{0}, {0, 2}, {2, 0}};
    for (const auto& sites : orders) {
      const auto result = NopAt(original, sites);
      ASSERT_FALSE(result.image.empty());
      Loaded patched(result.image);
      const std::string after = KernelText(patched, original.Kernel().kernel().code_size);
      EXPECT_TRUE(after.starts_with("s_branch\n" + std::string(golden.load) + "\n")) << after;
      EXPECT_TRUE(after.ends_with(before.substr(before.rfind("s_clause")))) << after;
      const size_t own = sites.front() == 0 ? 0 : 1;
      EXPECT_EQ(TrampolineText(patched, result.sites[own].trampoline_vaddr),
                "s_nop 0\ns_nop 0\ns_branch\n");
    }
  }
}

// With XNACK, memory instructions in a row may be replayed together: none of the
// probe's may adjoin the application's.
TEST(Golden, ProbeMemoryIsIsolatedUnderXnack) {
  const struct {
    const char* processor;
    uint32_t wave;
    const char* body;
  } cases[] = {
      {"gfx1010:xnack+", 32, "s_clause 0x1\nglobal_load_dword v4, v[0:1], off\n"},
      {"gfx90a:xnack+", 64, "s_nop 0\nglobal_load_dword v4, v[0:1], off\n"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.processor);
    Loaded original(test::AssembleObject(
        c.processor, c.wave,
        {{.body =
              std::string(c.body) + "global_load_dword v5, v[0:1], off offset:4\ns_endpgm\n"}}));
    const auto rewriter = patch::MakeTrampolineRewriter();
    std::vector<SitePlan> plans;
    for (const uint32_t i : {1u, 2u}) {
      for (const Probe probe : {Probe::kCountWaves, Probe::kCountLanes}) {
        const auto plan = rewriter->Plan(original.Kernel(), i, {.probe = probe});
        ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
        plans.push_back(std::get<SitePlan>(plan));
      }
    }
    const auto result = rewriter->Emit(original.object(), original.All(), plans);
    ASSERT_TRUE(result.ok()) << result.status();
    Loaded patched(result->image);
    for (const size_t site : {0u, 2u}) {
      const std::string text = TrampolineText(patched, result->sites[site].trampoline_vaddr);
      size_t memory = 0;
      bool previous = false;
      for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
        const bool now = text.compare(at, 7, "global_") == 0;
        EXPECT_FALSE(now && previous) << text;
        memory += now;
        previous = now;
      }
      EXPECT_EQ(memory, 3u) << text;  // two counters and the load
      EXPECT_FALSE(previous);
    }
  }
}

// The address that the s_branch at `vaddr` leads to; 0: no s_branch.
uint64_t BranchTarget(Loaded& image, uint64_t vaddr) {
  const auto in = image.isa().Decode(image.object().AtVaddr(vaddr, 4), 0);
  if (!in || in->opcode != "s_branch") return 0;
  return vaddr + static_cast<uint64_t>(*in->target_offset);
}

TEST(Golden, BranchesAreMadeAnew) {
  const std::pair<const char*, uint32_t> targets[] = {
      {"gfx900", 64}, {"gfx90a", 64}, {"gfx1030", 32}, {"gfx1100", 32}, {"gfx1201", 32}};
  for (const auto& [processor, wave] : targets) {
    for (const std::string opcode :
         {"s_branch", "s_cbranch_scc0", "s_cbranch_scc1", "s_cbranch_vccz", "s_cbranch_vccnz",
          "s_cbranch_execz", "s_cbranch_execnz"}) {
      SCOPED_TRACE(processor + (" " + opcode));
      Loaded original(test::AssembleObject(
          processor, wave,
          {{.body = ".Lback:\ns_nop 1\n" + opcode + " .Lback\ns_nop 2\ns_endpgm\n"}}));
      const auto result = NopAt(original, {1});
      ASSERT_FALSE(result.image.empty());
      Loaded patched(result.image);
      const uint64_t entry = original.Kernel().kernel().entry_vaddr;
      uint64_t at = result.sites[0].trampoline_vaddr;
      EXPECT_EQ(BranchTarget(patched, entry + 4), at);
      EXPECT_EQ(patched.Disassemble(at, 4), "s_nop 0\n");
      at += 4;
      if (opcode != "s_branch") {
        EXPECT_EQ(patched.Disassemble(at, 4), opcode + " 1\n");
        EXPECT_EQ(BranchTarget(patched, at + 4), entry + 8);
        at += 8;
      }
      EXPECT_EQ(BranchTarget(patched, at), entry);
    }
  }
}

TEST(Golden, SeveralProbesShareASiteInOrderAndNeighboursStandAlone) {
  Loaded original(test::AssembleObject("gfx1030", 32, {{.body = R"(
    v_add_f32_e32 v2, v0, v1
    v_add_f32_e32 v3, v0, v1
    v_add_f32_e32 v4, v2, v3
    s_endpgm)"}}));
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  const std::pair<uint32_t, Probe> wanted[] = {
      {1, Probe::kCountWaves}, {0, Probe::kNop}, {1, Probe::kNop}, {2, Probe::kNop}};
  for (const auto& [instruction, probe] : wanted) {
    const auto plan = rewriter->Plan(original.Kernel(), instruction, {.probe = probe});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
    plans.push_back(std::get<SitePlan>(plan));
  }
  const auto result = rewriter->Emit(original.object(), original.All(), plans);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->sites[0].trampoline_vaddr, result->sites[2].trampoline_vaddr);
  Loaded patched(result->image);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(patched.Kernel().instructions()[i].opcode, "s_branch");
  }
  EXPECT_EQ(TrampolineText(patched, result->sites[1].trampoline_vaddr),
            "s_nop 0\nv_add_f32_e32 v2, v0, v1\ns_branch\n");
  const std::string shared = TrampolineText(patched, result->sites[0].trampoline_vaddr);
  EXPECT_NE(shared.find("s_mov_b32 exec_lo, s"), std::string::npos) << shared;
  EXPECT_TRUE(shared.ends_with("s_nop 0\nv_add_f32_e32 v3, v0, v1\ns_branch\n")) << shared;
  // Deterministic.
  const auto again =
      patch::MakeTrampolineRewriter()->Emit(original.object(), original.All(), plans);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->image, result->image);
}

}  // namespace
}  // namespace rjdbi
