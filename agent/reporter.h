// Delivers counters, gaps and trace records in the background. Its thread starts with
// the first patched load, blocks all signals, and is absent in a forked child until
// that child patches something itself.
#ifndef RJDBI_AGENT_REPORTER_H_
#define RJDBI_AGENT_REPORTER_H_

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "agent/daemon_client/client.h"
#include "agent/gaps.h"
#include "agent/patched_loads.h"
#include "agent/record_batches.h"

namespace rjdbi::agent {

class Reporter {
 public:
  Reporter(DaemonClient& client, GapLog& gaps, PatchedLoads& loads, BatchQueue& batches)
      : client_(client), gaps_(gaps), loads_(loads), batches_(batches) {}

  // Starts the thread if it does not run. False when it cannot be had; counters
  // are then delivered at exit only.
  bool Start() noexcept;
  // Last values of loads that are gone; delivered soon, behind their batches, which
  // are in the queue already.
  void Enqueue(std::vector<LoadCounters> finals);
  // There are batches in the queue; delivered at once.
  void BatchesWait();
  // One delivery from the calling thread, of batches, finals, `loads` and gaps; what
  // does not arrive stays queued. With `charge` the host is waiting for it.
  Fault Deliver(std::vector<LoadCounters> loads, int64_t patience_ns, bool charge);
  // The same of gaps alone.
  Fault DeliverGaps(int64_t patience_ns, bool charge);
  // Ends the thread, waiting for it at most until the deadline. True if it ended.
  bool Stop(Deadline deadline);

 private:
  static void* Main(void* self);
  void Run();
  Fault DeliverBatches(int64_t patience_ns, bool charge);
  Fault DeliverValues(const std::vector<LoadCounters>& loads, int64_t patience_ns, bool charge);

  DaemonClient& client_;
  GapLog& gaps_;
  PatchedLoads& loads_;
  BatchQueue& batches_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<LoadCounters> finals_;
  bool started_ = false;
  bool stopping_ = false;
  pthread_t thread_{};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_REPORTER_H_
