// Images that stand beside loaded objects, and the dispatches that are directed to them:
// from the daemon's answer to an executable of the agent's own and a table of
// directions, and back.
//
// How an image goes. First a table without it is published. Once every queue's gate has
// been seen empty, all dispatches that were directed to it are in their queues (queues.h).
// Then each queue that has directed a dispatch since the image came is asked for a fence,
// a barrier packet with the barrier bit in front of its next packet; when the GPU has
// passed those, nothing runs on the image any more, and it goes. A queue that the host does
// not use again keeps what it ran last: at most one image for each object, since later
// ones cannot have been dispatched on it, and earlier ones had their fence in front of its
// last dispatch. Waiting on, or adding to, an idle queue of the host's would be the
// alternative: a queue may have but one producer, which keeps the write index to itself.
// Whatever is left goes when the host destroys the queue, or the executable that the image
// stands beside: it says thereby that nothing of it runs.
#ifndef RJDBI_AGENT_BESIDE_LOADS_H_
#define RJDBI_AGENT_BESIDE_LOADS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "agent/counters.h"
#include "agent/dispatch_switch.h"
#include "agent/hsa_api.h"
#include "agent/loaded_objects.h"
#include "agent/queues.h"
#include "agent/types.h"

namespace rjdbi::agent {

struct Runtime;

// Thread-safe. Never held while waiting for the daemon.
class BesideLoads {
 public:
  explicit BesideLoads(Runtime& runtime) : runtime_(runtime) {}
  ~BesideLoads();

  // ---- By the watcher ----

  // The daemon's answer about an object that was loaded as `object` says: what it wants
  // beside is put in place, and what was there before goes. On failure that stays, and a
  // gap is recorded. `load_id` is the answer's own. May throw std::bad_alloc; then
  // nothing has changed.
  void Apply(const LoadedObject& object, Decision decision, uint64_t load_id);
  // Whether something stands beside the load.
  bool Has(uint64_t load_id);
  // Lets go what can go. True: there is more that waits.
  bool LetGo();

  // ---- In the host's calls ----

  // Around hsa_executable_destroy. Before: true if After has to be called.
  bool BeforeDestroy(hsa_executable_t executable) noexcept;
  void AfterDestroy(hsa_executable_t executable, bool destroyed) noexcept;
  // While held (hsa_shut_down running) ROCR is not called.
  void Hold(bool hold);
  // There is no ROCR any more to call: forgets everything.
  void RuntimeIsGone() noexcept;

  // Dispatches that images in place have got, and that their choices left out.
  uint64_t switched();
  size_t images();   // in place
  size_t leaving();  // not yet gone

 private:
  struct Image {
    uint64_t original = 0;  // load id of the object that it stands beside
    uint64_t original_executable = 0;
    hsa_executable_t executable{};  // the agent's own; 0: there are only descriptors
    CounterBuffer descriptors;      // of kernels that get their original back
    std::vector<Direction> directions;
    uint64_t first_table = 0;  // number of the first table that it was in
  };
  struct Leaving {
    std::unique_ptr<Image> image;
    bool asked = false;  // for fences
    std::vector<Fence> fences;
  };

  std::unique_ptr<Image> Make(const LiveCalls& hsa, const LoadedObject& object, Decision decision,
                              const Gap& identity);
  bool LoadBeside(const LiveCalls& hsa, const LoadedObject& object, Decision decision,
                  const Gap& identity, Image* image);
  bool Restore(const LoadedObject& object, const std::vector<KernelRestore>& restores,
               const Gap& identity, Image* image);
  void NeverLoaded(const Decision& decision, uint64_t load_id);
  // A table of all that is in place. May throw std::bad_alloc; then nothing has changed.
  void Publish();
  void Destroy(const LiveCalls& hsa, std::unique_ptr<Image> image) noexcept;

  Runtime& runtime_;
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Image>> images_;  // by the original's load id
  std::vector<Leaving> leaving_;
  std::vector<std::unique_ptr<const Directions>> old_tables_;
  std::unordered_map<uint64_t, std::vector<LoadedObject>> being_destroyed_;  // by executable
  uint64_t tables_ = 0;
  bool held_ = false;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_BESIDE_LOADS_H_
