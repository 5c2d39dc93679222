// What the environment asks of the agent. Read once per process, at the first
// code object, so that a host which never loads one pays nothing.
#ifndef RJDBI_AGENT_CONFIG_H_
#define RJDBI_AGENT_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace rjdbi::agent {

struct Config {
  std::string socket_path = "/run/rjdbid/agent.sock";  // RJDBI_SOCKET
  int64_t deadline_ns = 2'000'000'000;                 // RJDBI_DEADLINE_MS, 1 ms to 10 min
  // Of trace records that wait for the daemon: RJDBI_QUEUE_BYTES, 64 KiB to 4 GiB.
  size_t queue_bytes = 8 << 20;
  bool live = true;      // RJDBI_LIVE: not 0; probes can come and go while the process runs
  bool log = false;      // RJDBI_LOG: lines on stderr
  std::string gap_file;  // RJDBI_GAP_FILE: JSON lines, appended

  static Config FromEnvironment();
};

// RJDBI_DISABLE=1 (or anything but empty and "0"). Cheap; allocates nothing.
bool DisabledByEnvironment();

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_CONFIG_H_
