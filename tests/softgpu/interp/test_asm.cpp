#include "tests/softgpu/interp/test_asm.h"

#include <elf.h>

#include <cstring>
#include <utility>

#include "llvm/MC/MCAsmBackend.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCObjectFileInfo.h"
#include "llvm/MC/MCObjectWriter.h"
#include "llvm/MC/MCParser/MCAsmParser.h"
#include "llvm/MC/MCParser/MCTargetAsmParser.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCStreamer.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "tests/softgpu/interp/llvm_triple.h"

namespace softgpu {
namespace {

// The executable section of a relocatable ELF.
std::vector<uint8_t> TextOf(const llvm::SmallVectorImpl<char>& elf) {
  Elf64_Ehdr header;
  if (elf.size() < sizeof(header)) return {};
  std::memcpy(&header, elf.data(), sizeof(header));
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, elf.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if ((section.sh_flags & SHF_EXECINSTR) == 0 || section.sh_size == 0) continue;
    const auto* begin = reinterpret_cast<const uint8_t*>(elf.data()) + section.sh_offset;
    return {begin, begin + section.sh_size};
  }
  return {};
}

void InitLlvm() {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUAsmParser();
}

std::string Features(const std::string& gfx_name, bool wave64) {
  if (gfx_name.starts_with("gfx9")) return "";
  return wave64 ? "+wavefrontsize64,-wavefrontsize32" : "+wavefrontsize32,-wavefrontsize64";
}

}  // namespace

std::vector<uint8_t> Assemble(const std::string& gfx_name, bool wave64, const std::string& text,
                              std::string* error) {
  InitLlvm();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(AmdgpuTriple(), *error);
  if (target == nullptr) return {};
  llvm::MCTargetOptions options;
  const std::unique_ptr<llvm::MCRegisterInfo> registers(target->createMCRegInfo(AmdgpuTriple()));
  const std::unique_ptr<llvm::MCAsmInfo> info(
      target->createMCAsmInfo(*registers, AmdgpuTriple(), options));
  const std::unique_ptr<llvm::MCInstrInfo> instructions(target->createMCInstrInfo());
  const std::unique_ptr<llvm::MCSubtargetInfo> subtarget(
      target->createMCSubtargetInfo(AmdgpuTriple(), gfx_name, Features(gfx_name, wave64)));
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text), llvm::SMLoc());
  std::string messages;
  sources.setDiagHandler(
      [](const llvm::SMDiagnostic& diagnostic, void* out) {
        *static_cast<std::string*>(out) +=
            diagnostic.getMessage().str() + ": " + diagnostic.getLineContents().str() + "\n";
      },
      &messages);
  llvm::MCContext context(llvm::Triple(AmdgpuTriple()), info.get(), registers.get(),
                          subtarget.get(), &sources);
  const std::unique_ptr<llvm::MCObjectFileInfo> files(
      target->createMCObjectFileInfo(context, /*PIC=*/true));
  context.setObjectFileInfo(files.get());
  llvm::SmallVector<char, 0> elf;
  llvm::raw_svector_ostream stream(elf);
  std::unique_ptr<llvm::MCAsmBackend> backend(
      target->createMCAsmBackend(*subtarget, *registers, options));
  auto writer = backend->createObjectWriter(stream);
  std::unique_ptr<llvm::MCCodeEmitter> emitter(target->createMCCodeEmitter(*instructions, context));
  const std::unique_ptr<llvm::MCStreamer> streamer(
      target->createMCObjectStreamer(llvm::Triple(AmdgpuTriple()), context, std::move(backend),
                                     std::move(writer), std::move(emitter), *subtarget));
  const std::unique_ptr<llvm::MCAsmParser> parser(
      llvm::createMCAsmParser(sources, context, *streamer, *info));
  const std::unique_ptr<llvm::MCTargetAsmParser> target_parser(
      target->createMCAsmParser(*subtarget, *parser, *instructions, options));
  parser->setTargetParser(*target_parser);
  if (parser->Run(/*NoInitialTextSection=*/false)) {
    *error = messages.empty() ? "assembly failed" : messages;
    return {};
  }
  return TextOf(elf);
}

RawKernel::RawKernel(RangeMemory& memory, const std::string& gfx_name, const std::string& text,
                     const RawKernelOptions& options)
    : memory_(memory) {
  const std::vector<uint8_t> code = Assemble(gfx_name, !options.wave32, text, &error_);
  if (code.empty()) return;
  image_.resize(code.size() + 256 + 64 + 64);
  padding_ = (64 - reinterpret_cast<uint64_t>(image_.data()) % 64) % 64;
  uint8_t* descriptor = image_.data() + padding_;
  const bool gfx9 = gfx_name.starts_with("gfx9");
  const bool unified = gfx_name == "gfx90a" || gfx_name.starts_with("gfx94");
  const bool architected = gfx_name.starts_with("gfx94") || gfx_name.starts_with("gfx11") ||
                           gfx_name.starts_with("gfx12");
  const uint32_t granule = unified || options.wave32 ? 8 : 4;
  uint32_t rsrc1 = (options.vgprs + granule - 1) / granule - 1;
  if (gfx9) rsrc1 |= ((options.sgprs + 15) / 16 * 2 - 1) << 6;
  rsrc1 |= 0xc0 << 12 | 1 << 21 | 1 << 23;  // denormals, DX10 clamp, IEEE
  const uint32_t rsrc3 = unified ? options.accum_offset / 4 - 1 : 0;
  uint16_t properties = 1 << 3;
  uint32_t user_sgprs = 2;
  if (options.private_segment) {
    properties |= 1;
    user_sgprs += 4;
    if (!architected) {
      properties |= 1 << 5;
      user_sgprs += 2;
    }
  }
  if (options.wave32) properties |= 1 << 10;
  const uint32_t rsrc2 = (options.private_segment ? 1 : 0) | user_sgprs << 1 | 1 << 7 | 2 << 11;
  const int64_t entry = 256;
  std::memcpy(descriptor + 16, &entry, 8);
  std::memcpy(descriptor + 44, &rsrc3, 4);
  std::memcpy(descriptor + 48, &rsrc1, 4);
  std::memcpy(descriptor + 52, &rsrc2, 4);
  std::memcpy(descriptor + 56, &properties, 2);
  std::memcpy(descriptor + 256, code.data(), code.size());
  memory_.Add(image_.data(), image_.size(), false);
}

RawKernel::~RawKernel() {
  if (!image_.empty()) memory_.Remove(image_.data());
}

}  // namespace softgpu
