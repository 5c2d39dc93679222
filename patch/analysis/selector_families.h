// Instruction families of the selector grammar, by what the decoder says of an
// instruction. Private to patch/analysis.
#ifndef PATCH_ANALYSIS_SELECTOR_FAMILIES_H_
#define PATCH_ANALYSIS_SELECTOR_FAMILIES_H_

#include <string_view>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

struct Family {
  std::string_view name;
  bool (*has)(const Instruction&);
  bool memory;  // takes an access: "memory(read)"
};
absl::Span<const Family> Families();
absl::Span<const Family> Accesses();  // "read", "write", "atomic"

// nullptr: no such family (access).
const Family* FindFamily(absl::Span<const Family> among, std::string_view name);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_SELECTOR_FAMILIES_H_
