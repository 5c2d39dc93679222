// The command processor of SDMA queues: the packets of SDMA 4 (gfx9) and 5
// (gfx10) that ROCR emits.
#include <cstring>

#include "tests/softgpu/thunk/driver.h"
#include "tests/softgpu/thunk/log.h"

namespace softgpu {
namespace {

enum Op : uint32_t {
  kNop = 0,
  kCopy = 1,
  kFence = 5,
  kTrap = 6,
  kPollRegMem = 8,
  kAtomic = 10,
  kConstFill = 11,
  kTimestamp = 13,
  kGcr = 17,
};
constexpr uint32_t kCopyLinear = 0, kCopyRect = 4;
constexpr uint32_t kTimestampGlobal = 2;
constexpr uint32_t kAtomicAdd64 = 47;
constexpr uint32_t kPollEqual = 3;
// POLL_REGMEM with this in its third dword is the HDP flush command.
constexpr uint32_t kHdpFlushMark = 0x80000000;

uint64_t Address(const uint32_t* dwords) { return dwords[0] | (uint64_t{dwords[1]} << 32); }

// One side of a rectangular copy; pitches in elements.
struct RectSide {
  uint64_t base;
  uint32_t x, y, z;
  uint64_t pitch, slice;
  explicit RectSide(const uint32_t* d)
      : base(Address(d)),
        x(d[2] & 0x3fff),
        y(d[2] >> 16 & 0x3fff),
        z(d[3] & 0x7ff),
        pitch((d[3] >> 13) + 1),
        slice((d[4] & 0xfffffff) + 1) {}
  uint64_t Row(uint32_t row, uint32_t layer, uint32_t element_log2) const {
    return base + (((z + layer) * slice + (y + row) * pitch + x) << element_log2);
  }
};

class SdmaQueue : public Queue {
 public:
  SdmaQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell, void* ring, uint64_t size,
            std::atomic<uint64_t>* read, std::atomic<uint64_t>* write)
      : Queue(driver, id, doorbell, ring, size), read_(read), write_(write) {}
  ~SdmaQueue() override { Stop(); }

 protected:
  bool Step() override;

 private:
  // Each returns the packet's size in dwords, 0 if the queue cannot go on.
  uint32_t Execute(const uint32_t* p);
  uint32_t Copy(const uint32_t* p);
  uint32_t CopyRect(const uint32_t* p);
  uint32_t Fence(const uint32_t* p);
  uint32_t Poll(const uint32_t* p);
  uint32_t Atomic(const uint32_t* p);
  uint32_t Fill(const uint32_t* p);
  uint32_t Timestamp(const uint32_t* p);
  uint32_t Unknown(const uint32_t* p);
  bool Move(uint64_t to, uint64_t from, uint64_t size);
  bool Accessible(uint64_t address, uint64_t size, bool write);

  std::atomic<uint64_t>* const read_;
  std::atomic<uint64_t>* const write_;
  uint64_t limit_ = 0;
};

bool SdmaQueue::Step() {
  uint64_t rung;
  if (TakeDoorbell(&rung)) limit_ = write_->load(std::memory_order_acquire);
  const uint64_t read = read_->load(std::memory_order_relaxed);
  if (read >= limit_) return false;
  // Packets do not wrap: the runtime pads the end of the ring with NOPs.
  const uint32_t dwords = Execute(reinterpret_cast<uint32_t*>(ring_ + (read & (size_ - 1))));
  if (dwords == 0) {
    Halt();
    return true;
  }
  read_->store(read + dwords * sizeof(uint32_t), std::memory_order_release);
  return true;
}

uint32_t SdmaQueue::Execute(const uint32_t* p) {
  switch (p[0] & 0xff) {
    case kNop:
      return 1 + (p[0] >> 16 & 0x3fff);
    case kCopy:
      return (p[0] >> 8 & 0xff) == kCopyRect ? CopyRect(p) : Copy(p);
    case kFence:
      return Fence(p);
    case kTrap:
      driver_->events()->Signal(p[1] & 0xfffffff);
      return 2;
    case kPollRegMem:
      return Poll(p);
    case kAtomic:
      return Atomic(p);
    case kConstFill:
      return Fill(p);
    case kTimestamp:
      return Timestamp(p);
    case kGcr:  // cache control: memory is coherent here
      return 5;
    default:
      return Unknown(p);
  }
}

uint32_t SdmaQueue::Unknown(const uint32_t* p) {
  // A real engine would hang or reset the GPU.
  Complain("SDMA queue %lu stopped: not implemented: packet 0x%08x (op %u, sub-op %u)", id_, p[0],
           p[0] & 0xff, p[0] >> 8 & 0xff);
  return 0;
}

bool SdmaQueue::Accessible(uint64_t address, uint64_t size, bool write) {
  if (memory_.Check(address, size, write)) return true;
  if (Stopping()) return false;
  Complain("SDMA queue %lu: memory fault: %s of %lu bytes at 0x%lx", id_, write ? "write" : "read",
           size, address);
  driver_->events()->RaiseMemoryFault(kGpuNode, address);
  return false;
}

bool SdmaQueue::Move(uint64_t to, uint64_t from, uint64_t size) {
  if (!Accessible(from, size, false) || !Accessible(to, size, true)) return false;
  memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  return true;
}

uint32_t SdmaQueue::Copy(const uint32_t* p) {
  if ((p[0] >> 8 & 0xff) != kCopyLinear) return Unknown(p);
  const uint64_t size = uint64_t{p[1] & 0x3fffffff} + 1;
  return Move(Address(p + 5), Address(p + 3), size) ? 7 : 0;
}

uint32_t SdmaQueue::CopyRect(const uint32_t* p) {
  const uint32_t element = p[0] >> 29;
  const RectSide from(p + 1), to(p + 6);
  const uint32_t columns = (p[11] & 0x3fff) + 1;
  const uint32_t rows = (p[11] >> 16 & 0x3fff) + 1;
  const uint32_t layers = (p[12] & 0x7ff) + 1;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (uint32_t row = 0; row < rows; ++row) {
      if (!Move(to.Row(row, layer, element), from.Row(row, layer, element),
                uint64_t{columns} << element)) {
        return 0;
      }
    }
  }
  return 13;
}

uint32_t SdmaQueue::Fence(const uint32_t* p) {
  const uint64_t address = Address(p + 1);
  if (!Accessible(address, sizeof(uint32_t), true)) return 0;
  __atomic_store_n(reinterpret_cast<uint32_t*>(address), p[3], __ATOMIC_RELEASE);
  return 4;
}

uint32_t SdmaQueue::Poll(const uint32_t* p) {
  const bool memory_poll = p[0] >> 31 != 0;
  if (!memory_poll) return p[2] == kHdpFlushMark ? 6 : Unknown(p);
  if ((p[0] >> 28 & 7) != kPollEqual) return Unknown(p);
  const uint64_t address = Address(p + 1);
  const uint32_t value = p[3], mask = p[4];
  if (!Accessible(address, sizeof(uint32_t), false)) return 0;
  const auto* word = reinterpret_cast<const uint32_t*>(address);
  const bool met =
      WaitUntil([&] { return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & mask) == value; });
  return met ? 6 : 0;
}

uint32_t SdmaQueue::Atomic(const uint32_t* p) {
  if (p[0] >> 25 != kAtomicAdd64) return Unknown(p);
  const uint64_t address = Address(p + 1);
  if (!Accessible(address, sizeof(uint64_t), true)) return 0;
  __atomic_fetch_add(reinterpret_cast<uint64_t*>(address), Address(p + 3), __ATOMIC_ACQ_REL);
  return 8;
}

uint32_t SdmaQueue::Fill(const uint32_t* p) {
  const uint32_t size_code = p[0] >> 30;  // 0 byte, 2 dword
  if (size_code != 0 && size_code != 2) return Unknown(p);
  const uint64_t address = Address(p + 1);
  // The count is in bytes; for dwords ROCR passes 4 * (n - 1).
  const uint64_t step = size_code == 2 ? 4 : 1;
  const uint64_t size = uint64_t{p[4] & 0x3fffffff} + step;
  if (!Accessible(address, size, true)) return 0;
  auto* to = reinterpret_cast<uint8_t*>(address);
  for (uint64_t i = 0; i < size; i += step) memcpy(to + i, &p[3], step);
  return 5;
}

uint32_t SdmaQueue::Timestamp(const uint32_t* p) {
  if ((p[0] >> 8 & 0xff) != kTimestampGlobal) return Unknown(p);
  const uint64_t address = Address(p + 1);
  if (!Accessible(address, sizeof(uint64_t), true)) return 0;
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), GpuClock(), __ATOMIC_RELEASE);
  return 3;
}

}  // namespace

std::unique_ptr<Queue> MakeSdmaQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell,
                                     void* ring, uint64_t size, std::atomic<uint64_t>* read,
                                     std::atomic<uint64_t>* write) {
  return std::make_unique<SdmaQueue>(driver, id, doorbell, ring, size, read, write);
}

}  // namespace softgpu
