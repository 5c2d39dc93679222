// V_CMP and V_CMPX: every relation of every type, and the class tests.
#include <cmath>
#include <cstdint>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

// The comparable value of an operand.
constexpr double Value(F16 f) { return f.v; }
template <class T>
constexpr T Value(T v) {
  return v;
}

// Bits of the class mask: 0 sNaN, 1 qNaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0,
// 6 +0, 7 +denormal, 8 +normal, 9 +inf.
uint32_t ClassBit(bool sign, bool nan, bool quiet, bool inf, bool zero, bool denormal) {
  if (nan) return quiet ? 1 : 0;
  const uint32_t magnitude = inf ? 0 : denormal ? 2 : zero ? 3 : 1;
  return sign ? 2 + magnitude : 9 - magnitude;
}

bool InClass(float f, uint32_t classes) {
  return classes >>
             ClassBit(std::signbit(f), IsNan(f), !IsSnan(f), std::isinf(f), f == 0, IsDenormal(f)) &
         1;
}
bool InClass(double d, uint32_t classes) {
  return classes >>
             ClassBit(std::signbit(d), IsNan(d), !IsSnan(d), std::isinf(d), d == 0, IsDenormal(d)) &
         1;
}
bool InClass(uint16_t h, uint32_t classes) {
  const bool special = (h & 0x7c00) == 0x7c00, tiny = (h & 0x7c00) == 0;
  const bool man = h & 0x3ff;
  return classes >> ClassBit(h & 0x8000, special && man, h & 0x200, special && !man, tiny && !man,
                             tiny && man) &
         1;
}

// One relation, as V_CMP and as V_CMPX.
#define SOFTGPU_CMP(NAME, TYPE, T, EXPR)                     \
  {"V_CMP_" NAME "_" TYPE, &Run<([](T x, T y) -> bool {      \
     [[maybe_unused]] const auto a = Value(x);               \
     [[maybe_unused]] const auto b = Value(y);               \
     return static_cast<bool>(EXPR);                         \
   })>,                                                      \
   kCompare},                                                \
  {                                                          \
    "V_CMPX_" NAME "_" TYPE, &Run<([](T x, T y) -> ExecBit { \
      [[maybe_unused]] const auto a = Value(x);              \
      [[maybe_unused]] const auto b = Value(y);              \
      return ExecBit{static_cast<bool>(EXPR)};               \
    })>,                                                     \
        kCompare                                             \
  }

#define SOFTGPU_CMP_INT(TYPE, T)                                              \
  SOFTGPU_CMP("F", TYPE, T, false), SOFTGPU_CMP("LT", TYPE, T, a < b),        \
      SOFTGPU_CMP("EQ", TYPE, T, a == b), SOFTGPU_CMP("LE", TYPE, T, a <= b), \
      SOFTGPU_CMP("GT", TYPE, T, a > b), SOFTGPU_CMP("NE", TYPE, T, a != b),  \
      SOFTGPU_CMP("GE", TYPE, T, a >= b), SOFTGPU_CMP("T", TYPE, T, true)

#define SOFTGPU_CMP_FLOAT(TYPE, T)                                                              \
  SOFTGPU_CMP("F", TYPE, T, false), SOFTGPU_CMP("LT", TYPE, T, a < b),                          \
      SOFTGPU_CMP("EQ", TYPE, T, a == b), SOFTGPU_CMP("LE", TYPE, T, a <= b),                   \
      SOFTGPU_CMP("GT", TYPE, T, a > b), SOFTGPU_CMP("LG", TYPE, T, (a < b) | (a > b)),         \
      SOFTGPU_CMP("GE", TYPE, T, a >= b), SOFTGPU_CMP("O", TYPE, T, (a == a) & (b == b)),       \
      SOFTGPU_CMP("U", TYPE, T, (a != a) | (b != b)), SOFTGPU_CMP("NGE", TYPE, T, !(a >= b)),   \
      SOFTGPU_CMP("NLG", TYPE, T, !((a < b) | (a > b))), SOFTGPU_CMP("NGT", TYPE, T, !(a > b)), \
      SOFTGPU_CMP("NLE", TYPE, T, !(a <= b)), SOFTGPU_CMP("NEQ", TYPE, T, !(a == b)),           \
      SOFTGPU_CMP("NLT", TYPE, T, !(a < b)), SOFTGPU_CMP("TRU", TYPE, T, true),                 \
      SOFTGPU_CMP("T", TYPE, T, true)

#define SOFTGPU_CLASS(TYPE, T)                                                                    \
  {"V_CMP_CLASS_" TYPE, &Run<([](T a, uint32_t b) -> bool { return InClass(a, b); })>, kCompare}, \
  {                                                                                               \
    "V_CMPX_CLASS_" TYPE,                                                                         \
        &Run<([](T a, uint32_t b) -> ExecBit { return ExecBit{InClass(a, b)}; })>, kCompare       \
  }

constexpr VectorOp kOps[] = {
    SOFTGPU_CMP_INT("U16", uint16_t), SOFTGPU_CMP_INT("I16", int16_t),
    SOFTGPU_CMP_INT("U32", uint32_t), SOFTGPU_CMP_INT("I32", int32_t),
    SOFTGPU_CMP_INT("U64", uint64_t), SOFTGPU_CMP_INT("I64", int64_t),
    SOFTGPU_CMP_FLOAT("F16", F16),    SOFTGPU_CMP_FLOAT("F32", float),
    SOFTGPU_CMP_FLOAT("F64", double), SOFTGPU_CLASS("F16", uint16_t),
    SOFTGPU_CLASS("F32", float),      SOFTGPU_CLASS("F64", double),
};

#undef SOFTGPU_CLASS
#undef SOFTGPU_CMP_FLOAT
#undef SOFTGPU_CMP_INT
#undef SOFTGPU_CMP

}  // namespace

std::span<const VectorOp> CompareOps() { return kOps; }

}  // namespace softgpu::valu
