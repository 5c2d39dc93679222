// See code_facts.h. Sources: the ISA documents' chapters on program control, scalar
// instructions (S_*_SAVEEXEC: D = EXEC, EXEC = S0 op EXEC) and V_CMP ("bits of inactive
// lanes are zero").
#include "contract/code_facts.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "contract/text.h"
#include "patch/isa/generation.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
using patch::InstructionOperand;

struct GoesRow {
  std::string_view opcode;
  Goes goes;
};
// Everything else that the decoder takes for a branch goes anywhere: forks and joins,
// computed addresses, returns from traps, subvector loops.
constexpr GoesRow kGoes[] = {
    {"s_branch", Goes::kTo},
    {"s_cbranch_scc0", Goes::kEither},
    {"s_cbranch_scc1", Goes::kEither},
    {"s_cbranch_vccz", Goes::kEither},
    {"s_cbranch_vccnz", Goes::kEither},
    {"s_cbranch_execz", Goes::kEither},
    {"s_cbranch_execnz", Goes::kEither},
    {"s_cbranch_cdbgsys", Goes::kEither},
    {"s_cbranch_cdbguser", Goes::kEither},
    {"s_cbranch_cdbgsys_or_user", Goes::kEither},
    {"s_cbranch_cdbgsys_and_user", Goes::kEither},
    {"s_swappc_b64", Goes::kCalls},
    {"s_swap_pc_i64", Goes::kCalls},
    {"s_call_b64", Goes::kCalls},
    {"s_call_i64", Goes::kCalls},
};
// Should the decoder not call them branches.
constexpr std::string_view kTransfers[] = {"s_branch",  "s_cbranch",    "s_setpc", "s_set_pc",
                                           "s_swap_pc", "s_swappc",     "s_call",  "s_rfe",
                                           "s_add_pc",  "s_subvector_", "s_return"};

Goes GoesOn(const Instruction& in) {
  if (in.opcode.size() < 3 || in.opcode[0] != 's' || in.opcode[1] != '_') {
    return in.branch || in.indirect || in.call ? Goes::kAnywhere : Goes::kOn;
  }
  if (in.ends_program || in.opcode.starts_with("s_endpgm")) return Goes::kNowhere;
  for (const GoesRow& row : kGoes) {
    if (row.opcode != in.opcode) continue;
    const bool needs_target = row.goes == Goes::kTo || row.goes == Goes::kEither;
    return needs_target && !in.target_offset ? Goes::kAnywhere : row.goes;
  }
  const bool transfers =
      in.branch || in.indirect || in.call || in.target_offset ||
      std::any_of(std::begin(kTransfers), std::end(kTransfers),
                  [&](std::string_view prefix) { return in.opcode.starts_with(prefix); });
  return transfers ? Goes::kAnywhere : Goes::kOn;
}

struct LogicRow {
  std::string_view name;  // without its width
  uint8_t table;
};
constexpr LogicRow kLogic[] = {
    {"s_mov", 0b1100}, {"s_not", 0b0011},   {"s_and", 0b1000},      {"s_or", 0b1110},
    {"s_xor", 0b0110}, {"s_andn2", 0b0100}, {"s_orn2", 0b1101},     {"s_nand", 0b0111},
    {"s_nor", 0b0001}, {"s_xnor", 0b1001},  {"s_and_not1", 0b0100}, {"s_or_not1", 0b1101},
};
// a is the operand, b is EXEC.
constexpr LogicRow kSaves[] = {
    {"s_and", 0b1000},      {"s_or", 0b1110},      {"s_xor", 0b0110},      {"s_andn2", 0b0100},
    {"s_orn2", 0b1101},     {"s_nand", 0b0111},    {"s_nor", 0b0001},      {"s_xnor", 0b1001},
    {"s_andn1", 0b0010},    {"s_orn1", 0b1011},    {"s_and_not1", 0b0100}, {"s_or_not1", 0b1101},
    {"s_and_not0", 0b0010}, {"s_or_not0", 0b1011},
};

template <size_t kRows>
const LogicRow* Row(const LogicRow (&rows)[kRows], std::string_view name) {
  for (const LogicRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

// The table's result where the second (first) bit is 0.
bool ZeroWhenSecondIs(uint8_t table) { return (table & 0b0101) == 0; }
bool ZeroWhenFirstIs(uint8_t table) { return (table & 0b0011) == 0; }

class LaneReader {
 public:
  LaneReader(const Instruction& in, uint32_t word, uint32_t wavefront_size)
      : in_(in), word_(word), width_(wavefront_size == 64 ? 2 : 1) {}

  void Read(CodeFact& fact) const {
    fact.writes_exec =
        in_.defs.Has(patch::kExecLo) || (width_ == 2 && in_.defs.Has(patch::kExecHi));
    fact.widens = fact.writes_exec;
    bool scalars = false;
    in_.defs.get().ForEach([&](uint16_t reg) { scalars |= reg <= patch::kExecHi; });
    if (!scalars) return;
    fact.step = LaneStep::kForgets;
    if (in_.opcode.starts_with("v_cmp")) return Compare(fact);
    if (in_.salu) Logic(fact);
  }

 private:
  uint16_t Destination() const {
    if (in_.operands.empty()) return CodeFact::kUnknown;
    const InstructionOperand& o = in_.operands[0];
    const bool mask = o.is_def && o.kind == InstructionOperand::Kind::kRegister &&
                      o.count == width_ && o.reg <= patch::kExecHi;
    return mask ? o.reg : CodeFact::kUnknown;
  }

  // Immediates by their encoding (128 is 0, 193 is -1): the decoder calls other
  // constants 0, too.
  uint16_t Source(size_t operand, unsigned shift) const {
    if (operand >= in_.operands.size()) return CodeFact::kUnknown;
    const InstructionOperand& o = in_.operands[operand];
    if (o.kind == InstructionOperand::Kind::kRegister) {
      return o.count == width_ && !o.condition && o.reg <= patch::kExecHi ? o.reg
                                                                          : CodeFact::kUnknown;
    }
    const uint32_t code = word_ >> shift & 0xff;
    if (code == 128) return CodeFact::kZero;
    return code == 193 ? CodeFact::kOnes : CodeFact::kUnknown;
  }

  void Compare(CodeFact& fact) const {
    fact.step = LaneStep::kCompares;
    fact.to = Destination();
    if (in_.opcode.starts_with("v_cmpx")) fact.widens = false;
  }

  void Logic(CodeFact& fact) const {
    const std::string_view suffix = width_ == 2 ? "_b64" : "_b32";
    if (!in_.opcode.ends_with(suffix)) return;
    std::string_view name = in_.opcode.substr(0, in_.opcode.size() - suffix.size());
    fact.to = Destination();
    if (fact.to == CodeFact::kUnknown) return;
    fact.a = Source(1, 0);
    constexpr std::string_view kSaveexec = "_saveexec";
    if (name.ends_with(kSaveexec)) {
      const LogicRow* row = Row(kSaves, name.substr(0, name.size() - kSaveexec.size()));
      if (row == nullptr) return;
      fact.step = LaneStep::kSaves;
      fact.table = row->table;
      // Should EXEC itself be where it is saved, nothing is known of it.
      if (fact.to != patch::kExecLo) fact.widens = !ZeroWhenSecondIs(row->table);
      return;
    }
    fact.b = Source(2, 8);
    if (name == "s_cselect") {
      fact.step = LaneStep::kChooses;
      return;
    }
    const LogicRow* row = Row(kLogic, name);
    if (row == nullptr) return;
    fact.step = LaneStep::kLogic;
    fact.table = row->table;
    if (fact.to != patch::kExecLo) return;
    const bool narrows = (fact.b == patch::kExecLo && ZeroWhenSecondIs(row->table)) ||
                         (fact.a == patch::kExecLo && ZeroWhenFirstIs(row->table));
    fact.widens = !narrows;
  }

  const Instruction& in_;
  const uint32_t word_;
  const uint8_t width_;
};

uint32_t WordAt(absl::Span<const uint8_t> bytes, size_t at) {
  uint32_t word = 0;
  if (at + sizeof word <= bytes.size()) std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// s_setreg: register [5:0], first bit [10:6], bits less one [15:11].
bool WritesModeBit(uint32_t word, unsigned bit) {
  constexpr uint32_t kMode = 1;
  const uint32_t first = word >> 6 & 0x1f, bits = (word >> 11 & 0x1f) + 1;
  return (word & 0x3f) == kMode && first <= bit && bit < first + bits;
}

bool Renumbers(const Instruction& in, absl::Span<const uint8_t> bytes, const patch::Generation& g) {
  if (g.major == 9) return in.setreg && WritesModeBit(WordAt(bytes, 0), 27);  // GPR_IDX_EN
  if (g.major < 12) return false;
  if (in.opcode == "s_alloc_vgpr") return true;
  const uint32_t word = WordAt(bytes, 0);
  if (in.opcode == "s_set_vgpr_msb") return (word & 0xff) != 0;
  if (!in.setreg || g.vgpr_msb_mode.bits == 0 || (word & 0x3f) != 1) return false;
  // The literal's bits land in the field, whichever bits are meant, and the lowest bits
  // want a distance of their own. Source: LLVM's FeatureSetregVGPRMSBFixup.
  const unsigned first = word >> 6 & 0x1f;
  if (in.size != 8 || first == 0) return true;
  const uint64_t literal = WordAt(bytes, 4);
  return ((literal | literal << first) >> g.vgpr_msb_mode.shift &
          ((uint64_t{1} << g.vgpr_msb_mode.bits) - 1)) != 0;
}

}  // namespace

CodeFact CodeFacts::Make(const Instruction& in, absl::Span<const uint8_t> bytes) const {
  CodeFact fact;
  fact.known = true;
  fact.goes = GoesOn(in);
  const patch::Generation& g = isa_.generation();
  const uint32_t word = WordAt(bytes, 0);
  LaneReader(in, word, isa_.wavefront_size()).Read(fact);
  const bool vector = !in.opcode.empty() && in.opcode[0] == 'v';
  fact.beyond_exec =
      in.mfma || (vector && (in.opcode.starts_with("v_writelane") ||
                             StrContains(in.opcode, "mfma") || StrContains(in.opcode, "wmma")));
  if (vector) return fact;
  constexpr uint32_t kMessageDeallocVgprs = 3;
  fact.index_off = in.opcode == "s_set_gpr_idx_off";
  fact.index_on = in.opcode.starts_with("s_set_gpr_idx") && !fact.index_off;
  fact.gives_back =
      g.major >= 11 && in.opcode == "s_sendmsg" && (word & 0xff) == kMessageDeallocVgprs;
  fact.skips = in.opcode == "s_setvskip";
  fact.renumbers = Renumbers(in, bytes, g);
  return fact;
}

}  // namespace rjdbi::contract
