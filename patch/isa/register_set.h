// Sets of AMDGPU registers in one numbering for all generations.
#ifndef PATCH_ISA_REGISTER_SET_H_
#define PATCH_ISA_REGISTER_SET_H_

#include <bitset>
#include <cstdint>
#include <string>

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
    for (unsigned i = 0; i < count; ++i) bits_.set(reg + i);
  }
  void Remove(uint16_t reg, unsigned count = 1) {
    for (unsigned i = 0; i < count; ++i) bits_.reset(reg + i);
  }
  bool Has(uint16_t reg) const { return bits_.test(reg); }
  bool HasAny(uint16_t reg, unsigned count) const {
    for (unsigned i = 0; i < count; ++i)
      if (bits_.test(reg + i)) return true;
    return false;
  }
  bool Empty() const { return bits_.none(); }
  size_t Count() const { return bits_.count(); }
  RegisterSet& operator|=(const RegisterSet& o) {
    bits_ |= o.bits_;
    return *this;
  }
  RegisterSet& operator&=(const RegisterSet& o) {
    bits_ &= o.bits_;
    return *this;
  }
  RegisterSet& operator-=(const RegisterSet& o) {
    bits_ &= ~o.bits_;
    return *this;
  }
  friend RegisterSet operator|(RegisterSet a, const RegisterSet& b) { return a |= b; }
  friend RegisterSet operator&(RegisterSet a, const RegisterSet& b) { return a &= b; }
  friend RegisterSet operator-(RegisterSet a, const RegisterSet& b) { return a -= b; }
  friend bool operator==(const RegisterSet&, const RegisterSet&) = default;
  // "s0-s3 vcc v7"
  std::string ToString() const;

 private:
  std::bitset<kNumRegisters> bits_;
};

std::string RegisterName(uint16_t reg);

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_REGISTER_SET_H_
