// Operand fetch and result store of the vector ALU: everything that is not the
// operation itself (modifiers, halves, SDWA, DPP, flushing, clamp, EXEC), so
// that operations are plain functions of one lane's values (valu_run.h).
//
// How wave.h is read here; decode.cpp may rely on this:
// - Implicit operands may be left out (kNone). FindVectorHandler fills in VCC
//   for: the carry-out (sdst) and carry-in (src[2]) of VOP2 adds, the selector
//   of V_CNDMASK, the mask (dst) of VOPC, src[3] of V_DIV_FMAS. The accumulator
//   of V_FMAC/V_MAC/V_DOT*C is always dst; a src[2] given for them is ignored.
// - V_FMAMK: src = {src0, K, src1}; V_FMAAK: {src0, src1, K}.
// - V_CMPX before gfx10 writes dst (VCC if kNone) and EXEC, later only EXEC.
// - imm16 of a literal is its low half; of an inline float its f16 pattern.
// - V_PERMLANE(X)16: src[0].op_sel is FI, src[1].op_sel is BOUND_CTRL.
// - V_*_MIX*: op_sel_hi true means "f16 source", op_sel its half; abs or neg_hi
//   is the absolute-value modifier.
// - op_sel_hi defaults to true; for packed forms it must be set as encoded.
// - DPP applies to src[0]; its "old" operand is dst and is not a source.
// - Spelling: both generations' names of the carry forms are accepted
//   (V_ADDC_CO_U32, V_ADDC_U32, V_ADD_CO_CI_U32), see valu_table.cpp.
// - num_sgprs == 0 means "not limited".
#ifndef TESTS_SOFTGPU_INTERP_VALU_OPERANDS_H_
#define TESTS_SOFTGPU_INTERP_VALU_OPERANDS_H_

#include <array>
#include <cstdint>

#include "tests/softgpu/interp/wave.h"

namespace softgpu::valu {

inline constexpr uint32_t kMaxLanes = 64;

// How an operand's bits are interpreted. The float kinds are flushed and
// clamped as MODE asks; kMask is one bit per lane in scalar registers.
enum class Elem : uint8_t { kU16, kF16, kU32, kF32, kU64, kF64, kMask };

constexpr bool Is16(Elem e) { return e == Elem::kU16 || e == Elem::kF16; }
constexpr bool Is64(Elem e) { return e == Elem::kU64 || e == Elem::kF64; }
constexpr bool IsFloat(Elem e) { return e == Elem::kF16 || e == Elem::kF32 || e == Elem::kF64; }

// One source, lane by lane. lo/hi point either into the register file or into
// buf; a 16-bit value is (lo[lane] >> shift) & 0xffff, a mask bit lo[lane] != 0.
struct SrcLanes {
  const uint32_t* lo = nullptr;
  const uint32_t* hi = nullptr;
  uint32_t shift = 0;
  alignas(16) uint32_t buf[2 * kMaxLanes];
};

// Results, lane by lane, before they are written.
struct OutLanes {
  alignas(16) uint32_t lo[kMaxLanes];
  alignas(16) uint32_t hi[kMaxLanes];
  uint64_t carry = 0;  // mask result, or carry-out
};

// Bits of Inst::op for vector instructions.
enum InstBits : uint16_t {
  kInstPreserveHigh = 1,  // 16-bit results leave the other half alone
};

enum class Result : uint8_t { kValue, kValueAndCarry, kMask, kMaskAndExec };

struct Shape {
  uint8_t num_src = 0;
  std::array<Elem, 4> src{};
  Elem dst = Elem::kU32;
  Result result = Result::kValue;
};

// MODE, unpacked for one float width.
struct FloatMode {
  uint8_t round = 0;  // 0 nearest even, 1 up, 2 down, 3 to zero
  bool flush_in = false, flush_out = false;
};
FloatMode ModeFor(const Wave& wave, Elem elem);
// gfx12 has neither bit; both behave as set there.
bool IeeeMode(const Wave& wave);
bool Dx10Clamp(const Wave& wave);

// False if an operand lies outside the wave's allocation.
bool RegistersAllocated(const Wave& wave, const Inst& inst, const Shape& shape);
bool InBounds(const Wave& wave, const Operand& operand, uint32_t dwords);
Step FaultRegister(Wave& wave, const Inst& inst);

// Lanes that the instruction may write: EXEC, less what DPP disables.
uint64_t WriteMaskOf(const Wave& wave, const Inst& inst);

// Fetches source i with every modifier that applies to it.
void Fetch(Wave& wave, const Inst& inst, int i, Elem elem, SrcLanes& out);
// Packed form: half 0 or 1 of source i, selected by op_sel / op_sel_hi. elem is
// kU16, kF16 (halves of a dword) or kF32 (dwords of a pair).
void FetchPacked(Wave& wave, const Inst& inst, int i, Elem elem, int half, SrcLanes& out);

// Applies omod, clamp and output flushing to float results, in place.
void FinishFloat(const Wave& wave, const Inst& inst, Elem elem, OutLanes& out);
// Writes values to dst in the lanes of mask.
void StoreValues(Wave& wave, const Inst& inst, Elem elem, const OutLanes& out, uint64_t mask);
void StoreRegister(Wave& wave, const Operand& dst, uint32_t index, const uint32_t* values,
                   uint64_t mask);
// Finish + store for any shape.
Step Store(Wave& wave, const Inst& inst, const Shape& shape, OutLanes& out, uint64_t mask);

// Scalar (lane-independent) value of an SGPR or immediate.
uint32_t Scalar32(const Wave& wave, const Operand& operand);
uint64_t Scalar64(const Wave& wave, const Operand& operand);

// Register base of a VGPR/AGPR operand.
inline uint32_t* RegisterLanes(Wave& wave, const Operand& operand, uint32_t index = 0) {
  return operand.kind == Operand::Kind::kAgpr ? wave.A(operand.reg + index)
                                              : wave.V(operand.reg + index);
}
inline uint64_t AllLanes(const Wave& wave) { return wave.lanes == 64 ? ~uint64_t{0} : 0xffffffffu; }

// Sets the host's rounding mode for a scope if it differs from nearest even.
class RoundScope {
 public:
  explicit RoundScope(uint8_t round);
  ~RoundScope();
  RoundScope(const RoundScope&) = delete;
  RoundScope& operator=(const RoundScope&) = delete;

 private:
  bool changed_;
};

}  // namespace softgpu::valu

#endif  // TESTS_SOFTGPU_INTERP_VALU_OPERANDS_H_
