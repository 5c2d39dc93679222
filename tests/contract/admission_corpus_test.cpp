// Admission, validation included, of real library objects: a counter at every
// instruction, clauses and branches too. Prints outcomes by constraint.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "contract/admission.h"
#include "contract/catalogue.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kObjects = 3;
constexpr size_t kMinBytes = 64 << 10;  // smaller ones hold a kernel that only ends

struct Tally {
  size_t objects = 0, sites = 0, attached = 0, degraded = 0, split = 0;
  std::map<std::string, size_t> refused;
};

void AdmitEverywhere(absl::Span<const uint8_t> object, v1::Placement placement, Tally& tally) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("*");
  attachment.mutable_spec()->set_probe("count-waves");
  attachment.mutable_spec()->set_placement(placement);
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  auto rewriter = patch::MakeTrampolineRewriter();
  const Admission a = WithDecisions(Admit(object, {attachment}, DefaultPolicy(), *rewriter));
  ASSERT_EQ(a.record.object_violations_size(), 0)
      << a.record.object_violations(0).ShortDebugString();
  ASSERT_FALSE(a.patched.empty());
  ++tally.objects;
  for (const v1::Decision& d : a.record.decisions()) {
    ++tally.sites;
    tally.attached += d.outcome() == v1::VERIFIED_ATTACH;
    tally.degraded += d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
    for (const v1::Degradation& g : d.degradations()) {
      tally.split += g.constraint_id() == id::kSplitsClause;
    }
    if (d.violations_size() > 0) ++tally.refused[d.violations(0).constraint_id()];
  }
}

using Variant = std::tuple<const char*, v1::Placement>;
class AdmissionCorpus : public testing::TestWithParam<Variant> {};

TEST_P(AdmissionCorpus, EveryInstruction) {
  const auto file = test::MappedFile::Open(RJDBI_ROCSPARSE);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto objects = test::ExtractBundles(file->bytes());
  ASSERT_TRUE(objects.ok()) << objects.status();
  const auto [target, placement] = GetParam();
  Tally tally;
  for (const auto& object : *objects) {
    if (object.target.find(target) == std::string::npos) continue;
    if (object.bytes.size() < kMinBytes || tally.objects >= kObjects) continue;
    AdmitEverywhere(object.bytes, placement, tally);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(tally.objects, kObjects);
  std::printf("%s, %s: %zu objects, %zu sites; %zu attached, %zu degraded (%zu split a clause)\n",
              target, v1::Placement_Name(placement).c_str(), tally.objects, tally.sites,
              tally.attached, tally.degraded, tally.split);
  size_t refused = 0;
  for (const auto& [constraint, sites] : tally.refused) {
    EXPECT_NE(constraint.substr(0, 5), "RJD-E") << "a built-in probe breaks its promise";
    std::printf("  refused, %s: %zu\n", constraint.c_str(), sites);
    refused += sites;
  }
  EXPECT_EQ(tally.attached + tally.degraded + refused, tally.sites);
  EXPECT_GT(tally.attached + tally.degraded, refused);
  // Compilers make no clause and no branch that cannot take a probe.
  EXPECT_EQ(tally.refused["RJD-S001"], 0u);
  EXPECT_EQ(tally.refused["RJD-S005"], 0u);
}

INSTANTIATE_TEST_SUITE_P(Targets, AdmissionCorpus,
                         testing::Combine(testing::Values("gfx90a:xnack-", "gfx1030"),
                                          testing::Values(v1::TRAMPOLINE, v1::CLONE)));

// ---- Beside the loaded original ---------------------------------------------------------

constexpr size_t kMostBeside = 24;  // objects of a library, evenly spread

struct Beside {
  size_t objects = 0, kernels = 0, switched = 0, addresses = 0;
  std::map<std::string, size_t> refused;  // kernels, by what is said of them
};

void AdmitBeside(absl::Span<const uint8_t> object, Beside& tally) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("entry or exit");
  attachment.mutable_spec()->set_probe("count-waves");
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  Policy policy = DefaultPolicy();
  policy.beside = true;
  auto rewriter = patch::MakeTrampolineRewriter();
  const Admission a = WithDecisions(Admit(object, {attachment}, policy, *rewriter));
  ASSERT_EQ(a.record.object_violations_size(), 0)
      << a.record.object_violations(0).ShortDebugString();
  ++tally.objects;
  tally.kernels += a.record.kernels();
  tally.switched += a.switches.size();
  for (const patch::WordFixup& f : a.fixups) {
    tally.addresses += f.base == patch::FixupBase::kOriginal && f.high_half;
  }
  std::set<std::string> attached, counted;
  for (const KernelSwitch& s : a.switches) attached.insert(s.kernel);
  for (const v1::Decision& d : a.record.decisions()) {
    const std::string& kernel = d.site().location().kernel();
    if (d.violations_size() == 0 || attached.contains(kernel)) continue;
    if (!counted.insert(kernel).second) continue;
    ++tally.refused[d.violations(0).constraint_id() + ": " + d.violations(0).message()];
  }
}

class BesideCorpus : public testing::TestWithParam<const char*> {};

TEST_P(BesideCorpus, KernelsThatCanRunFromThere) {
  for (const char* library : {RJDBI_ROCSPARSE, RJDBI_ROCRAND}) {
    SCOPED_TRACE(library);
    const auto file = test::MappedFile::Open(library);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto objects = test::ExtractBundles(file->bytes());
    ASSERT_TRUE(objects.ok()) << objects.status();
    std::vector<absl::Span<const uint8_t>> wanted;
    for (const auto& object : *objects) {
      if (object.target.find(GetParam()) != std::string::npos && object.bytes.size() >= kMinBytes) {
        wanted.push_back(object.bytes);
      }
    }
    Beside tally;
    const size_t step = std::max<size_t>(1, wanted.size() / kMostBeside);
    for (size_t i = 0; i < wanted.size(); i += step) {
      AdmitBeside(wanted[i], tally);
      if (HasFatalFailure()) return;
    }
    std::printf("%s, %s: %zu objects, %zu of %zu kernels can run beside, %zu addresses\n", library,
                GetParam(), tally.objects, tally.switched, tally.kernels, tally.addresses);
    size_t refused = 0;
    for (const auto& [why, kernels] : tally.refused) {
      std::printf("  %zu refused: %s\n", kernels, why.c_str());
      refused += kernels;
    }
    EXPECT_EQ(tally.switched + refused, tally.kernels);
    // Compilers make no kernel here that cannot be cloned.
    EXPECT_EQ(tally.switched, tally.kernels);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BesideCorpus, testing::Values("gfx90a:xnack-", "gfx1030"));

}  // namespace
}  // namespace rjdbi::contract
