// gfx10.1 and gfx10.3.
#include <string_view>

#include "patch/isa/generations/families.h"
#include "patch/isa/generations/rdna.h"

namespace rjdbi::patch {
namespace {

// gfx10.1: VMEM reads SGPR/EXEC -> SALU overwrites it (vm_vsrc), non-VALU reads
// EXEC -> v_cmpx (sa_sdst); SMEM reads SGPR -> VALU overwrites it (any SALU
// write between); LDS and VMEM on two sides of a branch (vscnt).
constexpr std::string_view kGfx101Guard =
    "s_waitcnt_depctr 0xffe2\ns_mov_b32 null, 0\ns_waitcnt_vscnt null, 0x0";

constexpr WaitField kWaits[] = {
    {"s_waitcnt", Counter::kLoad, {0, 4}, {14, 2}},
    {"s_waitcnt", Counter::kDs, {8, 6}},
    {"s_waitcnt", Counter::kExport, {4, 3}},
    {"s_waitcnt_vmcnt", Counter::kLoad, {0, 16}, {}, true},
    {"s_waitcnt_vscnt", Counter::kStore, {0, 16}, {}, true},
    {"s_waitcnt_lgkmcnt", Counter::kDs, {0, 16}, {}, true},
    {"s_waitcnt_expcnt", Counter::kExport, {0, 16}, {}, true},
};

constexpr HardwareRegister kHwregs[] = {
    kFlatScratchHwregs[0], kFlatScratchHwregs[1], {22, kXnackMaskLo, 2}};

constexpr Generation Gfx10(std::string_view family) {
  Generation g = Rdna(family, 10);
  g.global_atomic_add_u64 = "global_atomic_add_x2";
  g.returning_system_scope = " glc";
  g.load_wait = "s_waitcnt vmcnt(0)";
  g.store_wait = "s_waitcnt_vscnt null, 0x0";
  g.clock_lines = "s_memtime %p\ns_waitcnt lgkmcnt(0)";
  g.clock_name = "s_memtime";
  g.clock_sgprs = 2;
  g.waits = kWaits;
  g.counter_names = {"vmcnt", "lgkmcnt", "", "", "", "vscnt", "expcnt"};
  g.stores_apart = true;
  g.null_operand = 125;
  g.hwregs = kHwregs;
  g.flat_offset_bits = 12;
  g.gds_bit = 17;
  g.sdwa = true;
  g.shared_vgprs = true;
  g.end_padding_bytes = 192;
  return g;
}

constexpr Generation Gfx101() {
  Generation g = Gfx10("gfx10.1");
  SetVgprs(g, 512, 4, 20);
  g.head_guard = g.tail_guard = g.memory_guard = kGfx101Guard;
  g.guards_wait = true;
  g.scalar_atomics = true;
  return g;
}

constexpr Generation Gfx103() {
  Generation g = Gfx10("gfx10.3");
  SetVgprs(g, 512, 8, 16);
  return g;
}

constexpr Generation k101 = Gfx101(), k103 = Gfx103();

constexpr ProcessorRow kRows[] = {
    {"gfx1010", &k101}, {"gfx1011", &k101}, {"gfx1012", &k101}, {"gfx1030", &k103},
    {"gfx1031", &k103}, {"gfx1032", &k103}, {"gfx1033", &k103}, {"gfx1034", &k103},
    {"gfx1035", &k103}, {"gfx1036", &k103},
};

}  // namespace

absl::Span<const ProcessorRow> Gfx10Processors() { return kRows; }

}  // namespace rjdbi::patch
