// How deep instructions lie in loops: all that code says of how often they run.
#ifndef PATCH_ANALYSIS_LOOPS_H_
#define PATCH_ANALYSIS_LOOPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

// By block, the number of natural loops that hold it. A loop is what lies on ways
// from a block back to itself, behind that block; of a loop with several ways in, what
// lies behind the one that is found first. Loops through control that no edge
// describes are not seen. Near-linear in blocks and edges.
std::vector<uint32_t> LoopDepths(absl::Span<const BasicBlock> blocks);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_LOOPS_H_
