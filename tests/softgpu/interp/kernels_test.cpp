// Whole kernels, compiled for every generation, against the same computation on
// the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/softgpu/interp/float_bits.h"
#include "tests/softgpu/interp/test_loader.h"

namespace softgpu {
namespace {

uint32_t Scramble(uint32_t x) {
  x = (x ^ 61) ^ (x >> 16);
  x *= 9;
  x ^= x >> 4;
  x *= 0x27d4eb2d;
  return x ^ (x >> 15);
}

// Target, stem of the object ("kernels0" is unoptimised, "kernels64" has waves
// of 64 lanes, "kernelsp" preloaded arguments), scheduling seed.
using Variant = std::tuple<std::string, std::string, uint64_t>;

class Kernels : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    target_ = std::get<0>(GetParam());
    const std::string stem = std::get<1>(GetParam());
    lanes_ = target_[3] == '9' || stem == "kernels64" ? 64 : 32;
    std::string error;
    machine_ = Machine::Create(target_, std::get<2>(GetParam()), &memory_, &error);
    ASSERT_NE(machine_, nullptr) << error;
    object_ = LoadObject(stem);
    ASSERT_NE(object_, nullptr);
  }

  std::unique_ptr<LoadedObject> LoadObject(const std::string& stem) {
    const std::string path = std::string(SOFTGPU_KERNEL_DIR) + "/" + stem + "-" + target_ + ".co";
    std::string error;
    auto object = LoadedObject::Load(ReadBinaryFile(path), &memory_, &error);
    EXPECT_NE(object, nullptr) << path << ": " << error;
    return object;
  }

  Fault TryRun(const char* kernel, const KernelArgs& args, const LaunchShape& shape) {
    const uint64_t descriptor = object_->Descriptor(kernel);
    EXPECT_NE(descriptor, 0u) << kernel;
    return Launch(*machine_, memory_, descriptor, args, shape);
  }

  void Run(const char* kernel, const KernelArgs& args, uint32_t items, uint32_t group) {
    const Fault fault = TryRun(kernel, args, {.grid = {items, 1, 1}, .workgroup = {group, 1, 1}});
    ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
  }

  std::string target_;
  uint32_t lanes_ = 64;
  RangeMemory memory_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<LoadedObject> object_;
};

TEST_P(Kernels, VectorAdd) {
  constexpr uint32_t kCount = 1000;  // the last group is partly idle
  DeviceBuffer<float> a(memory_, kCount), b(memory_, kCount), c(memory_, kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i) * 0.25f;
    b[i] = 1000.0f / static_cast<float>(i + 1);
  }
  Run("vadd", KernelArgs().Add(a.data()).Add(b.data()).Add(c.data()).Add(kCount), 1024, 256);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
}

TEST_P(Kernels, TreeReductionInLds) {
  constexpr uint32_t kGroups = 3;
  DeviceBuffer<uint32_t> in(memory_, kGroups * 256), out(memory_, kGroups);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i);
  Run("reduce", KernelArgs().Add(in.data()).Add(out.data()), kGroups * 256, 256);
  for (uint32_t g = 0; g < kGroups; ++g) {
    const auto begin = in.contents().begin() + g * 256;
    EXPECT_EQ(out[g], std::accumulate(begin, begin + 256, 0u)) << g;
  }
}

TEST_P(Kernels, DivergentLoops) {
  DeviceBuffer<uint32_t> in(memory_, 192), steps(memory_, 192);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i) % 5000 + 1;
  Run("collatz", KernelArgs().Add(in.data()).Add(steps.data()), 192, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    uint32_t n = 0;
    for (uint32_t x = in[i]; x != 1; ++n) x = x & 1 ? 3 * x + 1 : x / 2;
    ASSERT_EQ(steps[i], n) << i;
  }
}

TEST_P(Kernels, ScratchMemory) {
  DeviceBuffer<uint32_t> in(memory_, 256), out(memory_, 256);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i) >> 3;
  Run("scratch", KernelArgs().Add(in.data()).Add(out.data()), 256, 128);
  for (uint32_t i = 0; i < in.size(); ++i) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < 10; ++k) {
      sum += in[i] * ((in[i] + k * 7) % 40 + 1) + static_cast<uint8_t>(in[i] + (i + k) % 24);
    }
    ASSERT_EQ(out[i], sum) << i;
  }
}

uint32_t Mix(uint32_t a, uint32_t b) {
  const uint32_t keep = a ^ 0x9e3779b9;
  return (keep << 5 | keep >> 27) + b * 2654435761u;
}

TEST_P(Kernels, CallOfADeviceFunction) {
  DeviceBuffer<uint32_t> in(memory_, 128), out(memory_, 128);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i);
  Run("call", KernelArgs().Add(in.data()).Add(out.data()), 128, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    uint32_t x = Mix(in[i], i);
    if (x & 1) x = Mix(x, 7);
    ASSERT_EQ(out[i], x) << i;
  }
}

TEST_P(Kernels, HistogramWithAtomics) {
  constexpr uint32_t kCount = 5000;
  DeviceBuffer<uint32_t> in(memory_, kCount), bins(memory_, 64);
  std::vector<uint32_t> expected(64);
  for (uint32_t i = 0; i < kCount; ++i) {
    in[i] = Scramble(i);
    ++expected[in[i] & 63];
  }
  Run("histogram", KernelArgs().Add(in.data()).Add(bins.data()).Add(kCount), 1024, 256);
  EXPECT_EQ(bins.contents(), expected);
}

TEST_P(Kernels, GenericPointersReachEverySpace) {
  DeviceBuffer<uint32_t> in(memory_, 64), out(memory_, 64);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i);
  Run("any_space", KernelArgs().Add(in.data()).Add(out.data()), 64, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], in[i] + in[63 - i] * 3 + in[i] + (i & 3) * 100) << i;
  }
}

TEST_P(Kernels, TiledMatrixMultiply) {
  constexpr uint32_t kSize = 32;
  DeviceBuffer<float> a(memory_, kSize * kSize), b(memory_, kSize * kSize),
      c(memory_, kSize * kSize);
  for (uint32_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(Scramble(i) % 1000) / 7.0f;
    b[i] = static_cast<float>(Scramble(i + 5000) % 1000) / 11.0f;
  }
  const Fault fault =
      TryRun("matmul", KernelArgs().Add(a.data()).Add(b.data()).Add(c.data()).Add(kSize),
             {.grid = {kSize, kSize, 1}, .workgroup = {16, 16, 1}});
  ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
  for (uint32_t row = 0; row < kSize; ++row) {
    for (uint32_t col = 0; col < kSize; ++col) {
      float sum = 0;
      for (uint32_t k = 0; k < kSize; ++k) {
        sum = std::fma(a[row * kSize + k], b[k * kSize + col], sum);
      }
      ASSERT_EQ(c[row * kSize + col], sum) << row << " " << col;
    }
  }
}

TEST_P(Kernels, WideArithmetic) {
  DeviceBuffer<uint64_t> in(memory_, 128), out(memory_, 128);
  DeviceBuffer<double> f(memory_, 128), g(memory_, 128);
  for (uint32_t i = 0; i < in.size(); ++i) {
    in[i] = uint64_t{Scramble(i)} << 32 | Scramble(i + 999);
    f[i] = std::sqrt(i) * 1e10;
  }
  Run("wide", KernelArgs().Add(in.data()).Add(out.data()).Add(f.data()).Add(g.data()), 128, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    const uint64_t x = in[i];
    const uint64_t want = x * 6364136223846793005u + (x >> (i & 63)) +
                          static_cast<uint64_t>(static_cast<int64_t>(x) >> 7) + x / 1000003;
    ASSERT_EQ(out[i], want) << i;
    ASSERT_EQ(g[i], std::fma(f[i], 1.5, -0.25) + static_cast<double>(x & 0xffff)) << i;
  }
}

TEST_P(Kernels, HalfPrecision) {
  DeviceBuffer<uint16_t> in(memory_, 64), out(memory_, 64);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = FloatToHalf(static_cast<float>(i) * 3);
  Run("half_math", KernelArgs().Add(in.data()).Add(out.data()), 64, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(HalfToFloat(out[i]), HalfToFloat(in[i]) * 0.5f + 1.0f) << i;
  }
}

TEST_P(Kernels, BytesAndHalfWords) {
  DeviceBuffer<uint8_t> in(memory_, 64);
  DeviceBuffer<int8_t> out(memory_, 64);
  DeviceBuffer<int16_t> s(memory_, 64);
  DeviceBuffer<uint16_t> t(memory_, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<uint8_t>(Scramble(i));
    s[i] = static_cast<int16_t>(Scramble(i) >> 8);
  }
  Run("bytes", KernelArgs().Add(in.data()).Add(out.data()).Add(s.data()).Add(t.data()), 64, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<int8_t>(in[i] - 128)) << i;
    ASSERT_EQ(t[i], static_cast<uint16_t>(s[i] >> 2)) << i;
  }
}

TEST_P(Kernels, IdsOfAllAxes) {
  DeviceBuffer<uint32_t> out(memory_, 2 * 3 * 2 * 24);
  const Fault fault =
      TryRun("ids", KernelArgs().Add(out.data()), {.grid = {8, 9, 4}, .workgroup = {4, 3, 2}});
  ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
  for (uint32_t i = 0; i < out.size(); ++i) {
    const uint32_t item = i % 24, group = i / 24;
    const uint32_t want = item % 4 | (item / 4 % 3) << 4 | (item / 12) << 8 | (group % 2) << 12 |
                          (group / 2 % 3) << 16 | (group / 6) << 20;
    ASSERT_EQ(out[i], want) << i;
  }
}

TEST_P(Kernels, CrossLane) {
  DeviceBuffer<uint32_t> in(memory_, 64), out(memory_, 64);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i) & 0xffff;
  Run("lanes", KernelArgs().Add(in.data()).Add(out.data()), 64, 64);
  for (uint32_t i = 0; i < in.size(); ++i) {
    // Pattern 0x041f: and 0x1f, xor 1.
    ASSERT_EQ(out[i], in[i / lanes_ * lanes_] + in[i ^ 1] * 3 + in[i ^ 1] * 5) << i;
  }
}

uint32_t AckermannLike(uint32_t depth, uint32_t x) {
  const uint32_t keep = x + depth;
  if (depth == 0) return keep * 3 + 1;
  const uint32_t left = AckermannLike(depth - 1, x + 1);
  return left ^ AckermannLike(depth - 1, left + keep);
}

TEST_P(Kernels, Recursion) {
  const auto recursive = LoadObject("recursive");
  ASSERT_NE(recursive, nullptr);
  DeviceBuffer<uint32_t> in(memory_, 64), out(memory_, 64);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = Scramble(i);
  const Fault fault =
      Launch(*machine_, memory_, recursive->Descriptor("recurse"),
             KernelArgs().Add(in.data()).Add(out.data()),
             {.grid = {64, 1, 1}, .workgroup = {64, 1, 1}, .private_segment_size = 16384});
  ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
  for (uint32_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], AckermannLike(in[i] & 3, in[i])) << i;
  }
}

TEST_P(Kernels, BadAddressIsAMemoryFault) {
  DeviceBuffer<uint32_t> out(memory_, 64);
  const Fault fault =
      TryRun("wild", KernelArgs().Add(out.data()), {.grid = {64, 1, 1}, .workgroup = {64, 1, 1}});
  EXPECT_EQ(fault.kind, Fault::Kind::kMemory);
  EXPECT_TRUE(fault.write);
  EXPECT_EQ((fault.address - reinterpret_cast<uint64_t>(out.data())) & ((uint64_t{1} << 36) - 1),
            0u);
  EXPECT_GE(fault.pc, object_->bias());
}

TEST_P(Kernels, CountsPerProgramCounter) {
  constexpr uint32_t kCount = 1000;
  DeviceBuffer<float> a(memory_, kCount), b(memory_, kCount), c(memory_, kCount);
  Run("vadd", KernelArgs().Add(a.data()).Add(b.data()).Add(c.data()).Add(kCount), 1024, 256);
  const uint64_t entry = object_->Symbol("vadd");
  ASSERT_NE(entry, 0u);
  const uint64_t waves = 1024 / lanes_;
  const auto& counts = machine_->Counts();
  const auto first = counts.lower_bound(entry);
  ASSERT_NE(first, counts.end());
  EXPECT_EQ(first->second.waves, waves);
  EXPECT_EQ(first->second.lanes, 1024u);
  // Some instruction ran for just the items in range (the store among them).
  bool found = false;
  uint64_t total = 0;
  for (const auto& [pc, count] : counts) {
    found = found || count.lanes == kCount;
    total += count.lanes;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(total, machine_->LaneInstructions());
  machine_->ResetCounts();
  EXPECT_TRUE(machine_->Counts().empty());
}

std::string Name(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_seed" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    AllTargets, Kernels,
    testing::Combine(testing::ValuesIn(WithNewer({"gfx900", "gfx90a", "gfx942", "gfx1030",
                                                  "gfx1100", "gfx1201"})),
                     testing::Values("kernels", "kernels0"), testing::Values(1, 20260)),
    Name);
INSTANTIATE_TEST_SUITE_P(Wave64, Kernels,
                         testing::Combine(testing::Values("gfx1030", "gfx1100", "gfx1201"),
                                          testing::Values("kernels64"), testing::Values(7)),
                         Name);
INSTANTIATE_TEST_SUITE_P(Preload, Kernels,
                         testing::Combine(testing::Values("gfx90a", "gfx942"),
                                          testing::Values("kernelsp"), testing::Values(11)),
                         Name);

}  // namespace
}  // namespace softgpu
