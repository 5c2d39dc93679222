// Which dispatches are directed to another kernel descriptor, and which of those: an
// immutable table behind one pointer, null while there is nothing. It is looked at for
// every packet of every queue, and replaced while that goes on.
//
// Readers come through gates, one for each queue. A reader counts itself into its gate
// before it takes the pointer, and out when it is done with all that it found. Both are
// sequentially consistent, as is the exchange of the pointer: whoever took the old one
// was in its gate before the exchange, and a gate that is seen empty after the exchange
// is one that every such reader has left. So a table, and what it leads to, may go once
// each gate has been seen empty since.
#ifndef RJDBI_AGENT_DISPATCH_SWITCH_H_
#define RJDBI_AGENT_DISPATCH_SWITCH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace rjdbi::agent {

// Which of a kernel's dispatches are directed.
struct DispatchChoice {
  enum class Rule : uint8_t {
    kAll,
    kEveryNth,  // the first, and from there every n-th
    kFirst,     // the first n
    kFraction,  // n of 2^32, chosen at random from the seed
  };
  Rule rule = Rule::kAll;
  uint64_t n = 0;
  uint64_t seed = 0;

  // Whether the dispatch of that number, from 0, is chosen. Depends on nothing else.
  bool Takes(uint64_t number) const;
};

// What has become of a kernel's dispatches. Shared by all tables that have the kernel.
class DispatchCounts {
 public:
  explicit DispatchCounts(DispatchChoice choice = {}) : choice_(choice) {}

  // Counts one dispatch. Whether it is directed.
  bool Take();
  uint64_t switched() const { return switched_.load(); }
  uint64_t passed() const { return passed_.load(); }

 private:
  const DispatchChoice choice_;
  std::atomic<uint64_t> seen_{0};
  std::atomic<uint64_t> switched_{0};
  std::atomic<uint64_t> passed_{0};
};

struct Direction {
  uint64_t original = 0;               // address of the descriptor that dispatches name
  uint64_t descriptor = 0;             // and of the one that they get
  uint32_t private_segment_bytes = 0;  // what they ask for at least
  uint32_t group_segment_bytes = 0;
  std::shared_ptr<DispatchCounts> counts;  // not null
};

class Directions {
 public:
  // Of several with one original the last holds. Not empty. `number` increases from table
  // to table. May throw std::bad_alloc.
  Directions(std::vector<Direction> list, uint64_t number);

  const Direction* Find(uint64_t original) const;
  uint64_t number() const { return number_; }
  size_t size() const { return list_.size(); }

 private:
  size_t Slot(uint64_t original) const;

  std::vector<Direction> list_;
  std::vector<uint32_t> slots_;  // 1 + index in list_, or 0; a power of two, half empty
  uint64_t number_;
};

class SwitchTable {
 public:
  class Gate {
    friend class SwitchTable;
    std::atomic<uint32_t> inside_{0};
  };

  // What holds now, or nullptr. Unless it is nullptr, Leave has to follow.
  const Directions* Enter(Gate& gate) {
    if (!current_.load(std::memory_order_relaxed)) return nullptr;
    gate.inside_.fetch_add(1);
    const Directions* directions = current_.load();
    if (!directions) Leave(gate);
    return directions;
  }
  static void Leave(Gate& gate) { gate.inside_.fetch_sub(1); }

  // What held so far: to be kept until each gate has been seen empty.
  std::unique_ptr<const Directions> Exchange(std::unique_ptr<const Directions> next) {
    return std::unique_ptr<const Directions>(current_.exchange(next.release()));
  }
  static bool IsEmpty(const Gate& gate) { return gate.inside_.load() == 0; }

  // In a forked child, where nothing of it is true any more. Frees nothing.
  void Silence() { current_.store(nullptr); }

 private:
  std::atomic<const Directions*> current_{nullptr};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DISPATCH_SWITCH_H_
