// Conversions between half precision, single precision and integers with the
// hardware's rules, for the parts of the interpreter outside the vector ALU.
#ifndef TESTS_SOFTGPU_INTERP_FLOAT_BITS_H_
#define TESTS_SOFTGPU_INTERP_FLOAT_BITS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace softgpu {

inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t exponent = half >> 10 & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -magnitude : magnitude;
}

// Rounds to nearest even, overflows to infinity, keeps denormals.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // a denormal half: units of 2^-24
    const float scaled = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112 << 10)));
}

// NaN gives 0; out of range saturates; truncates towards zero.
template <typename T>
T SaturatingConvert(float value) {
  if (std::isnan(value)) return 0;
  const double wide = std::trunc(static_cast<double>(value));
  if (wide <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  if (wide >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(wide);
}

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_FLOAT_BITS_H_
