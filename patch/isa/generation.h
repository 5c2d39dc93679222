// Per-generation hardware facts: register files, occupancy, wait counters,
// hazards at a sequence's seams, what an encoding means. The rows are in
// patch/isa/generations/, one file per family; tests/ cross-check them with LLVM.
#ifndef PATCH_ISA_GENERATION_H_
#define PATCH_ISA_GENERATION_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/isa/register_set.h"

namespace rjdbi::patch {

// What operations in flight are counted by. Before gfx12 kDs stands for the
// counter that LDS, scalar memory and messages share (lgkmcnt).
enum class Counter : uint8_t { kLoad, kDs, kKm, kSample, kBvh, kStore, kExport };
inline constexpr size_t kNumCounters = 7;

struct BitField {
  uint8_t shift = 0, bits = 0;
};

// A wait leaves at most the number in its field (low part, high part) of simm16
// outstanding. An instruction with two fields has two rows.
struct WaitField {
  std::string_view opcode;
  Counter counter;
  BitField low, high = {};
  bool needs_null = false;  // SOPK form: waits only if the SGPR operand is null
};

// A number in s_getreg/s_setreg, simm16[5:0], that aliases one of our registers.
// Source: LLVM AMDGPU "hwreg" names. MODE is number 1 everywhere.
struct HardwareRegister {
  uint8_t id;
  uint16_t first;
  uint8_t count;
};

// What the first instruction does.
enum class HazardProducer : uint8_t {
  kValuWritesScalar,  // SGPR or VCC
  kValuWritesExec,
  kWritesVector,     // VGPR or AGPR, by whatever
  kDotWritesVector,  // v_dot*
  kTransWritesVector,
  kStoresWideData,  // more than 64 bits from VGPRs, not LDS
  kVectorMemory,    // any; with XNACK such in a row are replayed together
  kScalarMemory,
  kWritesM0,      // SALU
  kSetsRegister,  // s_setreg
};

// And the second.
enum class HazardConsumer : uint8_t {
  kMemoryReadsScalar,  // SGPR or VCC, by vector memory
  kVectorMemory,       // any: it reads EXEC
  kScalarMemory,
  kSelectsLane,  // v_readlane, v_writelane
  kValuReadsScalar,
  kDividesWithVcc,  // v_div_fmas
  kCrossesLanes,    // DPP and the like
  kReadsLane,       // v_readlane, v_readfirstlane, v_writelane
  kTouchesVector,   // VALU or vector memory
  kValuReadsVector,
  kValuWritesVector,
  kReadsM0,
  kTouchesRegister,  // s_getreg, s_setreg
};

// So many wait states have to be between the two.
struct HazardRule {
  HazardProducer producer;
  HazardConsumer consumer;
  uint8_t wait_states;
};

struct Generation {
  std::string_view family;  // "gfx90a", "gfx10.3", ...
  int major = 0;            // 9, 10, 11, 12
  int min_llvm = 19;        // major version of the first LLVM that knows the instructions
  bool wave32 = false, wave64 = true;  // wavefront sizes

  // VGPR allocation.
  uint16_t vgpr_granule_w64 = 4, vgpr_granule_w32 = 0;                    // occupancy granule
  uint16_t vgpr_encoding_granule_w64 = 4, vgpr_encoding_granule_w32 = 0;  // rsrc1 field unit
  uint16_t vgprs_per_simd_w64 = 256, vgprs_per_simd_w32 = 0;
  uint16_t max_arch_vgprs = 256;
  bool unified_vgpr_file = false;  // arch + AGPR in one file (ACCUM_OFFSET)
  bool vgpr64_alignment = false;   // 64-bit operands start at even registers

  // SGPR allocation (gfx9 only; gfx10+ waves always have the whole file).
  bool sgprs_allocated = true;
  uint16_t sgpr_granule = 16;
  uint16_t addressable_sgprs = 102;  // ordinary ones: s0..addressable-1
  uint16_t sgpr_tail = 6;            // VCC, FLAT_SCRATCH, XNACK_MASK at the top

  uint16_t max_waves_per_simd = 10;
  uint32_t lds_bytes = 65536;  // per CU, or per WGP
  uint32_t lds_granule = 512;
  uint8_t simds = 4;

  // Assembled once at a sequence's head and tail ("" when none is needed; on gfx9
  // what hazards.h says is missing).
  std::string_view head_guard, tail_guard;
  absl::Span<const HazardRule> hazards;  // empty: hardware interlocks, or guards do
  // Instead of head_guard in kernels that contain MFMA, when the probe touches
  // a vector register that is not proven fresh ("" where there is no MFMA).
  std::string_view mfma_head_guard;
  // Behind a sequence's memory operation, before a scalar write of EXEC or of an
  // SGPR that the operation reads.
  std::string_view memory_guard;
  bool guards_wait = false;           // one of the guards waits for operations in flight
  bool fresh_registers_only = false;  // hazards of others are not guarded against

  bool scalar_atomics = false;
  std::string_view global_atomic_add_u64;  // "global_atomic_add_x2" / "global_atomic_add_u64"
  std::string_view system_scope;           // suffix of an atomic that must reach the host's memory
  // The same of one that returns, and of a store.
  std::string_view returning_system_scope, store_system_scope;

  // For probes that write records; all empty where they are refused. Waits until
  // nothing is outstanding: vector loads with atomics that return, and vector stores.
  std::string_view load_wait, store_wait;
  std::string_view wave_register;  // for s_getreg_b32: the wavefront's slot on the GPU
  // Before v_readfirstlane_b32, three instructions behind v_cmpx and one behind
  // the one that makes what is read.
  std::string_view readfirstlane_guard;
  bool workgroup_id_in_ttmp = false;  // ttmp9: x; ttmp7: y in its low half, z above
  bool cmpx_writes_pair = false;      // v_cmpx writes VCC or an SGPR pair besides EXEC
  bool renamed_stores = false;        // global_store_b64, not global_store_dwordx2
  bool mov_b64 = false;               // v_mov_b64
  bool pk_mov = false;                // v_pk_mov_b32
  // How a clock is read: lines with %0, %1, ... for scalar registers in a row, %p
  // for the first pair. Of three, 1 and 2 are the high half before and behind 0.
  std::string_view clock_lines, clock_name;
  uint8_t clock_sgprs = 0;

  // Waits. `s_wait_idle` brings all counters to zero where it exists.
  absl::Span<const WaitField> waits;
  std::array<std::string_view, kNumCounters> counter_names = {};  // "": it has none of its own
  bool stores_apart = false;        // VMEM operations without a result have a counter (kStore)
  bool scalar_waits_apart = false;  // kKm is a counter of its own, kDs only LDS

  // Encodings.
  uint8_t max_instruction_bytes = 20;
  uint8_t null_operand = 0;  // number of the null register; 0: there is none
  absl::Span<const HardwareRegister> hwregs;
  uint8_t flat_offset_bits = 13;     // of global and scratch forms, signed
  bool signed_flat_offsets = false;  // of flat forms, too
  uint8_t gds_bit = 0;               // in a DS instruction's first word; 0: no GDS
  bool scaled_offsets = false;       // memory forms may count their register offset in elements
  bool sdwa = false;
  // MODE's bits that vector register numbers continue in (s_set_vgpr_msb).
  BitField vgpr_msb_mode = {};
  bool shared_vgprs = false;  // rsrc3[3:0]: registers that wave64 halves share

  // A vector instruction's read of an SGPR stays a hazard for later writes of it
  // however far they are, so compilers' waits must be known (gfx12).
  bool sgpr_reads_remembered = false;
  bool getpc_zero_extends = false;  // gfx12: sign-extend the high half
  std::string_view far_jump_guard;  // before s_setpc (gfx12 SGPR hazard)
  // With kernel-argument preloading, firmware that knows it enters this far behind
  // the entry; older firmware enters at the entry, where the compiler puts code that
  // loads the same registers and branches here. 0: preloading has one entry.
  uint16_t preload_entry = 0;
  uint32_t end_padding_bytes = 0;       // instruction prefetch past the end
  std::string_view end_padding_opcode;  // "s_nop 0" / "s_code_end"
};

// NOT_FOUND: no table for the processor ("gfx90a").
absl::StatusOr<const Generation*> FindGeneration(std::string_view processor);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_GENERATION_H_
