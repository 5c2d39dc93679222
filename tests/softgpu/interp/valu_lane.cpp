// Vector instructions that cross lanes, write scalars or swap registers.
#include <bit>
#include <cstdint>
#include <utility>

#include "tests/softgpu/interp/valu_run.h"

namespace softgpu::valu {
namespace {

using Kind = Operand::Kind;

Step Nop(Wave&, const Inst&) { return Step::kNext; }

// Value of a source in one lane, whatever EXEC is.
uint32_t LaneValue(Wave& w, const Operand& o, uint32_t lane) {
  if (o.kind == Kind::kVgpr || o.kind == Kind::kAgpr) return RegisterLanes(w, o)[lane];
  return Scalar32(w, o);
}

bool SourcesInBounds(const Wave& w, const Inst& inst, int sources) {
  for (int i = 0; i < sources; ++i) {
    if (!InBounds(w, inst.src[i], 1)) return false;
  }
  return InBounds(w, inst.dst, 1);
}

Step ReadLane(Wave& w, const Inst& inst) {
  if (!SourcesInBounds(w, inst, 2)) return FaultRegister(w, inst);
  const uint32_t lane = Scalar32(w, inst.src[1]) & (w.lanes - 1);
  w.WriteS(inst.dst.reg, LaneValue(w, inst.src[0], lane));
  return Step::kNext;
}

// With EXEC zero, lane 0 is read.
Step ReadFirstLane(Wave& w, const Inst& inst) {
  if (!SourcesInBounds(w, inst, 1)) return FaultRegister(w, inst);
  const uint64_t exec = w.Exec() & AllLanes(w);
  const uint32_t lane = exec != 0 ? static_cast<uint32_t>(std::countr_zero(exec)) : 0;
  w.WriteS(inst.dst.reg, LaneValue(w, inst.src[0], lane));
  return Step::kNext;
}

Step WriteLane(Wave& w, const Inst& inst) {
  if (!SourcesInBounds(w, inst, 2)) return FaultRegister(w, inst);
  const uint32_t lane = Scalar32(w, inst.src[1]) & (w.lanes - 1);
  RegisterLanes(w, inst.dst)[lane] = Scalar32(w, inst.src[0]);
  return Step::kNext;
}

// One nibble of {src2, src1} per lane of a row selects a lane of the same row,
// or of the other row of the pair.
template <bool kOtherRow, bool kVariable>
Step PermLane16(Wave& w, const Inst& inst) {
  if (!SourcesInBounds(w, inst, kVariable ? 2 : 3)) return FaultRegister(w, inst);
  const bool fetch_inactive = inst.src[0].op_sel, bound_ctrl = inst.src[1].op_sel;
  const uint64_t exec = w.Exec() & AllLanes(w);
  uint32_t out[kMaxLanes] = {};
  uint64_t mask = 0;
  for (uint64_t m = exec; m != 0; m &= m - 1) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(m)), col = lane & 15;
    uint32_t pick;
    if constexpr (kVariable) {
      pick = LaneValue(w, inst.src[1], lane) & 15;
    } else {
      pick = Scalar32(w, inst.src[col < 8 ? 1 : 2]) >> (4 * (col & 7)) & 15;
    }
    const uint32_t from = ((lane & ~15u) ^ (kOtherRow ? 16u : 0u)) | pick;
    const bool ok = fetch_inactive || (exec >> from & 1);
    if (!ok && !bound_ctrl) continue;
    out[lane] = ok ? LaneValue(w, inst.src[0], from) : 0;
    mask |= uint64_t{1} << lane;
  }
  StoreRegister(w, inst.dst, 0, out, mask);
  return Step::kNext;
}

// Exchanges the halves of a wave64; in wave32 it is a move.
Step PermLane64(Wave& w, const Inst& inst) {
  if (!SourcesInBounds(w, inst, 1)) return FaultRegister(w, inst);
  uint32_t out[kMaxLanes];
  for (uint32_t l = 0; l < w.lanes; ++l) {
    out[l] = LaneValue(w, inst.src[0], w.lanes == 64 ? l ^ 32 : l);
  }
  StoreRegister(w, inst.dst, 0, out, w.Exec() & AllLanes(w));
  return Step::kNext;
}

Step SwapLanes(Wave& w, const Inst& inst, Operand a, Operand b) {
  if (!InBounds(w, a, 1) || !InBounds(w, b, 1)) return FaultRegister(w, inst);
  uint32_t* x = RegisterLanes(w, a);
  uint32_t* y = RegisterLanes(w, b);
  for (uint64_t m = w.Exec() & AllLanes(w); m != 0; m &= m - 1) {
    const int l = std::countr_zero(m);
    std::swap(x[l], y[l]);
  }
  return Step::kNext;
}

Step Swap(Wave& w, const Inst& inst) { return SwapLanes(w, inst, inst.dst, inst.src[0]); }

Step SwapRel(Wave& w, const Inst& inst) {
  Operand a = inst.dst, b = inst.src[0];
  a.reg = static_cast<uint16_t>(a.reg + (w.sgpr[kM0] >> 16 & 0x3ff));
  b.reg = static_cast<uint16_t>(b.reg + (w.sgpr[kM0] & 0x3ff));
  return SwapLanes(w, inst, a, b);
}

// V_MOVREL: M0 is added to the source's and/or the destination's number. The
// _2 form takes the two from separate fields.
template <bool kSource, bool kDest, bool kTwo>
Step MovRel(Wave& w, const Inst& inst) {
  const uint32_t m0 = w.sgpr[kM0];
  Operand from = inst.src[0], to = inst.dst;
  if (kSource) from.reg = static_cast<uint16_t>(from.reg + (kTwo ? m0 & 0x3ff : m0));
  if (kDest) to.reg = static_cast<uint16_t>(to.reg + (kTwo ? m0 >> 16 & 0x3ff : m0));
  if (!InBounds(w, from, 1) || !InBounds(w, to, 1)) return FaultRegister(w, inst);
  uint32_t out[kMaxLanes];
  for (uint32_t l = 0; l < w.lanes; ++l) out[l] = LaneValue(w, from, l);
  StoreRegister(w, to, 0, out, w.Exec() & AllLanes(w));
  return Step::kNext;
}

constexpr VectorOp kOps[] = {
    {"V_NOP", &Nop},
    {"V_PIPEFLUSH", &Nop},
    {"V_READLANE_B32", &ReadLane},
    {"V_READFIRSTLANE_B32", &ReadFirstLane},
    {"V_WRITELANE_B32", &WriteLane},
    {"V_PERMLANE16_B32", &PermLane16<false, false>},
    {"V_PERMLANEX16_B32", &PermLane16<true, false>},
    {"V_PERMLANE16_VAR_B32", &PermLane16<false, true>},
    {"V_PERMLANEX16_VAR_B32", &PermLane16<true, true>},
    {"V_PERMLANE64_B32", &PermLane64},
    {"V_SWAP_B32", &Swap},
    {"V_SWAPREL_B32", &SwapRel},
    {"V_MOVRELS_B32", &MovRel<true, false, false>},
    {"V_MOVRELD_B32", &MovRel<false, true, false>},
    {"V_MOVRELSD_B32", &MovRel<true, true, false>},
    {"V_MOVRELSD_2_B32", &MovRel<true, true, true>},
};

}  // namespace

std::span<const VectorOp> LaneOps() { return kOps; }

}  // namespace softgpu::valu
