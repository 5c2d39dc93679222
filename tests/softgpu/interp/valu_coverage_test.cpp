// Every vector instruction in the installed rocRAND and rocSPARSE device code
// must have a handler. The mnemonics are taken from the libraries themselves.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "tests/softgpu/interp/decode.h"
#include "tests/softgpu/interp/llvm_triple.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu::test {
namespace {

constexpr std::string_view kBundleMagic = "__CLANG_OFFLOAD_BUNDLE__";

// Never executed: v_illegal is what the assembler pads unreachable code with,
// and data in .text may decode as it.
constexpr std::string_view kNotInstructions[] = {"V_ILLEGAL"};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

template <class T>
T Load(std::string_view data, size_t at) {
  T value{};
  if (at + sizeof(T) <= data.size()) std::memcpy(&value, data.data() + at, sizeof(T));
  return value;
}

// The code objects for a processor in every offload bundle of a file.
std::vector<std::string_view> CodeObjects(std::string_view file, std::string_view processor) {
  std::vector<std::string_view> objects;
  for (size_t at = 0; (at = file.find(kBundleMagic, at)) != std::string_view::npos;) {
    const size_t base = at;
    at += kBundleMagic.size();
    const uint64_t count = Load<uint64_t>(file, at);
    if (count > 1000) continue;  // the magic as a string constant
    size_t entry = at + 8;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t offset = Load<uint64_t>(file, entry), size = Load<uint64_t>(file, entry + 8);
      const uint64_t length = Load<uint64_t>(file, entry + 16);
      const std::string_view id = file.substr(entry + 24, length);
      if (size != 0 && id.find(processor) != std::string_view::npos) {
        objects.push_back(file.substr(base + offset, size));
      }
      entry += 24 + length;
    }
  }
  return objects;
}

// The executable sections of an ELF64 file.
std::vector<std::string_view> CodeSections(std::string_view elf) {
  std::vector<std::string_view> code;
  const uint64_t table = Load<uint64_t>(elf, 0x28);
  const uint16_t entry_size = Load<uint16_t>(elf, 0x3a), count = Load<uint16_t>(elf, 0x3c);
  for (uint16_t i = 0; i < count; ++i) {
    const size_t header = table + size_t{i} * entry_size;
    const uint64_t flags = Load<uint64_t>(elf, header + 8);
    const bool bits = Load<uint32_t>(elf, header + 4) == 1;  // SHT_PROGBITS
    if (bits && (flags & 4)) {
      code.push_back(
          elf.substr(Load<uint64_t>(elf, header + 0x18), Load<uint64_t>(elf, header + 0x20)));
    }
  }
  return code;
}

// Collects the mnemonics of machine code, printing each opcode only once.
class Collector {
 public:
  explicit Collector(const std::string& processor) {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(AmdgpuTriple(), error);
    subtarget_.reset(target->createMCSubtargetInfo(AmdgpuTriple(), processor, ""));
    registers_.reset(target->createMCRegInfo(AmdgpuTriple()));
    asm_info_.reset(target->createMCAsmInfo(*registers_, AmdgpuTriple(), options_));
    instructions_.reset(target->createMCInstrInfo());
    context_ = std::make_unique<llvm::MCContext>(llvm::Triple(AmdgpuTriple()), asm_info_.get(),
                                                 registers_.get(), subtarget_.get());
    disassembler_.reset(target->createMCDisassembler(*subtarget_, *context_));
    printer_.reset(target->createMCInstPrinter(llvm::Triple(AmdgpuTriple()), 0, *asm_info_,
                                               *instructions_, *registers_));
  }

  void Add(std::string_view code) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(code.data());
    for (size_t at = 0; at + 4 <= code.size();) {
      uint64_t raw = 0;
      std::memcpy(&raw, bytes + at, code.size() - at < 8 ? 4 : 8);
      // Most instructions repeat: skip what was decoded recently.
      Recent& slot = recent_[(raw * 0x9e3779b97f4a7c15ull) >> 44];
      if (slot.size != 0 && slot.raw == raw) {
        at += slot.size;
        continue;
      }
      llvm::MCInst inst;
      uint64_t size = 0;
      const auto status = disassembler_->getInstruction(
          inst, size, llvm::ArrayRef(bytes + at, code.size() - at), 0, llvm::nulls());
      if (status == llvm::MCDisassembler::Fail || size == 0) {
        at += 4;
        continue;
      }
      ++decoded_;
      if (size <= 8) slot = {raw, static_cast<uint8_t>(size)};
      at += size;
      if (++opcodes_[inst.getOpcode()] == 1) Print(inst);
    }
  }

  const std::map<std::string, std::string>& names() const { return names_; }
  uint64_t decoded() const { return decoded_; }

 private:
  struct Recent {
    uint64_t raw = 0;
    uint8_t size = 0;
  };

  void Print(const llvm::MCInst& inst) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    printer_->printInst(&inst, 0, "", *subtarget_, stream);
    stream.flush();
    const size_t begin = text.find_first_not_of(" \t");
    const size_t end = text.find_first_of(" \t", begin);
    names_.emplace(CanonicalName(text.substr(begin, end - begin)), text);
  }

  llvm::MCTargetOptions options_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> asm_info_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> disassembler_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
  std::vector<Recent> recent_ = std::vector<Recent>(size_t{1} << 20);
  std::map<unsigned, uint64_t> opcodes_;
  std::map<std::string, std::string> names_;  // canonical name, first occurrence
  uint64_t decoded_ = 0;
};

bool IsVectorAlu(const std::string& name) {
  if (!name.starts_with("V_")) return false;
  for (std::string_view not_one : kNotInstructions) {
    if (name == not_one) return false;
  }
  return true;
}

class Coverage : public testing::TestWithParam<std::string> {};

// An installed shared library, by the name that programs link with.
std::string FindLibrary(const std::string& name) {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/opt/rocm/lib/", "/usr/lib64/"}) {
    if (std::filesystem::exists(folder + name)) return folder + name;
  }
  return "";
}

void ExpectCovered(const std::string& name, const std::string& processor) {
  const std::string library = FindLibrary(name);
  ASSERT_NE(library, "") << name << " is not installed";
  const std::string file = ReadFile(library);
  ASSERT_FALSE(file.empty()) << "cannot read " << library;
  const std::vector<std::string_view> objects = CodeObjects(file, processor);
  ASSERT_FALSE(objects.empty()) << library << " has no code for " << processor;
  Collector collector(processor);
  for (std::string_view object : objects) {
    for (std::string_view code : CodeSections(object)) collector.Add(code);
  }
  Target target;
  ASSERT_TRUE(FindTarget(processor, &target));
  int vector = 0;
  std::string missing;
  for (const auto& [name, text] : collector.names()) {
    if (!IsVectorAlu(name)) continue;
    ++vector;
    Inst inst;
    inst.name = name;
    if (FindVectorHandler(inst, target) == nullptr) missing += "\n  " + name + ":" + text;
  }
  EXPECT_GT(vector, 50) << "too few instructions were found to mean anything";
  EXPECT_EQ(missing, "") << "in " << objects.size() << " code objects of " << library;
  testing::Test::RecordProperty("vector_instructions", vector);
  testing::Test::RecordProperty("decoded", static_cast<int>(collector.decoded()));
}

TEST_P(Coverage, RocRand) { ExpectCovered("librocrand.so", GetParam()); }
TEST_P(Coverage, RocSparse) { ExpectCovered("librocsparse.so", GetParam()); }

INSTANTIATE_TEST_SUITE_P(Processors, Coverage, testing::Values("gfx90a", "gfx1030"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace softgpu::test
