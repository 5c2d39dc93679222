// Creates LLVM's MC objects and chooses the subtarget features.
#include "patch/isa/llvm_target.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "llvm/Support/TargetSelect.h"
#include "patch/isa/generation.h"

namespace rjdbi::patch {
namespace {

const llvm::Target* AmdgpuTarget() {
  static const llvm::Target* const target = [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmParser();
    LLVMInitializeAMDGPUDisassembler();
    std::string error;
    return llvm::TargetRegistry::lookupTarget(AmdgpuTriple(), error);
  }();
  return target;
}

// "any" is encoded like "off": the instructions do not differ.
std::string Features(const TargetId& target, uint32_t wavefront_size, bool has_wave32) {
  // The image addresses of gfx10 and gfx11. The decoder tables of the others have none,
  // but LLVM then looks at 20 bytes: looking at fewer (8 on gfx9), LLVM 22 falls over
  // where they want a literal behind them. See Generation::max_instruction_bytes.
  std::string features = "+nsa-encoding";
  if (has_wave32) {
    absl::StrAppend(&features, wavefront_size == 32 ? ",+wavefrontsize32,-wavefrontsize64"
                                                    : ",-wavefrontsize32,+wavefrontsize64");
  }
  auto add = [&](TargetId::Feature state, const char* name) {
    if (state != TargetId::Feature::kOn) return;
    absl::StrAppend(&features, ",+", name);
  };
  add(target.xnack, "xnack");
  add(target.sramecc, "sramecc");
  return features;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlvmTarget>> LlvmTarget::Create(const TargetId& target,
                                                               uint32_t wavefront_size) {
  const llvm::Target* llvm_target = AmdgpuTarget();
  if (llvm_target == nullptr) return absl::UnimplementedError("this LLVM lacks AMDGPU");
  absl::StatusOr<const Generation*> generation = FindGeneration(target.processor);
  if (!generation.ok()) return absl::UnimplementedError(generation.status().message());
  auto out = std::make_unique<LlvmTarget>();
  out->target = llvm_target;
  {
    // An unknown processor would make LLVM print to stderr: ask first.
    std::unique_ptr<llvm::MCSubtargetInfo> generic(
        llvm_target->createMCSubtargetInfo(AmdgpuTriple(), "", ""));
    const int needed = (*generation)->min_llvm;
    if (LLVM_VERSION_MAJOR < needed || !generic->isCPUStringValid(target.processor)) {
      return absl::UnimplementedError(absl::StrCat(target.processor, " needs LLVM ", needed,
                                                   " or newer; this is LLVM ", LLVM_VERSION_MAJOR));
    }
  }
  const bool has_wave32 = (*generation)->wave32;
  const bool has_size =
      wavefront_size == 32 ? has_wave32 : wavefront_size == 64 && (*generation)->wave64;
  if (!has_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(target.processor, " has no wavefront size ", wavefront_size));
  }
  out->registers.reset(llvm_target->createMCRegInfo(AmdgpuTriple()));
  out->asm_info.reset(llvm_target->createMCAsmInfo(*out->registers, AmdgpuTriple(), out->options));
  out->instructions.reset(llvm_target->createMCInstrInfo());
  out->subtarget.reset(llvm_target->createMCSubtargetInfo(
      AmdgpuTriple(), target.processor, Features(target, wavefront_size, has_wave32)));
  out->context =
      std::make_unique<llvm::MCContext>(llvm::Triple(AmdgpuTriple()), out->asm_info.get(),
                                        out->registers.get(), out->subtarget.get());
  out->disassembler.reset(llvm_target->createMCDisassembler(*out->subtarget, *out->context));
  out->printer.reset(llvm_target->createMCInstPrinter(
      llvm::Triple(AmdgpuTriple()), 0, *out->asm_info, *out->instructions, *out->registers));
  if (!out->disassembler || !out->printer) {
    return absl::UnimplementedError("this LLVM lacks the AMDGPU disassembler");
  }
  return out;
}

}  // namespace rjdbi::patch
