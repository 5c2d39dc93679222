// See inspect.h.
#include "contract/inspect.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "contract/catalogue.h"
#include "contract/demangle.h"
#include "contract/occupancy.h"
#include "contract/patch_record.h"
#include "contract/site.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/analysis/selector.h"
#include "patch/analysis/site_capability.h"
#include "patch/isa/generation.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {
namespace {

void FillSummary(const patch::CodeObject& object, const patch::Kernel& kernel,
                 v1::KernelSummary& summary) {
  summary.set_name(kernel.name);
  summary.set_demangled(Demangle(kernel.name));
  summary.set_code_bytes(kernel.code_size);
  summary.set_wavefront_size(kernel.wavefront_size);
  summary.set_lds_bytes(kernel.descriptor.group_segment_fixed_size);
  summary.set_scratch_bytes(kernel.descriptor.private_segment_fixed_size);
  summary.set_sgpr_count(kernel.metadata.sgpr_count.value_or(0));
  summary.set_vgpr_count(kernel.metadata.vgpr_count.value_or(0));
  summary.set_agpr_count(kernel.metadata.agpr_count.value_or(0));
  const auto generation = patch::FindGeneration(object.target().processor);
  if (!generation.ok()) return;
  summary.set_occupancy_waves(
      static_cast<uint32_t>(WavesPerSimd(**generation, KernelShape(**generation, kernel))));
}

// One decoder per wavefront size, made when first needed.
class Decoders {
 public:
  explicit Decoders(const patch::CodeObject& object) : object_(object) {}
  // nullptr: the kernel cannot be analysed.
  std::unique_ptr<patch::KernelAnalysis> Analyse(size_t kernel_index) {
    const uint32_t size = object_.kernels()[kernel_index].wavefront_size;
    std::unique_ptr<patch::Isa>& isa = isas_[size];
    if (isa == nullptr) {
      auto made = patch::Isa::Create(object_.target(), size);
      if (!made.ok()) return nullptr;
      isa = std::move(*made);
    }
    auto analysis = patch::KernelAnalysis::Create(object_, kernel_index, *isa);
    return analysis.ok() ? std::move(*analysis) : nullptr;
  }

 private:
  const patch::CodeObject& object_;
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas_;
};

bool Wanted(const std::string& glob, const patch::Kernel& kernel) {
  return glob.empty() || KernelMatches(glob, kernel.name);
}

}  // namespace

v1::ListKernelsReply SummariseKernels(const patch::CodeObject& object) {
  v1::ListKernelsReply reply;
  for (const patch::Kernel& kernel : object.kernels()) {
    FillSummary(object, kernel, *reply.add_kernels());
  }
  return reply;
}

absl::StatusOr<v1::ListKernelsReply> InspectKernels(absl::Span<const uint8_t> bytes,
                                                    const std::string& kernel_glob) {
  const absl::StatusOr<PlainObject> plain = PlainObject::Parse(bytes);
  if (!plain.ok()) return plain.status();
  const patch::CodeObject* object = &plain->object();
  Decoders decoders(*object);
  v1::ListKernelsReply reply;
  for (size_t i = 0; i < object->kernels().size(); ++i) {
    const patch::Kernel& kernel = object->kernels()[i];
    if (!Wanted(kernel_glob, kernel)) continue;
    v1::KernelSummary& summary = *reply.add_kernels();
    FillSummary(*object, kernel, summary);
    if (const auto analysis = decoders.Analyse(i)) {
      summary.set_instructions(static_cast<uint32_t>(analysis->instructions().size()));
    }
  }
  return reply;
}

absl::StatusOr<v1::ListSitesReply> InspectSites(absl::Span<const uint8_t> bytes,
                                                const std::string& kernel_glob,
                                                const std::string& selector) {
  const auto parsed = patch::Selector::Parse(selector.empty() ? "*" : selector);
  if (!parsed.ok()) return parsed.status();
  const absl::StatusOr<PlainObject> plain = PlainObject::Parse(bytes);
  if (absl::IsInvalidArgument(plain.status())) {
    return absl::DataLossError(plain.status().message());
  }
  if (!plain.ok()) return plain.status();
  const patch::CodeObject* object = &plain->object();
  Decoders decoders(*object);
  v1::ListSitesReply reply;
  std::set<std::string> said;
  for (size_t i = 0; i < object->kernels().size(); ++i) {
    if (!Wanted(kernel_glob, object->kernels()[i])) continue;
    const auto analysis = decoders.Analyse(i);
    if (analysis == nullptr) continue;
    const patch::SiteCapabilities capabilities(*analysis);
    *reply.add_structures() = DescribeStructure(*analysis, capabilities);
    const auto selection = parsed->Select(*analysis);
    for (const uint32_t index : selection.instructions) {
      *reply.add_sites() = DescribeSite(*analysis, capabilities, index);
    }
    for (const patch::Refusal& refusal : selection.refusals) {
      v1::Violation violation = MakeViolation(refusal, {});
      if (said.insert(violation.constraint_id()).second) {
        *reply.add_violations() = std::move(violation);
      }
    }
  }
  return reply;
}

absl::StatusOr<OffsetInspection> InspectOffset(absl::Span<const uint8_t> bytes,
                                               const std::string& kernel_glob, uint64_t offset) {
  const absl::StatusOr<PlainObject> plain = PlainObject::Parse(bytes);
  if (!plain.ok()) return plain.status();
  const patch::CodeObject* object = &plain->object();
  Decoders decoders(*object);
  OffsetInspection found;
  for (size_t i = 0; i < object->kernels().size() && !found.some_start_there; ++i) {
    if (!Wanted(kernel_glob, object->kernels()[i])) continue;
    const auto analysis = decoders.Analyse(i);
    if (analysis == nullptr) continue;
    auto missing = NoInstructionAt(*analysis, offset);
    found.some_start_there = !missing.has_value();
    if (missing) found.missing.push_back(*std::move(missing));
  }
  return found;
}

}  // namespace rjdbi::contract
