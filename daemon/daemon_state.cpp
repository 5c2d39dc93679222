#include "daemon/daemon_state.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rjdbi::daemon {
namespace {

// Without a disk the cache shares the daemon's memory with everything else.
constexpr uint64_t kMemoryCacheBytes = uint64_t{128} << 20;

std::string Below(const std::string& directory, const char* name) {
  return directory.empty() ? "" : absl::StrCat(directory, "/", name);
}

}  // namespace

DaemonState::DaemonState(const Config& config, const std::string& state_directory)
    : blobs(Below(state_directory, "cache"),
            state_directory.empty() ? std::min(config.cache_max_bytes, kMemoryCacheBytes)
                                    : config.cache_max_bytes),
      attachments(Below(state_directory, "attachments.jsonl")),
      records(config.records, Below(state_directory, "records.db")),
      ledger(config.max_sessions,
             [this](const LoadRecords& forgotten) { records.Forget(forgotten); }),
      uploads(config.max_upload_bytes_in_flight),
      processes([this](const std::string& session_id) {
        if (ledger.Close(session_id, false)) {
          spdlog::info("a process ended without closing its session");
        }
      }),
      decider(blobs, config.max_concurrent_admissions),
      watches(std::make_shared<WatchHub>(
          [this](const SessionInfo& session) { return WatchAnswer(session); })),
      config_(std::make_shared<Config>(config)),
      persistent_(!state_directory.empty()) {
  watchdog.Add(watches);
}

v1::WatchReply DaemonState::WatchAnswer(const SessionInfo& session) const {
  const auto matching = attachments.Matching(session.executable, session.pid);
  v1::WatchReply reply;
  reply.set_generation(Generation(matching, config()->policy));
  reply.set_attachments(static_cast<uint32_t>(matching.size()));
  return reply;
}

std::string DaemonState::StateNote() const {
  if (!persistent_) {
    return "the state directory cannot be used: attachments and decisions will not survive a "
           "restart";
  }
  std::string note = attachments.load_problem();
  if (const std::string problem = attachments.write_problem(); !problem.empty()) {
    absl::StrAppend(&note, note.empty() ? "" : "; ",
                    "attachments will not survive a restart: ", problem);
  }
  if (const std::string problem = blobs.stats().write_problem; !problem.empty()) {
    absl::StrAppend(&note, note.empty() ? "" : "; ",
                    "decisions are not kept, so objects are sent and judged again: ", problem);
  }
  if (const std::string problem = records.write_problem(); !problem.empty()) {
    absl::StrAppend(&note, note.empty() ? "" : "; ",
                    "trace records will not survive a restart: ", problem);
  }
  return note;
}

std::shared_ptr<const Config> DaemonState::config() const {
  const std::lock_guard lock(mutex_);
  return config_;
}

void DaemonState::Reload(const Config& config) {
  ledger.set_max_sessions(config.max_sessions);
  records.set_limits(config.records);
  {
    const std::lock_guard lock(mutex_);
    config_ = std::make_shared<Config>(config);
  }
  AttachmentsChanged();
}

}  // namespace rjdbi::daemon
