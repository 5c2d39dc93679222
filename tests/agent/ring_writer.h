// The device's side of the ring of trace records, as the protocol text has it
// (proto/rjdbi/telemetry_ring.h): what a wavefront does, done by a thread.
#ifndef RJDBI_TESTS_AGENT_RING_WRITER_H_
#define RJDBI_TESTS_AGENT_RING_WRITER_H_

#include <cstdint>
#include <cstring>
#include <memory>

#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::agent::testing {

// A buffer with room for a ring, zeroed, as the agent would allocate it.
class RingMemory {
 public:
  explicit RingMemory(uint32_t half_bytes)
      : half_bytes_(half_bytes),
        bytes_(RJDBI_RING_HEADER_BYTES + size_t{2} * half_bytes + RJDBI_RING_PAD_BYTES),
        memory_(new (std::align_val_t{256}) uint8_t[bytes_]()) {}
  ~RingMemory() { operator delete[](memory_, std::align_val_t{256}); }
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  uint8_t* data() { return memory_; }
  uint8_t* half(uint32_t which) {
    return memory_ + RJDBI_RING_HEADER_BYTES + size_t{which} * half_bytes_;
  }
  rjdbi_ring_header* header() { return reinterpret_cast<rjdbi_ring_header*>(memory_); }
  uint32_t half_bytes() const { return half_bytes_; }
  size_t bytes() const { return bytes_; }

 private:
  const uint32_t half_bytes_;
  const size_t bytes_;
  uint8_t* const memory_;
};

inline uint32_t Descriptor(uint32_t kind, uint32_t bytes, uint32_t site) {
  return kind << RJDBI_RECORD_KIND_SHIFT | bytes / 16 << RJDBI_RECORD_SIZE_SHIFT | site;
}

// The place of one record between reserving and completing.
class Reservation {
 public:
  Reservation(RingMemory& ring, uint32_t kind, uint32_t bytes, uint32_t site)
      : descriptor_(Descriptor(kind, bytes, site)), bytes_(bytes) {
    ticket_ = __atomic_fetch_add(&ring.header()->reservation, uint64_t{bytes}, __ATOMIC_ACQ_REL);
    const uint64_t half = ring.half_bytes();
    if (ticket_ > half - bytes + 8) return;
    const int shift = __builtin_ctzll(half) - 3;
    const uint64_t place = (ticket_ + (ticket_ << shift)) & (2 * half - 16);
    record_ = ring.half(0) + place;
  }
  bool fits() const { return record_ != nullptr; }
  uint8_t* record() { return record_; }
  uint64_t ticket() const { return ticket_; }

  // `payload` fills the record from byte 16 on, 4 bytes at a time.
  void Complete(uint64_t exec, uint32_t payload) {
    for (uint32_t at = 16; at < bytes_; at += 4) std::memcpy(record_ + at, &payload, 4);
    auto* header = reinterpret_cast<rjdbi_record_header*>(record_);
    header->exec = exec;
    header->ticket = static_cast<uint32_t>(ticket_);
    __atomic_store_n(&header->descriptor, descriptor_, __ATOMIC_RELEASE);
  }

 private:
  const uint32_t descriptor_, bytes_;
  uint64_t ticket_ = 0;
  uint8_t* record_ = nullptr;
};

}  // namespace rjdbi::agent::testing

#endif  // RJDBI_TESTS_AGENT_RING_WRITER_H_
