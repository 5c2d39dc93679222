// Globs and the selector grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "patch/analysis/selector.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::GlobMatch;
using patch::Selector;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(GlobMatch, Table) {
  const struct {
    const char* glob;
    const char* text;
    bool matches;
  } rows[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"ds_*", "ds_add", true},
      {"ds_*", "global", false},
      {"*_b32", "v_mov_b32", true},
      {"a?c", "abc", true},
      {"a?c", "ac", false},
      {"[ab]x", "bx", true},
      {"[!ab]x", "bx", false},
      {"[!ab]x", "cx", true},
      {"[a-c]", "b", true},
      {"[a-c]", "d", false},
      {"[]a]", "]", true},
      {"[a-]", "-", true},
      {"[ab", "[ab", true},
      {"*a*b*c*", "xxaxbxcx", true},
      {"*a*b*c*", "xxbxaxcx", false},
      {"a**b", "ab", true},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(GlobMatch(row.glob, row.text), row.matches) << row.glob << " ~ " << row.text;
  }
}

TEST(GlobMatch, ManyStarsDoNotExplode) {
  std::string glob, text(20000, 'a');
  for (int i = 0; i < 200; ++i) glob += "*a";
  EXPECT_TRUE(GlobMatch(glob, text));
  EXPECT_FALSE(GlobMatch(glob + "b", text));
}

TEST(Selector, ErrorsNameTheColumn) {
  const struct {
    const char* text;
    const char* column;
  } rows[] = {
      {"", "column 1:"},
      {"ds_*,", "column 6:"},
      {"ds_*,,entry", "column 6:"},
      {"kernel+", "column 8:"},
      {"kernel+0x", "column 10:"},
      {"kernel+0x1g", "column 11:"},
      {"kernel+99999999999999999999", "column 27:"},
      {"DS_ADD", "column 1:"},
      {"ds_[ab", "column 4:"},
      {"entry, ds $", "column 10:"},
  };
  for (const auto& row : rows) {
    const auto selector = Selector::Parse(row.text);
    ASSERT_FALSE(selector.ok()) << row.text;
    EXPECT_TRUE(absl::IsInvalidArgument(selector.status()));
    EXPECT_THAT(std::string(selector.status().message()), HasSubstr(row.column)) << row.text;
  }
}

TEST(Selector, Selects) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    s_load_dwordx2 s[2:3], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_add_u32_e32 v1, 1, v1
    ds_write_b32 v1, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v1, s[2:3]
    s_endpgm)"}}));
  const auto& kernel = loaded.Kernel();
  auto select = [&](const char* text) {
    auto selector = Selector::Parse(text);
    EXPECT_TRUE(selector.ok()) << selector.status();
    return selector->Select(kernel);
  };
  EXPECT_THAT(select("entry").instructions, ElementsAre(0));
  EXPECT_THAT(select("ds_*").instructions, ElementsAre(3));
  EXPECT_THAT(select("memory").instructions, ElementsAre(0, 3, 5));
  EXPECT_THAT(select("v_add_u32").instructions, ElementsAre(2));
  EXPECT_THAT(select("global_store*, entry,entry").instructions, ElementsAre(0, 5));
  EXPECT_THAT(select("kernel+0x8,kernel+12").instructions, ElementsAre(1, 2));
  const auto missing = select("kernel+0x4,kernel+0x1000");
  EXPECT_TRUE(missing.instructions.empty());
  EXPECT_THAT(missing.missing_offsets, ElementsAre(0x4, 0x1000));
}

}  // namespace
}  // namespace rjdbi
