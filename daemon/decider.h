// Answers questions about code objects: from the cache, from stored bytes, or
// by running the engine on bytes just received. Equal questions asked at the
// same time are worked on once.
#ifndef DAEMON_DECIDER_H_
#define DAEMON_DECIDER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/admission.h"
#include "daemon/blob_store.h"
#include "daemon/decision.h"
#include "daemon/last_admissions.h"
#include "daemon/worker_pool.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

using Bytes = std::shared_ptr<const std::string>;
using DecisionPtr = std::shared_ptr<const Decision>;

class Decider {
 public:
  struct Stats {
    uint64_t hits = 0, misses = 0;  // of decisions
  };
  // An answer, or nullptr: the bytes are needed. UNAVAILABLE: shutting down.
  using Callback = std::function<void(absl::StatusOr<DecisionPtr>)>;

  // `store` must outlive this.
  Decider(BlobStore& store, uint32_t threads);

  // Without the object's bytes. `done` runs in a thread of the pool.
  void Lookup(std::shared_ptr<const Question> question, const contract::Policy& policy,
              Callback done);
  // With the bytes, whose hash the caller has verified. Never nullptr.
  void Decide(std::shared_ptr<const Question> question, const contract::Policy& policy,
              Bytes object, Callback done);
  // Runs `job` with the lookups, away from the threads that serve RPCs.
  void RunAside(std::function<void(bool cancelled)> job) { lookups_.Submit(std::move(job)); }

  // Kernels of an object that has been seen, without their instruction-level
  // figures; nullptr: not known.
  std::shared_ptr<const v1::ListKernelsReply> KnownKernels(const std::string& sha256_hex);
  Bytes StoredObject(const std::string& sha256_hex);
  // What was decided last about each object, also before this daemon started, as far
  // as it is still in the cache: decisions (never nullptr) are read one by one, of the
  // objects (hex) that `wanted` takes.
  void ForEachLast(const std::function<bool(const std::string& sha256)>& wanted,
                   const std::function<void(const LastAdmissions::Entry&, DecisionPtr)>& take);
  Stats stats() const;
  // Running work ends; waiting work is answered UNAVAILABLE.
  void Stop();

 private:
  DecisionPtr FromCache(const std::string& key);
  // The decision that somebody still holds under this key, or now this one.
  DecisionPtr Share(const std::string& key, DecisionPtr decision);
  DecisionPtr Shared(const std::string& key);
  DecisionPtr WithoutBytes(const Question& question);
  void Compute(const std::string& key, std::shared_ptr<const Question> question,
               const contract::Policy& policy, Bytes object);
  void Answer(const std::string& key, const absl::StatusOr<DecisionPtr>& answer);
  // False: somebody else is on it, and `done` has joined them.
  bool Join(const std::string& key, Callback done);

  BlobStore& store_;
  LastAdmissions last_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<Callback>> in_progress_;
  // Decisions in use, of loads that are in place above all: one copy for all, that
  // needs no reading and verifying.
  std::unordered_map<std::string, std::weak_ptr<const Decision>> shared_;
  size_t sweep_at_ = 64;  // entries at which those of dead decisions go
  std::atomic<uint64_t> hits_{0}, misses_{0};
  // Last, so that their threads end before what they use.
  WorkerPool lookups_, workers_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_DECIDER_H_
