// Distances that instructions of one sequence need among themselves, where code from
// two sources meets in it: gfx9's wait states, and the fences of gfx10.1 and gfx12.
#ifndef PATCH_REWRITE_SPACING_H_
#define PATCH_REWRITE_SPACING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

// Lines to put in front of the instruction at `offset`; branches to it lead to them.
struct Spacing {
  uint64_t offset = 0;
  std::string lines;
};

// The first that is missing, in the order of the code; nullopt: none.
std::optional<Spacing> SpacingMissing(Isa& isa, absl::Span<const uint8_t> code);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_SPACING_H_
