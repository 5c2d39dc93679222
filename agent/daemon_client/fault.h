// How talking to the daemon can fail. A fault always ends in the original code
// object being loaded and a gap; it is never the host's concern.
#ifndef RJDBI_AGENT_DAEMON_CLIENT_FAULT_H_
#define RJDBI_AGENT_DAEMON_CLIENT_FAULT_H_

#include <string>
#include <utility>

namespace rjdbi::agent {

enum class FaultKind {
  kNone,
  kUnreachable,  // no socket, refused, or the connection ended
  kDeadline,     // no answer in time
  kProtocol,     // the peer does not speak the protocol
  kRemote,       // a gRPC status other than OK
  kTooLarge,     // over a limit the daemon or the agent sets
  kOutOfMemory,
  kInterrupted,  // the waiting was ended by this process
  kUnreadable,   // the object's bytes are gone
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string detail;
  int grpc_status = 0;  // with kRemote

  bool ok() const { return kind == FaultKind::kNone; }
  // The daemon has taken of the message what it can, and would say the same again.
  bool is_final_answer() const { return kind == FaultKind::kRemote && grpc_status == 3; }
  static Fault Ok() { return {}; }
  static Fault Of(FaultKind kind, std::string detail) { return {kind, std::move(detail), 0}; }
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DAEMON_CLIENT_FAULT_H_
