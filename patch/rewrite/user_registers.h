// Which registers a user's probe gets at one site: each block of its body goes to
// free registers, or stands for the application's own where it only reads what it
// is given; and where what it clobbers is kept meanwhile.
//
// Free are, in order: what the kernel never mentions but has allocated; what is
// mentioned, dead, and no load in flight will still write; what growing the
// allocation gains.
#ifndef PATCH_REWRITE_USER_REGISTERS_H_
#define PATCH_REWRITE_USER_REGISTERS_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"
#include "patch/probe/user_probe.h"
#include "patch/rewrite/access_address.h"

namespace rjdbi::patch {

// What a sequence around the body needs besides the body's own blocks.
struct UserNeeds {
  bool exec = false, vcc = false, scc = false, m0 = false;  // keep
  bool mask = false;  // a scalar mask of lanes, for carries and the like, during set-up
};

struct UserRegisters {
  RegisterRenaming renaming = NoRenaming();
  RegisterSet renamed;                   // of the body, those that `renaming` moved by choice
  RegisterSet direct;                    // of the body: stand for the application's own
  uint16_t exec = 0, vcc = 0, mask = 0;  // Register: where they are kept
  uint16_t scc = 0, m0 = 0;
  bool vgprs_fresh = true;  // all vector registers, but for those that the site reads
  RegisterSet temporaries, grown;
  uint32_t required_sgprs = 0, required_vgprs = 0;
  int32_t sgpr_delta = 0, vgpr_delta = 0;
};

// What is needed at a place where `live` registers hold something.
UserNeeds NeedsOf(const UserProbe& probe, const RegisterSet& live,
                  const std::optional<AccessAddress>& address, bool wave64);

// Argument words that the body can read where the application keeps them: by
// word, the Register.
std::vector<std::optional<uint16_t>> SourceRegisters(const UserProbe& probe,
                                                     const std::optional<AccessAddress>& address);

std::variant<UserRegisters, Refusal> ChooseUserRegisters(
    const KernelAnalysis& kernel, uint32_t instruction, const ProbeRequest& request,
    const UserProbe& probe, const std::optional<AccessAddress>& address);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_USER_REGISTERS_H_
