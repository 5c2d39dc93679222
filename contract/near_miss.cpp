// See the header.
#include "contract/near_miss.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "contract/demangle.h"
#include "contract/text.h"
#include "patch/analysis/selector.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kMaxCompared = 128;  // letters of a name

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// A glob's parts: letters, '?' for one of any kind (classes, too), '*'.
std::string Simplified(std::string_view glob) {
  std::string parts;
  for (size_t i = 0; i < glob.size(); ++i) {
    const size_t close = glob[i] == '[' ? glob.find(']', i) : std::string_view::npos;
    parts += close == std::string_view::npos ? glob[i] : '?';
    if (close != std::string_view::npos) i = close;
  }
  return parts;
}

std::string Letters(std::string_view parts) {
  std::string letters;
  for (const char c : parts) {
    if (c != '*' && c != '?') letters += c;
  }
  return letters;
}

// Letters to insert, remove, replace, or exchange with their neighbour, until the glob
// matches the name; a '*' takes any letters for nothing.
size_t EditDistance(std::string_view glob, std::string_view name) {
  std::vector<size_t> before, last(name.size() + 1), row(name.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= glob.size(); ++i) {
    const char wanted = glob[i - 1];
    const bool any = wanted == '*';
    row[0] = last[0] + (any ? 0 : 1);
    for (size_t j = 1; j <= name.size(); ++j) {
      const bool same = wanted == '?' || wanted == name[j - 1];
      row[j] = any ? std::min(last[j], row[j - 1])
                   : std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && wanted == name[j - 2] && glob[i - 2] == name[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last[name.size()];
}

class Wanted {
 public:
  explicit Wanted(std::string_view glob)
      : glob_(Lower(glob)),
        parts_(Simplified(glob_).substr(0, kMaxCompared)),
        letters_(Letters(parts_)) {}

  // Smaller is nearer; nullopt: not near.
  std::optional<size_t> DistanceTo(std::string_view name) const {
    const std::string lower = Lower(name.substr(0, kMaxCompared));
    if (patch::GlobMatch(glob_, lower)) return 0;
    if (letters_.size() >= 3 && lower.find(letters_) != std::string::npos) return 1;
    const size_t distance = EditDistance(parts_, lower);
    if (distance > std::max<size_t>(1, letters_.size() / 3)) return std::nullopt;
    return 1 + distance;
  }

 private:
  const std::string glob_, parts_, letters_;
};

}  // namespace

std::vector<std::string> ClosestNames(std::string_view glob, const std::set<std::string>& known,
                                      size_t most) {
  const Wanted wanted(glob);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : known) {
    if (const auto distance = wanted.DistanceTo(name)) near.emplace_back(*distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(most, near.size()); ++i) names.push_back(near[i].second);
  return names;
}

std::vector<std::string> ClosestKernels(std::string_view glob,
                                        const std::vector<std::string>& kernels, size_t most) {
  const bool whole = glob.find('(') != std::string_view::npos || StartsWith(glob, "_Z");
  std::set<std::string> names;
  for (const std::string& kernel : kernels) {
    if (StartsWith(glob, "_Z")) {
      names.insert(kernel);
      continue;
    }
    const std::string demangled = Demangle(kernel);
    names.insert(whole ? demangled : std::string(WithoutSignature(demangled)));
  }
  std::vector<std::string> near = ClosestNames(glob, names, most);
  if (!near.empty() || whole) return near;
  // "reduce" for "reduce<float>": by what stands before the arguments of the template.
  std::set<std::string> bare;
  for (const std::string& name : names) bare.insert(name.substr(0, name.find('<')));
  near = ClosestNames(glob, bare, most);
  for (std::string& name : near) {
    if (names.count(name) == 0) name += "<*>";
  }
  return near;
}

std::string DidYouMean(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = "did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : i + 1 == names.size() ? " or " : ", ", "'", names[i], "'");
  }
  return text + "?";
}

}  // namespace rjdbi::contract
