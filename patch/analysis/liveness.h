// Backward liveness on the wave-level control flow graph.
//
// A scalar register is killed by a full write. A vector register never is: a
// write under EXEC leaves the inactive lanes' values, which may be live on the
// other side of a divergence that the wave-level graph does not show.
#ifndef PATCH_ANALYSIS_LIVENESS_H_
#define PATCH_ANALYSIS_LIVENESS_H_

#include <cstdint>
#include <vector>

#include "patch/analysis/control_flow.h"
#include "patch/isa/instruction_list.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

class Liveness {
 public:
  // `everything`: what is live where control is unknown (calls, exits).
  // `always`: live at every point (registers reached through an index). The
  // instructions and the flow must outlive this.
  Liveness(const InstructionList& instructions, const ControlFlow& flow, uint32_t wavefront_size,
           const RegisterSet& everything, const RegisterSet& always);

  // Sets before each instruction of a block, in order, and after the last.
  std::vector<RegisterSet> ForBlock(uint32_t block) const;

 private:
  void Step(const Instruction& in, RegisterSet& live) const;
  RegisterSet Kills(const Instruction& in) const;
  RegisterSet LiveOut(uint32_t block) const;

  const InstructionList& instructions_;
  const ControlFlow& flow_;
  uint32_t wavefront_size_;
  RegisterSet everything_, always_, killable_;
  std::vector<RegisterSet> live_in_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_LIVENESS_H_
