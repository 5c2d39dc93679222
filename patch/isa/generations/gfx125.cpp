// gfx1250: 32-lane wavefronts only, 1024 VGPRs of which instructions name 256 at a
// time (s_set_vgpr_msb: see patch/analysis/hazard_regions.h).
#include <string_view>

#include "patch/isa/generations/families.h"
#include "patch/isa/generations/rdna.h"

namespace rjdbi::patch {
namespace {

// A memory operation whose address has not been translated may be replayed: what it
// reads, EXEC included, must not be overwritten before. LLVM's SIInsertWaitcnts does
// the same. LLVM's hazard recogniser has nothing else for sequences that keep to
// registers of their own; with others there are those of v_wmma and of transcendental
// operations, in both directions.
constexpr std::string_view kGuard = "s_wait_xcnt 0x0";

constexpr WaitField kWaits[] = {
    {"s_wait_loadcnt", Counter::kLoad, {0, 6}},
    {"s_wait_storecnt", Counter::kStore, {0, 6}},
    {"s_wait_samplecnt", Counter::kSample, {0, 6}},
    {"s_wait_bvhcnt", Counter::kBvh, {0, 3}},
    {"s_wait_dscnt", Counter::kDs, {0, 6}},
    {"s_wait_kmcnt", Counter::kKm, {0, 5}},
    {"s_wait_expcnt", Counter::kExport, {0, 3}},
    {"s_wait_loadcnt_dscnt", Counter::kLoad, {8, 6}},
    {"s_wait_loadcnt_dscnt", Counter::kDs, {0, 6}},
    {"s_wait_storecnt_dscnt", Counter::kStore, {8, 6}},
    {"s_wait_storecnt_dscnt", Counter::kDs, {0, 6}},
};

constexpr Generation Gfx1250() {
  Generation g = Rdna("gfx125", 12);
  g.min_llvm = 22;
  g.wave64 = false;
  g.vgpr_encoding_granule_w64 = g.vgpr_granule_w64 = g.vgprs_per_simd_w64 = 0;
  g.vgpr_encoding_granule_w32 = g.vgpr_granule_w32 = 16;
  g.vgprs_per_simd_w32 = 1024;
  g.vgpr64_alignment = true;
  g.max_waves_per_simd = 16;
  g.lds_bytes = 327680;
  g.lds_granule = 2048;
  g.head_guard = g.memory_guard = kGuard;
  g.guards_wait = true;
  g.fresh_registers_only = true;
  g.global_atomic_add_u64 = "global_atomic_add_u64";
  g.system_scope = " scope:SCOPE_SYS";
  g.waits = kWaits;
  g.counter_names = {"loadcnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "storecnt", "expcnt"};
  g.stores_apart = true;
  g.scalar_waits_apart = true;
  g.max_instruction_bytes = 16;
  g.null_operand = 124;
  g.vgpr_msb_mode = {12, 8};
  g.hwregs = kFlatScratchHwregs;
  g.flat_offset_bits = 24;
  g.signed_flat_offsets = true;
  g.scaled_offsets = true;
  g.end_padding_bytes = 384;
  return g;
}

constexpr Generation k1250 = Gfx1250();

constexpr ProcessorRow kRows[] = {{"gfx1250", &k1250}};

}  // namespace

absl::Span<const ProcessorRow> Gfx125Processors() { return kRows; }

}  // namespace rjdbi::patch
