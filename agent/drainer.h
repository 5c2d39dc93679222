// Drains the rings of all loads in the background. Its thread starts with the first
// load that has a ring, and only looks at memory: delivering is the reporter's.
#ifndef RJDBI_AGENT_DRAINER_H_
#define RJDBI_AGENT_DRAINER_H_

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "agent/load_ring.h"
#include "agent/reporter.h"
#include "agent/types.h"

namespace rjdbi::agent {

class Drainer {
 public:
  explicit Drainer(Reporter& reporter) : reporter_(reporter) {}

  // Drains `ring` for as long as somebody else holds it, too. Starts the thread if it
  // does not run; without one, rings are read when their load ends. May throw
  // std::bad_alloc.
  void Add(const std::shared_ptr<LoadRing>& ring);
  // Ends the thread, waiting for it at most until the deadline. True if it ended.
  bool Stop(Deadline deadline);

 private:
  static void* Main(void* self);
  void Run();
  // Bytes read from all rings.
  size_t Round();

  Reporter& reporter_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::weak_ptr<LoadRing>> rings_;
  bool started_ = false;
  bool stopping_ = false;
  pthread_t thread_{};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DRAINER_H_
