// See the header.
#include "patch/rewrite/assembly_cache.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::patch {

absl::StatusOr<const std::vector<uint8_t>*> AssemblyCache::Assemble(const std::string& key,
                                                                    Isa& isa,
                                                                    const std::string& text) {
  const std::string full = absl::StrCat(key, "\n", text);
  if (auto it = bytes_.find(full); it != bytes_.end()) return &it->second;
  absl::StatusOr<std::vector<uint8_t>> bytes = isa.Assemble(text);
  if (!bytes.ok()) {
    return absl::InternalError(absl::StrCat("\"", text, "\": ", bytes.status().message()));
  }
  return &bytes_.emplace(full, *std::move(bytes)).first->second;
}

}  // namespace rjdbi::patch
