// String helpers for code that uses std::string_view beside an Abseil whose own
// string_view is a different type.
#ifndef CONTRACT_TEXT_H_
#define CONTRACT_TEXT_H_

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rjdbi::contract {

inline absl::string_view ToAbsl(std::string_view v) { return {v.data(), v.size()}; }

template <typename T>
decltype(auto) CatArgument(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(value);
  } else {
    return (value);
  }
}

template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(CatArgument(args)...);
}
template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  absl::StrAppend(out, CatArgument(args)...);
}

inline bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
inline bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}
inline bool StrContains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace rjdbi::contract

#endif  // CONTRACT_TEXT_H_
