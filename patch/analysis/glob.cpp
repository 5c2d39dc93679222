// Shell-style globs, in time that hostile patterns cannot blow up.
#include "patch/analysis/selector.h"
#include "patch/analysis/selector_glob.h"

namespace rjdbi::patch {
namespace {

// One pattern element against one character; next: where the pattern goes on.
bool MatchOne(std::string_view glob, size_t at, char c, size_t& next) {
  if (glob[at] == '[') {
    const ClassMatch match = MatchClass(glob, at, c);
    if (match.end != 0) {
      next = match.end;
      return match.matches;
    }
  }
  next = at + 1;
  return glob[at] == '?' || glob[at] == c;
}

}  // namespace

ClassMatch MatchClass(std::string_view glob, size_t at, char c) {
  size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (bool first = true; i < glob.size(); first = false) {
    if (glob[i] == ']' && !first) return {i + 1, found != negated};
    const char low = glob[i];
    char high = low;
    if (i + 2 < glob.size() && glob[i + 1] == '-' && glob[i + 2] != ']') {
      high = glob[i + 2];
      i += 2;
    }
    found |= low <= c && c <= high;
    ++i;
  }
  return {};
}

// Backtracks to the last '*' only, so the time is at most |glob| * |text|.
bool GlobMatch(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    size_t next = 0;
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && MatchOne(glob, g, text[t], next)) {
      g = next;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace rjdbi::patch
