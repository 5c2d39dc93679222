// The file holds one JSON object per line, so that an operator can read it:
// first {"version":1,"next":N}, then one Attachment per line.
#include "daemon/attachment_store.h"

#include <fcntl.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/peer.h"
#include "patch/analysis/selector.h"

namespace rjdbi::daemon {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

// Replaces `file` so that a crash leaves the old or the new contents.
absl::Status WriteDurably(const std::string& file, const std::string& text) {
  const std::string temporary = file + ".new";
  const auto fail = [&](const char* what) {
    return absl::UnavailableError(absl::StrCat(what, " ", temporary, ": ", std::strerror(errno)));
  };
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail("create");
  const bool ok =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  if (close(fd) != 0 || !ok) return fail("write");
  if (rename(temporary.c_str(), file.c_str()) != 0) return fail("rename");
  const std::string parent = std::filesystem::path(file).parent_path();
  const int dir = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    fsync(dir);
    close(dir);
  }
  return absl::OkStatus();
}

}  // namespace

bool MatchesProcess(const v1::AttachmentSpec& spec, const std::string& executable, pid_t pid) {
  const std::string& glob = spec.process_glob();
  if (!glob.empty() && !patch::GlobMatch(glob, executable) &&
      !patch::GlobMatch(glob, std::filesystem::path(executable).filename().string())) {
    return false;
  }
  return spec.pid() == 0 || IsDescendantOf(pid, static_cast<pid_t>(spec.pid()));
}

AttachmentStore::AttachmentStore(std::string file) : file_(std::move(file)) {
  if (!file_.empty()) Load();
}

void AttachmentStore::Load() {
  std::ifstream in(file_);
  if (!in) return;
  const std::lock_guard lock(mutex_);
  std::string line;
  google::protobuf::Struct head;
  bool ok = std::getline(in, line) && JsonStringToMessage(line, &head).ok() &&
            head.fields().count("version") != 0 && head.fields().count("next") != 0 &&
            head.fields().at("version").number_value() == 1;
  if (ok) next_id_ = static_cast<uint64_t>(head.fields().at("next").number_value());
  while (ok && std::getline(in, line)) {
    v1::Attachment attachment;
    ok = JsonStringToMessage(line, &attachment).ok();
    if (ok) attachments_.push_back(std::move(attachment));
  }
  if (ok) return;
  attachments_.clear();
  rename(file_.c_str(), (file_ + ".bad").c_str());
  load_problem_ = absl::StrCat(file_, " was damaged; it was moved to ", file_,
                               ".bad and none of its attachments is active");
  spdlog::error("{}", load_problem_);
}

void AttachmentStore::Save() {
  if (file_.empty()) return;
  std::string text = absl::StrFormat("{\"version\":1,\"next\":%d}\n", next_id_);
  for (const v1::Attachment& attachment : attachments_) {
    std::string json;
    if (MessageToJsonString(attachment, &json).ok()) absl::StrAppend(&text, json, "\n");
  }
  write_problem_ = std::string(WriteDurably(file_, text).message());
  if (!write_problem_.empty()) {
    spdlog::error("attachments will not survive a restart: {}", write_problem_);
  }
}

v1::Attachment AttachmentStore::Add(const v1::AttachmentSpec& spec, int64_t now_unix_ns) {
  const std::lock_guard lock(mutex_);
  v1::Attachment attachment;
  attachment.set_id(absl::StrCat("a", next_id_++));
  *attachment.mutable_spec() = spec;
  attachment.set_created_unix_ns(now_unix_ns);
  attachments_.push_back(attachment);
  Save();
  return attachment;
}

absl::Status AttachmentStore::Remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(attachments_.begin(), attachments_.end(),
                                  [&](const v1::Attachment& a) { return a.id() == id; });
  if (found == attachments_.end()) {
    return absl::NotFoundError(absl::StrCat("no attachment '", id, "'"));
  }
  attachments_.erase(found);
  Save();
  return absl::OkStatus();
}

std::string AttachmentStore::load_problem() const {
  const std::lock_guard lock(mutex_);
  return load_problem_;
}

std::string AttachmentStore::write_problem() const {
  const std::lock_guard lock(mutex_);
  return write_problem_;
}

std::vector<v1::Attachment> AttachmentStore::All() const {
  const std::lock_guard lock(mutex_);
  return attachments_;
}

std::vector<v1::Attachment> AttachmentStore::Matching(const std::string& executable,
                                                      pid_t pid) const {
  std::vector<v1::Attachment> matching = All();
  matching.erase(std::remove_if(matching.begin(), matching.end(),
                                [&](const v1::Attachment& a) {
                                  return !MatchesProcess(a.spec(), executable, pid);
                                }),
                 matching.end());
  return matching;
}

}  // namespace rjdbi::daemon
