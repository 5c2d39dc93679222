// Read-modify-write operations, atomic against every other host thread.
#ifndef TESTS_SOFTGPU_INTERP_ATOMICS_H_
#define TESTS_SOFTGPU_INTERP_ATOMICS_H_

#include <cstdint>
#include <string_view>

namespace softgpu {

enum class AtomicOp : uint8_t {
  kSwap,
  kCmpSwap,
  kAdd,
  kSub,
  kRsub,
  kSMin,
  kUMin,
  kSMax,
  kUMax,
  kAnd,
  kOr,
  kXor,
  kInc,
  kDec,
  kAddF32,
  kAddF64,
  kMinF32,
  kMaxF32,
  kMinF64,
  kMaxF64,
  kPkAddF16,
  kPkAddBf16,
  kCSub,
  kSubClamp,
  kFCmpSwap,
  kMskor,
  kWrap,
  kNone,
};

// The value to store, given memory's and the operands. For kCmpSwap `data` is
// the new value and `compare` what memory must hold; for kMskor `compare` is
// the mask; for kWrap it is the second operand.
uint32_t ApplyAtomic32(AtomicOp op, uint32_t old, uint32_t data, uint32_t compare);
uint64_t ApplyAtomic64(AtomicOp op, uint64_t old, uint64_t data, uint64_t compare);

// Return the value before the operation. The address must be aligned.
uint32_t Atomic32(AtomicOp op, uint64_t address, uint32_t data, uint32_t compare);
uint64_t Atomic64(AtomicOp op, uint64_t address, uint64_t data, uint64_t compare);

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_ATOMICS_H_
