// Per-generation hardware facts as tables: register files, occupancy, wait
// counters, hazards at a trampoline's seams. One row per processor family; the
// row's comment names the source. tests/ cross-check rows against LLVM.
#ifndef PATCH_ISA_GENERATION_H_
#define PATCH_ISA_GENERATION_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace rjdbi::patch {

struct Generation {
  std::string_view family;  // "gfx90a", "gfx10.3", ...
  int major = 0;            // 9, 10, 11, 12

  // VGPR allocation.
  uint16_t vgpr_granule_w64 = 4, vgpr_granule_w32 = 0;                    // occupancy granule
  uint16_t vgpr_encoding_granule_w64 = 4, vgpr_encoding_granule_w32 = 0;  // rsrc1 field unit
  uint16_t vgprs_per_simd_w64 = 256, vgprs_per_simd_w32 = 0;
  uint16_t max_arch_vgprs = 256;
  bool unified_vgpr_file = false;  // arch + AGPR in one file (ACCUM_OFFSET)
  bool vgpr64_alignment = false;   // 64-bit operands start at even registers

  // SGPR allocation (gfx9 only; gfx10+ waves always have the whole file).
  bool sgprs_allocated = true;
  uint16_t sgpr_granule = 16;
  uint16_t addressable_sgprs = 102;  // ordinary ones: s0..addressable-1
  uint16_t sgpr_tail = 6;            // VCC, FLAT_SCRATCH, XNACK_MASK at the top

  uint16_t max_waves_per_simd = 10;
  uint32_t lds_bytes = 65536;  // per CU, or per WGP
  uint8_t simds = 4;

  // Assembled once at a trampoline's head and tail ("" when none is needed).
  std::string_view head_guard, tail_guard;
  // Instead of head_guard in kernels that contain MFMA, when the probe touches
  // a vector register that is not proven fresh ("" where there is no MFMA).
  std::string_view mfma_head_guard;

  bool scalar_atomics = false;
  std::string_view global_atomic_add_u64;  // "global_atomic_add_x2" / "global_atomic_add_u64"
  bool getpc_zero_extends = false;         // gfx12: sign-extend the high half
  std::string_view far_jump_guard;         // before s_setpc (gfx12 SGPR hazard)
  uint32_t end_padding_bytes = 0;          // instruction prefetch past the end
  std::string_view end_padding_opcode;     // "s_nop 0" / "s_code_end"
};

// NOT_FOUND: no table for the processor ("gfx90a").
absl::StatusOr<const Generation*> FindGeneration(std::string_view processor);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_GENERATION_H_
