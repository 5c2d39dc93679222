// See coverage.h.
#include "contract/coverage.h"

namespace rjdbi::contract {

void CountReason(google::protobuf::RepeatedPtrField<v1::ReasonCount>& reasons, std::string_view id,
                 uint64_t sites) {
  for (v1::ReasonCount& known : reasons) {
    if (known.constraint_id() == id) return known.set_sites(known.sites() + sites);
  }
  v1::ReasonCount& fresh = *reasons.Add();
  fresh.set_constraint_id(std::string(id));
  fresh.set_sites(sites);
}

void AddCoverage(v1::Coverage& total, const v1::Coverage& part) {
  total.set_requested(total.requested() + part.requested());
  total.set_attached(total.attached() + part.attached());
  total.set_degraded(total.degraded() + part.degraded());
  total.set_not_selected(total.not_selected() + part.not_selected());
  for (const v1::ReasonCount& reason : part.refused()) {
    CountReason(*total.mutable_refused(), reason.constraint_id(), reason.sites());
  }
  for (const v1::ReasonCount& reason : part.degradations()) {
    CountReason(*total.mutable_degradations(), reason.constraint_id(), reason.sites());
  }
}

uint64_t RefusedSites(const v1::Coverage& coverage) {
  uint64_t sites = 0;
  for (const v1::ReasonCount& reason : coverage.refused()) sites += reason.sites();
  return sites;
}

}  // namespace rjdbi::contract
