// Registers are dealt out from the top of each file down, so that those that the
// arguments name stay the application's.
#include "patch/rewrite/user_sample.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/rewrite/user_sequence.h"

namespace rjdbi::patch {
namespace {

constexpr uint16_t kVectors = 256;

class Dealer {
 public:
  Dealer(const UserProbe& probe, Isa& isa) : probe_(probe), isa_(isa) {
    scalar_ = isa.generation().addressable_sgprs;
    address_.vgpr = kVgpr0;
    address_.base = kSgpr0;
    address_.offset = 1024;
  }

  absl::StatusOr<UserSample> Run() {
    const bool wave64 = isa_.wavefront_size() == 64;
    RegisterSet everything;
    everything.Add(kSgpr0, isa_.generation().addressable_sgprs);
    everything.Add(kVgpr0, kVectors);
    everything.Add(kVccLo, 2);
    everything.Add(kM0);
    everything.Add(kScc);
    UserSite site;
    site.address = address_;
    // The longer one, of kernels with matrix instructions, where there are such.
    const Generation& generation = isa_.generation();
    site.head_guard =
        generation.mfma_head_guard.empty() ? generation.head_guard : generation.mfma_head_guard;
    site.needs = NeedsOf(probe_, everything, site.address, wave64);
    for (const RegisterBlock& block : probe_.body.blocks) Deal(block, nullptr);
    const uint8_t mask = wave64 ? 2 : 1;
    if (site.needs.exec) Deal({kSgpr0, mask, mask}, &registers_.exec);
    if (site.needs.vcc) Deal({kSgpr0, 2, 2}, &registers_.vcc);
    if (site.needs.mask) Deal({kSgpr0, mask, mask}, &registers_.mask);
    if (site.needs.scc) Deal({kSgpr0, 1, 1}, &registers_.scc);
    if (site.needs.m0) Deal({kSgpr0, 1, 1}, &registers_.m0);
    if (full_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the probe ", probe_.body.name, " needs more registers than there are"));
    }
    AssemblyCache cache;
    auto sequence = BuildUserSequence(isa_, "", probe_, registers_, site, cache);
    if (!sequence.ok()) return sequence.status();
    return UserSample{*std::move(sequence), everything - registers_.temporaries};
  }

 private:
  void Deal(const RegisterBlock& block, uint16_t* kept) {
    const bool vector = block.first >= kVgpr0;
    const uint16_t base = vector ? kVgpr0 : kSgpr0;
    uint32_t& top = vector ? vector_ : scalar_;
    // What arguments and the address may name stays below.
    constexpr uint32_t kBottom = 2;
    if (top < block.count + block.alignment + kBottom) {
      full_ = true;
      return;
    }
    uint32_t first = top - block.count;
    while (first % block.alignment != static_cast<uint32_t>(block.first - base) % block.alignment ||
           Named(static_cast<uint16_t>(base + first), block.count)) {
      if (first-- <= kBottom) {
        full_ = true;
        return;
      }
    }
    top = first;
    const auto reg = static_cast<uint16_t>(base + first);
    registers_.temporaries.Add(reg, block.count);
    if (kept != nullptr) *kept = reg;
    for (uint16_t k = 0; kept == nullptr && k < block.count; ++k) {
      registers_.renaming[static_cast<size_t>(block.first + k)] = static_cast<uint16_t>(reg + k);
    }
  }

  bool Named(uint16_t first, uint32_t count) const {
    for (const ProbeArgument& argument : probe_.arguments) {
      if (argument.kind != ArgumentKind::kRegister) continue;
      if (argument.reg < first + count && first < argument.reg + argument.dwords) return true;
    }
    return false;
  }

  const UserProbe& probe_;
  Isa& isa_;
  AccessAddress address_;
  UserRegisters registers_;
  uint32_t vector_ = kVectors, scalar_ = 0;
  bool full_ = false;
};

}  // namespace

absl::StatusOr<UserSample> SampleUserSequence(const UserProbe& probe, Isa& isa) {
  return Dealer(probe, isa).Run();
}

}  // namespace rjdbi::patch
