// The wave-level control flow graph of one kernel.
#ifndef PATCH_ANALYSIS_CONTROL_FLOW_H_
#define PATCH_ANALYSIS_CONTROL_FLOW_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

// How control can leave a block other than to its successors.
enum class Exit : uint8_t {
  kNone,        // successors say it all
  kProgramEnd,  // nothing lives on
  kUnknown,     // an indirect branch, or out of the kernel: anything may live on
};

struct ControlFlow {
  std::vector<BasicBlock> blocks;
  std::vector<Exit> exits;         // by block; kUnknown adds to the successors
  std::vector<uint32_t> block_of;  // by instruction
  // By block: an entry leads there. With an indirect branch every block counts.
  std::vector<bool> reachable;
  bool has_indirect_branch = false;
  bool has_calls = false;
  bool leaves_kernel = false;  // a direct branch or fall-through to code outside
  // Reachable code that is not in `instructions`: undecodable bytes, or a branch
  // into the middle of an instruction.
  std::optional<uint64_t> unknown_code;  // first such offset
  std::vector<uint64_t> inside_targets;  // branch targets inside instructions, sorted
};

// Index of the instruction that starts at `offset`.
std::optional<uint32_t> FindInstruction(const InstructionList& instructions, uint64_t offset);

// Control that no static edge describes.
bool IsIndirectTransfer(const Instruction& instruction);

// A direct branch that depends on nothing but SCC, VCC or EXEC, if at all, and
// does nothing but branch: another branch to its target does the same.
bool IsPlainBranch(const Instruction& instruction);

// `entries`: offsets at which hardware may start. Linear in the instructions.
ControlFlow BuildControlFlow(const InstructionList& instructions, uint64_t code_size,
                             absl::Span<const uint64_t> entries);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_CONTROL_FLOW_H_
