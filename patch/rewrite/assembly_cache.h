// Assembled instructions by text: attachments repeat a handful of lines tens of
// thousands of times.
#ifndef PATCH_REWRITE_ASSEMBLY_CACHE_H_
#define PATCH_REWRITE_ASSEMBLY_CACHE_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

class AssemblyCache {
 public:
  // `key` names what the text is assembled for: processor and wavefront size.
  // The bytes stay valid until the cache is destroyed. INTERNAL: LLVM refuses.
  absl::StatusOr<const std::vector<uint8_t>*> Assemble(const std::string& key, Isa& isa,
                                                       const std::string& text);

 private:
  std::unordered_map<std::string, std::vector<uint8_t>> bytes_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_ASSEMBLY_CACHE_H_
