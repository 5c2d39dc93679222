// The hardware tables. Sources, by column:
//  - VGPR/SGPR files, granules, waves: LLVM AMDGPUUsage "compute_pgm_rsrc1" and
//    LLVM's AMDGPUBaseInfo/GCNSubtarget occupancy model. tests/patch/isa_* hold
//    every row against the installed LLVM.
//  - guards: the two-instruction experiments with LLVM's hazard recogniser,
//    gathered as the always-safe envelope: only a trampoline's two seams can
//    create a hazard that the compiler has not already resolved.
//  - end padding: what LLVM emits after the last function
//    (AMDGPUTargetStreamer::EmitCodeEnd), measured on compiled objects.
#include "patch/isa/generation.h"

#include <string>

#include "absl/status/status.h"

namespace rjdbi::patch {
namespace {

// 5 wait states: VALU writes SGPR -> VMEM reads it, and VALU writes EXEC -> DPP.
constexpr std::string_view kGfx9Guard = "s_nop 4";
// 19 wait states: a 16-pass MFMA result -> any VALU or memory access.
constexpr std::string_view kMfmaGuard = "s_nop 7\ns_nop 7\ns_nop 2";
// gfx10.1: VMEM reads SGPR/EXEC -> SALU overwrites it (vm_vsrc), non-VALU reads
// EXEC -> v_cmpx (sa_sdst); SMEM reads SGPR -> VALU overwrites it (any SALU
// write between); LDS and VMEM on two sides of a branch (vscnt).
constexpr std::string_view kGfx101Guard =
    "s_waitcnt_depctr 0xffe2\ns_mov_b32 null, 0\ns_waitcnt_vscnt null, 0x0";
// gfx11: transcendental results, VALU SGPR masks, partial EXEC forwarding.
constexpr std::string_view kGfx11Guard = "s_waitcnt_depctr 0x80";
// gfx12: SGPR read/write hazard: sa_sdst, va_sdst and va_vcc at zero.
constexpr std::string_view kGfx12Guard = "s_waitcnt_depctr 0xf19c";

constexpr Generation Gfx9(std::string_view family) {
  Generation g;
  g.family = family;
  g.major = 9;
  g.head_guard = g.tail_guard = kGfx9Guard;
  g.scalar_atomics = true;
  g.global_atomic_add_u64 = "global_atomic_add_x2";
  g.end_padding_opcode = "s_nop 0";
  return g;
}

constexpr Generation Gfx908() {
  Generation g = Gfx9("gfx908");
  g.mfma_head_guard = kMfmaGuard;
  return g;
}

constexpr Generation UnifiedGfx9(std::string_view family) {
  Generation g = Gfx9(family);
  g.mfma_head_guard = kMfmaGuard;
  g.vgpr_granule_w64 = g.vgpr_encoding_granule_w64 = 8;
  g.vgprs_per_simd_w64 = 512;
  g.unified_vgpr_file = true;
  g.vgpr64_alignment = true;
  g.max_waves_per_simd = 8;
  g.end_padding_bytes = 1024;
  return g;
}

// gfx10 and later: the SGPR file is fixed, the VGPR field counts 4 (wave64) or
// 8 (wave32) registers, four SIMDs of a workgroup processor share 128 KiB.
constexpr Generation Rdna(std::string_view family, int major) {
  Generation g;
  g.family = family;
  g.major = major;
  g.vgpr_encoding_granule_w64 = 4;
  g.vgpr_encoding_granule_w32 = 8;
  g.sgprs_allocated = false;
  g.sgpr_granule = 0;
  g.addressable_sgprs = 106;
  g.sgpr_tail = 0;
  g.lds_bytes = 131072;
  g.end_padding_opcode = "s_code_end";
  return g;
}

constexpr void SetVgprs(Generation& g, uint16_t per_simd_w64, uint16_t granule_w64,
                        uint16_t waves) {
  g.vgprs_per_simd_w64 = per_simd_w64;
  g.vgprs_per_simd_w32 = static_cast<uint16_t>(2 * per_simd_w64);
  g.vgpr_granule_w64 = granule_w64;
  g.vgpr_granule_w32 = static_cast<uint16_t>(2 * granule_w64);
  g.max_waves_per_simd = waves;
}

constexpr Generation Gfx101() {
  Generation g = Rdna("gfx10.1", 10);
  SetVgprs(g, 512, 4, 20);
  g.head_guard = g.tail_guard = kGfx101Guard;
  g.scalar_atomics = true;
  g.global_atomic_add_u64 = "global_atomic_add_x2";
  g.end_padding_bytes = 192;
  return g;
}

constexpr Generation Gfx103() {
  Generation g = Rdna("gfx10.3", 10);
  SetVgprs(g, 512, 8, 16);
  g.global_atomic_add_u64 = "global_atomic_add_x2";
  g.end_padding_bytes = 192;
  return g;
}

constexpr Generation Gfx11(std::string_view family, bool large_file) {
  Generation g = Rdna(family, 11);
  SetVgprs(g, large_file ? 768 : 512, large_file ? 12 : 8, 16);
  g.head_guard = g.tail_guard = kGfx11Guard;
  g.global_atomic_add_u64 = "global_atomic_add_u64";
  g.end_padding_bytes = 384;
  return g;
}

constexpr Generation Gfx12() {
  Generation g = Rdna("gfx12", 12);
  SetVgprs(g, 768, 12, 16);
  g.head_guard = g.tail_guard = g.far_jump_guard = kGfx12Guard;
  g.global_atomic_add_u64 = "global_atomic_add_u64";
  g.getpc_zero_extends = true;
  g.end_padding_bytes = 384;
  return g;
}

constexpr Generation kGfx900 = Gfx9("gfx900"), kGfx906 = Gfx9("gfx906"), kGfx908 = Gfx908();
constexpr Generation kGfx90a = UnifiedGfx9("gfx90a"), kGfx942 = UnifiedGfx9("gfx942");
constexpr Generation kGfx101 = Gfx101(), kGfx103 = Gfx103();
constexpr Generation kGfx11Large = Gfx11("gfx11", true), kGfx11Small = Gfx11("gfx11", false);
constexpr Generation kGfx115Large = Gfx11("gfx11.5", true), kGfx115Small = Gfx11("gfx11.5", false);
constexpr Generation kGfx12 = Gfx12();

struct Row {
  std::string_view processor;
  const Generation* generation;
};
constexpr Row kRows[] = {
    {"gfx900", &kGfx900},      {"gfx906", &kGfx906},       {"gfx908", &kGfx908},
    {"gfx90a", &kGfx90a},      {"gfx942", &kGfx942},       {"gfx1010", &kGfx101},
    {"gfx1011", &kGfx101},     {"gfx1012", &kGfx101},      {"gfx1030", &kGfx103},
    {"gfx1031", &kGfx103},     {"gfx1032", &kGfx103},      {"gfx1033", &kGfx103},
    {"gfx1034", &kGfx103},     {"gfx1035", &kGfx103},      {"gfx1036", &kGfx103},
    {"gfx1100", &kGfx11Large}, {"gfx1101", &kGfx11Large},  {"gfx1102", &kGfx11Small},
    {"gfx1103", &kGfx11Small}, {"gfx1150", &kGfx115Small}, {"gfx1151", &kGfx115Large},
    {"gfx1200", &kGfx12},      {"gfx1201", &kGfx12},
};

}  // namespace

absl::StatusOr<const Generation*> FindGeneration(std::string_view processor) {
  for (const Row& row : kRows) {
    if (row.processor == processor) return row.generation;
  }
  return absl::NotFoundError("no hardware table for processor " + std::string(processor));
}

}  // namespace rjdbi::patch
