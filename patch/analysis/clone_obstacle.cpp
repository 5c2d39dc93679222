// See the header. Every rule errs on the side of an obstacle.
#include "patch/analysis/clone_obstacle.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

using Kind = InstructionOperand::Kind;

// Between the parts of an address these change nothing that is added up.
bool OnlyWaits(const Instruction& in) {
  return in.waitcnt || in.opcode == "s_nop" || in.opcode == "s_delay_alu";
}

// `op` reg, reg, 32-bit literal: the literal.
std::optional<uint32_t> AddedLiteral(const Instruction& in, absl::Span<const uint8_t> code,
                                     uint16_t reg) {
  if (in.size != 8 || in.operands.size() < 3) return std::nullopt;
  const auto is_reg = [&](const InstructionOperand& o) {
    return o.kind == Kind::kRegister && o.reg == reg && o.count == 1;
  };
  if (!is_reg(in.operands[0]) || !in.operands[0].is_def || !is_reg(in.operands[1])) {
    return std::nullopt;
  }
  if (in.operands[2].kind != Kind::kImmediate) return std::nullopt;
  uint32_t literal = 0;
  std::memcpy(&literal, code.data() + in.offset + 4, sizeof literal);
  return literal;
}

// gfx1250 adds in one instruction: `s_add_nc_u64` pair, pair, 64-bit literal.
std::optional<int64_t> AddedWideLiteral(const Instruction& in, absl::Span<const uint8_t> code,
                                        uint16_t pair) {
  if (in.opcode != "s_add_nc_u64" || in.size != 12 || in.operands.size() < 3) return std::nullopt;
  const auto is_pair = [&](const InstructionOperand& o) {
    return o.kind == Kind::kRegister && o.reg == pair && o.count == 2;
  };
  if (!is_pair(in.operands[0]) || !in.operands[0].is_def || !is_pair(in.operands[1]) ||
      in.operands[2].kind != Kind::kImmediate) {
    return std::nullopt;
  }
  int64_t literal = 0;
  std::memcpy(&literal, code.data() + in.offset + 4, sizeof literal);
  return literal;
}

bool IsSignExtension(const Instruction& in, uint16_t reg) {
  return in.opcode == "s_sext_i32_i16" && in.size == 4 && in.operands.size() >= 2 &&
         in.operands[0].kind == Kind::kRegister && in.operands[0].reg == reg &&
         in.operands[1].kind == Kind::kRegister && in.operands[1].reg == reg;
}

// Loads and prefetches relative to the program counter that LLVM flags as
// nothing special.
bool UsesPcOtherwise(const Instruction& in) {
  return in.opcode.find("_pc_rel") != std::string_view::npos;
}

class Finder {
 public:
  Finder(const InstructionList& instructions, absl::Span<const uint8_t> code,
         const ControlFlow& flow)
      : instructions_(instructions), code_(code), flow_(flow) {}

  CloneFacts facts;

  void Object(const CodeObject& object, size_t kernel_index) {
    if (SharesCode(object, kernel_index)) {
      Obstacle("another kernel", "another kernel's code overlaps with this one's");
    }
  }

  void Layout(std::optional<uint64_t> undecodable, uint64_t preload_entry) {
    if (undecodable) {
      Obstacle(absl::StrCat("offset 0x", absl::Hex(*undecodable)),
               "some of the kernel's bytes do not decode");
    }
    if (instructions_.empty() || flow_.blocks.empty()) Obstacle("no code", "there is no code");
    if (preload_entry != 0 && !instructions_.Find(preload_entry)) {
      Obstacle(absl::StrCat("offset ", preload_entry),
               "no instruction begins at the entry for preloaded arguments");
    }
    if (!flow_.inside_targets.empty()) {
      Obstacle(absl::StrCat("branch target 0x", absl::Hex(flow_.inside_targets.front())),
               "a branch lands inside an instruction");
    }
    if (facts.obstacle) return;
    const BasicBlock& last = flow_.blocks.back();
    const Instruction& end = instructions_[last.last];
    const bool reachable = last.entry || !last.predecessors.empty();
    if (reachable && !end.ends_program && !(end.branch && !end.conditional && !end.call)) {
      Obstacle("no end", "control leaves the kernel at its end");
    }
  }

  void Instructions() {
    for (uint32_t i = 0; i < instructions_.size() && !facts.obstacle; ++i) {
      // Most instructions are about vectors, at once no obstacle.
      const Instruction& in = instructions_.Shared(i);
      const bool vector = in.opcode.starts_with("v_") && !in.branch && !in.indirect && !in.call;
      if (!vector || in.target_offset || in.reads_pc) One(i);
    }
  }

  void Clauses(const std::vector<Clause>& clauses) {
    for (const Clause& clause : clauses) {
      if (clause.splittable) continue;
      Obstacle(Where(instructions_[clause.first]), "a clause's extent is not certain");
      return;
    }
  }

 private:
  static std::string Where(const Instruction& in) {
    return absl::StrCat(std::string(in.opcode), " at 0x", absl::Hex(in.offset));
  }

  void Obstacle(std::string observed, std::string detail) {
    if (facts.obstacle) return;
    facts.obstacle = Refusal{Reason::kNotClonable, std::move(observed), "", std::move(detail)};
  }

  void One(uint32_t i) {
    const Instruction& in = instructions_[i];
    // A call through a register: the callee stays where it is, and returns to
    // wherever it was called from.
    if (in.opcode == "s_swappc_b64" || in.opcode == "s_swap_pc_i64") return;
    if (in.call || in.indirect || IsIndirectTransfer(in)) {
      return Obstacle(Where(in), "the kernel branches through a register, or calls by distance");
    }
    if (in.branch && !IsPlainBranch(in)) {
      return Obstacle(Where(in), "the kernel branches in an uncommon way");
    }
    if (in.target_offset) {
      const int64_t target = *in.target_offset;
      if (target < 0 || target >= static_cast<int64_t>(code_.size())) {
        return Obstacle(Where(in), "a branch leaves the kernel");
      }
    }
    if (UsesPcOtherwise(in)) return Obstacle(Where(in), "an address is relative to the code");
    if (!in.reads_pc) return;
    const auto address = FindPcAddress(instructions_, code_, flow_, i);
    if (!address) {
      return Obstacle(Where(in), "what is made of the program counter is not certain");
    }
    // Whether the sum carries depends on where the code lies.
    if (address->low != address->high && SccIsReadBehind(address->high)) {
      return Obstacle(Where(in), "the carry of an address is read");
    }
    facts.addresses.push_back(*address);
  }

  // Some path from instruction i on reads SCC before it is written. A callee does not:
  // no calling convention passes anything in it.
  bool SccIsReadBehind(uint32_t i) const {
    std::vector<bool> seen(flow_.blocks.size(), false);
    std::vector<uint32_t> work;
    const auto read_from = [&](uint32_t first, const BasicBlock& block) {
      for (uint32_t m = first; m <= block.last; ++m) {
        const Instruction& in = instructions_.Shared(m);
        if (in.uses.Has(kScc)) return true;
        if (in.defs.Has(kScc) || in.ends_program || in.call) return false;
      }
      for (const uint32_t next : block.successors) {
        if (!seen[next]) work.push_back(next);
        seen[next] = true;
      }
      return false;
    };
    if (read_from(i + 1, flow_.blocks[flow_.block_of[i]])) return true;
    while (!work.empty()) {
      const BasicBlock& block = flow_.blocks[work.back()];
      work.pop_back();
      if (read_from(block.first, block)) return true;
    }
    return false;
  }

  const InstructionList& instructions_;
  const absl::Span<const uint8_t> code_;
  const ControlFlow& flow_;
};

}  // namespace

bool SharesCode(const CodeObject& object, size_t kernel_index) {
  const Kernel& mine = object.kernels()[kernel_index];
  for (size_t k = 0; k < object.kernels().size(); ++k) {
    const Kernel& other = object.kernels()[k];
    if (k == kernel_index) continue;
    if (other.entry_vaddr < mine.entry_vaddr + mine.code_size &&
        mine.entry_vaddr < other.entry_vaddr + other.code_size) {
      return true;
    }
  }
  return false;
}

std::optional<PcAddress> FindPcAddress(const InstructionList& instructions,
                                       absl::Span<const uint8_t> code, const ControlFlow& flow,
                                       uint32_t getpc) {
  const Instruction& first = instructions[getpc];
  const bool getpc_i64 = first.opcode == "s_get_pc_i64";
  if ((first.opcode != "s_getpc_b64" && !getpc_i64) || first.size != 4 || first.operands.empty()) {
    return std::nullopt;
  }
  const InstructionOperand& pair = first.operands[0];
  if (pair.kind != Kind::kRegister || !pair.is_def || pair.count != 2) return std::nullopt;
  const uint16_t low = pair.reg, high = static_cast<uint16_t>(pair.reg + 1);
  PcAddress address;
  address.getpc = getpc;
  std::optional<uint32_t> low_literal;
  // One block: nothing jumps into the middle.
  for (uint32_t i = getpc + 1; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    if (flow.block_of[i] != flow.block_of[getpc]) return std::nullopt;
    if (OnlyWaits(in)) continue;
    if (getpc_i64) {
      const auto literal = AddedWideLiteral(in, code, low);
      if (!literal) return std::nullopt;
      address.low = address.high = i;
      address.displacement = *literal;
      return address;
    }
    if (!low_literal && IsSignExtension(in, high)) continue;
    if (!low_literal) {
      if (in.opcode != "s_add_u32" && in.opcode != "s_add_co_u32") return std::nullopt;
      low_literal = AddedLiteral(in, code, low);
      if (!low_literal) return std::nullopt;
      address.low = i;
      continue;
    }
    if (in.opcode != "s_addc_u32" && in.opcode != "s_add_co_ci_u32") return std::nullopt;
    const auto high_literal = AddedLiteral(in, code, high);
    if (!high_literal) return std::nullopt;
    address.high = i;
    address.displacement =
        static_cast<int64_t>(uint64_t{*high_literal} << 32 | uint64_t{*low_literal});
    return address;
  }
  return std::nullopt;
}

CloneFacts FindCloneFacts(const CodeObject& object, size_t kernel_index,
                          const InstructionList& instructions, absl::Span<const uint8_t> code,
                          const ControlFlow& flow, const std::vector<Clause>& clauses,
                          std::optional<uint64_t> undecodable, uint64_t preload_entry) {
  Finder finder(instructions, code, flow);
  finder.Layout(undecodable, preload_entry);
  finder.Object(object, kernel_index);
  finder.Instructions();
  finder.Clauses(clauses);
  return std::move(finder.facts);
}

}  // namespace rjdbi::patch
