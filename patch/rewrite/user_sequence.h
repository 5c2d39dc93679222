// The machine code of a user's probe at one site:
//
//   keep what the body clobbers and the application needs: EXEC, VCC, SCC, M0
//   arguments into the registers of the body, under the application's EXEC
//   the body, with other registers
//   restore
//
// Of each the part that the body makes necessary: words that it never reads are
// not passed, registers that it only reads stand for themselves.
#ifndef PATCH_REWRITE_USER_SEQUENCE_H_
#define PATCH_REWRITE_USER_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "patch/isa/isa.h"
#include "patch/probe/user_probe.h"
#include "patch/rewrite/access_address.h"
#include "patch/rewrite/assembly_cache.h"
#include "patch/rewrite/user_registers.h"

namespace rjdbi::patch {

struct UserSite {
  UserNeeds needs;
  std::optional<AccessAddress> address;
  uint32_t counter_index = 0;  // of the site's first word
  std::string_view head_guard;
};

// `key`: see AssemblyCache. INVALID_ARGUMENT: the body cannot have these
// registers. INTERNAL: LLVM refused our text.
absl::StatusOr<ProbeSequence> BuildUserSequence(Isa& isa, const std::string& key,
                                                const UserProbe& probe,
                                                const UserRegisters& registers,
                                                const UserSite& site, AssemblyCache& cache);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_USER_SEQUENCE_H_
