// Rendering and queueing of gaps; see gaps.h.
#include "agent/gaps.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iterator>

namespace rjdbi::agent {
namespace {

constexpr const char* kNames[] = {
    "GAP_KIND_UNSPECIFIED",      "GAP_DAEMON_UNREACHABLE",  "GAP_DEADLINE_EXCEEDED",
    "GAP_PROTOCOL_ERROR",        "GAP_OBJECT_TOO_LARGE",    "GAP_OUT_OF_MEMORY",
    "GAP_NO_COUNTER_MEMORY",     "GAP_PATCHED_LOAD_FAILED", "GAP_UNREADABLE_OBJECT",
    "GAP_QUEUE_NOT_INTERCEPTED",
};

std::string Hex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {  // paths need not be UTF-8
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

// Keeps from the host the signals that a write can raise in this thread: SIGPIPE
// on a pipe whose reader is gone, SIGXFSZ at a limit on the size of files. One
// that was already pending stays pending.
class WriteShield {
 public:
  WriteShield() {
    sigset_t pending;
    sigset_t blocked;
    sigemptyset(&raised_);
    sigemptyset(&blocked);
    sigpending(&pending);
    for (int signal : {SIGPIPE, SIGXFSZ}) {
      sigaddset(&blocked, signal);
      if (sigismember(&pending, signal) != 1) sigaddset(&raised_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &old_);
  }
  ~WriteShield() {
    timespec none{};
    // Both at once cannot be: at most one write was made.
    while (sigtimedwait(&raised_, nullptr, &none) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  WriteShield(const WriteShield&) = delete;
  WriteShield& operator=(const WriteShield&) = delete;

 private:
  sigset_t raised_;  // what is taken back if it is pending
  sigset_t old_;
};

// One write, so that lines of several processes do not mix; none at all when it
// would block the host on a full pipe.
void WriteOnce(int fd, const std::string& line) {
  pollfd ready{fd, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
  WriteShield shield;
  ssize_t ignored = write(fd, line.data(), line.size());
  (void)ignored;
}

void AppendToFile(const std::string& path, const std::string& line) {
  int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
  if (fd < 0) return;
  WriteOnce(fd, line);
  close(fd);
}

}  // namespace

const char* GapKindName(GapKind kind) {
  auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

std::string GapAsJson(const Gap& gap) {
  return std::string("{\"kind\":\"") + GapKindName(gap.kind) +
         "\",\"pid\":" + std::to_string(getpid()) + ",\"sha256\":\"" +
         (gap.has_digest ? Hex(gap.digest) : "") + "\",\"size\":" + std::to_string(gap.size) +
         ",\"origin\":" + JsonString(gap.origin) + ",\"detail\":" + JsonString(gap.detail) +
         ",\"unix_ns\":" + std::to_string(gap.unix_ns) +
         ",\"load_id\":" + std::to_string(gap.load_id) + "}";
}

void GapLog::Record(Gap gap) noexcept {
  try {
    if (gap.unix_ns == 0) gap.unix_ns = UnixNs();
    if (config_.log) WriteOnce(STDERR_FILENO, "rjdbi: gap " + GapAsJson(gap) + "\n");
    if (!config_.gap_file.empty()) AppendToFile(config_.gap_file, GapAsJson(gap) + "\n");
    std::lock_guard lock(mutex_);
    if (pending_.size() < kMaxPending) {
      pending_.push_back(std::move(gap));
    } else {
      ++dropped_;
    }
  } catch (const std::exception&) {
    std::lock_guard lock(mutex_);
    ++dropped_;
  }
}

std::vector<Gap> GapLog::TakePending() {
  std::lock_guard lock(mutex_);
  std::vector<Gap> gaps;
  gaps.swap(pending_);
  if (dropped_ > 0) {
    Gap lost;
    lost.kind = GapKind::kOutOfMemory;
    lost.detail = std::to_string(dropped_) + " further gaps were not kept";
    lost.unix_ns = UnixNs();
    gaps.push_back(std::move(lost));
    dropped_ = 0;
  }
  return gaps;
}

void GapLog::Restore(std::vector<Gap> gaps) noexcept {
  std::lock_guard lock(mutex_);
  try {
    size_t room = kMaxPending - std::min(kMaxPending, pending_.size());
    size_t kept = std::min(room, gaps.size());
    dropped_ += gaps.size() - kept;
    pending_.insert(pending_.begin(), std::make_move_iterator(gaps.begin()),
                    std::make_move_iterator(gaps.begin() + kept));
  } catch (const std::exception&) {
    ++dropped_;
  }
}

bool GapLog::HasPending() {
  std::lock_guard lock(mutex_);
  return !pending_.empty() || dropped_ > 0;
}

}  // namespace rjdbi::agent
