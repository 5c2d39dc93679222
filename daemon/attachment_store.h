// What operators have asked for; survives a restart.
#ifndef DAEMON_ATTACHMENT_STORE_H_
#define DAEMON_ATTACHMENT_STORE_H_

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::daemon {

class AttachmentStore {
 public:
  // file "": nothing is kept. A file that cannot be read as a whole is set aside
  // under ".bad" and said so in the log: attachments are never guessed.
  explicit AttachmentStore(std::string file);

  v1::Attachment Add(const v1::AttachmentSpec& spec, int64_t now_unix_ns);
  absl::Status Remove(const std::string& id);  // NOT_FOUND
  std::vector<v1::Attachment> All() const;
  std::string load_problem() const;   // what was lost at the start; empty: nothing
  std::string write_problem() const;  // of the last write; empty: it succeeded
  std::vector<v1::Attachment> Matching(const std::string& executable, pid_t pid) const;

 private:
  void Load();
  void Save();  // with mutex_ held

  const std::string file_;
  mutable std::mutex mutex_;
  std::vector<v1::Attachment> attachments_;
  uint64_t next_id_ = 1;  // ids are never reused
  std::string load_problem_, write_problem_;
};

// Whether the attachment applies to the process: its executable (path or base
// name) matches the glob, and it is the given process or a descendant of it.
bool MatchesProcess(const v1::AttachmentSpec& spec, const std::string& executable, pid_t pid);

}  // namespace rjdbi::daemon

#endif  // DAEMON_ATTACHMENT_STORE_H_
