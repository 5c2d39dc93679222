// What answers late, and what the waits of the hardware tables clear.
#include "patch/analysis/wait_counters.h"

#include <string_view>

namespace rjdbi::patch {
namespace {

constexpr uint8_t kLgkm = kWaitDs | kWaitKm;
constexpr uint8_t kAllDecoded = kWaitLoad | kLgkm | kWaitSample | kWaitBvh;

// What a counter at zero means for register writes.
uint8_t Guarded(Counter counter, const Generation& generation) {
  switch (counter) {
    case Counter::kLoad:
      return kWaitLoad;
    case Counter::kDs:
      return generation.scalar_waits_apart ? uint8_t{kWaitDs} : kLgkm;
    case Counter::kKm:
      return kWaitKm;
    case Counter::kSample:
      return kWaitSample;
    case Counter::kBvh:
      return kWaitBvh;
    case Counter::kStore:
    case Counter::kExport:
      return 0;
  }
  return 0;
}

// What an operation's results are counted by: where scalar operations have a
// counter of their own (gfx12), and before.
struct Late {
  uint8_t apart, together;
};
constexpr Late kNoResult = {0, 0};
constexpr Late kVector = {kWaitLoad, kWaitLoad};
constexpr Late kFlatLate = {kWaitLoad | kWaitDs, kWaitLoad | kLgkm};
constexpr Late kDsLate = {kWaitDs, kLgkm};
constexpr Late kScalarLate = {kWaitKm, kLgkm};
// Which of the three gfx12 uses depends on the opcode: demand them all.
constexpr Late kImageLate = {kWaitLoad | kWaitSample | kWaitBvh, kWaitLoad};
constexpr Late kParameter = {kWaitNever, kWaitNever};

// Everything that answers through a memory unit, whether or not it accesses
// memory (lane exchanges, resource queries, clocks).
struct LateRow {
  std::string_view prefix;
  Late late;
};
constexpr LateRow kLateRows[] = {
    // Guarded by the export counter; graphics only.
    {"ds_param_load", kParameter},  {"ds_direct_load", kParameter},
    {"lds_", kParameter},           {"ds_", kDsLate},
    {"flat_", kFlatLate},           {"global_", kVector},
    {"cluster_", kVector},          {"tensor_", kNoResult},
    {"scratch_", kVector},          {"buffer_", kVector},
    {"tbuffer_", kVector},          {"image_", kImageLate},
    {"s_load_", kScalarLate},       {"s_buffer_", kScalarLate},
    {"s_scratch_", kScalarLate},    {"s_atomic_", kScalarLate},
    {"s_memtime", kScalarLate},     {"s_memrealtime", kScalarLate},
    {"s_sendmsg_rtn", kScalarLate}, {"s_atc_probe", kScalarLate},
    {"s_get_waveid", kScalarLate},  {"s_get_barrier_state", kScalarLate},
};

Late LateOf(const Instruction& in) {
  // Most instructions: no row is about arithmetic on vectors.
  if (in.opcode.empty() || (in.memory == MemoryKind::kNone && in.opcode[0] == 'v')) {
    return kNoResult;
  }
  for (const LateRow& row : kLateRows) {
    if (in.opcode[0] == row.prefix[0] && in.opcode.starts_with(row.prefix)) return row.late;
  }
  // A memory form that the table does not know: no wait covers it.
  return in.memory == MemoryKind::kNone ? kNoResult : kParameter;
}

}  // namespace

uint8_t CountersRaised(const Instruction& in, const Generation& generation) {
  const Late late = LateOf(in);
  return generation.scalar_waits_apart ? late.apart : late.together;
}

bool WaitsFor(const WaitField& field, uint32_t word, const Generation& generation) {
  // SOPK's register is bits 22:16.
  return !field.needs_null || ((word >> 16) & 0x7f) == generation.null_operand;
}

uint32_t LeavesOutstanding(const WaitField& field, uint32_t word) {
  const auto part = [word](const BitField& f) { return (word >> f.shift) & ((1u << f.bits) - 1); };
  return part(field.low) | part(field.high) << field.low.bits;
}

uint8_t CountersCleared(const Instruction& in, uint32_t word, const Generation& generation) {
  if (!in.waitcnt) return 0;
  if (in.opcode == "s_wait_idle") return kAllDecoded;
  uint8_t cleared = 0;
  for (const WaitField& field : generation.waits) {
    if (field.opcode != in.opcode || !WaitsFor(field, word, generation)) continue;
    if (LeavesOutstanding(field, word) == 0) cleared |= Guarded(field.counter, generation);
  }
  return cleared;
}

}  // namespace rjdbi::patch
