// Source lines for new code: a unit of .debug_line, and a compile unit that leads
// to it, behind those that the object has.
#ifndef PATCH_CODEOBJECT_DWARF_WRITER_H_
#define PATCH_CODEOBJECT_DWARF_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "patch/codeobject/appendix.h"
#include "patch/codeobject/debug_info.h"

namespace rjdbi::patch {

// [vaddr, vaddr + size) of new code, and where its original lies.
struct CodeOrigin {
  uint64_t vaddr = 0, size = 0, original = 0;
  // Has no original itself: `original` is its site's, and all of it has that line.
  bool injected = false;
};

// Sections to append to `image` so that debuggers find the lines of `origins` (by
// address, disjoint) and the names of `functions` (by address). Empty where the
// image has no DWARF that could be extended, or it is compressed.
// Source: DWARF 5, sections 6.2.4, 7.5.
std::vector<Appendix::Section> LinesForNewCode(absl::Span<const uint8_t> image,
                                               const LineTable& lines,
                                               const std::vector<CodeOrigin>& origins,
                                               const std::vector<Appendix::Function>& functions);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_DWARF_WRITER_H_
