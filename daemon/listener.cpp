#include "daemon/listener.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace rjdbi::daemon {
namespace {

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": a socket path has at most ", sizeof(address.sun_path) - 1, " bytes"));
  }
  path.copy(address.sun_path, path.size());
  return address;
}

// OK: the path is free (a dead socket file was removed).
absl::Status FreePath(const std::string& path, const sockaddr_un& address) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": exists and is not a socket"));
  }
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool connected =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  close(probe);
  if (connected || error == EAGAIN) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": another process is listening there (another rjdbid?)"));
  }
  if (error != ECONNREFUSED) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", std::strerror(error)));
  }
  spdlog::info("{}: removing a socket file that nobody listens on", path);
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, int> InheritedSockets() {
  std::map<std::string, int> sockets;
  char** names = nullptr;
  const int count = sd_listen_fds_with_names(1, &names);
  for (int i = 0; i < count; ++i) {
    sockets[names[i]] = SD_LISTEN_FDS_START + i;
    std::free(names[i]);
  }
  std::free(names);
  return sockets;
}

absl::StatusOr<ListeningSocket> Listen(const std::string& path, mode_t mode) {
  const absl::StatusOr<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) return address.status();
  if (absl::Status free = FreePath(path, *address); !free.ok()) return free;
  const auto fail = [&](int fd) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", std::strerror(error)));
  };
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return fail(fd);
  // Made without permissions, so that nobody connects before the mode is right.
  const mode_t mask = umask(0777);
  const int bound = bind(fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address));
  const int error = errno;
  umask(mask);
  errno = error;
  if (bound != 0 || chmod(path.c_str(), mode) != 0) return fail(fd);
  struct stat info = {};
  if (listen(fd, 4096) != 0 || lstat(path.c_str(), &info) != 0) return fail(fd);
  return ListeningSocket{fd, path, info.st_dev, info.st_ino};
}

void CloseAndRemove(ListeningSocket& socket) {
  if (socket.fd >= 0) close(socket.fd);
  struct stat info = {};
  if (!socket.path.empty() && lstat(socket.path.c_str(), &info) == 0 &&
      info.st_dev == socket.device && info.st_ino == socket.inode) {
    unlink(socket.path.c_str());
  }
  socket = {};
}

Acceptor::Acceptor(int listening_fd, std::function<void(int)> on_connection)
    : fd_(listening_fd),
      stop_event_(eventfd(0, EFD_CLOEXEC)),
      on_connection_(std::move(on_connection)),
      thread_([this] { Run(); }) {}

Acceptor::~Acceptor() {
  Stop();
  close(stop_event_);
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_event_, 1);
  thread_.join();
}

void Acceptor::Run() {
  while (true) {
    pollfd fds[] = {{fd_, POLLIN, 0}, {stop_event_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if (fds[0].revents == 0) continue;
    const int connection = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection >= 0) {
      on_connection_(connection);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      // Out of descriptors and kin: the queue stays; try again when some are free.
      spdlog::warn("accept: {}", std::strerror(errno));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

}  // namespace rjdbi::daemon
