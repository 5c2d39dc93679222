// See seams.h.
#include "contract/seams.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "contract/text.h"
#include "patch/isa/generation.h"
#include "patch/isa/hazards.h"

namespace rjdbi::contract {
namespace {

using patch::Generation;
using patch::HazardRule;
using patch::Instruction;
using patch::MemoryKind;
using patch::RegisterSet;

constexpr uint32_t kNopCount = 0xf;

// One instruction with the wait states between it and both ends of the code.
struct Placed {
  const Instruction* in = nullptr;
  uint64_t offset = 0;
  uint32_t ahead = 0, behind = 0;
};

std::vector<Placed> Place(patch::Isa& isa, absl::Span<const uint8_t> code) {
  std::vector<Placed> out;
  std::vector<uint32_t> states;
  uint32_t total = 0;
  for (uint64_t offset = 0; offset < code.size();) {
    const Instruction* in = isa.DecodeShared(code, offset);
    if (in == nullptr) break;  // judged before
    uint32_t word = 0;
    std::memcpy(&word, code.data() + offset, sizeof word);
    out.push_back({in, offset, total, 0});
    states.push_back(in->opcode == "s_nop" ? (word & kNopCount) + 1 : 1);
    total += states.back();
    offset += in->size;
  }
  for (size_t i = 0; i < out.size(); ++i) out[i].behind = total - out[i].ahead - states[i];
  return out;
}

std::string TooClose(const Instruction& in, uint32_t states, uint32_t needed, const char* side) {
  return StrCat(in.opcode, " is ", states, " wait states from the code ", side, ", which takes ",
                needed);
}

std::optional<std::string> WaitStates(patch::Isa& isa, const std::vector<Placed>& code) {
  for (const HazardRule& rule : isa.generation().hazards) {
    for (const Placed& p : code) {
      if (p.ahead < rule.wait_states && patch::Is(rule.consumer, *p.in)) {
        return TooClose(*p.in, p.ahead, rule.wait_states, "before it");
      }
      if (p.behind < rule.wait_states && patch::Is(rule.producer, *p.in)) {
        return TooClose(*p.in, p.behind, rule.wait_states, "behind it");
      }
    }
  }
  return std::nullopt;
}

// Touches nothing that a hazard could be about.
bool OnlyWaits(const Instruction& in) {
  return in.memory == MemoryKind::kNone && (in.defs | in.uses | in.partial_defs).Empty();
}

// Where the guard's instructions stand in a row.
class Fences {
 public:
  Fences(patch::Isa& isa, absl::Span<const uint8_t> code, std::string_view guard) {
    const auto bytes = isa.Assemble(guard);
    if (!bytes.ok() || bytes->empty()) return;
    size_ = bytes->size();
    for (size_t at = 0; at + size_ <= code.size(); at += 4) {
      if (std::equal(bytes->begin(), bytes->end(), code.begin() + at)) places_.push_back(at);
    }
  }
  bool Between(uint64_t begin, uint64_t end) const {
    return std::any_of(places_.begin(), places_.end(),
                       [&](uint64_t at) { return at >= begin && at + size_ <= end; });
  }

 private:
  size_t size_ = 0;
  std::vector<uint64_t> places_;
};

bool ReadsLate(const Instruction& in) {
  return in.memory != MemoryKind::kNone && in.memory != MemoryKind::kScalar;
}

// Writes of scalars and reads of them that need a fence in between.
std::optional<std::string> FencesWithin(const Generation& g, const std::vector<Placed>& code,
                                        const Fences& fences) {
  const RegisterSet scalars = [] {
    RegisterSet set;
    set.Add(patch::kSgpr0, patch::kExecHi + 1);
    return set;
  }();
  for (size_t i = 0; i < code.size(); ++i) {
    for (size_t j = i + 1; j < code.size(); ++j) {
      const Instruction &first = *code[i].in, &second = *code[j].in;
      RegisterSet exec;
      exec.Add(patch::kExecLo, 2);
      const bool written = g.sgpr_reads_remembered && first.salu &&
                           (second.valu || ReadsLate(second)) &&
                           !((first.defs & second.uses) & (scalars - exec)).Empty();
      const bool overwritten = g.family == "gfx10.1" && ReadsLate(first) && second.salu &&
                               !((first.uses & second.defs) & scalars).Empty();
      if (!written && !overwritten) continue;
      if (fences.Between(code[i].offset + first.size, code[j].offset)) continue;
      return StrCat("no fence is between ", first.opcode, " and ", second.opcode);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> SeamHazard(patch::Isa& isa, absl::Span<const uint8_t> code) {
  const Generation& g = isa.generation();
  const std::vector<Placed> placed = Place(isa, code);
  if (auto found = WaitStates(isa, placed)) return found;
  const auto acts = [](const Placed& p) { return !OnlyWaits(*p.in); };
  const auto first = std::find_if(placed.begin(), placed.end(), acts);
  if (first == placed.end()) return std::nullopt;
  const auto last = std::find_if(placed.rbegin(), placed.rend(), acts);
  if (!g.head_guard.empty()) {
    const Fences fences(isa, code, g.head_guard);
    if (!fences.Between(0, first->offset)) {
      return StrCat("no fence is in front of ", first->in->opcode);
    }
    if (auto found = FencesWithin(g, placed, fences)) return found;
  }
  if (!g.tail_guard.empty() &&
      !Fences(isa, code, g.tail_guard).Between(last->offset + last->in->size, code.size())) {
    return StrCat("no fence is behind ", last->in->opcode);
  }
  return std::nullopt;
}

std::optional<std::string> MatrixHazard(patch::Isa& isa, absl::Span<const uint8_t> code,
                                        const RegisterSet& vectors) {
  const auto guard = isa.Assemble(isa.generation().mfma_head_guard);
  if (!guard.ok() || guard->empty()) return std::nullopt;
  const std::vector<Placed> waits = Place(isa, *guard);
  const uint32_t needed =
      waits.back().ahead + waits.back().behind + ((*guard)[guard->size() - 4] & kNopCount) + 1;
  for (const Placed& p : Place(isa, code)) {
    if (p.ahead >= needed) return std::nullopt;
    if (((p.in->defs | p.in->uses | p.in->partial_defs) & vectors).Empty()) continue;
    return TooClose(*p.in, p.ahead, needed, "before it, a matrix instruction maybe");
  }
  return std::nullopt;
}

}  // namespace rjdbi::contract
