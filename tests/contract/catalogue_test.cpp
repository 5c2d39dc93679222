// The catalogue, its documents, the built-in manifests and name matching.
#include "contract/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "contract/catalogue_text.h"
#include "contract/demangle.h"
#include "contract/manifest.h"

namespace rjdbi::contract {
namespace {

using patch::Reason;
using testing::HasSubstr;

TEST(Catalogue, IdsAreWellFormedUniqueAndOrdered) {
  const std::regex form("RJD-[SRPOEBAGDU][0-9]{3}");
  std::string previous;
  for (const CatalogueEntry& e : All()) {
    const std::string id(e.id);
    EXPECT_TRUE(std::regex_match(id, form)) << id;
    EXPECT_LT(previous, id);
    EXPECT_EQ(Find(id), &e);
    previous = id;
  }
}

TEST(Catalogue, EveryEntrySaysWhatWhyAndWhatNext) {
  for (const CatalogueEntry& e : All()) {
    EXPECT_FALSE(e.title.empty()) << e.id;
    EXPECT_NE(e.title.back(), '.') << e.id;
    EXPECT_GT(e.explanation.size(), 60u) << e.id;
    EXPECT_EQ(e.explanation.back(), '.') << e.id;
    EXPECT_EQ(e.next_step.back(), '.') << e.id;
  }
}

TEST(Catalogue, EveryReasonHasExactlyOneEntry) {
  std::map<Reason, int> entries;
  for (const CatalogueEntry& e : All()) ++entries[e.reason];
  for (int r = 1; r <= static_cast<int>(Reason::kAssemblerFailed); ++r) {
    const auto reason = static_cast<Reason>(r);
    EXPECT_EQ(entries[reason], 1) << "reason " << r;
    EXPECT_EQ(ForReason(reason).reason, reason);
  }
  EXPECT_EQ(ForReason(Reason::kNone).id, id::kEngineFault);
}

TEST(Catalogue, EveryRuleForBodiesHasExactlyOneEntry) {
  std::map<patch::BodyRule, int> entries;
  for (const CatalogueEntry& e : All()) {
    if (e.rule) ++entries[*e.rule];
  }
  for (int r = 0; r <= static_cast<int>(patch::BodyRule::kLoadsLeft); ++r) {
    const auto rule = static_cast<patch::BodyRule>(r);
    EXPECT_EQ(entries[rule], 1) << "rule " << r;
    EXPECT_EQ(ForRule(rule).rule, rule);
  }
}

TEST(Catalogue, EveryGapHasExactlyOneEntry) {
  std::map<int, int> entries;
  for (const CatalogueEntry& e : All()) ++entries[e.gap];
  for (int g = v1::GapKind_MIN + 1; g <= v1::GapKind_MAX; ++g) {
    if (!v1::GapKind_IsValid(g)) continue;
    EXPECT_EQ(entries[g], 1) << v1::GapKind_Name(g);
    EXPECT_EQ(ForGap(static_cast<v1::GapKind>(g)).gap, g);
  }
}

TEST(Catalogue, UnknownIdsAreNotFound) {
  for (const char* wrong : {"", "RJD-S000", "rjd-s001", "RJD-S001 ", "RJD-Z999"}) {
    EXPECT_EQ(Find(wrong), nullptr) << wrong;
  }
}

TEST(Catalogue, ViolationsAreComplete) {
  v1::Location place;
  place.set_kernel("k");
  const v1::Violation v = MakeViolation(id::kSgprBudget, "12 SGPRs", "8 SGPRs", place);
  EXPECT_EQ(v.constraint_id(), "RJD-B001");
  EXPECT_EQ(v.location().kernel(), "k");
  EXPECT_FALSE(v.message().empty());
  EXPECT_THAT(v.next_step(), HasSubstr("--max-sgpr-delta"));
}

TEST(Catalogue, DocumentIsUpToDate) {
  std::ifstream file(std::string(RJDBI_SOURCE_DIR) + "/docs/reasons.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == CatalogueMarkdown())
      << "run: rjdbi_catalogue_doc markdown > docs/reasons.md";
}

TEST(Catalogue, ManPageNamesEveryId) {
  const std::string text = CatalogueScdoc();
  EXPECT_EQ(text.rfind("rjdbi-reasons(7)\n", 0), 0u);
  for (const CatalogueEntry& e : All()) EXPECT_THAT(text, HasSubstr("*" + std::string(e.id) + "*"));
}

TEST(Manifest, EveryProbeHasOneOfItsOwnName) {
  std::set<patch::Probe> probes;
  for (const BuiltinProbe& p : BuiltinProbes()) {
    EXPECT_EQ(p.manifest.proto().probe(), p.name);
    probes.insert(p.probe);
    EXPECT_EQ(FindProbe(p.name), &p);
  }
  EXPECT_EQ(probes.size(), 8u);
  EXPECT_EQ(FindProbe("nosuch"), nullptr);
  EXPECT_TRUE(FindProbe("sabotage")->manifest.proto().amdgpu().requires_double_opt_in());
}

TEST(Manifest, LinesAreThoseOfTheText) {
  const auto m = Manifest::Parse(
      "schema_version: 1\nprobe: \"p\"\n\ncontrol: FALL_THROUGH\nmask_policy: SINGLE_LANE\n"
      "max_instructions_per_event: 3\namdgpu {\n  reads: \"SCC\"\n}\n");
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->LineOf("control"), 4u);
  EXPECT_EQ(m->LineOf("amdgpu.reads"), 8u);
  EXPECT_EQ(m->LineOf("memory"), 2u) << "absent: the line of `probe`";
  EXPECT_TRUE(m->DeclaresRead("SCC"));
  EXPECT_FALSE(m->DeclaresRead("VCC"));
}

TEST(Manifest, ErrorsNameThePlace) {
  const struct {
    const char *text, *expected;
  } cases[] = {
      {"schema_version: 1\nprobe: nop\namdgpu {}\n", "line 2, column 8"},
      {"schema_version: 1\nmemory: EVERYTHING\namdgpu {}\n",
       "Unknown enumeration value of \"EVERYTHING\""},
      {"schema_version: 1\nmemory: EVERYTHING\n", "line 2, column 9: memory[0]: unknown"},
      {"schema_version: 2\nprobe: \"p\"\n", "line 1, column 1: schema_version must be 1"},
      {"schema_version: 1\nprobe: \"p\"\ncontrol: CALLS\n", "mask_policy must be declared"},
      {"", "schema_version"},
  };
  for (const auto& c : cases) {
    const auto m = Manifest::Parse(c.text);
    ASSERT_FALSE(m.ok()) << c.text;
    EXPECT_THAT(std::string(m.status().message()), HasSubstr(c.expected)) << c.text;
  }
}

TEST(Names, MangledDemangledAndBareNamesMatch) {
  const std::string name = "_Z6reduceIfEvPT_i";
  EXPECT_EQ(Demangle(name), "void reduce<float>(float*, int)");
  EXPECT_TRUE(KernelMatches("*", name));
  EXPECT_TRUE(KernelMatches("_Z6reduce*", name));
  EXPECT_TRUE(KernelMatches("void reduce<float>(*", name));
  EXPECT_TRUE(KernelMatches("reduce<*>", name));
  EXPECT_FALSE(KernelMatches("reduce", name));
  EXPECT_TRUE(KernelMatches("scale", "_Z5scalePfi"));
  EXPECT_FALSE(KernelMatches("scal", "_Z5scalePfi"));
}

TEST(Names, HostileNamesStayBounded) {
  // Each level of the template refers to the previous one twice.
  std::string bomb = "_Z1fSt4pairIiiE";
  std::string nested = "S0_";
  for (int i = 0; i < 60; ++i) bomb += "St4pairIS" + std::to_string(i % 10) + "_S0_E";
  EXPECT_EQ(Demangle(bomb), bomb);
  const std::string longer = "_Z1f" + std::string(5000, 'i');
  EXPECT_EQ(Demangle(longer), longer);
  const std::string binary("_Z\x01\xff\x00zz", 7);
  EXPECT_EQ(Demangle(binary), binary);
}

}  // namespace
}  // namespace rjdbi::contract
