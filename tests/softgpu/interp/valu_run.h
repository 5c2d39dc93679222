// Turns a function of one lane's values into an instruction handler. The
// argument and result types say how operands are read and written:
//   uint16_t int16_t F16 uint32_t int32_t float uint64_t int64_t double,
//   LaneBit (a bit of a lane mask), bool (VOPC), ExecBit (V_CMPX),
//   WithCarry<T> (value and a bit of sdst). A first parameter of type
//   const Ctx& gives the lane number and MODE.
#ifndef TESTS_SOFTGPU_INTERP_VALU_RUN_H_
#define TESTS_SOFTGPU_INTERP_VALU_RUN_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/softgpu/interp/valu_float.h"
#include "tests/softgpu/interp/valu_operands.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu::valu {

struct LaneBit {
  bool v;
};
struct ExecBit {
  bool v;
};
template <class T>
struct WithCarry {
  T v;
  bool carry;
};
struct Ctx {
  const Wave& wave;
  const Inst& inst;
  uint32_t lane;
  bool ieee;
};

template <class T>
constexpr Elem ElemOf() {
  if constexpr (std::is_same_v<T, F16>)
    return Elem::kF16;
  else if constexpr (std::is_same_v<T, float>)
    return Elem::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return Elem::kF64;
  else if constexpr (std::is_same_v<T, LaneBit>)
    return Elem::kMask;
  else if constexpr (sizeof(T) == 8)
    return Elem::kU64;
  else if constexpr (sizeof(T) == 4)
    return Elem::kU32;
  else {
    static_assert(sizeof(T) == 2);
    return Elem::kU16;
  }
}

template <class T>
struct ResultOf {
  using Value = T;
  static constexpr Result kResult = Result::kValue;
};
template <class T>
struct ResultOf<WithCarry<T>> {
  using Value = T;
  static constexpr Result kResult = Result::kValueAndCarry;
};
template <>
struct ResultOf<bool> {
  using Value = LaneBit;
  static constexpr Result kResult = Result::kMask;
};
template <>
struct ResultOf<ExecBit> {
  using Value = LaneBit;
  static constexpr Result kResult = Result::kMaskAndExec;
};

template <class R, bool kCtx, class... A>
struct Signature {
  using Return = R;
  using Args = std::tuple<A...>;
  static constexpr bool kWantsCtx = kCtx;
  static constexpr size_t kArity = sizeof...(A);
  static constexpr Shape MakeShape() {
    Shape s;
    s.num_src = sizeof...(A);
    s.src = {ElemOf<A>()...};
    s.dst = ElemOf<typename ResultOf<R>::Value>();
    s.result = ResultOf<R>::kResult;
    return s;
  }
};
template <class T>
struct SignatureOf;
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(A...) const> : Signature<R, false, A...> {};
template <class C, class R, class... A>
struct SignatureOf<R (C::*)(const Ctx&, A...) const> : Signature<R, true, A...> {};

template <class T>
inline T LoadLane(const SrcLanes& s, uint32_t lane) {
  if constexpr (std::is_same_v<T, LaneBit>) {
    return LaneBit{s.lo[lane] != 0};
  } else if constexpr (std::is_same_v<T, F16>) {
    return F16{HalfToDouble(static_cast<uint16_t>(s.lo[lane] >> s.shift))};
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(s.lo[lane] >> s.shift);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(s.lo[lane]);
  } else {
    return std::bit_cast<T>(s.lo[lane] | uint64_t{s.hi[lane]} << 32);
  }
}

template <class T>
inline void StoreLane(OutLanes& out, uint32_t lane, T v, uint8_t half_round) {
  if constexpr (std::is_same_v<T, F16>) {
    out.lo[lane] = DoubleToHalf(v.v, half_round);
  } else if constexpr (sizeof(T) == 2) {
    out.lo[lane] = static_cast<uint16_t>(v);
  } else if constexpr (sizeof(T) == 4) {
    out.lo[lane] = std::bit_cast<uint32_t>(v);
  } else {
    const uint64_t b = std::bit_cast<uint64_t>(v);
    out.lo[lane] = static_cast<uint32_t>(b);
    out.hi[lane] = static_cast<uint32_t>(b >> 32);
  }
}

// Calls F for one lane of fetched sources.
template <auto F, class Sig, size_t... I>
inline auto CallLane(const Wave& w, const Inst& inst, bool ieee, const SrcLanes* src, uint32_t lane,
                     std::index_sequence<I...>) {
  using Args = typename Sig::Args;
  if constexpr (Sig::kWantsCtx) {
    return F(Ctx{w, inst, lane, ieee}, LoadLane<std::tuple_element_t<I, Args>>(src[I], lane)...);
  } else {
    return F(LoadLane<std::tuple_element_t<I, Args>>(src[I], lane)...);
  }
}

// One byte (0 or 1) per lane to one bit per lane.
inline uint64_t PackFlags(const uint8_t* flags, uint32_t lanes) {
  uint64_t mask = 0;
  for (uint32_t i = 0; i < lanes; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, flags + i, 8);
    mask |= (bytes * 0x0102040810204080ull >> 56) << i;
  }
  return mask;
}

template <auto F, class Sig>
inline void ComputeLanes(const Wave& w, const Inst& inst, const SrcLanes* src, OutLanes& out,
                         uint64_t mask, bool sparse, uint8_t half_round) {
  using Return = typename Sig::Return;
  constexpr auto kIndices = std::make_index_sequence<Sig::kArity>{};
  constexpr Result kResult = ResultOf<Return>::kResult;
  const bool ieee = Sig::kWantsCtx && IeeeMode(w);
  alignas(16) uint8_t flags[kResult == Result::kValue ? 1 : kMaxLanes];
  const auto one = [&](uint32_t lane) {
    const auto r = CallLane<F, Sig>(w, inst, ieee, src, lane, kIndices);
    if constexpr (kResult == Result::kValue) {
      StoreLane(out, lane, r, half_round);
    } else if constexpr (kResult == Result::kValueAndCarry) {
      StoreLane(out, lane, r.v, half_round);
      flags[lane] = r.carry;
    } else if constexpr (std::is_same_v<Return, bool>) {
      flags[lane] = r;
    } else {
      flags[lane] = r.v;
    }
  };
  if (sparse) {
    // What is not computed must still have a value: it passes through clamping.
    std::fill_n(out.lo, kMaxLanes, 0);
    std::fill_n(out.hi, kMaxLanes, 0);
    std::fill_n(flags, sizeof(flags), 0);
    for (uint64_t m = mask; m != 0; m &= m - 1) one(static_cast<uint32_t>(std::countr_zero(m)));
  } else {
    const uint32_t lanes = w.lanes;
    for (uint32_t lane = 0; lane < lanes; ++lane) one(lane);
  }
  if constexpr (kResult != Result::kValue) out.carry = PackFlags(flags, w.lanes);
}

#if defined(__x86_64__)
// The same, compiled for hosts that fuse multiply-adds in hardware: the library
// call per lane is what makes V_FMA slow.
template <auto F, class Sig>
__attribute__((target("avx2,fma"), flatten, noinline)) void ComputeLanesFma(
    const Wave& w, const Inst& inst, const SrcLanes* src, OutLanes& out, uint8_t half_round) {
  ComputeLanes<F, Sig>(w, inst, src, out, 0, false, half_round);
}
inline bool HostHasFma() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}
#else
template <auto F, class Sig>
void ComputeLanesFma(const Wave& w, const Inst& inst, const SrcLanes* src, OutLanes& out,
                     uint8_t half_round) {
  ComputeLanes<F, Sig>(w, inst, src, out, 0, false, half_round);
}
inline bool HostHasFma() { return false; }
#endif

enum class Cost : uint8_t {
  kCheap,   // computed for all lanes, which the compiler can vectorise
  kSparse,  // costly: active lanes only
  kFma,     // fused multiply-add: vectorised if the host can, else sparse
};

template <auto F, class Sig, Cost kCost>
inline void Compute(const Wave& w, const Inst& inst, const SrcLanes* src, OutLanes& out,
                    uint64_t mask, uint8_t half_round) {
  if constexpr (kCost == Cost::kFma) {
    if (HostHasFma()) return ComputeLanesFma<F, Sig>(w, inst, src, out, half_round);
  }
  ComputeLanes<F, Sig>(w, inst, src, out, mask, kCost != Cost::kCheap, half_round);
}

template <auto F, Cost kCost = Cost::kCheap>
Step Run(Wave& w, const Inst& inst) {
  using Sig = SignatureOf<decltype(&decltype(F)::operator())>;
  static constexpr Shape kShape = Sig::MakeShape();
  if (!RegistersAllocated(w, inst, kShape)) return FaultRegister(w, inst);
  SrcLanes src[Sig::kArity == 0 ? 1 : Sig::kArity];
  for (size_t i = 0; i < Sig::kArity; ++i) {
    Fetch(w, inst, static_cast<int>(i), kShape.src[i], src[i]);
  }
  OutLanes out;
  const uint64_t mask = WriteMaskOf(w, inst);
  if constexpr (IsFloat(kShape.dst)) {
    const FloatMode mode = ModeFor(w, kShape.dst);
    // f16 results are rounded from double by DoubleToHalf, not by the host.
    RoundScope scope(kShape.dst == Elem::kF16 ? uint8_t{0} : mode.round);
    Compute<F, Sig, kCost>(w, inst, src, out, mask, mode.round);
  } else {
    Compute<F, Sig, kCost>(w, inst, src, out, mask, 0);
  }
  return Store(w, inst, kShape, out, mask);
}

// Packed: F on the low halves gives the low half of dst, likewise the high.
template <auto F, Cost kCost = Cost::kCheap>
Step RunPacked(Wave& w, const Inst& inst) {
  using Sig = SignatureOf<decltype(&decltype(F)::operator())>;
  static constexpr Shape kShape = Sig::MakeShape();
  static constexpr bool kWide = kShape.dst == Elem::kF32;
  Shape registers = kShape;
  for (Elem& e : registers.src) e = kWide ? Elem::kU64 : Elem::kU32;
  registers.dst = kWide ? Elem::kU64 : Elem::kU32;
  if (!RegistersAllocated(w, inst, registers)) return FaultRegister(w, inst);
  const uint64_t mask = w.Exec() & AllLanes(w);
  const FloatMode mode = ModeFor(w, kShape.dst);
  OutLanes half[2];
  for (int h = 0; h < 2; ++h) {
    SrcLanes src[Sig::kArity];
    for (size_t i = 0; i < Sig::kArity; ++i) {
      FetchPacked(w, inst, static_cast<int>(i), kShape.src[i], h, src[i]);
    }
    RoundScope scope(kShape.dst == Elem::kF32 ? mode.round : uint8_t{0});
    Compute<F, Sig, kCost>(w, inst, src, half[h], mask, mode.round);
    if constexpr (IsFloat(kShape.dst)) FinishFloat(w, inst, kShape.dst, half[h]);
  }
  if constexpr (kWide) {
    StoreRegister(w, inst.dst, 0, half[0].lo, mask);
    StoreRegister(w, inst.dst, 1, half[1].lo, mask);
  } else {
    for (uint32_t l = 0; l < w.lanes; ++l) half[0].lo[l] |= half[1].lo[l] << 16;
    StoreRegister(w, inst.dst, 0, half[0].lo, mask);
  }
  return Step::kNext;
}

// How a table entry's operands are completed before first execution.
enum Setup : uint8_t {
  kPlain = 0,
  kAccumulate = 1,  // src[2] is dst
  kCarryOut = 2,    // sdst defaults to VCC
  kMaskSource = 4,  // src[2] defaults to VCC
  kCompare = 8,     // dst defaults to VCC
  kFmasMask = 16,   // src[3] is VCC
  kOpSel16 = 32,    // 16-bit form with op_sel: gfx9 preserves the other half
};

struct VectorOp {
  std::string_view name;
  Handler handler;
  uint8_t setup = kPlain;
  Handler clamped = nullptr;  // integer saturating form, if `clamp` is set
};

std::span<const VectorOp> IntegerOps();
std::span<const VectorOp> FloatOps();
std::span<const VectorOp> ConvertOps();
std::span<const VectorOp> CompareOps();
std::span<const VectorOp> LaneOps();
std::span<const VectorOp> PackedOps();
std::span<const VectorOp> MatrixOps();

}  // namespace softgpu::valu

#endif  // TESTS_SOFTGPU_INTERP_VALU_RUN_H_
