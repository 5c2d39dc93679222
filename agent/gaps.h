// The record of what could not be decided. Every gap goes to stderr (when asked)
// and to the gap file at once, and waits in a bounded queue for the daemon.
#ifndef RJDBI_AGENT_GAPS_H_
#define RJDBI_AGENT_GAPS_H_

#include <mutex>
#include <vector>

#include "agent/config.h"
#include "agent/types.h"

namespace rjdbi::agent {

// "GAP_DAEMON_UNREACHABLE", as in admission.proto.
const char* GapKindName(GapKind kind);

// One JSON object, no newline.
std::string GapAsJson(const Gap& gap);

class GapLog {
 public:
  explicit GapLog(const Config& config) : config_(config) {}

  // Fills in the time. Thread-safe. Does not throw: when memory is short the gap
  // is counted and reported later as a number.
  void Record(Gap gap) noexcept;

  // Takes what waits for the daemon; a final entry tells how many were dropped.
  std::vector<Gap> TakePending();
  // Puts back, in front, what could not be delivered.
  void Restore(std::vector<Gap> gaps) noexcept;
  bool HasPending();

 private:
  static constexpr size_t kMaxPending = 1024;

  const Config& config_;
  std::mutex mutex_;
  std::vector<Gap> pending_;
  uint64_t dropped_ = 0;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_GAPS_H_
