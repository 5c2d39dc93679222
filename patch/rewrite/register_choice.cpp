// Tries strategies from cheapest to dearest; each is a search over ordered
// candidates.
#include "patch/rewrite/register_choice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "patch/analysis/allocation.h"

namespace rjdbi::patch {
namespace {

// Where the address lives and what may grow.
struct Strategy {
  bool address_in_sgprs, grow_sgprs, grow_vgprs;
};
constexpr Strategy kStrategies[] = {
    {true, false, false}, {false, false, false}, {true, false, true}, {true, true, false},
    {true, true, true},   {false, false, true},  {false, true, true},
};

class Chooser {
 public:
  Chooser(const KernelAnalysis& kernel, uint32_t instruction, const ProbeRequest& request)
      : kernel_(kernel),
        generation_(kernel.isa().generation()),
        request_(request),
        allocation_(AllocationOf(kernel.kernel(), generation_)),
        busy_(kernel.LiveAt(instruction, request.position) |
              kernel.PendingAt(instruction, request.position) | request.reserved),
        wave64_(kernel.isa().wavefront_size() == 64) {}

  std::variant<RegisterChoice, Refusal> Choose() {
    for (const Strategy& strategy : kStrategies) {
      if (Try(strategy)) return choice_;
    }
    return refusal_;
  }

  std::variant<RegisterChoice, Refusal> Keep(uint32_t count, std::vector<uint16_t>* kept) {
    for (const bool grow : {false, true}) {
      Begin();
      kept->clear();
      while (kept->size() < count) {
        std::optional<uint16_t> reg = HighestFresh();
        if (!reg && grow) reg = GrowScalar(1);
        if (!reg) break;
        TakeOrdinary(*reg, 1);
        kept->push_back(*reg);
      }
      if (kept->size() == count && Affordable()) return choice_;
    }
    if (refusal_.reason == Reason::kNone) NoScalar();
    return refusal_;
  }

  std::variant<RegisterChoice, Refusal> Choose(const RecordNeeds& needs) {
    for (const Strategy& strategy : kStrategies) {
      if (!strategy.address_in_sgprs) continue;
      Begin();
      if (RecordScalars(needs, strategy.grow_sgprs) && RecordVectors(strategy.grow_vgprs) &&
          Affordable()) {
        return choice_;
      }
    }
    return refusal_;
  }

 private:
  bool Try(const Strategy& strategy) {
    Begin();
    return ChooseScalars(strategy) && ChooseVectors(strategy) && Affordable();
  }

  void Begin() {
    choice_ = RegisterChoice();
    choice_.required_sgprs = HighestSgpr(kernel_);
    choice_.required_vgprs = HighestVgpr(kernel_);
  }

  bool Affordable() {
    choice_.sgpr_delta = static_cast<int32_t>(SgprsAllocatedFor(kernel_, choice_.required_sgprs)) -
                         static_cast<int32_t>(allocation_.sgprs);
    choice_.vgpr_delta = static_cast<int32_t>(VgprsAllocatedFor(kernel_, choice_.required_vgprs)) -
                         static_cast<int32_t>(allocation_.vgprs);
    return WithinBudget(choice_.sgpr_delta, request_.max_sgpr_delta, Reason::kSgprBudget,
                        " SGPRs") &&
           WithinBudget(choice_.vgpr_delta, request_.max_vgpr_delta, Reason::kVgprBudget, " VGPRs");
  }

  bool WithinBudget(int32_t delta, uint32_t limit, Reason reason, const char* unit) {
    if (delta <= 0 || static_cast<uint32_t>(delta) <= limit) return true;
    Refuse(reason, absl::StrCat(delta, unit), absl::StrCat(limit, unit),
           "the kernel's allocation would have to grow beyond the budget");
    return false;
  }

  // Later strategies are the more capable ones, so their reasons are kept, but
  // a budget is the more useful thing to know than a missing register.
  void Refuse(Reason reason, std::string observed, std::string limit, std::string detail) {
    const bool budget =
        refusal_.reason == Reason::kSgprBudget || refusal_.reason == Reason::kVgprBudget;
    const bool new_budget = reason == Reason::kSgprBudget || reason == Reason::kVgprBudget;
    if (budget && !new_budget) return;
    refusal_ = {reason, std::move(observed), std::move(limit), std::move(detail)};
  }

  // ---- scalar registers ----

  bool ChooseScalars(const Strategy& strategy) {
    // The pair first: a single register must not split the only one left.
    if (strategy.address_in_sgprs) {
      choice_.address_sgpr = TakeScalar(2, strategy.grow_sgprs);
      if (!choice_.address_sgpr) return false;
    }
    const std::optional<uint16_t> save = TakeScalar(wave64_ ? 2 : 1, strategy.grow_sgprs);
    if (!save) return false;
    choice_.exec_save = *save;
    return true;
  }

  // On gfx9 v_cmpx writes a pair besides EXEC: VCC, or one that holds the limit
  // and is read by it. Both are free again behind it.
  bool RecordScalars(const RecordNeeds& needs, bool grow) {
    const bool writes_pair = generation_.cmpx_writes_pair;
    if (writes_pair && ScalarFree(kVccLo, 2, false)) {
      choice_.compare_sgpr = kVccLo;
      choice_.temporaries.Add(kVccLo, 2);
    }
    choice_.address_sgpr = TakeScalar(2, grow);
    const std::optional<uint16_t> save = TakeScalar(wave64_ ? 2 : 1, grow);
    if (!choice_.address_sgpr || !save) return false;
    choice_.exec_save = *save;
    if (writes_pair && !choice_.compare_sgpr) choice_.compare_sgpr = TakeScalar(2, grow);
    if (writes_pair && !choice_.compare_sgpr) return false;
    if (needs.sample_sgprs > 0) {
      choice_.sample_sgpr = TakeScalar(needs.sample_sgprs, grow);
      if (!choice_.sample_sgpr) return false;
    }
    if (!needs.scratch) return true;
    choice_.scratch_sgpr = writes_pair ? choice_.compare_sgpr : TakeScalar(1, grow);
    return choice_.scratch_sgpr.has_value();
  }

  bool RecordVectors(bool grow) {
    const std::optional<uint16_t> header = TakeVectors(4, grow);
    const std::optional<uint16_t> data = TakeVectors(2, grow);
    if (!header || !data) return false;
    choice_.header_vgpr = *header;
    choice_.data_vgpr = *data;
    return true;
  }

  bool ScalarFree(uint16_t first, uint32_t count, bool fresh) const {
    const RegisterSet& avoided = fresh ? kernel_.mentioned() : busy_;
    return !busy_.HasAny(first, count) && !avoided.HasAny(first, count) &&
           !choice_.temporaries.HasAny(first, count);
  }

  std::optional<uint16_t> HighestFresh() const {
    for (uint32_t n = allocation_.ordinary_sgprs; n-- > 0;) {
      const auto reg = static_cast<uint16_t>(kSgpr0 + n);
      if (ScalarFree(reg, 1, true)) return reg;
    }
    return std::nullopt;
  }

  void TakeOrdinary(uint16_t reg, uint32_t count) {
    choice_.temporaries.Add(reg, count);
    choice_.required_sgprs =
        std::max(choice_.required_sgprs, static_cast<uint32_t>(reg - kSgpr0) + count);
  }

  std::optional<uint16_t> FindScalar(uint32_t count, bool fresh) const {
    for (uint32_t n = 0; n + count <= allocation_.ordinary_sgprs; n += count) {
      const auto reg = static_cast<uint16_t>(kSgpr0 + n);
      if (ScalarFree(reg, count, fresh)) return reg;
    }
    return std::nullopt;
  }

  // gfx12: once a vector instruction has read an SGPR, the compiler inserts
  // waits around later writes of it; our own reads would escape that, so there
  // only registers that the kernel never mentions will do.
  bool OnlyFreshScalars() const {
    return generation_.sgpr_reads_remembered || generation_.fresh_registers_only;
  }

  std::optional<uint16_t> TakeScalar(uint32_t count, bool grow) {
    std::optional<uint16_t> reg = FindScalar(count, true);
    if (!reg && !OnlyFreshScalars()) reg = FindScalar(count, false);
    if (!reg && !OnlyFreshScalars() && count <= 2 && ScalarFree(kVccLo, count, false)) {
      choice_.temporaries.Add(kVccLo, count);
      return kVccLo;
    }
    if (!reg && grow) reg = GrowScalar(count);
    if (!reg) {
      if (!grow) NoScalar();
      return std::nullopt;
    }
    TakeOrdinary(*reg, count);
    return reg;
  }

  void NoScalar() {
    Refuse(Reason::kNoSgprPair,
           absl::StrCat(allocation_.ordinary_sgprs, " SGPRs allocated, all in use"),
           absl::StrCat(generation_.addressable_sgprs, " SGPRs"),
           "no scalar registers are free at this instruction");
  }

  // The lowest aligned group that nothing mentions and that ends past the
  // present allocation.
  std::optional<uint16_t> GrowScalar(uint32_t count) {
    const uint32_t limit = generation_.addressable_sgprs;
    if (!generation_.sgprs_allocated) {
      NoScalar();
      return std::nullopt;
    }
    for (uint32_t n = 0; n + count <= limit; n += count) {
      const auto reg = static_cast<uint16_t>(kSgpr0 + n);
      if (n + count <= allocation_.ordinary_sgprs || !ScalarFree(reg, count, true)) continue;
      for (uint32_t k = 0; k < count; ++k) {
        if (n + k >= allocation_.ordinary_sgprs) choice_.grown.Add(static_cast<uint16_t>(reg + k));
      }
      return reg;
    }
    Refuse(Reason::kSgprGrowthImpossible, absl::StrCat(allocation_.ordinary_sgprs, " SGPRs"),
           absl::StrCat(limit, " SGPRs"), "the hardware has no further scalar registers");
    return std::nullopt;
  }

  // ---- vector registers ----

  bool ChooseVectors(const Strategy& strategy) {
    if (!strategy.address_in_sgprs) {
      choice_.address_vgpr = TakeVectors(2, strategy.grow_vgprs);
      if (!choice_.address_vgpr) return false;
    }
    const std::optional<uint16_t> data = TakeVectors(2, strategy.grow_vgprs);
    if (!data) return false;
    choice_.data_vgpr = *data;
    return true;
  }

  uint32_t VectorStep() const { return generation_.vgpr64_alignment ? 2 : 1; }

  bool VectorsFree(uint16_t first, uint32_t count, const RegisterSet& avoided) const {
    return !busy_.HasAny(first, count) && !avoided.HasAny(first, count) &&
           !choice_.temporaries.HasAny(first, count);
  }

  std::optional<uint16_t> FindVectors(uint32_t count, const RegisterSet& avoided) const {
    for (uint32_t n = 0; n + count <= allocation_.arch_vgprs; n += VectorStep()) {
      const auto reg = static_cast<uint16_t>(kVgpr0 + n);
      if (VectorsFree(reg, count, avoided)) return reg;
    }
    return std::nullopt;
  }

  std::optional<uint16_t> TakeVectors(uint32_t count, bool grow) {
    std::optional<uint16_t> reg = FindVectors(count, kernel_.mentioned());
    if (!reg) reg = GrowVectors(count, allocation_.vgprs);  // a granule's slack
    if (!reg && !generation_.fresh_registers_only) reg = FindVectors(count, busy_);
    if (!reg && grow) reg = GrowVectors(count, generation_.unified_vgpr_file ? 512 : 256);
    if (!reg && grow) NoVectorGrowth();
    if (!reg) {
      if (!grow) {
        Refuse(Reason::kNoVgprs,
               absl::StrCat(allocation_.arch_vgprs, " VGPRs allocated, all in use"),
               absl::StrCat(generation_.max_arch_vgprs, " VGPRs"),
               "no vector registers are free at this instruction");
      }
      return std::nullopt;
    }
    choice_.vgprs_fresh &= !kernel_.mentioned().HasAny(*reg, count);
    choice_.temporaries.Add(*reg, count);
    choice_.required_vgprs =
        std::max(choice_.required_vgprs, static_cast<uint32_t>(*reg - kVgpr0) + count);
    return reg;
  }

  // The lowest group that ends past the present allocation, if then no more than
  // `limit` VGPRs are allocated in total.
  std::optional<uint16_t> GrowVectors(uint32_t count, uint32_t limit) {
    for (uint32_t n = 0; n + count <= generation_.max_arch_vgprs; n += VectorStep()) {
      const auto reg = static_cast<uint16_t>(kVgpr0 + n);
      if (n + count <= allocation_.arch_vgprs || !VectorsFree(reg, count, kernel_.mentioned())) {
        continue;
      }
      if (SharesVgprs() || VgprsAllocatedFor(kernel_, n + count) > limit) return std::nullopt;
      for (uint32_t k = 0; k < count; ++k) {
        if (n + k >= allocation_.arch_vgprs) choice_.grown.Add(static_cast<uint16_t>(reg + k));
      }
      return reg;
    }
    return std::nullopt;
  }

  void NoVectorGrowth() {
    Refuse(Reason::kVgprGrowthImpossible, absl::StrCat(allocation_.arch_vgprs, " VGPRs"),
           absl::StrCat(generation_.max_arch_vgprs, " VGPRs"),
           "the hardware has no further vector registers");
  }

  // The halves of a wave64 share registers: growth would move their bounds.
  bool SharesVgprs() const {
    return generation_.shared_vgprs && (kernel_.kernel().descriptor.compute_pgm_rsrc3 & 0xf) != 0;
  }

  const KernelAnalysis& kernel_;
  const Generation& generation_;
  const ProbeRequest& request_;
  const Allocation allocation_;
  const RegisterSet busy_;
  const bool wave64_;
  RegisterChoice choice_;
  Refusal refusal_;
};

}  // namespace

std::variant<RegisterChoice, Refusal> ChooseRegisters(const KernelAnalysis& kernel,
                                                      uint32_t instruction,
                                                      const ProbeRequest& request) {
  return Chooser(kernel, instruction, request).Choose();
}

std::variant<RegisterChoice, Refusal> ChooseRecordRegisters(const KernelAnalysis& kernel,
                                                            uint32_t instruction,
                                                            const ProbeRequest& request,
                                                            const RecordNeeds& needs) {
  return Chooser(kernel, instruction, request).Choose(needs);
}

std::variant<RegisterChoice, Refusal> ChooseKeptScalars(const KernelAnalysis& kernel,
                                                        const ProbeRequest& request, uint32_t count,
                                                        std::vector<uint16_t>* kept) {
  return Chooser(kernel, 0, request).Keep(count, kept);
}

// A kernel that calls mentions what any function in its object uses; what lies beyond
// its allocation is not its own.
uint32_t HighestSgpr(const KernelAnalysis& kernel) {
  const Allocation now = AllocationOf(kernel.kernel(), kernel.isa().generation());
  const uint32_t addressable = kernel.isa().generation().addressable_sgprs;
  return kernel.mentioned().HighestIn(kSgpr0, std::min(now.sgprs, addressable));
}

uint32_t HighestVgpr(const KernelAnalysis& kernel) {
  const Allocation now = AllocationOf(kernel.kernel(), kernel.isa().generation());
  return kernel.mentioned().HighestIn(kVgpr0, now.arch_vgprs);
}

uint32_t HighestAgpr(const KernelAnalysis& kernel) {
  return kernel.mentioned().HighestIn(kAgpr0, 256);
}

uint32_t SgprsAllocatedFor(const KernelAnalysis& kernel, uint32_t ordinary) {
  const Generation& generation = kernel.isa().generation();
  const Allocation now = AllocationOf(kernel.kernel(), generation);
  if (!generation.sgprs_allocated || ordinary <= now.ordinary_sgprs) return now.sgprs;
  // What the kernel mentions it has: it may use those for which it needs no VCC and kin.
  if (ordinary <= HighestSgpr(kernel)) return now.sgprs;
  return std::max(now.sgprs, RoundUp(ordinary + generation.sgpr_tail, generation.sgpr_granule));
}

uint32_t AgprsInUse(const KernelAnalysis& kernel) {
  const Generation& generation = kernel.isa().generation();
  if (!generation.unified_vgpr_file) return 0;
  const uint32_t used =
      std::max(HighestAgpr(kernel), kernel.kernel().metadata.agpr_count.value_or(0));
  if (used == 0) return 0;
  const Allocation now = AllocationOf(kernel.kernel(), generation);
  // Code outside the kernel may use all that there is.
  if (kernel.has_calls() || kernel.has_indirect_branch()) return now.vgprs - now.arch_vgprs;
  return used;
}

uint32_t VgprsAllocatedFor(const KernelAnalysis& kernel, uint32_t arch) {
  const Allocation now = AllocationOf(kernel.kernel(), kernel.isa().generation());
  if (arch <= now.arch_vgprs) return now.vgprs;
  uint32_t total = arch;
  if (kernel.isa().generation().unified_vgpr_file) total = RoundUp(arch, 4) + AgprsInUse(kernel);
  return std::max(now.vgprs, RoundUp(total, now.vgpr_granule));
}

}  // namespace rjdbi::patch
