// The background thread and delivery; see reporter.h.
#include "agent/reporter.h"

#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

#include "agent/quiet_thread.h"

namespace rjdbi::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBackgroundPatienceNs = 2'000'000'000;
// Final values kept for a daemon that is away; beyond it the oldest go.
constexpr size_t kMaxFinals = 4096;
// Batches of one message: below gRPC's default limit of 4 MiB.
constexpr size_t kMessageBytes = 1 << 20;

}  // namespace

bool Reporter::Start() noexcept {
  std::lock_guard lock(mutex_);
  if (started_ || stopping_) return started_;
  started_ = StartQuietThread("rjdbi-report", &Main, this, &thread_);
  return started_;
}

void* Reporter::Main(void* self) {
  static_cast<Reporter*>(self)->Run();
  return nullptr;
}

void Reporter::Run() {
  const auto interval = [this] { return std::chrono::milliseconds(client_.report_interval_ms()); };
  std::unique_lock lock(mutex_);
  Clock::time_point due = Clock::now() + interval();
  while (!stopping_) {
    wake_.wait_until(lock, due,
                     [this] { return stopping_ || !finals_.empty() || !batches_.empty(); });
    if (stopping_) break;
    // Batches go at once, values when they are due.
    const bool values = !finals_.empty() || Clock::now() >= due;
    lock.unlock();
    bool delivered = false;
    try {
      delivered = Deliver(values ? loads_.SnapshotChanged() : std::vector<LoadCounters>(),
                          kBackgroundPatienceNs, false)
                      .ok();
    } catch (const std::exception&) {  // std::bad_alloc: the next round tries again
      loads_.ForgetReported();
    }
    lock.lock();
    if (values) due = Clock::now() + interval();
    // What is undelivered must not turn the wait into a spin.
    if (!delivered && !stopping_) {
      wake_.wait_until(lock, Clock::now() + interval(), [this] { return stopping_; });
    }
  }
}

void Reporter::Enqueue(std::vector<LoadCounters> finals) {
  if (finals.empty()) return;
  {
    std::lock_guard lock(mutex_);
    finals_.insert(finals_.end(), std::make_move_iterator(finals.begin()),
                   std::make_move_iterator(finals.end()));
    if (finals_.size() > kMaxFinals) {
      finals_.erase(finals_.begin(),
                    finals_.begin() + static_cast<ptrdiff_t>(finals_.size() - kMaxFinals));
    }
  }
  wake_.notify_one();
}

void Reporter::BatchesWait() {
  { std::lock_guard lock(mutex_); }  // not between the thread's look and its sleep
  wake_.notify_one();
}

Fault Reporter::DeliverBatches(int64_t patience_ns, bool charge) {
  const Deadline deadline = Deadline::After(patience_ns);
  // Those that are queued now; more may come in all the time.
  const size_t most = batches_.bytes();
  for (size_t sent = 0; sent < most;) {
    // A host that waits does so once; in the background each message has its time.
    const int64_t left_ns = charge ? deadline.RemainingNs() : patience_ns;
    if (left_ns <= 0) return Fault::Of(FaultKind::kDeadline, "trace records are left over");
    std::vector<RecordBatch> batches = batches_.Take(kMessageBytes);
    if (batches.empty()) break;
    for (const RecordBatch& batch : batches) sent += batch.records.size();
    const Fault fault = client_.ReportBatches(batches, left_ns, charge);
    // A daemon that answers with a refusal would do so again.
    const auto fate = fault.ok()                         ? BatchQueue::Fate::kDelivered
                      : fault.kind == FaultKind::kRemote ? BatchQueue::Fate::kDropped
                                                         : BatchQueue::Fate::kWaits;
    batches_.Done(std::move(batches), fate);
    if (fate == BatchQueue::Fate::kWaits) return fault;
  }
  return Fault::Ok();
}

Fault Reporter::DeliverValues(const std::vector<LoadCounters>& loads, int64_t patience_ns,
                              bool charge) {
  std::vector<Gap> gaps = gaps_.TakePending();
  Fault fault = client_.Report(loads, gaps, patience_ns, charge);
  if (fault.is_final_answer()) return Fault::Ok();
  if (!fault.ok()) gaps_.Restore(std::move(gaps));
  return fault;
}

Fault Reporter::DeliverGaps(int64_t patience_ns, bool charge) {
  return DeliverValues({}, patience_ns, charge);
}

Fault Reporter::Deliver(std::vector<LoadCounters> loads, int64_t patience_ns, bool charge) {
  std::vector<LoadCounters> finals;
  {
    std::lock_guard lock(mutex_);
    finals.swap(finals_);
  }
  std::vector<LoadCounters> all = finals;
  all.insert(all.end(), std::make_move_iterator(loads.begin()),
             std::make_move_iterator(loads.end()));
  const int64_t start_ns = MonotonicNs();
  Fault fault = DeliverBatches(patience_ns, charge);
  if (charge) patience_ns -= MonotonicNs() - start_ns;
  if (fault.ok() && patience_ns <= 0)
    fault = Fault::Of(FaultKind::kDeadline, "values are left over");
  if (fault.ok()) fault = DeliverValues(all, patience_ns, charge);
  if (fault.ok()) return fault;
  loads_.ForgetReported();
  std::lock_guard lock(mutex_);
  finals_.insert(finals_.begin(), std::make_move_iterator(finals.begin()),
                 std::make_move_iterator(finals.end()));
  return fault;
}

bool Reporter::Stop(Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!started_) return true;
  }
  wake_.notify_one();
  return JoinUntil(thread_, deadline);
}

}  // namespace rjdbi::agent
