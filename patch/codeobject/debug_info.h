// Where a code object's instructions come from, as its DWARF says: source lines.
//
// Read on first use and kept with the object. The bytes are foreign: sizes and
// counts in them are held against what is there, work and memory are bounded by
// the sections' sizes, and what does not add up is an error, never a guess. (A
// reader of our own, because LLVM's believes counts in headers.)
// Source: DWARF 5 and DWARF 4, section 6.2.
#ifndef PATCH_CODEOBJECT_DEBUG_INFO_H_
#define PATCH_CODEOBJECT_DEBUG_INFO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rjdbi::patch {

class LineTable {
 public:
  struct Row {
    uint64_t begin = 0, end = 0;  // addresses
    uint32_t line = 0;
    uint32_t file = 0;  // see FileName
  };
  // Rows by address, disjoint. `rows` in any order; of overlapping ones, as
  // linkers leave them for code they dropped, the one that begins later counts
  // from there on.
  LineTable(std::vector<Row> rows, std::vector<std::string> files);

  // The rows that overlap [begin, end).
  absl::Span<const Row> Overlapping(uint64_t begin, uint64_t end) const;
  // As the compiler noted it, with its directory where that is known.
  const std::string& FileName(const Row& row) const { return files_[row.file]; }

 private:
  std::vector<Row> rows_;
  std::vector<std::string> files_;
};

class DebugInfo {
 public:
  // `object`: a whole ELF file that CodeObject::Parse has accepted, which must
  // outlive this.
  explicit DebugInfo(absl::Span<const uint8_t> object);
  ~DebugInfo();

  // NOT_FOUND: the object has none. INVALID_ARGUMENT: malformed, or compressed.
  // Safe to call from several threads.
  const absl::StatusOr<LineTable>& lines() const;

 private:
  struct Lazy;
  std::unique_ptr<Lazy> lazy_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_DEBUG_INFO_H_
