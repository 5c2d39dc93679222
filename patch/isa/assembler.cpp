// Runs LLVM's AMDGPU assembly parser over a few lines and collects the encoded
// instructions. A context per call: errors leave nothing behind.
#include "patch/isa/assembler.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCFixup.h"
#include "llvm/MC/MCObjectFileInfo.h"
#include "llvm/MC/MCParser/MCAsmParser.h"
#include "llvm/MC/MCParser/MCTargetAsmParser.h"
#include "llvm/MC/MCStreamer.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

namespace rjdbi::patch {
namespace {

// Encodes what the parser emits; anything but instructions is an error.
class CollectingStreamer : public llvm::MCStreamer {
 public:
  CollectingStreamer(llvm::MCContext& context, const llvm::MCCodeEmitter& emitter)
      : MCStreamer(context), emitter_(emitter) {}

  bool emitSymbolAttribute(llvm::MCSymbol*, llvm::MCSymbolAttr) override { return false; }
  void emitCommonSymbol(llvm::MCSymbol*, uint64_t, llvm::Align) override { foreign_ = true; }
  void emitZerofill(llvm::MCSection*, llvm::MCSymbol*, uint64_t, llvm::Align,
                    llvm::SMLoc) override {
    foreign_ = true;
  }
  void emitLabel(llvm::MCSymbol*, llvm::SMLoc) override { foreign_ = true; }
  void emitAssignment(llvm::MCSymbol*, const llvm::MCExpr*) override { foreign_ = true; }
  void emitInstruction(const llvm::MCInst& inst, const llvm::MCSubtargetInfo& subtarget) override {
    llvm::SmallVector<llvm::MCFixup, 2> fixups;
    emitter_.encodeInstruction(inst, code_, fixups, subtarget);
    if (!fixups.empty()) symbolic_ = true;
  }

  const llvm::SmallVector<char, 64>& code() const { return code_; }
  bool foreign() const { return foreign_; }
  bool symbolic() const { return symbolic_; }

 private:
  const llvm::MCCodeEmitter& emitter_;
  llvm::SmallVector<char, 64> code_;
  bool foreign_ = false, symbolic_ = false;
};

// Keeps the first diagnostic: later ones usually follow from it.
void KeepFirst(const llvm::SMDiagnostic& diagnostic, void* context) {
  auto* message = static_cast<std::string*>(context);
  if (diagnostic.getKind() != llvm::SourceMgr::DK_Error || !message->empty()) return;
  *message = absl::StrCat("line ", diagnostic.getLineNo(), ": ", diagnostic.getMessage().str(),
                          " in \"", diagnostic.getLineContents().str(), "\"");
}

// Directives could read files or switch sections: none reaches the parser.
absl::Status RejectDirectives(std::string_view text) {
  if (text.find("/*") != std::string_view::npos) {
    return absl::InvalidArgumentError("block comments are not accepted");
  }
  int number = 1;
  bool line_start = true;
  for (char c : text) {
    if (c == '.' && line_start) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": directives are not accepted"));
    }
    if (c == '\n' || c == '\r') {
      line_start = true;
      number += c == '\n' ? 1 : 0;
    } else if (c != ' ' && c != '\t') {
      line_start = false;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> AssembleText(const LlvmTarget& target, std::string_view text) {
  if (absl::Status status = RejectDirectives(text); !status.ok()) return status;
  std::string message;
  llvm::SourceMgr sources;
  sources.setDiagHandler(KeepFirst, &message);
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(text)),
                             llvm::SMLoc());
  llvm::MCContext context(llvm::Triple(AmdgpuTriple()), target.asm_info.get(),
                          target.registers.get(), target.subtarget.get(), &sources,
                          &target.options);
  std::unique_ptr<llvm::MCObjectFileInfo> file_info(
      target.target->createMCObjectFileInfo(context, /*PIC=*/true));
  context.setObjectFileInfo(file_info.get());
  std::unique_ptr<llvm::MCCodeEmitter> emitter(
      target.target->createMCCodeEmitter(*target.instructions, context));
  CollectingStreamer streamer(context, *emitter);
  target.target->createNullTargetStreamer(streamer);  // owned by the streamer
  std::unique_ptr<llvm::MCAsmParser> parser(
      llvm::createMCAsmParser(sources, context, streamer, *target.asm_info));
  std::unique_ptr<llvm::MCTargetAsmParser> target_parser(target.target->createMCAsmParser(
      *target.subtarget, *parser, *target.instructions, target.options));
  if (!target_parser) return absl::InternalError("this LLVM lacks the AMDGPU assembler");
  parser->setTargetParser(*target_parser);
  const bool failed = parser->Run(/*NoInitialTextSection=*/false);
  if (failed || !message.empty()) {
    return absl::InvalidArgumentError(message.empty() ? "assembly failed" : message);
  }
  if (streamer.foreign() || streamer.symbolic()) {
    return absl::InvalidArgumentError("labels, symbols and directives are not accepted");
  }
  return std::vector<uint8_t>(streamer.code().begin(), streamer.code().end());
}

}  // namespace rjdbi::patch
