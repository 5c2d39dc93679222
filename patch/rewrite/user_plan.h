// Plans a user's probe at one site: what it is given there, registers, sequence.
#ifndef PATCH_REWRITE_USER_PLAN_H_
#define PATCH_REWRITE_USER_PLAN_H_

#include <optional>

#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/assembly_cache.h"

namespace rjdbi::patch {

// Fills in what the sequence decides; plan.instruction is set. request.user must
// be.
std::optional<Refusal> PlanUserProbe(const KernelAnalysis& kernel, const ProbeRequest& request,
                                     AssemblyCache& cache, SitePlan& plan);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_USER_PLAN_H_
