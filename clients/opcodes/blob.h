// Reader of the two tables with which a hardware decode profiler is told what to count:
// what they hold, whether they are sound, and how two of them differ.
//
// The format, from a published description of the tables as static analysis found them
// in a driver library ("PROF_CAM / PROF_TABLE Blob Formats", sections 3, 4, 7 and 9); none
// of it is confirmed by a manual. All words are little-endian.
//
//   match table, 0x400 bytes: 64 slots of 16        descriptor table, 0x2000: 64 of 128
//   +0x0  u32 opcode                                +0x00  u32 cfg0   packed, meaning unknown
//   +0x4  u32 mask    0xff, 0x1ff; 0: any opcode    +0x04  u32 cfg1   packed, meaning unknown
//   +0x8  u32 enable  1: armed                      +0x08  u8[12]     packed, meaning unknown
//   +0xc  u32 0                                     +0x14  u32 class of the counter
//                                                   +0x18  u8[104] 0
//
// Slot i of the one belongs to record i of the other. For each instruction the armed slots
// are tried in order, and the first with (opcode & mask) == (slot.opcode & slot.mask) counts
// it in the counter of its record's class. Armed slots come first, without holes; the last
// of them takes any opcode, so that nothing is left out.
#ifndef CLIENTS_OPCODES_BLOB_H_
#define CLIENTS_OPCODES_BLOB_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rjdbi/v1/opcodes.pb.h"

namespace rjdbi::clients {

inline constexpr size_t kOpcodeSlots = 64;
inline constexpr size_t kMatchTableBytes = 0x400;
inline constexpr size_t kDescriptorTableBytes = 0x2000;

struct OpcodeMatch {
  uint32_t opcode = 0, mask = 0, enable = 0, reserved = 0;

  bool armed() const { return enable == 1; }
  bool wildcard() const { return mask == 0; }
  bool Takes(uint32_t decoded) const { return (decoded & mask) == (opcode & mask); }
  bool operator==(const OpcodeMatch&) const = default;
};

struct OpcodeDescriptor {
  uint32_t cfg0 = 0, cfg1 = 0;
  std::array<uint8_t, 12> descr = {};
  uint32_t class_word = 0;
  std::array<uint8_t, 104> beyond = {};

  bool operator==(const OpcodeDescriptor&) const = default;
};

// One of the tables, or both.
struct OpcodeBlob {
  std::optional<std::array<OpcodeMatch, kOpcodeSlots>> match;
  std::optional<std::array<OpcodeDescriptor, kOpcodeSlots>> descriptors;
  std::string match_sha256, descriptor_sha256;  // hex
};

// Which table it is follows from the size; a match table with its descriptor table right
// behind it (0x2400 bytes), as they lie in the library, is both. Judges no content.
// INVALID_ARGUMENT: the size is none of these.
absl::StatusOr<OpcodeBlob> ReadOpcodeBlob(absl::Span<const uint8_t> bytes);
// INVALID_ARGUMENT: both have the same table.
absl::StatusOr<OpcodeBlob> JoinOpcodeBlobs(const OpcodeBlob& a, const OpcodeBlob& b);

struct OpcodeInvariant {
  const char* name;       // stable
  const char* states;     // what has to hold
  const char* next_step;  // when it does not
};
// All of them, and what is no invariant and remarked on all the same; docs/opcode-tables.md
// lists both.
absl::Span<const OpcodeInvariant> OpcodeInvariants();
absl::Span<const OpcodeInvariant> OpcodeRemarks();

// The invariants that do not hold, in the order of slots.
std::vector<v1::OpcodeViolation> CheckOpcodeBlob(const OpcodeBlob& blob);
// "blob-size", for bytes that ReadOpcodeBlob refused.
v1::OpcodeViolation WrongBlobSize(size_t bytes);
std::vector<v1::OpcodeViolation> RemarkOnOpcodeBlob(const OpcodeBlob& blob);

// Everything in it, violations and remarks included.
v1::OpcodeBlob DescribeOpcodeBlob(const OpcodeBlob& blob);

// Armed slots are compared by opcode and mask, descriptors by what they describe; what
// differs in slots that are not armed is only counted.
// INVALID_ARGUMENT: they have no table in common.
absl::StatusOr<v1::OpcodeDiff> DiffOpcodeBlobs(const OpcodeBlob& a, const OpcodeBlob& b);

}  // namespace rjdbi::clients

#endif  // CLIENTS_OPCODES_BLOB_H_
