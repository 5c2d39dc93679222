// See lanes.h. A forward analysis; where paths meet, what both agree on is known.
#include "contract/lanes.h"

#include <array>
#include <optional>
#include <utility>

namespace rjdbi::contract {
namespace {

using patch::Instruction;

// A bit that is known to be 0, known to be 1, or not known.
struct Bit {
  bool zero = false, one = false;
};

// One bit of each scalar register's set of lanes, by its first register.
class Bits {
 public:
  Bit Get(uint16_t reg) const { return {Has(zero_, reg), Has(one_, reg)}; }
  void Set(uint16_t reg, Bit bit) {
    Forget(reg);
    if (bit.zero) zero_[reg / 64] |= Mask(reg);
    if (bit.one) one_[reg / 64] |= Mask(reg);
  }
  void Forget(uint16_t reg) {
    zero_[reg / 64] &= ~Mask(reg);
    one_[reg / 64] &= ~Mask(reg);
  }
  // True: something was lost.
  bool Meet(const Bits& o) {
    const Bits before = *this;
    for (size_t w = 0; w < kWords; ++w) zero_[w] &= o.zero_[w], one_[w] &= o.one_[w];
    return zero_ != before.zero_ || one_ != before.one_;
  }

 private:
  static constexpr size_t kWords = 2;
  static_assert(patch::kExecHi < 64 * kWords);
  using Words = std::array<uint64_t, kWords>;
  static uint64_t Mask(uint16_t reg) { return uint64_t{1} << (reg % 64); }
  static bool Has(const Words& words, uint16_t reg) { return (words[reg / 64] & Mask(reg)) != 0; }
  Words zero_ = {}, one_ = {};
};

// What the table gives for all bits that the two can be.
Bit Look(uint8_t table, Bit a, Bit b) {
  bool zero = true, one = true;
  for (unsigned x = 0; x < 2; ++x) {
    for (unsigned y = 0; y < 2; ++y) {
      const bool possible = !(x == 0 ? a.one : a.zero) && !(y == 0 ? b.one : b.zero);
      if (!possible) continue;
      ((table >> (2 * x + y) & 1) != 0 ? zero : one) = false;
    }
  }
  return {zero, one};
}

// Of the lane that was active at the entry, and of one that was not.
struct State {
  Bits began, other;
};

class Solver {
 public:
  explicit Solver(const KernelCode& kernel)
      : kernel_(kernel), wide_(kernel.isa().wavefront_size() == 64) {}

  std::vector<bool> Run() {
    const size_t n = kernel_.instructions().size();
    std::vector<bool> active(n, false);
    if (kernel_.has_calls() || kernel_.unknown_targets() || kernel_.broken()) return active;
    Solve();
    for (uint32_t b = 0; b < kernel_.blocks().size(); ++b) {
      if (!in_[b]) continue;
      State state = *in_[b];
      const KernelCode::Block& block = kernel_.blocks()[b];
      bool every = state.began.Get(patch::kExecLo).one;
      if (!state.other.Get(patch::kExecLo).zero) return std::vector<bool>(n, false);
      for (uint32_t i = block.first; i < block.end; ++i) {
        active[i] = every;
        const CodeFact& fact = kernel_.FactOf(i);
        if (fact.beyond_exec) return std::vector<bool>(n, false);
        if (fact.step == LaneStep::kNothing) continue;
        Step(fact, kernel_.instructions().Shared(i), state);
        every = state.began.Get(patch::kExecLo).one;
        // The block's last instruction may do so, too: its successors say it.
        if (!state.other.Get(patch::kExecLo).zero) return std::vector<bool>(n, false);
      }
    }
    return active;
  }

 private:
  void Solve() {
    in_.resize(kernel_.blocks().size());
    State entry;
    entry.began.Set(patch::kExecLo, {false, true});
    entry.other.Set(patch::kExecLo, {true, false});
    std::vector<uint32_t> work;
    const auto arrive = [&](uint32_t b, const State& state) {
      bool changed = !in_[b];
      if (!in_[b]) {
        in_[b] = state;
      } else {
        changed = in_[b]->began.Meet(state.began);
        changed |= in_[b]->other.Meet(state.other);
      }
      if (changed) work.push_back(b);
    };
    for (const uint32_t b : kernel_.entries()) arrive(b, entry);
    while (!work.empty()) {
      const KernelCode::Block& block = kernel_.blocks()[work.back()];
      State state = *in_[work.back()];
      work.pop_back();
      for (uint32_t i = block.first; i < block.end; ++i) {
        const CodeFact& fact = kernel_.FactOf(i);
        if (fact.step != LaneStep::kNothing) Step(fact, kernel_.instructions().Shared(i), state);
      }
      for (const uint32_t next : block.next) {
        if (next != KernelCode::kNone) arrive(next, state);
      }
    }
  }

  void Step(const CodeFact& fact, const Instruction& in, State& state) const {
    StepOne(fact, in, state.began);
    StepOne(fact, in, state.other);
  }

  static Bit Source(const Bits& bits, uint16_t operand) {
    if (operand == CodeFact::kZero) return {true, false};
    if (operand == CodeFact::kOnes) return {false, true};
    return operand == CodeFact::kUnknown ? Bit{} : bits.Get(operand);
  }

  void StepOne(const CodeFact& fact, const Instruction& in, Bits& bits) const {
    const Bit exec = bits.Get(patch::kExecLo);
    const Bit a = Source(bits, fact.a), b = Source(bits, fact.b);
    in.defs.get().ForEach([&](uint16_t reg) {
      if (reg > patch::kExecHi) return;
      bits.Forget(reg);
      if (wide_ && reg > 0) bits.Forget(static_cast<uint16_t>(reg - 1));
    });
    switch (fact.step) {
      case LaneStep::kNothing:
      case LaneStep::kForgets:
        return;
      case LaneStep::kLogic:
        return bits.Set(fact.to, Look(fact.table, a, b));
      case LaneStep::kChooses:
        return bits.Set(fact.to, {a.zero && b.zero, a.one && b.one});
      case LaneStep::kSaves:
        bits.Set(fact.to, exec);
        if (fact.to == patch::kExecLo) return bits.Forget(patch::kExecLo);
        return bits.Set(patch::kExecLo, Look(fact.table, a, exec));
      case LaneStep::kCompares:
        // Of a lane that is not active the bit is 0; of others nobody knows.
        if (fact.to != CodeFact::kUnknown) bits.Set(fact.to, {exec.zero, false});
        for (const uint16_t implied : {patch::kVccLo, patch::kExecLo}) {
          if (in.defs.Has(implied)) bits.Set(implied, {exec.zero, false});
        }
        return;
    }
  }

  const KernelCode& kernel_;
  const bool wide_;
  std::vector<std::optional<State>> in_;  // nullopt: not reached
};

}  // namespace

std::vector<bool> EveryLaneActive(const KernelCode& kernel) { return Solver(kernel).Run(); }

}  // namespace rjdbi::contract
