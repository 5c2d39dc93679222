// What listings say of places and kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "patch/analysis/site_capability.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::CodeRangeKind;
using patch::Outstanding;
using patch::Position;
using patch::SiteCapabilities;
using patch::SiteTrait;
using patch::TransferTarget;
using test::AssembleObject;
using test::Loaded;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string Waits(const SiteCapabilities& capabilities, uint32_t i,
                  Position position = Position::kBefore) {
  std::string text;
  for (const auto& counter : capabilities.At(i, position).outstanding) {
    text += std::string(counter.name) + "=" +
            (counter.at_most >= Outstanding::kUnbounded ? "any" : std::to_string(counter.at_most)) +
            " ";
  }
  return text;
}

TEST(Outstanding, CountsPerGeneration) {
  const struct {
    const char* processor;
    uint32_t wave;
    const char *body, *before_wait, *after_wait;
  } rows[] = {
      {"gfx90a", 64, R"(
        global_load_dword v4, v[0:1], off
        global_load_dword v5, v[0:1], off
        global_store_dword v[0:1], v6, off
        s_load_dword s4, s[0:1], 0x0
        ds_write_b32 v0, v1
        s_waitcnt vmcnt(1)
        s_endpgm)",
       "vmcnt=3 lgkmcnt=2 ", "vmcnt=1 lgkmcnt=2 "},
      {"gfx90a", 64, "flat_load_dword v4, v[0:1]\ns_waitcnt lgkmcnt(0)\ns_endpgm",
       "vmcnt=1 lgkmcnt=1 ", "vmcnt=1 "},
      {"gfx1030", 32, R"(
        global_load_dword v4, v[0:1], off
        global_store_dword v[0:1], v6, off
        global_atomic_add v[0:1], v6, off
        global_atomic_add v7, v[0:1], v6, off glc
        s_waitcnt_vscnt null, 0x1
        s_endpgm)",
       "vmcnt=2 vscnt=2 ", "vmcnt=2 vscnt=1 "},
      {"gfx1100", 32, R"(
        global_load_b32 v4, v[0:1], off
        global_load_b32 v5, v[0:1], off
        ds_load_b32 v6, v0
        s_waitcnt vmcnt(1) lgkmcnt(0)
        s_endpgm)",
       "vmcnt=2 lgkmcnt=1 ", "vmcnt=1 "},
      {"gfx1200", 32, R"(
        global_load_b32 v4, v[0:1], off
        global_store_b32 v[0:1], v6, off
        ds_load_b32 v6, v0
        s_load_b32 s4, s[0:1], 0x0
        s_wait_loadcnt_dscnt 0x0
        s_endpgm)",
       "loadcnt=1 dscnt=1 kmcnt=1 storecnt=1 ", "kmcnt=1 storecnt=1 "},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(std::string(row.processor) + row.body);
    Loaded loaded(AssembleObject(row.processor, row.wave, {{.body = row.body}}));
    const auto& k = loaded.Kernel();
    const SiteCapabilities capabilities(k);
    const auto end = static_cast<uint32_t>(k.instructions().size() - 1);
    EXPECT_EQ(Waits(capabilities, 0), "");
    EXPECT_EQ(Waits(capabilities, end - 1), row.before_wait);
    EXPECT_EQ(Waits(capabilities, end - 1, Position::kAfter), row.after_wait);
    EXPECT_EQ(Waits(capabilities, end), row.after_wait);
  }
}

TEST(Outstanding, PathsJoinAndLoopsEnd) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_cbranch_scc0 .Lskip
    global_load_dword v4, v[0:1], off
    .Lskip:
    s_nop 0
    .Lloop:
    ds_read_b32 v5, v0
    s_cbranch_scc0 .Lloop
    s_waitcnt lgkmcnt(2)
    s_endpgm)"}}));
  const SiteCapabilities capabilities(loaded.Kernel());
  EXPECT_EQ(Waits(capabilities, 2), "vmcnt=1 ");
  EXPECT_EQ(Waits(capabilities, 4), "vmcnt=1 lgkmcnt=any ");
  EXPECT_EQ(Waits(capabilities, 6), "vmcnt=1 lgkmcnt=2 ");
}

TEST(Capability, RegistersAndReach) {
  Loaded loaded(AssembleObject("gfx90a", 64,
                               {{.body = R"(
    v_mov_b32_e32 v4, 0
    global_load_dword v5, v[2:3], off
    v_add_u32_e32 v4, v4, v6
    s_waitcnt vmcnt(0)
    global_store_dword v4, v5, s[4:5]
    s_endpgm)",
                                 .vgprs = 16,
                                 .sgprs = 16}}));
  const auto& k = loaded.Kernel();
  const SiteCapabilities capabilities(k);
  const auto c = capabilities.At(2, Position::kBefore);
  EXPECT_EQ(c.immovable, std::nullopt);
  EXPECT_EQ(c.immovable_after, std::nullopt);
  EXPECT_EQ(c.live_sgprs, 2u);
  EXPECT_GE(c.live_vgprs, 3u);
  EXPECT_EQ(c.pending, 1u);
  EXPECT_GT(c.free_sgprs, 8u);
  ASSERT_TRUE(c.distance.has_value());
  EXPECT_GT(*c.distance, 0);
  EXPECT_TRUE(c.direct_reach);
  EXPECT_TRUE(c.kernel_can_move);
  const auto end = capabilities.At(5, Position::kBefore);
  EXPECT_EQ(end.immovable, std::nullopt);
  ASSERT_TRUE(end.immovable_after.has_value());
  EXPECT_EQ(end.immovable_after->reason, patch::Reason::kSiteNothingAfter);
}

TEST(Capability, Traits) {
  Loaded loaded(AssembleObject("gfx1100", 32, {{.body = R"(
    v_mov_b32_e32 v0, 0
    s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_2)
    v_add_f32_e32 v1, v0, v0
    v_add_f32_e32 v2, v1, v0
    v_add_f32_e32 v3, v1, v0
    s_mov_b32 exec_lo, 1
    s_clause 0x1
    global_load_b32 v4, v[0:1], off
    global_load_b32 v5, v[0:1], off offset:4
    s_cbranch_scc0 .Lend
    s_nop 0
    .Lend:
    s_nop 1
    s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
    s_endpgm
    s_nop 2
    s_endpgm)"}}));
  const SiteCapabilities capabilities(loaded.Kernel());
  const auto traits = [&](uint32_t i) { return capabilities.At(i, Position::kBefore).traits; };
  EXPECT_THAT(traits(0), ElementsAre(SiteTrait::kKernelEntry, SiteTrait::kBlockEntry));
  EXPECT_THAT(traits(1), IsEmpty());
  EXPECT_THAT(traits(2), ElementsAre(SiteTrait::kInDelayWindow));
  EXPECT_THAT(traits(3), ElementsAre(SiteTrait::kInDelayWindow));
  EXPECT_THAT(traits(4), IsEmpty());
  EXPECT_THAT(traits(5), Not(Contains(SiteTrait::kExecUnknown)));
  EXPECT_THAT(traits(7), ElementsAre(SiteTrait::kInClause, SiteTrait::kExecUnknown));
  EXPECT_THAT(traits(11), ElementsAre(SiteTrait::kBlockEntry, SiteTrait::kExecUnknown));
  EXPECT_THAT(traits(13), Contains(SiteTrait::kRegistersReleased));
  EXPECT_THAT(traits(14), Contains(SiteTrait::kUnreachable));
}

TEST(Structure, WhatIsNoReachableCodeIsSaid) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_cbranch_scc0 .Lend
    v_mov_b32_e32 v0, 0
    .Lend:
    s_endpgm
    v_mov_b32_e32 v1, 0
    .long 0xffffffff
    .long 0xffffffff
    s_nop 0
    s_nop 0)"}}));
  const auto& k = loaded.Kernel();
  const SiteCapabilities capabilities(k);
  const auto s = capabilities.Structure();
  EXPECT_THAT(s.incomplete, IsEmpty());
  EXPECT_EQ(s.reachable_instructions, 3u);
  EXPECT_EQ(s.reachable_blocks, 3u);
  ASSERT_EQ(s.ranges.size(), 3u);
  EXPECT_EQ(s.ranges[0].kind, CodeRangeKind::kUnreachable);
  EXPECT_EQ(s.ranges[0].begin, 12u);
  EXPECT_EQ(s.ranges[1].kind, CodeRangeKind::kData);
  EXPECT_EQ(s.ranges[1].begin, 16u);
  EXPECT_EQ(s.ranges[1].end, 24u);
  EXPECT_EQ(s.ranges[2].kind, CodeRangeKind::kFiller);
  EXPECT_EQ(s.ranges[2].end, k.code().size());
  const auto beside = capabilities.At(3, Position::kBefore).traits;
  EXPECT_THAT(beside, Contains(SiteTrait::kNearUndecodable));
  EXPECT_THAT(beside, Contains(SiteTrait::kUnreachable));
}

TEST(Structure, ReachedBytesThatDoNotDecode) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    .long 0xffffffff
    s_endpgm)"}}));
  const auto s = SiteCapabilities(loaded.Kernel()).Structure();
  ASSERT_EQ(s.incomplete.size(), 1u);
  EXPECT_THAT(s.incomplete[0], HasSubstr("0x4"));
  ASSERT_GE(s.ranges.size(), 1u);
  EXPECT_EQ(s.ranges[0].kind, CodeRangeKind::kUndecoded);
}

TEST(Structure, TransfersThroughRegisters) {
  const struct {
    const char *what, *body;
    TransferTarget target;
    bool call;
  } rows[] = {
      {"a jump table", R"(
        s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, s6
        s_addc_u32 s5, s5, 0
        s_load_dwordx2 s[8:9], s[4:5], 0x0
        s_waitcnt lgkmcnt(0)
        s_setpc_b64 s[8:9])",
       TransferTarget::kLoaded, false},
      {"computed", R"(
        s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, 0x40
        s_addc_u32 s5, s5, 0
        s_setpc_b64 s[4:5])",
       TransferTarget::kPcRelative, false},
      {"a call", R"(
        s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, 0x40
        s_addc_u32 s5, s5, 0
        s_swappc_b64 s[30:31], s[4:5]
        s_endpgm)",
       TransferTarget::kPcRelative, true},
      {"a direct call", "s_call_b64 s[30:31], 0\ns_endpgm", TransferTarget::kDirect, true},
      {"from elsewhere", "s_setpc_b64 s[30:31]", TransferTarget::kUnknown, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    Loaded loaded(AssembleObject("gfx90a", 64, {{.body = row.body}}));
    const auto s = SiteCapabilities(loaded.Kernel()).Structure();
    ASSERT_EQ(s.transfers.size(), 1u);
    EXPECT_EQ(s.transfers[0].target, row.target);
    EXPECT_EQ(s.transfers[0].call, row.call);
    EXPECT_THAT(s.incomplete, Not(IsEmpty()));
    EXPECT_FALSE(s.position_independent);
  }
}

// ---- line tables from foreign hands ----

constexpr char kSource[] = R"(
kernel void k(global float* a) {
  int i = __builtin_amdgcn_workitem_id_x();
  a[i] = a[i + 64] * 2.0f;
}
)";

// The bytes of a section, for damage.
absl::Span<uint8_t> Section(std::vector<uint8_t>& object, const std::string& wanted) {
  const auto read = [&](uint64_t at, unsigned size) {
    uint64_t value = 0;
    for (unsigned i = 0; i < size; ++i) value |= uint64_t{object[at + i]} << (8 * i);
    return value;
  };
  const uint64_t headers = read(40, 8), count = read(60, 2), names = read(62, 2);
  const uint64_t strings = read(headers + 64 * names + 24, 8);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t header = headers + 64 * i;
    const char* name = reinterpret_cast<const char*>(&object[strings + read(header, 4)]);
    if (name == wanted) return {&object[read(header + 24, 8)], read(header + 32, 8)};
  }
  ADD_FAILURE() << "no " << wanted;
  return {};
}

TEST(DebugInfo, DamagedLineTablesAreErrorsOrAnswers) {
  for (const char* flags : {" -g -gdwarf-4", " -gline-tables-only -gdwarf-5"}) {
    const auto good = test::CompileOpenCl(std::string("gfx90a") + flags, kSource);
    size_t errors = 0, answers = 0;
    auto object = good;
    const auto line = Section(object, ".debug_line");
    ASSERT_GT(line.size(), 64u);
    for (size_t at = 0; at < line.size(); ++at) {
      const uint8_t was = line[at];
      for (const uint8_t now : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        line[at] = now;
        const patch::DebugInfo info(object);
        const auto& lines = info.lines();
        if (!lines.ok()) {
          ++errors;
          EXPECT_TRUE(absl::IsInvalidArgument(lines.status())) << lines.status();
          continue;
        }
        ++answers;
        uint64_t last = 0;
        for (const auto& row : lines->Overlapping(0, UINT64_MAX)) {
          EXPECT_LT(row.begin, row.end);
          EXPECT_LE(last, row.begin);
          last = row.end;
          EXPECT_LT(lines->FileName(row).size(), 8192u * 2);
        }
      }
      line[at] = was;
    }
    EXPECT_GT(errors, 20u);
    EXPECT_GT(answers, 100u);
  }
}

// Counts that no bytes stand behind: each field of five bytes says 2^35.
TEST(DebugInfo, CountsAreNotBelieved) {
  auto object = test::CompileOpenCl("gfx90a -gline-tables-only -gdwarf-5", kSource);
  const auto line = Section(object, ".debug_line");
  size_t errors = 0;
  for (size_t at = 0; at + 5 < line.size(); ++at) {
    std::vector<uint8_t> saved(line.begin() + static_cast<ptrdiff_t>(at),
                               line.begin() + static_cast<ptrdiff_t>(at + 5));
    for (size_t i = 0; i < 5; ++i) line[at + i] = i < 4 ? 0xff : 0x7f;
    errors += !patch::DebugInfo(object).lines().ok();
    std::copy(saved.begin(), saved.end(), line.begin() + static_cast<ptrdiff_t>(at));
  }
  EXPECT_GT(errors, 20u);
  EXPECT_TRUE(patch::DebugInfo(object).lines().ok()) << "whole again";
}

}  // namespace
}  // namespace rjdbi
