// What many plans have in common, kept once for as long as any of them: machine code,
// its fixups, registers.
#ifndef PATCH_PLAN_SHARED_CODE_H_
#define PATCH_PLAN_SHARED_CODE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "patch/isa/register_set.h"

namespace rjdbi::patch {

// Reads like a const std::optional, and takes two words where there is nothing.
template <typename T>
class SharedOptional {
 public:
  SharedOptional() = default;
  SharedOptional(std::nullopt_t) {}  // NOLINT: meant to be implicit, and the others
  SharedOptional(T value) : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT
  SharedOptional(const std::optional<T>& value) {                                   // NOLINT
    if (value) value_ = std::make_shared<const T>(*value);
  }
  bool has_value() const { return value_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }

 private:
  std::shared_ptr<const T> value_;
};

// Reads like a const RegisterSet.
class SharedSet {
 public:
  SharedSet() = default;
  SharedSet(const RegisterSet& set) {  // NOLINT: meant to be implicit
    if (!set.Empty()) set_ = std::make_shared<const RegisterSet>(set);
  }
  const RegisterSet& get() const {
    static const RegisterSet none;
    return set_ == nullptr ? none : *set_;
  }
  operator const RegisterSet&() const { return get(); }  // NOLINT: meant to be implicit
  bool Has(uint16_t reg) const { return get().Has(reg); }
  bool HasAny(uint16_t reg, unsigned count) const { return get().HasAny(reg, count); }
  bool Empty() const { return set_ == nullptr; }
  friend RegisterSet operator&(const SharedSet& a, const RegisterSet& b) { return a.get() & b; }

 private:
  std::shared_ptr<const RegisterSet> set_;
};

enum class FixupBase : uint8_t {
  kCounters,  // the load's first counter
  kOriginal,  // where the loaded original's address 0 is; only in images beside it
};

// A 32-bit word that the agent fills with half of (base + addend).
struct WordFixup {
  uint64_t offset = 0;  // of the word: into the sequence, or into the image file
  bool high_half = false;
  uint64_t addend = 0;  // bytes
  FixupBase base = FixupBase::kCounters;
};

// Reads like a const vector.
class SharedCode {
 public:
  SharedCode() = default;
  SharedCode(std::vector<uint8_t> bytes)  // NOLINT: meant to be implicit
      : bytes_(std::make_shared<const std::vector<uint8_t>>(std::move(bytes))) {}
  operator const std::vector<uint8_t>&() const { return get(); }  // NOLINT: likewise
  const std::vector<uint8_t>& get() const {
    static const std::vector<uint8_t> none;
    return bytes_ == nullptr ? none : *bytes_;
  }

  const uint8_t* data() const { return get().data(); }
  size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  uint8_t operator[](size_t i) const { return get()[i]; }

 private:
  std::shared_ptr<const std::vector<uint8_t>> bytes_;
};

// Reads like a const vector of fixups; what plans share may differ by a number of
// bytes in all addends.
class SharedFixups {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = WordFixup;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = WordFixup;
    Iterator(const SharedFixups* all, size_t at) : all_(all), at_(at) {}
    WordFixup operator*() const { return (*all_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const SharedFixups* all_;
    size_t at_;
  };

  SharedFixups() = default;
  SharedFixups(std::vector<WordFixup> fixups) {  // NOLINT: meant to be implicit
    if (fixups.empty()) return;
    fixups_ = std::make_shared<const std::vector<WordFixup>>(std::move(fixups));
  }
  // The same with so many bytes more in each addend.
  SharedFixups Plus(uint64_t bytes) const {
    SharedFixups out = *this;
    out.more_ += bytes;
    return out;
  }

  size_t size() const { return fixups_ == nullptr ? 0 : fixups_->size(); }
  bool empty() const { return size() == 0; }
  WordFixup operator[](size_t i) const {
    WordFixup fixup = (*fixups_)[i];
    fixup.addend += more_;
    return fixup;
  }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  std::shared_ptr<const std::vector<WordFixup>> fixups_;
  uint64_t more_ = 0;
};

}  // namespace rjdbi::patch

#endif  // PATCH_PLAN_SHARED_CODE_H_
