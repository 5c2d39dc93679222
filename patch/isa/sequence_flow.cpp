#include "patch/isa/sequence_flow.h"

#include <algorithm>
#include <cstring>

#include "patch/isa/hazards.h"

namespace rjdbi::patch {

std::vector<FlowStep> Flow(Isa& isa, absl::Span<const uint8_t> code) {
  std::vector<FlowStep> flow;
  uint64_t end = 0;
  while (end + sizeof(uint32_t) <= code.size()) {
    const Instruction* in = isa.DecodeShared(code, end);
    if (in == nullptr) break;
    uint32_t word = 0;
    std::memcpy(&word, code.data() + end, sizeof word);
    flow.push_back({in, end, WaitStatesOf(*in, word), {}, false});
    end += in->size;
  }
  for (size_t i = 0; i < flow.size(); ++i) {
    FlowStep& step = flow[i];
    const Instruction& in = *step.in;
    if (in.ends_program) continue;
    if (in.branch && !in.call) {
      const int64_t target = static_cast<int64_t>(step.offset) + in.target_offset.value_or(-1);
      const auto at = std::lower_bound(
          flow.begin(), flow.end(), target,
          [](const FlowStep& s, int64_t t) { return static_cast<int64_t>(s.offset) < t; });
      const bool known =
          in.target_offset && at != flow.end() && static_cast<int64_t>(at->offset) == target;
      if (known) step.next.push_back(static_cast<size_t>(at - flow.begin()));
      step.leaves |= !known;
      if (!in.conditional) continue;
    } else if (in.indirect && !in.call) {
      step.leaves = true;
      continue;
    }
    if (i + 1 < flow.size()) {
      step.next.push_back(i + 1);
    } else {
      step.leaves = true;
    }
  }
  return flow;
}

std::vector<uint32_t> StatesAhead(const std::vector<FlowStep>& flow) {
  std::vector<uint32_t> ahead(flow.size(), kNever);
  if (!flow.empty()) ahead[0] = 0;
  // Settles in one round where branches lead forward.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < flow.size(); ++i) {
      if (ahead[i] == kNever) continue;
      for (const size_t next : flow[i].next) {
        if (ahead[i] + flow[i].states >= ahead[next]) continue;
        ahead[next] = ahead[i] + flow[i].states;
        changed = true;
      }
    }
  }
  return ahead;
}

std::vector<uint32_t> StatesBehind(const std::vector<FlowStep>& flow) {
  std::vector<uint32_t> behind(flow.size(), kNever);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = flow.size(); i-- > 0;) {
      uint32_t least = flow[i].leaves ? 0 : kNever;
      for (const size_t next : flow[i].next) {
        if (behind[next] != kNever) least = std::min(least, behind[next] + flow[next].states);
      }
      changed |= least < behind[i];
      behind[i] = std::min(behind[i], least);
    }
  }
  return behind;
}

std::vector<uint32_t> StatesFrom(const std::vector<FlowStep>& flow, size_t from, uint32_t most) {
  std::vector<uint32_t> between(flow.size(), kNever);
  std::vector<size_t> pending;
  const auto reach = [&](const FlowStep& step, uint32_t states) {
    for (const size_t next : step.next) {
      if (states >= most || between[next] <= states) continue;
      between[next] = states;
      pending.push_back(next);
    }
  };
  reach(flow[from], 0);
  while (!pending.empty()) {
    const size_t at = pending.back();
    pending.pop_back();
    reach(flow[at], between[at] + flow[at].states);
  }
  return between;
}

}  // namespace rjdbi::patch
