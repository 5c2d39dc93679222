#include "contract/record_format.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kOwnBegin = 16, kLanesBegin = 32;  // bytes into a record

uint32_t Word(absl::Span<const uint8_t> bytes, size_t at) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

uint64_t DoubleWord(absl::Span<const uint8_t> bytes, size_t at) {
  return Word(bytes, at) | uint64_t{Word(bytes, at + 4)} << 32;
}

// The words that all lanes share.
struct Uniform {
  explicit Uniform(absl::Span<const uint8_t> bytes) {
    for (size_t i = 0; i < words.size(); ++i) words[i] = Word(bytes, kOwnBegin + 4 * i);
  }
  uint64_t pair() const { return words[0] | uint64_t{words[1]} << 32; }
  std::array<uint32_t, 4> words;
};

// A buffer resource, as far as its words 0, 1 and 3 say. GFX9 to GFX12 agree on these
// fields ("Buffer Resource Descriptor" in the ISA manuals: Vega 8.1.5, RDNA2 8.1.8).
struct Buffer {
  explicit Buffer(const Uniform& u)
      : base(u.words[0] | uint64_t{u.words[1] & 0xffffu} << 32),
        stride(u.words[1] >> 16 & 0x3fff),
        swizzled(u.words[1] >> 30 != 0),
        adds_lane((u.words[3] >> 23 & 1) != 0) {}
  uint64_t base;
  uint32_t stride;
  bool swizzled, adds_lane;
};

uint64_t LaneAddress(const v1::RecordLayout& layout, const Uniform& uniform, uint64_t own) {
  const auto offset = static_cast<uint64_t>(layout.offset());
  const auto low = static_cast<uint32_t>(own);
  switch (layout.address_form()) {
    case v1::ADDRESS_FLAT:
      return own + offset;
    case v1::ADDRESS_GLOBAL_SADDR:
      return uniform.pair() + low + offset;
    case v1::ADDRESS_LDS:
      return static_cast<uint32_t>(low + offset);
    case v1::ADDRESS_SCRATCH:
      return uint64_t{uniform.words[0]} + low + offset;
    case v1::ADDRESS_BUFFER: {
      const Buffer buffer(uniform);
      const uint32_t index = layout.buffer_index() ? low : 0;
      const uint32_t by_lane = !layout.buffer_offset() ? 0
                               : layout.buffer_index() ? static_cast<uint32_t>(own >> 32)
                                                       : low;
      return buffer.base + uniform.words[2] + uint64_t{index} * buffer.stride + by_lane + offset;
    }
    default:
      return 0;
  }
}

std::string WhyNoAddresses(const v1::RecordLayout& layout, const Uniform& uniform) {
  if (layout.address_form() != v1::ADDRESS_BUFFER) return "";
  const Buffer buffer(uniform);
  if (buffer.swizzled) return "the buffer is swizzled";
  if (buffer.adds_lane) return "the buffer adds the lane's number";
  return "";
}

std::vector<Record::Lane> Lanes(const v1::RecordLayout& layout, absl::Span<const uint8_t> bytes,
                                uint64_t exec) {
  std::vector<Record::Lane> lanes;
  for (uint32_t lane = 0; lane < layout.wavefront_size(); ++lane) {
    if ((exec >> lane & 1) == 0) continue;
    const size_t at = kLanesBegin + size_t{lane} * layout.lane_bytes();
    const uint64_t value = layout.lane_bytes() == 8   ? DoubleWord(bytes, at)
                           : layout.lane_bytes() == 4 ? Word(bytes, at)
                                                      : 0;
    lanes.push_back({lane, value, std::nullopt});
  }
  return lanes;
}

void DecodeAddresses(const v1::RecordLayout& layout, absl::Span<const uint8_t> bytes,
                     Record& record) {
  const Uniform uniform(bytes);
  if (layout.address_form() == v1::ADDRESS_SCALAR) {
    record.scalar = uniform.pair() + uniform.words[2] + static_cast<uint64_t>(layout.offset());
    return;
  }
  record.no_addresses = WhyNoAddresses(layout, uniform);
  if (!record.no_addresses.empty()) return;
  record.lanes = Lanes(layout, bytes, record.exec);
  for (Record::Lane& lane : record.lanes) {
    const uint64_t own = lane.value;
    lane.value = LaneAddress(layout, uniform, own);
    if (layout.has_offset1()) {
      lane.second = static_cast<uint32_t>(own + static_cast<uint64_t>(layout.offset1()));
    }
  }
}

void DecodeValue(const v1::RecordLayout& layout, absl::Span<const uint8_t> bytes, Record& record) {
  if (layout.lane_bytes() != 0) {
    record.lanes = Lanes(layout, bytes, record.exec);
    return;
  }
  record.scalar = DoubleWord(bytes, kOwnBegin);
  record.wave = Word(bytes, kOwnBegin + 8);
}

absl::Status Check(const v1::RecordLayout& layout, absl::Span<const uint8_t> bytes) {
  const auto wrong = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (bytes.size() < kLanesBegin) return wrong("a record has at least 32 bytes");
  const uint32_t descriptor = Word(bytes, 12);
  if (RJDBI_RECORD_BYTES(descriptor) != bytes.size() || layout.bytes() != bytes.size()) {
    return wrong("the record's size is not its layout's");
  }
  if (RJDBI_RECORD_KIND(descriptor) != layout.kind()) return wrong("another kind of record");
  if (layout.lane_bytes() != 0 && layout.lane_bytes() != 4 && layout.lane_bytes() != 8) {
    return wrong("lanes have 4 or 8 bytes");
  }
  if (layout.wavefront_size() > 64 ||
      kLanesBegin + uint64_t{layout.lane_bytes()} * layout.wavefront_size() > bytes.size()) {
    return wrong("the layout's lanes do not fit into the record");
  }
  return absl::OkStatus();
}

// Both addresses of each lane.
std::vector<uint64_t> Addresses(const Record& record) {
  std::vector<uint64_t> addresses;
  for (const Record::Lane& lane : record.lanes) {
    addresses.push_back(lane.value);
    if (lane.second.has_value()) addresses.push_back(*lane.second);
  }
  return addresses;
}

}  // namespace

uint32_t RecordBytes(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kOwnBegin) return 0;
  const uint32_t size = RJDBI_RECORD_BYTES(Word(bytes, 12));
  return size <= bytes.size() ? size : 0;
}

absl::StatusOr<Record> DecodeRecord(const v1::RecordLayout& layout,
                                    absl::Span<const uint8_t> bytes) {
  if (absl::Status s = Check(layout, bytes); !s.ok()) return s;
  Record record;
  record.exec = DoubleWord(bytes, 0);
  switch (layout.kind()) {
    case RJDBI_RECORD_EXEC:
      if (layout.workgroup_id_known()) {
        record.workgroup = {Word(bytes, 16), Word(bytes, 20), Word(bytes, 24)};
      }
      record.wave = Word(bytes, 28);
      break;
    case RJDBI_RECORD_ADDRESS:
      DecodeAddresses(layout, bytes, record);
      break;
    case RJDBI_RECORD_CLOCK:
      record.time = DoubleWord(bytes, kOwnBegin);
      record.wave = Word(bytes, kOwnBegin + 8);
      break;
    case RJDBI_RECORD_VALUE:
      DecodeValue(layout, bytes, record);
      break;
    default:
      break;
  }
  return record;
}

uint32_t ActiveLanes(const Record& record) {
  return static_cast<uint32_t>(__builtin_popcountll(record.exec));
}

uint32_t LinesTouched(const Record& record, uint32_t access_bytes, uint32_t line_bytes) {
  std::set<uint64_t> lines;
  const uint64_t last = std::max<uint32_t>(access_bytes, 1) - 1;
  for (const uint64_t address : Addresses(record)) {
    // An access at the very end of the address space wraps around.
    for (uint64_t line = address / line_bytes, n = (address % line_bytes + last) / line_bytes + 1;
         n > 0; --n, ++line) {
      lines.insert(line);
    }
  }
  return static_cast<uint32_t>(lines.size());
}

std::optional<int64_t> CommonStride(const Record& record) {
  std::optional<int64_t> stride;
  for (size_t i = 1; i < record.lanes.size(); ++i) {
    const Record::Lane& a = record.lanes[i - 1];
    const Record::Lane& b = record.lanes[i];
    const auto distance = static_cast<int64_t>(b.value - a.value);
    if (b.lane != a.lane + 1) return std::nullopt;
    if (stride.has_value() && *stride != distance) return std::nullopt;
    stride = distance;
  }
  return stride;
}

BankUse LdsBankUse(const Record& record, uint32_t access_bytes, uint32_t banks) {
  constexpr uint32_t kGroup = 32;
  BankUse use;
  if (banks == 0) return use;
  std::map<uint32_t, std::set<uint64_t>> groups;  // words
  for (const Record::Lane& lane : record.lanes) {
    std::set<uint64_t>& words = groups[lane.lane / kGroup];
    const auto add = [&](uint64_t address) {
      const uint64_t last = std::max<uint32_t>(access_bytes, 1) - 1;
      for (uint64_t word = address / 4; word <= (address + last) / 4; ++word) words.insert(word);
    };
    add(lane.value);
    if (lane.second.has_value()) add(*lane.second);
  }
  for (const auto& [group, words] : groups) {
    std::vector<uint32_t> load(banks);
    for (const uint64_t word : words) ++load[word % banks];
    use.cycles += *std::max_element(load.begin(), load.end());
    use.least += static_cast<uint32_t>((words.size() + banks - 1) / banks);
  }
  return use;
}

uint32_t LdsBanks(const std::string& isa) {
  struct Row {
    absl::string_view family;
    uint32_t banks;
  };
  static constexpr Row kRows[] = {
      {"gfx950", 64},  // CDNA4 whitepaper: 160 KB, twice the read bandwidth of CDNA3
      {"gfx9", 32},    // Vega ISA 10.1 and CDNA2 ISA 11.1: 32 banks of 512 words
      // RDNA ISAs, "Data Share", 12.1: 64 banks in two sets of 32; a wavefront's access
      // goes to the set of its half of the workgroup processor, or over both by turns.
      {"gfx10", 32},
      {"gfx11", 32},
      {"gfx12", 32},
  };
  const size_t at = isa.rfind("gfx");
  if (at == std::string::npos) return 0;
  const std::string processor = isa.substr(at);
  for (const Row& row : kRows) {
    if (absl::StartsWith(processor, row.family)) return row.banks;
  }
  return 0;
}

}  // namespace rjdbi::contract
