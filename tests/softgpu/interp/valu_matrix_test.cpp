// MFMA against plain matrix products of small integers (exact in every type),
// with the register layouts written out per shape from AMD's CDNA guides.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/softgpu/interp/valu_rig.h"

namespace softgpu::test {
namespace {

constexpr uint16_t kA = 0, kB = 2, kC = 8;  // first registers of the operands

uint32_t F(int v) { return std::bit_cast<uint32_t>(static_cast<float>(v)); }

// f16 bits of an integer from -8 to 8.
uint32_t H(int v) {
  const uint32_t magnitudes[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
  return magnitudes[v < 0 ? -v : v] | (v < 0 ? 0x8000u : 0);
}

struct Matrices {
  Matrices(int rows, int depth) : m(rows), k(depth), a(rows * depth), b(rows * depth) {
    for (int& v : a) v = static_cast<int>(random() % 9) - 4;
    for (int& v : b) v = static_cast<int>(random() % 9) - 4;
  }
  int A(int i, int kk) const { return a[i * k + kk]; }
  int B(int kk, int j) const { return b[kk * m + j]; }
  int Product(int i, int j) const {
    int sum = 0;
    for (int kk = 0; kk < k; ++kk) sum += A(i, kk) * B(kk, j);
    return sum;
  }
  static std::mt19937& random_engine() {
    static std::mt19937 engine(11);
    return engine;
  }
  static uint32_t random() { return random_engine()(); }
  int m, k;
  std::vector<int> a, b;
};

TEST(ValuMatrix, F32_32x32x2) {
  const Matrices x(32, 2);
  Rig rig;
  for (int lane = 0; lane < 64; ++lane) {
    rig.wave.V(kA)[lane] = F(x.A(lane % 32, lane / 32));
    rig.wave.V(kB)[lane] = F(x.B(lane / 32, lane % 32));
    for (int r = 0; r < 16; ++r) rig.wave.A(r)[lane] = F(r);
  }
  rig.wave.SetExec(1);  // has no effect
  ASSERT_EQ(rig.Run("V_MFMA_F32_32X32X2F32", Agpr(0, 16), {Vgpr(kA), Vgpr(kB), Agpr(0, 16)}),
            Step::kNext);
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < 16; ++r) {
      const int row = 8 * (r / 4) + 4 * (lane / 32) + r % 4;
      ASSERT_EQ(rig.wave.A(r)[lane], F(r + x.Product(row, lane % 32))) << r << " " << lane;
    }
  }
}

TEST(ValuMatrix, F16_16x16x16) {
  const Matrices x(16, 16);
  Rig rig;
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < 2; ++r) {
      const int k = 4 * (lane / 16) + 2 * r, i = lane % 16;
      rig.wave.V(kA + r)[lane] = H(x.A(i, k)) | H(x.A(i, k + 1)) << 16;
      rig.wave.V(kB + r)[lane] = H(x.B(k, i)) | H(x.B(k + 1, i)) << 16;
    }
  }
  ASSERT_EQ(rig.Run("V_MFMA_F32_16X16X16F16", Vgpr(kC, 4), {Vgpr(kA, 2), Vgpr(kB, 2), Imm(0)}),
            Step::kNext);
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < 4; ++r) {
      ASSERT_EQ(rig.wave.V(kC + r)[lane], F(x.Product(4 * (lane / 16) + r, lane % 16)));
    }
  }
}

// Sixteen independent 4x4 products, and A broadcast from one block of four.
TEST(ValuMatrix, I8_4x4x4AndBroadcast) {
  std::vector<Matrices> x;
  for (int block = 0; block < 16; ++block) x.emplace_back(4, 4);
  Rig rig;
  for (int lane = 0; lane < 64; ++lane) {
    uint32_t a = 0, b = 0;
    for (int k = 0; k < 4; ++k) {
      a |= (static_cast<uint32_t>(x[lane / 4].A(lane % 4, k)) & 0xff) << 8 * k;
      b |= (static_cast<uint32_t>(x[lane / 4].B(k, lane % 4)) & 0xff) << 8 * k;
    }
    rig.wave.V(kA)[lane] = a;
    rig.wave.V(kB)[lane] = b;
  }
  Inst inst = Rig::Make("V_MFMA_I32_4X4X4I8", Vgpr(kC, 4), {Vgpr(kA), Vgpr(kB), Imm(5)});
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  for (int lane = 0; lane < 64; ++lane) {
    for (int r = 0; r < 4; ++r) {
      ASSERT_EQ(static_cast<int>(rig.wave.V(kC + r)[lane]), 5 + x[lane / 4].Product(r, lane % 4));
    }
  }
  inst.cbsz = 2;
  inst.abid = 3;
  ASSERT_EQ(rig.Run(inst), Step::kNext);
  for (int lane = 0; lane < 64; ++lane) {
    const Matrices& a = x[lane / 16 * 4 + 3];
    for (int r = 0; r < 4; ++r) {
      int sum = 5;
      for (int k = 0; k < 4; ++k) sum += a.A(r, k) * x[lane / 4].B(k, lane % 4);
      ASSERT_EQ(static_cast<int>(rig.wave.V(kC + r)[lane]), sum);
    }
  }
}

TEST(ValuMatrix, F64_16x16x4) {
  const Matrices x(16, 4);
  Rig rig;
  for (uint32_t lane = 0; lane < 64; ++lane) {
    const int i = static_cast<int>(lane % 16), k = static_cast<int>(lane / 16);
    const uint64_t a = std::bit_cast<uint64_t>(double(x.A(i, k)));
    const uint64_t b = std::bit_cast<uint64_t>(double(x.B(k, i)));
    rig.wave.V(kA)[lane] = static_cast<uint32_t>(a);
    rig.wave.V(kA + 1)[lane] = static_cast<uint32_t>(a >> 32);
    rig.wave.V(kB)[lane] = static_cast<uint32_t>(b);
    rig.wave.V(kB + 1)[lane] = static_cast<uint32_t>(b >> 32);
  }
  ASSERT_EQ(rig.Run("V_MFMA_F64_16X16X4F64", Vgpr(kC, 8), {Vgpr(kA, 2), Vgpr(kB, 2), Imm(0)}),
            Step::kNext);
  for (uint32_t lane = 0; lane < 64; ++lane) {
    for (uint32_t r = 0; r < 4; ++r) {
      const int row = static_cast<int>(4 * r + lane / 16), column = static_cast<int>(lane % 16);
      ASSERT_EQ(std::bit_cast<double>(rig.Get64(kC + 2 * r, lane)), x.Product(row, column));
    }
  }
}

TEST(ValuMatrix, AccumulatorsMustBeAllocated) {
  Rig rig;
  rig.wave.num_agprs = 8;
  EXPECT_EQ(rig.Run("V_MFMA_F32_32X32X2F32", Agpr(0, 16), {Vgpr(kA), Vgpr(kB), Agpr(0, 16)}),
            Step::kFault);
}

}  // namespace
}  // namespace softgpu::test
