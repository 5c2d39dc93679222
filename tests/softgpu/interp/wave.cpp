// The parts of Wave that are not worth inlining: special registers and faults.
#include "tests/softgpu/interp/wave.h"

#include <utility>

namespace softgpu {

Step Wave::FaultIllegal(const Inst& inst, std::string why) {
  fault.kind = Fault::Kind::kIllegalInstruction;
  fault.pc = inst.pc;
  const std::string text = inst.text.empty() ? std::string(inst.name) : inst.text;
  fault.what = std::move(why) + ": " + text + " (" + target->name + ")";
  return Step::kFault;
}

Step Wave::FaultMemory(const Inst& inst, uint64_t address, bool write) {
  fault.kind = Fault::Kind::kMemory;
  fault.pc = inst.pc;
  fault.address = address;
  fault.write = write;
  fault.what = "bad address: " + inst.text;
  return Step::kFault;
}

// Apertures are 64-bit registers whose low half is 0 (base) or all ones
// (limit); reading 32 bits gives the low half.
uint32_t Wave::ReadSpecial(uint16_t reg) const { return static_cast<uint32_t>(ReadSpecial64(reg)); }

uint64_t Wave::ReadSpecial64(uint16_t reg) const {
  constexpr uint64_t kLimit = 0xffffffff;  // an aperture is 4 GiB
  switch (reg) {
    case kNull:
      return 0;
    case kExecLo:
      return Exec();
    case kExecHi:
      return sgpr[kExecHi];
    case kFlatScrLo:
      return sgpr[kFlatScrLo] | uint64_t{sgpr[kFlatScrHi]} << 32;
    case kFlatScrHi:
      return sgpr[kFlatScrHi];
    case kXnackLo:
      return sgpr[kXnackLo] | uint64_t{sgpr[kXnackHi]} << 32;
    case kXnackHi:
      return sgpr[kXnackHi];
    case kSharedBase:
      return shared_aperture;
    case kSharedLimit:
      return shared_aperture | kLimit;
    case kPrivateBase:
      return private_aperture;
    case kPrivateLimit:
      return private_aperture | kLimit;
    case kVccz:
      return ReadMask(kVccLo) == 0 ? 1 : 0;
    case kExecz:
      return Exec() == 0 ? 1 : 0;
    case kScc:
      return scc ? 1 : 0;
    default:
      return 0;
  }
}

void Wave::WriteSpecial(uint16_t reg, uint32_t value) {
  switch (reg) {
    case kExecLo:
    case kFlatScrLo:
    case kFlatScrHi:
    case kXnackLo:
    case kXnackHi:
      sgpr[reg] = value;
      return;
    case kExecHi:
      sgpr[kExecHi] = lanes == 64 ? value : 0;
      return;
    default:
      return;  // null and read-only registers
  }
}

}  // namespace softgpu
