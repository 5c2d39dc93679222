// Looks vector instructions up by name and completes their operands.
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/softgpu/interp/valu_operands.h"
#include "tests/softgpu/interp/valu_run.h"

namespace softgpu {
namespace valu {
namespace {

// Other spellings of the same operation (later generations renamed many).
struct Alias {
  std::string_view name, canonical;
};
constexpr Alias kAliases[] = {
    {"V_ADD_NC_U32", "V_ADD_U32"},
    {"V_SUB_NC_U32", "V_SUB_U32"},
    {"V_SUBREV_NC_U32", "V_SUBREV_U32"},
    {"V_ADD_NC_I32", "V_ADD_I32"},
    {"V_SUB_NC_I32", "V_SUB_I32"},
    {"V_ADD_NC_U16", "V_ADD_U16"},
    {"V_SUB_NC_U16", "V_SUB_U16"},
    {"V_ADD_NC_I16", "V_ADD_I16"},
    {"V_SUB_NC_I16", "V_SUB_I16"},
    {"V_ADDC_U32", "V_ADDC_CO_U32"},
    {"V_SUBB_U32", "V_SUBB_CO_U32"},
    {"V_SUBBREV_U32", "V_SUBBREV_CO_U32"},
    {"V_ADD_CO_CI_U32", "V_ADDC_CO_U32"},
    {"V_SUB_CO_CI_U32", "V_SUBB_CO_U32"},
    {"V_SUBREV_CO_CI_U32", "V_SUBBREV_CO_U32"},
    {"V_CLZ_I32_U32", "V_FFBH_U32"},
    {"V_CTZ_I32_B32", "V_FFBL_B32"},
    {"V_CLS_I32", "V_FFBH_I32"},
    {"V_ACCVGPR_READ", "V_ACCVGPR_READ_B32"},
    {"V_ACCVGPR_WRITE", "V_ACCVGPR_WRITE_B32"},
    {"V_ACCVGPR_MOV", "V_ACCVGPR_MOV_B32"},
    {"V_MAD_CO_U64_U32", "V_MAD_U64_U32"},
    {"V_MAD_CO_I64_I32", "V_MAD_I64_I32"},
    {"V_MQSAD_U16_U8", "V_MQSAD_PK_U16_U8"},
    {"V_CVT_PK_RTZ_F16_F32", "V_CVT_PKRTZ_F16_F32"},
    {"V_CVT_PK_NORM_I16_F32", "V_CVT_PKNORM_I16_F32"},
    {"V_CVT_PK_NORM_U16_F32", "V_CVT_PKNORM_U16_F32"},
    {"V_CVT_PK_NORM_I16_F16", "V_CVT_PKNORM_I16_F16"},
    {"V_CVT_PK_NORM_U16_F16", "V_CVT_PKNORM_U16_F16"},
    {"V_CVT_NEAREST_I32_F32", "V_CVT_RPI_I32_F32"},
    {"V_CVT_FLOOR_I32_F32", "V_CVT_FLR_I32_F32"},
    {"V_MUL_DX9_ZERO_F32", "V_MUL_LEGACY_F32"},
    {"V_FMA_DX9_ZERO_F32", "V_FMA_LEGACY_F32"},
    {"V_FMAC_DX9_ZERO_F32", "V_FMAC_LEGACY_F32"},
    {"V_MIN_NUM_F32", "V_MIN_F32"},
    {"V_MAX_NUM_F32", "V_MAX_F32"},
    {"V_MIN_NUM_F16", "V_MIN_F16"},
    {"V_MAX_NUM_F16", "V_MAX_F16"},
    {"V_MIN_NUM_F64", "V_MIN_F64"},
    {"V_MAX_NUM_F64", "V_MAX_F64"},
    {"V_MIN3_NUM_F32", "V_MIN3_F32"},
    {"V_MAX3_NUM_F32", "V_MAX3_F32"},
    {"V_MED3_NUM_F32", "V_MED3_F32"},
    {"V_MIN3_NUM_F16", "V_MIN3_F16"},
    {"V_MAX3_NUM_F16", "V_MAX3_F16"},
    {"V_MED3_NUM_F16", "V_MED3_F16"},
    {"V_MINMAX_NUM_F32", "V_MINMAX_F32"},
    {"V_MAXMIN_NUM_F32", "V_MAXMIN_F32"},
    {"V_MINMAX_NUM_F16", "V_MINMAX_F16"},
    {"V_MAXMIN_NUM_F16", "V_MAXMIN_F16"},
    {"V_PK_MIN_NUM_F16", "V_PK_MIN_F16"},
    {"V_PK_MAX_NUM_F16", "V_PK_MAX_F16"},
};

using Index = std::unordered_map<std::string_view, const VectorOp*>;

const Index& OpIndex() {
  static const Index* const index = [] {
    auto* map = new Index;
    for (const auto ops : {IntegerOps(), FloatOps(), ConvertOps(), CompareOps(), LaneOps(),
                           PackedOps(), MatrixOps()}) {
      for (const VectorOp& op : ops) map->emplace(op.name, &op);
    }
    for (const Alias& alias : kAliases) {
      const auto it = map->find(alias.canonical);
      if (it != map->end()) map->emplace(alias.name, it->second);
    }
    return map;
  }();
  return *index;
}

Operand VccOperand(uint8_t dwords) {
  Operand vcc;
  vcc.kind = Operand::Kind::kSgpr;
  vcc.reg = kVccLo;
  vcc.dwords = dwords;
  return vcc;
}

// The accumulator is dst, read without modifiers but from the half written.
Operand Accumulator(const Inst& inst) {
  Operand acc;
  acc.kind = inst.dst.kind;
  acc.reg = inst.dst.reg;
  acc.dwords = inst.dst.dwords;
  acc.hi16 = inst.dst.hi16 || inst.op_sel_dst;
  return acc;
}

void Complete(Inst& inst, const VectorOp& op, const Target& target) {
  using Kind = Operand::Kind;
  if ((op.setup & kCarryOut) && inst.sdst.kind == Kind::kNone) inst.sdst = VccOperand(2);
  if ((op.setup & kMaskSource) && inst.src[2].kind == Kind::kNone) inst.src[2] = VccOperand(2);
  if ((op.setup & kCompare) && inst.dst.kind == Kind::kNone) inst.dst = VccOperand(2);
  if (op.setup & kFmasMask) inst.src[3] = VccOperand(2);
  if (op.setup & kAccumulate) inst.src[2] = Accumulator(inst);
  inst.op = target.AtLeast10() || (op.setup & kOpSel16) ? kInstPreserveHigh : 0;
}

}  // namespace
}  // namespace valu

Handler FindVectorHandler(Inst& inst, const Target& target) {
  const auto& index = valu::OpIndex();
  const auto it = index.find(inst.name);
  if (it == index.end()) return nullptr;
  const valu::VectorOp& op = *it->second;
  valu::Complete(inst, op, target);
  return inst.clamp && op.clamped ? op.clamped : op.handler;
}

}  // namespace softgpu
