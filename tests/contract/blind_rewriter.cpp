// See blind_rewriter.h.
#include "tests/contract/blind_rewriter.h"

#include <deque>
#include <utility>

#include "patch/analysis/control_flow.h"
#include "patch/analysis/liveness.h"

namespace rjdbi::test {
namespace {

using patch::BasicBlock;
using patch::ControlFlow;
using patch::Instruction;
using patch::InstructionList;
using patch::KernelAnalysis;
using patch::Position;
using patch::Refusal;
using patch::RegisterSet;
using patch::RegisterSetRef;
using Random = std::mt19937;

// Registers that temporaries are made of.
RegisterSet Ordinary() {
  RegisterSet set;
  set.Add(patch::kSgpr0, 100);
  set.Add(patch::kVgpr0, 256);
  return set;
}

std::optional<uint16_t> Any(const RegisterSet& set, Random& random) {
  std::vector<uint16_t> members;
  set.ForEach([&](uint16_t reg) { members.push_back(reg); });
  if (members.empty()) return std::nullopt;
  return members[random() % members.size()];
}

// A kernel's code and edges with one change.
class Changed {
 public:
  explicit Changed(const KernelAnalysis& kernel) : kernel_(kernel), flow_(kernel.flow()) {
    for (size_t i = 0; i < kernel.instructions().size(); ++i) {
      shared_.push_back(&kernel.instructions().Shared(i));
    }
  }

  // A copy of the instruction that the caller may change.
  Instruction& Change(uint32_t i) {
    own_.push_back(*shared_[i]);
    shared_[i] = &own_.back();
    return own_.back();
  }
  RegisterSetRef Set(const RegisterSet& set) {
    sets_.push_back(set);
    return RegisterSetRef(sets_.back());
  }
  ControlFlow& flow() { return flow_; }

  RegisterSet LiveAt(uint32_t i, Position position) {
    InstructionList list;
    for (size_t n = 0; n < shared_.size(); ++n) {
      list.Append(shared_[n], kernel_.instructions().OffsetOf(n));
    }
    RegisterSet everything = kernel_.mentioned();
    everything.Add(patch::kVccLo, patch::kVgpr0 - patch::kVccLo);
    const patch::Liveness liveness(list, flow_, kernel_.isa().wavefront_size(), everything, {});
    const uint32_t block = flow_.block_of[i];
    const size_t at = i - flow_.blocks[block].first + (position == Position::kAfter ? 1 : 0);
    return liveness.ForBlock(block)[at];
  }

 private:
  const KernelAnalysis& kernel_;
  ControlFlow flow_;
  std::vector<const Instruction*> shared_;
  std::deque<Instruction> own_;
  std::deque<RegisterSet> sets_;
};

// What is live at the site after a mistake of the kind, or nullopt if there was nothing
// to be mistaken about where it looked.
std::optional<RegisterSet> Mistaken(const KernelAnalysis& kernel, uint32_t site, Position position,
                                    const RegisterSet& live, Blind blind, Random& random) {
  const auto n = static_cast<uint32_t>(kernel.instructions().size());
  Changed changed(kernel);
  const auto reg = Any(live & Ordinary(), random);
  const uint32_t i = static_cast<uint32_t>(random() % n);
  const Instruction& there = kernel.instructions().Shared(i);
  switch (blind) {
    case Blind::kLife: {
      if (!reg) return std::nullopt;
      RegisterSet less = live;
      less.Remove(*reg);
      return less;
    }
    case Blind::kRead: {
      const auto read = Any(there.uses & live & Ordinary(), random);
      if (!read) return std::nullopt;
      RegisterSet uses = there.uses;
      uses.Remove(*read);
      changed.Change(i).uses = changed.Set(uses);
      break;
    }
    case Blind::kWrite: {
      if (!reg || there.uses.Has(*reg)) return std::nullopt;
      RegisterSet defs = there.defs, partial = there.partial_defs;
      defs.Add(*reg);
      partial.Remove(*reg);
      Instruction& in = changed.Change(i);
      in.defs = changed.Set(defs);
      in.partial_defs = changed.Set(partial);
      if (*reg >= patch::kVgpr0) in.writes_whole = true;
      break;
    }
    case Blind::kEdge: {
      const uint32_t b = kernel.flow().block_of[i];
      std::vector<uint32_t>& next = changed.flow().blocks[b].successors;
      if (next.empty()) return std::nullopt;
      const size_t lost = random() % next.size();
      std::erase(changed.flow().blocks[next[lost]].predecessors, b);
      next.erase(next.begin() + static_cast<ptrdiff_t>(lost));
      break;
    }
    case Blind::kLanes: {
      bool any = false;
      for (uint32_t m = 0; m < n; ++m) {
        const Instruction& in = kernel.instructions().Shared(m);
        if (!in.defs.HasAny(patch::kExecLo, 2) || random() % 4 == 0) continue;
        RegisterSet defs = in.defs;
        defs.Remove(patch::kExecLo, 2);
        changed.Change(m).defs = changed.Set(defs);
        any = true;
      }
      if (!any) return std::nullopt;
      break;
    }
  }
  return changed.LiveAt(site, position);
}

class BlindAnalysis : public KernelAnalysis {
 public:
  BlindAnalysis(std::unique_ptr<KernelAnalysis> real, uint32_t site, RegisterSet before,
                RegisterSet after)
      : real_(std::move(real)), site_(site), before_(std::move(before)), after_(std::move(after)) {}

  const RegisterSet& LiveBefore(uint32_t i) const override {
    return i == site_ ? before_ : real_->LiveBefore(i);
  }
  RegisterSet LiveAt(uint32_t i, Position position) const override {
    if (i != site_) return real_->LiveAt(i, position);
    return position == Position::kBefore ? before_ : after_;
  }

  const patch::CodeObject& object() const override { return real_->object(); }
  size_t kernel_index() const override { return real_->kernel_index(); }
  const patch::Kernel& kernel() const override { return real_->kernel(); }
  patch::Isa& isa() const override { return real_->isa(); }
  absl::Span<const uint8_t> code() const override { return real_->code(); }
  const InstructionList& instructions() const override { return real_->instructions(); }
  const std::vector<BasicBlock>& blocks() const override { return real_->blocks(); }
  const ControlFlow& flow() const override { return real_->flow(); }
  uint8_t Regions(uint32_t i) const override { return real_->Regions(i); }
  std::optional<uint32_t> InstructionAt(uint64_t offset) const override {
    return real_->InstructionAt(offset);
  }
  std::optional<uint64_t> undecodable_offset() const override {
    return real_->undecodable_offset();
  }
  bool Reachable(uint32_t i) const override { return real_->Reachable(i); }
  bool has_indirect_branch() const override { return real_->has_indirect_branch(); }
  bool has_calls() const override { return real_->has_calls(); }
  bool may_run_matrix_instructions() const override { return real_->may_run_matrix_instructions(); }
  const RegisterSet& PendingBefore(uint32_t i) const override { return real_->PendingBefore(i); }
  RegisterSet PendingAt(uint32_t i, Position position) const override {
    return real_->PendingAt(i, position);
  }
  const RegisterSet& mentioned() const override { return real_->mentioned(); }
  void ReleaseSets() const override { real_->ReleaseSets(); }
  std::optional<uint32_t> SplittableClause(uint32_t i) const override {
    return real_->SplittableClause(i);
  }
  std::optional<Refusal> Immovable(uint32_t i, Position position) const override {
    return real_->Immovable(i, position);
  }
  uint64_t preload_entry() const override { return real_->preload_entry(); }
  const std::optional<Refusal>& CloneObstacle() const override { return real_->CloneObstacle(); }
  std::optional<Refusal> NotInsertable(uint32_t i, Position position) const override {
    return real_->NotInsertable(i, position);
  }
  const std::vector<patch::PcAddress>& PcAddresses() const override { return real_->PcAddresses(); }

 private:
  const std::unique_ptr<KernelAnalysis> real_;
  const uint32_t site_;
  const RegisterSet before_, after_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelAnalysis>> BlindRewriter::Analyse(
    const patch::CodeObject& object, size_t kernel_index, patch::Isa& isa,
    patch::ObjectFacts* facts) {
  lost = RegisterSet();
  auto real = Rewriter::Analyse(object, kernel_index, isa, facts);
  if (!real.ok() || kernel_index != kernel || !blind) return real;
  Random random(seed * 2654435761u);
  random.discard(8);
  const RegisterSet live = (*real)->LiveAt(instruction, position);
  // A probe takes some registers: one that is overlooked is not taken for long.
  const size_t enough = 1 + random() % 8;
  for (int tries = 0; tries < 32 && lost.Count() < enough; ++tries) {
    const auto mistaken = Mistaken(**real, instruction, position, live, *blind, random);
    if (mistaken) lost |= live - *mistaken;
  }
  RegisterSet seen = live - lost;
  // Others that are free are made scarce, so that what was overlooked is what is taken.
  const uint32_t spare = 2u << random() % 4;
  (Ordinary() - live).ForEach([&](uint16_t reg) {
    if (random() % spare != 0) seen.Add(reg);
  });
  RegisterSet before = (*real)->LiveAt(instruction, Position::kBefore);
  RegisterSet after = (*real)->LiveAt(instruction, Position::kAfter);
  (position == Position::kBefore ? before : after) = seen;
  return std::make_unique<BlindAnalysis>(*std::move(real), instruction, before, after);
}

std::variant<patch::SitePlan, Refusal> BlindRewriter::Plan(const KernelAnalysis& analysis,
                                                           uint32_t i,
                                                           const patch::ProbeRequest& request) {
  if (analysis.kernel_index() != kernel || i != instruction) {
    return Refusal{patch::Reason::kSiteTooShort, "", "", "not asked for"};
  }
  auto planned = real_->Plan(analysis, i, request);
  if (const auto* made = std::get_if<patch::SitePlan>(&planned)) plan = *made;
  return planned;
}

}  // namespace rjdbi::test
