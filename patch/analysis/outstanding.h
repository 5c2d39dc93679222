// Forward may-analysis: how many operations each wait counter may have
// outstanding. For people and tools; no decision depends on it.
#ifndef PATCH_ANALYSIS_OUTSTANDING_H_
#define PATCH_ANALYSIS_OUTSTANDING_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "patch/analysis/control_flow.h"
#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

class Outstanding {
 public:
  // In the order of patch::Counter.
  enum Counter : uint8_t { kLoad, kDs, kKm, kSample, kBvh, kStore, kExport, kCounters };
  static_assert(kCounters == kNumCounters);
  static constexpr uint8_t kUnbounded = 64;  // no counter holds more
  using Counts = std::array<uint8_t, kCounters>;

  explicit Outstanding(const KernelAnalysis& kernel);

  // Cheap in the order of instructions: a block's counts are kept.
  Counts At(uint32_t i, Position position) const;

  // The counter's name on the generation; empty: it has none of its own there.
  static std::string_view Name(Counter counter, const Generation& generation);

 private:
  void Step(const Instruction& in, Counts& counts) const;

  const KernelAnalysis& kernel_;
  const ControlFlow& flow_;
  std::vector<Counts> in_;              // by block
  mutable uint32_t kept_ = UINT32_MAX;  // block
  mutable std::vector<Counts> counts_;  // before its instructions, and after the last
};

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_OUTSTANDING_H_
