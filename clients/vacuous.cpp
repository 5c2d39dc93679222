// See the header.
#include "clients/vacuous.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "contract/coverage.h"
#include "contract/natural_order.h"

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
                          : absl::StrCat("all of its ", vacuous.requested, " sites were refused"));
}

}  // namespace

std::vector<Vacuous> FindVacuous(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage) {
  struct Sum {
    uint64_t kernels = 0, requested = 0, done = 0;
    std::string left_out;
  };
  std::map<std::string, Sum, contract::NaturalOrder> sums;
  for (const v1::Coverage& row : coverage) {
    Sum& sum = sums[row.attachment_id()];
    sum.kernels += row.kernel().empty() ? 0 : 1;
    sum.requested += row.requested();
    if (row.kernel().empty() && !row.refused().empty()) {
      sum.left_out = row.refused(0).constraint_id();
    }
    sum.done += contract::DoneSites(row);
  }
  std::vector<Vacuous> vacuous;
  for (const auto& [id, sum] : sums) {
    if (sum.done == 0) vacuous.push_back({id, sum.kernels, sum.requested, sum.left_out});
  }
  return vacuous;
}

void WarnVacuous(const Output& out, const Vacuous& vacuous, const v1::AttachmentSpec& spec,
                 const std::string& hint) {
  out.Warn(absl::StrCat(Printable(vacuous.id), " is vacuous, it attached nowhere: ",
                        Why(vacuous, spec), hint.empty() ? "" : "; ", hint));
}

}  // namespace rjdbi::clients
