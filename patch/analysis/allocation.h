// What a kernel descriptor allocates, in registers: the limits below which a
// register exists without growing anything.
//
// Sources: LLVM AMDGPUUsage, compute_pgm_rsrc1/rsrc3.
#ifndef PATCH_ANALYSIS_ALLOCATION_H_
#define PATCH_ANALYSIS_ALLOCATION_H_

#include <cstdint>

#include "patch/codeobject/code_object.h"
#include "patch/isa/generation.h"

namespace rjdbi::patch {

struct Allocation {
  uint32_t sgprs = 0;           // allocated, special ones at the top included
  uint32_t ordinary_sgprs = 0;  // s0..ordinary_sgprs-1 are ordinary registers
  uint32_t vgprs = 0;           // allocated per lane; architectural plus accumulation
  uint32_t arch_vgprs = 0;      // v0..arch_vgprs-1 exist
  uint32_t vgpr_granule = 0;    // of the descriptor's field
};

Allocation AllocationOf(const Kernel& kernel, const Generation& generation);

// ACCUM_OFFSET of compute_pgm_rsrc3 as a register count (unified files only).
uint32_t AccumOffset(const KernelDescriptor& descriptor);

constexpr uint32_t RoundUp(uint32_t value, uint32_t granule) {
  return granule == 0 ? value : (value + granule - 1) / granule * granule;
}

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_ALLOCATION_H_
