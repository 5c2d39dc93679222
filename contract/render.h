// Records as text for a terminal: what rjctl prints. Structure first: nothing
// here decides anything, and JSON comes from the messages themselves.
#ifndef CONTRACT_RENDER_H_
#define CONTRACT_RENDER_H_

#include <string>
#include <string_view>

#include "contract/catalogue.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

struct RenderOptions {
  bool colour = false;  // ANSI; only when asked
};

// error[RJD-B001]: the probe needs 12 SGPRs, the attachment allows 8
//   --> reduce+0x40: ds_add_u32 v1, v2
//   observed: 12 SGPRs
//   limit: 8 SGPRs (the attachment)
//   help: raise --max-sgpr-delta, ...
std::string RenderViolation(const v1::Violation& violation, const RenderOptions& options = {});
// One line for an attached site; the violations in full for a refused one.
std::string RenderDecision(const v1::Decision& decision, const RenderOptions& options = {});
// Refused decisions in full. Those of one kernel that say the same
// are printed once, with the first place and the offsets of the others (the first
// few; the number is of all).
std::string RenderRefusals(const google::protobuf::RepeatedPtrField<v1::Decision>& decisions,
                           const RenderOptions& options = {});
// What is degraded about attached sites, grouped alike.
std::string RenderDegradations(const google::protobuf::RepeatedPtrField<v1::Decision>& decisions,
                               const RenderOptions& options = {});
// All decisions, then object-level violations, then coverage. `refused_only`
// leaves attached sites out and groups the others as RenderRefusals does.
std::string RenderRecord(const v1::AdmissionRecord& record, bool refused_only,
                         const RenderOptions& options = {});
// A table, one row per kernel and attachment, ordered by attachment, then kernel,
// with the constraints behind what is refused or degraded.
std::string RenderCoverage(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage,
                           const RenderOptions& options = {});
// "5 sites requested: 2 attached, 1 degraded (RJD-D003 x1), 2 refused (RJD-S005 x2);
// 30 instructions not selected"
std::string RenderTotal(const v1::Coverage& coverage);
// "RJD-B003 x2, RJD-S005 x1", by id.
std::string ReasonList(const google::protobuf::RepeatedPtrField<v1::ReasonCount>& reasons);
// `rjctl explain`: the whole entry, wrapped at 78 columns.
std::string RenderEntry(const CatalogueEntry& entry, const RenderOptions& options = {});
std::string RenderSite(const v1::Site& site);

std::string OutcomeName(v1::Outcome outcome);  // "verified attach"

}  // namespace rjdbi::contract

#endif  // CONTRACT_RENDER_H_
