// Float formats and bit-level helpers that C++20 has no types for: f16 and
// bf16 conversions with the GPU's rounding modes, quieting, exact wide sums.
#ifndef TESTS_SOFTGPU_INTERP_VALU_FLOAT_H_
#define TESTS_SOFTGPU_INTERP_VALU_FLOAT_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace softgpu::valu {

inline uint32_t Bits(float f) { return std::bit_cast<uint32_t>(f); }
inline uint64_t Bits(double d) { return std::bit_cast<uint64_t>(d); }
inline float F32(uint32_t b) { return std::bit_cast<float>(b); }
inline double F64(uint64_t b) { return std::bit_cast<double>(b); }

inline bool IsNan(float f) { return (Bits(f) & 0x7fffffffu) > 0x7f800000u; }
inline bool IsNan(double d) { return (Bits(d) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
inline bool IsSnan(float f) { return IsNan(f) && !(Bits(f) & 0x00400000u); }
inline bool IsSnan(double d) { return IsNan(d) && !(Bits(d) & (uint64_t{1} << 51)); }
inline float Quiet(float f) { return F32(Bits(f) | 0x00400000u); }
inline double Quiet(double d) { return F64(Bits(d) | (uint64_t{1} << 51)); }
inline bool IsDenormal(float f) {
  return (Bits(f) & 0x7f800000u) == 0 && (Bits(f) & 0x007fffffu) != 0;
}
inline bool IsDenormal(double d) {
  return (Bits(d) & 0x7ff0000000000000ull) == 0 && (Bits(d) & 0x000fffffffffffffull) != 0;
}
inline float FlushDenormal(float f) {
  return (Bits(f) & 0x7f800000u) == 0 ? F32(Bits(f) & 0x80000000u) : f;
}
inline int BiasedExponent(float f) { return static_cast<int>(Bits(f) >> 23 & 0xff); }
inline int BiasedExponent(double d) { return static_cast<int>(Bits(d) >> 52 & 0x7ff); }

// An f16 value, held exactly as a double between fetch and store.
struct F16 {
  double v;
};

// NaN payloads survive (shifted), so signalling NaNs stay signalling.
inline double HalfToDouble(uint16_t h) {
  const uint64_t sign = uint64_t{h & 0x8000u} << 48;
  const uint32_t exp = h >> 10 & 0x1f;
  const uint64_t man = h & 0x3ff;
  if (exp == 0x1f) return F64(sign | 0x7ff0000000000000ull | man << 42);
  if (exp != 0) return F64(sign | uint64_t{exp + 1008} << 52 | man << 42);
  const double tiny = static_cast<double>(man) * 0x1p-24;
  return F64(Bits(tiny) | sign);
}

// Rounds once, by `round` (0 nearest even, 1 up, 2 down, 3 to zero).
inline uint16_t DoubleToHalf(double d, uint8_t round = 0) {
  const uint64_t b = Bits(d);
  const uint16_t sign = static_cast<uint16_t>(b >> 48 & 0x8000);
  const uint64_t mag = b & 0x7fffffffffffffffull;
  if (mag >= 0x7ff0000000000000ull) {
    if (mag == 0x7ff0000000000000ull) return sign | 0x7c00;
    const uint16_t man = static_cast<uint16_t>(mag >> 42 & 0x3ff);
    return static_cast<uint16_t>(sign | 0x7c00 | man | (man ? 0 : 0x200));
  }
  const bool toward_inf = (round == 1 && !sign) || (round == 2 && sign);
  const int exp = static_cast<int>(mag >> 52) - 1023;
  if (mag == 0) return sign;
  if (exp > 15) {
    return static_cast<uint16_t>(sign | (round == 0 || toward_inf ? 0x7c00 : 0x7bff));
  }
  // man has the implicit bit at 52; `drop` low bits go away.
  const uint64_t man = (mag & 0x000fffffffffffffull) | (mag >> 52 ? uint64_t{1} << 52 : 0);
  int drop = 42;
  uint32_t base = static_cast<uint32_t>(exp + 15) << 10;
  if (exp < -14) {
    drop += -14 - exp;
    base = 0;
  } else {
    base -= 0x400;  // the implicit bit adds it back
  }
  if (drop > 62) drop = 62;
  uint64_t kept = man >> drop;
  const uint64_t rest = man & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  if (round == 0 ? (rest > half || (rest == half && (kept & 1))) : (toward_inf && rest)) ++kept;
  return static_cast<uint16_t>(sign | (base + kept));
}

inline float BfloatToFloat(uint16_t b) { return F32(uint32_t{b} << 16); }
inline uint16_t FloatToBfloat(float f) {
  if (IsNan(f)) return static_cast<uint16_t>(Bits(Quiet(f)) >> 16);
  const uint32_t b = Bits(f);
  return static_cast<uint16_t>((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

// a + b in double, inexact results rounded to odd: rounding the outcome once
// more to a format of at most 51 bits then equals rounding the exact sum.
inline double AddToOdd(double a, double b) {
  const double s = a + b;
  if (!std::isfinite(s)) return s;
  const double bb = s - a;
  const double err = (a - (s - bb)) + (b - bb);
  if (err == 0 || (Bits(s) & 1)) return s;
  const bool away = (err > 0) == (s > 0);
  return F64(away ? Bits(s) + 1 : Bits(s) - 1);
}

// a*b+c for f32 (or narrower) inputs, rounded to odd in double.
inline double FmaToOdd(double a, double b, double c) { return AddToOdd(a * b, c); }

// IEEE minNum with the GPU's rules: in IEEE mode a signalling NaN wins
// (quieted), otherwise a NaN loses against a number; -0 < +0.
template <class T>
T MinNum(bool ieee, T a, T b) {
  if (ieee && IsSnan(a)) return Quiet(a);
  if (ieee && IsSnan(b)) return Quiet(b);
  if (IsNan(a)) return b;
  if (IsNan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T MaxNum(bool ieee, T a, T b) {
  if (ieee && IsSnan(a)) return Quiet(a);
  if (ieee && IsSnan(b)) return Quiet(b);
  if (IsNan(a)) return b;
  if (IsNan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
}  // namespace softgpu::valu

#endif  // TESTS_SOFTGPU_INTERP_VALU_FLOAT_H_
