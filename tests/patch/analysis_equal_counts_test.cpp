// Regions of equally often executed instructions.
#include "patch/analysis/equal_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/analysis_assemble.h"

namespace rjdbi {
namespace {

using patch::EqualCountRegions;
using test::AssembleObject;
using test::Loaded;
using testing::ElementsAre;

TEST(EqualCounts, ABlockIsARegion) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    s_cbranch_scc1 1
    s_nop 1
    s_nop 2
    s_endpgm)"}}));
  EXPECT_THAT(EqualCountRegions(loaded.Kernel()), ElementsAre(0, 0, 1, 2, 2));
}

TEST(EqualCounts, ACallEndsARegion) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    s_swappc_b64 s[30:31], s[4:5]
    s_nop 1
    s_endpgm)"}}));
  EXPECT_THAT(EqualCountRegions(loaded.Kernel()), ElementsAre(0, 0, 1, 1));
}

TEST(EqualCounts, NothingIsSharedWhereABranchMayLandAnywhere) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_nop 0
    s_nop 1
    s_setpc_b64 s[4:5]
    s_endpgm)"}}));
  EXPECT_THAT(EqualCountRegions(loaded.Kernel()), ElementsAre(0, 1, 2, 3));
}

TEST(EqualCounts, NothingIsSharedWhereInstructionsAreSkipped) {
  Loaded loaded(AssembleObject("gfx90a", 64, {{.body = R"(
    s_setvskip s0, 1
    v_mov_b32_e32 v0, 0
    s_endpgm)"}}));
  EXPECT_THAT(EqualCountRegions(loaded.Kernel()), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace rjdbi
