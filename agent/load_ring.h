// The ring of one load, drained into batches. The drain thread, and whoever ends the
// load, share it.
#ifndef RJDBI_AGENT_LOAD_RING_H_
#define RJDBI_AGENT_LOAD_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/record_batches.h"
#include "agent/ring_reader.h"
#include "agent/types.h"

namespace rjdbi::agent {

// Thread-safe. The ring's memory is not touched while held, nor after Finish.
class LoadRing final : private RecordSink {
 public:
  static constexpr size_t kBatchBytes = 512 << 10;

  // `ring`: formatted, see RingReader. `queue` must outlive this.
  LoadRing(uint64_t load_id, void* ring, const RingReader::Shape& shape, BatchQueue& queue);

  // Bytes that were read; batches of them are in the queue, or counted as dropped.
  // Never waits.
  size_t Drain(int64_t now_ns);
  // Waits a moment for records that are being written, takes what there is, and gives
  // up the rest. With `last` the memory is not touched again.
  void Finish(bool last);
  void Hold(bool hold);
  uint64_t written() const { return written_.load(); }
  RecordTotals Totals();

 private:
  void Take(const uint8_t* records, size_t bytes, uint64_t count) override;
  // The batch at hand goes to the queue, or its records are dropped.
  void CloseBatch();
  size_t ReadSome(int64_t now_ns);

  const uint64_t load_id_;
  BatchQueue& queue_;
  const DroppedRecords dropped_;
  std::atomic<uint64_t> written_{0};

  std::mutex mutex_;  // guards what follows
  RingReader reader_;
  RecordBatch batch_;
  uint64_t sequence_ = 0;
  bool held_ = false;
  bool finished_ = false;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_LOAD_RING_H_
