// LLVM has several registers for one range of ours (16-bit halves, spellings per
// encoding): the counterpart is the one that the operand's class allows and that
// is the same half.
#include "patch/isa/rename.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/MC/MCFixup.h"

namespace rjdbi::patch {
namespace {

// MCRegisterInfo's encoding: the register's number; above it which file and half.
constexpr unsigned kNumberBits = 0xff;

// Registers that code may choose freely.
bool Ordinary(uint16_t reg) { return reg < kVccLo || reg >= kVgpr0; }

// Where `count` registers from `first` on go; nullopt: not to consecutive ones.
std::optional<uint16_t> NewFirst(const RegisterRenaming& renaming, uint16_t first, uint8_t count) {
  const uint16_t to = renaming[first];
  for (unsigned k = 1; k < count; ++k) {
    if (renaming[first + k] != to + k) return std::nullopt;
  }
  return to;
}

}  // namespace

Renamer::Renamer(const LlvmTarget& target, const RegisterMap& map) : target_(target), map_(map) {
  emitter_.reset(target.target->createMCCodeEmitter(*target.instructions, *target.context));
  for (unsigned reg = 1; reg < map.ranges.size(); ++reg) {
    const RegisterMap::Range& range = map.ranges[reg];
    if (range.count > 0) by_range_[{range.first, range.count}].push_back(reg);
  }
}

unsigned Renamer::Counterpart(unsigned llvm_register, uint16_t first, uint8_t count,
                              int register_class) const {
  const llvm::MCRegisterInfo& info = *target_.registers;
  const auto found = by_range_.find({first, count});
  if (found == by_range_.end()) return 0;
  const unsigned kind = info.getEncodingValue(llvm_register) & ~kNumberBits;
  for (unsigned candidate : found->second) {
    if ((info.getEncodingValue(candidate) & ~kNumberBits) != kind) continue;
    if (register_class >= 0 &&
        !info.getRegClass(static_cast<unsigned>(register_class)).contains(candidate)) {
      continue;
    }
    return candidate;
  }
  return 0;
}

absl::StatusOr<std::vector<uint8_t>> Renamer::Encode(llvm::MCInst inst,
                                                     const RegisterRenaming& renaming) {
  const llvm::MCInstrDesc& desc = target_.instructions->get(inst.getOpcode());
  for (unsigned i = 0; i < inst.getNumOperands(); ++i) {
    llvm::MCOperand& operand = inst.getOperand(i);
    if (!operand.isReg()) continue;
    const RegisterMap::Range range = map_.ranges[operand.getReg()];
    if (range.count == 0 || !Ordinary(range.first)) continue;
    const std::optional<uint16_t> to = NewFirst(renaming, range.first, range.count);
    if (!to) {
      return absl::InvalidArgumentError(absl::StrCat(
          "operand ", i, ": the registers from ", RegisterName(range.first), " on are torn apart"));
    }
    if (*to == range.first) continue;
    const int register_class = i < desc.getNumOperands() ? desc.operands()[i].RegClass : -1;
    const unsigned reg = Counterpart(operand.getReg(), *to, range.count, register_class);
    if (reg == 0) {
      return absl::InvalidArgumentError(absl::StrCat("operand ", i, " cannot be ",
                                                     uint32_t{range.count}, " registers from ",
                                                     RegisterName(*to), " on"));
    }
    operand.setReg(reg);
  }
  llvm::SmallVector<char, 24> code;
  llvm::SmallVector<llvm::MCFixup, 2> fixups;
  emitter_->encodeInstruction(inst, code, fixups, *target_.subtarget);
  if (!fixups.empty()) return absl::InvalidArgumentError("the instruction names a symbol");
  return std::vector<uint8_t>(code.begin(), code.end());
}

}  // namespace rjdbi::patch
