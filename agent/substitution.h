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

// What a fault of the conversation is called in a gap; kNone: it is none.
GapKind GapKindOf(const Fault& fault);
void RecordGap(Runtime& runtime, Gap gap, GapKind kind, std::string detail);

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

// A patched image with its counters and ring, and the fixups filled in. Null: a gap has
// been recorded. `original_delta`: see ApplyFixups. May throw std::bad_alloc.
std::unique_ptr<PatchedLoad> BuildLoad(Runtime& runtime, const HelperCalls& hsa, hsa_agent_t agent,
                                       Decision decision, uint64_t original_delta,
                                       const Gap& identity);

struct PreparedLoad {
  std::unique_ptr<Substitute> substitute;  // null: load the original
  std::unique_ptr<LoadedObject> object;    // what the host asked for; null: not known
};

// Never throws.
PreparedLoad PrepareLoad(Runtime& runtime, const HelperCalls& hsa,
                         const LoadRequest& request) noexcept;

// ROCR has loaded the object or its substitute. `loaded` as in FindPlace.
void NoteLoaded(Runtime& runtime, hsa_executable_t executable, hsa_loaded_code_object_t loaded,
                std::unique_ptr<LoadedObject> object) noexcept;

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
