// See dead.h. Backward over blocks; a block's effect is worked out once, for all that
// may be needed behind it.
#include "contract/dead.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "contract/lanes.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
using patch::RegisterSet;

bool IsVector(uint16_t reg) { return reg >= patch::kVgpr0; }

RegisterSet Range(uint16_t first, unsigned count) {
  RegisterSet set;
  set.Add(first, count);
  return set;
}

uint16_t First(const RegisterSet& set) {
  uint16_t first = 0;
  bool found = false;
  set.ForEach([&](uint16_t reg) {
    if (!std::exchange(found, true)) first = reg;
  });
  return first;
}

// VCC, EXEC, SCC and their like: what is not followed may read them unseen.
RegisterSet Specials() { return Range(patch::kVccLo, patch::kVgpr0 - patch::kVccLo); }

// Registers that no load writes, or of which nothing is the application's.
RegisterSet Prompt() {
  RegisterSet set = Range(patch::kExecLo, 2);
  set.Add(patch::kScc);
  set.Add(patch::kMode);
  set.Add(patch::kTtmp0, 16);
  return set;
}

// Scalars of which nothing is left behind the instruction.
RegisterSet EndedScalars(const Instruction& in, uint32_t wavefront_size) {
  RegisterSet ended = in.defs;
  ended -= in.partial_defs;
  ended &= Range(0, patch::kVgpr0);
  // In wave32 vector instructions write the low half of VCC, whatever they name.
  const bool whole = in.salu || in.memory == patch::MemoryKind::kScalar;
  if (wavefront_size == 32 && !whole) ended.Remove(patch::kVccHi);
  return ended;
}

// The first instruction on some way from the place that mentions `reg` as read.
std::optional<uint64_t> FindReader(const KernelCode& kernel, const DeadClaim& claim, uint16_t reg) {
  std::vector<uint32_t> work;
  std::vector<bool> seen(kernel.blocks().size(), false);
  uint32_t b = kernel.BlockOf(claim.instruction);
  uint32_t i = claim.instruction + (claim.behind ? 1 : 0);
  while (true) {
    const KernelCode::Block& block = kernel.blocks()[b];
    bool ended = false;
    for (; i < block.end && !ended; ++i) {
      const Instruction& in = kernel.instructions().Shared(i);
      if (in.uses.Has(reg)) return kernel.instructions().OffsetOf(i);
      ended = !IsVector(reg) && EndedScalars(in, kernel.isa().wavefront_size()).Has(reg);
    }
    for (const uint32_t next : block.next) {
      if (ended || next == KernelCode::kNone || seen[next]) continue;
      seen[next] = true;
      work.push_back(next);
    }
    if (work.empty()) return std::nullopt;
    b = work.back();
    work.pop_back();
    i = kernel.blocks()[b].first;
  }
}

}  // namespace

std::string ObservedNotDead(const NotDead& finding) {
  if (finding.why == NotDead::Why::kUnknownCode) return "code that does not decode";
  if (finding.why == NotDead::Why::kPlace) return "relative register numbers";
  return patch::RegisterName(finding.reg);
}

std::string DescribeNotDead(const NotDead& finding, const KernelCode& kernel) {
  const std::string reg = patch::RegisterName(finding.reg);
  switch (finding.why) {
    case NotDead::Why::kRead: {
      if (!finding.reader)
        return StrCat(reg, " is not proven to be dead: code elsewhere may read it");
      const auto i = kernel.InstructionAt(*finding.reader);
      const std::string_view opcode =
          i ? kernel.instructions().Shared(*i).opcode : std::string_view("code");
      return StrCat(reg, " is not proven to be dead: ", opcode, " at kernel+0x",
                    absl::Hex(*finding.reader), " may read it");
    }
    case NotDead::Why::kIndexed:
      return StrCat(reg, " is not proven to be dead: it may be read through an index");
    case NotDead::Why::kInFlight:
      return StrCat("a load may still write ", reg, ": the kernel branches to computed addresses");
    case NotDead::Why::kUnknownCode:
      return "nothing is proven: the kernel runs code that does not decode";
    case NotDead::Why::kPlace:
      return "vector register numbers do not mean here what they say";
  }
  return "";
}

void DeadProof::Choose(const RegisterSet& wanted) {
  chosen_ = wanted;
  scalars_ = vectors_ = 0;
  uint8_t bit = 0;
  wanted.ForEach([&](uint16_t reg) {
    bit_[reg] = bit;
    reg_[bit] = reg;
    (IsVector(reg) ? vectors_ : scalars_) |= uint64_t{1} << bit++;
  });
  ++round_;
}

uint64_t DeadProof::Project(const RegisterSet& set) const {
  uint64_t bits = 0;
  (set & chosen_).ForEach([&](uint16_t reg) { bits |= uint64_t{1} << bit_[reg]; });
  return bits;
}

const DeadProof::Step& DeadProof::StepOf(const KernelCode& kernel, uint32_t i) {
  const Instruction& in = kernel.instructions().Shared(i);
  Step& step = steps_[in.id];
  if (std::exchange(step.round, round_) == round_) return step;
  const CodeFact& fact = kernel.FactOf(i);
  step.reads = Project(in.uses);
  step.across = in.lanewise ? 0 : step.reads & vectors_;
  const uint64_t named = Project(in.defs);
  step.ends = in.writes_whole && in.lanewise ? named & vectors_ : 0;
  if ((named & scalars_) != 0)
    step.ends |= Project(EndedScalars(in, kernel.isa().wavefront_size()));
  step.writes_exec = fact.writes_exec;
  step.widens = fact.widens;
  step.calls = fact.goes == Goes::kCalls;
  return step;
}

// The same for what is needed, and for how it follows from what is needed later.
template <typename T>
void DeadProof::Back(const Step& step, bool every, T& active, T& idle, const T& reads_active,
                     const T& reads_idle, const T& everything) const {
  if (step.calls) {
    active = idle = everything;
  } else {
    if (step.writes_exec) {
      const T either = active | idle;
      active = either;
      if (step.widens) idle = either;
    }
    active = (active & ~step.ends) | reads_active;
    idle = (idle & ~(step.ends & scalars_)) | reads_idle;
  }
  if (every) idle = idle & scalars_;
}

void DeadProof::StepBack(const KernelCode& kernel, uint32_t i, Lives& lives) {
  const Step& step = StepOf(kernel, i);
  Back(step, every_lane_[i], lives.active, lives.idle, step.reads,
       (step.reads & scalars_) | step.across, ~uint64_t{0});
}

DeadProof::Lives DeadProof::AtEnd(const KernelCode& kernel, uint32_t b) const {
  const KernelCode::Block& block = kernel.blocks()[b];
  Lives lives;
  if (block.anywhere) lives = {~uint64_t{0}, ~uint64_t{0}};
  for (const uint32_t next : block.next) {
    if (next == KernelCode::kNone) continue;
    lives.active |= in_[next].active;
    lives.idle |= in_[next].idle;
  }
  return lives;
}

void DeadProof::Solve(const KernelCode& kernel) {
  const auto& blocks = kernel.blocks();
  const auto n = static_cast<uint32_t>(blocks.size());
  std::vector<std::pair<Rule, Rule>> rules(n);
  for (uint32_t b = 0; b < n; ++b) {
    Rule active{0, ~uint64_t{0}, 0}, idle{0, 0, ~uint64_t{0}};
    for (uint32_t i = blocks[b].end; i-- > blocks[b].first;) {
      const Step& step = StepOf(kernel, i);
      Back(step, every_lane_[i], active, idle, Rule{step.reads, 0, 0},
           Rule{(step.reads & scalars_) | step.across, 0, 0}, Rule{~uint64_t{0}, 0, 0});
    }
    rules[b] = {active, idle};
  }
  // By block, where to go on when what it needs has grown.
  std::vector<uint32_t> begins(n + 1, 0), before;
  for (const auto& block : blocks) {
    for (const uint32_t next : block.next) begins[next == KernelCode::kNone ? n : next] += 1;
  }
  begins[n] = 0;
  std::exclusive_scan(begins.begin(), begins.end(), begins.begin(), 0u);
  before.resize(begins[n]);
  std::vector<uint32_t> at(begins.begin(), begins.end());
  for (uint32_t b = 0; b < n; ++b) {
    for (const uint32_t next : blocks[b].next) {
      if (next != KernelCode::kNone) before[at[next]++] = b;
    }
  }
  in_.assign(n, {});
  std::vector<uint32_t> work(n);
  std::iota(work.begin(), work.end(), 0u);
  std::vector<bool> queued(n, true);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    queued[b] = false;
    const Lives end = AtEnd(kernel, b);
    const Lives begin = {rules[b].first.Of(end), rules[b].second.Of(end)};
    if (begin == in_[b]) continue;
    in_[b] = begin;
    for (uint32_t p = begins[b]; p < begins[b + 1]; ++p) {
      if (!queued[before[p]]) work.push_back(before[p]);
      queued[before[p]] = true;
    }
  }
}

std::vector<NotDead> DeadProof::Refute(const KernelCode& kernel,
                                       absl::Span<const DeadClaim> claims) {
  std::vector<NotDead> found;
  std::vector<uint32_t> left;  // claims, by instruction, descending
  RegisterSet possible = kernel.mentioned();
  if (kernel.has_calls() || kernel.unknown_targets()) possible |= Specials();
  RegisterSet wanted;
  for (uint32_t c = 0; c < claims.size(); ++c) {
    const DeadClaim& claim = claims[c];
    NotDead finding{c, NotDead::Why::kUnknownCode, 0, std::nullopt};
    const bool known = !kernel.broken() && claim.instruction < kernel.instructions().size();
    const RegisterSet indexed = *claim.dead & kernel.indexed();
    const RegisterSet in_flight = kernel.unknown_targets() && claim.landed != nullptr
                                      ? (*claim.landed & kernel.mentioned()) - Prompt()
                                      : RegisterSet();
    if (!known) {
      found.push_back(finding);
    } else if (kernel.renumbers() || kernel.Forbidden(claim.instruction, claim.behind)) {
      finding.why = NotDead::Why::kPlace;
      found.push_back(finding);
    } else if (!in_flight.Empty()) {
      finding.why = NotDead::Why::kInFlight;
      finding.reg = First(in_flight);
      found.push_back(finding);
    } else if (!indexed.Empty()) {
      finding.why = NotDead::Why::kIndexed;
      finding.reg = First(indexed);
      found.push_back(finding);
    } else {
      left.push_back(c);
      wanted |= *claim.dead & possible;
    }
  }
  std::stable_sort(left.begin(), left.end(), [&](uint32_t a, uint32_t b) {
    const auto key = [&](uint32_t c) { return std::pair(claims[c].instruction, claims[c].behind); };
    return key(a) > key(b);
  });
  every_lane_.assign(kernel.instructions().size(), false);
  if (wanted.HasAny(patch::kVgpr0, patch::kNumRegisters - patch::kVgpr0)) {
    every_lane_ = EveryLaneActive(kernel);
  }
  while (!wanted.Empty() && !left.empty()) {
    RegisterSet some;
    size_t count = 0;
    wanted.ForEach([&](uint16_t reg) {
      if (count++ < reg_.size()) some.Add(reg);
    });
    wanted -= some;
    Choose(some);
    Solve(kernel);
    uint32_t block = KernelCode::kNone, at = 0;  // lives holds in front of instruction `at`
    Lives lives;
    std::erase_if(left, [&](uint32_t c) {
      const DeadClaim& claim = claims[c];
      const uint64_t bits = Project(*claim.dead);
      if (bits == 0) return false;
      const uint32_t wanted_at = claim.instruction + (claim.behind ? 1 : 0);
      if (const uint32_t b = kernel.BlockOf(claim.instruction); b != block) {
        block = b;
        at = kernel.blocks()[b].end;
        lives = AtEnd(kernel, b);
      }
      while (at > wanted_at) StepBack(kernel, --at, lives);
      const uint64_t alive = (lives.active | lives.idle) & bits;
      if (alive == 0) return false;
      const uint16_t reg = reg_[static_cast<size_t>(std::countr_zero(alive))];
      found.push_back({c, NotDead::Why::kRead, reg, FindReader(kernel, claim, reg)});
      return true;
    });
  }
  std::sort(found.begin(), found.end(),
            [](const NotDead& a, const NotDead& b) { return a.claim < b.claim; });
  return found;
}

}  // namespace rjdbi::contract
