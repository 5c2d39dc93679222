// See decisions.h.
#include "contract/decisions.h"

#include <algorithm>

namespace rjdbi::contract {
namespace {

template <typename Column>
auto Entry(const Column& column, size_t i) {
  using Value = typename Column::value_type;
  return i < static_cast<size_t>(column.size()) ? column.Get(static_cast<int>(i)) : Value();
}

template <typename Messages>
const auto& Named(const Messages& messages, uint32_t i) {
  using Message = typename Messages::value_type;
  static const Message none;
  return i < static_cast<size_t>(messages.size()) ? messages.Get(static_cast<int>(i)) : none;
}

std::optional<uint32_t> LessOne(uint32_t value) {
  return value == 0 ? std::nullopt : std::optional<uint32_t>(value - 1);
}

}  // namespace

void PlaceViolation(const v1::Location& site, v1::Violation& violation) {
  if (!violation.has_location() || !violation.location().kernel().empty()) return;
  v1::Location& to = *violation.mutable_location();
  to.set_kernel(site.kernel());
  to.set_kernel_offset(site.kernel_offset());
  to.set_code_object_vaddr(site.code_object_vaddr());
  if (!to.in_probe()) to.set_instruction(site.instruction());
}

size_t DecisionGroup::size() const {
  return single_ != nullptr ? 1 : static_cast<size_t>(group_->kernel_offset_size());
}

const std::string& DecisionGroup::kernel() const {
  return single_ != nullptr ? single_->site().location().kernel() : group_->kernel();
}

const std::string& DecisionGroup::attachment_id() const {
  return single_ != nullptr ? single_->attachment_id() : group_->attachment_id();
}

const v1::Decision& DecisionGroup::Form(size_t i) const {
  return single_ != nullptr ? *single_ : Named(table_->forms(), Entry(group_->form(), i));
}

uint64_t DecisionGroup::kernel_offset(size_t i) const {
  return single_ != nullptr ? single_->site().location().kernel_offset()
                            : Entry(group_->kernel_offset(), i);
}

std::optional<uint32_t> DecisionGroup::counter_index(size_t i) const {
  if (single_ == nullptr) return LessOne(Entry(group_->counter_index(), i));
  if (!single_->has_counter_index()) return std::nullopt;
  return single_->counter_index();
}

v1::Location DecisionGroup::Location(size_t i) const {
  if (single_ != nullptr) return single_->site().location();
  v1::Location place;
  place.set_kernel(group_->kernel());
  place.set_kernel_offset(kernel_offset(i));
  place.set_code_object_vaddr(group_->code_object_vaddr() + kernel_offset(i));
  place.set_instruction(Named(table_->instructions(), Entry(group_->instruction(), i)));
  return place;
}

v1::RecordLayout DecisionGroup::RecordLayout(size_t i) const {
  v1::RecordLayout layout = Form(i).record_layout();
  if (single_ == nullptr) layout.set_site(Entry(group_->record_site(), i));
  return layout;
}

v1::Decision DecisionGroup::At(size_t i) const {
  v1::Decision decision = Form(i);
  if (single_ != nullptr) return decision;
  decision.set_attachment_id(group_->attachment_id());
  v1::Site& site = *decision.mutable_site();
  *site.mutable_location() = Location(i);
  site.set_free_sgprs(Entry(group_->free_sgprs(), i));
  site.set_free_vgprs(Entry(group_->free_vgprs(), i));
  if (const auto at = LessOne(Entry(group_->splits_clause_at(), i))) {
    site.set_splits_clause_at(*at);
  }
  for (v1::Violation& violation : *decision.mutable_violations()) {
    PlaceViolation(site.location(), violation);
  }
  if (const auto counter = counter_index(i)) decision.set_counter_index(*counter);
  if (const auto at = LessOne(Entry(group_->counted_at(), i))) decision.set_counted_at(*at);
  if (decision.has_record_layout()) {
    decision.mutable_record_layout()->set_site(Entry(group_->record_site(), i));
  }
  return decision;
}

std::vector<DecisionGroup> DecisionGroups(const v1::AdmissionRecord& record) {
  std::vector<DecisionGroup> groups;
  for (const v1::Decision& decision : record.decisions()) groups.emplace_back(decision);
  for (const v1::KernelDecisions& group : record.table().kernels()) {
    if (group.kernel_offset_size() > 0) groups.emplace_back(record.table(), group);
  }
  return groups;
}

Decisions::Decisions(const v1::AdmissionRecord& record) : groups_(DecisionGroups(record)) {
  for (const DecisionGroup& group : groups_) begins_.push_back(begins_.back() + group.size());
}

v1::Decision Decisions::operator[](size_t i) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), i);
  const auto group = static_cast<size_t>(after - begins_.begin()) - 1;
  return groups_[group].At(i - begins_[group]);
}

v1::AdmissionRecord Expanded(v1::AdmissionRecord record) {
  v1::AdmissionRecord table;
  table.mutable_table()->Swap(record.mutable_table());
  record.clear_table();
  for (v1::Decision&& decision : Decisions(table)) *record.add_decisions() = std::move(decision);
  return record;
}

}  // namespace rjdbi::contract
