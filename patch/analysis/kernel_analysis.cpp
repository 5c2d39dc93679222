// Decodes a kernel once; liveness and pending sets are made on first use, block
// by block.
#include "patch/analysis/kernel_analysis.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/analysis/allocation.h"
#include "patch/analysis/clone_obstacle.h"
#include "patch/analysis/control_flow.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/analysis/liveness.h"
#include "patch/analysis/pending.h"

namespace rjdbi::patch {
namespace {

RegisterSet SpecialRegisters() {
  RegisterSet set;
  set.Add(kVccLo, kVgpr0 - kVccLo);
  return set;
}

RegisterSet AllRegisters() {
  RegisterSet set;
  set.Add(0, kNumRegisters);
  return set;
}

RegisterSet Mentions(const Instruction& in) { return in.defs | in.uses | in.partial_defs; }

// Linear sweep; an undecodable dword is stepped over.
void Sweep(Isa& isa, absl::Span<const uint8_t> code, InstructionList& instructions,
           std::optional<uint64_t>& undecodable) {
  instructions.Reserve(code.size() / 5);
  for (uint64_t offset = 0; offset + 4 <= code.size();) {
    const Instruction* in = isa.DecodeShared(code, offset);
    if (in == nullptr) {
      if (!undecodable) undecodable = offset;
      offset += 4;
      continue;
    }
    instructions.Append(in, offset);
    offset += in->size;
  }
  instructions.ShrinkToFit();
  if (!undecodable && code.size() % 4 != 0) undecodable = code.size() / 4 * 4;
}

// Everything that executable bytes outside the kernels mention (with
// `kernels_too`, the kernels as well): what a callee may use.
RegisterSet MentionedInObject(const CodeObject& object, Isa& isa, bool kernels_too) {
  std::vector<uint64_t> starts;
  for (const CodeSymbol& symbol : object.code_symbols()) {
    starts.push_back(symbol.vaddr);
    starts.push_back(symbol.vaddr + symbol.size);
  }
  for (const CodeObject::Range& range : object.executable_ranges()) {
    starts.push_back(range.begin);
    starts.push_back(range.end);
  }
  std::vector<uint64_t> entries;
  for (const Kernel& k : object.kernels()) entries.push_back(k.entry_vaddr);
  std::sort(entries.begin(), entries.end());
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  RegisterSet result;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto code = object.AtVaddr(starts[i], starts[i + 1] - starts[i]);
    const bool executable = std::any_of(
        object.executable_ranges().begin(), object.executable_ranges().end(),
        [&](const CodeObject::Range& r) { return r.begin <= starts[i] && starts[i] < r.end; });
    const bool kernel = std::binary_search(entries.begin(), entries.end(), starts[i]);
    if (code.empty() || !executable || (kernel && !kernels_too)) continue;
    InstructionList instructions;
    std::optional<uint64_t> undecodable;
    Sweep(isa, code, instructions, undecodable);
    for (size_t n = 0; n < instructions.size(); ++n) result |= Mentions(instructions.Shared(n));
  }
  return result;
}

// Operands that an access to memory may still read after it has issued. EXEC and
// the status registers are sampled when it issues.
RegisterSet ReadLate(const Instruction& in) {
  RegisterSet set;
  if (in.memory == MemoryKind::kNone) return set;
  set = in.uses;
  set.Remove(kExecLo, 2);
  set.Remove(kScc);
  set.Remove(kMode);
  return set;
}

class Analysis final : public KernelAnalysis {
 public:
  Analysis(const CodeObject& object, size_t kernel_index, Isa& isa, absl::Span<const uint8_t> code,
           ObjectFacts& facts)
      : object_(object), kernel_index_(kernel_index), isa_(isa), code_(code) {
    Sweep(isa_, code_, instructions_, undecodable_);
    const uint64_t second = isa_.generation().preload_entry;
    const bool preloads = (kernel().descriptor.kernarg_preload & 0x7f) != 0;
    if (preloads && code_.size() > second) preload_entry_ = second;
    std::vector<uint64_t> entries = {0};
    if (preload_entry_ != 0) entries.push_back(preload_entry_);
    flow_ = BuildControlFlow(instructions_, code_.size(), entries);
    clauses_ = FindClauses(instructions_);
    regions_ = FindRegions(instructions_, code_, flow_, clauses_, isa_.generation());
    for (uint32_t i = 0; i < instructions_.size() && !vgpr_numbers_; ++i) {
      if (ChangesVgprNumbers(instructions_.Shared(i), code_.subspan(instructions_.OffsetOf(i)),
                             isa_.generation())) {
        vgpr_numbers_ = i;
      }
    }
    FindMentioned(facts);
    live_cache_.resize(flow_.blocks.size());
    pending_cache_.resize(flow_.blocks.size());
  }

  void ReleaseSets() const override {
    liveness_.reset();
    pending_.reset();
    for (auto* cache : {&live_cache_, &pending_cache_}) {
      for (std::vector<RegisterSet>& sets : *cache) std::vector<RegisterSet>().swap(sets);
    }
  }

  const CodeObject& object() const override { return object_; }
  size_t kernel_index() const override { return kernel_index_; }
  const Kernel& kernel() const override { return object_.kernels()[kernel_index_]; }
  Isa& isa() const override { return isa_; }
  absl::Span<const uint8_t> code() const override { return code_; }
  const InstructionList& instructions() const override { return instructions_; }
  const std::vector<BasicBlock>& blocks() const override { return flow_.blocks; }
  const ControlFlow& flow() const override { return flow_; }
  uint8_t Regions(uint32_t i) const override { return Region(i); }
  std::optional<uint32_t> InstructionAt(uint64_t offset) const override {
    return FindInstruction(instructions_, offset);
  }
  std::optional<uint64_t> undecodable_offset() const override { return undecodable_; }
  bool Reachable(uint32_t i) const override { return flow_.reachable[flow_.block_of[i]]; }
  bool has_indirect_branch() const override { return flow_.has_indirect_branch; }
  bool has_calls() const override { return flow_.has_calls; }
  bool may_run_matrix_instructions() const override { return matrix_ || flow_.has_calls; }
  const RegisterSet& mentioned() const override { return mentioned_; }

  const RegisterSet& LiveBefore(uint32_t i) const override { return Live(i, Position::kBefore); }
  const RegisterSet& PendingBefore(uint32_t i) const override {
    return InFlight(i, Position::kBefore);
  }
  RegisterSet LiveAt(uint32_t i, Position position) const override { return Live(i, position); }
  RegisterSet PendingAt(uint32_t i, Position position) const override {
    RegisterSet pending = InFlight(i, position);
    if (position == Position::kAfter) pending |= ReadLate(instructions_[i]);
    return pending;
  }

  std::optional<uint32_t> SplittableClause(uint32_t i) const override {
    auto after = std::upper_bound(clauses_.begin(), clauses_.end(), i,
                                  [](uint32_t at, const Clause& c) { return at < c.first; });
    if (after == clauses_.begin()) return std::nullopt;
    const Clause& clause = *--after;
    if (!clause.splittable || i > clause.last) return std::nullopt;
    return clause.first;
  }

  std::optional<Refusal> Immovable(uint32_t i, Position position) const override;
  uint64_t preload_entry() const override { return preload_entry_; }
  const std::optional<Refusal>& CloneObstacle() const override { return Clone().obstacle; }
  const std::vector<PcAddress>& PcAddresses() const override { return Clone().addresses; }
  std::optional<Refusal> NotInsertable(uint32_t i, Position position) const override;

 private:
  const CloneFacts& Clone() const {
    if (!clone_) {
      clone_ = std::make_unique<CloneFacts>(FindCloneFacts(object_, kernel_index_, instructions_,
                                                           code_, flow_, clauses_, undecodable_,
                                                           preload_entry_));
    }
    return *clone_;
  }

  std::optional<Refusal> BeforeSecondEntry(const Instruction& in) const;
  std::optional<Refusal> InRegion(uint32_t i, Position position) const;

  RegisterSet Everything() const { return mentioned_ | SpecialRegisters(); }

  const RegisterSet& Live(uint32_t i, Position position) const {
    if (!liveness_) {
      liveness_ = std::make_unique<Liveness>(instructions_, flow_, isa_.wavefront_size(),
                                             Everything(), indexed_);
    }
    return Cached(live_cache_, *liveness_, i, position);
  }

  const RegisterSet& InFlight(uint32_t i, Position position) const {
    if (!pending_) {
      pending_ =
          std::make_unique<Pending>(instructions_, code_, flow_, isa_.generation(), Everything());
    }
    return Cached(pending_cache_, *pending_, i, position);
  }

  template <typename Pass>
  const RegisterSet& Cached(std::vector<std::vector<RegisterSet>>& cache, const Pass& pass,
                            uint32_t i, Position position) const {
    const uint32_t b = flow_.block_of[i];
    if (cache[b].empty()) cache[b] = pass.ForBlock(b);
    return cache[b][i - flow_.blocks[b].first + (position == Position::kAfter ? 1 : 0)];
  }

  void FindMentioned(ObjectFacts& facts) {
    bool indexes_vgprs = false, indexes_sgprs = false;
    for (size_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      mentioned_ |= Mentions(in);
      matrix_ |= in.mfma;
      indexes_vgprs |= IndexesVgprs(in);
      indexes_sgprs |= IndexesSgprs(in);
    }
    const Allocation allocation = AllocationOf(kernel(), isa_.generation());
    if (indexes_vgprs) {
      indexed_.Add(kVgpr0, allocation.arch_vgprs);
      indexed_.Add(kAgpr0, 256);
    }
    if (indexes_sgprs) indexed_.Add(kSgpr0, allocation.ordinary_sgprs);
    mentioned_ |= indexed_;
    if (flow_.unknown_code) {
      mentioned_ = AllRegisters();
    } else if (flow_.has_calls || flow_.leaves_kernel || flow_.has_indirect_branch) {
      mentioned_ |= facts.Mentioned(object_, isa_, flow_.leaves_kernel);
    }
  }

  uint8_t Region(uint32_t i) const { return regions_.empty() ? 0 : regions_[i]; }
  // What a sequence at the position would lie in. After an instruction that may
  // be displaced control goes on to the next one.
  uint8_t RegionAt(uint32_t i, Position position) const {
    uint8_t region = Region(i);
    if (position == Position::kAfter && i + 1 < instructions_.size()) {
      region |= Region(i + 1) & (kInGprIndex | kAfterDealloc);
    }
    return region;
  }

  const CodeObject& object_;
  const size_t kernel_index_;
  Isa& isa_;
  const absl::Span<const uint8_t> code_;
  InstructionList instructions_;
  std::optional<uint64_t> undecodable_;
  uint64_t preload_entry_ = 0;
  std::optional<uint32_t> vgpr_numbers_;  // an instruction that changes their meaning
  bool matrix_ = false;
  ControlFlow flow_;
  std::vector<Clause> clauses_;
  std::vector<uint8_t> regions_;
  RegisterSet mentioned_, indexed_;
  mutable std::unique_ptr<Liveness> liveness_;
  mutable std::unique_ptr<Pending> pending_;
  mutable std::unique_ptr<CloneFacts> clone_;
  mutable std::vector<std::vector<RegisterSet>> live_cache_, pending_cache_;
};

Refusal Refuse(Reason reason, std::string observed, std::string limit, std::string detail) {
  return {reason, std::move(observed), std::move(limit), std::move(detail)};
}

// Reasons that lie in the instruction itself.
std::optional<Refusal> ImmovableKind(const Instruction& in) {
  const std::string opcode(in.opcode);
  if (in.ends_program && opcode != "s_endpgm") {
    return Refuse(Reason::kSiteProgramEnd, opcode, "",
                  absl::StrCat(opcode, " does more than end the wavefront"));
  }
  if (IsIndirectTransfer(in)) {
    return Refuse(Reason::kSiteIndirectTransfer, opcode, "",
                  absl::StrCat(opcode, " transfers control to, or saves, a computed address"));
  }
  if (in.branch && !IsPlainBranch(in)) {
    return Refuse(Reason::kSiteBranch, opcode, "",
                  absl::StrCat(opcode, " depends on more than SCC, VCC and EXEC"));
  }
  if (in.reads_pc) {
    return Refuse(Reason::kSitePcRelative, opcode, "",
                  absl::StrCat(opcode, " depends on its own address"));
  }
  if (in.size < 4) {
    return Refuse(Reason::kSiteTooShort, absl::StrCat(in.size, " bytes"), "4 bytes",
                  "the instruction is shorter than a branch");
  }
  return std::nullopt;
}

std::optional<Refusal> NothingAfter(const Instruction& in) {
  if (!in.branch && !in.ends_program && !in.indirect && !IsIndirectTransfer(in)) {
    return std::nullopt;
  }
  const std::string opcode(in.opcode);
  return Refuse(Reason::kSiteNothingAfter, opcode, "",
                absl::StrCat("control does not simply go on after ", opcode));
}

std::optional<Refusal> Analysis::InRegion(uint32_t i, Position position) const {
  const Instruction& in = instructions_[i];
  if (vgpr_numbers_) {
    const Instruction& change = instructions_[*vgpr_numbers_];
    return Refuse(Reason::kSiteVgprNumbers,
                  absl::StrCat(std::string(change.opcode), " at 0x", absl::Hex(change.offset)), "",
                  "what a vector register's number means changes within the kernel");
  }
  if (RegionAt(i, position) & kInGprIndex) {
    return Refuse(Reason::kSiteInsideGprIndexRegion, std::string(in.opcode), "",
                  "vector register numbers are relative here");
  }
  if (RegionAt(i, position) & kAfterDealloc) {
    return Refuse(Reason::kSiteDealloc, std::string(in.opcode), "",
                  "the wavefront has given its vector registers back");
  }
  return std::nullopt;
}

std::optional<Refusal> Analysis::BeforeSecondEntry(const Instruction& in) const {
  if (in.offset >= preload_entry_) return std::nullopt;
  return Refuse(Reason::kKernargPreloadEntry, absl::StrCat("offset ", in.offset),
                absl::StrCat("offset ", preload_entry_),
                "only firmware without kernarg preloading runs this entry; a count taken here "
                "would miss the others");
}

std::optional<Refusal> Analysis::NotInsertable(uint32_t i, Position position) const {
  if (position == Position::kAfter) {
    if (auto refusal = NothingAfter(instructions_[i])) return refusal;
  }
  if (auto refusal = BeforeSecondEntry(instructions_[i])) return refusal;
  return InRegion(i, position);
}

std::optional<Refusal> Analysis::Immovable(uint32_t i, Position position) const {
  const Instruction& in = instructions_[i];
  if (position == Position::kAfter) {
    if (auto refusal = NothingAfter(in)) return refusal;
  }
  const auto inside =
      std::upper_bound(flow_.inside_targets.begin(), flow_.inside_targets.end(), in.offset);
  if (inside != flow_.inside_targets.end() && *inside < in.offset + in.size) {
    return Refuse(Reason::kSiteBranchTargetInside, absl::StrCat("branch target at ", *inside), "",
                  "a branch lands inside the bytes that would be displaced");
  }
  if (flow_.unknown_code) {
    return Refuse(Reason::kSiteUndecodable,
                  absl::StrCat("offset ", *flow_.unknown_code, " is reached but not decoded"), "",
                  "registers that undecoded code uses cannot be known");
  }
  if (auto refusal = ImmovableKind(in)) return refusal;
  if (auto refusal = BeforeSecondEntry(in)) return refusal;
  if ((Region(i) & kInClause) && !SplittableClause(i)) {
    return Refuse(Reason::kSiteInsideClause, std::string(in.opcode), "",
                  "the s_clause run is no straight line within the kernel, so its extent is not "
                  "known and it is not split");
  }
  return InRegion(i, position);
}

}  // namespace

bool PositionIndependent(const KernelAnalysis& kernel) {
  if (kernel.undecodable_offset() || kernel.has_calls() || kernel.has_indirect_branch()) {
    return false;
  }
  const auto size = static_cast<int64_t>(kernel.code().size());
  for (const Instruction& in : kernel.instructions()) {
    if (in.reads_pc) return false;
    if (in.target_offset && (*in.target_offset < 0 || *in.target_offset >= size)) return false;
  }
  if (kernel.blocks().empty()) return false;
  const BasicBlock& last = kernel.blocks().back();
  const Instruction& end = kernel.instructions()[last.last];
  const bool reachable = last.entry || !last.predecessors.empty();
  return !reachable || end.ends_program || (end.branch && !end.conditional);
}

const RegisterSet& ObjectFacts::Mentioned(const CodeObject& object, Isa& isa, bool kernels_too) {
  const auto [it, fresh] = mentioned_.try_emplace({&isa, kernels_too});
  if (fresh) it->second = MentionedInObject(object, isa, kernels_too);
  return it->second;
}

absl::StatusOr<std::unique_ptr<KernelAnalysis>> KernelAnalysis::Create(const CodeObject& object,
                                                                       size_t kernel_index,
                                                                       Isa& isa,
                                                                       ObjectFacts* facts) {
  if (kernel_index >= object.kernels().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel index ", kernel_index, " of ", object.kernels().size()));
  }
  const Kernel& kernel = object.kernels()[kernel_index];
  const absl::Span<const uint8_t> code = object.AtVaddr(kernel.entry_vaddr, kernel.code_size);
  if (code.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("kernel ", kernel.name, ": code at 0x",
                                                   absl::Hex(kernel.entry_vaddr), ", ",
                                                   kernel.code_size, " bytes, is not in the file"));
  }
  ObjectFacts own;
  return std::unique_ptr<KernelAnalysis>(
      new Analysis(object, kernel_index, isa, code, facts != nullptr ? *facts : own));
}

}  // namespace rjdbi::patch
