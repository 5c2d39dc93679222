// Users' probes from the text of a manifest to decisions: what is refused and where,
// what is proven, and what is granted.
#include "contract/user_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "contract/decisions.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"

namespace rjdbi::contract {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kReturn[] = "\ns_setpc_b64 s[30:31]";

std::string DigestOf(const std::vector<uint8_t>& object) {
  const auto parsed = patch::DeviceObject::Parse(object);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? FunctionDigest(parsed->functions().at(0)) : "";
}

// All that a probe may need, and no memory but its own.
constexpr char kManifest[] = R"(schema_version: 1
probe: "mine"
memory: PRIVATE_TELEMETRY
control: FALL_THROUGH
synchronisation: ATOMIC_SYSTEM_SCOPE
synchronisation: ATOMIC_AGENT_SCOPE
mask_policy: APPLICATION_MASK
max_instructions_per_event: 100
max_telemetry_bytes_per_event: 4096
amdgpu {
  reads: "EXEC"
  reads: "SCC"
  reads: "VCC"
  reads: "VGPR"
  reads: "SGPR"
  max_temporary_sgprs: 16
  max_temporary_vgprs: 16
}
user {
  entry: "probe"
  body_sha256: "DIGEST"
  arguments { source: TELEMETRY }
  arguments { source: ADDRESS }
  telemetry_words: 8
}
)";

struct Probe {
  std::string lines;     // without the return
  std::string manifest;  // DIGEST stands for the function's
};

v1::AttachmentSpec SpecOf(const Probe& probe, const std::string& processor = "gfx90a") {
  const std::vector<uint8_t> object = test::AssembleProbe(processor, probe.lines + kReturn);
  v1::AttachmentSpec spec;
  spec.set_kernel_glob("*");
  spec.set_sites("global_store_*");
  spec.set_probe("mine");
  spec.set_probe_object(std::string(object.begin(), object.end()));
  spec.set_probe_manifest(absl::StrReplaceAll(probe.manifest, {{"DIGEST", DigestOf(object)}}));
  return spec;
}

std::vector<std::string> Ids(const std::vector<v1::Violation>& violations) {
  std::vector<std::string> ids;
  for (const v1::Violation& v : violations) ids.push_back(v.constraint_id());
  return ids;
}

constexpr char kKernelBody[] = R"(
  s_load_dwordx2 s[0:1], s[0:1], 0x0
  v_lshlrev_b32 v2, 2, v0
  v_mov_b32 v1, 7
  v_cmp_gt_u32 vcc, 40, v0
  s_cmp_eq_u32 s2, 0
  s_waitcnt lgkmcnt(0)
  global_store_dword v2, v1, s[0:1] offset:16
  v_cndmask_b32 v1, 0, v1, vcc
  s_cselect_b32 s3, 1, 0
  v_add_u32 v1, s3, v1
  global_store_dword v2, v1, s[0:1] offset:512
  s_endpgm)";

v1::AdmissionRecord AdmitOne(v1::AttachmentSpec spec, const std::string& body = kKernelBody) {
  static const std::vector<uint8_t>& plain =
      *new std::vector<uint8_t>(test::AssembleObject("gfx90a", 64, {{.body = kKernelBody}}));
  const std::vector<uint8_t> object =
      body == kKernelBody ? plain : test::AssembleObject("gfx90a", 64, {{.body = body}});
  v1::Attachment attachment;
  attachment.set_id("a1");
  *attachment.mutable_spec() = std::move(spec);
  auto rewriter = patch::MakeTrampolineRewriter();
  Policy policy = DefaultPolicy();
  policy.defaults.set_max_injected_instructions_per_event(256);
  policy.ceiling = v1::Budget();
  return Expanded(Admit(object, {attachment}, policy, *rewriter).record);
}

// ---- manifests -----------------------------------------------------------------------

struct BadManifest {
  const char* from;
  const char* to;
  const char* message;  // where, and what
};
const BadManifest kBadManifests[] = {
    {"control: FALL_THROUGH", "control: FALLS_THROUGH",
     "line 5, column 1: Unknown enumeration value"},
    {"entry: \"probe\"", "", "line 19, column 1: user.entry must name the function"},
    {"\"DIGEST\"", "\"beef\"", "line 21, column 3: user.body_sha256 must be 64"},
    {"source: ADDRESS", "register: \"q7\"",
     "line 23, column 3: argument 2 names nothing that can be passed: { register: \"q7\" }"},
    {"source: ADDRESS", "", "line 23, column 3: argument 2 names nothing"},
    {"telemetry_words: 8", "telemetry_words: 0", "line 22, column 3: TELEMETRY is passed"},
    {"telemetry_words: 8", "telemetry_words: 1000", "line 24, column 3: user.telemetry_words"},
    {"telemetry_words: 8", "telemetry_words: 8 wavefront_size: 48", "line 24, column 22"},
    {"reads: \"SCC\"", "reads: \"SSC\"", "line 12, column 3: amdgpu.reads: unknown state"},
};

TEST(UserProbeManifest, ErrorsNameTheirPlace) {
  const std::string digest(64, 'a');
  const std::string good = absl::StrReplaceAll(kManifest, {{"DIGEST", digest}});
  ASSERT_TRUE(Manifest::Parse(good).ok()) << Manifest::Parse(good).status();
  for (const BadManifest& bad : kBadManifests) {
    const std::string text = absl::StrReplaceAll(
        absl::StrReplaceAll(kManifest, {{bad.from, bad.to}}), {{"DIGEST", digest}});
    const auto parsed = Manifest::Parse(text);
    ASSERT_FALSE(parsed.ok()) << bad.message;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(bad.message));
  }
}

TEST(UserProbeManifest, RegistersByName) {
  EXPECT_EQ(ParseRegisterArgument("s7")->reg, patch::kSgpr0 + 7);
  EXPECT_EQ(ParseRegisterArgument("v[2:3]")->dwords, 2);
  EXPECT_EQ(ParseRegisterArgument("v[2:3]")->reg, patch::kVgpr0 + 2);
  EXPECT_EQ(ParseRegisterArgument("vcc")->dwords, 2);
  for (const char* wrong : {"", "s", "s102", "v256", "v[2:4]", "v[3:2]", "v[2", "v2]", "v[2:3",
                            "x1", "s-1", "s1 ", "v[:2]"}) {
    EXPECT_FALSE(ParseRegisterArgument(wrong).has_value()) << wrong;
  }
}

// The text shows what ships.
TEST(UserProbeDocumentation, ShowsTheExample) {
  const auto read = [](const std::string& name) {
    std::ifstream file(std::string(RJDBI_SOURCE_DIR) + "/" + name);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  const std::string example = read("deploy/examples/misaligned.hip");
  ASSERT_FALSE(example.empty());
  EXPECT_THAT(read("docs/user-probes.md"), HasSubstr("```cpp\n" + example + "```"));
}

// ---- the specification ---------------------------------------------------------------

constexpr char kAddOne[] =
    "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\nv_mov_b32 v2, 1\nv_mov_b32 v3, 0\n"
    "global_atomic_add_x2 v[0:1], v[2:3], off\ns_waitcnt vmcnt(0)";

TEST(UserProbeSpec, AcceptedWhenAllFits) {
  EXPECT_THAT(Ids(CheckSpec(SpecOf({kAddOne, kManifest}), DefaultPolicy())), IsEmpty());
}

TEST(UserProbeSpec, OfAnotherFunction) {
  v1::AttachmentSpec spec = SpecOf({kAddOne, kManifest});
  const std::vector<uint8_t> other =
      test::AssembleProbe("gfx90a", std::string(kAddOne) + "\ns_nop 0" + kReturn);
  spec.set_probe_object(std::string(other.begin(), other.end()));
  const auto violations = CheckSpec(spec, DefaultPolicy());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].constraint_id(), id::kProbeFunction);
  EXPECT_EQ(violations[0].observed(), DigestOf(other));
  EXPECT_EQ(violations[0].location().manifest_line(), 21u);
}

TEST(UserProbeSpec, PartsThatAreMissingOrWrong) {
  const v1::AttachmentSpec good = SpecOf({kAddOne, kManifest});
  v1::AttachmentSpec spec = good;
  spec.clear_probe_manifest();
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains(id::kProbeManifest));
  spec = good;
  spec.clear_probe_object();
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains(id::kProbeObject));
  spec = good;
  spec.set_probe_object("\177ELF and nothing");
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains(id::kProbeObject));
  spec = good;
  spec.set_probe("another");
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains(id::kProbeManifest));
  spec = SpecOf({kAddOne, absl::StrReplaceAll(kManifest, {{"\"mine\"", "\"nop\""}})});
  spec.set_probe("nop");
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains(id::kProbeManifest));
  spec = SpecOf({kAddOne, absl::StrReplaceAll(kManifest, {{"\"probe\"", "\"porbe\""}})});
  const auto violations = CheckSpec(spec, DefaultPolicy());
  EXPECT_THAT(Ids(violations), Contains(id::kProbeFunction));
  EXPECT_EQ(violations[0].limit(), "probe");  // what there is
  spec = SpecOf({"v_mov_b32 v0, v4", kManifest});
  EXPECT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), Contains("RJD-U011"));
}

// Every body that is refused wherever it goes is refused when it is attached.
TEST(UserProbeSpec, BodiesAreRead) {
  const std::pair<const char*, const char*> bodies[] = {
      {"s_branch 100", "RJD-U004"},
      {"s_mov_b64 s[4:5], 0\ns_swappc_b64 s[6:7], s[4:5]", "RJD-U005"},
      {"s_nop 0\ns_cbranch_scc0 65534", "RJD-U006"},
      {"scratch_store_dword v0, v1, off", "RJD-U007"},
      {"ds_write_b32 v0, v1", "RJD-U008"},
      {"s_barrier", "RJD-U009"},
      {"v_accvgpr_write_b32 a0, v0", "RJD-U010"},
      {"v_mov_b32 v0, v40", "RJD-U011"},
      {"global_load_dword v4, v[2:3], off", "RJD-U012"},
  };
  for (const auto& [lines, id] : bodies) {
    const auto violations = CheckSpec(SpecOf({lines, kManifest}), DefaultPolicy());
    ASSERT_FALSE(violations.empty()) << lines;
    EXPECT_EQ(violations[0].constraint_id(), id) << lines;
    EXPECT_FALSE(violations[0].observed().empty()) << lines;
    EXPECT_FALSE(violations[0].limit().empty()) << lines;
    EXPECT_TRUE(violations[0].location().in_probe());
    EXPECT_FALSE(violations[0].location().instruction().empty());
    EXPECT_FALSE(violations[0].next_step().empty());
  }
}

// ---- what is proven at a site ----------------------------------------------------------

struct Judged {
  const char* name;
  const char* lines;
  std::pair<std::string, std::string> change;  // of the manifest
  const char* id;                              // nullptr: admitted
};

// Arguments: the telemetry block's address in v[0:1], the store's in v[2:3].
const Judged kJudged[] = {
    {"own words", "global_store_dword v[0:1], v2, off offset:60", {}, nullptr},
    {"behind them", "global_store_dword v[0:1], v2, off offset:64", {}, "RJD-E002"},
    {"in front", "global_store_dword v[0:1], v2, off offset:-4", {}, "RJD-E002"},
    {"across the end", "global_store_dwordx2 v[0:1], v[2:3], off offset:60", {}, "RJD-E002"},
    {"fewer words than declared",
     "global_store_dword v[0:1], v2, off offset:8",
     {"telemetry_words: 8", "telemetry_words: 1"},
     "RJD-E002"},
    {"masked index",
     "v_lshlrev_b32 v4, 3, v2\nv_and_b32 v4, 56, v4\nv_add_co_u32 v0, vcc, v0, v4\n"
     "v_addc_co_u32 v1, vcc, 0, v1, vcc\nglobal_atomic_add_x2 v[0:1], v[2:3], off",
     {},
     nullptr},
    {"index out of bounds",
     "v_lshlrev_b32 v4, 3, v2\nv_and_b32 v4, 0x78, v4\nv_add_co_u32 v0, vcc, v0, v4\n"
     "v_addc_co_u32 v1, vcc, 0, v1, vcc\nglobal_atomic_add_x2 v[0:1], v[2:3], off",
     {},
     "RJD-E002"},
    {"index that is no multiple",
     "v_and_b32 v4, 7, v2\nv_add_co_u32 v0, vcc, v0, v4\n"
     "v_addc_co_u32 v1, vcc, 0, v1, vcc\nglobal_atomic_add_x2 v[0:1], v[2:3], off",
     {},
     "RJD-E002"},
    {"index without a bound",
     "v_add_co_u32 v0, vcc, v0, v2\nv_addc_co_u32 v1, vcc, 0, v1, vcc\n"
     "global_store_dword v[0:1], v2, off",
     {},
     "RJD-E002"},
    {"carry of another sum",
     "v_and_b32 v4, 56, v2\nv_add_co_u32 v5, vcc, v0, v4\nv_add_co_u32 v0, s[4:5], v0, v4\n"
     "v_addc_co_u32 v1, vcc, 0, v1, vcc\nglobal_store_dword v[0:1], v2, off",
     {},
     "RJD-E002"},
    {"no carry",
     "v_and_b32 v4, 56, v2\nv_add_u32 v0, v0, v4\nglobal_store_dword v[0:1], v2, off",
     {},
     "RJD-E002"},
    {"multiplied index",
     "v_and_b32 v4, 7, v2\nv_mov_b32 v5, 0\nv_mad_u64_u32 v[0:1], s[4:5], v4, 8, v[0:1]\n"
     "global_atomic_add_x2 v[0:1], v[2:3], off",
     {},
     nullptr},
    {"a loop over words",
     "s_mov_b32 s4, 4\ns_lshl_b32 s6, s4, 3\nv_add_co_u32 v4, vcc, s6, v0\n"
     "v_addc_co_u32 v5, vcc, 0, v1, vcc\nglobal_atomic_add_x2 v[4:5], v[2:3], off\n"
     "s_add_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 8\ns_cbranch_scc1 65528",
     {},
     nullptr},
    {"a loop over words, one too far",
     "s_mov_b32 s4, 5\ns_lshl_b32 s6, s4, 3\nv_add_co_u32 v4, vcc, s6, v0\n"
     "v_addc_co_u32 v5, vcc, 0, v1, vcc\nglobal_atomic_add_x2 v[4:5], v[2:3], off\n"
     "s_add_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 9\ns_cbranch_scc1 65528",
     {},
     "RJD-E002"},
    {"the application's memory", "global_store_dword v[2:3], v0, off", {}, "RJD-E002"},
    {"the application's memory, read",
     "s_waitcnt vmcnt(0)\nglobal_load_dword v4, v[2:3], off\ns_waitcnt vmcnt(0)",
     {},
     "RJD-E002"},
    {"the same, declared",
     "s_waitcnt vmcnt(0)\nglobal_load_dword v4, v[2:3], off\ns_waitcnt vmcnt(0)",
     {"memory: PRIVATE_TELEMETRY", "memory: APPLICATION_MEMORY_READ"},
     nullptr},
    {"some lanes",
     "v_cmp_eq_u32 vcc, 0, v2\ns_and_saveexec_b64 s[4:5], vcc\ns_cbranch_execz 2\n"
     "global_store_dword v[0:1], v2, off\ns_or_b64 exec, exec, s[4:5]\n"
     "global_store_dword v[0:1], v2, off offset:8",
     {},
     nullptr},
    {"lanes of two conditions",
     "v_cmp_eq_u32 vcc, 0, v2\ns_and_saveexec_b64 s[4:5], vcc\ns_xor_b64 s[4:5], exec, s[4:5]\n"
     "global_store_dword v[0:1], v2, off\ns_or_b64 exec, exec, s[4:5]\n"
     "global_store_dword v[0:1], v2, off offset:8",
     {},
     nullptr},
    {"all lanes", "s_mov_b64 exec, -1\nglobal_store_dword v[0:1], v2, off", {}, "RJD-E002"},
    {"all lanes, with a value of its own",
     "s_mov_b64 exec, -1\nv_mov_b32 v4, 0\nglobal_store_dword v[2:3], v4, off",
     {"memory: PRIVATE_TELEMETRY", "memory: APPLICATION_MEMORY_WRITE"},
     "RJD-E005"},
    {"unknown lanes",
     "s_mov_b64 exec, s[4:5]\ns_mov_b64 s[4:5], exec",
     {},
     "U"},  // s[4:5] are no argument
    {"more instructions than declared",
     "global_store_dword v[0:1], v2, off",
     {"max_instructions_per_event: 100", "max_instructions_per_event: 4"},
     "RJD-E006"},
    {"more temporaries than declared",
     "v_mov_b32 v4, 0\nglobal_store_dword v[0:1], v4, off",
     {"max_temporary_vgprs: 16", "max_temporary_vgprs: 2"},
     "RJD-E008"},
    {"a read that is not declared",
     "global_store_dword v[0:1], v2, off",
     {"reads: \"VGPR\"", ""},
     "RJD-E009"},
    {"an atomic that is not declared",
     "global_atomic_add v[0:1], v2, off",
     {"synchronisation: ATOMIC_AGENT_SCOPE", ""},
     "RJD-E004"},
    {"cache control", "buffer_wbinvl1\nglobal_store_dword v[0:1], v2, off", {}, "any"},
    {"clobbers VCC, SCC, EXEC and M0",
     "s_mov_b32 m0, 5\nv_cmp_eq_u32 vcc, 0, v2\ns_and_b64 exec, exec, vcc\n"
     "global_store_dword v[0:1], v2, off",
     {},
     nullptr},
};

TEST(UserProbeAdmission, EffectsAreJudgedAtTheSite) {
  for (const Judged& judged : kJudged) {
    SCOPED_TRACE(judged.name);
    std::string manifest = kManifest;
    if (!judged.change.first.empty()) {
      manifest = absl::StrReplaceAll(manifest, {{judged.change.first, judged.change.second}});
    }
    const v1::AttachmentSpec spec = SpecOf({judged.lines, manifest});
    const auto refused = CheckSpec(spec, DefaultPolicy());
    if (judged.id != nullptr && std::string(judged.id) == "U") {
      ASSERT_FALSE(refused.empty());
      EXPECT_EQ(refused[0].constraint_id()[4], 'U');
      continue;
    }
    if (judged.id != nullptr && std::string(judged.id) == "any" && !refused.empty()) continue;
    ASSERT_THAT(Ids(refused), IsEmpty()) << refused[0].message();
    const v1::AdmissionRecord record = AdmitOne(spec);
    ASSERT_EQ(record.decisions_size(), 2) << record.ShortDebugString();
    for (const v1::Decision& d : record.decisions()) {
      std::vector<std::string> ids;
      for (const v1::Violation& v : d.violations()) ids.push_back(v.constraint_id());
      if (judged.id == nullptr) {
        EXPECT_THAT(ids, IsEmpty()) << d.ShortDebugString();
        EXPECT_EQ(d.effects().certainty(), v1::PROVEN);
      } else if (std::string(judged.id) == "any") {
        EXPECT_FALSE(ids.empty());
      } else {
        EXPECT_THAT(ids, Contains(judged.id)) << d.ShortDebugString();
        EXPECT_EQ(d.outcome(), v1::REJECTED_EFFECT);
        EXPECT_GT(d.violations(0).location().manifest_line(), 0u);
      }
    }
  }
}

TEST(UserProbeAdmission, GrantedStoresAreADeclaredDegradation) {
  const std::string manifest = absl::StrReplaceAll(
      kManifest, {{"memory: PRIVATE_TELEMETRY",
                   "memory: PRIVATE_TELEMETRY memory: APPLICATION_MEMORY_WRITE"}});
  const v1::AdmissionRecord record =
      AdmitOne(SpecOf({"global_store_dword v[2:3], v0, off", manifest}));
  ASSERT_EQ(record.decisions_size(), 2);
  for (const v1::Decision& d : record.decisions()) {
    EXPECT_EQ(d.outcome(), v1::ATTACH_WITH_DECLARED_DEGRADATION);
    ASSERT_EQ(d.degradations_size(), 1);
    EXPECT_EQ(d.degradations(0).constraint_id(), id::kUnprovenStore);
  }
}

TEST(UserProbeAdmission, SitesHaveTheirOwnWords) {
  const v1::AdmissionRecord record = AdmitOne(SpecOf({kAddOne, kManifest}));
  ASSERT_EQ(record.decisions_size(), 2);
  EXPECT_EQ(record.counter_count(), 16u);
  EXPECT_EQ(record.decisions(0).counter_index(), 0u);
  EXPECT_EQ(record.decisions(1).counter_index(), 8u);
  EXPECT_EQ(record.decisions(1).counter_count(), 8u);
  EXPECT_EQ(record.decisions(0).outcome(), v1::VERIFIED_ATTACH);
}

TEST(UserProbeAdmission, OtherProcessorsAndSites) {
  v1::AttachmentSpec spec = SpecOf({kAddOne, kManifest}, "gfx900");
  ASSERT_THAT(Ids(CheckSpec(spec, DefaultPolicy())), IsEmpty());
  v1::AdmissionRecord record = AdmitOne(spec);
  ASSERT_GT(record.decisions_size(), 0);
  EXPECT_EQ(record.decisions(0).violations(0).constraint_id(), id::kProbeTarget);
  // An address where there is none.
  spec = SpecOf({"v_mov_b32 v0, v2", kManifest});
  spec.set_sites("v_cndmask*");
  record = AdmitOne(spec);
  ASSERT_EQ(record.decisions_size(), 1);
  EXPECT_EQ(record.decisions(0).violations(0).constraint_id(),
            ForReason(patch::Reason::kProbeArgument).id);
}

}  // namespace
}  // namespace rjdbi::contract
