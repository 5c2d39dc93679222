// Admission, validation included, of Triton's code objects: count-waves at every
// memory instruction, as clones and with trampolines. They have arguments preloaded
// (two entries) where the processor can, and cover the processors that only a newer
// LLVM knows. Prints outcomes by constraint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "contract/admission.h"
#include "contract/inspect.h"
#include "patch/isa/isa.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"

namespace rjdbi::contract {
namespace {

using testing::HasSubstr;

struct Processor {
  const char* name;
  int min_llvm;
  bool two_entries;
};
constexpr Processor kProcessors[] = {
    {"gfx90a", 19, true},   {"gfx942", 19, true},   {"gfx950", 20, true},   {"gfx1030", 19, false},
    {"gfx1100", 19, false}, {"gfx1201", 19, false}, {"gfx1250", 22, false},
};

std::vector<uint8_t> ReadObject(const std::string& kernel, const std::string& processor) {
  std::ifstream in(
      std::string(RJDBI_SOURCE_DIR) + "/tests/corpus/triton/" + kernel + "-" + processor + ".co",
      std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Admission AdmitMemory(const std::vector<uint8_t>& object, v1::Placement placement) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  attachment.mutable_spec()->set_placement(placement);
  attachment.mutable_spec()->mutable_budget()->set_max_vgpr_delta(16);
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  Policy policy = DefaultPolicy();
  policy.ceiling.set_max_vgpr_delta(16);
  auto rewriter = patch::MakeTrampolineRewriter();
  return Admit(object, {attachment}, policy, *rewriter);
}

using Variant = std::tuple<Processor, const char*, v1::Placement>;
class TritonCorpus : public testing::TestWithParam<Variant> {};

TEST_P(TritonCorpus, EveryMemoryInstruction) {
  const auto& [processor, kernel, placement] = GetParam();
  const std::vector<uint8_t> bytes = ReadObject(kernel, processor.name);
  ASSERT_FALSE(bytes.empty());
  const Admission a = WithDecisions(AdmitMemory(bytes, placement));
  EXPECT_THAT(a.record.isa(), HasSubstr(processor.name));
  if (patch::LlvmVersion() < processor.min_llvm) {
    ASSERT_EQ(a.record.object_violations_size(), 1);
    EXPECT_EQ(a.record.object_violations(0).constraint_id(), "RJD-O005");
    EXPECT_THAT(a.record.object_violations(0).ShortDebugString(),
                HasSubstr("needs LLVM " + std::to_string(processor.min_llvm)));
    EXPECT_TRUE(a.patched.empty());
    return;
  }
  ASSERT_EQ(a.record.object_violations_size(), 0)
      << a.record.object_violations(0).ShortDebugString();
  std::map<std::string, size_t> refused;
  size_t attached = 0;
  for (const v1::Decision& d : a.record.decisions()) {
    attached +=
        d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
    if (d.violations_size() > 0) ++refused[d.violations(0).constraint_id()];
  }
  std::printf("%s %s %s: %d sites, %zu attached\n", processor.name, kernel,
              v1::Placement_Name(placement).c_str(), a.record.decisions_size(), attached);
  for (const auto& [constraint, sites] : refused) {
    std::printf("  refused, %s: %zu\n", constraint.c_str(), sites);
  }
  EXPECT_GT(attached, 0u);
  // All but the loads that only firmware without preloading runs.
  const size_t before_entry = refused["RJD-O004"];
  EXPECT_EQ(attached + before_entry, static_cast<size_t>(a.record.decisions_size()));
  EXPECT_EQ(before_entry > 0, processor.two_entries);
  ASSERT_EQ(a.record.coverage_size(), 1);
  EXPECT_EQ(a.record.coverage(0).placement().placement(), placement)
      << a.record.coverage(0).ShortDebugString();

  // A clone's original keeps its code; with trampolines only anchors differ.
  const auto before = patch::CodeObject::Parse(bytes), after = patch::CodeObject::Parse(a.patched);
  ASSERT_TRUE(before.ok() && after.ok());
  const patch::Kernel& original = before->kernels()[0];
  const auto was = before->AtVaddr(original.entry_vaddr, original.code_size);
  const auto is = after->AtVaddr(original.entry_vaddr, original.code_size);
  ASSERT_EQ(was.size(), is.size());
  size_t changed = 0;
  for (size_t at = 0; at < was.size(); at += 4) {
    changed += !std::equal(was.begin() + at, was.begin() + at + 4, is.begin() + at);
  }
  EXPECT_LE(changed, placement == v1::CLONE ? 0 : 3 * attached);
  EXPECT_EQ(after->kernels()[0].descriptor.kernarg_preload, original.descriptor.kernarg_preload);
}

INSTANTIATE_TEST_SUITE_P(Objects, TritonCorpus,
                         testing::Combine(testing::ValuesIn(kProcessors),
                                          testing::Values("add", "cumsum", "softmax"),
                                          testing::Values(v1::TRAMPOLINE, v1::CLONE)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::get<1>(info.param) + "_" +
                                  v1::Placement_Name(std::get<2>(info.param));
                         });

}  // namespace
}  // namespace rjdbi::contract
