// The GPUs that the soft GPU can pose as under ROCR: what the topology reports.
//
// Engine versions, wavefront sizes and slot counts are those of the real parts;
// the number of compute units is small on purpose, so that programs that size
// their grids by it stay quick.
#ifndef TESTS_SOFTGPU_THUNK_GPU_MODEL_H_
#define TESTS_SOFTGPU_THUNK_GPU_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace softgpu {

struct GpuModel {
  const char* name;  // "gfx90a", as Machine::Create takes it
  uint32_t major, minor, stepping;
  uint16_t device_id;       // PCI
  uint32_t wavefront_size;  // lanes, the default of compute kernels
  uint32_t simd_per_cu;
  uint32_t waves_per_simd;
  uint32_t scratch_slots_per_cu;
  uint32_t shader_engines;
  uint32_t arrays_per_engine;
  uint32_t cu_per_array;
  uint32_t gb_addr_config;  // tile configuration, for the image library's start-up
  bool sramecc;
  uint32_t ComputeUnits() const { return shader_engines * arrays_per_engine * cu_per_array; }
};

// nullptr if there is no such model.
const GpuModel* FindGpuModel(std::string_view name);
// "gfx906, gfx908, ...", for messages.
std::string GpuModelNames();

inline constexpr uint32_t kLdsBytes = 64 * 1024;
inline constexpr uint32_t kMaxWorkgroup = 1024;
inline constexpr uint64_t kLdsAperture = uint64_t{1} << 48;
inline constexpr uint64_t kScratchAperture = uint64_t{2} << 48;

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_GPU_MODEL_H_
