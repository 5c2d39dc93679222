// Sums of what processes have left: what is added up, what wins, what the bounds do.
#include "daemon/kept_sums.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rjdbi::daemon {
namespace {

// A load of an object with one kernel, in which the attachments have a counted site
// at 0x10 each.
LoadRecord Load(const std::string& object, const std::vector<std::string>& ids,
                const std::vector<uint64_t>& counters) {
  std::vector<v1::Attachment> attachments;
  auto decision = std::make_shared<Decision>();
  for (const std::string& id : ids) {
    const std::string canonical = "#" + std::to_string(attachments.size());
    attachments.emplace_back().set_id(id);
    attachments.back().mutable_spec()->set_probe("count-waves");
    v1::Decision& site = *decision->record.add_decisions();
    site.set_attachment_id(canonical);
    site.set_outcome(v1::VERIFIED_ATTACH);
    site.mutable_site()->mutable_location()->set_kernel("k");
    site.mutable_site()->mutable_location()->set_kernel_offset(0x10);
    site.set_counter_index(static_cast<uint32_t>(attachments.size() - 1));
    v1::Coverage& coverage = *decision->record.add_coverage();
    coverage.set_attachment_id(canonical);
    coverage.set_kernel("k");
    coverage.set_requested(1);
    coverage.set_attached(1);
  }
  LoadRecord load;
  load.session_id = "5e55";
  load.load_id = 7;
  load.sha256 = object;
  load.decision = std::move(decision);
  load.question = std::make_shared<Question>(Question::Make(object, attachments));
  load.counters = counters;
  load.final = true;
  return load;
}

uint64_t Sum(const KeptSums& sums, const std::string& id) {
  uint64_t total = 0;
  for (const auto& [place, count] : sums.attachments().at(id).counts) total += count.count();
  return total;
}

TEST(KeptSums, AddUpByPlaceUnderRealIds) {
  KeptSums sums;
  sums.Add(Load("o1", {"a1", "a2"}, {3, 4}));
  sums.Add(Load("o1", {"a2"}, {10}));
  LoadRecord running = Load("o1", {"a1"}, {20});
  running.final = false;
  sums.Add(running);
  sums.Add(Load("o2", {"a1"}, {100}));
  ASSERT_EQ(sums.attachments().size(), 2u);
  ASSERT_EQ(sums.attachments().at("a1").counts.size(), 2u) << "two builds of a kernel are two";
  const v1::SiteCount& count = sums.attachments().at("a1").counts.at({"o1", "k", 0x10});
  EXPECT_EQ(count.count(), 23u);
  EXPECT_FALSE(count.final()) << "one of them is a lower bound";
  EXPECT_EQ(count.probe(), "count-waves");
  EXPECT_EQ(count.attachment_id(), "a1");
  EXPECT_EQ(count.session_id(), "");
  EXPECT_EQ(count.load_id(), 0u);
  EXPECT_EQ(Sum(sums, "a2"), 14u);
}

TEST(KeptSums, ALoadThatIsInPlaceWins) {
  KeptSums sums;
  LoadRecord failed = Load("o1", {"a1"}, {5});
  failed.not_in_place = v1::GAP_PATCHED_LOAD_FAILED;
  const auto attached = [&] {
    return sums.attachments().at("a1").coverage.at({"o1", "k"}).coverage.attached();
  };
  sums.Add(failed);
  EXPECT_EQ(attached(), 0u);
  EXPECT_TRUE(sums.attachments().at("a1").counts.empty()) << "nothing ran";
  sums.Add(Load("o1", {"a1"}, {5}));
  EXPECT_EQ(attached(), 1u);
  sums.Add(failed);
  EXPECT_EQ(attached(), 1u);
}

TEST(KeptSums, CountsOutliveTheirPlaces) {
  KeptSums sums(/*max_places=*/4);
  uint64_t total = 0;
  for (int i = 0; i < 10; ++i) {
    sums.Add(Load("o" + std::to_string(i), {"a1"}, {100}));
    total += 100;
    EXPECT_EQ(Sum(sums, "a1"), total);
  }
  const auto& of = sums.attachments().at("a1");
  EXPECT_LE(of.counts.size() + of.coverage.size(), 4u + 1u);
  EXPECT_EQ(of.counts.count({"", "", 0}), 1u);
}

TEST(KeptSums, TheLeastUsedAttachmentGoesFirst) {
  KeptSums sums(/*max_places=*/1000, /*max_attachments=*/3);
  for (int i = 2; i < 20; ++i) {
    sums.Add(Load("o", {"a1", "a" + std::to_string(i)}, {1, 1}));
  }
  EXPECT_EQ(sums.attachments().size(), 3u);
  EXPECT_EQ(Sum(sums, "a1"), 18u) << "it has received something each time";
  EXPECT_EQ(sums.attachments().count("a19"), 1u);
  EXPECT_EQ(sums.attachments().count("a2"), 0u);
}

}  // namespace
}  // namespace rjdbi::daemon
