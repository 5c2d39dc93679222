// Finds the code objects inside a program or library for the host: clang offload
// bundles in its .hip_fatbin section, one after the other, or a bundle by itself.
//
// Format: clang "Offload Bundler" documentation, "Bundled Binary File Layout".
// Compressed bundles are not read.
#ifndef PATCH_CODEOBJECT_OFFLOAD_BUNDLE_H_
#define PATCH_CODEOBJECT_OFFLOAD_BUNDLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rjdbi::patch {

struct BundledObject {
  std::string target;               // "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"
  absl::Span<const uint8_t> bytes;  // inside the file
  size_t bundle = 0;                // which bundle of the section
};

// Device objects only (host entries are empty placeholders). `file` is an ELF
// file for the host or starts with a bundle. NOT_FOUND: no bundle in it.
// UNIMPLEMENTED: a compressed one. INVALID_ARGUMENT: no such file, or a bundle's
// table leaves the section. Any bytes are safe to give.
absl::StatusOr<std::vector<BundledObject>> ExtractBundles(absl::Span<const uint8_t> file);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_OFFLOAD_BUNDLE_H_
