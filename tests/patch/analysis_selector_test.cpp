// Globs and the selector grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
    size_t column;
    const char* expected;
  } rows[] = {
      {"", 1, "an opcode glob"},
      {"   ", 4, "an opcode glob"},
      {"ds_*,", 6, "an opcode glob"},
      {"ds_*,,entry", 6, "an opcode glob"},
      {"kernel+", 8, "an offset"},
      {"kernel+0x", 10, "an offset"},
      {"kernel+0x1g", 11, "an offset"},
      {"kernel+99999999999999999999", 27, "an offset"},
      {"DS_ADD", 1, "an opcode glob"},
      {"ds_[ab", 4, "a ']'"},
      {"entry, ds_add $", 15, "'and', 'or', ',' or the end"},
      {"memmory", 1, "a family"},
      {"ds_* and", 9, "an opcode glob"},
      {"ds_* and or entry", 10, "an opcode glob"},
      {"not", 4, "an opcode glob"},
      {"and ds_*", 1, "an opcode glob"},
      {"(ds_* or entry", 15, "')'"},
      {"ds_*)", 5, "the end"},
      {"()", 2, "an opcode glob"},
      {"every:0 ds_*", 7, "a number of 1"},
      {"every: ds_*", 7, "a number of 1"},
      {"every:2x ds_*", 8, "a number of 1"},
      {"every:2", 8, "an opcode glob"},
      {"memory(reed)", 8, "'read', 'write' or 'atomic'"},
      {"memory(read", 12, "')'"},
      {"memory (write) (read)", 16, "the end"},
      {"valu(read)", 5, "the end"},
      {"function:", 10, "a function's name"},
      {"x.cl:", 6, "a line number"},
      {"x.cl:0", 6, "a line number"},
      {"x.cl:1a", 7, "a line number"},
      {"x.cl:99999999999", 6, "a line number"},
      {":7", 1, "FILE:LINE"},
      {"source:7", 8, "FILE:LINE"},
      {"entry, function:\"a b", 17, "closes this one"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.text);
    patch::SelectorError error;
    const auto selector = Selector::Parse(row.text, &error);
    ASSERT_FALSE(selector.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(selector.status()));
    EXPECT_EQ(error.column, row.column);
    EXPECT_THAT(error.expected, HasSubstr(row.expected));
    const std::string message(selector.status().message());
    EXPECT_THAT(message, HasSubstr("column " + std::to_string(row.column) + ": expected "));
    EXPECT_EQ(message.substr(message.find('\n') + 1),
              std::string(row.text) + "\n" + std::string(row.column - 1, ' ') + "^");
  }
  const std::string deep(200, '(');
  EXPECT_FALSE(Selector::Parse(deep + "ds_*").ok());
  std::string nots;
  for (int i = 0; i < 900; ++i) nots += "not ";
  EXPECT_FALSE(Selector::Parse(nots + "ds_*").ok());
  EXPECT_FALSE(Selector::Parse(std::string(5000, '*')).ok());
}

TEST(PointAt, KeepsTheCaretInPlace) {
  EXPECT_EQ(patch::PointAt("abc", 2), "abc\n ^");
  EXPECT_EQ(patch::PointAt("abc", 4), "abc\n   ^");
  EXPECT_EQ(patch::PointAt("abc", 99), "abc\n   ^");
  EXPECT_EQ(patch::PointAt("\xc3\xa4\xc3\xb6x", 5), "\xc3\xa4\xc3\xb6x\n  ^") << "by characters";
  EXPECT_EQ(patch::PointAt("a\tb", 3), "a b\n  ^");
  const std::string text = std::string(100, 'x') + "!" + std::string(100, 'y');
  const std::string shown = patch::PointAt(text, 101);
  const size_t end = shown.find('\n');
  ASSERT_NE(end, std::string::npos);
  EXPECT_LT(end, 90u);
  EXPECT_EQ(shown[shown.find('^') - end - 1], '!');
}

class Selects : public testing::Test {
 protected:
  static Selector::Selection Select(const patch::KernelAnalysis& kernel, const std::string& text) {
    auto selector = Selector::Parse(text);
    EXPECT_TRUE(selector.ok()) << selector.status();
    return selector->Select(kernel);
  }
  static std::vector<uint32_t> Of(const patch::KernelAnalysis& kernel, const std::string& text) {
    const auto selection = Select(kernel, text);
    EXPECT_TRUE(selection.refusals.empty());
    EXPECT_TRUE(selection.missing_offsets.empty()) << text;
    return selection.instructions;
  }
};

TEST_F(Selects, Terms) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    s_load_dwordx2 s[2:3], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_add_u32_e32 v1, 1, v1
    ds_write_b32 v1, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v1, s[2:3]
    s_cbranch_scc0 .Lend
    ds_add_u32 v1, v1
    v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]
    v_rcp_f32_e32 v2, v1
    s_barrier
    .Lend:
    s_endpgm
    s_nop 0)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_THAT(Of(k, "entry"), ElementsAre(0));
  EXPECT_THAT(Of(k, "exit"), ElementsAre(11));
  EXPECT_THAT(Of(k, "block"), ElementsAre(0, 7, 11)) << "what nothing leads to is no block";
  EXPECT_THAT(Of(k, "ds_*"), ElementsAre(3, 7));
  EXPECT_THAT(Of(k, "memory"), ElementsAre(0, 3, 5, 7));
  EXPECT_THAT(Of(k, "memory(read)"), ElementsAre(0));
  EXPECT_THAT(Of(k, "memory( write )"), ElementsAre(3, 5));
  EXPECT_THAT(Of(k, "memory (atomic)"), ElementsAre(7));
  EXPECT_THAT(Of(k, "lds"), ElementsAre(3, 7));
  EXPECT_THAT(Of(k, "lds(write), smem"), ElementsAre(0, 3));
  EXPECT_THAT(Of(k, "vmem"), ElementsAre(5));
  EXPECT_THAT(Of(k, "valu"), ElementsAre(1, 2, 8, 9));
  EXPECT_THAT(Of(k, "trans or mfma"), ElementsAre(8, 9));
  EXPECT_THAT(Of(k, "barrier,branch"), ElementsAre(6, 10));
  EXPECT_THAT(Of(k, "wait"), ElementsAre(4));
  EXPECT_THAT(Of(k, "salu"), ElementsAre(4, 6, 10, 11, 12));
  EXPECT_THAT(Of(k, "v_add_u32"), ElementsAre(2));
  EXPECT_THAT(Of(k, "global_store*, entry,entry"), ElementsAre(0, 5));
  EXPECT_THAT(Of(k, "kernel+0x8,kernel+12"), ElementsAre(1, 2));
  EXPECT_THAT(Of(k, "function:k and ds_*"), ElementsAre(3, 7));
  EXPECT_THAT(Of(k, "function:\"k\" and function:?  and  entry"), ElementsAre(0));
  EXPECT_TRUE(Of(k, "function:other").empty());
}

TEST_F(Selects, Operators) {
  test::Loaded loaded(test::AssembleObject("gfx90a", 64, {{.body = R"(
    ds_write_b32 v0, v1
    ds_read_b32 v1, v0
    ds_read_b32 v2, v0
    global_load_dword v3, v[4:5], off
    global_load_dword v6, v[4:5], off
    s_nop 0
    s_endpgm)"}}));
  const auto& k = loaded.Kernel();
  EXPECT_THAT(Of(k, "ds_* and memory(read)"), ElementsAre(1, 2));
  EXPECT_THAT(Of(k, "ds_* and not memory(read)"), ElementsAre(0));
  EXPECT_THAT(Of(k, "not ds_* and not salu"), ElementsAre(3, 4)) << "not binds first";
  EXPECT_THAT(Of(k, "not (ds_*, salu)"), ElementsAre(3, 4));
  EXPECT_THAT(Of(k, "not not ds_write*"), ElementsAre(0));
  // "and" before "or" and ",".
  EXPECT_THAT(Of(k, "ds_write* or global_* and entry"), ElementsAre(0));
  EXPECT_THAT(Of(k, "(ds_write* or global_*) and not entry"), ElementsAre(3, 4));
  EXPECT_THAT(Of(k, "every:1 memory"), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(Of(k, "every:2 memory"), ElementsAre(0, 2, 4));
  EXPECT_THAT(Of(k, "every:2 memory and ds_*"), ElementsAre(0, 2)) << "every binds first";
  EXPECT_THAT(Of(k, "every:2 (memory and global)"), ElementsAre(3));
  EXPECT_THAT(Of(k, "every:2 every:2 memory"), ElementsAre(0, 4));
  EXPECT_THAT(Of(k, "every:99 memory"), ElementsAre(0));
  EXPECT_THAT(Of(k, "every:2 not memory"), ElementsAre(5));
  const auto missing = Select(k, "kernel+0x4,kernel+0x1000");
  EXPECT_TRUE(missing.instructions.empty());
  EXPECT_THAT(missing.missing_offsets, ElementsAre(0x4, 0x1000));
  EXPECT_TRUE(Select(k, "ds_* and not kernel+0x4").missing_offsets.empty());
}

TEST_F(Selects, EntryAndExitAreWhereProbesCanBe) {
  test::Loaded preload(test::AssembleObject("gfx90a", 64,
                                            {{.body = R"(
    s_load_dwordx2 s[2:3], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_branch .Lmain
    .p2align 8
    .Lmain:
    v_mov_b32_e32 v0, s2
    s_endpgm)",
                                              .preload_dwords = 2}}));
  const auto& k = preload.Kernel();
  const auto entry = Of(k, "entry");
  ASSERT_EQ(entry.size(), 1u);
  EXPECT_EQ(k.instructions()[entry[0]].offset, 256u) << "both firmwares come by";
  EXPECT_EQ(k.Immovable(entry[0]), std::nullopt);
  test::Loaded dealloc(test::AssembleObject("gfx1100", 32, {{.body = R"(
    s_cbranch_scc0 .Lother
    s_nop 0
    s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)
    s_endpgm
    .Lother:
    s_endpgm)"}}));
  EXPECT_THAT(Of(dealloc.Kernel(), "exit"), ElementsAre(2, 4)) << "the message, or the end";
}

// ---- source lines ----

constexpr char kSource[] = R"(#line 10 "lib/helper.h"
static inline float twice(float x) {
  return x * 2.0f;
}
#line 20 "dir/kernel.cl"
kernel void k(global float* a) {
  int i = __builtin_amdgcn_workitem_id_x();
  float x = a[i];
  a[i + 64] = twice(x);
}
)";

TEST_F(Selects, SourceLines) {
  for (const char* flags : {" -gline-tables-only", " -g -gdwarf-4", " -g -gdwarf-5"}) {
    SCOPED_TRACE(flags);
    test::Loaded loaded(test::CompileOpenCl(std::string("gfx90a") + flags, kSource));
    const auto& k = loaded.Kernel("k");
    const auto load = Of(k, "kernel.cl:22 and global_load*");
    ASSERT_EQ(load.size(), 1u);
    EXPECT_EQ(Of(k, "source:dir/kernel.cl:22 and global_load*"), load);
    EXPECT_EQ(Of(k, "\"dir/kernel.cl:22\" and memory and not smem"), load);
    EXPECT_EQ(Of(k, "kernel.cl:23 and global_store*").size(), 1u);
    EXPECT_FALSE(Of(k, "helper.h:11 and v_*").empty()) << "inlined";
    EXPECT_TRUE(Of(k, "kernel.cl:11").empty());
    EXPECT_TRUE(Of(k, "ernel.cl:22").empty()) << "whole names";
    EXPECT_TRUE(Of(k, "kernel.cl:9999").empty());
  }
}

TEST_F(Selects, WithoutALineTableNothingIsGuessed) {
  test::Loaded loaded(test::CompileOpenCl("gfx90a", kSource));
  for (const char* text : {"kernel.cl:22", "not kernel.cl:22", "memory or kernel.cl:22"}) {
    const auto selection = Select(loaded.Kernel("k"), text);
    EXPECT_TRUE(selection.instructions.empty()) << text;
    ASSERT_EQ(selection.refusals.size(), 1u);
    EXPECT_EQ(selection.refusals[0].reason, patch::Reason::kNoLineTable);
    EXPECT_THAT(selection.refusals[0].detail, HasSubstr("no line table"));
  }
}

}  // namespace
}  // namespace rjdbi
