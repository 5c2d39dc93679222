// Why the patch engine could not do something, as codes. contract/catalogue
// gives each its stable id, wording and next step.
#ifndef PATCH_PLAN_REASON_H_
#define PATCH_PLAN_REASON_H_

#include <cstdint>
#include <string>

namespace rjdbi::patch {

enum class Reason : uint16_t {
  kNone,
  // The site.
  kSiteBranch,            // a direct branch of an uncommon kind
  kSiteIndirectTransfer,  // s_setpc, s_swappc, s_call, s_rfe
  kSiteProgramEnd,        // s_endpgm and more
  kSitePcRelative,        // s_getpc and kin
  kSiteInsideClause,
  kSiteInsideGprIndexRegion,
  kSiteUndecodable,         // the kernel does not decode around the site
  kSiteBranchTargetInside,  // a branch lands inside the displaced bytes
  kSiteUnresolvedControl,   // an indirect branch may land anywhere in the kernel
  kSiteTooShort,
  kSiteDealloc,       // after VGPR deallocation
  kSiteNothingAfter,  // position "after" on an instruction that transfers control
  kSiteVgprNumbers,   // the kernel changes what vector register numbers mean
  kNoLineTable,       // a selector names source lines
  kBadDebugInfo,
  // Registers.
  kNoSgprPair,  // observed, limit: registers
  kNoVgprs,
  kSgprGrowthImpossible,  // hardware limit
  kVgprGrowthImpossible,
  kSgprBudget,
  kVgprBudget,
  kLinkPairUnavailable,  // s30/s31 for probes that call
  // Records.
  kNoAddress,      // trace-address: the instruction accesses no memory by an address
  kAddressForm,    // trace-address: not by registers that can be recorded as they are
  kAddressLost,    // trace-address, behind: the instruction overwrites its address
  kValueNotThere,  // value: no such register in this kernel
  kValueNotLive,   // value: nothing keeps it at the site
  kValueInFlight,  // value: a load may still write it
  kTooManyRecordSites,
  kWorkgroupIdLost,  // trace-exec: nothing keeps it
  kProbeArgument,    // a user's probe asks for what the site does not have
  kOnlyCounters,     // the processor's tables do not say how
  // Placement.
  kOutOfBranchReach,
  kNoSegmentSlot,  // no program header can be recycled
  kNotClonable,    // the kernel cannot be written anew
  kNotBeside,      // the kernel cannot run from an image beside the loaded original
  // The object.
  kKernargPreloadEntry,  // two hardware entries
  kUnknownProcessor,
  kAssemblerFailed,  // LLVM refused our own text: a bug of ours
};

// A refusal before wording: `observed` and `limit` carry units.
struct Refusal {
  Reason reason = Reason::kNone;
  std::string observed;
  std::string limit;
  std::string detail;  // one sentence, specific to this case
};

}  // namespace rjdbi::patch

#endif  // PATCH_PLAN_REASON_H_
