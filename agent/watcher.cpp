// Waiting, asking, applying; see watcher.h.
#include "agent/watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "agent/inside.h"
#include "agent/quiet_thread.h"
#include "agent/runtime.h"
#include "agent/substitution.h"

namespace rjdbi::agent {
namespace {

// A wait for the daemon: long, since an answer comes as soon as there is one.
constexpr int64_t kWatchMs = 30'000;
// While images wait to go: soon after a change, then more and more seldom.
constexpr int64_t kFirstLetGoMs = 20;
constexpr int64_t kLastLetGoMs = 10'000;
constexpr int64_t kFirstPauseNs = 250 * kNsPerMs;
// How seldom a daemon that is away is tried, DaemonClient sees to.
constexpr int64_t kLongestPauseNs = 2'000 * kNsPerMs;
constexpr int64_t kGapDeliveryNs = 2'000 * kNsPerMs;

constexpr int kGrpcUnimplemented = 12;

}  // namespace

Watcher::~Watcher() {
  if (const int fd = wake_fd_.exchange(-1); fd >= 0) close(fd);
}

void Watcher::Start() noexcept {
  std::lock_guard lock(mutex_);
  if (started_ || stopping_) return;
  // Not in place of a standard stream that the host has closed.
  const int low = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (low < 0) return;
  const int fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(low);
  if (fd < 0) return;
  wake_fd_ = fd;
  runtime_.live_client.set_wake_fd(fd);
  started_ = StartQuietThread("rjdbi-watch", &Main, this, &thread_);
}

void* Watcher::Main(void* self) {
  static_cast<Watcher*>(self)->Run();
  return nullptr;
}

void Watcher::Run() {
  Inside inside;  // HSA calls made here are the agent's own
  bool more = true;
  while (more && !stopping_) {
    try {
      more = Round();
    } catch (const std::exception&) {  // std::bad_alloc
      Pause(kFirstPauseNs);
    }
  }
  if (unanswered_) runtime_.gaps.Record(std::move(*unanswered_));
}

bool Watcher::Round() {
  const bool leaving = runtime_.beside.LetGo();
  int64_t wait_ms = kWatchMs;
  if (leaving) {
    wait_ms = let_go_ms_ = std::clamp(let_go_ms_ * 2, kFirstLetGoMs, kLastLetGoMs);
  }
  WatchAnswer answer;
  waiting_ = true;
  if (recheck_.exchange(false)) wait_ms = 0;
  const Fault fault =
      runtime_.live_client.Watch(in_place_, session_, static_cast<uint32_t>(wait_ms), &answer);
  waiting_ = false;
  DrainWake();
  if (stopping_ || fault.kind == FaultKind::kInterrupted) return true;
  if (fault.kind == FaultKind::kRemote && fault.grpc_status == kGrpcUnimplemented) return false;
  if (!fault.ok()) {
    pause_ns_ = std::clamp(pause_ns_ * 2, kFirstPauseNs, kLongestPauseNs);
    Pause(pause_ns_);
    return true;
  }
  pause_ns_ = 0;
  if (const uint64_t now = runtime_.live_client.session_number(); now != session_) {
    // The daemon knows nothing of what other sessions of this process have been told.
    runtime_.loaded.ForgetOtherSessions(now);
    session_ = now;
    in_place_ = 0;
  }
  if (answer.generation != in_place_) let_go_ms_ = 0;
  if (Apply(answer)) {
    in_place_ = answer.generation;
  } else if (!stopping_) {
    Pause(kFirstPauseNs);
  }
  return true;
}

bool Watcher::Apply(const WatchAnswer& answer) {
  for (const LoadedObject& object : runtime_.loaded.All()) {
    if (object.generation == answer.generation) continue;
    if (answer.attachments == 0 && !object.patched && !runtime_.beside.Has(object.load_id)) {
      runtime_.loaded.SetGeneration(object.load_id, answer.generation, session_);
      continue;
    }
    if (stopping_ || !Ask(object, answer)) return false;
  }
  unanswered_.reset();
  NotePlainQueues(answer);
  if (runtime_.gaps.HasPending()) runtime_.reporter.DeliverGaps(kGapDeliveryNs, /*charge=*/false);
  return true;
}

bool Watcher::Ask(const LoadedObject& object, const WatchAnswer& answer) {
  ObjectHeader header;
  header.digest = object.digest;
  header.size = object.size;
  header.origin = object.origin;
  header.load_id = runtime_.next_load_id++;
  header.agent_isa = object.isa;
  header.gpu_node = object.gpu_node;
  header.beside = true;
  header.beside_load_id = object.load_id;
  OwnedBytes copy;
  const auto bytes = [&](ByteView* view) {
    std::string why;
    if (!ReadObjectAgain(object, &copy, &why)) return Fault::Of(FaultKind::kUnreadable, why);
    *view = copy.view();
    return Fault::Ok();
  };
  Decision decision;
  Fault fault;
  do {
    fault = runtime_.live_client.Admit(header, bytes, /*charge=*/false, &decision);
    DrainWake();
  } while (fault.kind == FaultKind::kInterrupted && !stopping_);
  if (stopping_) return false;
  if (!fault.ok()) {
    Gap gap{.kind = GapKindOf(fault),
            .has_digest = true,
            .digest = object.digest,
            .size = object.size,
            .origin = object.origin,
            .detail = "beside the loaded object: " + fault.detail,
            .unix_ns = 0,
            .load_id = header.load_id};
    // A daemon that is away is asked again: a gap only if nothing comes of that.
    if (fault.kind == FaultKind::kUnreachable) {
      unanswered_ = std::move(gap);
      return false;
    }
    const bool late = fault.kind == FaultKind::kDeadline;
    // What a daemon that is late says of one object it says of all, again and again.
    if (!late || failed_generation_ != answer.generation) runtime_.gaps.Record(std::move(gap));
    if (late) {
      failed_generation_ = answer.generation;
      return false;
    }
    // Not asked about again before the attachments change. The gap is one of the load that
    // was asked for: what is loaded already stays as it is.
    runtime_.loaded.SetGeneration(object.load_id, answer.generation, session_);
    return true;
  }
  const uint64_t generation = decision.generation != 0 ? decision.generation : answer.generation;
  runtime_.beside.Apply(object, std::move(decision), header.load_id);
  runtime_.loaded.SetGeneration(object.load_id, generation, session_);
  return true;
}

void Watcher::NotePlainQueues(const WatchAnswer& answer) {
  const uint64_t plain = runtime_.queues.plain();
  if (plain_queues_noted_ || plain == 0 || answer.attachments == 0) return;
  plain_queues_noted_ = true;
  RecordGap(runtime_, Gap{}, GapKind::kQueueNotIntercepted,
            std::to_string(plain) + " of " + std::to_string(plain + runtime_.queues.intercepted()) +
                " queues so far: dispatches on them stay with what was loaded");
}

void Watcher::NoteLoaded(uint64_t generation) {
  const uint64_t in_place = in_place_.load();
  if (generation != 0 && in_place != 0 && generation != in_place) Poke();
}

void Watcher::Poke() {
  recheck_ = true;
  if (waiting_) Wake();
}

void Watcher::Wake() {
  const uint64_t one = 1;
  if (const int fd = wake_fd_.load(); fd >= 0) (void)!write(fd, &one, sizeof one);
}

void Watcher::DrainWake() {
  if (stopping_) return;  // stays readable
  uint64_t count = 0;
  (void)!read(wake_fd_.load(), &count, sizeof count);
}

void Watcher::Pause(int64_t ns) {
  pollfd ready{wake_fd_.load(), POLLIN, 0};
  poll(&ready, 1, static_cast<int>(ns / kNsPerMs));
  DrainWake();
}

bool Watcher::Stop(Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!started_) return true;
  }
  Wake();
  return JoinUntil(thread_, deadline);
}

void Watcher::AbandonAfterFork() {
  if (const int fd = wake_fd_.exchange(-1); fd >= 0) close(fd);
}

}  // namespace rjdbi::agent
