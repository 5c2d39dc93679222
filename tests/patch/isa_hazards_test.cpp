// Holds the table of wait states against LLVM's hazard recogniser: pairs of
// instructions go through it, and the s_nops that it puts in between are counted.
#include "patch/isa/hazards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace rjdbi::patch {
namespace {

// The same instruction for LLVM's pass and for the assembler. s4, v4, VCC and M0
// are what pairs have in common.
struct Text {
  const char *machine, *assembly;
};
const Text kProducers[] = {
    {"$sgpr4 = V_READFIRSTLANE_B32 $vgpr0, implicit $exec", "v_readfirstlane_b32 s4, v0"},
    {"$sgpr4_sgpr5 = V_CMP_EQ_U32_e64 $vgpr0, $vgpr1, implicit $exec",
     "v_cmp_eq_u32_e64 s[4:5], v0, v1"},
    {"$vcc = V_CMP_EQ_U32_e64 $vgpr0, $vgpr1, implicit $exec", "v_cmp_eq_u32_e64 vcc, v0, v1"},
    {"V_CMPX_EQ_I32_e32 $vgpr0, $vgpr1, implicit-def $exec, implicit-def $vcc, implicit $exec",
     "v_cmpx_eq_i32_e32 vcc, v0, v1"},
    {"$vgpr4 = V_MOV_B32_e32 1, implicit $exec", "v_mov_b32_e32 v4, 1"},
    {"$vgpr4 = V_RCP_F32_e32 $vgpr2, implicit $mode, implicit $exec", "v_rcp_f32_e32 v4, v2"},
    {LlvmVersion() >= 20  // without op_sel
         ? "$vgpr4 = V_DOT4_I32_I8 8, $vgpr1, 8, $vgpr2, 8, $vgpr3, 0, 0, 0, implicit $exec"
         : "$vgpr4 = V_DOT4_I32_I8 8, $vgpr1, 8, $vgpr2, 8, $vgpr3, 0, 0, 0, 0, 0, implicit $exec",
     "v_dot4_i32_i8 v4, v1, v2, v3"},
    {"GLOBAL_STORE_DWORDX4 $vgpr0_vgpr1, $vgpr4_vgpr5_vgpr6_vgpr7, 0, 0, implicit $exec",
     "global_store_dwordx4 v[0:1], v[4:7], off"},
    {"GLOBAL_STORE_DWORDX2 $vgpr0_vgpr1, $vgpr4_vgpr5, 0, 0, implicit $exec",
     "global_store_dwordx2 v[0:1], v[4:5], off"},
    {"$vgpr4 = GLOBAL_LOAD_DWORD $vgpr0_vgpr1, 0, 0, implicit $exec",
     "global_load_dword v4, v[0:1], off"},
    {"$m0 = S_MOV_B32 1", "s_mov_b32 m0, 1"},
    {"$sgpr4 = S_MOV_B32 1", "s_mov_b32 s4, 1"},
    {"$sgpr4_sgpr5 = S_LOAD_DWORDX2_IMM $sgpr0_sgpr1, 0, 0", "s_load_dwordx2 s[4:5], s[0:1], 0x0"},
    {"$exec = S_MOV_B64 1", "s_mov_b64 exec, 1"},
    {"S_SETREG_B32 $sgpr0, 1, implicit-def $mode, implicit $mode",
     "s_setreg_b32 hwreg(HW_REG_MODE, 0, 1), s0"},
};
constexpr Text kConsumers[] = {
    {"GLOBAL_ATOMIC_ADD_X2_SADDR $vgpr1, $vgpr2_vgpr3, $sgpr4_sgpr5, 0, 0, implicit $exec",
     "global_atomic_add_x2 v1, v[2:3], s[4:5]"},
    {"GLOBAL_ATOMIC_ADD_X2 $vgpr4_vgpr5, $vgpr2_vgpr3, 0, 0, implicit $exec",
     "global_atomic_add_x2 v[4:5], v[2:3], off"},
    {"$sgpr9 = V_READLANE_B32 $vgpr1, $sgpr4", "v_readlane_b32 s9, v1, s4"},
    {"$sgpr9 = V_READLANE_B32 $vgpr4, 3", "v_readlane_b32 s9, v4, 3"},
    {"$vgpr4 = V_WRITELANE_B32 7, $sgpr4, $vgpr4", "v_writelane_b32 v4, 7, s4"},
    {"$sgpr9 = V_READFIRSTLANE_B32 $vgpr4, implicit $exec", "v_readfirstlane_b32 s9, v4"},
    {"$vgpr8 = V_MOV_B32_e32 $sgpr4, implicit $exec", "v_mov_b32_e32 v8, s4"},
    {"$vgpr8 = V_MOV_B32_e32 $vgpr4, implicit $exec", "v_mov_b32_e32 v8, v4"},
    {"$vgpr4 = V_MOV_B32_e32 1, implicit $exec", "v_mov_b32_e32 v4, 1"},
    {"$vgpr8 = V_CNDMASK_B32_e64 0, $vgpr1, 0, $vgpr2, $vcc, implicit $exec",
     "v_cndmask_b32_e64 v8, v1, v2, vcc"},
    {"$vgpr8 = V_DIV_FMAS_F32_e64 0, $vgpr1, 0, $vgpr2, 0, $vgpr3, 0, 0, implicit $mode, "
     "implicit $vcc, implicit $exec",
     "v_div_fmas_f32 v8, v1, v2, v3"},
    {"$vgpr8 = V_MOV_B32_dpp undef $vgpr8, $vgpr4, 0, 15, 15, 0, implicit $exec",
     "v_mov_b32_dpp v8, v4 quad_perm:[0,0,0,0] row_mask:0xf bank_mask:0xf"},
    {"$vgpr8 = V_MBCNT_LO_U32_B32_e64 $sgpr4, 0, implicit $exec", "v_mbcnt_lo_u32_b32 v8, s4, 0"},
    {"S_SENDMSG 1, implicit $exec, implicit $m0", "s_sendmsg sendmsg(MSG_INTERRUPT)"},
    {"$sgpr9 = S_GETREG_B32 1, implicit $mode", "s_getreg_b32 s9, hwreg(HW_REG_MODE, 0, 1)"},
    {"$sgpr9 = S_MOV_B32 $sgpr4", "s_mov_b32 s9, s4"},
    {"$sgpr10_sgpr11 = S_LOAD_DWORDX2_IMM $sgpr4_sgpr5, 0, 0",
     "s_load_dwordx2 s[10:11], s[4:5], 0x0"},
};

class HazardTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    TargetId target;
    target.processor = GetParam();
    auto isa = Isa::Create(target, 64);
    ASSERT_TRUE(isa.ok()) << isa.status();
    isa_ = *std::move(isa);
  }

  // Empty: the processor does not have it.
  std::string Bytes(const char* assembly) {
    const auto code = isa_->Assemble(assembly);
    return code.ok() ? std::string(code->begin(), code->end()) : "";
  }
  absl::Span<const uint8_t> AsCode(const std::string& bytes) {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }

  // Wait states that LLVM puts into each function, by name. 0 where it puts none.
  std::map<std::string, uint32_t> Recognise(const std::map<std::string, std::string>& functions) {
    const std::string path = testing::TempDir() + "hazards_" + GetParam() + ".mir";
    std::ofstream file(path);
    for (const auto& [name, body] : functions) {
      file << "---\nname: " << name << "\nbody: |\n  bb.0:\n" << body << "    S_ENDPGM 0\n...\n";
    }
    file.close();
    const std::string command = std::string(RJDBI_LLC) +
                                " -mtriple=amdgcn-amd-amdhsa -mcpu=" + GetParam() +
                                " -mattr=+xnack -run-pass=post-RA-hazard-rec -o - " + path;
    std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string out;
    char buffer[1 << 16];
    while (size_t n = std::fread(buffer, 1, sizeof buffer, pipe.get())) out.append(buffer, n);
    std::map<std::string, uint32_t> states;
    std::string line, name;
    std::istringstream stream(out);
    while (std::getline(stream, line)) {
      unsigned count = 0;
      char text[64] = {};
      if (std::sscanf(line.c_str(), "name: %63s", text) == 1) states[name = text] = 0;
      if (std::sscanf(line.c_str(), " S_NOP %u", &count) == 1) states[name] += count + 1;
    }
    EXPECT_EQ(states.size(), functions.size()) << out.substr(0, 2000);
    return states;
  }

  std::unique_ptr<Isa> isa_;
};

std::string Line(const char* machine) { return std::string("    ") + machine + "\n"; }

// What the table asks for between these two is what LLVM asks for, and what is not
// in the table is asked for by nobody. Where a class is wider than LLVM's (which
// tells registers apart), more is right.
TEST_P(HazardTest, EveryPairAgreesWithLlvm) {
  std::map<std::string, std::string> functions;
  const auto name = [](size_t p, size_t c) {
    return "p" + std::to_string(p) + "c" + std::to_string(c);
  };
  for (size_t p = 0; p < std::size(kProducers); ++p) {
    for (size_t c = 0; c < std::size(kConsumers); ++c) {
      if (Bytes(kProducers[p].assembly).empty()) continue;
      functions[name(p, c)] = Line(kProducers[p].machine) + Line(kConsumers[c].machine);
    }
  }
  const auto llvm = Recognise(functions);
  std::map<const HazardRule*, uint32_t> confirmed;
  for (size_t p = 0; p < std::size(kProducers); ++p) {
    for (size_t c = 0; c < std::size(kConsumers); ++c) {
      const std::string first = Bytes(kProducers[p].assembly);
      const std::string second = Bytes(kConsumers[c].assembly);
      if (first.empty()) continue;
      const Instruction* in = isa_->DecodeShared(AsCode(first), 0);
      const Instruction* on = isa_->DecodeShared(AsCode(second), 0);
      ASSERT_TRUE(in != nullptr && on != nullptr);
      const auto found = llvm.find(name(p, c));
      ASSERT_NE(found, llvm.end());
      uint32_t ours = 0, clashing = 0;
      bool in_a_row = false, of_vectors = false;
      for (const HazardRule& rule : isa_->generation().hazards) {
        if (!Is(rule.producer, *in) || !Is(rule.consumer, *on)) continue;
        ours = std::max<uint32_t>(ours, rule.wait_states);
        in_a_row |= rule.producer == HazardProducer::kVectorMemory ||
                    rule.producer == HazardProducer::kScalarMemory;
        of_vectors |= rule.producer == HazardProducer::kWritesVector;
        if (Clash(rule, *in, *on)) clashing = std::max<uint32_t>(clashing, rule.wait_states);
        if (found->second == rule.wait_states) ++confirmed[&rule];
      }
      EXPECT_LE(found->second, ours) << kProducers[p].assembly << " -> " << kConsumers[c].assembly;
      // With registers told apart it is LLVM's number, but where loads count as writes.
      if (in_a_row) continue;
      EXPECT_LE(found->second, clashing)
          << kProducers[p].assembly << " -> " << kConsumers[c].assembly;
      if (!of_vectors) {
        EXPECT_EQ(found->second, clashing)
            << kProducers[p].assembly << " -> " << kConsumers[c].assembly;
      }
    }
  }
  // No row is there for nothing.
  for (const HazardRule& rule : isa_->generation().hazards) {
    EXPECT_GT(confirmed[&rule], 0u)
        << "producer " << static_cast<int>(rule.producer) << ", consumer "
        << static_cast<int>(rule.consumer) << ", " << int{rule.wait_states} << " wait states";
  }
}

// count-waves' sequence between any of these: LLVM wants nothing more, and neither
// does the table.
TEST_P(HazardTest, TheCountingSequenceKeepsItsDistance) {
  constexpr Text kSequence[] = {
      {"$sgpr6_sgpr7 = S_MOV_B64 $exec", "s_mov_b64 s[6:7], exec"},
      {"$sgpr4 = S_MOV_B32 305419896", "s_mov_b32 s4, 0x12345678"},
      {"$sgpr5 = S_MOV_B32 305419896", "s_mov_b32 s5, 0x12345678"},
      {"$exec = S_MOV_B64 1", "s_mov_b64 exec, 1"},
      {"$vgpr5 = V_MOV_B32_e32 0, implicit $exec", "v_mov_b32_e32 v5, 0"},
      {"$vgpr4 = V_MOV_B32_e32 1, implicit $exec", "v_mov_b32_e32 v4, 1"},
      {"GLOBAL_ATOMIC_ADD_X2_SADDR $vgpr5, $vgpr4_vgpr5, $sgpr4_sgpr5, 0, 0, implicit $exec",
       "global_atomic_add_x2 v5, v[4:5], s[4:5]"},
      {"$exec = S_MOV_B64 $sgpr6_sgpr7", "s_mov_b64 exec, s[6:7]"},
  };
  std::string machine, bytes;
  for (const Text& text : kSequence) {
    machine += Line(text.machine);
    bytes += Bytes(text.assembly);
  }
  std::map<std::string, std::string> functions;
  for (size_t p = 0; p < std::size(kProducers); ++p) {
    if (Bytes(kProducers[p].assembly).empty()) continue;
    functions["p" + std::to_string(p)] = Line(kProducers[p].machine) + machine;
  }
  for (size_t c = 0; c < std::size(kConsumers); ++c) {
    functions["c" + std::to_string(c)] = machine + Line(kConsumers[c].machine);
  }
  for (const auto& [name, states] : Recognise(functions)) EXPECT_EQ(states, 0u) << name;
  EXPECT_EQ(WaitStatesMissingAhead(*isa_, AsCode(bytes)), 0u);
  EXPECT_EQ(WaitStatesMissingBehind(*isa_, AsCode(bytes)), 0u);
}

TEST_P(HazardTest, WhatIsMissingIsCounted) {
  const std::string atomic = Bytes("global_atomic_add_x2 v5, v[4:5], s[4:5]");
  EXPECT_EQ(WaitStatesMissingAhead(*isa_, AsCode(atomic)), 5u);
  EXPECT_EQ(WaitStatesMissingBehind(*isa_, AsCode(atomic)), 1u);
  const std::string later = Bytes("s_nop 1\ns_mov_b32 s9, 0") + atomic;
  EXPECT_EQ(WaitStatesMissingAhead(*isa_, AsCode(later)), 2u);
  const std::string scalar = Bytes("v_readfirstlane_b32 s4, v0\ns_mov_b32 s9, 0");
  EXPECT_EQ(WaitStatesMissingBehind(*isa_, AsCode(scalar)), 4u);
  EXPECT_EQ(WaitStatesMissingBehind(*isa_, AsCode(scalar + Bytes("s_nop 3"))), 0u);
}

std::vector<const char*> Gfx9() {
  std::vector<const char*> processors = {"gfx900", "gfx906", "gfx908", "gfx90a", "gfx942"};
  if (LlvmVersion() >= 20) processors.push_back("gfx950");
  return processors;
}

INSTANTIATE_TEST_SUITE_P(Processors, HazardTest, testing::ValuesIn(Gfx9()),
                         [](const auto& info) { return std::string(info.param); });

// gfx1250, whose sequences have registers of their own: behind and before anything, LLVM
// puts nothing in. (Its own v_nop before s_setreg of MODE: patch/analysis refuses those.)
const char* const kGfx1250Sequence[] = {
    "S_WAIT_XCNT 0",
    "$sgpr6 = S_MOV_B32 $exec_lo",
    "$sgpr4 = S_MOV_B32 305419896",
    "$sgpr5 = S_MOV_B32 305419896",
    "$exec_lo = S_MOV_B32 1",
    "$vgpr5 = V_MOV_B32_e32 0, implicit $exec",
    "$vgpr4 = V_BCNT_U32_B32_e64 $sgpr6, 0, implicit $exec",
    "GLOBAL_ATOMIC_ADD_X2_SADDR $vgpr5, $vgpr4_vgpr5, $sgpr4_sgpr5, 0, 24, implicit $exec",
    "S_WAIT_XCNT 0",
    "$exec_lo = S_MOV_B32 $sgpr6",
};
const char* const kGfx1250Neighbours[] = {
    "$sgpr10 = V_READFIRSTLANE_B32 $vgpr10, implicit $exec",
    "$sgpr10 = V_CMP_EQ_U32_e64 $vgpr10, $vgpr11, implicit $exec",
    "V_CMP_EQ_U32_e32 $vgpr10, $vgpr11, implicit-def $vcc, implicit $exec",
    "V_CMPX_EQ_I32_nosdst_e32 $vgpr10, $vgpr11, implicit-def $exec, implicit $exec",
    "$vgpr10 = V_MOV_B32_e32 1, implicit $exec",
    "$vgpr10 = V_RCP_F32_e32 $vgpr12, implicit $mode, implicit $exec",
    "$vgpr10_vgpr11 = V_RCP_F64_e32 $vgpr12_vgpr13, implicit $mode, implicit $exec",
    "GLOBAL_STORE_DWORDX4 $vgpr10_vgpr11, $vgpr14_vgpr15_vgpr16_vgpr17, 0, 0, implicit $exec",
    "$vgpr10 = GLOBAL_LOAD_DWORD $vgpr12_vgpr13, 0, 0, implicit $exec",
    "$sgpr10_sgpr11 = S_LOAD_DWORDX2_IMM $sgpr12_sgpr13, 0, 0",
    "$m0 = S_MOV_B32 1",
    "$exec_lo = S_MOV_B32 1",
    "$sgpr10 = S_MOV_B32 1",
    "$vgpr10 = V_MOV_B32_dpp undef $vgpr10, $vgpr11, 0, 15, 15, 0, implicit $exec",
    "$vgpr10 = V_WRITELANE_B32 7, $sgpr10, $vgpr10",
    "DS_WRITE_B32_gfx9 $vgpr10, $vgpr11, 0, 0, implicit $exec",
    "$vgpr10 = DS_READ_B32_gfx9 $vgpr11, 0, 0, implicit $exec",
    "early-clobber $vgpr10_vgpr11_vgpr12_vgpr13_vgpr14_vgpr15_vgpr16_vgpr17 = "
    "V_WMMA_F32_16X16X4_F32_w32_twoaddr 8, $vgpr20_vgpr21, 8, $vgpr22_vgpr23, 8, "
    "killed $vgpr10_vgpr11_vgpr12_vgpr13_vgpr14_vgpr15_vgpr16_vgpr17, 0, 0, 0, 0, implicit $exec",
};

TEST(Hazards, Gfx1250SequencesNeedNothing) {
  if (LlvmVersion() < 22) {
    EXPECT_FALSE(Isa::Create({.processor = "gfx1250"}, 32).ok());
    return;
  }
  std::string sequence;
  for (const char* line : kGfx1250Sequence) sequence += Line(line);
  const std::string path = testing::TempDir() + "hazards_gfx1250.mir";
  std::ofstream file(path);
  size_t functions = 0;
  const auto function = [&](const std::string& body) {
    file << "---\nname: f" << functions++ << "\nbody: |\n  bb.0:\n"
         << body << "    S_ENDPGM 0\n...\n";
  };
  for (const char* neighbour : kGfx1250Neighbours) {
    function(Line(neighbour) + sequence);
    function(sequence + Line(neighbour));
  }
  // What the recogniser puts in is seen.
  function(Line("S_SETREG_B32 $sgpr10, 1, implicit-def $mode, implicit $mode"));
  file.close();
  const std::string command =
      std::string(RJDBI_LLC) +
      " -mtriple=amdgcn-amd-amdhsa -mcpu=gfx1250 -run-pass=post-RA-hazard-rec -o - " + path;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::map<std::string, size_t> inserted;  // by function: what only waits
  std::string name;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    char text[64] = {};
    if (std::sscanf(line, "name: %63s", text) == 1) inserted[name = text] = 0;
    const std::string_view view = line;
    for (const char* wait : {"NOP", "DEPCTR", "S_WAIT", "IDLE"}) {
      if (view.starts_with("    ") && view.find(wait) != std::string_view::npos) {
        ++inserted[name];
        break;
      }
    }
  }
  ASSERT_EQ(inserted.size(), functions);
  for (size_t f = 0; f + 1 < functions; ++f) {
    EXPECT_EQ(inserted["f" + std::to_string(f)], 2u) << kGfx1250Neighbours[f / 2];
  }
  EXPECT_EQ(inserted["f" + std::to_string(functions - 1)], 2u);
}

TEST(Hazards, LaterGenerationsHaveNone) {
  for (const char* processor : {"gfx1010", "gfx1030", "gfx1100", "gfx1201", "gfx1250"}) {
    const auto generation = FindGeneration(processor);
    ASSERT_TRUE(generation.ok());
    EXPECT_TRUE((*generation)->hazards.empty());
  }
}

}  // namespace
}  // namespace rjdbi::patch
