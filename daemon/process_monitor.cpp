#include "daemon/process_monitor.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace rjdbi::daemon {
namespace {

constexpr int kSweepMs = 1000;  // for processes without a pidfd

int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

ProcessMonitor::ProcessMonitor(std::function<void(const std::string&)> on_exit)
    : on_exit_(std::move(on_exit)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(eventfd(0, EFD_CLOEXEC)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, stop_event_, &event);
  thread_ = std::thread([this] { Run(); });
}

ProcessMonitor::~ProcessMonitor() {
  eventfd_write(stop_event_, 1);
  thread_.join();
  for (const auto& [id, watched] : watched_) {
    if (watched.pidfd >= 0) close(watched.pidfd);
  }
  close(epoll_);
  close(stop_event_);
}

void ProcessMonitor::Watch(const std::string& session_id, pid_t pid) {
  if (pid <= 0) return;
  const std::lock_guard lock(mutex_);
  const int pidfd = PidfdOpen(pid);
  watched_[session_id] = {pid, pidfd};
  if (pidfd < 0) return;
  epoll_event event = {};
  event.events = EPOLLIN;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event);
}

void ProcessMonitor::Forget(const std::string& session_id) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(session_id);
  if (found == watched_.end()) return;
  if (found->second.pidfd >= 0) close(found->second.pidfd);
  watched_.erase(found);
}

void ProcessMonitor::Run() {
  while (true) {
    epoll_event event = {};
    if (epoll_wait(epoll_, &event, 1, kSweepMs) < 0 && errno != EINTR) return;
    pollfd stop = {stop_event_, POLLIN, 0};
    if (poll(&stop, 1, 0) > 0) return;
    Sweep();
  }
}

void ProcessMonitor::Sweep() {
  std::vector<std::string> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = watched_.begin(); it != watched_.end();) {
      const Watched& watched = it->second;
      pollfd exited = {watched.pidfd, POLLIN, 0};
      const bool gone = watched.pidfd >= 0 ? poll(&exited, 1, 0) > 0
                                           : kill(watched.pid, 0) != 0 && errno == ESRCH;
      if (!gone) {
        ++it;
        continue;
      }
      if (watched.pidfd >= 0) close(watched.pidfd);
      ended.push_back(it->first);
      it = watched_.erase(it);
    }
  }
  for (const std::string& id : ended) on_exit_(id);
}

}  // namespace rjdbi::daemon
