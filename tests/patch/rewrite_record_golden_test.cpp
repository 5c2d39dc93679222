// The exact code of probes that write records, as disassembly: scopes, waits, guards,
// registers. Placed in clones, so that what is seen is what runs.
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
  const char* instruction;  // the site
  const char* expected;
};

std::string Text(Loaded& kernel, const SitePlan& plan) {
  std::string text;
  for (uint64_t at = 0; at < plan.sequence.size();) {
    const auto in = kernel.isa().Decode(plan.sequence, at);
    if (!in) return text + "undecodable\n";
    text += kernel.isa().Print(plan.sequence, at) + "\n";
    at += in->size;
  }
  return text;
}

const char* const kGfx90a = R"(s_mov_b64 s[2:3], exec
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v3, 0
v_mov_b32_e32 v2, 0x220
global_atomic_add_x2 v[8:9], v3, v[2:3], s[0:1] glc
s_waitcnt vmcnt(0)
v_cmpx_ge_u64_e32 vcc, 0xde8, v[8:9]
s_cbranch_execnz 9
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v2, 1
global_atomic_add_x2 v3, v[2:3], s[0:1]
s_branch 22
v_lshl_add_u32 v2, v8, 9, v8
v_and_b32_e32 v2, 0x1ff0, v2
v_readfirstlane_b32 vcc_lo, v2
s_mov_b64 exec, s[2:3]
v_mbcnt_lo_u32_b32 v9, -1, 0
v_mbcnt_hi_u32_b32 v9, -1, v9
v_lshl_add_u32 v9, v9, 3, vcc_lo
global_store_dwordx2 v9, v[4:5], s[0:1] offset:288
s_mov_b64 exec, 1
s_waitcnt vmcnt(0)
v_pk_mov_b32 v[6:7], s[2:3], s[2:3] op_sel:[0,1]
v_mov_b32_e32 v9, 0xa200005
global_store_dwordx4 v2, v[6:9], s[0:1] offset:256
s_mov_b64 exec, s[2:3]
)";
const char* const kGfx942 = R"(s_mov_b64 s[2:3], exec
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b64 exec, 1
v_mov_b64_e32 v[2:3], 32
global_atomic_add_x2 v[8:9], v3, v[2:3], s[0:1] sc0 sc1
s_waitcnt vmcnt(0)
v_cmpx_ge_u64_e32 vcc, 0xfe8, v[8:9]
s_cbranch_execnz 9
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b64 exec, 1
v_mov_b32_e32 v2, 1
global_atomic_add_x2 v3, v[2:3], s[0:1] sc1
s_branch 20
v_lshl_add_u32 v2, v8, 9, v8
v_and_b32_e32 v2, 0x1ff0, v2
v_mov_b32_e32 v3, v8
v_mov_b32_e32 v6, -1
v_mov_b32_e32 v7, -1
v_mov_b32_e32 v8, -1
s_getreg_b32 vcc_lo, hwreg(HW_REG_HW_ID)
v_mov_b32_e32 v9, vcc_lo
global_store_dwordx4 v2, v[6:9], s[0:1] offset:272 sc0 sc1
s_waitcnt vmcnt(0)
s_nop 0
v_mov_b32_e32 v8, v3
v_mov_b64_e32 v[6:7], s[2:3]
v_mov_b32_e32 v9, 0x4200005
global_store_dwordx4 v2, v[6:9], s[0:1] offset:256 sc0 sc1
s_mov_b64 exec, s[2:3]
s_nop 0
)";
const char* const kGfx1010 = R"(s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
s_mov_b32 s2, exec_lo
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v3, 0
v_mov_b32_e32 v2, 32
global_atomic_add_x2 v[6:7], v3, v[2:3], s[0:1] glc
s_waitcnt vmcnt(0)
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
v_cmpx_ge_u64_e32 0xfe8, v[6:7]
s_cbranch_execnz 12
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v2, 1
global_atomic_add_x2 v3, v[2:3], s[0:1]
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
s_branch 20
v_lshl_add_u32 v2, v6, 9, v6
v_and_b32_e32 v2, 0x1ff0, v2
v_mov_b32_e32 v3, v6
v_mov_b32_e32 v4, -1
v_mov_b32_e32 v5, -1
v_mov_b32_e32 v6, -1
s_getreg_b32 s3, hwreg(HW_REG_HW_ID1)
v_mov_b32_e32 v7, s3
global_store_dwordx4 v2, v[4:7], s[0:1] offset:272
s_waitcnt_vscnt null, 0x0
v_mov_b32_e32 v6, v3
v_mov_b32_e32 v4, s2
v_mov_b32_e32 v5, 0
v_mov_b32_e32 v7, 0x4200005
global_store_dwordx4 v2, v[4:7], s[0:1] offset:256
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
s_mov_b32 exec_lo, s2
s_waitcnt_depctr 0xffe2
s_mov_b32 null, 0
s_waitcnt_vscnt null, 0x0
)";
const char* const kGfx1030 = R"(s_mov_b32 s2, exec_lo
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v3, 0
v_mov_b32_e32 v2, 0xa0
global_atomic_add_x2 v[7:8], v3, v[2:3], s[0:1] glc
s_waitcnt vmcnt(0)
v_cmpx_ge_u64_e32 0xf68, v[7:8]
s_cbranch_execnz 9
s_mov_b32 s0, 0
s_mov_b32 s1, 0
s_mov_b32 exec_lo, 1
v_mov_b32_e32 v2, 1
global_atomic_add_x2 v3, v[2:3], s[0:1]
s_branch 20
v_lshl_add_u32 v2, v7, 9, v7
v_and_b32_e32 v2, 0x1ff0, v2
v_readfirstlane_b32 s3, v2
s_mov_b32 exec_lo, s2
v_mbcnt_lo_u32_b32 v8, -1, 0
v_lshl_add_u32 v8, v8, 2, s3
global_store_dword v8, v4, s[0:1] offset:288
s_mov_b32 exec_lo, 1
s_waitcnt_vscnt null, 0x0
v_mov_b32_e32 v5, s2
v_mov_b32_e32 v6, 0
v_mov_b32_e32 v8, 0x8a00005
global_store_dwordx4 v2, v[5:8], s[0:1] offset:256
s_mov_b32 exec_lo, s2
)";

const Golden kGoldens[] = {
    {"gfx90a", 64, Probe::kTraceAddress, "global_load_dword v2, v[4:5], off", kGfx90a},
    {"gfx942", 64, Probe::kTraceExec, "global_load_dword v2, v[4:5], off", kGfx942},
    {"gfx1010", 32, Probe::kTraceExec, "s_nop 0", kGfx1010},
    {"gfx1030", 32, Probe::kTraceAddress, "ds_read_b32 v2, v4", kGfx1030},
};

TEST(RecordGolden, Sequences) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.processor);
    Loaded kernel(test::AssembleObject(
        golden.processor, golden.wave,
        {{.body = "v_add_f32_e32 v2, v0, v1\n" + std::string(golden.instruction) +
                  "\nv_add_f32_e32 v3, v0, v1\ns_endpgm\n",
          .vgprs = 8,
          .sgprs = 24}}));
    const auto rewriter = patch::MakeTrampolineRewriter();
    const ProbeRequest request{.probe = golden.probe,
                               .counter_index = 3,
                               .max_vgpr_delta = 16,
                               .placement = patch::Placement::kClone,
                               .record_site = 5,
                               .ring_offset = 256,
                               .ring_half_bytes = 4096};
    const auto planned = rewriter->Plan(kernel.Kernel(), 1, request);
    const SitePlan* plan = std::get_if<SitePlan>(&planned);
    ASSERT_NE(plan, nullptr) << std::get<patch::Refusal>(planned).detail;
    EXPECT_EQ(test::WithoutLiteralMarks(Text(kernel, *plan)), golden.expected);
    ASSERT_EQ(plan->fixups.size(), 4u);
    for (const size_t n : {0u, 1u, 2u, 3u}) {
      EXPECT_EQ(plan->fixups[n].addend, n < 2 ? 256u : 24u);
      EXPECT_EQ(plan->fixups[n].high_half, n % 2 == 1);
    }
    ASSERT_TRUE(plan->record.has_value());
    EXPECT_EQ(plan->record->site, 5u);
    EXPECT_TRUE(plan->drains_waits);
  }
}

}  // namespace
}  // namespace rjdbi
