// LLVM's operand order: results, address, data, scalar base, offset.
#include "patch/rewrite/access_address.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

Refusal None(const Instruction& in, const char* detail) {
  return {Reason::kProbeArgument, std::string(in.opcode),
          "global, flat and LDS instructions with one address", detail};
}

}  // namespace

RegisterSet AccessAddress::Registers() const {
  RegisterSet all;
  all.Add(vgpr, vgpr_dwords);
  if (base) all.Add(*base, 2);
  return all;
}

std::variant<AccessAddress, Refusal> AddressOf(const Instruction& in) {
  const bool lds = in.memory == MemoryKind::kLds;
  const bool wide = in.memory == MemoryKind::kGlobal || in.memory == MemoryKind::kFlat;
  if ((!lds && !wide) || !(in.load || in.store || in.atomic)) {
    return None(in, "the instruction accesses no memory by an address that a probe can be given");
  }
  // Two addresses, or one that comes from M0 or the lane's number.
  constexpr std::string_view kOtherForms[] = {"read2",  "write2", "2addr",   "wrxchg2",
                                              "addtid", "append", "consume", "bvh"};
  for (const std::string_view form : kOtherForms) {
    if (in.opcode.find(form) == std::string_view::npos) continue;
    return None(in, "the instruction has two addresses, or none of its own");
  }
  AccessAddress address;
  bool found = false;
  for (const InstructionOperand& operand : in.operands) {
    if (operand.kind != InstructionOperand::Kind::kRegister || operand.is_def) continue;
    if (!found && operand.reg >= kVgpr0) {
      found = true;
      address.vgpr = operand.reg;
      address.vgpr_dwords = operand.count;
    } else if (wide && operand.reg < kExecLo && operand.count == 2) {
      address.base = operand.reg;
    }
  }
  const uint8_t dwords = wide && !address.base ? 2 : 1;
  if (!found || address.vgpr_dwords != dwords) {
    return None(in, "the instruction's address is not in registers that a probe can be given");
  }
  address.offset = in.memory_offset;
  return address;
}

}  // namespace rjdbi::patch
