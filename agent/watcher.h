// Follows the attachments of this process while it runs: a thread that waits for the
// daemon to say that they have changed, and then asks about each object that is loaded
// what is to stand beside it.
//
// It has a connection of its own, in the session of the others, so that nobody waits for
// its waiting. It starts with the first load that the daemon has decided about, and ends
// when a daemon does not know rpc Watch. A forked child has none until it loads something.
#ifndef RJDBI_AGENT_WATCHER_H_
#define RJDBI_AGENT_WATCHER_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "agent/loaded_objects.h"
#include "agent/types.h"

namespace rjdbi::agent {

struct Runtime;

class Watcher {
 public:
  explicit Watcher(Runtime& runtime) : runtime_(runtime) {}
  ~Watcher();

  // Starts the thread if it has not been started. Without one, nothing is attached to what
  // is loaded already.
  void Start() noexcept;
  // An object was loaded that is as the attachments of this generation want it.
  void NoteLoaded(uint64_t generation);
  // Looks again at what is loaded, soon.
  void Poke();
  // Ends the thread, waiting for it at most until the deadline. True if it ended.
  bool Stop(Deadline deadline);
  // In a forked child: closes what is the parent's.
  void AbandonAfterFork();

 private:
  static void* Main(void* self);
  void Run();
  // One wait and what follows from it. False: the thread has nothing more to do.
  bool Round();
  // What all loaded objects want of these attachments. False: not all could be asked about.
  bool Apply(const WatchAnswer& answer);
  // False: it makes no sense to ask about others now.
  bool Ask(const LoadedObject& object, const WatchAnswer& answer);
  void NotePlainQueues(const WatchAnswer& answer);
  // At most so long; ends early when woken.
  void Pause(int64_t ns);
  void Wake();
  void DrainWake();

  Runtime& runtime_;
  std::mutex mutex_;
  bool started_ = false;
  pthread_t thread_{};
  std::atomic<int> wake_fd_{-1};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> recheck_{false};
  std::atomic<bool> waiting_{false};   // for the daemon to say something
  std::atomic<uint64_t> in_place_{0};  // the generation that all loaded objects follow

  // The thread's own.
  uint64_t session_ = 0;  // number of the session that in_place_ belongs to
  int64_t pause_ns_ = 0;
  int64_t let_go_ms_ = 0;
  uint64_t failed_generation_ = 0;  // that a gap of a late daemon was recorded for
  std::optional<Gap> unanswered_;   // that a daemon that is away has left; it is asked again
  bool plain_queues_noted_ = false;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_WATCHER_H_
