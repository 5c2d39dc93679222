// Machine code with one mistake in it: what an engine with a bug might have written.
// Each operator makes one kind of mistake, at a random place of a stretch of code.
// Mutants are as long as the original, decode from end to end, and decode to something
// else than the original did.
#ifndef TESTS_CONTRACT_MUTANTS_H_
#define TESTS_CONTRACT_MUTANTS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "patch/isa/isa.h"
#include "patch/isa/register_set.h"
#include "patch/plan/shared_code.h"

namespace rjdbi::test {

// A stretch of code as operators see it.
struct MutantSource {
  patch::Isa& isa;
  std::vector<uint8_t> code;
  std::vector<patch::WordFixup> fixups;          // offsets into `code`
  patch::RegisterSet live;                       // what the application needs
  std::vector<patch::Instruction> instructions;  // of `code`
};
// nullopt: it does not decode.
std::optional<MutantSource> MakeMutantSource(patch::Isa& isa, absl::Span<const uint8_t> code,
                                             std::vector<patch::WordFixup> fixups,
                                             const patch::RegisterSet& live);

struct Mutant {
  std::vector<uint8_t> code;
  std::vector<patch::WordFixup> fixups;
  std::string what;  // lines that changed, disassembled
};

using Random = std::mt19937;
struct MutantOperator {
  const char* name;
  const char* changes;  // for people
  // nullopt: there was nothing of the kind where it looked.
  std::optional<Mutant> (*make)(const MutantSource& source, Random& random);
  // What it changes shows in no result on a machine that does one thing after the other.
  bool timing = false;
};
absl::Span<const MutantOperator> MutantOperators();

// Applies the operator, as often as is reasonable; nullopt: no mutant.
std::optional<Mutant> Mutate(const MutantSource& source, const MutantOperator& op, Random& random);

}  // namespace rjdbi::test

#endif  // TESTS_CONTRACT_MUTANTS_H_
