#include "daemon/upload.h"

#include <algorithm>

namespace rjdbi::daemon {
namespace {

constexpr std::chrono::milliseconds kTick{50};

}  // namespace

void UploadGate::Acquire(uint64_t bytes, std::function<void(std::shared_ptr<void>)> granted) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::min(bytes, max_bytes_), std::move(granted)});
  }
  GrantWaiting();
}

void UploadGate::Release(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  GrantWaiting();
}

void UploadGate::GrantWaiting() {
  while (true) {
    Waiting next;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || used_ + waiting_.front().bytes > max_bytes_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      used_ += next.bytes;
    }
    next.granted(
        std::shared_ptr<void>(nullptr, [this, bytes = next.bytes](void*) { Release(bytes); }));
  }
}

Watchdog::Watchdog() : thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void Watchdog::Add(std::weak_ptr<Timed> timed) {
  const std::lock_guard lock(mutex_);
  timed_.push_back(std::move(timed));
}

void Watchdog::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kTick, [this] { return stopping_; })) {
    std::vector<std::shared_ptr<Timed>> alive;
    auto keep = timed_.begin();
    for (auto& weak : timed_) {
      if (std::shared_ptr<Timed> timed = weak.lock()) {
        alive.push_back(std::move(timed));
        (keep++)->swap(weak);
      }
    }
    timed_.erase(keep, timed_.end());
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    for (const auto& timed : alive) timed->CheckTime(now);
    alive.clear();
    lock.lock();
  }
}

}  // namespace rjdbi::daemon
