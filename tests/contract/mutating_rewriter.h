// The real rewriter with a bug: what it plans, or what it emits, has one mistake in it.
// Everything that judges, and admission as a whole, runs against it unchanged.
#ifndef TESTS_CONTRACT_MUTATING_REWRITER_H_
#define TESTS_CONTRACT_MUTATING_REWRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/mutants.h"

namespace rjdbi::test {

class MutatingRewriter : public patch::Rewriter {
 public:
  MutatingRewriter() : real_(patch::MakeTrampolineRewriter()) {}

  enum class Where : uint8_t {
    kNowhere,
    kPlan,   // the sequence, as the engine would plan it: the image holds it, too
    kImage,  // the finished image alone
  };
  struct Site {
    size_t kernel = 0;
    uint32_t instruction = 0;
    auto operator<=>(const Site&) const = default;
  };
  Where where = Where::kNowhere;
  uint32_t seed = 0;         // of this run
  std::optional<Site> only;  // other sites are refused
  uint32_t one_in = 1;       // of so many sites one is not refused, by chance
  // kPlan, by site: the operator and what it did. Sites of which it made nothing are
  // refused.
  struct Note {
    size_t op = 0;
    std::string what;
    std::vector<uint8_t> right, wrong;     // the sequence, as planned and mutated
    std::vector<patch::WordFixup> fixups;  // of the wrong one
  };
  std::map<Site, Note> made;
  std::optional<Note> made_in_image;
  // Of the last emission.
  std::map<Site, std::pair<uint64_t, uint64_t>> sequences;  // first and last address
  std::vector<patch::SitePlan> plans;

  std::variant<patch::SitePlan, patch::Refusal> Plan(const patch::KernelAnalysis& kernel,
                                                     uint32_t instruction,
                                                     const patch::ProbeRequest& request) override {
    const Site site{kernel.kernel_index(), instruction};
    const patch::Refusal refused{patch::Reason::kSiteTooShort, "", "", "not asked for"};
    if (only && *only != site) return refused;
    if (!only && one_in > 1 && Chance(site) % one_in != 0) return refused;
    auto planned = real_->Plan(kernel, instruction, request);
    auto* plan = std::get_if<patch::SitePlan>(&planned);
    if (plan == nullptr || where != Where::kPlan) return planned;
    if (!MutatePlan(kernel, site, *plan)) return refused;
    return planned;
  }
  std::variant<patch::EntryPlan, patch::Refusal> PlanEntry(
      const patch::KernelAnalysis& kernel, const patch::ProbeRequest& request) override {
    return real_->PlanEntry(kernel, request);
  }
  absl::StatusOr<patch::RewriteResult> Emit(
      const patch::CodeObject& object, const std::vector<const patch::KernelAnalysis*>& kernels,
      const std::vector<patch::SitePlan>& wanted, bool beside = false) override;

  // The mistake that `seed` makes of the right plan.
  bool MutateAgain(const patch::KernelAnalysis& kernel, const Site& site, patch::SitePlan& plan) {
    return MutatePlan(kernel, site, plan);
  }

 private:
  static uint32_t Chance(const Site& site) {
    const auto x = static_cast<uint32_t>(site.kernel * 7919 + site.instruction) * 2654435761u;
    return x >> 8;
  }
  // Which operator, and where: the same however often the site is planned.
  Random RandomFor(const Site& site, size_t* op) const {
    Random random(seed * 2654435761u + static_cast<uint32_t>(site.kernel) * 97u + site.instruction);
    // Seeds that are close to each other begin alike.
    random.discard(8);
    *op = random() % MutantOperators().size();
    return random;
  }
  bool MutatePlan(const patch::KernelAnalysis& kernel, const Site& site, patch::SitePlan& plan);
  void MutateImage(const patch::CodeObject& object,
                   const std::vector<const patch::KernelAnalysis*>& kernels,
                   patch::RewriteResult& result);

  std::unique_ptr<patch::Rewriter> real_;
};

}  // namespace rjdbi::test

#endif  // TESTS_CONTRACT_MUTATING_REWRITER_H_
