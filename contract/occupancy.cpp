// Sources: LLVM AMDGPUUsage "compute_pgm_rsrc1/3 for GFX6-GFX12" for the
// fields, LLVM's occupancy model (GCNSubtarget) for the arithmetic.
#include "contract/occupancy.h"

#include <algorithm>

namespace rjdbi::contract {
namespace {

constexpr uint32_t kSgprPool = 800;   // gfx9, per SIMD
constexpr uint32_t kVgprFile = 1024;  // per lane of a SIMD, at most

uint32_t RoundUp(uint32_t value, uint32_t granule) {
  return granule == 0 ? value : (value + granule - 1) / granule * granule;
}

uint32_t EncodingGranule(const patch::Generation& g, uint32_t wavefront_size) {
  return wavefront_size == 32 ? g.vgpr_encoding_granule_w32 : g.vgpr_encoding_granule_w64;
}

// Workgroups share the LDS of `simds` SIMDs.
int32_t WavesByLds(const patch::Generation& g, const Shape& s, int32_t unlimited) {
  if (s.lds_bytes == 0 || s.workgroup_size == 0 || s.wavefront_size == 0) return unlimited;
  const uint32_t groups = g.lds_bytes / std::max<uint32_t>(1, RoundUp(s.lds_bytes, g.lds_granule));
  const uint32_t waves = (s.workgroup_size + s.wavefront_size - 1) / s.wavefront_size;
  return static_cast<int32_t>((groups * waves + g.simds - 1) / g.simds);
}

}  // namespace

Allocation DescriptorAllocation(const patch::Generation& g, const patch::KernelDescriptor& d,
                                uint32_t wavefront_size) {
  Allocation a;
  a.vgprs = ((d.compute_pgm_rsrc1 & 0x3f) + 1) * EncodingGranule(g, wavefront_size);
  a.arch_vgprs = a.agprs = a.vgprs;
  if (g.unified_vgpr_file) {
    a.arch_vgprs = std::min(a.vgprs, ((d.compute_pgm_rsrc3 & 0x3f) + 1) * 4);
    a.agprs = a.vgprs - a.arch_vgprs;
  }
  a.arch_vgprs = std::min<uint32_t>(a.arch_vgprs, g.max_arch_vgprs);
  a.agprs = std::min<uint32_t>(a.agprs, 256);
  if (!g.sgprs_allocated) {
    a.sgprs = a.usable_sgprs = g.addressable_sgprs;
    return a;
  }
  const uint32_t field = d.compute_pgm_rsrc1 >> 6 & 0xf;
  a.sgprs = ((field >> 1) + 1) * g.sgpr_granule;
  const uint32_t tail = std::min<uint32_t>(a.sgprs, g.sgpr_tail);
  a.usable_sgprs = std::min<uint32_t>(a.sgprs - tail, g.addressable_sgprs);
  return a;
}

int32_t WavesPerSimd(const patch::Generation& g, const Shape& s) {
  const bool wave32 = s.wavefront_size == 32;
  const uint32_t file = wave32 ? g.vgprs_per_simd_w32 : g.vgprs_per_simd_w64;
  const uint32_t granule = wave32 ? g.vgpr_granule_w32 : g.vgpr_granule_w64;
  int32_t waves = g.max_waves_per_simd;
  const uint32_t vgprs = RoundUp(std::max<uint32_t>(s.vgprs, 1), granule);
  if (vgprs != 0) waves = std::min(waves, static_cast<int32_t>(file / vgprs));
  if (g.sgprs_allocated && s.sgprs != 0) {
    const uint32_t sgprs = RoundUp(s.sgprs, g.sgpr_granule);
    waves = std::min(waves, static_cast<int32_t>(kSgprPool / sgprs));
  }
  return std::min(waves, WavesByLds(g, s, waves));
}

Headroom HeadroomAt(const patch::Generation& g, const Shape& shape, int32_t waves) {
  const auto grow = [&](uint32_t Shape::*kind, uint32_t most) {
    uint32_t growth = 0;
    for (Shape next = shape; growth < most; ++growth) {
      ++(next.*kind);
      if (WavesPerSimd(g, next) < waves) break;
    }
    return growth;
  };
  Headroom room;
  room.vgprs = grow(&Shape::vgprs, kVgprFile);
  if (g.sgprs_allocated) room.sgprs = grow(&Shape::sgprs, kSgprPool);
  return room;
}

Shape KernelShape(const patch::Generation& g, const patch::Kernel& kernel) {
  const Allocation a = DescriptorAllocation(g, kernel.descriptor, kernel.wavefront_size);
  Shape s;
  s.wavefront_size = kernel.wavefront_size;
  s.vgprs = a.vgprs;
  s.sgprs = a.sgprs;
  s.lds_bytes = kernel.descriptor.group_segment_fixed_size;
  s.workgroup_size = kernel.metadata.max_flat_workgroup_size.value_or(0);
  return s;
}

}  // namespace rjdbi::contract
