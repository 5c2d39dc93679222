// gfx1200 and gfx1201.
#include <string_view>

#include "patch/isa/generations/families.h"
#include "patch/isa/generations/rdna.h"

namespace rjdbi::patch {
namespace {

// SGPR read/write hazard: sa_sdst, va_sdst and va_vcc at zero.
constexpr std::string_view kGuard = "s_waitcnt_depctr 0xf19c";

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

constexpr Generation Gfx12() {
  Generation g = Rdna("gfx12", 12);
  SetVgprs(g, 768, 12, 16);
  g.head_guard = g.tail_guard = g.far_jump_guard = kGuard;
  g.global_atomic_add_u64 = "global_atomic_add_u64";
  g.system_scope = " scope:SCOPE_SYS";
  g.returning_system_scope = " th:TH_ATOMIC_RETURN scope:SCOPE_SYS";
  g.store_system_scope = g.system_scope;
  g.load_wait = "s_wait_loadcnt 0x0";
  g.store_wait = "s_wait_storecnt 0x0";
  g.renamed_stores = true;
  g.workgroup_id_in_ttmp = true;
  g.clock_lines =
      "s_getreg_b32 %1, hwreg(HW_REG_SHADER_CYCLES_HI)\n"
      "s_getreg_b32 %0, hwreg(HW_REG_SHADER_CYCLES_LO)\n"
      "s_getreg_b32 %2, hwreg(HW_REG_SHADER_CYCLES_HI)";
  g.clock_name = "SHADER_CYCLES_LO/HI";
  g.clock_sgprs = 3;
  g.waits = kWaits;
  g.counter_names = {"loadcnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "storecnt", "expcnt"};
  g.stores_apart = true;
  g.scalar_waits_apart = true;
  g.max_instruction_bytes = 12;
  g.null_operand = 124;
  g.hwregs = kFlatScratchHwregs;
  g.flat_offset_bits = 24;
  g.signed_flat_offsets = true;
  g.getpc_zero_extends = true;
  g.sgpr_reads_remembered = true;
  g.end_padding_bytes = 384;
  return g;
}

constexpr Generation k12 = Gfx12();

constexpr ProcessorRow kRows[] = {{"gfx1200", &k12}, {"gfx1201", &k12}};

}  // namespace

absl::Span<const ProcessorRow> Gfx12Processors() { return kRows; }

}  // namespace rjdbi::patch
