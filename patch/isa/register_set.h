// Sets of AMDGPU registers in one numbering for all generations.
#ifndef PATCH_ISA_REGISTER_SET_H_
#define PATCH_ISA_REGISTER_SET_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rjdbi::patch {

// Dense numbering. SGPR n is kSgpr0+n, and so on. VCC is two registers so that
// compilers' use of VCC_HI as data in wave32 is seen.
enum Register : uint16_t {
  kSgpr0 = 0,  // s0..s107 (s102.. are special on gfx9: see kFlatScratch)
  kVccLo = 108,
  kVccHi = 109,
  kExecLo = 110,
  kExecHi = 111,
  kM0 = 112,
  kScc = 113,
  kMode = 114,
  kFlatScratchLo = 115,
  kFlatScratchHi = 116,
  kXnackMaskLo = 117,
  kXnackMaskHi = 118,
  kTtmp0 = 120,  // ttmp0..15
  kVgpr0 = 136,  // v0..v255
  kAgpr0 = 392,  // a0..a255
  kNumRegisters = 648,
};

class RegisterSet {
 public:
  void Add(uint16_t reg, unsigned count = 1) {
    for (unsigned i = 0; i < count; ++i) words_[(reg + i) / 64] |= Bit(reg + i);
  }
  void Remove(uint16_t reg, unsigned count = 1) {
    for (unsigned i = 0; i < count; ++i) words_[(reg + i) / 64] &= ~Bit(reg + i);
  }
  bool Has(uint16_t reg) const { return (words_[reg / 64] & Bit(reg)) != 0; }
  bool HasAny(uint16_t reg, unsigned count) const {
    for (unsigned i = 0; i < count; ++i)
      if (Has(static_cast<uint16_t>(reg + i))) return true;
    return false;
  }
  bool Empty() const {
    uint64_t any = 0;
    for (uint64_t word : words_) any |= word;
    return any == 0;
  }
  size_t Count() const {
    size_t count = 0;
    for (uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
    return count;
  }
  // Members among `count` registers from `first` on.
  unsigned CountIn(uint16_t first, unsigned count) const {
    unsigned members = 0;
    ForWords(first, count,
             [&](uint64_t word) { members += static_cast<unsigned>(std::popcount(word)); });
    return members;
  }
  // One more than the index, from `first`, of the highest member among `count`; 0: none.
  unsigned HighestIn(uint16_t first, unsigned count) const {
    unsigned highest = 0, at = 0;
    ForWords(first, count, [&](uint64_t word) {
      if (word != 0) highest = at + 64 - static_cast<unsigned>(std::countl_zero(word));
      at += 64;
    });
    return highest;
  }
  RegisterSet& operator|=(const RegisterSet& o) {
    for (size_t i = 0; i < kWords; ++i) words_[i] |= o.words_[i];
    return *this;
  }
  RegisterSet& operator&=(const RegisterSet& o) {
    for (size_t i = 0; i < kWords; ++i) words_[i] &= o.words_[i];
    return *this;
  }
  RegisterSet& operator-=(const RegisterSet& o) {
    for (size_t i = 0; i < kWords; ++i) words_[i] &= ~o.words_[i];
    return *this;
  }
  friend RegisterSet operator|(RegisterSet a, const RegisterSet& b) { return a |= b; }
  friend RegisterSet operator&(RegisterSet a, const RegisterSet& b) { return a &= b; }
  friend RegisterSet operator-(RegisterSet a, const RegisterSet& b) { return a -= b; }
  friend bool operator==(const RegisterSet&, const RegisterSet&) = default;
  // "s0-s3 vcc v7"
  std::string ToString() const;

  // Calls visit(reg) for each member, ascending; costs by members, not by registers.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (size_t i = 0; i < kWords; ++i) {
      for (uint64_t left = words_[i]; left != 0; left &= left - 1) {
        visit(static_cast<uint16_t>(64 * i + static_cast<size_t>(std::countr_zero(left))));
      }
    }
  }
  size_t Hash() const {
    uint64_t hash = 0;
    for (uint64_t word : words_) hash = (std::rotl(hash, 23) ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
  }

 private:
  // Even: compilers then work on pairs of words.
  static constexpr size_t kWords = (kNumRegisters + 127) / 128 * 2;
  static uint64_t Bit(unsigned reg) { return uint64_t{1} << (reg % 64); }

  // The registers from `first` on in words of 64, the last with `count` respected.
  template <typename Visit>
  void ForWords(uint16_t first, unsigned count, const Visit& visit) const {
    for (unsigned at = 0; at < count; at += 64) {
      const unsigned reg = first + at, shift = reg % 64, left = count - at;
      uint64_t word = words_[reg / 64] >> shift;
      if (shift != 0 && reg / 64 + 1 < kWords) word |= words_[reg / 64 + 1] << (64 - shift);
      visit(left < 64 ? word & ((uint64_t{1} << left) - 1) : word);
    }
  }

  std::array<uint64_t, kWords> words_ = {};
};

// A set that lives elsewhere, for as long as its owner says: decoded
// instructions share theirs. Reads like a const RegisterSet.
class RegisterSetRef {
 public:
  RegisterSetRef() : set_(&None()) {}
  explicit RegisterSetRef(const RegisterSet& set) : set_(&set) {}
  operator const RegisterSet&() const { return *set_; }  // NOLINT: meant to be implicit
  const RegisterSet& get() const { return *set_; }

  bool Has(uint16_t reg) const { return set_->Has(reg); }
  bool HasAny(uint16_t reg, unsigned count) const { return set_->HasAny(reg, count); }
  bool Empty() const { return set_->Empty(); }
  size_t Count() const { return set_->Count(); }
  std::string ToString() const { return set_->ToString(); }
  friend RegisterSet operator|(RegisterSetRef a, RegisterSetRef b) { return *a.set_ | *b.set_; }
  friend RegisterSet operator&(RegisterSetRef a, RegisterSetRef b) { return *a.set_ & *b.set_; }
  friend RegisterSet operator-(RegisterSetRef a, RegisterSetRef b) { return *a.set_ - *b.set_; }
  friend bool operator==(RegisterSetRef a, RegisterSetRef b) { return *a.set_ == *b.set_; }

 private:
  static const RegisterSet& None();
  const RegisterSet* set_;
};

std::string RegisterName(uint16_t reg);

// Consecutive registers.
struct RegisterRange {
  uint16_t first = 0;
  uint8_t count = 0;  // 0: none
  friend bool operator==(const RegisterRange&, const RegisterRange&) = default;
};
// "s7", "s[4:5]", "v3", "vcc", "vcc_hi", "exec", "exec_lo", "m0", "scc"
std::string RangeName(RegisterRange range);
// One vector register, or one or two scalar ones, as disassembly calls them.
// nullopt: no such register, or one that ParseRange does not know.
std::optional<RegisterRange> ParseRange(std::string_view text);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_REGISTER_SET_H_
