// What must live as long as an executable that holds patched code: the patched
// bytes (ROCR and debuggers keep pointing at them), the replacement reader, and
// the counters that running kernels add to.
#ifndef RJDBI_AGENT_PATCHED_LOADS_H_
#define RJDBI_AGENT_PATCHED_LOADS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "agent/counters.h"
#include "agent/load_ring.h"
#include "agent/types.h"

namespace rjdbi::agent {

struct PatchedLoad {
  uint64_t load_id = 0;
  OwnedBytes image;
  CounterBuffer counters;
  std::shared_ptr<LoadRing> ring;             // of `counters`, if it has one
  std::function<void()> destroy_replacement;  // ROCR's reader or code object over `image`

  uint64_t sequence = 0;
  std::vector<uint64_t> reported;  // values of the last snapshot
  uint64_t reported_records = 0;
  bool ever_reported = false;
};

using PatchedLoadList = std::vector<std::unique_ptr<PatchedLoad>>;

// Thread-safe. Counters are read under the lock, so that none is read after its
// executable was taken out.
class PatchedLoads {
 public:
  // Takes ownership only if it does not throw.
  void Add(uint64_t executable, std::unique_ptr<PatchedLoad>& load);
  // Takes an executable's loads out, before ROCR may reuse the handle.
  PatchedLoadList Take(uint64_t executable);
  // Puts them back when ROCR did not destroy the executable after all.
  void PutBack(uint64_t executable, PatchedLoadList loads);
  PatchedLoadList TakeAll();

  // Loads whose counters changed since the last call (all, the first time).
  std::vector<LoadCounters> SnapshotChanged();
  // The last call's values did not arrive: the next call returns everything.
  void ForgetReported();
  // While held (hsa_shut_down running) no counters and no rings are read.
  void HoldReads(bool hold);
  // Takes what the rings hold.
  void DrainRings();
  bool empty();

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, PatchedLoadList> loads_;
  bool hold_reads_ = false;
};

// The next report of one load.
LoadCounters Snapshot(PatchedLoad* load, bool final);
// The last one, when its memory can no longer be read: what was read before.
LoadCounters LastReported(PatchedLoad* load);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_PATCHED_LOADS_H_
