// Forward may-analysis: registers that an operation in flight may still write.
#ifndef PATCH_ANALYSIS_PENDING_H_
#define PATCH_ANALYSIS_PENDING_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "patch/analysis/control_flow.h"
#include "patch/analysis/wait_counters.h"
#include "patch/isa/instruction_list.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

class Pending {
 public:
  // `everything`: what may be in flight after a call, and anywhere when the
  // kernel has indirect branches. References must outlive this.
  Pending(const InstructionList& instructions, absl::Span<const uint8_t> code,
          const ControlFlow& flow, const Generation& generation, const RegisterSet& everything);

  // Sets before each instruction of a block, in order, and after the last.
  std::vector<RegisterSet> ForBlock(uint32_t block) const;

 private:
  // One set per counter; the last is for matrix results, which no counter
  // covers: they have landed once an ordinary instruction touches them.
  static constexpr unsigned kMatrix = kNumWaitCounters;
  using State = std::array<RegisterSet, kNumWaitCounters + 1>;
  struct Effect {  // out = gen | (in - kill), per set
    State gen, kill;
  };

  // What an instruction does to the counters: bit c for counter c.
  struct Counting {
    uint8_t raised = 0, cleared = 0;
  };

  void Count();
  void Step(uint32_t i, State& state) const;
  Effect Summarise(const BasicBlock& block) const;
  uint32_t WordOf(uint32_t i) const;

  const InstructionList& instructions_;
  absl::Span<const uint8_t> code_;
  const ControlFlow& flow_;
  const Generation& generation_;
  RegisterSet everything_, all_;
  std::vector<Counting> counting_;  // by instruction
  // Sets that can hold anything at all; the others stay empty everywhere.
  std::vector<uint8_t> used_;
  bool matrix_ = false;  // kMatrix is among them
  std::vector<State> in_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_PENDING_H_
