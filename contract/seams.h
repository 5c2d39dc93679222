// Whether inserted code keeps hazards apart at its seams, judged from its bytes:
// anything that the application may do right before and right behind it is assumed.
// The facts are the tables of patch/isa; the rewriter's choice of guards is not
// asked for.
#ifndef CONTRACT_SEAMS_H_
#define CONTRACT_SEAMS_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {

// What is missing, as one sentence; nullopt: nothing. `code`: one sequence, whole.
// Held against
//  - the wait states of Generation::hazards (gfx9), to both sides and within;
//  - the generation's fences (gfx10.1, gfx11, gfx12): in front of everything that
//    touches a register or memory, and behind it; on gfx12 also between a scalar
//    register's write and a vector instruction that reads it, on gfx10.1 between a
//    vector memory access and the next write of EXEC or of a scalar that it reads.
std::optional<std::string> SeamHazard(patch::Isa& isa, absl::Span<const uint8_t> code);

// In a kernel with matrix instructions: too few wait states in front of the first
// instruction that touches one of `vectors`, which a matrix instruction may be
// about to write, or to read. `settled`: of them, those that can be read at once.
std::optional<std::string> MatrixHazard(patch::Isa& isa, absl::Span<const uint8_t> code,
                                        const patch::RegisterSet& vectors,
                                        const patch::RegisterSet& settled);

}  // namespace rjdbi::contract

#endif  // CONTRACT_SEAMS_H_
