// What the GPU may touch: the process's GPU page tables.
//
// The soft GPU maps memory one to one, so a GPU address is a host address. The
// rules are those of a discrete GPU without retryable faults (XNACK off):
//   - memory from hsaKmtAllocMemory, while it is mapped to the GPU (ROCR maps
//     kernel arguments, signals, queues, code and pool memory as it allocates);
//   - host memory given to hsaKmtRegisterMemoryWithFlags, while it is mapped, in
//     whole 4 KB pages, as a page table would grant it;
//   - nothing else: an unregistered host stack, heap or global is a page fault.
#ifndef TESTS_SOFTGPU_THUNK_ADDRESS_SPACE_H_
#define TESTS_SOFTGPU_THUNK_ADDRESS_SPACE_H_

#include <hsakmt.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/softgpu/interp/wave.h"

namespace softgpu {

struct Allocation {
  uint64_t base = 0;  // as allocated or registered, bytes
  uint64_t size = 0;
  HsaMemFlags flags = {};
  uint32_t node = 0;
  bool user = false;    // registered host memory, not ours
  uint64_t serial = 0;  // never reused
  void* user_data = nullptr;
  bool mapped = false;                        // to the GPU
  std::map<uint64_t, uint64_t> mapped_parts;  // scratch pools: base -> size
};

struct Interval {
  uint64_t begin = 0, end = 0;
};

class AddressSpace {
 public:
  // vram_bytes: the GPU's memory; allocations beyond it fail.
  explicit AddressSpace(uint64_t vram_bytes) : vram_bytes_(vram_bytes) {}

  // *address: in with FixedAddress, else out. 4 KB aligned; 2 MB for large ones.
  HSAKMT_STATUS Allocate(uint32_t node, uint64_t size, HsaMemFlags flags, void** address);
  HSAKMT_STATUS Free(void* address);
  HSAKMT_STATUS Register(void* address, uint64_t size, HsaMemFlags flags);
  HSAKMT_STATUS Deregister(void* address);
  HSAKMT_STATUS Map(void* address, uint64_t size);
  HSAKMT_STATUS Unmap(void* address);
  HSAKMT_STATUS SetUserData(const void* address, void* data);

  // The allocation that holds the address; registered memory comes second.
  std::optional<Allocation> Find(uint64_t address);

  // Changes whenever the set of accessible memory does.
  uint64_t Generation() const { return generation_.load(std::memory_order_acquire); }
  // The maximal accessible interval around the address.
  std::optional<Interval> Accessible(uint64_t address);

 private:
  Allocation* FindLocked(uint64_t address);
  void Rebuild();
  void Changed() { generation_.fetch_add(1, std::memory_order_acq_rel); }

  const uint64_t vram_bytes_;
  std::mutex mutex_;
  std::map<uint64_t, Allocation> owned_;
  std::multimap<uint64_t, Allocation> registered_;
  uint64_t vram_used_ = 0;
  uint64_t next_serial_ = 1;
  std::atomic<uint64_t> generation_{1};
  uint64_t built_ = 0;               // generation of intervals_
  std::vector<Interval> intervals_;  // sorted, disjoint, not adjacent
};

// One queue's view of an AddressSpace: a few remembered intervals keep Check
// cheap. Used by that queue's thread only.
class QueueMemory : public Memory {
 public:
  // While *abandon is true nothing is accessible: a way to end a kernel whose
  // queue is being destroyed.
  QueueMemory(AddressSpace* space, const std::atomic<bool>* abandon)
      : space_(space), abandon_(abandon) {}
  bool Check(uint64_t address, uint64_t size, bool write) override;

 private:
  AddressSpace* const space_;
  const std::atomic<bool>* const abandon_;
  uint64_t generation_ = 0;
  std::array<Interval, 4> recent_ = {};
  uint32_t next_ = 0;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_ADDRESS_SPACE_H_
