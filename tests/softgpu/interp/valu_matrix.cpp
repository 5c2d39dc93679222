// Matrix (MFMA) instructions of gfx908, gfx90a and gfx940, which ignore EXEC.
// Layouts are those of AMD's "CDNA" ISA guides. Sums run over k in order, each
// step a fused multiply-add in the accumulator's type; hardware's internal order
// for the 16- and 8-bit forms is not published and may differ in the last bit.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

constexpr uint32_t kWaveLanes = 64;

enum class Type : uint8_t { kF32, kF16, kBf16, kI8, kF64 };

// D[m x m] = A[m x k] * B[k x m] + C, `blocks` times independently.
// per_lane consecutive k of A and B are in one lane's registers.
struct MatrixShape {
  std::string_view name;
  uint32_t m, k, blocks, per_lane;
  Type type;
};

constexpr MatrixShape kShapes[] = {
    {"V_MFMA_F32_32X32X1F32", 32, 1, 2, 1, Type::kF32},
    {"V_MFMA_F32_16X16X1F32", 16, 1, 4, 1, Type::kF32},
    {"V_MFMA_F32_4X4X1F32", 4, 1, 16, 1, Type::kF32},
    {"V_MFMA_F32_32X32X2F32", 32, 2, 1, 1, Type::kF32},
    {"V_MFMA_F32_16X16X4F32", 16, 4, 1, 1, Type::kF32},
    {"V_MFMA_F32_32X32X4F16", 32, 4, 2, 4, Type::kF16},
    {"V_MFMA_F32_16X16X4F16", 16, 4, 4, 4, Type::kF16},
    {"V_MFMA_F32_4X4X4F16", 4, 4, 16, 4, Type::kF16},
    {"V_MFMA_F32_32X32X8F16", 32, 8, 1, 4, Type::kF16},
    {"V_MFMA_F32_16X16X16F16", 16, 16, 1, 4, Type::kF16},
    {"V_MFMA_F32_32X32X2BF16", 32, 2, 2, 2, Type::kBf16},
    {"V_MFMA_F32_16X16X2BF16", 16, 2, 4, 2, Type::kBf16},
    {"V_MFMA_F32_4X4X2BF16", 4, 2, 16, 2, Type::kBf16},
    {"V_MFMA_F32_32X32X4BF16", 32, 4, 1, 2, Type::kBf16},
    {"V_MFMA_F32_16X16X8BF16", 16, 8, 1, 2, Type::kBf16},
    {"V_MFMA_F32_32X32X4BF16_1K", 32, 4, 2, 4, Type::kBf16},
    {"V_MFMA_F32_16X16X4BF16_1K", 16, 4, 4, 4, Type::kBf16},
    {"V_MFMA_F32_4X4X4BF16_1K", 4, 4, 16, 4, Type::kBf16},
    {"V_MFMA_F32_32X32X8BF16_1K", 32, 8, 1, 4, Type::kBf16},
    {"V_MFMA_F32_16X16X16BF16_1K", 16, 16, 1, 4, Type::kBf16},
    {"V_MFMA_I32_32X32X4I8", 32, 4, 2, 4, Type::kI8},
    {"V_MFMA_I32_16X16X4I8", 16, 4, 4, 4, Type::kI8},
    {"V_MFMA_I32_4X4X4I8", 4, 4, 16, 4, Type::kI8},
    {"V_MFMA_I32_32X32X8I8", 32, 8, 1, 4, Type::kI8},
    {"V_MFMA_I32_16X16X16I8", 16, 16, 1, 4, Type::kI8},
    {"V_MFMA_I32_32X32X16I8", 32, 16, 1, 8, Type::kI8},
    {"V_MFMA_I32_16X16X32I8", 16, 32, 1, 8, Type::kI8},
    {"V_MFMA_F64_16X16X4F64", 16, 4, 1, 1, Type::kF64},
    {"V_MFMA_F64_4X4X4F64", 4, 4, 4, 1, Type::kF64},
};

// Bytes of one element of A and B.
constexpr uint32_t ElementBytes(Type t) {
  switch (t) {
    case Type::kF64:
      return 8;
    case Type::kF32:
      return 4;
    case Type::kI8:
      return 1;
    default:
      return 2;
  }
}

constexpr uint32_t SourceDwords(const MatrixShape& s) {
  return std::max(1u, s.per_lane * ElementBytes(s.type) / 4);
}
// Accumulator elements in each lane.
constexpr uint32_t ResultsPerLane(const MatrixShape& s) {
  return s.m * s.m * s.blocks / kWaveLanes;
}
constexpr uint32_t ResultDwords(const MatrixShape& s) {
  return ResultsPerLane(s) * (s.type == Type::kF64 ? 2 : 1);
}

// Where element (block, i, j) of C and D lives.
struct Place {
  uint32_t lane, index;
};
constexpr Place ResultPlace(const MatrixShape& s, uint32_t block, uint32_t i, uint32_t j) {
  if (s.type == Type::kF64) {
    return s.m == 16 ? Place{j + 16 * (i % 4), i / 4} : Place{j + 4 * block + 16 * i, 0};
  }
  if (s.m == 4) return {j + 4 * block, i};
  const uint32_t rows = kWaveLanes / s.m;  // lanes that share a column
  return {j + s.m * (i / 4 % rows), i / (4 * rows) * 4 + i % 4 + block * (s.m * s.m / kWaveLanes)};
}

// Lane and element index within the lane of A[i][k] (and, by symmetry, B[k][j]).
constexpr Place SourcePlace(const MatrixShape& s, uint32_t block, uint32_t i, uint32_t k) {
  return {i + s.m * (block + s.blocks * (k / s.per_lane)), k % s.per_lane};
}

// cbsz: groups of 2^cbsz blocks all use block abid of their group for A.
uint32_t BroadcastBlock(const Inst& inst, const MatrixShape& s, uint32_t block) {
  if (s.type == Type::kF64 || inst.cbsz == 0) return block;
  const uint32_t group = 1u << inst.cbsz;
  return ((block & ~(group - 1)) | (inst.abid & (group - 1))) % s.blocks;
}

// blgp: the lane whose B data this lane sees.
uint32_t BroadcastLane(const Inst& inst, const MatrixShape& s, uint32_t lane) {
  if (s.type == Type::kF64) return lane;
  switch (inst.blgp) {
    case 0:
      return lane;
    case 1:
      return lane & 31;
    case 2:
      return (lane & 31) | 32;
    case 3:
      return (lane + 16) & 63;
    default:
      return (lane & 15) | static_cast<uint32_t>(inst.blgp - 4) << 4;
  }
}

// gfx940 reads blgp as sign flips of A, B and C in the F64 forms.
bool Negated(const Wave& w, const Inst& inst, const MatrixShape& s, int source) {
  return s.type == Type::kF64 && w.target->gen == Gen::kGfx940 && (inst.blgp >> source & 1);
}

// The value of an element, as a double (exact for every type).
double Element(Wave& w, const Operand& o, const MatrixShape& s, Place place) {
  const auto dword = [&](uint32_t n) -> uint32_t {
    return o.kind == Operand::Kind::kImm || o.kind == Operand::Kind::kSgpr
               ? Scalar32(w, o)
               : RegisterLanes(w, o, n)[place.lane];
  };
  const uint32_t n = place.index;
  switch (s.type) {
    case Type::kF32:
      return F32(dword(n));
    case Type::kF16:
      return HalfToDouble(static_cast<uint16_t>(dword(n / 2) >> 16 * (n % 2)));
    case Type::kBf16:
      return BfloatToFloat(static_cast<uint16_t>(dword(n / 2) >> 16 * (n % 2)));
    case Type::kI8:
      return static_cast<int8_t>(dword(n / 4) >> 8 * (n % 4));
    default:
      return F64(dword(2 * n) | uint64_t{dword(2 * n + 1)} << 32);
  }
}

template <class T>
T Accumulate(T a, T b, T c) {
  if constexpr (std::is_same_v<T, int32_t>) {
    return static_cast<int32_t>(static_cast<uint32_t>(c) + static_cast<uint32_t>(a * b));
  } else {
    return std::fma(a, b, c);
  }
}

template <class T>
T InitialValue(Wave& w, const Operand& c, Place place) {
  const bool scalar = c.kind == Operand::Kind::kImm || c.kind == Operand::Kind::kSgpr;
  if constexpr (sizeof(T) == 8) {
    if (scalar) return std::bit_cast<T>(Scalar64(w, c));
    return std::bit_cast<T>(RegisterLanes(w, c, 2 * place.index)[place.lane] |
                            uint64_t{RegisterLanes(w, c, 2 * place.index + 1)[place.lane]} << 32);
  } else {
    if (scalar) return std::bit_cast<T>(Scalar32(w, c));
    return std::bit_cast<T>(RegisterLanes(w, c, place.index)[place.lane]);
  }
}

// One block: T is the accumulator's type.
template <class T>
void MultiplyBlock(Wave& w, const Inst& inst, const MatrixShape& s, uint32_t block,
                   std::vector<uint32_t>& out) {
  std::vector<T> a(size_t{s.m} * s.k), b(size_t{s.m} * s.k);
  const uint32_t a_block = BroadcastBlock(inst, s, block);
  const double sign_a = Negated(w, inst, s, 0) ? -1 : 1, sign_b = Negated(w, inst, s, 1) ? -1 : 1;
  for (uint32_t i = 0; i < s.m; ++i) {
    for (uint32_t k = 0; k < s.k; ++k) {
      a[i * s.k + k] =
          static_cast<T>(sign_a * Element(w, inst.src[0], s, SourcePlace(s, a_block, i, k)));
      Place from = SourcePlace(s, block, i, k);
      from.lane = BroadcastLane(inst, s, from.lane);
      b[i * s.k + k] = static_cast<T>(sign_b * Element(w, inst.src[1], s, from));
    }
  }
  const bool negate_c = Negated(w, inst, s, 2);
  for (uint32_t i = 0; i < s.m; ++i) {
    for (uint32_t j = 0; j < s.m; ++j) {
      const Place place = ResultPlace(s, block, i, j);
      T sum = InitialValue<T>(w, inst.src[2], place);
      if (negate_c) sum = -sum;
      for (uint32_t k = 0; k < s.k; ++k) sum = Accumulate(a[i * s.k + k], b[j * s.k + k], sum);
      if constexpr (sizeof(T) == 8) {
        out[2 * place.index * kWaveLanes + place.lane] = static_cast<uint32_t>(Bits(sum));
        out[(2 * place.index + 1) * kWaveLanes + place.lane] =
            static_cast<uint32_t>(Bits(sum) >> 32);
      } else {
        out[place.index * kWaveLanes + place.lane] = std::bit_cast<uint32_t>(sum);
      }
    }
  }
}

template <size_t kIndex>
Step Multiply(Wave& w, const Inst& inst) {
  static constexpr MatrixShape s = kShapes[kIndex];
  if (w.lanes != kWaveLanes) return w.FaultIllegal(inst, "MFMA needs wave64");
  if (!InBounds(w, inst.src[0], SourceDwords(s)) || !InBounds(w, inst.src[1], SourceDwords(s)) ||
      !InBounds(w, inst.src[2], ResultDwords(s)) || !InBounds(w, inst.dst, ResultDwords(s))) {
    return FaultRegister(w, inst);
  }
  std::vector<uint32_t> out(size_t{ResultDwords(s)} * kWaveLanes);
  for (uint32_t block = 0; block < s.blocks; ++block) {
    if constexpr (s.type == Type::kF64) {
      MultiplyBlock<double>(w, inst, s, block, out);
    } else if constexpr (s.type == Type::kI8) {
      MultiplyBlock<int32_t>(w, inst, s, block, out);
    } else {
      MultiplyBlock<float>(w, inst, s, block, out);
    }
  }
  for (uint32_t r = 0; r < ResultDwords(s); ++r) {
    StoreRegister(w, inst.dst, r, out.data() + size_t{r} * kWaveLanes, ~uint64_t{0});
  }
  return Step::kNext;
}

template <size_t... I>
constexpr std::array<VectorOp, sizeof...(I)> MakeOps(std::index_sequence<I...>) {
  return {VectorOp{kShapes[I].name, &Multiply<I>}...};
}
constexpr auto kOps = MakeOps(std::make_index_sequence<std::size(kShapes)>{});

}  // namespace

std::span<const VectorOp> MatrixOps() { return kOps; }

}  // namespace softgpu::valu
