// See validate_clone.h.
#include "contract/validate_clone.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "contract/longest_path.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
// The kernel as the proof decodes it, not the engine's.
using KernelAnalysis = KernelCode;
using patch::KernelOutcome;
using patch::Position;
using patch::SitePlan;
using Kind = patch::InstructionOperand::Kind;

// s_nop 0, on every generation.
constexpr uint32_t kNop0 = 0xbf800000;
// SOP1 on every generation: the source, and its constant 0; where the destination is.
constexpr uint32_t kInlineZero = 0x80, kSop1Source = 0xff, kSop1Destination = 0x7f << 16;
// The generation on which a branch must not have this offset.
constexpr std::string_view kErratumFamily = "gfx10.1";
constexpr uint16_t kErratumOffset = 0x3f;

// A direct branch that is nothing but that.
bool IsPlain(const Instruction& in) {
  return in.target_offset && in.size == 4 && !in.call && !in.reads_pc && !in.indirect &&
         (in.opcode == "s_branch" || (in.opcode.substr(0, 10) == "s_cbranch_" &&
                                      in.opcode.find("fork") == std::string_view::npos &&
                                      in.opcode.find("join") == std::string_view::npos));
}

// Returns behind itself, wherever that is.
bool SwapsPc(const Instruction& in) {
  return in.opcode == "s_swappc_b64" || in.opcode == "s_swap_pc_i64";
}

bool IsHint(const Instruction& in) {
  return in.opcode == "s_nop" || in.opcode == "s_delay_alu" || in.waitcnt;
}

bool IsRegister(const Instruction& in, size_t operand, unsigned reg, unsigned count = 1) {
  return operand < in.operands.size() && in.operands[operand].kind == Kind::kRegister &&
         in.operands[operand].reg == reg && in.operands[operand].count == count;
}

class Prover {
 public:
  Prover(const KernelAnalysis& kernel, const std::vector<SitePlan>& plans,
         const std::vector<size_t>& wanted, const KernelOutcome& claimed,
         absl::Span<const uint8_t> code, uint64_t base, bool beside)
      : kernel_(kernel),
        instructions_(kernel.instructions()),
        plans_(plans),
        claimed_(claimed),
        code_(code),
        base_(base),
        beside_(beside),
        first_words_(instructions_.size()),
        clauses_ahead_(instructions_.size()),
        literal_free_(instructions_.size()),
        zeroed_(instructions_.size()),
        before_(instructions_.size()),
        after_(instructions_.size()) {
    for (size_t index : wanted) {
      const SitePlan& plan = plans[index];
      plans_at_[plan.instruction].push_back(index);
      if (plan.sequence.empty()) continue;
      (plan.position == Position::kBefore ? before_ : after_)[plan.instruction] = true;
    }
  }

  CloneProof Prove() {
    if (Preconditions() && ExpectClauses() && ExpectAddresses()) {
      ExpectDelays();
      if (Walk() && SecondEntry() && Branches()) Addresses();
    }
    return std::move(proof_);
  }

 private:
  bool Find(std::string what, uint64_t vaddr) {
    proof_.findings.push_back({std::move(what), vaddr});
    return false;
  }
  uint64_t OriginalVaddr(uint32_t i) const {
    return kernel_.kernel().entry_vaddr + instructions_.OffsetOf(i);
  }
  uint32_t OriginalWord(uint64_t offset) const {
    uint32_t word = 0;
    std::memcpy(&word, kernel_.code().data() + offset, sizeof word);
    return word;
  }
  std::optional<uint32_t> Word(uint64_t at) const {
    if (at + 4 > code_.size()) return std::nullopt;
    uint32_t word = 0;
    std::memcpy(&word, code_.data() + at, sizeof word);
    return word;
  }
  bool Is(uint64_t at, uint32_t word) const { return Word(at) == word; }

  // A sequence runs between instruction i - 1 and i.
  bool Interrupted(uint32_t i) const { return before_[i] || (i > 0 && after_[i - 1]); }

  // The code is all of it instructions, goes nowhere else, and has one entry.
  bool Preconditions() {
    uint64_t at = 0;
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      if (instructions_.OffsetOf(i) != at)
        return Find("a kernel was cloned that does not decode", OriginalVaddr(i));
      at += in.size;
      const bool arithmetic = in.opcode.starts_with("v_") && !in.branch && !in.target_offset;
      if (arithmetic && !in.call && !in.indirect) continue;
      if (SwapsPc(in)) continue;
      const bool elsewhere = in.call || in.indirect || (in.branch && !IsPlain(in)) ||
                             in.opcode.find("_pc_rel") != std::string_view::npos ||
                             in.opcode.find("s_rfe") == 0 ||
                             in.opcode.find("fork") != in.opcode.npos;
      if (elsewhere) {
        return Find("a kernel was cloned whose control or data depends on its address",
                    OriginalVaddr(i));
      }
      if (in.target_offset) targets_.insert(*instructions_[i].target_offset);
    }
    if (at == 0 || at != kernel_.code().size()) {
      return Find("a kernel was cloned that does not decode", kernel_.kernel().entry_vaddr);
    }
    if (kernel_.runs_off()) {
      return Find("a kernel was cloned that control leaves at its end",
                  OriginalVaddr(static_cast<uint32_t>(instructions_.size() - 1)));
    }
    if (claimed_.pcs.size() != instructions_.size()) {
      return Find("a clone's map does not hold each instruction", base_);
    }
    return true;
  }

  // Runs of covered instructions between sequences: each has its own s_clause.
  bool ExpectClauses() {
    for (uint32_t c = 0; c < instructions_.size(); ++c) {
      if (!instructions_.Shared(c).is_clause) continue;
      const uint64_t end = uint64_t{c} + instructions_.Shared(c).clause_length + 1;
      std::vector<uint32_t> runs = {c + 1};  // where each begins
      for (uint32_t m = c + 1; m < std::min<uint64_t>(end, instructions_.size()); ++m) {
        const Instruction& in = instructions_[m];
        if (in.is_clause || in.branch || in.ends_program) {
          return Find("a clause was cloned whose extent is not certain", OriginalVaddr(c));
        }
        if (m > c + 1 && Interrupted(m)) runs.push_back(m);
      }
      if (end > instructions_.size()) {
        return Find("a clause was cloned that reaches past the kernel's end", OriginalVaddr(c));
      }
      runs.push_back(static_cast<uint32_t>(end));
      const bool late = Interrupted(c + 1);  // even the first run is behind a sequence
      if (!late && runs.size() == 2) continue;
      first_words_[c] = kNop0;
      for (size_t r = 0; r + 1 < runs.size(); ++r) {
        const uint32_t covered = runs[r + 1] - runs[r];
        if (covered < 2) continue;
        const uint32_t word =
            (OriginalWord(instructions_.OffsetOf(c)) & 0xffffffc0) | (covered - 1);
        if (r == 0 && !late) {
          first_words_[c] = word;
        } else {
          clauses_ahead_[runs[r]] = word;
        }
      }
    }
    return true;
  }

  // s_delay_alu: [3:0] a hint for the next instruction, [10:7] one for the
  // instruction [6:4] further on. A hint across a sequence is gone.
  void ExpectDelays() {
    for (uint32_t i = 0; i + 1 < instructions_.size(); ++i) {
      if (instructions_.Shared(i).opcode != "s_delay_alu") continue;
      uint32_t word = OriginalWord(instructions_.OffsetOf(i));
      const uint32_t second = i + 1 + ((word >> 4) & 7);
      bool cut = false;
      for (uint32_t m = i + 2; m <= second && m < instructions_.size(); ++m) cut |= Interrupted(m);
      if (cut) word &= 0xffff000f;
      if (Interrupted(i + 1)) word &= 0xffff0000;
      first_words_[i] = word;
    }
  }

  struct Sum {
    uint32_t getpc = 0, low = 0, high = 0;
  };

  // The sum that s_getpc_b64 at i begins: it is all that becomes of the program
  // counter, and control enters it at its beginning only.
  std::optional<Sum> SumAt(uint32_t i) const {
    const Instruction& getpc = instructions_[i];
    const bool wide = getpc.opcode == "s_get_pc_i64";
    if ((getpc.opcode != "s_getpc_b64" && !wide) || getpc.operands.size() != 1) return std::nullopt;
    const auto& pair = getpc.operands[0];
    if (pair.kind != Kind::kRegister || pair.count != 2) return std::nullopt;
    Sum sum{i, 0, 0};
    for (uint32_t j = i + 1; j < instructions_.size(); ++j) {
      const Instruction& in = instructions_[j];
      if (targets_.count(static_cast<int64_t>(in.offset)) != 0) return std::nullopt;
      if (IsHint(in)) continue;
      if (wide) {  // one addition of a 64-bit literal
        if (in.opcode != "s_add_nc_u64" || in.size != 12 || !IsRegister(in, 0, pair.reg, 2) ||
            !IsRegister(in, 1, pair.reg, 2) || in.operands.size() != 3 ||
            in.operands[2].kind != Kind::kImmediate) {
          return std::nullopt;
        }
        sum.low = sum.high = j;
        return sum;
      }
      const bool extends = in.opcode == "s_sext_i32_i16" && IsRegister(in, 0, pair.reg + 1u) &&
                           IsRegister(in, 1, pair.reg + 1u);
      if (extends && sum.low == 0) continue;
      const bool low = sum.low == 0;
      const bool adds = low ? in.opcode == "s_add_u32" || in.opcode == "s_add_co_u32"
                            : in.opcode == "s_addc_u32" || in.opcode == "s_add_co_ci_u32";
      const unsigned reg = pair.reg + (low ? 0u : 1u);
      const bool literal =
          in.size == 8 && in.operands.size() == 3 && in.operands[2].kind == Kind::kImmediate;
      if (!adds || !literal || !IsRegister(in, 0, reg) || !IsRegister(in, 1, reg)) {
        return std::nullopt;
      }
      (low ? sum.low : sum.high) = j;
      if (!low) return sum;
    }
    return std::nullopt;
  }

  bool ExpectAddresses() {
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      if (!in.reads_pc || SwapsPc(in)) continue;
      const auto sum = SumAt(i);
      if (!sum) {
        return Find("a clone reads the program counter for an unknown purpose", OriginalVaddr(i));
      }
      if (sum->low != sum->high && CarryIsRead(sum->high)) {
        return Find("a kernel was cloned that reads what an address carries", OriginalVaddr(i));
      }
      literal_free_[sum->low] = literal_free_[sum->high] = true;
      zeroed_[sum->getpc] = beside_;
      sums_.push_back(*sum);
    }
    return true;
  }

  // Behind instruction i, before something else is in SCC. Callees get nothing there.
  bool CarryIsRead(uint32_t i) const {
    const auto& blocks = kernel_.blocks();
    std::set<uint32_t> begun;              // blocks, from their beginnings
    std::vector<uint32_t> work = {i + 1};  // instructions
    while (!work.empty()) {
      uint32_t at = work.back();
      work.pop_back();
      for (; at < instructions_.size(); ++at) {
        const Instruction& in = instructions_.Shared(at);
        if (in.uses.Has(patch::kScc)) return true;
        if (in.defs.Has(patch::kScc) || in.ends_program || in.call) break;
        const KernelCode::Block& block = blocks[kernel_.BlockOf(at)];
        if (at + 1 != block.end) continue;
        if (block.anywhere) return true;
        for (const uint32_t next : block.next) {
          if (next != KernelCode::kNone && begun.insert(next).second) {
            work.push_back(blocks[next].first);
          }
        }
        break;
      }
    }
    return false;
  }

  // s_mov_b64 0 to the pair that s_getpc_b64 at i writes.
  bool IsZero(uint32_t i) const {
    const Instruction* in = kernel_.isa().DecodeShared(code_.subspan(at_, 4), 0);
    const auto& pair = instructions_.Shared(i).operands[0];
    const uint32_t word = *Word(at_), was = OriginalWord(instructions_.OffsetOf(i));
    // The decoder takes pairs that begin at an odd register for the one below.
    if (((word ^ was) & kSop1Destination) != 0) return false;
    return in != nullptr && in->opcode == "s_mov_b64" && in->size == 4 &&
           in->operands.size() == 2 && IsRegister(*in, 0, pair.reg, 2) && in->operands[0].is_def &&
           in->operands[1].kind == Kind::kImmediate && in->operands[1].imm == 0 &&
           (word & kSop1Source) == kInlineZero;
  }

  // Leaves at_ behind the sequences of the position.
  bool Sequences(uint32_t i, Position position) {
    const auto found = plans_at_.find(i);
    if (found == plans_at_.end()) return true;
    for (size_t index : found->second) {
      const SitePlan& plan = plans_[index];
      if (plan.position != position) continue;
      const std::vector<uint8_t>& sequence = plan.sequence.get();
      if (at_ + sequence.size() > code_.size()) {
        return Find("a clone ends inside a sequence", base_ + at_);
      }
      there_.assign(code_.begin() + at_, code_.begin() + at_ + sequence.size());
      for (const patch::WordFixup& f : plan.fixups) {
        if (f.offset > sequence.size() || sequence.size() - f.offset < 4) {
          return Find("a fixup lies outside its sequence", base_ + at_);
        }
        std::copy_n(sequence.begin() + f.offset, 4, there_.begin() + f.offset);
      }
      if (there_ != sequence) {
        return Find("a clone does not hold the admitted sequence", base_ + at_);
      }
      proof_.sequences[index] = base_ + at_;
      executed_[i] += Longest(sequence);
      at_ += sequence.size();
    }
    return true;
  }

  // Plans share their code.
  uint32_t Longest(const std::vector<uint8_t>& sequence) {
    const auto [found, fresh] = longest_.try_emplace(sequence.data(), 0);
    if (fresh) found->second = LongestPath(kernel_.isa(), sequence);
    return found->second;
  }

  // What a seam needs is paid for by the site at it.
  void CountSeam(uint32_t i) { ++executed_[before_[i] ? i : i - 1]; }

  bool DeallocatesVgprs(uint32_t i) const {
    return kernel_.isa().generation().major >= 11 &&
           instructions_.Shared(i).opcode == "s_sendmsg" &&
           (OriginalWord(instructions_.OffsetOf(i)) & 0xff) == 3;
  }

  bool Erratum() const { return kernel_.isa().generation().family == kErratumFamily; }

  uint64_t SizeAhead(uint32_t i) const {
    uint64_t size = clauses_ahead_[i] ? 4 : 0;
    if (DeallocatesVgprs(i) && Interrupted(i)) size += 4;
    const auto found = plans_at_.find(i);
    if (found == plans_at_.end()) return size;
    for (size_t index : found->second) {
      if (plans_[index].position == Position::kBefore) size += plans_[index].sequence.size();
    }
    return size;
  }

  bool Ahead(uint32_t i) {
    const bool padded = Erratum() && i > 0 && instructions_.Shared(i - 1).branch &&
                        Is(at_, kNop0) && claimed_.pcs[i].emitted == at_ + 4 + SizeAhead(i);
    if (padded) at_ += 4;
    starts_.push_back(at_);
    if (!Sequences(i, Position::kBefore)) return false;
    if (clauses_ahead_[i]) {
      if (!Is(at_, *clauses_ahead_[i])) {
        return Find("the second part of a split clause lacks its s_clause", base_ + at_);
      }
      CountSeam(i);
      at_ += 4;
    }
    if (DeallocatesVgprs(i) && Interrupted(i)) {
      if (!Is(at_, kNop0)) {
        return Find("no s_nop is between a sequence and the message that deallocates VGPRs",
                    base_ + at_);
      }
      CountSeam(i);
      at_ += 4;
    }
    return true;
  }

  // The instruction itself, but for what is checked when all places are known.
  bool Same(uint32_t i) const {
    const Instruction& in = instructions_.Shared(i);
    if (zeroed_[i]) return IsZero(i);
    const uint64_t offset = instructions_.OffsetOf(i);
    const uint32_t first = first_words_[i].value_or(OriginalWord(offset));
    const uint32_t word = *Word(at_);
    if (in.target_offset) return (word & 0xffff0000) == (first & 0xffff0000);
    if (word != first) return false;
    if (literal_free_[i]) return true;
    return std::equal(code_.begin() + at_ + 4, code_.begin() + at_ + in.size,
                      kernel_.code().begin() + static_cast<ptrdiff_t>(offset) + 4);
  }

  bool Walk() {
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& in = instructions_.Shared(i);
      if (!Ahead(i)) return false;
      if (claimed_.pcs[i].original != instructions_.OffsetOf(i) || claimed_.pcs[i].emitted != at_) {
        return Find("a clone's map is wrong, or something foreign is in the clone", base_ + at_);
      }
      if (at_ + in.size > code_.size()) return Find("a clone is cut off", base_ + at_);
      if (!Same(i)) {
        return Find(StrCat("a clone's instruction is not the original's at 0x",
                           absl::Hex(OriginalVaddr(i))),
                    base_ + at_);
      }
      places_.push_back(at_);
      at_ += in.size;
      const bool nothing_follows = in.branch || in.ends_program;
      if (nothing_follows && after_[i]) {
        return Find("a sequence was admitted behind an instruction that nothing follows",
                    base_ + at_);
      }
      if (!Sequences(i, Position::kAfter)) return false;
    }
    for (const auto& [i, indices] : plans_at_) {
      for (size_t index : indices) proof_.executed[index] = executed_[i];
    }
    if (claimed_.clone_vaddr != base_ || claimed_.code_bytes != at_) {
      return Find("a clone's place or size is not what was stated", base_);
    }
    return true;
  }

  // Firmware that preloads arguments enters so far behind the entry, wherever that
  // is: what it ran in the original must be there, with all its sequences.
  bool SecondEntry() {
    const uint64_t entry = kernel_.isa().generation().preload_entry;
    const bool preloads = (kernel_.kernel().descriptor.kernarg_preload & 0x7f) != 0;
    if (!preloads || entry == 0) return true;
    const auto i = kernel_.InstructionAt(entry);
    if (i && starts_[*i] == entry) return true;
    return Find("a clone's second entry, for preloaded arguments, is not at its place",
                base_ + entry);
  }

  bool Branches() {
    for (uint32_t i = 0; i < instructions_.size(); ++i) {
      if (!instructions_.Shared(i).target_offset) continue;
      const Instruction& in = instructions_[i];
      const auto target = *in.target_offset < 0
                              ? std::nullopt
                              : kernel_.InstructionAt(static_cast<uint64_t>(*in.target_offset));
      if (!target) return Find("a branch of a cloned kernel leads elsewhere", OriginalVaddr(i));
      const auto offset = static_cast<uint16_t>(*Word(places_[i]));
      const int64_t landed =
          static_cast<int64_t>(places_[i]) + 4 + int64_t{4} * static_cast<int16_t>(offset);
      if (landed != static_cast<int64_t>(starts_[*target])) {
        return Find("a clone's branch does not lead to the clone of its target",
                    base_ + places_[i]);
      }
      if (Erratum() && offset == kErratumOffset) {
        return Find("a clone's branch has an offset that this processor gets wrong",
                    base_ + places_[i]);
      }
    }
    return true;
  }

  // Both sums give the same address, or will once the agent has filled in the words.
  void Addresses() {
    for (const Sum& sum : sums_) {
      const auto literal = [](uint32_t low, uint32_t high) {
        return uint64_t{high} << 32 | uint64_t{low};
      };
      const uint64_t high = sum.low == sum.high ? 8 : 4;
      const uint64_t original = OriginalVaddr(sum.getpc) + 4 +
                                literal(OriginalWord(instructions_[sum.low].offset + 4),
                                        OriginalWord(instructions_[sum.high].offset + high));
      if (beside_) {  // 0 and the address's words: nothing is carried
        proof_.fixups.push_back(
            {places_[sum.low] + 4, false, original, patch::FixupBase::kOriginal});
        proof_.fixups.push_back(
            {places_[sum.high] + high, true, original, patch::FixupBase::kOriginal});
        continue;
      }
      const uint64_t cloned = base_ + places_[sum.getpc] + 4 +
                              literal(*Word(places_[sum.low] + 4), *Word(places_[sum.high] + high));
      if (original == cloned) continue;
      Find(StrCat("a clone makes the address 0x", absl::Hex(cloned), ", the original 0x",
                  absl::Hex(original)),
           base_ + places_[sum.getpc]);
      return;
    }
  }

  const KernelAnalysis& kernel_;
  const patch::InstructionList& instructions_;
  const std::vector<SitePlan>& plans_;
  const KernelOutcome& claimed_;
  const absl::Span<const uint8_t> code_;
  const uint64_t base_;
  const bool beside_;
  std::map<uint32_t, std::vector<size_t>> plans_at_;
  std::set<int64_t> targets_;
  // By instruction: expected instead of the original's first word; the s_clause in
  // front; whether its literal is part of a sum; whether s_mov_b64 0 stands for it.
  std::vector<std::optional<uint32_t>> first_words_, clauses_ahead_;
  std::vector<bool> literal_free_, zeroed_;
  std::vector<bool> before_, after_;  // a sequence is there
  std::vector<Sum> sums_;
  uint64_t at_ = 0;                        // of the walk
  std::vector<uint64_t> starts_, places_;  // by instruction
  std::map<uint32_t, uint32_t> executed_;  // by instruction
  std::vector<uint8_t> there_;
  std::map<const uint8_t*, uint32_t> longest_;  // by the code of plans_
  CloneProof proof_;
};

}  // namespace

CloneProof ProveClone(const KernelAnalysis& kernel, const std::vector<SitePlan>& plans,
                      const std::vector<size_t>& wanted, const KernelOutcome& claimed,
                      absl::Span<const uint8_t> code, uint64_t base, bool beside) {
  return Prover(kernel, plans, wanted, claimed, code, base, beside).Prove();
}

}  // namespace rjdbi::contract
