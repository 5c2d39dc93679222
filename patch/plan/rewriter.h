// The rewriter as its callers see it: plan a probe at a site, then emit an image
// with every plan that was admitted. contract/ judges plans through this
// interface without seeing patch/rewrite, so that it can catch its mistakes.
#ifndef PATCH_PLAN_REWRITER_H_
#define PATCH_PLAN_REWRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/codeobject/code_object.h"
#include "patch/plan/reason.h"
#include "patch/plan/record.h"
#include "patch/plan/shared_code.h"
#include "patch/probe/user_probe.h"

namespace rjdbi::patch {

enum class Probe : uint8_t {
  kNop,
  kCountWaves,
  kCountLanes,
  kSabotage,
  kTraceExec,
  kTraceAddress,
  kClock,
  kValue,
  kUser,
};

// Their counter counts the records that found no place.
constexpr bool WritesRecords(Probe probe) {
  return probe == Probe::kTraceExec || probe == Probe::kTraceAddress || probe == Probe::kClock ||
         probe == Probe::kValue;
}

// How a kernel comes to run probes. All plans of one kernel agree.
enum class Placement : uint8_t {
  kTrampoline,  // the site's instruction becomes a branch to new code, and back
  kClone,       // the kernel is written anew with the probes in line
};

struct ProbeRequest {
  Probe probe = Probe::kNop;
  uint32_t counter_index = 0;  // 64-bit slot in the counter buffer (counting and record probes)
  uint32_t max_sgpr_delta = 0;
  uint32_t max_vgpr_delta = 0;
  Position position = Position::kBefore;
  Placement placement = Placement::kTrampoline;
  // Record probes (proto/rjdbi/telemetry_ring.h).
  uint32_t record_site = 0;         // of the load's sites that write records
  uint64_t ring_offset = 0;         // bytes from the first counter to the ring's header
  uint32_t ring_half_bytes = 0;     // a power of two
  RegisterRange value_register;     // kValue
  WorkgroupIds workgroup_ids;       // kTraceExec: where the kernel's EntryPlan keeps them
  RegisterSet reserved;             // no temporaries: they hold something for other probes
  const UserProbe* user = nullptr;  // kUser; its words are counter_index and those behind
};

// One probe at one site, ready to be judged and emitted.
struct SitePlan {
  uint32_t instruction = 0;  // index in the kernel's analysis
  size_t kernel_index = 0;
  Probe probe = Probe::kNop;
  Position position = Position::kBefore;
  Placement placement = Placement::kTrampoline;
  SharedCode sequence;          // the injected code, guards, saves and restores included;
                                // not the displaced instruction nor the jumps
  SharedFixups fixups;          // offsets into `sequence`
  SharedSet temporaries;        // registers used that hold nothing the application needs
  SharedSet grown;              // subset of temporaries beyond the kernel's allocation
  uint32_t required_sgprs = 0;  // kernel's ordinary SGPRs (highest used + 1) after this plan
  uint32_t required_vgprs = 0;
  int32_t sgpr_delta = 0;  // growth of the allocation
  int32_t vgpr_delta = 0;
  uint32_t injected_instructions = 0;  // executed per event: sequence plus jumps
  uint32_t telemetry_bytes_per_event = 0;
  bool drains_waits = false;  // a declared degradation
  // Index of the s_clause that becomes s_nop 0 because the site lies in its run
  // (or is it); a declared degradation.
  std::optional<uint32_t> broken_clause;
  SharedOptional<RecordLayout> record;  // record probes: how to read what they write
};

// Code at a kernel's beginning that keeps what is in registers only there.
struct EntryPlan {
  SitePlan plan;  // at instruction 0, before it: goes first of all plans there
  WorkgroupIds workgroup_ids;
  RegisterSet kept;  // for ProbeRequest::reserved of all other plans of the kernel
};

struct EmittedSite {
  size_t plan = 0;                  // index into the plans given
  SharedOptional<Refusal> refusal;  // placement failed; others are unaffected
  // Where its sequence lies: in a clone, of the first sequence at this
  // instruction and position; else of the trampoline around the instruction.
  uint64_t trampoline_vaddr = 0;
  uint64_t sequence_vaddr = 0;  // of this plan's own sequence, wherever it lies
};

// An instruction's offset in the kernel, and in the code that runs instead.
struct PcMapEntry {
  uint32_t original = 0, emitted = 0;
};

// A site's new code, with what it stands for.
struct Trampoline {
  uint32_t original = 0;      // kernel offset of the instruction that became a branch
  uint64_t anchor_vaddr = 0;  // of that branch: in the original code, or in the kernel's copy
  uint64_t vaddr = 0;
  uint32_t size = 0;  // bytes, the branches out included
  // Where the displaced instruction is executed now, and its size there: a direct
  // branch is a word of its own kind, an s_clause an s_nop.
  uint64_t displaced_vaddr = 0;
  uint32_t displaced_size = 0;
};

// What became of a kernel with plans.
struct KernelOutcome {
  size_t kernel_index = 0;
  Placement placement = Placement::kTrampoline;
  uint64_t code_bytes = 0;  // of the new segment, without padding between kernels
  // Planned as a clone and not possible as one: all its sites are refused with
  // this, and can be planned anew as trampolines.
  std::optional<Refusal> not_cloned;
  uint64_t clone_vaddr = 0;  // clones: 256-byte aligned
  // Clones: each original instruction exactly once, ascending in both columns.
  // What lies between is injected.
  std::vector<PcMapEntry> pcs;
  std::vector<Trampoline> trampolines;  // by original offset
  uint64_t copy_vaddr = 0;  // trampolines around a copy of the whole kernel, which is here
};

struct RewriteResult {
  std::vector<uint8_t> image;     // empty when no plan could be placed
  std::vector<WordFixup> fixups;  // offsets into the file
  std::vector<EmittedSite> sites;
  std::vector<KernelOutcome> kernels;  // those with plans, by kernel_index
  int64_t code_growth = 0;             // bytes
};

class Rewriter {
 public:
  virtual ~Rewriter() = default;
  // What plans are made by: the engine's own view of a kernel, see KernelAnalysis::Create.
  // Who judges the plans does not rest on it.
  virtual absl::StatusOr<std::unique_ptr<KernelAnalysis>> Analyse(const CodeObject& object,
                                                                  size_t kernel_index, Isa& isa,
                                                                  ObjectFacts* facts) {
    return KernelAnalysis::Create(object, kernel_index, isa, facts);
  }
  // Plans; changes nothing.
  virtual std::variant<SitePlan, Refusal> Plan(const KernelAnalysis& kernel, uint32_t instruction,
                                               const ProbeRequest& request) = 0;
  // Plans what keeps the workgroup's id for record probes. Of `request` the limits and
  // the placement count.
  virtual std::variant<EntryPlan, Refusal> PlanEntry(const KernelAnalysis&, const ProbeRequest&) {
    return Refusal{Reason::kWorkgroupIdLost, "", "", "this rewriter keeps nothing"};
  }
  // Several plans may share a site: they run in the given order, those before
  // the instruction and those after it. `kernels` holds
  // an analysis for every kernel_index that a plan names. Deterministic.
  // `beside`: the image is to be loaded beside the loaded original; its clones use the
  // original's addresses, by fixups of base kOriginal. Then all plans are for clones.
  // INTERNAL only for a bug; a site that cannot be placed is a refusal.
  virtual absl::StatusOr<RewriteResult> Emit(const CodeObject& object,
                                             const std::vector<const KernelAnalysis*>& kernels,
                                             const std::vector<SitePlan>& plans,
                                             bool beside = false) = 0;
};

}  // namespace rjdbi::patch

#endif  // PATCH_PLAN_REWRITER_H_
