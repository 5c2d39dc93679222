// Loop depths: over graphs written out by hand, and over real code.
#include "patch/analysis/loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "patch/analysis/control_flow.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::BasicBlock;
using patch::LoopDepths;
using test::AssembleObject;
using test::Loaded;
using testing::ElementsAre;

// Block 0 is the entry.
std::vector<uint32_t> Depths(uint32_t count,
                             const std::vector<std::pair<uint32_t, uint32_t>>& edges) {
  std::vector<BasicBlock> blocks(count);
  blocks[0].entry = true;
  for (const auto& [from, to] : edges) {
    blocks[from].successors.push_back(to);
    blocks[to].predecessors.push_back(from);
  }
  return LoopDepths(blocks);
}

TEST(Loops, NoneOneAndNested) {
  EXPECT_THAT(Depths(3, {{0, 1}, {0, 2}, {1, 2}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(Depths(3, {{0, 1}, {1, 1}, {1, 2}}), ElementsAre(0, 1, 0)) << "a block by itself";
  EXPECT_THAT(Depths(6, {{0, 1}, {1, 2}, {2, 3}, {3, 2}, {3, 4}, {4, 1}, {4, 5}}),
              ElementsAre(0, 1, 2, 2, 1, 0));
}

TEST(Loops, TwoWaysBackAreOneLoop) {
  EXPECT_THAT(Depths(5, {{0, 1}, {1, 2}, {1, 3}, {2, 1}, {3, 1}, {3, 4}}),
              ElementsAre(0, 1, 1, 1, 0));
}

TEST(Loops, NeighboursDoNotAddUp) {
  EXPECT_THAT(Depths(5, {{0, 1}, {1, 1}, {1, 2}, {2, 3}, {3, 2}, {3, 4}}),
              ElementsAre(0, 1, 1, 1, 0));
}

TEST(Loops, InnerLoopWhoseHeaderEndsTheOuterOne) {
  EXPECT_THAT(Depths(4, {{0, 1}, {1, 2}, {2, 2}, {2, 1}, {1, 3}}), ElementsAre(0, 1, 2, 0));
}

// Two ways in: either header would do; none of the blocks outside is in it.
TEST(Loops, OfALoopWithTwoWaysInNothingOutsideCounts) {
  const auto depths = Depths(4, {{0, 1}, {0, 2}, {1, 2}, {2, 1}, {2, 3}});
  EXPECT_EQ(depths[0], 0u);
  EXPECT_EQ(depths[3], 0u);
  EXPECT_GE(depths[1] + depths[2], 1u);
}

TEST(Loops, CodeThatNothingLeadsToIsInItsOwnLoops) {
  EXPECT_THAT(Depths(4, {{0, 1}, {2, 3}, {3, 2}, {3, 1}}), ElementsAre(0, 0, 1, 1));
}

TEST(Loops, DeepNestsTakeNoLongerThanTheirEdges) {
  constexpr uint32_t kDepth = 100'000;
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (uint32_t b = 0; b + 1 < kDepth; ++b) edges.emplace_back(b, b + 1);
  for (uint32_t b = 1; b < kDepth; ++b) edges.emplace_back(kDepth - 1, b);
  const auto depths = Depths(kDepth, edges);
  EXPECT_EQ(depths.front(), 0u);
  EXPECT_EQ(depths.back(), kDepth - 1);
}

TEST(Loops, OfAKernel) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_mov_b32 s0, 0
  outer:
    s_mov_b32 s1, 0
  inner:
    s_add_u32 s1, s1, 1
    s_cmp_lt_u32 s1, 4
    s_cbranch_scc1 inner
    s_add_u32 s0, s0, 1
    s_cmp_lt_u32 s0, 4
    s_cbranch_scc1 outer
    s_endpgm)"}}));
  const patch::KernelAnalysis& kernel = loaded.Kernel();
  const std::vector<uint32_t> depths = LoopDepths(kernel.blocks());
  std::vector<uint32_t> by_instruction;
  for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
    by_instruction.push_back(depths[kernel.flow().block_of[i]]);
  }
  EXPECT_THAT(by_instruction, ElementsAre(0, 1, 2, 2, 2, 1, 1, 1, 0));
}

}  // namespace
}  // namespace rjdbi
