// See longest_path.h.
#include "contract/longest_path.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace rjdbi::contract {

uint32_t LongestPath(patch::Isa& isa, absl::Span<const uint8_t> sequence) {
  // By offset / 4: the longest way there.
  std::vector<std::optional<uint32_t>> ways(sequence.size() / 4 + 1);
  ways[0] = 0;
  uint32_t longest = 0;
  const auto arrive = [&](uint64_t offset, uint32_t count) {
    longest = std::max(longest, count);
    if (offset > sequence.size()) return;
    auto& way = ways[offset / 4];
    way = std::max(way.value_or(0), count);
  };
  for (uint64_t offset = 0; offset < sequence.size();) {
    const patch::Instruction* ins = isa.DecodeShared(sequence, offset);
    if (ins == nullptr) break;
    const uint64_t next = offset + ins->size;
    if (const auto way = ways[offset / 4]) {
      const uint32_t count = *way + 1;
      longest = std::max(longest, count);
      // Shared instructions are decoded at offset 0.
      const int64_t target = static_cast<int64_t>(offset) + ins->target_offset.value_or(0);
      if (ins->branch && target > static_cast<int64_t>(offset)) {
        arrive(static_cast<uint64_t>(target), count);
      }
      if (!ins->ends_program && (!ins->branch || ins->conditional)) arrive(next, count);
    }
    offset = next;
  }
  return longest;
}

}  // namespace rjdbi::contract
