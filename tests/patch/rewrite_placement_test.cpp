// Distance: direct branches, relays, copied kernels, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "patch/plan/rewriter.h"
#include "patch/rewrite/placement.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::BranchEncoding;
using patch::BranchOffset;
using patch::Probe;
using patch::Reason;
using patch::SitePlan;
using test::AsmKernel;
using test::AssembleObject;
using test::Loaded;

TEST(BranchOffset, ReachAndErratum) {
  BranchEncoding plain;
  EXPECT_EQ(BranchOffset(plain, 0x1000, 0x1004), 0);
  EXPECT_EQ(BranchOffset(plain, 0x1000, 0x1000), 0xffff);
  EXPECT_EQ(BranchOffset(plain, 0x100000, 0x100000 + 131072), 0x7fff);
  EXPECT_EQ(BranchOffset(plain, 0x100000, 0x100000 + 131076), std::nullopt);
  EXPECT_EQ(BranchOffset(plain, 0x100000, 0x100000 - 131068), 0x8000);
  EXPECT_EQ(BranchOffset(plain, 0x100000, 0x100000 - 131072), std::nullopt);
  EXPECT_EQ(BranchOffset(plain, 0x1000, 0x1002), std::nullopt);
  BranchEncoding quirky;
  quirky.offset_3f_is_broken = true;
  EXPECT_EQ(BranchOffset(quirky, 0x1000, 0x1104 - 4), std::nullopt);
  EXPECT_EQ(BranchOffset(plain, 0x1000, 0x1104 - 4), 0x3f);
}

std::string Filler(int words) { return ".fill " + std::to_string(words) + ", 4, 0\n"; }
std::string Work(int instructions) {
  return ".rept " + std::to_string(instructions) + "\nv_add_f32_e32 v2, v0, v1\n.endr\n";
}

struct Emitted {
  patch::RewriteResult result;
  std::vector<SitePlan> plans;
};

// Count-waves at instruction `i` of each kernel.
Emitted CountAt(Loaded& loaded, uint32_t i) {
  auto rewriter = patch::MakeTrampolineRewriter();
  Emitted emitted;
  for (const auto* kernel : loaded.All()) {
    const auto plan = rewriter->Plan(*kernel, i, {.probe = Probe::kCountWaves});
    EXPECT_TRUE(std::holds_alternative<SitePlan>(plan));
    emitted.plans.push_back(std::get<SitePlan>(plan));
  }
  auto result = rewriter->Emit(loaded.object(), loaded.All(), emitted.plans);
  EXPECT_TRUE(result.ok()) << result.status();
  if (result.ok()) emitted.result = *std::move(result);
  return emitted;
}

// A kernel 200 KiB from the segment, filler at 100 KiB: one hop each way.
TEST(Placement, RelaysThroughFiller) {
  const int k100 = 25600;  // instructions of 4 bytes
  std::vector<AsmKernel> kernels = {
      {.name = "a", .body = "v_mov_b32_e32 v0, 0\ns_endpgm", .sgprs = 16},
      {.name = "b", .body = Work(k100) + "s_endpgm", .sgprs = 16, .after = Filler(8)},
      {.name = "c", .body = Work(k100) + "s_endpgm", .sgprs = 16, .after = Filler(8)},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  const auto filler = patch::FindFillerWords(loaded.object(), loaded.All());
  ASSERT_GE(filler.size(), 16u);
  const Emitted emitted = CountAt(loaded, 0);
  for (const auto& site : emitted.result.sites) EXPECT_FALSE(site.refusal.has_value());
  Loaded patched(emitted.result.image);
  // Kernel a's entry still is where it was, and starts with a branch into filler.
  const auto& a = patched.Kernel("a");
  EXPECT_EQ(a.kernel().entry_vaddr, loaded.Kernel("a").kernel().entry_vaddr);
  ASSERT_TRUE(a.instructions()[0].target_offset.has_value());
  const uint64_t hop =
      a.kernel().entry_vaddr + static_cast<uint64_t>(*a.instructions()[0].target_offset);
  EXPECT_TRUE(std::binary_search(filler.begin(), filler.end(), hop));
  // Outside anchors and filler nothing changed.
  const auto before = loaded.object().bytes();
  const auto range = loaded.object().executable_ranges()[0];
  size_t changed = 0;
  for (uint64_t v = range.begin; v + 4 <= range.end; v += 4) {
    if (std::binary_search(filler.begin(), filler.end(), v)) continue;
    changed += std::memcmp(loaded.object().AtVaddr(v, 4).data(),
                           patched.object().AtVaddr(v, 4).data(), 4) != 0;
  }
  EXPECT_EQ(changed, 3u);
  EXPECT_EQ(emitted.result.code_growth,
            static_cast<int64_t>(emitted.result.image.size() - before.size()));
}

// No filler: the far kernel moves into the new segment as a whole.
TEST(Placement, CopiesAFarKernel) {
  std::vector<AsmKernel> kernels = {
      {.name = "a",
       .body = "v_mov_b32_e32 v0, 0\n" + Work(63) + "s_branch .Lx\n.Lx:\n" + Work(62) + "s_endpgm",
       .sgprs = 16},
      {.name = "b", .body = Work(60000) + "s_endpgm", .sgprs = 16},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  const Emitted emitted = CountAt(loaded, 1);
  ASSERT_FALSE(emitted.result.sites[0].refusal.has_value());
  Loaded patched(emitted.result.image);
  const auto& before = loaded.Kernel("a").kernel();
  const auto& after = patched.object().kernels()[0];
  ASSERT_EQ(after.name, "a");
  const uint64_t entry = after.descriptor_vaddr +
                         static_cast<uint64_t>(after.descriptor.kernel_code_entry_byte_offset);
  EXPECT_NE(entry, before.entry_vaddr);
  EXPECT_EQ(entry % 256, 0u);
  // The copy: the same words, but for the anchor.
  const auto copy = patched.object().AtVaddr(entry, before.code_size);
  const auto original = loaded.Kernel("a").code();
  ASSERT_EQ(copy.size(), original.size());
  size_t changed = 0;
  for (size_t i = 0; i < copy.size(); i += 4) {
    changed += std::memcmp(copy.data() + i, original.data() + i, 4) != 0;
  }
  EXPECT_EQ(changed, 1u);
  // The original is untouched.
  const auto left = patched.object().AtVaddr(before.entry_vaddr, before.code_size);
  EXPECT_TRUE(std::equal(left.begin(), left.end(), original.begin(), original.end()));
}

// Neither filler nor a kernel that may move: refused, and only that one.
TEST(Placement, RefusesWhatCannotBeReached) {
  std::vector<AsmKernel> kernels = {
      {.name = "a",
       .body = "v_mov_b32_e32 v0, 0\ns_nop 0\ns_getpc_b64 s[4:5]\n" + Work(60) + "s_endpgm",
       .sgprs = 16},
      {.name = "b", .body = Work(60000) + "v_mov_b32_e32 v0, 0\ns_endpgm", .sgprs = 16},
      {.name = "c", .body = Work(64) + "s_endpgm", .sgprs = 16},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  // Whatever filler alignment left is taken away, so that no relay exists.
  auto bytes = std::vector<uint8_t>(loaded.object().bytes().begin(), loaded.object().bytes().end());
  for (uint64_t v : patch::FindFillerWords(loaded.object(), loaded.All())) {
    bytes[*loaded.object().VaddrToOffset(v)] = 1;
  }
  Loaded tight(bytes);
  const Emitted emitted = CountAt(tight, 0);
  ASSERT_TRUE(emitted.result.sites[0].refusal.has_value());
  EXPECT_EQ(emitted.result.sites[0].refusal->reason, Reason::kOutOfBranchReach);
  EXPECT_FALSE(emitted.result.sites[2].refusal.has_value());
  Loaded patched(emitted.result.image);
  const auto before = tight.Kernel("a").code(), after = patched.Kernel("a").code();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin(), after.end()));
}

std::string Clause() {
  return "s_clause 0x1\nglobal_load_dword v4, v[0:1], off\n"
         "global_load_dword v5, v[0:1], off offset:4\n";
}

// The copy is what runs: its clause is split, the original's is left.
TEST(Placement, SplitsTheClauseOfACopy) {
  std::vector<AsmKernel> kernels = {
      {.name = "a", .body = Clause() + Clause() + Work(60) + "s_endpgm"},
      {.name = "b", .body = Work(60000) + "s_endpgm"},
  };
  Loaded loaded(AssembleObject("gfx1030", 32, kernels));
  auto rewriter = patch::MakeTrampolineRewriter();
  const auto plan = rewriter->Plan(loaded.Kernel("a"), 2, {.probe = Probe::kCountWaves});
  ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
  const auto result = rewriter->Emit(loaded.object(), loaded.All(), {std::get<SitePlan>(plan)});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->sites[0].refusal.has_value());
  Loaded patched(result->image);
  const auto& before = loaded.Kernel("a").kernel();
  const auto& after = patched.object().kernels()[0];
  ASSERT_NE(after.entry_vaddr, before.entry_vaddr);
  const auto left = patched.object().AtVaddr(before.entry_vaddr, before.code_size);
  const auto original = loaded.Kernel("a").code();
  EXPECT_TRUE(std::equal(left.begin(), left.end(), original.begin(), original.end()));
  const std::string copy = patched.Disassemble(after.entry_vaddr, 40);
  EXPECT_TRUE(copy.starts_with("s_nop 0\nglobal_load_dword v4, v[0:1], off\ns_branch")) << copy;
  EXPECT_NE(copy.find("s_clause 0x1\nglobal_load_dword v4"), std::string::npos) << copy;
}

// Two far sites of one clause, in a kernel that may not move: filler for one
// way there and back, so one site is placed and the clause split for it; then
// filler for none, and the clause stays.
TEST(Placement, AClauseIsSplitForPlacedSitesOnly) {
  for (const int relays : {0, 2, 4}) {
    SCOPED_TRACE(relays);
    // Kernels begin at multiples of 64 words; that leaves `relays` between b and c.
    std::vector<AsmKernel> kernels = {
        {.name = "a", .body = Clause() + "s_getpc_b64 s[4:5]\n" + Work(200) + "s_endpgm"},
        {.name = "b", .body = Work(391 * 64 - 1 - relays) + "s_endpgm"},
        {.name = "c", .body = Work(25000) + "s_endpgm"},
    };
    Loaded roomy(AssembleObject("gfx1030", 32, kernels));
    std::vector<uint8_t> bytes(roomy.object().bytes().begin(), roomy.object().bytes().end());
    const uint64_t b = roomy.Kernel("b").kernel().entry_vaddr;
    const uint64_t c = roomy.Kernel("c").kernel().entry_vaddr;
    int kept = 0;
    for (uint64_t v : patch::FindFillerWords(roomy.object(), roomy.All())) {
      if (v > b && v < c) {
        ++kept;
      } else {
        bytes[*roomy.object().VaddrToOffset(v)] = 1;
      }
    }
    ASSERT_EQ(kept, relays);
    Loaded loaded(bytes);
    auto rewriter = patch::MakeTrampolineRewriter();
    std::vector<SitePlan> plans;
    for (const uint32_t i : {1u, 2u}) {
      const auto plan = rewriter->Plan(loaded.Kernel("a"), i, {.probe = Probe::kNop});
      ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
      plans.push_back(std::get<SitePlan>(plan));
    }
    const auto near = rewriter->Plan(loaded.Kernel("c"), 24000, {.probe = Probe::kNop});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(near));
    plans.push_back(std::get<SitePlan>(near));
    const auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->sites[2].refusal.has_value());
    const int placed = !result->sites[0].refusal + !result->sites[1].refusal;
    Loaded patched(result->image);
    const std::string text = patched.Disassemble(loaded.Kernel("a").kernel().entry_vaddr, 4);
    EXPECT_EQ(text, placed > 0 ? "s_nop 0\n" : "s_clause 0x1\n");
    EXPECT_EQ(placed, relays / 2);
  }
}

// A function without a symbol is not filler, even where it holds zero words.
TEST(Placement, MixedGapsAreNotFiller) {
  std::vector<AsmKernel> kernels = {
      {.name = "a", .body = Work(64) + "s_endpgm", .after = Filler(8) + "v_mov_b32 v0, v1\n"},
      {.name = "b", .body = Work(64) + "s_endpgm"},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  const auto& a = loaded.Kernel("a").kernel();
  const auto& b = loaded.Kernel("b").kernel();
  for (uint64_t v : patch::FindFillerWords(loaded.object(), loaded.All())) {
    EXPECT_FALSE(v >= a.entry_vaddr + a.code_size && v < b.entry_vaddr) << v;
  }
}

// A branch across most of a kernel, copied with it: both ways stay in the copy.
TEST(Placement, BranchesOfACopyStayInTheCopy) {
  std::vector<AsmKernel> kernels = {
      {.name = "a", .body = "s_cbranch_scc0 .Lfar\n" + Work(20000) + ".Lfar:\ns_nop 3\ns_endpgm"},
      {.name = "b", .body = Work(60000) + "s_endpgm"},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  const Emitted emitted = CountAt(loaded, 0);
  ASSERT_FALSE(emitted.result.sites[0].refusal.has_value());
  Loaded patched(emitted.result.image);
  const uint64_t base = patched.object().kernels()[0].entry_vaddr;
  ASSERT_NE(base, loaded.Kernel("a").kernel().entry_vaddr);
  const uint64_t condition =
      emitted.result.sites[0].trampoline_vaddr + emitted.plans[0].sequence.size();
  EXPECT_EQ(patched.Disassemble(condition, 4), "s_cbranch_scc0 1\n");
  const uint64_t expected[] = {base + 4, base + 4 + 4 * 20000};
  for (uint64_t n : {0, 1}) {
    const uint64_t at = condition + 4 + 4 * n;
    const auto in = patched.isa().Decode(patched.object().AtVaddr(at, 4), 0);
    ASSERT_TRUE(in && in->opcode == "s_branch");
    EXPECT_EQ(at + static_cast<uint64_t>(*in->target_offset), expected[n]);
  }
}

// The taken way needs a relay of its own.
TEST(Placement, ABranchToFarAwayTakesARelay) {
  std::vector<AsmKernel> kernels = {
      {.name = "a",
       .body = ".Lfar:\n" + Work(20000) + "s_getpc_b64 s[4:5]\ns_cbranch_scc0 .Lfar\ns_endpgm",
       .after = Filler(64)},
      {.name = "b", .body = Work(20000) + "s_endpgm"},
  };
  Loaded loaded(AssembleObject("gfx90a", 64, kernels));
  auto rewriter = patch::MakeTrampolineRewriter();
  const auto plan = rewriter->Plan(loaded.Kernel("a"), 20001, {.probe = Probe::kNop});
  ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
  const auto result = rewriter->Emit(loaded.object(), loaded.All(), {std::get<SitePlan>(plan)});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_FALSE(result->sites[0].refusal.has_value());
  Loaded patched(result->image);
  const auto filler = patch::FindFillerWords(loaded.object(), loaded.All());
  const uint64_t taken = result->sites[0].trampoline_vaddr + 12;  // s_nop, condition, s_branch
  const auto in = patched.isa().Decode(patched.object().AtVaddr(taken, 4), 0);
  ASSERT_TRUE(in && in->opcode == "s_branch");
  const uint64_t hop = taken + static_cast<uint64_t>(*in->target_offset);
  ASSERT_TRUE(std::binary_search(filler.begin(), filler.end(), hop));
  const auto relay = patched.isa().Decode(patched.object().AtVaddr(hop, 4), 0);
  ASSERT_TRUE(relay && relay->opcode == "s_branch");
  EXPECT_EQ(hop + static_cast<uint64_t>(*relay->target_offset),
            loaded.Kernel("a").kernel().entry_vaddr);
}

TEST(Placement, OffsetErratumIsAvoided) {
  // Every other instruction is a branch, backwards and forwards in turn.
  const std::string body =
      ".rept 150\nv_add_f32_e32 v2, v0, v1\ns_cbranch_scc0 0xfffe\nv_add_f32_e32 v2, v0, v1\n"
      "s_branch 0\n.endr\n";
  Loaded loaded(AssembleObject("gfx1010", 32, {{.body = body + "s_endpgm"}}));
  auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  for (uint32_t i = 0; i < 600; ++i) {
    const auto plan = rewriter->Plan(loaded.Kernel(), i, {.probe = Probe::kNop});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
    plans.push_back(std::get<SitePlan>(plan));
  }
  const auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& site : result->sites) EXPECT_FALSE(site.refusal.has_value());
}

}  // namespace
}  // namespace rjdbi
