// The abstract interpreter behind inference.h.
#include "contract/inference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "contract/catalogue.h"
#include "contract/text.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
using patch::InstructionOperand;
using patch::MemoryKind;
using patch::RegisterSet;
using Kind = Observation::Kind;
using namespace patch;  // NOLINT: register names (kExecLo, ...)

// ---- Values -------------------------------------------------------------------

struct Value {
  enum class Kind : uint8_t {
    kUnknown,
    kOriginal,
    kConstant,
    kTelemetryLo,
    kTelemetryHi,
    kSavedScc,
    kUpTo,    // any number from 0 to data
    kSubset,  // of the bits of data
    kLanes,   // a set of lanes, `id` of the lineage
    kCarry,   // out of the low half of sum `id`
    kActive   // how many bits the halves of the original EXEC have: low is 1, high 2
  };
  Kind kind = Kind::kUnknown;
  uint64_t data = 0;  // register, constant, addend, bound or bits
  // A telemetry address and what was added to it: a number up to `more`, sum `id`.
  uint64_t more = 0;
  // Low bits of a bounded number, or of what was added, that are 0.
  uint8_t zeros = 0;
  uint32_t id = 0;

  static Value Original(uint16_t reg) { return {Kind::kOriginal, reg}; }
  static Value Constant(uint32_t v) { return {Kind::kConstant, v}; }
  // Unknown when the bound says nothing.
  static Value UpTo(uint64_t v, unsigned zeros = 0) {
    if (v == 0) return Constant(0);
    Value made{Kind::kUpTo, std::min<uint64_t>(v, ~uint32_t{0})};
    made.zeros = static_cast<uint8_t>(std::min(zeros, 31u));
    return v >= ~uint32_t{0} && zeros == 0 ? Value{} : made;
  }
  static Value Subset(uint64_t v) { return {Kind::kSubset, v}; }
  // The largest number that it can be.
  std::optional<uint64_t> Most() const {
    if (kind == Kind::kConstant || kind == Kind::kUpTo || kind == Kind::kSubset) return data;
    if (kind == Kind::kActive) return 64;
    return std::nullopt;
  }
  unsigned Zeros() const {
    if (kind == Kind::kUpTo) return zeros;
    if (!Most() || kind == Kind::kActive) return 0;
    return data == 0 ? 32 : static_cast<unsigned>(std::countr_zero(data));
  }
  bool IsConstant(uint32_t v) const { return kind == Kind::kConstant && data == v; }
  friend bool operator==(const Value& a, const Value& b) {
    // Two unknowns are not known to be equal, nor two bounded numbers.
    const bool definite = a.kind != Kind::kUnknown && a.kind != Kind::kUpTo;
    return definite && a.kind != Kind::kSubset && a.kind == b.kind && a.data == b.data &&
           a.more == b.more && a.zeros == b.zeros && a.id == b.id;
  }
};

// Where sets of lanes come from: each is part of its parent. Only ever grows.
class Lineage {
 public:
  // Unknown when nothing is known of the parent either.
  Value PartOf(const Value& parent) {
    if (parent.kind == Value::Kind::kConstant || parent.kind == Value::Kind::kSubset) {
      return Value::Subset(parent.data);
    }
    if (parent.kind != Value::Kind::kLanes && !IsExec(parent)) return {};
    parents_.push_back(parent);
    Value made;
    made.kind = Value::Kind::kLanes;
    made.id = static_cast<uint32_t>(parents_.size() - 1);
    return made;
  }
  static bool IsExec(const Value& v) {
    return v == Value::Original(kExecLo) || v == Value::Original(kExecHi);
  }
  bool Within(const Value& a, const Value& b) const {
    if (b.IsConstant(~0u) || a.IsConstant(0)) return true;
    const bool known = a.kind == Value::Kind::kConstant || a.kind == Value::Kind::kSubset;
    if (known && b.kind == Value::Kind::kConstant && (a.data & ~b.data) == 0) return true;
    for (const Value* at = &a;; at = &parents_[at->id]) {
      if (*at == b) return true;
      if (at->kind != Value::Kind::kLanes) return false;
    }
  }
  // The closest set that both are part of; unknown if there is none.
  Value Around(const Value& a, const Value& b) const {
    if (Within(a, b)) return b;
    for (const Value* at = &a;; at = &parents_[at->id]) {
      if (at->kind != Value::Kind::kUnknown && Within(b, *at)) return *at;
      if (at->kind != Value::Kind::kLanes) return {};
    }
  }
  // What holds of either.
  Value Common(const Value& a, const Value& b) {
    if (a == b) return a;
    const bool subsets = a.kind == Value::Kind::kSubset || b.kind == Value::Kind::kSubset;
    if (a.Most() && b.Most()) {
      if (subsets) return Value::Subset(*a.Most() | *b.Most());
      return Value::UpTo(std::max(*a.Most(), *b.Most()), std::min(a.Zeros(), b.Zeros()));
    }
    return PartOf(Around(a, b));
  }

 private:
  std::vector<Value> parents_;
};

// The lanes for which something holds.
struct Mask {
  Value lo, hi;
  bool wave64 = true;
};

bool Within(const Mask& a, const Mask& b, const Lineage& lineage) {
  return lineage.Within(a.lo, b.lo) && (!a.wave64 || lineage.Within(a.hi, b.hi));
}

constexpr uint64_t kCounterStep = 8;                   // bytes
constexpr uint64_t kNearCounters = uint64_t{1} << 31;  // far below where addresses are doubted

bool IsVector(uint16_t reg) { return reg >= kVgpr0; }
bool IsSgpr(uint16_t reg) { return reg < kVccLo; }

// A register's content. For a vector register `value` holds in the lanes of
// `mask`; in the others it is the original one as long as `rest_original`.
struct Cell {
  Value value;
  Mask mask;
  bool rest_original = true;
  bool everywhere = true;  // `mask` does not matter
};

struct State {
  std::array<Cell, kNumRegisters> cells;
  std::map<std::pair<uint16_t, uint32_t>, Value> lanes;  // v_writelane: (vgpr, lane)
  RegisterSet written;
  bool drained_vector = false, drained_lds = false, drained_scalar = false;
  // What loads of the sequence's own have not returned yet.
  RegisterSet coming_vector, coming_scalar;
  // On the longest path to here.
  uint32_t instructions = 0;
  uint64_t telemetry_bytes = 0;
  // How often the probe has counted as it should; more than it can: not known.
  uint32_t counted = 0;
};
constexpr uint32_t kMiscounted = 2;

const State& InitialState() {
  static const State initial = [] {
    State s;
    for (uint16_t r = 0; r < kNumRegisters; ++r) s.cells[r].value = Value::Original(r);
    return s;
  }();
  return initial;
}

bool SameMask(const Mask& a, const Mask& b, const Lineage& lineage) {
  return Within(a, b, lineage) && Within(b, a, lineage);
}

// Where two paths meet, only what both agree on is known.
void Join(State* into, const State& other, Lineage& lineage) {
  for (uint16_t r = 0; r < kNumRegisters; ++r) {
    Cell& a = into->cells[r];
    const Cell& b = other.cells[r];
    const bool same = a.value == b.value && a.everywhere == b.everywhere &&
                      (a.everywhere || SameMask(a.mask, b.mask, lineage));
    const bool rest_original = a.rest_original && b.rest_original;
    if (!same && !IsVector(r)) {
      a = {lineage.Common(a.value, b.value), {}, rest_original, true};
    } else if (!same) {
      a = {Value{}, {}, rest_original, false};
    }
    a.rest_original = a.rest_original && b.rest_original;
  }
  for (auto it = into->lanes.begin(); it != into->lanes.end();) {
    auto found = other.lanes.find(it->first);
    it = found != other.lanes.end() && found->second == it->second ? std::next(it)
                                                                   : into->lanes.erase(it);
  }
  into->written |= other.written;
  into->drained_vector &= other.drained_vector;
  into->drained_lds &= other.drained_lds;
  into->drained_scalar &= other.drained_scalar;
  into->coming_vector |= other.coming_vector;
  into->coming_scalar |= other.coming_scalar;
  into->instructions = std::max(into->instructions, other.instructions);
  into->telemetry_bytes = std::max(into->telemetry_bytes, other.telemetry_bytes);
  if (into->counted != other.counted) into->counted = kMiscounted;
}

// ---- Opcode facts ---------------------------------------------------------------

// Scalar instructions without operands of ours that do nothing but pass time.
bool PassesTime(std::string_view op) {
  static constexpr std::string_view kExact[] = {"s_nop",      "s_sleep",     "s_delay_alu",
                                                "s_code_end", "s_wait_idle", "s_wait_alu"};
  return std::find(std::begin(kExact), std::end(kExact), op) != std::end(kExact) ||
         StartsWith(op, "s_waitcnt") || StartsWith(op, "s_wait_");
}

// Which registers these name is decided at run time.
bool AddressesIndirectly(std::string_view op) {
  return StrContains(op, "movrel") || StrContains(op, "swaprel") ||
         StartsWith(op, "s_set_gpr_idx") || op == "s_set_vgpr_msb" || op == "s_setvskip";
}

// Reach beyond the wavefront, or change how it is scheduled or trapped.
bool IsForbidden(const Instruction& ins, std::string_view op) {
  static constexpr std::string_view kPrefixes[] = {
      "s_sethalt",        "s_setkill",           "s_setprio",
      "s_incperflevel",   "s_decperflevel",      "s_ttrace",
      "s_icache",         "s_set_gpr_idx_mode",  "s_rfe",
      "s_cbranch_g_fork", "s_cbranch_i_fork",    "s_cbranch_cdbg",
      "s_wakeup",         "s_endpgm_ordered_ps", "s_alloc_vgpr"};
  if (ins.trap || ins.sendmsg || StartsWith(op, "s_sendmsg")) return true;
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view p) { return StartsWith(op, p); });
}

// Through the scalar cache, but no memory.
bool ReadsClock(std::string_view op) { return op == "s_memtime" || op == "s_memrealtime"; }

uint32_t AccessBytes(std::string_view op) {
  static constexpr std::pair<std::string_view, uint32_t> kWidths[] = {
      {"x16", 64}, {"b512", 64}, {"x8", 32}, {"b256", 32}, {"x4", 16}, {"b128", 16}, {"x3", 12},
      {"b96", 12}, {"x2", 8},    {"b64", 8}, {"u64", 8},   {"i64", 8}, {"f64", 8}};
  for (const auto& [suffix, bytes] : kWidths) {
    if (StrContains(op, StrCat("_", suffix)) || EndsWith(op, suffix)) {
      return bytes;
    }
  }
  return 4;
}

std::string ReadClass(uint16_t reg) {
  if (reg >= kVgpr0) return "VGPR";
  switch (reg) {
    case kVccLo:
    case kVccHi:
      return "VCC";
    case kExecLo:
    case kExecHi:
      return "EXEC";
    case kM0:
      return "M0";
    case kScc:
      return "SCC";
    case kMode:
      return "MODE";
    default:
      return "SGPR";
  }
}

// Nothing but trap handlers and the hardware write these.
RegisterSet OfTrapHandlers() {
  RegisterSet ttmps;
  ttmps.Add(kTtmp0, 16);
  return ttmps;
}

// Registers that belong to the application at every site, whatever liveness says.
bool AlwaysProtected(uint16_t reg) {
  return reg == kExecLo || reg == kExecHi || reg == kMode ||
         (reg >= kFlatScratchLo && reg <= kXnackMaskHi) || (reg >= kTtmp0 && reg < kTtmp0 + 16);
}

// ---- The interpreter --------------------------------------------------------------

class Interpreter {
 public:
  Interpreter(const InferenceInput& input, Isa& isa) : in_(input), isa_(isa) {}
  Inference Run();

 private:
  bool wave64() const { return isa_.wavefront_size() == 64; }

  void Observe(Observation::Kind kind, int value, std::string name, std::string detail = "");
  Mask ExecMask(const State& s) const {
    return {s.cells[kExecLo].value, s.cells[kExecHi].value, wave64()};
  }
  Value Read(const State& s, uint16_t reg) const;
  void Write(State* s, uint16_t reg, Value value);
  void WriteUnknown(State* s, const RegisterSet& regs, const RegisterSet& except);

  void Step(State* s, const Instruction& ins);
  void NoteReads(const State& s, const Instruction& ins);
  void NoteWrites(const State& s, const Instruction& ins);
  bool StepKnown(State* s, const Instruction& ins, std::string_view op);
  bool StepMove(State* s, const Instruction& ins, std::string_view op);
  bool StepSccIdiom(State* s, const Instruction& ins, std::string_view op);
  bool StepLane(State* s, const Instruction& ins, std::string_view op);
  bool StepSaveExec(State* s, const Instruction& ins, std::string_view op);
  bool StepArithmetic(State* s, const Instruction& ins, std::string_view op);
  bool StepScalar(State* s, const Instruction& ins, std::string_view op);
  bool StepFirstLane(State* s, const Instruction& ins, std::string_view op);
  bool StepCompareExec(State* s, const Instruction& ins, std::string_view op);
  bool StepCompare(State* s, const Instruction& ins, std::string_view op);
  bool StepLanes(State* s, const Instruction& ins, std::string_view op);
  bool StepSaveLanes(State* s, const Instruction& ins, std::string_view op);
  bool StepAddress(State* s, const Instruction& ins, std::string_view op);
  bool StepAddLow(State* s, const Instruction& ins);
  bool StepAddHigh(State* s, const Instruction& ins);
  bool StepAddWide(State* s, const Instruction& ins, std::string_view op);
  void WriteLanes(State* s, const InstructionOperand& dst, const Value& lo, const Value& hi);
  bool WriteSum(State* s, uint16_t reg, const Value& lo, const Value& hi, const Value& number,
                uint64_t factor, unsigned shift);
  void NoteComing(State* s, const Instruction& ins, std::string_view op);
  void NoteMemory(State* s, const Instruction& ins, std::string_view op);
  void NoteTelemetryAccess(State* s, const Instruction& ins, std::string_view op);
  // Bytes from the buffer's start at which an access begins, at least and at most.
  struct Offsets {
    int64_t least = 0, most = 0;
    unsigned zeros = 32;  // low bits that all of them share with the least
  };
  std::optional<Offsets> TelemetryOffset(const State& s, const Instruction& ins) const;
  std::string OutsideOf(const Instruction& ins, const Offsets& at, uint32_t bytes) const;
  uint32_t ActiveLanes(const State& s, const Instruction& ins) const;
  bool CountsRight(const State& s, const Instruction& ins, std::string_view op,
                   const Offsets& at) const;
  void NoteMask(const State& s, const Instruction& ins);
  void NoteWait(State* s, const Instruction& ins, std::string_view op);
  void NoteDeclaredByOpcode(const Instruction& ins, std::string_view op);
  void Branch(State* s, const Instruction& ins, bool* reachable);
  void NoteEnd(const State& s);
  void AssumeLanes(State* s);
  void AssumeNoLanes(State* s);
  Value Operand(const State& s, const InstructionOperand& op, unsigned word) const;
  std::optional<Value> FixupIn(const Instruction& ins);
  void CheckFixups();
  void Finish(const State& end);
  void Summarise();

  const InferenceInput& in_;
  Isa& isa_;
  Inference out_;
  Lineage lineage_;
  std::vector<uint32_t> sums_ = {0};  // by id: the sum that was added to
  const Instruction* current_ = nullptr;
  std::map<uint64_t, State> joins_;
  std::set<uint64_t> starts_;
  std::set<size_t> used_fixups_;
  std::map<uint16_t, uint32_t> last_write_;  // offset of the instruction
  RegisterSet temporaries_, reported_reads_, reported_pending_, reported_coming_;
  uint32_t longest_path_ = 0;  // instructions, to an end
  uint64_t telemetry_bytes_ = 0;
  bool ends_ = false;
  bool lost_ = false;  // the walk could not be completed
  bool miscounts_ = false;
};

void Interpreter::Observe(Observation::Kind kind, int value, std::string name, std::string detail) {
  Observation o;
  o.kind = kind;
  o.value = value;
  o.name = std::move(name);
  o.detail = std::move(detail);
  if (current_ != nullptr) {
    o.offset = static_cast<uint32_t>(current_->offset);
    o.instruction = isa_.Print(in_.sequence, current_->offset);
  }
  out_.observations.push_back(std::move(o));
}

// A vector register's value as seen by the lanes that are active now.
Value Interpreter::Read(const State& s, uint16_t reg) const {
  const Cell& c = s.cells[reg];
  if (!IsVector(reg) || c.everywhere || Within(ExecMask(s), c.mask, lineage_)) return c.value;
  return {};
}

void Interpreter::Write(State* s, uint16_t reg, Value value) {
  Cell& c = s->cells[reg];
  s->written.Add(reg);
  if (!IsVector(reg)) {
    c = {value, {}, true, true};
    return;
  }
  for (auto it = s->lanes.lower_bound({reg, 0}); it != s->lanes.end() && it->first.first == reg;) {
    it = s->lanes.erase(it);
  }
  const Mask exec = ExecMask(*s);
  const bool untouched = c.everywhere && c.value == Value::Original(reg);
  const bool covers = untouched || (!c.everywhere && Within(c.mask, exec, lineage_));
  const bool restores = value == Value::Original(reg) && covers && c.rest_original;
  if (restores) {
    c = {value, {}, true, true};
    return;
  }
  c = {value, exec, c.rest_original && covers, false};
}

void Interpreter::WriteUnknown(State* s, const RegisterSet& regs, const RegisterSet& except) {
  (regs - except).ForEach([&](uint16_t r) { Write(s, r, {}); });
}

Value Interpreter::Operand(const State& s, const InstructionOperand& op, unsigned word) const {
  if (op.kind == InstructionOperand::Kind::kRegister) {
    if (word >= op.count) return {};
    return Read(s, static_cast<uint16_t>(op.reg + word));
  }
  // Inline constants and literals of 64-bit operands are sign-extended.
  return Value::Constant(static_cast<uint32_t>(static_cast<uint64_t>(op.imm) >> (32 * word)));
}

// The agent writes its word over the literal, the last dword of an 8-byte move.
std::optional<Value> Interpreter::FixupIn(const Instruction& ins) {
  for (size_t i = 0; i < in_.fixups.size(); ++i) {
    const WordFixup& f = in_.fixups[i];
    if (ins.size != 8 || f.offset != ins.offset + 4) continue;
    // Of the original's address no sequence may know.
    if (f.base != patch::FixupBase::kCounters) continue;
    used_fixups_.insert(i);
    return Value{f.high_half ? Value::Kind::kTelemetryHi : Value::Kind::kTelemetryLo, f.addend};
  }
  return std::nullopt;
}

bool Interpreter::StepMove(State* s, const Instruction& ins, std::string_view op) {
  const bool wide = op == "s_mov_b64" || op == "v_mov_b64";
  if (!wide && op != "s_mov_b32" && op != "v_mov_b32" && op != "s_movk_i32") return false;
  // DPP and SDWA forms, which move other lanes or parts, have more operands.
  if (ins.operands.size() != 2 || !ins.operands[0].is_def) return false;
  const InstructionOperand& dst = ins.operands[0];
  if (dst.kind != InstructionOperand::Kind::kRegister || dst.count != (wide ? 2 : 1)) return false;
  // Both words are read before either is written: the pairs may overlap.
  Value words[2] = {Operand(*s, ins.operands[1], 0), Operand(*s, ins.operands[1], 1)};
  if (!wide && ins.operands[1].kind == InstructionOperand::Kind::kImmediate) {
    if (op == "s_movk_i32") {  // LLVM gives the 16 bits
      const auto number = static_cast<int16_t>(ins.operands[1].imm);
      words[0] = Value::Constant(static_cast<uint32_t>(int32_t{number}));
    }
    if (auto fixup = FixupIn(ins)) words[0] = *fixup;
  }
  for (unsigned w = 0; w < dst.count; ++w) {
    Write(s, static_cast<uint16_t>(dst.reg + w), words[w]);
  }
  return true;
}

// s_cselect_b32 t,1,0 saves SCC; comparing t with 0 or 1 brings it back.
bool Interpreter::StepSccIdiom(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  const auto is_imm = [&](size_t i, int64_t v) {
    return i < ops.size() && ops[i].kind == InstructionOperand::Kind::kImmediate && ops[i].imm == v;
  };
  if (op == "s_cselect_b32" && ops.size() >= 3 && ops[0].is_def && is_imm(2, 0) &&
      (is_imm(1, 1) || is_imm(1, -1)) && s->cells[kScc].value == Value::Original(kScc)) {
    Write(s, ops[0].reg, {Value::Kind::kSavedScc, static_cast<uint64_t>(ops[1].imm)});
    return true;
  }
  const bool lg = op == "s_cmp_lg_u32" || op == "s_cmp_lg_i32" || op == "s_cmpk_lg_u32" ||
                  op == "s_cmpk_lg_i32";
  const bool eq = op == "s_cmp_eq_u32" || op == "s_cmp_eq_i32" || op == "s_cmpk_eq_u32" ||
                  op == "s_cmpk_eq_i32";
  if ((!lg && !eq) || ops.size() < 2 || ops[0].kind != InstructionOperand::Kind::kRegister) {
    return false;
  }
  const Value saved = Read(*s, ops[0].reg);
  if (saved.kind != Value::Kind::kSavedScc) return false;
  const int64_t set = static_cast<int64_t>(saved.data);
  if (!(lg && is_imm(1, 0)) && !(eq && is_imm(1, set))) return false;
  Write(s, kScc, Value::Original(kScc));
  return true;
}

bool Interpreter::StepLane(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  if (op != "v_writelane_b32" && op != "v_readlane_b32") return false;
  if (ops.size() < 3 || !ops[0].is_def || ops[2].kind != InstructionOperand::Kind::kImmediate ||
      ops[1].kind != InstructionOperand::Kind::kRegister) {
    return false;
  }
  const auto lane = static_cast<uint32_t>(ops[2].imm);
  if (op == "v_writelane_b32") {
    if (lane >= isa_.wavefront_size()) return false;
    // Writes whatever EXEC says, so no mask describes the register any more.
    Cell& c = s->cells[ops[0].reg];
    c = {Value{}, {}, false, false};
    s->written.Add(ops[0].reg);
    s->lanes[{ops[0].reg, lane}] = Read(*s, ops[1].reg);
    return true;
  }
  auto it = s->lanes.find({ops[1].reg, lane});
  Write(s, ops[0].reg, it != s->lanes.end() ? it->second : Value{});
  return true;
}

bool Interpreter::StepSaveExec(State* s, const Instruction& ins, std::string_view op) {
  const bool is_or = op == "s_or_saveexec_b64" || op == "s_or_saveexec_b32";
  if (!is_or || ins.operands.size() < 2 || !ins.operands[0].is_def) return false;
  const InstructionOperand dst = ins.operands[0];
  if (Operand(*s, ins.operands[1], 0).IsConstant(~0u) == false) return false;
  const Value old[2] = {s->cells[kExecLo].value, s->cells[kExecHi].value};
  for (unsigned w = 0; w < dst.count; ++w) Write(s, static_cast<uint16_t>(dst.reg + w), old[w]);
  Write(s, kExecLo, Value::Constant(~0u));
  if (EndsWith(op, "b64")) Write(s, kExecHi, Value::Constant(~0u));
  Write(s, kScc, {});
  return true;
}

bool Interpreter::StepKnown(State* s, const Instruction& ins, std::string_view op) {
  return StepMove(s, ins, op) || StepSccIdiom(s, ins, op) || StepLane(s, ins, op) ||
         StepSaveExec(s, ins, op) || StepArithmetic(s, ins, op) || StepFirstLane(s, ins, op) ||
         StepCompareExec(s, ins, op) || StepCompare(s, ins, op) || StepLanes(s, ins, op) ||
         StepSaveLanes(s, ins, op) || StepAddress(s, ins, op) || StepScalar(s, ins, op);
}

// Scalar arithmetic on constants, which is what is left of the counters of loops.
bool Interpreter::StepScalar(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  if (!ins.salu || ops.size() < 2 || !ops[0].is_def || ops[0].count > 2 || IsVector(ops[0].reg)) {
    return false;
  }
  const bool wide = ops[0].count == 2;
  const auto number = [&](const InstructionOperand& from) -> std::optional<uint64_t> {
    const Value low = Operand(*s, from, 0), high = Operand(*s, from, 1);
    if (low.kind != Value::Kind::kConstant) return std::nullopt;
    const bool pair = from.kind == InstructionOperand::Kind::kRegister ? from.count > 1 : wide;
    if (!pair) return low.data;
    if (high.kind != Value::Kind::kConstant) return std::nullopt;
    return high.data << 32 | low.data;
  };
  const bool in_place = StartsWith(op, "s_addk_");  // to its destination
  const auto a = number(ops[in_place ? 0 : 1]);
  auto b = number(ops.back());
  if (in_place && b) b = static_cast<uint32_t>(int32_t{static_cast<int16_t>(*b)});
  if (!a || !b || (!in_place && ops.size() != 3)) return false;
  const Value& scc = s->cells[kScc].value;
  std::optional<uint64_t> result;
  std::optional<bool> carry;
  if (op == "s_add_u32" || op == "s_add_co_u32") {
    result = *a + *b;
    carry = (*result >> 32) != 0;
  } else if (op == "s_addc_u32" || op == "s_add_co_ci_u32") {
    if (scc.kind != Value::Kind::kConstant) return false;
    result = *a + *b + scc.data;
    carry = (*result >> 32) != 0;
  } else if (op == "s_add_i32" || op == "s_add_co_i32" || op == "s_add_nc_u64" || in_place) {
    result = *a + *b;
  } else if (op == "s_mul_i32") {
    result = *a * *b;
  } else if (op == "s_lshl_b32") {
    result = *a << (*b & 31);
  } else if (op == "s_lshl_b64") {
    result = *a << (*b & 63);
  } else {
    return false;
  }
  for (uint8_t word = 0; word < ops[0].count; ++word) {
    Write(s, static_cast<uint16_t>(ops[0].reg + word),
          Value::Constant(static_cast<uint32_t>(*result >> (32 * word))));
  }
  if (ins.defs.Has(kScc)) Write(s, kScc, carry ? Value::Constant(*carry) : Value{});
  return true;
}

// Numbers that an instruction is given, each at most its bound.
struct Bounded {
  uint64_t most = ~uint32_t{0};
  unsigned zeros = 0;
};

// What 32-bit vector arithmetic makes of bounded numbers; nullopt: nothing known.
std::optional<Bounded> Arithmetic(std::string_view op, const Bounded& a, const Bounded& b,
                                  const Bounded& c, std::optional<uint64_t> a_constant,
                                  std::optional<uint64_t> b_constant,
                                  std::optional<uint64_t> c_constant, bool wave64) {
  constexpr uint64_t kAll = ~uint32_t{0};
  const auto low = [](unsigned x, unsigned y) { return std::min(x, y); };
  const auto ones = [](uint64_t most) { return std::bit_ceil(most + 1) - 1; };
  if (op == "v_and_b32") return Bounded{std::min(a.most, b.most), std::max(a.zeros, b.zeros)};
  if (op == "v_or_b32") return Bounded{ones(std::max(a.most, b.most)), low(a.zeros, b.zeros)};
  if (op == "v_min_u32") return Bounded{std::min(a.most, b.most), low(a.zeros, b.zeros)};
  if (op == "v_add_u32" || op == "v_add_nc_u32") {
    return Bounded{a.most + b.most, low(a.zeros, b.zeros)};
  }
  if (op == "v_mul_u32_u24" || op == "v_mul_lo_u32") {
    return Bounded{a.most * b.most, a.zeros + b.zeros};
  }
  if (op == "v_lshlrev_b32" && a_constant && *a_constant < 32) {
    return Bounded{b.most << *a_constant, b.zeros + static_cast<unsigned>(*a_constant)};
  }
  if (op == "v_lshrrev_b32" && a_constant && *a_constant < 32) {
    return Bounded{b.most >> *a_constant, 0};
  }
  if (op == "v_bfe_u32" && c_constant && *c_constant < 32) {
    return Bounded{(uint64_t{1} << *c_constant) - 1, 0};
  }
  if (op == "v_lshl_add_u32" && b_constant && *b_constant < 32) {
    return Bounded{(a.most << *b_constant) + c.most,
                   low(a.zeros + static_cast<unsigned>(*b_constant), c.zeros)};
  }
  if (op == "v_lshl_or_b32" && b_constant && *b_constant < 32) {
    return Bounded{ones(std::max(a.most << *b_constant, c.most)),
                   low(a.zeros + static_cast<unsigned>(*b_constant), c.zeros)};
  }
  // Of 32 lanes those below one's own; all of them for the upper half.
  if (op == "v_mbcnt_lo_u32_b32") return Bounded{b.most + (wave64 ? 32 : 31), 0};
  if (op == "v_mbcnt_hi_u32_b32") return Bounded{b.most + 31, 0};
  if (op == "v_bcnt_u32_b32") return Bounded{std::min(b.most + 32, kAll), 0};
  return std::nullopt;
}

// Vector arithmetic on bounded numbers. Forms with modifiers that matter (DPP, SDWA,
// clamp) have more operands, and so are not known.
bool Interpreter::StepArithmetic(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  if (ops.size() < 3 || !ops[0].is_def || !IsVector(ops[0].reg) || ops[0].count != 1) return false;
  const bool three = op == "v_bfe_u32" || StartsWith(op, "v_lshl_add_u32") || op == "v_lshl_or_b32";
  const size_t plain = three ? 4 : 3;
  // gfx9's additions have a bit for saturation behind the operands.
  const bool clamp = ops.size() == plain + 1 && (op == "v_add_u32" || op == "v_add_nc_u32") &&
                     ops[plain].kind == InstructionOperand::Kind::kImmediate && ops[plain].imm == 0;
  if (ops.size() != plain && !clamp) return false;
  Bounded bounded[3];
  std::optional<uint64_t> constant[3];
  for (size_t i = 0; i + 1 < plain; ++i) {
    const Value v = Operand(*s, ops[i + 1], 0);
    if (v.Most()) bounded[i] = {*v.Most(), v.Zeros()};
    if (v.kind == Value::Kind::kConstant) constant[i] = v.data;
  }
  if (op == "v_bcnt_u32_b32") {
    const Value set = Operand(*s, ops[1], 0), more = Operand(*s, ops[2], 0);
    const uint64_t half = set == Value::Original(kExecLo)   ? 1u
                          : set == Value::Original(kExecHi) ? 2u
                                                            : 0u;
    const bool sum =
        more.IsConstant(0) || (more.kind == Value::Kind::kActive && (more.data & half) == 0);
    if (half != 0 && sum) {
      const uint64_t before = more.kind == Value::Kind::kActive ? more.data : 0;
      Write(s, ops[0].reg, {Value::Kind::kActive, before | half});
      return true;
    }
  }
  const auto made = Arithmetic(op, bounded[0], bounded[1], bounded[2], constant[0], constant[1],
                               constant[2], wave64());
  if (!made) return false;
  // What goes over the top wraps: the bound says nothing then, its low bits stay.
  Write(s, ops[0].reg, Value::UpTo(made->most, made->zeros));
  return true;
}

void Interpreter::WriteLanes(State* s, const InstructionOperand& dst, const Value& lo,
                             const Value& hi) {
  Write(s, dst.reg, lo);
  if (dst.count > 1) Write(s, static_cast<uint16_t>(dst.reg + 1), hi);
}

// v_cmp sets bits of active lanes alone.
bool Interpreter::StepCompare(State* s, const Instruction& ins, std::string_view op) {
  if (!StartsWith(op, "v_cmp_")) return false;
  const Mask exec = ExecMask(*s);
  unsigned word = 0;
  bool scalar = true;
  const RegisterSet results = ins.defs | ins.partial_defs;
  results.ForEach([&](uint16_t reg) { scalar &= IsSgpr(reg) || reg == kVccLo || reg == kVccHi; });
  if (!scalar || results.Count() != (wave64() ? 2u : 1u)) return false;
  results.ForEach(
      [&](uint16_t reg) { Write(s, reg, lineage_.PartOf(word++ == 0 ? exec.lo : exec.hi)); });
  return true;
}

// Scalar logic on sets of lanes.
bool Interpreter::StepLanes(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  const bool wide = EndsWith(op, "_b64");
  if ((!wide && !EndsWith(op, "_b32")) || ops.size() != 3 || !ops[0].is_def ||
      ops[0].kind != InstructionOperand::Kind::kRegister || IsVector(ops[0].reg) ||
      ops[0].count != (wide ? 2 : 1)) {
    return false;
  }
  const std::string_view what = op.substr(0, op.size() - 4);
  const bool without = what == "s_andn2" || what == "s_and_not1";
  if (what != "s_and" && what != "s_or" && what != "s_xor" && !without) return false;
  Value made[2];
  for (unsigned w = 0; w < ops[0].count; ++w) {
    const Value a = Operand(*s, ops[1], w), b = Operand(*s, ops[2], w);
    if (what == "s_and") {
      made[w] = lineage_.Within(a, b) ? a : lineage_.Within(b, a) ? b : lineage_.PartOf(a);
      if (made[w].kind == Value::Kind::kUnknown) made[w] = lineage_.PartOf(b);
    } else if (what == "s_or") {
      made[w] = lineage_.Within(a, b)   ? b
                : lineage_.Within(b, a) ? a
                                        : lineage_.PartOf(lineage_.Around(a, b));
    } else if (what == "s_xor") {
      made[w] = lineage_.PartOf(lineage_.Around(a, b));
    } else {
      made[w] = lineage_.PartOf(a);
    }
  }
  WriteLanes(s, ops[0], made[0], made[1]);
  Write(s, kScc, {});
  return true;
}

// EXEC goes to a register, and what logic makes of it to EXEC.
bool Interpreter::StepSaveLanes(State* s, const Instruction& ins, std::string_view op) {
  const size_t at = op.find("_saveexec_b");
  const auto& ops = ins.operands;
  if (at == std::string_view::npos || ops.size() != 2 || !ops[0].is_def ||
      ops[0].kind != InstructionOperand::Kind::kRegister || ops[0].count != (wave64() ? 2 : 1)) {
    return false;
  }
  const std::string_view what = op.substr(0, at);
  Value old[2], made[2];
  for (unsigned w = 0; w < ops[0].count; ++w) {
    old[w] = s->cells[kExecLo + w].value;
    const Value from = Operand(*s, ops[1], w);
    if (what == "s_and") {
      made[w] = lineage_.Within(from, old[w])   ? from
                : lineage_.Within(old[w], from) ? old[w]
                                                : lineage_.PartOf(old[w]);
    } else if (what == "s_or") {
      made[w] =
          lineage_.Within(old[w], from) ? from : lineage_.PartOf(lineage_.Around(from, old[w]));
    } else if (what == "s_xor") {
      made[w] = lineage_.PartOf(lineage_.Around(from, old[w]));
    } else if (what == "s_andn2" || what == "s_and_not1") {
      made[w] = lineage_.PartOf(from);
    } else if (what == "s_andn1" || what == "s_and_not0") {
      made[w] = lineage_.PartOf(old[w]);
    }
  }
  WriteLanes(s, ops[0], old[0], old[1]);
  Write(s, kExecLo, made[0]);
  if (wave64()) Write(s, kExecHi, made[1]);
  Write(s, kScc, {});
  return true;
}

// ---- Addresses in the telemetry block -------------------------------------------------

// address + number * factor << shift, into a pair, if it is known to be that.
bool Interpreter::WriteSum(State* s, uint16_t reg, const Value& lo, const Value& hi,
                           const Value& number, uint64_t factor, unsigned shift) {
  const bool address = lo.kind == Value::Kind::kTelemetryLo &&
                       hi.kind == Value::Kind::kTelemetryHi && lo.data == hi.data &&
                       lo.id == hi.id && lo.more == hi.more && lo.zeros == hi.zeros;
  if (!address || !number.Most() || shift > 31 || factor > ~uint32_t{0}) return false;
  const uint64_t most = (*number.Most() * factor) << shift;
  if (most > ~uint32_t{0} || lo.more + most > ~uint32_t{0}) return false;
  Value sum = lo;
  sum.more += most;
  const unsigned zeros = std::min<unsigned>(
      number.Zeros() + shift + static_cast<unsigned>(std::countr_zero(factor | uint64_t{1} << 32)),
      32);
  sum.zeros = static_cast<uint8_t>(lo.id == 0 ? zeros : std::min<unsigned>(lo.zeros, zeros));
  sum.id = static_cast<uint32_t>(sums_.size());
  sums_.push_back(lo.id);
  Write(s, reg, sum);
  sum.kind = Value::Kind::kTelemetryHi;
  Write(s, static_cast<uint16_t>(reg + 1), sum);
  return true;
}

// Low half of an addition: its carry is remembered with it.
bool Interpreter::StepAddLow(State* s, const Instruction& ins) {
  const auto& ops = ins.operands;
  const bool named = ops.size() > 1 && ops[1].is_def;
  const size_t first = named ? 2 : 1;
  const bool clamp = ops.size() == first + 3 && ops[first + 2].imm == 0 &&
                     ops[first + 2].kind == InstructionOperand::Kind::kImmediate;
  if (!ops[0].is_def || (ops.size() != first + 2 && !clamp)) return false;
  Value a = Operand(*s, ops[first], 0), b = Operand(*s, ops[first + 1], 0);
  if (b.kind == Value::Kind::kTelemetryLo) std::swap(a, b);
  if (a.kind != Value::Kind::kTelemetryLo || !b.Most()) return false;
  Value sum = a;
  sum.more += *b.Most();
  if (sum.more > ~uint32_t{0}) return false;
  const unsigned zeros = b.Zeros();
  sum.zeros = static_cast<uint8_t>(a.id == 0 ? zeros : std::min<unsigned>(a.zeros, zeros));
  sum.id = static_cast<uint32_t>(sums_.size());
  sums_.push_back(a.id);
  Value carry = sum;
  carry.kind = Value::Kind::kCarry;
  WriteUnknown(s, ins.defs | ins.partial_defs, {});
  Write(s, ops[0].reg, sum);
  const uint16_t mask = named ? ops[1].reg : static_cast<uint16_t>(kVccLo);
  for (unsigned w = 0; w < (wave64() ? 2u : 1u); ++w) {
    Write(s, static_cast<uint16_t>(mask + w), carry);
  }
  return true;
}

// High half: the address's, nothing, and the carry out of its own low half.
bool Interpreter::StepAddHigh(State* s, const Instruction& ins) {
  const auto& ops = ins.operands;
  const bool named = ops.size() > 1 && ops[1].is_def;
  const size_t first = named ? 2 : 1;
  if (!ops[0].is_def || ops.size() < first + 2) return false;
  Value a = Operand(*s, ops[first], 0), b = Operand(*s, ops[first + 1], 0);
  if (b.kind == Value::Kind::kTelemetryHi) std::swap(a, b);
  if (a.kind != Value::Kind::kTelemetryHi || !b.IsConstant(0)) return false;
  uint16_t mask = kVccLo;
  size_t end = first + 2;
  if (named) {
    if (ops.size() < first + 3 || ops[first + 2].kind != InstructionOperand::Kind::kRegister) {
      return false;
    }
    mask = ops[first + 2].reg;
    ++end;
  }
  const bool clamp = ops.size() == end + 1 && ops[end].imm == 0 &&
                     ops[end].kind == InstructionOperand::Kind::kImmediate;
  if (ops.size() != end && !clamp) return false;
  const Value carry = s->cells[mask].value;
  if (carry.kind != Value::Kind::kCarry || carry.data != a.data || sums_[carry.id] != a.id) {
    return false;
  }
  if (wave64() && !(s->cells[mask + 1].value == carry)) return false;
  Value sum = carry;
  sum.kind = Value::Kind::kTelemetryHi;
  WriteUnknown(s, ins.defs | ins.partial_defs, {});
  Write(s, ops[0].reg, sum);
  return true;
}

// Whole 64-bit operations.
bool Interpreter::StepAddWide(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  if (ops.size() < 3 || !ops[0].is_def || ops[0].count != 2) return false;
  const auto word = [&](size_t i, unsigned w) { return Operand(*s, ops[i], w); };
  if (op == "v_lshlrev_b64" || op == "v_lshlrev_b64_e64") {
    const Value shift = word(1, 0), number = word(2, 0);
    const bool small = ops.size() == 3 && shift.kind == Value::Kind::kConstant && shift.data < 32 &&
                       number.Most() && word(2, 1).IsConstant(0) &&
                       (*number.Most() << shift.data) <= ~uint32_t{0};
    if (!small) return false;
    const Value made = Value::UpTo(*number.Most() << shift.data,
                                   number.Zeros() + static_cast<unsigned>(shift.data));
    Write(s, ops[0].reg, made);
    Write(s, static_cast<uint16_t>(ops[0].reg + 1), Value::Constant(0));
    return true;
  }
  if (op == "v_lshl_add_u64" && ops.size() == 4) {
    const Value shift = word(2, 0);
    if (shift.kind != Value::Kind::kConstant || shift.data > 31) return false;
    const auto by = static_cast<unsigned>(shift.data);
    if (word(1, 1).IsConstant(0) &&
        WriteSum(s, ops[0].reg, word(3, 0), word(3, 1), word(1, 0), 1, by)) {
      return true;
    }
    return by == 0 && word(3, 1).IsConstant(0) &&
           WriteSum(s, ops[0].reg, word(1, 0), word(1, 1), word(3, 0), 1, 0);
  }
  if (op == "v_mad_u64_u32" && ops.size() >= 5 && ops[1].is_def && ops[4].count == 2) {
    const Value a = word(2, 0), b = word(3, 0), lo = word(4, 0), hi = word(4, 1);
    const bool left = a.kind == Value::Kind::kConstant;
    if (!left && b.kind != Value::Kind::kConstant) return false;
    const Value& number = left ? b : a;
    const uint64_t factor = left ? a.data : b.data;
    const bool clamp =
        ops.size() == 6 && ops[5].kind == InstructionOperand::Kind::kImmediate && ops[5].imm == 0;
    if (ops.size() != 5 && !clamp) return false;
    const RegisterSet carry = ins.defs | ins.partial_defs;
    if (!WriteSum(s, ops[0].reg, lo, hi, number, factor, 0)) return false;
    RegisterSet pair;
    pair.Add(ops[0].reg, 2);
    WriteUnknown(s, carry, pair);
    return true;
  }
  return false;
}

bool Interpreter::StepAddress(State* s, const Instruction& ins, std::string_view op) {
  if (op == "v_add_co_u32") return StepAddLow(s, ins);
  if (op == "v_addc_co_u32" || op == "v_add_co_ci_u32") return StepAddHigh(s, ins);
  return StepAddWide(s, ins, op);
}

// With no lane active lane 0 is read, of which nothing is known.
bool Interpreter::StepFirstLane(State* s, const Instruction& ins, std::string_view op) {
  const auto& ops = ins.operands;
  if (op != "v_readfirstlane_b32" || ops.size() != 2 || !ops[0].is_def ||
      ops[1].kind != InstructionOperand::Kind::kRegister) {
    return false;
  }
  const Mask exec = ExecMask(*s);
  const auto active = [](const Value& v) {
    return v.kind == Value::Kind::kConstant && v.data != 0;
  };
  const bool some = active(exec.lo) || (exec.wave64 && active(exec.hi));
  const Value value = Read(*s, ops[1].reg);
  Write(s, ops[0].reg, some && value.Most() ? value : Value{});
  return true;
}

// v_cmpx switches lanes off, and on gfx9 writes a pair besides.
bool Interpreter::StepCompareExec(State* s, const Instruction& ins, std::string_view op) {
  if (!StartsWith(op, "v_cmpx_")) return false;
  const Mask before = ExecMask(*s);
  WriteUnknown(s, ins.defs | ins.partial_defs, {});
  s->cells[kExecLo] = {lineage_.PartOf(before.lo), {}, true, true};
  s->written.Add(kExecLo);
  if (!wave64()) return true;
  s->cells[kExecHi] = {lineage_.PartOf(before.hi), {}, true, true};
  s->written.Add(kExecHi);
  return true;
}

// Registers that a load of the sequence's own will write: nobody may touch them
// until it was waited for.
void Interpreter::NoteComing(State* s, const Instruction& ins, std::string_view op) {
  const RegisterSet coming = s->coming_vector | s->coming_scalar;
  const RegisterSet touched = (ins.uses | ins.defs | ins.partial_defs) & coming;
  (touched - reported_coming_).ForEach([&](uint16_t r) {
    reported_coming_.Add(r);
    Observe(Kind::kLoadInFlight, 0, RegisterName(r), "of the probe's own");
  });
  const RegisterSet results = ins.defs | ins.partial_defs;
  if (ReadsClock(op) || (ins.memory == MemoryKind::kScalar && (ins.load || ins.returns_value))) {
    s->coming_scalar |= results;
  } else if (ins.memory != MemoryKind::kNone && (ins.load || ins.returns_value)) {
    s->coming_vector |= results;
  }
}

// Reads of the application's own values. A register that is dead at the site
// holds nothing of the application's.
void Interpreter::NoteReads(const State& s, const Instruction& ins) {
  RegisterSet uses = ins.uses;
  // DS and FLAT forms claim M0 and FLAT_SCRATCH; global forms use neither.
  if (ins.memory == MemoryKind::kGlobal || ins.memory == MemoryKind::kLds) uses.Remove(kM0);
  if (ins.opcode == "v_writelane_b32") uses -= ins.defs | ins.partial_defs;
  (uses - reported_reads_).ForEach([&](uint16_t r) {
    if (!wave64() && r == kExecHi) return;
    const Cell& c = s.cells[r];
    if (!(c.value == Value::Original(r))) return;
    if (!in_.live.Has(r) && !AlwaysProtected(r)) return out_.assumed_dead.Add(r);
    reported_reads_.Add(r);
    Observe(Kind::kRead, 0, ReadClass(r), RegisterName(r));
  });
}

void Interpreter::NoteWrites(const State& s, const Instruction& ins) {
  const bool drained = s.drained_vector && s.drained_lds && s.drained_scalar;
  const RegisterSet writes = ins.defs | ins.partial_defs;
  // Reading what a load of the application's may still write gives no value.
  if (!drained) {
    out_.assumed_landed |= ((ins.uses - in_.arrived - s.written) | writes) - in_.pending;
    ((ins.uses & in_.pending) - in_.arrived - s.written - reported_pending_ - OfTrapHandlers())
        .ForEach([&](uint16_t r) {
          reported_pending_.Add(r);
          Observe(Kind::kLoadInFlight, 0, RegisterName(r), "read");
        });
  }
  writes.ForEach([&](uint16_t r) {
    last_write_[r] = static_cast<uint32_t>(ins.offset);
    if (in_.pending.Has(r) && !drained && !reported_pending_.Has(r)) {
      reported_pending_.Add(r);
      Observe(Kind::kLoadInFlight, 0, RegisterName(r));
    }
  });
}

// Which counters a wait brings to zero. Fields: LLVM AMDGPUUsage, s_waitcnt.
void Interpreter::NoteWait(State* s, const Instruction& ins, std::string_view op) {
  uint64_t imm = ~uint64_t{0};
  for (const InstructionOperand& o : ins.operands) {
    if (o.kind == InstructionOperand::Kind::kImmediate) imm = static_cast<uint64_t>(o.imm);
  }
  const auto vector = [s] {
    s->drained_vector = true;
    s->coming_vector = RegisterSet();
  };
  const auto scalar = [s] {
    s->drained_scalar = true;
    s->coming_scalar = RegisterSet();
  };
  if (op == "s_wait_idle") {
    s->drained_lds = true;
    vector();
    scalar();
  }
  if (op == "s_waitcnt") {
    const int major = isa_.generation().major;
    const uint64_t vm = major >= 11 ? imm >> 10 & 0x3f : (imm & 0xf) | (imm >> 10 & 0x30);
    const uint64_t lgkm = major >= 11   ? imm >> 4 & 0x3f
                          : major == 10 ? imm >> 8 & 0x3f
                                        : imm >> 8 & 0xf;
    if (vm == 0) vector();
    if (lgkm == 0) {
      s->drained_lds = true;
      scalar();
    }
  }
  const bool zero = (imm & 0xffff) == 0;
  if (!zero) return;
  // gfx12 counts samples and BVH queries apart from plain loads.
  if (op == "s_wait_loadcnt" || op == "s_wait_loadcnt_dscnt") vector();
  if (op == "s_wait_dscnt" || op == "s_wait_loadcnt_dscnt") s->drained_lds = true;
  if (op == "s_wait_kmcnt") scalar();
}

void Interpreter::NoteMask(const State& s, const Instruction& ins) {
  if (ins.memory == MemoryKind::kScalar) {
    Observe(Kind::kMask, v1::SINGLE_LANE, "");
    return;
  }
  const Mask exec = ExecMask(s);
  const Mask original{Value::Original(kExecLo), Value::Original(kExecHi), wave64()};
  const bool constant = exec.lo.kind == Value::Kind::kConstant &&
                        (!exec.wave64 || exec.hi.kind == Value::Kind::kConstant);
  if (!constant && Within(exec, original, lineage_)) {
    Observe(Kind::kMask, v1::APPLICATION_MASK, "");
    return;
  }
  if (!constant) {
    Observe(Kind::kUnproven, 0, "the lanes that are active");
    return;
  }
  const int lanes = std::popcount(static_cast<uint32_t>(exec.lo.data)) +
                    (exec.wave64 ? std::popcount(static_cast<uint32_t>(exec.hi.data)) : 0);
  Observe(Kind::kMask, lanes <= 1 ? v1::SINGLE_LANE : v1::ALL_LANES, "");
}

// If every active lane's address is provably in the buffer. Operand order: LLVM's,
// address before data, scalar base after.
std::optional<Interpreter::Offsets> Interpreter::TelemetryOffset(const State& s,
                                                                 const Instruction& ins) const {
  if (ins.scales_offset) return std::nullopt;
  const InstructionOperand* vaddr = nullptr;
  const InstructionOperand* sbase = nullptr;
  for (const InstructionOperand& o : ins.operands) {
    if (o.kind != InstructionOperand::Kind::kRegister) continue;
    if (IsVector(o.reg) && !o.is_def && vaddr == nullptr) vaddr = &o;
    const bool scalar_pair = (IsSgpr(o.reg) || o.reg == kVccLo) && o.count == 2;
    if (scalar_pair && !o.is_def) sbase = &o;  // the last: s_atomic has data first
  }
  const bool scalar = ins.memory == MemoryKind::kScalar;
  if (scalar && sbase == nullptr) return std::nullopt;
  if (!scalar && vaddr == nullptr) return std::nullopt;
  const InstructionOperand& base = sbase != nullptr ? *sbase : *vaddr;
  if (base.count != 2) return std::nullopt;
  const Value lo = Read(s, base.reg), hi = Read(s, static_cast<uint16_t>(base.reg + 1));
  if (lo.kind != Value::Kind::kTelemetryLo || hi.kind != Value::Kind::kTelemetryHi ||
      lo.data != hi.data || lo.data > (uint64_t{1} << 32) || lo.id != hi.id || lo.more != hi.more ||
      lo.zeros != hi.zeros) {
    return std::nullopt;
  }
  const int64_t offset = static_cast<int64_t>(lo.data) + ins.memory_offset;
  Offsets result{offset, offset + static_cast<int64_t>(lo.more)};
  if (lo.id != 0) result.zeros = lo.zeros;
  if (!scalar && sbase != nullptr) {
    const Value index = Read(s, vaddr->reg);
    if (vaddr->count != 1 || !index.Most()) return std::nullopt;
    result.most += static_cast<int64_t>(*index.Most());
    if (index.kind == Value::Kind::kConstant) {
      result.least += static_cast<int64_t>(index.data);
    } else {
      result.zeros = std::min(result.zeros, index.Zeros());
    }
  }
  if (scalar) {  // a register offset would be one more SGPR operand
    for (const InstructionOperand& o : ins.operands) {
      const bool extra = o.kind == InstructionOperand::Kind::kRegister && &o > sbase;
      if (extra) return std::nullopt;
    }
  }
  return result;
}

// Empty: the access lies in what the probe may touch. Atomics: its own counter, and
// the ring's reservation word. Stores: the counter, and the ring's records.
std::string Interpreter::OutsideOf(const Instruction& ins, const Offsets& at,
                                   uint32_t bytes) const {
  const auto begin = static_cast<int64_t>(in_.telemetry_begin);
  const auto end = static_cast<int64_t>(in_.telemetry_end);
  const bool exact = at.least == at.most;
  const bool aligned =
      !ins.atomic || (at.least % bytes == 0 &&
                      at.zeros >= static_cast<unsigned>(std::countr_zero(uint64_t{bytes})));
  if (at.least >= begin && at.most + bytes <= end && aligned) return "";
  const auto ring = static_cast<int64_t>(in_.ring_begin);
  const int64_t records = ring + RJDBI_RING_HEADER_BYTES;
  const int64_t records_end = records + 2 * int64_t{in_.ring_half_bytes} + RJDBI_RING_PAD_BYTES;
  if (in_.ring_half_bytes != 0) {
    if (ins.atomic && exact && at.least == ring && bytes == kCounterStep) return "";
    if (ins.store && at.least >= records && at.most + bytes <= records_end) return "";
  }
  return StrCat("bytes ", at.least, " to ", at.most + bytes,
                " of the counter buffer, where the probe owns bytes ", begin, " to ", end,
                in_.ring_half_bytes == 0
                    ? ""
                    : StrCat(" and the ring's records, ", records, " to ", records_end));
}

uint32_t Interpreter::ActiveLanes(const State& s, const Instruction& ins) const {
  if (ins.memory == MemoryKind::kScalar) return 1;
  const Mask exec = ExecMask(s);
  const bool constant = exec.lo.kind == Value::Kind::kConstant &&
                        (!exec.wave64 || exec.hi.kind == Value::Kind::kConstant);
  if (!constant) return isa_.wavefront_size();
  return static_cast<uint32_t>(
      std::popcount(static_cast<uint32_t>(exec.lo.data)) +
      (exec.wave64 ? std::popcount(static_cast<uint32_t>(exec.hi.data)) : 0));
}

// One lane adds what is to be counted to the counter.
bool Interpreter::CountsRight(const State& s, const Instruction& ins, std::string_view op,
                              const Offsets& at) const {
  static constexpr std::string_view kAdds[] = {"global_atomic_add_x2", "global_atomic_add_u64",
                                               "flat_atomic_add_x2", "flat_atomic_add_u64"};
  const bool adds = std::find(std::begin(kAdds), std::end(kAdds), op) != std::end(kAdds);
  if (!adds || ActiveLanes(s, ins) != 1 || at.least != at.most ||
      at.least != static_cast<int64_t>(in_.telemetry_begin)) {
    return false;
  }
  // Behind the address, LLVM's order.
  const InstructionOperand* data = nullptr;
  bool address = false;
  for (const InstructionOperand& o : ins.operands) {
    if (o.kind != InstructionOperand::Kind::kRegister || o.is_def || !IsVector(o.reg)) continue;
    if (std::exchange(address, true)) {
      data = &o;
      break;
    }
  }
  if (data == nullptr || data->count != 2) return false;
  const Value lo = Read(s, data->reg), hi = Read(s, static_cast<uint16_t>(data->reg + 1));
  if (!hi.IsConstant(0)) return false;
  if (in_.counts == InferenceInput::Counts::kWaves) return lo.IsConstant(1);
  return lo.kind == Value::Kind::kActive && lo.data == (wave64() ? 3u : 1u);
}

void Interpreter::NoteTelemetryAccess(State* s, const Instruction& ins, std::string_view op) {
  const bool writes = ins.store || ins.atomic;
  const auto other = writes ? v1::APPLICATION_MEMORY_WRITE : v1::APPLICATION_MEMORY_READ;
  const std::optional<Offsets> at = TelemetryOffset(*s, ins);
  const uint32_t bytes = AccessBytes(op);
  if (!at) {
    Observe(Kind::kMemory, other, "", "the address is not proven to be the probe's counter");
    return;
  }
  // Counters are 8 bytes apart: wider alignment depends on which one it is.
  out_.depends_on_counter |= bytes > kCounterStep;
  if (std::string outside = OutsideOf(ins, *at, bytes); !outside.empty()) {
    out_.depends_on_counter = true;  // the text names bytes
    Observe(Kind::kMemory, other, "", std::move(outside));
    return;
  }
  Observe(Kind::kMemory, v1::PRIVATE_TELEMETRY, "");
  if (in_.counts != InferenceInput::Counts::kNothing && writes) {
    const bool right = CountsRight(*s, ins, op, *at);
    s->counted = right ? std::min(s->counted + 1, kMiscounted) : kMiscounted;
  }
  s->telemetry_bytes += uint64_t{ActiveLanes(*s, ins)} * bytes;
}

void Interpreter::NoteMemory(State* s, const Instruction& ins, std::string_view op) {
  if (ins.memory == MemoryKind::kNone || (!ins.load && !ins.store && !ins.atomic)) return;
  if (ReadsClock(op)) return;
  switch (ins.memory) {
    case MemoryKind::kGlobal:
    case MemoryKind::kFlat:
    case MemoryKind::kScalar:
      NoteTelemetryAccess(s, ins, op);
      break;
    case MemoryKind::kScratch:
      Observe(Kind::kMemory, v1::PRIVATE_SCRATCH, "");
      break;
    case MemoryKind::kLds:
      Observe(Kind::kMemory, v1::LDS_RANGE, "");
      break;
    default:
      Observe(Kind::kMemory,
              ins.store || ins.atomic ? v1::APPLICATION_MEMORY_WRITE : v1::APPLICATION_MEMORY_READ,
              "", "the address is not proven to be the probe's counter");
  }
  NoteMask(*s, ins);
  if (!ins.atomic) return;
  const std::string text = isa_.Print(in_.sequence, ins.offset);
  const bool system =
      StrContains(text, "SCOPE_SYS") || EndsWith(text, " scc") || StrContains(text, " sc1");
  Observe(Kind::kSync, system ? v1::ATOMIC_SYSTEM_SCOPE : v1::ATOMIC_AGENT_SCOPE, "");
}

void Interpreter::NoteDeclaredByOpcode(const Instruction& ins, std::string_view op) {
  if (ins.setreg || StartsWith(op, "s_setreg") || StartsWith(op, "s_round_mode") ||
      StartsWith(op, "s_denorm_mode")) {
    Observe(Kind::kStateChanged, 0, "MODE", "a hardware register is written");
  }
  if (ins.barrier) Observe(Kind::kSync, v1::WORKGROUP_BARRIER, "");
  if (AddressesIndirectly(op)) Observe(Kind::kUnproven, 0, "the registers that it names");
  if (IsForbidden(ins, op)) Observe(Kind::kForbidden, 0, std::string(op));
  if (ins.call) {
    Observe(Kind::kControl, v1::CALLS, "");
    Observe(Kind::kUnproven, 0, "the effects of the called function");
  } else if (ins.indirect) {
    Observe(Kind::kControl, v1::CALLS, "");
    Observe(Kind::kUnproven, 0, "the jump's target");
  } else if (ins.reads_pc) {
    Observe(Kind::kUnproven, 0, "a result that depends on the probe's address");
  }
}

bool Understood(const Instruction& ins, std::string_view op) {
  if (PassesTime(op) || ReadsClock(op) || ins.branch || ins.call || ins.ends_program ||
      ins.barrier || ins.trap || ins.sendmsg || ins.setreg || ins.valu || ins.mfma || ins.waitcnt) {
    return true;
  }
  if (ins.memory != MemoryKind::kNone && (ins.load || ins.store || ins.atomic)) return true;
  // Scalar arithmetic names its results. A move to the null register names none.
  return ins.salu &&
         (!ins.defs.Empty() || !ins.partial_defs.Empty() || op == "s_mov_b32" || op == "s_mov_b64");
}

void Interpreter::Step(State* s, const Instruction& ins) {
  const std::string_view op = ins.opcode;
  ++s->instructions;
  NoteReads(*s, ins);
  NoteWrites(*s, ins);
  NoteComing(s, ins, op);
  NoteDeclaredByOpcode(ins, op);
  if (!IsForbidden(ins, op) && !Understood(ins, op))
    Observe(Kind::kUnproven, 0, "what the instruction does");
  if (!ins.waitcnt) {
    NoteMemory(s, ins, op);
  }
  NoteWait(s, ins, op);
  if (!StepKnown(s, ins, op)) WriteUnknown(s, ins.defs | ins.partial_defs, {});
  temporaries_ |= ins.defs | ins.partial_defs;
}

void Interpreter::NoteEnd(const State& s) {
  longest_path_ = std::max(longest_path_, s.instructions);
  telemetry_bytes_ = std::max(telemetry_bytes_, s.telemetry_bytes);
  if (in_.counts == InferenceInput::Counts::kNothing || s.counted == 1 || miscounts_) return;
  miscounts_ = true;
  const Instruction* at = std::exchange(current_, nullptr);
  Observe(Kind::kUnproven, 0, "that each execution is counted once");
  current_ = at;
}

void Interpreter::Branch(State* s, const Instruction& ins, bool* reachable) {
  if (ins.ends_program) {
    Observe(Kind::kControl, v1::ENDS_PROGRAM, "");
    Observe(Kind::kStateChanged, 0, "PROGRAM", "the wavefront ends");
    ends_ = true;
    NoteEnd(*s);
    *reachable = false;
    return;
  }
  if (!ins.branch || ins.call || ins.indirect) return;
  const int64_t target = ins.target_offset.value_or(-1);
  const bool forward = target > static_cast<int64_t>(ins.offset) &&
                       target <= static_cast<int64_t>(in_.sequence.size()) &&
                       (starts_.count(static_cast<uint64_t>(target)) != 0 ||
                        target == static_cast<int64_t>(in_.sequence.size()));
  if (!forward) {
    Observe(Kind::kUnproven, 0,
            target <= static_cast<int64_t>(ins.offset) && target >= 0
                ? "how often a backward branch repeats"
                : "where the branch lands");
    lost_ = true;
  } else {
    State there = *s;
    if (ins.opcode == "s_cbranch_execnz") AssumeLanes(&there);
    if (ins.opcode == "s_cbranch_execz") AssumeNoLanes(&there);
    auto [it, fresh] = joins_.try_emplace(static_cast<uint64_t>(target), there);
    if (!fresh) Join(&it->second, there, lineage_);
  }
  if (ins.opcode == "s_cbranch_execnz") AssumeNoLanes(s);
  if (ins.opcode == "s_cbranch_execz") AssumeLanes(s);
  if (!ins.conditional) *reachable = false;
}

// Of a single lane that may be active, it is.
void Interpreter::AssumeLanes(State* s) {
  Value& lo = s->cells[kExecLo].value;
  Value& hi = s->cells[kExecHi].value;
  const bool one = lo.kind == Value::Kind::kSubset && std::popcount(lo.data) == 1;
  const bool none =
      !wave64() || hi.IsConstant(0) || (hi.kind == Value::Kind::kSubset && hi.data == 0);
  if (!one || !none) return;
  lo = Value::Constant(static_cast<uint32_t>(lo.data));
  if (wave64()) hi = Value::Constant(0);
}

// Where EXEC is the application's, it stays that.
void Interpreter::AssumeNoLanes(State* s) {
  const auto narrowed = [s](uint16_t reg) {
    return s->cells[reg].value.kind == Value::Kind::kSubset;
  };
  if (!narrowed(kExecLo) || (wave64() && !narrowed(kExecHi))) return;
  s->cells[kExecLo].value = Value::Constant(0);
  s->written.Add(kExecLo);
  if (!wave64()) return;
  s->cells[kExecHi].value = Value::Constant(0);
  s->written.Add(kExecHi);
}

void Interpreter::CheckFixups() {
  current_ = nullptr;
  for (size_t i = 0; i < in_.fixups.size(); ++i) {
    if (used_fixups_.count(i) != 0) continue;
    Observe(Kind::kFixupPlace, 0, StrCat("byte ", in_.fixups[i].offset));
    out_.observations.back().offset =
        static_cast<uint32_t>(std::min<uint64_t>(in_.fixups[i].offset, in_.sequence.size()));
  }
}

// What the application finds when it goes on.
void Interpreter::Finish(const State& end) {
  current_ = nullptr;
  NoteEnd(end);
  (end.coming_vector | end.coming_scalar).ForEach([&](uint16_t r) {
    Observe(Kind::kLoadInFlight, 0, RegisterName(r), "of the probe's own, at its end");
  });
  end.written.ForEach([&](uint16_t r) {
    if (!wave64() && r == kExecHi) return;
    const Cell& c = end.cells[r];
    const bool restored = c.value == Value::Original(r) && c.everywhere;
    const bool needed = in_.live.Has(r) || in_.pending.Has(r) || AlwaysProtected(r);
    if (restored) temporaries_.Remove(r);
    if (!needed && !restored) out_.assumed_dead.Add(r);
    if (!needed || restored) return;
    temporaries_.Remove(r);
    // s_setreg is reported where it stands.
    if (r == kMode) return;
    const std::string state =
        r >= kVccLo && r < kVgpr0 && ReadClass(r) != "SGPR" ? ReadClass(r) : RegisterName(r);
    Observe(Kind::kStateChanged, 0, state, StrCat(RegisterName(r), " is not restored"));
    if (auto it = last_write_.find(r); it != last_write_.end()) {
      out_.observations.back().offset = it->second;
      out_.observations.back().instruction = isa_.Print(in_.sequence, it->second);
    }
  });
}

template <typename Repeated, typename T>
void AddUnique(Repeated* list, const T& value) {
  if (std::find(list->begin(), list->end(), value) == list->end()) *list->Add() = value;
}

void Interpreter::Summarise() {
  v1::InferredEffects& e = out_.effects;
  bool unknown = lost_;
  int mask = v1::MASK_POLICY_UNSPECIFIED;
  for (const Observation& o : out_.observations) {
    switch (o.kind) {
      case Kind::kMemory:
        AddUnique(e.mutable_memory(), o.value);
        break;
      case Kind::kControl:
        AddUnique(e.mutable_control(), o.value);
        break;
      case Kind::kSync:
        AddUnique(e.mutable_synchronisation(), o.value);
        break;
      case Kind::kMask:  // the widest; a mixture of both narrow ones is wide
        mask = mask == 0 || mask == o.value ? o.value : static_cast<int>(v1::ALL_LANES);
        break;
      case Kind::kRead:
        AddUnique(e.mutable_reads(), o.name);
        break;
      case Kind::kStateChanged:
        AddUnique(e.mutable_writes(), o.name);
        break;
      case Kind::kUnproven:
        unknown = true;
        break;
      default:
        break;
    }
  }
  if (!ends_ || e.control().empty())
    AddUnique(e.mutable_control(), static_cast<int>(v1::FALL_THROUGH));
  e.set_mask_policy(static_cast<v1::MaskPolicy>(mask));
  if (longest_path_ > 0 && !lost_) e.set_instructions(longest_path_);
  e.set_telemetry_bytes(static_cast<uint32_t>(std::min<uint64_t>(telemetry_bytes_, ~0u)));
  e.set_temporary_sgprs(temporaries_.CountIn(kSgpr0, kVccLo));
  e.set_temporary_vgprs(temporaries_.CountIn(kVgpr0, kNumRegisters - kVgpr0));
  e.set_certainty(unknown ? v1::UNKNOWN : v1::PROVEN);
}

Inference Interpreter::Run() {
  std::vector<Instruction> code;
  code.reserve(in_.sequence.size() / 4);
  uint64_t offset = 0;
  while (offset < in_.sequence.size()) {
    std::optional<Instruction> ins = isa_.Decode(in_.sequence, offset);
    if (!ins || ins->size == 0) {
      Observe(Kind::kUnproven, 0, "bytes that do not decode");
      out_.observations.back().offset = static_cast<uint32_t>(offset);
      lost_ = true;
      break;
    }
    starts_.insert(offset);
    offset += ins->size;
    code.push_back(*std::move(ins));
  }
  out_.effects.set_instructions(static_cast<uint32_t>(code.size()));
  State state = InitialState();
  bool reachable = true;
  for (const Instruction& ins : code) {
    current_ = &ins;
    if (auto it = joins_.find(ins.offset); it != joins_.end()) {
      if (reachable) {
        Join(&state, it->second, lineage_);
      } else {
        state = it->second;
      }
      reachable = true;
    }
    if (!reachable) {
      // Nothing leads here; bytes that cannot run are still not trusted.
      Observe(Kind::kUnproven, 0, "code that no path reaches");
      continue;
    }
    Step(&state, ins);
    Branch(&state, ins, &reachable);
  }
  if (auto it = joins_.find(in_.sequence.size()); it != joins_.end()) {
    if (reachable) {
      Join(&state, it->second, lineage_);
    } else {
      state = it->second;
    }
    reachable = true;
  }
  CheckFixups();
  if (reachable) Finish(state);
  Summarise();
  return std::move(out_);
}

// ---- Remembering --------------------------------------------------------------------

template <typename T>
void AppendRaw(std::string* key, const T& value) {
  key->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// ---- Manifest check -----------------------------------------------------------------

class Checker {
 public:
  Checker(const Inference& inference, const Manifest& manifest, const v1::Location& site)
      : inference_(inference), manifest_(manifest), site_(site) {}

  std::vector<v1::Violation> Run() {
    for (const Observation& o : inference_.observations) Check(o);
    CheckNumbers();
    return std::move(out_);
  }

 private:
  void Add(std::string_view id, std::string_view field, const Observation* witness,
           std::string observed, std::string limit, std::string message) {
    // One violation per constraint and value: the first witness is enough.
    if (!seen_.insert(StrCat(id, "|", observed)).second) return;
    v1::Location l = site_;
    l.set_manifest_line(manifest_.LineOf(field));
    if (witness != nullptr) {
      l.set_in_probe(true);
      l.set_probe_offset(witness->offset);
      l.set_instruction(witness->instruction);
    }
    out_.push_back(MakeViolation(id, std::move(observed), std::move(limit), l, std::move(message)));
  }
  void Check(const Observation& o);
  void CheckNumbers();

  const Inference& inference_;
  const Manifest& manifest_;
  const v1::Location& site_;
  std::vector<v1::Violation> out_;
  std::set<std::string> seen_;
};

std::string Detail(const Observation& o) { return o.detail.empty() ? "" : ": " + o.detail; }

template <typename List, typename NameOf>
std::string Names(const List& list, const NameOf& name) {
  std::string out;
  for (int value : list) StrAppend(&out, out.empty() ? "" : ", ", name(value));
  return out.empty() ? "none declared" : out + " declared";
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& list) {
  std::string out;
  for (const std::string& s : list) StrAppend(&out, out.empty() ? "" : ", ", s);
  return out.empty() ? "none declared" : out + " declared";
}

// MASK_POLICY is ordered by who else is touched, not by width.
bool MaskAllowed(int declared, int observed) {
  return observed == 0 || declared == v1::ALL_LANES || declared == observed;
}

std::string Spoken(const std::string& enum_name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(enum_name, {{"_", " "}}));
}

void Checker::Check(const Observation& o) {
  const v1::Manifest& m = manifest_.proto();
  switch (o.kind) {
    case Kind::kMemory: {
      const auto region = static_cast<v1::MemoryRegion>(o.value);
      if (manifest_.Declares(region)) return;
      return Add(id::kMemoryUndeclared, "memory", &o, RegionName(region),
                 Names(m.memory(), [](int v) { return RegionName(v1::MemoryRegion(v)); }),
                 StrCat("the probe touches ", RegionName(region), Detail(o)));
    }
    case Kind::kControl: {
      const auto control = static_cast<v1::ControlTransfer>(o.value);
      if (manifest_.Declares(control)) return;
      return Add(id::kControlUndeclared, "control", &o, ControlName(control),
                 Names(m.control(), [](int v) { return ControlName(v1::ControlTransfer(v)); }),
                 StrCat("the probe's control transfer is not declared: ", ControlName(control)));
    }
    case Kind::kSync: {
      const auto sync = static_cast<v1::Synchronisation>(o.value);
      if (manifest_.Declares(sync)) return;
      return Add(id::kSyncUndeclared, "synchronisation", &o, SyncName(sync),
                 Names(m.synchronisation(), [](int v) { return SyncName(v1::Synchronisation(v)); }),
                 StrCat("the probe's synchronisation is not declared: ", SyncName(sync)));
    }
    case Kind::kMask: {
      const auto mask = static_cast<v1::MaskPolicy>(o.value);
      if (MaskAllowed(m.mask_policy(), mask)) return;
      return Add(id::kMaskPolicy, "mask_policy", &o, MaskName(mask), MaskName(m.mask_policy()),
                 StrCat("the probe acts under ", MaskName(mask), ", declared is ",
                        MaskName(m.mask_policy())));
    }
    case Kind::kRead:
      if (manifest_.DeclaresRead(o.name)) return;
      return Add(id::kReadUndeclared, "amdgpu.reads", &o, StrCat(o.name, " (", o.detail, ")"),
                 Joined(m.amdgpu().reads()),
                 StrCat("the probe reads the application's ", o.detail));
    case Kind::kStateChanged:
      if (manifest_.DeclaresChange(o.name)) return;
      return Add(id::kStateChanged, "application_state_changed", &o, o.name,
                 Joined(m.application_state_changed()),
                 StrCat("the probe changes application state ", o.name, Detail(o)));
    case Kind::kUnproven:
      return Add(id::kUnproven, "probe", &o, o.name, "proven effects only",
                 StrCat("not known: ", o.name));
    case Kind::kForbidden:
      return Add(id::kForbidden, "probe", &o, o.name, "none allowed",
                 StrCat("no probe may use ", o.name));
    case Kind::kFixupPlace:
      return Add(id::kFixupPlace, "probe", &o, o.name, "the literal of a 32-bit move",
                 StrCat("the fixup at ", o.name, " is not in an address literal"));
    case Kind::kLoadInFlight:
      return Add(id::kLoadInFlight, "probe", &o, o.name, "no load in flight",
                 StrCat("a load may still write ", o.name, Detail(o)));
  }
}

void Checker::CheckNumbers() {
  const v1::Manifest& m = manifest_.proto();
  const v1::InferredEffects& e = inference_.effects;
  const auto over = [this](std::string_view id, std::string_view field, uint32_t observed,
                           uint32_t limit, std::string_view unit) {
    if (observed <= limit) return;
    Add(id, field, nullptr, StrCat(observed, " ", unit), StrCat(limit, " ", unit),
        StrCat("the probe uses ", observed, " ", unit, ", declared are at most ", limit));
  };
  over(id::kTooManyInstructions, "max_instructions_per_event", e.instructions(),
       m.max_instructions_per_event(), "instructions");
  over(id::kTooMuchTelemetry, "max_telemetry_bytes_per_event", e.telemetry_bytes(),
       m.max_telemetry_bytes_per_event(), "bytes");
  over(id::kTooManyTemporaries, "amdgpu.max_temporary_sgprs", e.temporary_sgprs(),
       m.amdgpu().max_temporary_sgprs(), "temporary SGPRs");
  over(id::kTooManyTemporaries, "amdgpu.max_temporary_vgprs", e.temporary_vgprs(),
       m.amdgpu().max_temporary_vgprs(), "temporary VGPRs");
  // Falling through is an effect of its own: a probe that must end may not go on.
  const bool falls = std::find(e.control().begin(), e.control().end(),
                               static_cast<int>(v1::FALL_THROUGH)) != e.control().end();
  if (falls && !manifest_.Declares(v1::FALL_THROUGH)) {
    Add(id::kControlUndeclared, "control", nullptr, ControlName(v1::FALL_THROUGH),
        Names(m.control(), [](int v) { return ControlName(v1::ControlTransfer(v)); }),
        "the probe can reach its end, which is not declared");
  }
}

}  // namespace

std::string RegionName(v1::MemoryRegion region) { return Spoken(v1::MemoryRegion_Name(region)); }
std::string ControlName(v1::ControlTransfer control) {
  return Spoken(v1::ControlTransfer_Name(control));
}
std::string SyncName(v1::Synchronisation sync) { return Spoken(v1::Synchronisation_Name(sync)); }
std::string MaskName(v1::MaskPolicy policy) { return Spoken(v1::MaskPolicy_Name(policy)); }

Inference InferEffects(const InferenceInput& input, patch::Isa& isa) {
  return Interpreter(input, isa).Run();
}

Inference InferenceMemo::Make(const InferenceInput& input, patch::Isa& isa) {
  Inference made = InferEffects(input, isa);
  made.serial = ++made_;
  return made;
}

// What the analysis says of registers that the sequence never names cannot
// matter, and neither can which counter it is, as long as the fixups and the
// probe's part of the buffer move together.
const Inference& InferenceMemo::Infer(const InferenceInput& input, patch::Isa& isa) {
  // The sequences that write records differ from site to site.
  const bool near = input.ring_half_bytes == 0 && input.telemetry_begin % kCounterStep == 0 &&
                    input.telemetry_begin < kNearCounters &&
                    std::all_of(input.fixups.begin(), input.fixups.end(),
                                [](const WordFixup& f) { return f.addend < kNearCounters; });
  if (!near) return last_ = Make(input, isa);
  key_.clear();
  AppendRaw(&key_, &isa);
  AppendRaw(&key_, input.sequence.size());
  key_.append(reinterpret_cast<const char*>(input.sequence.data()), input.sequence.size());
  auto [named, fresh_sequence] = named_.try_emplace(key_);
  if (fresh_sequence) {
    for (uint64_t at = 0; at < input.sequence.size();) {
      const Instruction* ins = isa.DecodeShared(input.sequence, at);
      if (ins == nullptr) break;
      named->second |= ins->defs | ins->uses | ins->partial_defs;
      at += ins->size;
    }
  }
  AppendRaw(&key_, input.live & named->second);
  AppendRaw(&key_, input.pending & named->second);
  AppendRaw(&key_, input.arrived & named->second);
  AppendRaw(&key_, input.telemetry_end - input.telemetry_begin);
  AppendRaw(&key_, input.counts);
  for (const WordFixup& f : input.fixups) {
    AppendRaw(&key_, f.offset);
    AppendRaw(&key_, f.addend - input.telemetry_begin);
    AppendRaw(&key_, f.high_half);
    AppendRaw(&key_, f.base);
  }
  if (auto it = known_.find(key_); it != known_.end()) return it->second;
  Inference made = Make(input, isa);
  if (made.depends_on_counter) return last_ = std::move(made);
  if (known_.size() >= kMost) {
    known_.clear();
    named_.clear();
  }
  return known_.emplace(key_, std::move(made)).first->second;
}

std::vector<v1::Violation> CheckManifest(const Inference& inference, const Manifest& manifest,
                                         const v1::Location& site) {
  return Checker(inference, manifest, site).Run();
}

}  // namespace rjdbi::contract
