// Names of registers and printing of sets, for messages and tests.
#include "patch/isa/register_set.h"

#include <cctype>
#include <iterator>
#include <string>

namespace rjdbi::patch {
namespace {

// Numbered files, each a run of the dense numbering.
struct File {
  uint16_t first, count;
  const char* prefix;
};
constexpr File kFiles[] = {
    {kSgpr0, 108, "s"},
    {kTtmp0, 16, "ttmp"},
    {kVgpr0, 256, "v"},
    {kAgpr0, 256, "a"},
};

struct Named {
  uint16_t reg;
  const char* name;
};
constexpr Named kNamed[] = {
    {kVccLo, "vcc_lo"},
    {kVccHi, "vcc_hi"},
    {kExecLo, "exec_lo"},
    {kExecHi, "exec_hi"},
    {kM0, "m0"},
    {kScc, "scc"},
    {kMode, "mode"},
    {kFlatScratchLo, "flat_scratch_lo"},
    {kFlatScratchHi, "flat_scratch_hi"},
    {kXnackMaskLo, "xnack_mask_lo"},
    {kXnackMaskHi, "xnack_mask_hi"},
};

// Pairs that print as one name when both halves are present.
constexpr Named kPairs[] = {
    {kVccLo, "vcc"},
    {kExecLo, "exec"},
    {kFlatScratchLo, "flat_scratch"},
    {kXnackMaskLo, "xnack_mask"},
};

const File* FileOf(uint16_t reg) {
  for (const File& file : kFiles) {
    if (reg >= file.first && reg < file.first + file.count) return &file;
  }
  return nullptr;
}

const char* PairName(uint16_t reg) {
  for (const Named& pair : kPairs) {
    if (pair.reg == reg) return pair.name;
  }
  return nullptr;
}

// What ParseRange takes besides s and v.
struct NamedRange {
  std::string_view name;
  RegisterRange range;
};
constexpr NamedRange kRanges[] = {
    {"vcc", {kVccLo, 2}},   {"vcc_lo", {kVccLo, 1}},   {"vcc_hi", {kVccHi, 1}},
    {"exec", {kExecLo, 2}}, {"exec_lo", {kExecLo, 1}}, {"exec_hi", {kExecHi, 1}},
    {"m0", {kM0, 1}},       {"scc", {kScc, 1}},
};

constexpr unsigned kOrdinarySgprs = 106, kVgprs = 256;

// Takes digits off the front; nullopt: there are none, or too many.
std::optional<unsigned> TakeNumber(std::string_view* text) {
  unsigned number = 0, digits = 0;
  while (digits < text->size() && std::isdigit(static_cast<unsigned char>((*text)[digits]))) {
    number = number * 10 + static_cast<unsigned>((*text)[digits++] - '0');
    if (digits > 3) return std::nullopt;
  }
  text->remove_prefix(digits);
  if (digits == 0) return std::nullopt;
  return number;
}

bool Take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::string RangeName(RegisterRange range) {
  if (range.count == 0) return "none";
  for (const NamedRange& named : kRanges) {
    if (named.range == range) return std::string(named.name);
  }
  const File* file = FileOf(range.first);
  if (range.count == 1 || file == nullptr) return RegisterName(range.first);
  const unsigned first = range.first - file->first;
  return file->prefix + ("[" + std::to_string(first)) + ":" +
         std::to_string(first + range.count - 1) + "]";
}

std::optional<RegisterRange> ParseRange(std::string_view text) {
  for (const NamedRange& named : kRanges) {
    if (named.name == text) return named.range;
  }
  const bool scalar = text.starts_with("s");
  if (!scalar && !text.starts_with("v")) return std::nullopt;
  text.remove_prefix(1);
  const unsigned base = scalar ? kSgpr0 : kVgpr0, limit = scalar ? kOrdinarySgprs : kVgprs;
  const bool bracket = Take(&text, "[");
  const auto first = TakeNumber(&text);
  std::optional<unsigned> last = first;
  if (bracket && Take(&text, ":")) last = TakeNumber(&text);
  if (bracket && !Take(&text, "]")) return std::nullopt;
  if (!first || !last || !text.empty() || *last < *first || *last >= limit) return std::nullopt;
  const unsigned count = *last - *first + 1;
  if (count > (scalar ? 2u : 1u)) return std::nullopt;
  return RegisterRange{static_cast<uint16_t>(base + *first), static_cast<uint8_t>(count)};
}

const RegisterSet& RegisterSetRef::None() {
  static const RegisterSet none;
  return none;
}

std::string RegisterName(uint16_t reg) {
  if (const File* file = FileOf(reg)) return file->prefix + std::to_string(reg - file->first);
  for (const Named& named : kNamed) {
    if (named.reg == reg) return named.name;
  }
  return "reg" + std::to_string(reg);
}

std::string RegisterSet::ToString() const {
  std::string out;
  for (uint16_t reg = 0; reg < kNumRegisters; ++reg) {
    if (!Has(reg)) continue;
    if (!out.empty()) out += ' ';
    const char* pair = PairName(reg);
    if (pair != nullptr && Has(reg + 1)) {
      out += pair;
      ++reg;
      continue;
    }
    out += RegisterName(reg);
    const File* file = FileOf(reg);
    uint16_t last = reg;
    while (file != nullptr && last + 1 < file->first + file->count && Has(last + 1)) ++last;
    if (last != reg) out += "-" + RegisterName(last);
    reg = last;
  }
  return out;
}

}  // namespace rjdbi::patch
