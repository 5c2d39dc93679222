// Loops of a probe's body whose number of rounds follows from constants, written out:
// what is left has forward branches only, which is all that the rest of the engine
// and the contract have to understand. An event may run no more instructions than its
// budget allows anyway, so that the code is never longer than what it does.
//
// The body is specialised for the scalar constants that its uniform branches depend
// on: an instruction appears once for each set of them with which it can be reached.
#ifndef PATCH_PROBE_UNROLL_H_
#define PATCH_PROBE_UNROLL_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

inline constexpr size_t kMostUnrolled = 1024;  // instructions

struct Unrolled {
  std::vector<uint8_t> code;
  std::vector<uint32_t> origins;  // by instruction: its offset in the body
};
// Why a body cannot be written out.
struct Endless {
  size_t instruction = 0;  // index
  std::string observed, limit, detail;
};

// `body`: the whole function, whose direct branches all lead to its instructions;
// `code`: its bytes.
std::variant<Unrolled, Endless> Unroll(const std::vector<Instruction>& body,
                                       absl::Span<const uint8_t> code, Isa& isa);

}  // namespace rjdbi::patch

#endif  // PATCH_PROBE_UNROLL_H_
