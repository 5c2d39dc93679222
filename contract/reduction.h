// The reduction ladder: what an attachment allows to be done about a sum (telemetry,
// code growth) that is over budget, in the order in which it names it. Each step is
// taken for the whole object, which is then judged anew.
#ifndef CONTRACT_REDUCTION_H_
#define CONTRACT_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Sites that one probe stands for: an instruction, or those of a block that are
// counted together.
struct ProbeUnit {
  size_t kernel = 0;
  uint64_t offset = 0;            // of its first instruction, in the kernel
  uint64_t bytes_per_second = 0;  // that its probe is expected to move
};

// What an attachment comes to in one code object, were it not for the sums.
struct SumUse {
  std::vector<ProbeUnit> units;  // attached, or refused for a sum alone; in order
  size_t attached = 0;           // of them
  std::string over;              // id of the sum that is over budget; "": none is
  bool growth = false;           // code growth is over budget
  uint64_t telemetry_limit = ~uint64_t{0};
};

// Units in order are divided into windows, each as long as its sum stays within
// `limit` and it has no more than `most` of them. One that is over the limit alone is
// in the window at hand, and left to be refused there. By unit, its window.
std::vector<uint32_t> Windows(absl::Span<const ProbeUnit> units, uint64_t limit, size_t most);

// Of one attachment.
class Ladder {
 public:
  explicit Ladder(const v1::AttachmentSpec& spec) : spec_(&spec) {}

  bool asked() const { return !spec_->reduce().empty(); }
  bool block_count() const { return block_count_; }
  // The window whose turn it is for this unit; nullopt: it is the unit's.
  std::optional<uint32_t> OutOfTurn(size_t kernel, uint64_t offset) const;
  uint32_t window() const { return window_; }
  uint32_t windows() const { return windows_; }

  // Takes the next step that can help. False: nothing is over budget, or nothing is
  // left to do.
  bool Step(const SumUse& use);
  const std::vector<v1::Reduction>& steps() const { return steps_; }

 private:
  void Rotate(const SumUse& use);

  const v1::AttachmentSpec* spec_;
  int next_ = 0;  // of spec_->reduce()
  bool block_count_ = false, rotating_ = false;
  std::map<std::pair<size_t, uint64_t>, uint32_t> out_;  // units of other windows
  uint32_t window_ = 0, windows_ = 1;
  std::vector<v1::Reduction> steps_;
};

// What is wrong with a spec's list of steps.
std::vector<v1::Violation> CheckReductions(const v1::AttachmentSpec& spec);

std::string ReductionName(v1::ReductionStep step);  // "block-count"

}  // namespace rjdbi::contract

#endif  // CONTRACT_REDUCTION_H_
