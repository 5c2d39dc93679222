// A fixed number of threads for the work that decides admissions, so that no
// amount of it delays the RPCs that only look something up.
#ifndef DAEMON_WORKER_POOL_H_
#define DAEMON_WORKER_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rjdbi::daemon {

class WorkerPool {
 public:
  explicit WorkerPool(uint32_t threads);  // 0: one per processor
  ~WorkerPool();                          // Stop()

  // `job` runs with cancelled=false, or, if the pool stops before its turn, with
  // cancelled=true (also in the caller's thread, when it has stopped already).
  void Submit(std::function<void(bool cancelled)> job);
  // Lets running jobs end, cancels waiting ones.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void(bool)>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_WORKER_POOL_H_
