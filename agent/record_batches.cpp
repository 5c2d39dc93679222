// The bounded queue; see record_batches.h.
#include "agent/record_batches.h"

#include <exception>
#include <utility>

namespace rjdbi::agent {

bool BatchQueue::Push(RecordBatch& batch) {
  const size_t bytes = batch.records.size();
  std::lock_guard lock(mutex_);
  if (!HasRoom(bytes)) return false;
  batches_.push_back(std::move(batch));
  bytes_ += bytes;
  return true;
}

std::vector<RecordBatch> BatchQueue::Take(size_t most_bytes) {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  size_t count = 0;
  while (count < batches_.size()) {
    bytes += batches_[count].records.size();
    if (count > 0 && bytes > most_bytes) break;
    ++count;
  }
  std::vector<RecordBatch> taken;
  taken.reserve(count);
  for (; count > 0; --count) {
    taken.push_back(std::move(batches_.front()));
    batches_.pop_front();
  }
  return taken;
}

void BatchQueue::Done(std::vector<RecordBatch> batches, Fate fate) {
  std::lock_guard lock(mutex_);
  while (!batches.empty()) {
    RecordBatch& last = batches.back();
    const size_t bytes = last.records.size();
    bool waits = fate == Fate::kWaits;
    if (waits) {
      try {
        batches_.push_front(std::move(last));
      } catch (const std::exception&) {
        waits = false;
      }
    }
    if (!waits) {
      if (fate != Fate::kDelivered && last.dropped) *last.dropped += last.count;
      bytes_ -= bytes;
    }
    batches.pop_back();
  }
}

}  // namespace rjdbi::agent
