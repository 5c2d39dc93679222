// Where an instruction's memory address comes from, as registers.
#ifndef PATCH_REWRITE_ACCESS_ADDRESS_H_
#define PATCH_REWRITE_ACCESS_ADDRESS_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "patch/isa/isa.h"
#include "patch/plan/reason.h"

namespace rjdbi::patch {

// The sum of its parts, per lane. LDS addresses have 32 bits.
struct AccessAddress {
  uint16_t vgpr = 0;  // Register: first of `vgpr_dwords`
  uint8_t vgpr_dwords = 1;
  std::optional<uint16_t> base;  // Register: an SGPR pair
  int64_t offset = 0;
  RegisterSet Registers() const;
};

// A refusal: it accesses no memory by a single address in these terms.
std::variant<AccessAddress, Refusal> AddressOf(const Instruction& in);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_ACCESS_ADDRESS_H_
