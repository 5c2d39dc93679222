// What a trace record costs the host: taking it out of the ring, and keeping it in the
// daemon. Each beside a memcpy of the same bytes, on one thread, in the same run.
#include <benchmark/benchmark.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "agent/load_ring.h"
#include "daemon/record_store.h"
#include "tests/agent/ring_writer.h"

namespace rjdbi::bench {
namespace {

constexpr uint32_t kHalf = 1 << 20;
constexpr uint32_t kSites = 16;

// CPU seconds of this thread: other programs' time is not ours.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// A full half, as wavefronts leave it.
std::vector<uint8_t> FullHalf(uint32_t half, uint32_t bytes) {
  std::vector<uint8_t> image(kHalf);
  uint32_t site = 0;
  for (uint32_t at = 0; at + bytes <= kHalf; at += bytes) {
    const rjdbi_record_header header = {
        UINT64_MAX, at | (half == 0 ? 0 : RJDBI_RING_HALF_BIT),
        agent::testing::Descriptor(RJDBI_RECORD_EXEC, bytes, site++ % kSites)};
    std::memset(image.data() + at, 0x5a, bytes);
    std::memcpy(image.data() + at, &header, sizeof header);
  }
  return image;
}

double MemcpySeconds(const std::vector<uint8_t>& from, std::vector<uint8_t>& to, size_t bytes) {
  const double start = Now();
  std::memcpy(to.data(), from.data(), bytes);
  benchmark::DoNotOptimize(to.data());
  benchmark::ClobberMemory();
  return Now() - start;
}

void Report(benchmark::State& state, double records, double seconds, double memcpy_seconds) {
  state.counters["records_per_s"] = records / seconds;
  state.counters["ns_per_record"] = seconds * 1e9 / records;
  state.counters["times_memcpy"] = seconds / memcpy_seconds;
}

// From a full half to the agent's queue, zeroing included.
void Drain(benchmark::State& state, uint32_t bytes) {
  agent::testing::RingMemory memory(kHalf);
  agent::RingReader::Format(memory.data(), kHalf);
  agent::BatchQueue queue(4 * kHalf);
  agent::LoadRing ring(1, memory.data(), {kHalf, kSites, uint64_t{1} << (bytes / 16)}, queue);
  const std::vector<uint8_t> images[] = {FullHalf(0, bytes), FullHalf(1, bytes)};
  std::vector<uint8_t> copy(kHalf);
  double seconds = 0, memcpy_seconds = 0, records = 0;
  for (uint32_t round = 0; state.KeepRunning(); ++round) {
    const uint32_t half = round % 2;
    std::memcpy(memory.half(half), images[half].data(), kHalf);
    memory.header()->reservation = kHalf / bytes * bytes + (half == 0 ? 0 : RJDBI_RING_HALF_BIT);
    memcpy_seconds += MemcpySeconds(images[half], copy, kHalf / bytes * bytes);
    const double start = Now();
    const size_t drained = ring.Drain(1);
    const double took = Now() - start;
    if (drained != kHalf / bytes * bytes) return state.SkipWithError("records are missing");
    queue.Done(queue.Take(4 * kHalf), agent::BatchQueue::Fate::kDelivered);
    seconds += took;
    records += kHalf / bytes;
    state.SetIterationTime(took);
  }
  Report(state, records, seconds, memcpy_seconds);
}

std::shared_ptr<daemon::RecordOrigin> Origin(uint32_t bytes) {
  auto decision = std::make_shared<daemon::Decision>();
  decision->record.set_ring_half_bytes(kHalf);
  v1::Attachment attachment;
  attachment.set_id("a1");
  for (uint32_t site = 0; site < kSites; ++site) {
    v1::Decision& made = *decision->record.add_decisions();
    made.set_attachment_id("#0");
    made.mutable_record_layout()->set_kind(RJDBI_RECORD_EXEC);
    made.mutable_record_layout()->set_site(site);
    made.mutable_record_layout()->set_bytes(bytes);
  }
  auto origin = std::make_shared<daemon::RecordOrigin>();
  origin->records = daemon::LoadRecords::Make(
      decision, std::make_shared<daemon::Question>(daemon::Question::Make("hash", {attachment})));
  origin->rate = std::make_shared<daemon::RateLimit>();
  origin->sources.resize(kSites);
  return origin;
}

// From a batch that has arrived to the store, older ones making room.
void Store(benchmark::State& state, uint32_t bytes) {
  daemon::RecordStore store({.bytes_per_attachment = 16 << 20, .bytes_per_second = 0});
  const auto origin = Origin(bytes);
  const std::vector<uint8_t> image = FullHalf(0, bytes);
  const uint64_t count = agent::LoadRing::kBatchBytes / bytes;
  std::vector<uint8_t> copy(kHalf);
  v1::RecordBatch batch;
  batch.set_records(image.data(), count * bytes);
  batch.set_count(count);
  double seconds = 0, memcpy_seconds = 0, records = 0;
  for (uint64_t round = 1; state.KeepRunning(); ++round) {
    batch.set_sequence(round);
    batch.set_written(round * count);
    memcpy_seconds += MemcpySeconds(image, copy, count * bytes);
    const double start = Now();
    store.Add(origin, batch, 1);
    const double took = Now() - start;
    seconds += took;
    records += static_cast<double>(count);
    state.SetIterationTime(took);
  }
  if (origin->records->Losses().rejected() != 0) return state.SkipWithError("records rejected");
  Report(state, records, seconds, memcpy_seconds);
}

void Register() {
  for (const uint32_t bytes : {32u, 288u, 544u}) {
    const std::string size = std::to_string(bytes);
    benchmark::RegisterBenchmark(("drain/" + size).c_str(), Drain, bytes)->UseManualTime();
    benchmark::RegisterBenchmark(("store/" + size).c_str(), Store, bytes)->UseManualTime();
  }
}

}  // namespace
}  // namespace rjdbi::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  rjdbi::bench::Register();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
