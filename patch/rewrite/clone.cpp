// Sizes first, then addresses, then words.
#include "patch/rewrite/clone.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "patch/analysis/hazard_regions.h"

namespace rjdbi::patch {
namespace {

// s_delay_alu: the first hint is for the next instruction, the second for one
// so many further on.
constexpr uint16_t kDelayFirst = 0xf, kDelaySkipShift = 4, kDelaySkip = 7;

// SOP1 on every generation: where the destination is.
constexpr uint32_t kSop1Destination = 0x7f << 16;

// One instruction's part of the clone.
struct Piece {
  const CloneInsertion* insertion = nullptr;
  uint32_t clause_ahead = 0;     // instructions that an s_clause in front of it covers; 0: none
  bool nop_ahead = false;        // s_nop 0 in front of it
  bool nop_behind = false;       // s_nop 0 behind it
  std::optional<uint32_t> word;  // instead of its first word
};

class Cloner {
 public:
  Cloner(const KernelAnalysis& kernel, const std::vector<CloneInsertion>& insertions,
         uint64_t vaddr, const BranchEncoding& encoding, bool beside)
      : kernel_(kernel),
        instructions_(kernel.instructions()),
        vaddr_(vaddr),
        encoding_(encoding),
        beside_(beside),
        pieces_(instructions_.size()) {
    for (const CloneInsertion& insertion : insertions) {
      pieces_[insertion.instruction].insertion = &insertion;
    }
  }

  std::variant<Clone, Refusal> Make() {
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      if (in.is_clause) SplitClause(i);
      if (in.opcode == "s_delay_alu") KeepDelay(i);
      // What compilers put right before the message: see the rewriter.
      pieces_[i].nop_ahead = InsertedAhead(i) && DeallocatesVgprs(instructions_[i], kernel_.code(),
                                                                  kernel_.isa().generation());
    }
    LayOut();
    while (AvoidErratum()) LayOut();
    Write();
    if (std::optional<Refusal> refusal = Branches()) return *std::move(refusal);
    for (const PcAddress& address : kernel_.PcAddresses()) Address(address);
    return std::move(clone_);
  }

 private:
  uint32_t WordOf(uint32_t i) const {
    uint32_t word = 0;
    std::memcpy(&word, kernel_.code().data() + instructions_.OffsetOf(i), sizeof word);
    return word;
  }

  // Code is inserted between instruction i - 1 and i.
  bool InsertedAhead(uint32_t i) const {
    const CloneInsertion* here = pieces_[i].insertion;
    const CloneInsertion* above = i > 0 ? pieces_[i - 1].insertion : nullptr;
    return (here != nullptr && !here->before.empty()) ||
           (above != nullptr && !above->after.empty());
  }

  uint32_t ClauseWord(uint32_t clause, uint32_t covered) const {
    return (WordOf(clause) & ~uint32_t{0x3f}) | (covered - 1);
  }

  void SplitClause(uint32_t clause) {
    const uint32_t end = clause + instructions_[clause].clause_length + 1;
    uint32_t first = clause + 1;
    for (uint32_t m = clause + 1; m <= end; ++m) {
      if (m < end && !InsertedAhead(m)) continue;
      Cover(clause, first, m - first);
      first = m;
    }
  }

  // The instructions from `first` on, up to where something was inserted.
  void Cover(uint32_t clause, uint32_t first, uint32_t covered) {
    if (first == clause + 1 && !InsertedAhead(first)) {
      if (covered != instructions_[clause].clause_length) {
        pieces_[clause].word = covered > 1 ? ClauseWord(clause, covered) : encoding_.nop;
      }
    } else if (covered == 0) {  // code right behind the s_clause
      pieces_[clause].word = encoding_.nop;
    } else if (covered > 1) {
      pieces_[first].clause_ahead = covered;
      clause_of_[first] = clause;
    }
  }

  void KeepDelay(uint32_t i) {
    const uint32_t word = WordOf(i);
    const uint32_t second = i + 1 + (word >> kDelaySkipShift & kDelaySkip);
    if (i + 1 >= instructions_.size()) return;
    if (InsertedAhead(i + 1)) {
      pieces_[i].word = word & 0xffff0000;
      return;
    }
    for (uint32_t m = i + 2; m <= second && m < instructions_.size(); ++m) {
      if (!InsertedAhead(m)) continue;
      pieces_[i].word = word & (0xffff0000 | kDelayFirst);
      return;
    }
  }

  void LayOut() {
    clone_.starts.clear();
    clone_.places.clear();
    uint64_t at = 0;
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Piece& piece = pieces_[i];
      clone_.starts.push_back(static_cast<uint32_t>(at));
      if (piece.insertion != nullptr) at += piece.insertion->before.size();
      if (piece.clause_ahead != 0) at += 4;
      if (piece.nop_ahead) at += 4;
      clone_.places.push_back(static_cast<uint32_t>(at));
      at += instructions_.Shared(i).size;
      if (piece.insertion != nullptr) at += piece.insertion->after.size();
      if (piece.nop_behind) at += 4;
    }
    size_ = at;
  }

  // Where a branch goes, as an offset into the clone.
  uint32_t Target(const Instruction& in) const {
    return clone_.starts[*kernel_.InstructionAt(static_cast<uint64_t>(*in.target_offset))];
  }

  // gfx10.1: a branch must not have the offset 0x3f. A word behind it changes
  // that, and is what runs when the branch is not taken.
  bool AvoidErratum() {
    if (!encoding_.offset_3f_is_broken) return false;
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_[i];
      if (!in.target_offset || pieces_[i].nop_behind) continue;
      if (Target(in) != clone_.places[i] + 4 + 4 * 0x3f) continue;
      pieces_[i].nop_behind = true;
      return true;
    }
    return false;
  }

  void Append(uint32_t word) {
    const size_t at = clone_.bytes.size();
    clone_.bytes.resize(at + 4);
    std::memcpy(clone_.bytes.data() + at, &word, sizeof word);
  }
  void Append(absl::Span<const uint8_t> bytes) {
    clone_.bytes.insert(clone_.bytes.end(), bytes.begin(), bytes.end());
  }
  void SetWord(uint64_t at, uint32_t word) {
    std::memcpy(clone_.bytes.data() + at, &word, sizeof word);
  }

  void Write() {
    clone_.bytes.reserve(size_);
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Piece& piece = pieces_[i];
      if (piece.insertion != nullptr) Append(piece.insertion->before);
      if (piece.clause_ahead != 0) Append(ClauseWord(clause_of_[i], piece.clause_ahead));
      if (piece.nop_ahead) Append(encoding_.nop);
      Append(kernel_.code().subspan(instructions_.OffsetOf(i), instructions_.Shared(i).size));
      if (piece.word) SetWord(clone_.places[i], *piece.word);
      if (piece.insertion != nullptr) Append(piece.insertion->after);
      if (piece.nop_behind) Append(encoding_.nop);
    }
  }

  std::optional<Refusal> Branches() {
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      if (!instructions_.Shared(i).target_offset) continue;
      const Instruction& in = instructions_[i];
      const uint64_t from = vaddr_ + clone_.places[i], to = vaddr_ + Target(in);
      const auto offset = BranchOffset(encoding_, from, to);
      if (!offset) {
        const uint64_t distance = to > from ? to - from : from - to;
        return Refusal{Reason::kNotClonable, absl::StrCat(distance, " bytes"), "131072 bytes",
                       "with the probes in line a branch of the kernel would not reach its target"};
      }
      SetWord(clone_.places[i], (WordOf(i) & 0xffff0000) | *offset);
    }
    return std::nullopt;
  }

  // The same address from elsewhere.
  void Address(const PcAddress& address) {
    const uint64_t from = vaddr_ + clone_.places[address.getpc] + 4;
    const uint64_t original =
        kernel_.kernel().entry_vaddr + instructions_[address.getpc].offset + 4;
    const uint64_t target = static_cast<uint64_t>(address.displacement) + original;
    const uint32_t low = clone_.places[address.low] + 4;
    const uint32_t high = clone_.places[address.high] + (address.high == address.low ? 8u : 4u);
    if (beside_) {
      // Nothing is carried: the words are those of the address.
      SetWord(clone_.places[address.getpc],
              encoding_.zero_pair | (WordOf(address.getpc) & kSop1Destination));
      SetWord(low, 0);
      SetWord(high, 0);
      clone_.fixups.push_back({low, false, target, FixupBase::kOriginal});
      clone_.fixups.push_back({high, true, target, FixupBase::kOriginal});
      return;
    }
    SetWord(low, static_cast<uint32_t>(target - from));
    SetWord(high, static_cast<uint32_t>((target - from) >> 32));
  }

  const KernelAnalysis& kernel_;
  const InstructionList& instructions_;
  const uint64_t vaddr_;
  const BranchEncoding& encoding_;
  const bool beside_;
  std::vector<Piece> pieces_;
  std::map<uint32_t, uint32_t> clause_of_;  // instruction -> s_clause, for those with clause_ahead
  uint64_t size_ = 0;
  Clone clone_;
};

constexpr uint64_t kKernelAlignment = 256;

// A plan's sequence within its instruction's insertion.
struct PlanPlace {
  size_t plan = 0;
  uint32_t instruction = 0;
  Position position = Position::kBefore;
  uint64_t offset = 0;
};

void Insert(const SitePlan& plan, size_t index, std::map<uint32_t, CloneInsertion>& insertions,
            std::vector<PlanPlace>& places) {
  CloneInsertion& insertion = insertions[plan.instruction];
  insertion.instruction = plan.instruction;
  std::vector<uint8_t>& bytes =
      plan.position == Position::kBefore ? insertion.before : insertion.after;
  places.push_back({index, plan.instruction, plan.position, bytes.size()});
  bytes.insert(bytes.end(), plan.sequence.begin(), plan.sequence.end());
}

KernelOutcome OutcomeOf(const KernelAnalysis& kernel, const Clone& clone, uint64_t vaddr) {
  KernelOutcome outcome;
  outcome.kernel_index = kernel.kernel_index();
  outcome.placement = Placement::kClone;
  outcome.code_bytes = clone.bytes.size();
  outcome.clone_vaddr = vaddr;
  outcome.pcs.reserve(clone.places.size());
  for (size_t i = 0; i < clone.places.size(); ++i) {
    outcome.pcs.push_back(
        {static_cast<uint32_t>(kernel.instructions().OffsetOf(i)), clone.places[i]});
  }
  return outcome;
}

}  // namespace

PlacedClones PlaceClones(const std::map<size_t, const KernelAnalysis*>& kernels,
                         const std::vector<SitePlan>& plans, uint64_t base,
                         const BranchEncoding& encoding, bool beside, PlacedCode& placed) {
  std::map<size_t, std::vector<size_t>> by_kernel;
  for (size_t p = 0; p < plans.size(); ++p) {
    if (plans[p].placement == Placement::kClone) by_kernel[plans[p].kernel_index].push_back(p);
  }
  PlacedClones result;
  result.sequences.resize(plans.size());
  size_t room = placed.segment.size();  // about what it will come to: growing copies
  for (const auto& [index, wanted] : by_kernel) {
    room += kernels.at(index)->code().size() + 2 * kKernelAlignment;
    for (size_t p : wanted) room += plans[p].sequence.size();
  }
  placed.segment.reserve(room);
  for (const auto& [index, wanted] : by_kernel) {
    const KernelAnalysis& kernel = *kernels.at(index);
    std::map<uint32_t, CloneInsertion> by_instruction;
    std::vector<PlanPlace> places;
    for (size_t p : wanted) Insert(plans[p], p, by_instruction, places);
    std::vector<CloneInsertion> insertions;
    for (auto& [instruction, insertion] : by_instruction) {
      insertions.push_back(std::move(insertion));
    }
    const uint64_t end = base + placed.segment.size();
    const uint64_t vaddr = (end + kKernelAlignment - 1) / kKernelAlignment * kKernelAlignment;
    auto made = MakeClone(kernel, insertions, vaddr, encoding, beside);
    if (auto* refusal = std::get_if<Refusal>(&made)) {
      KernelOutcome& outcome = result.kernels.emplace_back();
      outcome.kernel_index = index;
      outcome.not_cloned = std::move(*refusal);
      continue;
    }
    const Clone& clone = std::get<Clone>(made);
    while (base + placed.segment.size() < vaddr) {
      const auto* nop = reinterpret_cast<const uint8_t*>(&encoding.nop);
      placed.segment.insert(placed.segment.end(), nop, nop + sizeof encoding.nop);
    }
    placed.segment.insert(placed.segment.end(), clone.bytes.begin(), clone.bytes.end());
    placed.moved_kernels[index] = vaddr;
    for (WordFixup fixup : clone.fixups) {
      fixup.offset += vaddr;
      result.fixups.push_back(fixup);
    }
    for (const PlanPlace& place : places) {
      const uint32_t i = place.instruction;
      const uint64_t at = place.position == Position::kBefore
                              ? clone.starts[i]
                              : clone.places[i] + kernel.instructions()[i].size;
      result.sequences[place.plan] = vaddr + at + place.offset;
    }
    result.kernels.push_back(OutcomeOf(kernel, clone, vaddr));
  }
  return result;
}

std::variant<Clone, Refusal> MakeClone(const KernelAnalysis& kernel,
                                       const std::vector<CloneInsertion>& insertions,
                                       uint64_t vaddr, const BranchEncoding& encoding,
                                       bool beside) {
  return Cloner(kernel, insertions, vaddr, encoding, beside).Make();
}

}  // namespace rjdbi::patch
