// Site selectors: which instructions of a kernel a probe is asked for.
//
//   selector := term { ',' term }
//   term     := opcode glob ("ds_*", "global_store*") | "entry" | "kernel+0xOFFSET"
//             | "memory"   (every load, store and atomic)
#ifndef PATCH_ANALYSIS_SELECTOR_H_
#define PATCH_ANALYSIS_SELECTOR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

class Selector {
 public:
  // INVALID_ARGUMENT names the column (1-based) and what was expected.
  static absl::StatusOr<Selector> Parse(std::string_view text);

  struct Selection {
    std::vector<uint32_t> instructions;     // indices, ascending
    std::vector<uint64_t> missing_offsets;  // explicit offsets that are no instruction's start
  };
  Selection Select(const KernelAnalysis& kernel) const;
  const std::string& text() const { return text_; }

 private:
  struct Term {
    enum class Kind : uint8_t { kOpcodeGlob, kEntry, kOffset, kMemory } kind;
    std::string glob;
    uint64_t offset = 0;
  };
  std::string text_;
  std::vector<Term> terms_;
};

// Shell-style glob: * ? [abc] [a-z] [!x].
bool GlobMatch(std::string_view glob, std::string_view text);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_SELECTOR_H_
