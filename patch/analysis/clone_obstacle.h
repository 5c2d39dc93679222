// Whether a kernel can be written anew elsewhere, with code inserted between its
// instructions: everything that depends on an address must be known.
#ifndef PATCH_ANALYSIS_CLONE_OBSTACLE_H_
#define PATCH_ANALYSIS_CLONE_OBSTACLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "patch/analysis/control_flow.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/isa.h"
#include "patch/plan/reason.h"

namespace rjdbi::patch {

// Another kernel's code overlaps with this one's.
bool SharesCode(const CodeObject& object, size_t kernel_index);

// At s_getpc_b64; nullopt: what is made of it is not certain.
std::optional<PcAddress> FindPcAddress(const InstructionList& instructions,
                                       absl::Span<const uint8_t> code, const ControlFlow& flow,
                                       uint32_t getpc);

struct CloneFacts {
  std::vector<PcAddress> addresses;  // ascending
  std::optional<Refusal> obstacle;   // nullopt: the kernel can be cloned
};

CloneFacts FindCloneFacts(const CodeObject& object, size_t kernel_index,
                          const InstructionList& instructions, absl::Span<const uint8_t> code,
                          const ControlFlow& flow, const std::vector<Clause>& clauses,
                          std::optional<uint64_t> undecodable, uint64_t preload_entry);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_CLONE_OBSTACLE_H_
