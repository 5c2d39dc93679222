// LLVM's MC objects for one processor and wave size. Private to patch/isa.
#ifndef PATCH_ISA_LLVM_TARGET_H_
#define PATCH_ISA_LLVM_TARGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/TargetParser/Triple.h"
#include "patch/codeobject/code_object.h"

namespace rjdbi::patch {

// LLVM 22 wants a Triple where older versions want its text.
#if LLVM_VERSION_MAJOR >= 22
using TripleArgument = llvm::Triple;
#else
using TripleArgument = llvm::StringRef;
#endif
inline TripleArgument AmdgpuTriple() { return TripleArgument("amdgcn-amd-amdhsa"); }

// Everything but per-use state. Members refer to earlier ones: order matters.
struct LlvmTarget {
  // UNIMPLEMENTED: LLVM lacks the processor. INVALID_ARGUMENT: no such wave size.
  static absl::StatusOr<std::unique_ptr<LlvmTarget>> Create(const TargetId& target,
                                                            uint32_t wavefront_size);

  const llvm::Target* target = nullptr;
  llvm::MCTargetOptions options;
  std::unique_ptr<llvm::MCRegisterInfo> registers;
  std::unique_ptr<llvm::MCAsmInfo> asm_info;
  std::unique_ptr<llvm::MCInstrInfo> instructions;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget;
  std::unique_ptr<llvm::MCContext> context;
  std::unique_ptr<llvm::MCDisassembler> disassembler;
  std::unique_ptr<llvm::MCInstPrinter> printer;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_LLVM_TARGET_H_
