// A wave and an instruction built by hand, for testing vector handlers without
// the decoder.
#ifndef TESTS_SOFTGPU_INTERP_VALU_RIG_H_
#define TESTS_SOFTGPU_INTERP_VALU_RIG_H_

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/softgpu/interp/wave.h"

namespace softgpu::test {

inline constexpr uint32_t kDefaultMode = 0x3f0;  // denormals allowed, DX10 clamp, IEEE

inline Operand Vgpr(uint16_t reg, uint8_t dwords = 1) {
  Operand o;
  o.kind = Operand::Kind::kVgpr;
  o.reg = reg;
  o.dwords = dwords;
  return o;
}
inline Operand Agpr(uint16_t reg, uint8_t dwords = 1) {
  Operand o = Vgpr(reg, dwords);
  o.kind = Operand::Kind::kAgpr;
  return o;
}
inline Operand Sgpr(uint16_t reg, uint8_t dwords = 1) {
  Operand o = Vgpr(reg, dwords);
  o.kind = Operand::Kind::kSgpr;
  return o;
}
inline Operand Imm(uint32_t value) {
  Operand o;
  o.kind = Operand::Kind::kImm;
  o.imm = value;
  o.imm64 = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
  o.imm16 = static_cast<uint16_t>(value);
  return o;
}

struct Rig {
  explicit Rig(Gen gen = Gen::kGfx90a, uint32_t lanes = 64) {
    target.name = "test";
    target.gen = gen;
    wave.target = &target;
    wave.lanes = lanes;
    wave.num_vgprs = 64;
    wave.num_agprs = 64;
    wave.num_sgprs = 102;
    wave.vgpr.assign(size_t{wave.num_vgprs} * lanes, 0);
    wave.agpr.assign(size_t{wave.num_agprs} * lanes, 0);
    wave.mode = kDefaultMode;
    wave.SetExec(~uint64_t{0});
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void Fill(uint32_t reg, uint32_t value) {
    for (uint32_t l = 0; l < wave.lanes; ++l) wave.V(reg)[l] = value;
  }
  void Fill64(uint32_t reg, uint64_t value) {
    Fill(reg, static_cast<uint32_t>(value));
    Fill(reg + 1, static_cast<uint32_t>(value >> 32));
  }
  uint64_t Get64(uint32_t reg, uint32_t lane) {
    return wave.V(reg)[lane] | uint64_t{wave.V(reg + 1)[lane]} << 32;
  }

  // A new instruction of that name; sources and dst are given in order.
  static Inst Make(std::string_view name, Operand dst, const std::vector<Operand>& sources) {
    Inst inst;
    inst.name = name;
    inst.dst = dst;
    for (const Operand& o : sources) inst.src[inst.num_src++] = o;
    return inst;
  }

  // Binds and runs; kFault also when there is no handler.
  Step Run(Inst inst) {
    Handler handler = FindVectorHandler(inst, target);
    if (handler == nullptr) {
      missing = std::string(inst.name);
      return Step::kFault;
    }
    return handler(wave, inst);
  }
  Step Run(std::string_view name, Operand dst, const std::vector<Operand>& sources) {
    return Run(Make(name, dst, sources));
  }

  Target target;
  Wave wave;
  std::string missing;
};

}  // namespace softgpu::test

#endif  // TESTS_SOFTGPU_INTERP_VALU_RIG_H_
