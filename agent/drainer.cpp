// The drain thread; see drainer.h.
#include "agent/drainer.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "agent/quiet_thread.h"

namespace rjdbi::agent {
namespace {

// Between two looks at the rings: none while much comes in, more and more while
// nothing does, so that an idle process is not woken all the time and a record still
// reaches the daemon well within 200 ms.
constexpr std::chrono::milliseconds kInterval{20};
constexpr std::chrono::milliseconds kIdleInterval{80};
constexpr size_t kMuch = 256 << 10;  // bytes in one round
constexpr int kIdleRounds = 50;

}  // namespace

void Drainer::Add(const std::shared_ptr<LoadRing>& ring) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  rings_.push_back(ring);
  if (!started_) started_ = StartQuietThread("rjdbi-drain", &Main, this, &thread_);
  wake_.notify_one();
}

void* Drainer::Main(void* self) {
  static_cast<Drainer*>(self)->Run();
  return nullptr;
}

size_t Drainer::Round() {
  std::vector<std::shared_ptr<LoadRing>> rings;
  {
    std::lock_guard lock(mutex_);
    rings_.erase(std::remove_if(rings_.begin(), rings_.end(),
                                [](const auto& ring) { return ring.expired(); }),
                 rings_.end());
    rings.reserve(rings_.size());
    for (const auto& weak : rings_) {
      if (auto ring = weak.lock()) rings.push_back(std::move(ring));
    }
  }
  size_t bytes = 0;
  for (const auto& ring : rings) bytes += ring->Drain(MonotonicNs());
  if (bytes > 0) reporter_.BatchesWait();
  return bytes;
}

void Drainer::Run() {
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    size_t bytes = 0;
    try {
      bytes = Round();
    } catch (const std::exception&) {  // std::bad_alloc: the next round tries again
    }
    idle = bytes > 0 ? 0 : std::min(idle + 1, kIdleRounds);
    lock.lock();
    if (bytes >= kMuch || stopping_) continue;
    // Nothing to drain at all: until there is.
    if (rings_.empty()) {
      wake_.wait(lock, [this] { return stopping_ || !rings_.empty(); });
      continue;
    }
    const auto pause = idle == kIdleRounds ? kIdleInterval : kInterval;
    wake_.wait_until(lock, std::chrono::steady_clock::now() + pause, [this] { return stopping_; });
  }
}

bool Drainer::Stop(Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!started_) return true;
  }
  wake_.notify_one();
  return JoinUntil(thread_, deadline);
}

}  // namespace rjdbi::agent
