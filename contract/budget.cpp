// See budget.h.
#include "contract/budget.h"

#include <algorithm>
#include <utility>

#include "contract/catalogue.h"
#include "contract/occupancy.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

constexpr std::string_view kFromAttachment = "the attachment";
constexpr std::string_view kFromCeiling = "the daemon's ceiling";
constexpr std::string_view kFromDefault = "the daemon's default";
constexpr std::string_view kFromEarlier = "an earlier attachment";
constexpr std::string_view kPerEvent = "instructions per event";
constexpr std::string_view kWavefronts = "wavefronts per SIMD";
constexpr std::string_view kAgprs = "AGPRs";
constexpr std::string_view kScratchBytes = "bytes of scratch per work-item";
constexpr std::string_view kLdsBytes = "bytes of LDS per workgroup";
constexpr std::string_view kPerMillion = "events of a million";
constexpr std::string_view kMilliseconds = "ms";
constexpr std::string_view kTelemetry = "bytes per second";
constexpr std::string_view kCode = "bytes of code";
constexpr uint64_t kEveryEvent = 1'000'000;  // of a million

struct Field {
  std::string_view flag, unit;
  bool (v1::Budget::*has)() const;
  uint64_t (*get)(const v1::Budget&);
  Limit EffectiveBudget::*limit;
};

const Field kFields[] = {
    {"max_sgpr_delta", "SGPRs", &v1::Budget::has_max_sgpr_delta,
     [](const v1::Budget& b) { return uint64_t{b.max_sgpr_delta()}; }, &EffectiveBudget::sgpr},
    {"max_vgpr_delta", "VGPRs", &v1::Budget::has_max_vgpr_delta,
     [](const v1::Budget& b) { return uint64_t{b.max_vgpr_delta()}; }, &EffectiveBudget::vgpr},
    {"max_injected_instructions_per_event", kPerEvent,
     &v1::Budget::has_max_injected_instructions_per_event,
     [](const v1::Budget& b) { return uint64_t{b.max_injected_instructions_per_event()}; },
     &EffectiveBudget::instructions},
    {"max_telemetry_bytes_per_second", "bytes per second",
     &v1::Budget::has_max_telemetry_bytes_per_second,
     [](const v1::Budget& b) { return uint64_t{b.max_telemetry_bytes_per_second()}; },
     &EffectiveBudget::telemetry},
    {"max_code_growth_bytes", kCode, &v1::Budget::has_max_code_growth_bytes,
     [](const v1::Budget& b) { return uint64_t{b.max_code_growth_bytes()}; },
     &EffectiveBudget::code_growth},
    {"max_occupancy_loss", kWavefronts, &v1::Budget::has_max_occupancy_loss,
     [](const v1::Budget& b) { return uint64_t{b.max_occupancy_loss()}; },
     &EffectiveBudget::occupancy_loss},
    {"max_agpr_delta", kAgprs, &v1::Budget::has_max_agpr_delta,
     [](const v1::Budget& b) { return uint64_t{b.max_agpr_delta()}; }, &EffectiveBudget::agpr},
    {"max_local_memory_delta", kScratchBytes, &v1::Budget::has_max_local_memory_delta,
     [](const v1::Budget& b) { return uint64_t{b.max_local_memory_delta()}; },
     &EffectiveBudget::scratch},
    {"max_shared_memory_delta", kLdsBytes, &v1::Budget::has_max_shared_memory_delta,
     [](const v1::Budget& b) { return uint64_t{b.max_shared_memory_delta()}; },
     &EffectiveBudget::lds},
    {"max_sampled_event_fraction", kPerMillion, &v1::Budget::has_max_sampled_event_fraction,
     [](const v1::Budget& b) { return uint64_t{b.max_sampled_event_fraction()}; },
     &EffectiveBudget::sampled_fraction},
    {"max_admission_time_ms", kMilliseconds, &v1::Budget::has_max_admission_time_ms,
     [](const v1::Budget& b) { return uint64_t{b.max_admission_time_ms()}; },
     &EffectiveBudget::admission_time},
};

Limit Effective(const Field& f, const v1::Budget& asked, const Policy& policy) {
  Limit limit;
  if ((policy.defaults.*f.has)()) limit = {f.get(policy.defaults), kFromDefault};
  if ((asked.*f.has)()) limit = {f.get(asked), kFromAttachment};
  const bool tighter = (policy.ceiling.*f.has)() && f.get(policy.ceiling) < limit.value;
  return tighter ? Limit{f.get(policy.ceiling), kFromCeiling} : limit;
}

Limit Ceiling(const Field& f, const v1::Budget&, const Policy& policy) {
  return (policy.ceiling.*f.has)() ? Limit{f.get(policy.ceiling), kFromCeiling} : Limit();
}

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~uint64_t{0} : product;
}

EffectiveBudget Compute(const v1::Budget& asked, const Policy& policy,
                        Limit (*limit)(const Field&, const v1::Budget&, const Policy&)) {
  EffectiveBudget out;
  for (const Field& f : kFields) out.*f.limit = limit(f, asked, policy);
  const bool hint = asked.has_expected_events_per_second();
  out.events_per_second =
      hint ? asked.expected_events_per_second() : policy.defaults.expected_events_per_second();
  out.loop_factor = hint ? 1 : policy.loop_factor;
  out.rate_source = hint ? v1::OPERATOR_HINT : v1::STATIC_LOOP_DEPTH;
  return out;
}

// How the rate is known.
std::string RateText(const EffectiveBudget& budget, const v1::EventRate& rate) {
  if (rate.source() == v1::OPERATOR_HINT) {
    return StrCat(rate.events_per_second(), " events per second and site, as the attachment says");
  }
  std::string text = StrCat(rate.events_per_second(), " events per second of this site, assumed");
  if (rate.loop_depth() == 0) return text;
  return StrCat(text, " from ", budget.events_per_second, " outside loops and a factor of ",
                budget.loop_factor, rate.loop_depth() == 1 ? " for the loop" : " for each of ",
                rate.loop_depth() == 1 ? "" : StrCat(rate.loop_depth(), " loops"), " around it");
}

// Violations are about what the limits are about, when there is no more to say.
std::optional<v1::Violation> Over(std::string_view id, int64_t observed, const Limit& limit,
                                  std::string_view unit, const v1::Location& site,
                                  std::string_view verb) {
  if (observed <= 0 || static_cast<uint64_t>(observed) <= limit.value) return std::nullopt;
  return MakeViolation(id, StrCat(observed, " ", unit), LimitText(limit, unit), site,
                       StrCat("the probe ", verb, " ", observed, " ", unit, ", ", limit.source,
                              " allows ", limit.value));
}

}  // namespace

Policy DefaultPolicy() {
  Policy p;
  p.defaults.set_max_sgpr_delta(16);
  p.defaults.set_max_vgpr_delta(8);
  p.defaults.set_max_injected_instructions_per_event(64);
  // Rates are assumed, and a counter's bytes stay in the GPU's memory: what is refused
  // here would take a good part of that memory's bandwidth (5.3 TB/s on MI300X).
  p.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 40);
  // Wavefronts that reach a site outside loops; in one loop that is 10,000.
  p.defaults.set_expected_events_per_second(1'000);
  p.defaults.set_max_code_growth_bytes(uint64_t{64} << 20);
  p.defaults.set_max_local_memory_delta(0);
  p.defaults.set_max_shared_memory_delta(0);
  p.ceiling.set_max_sgpr_delta(64);
  p.ceiling.set_max_vgpr_delta(64);
  p.ceiling.set_max_injected_instructions_per_event(256);
  p.ceiling.set_max_telemetry_bytes_per_second(uint64_t{4} << 40);
  p.ceiling.set_max_code_growth_bytes(uint64_t{256} << 20);
  return p;
}

EffectiveBudget ComputeBudget(const v1::Budget& asked, const Policy& policy) {
  return Compute(asked, policy, Effective);
}

EffectiveBudget CeilingBudget(const v1::Budget& asked, const Policy& policy) {
  return Compute(asked, policy, Ceiling);
}

v1::EventRate RateAt(const EffectiveBudget& budget, uint32_t loop_depth) {
  v1::EventRate rate;
  rate.set_source(budget.rate_source);
  if (budget.rate_source == v1::STATIC_LOOP_DEPTH) rate.set_loop_depth(loop_depth);
  uint64_t events = budget.events_per_second;
  constexpr uint64_t kMost = ~uint64_t{0};
  for (uint32_t i = 0; i < loop_depth && events != kMost && budget.loop_factor != 1; ++i) {
    events = SaturatingMultiply(events, budget.loop_factor);
    if (events == 0) break;
  }
  rate.set_events_per_second(events);
  return rate;
}

uint64_t TelemetryRate(uint32_t bytes_per_event, const v1::EventRate& rate) {
  return SaturatingMultiply(bytes_per_event, rate.events_per_second());
}

std::string LimitText(const Limit& limit, std::string_view unit) {
  return StrCat(limit.value, " ", unit, " (", limit.source, ")");
}

std::vector<v1::Violation> CheckSiteBudget(const EffectiveBudget& budget,
                                           const v1::ResourceDelta& delta,
                                           const v1::Location& site) {
  std::vector<v1::Violation> out;
  const auto check = [&](std::string_view id, int64_t observed, const Limit& limit,
                         std::string_view unit, std::string_view verb = "needs") {
    if (auto over = Over(id, observed, limit, unit, site, verb)) out.push_back(*std::move(over));
  };
  check(id::kSgprBudget, delta.sgpr(), budget.sgpr, "SGPRs");
  check(id::kVgprBudget, delta.vgpr(), budget.vgpr, "VGPRs");
  check(id::kInstructionBudget, delta.injected_instructions(), budget.instructions, kPerEvent);
  check(id::kAgprBudget, delta.agpr(), budget.agpr, kAgprs);
  check(id::kScratchBudget, delta.scratch_bytes(), budget.scratch, kScratchBytes);
  check(id::kLdsBudget, delta.lds_bytes(), budget.lds, kLdsBytes);
  if (delta.telemetry_bytes_per_event() > 0) {
    check(id::kSampledFraction, kEveryEvent, budget.sampled_fraction, kPerMillion, "looks at");
  }
  const int32_t before = delta.occupancy_waves_before(), after = delta.occupancy_waves_after();
  if (before > after && static_cast<uint64_t>(before - after) > budget.occupancy_loss.value) {
    out.push_back(MakeViolation(id::kOccupancyBudget, StrCat(before - after, " ", kWavefronts),
                                LimitText(budget.occupancy_loss, kWavefronts), site,
                                StrCat("the kernel's occupancy would fall from ", before, " to ",
                                       after, " ", kWavefronts, ", ", budget.occupancy_loss.source,
                                       " allows a loss of ", budget.occupancy_loss.value)));
  }
  return out;
}

std::optional<v1::Violation> TelemetryBudget::Take(uint32_t bytes_per_event,
                                                   const v1::EventRate& rate,
                                                   const v1::Location& site) {
  const uint64_t bytes = TelemetryRate(bytes_per_event, rate);
  const uint64_t total = used_ + bytes < used_ ? ~uint64_t{0} : used_ + bytes;
  if (total <= budget_.telemetry.value) {
    used_ = total;
    return std::nullopt;
  }
  return MakeViolation(
      id::kTelemetryBudget, StrCat(total, " ", kTelemetry),
      LimitText(budget_.telemetry, kTelemetry), site,
      StrCat("with this site the attachment is expected to move ", total, " bytes per second (",
             bytes_per_event, " bytes per event, ", RateText(budget_, rate), "), ",
             budget_.telemetry.source, " allows ", budget_.telemetry.value));
}

std::optional<v1::Violation> CheckCodeGrowth(const EffectiveBudget& budget, int64_t growth) {
  const Limit& limit = budget.code_growth;
  if (growth <= 0 || static_cast<uint64_t>(growth) <= limit.value) return std::nullopt;
  return MakeViolation(id::kCodeGrowthBudget, StrCat(growth, " ", kCode), LimitText(limit, kCode),
                       {},
                       StrCat("with this site the image would grow by up to ", growth, " bytes, ",
                              limit.source, " allows ", limit.value));
}

std::optional<v1::Violation> CheckAdmissionTime(const EffectiveBudget& budget,
                                                uint64_t milliseconds) {
  const Limit& limit = budget.admission_time;
  if (milliseconds <= limit.value) return std::nullopt;
  return MakeViolation(id::kAdmissionTime, StrCat(milliseconds, " ", kMilliseconds),
                       LimitText(limit, kMilliseconds), {},
                       StrCat("judging the code object has taken ", milliseconds, " ms, ",
                              limit.source, " allows ", limit.value));
}

void SetDescriptorDelta(const patch::Generation& generation, uint32_t wavefront_size,
                        const patch::KernelDescriptor& before, const patch::KernelDescriptor& after,
                        v1::ResourceDelta& delta) {
  // gfx908 has a file of its own for them, of the same size as the other.
  if (generation.unified_vgpr_file || generation.family == "gfx908") {
    const auto agprs = [&](const patch::KernelDescriptor& d) {
      return static_cast<int32_t>(DescriptorAllocation(generation, d, wavefront_size).agprs);
    };
    // Fewer: room for them that VGPRs have now.
    delta.set_agpr(std::max(agprs(after) - agprs(before), 0));
  }
  delta.set_scratch_bytes(int64_t{after.private_segment_fixed_size} -
                          int64_t{before.private_segment_fixed_size});
  delta.set_lds_bytes(int64_t{after.group_segment_fixed_size} -
                      int64_t{before.group_segment_fixed_size});
}

std::optional<v1::Violation> SharedSite::Check(uint32_t own, uint32_t overhead, const Limit& limit,
                                               const v1::Location& site) const {
  Limit lowest = limit;
  if (tightest_ && tightest_->value < lowest.value) {
    lowest = *tightest_;
    if (lowest.source == kFromAttachment) lowest.source = kFromEarlier;
  }
  const uint64_t total = uint64_t{overhead} + used_ + own;
  if (total <= lowest.value) return std::nullopt;
  const size_t others = holders_.size();
  std::string message = StrCat("the probe needs ", total, " ", kPerEvent, ", ", lowest.source,
                               " allows ", lowest.value);
  if (others > 0) {
    message = StrCat("with this probe the site executes ", total, " ", kPerEvent, ", ",
                     lowest.source, " allows ", lowest.value, "; the ", others,
                     others == 1 ? " probe before it takes " : " probes before it take ", used_);
  }
  v1::Violation v = MakeViolation(id::kInstructionBudget, StrCat(total, " ", kPerEvent),
                                  LimitText(lowest, kPerEvent), site, message);
  for (const std::string& holder : holders_) v.add_taken_by(holder);
  return v;
}

void SharedSite::Take(uint32_t own, const Limit& limit, const std::string& attachment) {
  used_ += own;
  if (!tightest_ || limit.value < tightest_->value) tightest_ = limit;
  holders_.push_back(attachment);
}

std::vector<v1::Violation> CheckCeiling(const v1::Budget& asked, const Policy& policy) {
  std::vector<v1::Violation> out;
  for (const Field& f : kFields) {
    if (!(asked.*f.has)() || !(policy.ceiling.*f.has)()) continue;
    if (f.get(asked) <= f.get(policy.ceiling)) continue;
    out.push_back(MakeViolation(
        id::kOverCeiling, StrCat(f.get(asked), " ", f.unit),
        LimitText({f.get(policy.ceiling), kFromCeiling}, f.unit), {},
        StrCat(f.flag, " is ", f.get(asked), ", the daemon's ceiling is ", f.get(policy.ceiling))));
  }
  return out;
}

}  // namespace rjdbi::contract
