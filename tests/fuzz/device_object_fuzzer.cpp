// The object of a user's probe: foreign bytes that rjdbid and rjctl parse.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/types/span.h"
#include "patch/codeobject/device_object.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto object = rjdbi::patch::DeviceObject::Parse(absl::MakeConstSpan(data, size));
  if (!object.ok()) return 0;
  uint32_t sum = 0;
  for (const auto& function : object->functions()) {
    for (uint8_t byte : function.code) sum += byte;
    for (uint64_t place : function.relocations) {
      if (place >= function.code.size()) std::abort();
    }
  }
  volatile uint32_t sink = sum;
  (void)sink;
  return 0;
}
