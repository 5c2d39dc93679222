// Worklist over blocks; per-instruction sets are made on demand.
#include "patch/analysis/liveness.h"

#include <array>

#include "patch/analysis/exec_masks.h"

namespace rjdbi::patch {
namespace {

RegisterSet Range(uint16_t first, unsigned count) {
  RegisterSet set;
  set.Add(first, count);
  return set;
}

}  // namespace

Liveness::Liveness(const InstructionList& instructions, const ControlFlow& flow,
                   uint32_t wavefront_size, const RegisterSet& everything,
                   const RegisterSet& always)
    : instructions_(instructions),
      flow_(flow),
      wavefront_size_(wavefront_size),
      everything_(everything),
      always_(always),
      scalars_(Range(kSgpr0, kVgpr0 - kSgpr0)),
      vectors_(Range(kVgpr0, kNumRegisters - kVgpr0)),
      all_lanes_(AllLanesActive(instructions, flow, wavefront_size)) {
  const size_t n = flow_.blocks.size();
  const RegisterSet all = scalars_ | vectors_;
  std::vector<Effect> effects(n);
  for (uint32_t b = 0; b < n; ++b) {
    std::array<State, 3> states = {State(), State{all, {}}, State{all, vectors_}};
    for (uint32_t i = flow_.blocks[b].last + 1; i-- > flow_.blocks[b].first;) {
      Step(i, absl::MakeSpan(states));
    }
    effects[b] = {states[0], states[1], states[2]};
  }
  in_.assign(n, State());
  std::vector<bool> queued(n, true);
  std::vector<uint32_t> work;
  for (uint32_t b = 0; b < n; ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    queued[b] = false;
    const State out = LiveOut(b);
    const Effect& e = effects[b];
    State in = e.dead;
    in.live |= (e.active.live & out.live) | (e.any.live & out.elsewhere);
    in.elsewhere |= (e.active.elsewhere & out.live) | (e.any.elsewhere & out.elsewhere);
    if (in == in_[b]) continue;
    in_[b] = in;
    for (uint32_t p : flow_.blocks[b].predecessors) {
      if (!queued[p]) work.push_back(p);
      queued[p] = true;
    }
  }
}

Liveness::State Liveness::LiveOut(uint32_t block) const {
  State out;
  if (flow_.exits[block] == Exit::kUnknown) out = {everything_, everything_ & vectors_};
  for (uint32_t s : flow_.blocks[block].successors) {
    out.live |= in_[s].live;
    out.elsewhere |= in_[s].elsewhere;
  }
  return out;
}

// Scalar registers.
RegisterSet Liveness::Kills(const Instruction& in) const {
  RegisterSet kills = in.defs;
  kills -= in.partial_defs;
  kills &= scalars_;
  // In wave32 the decoder still names VCC as a pair; a vector instruction
  // writes only its low half, and compilers keep data in the other.
  if (wavefront_size_ == 32 && !in.salu && in.memory != MemoryKind::kScalar) kills.Remove(kVccHi);
  return kills;
}

// Several states at once: what the instruction is costs more than what it does.
void Liveness::Step(uint32_t i, absl::Span<State> states) const {
  const Instruction& in = instructions_.Shared(i);
  if (in.call) {
    for (State& state : states) state = {everything_, everything_ & vectors_};
    return;
  }
  const bool activates = MayActivateLanes(in);
  const RegisterSet kills = Kills(in), written = in.defs & vectors_, read = in.uses & vectors_;
  for (State& state : states) {
    // Lanes that it activates are not active in front of it.
    if (activates) state.elsewhere = state.live & vectors_;
    state.live -= kills;
    if (in.writes_whole && all_lanes_[i]) {
      state.elsewhere -= written;
      state.live -= written;
    } else if (in.writes_whole) {
      state.live -= written - state.elsewhere;
    }
    state.live |= in.uses;
    if (!in.lanewise) state.elsewhere |= read;
  }
}

std::vector<RegisterSet> Liveness::ForBlock(uint32_t block) const {
  const BasicBlock& b = flow_.blocks[block];
  std::vector<RegisterSet> result(b.last - b.first + 2);
  State state = LiveOut(block);
  result.back() = state.live | always_;
  for (uint32_t i = b.last + 1; i-- > b.first;) {
    Step(i, absl::MakeSpan(&state, 1));
    result[i - b.first] = state.live | always_;
  }
  return result;
}

}  // namespace rjdbi::patch
