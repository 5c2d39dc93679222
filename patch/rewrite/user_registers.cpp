// Blocks in order of size, each to the first place that fits; growth only when
// nothing else is left.
#include "patch/rewrite/user_registers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "patch/analysis/allocation.h"
#include "patch/rewrite/register_choice.h"

namespace rjdbi::patch {
namespace {

bool IsVector(uint16_t reg) { return reg >= kVgpr0; }

struct Strategy {
  bool grow_sgprs, grow_vgprs;
};
constexpr Strategy kStrategies[] = {{false, false}, {false, true}, {true, false}, {true, true}};

// A run of registers to be found, and what to do with it.
struct Wanted {
  RegisterBlock block;       // of the body; or of nothing, for what is kept
  uint16_t* kept = nullptr;  // where to note it
};

class Chooser {
 public:
  Chooser(const KernelAnalysis& kernel, uint32_t instruction, const ProbeRequest& request,
          const UserProbe& probe, const std::optional<AccessAddress>& address)
      : kernel_(kernel),
        generation_(kernel.isa().generation()),
        request_(request),
        probe_(probe),
        address_(address),
        allocation_(AllocationOf(kernel.kernel(), generation_)),
        live_(kernel.LiveAt(instruction, request.position)),
        pending_(kernel.PendingAt(instruction, request.position)),
        busy_(live_ | pending_ | request.reserved),
        wave64_(kernel.isa().wavefront_size() == 64) {
    for (const auto& reg : SourceRegisters(probe, address)) {
      if (reg) busy_.Add(*reg);
    }
    if (address) busy_ |= address->Registers();
    const Instruction& site = kernel.instructions().Shared(instruction);
    if (!site.mfma) settled_ = site.uses.get();
  }

  std::variant<UserRegisters, Refusal> Choose() {
    needs_ = NeedsOf(probe_, live_, address_, wave64_);
    if (probe_.body.writes.HasAny(kVccLo, 2) && pending_.HasAny(kVccLo, 2)) {
      return Refusal{Reason::kNoSgprPair, "VCC has a load in flight", "VCC that can be kept",
                     "the probe writes VCC, which a load in flight will still write"};
    }
    FindDirect();
    for (const Strategy& strategy : kStrategies) {
      if (Try(strategy)) return std::move(choice_);
    }
    return refusal_;
  }

 private:
  // Blocks that only hand on what the application has in the same order.
  void FindDirect() {
    const auto sources = SourceRegisters(probe_, address_);
    for (const RegisterBlock& block : probe_.body.blocks) {
      bool direct = IsVector(block.first);
      int shift = 0;
      for (unsigned k = 0; direct && k < block.count; ++k) {
        const uint16_t reg = static_cast<uint16_t>(block.first + k);
        const size_t word = reg - kVgpr0;
        direct = word < sources.size() && sources[word] && !probe_.body.writes.Has(reg) &&
                 probe_.body.reads.Has(reg) && !pending_.Has(*sources[word]);
        if (!direct) break;
        if (k == 0) shift = *sources[word] - reg;
        direct = *sources[word] - reg == shift;
      }
      if (direct && shift % block.alignment == 0) direct_.Add(block.first, block.count);
    }
  }

  std::vector<Wanted> Wants() {
    std::vector<Wanted> wants;
    for (const RegisterBlock& block : probe_.body.blocks) {
      if (!direct_.Has(block.first)) wants.push_back({block, nullptr});
    }
    const uint8_t mask = wave64_ ? 2 : 1;
    if (needs_.exec) wants.push_back({{kSgpr0, mask, mask}, &choice_.exec});
    if (needs_.vcc) wants.push_back({{kSgpr0, 2, 2}, &choice_.vcc});
    if (needs_.mask) wants.push_back({{kSgpr0, mask, mask}, &choice_.mask});
    if (needs_.scc) wants.push_back({{kSgpr0, 1, 1}, &choice_.scc});
    if (needs_.m0) wants.push_back({{kSgpr0, 1, 1}, &choice_.m0});
    std::stable_sort(wants.begin(), wants.end(), [](const Wanted& a, const Wanted& b) {
      return std::pair(a.block.alignment, a.block.count) >
             std::pair(b.block.alignment, b.block.count);
    });
    return wants;
  }

  bool Try(const Strategy& strategy) {
    choice_ = UserRegisters();
    choice_.required_sgprs = HighestSgpr(kernel_);
    choice_.required_vgprs = HighestVgpr(kernel_);
    NoteDirect();
    for (const Wanted& wanted : Wants()) {
      if (!Take(wanted, strategy)) return false;
    }
    choice_.sgpr_delta = static_cast<int32_t>(SgprsAllocatedFor(kernel_, choice_.required_sgprs)) -
                         static_cast<int32_t>(allocation_.sgprs);
    choice_.vgpr_delta = static_cast<int32_t>(VgprsAllocatedFor(kernel_, choice_.required_vgprs)) -
                         static_cast<int32_t>(allocation_.vgprs);
    return WithinBudget(choice_.sgpr_delta, request_.max_sgpr_delta, Reason::kSgprBudget,
                        " SGPRs") &&
           WithinBudget(choice_.vgpr_delta, request_.max_vgpr_delta, Reason::kVgprBudget, " VGPRs");
  }

  void NoteDirect() {
    choice_.vgprs_fresh = (Given() - settled_).Empty();
    const auto sources = SourceRegisters(probe_, address_);
    direct_.ForEach([&](uint16_t reg) { choice_.renaming[reg] = *sources[reg - kVgpr0]; });
    choice_.direct = direct_;
  }

  // The application's vector registers that the sequence reads.
  RegisterSet Given() const {
    RegisterSet given;
    if (address_) given.Add(address_->vgpr, address_->vgpr_dwords);
    for (const ProbeArgument& argument : probe_.arguments) {
      if (argument.kind != ArgumentKind::kRegister || !IsVector(argument.reg)) continue;
      given.Add(argument.reg, argument.dwords);
    }
    return given;
  }

  bool WithinBudget(int32_t delta, uint32_t limit, Reason reason, const char* unit) {
    if (delta <= 0 || static_cast<uint32_t>(delta) <= limit) return true;
    Refuse(reason, absl::StrCat(delta, unit), absl::StrCat(limit, unit),
           "the kernel's allocation would have to grow beyond the budget");
    return false;
  }

  // A budget is more useful to know than a missing register.
  void Refuse(Reason reason, std::string observed, std::string limit, std::string detail) {
    const auto budget = [](Reason r) {
      return r == Reason::kSgprBudget || r == Reason::kVgprBudget;
    };
    if (budget(refusal_.reason) && !budget(reason)) return;
    refusal_ = {reason, std::move(observed), std::move(limit), std::move(detail)};
  }

  bool Free(uint16_t first, uint32_t count, const RegisterSet& avoided) const {
    return !busy_.HasAny(first, count) && !avoided.HasAny(first, count) &&
           !choice_.temporaries.HasAny(first, count);
  }

  // The lowest run below `limit` that fits the block.
  std::optional<uint16_t> Find(const RegisterBlock& block, uint32_t limit,
                               const RegisterSet& avoided, uint32_t beyond = 0) const {
    const uint16_t base = IsVector(block.first) ? kVgpr0 : kSgpr0;
    for (uint32_t n = (block.first - base) % block.alignment; n + block.count <= limit;
         n += block.alignment) {
      const auto reg = static_cast<uint16_t>(base + n);
      if (n + block.count > beyond && Free(reg, block.count, avoided)) return reg;
    }
    return std::nullopt;
  }

  std::optional<uint16_t> FindScalars(const RegisterBlock& block, bool grow) {
    const RegisterSet& mentioned = kernel_.mentioned();
    const uint32_t allocated = allocation_.ordinary_sgprs;
    std::optional<uint16_t> reg = Find(block, allocated, mentioned);
    // gfx12: see register_choice.cpp.
    if (!reg && generation_.major < 12) reg = Find(block, allocated, busy_);
    if (!reg && grow && generation_.sgprs_allocated) {
      reg = Find(block, generation_.addressable_sgprs, mentioned, allocated);
    }
    if (!reg) {
      Refuse(Reason::kNoSgprPair, absl::StrCat(allocated, " SGPRs allocated"),
             absl::StrCat(generation_.addressable_sgprs, " SGPRs"),
             absl::StrCat("no ", int{block.count}, " scalar registers are free together"));
    }
    return reg;
  }

  // The halves of a wave64 share registers: growth would move their bounds.
  bool SharesVgprs() const {
    return generation_.major >= 10 && generation_.major <= 11 &&
           (kernel_.kernel().descriptor.compute_pgm_rsrc3 & 0xf) != 0;
  }

  std::optional<uint16_t> FindVectors(const RegisterBlock& block, bool grow) {
    const RegisterSet& mentioned = kernel_.mentioned();
    std::optional<uint16_t> reg = Find(block, allocation_.arch_vgprs, mentioned);
    if (!reg) reg = GrowVectors(block, allocation_.vgprs);  // a granule's slack
    if (!reg) {
      reg = Find(block, allocation_.arch_vgprs, busy_);
      choice_.vgprs_fresh &= !reg;
    }
    if (!reg && grow) reg = GrowVectors(block, generation_.unified_vgpr_file ? 512 : 256);
    if (!reg) {
      Refuse(Reason::kNoVgprs, absl::StrCat(allocation_.arch_vgprs, " VGPRs allocated"),
             absl::StrCat(generation_.max_arch_vgprs, " VGPRs"),
             absl::StrCat("no ", int{block.count}, " vector registers are free together"));
    }
    return reg;
  }

  // Past the present allocation, if then no more than `limit` VGPRs are allocated
  // in total.
  std::optional<uint16_t> GrowVectors(const RegisterBlock& block, uint32_t limit) const {
    if (SharesVgprs()) return std::nullopt;
    const std::optional<uint16_t> reg =
        Find(block, generation_.max_arch_vgprs, kernel_.mentioned(), allocation_.arch_vgprs);
    if (!reg) return std::nullopt;
    const uint32_t arch = static_cast<uint32_t>(*reg - kVgpr0) + block.count;
    if (VgprsAllocatedFor(kernel_, arch) > limit) return std::nullopt;
    return reg;
  }

  bool Take(const Wanted& wanted, const Strategy& strategy) {
    const RegisterBlock& block = wanted.block;
    const bool vector = IsVector(block.first);
    const std::optional<uint16_t> reg =
        vector ? FindVectors(block, strategy.grow_vgprs) : FindScalars(block, strategy.grow_sgprs);
    if (!reg) return false;
    choice_.temporaries.Add(*reg, block.count);
    const uint32_t number = *reg - (vector ? kVgpr0 : kSgpr0);
    const uint32_t allocated = vector ? allocation_.arch_vgprs : allocation_.ordinary_sgprs;
    uint32_t& required = vector ? choice_.required_vgprs : choice_.required_sgprs;
    required = std::max(required, number + block.count);
    for (uint32_t k = 0; k < block.count; ++k) {
      if (number + k >= allocated) choice_.grown.Add(static_cast<uint16_t>(*reg + k));
      if (wanted.kept != nullptr) continue;
      choice_.renaming[block.first + k] = static_cast<uint16_t>(*reg + k);
      choice_.renamed.Add(static_cast<uint16_t>(block.first + k));
    }
    if (wanted.kept != nullptr) *wanted.kept = *reg;
    return true;
  }

  const KernelAnalysis& kernel_;
  const Generation& generation_;
  const ProbeRequest& request_;
  const UserProbe& probe_;
  const std::optional<AccessAddress>& address_;
  const Allocation allocation_;
  const RegisterSet live_, pending_;
  RegisterSet busy_;
  // Which the site's own instruction reads: what wrote them is far enough away.
  RegisterSet settled_;
  const bool wave64_;
  UserNeeds needs_;
  RegisterSet direct_;
  UserRegisters choice_;
  Refusal refusal_;
};

}  // namespace

UserNeeds NeedsOf(const UserProbe& probe, const RegisterSet& live,
                  const std::optional<AccessAddress>& address, bool wave64) {
  const RegisterSet& writes = probe.body.writes;
  UserNeeds needs;
  // Behind a branch that asks for lanes EXEC is known to be what it was only if it
  // is restored.
  needs.exec =
      writes.HasAny(kExecLo, wave64 ? 2 : 1) || probe.body.needs_active_lane ||
      std::any_of(probe.body.instructions.begin(), probe.body.instructions.end(),
                  [](const Instruction& in) { return in.opcode.starts_with("s_cbranch_exec"); });
  needs.vcc = writes.HasAny(kVccLo, 2) && live.HasAny(kVccLo, 2);
  needs.scc = writes.Has(kScc) && live.Has(kScc);
  needs.m0 = writes.Has(kM0) && live.Has(kM0);
  const std::vector<ArgumentWord> words = ArgumentWords(probe);
  for (size_t word = 0; word < words.size(); ++word) {
    if (!probe.body.reads.Has(static_cast<uint16_t>(kVgpr0 + word))) continue;
    const ArgumentWord& from = words[word];
    const bool sum = address && (address->base || address->offset != 0);
    // The high half of a sum takes a carry; s_getreg writes a scalar register.
    needs.mask |= from.argument->kind == ArgumentKind::kAddress && from.word == 1 && sum;
    needs.mask |= from.argument->kind == ArgumentKind::kWaveSlot;
  }
  return needs;
}

std::vector<std::optional<uint16_t>> SourceRegisters(const UserProbe& probe,
                                                     const std::optional<AccessAddress>& address) {
  std::vector<std::optional<uint16_t>> sources;
  for (const ArgumentWord& word : ArgumentWords(probe)) {
    std::optional<uint16_t>& source = sources.emplace_back();
    if (word.argument->kind == ArgumentKind::kRegister) {
      source = static_cast<uint16_t>(word.argument->reg + word.word);
    }
    const bool plain = address && !address->base && address->offset == 0;
    if (word.argument->kind == ArgumentKind::kAddress && plain &&
        word.word < address->vgpr_dwords) {
      source = static_cast<uint16_t>(address->vgpr + word.word);
    }
  }
  return sources;
}

std::variant<UserRegisters, Refusal> ChooseUserRegisters(
    const KernelAnalysis& kernel, uint32_t instruction, const ProbeRequest& request,
    const UserProbe& probe, const std::optional<AccessAddress>& address) {
  return Chooser(kernel, instruction, request, probe, address).Choose();
}

}  // namespace rjdbi::patch
