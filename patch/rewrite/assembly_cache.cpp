// A line that differs from an earlier one in its registers alone is that line with
// its registers renamed, which costs a small part of parsing it.
#include "patch/rewrite/assembly_cache.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

constexpr size_t kMostSets = 4096;  // remembered; a rewriter lives long

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// A line without the numbers of its scalar and vector registers, which are named by
// the order in which they first occur.
struct Shape {
  std::string text;
  std::vector<uint16_t> registers;
};

class ShapeReader {
 public:
  explicit ShapeReader(std::string_view line) : line_(line) {}

  // nullopt: a register of the file does not exist.
  std::optional<Shape> Read() {
    while (at_ < line_.size()) {
      if (!AtOperand()) {
        shape_.text += line_[at_++];
      } else if (!TakeRegisters()) {
        return std::nullopt;
      }
    }
    return std::move(shape_);
  }

 private:
  // "v5", "s[4:5]" at the beginning of an operand.
  bool AtOperand() const {
    const char c = line_[at_];
    const bool begins = at_ == 0 || line_[at_ - 1] == ' ' || line_[at_ - 1] == ',';
    if (!begins || (c != 's' && c != 'v') || at_ + 1 >= line_.size()) return false;
    return line_[at_ + 1] == '[' || IsDigit(line_[at_ + 1]);
  }

  bool TakeRegisters() {
    const bool vector = line_[at_] == 'v';
    do {
      shape_.text += line_[at_++];  // the file's letter, '[' or ':'
      unsigned number = 0;
      const size_t begin = at_;
      while (at_ < line_.size() && IsDigit(line_[at_]) && number < 1000) {
        number = number * 10 + static_cast<unsigned>(line_[at_++] - '0');
      }
      if (at_ == begin) continue;
      if (number >= (vector ? 256u : static_cast<unsigned>(kVccLo))) return false;
      Name(static_cast<uint16_t>((vector ? kVgpr0 : kSgpr0) + number));
    } while (at_ < line_.size() && (line_[at_] == '[' || line_[at_] == ':'));
    return true;
  }

  void Name(uint16_t reg) {
    auto& known = shape_.registers;
    const auto found = std::find(known.begin(), known.end(), reg);
    absl::StrAppend(&shape_.text, "#", found - known.begin());
    if (found == known.end()) known.push_back(reg);
  }

  const std::string_view line_;
  size_t at_ = 0;
  Shape shape_;
};

}  // namespace

absl::StatusOr<std::vector<uint8_t>> AssemblyCache::Make(const std::string& key, Isa& isa,
                                                         const std::string& text) {
  std::optional<Shape> shape;
  if (text.find('\n') == std::string::npos) shape = ShapeReader(text).Read();
  if (!shape || shape->registers.empty()) return isa.Assemble(text);
  const auto [found, fresh] = shapes_.try_emplace(absl::StrCat(key, "\n", shape->text));
  Pattern& pattern = found->second;
  if (!fresh && !pattern.bytes.empty()) {
    RegisterRenaming renaming = NoRenaming();
    for (size_t i = 0; i < shape->registers.size(); ++i) {
      renaming[pattern.registers[i]] = shape->registers[i];
    }
    absl::StatusOr<std::vector<uint8_t>> renamed = isa.Rename(pattern.bytes, 0, renaming);
    if (renamed.ok() && renamed->size() == pattern.bytes.size()) return renamed;
  }
  absl::StatusOr<std::vector<uint8_t>> bytes = isa.Assemble(text);
  if (bytes.ok()) pattern = {*bytes, std::move(shape->registers)};
  return bytes;
}

absl::StatusOr<const std::vector<uint8_t>*> AssemblyCache::Assemble(const std::string& key,
                                                                    Isa& isa,
                                                                    const std::string& text) {
  const std::string full = absl::StrCat(key, "\n", text);
  if (auto it = bytes_.find(full); it != bytes_.end()) return &it->second;
  absl::StatusOr<std::vector<uint8_t>> bytes = Make(key, isa, text);
  if (!bytes.ok()) {
    return absl::InternalError(absl::StrCat("\"", text, "\": ", bytes.status().message()));
  }
  return &bytes_.emplace(full, *std::move(bytes)).first->second;
}

SharedSet AssemblyCache::Share(const RegisterSet& set) {
  if (set.Empty()) return {};
  const auto found = sets_.find(set);
  if (found != sets_.end()) return found->second;
  if (sets_.size() >= kMostSets) sets_.clear();
  return sets_.emplace(set, SharedSet(set)).first->second;
}

}  // namespace rjdbi::patch
