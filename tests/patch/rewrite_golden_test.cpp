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

const char* const kGfx900Waves = R"(s_nop 4
s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v4, 0
v_mov_b32_e32 v3, 1
global_atomic_add_x2 v4, v[3:4], s[2:3]
s_mov_b64 exec, s[4:5]
s_nop 4
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx90aLanes = R"(s_nop 4
s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v5, 0
v_bcnt_u32_b32 v4, s4, 0
v_bcnt_u32_b32 v4, s5, v4
global_atomic_add_x2 v5, v[4:5], s[2:3]
s_mov_b64 exec, s[4:5]
s_nop 4
global_store_dword v2, v2, s[0:1]
s_branch
)";
const char* const kGfx942Waves = R"(s_nop 4
s_mov_b64 s[4:5], exec
s_mov_b32 s2, 0
s_mov_b32 s3, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v5, 0
v_mov_b32_e32 v4, 1
global_atomic_add_x2 v5, v[4:5], s[2:3] sc1
s_mov_b64 exec, s[4:5]
s_nop 4
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
  return text;
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
