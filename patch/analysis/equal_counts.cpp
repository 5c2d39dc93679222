// See equal_counts.h.
#include "patch/analysis/equal_counts.h"

#include <algorithm>

namespace rjdbi::patch {
namespace {

bool FlowIsKnown(const KernelAnalysis& kernel) {
  const auto& instructions = kernel.instructions();
  return !kernel.has_indirect_branch() &&
         std::none_of(instructions.begin(), instructions.end(),
                      [](const Instruction& in) { return in.opcode == "s_setvskip"; });
}

// By instruction: another kernel's descriptor points at it.
std::vector<bool> OtherEntries(const KernelAnalysis& kernel) {
  std::vector<bool> entry(kernel.instructions().size());
  const auto& kernels = kernel.object().kernels();
  const uint64_t begin = kernel.kernel().entry_vaddr;
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (k == kernel.kernel_index() || kernels[k].entry_vaddr < begin) continue;
    if (const auto i = kernel.InstructionAt(kernels[k].entry_vaddr - begin)) entry[*i] = true;
  }
  return entry;
}

}  // namespace

std::vector<uint32_t> EqualCountRegions(const KernelAnalysis& kernel) {
  const auto& instructions = kernel.instructions();
  std::vector<bool> begins = OtherEntries(kernel);
  if (!FlowIsKnown(kernel)) begins.assign(instructions.size(), true);
  for (const BasicBlock& block : kernel.blocks()) begins[block.first] = true;
  std::vector<uint32_t> regions(instructions.size());
  uint32_t region = 0;
  for (uint32_t i = 0; i < regions.size(); ++i) {
    if (i > 0 && (begins[i] || instructions[i - 1].call)) ++region;
    regions[i] = region;
  }
  return regions;
}

}  // namespace rjdbi::patch
