// See the header.
#include "clients/vacuous.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "contract/coverage.h"
#include "contract/natural_order.h"
#include "contract/render.h"

namespace rjdbi::clients {
namespace {

std::string Why(const Vacuous& vacuous, const v1::AttachmentSpec& spec) {
  if (vacuous.kernels == 0 && !vacuous.left_out.empty()) {
    return absl::StrCat("it was left out: ", Printable(vacuous.left_out));
  }
  if (vacuous.kernels == 0) {
    return absl::StrCat("no kernel matches '", Printable(spec.kernel_glob()), "'");
  }
  if (vacuous.requested == 0) {
    return absl::StrCat("'", Printable(spec.sites()), "' selects no instruction of ",
                        vacuous.kernels, vacuous.kernels == 1 ? " kernel" : " kernels");
  }
  return absl::StrCat(vacuous.requested == 1
                          ? "its one site was refused"
                          : absl::StrCat("all of its ", vacuous.requested, " sites were refused"),
                      vacuous.reasons.empty() ? "" : absl::StrCat(" (", vacuous.reasons, ")"));
}

}  // namespace

std::vector<Vacuous> FindVacuous(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage) {
  struct Sum {
    uint64_t kernels = 0, requested = 0, done = 0;
    std::string left_out;
    google::protobuf::RepeatedPtrField<v1::ReasonCount> refused;
  };
  std::map<std::string, Sum, contract::NaturalOrder> sums;
  for (const v1::Coverage& row : coverage) {
    Sum& sum = sums[row.attachment_id()];
    sum.kernels += row.kernel().empty() ? 0 : 1;
    sum.requested += row.requested();
    if (row.kernel().empty() && !row.refused().empty()) {
      sum.left_out = row.refused(0).constraint_id();
    }
    sum.refused.MergeFrom(row.refused());
    sum.done += contract::DoneSites(row);
  }
  std::vector<Vacuous> vacuous;
  for (const auto& [id, sum] : sums) {
    if (sum.done != 0) continue;
    vacuous.push_back(
        {id, sum.kernels, sum.requested, sum.left_out, contract::ReasonList(sum.refused)});
  }
  return vacuous;
}

std::vector<Vacuous> FindVacuous(const v1::GetCoverageReply& reply) {
  std::vector<Vacuous> vacuous = FindVacuous(reply.coverage());
  for (const std::string& id : reply.unmatched_attachments()) {
    const bool listed =
        std::any_of(vacuous.begin(), vacuous.end(), [&](const Vacuous& v) { return v.id == id; });
    if (!listed) vacuous.push_back({id, 0, 0, "", ""});
  }
  vacuous.erase(
      std::remove_if(vacuous.begin(), vacuous.end(),
                     [&](const Vacuous& v) { return reply.pending_processes().contains(v.id); }),
      vacuous.end());
  return vacuous;
}

void WarnVacuous(const Output& out, const Vacuous& vacuous, const v1::AttachmentSpec& spec,
                 const std::string& hint) {
  out.Warn(absl::StrCat(Printable(vacuous.id), " is vacuous, it attached nowhere: ",
                        Why(vacuous, spec), hint.empty() ? "" : "; ", hint));
}

}  // namespace rjdbi::clients
