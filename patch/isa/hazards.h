// Hazards that software must keep apart with wait states (gfx9): which instruction
// is meant by a row of Generation::hazards, and what a stretch of code lacks. Later
// generations interlock, or have fences instead: Generation's guards.
//
// Only seams matter: code that is inserted lengthens distances between the
// application's own instructions. What stands on the other side of a seam is not
// looked at: anything may, on some path. So the distance that inserted code keeps
// by itself is what counts, and what is missing is made up with s_nop.
//
// Sources: the ISA documents' "manually inserted wait states" (Vega, MI200,
// MI300); LLVM GCNHazardRecognizer. tests/patch/isa_hazards_test holds each row
// against LLVM's hazard recogniser. Matrix instructions: Generation's
// mfma_head_guard.
#ifndef PATCH_ISA_HAZARDS_H_
#define PATCH_ISA_HAZARDS_H_

#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

bool Is(HazardProducer producer, const Instruction& in);
bool Is(HazardConsumer consumer, const Instruction& in);

// That pass while the instruction issues: 1, or s_nop's count. `word`: its first.
uint32_t WaitStatesOf(const Instruction& in, uint32_t word);

// Whether a rule is about these two: what it names, with a register in common. Where
// the hardware looks at the kinds alone, the kinds alone.
bool Clash(const HazardRule& rule, const Instruction& first, const Instruction& second);

// Wait states to put in front of `code` so that nothing that may have executed
// before it is too close, and behind it for what may follow, on any path through it.
// Whole instructions; at most the highest of the table.
uint32_t WaitStatesMissingAhead(Isa& isa, absl::Span<const uint8_t> code);
uint32_t WaitStatesMissingBehind(Isa& isa, absl::Span<const uint8_t> code);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_HAZARDS_H_
