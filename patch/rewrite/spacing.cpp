// See spacing.h.
#include "patch/rewrite/spacing.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "patch/isa/hazards.h"
#include "patch/isa/sequence_flow.h"

namespace rjdbi::patch {
namespace {

constexpr uint32_t kFence = ~uint32_t{0};

bool VectorMemory(const Instruction& in) {
  return in.memory != MemoryKind::kNone && in.memory != MemoryKind::kScalar;
}

// gfx12: a vector instruction's read of a scalar register is remembered, so that its
// next write by a scalar instruction must be waited for before vector instructions
// read it again. gfx10.1: a vector memory instruction reads its scalars late.
bool FenceBetween(const Generation& g, const Instruction& first, const Instruction& second) {
  RegisterSet scalars, exec;
  scalars.Add(kSgpr0, kExecHi + 1);
  exec.Add(kExecLo, 2);
  if (g.sgpr_reads_remembered) {
    return first.salu && (second.valu || VectorMemory(second)) &&
           !((first.defs & second.uses) & (scalars - exec)).Empty();
  }
  return g.family == "gfx10.1" && VectorMemory(first) && second.salu &&
         !((first.uses & second.defs) & scalars).Empty();
}

class Search {
 public:
  Search(Isa& isa, absl::Span<const uint8_t> code)
      : generation_(isa.generation()), flow_(Flow(isa, code)), needed_(flow_.size(), 0) {
    fence_.resize(flow_.size(), false);
    const auto guard = isa.Assemble(generation_.head_guard);
    if (!guard.ok() || guard->empty()) return;
    for (size_t i = 0; i < flow_.size(); ++i) {
      const auto rest = code.subspan(flow_[i].offset);
      fence_[i] =
          rest.size() >= guard->size() && std::equal(guard->begin(), guard->end(), rest.begin());
    }
  }

  std::optional<Spacing> Run() {
    for (size_t i = 0; i < flow_.size(); ++i) {
      for (const HazardRule& rule : generation_.hazards) WaitStates(rule, i);
      if (!generation_.head_guard.empty()) Fence(i);
    }
    const auto first =
        std::find_if(needed_.begin(), needed_.end(), [](uint32_t states) { return states != 0; });
    if (first == needed_.end()) return std::nullopt;
    auto at = static_cast<size_t>(first - needed_.begin());
    if (at > 0 && flow_[at - 1].in->is_clause) --at;  // nothing else belongs into it
    return Spacing{flow_[at].offset, *first == kFence ? std::string(generation_.head_guard)
                                                      : absl::StrCat("s_nop ", *first - 1)};
  }

 private:
  void WaitStates(const HazardRule& rule, size_t i) {
    const Instruction& first = *flow_[i].in;
    if (!Is(rule.producer, first)) return;
    const std::vector<uint32_t> between = StatesFrom(flow_, i, rule.wait_states);
    for (size_t j = 0; j < flow_.size(); ++j) {
      if (between[j] == kNever || !Clash(rule, first, *flow_[j].in)) continue;
      needed_[j] = std::max(needed_[j], rule.wait_states - between[j]);
    }
  }

  void Fence(size_t i) {
    const Instruction& first = *flow_[i].in;
    if (!first.salu && !VectorMemory(first)) return;
    std::vector<bool> seen(flow_.size(), false);
    std::vector<size_t> pending = flow_[i].next;
    while (!pending.empty()) {
      const size_t at = pending.back();
      pending.pop_back();
      if (seen[at] || fence_[at]) continue;
      seen[at] = true;
      if (FenceBetween(generation_, first, *flow_[at].in)) needed_[at] = kFence;
      pending.insert(pending.end(), flow_[at].next.begin(), flow_[at].next.end());
    }
  }

  const Generation& generation_;
  const std::vector<FlowStep> flow_;
  std::vector<bool> fence_;       // one begins here
  std::vector<uint32_t> needed_;  // by step: wait states, or a fence
};

}  // namespace

std::optional<Spacing> SpacingMissing(Isa& isa, absl::Span<const uint8_t> code) {
  const Generation& g = isa.generation();
  if (g.hazards.empty() && !g.sgpr_reads_remembered && g.family != "gfx10.1") return std::nullopt;
  return Search(isa, code).Run();
}

}  // namespace rjdbi::patch
