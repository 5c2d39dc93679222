// Compilers' waits suffice: over all kernels of two libraries, for every processor that
// they are compiled for, nothing is found.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "contract/waitcheck.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

struct Tally {
  size_t objects = 0, kernels = 0, incomplete = 0;
  uint64_t instructions = 0, waits = 0, findings = 0;
};

class WaitCorpus : public testing::TestWithParam<const char*> {};

TEST_P(WaitCorpus, NothingIsMissing) {
  const auto file = test::MappedFile::Open(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto objects = test::ExtractBundles(file->bytes());
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::map<std::string, Tally> tallies;
  size_t processors = 0;
  std::map<std::string, std::unique_ptr<patch::Isa>> isas;
  for (const auto& bundled : *objects) {
    const auto object = patch::CodeObject::Parse(bundled.bytes);
    if (!object.ok()) continue;  // the host's entry
    Tally& tally = tallies[object->target().processor];
    ++tally.objects;
    for (const patch::Kernel& kernel : object->kernels()) {
      auto& isa = isas[object->target().ToString() + std::to_string(kernel.wavefront_size)];
      if (isa == nullptr) {
        auto made = patch::Isa::Create(object->target(), kernel.wavefront_size);
        if (absl::IsUnimplemented(made.status())) break;  // gfx803
        ASSERT_TRUE(made.ok()) << made.status();
        isa = *std::move(made);
      }
      const CodeAt code = CodeIn(*object);
      const WaitReport report = CheckWaits(*isa, code, kernel.entry_vaddr);
      ++tally.kernels;
      tally.incomplete += !report.complete;
      tally.instructions += report.instructions;
      tally.waits += report.waits;
      tally.findings += report.findings.size();
      for (const WaitFinding& f : report.findings) {
        if (tally.findings > 20) break;
        ADD_FAILURE() << object->target().processor << " " << kernel.name << " +0x" << std::hex
                      << f.vaddr - kernel.entry_vaddr << ": " << DescribeWait(f, *isa, code);
      }
    }
  }
  for (const auto& [processor, t] : tallies) {
    if (t.kernels == 0) continue;
    ++processors;
    std::printf(
        "%s: %zu objects, %zu kernels (%zu not whole), %llu instructions, %llu waits, "
        "%llu findings\n",
        processor.c_str(), t.objects, t.kernels, t.incomplete,
        static_cast<unsigned long long>(t.instructions), static_cast<unsigned long long>(t.waits),
        static_cast<unsigned long long>(t.findings));
    EXPECT_EQ(t.findings, 0u);
    EXPECT_GT(t.waits, 1000u);
  }
  EXPECT_GE(processors, 4u);
}

INSTANTIATE_TEST_SUITE_P(Libraries, WaitCorpus, testing::Values(RJDBI_ROCRAND, RJDBI_ROCSPARSE),
                         [](const auto& info) {
                           return std::string(info.param).find("rocrand") != std::string::npos
                                      ? "rocrand"
                                      : "rocsparse";
                         });

}  // namespace
}  // namespace rjdbi::contract
