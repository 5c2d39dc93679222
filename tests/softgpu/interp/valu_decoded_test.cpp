// Encoded vector instructions through the decoder: that its operands and
// modifiers mean what the vector handlers take them to mean.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/softgpu/interp/decode.h"
#include "tests/softgpu/interp/valu_rig.h"

namespace softgpu::test {
namespace {

// Registers before: v0 and v1 are 0xaaaabbbb, v2 to v5 as given (plus the lane
// number, if vary), s[12:13] and VCC have bit 1 set and bit 0 clear.
struct Snippet {
  const char* processor;
  std::vector<uint32_t> words;
  const char* text;
  std::vector<uint32_t> in;  // v2...
  // Values in lane 1 after: v0, v1, s10, vcc_lo; kAny is not compared.
  std::vector<uint64_t> out;
  bool vary = false;
};
constexpr uint64_t kAny = ~uint64_t{0};

constexpr uint32_t kOne = 0x3f800000, kTwo = 0x40000000, kThree = 0x40400000;
constexpr uint32_t kOneHigh = 0x3ff00000, kTwoHigh = 0x40000000, kThreeHigh = 0x40080000;

const Snippet kSnippets[] = {
    {"gfx90a",
     {0xd2800000, 0x40020902},
     "v_add_f64 v[0:1], v[2:3], -v[4:5]",
     {0, kThreeHigh, 0, kOneHigh},
     {0, kTwoHigh}},
    {"gfx90a",
     {0xd2800100, 0x0001e102},
     "v_add_f64 v[0:1], |v[2:3]|, 0.5",
     {0, 0xc0040000},
     {0, kThreeHigh}},
    {"gfx90a",
     {0xd1058200, 0x20020702},
     "v_mul_f32_e64 v0, -v2, |v3| clamp",
     {0xbe800000, 0xc0000000},
     {0x3f000000}},
    {"gfx90a", {0x0a0004ff, 0x40490fdb}, "v_mul_f32_e32 v0, 0x40490fdb, v2", {kTwo}, {0x40c90fdb}},
    {"gfx90a", {0x3e0004ff, 0x00004248}, "v_add_f16_e32 v0, 0x4248, v2", {0x3c00}, {0x4424}},
    {"gfx90a", {0x3e0004f2}, "v_add_f16_e32 v0, 1.0, v2", {0x77773c00}, {0x4000}},
    {"gfx90a",
     {0xd2064800, 0x04120702},
     "v_fma_f16 v0, v2, v3, v4 op_sel:[1,0,0,1]",
     {0x40007777, 0x00004200, 0x00003c00},
     {0x4700bbbb}},
    {"gfx90a",
     {0xd38e0000, 0x9bca0702},
     "v_pk_fma_f16 v0, v2, v3, 1.0 op_sel_hi:[1,1,0] neg_lo:[0,0,1]",
     {0x40004200, 0x42004000},
     {0x47004500}},
    {"gfx90a",
     {0xd3b15000, 0x08020902},
     "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]",
     {kTwo, kThree, kOne, kTwo},
     {0x40800000, kThree}},
    {"gfx90a",
     {0xd3b34800, 0x18020902},
     "v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]",
     {11, 12, 13, 14},
     {12, 13}},
    {"gfx90a",
     {0xd3a20a00, 0x8c120702},
     "v_fma_mixhi_f16 v0, v2, |v3|, -v4 op_sel:[1,0,0] op_sel_hi:[1,0,0]",
     {0x40000000, 0xc0400000, kOne},
     {0x4500bbbb}},
    {"gfx90a",
     {0x680006f9, 0x05011502},
     "v_add_u32_sdwa v0, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 "
     "src1_sel:WORD_1",
     {0x12345678, 0x00010000},
     {0x0057bbbb}},
    {"gfx90a",
     {0x680006f9, 0x060b0602},
     "v_add_u32_sdwa v0, sext(v2), v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 "
     "src1_sel:DWORD",
     {0xff000000, 3},
     {2}},
    {"gfx90a",
     {0x7d5406f9, 0x01018a02},
     "v_cmp_eq_u16_sdwa s[10:11], v2, v3 src0_sel:BYTE_1 src1_sel:BYTE_1",
     {0x11225544, 0x99885577},
     {kAny, kAny, 0xffffffff}},
    {"gfx90a",
     {0x7e0002fa, 0xff011102},
     "v_mov_b32_dpp v0, v2 row_shr:1 row_mask:0xf bank_mask:0xf",
     {100},
     {100},
     true},
    {"gfx90a",
     {0x020006fa, 0xff08b102},
     "v_add_f32_dpp v0, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1",
     {kOne, kOne},
     {kTwo},
     true},
    {"gfx90a",
     {0x38000702},
     "v_addc_co_u32_e32 v0, vcc, v2, v3, vcc",
     {0xffffffff, 0},
     {0, kAny, kAny, 2}},
    {"gfx90a",
     {0xd11e0a00, 0x00320702},
     "v_subbrev_co_u32_e64 v0, s[10:11], v2, v3, s[12:13]",
     {3, 3},
     {0xffffffff, kAny, 2}},
    {"gfx90a",
     {0xd1000000, 0x00318302},
     "v_cndmask_b32_e64 v0, v2, -1, s[12:13]",
     {7},
     {0xffffffff}},
    {"gfx90a",
     {0xd1e80a00, 0x04120702},
     "v_mad_u64_u32 v[0:1], s[10:11], v2, v3, v[4:5]",
     {0x80000000, 4, 1, 0xfffffffe},
     {1, 0, 0xffffffff}},
    {"gfx90a",
     {0xd1e16a00, 0x04120502},
     "v_div_scale_f64 v[0:1], vcc, v[2:3], v[2:3], v[4:5]",
     {0, kThreeHigh, 0, kOneHigh},
     {0, kThreeHigh, kAny, 0}},
    {"gfx90a",
     {0xd1e20000, 0x04120702},
     "v_div_fmas_f32 v0, v2, v3, v4",
     {kTwo, kTwo, kTwo},
     {0x40c00000 + (64u << 23)}},
    {"gfx90a",
     {0x08000902},
     "v_fmac_f64_e32 v[0:1], v[2:3], v[4:5]",
     {0, kTwoHigh, 0, 0x7fe00000},
     {0, 0x7ff00000}},
    {"gfx90a",
     {0xd2840000, 0x00020902},
     "v_ldexp_f64 v[0:1], v[2:3], v4",
     {0, kOneHigh, 1},
     {0, kTwoHigh}},
    {"gfx90a",
     {0xd28f0000, 0x00020483},
     "v_lshlrev_b64 v[0:1], 3, v[2:3]",
     {0x80000001, 1},
     {8, 12}},
    {"gfx90a",
     {0x7dd20485},
     "v_cmp_lt_u64_e32 vcc, 5, v[2:3]",
     {0, 1},
     {kAny, kAny, kAny, 0xffffffff}},
    {"gfx90a",
     {0xd012000a, 0x00020902},
     "v_cmp_class_f64_e64 s[10:11], v[2:3], v4",
     {0, 0x7ff80000, 2},
     {kAny, kAny, 0xffffffff}},
    {"gfx90a", {0x7db80702}, "v_cmpx_gt_u32_e32 vcc, v2, v3", {2, 3}, {kAny, kAny, kAny, 0}},
    {"gfx90a",
     {0xd289000a, 0x00010b02},
     "v_readlane_b32 s10, v2, 5",
     {100},
     {kAny, kAny, 105},
     true},
    {"gfx942", {0x7e007102}, "v_mov_b64_e32 v[0:1], v[2:3]", {5, 6}, {5, 6}},
    {"gfx942",
     {0xd2080000, 0x00310502},
     "v_lshl_add_u64 v[0:1], v[2:3], 2, s[12:13]",
     {0x40000000, 1},
     {2, 5}},
    {"gfx1030",
     {0x50000702},
     "v_add_co_ci_u32_e32 v0, vcc_lo, v2, v3, vcc_lo",
     {0xffffffff, 1},
     {1, kAny, kAny, 0xffffffff}},
    {"gfx1030",
     {0xd7780800, 0x00341902},
     "v_permlanex16_b32 v0, v2, s12, s13 op_sel:[1,0]",
     {100},
     {116},
     true},
    {"gfx1030",
     {0x7e0002e9, 0x05397702},
     "v_mov_b32_dpp v0, v2 dpp8:[7,6,5,4,3,2,1,0]",
     {100},
     {106},
     true},
    {"gfx1030",
     {0x7e0002fa, 0xff015302},
     "v_mov_b32_dpp v0, v2 row_share:3 row_mask:0xf bank_mask:0xf",
     {100},
     {103},
     true},
    {"gfx1030",
     {0x5a000702, 0x42280000},
     "v_fmaak_f32 v0, v2, v3, 0x42280000",
     {kTwo, kThree},
     {0x42400000}},
    {"gfx1030",
     {0xd76d0000, 0x040dff02, 0x00012345},
     "v_add3_u32 v0, v2, 0x12345, v3",
     {1, 2},
     {0x12348}},
    {"gfx1100",
     {0xc9060702, 0x00000b04},
     "v_dual_add_f32 v0, v2, v3 :: v_dual_mul_f32 v1, v4, v5",
     {kOne, kTwo, kTwo, kTwo},
     {kThree, 0x40800000}},
    {"gfx1100",
     {0xc8100702, 0x00000100},
     "v_dual_fmac_f32 v0, v2, v3 :: v_dual_mov_b32 v1, v0",
     {0, kTwo},
     {0xaaaabbbb, 0xaaaabbbb}},
    {"gfx1100",
     {0xd5030000, 0x000206fa, 0xff012102},
     "v_add_f32_e64_dpp v0, v2, v3 row_ror:1 row_mask:0xf bank_mask:0xf",
     {kOne, kOne},
     {kTwo},
     true},
    {"gfx1100",
     {0xcc164000, 0x3c120702},
     "v_dot4_i32_iu8 v0, v2, v3, v4 neg_lo:[1,0,0]",
     {0x000000ff, 0x000000ff, 1},
     {1 - 255 + uint64_t{0x100000000}}},
    {"gfx1201", {0x2c000702}, "v_max_num_f32_e32 v0, v2, v3", {0x7fc00000, kOne}, {kOne}},
    {"gfx1201",
     {0xd7660000, 0x00020702},
     "v_maximum_f32 v0, v2, v3",
     {0x7fc00000, kOne},
     {0x7fc00000}},
};

TEST(ValuDecoded, Snippets) {
  for (const Snippet& s : kSnippets) {
    Target target;
    ASSERT_TRUE(FindTarget(s.processor, &target)) << s.processor;
    const uint32_t lanes = target.AtLeast10() ? 32 : 64;
    std::string error;
    const auto decoder = Decoder::Create(target, lanes == 64, &error);
    ASSERT_NE(decoder, nullptr) << error;
    Inst inst;
    decoder->Decode(0, reinterpret_cast<const uint8_t*>(s.words.data()), 4 * s.words.size(), &inst);
    EXPECT_EQ(inst.text, s.text);
    EXPECT_EQ(inst.size, 4 * s.words.size()) << s.text;
    Rig rig(target.gen, lanes);
    rig.Fill(0, 0xaaaabbbb);
    rig.Fill(1, 0xaaaabbbb);
    for (size_t i = 0; i < s.in.size(); ++i) {
      for (uint32_t l = 0; l < lanes; ++l) rig.wave.V(2 + i)[l] = s.in[i] + (s.vary ? l : 0);
    }
    rig.wave.WriteS64(12, 2);
    rig.wave.WriteS64(kVccLo, 2);
    ASSERT_EQ(inst.handler(rig.wave, inst), Step::kNext) << s.text << ": " << rig.wave.fault.what;
    const uint32_t got[] = {rig.wave.V(0)[1], rig.wave.V(1)[1], rig.wave.ReadS(10),
                            rig.wave.ReadS(kVccLo)};
    const char* const names[] = {"v0", "v1", "s10", "vcc"};
    for (size_t i = 0; i < s.out.size(); ++i) {
      if (s.out[i] == kAny) continue;
      EXPECT_EQ(got[i], static_cast<uint32_t>(s.out[i])) << s.text << ": " << names[i];
    }
  }
}

}  // namespace
}  // namespace softgpu::test
