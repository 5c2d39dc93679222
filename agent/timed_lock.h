// A lock that can be waited for until a deadline on the monotonic clock.
// (std::timed_mutex does the same through pthread_mutex_clocklock, of which the
// thread sanitizer of this compiler knows nothing.)
#ifndef RJDBI_AGENT_TIMED_LOCK_H_
#define RJDBI_AGENT_TIMED_LOCK_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "agent/types.h"

namespace rjdbi::agent {

class TimedLock {
 public:
  bool LockUntil(Deadline deadline) {
    std::unique_lock lock(mutex_);
    auto until =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(deadline.RemainingNs());
    if (!free_.wait_until(lock, until, [this] { return !held_; })) return false;
    held_ = true;
    return true;
  }

  void Unlock() {
    {
      std::lock_guard lock(mutex_);
      held_ = false;
    }
    free_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool held_ = false;
};

// Unlocks at the end of the scope.
class TimedLockRelease {
 public:
  explicit TimedLockRelease(TimedLock& lock) : lock_(lock) {}
  ~TimedLockRelease() { lock_.Unlock(); }
  TimedLockRelease(const TimedLockRelease&) = delete;
  TimedLockRelease& operator=(const TimedLockRelease&) = delete;

 private:
  TimedLock& lock_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_TIMED_LOCK_H_
