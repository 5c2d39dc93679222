// The instructions of a short stretch of code, and how control passes between them:
// what decoding alone says, for judging distances along every path.
#ifndef PATCH_ISA_SEQUENCE_FLOW_H_
#define PATCH_ISA_SEQUENCE_FLOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

struct FlowStep {
  const Instruction* in = nullptr;  // as if decoded at offset 0; the Isa's
  uint64_t offset = 0;              // bytes
  uint32_t states = 1;              // wait states that pass while it issues
  std::vector<size_t> next;         // steps that may execute right behind it
  bool leaves = false;              // or code behind the stretch
};

// In address order, up to the end or the first bytes that do not decode. Where a
// branch leads out of the stretch, between instructions, or nobody knows where, it
// leaves. A call comes back.
std::vector<FlowStep> Flow(Isa& isa, absl::Span<const uint8_t> code);

// By step, the fewest wait states between the code in front of the stretch and it;
// kNever: nothing leads there.
inline constexpr uint32_t kNever = ~uint32_t{0};
std::vector<uint32_t> StatesAhead(const std::vector<FlowStep>& flow);
// And between it and the code behind the stretch.
std::vector<uint32_t> StatesBehind(const std::vector<FlowStep>& flow);
// And between `from` and it. Distances of `most` or more count as kNever.
std::vector<uint32_t> StatesFrom(const std::vector<FlowStep>& flow, size_t from, uint32_t most);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_SEQUENCE_FLOW_H_
