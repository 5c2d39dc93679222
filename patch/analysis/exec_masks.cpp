// A forward must-analysis of the masks in EXEC, VCC and scalar registers, as
// compilers write divergence: saveexec, logic of masks, comparisons, moves.
//
// Source of the semantics: the ISA documents' scalar instructions (S_*_SAVEEXEC:
// D = EXEC, EXEC = op(S0, EXEC)) and V_CMP* ("inactive lanes' bits are zero").
#include "patch/analysis/exec_masks.h"

#include <optional>
#include <string_view>

namespace rjdbi::patch {
namespace {

using Operand = InstructionOperand;

// A set of lanes against the lanes of the kernel's entry.
struct Mask {
  bool within = false;  // holds no others
  bool all = false;     // holds each of them
};

// Masks by the first register that holds them; absent: nothing is known.
struct Masks {
  RegisterSet within, all;

  Mask Get(uint16_t reg) const { return {within.Has(reg), all.Has(reg)}; }
  void Set(uint16_t reg, Mask mask) {
    if (mask.within) within.Add(reg);
    if (mask.all) all.Add(reg);
  }
  void Forget(uint16_t reg) {
    within.Remove(reg);
    all.Remove(reg);
  }
  friend bool operator==(const Masks&, const Masks&) = default;
};

Mask And(Mask a, Mask b) { return {a.within || b.within, a.all && b.all}; }
Mask Or(Mask a, Mask b) { return {a.within && b.within, a.all || b.all}; }
Mask AndNot(Mask a) { return {a.within, false}; }
Mask Xor(Mask a, Mask b) { return {a.within && b.within, false}; }
Mask Either(Mask a, Mask b) { return {a.within && b.within, a.all && b.all}; }

// Writes lanes that are not active, so perhaps such as never are.
bool IgnoresExec(const Instruction& in) {
  if (!in.mfma && !in.opcode.starts_with("v_w") && !in.opcode.starts_with("v_sw")) return false;
  return in.mfma || in.opcode.starts_with("v_writelane") ||
         in.opcode.find("wmma") != std::string_view::npos;
}

// s_subvector_loop_*: runs a wavefront's halves in turn, by EXEC.
bool IsSubvectorLoop(const Instruction& in) {
  // At once for most instructions.
  if (in.opcode.size() < 3 || in.opcode[0] != 's' || in.opcode[2] != 's') return false;
  return in.opcode.starts_with("s_subvector_");
}

class MaskFlow {
 public:
  MaskFlow(const InstructionList& instructions, const ControlFlow& flow, uint32_t wavefront_size)
      : instructions_(instructions),
        flow_(flow),
        width_(wavefront_size == 64 ? 2 : 1),
        suffix_(wavefront_size == 64 ? "_b64" : "_b32") {}

  std::vector<bool> AllLanes() {
    std::vector<bool> result(instructions_.size(), false);
    if (flow_.has_indirect_branch || flow_.has_calls || flow_.unknown_code) return result;
    Solve();
    for (uint32_t b = 0; b < flow_.blocks.size(); ++b) {
      if (!flow_.reachable[b]) continue;
      Masks masks = *in_[b];
      for (uint32_t i = flow_.blocks[b].first; i <= flow_.blocks[b].last; ++i) {
        const Mask exec = masks.Get(kExecLo);
        result[i] = exec.all;
        if (!exec.within || IgnoresExec(instructions_.Shared(i)))
          return std::vector<bool>(instructions_.size(), false);
        Step(instructions_.Shared(i), masks);
      }
    }
    return result;
  }

 private:
  void Solve() {
    in_.resize(flow_.blocks.size());
    Masks entry;
    entry.Set(kExecLo, {true, true});
    std::vector<uint32_t> work;
    for (uint32_t b = 0; b < flow_.blocks.size(); ++b) {
      if (!flow_.blocks[b].entry) continue;
      in_[b] = entry;
      work.push_back(b);
    }
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      Masks masks = *in_[b];
      for (uint32_t i = flow_.blocks[b].first; i <= flow_.blocks[b].last; ++i) {
        Step(instructions_.Shared(i), masks);
      }
      for (uint32_t s : flow_.blocks[b].successors) {
        Masks met = masks;
        if (in_[s]) {
          met.within &= in_[s]->within;
          met.all &= in_[s]->all;
          if (met == *in_[s]) continue;
        }
        in_[s] = met;
        work.push_back(s);
      }
    }
  }

  Mask Source(const Instruction& in, size_t operand, const Masks& masks) const {
    if (operand >= in.operands.size()) return {};
    const Operand& o = in.operands[operand];
    if (o.kind == Operand::Kind::kRegister) {
      return o.count == width_ && !o.condition ? masks.Get(o.reg) : Mask{};
    }
    if (o.imm == 0) return {true, false};
    return o.imm == -1 ? Mask{false, true} : Mask{};
  }

  // "s_and_b64" as "s_and", for masks of this width only.
  std::string_view Operation(std::string_view opcode) const {
    if (!opcode.ends_with(suffix_)) return "";
    return opcode.substr(0, opcode.size() - suffix_.size());
  }

  std::optional<uint16_t> Destination(const Instruction& in) const {
    if (in.operands.empty()) return std::nullopt;
    const Operand& o = in.operands[0];
    if (!o.is_def || o.kind != Operand::Kind::kRegister || o.count != width_) return std::nullopt;
    return o.reg;
  }

  // What a scalar instruction of two sources makes of masks.
  Mask Result(std::string_view operation, Mask a, Mask b) const {
    if (operation == "s_mov") return a;
    if (operation == "s_and") return And(a, b);
    if (operation == "s_or") return Or(a, b);
    if (operation == "s_andn2" || operation == "s_and_not1") return AndNot(a);
    if (operation == "s_xor") return Xor(a, b);
    if (operation == "s_cselect") return Either(a, b);
    return {};
  }

  void Step(const Instruction& in, Masks& masks) const {
    // Masks are in scalar registers.
    if (!in.salu && in.defs.get().CountIn(0, kVgpr0) == 0) return;
    const Mask exec = masks.Get(kExecLo);
    const std::string_view operation = Operation(in.opcode);
    const bool saves = operation.ends_with("_saveexec");
    const bool compares = in.opcode.starts_with("v_cmp");
    const Mask first = Source(in, 1, masks), second = Source(in, 2, masks);
    // LLVM leaves EXEC and VCC out of the operands where they are implied.
    const bool vcc = compares && in.defs.Has(kVccLo);
    in.defs.get().ForEach([&](uint16_t reg) {
      if (reg >= kVgpr0) return;
      masks.Forget(reg);
      if (width_ == 2 && reg > 0) masks.Forget(static_cast<uint16_t>(reg - 1));
    });
    if (IsSubvectorLoop(in)) masks.Forget(kExecLo);
    if (compares) {
      if (vcc) masks.Set(kVccLo, {exec.within, false});
      if (const auto to = Destination(in)) masks.Set(*to, {exec.within, false});
      if (in.defs.Has(kExecLo)) masks.Set(kExecLo, {exec.within, false});
      return;
    }
    const auto to = Destination(in);
    if (!to || !in.salu) return;
    if (!saves) {
      masks.Set(*to, Result(operation, first, second));
      return;
    }
    masks.Set(*to, exec);
    if (operation == "s_and_saveexec") masks.Set(kExecLo, And(first, exec));
    if (operation == "s_or_saveexec") masks.Set(kExecLo, Or(first, exec));
    if (operation == "s_xor_saveexec") masks.Set(kExecLo, Xor(first, exec));
    if (operation == "s_andn2_saveexec" || operation == "s_and_not1_saveexec") {
      masks.Set(kExecLo, AndNot(first));
    }
  }

  const InstructionList& instructions_;
  const ControlFlow& flow_;
  const uint8_t width_;
  const std::string_view suffix_;
  std::vector<std::optional<Masks>> in_;  // nullopt: not reached yet
};

bool IsExec(const Operand& o) {
  return o.kind == Operand::Kind::kRegister && !o.condition &&
         (o.reg == kExecLo || o.reg == kExecHi);
}

}  // namespace

bool MayActivateLanes(const Instruction& in) {
  if (IsSubvectorLoop(in)) return true;
  if (!in.defs.HasAny(kExecLo, 2)) return false;
  if (in.opcode.starts_with("v_cmpx") || in.opcode.starts_with("s_and_saveexec")) return false;
  const absl::Span<const Operand> o = in.operands;
  if (o.size() != 3 || !IsExec(o[0])) return true;
  const auto same = [&](size_t n) {
    return IsExec(o[n]) && o[n].reg == o[0].reg && o[n].count == o[0].count;
  };
  if (in.opcode.starts_with("s_and_b")) return !same(1) && !same(2);
  if (in.opcode.starts_with("s_andn2_b") || in.opcode.starts_with("s_and_not1_b")) return !same(1);
  return true;
}

std::vector<bool> AllLanesActive(const InstructionList& instructions, const ControlFlow& flow,
                                 uint32_t wavefront_size) {
  return MaskFlow(instructions, flow, wavefront_size).AllLanes();
}

}  // namespace rjdbi::patch
