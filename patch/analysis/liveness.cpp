// Worklist over blocks; per-instruction sets are made on demand.
#include "patch/analysis/liveness.h"

namespace rjdbi::patch {
namespace {

RegisterSet ScalarRegisters() {
  RegisterSet set;
  set.Add(kSgpr0, kVgpr0 - kSgpr0);
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
      killable_(ScalarRegisters()) {
  const size_t n = flow_.blocks.size();
  // Each block as one step: in = gen | (out - kill).
  std::vector<RegisterSet> gen(n), kill(n);
  for (size_t b = 0; b < n; ++b) {
    for (uint32_t i = flow_.blocks[b].last + 1; i-- > flow_.blocks[b].first;) {
      const Instruction& in = instructions_.Shared(i);
      if (in.call) {
        gen[b] = everything_;
        kill[b] |= everything_;
        continue;
      }
      const RegisterSet kills = Kills(in);
      gen[b] -= kills;
      gen[b] |= in.uses;
      kill[b] |= kills;
    }
  }
  live_in_.assign(n, RegisterSet());
  std::vector<bool> queued(n, true);
  std::vector<uint32_t> work;
  for (uint32_t b = 0; b < n; ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    queued[b] = false;
    const RegisterSet in = gen[b] | (LiveOut(b) - kill[b]);
    if (in == live_in_[b]) continue;
    live_in_[b] = in;
    for (uint32_t p : flow_.blocks[b].predecessors) {
      if (!queued[p]) work.push_back(p);
      queued[p] = true;
    }
  }
}

RegisterSet Liveness::LiveOut(uint32_t block) const {
  RegisterSet out;
  if (flow_.exits[block] == Exit::kUnknown) out = everything_;
  for (uint32_t s : flow_.blocks[block].successors) out |= live_in_[s];
  return out;
}

RegisterSet Liveness::Kills(const Instruction& in) const {
  RegisterSet kills = in.defs;
  kills -= in.partial_defs;
  kills &= killable_;
  // In wave32 the decoder still names VCC as a pair; a vector instruction
  // writes only its low half, and compilers keep data in the other.
  if (wavefront_size_ == 32 && !in.salu && in.memory != MemoryKind::kScalar) kills.Remove(kVccHi);
  return kills;
}

void Liveness::Step(const Instruction& in, RegisterSet& live) const {
  if (in.call) {
    live = everything_;
    return;
  }
  live -= Kills(in);
  live |= in.uses;
}

std::vector<RegisterSet> Liveness::ForBlock(uint32_t block) const {
  const BasicBlock& b = flow_.blocks[block];
  std::vector<RegisterSet> result(b.last - b.first + 2);
  RegisterSet live = LiveOut(block);
  result.back() = live | always_;
  for (uint32_t i = b.last + 1; i-- > b.first;) {
    Step(instructions_.Shared(i), live);
    result[i - b.first] = live | always_;
  }
  return result;
}

}  // namespace rjdbi::patch
