// Who is at the other end of a connection, by the kernel's word (SO_PEERCRED).
//
// gRPC C++ does not expose it, so rjdbid accepts connections itself and hands
// the descriptors to the server, which then calls the peer "fd:N". Descriptor
// numbers are handed out in rotation, so that a number is not reused while a
// call of the connection that had it before may still be running.
#ifndef DAEMON_PEER_H_
#define DAEMON_PEER_H_

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace rjdbi::daemon {

struct PeerIdentity {
  pid_t pid = 0;  // 0: not visible from this pid namespace
  uid_t uid = 0;
  gid_t gid = 0;
};

class PeerRegistry {
 public:
  // Takes the accepted descriptor; returns the one to give to gRPC, or -1 with
  // errno set (the argument is closed either way).
  int Register(int accepted_fd);
  // `grpc_peer` is ServerContext::peer(). nullopt: not a connection of ours.
  std::optional<PeerIdentity> Find(const std::string& grpc_peer) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<int, PeerIdentity> peers_;
  int next_fd_ = 0;
};

// Whether the process calls itself `claimed`: equal to the pid that we see, or
// to its pid inside its own namespace (/proc/PID/status, NSpid).
bool PidClaimHolds(pid_t seen, uint32_t claimed);

// `pid`'s ancestors, nearest first; ends early where /proc does not say.
bool IsDescendantOf(pid_t pid, pid_t ancestor);

}  // namespace rjdbi::daemon

#endif  // DAEMON_PEER_H_
