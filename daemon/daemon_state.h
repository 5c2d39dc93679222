// The parts that both services share, and the policy that SIGHUP may replace.
#ifndef DAEMON_DAEMON_STATE_H_
#define DAEMON_DAEMON_STATE_H_

#include <atomic>
#include <memory>
#include <mutex>

#include "daemon/attachment_store.h"
#include "daemon/blob_store.h"
#include "daemon/config.h"
#include "daemon/decider.h"
#include "daemon/ledger.h"
#include "daemon/peer.h"
#include "daemon/process_monitor.h"
#include "daemon/record_store.h"
#include "daemon/upload.h"
#include "daemon/watch_hub.h"

namespace rjdbi::daemon {

class DaemonState {
 public:
  // `state_directory` is "" when nothing can be kept.
  DaemonState(const Config& config, const std::string& state_directory);

  std::shared_ptr<const Config> config() const;
  void Reload(const Config& config);
  // What concerns this process now.
  v1::WatchReply WatchAnswer(const SessionInfo& session) const;
  // Ends the waits of those for whom attachments or policy are now others.
  void AttachmentsChanged() { watches->Changed(); }
  // What will not survive a restart, and why; "" when all is well.
  std::string StateNote() const;

  BlobStore blobs;
  AttachmentStore attachments;
  RecordStore records;
  Ledger ledger;
  PeerRegistry peers;
  UploadGate uploads;
  Watchdog watchdog;
  ProcessMonitor processes;
  Decider decider;
  const std::shared_ptr<WatchHub> watches;  // after all that its answers are made from

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Config> config_;
  const bool persistent_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_DAEMON_STATE_H_
