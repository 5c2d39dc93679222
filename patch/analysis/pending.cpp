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

// Late results land anywhere but in EXEC, SCC and MODE.
RegisterSet WithoutPrompt(RegisterSet set) {
  set.Remove(kExecLo, 2);
  set.Remove(kScc);
  set.Remove(kMode);
  return set;
}

RegisterSet LateResults(const Instruction& in) { return WithoutPrompt(in.defs | in.partial_defs); }

}  // namespace

Pending::Pending(const InstructionList& instructions, absl::Span<const uint8_t> code,
                 const ControlFlow& flow, const Generation& generation,
                 const RegisterSet& everything)
    : instructions_(instructions),
      code_(code),
      flow_(flow),
      generation_(generation),
      everything_(WithoutPrompt(everything)),
      all_(AllRegisters()) {
  Count();
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
    for (size_t c : used_) {
      out[c] = effects[b].gen[c] | (in_[b][c] - effects[b].kill[c]);
    }
    for (uint32_t s : flow_.blocks[b].successors) {
      bool changed = false;
      for (size_t c : used_) {
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

uint32_t Pending::WordOf(uint32_t i) const {
  uint32_t word = 0;
  std::memcpy(&word, code_.data() + instructions_.OffsetOf(i), sizeof(word));
  return word;
}

void Pending::Count() {
  counting_.resize(instructions_.size());
  uint8_t raised = 0;
  bool calls = flow_.has_indirect_branch;
  for (uint32_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& in = instructions_.Shared(i);
    counting_[i].raised = CountersRaised(in, generation_);
    if (in.waitcnt) counting_[i].cleared = CountersCleared(in, WordOf(i), generation_);
    raised |= counting_[i].raised;
    calls |= in.call;
    matrix_ |= in.mfma;
  }
  matrix_ |= calls;
  for (uint8_t c = 0; c < kNumWaitCounters; ++c) {
    if (calls || (raised & (1u << c))) used_.push_back(c);
  }
  if (matrix_) used_.push_back(kMatrix);
}

void Pending::Step(uint32_t i, State& state) const {
  const Instruction& in = instructions_.Shared(i);
  if (in.call) {
    for (RegisterSet& set : state) set |= everything_;
    return;
  }
  if (in.mfma) {
    state[kMatrix] |= in.defs | in.partial_defs;
  } else if (matrix_ && (in.valu || in.memory != MemoryKind::kNone)) {
    state[kMatrix] -= in.uses | in.defs | in.partial_defs;
  }
  const Counting counting = counting_[i];
  if (counting.cleared != 0) {
    for (unsigned c = 0; c < kNumWaitCounters; ++c) {
      if (counting.cleared & (1u << c)) state[c] = RegisterSet();
    }
  }
  if (counting.raised != 0) {
    const RegisterSet results = LateResults(in);
    for (unsigned c = 0; c < kNumWaitCounters; ++c) {
      if (counting.raised & (1u << c)) state[c] |= results;
    }
  }
}

// A set is killed where a wait clears it: whatever came in, what it holds at the
// end is then what came after. Matrix results go one by one, so there the block
// is also run from everything, and what is missing at the end was killed.
Pending::Effect Pending::Summarise(const BasicBlock& block) const {
  Effect effect;
  State full;
  if (matrix_) full.fill(all_);
  uint8_t cleared = 0;
  for (uint32_t i = block.first; i <= block.last; ++i) {
    Step(i, effect.gen);
    if (matrix_) Step(i, full);
    if (!instructions_.Shared(i).call) cleared |= counting_[i].cleared;
  }
  for (unsigned c = 0; c < kNumWaitCounters; ++c) {
    if (cleared & (1u << c)) effect.kill[c] = all_ - effect.gen[c];
  }
  if (matrix_) effect.kill[kMatrix] = all_ - full[kMatrix];
  return effect;
}

std::vector<RegisterSet> Pending::ForBlock(uint32_t block) const {
  const BasicBlock& b = flow_.blocks[block];
  std::vector<RegisterSet> result(b.last - b.first + 2);
  State state = in_[block];
  bool changed = true;
  for (uint32_t i = b.first;; ++i) {
    RegisterSet& set = result[i - b.first];
    if (changed) {
      for (uint8_t c : used_) set |= state[c];
      if (flow_.has_indirect_branch) set |= everything_;
    } else {
      set = result[i - b.first - 1];
    }
    if (i > b.last) return result;
    Step(i, state);
    changed = matrix_ || counting_[i].raised != 0 || counting_[i].cleared != 0;
  }
}

}  // namespace rjdbi::patch
