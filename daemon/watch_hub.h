// Agents that wait for the attachments of their process to change (rpc Watch), and
// the numbers by which a set of attachments is known. No thread waits with them.
#ifndef DAEMON_WATCH_HUB_H_
#define DAEMON_WATCH_HUB_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "contract/admission.h"
#include "daemon/ledger.h"
#include "daemon/upload.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::daemon {

// Stands for what these attachments, which match a process, ask of it under this
// policy: equal numbers mean equal answers, also after a restart. Never 0.
uint64_t Generation(const std::vector<v1::Attachment>& matching, const contract::Policy& policy);

class WatchHub : public Timed {
 public:
  // What a process is to know now.
  using Answer = std::function<v1::WatchReply(const SessionInfo&)>;
  explicit WatchHub(Answer answer) : answer_(std::move(answer)) {}

  // Ends when the answer differs from what the request has seen, when its wait is over,
  // or when the session asks again.
  grpc::ServerUnaryReactor* Watch(const SessionInfo& session, const v1::WatchRequest& request,
                                  v1::WatchReply* reply);
  // Attachments or policy may have changed.
  void Changed();
  void CheckTime(std::chrono::steady_clock::time_point now) override;
  // Ends all calls, and those to come at once.
  void Stop();

 private:
  class Call;
  // Ends those for which `over` holds.
  void EndWhere(const std::function<bool(const Call&)>& over);

  const Answer answer_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Call>> waiting_;
  bool stopped_ = false;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_WATCH_HUB_H_
