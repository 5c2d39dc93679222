// Packed, mixed-precision and dot-product vector instructions (VOP3P).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using i64 = int64_t;

template <class To>
To Saturate(i64 v) {
  return static_cast<To>(
      std::clamp<i64>(v, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
}

Step PkMov(Wave& w, const Inst& inst) {
  // D.lo = S0 half op_sel[0], D.hi = S1 half op_sel[1]: op_sel of src[1].
  Shape shape;
  shape.num_src = 2;
  shape.src = {Elem::kU64, Elem::kU64};
  shape.dst = Elem::kU64;
  if (!RegistersAllocated(w, inst, shape)) return FaultRegister(w, inst);
  SrcLanes src[2];
  OutLanes out;
  for (int i = 0; i < 2; ++i) {
    const Operand& o = inst.src[i];
    u32* to = i == 0 ? out.lo : out.hi;
    if (o.kind == Operand::Kind::kImm) {
      std::fill_n(to, w.lanes, o.imm);
      continue;
    }
    Fetch(w, inst, i, Elem::kU64, src[i]);
    std::copy_n(o.op_sel ? src[i].hi : src[i].lo, w.lanes, to);
  }
  StoreValues(w, inst, Elem::kU64, out, w.Exec() & AllLanes(w));
  return Step::kNext;
}

// One source of a mixed-precision fma: an f32, or an f16 half of a register.
void FetchMixed(Wave& w, const Inst& inst, int i, float* out) {
  Operand o = inst.src[i];
  const bool half = o.op_sel_hi, abs = o.abs || o.neg_hi, neg = o.neg;
  const bool high = o.op_sel;
  Inst plain;
  plain.src[0] = o;
  plain.src[0].neg = plain.src[0].abs = plain.src[0].op_sel = false;
  plain.src[0].op_sel = half && high;
  SrcLanes src;
  Fetch(w, plain, 0, half ? Elem::kF16 : Elem::kF32, src);
  for (u32 l = 0; l < w.lanes; ++l) {
    float v = half ? static_cast<float>(LoadLane<F16>(src, l).v) : LoadLane<float>(src, l);
    if (abs) v = std::fabs(v);
    out[l] = neg ? -v : v;
  }
}

enum class MixDst { kF32, kLow, kHigh };

// kFused: V_FMA_MIX; otherwise V_MAD_MIX, which rounds and flushes the product.
template <MixDst kDst, bool kFused>
Step Mix(Wave& w, const Inst& inst) {
  Shape shape;
  shape.num_src = 3;
  shape.src = {Elem::kU32, Elem::kU32, Elem::kU32};
  if (!RegistersAllocated(w, inst, shape)) return FaultRegister(w, inst);
  float a[kMaxLanes], b[kMaxLanes], c[kMaxLanes];
  FetchMixed(w, inst, 0, a);
  FetchMixed(w, inst, 1, b);
  FetchMixed(w, inst, 2, c);
  OutLanes out;
  const FloatMode half_mode = ModeFor(w, Elem::kF16);
  {
    RoundScope scope(ModeFor(w, Elem::kF32).round);
    for (u32 l = 0; l < w.lanes; ++l) {
      if constexpr (kDst != MixDst::kF32 && kFused) {
        // The f16 result is rounded from the exact sum.
        out.lo[l] = DoubleToHalf(FmaToOdd(a[l], b[l], c[l]), half_mode.round);
      } else {
        const float r =
            kFused ? std::fma(a[l], b[l], c[l]) : FlushDenormal(FlushDenormal(a[l] * b[l]) + c[l]);
        out.lo[l] = kDst == MixDst::kF32 ? Bits(r) : DoubleToHalf(r, half_mode.round);
      }
    }
  }
  const uint64_t mask = w.Exec() & AllLanes(w);
  if constexpr (kDst == MixDst::kF32) {
    FinishFloat(w, inst, Elem::kF32, out);
    StoreRegister(w, inst.dst, 0, out.lo, mask);
    return Step::kNext;
  }
  FinishFloat(w, inst, Elem::kF16, out);
  u32* d = RegisterLanes(w, inst.dst);
  for (u32 l = 0; l < w.lanes; ++l) {
    out.lo[l] = kDst == MixDst::kHigh ? (d[l] & 0xffff) | out.lo[l] << 16
                                      : (d[l] & 0xffff0000u) | out.lo[l];
  }
  StoreRegister(w, inst.dst, 0, out.lo, mask);
  return Step::kNext;
}

template <int kBits>
i32 SignedField(u32 v, int i) {
  return static_cast<i32>(v << (32 - kBits * (i + 1))) >> (32 - kBits);
}
template <int kBits>
u32 UnsignedField(u32 v, int i) {
  return v >> (kBits * i) & ((1u << kBits) - 1);
}

template <int kBits, bool kSignedA, bool kSignedB>
i64 DotFields(u32 a, u32 b) {
  i64 sum = 0;
  for (int i = 0; i < 32 / kBits; ++i) {
    const i64 x = kSignedA ? SignedField<kBits>(a, i) : i64{UnsignedField<kBits>(a, i)};
    const i64 y = kSignedB ? SignedField<kBits>(b, i) : i64{UnsignedField<kBits>(b, i)};
    sum += x * y;
  }
  return sum;
}

template <int kBits>
i64 DotMixed(const Inst& inst, u32 a, u32 b) {
  // neg marks a source as signed.
  if (inst.src[0].neg) {
    return inst.src[1].neg ? DotFields<kBits, true, true>(a, b)
                           : DotFields<kBits, true, false>(a, b);
  }
  return inst.src[1].neg ? DotFields<kBits, false, true>(a, b)
                         : DotFields<kBits, false, false>(a, b);
}

// The IU forms use neg for signedness, so sources are fetched without it.
template <int kBits>
Step DotIu(Wave& w, const Inst& inst) {
  Shape shape;
  shape.num_src = 3;
  shape.src = {Elem::kU32, Elem::kU32, Elem::kU32};
  if (!RegistersAllocated(w, inst, shape)) return FaultRegister(w, inst);
  Inst plain = inst;
  for (Operand& o : plain.src) o.neg = o.neg_hi = o.abs = false;
  SrcLanes src[3];
  for (int i = 0; i < 3; ++i) Fetch(w, plain, i, Elem::kU32, src[i]);
  OutLanes out;
  for (u32 l = 0; l < w.lanes; ++l) {
    const i64 sum =
        DotMixed<kBits>(inst, src[0].lo[l], src[1].lo[l]) + static_cast<i32>(src[2].lo[l]);
    out.lo[l] = static_cast<u32>(inst.clamp ? Saturate<i32>(sum) : sum);
  }
  StoreRegister(w, inst.dst, 0, out.lo, WriteMaskOf(w, inst));
  return Step::kNext;
}

float HalfOf(u32 v, int i) {
  return static_cast<float>(HalfToDouble(static_cast<u16>(v >> 16 * i)));
}

float Dot2Half(u32 a, u32 b, float c) {
  return std::fma(HalfOf(a, 0), HalfOf(b, 0), std::fma(HalfOf(a, 1), HalfOf(b, 1), c));
}
float Dot2Bfloat(u32 a, u32 b, float c) {
  const auto f = [](u32 v, int i) { return BfloatToFloat(static_cast<u16>(v >> 16 * i)); };
  return std::fma(f(a, 0), f(b, 0), std::fma(f(a, 1), f(b, 1), c));
}

// A packed pair as one dword, after op_sel and neg: for the f16 dots.
template <float (*kDot)(u32, u32, float)>
Step DotPair(Wave& w, const Inst& inst) {
  Shape shape;
  shape.num_src = 3;
  shape.src = {Elem::kU32, Elem::kU32, Elem::kU32};
  if (!RegistersAllocated(w, inst, shape)) return FaultRegister(w, inst);
  u32 pair[2][kMaxLanes];
  for (int i = 0; i < 2; ++i) {
    SrcLanes lo, hi;
    FetchPacked(w, inst, i, Elem::kU16, 0, lo);
    FetchPacked(w, inst, i, Elem::kU16, 1, hi);
    for (u32 l = 0; l < w.lanes; ++l) {
      pair[i][l] = LoadLane<u16>(lo, l) | u32{LoadLane<u16>(hi, l)} << 16;
    }
  }
  SrcLanes acc;
  Fetch(w, inst, 2, Elem::kF32, acc);
  OutLanes out;
  for (u32 l = 0; l < w.lanes; ++l) {
    out.lo[l] = Bits(kDot(pair[0][l], pair[1][l], LoadLane<float>(acc, l)));
  }
  FinishFloat(w, inst, Elem::kF32, out);
  StoreRegister(w, inst.dst, 0, out.lo, w.Exec() & AllLanes(w));
  return Step::kNext;
}

#define DOT_INT(NAME, BITS, SIGNED, ACC, SETUP)                            \
  {                                                                        \
    NAME, &Run<([](u32 a, u32 b, u32 c) {                                  \
      return static_cast<u32>(DotFields<BITS, SIGNED, SIGNED>(a, b)) + c;  \
    })>,                                                                   \
        SETUP, &Run<([](u32 a, u32 b, ACC c) {                             \
          return Saturate<ACC>(DotFields<BITS, SIGNED, SIGNED>(a, b) + c); \
        })>                                                                \
  }

constexpr VectorOp kOps[] = {
    {"V_PK_ADD_F16", &RunPacked<([](F16 a, F16 b) { return F16{a.v + b.v}; })>},
    {"V_PK_MUL_F16", &RunPacked<([](F16 a, F16 b) { return F16{a.v * b.v}; })>},
    {"V_PK_FMA_F16",
     &RunPacked<([](F16 a, F16 b, F16 c) { return F16{FmaToOdd(a.v, b.v, c.v)}; })>},
    {"V_PK_FMAC_F16",
     &RunPacked<([](F16 a, F16 b, F16 c) { return F16{FmaToOdd(a.v, b.v, c.v)}; })>, kAccumulate},
    {"V_PK_MIN_F16",
     &RunPacked<([](const Ctx& c, F16 a, F16 b) { return F16{MinNum(c.ieee, a.v, b.v)}; })>},
    {"V_PK_MAX_F16",
     &RunPacked<([](const Ctx& c, F16 a, F16 b) { return F16{MaxNum(c.ieee, a.v, b.v)}; })>},
    {"V_PK_ADD_U16", &RunPacked<([](u16 a, u16 b) { return static_cast<u16>(a + b); })>, kPlain,
     &RunPacked<([](u16 a, u16 b) { return Saturate<u16>(i64{a} + b); })>},
    {"V_PK_ADD_I16", &RunPacked<([](i16 a, i16 b) { return static_cast<i16>(a + b); })>, kPlain,
     &RunPacked<([](i16 a, i16 b) { return Saturate<i16>(i64{a} + b); })>},
    {"V_PK_SUB_U16", &RunPacked<([](u16 a, u16 b) { return static_cast<u16>(a - b); })>, kPlain,
     &RunPacked<([](u16 a, u16 b) { return Saturate<u16>(i64{a} - b); })>},
    {"V_PK_SUB_I16", &RunPacked<([](i16 a, i16 b) { return static_cast<i16>(a - b); })>, kPlain,
     &RunPacked<([](i16 a, i16 b) { return Saturate<i16>(i64{a} - b); })>},
    {"V_PK_MUL_LO_U16", &RunPacked<([](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); })>},
    {"V_PK_MAD_U16",
     &RunPacked<([](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); })>, kPlain,
     &RunPacked<([](u16 a, u16 b, u16 c) { return Saturate<u16>(i64{a} * b + c); })>},
    {"V_PK_MAD_I16",
     &RunPacked<([](i16 a, i16 b, i16 c) { return static_cast<i16>(i64{a} * b + c); })>, kPlain,
     &RunPacked<([](i16 a, i16 b, i16 c) { return Saturate<i16>(i64{a} * b + c); })>},
    {"V_PK_MIN_U16", &RunPacked<([](u16 a, u16 b) { return std::min(a, b); })>},
    {"V_PK_MAX_U16", &RunPacked<([](u16 a, u16 b) { return std::max(a, b); })>},
    {"V_PK_MIN_I16", &RunPacked<([](i16 a, i16 b) { return std::min(a, b); })>},
    {"V_PK_MAX_I16", &RunPacked<([](i16 a, i16 b) { return std::max(a, b); })>},
    {"V_PK_LSHLREV_B16",
     &RunPacked<([](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); })>},
    {"V_PK_LSHRREV_B16",
     &RunPacked<([](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); })>},
    {"V_PK_ASHRREV_I16",
     &RunPacked<([](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); })>},
    {"V_PK_ADD_F32", &RunPacked<([](float a, float b) { return a + b; })>},
    {"V_PK_MUL_F32", &RunPacked<([](float a, float b) { return a * b; })>},
    {"V_PK_FMA_F32",
     &RunPacked<([](float a, float b, float c) { return std::fma(a, b, c); }), Cost::kFma>},
    {"V_PK_MOV_B32", &PkMov},

    {"V_FMA_MIX_F32", &Mix<MixDst::kF32, true>},
    {"V_FMA_MIXLO_F16", &Mix<MixDst::kLow, true>},
    {"V_FMA_MIXHI_F16", &Mix<MixDst::kHigh, true>},
    {"V_MAD_MIX_F32", &Mix<MixDst::kF32, false>},
    {"V_MAD_MIXLO_F16", &Mix<MixDst::kLow, false>},
    {"V_MAD_MIXHI_F16", &Mix<MixDst::kHigh, false>},

    {"V_DOT2_F32_F16", &DotPair<Dot2Half>},
    {"V_DOT2C_F32_F16", &Run<([](u32 a, u32 b, float c) { return Dot2Half(a, b, c); })>,
     kAccumulate},
    {"V_DOT2ACC_F32_F16", &Run<([](u32 a, u32 b, float c) { return Dot2Half(a, b, c); })>,
     kAccumulate},
    {"V_DOT2_F32_BF16", &DotPair<Dot2Bfloat>},
    {"V_DOT2C_F32_BF16", &Run<([](u32 a, u32 b, float c) { return Dot2Bfloat(a, b, c); })>,
     kAccumulate},
    DOT_INT("V_DOT2_I32_I16", 16, true, i32, kPlain),
    DOT_INT("V_DOT2_U32_U16", 16, false, u32, kPlain),
    DOT_INT("V_DOT4_I32_I8", 8, true, i32, kPlain),
    DOT_INT("V_DOT4_U32_U8", 8, false, u32, kPlain),
    DOT_INT("V_DOT8_I32_I4", 4, true, i32, kPlain),
    DOT_INT("V_DOT8_U32_U4", 4, false, u32, kPlain),
    DOT_INT("V_DOT2C_I32_I16", 16, true, i32, kAccumulate),
    DOT_INT("V_DOT4C_I32_I8", 8, true, i32, kAccumulate),
    DOT_INT("V_DOT8C_I32_I4", 4, true, i32, kAccumulate),
    {"V_DOT4_I32_IU8", &DotIu<8>},
    {"V_DOT8_I32_IU4", &DotIu<4>},
};

#undef DOT_INT

}  // namespace

std::span<const VectorOp> PackedOps() { return kOps; }

}  // namespace softgpu::valu
