// What count-waves costs real kernels, held against what is promised, over a
// sample of library objects. The whole of them: rjctl perturbation.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "contract/perturbation.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kObjects = 24;  // evenly spread over each library and target

v1::Attachment CountWaves() {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  // The telemetry budget is about traffic, which nothing here knows.
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  return attachment;
}

void Measure(const char* library, const std::string& target, PerturbationTally& tally) {
  const auto file = test::MappedFile::Open(library);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto objects = test::ExtractBundles(file->bytes());
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::vector<absl::Span<const uint8_t>> wanted;
  for (const auto& object : *objects) {
    if (object.target.find(target) != std::string::npos) wanted.push_back(object.bytes);
  }
  ASSERT_FALSE(wanted.empty());
  const size_t some = std::min(kObjects, wanted.size());
  for (size_t n = 0; n < some; ++n) {
    const absl::Span<const uint8_t> bytes = wanted[n * wanted.size() / some];
    const auto rewriter = patch::MakeTrampolineRewriter();
    tally.Add("count-waves", bytes, Admit(bytes, {CountWaves()}, DefaultPolicy(), *rewriter));
  }
}

class PerturbationCorpus : public testing::TestWithParam<const char*> {};

TEST_P(PerturbationCorpus, CountWavesAtEveryMemoryInstruction) {
  PerturbationTally tally;
  for (const char* library : {RJDBI_ROCRAND, RJDBI_ROCSPARSE}) {
    Measure(library, GetParam(), tally);
    if (HasFatalFailure()) return;
  }
  const std::vector<v1::Perturbation> rows = tally.Rows();
  ASSERT_EQ(rows.size(), 1u);
  const v1::Perturbation& p = rows[0];
  std::printf("%s", RenderPerturbation(p).c_str());
  EXPECT_EQ(p.objects_refused(), 0u);
  ASSERT_GT(p.kernels_patched(), 500u);
  uint64_t refused = 0, lost = 0;
  for (const v1::ReasonCount& r : p.refused()) refused += r.sites();
  for (const v1::OccupancyStep& s : p.occupancy_steps()) lost += s.kernels();
  EXPECT_EQ(p.sites(), p.sites_admitted() + refused);
  EXPECT_EQ(p.kernels_patched(), p.kernels_same_occupancy() + lost);
  EXPECT_GE(p.sites_admitted() * 100, p.sites() * 99);
  EXPECT_GE(p.kernels_same_occupancy() * 100, p.kernels_patched() * 97);
  EXPECT_GE(p.kernels_inside_allocation() * 100, p.kernels_patched() * 80);
  EXPECT_EQ(p.kernels_undeclared_step(), 0u);
  EXPECT_LE(p.injected_instructions().median(), 8u);
  EXPECT_EQ(p.injected_instructions().count(), p.sites_admitted());
}

INSTANTIATE_TEST_SUITE_P(Targets, PerturbationCorpus, testing::Values("gfx90a:xnack-", "gfx1030"));

}  // namespace
}  // namespace rjdbi::contract
