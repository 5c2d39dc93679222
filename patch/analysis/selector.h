// Site selectors: which instructions of a kernel a probe is asked for. The
// grammar and what each term selects: docs/selectors.md.
#ifndef PATCH_ANALYSIS_SELECTOR_H_
#define PATCH_ANALYSIS_SELECTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/analysis/kernel_analysis.h"

namespace rjdbi::patch {

// What is wrong with a selector's text.
struct SelectorError {
  size_t column = 0;  // 1-based, in bytes
  std::string expected;
};

class Selector {
 public:
  static constexpr size_t kMaxLength = 4096;  // bytes
  static constexpr int kMaxDepth = 64;        // of parentheses and prefix operators

  // INVALID_ARGUMENT names the column and what was expected, on one line, and
  // then shows the text with a caret below the column. `error`: the same, apart.
  static absl::StatusOr<Selector> Parse(std::string_view text, SelectorError* error = nullptr);

  struct Selection {
    std::vector<uint32_t> instructions;     // indices, ascending
    std::vector<uint64_t> missing_offsets;  // explicit offsets that are no instruction's start
    // Why the selector cannot be evaluated in this kernel; then nothing is selected.
    std::vector<Refusal> refusals;
  };
  Selection Select(const KernelAnalysis& kernel) const;
  const std::string& text() const { return text_; }
  // The opcode globs in it, in order: what is no other term is one, so a mistyped
  // family is, too.
  std::vector<std::string> OpcodeGlobs() const;

  struct Node;  // of the syntax tree; private to selector.cpp

 private:
  std::string text_;
  std::shared_ptr<const Node> root_;
};

// Whether a glob selects an opcode, whose encoding's suffix (_e32) may be left out.
bool OpcodeMatches(std::string_view glob, std::string_view opcode);

// Every word that is a term by itself: families, "entry", "exit", "block".
std::vector<std::string> SelectorWords();

// The text and a caret below the column, on two lines; what is far from the
// column is left out.
std::string PointAt(std::string_view text, size_t column);

// Shell-style glob: * ? [abc] [a-z] [!x].
bool GlobMatch(std::string_view glob, std::string_view text);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_SELECTOR_H_
