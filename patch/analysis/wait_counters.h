// Which outstanding-operation counters an instruction raises, and which ones a
// wait certainly brings to zero.
//
// The waits' encodings are in the hardware tables (patch/isa/generations/).
#ifndef PATCH_ANALYSIS_WAIT_COUNTERS_H_
#define PATCH_ANALYSIS_WAIT_COUNTERS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

// One bit per counter that guards register writes. Generations before gfx12
// have the first three; there kDs and kKm are the same counter (lgkm).
enum WaitCounter : uint8_t {
  kWaitLoad = 1 << 0,    // vmcnt / loadcnt
  kWaitDs = 1 << 1,      // lgkmcnt / dscnt
  kWaitKm = 1 << 2,      // lgkmcnt / kmcnt
  kWaitSample = 1 << 3,  // gfx12
  kWaitBvh = 1 << 4,     // gfx12
  kWaitNever = 1 << 5,   // no wait that we decode covers it
};
inline constexpr unsigned kNumWaitCounters = 6;

// Counters that cover the register results of `in`, if it has any; 0: none late.
// With several bits the result is safe only after all of them were waited for.
uint8_t CountersRaised(const Instruction& in, const Generation& generation);

// Whether the instruction that starts with `word` waits as the field says, and how
// many operations it then leaves outstanding at most.
bool WaitsFor(const WaitField& field, uint32_t word, const Generation& generation);
uint32_t LeavesOutstanding(const WaitField& field, uint32_t word);

// Counters that are certainly zero after `in`. `word`: its first dword.
uint8_t CountersCleared(const Instruction& in, uint32_t word, const Generation& generation);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_WAIT_COUNTERS_H_
