// Memory instructions that compilers rarely emit, or whose corner cases matter:
// LDS forms, buffer bounds, scalar stores and atomics, scratch addressing.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/softgpu/interp/test_asm.h"

namespace softgpu {
namespace {

// One wave runs `body`; v[8:11] of every lane is stored to out[lane * 4]. Before
// it: s[20:21] is the output, s[22:23] an input buffer, v1 = lane * 4, v2 = lane.
class Memories : public testing::TestWithParam<const char*> {
 protected:
  static constexpr uint32_t kLds = 1024;

  void SetUp() override {
    std::string error;
    machine_ = Machine::Create(GetParam(), 1, &memory_, &error);
    ASSERT_NE(machine_, nullptr) << error;
    for (uint32_t i = 0; i < in_.size(); ++i) in_[i] = 0x01010101u * (i & 0xff) + i;
  }

  Fault Try(const std::string& body, const RawKernelOptions& options = {},
            uint32_t private_size = 0) {
    const std::string text =
        "s_load_dwordx4 s[20:23], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
        "v_and_b32 v2, 0x3ff, v0\nv_lshlrev_b32 v1, 2, v2\n"
        "v_mov_b32 v8, 0\nv_mov_b32 v9, 0\nv_mov_b32 v10, 0\nv_mov_b32 v11, 0\n" +
        body +
        "\ns_waitcnt vmcnt(0) lgkmcnt(0)\nv_lshlrev_b32 v3, 4, v2\n"
        "global_store_dwordx4 v3, v[8:11], s[20:21]\ns_endpgm\n";
    RawKernel kernel(memory_, GetParam(), text, options);
    EXPECT_TRUE(kernel.ok()) << kernel.error();
    if (!kernel.ok()) return {};
    const Fault fault = Launch(*machine_, memory_, kernel.descriptor(),
                               KernelArgs().Add(out_.data()).Add(in_.data()),
                               {.grid = {64, 1, 1},
                                .workgroup = {64, 1, 1},
                                .private_segment_size = private_size,
                                .group_segment_size = kLds});
    machine_->InvalidateInstructionCache();
    return fault;
  }
  void Run(const std::string& body) {
    const Fault fault = Try(body);
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.what << "\n" << body;
  }
  uint32_t Out(unsigned lane, unsigned word = 0) { return out_[lane * 4 + word]; }
  bool Gfx9() const { return GetParam()[3] == '9'; }

  RangeMemory memory_;
  std::unique_ptr<Machine> machine_;
  DeviceBuffer<uint32_t> out_{memory_, 256}, in_{memory_, 256};
};

TEST_P(Memories, LdsTwoAddressForms) {
  Run("v_lshlrev_b32 v4, 3, v2\nv_xor_b32 v5, 64, v2\n"
      "ds_write2_b32 v4, v2, v5 offset0:0 offset1:1\ns_waitcnt lgkmcnt(0)\n"
      "ds_read2_b32 v[8:9], v4 offset0:1 offset1:0\nds_read_b64 v[10:11], v4");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), 64 + lane);
    ASSERT_EQ(Out(lane, 1), lane);
    ASSERT_EQ(Out(lane, 2), lane);
    ASSERT_EQ(Out(lane, 3), 64 + lane);
  }
  Run("ds_write2st64_b32 v1, v2, v1 offset0:0 offset1:1\ns_waitcnt lgkmcnt(0)\n"
      "ds_read2st64_b32 v[8:9], v1 offset0:0 offset1:1\nds_read_b32 v10, v1 offset:256");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), lane);
    ASSERT_EQ(Out(lane, 1), lane * 4);
    ASSERT_EQ(Out(lane, 2), lane * 4);
  }
}

TEST_P(Memories, LdsOutOfRangeReadsZeroAndDropsWrites) {
  Run("v_mov_b32 v4, 0x2000\nv_mov_b32 v8, 7\nds_write_b32 v4, v1\nds_read_b32 v8, v4\n"
      "v_mov_b32 v9, 0x3fe\nds_read_b32 v9, v9");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), 0u);
    ASSERT_EQ(Out(lane, 1), 0u) << "partly out of range";
  }
}

TEST_P(Memories, LdsAtomics) {
  Run("v_mov_b32 v4, 0\nv_mov_b32 v5, 0\nds_write_b32 v4, v5\nds_write_b32 v4, v5 offset:4\n"
      "v_mov_b32 v6, 1\nds_add_rtn_u32 v8, v4, v6\nds_max_u32 v4, v2 offset:4\n"
      "s_waitcnt lgkmcnt(0)\nds_read_b32 v9, v4\nds_read_b32 v10, v4 offset:4");
  uint64_t seen = 0;
  for (unsigned lane = 0; lane < 64; ++lane) {
    seen |= uint64_t{1} << Out(lane, 0);
    ASSERT_EQ(Out(lane, 1), 64u);
    ASSERT_EQ(Out(lane, 2), 63u);
  }
  EXPECT_EQ(seen, ~uint64_t{0});
}

// The operand order of the compare-and-store form changed with gfx11.
TEST_P(Memories, LdsCompareAndStore) {
  const bool later =
      std::string(GetParam()).starts_with("gfx11") || std::string(GetParam()).starts_with("gfx12");
  const std::string op =
      later ? "ds_cmpstore_rtn_b32 v8, v1, v6, v5" : "ds_cmpst_rtn_b32 v8, v1, v5, v6";
  Run("ds_write_b32 v1, v2\nv_mov_b32 v5, 5\nv_mov_b32 v6, 0x77\n" + op +
      "\ns_waitcnt lgkmcnt(0)\nds_read_b32 v9, v1");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), lane);
    ASSERT_EQ(Out(lane, 1), lane == 5 ? 0x77u : lane);
  }
}

TEST_P(Memories, LdsHalvesOfRegisters) {
  Run("ds_write_b32 v1, v1\nv_mov_b32 v8, -1\nv_mov_b32 v9, -1\ns_waitcnt lgkmcnt(0)\n"
      "ds_read_u16_d16 v8, v1\nds_read_u8_d16_hi v9, v1\nds_write_b8_d16_hi v1, v9 offset:3\n"
      "s_waitcnt lgkmcnt(0)\nds_read_i8 v10, v1\nds_read_u16 v11, v1 offset:2");
  for (unsigned lane = 0; lane < 64; ++lane) {
    const uint32_t value = lane * 4;
    ASSERT_EQ(Out(lane, 0), 0xffff0000 | value);
    ASSERT_EQ(Out(lane, 1), 0xffff | value << 16);
    ASSERT_EQ(Out(lane, 2), static_cast<uint32_t>(static_cast<int8_t>(value)));
    ASSERT_EQ(Out(lane, 3), value << 8);
  }
}

TEST_P(Memories, PermutesAndSwizzles) {
  Run("v_xor_b32 v4, 4, v1\nds_permute_b32 v8, v4, v2\nds_bpermute_b32 v9, v4, v2\n"
      "ds_swizzle_b32 v10, v2 offset:swizzle(QUAD_PERM,3,2,1,0)\n"
      "ds_swizzle_b32 v11, v2 offset:swizzle(SWAP,16)");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), lane ^ 1);
    ASSERT_EQ(Out(lane, 1), lane ^ 1);
    ASSERT_EQ(Out(lane, 2), lane ^ 3);
    ASSERT_EQ(Out(lane, 3), lane ^ 16);
  }
}

TEST_P(Memories, GlobalAddressForms) {
  Run("v_mov_b32 v4, s22\nv_mov_b32 v5, s23\nv_mov_b32 v6, 16\n"
      "global_load_dword v8, v1, s[22:23]\nglobal_load_dword v9, v[4:5], off offset:8\n"
      "global_load_dword v10, v6, s[22:23] offset:-12\nglobal_load_sbyte v11, v1, s[22:23]");
  for (unsigned lane = 0; lane < 64; ++lane) {
    ASSERT_EQ(Out(lane, 0), in_[lane]);
    ASSERT_EQ(Out(lane, 1), in_[2]);
    ASSERT_EQ(Out(lane, 2), in_[1]);
    ASSERT_EQ(Out(lane, 3), static_cast<uint32_t>(static_cast<int8_t>(in_[lane])));
  }
}

TEST_P(Memories, GlobalAtomics) {
  in_[0] = 10;
  in_[1] = 0xffffffff;
  in_[2] = 0;
  in_[3] = 0;
  Run("v_mov_b32 v4, 0\nv_mov_b32 v5, 3\nglobal_atomic_add v4, v5, s[22:23]\n"
      "v_mov_b32 v6, 1\nv_mov_b32 v7, 0\nglobal_atomic_add_x2 v4, v[6:7], s[22:23] offset:8\n"
      "global_atomic_umin v4, v2, s[22:23] offset:4\n"
      "v_mov_b32 v12, v2\nv_mov_b32 v13, 64\n"
      "s_waitcnt vmcnt(0)\nglobal_load_dwordx4 v[8:11], v4, s[22:23]");
  EXPECT_EQ(in_[0], 10u + 64 * 3);
  EXPECT_EQ(in_[1], 0u);
  EXPECT_EQ(in_[2], 64u);
  EXPECT_EQ(in_[3], 0u);
}

TEST_P(Memories, BufferBoundsAreChecked) {
  // A raw buffer of 128 bytes over the input.
  const std::string word3 = Gfx9() ? "0x27000" : "0x31016000";
  const std::string tail = std::string(", s[24:27], ") +
                           (std::string(GetParam()) == "gfx1201" ? "null" : "0") + " offen";
  Run("s_mov_b32 s24, s22\ns_mov_b32 s25, s23\ns_mov_b32 s26, 128\ns_mov_b32 s27, " + word3 +
      "\nv_mov_b32 v8, 9\nbuffer_load_dword v8, v1" + tail +
      "\n"
      "buffer_load_ubyte v9, v1" +
      tail +
      " offset:1\n"
      "buffer_store_dword v2, v1" +
      tail + " offset:64");
  for (unsigned lane = 0; lane < 64; ++lane) {
    const uint32_t in = 0x01010101u * lane + lane;
    ASSERT_EQ(Out(lane, 0), lane < 32 ? in : 0) << lane;
    ASSERT_EQ(Out(lane, 1), lane < 32 ? in >> 8 & 0xff : 0) << lane;
    const uint32_t stored = lane + 16 < 32 ? lane : 0x01010101u * (lane + 16) + lane + 16;
    EXPECT_EQ(in_[lane + 16], stored) << lane;
  }
}

TEST_P(Memories, ScalarLoadsOfAllWidths) {
  Run("s_load_dwordx8 s[32:39], s[22:23], 0x20\ns_load_dwordx16 s[40:55], s[22:23], 0x40\n"
      "s_mov_b32 s6, 12\ns_load_dword s7, s[22:23], s6\ns_waitcnt lgkmcnt(0)\n"
      "v_mov_b32 v8, s39\nv_mov_b32 v9, s55\nv_mov_b32 v10, s7\nv_mov_b32 v11, s32");
  ASSERT_EQ(Out(0, 0), in_[15]);
  ASSERT_EQ(Out(0, 1), in_[31]);
  ASSERT_EQ(Out(0, 2), in_[3]);
  ASSERT_EQ(Out(0, 3), in_[8]);
}

TEST_P(Memories, ScalarStoresAndAtomics) {
  if (!Gfx9() || std::string(GetParam()).starts_with("gfx94")) {
    std::string error;
    EXPECT_TRUE(Assemble(GetParam(), true, "s_store_dword s6, s[22:23], 0x10\n", &error).empty() ||
                Gfx9());
    return;  // no such instructions
  }
  in_[6] = 5;
  in_[7] = 0;
  Run("s_mov_b32 s6, 0x1234\ns_store_dword s6, s[22:23], 0x10\n"
      "s_mov_b64 s[8:9], 2\ns_atomic_add_x2 s[8:9], s[22:23], 0x18 glc\ns_waitcnt lgkmcnt(0)\n"
      "v_mov_b32 v8, s8");
  EXPECT_EQ(in_[4], 0x1234u);
  EXPECT_EQ(in_[6], 7u);
  ASSERT_EQ(Out(0, 0), 5u);
}

TEST_P(Memories, FaultNamesAddressAndDirection) {
  const Fault fault = Try("v_mov_b32 v4, 0\nv_mov_b32 v5, 1\nglobal_store_dword v[4:5], v2, off");
  EXPECT_EQ(fault.kind, Fault::Kind::kMemory);
  EXPECT_EQ(fault.address, uint64_t{1} << 32);
  EXPECT_TRUE(fault.write);
}

TEST_P(Memories, MisalignedAtomicFaults) {
  const Fault fault = Try("v_mov_b32 v4, 2\nglobal_atomic_add v4, v2, s[22:23]");
  EXPECT_EQ(fault.kind, Fault::Kind::kMemory);
}

TEST_P(Memories, AtomicsAreAtomicAgainstTheHost) {
  in_[0] = 0;
  constexpr uint32_t kHost = 20000, kRounds = 20;
  std::thread host([this] {
    for (uint32_t i = 0; i < kHost; ++i) __atomic_fetch_add(in_.data(), 1, __ATOMIC_SEQ_CST);
  });
  for (uint32_t i = 0; i < kRounds; ++i) {
    Run("v_mov_b32 v4, 0\nv_mov_b32 v5, 1\nglobal_atomic_add v4, v5, s[22:23]");
  }
  host.join();
  EXPECT_EQ(in_[0], kHost + kRounds * 64);
}

// Flat scratch and the buffer descriptor name the same private bytes.
TEST_P(Memories, ScratchBeyondItsSizeFaults) {
  const std::string target = GetParam();
  const bool architected =
      target.starts_with("gfx94") || target.starts_with("gfx11") || target.starts_with("gfx12");
  if (!architected) {
    const std::string init = Gfx9() ? "s_add_u32 flat_scratch_lo, s6, s9\n"
                                      "s_addc_u32 flat_scratch_hi, s7, 0\n"
                                    : "";
    // Launch state: V# s[0:3], kernarg s[4:5], init s[6:7], group s8, offset s9.
    RawKernelOptions options;
    options.private_segment = true;
    const std::string text = init +
                             "s_load_dwordx4 s[20:23], s[4:5], 0x0\ns_waitcnt lgkmcnt(0)\n"
                             "s_add_u32 s0, s0, s9\ns_addc_u32 s1, s1, 0\n"
                             "v_and_b32 v2, 0x3ff, v0\nv_lshlrev_b32 v1, 2, v2\n"
                             "v_mov_b32 v4, 0x55\nbuffer_store_dword v2, off, s[0:3], 0 offset:12\n"
                             "s_waitcnt vmcnt(0)\nbuffer_load_dword v8, off, s[0:3], 0 offset:12\n"
                             "s_waitcnt vmcnt(0)\nglobal_store_dword v1, v8, s[20:21]\ns_endpgm\n";
    RawKernel kernel(memory_, target, text, options);
    ASSERT_TRUE(kernel.ok()) << kernel.error();
    const LaunchShape shape = {
        .grid = {64, 1, 1}, .workgroup = {64, 1, 1}, .private_segment_size = 16};
    const Fault fault = Launch(*machine_, memory_, kernel.descriptor(),
                               KernelArgs().Add(out_.data()).Add(in_.data()), shape);
    ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
    for (unsigned lane = 0; lane < 64; ++lane) EXPECT_EQ(out_[lane], lane);
    return;
  }
  EXPECT_EQ(Try("scratch_store_dword off, v2, off offset:12", {}, 16).kind, Fault::Kind::kNone);
  const Fault fault = Try("scratch_store_dword off, v2, off offset:16", {}, 16);
  EXPECT_EQ(fault.kind, Fault::Kind::kMemory);
  EXPECT_EQ(fault.address, (uint64_t{2} << 48) + 16);
}

INSTANTIATE_TEST_SUITE_P(Targets, Memories,
                         testing::Values("gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100",
                                         "gfx1201"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace softgpu
