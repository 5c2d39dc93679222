// Manifests as YAML: the same as protobuf text, places of fields and errors, hostile
// texts.
#include "contract/manifest_yaml.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "contract/manifest.h"

namespace rjdbi::contract {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using testing::StartsWith;

// As people would write it: lists in both styles, comments, a folded text.
constexpr char kYaml[] = R"(# what it may do
schema_version: 1
probe: mine
purpose: >-
  Counts
  addresses.
memory: PRIVATE_TELEMETRY
control: [FALL_THROUGH]
synchronisation:
  - ATOMIC_SYSTEM_SCOPE
  - ATOMIC_AGENT_SCOPE
mask_policy: APPLICATION_MASK
max_instructions_per_event: 100
amdgpu:
  reads: [EXEC, SCC]
  max_temporary_sgprs: 16
user:
  entry: probe
  body_sha256:
    - DIGEST
  arguments:
    - source: TELEMETRY
    - register: s7
    - constant32: 12
  telemetry_words: 8
)";

constexpr char kText[] = R"(schema_version: 1
probe: "mine"
purpose: "Counts addresses."
memory: PRIVATE_TELEMETRY
control: FALL_THROUGH
synchronisation: ATOMIC_SYSTEM_SCOPE
synchronisation: ATOMIC_AGENT_SCOPE
mask_policy: APPLICATION_MASK
max_instructions_per_event: 100
amdgpu { reads: "EXEC" reads: "SCC" max_temporary_sgprs: 16 }
user {
  entry: "probe"
  body_sha256: "DIGEST"
  arguments { source: TELEMETRY }
  arguments { register: "s7" }
  arguments { constant32: 12 }
  telemetry_words: 8
}
)";

std::string WithDigest(const std::string& text) {
  return absl::StrReplaceAll(text, {{"DIGEST", std::string(64, 'a')}});
}

TEST(ManifestYaml, SaysTheSameAsText) {
  const auto yaml = Manifest::Parse(WithDigest(kYaml));
  const auto text = Manifest::Parse(WithDigest(kText));
  ASSERT_TRUE(yaml.ok()) << yaml.status();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(MessageDifferencer::Equals(yaml->proto(), text->proto()))
      << yaml->proto().DebugString();
}

TEST(ManifestYaml, EveryBuiltinProbeSurvivesTheWay) {
  for (const BuiltinProbe& probe : BuiltinProbes()) {
    const auto back = Manifest::Parse(WriteYaml(probe.manifest.proto()));
    ASSERT_TRUE(back.ok()) << probe.name << back.status();
    EXPECT_TRUE(MessageDifferencer::Equals(back->proto(), probe.manifest.proto())) << probe.name;
  }
}

TEST(ManifestYaml, TextsThatLookLikeOtherThings) {
  v1::Manifest manifest;
  for (const char* value :
       {"true", "12", "~", "", "- a", "a: b", "\"quoted\"", "line\nline", "#"}) {
    manifest.set_purpose(value);
    v1::Manifest back;
    ASSERT_TRUE(ReadYaml(
                    WriteYaml(manifest), [](auto&&...) {}, &back)
                    .ok())
        << value;
    EXPECT_EQ(back.purpose(), value);
  }
}

TEST(ManifestYaml, PlacesAreThoseOfTheText) {
  const auto m = Manifest::Parse(WithDigest(kYaml));
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_EQ(m->LineOf("probe"), 3u);
  EXPECT_EQ(m->LineOf("synchronisation[1]"), 11u);
  EXPECT_EQ(m->LineOf("amdgpu.reads[1]"), 15u);
  EXPECT_EQ(m->ColumnOf("amdgpu.reads[1]"), 17u);
  EXPECT_EQ(m->LineOf("user.arguments[2]"), 24u);
  EXPECT_EQ(m->LineOf("amdgpu.max_temporary_vgprs"), 14u) << "absent: the section's line";
}

TEST(ManifestYaml, ErrorsNameThePlace) {
  const struct {
    const char *from, *to, *expected;
  } cases[] = {
      {"probe: mine", "prob: mine", "line 3, column 1: unknown field \"prob\"; known are schema_"},
      {"[FALL_THROUGH]", "[FALLS]",
       "line 8, column 11: control[0]: unknown \"FALLS\"; known are "
       "FALL_THROUGH, CALLS, ENDS_PROGRAM"},
      {"event: 100", "event: -1", "line 13, column 29: max_instructions_per_event: expected a "},
      {"event: 100", "event: 9999999999", "line 13, column 29: max_instructions_per_event: 9999"},
      {"event: 100", "event: 1e2", "expected a whole number of 0 or more, found \"1e2\""},
      {"event: 100", "event: [1]", "expected a whole number of 0 or more, found a list"},
      {"probe: mine", "probe:", "line 3, column 1: probe: expected a text, found nothing"},
      {"probe: mine", "probe: {a: b}", "line 3, column 8: probe: expected a text, found fields"},
      {"amdgpu:\n", "amdgpu: 3\nmemory:\n", "expected fields"},
      {"mask_policy: A", "probe: twice\nmask_policy: A", "line 12, column 1: probe is given twice"},
      {"register: s7", "register: s7\n      source: ADDRESS", "only one field of the value"},
      {"register: s7", "register: q7", "line 23, column 7: argument 2 names nothing"},
      {"schema_version: 1", "schema_version: 2", "line 2, column 1: schema_version must be 1"},
      {"reads: [EXEC, SCC]", "reads: [EXEC, SSC]", "line 15, column 17: amdgpu.reads: unknown"},
      {"telemetry_words: 8\n", "telemetry_words: 8\n---\nprobe: x\n", "a second document"},
      {"[EXEC, SCC]", "[EXEC, SCC", "line 1"},
      {"probe: mine", "\tprobe: mine", "line 3"},
      {"probe: mine", "probe: *nobody", "line 3"},
      {"mask_policy: APPLICATION_MASK", "mask_policy: MASK_POLICY_UNSPECIFIED", "known are APPL"},
  };
  for (const auto& c : cases) {
    const std::string text = absl::StrReplaceAll(WithDigest(kYaml), {{c.from, c.to}});
    ASSERT_NE(text, WithDigest(kYaml)) << c.from;
    const auto m = Manifest::Parse(text);
    ASSERT_FALSE(m.ok()) << c.to;
    EXPECT_THAT(std::string(m.status().message()), StartsWith("line ")) << c.to;
    EXPECT_THAT(std::string(m.status().message()), HasSubstr(c.expected)) << c.to;
  }
}

TEST(ManifestYaml, WhichOfTheTwoAnErrorSpeaksOf) {
  EXPECT_TRUE(LooksLikeYaml("---\nprobe: \"p\"\n"));
  EXPECT_TRUE(LooksLikeYaml("probe: p\namdgpu:\n  reads: [SCC]\n"));
  EXPECT_TRUE(LooksLikeYaml("amdgpu: {reads: [SCC]}\n"));
  EXPECT_FALSE(LooksLikeYaml("# text\nprobe: p\namdgpu {\n  reads: \"SCC\"\n}\n"));
  EXPECT_FALSE(LooksLikeYaml("amdgpu < reads: \"SCC\" >\n"));
}

TEST(ManifestYaml, HostileTextsAreErrors) {
  std::string aliases = "a0: &a0 [x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = absl::StrCat("*a", i - 1);
    absl::StrAppend(&aliases, "a", i, ": &a", i, " [", before, ", ", before, "]\n");
  }
  const std::string deep = "purpose: " + std::string(20000, '[');
  const std::string self = "amdgpu: &a\n  reads: *a\n";
  const std::string loop = "user: &u\n  arguments: [*u]\n";
  for (const std::string& text :
       {aliases, deep, self, loop, std::string("\xff\xfe\x00z", 4), std::string(1000, '\0'),
        std::string("? [a]\n: b\n"), std::string("- a\n- b\n"), std::string("just text")}) {
    EXPECT_FALSE(Manifest::Parse(text).ok()) << text.substr(0, 40);
  }
}

TEST(ManifestYaml, ChangedTextsAreReadOrRefusedWithAPlace) {
  const std::string good = WithDigest(kYaml);
  std::mt19937 random(7);
  const std::string alphabet = "\n\t -:[]{}&*!|>'\"%@`#,?~0a";
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = alphabet[random() % alphabet.size()];
      else
        text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    const auto m = Manifest::Parse(text);
    if (m.ok()) continue;
    ++refused;
    EXPECT_THAT(std::string(m.status().message()), StartsWith("line ")) << text;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace rjdbi::contract
