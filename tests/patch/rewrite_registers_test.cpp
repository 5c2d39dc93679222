// Which registers are chosen, what growth costs, and when there are none.
#include <gtest/gtest.h>

#include <string>

#include "patch/analysis/allocation.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::kSgpr0;
using patch::kVccLo;
using patch::kVgpr0;
using patch::Probe;
using patch::ProbeRequest;
using patch::Reason;
using patch::Refusal;
using patch::SitePlan;
using test::AsmKernel;
using test::AssembleObject;
using test::Loaded;

// Reads and writes s0..sgprs-1 and v0..vgprs-1 around an s_nop 7 at which all
// of them are live, apart from `dead` lines in front of the end.
AsmKernel Busy(uint32_t sgprs, uint32_t vgprs, const std::string& at_site = "s_nop 7") {
  AsmKernel k{.vgprs = vgprs, .sgprs = sgprs};
  k.body = at_site + "\n";
  for (uint32_t v = 0; v + 1 < vgprs; ++v) {
    k.body += "v_xor_b32_e32 v0, v" + std::to_string(v) + ", v" + std::to_string(v + 1) + "\n";
  }
  for (uint32_t s = 0; s < sgprs; ++s)
    k.body += "v_xor_b32_e32 v0, s" + std::to_string(s) + ", v0\n";
  k.body += "v_cndmask_b32_e32 v0, v0, v0, vcc\nglobal_store_dword v[0:1], v0, off\ns_endpgm\n";
  return k;
}

std::variant<SitePlan, Refusal> Plan(const patch::KernelAnalysis& kernel, uint32_t instruction,
                                     uint32_t sgpr_budget, uint32_t vgpr_budget) {
  return patch::MakeTrampolineRewriter()->Plan(kernel, instruction,
                                               ProbeRequest{.probe = Probe::kCountWaves,
                                                            .max_sgpr_delta = sgpr_budget,
                                                            .max_vgpr_delta = vgpr_budget});
}

const SitePlan& Get(const std::variant<SitePlan, Refusal>& v) {
  static const SitePlan none;
  if (const auto* refusal = std::get_if<Refusal>(&v)) {
    ADD_FAILURE() << "refused: " << static_cast<int>(refusal->reason) << " " << refusal->detail;
    return none;
  }
  return std::get<SitePlan>(v);
}

Reason Why(const std::variant<SitePlan, Refusal>& v) {
  const auto* refusal = std::get_if<Refusal>(&v);
  return refusal ? refusal->reason : Reason::kNone;
}

TEST(Registers, NothingLiveOrPendingIsChosen) {
  // v4 is in flight and s[6:7] too; v2 and s[2:3] are live; v5 and s4 are dead.
  Loaded loaded(AssembleObject("gfx900", 64,
                               {{.body = R"(
    global_load_dword v4, v[0:1], off
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    s_nop 7
    v_mov_b32_e32 v5, s4
    v_mov_b32_e32 v5, s5
    global_store_dword v2, v2, s[2:3]
    s_endpgm)",
                                 .vgprs = 8,
                                 .sgprs = 10}}));
  const SitePlan plan = Get(Plan(loaded.Kernel(), 2, 0, 0));
  const auto& k = loaded.Kernel();
  EXPECT_TRUE((plan.temporaries & (k.LiveBefore(2) | k.PendingBefore(2))).Empty());
  EXPECT_FALSE(plan.temporaries.Has(kVgpr0 + 4));
  EXPECT_FALSE(plan.temporaries.Has(kSgpr0 + 6));
  EXPECT_TRUE(plan.grown.Empty());
}

// The only pairs that nobody reads are those that loads are about to write.
TEST(Registers, WhatALoadWillWriteIsNotFree) {
  Loaded loaded(AssembleObject("gfx90a", 64,
                               {{.body = R"(
    global_load_dwordx2 v[4:5], v[0:1], off
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    s_nop 7
    v_xor_b32_e32 v0, v1, v0
    v_xor_b32_e32 v0, v2, v3
    v_xor_b32_e32 v0, v6, v7
    v_mov_b32_e32 v0, s0
    v_mov_b32_e32 v0, s1
    v_mov_b32_e32 v0, s2
    v_mov_b32_e32 v0, s3
    v_mov_b32_e32 v0, s4
    v_mov_b32_e32 v0, s5
    v_mov_b32_e32 v0, s8
    v_mov_b32_e32 v0, s9
    v_cndmask_b32_e32 v0, v0, v0, vcc
    s_endpgm)",
                                 .vgprs = 8,
                                 .sgprs = 10}}));
  EXPECT_EQ(Why(Plan(loaded.Kernel(), 2, 0, 100)), Reason::kSgprBudget);
  EXPECT_EQ(Why(Plan(loaded.Kernel(), 2, 100, 0)), Reason::kVgprBudget);
  const SitePlan plan = Get(Plan(loaded.Kernel(), 2, 16, 8));
  EXPECT_FALSE(plan.temporaries.HasAny(kVgpr0, 8));
  EXPECT_FALSE(plan.temporaries.HasAny(kSgpr0, 10));
}

// On gfx12 a vector instruction's read of a scalar stays a hazard for later
// writes of it: only what the kernel never mentions can be borrowed.
TEST(Registers, Gfx12BorrowsNoScalarThatTheKernelUses) {
  AsmKernel k{.vgprs = 8, .sgprs = 106};
  k.body = "s_nop 7\n";
  for (int s = 0; s < 106; ++s) k.body += "s_mov_b32 s" + std::to_string(s) + ", 0\n";
  k.body += "s_endpgm\n";
  Loaded rdna2(AssembleObject("gfx1030", 32, {k}));
  EXPECT_FALSE(Get(Plan(rdna2.Kernel(), 0, 0, 0)).temporaries.Empty());
  Loaded rdna4(AssembleObject("gfx1201", 32, {k}));
  EXPECT_EQ(Why(Plan(rdna4.Kernel(), 0, 0, 0)), Reason::kNoSgprPair);
}

TEST(Registers, Gfx9SgprGrowthNeedsBudget) {
  // 10 ordinary SGPRs and 6 special ones fill the first granule of 16.
  Loaded loaded(AssembleObject("gfx900", 64, {Busy(10, 4)}));
  const auto& k = loaded.Kernel();
  ASSERT_EQ(patch::AllocationOf(k.kernel(), k.isa().generation()).ordinary_sgprs, 10u);
  EXPECT_EQ(Why(Plan(k, 0, 0, 8)), Reason::kSgprBudget);
  const SitePlan plan = Get(Plan(k, 0, 16, 8));
  EXPECT_EQ(plan.sgpr_delta, 16);
  EXPECT_TRUE(plan.grown.Has(kSgpr0 + 10));
  EXPECT_EQ(plan.required_sgprs, 14u);

  auto rewriter = patch::MakeTrampolineRewriter();
  const auto result = rewriter->Emit(loaded.object(), loaded.All(), {plan});
  ASSERT_TRUE(result.ok()) << result.status();
  Loaded patched(result->image);
  const auto& kernel = patched.object().kernels()[0];
  EXPECT_EQ(patch::AllocationOf(kernel, k.isa().generation()).sgprs, 32u);
  EXPECT_EQ(kernel.metadata.sgpr_count, 20u);
}

TEST(Registers, VccIsUsedWhenDead) {
  // All ten SGPRs are live; VCC is dead: it saves EXEC, and the address goes
  // to VGPRs rather than growing the SGPRs.
  AsmKernel busy = Busy(10, 4);
  const size_t use = busy.body.find("v_cndmask");
  busy.body.erase(use, busy.body.find('\n', use) - use);
  busy.vgprs = 8;
  Loaded loaded(AssembleObject("gfx900", 64, {busy}));
  const SitePlan plan = Get(Plan(loaded.Kernel(), 0, 0, 0));
  EXPECT_TRUE(plan.temporaries.Has(kVccLo));
  EXPECT_EQ(plan.sgpr_delta, 0);
  EXPECT_TRUE(plan.temporaries.HasAny(kVgpr0 + 4, 4));
  EXPECT_EQ(plan.fixups.size(), 2u);
}

// With the address in VGPRs the first of them would be written two wait states
// after whatever stands before: a dot product's result takes three on gfx90a.
TEST(Registers, WaitStatesThatASequenceLacksAreMadeUp) {
  const std::pair<const char*, const char*> firsts[] = {{"gfx900", "s_mov_b64 vcc, exec"},
                                                        {"gfx90a", "s_nop 0"}};
  for (const auto& [processor, first] : firsts) {
    AsmKernel busy = Busy(10, 4);
    const size_t use = busy.body.find("v_cndmask");
    busy.body.erase(use, busy.body.find('\n', use) - use);
    busy.vgprs = 8;
    Loaded loaded(AssembleObject(processor, 64, {busy}));
    const SitePlan plan = Get(Plan(loaded.Kernel(), 0, 0, 0));
    EXPECT_EQ(loaded.isa().Print(plan.sequence, 0), first);
    const size_t words = std::string(first) == "s_nop 0" ? 3 : 2;  // s_nop, EXEC saved, EXEC set
    EXPECT_EQ(plan.fixups[0].offset, 4 * words + 4) << "the literal of a v_mov";
    EXPECT_EQ(plan.sequence[plan.fixups[0].offset], 0);
  }
}

TEST(Registers, VgprGrowthAndItsDescriptor) {
  const struct {
    const char* processor;
    uint32_t wave, vgprs, agprs, delta, total, accum;
  } rows[] = {
      {"gfx900", 64, 8, 0, 4, 12, 0},  {"gfx90a", 64, 8, 0, 8, 16, 12},
      {"gfx90a", 64, 8, 8, 8, 24, 12}, {"gfx942", 64, 8, 4, 0, 16, 12},
      {"gfx1030", 32, 8, 0, 8, 16, 0}, {"gfx1030", 64, 8, 0, 4, 12, 0},
      {"gfx1100", 32, 8, 0, 8, 16, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.processor) + " agprs " + std::to_string(row.agprs));
    AsmKernel busy{.vgprs = row.vgprs, .agprs = row.agprs, .sgprs = 16};
    busy.body = "s_nop 7\n";
    for (uint32_t v = 1; v < row.vgprs; ++v) {
      busy.body += "v_xor_b32_e32 v0, v" + std::to_string(v) + ", v0\n";
    }
    if (row.agprs > 0) {
      busy.body += "v_accvgpr_read_b32 v0, a" + std::to_string(row.agprs - 1) + "\n";
    }
    busy.body += "s_endpgm\n";
    Loaded loaded(AssembleObject(row.processor, row.wave, {busy}));
    const auto& k = loaded.Kernel();
    if (row.delta > 0) {
      EXPECT_EQ(Why(Plan(k, 0, 0, row.delta - 1)), Reason::kVgprBudget);
    }
    const SitePlan plan = Get(Plan(k, 0, 0, row.delta));
    EXPECT_EQ(plan.vgpr_delta, static_cast<int32_t>(row.delta));
    EXPECT_EQ(plan.required_vgprs, 10u);
    EXPECT_TRUE(plan.grown.Has(kVgpr0 + 8));
    EXPECT_TRUE(plan.grown.Has(kVgpr0 + 9));
    const auto result =
        patch::MakeTrampolineRewriter()->Emit(loaded.object(), loaded.All(), {plan});
    ASSERT_TRUE(result.ok()) << result.status();
    Loaded patched(result->image);
    const auto& kernel = patched.object().kernels()[0];
    const auto allocation = patch::AllocationOf(kernel, k.isa().generation());
    EXPECT_EQ(allocation.vgprs, row.total);
    if (row.accum != 0) {
      EXPECT_EQ(patch::AccumOffset(kernel.descriptor), row.accum);
    }
    EXPECT_EQ(kernel.metadata.vgpr_count, row.agprs > 0 ? 12 + row.agprs : 10);
  }
}

TEST(Registers, HardwareLimits) {
  Loaded vgprs(AssembleObject("gfx900", 64, {Busy(8, 256)}));
  EXPECT_EQ(Why(Plan(vgprs.Kernel(), 0, 100, 300)), Reason::kVgprGrowthImpossible);
  Loaded sgprs(AssembleObject("gfx900", 64, {Busy(102, 4)}));
  EXPECT_EQ(Why(Plan(sgprs.Kernel(), 0, 200, 300)), Reason::kSgprGrowthImpossible);
  Loaded fixed(AssembleObject("gfx1030", 64, {Busy(106, 4)}));
  EXPECT_EQ(Why(Plan(fixed.Kernel(), 0, 200, 300)), Reason::kNoSgprPair);
}

TEST(Registers, MatrixKernelsGetTheLongGuardForBorrowedRegisters) {
  AsmKernel k{.vgprs = 8, .sgprs = 16};
  k.body = R"(
    v_mfma_f32_4x4x1f32 v[0:3], v4, v5, 0
    v_mov_b32_e32 v6, v7
    s_nop 7
    v_xor_b32_e32 v0, v1, v0
    v_xor_b32_e32 v0, v2, v3
    s_endpgm)";
  Loaded loaded(AssembleObject("gfx90a", 64, {k}));
  const auto& kernel = loaded.Kernel();
  // No VGPR is fresh and the budget is zero: dead ones are borrowed.
  const SitePlan plan = Get(Plan(kernel, 2, 0, 0));
  EXPECT_TRUE(plan.grown.Empty());
  EXPECT_FALSE(plan.temporaries.HasAny(kVgpr0, 4));
  EXPECT_TRUE(plan.temporaries.Has(kVgpr0 + 4));
  EXPECT_EQ(loaded.isa().Print(plan.sequence, 0), "s_nop 7");
  EXPECT_EQ(loaded.isa().Print(plan.sequence, 4), "s_nop 7");
  EXPECT_EQ(loaded.isa().Print(plan.sequence, 8), "s_nop 2");
}

}  // namespace
}  // namespace rjdbi
