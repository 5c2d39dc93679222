// Finds the code objects inside a host library: clang offload bundles in its
// .hip_fatbin section, one after the other. Test helper; trusts its input only
// as far as the checks in here go.
#ifndef TESTS_CORPUS_OFFLOAD_BUNDLE_H_
#define TESTS_CORPUS_OFFLOAD_BUNDLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rjdbi::test {

// A file mapped read-only.
class MappedFile {
 public:
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

struct BundledObject {
  std::string target;               // "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"
  absl::Span<const uint8_t> bytes;  // inside the file
  size_t bundle = 0;                // which bundle of the section
};

// Device objects only (host entries are empty placeholders). NOT_FOUND: no
// .hip_fatbin. INVALID_ARGUMENT: a bundle's table leaves the section.
absl::StatusOr<std::vector<BundledObject>> ExtractBundles(absl::Span<const uint8_t> library);

}  // namespace rjdbi::test

#endif  // TESTS_CORPUS_OFFLOAD_BUNDLE_H_
