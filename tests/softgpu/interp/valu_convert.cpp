// Conversions of the vector ALU.
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

// Truncates and saturates; NaN gives zero.
template <class To>
To ToInteger(double v) {
  if (IsNan(v)) return 0;
  v = std::trunc(v);
  if (v <= static_cast<double>(std::numeric_limits<To>::min())) {
    return std::numeric_limits<To>::min();
  }
  if (v >= static_cast<double>(std::numeric_limits<To>::max())) {
    return std::numeric_limits<To>::max();
  }
  return static_cast<To>(v);
}

template <class To>
u32 Norm16(double v) {
  constexpr double kLow = std::numeric_limits<To>::is_signed ? -1 : 0;
  if (IsNan(v)) return 0;
  v = std::clamp(v, kLow, 1.0) * std::numeric_limits<To>::max();
  return static_cast<u16>(static_cast<i32>(__builtin_roundeven(v)));
}

constexpr u32 Pair(u32 low, u32 high) { return (low & 0xffff) | high << 16; }

template <class To, class From>
u32 PackSaturated(From a, From b) {
  const auto one = [](From v) {
    constexpr From kMin = std::numeric_limits<To>::min(), kMax = std::numeric_limits<To>::max();
    return static_cast<u32>(static_cast<u16>(v < kMin ? kMin : v > kMax ? kMax : v));
  };
  return Pair(one(a), one(b));
}

// Replaces byte `index` of `old`.
u32 InsertByte(u32 byte, u32 index, u32 old) {
  const u32 shift = 8 * (index & 3);
  return (old & ~(0xffu << shift)) | (byte & 0xff) << shift;
}

constexpr VectorOp kOps[] = {
    {"V_CVT_F32_U32", &Run<([](u32 a) { return static_cast<float>(a); })>},
    {"V_CVT_F32_I32", &Run<([](i32 a) { return static_cast<float>(a); })>},
    {"V_CVT_F64_U32", &Run<([](u32 a) { return static_cast<double>(a); })>},
    {"V_CVT_F64_I32", &Run<([](i32 a) { return static_cast<double>(a); })>},
    {"V_CVT_F16_U16", &Run<([](u16 a) { return F16{static_cast<double>(a)}; })>},
    {"V_CVT_F16_I16", &Run<([](i16 a) { return F16{static_cast<double>(a)}; })>},
    {"V_CVT_U32_F32", &Run<([](float a) { return ToInteger<u32>(a); }), Cost::kSparse>},
    {"V_CVT_I32_F32", &Run<([](float a) { return ToInteger<i32>(a); }), Cost::kSparse>},
    {"V_CVT_U32_F64", &Run<([](double a) { return ToInteger<u32>(a); }), Cost::kSparse>},
    {"V_CVT_I32_F64", &Run<([](double a) { return ToInteger<i32>(a); }), Cost::kSparse>},
    {"V_CVT_U16_F16", &Run<([](F16 a) { return ToInteger<u16>(a.v); }), Cost::kSparse>},
    {"V_CVT_I16_F16", &Run<([](F16 a) { return ToInteger<i16>(a.v); }), Cost::kSparse>},
    {"V_CVT_FLR_I32_F32",
     &Run<([](float a) { return ToInteger<i32>(std::floor(double{a})); }), Cost::kSparse>},
    {"V_CVT_RPI_I32_F32",
     &Run<([](float a) { return ToInteger<i32>(std::floor(double{a} + 0.5)); }), Cost::kSparse>},
    {"V_CVT_F32_F16", &Run<([](F16 a) { return static_cast<float>(a.v); })>},
    {"V_CVT_F16_F32", &Run<([](float a) { return F16{double{a}}; })>},
    {"V_CVT_F32_F64", &Run<([](double a) { return static_cast<float>(a); })>},
    {"V_CVT_F64_F32", &Run<([](float a) { return double{a}; })>},
    {"V_CVT_F32_BF16", &Run<([](u16 a) { return BfloatToFloat(a); })>},
    {"V_CVT_F32_UBYTE0", &Run<([](u32 a) { return static_cast<float>(a & 0xff); })>},
    {"V_CVT_F32_UBYTE1", &Run<([](u32 a) { return static_cast<float>(a >> 8 & 0xff); })>},
    {"V_CVT_F32_UBYTE2", &Run<([](u32 a) { return static_cast<float>(a >> 16 & 0xff); })>},
    {"V_CVT_F32_UBYTE3", &Run<([](u32 a) { return static_cast<float>(a >> 24); })>},
    {"V_CVT_OFF_F32_I4",
     &Run<([](u32 a) { return static_cast<float>(static_cast<i32>(a << 28) >> 28) / 16.0f; })>},
    {"V_CVT_I32_I16", &Run<([](i16 a) { return i32{a}; })>},
    {"V_CVT_U32_U16", &Run<([](u16 a) { return u32{a}; })>},
    {"V_CVT_NORM_I16_F16",
     &Run<([](F16 a) { return static_cast<u16>(Norm16<i16>(a.v)); }), Cost::kSparse>},
    {"V_CVT_NORM_U16_F16",
     &Run<([](F16 a) { return static_cast<u16>(Norm16<u16>(a.v)); }), Cost::kSparse>},
    {"V_CVT_PKRTZ_F16_F32",
     &Run<([](float a, float b) { return Pair(DoubleToHalf(a, 3), DoubleToHalf(b, 3)); })>},
    {"V_CVT_PK_BF16_F32",
     &Run<([](float a, float b) { return Pair(FloatToBfloat(a), FloatToBfloat(b)); })>},
    {"V_CVT_PKNORM_I16_F32",
     &Run<([](float a, float b) { return Pair(Norm16<i16>(a), Norm16<i16>(b)); }), Cost::kSparse>},
    {"V_CVT_PKNORM_U16_F32",
     &Run<([](float a, float b) { return Pair(Norm16<u16>(a), Norm16<u16>(b)); }), Cost::kSparse>},
    {"V_CVT_PKNORM_I16_F16",
     &Run<([](F16 a, F16 b) { return Pair(Norm16<i16>(a.v), Norm16<i16>(b.v)); }), Cost::kSparse>},
    {"V_CVT_PKNORM_U16_F16",
     &Run<([](F16 a, F16 b) { return Pair(Norm16<u16>(a.v), Norm16<u16>(b.v)); }), Cost::kSparse>},
    {"V_CVT_PK_U16_U32", &Run<([](u32 a, u32 b) { return PackSaturated<u16>(a, b); })>},
    {"V_CVT_PK_I16_I32", &Run<([](i32 a, i32 b) { return PackSaturated<i16>(a, b); })>},
    {"V_CVT_PK_U16_F32",
     &Run<([](float a, float b) { return Pair(ToInteger<u16>(a), ToInteger<u16>(b)); }),
          Cost::kSparse>},
    {"V_CVT_PK_I16_F32", &Run<([](float a, float b) {
                                return Pair(static_cast<u16>(ToInteger<i16>(a)),
                                            static_cast<u16>(ToInteger<i16>(b)));
                              }),
                              Cost::kSparse>},
    // Rounds to nearest even before saturating to a byte.
    {"V_CVT_PK_U8_F32", &Run<([](float a, u32 b, u32 c) {
                               return InsertByte(ToInteger<uint8_t>(__builtin_roundeven(a)), b, c);
                             }),
                             Cost::kSparse>},
};

}  // namespace

std::span<const VectorOp> ConvertOps() { return kOps; }

}  // namespace softgpu::valu
