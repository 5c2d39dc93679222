// What a place in a kernel can take, as a record for people and tools.
#ifndef CONTRACT_SITE_H_
#define CONTRACT_SITE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "contract/catalogue.h"
#include "contract/waitcheck.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/analysis/site_capability.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// What MakeSite says besides the place.
struct SiteFacts {
  const CatalogueEntry* immovable = nullptr;  // why it is not movable
  uint32_t splits_clause = 0;                 // kernel offset of the s_clause plus 1; 0: none
  uint16_t free_sgprs = 0, free_vgprs = 0;
  v1::SiteClass site_class = v1::SITE_CLASS_UNSPECIFIED;
  uint8_t instruction_bytes = 0;
  bool movable = false, scc_live = false, vcc_live = false;
  bool after = false;  // position
};
SiteFacts FactsOfSite(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position);

// Kernel, offset, address and disassembly of instruction i.
v1::Location MakeLocation(const patch::KernelAnalysis& kernel, uint32_t i);
// The whole record; `free_*` counts registers that are allocated, dead and
// without a load in flight.
v1::Site MakeSite(const patch::KernelAnalysis& kernel, uint32_t i,
                  patch::Position position = patch::Position::kBefore);

// MakeSite with Site.capability: costs more, for listings.
v1::Site DescribeSite(const patch::KernelAnalysis& kernel,
                      const patch::SiteCapabilities& capabilities, uint32_t i);
v1::MissingWait MakeMissingWait(const WaitFinding& finding, const patch::Kernel& kernel,
                                patch::Isa& isa, const CodeAt& code);
v1::KernelStructure DescribeStructure(const patch::KernelAnalysis& kernel,
                                      const patch::SiteCapabilities& capabilities);

patch::Position PositionOf(v1::Position position);

// "in clause", "exec unknown", ...
std::string SiteTraitName(v1::SiteTrait trait);

// RJD-S012 with the nearest places, for an offset (bytes) at which no instruction of
// the kernel starts. nullopt: one does.
std::optional<v1::Violation> NoInstructionAt(const patch::KernelAnalysis& kernel, uint64_t offset);

// "memory", "branch", ...
std::string SiteClassName(v1::SiteClass site_class);

}  // namespace rjdbi::contract

#endif  // CONTRACT_SITE_H_
