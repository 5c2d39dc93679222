// A probe's body for the registers of a site, ready to stand in line: control
// leaves at its end and nowhere else.
#ifndef PATCH_PROBE_RENAME_H_
#define PATCH_PROBE_RENAME_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/isa/isa.h"
#include "patch/probe/probe_body.h"

namespace rjdbi::patch {

struct RenamedBody {
  std::vector<uint8_t> bytes;
  uint32_t instructions = 0;
  // By instruction of the body: offset in `bytes`, of what follows for those that
  // are gone.
  std::vector<uint32_t> places;
};

// `renaming` must keep the blocks together. INVALID_ARGUMENT, naming the
// instruction: it cannot have these registers.
absl::StatusOr<RenamedBody> RenameBody(const ProbeBody& body, const RegisterRenaming& renaming,
                                       Isa& isa);

}  // namespace rjdbi::patch

#endif  // PATCH_PROBE_RENAME_H_
