// Character classes of globs. Private to patch/analysis.
#ifndef PATCH_ANALYSIS_SELECTOR_GLOB_H_
#define PATCH_ANALYSIS_SELECTOR_GLOB_H_

#include <cstddef>
#include <string_view>

namespace rjdbi::patch {

// The class that starts at glob[at] == '[': where it ends, whether c is in it.
struct ClassMatch {
  size_t end = 0;  // past ']'; 0: unterminated, the '[' is then literal
  bool matches = false;
};
ClassMatch MatchClass(std::string_view glob, size_t at, char c);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_SELECTOR_GLOB_H_
