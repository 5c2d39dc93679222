// Instructions that every wavefront executes equally often: one counter tells
// the count of each.
#ifndef PATCH_ANALYSIS_EQUAL_COUNTS_H_
#define PATCH_ANALYSIS_EQUAL_COUNTS_H_

#include <cstdint>
#include <vector>

#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

// By instruction, the number of its region; ascending, dense. A region is a basic
// block, cut behind calls (the callee may end the program) and where another
// kernel begins. Where control is not fully known (an indirect branch may land
// anywhere; s_setvskip makes the hardware skip instructions) each instruction is
// a region of its own. Wavefronts are counted, not lanes: EXEC may change within
// a region.
std::vector<uint32_t> EqualCountRegions(const KernelAnalysis& kernel);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_EQUAL_COUNTS_H_
