// See signals.h.
#include "tests/softgpu/thunk/signals.h"

#include <hsa/amd_hsa_signal.h>

namespace softgpu {
namespace {

amd_signal_t* Get(uint64_t handle) { return reinterpret_cast<amd_signal_t*>(handle); }

void Interrupt(uint64_t mailbox, uint32_t event_id, Events* events) {
  if (mailbox == 0) return;
  __atomic_store_n(reinterpret_cast<uint64_t*>(mailbox), event_id, __ATOMIC_RELEASE);
  events->Signal(event_id);
}

}  // namespace

int64_t LoadSignal(uint64_t handle) {
  return __atomic_load_n(const_cast<int64_t*>(&Get(handle)->value), __ATOMIC_ACQUIRE);
}

void CompleteSignal(uint64_t handle, const Timestamps& times, Events* events) {
  amd_signal_t* signal = Get(handle);
  const uint64_t mailbox = signal->event_mailbox_ptr;
  const uint32_t event_id = signal->event_id;
  if (times.valid) {
    signal->start_ts = times.start;
    signal->end_ts = times.end;
  }
  __atomic_fetch_sub(const_cast<int64_t*>(&signal->value), 1, __ATOMIC_ACQ_REL);
  Interrupt(mailbox, event_id, events);
}

void RaiseSignal(uint64_t handle, uint64_t code, Events* events) {
  amd_signal_t* signal = Get(handle);
  const uint64_t mailbox = signal->event_mailbox_ptr;
  const uint32_t event_id = signal->event_id;
  __atomic_fetch_or(const_cast<int64_t*>(&signal->value), static_cast<int64_t>(code),
                    __ATOMIC_ACQ_REL);
  Interrupt(mailbox, event_id, events);
}

}  // namespace softgpu
