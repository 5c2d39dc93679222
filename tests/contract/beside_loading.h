// What an agent does with an image that is to be loaded beside the loaded original: fills
// in both bases' words, and dispatches by the switches. And a fence: of such an image
// nothing but the new code and the switched descriptors is there, so that whatever else
// of it a kernel would use is a memory fault.
#ifndef TESTS_CONTRACT_BESIDE_LOADING_H_
#define TESTS_CONTRACT_BESIDE_LOADING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "contract/admission.h"
#include "patch/codeobject/code_object.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::test {

// `original`: where the loaded original's address 0 is; of no importance to images that
// are loaded instead of it.
inline void FillFixups(std::vector<uint8_t>& image, const std::vector<patch::WordFixup>& fixups,
                       const void* counters, uint64_t original = 0) {
  for (const patch::WordFixup& fixup : fixups) {
    const uint64_t base =
        fixup.base == patch::FixupBase::kOriginal ? original : reinterpret_cast<uint64_t>(counters);
    const uint64_t address = base + fixup.addend;
    const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
    ASSERT_LE(fixup.offset + 4, image.size());
    std::memcpy(image.data() + fixup.offset, &word, sizeof word);
  }
}

class Fence {
 public:
  // `bias`: of the image, which is loaded in `memory`.
  Fence(softgpu::RangeMemory& memory, const contract::Admission& admission, uint64_t bias)
      : memory_(memory) {
    memory_.Remove(reinterpret_cast<const void*>(bias));
    const auto image = patch::CodeObject::Parse(admission.patched);
    EXPECT_TRUE(image.ok()) << image.status();
    if (!image.ok()) return;
    Open(bias + image->segments().back().vaddr, image->segments().back().memsz);
    for (const contract::KernelSwitch& s : admission.switches) Open(bias + s.descriptor, 64);
  }
  ~Fence() {
    for (const uint64_t start : open_) memory_.Remove(reinterpret_cast<const void*>(start));
  }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

 private:
  void Open(uint64_t start, uint64_t size) {
    memory_.Add(reinterpret_cast<const void*>(start), size, /*writable=*/false);
    open_.push_back(start);
  }

  softgpu::RangeMemory& memory_;
  std::vector<uint64_t> open_;
};

}  // namespace rjdbi::test

#endif  // TESTS_CONTRACT_BESIDE_LOADING_H_
