// Sessions, admissions, reports and the delay budget; see client.h.
#include "agent/daemon_client/client.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "agent/sha256.h"

namespace rjdbi::agent {
namespace {

constexpr char kAgentVersion[] = RJDBI_VERSION;
constexpr int64_t kFirstBackoffNs = 1'000'000'000;
constexpr int64_t kLongestBackoffNs = 60'000'000'000;
// For a decision that nobody waits for.
constexpr int64_t kBackgroundAdmitNs = 60'000'000'000;
constexpr size_t kMaxCommandLine = 4096;
constexpr uint32_t kShortestReportMs = 10;
constexpr uint32_t kLongestReportMs = 3'600'000;
// Below gRPC's default limit of 4 MiB for a received message.
constexpr size_t kReportCounters = 128 << 10;
constexpr size_t kReportGaps = 256;

constexpr int kGrpcDeadlineExceeded = 4;
constexpr int kGrpcNotFound = 5;
constexpr int kGrpcResourceExhausted = 8;
constexpr int kGrpcUnavailable = 14;

std::string ReadSmallFile(const char* path, size_t limit) {
  std::string text(limit, '\0');
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  size_t got = 0;
  while (got < limit) {
    ssize_t n = read(fd, text.data() + got, limit - got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  close(fd);
  text.resize(got);
  return text;
}

ProcessInfo DescribeProcess(std::string loaded_through) {
  ProcessInfo process;
  process.pid = static_cast<uint32_t>(getpid());
  char path[4096];
  ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size > 0) process.executable.assign(path, static_cast<size_t>(size));
  process.command_line = ReadSmallFile("/proc/self/cmdline", kMaxCommandLine);
  while (!process.command_line.empty() && process.command_line.back() == '\0') {
    process.command_line.pop_back();
  }
  std::replace(process.command_line.begin(), process.command_line.end(), '\0', ' ');
  process.agent_version = kAgentVersion;
  process.loaded_through = std::move(loaded_through);
  return process;
}

ByteView View(const WireBytes& bytes) { return {bytes.data(), bytes.size()}; }

// What a gRPC status means for the agent.
Fault Translate(Fault fault) {
  if (fault.kind != FaultKind::kRemote) return fault;
  if (fault.grpc_status == kGrpcDeadlineExceeded) fault.kind = FaultKind::kDeadline;
  if (fault.grpc_status == kGrpcUnavailable) fault.kind = FaultKind::kUnreachable;
  return fault;
}

bool MeansNoSession(const Fault& fault) {
  return fault.kind == FaultKind::kRemote && fault.grpc_status == kGrpcNotFound;
}

bool MeansGone(const Fault& fault) {
  return fault.kind == FaultKind::kUnreachable || fault.kind == FaultKind::kDeadline ||
         fault.kind == FaultKind::kProtocol;
}

}  // namespace

// ---- Budget and back-off ----

void DaemonClient::Refill() {
  int64_t now = MonotonicNs();
  if (refilled_at_ns_ == 0) refilled_at_ns_ = now;
  budget_ns_ = std::min(MostBudget(), budget_ns_.load() + (now - refilled_at_ns_) / 100);
  refilled_at_ns_ = now;
}

void DaemonClient::Drop() {
  connection_.reset();
  session_open_ = false;
}

void DaemonClient::Gone(const Fault& fault) {
  Drop();
  state_ = State::kGone;
  gone_why_ = fault;
  backoff_ns_ = std::clamp(backoff_ns_ * 2, kFirstBackoffNs, kLongestBackoffNs);
  next_try_ns_ = MonotonicNs() + backoff_ns_;
}

void DaemonClient::Settle(const Fault& fault, int64_t took_ns, bool charge) {
  if (fault.ok()) {
    state_ = State::kUp;
    backoff_ns_ = 0;
    return;
  }
  if (charge) budget_ns_ = std::max<int64_t>(0, budget_ns_.load() - took_ns);
  if (MeansGone(fault)) Gone(fault);
}

// Nobody waits: either the answer is there or the host goes on without.
Fault DaemonClient::Probe() {
  if (state_ == State::kGone) {
    Fault fault = StartOpenSession(Deadline::After(kLongestBackoffNs));
    if (!fault.ok()) {
      Gone(fault);
      return fault;
    }
    state_ = State::kProbing;
    next_try_ns_ = MonotonicNs() + kLongestBackoffNs;
  }
  if (!connection_->PollOnce()) {
    Fault waiting = gone_why_;
    if (MonotonicNs() > next_try_ns_) Gone(gone_why_);
    return waiting;
  }
  Fault fault = FinishOpenSession(Deadline::After(kNsPerMs));
  if (!fault.ok()) {
    Gone(fault);
    return fault;
  }
  state_ = State::kUp;
  backoff_ns_ = 0;
  return Fault::Ok();
}

Fault DaemonClient::MayTry(bool charge) {
  bool waived = backoff_waived_.exchange(false);
  // The lender has found the daemon again.
  if (lender_ && lender_->session_open() && lender_->session_number() != session_number_) {
    waived = true;
  }
  if (state_ == State::kGone && MonotonicNs() < next_try_ns_ && !waived) return gone_why_;
  bool may_wait = !charge || !BudgetSpent();
  if (state_ == State::kProbing || (state_ == State::kGone && !may_wait)) {
    if (Fault f = Probe(); !f.ok()) return f;
  }
  if (may_wait) return Fault::Ok();
  return Fault::Of(FaultKind::kDeadline, "this process has waited for the daemon long enough");
}

template <typename F>
Fault DaemonClient::Guarded(int64_t patience_ns, bool charge, F&& call) {
  int64_t start = MonotonicNs();
  if (charge) patience_ns = std::min(patience_ns, budget_ns_.load());
  if (!lock_.LockUntil(Deadline{start + patience_ns})) {
    if (charge) budget_ns_ = std::max<int64_t>(0, budget_ns_.load() - patience_ns);
    return Fault::Of(FaultKind::kDeadline, "another thread is waiting for the daemon");
  }
  TimedLockRelease release(lock_);
  Refill();
  if (Fault f = MayTry(charge); !f.ok()) return f;
  Fault fault;
  try {
    fault = Translate(call(Deadline{start + patience_ns}));
  } catch (const std::exception&) {  // only std::bad_alloc; the stream is in an unknown state
    Drop();
    fault = Fault::Of(FaultKind::kOutOfMemory, "");
  }
  Settle(fault, MonotonicNs() - start, charge);
  return fault;
}

// ---- Sessions ----

Fault DaemonClient::StartOpenSession(Deadline deadline) {
  Drop();
  connection_ = std::make_unique<Http2Connection>();
  if (Fault f = connection_->Connect(config_.socket_path); !f.ok()) return f;
  ProcessInfo process = DescribeProcess(loaded_through_());
  process.follows = follows_ && follows_();
  WireBytes request = EncodeOpenSession(process);
  if (Fault f = connection_->StartCall("/rjdbi.v1.Admission/OpenSession", deadline); !f.ok()) {
    return f;
  }
  if (Fault f = connection_->SendMessage(View(request), {}, deadline); !f.ok()) return f;
  return connection_->HalfClose();
}

Fault DaemonClient::FinishOpenSession(Deadline deadline) {
  WireBytes reply;
  bool end = false;
  if (Fault f = connection_->Receive(kMaxMessageBytes, deadline, &reply, &end); !f.ok()) return f;
  if (end) return Fault::Of(FaultKind::kProtocol, "OpenSession: no reply");
  if (Fault f = connection_->Finish(deadline); !f.ok()) return f;
  std::string why;
  if (!DecodeSession(View(reply), &session_, &why)) return Fault::Of(FaultKind::kProtocol, why);
  if (session_.report_interval_ms != 0) {
    report_interval_ms_ =
        std::clamp(session_.report_interval_ms, kShortestReportMs, kLongestReportMs);
  }
  session_open_ = true;
  ++session_number_;
  return Fault::Ok();
}

Fault DaemonClient::Lend(const WireBytes& stale, Deadline deadline, SessionInfo* session,
                         uint64_t* number) {
  // The host's calls wait for the same lock.
  const int64_t patience_ns = std::min(deadline.RemainingNs(), config_.deadline_ns);
  return Guarded(patience_ns, /*charge=*/false, [&](Deadline until) {
    if (session_open_ && session_.session_id == stale) Drop();
    if (Fault f = InSession(until, [] { return Fault::Ok(); }); !f.ok()) return f;
    *session = session_;
    *number = session_number_.load();
    return Fault::Ok();
  });
}

Fault DaemonClient::BorrowSession(Deadline deadline) {
  const WireBytes stale = session_stale_ ? session_.session_id : WireBytes();
  Drop();
  uint64_t number = 0;
  if (Fault f = lender_->Lend(stale, deadline, &session_, &number); !f.ok()) return f;
  connection_ = std::make_unique<Http2Connection>();
  connection_->set_wake_fd(wake_fd_);
  if (Fault f = connection_->Connect(config_.socket_path); !f.ok()) return f;
  session_stale_ = false;
  session_open_ = true;
  session_number_ = number;
  return Fault::Ok();
}

Fault DaemonClient::OpenSession(Deadline deadline) {
  if (lender_) return BorrowSession(deadline);
  if (Fault f = StartOpenSession(deadline); !f.ok()) return f;
  return FinishOpenSession(deadline);
}

template <typename F>
Fault DaemonClient::InSession(Deadline deadline, F&& call) {
  // A session that was lent ends with the lender's.
  if (lender_ && session_open_ && session_number_ != lender_->session_number()) Drop();
  const bool reused = session_open_;
  if (!reused) {
    if (Fault f = OpenSession(deadline); !f.ok()) return f;
  }
  Fault fault = call();
  if (reused && fault.kind == FaultKind::kUnreachable) {
    if (Fault f = OpenSession(deadline); !f.ok()) return f;
    fault = call();
  }
  session_stale_ = MeansNoSession(fault);
  // The lender may not have noticed yet that what it lends has ended.
  if (!session_stale_ || (!reused && !lender_)) return fault;
  if (Fault f = OpenSession(deadline); !f.ok()) return f;
  fault = call();
  session_stale_ = MeansNoSession(fault);
  return fault;
}

Fault DaemonClient::Unary(const char* method, const WireBytes& request, Deadline deadline,
                          WireBytes* reply) {
  if (Fault f = connection_->StartCall(method, deadline); !f.ok()) return f;
  if (Fault f = connection_->SendMessage(View(request), {}, deadline); !f.ok()) return f;
  if (Fault f = connection_->HalfClose(); !f.ok()) return f;
  bool end = false;
  if (Fault f = connection_->Receive(kMaxMessageBytes, deadline, reply, &end); !f.ok()) return f;
  if (end) return Fault::Of(FaultKind::kProtocol, std::string(method) + ": no reply");
  return connection_->Finish(deadline);
}

// ---- Admission ----

Fault DaemonClient::Admit(const ObjectHeader& header, ByteView object, Decision* decision) {
  const ByteSource source = [object](ByteView* bytes) {
    *bytes = object;
    return Fault::Ok();
  };
  return Admit(header, source, /*charge=*/true, decision);
}

Fault DaemonClient::Admit(const ObjectHeader& header, const ByteSource& object, bool charge,
                          Decision* decision) {
  return Guarded(charge ? config_.deadline_ns : kBackgroundAdmitNs, charge, [&](Deadline deadline) {
    return InSession(deadline, [&] {
      *decision = Decision();
      return AdmitOnce(header, object, deadline, decision);
    });
  });
}

Fault DaemonClient::NextReply(Deadline deadline, bool beside, ChunkSink* sink, AdmitReplyKind* kind,
                              Decision* decision) {
  const DecodeLimits limits{kMaxCounters, kMaxFixups, kMaxSummaryBytes, kMaxSwitches, beside};
  WireBytes message;
  bool end = false;
  if (Fault f = connection_->Receive(kMaxMessageBytes, deadline, &message, &end); !f.ok()) {
    if (f.grpc_status == kGrpcResourceExhausted) f.kind = FaultKind::kTooLarge;
    return f;
  }
  if (end) return Fault::Of(FaultKind::kProtocol, "Admit ended without a decision");
  std::string why;
  if (!DecodeAdmitReply(View(message), limits, sink, kind, decision, &why)) {
    return Fault::Of(FaultKind::kProtocol, why);
  }
  return Fault::Ok();
}

Fault DaemonClient::Upload(ByteView object, Deadline deadline) {
  for (size_t sent = 0; sent < object.size && !connection_->Answered();) {
    size_t size = std::min(kChunkBytes, object.size - sent);
    WireBytes prefix = EncodeChunkPrefix(size);
    if (Fault f = connection_->SendMessage(View(prefix), {object.data + sent, size}, deadline);
        !f.ok()) {
      return f;
    }
    sent += size;
  }
  return Fault::Ok();
}

Fault DaemonClient::AdmitOnce(const ObjectHeader& header, const ByteSource& object,
                              Deadline deadline, Decision* decision) {
  if (Fault f = connection_->StartCall("/rjdbi.v1.Admission/Admit", deadline); !f.ok()) return f;
  WireBytes request = EncodeObjectHeader(session_.session_id, header);
  if (Fault f = connection_->SendMessage(View(request), {}, deadline); !f.ok()) return f;

  ChunkSink none;
  AdmitReplyKind kind;
  if (Fault f = NextReply(deadline, header.beside, &none, &kind, decision); !f.ok()) return f;
  if (kind == AdmitReplyKind::kNeedBytes) {
    if (session_.max_code_object_bytes != 0 && header.size > session_.max_code_object_bytes) {
      return Fault::Of(FaultKind::kTooLarge, "the daemon takes objects of at most " +
                                                 std::to_string(session_.max_code_object_bytes) +
                                                 " bytes");
    }
    ByteView bytes;
    if (Fault f = object(&bytes); !f.ok()) return f;
    if (Fault f = Upload(bytes, deadline); !f.ok()) return f;
    if (Fault f = connection_->HalfClose(); !f.ok()) return f;
    if (Fault f = NextReply(deadline, header.beside, &none, &kind, decision); !f.ok()) return f;
  } else if (Fault f = connection_->HalfClose(); !f.ok()) {
    return f;
  }
  if (kind != AdmitReplyKind::kDecision) {
    return Fault::Of(FaultKind::kProtocol, "expected a decision");
  }
  if (decision->verdict == Verdict::kPatched) {
    if (Fault f = ReceiveImage(header.size, deadline, decision); !f.ok()) return f;
  }
  return connection_->Finish(deadline);
}

Fault DaemonClient::ReceiveImage(uint64_t object_size, Deadline deadline, Decision* decision) {
  if (decision->patched_size > MaxPatchedBytes(object_size)) {
    return Fault::Of(FaultKind::kProtocol,
                     "patched image of " + std::to_string(decision->patched_size) +
                         " bytes for an object of " + std::to_string(object_size));
  }
  decision->image = OwnedBytes::Allocate(decision->patched_size);
  if (decision->image.size() == 0) {
    return Fault::Of(FaultKind::kOutOfMemory,
                     "patched image of " + std::to_string(decision->patched_size) + " bytes");
  }
  ChunkSink sink{decision->image.data(), decision->image.size()};
  while (sink.room > 0) {
    AdmitReplyKind kind;
    Decision second;
    if (Fault f = NextReply(deadline, false, &sink, &kind, &second); !f.ok()) return f;
    if (kind != AdmitReplyKind::kChunk) {
      return Fault::Of(FaultKind::kProtocol, "expected a chunk of the patched image");
    }
  }
  if (Sha256(decision->image.view()) != decision->patched_digest) {
    return Fault::Of(FaultKind::kProtocol, "the patched image does not have the announced hash");
  }
  return Fault::Ok();
}

// ---- Watching ----

Fault DaemonClient::Watch(uint64_t seen, uint64_t in_session, uint32_t max_wait_ms,
                          WatchAnswer* answer) {
  const int64_t patience_ns = max_wait_ms * kNsPerMs + config_.deadline_ns;
  return Guarded(patience_ns, /*charge=*/false, [&](Deadline deadline) {
    return InSession(deadline, [&] {
      WireBytes reply;
      const uint64_t known = session_number_ == in_session ? seen : 0;
      if (Fault f = Unary("/rjdbi.v1.Admission/Watch",
                          EncodeWatch(session_.session_id, known, max_wait_ms), deadline, &reply);
          !f.ok()) {
        return f;
      }
      std::string why;
      if (!DecodeWatch(View(reply), answer, &why)) return Fault::Of(FaultKind::kProtocol, why);
      return Fault::Ok();
    });
  });
}

// ---- Reports ----

Fault DaemonClient::Report(const std::vector<LoadCounters>& loads, const std::vector<Gap>& gaps,
                           int64_t patience_ns, bool charge) {
  if (loads.empty() && gaps.empty()) return Fault::Ok();
  return Guarded(patience_ns, charge, [&](Deadline deadline) {
    size_t load = 0;
    size_t gap = 0;
    Fault fault;
    Fault refused;
    while (fault.ok() && (load < loads.size() || gap < gaps.size())) {
      size_t load_end = load;
      for (size_t words = 0; load_end < loads.size(); ++load_end) {
        words += loads[load_end].counters.size() + loads[load_end].records.site_records.size();
        if (load_end > load && words > kReportCounters) break;
      }
      size_t gap_end = std::min(gaps.size(), gap + kReportGaps);
      const std::vector<LoadCounters> some_loads(loads.begin() + static_cast<ptrdiff_t>(load),
                                                 loads.begin() + static_cast<ptrdiff_t>(load_end));
      const std::vector<Gap> some_gaps(gaps.begin() + static_cast<ptrdiff_t>(gap),
                                       gaps.begin() + static_cast<ptrdiff_t>(gap_end));
      fault = InSession(deadline, [&] {
        WireBytes reply;
        return Unary("/rjdbi.v1.Admission/Report",
                     EncodeReport(session_.session_id, some_loads, some_gaps), deadline, &reply);
      });
      load = load_end;
      gap = gap_end;
      // Loads of before a restart are not known: no reason to keep the others back.
      if (fault.is_final_answer()) refused = std::exchange(fault, Fault::Ok());
    }
    return fault.ok() ? refused : fault;
  });
}

Fault DaemonClient::ReportBatches(const std::vector<RecordBatch>& batches, int64_t patience_ns,
                                  bool charge) {
  return Guarded(patience_ns, charge, [&](Deadline deadline) {
    return InSession(deadline, [&] {
      WireBytes reply;
      return Unary("/rjdbi.v1.Admission/Report", EncodeBatches(session_.session_id, batches),
                   deadline, &reply);
    });
  });
}

void DaemonClient::CloseSession(int64_t patience_ns) {
  if (!session_open_) return;
  Guarded(patience_ns, true, [&](Deadline deadline) {
    if (!session_open_) return Fault::Ok();
    WireBytes reply;
    Fault fault = Unary("/rjdbi.v1.Admission/CloseSession", EncodeCloseSession(session_.session_id),
                        deadline, &reply);
    Drop();
    return fault;
  });
}

void DaemonClient::AbandonAfterFork() {
  if (connection_) connection_->AbandonDescriptor();
}

}  // namespace rjdbi::agent
