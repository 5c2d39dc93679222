// Makes a code object from a few lines of assembly or OpenCL C, with the
// installed compiler, and keeps everything that analysis needs alive.
#ifndef TESTS_PATCH_ANALYSIS_ASSEMBLE_H_
#define TESTS_PATCH_ANALYSIS_ASSEMBLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/isa.h"

namespace rjdbi::test {

struct AsmKernel {
  std::string name = "k";
  std::string body;     // assembly
  uint32_t vgprs = 8;   // architectural
  uint32_t agprs = 0;   // unified files
  uint32_t sgprs = 16;  // .amdhsa_next_free_sgpr
  uint32_t preload_dwords = 0;
  uint32_t lds_bytes = 0;
  std::string after;  // assembly behind the kernel's end, before alignment
};

// Runs the compiler; a failure is a test failure with its output.
std::vector<uint8_t> AssembleObject(const std::string& processor, uint32_t wavefront_size,
                                    const std::vector<AsmKernel>& kernels);
// A relocatable object with the device function "probe".
std::vector<uint8_t> AssembleProbe(const std::string& processor, const std::string& body);
std::vector<uint8_t> CompileOpenCl(const std::string& processor, const std::string& source);

// A printed text as LLVM 19 has it: later versions write a literal word whose value an
// inline constant could also give as lit(0x0).
std::string WithoutLiteralMarks(std::string text);

// A parsed object, its decoder, and analyses made on demand.
class Loaded {
 public:
  explicit Loaded(std::vector<uint8_t> bytes);
  const patch::CodeObject& object() const { return *object_; }
  patch::Isa& isa() { return *isa_; }
  patch::KernelAnalysis& Kernel(const std::string& name = "k");
  // Every analysis, by kernel index.
  std::vector<const patch::KernelAnalysis*> All();
  // Index of the n-th instruction whose opcode is `opcode`; fails the test if none.
  static uint32_t Find(const patch::KernelAnalysis& kernel, const std::string& opcode, int n = 0);
  // Disassembly of [vaddr, vaddr + size), a line per instruction.
  std::string Disassemble(uint64_t vaddr, uint64_t size);

 private:
  std::vector<uint8_t> bytes_;
  std::unique_ptr<patch::CodeObject> object_;
  std::unique_ptr<patch::Isa> isa_;
  std::vector<std::unique_ptr<patch::KernelAnalysis>> analyses_;
};

}  // namespace rjdbi::test

#endif  // TESTS_PATCH_ANALYSIS_ASSEMBLE_H_
