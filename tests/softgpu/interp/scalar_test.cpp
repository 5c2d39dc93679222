// Scalar instructions one by one, and what the machine does with wrong code.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/softgpu/interp/test_asm.h"

namespace softgpu {
namespace {

struct Result {
  uint32_t lo = 0, hi = 0, scc = 0;
};

// Runs kernels that leave their result in s[8:9] and SCC.
class Scalar : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string error;
    machine_ = Machine::Create(GetParam(), 1, &memory_, &error);
    ASSERT_NE(machine_, nullptr) << error;
  }

  Fault Run(const std::string& text, const KernelArgs& args, const LaunchShape& shape = {},
            const RawKernelOptions& options = {}) {
    RawKernel kernel(memory_, GetParam(), text, options);
    EXPECT_TRUE(kernel.ok()) << kernel.error() << text;
    if (!kernel.ok()) return {};
    const Fault fault = Launch(*machine_, memory_, kernel.descriptor(), args, shape);
    machine_->InvalidateInstructionCache();
    return fault;
  }

  Result Eval(const std::string& body) {
    DeviceBuffer<uint32_t> out(memory_, 3, 0xdeadbeef);
    const Fault fault =
        Run("s_load_dwordx2 s[20:21], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"
            "s_mov_b32 s8, 0\ns_mov_b32 s9, 0\n" +
                body +
                "\ns_cselect_b32 s10, 1, 0\ns_mov_b64 exec, 1\nv_mov_b32 v0, 0\n"
                "v_mov_b32 v2, s8\nv_mov_b32 v3, s9\nv_mov_b32 v4, s10\n"
                "global_store_dwordx3 v0, v[2:4], s[20:21]\ns_endpgm\n",
            KernelArgs().Add(out.data()));
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.what << "\n" << body;
    return {out[0], out[1], out[2]};
  }

  RangeMemory memory_;
  std::unique_ptr<Machine> machine_;
};

struct Row {
  const char* body;
  uint64_t result;
  int scc;  // -1: not looked at
};

TEST_P(Scalar, Operations) {
  const std::string a = "s_mov_b32 s4, 0xf0000003\ns_mov_b32 s5, 0x80000001\n";
  const Row rows[] = {
      {"s_add_u32 s8, s4, s5", 0x70000004, 1},
      {"s_add_i32 s8, s4, s5", 0x70000004, 1},
      {"s_sub_u32 s8, s5, s4", 0x8ffffffe, 1},
      {"s_sub_i32 s8, s4, s5", 0x70000002, 0},
      {"s_cmp_eq_u32 0, 0\ns_addc_u32 s8, s4, 0", 0xf0000004, 0},
      {"s_cmp_eq_u32 0, 0\ns_subb_u32 s8, 0, 0", 0xffffffff, 1},
      {"s_min_i32 s8, s4, s5", 0x80000001, 0},
      {"s_max_u32 s8, s4, s5", 0xf0000003, 1},
      {"s_mul_i32 s8, s4, s5", 0x70000003, -1},
      {"s_mul_hi_u32 s8, s4, s5", 0x78000002, -1},
      {"s_mul_hi_i32 s8, s4, s5", 0x07fffffe, -1},
      {"s_and_b32 s8, s4, s5", 0x80000001, 1},
      {"s_andn2_b32 s8, s4, s5", 0x70000002, 1},
      {"s_orn2_b32 s8, s4, s5", 0xffffffff, 1},
      {"s_xor_b32 s8, s4, s4", 0, 0},
      {"s_lshl_b64 s[8:9], s[4:5], 4", 0x0000001f00000030, 1},
      {"s_lshr_b64 s[8:9], s[4:5], 4", 0x080000001f000000, 1},
      {"s_ashr_i64 s[8:9], s[4:5], 4", 0xf80000001f000000, 1},
      {"s_ashr_i32 s8, s4, 36", 0xff000000, 1},
      {"s_bfe_u32 s8, s4, 0x4001e", 3, 1},
      {"s_bfe_i32 s8, s4, 0x4001c", 0xffffffff, 1},
      {"s_bfe_u64 s[8:9], s[4:5], 0x8001c", 0x1f, 1},
      {"s_bfm_b32 s8, 5, 3", 0xf8, -1},
      {"s_bfm_b64 s[8:9], 40, 8", 0x0000ffffffffff00, -1},
      {"s_pack_ll_b32_b16 s8, s4, s5", 0x00010003, -1},
      {"s_pack_hh_b32_b16 s8, s4, s5", 0x8000f000, -1},
      {"s_not_b64 s[8:9], s[4:5]", 0x7ffffffe0ffffffc, 1},
      {"s_brev_b32 s8, s4", 0xc000000f, -1},
      {"s_bcnt1_i32_b64 s8, s[4:5]", 8, 1},
      {"s_bcnt0_i32_b32 s8, s4", 26, 1},
      {"s_ff1_i32_b64 s8, s[4:5]", 0, -1},
      {"s_ff1_i32_b32 s8, 0", 0xffffffff, -1},
      {"s_flbit_i32_b32 s8, 1", 31, -1},
      {"s_flbit_i32 s8, s4", 4, -1},
      {"s_sext_i32_i8 s8, 0xfe", 0xfffffffe, -1},
      {"s_sext_i32_i16 s8, 0x8000", 0xffff8000, -1},
      {"s_bitset1_b32 s8, 33", 2, -1},
      {"s_mov_b64 s[8:9], -1\ns_bitset0_b64 s[8:9], 35", 0xfffffff7ffffffff, -1},
      {"s_abs_i32 s8, s4", 0x0ffffffd, 1},
      {"s_absdiff_i32 s8, s4, s5", 0x70000002, 1},
      {"s_cmp_lt_i32 s4, s5\ns_cselect_b32 s8, 1, 2", 2, 0},
      {"s_cmp_gt_u32 s4, s5\ns_cselect_b64 s[8:9], -1, 2", ~uint64_t{0}, 1},
      {"s_bitcmp1_b32 s4, 31", 0, 1},
      {"s_bitcmp0_b64 s[4:5], 63", 0, 0},
      {"s_movk_i32 s8, 0x8000", 0xffff8000, -1},
      {"s_mov_b32 s8, 7\ns_addk_i32 s8, 0xfffe", 5, 0},
      {"s_mov_b32 s8, 7\ns_mulk_i32 s8, 0xfffe", 0xfffffff2, -1},
      {"s_cmp_eq_u32 0, 1\ns_cmovk_i32 s8, 5", 0, 0},
      {"s_cmp_eq_u32 0, 0\ns_cmov_b32 s8, s4", 0xf0000003, 1},
      {"s_bitreplicate_b64_b32 s[8:9], s4", 0xff0000000000000f, -1},
      {"s_wqm_b64 s[8:9], s[4:5]", 0xf000000ff000000f, 1},
      {"s_quadmask_b32 s8, s4", 0x81, 1},
      {"s_lshl2_add_u32 s8, s4, 5", 0xc0000011, 1},
      {"s_mov_b64 s[8:9], 0xffffffff", 0xffffffff, -1},
      {"s_mov_b64 s[8:9], 0.5", 0x3fe0000000000000, -1},
  };
  for (const Row& row : rows) {
    const Result result = Eval(a + row.body);
    EXPECT_EQ(result.lo | uint64_t{result.hi} << 32, row.result) << row.body;
    if (row.scc >= 0) {
      EXPECT_EQ(result.scc, static_cast<uint32_t>(row.scc)) << row.body;
    }
  }
}

TEST_P(Scalar, SaveExecFamily) {
  struct Case {
    const char* op;
    uint64_t exec_after;
  };
  const uint64_t exec = 0xff00ff00ff00ff00, source = 0x0ff00ff00ff00ff0;
  const Case cases[] = {
      {"s_and_saveexec_b64", source & exec},    {"s_or_saveexec_b64", source | exec},
      {"s_xor_saveexec_b64", source ^ exec},    {"s_andn2_saveexec_b64", source & ~exec},
      {"s_orn2_saveexec_b64", source | ~exec},  {"s_nand_saveexec_b64", ~(source & exec)},
      {"s_nor_saveexec_b64", ~(source | exec)}, {"s_xnor_saveexec_b64", ~(source ^ exec)},
      {"s_andn1_saveexec_b64", ~source & exec}, {"s_orn1_saveexec_b64", ~source | exec},
  };
  const std::string setup =
      "s_mov_b32 exec_lo, 0xff00ff00\ns_mov_b32 exec_hi, 0xff00ff00\n"
      "s_mov_b32 s4, 0x0ff00ff0\ns_mov_b32 s5, 0x0ff00ff0\n";
  for (const Case& c : cases) {
    const Result saved = Eval(setup + c.op + " s[8:9], s[4:5]");
    EXPECT_EQ(saved.lo | uint64_t{saved.hi} << 32, exec) << c.op;
    EXPECT_EQ(saved.scc, 1u) << c.op;
    const Result now = Eval(setup + c.op + " s[6:7], s[4:5]\ns_mov_b64 s[8:9], exec");
    EXPECT_EQ(now.lo | uint64_t{now.hi} << 32, c.exec_after) << c.op;
  }
}

TEST_P(Scalar, CallsReturnToTheNextInstruction) {
  const Result result = Eval(
      "s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 24\ns_addc_u32 s5, s5, 0\n"
      "s_swappc_b64 s[6:7], s[4:5]\ns_add_u32 s8, s8, 100\ns_branch done\ns_nop 0\n"
      "s_nop 0\ns_nop 0\ns_nop 0\n"
      "s_add_u32 s8, s8, 1\ns_setpc_b64 s[6:7]\ndone:");
  // getpc + 24 falls on one of the s_nop, whatever the literal's encoding.
  EXPECT_EQ(result.lo, 101u);
}

TEST_P(Scalar, ModeRegisterFields) {
  EXPECT_EQ(Eval("s_setreg_imm32_b32 hwreg(1, 0, 4), 9\ns_getreg_b32 s8, hwreg(1, 0, 8)").lo,
            0xc9u);
  EXPECT_EQ(Eval("s_mov_b32 s4, 5\ns_setreg_b32 hwreg(1, 4, 3), s4\n"
                 "s_getreg_b32 s8, hwreg(1, 4, 4)")
                .lo,
            0xdu);
}

TEST_P(Scalar, AperturesReadAs64Bits) {
  const Result shared = Eval("s_mov_b64 s[8:9], src_shared_base");
  EXPECT_EQ(shared.lo, 0u);
  EXPECT_EQ(shared.hi, 0x10000u);
  const Result limit = Eval("s_mov_b64 s[8:9], src_private_limit");
  EXPECT_EQ(limit.lo, 0xffffffffu);
  EXPECT_EQ(limit.hi, 0x20000u);
}

TEST_P(Scalar, UndecodableWordIsIllegal) {
  const Fault fault = Run(".long 0xfffffff0\ns_endpgm\n", KernelArgs());
  EXPECT_EQ(fault.kind, Fault::Kind::kIllegalInstruction);
  EXPECT_NE(fault.what.find(GetParam()), std::string::npos) << fault.what;
}

TEST_P(Scalar, RegisterOutOfAllocationIsIllegal) {
  RawKernelOptions options;
  options.vgprs = 32;
  options.accum_offset = 32;
  const Fault fault =
      Run("v_mov_b32 v31, 0\nv_mov_b32 v32, 0\ns_endpgm\n", KernelArgs(), {}, options);
  EXPECT_EQ(fault.kind, Fault::Kind::kIllegalInstruction);
  EXPECT_NE(fault.what.find("v32"), std::string::npos) << fault.what;
}

TEST_P(Scalar, SgprTailBelongsToVccOnGfx9) {
  RawKernelOptions options;
  options.sgprs = 32;
  const std::string high = "s_mov_b32 s30, 0\n", vcc = "s_mov_b64 vcc, 0\n", end = "s_endpgm\n";
  const bool gfx9 = GetParam()[3] == '9';
  EXPECT_EQ(Run(high + end, KernelArgs(), {}, options).kind, Fault::Kind::kNone);
  EXPECT_EQ(Run(high + vcc + end, KernelArgs(), {}, options).kind,
            gfx9 ? Fault::Kind::kIllegalInstruction : Fault::Kind::kNone);
  EXPECT_EQ(Run("s_mov_b32 s32, 0\n" + end, KernelArgs(), {}, options).kind,
            gfx9 ? Fault::Kind::kIllegalInstruction : Fault::Kind::kNone);
}

TEST_P(Scalar, RunningOffMappedCodeIsAFault) {
  const Fault fault = Run("s_mov_b64 s[4:5], 64\ns_setpc_b64 s[4:5]\n", KernelArgs());
  EXPECT_EQ(fault.kind, Fault::Kind::kMemory);
  EXPECT_EQ(fault.pc, 64u);
}

TEST_P(Scalar, TrapStopsTheDispatch) {
  EXPECT_EQ(Run("s_trap 2\ns_endpgm\n", KernelArgs()).kind, Fault::Kind::kTrap);
}

TEST_P(Scalar, EndlessLoopCanBeInterrupted) {
  std::thread stopper([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    machine_->Interrupt();
  });
  const Fault fault = Run("loop: s_branch loop\n", KernelArgs());
  stopper.join();
  EXPECT_EQ(fault.kind, Fault::Kind::kTrap);
  EXPECT_EQ(fault.what, "interrupted");
  machine_->ClearInterrupt();
  EXPECT_EQ(Run("s_endpgm\n", KernelArgs()).kind, Fault::Kind::kNone);
}

INSTANTIATE_TEST_SUITE_P(Targets, Scalar,
                         testing::Values("gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100",
                                         "gfx1201"),
                         [](const auto& param) { return std::string(param.param); });

// --- Scheduling -----------------------------------------------------------

class Scheduling : public testing::Test {
 protected:
  Fault Run(const std::string& text, uint64_t seed, const KernelArgs& args, uint32_t waves) {
    std::string error;
    const auto machine = Machine::Create("gfx90a", seed, &memory_, &error);
    RawKernel kernel(memory_, "gfx90a", text, {});
    EXPECT_TRUE(kernel.ok()) << kernel.error();
    return Launch(*machine, memory_, kernel.descriptor(), args,
                  {.grid = {waves * 64, 1, 1}, .workgroup = {waves * 64, 1, 1}});
  }
  // Each wave appends its number to a log: the order of arrival.
  std::vector<uint32_t> Order(uint64_t seed) {
    DeviceBuffer<uint32_t> log(memory_, 9);
    const Fault fault =
        Run("s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_readfirstlane_b32 s6, v0\n"
            "s_lshr_b32 s6, s6, 6\ns_mov_b32 s8, 40\n"
            "loop: s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 loop\n"
            "s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v2, 1\n"
            "global_atomic_add v3, v1, v2, s[4:5] glc\ns_waitcnt vmcnt(0)\n"
            "v_lshlrev_b32 v3, 2, v3\nv_mov_b32 v4, s6\n"
            "global_store_dword v3, v4, s[4:5] offset:4\ns_endpgm\n",
            seed, KernelArgs().Add(log.data()), 8);
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
    EXPECT_EQ(log[0], 8u);
    return {log.contents().begin() + 1, log.contents().end()};
  }
  RangeMemory memory_;
};

TEST_F(Scheduling, SameSeedReplaysAndAnotherDiffers) {
  EXPECT_EQ(Order(3), Order(3));
  bool differs = false;
  for (uint64_t seed = 4; seed < 8; ++seed) differs = differs || Order(seed) != Order(3);
  EXPECT_TRUE(differs);
}

TEST_F(Scheduling, BarrierIgnoresWavesThatHaveEnded) {
  const Fault fault =
      Run("v_readfirstlane_b32 s6, v0\ns_cmp_eq_u32 s6, 64\ns_cbranch_scc1 out\n"
          "s_barrier\ns_barrier\nout: s_endpgm\n",
          1, KernelArgs(), 4);
  EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
}

TEST_F(Scheduling, UnknownTargetIsRefused) {
  std::string error;
  EXPECT_EQ(Machine::Create("gfx7777", 1, &memory_, &error), nullptr);
  EXPECT_NE(error.find("gfx7777"), std::string::npos);
}

}  // namespace
}  // namespace softgpu
