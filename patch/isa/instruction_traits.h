// What LLVM's static tables say of an opcode, in our terms. Private to patch/isa.
#ifndef PATCH_ISA_INSTRUCTION_TRAITS_H_
#define PATCH_ISA_INSTRUCTION_TRAITS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "llvm/MC/MCInstrDesc.h"
#include "patch/isa/isa.h"
#include "patch/isa/llvm_target.h"

namespace rjdbi::patch {

// Bits of MCInstrDesc::TSFlags. LLVM does not install their header; the
// positions are checked by CheckFlagPositions before anything relies on them.
namespace flag {
inline constexpr uint64_t kSalu = uint64_t{1} << 0;
inline constexpr uint64_t kValu = uint64_t{1} << 1;
inline constexpr uint64_t kSopk = uint64_t{1} << 5;
inline constexpr uint64_t kSopp = uint64_t{1} << 6;
inline constexpr uint64_t kSdwa = uint64_t{1} << 14;
inline constexpr uint64_t kDpp = uint64_t{1} << 15;
inline constexpr uint64_t kTrans = uint64_t{1} << 16;
inline constexpr uint64_t kMubuf = uint64_t{1} << 17;
inline constexpr uint64_t kMtbuf = uint64_t{1} << 18;
inline constexpr uint64_t kSmem = uint64_t{1} << 19;
inline constexpr uint64_t kMimg = uint64_t{1} << 20;
inline constexpr uint64_t kFlat = uint64_t{1} << 24;
inline constexpr uint64_t kDs = uint64_t{1} << 25;
inline constexpr uint64_t kGlobal = uint64_t{1} << 51;
inline constexpr uint64_t kMai = uint64_t{1} << 54;
inline constexpr uint64_t kScratch = uint64_t{1} << 56;
}  // namespace flag

// Static facts of one LLVM opcode.
struct OpcodeTraits {
  std::string_view mnemonic;
  Instruction base;  // all fields that do not depend on the operands, sets apart
  RegisterSet defs, uses, partial_defs;  // implicit ones
  bool pc_relative = false;              // simm16 in words, from the next instruction
  bool reads_hwreg = false, writes_hwreg = false;
  bool indexes_vgprs = false, indexes_sgprs = false;  // movrel: any register may be meant
  bool reads_destination = false;  // modifies it in place; LLVM's real opcodes omit the input
  bool conditional_write = false;  // s_cmov: the destination may keep its value
  bool is_ds = false;
};

// The MCRegister of LLVM -> our registers. Index: LLVM register number.
struct RegisterMap {
  struct Range {
    uint16_t first = kNumRegisters;
    uint8_t count = 0;  // 0: nothing of ours (null, constants)
    bool condition = false;
    bool foreign = false;  // a register that our numbering lacks
  };
  std::vector<Range> ranges;
  static RegisterMap Build(const llvm::MCRegisterInfo& info);
};

OpcodeTraits BuildTraits(const LlvmTarget& target, const RegisterMap& map, const llvm::MCInst& inst,
                         uint32_t wavefront_size);

// INTERNAL: this LLVM's flag bits are elsewhere. Runs once per process.
absl::Status CheckFlagPositions();

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_INSTRUCTION_TRAITS_H_
