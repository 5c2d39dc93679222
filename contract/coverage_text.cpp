// See coverage_text.h.
#include "contract/coverage_text.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "contract/coverage.h"
#include "contract/natural_order.h"
#include "contract/reduction.h"
#include "contract/render.h"
#include "contract/text.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::contract {
namespace {

std::string Sites(uint64_t n) { return StrCat(n, n == 1 ? " site" : " sites"); }

std::string EstimateLine(const v1::Coverage& sum) {
  if (sum.expected_events_per_second() == 0) return "";
  const std::string source = sum.rate_source() == v1::OPERATOR_HINT ? "by the attachment's own word"
                             : sum.rate_source() == v1::STATIC_LOOP_DEPTH
                                 ? "assumed from loops around the sites"
                                 : "from several sources";
  return StrCat("expected ", sum.expected_events_per_second(), " events and ",
                sum.expected_telemetry_bytes_per_second(), " bytes per second, ", source);
}

std::string StepLine(const v1::Reduction& step) {
  std::string text = StrCat("reduced by ", ReductionName(step.step()), " (",
                            patch::Printable(step.constraint_id()), "): ", step.probes_before(),
                            " probes to ", step.probes_after());
  if (step.step() != v1::REDUCE_ROTATE) return text;
  return StrCat(text, ", window ", step.window() + 1, " of ", step.windows(), " (--rotation ",
                step.window(), ")");
}

std::string DryRunLine(const v1::Coverage& sum) {
  if (sum.dry_run() == 0) return "";
  const std::string degraded = sum.dry_run_degraded() == 0
                                   ? ""
                                   : StrCat(", ", sum.dry_run_degraded(), " of them degraded (",
                                            ReasonList(sum.dry_run_degradations()), ")");
  return StrCat("a dry run, nothing of it is attached; ", sum.dry_run(), " of ",
                Sites(sum.requested()), " would be", degraded);
}

}  // namespace

std::string RenderBudgetLines(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage) {
  std::map<std::string, v1::Coverage, NaturalOrder> sums;
  // A step is taken in an object, and said in the row of each kernel.
  std::map<std::string, std::vector<std::string>, NaturalOrder> steps;
  std::set<std::pair<std::string, std::string>> said;
  for (const v1::Coverage& row : coverage) {
    AddCoverage(sums[row.attachment_id()], row);
    for (const v1::Reduction& step : row.reductions()) {
      std::string line = StrCat(StepLine(step), " in code object ",
                                patch::Printable(row.code_object_sha256().substr(0, 12)));
      if (said.insert({row.attachment_id(), line}).second) {
        steps[row.attachment_id()].push_back(std::move(line));
      }
    }
  }
  std::string out;
  for (const auto& [id, sum] : sums) {
    const auto say = [&, name = patch::Printable(id)](const std::string& line) {
      if (!line.empty()) StrAppend(&out, "attachment ", name, ": ", line, "\n");
    };
    say(DryRunLine(sum));
    for (const std::string& step : steps[id]) say(step);
    say(EstimateLine(sum));
  }
  return out;
}

std::string RefusedParts(const v1::Coverage& c) {
  std::string out;
  for (const auto& [sites, what] :
       {std::pair(c.unsupported(), "unsupported"), std::pair(c.rejected(), "rejected"),
        std::pair(c.over_budget(), "over budget")}) {
    if (sites != 0) StrAppend(&out, out.empty() ? " = " : " + ", sites, " ", what);
  }
  return out;
}

std::string LeftOutParts(const v1::Coverage& c) {
  std::string out;
  if (c.rotated_out() != 0) StrAppend(&out, ", ", c.rotated_out(), " rotated out");
  if (c.dry_run() == 0) return out;
  StrAppend(&out, ", ", c.dry_run(), " dry run");
  if (c.dry_run_degraded() == 0) return out;
  StrAppend(&out, " (", c.dry_run_degraded(),
            " of them degraded: ", ReasonList(c.dry_run_degradations()), ")");
  return out;
}

std::string WouldBe(const v1::Decision& decision) {
  return decision.would_be() == v1::ATTACH_WITH_DECLARED_DEGRADATION ? "would be attached, degraded"
                                                                     : "would be attached";
}

}  // namespace rjdbi::contract
