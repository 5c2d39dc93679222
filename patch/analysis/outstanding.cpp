// A worklist that gives up on a block's counts after a few visits.
#include "patch/analysis/outstanding.h"

#include <algorithm>
#include <cstring>

#include "patch/analysis/wait_counters.h"

namespace rjdbi::patch {
namespace {

using Counts = Outstanding::Counts;

constexpr int kVisits = 4;

bool IsVector(MemoryKind kind) {
  return kind != MemoryKind::kNone && kind != MemoryKind::kScalar && kind != MemoryKind::kLds &&
         kind != MemoryKind::kGds;
}

// Counters that the instruction raises by one.
std::array<bool, Outstanding::kCounters> Raised(const Instruction& in,
                                                const Generation& generation) {
  const uint8_t late = CountersRaised(in, generation);
  std::array<bool, Outstanding::kCounters> raised = {};
  const bool no_result = in.store || (in.atomic && !in.returns_value);
  const bool apart = generation.stores_apart && IsVector(in.memory) && no_result;
  raised[Outstanding::kLoad] = (late & kWaitLoad) != 0 && !apart;
  raised[Outstanding::kStore] = (late & kWaitLoad) != 0 && apart;
  raised[Outstanding::kDs] = (late & kWaitDs) != 0;
  raised[Outstanding::kKm] = (late & kWaitKm) != 0 && generation.scalar_waits_apart;
  // Before gfx12 one counter serves both; messages count there too.
  const bool message = in.sendmsg && !in.opcode.starts_with("s_sendmsghalt");
  if (!generation.scalar_waits_apart) {
    raised[Outstanding::kDs] |= (late & kWaitKm) != 0 || message;
  } else {
    raised[Outstanding::kKm] |= message;
  }
  raised[Outstanding::kSample] = (late & kWaitSample) != 0;
  raised[Outstanding::kBvh] = (late & kWaitBvh) != 0;
  raised[Outstanding::kExport] = (late & kWaitNever) != 0 || in.opcode.starts_with("exp");
  return raised;
}

bool Join(Counts& into, const Counts& from, bool widen) {
  bool changed = false;
  for (size_t c = 0; c < into.size(); ++c) {
    if (from[c] <= into[c]) continue;
    into[c] = widen ? Outstanding::kUnbounded : from[c];
    changed = true;
  }
  return changed;
}

}  // namespace

Outstanding::Outstanding(const KernelAnalysis& kernel) : kernel_(kernel), flow_(kernel.flow()) {
  const size_t n = flow_.blocks.size();
  in_.assign(n, Counts{});
  if (flow_.has_indirect_branch) {
    for (Counts& counts : in_) counts.fill(kUnbounded);
    return;
  }
  std::vector<int> visits(n, 0);
  std::vector<uint32_t> work;
  for (uint32_t b = static_cast<uint32_t>(n); b-- > 0;) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    ++visits[b];
    Counts counts = in_[b];
    for (uint32_t i = flow_.blocks[b].first; i <= flow_.blocks[b].last; ++i) {
      Step(kernel_.instructions()[i], counts);
    }
    for (uint32_t s : flow_.blocks[b].successors) {
      if (Join(in_[s], counts, visits[s] > kVisits)) work.push_back(s);
    }
  }
}

void Outstanding::Step(const Instruction& in, Counts& counts) const {
  const Generation& generation = kernel_.isa().generation();
  if (in.call) return counts.fill(kUnbounded);
  const auto raised = Raised(in, generation);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (raised[c] && counts[c] < kUnbounded) ++counts[c];
  }
  if (!in.waitcnt) return;
  if (in.opcode == "s_wait_idle") return counts.fill(0);
  uint32_t word = 0;
  std::memcpy(&word, kernel_.code().data() + in.offset, sizeof(word));
  for (const WaitField& field : generation.waits) {
    if (field.opcode != in.opcode || !WaitsFor(field, word, generation)) continue;
    uint8_t& count = counts[static_cast<size_t>(field.counter)];
    count = static_cast<uint8_t>(std::min<uint32_t>(count, LeavesOutstanding(field, word)));
  }
}

Outstanding::Counts Outstanding::At(uint32_t i, Position position) const {
  const uint32_t b = flow_.block_of[i];
  const BasicBlock& block = flow_.blocks[b];
  if (kept_ != b) {
    kept_ = b;
    counts_.assign(1, in_[b]);
    for (uint32_t k = block.first; k <= block.last; ++k) {
      counts_.push_back(counts_.back());
      Step(kernel_.instructions()[k], counts_.back());
    }
  }
  return counts_[i - block.first + (position == Position::kAfter ? 1 : 0)];
}

std::string_view Outstanding::Name(Counter counter, const Generation& generation) {
  return generation.counter_names[counter];
}

}  // namespace rjdbi::patch
