// See site.h.
#include "contract/site.h"

#include <algorithm>

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

v1::Site MakeSite(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position) {
  const patch::Instruction& ins = kernel.instructions()[i];
  const std::optional<patch::Refusal> immovable = kernel.Immovable(i, position);
  v1::Site site;
  *site.mutable_location() = MakeLocation(kernel, i);
  if (position == patch::Position::kAfter) site.set_position(v1::AFTER);
  site.set_site_class(Classify(ins, immovable));
  site.set_movable(!immovable.has_value());
  if (immovable) {
    site.set_immovable_constraint_id(std::string(ForReason(immovable->reason).id));
  }
  const auto clause = kernel.SplittableClause(i);
  if (clause && !immovable) site.set_splits_clause_at(kernel.instructions()[*clause].offset);
  site.set_instruction_bytes(ins.size);
  const patch::RegisterSet taken = kernel.LiveAt(i, position) | kernel.PendingAt(i, position);
  const Allocation a = DescriptorAllocation(kernel.isa().generation(), kernel.kernel().descriptor,
                                            kernel.kernel().wavefront_size);
  site.set_free_sgprs(CountFree(taken, patch::kSgpr0, a.usable_sgprs));
  site.set_free_vgprs(CountFree(taken, patch::kVgpr0, a.arch_vgprs));
  site.set_scc_live(taken.Has(patch::kScc));
  site.set_vcc_live(taken.HasAny(patch::kVccLo, 2));
  return site;
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
