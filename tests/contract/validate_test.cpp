// The validator, by corrupting each part of an image that was fine.
#include "contract/validate.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

// Two counted loads in one kernel, another kernel untouched.
class Validation : public testing::Test {
 protected:
  Validation() : loaded_(Object()) {
    kernel_ = &loaded_.Kernel("k");
    auto rewriter = patch::MakeTrampolineRewriter();
    for (int n : {0, 1}) {
      const uint32_t i = test::Loaded::Find(*kernel_, "global_load_dword", n);
      auto plan = rewriter->Plan(*kernel_, i, {patch::Probe::kCountWaves, uint32_t(n), 16, 8});
      EXPECT_TRUE(std::holds_alternative<patch::SitePlan>(plan));
      plans_.push_back(std::get<patch::SitePlan>(plan));
    }
    auto result = rewriter->Emit(loaded_.object(), {kernel_}, plans_);
    EXPECT_TRUE(result.ok()) << result.status();
    result_ = *std::move(result);
    auto parsed = patch::CodeObject::Parse(result_.image);
    EXPECT_TRUE(parsed.ok());
    image_ = std::make_unique<patch::CodeObject>(*parsed);
  }

  static std::vector<uint8_t> Object() {
    test::AsmKernel k, other;
    k.body =
        "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v1, 0\n"
        "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5] offset:4\n"
        "s_waitcnt vmcnt(0)\nv_add_u32_e32 v2, v2, v3\nglobal_store_dword v1, v2, s[4:5]\n"
        "s_endpgm";
    other.name = "other";
    other.body = "s_nop 0\ns_endpgm";
    return test::AssembleObject("gfx90a", 64, {k, other});
  }

  uint64_t At(uint64_t vaddr) const { return *image_->VaddrToOffset(vaddr); }
  void Flip(uint64_t offset) { result_.image[offset] ^= 0x04; }
  uint64_t Anchor(int n) const {
    return kernel_->kernel().entry_vaddr + kernel_->instructions()[plans_[n].instruction].offset;
  }
  std::string Findings() {
    std::string text;
    const auto report = ValidateImage(loaded_.object(), {kernel_}, plans_, result_);
    for (const auto& f : report.findings) text += f.what + "\n";
    return text;
  }

  test::Loaded loaded_;
  const patch::KernelAnalysis* kernel_ = nullptr;
  std::vector<patch::SitePlan> plans_;
  patch::RewriteResult result_;
  std::unique_ptr<patch::CodeObject> image_;
};

TEST_F(Validation, WhatTheRewriterMakesIsFine) {
  EXPECT_EQ(Findings(), "");
  const auto report = ValidateImage(loaded_.object(), {kernel_}, plans_, result_);
  // The jump there, the sequence, the jump back.
  EXPECT_EQ(report.executed_instructions[0], plans_[0].injected_instructions);
}

TEST_F(Validation, AnotherInstructionChanged) {
  Flip(At(kernel_->kernel().entry_vaddr));
  EXPECT_THAT(Findings(), HasSubstr("an original byte changed"));
}

TEST_F(Validation, AnotherKernelChanged) {
  Flip(At(loaded_.object().kernels()[1].entry_vaddr));
  EXPECT_THAT(Findings(), HasSubstr("an original byte changed"));
}

TEST_F(Validation, AnotherKernelsDescriptorChanged) {
  for (size_t i = 0; i < 2; ++i) {
    const auto& k = loaded_.object().kernels()[i];
    if (k.name == "other") Flip(At(k.descriptor_vaddr + 48));
  }
  EXPECT_NE(Findings(), "");
}

TEST_F(Validation, AnchorLeadsElsewhere) {
  Flip(At(Anchor(0)));
  EXPECT_NE(Findings(), "");
}

TEST_F(Validation, AnchorPutBack) {
  const auto original = loaded_.object().AtVaddr(Anchor(0), 8);
  std::copy(original.begin(), original.end(), result_.image.begin() + At(Anchor(0)));
  EXPECT_THAT(Findings(), HasSubstr("the anchor is not a branch"));
}

TEST_F(Validation, AnchorsExchanged) {
  std::swap(result_.sites[0].trampoline_vaddr, result_.sites[1].trampoline_vaddr);
  EXPECT_THAT(Findings(), HasSubstr("the anchor leads to"));
}

TEST_F(Validation, EachByteOfATrampolineCounts) {
  const uint64_t start = result_.sites[0].trampoline_vaddr;
  const uint64_t size = plans_[0].sequence.size() + 8 + 4;  // displaced, jump back
  for (uint64_t i = 0; i < size; ++i) {
    bool fixup = false;
    for (const auto& f : plans_[0].fixups) fixup |= i >= f.offset && i < f.offset + 4;
    if (fixup) continue;
    Flip(At(start + i));
    EXPECT_NE(Findings(), "") << "byte " << i;
    Flip(At(start + i));
  }
  EXPECT_EQ(Findings(), "");
}

TEST_F(Validation, DescriptorChangedBeyondRegisters) {
  const uint64_t descriptor = At(kernel_->kernel().descriptor_vaddr);
  for (const uint64_t byte : {0u, 4u, 8u, 16u, 40u, 50u, 52u, 56u}) {
    Flip(descriptor + byte);
    EXPECT_NE(Findings(), "") << "descriptor byte " << byte;
    Flip(descriptor + byte);
  }
  EXPECT_EQ(Findings(), "");
}

TEST_F(Validation, AllocationTooSmallForTheTrampoline) {
  // ACCUM_OFFSET 0: four architectural registers, and less than before.
  result_.image[At(kernel_->kernel().descriptor_vaddr) + 44] &= 0xc0;
  const std::string findings = Findings();
  EXPECT_THAT(findings, HasSubstr("shrank"));
}

TEST_F(Validation, FixupsMissingExtraOrWrong) {
  auto fixups = result_.fixups;
  result_.fixups.pop_back();
  EXPECT_THAT(Findings(), HasSubstr("missing"));
  result_.fixups = fixups;
  result_.fixups[0].addend += 8;
  EXPECT_THAT(Findings(), HasSubstr("belongs to no admitted sequence"));
  result_.fixups = fixups;
  result_.fixups.push_back(fixups[0]);
  EXPECT_THAT(Findings(), HasSubstr("belongs to no admitted sequence"));
  result_.fixups = fixups;
  result_.fixups[0].offset += 4;
  EXPECT_NE(Findings(), "");
}

TEST_F(Validation, SegmentsAndHeaders) {
  const std::vector<uint8_t> good = result_.image;
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr p;
    const uint64_t at = header.e_phoff + i * sizeof p;
    std::memcpy(&p, good.data() + at, sizeof p);
    if (p.p_type != PT_LOAD) continue;
    p.p_flags ^= PF_W;
    std::memcpy(result_.image.data() + at, &p, sizeof p);
    EXPECT_NE(Findings(), "") << "program header " << i;
    result_.image = good;
  }
  result_.image.resize(result_.image.size() / 2);
  EXPECT_NE(Findings(), "");
  result_.image.clear();
  EXPECT_NE(Findings(), "");
  result_.image =
      std::vector<uint8_t>(loaded_.object().bytes().begin(), loaded_.object().bytes().end());
  EXPECT_THAT(Findings(), HasSubstr("load segments"));
}

// Two clauses: the load in the middle of the first has a probe, or its s_clause
// has. `far`: the kernel runs from a copy.
class SplitClause : public testing::TestWithParam<bool> {
 protected:
  SplitClause() : loaded_(Object(GetParam())), kernel_(&loaded_.Kernel()) { Emit({2}); }

  static std::vector<uint8_t> Object(bool far) {
    const std::string clause =
        "s_clause 0x2\nglobal_load_dword v2, v0, s[4:5]\n"
        "global_load_dword v3, v0, s[4:5] offset:4\nglobal_load_dword v4, v0, s[4:5] offset:8\n";
    test::AsmKernel k, behind;
    k.body = clause + clause + "s_nop 3\ns_endpgm";
    behind.name = "behind";
    behind.body = far ? ".rept 60000\ns_nop 1\n.endr\ns_endpgm" : "s_endpgm";
    return test::AssembleObject("gfx1030", 32, {k, behind});
  }

  void Emit(const std::vector<uint32_t>& sites) {
    auto rewriter = patch::MakeTrampolineRewriter();
    plans_.clear();
    for (const uint32_t i : sites) {
      auto plan = rewriter->Plan(*kernel_, i, {patch::Probe::kNop, 0, 16, 8});
      ASSERT_TRUE(std::holds_alternative<patch::SitePlan>(plan));
      plans_.push_back(std::get<patch::SitePlan>(plan));
    }
    auto result = rewriter->Emit(loaded_.object(), {kernel_}, plans_);
    ASSERT_TRUE(result.ok()) << result.status();
    result_ = *std::move(result);
    ASSERT_FALSE(result_.sites[0].refusal.has_value());
    image_ = std::make_unique<patch::CodeObject>(*patch::CodeObject::Parse(result_.image));
    EXPECT_EQ(image_->kernels()[0].entry_vaddr != kernel_->kernel().entry_vaddr, GetParam());
  }

  // File offset of instruction i, in the code that runs.
  uint64_t At(uint32_t i) const {
    return *image_->VaddrToOffset(image_->kernels()[0].entry_vaddr +
                                  kernel_->instructions()[i].offset);
  }
  uint32_t Word(uint64_t offset) const {
    uint32_t word = 0;
    std::memcpy(&word, result_.image.data() + offset, sizeof word);
    return word;
  }
  void SetWord(uint64_t offset, uint32_t word) {
    std::memcpy(result_.image.data() + offset, &word, sizeof word);
  }
  std::string Findings() const {
    std::string text;
    for (const auto& f : ValidateImage(loaded_.object(), {kernel_}, plans_, result_).findings) {
      text += f.what + "\n";
    }
    return text;
  }

  static constexpr uint32_t kNop0 = 0xbf800000, kClause3 = 0xbfa10002;
  test::Loaded loaded_;
  const patch::KernelAnalysis* kernel_;
  std::vector<patch::SitePlan> plans_;
  patch::RewriteResult result_;
  std::unique_ptr<patch::CodeObject> image_;
};

INSTANTIATE_TEST_SUITE_P(InPlaceAndCopied, SplitClause, testing::Bool());

TEST_P(SplitClause, IsFineWhateverThePlanSaysOfIt) {
  EXPECT_EQ(Findings(), "");
  EXPECT_EQ(Word(At(0)), kNop0);
  plans_[0].broken_clause.reset();
  EXPECT_EQ(Findings(), "");
  plans_[0].broken_clause = 4;
  EXPECT_EQ(Findings(), "");
}

TEST_P(SplitClause, TakesNothingButNop0) {
  for (const uint32_t word : {kClause3, kClause3 - 1, kNop0 + 1, 0xbf810000u, 0xbf820000u, 0u}) {
    SetWord(At(0), word);
    EXPECT_THAT(Findings(), HasSubstr("is not split")) << std::hex << word;
  }
  SetWord(At(0), kNop0);
  EXPECT_EQ(Findings(), "");
}

TEST_P(SplitClause, LeavesOtherClausesAlone) {
  ASSERT_EQ(Word(At(4)), kClause3);
  SetWord(At(4), kNop0);
  EXPECT_NE(Findings(), "");
  plans_[0].broken_clause = 4;
  EXPECT_NE(Findings(), "") << "the plan does not decide";
}

TEST_P(SplitClause, AnUnprobedClauseMayNotBeSplit) {
  Emit({8});
  EXPECT_EQ(Findings(), "");
  SetWord(At(0), kNop0);
  EXPECT_NE(Findings(), "");
}

TEST_P(SplitClause, TheOriginalOfACopyStays) {
  if (!GetParam()) {
    EXPECT_EQ(At(0), *image_->VaddrToOffset(kernel_->kernel().entry_vaddr));
    return;
  }
  SetWord(*image_->VaddrToOffset(kernel_->kernel().entry_vaddr), kNop0);
  EXPECT_THAT(Findings(), HasSubstr("an original byte changed"));
}

TEST_P(SplitClause, AProbedClauseInstructionIsNop0InItsTrampoline) {
  Emit({0, 3});
  EXPECT_EQ(Findings(), "");
  const uint64_t displaced =
      *image_->VaddrToOffset(result_.sites[0].trampoline_vaddr) + plans_[0].sequence.size();
  ASSERT_EQ(Word(displaced), kNop0);
  for (const uint32_t word : {kClause3, 0xbf810000u}) {
    SetWord(displaced, word);
    EXPECT_THAT(Findings(), HasSubstr("displaced instruction is not in the trampoline"));
  }
}

// A probed s_cbranch: condition, way on, way to the target.
TEST(ValidationOfBranches, EachWordOfTheWayOutCounts) {
  for (const bool conditional : {true, false}) {
    test::AsmKernel k;
    k.body = std::string(conditional ? "s_cbranch_scc1" : "s_branch") +
             " .Lend\ns_nop 1\ns_nop 2\n.Lend:\ns_nop 3\ns_endpgm";
    test::Loaded loaded(test::AssembleObject("gfx1030", 32, {k}));
    auto rewriter = patch::MakeTrampolineRewriter();
    const auto plan = rewriter->Plan(loaded.Kernel(), 0, {patch::Probe::kNop, 0, 0, 0});
    ASSERT_TRUE(std::holds_alternative<patch::SitePlan>(plan));
    const std::vector<patch::SitePlan> plans = {std::get<patch::SitePlan>(plan)};
    auto result = rewriter->Emit(loaded.object(), {&loaded.Kernel()}, plans);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto report = ValidateImage(loaded.object(), {&loaded.Kernel()}, plans, *result);
    EXPECT_TRUE(report.findings.empty()) << report.findings[0].what;
    EXPECT_EQ(report.executed_instructions[0], plans[0].injected_instructions);
    const auto image = patch::CodeObject::Parse(result->image);
    const uint64_t out = *image->VaddrToOffset(result->sites[0].trampoline_vaddr) + 4;
    for (uint64_t byte = 0; byte < (conditional ? 12u : 4u); ++byte) {
      for (const int bit : {0, 1, 2}) {
        result->image[out + byte] ^= 1 << bit;
        const auto found = ValidateImage(loaded.object(), {&loaded.Kernel()}, plans, *result);
        EXPECT_FALSE(found.findings.empty()) << "byte " << byte << ", bit " << bit;
        result->image[out + byte] ^= 1 << bit;
      }
    }
  }
}

TEST_F(Validation, AnotherSequenceThanTheAdmittedOne) {
  std::vector<uint8_t> code = plans_[1].sequence;
  code[0] ^= 1;
  plans_[1].sequence = code;
  EXPECT_THAT(Findings(), HasSubstr("not the admitted sequence"));
}

}  // namespace
}  // namespace rjdbi::contract
