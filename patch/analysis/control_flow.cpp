// Basic blocks and edges from decoded instructions.
#include "patch/analysis/control_flow.h"

#include <algorithm>
#include <utility>

namespace rjdbi::patch {
namespace {

// Transfers whose LLVM flags do not say that they are ones.
bool IsForkOrReturn(std::string_view opcode) {
  if (!opcode.starts_with("s_")) return false;
  return opcode.starts_with("s_cbranch_g_fork") || opcode.starts_with("s_cbranch_i_fork") ||
         opcode.starts_with("s_cbranch_join") || opcode.starts_with("s_rfe") ||
         opcode.starts_with("s_subvector_loop");
}

bool EndsBlock(const Instruction& in) {
  return in.branch || in.ends_program || (IsIndirectTransfer(in) && !in.call);
}

bool FallsThrough(const Instruction& in) {
  if (in.ends_program) return false;
  if (in.call) return true;
  if (in.branch) return in.conditional || IsForkOrReturn(in.opcode);
  return true;
}

class Builder {
 public:
  Builder(const InstructionList& instructions, uint64_t code_size)
      : instructions_(instructions), code_size_(code_size) {}

  ControlFlow Build(absl::Span<const uint64_t> entries) {
    MarkLeaders(entries);
    MakeBlocks(entries);
    for (uint32_t b = 0; b < flow_.blocks.size(); ++b) Connect(b);
    FindUnknownCode();
    std::sort(flow_.inside_targets.begin(), flow_.inside_targets.end());
    return std::move(flow_);
  }

 private:
  // A gap in the decoded instructions follows i (undecodable bytes).
  bool GapAfter(uint32_t i) const {
    const uint64_t end = instructions_.OffsetOf(i) + instructions_.Shared(i).size;
    return i + 1 < instructions_.size() && instructions_.OffsetOf(i + 1) != end;
  }

  void MarkLeaders(absl::Span<const uint64_t> entries) {
    leader_.assign(instructions_.size(), false);
    if (!leader_.empty()) leader_[0] = true;
    for (uint64_t entry : entries) {
      if (auto i = FindInstruction(instructions_, entry)) leader_[*i] = true;
    }
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      if ((EndsBlock(in) || GapAfter(i)) && i + 1 < leader_.size()) leader_[i + 1] = true;
      if (in.target_offset && !in.call) MarkTarget(*instructions_[i].target_offset);
    }
  }

  void MarkTarget(int64_t target) {
    if (target < 0 || static_cast<uint64_t>(target) >= code_size_) return;
    if (auto i = FindInstruction(instructions_, static_cast<uint64_t>(target))) {
      leader_[*i] = true;
    } else {
      flow_.inside_targets.push_back(static_cast<uint64_t>(target));
    }
  }

  void MakeBlocks(absl::Span<const uint64_t> entries) {
    flow_.block_of.resize(instructions_.size());
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      if (leader_[i]) {
        BasicBlock block;
        block.first = i;
        block.entry =
            std::find(entries.begin(), entries.end(), instructions_.OffsetOf(i)) != entries.end();
        flow_.blocks.push_back(block);
      }
      flow_.blocks.back().last = i;
      flow_.block_of[i] = static_cast<uint32_t>(flow_.blocks.size() - 1);
      const Instruction& in = instructions_.Shared(i);
      flow_.has_calls |= in.call;
      flow_.has_indirect_branch |= !in.call && IsIndirectTransfer(in);
    }
    flow_.exits.assign(flow_.blocks.size(), Exit::kNone);
    unknown_at_.assign(flow_.blocks.size(), std::nullopt);
  }

  void AddEdge(uint32_t from, uint32_t to) {
    auto& successors = flow_.blocks[from].successors;
    if (std::find(successors.begin(), successors.end(), to) != successors.end()) return;
    successors.push_back(to);
    flow_.blocks[to].predecessors.push_back(from);
  }

  void AddTarget(uint32_t b, int64_t target) {
    if (target < 0 || static_cast<uint64_t>(target) >= code_size_) {
      flow_.leaves_kernel = true;
      flow_.exits[b] = Exit::kUnknown;
      return;
    }
    if (auto i = FindInstruction(instructions_, static_cast<uint64_t>(target))) {
      AddEdge(b, flow_.block_of[*i]);
      return;
    }
    flow_.exits[b] = Exit::kUnknown;
    unknown_at_[b] = static_cast<uint64_t>(target);
  }

  void Connect(uint32_t b) {
    const uint32_t last = flow_.blocks[b].last;
    const Instruction& in = instructions_[last];
    if (in.ends_program) flow_.exits[b] = Exit::kProgramEnd;
    if (IsIndirectTransfer(in) && !in.call) flow_.exits[b] = Exit::kUnknown;
    if (in.target_offset && !in.call) AddTarget(b, *in.target_offset);
    if (!FallsThrough(in)) return;
    if (GapAfter(last)) {
      flow_.exits[b] = Exit::kUnknown;
      unknown_at_[b] = in.offset + in.size;
    } else if (last + 1 < instructions_.size()) {
      AddEdge(b, b + 1);
    } else if (in.offset + in.size < code_size_) {
      flow_.exits[b] = Exit::kUnknown;
      unknown_at_[b] = in.offset + in.size;
    } else {
      flow_.leaves_kernel = true;
      flow_.exits[b] = Exit::kUnknown;
    }
  }

  // With an indirect branch every block counts as reachable.
  void FindUnknownCode() {
    std::vector<bool> seen(flow_.blocks.size(), flow_.has_indirect_branch);
    std::vector<uint32_t> work;
    for (uint32_t b = 0; b < flow_.blocks.size(); ++b) {
      if (flow_.blocks[b].entry) work.push_back(b);
    }
    for (uint32_t b : work) seen[b] = true;
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      for (uint32_t s : flow_.blocks[b].successors) {
        if (!seen[s]) work.push_back(s);
        seen[s] = true;
      }
    }
    for (uint32_t b = 0; b < flow_.blocks.size(); ++b) {
      if (!seen[b] || !unknown_at_[b]) continue;
      flow_.unknown_code = std::min(flow_.unknown_code.value_or(*unknown_at_[b]), *unknown_at_[b]);
    }
    flow_.reachable = std::move(seen);
  }

  const InstructionList& instructions_;
  const uint64_t code_size_;
  std::vector<bool> leader_;
  std::vector<std::optional<uint64_t>> unknown_at_;  // by block
  ControlFlow flow_;
};

}  // namespace

std::optional<uint32_t> FindInstruction(const InstructionList& instructions, uint64_t offset) {
  return instructions.Find(offset);
}

bool IsIndirectTransfer(const Instruction& in) {
  return in.indirect || in.call || IsForkOrReturn(in.opcode);
}

bool IsPlainBranch(const Instruction& in) {
  if (!in.branch || !in.target_offset || in.size != 4) return false;
  static constexpr std::string_view kPlain[] = {
      "s_branch",        "s_cbranch_scc0",  "s_cbranch_scc1",  "s_cbranch_vccz",
      "s_cbranch_vccnz", "s_cbranch_execz", "s_cbranch_execnz"};
  return std::find(std::begin(kPlain), std::end(kPlain), in.opcode) != std::end(kPlain);
}

ControlFlow BuildControlFlow(const InstructionList& instructions, uint64_t code_size,
                             absl::Span<const uint64_t> entries) {
  return Builder(instructions, code_size).Build(entries);
}

}  // namespace rjdbi::patch
