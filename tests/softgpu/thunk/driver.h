// State of the soft GPU's driver in one process: what /dev/kfd would hold.
#ifndef TESTS_SOFTGPU_THUNK_DRIVER_H_
#define TESTS_SOFTGPU_THUNK_DRIVER_H_

#include <hsakmt.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/softgpu/interp/machine.h"
#include "tests/softgpu/thunk/address_space.h"
#include "tests/softgpu/thunk/counts.h"
#include "tests/softgpu/thunk/events.h"
#include "tests/softgpu/thunk/gpu_model.h"
#include "tests/softgpu/thunk/queue.h"

namespace softgpu {

inline constexpr uint32_t kCpuNode = 0;
inline constexpr uint32_t kGpuNode = 1;

// GPU clock: 100 MHz, from the time since boot.
uint64_t GpuClock();
inline constexpr uint64_t kGpuClockHz = 100000000;

class Driver {
 public:
  // Reads SOFTGPU_TARGET and the rest of the environment. nullptr, having said
  // why on stderr, if that asks for something unknown.
  static std::unique_ptr<Driver> Create();

  const GpuModel& model() const { return model_; }
  uint64_t vram_bytes() const { return vram_bytes_; }
  AddressSpace* address_space() { return &address_space_; }
  Events* events() { return &events_; }
  CountJournal* counts() { return &counts_; }
  void* mmio_page() const { return mmio_page_; }

  HSAKMT_STATUS CreateQueue(HSA_QUEUE_TYPE type, void* ring, uint64_t size,
                            HsaQueueResource* resource);
  HSAKMT_STATUS DestroyQueue(HSA_QUEUEID id);
  HSAKMT_STATUS UpdateQueue(HSA_QUEUEID id, uint32_t percentage);
  bool HasQueue(HSA_QUEUEID id);

  // A new interpreter for a queue; nullptr, having said why, on failure.
  std::unique_ptr<Machine> NewMachine(Memory* memory);
  // Code was written: every queue drops its decoded instructions.
  void InvalidateCode() { code_generation_.fetch_add(1); }
  uint64_t CodeGeneration() const { return code_generation_.load(); }

 private:
  Driver(const GpuModel& model, uint64_t seed, uint64_t vram_bytes, uint64_t* mailboxes,
         void* doorbells, void* mmio_page, const std::string& counts_path);

  static constexpr uint32_t kDoorbells = 1024;
  struct SdmaPointers {
    std::atomic<uint64_t> read{0}, write{0};
  };
  struct QueueEntry {
    std::unique_ptr<Queue> queue;
    std::unique_ptr<SdmaPointers> pointers;  // SDMA only
    uint32_t doorbell = 0;
  };

  const GpuModel model_;
  const uint64_t seed_;
  const uint64_t vram_bytes_;
  AddressSpace address_space_;
  Events events_;
  CountJournal counts_;
  std::atomic<uint64_t>* const doorbells_;
  void* const mmio_page_;
  std::atomic<uint64_t> code_generation_{1};

  std::mutex mutex_;
  std::map<uint64_t, QueueEntry> queues_;
  bool doorbell_used_[kDoorbells] = {};
  uint64_t next_queue_ = 1;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_DRIVER_H_
