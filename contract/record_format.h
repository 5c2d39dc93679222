// What a trace record says: the arithmetic between the bytes that a wavefront wrote
// (proto/rjdbi/telemetry_ring.h), the layout of its site, and what people want to know.
#ifndef CONTRACT_RECORD_FORMAT_H_
#define CONTRACT_RECORD_FORMAT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

struct Record {
  uint64_t exec = 0;  // the application's; wave32: high half 0
  // ADDRESS and VALUE records of a register by lane: one entry for each lane in EXEC.
  struct Lane {
    uint32_t lane = 0;
    uint64_t value = 0;              // the register, or the address
    std::optional<uint64_t> second;  // the second address of an access with two
  };
  std::vector<Lane> lanes;
  std::optional<std::array<uint32_t, 3>> workgroup;
  std::optional<uint32_t> wave;    // EXEC, CLOCK, VALUE of a scalar: see below
  std::optional<uint64_t> time;    // CLOCK
  std::optional<uint64_t> scalar;  // VALUE of a scalar register; the address of a scalar load
  // Why `lanes` is empty although the record is of addresses; "": it is not.
  std::string no_addresses;
};

// INVALID_ARGUMENT when the bytes are not a record of that layout.
//
// `wave` is the hardware's id of the wavefront, as the probe read it: where it ran, not
// which it is. Two wavefronts have the same one only if they do not run at the same time.
absl::StatusOr<Record> DecodeRecord(const v1::RecordLayout& layout,
                                    absl::Span<const uint8_t> bytes);

// Bytes of the record that begins here, by its own descriptor; 0: none does.
uint32_t RecordBytes(absl::Span<const uint8_t> bytes);

uint32_t ActiveLanes(const Record& record);

// How many different lines of so many bytes (a power of two) an access touches.
uint32_t LinesTouched(const Record& record, uint32_t access_bytes, uint32_t line_bytes);

// The difference between neighbouring active lanes' addresses, if it is everywhere the
// same. nullopt: fewer than two lanes, or it differs.
std::optional<int64_t> CommonStride(const Record& record);

// LDS banks: each serves one 32-bit word in a cycle.
struct BankUse {
  uint32_t cycles = 0;  // that the access takes, by this model
  uint32_t least = 0;   // if its words were spread evenly
};
// For groups of 32 lanes, one after the other; lanes that access the same word share it.
BankUse LdsBankUse(const Record& record, uint32_t access_bytes, uint32_t banks);
// Of the generation that `isa` names ("amdgcn-amd-amdhsa--gfx90a:xnack-"); 0: not known.
uint32_t LdsBanks(const std::string& isa);

}  // namespace rjdbi::contract

#endif  // CONTRACT_RECORD_FORMAT_H_
