#include "daemon/watch_hub.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/decision.h"
#include "daemon/digest.h"

namespace rjdbi::daemon {
namespace {

constexpr std::chrono::milliseconds kMostWait{60'000};

}  // namespace

uint64_t Generation(const std::vector<v1::Attachment>& matching, const contract::Policy& policy) {
  if (matching.empty()) return 1;
  const Question question = Question::Make("", matching);
  std::string text = question.Key(policy);
  for (const std::string& id : question.ids) absl::StrAppend(&text, " ", id);
  const std::string digest = Sha256(text);
  uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof(number));
  return number | 2;  // neither 0 nor 1
}

// gRPC is told once, by whoever is first: the hub or a cancellation.
class WatchHub::Call final : public grpc::ServerUnaryReactor {
 public:
  Call(SessionInfo session, const v1::WatchRequest& request, v1::WatchReply* reply)
      : session_(std::move(session)),
        seen_(request.seen()),
        until_(std::chrono::steady_clock::now() +
               std::min(kMostWait, std::chrono::milliseconds(request.max_wait_ms()))),
        reply_(reply) {}

  const SessionInfo& session() const { return session_; }
  uint64_t seen() const { return seen_; }
  std::chrono::steady_clock::time_point until() const { return until_; }
  bool ended() const { return ended_.load(); }

  void End(const v1::WatchReply& answer) {
    if (ended_.exchange(true)) return;
    *reply_ = answer;
    Finish(grpc::Status::OK);
  }
  void OnCancel() override {
    if (!ended_.exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    std::shared_ptr<Call> last;  // outlives the lock
    const std::lock_guard lock(mutex_);
    last = std::move(self_);
  }
  // Until gRPC is done with it.
  void Keep(std::shared_ptr<Call> self) {
    const std::lock_guard lock(mutex_);
    self_ = std::move(self);
  }

 private:
  const SessionInfo session_;
  const uint64_t seen_;
  const std::chrono::steady_clock::time_point until_;
  v1::WatchReply* const reply_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::shared_ptr<Call> self_;
};

grpc::ServerUnaryReactor* WatchHub::Watch(const SessionInfo& session,
                                          const v1::WatchRequest& request, v1::WatchReply* reply) {
  auto call = std::make_shared<Call>(session, request, reply);
  call->Keep(call);
  EndWhere([&](const Call& other) { return other.session().id == session.id; });
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stopped_;
    if (!stopped) waiting_.push_back(call);
  }
  // Looked at only now: a change that came before is seen here, a later one ends the wait.
  const v1::WatchReply now = answer_(session);
  if (stopped || now.generation() != request.seen() || request.max_wait_ms() == 0) call->End(now);
  return call.get();
}

void WatchHub::EndWhere(const std::function<bool(const Call&)>& over) {
  std::vector<std::shared_ptr<Call>> ending;
  {
    const std::lock_guard lock(mutex_);
    waiting_.remove_if([&](const std::shared_ptr<Call>& call) {
      if (call->ended()) return true;
      if (!over(*call)) return false;
      ending.push_back(call);
      return true;
    });
  }
  for (const auto& call : ending) call->End(answer_(call->session()));
}

void WatchHub::Changed() {
  EndWhere(
      [this](const Call& call) { return answer_(call.session()).generation() != call.seen(); });
}

void WatchHub::CheckTime(std::chrono::steady_clock::time_point now) {
  EndWhere([now](const Call& call) { return call.until() <= now; });
}

void WatchHub::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  EndWhere([](const Call&) { return true; });
}

}  // namespace rjdbi::daemon
