// Table of GPU models; see gpu_model.h.
#include "tests/softgpu/thunk/gpu_model.h"

namespace softgpu {
namespace {

constexpr GpuModel kModels[] = {
    // name, version, device, wave, SIMDs, waves, slots, engines, arrays, CUs, tiles, sramecc
    {"gfx906", 9, 0, 6, 0x66a1, 64, 4, 10, 32, 2, 1, 4, 0x26110002, false},
    {"gfx908", 9, 0, 8, 0x738c, 64, 4, 10, 32, 2, 1, 4, 0x2a114042, true},
    {"gfx90a", 9, 0, 10, 0x740f, 64, 4, 8, 32, 2, 1, 4, 0x2a114042, true},
    {"gfx1030", 10, 3, 0, 0x73bf, 32, 2, 16, 32, 2, 2, 2, 0x00000444, false},
};

}  // namespace

const GpuModel* FindGpuModel(std::string_view name) {
  for (const GpuModel& model : kModels) {
    if (name == model.name) return &model;
  }
  return nullptr;
}

std::string GpuModelNames() {
  std::string names;
  for (const GpuModel& model : kModels) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

}  // namespace softgpu
