#include "daemon/load_record.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/decisions.h"

namespace rjdbi::daemon {
namespace {

// "#3" is the fourth attachment of that load. SIZE_MAX: the record names none.
size_t IndexOf(const LoadRecord& load, const std::string& canonical) {
  size_t index = SIZE_MAX;
  if (load.question == nullptr || !absl::StartsWith(canonical, "#") ||
      !absl::SimpleAtoi(canonical.substr(1), &index)) {
    return SIZE_MAX;
  }
  return index < load.question->ids.size() ? index : SIZE_MAX;
}

std::string ProbeOf(const LoadRecord& load, const std::string& canonical) {
  const size_t index = IndexOf(load, canonical);
  return index == SIZE_MAX ? "" : load.question->wanted[index].spec().probe();
}

// Of a site with a counter.
v1::SiteCount CountOf(const LoadRecord& load, const contract::DecisionGroup& group, size_t i) {
  v1::SiteCount count;
  count.set_attachment_id(RealId(load, group.attachment_id()));
  count.set_session_id(load.session_id);
  count.set_probe(ProbeOf(load, group.attachment_id()));
  *count.mutable_location() = group.Location(i);
  const uint32_t counter = *group.counter_index(i);
  count.set_count(load.counters[counter]);
  const size_t end = size_t{counter} + group.Form(i).counter_count();
  for (size_t word = counter; word < std::min(end, load.counters.size()); ++word) {
    count.add_words(load.counters[word]);
  }
  count.set_outcome(group.Form(i).outcome());
  count.set_code_object_sha256(load.sha256);
  count.set_load_id(load.load_id);
  count.set_final(load.final);
  if (!group.has_record_layout(i) || load.records == nullptr) return count;
  *count.mutable_record_layout() = group.RecordLayout(i);
  *count.mutable_records() = load.records->Counts(count.record_layout().site(), count.count());
  count.set_count(count.records().device_full() + count.records().read());
  return count;
}

}  // namespace

bool Attached(v1::Outcome outcome) {
  return outcome == v1::VERIFIED_ATTACH || outcome == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

std::string RealId(const LoadRecord& load, const std::string& canonical) {
  const size_t index = IndexOf(load, canonical);
  return index == SIZE_MAX ? canonical : load.question->ids[index];
}

v1::Coverage CoverageOf(const LoadRecord& load, const v1::Coverage& decided) {
  v1::Coverage coverage = decided;
  coverage.set_attachment_id(RealId(load, decided.attachment_id()));
  const uint64_t lost = decided.attached() + decided.degraded();
  if (load.in_place() || lost == 0) return coverage;
  coverage.clear_attached();
  coverage.clear_degraded();
  coverage.clear_degradations();
  coverage.clear_placement();
  coverage.clear_expected_events_per_second();
  coverage.clear_expected_telemetry_bytes_per_second();
  coverage.clear_rate_source();
  coverage.set_unsupported(coverage.unsupported() + lost);
  contract::CountReason(*coverage.mutable_refused(), contract::ForGap(load.not_in_place).id, lost);
  return coverage;
}

v1::Decision DecisionOf(const LoadRecord& load, const v1::Decision& decided) {
  v1::Decision decision = decided;
  decision.set_attachment_id(RealId(load, decided.attachment_id()));
  for (v1::Violation& violation : *decision.mutable_violations()) {
    for (std::string& id : *violation.mutable_taken_by()) id = RealId(load, id);
  }
  if (load.in_place() || !Attached(decided.outcome())) return decision;
  decision.set_outcome(v1::UNSUPPORTED_SITE);
  decision.clear_counter_index();
  decision.clear_record_layout();
  decision.clear_counter_count();
  decision.clear_degradations();
  decision.clear_placement();
  decision.clear_rate();
  *decision.add_violations() =
      contract::MakeViolation(contract::ForGap(load.not_in_place).id, "the original was loaded", "",
                              decided.site().location());
  return decision;
}

std::vector<v1::SiteCount> CountsOf(const LoadRecord& load) {
  std::vector<v1::SiteCount> counts;
  if (load.decision == nullptr || !load.in_place()) return counts;
  for (const contract::DecisionGroup& group : contract::DecisionGroups(load.decision->record)) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (group.counter_index(i).value_or(UINT32_MAX) >= load.counters.size()) continue;
      counts.push_back(CountOf(load, group, i));
    }
  }
  return counts;
}

}  // namespace rjdbi::daemon
