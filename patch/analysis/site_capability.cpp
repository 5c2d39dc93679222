// Gathers what the analyses know of one instruction.
#include "patch/analysis/site_capability.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "patch/analysis/allocation.h"
#include "patch/analysis/control_flow.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/codeobject/code_object_writer.h"

namespace rjdbi::patch {
namespace {

constexpr int64_t kBranchReach = 4 + 4 * int64_t{32767};

uint32_t WordAt(const KernelAnalysis& kernel, uint64_t offset) {
  uint32_t word = 0;
  if (offset + 4 <= kernel.code().size()) {
    std::memcpy(&word, kernel.code().data() + offset, sizeof(word));
  }
  return word;
}

// Zero, s_nop 0, s_code_end.
bool IsFiller(uint32_t word) { return word == 0 || word == 0xbf800000 || word == 0xbf9f0000; }

uint32_t Count(const RegisterSet& set, uint16_t first, uint32_t count) {
  uint32_t found = 0;
  for (uint32_t n = 0; n < count; ++n) found += set.Has(static_cast<uint16_t>(first + n));
  return found;
}

// The instruction of the block before i that last writes the register.
std::optional<uint32_t> LastWrite(const KernelAnalysis& kernel, uint32_t i, uint16_t reg) {
  const BasicBlock& block = kernel.blocks()[kernel.flow().block_of[i]];
  for (uint32_t k = i; k-- > block.first;) {
    if (kernel.instructions()[k].defs.Has(reg)) return k;
  }
  return std::nullopt;
}

// Follows the low half of the address back through moves and sums.
TransferTarget TargetOf(const KernelAnalysis& kernel, uint32_t i) {
  const Instruction& in = kernel.instructions()[i];
  if (in.target_offset) return TransferTarget::kDirect;
  const auto source =
      std::find_if(in.operands.begin(), in.operands.end(), [](const InstructionOperand& operand) {
        return operand.kind == InstructionOperand::Kind::kRegister && !operand.is_def;
      });
  if (source == in.operands.end()) return TransferTarget::kUnknown;
  uint16_t reg = source->reg;
  for (int step = 0; step < 16; ++step) {
    const auto write = LastWrite(kernel, i, reg);
    if (!write) return TransferTarget::kUnknown;
    const Instruction& by = kernel.instructions()[*write];
    if (by.reads_pc && !by.call) return TransferTarget::kPcRelative;
    if (by.memory != MemoryKind::kNone) return TransferTarget::kLoaded;
    if (!by.salu) return TransferTarget::kUnknown;
    const auto from =
        std::find_if(by.operands.begin(), by.operands.end(), [](const InstructionOperand& operand) {
          return operand.kind == InstructionOperand::Kind::kRegister && !operand.is_def;
        });
    if (from == by.operands.end()) return TransferTarget::kUnknown;
    reg = from->reg;
    i = *write;
  }
  return TransferTarget::kUnknown;
}

// A reachable block's last instruction leads, directly or by falling through, to
// code outside the kernel.
bool LeavesKernel(const KernelAnalysis& kernel) {
  const ControlFlow& flow = kernel.flow();
  const auto size = static_cast<int64_t>(kernel.code().size());
  for (size_t b = 0; b < flow.blocks.size(); ++b) {
    if (!flow.reachable[b]) continue;
    const Instruction& in = kernel.instructions()[flow.blocks[b].last];
    const bool outside = in.target_offset && (*in.target_offset < 0 || *in.target_offset >= size);
    if (outside && !in.call) return true;
    const bool stops = in.ends_program || (in.branch && !in.conditional && !in.call);
    if (!stops && static_cast<int64_t>(in.offset + in.size) == size) return true;
  }
  return false;
}

class Ranges {
 public:
  void Add(uint64_t begin, uint64_t end, CodeRangeKind kind) {
    if (!ranges_.empty() && ranges_.back().end == begin && ranges_.back().kind == kind) {
      ranges_.back().end = end;
    } else {
      ranges_.push_back({begin, end, kind});
    }
  }
  std::vector<CodeRange> Take() { return std::move(ranges_); }

 private:
  std::vector<CodeRange> ranges_;
};

}  // namespace

SiteCapabilities::SiteCapabilities(const KernelAnalysis& kernel)
    : kernel_(kernel), outstanding_(kernel), position_independent_(PositionIndependent(kernel)) {
  if (const auto segment = NewSegmentVaddr(kernel.object()); segment.ok()) segment_ = *segment;
  FindDelayWindows();
  FindExec();
}

// s_delay_alu speaks of the next instruction and, with a second condition, of
// one up to six further on. Source: the gfx11 ISA document, S_DELAY_ALU.
void SiteCapabilities::FindDelayWindows() {
  const auto& instructions = kernel_.instructions();
  delayed_.assign(instructions.size(), false);
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].opcode != "s_delay_alu") continue;
    const uint32_t word = WordAt(kernel_, instructions[i].offset);
    const uint32_t skip = (word >> 4) & 7, second = (word >> 7) & 15;
    const size_t last = i + 1 + (second != 0 ? skip : 0);
    for (size_t k = i + 1; k <= last && k < instructions.size(); ++k) delayed_[k] = true;
  }
}

void SiteCapabilities::FindExec() {
  const ControlFlow& flow = kernel_.flow();
  const auto& instructions = kernel_.instructions();
  exec_unknown_.assign(instructions.size(), false);
  const auto writes = [](const Instruction& in) { return in.call || in.defs.HasAny(kExecLo, 2); };
  std::vector<bool> in(flow.blocks.size(), flow.has_indirect_branch);
  std::vector<uint32_t> work;
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    bool unknown = in[b];
    for (uint32_t i = flow.blocks[b].first; i <= flow.blocks[b].last; ++i) {
      exec_unknown_[i] = exec_unknown_[i] || unknown;
      unknown = unknown || writes(instructions[i]);
    }
    for (uint32_t s : flow.blocks[b].successors) {
      if (!unknown || in[s]) continue;
      in[s] = true;
      work.push_back(s);
    }
  }
}

std::vector<SiteTrait> SiteCapabilities::Traits(uint32_t i) const {
  const auto& instructions = kernel_.instructions();
  const Instruction& in = instructions[i];
  const ControlFlow& flow = kernel_.flow();
  const BasicBlock& block = flow.blocks[flow.block_of[i]];
  const uint8_t regions = kernel_.Regions(i);
  const bool first = block.first == i;
  const bool gap_before =
      i == 0 ? in.offset != 0 : instructions[i - 1].offset + instructions[i - 1].size != in.offset;
  const uint64_t end = in.offset + in.size;
  const bool gap_after = i + 1 < instructions.size() ? instructions[i + 1].offset != end
                                                     : end != kernel_.code().size();
  const auto inside =
      std::upper_bound(flow.inside_targets.begin(), flow.inside_targets.end(), in.offset);
  const std::pair<SiteTrait, bool> all[] = {
      {SiteTrait::kKernelEntry, first && block.entry},
      {SiteTrait::kBlockEntry, first},
      {SiteTrait::kInClause, (regions & kInClause) != 0},
      {SiteTrait::kInDelayWindow, delayed_[i]},
      {SiteTrait::kInGprIndexRegion, (regions & kInGprIndex) != 0},
      {SiteTrait::kRegistersReleased, (regions & kAfterDealloc) != 0},
      {SiteTrait::kUnreachable, !kernel_.Reachable(i)},
      {SiteTrait::kNearUndecodable, gap_before || gap_after},
      {SiteTrait::kBeforeSecondEntry, in.offset < kernel_.preload_entry()},
      {SiteTrait::kExecUnknown, exec_unknown_[i]},
      {SiteTrait::kBranchTargetInside, inside != flow.inside_targets.end() && *inside < end},
  };
  std::vector<SiteTrait> traits;
  for (const auto& [trait, holds] : all) {
    if (holds) traits.push_back(trait);
  }
  return traits;
}

SiteCapability SiteCapabilities::At(uint32_t i, Position position) const {
  const Instruction& in = kernel_.instructions()[i];
  const Generation& generation = kernel_.isa().generation();
  SiteCapability c;
  c.traits = Traits(i);
  c.immovable = kernel_.Immovable(i, Position::kBefore);
  c.immovable_after = kernel_.Immovable(i, Position::kAfter);
  const RegisterSet live = kernel_.LiveAt(i, position);
  const RegisterSet pending = kernel_.PendingAt(i, position);
  const RegisterSet taken = live | pending;
  const Allocation allocation = AllocationOf(kernel_.kernel(), generation);
  const uint32_t agprs = generation.unified_vgpr_file
                             ? std::min(allocation.vgprs - allocation.arch_vgprs, 256u)
                             : (generation.family == "gfx908" ? allocation.arch_vgprs : 0);
  c.live_sgprs = Count(live, kSgpr0, generation.addressable_sgprs);
  c.live_vgprs = Count(live, kVgpr0, 256);
  c.live_agprs = Count(live, kAgpr0, 256);
  c.free_sgprs = allocation.ordinary_sgprs - Count(taken, kSgpr0, allocation.ordinary_sgprs);
  c.free_vgprs = allocation.arch_vgprs - Count(taken, kVgpr0, allocation.arch_vgprs);
  c.free_agprs = agprs - Count(taken, kAgpr0, agprs);
  c.pending = static_cast<uint32_t>(pending.Count());
  const Outstanding::Counts counts = outstanding_.At(i, position);
  for (uint8_t n = 0; n < Outstanding::kCounters; ++n) {
    const std::string_view name =
        Outstanding::Name(static_cast<Outstanding::Counter>(n), generation);
    if (counts[n] > 0 && !name.empty()) c.outstanding.push_back({name, counts[n]});
  }
  const uint64_t vaddr = kernel_.kernel().entry_vaddr + in.offset;
  if (segment_) {
    c.distance = static_cast<int64_t>(*segment_) - static_cast<int64_t>(vaddr);
    c.direct_reach = *c.distance <= kBranchReach;
  }
  c.kernel_can_move = position_independent_;
  const auto& lines = kernel_.object().debug_info().lines();
  if (lines.ok()) {
    for (const LineTable::Row& row : lines->Overlapping(vaddr, vaddr + 1)) {
      c.source_file = lines->FileName(row);
      c.source_line = row.line;
    }
  }
  return c;
}

KernelStructure SiteCapabilities::Structure() const {
  KernelStructure s;
  s.position_independent = position_independent_;
  const ControlFlow& flow = kernel_.flow();
  const auto& instructions = kernel_.instructions();
  for (size_t b = 0; b < flow.blocks.size(); ++b) s.reachable_blocks += flow.reachable[b];
  Ranges ranges;
  uint64_t at = 0;
  const auto gap = [&](uint64_t end) {  // bytes that do not decode
    if (at >= end) return;
    // Reached: where control runs on into them, or branches to.
    const bool reached = flow.unknown_code && *flow.unknown_code >= at && *flow.unknown_code < end;
    ranges.Add(at, end, reached ? CodeRangeKind::kUndecoded : CodeRangeKind::kData);
  };
  for (uint32_t i = 0; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    gap(in.offset);
    at = in.offset + in.size;
    if (kernel_.Reachable(i)) {
      ++s.reachable_instructions;
      if (IsIndirectTransfer(in)) s.transfers.push_back({i, in.call, TargetOf(kernel_, i)});
      continue;
    }
    const bool filler = in.size == 4 && IsFiller(WordAt(kernel_, in.offset));
    ranges.Add(in.offset, at, filler ? CodeRangeKind::kFiller : CodeRangeKind::kUnreachable);
  }
  gap(kernel_.code().size());
  s.ranges = ranges.Take();
  if (flow.has_indirect_branch) {
    s.incomplete.push_back(
        "an indirect branch may lead anywhere in the kernel: all of it counts as reachable");
  }
  if (flow.unknown_code) {
    s.incomplete.push_back(absl::StrCat("control reaches offset 0x", absl::Hex(*flow.unknown_code),
                                        ", which is no instruction's start"));
  }
  if (LeavesKernel(kernel_)) {
    s.incomplete.push_back("control may leave the kernel by a branch, or run past its end");
  }
  if (flow.has_calls) s.incomplete.push_back("functions that it calls are not followed");
  return s;
}

}  // namespace rjdbi::patch
