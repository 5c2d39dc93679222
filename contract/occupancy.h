// How many wavefronts of a kernel fit on a SIMD, from its descriptor.
#ifndef CONTRACT_OCCUPANCY_H_
#define CONTRACT_OCCUPANCY_H_

#include <cstdint>

#include "patch/codeobject/code_object.h"
#include "patch/isa/generation.h"

namespace rjdbi::contract {

// What the descriptor makes the hardware allocate, per wavefront.
struct Allocation {
  uint32_t sgprs = 0;       // gfx9: in granules of 16; gfx10+: the whole file
  uint32_t vgprs = 0;       // per lane, AGPRs included where the file is unified
  uint32_t arch_vgprs = 0;  // v registers only
  uint32_t agprs = 0;
  uint32_t usable_sgprs = 0;  // ordinary ones: s0..usable-1
};
Allocation DescriptorAllocation(const patch::Generation& generation,
                                const patch::KernelDescriptor& descriptor, uint32_t wavefront_size);

struct Shape {
  uint32_t wavefront_size = 64;
  uint32_t vgprs = 0, sgprs = 0;  // allocated
  uint32_t lds_bytes = 0;         // per workgroup
  uint32_t workgroup_size = 0;    // work-items; 0: unknown
};
// Wavefronts per SIMD, at least 0. Model: the minimum over wave slots, VGPR
// file, SGPR pool (gfx9: 800 in granules of 16) and, when LDS is used, workgroups
// per compute unit (or workgroup processor).
int32_t WavesPerSimd(const patch::Generation& generation, const Shape& shape);

// By how many registers an allocation may grow so that at least `waves` wavefronts
// still fit, each kind alone. (SGPRs where they are not allocated: no limit.)
struct Headroom {
  uint32_t sgprs = ~0u, vgprs = ~0u;
};
Headroom HeadroomAt(const patch::Generation& generation, const Shape& shape, int32_t waves);

Shape KernelShape(const patch::Generation& generation, const patch::Kernel& kernel);

}  // namespace rjdbi::contract

#endif  // CONTRACT_OCCUPANCY_H_
