// Tables of wait fields, and a worklist that gives up on a block's counts after a
// few visits.
#include "patch/analysis/outstanding.h"

#include <algorithm>
#include <cstring>

#include "patch/analysis/wait_counters.h"

namespace rjdbi::patch {
namespace {

using Counter = Outstanding::Counter;
using Counts = Outstanding::Counts;

constexpr int kVisits = 4;

struct Field {
  uint8_t shift, bits;
};

// A wait leaves at most the number in its field (low part, high part)
// outstanding. Sources: as in wait_counters.cpp.
struct WaitRow {
  std::string_view opcode;
  int first_major, last_major;
  Counter counter;
  Field low, high;
  bool needs_null;  // SOPK form: the SGPR operand must be null
};
constexpr WaitRow kWaits[] = {
    {"s_waitcnt", 9, 10, Outstanding::kLoad, {0, 4}, {14, 2}, false},
    {"s_waitcnt", 9, 9, Outstanding::kDs, {8, 4}, {}, false},
    {"s_waitcnt", 10, 10, Outstanding::kDs, {8, 6}, {}, false},
    {"s_waitcnt", 9, 10, Outstanding::kExport, {4, 3}, {}, false},
    {"s_waitcnt", 11, 11, Outstanding::kLoad, {10, 6}, {}, false},
    {"s_waitcnt", 11, 11, Outstanding::kDs, {4, 6}, {}, false},
    {"s_waitcnt", 11, 11, Outstanding::kExport, {0, 3}, {}, false},
    {"s_waitcnt_vmcnt", 10, 11, Outstanding::kLoad, {0, 16}, {}, true},
    {"s_waitcnt_vscnt", 10, 11, Outstanding::kStore, {0, 16}, {}, true},
    {"s_waitcnt_lgkmcnt", 10, 11, Outstanding::kDs, {0, 16}, {}, true},
    {"s_waitcnt_expcnt", 10, 11, Outstanding::kExport, {0, 16}, {}, true},
    {"s_wait_loadcnt", 12, 12, Outstanding::kLoad, {0, 6}, {}, false},
    {"s_wait_storecnt", 12, 12, Outstanding::kStore, {0, 6}, {}, false},
    {"s_wait_samplecnt", 12, 12, Outstanding::kSample, {0, 6}, {}, false},
    {"s_wait_bvhcnt", 12, 12, Outstanding::kBvh, {0, 3}, {}, false},
    {"s_wait_dscnt", 12, 12, Outstanding::kDs, {0, 6}, {}, false},
    {"s_wait_kmcnt", 12, 12, Outstanding::kKm, {0, 5}, {}, false},
    {"s_wait_expcnt", 12, 12, Outstanding::kExport, {0, 3}, {}, false},
    {"s_wait_loadcnt_dscnt", 12, 12, Outstanding::kLoad, {8, 6}, {}, false},
    {"s_wait_loadcnt_dscnt", 12, 12, Outstanding::kDs, {0, 6}, {}, false},
    {"s_wait_storecnt_dscnt", 12, 12, Outstanding::kStore, {8, 6}, {}, false},
    {"s_wait_storecnt_dscnt", 12, 12, Outstanding::kDs, {0, 6}, {}, false},
};

uint32_t FieldOf(uint32_t word, const Field& field) {
  return (word >> field.shift) & ((1u << field.bits) - 1);
}

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
  const bool apart = generation.major >= 10 && IsVector(in.memory) && no_result;
  raised[Outstanding::kLoad] = (late & kWaitLoad) != 0 && !apart;
  raised[Outstanding::kStore] = (late & kWaitLoad) != 0 && apart;
  raised[Outstanding::kDs] = (late & kWaitDs) != 0;
  raised[Outstanding::kKm] = (late & kWaitKm) != 0 && generation.major >= 12;
  // Before gfx12 one counter serves both; messages count there too.
  const bool message = in.sendmsg && !in.opcode.starts_with("s_sendmsghalt");
  if (generation.major < 12) {
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
  for (const WaitRow& row : kWaits) {
    if (row.opcode != in.opcode || generation.major < row.first_major ||
        generation.major > row.last_major) {
      continue;
    }
    // null is s125 on gfx10 and s124 from gfx11; SOPK's register is bits 22:16.
    if (row.needs_null && ((word >> 16) & 0x7f) != (generation.major >= 11 ? 124u : 125u)) continue;
    const uint32_t left = FieldOf(word, row.low) | FieldOf(word, row.high) << row.low.bits;
    counts[row.counter] = static_cast<uint8_t>(std::min<uint32_t>(counts[row.counter], left));
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
  struct Row {
    std::string_view gfx9, gfx10, gfx12;
  };
  static constexpr Row kNames[kCounters] = {{"vmcnt", "vmcnt", "loadcnt"},
                                            {"lgkmcnt", "lgkmcnt", "dscnt"},
                                            {"", "", "kmcnt"},
                                            {"", "", "samplecnt"},
                                            {"", "", "bvhcnt"},
                                            {"", "vscnt", "storecnt"},
                                            {"expcnt", "expcnt", "expcnt"}};
  const Row& row = kNames[counter];
  return generation.major >= 12 ? row.gfx12 : generation.major >= 10 ? row.gfx10 : row.gfx9;
}

}  // namespace rjdbi::patch
