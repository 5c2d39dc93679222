// The instructions of a stretch of code, in order. Code repeats itself: the
// list keeps where each one is and shares what it is with the Isa that decoded
// it, which must outlive the list.
#ifndef PATCH_ISA_INSTRUCTION_LIST_H_
#define PATCH_ISA_INSTRUCTION_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "patch/isa/isa.h"

namespace rjdbi::patch {

class InstructionList {
 public:
  // Elements are made when asked for, so this is a random access iterator in
  // all but that it yields values.
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Instruction;
    using difference_type = std::ptrdiff_t;
    struct Arrow {  // holds what it points to
      Instruction instruction;
      const Instruction* operator->() const { return &instruction; }
    };
    using pointer = Arrow;
    using reference = Instruction;

    Iterator() = default;
    Iterator(const InstructionList* list, size_t at) : list_(list), at_(at) {}
    Instruction operator*() const { return (*list_)[at_]; }
    Arrow operator->() const { return {**this}; }
    Instruction operator[](difference_type n) const { return *(*this + n); }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this += -1; }
    Iterator operator++(int) {
      Iterator old = *this;
      ++*this;
      return old;
    }
    Iterator operator--(int) {
      Iterator old = *this;
      --*this;
      return old;
    }
    Iterator& operator+=(difference_type n) {
      at_ = static_cast<size_t>(static_cast<difference_type>(at_) + n);
      return *this;
    }
    Iterator& operator-=(difference_type n) { return *this += -n; }
    friend Iterator operator+(Iterator a, difference_type n) { return a += n; }
    friend Iterator operator+(difference_type n, Iterator a) { return a += n; }
    friend Iterator operator-(Iterator a, difference_type n) { return a -= n; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) {
      return static_cast<difference_type>(a.at_) - static_cast<difference_type>(b.at_);
    }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.at_ <=> b.at_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const InstructionList* list_ = nullptr;
    size_t at_ = 0;
  };

  // `shared`: see Isa::DecodeShared. Offsets must ascend.
  void Append(const Instruction* shared, uint64_t offset) { entries_.push_back({shared, offset}); }
  void Reserve(size_t count) { entries_.reserve(count); }
  void ShrinkToFit() { entries_.shrink_to_fit(); }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  Instruction operator[](size_t i) const {
    Instruction out = *entries_[i].shared;
    out.offset = entries_[i].offset;
    if (out.target_offset) *out.target_offset += static_cast<int64_t>(out.offset);
    return out;
  }
  Instruction back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

  // Without a copy: offset and target_offset are relative to the instruction.
  const Instruction& Shared(size_t i) const { return *entries_[i].shared; }
  uint64_t OffsetOf(size_t i) const { return entries_[i].offset; }
  // The instruction that starts at `offset`.
  std::optional<uint32_t> Find(uint64_t offset) const {
    const auto it = std::lower_bound(entries_.begin(), entries_.end(), offset,
                                     [](const Entry& e, uint64_t at) { return e.offset < at; });
    if (it == entries_.end() || it->offset != offset) return std::nullopt;
    return static_cast<uint32_t>(it - entries_.begin());
  }

 private:
  struct Entry {
    const Instruction* shared;
    uint64_t offset;
  };
  std::vector<Entry> entries_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_INSTRUCTION_LIST_H_
