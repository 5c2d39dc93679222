// The agent's conversation with rjdbid: sessions, admissions, reports, and the
// rule that a host is never delayed by a bad daemon more than once.
//
// The rule: calls that fail charge the time they took to a budget of
// RJDBI_DEADLINE_MS for the whole process; the budget also bounds each wait.
// After a failure the daemon counts as gone and is tried again only after a
// back-off (1 s doubling to 60 s), with what is left of the budget. Once the
// budget is spent, a try sends OpenSession and looks for the answer at later
// calls, without waiting. The budget comes back at one percent of elapsed time.
// An eighth of it is kept for the last report.
#ifndef RJDBI_AGENT_DAEMON_CLIENT_CLIENT_H_
#define RJDBI_AGENT_DAEMON_CLIENT_CLIENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/daemon_client/fault.h"
#include "agent/daemon_client/http2.h"
#include "agent/daemon_client/messages.h"
#include "agent/record_batches.h"
#include "agent/timed_lock.h"
#include "agent/types.h"

namespace rjdbi::agent {

class DaemonClient {
 public:
  // `loaded_through` is read at each session's start.
  DaemonClient(const Config& config, std::string (*loaded_through)())
      : config_(config), loaded_through_(loaded_through), budget_ns_(MostBudget()) {}

  // Gives the object's bytes if the daemon wants them, or the reason why not.
  using ByteSource = std::function<Fault(ByteView* object)>;

  // Asks what to load in place of `object`, or beside it. On success the decision is
  // checked as far as the protocol goes: verdict known, image complete with the announced
  // hash, fixups inside it. With `charge`, the host is waiting and the budget applies. May
  // throw std::bad_alloc.
  Fault Admit(const ObjectHeader& header, const ByteSource& object, bool charge,
              Decision* decision);
  Fault Admit(const ObjectHeader& header, ByteView object, Decision* decision);

  // Waits for the attachments of this process to be others than `seen` stands for, at most
  // until `max_wait_ms` are over; see rpc Watch. Never charged. In a session of another
  // number than `in_session` nothing has been seen.
  Fault Watch(uint64_t seen, uint64_t in_session, uint32_t max_wait_ms, WatchAnswer* answer);

  // From now on the session is `lender`'s, and this one has but a connection of its own:
  // for what would keep the lender busy for long. `lender` must outlive this. Before
  // the first call.
  void BorrowSessionsOf(DaemonClient& lender) { lender_ = &lender; }
  // Asked at each session's start: whether this process is going to call Watch.
  void set_follows(bool (*follows)()) { follows_ = follows; }
  // Waiting ends early, with FaultKind::kInterrupted, once this descriptor is readable.
  void set_wake_fd(int fd) { wake_fd_ = fd; }
  // Counts the sessions that this client has had: another number, another session.
  uint64_t session_number() const { return session_number_.load(); }

  // Delivers counters and gaps; empty ones cost nothing. Waits at most
  // `patience_ns`. With `charge`, the host is waiting and the budget applies.
  Fault Report(const std::vector<LoadCounters>& loads, const std::vector<Gap>& gaps,
               int64_t patience_ns, bool charge);

  // Delivers trace records, in one message. The batches are not empty.
  Fault ReportBatches(const std::vector<RecordBatch>& batches, int64_t patience_ns, bool charge);

  // Forgets the back-off: the next call may try at once. For process exit.
  void TryNow() { backoff_waived_ = true; }

  // Ends the session if there is one; for process exit.
  void CloseSession(int64_t patience_ns);

  // From the daemon; 1000 until a session has been opened.
  uint32_t report_interval_ms() const { return report_interval_ms_.load(); }
  // Whether a session is open, as far as is known.
  bool session_open() const { return session_open_.load(); }
  // What is left for waiting on failures. For tests and gap texts.
  int64_t budget_ns() const { return budget_ns_.load(); }
  // At exit: what was kept back so that gaps and last counters can still be
  // delivered by a process whose admissions have used up their patience.
  void ReleaseReserve() { budget_ns_ += config_.deadline_ns - MostBudget(); }

  // In a forked child: lets go of the parent's socket without a word on it. The
  // object must not be used afterwards.
  void AbandonAfterFork();

  // Bounds on what a daemon may ask of a host.
  static constexpr uint32_t kMaxCounters = 4u << 20;
  static constexpr size_t kMaxFixups = 1u << 20;
  static constexpr size_t kMaxMessageBytes = 32u << 20;
  static constexpr size_t kMaxSummaryBytes = 64u << 10;
  static constexpr size_t kMaxSwitches = 64u << 10;
  static constexpr size_t kChunkBytes = 512u << 10;
  // The largest patched image accepted for an object of `size` bytes.
  static uint64_t MaxPatchedBytes(uint64_t size) { return size * 16 + (64u << 20); }

 private:
  enum class State {
    kUnknown,  // never tried
    kUp,       // the last call went well
    kGone,     // the last call failed; next try at next_try_ns_
    kProbing,  // OpenSession sent, nobody waits for the answer
  };

  // Runs `call(deadline)` with the lock, the back-off and the budget observed.
  template <typename F>
  Fault Guarded(int64_t patience_ns, bool charge, F&& call);
  // Runs `call()` within an open session; again in a new one when the daemon has been
  // restarted.
  template <typename F>
  Fault InSession(Deadline deadline, F&& call);

  Fault MayTry(bool charge);
  Fault Probe();
  void Settle(const Fault& fault, int64_t took_ns, bool charge);
  void Refill();
  int64_t MostBudget() const { return config_.deadline_ns / 8 * 7; }
  bool BudgetSpent() const { return budget_ns_.load() < config_.deadline_ns / 20; }
  void Drop();
  void Gone(const Fault& fault);

  Fault StartOpenSession(Deadline deadline);
  Fault FinishOpenSession(Deadline deadline);
  Fault OpenSession(Deadline deadline);
  // The lender's session, a new one if `session_` turned out to be none any more.
  Fault BorrowSession(Deadline deadline);
  Fault Lend(const WireBytes& stale, Deadline deadline, SessionInfo* session, uint64_t* number);
  Fault Unary(const char* method, const WireBytes& request, Deadline deadline, WireBytes* reply);
  Fault AdmitOnce(const ObjectHeader& header, const ByteSource& object, Deadline deadline,
                  Decision* decision);
  Fault NextReply(Deadline deadline, bool beside, ChunkSink* sink, AdmitReplyKind* kind,
                  Decision* decision);
  Fault Upload(ByteView object, Deadline deadline);
  Fault ReceiveImage(uint64_t object_size, Deadline deadline, Decision* decision);

  const Config& config_;
  std::string (*loaded_through_)();
  bool (*follows_)() = nullptr;
  DaemonClient* lender_ = nullptr;
  int wake_fd_ = -1;

  TimedLock lock_;  // guards what follows; held while waiting for the daemon
  std::unique_ptr<Http2Connection> connection_;
  SessionInfo session_;
  bool session_stale_ = false;  // the daemon does not know it
  State state_ = State::kUnknown;
  Fault gone_why_;
  int64_t backoff_ns_ = 0;
  int64_t next_try_ns_ = 0;
  int64_t refilled_at_ns_ = 0;

  std::atomic<int64_t> budget_ns_;
  std::atomic<uint32_t> report_interval_ms_{1000};
  std::atomic<bool> session_open_{false};
  std::atomic<uint64_t> session_number_{0};
  std::atomic<bool> backoff_waived_{false};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DAEMON_CLIENT_CLIENT_H_
