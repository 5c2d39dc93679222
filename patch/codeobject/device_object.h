// Functions of an AMDGPU object that a compiler made for the device: relocatable
// (clang -x cl -c) or linked (clang -x hip). A user's probe comes as one.
//
// The bytes are foreign: everything is bounded and checked before it is used.
#ifndef PATCH_CODEOBJECT_DEVICE_OBJECT_H_
#define PATCH_CODEOBJECT_DEVICE_OBJECT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/code_object.h"

namespace rjdbi::patch {

struct DeviceFunction {
  std::string name;
  absl::Span<const uint8_t> code;  // of the object's bytes
  // Places in `code` that a linker or loader would still fill in, ascending.
  std::vector<uint64_t> relocations;
};

class DeviceObject {
 public:
  static constexpr uint64_t kMaxSize = uint64_t{256} << 10;
  static constexpr size_t kMaxFunctions = 4096;

  // `bytes` must outlive the result. INVALID_ARGUMENT: not an AMDGPU HSA object,
  // or malformed; the message names header, field, value and limit, and for what
  // compilers emit by default says what to ask them for. UNIMPLEMENTED: an ABI
  // version or a machine that is not supported. RESOURCE_EXHAUSTED: too large.
  static absl::StatusOr<DeviceObject> Parse(absl::Span<const uint8_t> bytes);

  const TargetId& target() const { return target_; }
  // By name. Those without a size are left out.
  const std::vector<DeviceFunction>& functions() const { return functions_; }
  const DeviceFunction* Find(std::string_view name) const;  // nullptr: none

 private:
  friend class DeviceObjectParser;
  TargetId target_;
  std::vector<DeviceFunction> functions_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_DEVICE_OBJECT_H_
