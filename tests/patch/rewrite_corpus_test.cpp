// count-waves at every memory instruction of real library objects: each site is
// planned or refused with a reason, the result parses, and every patched kernel
// decodes. Prints totals by reason.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "patch/analysis/selector.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi {
namespace {

using patch::CodeObject;
using patch::Isa;
using patch::KernelAnalysis;
using patch::Reason;
using patch::SitePlan;

constexpr size_t kObjectsPerTarget = 22;

struct Tally {
  size_t objects = 0, kernels = 0, instructions = 0, sites = 0, admitted = 0;
  size_t in_clauses = 0, drained = 0;  // admitted, with that degradation
  size_t clones = 0;                   // kernels
  std::map<Reason, size_t> refused;
  int64_t growth = 0;
  double slowest_seconds = 0;
};

using Variant = std::tuple<const char*, patch::Placement>;

class RewriteCorpus : public testing::TestWithParam<Variant> {
 protected:
  Isa& IsaFor(const CodeObject& object, uint32_t wave) {
    auto& isa = isas_[wave];
    if (!isa) {
      auto made = Isa::Create(object.target(), wave);
      EXPECT_TRUE(made.ok()) << made.status();
      isa = *std::move(made);
    }
    return *isa;
  }

  void Object(absl::Span<const uint8_t> bytes, patch::Placement placement, Tally& tally) {
    const auto start = std::chrono::steady_clock::now();
    const auto object = CodeObject::Parse(bytes);
    ASSERT_TRUE(object.ok()) << object.status();
    isas_.clear();
    const auto selector = patch::Selector::Parse("memory");
    ASSERT_TRUE(selector.ok());
    auto rewriter = patch::MakeTrampolineRewriter();
    std::vector<std::unique_ptr<KernelAnalysis>> analyses;
    std::vector<const KernelAnalysis*> kernels;
    std::vector<SitePlan> plans;
    size_t sites = 0;
    for (size_t k = 0; k < object->kernels().size(); ++k) {
      auto analysis =
          KernelAnalysis::Create(*object, k, IsaFor(*object, object->kernels()[k].wavefront_size));
      ASSERT_TRUE(analysis.ok()) << analysis.status();
      analyses.push_back(*std::move(analysis));
      const KernelAnalysis& kernel = *analyses.back();
      kernels.push_back(&kernel);
      tally.instructions += kernel.instructions().size();
      // Compilers make no kernel here that cannot be cloned.
      ASSERT_FALSE(kernel.CloneObstacle().has_value()) << kernel.CloneObstacle()->detail;
      for (uint32_t i : selector->Select(kernel).instructions) {
        ++sites;
        auto plan = rewriter->Plan(kernel, i,
                                   {.probe = patch::Probe::kCountWaves,
                                    .counter_index = static_cast<uint32_t>(plans.size()),
                                    .max_sgpr_delta = 16,
                                    .max_vgpr_delta = 8,
                                    .placement = placement});
        if (auto* refusal = std::get_if<patch::Refusal>(&plan)) {
          ASSERT_NE(refusal->reason, Reason::kNone);
          ASSERT_NE(refusal->reason, Reason::kAssemblerFailed) << refusal->detail;
          ASSERT_FALSE(refusal->detail.empty());
          ++tally.refused[refusal->reason];
        } else {
          plans.push_back(std::get<SitePlan>(std::move(plan)));
        }
      }
    }
    const auto result = rewriter->Emit(*object, kernels, plans);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->sites.size(), plans.size());
    size_t admitted = 0;
    for (const auto& site : result->sites) {
      if (site.refusal) {
        ++tally.refused[site.refusal->reason];
      } else {
        ++admitted;
        tally.in_clauses += plans[site.plan].broken_clause.has_value();
        tally.drained += plans[site.plan].drains_waits;
      }
    }
    EXPECT_EQ(result->fixups.size(), 2 * admitted);
    tally.growth += result->code_growth;
    tally.slowest_seconds =
        std::max(tally.slowest_seconds,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    for (const auto& outcome : result->kernels) {
      tally.clones += outcome.placement == patch::Placement::kClone;
    }
    if (admitted > 0) CheckImage(*object, *result);
    ++tally.objects;
    tally.kernels += kernels.size();
    tally.sites += sites;
    tally.admitted += admitted;
  }

  // Parses; every kernel decodes from end to end, wherever its entry is now.
  void CheckImage(const CodeObject& original, const patch::RewriteResult& result) {
    const auto patched = CodeObject::Parse(result.image);
    std::map<size_t, uint64_t> clones;  // kernel -> bytes
    for (const auto& outcome : result.kernels) {
      if (outcome.clone_vaddr != 0) clones[outcome.kernel_index] = outcome.code_bytes;
    }
    ASSERT_TRUE(patched.ok()) << patched.status();
    ASSERT_EQ(patched->kernels().size(), original.kernels().size());
    for (size_t k = 0; k < patched->kernels().size(); ++k) {
      const auto& kernel = patched->kernels()[k];
      const auto clone = clones.find(k);
      const uint64_t size = clone != clones.end() ? clone->second : original.kernels()[k].code_size;
      const auto code = patched->AtVaddr(kernel.entry_vaddr, size);
      ASSERT_EQ(code.size(), size) << kernel.name;
      Isa& isa = IsaFor(original, kernel.wavefront_size);
      for (uint64_t at = 0; at < code.size();) {
        const auto in = isa.Decode(code, at);
        ASSERT_TRUE(in.has_value()) << kernel.name << "+" << at;
        at += in->size;
      }
    }
  }

 private:
  std::map<uint32_t, std::unique_ptr<Isa>> isas_;
};

TEST_P(RewriteCorpus, CountWavesAtEveryMemoryInstruction) {
  const auto [target, placement] = GetParam();
  Tally tally;
  for (const char* path : {RJDBI_ROCRAND, RJDBI_ROCSPARSE}) {
    const auto file = test::MappedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto objects = test::ExtractBundles(file->bytes());
    ASSERT_TRUE(objects.ok()) << objects.status();
    for (const auto& object : *objects) {
      if (object.target.find(target) == std::string::npos) continue;
      if (tally.objects >= kObjectsPerTarget) break;
      Object(object.bytes, placement, tally);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(tally.objects, kObjectsPerTarget);
  size_t refused = 0;
  for (const auto& [reason, count] : tally.refused) refused += count;
  EXPECT_EQ(tally.admitted + refused, tally.sites);
  EXPECT_GT(tally.admitted * 2, tally.sites);
  // Every clause that a compiler made can be split.
  EXPECT_EQ(tally.refused[Reason::kSiteInsideClause], 0u);
  tally.refused.erase(Reason::kSiteInsideClause);
  std::printf(
      "%s: %zu objects, %zu kernels, %zu instructions; %zu sites, %zu admitted "
      "(%zu split a clause, %zu wait for loads); %zu clones, "
      "growth %.1f MB; slowest object %.1f s\n",
      target, tally.objects, tally.kernels, tally.instructions, tally.sites, tally.admitted,
      tally.in_clauses, tally.drained, tally.clones, static_cast<double>(tally.growth) / 1e6,
      tally.slowest_seconds);
  for (const auto& [reason, count] : tally.refused) {
    std::printf("  refused, reason %d: %zu\n", static_cast<int>(reason), count);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RewriteCorpus,
                         testing::Combine(testing::Values("gfx90a:xnack-", "gfx1030"),
                                          testing::Values(patch::Placement::kTrampoline,
                                                          patch::Placement::kClone)));

}  // namespace
}  // namespace rjdbi
