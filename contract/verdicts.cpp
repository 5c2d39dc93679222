// See verdicts.h.
#include "contract/verdicts.h"

#include <algorithm>
#include <tuple>

#include "contract/catalogue.h"
#include "contract/decisions.h"

namespace rjdbi::contract {

void VerdictTable::Begin(size_t kernel, size_t attachment) {
  groups_.push_back({kernel, attachment, verdicts_.size(), verdicts_.size()});
}

size_t VerdictTable::Add(const Verdict& verdict) {
  verdicts_.push_back(verdict);
  groups_.back().end = verdicts_.size();
  return verdicts_.size() - 1;
}

uint32_t VerdictTable::Text(const patch::KernelAnalysis& kernel, uint32_t i) {
  // An Isa has one for each encoding.
  const auto [found, fresh] = text_of_.try_emplace(&kernel.instructions().Shared(i), 0);
  if (fresh) {
    found->second = static_cast<uint32_t>(texts_.size());
    texts_.push_back(kernel.isa().Print(kernel.code(), kernel.instructions().OffsetOf(i)));
  }
  return found->second;
}

uint32_t VerdictTable::Delta(const v1::ResourceDelta& d) {
  const auto [found, fresh] = place_of_delta_.try_emplace(std::array<int64_t, 10>{
      d.sgpr(), d.vgpr(), d.agpr(), d.scratch_bytes(), d.lds_bytes(), d.injected_instructions(),
      d.telemetry_bytes_per_event(), d.code_bytes(), d.occupancy_waves_before(),
      d.occupancy_waves_after()});
  if (fresh) {
    deltas_.push_back(d);
    found->second = static_cast<uint32_t>(deltas_.size());
  }
  return found->second;
}

uint32_t VerdictTable::Degradations(const std::vector<v1::Degradation>& degradations) {
  if (degradations.empty()) return 0;
  v1::Decision list;
  list.mutable_degradations()->Assign(degradations.begin(), degradations.end());
  return lists_.Add(list);
}

void VerdictTable::AddViolation(Verdict& v, v1::Violation violation) {
  v1::Decision list = lists_[v.violations];
  *list.add_violations() = std::move(violation);
  v.violations = lists_.Add(list);
}

void VerdictTable::CopyViolations(const Verdict& from, const patch::Kernel& kernel, Verdict& to) {
  if (from.violations == 0) {
    to.violations = 0;
    return;
  }
  v1::Location place;
  place.set_kernel(kernel.name);
  place.set_kernel_offset(from.kernel_offset);
  place.set_code_object_vaddr(kernel.entry_vaddr + from.kernel_offset);
  place.set_instruction(texts_[from.instruction]);
  v1::Decision list = lists_[from.violations];
  for (v1::Violation& violation : *list.mutable_violations()) PlaceViolation(place, violation);
  to.violations = lists_.Add(list);
}

uint32_t VerdictTable::Layout(v1::RecordLayout layout) {
  layout.clear_site();
  return layouts_.Add(layout);
}

v1::Decision VerdictTable::Form(const Verdict& v) const {
  v1::Decision form;
  v1::Site& site = *form.mutable_site();
  site.set_site_class(v.site.site_class);
  site.set_movable(v.site.movable);
  if (v.site.immovable != nullptr) {
    site.set_immovable_constraint_id(std::string(v.site.immovable->id));
  }
  site.set_instruction_bytes(v.site.instruction_bytes);
  site.set_scc_live(v.site.scc_live);
  site.set_vcc_live(v.site.vcc_live);
  if (v.site.after) site.set_position(v1::AFTER);
  form.set_outcome(static_cast<v1::Outcome>(v.outcome));
  *form.mutable_violations() = violations(v);
  *form.mutable_degradations() = degradations(v);
  if (v.delta != 0) *form.mutable_delta() = delta(v);
  if (v.effects != 0) *form.mutable_effects() = effects(v);
  form.set_placement(static_cast<v1::Placement>(v.placement));
  form.set_counter_count(v.counter_count);
  if (v.layout != 0) *form.mutable_record_layout() = layout(v);
  if (v.rate != 0) *form.mutable_rate() = rate(v);
  return form;
}

namespace {

// What verdicts of one form agree on.
auto FormKey(const Verdict& v) {
  const SiteFacts& s = v.site;
  return std::tuple(s.immovable, s.site_class, s.instruction_bytes, s.movable, s.scc_live,
                    s.vcc_live, s.after, v.outcome, v.placement, v.violations, v.degradations,
                    v.delta, v.effects, v.layout, v.rate, v.counter_count);
}

}  // namespace

v1::DecisionTable VerdictTable::Write(const std::vector<patch::Kernel>& kernels,
                                      const std::vector<std::string>& ids) const {
  v1::DecisionTable out;
  out.mutable_instructions()->Assign(texts_.begin(), texts_.end());
  absl::flat_hash_map<decltype(FormKey(Verdict())), uint32_t> forms;
  for (const Group& group : groups_) {
    if (group.begin == group.end) continue;
    v1::KernelDecisions& to = *out.add_kernels();
    to.set_kernel(kernels[group.kernel].name);
    to.set_code_object_vaddr(kernels[group.kernel].entry_vaddr);
    to.set_attachment_id(ids[group.attachment]);
    const int count = static_cast<int>(group.end - group.begin);
    const auto fill = [&](auto* column, auto value) {
      column->Reserve(count);
      for (size_t i = group.begin; i < group.end; ++i) {
        column->AddAlreadyReserved(value(verdicts_[i]));
      }
    };
    const auto fill_unless_zero = [&](auto* column, auto value) {
      const auto zero = [&](const Verdict& v) { return value(v) == 0; };
      const auto begin = verdicts_.begin() + static_cast<ptrdiff_t>(group.begin);
      if (!std::all_of(begin, begin + count, zero)) fill(column, value);
    };
    fill(to.mutable_form(), [&](const Verdict& v) {
      const auto [found, fresh] =
          forms.try_emplace(FormKey(v), static_cast<uint32_t>(out.forms_size()));
      if (fresh) *out.add_forms() = Form(v);
      return found->second;
    });
    fill(to.mutable_kernel_offset(), [](const Verdict& v) { return v.kernel_offset; });
    fill_unless_zero(to.mutable_instruction(), [](const Verdict& v) { return v.instruction; });
    fill_unless_zero(to.mutable_free_sgprs(), [](const Verdict& v) { return v.site.free_sgprs; });
    fill_unless_zero(to.mutable_free_vgprs(), [](const Verdict& v) { return v.site.free_vgprs; });
    fill_unless_zero(to.mutable_splits_clause_at(),
                     [](const Verdict& v) { return v.site.splits_clause; });
    fill_unless_zero(to.mutable_counter_index(), [](const Verdict& v) { return v.counter; });
    fill_unless_zero(to.mutable_counted_at(), [](const Verdict& v) { return v.counted_at; });
    fill_unless_zero(to.mutable_record_site(), [](const Verdict& v) { return v.record_site; });
  }
  return out;
}

}  // namespace rjdbi::contract
