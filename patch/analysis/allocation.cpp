// Descriptor fields to register counts.
#include "patch/analysis/allocation.h"

#include <algorithm>

namespace rjdbi::patch {

uint32_t AccumOffset(const KernelDescriptor& descriptor) {
  return ((descriptor.compute_pgm_rsrc3 & 0x3f) + 1) * 4;
}

Allocation AllocationOf(const Kernel& kernel, const Generation& generation) {
  Allocation a;
  const uint32_t rsrc1 = kernel.descriptor.compute_pgm_rsrc1;
  if (generation.sgprs_allocated) {
    // The field counts 8 registers minus one, but hardware honours pairs of 8.
    a.sgprs = (((rsrc1 >> 6) & 0xf) / 2 + 1) * generation.sgpr_granule;
    a.ordinary_sgprs =
        std::min<uint32_t>(generation.addressable_sgprs, a.sgprs - generation.sgpr_tail);
  } else {
    a.sgprs = a.ordinary_sgprs = generation.addressable_sgprs;
  }
  a.vgpr_granule = kernel.wavefront_size == 32 ? generation.vgpr_encoding_granule_w32
                                               : generation.vgpr_encoding_granule_w64;
  a.vgprs = ((rsrc1 & 0x3f) + 1) * a.vgpr_granule;
  a.arch_vgprs = std::min<uint32_t>(a.vgprs, generation.max_arch_vgprs);
  if (generation.unified_vgpr_file) {
    a.arch_vgprs = std::min(a.arch_vgprs, AccumOffset(kernel.descriptor));
  }
  return a;
}

}  // namespace rjdbi::patch
