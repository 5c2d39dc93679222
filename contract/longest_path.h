// How many instructions of a probe sequence one event executes at most.
#ifndef CONTRACT_LONGEST_PATH_H_
#define CONTRACT_LONGEST_PATH_H_

#include <cstdint>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {

// Branches lead forward; bytes that do not decode, and branches that lead
// elsewhere, end the count: inference has judged them before.
uint32_t LongestPath(patch::Isa& isa, absl::Span<const uint8_t> sequence);

}  // namespace rjdbi::contract

#endif  // CONTRACT_LONGEST_PATH_H_
