// Threads of the agent; see quiet_thread.h.
#include "agent/quiet_thread.h"

#include <signal.h>

#include <algorithm>

namespace rjdbi::agent {
namespace {

constexpr size_t kStackBytes = 1 << 20;  // address space, touched only as used

}  // namespace

bool StartQuietThread(const char* name, void* (*main)(void*), void* argument, pthread_t* thread) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // The host's signals are the host's: a new thread inherits this mask.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const bool started = pthread_create(thread, &attributes, main, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_attr_destroy(&attributes);
  if (started) pthread_setname_np(*thread, name);
  return started;
}

bool JoinUntil(pthread_t thread, Deadline deadline) {
  // timedjoin wants the wall clock; a clock set back in this moment only
  // lengthens the wait by the time the thread itself may take.
  int64_t until = UnixNs() + std::max<int64_t>(0, deadline.RemainingNs());
  timespec at{until / 1'000'000'000, until % 1'000'000'000};
  return pthread_timedjoin_np(thread, nullptr, &at) == 0;
}

}  // namespace rjdbi::agent
