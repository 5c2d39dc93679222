// libFuzzer entry: opcode tables, as blobs and as text. Where a violation is has to lie in
// its table; two blobs differ exactly if a difference is listed; a table that is read is
// read again, the same, from its own text, and every mnemonic is in one of its rows.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "clients/opcodes/blob.h"
#include "clients/opcodes/table.h"
#include "contract/manifest_yaml.h"

namespace {

using namespace rjdbi;
using namespace rjdbi::clients;

void Expect(bool condition) {
  if (!condition) std::abort();
}

OpcodeBlob ExerciseBlob(absl::Span<const uint8_t> bytes) {
  const auto blob = ReadOpcodeBlob(bytes);
  Expect(blob.ok());
  const v1::OpcodeBlob described = DescribeOpcodeBlob(*blob);
  for (const auto* found : {&described.violations(), &described.remarks()}) {
    for (const v1::OpcodeViolation& v : *found) {
      const size_t size = v.table() == "match" ? kMatchTableBytes : kDescriptorTableBytes;
      Expect(!v.has_offset() || v.offset() < size);
    }
  }
  std::vector<std::string> remarks;
  v1::OpcodeTable map;
  v1::OpcodeNumber& entry = *map.add_map();
  entry.set_opcode("0x21");
  entry.add_match("v_*");
  const auto table = ArmOpcodeTable(*blob, map, &remarks);
  Expect(table.ok() == (blob->match.has_value() && described.violations().empty()));
  return *blob;
}

void ExerciseText(std::string_view text) {
  if (const auto map = ReadOpcodeMap(text); map.ok()) Expect(map->rows().empty());
  const auto classes = OpcodeClasses::Read(text);
  if (!classes.ok()) return;
  for (const char* mnemonic : {"", "s_nop", "v_add_f32_e32"}) {
    Expect(classes->RowOf(mnemonic) < static_cast<size_t>(classes->table().rows_size()));
  }
  const auto back = OpcodeClasses::Read(contract::WriteYaml(classes->table()));
  // Its own text may be longer than a table may be.
  Expect(!back.ok() || back->table().SerializeAsString() == classes->table().SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ExerciseText({reinterpret_cast<const char*>(data), size});
  // Inputs are short: each is the beginning of a blob of every kind, the rest is zero.
  for (const size_t bytes :
       {kMatchTableBytes, kDescriptorTableBytes, kMatchTableBytes + kDescriptorTableBytes}) {
    std::vector<uint8_t> blob(bytes), zero(bytes);
    std::copy_n(data, std::min(size, bytes), blob.begin());
    const auto diff = DiffOpcodeBlobs(ExerciseBlob(blob), ExerciseBlob(zero));
    Expect(diff.ok());
    Expect((diff->changes_size() > 0 || diff->other_bytes() > 0) == (blob != zero));
  }
  const bool known = size == kMatchTableBytes || size == kDescriptorTableBytes ||
                     size == kMatchTableBytes + kDescriptorTableBytes;
  Expect(ReadOpcodeBlob({data, size}).ok() == known);
  return 0;
}
