// What has happened since the daemon started: sessions, loads, counters, gaps.
// Every number that a query answers with comes from here.
#ifndef DAEMON_LEDGER_H_
#define DAEMON_LEDGER_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/decider.h"
#include "daemon/peer.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

int64_t UnixNanos();

struct SessionInfo {
  std::string id;  // 16 raw bytes
  pid_t pid = 0;   // as this daemon sees it
  std::string executable;
};

// A code object that a process loaded, and what was decided about it.
struct LoadRecord {
  std::string session_id;  // hex
  uint64_t load_id = 0;
  std::string sha256;                        // hex
  DecisionPtr decision;                      // nullptr: no attachment wanted the process
  std::shared_ptr<const Question> question;  // attachment "#i" is question->ids[i]
  std::vector<uint64_t> counters;
  bool final = false;
  // Set when the process loaded the original after all, in spite of `decision`.
  v1::GapKind not_in_place = v1::GAP_KIND_UNSPECIFIED;
};

class Ledger {
 public:
  explicit Ledger(uint32_t max_sessions) : max_sessions_(max_sessions) {}

  void set_max_sessions(uint32_t n);
  // RESOURCE_EXHAUSTED when too many are open.
  absl::StatusOr<SessionInfo> Open(const PeerIdentity& peer, const v1::OpenSessionRequest& request);
  // NOT_FOUND: no such open session, or it belongs to another process.
  absl::StatusOr<SessionInfo> Find(const std::string& id, const PeerIdentity& peer) const;
  // RESOURCE_EXHAUSTED: too many loads in one session.
  absl::Status RecordLoad(const std::string& session_id, const v1::ObjectHeader& header,
                          DecisionPtr decision, std::shared_ptr<const Question> question);
  // NOT_FOUND; INVALID_ARGUMENT for an unknown load or a wrong number of
  // counters (the rest of the report has been taken).
  absl::Status Report(const v1::ReportRequest& request, const PeerIdentity& peer);
  // False: it was not open.
  bool Close(const std::string& id, bool cleanly);

  std::vector<v1::Session> Sessions() const;  // newest last
  std::vector<v1::CodeObjectSummary> CodeObjects() const;
  // session: hex prefix, "" for all.
  std::vector<LoadRecord> Loads(const std::string& session) const;
  std::vector<v1::Gap> Gaps(const std::string& session) const;
  void AddUploaded(uint64_t bytes);
  uint64_t uploaded_bytes() const;

 private:
  struct Load {
    LoadRecord record;
    uint64_t sequence = 0;
    bool reported = false;
  };
  struct SessionState {
    v1::Session summary;
    SessionInfo info;
    PeerIdentity peer;
    std::map<uint64_t, Load> loads;
    std::deque<v1::Gap> gaps;  // the newest; the total is in the summary
  };
  SessionState* FindOpen(const std::string& id, const PeerIdentity& peer);
  absl::Status TakeCounters(SessionState& session, const v1::LoadCounters& counters);
  void NoteOriginalLoaded(const PeerIdentity& peer, const v1::Gap& gap);
  void TakeGap(SessionState& session, const v1::Gap& gap);

  mutable std::mutex mutex_;
  uint32_t max_sessions_;
  std::map<std::string, SessionState> open_;              // by raw id
  std::deque<SessionState> closed_;                       // oldest first
  std::map<std::string, v1::CodeObjectSummary> objects_;  // by hex hash
  uint64_t uploaded_bytes_ = 0;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_LEDGER_H_
