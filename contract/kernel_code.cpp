// See kernel_code.h.
#include "contract/kernel_code.h"

#include <algorithm>

#include "contract/occupancy.h"
#include "patch/isa/generation.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
using patch::InstructionList;
using patch::RegisterSet;

constexpr uint64_t kWord = 4;

// A sweep that forgets what it has seen.
RegisterSet MentionedIn(patch::Isa& isa, absl::Span<const uint8_t> code) {
  RegisterSet set;
  for (uint64_t at = 0; at + kWord <= code.size();) {
    const Instruction* in = isa.DecodeShared(code, at);
    if (in != nullptr) set |= in->defs | in->uses;
    at += in != nullptr ? in->size : kWord;
  }
  return set;
}

}  // namespace

ObjectCode::ObjectCode(const patch::CodeObject& object) : object_(object) {
  for (const patch::Kernel& kernel : object.kernels()) entries_.push_back(kernel.entry_vaddr);
  std::sort(entries_.begin(), entries_.end());
}

CodeFacts& ObjectCode::Facts(patch::Isa& isa) {
  std::unique_ptr<CodeFacts>& facts = facts_[&isa];
  if (facts == nullptr) facts = std::make_unique<CodeFacts>(isa);
  return *facts;
}

absl::Span<const uint64_t> ObjectCode::EntriesIn(uint64_t begin, uint64_t end) const {
  const auto first = std::lower_bound(entries_.begin(), entries_.end(), begin);
  const auto last = std::lower_bound(first, entries_.end(), end);
  return absl::MakeConstSpan(entries_).subspan(static_cast<size_t>(first - entries_.begin()),
                                               static_cast<size_t>(last - first));
}

// Section by section, begun anew at every symbol: data between functions may make the
// sweep lose its step.
const RegisterSet& ObjectCode::Mentioned(patch::Isa& isa, bool kernels_too) {
  const auto [found, fresh] = mentioned_.try_emplace({&isa, kernels_too});
  if (!fresh) return found->second;
  std::vector<uint64_t> cuts;
  for (const patch::CodeSymbol& symbol : object_.code_symbols()) {
    cuts.push_back(symbol.vaddr);
    cuts.push_back(symbol.vaddr + symbol.size);
  }
  std::sort(cuts.begin(), cuts.end());
  for (const patch::CodeObject::Range& range : object_.executable_ranges()) {
    for (uint64_t at = range.begin; at < range.end;) {
      const auto cut = std::upper_bound(cuts.begin(), cuts.end(), at);
      const uint64_t end = cut == cuts.end() ? range.end : std::min(*cut, range.end);
      const bool kernel = std::binary_search(entries_.begin(), entries_.end(), at);
      if (!kernel || kernels_too) {
        const auto code = object_.AtVaddr(at, end - at);
        // Code that nobody can see may mention anything.
        if (code.empty()) found->second.Add(0, patch::kNumRegisters);
        found->second |= MentionedIn(isa, code);
      }
      at = end;
    }
  }
  return found->second;
}

KernelCode::KernelCode(ObjectCode& object, size_t index, patch::Isa& isa)
    : object_(object), index_(index), isa_(isa), facts_(object.Facts(isa)) {
  code_ = this->object().AtVaddr(kernel().entry_vaddr, kernel().code_size);
  Sweep();
  const uint64_t begin = kernel().entry_vaddr;
  for (const uint64_t entry : object_.EntriesIn(begin, begin + code_.size())) {
    starts_.push_back(entry - begin);
  }
  // Firmware that preloads arguments enters here; the other entry stays one.
  const bool preloads = (kernel().descriptor.kernarg_preload & 0x7f) != 0;
  const uint64_t second = isa_.generation().preload_entry;
  if (preloads && second != 0 && second < code_.size()) starts_.push_back(second);
  std::sort(starts_.begin(), starts_.end());
  MakeBlocks();
  for (Block& block : blocks_) Connect(block);
  Reach();
  Mention();
  if (regions_) FindRegions();
}

void KernelCode::Sweep() {
  instructions_.Reserve(code_.size() / 5);
  for (uint64_t at = 0; at + kWord <= code_.size();) {
    const Instruction* in = isa_.DecodeShared(code_, at);
    if (in == nullptr) {
      at += kWord;
      continue;
    }
    const CodeFact& fact = facts_.Of(*in, code_.subspan(at));
    calls_ |= fact.goes == Goes::kCalls;
    unknown_targets_ |= fact.goes == Goes::kAnywhere;
    regions_ |= fact.index_on || fact.gives_back;
    renumbers_ |= fact.renumbers;
    skips_ |= fact.skips;
    indexes_ |= fact.index_on;
    instructions_.Append(in, at);
    at += in->size;
  }
  instructions_.ShrinkToFit();
}

bool KernelCode::GapBehind(uint32_t i) const {
  const uint64_t end = instructions_.OffsetOf(i) + instructions_.Shared(i).size;
  return i + 1 < instructions_.size() && instructions_.OffsetOf(i + 1) != end;
}

void KernelCode::MakeBlocks() {
  const auto n = static_cast<uint32_t>(instructions_.size());
  std::vector<bool> begins(n + 1, false);
  begins[0] = true;
  for (const uint64_t start : starts_) {
    const auto i = InstructionAt(start);
    if (i) begins[*i] = true;
    broken_ |= !i;
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (FactOf(i).goes != Goes::kOn || GapBehind(i)) begins[i + 1] = true;
    const Instruction& in = instructions_.Shared(i);
    if (!in.target_offset) continue;
    const int64_t target = static_cast<int64_t>(instructions_.OffsetOf(i)) + *in.target_offset;
    if (target < 0) continue;
    if (const auto to = InstructionAt(static_cast<uint64_t>(target))) begins[*to] = true;
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (begins[i]) blocks_.push_back({i, i});
    blocks_.back().end = i + 1;
  }
  for (const uint64_t start : starts_) {
    if (const auto i = InstructionAt(start)) entries_.push_back(BlockOf(*i));
  }
}

uint32_t KernelCode::BlockOf(uint32_t i) const {
  const auto behind = std::upper_bound(blocks_.begin(), blocks_.end(), i,
                                       [](uint32_t at, const Block& b) { return at < b.first; });
  return static_cast<uint32_t>(behind - blocks_.begin()) - 1;
}

// Edges; what leads out of the instructions is marked, and judged once it is known
// which blocks are reached.
void KernelCode::Connect(Block& block) {
  const uint32_t last = block.end - 1;
  const Goes goes = FactOf(last).goes;
  const Instruction& in = instructions_.Shared(last);
  block.anywhere = goes == Goes::kAnywhere || goes == Goes::kCalls;
  uint32_t ways = 0;
  if (goes == Goes::kOn || goes == Goes::kEither || goes == Goes::kCalls ||
      goes == Goes::kAnywhere) {
    if (!GapBehind(last) && block.end < instructions_.size()) {
      block.next[ways++] = static_cast<uint32_t>(&block - blocks_.data()) + 1;
    } else {
      block.anywhere = true;
    }
  }
  if (!in.target_offset || goes == Goes::kCalls || goes == Goes::kOn) return;
  const int64_t target = static_cast<int64_t>(instructions_.OffsetOf(last)) + *in.target_offset;
  const auto to = target < 0 ? std::nullopt : InstructionAt(static_cast<uint64_t>(target));
  if (to) {
    block.next[ways++] = BlockOf(*to);
  } else {
    block.anywhere = true;
  }
}

void KernelCode::Reach() {
  std::vector<uint32_t> work = entries_;
  for (uint32_t b = 0; unknown_targets_ && b < blocks_.size(); ++b) work.push_back(b);
  while (!work.empty()) {
    Block& block = blocks_[work.back()];
    work.pop_back();
    if (block.reached) continue;
    block.reached = true;
    for (const uint32_t next : block.next) {
      if (next != kNone) work.push_back(next);
    }
    const uint32_t last = block.end - 1;
    const Goes goes = FactOf(last).goes;
    const bool on = goes == Goes::kOn || goes == Goes::kEither || goes == Goes::kCalls;
    const uint64_t end = instructions_.OffsetOf(last) + instructions_.Shared(last).size;
    // Behind a gap, or before the end, there are words that do not decode.
    if (on && (GapBehind(last) || (block.end == instructions_.size() && end < code_.size()))) {
      broken_ = true;
    }
    if (on && end >= code_.size()) runs_off_ = leaves_ = true;
    const Instruction& in = instructions_.Shared(last);
    if (!in.target_offset || goes == Goes::kCalls || goes == Goes::kOn) continue;
    const int64_t target = static_cast<int64_t>(instructions_.OffsetOf(last)) + *in.target_offset;
    const bool outside = target < 0 || static_cast<uint64_t>(target) >= code_.size();
    leaves_ |= outside;
    broken_ |= !outside && !InstructionAt(static_cast<uint64_t>(target));
  }
}

void KernelCode::Mention() {
  std::vector<bool> seen;
  for (uint32_t i = 0; i < instructions_.size(); ++i) {
    const Instruction& in = instructions_.Shared(i);
    if (in.id >= seen.size()) seen.resize(in.id + in.id / 2 + 64);
    if (seen[in.id]) continue;
    seen[in.id] = true;
    mentioned_ |= in.defs;  // all that it writes, in part or not
    mentioned_ |= in.uses;
  }
  if (indexes_) {
    const Allocation a =
        DescriptorAllocation(isa_.generation(), kernel().descriptor, kernel().wavefront_size);
    indexed_.Add(patch::kVgpr0, std::min(a.arch_vgprs, 256u));
    indexed_.Add(patch::kAgpr0, 256);
    mentioned_ |= indexed_;
  }
  if (calls_ || unknown_targets_ || leaves_) mentioned_ |= object_.Mentioned(isa_, leaves_);
}

// What holds on some way to an instruction.
void KernelCode::FindRegions() {
  constexpr uint8_t kIndexed = 1, kGone = 2;
  forbidden_.assign(instructions_.size() + 1, false);
  std::vector<uint8_t> in(blocks_.size(), 0);
  std::vector<uint32_t> work;
  uint8_t anywhere = 0;  // where control goes that no edge shows
  const auto arrive = [&](uint32_t b, uint8_t state) {
    if ((in[b] | state) == in[b]) return;
    in[b] |= state;
    work.push_back(b);
  };
  for (uint32_t b = 0; b < blocks_.size(); ++b) work.push_back(b);
  while (!work.empty()) {
    const uint32_t b = work.back();
    work.pop_back();
    uint8_t state = in[b];
    for (uint32_t i = blocks_[b].first; i < blocks_[b].end; ++i) {
      if (state != 0) forbidden_[i] = true;
      const CodeFact& fact = FactOf(i);
      if (fact.index_on) state |= kIndexed;
      if (fact.index_off) state = static_cast<uint8_t>(state & ~kIndexed);
      if (fact.gives_back) state |= kGone;
    }
    for (const uint32_t next : blocks_[b].next) {
      if (next != kNone) arrive(next, state);
    }
    if (FactOf(blocks_[b].end - 1).goes != Goes::kAnywhere || (anywhere | state) == anywhere) {
      continue;
    }
    anywhere |= state;
    for (uint32_t to = 0; to < blocks_.size(); ++to) arrive(to, anywhere);
  }
}

bool KernelCode::Forbidden(uint32_t i, bool behind) const {
  if (forbidden_.empty()) return false;
  if (!behind) return forbidden_[i];
  const CodeFact& fact = FactOf(i);
  return fact.index_on || fact.gives_back || (forbidden_[i] && !fact.index_off) ||
         forbidden_[i + 1];
}

bool KernelCode::TogetherWith(uint32_t i, uint32_t j) const {
  return !unknown_targets_ && !broken_ && !skips_ && BlockOf(i) == BlockOf(j);
}

}  // namespace rjdbi::contract
