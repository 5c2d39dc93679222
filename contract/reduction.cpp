// See reduction.h.
#include "contract/reduction.h"

#include <algorithm>

#include "contract/catalogue.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

constexpr std::string_view kSameAsBlockCount = "count-waves";

}  // namespace

std::vector<uint32_t> Windows(absl::Span<const ProbeUnit> units, uint64_t limit, size_t most) {
  std::vector<uint32_t> windows;
  uint64_t left = limit;
  size_t count = 0;
  uint32_t window = 0;
  for (const ProbeUnit& unit : units) {
    const bool never = unit.bytes_per_second > limit;
    const bool fits = never || unit.bytes_per_second <= left;
    if (count > 0 && (!fits || count >= most)) {
      ++window;
      left = limit;
      count = 0;
    }
    if (!never) left -= unit.bytes_per_second;
    ++count;
    windows.push_back(window);
  }
  return windows;
}

std::optional<uint32_t> Ladder::OutOfTurn(size_t kernel, uint64_t offset) const {
  if (out_.empty()) return std::nullopt;
  const auto found = out_.find({kernel, offset});
  if (found == out_.end()) return std::nullopt;
  return found->second;
}

bool Ladder::Step(const SumUse& use) {
  if (!steps_.empty() && steps_.back().step() == v1::REDUCE_BLOCK_COUNT) {
    steps_.back().set_probes_after(use.units.size());
  }
  if (use.over.empty()) return false;
  while (next_ < spec_->reduce_size()) {
    const v1::ReductionStep step = spec_->reduce(next_++);
    const bool block =
        step == v1::REDUCE_BLOCK_COUNT && !block_count_ && spec_->probe() == kSameAsBlockCount;
    const bool rotate = step == v1::REDUCE_ROTATE && !rotating_ && use.units.size() > 1;
    if (!block && !rotate) continue;
    v1::Reduction& taken = steps_.emplace_back();
    taken.set_step(step);
    taken.set_constraint_id(use.over);
    taken.set_probes_before(use.units.size());
    if (block) {
      block_count_ = true;
    } else {
      Rotate(use);
    }
    return true;
  }
  return false;
}

void Ladder::Rotate(const SumUse& use) {
  rotating_ = true;
  // How many fit is the same whichever window it is, so that the windows are.
  const size_t most = use.growth ? std::max<size_t>(use.attached, 1) : use.units.size();
  const std::vector<uint32_t> windows = Windows(use.units, use.telemetry_limit, most);
  windows_ = windows.back() + 1;
  window_ = spec_->rotation() % windows_;
  size_t in = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] == window_) {
      ++in;
    } else {
      out_[{use.units[i].kernel, use.units[i].offset}] = windows[i];
    }
  }
  v1::Reduction& taken = steps_.back();
  taken.set_probes_after(in);
  taken.set_window(window_);
  taken.set_windows(windows_);
}

std::string ReductionName(v1::ReductionStep step) {
  return step == v1::REDUCE_BLOCK_COUNT ? "block-count"
         : step == v1::REDUCE_ROTATE    ? "rotate"
                                        : "none";
}

std::vector<v1::Violation> CheckReductions(const v1::AttachmentSpec& spec) {
  std::vector<v1::Violation> out;
  const auto bad = [&](std::string observed, std::string limit, std::string message) {
    out.push_back(
        MakeViolation(id::kBadSpec, std::move(observed), std::move(limit), {}, std::move(message)));
  };
  std::set<int> given;
  for (const int step : spec.reduce()) {
    if (step != v1::REDUCE_BLOCK_COUNT && step != v1::REDUCE_ROTATE) {
      bad(StrCat("step ", step), "block-count or rotate",
          StrCat("there is no reduction ", step, "; there are block-count and rotate"));
    } else if (!given.insert(step).second) {
      const std::string name = ReductionName(static_cast<v1::ReductionStep>(step));
      bad(StrCat(name, " twice"), "each once", StrCat("the reduction ", name, " is given twice"));
    } else if (step == v1::REDUCE_BLOCK_COUNT && spec.probe() != kSameAsBlockCount) {
      bad(StrCat("probe \"", spec.probe(), "\""), "count-waves",
          StrCat("the probe \"", spec.probe(),
                 "\" has no reduction block-count: only the counts of count-waves are those of "
                 "blocks"));
    }
  }
  if (spec.rotation() != 0 && given.count(v1::REDUCE_ROTATE) == 0) {
    bad(StrCat("rotation ", spec.rotation()), "0, without the reduction rotate",
        "a rotation is given, but not the reduction rotate");
  }
  if (!v1::Mode_IsValid(spec.mode())) {
    bad(StrCat("mode ", spec.mode()), "enforce, warn or dryrun",
        StrCat("there is no mode ", static_cast<int>(spec.mode())));
  }
  return out;
}

}  // namespace rjdbi::contract
