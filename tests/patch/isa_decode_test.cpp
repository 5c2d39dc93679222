// Operands, register effects and classes of single instructions, per
// generation. Each line is assembled, decoded, and compared as text.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "patch/isa/isa.h"

namespace rjdbi::patch {
namespace {

struct Case {
  const char* target;  // "gfx90a/64"
  const char* text;
  const char* opcode;
  const char* defs;
  const char* uses;
  const char* partial;  // "*": same as defs
  const char* kind;     // words as Describe writes them
};

std::string Describe(const Instruction& inst) {
  std::string out;
  auto word = [&](bool present, const char* text) {
    if (present) out += (out.empty() ? "" : " ") + std::string(text);
  };
  word(inst.valu, "valu");
  word(inst.salu, "salu");
  word(inst.trans, "trans");
  word(inst.mfma, "mfma");
  word(inst.branch, "branch");
  word(inst.conditional, "conditional");
  word(inst.indirect, "indirect");
  word(inst.call, "call");
  word(inst.ends_program, "end");
  word(inst.barrier, "barrier");
  word(inst.reads_pc, "pc");
  word(inst.is_clause, "clause");
  word(inst.waitcnt, "wait");
  word(inst.sendmsg, "sendmsg");
  word(inst.trap, "trap");
  word(inst.setreg, "setreg");
  const char* const kinds[] = {"",    "global", "flat",   "scratch", "lds",
                               "gds", "scalar", "buffer", "image"};
  word(inst.memory != MemoryKind::kNone, kinds[static_cast<int>(inst.memory)]);
  word(inst.load, "load");
  word(inst.store, "store");
  word(inst.atomic, "atomic");
  word(inst.returns_value, "returns");
  return out;
}

// clang-format off
const Case kCases[] = {
    // Scalar ALU: SCC, conditional and partial writes, EXEC.
    {"gfx90a/64", "s_add_u32 s0, s1, s2", "s_add_u32", "s0 scc", "s1-s2", "", "salu"},
    {"gfx90a/64", "s_addc_u32 s0, s1, 5", "s_addc_u32", "s0 scc", "s1 scc", "", "salu"},
    {"gfx90a/64", "s_cselect_b32 s0, 1, 0", "s_cselect_b32", "s0", "scc", "", "salu"},
    {"gfx90a/64", "s_cmov_b32 s0, s1", "s_cmov_b32", "s0", "s1 scc", "*", "salu"},
    {"gfx90a/64", "s_cmovk_i32 s0, 0x1", "s_cmovk_i32", "s0", "scc", "*", "salu"},
    {"gfx90a/64", "s_bitset1_b32 s0, s1", "s_bitset1_b32", "s0", "s0-s1", "", "salu"},
    {"gfx90a/64", "s_addk_i32 s0, 0x1", "s_addk_i32", "s0 scc", "s0", "", "salu"},
    {"gfx90a/64", "s_mov_b64 vcc, exec", "s_mov_b64", "vcc", "exec", "", "salu"},
    {"gfx90a/64", "s_mov_b32 vcc_hi, m0", "s_mov_b32", "vcc_hi", "m0", "", "salu"},
    {"gfx90a/64", "s_and_saveexec_b64 s[0:1], vcc", "s_and_saveexec_b64", "s0-s1 exec scc", "vcc exec", "", "salu"},
    {"gfx1030/32", "s_and_saveexec_b32 s0, vcc_lo", "s_and_saveexec_b32", "s0 exec_lo scc", "vcc_lo exec_lo", "", "salu"},
    {"gfx1030/32", "s_and_saveexec_b64 s[0:1], vcc", "s_and_saveexec_b64", "s0-s1 exec scc", "vcc exec", "", "salu"},
    {"gfx90a/64", "s_mov_b32 flat_scratch_lo, s0", "s_mov_b32", "flat_scratch_lo", "s0", "", "salu"},
    {"gfx900/64", "s_mov_b64 s[0:1], xnack_mask", "s_mov_b64", "s0-s1", "xnack_mask", "", "salu"},
    {"gfx1030/32", "s_movrels_b32 s0, s1", "s_movrels_b32", "s0-s105", "s0-s105 m0", "*", "salu"},
    {"gfx1200/32", "s_add_nc_u64 s[0:1], s[2:3], s[4:5]", "s_add_nc_u64", "s0-s1", "s2-s5", "", "salu"},
    {"gfx1030/32", "s_mov_b32 null, s0", "s_mov_b32", "", "s0", "", "salu"},
    {"gfx90a/64", "s_mov_b32 s0, src_scc", "s_mov_b32", "s0", "scc", "", "salu"},

    // MODE and hardware registers.
    {"gfx90a/64", "s_setreg_b32 hwreg(HW_REG_MODE), s0", "s_setreg_b32", "mode", "s0", "*", "salu setreg"},
    {"gfx90a/64", "s_setreg_b32 hwreg(HW_REG_TRAPSTS), s0", "s_setreg_b32", "", "s0", "", "salu setreg"},
    {"gfx90a/64", "s_getreg_b32 s0, hwreg(HW_REG_MODE)", "s_getreg_b32", "s0", "mode", "", "salu"},
    {"gfx1030/32", "s_setreg_b32 hwreg(HW_REG_FLAT_SCR_LO), s0", "s_setreg_b32", "flat_scratch_lo", "s0", "*", "salu setreg"},
    {"gfx1030/32", "s_round_mode 0x0", "s_round_mode", "mode", "", "*", "salu"},

    {"gfx90a/64", "s_set_gpr_idx_on s0, gpr_idx(SRC0)", "s_set_gpr_idx_on", "m0 mode", "s0 m0", "*", "salu"},
    {"gfx90a/64", "s_set_gpr_idx_idx s0", "s_set_gpr_idx_idx", "m0 mode", "s0 m0", "*", "salu"},
    {"gfx90a/64", "s_bitset0_b64 s[0:1], s2", "s_bitset0_b64", "s0-s1", "s0-s2", "", "salu"},
    {"gfx1150/32", "s_fmac_f32 s0, s1, s2", "s_fmac_f32", "s0", "s0-s2", "", "salu"},
    {"gfx90a/64", "s_andn1_wrexec_b64 s[0:1], s[2:3]", "s_andn1_wrexec_b64", "s0-s1 exec scc", "s2-s3 exec", "", "salu"},
    {"gfx90a/64", "s_mulk_i32 s0, 0x2", "s_mulk_i32", "s0", "s0", "", "salu"},
    {"gfx1200/32", "s_sendmsg_rtn_b64 s[0:1], sendmsg(MSG_RTN_GET_REALTIME)", "s_sendmsg_rtn_b64", "s0-s1", "", "", "salu sendmsg"},

    // Control flow.
    {"gfx90a/64", "s_branch 1", "s_branch", "", "", "", "salu branch"},
    {"gfx90a/64", "s_cbranch_vccz 1", "s_cbranch_vccz", "", "vcc", "", "salu branch conditional"},
    {"gfx1030/32", "s_cbranch_vccz 1", "s_cbranch_vccz", "", "vcc_lo", "", "salu branch conditional"},
    {"gfx1030/32", "s_cbranch_execz 1", "s_cbranch_execz", "", "exec_lo", "", "salu branch conditional"},
    {"gfx90a/64", "s_cbranch_scc0 1", "s_cbranch_scc0", "", "scc", "", "salu branch conditional"},
    {"gfx90a/64", "s_setpc_b64 s[0:1]", "s_setpc_b64", "", "s0-s1", "", "salu branch indirect"},
    {"gfx90a/64", "s_swappc_b64 s[0:1], s[2:3]", "s_swappc_b64", "s0-s1", "s2-s3", "", "salu branch indirect call pc"},
    {"gfx90a/64", "s_call_b64 s[0:1], 4", "s_call_b64", "s0-s1", "", "", "salu branch call pc"},
    {"gfx90a/64", "s_getpc_b64 s[0:1]", "s_getpc_b64", "s0-s1", "", "", "salu pc"},
    {"gfx90a/64", "s_endpgm", "s_endpgm", "", "", "", "salu end"},
    {"gfx90a/64", "s_barrier", "s_barrier", "", "", "", "salu barrier"},
    {"gfx1200/32", "s_barrier_signal -1", "s_barrier_signal", "", "", "", "salu barrier"},
    {"gfx1030/32", "s_clause 0x3", "s_clause", "", "", "", "salu clause"},
    {"gfx90a/64", "s_waitcnt vmcnt(0)", "s_waitcnt", "", "", "", "salu wait"},
    {"gfx1030/32", "s_waitcnt_vscnt null, 0x0", "s_waitcnt_vscnt", "", "", "", "salu wait"},
    {"gfx1200/32", "s_wait_loadcnt 0x0", "s_wait_loadcnt", "", "", "", "salu wait"},
    {"gfx90a/64", "s_trap 2", "s_trap", "", "", "", "salu trap"},

    // Vector ALU: EXEC is read, results are partial, VCC by wave size.
    {"gfx90a/64", "v_add_f32 v0, v1, v2", "v_add_f32", "v0", "exec v1-v2", "*", "valu"},
    {"gfx90a/64", "v_add_co_u32 v0, vcc, v1, v2", "v_add_co_u32", "vcc v0", "exec v1-v2", "v0", "valu"},
    {"gfx90a/64", "v_addc_co_u32 v0, vcc, v1, v2, vcc", "v_addc_co_u32", "vcc v0", "vcc exec v1-v2", "v0", "valu"},
    {"gfx1030/32", "v_add_co_ci_u32 v0, vcc_lo, v1, v2, vcc_lo", "v_add_co_ci_u32", "vcc_lo v0", "vcc_lo exec_lo v1-v2", "v0", "valu"},
    {"gfx1030/64", "v_add_co_ci_u32 v0, vcc, v1, v2, vcc", "v_add_co_ci_u32", "vcc v0", "vcc exec v1-v2", "v0", "valu"},
    {"gfx1030/32", "v_cndmask_b32 v0, v1, v2, s3", "v_cndmask_b32", "v0", "s3 exec_lo v1-v2", "*", "valu"},
    {"gfx1030/64", "v_cndmask_b32 v0, v1, v2, s[4:5]", "v_cndmask_b32", "v0", "s4-s5 exec v1-v2", "*", "valu"},
    {"gfx90a/64", "v_cmp_eq_u32 vcc, v0, v1", "v_cmp_eq_u32", "vcc", "exec v0-v1", "", "valu"},
    {"gfx90a/64", "v_cmp_eq_u32 s[2:3], v0, v1", "v_cmp_eq_u32", "s2-s3", "exec v0-v1", "", "valu"},
    {"gfx90a/64", "v_cmpx_eq_u32 vcc, v0, v1", "v_cmpx_eq_u32", "vcc exec", "exec v0-v1", "", "valu"},
    {"gfx1030/32", "v_cmpx_eq_u32 v0, v1", "v_cmpx_eq_u32", "exec_lo", "exec_lo v0-v1", "", "valu"},
    {"gfx1030/64", "v_cmpx_eq_u32 v0, v1", "v_cmpx_eq_u32", "exec", "exec v0-v1", "", "valu"},
    {"gfx90a/64", "v_readlane_b32 s0, v1, s3", "v_readlane_b32", "s0", "s3 v1", "", "valu"},
    {"gfx1030/32", "v_readlane_b32 s0, v1, m0", "v_readlane_b32", "s0", "m0 v1", "", "valu"},
    {"gfx90a/64", "v_writelane_b32 v0, s1, 3", "v_writelane_b32", "v0", "s1 v0", "*", "valu"},
    {"gfx90a/64", "v_readfirstlane_b32 s0, v1", "v_readfirstlane_b32", "s0", "exec v1", "", "valu"},
    {"gfx90a/64", "v_fmac_f32 v0, v1, v2", "v_fmac_f32", "v0", "exec v0-v2", "*", "valu"},
    {"gfx90a/64", "v_rcp_f32 v0, v1", "v_rcp_f32", "v0", "exec v1", "*", "valu trans"},
    {"gfx90a/64", "v_div_scale_f32 v0, vcc, v1, v2, v3", "v_div_scale_f32", "vcc v0", "exec v1-v3", "v0", "valu"},
    {"gfx90a/64", "v_div_fmas_f32 v0, v1, v2, v3", "v_div_fmas_f32", "v0", "vcc exec v1-v3", "*", "valu"},
    {"gfx90a/64", "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", "v_pk_fma_f32", "v0-v1", "exec v2-v7", "*", "valu"},
    {"gfx90a/64", "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]", "v_mfma_f32_4x4x1f32", "a0-a3", "exec v0-v1 a0-a3", "*", "valu mfma"},
    {"gfx90a/64", "v_accvgpr_read_b32 v0, a1", "v_accvgpr_read_b32", "v0", "exec a1", "*", "valu"},
    {"gfx90a/64", "v_mov_b32_sdwa v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", "v_mov_b32", "v0", "exec v1", "*", "valu"},
    {"gfx90a/64", "v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf", "v_mov_b32", "v0", "exec v0-v1", "*", "valu"},
    {"gfx1030/32", "v_movrels_b32 v0, v1", "v_movrels_b32", "v0-v255", "exec_lo m0 v0-v255", "*", "valu"},
    {"gfx1030/32", "v_swap_b32 v0, v1", "v_swap_b32", "v0-v1", "exec_lo v0-v1", "*", "valu"},
    {"gfx1100/32", "v_dual_mov_b32 v0, v1 :: v_dual_add_f32 v3, v2, v5", "v_dual_mov_b32", "v0 v3", "exec_lo v1-v2 v5", "*", "valu"},
    {"gfx1100/32", "v_permlane16_b32 v0, v1, s0, s1", "v_permlane16_b32", "v0", "s0-s1 exec_lo v0-v1", "*", "valu"},

    // Scalar memory.
    {"gfx90a/64", "s_load_dwordx2 s[0:1], s[2:3], 0x10", "s_load_dwordx2", "s0-s1", "s2-s3", "", "scalar load"},
    {"gfx1100/32", "s_load_b64 s[0:1], s[2:3], s4 offset:0x10", "s_load_b64", "s0-s1", "s2-s4", "", "scalar load"},
    {"gfx90a/64", "s_store_dword s0, s[2:3], 0x0", "s_store_dword", "", "s0 s2-s3", "", "scalar store"},
    {"gfx90a/64", "s_atomic_add s0, s[2:3], 0x0", "s_atomic_add", "", "s0 s2-s3", "", "scalar atomic"},
    {"gfx90a/64", "s_atomic_add s0, s[2:3], 0x0 glc", "s_atomic_add", "s0", "s0 s2-s3", "", "scalar atomic returns"},
    {"gfx90a/64", "s_memtime s[0:1]", "s_memtime", "s0-s1", "", "", ""},
    {"gfx90a/64", "s_dcache_wb", "s_dcache_wb", "", "", "", ""},

    // Vector memory.
    {"gfx90a/64", "global_load_dword v0, v[2:3], off", "global_load_dword", "v0", "exec v2-v3", "*", "global load"},
    {"gfx90a/64", "global_load_dword v0, v2, s[4:5]", "global_load_dword", "v0", "s4-s5 exec v2", "*", "global load"},
    {"gfx90a/64", "global_load_short_d16_hi v0, v2, s[4:5]", "global_load_short_d16_hi", "v0", "s4-s5 exec v0 v2", "*", "global load"},
    {"gfx90a/64", "global_store_dwordx2 v0, v[2:3], s[4:5]", "global_store_dwordx2", "", "s4-s5 exec v0 v2-v3", "", "global store"},
    {"gfx90a/64", "global_store_dwordx2 v0, a[2:3], s[4:5]", "global_store_dwordx2", "", "s4-s5 exec v0 a2-a3", "", "global store"},
    {"gfx90a/64", "global_atomic_add_x2 v2, v[4:5], s[0:1]", "global_atomic_add_x2", "", "s0-s1 exec v2 v4-v5", "", "global atomic"},
    {"gfx90a/64", "global_atomic_add_x2 v[0:1], v2, v[4:5], s[0:1] glc", "global_atomic_add_x2", "v0-v1", "s0-s1 exec v2 v4-v5", "*", "global atomic returns"},
    {"gfx1200/32", "global_atomic_add_u64 v[0:1], v2, v[4:5], s[0:1] th:TH_ATOMIC_RETURN", "global_atomic_add_u64", "v0-v1", "s0-s1 exec_lo v2 v4-v5", "*", "global atomic returns"},
    {"gfx90a/64", "flat_load_dword v0, v[2:3]", "flat_load_dword", "v0", "exec flat_scratch v2-v3", "*", "flat load"},
    {"gfx90a/64", "scratch_store_dword off, v0, s1", "scratch_store_dword", "", "s1 exec flat_scratch v0", "", "scratch store"},
    {"gfx90a/64", "buffer_load_dword v0, v1, s[0:3], s4 offen", "buffer_load_dword", "v0", "s0-s4 exec v1", "*", "buffer load"},
    {"gfx90a/64", "buffer_store_dword v0, off, s[0:3], 0", "buffer_store_dword", "", "s0-s3 exec v0", "", "buffer store"},
    {"gfx90a/64", "buffer_atomic_add v0, off, s[0:3], 0 glc", "buffer_atomic_add", "v0", "s0-s3 exec v0", "*", "buffer atomic returns"},
    {"gfx90a/64", "buffer_load_dword off, s[0:3], 0 lds", "buffer_load_dword", "", "s0-s3 exec m0", "", "buffer load"},
    {"gfx1030/32", "image_load v0, v1, s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_1D", "image_load", "v0", "s0-s7 exec_lo v1", "*", "image load"},

    // LDS: M0 only where it is really read.
    {"gfx90a/64", "ds_add_u32 v0, v1", "ds_add_u32", "", "exec v0-v1", "", "lds atomic"},
    {"gfx1100/32", "ds_add_rtn_u32 v2, v0, v1", "ds_add_rtn_u32", "v2", "exec_lo v0-v1", "*", "lds atomic returns"},
    {"gfx900/64", "ds_read_b64 v[0:1], v2", "ds_read_b64", "v0-v1", "exec v2", "*", "lds load"},
    {"gfx900/64", "ds_read2_b32 v[0:1], v2 offset0:1 offset1:3", "ds_read2_b32", "v0-v1", "exec v2", "*", "lds load"},
    {"gfx1200/32", "ds_store_b32 v0, v1", "ds_store_b32", "", "exec_lo v0-v1", "", "lds store"},
    {"gfx900/64", "ds_bpermute_b32 v0, v1, v2", "ds_bpermute_b32", "v0", "exec v1-v2", "*", ""},
    {"gfx900/64", "ds_swizzle_b32 v0, v1", "ds_swizzle_b32", "v0", "exec v1", "*", ""},
    {"gfx900/64", "ds_append v0", "ds_append", "v0", "exec m0", "*", "lds atomic returns"},
    {"gfx900/64", "ds_add_u32 v0, v1 gds", "ds_add_u32", "", "exec m0 v0-v1", "", "gds atomic"},
    {"gfx1030/32", "ds_add_u32 v0, v1 gds", "ds_add_u32", "", "exec_lo m0 v0-v1", "", "gds atomic"},
    {"gfx900/64", "ds_gws_barrier v0 gds", "ds_gws_barrier", "", "exec m0 v0", "", "barrier gds"},
};

// LLVM 22: gfx950 and gfx1250.
const Case kNewerCases[] = {
    {"gfx950/64", "v_prng_b32 v0, v1", "v_prng_b32", "v0", "exec v1", "*", "valu"},
    {"gfx950/64", "v_permlane32_swap_b32 v0, v1", "v_permlane32_swap_b32", "v0-v1", "exec v0-v1", "*", "valu"},
    {"gfx950/64", "v_mfma_f32_32x32x16_f16 a[0:15], v[0:3], v[4:7], a[0:15]", "v_mfma_f32_32x32x16_f16", "a0-a15", "exec v0-v7 a0-a15", "*", "valu mfma"},
    {"gfx950/64", "global_load_lds_dwordx4 v[0:1], off", "global_load_lds_dwordx4", "", "exec m0 v0-v1", "", "global load"},
    {"gfx950/64", "ds_read_b64_tr_b16 v[0:1], v2", "ds_read_b64_tr_b16", "v0-v1", "exec v2", "*", "lds load"},
    {"gfx1250/32", "s_get_pc_i64 s[0:1]", "s_get_pc_i64", "s0-s1", "", "", "salu pc"},
    {"gfx1250/32", "s_set_pc_i64 s[0:1]", "s_set_pc_i64", "", "s0-s1", "", "salu branch indirect"},
    {"gfx1250/32", "s_swap_pc_i64 s[0:1], s[2:3]", "s_swap_pc_i64", "s0-s1", "s2-s3", "", "salu branch indirect call pc"},
    {"gfx1250/32", "s_add_pc_i64 s[0:1]", "s_add_pc_i64", "", "s0-s1", "", "salu branch indirect pc"},
    {"gfx1250/32", "s_wait_xcnt 0x0", "s_wait_xcnt", "", "", "", "salu wait"},
    {"gfx1250/32", "s_wait_tensorcnt 0x0", "s_wait_tensorcnt", "", "", "", "salu wait"},
    {"gfx1250/32", "s_mov_b64 s[0:1], 0x123456789abcdef0", "s_mov_b64", "s0-s1", "", "", "salu"},
    {"gfx1250/32", "s_barrier_signal -3", "s_barrier_signal", "", "", "", "salu barrier"},
    {"gfx1250/32", "v_dual_add_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v4", "v_dual_add_f32", "v0 v3", "exec_lo v1-v2 v4", "*", "valu"},
    {"gfx1250/32", "v_wmma_f32_16x16x4_f32 v[0:7], v[8:9], v[10:11], v[0:7]", "v_wmma_f32_16x16x4_f32", "v0-v7", "exec_lo v0-v11", "*", "valu"},
    {"gfx1250/32", "global_load_b32 v0, v1, s[2:3] scale_offset", "global_load_b32", "v0", "s2-s3 exec_lo v1", "*", "global load"},
    {"gfx1250/32", "cluster_load_b32 v0, v1, s[2:3]", "cluster_load_b32", "v0", "s2-s3 exec_lo m0 v1", "*", "global load"},
    {"gfx1250/32", "tensor_load_to_lds s[0:3], s[4:11]", "tensor_load_to_lds", "", "s0-s11", "", "global load"},
    {"gfx1250/32", "s_mov_b32 s0, src_flat_scratch_base_lo", "s_mov_b32", "s0", "flat_scratch_lo", "", "salu"},
};
// clang-format on

class DecodeTest : public testing::Test {
 protected:
  Isa& IsaFor(const std::string& target) {
    std::unique_ptr<Isa>& slot = isas_[target];
    if (!slot) {
      TargetId id;
      id.processor = target.substr(0, target.find('/'));
      auto isa = Isa::Create(
          id, static_cast<uint32_t>(std::stoul(target.substr(id.processor.size() + 1))));
      EXPECT_TRUE(isa.ok()) << isa.status();
      slot = *std::move(isa);
    }
    return *slot;
  }
  Instruction DecodeText(const std::string& target, const std::string& text) {
    Isa& isa = IsaFor(target);
    const auto code = isa.Assemble(text);
    EXPECT_TRUE(code.ok()) << text << ": " << code.status();
    if (!code.ok()) return {};
    const auto inst = isa.Decode(*code, 0);
    EXPECT_TRUE(inst.has_value()) << text;
    if (!inst) return {};
    EXPECT_EQ(inst->size, code->size()) << text;
    return *inst;
  }
  std::map<std::string, std::unique_ptr<Isa>> isas_;
};

TEST_F(DecodeTest, RegistersAndKinds) {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  if (LlvmVersion() >= 22) {
    cases.insert(cases.end(), std::begin(kNewerCases), std::end(kNewerCases));
  }
  for (const Case& test : cases) {
    SCOPED_TRACE(std::string(test.target) + " " + test.text);
    const Instruction inst = DecodeText(test.target, test.text);
    EXPECT_EQ(inst.opcode, test.opcode);
    EXPECT_EQ(inst.defs.ToString(), test.defs);
    EXPECT_EQ(inst.uses.ToString(), test.uses);
    const std::string partial = test.partial == std::string("*") ? test.defs : test.partial;
    EXPECT_EQ(inst.partial_defs.ToString(), partial);
    EXPECT_EQ(Describe(inst), test.kind);
  }
}

TEST_F(DecodeTest, BranchTargets) {
  Isa& isa = IsaFor("gfx90a/64");
  const auto code =
      isa.Assemble("s_nop 0\ns_branch 65534\ns_cbranch_scc0 32767\ns_call_b64 s[0:1], 2");
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(isa.Decode(*code, 0)->target_offset, std::nullopt);
  EXPECT_EQ(isa.Decode(*code, 4)->target_offset, 0);
  EXPECT_EQ(isa.Decode(*code, 8)->target_offset, 12 + 4 * 32767);
  EXPECT_EQ(isa.Decode(*code, 12)->target_offset, 24);
  const auto back = isa.Assemble("s_branch 32768");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(isa.Decode(*back, 0)->target_offset, 4 - 4 * 32768);
}

TEST_F(DecodeTest, ClauseLength) {
  EXPECT_EQ(DecodeText("gfx1030/32", "s_clause 0x3").clause_length, 4);
  EXPECT_EQ(DecodeText("gfx1030/32", "s_clause 0x3e").clause_length, 63);
}

TEST_F(DecodeTest, MemoryOffsets) {
  const std::tuple<const char*, const char*, int64_t> cases[] = {
      {"gfx90a/64", "global_load_dword v0, v[2:3], off offset:-4096", -4096},
      {"gfx90a/64", "global_load_dword v0, v[2:3], off offset:4095", 4095},
      {"gfx90a/64", "flat_load_dword v0, v[2:3] offset:4095", 4095},
      {"gfx90a/64", "scratch_load_dword v0, off, s0 offset:-4", -4},
      {"gfx1030/32", "global_load_dword v0, v[2:3], off offset:-2048", -2048},
      {"gfx1100/32", "global_load_b32 v0, v[2:3], off offset:-4096", -4096},
      {"gfx1200/32", "global_load_b32 v0, v[2:3], off offset:-8388608", -8388608},
      {"gfx1200/32", "flat_load_b32 v0, v[2:3] offset:-8", -8},
      {"gfx90a/64", "ds_read_b32 v0, v1 offset:65535", 65535},
      {"gfx90a/64", "ds_read2_b32 v[0:1], v2 offset0:7 offset1:9", 7},
      {"gfx90a/64", "buffer_load_dword v0, off, s[0:3], 5 offset:12", 12},
      {"gfx1200/32", "buffer_load_b32 v0, off, s[0:3], null offset:4095", 4095},
      {"gfx90a/64", "s_load_dword s0, s[2:3], -0x4", -4},
      {"gfx1030/32", "s_load_dword s0, s[2:3], 0x10", 16},
  };
  for (const auto& [target, text, offset] : cases) {
    EXPECT_EQ(DecodeText(target, text).memory_offset, offset) << target << " " << text;
  }
}

TEST_F(DecodeTest, Operands) {
  const Instruction inst =
      DecodeText("gfx90a/64", "global_load_dwordx2 v[4:5], v2, s[6:7] offset:8");
  ASSERT_GE(inst.operands.size(), 4u);
  EXPECT_TRUE(inst.operands[0].is_def);
  EXPECT_EQ(inst.operands[0].reg, kVgpr0 + 4);
  EXPECT_EQ(inst.operands[0].count, 2);
  EXPECT_FALSE(inst.operands[1].is_def);
  EXPECT_EQ(inst.operands[1].kind, InstructionOperand::Kind::kRegister);
  const Instruction literal = DecodeText("gfx90a/64", "s_mov_b32 s0, 0x12345678");
  ASSERT_EQ(literal.operands.size(), 2u);
  EXPECT_EQ(literal.operands[1].kind, InstructionOperand::Kind::kImmediate);
  EXPECT_EQ(literal.operands[1].imm, 0x12345678);
  // An inline constant would give the same: LLVM 22 marks such a literal.
  Isa& isa = IsaFor("gfx90a/64");
  const std::vector<uint8_t> code = {0x07, 0xff, 0x07, 0x82, 0xff, 0xff, 0xff, 0xff};
  const auto added = isa.Decode(code, 0);
  ASSERT_TRUE(added.has_value());
  ASSERT_EQ(added->operands.size(), 3u);
  EXPECT_EQ(static_cast<uint32_t>(added->operands[2].imm), 0xffffffff);
}

}  // namespace
}  // namespace rjdbi::patch
