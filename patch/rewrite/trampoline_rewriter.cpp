// Plan: movable? registers? sequence. Emit: bodies, placement, descriptors,
// image, verification.
#include "patch/rewrite/trampoline_rewriter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/analysis/allocation.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/codeobject/code_object_writer.h"
#include "patch/rewrite/assembly_cache.h"
#include "patch/rewrite/clone.h"
#include "patch/rewrite/placement.h"
#include "patch/rewrite/probe_sequence.h"
#include "patch/rewrite/record_sequence.h"
#include "patch/rewrite/register_choice.h"
#include "patch/rewrite/sequence_writer.h"
#include "patch/rewrite/user_plan.h"
#include "patch/rewrite/verify.h"

namespace rjdbi::patch {
namespace {

// The branch to the trampoline and the one back.
constexpr uint32_t kJumps = 2;

// gfx10.1 loses an ordering between LDS and vector memory on two sides of a
// branch unless stores were waited for in between, and displacement puts
// branches around the instruction.
constexpr std::string_view kLdsBranchFamily = "gfx10.1";
constexpr char kLdsBranchGuard[] = "s_waitcnt_vscnt null, 0x0";

constexpr char kBrokenClause[] = "s_nop 0";

// What compilers put right before the message that gives VGPRs back: without it
// gfx11 may take them too early.
constexpr char kDeallocGuard[] = "s_nop 0";

bool Counts(Probe probe) { return probe == Probe::kCountWaves || probe == Probe::kCountLanes; }

bool NeedsLdsBranchGuard(const Generation& generation, const Instruction& in) {
  return generation.family == kLdsBranchFamily && in.memory != MemoryKind::kNone &&
         in.memory != MemoryKind::kScalar;
}

bool NeedsDeallocGuard(const KernelAnalysis& kernel, const Instruction& in) {
  return DeallocatesVgprs(in, kernel.code(), kernel.isa().generation());
}

absl::StatusOr<uint32_t> AssembleWord(AssemblyCache& cache, const KernelAnalysis& kernel,
                                      const std::string& text) {
  const auto bytes = cache.Assemble(AssemblyKey(kernel), kernel.isa(), text);
  if (!bytes.ok()) return bytes.status();
  if ((*bytes)->size() != 4) return absl::InternalError(absl::StrCat(text, " is not one word"));
  uint32_t word = 0;
  std::memcpy(&word, (*bytes)->data(), sizeof(word));
  return word;
}

using KernelsByIndex = std::map<size_t, const KernelAnalysis*>;

// What the plans of one kernel need together.
struct KernelNeeds {
  const KernelAnalysis* kernel = nullptr;
  uint32_t sgprs = 0, vgprs = 0;
};

// Descriptor and metadata counts after growth; nullopt: nothing changes.
std::optional<CodeObjectEdit::KernelChange> Grow(const KernelNeeds& needs) {
  const KernelAnalysis& kernel = *needs.kernel;
  const Generation& generation = kernel.isa().generation();
  const Allocation now = AllocationOf(kernel.kernel(), generation);
  const KernelMetadata& metadata = kernel.kernel().metadata;
  CodeObjectEdit::KernelChange change;
  change.descriptor = kernel.kernel().descriptor;
  uint32_t& rsrc1 = change.descriptor.compute_pgm_rsrc1;
  uint32_t& rsrc3 = change.descriptor.compute_pgm_rsrc3;
  bool changed = false;

  if (needs.sgprs > HighestSgpr(kernel)) {
    const uint32_t sgprs = SgprsAllocatedFor(kernel, needs.sgprs);
    if (sgprs > now.sgprs) {
      rsrc1 = (rsrc1 & ~(0xfu << 6)) | ((2 * (sgprs / generation.sgpr_granule - 1)) << 6);
      changed = true;
    }
    // The count includes VCC, and on gfx9 the registers above it.
    const uint32_t count = needs.sgprs + (generation.sgprs_allocated ? generation.sgpr_tail : 2u);
    if (metadata.sgpr_count && *metadata.sgpr_count < count) {
      change.sgpr_count = count;
      changed = true;
    }
  }
  if (needs.vgprs > HighestVgpr(kernel)) {
    const uint32_t vgprs = VgprsAllocatedFor(kernel, needs.vgprs);
    uint32_t count = needs.vgprs;
    if (generation.unified_vgpr_file) {
      if (needs.vgprs > now.arch_vgprs) {
        rsrc3 = (rsrc3 & ~0x3fu) | (RoundUp(needs.vgprs, 4) / 4 - 1);
        changed = true;
      }
      if (AgprsInUse(kernel) > 0) count = RoundUp(needs.vgprs, 4) + AgprsInUse(kernel);
    }
    if (vgprs > now.vgprs) {
      rsrc1 = (rsrc1 & ~0x3fu) | (vgprs / now.vgpr_granule - 1);
      changed = true;
    }
    if (metadata.vgpr_count && *metadata.vgpr_count < count) {
      change.vgpr_count = count;
      changed = true;
    }
  }
  if (!changed) return std::nullopt;
  return change;
}

std::optional<Refusal> Impossible(const KernelAnalysis& kernel, uint32_t instruction,
                                  const ProbeRequest& request) {
  if (request.placement == Placement::kTrampoline) {
    return kernel.Immovable(instruction, request.position);
  }
  if (kernel.CloneObstacle()) return kernel.CloneObstacle();
  return kernel.NotInsertable(instruction, request.position);
}

// What runs besides the sequence, and what is lost.
void CostsOfTrampoline(const KernelAnalysis& kernel, SitePlan& plan) {
  const Instruction& displaced = kernel.instructions()[plan.instruction];
  plan.injected_instructions += kJumps;
  if (displaced.ends_program) --plan.injected_instructions;  // no jump back
  if (NeedsDeallocGuard(kernel, displaced)) ++plan.injected_instructions;
  if (NeedsLdsBranchGuard(kernel.isa().generation(), displaced)) {
    plan.injected_instructions += 2;
    plan.drains_waits = true;
  }
  plan.broken_clause = kernel.SplittableClause(plan.instruction);
}

// No jump, and no clause lost: but for the s_clause of the clause's second part.
void CostsInClone(const KernelAnalysis& kernel, SitePlan& plan) {
  const uint32_t next = plan.instruction + (plan.position == Position::kAfter ? 1 : 0);
  if (next >= kernel.instructions().size()) return;
  if (NeedsDeallocGuard(kernel, kernel.instructions()[next])) ++plan.injected_instructions;
  const std::optional<uint32_t> clause = kernel.SplittableClause(plan.instruction);
  if (!clause || next == *clause) return;
  const uint32_t last = *clause + kernel.instructions()[*clause].clause_length;
  if (next < last) ++plan.injected_instructions;
}

class TrampolineRewriter final : public Rewriter {
 public:
  std::variant<SitePlan, Refusal> Plan(const KernelAnalysis& kernel, uint32_t instruction,
                                       const ProbeRequest& request) override;
  std::variant<EntryPlan, Refusal> PlanEntry(const KernelAnalysis& kernel,
                                             const ProbeRequest& request) override;
  absl::StatusOr<RewriteResult> Emit(const CodeObject& object,
                                     const std::vector<const KernelAnalysis*>& kernels,
                                     const std::vector<SitePlan>& plans, bool beside) override;

 private:
  absl::StatusOr<std::vector<SiteCode>> MakeSites(const KernelsByIndex& kernels,
                                                  const std::vector<SitePlan>& plans);
  absl::Status MakeBody(SiteCode& site, const std::vector<SitePlan>& plans);
  absl::Status Append(const KernelAnalysis& kernel, const std::string& text, SiteCode& site);
  absl::Status AppendDisplaced(SiteCode& site);
  std::optional<Refusal> PlanCounter(const KernelAnalysis& kernel, const ProbeRequest& request,
                                     SitePlan& plan);
  std::optional<Refusal> PlanRecord(const KernelAnalysis& kernel, const ProbeRequest& request,
                                    SitePlan& plan);
  std::optional<Refusal> PlanSequence(const KernelAnalysis& kernel, const ProbeRequest& request,
                                      SitePlan& plan);
  absl::StatusOr<BranchEncoding> EncodingFor(const KernelAnalysis& kernel);
  absl::Status PadEnd(const KernelAnalysis& kernel, std::vector<uint8_t>& segment);

  AssemblyCache cache_;
};

void TakeRegisters(const RegisterChoice& registers, AssemblyCache& cache, SitePlan& plan) {
  plan.temporaries = cache.Share(registers.temporaries);
  plan.grown = cache.Share(registers.grown);
  plan.required_sgprs = registers.required_sgprs;
  plan.required_vgprs = registers.required_vgprs;
  plan.sgpr_delta = registers.sgpr_delta;
  plan.vgpr_delta = registers.vgpr_delta;
}

Refusal AssemblerFailed(const absl::Status& status) {
  return {Reason::kAssemblerFailed, "", "", std::string(status.message())};
}

std::optional<Refusal> TrampolineRewriter::PlanCounter(const KernelAnalysis& kernel,
                                                       const ProbeRequest& request,
                                                       SitePlan& plan) {
  RegisterChoice registers;
  if (Counts(request.probe)) {
    std::variant<RegisterChoice, Refusal> choice =
        ChooseRegisters(kernel, plan.instruction, request);
    if (Refusal* refusal = std::get_if<Refusal>(&choice)) return std::move(*refusal);
    registers = std::get<RegisterChoice>(choice);
    TakeRegisters(registers, cache_, plan);
    plan.telemetry_bytes_per_event = kCounterBytes;
  }
  absl::StatusOr<SharedSequence> sequence =
      BuildSequence(kernel, request.probe, request.counter_index, registers, cache_);
  if (!sequence.ok()) return AssemblerFailed(sequence.status());
  plan.sequence = std::move(sequence->bytes);
  plan.fixups = std::move(sequence->fixups);
  plan.injected_instructions = sequence->instructions;
  plan.drains_waits = Counts(request.probe) && kernel.isa().generation().guards_wait;
  return std::nullopt;
}

std::optional<Refusal> OnlyCounters(const KernelAnalysis& kernel) {
  if (!kernel.isa().generation().load_wait.empty()) return std::nullopt;
  return Refusal{Reason::kOnlyCounters, kernel.object().target().processor, "",
                 "what writes records or is a user's runs on other processors only"};
}

// Sequence, registers and layout of a probe that writes records.
std::optional<Refusal> TrampolineRewriter::PlanRecord(const KernelAnalysis& kernel,
                                                      const ProbeRequest& request, SitePlan& plan) {
  auto content = ContentOf(kernel, plan.instruction, request);
  if (Refusal* refusal = std::get_if<Refusal>(&content)) return std::move(*refusal);
  const RecordContent& wanted = std::get<RecordContent>(content);
  auto choice = ChooseRecordRegisters(kernel, plan.instruction, request, wanted.needs);
  if (Refusal* refusal = std::get_if<Refusal>(&choice)) return std::move(*refusal);
  const RegisterChoice& registers = std::get<RegisterChoice>(choice);
  TakeRegisters(registers, cache_, plan);
  auto sequence = BuildRecordSequence(kernel, request, wanted, registers, cache_);
  if (!sequence.ok()) return AssemblerFailed(sequence.status());
  plan.sequence = std::move(sequence->bytes);
  plan.fixups = std::move(sequence->fixups);
  plan.injected_instructions = sequence->instructions;
  plan.record = wanted.layout;
  plan.telemetry_bytes_per_event = wanted.layout.bytes;
  plan.drains_waits = true;  // for its place
  return std::nullopt;
}

std::optional<Refusal> TrampolineRewriter::PlanSequence(const KernelAnalysis& kernel,
                                                        const ProbeRequest& request,
                                                        SitePlan& plan) {
  const bool user = request.probe == Probe::kUser;
  if (!user && !WritesRecords(request.probe)) return PlanCounter(kernel, request, plan);
  if (std::optional<Refusal> refusal = OnlyCounters(kernel)) return refusal;
  return user ? PlanUserProbe(kernel, request, cache_, plan) : PlanRecord(kernel, request, plan);
}

std::variant<SitePlan, Refusal> TrampolineRewriter::Plan(const KernelAnalysis& kernel,
                                                         uint32_t instruction,
                                                         const ProbeRequest& request) {
  if (std::optional<Refusal> refusal = Impossible(kernel, instruction, request)) return *refusal;
  SitePlan plan;
  plan.instruction = instruction;
  plan.kernel_index = kernel.kernel_index();
  plan.probe = request.probe;
  plan.position = request.position;
  plan.placement = request.placement;
  plan.required_sgprs = HighestSgpr(kernel);
  plan.required_vgprs = HighestVgpr(kernel);
  std::optional<Refusal> refusal = PlanSequence(kernel, request, plan);
  if (refusal) return *std::move(refusal);
  if (request.placement == Placement::kClone) {
    CostsInClone(kernel, plan);
  } else {
    CostsOfTrampoline(kernel, plan);
  }
  return plan;
}

// One entry, to which nothing comes back: there the ids are copied to registers that
// nothing else mentions.
std::variant<EntryPlan, Refusal> TrampolineRewriter::PlanEntry(const KernelAnalysis& kernel,
                                                               const ProbeRequest& request) {
  if (std::optional<Refusal> refusal = Impossible(kernel, 0, request)) return *refusal;
  if (std::optional<Refusal> refusal = OnlyCounters(kernel)) return *std::move(refusal);
  const bool again = kernel.has_indirect_branch() || !kernel.blocks()[0].predecessors.empty() ||
                     (kernel.kernel().descriptor.kernarg_preload & 0x7f) != 0;
  const WorkgroupIds ids = WorkgroupIdsAtEntry(kernel);
  const auto known = static_cast<uint32_t>(
      std::count_if(ids.begin(), ids.end(), [](const auto& id) { return id.has_value(); }));
  if (again || known == 0 || kernel.isa().generation().workgroup_id_in_ttmp) {
    return Refusal{Reason::kWorkgroupIdLost, absl::StrCat(known, " ids"),
                   "a single entry with an id",
                   "the kernel's beginning is no place to keep the workgroup's id"};
  }
  std::vector<uint16_t> kept;
  auto choice = ChooseKeptScalars(kernel, request, known, &kept);
  if (Refusal* refusal = std::get_if<Refusal>(&choice)) return std::move(*refusal);
  EntryPlan entry;
  entry.plan.kernel_index = kernel.kernel_index();
  entry.plan.probe = Probe::kTraceExec;
  entry.plan.placement = request.placement;
  TakeRegisters(std::get<RegisterChoice>(choice), cache_, entry.plan);
  SequenceWriter out(kernel, cache_);
  out.Lines(kernel.isa().generation().head_guard);
  for (size_t axis = 0, n = 0; axis < ids.size(); ++axis) {
    if (!ids[axis]) continue;
    out.Line(absl::StrCat("s_mov_b32 ", SgprText(kept[n]), ", ", SgprText(*ids[axis])));
    entry.kept.Add(kept[n]);
    entry.workgroup_ids[axis] = kept[n++];
  }
  out.Lines(kernel.isa().generation().tail_guard);
  out.KeepApart();
  auto sequence = out.Finish();
  if (!sequence.ok()) return AssemblerFailed(sequence.status());
  entry.plan.sequence = std::move(sequence->bytes);
  entry.plan.injected_instructions = sequence->instructions;
  if (request.placement == Placement::kTrampoline) CostsOfTrampoline(kernel, entry.plan);
  return entry;
}

absl::Status TrampolineRewriter::Append(const KernelAnalysis& kernel, const std::string& text,
                                        SiteCode& site) {
  const auto bytes = cache_.Assemble(AssemblyKey(kernel), kernel.isa(), text);
  if (!bytes.ok()) return bytes.status();
  site.body.insert(site.body.end(), (*bytes)->begin(), (*bytes)->end());
  return absl::OkStatus();
}

absl::Status TrampolineRewriter::AppendDisplaced(SiteCode& site) {
  const KernelAnalysis& kernel = *site.kernel;
  const Instruction& displaced = kernel.instructions()[site.instruction];
  site.displaced = static_cast<uint32_t>(site.body.size());
  // Moved as it is an s_clause would cover the branch back.
  if (displaced.is_clause) return Append(kernel, kBrokenClause, site);
  if (NeedsDeallocGuard(kernel, displaced)) {
    if (absl::Status status = Append(kernel, kDeallocGuard, site); !status.ok()) return status;
  }
  const absl::Span<const uint8_t> bytes = kernel.code().subspan(displaced.offset, displaced.size);
  site.displaced = static_cast<uint32_t>(site.body.size());
  site.body.insert(site.body.end(), bytes.begin(), bytes.end());
  site.ends_program = displaced.ends_program;
  return absl::OkStatus();
}

void AppendSequences(const std::vector<SitePlan>& plans, Position position, SiteCode& site) {
  site.sequences.resize(site.plans.size());
  for (size_t n = 0; n < site.plans.size(); ++n) {
    const size_t p = site.plans[n];
    if (plans[p].position != position) continue;
    site.sequences[n] = static_cast<uint32_t>(site.body.size());
    for (WordFixup fixup : plans[p].fixups) {
      fixup.offset += site.body.size();
      site.fixups.push_back(fixup);
    }
    site.body.insert(site.body.end(), plans[p].sequence.begin(), plans[p].sequence.end());
  }
}

absl::Status TrampolineRewriter::MakeBody(SiteCode& site, const std::vector<SitePlan>& plans) {
  const KernelAnalysis& kernel = *site.kernel;
  const Instruction& displaced = kernel.instructions()[site.instruction];
  const bool guarded = NeedsLdsBranchGuard(kernel.isa().generation(), displaced);
  if (guarded) {
    if (absl::Status status = Append(kernel, kLdsBranchGuard, site); !status.ok()) return status;
  }
  AppendSequences(plans, Position::kBefore, site);
  if (displaced.branch) {
    uint32_t word = 0;
    std::memcpy(&word, kernel.code().data() + displaced.offset, sizeof(word));
    site.branch = DisplacedBranch{*displaced.target_offset,
                                  displaced.conditional ? word & ~uint32_t{0xffff} : 0};
    return absl::OkStatus();
  }
  if (absl::Status status = AppendDisplaced(site); !status.ok()) return status;
  if (guarded) {
    if (absl::Status status = Append(kernel, kLdsBranchGuard, site); !status.ok()) return status;
  }
  AppendSequences(plans, Position::kAfter, site);
  return absl::OkStatus();
}

KernelsByIndex ByIndex(const std::vector<const KernelAnalysis*>& kernels) {
  KernelsByIndex by_index;
  for (const KernelAnalysis* kernel : kernels) {
    if (kernel != nullptr) by_index[kernel->kernel_index()] = kernel;
  }
  return by_index;
}

// Every plan names an instruction, and a kernel's plans agree on the placement.
absl::Status CheckPlans(const KernelsByIndex& by_index, const std::vector<SitePlan>& plans,
                        bool beside) {
  std::map<size_t, Placement> placements;
  for (size_t p = 0; p < plans.size(); ++p) {
    const SitePlan& plan = plans[p];
    const auto found = by_index.find(plan.kernel_index);
    if (found == by_index.end() || plan.instruction >= found->second->instructions().size()) {
      return absl::InternalError(absl::StrCat("plan ", p, " names kernel ", plan.kernel_index,
                                              ", instruction ", plan.instruction,
                                              ", for which no analysis was given"));
    }
    if (placements.emplace(plan.kernel_index, plan.placement).first->second != plan.placement) {
      return absl::InternalError(
          absl::StrCat("the plans of kernel ", plan.kernel_index, " disagree on its placement"));
    }
    if (beside && plan.placement != Placement::kClone) {
      return absl::InternalError(
          absl::StrCat("plan ", p, " is for a trampoline, in an image beside the original"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SiteCode>> TrampolineRewriter::MakeSites(
    const KernelsByIndex& by_index, const std::vector<SitePlan>& plans) {
  struct Key {
    uint64_t entry;
    size_t kernel;
    uint32_t instruction;
    auto operator<=>(const Key&) const = default;
  };
  std::vector<std::pair<Key, size_t>> order;  // of the plans, by site
  order.reserve(plans.size());
  for (size_t p = 0; p < plans.size(); ++p) {
    if (plans[p].placement != Placement::kTrampoline) continue;
    const KernelAnalysis* kernel = by_index.at(plans[p].kernel_index);
    order.push_back(
        {{kernel->kernel().entry_vaddr, plans[p].kernel_index, plans[p].instruction}, p});
  }
  std::sort(order.begin(), order.end());
  std::vector<SiteCode> result;
  result.reserve(order.size());
  for (size_t n = 0; n < order.size(); ++n) {
    const auto& [key, p] = order[n];
    if (n == 0 || order[n - 1].first != key) {
      SiteCode& site = result.emplace_back();
      site.kernel = by_index.at(key.kernel);
      site.instruction = key.instruction;
    }
    result.back().broken_clause = plans[p].broken_clause;
    result.back().plans.push_back(p);
  }
  for (SiteCode& site : result) {
    if (absl::Status status = MakeBody(site, plans); !status.ok()) return status;
  }
  return result;
}

absl::StatusOr<BranchEncoding> TrampolineRewriter::EncodingFor(const KernelAnalysis& kernel) {
  BranchEncoding encoding;
  absl::StatusOr<uint32_t> branch = AssembleWord(cache_, kernel, "s_branch 0");
  if (!branch.ok()) return branch.status();
  absl::StatusOr<uint32_t> nop = AssembleWord(cache_, kernel, "s_nop 0");
  if (!nop.ok()) return nop.status();
  absl::StatusOr<uint32_t> zero_pair = AssembleWord(cache_, kernel, "s_mov_b64 s[0:1], 0");
  if (!zero_pair.ok()) return zero_pair.status();
  encoding.zero_pair = *zero_pair;
  encoding.branch = *branch;
  encoding.nop = *nop;
  encoding.offset_3f_is_broken = kernel.isa().generation().guards_wait;
  return encoding;
}

// Instruction prefetch must not run into unmapped memory.
absl::Status TrampolineRewriter::PadEnd(const KernelAnalysis& kernel,
                                        std::vector<uint8_t>& segment) {
  const Generation& generation = kernel.isa().generation();
  if (generation.end_padding_bytes == 0) return absl::OkStatus();
  absl::StatusOr<uint32_t> word =
      AssembleWord(cache_, kernel, std::string(generation.end_padding_opcode));
  if (!word.ok()) return word.status();
  constexpr size_t kCacheLine = 128;
  const size_t end =
      (segment.size() + kCacheLine - 1) / kCacheLine * kCacheLine + generation.end_padding_bytes;
  for (size_t at = segment.size(); at < end; at += 4) {
    segment.resize(at + 4);
    std::memcpy(segment.data() + at, &*word, sizeof(*word));
  }
  return absl::OkStatus();
}

// Runs of adjacent words become one overwrite.
std::vector<CodeObjectEdit::Bytes> Overwrites(const std::map<uint64_t, uint32_t>& words) {
  std::vector<CodeObjectEdit::Bytes> result;
  for (const auto& [vaddr, word] : words) {
    if (result.empty() || result.back().vaddr + result.back().bytes.size() != vaddr) {
      result.push_back({vaddr, {}});
    }
    std::vector<uint8_t>& bytes = result.back().bytes;
    bytes.resize(bytes.size() + 4);
    std::memcpy(bytes.data() + bytes.size() - 4, &word, sizeof(word));
  }
  return result;
}

// Growth and moved entries, for the kernels whose sites were placed.
std::map<size_t, CodeObjectEdit::KernelChange> KernelChanges(const KernelsByIndex& kernels,
                                                             const std::vector<SitePlan>& plans,
                                                             const std::vector<EmittedSite>& sites,
                                                             const PlacedCode& placed) {
  std::map<size_t, KernelNeeds> needs;
  for (const EmittedSite& site : sites) {
    if (site.refusal) continue;
    const SitePlan& plan = plans[site.plan];
    KernelNeeds& need = needs[plan.kernel_index];
    need.kernel = kernels.at(plan.kernel_index);
    need.sgprs = std::max(need.sgprs, plan.required_sgprs);
    need.vgprs = std::max(need.vgprs, plan.required_vgprs);
  }
  std::map<size_t, CodeObjectEdit::KernelChange> changes;
  for (const auto& [index, need] : needs) {
    std::optional<CodeObjectEdit::KernelChange> change = Grow(need);
    const auto moved = placed.moved_kernels.find(index);
    if (moved != placed.moved_kernels.end()) {
      const Kernel& kernel = need.kernel->kernel();
      if (!change) {
        change.emplace();
        change->descriptor = kernel.descriptor;
      }
      change->descriptor.kernel_code_entry_byte_offset =
          static_cast<int64_t>(moved->second - kernel.descriptor_vaddr);
    }
    if (change) changes[index] = *change;
  }
  return changes;
}

// Sequences in clones carry their plans' bytes, and fixups where those say.
absl::Status AddCloneFixups(const CodeObject& image, const PlacedClones& clones,
                            const std::vector<SitePlan>& plans, RewriteResult& result) {
  for (size_t p = 0; p < plans.size(); ++p) {
    if (!clones.sequences[p]) continue;
    const SitePlan& plan = plans[p];
    const auto bytes = image.AtVaddr(*clones.sequences[p], plan.sequence.size());
    if (!std::equal(bytes.begin(), bytes.end(), plan.sequence.begin(), plan.sequence.end())) {
      return absl::InternalError(absl::StrCat("plan ", p, ": its sequence is not in the clone"));
    }
    for (const WordFixup& fixup : plan.fixups) {
      const auto offset = image.VaddrToOffset(*clones.sequences[p] + fixup.offset);
      if (!offset) return absl::InternalError("a fixup lies outside the file");
      result.fixups.push_back({*offset, fixup.high_half, fixup.addend, fixup.base});
    }
  }
  for (WordFixup fixup : clones.fixups) {
    const auto offset = image.VaddrToOffset(fixup.offset);
    if (!offset) return absl::InternalError("a fixup lies outside the file");
    fixup.offset = *offset;
    result.fixups.push_back(fixup);
  }
  return absl::OkStatus();
}

absl::Status FillResult(const std::vector<SiteCode>& sites, const PlacedClones& clones,
                        const std::vector<SitePlan>& plans, const CodeObject& object,
                        RewriteResult& result) {
  absl::StatusOr<CodeObject> image = CodeObject::Parse(result.image);
  if (!image.ok()) {
    return absl::InternalError(
        absl::StrCat("the rewritten object does not parse: ", image.status().message()));
  }
  if (absl::Status status = VerifyImage(*image, sites); !status.ok()) return status;
  for (const SiteCode& site : sites) {
    if (site.refusal) continue;
    for (const WordFixup& fixup : site.fixups) {
      const std::optional<uint64_t> offset =
          image->VaddrToOffset(site.trampoline_vaddr + fixup.offset);
      if (!offset) return absl::InternalError("a fixup lies outside the file");
      result.fixups.push_back({*offset, fixup.high_half, fixup.addend, fixup.base});
    }
  }
  if (absl::Status status = AddCloneFixups(*image, clones, plans, result); !status.ok()) {
    return status;
  }
  std::sort(result.fixups.begin(), result.fixups.end(),
            [](const WordFixup& a, const WordFixup& b) { return a.offset < b.offset; });
  result.code_growth =
      static_cast<int64_t>(result.image.size()) - static_cast<int64_t>(object.bytes().size());
  return absl::OkStatus();
}

Trampoline TrampolineOf(const SiteCode& site) {
  const Instruction& in = site.kernel->instructions()[site.instruction];
  Trampoline result;
  result.original = static_cast<uint32_t>(in.offset);
  result.anchor_vaddr = site.anchor_vaddr;
  result.vaddr = site.trampoline_vaddr;
  result.size = site.trampoline_size;
  result.displaced_vaddr = site.displaced_vaddr;
  result.displaced_size = in.size;
  return result;
}

// Fills in what became of each site and kernel. False: nothing was placed.
bool FillOutcomes(const std::vector<SiteCode>& sites, PlacedCode& placed, PlacedClones& clones,
                  const std::vector<SitePlan>& plans, RewriteResult& result) {
  std::map<size_t, KernelOutcome> outcomes;
  for (const SiteCode& site : sites) {
    for (size_t n = 0; n < site.plans.size(); ++n) {
      EmittedSite& emitted = result.sites[site.plans[n]];
      emitted.refusal = site.refusal;
      if (site.refusal) continue;
      emitted.trampoline_vaddr = site.trampoline_vaddr;
      emitted.sequence_vaddr = site.trampoline_vaddr + site.sequences[n];
    }
    const size_t index = site.kernel->kernel_index();
    outcomes[index].kernel_index = index;
    outcomes[index].code_bytes = placed.kernel_bytes[index];
    if (!site.refusal) outcomes[index].trampolines.push_back(TrampolineOf(site));
    const auto copy = placed.moved_kernels.find(index);
    if (copy != placed.moved_kernels.end()) outcomes[index].copy_vaddr = copy->second;
  }
  std::map<size_t, Refusal> not_cloned;
  for (KernelOutcome& outcome : clones.kernels) {
    if (outcome.not_cloned) not_cloned[outcome.kernel_index] = *outcome.not_cloned;
    outcomes[outcome.kernel_index] = std::move(outcome);
  }
  for (size_t p = 0; p < plans.size(); ++p) {
    if (clones.sequences[p]) {
      result.sites[p].trampoline_vaddr = result.sites[p].sequence_vaddr = *clones.sequences[p];
    }
    const auto refusal = not_cloned.find(plans[p].kernel_index);
    if (refusal != not_cloned.end()) result.sites[p].refusal = refusal->second;
  }
  for (auto& [index, outcome] : outcomes) result.kernels.push_back(std::move(outcome));
  return std::any_of(result.sites.begin(), result.sites.end(),
                     [](const EmittedSite& site) { return !site.refusal; });
}

absl::StatusOr<RewriteResult> TrampolineRewriter::Emit(
    const CodeObject& object, const std::vector<const KernelAnalysis*>& kernels,
    const std::vector<SitePlan>& plans, bool beside) {
  RewriteResult result;
  for (size_t p = 0; p < plans.size(); ++p) result.sites.push_back({p, std::nullopt, 0, 0});
  if (plans.empty()) return result;
  const absl::StatusOr<uint64_t> segment_vaddr = NewSegmentVaddr(object);
  if (!segment_vaddr.ok()) {
    const Refusal refusal{Reason::kNoSegmentSlot, "", "",
                          std::string(segment_vaddr.status().message())};
    for (EmittedSite& site : result.sites) site.refusal = refusal;
    return result;
  }
  const KernelsByIndex by_index = ByIndex(kernels);
  if (absl::Status status = CheckPlans(by_index, plans, beside); !status.ok()) return status;
  absl::StatusOr<std::vector<SiteCode>> sites = MakeSites(by_index, plans);
  if (!sites.ok()) return sites.status();
  const KernelAnalysis& any = *by_index.at(plans.front().kernel_index);
  absl::StatusOr<BranchEncoding> encoding = EncodingFor(any);
  if (!encoding.ok()) return encoding.status();

  // Trampolines first: they have to be near the code.
  PlacedCode placed;
  if (!sites->empty()) placed = PlaceSites(object, kernels, *segment_vaddr, *encoding, *sites);
  PlacedClones clones = PlaceClones(by_index, plans, *segment_vaddr, *encoding, beside, placed);
  if (!FillOutcomes(*sites, placed, clones, plans, result)) return result;

  CodeObjectEdit edit;
  edit.overwrites = Overwrites(placed.words);
  edit.kernels = KernelChanges(by_index, plans, result.sites, placed);
  edit.new_segment = std::move(placed.segment);
  if (absl::Status status = PadEnd(any, edit.new_segment); !status.ok()) return status;
  absl::StatusOr<std::vector<uint8_t>> image = WriteCodeObject(object, edit);
  if (!image.ok()) {
    return absl::InternalError(absl::StrCat("writing: ", image.status().message()));
  }
  result.image = *std::move(image);
  absl::Status status = FillResult(*sites, clones, plans, object, result);
  if (!status.ok()) return status;
  return result;
}

}  // namespace

std::unique_ptr<Rewriter> MakeTrampolineRewriter() {
  return std::make_unique<TrampolineRewriter>();
}

}  // namespace rjdbi::patch
