// A depth-first walk over (instruction, constants that still matter); the reverse of
// the order in which it is done is an order without backward branches.
#include "patch/probe/unroll.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

using Constants = std::map<uint16_t, uint32_t>;  // by Register; SCC: 0 or 1
using OperandKind = InstructionOperand::Kind;

bool Scalar(uint16_t reg) { return reg < kVgpr0; }

// ---- scalar arithmetic ---------------------------------------------------------------

struct Result {
  uint32_t value = 0;
  std::optional<bool> scc;  // nullopt: as it was
};
using Operation = Result (*)(uint32_t a, uint32_t b, uint32_t scc);

Result Logic(uint32_t value) { return {value, value != 0}; }
Result Carry(uint64_t sum) { return {static_cast<uint32_t>(sum), (sum >> 32) != 0}; }
// Signed: SCC is overflow.
Result Overflow(int64_t sum) {
  return {static_cast<uint32_t>(sum), sum != static_cast<int32_t>(sum)};
}
int64_t Signed(uint32_t v) { return static_cast<int32_t>(v); }

// Source: the ISA documents, "SOP2 Instructions".
struct OperationRow {
  std::string_view opcode;
  Operation operation;
};
constexpr OperationRow kOperations[] = {
    {"s_add_u32", [](uint32_t a, uint32_t b, uint32_t) { return Carry(uint64_t{a} + b); }},
    {"s_add_co_u32", [](uint32_t a, uint32_t b, uint32_t) { return Carry(uint64_t{a} + b); }},
    {"s_addc_u32", [](uint32_t a, uint32_t b, uint32_t c) { return Carry(uint64_t{a} + b + c); }},
    {"s_add_co_ci_u32",
     [](uint32_t a, uint32_t b, uint32_t c) { return Carry(uint64_t{a} + b + c); }},
    {"s_sub_u32", [](uint32_t a, uint32_t b, uint32_t) { return Carry(uint64_t{a} - b); }},
    {"s_sub_co_u32", [](uint32_t a, uint32_t b, uint32_t) { return Carry(uint64_t{a} - b); }},
    {"s_add_i32", [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) + Signed(b)); }},
    {"s_add_co_i32",
     [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) + Signed(b)); }},
    {"s_addk_i32",
     [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) + Signed(b)); }},
    {"s_addk_co_i32",
     [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) + Signed(b)); }},
    {"s_sub_i32", [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) - Signed(b)); }},
    {"s_sub_co_i32",
     [](uint32_t a, uint32_t b, uint32_t) { return Overflow(Signed(a) - Signed(b)); }},
    {"s_mul_i32",
     [](uint32_t a, uint32_t b, uint32_t) {
       return Result{a * b, std::nullopt};
     }},
    {"s_and_b32", [](uint32_t a, uint32_t b, uint32_t) { return Logic(a & b); }},
    {"s_or_b32", [](uint32_t a, uint32_t b, uint32_t) { return Logic(a | b); }},
    {"s_xor_b32", [](uint32_t a, uint32_t b, uint32_t) { return Logic(a ^ b); }},
    {"s_lshl_b32", [](uint32_t a, uint32_t b, uint32_t) { return Logic(a << (b & 31)); }},
    {"s_lshr_b32", [](uint32_t a, uint32_t b, uint32_t) { return Logic(a >> (b & 31)); }},
};

struct CompareRow {
  std::string_view name;
  bool (*holds)(int64_t a, int64_t b);
};
constexpr CompareRow kCompares[] = {
    {"eq", [](int64_t a, int64_t b) { return a == b; }},
    {"lg", [](int64_t a, int64_t b) { return a != b; }},
    {"lt", [](int64_t a, int64_t b) { return a < b; }},
    {"le", [](int64_t a, int64_t b) { return a <= b; }},
    {"gt", [](int64_t a, int64_t b) { return a > b; }},
    {"ge", [](int64_t a, int64_t b) { return a >= b; }},
};

// "s_cmp_lt_i32", "s_cmpk_eq_u32", "s_cmp_lg_u64".
std::optional<bool> Compare(std::string_view opcode, uint64_t a, uint64_t b) {
  if (!opcode.starts_with("s_cmp_") && !opcode.starts_with("s_cmpk_")) return std::nullopt;
  opcode.remove_prefix(opcode.find('_', 2) + 1);
  for (const CompareRow& row : kCompares) {
    if (!opcode.starts_with(row.name)) continue;
    const std::string_view type = opcode.substr(row.name.size());
    if (type == "_u32") {
      return row.holds(static_cast<uint32_t>(a), static_cast<uint32_t>(b));
    }
    if (type == "_i32") {
      return row.holds(Signed(static_cast<uint32_t>(a)), Signed(static_cast<uint32_t>(b)));
    }
    const bool order = row.name != "eq" && row.name != "lg";
    if (type == "_u64" && !order)
      return row.holds(static_cast<int64_t>(a), static_cast<int64_t>(b));
  }
  return std::nullopt;
}

std::optional<uint32_t> Word(const Constants& known, const InstructionOperand& operand,
                             uint8_t word) {
  if (operand.kind == OperandKind::kImmediate) {
    return static_cast<uint32_t>(static_cast<uint64_t>(operand.imm) >> (32 * word));
  }
  if (word >= operand.count) return std::nullopt;
  const auto found = known.find(static_cast<uint16_t>(operand.reg + word));
  return found != known.end() ? std::optional(found->second) : std::nullopt;
}

// What `in` makes of constants: those of its results, the others gone.
Constants After(const Constants& known, const Instruction& in) {
  Constants made;
  const auto& ops = in.operands;
  // The 16 bits of s_movk and kin are signed, but for s_cmpk with unsigned numbers.
  const bool short_form = in.opcode.starts_with("s_movk") || in.opcode.starts_with("s_addk") ||
                          in.opcode.starts_with("s_cmpk");
  const auto word = [&](size_t n, uint8_t w) -> std::optional<uint32_t> {
    if (n >= ops.size()) return std::nullopt;
    if (!short_form || ops[n].kind != OperandKind::kImmediate) return Word(known, ops[n], w);
    if (in.opcode.ends_with("_u32")) return static_cast<uint16_t>(ops[n].imm);
    return static_cast<uint32_t>(static_cast<int16_t>(ops[n].imm));
  };
  const bool writes = !ops.empty() && ops[0].kind == OperandKind::kRegister && ops[0].is_def;
  if (in.opcode == "s_mov_b32" || in.opcode == "s_movk_i32" || in.opcode == "s_mov_b64") {
    for (uint8_t w = 0; writes && w < ops[0].count; ++w) {
      if (const auto value = word(1, w)) made[static_cast<uint16_t>(ops[0].reg + w)] = *value;
    }
  } else if (in.opcode.starts_with("s_cmp")) {
    const bool wide = in.opcode.ends_with("64");
    const auto a = word(0, 0), b = word(1, 0);
    const auto high_a = wide ? word(0, 1) : 0, high_b = wide ? word(1, 1) : 0;
    if (a && b && high_a && high_b) {
      const auto holds =
          Compare(in.opcode, uint64_t{*high_a} << 32 | *a, uint64_t{*high_b} << 32 | *b);
      if (holds) made[kScc] = *holds;
    }
  } else if (in.opcode == "s_add_nc_u64" && writes && ops[0].count == 2) {  // gfx12
    const auto a = word(1, 0), high_a = word(1, 1), b = word(2, 0), high_b = word(2, 1);
    if (a && high_a && b && high_b) {
      const uint64_t sum = (uint64_t{*high_a} << 32 | *a) + (uint64_t{*high_b} << 32 | *b);
      made[ops[0].reg] = static_cast<uint32_t>(sum);
      made[static_cast<uint16_t>(ops[0].reg + 1)] = static_cast<uint32_t>(sum >> 32);
    }
  } else if (writes && ops[0].count == 1) {
    // s_addk_i32 adds to its destination.
    const bool in_place = in.opcode.starts_with("s_addk");
    const auto a = in_place ? Word(known, ops[0], 0) : word(1, 0);
    const auto b = word(in_place ? ops.size() - 1 : 2, 0);
    const auto scc = known.find(kScc);
    const bool carries = in.uses.Has(kScc);
    for (const OperationRow& row : kOperations) {
      if (in.opcode != row.opcode || !a || !b || (carries && scc == known.end())) continue;
      const Result result = row.operation(*a, *b, carries ? scc->second : 0);
      made[ops[0].reg] = result.value;
      if (result.scc) made[kScc] = *result.scc;
    }
  }
  Constants after;
  const RegisterSet written = in.defs | in.partial_defs;
  for (const auto& [reg, value] : known) {
    if (!written.Has(reg)) after[reg] = value;
  }
  after.insert(made.begin(), made.end());
  return after;
}

// A hint about loops, of which none are left.
bool IsHint(const Instruction& in) {
  return in.opcode == "s_set_inst_prefetch_distance" || in.opcode == "s_inst_prefetch";
}

class Unroller {
 public:
  Unroller(const std::vector<Instruction>& body, absl::Span<const uint8_t> code, Isa& isa)
      : body_(body), code_(code), isa_(isa) {}

  std::variant<Unrolled, Endless> Run() {
    FindControl();
    FindLive();
    const size_t start = NodeFor(0, {});
    if (!Walk(start)) return *std::move(endless_);
    return LayOut();
  }

 private:
  static constexpr size_t kNone = ~size_t{0};
  struct Node {
    size_t index = 0;
    Constants known;
    size_t taken = kNone, falls = kNone;  // nodes
    enum : uint8_t { kNew, kOpen, kDone } state = kNew;
  };

  size_t IndexOf(int64_t offset) const {
    const auto at = std::lower_bound(
        body_.begin(), body_.end(), offset,
        [](const Instruction& in, int64_t o) { return static_cast<int64_t>(in.offset) < o; });
    return static_cast<size_t>(at - body_.begin());
  }
  static bool Jumps(const Instruction& in) { return in.branch && in.target_offset; }

  // What uniform branches depend on.
  void FindControl() {
    control_.Add(kScc);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Instruction& in : body_) {
        if (!in.salu || (in.defs & control_).Empty()) continue;
        RegisterSet uses = in.uses.get();
        uses.Remove(kVgpr0, kNumRegisters - kVgpr0);
        changed |= !(uses - control_).Empty();
        control_ |= uses;
      }
    }
  }

  // Control registers whose value is still asked for, by instruction.
  void FindLive() {
    live_.resize(body_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = body_.size(); i-- > 0;) {
        const Instruction& in = body_[i];
        RegisterSet live;
        if (Jumps(in)) live |= live_[IndexOf(*in.target_offset)];
        const bool stops = in.indirect || (Jumps(in) && !in.conditional);
        if (!stops && i + 1 < body_.size()) live |= live_[i + 1];
        live -= in.defs.get();
        if (!in.indirect) live |= in.uses.get() & control_;
        changed |= !(live - live_[i]).Empty();
        live_[i] |= live;
      }
    }
  }

  size_t NodeFor(size_t index, const Constants& known) {
    Constants kept;
    for (const auto& [reg, value] : known) {
      if (Scalar(reg) && live_[index].Has(reg) && control_.Has(reg)) kept[reg] = value;
    }
    const auto [found, fresh] = ids_.try_emplace({index, kept}, nodes_.size());
    if (fresh) {
      Node& node = nodes_.emplace_back();
      node.index = index;
      node.known = std::move(kept);
    }
    return found->second;
  }

  // Whether a uniform branch is taken, if that is known.
  static std::optional<bool> Taken(const Instruction& in, const Constants& known) {
    if (!in.conditional) return true;
    const auto scc = known.find(kScc);
    if (scc == known.end()) return std::nullopt;
    if (in.opcode == "s_cbranch_scc1") return scc->second == 1;
    if (in.opcode == "s_cbranch_scc0") return scc->second == 0;
    return std::nullopt;
  }

  bool Fail(size_t index, std::string observed, std::string limit, std::string detail) {
    endless_ = Endless{index, std::move(observed), std::move(limit), std::move(detail)};
    return false;
  }

  size_t Backward() const {
    for (size_t i = 0; i < body_.size(); ++i) {
      if (Jumps(body_[i]) && IndexOf(*body_[i].target_offset) <= i) return i;
    }
    return 0;
  }

  // A node on the way from the start to where the walk is.
  struct Step {
    size_t id;
    Constants after;
    enum : uint8_t { kTaken, kFalls, kEnd } next = kTaken;
  };

  // The walk keeps its own stack: a body may be as long as it likes.
  bool Walk(size_t start) {
    std::vector<Step> way;
    if (!Open(start, way)) return false;
    while (!way.empty()) {
      const size_t id = way.back().id;
      const size_t index = nodes_[id].index;
      const Instruction& in = body_[index];
      const std::optional<bool> taken =
          Jumps(in) ? Taken(in, nodes_[id].known) : std::optional<bool>(false);
      switch (way.back().next) {
        case Step::kTaken:
          way.back().next = Step::kFalls;
          if (!taken.value_or(true)) break;
          nodes_[id].taken = NodeFor(IndexOf(*in.target_offset), way.back().after);
          if (!Enter(index, nodes_[id].taken, way)) return false;
          break;
        case Step::kFalls:
          way.back().next = Step::kEnd;
          if (taken.value_or(false) || in.indirect || index + 1 >= body_.size()) break;
          nodes_[id].falls = NodeFor(index + 1, way.back().after);
          if (!Enter(index, nodes_[id].falls, way)) return false;
          break;
        case Step::kEnd:
          nodes_[id].state = Node::kDone;
          order_.push_back(id);
          way.pop_back();
          break;
      }
    }
    return true;
  }

  bool Open(size_t id, std::vector<Step>& way) {
    if (nodes_.size() > kMostUnrolled) {
      return Fail(Backward(), absl::StrCat("more than ", kMostUnrolled, " instructions"),
                  absl::StrCat(kMostUnrolled, " instructions, loops written out"),
                  "its loops run too often");
    }
    nodes_[id].state = Node::kOpen;
    way.push_back({id, After(nodes_[id].known, body_[nodes_[id].index])});
    return true;
  }

  bool Enter(size_t from, size_t to, std::vector<Step>& way) {
    if (nodes_[to].state == Node::kNew) return Open(to, way);
    if (nodes_[to].state == Node::kDone) return true;
    return Fail(Jumps(body_[from]) ? from : Backward(),
                absl::StrCat("a loop back to offset ", body_[nodes_[to].index].offset),
                "loops whose rounds follow from constants", "how often the loop runs is not known");
  }

  struct Piece {
    std::vector<uint8_t> bytes;
    uint32_t origin = 0;
    size_t target = kNone;
  };

  std::variant<Unrolled, Endless> LayOut() {
    std::reverse(order_.begin(), order_.end());
    const auto branch = isa_.Assemble("s_branch 0");
    if (!branch.ok()) {
      return Endless{0, "s_branch", "an instruction", std::string(branch.status().message())};
    }
    std::vector<Piece> pieces;
    std::vector<size_t> first(nodes_.size(), kNone);  // piece, by node
    for (size_t n = 0; n < order_.size(); ++n) {
      const Node& node = nodes_[order_[n]];
      const Instruction& in = body_[node.index];
      first[order_[n]] = pieces.size();
      const auto origin = static_cast<uint32_t>(in.offset);
      const bool goes = Jumps(in) && (node.taken == kNone || node.falls == kNone);
      if (!goes && !IsHint(in)) {
        const auto bytes = code_.subspan(in.offset, in.size);
        pieces.push_back({{bytes.begin(), bytes.end()}, origin, Jumps(in) ? node.taken : kNone});
      }
      const size_t next = goes && node.taken != kNone ? node.taken : node.falls;
      if (next == kNone || (n + 1 < order_.size() && order_[n + 1] == next)) continue;
      pieces.push_back({*branch, origin, next});
    }
    return Encode(std::move(pieces), first);
  }

  std::variant<Unrolled, Endless> Encode(std::vector<Piece> pieces,
                                         const std::vector<size_t>& first) {
    std::vector<uint64_t> places;
    Unrolled out;
    for (const Piece& piece : pieces) {
      places.push_back(out.code.size());
      out.origins.push_back(piece.origin);
      out.code.insert(out.code.end(), piece.bytes.begin(), piece.bytes.end());
    }
    for (size_t p = 0; p < pieces.size(); ++p) {
      if (pieces[p].target == kNone) continue;
      const auto words =
          static_cast<uint16_t>((places[first[pieces[p].target]] - places[p] - 4) / 4);
      std::memcpy(out.code.data() + places[p], &words, sizeof words);
    }
    return out;
  }

  const std::vector<Instruction>& body_;
  const absl::Span<const uint8_t> code_;
  Isa& isa_;
  RegisterSet control_;
  std::vector<RegisterSet> live_;
  std::vector<Node> nodes_;
  std::map<std::pair<size_t, Constants>, size_t> ids_;
  std::vector<size_t> order_;
  std::optional<Endless> endless_;
};

}  // namespace

std::variant<Unrolled, Endless> Unroll(const std::vector<Instruction>& body,
                                       absl::Span<const uint8_t> code, Isa& isa) {
  return Unroller(body, code, isa).Run();
}

}  // namespace rjdbi::patch
