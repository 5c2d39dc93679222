// See the header.
#include "tests/patch/analysis_assemble.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace rjdbi::test {
namespace {

// Without features: gfx90a of gfx90a:xnack+.
std::string Bare(const std::string& p) { return p.substr(0, p.find(':')); }
bool IsGfx9(const std::string& p) { return Bare(p).size() == 6; }
bool IsUnified(const std::string& p) {
  return Bare(p) == "gfx90a" || Bare(p) == "gfx942" || Bare(p) == "gfx950";
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rjdbi-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

std::vector<uint8_t> RunCompiler(const std::string& arguments, const std::string& extension,
                                 const std::string& source) {
  TemporaryFolder folder;
  const std::string in = folder / ("in" + extension), out = folder / "out.co";
  std::ofstream(in) << source;
  const std::string command = std::string(RJDBI_CLANG) + " -target amdgcn-amd-amdhsa " + arguments +
                              " " + in + " -o " + out;
  EXPECT_EQ(std::system(command.c_str()), 0) << command << "\n" << source.substr(0, 4000);
  std::ifstream file(out, std::ios::binary);
  return std::vector<uint8_t>((std::istreambuf_iterator<char>(file)), {});
}

std::string Code(const AsmKernel& k) {
  return ".globl " + k.name + "\n.protected " + k.name + "\n.p2align 8\n.type " + k.name +
         ",@function\n" + k.name + ":\n" + k.body + "\n.Lend_" + k.name + ":\n.size " + k.name +
         ", .Lend_" + k.name + "-" + k.name + "\n" + k.after + "\n";
}

std::string Descriptor(const AsmKernel& k, const std::string& processor, uint32_t wave) {
  std::string s = ".p2align 6\n.amdhsa_kernel " + k.name + "\n";
  auto set = [&](const std::string& key, uint32_t value) {
    s += ".amdhsa_" + key + " " + std::to_string(value) + "\n";
  };
  const uint32_t accum = (k.vgprs + 3) / 4 * 4;
  set("next_free_vgpr", IsUnified(processor) && k.agprs > 0 ? accum + k.agprs : k.vgprs);
  set("next_free_sgpr", k.sgprs);
  if (IsUnified(processor)) set("accum_offset", accum);
  if (IsGfx9(processor)) {
    set("reserve_vcc", 1);
  } else {
    set("wavefront_size32", wave == 32 ? 1 : 0);
  }
  set("user_sgpr_kernarg_segment_ptr", 1);
  set("group_segment_fixed_size", k.lds_bytes);
  if (k.preload_dwords > 0) set("user_sgpr_kernarg_preload_length", k.preload_dwords);
  return s + ".end_amdhsa_kernel\n";
}

std::string Metadata(const AsmKernel& k, uint32_t wave) {
  auto line = [](const std::string& key, uint32_t value) {
    return "    ." + key + ": " + std::to_string(value) + "\n";
  };
  return "  - .name: " + k.name + "\n    .symbol: " + k.name + ".kd\n" +
         line("kernarg_segment_size", 16) + line("kernarg_segment_align", 8) +
         line("group_segment_fixed_size", k.lds_bytes) + line("private_segment_fixed_size", 0) +
         line("wavefront_size", wave) + line("sgpr_count", k.sgprs + 2) +
         line("vgpr_count", k.vgprs) + line("agpr_count", k.agprs) +
         line("max_flat_workgroup_size", 256);
}

}  // namespace

std::vector<uint8_t> AssembleObject(const std::string& processor, uint32_t wavefront_size,
                                    const std::vector<AsmKernel>& kernels) {
  std::string source = ".amdgcn_target \"amdgcn-amd-amdhsa--" + processor + "\"\n.text\n";
  for (const AsmKernel& k : kernels) source += Code(k);
  source += ".section .rodata,\"a\",@progbits\n";
  for (const AsmKernel& k : kernels) source += Descriptor(k, processor, wavefront_size);
  source += ".amdgpu_metadata\namdhsa.version: [1, 2]\namdhsa.kernels:\n";
  for (const AsmKernel& k : kernels) source += Metadata(k, wavefront_size);
  source += ".end_amdgpu_metadata\n";
  const std::string flags = IsGfx9(processor)      ? ""
                            : wavefront_size == 32 ? " -mno-wavefrontsize64"
                                                   : " -mwavefrontsize64";
  return RunCompiler("-mcode-object-version=5 -mcpu=" + processor + flags, ".s", source);
}

std::vector<uint8_t> AssembleProbe(const std::string& processor, const std::string& body) {
  AsmKernel function;
  function.name = "probe";
  function.body = body;
  return RunCompiler("-c -mcode-object-version=5 -mcpu=" + processor, ".s",
                     ".text\n" + Code(function));
}

std::vector<uint8_t> CompileOpenCl(const std::string& processor, const std::string& source) {
  return RunCompiler("-x cl -cl-std=CL2.0 -nogpulib -O2 -mcode-object-version=5 -mcpu=" + processor,
                     ".cl", source);
}

Loaded::Loaded(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  auto object = patch::CodeObject::Parse(bytes_);
  EXPECT_TRUE(object.ok()) << object.status();
  object_ = std::make_unique<patch::CodeObject>(*std::move(object));
  EXPECT_FALSE(object_->kernels().empty());
  auto isa = patch::Isa::Create(object_->target(), object_->kernels()[0].wavefront_size);
  EXPECT_TRUE(isa.ok()) << isa.status();
  isa_ = *std::move(isa);
  analyses_.resize(object_->kernels().size());
}

patch::KernelAnalysis& Loaded::Kernel(const std::string& name) {
  for (size_t k = 0; k < analyses_.size(); ++k) {
    if (object_->kernels()[k].name != name) continue;
    if (!analyses_[k]) {
      auto analysis = patch::KernelAnalysis::Create(*object_, k, *isa_);
      EXPECT_TRUE(analysis.ok()) << analysis.status();
      analyses_[k] = *std::move(analysis);
    }
    return *analyses_[k];
  }
  ADD_FAILURE() << "no kernel " << name;
  std::abort();
}

std::vector<const patch::KernelAnalysis*> Loaded::All() {
  std::vector<const patch::KernelAnalysis*> all;
  for (const patch::Kernel& kernel : object_->kernels()) all.push_back(&Kernel(kernel.name));
  return all;
}

uint32_t Loaded::Find(const patch::KernelAnalysis& kernel, const std::string& opcode, int n) {
  const auto& instructions = kernel.instructions();
  for (uint32_t i = 0; i < instructions.size(); ++i) {
    if (instructions[i].opcode == opcode && n-- == 0) return i;
  }
  ADD_FAILURE() << "no " << opcode;
  return 0;
}

std::string Loaded::Disassemble(uint64_t vaddr, uint64_t size) {
  const auto code = object_->AtVaddr(vaddr, size);
  std::string text;
  for (uint64_t at = 0; at < code.size();) {
    const auto in = isa_->Decode(code, at);
    if (!in) return text + "undecodable\n";
    text += isa_->Print(code, at) + "\n";
    at += in->size;
  }
  return text;
}

std::string WithoutLiteralMarks(std::string text) {
  const std::string mark = "lit(0x0)";
  for (size_t at; (at = text.find(mark)) != std::string::npos;) {
    text.replace(at, mark.size(), "0");
  }
  return text;
}

}  // namespace rjdbi::test
