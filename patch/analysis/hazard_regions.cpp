// Clause runs by counting, the other regions by a forward may-analysis of two
// bits.
#include "patch/analysis/hazard_regions.h"

#include <algorithm>
#include <cstring>

namespace rjdbi::patch {
namespace {

constexpr uint16_t kMessageMask = 0xff;
constexpr uint16_t kMessageDeallocVgprs = 3;  // gfx11 and later

struct Change {
  uint8_t set = 0, clear = 0;
};

Change ChangeOf(const Instruction& in, absl::Span<const uint8_t> code,
                const Generation& generation) {
  if (in.opcode == "s_set_gpr_idx_on") return {kInGprIndex, 0};
  if (in.opcode == "s_set_gpr_idx_off") return {0, kInGprIndex};
  if (DeallocatesVgprs(in, code, generation)) return {kAfterDealloc, 0};
  return {};
}

void Propagate(const ControlFlow& flow, const std::vector<Change>& changes,
               std::vector<uint8_t>& flags) {
  std::vector<uint8_t> in(flow.blocks.size(), 0);
  std::vector<uint32_t> work;
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    uint8_t state = in[b];
    for (uint32_t i = flow.blocks[b].first; i <= flow.blocks[b].last; ++i) {
      flags[i] |= state;
      state = static_cast<uint8_t>((state & ~changes[i].clear) | changes[i].set);
    }
    for (uint32_t s : flow.blocks[b].successors) {
      if ((in[s] | state) == in[s]) continue;
      in[s] |= state;
      work.push_back(s);
    }
  }
}

bool TransfersControl(const Instruction& in) {
  return in.branch || in.indirect || in.call || in.ends_program;
}

}  // namespace

std::vector<Clause> FindClauses(const InstructionList& instructions) {
  std::vector<Clause> clauses;
  uint32_t covered = 0;  // instructions before this one may be in an earlier clause
  for (uint32_t i = 0; i < instructions.size(); ++i) {
    if (!instructions.Shared(i).is_clause) continue;
    const uint64_t last = uint64_t{i} + instructions.Shared(i).clause_length;
    Clause clause;
    clause.first = i;
    clause.last = static_cast<uint32_t>(std::min<uint64_t>(last, instructions.size() - 1));
    clause.splittable = i >= covered && clause.last == last;
    for (uint32_t m = i + 1; m <= clause.last && clause.splittable; ++m) {
      const Instruction &before = instructions[m - 1], &in = instructions[m];
      // Undecodable bytes leave a gap.
      clause.splittable =
          in.offset == before.offset + before.size && !in.is_clause && !TransfersControl(in);
    }
    covered = std::max(covered, clause.last + 1);
    clauses.push_back(clause);
  }
  return clauses;
}

bool DeallocatesVgprs(const Instruction& in, absl::Span<const uint8_t> code,
                      const Generation& generation) {
  if (generation.major < 11 || in.opcode != "s_sendmsg") return false;
  uint16_t simm = 0;
  std::memcpy(&simm, code.data() + in.offset, sizeof(simm));
  return (simm & kMessageMask) == kMessageDeallocVgprs;
}

bool IndexesVgprs(const Instruction& in) {
  // Most opcodes differ in the third character.
  if (in.opcode.size() < 3 || (in.opcode[2] != 'm' && in.opcode[2] != 's')) return false;
  return in.opcode.starts_with("v_movrel") || in.opcode.starts_with("v_swaprel") ||
         in.opcode.starts_with("s_set_gpr_idx");
}

bool ChangesVgprNumbers(const Instruction& in, absl::Span<const uint8_t> code,
                        const Generation& generation) {
  if (generation.major < 12) return false;
  const bool msb = in.opcode == "s_set_vgpr_msb";
  if (in.opcode == "s_alloc_vgpr") return true;
  if (!msb && (!in.setreg || generation.vgpr_msb_mode.bits == 0)) return false;
  uint16_t simm = 0;
  std::memcpy(&simm, code.data() + in.offset, sizeof(simm));
  if (msb) return (simm & 0xff) != 0;
  // simm16: register [5:0], first bit [10:6], bits minus one [15:11].
  constexpr unsigned kMode = 1;
  if ((simm & 0x3f) != kMode) return false;
  if (in.size != 8) return true;  // from a register
  // LLVM's hazard recogniser wants two v_nop right before a write of the lowest bits,
  // which an insertion could separate from it.
  if ((simm >> 6 & 0x1f) == 0) return true;
  // Whichever field is written, the literal's bits at the place of these land in
  // them. Source: LLVM's FeatureSetregVGPRMSBFixup.
  uint32_t literal = 0;
  std::memcpy(&literal, code.data() + in.offset + 4, sizeof(literal));
  const unsigned first = simm >> 6 & 0x1f;
  const uint64_t written = (literal & ((uint64_t{2} << (simm >> 11)) - 1)) << first;
  const BitField& field = generation.vgpr_msb_mode;
  return ((written | literal) >> field.shift & ((1u << field.bits) - 1)) != 0;
}

bool IndexesSgprs(const Instruction& in) { return in.opcode.starts_with("s_movrel"); }

std::vector<uint8_t> FindRegions(const InstructionList& instructions,
                                 absl::Span<const uint8_t> code, const ControlFlow& flow,
                                 const std::vector<Clause>& clauses, const Generation& generation) {
  std::vector<uint8_t> flags(instructions.size(), 0);
  std::vector<Change> changes(instructions.size());
  bool any_change = false;
  for (size_t i = 0; i < instructions.size(); ++i) {
    if (!instructions.Shared(i).opcode.starts_with("s_se")) continue;  // most of them, at once
    changes[i] = ChangeOf(instructions[i], code, generation);
    any_change |= changes[i].set != 0;
  }
  for (const Clause& clause : clauses) {
    for (uint32_t i = clause.first; i <= clause.last; ++i) flags[i] |= kInClause;
  }
  if (any_change) Propagate(flow, changes, flags);
  return !clauses.empty() || any_change ? flags : std::vector<uint8_t>();
}

}  // namespace rjdbi::patch
