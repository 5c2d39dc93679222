// Integer vector ALU operations, one lane each.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

template <class To, class From>
constexpr To Saturate(From v) {
  return static_cast<To>(
      std::clamp<From>(v, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
}

constexpr i32 Sext24(u32 v) { return static_cast<i32>(v << 8) >> 8; }
constexpr u32 Byte(u32 v, int i) { return v >> (8 * i) & 0xff; }

u32 SumAbsBytes(u32 a, u32 b, u32 acc) {
  for (int i = 0; i < 4; ++i) {
    const u32 x = Byte(a, i), y = Byte(b, i);
    acc += x > y ? x - y : y - x;
  }
  return acc;
}

// Masked: reference bytes (b) of zero do not count.
u32 MaskedSumAbsBytes(u32 a, u32 b, u32 acc) {
  for (int i = 0; i < 4; ++i) {
    const u32 x = Byte(a, i), y = Byte(b, i);
    if (y != 0) acc += x > y ? x - y : y - x;
  }
  return acc;
}

// Four sums over a sliding window of the 8 bytes in a, added to the halves of c.
template <u32 (*kSum)(u32, u32, u32)>
u64 QuadSad(u64 a, u32 b, u64 c) {
  u64 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 window = static_cast<u32>(a >> (8 * i));
    const u32 sum = kSum(window, b, static_cast<u32>(c >> (16 * i) & 0xffff));
    r |= u64{sum & 0xffff} << (16 * i);
  }
  return r;
}

// Selector bytes of V_PERM_B32: 0-7 a byte of {a, b}, 8-11 the sign of byte
// 1, 3, 5, 7 replicated, 12 zero, above that ones.
u32 PermuteBytes(u32 a, u32 b, u32 select) {
  const u64 data = u64{a} << 32 | b;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 s = Byte(select, i);
    u32 v;
    if (s < 8)
      v = static_cast<u32>(data >> (8 * s) & 0xff);
    else if (s < 12)
      v = data >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
    else
      v = s == 12 ? 0 : 0xff;
    r |= v << (8 * i);
  }
  return r;
}

constexpr u32 BitFieldUnsigned(u32 a, u32 b, u32 c) {
  const u32 offset = b & 31, width = c & 31;
  return (a >> offset) & ((1u << width) - 1);
}

constexpr i32 BitFieldSigned(i32 a, u32 b, u32 c) {
  const u32 offset = b & 31, width = c & 31;
  if (width == 0) return 0;
  const u32 field = static_cast<u32>(a >> offset) & ((1u << width) - 1);
  const u32 sign = 1u << (width - 1);
  return static_cast<i32>((field ^ sign) - sign);
}

u32 ReverseBits(u32 v) {
  v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
  v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(v);
}

// Leading bits equal to the sign; -1 if all are.
i32 LeadingSignBits(i32 v) {
  if (v == 0 || v == -1) return -1;
  return std::countl_zero(static_cast<u32>(v < 0 ? ~v : v));
}

template <class T>
T Median(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

// Signed 64-bit a*b+c; the carry is the sign of the exact 65-bit sum differing
// from bit 63.
WithCarry<u64> MadSigned(i32 a, i32 b, u64 c) {
  i64 sum;
  const bool overflow = __builtin_add_overflow(static_cast<i64>(a) * b, static_cast<i64>(c), &sum);
  return {static_cast<u64>(sum), overflow};
}

// Each bit of the result is the bit of the truth table that the sources' bits, the
// first one highest, number. With two sources the third is 0.
template <int kSources, Elem kElem>
Step BitOperation(Wave& w, const Inst& inst) {
  Shape shape;
  shape.num_src = kSources;
  shape.src.fill(kElem);
  shape.dst = kElem;
  if (!RegistersAllocated(w, inst, shape)) return FaultRegister(w, inst);
  std::array<SrcLanes, 3> src;
  for (int i = 0; i < kSources; ++i) Fetch(w, inst, i, kElem, src[static_cast<size_t>(i)]);
  OutLanes out;
  for (u32 lane = 0; lane < w.lanes; ++lane) {
    const u32 a = src[0].lo[lane] >> src[0].shift, b = src[1].lo[lane] >> src[1].shift;
    const u32 c = kSources == 3 ? src[2].lo[lane] >> src[2].shift : 0;
    u32 result = 0;
    for (u32 row = 0; row < 8; ++row) {
      if ((inst.truth >> row & 1) == 0) continue;
      result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    }
    out.lo[lane] = kElem == Elem::kU16 ? result & 0xffff : result;
  }
  return Store(w, inst, shape, out, WriteMaskOf(w, inst));
}

constexpr VectorOp kOps[] = {
    {"V_MOV_B32", &Run<([](u32 a) { return a; })>},
    {"V_MOV_B16", &Run<([](u16 a) { return a; })>},
    {"V_MOV_B64", &Run<([](u64 a) { return a; })>},
    {"V_ADD_NC_U64", &Run<([](u64 a, u64 b) { return a + b; })>},
    {"V_SUB_NC_U64", &Run<([](u64 a, u64 b) { return a - b; })>},
    {"V_MUL_U64", &Run<([](u64 a, u64 b) { return a * b; })>},
    {"V_MAD_U32", &Run<([](u32 a, u32 b, u32 c) { return a * b + c; })>},
    {"V_MAD_NC_U64_U32", &Run<([](u32 a, u32 b, u64 c) { return u64{a} * b + c; })>},
    {"V_MAD_NC_I64_I32",
     &Run<([](i32 a, i32 b, u64 c) { return static_cast<u64>(i64{a} * b) + c; })>},
    {"V_BITOP3_B32", &BitOperation<3, Elem::kU32>},
    {"V_BITOP3_B16", &BitOperation<3, Elem::kU16>},
    {"V_BITOP2_B32", &BitOperation<2, Elem::kU32>},
    {"V_ACCVGPR_READ_B32", &Run<([](u32 a) { return a; })>},
    {"V_ACCVGPR_WRITE_B32", &Run<([](u32 a) { return a; })>},
    {"V_ACCVGPR_MOV_B32", &Run<([](u32 a) { return a; })>},
    {"V_NOT_B32", &Run<([](u32 a) { return ~a; })>},
    {"V_NOT_B16", &Run<([](u16 a) { return static_cast<u16>(~a); })>},
    {"V_BFREV_B32", &Run<([](u32 a) { return ReverseBits(a); })>},
    {"V_FFBH_U32", &Run<([](u32 a) { return a ? static_cast<u32>(std::countl_zero(a)) : ~0u; })>},
    {"V_FFBL_B32", &Run<([](u32 a) { return a ? static_cast<u32>(std::countr_zero(a)) : ~0u; })>},
    {"V_FFBH_I32", &Run<([](i32 a) { return LeadingSignBits(a); })>},
    {"V_SAT_PK_U8_I16", &Run<([](u32 a) -> u16 {
       return static_cast<u16>(Saturate<uint8_t>(static_cast<i16>(a)) |
                               Saturate<uint8_t>(static_cast<i16>(a >> 16)) << 8);
     })>},

    {"V_CNDMASK_B32", &Run<([](u32 a, u32 b, LaneBit m) { return m.v ? b : a; })>, kMaskSource},
    {"V_CNDMASK_B16", &Run<([](u16 a, u16 b, LaneBit m) { return m.v ? b : a; })>, kMaskSource},

    {"V_ADD_U32", &Run<([](u32 a, u32 b) { return a + b; })>, kPlain,
     &Run<([](u32 a, u32 b) { return Saturate<u32>(u64{a} + b); })>},
    {"V_SUB_U32", &Run<([](u32 a, u32 b) { return a - b; })>, kPlain,
     &Run<([](u32 a, u32 b) { return a > b ? a - b : 0u; })>},
    {"V_SUBREV_U32", &Run<([](u32 a, u32 b) { return b - a; })>, kPlain,
     &Run<([](u32 a, u32 b) { return b > a ? b - a : 0u; })>},
    {"V_ADD_I32", &Run<([](u32 a, u32 b) { return a + b; })>, kPlain,
     &Run<([](i32 a, i32 b) { return Saturate<i32>(i64{a} + b); })>},
    {"V_SUB_I32", &Run<([](u32 a, u32 b) { return a - b; })>, kPlain,
     &Run<([](i32 a, i32 b) { return Saturate<i32>(i64{a} - b); })>},
    {"V_ADD_CO_U32", &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {a + b, a + b < a};
     })>,
     kCarryOut, &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {a + b < a ? ~0u : a + b, a + b < a};
     })>},
    {"V_SUB_CO_U32", &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {a - b, b > a};
     })>,
     kCarryOut, &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {b > a ? 0 : a - b, b > a};
     })>},
    {"V_SUBREV_CO_U32", &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {b - a, a > b};
     })>,
     kCarryOut, &Run<([](u32 a, u32 b) -> WithCarry<u32> {
       return {a > b ? 0 : b - a, a > b};
     })>},
    {"V_ADDC_CO_U32", &Run<([](u32 a, u32 b, LaneBit c) -> WithCarry<u32> {
       const u32 t = a + b, s = t + c.v;
       return {s, t < a || s < t};
     })>,
     kCarryOut | kMaskSource},
    {"V_SUBB_CO_U32", &Run<([](u32 a, u32 b, LaneBit c) -> WithCarry<u32> {
       return {a - b - c.v, u64{b} + c.v > a};
     })>,
     kCarryOut | kMaskSource},
    {"V_SUBBREV_CO_U32", &Run<([](u32 a, u32 b, LaneBit c) -> WithCarry<u32> {
       return {b - a - c.v, u64{a} + c.v > b};
     })>,
     kCarryOut | kMaskSource},
    {"V_ADD_U16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a + b); })>, kPlain,
     &Run<([](u16 a, u16 b) { return Saturate<u16>(a + b); })>},
    {"V_SUB_U16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a - b); })>, kPlain,
     &Run<([](u16 a, u16 b) { return Saturate<u16>(a - b); })>},
    {"V_SUBREV_U16", &Run<([](u16 a, u16 b) { return static_cast<u16>(b - a); })>, kPlain,
     &Run<([](u16 a, u16 b) { return Saturate<u16>(b - a); })>},
    {"V_ADD_I16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a + b); })>, kOpSel16,
     &Run<([](i16 a, i16 b) { return Saturate<i16>(a + b); })>},
    {"V_SUB_I16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a - b); })>, kOpSel16,
     &Run<([](i16 a, i16 b) { return Saturate<i16>(a - b); })>},

    {"V_ADD3_U32", &Run<([](u32 a, u32 b, u32 c) { return a + b + c; })>},
    {"V_LSHL_ADD_U32", &Run<([](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; })>},
    {"V_LSHL_ADD_U64", &Run<([](u64 a, u32 b, u64 c) { return (a << (b & 7)) + c; })>},
    {"V_ADD_LSHL_U32", &Run<([](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); })>},
    {"V_LSHL_OR_B32", &Run<([](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; })>},
    {"V_AND_OR_B32", &Run<([](u32 a, u32 b, u32 c) { return (a & b) | c; })>},
    {"V_OR3_B32", &Run<([](u32 a, u32 b, u32 c) { return a | b | c; })>},
    {"V_XOR3_B32", &Run<([](u32 a, u32 b, u32 c) { return a ^ b ^ c; })>},
    {"V_XAD_U32", &Run<([](u32 a, u32 b, u32 c) { return (a ^ b) + c; })>},
    {"V_AND_B32", &Run<([](u32 a, u32 b) { return a & b; })>},
    {"V_OR_B32", &Run<([](u32 a, u32 b) { return a | b; })>},
    {"V_XOR_B32", &Run<([](u32 a, u32 b) { return a ^ b; })>},
    {"V_XNOR_B32", &Run<([](u32 a, u32 b) { return ~(a ^ b); })>},
    {"V_AND_B16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a & b); })>},
    {"V_OR_B16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a | b); })>},
    {"V_XOR_B16", &Run<([](u16 a, u16 b) { return static_cast<u16>(a ^ b); })>},
    {"V_BFE_U32", &Run<([](u32 a, u32 b, u32 c) { return BitFieldUnsigned(a, b, c); })>},
    {"V_BFE_I32", &Run<([](i32 a, u32 b, u32 c) { return BitFieldSigned(a, b, c); })>},
    {"V_BFI_B32", &Run<([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); })>},
    {"V_BFM_B32", &Run<([](u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); })>},
    {"V_ALIGNBIT_B32",
     &Run<([](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); })>},
    {"V_ALIGNBYTE_B32", &Run<([](u32 a, u32 b, u32 c) {
       return static_cast<u32>((u64{a} << 32 | b) >> (8 * (c & 3)));
     })>},
    {"V_PERM_B32", &Run<([](u32 a, u32 b, u32 c) { return PermuteBytes(a, b, c); })>},
    {"V_LERP_U8", &Run<([](u32 a, u32 b, u32 c) {
       u32 r = 0;
       for (int i = 0; i < 4; ++i) {
         r |= ((Byte(a, i) + Byte(b, i) + (Byte(c, i) & 1)) >> 1) << (8 * i);
       }
       return r;
     })>},
    {"V_SAD_U8", &Run<([](u32 a, u32 b, u32 c) { return SumAbsBytes(a, b, c); })>},
    {"V_SAD_HI_U8", &Run<([](u32 a, u32 b, u32 c) { return (SumAbsBytes(a, b, 0) << 16) + c; })>},
    {"V_SAD_U16", &Run<([](u32 a, u32 b, u32 c) {
       for (int i = 0; i < 32; i += 16) {
         const u32 x = a >> i & 0xffff, y = b >> i & 0xffff;
         c += x > y ? x - y : y - x;
       }
       return c;
     })>},
    {"V_SAD_U32", &Run<([](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; })>},
    {"V_MSAD_U8", &Run<([](u32 a, u32 b, u32 c) { return MaskedSumAbsBytes(a, b, c); })>},
    {"V_QSAD_PK_U16_U8", &Run<([](u64 a, u32 b, u64 c) { return QuadSad<SumAbsBytes>(a, b, c); })>},
    {"V_MQSAD_PK_U16_U8",
     &Run<([](u64 a, u32 b, u64 c) { return QuadSad<MaskedSumAbsBytes>(a, b, c); })>},
    {"V_BCNT_U32_B32", &Run<([](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; })>},
    {"V_MBCNT_LO_U32_B32", &Run<([](const Ctx& c, u32 a, u32 b) {
       const u32 below = c.lane >= 32 ? ~0u : (1u << c.lane) - 1;
       return static_cast<u32>(std::popcount(a & below)) + b;
     })>},
    {"V_MBCNT_HI_U32_B32", &Run<([](const Ctx& c, u32 a, u32 b) {
       const u32 below = c.lane < 32 ? 0 : (1u << (c.lane - 32)) - 1;
       return static_cast<u32>(std::popcount(a & below)) + b;
     })>},

    {"V_MUL_I32_I24",
     &Run<([](u32 a, u32 b) { return static_cast<u32>(i64{Sext24(a)} * Sext24(b)); })>},
    {"V_MUL_HI_I32_I24",
     &Run<([](u32 a, u32 b) { return static_cast<u32>(i64{Sext24(a)} * Sext24(b) >> 32); })>},
    {"V_MUL_U32_U24", &Run<([](u32 a, u32 b) { return (a & 0xffffff) * (b & 0xffffff); })>},
    {"V_MUL_HI_U32_U24", &Run<([](u32 a, u32 b) {
       return static_cast<u32>(u64{a & 0xffffff} * (b & 0xffffff) >> 32);
     })>},
    {"V_MAD_I32_I24",
     &Run<([](u32 a, u32 b, u32 c) { return static_cast<u32>(i64{Sext24(a)} * Sext24(b)) + c; })>,
     kPlain,
     &Run<([](u32 a, u32 b, i32 c) { return Saturate<i32>(i64{Sext24(a)} * Sext24(b) + c); })>},
    {"V_MAD_U32_U24",
     &Run<([](u32 a, u32 b, u32 c) { return (a & 0xffffff) * (b & 0xffffff) + c; })>, kPlain,
     &Run<([](u32 a, u32 b, u32 c) {
       return Saturate<u32>(u64{a & 0xffffff} * (b & 0xffffff) + c);
     })>},
    {"V_MUL_LO_U32", &Run<([](u32 a, u32 b) { return a * b; })>},
    {"V_MUL_LO_I32", &Run<([](u32 a, u32 b) { return a * b; })>},
    {"V_MUL_HI_U32", &Run<([](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); })>},
    {"V_MUL_HI_I32", &Run<([](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); })>},
    {"V_MAD_U64_U32", &Run<([](u32 a, u32 b, u64 c) -> WithCarry<u64> {
       const u64 p = u64{a} * b;
       return {p + c, p + c < p};
     })>,
     kCarryOut},
    {"V_MAD_I64_I32", &Run<([](i32 a, i32 b, u64 c) { return MadSigned(a, b, c); })>, kCarryOut},
    {"V_MUL_LO_U16", &Run<([](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); })>},
    {"V_MAD_U16", &Run<([](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); })>,
     kOpSel16, &Run<([](u16 a, u16 b, u16 c) { return Saturate<u16>(u64{a} * b + c); })>},
    {"V_MAD_I16", &Run<([](i16 a, i16 b, i16 c) { return static_cast<i16>(i64{a} * b + c); })>,
     kOpSel16, &Run<([](i16 a, i16 b, i16 c) { return Saturate<i16>(i64{a} * b + c); })>},
    {"V_MAD_LEGACY_U16",
     &Run<([](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); })>},
    {"V_MAD_LEGACY_I16",
     &Run<([](i16 a, i16 b, i16 c) { return static_cast<i16>(i64{a} * b + c); })>},
    {"V_MAD_U32_U16", &Run<([](u16 a, u16 b, u32 c) { return u32{a} * b + c; })>, kPlain,
     &Run<([](u16 a, u16 b, u32 c) { return Saturate<u32>(u64{a} * b + c); })>},
    {"V_MAD_I32_I16", &Run<([](i16 a, i16 b, u32 c) { return static_cast<u32>(i32{a} * b) + c; })>,
     kPlain, &Run<([](i16 a, i16 b, i32 c) { return Saturate<i32>(i64{a} * b + c); })>},

    {"V_LSHLREV_B32", &Run<([](u32 a, u32 b) { return b << (a & 31); })>},
    {"V_LSHRREV_B32", &Run<([](u32 a, u32 b) { return b >> (a & 31); })>},
    {"V_ASHRREV_I32", &Run<([](u32 a, i32 b) { return b >> (a & 31); })>},
    {"V_LSHL_B32", &Run<([](u32 a, u32 b) { return a << (b & 31); })>},
    {"V_LSHR_B32", &Run<([](u32 a, u32 b) { return a >> (b & 31); })>},
    {"V_ASHR_I32", &Run<([](i32 a, u32 b) { return a >> (b & 31); })>},
    {"V_LSHLREV_B64", &Run<([](u32 a, u64 b) { return b << (a & 63); })>},
    {"V_LSHRREV_B64", &Run<([](u32 a, u64 b) { return b >> (a & 63); })>},
    {"V_ASHRREV_I64", &Run<([](u32 a, i64 b) { return b >> (a & 63); })>},
    {"V_LSHL_B64", &Run<([](u64 a, u32 b) { return a << (b & 63); })>},
    {"V_LSHR_B64", &Run<([](u64 a, u32 b) { return a >> (b & 63); })>},
    {"V_ASHR_I64", &Run<([](i64 a, u32 b) { return a >> (b & 63); })>},
    {"V_LSHLREV_B16", &Run<([](u16 a, u16 b) { return static_cast<u16>(b << (a & 15)); })>},
    {"V_LSHRREV_B16", &Run<([](u16 a, u16 b) { return static_cast<u16>(b >> (a & 15)); })>},
    {"V_ASHRREV_I16", &Run<([](u16 a, i16 b) { return static_cast<i16>(b >> (a & 15)); })>},

    {"V_MIN_U32", &Run<([](u32 a, u32 b) { return std::min(a, b); })>},
    {"V_MAX_U32", &Run<([](u32 a, u32 b) { return std::max(a, b); })>},
    {"V_MIN_I32", &Run<([](i32 a, i32 b) { return std::min(a, b); })>},
    {"V_MAX_I32", &Run<([](i32 a, i32 b) { return std::max(a, b); })>},
    {"V_MIN_U16", &Run<([](u16 a, u16 b) { return std::min(a, b); })>},
    {"V_MAX_U16", &Run<([](u16 a, u16 b) { return std::max(a, b); })>},
    {"V_MIN_I16", &Run<([](i16 a, i16 b) { return std::min(a, b); })>},
    {"V_MAX_I16", &Run<([](i16 a, i16 b) { return std::max(a, b); })>},
    {"V_MIN3_U32", &Run<([](u32 a, u32 b, u32 c) { return std::min(std::min(a, b), c); })>},
    {"V_MAX3_U32", &Run<([](u32 a, u32 b, u32 c) { return std::max(std::max(a, b), c); })>},
    {"V_MED3_U32", &Run<([](u32 a, u32 b, u32 c) { return Median(a, b, c); })>},
    {"V_MIN3_I32", &Run<([](i32 a, i32 b, i32 c) { return std::min(std::min(a, b), c); })>},
    {"V_MAX3_I32", &Run<([](i32 a, i32 b, i32 c) { return std::max(std::max(a, b), c); })>},
    {"V_MED3_I32", &Run<([](i32 a, i32 b, i32 c) { return Median(a, b, c); })>},
    {"V_MIN3_U16", &Run<([](u16 a, u16 b, u16 c) { return std::min(std::min(a, b), c); })>,
     kOpSel16},
    {"V_MAX3_U16", &Run<([](u16 a, u16 b, u16 c) { return std::max(std::max(a, b), c); })>,
     kOpSel16},
    {"V_MED3_U16", &Run<([](u16 a, u16 b, u16 c) { return Median(a, b, c); })>, kOpSel16},
    {"V_MIN3_I16", &Run<([](i16 a, i16 b, i16 c) { return std::min(std::min(a, b), c); })>,
     kOpSel16},
    {"V_MAX3_I16", &Run<([](i16 a, i16 b, i16 c) { return std::max(std::max(a, b), c); })>,
     kOpSel16},
    {"V_MED3_I16", &Run<([](i16 a, i16 b, i16 c) { return Median(a, b, c); })>, kOpSel16},
    {"V_MAXMIN_U32", &Run<([](u32 a, u32 b, u32 c) { return std::min(std::max(a, b), c); })>},
    {"V_MINMAX_U32", &Run<([](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), c); })>},
    {"V_MAXMIN_I32", &Run<([](i32 a, i32 b, i32 c) { return std::min(std::max(a, b), c); })>},
    {"V_MINMAX_I32", &Run<([](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), c); })>},
    {"V_PACK_B32_F16", &Run<([](u16 a, u16 b) { return u32{a} | u32{b} << 16; })>},
};

}  // namespace

std::span<const VectorOp> IntegerOps() { return kOps; }

}  // namespace softgpu::valu
