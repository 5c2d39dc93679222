// See budget.h.
#include "contract/budget.h"

#include <utility>

#include "contract/catalogue.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

constexpr std::string_view kFromAttachment = "the attachment";
constexpr std::string_view kFromCeiling = "the daemon's ceiling";
constexpr std::string_view kFromDefault = "the daemon's default";
constexpr std::string_view kFromEarlier = "an earlier attachment";
constexpr std::string_view kPerEvent = "instructions per event";
constexpr std::string_view kWavefronts = "wavefronts per SIMD";

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
    {"max_code_growth_bytes", "bytes of code", &v1::Budget::has_max_code_growth_bytes,
     [](const v1::Budget& b) { return uint64_t{b.max_code_growth_bytes()}; },
     &EffectiveBudget::code_growth},
    {"max_occupancy_loss", kWavefronts, &v1::Budget::has_max_occupancy_loss,
     [](const v1::Budget& b) { return uint64_t{b.max_occupancy_loss()}; },
     &EffectiveBudget::occupancy_loss},
};

Limit Effective(const Field& f, const v1::Budget& asked, const Policy& policy) {
  Limit limit;
  if ((policy.defaults.*f.has)()) limit = {f.get(policy.defaults), kFromDefault};
  if ((asked.*f.has)()) limit = {f.get(asked), kFromAttachment};
  const bool tighter = (policy.ceiling.*f.has)() && f.get(policy.ceiling) < limit.value;
  return tighter ? Limit{f.get(policy.ceiling), kFromCeiling} : limit;
}

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~uint64_t{0} : product;
}

}  // namespace

Policy DefaultPolicy() {
  Policy p;
  p.defaults.set_max_sgpr_delta(16);
  p.defaults.set_max_vgpr_delta(8);
  p.defaults.set_max_injected_instructions_per_event(64);
  p.defaults.set_max_telemetry_bytes_per_second(uint64_t{4} << 30);
  p.defaults.set_expected_events_per_second(10'000);
  p.defaults.set_max_code_growth_bytes(uint64_t{64} << 20);
  p.ceiling.set_max_sgpr_delta(64);
  p.ceiling.set_max_vgpr_delta(64);
  p.ceiling.set_max_injected_instructions_per_event(256);
  p.ceiling.set_max_telemetry_bytes_per_second(uint64_t{64} << 30);
  p.ceiling.set_max_code_growth_bytes(uint64_t{256} << 20);
  return p;
}

EffectiveBudget ComputeBudget(const v1::Budget& asked, const Policy& policy) {
  EffectiveBudget out;
  for (const Field& f : kFields) out.*f.limit = Effective(f, asked, policy);
  out.events_per_second = asked.has_expected_events_per_second()
                              ? asked.expected_events_per_second()
                              : policy.defaults.expected_events_per_second();
  return out;
}

std::string LimitText(const Limit& limit, std::string_view unit) {
  return StrCat(limit.value, " ", unit, " (", limit.source, ")");
}

std::vector<v1::Violation> CheckSiteBudget(const EffectiveBudget& budget,
                                           const v1::ResourceDelta& delta,
                                           const v1::Location& site) {
  std::vector<v1::Violation> out;
  const auto check = [&](std::string_view id, int64_t observed, const Limit& limit,
                         std::string_view unit) {
    if (observed <= 0 || static_cast<uint64_t>(observed) <= limit.value) return;
    out.push_back(MakeViolation(id, StrCat(observed, " ", unit), LimitText(limit, unit), site,
                                StrCat("the probe needs ", observed, " ", unit, ", ", limit.source,
                                       " allows ", limit.value)));
  };
  check(id::kSgprBudget, delta.sgpr(), budget.sgpr, "SGPRs");
  check(id::kVgprBudget, delta.vgpr(), budget.vgpr, "VGPRs");
  check(id::kInstructionBudget, delta.injected_instructions(), budget.instructions, kPerEvent);
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
                                                   const v1::Location& site) {
  const uint64_t rate = SaturatingMultiply(bytes_per_event, budget_.events_per_second);
  const uint64_t total = used_ + rate < used_ ? ~uint64_t{0} : used_ + rate;
  if (total <= budget_.telemetry.value) {
    used_ = total;
    return std::nullopt;
  }
  return MakeViolation(id::kTelemetryBudget, StrCat(total, " bytes per second"),
                       LimitText(budget_.telemetry, "bytes per second"), site,
                       StrCat("with this site the attachment is expected to move ", total,
                              " bytes per second (", bytes_per_event, " bytes per event, ",
                              budget_.events_per_second, " events per second and site), ",
                              budget_.telemetry.source, " allows ", budget_.telemetry.value));
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
