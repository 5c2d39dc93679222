// A kernel written anew at another address, with probes in line.
//
// Instruction by instruction, in order:
//   [sequences before] [what the seam needs] instruction [sequences after]
// Branches to the instruction land in front of its sequences. Changed are only
//  - the offsets of direct branches;
//  - the literals added to the program counter (see PcAddress): same address; in an
//    image beside the original, s_mov_b64 0 stands for s_getpc_b64, and the literals
//    are the words of the address in the loaded original, for the agent to fill in;
//  - s_clause: where code was inserted into its run, it covers the instructions
//    up to there, and another one the rest; one that would cover a single
//    instruction is s_nop 0, in the s_clause's own place, or left out;
//  - s_delay_alu: a hint about an instruction behind inserted code would speak of
//    another one and is dropped; the hardware interlocks without it.
// Each original instruction keeps exactly one place, so that program counters
// can be mapped back.
#ifndef PATCH_REWRITE_CLONE_H_
#define PATCH_REWRITE_CLONE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/rewrite/placement.h"

namespace rjdbi::patch {

// What is inserted around one instruction.
struct CloneInsertion {
  uint32_t instruction = 0;
  std::vector<uint8_t> before, after;
};

struct Clone {
  std::vector<uint8_t> bytes;
  std::vector<WordFixup> fixups;  // of addresses in the original; offsets into `bytes`
  // Offsets by instruction. starts: where branches to it land, and its sequences
  // before it begin; places: the instruction itself.
  std::vector<uint32_t> starts, places;
};

// `insertions`: by instruction, ascending. The kernel must have no CloneObstacle.
// A refusal: a branch of the clone would be out of reach.
std::variant<Clone, Refusal> MakeClone(const KernelAnalysis& kernel,
                                       const std::vector<CloneInsertion>& insertions,
                                       uint64_t vaddr, const BranchEncoding& encoding,
                                       bool beside = false);

struct PlacedClones {
  std::vector<KernelOutcome> kernels;  // by index
  // By plan: where its sequence lies; nullopt: no clone's, or its kernel was not
  // cloned.
  std::vector<std::optional<uint64_t>> sequences;
  std::vector<WordFixup> fixups;  // of addresses in the original; offsets are vaddrs
};

// Appends a clone of every kernel with plans for one to placed.segment, which
// starts at `base`, and notes it in placed.moved_kernels. `kernels`: by index.
PlacedClones PlaceClones(const std::map<size_t, const KernelAnalysis*>& kernels,
                         const std::vector<SitePlan>& plans, uint64_t base,
                         const BranchEncoding& encoding, bool beside, PlacedCode& placed);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_CLONE_H_
