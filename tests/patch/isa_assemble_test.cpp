// Creation and assembly: what is accepted, what is refused, and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "patch/isa/isa.h"

namespace rjdbi::patch {
namespace {

using testing::HasSubstr;

std::unique_ptr<Isa> Create(const char* processor, uint32_t wave) {
  TargetId target;
  target.processor = processor;
  auto isa = Isa::Create(target, wave);
  EXPECT_TRUE(isa.ok()) << isa.status();
  return isa.ok() ? *std::move(isa) : nullptr;
}

TEST(Create, Refusals) {
  TargetId target;
  for (const char* processor : {"gfx803", "gfx9999", "", "hawaii"}) {
    target.processor = processor;
    EXPECT_EQ(Isa::Create(target, 64).status().code(), absl::StatusCode::kUnimplemented)
        << processor;
  }
  target.processor = "gfx90a";
  EXPECT_EQ(Isa::Create(target, 32).status().code(), absl::StatusCode::kInvalidArgument);
  target.processor = "gfx1030";
  EXPECT_EQ(Isa::Create(target, 16).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Assemble, SeveralLinesAndComments) {
  auto isa = Create("gfx90a", 64);
  const auto code = isa->Assemble("s_nop 0\n  // nothing\ns_nop 1 ; here\n\n\ts_endpgm");
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_THAT(*code, testing::ElementsAre(0, 0, 0x80, 0xbf, 1, 0, 0x80, 0xbf, 0, 0, 0x81, 0xbf));
  EXPECT_TRUE(isa->Assemble("")->empty());
}

TEST(Assemble, Refusals) {
  auto isa = Create("gfx90a", 64);
  const std::pair<const char*, const char*> cases[] = {
      {"s_nop 0\nbogus v0", "line 2: invalid instruction"},
      {"s_mov_b32 s200, 0", "line 1"},
      {".byte 0", "directives"},
      {"s_nop 0\n \t.include \"x\"", "line 2: directives"},
      {"/* */ .byte 0", "block comments"},
      {"here: s_nop 0", "labels"},
      {"s_branch elsewhere", "symbols"},
      {"x = 3", "symbols"},
      {"ds_load_b32 v0, v1", "line 1"},
  };
  for (const auto& [text, message] : cases) {
    const auto code = isa->Assemble(text);
    EXPECT_EQ(code.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(code.status().message()), HasSubstr(message)) << text;
  }
  EXPECT_TRUE(isa->Assemble("s_nop 0").ok());  // an error leaves nothing behind
}

TEST(Assemble, PrintedTextAssemblesToTheSameBytes) {
  struct Case {
    const char* processor;
    uint32_t wave;
    std::vector<const char*> lines;
  };
  const Case cases[] = {
      {"gfx90a",
       64,
       {"v_add_f32_e32 v0, v1, v2", "global_load_dword v0, v1, s[0:1] offset:-4",
        "s_waitcnt vmcnt(0)", "ds_write_b64 v0, v[2:3] offset:8", "s_cbranch_scc1 65535",
        "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]"}},
      {"gfx1100",
       32,
       {"v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v3, v2", "s_delay_alu instid0(VALU_DEP_1)",
        "v_cndmask_b32_e32 v0, v1, v2, vcc_lo", "s_waitcnt_depctr 0xf19c"}},
      {"gfx1200", 32, {"global_load_b32 v0, v1, s[0:1] offset:-8388608", "s_wait_kmcnt 0x0"}},
  };
  for (const Case& test : cases) {
    auto isa = Create(test.processor, test.wave);
    for (const char* line : test.lines) {
      const auto code = isa->Assemble(line);
      ASSERT_TRUE(code.ok()) << line << ": " << code.status();
      const auto again = isa->Assemble(isa->Print(*code, 0));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, *code) << line;
    }
  }
}

TEST(Decode, EndsOfTheSpan) {
  auto isa = Create("gfx90a", 64);
  const auto code = isa->Assemble("s_nop 0\ns_mov_b32 s0, 0x12345678");
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(isa->Decode(*code, 4)->size, 8);
  EXPECT_FALSE(isa->Decode(absl::MakeSpan(*code).first(8), 4).has_value());  // literal cut off
  EXPECT_FALSE(isa->Decode(*code, code->size()).has_value());
  EXPECT_FALSE(isa->Decode(*code, UINT64_MAX).has_value());
  EXPECT_FALSE(isa->Decode({}, 0).has_value());
  EXPECT_EQ(isa->Print({}, 0), "");
}

TEST(Decode, ZeroFiller) {
  const std::vector<uint8_t> zeros(64);
  auto gfx9 = Create("gfx90a", 64);
  EXPECT_EQ(gfx9->Decode(zeros, 0)->opcode, "v_cndmask_b32");
  EXPECT_EQ(gfx9->Decode(zeros, 0)->size, 4);
  auto gfx10 = Create("gfx1030", 32);
  EXPECT_EQ(gfx10->Decode(zeros, 0)->opcode, "v_illegal");
  EXPECT_EQ(gfx10->Decode(zeros, 0)->size, 4);
}

TEST(Decode, UndecodableIsNullopt) {
  auto isa = Create("gfx90a", 64);
  const std::vector<uint8_t> ones(16, 0xff);
  EXPECT_FALSE(isa->Decode(ones, 0).has_value());
}

}  // namespace
}  // namespace rjdbi::patch
