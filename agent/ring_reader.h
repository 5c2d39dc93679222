// The host's side of the ring of trace records (proto/rjdbi/telemetry_ring.h): closes
// the half that wavefronts write to, takes the records out of it in order, and leaves
// it zeroed for its next turn.
//
// What is in the ring was written by a GPU, which any kernel of the application can
// disturb: nothing in it is believed before it is checked. A record that makes no
// sense, or that its wavefront does not complete in time, takes the rest of its half
// with it, because where the next one begins is then unknown.
//
// Every byte that was asked for ends up in exactly one of three sums:
//   asked = records + lost (did not fit) + unfinished
#ifndef RJDBI_AGENT_RING_READER_H_
#define RJDBI_AGENT_RING_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::agent {

// Takes records out of the ring, in its order.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // `count` whole records that lie one behind the other; at most
  // RingReader::kMostRunBytes. They are gone when it returns. May throw
  // std::bad_alloc: the same records come again.
  virtual void Take(const uint8_t* records, size_t bytes, uint64_t count) = 0;
};

// Bytes since the ring was made.
struct RingTotals {
  uint64_t asked = 0;  // of halves that have been closed
  uint64_t read = 0;
  uint64_t lost = 0;        // asked for beyond a half's end
  uint64_t unfinished = 0;  // reserved, and never completed or not understood
  uint64_t records = 0;     // how many records `read` are
};

// Not thread-safe. The memory is the caller's and must outlive the reader.
class RingReader {
 public:
  static constexpr size_t kMostRunBytes = 64 << 10;

  struct Patience {
    // For a record whose wavefront has reserved but not completed it.
    int64_t unfinished_ns = 2'000'000'000;
    // Near the end of a full half, where the next record may as well not have fitted.
    // Only when sizes of both kinds are in use.
    int64_t tail_ns = 100'000'000;
  };

  // Makes a ring of zeroed memory.
  static void Format(void* ring, uint32_t half_bytes);

  // What may be in a ring.
  struct Shape {
    uint32_t half_bytes = 0;
    uint32_t sites = 0;  // numbered from 0
    uint64_t sizes = 0;  // bit u: records of u units of 16 bytes; 0: any size
  };

  // `ring` is the header's address. May throw std::bad_alloc.
  RingReader(void* ring, const Shape& shape, Patience patience);
  RingReader(void* ring, const Shape& shape) : RingReader(ring, shape, Patience()) {}

  // Takes what is complete, from one half at most, without waiting. `now_ns` is any
  // clock that only goes forward.
  void Read(int64_t now_ns, RecordSink& sink);
  // Takes all that is complete in both halves, and gives the rest up. Writers should
  // have ended.
  void Finish(RecordSink& sink);

  // Whether a record is being waited for.
  bool waiting() const { return busy_ && position_ < end_; }
  const RingTotals& totals() const { return totals_; }
  // Records read, by site.
  const std::vector<uint64_t>& site_records() const { return site_records_; }

 private:
  enum class Next : uint8_t { kRecord, kNothing, kNonsense };

  uint8_t* half(uint32_t which) const;
  // Closes the open half, if anything was asked of it.
  void Close();
  Next Inspect(size_t position, uint32_t* descriptor) const;
  bool KnownSize(uint32_t bytes) const;
  // Whether a record could lie in the last `room` bytes of a full half; whether all
  // would.
  bool FitsSome(size_t room) const { return room >= least_; }
  bool FitsAny(size_t room) const { return room >= most_; }
  // Takes complete records from the closed half. What stopped it.
  Next TakeRun(RecordSink& sink);
  void TakeAll(int64_t now_ns, RecordSink& sink);
  bool PatienceIsOver(int64_t now_ns);
  void GiveUpRest();
  void EndHalf(uint64_t lost);

  uint8_t* const ring_;
  const uint32_t half_bytes_;
  const uint32_t sites_;
  const uint64_t sizes_;
  const Patience patience_;
  uint32_t least_, most_;  // of the sizes, bytes

  uint32_t open_ = 0;    // the half that wavefronts write to
  bool busy_ = false;    // the other one is being read:
  size_t position_ = 0;  //   up to here
  size_t end_ = 0;       //   of what may hold records
  uint64_t asked_ = 0;   //   what was asked of it
  bool stuck_ = false;   //   waiting since:
  int64_t stuck_ns_ = 0;
  RingTotals totals_;
  std::vector<uint64_t> site_records_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_RING_READER_H_
