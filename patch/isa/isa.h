// The instruction set behind one narrow interface: decode, print, assemble.
// LLVM MC does the work; no LLVM type appears here. One Isa per thread.
//
// Register effects are those of the instruction alone: between s_set_gpr_idx_on
// and s_set_gpr_idx_off (gfx9) vector operands are indexed by M0 in addition,
// and a region must be recognised by the caller. v_movrel* and s_movrel* claim
// the whole register file. In wave32, implicit VCC and EXEC are the low halves.
#ifndef PATCH_ISA_ISA_H_
#define PATCH_ISA_ISA_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/generation.h"
#include "patch/isa/register_set.h"

namespace rjdbi::patch {

enum class MemoryKind : uint8_t {
  kNone,
  kGlobal,
  kFlat,
  kScratch,
  kLds,
  kGds,
  kScalar,
  kBuffer,
  kImage
};

struct InstructionOperand {
  enum class Kind : uint8_t { kRegister, kImmediate };
  int64_t imm = 0;
  uint16_t reg = 0;   // Register; first of `count`
  uint8_t count = 1;  // consecutive registers
  Kind kind = Kind::kImmediate;
  bool is_def = false;
  bool condition = false;  // vccz, execz: a condition of the registers, not their value
};

// One decoded instruction. Offsets are relative to the span that was decoded.
// Cheap to copy: register sets and operands belong to the Isa that decoded it,
// which must outlive it.
struct Instruction {
  uint64_t offset = 0;
  // The same for equal encodings that one Isa decoded, and dense: what somebody works out
  // for an encoding can be kept in a vector.
  uint32_t id = 0;
  uint8_t size = 0;  // bytes: 4, 8, 12 (up to 20)
  // Assembler mnemonic in the generation's spelling, without an encoding suffix
  // (_e32, _e64, _dpp, _sdwa): "ds_add_u32". Static storage.
  std::string_view opcode;
  RegisterSetRef defs, uses;  // explicit and implicit
  // Subset of defs: written only under EXEC, conditionally or in part: never a
  // kill. Every vector register def is here.
  RegisterSetRef partial_defs;
  // LLVM's order, destinations first; immediates include modifiers and offsets;
  // null and constant registers appear as immediate 0.
  absl::Span<const InstructionOperand> operands;

  // Control flow.
  bool branch = false, conditional = false, indirect = false, call = false, ends_program = false;
  bool barrier = false;
  std::optional<int64_t> target_offset;  // direct branches: from the span's start; may lie outside

  bool reads_pc = false;      // s_getpc and kin
  bool is_clause = false;     // s_clause; clause_length follows
  uint8_t clause_length = 0;  // instructions covered after this one
  bool valu = false, salu = false, trans = false, mfma = false;
  // Reads and writes vector registers in the active lanes alone, each lane its own.
  bool lanewise = false;
  // And writes every bit of its vector destinations there. False: not known.
  bool writes_whole = false;
  MemoryKind memory = MemoryKind::kNone;
  // Mutually exclusive. returns_value: the atomic writes the old value.
  bool load = false, store = false, atomic = false, returns_value = false;
  bool waitcnt = false;  // any s_waitcnt form
  bool sendmsg = false, trap = false, setreg = false;
  bool scales_offset = false;  // gfx1250: the register offset counts elements, not bytes
  int64_t memory_offset = 0;   // instruction offset of memory forms (first of two for DS)
};

// By Register: which one stands in its place.
using RegisterRenaming = std::array<uint16_t, kNumRegisters>;
RegisterRenaming NoRenaming();

// Major version of the LLVM in use: what is decoded and assembled depends on it.
int LlvmVersion();

class Isa {
 public:
  // UNIMPLEMENTED: LLVM lacks the processor. wavefront_size: 32 or 64.
  static absl::StatusOr<std::unique_ptr<Isa>> Create(const TargetId& target,
                                                     uint32_t wavefront_size);
  virtual ~Isa() = default;

  virtual const Generation& generation() const = 0;
  virtual uint32_t wavefront_size() const = 0;

  // nullopt: undecodable at that offset. A pure function of the bytes: the
  // shortest prefix that LLVM takes for an instruction is that instruction, and
  // is decoded once.
  virtual std::optional<Instruction> Decode(absl::Span<const uint8_t> code, uint64_t offset) = 0;
  // The same without a copy, as if it had been decoded at offset 0. nullptr:
  // undecodable. Owned by the Isa.
  virtual const Instruction* DecodeShared(absl::Span<const uint8_t> code, uint64_t offset) = 0;
  // Disassembly, LLVM's spelling, whitespace normalised to single blanks.
  virtual std::string Print(absl::Span<const uint8_t> code, uint64_t offset) = 0;
  // Assembles text (several lines allowed, no labels or directives).
  // INVALID_ARGUMENT with the assembler's message and line.
  virtual absl::StatusOr<std::vector<uint8_t>> Assemble(std::string_view text) = 0;
  // The instruction at `offset` with other registers in its operands; SGPRs,
  // VGPRs and AGPRs alone, implicit registers stay. The result decodes to the
  // same instruction but for these. INVALID_ARGUMENT: there is no such
  // instruction (registers of an operand torn apart, alignment, a limit of the
  // encoding), or the bytes do not decode.
  virtual absl::StatusOr<std::vector<uint8_t>> Rename(absl::Span<const uint8_t> code,
                                                      uint64_t offset,
                                                      const RegisterRenaming& renaming) = 0;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_ISA_H_
