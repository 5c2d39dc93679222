// See inspect.h.
#include "contract/inspect.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "contract/catalogue.h"
#include "contract/demangle.h"
#include "contract/near_miss.h"
#include "contract/occupancy.h"
#include "contract/patch_record.h"
#include "contract/site.h"
#include "contract/text.h"
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
    const auto isa = For(object_.kernels()[kernel_index]);
    if (!isa.ok()) return nullptr;
    auto analysis = patch::KernelAnalysis::Create(object_, kernel_index, **isa);
    return analysis.ok() ? std::move(*analysis) : nullptr;
  }
  // UNIMPLEMENTED: nobody can decode for the processor.
  absl::StatusOr<patch::Isa*> For(const patch::Kernel& kernel) {
    std::unique_ptr<patch::Isa>& isa = isas_[kernel.wavefront_size];
    if (isa == nullptr) {
      auto made = patch::Isa::Create(object_.target(), kernel.wavefront_size);
      if (!made.ok()) return made.status();
      isa = std::move(*made);
    }
    return isa.get();
  }

 private:
  const patch::CodeObject& object_;
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas_;
};

bool Wanted(const std::string& glob, const patch::Kernel& kernel) {
  return glob.empty() || KernelMatches(glob, kernel.name);
}

constexpr size_t kMostDecoded = 64;  // kernels, for an opcode that may be meant

// Terms of a selector that select no instruction of any kernel, with what is near.
std::string NearOpcodes(const patch::CodeObject& object, const std::string& kernel_glob,
                        const std::string& text) {
  const auto selector = patch::Selector::Parse(text);
  if (!selector.ok()) return "";
  std::set<std::string> opcodes;
  Decoders decoders(object);
  size_t decoded = 0;
  for (size_t i = 0; i < object.kernels().size() && decoded < kMostDecoded; ++i) {
    if (!Wanted(kernel_glob, object.kernels()[i])) continue;
    const auto analysis = decoders.Analyse(i);
    if (analysis == nullptr) continue;
    ++decoded;
    for (const patch::Instruction& in : analysis->instructions()) {
      opcodes.emplace(in.opcode);
    }
  }
  const std::vector<std::string> words = patch::SelectorWords();
  opcodes.insert(words.begin(), words.end());
  std::vector<std::string> near;
  for (const std::string& glob : selector->OpcodeGlobs()) {
    const bool known = std::any_of(opcodes.begin(), opcodes.end(), [&](const std::string& opcode) {
      return patch::OpcodeMatches(glob, opcode);
    });
    if (known) continue;
    for (std::string& name : ClosestNames(glob, opcodes)) near.push_back(std::move(name));
  }
  return DidYouMean(near);
}

// "> +0x28  s_getpc_b64 s[4:5]", with what stands around it.
std::string InstructionsAround(const patch::KernelAnalysis& kernel, uint32_t index) {
  constexpr uint32_t kAround = 3;
  const auto last = static_cast<uint32_t>(kernel.instructions().size()) - 1;
  const uint32_t first = index < kAround ? 0 : index - kAround;
  std::string text;
  for (uint32_t i = first; i <= std::min(last, index + kAround); ++i) {
    const v1::Location at = MakeLocation(kernel, i);
    StrAppend(&text, i == index ? "> " : "  ", "+0x", absl::Hex(at.kernel_offset()), "  ",
              at.instruction(), "\n");
  }
  return text;
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

// Of patched objects the code that runs, which is what one wants to know of them.
absl::StatusOr<v1::WaitCheckReply> InspectWaits(absl::Span<const uint8_t> bytes,
                                                const std::string& kernel_glob) {
  const auto object = patch::CodeObject::Parse(bytes);
  if (!object.ok()) return object.status();
  Decoders decoders(*object);
  v1::WaitCheckReply reply;
  const CodeAt code = CodeIn(*object);
  for (const patch::Kernel& kernel : object->kernels()) {
    if (!Wanted(kernel_glob, kernel)) continue;
    const auto isa = decoders.For(kernel);
    if (!isa.ok()) return isa.status();
    const WaitReport report = CheckWaits(**isa, code, kernel.entry_vaddr);
    v1::KernelWaits& out = *reply.add_kernels();
    out.set_kernel(kernel.name);
    out.set_instructions(report.instructions);
    out.set_waits(report.waits);
    out.set_complete(report.complete);
    for (const WaitFinding& f : report.findings) {
      *out.add_missing() = MakeMissingWait(f, kernel, **isa, code);
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

std::string NearMiss(absl::Span<const uint8_t> bytes, const std::string& kernel_glob,
                     const std::string& selector) {
  const absl::StatusOr<PlainObject> plain = PlainObject::Parse(bytes);
  if (!plain.ok()) return "";
  std::vector<std::string> names;
  bool matched = false;
  for (const patch::Kernel& kernel : plain->object().kernels()) {
    names.push_back(kernel.name);
    matched = matched || Wanted(kernel_glob, kernel);
  }
  if (!matched) return DidYouMean(ClosestKernels(kernel_glob, names));
  return NearOpcodes(plain->object(), kernel_glob, selector);
}

void AddExcerpts(absl::Span<const uint8_t> bytes, size_t most,
                 google::protobuf::RepeatedPtrField<v1::Decision>* decisions) {
  const absl::StatusOr<PlainObject> plain = PlainObject::Parse(bytes);
  if (!plain.ok()) return;
  Decoders decoders(plain->object());
  std::map<std::string, std::unique_ptr<patch::KernelAnalysis>> kernels;
  const bool all = static_cast<size_t>(decisions->size()) <= most;
  std::set<std::string> said;
  size_t done = 0;
  for (v1::Decision& decision : *decisions) {
    if (done == most) return;
    if (decision.violations().empty()) continue;
    const v1::Location& place = decision.site().location();
    const v1::Violation& first = decision.violations(0);
    const std::string reason = StrCat(place.kernel(), "\n", first.constraint_id(), "\n",
                                      first.message(), "\n", first.observed());
    if (!said.insert(reason).second && !all) continue;
    const auto [found, fresh] = kernels.try_emplace(place.kernel());
    for (size_t i = 0; fresh && i < plain->object().kernels().size(); ++i) {
      if (plain->object().kernels()[i].name == place.kernel()) found->second = decoders.Analyse(i);
    }
    if (found->second == nullptr) continue;
    const auto index = found->second->InstructionAt(place.kernel_offset());
    if (!index.has_value()) continue;
    decision.mutable_violations(0)->set_excerpt(InstructionsAround(*found->second, *index));
    ++done;
  }
}

}  // namespace rjdbi::contract
