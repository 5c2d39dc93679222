// Delivers counters and gaps in the background. Its thread starts with the first
// patched load, blocks all signals, and is absent in a forked child until that
// child patches something itself.
#ifndef RJDBI_AGENT_REPORTER_H_
#define RJDBI_AGENT_REPORTER_H_

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "agent/daemon_client/client.h"
#include "agent/gaps.h"
#include "agent/patched_loads.h"

namespace rjdbi::agent {

class Reporter {
 public:
  Reporter(DaemonClient& client, GapLog& gaps, PatchedLoads& loads)
      : client_(client), gaps_(gaps), loads_(loads) {}

  // Starts the thread if it does not run. False when it cannot be had; counters
  // are then delivered at exit only.
  bool Start() noexcept;
  // Last values of loads that are gone; delivered soon.
  void Enqueue(std::vector<LoadCounters> finals);
  // One delivery from the calling thread; what does not arrive stays queued.
  // With `charge` the host is waiting for it.
  Fault Deliver(std::vector<LoadCounters> loads, int64_t patience_ns, bool charge);
  // Ends the thread, waiting for it at most until the deadline. True if it ended.
  bool Stop(Deadline deadline);

 private:
  static void* Main(void* self);
  void Run();

  DaemonClient& client_;
  GapLog& gaps_;
  PatchedLoads& loads_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<LoadCounters> finals_;
  bool started_ = false;
  bool stopping_ = false;
  pthread_t thread_{};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_REPORTER_H_
