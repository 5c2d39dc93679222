// Turns machine code into Inst records: LLVM's disassembler gives the text, the
// text and the raw encoding give the operands.
//
// Why from the text: LLVM's installed headers do not describe AMDGPU operand
// roles, whereas its assembly syntax is documented, stable across generations
// and complete (implicit VCC operands are spelled out). Immediates that the
// syntax prints symbolically are taken from the encoding instead.
#ifndef TESTS_SOFTGPU_INTERP_DECODE_H_
#define TESTS_SOFTGPU_INTERP_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tests/softgpu/interp/wave.h"

namespace softgpu {

// The target for a processor name, or false when it is not supported.
bool FindTarget(const std::string& gfx_name, Target* target);

class Decoder {
 public:
  // Returns nullptr, with *error set, when LLVM lacks the processor.
  static std::unique_ptr<Decoder> Create(const Target& target, bool wave64, std::string* error);
  virtual ~Decoder() = default;

  // Decodes the instruction at pc, whose bytes are readable up to `available`.
  // Always fills *inst: undecodable bytes get a handler that faults.
  virtual void Decode(uint64_t pc, const uint8_t* bytes, size_t available, Inst* inst) = 0;
};

// The interpreter's spelling of a mnemonic ("v_add_nc_u32_e64" -> "V_ADD_U32").
std::string CanonicalName(const std::string& mnemonic);

// gfx12's vector operations on scalar registers; nullptr for any other name.
Handler FindPseudoScalarHandler(Inst& inst, const Target& target);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_DECODE_H_
