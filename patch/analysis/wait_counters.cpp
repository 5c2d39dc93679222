// Tables of wait instructions and their immediate fields.
#include "patch/analysis/wait_counters.h"

#include <string_view>

namespace rjdbi::patch {
namespace {

constexpr uint8_t kLgkm = kWaitDs | kWaitKm;

// A wait clears `counters` when every bit of `mask` in simm16 is zero.
struct WaitField {
  std::string_view opcode;
  int first_major, last_major;
  uint16_t mask;
  uint8_t counters;
  bool needs_null;  // SOPK form: the SGPR operand must be null
};

constexpr WaitField kWaitFields[] = {
    {"s_waitcnt", 9, 9, 0xc00f, kWaitLoad, false},
    {"s_waitcnt", 9, 9, 0x0f00, kLgkm, false},
    {"s_waitcnt", 10, 10, 0xc00f, kWaitLoad, false},
    {"s_waitcnt", 10, 10, 0x3f00, kLgkm, false},
    {"s_waitcnt", 11, 11, 0xfc00, kWaitLoad, false},
    {"s_waitcnt", 11, 11, 0x03f0, kLgkm, false},
    {"s_waitcnt_vmcnt", 10, 11, 0xffff, kWaitLoad, true},
    {"s_waitcnt_lgkmcnt", 10, 11, 0xffff, kLgkm, true},
    {"s_wait_idle", 11, 12, 0, kWaitLoad | kLgkm | kWaitSample | kWaitBvh, false},
    {"s_wait_loadcnt", 12, 12, 0x003f, kWaitLoad, false},
    {"s_wait_samplecnt", 12, 12, 0x003f, kWaitSample, false},
    {"s_wait_bvhcnt", 12, 12, 0x0007, kWaitBvh, false},
    {"s_wait_dscnt", 12, 12, 0x003f, kWaitDs, false},
    {"s_wait_kmcnt", 12, 12, 0x001f, kWaitKm, false},
    {"s_wait_loadcnt_dscnt", 12, 12, 0x3f00, kWaitLoad, false},
    {"s_wait_loadcnt_dscnt", 12, 12, 0x003f, kWaitDs, false},
    {"s_wait_storecnt_dscnt", 12, 12, 0x003f, kWaitDs, false},
};

// null is s125 on gfx10 and s124 from gfx11; SOPK's register is bits 22:16.
bool DestinationIsNull(uint32_t word, int major) {
  return ((word >> 16) & 0x7f) == (major >= 11 ? 124u : 125u);
}

// What an operation's results are counted by, from gfx12 on and before.
struct Late {
  uint8_t gfx12, older;
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
    {"scratch_", kVector},          {"buffer_", kVector},
    {"tbuffer_", kVector},          {"image_", kImageLate},
    {"s_load_", kScalarLate},       {"s_buffer_", kScalarLate},
    {"s_scratch_", kScalarLate},    {"s_atomic_", kScalarLate},
    {"s_memtime", kScalarLate},     {"s_memrealtime", kScalarLate},
    {"s_sendmsg_rtn", kScalarLate}, {"s_atc_probe", kScalarLate},
    {"s_get_waveid", kScalarLate},  {"s_get_barrier_state", kScalarLate},
};

Late LateOf(const Instruction& in) {
  for (const LateRow& row : kLateRows) {
    if (in.opcode.starts_with(row.prefix)) return row.late;
  }
  // A memory form that the table does not know: no wait covers it.
  return in.memory == MemoryKind::kNone ? kNoResult : kParameter;
}

}  // namespace

uint8_t CountersRaised(const Instruction& in, const Generation& generation) {
  const Late late = LateOf(in);
  return generation.major >= 12 ? late.gfx12 : late.older;
}

uint8_t CountersCleared(const Instruction& in, uint32_t word, const Generation& generation) {
  uint8_t cleared = 0;
  for (const WaitField& field : kWaitFields) {
    if (field.opcode != in.opcode) continue;
    if (generation.major < field.first_major || generation.major > field.last_major) continue;
    if ((word & field.mask) != 0) continue;
    if (field.needs_null && !DestinationIsNull(word, generation.major)) continue;
    cleared |= field.counters;
  }
  return cleared;
}

}  // namespace rjdbi::patch
