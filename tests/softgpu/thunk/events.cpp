// See events.h.
#include "tests/softgpu/thunk/events.h"

#include <chrono>
#include <memory>

#include "tests/softgpu/thunk/log.h"

namespace softgpu {
namespace {

constexpr uint64_t kEmptyMailbox = ~uint64_t{0};

}  // namespace

Events::Events(uint64_t* mailboxes) : mailboxes_(mailboxes) {
  // Id 0 stands for "no event" in signals.
  for (uint32_t id = 1; id < kMaxEvents; ++id) free_.insert(id);
}

HSAKMT_STATUS Events::Create(const HsaEventDescriptor& descriptor, bool manual_reset, bool signaled,
                             HsaEvent** event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return HSAKMT_STATUS_OUT_OF_RESOURCES;
  const uint32_t id = *free_.begin();
  free_.erase(free_.begin());
  auto* made = new HsaEvent();
  made->EventId = id;
  made->EventData.EventType = descriptor.EventType;
  made->EventData.EventData.SyncVar = descriptor.SyncVar;
  made->EventData.HWData1 = id;
  made->EventData.HWData2 = reinterpret_cast<uint64_t>(&mailboxes_[id]);
  made->EventData.HWData3 = id;
  mailboxes_[id] = kEmptyMailbox;
  State state;
  state.signaled = signaled;
  state.manual_reset = manual_reset;
  state.event = made;
  events_[id] = state;
  *event = made;
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS Events::Destroy(HsaEvent* event) {
  if (event == nullptr) return HSAKMT_STATUS_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = events_.find(event->EventId);
  if (it == events_.end() || it->second.event != event) return HSAKMT_STATUS_INVALID_HANDLE;
  free_.insert(it->first);
  events_.erase(it);
  delete event;
  changed_.notify_all();
  return HSAKMT_STATUS_SUCCESS;
}

void Events::SignalLocked(State* state) {
  mailboxes_[state->event->EventId] = kEmptyMailbox;
  ++state->age;
  state->signaled = state->manual_reset || state->waiters == 0;
  changed_.notify_all();
}

void Events::Signal(uint32_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = events_.find(id);
  if (it != events_.end()) SignalLocked(&it->second);
}

HSAKMT_STATUS Events::Set(HsaEvent* event) {
  if (event == nullptr) return HSAKMT_STATUS_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = events_.find(event->EventId);
  if (it == events_.end()) return HSAKMT_STATUS_INVALID_HANDLE;
  // The driver lets user code set only this kind.
  if (event->EventData.EventType != HSA_EVENTTYPE_SIGNAL &&
      event->EventData.EventType != HSA_EVENTTYPE_DEBUG_EVENT) {
    return HSAKMT_STATUS_ERROR;
  }
  SignalLocked(&it->second);
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS Events::Wait(HsaEvent** events, uint32_t count, bool all, uint32_t milliseconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  AwaitedEvents awaited;
  for (uint32_t i = 0; i < count; ++i) {
    if (events[i] == nullptr) continue;
    auto it = events_.find(events[i]->EventId);
    if (it == events_.end() || it->second.event != events[i]) return HSAKMT_STATUS_WAIT_FAILURE;
    if (awaited.try_emplace(it->first, Awaited{events[i], it->second.age}).second) {
      ++it->second.waiters;
    }
  }
  const HSAKMT_STATUS status = WaitLocked(awaited, all, milliseconds, &lock);
  for (const auto& [id, wait] : awaited) {
    auto it = events_.find(id);
    if (it == events_.end() || it->second.event != wait.event) continue;  // destroyed meanwhile
    State& state = it->second;
    --state.waiters;
    if (status != HSAKMT_STATUS_SUCCESS) continue;
    if (wait.event->EventData.EventType == HSA_EVENTTYPE_MEMORY && state.age != 0) {
      wait.event->EventData.EventData.MemoryAccessFault = state.fault;
    }
    if (state.signaled && !state.manual_reset) state.signaled = false;
  }
  return status;
}

HSAKMT_STATUS Events::WaitLocked(const AwaitedEvents& awaited, bool all, uint32_t milliseconds,
                                 std::unique_lock<std::mutex>* lock) {
  using Clock = std::chrono::steady_clock;
  const bool forever = milliseconds == HSA_EVENTTIMEOUT_INFINITE;
  const auto deadline = Clock::now() + std::chrono::milliseconds(forever ? 0 : milliseconds);
  bool last_look = milliseconds == HSA_EVENTTIMEOUT_IMMEDIATE;
  while (true) {
    uint32_t ready = 0;
    for (const auto& [id, wait] : awaited) {
      auto it = events_.find(id);
      if (it == events_.end() || it->second.event != wait.event) return HSAKMT_STATUS_WAIT_FAILURE;
      if (it->second.signaled || it->second.age != wait.age) ++ready;
    }
    if (ready > 0 && (!all || ready == awaited.size())) return HSAKMT_STATUS_SUCCESS;
    if (last_look) return HSAKMT_STATUS_WAIT_TIMEOUT;
    if (forever) {
      changed_.wait(*lock);
    } else {
      last_look = changed_.wait_until(*lock, deadline) == std::cv_status::timeout;
    }
  }
}

void Events::RaiseMemoryFault(uint32_t node, uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool told = false;
  for (auto& [id, state] : events_) {
    if (state.event->EventData.EventType != HSA_EVENTTYPE_MEMORY) continue;
    state.fault = {};
    state.fault.NodeId = node;
    state.fault.VirtualAddress = address & ~uint64_t{0xfff};  // hardware reports the page
    state.fault.Failure.NotPresent = 1;
    state.fault.Flags = HSA_EVENTID_MEMORY_FATAL_PROCESS;
    SignalLocked(&state);
    told = true;
  }
  if (!told) Complain("memory fault at 0x%lx, and no event to report it with", address);
}

}  // namespace softgpu
