#include "daemon/worker_pool.h"

#include <algorithm>

namespace rjdbi::daemon {

WorkerPool::WorkerPool(uint32_t threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Submit(std::function<void(bool)> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      jobs_.push_back(std::move(job));
      wake_.notify_one();
      return;
    }
  }
  job(true);
}

void WorkerPool::Stop() {
  std::deque<std::function<void(bool)>> cancelled;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancelled.swap(jobs_);
  }
  wake_.notify_all();
  for (auto& job : cancelled) job(true);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkerPool::Run() {
  while (true) {
    std::function<void(bool)> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job(false);
  }
}

}  // namespace rjdbi::daemon
