// Clause runs by counting, the other regions by a forward may-analysis of two
// bits.
#include "patch/analysis/hazard_regions.h"

#include <cstring>

namespace rjdbi::patch {
namespace {

constexpr uint16_t kMessageMask = 0xff;
constexpr uint16_t kMessageDeallocVgprs = 3;  // gfx11 and later

bool DeallocatesVgprs(const Instruction& in, absl::Span<const uint8_t> code,
                      const Generation& generation) {
  if (generation.major < 11 || in.opcode != "s_sendmsg") return false;
  uint16_t simm = 0;
  std::memcpy(&simm, code.data() + in.offset, sizeof(simm));
  return (simm & kMessageMask) == kMessageDeallocVgprs;
}

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

}  // namespace

bool IndexesVgprs(const Instruction& in) {
  return in.opcode.starts_with("v_movrel") || in.opcode.starts_with("v_swaprel") ||
         in.opcode.starts_with("s_set_gpr_idx");
}

bool IndexesSgprs(const Instruction& in) { return in.opcode.starts_with("s_movrel"); }

std::vector<uint8_t> FindRegions(const std::vector<Instruction>& instructions,
                                 absl::Span<const uint8_t> code, const ControlFlow& flow,
                                 const Generation& generation) {
  std::vector<uint8_t> flags(instructions.size(), 0);
  std::vector<Change> changes(instructions.size());
  bool any = false, any_change = false;
  uint32_t clause_left = 0;
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& in = instructions[i];
    if (in.is_clause) {
      clause_left = in.clause_length + 1u;
    }
    if (clause_left > 0) {
      flags[i] |= kInClause;
      any = true;
      --clause_left;
    }
    changes[i] = ChangeOf(in, code, generation);
    any_change |= changes[i].set != 0;
  }
  if (any_change) Propagate(flow, changes, flags);
  return any || any_change ? flags : std::vector<uint8_t>();
}

}  // namespace rjdbi::patch
