// The machine code of a probe, for the registers chosen.
//
// A counter is one 64-bit word in memory that the host reads, added to by one
// lane with a system-scope atomic without return, so nothing waits for it:
//
//   s_mov   save, exec          EXEC as it was, zero included
//   s_mov   address, literals   the agent fills them in
//   s_mov   exec, 1
//   v_mov   data, {1, 0}        count-lanes: the popcount of `save` instead of 1
//   global_atomic_add_x2        data's zero half doubles as the offset
//   s_mov   exec, save
//
// SCC, VCC (unless dead and chosen), M0, MODE and the wait counters' meaning
// are untouched.
#ifndef PATCH_REWRITE_PROBE_SEQUENCE_H_
#define PATCH_REWRITE_PROBE_SEQUENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/assembly_cache.h"
#include "patch/rewrite/register_choice.h"

namespace rjdbi::patch {

inline constexpr uint32_t kCounterBytes = 8;

// `registers`: counting probes only. INTERNAL: LLVM refused our text.
absl::StatusOr<SharedSequence> BuildSequence(const KernelAnalysis& kernel, Probe probe,
                                             uint32_t counter_index,
                                             const RegisterChoice& registers, AssemblyCache& cache);

// What assembled text depends on besides itself.
std::string AssemblyKey(const KernelAnalysis& kernel);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_PROBE_SEQUENCE_H_
