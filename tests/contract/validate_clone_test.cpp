// The proof of clones, by breaking each thing that it is to prove.
#include "contract/validate_clone.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "contract/validate.h"
#include "patch/rewrite/clone.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using patch::Placement;
using patch::Position;
using patch::Probe;
using patch::SitePlan;
using testing::HasSubstr;

// A clause, delay hints, an address from the program counter, branches both ways,
// the message that deallocates registers.
constexpr char kBody[] = R"(
.Lback:
s_clause 0x3
global_load_b32 v2, v0, s[4:5]
global_load_b32 v3, v0, s[4:5] offset:4
global_load_b32 v4, v0, s[4:5] offset:8
global_load_b32 v5, v0, s[4:5] offset:12
s_waitcnt vmcnt(0)
s_getpc_b64 s[6:7]
s_add_u32 s6, s6, 0x12345678
s_addc_u32 s7, s7, 0x23456789
v_add_f32_e32 v2, v2, v3
s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_2)
v_add_f32_e32 v4, v4, v2
v_add_f32_e32 v5, v5, v2
s_cmp_lg_u32 s8, 5
s_cbranch_scc1 .Lend
s_add_u32 s8, s8, 1
s_cmp_lg_u32 s8, s9
s_cbranch_scc1 .Lback
s_branch .Lend
s_nop 3
.Lend:
global_store_b32 v0, v4, s[6:7]
s_nop 0
s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
s_endpgm
)";

class CloneValidation : public testing::Test {
 protected:
  CloneValidation() : loaded_(Object("gfx1100", kBody)), kernel_(&loaded_.Kernel()) {}

  static std::vector<uint8_t> Object(const std::string& processor, const std::string& body) {
    test::AsmKernel k, other;
    k.body = body;
    other.name = "other";
    other.body = "s_nop 0\ns_endpgm";
    return test::AssembleObject(processor, processor.substr(0, 4) == "gfx9" ? 64 : 32, {k, other});
  }

  void Add(Probe probe, const std::string& opcode, int n, Position position = Position::kBefore) {
    const uint32_t i = test::Loaded::Find(*kernel_, opcode, n);
    auto plan = rewriter_->Plan(*kernel_, i,
                                {.probe = probe,
                                 .counter_index = static_cast<uint32_t>(plans_.size()),
                                 .max_sgpr_delta = 16,
                                 .max_vgpr_delta = 8,
                                 .position = position,
                                 .placement = Placement::kClone});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(plan)) << std::get<patch::Refusal>(plan).detail;
    plans_.push_back(std::get<SitePlan>(plan));
  }

  void Emit() {
    auto result = rewriter_->Emit(loaded_.object(), {kernel_}, plans_, beside_);
    ASSERT_TRUE(result.ok()) << result.status();
    result_ = *std::move(result);
    ASSERT_EQ(result_.kernels.size(), 1u);
    ASSERT_FALSE(result_.kernels[0].not_cloned.has_value());
    image_ = std::make_unique<patch::CodeObject>(*patch::CodeObject::Parse(result_.image));
  }

  // One site in every part of the kernel.
  void Everything() {
    Add(Probe::kCountWaves, "s_clause", 0);
    Add(Probe::kNop, "global_load_b32", 2);
    Add(Probe::kCountWaves, "global_load_b32", 2);
    Add(Probe::kNop, "s_getpc_b64", 0, Position::kAfter);
    Add(Probe::kNop, "s_addc_u32", 0);
    Add(Probe::kNop, "v_add_f32", 2);
    Add(Probe::kCountLanes, "s_cbranch_scc1", 1);
    Add(Probe::kNop, "global_store_b32", 0);
    Add(Probe::kCountWaves, "global_store_b32", 0, Position::kAfter);
    Add(Probe::kNop, "s_sendmsg", 0);
    Emit();
  }

  std::string Findings(const std::vector<SitePlan>* plans = nullptr) const {
    std::string text;
    const auto report = ValidateImage(loaded_.object(), {kernel_},
                                      plans != nullptr ? *plans : plans_, result_, beside_);
    for (const auto& f : report.findings) text += f.what + "\n";
    return text;
  }

  uint64_t FileOffset(uint64_t vaddr) const { return *image_->VaddrToOffset(vaddr); }
  // File offset of instruction i in the clone.
  uint64_t At(uint32_t i) const {
    return FileOffset(result_.kernels[0].clone_vaddr + result_.kernels[0].pcs[i].emitted);
  }
  uint64_t At(const std::string& opcode, int n = 0) const {
    return At(test::Loaded::Find(*kernel_, opcode, n));
  }
  uint32_t Word(uint64_t offset) const {
    uint32_t word = 0;
    std::memcpy(&word, result_.image.data() + offset, sizeof word);
    return word;
  }
  void SetWord(uint64_t offset, uint32_t word) {
    std::memcpy(result_.image.data() + offset, &word, sizeof word);
  }
  // The finding when one word is another, and none when it is put back.
  std::string With(uint64_t offset, uint32_t word) {
    const uint32_t was = Word(offset);
    SetWord(offset, word);
    std::string findings = Findings();
    SetWord(offset, was);
    EXPECT_EQ(Findings(), "");
    return findings;
  }

  static constexpr uint32_t kNop0 = 0xbf800000;
  std::unique_ptr<patch::Rewriter> rewriter_ = patch::MakeTrampolineRewriter();
  test::Loaded loaded_;
  const patch::KernelAnalysis* kernel_;
  std::vector<SitePlan> plans_;
  patch::RewriteResult result_;
  std::unique_ptr<patch::CodeObject> image_;
  bool beside_ = false;
};

TEST_F(CloneValidation, WhatTheRewriterMakesIsProven) {
  Everything();
  EXPECT_EQ(Findings(), "");
  const auto report = ValidateImage(loaded_.object(), {kernel_}, plans_, result_);
  // No jumps: the sequences alone, and what the seams need.
  EXPECT_EQ(report.executed_instructions[0], plans_[0].injected_instructions);
  EXPECT_EQ(report.executed_instructions[1], report.executed_instructions[2]);
  EXPECT_EQ(report.executed_instructions[9], 2u) << "s_nop between probe and message";
}

TEST_F(CloneValidation, EachBitOfTheCloneCounts) {
  Everything();
  std::set<uint64_t> fixups;
  for (const auto& f : result_.fixups) {
    for (uint64_t byte = 0; byte < 4; ++byte) fixups.insert(f.offset + byte);
  }
  ASSERT_EQ(fixups.size(), 32u);
  const uint64_t start = FileOffset(result_.kernels[0].clone_vaddr);
  for (uint64_t i = 0; i < result_.kernels[0].code_bytes; ++i) {
    if (fixups.count(start + i) != 0) continue;
    for (const int bit : {0, 3, 6}) {
      result_.image[start + i] ^= static_cast<uint8_t>(1 << bit);
      EXPECT_NE(Findings(), "") << "byte " << i << ", bit " << bit;
      result_.image[start + i] ^= static_cast<uint8_t>(1 << bit);
    }
  }
  EXPECT_EQ(Findings(), "");
}

TEST_F(CloneValidation, TheOriginalStaysAsItIs) {
  Everything();
  const uint64_t entry = FileOffset(kernel_->kernel().entry_vaddr);
  for (uint64_t at = 0; at < kernel_->code().size(); at += 4) {
    EXPECT_EQ(Word(entry + at), [&] {
      uint32_t word = 0;
      std::memcpy(&word, kernel_->code().data() + at, sizeof word);
      return word;
    }());
    EXPECT_THAT(With(entry + at, Word(entry + at) ^ 1), HasSubstr("an original byte changed"));
  }
}

TEST_F(CloneValidation, ABranchLandsInFrontOfTheProbe) {
  Everything();
  // Past the sequence of the s_clause, at the instruction itself.
  const uint64_t back = At("s_cbranch_scc1", 1);
  const auto skip = static_cast<uint32_t>(plans_[0].sequence.size() / 4);
  const uint32_t word = Word(back);
  EXPECT_THAT(With(back, (word & 0xffff0000) | ((word + skip) & 0xffff)),
              HasSubstr("does not lead to the clone of its target"));
  // Its original offset, another condition.
  EXPECT_THAT(With(back, (word & 0xffff0000) | 3), HasSubstr("does not lead"));
  EXPECT_THAT(With(back, word - 0x10000), HasSubstr("is not the original's"));
}

TEST_F(CloneValidation, AddressesStayWhatTheyWere) {
  Everything();
  const uint64_t low = At("s_add_u32", 0) + 4, high = At("s_addc_u32", 0) + 4;
  EXPECT_NE(Word(low), 0x12345678u) << "the code moved";
  for (const uint32_t wrong : {0x12345678u, Word(low) + 4, Word(low) - 4}) {
    EXPECT_THAT(With(low, wrong), HasSubstr("a clone makes the address"));
  }
  EXPECT_THAT(With(high, Word(high) + 1), HasSubstr("a clone makes the address"));
}

TEST_F(CloneValidation, ClausesCoverWhatTheyMay) {
  Everything();
  const uint64_t clause = At("s_clause");
  const uint64_t second = At("global_load_b32", 2) - 4;
  const uint32_t two = 0xbf850001;  // gfx11: s_clause 0x1, two instructions
  ASSERT_EQ(Word(clause), two);
  ASSERT_EQ(Word(second), two);
  for (const uint32_t wrong : {kNop0, two - 1, two + 1, two + 2}) {
    EXPECT_THAT(With(clause, wrong), HasSubstr("is not the original's"));
    EXPECT_THAT(With(second, wrong), HasSubstr("lacks its s_clause"));
  }
}

TEST_F(CloneValidation, ClausesOfOneAreNone) {
  for (const int n : {1, 3}) Add(Probe::kNop, "global_load_b32", n);
  Emit();
  EXPECT_EQ(Findings(), "");
  EXPECT_EQ(Word(At("s_clause")), kNop0);
  EXPECT_EQ(Word(At("global_load_b32", 1) - 4), 0xbf850001u);
  EXPECT_NE(Word(At("global_load_b32", 3) - 4) & 0xffff0000, 0xbf850000u);
  EXPECT_THAT(With(At("s_clause"), 0xbf850000), HasSubstr("is not the original's"));
}

TEST_F(CloneValidation, ACloneWithoutSitesInItLeavesAClauseWhole) {
  Add(Probe::kNop, "v_add_f32", 0);
  Emit();
  EXPECT_EQ(Findings(), "");
  EXPECT_EQ(Word(At("s_clause")), 0xbf850003u);
  EXPECT_THAT(With(At("s_clause"), kNop0), HasSubstr("is not the original's"));
}

TEST_F(CloneValidation, DelayHintsDoNotReachAcrossASequence) {
  Everything();  // a sequence in front of the second instruction that is hinted at
  const uint64_t delay = At("s_delay_alu");
  const uint32_t first_only = 0xbf870001;
  ASSERT_EQ(Word(delay), first_only);
  for (const uint32_t wrong : {0xbf870111u, 0xbf870000u, 0xbf870002u, kNop0}) {
    EXPECT_THAT(With(delay, wrong), HasSubstr("is not the original's"));
  }
  plans_.clear();
  Add(Probe::kNop, "v_add_f32", 1);
  Emit();
  EXPECT_EQ(Findings(), "");
  EXPECT_EQ(Word(At("s_delay_alu")), 0xbf870000u);
}

TEST_F(CloneValidation, NothingMoreAndNothingLess) {
  Everything();
  std::vector<SitePlan> other = plans_;
  std::vector<uint8_t> code = other[1].sequence;
  code[0] ^= 1;
  other[1].sequence = code;
  EXPECT_THAT(Findings(&other), HasSubstr("does not hold the admitted sequence"));
  // A sequence that nobody admitted.
  const patch::RewriteResult whole = result_;
  std::vector<SitePlan> fewer = plans_;
  fewer.pop_back();
  result_.sites.pop_back();
  EXPECT_THAT(Findings(&fewer), HasSubstr("something foreign is in the clone"));
  result_ = whole;
  // One that is not there.
  std::vector<SitePlan> more = plans_;
  more.push_back(plans_[1]);
  more.back().instruction = 0;
  result_.sites.push_back({more.size() - 1, std::nullopt, result_.sites[1].trampoline_vaddr});
  EXPECT_NE(Findings(&more), "");
  result_ = whole;
  // On the other side of its instruction.
  other = plans_;
  other[1].position = other[2].position = Position::kAfter;
  EXPECT_NE(Findings(&other), "");
  // Two sequences of an instruction in another order.
  other = plans_;
  std::swap(other[1], other[2]);
  EXPECT_THAT(Findings(&other), HasSubstr("does not hold the admitted sequence"));
  EXPECT_EQ(Findings(), "");
}

TEST_F(CloneValidation, TheMapIsTrue) {
  Everything();
  const patch::RewriteResult whole = result_;
  for (size_t i = 0; i < whole.kernels[0].pcs.size(); ++i) {
    result_.kernels[0].pcs[i].emitted += 4;
    EXPECT_THAT(Findings(), HasSubstr("map is wrong")) << i;
    result_ = whole;
    result_.kernels[0].pcs[i].original += 4;
    EXPECT_THAT(Findings(), HasSubstr("map is wrong")) << i;
    result_ = whole;
  }
  result_.kernels[0].pcs.pop_back();
  EXPECT_THAT(Findings(), HasSubstr("map does not hold each instruction"));
  result_ = whole;
  result_.kernels[0].clone_vaddr += 256;
  EXPECT_THAT(Findings(), HasSubstr("not what was stated"));
  result_ = whole;
  result_.kernels[0].code_bytes += 4;
  EXPECT_THAT(Findings(), HasSubstr("not what was stated"));
  result_ = whole;
  result_.kernels.clear();
  EXPECT_THAT(Findings(), HasSubstr("a clone has no map"));
  result_ = whole;
  result_.sites[1].trampoline_vaddr += 4;
  EXPECT_THAT(Findings(), HasSubstr("not where the rewriter says"));
}

TEST_F(CloneValidation, TheDescriptorLeadsToTheClone) {
  Everything();
  const uint64_t field = FileOffset(kernel_->kernel().descriptor_vaddr) + 16;
  const uint32_t right = Word(field);
  EXPECT_NE(With(field, right + 256), "");
  EXPECT_NE(With(field, right + 4), "");
  const auto original =
      static_cast<uint32_t>(kernel_->kernel().entry_vaddr - kernel_->kernel().descriptor_vaddr);
  EXPECT_THAT(With(field, original), HasSubstr("does not lead to an aligned clone"));
}

TEST_F(CloneValidation, FixupsAreExactlyThoseOfTheSequences) {
  Everything();
  const auto fixups = result_.fixups;
  ASSERT_EQ(fixups.size(), 8u);
  result_.fixups.pop_back();
  EXPECT_THAT(Findings(), HasSubstr("missing"));
  result_.fixups = fixups;
  result_.fixups[0].offset += 8;
  EXPECT_NE(Findings(), "");
}

TEST_F(CloneValidation, NothingIsAdmittedBehindABranch) {
  Everything();
  std::vector<SitePlan> other = plans_;
  for (SitePlan& plan : other) {
    if (kernel_->instructions()[plan.instruction].branch) plan.position = Position::kAfter;
  }
  EXPECT_NE(Findings(&other), "");
}

// Images to be loaded beside the loaded original.
class BesideValidation : public CloneValidation {
 protected:
  BesideValidation() {
    beside_ = true;
    const uint32_t getpc = test::Loaded::Find(*kernel_, "s_getpc_b64");
    target_ = kernel_->kernel().entry_vaddr + kernel_->instructions()[getpc].offset + 4 +
              0x2345678912345678;
  }
  // Of the address's words.
  patch::WordFixup& Fixup(bool high) {
    for (patch::WordFixup& f : result_.fixups) {
      if (f.base == patch::FixupBase::kOriginal && f.high_half == high) return f;
    }
    ADD_FAILURE() << "no such fixup";
    return result_.fixups.front();
  }
  uint64_t target_ = 0;
};

TEST_F(BesideValidation, AnAddressIsTheOriginals) {
  Everything();
  EXPECT_EQ(Findings(), "");
  EXPECT_EQ(Word(At("s_getpc_b64")), 0xbe860180u) << "s_mov_b64 s[6:7], 0";
  ASSERT_EQ(result_.fixups.size(), 10u);
  for (const bool high : {false, true}) {
    EXPECT_EQ(Fixup(high).addend, target_);
    EXPECT_EQ(Fixup(high).offset, At(high ? "s_addc_u32" : "s_add_u32") + 4);
  }
  // It is no image to be loaded instead of the original, nor the other way round.
  beside_ = false;
  EXPECT_NE(Findings(), "");
  Emit();
  EXPECT_EQ(Findings(), "");
  beside_ = true;
  EXPECT_NE(Findings(), "");
}

TEST_F(BesideValidation, EachBitOfTheCloneCounts) {
  Everything();
  std::set<uint64_t> fixups;
  for (const auto& f : result_.fixups) {
    for (uint64_t byte = 0; byte < 4; ++byte) fixups.insert(f.offset + byte);
  }
  ASSERT_EQ(fixups.size(), 40u);
  const uint64_t start = FileOffset(result_.kernels[0].clone_vaddr);
  for (uint64_t i = 0; i < result_.kernels[0].code_bytes; ++i) {
    if (fixups.count(start + i) != 0) continue;
    for (const int bit : {0, 1, 2, 3, 4, 5, 6, 7}) {
      result_.image[start + i] ^= static_cast<uint8_t>(1 << bit);
      EXPECT_NE(Findings(), "") << "byte " << i << ", bit " << bit;
      result_.image[start + i] ^= static_cast<uint8_t>(1 << bit);
    }
  }
  EXPECT_EQ(Findings(), "");
}

TEST_F(BesideValidation, AReferenceToTheCopyIsFound) {
  Everything();
  const uint32_t getpc = test::Loaded::Find(*kernel_, "s_getpc_b64");
  uint32_t word = 0;
  std::memcpy(&word, kernel_->code().data() + kernel_->instructions()[getpc].offset, sizeof word);
  EXPECT_THAT(With(At(getpc), word), HasSubstr("is not the original's"));
  // -1, another pair, one half, and what is 0 in the register file.
  for (const uint32_t wrong : {0xbe8601c1u, 0xbe880180u, 0xbe860080u, 0xbe86017cu}) {
    EXPECT_THAT(With(At(getpc), wrong), HasSubstr("is not the original's"));
  }
}

TEST_F(BesideValidation, FixupsAreExactlyThoseOfTheAddresses) {
  Everything();
  const patch::RewriteResult whole = result_;
  for (const bool high : {false, true}) {
    for (const uint64_t wrong : {target_ + 4, target_ - 4, target_ + (uint64_t{1} << 32),
                                 uint64_t{0}, kernel_->kernel().entry_vaddr}) {
      Fixup(high).addend = wrong;
      EXPECT_THAT(Findings(), HasSubstr("nor to a clone's address"));
      result_ = whole;
    }
    Fixup(high).base = patch::FixupBase::kCounters;
    EXPECT_THAT(Findings(), HasSubstr("nor to a clone's address"));
    result_ = whole;
    Fixup(high).high_half = !high;
    EXPECT_NE(Findings(), "");
    result_ = whole;
    Fixup(high).offset += 4;
    EXPECT_NE(Findings(), "");
    result_ = whole;
    const uint64_t gone = Fixup(high).offset;
    std::erase_if(result_.fixups, [&](const auto& f) { return f.offset == gone; });
    EXPECT_THAT(Findings(), HasSubstr("missing"));
    result_ = whole;
    result_.fixups.push_back(Fixup(high));
    EXPECT_NE(Findings(), "") << "twice";
    result_ = whole;
  }
  EXPECT_EQ(Findings(), "");
}

TEST_F(BesideValidation, NoSequenceIsGivenTheOriginalsAddress) {
  Everything();
  const auto counts = std::find_if(plans_.begin(), plans_.end(),
                                   [](const SitePlan& plan) { return !plan.fixups.empty(); });
  ASSERT_NE(counts, plans_.end());
  std::vector<patch::WordFixup> fixups(counts->fixups.begin(), counts->fixups.end());
  for (patch::WordFixup& f : fixups) f.base = patch::FixupBase::kOriginal;
  counts->fixups = fixups;
  Emit();
  EXPECT_THAT(Findings(), HasSubstr("to be given the original's address"));
}

TEST_F(BesideValidation, TrampolinesAreNone) {
  const auto plan = rewriter_->Plan(*kernel_, 0, {.probe = Probe::kNop});
  ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
  plans_.push_back(std::get<SitePlan>(plan));
  EXPECT_FALSE(rewriter_->Emit(loaded_.object(), {kernel_}, plans_, true).ok());
  beside_ = false;
  auto result = rewriter_->Emit(loaded_.object(), {kernel_}, plans_);
  ASSERT_TRUE(result.ok()) << result.status();
  result_ = *std::move(result);
  EXPECT_EQ(Findings(), "");
  beside_ = true;
  EXPECT_THAT(Findings(), HasSubstr("a trampoline is in an image"));
}

// The forms of other generations: a sign extension on gfx12.
TEST(BesideOnGfx12, TheSignExtensionIsOfNothing) {
  test::AsmKernel k;
  k.body =
      "s_getpc_b64 s[4:5]\ns_sext_i32_i16 s5, s5\ns_add_co_u32 s4, s4, 0xfffff000\n"
      "s_add_co_ci_u32 s5, s5, 0x12345678\ns_load_b32 s6, s[4:5], 0x0\ns_endpgm";
  test::Loaded loaded(test::AssembleObject("gfx1201", 32, {k}));
  const patch::KernelAnalysis& kernel = loaded.Kernel();
  const auto rewriter = patch::MakeTrampolineRewriter();
  const auto plan =
      rewriter->Plan(kernel, 4, {.probe = Probe::kNop, .placement = Placement::kClone});
  ASSERT_TRUE(std::holds_alternative<SitePlan>(plan)) << std::get<patch::Refusal>(plan).detail;
  const std::vector<SitePlan> plans = {std::get<SitePlan>(plan)};
  const auto result = rewriter->Emit(loaded.object(), {&kernel}, plans, true);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto report = ValidateImage(loaded.object(), {&kernel}, plans, *result, true);
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].what;
  ASSERT_EQ(result->fixups.size(), 2u);
  EXPECT_EQ(result->fixups[0].addend, kernel.kernel().entry_vaddr + 4 + 0x12345678fffff000);
  EXPECT_EQ(result->fixups[1].addend, result->fixups[0].addend);
}

// What the rewriter would not clone, the proof does not accept either: the same
// bytes at another place, honestly described.
TEST(CloneOfWhatCannotBeCloned, IsNotProven) {
  const struct {
    std::string body, finding;
  } kCases[] = {
      {"s_getpc_b64 s[4:5]\ns_nop 0\ns_add_u32 s4, s6, 0x12345678\ns_endpgm",
       "reads the program counter for an unknown purpose"},
      {"s_getpc_b64 s[4:5]\n.Lin:\ns_add_u32 s4, s4, 0x12345678\n"
       "s_addc_u32 s5, s5, 0x12345678\ns_cbranch_scc1 .Lin\ns_endpgm",
       "reads the program counter for an unknown purpose"},
      {"s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_mov_b32 s6, s5\n"
       "s_addc_u32 s5, s5, 0x12345678\ns_endpgm",
       "reads the program counter for an unknown purpose"},
      {"s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
       "v_mov_b32_e32 v0, 0\ns_cbranch_scc1 .Lend\n.Lend:\ns_endpgm",
       "reads what an address carries"},
      {"s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 0x12345678\ns_addc_u32 s5, s5, 0x12345678\n"
       "s_branch .Lfar\ns_nop 0\n.Lfar:\ns_cselect_b32 s6, 1, 0\ns_endpgm",
       "reads what an address carries"},
      {"s_setpc_b64 s[4:5]\ns_endpgm", "depends on its address"},
      {"s_call_b64 s[4:5], 0\ns_endpgm", "depends on its address"},
      {"s_branch 100\ns_endpgm", "leads elsewhere"},
      {"s_nop 0\nv_mov_b32_e32 v0, 0", "that control leaves at its end"},
      {"s_clause 0x5\nglobal_load_dword v2, v0, s[4:5]\ns_endpgm", "extent is not certain"},
      {".long 0xffffffff\ns_endpgm", "does not decode"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.body);
    test::AsmKernel k;
    k.body = test.body;
    test::Loaded loaded(test::AssembleObject("gfx1030", 32, {k}));
    const patch::KernelAnalysis& kernel = loaded.Kernel();
    EXPECT_TRUE(kernel.CloneObstacle().has_value());
    patch::KernelOutcome claimed;
    claimed.placement = Placement::kClone;
    claimed.clone_vaddr = 0x10000;
    claimed.code_bytes = kernel.code().size();
    for (const auto& in : kernel.instructions()) {
      const auto offset = static_cast<uint32_t>(in.offset);
      claimed.pcs.push_back({offset, offset});
    }
    ObjectCode object(loaded.object());
    const KernelCode code(object, kernel.kernel_index(), kernel.isa());
    const CloneProof proof = ProveClone(code, {}, {}, claimed, kernel.code(), 0x10000);
    ASSERT_EQ(proof.findings.size(), 1u);
    EXPECT_THAT(proof.findings[0].what, HasSubstr(test.finding));
  }
}

// gfx10.1 gets the branch offset 0x3f wrong: a word behind the branch avoids it.
TEST(CloneOnGfx1010, AvoidsTheOffsetThatTheProcessorGetsWrong) {
  test::AsmKernel k;
  k.body = "s_nop 1\ns_cbranch_scc1 .Lend\n.rept 62\ns_nop 2\n.endr\n.Lend:\ns_nop 3\ns_endpgm";
  test::Loaded loaded(test::AssembleObject("gfx1010", 32, {k}));
  const patch::KernelAnalysis& kernel = loaded.Kernel();
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  for (const uint32_t i : {5u, 0u}) {  // a word between branch and target makes it 0x3f
    const auto plan =
        rewriter->Plan(kernel, i, {.probe = Probe::kNop, .placement = Placement::kClone});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
    plans.push_back(std::get<SitePlan>(plan));
  }
  auto result = rewriter->Emit(loaded.object(), {&kernel}, plans);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto report = ValidateImage(loaded.object(), {&kernel}, plans, *result);
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].what;
  const auto image = patch::CodeObject::Parse(result->image);
  const uint64_t branch =
      *image->VaddrToOffset(result->kernels[0].clone_vaddr + result->kernels[0].pcs[1].emitted);
  EXPECT_EQ(result->image[branch], 0x40);
  // Without the word the target is right, and the offset wrong.
  result->image[branch] = 0x3f;
  EXPECT_FALSE(ValidateImage(loaded.object(), {&kernel}, plans, *result).findings.empty());
}

// Firmware that preloads arguments enters 256 bytes behind the entry: a sequence in
// front of that moves what it would run.
TEST(ClonePreload, TheSecondEntryIsAtItsPlace) {
  test::AsmKernel k;
  k.body =
      "s_load_dwordx2 s[2:3], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\ns_branch .Lmain\n"
      ".p2align 8, , 256\n.Lmain:\nv_mov_b32_e32 v0, s2\ns_endpgm";
  k.preload_dwords = 2;
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {k}));
  const patch::KernelAnalysis& kernel = loaded.Kernel();
  ObjectCode object(loaded.object());
  const KernelCode code(object, kernel.kernel_index(), kernel.isa());
  constexpr uint64_t kBase = 0x10000;
  const std::vector<uint8_t> nop = {0x00, 0x00, 0x80, 0xbf};
  for (const uint32_t at : {0u, 1u, *kernel.InstructionAt(256)}) {
    patch::CloneInsertion insertion;
    insertion.instruction = at;
    insertion.before = nop;
    patch::BranchEncoding encoding;
    encoding.branch = 0xbf820000;
    encoding.nop = 0xbf800000;
    const auto made = patch::MakeClone(kernel, {insertion}, kBase, encoding);
    ASSERT_TRUE(std::holds_alternative<patch::Clone>(made));
    const auto& clone = std::get<patch::Clone>(made);
    SitePlan plan;
    plan.instruction = at;
    plan.placement = Placement::kClone;
    plan.sequence = nop;
    patch::KernelOutcome claimed;
    claimed.placement = Placement::kClone;
    claimed.clone_vaddr = kBase;
    claimed.code_bytes = clone.bytes.size();
    for (size_t i = 0; i < clone.places.size(); ++i) {
      claimed.pcs.push_back(
          {static_cast<uint32_t>(kernel.instructions()[i].offset), clone.places[i]});
    }
    const CloneProof proof = ProveClone(code, {plan}, {0}, claimed, clone.bytes, kBase);
    if (kernel.instructions()[at].offset == 256) {
      EXPECT_TRUE(proof.findings.empty());
    } else {
      ASSERT_EQ(proof.findings.size(), 1u);
      EXPECT_THAT(proof.findings[0].what, HasSubstr("second entry"));
    }
  }
}

}  // namespace
}  // namespace rjdbi::contract
