// Budgets: which limit is the tightest, whose it is, and what exceeds it.
//
// The telemetry estimate is bytes per event (per wavefront, from the inferred
// effects) x expected events per second of the site, added up over the sites of
// one attachment in address order: by kernel as the object lists them, then by
// offset. A site that no longer fits is refused; later, cheaper ones may still
// fit. It is an estimate for refusing the clearly excessive, not a measurement.
// Nothing is known of trip counts: without a hint of the attachment's, the rate of a
// site is that at which wavefronts are assumed to start, times a factor that is
// assumed for each loop around it.
#ifndef CONTRACT_BUDGET_H_
#define CONTRACT_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/admission.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/generation.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

struct Limit {
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t value = kNone;
  std::string_view source;  // "the attachment", "the daemon's ceiling", "the daemon's default"
};

struct EffectiveBudget {
  Limit sgpr, vgpr, instructions, telemetry, code_growth;
  Limit occupancy_loss;            // wavefronts per SIMD
  Limit agpr, scratch, lds;        // registers, bytes per work-item, bytes per workgroup
  Limit sampled_fraction;          // events of a million
  Limit admission_time;            // milliseconds
  uint64_t events_per_second = 0;  // of a site outside loops
  uint64_t loop_factor = 1;        // more for each loop; 1 with the attachment's hint
  v1::RateSource rate_source = v1::RATE_SOURCE_UNSPECIFIED;
};

// Field by field the smaller of the ceiling and the attachment's wish (or, if it
// states none, the default).
EffectiveBudget ComputeBudget(const v1::Budget& asked, const Policy& policy);
// What binds an attachment whose own limits and defaults only warn: the ceilings.
EffectiveBudget CeilingBudget(const v1::Budget& asked, const Policy& policy);

// Of a site in so many loops.
v1::EventRate RateAt(const EffectiveBudget& budget, uint32_t loop_depth);

// "8 SGPRs (the attachment)"
std::string LimitText(const Limit& limit, std::string_view unit);

// All of a site but its telemetry, which is a sum.
std::vector<v1::Violation> CheckSiteBudget(const EffectiveBudget& budget,
                                           const v1::ResourceDelta& delta,
                                           const v1::Location& site);

// Adds up the telemetry of one attachment, in the order of the calls.
class TelemetryBudget {
 public:
  explicit TelemetryBudget(const EffectiveBudget& budget) : budget_(budget) {}
  // Takes the site's share, or says why there is none left.
  std::optional<v1::Violation> Take(uint32_t bytes_per_event, const v1::EventRate& rate,
                                    const v1::Location& site);

 private:
  EffectiveBudget budget_;
  uint64_t used_ = 0;  // bytes per second
};

// The instructions that one event at one site executes: the probes of several
// attachments run one after the other, in the order of the attachments, and those
// that still fit into everybody's limit get in.
class SharedSite {
 public:
  // own: of the probe's sequence; overhead: of the jumps, which all probes share.
  std::optional<v1::Violation> Check(uint32_t own, uint32_t overhead, const Limit& limit,
                                     const v1::Location& site) const;
  void Take(uint32_t own, const Limit& limit, const std::string& attachment);

 private:
  uint32_t used_ = 0;  // instructions of the sequences
  std::optional<Limit> tightest_;
  std::vector<std::string> holders_;
};

// The image as a whole, held against each attachment with sites in it.
std::optional<v1::Violation> CheckCodeGrowth(const EffectiveBudget& budget, int64_t growth);
// How long the admission has taken so far.
std::optional<v1::Violation> CheckAdmissionTime(const EffectiveBudget& budget,
                                                uint64_t milliseconds);

// Bytes per second, saturating.
uint64_t TelemetryRate(uint32_t bytes_per_event, const v1::EventRate& rate);

// Growth of AGPRs, scratch and LDS from one descriptor of a kernel to another.
void SetDescriptorDelta(const patch::Generation& generation, uint32_t wavefront_size,
                        const patch::KernelDescriptor& before, const patch::KernelDescriptor& after,
                        v1::ResourceDelta& delta);

// Fields of `asked` above the ceiling.
std::vector<v1::Violation> CheckCeiling(const v1::Budget& asked, const Policy& policy);

}  // namespace rjdbi::contract

#endif  // CONTRACT_BUDGET_H_
