// Memory instructions: SMEM, FLAT/GLOBAL/SCRATCH, MUBUF and LDS.
//
// A name is parsed once into an Access (what moves: bytes, sign, halves, atomic
// operation). At run time an instruction's lanes are resolved to a Place (host
// address, LDS offset or private byte) and the Access is applied to each.
//
// Private memory layout: dword-interleaved across the lanes of a wave, as the
// hardware's scratch swizzle does: byte b of lane l is at
//   base + (b / 4) * 4 * lanes + l * 4 + b % 4.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/softgpu/interp/atomics.h"
#include "tests/softgpu/interp/wave.h"

namespace softgpu {
namespace {

enum class Move : uint8_t { kLoad, kStore, kAtomic };

struct Access {
  Move move = Move::kLoad;
  uint8_t bytes = 4;  // 1, 2, 4, 8, 12, 16; SMEM also 32 and 64
  bool sign = false;  // sign-extend loads of less than a dword
  bool d16 = false;   // loads write only half a register
  bool hi = false;    // d16: the high half
  AtomicOp atomic = AtomicOp::kNone;
  bool far = false;  // LDS two-address forms: offsets count 64 elements
};

struct AccessName {
  std::string_view name;
  Access access;
};

constexpr Access Load(uint8_t bytes, bool sign = false, bool d16 = false, bool hi = false) {
  return {.move = Move::kLoad, .bytes = bytes, .sign = sign, .d16 = d16, .hi = hi};
}
constexpr Access Store(uint8_t bytes, bool hi = false) {
  return {.move = Move::kStore, .bytes = bytes, .hi = hi};
}
constexpr Access Rmw(AtomicOp op, uint8_t bytes) {
  return {.move = Move::kAtomic, .bytes = bytes, .atomic = op};
}

constexpr AccessName kVectorAccess[] = {
    {"LOAD_UBYTE", Load(1)},
    {"LOAD_SBYTE", Load(1, true)},
    {"LOAD_USHORT", Load(2)},
    {"LOAD_SSHORT", Load(2, true)},
    {"LOAD_DWORD", Load(4)},
    {"LOAD_DWORDX2", Load(8)},
    {"LOAD_DWORDX3", Load(12)},
    {"LOAD_DWORDX4", Load(16)},
    {"LOAD_UBYTE_D16", Load(1, false, true)},
    {"LOAD_UBYTE_D16_HI", Load(1, false, true, true)},
    {"LOAD_SBYTE_D16", Load(1, true, true)},
    {"LOAD_SBYTE_D16_HI", Load(1, true, true, true)},
    {"LOAD_SHORT_D16", Load(2, false, true)},
    {"LOAD_SHORT_D16_HI", Load(2, false, true, true)},
    {"STORE_BYTE", Store(1)},
    {"STORE_BYTE_D16_HI", Store(1, true)},
    {"STORE_SHORT", Store(2)},
    {"STORE_SHORT_D16_HI", Store(2, true)},
    {"STORE_DWORD", Store(4)},
    {"STORE_DWORDX2", Store(8)},
    {"STORE_DWORDX3", Store(12)},
    {"STORE_DWORDX4", Store(16)},
};

struct AtomicName {
  std::string_view name;
  AtomicOp op;
};
// Integer atomics of flat, global, buffer and scalar memory; "_X2" is 64-bit.
constexpr AtomicName kIntegerAtomics[] = {
    {"SWAP", AtomicOp::kSwap}, {"CMPSWAP", AtomicOp::kCmpSwap}, {"ADD", AtomicOp::kAdd},
    {"SUB", AtomicOp::kSub},   {"SMIN", AtomicOp::kSMin},       {"UMIN", AtomicOp::kUMin},
    {"SMAX", AtomicOp::kSMax}, {"UMAX", AtomicOp::kUMax},       {"AND", AtomicOp::kAnd},
    {"OR", AtomicOp::kOr},     {"XOR", AtomicOp::kXor},         {"INC", AtomicOp::kInc},
    {"DEC", AtomicOp::kDec},   {"CSUB", AtomicOp::kCSub},       {"FCMPSWAP", AtomicOp::kFCmpSwap},
};
constexpr AccessName kOtherAtomics[] = {
    {"ATOMIC_ADD_F32", Rmw(AtomicOp::kAddF32, 4)},
    {"ATOMIC_ADD_F64", Rmw(AtomicOp::kAddF64, 8)},
    {"ATOMIC_MIN_F32", Rmw(AtomicOp::kMinF32, 4)},
    {"ATOMIC_MAX_F32", Rmw(AtomicOp::kMaxF32, 4)},
    {"ATOMIC_MIN_F64", Rmw(AtomicOp::kMinF64, 8)},
    {"ATOMIC_MAX_F64", Rmw(AtomicOp::kMaxF64, 8)},
    {"ATOMIC_PK_ADD_F16", Rmw(AtomicOp::kPkAddF16, 4)},
    {"ATOMIC_PK_ADD_BF16", Rmw(AtomicOp::kPkAddBf16, 4)},
    {"ATOMIC_CSUB_U32", Rmw(AtomicOp::kCSub, 4)},
    {"ATOMIC_COND_SUB_U32", Rmw(AtomicOp::kCSub, 4)},
    {"ATOMIC_SUB_CLAMP_U32", Rmw(AtomicOp::kSubClamp, 4)},
};

constexpr AccessName kLdsAccess[] = {
    {"READ_U8", Load(1)},
    {"READ_I8", Load(1, true)},
    {"READ_U16", Load(2)},
    {"READ_I16", Load(2, true)},
    {"READ_B32", Load(4)},
    {"READ_B64", Load(8)},
    {"READ_B96", Load(12)},
    {"READ_B128", Load(16)},
    {"READ_U8_D16", Load(1, false, true)},
    {"READ_U8_D16_HI", Load(1, false, true, true)},
    {"READ_I8_D16", Load(1, true, true)},
    {"READ_I8_D16_HI", Load(1, true, true, true)},
    {"READ_U16_D16", Load(2, false, true)},
    {"READ_U16_D16_HI", Load(2, false, true, true)},
    {"WRITE_B8", Store(1)},
    {"WRITE_B8_D16_HI", Store(1, true)},
    {"WRITE_B16", Store(2)},
    {"WRITE_B16_D16_HI", Store(2, true)},
    {"WRITE_B32", Store(4)},
    {"WRITE_B64", Store(8)},
    {"WRITE_B96", Store(12)},
    {"WRITE_B128", Store(16)},
};
// LDS atomics: "ADD" and, when returning, "ADD_RTN", then the type.
constexpr AtomicName kLdsAtomics[] = {
    {"ADD", AtomicOp::kAdd},
    {"SUB", AtomicOp::kSub},
    {"RSUB", AtomicOp::kRsub},
    {"INC", AtomicOp::kInc},
    {"DEC", AtomicOp::kDec},
    {"AND", AtomicOp::kAnd},
    {"OR", AtomicOp::kOr},
    {"XOR", AtomicOp::kXor},
    {"WRXCHG", AtomicOp::kSwap},
    {"CMPST", AtomicOp::kCmpSwap},
    {"CMPSTORE", AtomicOp::kCmpSwap},
    {"MSKOR", AtomicOp::kMskor},
    {"WRAP", AtomicOp::kWrap},
    {"CONDXCHG32", AtomicOp::kNone},
    {"COND_SUB", AtomicOp::kCSub},
    {"SUB_CLAMP", AtomicOp::kSubClamp},
};

bool Eat(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

template <size_t kCount>
std::optional<Access> Find(const AccessName (&table)[kCount], std::string_view name) {
  for (const AccessName& row : table) {
    if (row.name == name) return row.access;
  }
  return std::nullopt;
}

// "LOAD_DWORDX2", "ATOMIC_ADD_X2", ...: a vector or scalar memory name's tail.
std::optional<Access> VectorAccess(std::string_view tail) {
  if (auto access = Find(kVectorAccess, tail)) return access;
  if (auto access = Find(kOtherAtomics, tail)) return access;
  if (!Eat(tail, "ATOMIC_")) return std::nullopt;
  const bool wide = tail.ends_with("_X2");
  if (wide) tail.remove_suffix(3);
  for (const AtomicName& row : kIntegerAtomics) {
    if (row.name == tail) return Rmw(row.op, wide ? 8 : 4);
  }
  return std::nullopt;
}

// --- An Access travels in Inst::op ----------------------------------------

constexpr uint8_t kSizes[8] = {1, 2, 4, 8, 12, 16, 32, 64};

uint16_t Pack(const Access& access) {
  const auto size = std::find(std::begin(kSizes), std::end(kSizes), access.bytes) - kSizes;
  return static_cast<uint16_t>(static_cast<unsigned>(access.move) | size << 2 | access.sign << 5 |
                               access.d16 << 6 | access.hi << 7 | access.far << 8 |
                               static_cast<unsigned>(access.atomic) << 9);
}

Access Unpack(uint16_t op) {
  return {.move = static_cast<Move>(op & 3),
          .bytes = kSizes[op >> 2 & 7],
          .sign = (op >> 5 & 1) != 0,
          .d16 = (op >> 6 & 1) != 0,
          .hi = (op >> 7 & 1) != 0,
          .atomic = static_cast<AtomicOp>(op >> 9),
          .far = (op >> 8 & 1) != 0};
}

// --- Data registers -------------------------------------------------------

// A register's row of lanes, whichever file it is in.
uint32_t* Row(Wave& wave, const Operand& operand, unsigned dword = 0) {
  return operand.kind == Operand::Kind::kAgpr ? wave.A(operand.reg + dword)
                                              : wave.V(operand.reg + dword);
}

// Up to four dwords of one lane.
using Words = std::array<uint32_t, 4>;

Words GatherData(Wave& wave, const Access& access, const Operand& data, unsigned lane) {
  Words words{};
  const unsigned dwords = (access.bytes + 3) / 4;
  for (unsigned i = 0; i < dwords; ++i) words[i] = Row(wave, data, i)[lane];
  if (access.hi) words[0] >>= 16;
  return words;
}

void ScatterLoaded(Wave& wave, const Access& access, const Operand& dst, unsigned lane,
                   const Words& words) {
  const unsigned dwords = (access.bytes + 3) / 4;
  uint32_t first = words[0];
  if (access.bytes == 1)
    first = access.sign ? static_cast<uint32_t>(static_cast<int8_t>(first)) : first & 0xff;
  if (access.bytes == 2)
    first = access.sign ? static_cast<uint32_t>(static_cast<int16_t>(first)) : first & 0xffff;
  uint32_t* row = Row(wave, dst);
  if (access.d16) {
    row[lane] = access.hi ? (row[lane] & 0xffff) | first << 16
                          : (row[lane] & 0xffff0000) | (first & 0xffff);
    return;
  }
  row[lane] = first;
  for (unsigned i = 1; i < dwords; ++i) Row(wave, dst, i)[lane] = words[i];
}

// --- Places ---------------------------------------------------------------

struct Place {
  enum class Kind : uint8_t { kHost, kLds, kPrivate, kNowhere, kBad };
  Kind kind = Kind::kHost;
  uint64_t at = 0;  // host address, LDS offset, or private byte
};

uint8_t* PrivateByte(const Wave& wave, uint64_t base, unsigned lane, uint64_t byte) {
  return reinterpret_cast<uint8_t*>(base + byte / 4 * 4 * wave.lanes + lane * 4 + byte % 4);
}

// Where this wave's private memory starts according to the program: generations
// without architected flat scratch use what the kernel put in FLAT_SCRATCH.
uint64_t FlatScratchBase(const Wave& wave) {
  return wave.target->ArchitectedFlatScratch() ? wave.scratch_base : wave.ReadS64(kFlatScrLo);
}

bool PrivateInBounds(const Wave& wave, uint64_t base, uint64_t byte, unsigned bytes) {
  return wave.scratch_base != 0 && base == wave.scratch_base && byte < wave.scratch_per_lane &&
         byte + bytes <= wave.scratch_per_lane;
}

// Copies between words and memory without assuming alignment. Whole dwords go
// as such, so that aligned ones are single host accesses.
void LoadHost(uint64_t address, unsigned bytes, Words& words) {
  const auto* from = reinterpret_cast<const uint8_t*>(address);
  switch (bytes) {
    case 1:
      words[0] = *from;
      return;
    case 2: {
      uint16_t half;
      std::memcpy(&half, from, 2);
      words[0] = half;
      return;
    }
    case 4:
      std::memcpy(words.data(), from, 4);
      return;
    case 8:
      std::memcpy(words.data(), from, 8);
      return;
    case 12:
      std::memcpy(words.data(), from, 12);
      return;
    default:
      std::memcpy(words.data(), from, 16);
      return;
  }
}
void StoreHost(uint64_t address, unsigned bytes, const Words& words) {
  auto* to = reinterpret_cast<uint8_t*>(address);
  switch (bytes) {
    case 1:
      std::memcpy(to, words.data(), 1);
      return;
    case 2:
      std::memcpy(to, words.data(), 2);
      return;
    case 4:
      std::memcpy(to, words.data(), 4);
      return;
    case 8:
      std::memcpy(to, words.data(), 8);
      return;
    case 12:
      std::memcpy(to, words.data(), 12);
      return;
    default:
      std::memcpy(to, words.data(), 16);
      return;
  }
}

void CopyPrivate(Wave& wave, unsigned lane, uint64_t byte, unsigned bytes, Words& words,
                 bool store) {
  for (unsigned done = 0; done < bytes;) {
    const auto run = static_cast<unsigned>(std::min<uint64_t>(bytes - done, 4 - (byte + done) % 4));
    uint8_t* memory = PrivateByte(wave, wave.scratch_base, lane, byte + done);
    uint8_t* data = reinterpret_cast<uint8_t*>(words.data()) + done;
    std::memcpy(store ? memory : data, store ? data : memory, run);
    done += run;
  }
}

// Word-wise atomic on a resolved place; places in private memory are dwords
// interleaved, so 64-bit ones are done on a copy (nothing else can see them).
void AtomicAt(Wave& wave, const Access& access, uint64_t host, unsigned lane, Place place,
              const Words& data, Words& old) {
  const auto pair = [](const Words& w, unsigned i) { return w[i] | uint64_t{w[i + 1]} << 32; };
  if (access.bytes == 4) {
    old[0] = Atomic32(access.atomic, host, data[0], data[1]);
    return;
  }
  uint64_t before;
  if (place.kind == Place::Kind::kPrivate) {
    CopyPrivate(wave, lane, place.at, 8, old, false);
    before = pair(old, 0);
    const uint64_t after = ApplyAtomic64(access.atomic, before, pair(data, 0), pair(data, 2));
    Words stored{static_cast<uint32_t>(after), static_cast<uint32_t>(after >> 32)};
    CopyPrivate(wave, lane, place.at, 8, stored, true);
    return;
  }
  before = Atomic64(access.atomic, host, pair(data, 0), pair(data, 2));
  old[0] = static_cast<uint32_t>(before);
  old[1] = static_cast<uint32_t>(before >> 32);
}

// Does one lane's part at a place. `words` is data in (stores, atomics) and
// data out (loads, atomics). False: the access faults.
bool Perform(Wave& wave, const Access& access, unsigned lane, Place place, Words& words) {
  switch (place.kind) {
    case Place::Kind::kNowhere:
      words = {};
      return true;
    case Place::Kind::kBad:
      return false;
    case Place::Kind::kLds: {
      auto& lds = wave.group->lds;
      if (place.at + access.bytes > lds.size()) {
        words = {};
        return true;
      }
      break;
    }
    case Place::Kind::kPrivate:
      if (access.move != Move::kAtomic) {
        CopyPrivate(wave, lane, place.at, access.bytes, words, access.move == Move::kStore);
        return true;
      }
      break;
    case Place::Kind::kHost:
      break;
  }
  uint64_t host = place.at;
  if (place.kind == Place::Kind::kLds) {
    host = reinterpret_cast<uint64_t>(wave.group->lds.data()) + place.at;
  } else if (place.kind == Place::Kind::kPrivate) {
    host = reinterpret_cast<uint64_t>(PrivateByte(wave, wave.scratch_base, lane, place.at));
  }
  if (access.move == Move::kLoad) {
    LoadHost(host, access.bytes, words);
  } else if (access.move == Move::kStore) {
    StoreHost(host, access.bytes, words);
  } else {
    if (place.at % access.bytes != 0) return false;  // atomics must be aligned
    Words old{};
    AtomicAt(wave, access, host, lane, place, words, old);
    words = old;
  }
  return true;
}

// Data words of an atomic: value in [0], comparand in [1] (32-bit), or value in
// [0:1], comparand in [2:3] (64-bit). Memory's cmpswap keeps {new, comparand}
// in consecutive registers, which is that order already.
Words GatherAtomic(Wave& wave, const Access& access, const Operand& data, unsigned lane) {
  const bool pair = access.atomic == AtomicOp::kCmpSwap || access.atomic == AtomicOp::kFCmpSwap;
  const unsigned dwords = access.bytes / 4 * (pair ? 2 : 1);
  Words words{};
  for (unsigned i = 0; i < dwords; ++i) words[i] = Row(wave, data, i)[lane];
  return words;
}

template <typename Fn>
void ForActive(const Wave& wave, Fn&& fn) {
  for (uint64_t left = wave.Exec(); left != 0; left &= left - 1) {
    fn(static_cast<unsigned>(std::countr_zero(left)));
  }
}

// --- FLAT, GLOBAL, SCRATCH ------------------------------------------------

using Addresses = std::array<uint64_t, 64>;

// Fills active lanes' addresses before offset resolution to spaces.
void GlobalAddresses(Wave& wave, const Inst& inst, Addresses& out) {
  const uint32_t* lo = inst.addr.kind == Operand::Kind::kVgpr ? wave.V(inst.addr.reg) : nullptr;
  const auto offset = static_cast<uint64_t>(inst.offset);
  if (inst.saddr.kind == Operand::Kind::kSgpr) {
    const uint64_t base = wave.ReadS64(inst.saddr.reg) + offset;
    if (wave.target->Gfx125()) {  // signed, and perhaps counting elements
      const int64_t scale = inst.scale_offset ? Unpack(inst.op).bytes : 1;
      for (unsigned lane = 0; lane < wave.lanes; ++lane) {
        const int64_t index = lo ? static_cast<int32_t>(lo[lane]) : 0;
        out[lane] = base + static_cast<uint64_t>(index * scale);
      }
      return;
    }
    for (unsigned lane = 0; lane < wave.lanes; ++lane) out[lane] = base + (lo ? lo[lane] : 0);
    return;
  }
  const uint32_t* hi = wave.V(inst.addr.reg + 1u);
  for (unsigned lane = 0; lane < wave.lanes; ++lane) {
    out[lane] = (lo[lane] | uint64_t{hi[lane]} << 32) + offset;
  }
}

// One check for the whole span when that succeeds; callers fall back to
// checking lane by lane.
bool CheckSpan(Wave& wave, const Addresses& addresses, unsigned bytes, bool write) {
  uint64_t low = ~uint64_t{0}, high = 0;
  ForActive(wave, [&](unsigned lane) {
    low = std::min(low, addresses[lane]);
    high = std::max(high, addresses[lane]);
  });
  if (high + bytes < high || high - low > (uint64_t{1} << 30)) return false;
  return wave.memory->Check(low, high - low + bytes, write);
}

Step RunGlobalLoadDword(Wave& wave, const Inst& inst, const Addresses& addresses) {
  uint32_t* row = Row(wave, inst.dst);
  ForActive(wave, [&](unsigned lane) {
    std::memcpy(&row[lane], reinterpret_cast<const void*>(addresses[lane]), 4);
  });
  return Step::kNext;
}
Step RunGlobalStoreDword(Wave& wave, const Inst& inst, const Addresses& addresses) {
  const uint32_t* row = Row(wave, inst.data);
  ForActive(wave, [&](unsigned lane) {
    std::memcpy(reinterpret_cast<void*>(addresses[lane]), &row[lane], 4);
  });
  return Step::kNext;
}

// Applies an access at every active lane's place; `resolve(lane)` finds it.
template <typename Resolve>
Step RunLanes(Wave& wave, const Inst& inst, const Access& access, Resolve&& resolve) {
  Step step = Step::kNext;
  for (uint64_t left = wave.Exec(); left != 0; left &= left - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(left));
    uint64_t address = 0;
    const Place place = resolve(lane, address);
    Words words{};
    if (access.move == Move::kStore) words = GatherData(wave, access, inst.data, lane);
    if (access.move == Move::kAtomic) words = GatherAtomic(wave, access, inst.data, lane);
    if (!Perform(wave, access, lane, place, words)) {
      return wave.FaultMemory(inst, address, access.move != Move::kLoad);
    }
    const bool returns = access.move == Move::kLoad || (access.move == Move::kAtomic && inst.glc);
    if (returns) ScatterLoaded(wave, access, inst.dst, lane, words);
  }
  return step;
}

Place HostPlace(Wave& wave, uint64_t address, unsigned bytes, bool write, bool checked) {
  if (!checked && !wave.memory->Check(address, bytes, write)) return {Place::Kind::kBad, address};
  return {Place::Kind::kHost, address};
}

Step Global(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  if (wave.Exec() == 0) return Step::kNext;
  Addresses addresses;
  GlobalAddresses(wave, inst, addresses);
  const bool write = access.move != Move::kLoad;
  const bool checked = CheckSpan(wave, addresses, access.bytes, write);
  if (checked && access.bytes == 4 && access.move == Move::kLoad && !access.d16) {
    return RunGlobalLoadDword(wave, inst, addresses);
  }
  if (checked && access.bytes == 4 && access.move == Move::kStore) {
    return RunGlobalStoreDword(wave, inst, addresses);
  }
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) {
    address = addresses[lane];
    return HostPlace(wave, address, access.bytes, write, checked);
  });
}

// gfx1250: from a lane's private memory the compiler makes FLAT_SCRATCH's base plus the
// byte, with the lane's number in the address's five highest bits. Source: LLVM's
// SITargetLowering::lowerADDRSPACECAST. A lane reaches only its own memory here.
std::optional<Place> LanePlace(const Wave& wave, unsigned lane, uint64_t address,
                               const Access& access) {
  constexpr unsigned kLaneShift = 52;
  if (!wave.target->Gfx125() || wave.scratch_base == 0) return std::nullopt;
  const uint64_t byte = (address & ((uint64_t{1} << kLaneShift) - 1)) - wave.scratch_base;
  if (byte >= wave.scratch_per_lane) return std::nullopt;
  const bool inside =
      address >> kLaneShift == lane && PrivateInBounds(wave, wave.scratch_base, byte, access.bytes);
  return Place{inside ? Place::Kind::kPrivate : Place::Kind::kBad, byte};
}

Place FlatPlace(Wave& wave, unsigned lane, uint64_t address, const Access& access) {
  if (const auto place = LanePlace(wave, lane, address, access)) return *place;
  const uint64_t high = address >> 32;
  if (high == wave.shared_aperture >> 32) return {Place::Kind::kLds, address & 0xffffffff};
  if (high == wave.private_aperture >> 32) {
    const uint64_t byte = address & 0xffffffff;
    const bool inside = PrivateInBounds(wave, FlatScratchBase(wave), byte, access.bytes);
    return {inside ? Place::Kind::kPrivate : Place::Kind::kBad, byte};
  }
  return HostPlace(wave, address, access.bytes, access.move != Move::kLoad, false);
}

Step Flat(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  if (wave.Exec() == 0) return Step::kNext;
  Addresses addresses;
  GlobalAddresses(wave, inst, addresses);
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) {
    address = addresses[lane];
    return FlatPlace(wave, lane, address, access);
  });
}

Step Scratch(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  if (wave.Exec() == 0) return Step::kNext;
  const uint64_t base = FlatScratchBase(wave);
  const uint32_t common =
      static_cast<uint32_t>(inst.offset) +
      (inst.saddr.kind == Operand::Kind::kSgpr ? wave.ReadS(inst.saddr.reg) : 0);
  const uint32_t* row = inst.addr.kind == Operand::Kind::kVgpr ? wave.V(inst.addr.reg) : nullptr;
  const uint32_t scale = inst.scale_offset ? access.bytes : 1;
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) -> Place {
    const uint32_t byte = common + (row ? row[lane] * scale : 0);
    address = wave.private_aperture + byte;
    const bool inside = PrivateInBounds(wave, base, byte, access.bytes);
    return {inside ? Place::Kind::kPrivate : Place::Kind::kBad, byte};
  });
}

// global_load_lds_*: LDS address = M0[15:0] (the group's offset) + instruction
// offset + 4 * lane (rank in the wave, EXEC aside). The instruction offset
// applies to both addresses.
Step GlobalLoadLds(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  if (wave.Exec() == 0) return Step::kNext;
  Addresses addresses;
  GlobalAddresses(wave, inst, addresses);
  const uint32_t lds_base = (wave.ReadS(kM0) & 0xffff) + static_cast<uint32_t>(inst.offset);
  Step step = Step::kNext;
  ForActive(wave, [&](unsigned lane) {
    if (step == Step::kFault) return;
    if (!wave.memory->Check(addresses[lane], access.bytes, false)) {
      step = wave.FaultMemory(inst, addresses[lane], false);
      return;
    }
    Words words{};
    LoadHost(addresses[lane], access.bytes, words);
    if (access.sign) {
      words[0] = static_cast<uint32_t>(access.bytes == 1 ? static_cast<int8_t>(words[0])
                                                         : static_cast<int16_t>(words[0]));
    }
    const unsigned bytes = std::max<unsigned>(4, access.bytes);
    Access store = Store(static_cast<uint8_t>(bytes));
    Perform(wave, store, lane, {Place::Kind::kLds, lds_base + uint64_t{lane} * bytes}, words);
  });
  return step;
}

// --- MUBUF ----------------------------------------------------------------

// The parts of a buffer resource descriptor that addressing needs.
struct Buffer {
  uint64_t base = 0;
  uint32_t stride = 0;
  bool swizzle = false;
  bool add_tid = false;
  uint64_t records = 0;
  uint32_t index_stride = 8;
  uint32_t element_size = 4;
  uint32_t oob = 0;   // gfx10+ OOB_SELECT
  bool known = true;  // false: a form that is not modelled
};

constexpr char kUnknownBuffer[] = "a buffer of a form that is not modelled";

// gfx1250: a base of 57 bits, a size of 45. Source: LLVM's
// SITargetLowering::lowerPointerAsRsrcIntrin. What strides and flags do is not modelled.
Buffer ReadWideBuffer(const Wave& wave, const Operand& rsrc) {
  const uint64_t low = wave.ReadS64(rsrc.reg);
  const uint64_t high = wave.ReadS64(static_cast<uint16_t>(rsrc.reg + 2));
  Buffer buffer;
  buffer.base = low & (~uint64_t{0} >> 7);
  buffer.records = low >> 57 | (high & 0x3fffffffff) << 7;
  buffer.oob = 3;
  buffer.known = high >> 38 == 0;
  return buffer;
}

Buffer ReadBuffer(const Wave& wave, const Operand& rsrc) {
  if (wave.target->Gfx125()) return ReadWideBuffer(wave, rsrc);
  const uint64_t low = wave.ReadS64(rsrc.reg);
  const uint32_t word1 = static_cast<uint32_t>(low >> 32);
  const uint32_t word3 = wave.ReadS(static_cast<uint16_t>(rsrc.reg + 3));
  Buffer buffer;
  buffer.base = low & 0xffffffffffff;
  // Addresses are 48-bit, sign-extended.
  if (buffer.base >> 47 != 0) buffer.base |= uint64_t{0xffff} << 48;
  buffer.stride = word1 >> 16 & 0x3fff;
  buffer.records = wave.ReadS(static_cast<uint16_t>(rsrc.reg + 2));
  buffer.index_stride = 8u << (word3 >> 21 & 3);
  buffer.add_tid = word3 >> 23 & 1;
  if (wave.target->AtLeast11()) {
    const uint32_t mode = word1 >> 30 & 3;
    buffer.swizzle = mode != 0;
    buffer.element_size = mode == 3 ? 16 : mode == 1 ? 4 : 8;
  } else {
    buffer.swizzle = word1 >> 31;
    buffer.element_size = wave.target->AtLeast10() ? 4 : 2u << (word3 >> 19 & 3);
  }
  buffer.oob = word3 >> 28 & 3;
  return buffer;
}

// gfx10 and later choose the check by OOB_SELECT: 0 structured with offset, 1
// structured, 2 only an empty buffer is out of range, 3 raw.
bool OutOfRange10(const Buffer& buffer, uint32_t index, uint64_t offset, unsigned bytes) {
  switch (buffer.oob) {
    case 0:
      return index >= buffer.records || offset + bytes > buffer.stride;
    case 1:
      return index >= buffer.records;
    case 2:
      return buffer.records == 0;
    default: {
      const uint64_t linear = buffer.swizzle ? uint64_t{index} * buffer.stride : 0;
      return linear + offset + bytes > buffer.records;
    }
  }
}

// gfx9: swizzled structured buffers check the index (and the offset against the
// stride), all others the distance from the base plus the scalar offset.
bool OutOfRange9(const Buffer& buffer, uint32_t index, uint64_t offset, uint32_t soffset,
                 unsigned bytes) {
  if (buffer.stride != 0 && buffer.swizzle) {
    return index >= buffer.records || offset + bytes > buffer.stride;
  }
  return uint64_t{index} * buffer.stride + offset + bytes + soffset > buffer.records;
}

// Address of a lane's element; nullopt when the range check drops it.
std::optional<uint64_t> BufferAddress(const Wave& wave, const Buffer& buffer, uint32_t index,
                                      uint32_t offset, uint32_t soffset, unsigned bytes) {
  // The scratch descriptor (thread id added) is bounded by the wave's own
  // memory instead, which the caller checks.
  const bool dropped =
      !buffer.add_tid &&
      (wave.target->AtLeast10() ? OutOfRange10(buffer, index, offset, bytes)
                                : OutOfRange9(buffer, index, offset, soffset, bytes));
  if (dropped) return std::nullopt;
  const uint64_t base = buffer.base + soffset;
  if (!buffer.swizzle) return base + uint64_t{index} * buffer.stride + offset;
  const uint64_t index_high = index / buffer.index_stride, index_low = index % buffer.index_stride;
  const uint64_t offset_high = offset / buffer.element_size;
  const uint64_t offset_low = offset % buffer.element_size;
  return base +
         (index_high * buffer.stride + offset_high * buffer.element_size) * buffer.index_stride +
         index_low * buffer.element_size + offset_low;
}

bool InOwnScratch(const Wave& wave, uint64_t address, unsigned bytes) {
  const uint64_t size = uint64_t{wave.scratch_per_lane} * wave.lanes;
  return wave.scratch_base != 0 && address >= wave.scratch_base &&
         address - wave.scratch_base + bytes <= size;
}

struct BufferLane {
  uint32_t index = 0, offset = 0;
};

BufferLane LaneOf(Wave& wave, const Inst& inst, const Buffer& buffer, unsigned lane) {
  BufferLane out;
  unsigned next = inst.addr.reg;
  if (inst.idxen) out.index = wave.V(next++)[lane];
  out.offset = static_cast<uint32_t>(inst.offset);
  if (inst.offen) out.offset += wave.V(next)[lane];
  if (buffer.add_tid) out.index += lane;
  return out;
}

uint32_t ScalarOffset(const Wave& wave, const Operand& soffset) {
  if (soffset.kind == Operand::Kind::kImm) return soffset.imm;
  return soffset.kind == Operand::Kind::kSgpr ? wave.ReadS(soffset.reg) : 0;
}

// A swizzled element is contiguous only up to element_size, so wider accesses
// go dword by dword there.
Step SwizzledLane(Wave& wave, const Inst& inst, const Access& access, const Buffer& buffer,
                  BufferLane at, uint32_t soffset, unsigned lane) {
  Words words{};
  if (access.move == Move::kStore) words = GatherData(wave, access, inst.data, lane);
  const bool store = access.move == Move::kStore;
  for (unsigned done = 0; done < access.bytes;) {
    const unsigned run = std::min(access.bytes - done, 4 - (at.offset + done) % 4);
    const auto address = BufferAddress(wave, buffer, at.index, at.offset + done, soffset, run);
    auto* data = reinterpret_cast<uint8_t*>(words.data()) + done;
    if (address) {
      if (!InOwnScratch(wave, *address, run) && !wave.memory->Check(*address, run, store)) {
        return wave.FaultMemory(inst, *address, store);
      }
      auto* memory = reinterpret_cast<uint8_t*>(*address);
      std::memcpy(store ? memory : data, store ? data : memory, run);
    } else if (!store) {
      std::memset(data, 0, run);
    }
    done += run;
  }
  if (!store) ScatterLoaded(wave, access, inst.dst, lane, words);
  return Step::kNext;
}

Step BufferOp(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  if (wave.Exec() == 0) return Step::kNext;
  const Buffer buffer = ReadBuffer(wave, inst.rsrc);
  if (!buffer.known) return wave.FaultIllegal(inst, kUnknownBuffer);
  const uint32_t soffset = ScalarOffset(wave, inst.soffset);
  if (buffer.swizzle && access.move != Move::kAtomic) {
    Step step = Step::kNext;
    ForActive(wave, [&](unsigned lane) {
      if (step != Step::kNext) return;
      const BufferLane at = LaneOf(wave, inst, buffer, lane);
      step = SwizzledLane(wave, inst, access, buffer, at, soffset, lane);
    });
    return step;
  }
  const bool write = access.move != Move::kLoad;
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) -> Place {
    const BufferLane at = LaneOf(wave, inst, buffer, lane);
    const auto found = BufferAddress(wave, buffer, at.index, at.offset, soffset, access.bytes);
    if (!found) return {Place::Kind::kNowhere, 0};
    address = *found;
    if (InOwnScratch(wave, address, access.bytes)) return {Place::Kind::kHost, address};
    return HostPlace(wave, address, access.bytes, write, false);
  });
}

// --- LDS ------------------------------------------------------------------

const uint32_t* LdsAddressRow(Wave& wave, const Inst& inst) {
  return inst.addr.kind == Operand::Kind::kVgpr ? wave.V(inst.addr.reg) : nullptr;
}

Step Lds(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const uint32_t* row = LdsAddressRow(wave, inst);
  const auto offset = static_cast<uint32_t>(inst.offset);
  const auto size = static_cast<uint64_t>(wave.group->lds.size());
  uint8_t* lds = wave.group->lds.data();
  if (access.bytes == 4 && access.move == Move::kLoad) {
    uint32_t* dst = Row(wave, inst.dst);
    ForActive(wave, [&](unsigned lane) {
      const uint64_t at = uint64_t{row[lane]} + offset;
      uint32_t value = 0;
      if (at + 4 <= size) std::memcpy(&value, lds + at, 4);
      dst[lane] = value;
    });
    return Step::kNext;
  }
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) -> Place {
    address = uint64_t{row[lane]} + offset;
    return {Place::Kind::kLds, address};
  });
}

// read2/write2: two elements, offsets in units of the element (or 64 of them).
Step Lds2(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const uint32_t* row = LdsAddressRow(wave, inst);
  const unsigned dwords = access.bytes / 4;
  const uint64_t unit = access.bytes * (access.far ? 64u : 1u);
  const uint64_t offsets[2] = {static_cast<uint64_t>(inst.offset) * unit,
                               static_cast<uint64_t>(inst.offset1) * unit};
  ForActive(wave, [&](unsigned lane) {
    const uint64_t address = row[lane];
    Words words[2] = {};
    for (unsigned i = 0; i < 2; ++i) {
      if (access.move != Move::kLoad) {
        words[i] = GatherData(wave, access, i == 0 ? inst.data : inst.data2, lane);
      }
      Perform(wave, access, lane, {Place::Kind::kLds, address + offsets[i]}, words[i]);
    }
    if (access.move == Move::kStore) return;
    for (unsigned i = 0; i < 2; ++i) {
      for (unsigned d = 0; d < dwords; ++d) {
        Row(wave, inst.dst, i * dwords + d)[lane] = words[i][d];
      }
    }
  });
  return Step::kNext;
}

// LDS atomics keep their second operand in its own register. The older compare
// form has {comparand, new}, the later one {new, comparand}.
Step LdsAtomic(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const uint32_t* row = LdsAddressRow(wave, inst);
  const bool has_second = inst.data2.kind != Operand::Kind::kNone;
  const bool swapped = inst.name.starts_with("DS_CMPST_") || inst.name.starts_with("DS_MSKOR");
  const Operand& value = swapped ? inst.data2 : inst.data;
  const Operand& second = swapped ? inst.data : inst.data2;
  const unsigned dwords = access.bytes / 4;
  Step step = Step::kNext;
  ForActive(wave, [&](unsigned lane) {
    if (step != Step::kNext) return;
    Words words{};
    for (unsigned d = 0; d < dwords; ++d) {
      words[d] = Row(wave, value, d)[lane];
      if (has_second) words[dwords + d] = Row(wave, second, d)[lane];
    }
    const uint64_t address = uint64_t{row[lane]} + static_cast<uint32_t>(inst.offset);
    if (!Perform(wave, access, lane, {Place::Kind::kLds, address}, words)) {
      step = wave.FaultMemory(inst, wave.shared_aperture + address, true);
      return;
    }
    if (inst.dst.kind == Operand::Kind::kNone) return;
    for (unsigned d = 0; d < dwords; ++d) Row(wave, inst.dst, d)[lane] = words[d];
  });
  return step;
}

// Append and consume: one addition of the number of active lanes; every lane
// gets the value before. M0[31:16] is the group's base in GDS-less use: 0.
template <bool kAppend>
Step AppendConsume(Wave& wave, const Inst& inst) {
  const uint64_t address = (wave.ReadS(kM0) & 0xffff) + static_cast<uint64_t>(inst.offset);
  const auto active = static_cast<uint32_t>(std::popcount(wave.Exec()));
  if (active == 0) return Step::kNext;
  Words words{active};
  const Access access = Rmw(kAppend ? AtomicOp::kAdd : AtomicOp::kSub, 4);
  if (!Perform(wave, access, 0, {Place::Kind::kLds, address}, words)) {
    return wave.FaultMemory(inst, wave.shared_aperture + address, true);
  }
  ForActive(wave, [&](unsigned lane) { Row(wave, inst.dst)[lane] = words[0]; });
  return Step::kNext;
}

// Backward permute: lane l reads lane (addr + offset) / 4; inactive sources
// give 0. Works in rows of 32 for wave32, across 64 lanes for wave64.
Step BPermute(Wave& wave, const Inst& inst) {
  const uint64_t exec = wave.Exec();
  const uint32_t* address = LdsAddressRow(wave, inst);
  const uint32_t* data = Row(wave, inst.data);
  // gfx10+ in wave64 permutes within each half.
  const uint32_t reach = wave.target->AtLeast10() ? 32 : wave.lanes;
  std::array<uint32_t, 64> out{};
  ForActive(wave, [&](unsigned lane) {
    const uint32_t from = (lane & ~(reach - 1)) +
                          ((address[lane] + static_cast<uint32_t>(inst.offset)) / 4 & (reach - 1));
    out[lane] = exec >> from & 1 ? data[from] : 0;
  });
  ForActive(wave, [&](unsigned lane) { Row(wave, inst.dst)[lane] = out[lane]; });
  return Step::kNext;
}

// Forward permute: lane l writes lane (addr + offset) / 4; unwritten lanes get
// 0; the highest writer wins.
Step Permute(Wave& wave, const Inst& inst) {
  const uint32_t* address = LdsAddressRow(wave, inst);
  const uint32_t* data = Row(wave, inst.data);
  const uint32_t reach = wave.target->AtLeast10() ? 32 : wave.lanes;
  std::array<uint32_t, 64> out{};
  ForActive(wave, [&](unsigned lane) {
    const uint32_t to = (lane & ~(reach - 1)) +
                        ((address[lane] + static_cast<uint32_t>(inst.offset)) / 4 & (reach - 1));
    out[to] = data[lane];
  });
  ForActive(wave, [&](unsigned lane) { Row(wave, inst.dst)[lane] = out[lane]; });
  return Step::kNext;
}

// The source lane of ds_swizzle's pattern within 32 lanes.
unsigned SwizzleSource(unsigned pattern, unsigned lane) {
  const unsigned in = lane & 31;
  unsigned source;
  if (pattern >= 0xe000) {  // FFT
    const unsigned mask = pattern & 0x1f;
    unsigned reversed = 0;
    for (unsigned i = 0; i < 5; ++i) reversed |= (in >> i & 1) << (4 - i);
    source = (reversed >> std::popcount(mask)) | (in & mask);
  } else if (pattern >= 0xc000) {  // rotate
    const unsigned amount = pattern >> 5 & 0x1f, mask = pattern & 0x1f;
    const unsigned moved = pattern >> 10 & 1 ? in - amount : in + amount;
    source = (in & mask) | (moved & ~mask & 0x1f);
  } else if (pattern & 0x8000) {  // quads
    source = (in & ~3u) | (pattern >> (2 * (in & 3)) & 3);
  } else {
    source = ((in & (pattern & 0x1f)) | (pattern >> 5 & 0x1f)) ^ (pattern >> 10 & 0x1f);
  }
  return (lane & 32) | source;
}

Step Swizzle(Wave& wave, const Inst& inst) {
  const uint64_t exec = wave.Exec();
  const uint32_t* data = Row(wave, inst.addr);
  std::array<uint32_t, 64> out{};
  ForActive(wave, [&](unsigned lane) {
    const unsigned from = SwizzleSource(static_cast<unsigned>(inst.offset), lane);
    out[lane] = exec >> from & 1 ? data[from] : 0;
  });
  ForActive(wave, [&](unsigned lane) { Row(wave, inst.dst)[lane] = out[lane]; });
  return Step::kNext;
}

// LDS address M0 + offset + 4 * lane.
template <bool kStore>
Step AddTid(Wave& wave, const Inst& inst) {
  const uint32_t base = (wave.ReadS(kM0) & 0xffff) + static_cast<uint32_t>(inst.offset);
  const Access access = kStore ? Store(4) : Load(4);
  return RunLanes(wave, inst, access, [&](unsigned lane, uint64_t& address) -> Place {
    address = uint64_t{base} + lane * 4;
    return {Place::Kind::kLds, address};
  });
}

Step NoOp(Wave&, const Inst&) { return Step::kNext; }

// --- SMEM -----------------------------------------------------------------

struct ScalarRange {
  uint64_t address = 0;
  uint64_t readable = ~uint64_t{0};  // bytes from address that are in bounds
  bool known = true;
};

ScalarRange ScalarAddress(Wave& wave, const Inst& inst, bool buffer) {
  const uint64_t scale = inst.scale_offset ? Unpack(inst.op).bytes : 1;
  const auto offset =
      static_cast<uint64_t>(inst.offset) +
      (inst.soffset.kind == Operand::Kind::kSgpr ? wave.ReadS(inst.soffset.reg) * scale : 0);
  ScalarRange range;
  if (!buffer) {
    range.address = wave.ReadS64(inst.saddr.reg) + offset;
    return range;
  }
  const Buffer descriptor = ReadBuffer(wave, inst.saddr);
  const uint64_t size = descriptor.stride == 0 ? descriptor.records
                                               : uint64_t{descriptor.stride} * descriptor.records;
  range.known = descriptor.known;
  const auto at = static_cast<uint32_t>(offset);
  range.address = descriptor.base + at;
  range.readable = at < size ? size - at : 0;
  return range;
}

// dword granularity: the low two address bits are ignored, except by the
// sub-dword loads of gfx12.
Step ScalarLoad(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const bool buffer = inst.name.starts_with("S_BUFFER_");
  ScalarRange range = ScalarAddress(wave, inst, buffer);
  if (!range.known) return wave.FaultIllegal(inst, kUnknownBuffer);
  if (access.bytes >= 4) range.address &= ~uint64_t{3};
  const unsigned dwords = access.bytes / 4u;
  if (access.bytes < 4) {
    Words words{};
    if (range.readable >= access.bytes) {
      if (!wave.memory->Check(range.address, access.bytes, false)) {
        return wave.FaultMemory(inst, range.address, false);
      }
      LoadHost(range.address, access.bytes, words);
    }
    uint32_t value = words[0];
    if (access.sign) {
      value = static_cast<uint32_t>(access.bytes == 1 ? static_cast<int8_t>(value)
                                                      : static_cast<int16_t>(value));
    }
    wave.WriteS(inst.dst.reg, value);
    return Step::kNext;
  }
  // Read everything before writing: the base may be among the destinations.
  std::array<uint32_t, 16> values{};
  const uint64_t bytes = std::min<uint64_t>(dwords * 4, range.readable & ~uint64_t{3});
  if (bytes != 0 && !wave.memory->Check(range.address, bytes, false)) {
    return wave.FaultMemory(inst, range.address, false);
  }
  if (bytes != 0) {
    std::memcpy(values.data(), reinterpret_cast<const void*>(range.address), bytes);
  }
  for (unsigned i = 0; i < dwords; ++i) {
    wave.WriteS(static_cast<uint16_t>(inst.dst.reg + i), values[i]);
  }
  return Step::kNext;
}

Step ScalarStore(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const ScalarRange range = ScalarAddress(wave, inst, inst.name.starts_with("S_BUFFER_"));
  const uint64_t address = range.address & ~uint64_t{3};
  const unsigned bytes =
      static_cast<unsigned>(std::min<uint64_t>(access.bytes, range.readable & ~uint64_t{3}));
  if (bytes == 0) return Step::kNext;
  if (!wave.memory->Check(address, bytes, true)) return wave.FaultMemory(inst, address, true);
  for (unsigned i = 0; i < bytes / 4; ++i) {
    const uint32_t value = wave.ReadS(static_cast<uint16_t>(inst.data.reg + i));
    std::memcpy(reinterpret_cast<void*>(address + i * 4), &value, 4);
  }
  return Step::kNext;
}

Step ScalarAtomic(Wave& wave, const Inst& inst) {
  const Access access = Unpack(inst.op);
  const ScalarRange range = ScalarAddress(wave, inst, inst.name.starts_with("S_BUFFER_"));
  if (range.readable < access.bytes) {
    if (inst.glc) wave.WriteS(inst.data.reg, 0);
    return Step::kNext;
  }
  if (range.address % access.bytes != 0 || !wave.memory->Check(range.address, access.bytes, true)) {
    return wave.FaultMemory(inst, range.address, true);
  }
  const uint16_t reg = inst.data.reg;
  const bool compare = access.atomic == AtomicOp::kCmpSwap;
  if (access.bytes == 4) {
    const uint32_t second = compare ? wave.ReadS(static_cast<uint16_t>(reg + 1)) : 0;
    const uint32_t old = Atomic32(access.atomic, range.address, wave.ReadS(reg), second);
    if (inst.glc) wave.WriteS(reg, old);
  } else {
    const uint64_t second = compare ? wave.ReadS64(static_cast<uint16_t>(reg + 2)) : 0;
    const uint64_t old = Atomic64(access.atomic, range.address, wave.ReadS64(reg), second);
    if (inst.glc) wave.WriteS64(reg, old);
  }
  return Step::kNext;
}

// --- Names ----------------------------------------------------------------

Handler Bind(Inst& inst, const Access& access, Handler handler) {
  inst.op = Pack(access);
  return handler;
}

Handler FindSmem(Inst& inst) {
  std::string_view tail = inst.name;
  if (!Eat(tail, "S_BUFFER_") && !Eat(tail, "S_")) return nullptr;
  constexpr AccessName kScalar[] = {
      {"LOAD_DWORD", Load(4)},        {"LOAD_DWORDX2", Load(8)},     {"LOAD_DWORDX3", Load(12)},
      {"LOAD_DWORDX4", Load(16)},     {"LOAD_DWORDX8", Load(32)},    {"LOAD_DWORDX16", Load(64)},
      {"LOAD_UBYTE", Load(1)},        {"LOAD_SBYTE", Load(1, true)}, {"LOAD_USHORT", Load(2)},
      {"LOAD_SSHORT", Load(2, true)}, {"STORE_DWORD", Store(4)},     {"STORE_DWORDX2", Store(8)},
      {"STORE_DWORDX4", Store(16)},
  };
  if (const auto access = Find(kScalar, tail)) {
    return Bind(inst, *access, access->move == Move::kStore ? ScalarStore : ScalarLoad);
  }
  if (!tail.starts_with("ATOMIC_")) return nullptr;
  if (const auto access = VectorAccess(tail)) return Bind(inst, *access, ScalarAtomic);
  return nullptr;
}

// "READ2ST64_B32" and the like.
std::optional<Access> TwoAddress(std::string_view tail) {
  Access access;
  if (Eat(tail, "READ2")) {
    access.move = Move::kLoad;
  } else if (Eat(tail, "WRITE2")) {
    access.move = Move::kStore;
  } else if (Eat(tail, "WRXCHG2")) {
    access.move = Move::kAtomic;
    access.atomic = AtomicOp::kSwap;
  } else {
    return std::nullopt;
  }
  const bool far = Eat(tail, "ST64");
  Eat(tail, "_RTN");
  if (tail != "_B32" && tail != "_B64") return std::nullopt;
  access.bytes = tail == "_B32" ? 4 : 8;
  access.far = far;
  return access;
}

std::optional<Access> LdsAtomicAccess(std::string_view tail) {
  std::string name(tail);
  if (const size_t at = name.find("_RTN_"); at != std::string::npos) name.erase(at, 4);
  constexpr AccessName kTyped[] = {
      {"MIN_I32", Rmw(AtomicOp::kSMin, 4)},          {"MAX_I32", Rmw(AtomicOp::kSMax, 4)},
      {"MIN_U32", Rmw(AtomicOp::kUMin, 4)},          {"MAX_U32", Rmw(AtomicOp::kUMax, 4)},
      {"MIN_I64", Rmw(AtomicOp::kSMin, 8)},          {"MAX_I64", Rmw(AtomicOp::kSMax, 8)},
      {"MIN_U64", Rmw(AtomicOp::kUMin, 8)},          {"MAX_U64", Rmw(AtomicOp::kUMax, 8)},
      {"MIN_F32", Rmw(AtomicOp::kMinF32, 4)},        {"MAX_F32", Rmw(AtomicOp::kMaxF32, 4)},
      {"MIN_F64", Rmw(AtomicOp::kMinF64, 8)},        {"MAX_F64", Rmw(AtomicOp::kMaxF64, 8)},
      {"ADD_F32", Rmw(AtomicOp::kAddF32, 4)},        {"ADD_F64", Rmw(AtomicOp::kAddF64, 8)},
      {"CMPST_F32", Rmw(AtomicOp::kFCmpSwap, 4)},    {"CMPST_F64", Rmw(AtomicOp::kFCmpSwap, 8)},
      {"CMPSTORE_F32", Rmw(AtomicOp::kFCmpSwap, 4)}, {"CMPSTORE_F64", Rmw(AtomicOp::kFCmpSwap, 8)},
      {"PK_ADD_F16", Rmw(AtomicOp::kPkAddF16, 4)},   {"PK_ADD_BF16", Rmw(AtomicOp::kPkAddBf16, 4)},
  };
  if (const auto access = Find(kTyped, name)) return access;
  for (const AtomicName& row : kLdsAtomics) {
    std::string_view rest = name;
    if (row.op == AtomicOp::kNone || !Eat(rest, row.name)) continue;
    if (rest == "_U32" || rest == "_B32") return Rmw(row.op, 4);
    if (rest == "_U64" || rest == "_B64") return Rmw(row.op, 8);
  }
  return std::nullopt;
}

Handler FindLds(Inst& inst) {
  std::string_view tail = inst.name;
  if (!Eat(tail, "DS_") || inst.gds) return nullptr;
  struct Special {
    std::string_view name;
    Handler handler;
  };
  constexpr Special kSpecial[] = {
      {"BPERMUTE_B32", BPermute},         {"PERMUTE_B32", Permute},
      {"SWIZZLE_B32", Swizzle},           {"APPEND", AppendConsume<true>},
      {"CONSUME", AppendConsume<false>},  {"READ_ADDTID_B32", AddTid<false>},
      {"WRITE_ADDTID_B32", AddTid<true>}, {"NOP", NoOp},
  };
  for (const Special& special : kSpecial) {
    if (special.name == tail) return special.handler;
  }
  if (const auto access = Find(kLdsAccess, tail)) return Bind(inst, *access, Lds);
  if (const auto access = TwoAddress(tail)) return Bind(inst, *access, Lds2);
  if (const auto access = LdsAtomicAccess(tail)) return Bind(inst, *access, LdsAtomic);
  return nullptr;
}

// Cache controls have nothing to act on.
bool IsCacheControl(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "BUFFER_WBINVL1", "BUFFER_WBINVL1_VOL", "BUFFER_WBL2", "BUFFER_INVL2", "BUFFER_INV",
      "BUFFER_GL0_INV", "BUFFER_GL1_INV",     "GLOBAL_WB",   "GLOBAL_INV",   "GLOBAL_WBINV",
  };
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace

Handler FindMemoryHandler(Inst& inst, const Target&) {
  if (IsCacheControl(inst.name)) return NoOp;
  if (inst.name.starts_with("S_")) return FindSmem(inst);
  if (inst.name.starts_with("DS_")) return FindLds(inst);
  struct Space {
    std::string_view prefix;
    Handler handler;
  };
  constexpr Space kSpaces[] = {
      {"GLOBAL_", Global}, {"FLAT_", Flat}, {"SCRATCH_", Scratch}, {"BUFFER_", BufferOp}};
  for (const Space& space : kSpaces) {
    std::string_view tail = inst.name;
    if (!Eat(tail, space.prefix)) continue;
    if (inst.tfe) return nullptr;
    if (space.handler == Global && tail.starts_with("LOAD_LDS_")) {
      const auto access = VectorAccess("LOAD_" + std::string(tail.substr(9)));
      return access ? Bind(inst, *access, GlobalLoadLds) : nullptr;
    }
    if (inst.lds) return nullptr;
    const auto access = VectorAccess(tail);
    return access ? Bind(inst, *access, space.handler) : nullptr;
  }
  return nullptr;
}

}  // namespace softgpu
