// Floating-point vector ALU operations, one lane each. The transcendental ones
// are evaluated in double and rounded once (hardware guarantees about 1 ulp and
// differs in the last bit); everything else is exact IEEE.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

using u16 = uint16_t;
using u32 = uint32_t;
using i32 = int32_t;

// NaN-propagating forms of gfx12.
template <class T>
T Minimum(T a, T b) {
  if (IsNan(a)) return Quiet(a);
  if (IsNan(b)) return Quiet(b);
  return MinNum(false, a, b);
}
template <class T>
T Maximum(T a, T b) {
  if (IsNan(a)) return Quiet(a);
  if (IsNan(b)) return Quiet(b);
  return MaxNum(false, a, b);
}
template <class T>
T Min3(bool ieee, T a, T b, T c) {
  return MinNum(ieee, MinNum(ieee, a, b), c);
}
template <class T>
T Max3(bool ieee, T a, T b, T c) {
  return MaxNum(ieee, MaxNum(ieee, a, b), c);
}
template <class T>
T Med3(bool ieee, T a, T b, T c) {
  if (IsNan(a) || IsNan(b) || IsNan(c)) return Min3(ieee, a, b, c);
  const T max = Max3(false, a, b, c);
  if (max == a) return MaxNum(false, b, c);
  if (max == b) return MaxNum(false, a, c);
  return MaxNum(false, a, b);
}

// D = a*b+c with both steps rounded and flushed: V_MAD/V_MAC_F32.
float MadFlushed(float a, float b, float c) {
  const float p = FlushDenormal(FlushDenormal(a) * FlushDenormal(b));
  return FlushDenormal(p + FlushDenormal(c));
}

double RoundHalf(double d) { return HalfToDouble(DoubleToHalf(d)); }
F16 MadHalf(F16 a, F16 b, F16 c) { return {RoundHalf(a.v * b.v) + c.v}; }
F16 FmaHalf(F16 a, F16 b, F16 c) { return {FmaToOdd(a.v, b.v, c.v)}; }

// Zero times anything is zero.
float MulLegacy(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }

template <class T>
T Fract(T x, T below_one) {
  if (IsNan(x)) return Quiet(x);
  if (std::isinf(x)) return std::numeric_limits<T>::quiet_NaN();
  return std::min(x - std::floor(x), below_one);
}

// sin and cos of x revolutions, exact at multiples of a quarter.
struct SinCos {
  double sin, cos;
};
SinCos Revolutions(double x) {
  if (!std::isfinite(x)) return {NAN, NAN};
  if (x == 0) return {x, 1};
  x -= std::floor(x);
  const double quarter = std::floor(4 * x + 0.5);
  const double angle = (x - quarter / 4) * 6.283185307179586476925286766559;
  // Subtracting from +0 keeps exact zeros positive.
  const double s = std::sin(angle), c = std::cos(angle);
  switch (static_cast<int>(quarter) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, 0.0 - s};
    case 2:
      return {0.0 - s, 0.0 - c};
    default:
      return {0.0 - c, s};
  }
}

template <class T>
i32 FrexpExponent(T x) {
  if (x == 0 || !std::isfinite(x)) return 0;
  int e;
  (void)std::frexp(x, &e);
  return e;
}
template <class T>
T FrexpMantissa(T x) {
  if (IsNan(x)) return Quiet(x);
  if (x == 0 || std::isinf(x)) return x;
  int e;
  return std::frexp(x, &e);
}

// Division expansion. The exponents and scale factors per format.
template <class T>
struct DivTraits;
template <>
struct DivTraits<float> {
  static constexpr int kScale = 64, kFar = 96, kTiny = 23, kUnderflow = -150, kMaxExp = 255;
  static constexpr uint32_t kNan = 0xffc00000u;
};
template <>
struct DivTraits<double> {
  static constexpr int kScale = 128, kFar = 768, kTiny = 53, kUnderflow = -1075, kMaxExp = 2047;
  static constexpr uint64_t kNan = 0xfff8000000000000ull;
};

// s0 is the operand to scale: the denominator s1 or the numerator s2. The
// carry tells V_DIV_FMAS to undo a one-sided scaling.
template <class T>
WithCarry<T> DivScale(T s0, T s1, T s2) {
  using Tr = DivTraits<T>;
  if (IsNan(s1) || IsNan(s2)) return {s0, false};
  if (s1 == 0 || s2 == 0) return {std::numeric_limits<T>::quiet_NaN(), false};
  const bool is_denominator = Bits(s0) == Bits(s1);
  const bool is_numerator = Bits(s0) == Bits(s2);
  constexpr T kUp = Tr::kScale == 64 ? T{0x1p64} : T{0x1p127} * 2;
  const T up = s0 * kUp, down = s0 / kUp;
  const bool reciprocal_tiny = IsDenormal(T{1} / s1);
  const bool quotient_tiny = IsDenormal(s2 / s1);
  if (BiasedExponent(s2) - BiasedExponent(s1) >= Tr::kFar) {
    return {is_denominator ? up : s0, true};
  }
  if (IsDenormal(s1)) return {up, false};
  // The quotient becomes 2^scale too large, which V_DIV_FMAS takes back.
  if (reciprocal_tiny && quotient_tiny) return {is_denominator ? down : s0, true};
  if (reciprocal_tiny) return {down, false};
  if (quotient_tiny) return {is_numerator ? up : s0, true};
  if (BiasedExponent(s2) <= Tr::kTiny) return {up, false};
  return {s0, false};
}

// fma(a, b, c) * 2^scale, rounded once.
float FmaScaled(float a, float b, float c, int scale) {
  return static_cast<float>(std::ldexp(FmaToOdd(a, b, c), scale));
}
double FmaScaled(double a, double b, double c, int scale) {
  const double r = std::fma(a, b, c);
  const double scaled = std::ldexp(r, scale);
  if (!(std::fabs(scaled) <= 0x1p-1022)) return scaled;
  // Rounding r again to a denormal is wrong only if r is a tie there and is not
  // exact; the sign of r's own error then decides.
  const double diff = r - std::ldexp(scaled, -scale);
  if (std::fabs(diff) != std::ldexp(1.0, -1075 - scale)) return scaled;
  const double p = a * b, pe = std::fma(a, b, -p);
  const double s = p + c, sb = s - p;
  const double se = (p - (s - sb)) + (c - sb);
  const double err = ((s - r) + se) + pe;
  if (err == 0 || (err > 0) != (diff > 0)) return scaled;
  return std::nextafter(scaled, diff > 0 ? INFINITY : -INFINITY);
}

template <class T>
T DivFmas(T a, T b, T c, bool scaled) {
  if (!scaled) return std::fma(a, b, c);
  constexpr int kBias = DivTraits<T>::kMaxExp / 2;
  // A large quotient was computed with a scaled-up denominator, a small one
  // with a scaled-up numerator.
  const int scale = BiasedExponent(c) > kBias ? DivTraits<T>::kScale : -DivTraits<T>::kScale;
  return FmaScaled(a, b, c, scale);
}

template <class T>
T DivFixup(T quotient, T denominator, T numerator) {
  using Tr = DivTraits<T>;
  const bool negative = std::signbit(denominator) != std::signbit(numerator);
  const T sign = negative ? T{-1} : T{1};
  const T inf = std::numeric_limits<T>::infinity();
  if (IsNan(numerator)) return Quiet(numerator);
  if (IsNan(denominator)) return Quiet(denominator);
  if ((numerator == 0 && denominator == 0) || (std::isinf(numerator) && std::isinf(denominator))) {
    return std::bit_cast<T>(Tr::kNan);
  }
  if (denominator == 0 || std::isinf(numerator)) return sign * inf;
  if (std::isinf(denominator) || numerator == 0) return sign * T{0};
  if (BiasedExponent(numerator) - BiasedExponent(denominator) < Tr::kUnderflow) {
    return sign * T{0};
  }
  // The expansion yields NaN where the true quotient overflows.
  if (IsNan(quotient)) return sign * inf;
  return std::copysign(quotient, sign);
}

F16 DivFixupHalf(F16 quotient, F16 denominator, F16 numerator) {
  const double q = quotient.v, d = denominator.v, n = numerator.v;
  const double sign = std::signbit(d) != std::signbit(n) ? -1 : 1;
  if (IsNan(n)) return {Quiet(n)};
  if (IsNan(d)) return {Quiet(d)};
  if ((n == 0 && d == 0) || (std::isinf(n) && std::isinf(d))) return {-std::fabs(NAN)};
  if (d == 0 || std::isinf(n)) return {sign * INFINITY};
  if (std::isinf(d) || n == 0) return {sign * 0.0};
  return {std::copysign(q, sign)};
}

// The first 1201 fraction bits of 2/pi, most significant first; zero beyond.
constexpr uint32_t kTwoOverPi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
    0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
    0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
    0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b0000,
};

// V_TRIG_PREOP_F64: 53 bits of 2/pi, chosen by a segment number and, for large
// arguments, by the exponent; scaled to their place.
double TwoOverPiSegment(double x, uint32_t segment) {
  const int exponent = BiasedExponent(x);
  const int shift = static_cast<int>(segment & 31) * 53 + std::max(0, exponent - 1077);
  uint64_t bits = 0;
  for (int i = shift; i < shift + 53; ++i) {
    const size_t word = static_cast<size_t>(i / 32);
    const uint32_t bit = word < std::size(kTwoOverPi) ? kTwoOverPi[word] >> (31 - i % 32) & 1 : 0;
    bits = bits << 1 | bit;
  }
  const int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
  return std::ldexp(static_cast<double>(bits), scale);
}

// Cube map face selection, by the largest magnitude (z, then y, then x).
enum Face { kX, kY, kZ };
Face MajorAxis(float x, float y, float z) {
  x = std::fabs(x), y = std::fabs(y), z = std::fabs(z);
  if (z >= x && z >= y) return kZ;
  return y >= x ? kY : kX;
}

#define UNARY_F(NAME, F32_EXPR, F16_EXPR)                                                 \
  {NAME "_F32",                                                                           \
   &Run<([](float x) -> float { return static_cast<float>(F32_EXPR); }), Cost::kSparse>}, \
  {                                                                                       \
    NAME "_F16", &Run<([](F16 h) -> F16 {                                                 \
                        const double x = h.v;                                             \
                        return {F16_EXPR};                                                \
                      }),                                                                 \
                      Cost::kSparse>                                                      \
  }

#define CTX_BINARY(NAME, FN)                                                                      \
  {NAME "_F32", &Run<([](const Ctx& c, float a, float b) { return FN(c.ieee, a, b); })>},         \
      {NAME "_F64", &Run<([](const Ctx& c, double a, double b) { return FN(c.ieee, a, b); })>}, { \
    NAME "_F16", &Run<([](const Ctx& c, F16 a, F16 b) { return F16{FN(c.ieee, a.v, b.v)}; })>     \
  }

#define CTX_TERNARY(NAME, EXPR)                                                          \
  {NAME "_F32", &Run<([](const Ctx& k, float a, float b, float c) { return EXPR; })>}, { \
    NAME "_F16", &Run<([](const Ctx& k, F16 x, F16 y, F16 z) {                           \
      const double a = x.v, b = y.v, c = z.v;                                            \
      return F16{EXPR};                                                                  \
    })>,                                                                                 \
        kOpSel16                                                                         \
  }

#define PLAIN_BINARY(NAME, FN)                                                    \
  {NAME "_F32", &Run<([](float a, float b) { return FN(a, b); })>},               \
      {NAME "_F64", &Run<([](double a, double b) { return FN(a, b); })>}, {       \
    NAME "_F16", &Run<([](F16 a, F16 b) { return F16{FN(a.v, b.v)}; })>, kOpSel16 \
  }

#define PLAIN_TERNARY(NAME, EXPR)                                          \
  {NAME "_F32", &Run<([](float a, float b, float c) { return EXPR; })>}, { \
    NAME "_F16", &Run<([](F16 x, F16 y, F16 z) {                           \
      const double a = x.v, b = y.v, c = z.v;                              \
      return F16{EXPR};                                                    \
    })>,                                                                   \
        kOpSel16                                                           \
  }

#define FMA_F32 &Run<([](float a, float b, float c) { return std::fma(a, b, c); }), Cost::kFma>
#define FMA_F64 &Run<([](double a, double b, double c) { return std::fma(a, b, c); }), Cost::kFma>
#define FMA_F16 &Run<([](F16 a, F16 b, F16 c) { return FmaHalf(a, b, c); }), Cost::kSparse>
#define MAD_F32 &Run<([](float a, float b, float c) { return MadFlushed(a, b, c); })>
#define MAD_F16 &Run<([](F16 a, F16 b, F16 c) { return MadHalf(a, b, c); }), Cost::kSparse>
#define FMA_LEGACY                                                                           \
  &Run<([](float a, float b, float c) { return a == 0 || b == 0 ? c : std::fma(a, b, c); }), \
       Cost::kSparse>

constexpr VectorOp kOps[] = {
    {"V_ADD_F32", &Run<([](float a, float b) { return a + b; })>},
    {"V_SUB_F32", &Run<([](float a, float b) { return a - b; })>},
    {"V_SUBREV_F32", &Run<([](float a, float b) { return b - a; })>},
    {"V_MUL_F32", &Run<([](float a, float b) { return a * b; })>},
    {"V_MUL_LEGACY_F32", &Run<([](float a, float b) { return MulLegacy(a, b); })>},
    {"V_FMA_F32", FMA_F32},
    {"V_FMAC_F32", FMA_F32, kAccumulate},
    {"V_FMAMK_F32", FMA_F32},
    {"V_FMAAK_F32", FMA_F32},
    {"V_FMA_LEGACY_F32", FMA_LEGACY},
    {"V_FMAC_LEGACY_F32", FMA_LEGACY, kAccumulate},
    {"V_MAD_F32", MAD_F32},
    {"V_MAC_F32", MAD_F32, kAccumulate},
    {"V_MADMK_F32", MAD_F32},
    {"V_MADAK_F32", MAD_F32},
    {"V_MAD_LEGACY_F32", &Run<([](float a, float b, float c) {
       return a == 0 || b == 0 ? FlushDenormal(c) : MadFlushed(a, b, c);
     })>},
    {"V_MAC_LEGACY_F32", &Run<([](float a, float b, float c) {
       return a == 0 || b == 0 ? FlushDenormal(c) : MadFlushed(a, b, c);
     })>,
     kAccumulate},

    {"V_ADD_F64", &Run<([](double a, double b) { return a + b; })>},
    {"V_MUL_F64", &Run<([](double a, double b) { return a * b; })>},
    {"V_FMA_F64", FMA_F64},
    {"V_FMAMK_F64", FMA_F64},
    {"V_FMAAK_F64", FMA_F64},
    {"V_FMAC_F64", FMA_F64, kAccumulate},

    {"V_ADD_F16", &Run<([](F16 a, F16 b) { return F16{a.v + b.v}; })>},
    {"V_SUB_F16", &Run<([](F16 a, F16 b) { return F16{a.v - b.v}; })>},
    {"V_SUBREV_F16", &Run<([](F16 a, F16 b) { return F16{b.v - a.v}; })>},
    {"V_MUL_F16", &Run<([](F16 a, F16 b) { return F16{a.v * b.v}; })>},
    {"V_FMA_F16", FMA_F16, kOpSel16},
    {"V_FMA_LEGACY_F16", FMA_F16},
    {"V_FMAC_F16", FMA_F16, kAccumulate},
    {"V_FMAMK_F16", FMA_F16},
    {"V_FMAAK_F16", FMA_F16},
    {"V_MAD_F16", MAD_F16, kOpSel16},
    {"V_MAD_LEGACY_F16", MAD_F16},
    {"V_MAC_F16", MAD_F16, kAccumulate},
    {"V_MADMK_F16", MAD_F16},
    {"V_MADAK_F16", MAD_F16},

    CTX_BINARY("V_MIN", MinNum),
    CTX_BINARY("V_MAX", MaxNum),
    PLAIN_BINARY("V_MINIMUM", Minimum),
    PLAIN_BINARY("V_MAXIMUM", Maximum),
    CTX_TERNARY("V_MIN3", Min3(k.ieee, a, b, c)),
    CTX_TERNARY("V_MAX3", Max3(k.ieee, a, b, c)),
    CTX_TERNARY("V_MED3", Med3(k.ieee, a, b, c)),
    CTX_TERNARY("V_MINMAX", MaxNum(k.ieee, MinNum(k.ieee, a, b), c)),
    CTX_TERNARY("V_MAXMIN", MinNum(k.ieee, MaxNum(k.ieee, a, b), c)),
    PLAIN_TERNARY("V_MINIMUM3", Minimum(Minimum(a, b), c)),
    PLAIN_TERNARY("V_MAXIMUM3", Maximum(Maximum(a, b), c)),
    PLAIN_TERNARY("V_MINIMUMMAXIMUM", Maximum(Minimum(a, b), c)),
    PLAIN_TERNARY("V_MAXIMUMMINIMUM", Minimum(Maximum(a, b), c)),

    UNARY_F("V_FLOOR", std::floor(x), std::floor(x)),
    UNARY_F("V_CEIL", std::ceil(x), std::ceil(x)),
    UNARY_F("V_TRUNC", std::trunc(x), std::trunc(x)),
    UNARY_F("V_RNDNE", __builtin_roundevenf(x), __builtin_roundeven(x)),
    UNARY_F("V_FRACT", Fract(x, 0x1.fffffep-1f), Fract(x, 0x1.ffcp-1)),
    UNARY_F("V_RCP", 1.0 / double{x}, 1.0 / x),
    UNARY_F("V_RCP_IFLAG", 1.0 / double{x}, 1.0 / x),
    UNARY_F("V_RSQ", 1.0 / std::sqrt(double{x}), 1.0 / std::sqrt(x)),
    UNARY_F("V_SQRT", std::sqrt(x), std::sqrt(x)),
    UNARY_F("V_EXP", std::exp2(double{x}), std::exp2(x)),
    UNARY_F("V_LOG", std::log2(double{x}), std::log2(x)),
    UNARY_F("V_SIN", Revolutions(x).sin, Revolutions(x).sin),
    UNARY_F("V_COS", Revolutions(x).cos, Revolutions(x).cos),
    UNARY_F("V_FREXP_MANT", FrexpMantissa(x), FrexpMantissa(x)),
    {"V_EXP_LEGACY_F32",
     &Run<([](float x) { return static_cast<float>(std::exp2(double{x})); }), Cost::kSparse>},
    {"V_LOG_LEGACY_F32",
     &Run<([](float x) { return static_cast<float>(std::log2(double{x})); }), Cost::kSparse>},
    {"V_FLOOR_F64", &Run<([](double x) { return std::floor(x); }), Cost::kSparse>},
    {"V_CEIL_F64", &Run<([](double x) { return std::ceil(x); }), Cost::kSparse>},
    {"V_TRUNC_F64", &Run<([](double x) { return std::trunc(x); }), Cost::kSparse>},
    {"V_RNDNE_F64", &Run<([](double x) { return __builtin_roundeven(x); }), Cost::kSparse>},
    {"V_FRACT_F64", &Run<([](double x) { return Fract(x, 0x1.fffffffffffffp-1); }), Cost::kSparse>},
    {"V_RCP_F64", &Run<([](double x) { return 1.0 / x; })>},
    {"V_RSQ_F64", &Run<([](double x) { return 1.0 / std::sqrt(x); }), Cost::kSparse>},
    {"V_SQRT_F64", &Run<([](double x) { return std::sqrt(x); }), Cost::kSparse>},
    {"V_FREXP_MANT_F64", &Run<([](double x) { return FrexpMantissa(x); }), Cost::kSparse>},
    {"V_FREXP_EXP_I32_F64", &Run<([](double x) { return FrexpExponent(x); }), Cost::kSparse>},
    {"V_FREXP_EXP_I32_F32", &Run<([](float x) { return FrexpExponent(x); }), Cost::kSparse>},
    {"V_TRIG_PREOP_F64",
     &Run<([](double a, u32 b) { return TwoOverPiSegment(a, b); }), Cost::kSparse>},
    {"V_FREXP_EXP_I16_F16",
     &Run<([](F16 x) { return static_cast<int16_t>(FrexpExponent(x.v)); }), Cost::kSparse>},

    {"V_LDEXP_F32", &Run<([](float a, i32 b) { return std::ldexp(a, b); }), Cost::kSparse>},
    {"V_LDEXP_F64", &Run<([](double a, i32 b) { return std::ldexp(a, b); }), Cost::kSparse>},
    {"V_LDEXP_F16",
     &Run<([](F16 a, int16_t b) { return F16{std::ldexp(a.v, std::clamp<int>(b, -99, 99))}; }),
          Cost::kSparse>},

    {"V_DIV_SCALE_F32",
     &Run<([](float a, float b, float c) { return DivScale(a, b, c); }), Cost::kSparse>, kCarryOut},
    {"V_DIV_SCALE_F64",
     &Run<([](double a, double b, double c) { return DivScale(a, b, c); }), Cost::kSparse>,
     kCarryOut},
    {"V_DIV_FMAS_F32",
     &Run<([](float a, float b, float c, LaneBit m) { return DivFmas(a, b, c, m.v); }),
          Cost::kSparse>,
     kFmasMask},
    {"V_DIV_FMAS_F64",
     &Run<([](double a, double b, double c, LaneBit m) { return DivFmas(a, b, c, m.v); }),
          Cost::kSparse>,
     kFmasMask},
    {"V_DIV_FIXUP_F32",
     &Run<([](float a, float b, float c) { return DivFixup(a, b, c); }), Cost::kSparse>},
    {"V_DIV_FIXUP_F64",
     &Run<([](double a, double b, double c) { return DivFixup(a, b, c); }), Cost::kSparse>},
    {"V_DIV_FIXUP_F16",
     &Run<([](F16 a, F16 b, F16 c) { return DivFixupHalf(a, b, c); }), Cost::kSparse>, kOpSel16},
    {"V_DIV_FIXUP_LEGACY_F16",
     &Run<([](F16 a, F16 b, F16 c) { return DivFixupHalf(a, b, c); }), Cost::kSparse>},

    {"V_CUBEID_F32", &Run<([](float x, float y, float z) {
       switch (MajorAxis(x, y, z)) {
         case kZ:
           return z < 0 ? 5.0f : 4.0f;
         case kY:
           return y < 0 ? 3.0f : 2.0f;
         default:
           return x < 0 ? 1.0f : 0.0f;
       }
     })>},
    {"V_CUBEMA_F32", &Run<([](float x, float y, float z) {
       switch (MajorAxis(x, y, z)) {
         case kZ:
           return 2 * z;
         case kY:
           return 2 * y;
         default:
           return 2 * x;
       }
     })>},
    {"V_CUBESC_F32", &Run<([](float x, float y, float z) {
       switch (MajorAxis(x, y, z)) {
         case kZ:
           return z < 0 ? -x : x;
         case kY:
           return x;
         default:
           return x < 0 ? z : -z;
       }
     })>},
    {"V_CUBETC_F32", &Run<([](float x, float y, float z) {
       switch (MajorAxis(x, y, z)) {
         case kZ:
           return -y;
         case kY:
           return y < 0 ? -z : z;
         default:
           return -y;
       }
     })>},
};

}  // namespace

std::span<const VectorOp> FloatOps() { return kOps; }

}  // namespace softgpu::valu
