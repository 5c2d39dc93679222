// See coverage.h.
#include "contract/coverage.h"

namespace rjdbi::contract {
namespace {

uint64_t Sum(uint64_t a, uint64_t b) { return a + b < a ? ~uint64_t{0} : a + b; }

}  // namespace

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
  total.set_unsupported(total.unsupported() + part.unsupported());
  total.set_rejected(total.rejected() + part.rejected());
  total.set_over_budget(total.over_budget() + part.over_budget());
  total.set_rotated_out(total.rotated_out() + part.rotated_out());
  total.set_dry_run(total.dry_run() + part.dry_run());
  total.set_dry_run_degraded(total.dry_run_degraded() + part.dry_run_degraded());
  const bool fresh = total.expected_events_per_second() == 0;
  if (part.expected_events_per_second() != 0) {
    const bool same = fresh || total.rate_source() == part.rate_source();
    total.set_rate_source(same ? part.rate_source() : v1::RATE_SOURCE_UNSPECIFIED);
  }
  total.set_expected_events_per_second(
      Sum(total.expected_events_per_second(), part.expected_events_per_second()));
  total.set_expected_telemetry_bytes_per_second(
      Sum(total.expected_telemetry_bytes_per_second(), part.expected_telemetry_bytes_per_second()));
  for (const v1::ReasonCount& reason : part.dry_run_degradations()) {
    CountReason(*total.mutable_dry_run_degradations(), reason.constraint_id(), reason.sites());
  }
  for (const v1::ReasonCount& reason : part.refused()) {
    CountReason(*total.mutable_refused(), reason.constraint_id(), reason.sites());
  }
  for (const v1::ReasonCount& reason : part.degradations()) {
    CountReason(*total.mutable_degradations(), reason.constraint_id(), reason.sites());
  }
}

bool Conserved(const v1::Coverage& c) {
  const uint64_t refused = c.unsupported() + c.rejected() + c.over_budget();
  return c.requested() == c.attached() + c.degraded() + refused + c.rotated_out() + c.dry_run() &&
         refused == RefusedSites(c) && c.dry_run_degraded() <= c.dry_run();
}

uint64_t DoneSites(const v1::Coverage& c) { return c.attached() + c.degraded() + c.dry_run(); }

uint64_t RefusedSites(const v1::Coverage& coverage) {
  uint64_t sites = 0;
  for (const v1::ReasonCount& reason : coverage.refused()) sites += reason.sites();
  return sites;
}

}  // namespace rjdbi::contract
