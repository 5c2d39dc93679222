// The NT_AMDGPU_METADATA note (MessagePack), read in one bounded pass without
// recursion. Private to patch/codeobject.
//
// Where each value lies is kept as well, so that the writer can replace single
// numbers and leave every other byte of the note as it is.
#ifndef PATCH_CODEOBJECT_METADATA_H_
#define PATCH_CODEOBJECT_METADATA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/code_object.h"

namespace rjdbi::patch {

// Number-valued keys of a kernel's map.
enum class MetadataNumber : uint8_t {
  kSgprCount,
  kVgprCount,
  kAgprCount,
  kSgprSpillCount,
  kVgprSpillCount,
  kGroupSegmentFixedSize,
  kPrivateSegmentFixedSize,
  kKernargSegmentSize,
  kWavefrontSize,
  kMaxFlatWorkgroupSize,
  kCount,
};
inline constexpr size_t kMetadataNumbers = static_cast<size_t>(MetadataNumber::kCount);

struct ByteSpan {
  size_t begin = 0, end = 0;  // empty: absent
};

struct NoteKernel {
  KernelMetadata metadata;
  std::array<ByteSpan, kMetadataNumbers> numbers;  // encoded values
  ByteSpan map_header;
  uint32_t map_entries = 0;
};

// INVALID_ARGUMENT: not MessagePack, or not of the documented shape.
// RESOURCE_EXHAUSTED: too many kernels.
absl::StatusOr<std::vector<NoteKernel>> ParseMetadata(absl::Span<const uint8_t> note);

// The note with numbers replaced (or inserted where the key is absent).
struct NumberEdit {
  size_t kernel = 0;  // index into what ParseMetadata returned
  MetadataNumber number = MetadataNumber::kCount;
  uint32_t value = 0;
};
std::vector<uint8_t> ReplaceNumbers(absl::Span<const uint8_t> note,
                                    const std::vector<NoteKernel>& kernels,
                                    const std::vector<NumberEdit>& edits);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_METADATA_H_
