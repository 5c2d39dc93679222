// Listening unix sockets: inherited from systemd by name, or made by us.
#ifndef DAEMON_LISTENER_H_
#define DAEMON_LISTENER_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/status/statusor.h"

namespace rjdbi::daemon {

struct ListeningSocket {
  int fd = -1;
  std::string path;  // empty: inherited, and not ours to remove
  dev_t device = 0;  // of the socket file that we made
  ino_t inode = 0;
};

// Descriptors passed by systemd (LISTEN_FDS), by FileDescriptorName.
std::map<std::string, int> InheritedSockets();

// Makes a listening socket. A socket file that nobody listens on is replaced.
// ALREADY_EXISTS: somebody does listen, or the path is not a socket.
// FAILED_PRECONDITION: the path cannot be used (message says why).
absl::StatusOr<ListeningSocket> Listen(const std::string& path, mode_t mode);

// Closes, and removes the socket file if it is still the one we made.
void CloseAndRemove(ListeningSocket& socket);

// Accepts in its own thread until stopped.
class Acceptor {
 public:
  // `on_connection` owns the descriptor it is given.
  Acceptor(int listening_fd, std::function<void(int)> on_connection);
  ~Acceptor();
  void Stop();

 private:
  void Run();

  const int fd_;
  int stop_event_;
  const std::function<void(int)> on_connection_;
  std::thread thread_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_LISTENER_H_
