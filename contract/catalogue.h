// The one catalogue of constraints: every refusal, rejected effect, degradation
// and gap that rjdbi can report has one row here, with a stable id, an
// explanation and a next step. `rjctl explain`, docs/reasons.md and
// rjdbi-reasons(7) are rendered from it.
//
// Ids are "RJD-" + a letter + three digits: S site, R register, P placement,
// O object, E effects, B budget, A attachment, G gap of observation,
// D degradation, U user probe. An id is never reused for another meaning.
#ifndef CONTRACT_CATALOGUE_H_
#define CONTRACT_CATALOGUE_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "patch/plan/reason.h"
#include "patch/probe/probe_body.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

struct CatalogueEntry {
  std::string_view id;
  std::string_view title;        // a noun phrase or short clause, no full stop
  std::string_view explanation;  // a paragraph: what it means and why it exists
  std::string_view next_step;    // an imperative sentence
  patch::Reason reason = patch::Reason::kNone;
  v1::GapKind gap = v1::GAP_KIND_UNSPECIFIED;
  std::optional<patch::BodyRule> rule = std::nullopt;
};

// Ids used by name in contract/, daemon/ and clients/.
namespace id {
inline constexpr std::string_view kNoInstruction = "RJD-S012";
inline constexpr std::string_view kKernelUnreadable = "RJD-S013";
inline constexpr std::string_view kLinkPair = "RJD-R005";
inline constexpr std::string_view kObjectMalformed = "RJD-O001";
inline constexpr std::string_view kObjectTooLarge = "RJD-O002";
inline constexpr std::string_view kObjectUnsupported = "RJD-O003";
inline constexpr std::string_view kValidationFailed = "RJD-O007";
inline constexpr std::string_view kEngineFault = "RJD-O008";
inline constexpr std::string_view kWorkerFailed = "RJD-O009";
inline constexpr std::string_view kPatchesStuck = "RJD-O010";
inline constexpr std::string_view kMissingWait = "RJD-O011";
inline constexpr std::string_view kStateChanged = "RJD-E001";
inline constexpr std::string_view kMemoryUndeclared = "RJD-E002";
inline constexpr std::string_view kControlUndeclared = "RJD-E003";
inline constexpr std::string_view kSyncUndeclared = "RJD-E004";
inline constexpr std::string_view kMaskPolicy = "RJD-E005";
inline constexpr std::string_view kTooManyInstructions = "RJD-E006";
inline constexpr std::string_view kTooMuchTelemetry = "RJD-E007";
inline constexpr std::string_view kTooManyTemporaries = "RJD-E008";
inline constexpr std::string_view kReadUndeclared = "RJD-E009";
inline constexpr std::string_view kUnproven = "RJD-E010";
inline constexpr std::string_view kForbidden = "RJD-E011";
inline constexpr std::string_view kFixupPlace = "RJD-E012";
inline constexpr std::string_view kLoadInFlight = "RJD-E013";
inline constexpr std::string_view kNotProvenDead = "RJD-E014";
inline constexpr std::string_view kSgprBudget = "RJD-B001";
inline constexpr std::string_view kVgprBudget = "RJD-B002";
inline constexpr std::string_view kInstructionBudget = "RJD-B003";
inline constexpr std::string_view kTelemetryBudget = "RJD-B004";
inline constexpr std::string_view kCodeGrowthBudget = "RJD-B005";
inline constexpr std::string_view kOccupancyBudget = "RJD-B006";
inline constexpr std::string_view kAgprBudget = "RJD-B007";
inline constexpr std::string_view kScratchBudget = "RJD-B008";
inline constexpr std::string_view kLdsBudget = "RJD-B009";
inline constexpr std::string_view kSampledFraction = "RJD-B010";
inline constexpr std::string_view kAdmissionTime = "RJD-B011";
inline constexpr std::string_view kRotatedOut = "RJD-B012";
inline constexpr std::string_view kBadSelector = "RJD-A001";
inline constexpr std::string_view kUnknownProbe = "RJD-A002";
inline constexpr std::string_view kSabotageForbidden = "RJD-A003";
inline constexpr std::string_view kSabotageNotAsked = "RJD-A004";
inline constexpr std::string_view kOverCeiling = "RJD-A005";
inline constexpr std::string_view kBadSpec = "RJD-A006";
inline constexpr std::string_view kNoKernelMatched = "RJD-A007";
inline constexpr std::string_view kNothingAsked = "RJD-A008";
inline constexpr std::string_view kTooManyAttachments = "RJD-A009";
inline constexpr std::string_view kDrainsWaits = "RJD-D001";
inline constexpr std::string_view kOccupancyFalls = "RJD-D002";
inline constexpr std::string_view kSplitsClause = "RJD-D003";
inline constexpr std::string_view kWorkgroupUnknown = "RJD-D004";
inline constexpr std::string_view kUnprovenStore = "RJD-D005";
inline constexpr std::string_view kOverOwnLimit = "RJD-D006";
inline constexpr std::string_view kProbeTarget = "RJD-U013";
inline constexpr std::string_view kProbeWavefrontSize = "RJD-U014";
inline constexpr std::string_view kProbeObject = "RJD-U016";
inline constexpr std::string_view kProbeManifest = "RJD-U017";
inline constexpr std::string_view kProbeFunction = "RJD-U018";
}  // namespace id

// The whole catalogue, ordered by id.
absl::Span<const CatalogueEntry> All();
// nullptr: no such id. Case matters.
const CatalogueEntry* Find(std::string_view id);
// The entry of a reason, of a rule for users' probes, or of a gap. Every value but "none" has one;
// for "none", or a value unknown to this build, the engine-fault entry.
const CatalogueEntry& ForReason(patch::Reason reason);
const CatalogueEntry& ForRule(patch::BodyRule rule);
const CatalogueEntry& ForGap(v1::GapKind kind);

// A complete violation: next step, and message if none is given, come from the
// catalogue. An unknown id is a bug and gives an engine-fault violation.
v1::Violation MakeViolation(std::string_view id, std::string observed, std::string limit,
                            const v1::Location& location = {}, std::string message = {});
v1::Violation MakeViolation(const patch::Refusal& refusal, const v1::Location& location);
v1::Degradation MakeDegradation(std::string_view id, std::string message);

}  // namespace rjdbi::contract

#endif  // CONTRACT_CATALOGUE_H_
