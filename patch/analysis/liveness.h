// Backward liveness on the wave-level control flow graph.
//
// A scalar register is killed by a full write. A vector register is written in
// the active lanes alone, and the other lanes' values may be live on the far side
// of a divergence that the wave-level graph does not show. So two things are kept
// of a live vector register: that it is read before it is written anew, and
// whether that may be in lanes that are not active here. A write of all active
// lanes ends the first kind; the second only where all lanes are active.
// See docs/decisions/0011.
#ifndef PATCH_ANALYSIS_LIVENESS_H_
#define PATCH_ANALYSIS_LIVENESS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
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
  struct State {
    RegisterSet live;
    RegisterSet elsewhere;  // of them, vector ones that other lanes may read
    friend bool operator==(const State&, const State&) = default;
  };
  // A block takes each register by itself: what becomes of it if at the end it is
  // dead, live in active lanes, live in any.
  struct Effect {
    State dead, active, any;
  };

  void Step(uint32_t i, absl::Span<State> states) const;
  State LiveOut(uint32_t block) const;
  RegisterSet Kills(const Instruction& in) const;

  const InstructionList& instructions_;
  const ControlFlow& flow_;
  uint32_t wavefront_size_;
  RegisterSet everything_, always_, scalars_, vectors_;
  std::vector<bool> all_lanes_;  // by instruction
  std::vector<State> in_;        // by block
};

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_LIVENESS_H_
