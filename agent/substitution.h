// What happens between the host's load call and ROCR's: identify the object,
// ask the daemon, and prepare what to load in its place. None of this can make
// the host's call fail: whatever goes wrong leaves the original and a gap.
#ifndef RJDBI_AGENT_SUBSTITUTION_H_
#define RJDBI_AGENT_SUBSTITUTION_H_

#include <memory>
#include <string>

#include "agent/hsa_api.h"
#include "agent/patched_loads.h"
#include "agent/runtime.h"

namespace rjdbi::agent {

// One load of one object, as the host asked for it.
struct LoadRequest {
  CodeObject object;
  bool known = false;  // false: the agent never saw this handle being made
  hsa_agent_t agent{};
};

// A patched image ready to be loaded: fixups filled in, counters allocated.
struct Substitute {
  std::unique_ptr<PatchedLoad> load;
  Gap identity;  // digest, size, origin and load id, for a gap if ROCR refuses it
};

// Null: load the original. Never throws.
std::unique_ptr<Substitute> PrepareSubstitute(Runtime& runtime, const HelperCalls& hsa,
                                              const LoadRequest& request) noexcept;

// ROCR took the patched image into `executable`.
void CommitSubstitute(Runtime& runtime, hsa_executable_t executable,
                      std::unique_ptr<Substitute> substitute) noexcept;

// ROCR refused it (or refused a reader for it): frees it and records the gap.
void RejectSubstitute(Runtime& runtime, std::unique_ptr<Substitute> substitute, const char* step,
                      hsa_status_t status) noexcept;

// Around the destruction of an executable and the end of the runtime.
void FinishLoads(Runtime& runtime, PatchedLoadList loads, bool runtime_is_up) noexcept;

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_SUBSTITUTION_H_
