// See the header.
#include "clients/opcodes/blob.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rjdbi::clients {
namespace {

constexpr size_t kMatchBytes = kMatchTableBytes / kOpcodeSlots;
constexpr size_t kDescriptorBytes = kDescriptorTableBytes / kOpcodeSlots;
constexpr size_t kBeyondOffset = 0x18;
// Section 3b: the opcodes of the sequencer, and that of status and idling.
constexpr uint32_t kFirstControl = 0xa0, kLastControl = 0xb2, kStatus = 0x9f;
constexpr uint32_t kMasks[] = {0, 0xff, 0x1ff};

constexpr OpcodeInvariant kInvariants[] = {
    {"blob-size", "a match table has 1024 bytes, a descriptor table 8192, both together 9216",
     "cut the table out again: 0x400 bytes, 0x2000 bytes, or the two one behind the other"},
    {"mask-domain", "a mask is 0, 0xff or 0x1ff",
     "use 0xff for an opcode of one byte, 0x1ff for one of nine bits, 0 for any opcode"},
    {"enable-domain", "enable is 0 or 1", "write 1 to arm the slot, 0 to leave it out"},
    {"reserved-zero", "the last word of a slot is 0", "write 0"},
    {"armed-contiguous", "armed slots are the first ones, without a hole",
     "move the slots behind the hole up, with their descriptors"},
    {"trailing-wildcard", "the last armed slot has opcode 0 and mask 0 and takes any opcode",
     "arm {opcode 0, mask 0} behind all others, so that no instruction is left uncounted"},
    {"single-wildcard", "no armed slot but the last has mask 0",
     "remove the slot or give it a mask: as it is, no slot behind it ever matches"},
    {"disarmed-zero", "opcode and mask of a slot that is not armed are 0",
     "arm the slot or clear it"},
    {"populated-contiguous", "records that are not zero are the first ones, without a hole",
     "move the records behind the hole up, with their slots"},
    {"sparse-descriptor", "the bytes of a record from 0x18 on are 0",
     "clear them; if they are meant, this is another table, or the records have another size"},
    {"populated-armed", "exactly the armed slots have records that are not zero",
     "give each armed slot a record, and no other; or check that both tables are of one engine"},
    {"control-class-only",
     "records of opcodes 0xa0 to 0xb2, of 0x9f and of the wildcard have a class word and nothing "
     "else",
     "clear the record up to 0x13; only the engine's own opcodes have cfg0, cfg1 and descr"},
};

constexpr OpcodeInvariant kRemarks[] = {
    {"shadowed-slot", "an earlier slot takes every opcode of a later one, which never counts",
     "move the later slot in front of the earlier one, if it is meant to count"},
    {"opcode-outside-mask", "an opcode has bits that its mask leaves out",
     "widen the mask, or leave the bits out"},
    {"no-class", "a record that is not zero has class word 0", "name the class, if it is not 0"},
};

uint32_t Word(absl::Span<const uint8_t> bytes, size_t at) {
  return uint32_t{bytes[at]} | uint32_t{bytes[at + 1]} << 8 | uint32_t{bytes[at + 2]} << 16 |
         uint32_t{bytes[at + 3]} << 24;
}

std::string Hash(absl::Span<const uint8_t> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

OpcodeMatch ReadMatch(absl::Span<const uint8_t> bytes) {
  return {Word(bytes, 0), Word(bytes, 4), Word(bytes, 8), Word(bytes, 12)};
}

OpcodeDescriptor ReadDescriptor(absl::Span<const uint8_t> bytes) {
  OpcodeDescriptor d;
  d.cfg0 = Word(bytes, 0);
  d.cfg1 = Word(bytes, 4);
  std::copy_n(bytes.begin() + 8, d.descr.size(), d.descr.begin());
  d.class_word = Word(bytes, 0x14);
  std::copy_n(bytes.begin() + kBeyondOffset, d.beyond.size(), d.beyond.begin());
  return d;
}

bool Populated(const OpcodeDescriptor& d) { return !(d == OpcodeDescriptor{}); }
bool Zero(const OpcodeMatch& m) { return m == OpcodeMatch{}; }

const char* Kind(const OpcodeMatch& m) {
  if (!m.armed()) return "";
  if (m.wildcard()) return "wildcard";
  if (m.opcode == kStatus) return "status";
  return m.opcode >= kFirstControl && m.opcode <= kLastControl ? "control" : "compute";
}

std::string Hex(uint32_t value) { return absl::StrFormat("0x%x", value); }

const OpcodeInvariant& Find(absl::Span<const OpcodeInvariant> all, absl::string_view name) {
  for (const OpcodeInvariant& invariant : all) {
    if (name == invariant.name) return invariant;
  }
  std::abort();  // tests name each
}

// Collects violations of one table.
class Findings {
 public:
  Findings(absl::Span<const OpcodeInvariant> known, const char* table, size_t stride)
      : known_(known), table_(table), stride_(stride) {}

  // `field`: bytes into the slot. No slot: the table as a whole.
  void Add(const char* name, std::optional<size_t> slot, size_t field, const std::string& observed,
           const std::string& message) {
    const OpcodeInvariant& invariant = Find(known_, name);
    v1::OpcodeViolation& found = found_.emplace_back();
    found.set_table(table_);
    const size_t offset = slot.value_or(0) * stride_ + field;
    std::string where = absl::StrCat(table_, " table");
    if (slot.has_value()) {
      found.set_slot(static_cast<uint32_t>(*slot));
      found.set_offset(static_cast<uint32_t>(offset));
      absl::StrAppend(&where, ", slot ", *slot, ", byte ", Hex(static_cast<uint32_t>(offset)));
    }
    v1::Violation& v = *found.mutable_violation();
    v.set_constraint_id(name);
    v.set_observed(observed);
    v.set_limit(invariant.states);
    v.set_message(absl::StrCat(where, ": ", message));
    v.set_next_step(invariant.next_step);
  }

  std::vector<v1::OpcodeViolation> Take() { return std::move(found_); }

 private:
  absl::Span<const OpcodeInvariant> known_;
  const char* table_;
  size_t stride_;
  std::vector<v1::OpcodeViolation> found_;
};

// The first slot that is used though one before it is not, and that one.
std::optional<std::pair<size_t, size_t>> Hole(const std::array<bool, kOpcodeSlots>& used) {
  const size_t hole =
      static_cast<size_t>(std::find(used.begin(), used.end(), false) - used.begin());
  for (size_t i = hole; i < kOpcodeSlots; ++i) {
    if (used[i]) return std::pair(hole, i);
  }
  return std::nullopt;
}

std::array<bool, kOpcodeSlots> ArmedSlots(const OpcodeBlob& blob) {
  std::array<bool, kOpcodeSlots> armed = {};
  for (size_t i = 0; blob.match.has_value() && i < kOpcodeSlots; ++i) {
    armed[i] = (*blob.match)[i].armed();
  }
  return armed;
}

std::array<bool, kOpcodeSlots> PopulatedSlots(const OpcodeBlob& blob) {
  std::array<bool, kOpcodeSlots> populated = {};
  for (size_t i = 0; blob.descriptors.has_value() && i < kOpcodeSlots; ++i) {
    populated[i] = Populated((*blob.descriptors)[i]);
  }
  return populated;
}

size_t HowMany(const std::array<bool, kOpcodeSlots>& used) {
  return static_cast<size_t>(std::count(used.begin(), used.end(), true));
}

void CheckSlot(const OpcodeMatch& m, size_t i, Findings& findings) {
  if (std::find(std::begin(kMasks), std::end(kMasks), m.mask) == std::end(kMasks)) {
    findings.Add("mask-domain", i, 4, Hex(m.mask), absl::StrCat("the mask is ", Hex(m.mask)));
  }
  if (m.enable > 1) {
    findings.Add("enable-domain", i, 8, Hex(m.enable), absl::StrCat("enable is ", Hex(m.enable)));
  }
  if (m.reserved != 0) {
    findings.Add("reserved-zero", i, 12, Hex(m.reserved),
                 absl::StrCat("the last word is ", Hex(m.reserved)));
  }
  if (m.enable == 0 && (m.opcode != 0 || m.mask != 0)) {
    findings.Add("disarmed-zero", i, 0,
                 absl::StrCat("opcode ", Hex(m.opcode), ", mask ", Hex(m.mask)),
                 "the slot is not armed and holds something");
  }
}

void CheckMatchTable(const OpcodeBlob& blob, Findings& findings) {
  const auto& slots = *blob.match;
  for (size_t i = 0; i < kOpcodeSlots; ++i) CheckSlot(slots[i], i, findings);
  const std::array<bool, kOpcodeSlots> armed = ArmedSlots(blob);
  if (const auto hole = Hole(armed)) {
    findings.Add("armed-contiguous", hole->second, 8,
                 absl::StrCat("slot ", hole->first, " is not armed, slot ", hole->second, " is"),
                 absl::StrCat("the slot is armed, slot ", hole->first, " before it is not"));
  }
  const size_t end =
      static_cast<size_t>(std::find(armed.rbegin(), armed.rend(), true).base() - armed.begin());
  if (end == 0) {
    findings.Add("trailing-wildcard", std::nullopt, 0, "no slot is armed", "no slot is armed");
    return;
  }
  const OpcodeMatch& last = slots[end - 1];
  if (!last.wildcard() || last.opcode != 0) {
    findings.Add("trailing-wildcard", end - 1, last.wildcard() ? 0 : 4,
                 absl::StrCat("opcode ", Hex(last.opcode), ", mask ", Hex(last.mask)),
                 "the last armed slot does not take every opcode as opcode 0, mask 0");
  }
  for (size_t i = 0; i + 1 < end; ++i) {
    if (!armed[i] || !slots[i].wildcard()) continue;
    findings.Add("single-wildcard", i, 4, absl::StrCat("mask 0, ", end - 1 - i, " slots behind it"),
                 "the slot takes any opcode, and is not the last");
  }
}

void CheckDescriptorTable(const OpcodeBlob& blob, Findings& findings) {
  const auto& records = *blob.descriptors;
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    const auto& beyond = records[i].beyond;
    const auto used = std::find_if(beyond.begin(), beyond.end(), [](uint8_t b) { return b != 0; });
    if (used == beyond.end()) continue;
    findings.Add("sparse-descriptor", i, kBeyondOffset + static_cast<size_t>(used - beyond.begin()),
                 Hex(*used), absl::StrCat("the byte is ", Hex(*used)));
  }
  if (const auto hole = Hole(PopulatedSlots(blob))) {
    findings.Add("populated-contiguous", hole->second, 0,
                 absl::StrCat("record ", hole->first, " is zero, record ", hole->second, " is not"),
                 absl::StrCat("the record is in use, record ", hole->first, " before it is not"));
  }
}

void CheckPair(const OpcodeBlob& blob, Findings& findings) {
  const auto armed = ArmedSlots(blob), populated = PopulatedSlots(blob);
  const auto differ = std::mismatch(armed.begin(), armed.end(), populated.begin());
  if (differ.first != armed.end()) {
    findings.Add("populated-armed", static_cast<size_t>(differ.first - armed.begin()), 0,
                 absl::StrCat(HowMany(armed), " armed, ", HowMany(populated), " populated"),
                 *differ.first ? "the record is zero, its slot is armed"
                               : "the record is in use, its slot is not armed");
  }
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    const OpcodeDescriptor& d = (*blob.descriptors)[i];
    const std::string kind = Kind((*blob.match)[i]);
    const bool more = d.cfg0 != 0 || d.cfg1 != 0 || d.descr != decltype(d.descr){};
    if (kind.empty() || kind == "compute" || !more) continue;
    findings.Add("control-class-only", i, 0,
                 absl::StrFormat("cfg0 0x%x, cfg1 0x%x", d.cfg0, d.cfg1),
                 absl::StrCat("the record of ", kind == "wildcard" ? "the " : "a ", kind,
                              kind == "wildcard" ? "" : " opcode", " holds more than its class"));
  }
}

// Every opcode that `later` takes, `earlier` takes.
bool Covers(const OpcodeMatch& earlier, const OpcodeMatch& later) {
  return (earlier.mask & ~later.mask) == 0 && earlier.Takes(later.opcode);
}

void RemarkOnMatchTable(const OpcodeBlob& blob, Findings& findings) {
  const auto& slots = *blob.match;
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    const OpcodeMatch& m = slots[i];
    if (!m.armed() || m.wildcard()) continue;
    for (size_t j = 0; j < i; ++j) {
      if (!slots[j].armed() || slots[j].wildcard() || !Covers(slots[j], m)) continue;
      findings.Add("shadowed-slot", i, 0,
                   absl::StrFormat("opcode 0x%x, mask 0x%x; slot %d: opcode 0x%x, mask 0x%x",
                                   m.opcode, m.mask, j, slots[j].opcode, slots[j].mask),
                   absl::StrCat("slot ", j, " takes every opcode of this one"));
      break;
    }
    if ((m.opcode & ~m.mask) != 0) {
      findings.Add("opcode-outside-mask", i, 0,
                   absl::StrCat("opcode ", Hex(m.opcode), ", mask ", Hex(m.mask)),
                   "the opcode has bits that the mask leaves out");
    }
  }
}

void Append(std::vector<v1::OpcodeViolation>& all, Findings& findings) {
  for (v1::OpcodeViolation& v : findings.Take()) all.push_back(std::move(v));
}

v1::OpcodeMatch ToProto(const OpcodeMatch& m) {
  v1::OpcodeMatch out;
  out.set_opcode(m.opcode);
  out.set_mask(m.mask);
  out.set_enable(m.enable);
  out.set_reserved(m.reserved);
  return out;
}

template <size_t kSize>
std::string HexBytes(const std::array<uint8_t, kSize>& bytes, size_t size) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), size));
}

v1::OpcodeDescriptor ToProto(const OpcodeDescriptor& d) {
  v1::OpcodeDescriptor out;
  out.set_cfg0(d.cfg0);
  out.set_cfg1(d.cfg1);
  out.set_descr(HexBytes(d.descr, d.descr.size()));
  out.set_class_word(d.class_word);
  const auto last =
      std::find_if(d.beyond.rbegin(), d.beyond.rend(), [](uint8_t byte) { return byte != 0; });
  out.set_beyond(HexBytes(d.beyond, static_cast<size_t>(d.beyond.rend() - last)));
  return out;
}

uint32_t NonzeroWords(const OpcodeDescriptor& d) {
  uint32_t words = (d.cfg0 != 0) + (d.cfg1 != 0) + (d.class_word != 0);
  const auto add = [&words](const auto& bytes) {
    for (size_t i = 0; i < bytes.size(); i += 4) words += Word(bytes, i) != 0;
  };
  add(d.descr);
  add(d.beyond);
  return words;
}

// What does not fit into a slot's description.
void Summarise(const OpcodeBlob& blob, v1::OpcodeBlob& out) {
  out.set_match_sha256(blob.match_sha256);
  out.set_descriptor_sha256(blob.descriptor_sha256);
  out.set_armed(static_cast<uint32_t>(HowMany(ArmedSlots(blob))));
  out.set_populated(static_cast<uint32_t>(HowMany(PopulatedSlots(blob))));
  for (size_t i = 0; blob.descriptors.has_value() && i < kOpcodeSlots; ++i) {
    out.set_nonzero_words(out.nonzero_words() + NonzeroWords((*blob.descriptors)[i]));
  }
}

// Opcode, mask, and which of those that are equal.
using MatchKey = std::tuple<uint32_t, uint32_t, size_t>;

// In the order of slots.
std::vector<std::pair<MatchKey, size_t>> ArmedKeys(const OpcodeBlob& blob) {
  std::map<std::pair<uint32_t, uint32_t>, size_t> seen;
  std::vector<std::pair<MatchKey, size_t>> keys;
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    // Without a match table every record is told by its place.
    if (!blob.match.has_value()) {
      keys.push_back({{0, 0, i}, i});
    } else if (const OpcodeMatch& m = (*blob.match)[i]; m.armed()) {
      keys.push_back({{m.opcode, m.mask, seen[{m.opcode, m.mask}]++}, i});
    }
  }
  return keys;
}

class Differ {
 public:
  Differ(const OpcodeBlob& a, const OpcodeBlob& b)
      : a_(a), b_(b), descriptors_(a.descriptors.has_value() && b.descriptors.has_value()) {}

  v1::OpcodeDiff Run() {
    Summarise(a_, *diff_.mutable_a());
    Summarise(b_, *diff_.mutable_b());
    diff_.set_match_differs(a_.match.has_value() && *a_.match != *b_.match);
    diff_.set_descriptors_differ(descriptors_ && *a_.descriptors != *b_.descriptors);
    const auto keys_a = ArmedKeys(a_), keys_b = ArmedKeys(b_);
    std::map<MatchKey, size_t> in_b(keys_b.begin(), keys_b.end());
    for (const auto& [key, slot] : keys_a) {
      const auto found = in_b.find(key);
      if (found == in_b.end()) {
        Change(key, slot, std::nullopt);
      } else {
        Compare(key, slot, found->second);
        in_b.erase(found);
      }
    }
    for (const auto& [key, slot] : keys_b) {
      if (in_b.count(key) != 0) Change(key, std::nullopt, slot);
    }
    const auto armed_a = ArmedSlots(a_), armed_b = ArmedSlots(b_);
    for (size_t i = 0; a_.match.has_value() && i < kOpcodeSlots; ++i) {
      if (!armed_a[i] && !armed_b[i]) CompareUnarmed(i);
    }
    return std::move(diff_);
  }

 private:
  v1::OpcodeChange& Change(const MatchKey& key, std::optional<size_t> a, std::optional<size_t> b) {
    v1::OpcodeChange& change = *diff_.add_changes();
    change.set_opcode(std::get<0>(key));
    change.set_mask(std::get<1>(key));
    if (a.has_value()) change.set_slot_a(static_cast<uint32_t>(*a));
    if (b.has_value()) change.set_slot_b(static_cast<uint32_t>(*b));
    return change;
  }

  void Compare(const MatchKey& key, size_t a, size_t b) {
    if (a_.match.has_value()) Others(a, (*a_.match)[a].reserved, (*b_.match)[b].reserved);
    const bool described = descriptors_ && !((*a_.descriptors)[a] == (*b_.descriptors)[b]);
    if (a == b && !described) return;
    v1::OpcodeChange& change = Change(key, a, b);
    if (!described) return;
    *change.mutable_a() = ToProto((*a_.descriptors)[a]);
    *change.mutable_b() = ToProto((*b_.descriptors)[b]);
  }

  void CompareUnarmed(size_t i) {
    const OpcodeMatch &a = (*a_.match)[i], &b = (*b_.match)[i];
    Others(i, a.opcode, b.opcode);
    Others(i, a.mask, b.mask);
    Others(i, a.enable, b.enable);
    Others(i, a.reserved, b.reserved);
    if (!descriptors_) return;
    const OpcodeDescriptor &c = (*a_.descriptors)[i], &d = (*b_.descriptors)[i];
    Others(i, c.cfg0, d.cfg0);
    Others(i, c.cfg1, d.cfg1);
    Others(i, c.class_word, d.class_word);
    for (size_t k = 0; k < c.descr.size(); ++k) Others(i, c.descr[k], d.descr[k]);
    for (size_t k = 0; k < c.beyond.size(); ++k) Others(i, c.beyond[k], d.beyond[k]);
  }

  void Others(size_t slot, uint32_t a, uint32_t b) {
    for (uint32_t differ = a ^ b; differ != 0; differ >>= 8) {
      if ((differ & 0xff) == 0) continue;
      diff_.set_other_bytes(diff_.other_bytes() + 1);
      if (!diff_.has_first_other_slot() || diff_.first_other_slot() > slot) {
        diff_.set_first_other_slot(static_cast<uint32_t>(slot));
      }
    }
  }

  const OpcodeBlob &a_, &b_;
  const bool descriptors_;
  v1::OpcodeDiff diff_;
};

}  // namespace

absl::StatusOr<OpcodeBlob> ReadOpcodeBlob(absl::Span<const uint8_t> bytes) {
  constexpr size_t kBoth = kMatchTableBytes + kDescriptorTableBytes;
  const bool match = bytes.size() == kMatchTableBytes || bytes.size() == kBoth;
  const bool descriptors = bytes.size() == kDescriptorTableBytes || bytes.size() == kBoth;
  if (!match && !descriptors) {
    return absl::InvalidArgumentError(WrongBlobSize(bytes.size()).violation().message());
  }
  OpcodeBlob blob;
  if (match) {
    blob.match_sha256 = Hash(bytes.first(kMatchTableBytes));
    auto& slots = blob.match.emplace();
    for (size_t i = 0; i < kOpcodeSlots; ++i) {
      slots[i] = ReadMatch(bytes.subspan(i * kMatchBytes, kMatchBytes));
    }
    bytes.remove_prefix(kMatchTableBytes);
  }
  if (descriptors) {
    blob.descriptor_sha256 = Hash(bytes);
    auto& records = blob.descriptors.emplace();
    for (size_t i = 0; i < kOpcodeSlots; ++i) {
      records[i] = ReadDescriptor(bytes.subspan(i * kDescriptorBytes, kDescriptorBytes));
    }
  }
  return blob;
}

absl::StatusOr<OpcodeBlob> JoinOpcodeBlobs(const OpcodeBlob& a, const OpcodeBlob& b) {
  if (a.match.has_value() && b.match.has_value()) {
    return absl::InvalidArgumentError("both files hold a match table; give one of each kind");
  }
  if (a.descriptors.has_value() && b.descriptors.has_value()) {
    return absl::InvalidArgumentError("both files hold a descriptor table; give one of each kind");
  }
  OpcodeBlob both = a;
  if (b.match.has_value()) {
    both.match = b.match;
    both.match_sha256 = b.match_sha256;
  }
  if (b.descriptors.has_value()) {
    both.descriptors = b.descriptors;
    both.descriptor_sha256 = b.descriptor_sha256;
  }
  return both;
}

absl::Span<const OpcodeInvariant> OpcodeInvariants() { return kInvariants; }
absl::Span<const OpcodeInvariant> OpcodeRemarks() { return kRemarks; }

v1::OpcodeViolation WrongBlobSize(size_t bytes) {
  Findings findings(kInvariants, "file", 0);
  findings.Add("blob-size", std::nullopt, 0, absl::StrCat(bytes, " bytes"), "");
  v1::OpcodeViolation found = findings.Take().front();
  found.mutable_violation()->set_message(
      absl::StrCat("no opcode table: it has ", bytes,
                   " bytes; a match table has 1024, a descriptor table 8192, both 9216"));
  return found;
}

std::vector<v1::OpcodeViolation> CheckOpcodeBlob(const OpcodeBlob& blob) {
  std::vector<v1::OpcodeViolation> all;
  Findings match(kInvariants, "match", kMatchBytes);
  Findings descriptors(kInvariants, "descriptor", kDescriptorBytes);
  if (blob.match.has_value()) CheckMatchTable(blob, match);
  if (blob.descriptors.has_value()) CheckDescriptorTable(blob, descriptors);
  if (blob.match.has_value() && blob.descriptors.has_value()) CheckPair(blob, descriptors);
  Append(all, match);
  Append(all, descriptors);
  return all;
}

std::vector<v1::OpcodeViolation> RemarkOnOpcodeBlob(const OpcodeBlob& blob) {
  std::vector<v1::OpcodeViolation> all;
  Findings match(kRemarks, "match", kMatchBytes);
  Findings descriptors(kRemarks, "descriptor", kDescriptorBytes);
  if (blob.match.has_value()) RemarkOnMatchTable(blob, match);
  for (size_t i = 0; blob.descriptors.has_value() && i < kOpcodeSlots; ++i) {
    const OpcodeDescriptor& d = (*blob.descriptors)[i];
    if (Populated(d) && d.class_word == 0) {
      descriptors.Add("no-class", i, 0x14, "0x0", "the record is in use and its class is 0");
    }
  }
  Append(all, match);
  Append(all, descriptors);
  return all;
}

v1::OpcodeBlob DescribeOpcodeBlob(const OpcodeBlob& blob) {
  v1::OpcodeBlob out;
  Summarise(blob, out);
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    const bool used = (blob.match.has_value() && !Zero((*blob.match)[i])) ||
                      (blob.descriptors.has_value() && Populated((*blob.descriptors)[i]));
    if (!used) continue;
    v1::OpcodeSlot& slot = *out.add_slots();
    slot.set_slot(static_cast<uint32_t>(i));
    if (blob.match.has_value()) {
      *slot.mutable_match() = ToProto((*blob.match)[i]);
      slot.set_kind(Kind((*blob.match)[i]));
    }
    if (blob.descriptors.has_value()) {
      *slot.mutable_record() = ToProto((*blob.descriptors)[i]);
    }
  }
  for (v1::OpcodeViolation& v : CheckOpcodeBlob(blob)) *out.add_violations() = std::move(v);
  for (v1::OpcodeViolation& v : RemarkOnOpcodeBlob(blob)) *out.add_remarks() = std::move(v);
  return out;
}

absl::StatusOr<v1::OpcodeDiff> DiffOpcodeBlobs(const OpcodeBlob& a, const OpcodeBlob& b) {
  const bool match = a.match.has_value() && b.match.has_value();
  const bool descriptors = a.descriptors.has_value() && b.descriptors.has_value();
  if (!match && !descriptors) {
    return absl::InvalidArgumentError(
        "one file is a match table, the other a descriptor table; give two of one kind");
  }
  if (match) return Differ(a, b).Run();
  OpcodeBlob of_a, of_b;  // what they have in common
  of_a.descriptors = a.descriptors;
  of_a.descriptor_sha256 = a.descriptor_sha256;
  of_b.descriptors = b.descriptors;
  of_b.descriptor_sha256 = b.descriptor_sha256;
  return Differ(of_a, of_b).Run();
}

}  // namespace rjdbi::clients
