// What AQL and SDMA queues share; see queue.h.
#include "tests/softgpu/thunk/queue.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>

#include "tests/softgpu/thunk/driver.h"

namespace softgpu {

void Backoff::Pause() {
  constexpr uint32_t kYields = 64;
  constexpr int kFirstSleepUs = 20, kLongestSleepUs = 1000;
  ++idle_;
  if (idle_ <= kYields) {
    sched_yield();
    return;
  }
  const uint32_t step = std::min<uint32_t>((idle_ - kYields) / 4, 6);
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::min(kFirstSleepUs << step, kLongestSleepUs)));
}

Queue::Queue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell, void* ring,
             uint64_t size)
    : driver_(driver),
      id_(id),
      doorbell_(doorbell),
      ring_(static_cast<uint8_t*>(ring)),
      size_(size),
      memory_(driver->address_space(), &stop_) {
  doorbell_->store(kQuietDoorbell);
}

void Queue::Start() {
  // The host's signal handlers belong on the host's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Queue::Stop() {
  stop_.store(true);
  Interrupt();
  if (thread_.joinable()) thread_.join();
}

bool Queue::TakeDoorbell(uint64_t* value) {
  if (doorbell_->load(std::memory_order_relaxed) == kQuietDoorbell) return false;
  *value = doorbell_->exchange(kQuietDoorbell, std::memory_order_acq_rel);
  return true;
}

void Queue::Loop() {
  pthread_setname_np(pthread_self(), "softgpu-queue");
  Backoff backoff;
  while (!Stopping()) {
    if (!halted_ && !suspended_.load(std::memory_order_relaxed) && Step()) {
      backoff.Reset();
    } else {
      backoff.Pause();
    }
  }
}

}  // namespace softgpu
