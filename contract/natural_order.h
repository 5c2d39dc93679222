// The order in which people number things: a2 before a10.
#ifndef CONTRACT_NATURAL_ORDER_H_
#define CONTRACT_NATURAL_ORDER_H_

#include <cstddef>
#include <string_view>
#include <utility>

namespace rjdbi::contract {

// Runs of digits compare by value, everything else by byte; names that are equal
// so ("a01", "a1") by byte, so that the order is total.
inline bool NaturalLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number = [&](std::string_view text, size_t from) {
    size_t end = from;
    while (end < text.size() && digit(text[end])) ++end;
    size_t begin = from;
    while (begin + 1 < end && text[begin] == '0') ++begin;
    return std::pair(text.substr(begin, end - begin), end);
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto [left, left_end] = number(a, i);
      const auto [right, right_end] = number(b, j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      i = left_end;
      j = right_end;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
    }
  }
  const bool a_ends = i == a.size(), b_ends = j == b.size();
  return a_ends == b_ends ? a < b : a_ends;
}

struct NaturalOrder {
  bool operator()(std::string_view a, std::string_view b) const { return NaturalLess(a, b); }
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_NATURAL_ORDER_H_
