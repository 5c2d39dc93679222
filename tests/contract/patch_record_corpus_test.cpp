// Taking patches back from real library objects, byte for byte, and what the
// record and the symbols cost. Prints the sizes.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>

#include "contract/address_map.h"
#include "contract/admission.h"
#include "contract/patch_record.h"
#include "patch/codeobject/appendix.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kObjects = 20;  // of each library
constexpr size_t kMinBytes = 16 << 10, kMaxBytes = 4 << 20;

struct Sizes {
  size_t objects = 0, kernels = 0, sites = 0, image = 0, code = 0, record = 0, rest = 0;
};

void RoundTrip(absl::Span<const uint8_t> object, v1::Placement placement, Sizes& sizes) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  attachment.mutable_spec()->set_placement(placement);
  attachment.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  auto rewriter = patch::MakeTrampolineRewriter();
  const Admission admission = Admit(object, {attachment}, DefaultPolicy(), *rewriter);
  ASSERT_EQ(admission.record.object_violations_size(), 0);
  if (admission.patched.empty()) return;  // no memory instruction
  const auto opened = OpenPatched(admission.patched);
  ASSERT_TRUE(opened.ok() && opened->has_value()) << opened.status();
  ASSERT_TRUE(std::equal(object.begin(), object.end(), (*opened)->original.begin(),
                         (*opened)->original.end()));
  const auto map = AddressMap::Open(admission.patched);
  ASSERT_TRUE(map.ok()) << map.status();
  const v1::AddressMap described = map->Describe("");
  EXPECT_EQ(static_cast<size_t>(described.kernels_size()), admission.kernels.size());
  const size_t code = patch::FindSection(admission.patched, ".rjdbi.text")->size();
  const size_t record = patch::FindSection(admission.patched, ".rjdbi")->size();
  ++sizes.objects;
  sizes.kernels += admission.kernels.size();
  sizes.sites += described.attachments(0).sites();
  sizes.image += object.size();
  sizes.code += code;
  sizes.record += record;
  sizes.rest += admission.patched.size() - object.size() - code - record;
}

using Variant = std::tuple<const char*, v1::Placement>;
class PatchRecordCorpus : public testing::TestWithParam<Variant> {};

TEST_P(PatchRecordCorpus, TakingBackIsExact) {
  const auto [target, placement] = GetParam();
  Sizes sizes;
  for (const char* path : {RJDBI_ROCRAND, RJDBI_ROCSPARSE}) {
    const auto file = test::MappedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto objects = test::ExtractBundles(file->bytes());
    ASSERT_TRUE(objects.ok()) << objects.status();
    const size_t wanted = sizes.objects + kObjects;
    for (const auto& object : *objects) {
      if (object.target.find(target) == std::string::npos || sizes.objects >= wanted) continue;
      if (object.bytes.size() < kMinBytes || object.bytes.size() > kMaxBytes) continue;
      RoundTrip(object.bytes, placement, sizes);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(sizes.objects, kObjects);
  std::printf(
      "%s, %s: %zu objects of %zu bytes, %zu kernels, %zu sites; new code %zu, record %zu "
      "(%.2f %% of the objects, %.1f bytes a site), symbols and headers %zu bytes\n",
      target, v1::Placement_Name(placement).c_str(), sizes.objects, sizes.image, sizes.kernels,
      sizes.sites, sizes.code, sizes.record,
      100.0 * static_cast<double>(sizes.record) / static_cast<double>(sizes.image),
      static_cast<double>(sizes.record) / static_cast<double>(sizes.sites), sizes.rest);
  EXPECT_LT(sizes.record * 20, sizes.image);
}

INSTANTIATE_TEST_SUITE_P(Targets, PatchRecordCorpus,
                         testing::Combine(testing::Values("gfx90a:xnack-", "gfx1030"),
                                          testing::Values(v1::TRAMPOLINE, v1::CLONE)));

}  // namespace
}  // namespace rjdbi::contract
