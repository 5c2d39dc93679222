// The real rewriter with a mistake in its analysis: it takes a register for dead that is
// not, because it overlooks a read, an edge or a lane, or believes in a write that there
// is not. Plans, emission and all that judges them run unchanged; admission, too, sees
// nothing but this analysis of the engine's.
#ifndef TESTS_CONTRACT_BLIND_REWRITER_H_
#define TESTS_CONTRACT_BLIND_REWRITER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <variant>
#include <vector>

#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"

namespace rjdbi::test {

enum class Blind : uint8_t {
  kLife,   // at the site, of one register
  kRead,   // one instruction's read of a register
  kWrite,  // an instruction is taken to write a register, all of it
  kEdge,   // one way from a block to another
  kLanes,  // an instruction's write of EXEC
};
inline constexpr std::array<const char*, 5> kBlindNames = {"life", "read", "write", "edge",
                                                           "lanes"};

class BlindRewriter : public patch::Rewriter {
 public:
  BlindRewriter() : real_(patch::MakeTrampolineRewriter()) {}

  size_t kernel = 0;
  uint32_t instruction = 0;  // the only site that is not refused
  patch::Position position = patch::Position::kBefore;
  std::optional<Blind> blind;  // nullopt: it sees everything
  uint32_t seed = 0;
  // Of the last analysis: what is live at the site and was overlooked.
  patch::RegisterSet lost;
  // The last plan, if there was one.
  std::optional<patch::SitePlan> plan;

  absl::StatusOr<std::unique_ptr<patch::KernelAnalysis>> Analyse(
      const patch::CodeObject& object, size_t kernel_index, patch::Isa& isa,
      patch::ObjectFacts* facts) override;
  std::variant<patch::SitePlan, patch::Refusal> Plan(const patch::KernelAnalysis& analysis,
                                                     uint32_t i,
                                                     const patch::ProbeRequest& request) override;
  absl::StatusOr<patch::RewriteResult> Emit(
      const patch::CodeObject& object, const std::vector<const patch::KernelAnalysis*>& kernels,
      const std::vector<patch::SitePlan>& plans, bool beside) override {
    return real_->Emit(object, kernels, plans, beside);
  }

 private:
  std::unique_ptr<patch::Rewriter> real_;
};

}  // namespace rjdbi::test

#endif  // TESTS_CONTRACT_BLIND_REWRITER_H_
