// Every code object of two real libraries, all targets: parses, describes its
// kernels, decodes, and survives a rewrite that changes nothing but adds code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "patch/codeobject/code_object.h"
#include "patch/codeobject/code_object_writer.h"
#include "patch/isa/isa.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi {
namespace {

using patch::CodeObject;
using patch::Isa;
using patch::Kernel;

// Kernels decoded in each object: all would take minutes.
constexpr size_t kSampledKernels = 12;

struct Tally {
  size_t objects = 0, refused = 0, kernels = 0, decoded_kernels = 0, instructions = 0;
  size_t without_isa = 0, rewritten = 0;
  std::map<std::string, size_t> targets;
};

class CorpusTest : public testing::TestWithParam<const char*> {
 protected:
  Isa* IsaFor(const CodeObject& object, uint32_t wavefront_size) {
    const std::string key = object.target().ToString() + "/" + std::to_string(wavefront_size);
    auto at = isas_.find(key);
    if (at == isas_.end()) {
      absl::StatusOr<std::unique_ptr<Isa>> isa = Isa::Create(object.target(), wavefront_size);
      EXPECT_TRUE(isa.ok() || absl::IsUnimplemented(isa.status())) << isa.status();
      at = isas_.emplace(key, isa.ok() ? *std::move(isa) : nullptr).first;
    }
    return at->second.get();
  }

  void CheckKernel(const CodeObject& object, const Kernel& kernel) {
    EXPECT_EQ(object.AtVaddr(kernel.descriptor_vaddr, 64).size(), 64u) << kernel.name;
    EXPECT_EQ(kernel.entry_vaddr % 256, 0u) << kernel.name;
    EXPECT_GT(kernel.code_size, 0u) << kernel.name;
    EXPECT_EQ(object.AtVaddr(kernel.entry_vaddr, kernel.code_size).size(), kernel.code_size);
    EXPECT_EQ(kernel.metadata.symbol, kernel.name + ".kd");
    EXPECT_TRUE(kernel.metadata.vgpr_count.has_value()) << kernel.name;
    EXPECT_EQ(kernel.metadata.wavefront_size, kernel.wavefront_size) << kernel.name;
    EXPECT_EQ(kernel.metadata.group_segment_fixed_size, kernel.descriptor.group_segment_fixed_size);
    EXPECT_EQ(kernel.metadata.kernarg_segment_size, kernel.descriptor.kernarg_size);
  }

  // Whole kernel, instruction by instruction; offsets checked against the text.
  void DecodeKernel(const CodeObject& object, const Kernel& kernel, Tally& tally) {
    Isa* isa = IsaFor(object, kernel.wavefront_size);
    if (isa == nullptr) {
      ++tally.without_isa;
      return;
    }
    const auto code = object.AtVaddr(kernel.entry_vaddr, kernel.code_size);
    uint64_t offset = 0;
    bool ended = false;
    while (offset < code.size()) {
      const auto inst = isa->Decode(code, offset);
      ASSERT_TRUE(inst.has_value()) << kernel.name << "+" << offset;
      ended |= inst->ends_program;
      if (inst->memory_offset != 0 && tally.instructions % 16 == 0) {
        CheckOffset(*inst, isa->Print(code, offset));
      }
      offset += inst->size;
      ++tally.instructions;
    }
    EXPECT_EQ(offset, code.size()) << kernel.name;
    EXPECT_TRUE(ended) << kernel.name;
    ++tally.decoded_kernels;
  }

  void CheckOffset(const patch::Instruction& inst, const std::string& text) {
    const size_t at = text.find(" offset:");
    if (at == std::string::npos) return;  // scalar loads and offset pairs print otherwise
    EXPECT_EQ(inst.memory_offset, std::stoll(text.substr(at + 8), nullptr, 0)) << text;
  }

  void Rewrite(const CodeObject& object, Tally& tally) {
    patch::CodeObjectEdit edit;
    edit.new_segment.assign(256, 0);
    const auto vaddr = patch::NewSegmentVaddr(object);
    ASSERT_TRUE(vaddr.ok()) << vaddr.status();
    const auto bytes = patch::WriteCodeObject(object, edit);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto again = CodeObject::Parse(*bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->segments().back().vaddr, *vaddr);
    EXPECT_EQ(again->kernels().size(), object.kernels().size());
    ++tally.rewritten;
  }

  std::map<std::string, std::unique_ptr<Isa>> isas_;
};

TEST_P(CorpusTest, EveryObjectParsesAndDecodes) {
  auto file = test::MappedFile::Open(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  auto objects = test::ExtractBundles(file->bytes());
  ASSERT_TRUE(objects.ok()) << objects.status();
  Tally tally;
  for (const test::BundledObject& bundled : *objects) {
    SCOPED_TRACE(bundled.target + " in bundle " + std::to_string(bundled.bundle));
    ++tally.objects;
    auto object = CodeObject::Parse(bundled.bytes);
    if (!object.ok()) {
      EXPECT_EQ(object.status().code(), absl::StatusCode::kUnimplemented) << object.status();
      ++tally.refused;
      continue;
    }
    EXPECT_THAT(bundled.target, testing::EndsWith(object->target().ToString()));
    ++tally.targets[object->target().ToString()];
    const size_t stride = std::max<size_t>(1, object->kernels().size() / kSampledKernels);
    for (size_t i = 0; i < object->kernels().size(); ++i) {
      ++tally.kernels;
      CheckKernel(*object, object->kernels()[i]);
      if (i % stride == 0) DecodeKernel(*object, object->kernels()[i], tally);
    }
    if (bundled.bundle % 8 == 0) Rewrite(*object, tally);
  }
  std::printf(
      "%zu objects (%zu refused as unimplemented), %zu kernels, %zu decoded (%zu without tables), "
      "%zu instructions, %zu rewritten\n",
      tally.objects, tally.refused, tally.kernels, tally.decoded_kernels, tally.without_isa,
      tally.instructions, tally.rewritten);
  for (const auto& [target, count] : tally.targets) {
    std::printf("  %-52s %zu\n", target.c_str(), count);
  }
  EXPECT_GT(tally.objects, 0u);
  EXPECT_GT(tally.kernels, 0u);
  EXPECT_GT(tally.decoded_kernels, 0u);
  EXPECT_GT(tally.rewritten, 0u);
}

INSTANTIATE_TEST_SUITE_P(Libraries, CorpusTest, testing::Values(RJDBI_ROCRAND, RJDBI_ROCSPARSE));

}  // namespace
}  // namespace rjdbi
