// e_flags and the ABI version: LLVM AMDGPUUsage "ELF Code Object, Header".
#include "patch/codeobject/read_target.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/machines.h"

namespace rjdbi::patch {
namespace {

// e_flags of v4 and v5: two bits, in the order of TargetId::Feature.
TargetId::Feature TwoBitFeature(uint32_t flags, unsigned shift) {
  return static_cast<TargetId::Feature>(flags >> shift & 3);
}
TargetId::Feature OneBitFeature(uint32_t flags, uint32_t bit, bool supported) {
  if (!supported) return TargetId::Feature::kUnsupported;
  return flags & bit ? TargetId::Feature::kOn : TargetId::Feature::kOff;
}

}  // namespace

absl::StatusOr<TargetId> ReadTarget(const elf::FileHeader& header) {
  TargetId target;
  // EI_ABIVERSION 0 is code object v2, and so on.
  const unsigned version = header.ident[elf::kIdentAbi] + 2u;
  if (version < 3 || version > 5) {
    return absl::UnimplementedError(absl::StrCat(
        "ELF header: EI_ABIVERSION is ", version - 2, " (code object v", version,
        "), only v3 to v5 are supported",
        version == 6 ? ": runtimes before generic targets refuse v6, and its generic processors "
                       "name no single register file"
                     : ""));
  }
  target.abi_version = static_cast<uint8_t>(version);
  target.mach = static_cast<uint8_t>(header.flags & 0xff);
  const Machine* machine = nullptr;
  for (const Machine& row : kMachines) {
    if (row.mach == target.mach) machine = &row;
  }
  if (machine == nullptr) {
    return absl::UnimplementedError(absl::StrCat("ELF header: e_flags names machine 0x",
                                                 absl::Hex(target.mach), ", which is not known"));
  }
  target.processor = machine->processor;
  if (version == 3) {
    target.xnack = OneBitFeature(header.flags, 0x100, machine->xnack);
    target.sramecc = OneBitFeature(header.flags, 0x200, machine->sramecc);
  } else {
    target.xnack = TwoBitFeature(header.flags, 8);
    target.sramecc = TwoBitFeature(header.flags, 10);
  }
  return target;
}

}  // namespace rjdbi::patch
