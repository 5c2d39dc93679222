// What is known of EXEC as a set of lanes, for liveness of vector registers: where
// it holds at least the lanes that the wavefront started with, whether it ever
// holds others, and which instructions can add lanes to it.
#ifndef PATCH_ANALYSIS_EXEC_MASKS_H_
#define PATCH_ANALYSIS_EXEC_MASKS_H_

#include <cstdint>
#include <vector>

#include "patch/analysis/control_flow.h"
#include "patch/isa/instruction_list.h"

namespace rjdbi::patch {

// True unless every lane that is active after the instruction was so before it.
bool MayActivateLanes(const Instruction& in);

// By instruction: EXEC holds every lane that it held at the kernel's entry when
// the instruction executes, on every path; and nothing in the kernel ever
// activates or writes another lane. A write of all active lanes there writes every lane that
// matters. All false where control flow is not known.
std::vector<bool> AllLanesActive(const InstructionList& instructions, const ControlFlow& flow,
                                 uint32_t wavefront_size);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_EXEC_MASKS_H_
