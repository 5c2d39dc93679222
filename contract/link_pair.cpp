// See link_pair.h.
#include "contract/link_pair.h"

#include "contract/occupancy.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

constexpr uint16_t kLink = patch::kSgpr0 + 30;
constexpr uint32_t kNeeded = 32;  // ordinary SGPRs, so that s31 exists

patch::Refusal Unavailable(std::string observed, std::string limit, std::string detail) {
  return {patch::Reason::kLinkPairUnavailable, std::move(observed), std::move(limit),
          std::move(detail)};
}

}  // namespace

std::optional<patch::Refusal> LinkPairUnavailable(const patch::KernelAnalysis& kernel,
                                                  uint32_t instruction, uint32_t max_sgpr_delta,
                                                  patch::Position position) {
  if (kernel.LiveAt(instruction, position).HasAny(kLink, 2)) {
    return Unavailable("s[30:31] live", "s[30:31] dead",
                       "the application needs s[30:31] at this site");
  }
  if (kernel.PendingAt(instruction, position).HasAny(kLink, 2)) {
    return Unavailable("s[30:31] with a load in flight", "no load in flight",
                       "a load may still write s[30:31] at this site");
  }
  const patch::Generation& g = kernel.isa().generation();
  const Allocation a =
      DescriptorAllocation(g, kernel.kernel().descriptor, kernel.kernel().wavefront_size);
  if (a.usable_sgprs >= kNeeded) return std::nullopt;
  // Growth happens in whole granules.
  const uint32_t missing = kNeeded - a.usable_sgprs;
  const uint32_t granule = g.sgpr_granule == 0 ? 1 : g.sgpr_granule;
  const uint32_t growth = (missing + granule - 1) / granule * granule;
  if (growth <= max_sgpr_delta) return std::nullopt;
  return Unavailable(StrCat(a.usable_sgprs, " SGPRs allocated"), StrCat(kNeeded, " SGPRs"),
                     StrCat("s[30:31] lies outside the allocation, which would have to grow by ",
                            growth, " SGPRs; allowed are ", max_sgpr_delta));
}

}  // namespace rjdbi::contract
