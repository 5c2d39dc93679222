// Our own opcode tables: which class each instruction is counted in. As YAML (the project's
// reader of manifests, contract/manifest_yaml.h); docs/opcode-tables.md has the form.
#ifndef CLIENTS_OPCODES_TABLE_H_
#define CLIENTS_OPCODES_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/opcodes/blob.h"
#include "rjdbi/v1/opcodes.pb.h"

namespace rjdbi::clients {

inline constexpr size_t kMostTableBytes = 256 * 1024;
inline constexpr size_t kMostTableRows = 4096;  // rows, and entries of the map

// A table that is sound: the last row that is on takes everything, and none before it
// does, so each mnemonic is in exactly one row.
class OpcodeClasses {
 public:
  // INVALID_ARGUMENT: "rows[3]: ...", or with its line and column where the table was text.
  static absl::StatusOr<OpcodeClasses> Make(const v1::OpcodeTable& table);
  // INVALID_ARGUMENT: "line L, column C: ...".
  static absl::StatusOr<OpcodeClasses> Read(std::string_view yaml);

  const v1::OpcodeTable& table() const { return table_; }
  // The row, an index, that counts an instruction with this mnemonic ("v_add_f32_e32").
  size_t RowOf(const std::string& mnemonic) const;
  // The number that the map gives it; none: only the wildcard takes it where rows have
  // numbers.
  std::optional<uint32_t> NumberOf(const std::string& mnemonic) const;
  // "s_load_*, s_buffer_*", "0x21/0xff".
  std::string Pattern(size_t row) const;

 private:
  struct Row {
    bool on = true;
    bool wildcard = false;
    std::optional<OpcodeMatch> number;  // else the globs
  };
  v1::OpcodeTable table_;
  std::vector<Row> rows_;
  std::vector<uint32_t> numbers_;  // of the map's entries

  friend class TableReader;
};

// A map alone: a table without rows. INVALID_ARGUMENT as above.
absl::StatusOr<v1::OpcodeTable> ReadOpcodeMap(std::string_view yaml);

// The table that counts here what the blob's match table counts there: its armed slots, in
// their order, over the map. Classes are the descriptors' class words, or, without
// descriptors, one for each slot. `remarks`: armed opcodes that nothing is mapped to, and
// mapped ones that only the wildcard takes.
// INVALID_ARGUMENT: the blob has no match table, or one that is not sound.
absl::StatusOr<v1::OpcodeTable> ArmOpcodeTable(const OpcodeBlob& blob, const v1::OpcodeTable& map,
                                               std::vector<std::string>* remarks);

}  // namespace rjdbi::clients

#endif  // CLIENTS_OPCODES_TABLE_H_
