// See dry_run.h.
#include "contract/dry_run.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "contract/catalogue.h"

namespace rjdbi::contract {
namespace {

bool Attached(v1::Outcome outcome) {
  return outcome == v1::VERIFIED_ATTACH || outcome == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

v1::Decision DryForm(v1::Decision form) {
  if (!Attached(form.outcome())) return form;
  form.set_would_be(form.outcome());
  form.set_outcome(v1::DRY_RUN);
  form.clear_counter_count();
  form.clear_record_layout();
  return form;
}

// Copies what one table names into another.
class TableWriter {
 public:
  TableWriter(const v1::DecisionTable& from, v1::DecisionTable& to) : from_(from), to_(to) {
    // A column that is left out names the first text, which is empty.
    if (to_.instructions().empty()) to_.add_instructions("");
    texts_[0] = 0;
  }

  void Add(v1::KernelDecisions group) {
    group.clear_counter_index();
    group.clear_record_site();
    for (uint32_t& form : *group.mutable_form()) form = Form(form);
    for (uint32_t& text : *group.mutable_instruction()) text = Text(text);
    *to_.add_kernels() = std::move(group);
  }

 private:
  uint32_t Form(uint32_t form) {
    const auto [found, fresh] = forms_.emplace(form, static_cast<uint32_t>(to_.forms_size()));
    if (fresh) *to_.add_forms() = DryForm(from_.forms(static_cast<int>(form)));
    return found->second;
  }
  uint32_t Text(uint32_t text) {
    const auto [found, fresh] =
        texts_.emplace(text, static_cast<uint32_t>(to_.instructions_size()));
    if (fresh) to_.add_instructions(from_.instructions(static_cast<int>(text)));
    return found->second;
  }

  const v1::DecisionTable& from_;
  v1::DecisionTable& to_;
  std::map<uint32_t, uint32_t> forms_, texts_;
};

v1::Coverage DryCoverage(v1::Coverage row) {
  row.set_dry_run(row.attached() + row.degraded());
  row.set_dry_run_degraded(row.degraded());
  row.clear_attached();
  row.clear_degraded();
  row.mutable_dry_run_degradations()->Swap(row.mutable_degradations());
  row.clear_degradations();
  row.clear_placement();
  return row;
}

}  // namespace

bool IsDryRun(const v1::Attachment& attachment) {
  return attachment.spec().mode() == v1::MODE_DRYRUN;
}

void AddDryRuns(const v1::AdmissionRecord& asked, const std::vector<v1::Attachment>& attachments,
                v1::AdmissionRecord& record) {
  std::set<std::string> dry;
  for (const v1::Attachment& a : attachments) {
    if (IsDryRun(a)) dry.insert(a.id());
  }
  TableWriter writer(asked.table(), *record.mutable_table());
  for (const v1::KernelDecisions& group : asked.table().kernels()) {
    if (dry.count(group.attachment_id()) != 0) writer.Add(group);
  }
  if (record.table().kernels().empty()) record.clear_table();
  for (const v1::Coverage& row : asked.coverage()) {
    if (dry.count(row.attachment_id()) != 0) *record.add_coverage() = DryCoverage(row);
  }
  // What became of the image that is not shipped is in its sites' decisions.
  const std::set<std::string_view> of_the_image = {id::kValidationFailed, id::kEngineFault};
  std::set<std::string> known;
  for (const v1::Violation& v : record.object_violations()) known.insert(v.SerializeAsString());
  for (const v1::Violation& v : asked.object_violations()) {
    if (of_the_image.count(v.constraint_id()) != 0) continue;
    if (known.insert(v.SerializeAsString()).second) *record.add_object_violations() = v;
  }
  record.set_cut_short(record.cut_short() || asked.cut_short());
}

}  // namespace rjdbi::contract
