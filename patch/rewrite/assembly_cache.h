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

// The same, as plans have it in common.
struct SharedSequence {
  SharedCode bytes;
  SharedFixups fixups;
  uint32_t instructions = 0;
};

class AssemblyCache {
 public:
  // `key` names what the text is assembled for: processor and wavefront size.
  // The bytes stay valid until the cache is destroyed. INTERNAL: LLVM refuses.
  absl::StatusOr<const std::vector<uint8_t>*> Assemble(const std::string& key, Isa& isa,
                                                       const std::string& text);

  // Sequences made before, by all that they depend on; addends count from 0.
  std::unordered_map<std::string, SharedSequence>& sequences() { return sequences_; }
  // An equal set that plans have already, or this one.
  SharedSet Share(const RegisterSet& set);

 private:
  // The first line of its shape, and its registers in the order of the shape.
  struct Pattern {
    std::vector<uint8_t> bytes;
    std::vector<uint16_t> registers;
  };
  struct Hash {
    size_t operator()(const RegisterSet& set) const { return set.Hash(); }
  };

  absl::StatusOr<std::vector<uint8_t>> Make(const std::string& key, Isa& isa,
                                            const std::string& text);

  std::unordered_map<std::string, std::vector<uint8_t>> bytes_;
  std::unordered_map<std::string, Pattern> shapes_;
  std::unordered_map<std::string, SharedSequence> sequences_;
  std::unordered_map<RegisterSet, SharedSet, Hash> sets_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_ASSEMBLY_CACHE_H_
