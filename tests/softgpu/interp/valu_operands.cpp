// Operand fetch and result store of the vector ALU. Hardware facts are from
// AMD's "Vega", "MI200", "RDNA 2/3/4" ISA guides (DPP, SDWA, MODE chapters).
#include "tests/softgpu/interp/valu_operands.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>

#include "tests/softgpu/interp/valu_float.h"
#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

using Kind = Operand::Kind;

constexpr auto kLaneBits = [] {
  std::array<uint32_t, 32> bits{};
  for (uint32_t i = 0; i < 32; ++i) bits[i] = uint32_t{1} << i;
  return bits;
}();

// One bit per lane to one word per lane, zero or not.
void ExpandMask(uint64_t mask, uint32_t lanes, uint32_t* words) {
  for (uint32_t base = 0; base < lanes; base += 32) {
    const uint32_t part = static_cast<uint32_t>(mask >> base);
    for (uint32_t i = 0; i < 32; ++i) words[base + i] = part & kLaneBits[i];
  }
}

constexpr uint32_t kInvalidLane = ~uint32_t{0};

// The lane that `lane` reads under a dpp_ctrl, or kInvalidLane.
uint32_t DppSource(uint32_t ctrl, uint32_t lane, uint32_t lanes) {
  const uint32_t row = lane & ~15u, col = lane & 15u, n = ctrl & 15u;
  if (ctrl < 0x100) return (lane & ~3u) | (ctrl >> (2 * (lane & 3)) & 3);
  switch (ctrl & 0x1f0) {
    case 0x100:
      return col + n < 16 ? row + col + n : kInvalidLane;  // row_shl
    case 0x110:
      return col >= n ? row + col - n : kInvalidLane;  // row_shr
    case 0x120:
      return row | ((col - n) & 15u);  // row_ror
    case 0x150:
      return row | n;  // row_share, row_newbcast
    case 0x160:
      return row | (col ^ n);  // row_xmask
    default:
      break;
  }
  switch (ctrl) {
    case 0x130:
      return lane + 1 < lanes ? lane + 1 : kInvalidLane;  // wave_shl
    case 0x134:
      return (lane + 1) & (lanes - 1);  // wave_rol
    case 0x138:
      return lane > 0 ? lane - 1 : kInvalidLane;  // wave_shr
    case 0x13c:
      return (lane - 1) & (lanes - 1);  // wave_ror
    case 0x140:
      return row | (15u - col);  // row_mirror
    case 0x141:
      return (lane & ~7u) | (7u - (lane & 7u));  // row_half_mirror
    case 0x142:
      return row >= 16 ? row - 1 : kInvalidLane;  // row_bcast:15
    case 0x143:
      return lane >= 32 ? 31 : kInvalidLane;  // row_bcast:31
    default:
      return kInvalidLane;
  }
}

struct DppLanes {
  uint8_t from[kMaxLanes];
  uint64_t valid = 0;  // lanes whose source may be read
};

DppLanes ResolveDpp(const Wave& w, const Dpp& dpp) {
  DppLanes d;
  const uint64_t exec = w.Exec();
  for (uint32_t lane = 0; lane < w.lanes; ++lane) {
    const uint32_t from = dpp.dpp8 ? (lane & ~7u) | (dpp.ctrl >> (3 * (lane & 7)) & 7)
                                   : DppSource(dpp.ctrl, lane, w.lanes);
    const bool ok = from < w.lanes && (dpp.fi || (exec >> from & 1));
    d.from[lane] = static_cast<uint8_t>(ok ? from : 0);
    d.valid |= uint64_t{ok} << lane;
  }
  return d;
}

uint32_t SelectSdwa(uint32_t v, uint8_t sel, bool sext) {
  if (sel < 4) {
    const uint32_t b = v >> (8 * sel) & 0xff;
    return sext ? static_cast<uint32_t>(static_cast<int8_t>(b)) : b;
  }
  if (sel < 6) {
    const uint32_t h = v >> (16 * (sel - 4)) & 0xffff;
    return sext ? static_cast<uint32_t>(static_cast<int16_t>(h)) : h;
  }
  return v;
}

// Points lo/hi at a VGPR, or fills them with a scalar.
void FetchRaw(Wave& w, const Operand& o, Elem elem, SrcLanes& out) {
  if (o.kind == Kind::kVgpr || o.kind == Kind::kAgpr) {
    out.lo = RegisterLanes(w, o);
    if (Is64(elem)) out.hi = RegisterLanes(w, o, 1);
    return;
  }
  out.lo = out.buf;
  if (Is64(elem)) {
    const uint64_t v = Scalar64(w, o);
    out.hi = out.buf + kMaxLanes;
    std::fill_n(out.buf, w.lanes, static_cast<uint32_t>(v));
    std::fill_n(out.buf + kMaxLanes, w.lanes, static_cast<uint32_t>(v >> 32));
    return;
  }
  const uint32_t v = Is16(elem) && o.kind == Kind::kImm ? o.imm16 : Scalar32(w, o);
  std::fill_n(out.buf, w.lanes, v);
}

// Makes the values private to `out`, so that they may be changed.
void Own(const Wave& w, Elem elem, SrcLanes& out) {
  if (out.lo != out.buf) std::copy_n(out.lo, w.lanes, out.buf);
  if (Is64(elem) && out.hi != out.buf + kMaxLanes) {
    std::copy_n(out.hi, w.lanes, out.buf + kMaxLanes);
    out.hi = out.buf + kMaxLanes;
  }
  out.lo = out.buf;
  if (out.shift != 0) {
    for (uint32_t l = 0; l < w.lanes; ++l) out.buf[l] >>= out.shift;
    out.shift = 0;
  }
}

void ApplyDpp(const Wave& w, const Dpp& dpp, Elem elem, SrcLanes& out) {
  const DppLanes d = ResolveDpp(w, dpp);
  uint32_t lo[kMaxLanes], hi[kMaxLanes];
  for (uint32_t l = 0; l < w.lanes; ++l) {
    const bool ok = d.valid >> l & 1;
    lo[l] = ok ? out.lo[d.from[l]] : 0;
    hi[l] = ok && Is64(elem) ? out.hi[d.from[l]] : 0;
  }
  std::copy_n(lo, w.lanes, out.buf);
  out.lo = out.buf;
  if (Is64(elem)) {
    std::copy_n(hi, w.lanes, out.buf + kMaxLanes);
    out.hi = out.buf + kMaxLanes;
  }
}

void ApplySigns(const Wave& w, Elem elem, bool neg, bool abs, SrcLanes& out) {
  Own(w, elem, out);
  const uint32_t sign = Is16(elem) ? 0x8000u : 0x80000000u;
  uint32_t* v = out.buf + (Is64(elem) ? kMaxLanes : 0);
  const uint32_t keep = abs ? ~sign : ~0u, flip = neg ? sign : 0;
  for (uint32_t l = 0; l < w.lanes; ++l) v[l] = (v[l] & keep) ^ flip;
}

void FlushInputs(const Wave& w, Elem elem, SrcLanes& out) {
  Own(w, elem, out);
  for (uint32_t l = 0; l < w.lanes; ++l) {
    if (elem == Elem::kF16) {
      if (!(out.buf[l] & 0x7c00u)) out.buf[l] &= 0x8000u;
    } else if (elem == Elem::kF32) {
      if (!(out.buf[l] & 0x7f800000u)) out.buf[l] &= 0x80000000u;
    } else if (!(out.buf[kMaxLanes + l] & 0x7ff00000u)) {
      out.buf[kMaxLanes + l] &= 0x80000000u;
      out.buf[l] = 0;
    }
  }
}

float ClampUnit(float v, bool dx10) {
  if (IsNan(v)) return dx10 ? 0.0f : v;
  return v > 1.0f ? 1.0f : (v > 0.0f ? v : 0.0f);
}
double ClampUnit(double v, bool dx10) {
  if (IsNan(v)) return dx10 ? 0.0 : v;
  return v > 1.0 ? 1.0 : (v > 0.0 ? v : 0.0);
}

// One float result: flush, then omod (only defined with flushed outputs and
// IEEE off; forces +0), then clamp.
template <class T>
T FinishOne(T v, const FloatMode& mode, uint8_t omod, bool clamp, bool dx10, bool denormal) {
  if (mode.flush_out && denormal) v = std::copysign(T{0}, v);
  if (omod != 0) {
    v = omod == 1 ? v * 2 : omod == 2 ? v * 4 : v / 2;
    if (v == 0) v = 0;
  }
  return clamp ? ClampUnit(v, dx10) : v;
}

void StoreSdwa(Wave& w, const Inst& inst, const uint32_t* values, uint64_t mask) {
  uint32_t* d = RegisterLanes(w, inst.dst);
  const uint8_t sel = inst.sdwa.dst_sel;
  const uint32_t bits = sel < 4 ? 8 : 16;
  const uint32_t shift = sel < 4 ? 8u * sel : 16u * (sel - 4u);
  const uint32_t ones = (1u << bits) - 1;
  for (uint64_t m = mask; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const uint32_t field = (values[l] & ones) << shift;
    switch (inst.sdwa.dst_unused) {
      case 0:
        d[l] = field;
        break;
      case 1: {
        // Bits above the field take its sign; those below are zero.
        const bool negative = values[l] >> (bits - 1) & 1;
        const uint32_t above = shift + bits < 32 ? ~0u << (shift + bits) : 0;
        d[l] = field | (negative ? above : 0);
        break;
      }
      default:
        d[l] = (d[l] & ~(ones << shift)) | field;
        break;
    }
  }
}

void Store16(Wave& w, const Inst& inst, const uint32_t* values, uint64_t mask) {
  uint32_t* d = RegisterLanes(w, inst.dst);
  const bool high = inst.op_sel_dst || inst.dst.hi16;
  // An SDWA destination of DWORD is the whole register.
  const bool preserve = high || ((inst.op & kInstPreserveHigh) && !inst.sdwa.present);
  for (uint64_t m = mask; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    const uint32_t v = values[l] & 0xffff;
    d[l] = high ? (d[l] & 0xffffu) | v << 16 : (preserve ? d[l] & 0xffff0000u : 0) | v;
  }
}

bool OutOfRange(const Wave& w, const Operand& o, Elem elem) {
  if (elem == Elem::kMask) return !InBounds(w, o, w.lanes / 32);
  return !InBounds(w, o, Is64(elem) ? 2 : 1);
}

}  // namespace

FloatMode ModeFor(const Wave& w, Elem elem) {
  FloatMode m;
  const uint32_t round = elem == Elem::kF32 ? w.mode : w.mode >> 2;
  const uint32_t denorm = elem == Elem::kF32 ? w.mode >> 4 : w.mode >> 6;
  m.round = round & 3;
  m.flush_in = !(denorm & 1);
  m.flush_out = !(denorm & 2);
  return m;
}

bool IeeeMode(const Wave& w) { return w.target->AtLeast12() || (w.mode >> 9 & 1); }
bool Dx10Clamp(const Wave& w) { return w.target->AtLeast12() || (w.mode >> 8 & 1); }

bool InBounds(const Wave& w, const Operand& o, uint32_t dwords) {
  switch (o.kind) {
    case Kind::kVgpr:
      return o.reg + dwords <= w.num_vgprs;
    case Kind::kAgpr:
      return o.reg + dwords <= w.num_agprs;
    case Kind::kSgpr:
      return o.reg >= kVccLo || w.num_sgprs == 0 || o.reg + dwords <= w.num_sgprs;
    default:
      return true;
  }
}

bool RegistersAllocated(const Wave& w, const Inst& inst, const Shape& shape) {
  for (int i = 0; i < shape.num_src; ++i) {
    if (OutOfRange(w, inst.src[i], shape.src[i])) return false;
  }
  if (OutOfRange(w, inst.dst, shape.dst)) return false;
  return shape.result != Result::kValueAndCarry || !OutOfRange(w, inst.sdst, Elem::kMask);
}

Step FaultRegister(Wave& w, const Inst& inst) {
  return w.FaultIllegal(inst, "register outside the wave's allocation");
}

uint64_t WriteMaskOf(const Wave& w, const Inst& inst) {
  uint64_t mask = w.Exec() & AllLanes(w);
  const Dpp& dpp = inst.dpp;
  if (!dpp.present || dpp.dpp8) return mask;
  for (uint32_t l = 0; l < w.lanes; ++l) {
    const bool row = dpp.row_mask >> (l / 16) & 1, bank = dpp.bank_mask >> (l / 4 % 4) & 1;
    if (!row || !bank) mask &= ~(uint64_t{1} << l);
  }
  return dpp.bound_ctrl ? mask : mask & ResolveDpp(w, dpp).valid;
}

uint32_t Scalar32(const Wave& w, const Operand& o) {
  if (o.kind == Kind::kImm) return o.imm;
  return o.kind == Kind::kSgpr ? w.ReadS(o.reg) : 0;
}

uint64_t Scalar64(const Wave& w, const Operand& o) {
  if (o.kind == Kind::kImm) return o.imm64;
  if (o.kind != Kind::kSgpr) return 0;
  if (o.reg == kSharedBase) return w.shared_aperture;
  if (o.reg == kPrivateBase) return w.private_aperture;
  if (o.reg == kVccz || o.reg == kExecz || o.reg == kScc) return w.ReadS(o.reg);
  return o.reg == kNull ? 0 : w.ReadS64(o.reg);
}

void Fetch(Wave& w, const Inst& inst, int i, Elem elem, SrcLanes& out) {
  const Operand& o = inst.src[i];
  if (elem == Elem::kMask) {
    const uint64_t mask = o.kind == Kind::kImm ? o.imm64 : w.ReadMask(o.reg);
    ExpandMask(mask, w.lanes, out.buf);
    out.lo = out.buf;
    return;
  }
  FetchRaw(w, o, elem, out);
  if (inst.dpp.present && i == 0) ApplyDpp(w, inst.dpp, elem, out);
  if (Is16(elem) && (o.op_sel || o.hi16) && o.kind != Kind::kImm) out.shift = 16;
  if (inst.sdwa.present && o.sdwa_sel != 6) {
    Own(w, elem, out);
    for (uint32_t l = 0; l < w.lanes; ++l) {
      out.buf[l] = SelectSdwa(out.buf[l], o.sdwa_sel, o.sext);
    }
  }
  if (o.neg || o.abs) ApplySigns(w, elem, o.neg, o.abs, out);
  if (IsFloat(elem) && ModeFor(w, elem).flush_in) FlushInputs(w, elem, out);
}

void FetchPacked(Wave& w, const Inst& inst, int i, Elem elem, int half, SrcLanes& out) {
  const Operand& o = inst.src[i];
  const bool high = half == 0 ? o.op_sel : o.op_sel_hi;
  if (elem == Elem::kF32) {
    if (o.kind == Kind::kImm) {
      out.lo = out.buf;
      std::fill_n(out.buf, w.lanes, o.imm);
    } else {
      FetchRaw(w, o, Elem::kU64, out);
      if (high) out.lo = out.hi;
      if (out.lo != out.buf && out.lo == out.buf + kMaxLanes) {
        std::copy_n(out.lo, w.lanes, out.buf);
        out.lo = out.buf;
      }
    }
  } else if (o.kind == Kind::kImm) {
    // An inline float constant is an f16 in the low half; integers and
    // literals are the 32-bit pattern.
    out.lo = out.buf;
    std::fill_n(out.buf, w.lanes, (o.imm & 0xffff) == o.imm16 ? o.imm : o.imm16);
    out.shift = high ? 16 : 0;
  } else {
    FetchRaw(w, o, Elem::kU32, out);
    out.shift = high ? 16 : 0;
  }
  if (half == 0 ? o.neg : o.neg_hi) ApplySigns(w, elem, true, false, out);
  if (IsFloat(elem) && ModeFor(w, elem).flush_in) FlushInputs(w, elem, out);
}

void FinishFloat(const Wave& w, const Inst& inst, Elem elem, OutLanes& out) {
  const FloatMode mode = ModeFor(w, elem);
  const uint8_t omod = mode.flush_out && !IeeeMode(w) ? inst.omod : 0;
  if (omod == 0 && !inst.clamp && !mode.flush_out) return;
  const bool dx10 = Dx10Clamp(w);
  for (uint32_t l = 0; l < w.lanes; ++l) {
    if (elem == Elem::kF32) {
      const float f = F32(out.lo[l]);
      out.lo[l] = Bits(FinishOne(f, mode, omod, inst.clamp, dx10, IsDenormal(f)));
    } else if (elem == Elem::kF64) {
      double d = F64(out.lo[l] | uint64_t{out.hi[l]} << 32);
      d = FinishOne(d, mode, omod, inst.clamp, dx10, IsDenormal(d));
      out.lo[l] = static_cast<uint32_t>(Bits(d));
      out.hi[l] = static_cast<uint32_t>(Bits(d) >> 32);
    } else {
      const bool denormal = !(out.lo[l] & 0x7c00) && (out.lo[l] & 0x3ff);
      const double d = HalfToDouble(static_cast<uint16_t>(out.lo[l]));
      out.lo[l] = DoubleToHalf(FinishOne(d, mode, omod, inst.clamp, dx10, denormal), mode.round);
    }
  }
}

void StoreRegister(Wave& w, const Operand& dst, uint32_t index, const uint32_t* values,
                   uint64_t mask) {
  uint32_t* d = RegisterLanes(w, dst, index);
  if (mask == AllLanes(w)) {
    std::memcpy(d, values, w.lanes * sizeof(uint32_t));
    return;
  }
  if (std::popcount(mask) > 8) {
    uint32_t active[kMaxLanes];
    ExpandMask(mask, w.lanes, active);
    for (uint32_t l = 0; l < w.lanes; ++l) d[l] = active[l] ? values[l] : d[l];
    return;
  }
  for (uint64_t m = mask; m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    d[l] = values[l];
  }
}

void StoreValues(Wave& w, const Inst& inst, Elem elem, const OutLanes& out, uint64_t mask) {
  if (inst.sdwa.present && inst.sdwa.dst_sel != 6) return StoreSdwa(w, inst, out.lo, mask);
  if (Is16(elem)) return Store16(w, inst, out.lo, mask);
  StoreRegister(w, inst.dst, 0, out.lo, mask);
  if (Is64(elem)) StoreRegister(w, inst.dst, 1, out.hi, mask);
}

Step Store(Wave& w, const Inst& inst, const Shape& shape, OutLanes& out, uint64_t mask) {
  const uint64_t bits = out.carry & mask;
  switch (shape.result) {
    case Result::kValue:
    case Result::kValueAndCarry:
      if (IsFloat(shape.dst)) FinishFloat(w, inst, shape.dst, out);
      StoreValues(w, inst, shape.dst, out, mask);
      if (shape.result == Result::kValueAndCarry) w.WriteMask(inst.sdst.reg, bits);
      break;
    case Result::kMask:
      w.WriteMask(inst.dst.reg, bits);
      break;
    case Result::kMaskAndExec:
      if (!w.target->AtLeast10()) w.WriteMask(inst.dst.reg, bits);
      w.SetExec(bits);
      break;
  }
  return Step::kNext;
}

RoundScope::RoundScope(uint8_t round) : changed_(round != 0) {
  static constexpr int kModes[4] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  if (changed_) std::fesetround(kModes[round]);
}

RoundScope::~RoundScope() {
  if (changed_) std::fesetround(FE_TONEAREST);
}

}  // namespace softgpu::valu
