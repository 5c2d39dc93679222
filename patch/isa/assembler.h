// Text to machine code through LLVM's assembly parser. Private to patch/isa.
#ifndef PATCH_ISA_ASSEMBLER_H_
#define PATCH_ISA_ASSEMBLER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/isa/llvm_target.h"

namespace rjdbi::patch {

// Instructions only. INVALID_ARGUMENT: with the assembler's message and line.
absl::StatusOr<std::vector<uint8_t>> AssembleText(const LlvmTarget& target, std::string_view text);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_ASSEMBLER_H_
