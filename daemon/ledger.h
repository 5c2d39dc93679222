// What has happened since the daemon started: sessions, loads, counters, gaps.
// Every number that a query answers with comes from here.
#ifndef DAEMON_LEDGER_H_
#define DAEMON_LEDGER_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/kept_sums.h"
#include "daemon/load_record.h"
#include "daemon/peer.h"
#include "daemon/record_store.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

int64_t UnixNanos();

struct SessionInfo {
  std::string id;  // 16 raw bytes
  pid_t pid = 0;   // as this daemon sees it
  std::string executable;
};

// One moment of what was loaded and counted, of all sessions or some.
struct LedgerView {
  std::vector<LoadRecord> loads;  // of sessions that are listed
  std::vector<v1::Gap> gaps;
  std::shared_ptr<const KeptSums> kept;  // of those that no longer are; never nullptr
};

class Ledger {
 public:
  // `forget(records)`: a load is no longer listed, and its records with it.
  using Forget = std::function<void(const LoadRecords&)>;
  Ledger(uint32_t max_sessions, Forget forget)
      : max_sessions_(max_sessions), forget_(std::move(forget)) {}

  void set_max_sessions(uint32_t n);
  // RESOURCE_EXHAUSTED when too many are open.
  absl::StatusOr<SessionInfo> Open(const PeerIdentity& peer, const v1::OpenSessionRequest& request);
  // NOT_FOUND: no such open session, or it belongs to another process.
  absl::StatusOr<SessionInfo> Find(const std::string& id, const PeerIdentity& peer) const;
  // What the open session's load was decided to be; nullptr: not known, or nothing.
  DecisionPtr DecisionOfLoad(const std::string& session_id, uint64_t load_id) const;
  // RESOURCE_EXHAUSTED: too many loads in one session.
  absl::Status RecordLoad(const std::string& session_id, const v1::ObjectHeader& header,
                          DecisionPtr decision, std::shared_ptr<const Question> question);
  // NOT_FOUND; INVALID_ARGUMENT for an unknown load or a wrong number of
  // counters (the rest of the report has been taken).
  absl::Status Report(const v1::ReportRequest& request, const PeerIdentity& peer);
  // Where the batch's records come from; nullptr: a load that is not known, or has none.
  // NOT_FOUND, as Report.
  absl::StatusOr<OriginPtr> OriginOf(const std::string& session_id, const PeerIdentity& peer,
                                     const v1::RecordBatch& batch);
  // The session's process follows changes of attachments, and has those of this
  // generation in place (0: none yet).
  void NoteInPlace(const std::string& session_id, uint64_t generation);
  // Of each open session, in hex, that follows changes: what it has in place.
  std::map<std::string, std::pair<SessionInfo, uint64_t>> InPlace() const;
  // Open sessions that have been opened since `unix_ns` by processes that had loaded
  // something before.
  uint32_t WithEarlierLoads(int64_t unix_ns) const;
  // False: it was not open.
  bool Close(const std::string& id, bool cleanly);

  std::vector<v1::Session> Sessions() const;  // newest last
  std::vector<v1::CodeObjectSummary> CodeObjects() const;
  // session: hex prefix, "" for all; nothing is kept apart by session but what is
  // listed, so that of some sessions `kept` is empty.
  LedgerView View(const std::string& session = "") const;
  void AddUploaded(uint64_t bytes);
  uint64_t uploaded_bytes() const;

 private:
  struct Load {
    LoadRecord record;
    OriginPtr origin;  // of its records; nullptr: it has none
    uint64_t sequence = 0;
    bool reported = false;
  };
  struct SessionState {
    v1::Session summary;
    SessionInfo info;
    PeerIdentity peer;
    std::map<uint64_t, Load> loads;
    std::map<uint64_t, bool> objects;    // that it has loaded, by load: has it been patched?
    std::deque<v1::Gap> gaps;            // the newest; the total is in the summary
    bool earlier_loads = false;          // it has asked about one that is not in `loads`
    std::optional<uint64_t> generation;  // in place, 0: none; absent: it does not follow
    std::shared_ptr<RateLimit> rate = std::make_shared<RateLimit>();  // of its records
  };
  OriginPtr MakeOrigin(const SessionState& session, const LoadRecord& load) const;
  SessionState* FindOpen(const std::string& id, const PeerIdentity& peer);
  absl::Status TakeCounters(SessionState& session, const v1::LoadCounters& counters);
  void NoteOriginalLoaded(const PeerIdentity& peer, const v1::Gap& gap);
  void TakeGap(SessionState& session, const v1::Gap& gap);
  void FoldOldest();

  mutable std::mutex mutex_;
  uint32_t max_sessions_;
  const Forget forget_;
  std::map<std::string, SessionState> open_;  // by raw id
  std::deque<SessionState> closed_;           // oldest first
  std::shared_ptr<KeptSums> kept_ = std::make_shared<KeptSums>();
  mutable bool kept_handed_out_ = false;  // a query may be reading it: it no longer changes
  std::map<std::string, v1::CodeObjectSummary> objects_;  // by hex hash
  uint64_t uploaded_bytes_ = 0;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_LEDGER_H_
