// See site.h.
#include "contract/site.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "contract/catalogue.h"
#include "contract/occupancy.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

using patch::Reason;

v1::SiteClass Classify(const patch::Instruction& ins, const std::optional<patch::Refusal>& why) {
  if (why) {
    if (why->reason == Reason::kSiteUndecodable) return v1::UNDECODABLE;
    if (why->reason == Reason::kSiteInsideClause) return v1::INSIDE_CLAUSE;
  }
  if (ins.ends_program) return v1::PROGRAM_END;
  if (ins.indirect || ins.call) return v1::INDIRECT_TRANSFER;
  if (ins.branch) return v1::BRANCH;
  if (ins.reads_pc) return v1::PC_RELATIVE;
  if (ins.barrier) return v1::BARRIER;
  if (ins.memory != patch::MemoryKind::kNone && !ins.waitcnt) return v1::MEMORY;
  return v1::PLAIN;
}

uint32_t CountFree(const patch::RegisterSet& taken, uint16_t first, uint32_t allocated) {
  return allocated - taken.CountIn(first, allocated);
}

bool InsertableInClone(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position) {
  return !kernel.CloneObstacle() && !kernel.NotInsertable(i, position);
}

}  // namespace

v1::Location MakeLocation(const patch::KernelAnalysis& kernel, uint32_t i) {
  const patch::Instruction& ins = kernel.instructions()[i];
  v1::Location l;
  l.set_kernel(kernel.kernel().name);
  l.set_kernel_offset(ins.offset);
  l.set_code_object_vaddr(kernel.kernel().entry_vaddr + ins.offset);
  l.set_instruction(kernel.isa().Print(kernel.code(), ins.offset));
  return l;
}

patch::Position PositionOf(v1::Position position) {
  return position == v1::AFTER ? patch::Position::kAfter : patch::Position::kBefore;
}

SiteFacts FactsOfSite(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position) {
  const patch::Instruction& ins = kernel.instructions().Shared(i);
  // Either placement will do.
  std::optional<patch::Refusal> immovable;
  if (!InsertableInClone(kernel, i, position)) immovable = kernel.Immovable(i, position);
  SiteFacts site;
  site.after = position == patch::Position::kAfter;
  site.site_class = Classify(ins, immovable);
  site.movable = !immovable.has_value();
  if (immovable) site.immovable = &ForReason(immovable->reason);
  const auto clause = kernel.SplittableClause(i);
  if (clause && !immovable) {
    site.splits_clause = static_cast<uint32_t>(kernel.instructions().OffsetOf(*clause)) + 1;
  }
  site.instruction_bytes = ins.size;
  const patch::RegisterSet taken = kernel.LiveAt(i, position) | kernel.PendingAt(i, position);
  const Allocation a = DescriptorAllocation(kernel.isa().generation(), kernel.kernel().descriptor,
                                            kernel.kernel().wavefront_size);
  site.free_sgprs = static_cast<uint16_t>(CountFree(taken, patch::kSgpr0, a.usable_sgprs));
  site.free_vgprs = static_cast<uint16_t>(CountFree(taken, patch::kVgpr0, a.arch_vgprs));
  site.scc_live = taken.Has(patch::kScc);
  site.vcc_live = taken.HasAny(patch::kVccLo, 2);
  return site;
}

v1::Site MakeSite(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position) {
  const SiteFacts facts = FactsOfSite(kernel, i, position);
  v1::Site site;
  *site.mutable_location() = MakeLocation(kernel, i);
  if (facts.after) site.set_position(v1::AFTER);
  site.set_site_class(facts.site_class);
  site.set_movable(facts.movable);
  if (facts.immovable != nullptr) {
    site.set_immovable_constraint_id(std::string(facts.immovable->id));
  }
  if (facts.splits_clause != 0) site.set_splits_clause_at(facts.splits_clause - 1);
  site.set_instruction_bytes(facts.instruction_bytes);
  site.set_free_sgprs(facts.free_sgprs);
  site.set_free_vgprs(facts.free_vgprs);
  site.set_scc_live(facts.scc_live);
  site.set_vcc_live(facts.vcc_live);
  return site;
}

namespace {

constexpr std::pair<patch::SiteTrait, v1::SiteTrait> kTraits[] = {
    {patch::SiteTrait::kKernelEntry, v1::SITE_KERNEL_ENTRY},
    {patch::SiteTrait::kBlockEntry, v1::SITE_BLOCK_ENTRY},
    {patch::SiteTrait::kInClause, v1::SITE_IN_CLAUSE},
    {patch::SiteTrait::kInDelayWindow, v1::SITE_IN_DELAY_WINDOW},
    {patch::SiteTrait::kInGprIndexRegion, v1::SITE_IN_GPR_INDEX_REGION},
    {patch::SiteTrait::kRegistersReleased, v1::SITE_REGISTERS_RELEASED},
    {patch::SiteTrait::kUnreachable, v1::SITE_UNREACHABLE},
    {patch::SiteTrait::kNearUndecodable, v1::SITE_NEAR_UNDECODABLE},
    {patch::SiteTrait::kBeforeSecondEntry, v1::SITE_BEFORE_SECOND_ENTRY},
    {patch::SiteTrait::kExecUnknown, v1::SITE_EXEC_UNKNOWN},
    {patch::SiteTrait::kBranchTargetInside, v1::SITE_BRANCH_TARGET_INSIDE},
};

v1::CodeRangeKind KindOf(patch::CodeRangeKind kind) {
  switch (kind) {
    case patch::CodeRangeKind::kFiller:
      return v1::CODE_FILLER;
    case patch::CodeRangeKind::kUnreachable:
      return v1::CODE_UNREACHABLE;
    case patch::CodeRangeKind::kData:
      return v1::CODE_DATA;
    case patch::CodeRangeKind::kUndecoded:
      return v1::CODE_UNDECODED;
  }
  return v1::CODE_RANGE_KIND_UNSPECIFIED;
}

v1::TransferTarget TargetOf(patch::TransferTarget target) {
  switch (target) {
    case patch::TransferTarget::kDirect:
      return v1::TARGET_DIRECT;
    case patch::TransferTarget::kPcRelative:
      return v1::TARGET_PC_RELATIVE;
    case patch::TransferTarget::kLoaded:
      return v1::TARGET_LOADED;
    case patch::TransferTarget::kUnknown:
      return v1::TARGET_UNKNOWN;
  }
  return v1::TRANSFER_TARGET_UNSPECIFIED;
}

// Protobuf takes no other bytes in a string.
bool IsUtf8(const std::string& text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                             static_cast<int>(text.size()));
}

}  // namespace

v1::Site DescribeSite(const patch::KernelAnalysis& kernel,
                      const patch::SiteCapabilities& capabilities, uint32_t i) {
  v1::Site site = MakeSite(kernel, i);
  const patch::SiteCapability c = capabilities.At(i, patch::Position::kBefore);
  v1::SiteCapability& out = *site.mutable_capability();
  for (const auto& [from, to] : kTraits) {
    if (std::find(c.traits.begin(), c.traits.end(), from) != c.traits.end()) out.add_traits(to);
  }
  if (c.immovable && !site.movable()) out.set_immovable_reason(c.immovable->detail);
  const bool after = !c.immovable_after || InsertableInClone(kernel, i, patch::Position::kAfter);
  out.set_movable_after(after);
  if (!after) {
    out.set_after_constraint_id(std::string(ForReason(c.immovable_after->reason).id));
  }
  out.set_live_sgprs(c.live_sgprs);
  out.set_live_vgprs(c.live_vgprs);
  out.set_live_agprs(c.live_agprs);
  out.set_free_agprs(c.free_agprs);
  out.set_pending_registers(c.pending);
  for (const auto& counter : c.outstanding) {
    v1::OutstandingCounter& o = *out.add_outstanding();
    o.set_counter(std::string(counter.name));
    o.set_unbounded(counter.at_most >= patch::Outstanding::kUnbounded);
    if (!o.unbounded()) o.set_at_most(counter.at_most);
  }
  if (c.distance) {
    out.mutable_reach()->set_distance(*c.distance);
    out.mutable_reach()->set_direct(c.direct_reach);
  }
  out.mutable_reach()->set_kernel_can_move(c.kernel_can_move);
  if (IsUtf8(c.source_file)) out.set_source_file(c.source_file);
  out.set_source_line(c.source_line);
  return site;
}

v1::MissingWait MakeMissingWait(const WaitFinding& finding, const patch::Kernel& kernel,
                                patch::Isa& isa, const CodeAt& code) {
  v1::MissingWait out;
  out.set_kernel(kernel.name);
  out.set_kernel_offset(finding.vaddr - kernel.entry_vaddr);
  out.set_producer_offset(finding.producer - kernel.entry_vaddr);
  out.set_register_name(patch::RegisterName(finding.reg));
  out.set_what(DescribeWait(finding, isa, code));
  return out;
}

v1::KernelStructure DescribeStructure(const patch::KernelAnalysis& kernel,
                                      const patch::SiteCapabilities& capabilities) {
  const patch::KernelStructure s = capabilities.Structure();
  v1::KernelStructure out;
  out.set_kernel(kernel.kernel().name);
  out.set_code_bytes(kernel.code().size());
  out.set_instructions(static_cast<uint32_t>(kernel.instructions().size()));
  out.set_reachable_instructions(s.reachable_instructions);
  out.set_blocks(s.reachable_blocks);
  for (const patch::CodeRange& range : s.ranges) {
    v1::CodeRange& r = *out.add_ranges();
    r.set_begin(range.begin);
    r.set_end(range.end);
    r.set_kind(KindOf(range.kind));
  }
  for (const patch::Transfer& transfer : s.transfers) {
    const patch::Instruction& in = kernel.instructions()[transfer.instruction];
    v1::ControlTransferSite& t = *out.add_transfers();
    t.set_kernel_offset(in.offset);
    t.set_instruction(kernel.isa().Print(kernel.code(), in.offset));
    t.set_call(transfer.call);
    t.set_target(TargetOf(transfer.target));
  }
  out.set_control_flow_complete(s.incomplete.empty());
  for (const std::string& why : s.incomplete) out.add_incomplete_because(why);
  out.set_position_independent(s.position_independent);
  const CodeAt code = CodeIn(kernel.object());
  const WaitReport waits = CheckWaits(kernel.isa(), code, kernel.kernel().entry_vaddr);
  for (const WaitFinding& f : waits.findings) {
    *out.add_missing_waits() = MakeMissingWait(f, kernel.kernel(), kernel.isa(), code);
  }
  return out;
}

std::string SiteTraitName(v1::SiteTrait trait) {
  std::string name = absl::AsciiStrToLower(
      absl::StrReplaceAll(v1::SiteTrait_Name(trait), {{"SITE_", ""}, {"_", " "}}));
  return name;
}

std::optional<v1::Violation> NoInstructionAt(const patch::KernelAnalysis& kernel, uint64_t offset) {
  const auto& all = kernel.instructions();
  const auto after = std::lower_bound(
      all.begin(), all.end(), offset,
      [](const patch::Instruction& i, uint64_t wanted) { return i.offset < wanted; });
  if (after != all.end() && after->offset == offset) return std::nullopt;
  std::string nearest;
  if (after != all.begin()) nearest = StrCat("0x", absl::Hex((after - 1)->offset));
  if (after != all.end()) {
    StrAppend(&nearest, nearest.empty() ? "0x" : " and 0x", absl::Hex(after->offset));
  }
  v1::Location l;
  l.set_kernel(kernel.kernel().name);
  l.set_kernel_offset(offset);
  l.set_code_object_vaddr(kernel.kernel().entry_vaddr + offset);
  return MakeViolation(id::kNoInstruction, StrCat("offset 0x", absl::Hex(offset)),
                       StrCat("an instruction's start below 0x", absl::Hex(kernel.code().size())),
                       l,
                       StrCat("no instruction starts at offset 0x", absl::Hex(offset),
                              nearest.empty() ? "" : StrCat("; the nearest start at ", nearest)));
}

std::string SiteClassName(v1::SiteClass site_class) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(v1::SiteClass_Name(site_class), {{"_", " "}}));
}

}  // namespace rjdbi::contract
