// Something for each encoding that an Isa has decoded, by Instruction::id. Costs for
// those that are asked for, not for all that there are.
#ifndef CONTRACT_BY_ID_H_
#define CONTRACT_BY_ID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rjdbi::contract {

template <typename T>
class ById {
 public:
  // Made when it is first asked for; stays where it is.
  T& operator[](uint32_t id) {
    const size_t page = id / kPage;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) pages_[page] = std::make_unique<Page>();
    return (*pages_[page])[id % kPage];
  }
  // Of an id that was asked for before.
  const T& Known(uint32_t id) const { return (*pages_[id / kPage])[id % kPage]; }

 private:
  static constexpr size_t kPage = 64;
  using Page = std::array<T, kPage>;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_BY_ID_H_
