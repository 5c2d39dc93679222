// Whether registers are dead where a probe takes them for dead.
//
// Inserted code is judged under an assumption, the engine's, of what the application
// still needs at the site. What it changed because it was assumed dead is held here
// against the kernel's code itself: the only registers that are looked at are those.
//
// The argument: take one lane. At each place it is active or not. While it is active, an
// instruction that reads the register reads this lane's part, and one that writes all of
// it ends what was there before; while it is not active, neither does. Instructions that
// write EXEC may switch it off, and on unless they can only make EXEC smaller; whoever
// reads across lanes reads it either way. Where every lane is active that ever is
// (lanes.h), it is not inactive. A vector register is dead if no lane's part of it can be
// read before it is written, whether the lane is active at the site or not; a scalar
// register as ever. Behind calls, and where control goes to code that is not followed,
// everything is read that any code there mentions.
#ifndef CONTRACT_DEAD_H_
#define CONTRACT_DEAD_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "contract/by_id.h"
#include "contract/kernel_code.h"
#include "patch/isa/register_set.h"

namespace rjdbi::contract {

struct DeadClaim {
  uint32_t instruction = 0;
  bool behind = false;                       // of the instruction, not in front of it
  const patch::RegisterSet* dead = nullptr;  // what is assumed to be
  // No load in flight may write these; nullptr: not claimed. Held against kernels only
  // that waitcheck.h cannot follow, of which everything may be in flight everywhere.
  const patch::RegisterSet* landed = nullptr;
};

struct NotDead {
  enum class Why : uint8_t {
    kRead,         // `reg` may be read; `reader` says where, if that was found
    kIndexed,      // `reg` may be read through an index
    kUnknownCode,  // control reaches code that does not decode
    kInFlight,     // a load may still write `reg`, for all that is known
    kPlace,        // vector register numbers do not mean there what they say
  };
  size_t claim = 0;
  Why why = Why::kRead;
  uint16_t reg = 0;
  std::optional<uint64_t> reader;  // kernel offset
};

// "v3 is not proven to be dead: v_add_f32 at kernel+0x40 may read it".
std::string DescribeNotDead(const NotDead& finding, const KernelCode& kernel);
// "v3", or what stands in the way of all proofs.
std::string ObservedNotDead(const NotDead& finding);

// Reusable from kernel to kernel.
class DeadProof {
 public:
  // Those claims that are not proven, one finding each, ascending. Linear in the kernel
  // for each 64 registers.
  std::vector<NotDead> Refute(const KernelCode& kernel, absl::Span<const DeadClaim> claims);

 private:
  // What an instruction does to the registers that are looked at, a bit each.
  struct Step {
    uint64_t reads = 0, across = 0, ends = 0;
    bool writes_exec = false, widens = false, calls = false;
    uint32_t round = 0;  // for which registers
  };
  // Which registers are needed in a lane that is active, and in one that is not; and
  // how that follows from the same at a block's end.
  struct Lives {
    uint64_t active = 0, idle = 0;
    bool operator==(const Lives&) const = default;
  };
  struct Rule {
    uint64_t always = 0, if_active = 0, if_idle = 0;
    Rule operator|(const Rule& o) const {
      return {always | o.always, if_active | o.if_active, if_idle | o.if_idle};
    }
    Rule operator&(uint64_t bits) const {
      return {always & bits, if_active & bits, if_idle & bits};
    }
    uint64_t Of(const Lives& l) const {
      return always | (if_active & l.active) | (if_idle & l.idle);
    }
  };
  template <typename T>
  void Back(const Step& step, bool every, T& active, T& idle, const T& reads_active,
            const T& reads_idle, const T& everything) const;

  void Choose(const patch::RegisterSet& wanted);
  uint64_t Project(const patch::RegisterSet& set) const;
  const Step& StepOf(const KernelCode& kernel, uint32_t i);
  void Solve(const KernelCode& kernel);
  Lives AtEnd(const KernelCode& kernel, uint32_t block) const;
  void StepBack(const KernelCode& kernel, uint32_t i, Lives& lives);

  // Of the registers at hand.
  patch::RegisterSet chosen_;
  std::array<uint8_t, patch::kNumRegisters> bit_ = {};
  std::array<uint16_t, 64> reg_ = {};
  uint64_t scalars_ = 0, vectors_ = 0;
  ById<Step> steps_;
  uint32_t round_ = 0;
  std::vector<bool> every_lane_;  // of the kernel
  std::vector<Lives> in_;         // by block
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_DEAD_H_
