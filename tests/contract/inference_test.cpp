// Inference over hand-assembled sequences, most of them hostile. The expected
// verdict stands on each case.
#include "contract/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "contract/catalogue.h"

namespace rjdbi::contract {
namespace {

using patch::RegisterSet;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;
using namespace patch;  // NOLINT: register names

struct Target {
  const char* processor;
  uint32_t wave;
};

Isa& IsaOf(const Target& t) {
  static auto& isas = *new std::map<std::string, std::unique_ptr<Isa>>;
  auto& isa = isas[std::string(t.processor) + "/" + std::to_string(t.wave)];
  if (isa == nullptr) {
    TargetId id;
    id.processor = t.processor;
    auto made = Isa::Create(id, t.wave);
    EXPECT_TRUE(made.ok()) << made.status();
    isa = *std::move(made);
  }
  return *isa;
}

RegisterSet Set(std::initializer_list<uint16_t> regs) {
  RegisterSet s;
  for (uint16_t r : regs) s.Add(r);
  return s;
}

// Literals that stand for the two halves of the counter's address, and of the ring's.
constexpr uint32_t kLo = 0x7aaa0001, kHi = 0x7aaa0002;
constexpr uint32_t kRingLo = 0x7aaa0003, kRingHi = 0x7aaa0004;
constexpr uint64_t kRingAt = 256;  // bytes from the first counter
constexpr uint32_t kHalfBytes = 1u << 12;

struct Case {
  std::string name;
  std::string text;                     // LO and HI become address fixups
  std::vector<std::string> violations;  // ids, in any order; empty: keeps its promise
  RegisterSet live = {}, pending = {};
  const char* probe = "count-waves";
  Target target = {"gfx90a", 64};
  uint64_t addend = 8;  // what the fixups add
  // The sequence may write to a ring; RINGA and RINGB become its address.
  bool ring = false;
  patch::FixupBase base = patch::FixupBase::kCounters;
  InferenceInput::Counts counts = InferenceInput::Counts::kNothing;
};

// A memo that has seen the same sequence at other counters, and where other
// registers are live, still says what this one does.
void ExpectRemembered(const InferenceInput& in, const Inference& expected, Isa& isa) {
  InferenceMemo memo;
  std::vector<WordFixup> moved(in.fixups.begin(), in.fixups.end());
  InferenceInput other = in;
  for (const uint64_t step : {uint64_t{8}, uint64_t{56}}) {
    other.telemetry_begin += step;
    other.telemetry_end += step;
    for (WordFixup& f : moved) f.addend += step;
    other.fixups = moved;
    memo.Infer(other, isa);
  }
  InferenceInput crowded = other;
  crowded.live.Add(0, kNumRegisters);
  memo.Infer(crowded, isa);
  crowded.live = RegisterSet();
  crowded.pending.Add(0, kNumRegisters);
  memo.Infer(crowded, isa);
  const Inference& actual = memo.Infer(in, isa);
  EXPECT_EQ(actual.effects.SerializeAsString(), expected.effects.SerializeAsString());
  ASSERT_EQ(actual.observations.size(), expected.observations.size());
  for (size_t i = 0; i < actual.observations.size(); ++i) {
    const Observation &a = actual.observations[i], &e = expected.observations[i];
    EXPECT_EQ(std::tie(a.kind, a.value, a.name, a.detail, a.offset, a.instruction),
              std::tie(e.kind, e.value, e.name, e.detail, e.offset, e.instruction));
  }
}

Inference Infer(const Case& c) {
  Isa& isa = IsaOf(c.target);
  std::string text = c.text;
  for (const auto& [word, value] : {std::pair<std::string, const char*>{"RINGA", "0x7aaa0003"},
                                    {"RINGB", "0x7aaa0004"},
                                    {"LO", "0x7aaa0001"},
                                    {"HI", "0x7aaa0002"}}) {
    for (size_t at; (at = text.find(word)) != std::string::npos;) {
      text.replace(at, word.size(), value);
    }
  }
  auto bytes = isa.Assemble(text);
  EXPECT_TRUE(bytes.ok()) << c.name << ": " << bytes.status();
  if (!bytes.ok()) return {};
  std::vector<WordFixup> fixups;
  for (size_t i = 0; i + 4 <= bytes->size(); i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes->data() + i, 4);
    if (word == kLo || word == kHi) fixups.push_back({i, word == kHi, c.addend, c.base});
    if (word == kRingLo || word == kRingHi) fixups.push_back({i, word == kRingHi, kRingAt});
  }
  InferenceInput in;
  in.sequence = *bytes;
  in.fixups = fixups;
  in.live = c.live;
  in.pending = c.pending;
  in.telemetry_begin = 8;
  in.telemetry_end = 16;
  if (c.ring) {
    in.ring_begin = kRingAt;
    in.ring_half_bytes = kHalfBytes;
  }
  in.counts = c.counts;
  Inference inference = InferEffects(in, isa);
  ExpectRemembered(in, inference, isa);
  return inference;
}

std::vector<v1::Violation> Check(const Case& c) {
  v1::Location site;
  site.set_kernel("k");
  return CheckManifest(Infer(c), FindProbe(c.probe)->manifest, site);
}

const std::string kAddressInVcc =
    "s_mov_b64 s[10:11], exec\ns_mov_b32 vcc_lo, LO\ns_mov_b32 vcc_hi, HI\ns_mov_b64 exec, 1\n"
    "v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 1\nglobal_atomic_add_x2 v3, v[2:3], vcc\n"
    "s_mov_b64 exec, s[10:11]\n";

const std::string kWave64 =
    "s_nop 4\n"
    "s_mov_b64 s[10:11], exec\n"
    "s_mov_b32 s12, LO\ns_mov_b32 s13, HI\n"
    "s_mov_b64 exec, 1\n"
    "v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 1\n"
    "global_atomic_add_x2 v3, v[2:3], s[12:13]\n"
    "s_mov_b64 exec, s[10:11]\n";

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A record of 544 bytes with a word by lane, on gfx90a. Registers: EXEC s[10:11],
// address s[12:13], limit s[14:15]; data v[2:3], header v[4:7].
const std::string kRecord =
    "s_mov_b64 s[10:11], exec\n"
    "s_mov_b32 s12, RINGA\ns_mov_b32 s13, RINGB\n"
    "s_mov_b64 exec, 1\n"
    "v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 0x220\n"
    "global_atomic_add_x2 v[6:7], v3, v[2:3], s[12:13] glc\n"
    "s_waitcnt vmcnt(0)\n"
    "s_mov_b64 s[14:15], 0xde8\n"
    "v_cmpx_ge_u64_e64 s[14:15], s[14:15], v[6:7]\n"
    "s_cbranch_execnz 9\n"
    "s_mov_b32 s12, LO\ns_mov_b32 s13, HI\n"       // 4 words
    "s_mov_b64 exec, 1\n"                          // 5
    "v_mov_b32_e32 v2, 1\n"                        // 6
    "global_atomic_add_x2 v3, v[2:3], s[12:13]\n"  // 8
    "s_branch 22\n"                                // 9
    "v_lshl_add_u32 v2, v6, 9, v6\n"
    "v_and_b32_e32 v2, 0x1ff0, v2\n"
    "v_readfirstlane_b32 s14, v2\n"
    "s_mov_b64 exec, s[10:11]\n"
    "v_mbcnt_lo_u32_b32 v7, -1, 0\nv_mbcnt_hi_u32_b32 v7, -1, v7\n"
    "v_lshl_add_u32 v7, v7, 3, s14\n"
    "global_store_dwordx2 v7, v[8:9], s[12:13] offset:288\n"
    "s_mov_b64 exec, 1\n"
    "s_waitcnt vmcnt(0)\n"
    "v_mov_b32_e32 v4, s10\nv_mov_b32_e32 v5, s11\n"
    "v_mov_b32_e32 v7, 0x2200001\n"
    "global_store_dwordx4 v2, v[4:7], s[12:13] offset:256\n"
    "s_mov_b64 exec, s[10:11]\n";

std::vector<Case> RecordCases() {
  const auto record = [](const char* name, const std::string& from, const std::string& to,
                         std::vector<std::string> violations, const char* probe = "trace-address") {
    Case c{name, from.empty() ? kRecord : Replace(kRecord, from, to), std::move(violations)};
    c.probe = probe;
    c.ring = true;
    return c;
  };
  std::vector<Case> cases = {
      record("record", "", "", {}),
      record("record, nobody has declared the lanes", "", "", {"RJD-E005", "RJD-E007"},
             "trace-exec"),
      record("record, a literal mask that is wide", "0x1ff0", "0x3ff0", {"RJD-E002"}),
      record("record, place not masked", "v_and_b32_e32 v2, 0x1ff0, v2\n",
             "v_or_b32_e32 v2, 0x1ff0, v2\n", {"RJD-E002"}),
      record("record, place masked by the ticket", "v_and_b32_e32 v2, 0x1ff0, v2\n",
             "s_nop 0\nv_and_b32_e32 v2, v6, v2\n", {"RJD-E002"}),
      record("record, the ticket is not waited for", "s_waitcnt vmcnt(0)\ns_mov_b64 s[14",
             "s_waitcnt vmcnt(1)\ns_mov_b64 s[14", {"RJD-E013", "RJD-E013"}),
      record("record, another counter is waited for", "s_waitcnt vmcnt(0)\ns_mov_b64 s[14",
             "s_waitcnt lgkmcnt(0)\ns_mov_b64 s[14", {"RJD-E013", "RJD-E013"}),
      record("record, lanes with the wrong stride", "v7, v7, 3, s14", "v7, v7, 5, s14",
             {"RJD-E002"}),
      record("record, lanes that are not counted", "v_mbcnt_hi_u32_b32 v7, -1, v7",
             "v_mul_lo_u32 v7, v7, v7", {"RJD-E002"}),
      record("record, beyond the pad", "offset:288", "offset:1824", {"RJD-E002"}),
      record("record, into the ring's header", "v[4:7], s[12:13] offset:256",
             "v[4:7], s[12:13] offset:248", {"RJD-E002"}),
      record("record, over the reservation", "v[4:7], s[12:13] offset:256", "v[4:7], s[12:13]",
             {"RJD-E002"}),
      record("record, an atomic among the records", "s[12:13] glc", "s[12:13] offset:264 glc",
             {"RJD-E002"}),
      record("record, another site's counter", "v3, v[2:3], s[12:13]\ns_branch",
             "v3, v[2:3], s[12:13] offset:8\ns_branch", {"RJD-E002"}),
      record("record, the overflow path leaves EXEC", "s_branch 22", "s_branch 23", {"RJD-E001"}),
      record("record, the place is another lane's", "s_cbranch_execnz 9", "s_cbranch_scc1 9",
             {"RJD-E002"}),
      record("record, a half of another address", "s_mov_b32 s13, RINGB", "s_mov_b32 s13, HI",
             {"RJD-E002"}),
      record("record, EXEC is not restored", "offset:256\ns_mov_b64 exec, s[10:11]",
             "offset:256\ns_mov_b64 exec, 1", {"RJD-E001"}),
  };
  Case no_ring = record("record, where there is no ring", "", "", {"RJD-E002"});
  no_ring.ring = false;
  cases.push_back(no_ring);
  Case in_flight = record("record, what a load may still write", "", "", {"RJD-E013"});
  in_flight.pending = Set({kVgpr0 + 8});
  cases.push_back(in_flight);
  Case live = record("record, over a live register", "", "", {"RJD-E001"});
  live.live = Set({kVgpr0 + 5});
  cases.push_back(live);
  Case left{"a load is left behind", "s_memtime s[10:11]", {"RJD-E013", "RJD-E013"}};
  left.probe = "clock";
  cases.push_back(left);
  Case clock{"a clock is read and waited for",
             "s_memtime s[10:11]\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v2, s10",
             {}};
  clock.probe = "clock";
  cases.push_back(clock);
  return cases;
}

std::vector<Case> Cases() {
  const RegisterSet v3 = Set({kVgpr0 + 3}), scc = Set({kScc}), vcc = Set({kVccLo, kVccHi});
  const RegisterSet vcc_hi = Set({kVccHi}), m0 = Set({kM0}), s12 = Set({kSgpr0 + 12});
  const Target w32{"gfx1030", 32}, rdna3_w64{"gfx1100", 64};
  const Target gfx12{"gfx1200", 32}, gfx942{"gfx942", 64};
  return {
      // Good citizens.
      {"counter", kWave64, {}},
      {"counter, vector address",
       "s_mov_b64 s[10:11], exec\ns_mov_b64 exec, 1\nv_mov_b32_e32 v4, LO\nv_mov_b32_e32 v5, HI\n"
       "v_mov_b32_e32 v2, 1\nv_mov_b32_e32 v3, 0\nglobal_atomic_add_x2 v[4:5], v[2:3], off\n"
       "s_mov_b64 exec, s[10:11]",
       {}},
      {"counter, address in VCC", kAddressInVcc, {}},
      {"counter, address in a VCC that is needed", kAddressInVcc, {"RJD-E001"}, vcc},
      {"counter, half of the address in VCC",
       Replace(kAddressInVcc, "vcc_hi, HI", "vcc_hi, 0"),
       {"RJD-E002"}},
      {"counter, address with immediate",
       Replace(kWave64, "s[12:13]\n", "s[12:13] offset:8\n"),
       {},
       {},
       {},
       "count-waves",
       {"gfx90a", 64},
       0},
      {"wave32",
       "s_mov_b32 s10, exec_lo\ns_mov_b32 s12, LO\ns_mov_b32 s13, HI\ns_mov_b32 exec_lo, 1\n"
       "v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 1\nglobal_atomic_add_x2 v3, v[2:3], s[12:13]\n"
       "s_mov_b32 exec_lo, s10",
       {},
       {},
       {},
       "count-waves",
       w32},
      {"wave64 on gfx11",
       Replace(Replace(kWave64, "s_nop 4", "s_waitcnt_depctr 0x80"), "global_atomic_add_x2",
               "global_atomic_add_u64"),
       {},
       {},
       {},
       "count-waves",
       rdna3_w64},
      {"gfx12, system scope",
       "s_mov_b32 s10, exec_lo\ns_mov_b32 s12, LO\ns_mov_b32 s13, HI\ns_mov_b32 exec_lo, 1\n"
       "s_waitcnt_depctr 0xf19c\nv_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 1\n"
       "global_atomic_add_u64 v3, v[2:3], s[12:13] scope:SCOPE_SYS\ns_mov_b32 exec_lo, s10",
       {},
       {},
       {},
       "count-waves",
       gfx12},
      {"gfx942, system scope",
       Replace(kWave64, "s[12:13]\n", "s[12:13] sc1\n"),
       {},
       {},
       {},
       "count-waves",
       gfx942},
      {"count lanes",
       Replace(kWave64, "v_mov_b32_e32 v2, 1\n",
               "v_bcnt_u32_b32 v2, s10, 0\nv_bcnt_u32_b32 v2, s11, v2\n"),
       {},
       {},
       {},
       "count-lanes"},
      {"exec saved into vcc, which is dead",
       Replace(Replace(kWave64, "s[10:11]", "vcc"), "s[10:11]", "vcc"),
       {}},
      {"SCC saved and restored",
       "s_cselect_b32 s10, 1, 0\ns_add_u32 s11, s10, s10\ns_cmp_lg_u32 s10, 0",
       {},
       scc},
      {"live vector register saved and restored under the same mask",
       "v_mov_b32_e32 v9, v3\nv_mov_b32_e32 v3, 0\nv_mov_b32_e32 v3, v9",
       {"RJD-E009"},
       v3},
      {"live scalar register kept in a lane",
       "v_writelane_b32 v9, s12, 5\ns_mov_b32 s12, 0\nv_readlane_b32 s12, v9, 5",
       {"RJD-E009"},
       s12},
      {"nop", "s_nop 0", {}, {}, {}, "nop"},
      {"sabotage", "s_endpgm", {}, {}, {}, "sabotage"},
      {"forward branch over the payload", "s_cbranch_execz 1\ns_nop 0\ns_nop 0", {}},
      // EXEC.
      {"EXEC not restored", Replace(kWave64, "s_mov_b64 exec, s[10:11]\n", ""), {"RJD-E001"}},
      {"EXEC half restored",
       Replace(kWave64, "s_mov_b64 exec, s[10:11]", "s_mov_b32 exec_lo, s10"),
       {"RJD-E001"}},
      {"EXEC restored from another register",
       Replace(kWave64, "exec, s[10:11]\n", "exec, s[14:15]\n"),
       {"RJD-E001"}},
      {"saved EXEC overwritten",
       Replace(kWave64, "s_mov_b32 s12, LO", "s_mov_b32 s10, 0\ns_mov_b32 s12, LO"),
       {"RJD-E001"}},
      {"EXEC restored on one path only",
       "s_mov_b64 s[10:11], exec\ns_mov_b64 exec, 1\ns_cbranch_vccz 1\n"
       "s_mov_b64 exec, s[10:11]\ns_nop 0",
       {"RJD-E001"}},
      {"wave32: exec_lo not restored",
       "s_mov_b32 s10, exec_lo\ns_mov_b32 exec_lo, 1",
       {"RJD-E001"},
       {},
       {},
       "count-waves",
       w32},
      // Registers of the application.
      {"live VGPR clobbered", kWave64, {"RJD-E001"}, v3},
      {"live VGPR restored under a narrower mask",
       "v_mov_b32_e32 v9, v3\nv_mov_b32_e32 v3, 0\ns_mov_b64 s[10:11], exec\ns_mov_b64 exec, 1\n"
       "v_mov_b32_e32 v3, v9\ns_mov_b64 exec, s[10:11]",
       {"RJD-E001", "RJD-E009"},
       v3},
      {"live SGPR clobbered", kWave64, {"RJD-E001"}, s12},
      {"live SCC clobbered", "s_add_u32 s10, s10, 1", {"RJD-E001"}, scc},
      {"SCC inverted by the restore",
       "s_cselect_b32 s10, 1, 0\ns_add_u32 s11, s10, s10\ns_cmp_eq_u32 s10, 0",
       {"RJD-E001"},
       scc},
      {"live VCC clobbered", "v_cmp_eq_u32_e32 vcc, 0, v2", {"RJD-E001"}, vcc},
      {"wave32: VCC_HI used as data",
       "s_mov_b32 vcc_hi, 0",
       {"RJD-E001"},
       vcc_hi,
       {},
       "count-waves",
       w32},
      {"dead SCC may change", "s_add_u32 s10, s10, 1", {}},
      {"live M0 clobbered", "s_mov_b32 m0, 0", {"RJD-E001"}, m0},
      {"FLAT_SCRATCH is never free", "s_mov_b32 flat_scratch_lo, 0", {"RJD-E001"}},
      {"MODE changed", "s_setreg_imm32_b32 hwreg(HW_REG_MODE), 0", {"RJD-E001"}},
      {"register with a load in flight", kWave64, {"RJD-E001", "RJD-E013"}, {}, v3},
      {"register with a load in flight, after a wait",
       "s_waitcnt vmcnt(0) lgkmcnt(0)\nv_mov_b32_e32 v9, v3\nv_mov_b32_e32 v3, 0\n"
       "v_mov_b32_e32 v3, v9",
       {},
       {},
       v3},
      {"a partial wait is no wait",
       "s_waitcnt vmcnt(1) lgkmcnt(0)\nv_mov_b32_e32 v9, v3\nv_mov_b32_e32 v3, 0\n"
       "v_mov_b32_e32 v3, v9",
       {"RJD-E013"},
       {},
       v3},
      // Memory.
      {"store to an address of the application's",
       "global_store_dword v[4:5], v2, off",
       {"RJD-E002", "RJD-E005"}},
      {"load from the application",
       "global_load_dword v2, v[4:5], off",
       {"RJD-E002", "RJD-E005", "RJD-E013"}},
      {"another site's counter",
       Replace(kWave64, "s[12:13]\n", "s[12:13] offset:8\n"),
       {"RJD-E002"}},
      {"before the buffer", Replace(kWave64, "s[12:13]\n", "s[12:13] offset:-16\n"), {"RJD-E002"}},
      {"straddling the end", Replace(kWave64, "s[12:13]\n", "s[12:13] offset:4\n"), {"RJD-E002"}},
      {"unknown index",
       Replace(kWave64, "v_mov_b32_e32 v3, 0\n", "v_mov_b32_e32 v3, v7\n"),
       {"RJD-E002"}},
      {"index that is negative as 16 bits",
       Replace(kWave64, "v_mov_b32_e32 v3, 0\n",
               "s_movk_i32 s14, 0x8000\nv_mov_b32_e32 v3, s14\nv_lshrrev_b32_e32 v3, 18, v3\n"),
       {"RJD-E002"}},
      {"index from the high half of a wide -1",
       Replace(kWave64, "v_mov_b32_e32 v3, 0\n",
               "s_lshl_b64 s[14:15], -1, 0\nv_mov_b32_e32 v3, s15\n"),
       {"RJD-E002"}},
      {"index from the high half of a wide 1",
       Replace(kWave64, "v_mov_b32_e32 v3, 0\n",
               "s_lshl_b64 s[14:15], 1, 0\nv_mov_b32_e32 v3, s15\n"),
       {}},
      {"index set in other lanes only",
       Replace(Replace(kWave64, "v_mov_b32_e32 v3, 0\n", ""), "s_mov_b64 exec, 1\n",
               "s_mov_b64 exec, 2\nv_mov_b32_e32 v3, 0\ns_mov_b64 exec, 1\n"),
       {"RJD-E002"}},
      {"halves of different addresses",
       Replace(kWave64, "s_mov_b32 s13, HI\n", "s_mov_b32 s13, s20\n"),
       {"RJD-E002"}},
      {"LDS",
       "s_mov_b64 s[10:11], exec\ns_mov_b64 exec, 1\nds_add_u32 v2, v3\n"
       "s_mov_b64 exec, s[10:11]",
       {"RJD-E002"}},
      {"scratch through the buffer resource",
       "s_mov_b64 s[10:11], exec\ns_mov_b64 exec, 1\nbuffer_store_dword v2, off, s[0:3], 0\n"
       "s_mov_b64 exec, s[10:11]",
       {"RJD-E002"}},
      {"scalar load", "s_load_dword s10, s[12:13], 0x0", {"RJD-E002", "RJD-E013"}},
      // Masks.
      {"per-lane atomic", Replace(kWave64, "s_mov_b64 exec, 1\n", ""), {"RJD-E005", "RJD-E007"}},
      {"all lanes", Replace(kWave64, "exec, 1\n", "exec, -1\n"), {"RJD-E005", "RJD-E007"}},
      {"unknown mask", Replace(kWave64, "exec, 1\n", "exec, s[20:21]\n"), {"RJD-E010", "RJD-E007"}},
      // Synchronisation and control.
      {"barrier", "s_barrier", {"RJD-E004"}},
      {"trap", "s_trap 2", {"RJD-E011"}},
      {"message", "s_sendmsg sendmsg(MSG_INTERRUPT)", {"RJD-E011"}},
      {"halt", "s_sethalt 1", {"RJD-E011"}},
      {"priority", "s_setprio 3", {"RJD-E011"}},
      {"end of program", "s_endpgm", {"RJD-E001", "RJD-E003"}},
      {"backward branch", "s_nop 0\ns_branch 65534", {"RJD-E010"}},
      {"branch out of the sequence", "s_cbranch_scc0 100\ns_nop 0", {"RJD-E010"}},
      {"call", "s_swappc_b64 s[30:31], s[10:11]", {"RJD-E003", "RJD-E010"}},
      {"jump through a register", "s_setpc_b64 s[10:11]", {"RJD-E003", "RJD-E010"}},
      {"program counter", "s_getpc_b64 s[10:11]", {"RJD-E010"}},
      {"indirect register",
       "v_movreld_b32_e32 v2, v3",
       {"RJD-E010", "RJD-E008"},
       {},
       {},
       "count-waves",
       {"gfx1030", 32}},
      {"sabotage may also go on", "s_nop 0", {}, {}, {}, "sabotage"},
      // The application's data is nobody's business.
      {"reads a live register", "v_mov_b32_e32 v9, v3", {"RJD-E009"}, v3},
      {"nop with a payload",
       kWave64,
       {"RJD-E002", "RJD-E004", "RJD-E005", "RJD-E007", "RJD-E008", "RJD-E008"},
       {},
       {},
       "nop"},
      // Fixups.
      {"fixup in an addition", "s_add_u32 s10, s10, LO", {"RJD-E012"}},
      {.name = "the original's address",
       .text = kWave64,
       .violations = {"RJD-E002", "RJD-E012", "RJD-E012"},
       .base = patch::FixupBase::kOriginal},
  };
}

std::vector<Case> AllCases() {
  std::vector<Case> all = Cases();
  for (Case& c : RecordCases()) all.push_back(std::move(c));
  return all;
}

class Sequences : public testing::TestWithParam<Case> {};

TEST_P(Sequences, Verdict) {
  const Case& c = GetParam();
  std::vector<std::string> ids;
  std::string text;
  for (const v1::Violation& v : Check(c)) {
    ids.push_back(v.constraint_id());
    text += v.constraint_id() + ": " + v.message() + " @" +
            std::to_string(v.location().probe_offset()) + " " + v.location().instruction() + "\n";
    EXPECT_GT(v.location().manifest_line(), 0u);
    EXPECT_FALSE(v.observed().empty());
    EXPECT_FALSE(v.limit().empty());
  }
  EXPECT_THAT(ids, UnorderedElementsAreArray(c.violations)) << c.text << "\n" << text;
}

INSTANTIATE_TEST_SUITE_P(Hostile, Sequences, testing::ValuesIn(AllCases()), [](const auto& info) {
  std::string name;
  for (char ch : info.param.name) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

TEST(Inference, WitnessNamesOffsetInstructionAndRegister) {
  Case c{"", kWave64, {}, Set({kVgpr0 + 3})};
  const auto v = Check(c);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].observed(), "v3");
  EXPECT_TRUE(v[0].location().in_probe());
  EXPECT_EQ(v[0].location().instruction(), "v_mov_b32_e32 v3, 0");
  EXPECT_EQ(v[0].location().probe_offset(), 28u);
  EXPECT_EQ(v[0].location().kernel(), "k");
}

// What a counting probe adds to its counter is proven, on every path.
TEST(Inference, CountersCountEachExecutionOnce) {
  const std::string head =
      "s_mov_b64 s[4:5], exec\ns_mov_b32 s2, LO\ns_mov_b32 s3, HI\ns_mov_b64 exec, 1\n"
      "v_mov_b32 v5, 0\n";
  const std::string one = "v_mov_b32 v4, 1\n", add = "global_atomic_add_x2 v5, v[4:5], s[2:3]\n";
  const std::string both = "v_bcnt_u32_b32 v4, s4, 0\nv_bcnt_u32_b32 v4, s5, v4\n";
  const std::string tail = "s_mov_b64 exec, s[4:5]\n";
  constexpr auto kWaves = InferenceInput::Counts::kWaves;
  constexpr auto kLanes = InferenceInput::Counts::kLanes;
  const struct {
    const char* name;
    std::string body;
    InferenceInput::Counts counts;
    bool right;
  } cases[] = {
      {"waves", one + add, kWaves, true},
      {"lanes", both + add, kLanes, true},
      {"two", "v_mov_b32 v4, 2\n" + add, kWaves, false},
      {"twice", one + add + add, kWaves, false},
      {"never", one, kWaves, false},
      {"lanes for waves", both + add, kWaves, false},
      {"waves for lanes", one + add, kLanes, false},
      {"half of the lanes", "v_bcnt_u32_b32 v4, s4, 0\n" + add, kLanes, false},
      {"one half twice", "v_bcnt_u32_b32 v4, s4, 0\nv_bcnt_u32_b32 v4, s4, v4\n" + add, kLanes,
       false},
      {"lanes of a changed mask", "v_bcnt_u32_b32 v4, exec_lo, 0\n" + add, kLanes, false},
      {"no sum", one + "global_atomic_or_x2 v5, v[4:5], s[2:3]\n", kWaves, false},
      {"a store", one + "global_store_dwordx2 v5, v[4:5], s[2:3]\n", kWaves, false},
      {"two lanes", "s_mov_b64 exec, 3\n" + one + add, kWaves, false},
      {"another lane", "s_mov_b64 exec, 2\n" + one + "v_mov_b32 v5, 0\n" + add, kWaves, true},
      {"on one path", one + "s_cbranch_scc0 2\n" + add, kWaves, false},
      {"high half",
       one + "v_mov_b32 v5, 1\nv_mov_b32 v6, 0\n" + "global_atomic_add_x2 v6, v[4:5], s[2:3]\n",
       kWaves, false},
      {"half a counter", one + "global_atomic_add v5, v4, s[2:3]\n", kWaves, false},
  };
  for (const auto& c : cases) {
    const auto violations = Check({.name = c.name,
                                   .text = head + c.body + tail,
                                   .probe = c.counts == kLanes ? "count-lanes" : "count-waves",
                                   .counts = c.counts});
    EXPECT_EQ(violations.empty(), c.right)
        << c.name << (violations.empty() ? "" : ": " + violations[0].message());
    if (c.right || violations.empty()) continue;
    EXPECT_TRUE(std::any_of(violations.begin(), violations.end(), [](const v1::Violation& v) {
      return v.observed() == "that each execution is counted once";
    })) << c.name;
  }
}

TEST(Inference, EffectsOfTheCounter) {
  const v1::InferredEffects e = Infer({"", kWave64, {}}).effects;
  EXPECT_EQ(e.certainty(), v1::PROVEN);
  EXPECT_EQ(e.instructions(), 9u);
  EXPECT_EQ(e.telemetry_bytes(), 8u);
  EXPECT_EQ(e.mask_policy(), v1::SINGLE_LANE);
  EXPECT_EQ(e.temporary_sgprs(), 4u);
  EXPECT_EQ(e.temporary_vgprs(), 2u);
  EXPECT_THAT(e.reads(), testing::ElementsAre("EXEC"));
  EXPECT_THAT(e.writes(), testing::IsEmpty());
  EXPECT_THAT(e.memory(), testing::ElementsAre(v1::PRIVATE_TELEMETRY));
  EXPECT_THAT(e.control(), testing::ElementsAre(v1::FALL_THROUGH));
}

TEST(Inference, UndecodableBytesAreUnknown) {
  const std::vector<uint8_t> bytes(8, 0xff);
  InferenceInput in;
  in.sequence = bytes;
  const Inference i = InferEffects(in, IsaOf({"gfx90a", 64}));
  EXPECT_EQ(i.effects.certainty(), v1::UNKNOWN);
}

// Whatever bytes come, the interpreter ends, and never calls a sequence proven
// that changes EXEC for good.
TEST(Inference, RandomBytesNeverCrash) {
  uint64_t seed = 88172645463325252u;
  for (const Target& t : {Target{"gfx90a", 64}, Target{"gfx1030", 32}, Target{"gfx1200", 32}}) {
    for (int round = 0; round < 400; ++round) {
      std::vector<uint8_t> bytes(64);
      for (uint8_t& b : bytes) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        b = static_cast<uint8_t>(seed);
      }
      InferenceInput in;
      in.sequence = bytes;
      const Inference i = InferEffects(in, IsaOf(t));
      EXPECT_NE(i.effects.certainty(), v1::CERTAINTY_UNSPECIFIED);
      EXPECT_LE(i.effects.instructions(), 16u);
    }
  }
}

}  // namespace
}  // namespace rjdbi::contract
