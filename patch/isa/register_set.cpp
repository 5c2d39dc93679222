// Names of registers and printing of sets, for messages and tests.
#include "patch/isa/register_set.h"

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

}  // namespace

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
