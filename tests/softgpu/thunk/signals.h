// Operations of the command processors on HSA signals (amd_signal_t).
#ifndef TESTS_SOFTGPU_THUNK_SIGNALS_H_
#define TESTS_SOFTGPU_THUNK_SIGNALS_H_

#include <cstdint>

#include "tests/softgpu/thunk/events.h"

namespace softgpu {

// GPU clock values; not stored unless valid.
struct Timestamps {
  bool valid = false;
  uint64_t start = 0, end = 0;
};

// handle: hsa_signal_t::handle, not 0.
int64_t LoadSignal(uint64_t handle);
// Decrements the signal and wakes its waiters. The host may free the signal as
// soon as it sees the new value, so everything else is read and written before.
void CompleteSignal(uint64_t handle, const Timestamps& times, Events* events);
// ORs an error code into the signal and wakes its waiters.
void RaiseSignal(uint64_t handle, uint64_t code, Events* events);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_SIGNALS_H_
