// Keeps uploads bounded: in memory (UploadGate) and in time (Watchdog).
#ifndef DAEMON_UPLOAD_H_
#define DAEMON_UPLOAD_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rjdbi::daemon {

// Grants memory for uploads in the order of asking.
class UploadGate {
 public:
  explicit UploadGate(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // `granted` runs at once, or later in a releasing thread; it is given the
  // grant, whose destruction gives the memory back. A request larger than the
  // whole is granted when nothing else is.
  void Acquire(uint64_t bytes, std::function<void(std::shared_ptr<void> grant)> granted);

 private:
  struct Waiting {
    uint64_t bytes;
    std::function<void(std::shared_ptr<void>)> granted;
  };
  void Release(uint64_t bytes);
  void GrantWaiting();

  const uint64_t max_bytes_;
  std::mutex mutex_;
  uint64_t used_ = 0;
  std::deque<Waiting> waiting_;
};

// Something that can be late.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual void CheckTime(std::chrono::steady_clock::time_point now) = 0;
};

class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  void Add(std::weak_ptr<Timed> timed);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::vector<std::weak_ptr<Timed>> timed_;
  std::thread thread_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_UPLOAD_H_
