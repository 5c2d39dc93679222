// See the header.
#include "patch/rewrite/user_plan.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "patch/rewrite/access_address.h"
#include "patch/rewrite/probe_sequence.h"
#include "patch/rewrite/user_registers.h"
#include "patch/rewrite/user_sequence.h"

namespace rjdbi::patch {
namespace {

// Its guards wait for stores: see generation.h.
constexpr std::string_view kDrainingFamily = "gfx10.1";

class Planner {
 public:
  Planner(const KernelAnalysis& kernel, const ProbeRequest& request, uint32_t instruction)
      : kernel_(kernel),
        request_(request),
        probe_(*request.user),
        instruction_(instruction),
        site_(kernel.instructions()[instruction]) {}

  // What the arguments name must be there.
  std::optional<Refusal> FindArguments(std::optional<AccessAddress>* address) const {
    const std::vector<ArgumentWord> words = ArgumentWords(probe_);
    for (size_t n = 0; n < words.size(); ++n) {
      if (!probe_.body.reads.Has(static_cast<uint16_t>(kVgpr0 + n))) continue;
      const ProbeArgument& argument = *words[n].argument;
      std::optional<Refusal> refusal;
      if (argument.kind == ArgumentKind::kRegister) {
        refusal = RegisterMissing(static_cast<uint16_t>(argument.reg + words[n].word));
      }
      if (argument.kind == ArgumentKind::kAddress) refusal = FindAddress(n, words[n], address);
      if (refusal) return refusal;
    }
    return std::nullopt;
  }

 private:
  std::optional<Refusal> RegisterMissing(uint16_t reg) const {
    const RegisterSet live = kernel_.LiveAt(instruction_, request_.position);
    const RegisterSet pending = kernel_.PendingAt(instruction_, request_.position);
    const bool before = request_.position == Position::kBefore;
    if (!live.Has(reg)) {
      return Refusal{Reason::kProbeArgument, absl::StrCat(RegisterName(reg), ", which is dead"),
                     "a register that the kernel still reads",
                     absl::StrCat("nothing keeps what ", RegisterName(reg), " held here")};
    }
    if (pending.Has(reg) && !(before && site_.uses.Has(reg))) {
      return Refusal{Reason::kProbeArgument, absl::StrCat(RegisterName(reg), ", in flight"),
                     "a register that no load will still write",
                     absl::StrCat("a load may still write ", RegisterName(reg))};
    }
    return std::nullopt;
  }

  std::optional<Refusal> FindAddress(size_t n, const ArgumentWord& word,
                                     std::optional<AccessAddress>* address) const {
    auto found = AddressOf(site_);
    if (Refusal* refusal = std::get_if<Refusal>(&found)) return std::move(*refusal);
    *address = std::get<AccessAddress>(found);
    const RegisterSet overwritten = site_.defs | site_.partial_defs;
    if (request_.position == Position::kAfter && !((*address)->Registers() & overwritten).Empty()) {
      return Refusal{Reason::kProbeArgument, std::string(site_.opcode),
                     "an instruction that leaves its address",
                     "behind it the registers that held the address hold something else"};
    }
    // Of a sum of three parts the low half has to be kept for its carries.
    const bool three = (*address)->base && (*address)->offset != 0;
    const bool low = word.word == 1 && probe_.body.reads.Has(static_cast<uint16_t>(kVgpr0 + n - 1));
    if (word.word == 1 && three && !low) {
      return Refusal{Reason::kProbeArgument, std::string(site_.opcode), "both halves, or the low",
                     "the probe reads the upper half of an address alone"};
    }
    return std::nullopt;
  }

  const KernelAnalysis& kernel_;
  const ProbeRequest& request_;
  const UserProbe& probe_;
  const uint32_t instruction_;
  const Instruction site_;
};

std::string_view HeadGuard(const KernelAnalysis& kernel, bool vgprs_fresh) {
  const Generation& generation = kernel.isa().generation();
  if (vgprs_fresh || generation.mfma_head_guard.empty()) return generation.head_guard;
  return kernel.may_run_matrix_instructions() ? generation.mfma_head_guard : generation.head_guard;
}

}  // namespace

std::optional<Refusal> PlanUserProbe(const KernelAnalysis& kernel, const ProbeRequest& request,
                                     AssemblyCache& cache, SitePlan& plan) {
  const UserProbe& probe = *request.user;
  UserSite site;
  const Planner planner(kernel, request, plan.instruction);
  if (auto refusal = planner.FindArguments(&site.address)) return refusal;
  auto choice = ChooseUserRegisters(kernel, plan.instruction, request, probe, site.address);
  if (Refusal* refusal = std::get_if<Refusal>(&choice)) return std::move(*refusal);
  const UserRegisters& registers = std::get<UserRegisters>(choice);
  site.needs = NeedsOf(probe, kernel.LiveAt(plan.instruction, request.position), site.address,
                       kernel.isa().wavefront_size() == 64);
  site.counter_index = request.counter_index;
  site.head_guard = HeadGuard(kernel, registers.vgprs_fresh);
  auto sequence =
      BuildUserSequence(kernel.isa(), AssemblyKey(kernel), probe, registers, site, cache);
  if (!sequence.ok()) {
    return Refusal{Reason::kAssemblerFailed, "", "", std::string(sequence.status().message())};
  }
  plan.sequence = std::move(sequence->bytes);
  plan.fixups = std::move(sequence->fixups);
  plan.injected_instructions = sequence->instructions;
  plan.temporaries = registers.temporaries;
  plan.grown = registers.grown;
  plan.required_sgprs = registers.required_sgprs;
  plan.required_vgprs = registers.required_vgprs;
  plan.sgpr_delta = registers.sgpr_delta;
  plan.vgpr_delta = registers.vgpr_delta;
  plan.drains_waits = probe.body.waits || kernel.isa().generation().family == kDrainingFamily;
  return std::nullopt;
}

}  // namespace rjdbi::patch
