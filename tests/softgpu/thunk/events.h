// Driver events: how the GPU wakes threads of the host.
//
// Each event has a mailbox (64 bits, in GPU-visible memory). The GPU writes the
// event's id there and raises an interrupt with the id; the driver marks the
// event and empties the mailbox.
#ifndef TESTS_SOFTGPU_THUNK_EVENTS_H_
#define TESTS_SOFTGPU_THUNK_EVENTS_H_

#include <hsakmt.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace softgpu {

class Events {
 public:
  // mailboxes: kMaxEvents 64-bit words that the GPU may write.
  static constexpr uint32_t kMaxEvents = 4096;
  explicit Events(uint64_t* mailboxes);

  HSAKMT_STATUS Create(const HsaEventDescriptor& descriptor, bool manual_reset, bool signaled,
                       HsaEvent** event);
  HSAKMT_STATUS Destroy(HsaEvent* event);
  // As by an interrupt. Unknown ids are ignored: the event may just be gone.
  void Signal(uint32_t id);
  HSAKMT_STATUS Set(HsaEvent* event);
  // Null entries are skipped.
  HSAKMT_STATUS Wait(HsaEvent** events, uint32_t count, bool all, uint32_t milliseconds);

  // Reports a fatal page fault through every memory event.
  void RaiseMemoryFault(uint32_t node, uint64_t address);

 private:
  // As in the kernel driver, a signal releases every thread that waits at that
  // moment; it is remembered only if there was none (or the event is manual-reset).
  struct State {
    bool signaled = false;
    uint32_t waiters = 0;
    uint64_t age = 0;  // number of signals
    bool manual_reset = false;
    HsaEvent* event = nullptr;
    HsaMemoryAccessFault fault = {};
  };
  struct Awaited {
    HsaEvent* event = nullptr;
    uint64_t age = 0;  // when the wait began
  };
  using AwaitedEvents = std::map<uint32_t, Awaited>;  // by id
  void SignalLocked(State* state);
  HSAKMT_STATUS WaitLocked(const AwaitedEvents& awaited, bool all, uint32_t milliseconds,
                           std::unique_lock<std::mutex>* lock);

  uint64_t* const mailboxes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, State> events_;
  std::set<uint32_t> free_;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_EVENTS_H_
