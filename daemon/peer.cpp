#include "daemon/peer.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rjdbi::daemon {
namespace {

constexpr int kFirstFd = 64;  // leaves low numbers to files and gRPC's own

int FdLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
}

// The value of "Name:" in /proc/PID/status.
std::string StatusField(pid_t pid, const std::string& name) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, name + ":")) return line.substr(name.size() + 1);
  }
  return "";
}

}  // namespace

int PeerRegistry::Register(int accepted_fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(accepted_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    close(accepted_fd);
    return -1;
  }
  const std::lock_guard lock(mutex_);
  if (next_fd_ < kFirstFd || next_fd_ >= FdLimit() - 1) next_fd_ = kFirstFd;
  int fd = fcntl(accepted_fd, F_DUPFD_CLOEXEC, next_fd_);
  if (fd < 0) fd = fcntl(accepted_fd, F_DUPFD_CLOEXEC, 0);
  const int error = errno;
  close(accepted_fd);
  errno = error;
  if (fd < 0) return -1;
  next_fd_ = fd + 1;
  peers_[fd] = {credentials.pid, credentials.uid, credentials.gid};
  return fd;
}

std::optional<PeerIdentity> PeerRegistry::Find(const std::string& grpc_peer) const {
  int fd = -1;
  if (!absl::StartsWith(grpc_peer, "fd:") || !absl::SimpleAtoi(grpc_peer.substr(3), &fd)) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return std::nullopt;
  return found->second;
}

bool PidClaimHolds(pid_t seen, uint32_t claimed) {
  if (static_cast<uint32_t>(seen) == claimed) return true;
  const std::string value = StatusField(seen, "NSpid");
  const std::vector<std::string> pids =
      absl::StrSplit(value, absl::ByAnyChar("\t "), absl::SkipEmpty());
  uint32_t innermost = 0;
  return pids.size() > 1 && absl::SimpleAtoi(pids.back(), &innermost) && innermost == claimed;
}

bool IsDescendantOf(pid_t pid, pid_t ancestor) {
  for (int depth = 0; depth < 64 && pid > 1; ++depth) {
    if (pid == ancestor) return true;
    int parent = 0;
    if (!absl::SimpleAtoi(StatusField(pid, "PPid"), &parent)) return false;
    pid = parent;
  }
  return false;
}

}  // namespace rjdbi::daemon
