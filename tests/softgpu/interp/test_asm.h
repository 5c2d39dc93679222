// Assembles AMDGPU text in process and wraps it as a kernel, for tests of single
// instructions.
#ifndef TESTS_SOFTGPU_INTERP_TEST_ASM_H_
#define TESTS_SOFTGPU_INTERP_TEST_ASM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/softgpu/interp/machine.h"
#include "tests/softgpu/interp/test_loader.h"

namespace softgpu {

// Machine code of the text, or empty with *error set.
std::vector<uint8_t> Assemble(const std::string& gfx_name, bool wave64, const std::string& text,
                              std::string* error);

struct RawKernelOptions {
  bool wave32 = false;
  uint32_t sgprs = 112;          // gfx9: rounded up to 16
  uint32_t vgprs = 64;           // rounded up to the granule
  uint32_t accum_offset = 32;    // gfx90a and later gfx9: arch VGPRs
  bool private_segment = false;  // scratch: V# in s[0:3] and, before gfx942 and
                                 // gfx11, the flat scratch init pair
};

// A kernel from text, in registered memory. Launch state: the private segment
// pieces if asked for, then the kernarg pointer pair, then workgroup id x (not
// on gfx12: ttmp9), then the private wave offset where the generation has one.
class RawKernel {
 public:
  RawKernel(RangeMemory& memory, const std::string& gfx_name, const std::string& text,
            const RawKernelOptions& options);
  ~RawKernel();
  RawKernel(const RawKernel&) = delete;
  RawKernel& operator=(const RawKernel&) = delete;

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  uint64_t descriptor() const { return reinterpret_cast<uint64_t>(image_.data()) + padding_; }
  uint64_t entry() const { return descriptor() + 256; }

 private:
  RangeMemory& memory_;
  std::vector<uint8_t> image_;
  uint64_t padding_ = 0;
  std::string error_;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_TEST_ASM_H_
