// What was probably meant by names that match nothing, and the instructions shown
// around a refused place.
#include "contract/near_miss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/admission.h"
#include "contract/inspect.h"
#include "contract/render.h"
#include "patch/analysis/selector.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(NearMiss, NearestFirst) {
  const std::set<std::string> known = {"reduce", "Reduce_all", "produce", "scan", "radix_sort"};
  EXPECT_THAT(ClosestNames("REDUCE", known), ElementsAre("reduce", "Reduce_all", "produce"));
  EXPECT_THAT(ClosestNames("redcue", known), ElementsAre("reduce")) << "two letters exchanged";
  EXPECT_THAT(ClosestNames("*sort_radix*", known), IsEmpty());
  EXPECT_THAT(ClosestNames("*_sort", {"radix_sort"}), ElementsAre("radix_sort"));
  EXPECT_THAT(ClosestNames("scam[0-9]", known), ElementsAre("scan"));
  EXPECT_THAT(ClosestNames("x", known), IsEmpty()) << "nothing is near";
  EXPECT_THAT(ClosestNames("", known), IsEmpty());
  EXPECT_EQ(ClosestNames("kernel_", {"kernel_a", "kernel_b", "kernel_c", "kernel_d"}).size(), 3u);
}

TEST(NearMiss, KernelsAreShownAsAGlobWouldMatchThem) {
  const std::vector<std::string> kernels = {"_Z6reduceIfEvPT_i", "_Z5scalePfi", "plain"};
  EXPECT_THAT(ClosestKernels("scael", kernels), ElementsAre("scale"));
  EXPECT_THAT(ClosestKernels("redduce", kernels), ElementsAre("reduce<*>"));
  EXPECT_THAT(ClosestKernels("reduce", kernels), ElementsAre("reduce<float>"));
  EXPECT_THAT(ClosestKernels("_Z5scalePif", kernels), ElementsAre("_Z5scalePfi"));
  EXPECT_THAT(ClosestKernels("scale(float*, unt)", kernels), ElementsAre("scale(float*, int)"));
  for (const char* glob : {"scael", "redduce", "reduce"}) {
    const std::string meant = ClosestKernels(glob, kernels).at(0);
    EXPECT_TRUE(patch::GlobMatch(meant, "scale") || patch::GlobMatch(meant, "reduce<float>"));
  }
}

TEST(NearMiss, LongAndHostileNamesCostLittle) {
  const std::string longest(1 << 20, 'a');
  EXPECT_THAT(ClosestNames(longest + "b", {longest, std::string("\xff\0z", 3)}), Not(Contains("")));
}

TEST(NearMiss, ReadsAsAQuestion) {
  EXPECT_EQ(DidYouMean({}), "");
  EXPECT_EQ(DidYouMean({"a"}), "did you mean 'a'?");
  EXPECT_EQ(DidYouMean({"a", "b", "c"}), "did you mean 'a', 'b' or 'c'?");
}

TEST(NearMiss, SlipsInASpecification) {
  v1::AttachmentSpec spec;
  spec.set_kernel_glob("*");
  spec.set_sites("entry or memroy(read)");
  spec.set_probe("count-wave");
  const auto violations = CheckSpec(spec, DefaultPolicy());
  ASSERT_EQ(violations.size(), 2u);
  EXPECT_THAT(violations[0].message(), HasSubstr("did you mean 'memory'?"));
  EXPECT_THAT(violations[1].message(), HasSubstr("did you mean 'count-waves'"));
  spec.set_sites("");
  spec.set_probe("\xff");
  for (const v1::Violation& v : CheckSpec(spec, DefaultPolicy())) {
    EXPECT_THAT(v.message(), Not(HasSubstr("did you mean")));
  }
}

constexpr char kBody[] = R"(
  s_load_dwordx2 s[0:1], s[0:1], 0x0
  v_lshlrev_b32 v2, 2, v0
  s_waitcnt lgkmcnt(0)
  s_getpc_b64 s[4:5]
  global_store_dword v2, v0, s[0:1]
  ds_write_b32 v2, v0
  s_endpgm)";

TEST(NearMiss, OpcodesOfTheKernelsAndFamilies) {
  const auto object = test::AssembleObject("gfx90a", 64, {{.name = "gather", .body = kBody}});
  EXPECT_EQ(NearMiss(object, "gathre", "memory"), "did you mean 'gather'?");
  EXPECT_EQ(NearMiss(object, "*", "gloabl_store*"), "did you mean 'global_store_dword'?");
  EXPECT_EQ(NearMiss(object, "*", "entry or ds_wirte*"), "did you mean 'ds_write_b32'?");
  EXPECT_EQ(NearMiss(object, "*", "memroy"), "") << "does not parse: CheckSpec's to say";
  EXPECT_EQ(NearMiss(object, "*", "mfma"), "") << "a family, and the kernel has none of it";
  EXPECT_EQ(NearMiss({}, "*", "memory"), "");
}

TEST(Excerpt, MarksTheSiteAmongItsNeighbours) {
  const auto object = test::AssembleObject("gfx90a", 64, {{.name = "gather", .body = kBody}});
  google::protobuf::RepeatedPtrField<v1::Decision> decisions;
  const auto refuse = [&](const std::string& kernel, uint64_t offset, const std::string& message) {
    v1::Decision& d = *decisions.Add();
    d.mutable_site()->mutable_location()->set_kernel(kernel);
    d.mutable_site()->mutable_location()->set_kernel_offset(offset);
    d.add_violations()->set_constraint_id("RJD-S003");
    d.mutable_violations(0)->set_message(message);
  };
  refuse("gather", 16, "reads the program counter");
  refuse("gather", 0, "reads the program counter");
  refuse("gather", 2, "no instruction");
  refuse("other", 0, "not here");
  decisions.Add();  // attached
  AddExcerpts(object, 10, &decisions);
  EXPECT_EQ(decisions[0].violations(0).excerpt(),
            "  +0x0  s_load_dwordx2 s[0:1], s[0:1], 0x0\n"
            "  +0x8  v_lshlrev_b32_e32 v2, 2, v0\n"
            "  +0xc  s_waitcnt lgkmcnt(0)\n"
            "> +0x10  s_getpc_b64 s[4:5]\n"
            "  +0x14  global_store_dword v2, v0, s[0:1]\n"
            "  +0x1c  ds_write_b32 v2, v0\n"
            "  +0x24  s_endpgm\n");
  EXPECT_THAT(decisions[1].violations(0).excerpt(), HasSubstr("> +0x0  s_load_dwordx2"));
  EXPECT_EQ(decisions[2].violations(0).excerpt(), "");
  EXPECT_EQ(decisions[3].violations(0).excerpt(), "");
  EXPECT_THAT(RenderViolation(decisions[0].violations(0), {.colour = true}),
              HasSubstr("\033[1;31m> +0x10  s_getpc_b64 s[4:5]\033[0m"));

  for (v1::Decision& d : decisions) {
    if (!d.violations().empty()) d.mutable_violations(0)->clear_excerpt();
  }
  AddExcerpts(object, 3, &decisions);  // more decisions than that: one of each reason
  EXPECT_NE(decisions[0].violations(0).excerpt(), "");
  EXPECT_EQ(decisions[1].violations(0).excerpt(), "");
}

}  // namespace
}  // namespace rjdbi::contract
