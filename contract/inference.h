// What a probe sequence does, read from its machine code.
//
// A small abstract interpretation over straight-line code with forward branches.
// Every 32-bit register holds one of: the original value of a register, a
// constant, half of a telemetry address (a fixup), a number below a bound, a saved
// SCC, or something unknown; EXEC also a subset of known lanes. That is enough to
// prove the idioms by which a careful sequence saves and restores state and finds
// its place in the ring; whatever is not proven counts as the worst case.
//
// The registers that the application still needs are the caller's, and an assumption:
// what the result owes to it is said, to be proven apart (dead.h). The plan's own claims
// are not consulted, except for its fixups: those are what the agent will really write.
#ifndef CONTRACT_INFERENCE_H_
#define CONTRACT_INFERENCE_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "contract/manifest.h"
#include "patch/isa/isa.h"
#include "patch/isa/register_set.h"
#include "patch/plan/rewriter.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

struct InferenceInput {
  absl::Span<const uint8_t> sequence;
  absl::Span<const patch::WordFixup> fixups;  // offsets into `sequence`
  patch::RegisterSet live;                    // where the sequence starts; an assumption
  // Targets of loads that may be in flight there: an early word, waitcheck.h has the last.
  patch::RegisterSet pending;
  // Of those, what the site's own instruction reads: it has arrived.
  patch::RegisterSet arrived;
  // The part of the counter buffer that the probe may touch: bytes from its start.
  uint64_t telemetry_begin = 0, telemetry_end = 0;
  // The ring that it may write records to (proto/rjdbi/telemetry_ring.h): where its
  // header is, bytes from the buffer's start; half_bytes 0: none.
  uint64_t ring_begin = 0;
  uint32_t ring_half_bytes = 0;
  // What each execution has to add to the 64-bit counter at telemetry_begin, once, on
  // every path; kNothing: whatever the bounds allow.
  enum class Counts : uint8_t { kNothing, kWaves, kLanes } counts = Counts::kNothing;
};

// One thing that the sequence does, and where: the witness of a claim.
struct Observation {
  enum class Kind : uint8_t {
    kMemory,        // value: v1::MemoryRegion
    kControl,       // value: v1::ControlTransfer
    kSync,          // value: v1::Synchronisation
    kMask,          // value: v1::MaskPolicy
    kRead,          // name: "SCC"
    kStateChanged,  // name: register, or "PROGRAM"
    kUnproven,      // name: what is not known
    kForbidden,     // name: what it is
    kFixupPlace,
    kLoadInFlight,  // name: register
  };
  Kind kind = Kind::kUnproven;
  int value = 0;
  std::string name;
  std::string detail;       // "offset 16, counter is bytes 8 to 16"
  uint32_t offset = 0;      // bytes into the sequence
  std::string instruction;  // disassembly
};

struct Inference {
  v1::InferredEffects effects;
  std::vector<Observation> observations;  // in program order
  // Not in `live`, and so taken for dead: what the sequence changes of it, or reads, is
  // held against nobody.
  patch::RegisterSet assumed_dead;
  // Not in `pending`, and touched before all was waited for.
  patch::RegisterSet assumed_landed;
  // Not the same for another counter with the same sequence.
  bool depends_on_counter = false;
  // From a memo: no other inference that it has made has this number.
  uint64_t serial = 0;
};

Inference InferEffects(const InferenceInput& input, patch::Isa& isa);

// InferEffects, once for inputs that cannot differ in the result: the same bytes
// with the same facts about the registers that they name. Isas must outlive it.
class InferenceMemo {
 public:
  // Valid until the next call.
  const Inference& Infer(const InferenceInput& input, patch::Isa& isa);

 private:
  Inference Make(const InferenceInput& input, patch::Isa& isa);

  static constexpr size_t kMost = 4096;
  std::unordered_map<std::string, patch::RegisterSet> named_;  // by Isa and bytes
  std::unordered_map<std::string, Inference> known_;
  std::string key_;
  Inference last_;
  uint64_t made_ = 0;
};

// Everything inferred that the manifest does not declare. `site` is the place in
// the kernel; the violations' locations name the probe's instruction and the
// manifest's line. Empty: the sequence keeps its promise.
std::vector<v1::Violation> CheckManifest(const Inference& inference, const Manifest& manifest,
                                         const v1::Location& site);

// Lower-case spelling of the contract's enum values: "private telemetry".
std::string RegionName(v1::MemoryRegion region);
std::string ControlName(v1::ControlTransfer control);
std::string SyncName(v1::Synchronisation sync);
std::string MaskName(v1::MaskPolicy policy);

}  // namespace rjdbi::contract

#endif  // CONTRACT_INFERENCE_H_
