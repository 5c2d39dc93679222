// See validate.h.
#include "contract/validate.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "contract/catalogue.h"
#include "contract/longest_path.h"
#include "contract/occupancy.h"
#include "contract/seams.h"
#include "contract/text.h"
#include "contract/validate_clone.h"

namespace rjdbi::contract {
namespace {

using patch::CodeObject;
using patch::EmittedSite;
using patch::Instruction;
using patch::Kernel;
// The kernel as the proof decodes it, not the engine's.
using KernelAnalysis = KernelCode;
using patch::RegisterSet;
using patch::Segment;
using patch::SitePlan;
using patch::WordFixup;

constexpr size_t kMaxFindings = 16;
constexpr int kMaxBranchHops = 64;

struct ByteRange {
  uint64_t begin = 0, end = 0;
};

template <typename T>
std::optional<T> Load(absl::Span<const uint8_t> bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// s_nop 0, on every generation.
constexpr uint8_t kNop0[] = {0x00, 0x00, 0x80, 0xbf};

// Instructions that the rewriter may put around a sequence: they only wait.
bool IsGuard(std::string_view op) {
  return op == "s_nop" || op == "s_waitcnt_depctr" || op == "s_wait_xcnt" || op == "s_wait_alu" ||
         op == "s_waitcnt_vscnt";
}

// One site of the kernel: the plans that share it, in order.
struct SiteGroup {
  const KernelAnalysis* kernel = nullptr;
  uint32_t instruction = 0;
  uint64_t trampoline = 0;
  uint64_t base = 0;   // the kernel's first instruction in the image
  bool moved = false;  // the kernel runs from a copy in the new segment
  absl::Span<const size_t> plans;
};

class Validator {
 public:
  Validator(const CodeObject& original, const std::vector<const patch::KernelAnalysis*>& kernels,
            const std::vector<SitePlan>& plans, const patch::RewriteResult& result, bool beside,
            ObjectCode& code)
      : original_(original), plans_(plans), result_(result), beside_(beside), image_(result.image) {
    for (const patch::KernelAnalysis* k : kernels) {
      analyses_[k->kernel_index()] =
          std::make_unique<const KernelCode>(code, k->kernel_index(), k->isa());
    }
  }

  ValidationReport Run();

 private:
  void Find(std::string what, uint64_t vaddr = 0) {
    if (report_.findings.size() < kMaxFindings)
      report_.findings.push_back({std::move(what), vaddr});
  }
  bool full() const { return report_.findings.size() >= kMaxFindings; }

  bool CheckSegments();
  void CheckProgramHeaders();
  void GroupSites();
  void CheckSite(const SiteGroup& group);
  void CheckClauses();
  void CheckCopies();
  void CheckClones();
  void CheckSeams();
  void CheckSeam(const SitePlan& plan);
  bool HasMatrixInstructions(const KernelAnalysis& kernel);
  void CheckClone(const KernelAnalysis& kernel, const std::vector<size_t>& indices);
  std::optional<uint64_t> FollowBranches(patch::Isa& isa, uint64_t vaddr, bool at_anchor,
                                         uint64_t stop, uint32_t* executed);
  std::optional<uint64_t> CheckSequences(const SiteGroup& group, patch::Position position,
                                         uint64_t at, uint32_t* executed);
  void CheckDisplaced(const SiteGroup& group, uint64_t at, uint32_t* executed);
  void CheckDisplacedBranch(const SiteGroup& group, uint64_t at, uint32_t* executed);
  void CheckWay(const SiteGroup& group, uint64_t at, uint64_t to, uint32_t* executed);
  void CheckRegisters(const SiteGroup& group);
  // What an admitted sequence is, from its bytes; the same ones come many times.
  struct SequenceFacts {
    uint32_t instructions = 0;
    RegisterSet used;
    std::optional<std::string> seam_hazard;
  };
  const SequenceFacts& FactsOf(patch::Isa& isa, const std::vector<uint8_t>& sequence);
  void CheckMissingWaits();
  void CheckMissingWaits(const KernelAnalysis& kernel);
  WaitEffects wait_effects_;
  void CheckDescriptors();
  void CheckMetadata(const Kernel& before, const Kernel& after, bool changed);
  void CheckFixups();
  void CheckUnchangedBytes();
  const Instruction* DecodeAt(patch::Isa& isa, uint64_t vaddr);
  std::optional<uint32_t> CoveringClause(const KernelAnalysis& kernel, uint32_t i);
  void FindCovered();
  bool InNewSegment(uint64_t vaddr) const {
    return vaddr >= new_segment_.vaddr && vaddr - new_segment_.vaddr < new_segment_.filesz;
  }
  bool InGap(uint64_t vaddr, uint64_t size) const;
  void AllowOriginal(uint64_t vaddr, uint64_t size);

  const KernelAnalysis* AnalysisOf(size_t kernel_index) const {
    const auto it = analyses_.find(kernel_index);
    return it == analyses_.end() ? nullptr : it->second.get();
  }

  const CodeObject& original_;
  std::unordered_map<size_t, std::unique_ptr<const KernelCode>> analyses_;  // by kernel index
  const std::vector<SitePlan>& plans_;
  const patch::RewriteResult& result_;
  const bool beside_;
  absl::Span<const uint8_t> image_;
  std::optional<CodeObject> patched_;
  Segment new_segment_;
  std::vector<size_t> placed_plans_;                      // by kernel, instruction, plan
  std::vector<SiteGroup> groups_;                         // by kernel and instruction
  std::map<size_t, std::vector<size_t>> clones_;          // kernel index -> plans
  std::unordered_map<size_t, uint64_t> clone_sequences_;  // plan -> where Emit says it is
  std::vector<ByteRange> covered_;                        // functions of the original, by begin
  std::vector<uint64_t> covered_to_;                      // highest end of those up to here
  std::vector<ByteRange> allowed_;  // file ranges of the original that may differ
  std::vector<WordFixup> expected_fixups_;
  std::map<std::pair<patch::Isa*, std::string_view>, SequenceFacts> sequences_;  // of plans_
  // Plans share their code, which does not move while this works.
  absl::flat_hash_map<std::pair<patch::Isa*, const uint8_t*>, const SequenceFacts*> by_place_;
  std::unordered_map<const KernelAnalysis*, bool> matrix_;  // kernels looked at
  std::set<size_t> touched_kernels_;
  std::unordered_map<const KernelAnalysis*, std::vector<uint32_t>> clauses_;  // every s_clause
  std::map<const KernelAnalysis*, std::set<uint32_t>> split_clauses_;         // s_clause -> s_nop 0
  ValidationReport report_;
};

void Validator::AllowOriginal(uint64_t vaddr, uint64_t size) {
  if (auto offset = original_.VaddrToOffset(vaddr)) allowed_.push_back({*offset, *offset + size});
}

bool SameSegment(const Segment& a, const Segment& b) {
  return a.vaddr == b.vaddr && a.memsz == b.memsz && a.offset == b.offset && a.filesz == b.filesz &&
         a.flags == b.flags;
}

bool Validator::CheckSegments() {
  const auto& before = original_.segments();
  const auto& after = patched_->segments();
  if (after.size() != before.size() + 1) {
    Find(StrCat("the image has ", after.size(), " load segments, expected ", before.size() + 1));
    return false;
  }
  uint64_t highest = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!SameSegment(before[i], after[i])) {
      Find(StrCat("load segment ", i, " differs from the original's"), before[i].vaddr);
    }
    highest = std::max(highest, before[i].vaddr + before[i].memsz);
  }
  new_segment_ = after.back();
  if (new_segment_.vaddr < highest) Find("the new segment overlaps others", new_segment_.vaddr);
  if (new_segment_.flags != (PF_R | PF_X)) {
    Find("the new segment is not read-execute", new_segment_.vaddr);
  }
  if (new_segment_.offset < original_.bytes().size()) {
    Find("the new segment's bytes lie within the original file", new_segment_.vaddr);
  }
  if (original_.target().ToString() != patched_->target().ToString()) Find("the target changed");
  return true;
}

// Entry counts and kinds: only GNU_STACK may have been recycled.
void Validator::CheckProgramHeaders() {
  const auto a = Load<Elf64_Ehdr>(original_.bytes(), 0), b = Load<Elf64_Ehdr>(image_, 0);
  if (!a || !b) return Find("the ELF header is gone");
  if (std::memcmp(a->e_ident, b->e_ident, EI_NIDENT) != 0 || a->e_type != b->e_type ||
      a->e_machine != b->e_machine || a->e_flags != b->e_flags || a->e_entry != b->e_entry) {
    Find("the ELF header's identity changed");
  }
  allowed_.push_back({0, sizeof(Elf64_Ehdr)});
  allowed_.push_back({a->e_phoff, a->e_phoff + uint64_t{a->e_phnum} * sizeof(Elf64_Phdr)});
  for (uint16_t i = 0; i < a->e_phnum; ++i) {
    const auto p = Load<Elf64_Phdr>(original_.bytes(), a->e_phoff + i * sizeof(Elf64_Phdr));
    if (p && p->p_type == PT_NOTE) allowed_.push_back({p->p_offset, p->p_offset + p->p_filesz});
    const auto q = Load<Elf64_Phdr>(image_, b->e_phoff + i * sizeof(Elf64_Phdr));
    if (!p || !q) continue;
    const bool free_to_change = p->p_type == PT_NOTE || p->p_type == PT_GNU_STACK ||
                                p->p_type == PT_PHDR || p->p_type == PT_GNU_RELRO;
    if (!free_to_change && std::memcmp(&*p, &*q, sizeof *p) != 0) {
      Find(StrCat("program header ", i, " differs from the original's"), p->p_vaddr);
    }
  }
  // The section header table is outside every segment and may be superseded.
  const uint64_t size = uint64_t{a->e_shnum} * a->e_shentsize;
  if (a->e_shoff <= original_.bytes().size() && size <= original_.bytes().size() - a->e_shoff) {
    bool mapped = false;
    for (const Segment& s : original_.segments()) {
      mapped |= a->e_shoff < s.offset + s.filesz && s.offset < a->e_shoff + size;
    }
    if (!mapped) allowed_.push_back({a->e_shoff, a->e_shoff + size});
  }
}

void Validator::GroupSites() {
  std::unordered_map<size_t, uint64_t> trampolines;  // by plan
  for (const EmittedSite& site : result_.sites) {
    if (site.refusal) continue;
    if (site.plan >= plans_.size()) {
      Find("an emitted site names no plan");
      continue;
    }
    const SitePlan& plan = plans_[site.plan];
    if (plan.placement == patch::Placement::kClone) {
      clones_[plan.kernel_index].push_back(site.plan);
      clone_sequences_[site.plan] = site.trampoline_vaddr;
      touched_kernels_.insert(plan.kernel_index);
      continue;
    }
    if (beside_) {
      Find("a trampoline is in an image that is to be loaded beside the original",
           site.trampoline_vaddr);
      continue;
    }
    // The first that is named says where the site's trampoline is.
    trampolines.try_emplace(site.plan, site.trampoline_vaddr);
    placed_plans_.push_back(site.plan);
  }
  const auto key = [this](size_t p) {
    return std::pair(plans_[p].kernel_index, plans_[p].instruction);
  };
  // Stable: in a group, in the order in which they were emitted.
  std::stable_sort(placed_plans_.begin(), placed_plans_.end(),
                   [&](size_t a, size_t b) { return key(a) < key(b); });
  const absl::Span<size_t> placed = absl::MakeSpan(placed_plans_);
  for (size_t begin = 0, end = 0; begin < placed.size(); begin = end) {
    const auto [kernel_index, instruction] = key(placed[begin]);
    while (end < placed.size() && key(placed[end]) == key(placed[begin])) ++end;
    SiteGroup g;
    g.kernel = AnalysisOf(kernel_index);
    g.instruction = instruction;
    g.trampoline = trampolines[placed[begin]];
    std::sort(placed.begin() + begin, placed.begin() + end);
    g.plans = placed.subspan(begin, end - begin);
    if (g.kernel == nullptr || g.instruction >= g.kernel->instructions().size()) {
      Find("a plan names no instruction of the object");
      continue;
    }
    touched_kernels_.insert(kernel_index);
    if (kernel_index >= patched_->kernels().size()) continue;  // found by CheckDescriptors
    g.base = patched_->kernels()[kernel_index].entry_vaddr;
    g.moved = g.base != g.kernel->kernel().entry_vaddr;
    groups_.push_back(g);
  }
}

// The s_clause that covers instruction i, or is it. Counted here from the code
// alone, whatever the plans say; the innermost, should there be several.
std::optional<uint32_t> Validator::CoveringClause(const KernelAnalysis& kernel, uint32_t i) {
  constexpr uint32_t kLongest = 64;  // six bits, and one
  const auto& instructions = kernel.instructions();
  const auto [found, fresh] = clauses_.try_emplace(&kernel);
  std::vector<uint32_t>& all = found->second;
  if (fresh) {
    for (uint32_t n = 0; n < instructions.size(); ++n) {
      if (instructions.Shared(n).opcode == "s_clause") all.push_back(n);
    }
  }
  for (auto it = std::upper_bound(all.begin(), all.end(), i); it != all.begin();) {
    const uint32_t back = i - *--it;
    if (back > kLongest) break;
    if (instructions.Shared(*it).clause_length >= back) return *it;
  }
  return std::nullopt;
}

const Instruction* Validator::DecodeAt(patch::Isa& isa, uint64_t vaddr) {
  // The longest encoding is 20 bytes; near a segment's end fewer are there.
  for (uint64_t size : {uint64_t{20}, uint64_t{12}, uint64_t{8}, uint64_t{4}}) {
    const absl::Span<const uint8_t> bytes = patched_->AtVaddr(vaddr, size);
    if (!bytes.empty()) return isa.DecodeShared(bytes, 0);
  }
  return nullptr;
}

void Validator::FindCovered() {
  for (const patch::CodeSymbol& s : original_.code_symbols()) {
    covered_.push_back({s.vaddr, s.vaddr + s.size});
  }
  for (const Kernel& k : original_.kernels()) {
    covered_.push_back({k.entry_vaddr, k.entry_vaddr + k.code_size});
  }
  std::sort(covered_.begin(), covered_.end(),
            [](const ByteRange& x, const ByteRange& y) { return x.begin < y.begin; });
  uint64_t end = 0;
  for (const ByteRange& r : covered_) covered_to_.push_back(end = std::max(end, r.end));
}

// Between functions: outside every symbol, inside an executable section.
bool Validator::InGap(uint64_t vaddr, uint64_t size) const {
  bool executable = false;
  for (const CodeObject::Range& r : original_.executable_ranges()) {
    executable |= vaddr >= r.begin && vaddr + size <= r.end;
  }
  const auto behind =
      std::lower_bound(covered_.begin(), covered_.end(), vaddr + size,
                       [](const ByteRange& r, uint64_t at) { return r.begin < at; });
  const auto before = static_cast<size_t>(behind - covered_.begin());
  return executable && (before == 0 || covered_to_[before - 1] <= vaddr);
}

// Follows unconditional direct branches to `stop`, or to the first instruction
// that is none.
std::optional<uint64_t> Validator::FollowBranches(patch::Isa& isa, uint64_t vaddr, bool at_anchor,
                                                  uint64_t stop, uint32_t* executed) {
  for (int hop = 0; hop < kMaxBranchHops; ++hop) {
    if (vaddr == stop) return vaddr;
    const Instruction* ins = DecodeAt(isa, vaddr);
    if (ins == nullptr) {
      Find("a branch leads to bytes that do not decode", vaddr);
      return std::nullopt;
    }
    const bool direct = ins->branch && !ins->conditional && !ins->indirect && !ins->call &&
                        ins->target_offset.has_value();
    if (!direct) return vaddr;
    if (!(at_anchor && hop == 0) && !InNewSegment(vaddr)) {
      // A relay: only in a gap, where nothing of the application's is.
      if (!InGap(vaddr, ins->size)) return vaddr;
      AllowOriginal(vaddr, ins->size);
    }
    ++*executed;
    vaddr += static_cast<uint64_t>(*ins->target_offset);
  }
  Find("a chain of branches does not end", vaddr);
  return std::nullopt;
}

// `bytes` are the plan's sequence, the words that the agent writes apart.
bool SameButFixups(const SitePlan& plan, absl::Span<const uint8_t> bytes) {
  for (size_t i = 0;; ++i) {
    i = static_cast<size_t>(std::mismatch(plan.sequence.begin() + static_cast<ptrdiff_t>(i),
                                          plan.sequence.end(),
                                          bytes.begin() + static_cast<ptrdiff_t>(i))
                                .first -
                            plan.sequence.begin());
    if (i == plan.sequence.size()) return true;
    const bool fixup = std::any_of(plan.fixups.begin(), plan.fixups.end(), [i](const auto& f) {
      return i >= f.offset && i < f.offset + 4;
    });
    if (!fixup) return false;
  }
}

// Compares the trampoline from `at` on with the sequences admitted for a
// position. Returns the address behind them.
std::optional<uint64_t> Validator::CheckSequences(const SiteGroup& group, patch::Position position,
                                                  uint64_t at, uint32_t* executed) {
  patch::Isa& isa = group.kernel->isa();
  for (size_t index : group.plans) {
    const SitePlan& plan = plans_[index];
    if (plan.position != position) continue;
    // Guards of the rewriter's own may stand before a sequence.
    while (true) {
      const auto bytes = patched_->AtVaddr(at, plan.sequence.size());
      if (!plan.sequence.empty() && bytes.empty()) {
        Find("the trampoline ends inside a sequence", at);
        return std::nullopt;
      }
      if (SameButFixups(plan, bytes)) break;
      const auto ins = DecodeAt(isa, at);
      if (!ins || !IsGuard(ins->opcode)) {
        Find("the trampoline is not the admitted sequence", at);
        return std::nullopt;
      }
      at += ins->size;
      ++*executed;
    }
    for (const WordFixup& f : plan.fixups) {
      WordFixup expected = f;
      if (auto offset = patched_->VaddrToOffset(at + f.offset)) {
        expected.offset = *offset;
        expected_fixups_.push_back(expected);
      } else {
        Find("a fixup lies outside the image", at + f.offset);
      }
    }
    *executed += FactsOf(isa, plan.sequence).instructions;
    at += plan.sequence.size();
  }
  return at;
}

// Direct branches, and nothing else, lead from `at` to `to`.
void Validator::CheckWay(const SiteGroup& group, uint64_t at, uint64_t to, uint32_t* executed) {
  const auto landed = FollowBranches(group.kernel->isa(), at, false, to, executed);
  if (!landed || *landed == to) return;
  Find(StrCat("the way back leads to 0x", absl::Hex(*landed), ", expected 0x", absl::Hex(to)), at);
}

// A branch at the site is made anew: unconditional, by the way out itself; else
// the same condition, then the way on, then the way to the target.
void Validator::CheckDisplacedBranch(const SiteGroup& group, uint64_t at, uint32_t* executed) {
  const KernelAnalysis& k = *group.kernel;
  const Instruction& site = k.instructions()[group.instruction];
  for (auto ins = DecodeAt(k.isa(), at); ins && IsGuard(ins->opcode); ins = DecodeAt(k.isa(), at)) {
    at += ins->size;
    ++*executed;
  }
  const auto word = Load<uint32_t>(k.code(), site.offset);
  if (!word || !site.target_offset || site.size != 4 || site.indirect || site.call) {
    return Find("a branch was displaced that is no direct one", at);
  }
  const uint64_t target = group.base + static_cast<uint64_t>(*site.target_offset);
  if (!site.conditional) return CheckWay(group, at, target, executed);
  const auto copy = Load<uint32_t>(patched_->AtVaddr(at, 4), 0);
  if (!copy || *copy != ((*word & 0xffff0000) | 1)) {
    return Find("the displaced branch's condition is not in the trampoline", at);
  }
  uint32_t on = 0, taken = 0;
  CheckWay(group, at + 4, group.base + site.offset + site.size, &on);
  CheckWay(group, at + 8, target, &taken);
  *executed += std::max(on, taken);
}

void Validator::CheckDisplaced(const SiteGroup& group, uint64_t at, uint32_t* executed) {
  const KernelAnalysis& k = *group.kernel;
  const Instruction& site = k.instructions()[group.instruction];
  patch::Isa& isa = k.isa();
  absl::Span<const uint8_t> original = k.code().subspan(site.offset, site.size);
  // An s_clause would cover the way back; only s_nop 0 may stand for it.
  if (site.opcode == "s_clause") original = kNop0;
  while (true) {
    const auto bytes = patched_->AtVaddr(at, site.size);
    if (!bytes.empty() && std::equal(bytes.begin(), bytes.end(), original.begin())) break;
    const auto ins = DecodeAt(isa, at);
    if (!ins || !IsGuard(ins->opcode)) {
      return Find(StrCat("the displaced instruction is not in the trampoline: expected ",
                         absl::BytesToHexString(absl::string_view(
                             reinterpret_cast<const char*>(original.data()), site.size))),
                  at);
    }
    at += ins->size;
    ++*executed;
  }
  if (site.ends_program) return;  // nothing runs behind it
  const auto behind = CheckSequences(group, patch::Position::kAfter, at + site.size, executed);
  if (!behind) return;
  uint64_t next = *behind;
  for (auto ins = DecodeAt(isa, next); ins && IsGuard(ins->opcode); ins = DecodeAt(isa, next)) {
    next += ins->size;
    ++*executed;
  }
  CheckWay(group, next, group.base + site.offset + site.size, executed);
}

const Validator::SequenceFacts& Validator::FactsOf(patch::Isa& isa,
                                                   const std::vector<uint8_t>& sequence) {
  const SequenceFacts*& same = by_place_[{&isa, sequence.data()}];
  if (same != nullptr) return *same;
  std::string_view bytes(reinterpret_cast<const char*>(sequence.data()), sequence.size());
  const auto [it, fresh] = sequences_.try_emplace({&isa, bytes});
  same = &it->second;
  if (!fresh) return it->second;
  SequenceFacts& facts = it->second;
  for (uint64_t offset = 0; offset < sequence.size();) {
    const Instruction* ins = isa.DecodeShared(sequence, offset);
    if (ins == nullptr) break;  // judged before
    facts.used |= ins->defs | ins->uses | ins->partial_defs;
    offset += ins->size;
  }
  facts.seam_hazard = SeamHazard(isa, sequence);
  facts.instructions = LongestPath(isa, sequence);
  return facts;
}

// By now the image is known to hold these very bytes.
void Validator::CheckSeams() {
  for (const EmittedSite& site : result_.sites) {
    if (full()) return;
    if (site.refusal || site.plan >= plans_.size()) continue;
    CheckSeam(plans_[site.plan]);
  }
}

void Validator::CheckSeam(const SitePlan& plan) {
  const KernelAnalysis* kernel = AnalysisOf(plan.kernel_index);
  if (kernel == nullptr) return;
  std::optional<std::string> hazard = FactsOf(kernel->isa(), plan.sequence).seam_hazard;
  if (!hazard && HasMatrixInstructions(*kernel)) {
    RegisterSet vectors = kernel->mentioned();
    vectors.Remove(0, patch::kVgpr0);
    // What the site's own instruction reads, the application keeps its distance from.
    // (A matrix instruction needs less for its addend than others do.)
    RegisterSet settled;
    if (plan.instruction < kernel->instructions().size()) {
      const Instruction& site = kernel->instructions().Shared(plan.instruction);
      if (!site.mfma) settled = site.uses.get();
    }
    hazard = MatrixHazard(kernel->isa(), plan.sequence, vectors, settled);
  }
  if (!hazard || plan.instruction >= kernel->instructions().size()) return;
  Find(StrCat("a sequence keeps no distance: ", *hazard),
       kernel->kernel().entry_vaddr + kernel->instructions().OffsetOf(plan.instruction));
}

bool Validator::HasMatrixInstructions(const KernelAnalysis& kernel) {
  const auto [it, fresh] = matrix_.try_emplace(&kernel, kernel.has_calls());
  for (size_t i = 0; fresh && !it->second && i < kernel.instructions().size(); ++i) {
    it->second = kernel.instructions().Shared(i).mfma;
  }
  return it->second;
}

void Validator::CheckRegisters(const SiteGroup& group) {
  const KernelAnalysis& k = *group.kernel;
  if (k.kernel_index() >= patched_->kernels().size()) return;
  const Kernel& after = patched_->kernels()[k.kernel_index()];
  const Allocation a =
      DescriptorAllocation(k.isa().generation(), after.descriptor, after.wavefront_size);
  RegisterSet used;
  for (size_t index : group.plans) {
    used |= FactsOf(k.isa(), plans_[index].sequence).used;
  }
  // What the kernel itself mentions it has: of the allocation's top, too, which is
  // reckoned to be VCC's and kin. Sequences read addresses and arguments there.
  if (!k.has_calls()) used -= k.mentioned();
  const auto check = [&](uint16_t first, uint32_t from, uint32_t to) {
    if (from >= to || used.CountIn(static_cast<uint16_t>(first + from), to - from) == 0) return;
    for (uint32_t i = from; i < to; ++i) {
      if (!used.Has(static_cast<uint16_t>(first + i))) continue;
      return Find(
          StrCat("the trampoline uses ", patch::RegisterName(static_cast<uint16_t>(first + i)),
                 ", outside the allocation of ", from),
          group.trampoline);
    }
  };
  check(patch::kSgpr0, a.usable_sgprs, patch::kVccLo);
  check(patch::kVgpr0, a.arch_vgprs, 256);
  check(patch::kAgpr0, a.agprs, 256);
}

void Validator::CheckSite(const SiteGroup& group) {
  const KernelAnalysis& k = *group.kernel;
  const Instruction& site = k.instructions()[group.instruction];
  const uint64_t anchor = group.base + site.offset;
  if (!group.moved) AllowOriginal(anchor, site.size);
  uint32_t executed = 0;
  const auto anchor_ins = DecodeAt(k.isa(), anchor);
  if (!anchor_ins || !anchor_ins->branch || anchor_ins->size > site.size) {
    return Find("the anchor is not a branch within the site's bytes", anchor);
  }
  const auto landed = FollowBranches(k.isa(), anchor, true, group.trampoline, &executed);
  if (!landed) return;
  if (!InNewSegment(*landed)) {
    return Find("the anchor does not lead to the new segment", anchor);
  }
  if (*landed != group.trampoline) {
    return Find(StrCat("the anchor leads to 0x", absl::Hex(*landed), ", the trampoline is at 0x",
                       absl::Hex(group.trampoline)),
                anchor);
  }
  for (size_t index : group.plans) {
    if (plans_[index].position == patch::Position::kAfter && (site.branch || site.ends_program)) {
      return Find("a sequence was admitted behind an instruction that nothing follows", anchor);
    }
  }
  const auto displaced =
      CheckSequences(group, patch::Position::kBefore, group.trampoline, &executed);
  if (!displaced) return;
  if (site.branch) {
    CheckDisplacedBranch(group, *displaced, &executed);
  } else {
    CheckDisplaced(group, *displaced, &executed);
  }
  CheckRegisters(group);
  for (size_t index : group.plans) report_.executed_instructions[index] = executed;
}

// A clause around a site is split, by s_nop 0 in the s_clause's place, and no
// other is touched. An s_clause that is a site has been checked as one.
void Validator::CheckClauses() {
  const auto place = [](const SiteGroup& g) {
    return std::pair(g.kernel->kernel_index(), g.instruction);
  };
  for (const SiteGroup& g : groups_) {
    const auto clause = CoveringClause(*g.kernel, g.instruction);
    if (!clause) continue;
    const std::pair at(g.kernel->kernel_index(), *clause);
    const auto site = std::lower_bound(
        groups_.begin(), groups_.end(), at,
        [&](const SiteGroup& group, const auto& wanted) { return place(group) < wanted; });
    if (site != groups_.end() && place(*site) == at) continue;
    const uint64_t vaddr = g.base + g.kernel->instructions()[*clause].offset;
    const auto word = patched_->AtVaddr(vaddr, sizeof kNop0);
    if (!std::equal(word.begin(), word.end(), std::begin(kNop0), std::end(kNop0))) {
      Find("the clause around a site is not split", vaddr);
      continue;
    }
    split_clauses_[g.kernel].insert(*clause);
    if (!g.moved) AllowOriginal(vaddr, sizeof kNop0);
  }
}

// A kernel that runs from a copy: the same bytes, anchors and split clauses
// apart, of code that does not depend on where it lies.
void Validator::CheckCopies() {
  std::map<const KernelAnalysis*, std::vector<const SiteGroup*>> copies;
  for (const SiteGroup& g : groups_) {
    if (g.moved) copies[g.kernel].push_back(&g);
  }
  for (const auto& [k, sites] : copies) {
    const uint64_t base = sites.front()->base;
    const auto code = k->code();
    const auto copy = patched_->AtVaddr(base, code.size());
    if (!InNewSegment(base) || copy.size() != code.size() || base % 256 != 0) {
      Find("a kernel's entry was moved, and not to an aligned copy in the new segment", base);
      continue;
    }
    for (const Instruction& ins : k->instructions()) {
      const bool leaves =
          ins.target_offset &&
          (*ins.target_offset < 0 || *ins.target_offset >= static_cast<int64_t>(code.size()));
      if (!ins.reads_pc && !ins.call && !ins.indirect && !leaves) continue;
      Find("a kernel was copied whose code depends on its address", base + ins.offset);
      break;
    }
    std::vector<ByteRange> anchors;
    for (const SiteGroup* g : sites) {
      const Instruction& ins = k->instructions()[g->instruction];
      anchors.push_back({ins.offset, ins.offset + ins.size});
    }
    for (const uint32_t clause : split_clauses_[k]) {
      const Instruction& ins = k->instructions()[clause];
      anchors.push_back({ins.offset, ins.offset + ins.size});
    }
    std::sort(anchors.begin(), anchors.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
    anchors.push_back({code.size(), code.size()});
    uint64_t at = 0;
    for (const ByteRange& anchor : anchors) {
      if (!std::equal(code.begin() + at, code.begin() + anchor.begin, copy.begin() + at)) {
        Find("a kernel's copy differs from the kernel", base + at);
        break;
      }
      at = anchor.end;
    }
  }
}

void Validator::CheckClones() {
  for (auto& [index, indices] : clones_) {
    if (full()) return;
    const KernelAnalysis* kernel = AnalysisOf(index);
    const bool known = kernel != nullptr && index < patched_->kernels().size() &&
                       std::all_of(indices.begin(), indices.end(), [&](size_t plan) {
                         return plans_[plan].instruction < kernel->instructions().size();
                       });
    if (!known) {
      Find("a plan names no instruction of the object");
      continue;
    }
    std::sort(indices.begin(), indices.end());
    CheckClone(*kernel, indices);
  }
}

// The descriptor leads to the clone, and the clone is proven. The original needs
// no word here: none of its bytes may differ.
void Validator::CheckClone(const KernelAnalysis& kernel, const std::vector<size_t>& indices) {
  const uint64_t base = patched_->kernels()[kernel.kernel_index()].entry_vaddr;
  if (!InNewSegment(base) || base % 256 != 0) {
    return Find("a kernel's entry does not lead to an aligned clone in the new segment", base);
  }
  const auto claimed = std::find_if(
      result_.kernels.begin(), result_.kernels.end(),
      [&](const patch::KernelOutcome& o) { return o.kernel_index == kernel.kernel_index(); });
  if (claimed == result_.kernels.end() || claimed->placement != patch::Placement::kClone) {
    return Find("a clone has no map", base);
  }
  const auto code = patched_->AtVaddr(base, new_segment_.vaddr + new_segment_.filesz - base);
  CloneProof proof = ProveClone(kernel, plans_, indices, *claimed, code, base, beside_);
  for (ValidationFinding& f : proof.findings) Find(std::move(f.what), f.vaddr);
  if (!proof.findings.empty()) return;
  for (const auto& [index, vaddr] : proof.sequences) {
    if (clone_sequences_[index] != vaddr) {
      Find("a sequence is not where the rewriter says", vaddr);
    }
    for (const WordFixup& f : plans_[index].fixups) {
      WordFixup expected = f;
      expected.offset = *patched_->VaddrToOffset(vaddr + f.offset);
      expected_fixups_.push_back(expected);
      if (f.base != patch::FixupBase::kCounters) {
        Find("a sequence was admitted that is to be given the original's address", vaddr);
      }
    }
  }
  for (WordFixup f : proof.fixups) {
    f.offset = *patched_->VaddrToOffset(base + f.offset);
    expected_fixups_.push_back(f);
  }
  for (const auto& [index, executed] : proof.executed) {
    report_.executed_instructions[index] = executed;
  }
  SiteGroup group;
  group.kernel = &kernel;
  group.trampoline = base;
  group.plans = indices;
  CheckRegisters(group);
}

// Where an instruction of the image comes from, by address.
std::unordered_map<uint64_t, uint64_t> Origins(const patch::KernelOutcome& outcome,
                                               uint64_t original, uint64_t base) {
  std::unordered_map<uint64_t, uint64_t> origins;
  for (const patch::PcMapEntry& pc : outcome.pcs) {
    origins[outcome.clone_vaddr + pc.emitted] = original + pc.original;
  }
  for (const patch::Trampoline& t : outcome.trampolines) {
    origins[t.displaced_vaddr] = original + t.original;
    origins.try_emplace(base + t.original, 0);  // the anchor is nobody's
  }
  return origins;
}

void Validator::CheckMissingWaits() {
  for (const size_t index : touched_kernels_) {
    const KernelAnalysis* kernel = AnalysisOf(index);
    if (full() || kernel == nullptr || index >= patched_->kernels().size()) continue;
    CheckMissingWaits(*kernel);
  }
}

// What is missing in both is the application's.
void Validator::CheckMissingWaits(const KernelAnalysis& kernel) {
  const uint64_t original = kernel.kernel().entry_vaddr;
  const uint64_t base = patched_->kernels()[kernel.kernel_index()].entry_vaddr;
  // The original costs as much again: it is asked when there is something to compare.
  const WaitReport after = CheckWaits(kernel.isa(), CodeIn(*patched_), base, &wait_effects_);
  if (after.complete && after.findings.empty()) return;
  const WaitReport before = CheckWaits(kernel.isa(), CodeIn(original_), original, &wait_effects_);
  for (const WaitFinding& f : before.findings) {
    report_.application_waits.push_back({kernel.kernel_index(), f});
  }
  // Where control goes to computed addresses it cannot be searched, and plans do without:
  // see DeadClaim::landed.
  const bool searchable = !kernel.unknown_targets() && !kernel.broken();
  if (!after.complete && (before.complete || searchable)) {
    Find("not all of the patched code could be searched for missing waits", base);
    report_.findings.back().constraint = id::kMissingWait;
  }
  if (after.findings.empty()) return;
  const auto outcome = std::find_if(
      result_.kernels.begin(), result_.kernels.end(),
      [&](const patch::KernelOutcome& o) { return o.kernel_index == kernel.kernel_index(); });
  std::unordered_map<uint64_t, uint64_t> origins;
  bool in_line = false;
  if (outcome != result_.kernels.end()) {
    origins = Origins(*outcome, original, base);
    in_line = outcome->placement == patch::Placement::kClone;
  }
  const auto origin = [&](uint64_t vaddr) {
    const auto found = origins.find(vaddr);
    if (found != origins.end()) return found->second;
    const bool in_place = !in_line && vaddr >= base && vaddr - base < kernel.code().size();
    return in_place ? vaddr - base + original : 0;
  };
  std::set<std::pair<uint64_t, uint64_t>> known;
  for (const WaitFinding& f : before.findings) known.insert({f.vaddr, f.producer});
  for (const WaitFinding& f : after.findings) {
    if (full()) return;
    if (known.count({origin(f.vaddr), origin(f.producer)}) != 0) continue;
    Find(DescribeWait(f, kernel.isa(), CodeIn(*patched_)), f.vaddr);
    report_.findings.back().constraint = id::kMissingWait;
  }
}

// Only these descriptor fields may change, and only upwards.
constexpr uint32_t kRsrc1Registers = 0x3ff;  // VGPR granules, SGPR granules
constexpr uint32_t kRsrc3AccumOffset = 0x3f;

void Validator::CheckDescriptors() {
  const auto& before = original_.kernels();
  const auto& after = patched_->kernels();
  if (before.size() != after.size()) {
    return Find(
        StrCat("the image has ", after.size(), " kernels, the original has ", before.size()));
  }
  for (size_t i = 0; i < before.size() && !full(); ++i) {
    const Kernel &a = before[i], &b = after[i];
    const bool touched = touched_kernels_.count(i) != 0;
    if (a.name != b.name || a.descriptor_vaddr != b.descriptor_vaddr ||
        (a.entry_vaddr != b.entry_vaddr && !touched) || a.wavefront_size != b.wavefront_size) {
      Find(StrCat("kernel ", a.name, " moved or changed its name"), a.descriptor_vaddr);
      continue;
    }
    CheckMetadata(a, b, touched);
    if (!touched) continue;
    AllowOriginal(a.descriptor_vaddr, 64);
    const auto x = original_.AtVaddr(a.descriptor_vaddr, 64);
    const auto y = patched_->AtVaddr(b.descriptor_vaddr, 64);
    if (x.empty() || y.empty()) {
      Find("a kernel descriptor is not backed by the file", a.descriptor_vaddr);
      continue;
    }
    // Mask the register fields out, then every byte has to agree.
    std::vector<uint8_t> xm(x.begin(), x.end()), ym(y.begin(), y.end());
    patch::KernelDescriptor dx = a.descriptor, dy = b.descriptor;
    const KernelAnalysis* analysis = AnalysisOf(i);
    const bool unified = analysis != nullptr && analysis->isa().generation().unified_vgpr_file;
    // A moved entry is judged with the copy; the offset must say just that.
    dx.kernel_code_entry_byte_offset = static_cast<int64_t>(b.entry_vaddr - a.descriptor_vaddr);
    for (auto* d : {&dx, &dy}) {
      d->compute_pgm_rsrc1 &= ~kRsrc1Registers;
      if (unified) d->compute_pgm_rsrc3 &= ~kRsrc3AccumOffset;
    }
    dx.Write(xm.data());
    dy.Write(ym.data());
    if (xm != ym) {
      Find(StrCat("the descriptor of ", a.name, " differs in more than register counts"),
           a.descriptor_vaddr);
    }
    if (analysis == nullptr) continue;
    const patch::Generation& g = analysis->isa().generation();
    const Allocation p = DescriptorAllocation(g, a.descriptor, a.wavefront_size);
    const Allocation q = DescriptorAllocation(g, b.descriptor, b.wavefront_size);
    // Accumulation registers begin where the others end: unused ones may go.
    const bool agprs_lost =
        q.agprs < 256 &&
        analysis->mentioned().HasAny(static_cast<uint16_t>(patch::kAgpr0 + q.agprs), 256 - q.agprs);
    if (q.sgprs < p.sgprs || q.vgprs < p.vgprs || q.arch_vgprs < p.arch_vgprs ||
        (q.agprs < p.agprs && agprs_lost)) {
      Find(StrCat("the register allocation of ", a.name, " shrank"), a.descriptor_vaddr);
    }
  }
}

void Validator::CheckMetadata(const Kernel& before, const Kernel& after, bool changed) {
  const patch::KernelMetadata &a = before.metadata, &b = after.metadata;
  const bool same_rest =
      a.name == b.name && a.symbol == b.symbol && a.sgpr_spill_count == b.sgpr_spill_count &&
      a.vgpr_spill_count == b.vgpr_spill_count &&
      a.group_segment_fixed_size == b.group_segment_fixed_size &&
      a.private_segment_fixed_size == b.private_segment_fixed_size &&
      a.kernarg_segment_size == b.kernarg_segment_size && a.wavefront_size == b.wavefront_size &&
      a.max_flat_workgroup_size == b.max_flat_workgroup_size &&
      a.uses_dynamic_stack == b.uses_dynamic_stack;
  const bool same_counts =
      a.sgpr_count == b.sgpr_count && a.vgpr_count == b.vgpr_count && a.agpr_count == b.agpr_count;
  if (!same_rest || (!changed && !same_counts)) {
    Find(StrCat("the metadata of ", before.name, " changed"), before.descriptor_vaddr);
  }
}

void Validator::CheckFixups() {
  // Should two sequences share a word, the later one counts.
  std::stable_sort(expected_fixups_.begin(), expected_fixups_.end(),
                   [](const WordFixup& x, const WordFixup& y) { return x.offset < y.offset; });
  const auto later =
      std::unique(expected_fixups_.rbegin(), expected_fixups_.rend(),
                  [](const WordFixup& x, const WordFixup& y) { return x.offset == y.offset; });
  expected_fixups_.erase(expected_fixups_.begin(), later.base());
  std::vector<bool> seen(expected_fixups_.size(), false);
  size_t found = 0;
  for (const WordFixup& f : result_.fixups) {
    const auto it =
        std::lower_bound(expected_fixups_.begin(), expected_fixups_.end(), f.offset,
                         [](const WordFixup& x, uint64_t offset) { return x.offset < offset; });
    const auto index = static_cast<size_t>(it - expected_fixups_.begin());
    if (it == expected_fixups_.end() || it->offset != f.offset || it->high_half != f.high_half ||
        it->addend != f.addend || it->base != f.base || seen[index]) {
      Find(StrCat("the fixup at file offset ", f.offset, " belongs to no admitted sequence",
                  beside_ ? " nor to a clone's address" : ""));
      continue;
    }
    seen[index] = true;
    ++found;
  }
  if (found != expected_fixups_.size()) {
    Find(StrCat(expected_fixups_.size() - found, " fixups are missing"));
  }
}

void Validator::CheckUnchangedBytes() {
  const auto a = original_.bytes();
  if (image_.size() < a.size()) return Find("the image is shorter than the original");
  std::sort(allowed_.begin(), allowed_.end(),
            [](const ByteRange& x, const ByteRange& y) { return x.begin < y.begin; });
  uint64_t at = 0;
  const auto compare = [&](uint64_t end) {
    end = std::min<uint64_t>(end, a.size());
    if (at >= end) return;
    const auto [x, y] = std::mismatch(a.begin() + at, a.begin() + end, image_.begin() + at);
    if (x == a.begin() + end) return;
    const auto offset = static_cast<uint64_t>(x - a.begin());
    uint64_t vaddr = 0;
    for (const Segment& s : original_.segments()) {
      if (offset >= s.offset && offset - s.offset < s.filesz) vaddr = s.vaddr + offset - s.offset;
    }
    Find(StrCat("an original byte changed at file offset ", offset), vaddr);
  };
  for (const ByteRange& r : allowed_) {
    compare(r.begin);
    at = std::max(at, r.end);
    if (full()) return;
  }
  compare(a.size());
}

ValidationReport Validator::Run() {
  report_.executed_instructions.assign(plans_.size(), 0);
  auto parsed = CodeObject::Parse(image_);
  if (!parsed.ok()) {
    Find(StrCat("the image does not parse: ", parsed.status().message()));
    return std::move(report_);
  }
  patched_ = *std::move(parsed);
  if (!CheckSegments()) return std::move(report_);
  CheckProgramHeaders();
  GroupSites();
  FindCovered();
  for (const SiteGroup& g : groups_) {
    if (full()) break;
    CheckSite(g);
  }
  CheckClauses();
  CheckCopies();
  CheckClones();
  CheckSeams();
  CheckMissingWaits();
  CheckDescriptors();
  CheckFixups();
  CheckUnchangedBytes();
  return std::move(report_);
}

}  // namespace

ValidationReport ValidateImage(const CodeObject& original,
                               const std::vector<const patch::KernelAnalysis*>& kernels,
                               const std::vector<SitePlan>& plans,
                               const patch::RewriteResult& result, bool beside, ObjectCode* code) {
  std::optional<ObjectCode> own;
  return Validator(original, kernels, plans, result, beside,
                   code != nullptr ? *code : own.emplace(original))
      .Run();
}

}  // namespace rjdbi::contract
