// Whether a probe that calls may use s[30:31], the return address of the AMDGPU
// calling convention, at a given site.
#ifndef CONTRACT_LINK_PAIR_H_
#define CONTRACT_LINK_PAIR_H_

#include <cstdint>
#include <optional>

#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/reason.h"

namespace rjdbi::contract {

// nullopt: the pair is allocated (or can be, by growing by at most
// `max_sgpr_delta`), dead, and no load is in flight to it.
std::optional<patch::Refusal> LinkPairUnavailable(
    const patch::KernelAnalysis& kernel, uint32_t instruction, uint32_t max_sgpr_delta,
    patch::Position position = patch::Position::kBefore);

}  // namespace rjdbi::contract

#endif  // CONTRACT_LINK_PAIR_H_
