// gfx900, 906, 908, and those with one file for VGPRs and AGPRs: 90a, 942, 950.
#include <string_view>

#include "patch/isa/generations/families.h"

namespace rjdbi::patch {
namespace {

using P = HazardProducer;
using C = HazardConsumer;

// gfx900, 906, 908.
constexpr HazardRule kVega[] = {
    {P::kValuWritesScalar, C::kMemoryReadsScalar, 5}, {P::kValuWritesScalar, C::kSelectsLane, 4},
    {P::kValuWritesScalar, C::kDividesWithVcc, 4},    {P::kValuWritesExec, C::kCrossesLanes, 5},
    {P::kValuWritesExec, C::kVectorMemory, 5},        {P::kWritesVector, C::kCrossesLanes, 2},
    {P::kStoresWideData, C::kValuWritesVector, 1},    {P::kVectorMemory, C::kVectorMemory, 1},
    {P::kScalarMemory, C::kScalarMemory, 1},          {P::kWritesM0, C::kReadsM0, 1},
    {P::kSetsRegister, C::kTouchesRegister, 2},
};

constexpr HazardRule kMi200[] = {
    {P::kValuWritesScalar, C::kMemoryReadsScalar, 5},
    {P::kValuWritesScalar, C::kSelectsLane, 4},
    {P::kValuWritesScalar, C::kDividesWithVcc, 4},
    {P::kValuWritesExec, C::kCrossesLanes, 5},
    {P::kValuWritesExec, C::kVectorMemory, 5},
    {P::kWritesVector, C::kCrossesLanes, 2},
    {P::kDotWritesVector, C::kTouchesVector, 3},
    {P::kStoresWideData, C::kValuWritesVector, 1},
    {P::kVectorMemory, C::kVectorMemory, 1},
    {P::kScalarMemory, C::kScalarMemory, 1},
    {P::kWritesM0, C::kReadsM0, 1},
    {P::kSetsRegister, C::kTouchesRegister, 2},
};

constexpr HazardRule kMi300[] = {
    {P::kValuWritesScalar, C::kMemoryReadsScalar, 5},
    {P::kValuWritesScalar, C::kSelectsLane, 4},
    {P::kValuWritesScalar, C::kValuReadsScalar, 2},
    {P::kValuWritesScalar, C::kDividesWithVcc, 4},
    {P::kValuWritesExec, C::kCrossesLanes, 5},
    {P::kValuWritesExec, C::kVectorMemory, 5},
    {P::kValuWritesExec, C::kReadsLane, 4},
    {P::kWritesVector, C::kCrossesLanes, 2},
    {P::kWritesVector, C::kReadsLane, 1},
    {P::kDotWritesVector, C::kTouchesVector, 3},
    {P::kTransWritesVector, C::kValuReadsVector, 1},
    {P::kStoresWideData, C::kValuWritesVector, 2},
    {P::kVectorMemory, C::kVectorMemory, 1},
    {P::kScalarMemory, C::kScalarMemory, 1},
    {P::kWritesM0, C::kReadsM0, 1},
    {P::kSetsRegister, C::kTouchesRegister, 2},
};

// 19 wait states: a 16-pass MFMA result -> any VALU or memory access.
constexpr std::string_view kMfmaGuard = "s_nop 7\ns_nop 7\ns_nop 2";

// 20: gfx950's v_mfma_f32_32x32x64_f8f6f4, of 16 passes.
constexpr std::string_view kGfx950MfmaGuard = "s_nop 7\ns_nop 7\ns_nop 3";

// Stores count like loads.
constexpr WaitField kWaits[] = {
    {"s_waitcnt", Counter::kLoad, {0, 4}, {14, 2}},
    {"s_waitcnt", Counter::kDs, {8, 4}},
    {"s_waitcnt", Counter::kExport, {4, 3}},
};

constexpr Generation Gfx9(std::string_view family) {
  Generation g;
  g.family = family;
  g.major = 9;
  g.hazards = kVega;
  g.scalar_atomics = true;
  g.global_atomic_add_u64 = "global_atomic_add_x2";
  g.returning_system_scope = " glc";
  g.load_wait = g.store_wait = "s_waitcnt vmcnt(0)";
  g.wave_register = "hwreg(HW_REG_HW_ID)";
  g.cmpx_writes_pair = true;
  g.clock_lines = "s_memtime %p\ns_waitcnt lgkmcnt(0)";
  g.clock_name = "s_memtime";
  g.clock_sgprs = 2;
  g.waits = kWaits;
  g.counter_names = {"vmcnt", "lgkmcnt", "", "", "", "", "expcnt"};
  g.max_instruction_bytes = 8;
  g.gds_bit = 16;
  g.sdwa = true;
  g.end_padding_opcode = "s_nop 0";
  return g;
}

constexpr Generation Gfx908() {
  Generation g = Gfx9("gfx908");
  g.mfma_head_guard = kMfmaGuard;
  return g;
}

constexpr Generation Unified(std::string_view family) {
  Generation g = Gfx9(family);
  g.mfma_head_guard = kMfmaGuard;
  g.hazards = kMi200;
  g.vgpr_granule_w64 = g.vgpr_encoding_granule_w64 = 8;
  g.vgprs_per_simd_w64 = 512;
  g.preload_entry = 256;
  g.unified_vgpr_file = true;
  g.vgpr64_alignment = true;
  g.max_waves_per_simd = 8;
  g.pk_mov = true;
  g.end_padding_bytes = 1024;
  return g;
}

// Scope bits: LLVM AMDGPUUsage, memory model gfx942. Hazards: LLVM
// GCNHazardRecognizer, hasVDecCoExecHazard: v_cmpx -> v_readfirstlane 4, VALU result
// -> v_readfirstlane 1 wait states.
constexpr Generation Gfx942() {
  Generation g = Unified("gfx942");
  g.system_scope = " sc1";
  g.hazards = kMi300;
  g.returning_system_scope = g.store_system_scope = " sc0 sc1";
  g.readfirstlane_guard = "s_nop 0";
  g.mov_b64 = true;
  return g;
}

constexpr Generation Gfx950() {
  Generation g = Gfx942();
  g.family = "gfx950";
  g.min_llvm = 20;
  g.mfma_head_guard = kGfx950MfmaGuard;
  g.lds_bytes = 163840;
  g.lds_granule = 1280;
  return g;
}

constexpr Generation k900 = Gfx9("gfx900"), k906 = Gfx9("gfx906"), k908 = Gfx908();
constexpr Generation k90a = Unified("gfx90a"), k942 = Gfx942(), k950 = Gfx950();

constexpr ProcessorRow kRows[] = {
    {"gfx900", &k900}, {"gfx906", &k906}, {"gfx908", &k908},
    {"gfx90a", &k90a}, {"gfx942", &k942}, {"gfx950", &k950},
};

}  // namespace

absl::Span<const ProcessorRow> Gfx9Processors() { return kRows; }

}  // namespace rjdbi::patch
