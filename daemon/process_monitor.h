// Notices that a process has ended, so that its session does not stay open.
#ifndef DAEMON_PROCESS_MONITOR_H_
#define DAEMON_PROCESS_MONITOR_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace rjdbi::daemon {

class ProcessMonitor {
 public:
  // `on_exit` is called from the monitor's thread, once per watched session.
  explicit ProcessMonitor(std::function<void(const std::string& session_id)> on_exit);
  ~ProcessMonitor();

  // pid 0 (not visible from here) is not watched.
  void Watch(const std::string& session_id, pid_t pid);
  void Forget(const std::string& session_id);

 private:
  struct Watched {
    pid_t pid = 0;
    int pidfd = -1;  // -1: the kernel gives none; kill(pid, 0) is asked instead
  };
  void Run();
  void Sweep();

  const std::function<void(const std::string&)> on_exit_;
  std::mutex mutex_;
  std::map<std::string, Watched> watched_;
  int epoll_;
  int stop_event_;
  std::thread thread_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_PROCESS_MONITOR_H_
