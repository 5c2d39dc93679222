// See seams.h.
#include "contract/seams.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "contract/text.h"
#include "patch/isa/generation.h"
#include "patch/isa/hazards.h"
#include "patch/isa/sequence_flow.h"

namespace rjdbi::contract {
namespace {

using patch::FlowStep;
using patch::Generation;
using patch::HazardRule;
using patch::Instruction;
using patch::MemoryKind;
using patch::RegisterSet;

std::string TooClose(const Instruction& in, uint32_t states, uint32_t needed, const char* side) {
  return StrCat(in.opcode, " is ", states, " wait states from the code ", side, ", which takes ",
                needed);
}

// Of the sequence's own instructions.
std::optional<std::string> WaitStatesWithin(const std::vector<FlowStep>& flow,
                                            const HazardRule& rule, size_t producer) {
  const std::vector<uint32_t> between = patch::StatesFrom(flow, producer, rule.wait_states);
  const Instruction& first = *flow[producer].in;
  for (size_t i = 0; i < flow.size(); ++i) {
    if (between[i] == patch::kNever || !patch::Clash(rule, first, *flow[i].in)) continue;
    return StrCat(flow[i].in->opcode, " is ", between[i], " wait states behind ", first.opcode,
                  ", which takes ", uint32_t{rule.wait_states});
  }
  return std::nullopt;
}

std::optional<std::string> WaitStates(const Generation& g, const std::vector<FlowStep>& flow) {
  const std::vector<uint32_t> ahead = StatesAhead(flow), behind = StatesBehind(flow);
  for (const HazardRule& rule : g.hazards) {
    for (size_t i = 0; i < flow.size(); ++i) {
      const Instruction& in = *flow[i].in;
      if (ahead[i] < rule.wait_states && patch::Is(rule.consumer, in)) {
        return TooClose(in, ahead[i], rule.wait_states, "before it");
      }
      if (behind[i] < rule.wait_states && patch::Is(rule.producer, in)) {
        return TooClose(in, behind[i], rule.wait_states, "behind it");
      }
      if (!patch::Is(rule.producer, in)) continue;
      if (auto found = WaitStatesWithin(flow, rule, i)) return found;
    }
  }
  return std::nullopt;
}

// Touches nothing that a hazard could be about.
bool OnlyWaits(const Instruction& in) {
  return in.memory == MemoryKind::kNone && (in.defs | in.uses | in.partial_defs).Empty();
}

// What can be reached without passing a whole guard.
class Unfenced {
 public:
  Unfenced(patch::Isa& isa, absl::Span<const uint8_t> code, const std::vector<FlowStep>& flow,
           std::string_view guard)
      : flow_(flow), fence_(flow.size(), false) {
    const auto bytes = isa.Assemble(guard);
    if (!bytes.ok() || bytes->empty()) return;
    for (size_t i = 0; i < flow.size(); ++i) {
      const auto rest = code.subspan(flow[i].offset);
      fence_[i] =
          rest.size() >= bytes->size() && std::equal(bytes->begin(), bytes->end(), rest.begin());
    }
  }

  // By step; the first ones too, unless a fence begins there.
  std::vector<bool> From(std::vector<size_t> pending) const {
    std::vector<bool> reached(flow_.size());
    while (!pending.empty()) {
      const size_t at = pending.back();
      pending.pop_back();
      if (at >= flow_.size() || fence_[at] || reached[at]) continue;
      reached[at] = true;
      pending.insert(pending.end(), flow_[at].next.begin(), flow_[at].next.end());
    }
    return reached;
  }

  // By step: whether the code behind the sequence is reached from behind it.
  std::vector<bool> Leaving() const {
    std::vector<bool> leaving(flow_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = flow_.size(); i-- > 0;) {
        const auto open = [&](size_t next) { return !fence_[next] && leaving[next]; };
        if (leaving[i] ||
            !(flow_[i].leaves || std::any_of(flow_[i].next.begin(), flow_[i].next.end(), open))) {
          continue;
        }
        leaving[i] = changed = true;
      }
    }
    return leaving;
  }

 private:
  const std::vector<FlowStep>& flow_;
  std::vector<bool> fence_;
};

bool ReadsLate(const Instruction& in) {
  return in.memory != MemoryKind::kNone && in.memory != MemoryKind::kScalar;
}

const RegisterSet& Scalars() {
  static const RegisterSet set = [] {
    RegisterSet scalars;
    scalars.Add(patch::kSgpr0, patch::kExecHi + 1);
    return scalars;
  }();
  return set;
}

// Scalars that `in` writes, or reads late, and that later instructions must not use
// as Conflicts says without a fence in between.
RegisterSet Remembered(const Generation& g, const Instruction& in) {
  RegisterSet exec;
  exec.Add(patch::kExecLo, 2);
  if (g.sgpr_reads_remembered && in.salu) return in.defs & (Scalars() - exec);
  if (!g.memory_guard.empty() && ReadsLate(in)) return in.uses & Scalars();
  return {};
}
bool Conflicts(const Generation& g, const RegisterSet& remembered, const Instruction& later) {
  if (g.sgpr_reads_remembered) {
    return (later.valu || ReadsLate(later)) && !(remembered & later.uses).Empty();
  }
  return later.salu && !(remembered & later.defs).Empty();
}

}  // namespace

std::optional<std::string> SeamHazard(patch::Isa& isa, absl::Span<const uint8_t> code) {
  const Generation& g = isa.generation();
  const std::vector<FlowStep> flow = patch::Flow(isa, code);
  if (auto found = WaitStates(g, flow)) return found;
  if (!g.head_guard.empty()) {
    const Unfenced unfenced(isa, code, flow, g.head_guard);
    const std::vector<bool> start = unfenced.From({0});
    for (size_t i = 0; i < flow.size(); ++i) {
      const Instruction& in = *flow[i].in;
      if (start[i] && !OnlyWaits(in)) return StrCat("no fence is in front of ", in.opcode);
      const RegisterSet remembered = Remembered(g, in);
      if (remembered.Empty()) continue;
      const std::vector<bool> behind = unfenced.From(flow[i].next);
      for (size_t j = 0; j < flow.size(); ++j) {
        if (!behind[j] || !Conflicts(g, remembered, *flow[j].in)) continue;
        return StrCat("no fence is between ", in.opcode, " and ", flow[j].in->opcode);
      }
    }
  }
  if (g.tail_guard.empty()) return std::nullopt;
  const std::vector<bool> leaving = Unfenced(isa, code, flow, g.tail_guard).Leaving();
  for (size_t i = flow.size(); i-- > 0;) {
    if (leaving[i] && !OnlyWaits(*flow[i].in))
      return StrCat("no fence is behind ", flow[i].in->opcode);
  }
  return std::nullopt;
}

std::optional<std::string> MatrixHazard(patch::Isa& isa, absl::Span<const uint8_t> code,
                                        const RegisterSet& vectors, const RegisterSet& settled) {
  const auto guard = isa.Assemble(isa.generation().mfma_head_guard);
  if (!guard.ok() || guard->empty()) return std::nullopt;
  uint32_t needed = 0;
  for (const FlowStep& wait : patch::Flow(isa, *guard)) needed += wait.states;
  const std::vector<FlowStep> flow = patch::Flow(isa, code);
  const std::vector<uint32_t> ahead = StatesAhead(flow);
  for (size_t i = 0; i < flow.size(); ++i) {
    const Instruction& in = *flow[i].in;
    if (ahead[i] >= needed) continue;
    const RegisterSet touched = in.defs | in.partial_defs | (in.uses - settled);
    if ((touched & vectors).Empty()) continue;
    return TooClose(in, ahead[i], needed, "before it, a matrix instruction maybe");
  }
  return std::nullopt;
}

}  // namespace rjdbi::contract
