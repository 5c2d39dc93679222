// See mutating_rewriter.h.
#include "tests/contract/mutating_rewriter.h"

#include <algorithm>

#include "absl/types/span.h"

namespace rjdbi::test {

using patch::KernelAnalysis;
using patch::RewriteResult;
using patch::SitePlan;

bool MutatingRewriter::MutatePlan(const KernelAnalysis& kernel, const Site& site, SitePlan& plan) {
  Note note;
  Random random = RandomFor(site, &note.op);
  const std::vector<patch::WordFixup> fixups(plan.fixups.begin(), plan.fixups.end());
  const auto source = MakeMutantSource(kernel.isa(), plan.sequence.get(), fixups,
                                       kernel.LiveAt(site.instruction, plan.position));
  if (!source) return false;
  auto mutant = Mutate(*source, MutantOperators()[note.op], random);
  if (!mutant) return false;
  note.right = plan.sequence.get();
  note.wrong = mutant->code;
  plan.sequence = patch::SharedCode(std::move(mutant->code));
  note.fixups = mutant->fixups;
  plan.fixups = patch::SharedFixups(std::move(mutant->fixups));
  note.what = std::move(mutant->what);
  made[site] = std::move(note);
  return true;
}

// One place of the new code, or one that leads there.
void MutatingRewriter::MutateImage(const patch::CodeObject& object,
                                   const std::vector<const KernelAnalysis*>& kernels,
                                   RewriteResult& result) {
  if (result.kernels.empty()) return;
  const auto parsed = patch::CodeObject::Parse(result.image);
  if (!parsed.ok()) return;
  Note note;
  Random random = RandomFor(only.value_or(Site()), &note.op);
  struct Stretch {
    uint64_t vaddr = 0, size = 0;
  };
  std::vector<Stretch> stretches;
  const patch::KernelOutcome& outcome = result.kernels[random() % result.kernels.size()];
  const auto kernel = std::find_if(kernels.begin(), kernels.end(), [&](const auto* k) {
    return k->kernel_index() == outcome.kernel_index;
  });
  if (kernel == kernels.end()) return;
  for (const patch::Trampoline& t : outcome.trampolines) {
    stretches.push_back({t.vaddr, t.size});
    const auto i = (*kernel)->InstructionAt(t.original);
    if (i) stretches.push_back({t.anchor_vaddr, (*kernel)->instructions()[*i].size});
  }
  if (outcome.placement == patch::Placement::kClone && only) {
    // The site with what is around it.
    const uint32_t from = only->instruction - std::min(only->instruction, 2u);
    const size_t to = std::min<size_t>(only->instruction + 3, outcome.pcs.size() - 1);
    const uint64_t begin = outcome.pcs[from].emitted;
    const uint64_t end =
        to == outcome.pcs.size() - 1 ? outcome.code_bytes : outcome.pcs[to].emitted;
    stretches.push_back({outcome.clone_vaddr + begin, end - begin});
  }
  if (stretches.empty()) return;
  const Stretch& stretch = stretches[random() % stretches.size()];
  const auto offset = parsed->VaddrToOffset(stretch.vaddr);
  if (!offset || *offset + stretch.size > result.image.size()) return;
  const auto bytes = absl::MakeSpan(result.image).subspan(*offset, stretch.size);
  const auto source = MakeMutantSource((*kernel)->isa(), bytes, {}, (*kernel)->mentioned());
  if (!source) return;
  auto mutant = Mutate(*source, MutantOperators()[note.op], random);
  if (!mutant) return;
  std::copy(mutant->code.begin(), mutant->code.end(), bytes.begin());
  note.what = std::move(mutant->what);
  made_in_image = std::move(note);
  (void)object;
}

absl::StatusOr<RewriteResult> MutatingRewriter::Emit(
    const patch::CodeObject& object, const std::vector<const KernelAnalysis*>& kernels,
    const std::vector<SitePlan>& wanted, bool beside) {
  plans = wanted;
  auto result = real_->Emit(object, kernels, wanted, beside);
  sequences.clear();
  if (!result.ok()) return result;
  for (const patch::EmittedSite& site : result->sites) {
    if (site.refusal) continue;
    const SitePlan& plan = wanted[site.plan];
    sequences[{plan.kernel_index, plan.instruction}] = {site.sequence_vaddr,
                                                        site.sequence_vaddr + plan.sequence.size()};
  }
  made_in_image.reset();
  if (where == Where::kImage) MutateImage(object, kernels, *result);
  return result;
}

}  // namespace rjdbi::test
