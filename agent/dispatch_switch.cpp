// Looking up directions, and choosing dispatches; see dispatch_switch.h.
#include "agent/dispatch_switch.h"

#include <utility>

namespace rjdbi::agent {
namespace {

// Every bit of the result depends on every bit of the argument (the finalizer of
// splitmix64, by Sebastiano Vigna; public domain).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

bool DispatchChoice::Takes(uint64_t number) const {
  switch (rule) {
    case Rule::kAll:
      return true;
    case Rule::kEveryNth:
      return n != 0 && number % n == 0;
    case Rule::kFirst:
      return number < n;
    case Rule::kFraction:
      return Mix(seed + Mix(number + 1)) >> 32 < n;
  }
  return true;
}

bool DispatchCounts::Take() {
  const bool taken = choice_.rule == DispatchChoice::Rule::kAll ||
                     choice_.Takes(seen_.fetch_add(1, std::memory_order_relaxed));
  (taken ? switched_ : passed_).fetch_add(1, std::memory_order_relaxed);
  return taken;
}

Directions::Directions(std::vector<Direction> list, uint64_t number)
    : list_(std::move(list)), number_(number) {
  size_t slots = 4;
  while (slots < 2 * list_.size()) slots *= 2;
  slots_.resize(slots);
  for (size_t i = 0; i < list_.size(); ++i) {
    slots_[Slot(list_[i].original)] = static_cast<uint32_t>(i + 1);
  }
}

// Where it is, or would be.
size_t Directions::Slot(uint64_t original) const {
  const size_t mask = slots_.size() - 1;
  size_t at = Mix(original) & mask;
  while (slots_[at] != 0 && list_[slots_[at] - 1].original != original) at = (at + 1) & mask;
  return at;
}

const Direction* Directions::Find(uint64_t original) const {
  const uint32_t slot = slots_[Slot(original)];
  return slot == 0 ? nullptr : &list_[slot - 1];
}

}  // namespace rjdbi::agent
