// Runs kernels of AMDGPU code objects on the soft GPU without a runtime: copies
// a code object's load segments into host memory, finds kernel descriptors, and
// dispatches with kernel arguments given as bytes. Of relocations the 64-bit ones are
// applied: addresses in data, and of what is found through the global offset table.
//
// Every byte a kernel may touch is registered with a RangeMemory; anything else
// is a memory fault.
#ifndef TESTS_SOFTGPU_INTERP_TEST_LOADER_H_
#define TESTS_SOFTGPU_INTERP_TEST_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/softgpu/interp/machine.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu {

// Memory as a set of host ranges. Ranges do not overlap; an access must lie
// within one of them. Adding and removing must not happen during a Run.
class RangeMemory : public Memory {
 public:
  bool Check(uint64_t address, uint64_t size, bool write) override;
  void Add(const void* start, size_t size, bool writable);
  void Remove(const void* start);

 private:
  struct Range {
    uint64_t start = 0, end = 0;
    bool writable = false;
  };
  std::map<uint64_t, Range> ranges_;  // by end address
  Range last_;                        // of the previous successful look-up
};

// A code object image in host memory, page aligned, registered (writable: the
// object's data segments are) with a RangeMemory while it lives.
class LoadedObject {
 public:
  // elf: a code object (ELF64, EM_AMDGPU). Returns nullptr with *error set when
  // it cannot be loaded. `memory` must outlive the object.
  static std::unique_ptr<LoadedObject> Load(std::span<const uint8_t> elf, RangeMemory* memory,
                                            std::string* error);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  // Host address of a symbol, or 0. A kernel's descriptor is "<name>.kd".
  uint64_t Symbol(std::string_view name) const;
  uint64_t Descriptor(std::string_view kernel) const { return Symbol(std::string(kernel) + ".kd"); }
  const std::map<std::string, uint64_t, std::less<>>& symbols() const { return symbols_; }

  // Host address = vaddr + bias().
  uint64_t bias() const { return reinterpret_cast<uint64_t>(image_); }
  size_t size() const { return size_; }
  std::span<uint8_t> image() { return {image_, size_}; }

 private:
  LoadedObject() = default;
  RangeMemory* memory_ = nullptr;
  uint8_t* image_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, uint64_t, std::less<>> symbols_;
};

// `targets`, and those that only LLVM 22 knows if that is what there is.
std::vector<std::string> WithNewer(std::vector<std::string> targets);

// Reads a whole file; empty when it cannot be read.
std::vector<uint8_t> ReadBinaryFile(const std::string& path);

// Kernel arguments at their natural alignment, as the compiler lays them out.
class KernelArgs {
 public:
  template <typename T>
  KernelArgs& Add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t at = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// How to launch. Zero sizes mean "what the kernel descriptor says".
struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};       // work-items
  uint32_t workgroup[3] = {1, 1, 1};  // work-items
  uint32_t private_segment_size = 0;  // bytes per lane
  uint32_t group_segment_size = 0;    // bytes
};

// Dispatches a kernel of a loaded object. The kernel arguments are copied into
// registered memory for the duration; an AQL packet with the launch's sizes is
// provided at dispatch_ptr.
Fault Launch(Machine& machine, RangeMemory& memory, uint64_t kernel_descriptor,
             const KernelArgs& args, const LaunchShape& shape);

// A typed buffer that kernels may use while it lives.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer(RangeMemory& memory, size_t count, T fill = T())
      : memory_(memory), data_(count, fill) {
    memory_.Add(data_.data(), data_.size() * sizeof(T), true);
  }
  ~DeviceBuffer() { memory_.Remove(data_.data()); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() { return data_.data(); }
  size_t size() const { return data_.size(); }
  T& operator[](size_t i) { return data_[i]; }
  const std::vector<T>& contents() const { return data_; }

 private:
  RangeMemory& memory_;
  std::vector<T> data_;  // never resized
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_TEST_LOADER_H_
