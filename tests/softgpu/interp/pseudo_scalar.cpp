// gfx12's V_S_* instructions: a vector transcendental on scalar operands. Each
// runs the vector instruction of the same name on lane 0 of a borrowed register.
#include <memory>
#include <string_view>
#include <utility>

#include "tests/softgpu/interp/decode.h"

namespace softgpu {
namespace {

Step RunOnOneLane(Wave& wave, const Inst& inst) {
  const Inst& vector = inst.dual->x;
  const uint64_t exec = wave.Exec();
  const uint32_t saved = wave.V(0)[0];
  wave.SetExec(1);
  const Step step = vector.handler(wave, vector);
  const uint32_t result = wave.V(0)[0];
  wave.V(0)[0] = saved;
  wave.SetExec(exec);
  if (step == Step::kNext) wave.WriteS(inst.dst.reg, result);
  return step;
}

}  // namespace

Handler FindPseudoScalarHandler(Inst& inst, const Target& target) {
  struct Row {
    std::string_view scalar, vector;
  };
  constexpr Row kRows[] = {
      {"V_S_EXP_F32", "V_EXP_F32"},   {"V_S_EXP_F16", "V_EXP_F16"}, {"V_S_LOG_F32", "V_LOG_F32"},
      {"V_S_LOG_F16", "V_LOG_F16"},   {"V_S_RCP_F32", "V_RCP_F32"}, {"V_S_RCP_F16", "V_RCP_F16"},
      {"V_S_RSQ_F32", "V_RSQ_F32"},   {"V_S_RSQ_F16", "V_RSQ_F16"}, {"V_S_SQRT_F32", "V_SQRT_F32"},
      {"V_S_SQRT_F16", "V_SQRT_F16"},
  };
  for (const Row& row : kRows) {
    if (row.scalar != inst.name) continue;
    auto pair = std::make_shared<DualPair>();
    pair->x = inst;
    pair->x.name = row.vector;
    pair->x.dst = Operand{.kind = Operand::Kind::kVgpr, .reg = 0};
    pair->x.handler = FindVectorHandler(pair->x, target);
    if (pair->x.handler == nullptr) return nullptr;
    inst.dual = std::move(pair);
    return RunOnOneLane;
  }
  return nullptr;
}

}  // namespace softgpu
