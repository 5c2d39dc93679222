// See the header.
#include "clients/opcodes/table.h"

#include <yaml-cpp/exceptions.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "contract/manifest_yaml.h"
#include "patch/analysis/selector.h"

namespace rjdbi::clients {
namespace {

// More than that is not written by hand or by us: anchors make small files large.
constexpr size_t kMostFields = 100'000;
constexpr size_t kMostTextBytes = 256;

std::optional<uint32_t> ParseNumber(const std::string& text) {
  uint32_t value = 0;
  const bool hex = absl::StartsWith(text, "0x") || absl::StartsWith(text, "0X");
  const bool ok = hex ? absl::SimpleHexAtoi(text, &value) : absl::SimpleAtoi(text, &value);
  return ok ? std::optional(value) : std::nullopt;
}

bool MatchesAny(const google::protobuf::RepeatedPtrField<std::string>& globs,
                const std::string& text) {
  return std::any_of(globs.begin(), globs.end(),
                     [&text](const std::string& glob) { return patch::GlobMatch(glob, text); });
}

// "**" takes everything, too.
bool TakesEverything(const std::string& glob) {
  return !glob.empty() && glob.find_first_not_of('*') == std::string::npos;
}

std::string Hex(uint32_t value) { return absl::StrFormat("0x%x", value); }

}  // namespace

// Reads a table, and says of each fault where it is.
class TableReader {
 public:
  absl::Status ReadText(std::string_view yaml) {
    if (yaml.size() > kMostTableBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(yaml.size(), " bytes; an opcode table has at most ", kMostTableBytes));
    }
    for (const char* part : {"rows", "map"}) {
      if (yaml.find(part) != std::string_view::npos) return Parse(yaml);
    }
    return absl::InvalidArgumentError("no opcode table: it has neither rows nor a map");
  }

  absl::Status CheckMap(std::vector<uint32_t>* numbers) {
    if (static_cast<size_t>(table.map_size()) > kMostTableRows) return TooMany("map");
    for (int i = 0; i < table.map_size(); ++i) {
      const v1::OpcodeNumber& entry = table.map(i);
      const std::string at = absl::StrCat("map[", i, "]");
      const auto number = ParseNumber(entry.opcode());
      if (!number.has_value()) {
        return At(entry.opcode().empty() ? at : at + ".opcode",
                  absl::StrCat(at, ": opcode: expected a number of 32 bits (0x21, 33), found \"",
                               entry.opcode(), "\""));
      }
      numbers->push_back(*number);
      if (entry.match().empty()) {
        return At(at, absl::StrCat(at, ": match is missing: the mnemonics that take its place"));
      }
      if (absl::Status s = CheckGlobs(entry.match(), at); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status CheckRows(std::vector<OpcodeClasses::Row>* rows) {
    if (table.rows().empty()) return absl::InvalidArgumentError("no opcode table: it has no rows");
    if (static_cast<size_t>(table.rows_size()) > kMostTableRows) return TooMany("rows");
    int wildcard = -1, last_on = -1;
    for (int i = 0; i < table.rows_size(); ++i) {
      OpcodeClasses::Row row;
      if (absl::Status s = CheckRow(i, &row); !s.ok()) return s;
      rows->push_back(row);
      if (!row.on) continue;
      const std::string at = absl::StrCat("rows[", i, "]");
      if (wildcard >= 0) {
        return At(at, absl::StrCat(at, ": never reached: rows[", wildcard, "] takes everything"));
      }
      last_on = i;
      if (row.wildcard) wildcard = i;
    }
    if (wildcard < 0) {
      const std::string at = absl::StrCat("rows[", std::max(last_on, 0), "]");
      return At(at, absl::StrCat(at,
                                 ": the last row that is on has to take everything that is "
                                 "left: match: \"*\""));
    }
    return absl::OkStatus();
  }

  v1::OpcodeTable table;

 private:
  using Globs = google::protobuf::RepeatedPtrField<std::string>;

  absl::Status Parse(std::string_view yaml) {
    size_t fields = 0;
    const auto place = [&](const std::string& field, uint32_t line, uint32_t column) {
      if (++fields > kMostFields) {  // ReadYaml catches yaml-cpp's
        throw YAML::Exception(YAML::Mark::null_mark(), "too many fields; anchors add up");
      }
      places_[field] = absl::StrCat("line ", line, ", column ", column, ": ");
    };
    return contract::ReadYaml(yaml, place, &table);
  }

  absl::Status CheckRow(int i, OpcodeClasses::Row* row) {
    const v1::OpcodeRule& rule = table.rows(i);
    const std::string at = absl::StrCat("rows[", i, "]");
    row->on = !rule.has_enable() || rule.enable();
    if (rule.class_().empty()) return At(at, absl::StrCat(at, ": class is missing"));
    if (rule.class_().size() > kMostTextBytes) return TooLong(at + ".class");
    const bool numbers = !rule.opcode().empty() || !rule.mask().empty();
    if (numbers == !rule.match().empty()) {
      return At(at, absl::StrCat(at, ": give match, or opcode and mask"));
    }
    if (!numbers) {
      row->wildcard = std::any_of(rule.match().begin(), rule.match().end(), TakesEverything);
      return CheckGlobs(rule.match(), at);
    }
    const auto opcode = ParseNumber(rule.opcode()), mask = ParseNumber(rule.mask());
    if (!opcode.has_value() || !mask.has_value()) {
      const char* bad = opcode.has_value() ? "mask" : "opcode";
      const std::string& text = opcode.has_value() ? rule.mask() : rule.opcode();
      return At(text.empty() ? at : absl::StrCat(at, ".", bad),
                absl::StrCat(at, ": ", bad, ": expected a number of 32 bits (0x21, 33), found \"",
                             text, "\""));
    }
    row->number = OpcodeMatch{*opcode, *mask, row->on, 0};
    row->wildcard = *mask == 0;
    if (!row->wildcard && table.map().empty()) {
      return At(at, absl::StrCat(at, ": opcode and mask need a map, and the table has none"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGlobs(const Globs& globs, const std::string& at) {
    for (int i = 0; i < globs.size(); ++i) {
      const std::string name = absl::StrCat(at, ".match[", i, "]");
      if (globs[i].empty()) return At(name, absl::StrCat(name, ": an empty pattern"));
      if (globs[i].size() > kMostTextBytes) return TooLong(name);
    }
    return absl::OkStatus();
  }

  absl::Status TooLong(const std::string& name) const {
    return At(name, absl::StrCat(name, ": more than ", kMostTextBytes, " bytes"));
  }
  static absl::Status TooMany(const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": more than ", kMostTableRows));
  }

  absl::Status At(const std::string& name, const std::string& message) const {
    const auto found = places_.find(name);
    return absl::InvalidArgumentError(
        absl::StrCat(found == places_.end() ? "" : found->second, message));
  }

  std::map<std::string, std::string> places_;
};

absl::StatusOr<OpcodeClasses> OpcodeClasses::Make(const v1::OpcodeTable& table) {
  TableReader reader;
  reader.table = table;
  OpcodeClasses classes;
  if (absl::Status s = reader.CheckMap(&classes.numbers_); !s.ok()) return s;
  if (absl::Status s = reader.CheckRows(&classes.rows_); !s.ok()) return s;
  classes.table_ = table;
  return classes;
}

absl::StatusOr<OpcodeClasses> OpcodeClasses::Read(std::string_view yaml) {
  TableReader reader;
  OpcodeClasses classes;
  if (absl::Status s = reader.ReadText(yaml); !s.ok()) return s;
  if (absl::Status s = reader.CheckMap(&classes.numbers_); !s.ok()) return s;
  if (absl::Status s = reader.CheckRows(&classes.rows_); !s.ok()) return s;
  classes.table_ = std::move(reader.table);
  return classes;
}

std::optional<uint32_t> OpcodeClasses::NumberOf(const std::string& mnemonic) const {
  for (int i = 0; i < table_.map_size(); ++i) {
    if (MatchesAny(table_.map(i).match(), mnemonic)) return numbers_[static_cast<size_t>(i)];
  }
  return std::nullopt;
}

size_t OpcodeClasses::RowOf(const std::string& mnemonic) const {
  const std::optional<uint32_t> number = NumberOf(mnemonic);
  size_t last = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (!row.on) continue;
    last = i;
    if (row.wildcard) break;
    if (row.number.has_value()) {
      if (number.has_value() && row.number->Takes(*number)) break;
    } else if (MatchesAny(table_.rows(static_cast<int>(i)).match(), mnemonic)) {
      break;
    }
  }
  return last;  // at the latest the wildcard, which Make has seen
}

std::string OpcodeClasses::Pattern(size_t row) const {
  const v1::OpcodeRule& rule = table_.rows(static_cast<int>(row));
  if (!rule.match().empty()) return absl::StrJoin(rule.match(), ", ");
  return absl::StrCat(rule.opcode(), "/", rule.mask());
}

absl::StatusOr<v1::OpcodeTable> ReadOpcodeMap(std::string_view yaml) {
  TableReader reader;
  if (absl::Status s = reader.ReadText(yaml); !s.ok()) return s;
  std::vector<uint32_t> numbers;
  if (absl::Status s = reader.CheckMap(&numbers); !s.ok()) return s;
  if (reader.table.map().empty()) {
    return absl::InvalidArgumentError("no opcode map: it has no map");
  }
  if (!reader.table.rows().empty()) {
    return absl::InvalidArgumentError("rows: a map has none; this is a table");
  }
  return std::move(reader.table);
}

absl::StatusOr<v1::OpcodeTable> ArmOpcodeTable(const OpcodeBlob& blob, const v1::OpcodeTable& map,
                                               std::vector<std::string>* remarks) {
  if (!blob.match.has_value()) {
    return absl::InvalidArgumentError("no match table: descriptors alone do not say what counts");
  }
  const std::vector<v1::OpcodeViolation> violations = CheckOpcodeBlob(blob);
  if (!violations.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("not sound (", violations.front().violation().constraint_id(),
                     "): ", violations.front().violation().message()));
  }
  v1::OpcodeTable table;
  *table.mutable_map() = map.map();
  std::vector<uint32_t> numbers;
  for (const v1::OpcodeNumber& entry : map.map()) {
    numbers.push_back(ParseNumber(entry.opcode()).value_or(0));
  }
  std::set<uint32_t> taken;
  for (size_t i = 0; i < kOpcodeSlots && (*blob.match)[i].armed(); ++i) {
    const OpcodeMatch& m = (*blob.match)[i];
    v1::OpcodeRule& rule = *table.add_rows();
    rule.set_opcode(Hex(m.opcode));
    rule.set_mask(Hex(m.mask));
    rule.set_class_(blob.descriptors.has_value()
                        ? absl::StrCat("class ", Hex((*blob.descriptors)[i].class_word))
                    : m.wildcard() ? "other"
                                   : absl::StrCat("opcode ", Hex(m.opcode)));
    if (m.wildcard()) continue;
    bool mapped = false, first = false;
    for (const uint32_t number : numbers) {
      if (!m.Takes(number)) continue;
      mapped = true;
      first = taken.insert(number).second || first;
    }
    if (!first) {
      remarks->push_back(
          absl::StrCat("slot ", i, ", opcode ", Hex(m.opcode),
                       mapped ? ": counts nothing, an earlier slot takes what is mapped to it"
                              : ": counts nothing, it is not in the map"));
    }
  }
  std::set<uint32_t> left;
  for (const uint32_t number : numbers) {
    if (taken.count(number) == 0 && left.insert(number).second) {
      remarks->push_back(
          absl::StrCat("map: opcode ", Hex(number), " is not armed: the wildcard counts it"));
    }
  }
  if (auto sound = OpcodeClasses::Make(table); !sound.ok()) return sound.status();
  return table;
}

}  // namespace rjdbi::clients
