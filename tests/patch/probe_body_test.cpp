// What bodies are accepted, what is known of them, and why others are not.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "patch/codeobject/device_object.h"
#include "tests/patch/probe_samples.h"

namespace rjdbi {
namespace {

using namespace patch;  // NOLINT: register names
using test::MakeIsa;
using test::ReadLines;

TEST(ProbeBody, TheExampleIsAccepted) {
  for (const char* name : test::kProbeObjects) {
    SCOPED_TRACE(name);
    const std::vector<uint8_t> bytes = test::ReadProbeObject(name);
    const auto object = DeviceObject::Parse(bytes);
    ASSERT_TRUE(object.ok()) << object.status();
    const auto isa = MakeIsa(object->target().processor);
    for (const DeviceFunction& function : object->functions()) {
      const BodyReading read = ReadBody(function, *isa);
      for (const BodyRefusal& r : read.refusals) ADD_FAILURE() << r.detail;
      EXPECT_EQ(read.body.argument_dwords, 4u);  // the address's high word is unused, v1
      EXPECT_FALSE(read.body.reads.Has(kVgpr0 + 1));
      EXPECT_TRUE(read.body.reads.Has(kVgpr0 + 3));
      EXPECT_FALSE(read.body.waits);
      EXPECT_FALSE(read.body.needs_active_lane);
      EXPECT_EQ(read.body.roles.front(), BodyRole::kDropped);
      EXPECT_EQ(read.body.roles.back(), BodyRole::kReturn);
      EXPECT_FALSE(read.body.writes.HasAny(kSgpr0 + 30, 2));
    }
  }
}

struct Hostile {
  const char* name;
  const char* processor;
  const char* lines;
  BodyRule rule;
  uint32_t offset;
  const char* fixed;  // its twin, which is accepted
};
constexpr char kReturn[] = "s_setpc_b64 s[30:31]";

const Hostile kHostile[] = {
    {"barrier", "gfx90a", "s_barrier", BodyRule::kForbidden, 0, "s_nop 0"},
    {"setreg", "gfx90a", "s_nop 0\ns_setreg_imm32_b32 hwreg(HW_REG_MODE), 3", BodyRule::kForbidden,
     4, "s_getreg_b32 s0, hwreg(HW_REG_MODE)"},
    {"round mode", "gfx1030", "s_round_mode 0x3", BodyRule::kForbidden, 0, "s_nop 0"},
    {"message", "gfx90a", "s_sendmsg sendmsg(MSG_INTERRUPT)", BodyRule::kForbidden, 0, "s_nop 0"},
    {"trap", "gfx1100", "s_trap 2", BodyRule::kForbidden, 0, "s_nop 0"},
    {"end", "gfx1030", "s_endpgm", BodyRule::kForbidden, 0, "s_nop 0"},
    {"priority", "gfx90a", "s_setprio 3", BodyRule::kForbidden, 0, "s_nop 0"},
    {"getpc", "gfx90a", "s_getpc_b64 s[4:5]", BodyRule::kForbidden, 0, "s_mov_b64 s[4:5], exec"},
    {"relative registers", "gfx1030", "s_mov_b32 m0, 3\nv_movrels_b32 v0, v1", BodyRule::kForbidden,
     4, "v_mov_b32 v0, v1"},
    {"index mode", "gfx90a", "s_set_gpr_idx_on s0, gpr_idx(SRC0)", BodyRule::kForbidden, 0,
     "s_nop 0"},
    {"call", "gfx90a", "s_mov_b64 s[4:5], 0\ns_swappc_b64 s[8:9], s[4:5]", BodyRule::kCall, 4,
     "s_nop 0"},
    {"computed jump", "gfx1201", "s_mov_b64 s[4:5], 0\ns_setpc_b64 s[4:5]", BodyRule::kCall, 4,
     "s_nop 0"},
    {"return elsewhere", "gfx90a", "s_mov_b32 s30, 0", BodyRule::kRegister, 0, "s_mov_b32 s29, 0"},
    {"loop", "gfx90a", "s_nop 0\ns_cbranch_scc1 65534", BodyRule::kLoop, 4, "s_cbranch_execz 0"},
    {"rounds of an argument", "gfx90a",
     "v_readfirstlane_b32 s4, v0\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 65533",
     BodyRule::kLoop, 12,
     "s_mov_b32 s4, 5\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 65533"},
    {"rounds of lanes", "gfx90a",
     "v_add_u32 v0, v0, v1\nv_cmp_ne_u32 vcc, 0, v0\ns_cbranch_vccnz 65533", BodyRule::kLoop, 8,
     "v_add_u32 v0, v0, v1\nv_cmp_ne_u32 vcc, 0, v0\ns_cbranch_vccnz 0"},
    {"too many rounds", "gfx1030",
     "s_movk_i32 s4, 0x1000\ns_addk_i32 s4, 0xffff\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 65533",
     BodyRule::kLoop, 12,
     "s_movk_i32 s4, 0x100\ns_addk_i32 s4, 0xffff\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 65533"},
    {"self", "gfx1100", "s_branch 65535", BodyRule::kLoop, 0, "s_branch 0"},
    {"jump out", "gfx90a", "s_branch 1000", BodyRule::kControl, 0, "s_branch 0"},
    {"into an instruction", "gfx90a", "s_branch 1\ns_mov_b32 s0, 0x12345678", BodyRule::kControl, 0,
     "s_branch 2\ns_mov_b32 s0, 0x12345678"},
    {"scratch", "gfx90a", "scratch_store_dword off, v0, s0", BodyRule::kStack, 0,
     "global_store_dword v[0:1], v0, off"},
    {"stack", "gfx900", "buffer_store_dword v0, off, s[0:3], s32", BodyRule::kStack, 0,
     "global_store_dword v[0:1], v0, off"},
    {"LDS", "gfx1030", "ds_write_b32 v0, v1", BodyRule::kLds, 0,
     "global_store_dword v[0:1], v1, off"},
    {"flat scratch", "gfx90a", "s_mov_b32 flat_scratch_lo, 0", BodyRule::kRegister, 0,
     "s_mov_b32 s0, 0"},
    {"accumulation register", "gfx90a", "v_accvgpr_write_b32 a0, 0", BodyRule::kRegister, 0,
     "v_mov_b32 v0, 0"},
    {"stack pointer", "gfx90a", "s_mov_b32 s0, s32", BodyRule::kInput, 0, "s_mov_b32 s0, exec_lo"},
    {"workgroup id", "gfx90a", "s_nop 0\nv_mov_b32 v0, s12", BodyRule::kInput, 4,
     "v_mov_b32 v0, 1"},
    {"work-item ids", "gfx1030", "v_mov_b32 v0, v31", BodyRule::kInput, 0, "v_mov_b32 v0, v30"},
    {"VCC", "gfx90a", "v_cndmask_b32 v0, v0, v1, vcc", BodyRule::kInput, 0,
     "v_cmp_eq_u32 vcc, v0, v1\nv_cndmask_b32 v0, v0, v1, vcc"},
    {"SCC", "gfx90a", "s_cselect_b32 s0, 1, 0", BodyRule::kInput, 0,
     "s_cmp_eq_u32 0, 0\ns_cselect_b32 s0, 1, 0"},
    {"load left", "gfx90a", "global_load_dword v0, v[0:1], off", BodyRule::kLoadsLeft, 8,
     "global_load_dword v0, v[0:1], off\ns_waitcnt vmcnt(0)"},
    {"scalar load left", "gfx1201", "s_mov_b64 s[0:1], 0\ns_load_b32 s4, s[0:1], 0x0",
     BodyRule::kLoadsLeft, 12, "s_mov_b64 s[0:1], 0\ns_load_b32 s4, s[0:1], 0x0\ns_wait_kmcnt 0x0"},
    {"load left on one path", "gfx1030",
     "v_cmpx_ne_u32 0, v0\ns_cbranch_execz 1\ns_nop 0\nglobal_load_dword v0, v[0:1], off\n"
     "s_waitcnt vmcnt(1)",
     BodyRule::kLoadsLeft, 24,
     "v_cmpx_ne_u32 0, v0\ns_cbranch_execz 1\ns_nop 0\nglobal_load_dword v0, v[0:1], off\n"
     "s_waitcnt vmcnt(0)"},
};

TEST(ProbeBody, HostileBodiesAreRefusedAndTheirTwinsAreNot) {
  for (const Hostile& h : kHostile) {
    SCOPED_TRACE(h.name);
    const auto isa = MakeIsa(h.processor);
    const BodyReading bad = ReadLines(std::string(h.lines) + "\n" + kReturn, *isa);
    ASSERT_FALSE(bad.ok());
    const BodyRefusal& first = bad.refusals.front();
    EXPECT_EQ(first.rule, h.rule) << first.detail;
    EXPECT_EQ(first.offset, h.offset) << first.detail;
    EXPECT_FALSE(first.instruction.empty());
    EXPECT_FALSE(first.observed.empty());
    EXPECT_NE(first.detail.find("probe probe, offset"), std::string::npos);
  }
}

struct Rounds {
  const char* name;
  const char* processor;
  const char* lines;
  size_t instructions;  // without the return and what only leads to it
};
constexpr Rounds kRounds[] = {
    {"down", "gfx90a",
     "s_mov_b32 s4, 3\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\n"
     "s_cbranch_scc1 65533",
     1 + 3 * 2},
    {"up, signed", "gfx1100",
     "s_mov_b32 s4, -2\ns_add_i32 s4, s4, 1\ns_cmp_lt_i32 s4, 2\ns_cbranch_scc1 65533", 1 + 4 * 2},
    {"64 bits", "gfx1201",
     "s_mov_b64 s[4:5], 0\ns_add_co_u32 s4, s4, 1\ns_add_co_ci_u32 s5, s5, 0\n"
     "s_cmp_lg_u64 s[4:5], 4\ns_cbranch_scc1 65532",
     1 + 4 * 3},
    // Two in one another, and the inner one's rounds are the outer one's number.
    {"nested", "gfx90a",
     "s_mov_b32 s4, 3\ns_mov_b32 s5, s4\nv_add_u32 v0, v0, v1\ns_sub_u32 s5, s5, 1\n"
     "s_cmp_lg_u32 s5, 0\ns_cbranch_scc1 65532\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\n"
     "s_cbranch_scc1 65528",
     1 + 3 * 3 + 6 * 3},
    // The rest of a round is skipped by some lanes: both ways meet again.
    {"divergent", "gfx90a",
     "s_mov_b32 s4, 2\nv_cmp_ne_u32 vcc, 0, v0\ns_cbranch_vccz 1\nv_add_u32 v0, v0, v1\n"
     "s_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 65530",
     1 + 2 * 5},
};

// What runs is what would have run: all rounds, in order, and no more.
TEST(ProbeBody, LoopsAreWrittenOut) {
  for (const Rounds& rounds : kRounds) {
    SCOPED_TRACE(rounds.name);
    const auto isa = MakeIsa(rounds.processor);
    const BodyReading read = ReadLines(std::string(rounds.lines) + "\n" + kReturn, *isa);
    ASSERT_TRUE(read.ok()) << read.refusals.front().detail;
    EXPECT_EQ(read.body.instructions.size(), rounds.instructions + 1);
    for (const Instruction& in : read.body.instructions) {
      EXPECT_GT(in.target_offset.value_or(INT64_MAX), static_cast<int64_t>(in.offset));
    }
  }
}

TEST(ProbeBody, Twins) {
  for (const Hostile& h : kHostile) {
    SCOPED_TRACE(h.name);
    const auto isa = MakeIsa(h.processor);
    const BodyReading good = ReadLines(std::string(h.fixed) + "\n" + kReturn, *isa);
    for (const BodyRefusal& r : good.refusals) ADD_FAILURE() << r.detail;
  }
}

TEST(ProbeBody, NoEndAndNoSize) {
  const auto isa = MakeIsa("gfx90a");
  BodyReading read = ReadLines("v_mov_b32 v0, 0", *isa);
  ASSERT_EQ(read.refusals.size(), 1u);
  EXPECT_EQ(read.refusals[0].rule, BodyRule::kControl);
  read = ReadBody({"empty", {}, {}}, *isa);
  ASSERT_EQ(read.refusals.size(), 1u);
  EXPECT_EQ(read.refusals[0].rule, BodyRule::kSize);
  const std::vector<uint8_t> large(ProbeBody::kMaxBytes + 4, 0);
  read = ReadBody({"large", large, {}}, *isa);
  ASSERT_EQ(read.refusals.size(), 1u);
  EXPECT_EQ(read.refusals[0].rule, BodyRule::kSize);
  const std::vector<uint8_t> junk(8, 0xff);
  read = ReadBody({"junk", junk, {}}, *isa);
  ASSERT_EQ(read.refusals.size(), 1u);
  EXPECT_EQ(read.refusals[0].rule, BodyRule::kUndecodable);
}

TEST(ProbeBody, WhatIsReadNamesTheConvention) {
  const auto isa = MakeIsa("gfx90a");
  const BodyReading read = ReadLines(std::string("v_mov_b32 v0, v31\n") + kReturn, *isa);
  ASSERT_EQ(read.refusals.size(), 1u);
  EXPECT_EQ(read.refusals[0].observed, "v31 (packed work-item ids)");
}

// Waits stay where a register is still to arrive, and mean what they meant.
TEST(ProbeBody, WaitsOfBodiesThatLoadStay) {
  const auto isa = MakeIsa("gfx90a");
  const BodyReading read = ReadLines(
      "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\nglobal_load_dword v0, v[0:1], off\n"
      "s_waitcnt vmcnt(0)\ns_setpc_b64 s[30:31]",
      *isa);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.body.waits);
  EXPECT_EQ(read.body.roles[0], BodyRole::kKept);
  EXPECT_EQ(read.body.roles[2], BodyRole::kKept);
}

// Bytes that no compiler made: read to the end, refused or well-formed.
TEST(ProbeBody, RandomWords) {
  std::mt19937 random(11);
  for (const char* processor : {"gfx90a", "gfx1030", "gfx1201"}) {
    const auto isa = MakeIsa(processor);
    const auto end = isa->Assemble(kReturn);
    ASSERT_TRUE(end.ok());
    int accepted = 0;
    for (int round = 0; round < 3000; ++round) {
      std::vector<uint8_t> code;
      for (unsigned n = random() % 4; n > 0; --n) {
        // Half of them vector instructions of two operands.
        uint32_t word = static_cast<uint32_t>(random());
        if (random() % 2 == 0) word &= 0x7dffffff;
        const auto* raw = reinterpret_cast<const uint8_t*>(&word);
        code.insert(code.end(), raw, raw + 4);
      }
      code.insert(code.end(), end->begin(), end->end());
      const BodyReading read = ReadBody({"random", code, {}}, *isa);
      if (!read.ok()) continue;
      ++accepted;
      EXPECT_EQ(read.body.roles.size(), read.body.instructions.size());
      EXPECT_FALSE(read.body.writes.Has(kMode));
    }
    EXPECT_GT(accepted, 30);
  }
}

TEST(ProbeBody, BlocksKeepTuplesTogether) {
  const auto isa = MakeIsa("gfx90a");
  const BodyReading read = ReadLines(
      "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_mov_b32 v7, s6\nv_lshlrev_b64 v[2:3], 2, v[2:3]\n"
      "v_mov_b32 v4, v3\ns_waitcnt lgkmcnt(0)\ns_setpc_b64 s[30:31]",
      *isa);
  const std::vector<RegisterBlock>& blocks = read.body.blocks;
  ASSERT_EQ(blocks.size(), 5u);
  const RegisterBlock expected[] = {{kSgpr0, 2, 2},
                                    {kSgpr0 + 4, 4, 4},
                                    {kVgpr0 + 2, 2, 2},
                                    {kVgpr0 + 4, 1, 1},
                                    {kVgpr0 + 7, 1, 1}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first, expected[i].first) << i;
    EXPECT_EQ(blocks[i].count, expected[i].count) << i;
    EXPECT_EQ(blocks[i].alignment, expected[i].alignment) << i;
  }
}

}  // namespace
}  // namespace rjdbi
