// The agent's own vocabulary: the contents of admission.proto as plain values,
// so that only daemon_client/messages knows the encoding.
#ifndef RJDBI_AGENT_TYPES_H_
#define RJDBI_AGENT_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::agent {

// Bytes owned by someone else.
struct ByteView {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

using Sha256Digest = std::array<uint8_t, 32>;

// Values equal admission.proto's GapKind.
enum class GapKind : uint32_t {
  kNone = 0,
  kDaemonUnreachable = 1,
  kDeadlineExceeded = 2,
  kProtocolError = 3,
  kObjectTooLarge = 4,
  kOutOfMemory = 5,
  kNoCounterMemory = 6,
  kPatchedLoadFailed = 7,
  kUnreadableObject = 8,
  kQueueNotIntercepted = 9,
};

// A code object that was loaded without a decision, and why.
struct Gap {
  GapKind kind = GapKind::kNone;
  bool has_digest = false;
  Sha256Digest digest{};
  uint64_t size = 0;  // bytes of the object; 0 when unknown
  std::string origin;
  std::string detail;
  int64_t unix_ns = 0;
  uint64_t load_id = 0;
};

// Values equal admission.proto's FixupKind.
enum class FixupKind : uint32_t {
  kCounterAddressLo32 = 1,
  kCounterAddressHi32 = 2,
  kOriginalAddressLo32 = 3,
  kOriginalAddressHi32 = 4,
};

inline bool IsOfOriginal(FixupKind kind) {
  return kind == FixupKind::kOriginalAddressLo32 || kind == FixupKind::kOriginalAddressHi32;
}
inline bool IsHighHalf(FixupKind kind) {
  return kind == FixupKind::kCounterAddressHi32 || kind == FixupKind::kOriginalAddressHi32;
}

struct Fixup {
  uint64_t file_offset = 0;  // of a 32-bit little-endian word in the patched image
  FixupKind kind = FixupKind::kCounterAddressLo32;
  uint64_t addend = 0;  // bytes from the counter buffer's start, or the original's address 0
};

// Values equal admission.proto's AdmitVerdict.
enum class Verdict : uint32_t {
  kUnspecified = 0,
  kOriginalNotSelected = 1,
  kOriginalRefused = 2,
  kPatched = 3,
};

// Fixed-size memory whose allocation reports failure instead of throwing.
class OwnedBytes {
 public:
  OwnedBytes() = default;
  // Empty when the memory cannot be had.
  static OwnedBytes Allocate(size_t size);

  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }
  ByteView view() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<uint8_t[]> data_;
  size_t size_ = 0;
};

// A load's telemetry buffer: counters, and behind them the ring of trace records, if
// there is one (proto/rjdbi/telemetry_ring.h).
struct BufferLayout {
  uint32_t counter_count = 0;  // 64-bit counters
  uint32_t ring_half_bytes = 0;
  uint64_t ring_offset = 0;        // bytes from the first counter
  uint64_t ring_record_sizes = 0;  // bit u: some records have u units of 16 bytes
  uint32_t ring_sites = 0;         // that write records

  bool has_ring() const { return ring_half_bytes != 0; }
  uint64_t bytes() const {
    return has_ring() ? ring_offset + RJDBI_RING_HEADER_BYTES + uint64_t{2} * ring_half_bytes +
                            RJDBI_RING_PAD_BYTES
                      : uint64_t{counter_count} * sizeof(uint64_t);
  }
};

// A kernel of an image beside the original: addresses are those of the code objects.
struct KernelSwitch {
  uint64_t original_descriptor = 0;
  uint64_t descriptor = 0;
  uint32_t private_segment_bytes = 0;  // what a dispatch must ask for at least
  uint32_t group_segment_bytes = 0;
};

constexpr size_t kDescriptorBytes = 64;  // of a kernel descriptor, and its alignment

// A kernel that was patched when it was loaded, to be the application's own again.
struct KernelRestore {
  uint64_t descriptor = 0;  // the loaded object's addresses
  uint64_t code = 0;
  std::array<uint8_t, kDescriptorBytes> original{};
};

struct Decision {
  Verdict verdict = Verdict::kUnspecified;
  uint64_t patched_size = 0;  // bytes
  bool has_patched_digest = false;
  Sha256Digest patched_digest{};  // of the image before fixups
  std::vector<Fixup> fixups;
  BufferLayout buffer;
  std::string summary;
  // Only of answers for an image beside the original.
  std::vector<KernelSwitch> switches;
  std::vector<KernelRestore> restores;
  uint64_t generation = 0;  // of the attachments that were asked for
  OwnedBytes image;         // complete and verified when verdict is kPatched
};

// What the attachments of this process are, as rpc Watch says it.
struct WatchAnswer {
  uint64_t generation = 0;  // never 0 from a daemon
  uint32_t attachments = 0;
};

// What has become of a load's trace records so far.
struct RecordTotals {
  std::vector<uint64_t> site_records;  // read from the ring, by site
  uint64_t written = 0;                // their sum
  uint64_t lost_agent_queue = 0;       // of these, dropped
  uint64_t unfinished_bytes = 0;
};

// Absolute values since the load.
struct LoadCounters {
  uint64_t load_id = 0;
  uint64_t sequence = 0;
  std::vector<uint64_t> counters;
  bool final = false;
  RecordTotals records;
};

inline int64_t MonotonicNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

inline int64_t UnixNs() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec;
}

// A point on the monotonic clock after which waiting stops.
struct Deadline {
  int64_t at_ns = 0;

  static Deadline After(int64_t ns) { return {MonotonicNs() + ns}; }
  int64_t RemainingNs() const { return at_ns - MonotonicNs(); }
  bool Passed() const { return RemainingNs() <= 0; }
};

inline constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_TYPES_H_
