// Text that came as foreign bytes (names in code objects, paths, arguments), made
// fit for messages, whose strings have to be UTF-8, and for terminals and logs.
#ifndef PATCH_CODEOBJECT_PRINTABLE_H_
#define PATCH_CODEOBJECT_PRINTABLE_H_

#include <string>
#include <string_view>

namespace rjdbi::patch {

// Bytes that are not UTF-8 as "\xNN"; everything else unchanged.
std::string ToUtf8(std::string_view text);

// ToUtf8, and '?' for characters that a terminal acts on, or that hide or reorder
// what is shown: C0 and C1 controls, DEL, line and paragraph separators,
// bidirectional controls, zero-width characters.
std::string Printable(std::string_view text);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_PRINTABLE_H_
