// Records on their way from a ring to the daemon: batches of one load, and the queue
// in which they wait, which holds so many bytes and no more.
#ifndef RJDBI_AGENT_RECORD_BATCHES_H_
#define RJDBI_AGENT_RECORD_BATCHES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace rjdbi::agent {

// Records of one load that were read and then dropped: counted from several threads.
using DroppedRecords = std::shared_ptr<std::atomic<uint64_t>>;

struct RecordBatch {
  uint64_t load_id = 0;
  uint64_t sequence = 0;  // counts the load's batches from 1
  std::vector<uint8_t> records;
  uint64_t count = 0;  // of records
  // Since the load, this batch included.
  uint64_t written = 0;           // records read from the ring
  uint64_t lost_agent_queue = 0;  // of these, dropped
  uint64_t unfinished_bytes = 0;
  DroppedRecords dropped;  // where its records are counted if it is dropped after all
};

// Thread-safe.
class BatchQueue {
 public:
  explicit BatchQueue(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Whether a batch of so many bytes would be taken now.
  bool HasRoom(size_t bytes) const { return bytes_.load() + bytes <= most_bytes_; }
  // False: no room; the batch is untouched. May throw std::bad_alloc, likewise.
  bool Push(RecordBatch& batch);
  // The oldest batches, of `most_bytes` together but at least one; they count as
  // queued until Done. Empty: there are none.
  std::vector<RecordBatch> Take(size_t most_bytes);
  // What Take gave has been delivered, or has to wait (and goes back in front), or can
  // never be delivered (and its records are counted as dropped).
  enum class Fate : uint8_t { kDelivered, kWaits, kDropped };
  void Done(std::vector<RecordBatch> batches, Fate fate);
  bool empty() const { return bytes() == 0; }
  size_t bytes() const { return bytes_.load(); }

 private:
  const size_t most_bytes_;
  std::atomic<size_t> bytes_{0};  // of those that were taken, too
  std::mutex mutex_;
  std::deque<RecordBatch> batches_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_RECORD_BATCHES_H_
