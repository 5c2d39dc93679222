// From rings to a daemon: what wavefronts write arrives, in order, or is counted, and
// nobody waits for a daemon that is slow, hostile or not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "agent/drainer.h"
#include "agent/reporter.h"
#include "tests/agent/fake_daemon.h"
#include "tests/agent/ring_writer.h"

namespace rjdbi::agent {
namespace {

using testing::FakeDaemon;
using testing::Point;
using testing::Reservation;
using testing::RingMemory;
using testing::Script;
using testing::SocketPath;

constexpr int64_t kPatienceNs = 20'000 * kNsPerMs;

std::string Through() { return "LD_PRELOAD"; }

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// One load's ring, as the agent has it.
struct Ring {
  Ring(uint64_t load_id, BatchQueue& queue, uint32_t half_bytes = 1 << 20) : memory(half_bytes) {
    RingReader::Format(memory.data(), half_bytes);
    ring = std::make_shared<LoadRing>(load_id, memory.data(), RingReader::Shape{half_bytes, 2, 0},
                                      queue);
  }
  // Events `first`, `first` + 1, ...; how many were lost to a full ring.
  uint64_t Write(uint32_t site, uint32_t first, uint32_t count) {
    uint64_t lost = 0;
    for (uint32_t i = first; i < first + count; ++i) {
      Reservation place(memory, RJDBI_RECORD_EXEC, 32, site);
      if (place.fits()) {
        place.Complete(i, i);
      } else {
        ++lost;
      }
    }
    return lost;
  }

  RingMemory memory;
  std::shared_ptr<LoadRing> ring;
};

// EXEC of each record that arrived for a load.
std::vector<uint64_t> Arrived(FakeDaemon& daemon, uint64_t load_id) {
  std::vector<uint64_t> execs;
  uint64_t sequence = 0;
  for (const v1::ReportRequest& report : daemon.reports()) {
    for (const v1::RecordBatch& batch : report.batches()) {
      if (batch.load_id() != load_id) continue;
      EXPECT_EQ(batch.sequence(), ++sequence);
      EXPECT_EQ(batch.records().size(), 32 * batch.count());
      EXPECT_LE(batch.records().size(), LoadRing::kBatchBytes);
      for (size_t at = 0; at < batch.records().size(); at += 32) {
        uint64_t exec = 0;
        std::memcpy(&exec, batch.records().data() + at, 8);
        execs.push_back(exec);
      }
      EXPECT_EQ(batch.written(), execs.size() + batch.lost_agent_queue());
    }
  }
  return execs;
}

class DrainTest : public ::testing::Test {
 protected:
  explicit DrainTest(size_t queue_bytes = 8 << 20) : queue_(queue_bytes) {
    config_.socket_path = socket_.path();
    client_ = std::make_unique<DaemonClient>(config_, &Through);
    reporter_ = std::make_unique<Reporter>(*client_, gaps_, loads_, queue_);
    drainer_ = std::make_unique<Drainer>(*reporter_);
  }
  ~DrainTest() override {
    drainer_->Stop(Deadline::After(kPatienceNs));
    reporter_->Stop(Deadline::After(kPatienceNs));
  }

  SocketPath socket_;
  Config config_;
  GapLog gaps_{config_};
  PatchedLoads loads_;
  BatchQueue queue_;
  std::unique_ptr<DaemonClient> client_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Drainer> drainer_;
};

TEST_F(DrainTest, RecordsArriveWhileTheyAreWritten) {
  FakeDaemon daemon(socket_.path(), {});
  Ring first(1, queue_), second(2, queue_);
  ASSERT_TRUE(reporter_->Start());
  drainer_->Add(first.ring);
  drainer_->Add(second.ring);
  ASSERT_EQ(first.Write(0, 0, 1000), 0u);
  // Nobody asks: they come by themselves, and soon (an idle drainer looks every 80 ms).
  EXPECT_TRUE(Eventually([&] { return Arrived(daemon, 1).size() == 1000; }));
  ASSERT_EQ(second.Write(1, 0, 10), 0u);
  ASSERT_EQ(first.Write(0, 1000, 1000), 0u);
  EXPECT_TRUE(Eventually([&] { return Arrived(daemon, 1).size() == 2000; }));
  EXPECT_TRUE(Eventually([&] { return Arrived(daemon, 2).size() == 10; }));
  const std::vector<uint64_t> arrived = Arrived(daemon, 1);
  for (uint64_t i = 0; i < arrived.size(); ++i) ASSERT_EQ(arrived[i], i);
  const RecordTotals totals = second.ring->Totals();
  EXPECT_THAT(totals.site_records, ::testing::ElementsAre(0, 10));
  EXPECT_EQ(totals.written, 10u);
}

TEST_F(DrainTest, WhatDoesNotFitIntoTheRingIsTheDevicesLoss) {
  FakeDaemon daemon(socket_.path(), {});
  Ring ring(1, queue_, RJDBI_RING_LEAST_HALF_BYTES);
  ASSERT_TRUE(reporter_->Start());
  drainer_->Add(ring.ring);
  uint64_t lost = 0;
  std::atomic<uint64_t> written{0};
  for (uint32_t i = 0; i < 200; ++i) {
    lost += ring.Write(0, i * 100, 100);
    written += 100;
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ring.ring->Finish(/*last=*/true);
  reporter_->BatchesWait();
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(ring.ring->written(), written - lost);
  EXPECT_TRUE(Eventually([&] { return Arrived(daemon, 1).size() == written - lost; }));
}

class SmallQueue : public DrainTest {
 protected:
  SmallQueue() : DrainTest(64 << 10) {}
};

TEST_F(SmallQueue, WithoutADaemonTheQueueFillsAndTheRestIsCounted) {
  Ring ring(1, queue_);
  ASSERT_TRUE(reporter_->Start());
  drainer_->Add(ring.ring);
  uint64_t lost = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    lost += ring.Write(0, i * 1000, 1000);
    ring.ring->Drain(MonotonicNs());
  }
  EXPECT_EQ(lost, 0u);
  // The drain thread may still be at the last of them.
  EXPECT_TRUE(Eventually([&] { return ring.ring->Totals().written == 20'000; }));
  const RecordTotals totals = ring.ring->Totals();
  EXPECT_LE(queue_.bytes(), size_t{64} << 10);
  EXPECT_EQ(totals.lost_agent_queue, 20'000 - queue_.bytes() / 32);
  // When one comes, it gets what is there, and the numbers.
  FakeDaemon daemon(socket_.path(), {});
  client_->TryNow();
  ring.Write(0, 20'000, 1);
  EXPECT_TRUE(Eventually([&] {
    return Arrived(daemon, 1).size() + ring.ring->Totals().lost_agent_queue ==
               ring.ring->Totals().written &&
           queue_.empty();
  }));
}

TEST_F(SmallQueue, ADaemonThatStallsDelaysNobody) {
  Script script;
  script.stall = Point::kReport;
  FakeDaemon daemon(socket_.path(), script);
  Ring ring(1, queue_);
  ASSERT_TRUE(reporter_->Start());
  drainer_->Add(ring.ring);
  for (uint32_t i = 0; i < 30; ++i) {
    EXPECT_EQ(ring.Write(0, i * 1000, 1000), 0u);
    ring.ring->Drain(MonotonicNs());  // not held up by the reporter's wait
  }
  const int64_t start_ns = MonotonicNs();
  ring.ring->Finish(/*last=*/true);
  EXPECT_LT(MonotonicNs() - start_ns, 1000 * kNsPerMs);
  EXPECT_EQ(ring.ring->written(), 30'000u);
  // All but what the queue holds.
  EXPECT_GE(ring.ring->Totals().lost_agent_queue, 30'000u - (64u << 10) / 32);
}

TEST_F(DrainTest, WhatADaemonRefusesIsDroppedAndCounted) {
  Script script;
  script.report_status = 3;  // INVALID_ARGUMENT
  FakeDaemon daemon(socket_.path(), script);
  Ring ring(1, queue_);
  ASSERT_TRUE(reporter_->Start());
  drainer_->Add(ring.ring);
  ring.Write(0, 0, 100);
  EXPECT_TRUE(Eventually([&] { return ring.ring->Totals().lost_agent_queue == 100; }));
  EXPECT_TRUE(queue_.empty());
}

// Such as values of loads that a restarted daemon knows nothing of.
TEST_F(DrainTest, ValuesThatADaemonRefusesAreNotSentAgain) {
  {
    Script script;
    script.report_status = 3;  // INVALID_ARGUMENT
    FakeDaemon daemon(socket_.path(), script);
    reporter_->Enqueue({LoadCounters{1, 1, {5}, true, {}}});
    gaps_.Record(Gap{.kind = GapKind::kProtocolError});
    EXPECT_TRUE(reporter_->Deliver({}, kPatienceNs, /*charge=*/false).ok());
    EXPECT_FALSE(gaps_.HasPending());
  }
  FakeDaemon daemon(socket_.path(), {});
  EXPECT_TRUE(reporter_->Deliver({LoadCounters{2, 1, {6}, true, {}}}, kPatienceNs, false).ok());
  ASSERT_EQ(daemon.reports().size(), 1u);
  ASSERT_EQ(daemon.reports()[0].loads_size(), 1);
  EXPECT_EQ(daemon.reports()[0].loads(0).load_id(), 2u);
  EXPECT_EQ(daemon.reports()[0].gaps_size(), 0);
}

TEST_F(DrainTest, LastValuesComeBehindTheirRecords) {
  FakeDaemon daemon(socket_.path(), {});
  Ring ring(1, queue_);
  ring.Write(0, 0, 30'000);  // more than one message
  ring.ring->Finish(/*last=*/true);
  LoadCounters last{1, 1, {5}, true};
  last.records = ring.ring->Totals();
  reporter_->Enqueue({last});
  ASSERT_TRUE(reporter_->Deliver({}, kPatienceNs, /*charge=*/true).ok());
  const std::vector<v1::ReportRequest> reports = daemon.reports();
  ASSERT_GE(reports.size(), 2u);
  EXPECT_EQ(Arrived(daemon, 1).size(), 30'000u);
  for (size_t i = 0; i + 1 < reports.size(); ++i) EXPECT_EQ(reports[i].loads_size(), 0);
  ASSERT_EQ(reports.back().loads_size(), 1);
  EXPECT_TRUE(reports.back().loads(0).final());
  EXPECT_THAT(reports.back().loads(0).site_records(), ::testing::ElementsAre(30'000, 0));
}

TEST_F(DrainTest, AFinishedOrHeldRingIsNotTouched) {
  auto ring = std::make_unique<Ring>(1, queue_);
  drainer_->Add(ring->ring);
  ring->ring->Hold(true);
  ring->Write(0, 0, 10);
  EXPECT_EQ(ring->ring->Drain(MonotonicNs()), 0u);
  ring->ring->Finish(/*last=*/true);
  EXPECT_EQ(ring->ring->written(), 0u);
  ring->ring->Hold(false);
  ring->ring->Finish(/*last=*/true);
  EXPECT_EQ(ring->ring->written(), 10u);
  const std::shared_ptr<LoadRing> kept = ring->ring;
  ring.reset();  // the memory is gone; the drain thread still holds the rest
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(kept->Drain(MonotonicNs()), 0u);
  kept->Finish(/*last=*/true);
  EXPECT_EQ(kept->Totals().written, 10u);
}

TEST_F(DrainTest, AnUnfinishedRecordIsGivenUpAtTheEnd) {
  Ring ring(1, queue_);
  ring.Write(0, 0, 3);
  const Reservation dead(ring.memory, RJDBI_RECORD_EXEC, 32, 0);
  ring.Write(0, 4, 2);
  ring.ring->Finish(/*last=*/true);
  const RecordTotals totals = ring.ring->Totals();
  EXPECT_EQ(totals.written, 3u);
  EXPECT_EQ(totals.unfinished_bytes, 96u);
}

TEST(Queue, TakesWhatFitsAndKeepsTheOrder) {
  BatchQueue queue(100);
  const auto dropped = std::make_shared<std::atomic<uint64_t>>(0);
  const auto batch = [&](uint64_t sequence, size_t bytes) {
    RecordBatch made;
    made.sequence = sequence;
    made.records.resize(bytes);
    made.count = bytes / 10;
    made.dropped = dropped;
    return made;
  };
  RecordBatch b1 = batch(1, 40), b2 = batch(2, 40), b3 = batch(3, 40);
  EXPECT_TRUE(queue.Push(b1));
  EXPECT_TRUE(queue.Push(b2));
  EXPECT_FALSE(queue.Push(b3));
  EXPECT_EQ(b3.records.size(), 40u);
  std::vector<RecordBatch> taken = queue.Take(50);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(queue.bytes(), 80u);  // those on their way, too
  EXPECT_FALSE(queue.HasRoom(40));
  queue.Done(std::move(taken), BatchQueue::Fate::kWaits);
  taken = queue.Take(1000);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].sequence, 1u);
  EXPECT_EQ(taken[1].sequence, 2u);
  queue.Done(std::move(taken), BatchQueue::Fate::kDelivered);
  EXPECT_EQ(*dropped, 0u);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.Push(b3));
  queue.Done(queue.Take(1), BatchQueue::Fate::kDropped);
  EXPECT_EQ(*dropped, 4u);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.Take(1).empty());
}

}  // namespace
}  // namespace rjdbi::agent
