// From the ring to the queue; see load_ring.h.
#include "agent/load_ring.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "agent/types.h"

namespace rjdbi::agent {
namespace {

// For records that are being written while their load ends.
constexpr int64_t kLastMomentNs = 50 * kNsPerMs;
constexpr int64_t kPauseNs = kNsPerMs / 2;

void Pause() {
  timespec pause{0, kPauseNs};
  nanosleep(&pause, nullptr);
}

}  // namespace

LoadRing::LoadRing(uint64_t load_id, void* ring, const RingReader::Shape& shape, BatchQueue& queue)
    : load_id_(load_id),
      queue_(queue),
      dropped_(std::make_shared<std::atomic<uint64_t>>(0)),
      reader_(ring, shape) {}

void LoadRing::Take(const uint8_t* records, size_t bytes, uint64_t count) {
  if (batch_.records.size() + bytes > kBatchBytes) CloseBatch();
  if (!queue_.HasRoom(batch_.records.size() + bytes)) {
    *dropped_ += count;
    return;
  }
  batch_.records.insert(batch_.records.end(), records, records + bytes);
  batch_.count += count;
}

void LoadRing::CloseBatch() {
  if (batch_.count == 0) return;
  batch_.load_id = load_id_;
  batch_.sequence = sequence_ + 1;
  batch_.written = reader_.totals().records;
  batch_.lost_agent_queue = dropped_->load();
  batch_.unfinished_bytes = reader_.totals().unfinished;
  batch_.dropped = dropped_;
  bool queued = false;
  try {
    queued = queue_.Push(batch_);
  } catch (const std::exception&) {
  }
  if (queued) {
    ++sequence_;
  } else {
    *dropped_ += batch_.count;
  }
  batch_ = RecordBatch();
}

size_t LoadRing::ReadSome(int64_t now_ns) {
  const uint64_t before = reader_.totals().read;
  try {
    reader_.Read(now_ns, *this);
  } catch (const std::exception&) {  // std::bad_alloc: the same records come again
  }
  CloseBatch();
  written_ = reader_.totals().records;
  return reader_.totals().read - before;
}

size_t LoadRing::Drain(int64_t now_ns) {
  std::lock_guard lock(mutex_);
  return held_ || finished_ ? 0 : ReadSome(now_ns);
}

void LoadRing::Finish(bool last) {
  std::lock_guard lock(mutex_);
  if (held_ || finished_) return;
  finished_ = last;
  const Deadline deadline = Deadline::After(kLastMomentNs);
  // Twice, so that both halves get their turn; more while something is missing.
  for (int round = 0; round < 2 || (reader_.waiting() && !deadline.Passed()); ++round) {
    if (round >= 2) Pause();
    ReadSome(MonotonicNs());
  }
  if (!last) return;
  try {
    reader_.Finish(*this);
  } catch (const std::exception&) {
  }
  CloseBatch();
  written_ = reader_.totals().records;
}

void LoadRing::Hold(bool hold) {
  std::lock_guard lock(mutex_);
  held_ = hold;
}

RecordTotals LoadRing::Totals() {
  std::lock_guard lock(mutex_);
  return {reader_.site_records(), reader_.totals().records, dropped_->load(),
          reader_.totals().unfinished};
}

}  // namespace rjdbi::agent
