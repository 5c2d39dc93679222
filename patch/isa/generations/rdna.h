// What gfx10 and later families have in common.
#ifndef PATCH_ISA_GENERATIONS_RDNA_H_
#define PATCH_ISA_GENERATIONS_RDNA_H_

#include <cstdint>
#include <string_view>

#include "patch/isa/generation.h"

namespace rjdbi::patch {

// The SGPR file is fixed, the VGPR field counts 4 (wave64) or 8 (wave32)
// registers, four SIMDs of a workgroup processor share 128 KiB.
constexpr Generation Rdna(std::string_view family, int major) {
  Generation g;
  g.family = family;
  g.major = major;
  g.wave32 = true;
  g.vgpr_encoding_granule_w64 = 4;
  g.vgpr_encoding_granule_w32 = 8;
  g.sgprs_allocated = false;
  g.sgpr_granule = 0;
  g.addressable_sgprs = 106;
  g.sgpr_tail = 0;
  g.lds_bytes = 131072;
  g.wave_register = "hwreg(HW_REG_HW_ID1)";
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

// Hardware registers that alias one of ours; gfx10 and gfx11.
inline constexpr HardwareRegister kFlatScratchHwregs[] = {{20, kFlatScratchLo, 1},
                                                          {21, kFlatScratchHi, 1}};

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_GENERATIONS_RDNA_H_
