// Forward worklist over blocks, one set per wait counter.
#include "patch/analysis/pending.h"

#include <cstring>

namespace rjdbi::patch {
namespace {

RegisterSet AllRegisters() {
  RegisterSet set;
  set.Add(0, kNumRegisters);
  return set;
}

// Registers that a late result can land in (not EXEC, SCC, MODE).
RegisterSet LateResults(const Instruction& in) {
  RegisterSet set = in.defs | in.partial_defs;
  set.Remove(kExecLo, 2);
  set.Remove(kScc);
  set.Remove(kMode);
  return set;
}

}  // namespace

Pending::Pending(const std::vector<Instruction>& instructions, absl::Span<const uint8_t> code,
                 const ControlFlow& flow, const Generation& generation,
                 const RegisterSet& everything)
    : instructions_(instructions),
      code_(code),
      flow_(flow),
      generation_(generation),
      everything_(everything),
      all_(AllRegisters()) {
  const size_t n = flow_.blocks.size();
  in_.assign(n, State());
  if (flow_.has_indirect_branch) {
    for (State& state : in_) state.fill(everything_);
    return;  // any instruction may be entered from anywhere; see ForBlock
  }
  std::vector<Effect> effects;
  effects.reserve(n);
  for (const BasicBlock& block : flow_.blocks) effects.push_back(Summarise(block));
  std::vector<bool> queued(n, true);
  std::vector<uint32_t> work;
  for (uint32_t b = static_cast<uint32_t>(n); b-- > 0;) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    queued[b] = false;
    State out;
    for (size_t c = 0; c < out.size(); ++c) {
      out[c] = effects[b].gen[c] | (in_[b][c] - effects[b].kill[c]);
    }
    for (uint32_t s : flow_.blocks[b].successors) {
      bool changed = false;
      for (size_t c = 0; c < out.size(); ++c) {
        const RegisterSet merged = in_[s][c] | out[c];
        changed |= !(merged == in_[s][c]);
        in_[s][c] = merged;
      }
      if (changed && !queued[s]) {
        work.push_back(s);
        queued[s] = true;
      }
    }
  }
}

uint32_t Pending::WordOf(const Instruction& in) const {
  uint32_t word = 0;
  std::memcpy(&word, code_.data() + in.offset, sizeof(word));
  return word;
}

void Pending::Step(const Instruction& in, State& state) const {
  if (in.call) {
    for (RegisterSet& set : state) set |= everything_;
    return;
  }
  if (in.mfma) {
    state[kMatrix] |= in.defs | in.partial_defs;
  } else if (in.valu || in.memory != MemoryKind::kNone) {
    state[kMatrix] -= in.uses | in.defs | in.partial_defs;
  }
  if (const uint8_t cleared = CountersCleared(in, WordOf(in), generation_)) {
    for (unsigned c = 0; c < kNumWaitCounters; ++c) {
      if (cleared & (1u << c)) state[c] = RegisterSet();
    }
  }
  if (const uint8_t raised = CountersRaised(in, generation_)) {
    const RegisterSet results = LateResults(in);
    for (unsigned c = 0; c < kNumWaitCounters; ++c) {
      if (raised & (1u << c)) state[c] |= results;
    }
  }
}

Pending::Effect Pending::Summarise(const BasicBlock& block) const {
  // Run the block from nothing and from everything: what is missing at the end
  // of the second run was killed.
  Effect effect;
  State full;
  full.fill(all_);
  for (uint32_t i = block.first; i <= block.last; ++i) {
    Step(instructions_[i], effect.gen);
    Step(instructions_[i], full);
  }
  for (size_t c = 0; c < full.size(); ++c) effect.kill[c] = all_ - full[c];
  return effect;
}

std::vector<RegisterSet> Pending::ForBlock(uint32_t block) const {
  const BasicBlock& b = flow_.blocks[block];
  std::vector<RegisterSet> result(b.last - b.first + 2);
  State state = in_[block];
  for (uint32_t i = b.first;; ++i) {
    RegisterSet& set = result[i - b.first];
    for (const RegisterSet& counter : state) set |= counter;
    if (flow_.has_indirect_branch) set |= everything_;
    if (i > b.last) return result;
    Step(instructions_[i], state);
  }
}

}  // namespace rjdbi::patch
