// The ring reader against a model of the device's side, and against rings in which
// anything may stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "agent/load_ring.h"
#include "agent/ring_reader.h"
#include "tests/agent/ring_writer.h"

namespace rjdbi::agent {
namespace {

using testing::Descriptor;
using testing::Reservation;
using testing::RingMemory;

constexpr uint32_t kHalf = RJDBI_RING_LEAST_HALF_BYTES;
constexpr uint32_t kSites = 100;
constexpr int64_t kMs = 1'000'000;

struct Copy {
  uint32_t site, kind, payload;
  uint64_t exec;
  bool operator==(const Copy&) const = default;
};

// Takes copies apart, and can refuse to.
class Collector : public RecordSink {
 public:
  void Take(const uint8_t* records, size_t bytes, uint64_t count) override {
    if (refuse) throw std::bad_alloc();
    EXPECT_LE(bytes, RingReader::kMostRunBytes);
    uint64_t seen = 0;
    for (size_t at = 0; at < bytes; ++seen) {
      rjdbi_record_header header;
      std::memcpy(&header, records + at, sizeof header);
      const uint32_t size = RJDBI_RECORD_BYTES(header.descriptor);
      uint32_t payload = 0;
      std::memcpy(&payload, records + at + 16, 4);
      for (size_t i = at + 16; i < at + size; i += 4) {
        whole = whole && std::memcmp(records + i, &payload, 4) == 0;
      }
      taken.push_back({RJDBI_RECORD_SITE(header.descriptor), RJDBI_RECORD_KIND(header.descriptor),
                       payload, header.exec});
      at += size;
    }
    EXPECT_EQ(seen, count);
  }

  std::vector<Copy> taken;
  bool whole = true;  // no record holds parts of another
  bool refuse = false;
};

uint64_t SizeBit(uint32_t bytes) { return uint64_t{1} << (bytes / 16); }

void ExpectBooksBalance(const RingTotals& totals) {
  EXPECT_EQ(totals.asked, totals.read + totals.lost + totals.unfinished);
}

bool AllZero(const uint8_t* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](uint8_t byte) { return byte == 0; });
}

class RingReaderTest : public ::testing::Test {
 protected:
  RingReaderTest() { RingReader::Format(ring_.data(), kHalf); }

  // Whether it fitted.
  bool Write(uint32_t bytes, uint32_t site, uint32_t payload) {
    Reservation place(ring_, RJDBI_RECORD_ADDRESS, bytes, site);
    if (place.fits()) place.Complete(~uint64_t{payload}, payload);
    return place.fits();
  }

  RingMemory ring_{kHalf};
  Collector sink_;
};

TEST_F(RingReaderTest, FormatSaysWhatItIs) {
  EXPECT_EQ(ring_.header()->version, RJDBI_RING_VERSION);
  EXPECT_EQ(ring_.header()->half_bytes, kHalf);
  EXPECT_EQ(ring_.header()->reservation, 0u);
}

TEST_F(RingReaderTest, RecordsComeInOrderAndLeaveZeros) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0});
  for (uint32_t round = 0; round < 5; ++round) {
    sink_.taken.clear();
    for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(Write(i % 2 ? 32 : 288, i, round * 100 + i + 1));
    reader.Read(0, sink_);
    ASSERT_EQ(sink_.taken.size(), 10u);
    for (uint32_t i = 0; i < 10; ++i) {
      const uint32_t payload = round * 100 + i + 1;
      EXPECT_EQ(sink_.taken[i], (Copy{i, RJDBI_RECORD_ADDRESS, payload, ~uint64_t{payload}}));
    }
    EXPECT_TRUE(AllZero(ring_.half(0), size_t{2} * kHalf));
  }
  EXPECT_EQ(reader.totals().records, 50u);
  EXPECT_EQ(reader.totals().read, 25u * (32 + 288));
  EXPECT_EQ(reader.totals().lost, 0u);
  std::vector<uint64_t> by_site(kSites);
  std::fill_n(by_site.begin(), 10, 5);
  EXPECT_EQ(reader.site_records(), by_site);
  ExpectBooksBalance(reader.totals());
}

TEST_F(RingReaderTest, AnEmptyRingIsLeftAlone) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0});
  reader.Read(0, sink_);
  reader.Read(1, sink_);
  EXPECT_EQ(ring_.header()->reservation, 0u);
  EXPECT_EQ(reader.totals().asked, 0u);
}

TEST_F(RingReaderTest, WhatDoesNotFitIsLostToTheByte) {
  // 544 does not divide the half: the last bytes hold none.
  for (const uint32_t bytes : {32u, 544u, 1008u}) {
    RingMemory ring(kHalf);
    RingReader::Format(ring.data(), kHalf);
    RingReader reader(ring.data(), {kHalf, kSites, SizeBit(bytes)});
    Collector sink;
    uint64_t written = 0, lost = 0;
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 300; ++i) {
        Reservation place(ring, RJDBI_RECORD_EXEC, bytes, 3);
        if (place.fits()) {
          place.Complete(1, 7);
          ++written;
        } else {
          ++lost;
        }
      }
      reader.Read(0, sink);
      EXPECT_FALSE(reader.waiting());  // at once: nothing else can be in the last bytes
    }
    EXPECT_EQ(written, 4 * (kHalf / bytes));
    EXPECT_EQ(sink.taken.size(), written);
    EXPECT_EQ(reader.totals().lost, lost * bytes);
    EXPECT_EQ(reader.totals().unfinished, 0u);
    EXPECT_TRUE(sink.whole);
    ExpectBooksBalance(reader.totals());
  }
}

TEST_F(RingReaderTest, AnUnfinishedRecordIsWaitedForAndThenGivenUp) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0}, {.unfinished_ns = 100 * kMs, .tail_ns = kMs});
  ASSERT_TRUE(Write(32, 0, 1));
  Reservation slow(ring_, RJDBI_RECORD_EXEC, 32, 1);
  ASSERT_TRUE(Write(64, 2, 2));
  reader.Read(0, sink_);
  EXPECT_EQ(sink_.taken.size(), 1u);
  EXPECT_TRUE(reader.waiting());
  ASSERT_TRUE(Write(32, 3, 3));  // the other half takes records meanwhile
  reader.Read(99 * kMs, sink_);
  EXPECT_EQ(sink_.taken.size(), 1u);
  reader.Read(100 * kMs, sink_);
  EXPECT_FALSE(reader.waiting());
  EXPECT_EQ(reader.totals().unfinished, 96u);
  EXPECT_TRUE(AllZero(ring_.half(0), kHalf));
  reader.Read(101 * kMs, sink_);
  EXPECT_EQ(sink_.taken.size(), 2u);
  EXPECT_EQ(sink_.taken.back().site, 3u);
  ExpectBooksBalance(reader.totals());
}

TEST_F(RingReaderTest, ALateRecordIsTakenWithWhatIsBehindIt) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0});
  Reservation slow(ring_, RJDBI_RECORD_EXEC, 32, 1);
  ASSERT_TRUE(Write(64, 2, 2));
  reader.Read(0, sink_);
  EXPECT_TRUE(sink_.taken.empty());
  slow.Complete(5, 9);
  reader.Read(1, sink_);
  EXPECT_EQ(sink_.taken.size(), 2u);
  EXPECT_EQ(reader.totals().unfinished, 0u);
}

TEST_F(RingReaderTest, TheTailOfAFullHalfWithMixedSizes) {
  RingReader reader(ring_.data(), {kHalf, kSites, SizeBit(32) | SizeBit(544)},
                    {.unfinished_ns = 1000 * kMs, .tail_ns = 10 * kMs});
  while (Write(544, 0, 1)) {
  }
  // Room for several of 32 bytes, but the first that asked was larger.
  reader.Read(0, sink_);
  EXPECT_EQ(sink_.taken.size(), kHalf / 544);
  EXPECT_TRUE(reader.waiting());
  reader.Read(10 * kMs, sink_);
  EXPECT_FALSE(reader.waiting());
  EXPECT_EQ(reader.totals().lost, 544u);
  EXPECT_EQ(reader.totals().unfinished, 0u);
  ExpectBooksBalance(reader.totals());
}

TEST_F(RingReaderTest, ARefusingSinkLosesNothing) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0});
  for (uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(Write(32, i, i));
  sink_.refuse = true;
  EXPECT_THROW(reader.Read(0, sink_), std::bad_alloc);
  EXPECT_EQ(reader.totals().records, 0u);
  sink_.refuse = false;
  reader.Read(0, sink_);
  EXPECT_EQ(sink_.taken.size(), 20u);
  EXPECT_EQ(std::count(reader.site_records().begin(), reader.site_records().end(), 1u), 20);
}

TEST_F(RingReaderTest, FinishTakesBothHalvesAndGivesUpTheRest) {
  RingReader reader(ring_.data(), {kHalf, kSites, 0});
  ASSERT_TRUE(Write(32, 0, 1));
  Reservation dead(ring_, RJDBI_RECORD_EXEC, 32, 1);
  reader.Read(1000 * kMs, sink_);
  ASSERT_TRUE(Write(32, 0, 2));
  Reservation dead_too(ring_, RJDBI_RECORD_EXEC, 64, 1);
  reader.Finish(sink_);
  EXPECT_EQ(sink_.taken.size(), 2u);
  EXPECT_EQ(reader.totals().unfinished, 96u);
  ExpectBooksBalance(reader.totals());
}

struct Nonsense {
  const char* what;
  uint32_t descriptor;
  uint32_t ticket;
  uint64_t unfinished;  // of 192 bytes asked for, of which 32 are a good record
};

TEST_F(RingReaderTest, NonsenseTakesTheRestOfItsHalf) {
  const Nonsense cases[] = {
      {"size 0", Descriptor(RJDBI_RECORD_EXEC, 0, 1), 32, 160},
      {"size 16", Descriptor(RJDBI_RECORD_EXEC, 16, 1), 32, 160},
      {"beyond what was asked", Descriptor(RJDBI_RECORD_EXEC, 1008, 1), 32, 160},
      {"kind 0", Descriptor(0, 32, 1), 32, 160},
      {"unknown kind", Descriptor(63, 32, 1), 32, 160},
      {"another's ticket", Descriptor(RJDBI_RECORD_EXEC, 32, 1), 64, 160},
      {"all ones", 0xffffffff, 0xffffffff, 160},
      {"a site that there is not", Descriptor(RJDBI_RECORD_EXEC, 32, kSites), 32, 160},
      {"a size that no site has", Descriptor(RJDBI_RECORD_EXEC, 64, 1), 32, 160},
  };
  for (const Nonsense& c : cases) {
    SCOPED_TRACE(c.what);
    RingMemory ring(kHalf);
    RingReader::Format(ring.data(), kHalf);
    RingReader reader(ring.data(), {kHalf, kSites, SizeBit(32)});
    Collector sink;
    for (uint32_t i = 0; i < 6; ++i) Reservation(ring, RJDBI_RECORD_EXEC, 32, i).Complete(1, i);
    const rjdbi_record_header bad = {1, c.ticket, c.descriptor};
    std::memcpy(ring.half(0) + 32, &bad, sizeof bad);
    reader.Read(0, sink);
    EXPECT_EQ(sink.taken.size(), 1u);
    EXPECT_EQ(reader.totals().unfinished, c.unfinished);
    EXPECT_TRUE(AllZero(ring.half(0), kHalf));
    ExpectBooksBalance(reader.totals());
    // And goes on with the other half.
    Reservation(ring, RJDBI_RECORD_EXEC, 32, 9).Complete(1, 9);
    reader.Read(0, sink);
    EXPECT_EQ(sink.taken.size(), 2u);
  }
}

// Anything may stand anywhere, the reservation word included.
TEST_F(RingReaderTest, NoContentMakesItLeaveTheRing) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    RingReader reader(ring_.data(),
                      {kHalf, kSites, round % 3 == 0 ? SizeBit(32) | SizeBit(544) : 0});
    uint64_t at = 0;
    // Half of the rounds start with records that are good but for chance.
    for (; round % 2 == 0 && at + 1008 < kHalf;) {
      const uint32_t bytes = 16 * static_cast<uint32_t>(random() % 64);
      const rjdbi_record_header header = {random(), static_cast<uint32_t>(at),
                                          Descriptor(static_cast<uint32_t>(random() % 8), bytes,
                                                     static_cast<uint32_t>(random() % 99))};
      std::memcpy(ring_.half(0) + at, &header, sizeof header);
      at += std::max<uint32_t>(bytes, 16);
    }
    for (int i = 0; i < 200; ++i) {
      const uint64_t word = random();
      std::memcpy(ring_.half(0) + random() % (2 * kHalf - 8), &word, 8);
    }
    const uint64_t asked[] = {random(), random() % kHalf, random() % (4 * kHalf), UINT64_MAX, 8};
    ring_.header()->reservation = asked[round % 5];
    std::memset(ring_.half(0) + size_t{2} * kHalf, 0xee, RJDBI_RING_PAD_BYTES);
    reader.Read(0, sink_);
    reader.Finish(sink_);
    ExpectBooksBalance(reader.totals());
    for (uint32_t i = 0; i < RJDBI_RING_PAD_BYTES; ++i) {
      ASSERT_EQ(ring_.half(0)[size_t{2} * kHalf + i], 0xee);
    }
    sink_.taken.clear();
    std::memset(ring_.half(0), 0, size_t{2} * kHalf);
    RingReader::Format(ring_.data(), kHalf);
  }
}

// ---- Many writers ----

struct Race {
  const char* name;
  uint32_t half_bytes;
  std::vector<uint32_t> sizes;
  int writers;
  int events;  // of each writer
};

void PrintTo(const Race& race, std::ostream* out) { *out << race.name; }

class RingRaceTest : public ::testing::TestWithParam<Race> {};

// Every event is a record that was read whole and once, or is counted as lost.
TEST_P(RingRaceTest, EveryEventIsReadOnceOrCountedAsLost) {
  const Race& race = GetParam();
  const size_t sites = race.sizes.size();
  RingMemory ring(race.half_bytes);
  RingReader::Format(ring.data(), race.half_bytes);
  uint64_t sizes = 0;
  for (const uint32_t bytes : race.sizes) sizes |= SizeBit(bytes);
  // However long a writer may be kept from running.
  RingReader reader(ring.data(), {race.half_bytes, static_cast<uint32_t>(sites), sizes},
                    {.unfinished_ns = 600'000 * kMs, .tail_ns = 600'000 * kMs});
  std::vector<std::atomic<uint64_t>> lost(sites);
  std::atomic<int> running{race.writers};
  std::vector<std::thread> writers;
  for (int w = 0; w < race.writers; ++w) {
    writers.emplace_back([&, w] {
      std::mt19937 random(static_cast<uint32_t>(w));
      for (int event = 0; event < race.events; ++event) {
        const size_t site = random() % sites;
        Reservation place(ring, RJDBI_RECORD_ADDRESS, race.sizes[site],
                          static_cast<uint32_t>(site));
        if (place.fits()) {
          place.Complete(static_cast<uint64_t>(w) << 32 | static_cast<uint32_t>(event),
                         static_cast<uint32_t>(w * race.events + event));
        } else {
          ++lost[site];
        }
        if (random() % 16 == 0) std::this_thread::yield();
      }
      --running;
    });
  }
  Collector sink;
  while (running > 0) reader.Read(MonotonicNs(), sink);
  for (std::thread& writer : writers) writer.join();
  reader.Finish(sink);

  const uint64_t events = static_cast<uint64_t>(race.writers) * static_cast<uint64_t>(race.events);
  uint64_t lost_records = 0, lost_bytes = 0;
  for (size_t site = 0; site < sites; ++site) {
    lost_records += lost[site];
    lost_bytes += lost[site] * race.sizes[site];
  }
  EXPECT_EQ(reader.totals().records + lost_records, events);
  EXPECT_EQ(reader.totals().lost, lost_bytes);
  EXPECT_EQ(reader.totals().unfinished, 0u);
  EXPECT_EQ(sink.taken.size(), reader.totals().records);
  EXPECT_GT(sink.taken.size(), 0u);
  EXPECT_TRUE(sink.whole);
  ExpectBooksBalance(reader.totals());
  std::map<uint64_t, int> seen;
  std::vector<uint64_t> by_site(sites);
  std::map<uint32_t, uint32_t> last;  // of a writer
  for (const Copy& copy : sink.taken) {
    EXPECT_EQ(++seen[copy.exec], 1);
    ++by_site[copy.site];
    const auto writer = static_cast<uint32_t>(copy.exec >> 32);
    const auto event = static_cast<uint32_t>(copy.exec);
    if (last.count(writer) != 0) {
      EXPECT_GT(event, last[writer]);  // a wavefront's are in order
    }
    last[writer] = event;
  }
  EXPECT_EQ(reader.site_records(), by_site);
}

INSTANTIATE_TEST_SUITE_P(Rings, RingRaceTest,
                         ::testing::Values(Race{"one_size", kHalf, {32}, 4, 20000},
                                           Race{"odd_size", kHalf, {544}, 4, 5000},
                                           Race{"largest", kHalf, {1008}, 3, 5000},
                                           Race{"mixed_sizes", 16 << 20, {32, 288, 544}, 4, 5000},
                                           Race{"single_writer", kHalf, {48}, 1, 20000}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rjdbi::agent
