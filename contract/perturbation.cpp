// See perturbation.h.
#include "contract/perturbation.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/decisions.h"
#include "contract/occupancy.h"
#include "contract/render.h"
#include "contract/text.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/generation.h"

namespace rjdbi::contract {

// What the decisions say of one kernel.
struct PerturbationTally::KernelSites {
  bool patched = false, cloned = false;
  uint64_t code_added = 0;
  std::optional<int32_t> declared_waves;  // lowest occupancy that a degradation declares
};

namespace {

using Growth = std::pair<const char*, int32_t>;

bool Attached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

bool DeclaresOccupancy(const v1::Decision& d) {
  return std::any_of(d.degradations().begin(), d.degradations().end(),
                     [](const auto& g) { return g.constraint_id() == id::kOccupancyFalls; });
}

// The nearest rank: the smallest value that so many percent do not exceed.
uint32_t Percentile(const std::map<uint32_t, uint64_t>& values, uint64_t count, uint64_t percent) {
  const uint64_t rank = std::max<uint64_t>(1, (count * percent + 99) / 100);
  uint64_t seen = 0;
  for (const auto& [value, sites] : values) {
    seen += sites;
    if (seen >= rank) return value;
  }
  return 0;
}

v1::Percentiles PercentilesOf(const std::map<uint32_t, uint64_t>& values) {
  v1::Percentiles out;
  uint64_t count = 0;
  for (const auto& [value, sites] : values) count += sites;
  out.set_count(count);
  if (values.empty()) return out;
  out.set_median(Percentile(values, count, 50));
  out.set_p90(Percentile(values, count, 90));
  out.set_max(values.rbegin()->first);
  return out;
}

std::map<std::string, const patch::Kernel*> ByName(const patch::CodeObject& object) {
  std::map<std::string, const patch::Kernel*> out;
  for (const patch::Kernel& kernel : object.kernels()) out[kernel.name] = &kernel;
  return out;
}

std::string ProcessorOf(const v1::AdmissionRecord& record) {
  const std::string& isa = record.isa();  // "amdgcn-amd-amdhsa--gfx90a:xnack-"
  const size_t begin = isa.rfind("--");
  if (begin == std::string::npos) return isa;
  return isa.substr(begin + 2, isa.find(':', begin) - begin - 2);
}

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return StrCat(part, " of 0");
  // Never rounded up to all of them.
  const double percent = std::min(100.0 * static_cast<double>(part) / static_cast<double>(whole),
                                  part == whole ? 100.0 : 99.99);
  return absl::StrFormat("%d of %d (%.2f %%)", part, whole, percent);
}

}  // namespace

void PerturbationTally::Add(const std::string& probe, absl::Span<const uint8_t> original,
                            const Admission& admission) {
  const v1::AdmissionRecord& record = admission.record;
  Row& row = rows_[{probe, ProcessorOf(record)}];
  v1::Perturbation& sums = row.sums;
  if (record.object_violations_size() > 0) sums.set_objects_refused(sums.objects_refused() + 1);
  const Decisions decisions(record);
  if (decisions.empty()) return;
  sums.set_objects(sums.objects() + 1);
  std::map<std::string, KernelSites> kernels;
  for (const v1::Decision& d : decisions) {
    KernelSites& kernel = kernels[d.site().location().kernel()];
    sums.set_sites(sums.sites() + 1);
    if (!Attached(d)) {
      CountReason(*sums.mutable_refused(), d.violations(0).constraint_id(), 1);
      continue;
    }
    sums.set_sites_admitted(sums.sites_admitted() + 1);
    kernel.patched = true;
    std::set<std::string> ids;
    for (const v1::Degradation& g : d.degradations()) ids.insert(g.constraint_id());
    for (const std::string& id : ids) CountReason(*sums.mutable_degradations(), id, 1);
    if (d.has_counted_at()) continue;  // carries nothing itself
    const v1::ResourceDelta& delta = d.delta();
    ++row.injected[delta.injected_instructions()];
    for (const auto& [registers, by] :
         {Growth{"SGPR", delta.sgpr()}, Growth{"VGPR", delta.vgpr()}}) {
      if (by > 0) ++row.growth[{registers, static_cast<uint32_t>(by)}].sites;
    }
    if (delta.sgpr() <= 0 && delta.vgpr() <= 0) {
      sums.set_sites_inside_allocation(sums.sites_inside_allocation() + 1);
    }
    if (DeclaresOccupancy(d)) {
      const int32_t waves = delta.occupancy_waves_after();
      kernel.declared_waves = std::min(waves, kernel.declared_waves.value_or(waves));
    }
  }
  for (const v1::Coverage& c : record.coverage()) {
    if (!c.has_placement()) continue;
    kernels[c.kernel()].cloned = c.placement().placement() == v1::CLONE;
    kernels[c.kernel()].code_added = static_cast<uint64_t>(c.placement().code_bytes());
  }
  sums.set_kernels(sums.kernels() + kernels.size());
  if (!admission.patched.empty()) AddKernels(kernels, original, admission, row);
}

void PerturbationTally::AddKernels(const std::map<std::string, KernelSites>& kernels,
                                   absl::Span<const uint8_t> original, const Admission& admission,
                                   Row& row) {
  v1::Perturbation& sums = row.sums;
  const auto before = patch::CodeObject::Parse(original);
  const auto after = patch::CodeObject::Parse(admission.patched);
  const auto found = before.ok() ? patch::FindGeneration(before->target().processor)
                                 : absl::StatusOr<const patch::Generation*>(before.status());
  if (!after.ok() || !found.ok()) {  // nothing that ships can be like this
    sums.set_objects_refused(sums.objects_refused() + 1);
    return;
  }
  const patch::Generation& generation = **found;
  sums.set_objects_patched(sums.objects_patched() + 1);
  sums.set_bytes_before(sums.bytes_before() + original.size());
  sums.set_bytes_after(sums.bytes_after() + admission.patched.size());
  auto before_by_name = ByName(*before), after_by_name = ByName(*after);
  for (const auto& [name, sites] : kernels) {
    const patch::Kernel* was = before_by_name[name];
    const patch::Kernel* is = after_by_name[name];
    if (!sites.patched || was == nullptr || is == nullptr) continue;
    sums.set_kernels_patched(sums.kernels_patched() + 1);
    sums.set_kernels_cloned(sums.kernels_cloned() + (sites.cloned ? 1 : 0));
    sums.set_code_before(sums.code_before() + was->code_size);
    sums.set_code_added(sums.code_added() + sites.code_added);
    const Shape old_shape = KernelShape(generation, *was), shape = KernelShape(generation, *is);
    const int32_t sgprs = static_cast<int32_t>(shape.sgprs) - static_cast<int32_t>(old_shape.sgprs);
    const int32_t vgprs = static_cast<int32_t>(shape.vgprs) - static_cast<int32_t>(old_shape.vgprs);
    for (const auto& [registers, by] : {Growth{"SGPR", sgprs}, Growth{"VGPR", vgprs}}) {
      if (by > 0) ++row.growth[{registers, static_cast<uint32_t>(by)}].kernels;
    }
    if (sgprs <= 0 && vgprs <= 0) {
      sums.set_kernels_inside_allocation(sums.kernels_inside_allocation() + 1);
    }
    const int32_t old_waves = WavesPerSimd(generation, old_shape);
    const int32_t waves = WavesPerSimd(generation, shape);
    if (waves >= old_waves) {
      sums.set_kernels_same_occupancy(sums.kernels_same_occupancy() + 1);
      continue;
    }
    Row::Step& step = row.steps[{old_waves, waves}];
    ++step.kernels;
    const bool declared = sites.declared_waves && *sites.declared_waves <= waves;
    if (declared) {
      ++step.declared;
    } else {
      sums.set_kernels_undeclared_step(sums.kernels_undeclared_step() + 1);
    }
  }
}

std::vector<v1::Perturbation> PerturbationTally::Rows() const {
  std::vector<v1::Perturbation> out;
  for (const auto& [key, row] : rows_) {
    v1::Perturbation& p = out.emplace_back(row.sums);
    p.set_probe(key.first);
    p.set_processor(key.second);
    *p.mutable_injected_instructions() = PercentilesOf(row.injected);
    for (const auto& [what, grown] : row.growth) {
      v1::AllocationGrowth* g = p.add_growth();
      g->set_registers(what.first);
      g->set_by(what.second);
      g->set_kernels(grown.kernels);
      g->set_sites(grown.sites);
    }
    for (const auto& [waves, step] : row.steps) {
      v1::OccupancyStep* s = p.add_occupancy_steps();
      s->set_waves_before(waves.first);
      s->set_waves_after(waves.second);
      s->set_kernels(step.kernels);
      s->set_declared(step.declared);
    }
  }
  return out;
}

std::string RenderPerturbation(const v1::Perturbation& p) {
  const v1::Percentiles& injected = p.injected_instructions();
  const auto line = [](std::string_view name, const std::string& value) {
    return absl::StrFormat("  %-34s %s\n", std::string(name), value);
  };
  std::string out =
      StrCat(p.probe(), " on ", p.processor().empty() ? "unknown objects" : p.processor(), "\n");
  StrAppend(&out, line("objects", StrCat(p.objects(), ", ", p.objects_patched(), " patched, ",
                                         p.objects_refused(), " refused")));
  StrAppend(&out, line("kernels", StrCat(p.kernels(), ", ", p.kernels_patched(), " patched (",
                                         p.kernels_cloned(), " as clones)")));
  StrAppend(&out, line("sites admitted", Share(p.sites_admitted(), p.sites())));
  for (const v1::ReasonCount& r : p.refused()) {
    StrAppend(&out, line(StrCat("  refused, ", r.constraint_id()), StrCat(r.sites())));
  }
  for (const v1::ReasonCount& r : p.degradations()) {
    StrAppend(&out, line(StrCat("  degraded, ", r.constraint_id()), StrCat(r.sites())));
  }
  StrAppend(&out, line("instructions per event",
                       StrCat("median ", injected.median(), ", 90 % at most ", injected.p90(),
                              ", at most ", injected.max(), " (", injected.count(), " sites)")));
  StrAppend(&out, line("kernels of unchanged occupancy",
                       Share(p.kernels_same_occupancy(), p.kernels_patched())));
  for (const v1::OccupancyStep& s : p.occupancy_steps()) {
    StrAppend(&out, line(StrCat("  ", s.waves_before(), " to ", s.waves_after(), " waves per SIMD"),
                         StrCat(s.kernels(), " kernels, declared of ", s.declared())));
  }
  StrAppend(&out, line("kernels within their allocation",
                       Share(p.kernels_inside_allocation(), p.kernels_patched())));
  StrAppend(&out, line("sites within it", Share(p.sites_inside_allocation(), injected.count())));
  for (const v1::AllocationGrowth& g : p.growth()) {
    StrAppend(&out, line(StrCat("  ", g.registers(), "s grown by ", g.by()),
                         StrCat(g.kernels(), " kernels, ", g.sites(), " sites")));
  }
  const auto ratio = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  StrAppend(&out, line("image size", absl::StrFormat("%.2fx (%d to %d bytes)",
                                                     ratio(p.bytes_after(), p.bytes_before()),
                                                     p.bytes_before(), p.bytes_after())));
  StrAppend(&out, line("code of patched kernels",
                       absl::StrFormat("%d bytes, %d added (%.2fx as much)", p.code_before(),
                                       p.code_added(), ratio(p.code_added(), p.code_before()))));
  if (p.kernels_undeclared_step() > 0) {
    StrAppend(&out, "  BUG: ", p.kernels_undeclared_step(),
              " kernels lose occupancy that no decision declares\n");
  }
  return out;
}

}  // namespace rjdbi::contract
