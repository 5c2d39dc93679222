// Admission: one code object and the attachments that want it, judged site by
// site. The daemon and rjctl's offline verbs both call this and nothing else.
#ifndef CONTRACT_ADMISSION_H_
#define CONTRACT_ADMISSION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/plan/rewriter.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Changes whenever the same input could give a different answer: part of every
// cache key.
inline constexpr char kEngineVersion[] = "18";
// The same with the LLVM that decodes and assembles: "18+llvm22".
const std::string& EngineVersion();

struct Policy {
  v1::Budget ceiling;           // an attachment's own budget cannot exceed these
  v1::Budget defaults;          // for fields that an attachment leaves unset
  bool allow_sabotage = false;  // first of the two opt-ins
  // For attachments that leave it unset.
  v1::Placement placement = v1::AUTO;
  // How much more often code inside a loop is assumed to run than around it: trip
  // counts are not known. 10 is what GCC assumes (its parameter avg-loop-niter).
  uint32_t loop_factor = 10;
  uint64_t max_code_object_bytes = uint64_t{256} << 20;
  // Work and memory grow with attachments x sites: those beyond, in the order of
  // their ids, are refused for the object as a whole (RJD-A009).
  uint32_t max_attachments_per_object = 64;
  // Of a load's ring of trace records (proto/rjdbi/telemetry_ring.h): bytes of each
  // half, a power of two.
  uint32_t ring_half_bytes = 1u << 20;
  // The image is to be loaded beside the loaded original, whose addresses its kernels
  // use: all of them are clones (decisions/0016). Where the daemon's default placement is
  // trampolines, it does not count; attachments that ask for them are refused (RJD-P004).
  bool beside = false;
};
Policy DefaultPolicy();

// Dispatches of the kernel whose descriptor is at one address can be directed to the
// other. Addresses are those of the code objects; loading adds each one's load delta.
struct KernelSwitch {
  std::string kernel;
  uint64_t original_descriptor = 0;  // in the original
  uint64_t descriptor = 0;           // in `patched`
  // Of the patched kernel's descriptor: what a dispatch must ask for at least, bytes.
  uint32_t private_segment_bytes = 0, group_segment_bytes = 0;
};

struct Admission {
  v1::AdmissionRecord record;
  std::vector<uint8_t> patched;          // empty: load the original
  std::vector<patch::WordFixup> fixups;  // file offsets in `patched`
  // Policy::beside: one for each kernel with an attached site, in the object's order.
  std::vector<KernelSwitch> switches;
  // Patched kernels; those that are clones with their map of program counters.
  std::vector<patch::KernelOutcome> kernels;
};

// Bytes that carry patches of this engine stand for their original: what is asked
// now replaces what they carry, and the record says what that was (prior_patch).
//
// Every requested site has a decision, attached or refused. An attachment that
// matches no kernel of the object (no error: another object may hold it), or
// whose object could not be worked on (or only for attachments before it), has one
// coverage row without a kernel.
//
// Never fails for what the bytes contain: an object that cannot be worked on
// gives a record with object_violations and coverage that says so. The
// attachments must already match the process; kernels are matched here.
//
// An attachment in MODE_DRYRUN is judged, together with all others, in an admission of
// its own: whatever it asks for, the bytes and the other attachments' decisions are
// those without it. See decisions/0014.
//
// `now` is for max_admission_time_ms.
using Clock = std::function<std::chrono::steady_clock::time_point()>;
Admission Admit(absl::Span<const uint8_t> object, const std::vector<v1::Attachment>& attachments,
                const Policy& policy, patch::Rewriter& rewriter,
                const Clock& now = std::chrono::steady_clock::now);

// Whether a spec can be accepted at all (selector parses, probe exists, opt-ins
// given, budgets within ceilings). Empty: yes.
std::vector<v1::Violation> CheckSpec(const v1::AttachmentSpec& spec, const Policy& policy);

}  // namespace rjdbi::contract

#endif  // CONTRACT_ADMISSION_H_
