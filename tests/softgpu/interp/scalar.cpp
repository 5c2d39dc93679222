// Scalar instructions: SOP1, SOP2, SOPC, SOPK and SOPP. SMEM is in memory.cpp.
//
// Most operations are a lambda over one or two values; the templates below fix
// the operand widths and what happens to SCC, and kTable names them.
#include <bit>
#include <cmath>
#include <ctime>
#include <string_view>
#include <unordered_map>

#include "tests/softgpu/interp/float_bits.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu {
namespace {

uint32_t Read32(const Wave& wave, const Operand& operand) {
  return operand.kind == Operand::Kind::kImm ? operand.imm : wave.ReadS(operand.reg);
}
uint64_t Read64(const Wave& wave, const Operand& operand) {
  return operand.kind == Operand::Kind::kImm ? operand.imm64 : wave.ReadS64(operand.reg);
}

template <typename T>
T Read(const Wave& wave, const Operand& operand) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<T>(Read64(wave, operand));
  } else {
    return static_cast<T>(Read32(wave, operand));
  }
}
template <typename T>
void Write(Wave& wave, const Operand& operand, T value) {
  if constexpr (sizeof(T) == 8) {
    wave.WriteS64(operand.reg, static_cast<uint64_t>(value));
  } else {
    wave.WriteS(operand.reg, static_cast<uint32_t>(value));
  }
}

// --- Shapes ---------------------------------------------------------------

// Result only; SCC is left alone.
template <typename D, typename A, auto F>
Step Un(Wave& wave, const Inst& inst) {
  Write<D>(wave, inst.dst, F(Read<A>(wave, inst.src[0])));
  return Step::kNext;
}
template <typename D, typename A, typename B, auto F>
Step Bin(Wave& wave, const Inst& inst) {
  Write<D>(wave, inst.dst, F(Read<A>(wave, inst.src[0]), Read<B>(wave, inst.src[1])));
  return Step::kNext;
}
// SCC is "result is not zero".
template <typename D, typename A, auto F>
Step UnNz(Wave& wave, const Inst& inst) {
  const D result = F(Read<A>(wave, inst.src[0]));
  Write<D>(wave, inst.dst, result);
  wave.scc = result != 0;
  return Step::kNext;
}
template <typename D, typename A, typename B, auto F>
Step BinNz(Wave& wave, const Inst& inst) {
  const D result = F(Read<A>(wave, inst.src[0]), Read<B>(wave, inst.src[1]));
  Write<D>(wave, inst.dst, result);
  wave.scc = result != 0;
  return Step::kNext;
}
// F(a, b, scc) returns the result and sets scc itself.
template <typename T, auto F>
Step BinScc(Wave& wave, const Inst& inst) {
  bool scc = wave.scc;
  const T result = F(Read<T>(wave, inst.src[0]), Read<T>(wave, inst.src[1]), scc);
  Write<T>(wave, inst.dst, result);
  wave.scc = scc;
  return Step::kNext;
}
template <typename A, typename B, auto F>
Step Cmp(Wave& wave, const Inst& inst) {
  wave.scc = F(Read<A>(wave, inst.src[0]), Read<B>(wave, inst.src[1]));
  return Step::kNext;
}
// SOPK compare: the immediate is signed for I32, unsigned for U32.
template <typename T, auto F>
Step CmpK(Wave& wave, const Inst& inst) {
  const T k = static_cast<T>(std::is_signed_v<T> ? inst.simm : inst.simm & 0xffff);
  wave.scc = F(static_cast<T>(wave.ReadS(inst.src[0].reg)), k);
  return Step::kNext;
}

// --- Arithmetic -----------------------------------------------------------

constexpr auto kAddU32 = [](uint32_t a, uint32_t b, bool& scc) {
  const uint64_t sum = uint64_t{a} + b;
  scc = sum >> 32;
  return static_cast<uint32_t>(sum);
};
constexpr auto kAddcU32 = [](uint32_t a, uint32_t b, bool& scc) {
  const uint64_t sum = uint64_t{a} + b + scc;
  scc = sum >> 32;
  return static_cast<uint32_t>(sum);
};
constexpr auto kSubU32 = [](uint32_t a, uint32_t b, bool& scc) {
  scc = b > a;
  return a - b;
};
constexpr auto kSubbU32 = [](uint32_t a, uint32_t b, bool& scc) {
  const uint64_t subtrahend = uint64_t{b} + scc;
  scc = subtrahend > a;
  return static_cast<uint32_t>(a - subtrahend);
};
constexpr auto kAddI32 = [](int32_t a, int32_t b, bool& scc) {
  int32_t result;
  scc = __builtin_add_overflow(a, b, &result);
  return result;
};
constexpr auto kSubI32 = [](int32_t a, int32_t b, bool& scc) {
  int32_t result;
  scc = __builtin_sub_overflow(a, b, &result);
  return result;
};
template <unsigned kShift>
constexpr auto kShiftAdd = [](uint32_t a, uint32_t b, bool& scc) {
  const uint64_t sum = (uint64_t{a} << kShift) + b;
  scc = sum >> 32;
  return static_cast<uint32_t>(sum);
};
template <typename T>
constexpr auto kMin = [](T a, T b, bool& scc) {
  scc = a < b;
  return scc ? a : b;
};
template <typename T>
Step MaxOp(Wave& wave, const Inst& inst) {
  const T a = Read<T>(wave, inst.src[0]), b = Read<T>(wave, inst.src[1]);
  Write<T>(wave, inst.dst, a > b ? a : b);
  // RDNA3's manual words the flag as >=, earlier ones as >.
  wave.scc = wave.target->AtLeast11() ? a >= b : a > b;
  return Step::kNext;
}

template <typename T>
constexpr auto kAnd = [](T a, T b) { return static_cast<T>(a & b); };
template <typename T>
constexpr auto kOr = [](T a, T b) { return static_cast<T>(a | b); };
template <typename T>
constexpr auto kXor = [](T a, T b) { return static_cast<T>(a ^ b); };
template <typename T>
constexpr auto kAndn2 = [](T a, T b) { return static_cast<T>(a & ~b); };
template <typename T>
constexpr auto kOrn2 = [](T a, T b) { return static_cast<T>(a | ~b); };
template <typename T>
constexpr auto kNand = [](T a, T b) { return static_cast<T>(~(a & b)); };
template <typename T>
constexpr auto kNor = [](T a, T b) { return static_cast<T>(~(a | b)); };
template <typename T>
constexpr auto kXnor = [](T a, T b) { return static_cast<T>(~(a ^ b)); };
// For the saveexec family: the first operand complemented.
template <typename T>
constexpr auto kAndn1 = [](T a, T b) { return static_cast<T>(~a & b); };
template <typename T>
constexpr auto kOrn1 = [](T a, T b) { return static_cast<T>(~a | b); };

template <typename T>
constexpr auto kShl =
    [](T a, uint32_t b) { return static_cast<T>(a << (b & (sizeof(T) * 8 - 1))); };
template <typename T>
constexpr auto kShr =
    [](T a, uint32_t b) { return static_cast<T>(a >> (b & (sizeof(T) * 8 - 1))); };

template <typename T>
T LowMask(uint32_t width) {
  return width >= sizeof(T) * 8 ? ~T{0} : static_cast<T>((T{1} << width) - 1);
}
template <typename T>
constexpr auto kBfm = [](uint32_t a, uint32_t b) {
  constexpr uint32_t bits = sizeof(T) * 8 - 1;
  return static_cast<T>(LowMask<T>(a & bits) << (b & bits));
};
// Bit field: offset in the low bits of b, width at bit 16.
template <typename T>
constexpr auto kBfe = [](T a, uint32_t b) {
  constexpr uint32_t bits = sizeof(T) * 8;
  const uint32_t offset = b & (bits - 1);
  const uint32_t width = b >> 16 & 0x7f;
  using U = std::make_unsigned_t<T>;
  if (width == 0) return T{0};
  const U field = static_cast<U>(a >> offset) & LowMask<U>(width);
  if constexpr (std::is_signed_v<T>) {
    if (width < bits && (field >> (width - 1) & 1))
      return static_cast<T>(field | ~LowMask<U>(width));
    return static_cast<T>(field);
  } else {
    return field;
  }
};

constexpr auto kMulHiU = [](uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
};
constexpr auto kMulHiI = [](int32_t a, int32_t b) {
  return static_cast<uint32_t>(static_cast<uint64_t>(int64_t{a} * b) >> 32);
};

// --- Bit operations -------------------------------------------------------

template <typename T>
constexpr auto kNot = [](T a) { return static_cast<T>(~a); };
template <typename T>
constexpr auto kCount1 = [](T a) { return static_cast<uint32_t>(std::popcount(a)); };
template <typename T>
constexpr auto kCount0 =
    [](T a) { return static_cast<uint32_t>(std::popcount(static_cast<T>(~a))); };
template <typename T>
constexpr auto kFirst1 =
    [](T a) { return a == 0 ? ~0u : static_cast<uint32_t>(std::countr_zero(a)); };
template <typename T>
constexpr auto kFirst0 = [](T a) { return kFirst1<T>(static_cast<T>(~a)); };
template <typename T>
constexpr auto kLeading1 =
    [](T a) { return a == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(a)); };
// Leading bits equal to the sign, not counting it; -1 when all are.
template <typename T>
constexpr auto kLeadingSign = [](T a) {
  const T flipped = static_cast<T>(a >> (sizeof(T) * 8 - 1)) ? static_cast<T>(~a) : a;
  return flipped == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(flipped));
};
template <typename T>
constexpr auto kReverse = [](T a) {
  T out = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; ++i) {
    out = static_cast<T>(out << 1 | (a >> i & 1));
  }
  return out;
};
template <typename T>
constexpr auto kWholeQuad = [](T a) {
  T out = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i += 4) {
    if (a >> i & 0xf) out |= T{0xf} << i;
  }
  return out;
};
template <typename T>
constexpr auto kQuadMask = [](T a) {
  T out = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i += 4) {
    if (a >> i & 0xf) out |= T{1} << (i / 4);
  }
  return out;
};
constexpr auto kBitReplicate = [](uint32_t a) {
  uint64_t out = 0;
  for (unsigned i = 0; i < 32; ++i) out |= uint64_t{a >> i & 1} * 3 << (2 * i);
  return out;
};
constexpr auto kAbsDiff = [](int32_t a, int32_t b) {
  const int64_t difference = int64_t{a} - b;
  return static_cast<uint32_t>(difference < 0 ? -difference : difference);
};

template <typename T, bool kSet>
Step BitSet(Wave& wave, const Inst& inst) {
  const T bit = T{1} << (Read32(wave, inst.src[0]) & (sizeof(T) * 8 - 1));
  const T old = Read<T>(wave, inst.dst);
  Write<T>(wave, inst.dst, kSet ? old | bit : old & ~bit);
  return Step::kNext;
}

template <typename T, bool kOne>
Step BitCmp(Wave& wave, const Inst& inst) {
  const T value = Read<T>(wave, inst.src[0]);
  const uint32_t bit = Read32(wave, inst.src[1]) & (sizeof(T) * 8 - 1);
  wave.scc = (value >> bit & 1) == (kOne ? 1 : 0);
  return Step::kNext;
}

template <typename T>
Step CSelect(Wave& wave, const Inst& inst) {
  Write<T>(wave, inst.dst, Read<T>(wave, inst.src[wave.scc ? 0 : 1]));
  return Step::kNext;
}
template <typename T>
Step CMov(Wave& wave, const Inst& inst) {
  if (wave.scc) Write<T>(wave, inst.dst, Read<T>(wave, inst.src[0]));
  return Step::kNext;
}
Step CMovK(Wave& wave, const Inst& inst) {
  if (wave.scc) wave.WriteS(inst.dst.reg, static_cast<uint32_t>(inst.simm));
  return Step::kNext;
}
Step MovK(Wave& wave, const Inst& inst) {
  wave.WriteS(inst.dst.reg, static_cast<uint32_t>(inst.simm));
  return Step::kNext;
}
Step AddK(Wave& wave, const Inst& inst) {
  bool scc = false;
  const int32_t old = static_cast<int32_t>(wave.ReadS(inst.dst.reg));
  wave.WriteS(inst.dst.reg,
              static_cast<uint32_t>(kAddI32(old, static_cast<int32_t>(inst.simm), scc)));
  wave.scc = scc;
  return Step::kNext;
}
Step MulK(Wave& wave, const Inst& inst) {
  wave.WriteS(inst.dst.reg, wave.ReadS(inst.dst.reg) * static_cast<uint32_t>(inst.simm));
  return Step::kNext;
}

// --- EXEC -----------------------------------------------------------------

// dst = EXEC; EXEC = F(src, EXEC).
template <typename T, auto F>
Step SaveExec(Wave& wave, const Inst& inst) {
  const T exec = static_cast<T>(wave.Exec());
  const T source = Read<T>(wave, inst.src[0]);
  Write<T>(wave, inst.dst, exec);
  const T result = F(source, exec);
  Write<T>(wave, Operand{.kind = Operand::Kind::kSgpr, .reg = kExecLo}, result);
  wave.scc = result != 0;
  return Step::kNext;
}
// EXEC = F(src, EXEC); dst = EXEC.
template <typename T, auto F>
Step WriteExec(Wave& wave, const Inst& inst) {
  const T result = F(Read<T>(wave, inst.src[0]), static_cast<T>(wave.Exec()));
  Write<T>(wave, Operand{.kind = Operand::Kind::kSgpr, .reg = kExecLo}, result);
  Write<T>(wave, inst.dst, result);
  wave.scc = result != 0;
  return Step::kNext;
}

// --- Relative moves -------------------------------------------------------

Step MovRel(Wave& wave, const Inst& inst, unsigned dwords, bool source) {
  const uint32_t index = wave.ReadS(kM0);
  uint64_t from = inst.src[0].reg, to = inst.dst.reg;
  (source ? from : to) += index;
  if (from + dwords > kTtmp0 || to + dwords > kTtmp0) {
    return wave.FaultIllegal(inst, "relative register out of range");
  }
  if (dwords == 2) {
    wave.WriteS64(static_cast<uint16_t>(to), wave.ReadS64(static_cast<uint16_t>(from)));
  } else {
    wave.WriteS(static_cast<uint16_t>(to), wave.ReadS(static_cast<uint16_t>(from)));
  }
  return Step::kNext;
}
template <unsigned kDwords, bool kSource>
Step MovRelOp(Wave& wave, const Inst& inst) {
  return MovRel(wave, inst, kDwords, kSource);
}

// --- Control flow ---------------------------------------------------------

template <auto Condition>
Step Branch(Wave& wave, const Inst& inst) {
  if (!Condition(wave)) return Step::kNext;
  wave.pc = inst.target;
  return Step::kJumped;
}
constexpr auto kAlways = [](const Wave&) { return true; };
constexpr auto kNever = [](const Wave&) { return false; };
constexpr auto kScc0 = [](const Wave& w) { return !w.scc; };
constexpr auto kScc1 = [](const Wave& w) { return w.scc; };
constexpr auto kVccIsZero = [](const Wave& w) { return w.ReadMask(kVccLo) == 0; };
constexpr auto kVccNotZero = [](const Wave& w) { return w.ReadMask(kVccLo) != 0; };
constexpr auto kExecIsZero = [](const Wave& w) { return w.Exec() == 0; };
constexpr auto kExecNotZero = [](const Wave& w) { return w.Exec() != 0; };

Step GetPc(Wave& wave, const Inst& inst) {
  wave.WriteS64(inst.dst.reg, inst.pc + inst.size);
  return Step::kNext;
}
Step SetPc(Wave& wave, const Inst& inst) {
  wave.pc = Read64(wave, inst.src[0]);
  return Step::kJumped;
}
Step SwapPc(Wave& wave, const Inst& inst) {
  const uint64_t target = Read64(wave, inst.src[0]);
  wave.WriteS64(inst.dst.reg, inst.pc + inst.size);
  wave.pc = target;
  return Step::kJumped;
}
Step Call(Wave& wave, const Inst& inst) {
  wave.WriteS64(inst.dst.reg, inst.pc + inst.size);
  wave.pc = inst.target;
  return Step::kJumped;
}
Step AddPc(Wave& wave, const Inst& inst) {
  wave.pc = inst.pc + inst.size + Read64(wave, inst.src[0]);
  return Step::kJumped;
}
// Only the first 256 vector registers are modelled.
Step SetVgprMsb(Wave& wave, const Inst& inst) {
  if ((inst.simm & 0xff) != 0) return wave.FaultIllegal(inst, "vector registers beyond v255");
  return Step::kNext;
}
Step EndProgram(Wave&, const Inst&) { return Step::kEnd; }
Step Nothing(Wave&, const Inst&) { return Step::kNext; }
Step Sleep(Wave&, const Inst&) { return Step::kYield; }
Step CodeEnd(Wave& wave, const Inst& inst) { return wave.FaultIllegal(inst, "s_code_end"); }

Step Trap(Wave& wave, const Inst& inst) {
  wave.fault.kind = Fault::Kind::kTrap;
  wave.fault.pc = inst.pc;
  wave.fault.what = inst.text;
  return Step::kFault;
}

// --- Barriers -------------------------------------------------------------

Step BarrierWait(Wave& wave, const Inst&) {
  return wave.group->barriers_passed >= wave.barriers_signaled ? Step::kNext : Step::kBarrier;
}
Step BarrierSignal(Wave& wave, const Inst&) {
  ++wave.barriers_signaled;
  wave.group->SignalBarrier();
  return Step::kNext;
}
Step BarrierSignalIsFirst(Wave& wave, const Inst& inst) {
  wave.scc = wave.group->waves_at_barrier == 0;
  return BarrierSignal(wave, inst);
}
Step Barrier(Wave& wave, const Inst& inst) {
  BarrierSignal(wave, inst);
  return BarrierWait(wave, inst);
}

// --- Hardware registers ---------------------------------------------------

enum HwReg : uint32_t {
  kMode = 1,
  kStatus = 2,
  kTrapSts = 3,
  kHwId = 4,  // gfx9
  kGprAlloc = 5,
  kLdsAlloc = 6,
  kIbSts = 7,
  kShMemBases = 15,
  kXccId = 20,         // gfx940
  kFlatScrLoReg = 20,  // gfx10, gfx11
  kFlatScrHiReg = 21,
  kHwId1 = 23,  // gfx10+
  kHwId2 = 24,
  kIbSts2 = 28,  // gfx1250
  kShaderCycles = 29,
  kShaderCyclesHi = 30,
};

uint32_t StatusWord(const Wave& wave) {
  return (wave.scc ? 1u : 0u) | (wave.Exec() == 0 ? 1u << 9 : 0) |
         (wave.ReadMask(kVccLo) == 0 ? 1u << 10 : 0) | (1u << 16);  // VALID
}

// False when the generation has no such register.
bool ReadHwReg(Wave& wave, uint32_t id, uint32_t& value) {
  const Target& target = *wave.target;
  const bool ten = target.AtLeast10(), twelve = target.AtLeast12();
  switch (id) {
    case kMode:
      value = wave.mode;
      return true;
    case kStatus:
      value = StatusWord(wave);
      return true;
    case kTrapSts:
      value = 0;
      return !twelve;
    case kHwId:
      value = twelve ? StatusWord(wave) : wave.hw_id;
      return !ten || twelve;
    case kGprAlloc:
      value = wave.num_vgprs;
      return true;
    case kLdsAlloc:
      value = static_cast<uint32_t>(wave.group->lds.size() / 512) << 12;
      return true;
    case kIbSts:
      value = 0;
      return true;
    case kShMemBases:
      value = static_cast<uint32_t>(wave.private_aperture >> 48) |
              static_cast<uint32_t>(wave.shared_aperture >> 48 << 16);
      return true;
    case kFlatScrLoReg:
      value = ten ? wave.sgpr[kFlatScrLo] : 0;
      return target.gen != Gen::kGfx9;
    case kFlatScrHiReg:
      value = wave.sgpr[kFlatScrHi];
      return ten && !twelve;
    case kHwId1:
      value = wave.hw_id;
      return ten;
    case kHwId2:
      value = 0;
      return ten;
    case kShaderCycles:
      value = static_cast<uint32_t>(wave.memtime & (twelve ? 0xffffffff : 0xfffff));
      return target.gen >= Gen::kGfx10_3;
    case kShaderCyclesHi:
      value = static_cast<uint32_t>(wave.memtime >> 32);
      return twelve;
    case kIbSts2:  // [9:6]: the workgroup's place in a cluster; there are none
      value = 0;
      return target.Gfx125();
    default:
      return false;
  }
}

// simm16: register [5:0], offset [10:6], size - 1 [15:11].
struct HwField {
  uint32_t id, offset, mask;
};
HwField FieldOf(const Inst& inst) {
  const auto simm = static_cast<uint32_t>(inst.simm) & 0xffff;
  return {simm & 0x3f, simm >> 6 & 0x1f, LowMask<uint32_t>((simm >> 11) + 1)};
}

Step GetReg(Wave& wave, const Inst& inst) {
  const HwField field = FieldOf(inst);
  uint32_t value = 0;
  if (!ReadHwReg(wave, field.id, value))
    return wave.FaultIllegal(inst, "unknown hardware register");
  wave.WriteS(inst.dst.reg, value >> field.offset & field.mask);
  return Step::kNext;
}

Step SetReg(Wave& wave, const Inst& inst) {
  const HwField field = FieldOf(inst);
  const uint32_t mask = field.mask << field.offset;
  const uint32_t value = Read32(wave, inst.src[0]) << field.offset & mask;
  const bool ten = wave.target->AtLeast10();
  uint32_t* reg = nullptr;
  if (field.id == kMode) reg = &wave.mode;
  if (ten && field.id == kFlatScrLoReg) reg = &wave.sgpr[kFlatScrLo];
  if (ten && field.id == kFlatScrHiReg) reg = &wave.sgpr[kFlatScrHi];
  if (reg == nullptr) {
    // Writing exception status is how traps are re-armed; there are none here.
    if (field.id == kTrapSts) return Step::kNext;
    return wave.FaultIllegal(inst, "hardware register cannot be set");
  }
  *reg = (*reg & ~mask) | value;
  return Step::kNext;
}

Step RoundMode(Wave& wave, const Inst& inst) {
  wave.mode = (wave.mode & ~0xfu) | (static_cast<uint32_t>(inst.simm) & 0xf);
  return Step::kNext;
}
Step DenormMode(Wave& wave, const Inst& inst) {
  wave.mode = (wave.mode & ~0xf0u) | (static_cast<uint32_t>(inst.simm) & 0xf) << 4;
  return Step::kNext;
}

// --- Messages and clocks --------------------------------------------------

Step SendMsg(Wave& wave, const Inst& inst) {
  const auto message = static_cast<uint32_t>(inst.simm) & 0xffff;
  if ((message & 0xf) == 1 && wave.messages != nullptr) {
    wave.messages->OnMessage(message, wave.ReadS(kM0));
  }
  return Step::kNext;
}

uint64_t RealTime() {  // the constant 100 MHz clock
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 100000000 + static_cast<uint64_t>(now.tv_nsec) / 10;
}

Step SendMsgRtn(Wave& wave, const Inst& inst) {
  const uint32_t message = inst.raw[0] & 0xff;  // ssrc0 holds the message id
  uint64_t value = 0;
  if (message == 0x83) {
    value = RealTime();
  } else if (message != 0x80) {  // 0x80: doorbell id, 0 here
    return wave.FaultIllegal(inst, "message not supported");
  }
  if (inst.name.ends_with("B64")) {
    wave.WriteS64(inst.dst.reg, value);
  } else {
    wave.WriteS(inst.dst.reg, static_cast<uint32_t>(value));
  }
  return Step::kNext;
}

Step MemTime(Wave& wave, const Inst& inst) {
  wave.WriteS64(inst.dst.reg, wave.memtime);
  return Step::kNext;
}
Step MemRealTime(Wave& wave, const Inst& inst) {
  wave.WriteS64(inst.dst.reg, RealTime());
  return Step::kNext;
}

// --- Scalar float (gfx11.5, gfx12) ----------------------------------------

template <auto F>
Step BinF32(Wave& wave, const Inst& inst) {
  const float a = std::bit_cast<float>(Read32(wave, inst.src[0]));
  const float b = std::bit_cast<float>(Read32(wave, inst.src[1]));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(static_cast<float>(F(a, b))));
  return Step::kNext;
}
template <auto F>
Step UnF32(Wave& wave, const Inst& inst) {
  const float a = std::bit_cast<float>(Read32(wave, inst.src[0]));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(static_cast<float>(F(a))));
  return Step::kNext;
}
template <auto F>
Step CmpF32(Wave& wave, const Inst& inst) {
  wave.scc = F(std::bit_cast<float>(Read32(wave, inst.src[0])),
               std::bit_cast<float>(Read32(wave, inst.src[1])));
  return Step::kNext;
}
Step FmacF32(Wave& wave, const Inst& inst) {
  const float a = std::bit_cast<float>(Read32(wave, inst.src[0]));
  const float b = std::bit_cast<float>(Read32(wave, inst.src[1]));
  const float c = std::bit_cast<float>(wave.ReadS(inst.dst.reg));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(std::fma(a, b, c)));
  return Step::kNext;
}
// Three sources; fmaak and fmamk spell them in this order too.
Step FmaF32(Wave& wave, const Inst& inst) {
  const float a = std::bit_cast<float>(Read32(wave, inst.src[0]));
  const float b = std::bit_cast<float>(Read32(wave, inst.src[1]));
  const float c = std::bit_cast<float>(Read32(wave, inst.src[2]));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(std::fma(a, b, c)));
  return Step::kNext;
}
template <typename T>
Step FloatToInt(Wave& wave, const Inst& inst) {
  const float a = std::bit_cast<float>(Read32(wave, inst.src[0]));
  wave.WriteS(inst.dst.reg, static_cast<uint32_t>(SaturatingConvert<T>(a)));
  return Step::kNext;
}
template <typename T>
Step IntToFloat(Wave& wave, const Inst& inst) {
  const auto value = static_cast<float>(static_cast<T>(Read32(wave, inst.src[0])));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(value));
  return Step::kNext;
}
Step FloatToHalfOp(Wave& wave, const Inst& inst) {
  wave.WriteS(inst.dst.reg, FloatToHalf(std::bit_cast<float>(Read32(wave, inst.src[0]))));
  return Step::kNext;
}
Step HalfToFloatOp(Wave& wave, const Inst& inst) {
  const auto half = static_cast<uint16_t>(Read32(wave, inst.src[0]));
  wave.WriteS(inst.dst.reg, std::bit_cast<uint32_t>(HalfToFloat(half)));
  return Step::kNext;
}

// --- Names ----------------------------------------------------------------

struct Entry {
  std::string_view name;
  Handler handler;
};

using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

#define SOFTGPU_LOGIC(NAME, F)                        \
  {"S_" NAME "_B32", BinNz<u32, u32, u32, F<u32>>}, { \
    "S_" NAME "_B64", BinNz<u64, u64, u64, F<u64>>    \
  }
#define SOFTGPU_SAVEEXEC(NAME, F)                       \
  {"S_" NAME "_SAVEEXEC_B32", SaveExec<u32, F<u32>>}, { \
    "S_" NAME "_SAVEEXEC_B64", SaveExec<u64, F<u64>>    \
  }
#define SOFTGPU_CMP(NAME, OP)                                                       \
  {"S_CMP_" NAME "_I32", Cmp<i32, i32, [](i32 a, i32 b) { return (a OP b); }>},     \
      {"S_CMP_" NAME "_U32", Cmp<u32, u32, [](u32 a, u32 b) { return (a OP b); }>}, \
      {"S_CMPK_" NAME "_I32", CmpK<i32, [](i32 a, i32 b) { return (a OP b); }>}, {  \
    "S_CMPK_" NAME "_U32", CmpK<u32, [](u32 a, u32 b) { return (a OP b); }>         \
  }
#define SOFTGPU_CMPF(NAME, EXPR)                                          \
  {                                                                       \
    "S_CMP_" NAME "_F32", CmpF32<[](float a, float b) { return (EXPR); }> \
  }

constexpr Entry kTable[] = {
    // SOP2 arithmetic.
    {"S_ADD_U32", BinScc<u32, kAddU32>},
    {"S_SUB_U32", BinScc<u32, kSubU32>},
    {"S_ADD_I32", BinScc<i32, kAddI32>},
    {"S_SUB_I32", BinScc<i32, kSubI32>},
    {"S_ADDC_U32", BinScc<u32, kAddcU32>},
    {"S_SUBB_U32", BinScc<u32, kSubbU32>},
    {"S_ADD_U64", Bin<u64, u64, u64, [](u64 a, u64 b) { return a + b; }>},
    {"S_SUB_U64", Bin<u64, u64, u64, [](u64 a, u64 b) { return a - b; }>},
    {"S_MUL_U64", Bin<u64, u64, u64, [](u64 a, u64 b) { return a * b; }>},
    {"S_MUL_I32", Bin<u32, u32, u32, [](u32 a, u32 b) { return a * b; }>},
    {"S_MUL_HI_U32", Bin<u32, u32, u32, kMulHiU>},
    {"S_MUL_HI_I32", Bin<u32, i32, i32, kMulHiI>},
    {"S_LSHL1_ADD_U32", BinScc<u32, kShiftAdd<1>>},
    {"S_LSHL2_ADD_U32", BinScc<u32, kShiftAdd<2>>},
    {"S_LSHL3_ADD_U32", BinScc<u32, kShiftAdd<3>>},
    {"S_LSHL4_ADD_U32", BinScc<u32, kShiftAdd<4>>},
    {"S_ABSDIFF_I32", BinNz<u32, i32, i32, kAbsDiff>},
    {"S_MIN_I32", BinScc<i32, kMin<i32>>},
    {"S_MIN_U32", BinScc<u32, kMin<u32>>},
    {"S_MAX_I32", MaxOp<i32>},
    {"S_MAX_U32", MaxOp<u32>},
    // SOP2 logic and shifts.
    SOFTGPU_LOGIC("AND", kAnd),
    SOFTGPU_LOGIC("OR", kOr),
    SOFTGPU_LOGIC("XOR", kXor),
    SOFTGPU_LOGIC("ANDN2", kAndn2),
    SOFTGPU_LOGIC("ORN2", kOrn2),
    SOFTGPU_LOGIC("NAND", kNand),
    SOFTGPU_LOGIC("NOR", kNor),
    SOFTGPU_LOGIC("XNOR", kXnor),
    {"S_LSHL_B32", BinNz<u32, u32, u32, kShl<u32>>},
    {"S_LSHL_B64", BinNz<u64, u64, u32, kShl<u64>>},
    {"S_LSHR_B32", BinNz<u32, u32, u32, kShr<u32>>},
    {"S_LSHR_B64", BinNz<u64, u64, u32, kShr<u64>>},
    {"S_ASHR_I32", BinNz<i32, i32, u32, kShr<i32>>},
    {"S_ASHR_I64", BinNz<i64, i64, u32, kShr<i64>>},
    {"S_BFM_B32", Bin<u32, u32, u32, kBfm<u32>>},
    {"S_BFM_B64", Bin<u64, u32, u32, kBfm<u64>>},
    {"S_BFE_U32", BinNz<u32, u32, u32, kBfe<u32>>},
    {"S_BFE_I32", BinNz<i32, i32, u32, kBfe<i32>>},
    {"S_BFE_U64", BinNz<u64, u64, u32, kBfe<u64>>},
    {"S_BFE_I64", BinNz<i64, i64, u32, kBfe<i64>>},
    {"S_PACK_LL_B32_B16", Bin<u32, u32, u32, [](u32 a, u32 b) { return (a & 0xffff) | b << 16; }>},
    {"S_PACK_LH_B32_B16",
     Bin<u32, u32, u32, [](u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }>},
    {"S_PACK_HH_B32_B16",
     Bin<u32, u32, u32, [](u32 a, u32 b) { return (a >> 16 | (b & 0xffff0000)); }>},
    {"S_PACK_HL_B32_B16", Bin<u32, u32, u32, [](u32 a, u32 b) { return (a >> 16 | b << 16); }>},
    {"S_CSELECT_B32", CSelect<u32>},
    {"S_CSELECT_B64", CSelect<u64>},
    // SOP1.
    {"S_MOV_B32", Un<u32, u32, [](u32 a) { return a; }>},
    {"S_MOV_B64", Un<u64, u64, [](u64 a) { return a; }>},
    {"S_CMOV_B32", CMov<u32>},
    {"S_CMOV_B64", CMov<u64>},
    {"S_NOT_B32", UnNz<u32, u32, kNot<u32>>},
    {"S_NOT_B64", UnNz<u64, u64, kNot<u64>>},
    {"S_WQM_B32", UnNz<u32, u32, kWholeQuad<u32>>},
    {"S_WQM_B64", UnNz<u64, u64, kWholeQuad<u64>>},
    {"S_QUADMASK_B32", UnNz<u32, u32, kQuadMask<u32>>},
    {"S_QUADMASK_B64", UnNz<u64, u64, kQuadMask<u64>>},
    {"S_BREV_B32", Un<u32, u32, kReverse<u32>>},
    {"S_BREV_B64", Un<u64, u64, kReverse<u64>>},
    {"S_BCNT0_I32_B32", UnNz<u32, u32, kCount0<u32>>},
    {"S_BCNT0_I32_B64", UnNz<u32, u64, kCount0<u64>>},
    {"S_BCNT1_I32_B32", UnNz<u32, u32, kCount1<u32>>},
    {"S_BCNT1_I32_B64", UnNz<u32, u64, kCount1<u64>>},
    {"S_FF0_I32_B32", Un<u32, u32, kFirst0<u32>>},
    {"S_FF0_I32_B64", Un<u32, u64, kFirst0<u64>>},
    {"S_FF1_I32_B32", Un<u32, u32, kFirst1<u32>>},
    {"S_FF1_I32_B64", Un<u32, u64, kFirst1<u64>>},
    {"S_FLBIT_I32_B32", Un<u32, u32, kLeading1<u32>>},
    {"S_FLBIT_I32_B64", Un<u32, u64, kLeading1<u64>>},
    {"S_FLBIT_I32", Un<u32, u32, kLeadingSign<u32>>},
    {"S_FLBIT_I32_I64", Un<u32, u64, kLeadingSign<u64>>},
    {"S_SEXT_I32_I8",
     Un<u32, u32, [](u32 a) { return (static_cast<u32>(static_cast<int8_t>(a))); }>},
    {"S_SEXT_I32_I16",
     Un<u32, u32, [](u32 a) { return (static_cast<u32>(static_cast<int16_t>(a))); }>},
    {"S_BITSET0_B32", BitSet<u32, false>},
    {"S_BITSET0_B64", BitSet<u64, false>},
    {"S_BITSET1_B32", BitSet<u32, true>},
    {"S_BITSET1_B64", BitSet<u64, true>},
    {"S_BITREPLICATE_B64_B32", Un<u64, u32, kBitReplicate>},
    {"S_ABS_I32", UnNz<u32, u32, [](u32 a) { return (a >> 31 ? 0 - a : a); }>},
    SOFTGPU_SAVEEXEC("AND", kAnd),
    SOFTGPU_SAVEEXEC("OR", kOr),
    SOFTGPU_SAVEEXEC("XOR", kXor),
    SOFTGPU_SAVEEXEC("NAND", kNand),
    SOFTGPU_SAVEEXEC("NOR", kNor),
    SOFTGPU_SAVEEXEC("XNOR", kXnor),
    SOFTGPU_SAVEEXEC("ANDN1", kAndn1),
    SOFTGPU_SAVEEXEC("ANDN2", kAndn2),
    SOFTGPU_SAVEEXEC("ORN1", kOrn1),
    SOFTGPU_SAVEEXEC("ORN2", kOrn2),
    {"S_ANDN1_WREXEC_B32", WriteExec<u32, kAndn1<u32>>},
    {"S_ANDN1_WREXEC_B64", WriteExec<u64, kAndn1<u64>>},
    {"S_ANDN2_WREXEC_B32", WriteExec<u32, kAndn2<u32>>},
    {"S_ANDN2_WREXEC_B64", WriteExec<u64, kAndn2<u64>>},
    {"S_MOVRELS_B32", MovRelOp<1, true>},
    {"S_MOVRELS_B64", MovRelOp<2, true>},
    {"S_MOVRELD_B32", MovRelOp<1, false>},
    {"S_MOVRELD_B64", MovRelOp<2, false>},
    // SOPC.
    SOFTGPU_CMP("EQ", ==),
    SOFTGPU_CMP("LG", !=),
    SOFTGPU_CMP("GT", >),
    SOFTGPU_CMP("GE", >=),
    SOFTGPU_CMP("LT", <),
    SOFTGPU_CMP("LE", <=),
    {"S_CMP_EQ_U64", Cmp<u64, u64, [](u64 a, u64 b) { return a == b; }>},
    {"S_CMP_LG_U64", Cmp<u64, u64, [](u64 a, u64 b) { return a != b; }>},
    {"S_BITCMP0_B32", BitCmp<u32, false>},
    {"S_BITCMP1_B32", BitCmp<u32, true>},
    {"S_BITCMP0_B64", BitCmp<u64, false>},
    {"S_BITCMP1_B64", BitCmp<u64, true>},
    // SOPK.
    {"S_MOVK_I32", MovK},
    {"S_CMOVK_I32", CMovK},
    {"S_ADDK_I32", AddK},
    {"S_MULK_I32", MulK},
    {"S_GETREG_B32", GetReg},
    {"S_SETREG_B32", SetReg},
    {"S_SETREG_IMM32_B32", SetReg},
    {"S_CALL_B64", Call},
    {"S_VERSION", Nothing},
    // Control flow.
    {"S_BRANCH", Branch<kAlways>},
    {"S_CBRANCH_SCC0", Branch<kScc0>},
    {"S_CBRANCH_SCC1", Branch<kScc1>},
    {"S_CBRANCH_VCCZ", Branch<kVccIsZero>},
    {"S_CBRANCH_VCCNZ", Branch<kVccNotZero>},
    {"S_CBRANCH_EXECZ", Branch<kExecIsZero>},
    {"S_CBRANCH_EXECNZ", Branch<kExecNotZero>},
    {"S_CBRANCH_CDBGSYS", Branch<kNever>},
    {"S_CBRANCH_CDBGUSER", Branch<kNever>},
    {"S_CBRANCH_CDBGSYS_OR_USER", Branch<kNever>},
    {"S_CBRANCH_CDBGSYS_AND_USER", Branch<kNever>},
    {"S_GETPC_B64", GetPc},
    {"S_SETPC_B64", SetPc},
    {"S_SWAPPC_B64", SwapPc},
    {"S_ENDPGM", EndProgram},
    {"S_ENDPGM_SAVED", EndProgram},
    {"S_CODE_END", CodeEnd},
    {"S_TRAP", Trap},
    {"S_BARRIER", Barrier},
    {"S_BARRIER_SIGNAL", BarrierSignal},
    {"S_BARRIER_SIGNAL_ISFIRST", BarrierSignalIsFirst},
    {"S_BARRIER_WAIT", BarrierWait},
    {"S_SLEEP", Sleep},
    {"S_SLEEP_VAR", Sleep},
    {"S_WAKEUP", Nothing},
    {"S_ROUND_MODE", RoundMode},
    {"S_DENORM_MODE", DenormMode},
    {"S_SENDMSG", SendMsg},
    {"S_SENDMSG_RTN_B32", SendMsgRtn},
    {"S_SENDMSG_RTN_B64", SendMsgRtn},
    {"S_MEMTIME", MemTime},
    {"S_MEMREALTIME", MemRealTime},
    // Nothing is outstanding, cached or prefetched here.
    {"S_NOP", Nothing},
    {"S_WAITCNT", Nothing},
    {"S_WAITCNT_VSCNT", Nothing},
    {"S_WAITCNT_VMCNT", Nothing},
    {"S_WAITCNT_EXPCNT", Nothing},
    {"S_WAITCNT_LGKMCNT", Nothing},
    {"S_WAITCNT_DEPCTR", Nothing},
    {"S_WAIT_LOADCNT", Nothing},
    {"S_WAIT_STORECNT", Nothing},
    {"S_WAIT_SAMPLECNT", Nothing},
    {"S_WAIT_BVHCNT", Nothing},
    {"S_WAIT_EXPCNT", Nothing},
    {"S_WAIT_DSCNT", Nothing},
    {"S_WAIT_KMCNT", Nothing},
    {"S_WAIT_LOADCNT_DSCNT", Nothing},
    {"S_WAIT_STORECNT_DSCNT", Nothing},
    {"S_WAIT_XCNT", Nothing},
    {"S_WAIT_ASYNCCNT", Nothing},
    {"S_WAIT_TENSORCNT", Nothing},
    {"S_SET_VGPR_MSB", SetVgprMsb},
    {"S_ADD_PC_I64", AddPc},
    {"S_WAIT_IDLE", Nothing},
    {"S_WAIT_EVENT", Nothing},
    {"S_WAIT_ALU", Nothing},
    {"S_CLAUSE", Nothing},
    {"S_DELAY_ALU", Nothing},
    {"S_INST_PREFETCH", Nothing},
    {"S_SET_INST_PREFETCH_DISTANCE", Nothing},
    {"S_SETPRIO", Nothing},
    {"S_INCPERFLEVEL", Nothing},
    {"S_DECPERFLEVEL", Nothing},
    {"S_TTRACEDATA", Nothing},
    {"S_TTRACEDATA_IMM", Nothing},
    {"S_ICACHE_INV", Nothing},
    {"S_DCACHE_INV", Nothing},
    {"S_DCACHE_INV_VOL", Nothing},
    {"S_DCACHE_WB", Nothing},
    {"S_DCACHE_WB_VOL", Nothing},
    {"S_DCACHE_DISCARD", Nothing},
    {"S_DCACHE_DISCARD_X2", Nothing},
    {"S_GL1_INV", Nothing},
    {"S_PREFETCH_INST", Nothing},
    {"S_PREFETCH_INST_PC_REL", Nothing},
    {"S_PREFETCH_DATA", Nothing},
    {"S_PREFETCH_DATA_PC_REL", Nothing},
    {"S_BUFFER_PREFETCH_DATA", Nothing},
    // Scalar float.
    {"S_ADD_F32", BinF32<[](float a, float b) { return a + b; }>},
    {"S_SUB_F32", BinF32<[](float a, float b) { return a - b; }>},
    {"S_MUL_F32", BinF32<[](float a, float b) { return a * b; }>},
    {"S_MIN_F32", BinF32<[](float a, float b) { return std::fmin(a, b); }>},
    {"S_MAX_F32", BinF32<[](float a, float b) { return std::fmax(a, b); }>},
    {"S_MIN_NUM_F32", BinF32<[](float a, float b) { return std::fmin(a, b); }>},
    {"S_MAX_NUM_F32", BinF32<[](float a, float b) { return std::fmax(a, b); }>},
    {"S_FMAC_F32", FmacF32},
    {"S_FMAAK_F32", FmaF32},
    {"S_FMAMK_F32", FmaF32},
    {"S_CEIL_F32", UnF32<[](float a) { return std::ceil(a); }>},
    {"S_FLOOR_F32", UnF32<[](float a) { return std::floor(a); }>},
    {"S_TRUNC_F32", UnF32<[](float a) { return std::trunc(a); }>},
    {"S_RNDNE_F32", UnF32<[](float a) { return std::nearbyint(a); }>},
    {"S_CVT_F32_I32", IntToFloat<i32>},
    {"S_CVT_F32_U32", IntToFloat<u32>},
    {"S_CVT_I32_F32", FloatToInt<i32>},
    {"S_CVT_U32_F32", FloatToInt<u32>},
    {"S_CVT_F16_F32", FloatToHalfOp},
    {"S_CVT_F32_F16", HalfToFloatOp},
    SOFTGPU_CMPF("LT", a < b),
    SOFTGPU_CMPF("EQ", a == b),
    SOFTGPU_CMPF("LE", a <= b),
    SOFTGPU_CMPF("GT", a > b),
    SOFTGPU_CMPF("LG", a<b || a> b),
    SOFTGPU_CMPF("GE", a >= b),
    SOFTGPU_CMPF("O", !std::isunordered(a, b)),
    SOFTGPU_CMPF("U", std::isunordered(a, b)),
    SOFTGPU_CMPF("NGE", !(a >= b)),
    SOFTGPU_CMPF("NLG", !(a < b || a > b)),
    SOFTGPU_CMPF("NGT", !(a > b)),
    SOFTGPU_CMPF("NLE", !(a <= b)),
    SOFTGPU_CMPF("NEQ", !(a == b)),
    SOFTGPU_CMPF("NLT", !(a < b)),
};

}  // namespace

Handler FindScalarHandler(Inst& inst, const Target&) {
  static const auto& map = *new std::unordered_map<std::string_view, Handler>([] {
    std::unordered_map<std::string_view, Handler> handlers;
    for (const Entry& entry : kTable) handlers.emplace(entry.name, entry.handler);
    return handlers;
  }());
  const auto it = map.find(inst.name);
  return it == map.end() ? nullptr : it->second;
}

}  // namespace softgpu
