// A file mapped read-only: libraries are too large to be copied.
#ifndef PATCH_CODEOBJECT_MAPPED_FILE_H_
#define PATCH_CODEOBJECT_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rjdbi::patch {

// Whoever shortens the file meanwhile ends this process (SIGBUS).
class MappedFile {
 public:
  // NOT_FOUND: cannot be opened. INVALID_ARGUMENT: no regular file, or empty.
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_MAPPED_FILE_H_
