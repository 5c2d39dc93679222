// The metadata reader on hand-made MessagePack: all formats, hostile counts,
// replacement and insertion of numbers.
#include "patch/codeobject/metadata.h"

#include <gtest/gtest.h>

namespace rjdbi::patch {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Text(const std::string& text) {
  Bytes out = {static_cast<uint8_t>(0xa0 | text.size())};
  for (char c : text) out.push_back(static_cast<uint8_t>(c));
  return out;
}
Bytes operator+(Bytes a, const Bytes& b) {
  for (uint8_t byte : b) a.push_back(byte);
  return a;
}
// {"amdhsa.kernels": [{entries...}]}
Bytes Note(uint8_t entries, const Bytes& body) {
  return Bytes{0x81} + Text("amdhsa.kernels") + Bytes{0x91, static_cast<uint8_t>(0x80 | entries)} +
         body;
}

TEST(Metadata, EveryNumberWidth) {
  const std::pair<Bytes, uint32_t> cases[] = {
      {{0x7f}, 127},
      {{0xcc, 0xff}, 255},
      {{0xcd, 0x12, 0x34}, 0x1234},
      {{0xce, 0xff, 0xff, 0xff, 0xff}, UINT32_MAX},
      {{0xcf, 0, 0, 0, 0, 0, 0, 1, 0}, 256},
  };
  for (const auto& [bytes, value] : cases) {
    const auto kernels = ParseMetadata(Note(1, Text(".vgpr_count") + bytes));
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    EXPECT_EQ(kernels->at(0).metadata.vgpr_count, value);
  }
}

TEST(Metadata, SkipsEveryFormat) {
  const Bytes values[] = {{0xc0},
                          {0xc2},
                          {0xc3},
                          {0xc4, 1, 0},
                          {0xc5, 0, 1, 0},
                          {0xc6, 0, 0, 0, 1, 0},
                          {0xc7, 1, 5, 0},
                          {0xc8, 0, 1, 5, 0},
                          {0xc9, 0, 0, 0, 1, 5, 0},
                          {0xca, 0, 0, 0, 0},
                          {0xcb, 0, 0, 0, 0, 0, 0, 0, 0},
                          {0xd0, 0x80},
                          {0xd1, 0, 0},
                          {0xd2, 0, 0, 0, 0},
                          {0xd3, 0, 0, 0, 0, 0, 0, 0, 0},
                          {0xd4, 5, 0},
                          {0xd5, 5, 0, 0},
                          {0xd6, 5, 0, 0, 0, 0},
                          {0xd7, 5, 0, 0, 0, 0, 0, 0, 0, 0},
                          Bytes{0xd8, 5} + Bytes(16, 0),
                          {0xd9, 1, 'x'},
                          {0xda, 0, 1, 'x'},
                          {0xdb, 0, 0, 0, 1, 'x'},
                          {0xdc, 0, 1, 0xc0},
                          {0xdd, 0, 0, 0, 1, 0xc0},
                          {0xde, 0, 1, 0xc0, 0xc0},
                          {0xdf, 0, 0, 0, 1, 0xc0, 0xc0},
                          {0xe0},
                          {0x92, 0x81, 0xa1, 'k', 0x91, 0x01, 0xc0}};
  for (const Bytes& value : values) {
    const Bytes note = Note(2, Text(".other") + value + Text(".sgpr_count") + Bytes{9});
    const auto kernels = ParseMetadata(note);
    ASSERT_TRUE(kernels.ok()) << int{value[0]} << ": " << kernels.status();
    EXPECT_EQ(kernels->at(0).metadata.sgpr_count, 9u) << int{value[0]};
    // One byte less must not be read as something whole.
    EXPECT_FALSE(ParseMetadata(absl::MakeSpan(note).first(note.size() - 1)).ok());
  }
}

TEST(Metadata, RefusesHostileShapes) {
  const Bytes cases[] = {
      {},
      {0x90},                                                 // root not a map
      {0xdf, 0xff, 0xff, 0xff, 0xff},                         // four billion entries
      {0x81, 0x01, 0x01},                                     // key not a string
      {0x81, 0xc1, 0x00},                                     // format that does not exist
      Bytes{0x81} + Text("amdhsa.kernels") + Bytes{0x80},     // not an array
      Bytes{0x81} + Text("amdhsa.kernels") + Bytes{0x91, 1},  // kernel not a map
      Bytes{0x81} + Text("x") + Bytes{0xdb, 0xff, 0xff, 0xff, 0xff},
      Note(1, Text(".vgpr_count") + Bytes{0xcf, 1, 0, 0, 0, 0, 0, 0, 0}),  // over 32 bits
      Note(1, Text(".vgpr_count") + Bytes{0xff}),                          // negative
      Note(1, Text(".name") + Bytes{0x01}),
      Note(2, Text(".vgpr_count") + Bytes{1}),  // an entry is missing
  };
  for (const Bytes& note : cases) {
    EXPECT_EQ(ParseMetadata(note).status().code(), absl::StatusCode::kInvalidArgument)
        << testing::PrintToString(note);
  }
  const Bytes crowd = Bytes{0x81} + Text("amdhsa.kernels") + Bytes{0xdd, 0x7f, 0xff, 0xff, 0xff};
  EXPECT_EQ(ParseMetadata(crowd).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Metadata, DepthCostsNothing) {
  Bytes note = Bytes{0x81} + Text("deep") + Bytes(1 << 22, 0x91) + Bytes{0xc0};
  EXPECT_TRUE(ParseMetadata(note).ok());
  note.pop_back();
  EXPECT_FALSE(ParseMetadata(note).ok());
}

TEST(Metadata, ReplacesInPlaceWhereTheWidthAllows) {
  const Bytes note = Note(3, Text(".vgpr_count") + Bytes{0xcd, 1, 0} + Text(".sgpr_count") +
                                 Bytes{100} + Text(".name") + Text("k"));
  const auto kernels = ParseMetadata(note);
  ASSERT_TRUE(kernels.ok());
  const Bytes same = ReplaceNumbers(note, *kernels, {{0, MetadataNumber::kVgprCount, 7}});
  EXPECT_EQ(same.size(), note.size());
  EXPECT_EQ(ParseMetadata(same)->at(0).metadata.vgpr_count, 7u);
  const Bytes grown = ReplaceNumbers(
      note, *kernels,
      {{0, MetadataNumber::kSgprCount, 128}, {0, MetadataNumber::kAgprCount, 70000}});
  EXPECT_GT(grown.size(), note.size());
  const auto again = ParseMetadata(grown);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->at(0).metadata.sgpr_count, 128u);
  EXPECT_EQ(again->at(0).metadata.agpr_count, 70000u);
  EXPECT_EQ(again->at(0).metadata.vgpr_count, 256u);
  EXPECT_EQ(again->at(0).metadata.name, "k");
}

TEST(Metadata, InsertionWidensTheMapHeader) {
  Bytes body;
  for (int i = 0; i < 15; ++i) body = body + Text(std::string("k") + char('a' + i)) + Bytes{0xc0};
  const Bytes note = Note(15, body);
  const auto kernels = ParseMetadata(note);
  ASSERT_TRUE(kernels.ok());
  const auto again =
      ParseMetadata(ReplaceNumbers(note, *kernels, {{0, MetadataNumber::kVgprCount, 5}}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->at(0).map_entries, 16u);
  EXPECT_EQ(again->at(0).metadata.vgpr_count, 5u);
}

}  // namespace
}  // namespace rjdbi::patch
