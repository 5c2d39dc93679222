// The engine's liveness and the proof's, two that know nothing of each other, over the
// kernels of two libraries: what the engine takes for dead, at every instruction, is
// proven; what it takes for live, is not.
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "contract/dead.h"
#include "contract/kernel_code.h"
#include "patch/analysis/kernel_analysis.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

using patch::RegisterSet;

constexpr size_t kOneIn = 8;              // small objects
constexpr size_t kMostBytes = 600 << 10;  // of those

struct Tally {
  size_t objects = 0, kernels = 0;
  uint64_t sites = 0, refuted = 0;      // all that is dead at a site
  uint64_t live = 0, live_refuted = 0;  // one that is live, called dead
  std::map<int, uint64_t> why;
};

// Of registers that temporaries are made of.
RegisterSet Usable() {
  RegisterSet set;
  set.Add(patch::kSgpr0, patch::kVccHi + 1);
  set.Add(patch::kM0, 2);
  set.Add(patch::kVgpr0, 512);
  return set;
}

void Compare(const patch::CodeObject& object, Tally& tally) {
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas;
  ObjectCode code(object);
  DeadProof proof;
  const RegisterSet usable = Usable();
  for (size_t k = 0; k < object.kernels().size(); ++k) {
    auto& isa = isas[object.kernels()[k].wavefront_size];
    if (isa == nullptr) {
      auto made = patch::Isa::Create(object.target(), object.kernels()[k].wavefront_size);
      ASSERT_TRUE(made.ok()) << made.status();
      isa = *std::move(made);
    }
    const auto engine = patch::KernelAnalysis::Create(object, k, *isa);
    ASSERT_TRUE(engine.ok()) << engine.status();
    const patch::KernelAnalysis& analysis = **engine;
    const KernelCode kernel(code, k, *isa);
    ASSERT_EQ(kernel.instructions().size(), analysis.instructions().size());
    ++tally.kernels;
    std::deque<RegisterSet> sets;
    std::vector<DeadClaim> dead, live;
    for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
      if (!analysis.Reachable(i) || analysis.NotInsertable(i, patch::Position::kBefore)) continue;
      const RegisterSet needed = analysis.LiveBefore(i) & usable;
      dead.push_back({i, false, &sets.emplace_back((analysis.mentioned() & usable) - needed)});
      std::vector<uint16_t> members;
      needed.ForEach([&](uint16_t reg) { members.push_back(reg); });
      if (members.empty()) continue;
      RegisterSet one;
      one.Add(members[i * 7919u % members.size()]);
      live.push_back({i, false, &sets.emplace_back(one)});
    }
    tally.sites += dead.size();
    tally.live += live.size();
    for (const NotDead& finding : proof.Refute(kernel, dead)) {
      ++tally.refuted;
      if (++tally.why[static_cast<int>(finding.why)] > 5) continue;
      const uint32_t at = dead[finding.claim].instruction;
      std::printf("%s+0x%llx: %s\n", kernel.kernel().name.c_str(),
                  static_cast<unsigned long long>(kernel.instructions().OffsetOf(at)),
                  DescribeNotDead(finding, kernel).c_str());
    }
    tally.live_refuted += proof.Refute(kernel, live).size();
  }
}

class DeadCorpus : public testing::TestWithParam<const char*> {};

TEST_P(DeadCorpus, BothAgree) {
  const auto file = test::MappedFile::Open(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto objects = test::ExtractBundles(file->bytes());
  ASSERT_TRUE(objects.ok()) << objects.status();
  std::map<std::string, Tally> tallies;
  std::map<std::string, size_t> seen;
  for (const auto& bundled : *objects) {
    const bool rocrand = std::string(GetParam()).find("rocrand") != std::string::npos;
    if (!rocrand && bundled.bytes.size() > kMostBytes) continue;
    const auto object = patch::CodeObject::Parse(bundled.bytes);
    if (!object.ok() || object->target().processor == "gfx803") continue;
    if (seen[object->target().processor]++ % kOneIn != 0) continue;
    Tally& tally = tallies[object->target().processor];
    ++tally.objects;
    Compare(*object, tally);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(tallies.size(), 4u);
  for (const auto& [processor, t] : tallies) {
    std::printf(
        "%s: %zu objects, %zu kernels; of %llu sites %llu with a dead register that is not "
        "proven to be; of %llu live ones %llu not proven dead\n",
        processor.c_str(), t.objects, t.kernels, static_cast<unsigned long long>(t.sites),
        static_cast<unsigned long long>(t.refuted), static_cast<unsigned long long>(t.live),
        static_cast<unsigned long long>(t.live_refuted));
    EXPECT_GT(t.sites, 1000u);
    EXPECT_LE(t.refuted * 200, t.sites);
    // The proof may know better, seldom.
    EXPECT_GE(t.live_refuted * 100, t.live * 95);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, DeadCorpus, testing::Values(RJDBI_ROCRAND, RJDBI_ROCSPARSE),
                         [](const auto& info) {
                           return std::string(info.param).find("rocrand") != std::string::npos
                                      ? "rocrand"
                                      : "rocsparse";
                         });

}  // namespace
}  // namespace rjdbi::contract
