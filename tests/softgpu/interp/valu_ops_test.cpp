// Vector ALU handlers against values computed here by other means: host
// arithmetic, or the ISA guides' statements worked out by hand.
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/softgpu/interp/valu_rig.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu::test {
namespace {

uint32_t B(float f) { return std::bit_cast<uint32_t>(f); }
uint64_t B(double d) { return std::bit_cast<uint64_t>(d); }
float F(uint32_t b) { return std::bit_cast<float>(b); }
double D(uint64_t b) { return std::bit_cast<double>(b); }

// --- One 32-bit result from up to three 32-bit sources ---------------------

struct Case32 {
  const char* name;
  std::vector<uint32_t> in;
  uint32_t out;
};

void Check32(const std::vector<Case32>& cases, Gen gen = Gen::kGfx90a) {
  for (const Case32& c : cases) {
    Rig rig(gen);
    std::vector<Operand> sources;
    for (size_t i = 0; i < c.in.size(); ++i) {
      rig.Fill(static_cast<uint32_t>(1 + i), c.in[i]);
      sources.push_back(Vgpr(static_cast<uint16_t>(1 + i)));
    }
    ASSERT_EQ(rig.Run(c.name, Vgpr(0), sources), Step::kNext) << c.name;
    EXPECT_EQ(rig.wave.V(0)[0], c.out) << c.name << std::hex << " in " << c.in[0];
    EXPECT_EQ(rig.wave.V(0)[63], c.out) << c.name;
  }
}

TEST(ValuInteger, Tables) {
  Check32({
      {"V_MOV_B32", {0x12345678}, 0x12345678},
      {"V_NOT_B32", {0x0f0f0f0f}, 0xf0f0f0f0},
      {"V_BFREV_B32", {0x00000001}, 0x80000000},
      {"V_BFREV_B32", {0x12345678}, 0x1e6a2c48},
      {"V_FFBH_U32", {0}, 0xffffffff},
      {"V_FFBH_U32", {0x00010000}, 15},
      {"V_FFBL_B32", {0x00010000}, 16},
      {"V_FFBL_B32", {0}, 0xffffffff},
      {"V_FFBH_I32", {0xffff0000}, 16},
      {"V_FFBH_I32", {0xffffffff}, 0xffffffff},
      {"V_FFBH_I32", {0x00007fff}, 17},
      {"V_ADD_U32", {0xffffffff, 2}, 1},
      {"V_SUB_U32", {1, 2}, 0xffffffff},
      {"V_SUBREV_U32", {1, 2}, 1},
      {"V_ADD3_U32", {1, 2, 0xffffffff}, 2},
      {"V_LSHL_ADD_U32", {3, 33, 1}, 7},
      {"V_ADD_LSHL_U32", {3, 4, 4}, 112},
      {"V_LSHL_OR_B32", {1, 8, 0x0f}, 0x10f},
      {"V_AND_OR_B32", {0xff, 0x0f, 0xf00}, 0xf0f},
      {"V_OR3_B32", {1, 2, 4}, 7},
      {"V_XOR3_B32", {1, 3, 4}, 6},
      {"V_XAD_U32", {5, 3, 10}, 16},
      {"V_BFE_U32", {0xabcd1234, 8, 8}, 0x12},
      {"V_BFE_U32", {0xabcd1234, 40, 40}, 0x12},
      {"V_BFE_U32", {0xabcd1234, 8, 0}, 0},
      {"V_BFE_I32", {0x0000f400, 8, 8}, 0xfffffff4},
      {"V_BFE_I32", {0x80000000, 31, 1}, 0xffffffff},
      {"V_BFE_I32", {0x80000000, 28, 31}, 0xfffffff8},
      {"V_BFI_B32", {0x00ff00ff, 0x12345678, 0xabcdef01}, 0xab34ef78},
      {"V_BFM_B32", {4, 8}, 0xf00},
      {"V_ALIGNBIT_B32", {0x12345678, 0x9abcdef0, 4}, 0x89abcdef},
      {"V_ALIGNBIT_B32", {0x12345678, 0x9abcdef0, 32}, 0x9abcdef0},
      {"V_ALIGNBYTE_B32", {0x12345678, 0x9abcdef0, 1}, 0x789abcde},
      {"V_PERM_B32", {0x8899aabb, 0x00112233, 0x07040300}, 0x88bb0033},
      {"V_PERM_B32", {0x8899aabb, 0x00112233, 0x0c0d0b08}, 0x00ffff00},
      {"V_SAD_U8", {0x01ff0305, 0x02010405, 10}, 10 + 1 + 254 + 1},
      {"V_SAD_HI_U8", {0x01000000, 0x03000000, 7}, 0x20007},
      {"V_SAD_U16", {0x00050001, 0x00010003, 1}, 7},
      {"V_SAD_U32", {3, 10, 1}, 8},
      {"V_MSAD_U8", {0x01ff0305, 0x02000405, 10}, 10 + 1 + 1},
      {"V_LERP_U8", {0x04ff0001, 0x04ff0102, 0x01000100}, 0x04ff0101},
      {"V_BCNT_U32_B32", {0xf0f0, 3}, 11},
      {"V_MUL_I32_I24", {0xffffff, 5}, static_cast<uint32_t>(-5)},
      {"V_MUL_HI_I32_I24", {0xffffff, 5}, 0xffffffff},
      {"V_MUL_U32_U24", {0xff123456, 0x10}, 0x01234560},
      {"V_MUL_HI_U32_U24", {0xffffff, 0xffffff}, 0xffff},
      {"V_MAD_I32_I24", {0xfffffe, 3, 1}, static_cast<uint32_t>(-5)},
      {"V_MAD_U32_U24", {0xff000002, 3, 1}, 7},
      {"V_MUL_LO_U32", {0x80000001, 3}, 0x80000003},
      {"V_MUL_HI_U32", {0x80000000, 6}, 3},
      {"V_MUL_HI_I32", {0x80000000, 6}, static_cast<uint32_t>(-3)},
      {"V_LSHLREV_B32", {36, 1}, 16},
      {"V_LSHRREV_B32", {4, 0x80000000}, 0x08000000},
      {"V_ASHRREV_I32", {4, 0x80000000}, 0xf8000000},
      {"V_MIN_I32", {0xffffffff, 1}, 0xffffffff},
      {"V_MIN_U32", {0xffffffff, 1}, 1},
      {"V_MAX_I32", {0xffffffff, 1}, 1},
      {"V_MED3_I32", {5, 0xffffffff, 3}, 3},
      {"V_MED3_U32", {5, 0xffffffff, 3}, 5},
      {"V_MIN3_U32", {5, 4, 6}, 4},
      {"V_MAX3_I32", {5, 4, 0xffffffff}, 5},
      {"V_ADD_CO_U32", {1, 2}, 3},
      {"V_XNOR_B32", {0xff00ff00, 0x0ff00ff0}, 0x0f0f0f0f},
      {"V_PACK_B32_F16", {0x00003c00, 0x00004000}, 0x40003c00},
      {"V_MAD_U32_U16", {0xffff0003, 0x10004, 5}, 17},
      {"V_SAT_PK_U8_I16", {0x0123ff00}, 0xff00},
  });
}

TEST(ValuInteger, WideMultiplyAdd) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t a = static_cast<uint32_t>(random()), b = static_cast<uint32_t>(random());
    const uint64_t c = random();
    Rig rig;
    rig.Fill(1, a);
    rig.Fill(2, b);
    rig.Fill64(4, c);
    Inst inst = Rig::Make("V_MAD_U64_U32", Vgpr(6, 2), {Vgpr(1), Vgpr(2), Vgpr(4, 2)});
    inst.sdst = Sgpr(10, 2);
    ASSERT_EQ(rig.Run(inst), Step::kNext);
    const unsigned __int128 exact = static_cast<unsigned __int128>(a) * b + c;
    EXPECT_EQ(rig.Get64(6, 5), static_cast<uint64_t>(exact));
    EXPECT_EQ(rig.wave.ReadS64(10), exact >> 64 ? ~uint64_t{0} : 0);
    ASSERT_EQ(rig.Run("V_MAD_I64_I32", Vgpr(6, 2), {Vgpr(1), Vgpr(2), Vgpr(4, 2)}), Step::kNext);
    const int64_t product = int64_t{static_cast<int32_t>(a)} * static_cast<int32_t>(b);
    EXPECT_EQ(rig.Get64(6, 63), static_cast<uint64_t>(product) + c);
  }
}

TEST(ValuInteger, Shifts64) {
  Rig rig;
  rig.Fill(1, 68);  // only six bits count
  rig.Fill64(2, 0x8123456789abcdefull);
  ASSERT_EQ(rig.Run("V_LSHLREV_B64", Vgpr(4, 2), {Vgpr(1), Vgpr(2, 2)}), Step::kNext);
  EXPECT_EQ(rig.Get64(4, 0), 0x123456789abcdef0ull);
  ASSERT_EQ(rig.Run("V_LSHRREV_B64", Vgpr(4, 2), {Vgpr(1), Vgpr(2, 2)}), Step::kNext);
  EXPECT_EQ(rig.Get64(4, 0), 0x08123456789abcdeull);
  ASSERT_EQ(rig.Run("V_ASHRREV_I64", Vgpr(4, 2), {Vgpr(1), Vgpr(2, 2)}), Step::kNext);
  EXPECT_EQ(rig.Get64(4, 0), 0xf8123456789abcdeull);
  // The destination may overlap the source.
  ASSERT_EQ(rig.Run("V_LSHLREV_B64", Vgpr(3, 2), {Vgpr(1), Vgpr(2, 2)}), Step::kNext);
  EXPECT_EQ(rig.Get64(3, 7), 0x123456789abcdef0ull);
}

// 64-bit addition from two carry steps, per lane, under a partial EXEC.
TEST(ValuInteger, CarryChainUnderExec) {
  for (uint32_t lanes : {32u, 64u}) {
    Rig rig(lanes == 64 ? Gen::kGfx90a : Gen::kGfx10_3, lanes);
    std::mt19937_64 random(7);
    std::vector<uint64_t> a(lanes), b(lanes);
    for (uint32_t l = 0; l < lanes; ++l) {
      a[l] = random();
      b[l] = random();
      rig.wave.V(0)[l] = static_cast<uint32_t>(a[l]);
      rig.wave.V(1)[l] = static_cast<uint32_t>(a[l] >> 32);
      rig.wave.V(2)[l] = static_cast<uint32_t>(b[l]);
      rig.wave.V(3)[l] = static_cast<uint32_t>(b[l] >> 32);
    }
    rig.Fill64(4, 0x1111111122222222ull);
    rig.wave.WriteMask(kVccLo, ~uint64_t{0});
    const uint64_t exec = 0x5555aaaa0ff0f00full & (lanes == 64 ? ~uint64_t{0} : 0xffffffffu);
    rig.wave.SetExec(exec);
    ASSERT_EQ(rig.Run("V_ADD_CO_U32", Vgpr(4), {Vgpr(0), Vgpr(2)}), Step::kNext);
    EXPECT_EQ(rig.wave.ReadMask(kVccLo) & ~exec, 0u) << "carries of inactive lanes are zero";
    ASSERT_EQ(rig.Run("V_ADDC_CO_U32", Vgpr(5), {Vgpr(1), Vgpr(3)}), Step::kNext);
    uint64_t overflow = 0;
    for (uint32_t l = 0; l < lanes; ++l) {
      const bool active = exec >> l & 1;
      EXPECT_EQ(rig.Get64(4, l), active ? a[l] + b[l] : 0x1111111122222222ull) << l;
      overflow |= uint64_t{active && a[l] + b[l] < a[l]} << l;
    }
    EXPECT_EQ(rig.wave.ReadMask(kVccLo), overflow);
    ASSERT_EQ(rig.Run("V_SUB_CO_U32", Vgpr(6), {Vgpr(0), Vgpr(2)}), Step::kNext);
    ASSERT_EQ(rig.Run("V_SUBB_CO_U32", Vgpr(7), {Vgpr(1), Vgpr(3)}), Step::kNext);
    for (uint32_t l = 0; l < lanes; ++l) {
      if (exec >> l & 1) {
        EXPECT_EQ(rig.Get64(6, l), a[l] - b[l]) << l;
      }
    }
    ASSERT_EQ(rig.Run("V_SUBREV_CO_U32", Vgpr(6), {Vgpr(0), Vgpr(2)}), Step::kNext);
    ASSERT_EQ(rig.Run("V_SUBREV_CO_CI_U32", Vgpr(7), {Vgpr(1), Vgpr(3)}), Step::kNext);
    for (uint32_t l = 0; l < lanes; ++l) {
      if (exec >> l & 1) {
        EXPECT_EQ(rig.Get64(6, l), b[l] - a[l]) << l;
      }
    }
  }
}

TEST(ValuInteger, ClampSaturates) {
  struct Case {
    const char* name;
    uint32_t a, b, out;
  };
  for (const Case& c : std::vector<Case>{{"V_ADD_U32", 0xfffffff0, 0x20, 0xffffffff},
                                         {"V_SUB_U32", 1, 2, 0},
                                         {"V_SUBREV_U32", 2, 1, 0},
                                         {"V_ADD_I32", 0x7fffffff, 1, 0x7fffffff},
                                         {"V_SUB_I32", 0x80000000, 1, 0x80000000},
                                         {"V_ADD_U16", 0xffff, 1, 0xffff},
                                         {"V_SUB_U16", 1, 2, 0},
                                         {"V_ADD_I16", 0x8000, 0xffff, 0x8000}}) {
    Rig rig;
    rig.Fill(1, c.a);
    rig.Fill(2, c.b);
    Inst inst = Rig::Make(c.name, Vgpr(0), {Vgpr(1), Vgpr(2)});
    inst.clamp = true;
    ASSERT_EQ(rig.Run(inst), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[9], c.out) << c.name;
  }
}

TEST(ValuInteger, MaskCounts) {
  Rig rig;
  rig.wave.WriteS64(4, 0xf00000000000000full);
  ASSERT_EQ(rig.Run("V_MBCNT_LO_U32_B32", Vgpr(0), {Sgpr(4), Imm(0)}), Step::kNext);
  ASSERT_EQ(rig.Run("V_MBCNT_HI_U32_B32", Vgpr(0), {Sgpr(5), Vgpr(0)}), Step::kNext);
  for (uint32_t l = 0; l < 64; ++l) {
    const uint64_t below = l == 0 ? 0 : 0xf00000000000000full << (64 - l);
    EXPECT_EQ(rig.wave.V(0)[l], static_cast<uint32_t>(std::popcount(below))) << l;
  }
}

// --- Floats ------------------------------------------------------------------

constexpr uint32_t kQnan = 0x7fc00000, kSnan = 0x7f800001, kInf = 0x7f800000;

TEST(ValuFloat, Tables) {
  Check32({
      {"V_ADD_F32", {B(1.5f), B(2.25f)}, B(3.75f)},
      {"V_SUB_F32", {B(1.5f), B(2.25f)}, B(-0.75f)},
      {"V_SUBREV_F32", {B(1.5f), B(2.25f)}, B(0.75f)},
      {"V_MUL_F32", {B(0x1p-100f), B(0x1p-40f)}, B(0x1p-140f)},
      {"V_MUL_LEGACY_F32", {B(0.0f), kInf}, 0},
      {"V_FMA_F32", {B(1 + 0x1p-23f), B(1 - 0x1p-23f), B(-1.0f)}, B(-0x1p-46f)},
      {"V_MAD_F32", {B(1 + 0x1p-23f), B(1 - 0x1p-23f), B(-1.0f)}, 0},
      {"V_MAD_F32", {B(0x1p-100f), B(0x1p-40f), 0}, 0},
      {"V_MIN_F32", {B(-0.0f), 0}, B(-0.0f)},
      {"V_MIN_F32", {0, B(-0.0f)}, B(-0.0f)},
      {"V_MAX_F32", {B(-0.0f), 0}, 0},
      {"V_MIN_F32", {kQnan, B(1.0f)}, B(1.0f)},
      {"V_MIN_F32", {B(1.0f), kQnan}, B(1.0f)},
      {"V_MIN_F32", {kSnan, B(1.0f)}, kSnan | 0x400000},
      {"V_MAX_F32", {B(1.0f), kSnan}, kSnan | 0x400000},
      {"V_MED3_F32", {B(3.0f), B(-1.0f), B(2.0f)}, B(2.0f)},
      {"V_MED3_F32", {B(3.0f), kQnan, B(2.0f)}, B(2.0f)},
      {"V_MIN3_F32", {B(3.0f), B(-1.0f), B(2.0f)}, B(-1.0f)},
      {"V_MAX3_F32", {B(3.0f), B(-1.0f), B(2.0f)}, B(3.0f)},
      {"V_FLOOR_F32", {B(-1.5f)}, B(-2.0f)},
      {"V_CEIL_F32", {B(-1.5f)}, B(-1.0f)},
      {"V_TRUNC_F32", {B(-1.5f)}, B(-1.0f)},
      {"V_RNDNE_F32", {B(2.5f)}, B(2.0f)},
      {"V_RNDNE_F32", {B(-0.25f)}, B(-0.0f)},
      {"V_FRACT_F32", {B(-1.25f)}, B(0.75f)},
      {"V_FRACT_F32", {B(-0x1p-30f)}, B(0x1.fffffep-1f)},
      {"V_RCP_F32", {B(4.0f)}, B(0.25f)},
      {"V_RCP_F32", {B(-0.0f)}, B(-INFINITY)},
      {"V_RSQ_F32", {B(4.0f)}, B(0.5f)},
      {"V_SQRT_F32", {B(2.0f)}, B(std::sqrt(2.0f))},
      {"V_EXP_F32", {B(10.0f)}, B(1024.0f)},
      {"V_EXP_F32", {B(-INFINITY)}, 0},
      {"V_LOG_F32", {B(0.125f)}, B(-3.0f)},
      {"V_LOG_F32", {0}, B(-INFINITY)},
      {"V_SIN_F32", {B(0.25f)}, B(1.0f)},
      {"V_SIN_F32", {B(0.5f)}, 0},
      {"V_COS_F32", {B(-0.5f)}, B(-1.0f)},
      {"V_COS_F32", {B(0.25f)}, 0},
      {"V_LDEXP_F32", {B(1.5f), static_cast<uint32_t>(-149)}, 2},
      {"V_LDEXP_F32", {B(1.5f), 4}, B(24.0f)},
      {"V_FREXP_EXP_I32_F32", {B(8.0f)}, 4},
      {"V_FREXP_EXP_I32_F32", {1}, static_cast<uint32_t>(-148)},
      {"V_FREXP_EXP_I32_F32", {kInf}, 0},
      {"V_FREXP_MANT_F32", {B(-8.0f)}, B(-0.5f)},
      {"V_FREXP_MANT_F32", {kInf}, kInf},
      {"V_CVT_F32_U32", {0xffffffff}, B(4294967296.0f)},
      {"V_CVT_F32_I32", {0xffffffff}, B(-1.0f)},
      {"V_CVT_U32_F32", {B(-1.0f)}, 0},
      {"V_CVT_U32_F32", {B(3.99f)}, 3},
      {"V_CVT_U32_F32", {B(1e20f)}, 0xffffffff},
      {"V_CVT_U32_F32", {kQnan}, 0},
      {"V_CVT_I32_F32", {B(-1e20f)}, 0x80000000},
      {"V_CVT_I32_F32", {B(2147483648.0f)}, 0x7fffffff},
      {"V_CVT_RPI_I32_F32", {B(-1.5f)}, static_cast<uint32_t>(-1)},
      {"V_CVT_FLR_I32_F32", {B(-1.5f)}, static_cast<uint32_t>(-2)},
      {"V_CVT_F32_UBYTE2", {0x00ab0000}, B(171.0f)},
      {"V_CVT_OFF_F32_I4", {0x8}, B(-0.5f)},
      {"V_CVT_F16_F32", {B(1.0f)}, 0x3c00},
      {"V_CVT_F16_F32", {B(65520.0f)}, 0x7c00},
      {"V_CVT_F16_F32", {B(65519.0f)}, 0x7bff},
      {"V_CVT_F16_F32", {B(0x1p-25f)}, 0},
      {"V_CVT_F16_F32", {B(0x1.8p-25f)}, 1},
      {"V_CVT_F32_F16", {0xffff0001}, B(0x1p-24f)},
      {"V_CVT_F32_F16", {0xfbff}, B(-65504.0f)},
      {"V_CVT_PKRTZ_F16_F32", {B(65519.0f), B(-1.0f)}, 0xbc007bff},
      {"V_CVT_PKNORM_I16_F32", {B(-2.0f), B(1.0f)}, 0x7fff8001},
      {"V_CVT_PKNORM_U16_F32", {B(-2.0f), B(1.0f)}, 0xffff0000},
      {"V_CVT_PK_U16_U32", {70000, 5}, 0x0005ffff},
      {"V_CVT_PK_I16_I32", {static_cast<uint32_t>(-70000), 5}, 0x00058000},
      {"V_CVT_PK_U8_F32", {B(300.0f), 2, 0x11223344}, 0x11ff3344},
  });
}

TEST(ValuFloat, AccumulatingForms) {
  Rig rig;
  rig.Fill(0, B(1.0f));
  rig.Fill(1, B(3.0f));
  rig.Fill(2, B(4.0f));
  ASSERT_EQ(rig.Run("V_FMAC_F32", Vgpr(0), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[3], B(13.0f));
  ASSERT_EQ(rig.Run("V_MAC_F32", Vgpr(0), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[3], B(25.0f));
  // fmamk: src0 * K + src1; fmaak: src0 * src1 + K.
  ASSERT_EQ(rig.Run("V_FMAMK_F32", Vgpr(5), {Vgpr(1), Imm(B(10.0f)), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(5)[3], B(34.0f));
  ASSERT_EQ(rig.Run("V_FMAAK_F32", Vgpr(5), {Vgpr(1), Vgpr(2), Imm(B(10.0f))}), Step::kNext);
  EXPECT_EQ(rig.wave.V(5)[3], B(22.0f));
  rig.Fill64(10, B(1.0));
  rig.Fill64(12, B(1 + 0x1p-52));
  rig.Fill64(14, B(1 - 0x1p-53));
  ASSERT_EQ(rig.Run("V_FMAC_F64", Vgpr(10, 2), {Vgpr(12, 2), Vgpr(14, 2)}), Step::kNext);
  EXPECT_EQ(rig.Get64(10, 1), B(std::fma(1 + 0x1p-52, 1 - 0x1p-53, 1.0)));
}

TEST(ValuFloat, DenormalModes) {
  const auto add = [](uint32_t mode, uint32_t a, uint32_t b) {
    Rig rig;
    rig.wave.mode = mode;
    rig.Fill(1, a);
    rig.Fill(2, b);
    EXPECT_EQ(rig.Run("V_ADD_F32", Vgpr(0), {Vgpr(1), Vgpr(2)}), Step::kNext);
    return rig.wave.V(0)[0];
  };
  const uint32_t tiny = 3, negative_tiny = 0x80000003;
  EXPECT_EQ(add(0x30, tiny, tiny), 6u);
  EXPECT_EQ(add(0x00, tiny, tiny), 0u);
  EXPECT_EQ(add(0x00, negative_tiny, negative_tiny), 0x80000000u);
  EXPECT_EQ(add(0x10, tiny, tiny), 0u) << "inputs allowed, output flushed";
  EXPECT_EQ(add(0x10, tiny, 0x00800000), 0x00800003u);
  EXPECT_EQ(add(0x20, tiny, 0x00800000), 0x00800000u) << "inputs flushed";
  // Smallest normal minus a bit: denormal output.
  EXPECT_EQ(add(0x20, 0x00c00000, B(-0x1p-126f)), 0x00400000u);
  EXPECT_EQ(add(0x10, 0x00c00000, B(-0x1p-126f)), 0u);
}

TEST(ValuFloat, RoundingModes) {
  const uint32_t expected[] = {B(1.0f), B(1 + 0x1p-23f), B(1.0f), B(1.0f)};
  for (uint32_t round = 0; round < 4; ++round) {
    Rig rig;
    rig.wave.mode = kDefaultMode | round;
    rig.Fill(1, B(1.0f));
    rig.Fill(2, B(0x1p-30f));
    ASSERT_EQ(rig.Run("V_ADD_F32", Vgpr(0), {Vgpr(1), Vgpr(2)}), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0], expected[round]) << round;
    // The f16/f64 field rounds conversions to f16.
    rig.wave.mode = kDefaultMode | round << 2;
    rig.Fill(1, B(1 + 0x1p-14f));
    ASSERT_EQ(rig.Run("V_CVT_F16_F32", Vgpr(0), {Vgpr(1)}), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0], round == 1 ? 0x3c01u : 0x3c00u) << round;
  }
}

TEST(ValuFloat, ModifiersClampAndOmod) {
  Rig rig;
  rig.Fill(1, B(-2.0f));
  rig.Fill(2, B(0.5f));
  Inst inst = Rig::Make("V_ADD_F32", Vgpr(0), {Vgpr(1), Vgpr(2)});
  inst.src[0].abs = true;
  inst.src[1].neg = true;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(1.5f));
  inst.src[0].neg = true;  // -|x|
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(-2.5f));
  inst.clamp = true;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0u);
  inst.clamp = false;
  inst.omod = 2;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(-2.5f)) << "ignored with IEEE mode or denormals";
  rig.wave.mode = 0;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(-10.0f));
  // NaN clamps to zero with DX10_CLAMP, else stays.
  rig.wave.mode = kDefaultMode;
  rig.Fill(1, kQnan);
  Inst nan = Rig::Make("V_ADD_F32", Vgpr(0), {Vgpr(1), Vgpr(2)});
  nan.clamp = true;
  ASSERT_EQ(rig.Run(nan), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0u);
  rig.wave.mode &= ~0x100u;
  ASSERT_EQ(rig.Run(nan), Step::kNext);
  EXPECT_TRUE(std::isnan(F(rig.wave.V(0)[0])));
}

// The segments are consecutive bits of 2/pi: their sum is 2/pi to double precision,
// and each is what the ones before leave over.
TEST(ValuFloat, TrigPreopSegments) {
  Rig rig;
  rig.Fill64(2, B(1e10));
  double segment[3];
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(rig.Run("V_TRIG_PREOP_F64", Vgpr(4, 2), {Vgpr(2, 2), Imm(i)}), Step::kNext);
    segment[i] = D(rig.Get64(4, 0));
  }
  const long double two_over_pi = 2 / 3.14159265358979323846264338327950288L;
  EXPECT_EQ(segment[0], D(0x3fe45f306dc9c882)) << "2/pi cut off after 53 bits";
  EXPECT_NEAR(static_cast<double>((two_over_pi - segment[0]) * 0x1p60L), segment[1] * 0x1p60, 0.1);
  EXPECT_LT(segment[1], 0x1p-53);
  EXPECT_LT(segment[2], 0x1p-106);
  // Beyond an exponent of 1077 the window moves with the argument.
  rig.Fill64(2, B(0x1p55));  // biased 1078
  ASSERT_EQ(rig.Run("V_TRIG_PREOP_F64", Vgpr(4, 2), {Vgpr(2, 2), Imm(0)}), Step::kNext);
  EXPECT_EQ(D(rig.Get64(4, 0)), std::ldexp(0x08be60db939105, -54)) << "bits 2 to 54 of 2/pi";
}

// --- IEEE division as the compiler expands it ---------------------------------

float DivideF32(Rig& rig, float n, float d) {
  rig.Fill(1, B(n));
  rig.Fill(2, B(d));
  Inst scale_d = Rig::Make("V_DIV_SCALE_F32", Vgpr(3), {Vgpr(2), Vgpr(2), Vgpr(1)});
  scale_d.sdst = Sgpr(20, 2);
  Inst scale_n = Rig::Make("V_DIV_SCALE_F32", Vgpr(4), {Vgpr(1), Vgpr(2), Vgpr(1)});
  scale_n.sdst = Sgpr(kVccLo, 2);
  Operand negative_d = Vgpr(3);
  negative_d.neg = true;
  const Operand one = Imm(B(1.0f));
  const auto fma = [&](uint16_t dst, Operand a, Operand b, Operand c) {
    EXPECT_EQ(rig.Run("V_FMA_F32", Vgpr(dst), {a, b, c}), Step::kNext);
  };
  EXPECT_EQ(rig.Run(scale_d), Step::kNext);
  EXPECT_EQ(rig.Run("V_RCP_F32", Vgpr(5), {Vgpr(3)}), Step::kNext);
  EXPECT_EQ(rig.Run(scale_n), Step::kNext);
  fma(6, negative_d, Vgpr(5), one);
  fma(5, Vgpr(6), Vgpr(5), Vgpr(5));
  EXPECT_EQ(rig.Run("V_MUL_F32", Vgpr(7), {Vgpr(4), Vgpr(5)}), Step::kNext);
  fma(8, negative_d, Vgpr(7), Vgpr(4));
  fma(7, Vgpr(8), Vgpr(5), Vgpr(7));
  fma(8, negative_d, Vgpr(7), Vgpr(4));
  EXPECT_EQ(rig.Run("V_DIV_FMAS_F32", Vgpr(8), {Vgpr(8), Vgpr(5), Vgpr(7)}), Step::kNext);
  EXPECT_EQ(rig.Run("V_DIV_FIXUP_F32", Vgpr(9), {Vgpr(8), Vgpr(2), Vgpr(1)}), Step::kNext);
  return F(rig.wave.V(9)[0]);
}

double DivideF64(Rig& rig, double n, double d) {
  rig.Fill64(2, B(n));
  rig.Fill64(4, B(d));
  Inst scale_d = Rig::Make("V_DIV_SCALE_F64", Vgpr(6, 2), {Vgpr(4, 2), Vgpr(4, 2), Vgpr(2, 2)});
  scale_d.sdst = Sgpr(20, 2);
  Inst scale_n = Rig::Make("V_DIV_SCALE_F64", Vgpr(8, 2), {Vgpr(2, 2), Vgpr(4, 2), Vgpr(2, 2)});
  scale_n.sdst = Sgpr(kVccLo, 2);
  Operand negative_d = Vgpr(6, 2);
  negative_d.neg = true;
  Operand one = Imm(B(1.0f));
  one.imm64 = B(1.0);
  const auto fma = [&](uint16_t dst, Operand a, Operand b, Operand c) {
    EXPECT_EQ(rig.Run("V_FMA_F64", Vgpr(dst, 2), {a, b, c}), Step::kNext);
  };
  EXPECT_EQ(rig.Run(scale_d), Step::kNext);
  EXPECT_EQ(rig.Run("V_RCP_F64", Vgpr(10, 2), {Vgpr(6, 2)}), Step::kNext);
  fma(12, negative_d, Vgpr(10, 2), one);
  fma(10, Vgpr(10, 2), Vgpr(12, 2), Vgpr(10, 2));
  fma(12, negative_d, Vgpr(10, 2), one);
  fma(10, Vgpr(10, 2), Vgpr(12, 2), Vgpr(10, 2));
  EXPECT_EQ(rig.Run(scale_n), Step::kNext);
  EXPECT_EQ(rig.Run("V_MUL_F64", Vgpr(14, 2), {Vgpr(8, 2), Vgpr(10, 2)}), Step::kNext);
  fma(12, negative_d, Vgpr(14, 2), Vgpr(8, 2));
  EXPECT_EQ(rig.Run("V_DIV_FMAS_F64", Vgpr(12, 2), {Vgpr(12, 2), Vgpr(10, 2), Vgpr(14, 2)}),
            Step::kNext);
  EXPECT_EQ(rig.Run("V_DIV_FIXUP_F64", Vgpr(16, 2), {Vgpr(12, 2), Vgpr(4, 2), Vgpr(2, 2)}),
            Step::kNext);
  return D(rig.Get64(16, 0));
}

bool SameFloat(float a, float b) { return B(a) == B(b) || (std::isnan(a) && std::isnan(b)); }
bool SameDouble(double a, double b) { return B(a) == B(b) || (std::isnan(a) && std::isnan(b)); }

TEST(ValuDivision, F32MatchesHost) {
  Rig rig;
  const float special[] = {0.0f,          -0.0f,         1.0f,          3.0f,      -7.0f,
                           INFINITY,      -INFINITY,     NAN,           F(1),      F(0x7fffff),
                           F(0x00800000), F(0x7f7fffff), F(0x7e800001), 0x1p-100f, 0x1p100f};
  for (float n : special) {
    for (float d : special) {
      EXPECT_TRUE(SameFloat(DivideF32(rig, n, d), n / d)) << n << " / " << d;
    }
  }
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const float n = F(static_cast<uint32_t>(random())), d = F(static_cast<uint32_t>(random()));
    const float got = DivideF32(rig, n, d);
    ASSERT_TRUE(SameFloat(got, n / d))
        << std::hexfloat << n << " / " << d << " = " << n / d << " got " << got;
  }
}

TEST(ValuDivision, F64MatchesHost) {
  Rig rig;
  const double special[] = {0.0,       -0.0,    1.0,     3.0,       -7.0,      INFINITY,
                            -INFINITY, NAN,     D(1),    0x1p-1022, 0x1p-1030, 0x1p1023,
                            0x1p-600,  0x1p600, DBL_MAX, 0x1.8p1022};
  for (double n : special) {
    for (double d : special) {
      EXPECT_TRUE(SameDouble(DivideF64(rig, n, d), n / d)) << n << " / " << d;
    }
  }
  std::mt19937_64 random(4);
  for (int i = 0; i < 20000; ++i) {
    double n = D(random()), d = D(random());
    if (i % 2) {  // quotients around the denormal boundary
      n = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52, -500);
      d = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52,
                     515 + static_cast<int>(random() % 65));
    }
    const double got = DivideF64(rig, n, d);
    ASSERT_TRUE(SameDouble(got, n / d))
        << std::hexfloat << n << " / " << d << " = " << n / d << " got " << got;
  }
}

// --- Compares -----------------------------------------------------------------

TEST(ValuCompare, FloatRelations) {
  struct Relation {
    const char* name;
    bool less, equal, greater, unordered;
  };
  const Relation relations[] = {
      {"F", 0, 0, 0, 0},   {"LT", 1, 0, 0, 0},  {"EQ", 0, 1, 0, 0},  {"LE", 1, 1, 0, 0},
      {"GT", 0, 0, 1, 0},  {"LG", 1, 0, 1, 0},  {"GE", 0, 1, 1, 0},  {"O", 1, 1, 1, 0},
      {"U", 0, 0, 0, 1},   {"NGE", 1, 0, 0, 1}, {"NLG", 0, 1, 0, 1}, {"NGT", 1, 1, 0, 1},
      {"NLE", 0, 0, 1, 1}, {"NEQ", 1, 0, 1, 1}, {"NLT", 0, 1, 1, 1}, {"TRU", 1, 1, 1, 1}};
  for (const Relation& r : relations) {
    Rig rig;
    const float a[] = {1, 2, 3, NAN};
    for (int l = 0; l < 4; ++l) {
      rig.wave.V(1)[l] = B(a[l]);
      rig.wave.V(2)[l] = B(2.0f);
      const uint64_t d = B(double{a[l]}), two = B(2.0);
      rig.wave.V(4)[l] = static_cast<uint32_t>(d);
      rig.wave.V(5)[l] = static_cast<uint32_t>(d >> 32);
      rig.wave.V(6)[l] = static_cast<uint32_t>(two);
      rig.wave.V(7)[l] = static_cast<uint32_t>(two >> 32);
      const uint32_t half[] = {0x3c00, 0x4000, 0x4200, 0x7e00};
      rig.wave.V(8)[l] = half[l];
      rig.wave.V(9)[l] = 0x4000;
    }
    rig.wave.SetExec(0xf);
    const uint64_t expected = uint64_t{r.less} | uint64_t{r.equal} << 1 | uint64_t{r.greater} << 2 |
                              uint64_t{r.unordered} << 3;
    const std::string name = std::string("V_CMP_") + r.name;
    ASSERT_EQ(rig.Run(name + "_F32", Sgpr(10, 2), {Vgpr(1), Vgpr(2)}), Step::kNext) << name;
    EXPECT_EQ(rig.wave.ReadS64(10), expected) << name;
    ASSERT_EQ(rig.Run(name + "_F64", Sgpr(12, 2), {Vgpr(4, 2), Vgpr(6, 2)}), Step::kNext);
    EXPECT_EQ(rig.wave.ReadS64(12), expected) << name;
    ASSERT_EQ(rig.Run(name + "_F16", Sgpr(14, 2), {Vgpr(8), Vgpr(9)}), Step::kNext);
    EXPECT_EQ(rig.wave.ReadS64(14), expected) << name;
  }
}

TEST(ValuCompare, IntegerSignsAndMasks) {
  Rig rig;
  rig.Fill(1, 0xffffffff);
  rig.Fill(2, 1);
  rig.wave.SetExec(0x0ff0);
  rig.wave.WriteS64(kVccLo, ~uint64_t{0});
  ASSERT_EQ(rig.Run("V_CMP_LT_I32", Operand(), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.Vcc(), 0x0ff0u) << "bits of inactive lanes are cleared";
  ASSERT_EQ(rig.Run("V_CMP_LT_U32", Sgpr(kVccLo, 2), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.Vcc(), 0u);
  ASSERT_EQ(rig.Run("V_CMP_GT_U16", Sgpr(4, 2), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.ReadS64(4), 0x0ff0u);
  ASSERT_EQ(rig.Run("V_CMP_GT_I16", Sgpr(4, 2), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(rig.wave.ReadS64(4), 0u);
}

TEST(ValuCompare, CmpxWritesExec) {
  Rig gfx9(Gen::kGfx90a);
  gfx9.Fill(2, 3);
  for (uint32_t l = 0; l < 64; ++l) gfx9.wave.V(1)[l] = l % 5;
  gfx9.wave.SetExec(0xffff);
  ASSERT_EQ(gfx9.Run("V_CMPX_LT_U32", Sgpr(kVccLo, 2), {Vgpr(1), Vgpr(2)}), Step::kNext);
  uint64_t expected = 0;
  for (uint32_t l = 0; l < 16; ++l) expected |= uint64_t{l % 5 < 3} << l;
  EXPECT_EQ(gfx9.wave.Exec(), expected);
  EXPECT_EQ(gfx9.wave.Vcc(), expected);

  Rig gfx10(Gen::kGfx10_3, 32);
  gfx10.Fill(2, 3);
  for (uint32_t l = 0; l < 32; ++l) gfx10.wave.V(1)[l] = l % 5;
  gfx10.wave.SetExec(0xffff);
  gfx10.wave.WriteS(kVccLo, 0x1234);
  ASSERT_EQ(gfx10.Run("V_CMPX_LT_U32", Sgpr(kExecLo), {Vgpr(1), Vgpr(2)}), Step::kNext);
  EXPECT_EQ(gfx10.wave.Exec(), expected);
  EXPECT_EQ(gfx10.wave.ReadS(kVccLo), 0x1234u);
}

TEST(ValuCompare, Class) {
  const uint32_t values[] = {kSnan,    kQnan, 0xff800000, B(-2.0f), 0x80000001,
                             1u << 31, 0,     1,          B(2.0f),  kInf};
  for (uint32_t bit = 0; bit < 10; ++bit) {
    Rig rig;
    for (uint32_t l = 0; l < 10; ++l) rig.wave.V(1)[l] = values[l];
    rig.wave.SetExec(0x3ff);
    ASSERT_EQ(rig.Run("V_CMP_CLASS_F32", Sgpr(4, 2), {Vgpr(1), Imm(1u << bit)}), Step::kNext);
    EXPECT_EQ(rig.wave.ReadS64(4), uint64_t{1} << bit);
  }
}

// --- 16-bit results ------------------------------------------------------------

TEST(ValuHalf, UpperHalfPerGeneration) {
  for (Gen gen : {Gen::kGfx9, Gen::kGfx90a, Gen::kGfx10_3, Gen::kGfx11}) {
    Rig rig(gen);
    rig.Fill(0, 0xdead0000);
    rig.Fill(1, 0xffff3c00);
    ASSERT_EQ(rig.Run("V_ADD_F16", Vgpr(0), {Vgpr(1), Vgpr(1)}), Step::kNext);
    const bool keeps = gen >= Gen::kGfx10;
    EXPECT_EQ(rig.wave.V(0)[0], keeps ? 0xdead4000 : 0x00004000);
    // VOP3-only forms with op_sel preserve everywhere.
    rig.Fill(0, 0xdead0000);
    Inst fma = Rig::Make("V_FMA_F16", Vgpr(0), {Vgpr(1), Vgpr(1), Vgpr(1)});
    ASSERT_EQ(rig.Run(fma), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0], 0xdead4000);
    rig.Fill(0, 0x0000beef);
    fma.op_sel_dst = true;
    ASSERT_EQ(rig.Run(fma), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0], 0x4000beef);
    fma.op_sel_dst = false;
    fma.src[0].op_sel = true;  // 0xffff is a NaN
    ASSERT_EQ(rig.Run(fma), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0] & 0x7e00, 0x7e00u);
  }
}

// Every f16 value through f32 and back, and sums against a float reference.
TEST(ValuHalf, RoundTripAndAdd) {
  Rig rig(Gen::kGfx90a);
  std::mt19937 random(5);
  for (uint32_t h = 0; h < 0x10000; h += 64) {
    for (uint32_t l = 0; l < 64; ++l) rig.wave.V(1)[l] = h + l;
    ASSERT_EQ(rig.Run("V_CVT_F32_F16", Vgpr(2), {Vgpr(1)}), Step::kNext);
    ASSERT_EQ(rig.Run("V_CVT_F16_F32", Vgpr(3), {Vgpr(2)}), Step::kNext);
    for (uint32_t l = 0; l < 64; ++l) {
      const bool nan = ((h + l) & 0x7c00) == 0x7c00 && ((h + l) & 0x3ff) != 0;
      EXPECT_EQ(rig.wave.V(3)[l], nan ? (h + l) | 0x200 : h + l);
    }
  }
  for (int i = 0; i < 500; ++i) {
    for (uint32_t l = 0; l < 64; ++l) {
      rig.wave.V(1)[l] = random() & 0xfbff;  // finite
      rig.wave.V(2)[l] = random() & 0xfbff;
    }
    ASSERT_EQ(rig.Run("V_CVT_F32_F16", Vgpr(4), {Vgpr(1)}), Step::kNext);
    ASSERT_EQ(rig.Run("V_CVT_F32_F16", Vgpr(5), {Vgpr(2)}), Step::kNext);
    ASSERT_EQ(rig.Run("V_MUL_F16", Vgpr(6), {Vgpr(1), Vgpr(2)}), Step::kNext);
    for (uint32_t l = 0; l < 64; ++l) {
      rig.wave.V(7)[l] = B(F(rig.wave.V(4)[l]) * F(rig.wave.V(5)[l]));  // exact in f32
    }
    ASSERT_EQ(rig.Run("V_CVT_F16_F32", Vgpr(8), {Vgpr(7)}), Step::kNext);
    for (uint32_t l = 0; l < 64; ++l) EXPECT_EQ(rig.wave.V(6)[l], rig.wave.V(8)[l]);
  }
}

// --- Packed ---------------------------------------------------------------------

TEST(ValuPacked, HalvesAndSelectors) {
  Rig rig;
  rig.Fill(1, 0x00020001);
  rig.Fill(2, 0x00200010);
  Inst add = Rig::Make("V_PK_ADD_U16", Vgpr(0), {Vgpr(1), Vgpr(2)});
  ASSERT_EQ(rig.Run(add), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x00220011u);
  add.src[0].op_sel = true;      // low result from the high half
  add.src[1].op_sel_hi = false;  // high result from the low half
  ASSERT_EQ(rig.Run(add), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x00120012u);
  rig.Fill(1, 0x40003c00);  // 2.0, 1.0
  Inst fma = Rig::Make("V_PK_FMA_F16", Vgpr(0), {Vgpr(1), Vgpr(1), Vgpr(1)});
  fma.src[2].neg = true;
  ASSERT_EQ(rig.Run(fma), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x46000000u);  // 2*2+2, 1*1-1
  Inst shift = Rig::Make("V_PK_LSHLREV_B16", Vgpr(0), {Imm(4), Vgpr(2)});
  shift.src[0].op_sel_hi = false;
  ASSERT_EQ(rig.Run(shift), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x02000100u);
}

TEST(ValuPacked, F32Pairs) {
  Rig rig;
  rig.Fill(2, B(1.0f));
  rig.Fill(3, B(2.0f));
  rig.Fill(4, B(10.0f));
  rig.Fill(5, B(20.0f));
  Inst mul = Rig::Make("V_PK_MUL_F32", Vgpr(6, 2), {Vgpr(2, 2), Vgpr(4, 2)});
  mul.src[1].op_sel_hi = false;
  ASSERT_EQ(rig.Run(mul), Step::kNext);
  EXPECT_EQ(rig.wave.V(6)[0], B(10.0f));
  EXPECT_EQ(rig.wave.V(7)[0], B(20.0f));
  // Swap a pair in place: the destination overlaps both sources.
  Inst mov = Rig::Make("V_PK_MOV_B32", Vgpr(2, 2), {Vgpr(2, 2), Vgpr(2, 2)});
  mov.src[0].op_sel = true;
  ASSERT_EQ(rig.Run(mov), Step::kNext);
  EXPECT_EQ(rig.wave.V(2)[0], B(2.0f));
  EXPECT_EQ(rig.wave.V(3)[0], B(1.0f));
  rig.wave.WriteS64(8, uint64_t{B(3.0f)} << 32 | B(5.0f));
  ASSERT_EQ(rig.Run("V_PK_FMA_F32", Vgpr(6, 2), {Vgpr(2, 2), Sgpr(8, 2), Vgpr(4, 2)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(6)[0], B(20.0f));
  EXPECT_EQ(rig.wave.V(7)[0], B(23.0f));
}

TEST(ValuPacked, MixedPrecision) {
  Rig rig;
  rig.Fill(0, 0xaaaabbbb);
  rig.Fill(1, 0x40003c00);  // f16 2.0, 1.0
  rig.Fill(2, B(-3.0f));
  Inst mix = Rig::Make("V_FMA_MIX_F32", Vgpr(0), {Vgpr(1), Vgpr(2), Vgpr(1)});
  mix.src[0].op_sel = true;
  mix.src[1].op_sel_hi = false;
  ASSERT_EQ(rig.Run(mix), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(-5.0f));
  mix.src[1].abs = true;
  ASSERT_EQ(rig.Run(mix), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], B(7.0f));
  rig.Fill(0, 0xaaaabbbb);
  mix.name = "V_FMA_MIXHI_F16";
  ASSERT_EQ(rig.Run(mix), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x4700bbbbu);
  mix.name = "V_FMA_MIXLO_F16";
  ASSERT_EQ(rig.Run(mix), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x47004700u);
}

TEST(ValuPacked, Dots) {
  Check32({
      {"V_DOT4_I32_I8", {0x01ff0203, 0x02020304, 10}, 10 + 2 - 2 + 6 + 12},
      {"V_DOT4_U32_U8", {0x01ff0203, 0x02020304, 10}, 10 + 2 + 510 + 6 + 12},
      {"V_DOT2_I32_I16", {0xffff0002, 0x00030004, 1}, 1 - 3 + 8},
      {"V_DOT2_U32_U16", {0xffff0002, 0x00030004, 1}, 1 + 196605 + 8},
      {"V_DOT8_I32_I4", {0xf0000001, 0x20000003, 1}, 1 - 2 + 3},
      {"V_DOT8_U32_U4", {0xf0000001, 0x20000003, 1}, 1 + 30 + 3},
      {"V_DOT2_F32_F16", {0x40003c00, 0x42004000, B(1.0f)}, B(9.0f)},
  });
}

// --- Lanes ---------------------------------------------------------------------

TEST(ValuLane, ReadsAndWritesIgnoreExec) {
  Rig rig;
  for (uint32_t l = 0; l < 64; ++l) rig.wave.V(1)[l] = 100 + l;
  rig.wave.SetExec(0xf0);
  ASSERT_EQ(rig.Run("V_READFIRSTLANE_B32", Sgpr(3), {Vgpr(1)}), Step::kNext);
  EXPECT_EQ(rig.wave.ReadS(3), 104u);
  ASSERT_EQ(rig.Run("V_READLANE_B32", Sgpr(3), {Vgpr(1), Imm(63)}), Step::kNext);
  EXPECT_EQ(rig.wave.ReadS(3), 163u);
  rig.wave.WriteS(5, 7);
  ASSERT_EQ(rig.Run("V_WRITELANE_B32", Vgpr(1), {Sgpr(3), Sgpr(5)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(1)[7], 163u);
  EXPECT_EQ(rig.wave.V(1)[6], 106u);
  rig.wave.SetExec(0);
  ASSERT_EQ(rig.Run("V_READFIRSTLANE_B32", Sgpr(3), {Vgpr(1)}), Step::kNext);
  EXPECT_EQ(rig.wave.ReadS(3), 100u);
  ASSERT_EQ(rig.Run("V_MOV_B32", Vgpr(1), {Imm(0)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(1)[0], 100u) << "nothing is written with EXEC zero";
}

TEST(ValuLane, PermlaneAndSwap) {
  Rig rig(Gen::kGfx11, 32);
  for (uint32_t l = 0; l < 32; ++l) rig.wave.V(1)[l] = l;
  // Reverse each row.
  rig.wave.WriteS(4, 0x89abcdef);
  rig.wave.WriteS(5, 0x01234567);
  ASSERT_EQ(rig.Run("V_PERMLANE16_B32", Vgpr(2), {Vgpr(1), Sgpr(4), Sgpr(5)}), Step::kNext);
  ASSERT_EQ(rig.Run("V_PERMLANEX16_B32", Vgpr(3), {Vgpr(1), Sgpr(4), Sgpr(5)}), Step::kNext);
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(rig.wave.V(2)[l], l ^ 15);
    EXPECT_EQ(rig.wave.V(3)[l], l ^ 31);
  }
  rig.wave.SetExec(1);
  ASSERT_EQ(rig.Run("V_SWAP_B32", Vgpr(2), {Vgpr(3)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(2)[0], 31u);
  EXPECT_EQ(rig.wave.V(3)[0], 15u);
  EXPECT_EQ(rig.wave.V(2)[1], 14u);
}

TEST(ValuLane, AccumulatorRegisters) {
  Rig rig;
  rig.Fill(1, 42);
  ASSERT_EQ(rig.Run("V_ACCVGPR_WRITE_B32", Agpr(3), {Vgpr(1)}), Step::kNext);
  EXPECT_EQ(rig.wave.A(3)[63], 42u);
  ASSERT_EQ(rig.Run("V_ACCVGPR_READ_B32", Vgpr(2), {Agpr(3)}), Step::kNext);
  EXPECT_EQ(rig.wave.V(2)[63], 42u);
}

// --- DPP and SDWA ----------------------------------------------------------------

struct DppCase {
  const char* what;
  uint32_t ctrl;
  int (*from)(int lane);  // -1: out of range
};

TEST(ValuDpp, Controls) {
  const DppCase cases[] = {
      {"quad_perm:[3,2,1,0]", 0x1b, [](int l) { return (l & ~3) | (3 - (l & 3)); }},
      {"row_shl:1", 0x101, [](int l) { return l % 16 < 15 ? l + 1 : -1; }},
      {"row_shr:4", 0x114, [](int l) { return l % 16 >= 4 ? l - 4 : -1; }},
      {"row_ror:3", 0x123, [](int l) { return l / 16 * 16 + (l + 13) % 16; }},
      {"wave_shl:1", 0x130, [](int l) { return l < 63 ? l + 1 : -1; }},
      {"wave_rol:1", 0x134, [](int l) { return (l + 1) % 64; }},
      {"wave_shr:1", 0x138, [](int l) { return l - 1; }},
      {"wave_ror:1", 0x13c, [](int l) { return (l + 63) % 64; }},
      {"row_mirror", 0x140, [](int l) { return l / 16 * 16 + 15 - l % 16; }},
      {"row_half_mirror", 0x141, [](int l) { return l / 8 * 8 + 7 - l % 8; }},
      {"row_bcast:15", 0x142, [](int l) { return l < 16 ? -1 : l / 16 * 16 - 1; }},
      {"row_bcast:31", 0x143, [](int l) { return l < 32 ? -1 : 31; }},
      {"row_newbcast:5", 0x155, [](int l) { return l / 16 * 16 + 5; }},
      {"row_xmask:9", 0x169, [](int l) { return l ^ 9; }},
  };
  for (const DppCase& c : cases) {
    for (bool bound : {false, true}) {
      Rig rig;
      for (uint32_t l = 0; l < 64; ++l) rig.wave.V(1)[l] = 1000 + l;
      rig.Fill(0, 7);
      Inst inst = Rig::Make("V_MOV_B32", Vgpr(0), {Vgpr(1)});
      inst.dpp.present = true;
      inst.dpp.ctrl = c.ctrl;
      inst.dpp.bound_ctrl = bound;
      ASSERT_EQ(rig.Run(inst), Step::kNext);
      for (int l = 0; l < 64; ++l) {
        const int from = c.from(l);
        const uint32_t expected = from >= 0 ? 1000 + static_cast<uint32_t>(from) : bound ? 0 : 7;
        EXPECT_EQ(rig.wave.V(0)[l], expected) << c.what << " lane " << l;
      }
    }
  }
}

TEST(ValuDpp, MasksInactiveSourcesAndDpp8) {
  Rig rig(Gen::kGfx10_3, 32);
  for (uint32_t l = 0; l < 32; ++l) rig.wave.V(1)[l] = 1000 + l;
  rig.Fill(0, 7);
  Inst inst = Rig::Make("V_MOV_B32", Vgpr(0), {Vgpr(1)});
  inst.dpp.present = true;
  inst.dpp.ctrl = 0x111;  // row_shr:1
  inst.dpp.row_mask = 2;
  inst.dpp.bank_mask = 5;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  for (uint32_t l = 0; l < 32; ++l) {
    const bool written = l >= 16 && (l / 4 % 4) % 2 == 0 && l % 16 != 0;
    EXPECT_EQ(rig.wave.V(0)[l], written ? 1000 + l - 1 : 7) << l;
  }
  // An inactive source lane reads as out of range unless fi is set.
  inst.dpp.row_mask = inst.dpp.bank_mask = 0xf;
  rig.wave.SetExec(0xffffffdf);
  for (bool fi : {false, true}) {
    rig.Fill(0, 7);
    inst.dpp.fi = fi;
    ASSERT_EQ(rig.Run(inst), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[6], fi ? 1005u : 7u);
    EXPECT_EQ(rig.wave.V(0)[5], 7u) << "inactive";
  }
  rig.wave.SetExec(~uint64_t{0});
  inst.dpp = Dpp();
  inst.dpp.present = inst.dpp.dpp8 = true;
  inst.dpp.ctrl = 07654321 >> 3 | 0 << 21;  // lane i reads i+2, wrapping octal digits
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  const uint32_t digits[] = {2, 3, 4, 5, 6, 7, 0, 0};
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(rig.wave.V(0)[l], 1000 + (l & ~7u) + digits[l & 7]) << l;
  }
}

// A row reduction as compilers write it: adds with row_shr 1, 2, 4, 8.
TEST(ValuDpp, RowReduction) {
  Rig rig;
  uint32_t sums[4] = {};
  for (uint32_t l = 0; l < 64; ++l) {
    rig.wave.V(1)[l] = l * l + 1;
    sums[l / 16] += l * l + 1;
  }
  for (uint32_t n : {1u, 2u, 4u, 8u}) {
    Inst add = Rig::Make("V_ADD_U32", Vgpr(1), {Vgpr(1), Vgpr(1)});
    add.dpp.present = true;
    add.dpp.ctrl = 0x110 + n;
    ASSERT_EQ(rig.Run(add), Step::kNext);
  }
  for (uint32_t row = 0; row < 4; ++row) EXPECT_EQ(rig.wave.V(1)[16 * row + 15], sums[row]);
}

TEST(ValuSdwa, SelectsAndUnused) {
  Rig rig;
  rig.Fill(1, 0x80ff7f01);
  rig.Fill(2, 0x00010203);
  Inst inst = Rig::Make("V_ADD_U32", Vgpr(0), {Vgpr(1), Vgpr(2)});
  inst.sdwa.present = true;
  inst.src[0].sdwa_sel = 2;  // 0xff
  inst.src[1].sdwa_sel = 5;  // 0x0001
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0x100u);
  inst.src[0].sext = true;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  EXPECT_EQ(rig.wave.V(0)[0], 0u);
  inst.src[0].sext = false;
  struct Unused {
    uint8_t sel, unused;
    uint32_t out;
  };
  inst.src[0].sdwa_sel = 3;  // 0x80
  inst.src[1].sdwa_sel = 3;  // 0
  for (const Unused& u : std::vector<Unused>{{0, 0, 0x00000080},
                                             {0, 1, 0xffffff80},
                                             {1, 1, 0xffff8000},
                                             {1, 2, 0x55558055},
                                             {3, 2, 0x80555555},
                                             {5, 2, 0x00805555},
                                             {4, 0, 0x00000080}}) {
    rig.Fill(0, 0x55555555);
    inst.sdwa.dst_sel = u.sel;
    inst.sdwa.dst_unused = u.unused;
    ASSERT_EQ(rig.Run(inst), Step::kNext);
    EXPECT_EQ(rig.wave.V(0)[0], u.out) << int{u.sel} << " " << int{u.unused};
  }
  // A 16-bit result written as DWORD clears the upper half, on gfx10 too.
  Rig gfx10(Gen::kGfx10_3, 32);
  gfx10.Fill(0, 0x55555555);
  gfx10.Fill(1, 0x3c003c00);
  Inst half = Rig::Make("V_ADD_F16", Vgpr(0), {Vgpr(1), Vgpr(1)});
  half.sdwa.present = true;
  half.src[0].sdwa_sel = 5;
  half.src[1].sdwa_sel = 4;
  ASSERT_EQ(gfx10.Run(half), Step::kNext);
  EXPECT_EQ(gfx10.wave.V(0)[0], 0x4000u);
  Inst cmp = Rig::Make("V_CMP_EQ_U32", Sgpr(kVccLo, 2), {Vgpr(1), Vgpr(2)});
  cmp.sdwa.present = true;
  cmp.src[0].sdwa_sel = 0;
  cmp.src[1].sdwa_sel = 2;
  ASSERT_EQ(rig.Run(cmp), Step::kNext);
  EXPECT_EQ(rig.wave.Vcc(), ~uint64_t{0});
}

// --- Faults and names -------------------------------------------------------------

TEST(ValuFault, RegistersOutsideTheAllocation) {
  Rig rig;
  rig.wave.num_vgprs = 8;
  EXPECT_EQ(rig.Run("V_MOV_B32", Vgpr(8), {Vgpr(1)}), Step::kFault);
  EXPECT_EQ(rig.wave.fault.kind, Fault::Kind::kIllegalInstruction);
  EXPECT_EQ(rig.Run("V_MOV_B32", Vgpr(1), {Vgpr(8)}), Step::kFault);
  EXPECT_EQ(rig.Run("V_ADD_F64", Vgpr(7, 2), {Vgpr(0, 2), Vgpr(0, 2)}), Step::kFault);
  EXPECT_EQ(rig.Run("V_ADD_F64", Vgpr(6, 2), {Vgpr(0, 2), Vgpr(0, 2)}), Step::kNext);
  EXPECT_EQ(rig.Run("V_MOV_B32", Vgpr(1), {Sgpr(103)}), Step::kFault);
  EXPECT_EQ(rig.Run("V_READLANE_B32", Sgpr(1), {Vgpr(8), Imm(0)}), Step::kFault);
}

TEST(ValuFault, UnknownNamesHaveNoHandler) {
  Rig rig;
  EXPECT_EQ(rig.Run("V_NO_SUCH_OPERATION", Vgpr(0), {Vgpr(1)}), Step::kFault);
  EXPECT_EQ(rig.missing, "V_NO_SUCH_OPERATION");
  EXPECT_EQ(rig.wave.fault.kind, Fault::Kind::kNone);
}

}  // namespace
}  // namespace softgpu::test
