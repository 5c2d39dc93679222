// What an instruction means to the proof: where control goes behind it, and what it
// does to sets of lanes. Worked out from the decoder's words and the encoding, once
// for each encoding. Nothing here comes from patch/analysis.
#ifndef CONTRACT_CODE_FACTS_H_
#define CONTRACT_CODE_FACTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "contract/by_id.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {

// Where control goes behind an instruction.
enum class Goes : uint8_t {
  kOn,
  kNowhere,   // the program ends
  kTo,        // to its target
  kEither,    // on, or to its target
  kCalls,     // to code that is not followed, and then on
  kAnywhere,  // nobody knows
};

// What an instruction makes of sets of lanes in EXEC, VCC and scalar registers.
enum class LaneStep : uint8_t {
  kNothing,
  kForgets,   // writes scalars; what is in them then is not known
  kLogic,     // to = table(a, b)
  kSaves,     // to = EXEC, EXEC = table(a, EXEC)
  kChooses,   // to = a or b
  kCompares,  // to, VCC or EXEC: some of the active lanes
};

struct CodeFact {
  // Operands of a lane step: a register, or one of these.
  static constexpr uint16_t kZero = 0xfff0, kOnes = 0xfff1, kUnknown = 0xfff2;

  bool known = false;
  Goes goes = Goes::kOn;
  LaneStep step = LaneStep::kNothing;
  uint8_t table = 0;  // bit 2a + b: the result for these two bits
  uint16_t to = kUnknown, a = kUnknown, b = kUnknown;
  bool writes_exec = false;  // lanes may be switched off
  bool widens = false;       // and on
  bool beyond_exec = false;  // writes vector registers in lanes that are not active
  // Vector operands are relative to M0 from here on, or no longer (gfx9).
  bool index_on = false, index_off = false;
  bool renumbers = false;   // what a vector register's number means may change here
  bool gives_back = false;  // the wavefront has no vector registers from here on
  bool skips = false;       // vector instructions may be skipped from here on
};

// Of instructions that one Isa decoded, which must outlive it.
class CodeFacts {
 public:
  explicit CodeFacts(patch::Isa& isa) : isa_(isa) {}
  // `bytes`: the instruction's own, and perhaps more.
  const CodeFact& Of(const patch::Instruction& in, absl::Span<const uint8_t> bytes) {
    CodeFact& fact = facts_[in.id];
    if (!fact.known) fact = Make(in, bytes);
    return fact;
  }
  // After Of().
  const CodeFact& Known(const patch::Instruction& in) const { return facts_.Known(in.id); }

 private:
  CodeFact Make(const patch::Instruction& in, absl::Span<const uint8_t> bytes) const;

  patch::Isa& isa_;
  ById<CodeFact> facts_;
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_CODE_FACTS_H_
