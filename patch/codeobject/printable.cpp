#include "patch/codeobject/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rjdbi::patch {
namespace {

// Bytes of the well-formed sequence that `text` begins with; 0: there is none.
// Source: the Unicode Standard, table 3-7.
size_t SequenceLength(std::string_view text) {
  struct Form {
    unsigned char first, last, low, high;  // lead bytes; range of the byte after
    size_t length;
  };
  static constexpr Form kForms[] = {
      {0x00, 0x7F, 0x00, 0xFF, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
      {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
      {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (const Form& form : kForms) {
    if (byte(0) < form.first || byte(0) > form.last) continue;
    if (form.length > text.size()) return 0;
    for (size_t i = 1; i < form.length; ++i) {
      if (byte(i) < (i == 1 ? form.low : 0x80) || byte(i) > (i == 1 ? form.high : 0xBF)) return 0;
    }
    return form.length;
  }
  return 0;
}

uint32_t CodePoint(std::string_view sequence) {
  static constexpr uint32_t kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  uint32_t point = static_cast<unsigned char>(sequence[0]) & kLeadBits[sequence.size()];
  for (char c : sequence.substr(1)) point = point << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return point;
}

bool Misleads(uint32_t point) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kRanges[] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0x061C, 0x061C},
                                      {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                                      {0xFEFF, 0xFEFF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const Range& r) { return point >= r.first && point <= r.last; });
}

// `show` turns each well-formed sequence into what is printed for it.
template <typename Show>
std::string Convert(std::string_view text, Show show) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += show(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace

std::string ToUtf8(std::string_view text) {
  return Convert(text, [](std::string_view sequence) { return sequence; });
}

std::string Printable(std::string_view text) {
  return Convert(text, [](std::string_view sequence) {
    return Misleads(CodePoint(sequence)) ? std::string_view("?") : sequence;
  });
}

}  // namespace rjdbi::patch
