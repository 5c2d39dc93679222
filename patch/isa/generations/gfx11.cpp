// gfx11 and gfx11.5.
#include <string_view>

#include "patch/isa/generations/families.h"
#include "patch/isa/generations/rdna.h"

namespace rjdbi::patch {
namespace {

// Transcendental results, VALU SGPR masks, partial EXEC forwarding.
constexpr std::string_view kGuard = "s_waitcnt_depctr 0x80";

constexpr WaitField kWaits[] = {
    {"s_waitcnt", Counter::kLoad, {10, 6}},
    {"s_waitcnt", Counter::kDs, {4, 6}},
    {"s_waitcnt", Counter::kExport, {0, 3}},
    {"s_waitcnt_vmcnt", Counter::kLoad, {0, 16}, {}, true},
    {"s_waitcnt_vscnt", Counter::kStore, {0, 16}, {}, true},
    {"s_waitcnt_lgkmcnt", Counter::kDs, {0, 16}, {}, true},
    {"s_waitcnt_expcnt", Counter::kExport, {0, 16}, {}, true},
};

constexpr Generation Gfx11(std::string_view family, bool large_file) {
  Generation g = Rdna(family, 11);
  SetVgprs(g, large_file ? 768 : 512, large_file ? 12 : 8, 16);
  g.head_guard = g.tail_guard = kGuard;
  g.global_atomic_add_u64 = "global_atomic_add_u64";
  g.returning_system_scope = " glc";
  g.load_wait = "s_waitcnt vmcnt(0)";
  g.store_wait = "s_waitcnt_vscnt null, 0x0";
  g.renamed_stores = true;
  g.clock_lines = "s_getreg_b32 %0, hwreg(HW_REG_SHADER_CYCLES)";  // 20 bits
  g.clock_name = "SHADER_CYCLES";
  g.clock_sgprs = 1;
  g.waits = kWaits;
  g.counter_names = {"vmcnt", "lgkmcnt", "", "", "", "vscnt", "expcnt"};
  g.stores_apart = true;
  g.null_operand = 124;
  g.hwregs = kFlatScratchHwregs;
  g.gds_bit = 17;
  g.shared_vgprs = true;
  g.end_padding_bytes = 384;
  return g;
}

constexpr Generation kLarge = Gfx11("gfx11", true), kSmall = Gfx11("gfx11", false);
constexpr Generation k115Large = Gfx11("gfx11.5", true), k115Small = Gfx11("gfx11.5", false);

constexpr ProcessorRow kRows[] = {
    {"gfx1100", &kLarge}, {"gfx1101", &kLarge},    {"gfx1102", &kSmall},
    {"gfx1103", &kSmall}, {"gfx1150", &k115Small}, {"gfx1151", &k115Large},
};

}  // namespace

absl::Span<const ProcessorRow> Gfx11Processors() { return kRows; }

}  // namespace rjdbi::patch
