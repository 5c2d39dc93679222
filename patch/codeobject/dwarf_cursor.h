// Checked reading of DWARF sections. Private to patch/codeobject.
#ifndef PATCH_CODEOBJECT_DWARF_CURSOR_H_
#define PATCH_CODEOBJECT_DWARF_CURSOR_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/debug_info.h"

namespace rjdbi::patch::dwarf {

struct Sections {
  absl::Span<const uint8_t> line, line_str, str;
};

absl::StatusOr<LineTable> ReadLines(const Sections& sections);

// Reads on until something does not fit; from then on everything is zero and
// ok() is false.
class Cursor {
 public:
  Cursor(absl::Span<const uint8_t> bytes, uint64_t at) : bytes_(bytes), at_(at) {
    ok_ = at <= bytes.size();
  }
  bool ok() const { return ok_; }
  uint64_t at() const { return at_; }
  uint64_t left() const { return ok_ ? bytes_.size() - at_ : 0; }
  void Fail() { ok_ = false; }

  void Skip(uint64_t size) {
    if (left() < size) ok_ = false;
    if (ok_) at_ += size;
  }
  uint64_t Unsigned(unsigned size) {
    uint64_t value = 0;
    if (size > sizeof(value) || left() < size) ok_ = false;
    if (!ok_) return 0;
    std::memcpy(&value, bytes_.data() + at_, size);  // little-endian, like the host
    at_ += size;
    return value;
  }
  uint8_t Byte() { return static_cast<uint8_t>(Unsigned(1)); }
  uint64_t Uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0; ok_; shift += 7) {
      const uint8_t byte = Byte();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) break;
    }
    return ok_ ? value : 0;
  }
  int64_t Sleb() {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte = 0x80;
    while (ok_ && (byte & 0x80) != 0) {
      byte = Byte();
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
    }
    if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
    return ok_ ? static_cast<int64_t>(value) : 0;
  }
  std::string_view String() {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data() + (ok_ ? at_ : 0));
    const size_t size = left() > 0 ? strnlen(begin, left()) : 0;
    if (size == left()) ok_ = false;  // no terminator
    if (!ok_) return {};
    at_ += size + 1;
    return {begin, size};
  }
  // A unit's length, with the size of offsets that goes with it.
  uint64_t UnitLength(unsigned& offset_size) {
    uint64_t length = Unsigned(4);
    offset_size = 4;
    if (length == 0xffffffff) {
      length = Unsigned(8);
      offset_size = 8;
    } else if (length >= 0xfffffff0) {
      ok_ = false;
    }
    if (length > left()) ok_ = false;
    return ok_ ? length : 0;
  }

 private:
  absl::Span<const uint8_t> bytes_;
  uint64_t at_ = 0;
  bool ok_ = true;
};

inline std::string_view StringAt(absl::Span<const uint8_t> section, uint64_t offset, bool& ok) {
  Cursor cursor(section, offset);
  const std::string_view text = cursor.String();
  ok &= cursor.ok();
  return text;
}

}  // namespace rjdbi::patch::dwarf

#endif  // PATCH_CODEOBJECT_DWARF_CURSOR_H_
