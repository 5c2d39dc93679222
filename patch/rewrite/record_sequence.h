// The machine code of the probes that write trace records: the ring's protocol
// (proto/rjdbi/telemetry_ring.h) for the registers chosen.
//
//   s_mov     save, exec
//   s_mov     exec, 1
//   s_mov     address, literals          the ring
//   v_mov     data, {size, 0}
//   global_atomic_add_x2 ticket, ...     returns: waits for it, and so for all before
//   v_cmpx_ge limit, ticket              EXEC becomes 0 if the half is full
//   s_cbranch_execnz fits
//   exec = 1, +1 to the counter of lost records, to the end
// fits:
//   v_lshl_add, v_and                    the record's place
//   payload, of lanes under the application's EXEC, uniform words from lane 0
//   wait for the payload's stores
//   v_mov     EXEC, descriptor; one store of 16 bytes with the ticket
// end:
//   s_mov     exec, save
//
// SCC, VCC (unless dead and chosen), M0 and MODE are untouched.
#ifndef PATCH_REWRITE_RECORD_SEQUENCE_H_
#define PATCH_REWRITE_RECORD_SEQUENCE_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/assembly_cache.h"
#include "patch/rewrite/register_choice.h"

namespace rjdbi::patch {

// A word of bytes 16 to 31 of a record.
struct RecordWord {
  enum class Kind : uint8_t {
    kZero,
    kNumber,
    kScalar,
    kSavedExec,
    kSample,
    kSampleHigh,  // of a clock whose high half was read before (1) and behind (2) the low (0)
    kLowHalf,     // of kScalar's register
    kHighHalf,
    kWave,
    kScc,
  };
  Kind kind = Kind::kZero;
  uint32_t number = 0;  // kNumber; kSample, kSavedExec: which word of it
  uint16_t scalar = 0;  // kScalar: Register
};

// What a probe writes at a site.
struct RecordContent {
  RecordLayout layout;
  std::vector<RecordWord> words;  // at most 4; missing ones stay 0
  RegisterRange lanes;            // vector registers that each lane writes; none: count 0
  // The site's own instruction reads them: the application keeps the distance from
  // whatever wrote them.
  bool lanes_settled = false;
  // Run first; %0, %1, ... are the sample's registers, %p its first pair.
  std::vector<std::string> sample;
  RecordNeeds needs;
};

// What the probe would record there, or why it cannot.
std::variant<RecordContent, Refusal> ContentOf(const KernelAnalysis& kernel, uint32_t instruction,
                                               const ProbeRequest& request);

// Registers that hold the workgroup's id when the kernel starts, as its descriptor
// says.
WorkgroupIds WorkgroupIdsAtEntry(const KernelAnalysis& kernel);

// INTERNAL: LLVM refused our text.
absl::StatusOr<ProbeSequence> BuildRecordSequence(const KernelAnalysis& kernel,
                                                  const ProbeRequest& request,
                                                  const RecordContent& content,
                                                  const RegisterChoice& registers,
                                                  AssemblyCache& cache);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_RECORD_SEQUENCE_H_
