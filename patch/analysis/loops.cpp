// Havlak's loop nesting, with a union-find over loops that are collapsed into their
// header, inner ones first: each block is looked at once for each loop that holds it
// directly.
#include "patch/analysis/loops.h"

#include <utility>

namespace rjdbi::patch {
namespace {

constexpr uint32_t kNone = ~0u;

class LoopForest {
 public:
  explicit LoopForest(absl::Span<const BasicBlock> blocks)
      : blocks_(blocks),
        number_(blocks.size(), kNone),
        last_(blocks.size(), kNone),
        collapsed_(blocks.size()),
        inside_(blocks.size(), kNone),
        header_(blocks.size()) {}

  std::vector<uint32_t> Depths() {
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      collapsed_[b] = b;
      if (blocks_[b].entry) Search(b);
    }
    for (uint32_t b = 0; b < blocks_.size(); ++b) Search(b);
    for (auto b = order_.rbegin(); b != order_.rend(); ++b) CollapseLoop(*b);
    std::vector<uint32_t> depths(blocks_.size());
    for (const uint32_t b : order_) {  // headers come before what they hold
      const uint32_t around = inside_[b] == kNone ? 0 : depths[inside_[b]];
      depths[b] = around + (header_[b] ? 1 : 0);
    }
    return depths;
  }

 private:
  // Depth first; numbers blocks, and notes the last one below each.
  void Search(uint32_t root) {
    if (number_[root] != kNone) return;
    std::vector<std::pair<uint32_t, size_t>> path;
    const auto enter = [&](uint32_t b) {
      number_[b] = static_cast<uint32_t>(order_.size());
      order_.push_back(b);
      path.emplace_back(b, 0);
    };
    enter(root);
    while (!path.empty()) {
      auto& [b, next] = path.back();
      if (next < blocks_[b].successors.size()) {
        const uint32_t to = blocks_[b].successors[next++];
        if (number_[to] == kNone) enter(to);
        continue;
      }
      last_[b] = static_cast<uint32_t>(order_.size()) - 1;
      path.pop_back();
    }
  }

  bool Below(uint32_t b, uint32_t ancestor) const {
    return number_[ancestor] <= number_[b] && number_[b] <= last_[ancestor];
  }

  uint32_t Find(uint32_t b) {
    uint32_t top = b;
    while (collapsed_[top] != top) top = collapsed_[top];
    while (collapsed_[b] != top) b = std::exchange(collapsed_[b], top);
    return top;
  }

  void CollapseLoop(uint32_t header) {
    std::vector<uint32_t> body;
    const auto add = [&](uint32_t b) {
      const uint32_t top = Find(b);
      if (top == header || inside_[top] == header || !Below(top, header)) return;
      inside_[top] = header;
      body.push_back(top);
    };
    for (const uint32_t from : blocks_[header].predecessors) {
      if (!Below(from, header)) continue;
      header_[header] = true;
      add(from);
    }
    for (size_t i = 0; i < body.size(); ++i) {
      for (const uint32_t from : blocks_[body[i]].predecessors) add(from);
    }
    for (const uint32_t b : body) collapsed_[b] = header;
  }

  absl::Span<const BasicBlock> blocks_;
  std::vector<uint32_t> order_;          // depth first
  std::vector<uint32_t> number_, last_;  // places in order_: a block's, and the last below it
  std::vector<uint32_t> collapsed_;      // union-find: the header of the outermost loop so far
  std::vector<uint32_t> inside_;         // header of the innermost loop around, but for its own
  std::vector<bool> header_;
};

}  // namespace

std::vector<uint32_t> LoopDepths(absl::Span<const BasicBlock> blocks) {
  return LoopForest(blocks).Depths();
}

}  // namespace rjdbi::patch
