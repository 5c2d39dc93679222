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
#include "patch/plan/rewriter.h"

namespace rjdbi::patch {

// A probe's machine code. Fixups: offsets into `bytes`.
struct ProbeSequence {
  std::vector<uint8_t> bytes;
  std::vector<WordFixup> fixups;
  uint32_t instructions = 0;
};

class AssemblyCache {
 public:
  // `key` names what the text is assembled for: processor and wavefront size.
  // The bytes stay valid until the cache is destroyed. INTERNAL: LLVM refuses.
  absl::StatusOr<const std::vector<uint8_t>*> Assemble(const std::string& key, Isa& isa,
                                                       const std::string& text);

  // Sequences made before, by all that they depend on; addends are the caller's.
  std::unordered_map<std::string, ProbeSequence>& sequences() { return sequences_; }

 private:
  std::unordered_map<std::string, std::vector<uint8_t>> bytes_;
  std::unordered_map<std::string, ProbeSequence> sequences_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_ASSEMBLY_CACHE_H_
