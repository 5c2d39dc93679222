#include "tests/softgpu/interp/atomics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "tests/softgpu/interp/float_bits.h"

namespace softgpu {
namespace {

template <typename F, typename U, typename Op>
U Float(U old, U data, Op op) {
  return std::bit_cast<U>(static_cast<F>(op(std::bit_cast<F>(old), std::bit_cast<F>(data))));
}

uint32_t PkAddF16(uint32_t old, uint32_t data) {
  const auto add = [](uint32_t a, uint32_t b) -> uint32_t {
    return FloatToHalf(HalfToFloat(static_cast<uint16_t>(a)) +
                       HalfToFloat(static_cast<uint16_t>(b)));
  };
  return add(old, data) | add(old >> 16, data >> 16) << 16;
}

uint32_t PkAddBf16(uint32_t old, uint32_t data) {
  const auto add = [](uint32_t a, uint32_t b) -> uint32_t {
    const float sum = std::bit_cast<float>(a << 16) + std::bit_cast<float>(b << 16);
    const uint32_t bits = std::bit_cast<uint32_t>(sum);
    if (std::isnan(sum)) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  };
  return add(old & 0xffff, data & 0xffff) | add(old >> 16, data >> 16) << 16;
}

// Operations that mean the same at both widths.
template <typename U>
U ApplyInteger(AtomicOp op, U old, U data, U compare) {
  using S = std::make_signed_t<U>;
  const auto s_old = static_cast<S>(old);
  const auto s_data = static_cast<S>(data);
  switch (op) {
    case AtomicOp::kSwap:
      return data;
    case AtomicOp::kCmpSwap:
      return old == compare ? data : old;
    case AtomicOp::kAdd:
      return old + data;
    case AtomicOp::kSub:
      return old - data;
    case AtomicOp::kRsub:
      return data - old;
    case AtomicOp::kSMin:
      return s_data < s_old ? data : old;
    case AtomicOp::kUMin:
      return std::min(data, old);
    case AtomicOp::kSMax:
      return s_data > s_old ? data : old;
    case AtomicOp::kUMax:
      return std::max(data, old);
    case AtomicOp::kAnd:
      return old & data;
    case AtomicOp::kOr:
      return old | data;
    case AtomicOp::kXor:
      return old ^ data;
    case AtomicOp::kInc:
      return old >= data ? 0 : old + 1;
    case AtomicOp::kDec:
      return old == 0 || old > data ? data : old - 1;
    case AtomicOp::kCSub:
      return old >= data ? old - data : old;
    case AtomicOp::kSubClamp:
      return old >= data ? old - data : 0;
    case AtomicOp::kMskor:
      return (old & ~compare) | data;
    case AtomicOp::kWrap:
      return old >= data ? old - data : old + compare;
    default:
      return old;
  }
}

template <typename U, auto Apply>
U CompareAndSwapLoop(AtomicOp op, uint64_t address, U data, U compare) {
  auto* cell = reinterpret_cast<U*>(address);
  U old = __atomic_load_n(cell, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(cell, &old, Apply(op, old, data, compare), false,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

}  // namespace

uint32_t ApplyAtomic32(AtomicOp op, uint32_t old, uint32_t data, uint32_t compare) {
  switch (op) {
    case AtomicOp::kAddF32:
      return Float<float>(old, data, [](float a, float b) { return a + b; });
    case AtomicOp::kMinF32:
      return Float<float>(old, data, [](float a, float b) { return std::fmin(a, b); });
    case AtomicOp::kMaxF32:
      return Float<float>(old, data, [](float a, float b) { return std::fmax(a, b); });
    case AtomicOp::kFCmpSwap:
      return std::bit_cast<float>(old) == std::bit_cast<float>(compare) ? data : old;
    case AtomicOp::kPkAddF16:
      return PkAddF16(old, data);
    case AtomicOp::kPkAddBf16:
      return PkAddBf16(old, data);
    default:
      return ApplyInteger<uint32_t>(op, old, data, compare);
  }
}

uint64_t ApplyAtomic64(AtomicOp op, uint64_t old, uint64_t data, uint64_t compare) {
  switch (op) {
    case AtomicOp::kAddF64:
      return Float<double>(old, data, [](double a, double b) { return a + b; });
    case AtomicOp::kMinF64:
      return Float<double>(old, data, [](double a, double b) { return std::fmin(a, b); });
    case AtomicOp::kMaxF64:
      return Float<double>(old, data, [](double a, double b) { return std::fmax(a, b); });
    case AtomicOp::kFCmpSwap:
      return std::bit_cast<double>(old) == std::bit_cast<double>(compare) ? data : old;
    default:
      return ApplyInteger<uint64_t>(op, old, data, compare);
  }
}

uint32_t Atomic32(AtomicOp op, uint64_t address, uint32_t data, uint32_t compare) {
  return CompareAndSwapLoop<uint32_t, ApplyAtomic32>(op, address, data, compare);
}

uint64_t Atomic64(AtomicOp op, uint64_t address, uint64_t data, uint64_t compare) {
  return CompareAndSwapLoop<uint64_t, ApplyAtomic64>(op, address, data, compare);
}

}  // namespace softgpu
