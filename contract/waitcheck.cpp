// See waitcheck.h.
#include "contract/waitcheck.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "contract/text.h"
#include "patch/isa/generation.h"

namespace rjdbi::contract {
namespace {

using patch::Counter;
using patch::Generation;
using patch::Instruction;
using patch::MemoryKind;
using patch::RegisterSet;
using patch::WaitField;

constexpr uint8_t kMost = 63;  // no counter holds more
constexpr size_t kMostInFlight = 512;
// Instructions stepped over, for each instruction that there is.
constexpr uint64_t kMostWork = 1000;

}  // namespace

// What an instruction does to the counters, and what lands late or is read late.
struct WaitEffects::Effect {
  // What returns in order with its like.
  enum class Order : uint8_t { kVector, kSample, kBvh, kLds, kScalar, kMessage, kFlat, kExport };
  uint8_t counters = 0;  // those that it raises
  Order order = Order::kVector;
  bool tracked = false;  // it stays in the state until it has returned
  RegisterSet writes, reads;
  std::vector<uint16_t> written;  // the same as `writes`
  // What it touches itself, where that is not what the decoder says it uses and defines.
  struct Named {
    RegisterSet uses, defs;
  };
  std::unique_ptr<const Named> named;
  // Counts nothing, waits for nothing: nothing but its registers matters.
  bool plain = false;
  // Waits: per counter, how many it leaves; kMost: does not wait.
  bool waits = false, everything = false;
  std::array<uint8_t, patch::kNumCounters> leaves;
};

namespace {

using Effect = WaitEffects::Effect;
using Order = Effect::Order;

struct Row {
  std::string_view prefix;
  Order order;
  uint8_t counters;
};
constexpr uint8_t kLoads = 1u << static_cast<unsigned>(Counter::kLoad);
constexpr uint8_t kLds = 1u << static_cast<unsigned>(Counter::kDs);
constexpr uint8_t kScalars = 1u << static_cast<unsigned>(Counter::kKm);
constexpr uint8_t kStores = 1u << static_cast<unsigned>(Counter::kStore);
constexpr uint8_t kExports = 1u << static_cast<unsigned>(Counter::kExport);
// By mnemonic, as gfx12 counts; the first that fits.
constexpr Row kRows[] = {
    {"ds_param_load", Order::kExport, kExports},
    {"ds_direct_load", Order::kExport, kExports},
    {"lds_param_load", Order::kExport, kExports},
    {"lds_direct_load", Order::kExport, kExports},
    {"ds_gws_", Order::kExport, kLds | kExports},
    {"ds_", Order::kLds, kLds},
    {"flat_", Order::kFlat, kLoads | kLds},
    {"global_wb", Order::kVector, kStores},
    {"global_", Order::kVector, kLoads},
    {"cluster_", Order::kVector, kLoads},
    {"scratch_", Order::kVector, kLoads},
    {"buffer_", Order::kVector, kLoads},
    {"tbuffer_", Order::kVector, kLoads},
    {"image_bvh", Order::kBvh, 1u << static_cast<unsigned>(Counter::kBvh)},
    {"image_sample", Order::kSample, 1u << static_cast<unsigned>(Counter::kSample)},
    {"image_gather4", Order::kSample, 1u << static_cast<unsigned>(Counter::kSample)},
    {"image_get_lod", Order::kSample, 1u << static_cast<unsigned>(Counter::kSample)},
    {"image_msaa_load", Order::kSample, 1u << static_cast<unsigned>(Counter::kSample)},
    {"image_", Order::kVector, kLoads},
    {"exp", Order::kExport, kExports},
    {"s_load_", Order::kScalar, kScalars},
    {"s_store_", Order::kScalar, kScalars},
    {"s_buffer_", Order::kScalar, kScalars},
    {"s_scratch_", Order::kScalar, kScalars},
    {"s_atomic_", Order::kScalar, kScalars},
    {"s_dcache_", Order::kScalar, kScalars},
    {"s_memtime", Order::kScalar, kScalars},
    {"s_memrealtime", Order::kScalar, kScalars},
    {"s_atc_probe", Order::kScalar, kScalars},
    {"s_get_waveid", Order::kScalar, kScalars},
    {"s_get_barrier_state", Order::kScalar, kScalars},
    {"s_sendmsg", Order::kMessage, kScalars},
};

const Row* RowOf(std::string_view opcode) {
  // Invalidations by buffer forms, and prefetches, count nothing.
  for (const std::string_view none :
       {"buffer_wbinv", "buffer_inv", "buffer_gl", "s_buffer_prefetch"}) {
    if (opcode.starts_with(none)) return nullptr;
  }
  for (const Row& row : kRows) {
    if (opcode.starts_with(row.prefix)) return &row;
  }
  return nullptr;
}

// Results that land in registers; EXEC, SCC and MODE are written at once.
RegisterSet Late(RegisterSet set) {
  set.Remove(patch::kExecLo, 2);
  set.Remove(patch::kScc);
  set.Remove(patch::kMode);
  return set;
}

// Implicit operands of memory forms are no results, and not waited for.
RegisterSet Explicit(const Instruction& in, bool defs) {
  RegisterSet set;
  for (const auto& o : in.operands) {
    if (o.kind == patch::InstructionOperand::Kind::kRegister && o.is_def == defs) {
      set.Add(o.reg, o.count);
    }
  }
  return set;
}

void FillWaits(const Instruction& in, uint32_t word, const Generation& g, Effect& e) {
  e.waits = true;
  e.everything = in.opcode == "s_wait_idle";
  for (const WaitField& field : g.waits) {
    if (field.opcode != in.opcode) continue;
    // SOPK's register is bits 22:16.
    if (field.needs_null && ((word >> 16) & 0x7f) != g.null_operand) continue;
    const auto part = [word](const patch::BitField& f) {
      return f.bits == 0 ? 0u : (word >> f.shift) & ((1u << f.bits) - 1);
    };
    const uint32_t left = part(field.low) | part(field.high) << field.low.bits;
    // A field of ones is the counter's maximum, and waits for nothing.
    const uint32_t most = (1u << (field.low.bits + field.high.bits)) - 1;
    const auto c = static_cast<size_t>(field.counter);
    if (left < std::min<uint32_t>(most, kMost)) {
      e.leaves[c] = static_cast<uint8_t>(std::min(e.leaves[c], static_cast<uint8_t>(left)));
    }
    // One counter for LDS, scalar memory and messages.
    if (field.counter == Counter::kDs && !g.scalar_waits_apart) {
      e.leaves[static_cast<size_t>(Counter::kKm)] = e.leaves[c];
    }
  }
}

// The counters that it raises, and what it writes late or reads late.
void FillCounters(const Instruction& in, const Generation& g, Effect& e) {
  const Row* row = in.opcode.empty() || in.opcode[0] == 'v' ? nullptr : RowOf(in.opcode);
  if (row == nullptr) return;
  e.counters = row->counters;
  e.order = row->order;
  const RegisterSet results = Late(Explicit(in, true));
  const bool stores_only = (in.store || in.atomic) && results.Empty();
  if (!g.scalar_waits_apart) {  // before gfx12
    constexpr uint8_t kTogether = kLds | kScalars;
    if (e.counters & kTogether) e.counters = static_cast<uint8_t>(e.counters | kTogether);
    if (e.order == Order::kSample || e.order == Order::kBvh) e.counters = kLoads;
  }
  if (g.stores_apart && stores_only && (e.counters & kLoads) != 0) {
    e.counters = static_cast<uint8_t>((e.counters & ~kLoads) | kStores);
  }
  // GDS: the bit is in the first word; its operands are read late.
  const bool gds = in.memory == MemoryKind::kGds || e.order == Order::kExport;
  if (gds) {
    e.counters |= kExports;
    e.reads = Late(Explicit(in, false));
  }
  e.writes = results;
  results.ForEach([&e](uint16_t reg) { e.written.push_back(reg); });
  e.tracked = !results.Empty() || !e.reads.Empty() || e.order == Order::kMessage ||
              e.order == Order::kFlat || e.order == Order::kScalar;
}

Effect EffectOf(const Instruction& in, uint32_t word, const Generation& g) {
  Effect e;
  e.leaves.fill(kMost);
  if (in.waitcnt) {
    FillWaits(in, word, g, e);
    return e;
  }
  FillCounters(in, g, e);
  // Indirect moves claim the whole file, implicit operands of memory forms are none.
  if (e.counters != 0 || in.call || StrContains(in.opcode, "rel")) {
    e.named = std::make_unique<const Effect::Named>(
        Effect::Named{Explicit(in, false), Explicit(in, true)});
  }
  e.plain = e.counters == 0 && !in.call;
  return e;
}

// All that say nothing of their own share one.
const std::shared_ptr<const Effect>& PlainEffect() {
  static const std::shared_ptr<const Effect> plain = [] {
    Effect e;
    e.leaves.fill(kMost);
    e.plain = true;
    return std::make_shared<const Effect>(std::move(e));
  }();
  return plain;
}

// An operation that may be in flight.
struct InFlight {
  uint32_t op = 0;       // a step
  uint8_t counters = 0;  // that have not been waited for
  // Operations that each has counted since, at least.
  std::array<uint8_t, patch::kNumCounters> since = {};
  bool operator==(const InFlight&) const = default;
};
using State = std::vector<InFlight>;  // by step, ascending

// Numbers by address, in pages: code lies close together.
class ByAddress {
 public:
  static constexpr uint32_t kNone = ~0u;
  uint32_t& operator[](uint64_t vaddr) {
    const uint64_t page = vaddr / kPageBytes;
    if (page != last_) {
      const auto [found, fresh] = pages_.try_emplace(page, words_.size());
      if (fresh) words_.resize(words_.size() + kPageWords, kNone);
      last_ = page;
      at_ = found->second;
    }
    return words_[at_ + vaddr % kPageBytes / 4];
  }

 private:
  static constexpr uint64_t kPageBytes = 2048, kPageWords = kPageBytes / 4;
  std::unordered_map<uint64_t, size_t> pages_;
  std::vector<uint32_t> words_;
  uint64_t last_ = ~uint64_t{0};
  size_t at_ = 0;
};

struct Step {
  uint64_t vaddr = 0;
  const Instruction* in = nullptr;
  const Effect* effect = nullptr;
  uint32_t next[2] = {~0u, ~0u};
};

class Checker {
 public:
  Checker(patch::Isa& isa, const CodeAt& code, WaitEffects& effects)
      : isa_(isa), code_(code), effects_(effects.Of(isa)) {
    // A counter holds what its narrowest field can say.
    most_.fill(kMost);
    for (const WaitField& field : isa.generation().waits) {
      const unsigned bits = field.low.bits + field.high.bits;
      uint8_t& most = most_[static_cast<size_t>(field.counter)];
      if (bits < 8) most = std::min(most, static_cast<uint8_t>((1u << bits) - 1));
    }
    if (!isa.generation().scalar_waits_apart) {
      most_[static_cast<size_t>(Counter::kKm)] = most_[static_cast<size_t>(Counter::kDs)];
    }
  }

  WaitReport Run(uint64_t entry) {
    Explore(entry);
    Solve();
    for (uint32_t b = 0; b < steps_.size(); ++b) {
      if (!leader_[b] || !reached_[b]) continue;
      State state = in_[b];
      for (uint32_t i = b;;) {
        Judge(i, state);
        Advance(i, state);
        const uint32_t next = steps_[i].next[0];
        if (steps_[i].next[1] != kNone || next == kNone || leader_[next]) break;
        i = next;
      }
    }
    report_.instructions = static_cast<uint32_t>(steps_.size());
    std::sort(report_.findings.begin(), report_.findings.end());
    return std::move(report_);
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  const Effect* EffectOfShared(const Instruction* in, uint32_t word) {
    // Shared instructions have one encoding, so one word.
    std::shared_ptr<const Effect>& effect = effects_[in->id];
    if (effect == nullptr) {
      Effect made = EffectOf(*in, word, isa_.generation());
      effect = made.plain && made.named == nullptr
                   ? PlainEffect()
                   : std::make_shared<const Effect>(std::move(made));
    }
    return effect.get();
  }

  // The bytes from an address on; mostly of the same segment as those before.
  absl::Span<const uint8_t> CodeFrom(uint64_t vaddr) {
    if (vaddr - window_at_ >= window_.size()) {
      window_ = code_(vaddr);
      window_at_ = vaddr;
    }
    return window_.subspan(window_.empty() ? 0 : vaddr - window_at_);
  }

  // The step at an address that is a multiple of 4; kNone: of no other is there code.
  uint32_t Visit(uint64_t vaddr) {
    uint32_t& at = at_[vaddr];
    if (at == kNone) {
      at = static_cast<uint32_t>(steps_.size());
      steps_.push_back({vaddr});
      left_.push_back(at);
    }
    return at;
  }

  // Every instruction that control reaches.
  void Explore(uint64_t entry) {
    if (code_(entry).empty()) {
      report_.complete = false;
      return;
    }
    Visit(entry);
    std::vector<uint32_t> leaders = {0};
    while (!left_.empty()) {
      const uint32_t i = left_.back();
      left_.pop_back();
      const uint64_t vaddr = steps_[i].vaddr;
      const auto bytes = CodeFrom(vaddr);
      const Instruction* in = bytes.size() < 4 ? nullptr : isa_.DecodeShared(bytes, 0);
      if (in == nullptr) {
        report_.complete = false;
        continue;
      }
      uint32_t word = 0;
      std::memcpy(&word, bytes.data(), sizeof word);
      steps_[i].in = in;
      steps_[i].effect = EffectOfShared(in, word);
      report_.waits += in->waitcnt;
      if (in->ends_program) continue;
      if (in->indirect && !in->call) {
        report_.complete = false;
        continue;
      }
      uint32_t n = 0;
      // The way on is visited last, so that code in a row is decoded in a row.
      if (in->branch && !in->call && in->target_offset) {
        const uint32_t target = Visit(vaddr + static_cast<uint64_t>(*in->target_offset));
        leaders.push_back(target);
        steps_[i].next[n++] = target;
      }
      if (!in->branch || in->conditional || in->call) {
        const uint32_t on = Visit(vaddr + in->size);
        if (n > 0) leaders.push_back(on);
        steps_[i].next[n++] = on;
      }
    }
    leader_.assign(steps_.size(), false);
    for (const uint32_t leader : leaders) leader_[leader] = true;
    // Where paths meet, too.
    std::vector<bool> entered(steps_.size(), false);
    for (const Step& step : steps_) {
      for (const uint32_t next : step.next) {
        if (next == kNone) continue;
        if (entered[next]) leader_[next] = true;
        entered[next] = true;
      }
    }
  }

  static bool Add(InFlight& into, const InFlight& there) {
    InFlight merged = into;
    for (size_t c = 0; c < patch::kNumCounters; ++c) {
      const uint8_t bit = static_cast<uint8_t>(1u << c);
      if ((there.counters & bit) == 0) continue;
      merged.since[c] =
          (merged.counters & bit) != 0 ? std::min(merged.since[c], there.since[c]) : there.since[c];
      merged.counters |= bit;
    }
    return std::exchange(into, merged) != merged;
  }

  static bool Merge(State& into, const State& from) {
    bool changed = false;
    size_t missing = 0;
    auto at = into.begin();
    for (const InFlight& there : from) {
      while (at != into.end() && at->op < there.op) ++at;
      if (at == into.end() || at->op != there.op) {
        ++missing;
      } else {
        changed |= Add(*at, there);
      }
    }
    if (missing == 0) return changed;
    State all;
    all.reserve(into.size() + missing);
    std::set_union(into.begin(), into.end(), from.begin(), from.end(), std::back_inserter(all),
                   [](const InFlight& a, const InFlight& b) { return a.op < b.op; });
    into = std::move(all);
    return true;
  }

  void Solve() {
    in_.assign(steps_.size(), {});
    reached_.assign(steps_.size(), false);
    if (steps_.empty()) return;
    std::set<uint32_t> work = {0};
    reached_[0] = true;
    uint64_t left = kMostWork * (steps_.size() + 1000);
    State state;
    while (!work.empty()) {
      const uint32_t b = *work.begin();
      work.erase(work.begin());
      state = in_[b];
      uint32_t i = b;
      while (true) {
        if (left-- == 0) {
          report_.complete = false;
          return;
        }
        Advance(i, state);
        const uint32_t next = steps_[i].next[0];
        if (steps_[i].next[1] != kNone || next == kNone || leader_[next]) break;
        i = next;
      }
      for (const uint32_t next : steps_[i].next) {
        if (next == kNone) continue;
        const bool changed = Merge(in_[next], state);
        if (changed || !reached_[next]) work.insert(next);
        reached_[next] = true;
      }
    }
  }

  // Whether this counter's operations may return in any order now.
  bool AnyOrder(size_t counter, const State& state) const {
    const auto bit = static_cast<uint8_t>(1u << counter);
    std::optional<Order> seen;
    for (const InFlight& flight : state) {
      if ((flight.counters & bit) == 0) continue;
      Order order = steps_[flight.op].effect->order;
      if (order == Order::kScalar || order == Order::kMessage) return true;
      if (order == Order::kFlat) {
        if (isa_.generation().major < 10) return true;
        continue;
      }
      if (order == Order::kSample || order == Order::kBvh) order = Order::kVector;
      if (seen && *seen != order) return true;
      seen = order;
    }
    return false;
  }

  static void DropReturned(State& state) {
    std::erase_if(state, [](const InFlight& flight) { return flight.counters == 0; });
  }

  void Wait(const Effect& e, State& state) const {
    for (size_t c = 0; c < patch::kNumCounters; ++c) {
      const uint8_t leaves = e.everything ? uint8_t{0} : e.leaves[c];
      if (leaves >= kMost || (leaves > 0 && AnyOrder(c, state))) continue;
      const auto bit = static_cast<uint8_t>(1u << c);
      for (InFlight& flight : state) {
        if ((flight.counters & bit) != 0 && flight.since[c] >= leaves) {
          flight.counters = static_cast<uint8_t>(flight.counters & ~bit);
        }
      }
      DropReturned(state);
    }
  }

  void Advance(uint32_t i, State& state) {
    const Step& step = steps_[i];
    if (step.in == nullptr) return;
    const Effect& e = *step.effect;
    if (e.plain) return;
    if (step.in->call) return state.clear();
    if (e.waits) return Wait(e, state);
    if (e.counters == 0) return;
    for (InFlight& flight : state) {
      if ((flight.counters & e.counters) == 0) continue;
      for (size_t c = 0; c < patch::kNumCounters; ++c) {
        const auto bit = static_cast<uint8_t>(1u << c);
        if ((flight.counters & e.counters & bit) == 0) continue;
        if (flight.since[c] < kMost) ++flight.since[c];
        // A full counter holds the next operation up, and the oldest has returned.
        const Order order = steps_[flight.op].effect->order;
        const bool ordered = order != Order::kScalar && order != Order::kMessage;
        if (flight.since[c] >= most_[c] && ordered) {
          flight.counters = static_cast<uint8_t>(flight.counters & ~bit);
        }
      }
    }
    DropReturned(state);
    if (!e.tracked) return;
    const auto at = std::lower_bound(state.begin(), state.end(), i,
                                     [](const InFlight& f, uint32_t op) { return f.op < op; });
    const InFlight flight{i, e.counters, {}};
    if (at != state.end() && at->op == i) {
      *at = flight;
    } else {
      state.insert(at, flight);
    }
    if (state.size() <= kMostInFlight) return;
    state.erase(state.begin());
    report_.complete = false;
  }

  // Whether both write their results in the order in which they were issued.
  bool InOrder(const Effect& first, const Effect& second) const {
    return first.order == second.order && first.order != Order::kScalar &&
           first.order != Order::kMessage &&
           (first.order != Order::kFlat || isa_.generation().major >= 10);
  }

  void Judge(uint32_t i, const State& state) {
    const Step& step = steps_[i];
    if (step.in == nullptr || state.empty() || step.in->waitcnt) return;
    const Instruction& in = *step.in;
    const bool memory = step.effect->counters != 0;
    const auto& named = step.effect->named;
    const RegisterSet& uses = named ? named->uses : in.uses.get();
    const RegisterSet& defs = named ? named->defs : in.defs.get();
    for (const InFlight& flight : state) {
      const Effect& producer = *steps_[flight.op].effect;
      const auto find = [&](const RegisterSet& shared, WaitFinding::Kind kind) {
        if (shared.Empty()) return false;
        if (report_.findings.size() >= kMostFindings) {
          report_.complete = false;
          return true;
        }
        WaitFinding f{step.vaddr, steps_[flight.op].vaddr, 0, kind};
        bool first = true;
        shared.ForEach([&](uint16_t r) {
          if (std::exchange(first, false)) f.reg = r;
        });
        report_.findings.push_back(f);
        return true;
      };
      // Results land with the counters of data, operands are read with that of exports.
      const bool data = (flight.counters & ~kExports) != 0 || producer.reads.Empty();
      const bool touched =
          std::any_of(producer.written.begin(), producer.written.end(),
                      [&](uint16_t reg) { return uses.Has(reg) || defs.Has(reg); });
      if (!touched && (flight.counters & kExports) == 0) continue;  // mostly
      if (data && find(uses & producer.writes, WaitFinding::Kind::kRead)) continue;
      if (data && !(memory && InOrder(producer, *step.effect)) &&
          find(defs & producer.writes, WaitFinding::Kind::kOverwritten)) {
        continue;
      }
      if ((flight.counters & kExports) == 0) continue;
      find(defs & producer.reads, WaitFinding::Kind::kReadLate);
    }
  }

  patch::Isa& isa_;
  const CodeAt& code_;
  std::vector<Step> steps_;
  ByAddress at_;
  std::vector<uint32_t> left_;  // steps to look at
  absl::Span<const uint8_t> window_;
  uint64_t window_at_ = 0;
  WaitEffects::OfIsa& effects_;
  std::vector<bool> leader_, reached_;
  std::vector<State> in_;  // of leaders
  std::array<uint8_t, patch::kNumCounters> most_;
  WaitReport report_;
};

}  // namespace

CodeAt CodeIn(const patch::CodeObject& object) {
  return [&object](uint64_t vaddr) -> absl::Span<const uint8_t> {
    for (const patch::Segment& s : object.segments()) {
      if ((s.flags & PF_X) == 0 || vaddr < s.vaddr || vaddr - s.vaddr >= s.filesz) continue;
      const uint64_t at = vaddr - s.vaddr;
      return object.bytes().subspan(s.offset + at, s.filesz - at);
    }
    return {};
  };
}

WaitReport CheckWaits(patch::Isa& isa, const CodeAt& code, uint64_t entry, WaitEffects* effects) {
  WaitEffects own;
  return Checker(isa, code, effects != nullptr ? *effects : own).Run(entry);
}

std::string DescribeWait(const WaitFinding& f, patch::Isa& isa, const CodeAt& code) {
  const auto opcode = [&](uint64_t vaddr) {
    const auto bytes = code(vaddr);
    const Instruction* in = bytes.empty() ? nullptr : isa.DecodeShared(bytes, 0);
    return in == nullptr ? std::string_view("an instruction") : in->opcode;
  };
  const std::string reg = patch::RegisterName(f.reg);
  const std::string where = StrCat(opcode(f.producer), " at 0x", absl::Hex(f.producer));
  switch (f.kind) {
    case WaitFinding::Kind::kRead:
      return StrCat(opcode(f.vaddr), " reads ", reg, ", which ", where, " may still write");
    case WaitFinding::Kind::kOverwritten:
      return StrCat(opcode(f.vaddr), " writes ", reg, ", which ", where, " may still write");
    case WaitFinding::Kind::kReadLate:
      return StrCat(opcode(f.vaddr), " writes ", reg, ", which ", where, " may still read");
  }
  return "";
}

}  // namespace rjdbi::contract
