// Trace records in the daemon: what is kept, what makes room, what is counted where,
// and that it all adds up whatever an agent says.
#include "daemon/record_store.h"

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "daemon/kept_sums.h"
#include "daemon/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::daemon {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint32_t kSizes[] = {32, 544, 288};  // of sites 0, 1, 2

// One record of a site; `exec` tells it from others.
std::string Record(uint32_t site, uint64_t exec, uint32_t kind = RJDBI_RECORD_EXEC,
                   uint32_t bytes = 0) {
  if (bytes == 0) bytes = kSizes[site];
  const rjdbi_record_header header = {
      exec, 0, kind << RJDBI_RECORD_KIND_SHIFT | bytes / 16 << RJDBI_RECORD_SIZE_SHIFT | site};
  std::string record(bytes, '\0');
  std::memcpy(record.data(), &header, sizeof header);
  return record;
}

// Sites 0 and 1 of attachment "a1", site 2 of "a2".
std::shared_ptr<Decision> ThreeSites() {
  auto decision = std::make_shared<Decision>();
  decision->record.set_ring_half_bytes(4096);
  for (uint32_t site = 0; site < 3; ++site) {
    v1::Decision& made = *decision->record.add_decisions();
    made.set_attachment_id(site < 2 ? "#0" : "#1");
    made.set_outcome(v1::VERIFIED_ATTACH);
    made.set_counter_index(site);
    made.mutable_site()->mutable_location()->set_kernel(site == 1 ? "other" : "kernel");
    made.mutable_site()->mutable_location()->set_kernel_offset(16 * site);
    made.mutable_record_layout()->set_kind(RJDBI_RECORD_EXEC);
    made.mutable_record_layout()->set_site(site);
    made.mutable_record_layout()->set_bytes(kSizes[site]);
  }
  return decision;
}

LoadRecord Load(const std::string& session = "5e55", uint64_t load_id = 7) {
  std::vector<v1::Attachment> attachments(2);
  attachments[0].set_id("a1");
  attachments[1].set_id("a2");
  for (v1::Attachment& attachment : attachments) attachment.mutable_spec()->set_probe("trace-exec");
  LoadRecord load;
  load.session_id = session;
  load.load_id = load_id;
  load.decision = ThreeSites();
  load.question = std::make_shared<Question>(Question::Make("hash", attachments));
  load.counters.resize(3);
  load.records = LoadRecords::Make(load.decision, load.question);
  return load;
}

OriginPtr Origin(const LoadRecord& load, std::shared_ptr<RateLimit> rate = nullptr) {
  auto origin = std::make_shared<RecordOrigin>();
  origin->session_id = load.session_id;
  origin->records = load.records;
  origin->rate = rate ? std::move(rate) : std::make_shared<RateLimit>();
  for (const LoadRecords::Site& site : load.records->sites()) {
    v1::RecordSource& source = origin->sources.emplace_back();
    source.set_session_id(load.session_id);
    source.set_attachment_id(load.question->ids[site.attachment]);
    *source.mutable_location() = site.decision->site().location();
    *source.mutable_layout() = site.decision->record_layout();
  }
  return origin;
}

v1::RecordBatch Batch(uint64_t sequence, const std::vector<std::string>& records, uint64_t written,
                      uint64_t lost_agent_queue = 0) {
  v1::RecordBatch batch;
  batch.set_load_id(7);
  batch.set_sequence(sequence);
  for (const std::string& record : records) batch.mutable_records()->append(record);
  batch.set_count(records.size());
  batch.set_written(written);
  batch.set_lost_agent_queue(lost_agent_queue);
  return batch;
}

const auto kEverything = [](const std::string&) { return true; };

v1::GetRecordsReply Get(const RecordStore& store, const v1::GetRecordsRequest& request = {}) {
  v1::GetRecordsReply reply;
  store.Get(request, kEverything, reply);
  return reply;
}

// EXEC of each record, in the reply's order.
std::vector<uint64_t> Execs(const v1::GetRecordsReply& reply) {
  std::vector<uint64_t> execs;
  for (const v1::RecordChunk& chunk : reply.chunks()) {
    size_t at = 0;
    for (int i = 0; i < chunk.sources_size(); ++i) {
      rjdbi_record_header header;
      std::memcpy(&header, chunk.records().data() + at, sizeof header);
      execs.push_back(header.exec);
      at += RJDBI_RECORD_BYTES(header.descriptor);
    }
    EXPECT_EQ(at, chunk.records().size());
  }
  EXPECT_EQ(reply.records(), execs.size());
  return execs;
}

// What a site received is somewhere, and what the load has written, too.
void ExpectBooksBalance(const LoadRecord& load) {
  uint64_t received = 0;
  for (uint32_t site = 0; site < load.records->sites().size(); ++site) {
    const v1::RecordCounts counts = load.records->Counts(site, 0);
    EXPECT_EQ(counts.received(), counts.stored() + counts.rate_limited() + counts.dropped());
    EXPECT_GE(counts.read(), counts.received());
    received += counts.received();
  }
  const v1::RecordLosses losses = load.records->Losses();
  EXPECT_EQ(losses.received(), received + losses.rejected());
  EXPECT_EQ(losses.written(),
            losses.received() + losses.agent_queue() + losses.undelivered() + losses.on_the_way());
}

TEST(LoadRecords, NoneOfALoadThatWritesNone) {
  LoadRecord load = Load();
  auto decision = std::make_shared<Decision>(*load.decision);
  for (v1::Decision& made : *decision->record.mutable_decisions()) made.clear_record_layout();
  EXPECT_EQ(LoadRecords::Make(decision, load.question), nullptr);
  EXPECT_EQ(LoadRecords::Make(nullptr, load.question), nullptr);
}

TEST(RecordStore, KeepsRecordsInTheirOrder) {
  RecordStore store({});
  const LoadRecord load = Load();
  store.Add(Origin(load), Batch(1, {Record(0, 1), Record(1, 2), Record(0, 3)}, 3), kSecond);
  store.Add(Origin(load), Batch(2, {Record(2, 4)}, 4), 2 * kSecond);
  const v1::GetRecordsReply reply = Get(store);
  EXPECT_THAT(Execs(reply), testing::ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(reply.sources_size(), 3);
  EXPECT_EQ(reply.sources(1).location().kernel(), "other");
  EXPECT_EQ(reply.sources(2).attachment_id(), "a2");
  EXPECT_THAT(reply.chunks(0).sources(), testing::ElementsAre(0, 1, 0));
  EXPECT_EQ(reply.chunks(1).received_unix_ns(), 2 * kSecond);
  EXPECT_EQ(store.stats().records, 4u);
  EXPECT_FALSE(reply.more());
  ExpectBooksBalance(load);
}

TEST(RecordStore, ARepeatedBatchIsIgnored) {
  RecordStore store({});
  const LoadRecord load = Load();
  const v1::RecordBatch batch = Batch(1, {Record(0, 1)}, 1);
  store.Add(Origin(load), batch, 0);
  store.Add(Origin(load), batch, 0);
  EXPECT_THAT(Execs(Get(store)), testing::ElementsAre(1));
  EXPECT_EQ(load.records->Counts(0, 0).received(), 1u);
  ExpectBooksBalance(load);
}

TEST(RecordStore, AMissingBatchIsALoss) {
  RecordStore store({});
  const LoadRecord load = Load();
  store.Add(Origin(load), Batch(1, {Record(0, 1)}, 1), 0);
  store.Add(Origin(load), Batch(4, {Record(0, 5)}, 12, 3), 0);  // 2 and 3 held 7
  v1::RecordLosses losses = load.records->Losses();
  EXPECT_EQ(losses.written(), 12u);
  EXPECT_EQ(losses.agent_queue(), 3u);
  EXPECT_EQ(losses.undelivered(), 7u);
  EXPECT_EQ(losses.on_the_way(), 0u);
  store.Add(Origin(load), Batch(3, {Record(0, 4)}, 11, 3), 0);  // too late
  EXPECT_EQ(load.records->Losses().received(), 2u);
  ExpectBooksBalance(load);
}

TEST(RecordStore, WhatIsOnTheWayIsLostWhenNothingMoreComes) {
  RecordStore store({});
  const LoadRecord load = Load();
  store.Add(Origin(load), Batch(1, {Record(0, 1)}, 1), 0);
  v1::LoadCounters totals;
  for (const uint64_t read : {5, 0, 2}) totals.add_site_records(read);
  totals.set_lost_agent_queue(1);
  totals.set_unfinished_bytes(48);
  load.records->NoteTotals(totals, false);
  v1::RecordLosses losses = load.records->Losses();
  EXPECT_EQ(losses.written(), 7u);
  EXPECT_EQ(losses.on_the_way(), 5u);
  EXPECT_EQ(losses.undelivered(), 0u);
  EXPECT_EQ(losses.unfinished_bytes(), 48u);
  load.records->NoteTotals(totals, true);
  losses = load.records->Losses();
  EXPECT_EQ(losses.on_the_way(), 0u);
  EXPECT_EQ(losses.undelivered(), 5u);
  EXPECT_EQ(load.records->Counts(0, 10).read(), 5u);
  EXPECT_EQ(load.records->Counts(0, 10).device_full(), 10u);
  ExpectBooksBalance(load);
}

TEST(RecordStore, TheOldestOfAnAttachmentMakeRoom) {
  RecordStore store({.bytes_per_attachment = 20'000, .bytes = 1 << 20});
  const LoadRecord load = Load();
  const OriginPtr origin = Origin(load);
  store.Add(origin, Batch(1, {Record(2, 0)}, 1), 0);  // another attachment's stays
  uint64_t written = 1;
  for (uint64_t i = 2; i <= 100; ++i) {
    written += 2;
    store.Add(origin, Batch(i, {Record(1, 2 * i), Record(1, 2 * i + 1)}, written), 0);
    ASSERT_LE(store.stats().bytes, 20'000u + 1000);
  }
  const std::vector<uint64_t> execs = Execs(Get(store));
  ASSERT_GT(execs.size(), 10u);
  EXPECT_EQ(execs.front(), 0u);
  EXPECT_EQ(execs.back(), 201u);
  const v1::RecordCounts counts = load.records->Counts(1, 0);
  EXPECT_EQ(counts.received(), 198u);
  EXPECT_EQ(counts.stored(), execs.size() - 1);
  EXPECT_EQ(counts.dropped(), 198 - counts.stored());
  ExpectBooksBalance(load);
}

TEST(RecordStore, AllTogetherHaveABound) {
  RecordStore store({.bytes_per_attachment = 1 << 20, .bytes = 20'000});
  std::vector<LoadRecord> loads;
  for (int i = 0; i < 50; ++i) {
    loads.push_back(Load("5e55" + std::to_string(i)));
    store.Add(Origin(loads.back()), Batch(1, {Record(1, 1), Record(2, 2)}, 2), 0);
    ASSERT_LE(store.stats().bytes, 20'000u);
  }
  EXPECT_EQ(loads.front().records->Counts(1, 0).dropped(), 1u);
  EXPECT_EQ(loads.back().records->Counts(1, 0).stored(), 1u);
  for (const LoadRecord& load : loads) ExpectBooksBalance(load);
}

TEST(RecordStore, AProcessSendsSoMuchInASecond) {
  RecordStore store({.bytes_per_second = 3200});
  const LoadRecord load = Load(), other = Load("other"), same = Load("5e55", 8);
  const auto rate = std::make_shared<RateLimit>();
  const std::vector<std::string> records(60, Record(0, 1));
  store.Add(Origin(load, rate), Batch(1, records, 60), kSecond);
  store.Add(Origin(same, rate), Batch(1, records, 60), kSecond);  // of the same process
  store.Add(Origin(other), Batch(1, records, 60), kSecond);
  EXPECT_EQ(load.records->Counts(0, 0).rate_limited(), 0u);
  EXPECT_EQ(same.records->Counts(0, 0).rate_limited(), 20u);
  EXPECT_EQ(other.records->Counts(0, 0).rate_limited(), 0u);
  store.Add(Origin(load, rate), Batch(2, records, 120), kSecond + kSecond / 2);
  EXPECT_EQ(load.records->Counts(0, 0).rate_limited(), 10u);
  store.Add(Origin(load, rate), Batch(3, records, 180), 60 * kSecond);
  EXPECT_EQ(load.records->Counts(0, 0).rate_limited(), 10u);
  store.Add(Origin(load, rate), Batch(4, records, 240), 0);  // the clock was set back
  EXPECT_EQ(load.records->Counts(0, 0).rate_limited(), 30u);
  for (const LoadRecord* each : {&load, &other, &same}) ExpectBooksBalance(*each);
}

TEST(RecordStore, WhatIsOfNoSiteIsRejected) {
  RecordStore store({});
  const LoadRecord load = Load();
  store.Add(Origin(load),
            Batch(1,
                  {Record(0, 1), Record(3, 2, RJDBI_RECORD_EXEC, 32),  // no such site
                   Record(0, 3, RJDBI_RECORD_CLOCK),                   // another kind
                   Record(1, 4, RJDBI_RECORD_EXEC, 32),                // another size
                   Record(1, 5)},
                  5),
            0);
  EXPECT_THAT(Execs(Get(store)), testing::ElementsAre(1, 5));
  EXPECT_EQ(load.records->Losses().rejected(), 3u);
  // Behind a descriptor that makes no sense nothing is understood.
  v1::RecordBatch batch = Batch(2, {Record(0, 6), std::string(16, '\0'), Record(0, 7)}, 10);
  batch.set_count(5);
  store.Add(Origin(load), batch, 0);
  EXPECT_THAT(Execs(Get(store)), testing::ElementsAre(1, 5, 6));
  EXPECT_EQ(load.records->Losses().rejected(), 7u);
  ExpectBooksBalance(load);
}

TEST(RecordStore, WhateverAnAgentSaysItAddsUp) {
  std::mt19937_64 random(11);
  RecordStore store({.bytes_per_attachment = 10'000, .bytes = 30'000, .bytes_per_second = 5000});
  const LoadRecord load = Load();
  const OriginPtr origin = Origin(load);
  for (uint64_t round = 0; round < 2000; ++round) {
    v1::RecordBatch batch;
    batch.set_sequence(random() % 4 == 0 ? random() % (round + 1) : round);
    std::string bytes;
    for (uint64_t i = random() % 20; i > 0; --i) bytes += Record(random() % 3, random());
    for (uint64_t i = random() % 3; i > 0 && !bytes.empty(); --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    batch.set_records(bytes);
    const uint64_t claims[] = {0, 1, random() % 100, UINT64_MAX, random()};
    batch.set_count(claims[random() % 3]);
    batch.set_written(claims[random() % 5]);
    batch.set_lost_agent_queue(round < 1000 ? 0 : claims[random() % 5]);
    store.Add(origin, batch, static_cast<int64_t>(round) * kSecond / 10);
    ASSERT_LE(store.stats().bytes, 30'000u);
    for (uint32_t site = 0; site < 3; ++site) {
      const v1::RecordCounts counts = load.records->Counts(site, 0);
      ASSERT_EQ(counts.received(), counts.stored() + counts.rate_limited() + counts.dropped());
    }
  }
  EXPECT_EQ(Execs(Get(store)).size(), store.stats().records);
}

TEST(RecordStore, QuestionsNarrowTheAnswer) {
  RecordStore store({});
  const LoadRecord first = Load("aa11"), second = Load("bb22");
  store.Add(Origin(first), Batch(1, {Record(0, 1), Record(1, 2), Record(2, 3)}, 3), 0);
  store.Add(Origin(second), Batch(1, {Record(0, 4), Record(1, 5), Record(2, 6)}, 3), 0);
  v1::GetRecordsRequest request;
  request.set_session_id("bb");
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(4, 5, 6));
  request.Clear();
  request.set_kernel_glob("oth*");
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(2, 5));
  request.set_last(1);
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(5));
  request.Clear();
  request.set_last(4);
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(3, 4, 5, 6));
  request.set_last(100);
  EXPECT_EQ(Execs(Get(store, request)).size(), 6u);
  v1::GetRecordsReply reply;
  store.Get(
      {}, [](const std::string& id) { return id == "a2"; }, reply);
  EXPECT_THAT(Execs(reply), testing::ElementsAre(3, 6));
}

TEST(RecordStore, LargeAnswersComeInParts) {
  RecordStore store({});
  const LoadRecord load = Load();
  for (uint64_t i = 1; i <= 20; ++i) {
    store.Add(Origin(load), Batch(i, {Record(0, i), Record(1, 100 + i)}, 2 * i), 0);
  }
  v1::GetRecordsRequest request;
  request.set_most_bytes(1000);
  std::vector<uint64_t> all;
  int parts = 0;
  for (bool more = true; more; ++parts) {
    const v1::GetRecordsReply reply = Get(store, request);
    for (const uint64_t exec : Execs(reply)) all.push_back(exec);
    request.set_after(reply.next());
    more = reply.more();
  }
  EXPECT_EQ(all.size(), 40u);
  EXPECT_EQ(all.back(), 120u);
  EXPECT_GT(parts, 5);
  EXPECT_THAT(Execs(Get(store, request)), testing::IsEmpty());
  store.Add(Origin(load), Batch(21, {Record(0, 21)}, 41), 0);
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(21));
}

class Folder {
 public:
  Folder() { path_ = mkdtemp(name_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file() const { return path_ + "/records.db"; }

 private:
  char name_[32] = "/tmp/rjdbi-records-XXXXXX";
  std::string path_;
};

TEST(RecordStore, ARestartBringsRecordsBack) {
  const Folder folder;
  const LoadRecord load = Load("aa11");
  {
    RecordStore store({}, folder.file());
    store.Add(Origin(load), Batch(1, {Record(0, 1), Record(2, 2), Record(1, 3)}, 3), kSecond);
    store.Add(Origin(load), Batch(2, {Record(0, 4)}, 4), 2 * kSecond);
    EXPECT_EQ(store.write_problem(), "");
  }
  RecordStore store({}, folder.file());
  EXPECT_EQ(store.stats().records, 4u);
  v1::GetRecordsReply reply = Get(store);
  EXPECT_THAT(Execs(reply), testing::UnorderedElementsAre(1, 2, 3, 4));
  EXPECT_EQ(reply.sources(0).location().kernel(), "kernel");
  EXPECT_TRUE(store.KnowsAttachment("a2"));
  EXPECT_FALSE(store.KnowsAttachment("a3"));
  EXPECT_TRUE(store.KnowsSession("aa"));
  EXPECT_FALSE(store.KnowsSession("bb"));
  // What comes in goes behind it.
  v1::GetRecordsRequest request;
  request.set_after(reply.next());
  const LoadRecord other = Load("bb22");
  store.Add(Origin(other), Batch(1, {Record(0, 9)}, 1), 3 * kSecond);
  EXPECT_THAT(Execs(Get(store, request)), testing::ElementsAre(9));
}

TEST(RecordStore, TheBoundHoldsOnDiskToo) {
  const Folder folder;
  const RecordLimits limits = {.bytes_per_attachment = 20'000};
  uint64_t records = 0;
  {
    RecordStore store(limits, folder.file());
    const LoadRecord load = Load();
    const OriginPtr origin = Origin(load);
    for (uint64_t i = 1; i <= 200; ++i) store.Add(origin, Batch(i, {Record(1, i)}, i), 0);
    records = store.stats().records;
  }
  {
    RecordStore store(limits, folder.file());
    EXPECT_EQ(store.stats().records, records);
    EXPECT_EQ(Execs(Get(store)).back(), 200u);
  }
  RecordStore smaller({.bytes_per_attachment = 5'000}, folder.file());
  EXPECT_LT(smaller.stats().records, records);
  EXPECT_LE(smaller.stats().bytes, 5'000u);
  EXPECT_EQ(Execs(Get(smaller)).back(), 200u);
}

TEST(RecordStore, ADamagedFileIsSetAside) {
  const Folder folder;
  std::ofstream(folder.file()) << std::string(10'000, 'x');
  RecordStore store({}, folder.file());
  EXPECT_EQ(store.write_problem(), "");
  EXPECT_EQ(store.stats().records, 0u);
  EXPECT_TRUE(std::filesystem::exists(folder.file() + ".bad"));
  const LoadRecord load = Load();
  store.Add(Origin(load), Batch(1, {Record(0, 1)}, 1), 0);
  EXPECT_THAT(Execs(Get(store)), testing::ElementsAre(1));
}

TEST(RecordStore, WithoutADiskItIsAllInMemory) {
  RecordStore store({}, "/dev/null/records.db");
  EXPECT_NE(store.write_problem(), "");
  const LoadRecord load = Load();
  store.Add(Origin(load), Batch(1, {Record(0, 1)}, 1), 0);
  EXPECT_THAT(Execs(Get(store)), testing::ElementsAre(1));
  ExpectBooksBalance(load);
}

TEST(RecordStore, WhatAProcessLeavesGoesIntoTheSums) {
  RecordStore store({});
  LoadRecord load = Load();
  load.counters = {100, 0, 7};
  store.Add(Origin(load), Batch(1, {Record(0, 1), Record(2, 2)}, 4, 1), 0);
  load.records->NoteTotals({}, true);
  store.Forget(*load.records);
  EXPECT_EQ(store.stats().records, 0u);
  EXPECT_EQ(store.stats().bytes, 0u);
  EXPECT_EQ(load.records->Counts(0, 0).dropped(), 1u);
  KeptSums sums;
  sums.Add(load);
  sums.Add(load);
  const v1::SiteCount& count = sums.attachments().at("a1").counts.at({"", "kernel", 0});
  EXPECT_EQ(count.records().device_full(), 200u);
  EXPECT_EQ(count.records().dropped(), 2u);
  EXPECT_EQ(count.count(), 202u);
  const v1::RecordLosses losses = sums.record_losses();
  EXPECT_EQ(losses.written(), 8u);
  EXPECT_EQ(losses.agent_queue(), 2u);
  EXPECT_EQ(losses.undelivered(), 2u);
  EXPECT_THAT(losses.attachment_ids(), testing::ElementsAre("a1", "a2"));
}

}  // namespace
}  // namespace rjdbi::daemon
