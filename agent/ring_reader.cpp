// Reading and clearing halves; see ring_reader.h.
#include "agent/ring_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace rjdbi::agent {
namespace {

constexpr uint32_t kLeastRecordBytes = 2 * RJDBI_RECORD_ALIGNMENT;  // header and kind's own

rjdbi_ring_header* Header(uint8_t* ring) { return reinterpret_cast<rjdbi_ring_header*>(ring); }

uint32_t LeastOf(uint64_t sizes) {
  if (sizes == 0) return kLeastRecordBytes;
  return static_cast<uint32_t>(__builtin_ctzll(sizes)) * RJDBI_RECORD_ALIGNMENT;
}

uint32_t MostOf(uint64_t sizes) {
  if (sizes == 0) return RJDBI_RECORD_MOST_BYTES;
  return static_cast<uint32_t>(63 - __builtin_clzll(sizes)) * RJDBI_RECORD_ALIGNMENT;
}

// Those of at least kLeastRecordBytes.
uint64_t UsableSizes(uint64_t sizes) { return sizes & ~uint64_t{3}; }

}  // namespace

void RingReader::Format(void* ring, uint32_t half_bytes) {
  rjdbi_ring_header* header = Header(static_cast<uint8_t*>(ring));
  header->version = RJDBI_RING_VERSION;
  header->half_bytes = half_bytes;
  __atomic_store_n(&header->reservation, 0, __ATOMIC_RELEASE);
}

RingReader::RingReader(void* ring, const Shape& shape, Patience patience)
    : ring_(static_cast<uint8_t*>(ring)),
      half_bytes_(shape.half_bytes),
      sites_(shape.sites),
      sizes_(UsableSizes(shape.sizes)),
      patience_(patience),
      least_(LeastOf(sizes_)),
      most_(MostOf(sizes_)),
      site_records_(shape.sites) {}

uint8_t* RingReader::half(uint32_t which) const {
  return ring_ + RJDBI_RING_HEADER_BYTES + size_t{which} * half_bytes_;
}

bool RingReader::KnownSize(uint32_t bytes) const {
  if (sizes_ == 0) return bytes >= kLeastRecordBytes;
  return ((sizes_ >> (bytes / RJDBI_RECORD_ALIGNMENT)) & 1) != 0;
}

void RingReader::Close() {
  uint64_t* word = &Header(ring_)->reservation;
  const uint64_t start = open_ == 0 ? 0 : RJDBI_RING_HALF_BIT;
  if (__atomic_load_n(word, __ATOMIC_RELAXED) == start) return;
  const uint32_t next = 1 - open_;
  // Release: the next half is zero before anyone finds it open.
  const uint64_t was =
      __atomic_exchange_n(word, next == 0 ? 0 : RJDBI_RING_HALF_BIT, __ATOMIC_ACQ_REL);
  asked_ = was & ~uint64_t{RJDBI_RECORD_ALIGNMENT - 1};
  open_ = next;
  busy_ = true;
  position_ = 0;
  end_ = static_cast<size_t>(std::min<uint64_t>(asked_, half_bytes_));
  stuck_ = false;
  totals_.asked += asked_;
}

RingReader::Next RingReader::Inspect(size_t position, uint32_t* descriptor) const {
  auto* record = reinterpret_cast<rjdbi_record_header*>(half(1 - open_) + position);
  // Acquire: what is before the descriptor in memory is there once it is.
  *descriptor = __atomic_load_n(&record->descriptor, __ATOMIC_ACQUIRE);
  if (*descriptor == 0) return Next::kNothing;
  const uint32_t bytes = RJDBI_RECORD_BYTES(*descriptor);
  const uint32_t kind = RJDBI_RECORD_KIND(*descriptor);
  const uint64_t ticket = position + (open_ == 0 ? RJDBI_RING_HALF_BIT : 0);  // of the other half
  const bool sound = KnownSize(bytes) && bytes <= end_ - position && kind >= RJDBI_RECORD_EXEC &&
                     kind <= RJDBI_RECORD_USER && RJDBI_RECORD_SITE(*descriptor) < sites_ &&
                     record->ticket == ticket;
  return sound ? Next::kRecord : Next::kNonsense;
}

RingReader::Next RingReader::TakeRun(RecordSink& sink) {
  // What was checked is not read a second time: it may have changed.
  std::array<uint32_t, kMostRunBytes / kLeastRecordBytes> sites;
  uint8_t* const run = half(1 - open_) + position_;
  size_t bytes = 0;
  size_t count = 0;
  Next next = Next::kRecord;
  uint32_t descriptor = 0;
  while (position_ + bytes < end_ &&
         (next = Inspect(position_ + bytes, &descriptor)) == Next::kRecord) {
    const uint32_t size = RJDBI_RECORD_BYTES(descriptor);
    if (bytes + size > kMostRunBytes) break;
    sites[count++] = RJDBI_RECORD_SITE(descriptor);
    bytes += size;
  }
  if (count == 0) return next;
  sink.Take(run, bytes, count);
  for (size_t i = 0; i < count; ++i) ++site_records_[sites[i]];
  std::memset(run, 0, bytes);
  position_ += bytes;
  totals_.read += bytes;
  totals_.records += count;
  stuck_ = false;
  return next;
}

// Leaves the half zeroed from the position on.
void RingReader::EndHalf(uint64_t lost) {
  std::memset(half(1 - open_) + position_, 0, end_ - position_);
  totals_.lost += lost;
  busy_ = false;
  position_ = end_ = 0;
}

void RingReader::GiveUpRest() {
  totals_.unfinished += end_ - position_;
  EndHalf(asked_ - end_);
}

bool RingReader::PatienceIsOver(int64_t now_ns) {
  if (!stuck_) {
    stuck_ = true;
    stuck_ns_ = now_ns;
  }
  const bool tail = asked_ > half_bytes_ && !FitsAny(end_ - position_);
  return now_ns - stuck_ns_ >= (tail ? patience_.tail_ns : patience_.unfinished_ns);
}

void RingReader::TakeAll(int64_t now_ns, RecordSink& sink) {
  Next next = Next::kRecord;
  while (position_ < end_ && next == Next::kRecord) next = TakeRun(sink);
  const size_t room = end_ - position_;
  const bool full = asked_ > half_bytes_;
  if (room == 0 || (full && next == Next::kNothing && !FitsSome(room))) {
    return EndHalf(asked_ - position_);
  }
  if (next == Next::kNonsense) return GiveUpRest();
  if (!PatienceIsOver(now_ns)) return;
  // In a full half whatever asked for the last bytes most likely did not fit.
  if (full && !FitsAny(room)) return EndHalf(asked_ - position_);
  GiveUpRest();
}

void RingReader::Read(int64_t now_ns, RecordSink& sink) {
  if (!busy_) Close();
  if (busy_) TakeAll(now_ns, sink);
}

void RingReader::Finish(RecordSink& sink) {
  for (int half = 0; half < 2; ++half) {
    Read(0, sink);
    if (busy_) Read(INT64_MAX, sink);
    if (busy_) GiveUpRest();
  }
}

}  // namespace rjdbi::agent
