// A hardware queue: a thread that waits for the doorbell and executes packets.
#ifndef TESTS_SOFTGPU_THUNK_QUEUE_H_
#define TESTS_SOFTGPU_THUNK_QUEUE_H_

#include <hsakmt.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "tests/softgpu/thunk/address_space.h"

namespace softgpu {

class Driver;

// Pauses that grow from nothing to a millisecond while there is nothing to do,
// so that an idle queue costs next to no processor time.
class Backoff {
 public:
  void Pause();
  void Reset() { idle_ = 0; }

 private:
  uint32_t idle_ = 0;
};

class Queue {
 public:
  // doorbell: written by the host with a packet index (AQL) or byte offset
  // (SDMA); size is that of the ring in bytes, a power of two.
  Queue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell, void* ring, uint64_t size);
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  uint64_t id() const { return id_; }
  std::atomic<uint64_t>* doorbell() const { return doorbell_; }
  void Start();
  // Ends the thread; a kernel that still runs is cut off.
  void Stop();
  void SetSuspended(bool suspended) { suspended_.store(suspended); }

  // Doorbells read back as this when nobody has rung since.
  static constexpr uint64_t kQuietDoorbell = ~uint64_t{0};

 protected:
  // Executes at most one packet; false if there was none to execute.
  virtual bool Step() = 0;
  // Cuts off what Step is doing; called on another thread.
  virtual void Interrupt() {}

  bool Stopping() const { return stop_.load(std::memory_order_relaxed); }
  // Nothing more is executed, as after a fault.
  void Halt() { halted_ = true; }
  // Consumes a ring of the doorbell.
  bool TakeDoorbell(uint64_t* value);
  // Polls until done() holds; false if the queue is being stopped.
  template <typename Done>
  bool WaitUntil(Done done) {
    Backoff backoff;
    while (!done()) {
      if (Stopping()) return false;
      backoff.Pause();
    }
    return true;
  }

  Driver* const driver_;
  const uint64_t id_;
  std::atomic<uint64_t>* const doorbell_;
  uint8_t* const ring_;
  const uint64_t size_;
  std::atomic<bool> stop_{false};
  QueueMemory memory_;

 private:
  void Loop();

  std::atomic<bool> suspended_{false};
  bool halted_ = false;  // queue thread only
  std::thread thread_;
};

// AQL queue; amd_queue is the amd_queue_t that holds the read pointer.
std::unique_ptr<Queue> MakeAqlQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell,
                                    void* ring, uint64_t size, uint64_t amd_queue);
// SDMA queue; the pointers are monotonic byte offsets.
std::unique_ptr<Queue> MakeSdmaQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell,
                                     void* ring, uint64_t size, std::atomic<uint64_t>* read,
                                     std::atomic<uint64_t>* write);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_QUEUE_H_
