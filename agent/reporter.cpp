// The background thread and delivery; see reporter.h.
#include "agent/reporter.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

namespace rjdbi::agent {
namespace {

constexpr size_t kStackBytes = 1 << 20;  // address space, touched only as used
constexpr int64_t kBackgroundPatienceNs = 2'000'000'000;
// Final values kept for a daemon that is away; beyond it the oldest go.
constexpr size_t kMaxFinals = 4096;

}  // namespace

bool Reporter::Start() noexcept {
  std::lock_guard lock(mutex_);
  if (started_ || stopping_) return started_;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // The host's signals are the host's: a new thread inherits this mask.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  started_ = pthread_create(&thread_, &attributes, &Main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_attr_destroy(&attributes);
  if (started_) pthread_setname_np(thread_, "rjdbi-report");
  return started_;
}

void* Reporter::Main(void* self) {
  static_cast<Reporter*>(self)->Run();
  return nullptr;
}

void Reporter::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    auto interval = std::chrono::milliseconds(client_.report_interval_ms());
    wake_.wait_until(lock, std::chrono::steady_clock::now() + interval,
                     [this] { return stopping_ || !finals_.empty(); });
    if (stopping_) break;
    lock.unlock();
    bool delivered = false;
    try {
      delivered = Deliver(loads_.SnapshotChanged(), kBackgroundPatienceNs, false).ok();
    } catch (const std::exception&) {  // std::bad_alloc: the next round tries again
      loads_.ForgetReported();
    }
    lock.lock();
    // Undelivered finals must not turn the wait into a spin.
    if (!delivered && !stopping_) {
      wake_.wait_until(lock, std::chrono::steady_clock::now() + interval,
                       [this] { return stopping_; });
    }
  }
}

void Reporter::Enqueue(std::vector<LoadCounters> finals) {
  if (finals.empty()) return;
  {
    std::lock_guard lock(mutex_);
    finals_.insert(finals_.end(), std::make_move_iterator(finals.begin()),
                   std::make_move_iterator(finals.end()));
    if (finals_.size() > kMaxFinals) {
      finals_.erase(finals_.begin(),
                    finals_.begin() + static_cast<ptrdiff_t>(finals_.size() - kMaxFinals));
    }
  }
  wake_.notify_one();
}

Fault Reporter::Deliver(std::vector<LoadCounters> loads, int64_t patience_ns, bool charge) {
  std::vector<LoadCounters> finals;
  {
    std::lock_guard lock(mutex_);
    finals.swap(finals_);
  }
  std::vector<LoadCounters> all = finals;
  all.insert(all.end(), std::make_move_iterator(loads.begin()),
             std::make_move_iterator(loads.end()));
  std::vector<Gap> gaps = gaps_.TakePending();
  Fault fault = client_.Report(all, gaps, patience_ns, charge);
  if (fault.ok()) return fault;
  gaps_.Restore(std::move(gaps));
  loads_.ForgetReported();
  std::lock_guard lock(mutex_);
  finals_.insert(finals_.begin(), std::make_move_iterator(finals.begin()),
                 std::make_move_iterator(finals.end()));
  return fault;
}

bool Reporter::Stop(Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!started_) return true;
  }
  wake_.notify_one();
  // timedjoin wants the wall clock; a clock set back in this moment only
  // lengthens the wait by the time the thread itself may take.
  int64_t until = UnixNs() + std::max<int64_t>(0, deadline.RemainingNs());
  timespec at{until / 1'000'000'000, until % 1'000'000'000};
  return pthread_timedjoin_np(thread_, nullptr, &at) == 0;
}

}  // namespace rjdbi::agent
