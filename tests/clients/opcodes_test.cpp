// Opcode tables: blobs of hardware decode profilers, and our own.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/opcodes/blob.h"
#include "clients/opcodes/profile.h"
#include "clients/opcodes/table.h"
#include "contract/manifest_yaml.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "patch/analysis/selector.h"
#include "tests/clients/opcode_blobs.h"

namespace rjdbi::clients {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using tests::ArmedOpcode;
using tests::Engine;
using tests::EngineTables;
using tests::ListedEngines;
using tests::PutWord;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

OpcodeBlob Read(const std::string& bytes) {
  const auto blob = ReadOpcodeBlob(Bytes(bytes));
  EXPECT_TRUE(blob.ok()) << blob.status();
  return blob.value_or(OpcodeBlob{});
}

OpcodeBlob Both(const EngineTables& engine) { return Read(engine.match + engine.descriptors); }

std::vector<std::string> Names(const std::vector<v1::OpcodeViolation>& violations) {
  std::vector<std::string> names;
  for (const auto& v : violations) names.push_back(v.violation().constraint_id());
  return names;
}

// ---- The listed sets ----

TEST(OpcodeBlobs, EveryListedSetIsReadAsListed) {
  EXPECT_EQ(ListedEngines().size(), 13u);  // of 15: two are not listed
  for (const EngineTables& engine : ListedEngines()) {
    SCOPED_TRACE(engine.engine);
    const OpcodeBlob blob = Both(engine);
    EXPECT_THAT(Names(CheckOpcodeBlob(blob)), IsEmpty());
    const v1::OpcodeBlob described = DescribeOpcodeBlob(blob);
    EXPECT_EQ(described.armed(), engine.stated);
    EXPECT_EQ(described.populated(), engine.stated);
    ASSERT_EQ(described.slots_size(), static_cast<int>(engine.stated));
    std::vector<ArmedOpcode> armed;
    for (const v1::OpcodeSlot& slot : described.slots()) {
      armed.push_back({slot.match().opcode(), slot.match().mask()});
      EXPECT_EQ(slot.match().enable(), 1u);
      EXPECT_NE(slot.record().class_word(), 0u);
    }
    EXPECT_EQ(armed, engine.armed);
    const v1::OpcodeSlot& last = *described.slots().rbegin();
    EXPECT_EQ(last.kind(), "wildcard");
    // Each table alone is sound, too.
    EXPECT_THAT(Names(CheckOpcodeBlob(Read(engine.match))), IsEmpty());
    EXPECT_THAT(Names(CheckOpcodeBlob(Read(engine.descriptors))), IsEmpty());
    const auto joined = JoinOpcodeBlobs(Read(engine.descriptors), Read(engine.match));
    ASSERT_TRUE(joined.ok());
    EXPECT_EQ(DescribeOpcodeBlob(*joined).SerializeAsString(), described.SerializeAsString());
  }
}

TEST(OpcodeBlobs, TheQuotedBytesAreWhereTheyAreQuoted) {
  const std::string& dve = Engine("mariana dve").match;
  const auto raw = [&dve](size_t at) { return dve.substr(at, 16); };
  EXPECT_EQ(raw(0x2b0), std::string("\xe3\x01\0\0\xff\x01\0\0\x01\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(raw(0x2d0), std::string("\x30\0\0\0\xff\0\0\0\x01\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(raw(0x290), std::string("\xe2\0\0\0\xff\0\0\0\x01\0\0\0\0\0\0\0", 16));
  const OpcodeBlob blob = Both(Engine("mariana dve"));
  EXPECT_EQ((*blob.match)[43], (OpcodeMatch{0x1e3, 0x1ff, 1, 0}));
  EXPECT_EQ((*blob.descriptors)[45].cfg1, 0x10u);
  EXPECT_EQ((*blob.descriptors)[45].descr[0x12 - 8], 1);
  EXPECT_EQ((*blob.descriptors)[45].class_word, 0x19u);

  const OpcodeBlob cayman = Both(Engine("cayman act"));
  EXPECT_EQ((*cayman.descriptors)[0].cfg0, 0x00000201u);
  EXPECT_EQ((*cayman.descriptors)[0].cfg1, 0x26000010u);
  EXPECT_EQ((*cayman.descriptors)[0].class_word, 0x1000u);
  EXPECT_EQ((*cayman.descriptors)[2].cfg0, 0x02000205u);
  EXPECT_EQ((*cayman.descriptors)[2].cfg1, 0x26300010u);
  EXPECT_EQ((*cayman.descriptors)[2].descr[9], 0x6f);
  const OpcodeBlob act = Both(Engine("mariana act"));
  EXPECT_EQ((*act.descriptors)[0].cfg0, 0u);
  EXPECT_EQ((*act.descriptors)[0].class_word, 0x300u);
}

TEST(OpcodeBlobs, KindsAreThoseOfTheBands) {
  std::map<std::string, size_t> kinds;
  const v1::OpcodeBlob described = DescribeOpcodeBlob(Read(Engine("mariana pe").match));
  for (const auto& slot : described.slots()) ++kinds[slot.kind()];
  EXPECT_EQ(kinds, (std::map<std::string, size_t>{
                       {"compute", 8}, {"control", 12}, {"status", 1}, {"wildcard", 1}}));
}

// ---- Differences ----

TEST(OpcodeDiffs, TheReArmedEngine) {
  const auto diff = DiffOpcodeBlobs(Both(Engine("cayman act")), Both(Engine("mariana act")));
  ASSERT_TRUE(diff.ok()) << diff.status();
  std::set<uint32_t> added, removed, described;
  for (const v1::OpcodeChange& change : diff->changes()) {
    if (!change.has_slot_a()) added.insert(change.opcode());
    if (!change.has_slot_b()) removed.insert(change.opcode());
    if (change.has_a() && change.has_b()) described.insert(change.opcode());
  }
  EXPECT_THAT(added, ElementsAre(0x25, 0x77, 0x78, 0x9f));
  EXPECT_EQ(removed.size(), 47u - 21u);
  EXPECT_EQ(described.size(), 21u) << "every class is another";
  EXPECT_EQ(diff->a().armed(), 47u);
  EXPECT_EQ(diff->b().armed(), 25u);
  EXPECT_EQ(diff->a().nonzero_words(), 150u);
  EXPECT_EQ(diff->b().nonzero_words(), 68u);
  EXPECT_EQ(diff->other_bytes(), 0u);
  EXPECT_TRUE(diff->match_differs());
  EXPECT_TRUE(diff->descriptors_differ());
}

TEST(OpcodeDiffs, WhatIsFrozenIsTheSame) {
  const std::pair<const char*, const char*> same[] = {
      {"cayman act", "cayman dve"},          {"cayman act", "cayman pool"},
      {"cayman act", "cayman pe"},           {"mariana act", "mariana plus act"},
      {"mariana dve", "mariana plus dve"},   {"mariana pe", "mariana plus pe"},
      {"mariana pool", "mariana plus pool"}, {"mariana pool", "maverick pool"}};
  for (const auto& [a, b] : same) {
    const auto diff = DiffOpcodeBlobs(Both(Engine(a)), Both(Engine(b)));
    ASSERT_TRUE(diff.ok());
    EXPECT_FALSE(diff->match_differs() || diff->descriptors_differ()) << a;
    EXPECT_EQ(diff->changes_size(), 0) << a;
    EXPECT_EQ(diff->a().match_sha256(), diff->b().match_sha256());
  }
}

TEST(OpcodeDiffs, MovedDescribedAndOtherBytes) {
  const EngineTables& pe = Engine("mariana pe");
  std::string match = pe.match, descriptors = pe.descriptors;
  for (size_t i = 0; i < 16; ++i) std::swap(match[i], match[16 + i]);  // slots 0 and 1
  PutWord(descriptors, 5 * 128 + 0x14, 0x77);
  PutWord(match, 40 * 16, 0x0100ff);  // not armed
  const auto diff = DiffOpcodeBlobs(Both(pe), Read(match + descriptors));
  ASSERT_TRUE(diff.ok());
  ASSERT_EQ(diff->changes_size(), 3);
  EXPECT_EQ(diff->changes(0).opcode(), 0xa0u);
  EXPECT_EQ(diff->changes(0).slot_b(), 1u);
  EXPECT_EQ(diff->changes(2).b().class_word(), 0x77u);
  EXPECT_EQ(diff->other_bytes(), 2u);
  EXPECT_EQ(diff->first_other_slot(), 40u);
}

TEST(OpcodeDiffs, OnlyTablesOfOneKind) {
  const EngineTables& pe = Engine("mariana pe");
  EXPECT_FALSE(DiffOpcodeBlobs(Read(pe.match), Read(pe.descriptors)).ok());
  EXPECT_FALSE(JoinOpcodeBlobs(Read(pe.match), Read(pe.match)).ok());
  EXPECT_FALSE(JoinOpcodeBlobs(Read(pe.descriptors), Read(pe.descriptors)).ok());
  // One has both: what they have in common is compared.
  std::string other = pe.descriptors;
  PutWord(other, 0x14, 9);
  const auto diff = DiffOpcodeBlobs(Both(pe), Read(other));
  ASSERT_TRUE(diff.ok());
  EXPECT_FALSE(diff->match_differs());
  ASSERT_EQ(diff->changes_size(), 1);
  EXPECT_EQ(diff->changes(0).slot_a(), 0u);
  EXPECT_EQ(diff->changes(0).b().class_word(), 9u);
}

// ---- Invariants ----

struct Broken {
  const char* name;
  std::function<void(std::string& match, std::string& descriptors)> edit;
  const char* table;
  int slot;  // -1: the table as a whole
  int offset;
};

// On an engine of which 22 slots are armed.
const Broken kBroken[] = {
    {"mask-domain", [](auto& m, auto&) { PutWord(m, 15 * 16 + 4, 0x7f); }, "match", 15, 0xf4},
    {"enable-domain", [](auto& m, auto&) { PutWord(m, 30 * 16 + 8, 2); }, "match", 30, 0x1e8},
    {"reserved-zero", [](auto& m, auto&) { PutWord(m, 3 * 16 + 12, 1); }, "match", 3, 0x3c},
    {"reserved-zero", [](auto& m, auto&) { PutWord(m, 63 * 16 + 12, 1 << 30); }, "match", 63,
     0x3fc},
    {"armed-contiguous",
     [](auto& m, auto& d) {
       m.replace(22 * 16, 16, m.substr(21 * 16, 16));
       m.replace(21 * 16, 16, 16, '\0');
       d.replace(21 * 128, 256, d.substr(20 * 128, 256));  // two records in use: 21 and 22
       d.replace(21 * 128, 128, 128, '\0');
     },
     "match", 22, 0x168},
    {"trailing-wildcard", [](auto& m, auto&) { PutWord(m, 21 * 16 + 4, 0xff); }, "match", 21,
     0x154},
    {"trailing-wildcard", [](auto& m, auto&) { PutWord(m, 21 * 16, 1); }, "match", 21, 0x150},
    {"trailing-wildcard",
     [](auto& m, auto& d) {
       m.assign(m.size(), '\0');
       d.assign(d.size(), '\0');
     },
     "match", -1, -1},
    {"single-wildcard", [](auto& m, auto&) { PutWord(m, 20 * 16 + 4, 0); }, "match", 20, 0x144},
    {"disarmed-zero", [](auto& m, auto&) { PutWord(m, 40 * 16, 0x21); }, "match", 40, 0x280},
    {"populated-contiguous",
     [](auto&, auto& d) {
       d.replace(30 * 128, 128, d.substr(21 * 128, 128));
       d.replace(21 * 128, 128, 128, '\0');
     },
     "descriptor", 30, 30 * 128},
    {"sparse-descriptor", [](auto&, auto& d) { d[4 * 128 + 0x18] = 1; }, "descriptor", 4, 0x218},
    {"sparse-descriptor", [](auto&, auto& d) { d[4 * 128 + 0x7f] = 1; }, "descriptor", 4, 0x27f},
    {"populated-armed", [](auto&, auto& d) { PutWord(d, 22 * 128 + 0x14, 3); }, "descriptor", 22,
     22 * 128},
    {"populated-armed", [](auto&, auto& d) { PutWord(d, 21 * 128 + 0x14, 0); }, "descriptor", 21,
     21 * 128},
    {"control-class-only", [](auto&, auto& d) { PutWord(d, 0, 0x201); }, "descriptor", 0, 0},
    {"control-class-only", [](auto&, auto& d) { d[20 * 128 + 0x13] = 1; }, "descriptor", 20,
     20 * 128},
    {"control-class-only", [](auto&, auto& d) { PutWord(d, 21 * 128 + 4, 1); }, "descriptor", 21,
     21 * 128},
};

TEST(OpcodeInvariants, EachIsNamedWhereItIsBroken) {
  const EngineTables& pe = Engine("mariana pe");
  ASSERT_EQ(pe.armed.size(), 22u);
  std::set<std::string> broken = {"blob-size"};  // see below
  for (const Broken& b : kBroken) {
    SCOPED_TRACE(absl::StrCat(b.name, " at ", b.offset));
    std::string match = pe.match, descriptors = pe.descriptors;
    b.edit(match, descriptors);
    const std::vector<v1::OpcodeViolation> found = CheckOpcodeBlob(Read(match + descriptors));
    const auto named = std::find_if(found.begin(), found.end(), [&b](const auto& v) {
      return v.violation().constraint_id() == b.name;
    });
    ASSERT_NE(named, found.end()) << absl::StrJoin(Names(found), " ");
    EXPECT_EQ(named->table(), b.table);
    EXPECT_EQ(named->has_slot() ? static_cast<int>(named->slot()) : -1, b.slot);
    EXPECT_EQ(named->has_offset() ? static_cast<int>(named->offset()) : -1, b.offset);
    for (const std::string* text :
         {&named->violation().observed(), &named->violation().limit(),
          &named->violation().message(), &named->violation().next_step()}) {
      EXPECT_THAT(*text, Not(IsEmpty()));
    }
    // A hole in one table is one in the other, or ties them badly; all else is one fault.
    const std::string name = b.name;
    const bool tied = name == "populated-contiguous" || name == "armed-contiguous" ||
                      (name == "single-wildcard") || (name == "populated-armed");
    if (!tied) {
      EXPECT_EQ(found.size(), 1u) << absl::StrJoin(Names(found), " ");
    }
    broken.insert(name);
  }
  std::set<std::string> all;
  for (const OpcodeInvariant& invariant : OpcodeInvariants()) {
    EXPECT_TRUE(all.insert(invariant.name).second) << invariant.name;
  }
  EXPECT_EQ(broken, all);
}

TEST(OpcodeInvariants, SizesAreExact) {
  for (const size_t size : {0, 1, 16, 1023, 1025, 1040, 8191, 8193, 9215, 9217, 1 << 20}) {
    const auto blob = ReadOpcodeBlob(Bytes(std::string(size, '\1')));
    ASSERT_FALSE(blob.ok()) << size;
    EXPECT_TRUE(absl::IsInvalidArgument(blob.status()));
    EXPECT_THAT(std::string(blob.status().message()), HasSubstr(absl::StrCat(size, " bytes")));
    EXPECT_EQ(WrongBlobSize(size).violation().constraint_id(), "blob-size");
  }
}

TEST(OpcodeInvariants, TheHardwaresOwnOddityIsRemarkedOn) {
  const OpcodeBlob dve = Both(Engine("mariana dve"));
  // 0x1e3 is behind 0xe3 with a mask of eight bits, which takes it.
  const auto remarks = RemarkOnOpcodeBlob(dve);
  ASSERT_THAT(Names(remarks), ElementsAre("shadowed-slot"));
  EXPECT_EQ(remarks[0].slot(), 43u);
  EXPECT_THAT(remarks[0].violation().observed(), HasSubstr("slot 42"));
  // The other way round the second has opcodes left to take.
  std::string turned = Engine("mariana dve").match;
  for (size_t i = 0; i < 16; ++i) std::swap(turned[42 * 16 + i], turned[43 * 16 + i]);
  PutWord(turned, 42 * 16, 0xe3);
  EXPECT_THAT(RemarkOnOpcodeBlob(Read(turned)), IsEmpty());
  std::string match = Engine("mariana pe").match, descriptors = Engine("mariana pe").descriptors;
  PutWord(match, 15 * 16, 0x107);
  PutWord(descriptors, 15 * 128 + 0x14, 0);
  EXPECT_THAT(Names(RemarkOnOpcodeBlob(Read(match + descriptors))),
              ElementsAre("opcode-outside-mask", "no-class"));
}

TEST(OpcodeInvariants, AnyBytesAreJudged) {
  std::mt19937 random(5);
  std::set<std::string> known;
  for (const auto list : {OpcodeInvariants(), OpcodeRemarks()}) {
    for (const OpcodeInvariant& invariant : list) known.insert(invariant.name);
  }
  const std::string sound = Engine("mariana dve").match + Engine("mariana dve").descriptors;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = sound;
    if (round % 3 == 0) {
      for (char& c : bytes) c = static_cast<char>(random());
    } else {
      for (int edits = 0; edits < 4; ++edits) bytes[random() % bytes.size()] ^= 1 << (random() % 8);
    }
    const OpcodeBlob blob = Read(bytes);
    const v1::OpcodeBlob described = DescribeOpcodeBlob(blob);
    for (const auto& v : described.violations()) {
      EXPECT_EQ(known.count(v.violation().constraint_id()), 1u);
      if (v.has_offset()) {
        EXPECT_LT(v.offset(), v.table() == "match" ? kMatchTableBytes : kDescriptorTableBytes);
      }
    }
    // A difference is in the list of changes or among the other bytes, and nowhere else.
    const auto diff = DiffOpcodeBlobs(Read(sound), blob);
    ASSERT_TRUE(diff.ok());
    EXPECT_EQ(diff->match_differs() || diff->descriptors_differ(),
              diff->changes_size() > 0 || diff->other_bytes() > 0);
    EXPECT_EQ(diff->match_differs() || diff->descriptors_differ(), bytes != sound);
  }
}

TEST(OpcodeInvariants, TheDocumentListsThem) {
  std::ifstream file(RJDBI_SOURCE_DIR "/docs/opcode-tables.md");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::string> listed, known;
  for (const absl::string_view line : absl::StrSplit(text.str(), '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, '`');
    if (cells.size() >= 3 && cells[0] == "| ") listed.push_back(cells[1]);
  }
  for (const auto list : {OpcodeInvariants(), OpcodeRemarks()}) {
    for (const OpcodeInvariant& invariant : list) known.push_back(invariant.name);
  }
  EXPECT_EQ(listed, known);
}

// ---- Our own tables ----

constexpr char kMap[] = R"(map:
  - {opcode: 0x21, match: ["v_exp_*", "v_log_*"]}
  - {opcode: 33, match: v_rcp_*}
  - {opcode: 0x1e3, match: v_sin_*}
  - {opcode: 0xe3, match: v_cos_*}
  - {opcode: 0xa0, match: [s_branch, s_cbranch_*]}
  - {opcode: 0x66, match: v_*}
)";

OpcodeClasses Classes(const std::string& yaml) {
  auto classes = OpcodeClasses::Read(yaml);
  EXPECT_TRUE(classes.ok()) << classes.status();
  return *std::move(classes);
}

TEST(OpcodeTables, TheFirstMatchWins) {
  const OpcodeClasses classes = Classes(R"(
rows:
  - {match: s_load_*, class: memory}
  - {match: [s_*, ds_*], class: scalar, enable: false}
  - {match: s_nop, class: idle}
  - {match: s_*, class: scalar}
  - {match: "*", class: other}
  - {match: v_*, class: vector, enable: false}
)");
  const std::pair<const char*, size_t> rows[] = {{"s_load_dwordx2", 0}, {"s_nop", 2},
                                                 {"s_add_u32", 3},      {"ds_read_b32", 4},
                                                 {"v_nop", 4},          {"", 4}};
  for (const auto& [mnemonic, row] : rows) EXPECT_EQ(classes.RowOf(mnemonic), row) << mnemonic;
  EXPECT_EQ(classes.Pattern(1), "s_*, ds_*");
}

TEST(OpcodeTables, NumbersGoThroughTheMap) {
  const OpcodeClasses classes = Classes(absl::StrCat(kMap, R"(rows:
  - {opcode: 0x21, mask: 0xff, class: transcendental}
  - {opcode: 0xe3, mask: 0xff, class: cosine}
  - {opcode: 0x1e3, mask: 0x1ff, class: sine}
  - {match: v_mov_*, class: moves}
  - {opcode: 0, mask: 0, class: other}
)"));
  EXPECT_EQ(classes.RowOf("v_exp_f32_e32"), 0u);
  EXPECT_EQ(classes.RowOf("v_rcp_f32_e32"), 0u);
  EXPECT_EQ(classes.RowOf("v_cos_f32_e32"), 1u);
  EXPECT_EQ(classes.RowOf("v_sin_f32_e32"), 1u) << "eight bits of 0x1e3 are 0xe3";
  EXPECT_EQ(classes.RowOf("v_mov_b32_e32"), 3u);
  EXPECT_EQ(classes.RowOf("s_branch"), 4u) << "in the map, and in no row";
  EXPECT_EQ(classes.RowOf("ds_read_b32"), 4u) << "not in the map";
  EXPECT_EQ(classes.NumberOf("v_rcp_f32_e32"), 33u);
  EXPECT_EQ(classes.NumberOf("ds_read_b32"), std::nullopt);
  EXPECT_EQ(classes.Pattern(2), "0x1e3/0x1ff");
}

TEST(OpcodeTables, FaultsHaveTheirPlace) {
  const std::pair<std::string, const char*> bad[] = {
      {"", "neither rows nor a map"},
      {"colour: red", "neither rows nor a map"},
      {"map: []", "it has no rows"},
      {"rows: []", "it has no rows"},
      {"rows: [{match: a}]", "line 1, column 8: rows[0]: class is missing"},
      {"rows:\n  - {class: a}", "line 2, column 5: rows[0]: give match, or opcode and mask"},
      {"rows:\n  - {class: a, match: s_*, opcode: 1, mask: 1}", "give match, or opcode and mask"},
      {"rows:\n  - {class: a, match: s_*}", "rows[0]: the last row that is on has to take"},
      {"rows:\n  - {class: a, match: '*', enable: false}", "the last row that is on has to take"},
      {"rows:\n  - {class: a, match: '*'}\n  - {class: b, match: '*'}",
       "line 3, column 5: rows[1]: never reached: rows[0] takes everything"},
      {"rows:\n  - {class: a, match: [x, '*']}\n  - {class: b, opcode: 0, mask: 0}",
       "rows[1]: never"},
      {"rows:\n  - {class: a, opcode: 1, mask: 1}", "need a map"},
      {"rows:\n  - {class: a, opcode: 0x, mask: 1}", "opcode: expected a number of 32 bits"},
      {"rows:\n  - {class: a, opcode: 1}", "mask: expected a number of 32 bits"},
      {"rows:\n  - {class: a, opcode: 0x100000000, mask: 0}", "opcode: expected a number"},
      {"rows:\n  - {class: a, match: ['']}", "rows[0].match[0]: an empty pattern"},
      {"map: [{opcode: 1}]\nrows: []", "map[0]: match is missing"},
      {"map: [{match: a}]\nrows: []", "map[0]: opcode: expected a number"},
      {"rows:\n  - {class: a, match: '*', colour: red}", "unknown field \"colour\""},
      {"rows:\n  - {class: a, match: '*', enable: 2}", "expected true or false"},
      {"rows: [", "line 1, column"},
      {"rows: 7", "rows[0]: expected fields"},
      {absl::StrCat("rows:\n  - {class: ", std::string(300, 'a'), ", match: '*'}"), "than 256"},
      {std::string(kMostTableBytes + 1, ' '), "at most"},
  };
  for (const auto& [yaml, message] : bad) {
    const auto classes = OpcodeClasses::Read(yaml);
    ASSERT_FALSE(classes.ok()) << yaml;
    EXPECT_TRUE(absl::IsInvalidArgument(classes.status()));
    EXPECT_THAT(std::string(classes.status().message()), HasSubstr(message)) << yaml.substr(0, 99);
  }
  EXPECT_THAT(std::string(ReadOpcodeMap("rows: []").status().message()), HasSubstr("no map"));
  EXPECT_THAT(
      std::string(
          ReadOpcodeMap(absl::StrCat(kMap, "rows: [{match: '*', class: a}]")).status().message()),
      HasSubstr("a map has none"));
}

TEST(OpcodeTables, AnchorsAreNoBomb) {
  std::string bomb = "map:\n  - &a {opcode: 1, match: [x";
  for (int i = 0; i < 30000; ++i) bomb += ",x";
  bomb += "]}\n";
  for (int i = 0; i < 4000; ++i) bomb += "  - *a\n";
  const auto classes = OpcodeClasses::Read(bomb);
  ASSERT_FALSE(classes.ok());
  EXPECT_THAT(std::string(classes.status().message()), HasSubstr("too many fields"));
}

TEST(OpcodeTables, TheExamplesAreRead) {
  const auto read = [](const std::string& name) {
    std::ifstream file(RJDBI_SOURCE_DIR "/clients/opcodes/examples/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const OpcodeClasses classes = Classes(read("classes.yaml"));
  const auto class_of = [&classes](const char* mnemonic) {
    return classes.table().rows(static_cast<int>(classes.RowOf(mnemonic))).class_();
  };
  EXPECT_EQ(class_of("v_mfma_f32_32x32x1f32"), "matrix");
  EXPECT_EQ(class_of("v_add_f32_e32"), "vector");
  EXPECT_EQ(class_of("s_waitcnt"), "waiting");
  EXPECT_EQ(class_of("s_cbranch_scc0"), "control");
  EXPECT_EQ(class_of("global_load_dword"), "vector memory");
  const auto map = ReadOpcodeMap(read("map.yaml"));
  ASSERT_TRUE(map.ok()) << map.status();
  for (const EngineTables& engine : ListedEngines()) {
    std::vector<std::string> remarks;
    EXPECT_TRUE(ArmOpcodeTable(Both(engine), *map, &remarks).ok()) << engine.engine;
  }
}

// ---- Arming from a blob ----

TEST(OpcodeArming, RowsAreTheArmedSlots) {
  const auto map = ReadOpcodeMap(kMap);
  ASSERT_TRUE(map.ok()) << map.status();
  std::vector<std::string> remarks;
  const EngineTables& dve = Engine("mariana dve");
  const auto table = ArmOpcodeTable(Both(dve), *map, &remarks);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->rows_size(), 48);
  EXPECT_EQ(table->rows(43).opcode(), "0x1e3");
  EXPECT_EQ(table->rows(43).mask(), "0x1ff");
  EXPECT_EQ(table->rows(43).class_(), "class 0x25");
  EXPECT_EQ(table->rows(47).class_(), "class 0x19");
  EXPECT_THAT(remarks, testing::Contains("slot 43, opcode 0x1e3: counts nothing, an earlier slot "
                                         "takes what is mapped to it"));
  EXPECT_THAT(remarks, testing::Contains("map: opcode 0x21 is not armed: the wildcard counts it"));
  EXPECT_THAT(remarks, testing::Contains("slot 1, opcode 0xa1: counts nothing, it is not in the "
                                         "map"));
  // Through its text and back it is the same table.
  const OpcodeClasses classes = Classes(contract::WriteYaml(*table));
  EXPECT_EQ(classes.table().SerializeAsString(), table->SerializeAsString());

  remarks.clear();
  const auto plain = ArmOpcodeTable(Read(dve.match), *map, &remarks);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->rows(45).class_(), "opcode 0x30");
  EXPECT_EQ(plain->rows(47).class_(), "other");
  EXPECT_FALSE(ArmOpcodeTable(Read(dve.descriptors), *map, &remarks).ok());
  std::string broken = dve.match;
  PutWord(broken, 4, 1);
  EXPECT_THAT(std::string(ArmOpcodeTable(Read(broken), *map, &remarks).status().message()),
              HasSubstr("mask-domain"));
}

// The description's own loop, for what the map knows.
size_t HardwareSlot(const OpcodeBlob& blob, uint32_t opcode) {
  for (size_t i = 0; i < kOpcodeSlots; ++i) {
    const OpcodeMatch& m = (*blob.match)[i];
    if (m.enable == 1 && (opcode & m.mask) == (m.opcode & m.mask)) return i;
  }
  return kOpcodeSlots;
}

TEST(OpcodeArming, RowsCountWhatTheHardwareCounts) {
  v1::OpcodeTable map;
  for (uint32_t opcode = 0; opcode < 0x200; ++opcode) {
    v1::OpcodeNumber& entry = *map.add_map();
    entry.set_opcode(absl::StrCat(opcode));
    entry.add_match(absl::StrCat("op_", opcode));
  }
  for (const EngineTables& engine : ListedEngines()) {
    const OpcodeBlob blob = Both(engine);
    std::vector<std::string> remarks;
    const auto table = ArmOpcodeTable(blob, map, &remarks);
    ASSERT_TRUE(table.ok()) << table.status();
    const auto classes = OpcodeClasses::Make(*table);
    ASSERT_TRUE(classes.ok());
    for (uint32_t opcode = 0; opcode < 0x200; ++opcode) {
      EXPECT_EQ(classes->RowOf(absl::StrCat("op_", opcode)), HardwareSlot(blob, opcode))
          << engine.engine << " " << opcode;
    }
    EXPECT_EQ(classes->RowOf("something_else"), engine.stated - 1);
  }
}

// ---- Profiles ----

v1::SiteCount& AddCount(v1::GetReportReply& report, const std::string& instruction, uint64_t offset,
                        uint64_t count, const std::string& kernel = "k") {
  v1::SiteCount& c = *report.add_counts();
  c.set_attachment_id("a1");
  c.set_session_id("s");
  c.set_load_id(1);
  c.set_probe("block-count");
  c.set_code_object_sha256("f00d");
  c.mutable_location()->set_kernel(kernel);
  c.mutable_location()->set_kernel_offset(offset);
  c.mutable_location()->set_instruction(instruction);
  c.set_count(count);
  c.set_final(true);
  return c;
}

void AddKernel(v1::GetReportReply& report, const std::string& kernel, uint64_t requested,
               uint64_t not_selected) {
  v1::Coverage& row = *report.mutable_coverage()->add_coverage();
  row.set_code_object_sha256("f00d");
  row.set_kernel(kernel);
  row.set_attachment_id("a1");
  row.set_requested(requested);
  row.set_not_selected(not_selected);
}

constexpr char kThree[] = R"(rows:
  - {match: s_*, class: scalar}
  - {match: v_add_*, class: sums}
  - {match: v_*, class: vector}
  - {match: "*", class: rest}
)";

TEST(OpcodeProfiles, ClassesAddUpToTheTotal) {
  v1::GetReportReply report;
  AddKernel(report, "k", 5, 0);
  AddCount(report, "s_nop 0", 0, 7);
  AddCount(report, "v_add_f32_e32 v0, v1, v2", 4, 11);
  AddCount(report, "v_mul_f32_e32 v0, v1, v2", 8, 13);
  AddCount(report, "ds_read_b32 v0, v1", 12, 17);
  AddCount(report, "s_endpgm", 16, 7);
  const OpcodeClasses classes = Classes(kThree);
  const OpcodeProfiler profiler(classes, report);
  EXPECT_THAT(profiler.Incomplete(), IsEmpty());
  const v1::OpcodeProfile profile = profiler.Finish();
  EXPECT_EQ(profile.total(), 55u);
  ASSERT_EQ(profile.classes_size(), 4);
  EXPECT_EQ(profile.classes(0).count(), 14u);
  EXPECT_EQ(profile.classes(0).sites(), 2u);
  EXPECT_EQ(profile.classes(1).count(), 11u);
  EXPECT_EQ(profile.classes(2).count(), 13u);
  EXPECT_EQ(profile.classes(3).count(), 17u);
  EXPECT_EQ(profile.rows(0).opcodes(0).opcode(), "s_endpgm");
  EXPECT_TRUE(profile.final());
}

TEST(OpcodeProfiles, AnyTableAddsUp) {
  std::mt19937 random(3);
  const std::vector<std::string> mnemonics = {"s_nop",     "s_add_u32",  "v_add_f32", "v_mul_f32",
                                              "ds_read",   "ds_write",   "s_load_x",  "global_load",
                                              "v_exp_f32", "buffer_load"};
  const std::vector<std::string> globs = {"s_*",  "v_*",   "*_load*", "ds_*",   "v_add_*",
                                          "*f32", "s_nop", "?s_*",    "nothing"};
  for (int round = 0; round < 200; ++round) {
    v1::OpcodeTable table;
    const size_t rows = 1 + random() % 6;
    for (size_t i = 0; i < rows; ++i) {
      v1::OpcodeRule& rule = *table.add_rows();
      rule.add_match(globs[random() % globs.size()]);
      rule.set_class_(absl::StrCat("c", random() % 3));
      if (random() % 4 == 0) rule.set_enable(false);
    }
    table.add_rows()->add_match("*");
    table.mutable_rows()->rbegin()->set_class_("rest");
    v1::GetReportReply report;
    uint64_t total = 0;
    std::map<std::string, uint64_t> want;
    for (uint64_t place = 0; place < 30; ++place) {
      const std::string& mnemonic = mnemonics[random() % mnemonics.size()];
      const uint64_t count = random() % 1000;
      AddCount(report, mnemonic + " v0", place * 4, count);
      total += count;
      for (const v1::OpcodeRule& rule : table.rows()) {
        if (rule.has_enable() && !rule.enable()) continue;
        if (!patch::GlobMatch(rule.match(0), mnemonic)) continue;
        want[rule.class_()] += count;
        break;
      }
    }
    const auto classes = OpcodeClasses::Make(table);
    ASSERT_TRUE(classes.ok()) << classes.status();
    const v1::OpcodeProfile profile = OpcodeProfiler(*classes, report).Finish();
    uint64_t by_class = 0, by_row = 0, by_opcode = 0;
    for (const auto& c : profile.classes()) {
      EXPECT_EQ(c.count(), want[c.class_()]);
      by_class += c.count();
    }
    for (const auto& r : profile.rows()) {
      by_row += r.count();
      for (const auto& o : r.opcodes()) by_opcode += o.count();
    }
    EXPECT_EQ(profile.total(), total);
    EXPECT_EQ(by_class, total);
    EXPECT_EQ(by_row, total);
    EXPECT_EQ(by_opcode, total);
  }
}

TEST(OpcodeProfiles, WhatNothingCountsIsSaid) {
  v1::GetReportReply report;
  AddKernel(report, "k", 3, 1);
  AddKernel(report, "other", 2, 0);
  AddCount(report, "s_nop 0", 0, 7).set_final(false);
  AddCount(report, "v_add_f32_e32 v0, v1, v2", 4, 11);
  AddCount(report, "", 0, 5, "");  // of a process long gone
  AddCount(report, "v_add_f32_e32 v0", 8, 99).set_probe("count-lanes");
  report.mutable_coverage()->add_gaps();
  const OpcodeClasses classes = Classes(kThree);
  OpcodeProfiler profiler(classes, report);
  const auto incomplete = profiler.Incomplete();
  ASSERT_EQ(incomplete.size(), 2u);
  EXPECT_EQ(incomplete[0].name, "k");
  EXPECT_EQ(incomplete[0].instructions, 4u);
  EXPECT_EQ(incomplete[0].counted, 2u);
  v1::ListSitesReply listing;
  const std::pair<const char*, uint64_t> all[] = {
      {"s_nop 0", 0}, {"v_add_f32_e32 v0, v1, v2", 4}, {"v_add_f32_e32 v0", 8}, {"ds_x", 12}};
  for (const auto& [instruction, offset] : all) {
    v1::Location& at = *listing.add_sites()->mutable_location();
    at.set_kernel("k");
    at.set_kernel_offset(offset);
    at.set_instruction(instruction);
  }
  listing.add_sites()->mutable_location()->set_kernel("k2");
  profiler.AddListing(incomplete[0], listing);
  const v1::OpcodeProfile profile = profiler.Finish();
  EXPECT_EQ(profile.total(), 18u);
  EXPECT_FALSE(profile.final());
  EXPECT_EQ(profile.classes(1).sites_not_counted(), 1u);
  EXPECT_EQ(profile.classes(3).sites_not_counted(), 1u);
  EXPECT_EQ(profile.classes(0).sites_not_counted(), 0u);
  ASSERT_EQ(profile.uncovered_size(), 2);
  EXPECT_EQ(profile.uncovered(0).not_counted(), 2u);
  EXPECT_TRUE(profile.uncovered(0).listed());
  EXPECT_EQ(profile.uncovered(1).not_counted(), 2u);
  EXPECT_FALSE(profile.uncovered(1).listed());
  EXPECT_EQ(profile.unplaced(), 5u);
  EXPECT_EQ(profile.skipped_places(), 1u);
  EXPECT_EQ(profile.gaps(), 1u);
}

TEST(OpcodeProfiles, AnExecutionCountsOnce) {
  v1::GetReportReply report;
  AddKernel(report, "k", 1, 0);
  AddCount(report, "s_nop 0", 0, 7);
  AddCount(report, "s_nop 0", 0, 9).set_attachment_id("a2");  // there for longer
  AddCount(report, "s_nop 0", 0, 100).set_load_id(2);         // another load of the object
  AddCount(report, "s_nop 0", 0, 1000).set_session_id("t");
  AddCount(report, "s_nop 0", 0, 10000).set_code_object_sha256("beef");
  AddCount(report, "s_nop 0", 0, 100000, "k2").set_probe("count-waves");
  const OpcodeClasses classes = Classes(kThree);
  const v1::OpcodeProfile profile = OpcodeProfiler(classes, report).Finish();
  EXPECT_EQ(profile.total(), 111109u);
  EXPECT_EQ(profile.classes(0).sites(), 3u);
  EXPECT_EQ(profile.counted_twice(), 1u);
}

}  // namespace
}  // namespace rjdbi::clients
