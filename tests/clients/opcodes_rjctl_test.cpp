// `rjctl opcodes` as people and scripts see it.
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rjdbi/v1/control.pb.h"
#include "rjdbi/v1/opcodes.pb.h"
#include "tests/clients/opcode_blobs.h"
#include "tests/daemon/harness.h"

namespace rjdbi::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Message>
Message Parse(const std::string& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return message;
}

class Opcodes : public ::testing::Test {
 protected:
  ProgramResult Ctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {RJDBI_RJCTL, "opcodes"});
    return RunProgram(arguments, environment_);
  }
  std::string File(const std::string& name, const std::string& bytes) {
    const std::string path = absl::StrCat(folder_.path(), "/", name);
    WriteFile(path, bytes);
    return path;
  }

  TemporaryFolder folder_;
  std::vector<std::string> environment_;
};

TEST_F(Opcodes, ShowDecodes) {
  const EngineTables& dve = Engine("mariana dve");
  const std::string match = File("m", dve.match), records = File("d", dve.descriptors);
  const ProgramResult shown = Ctl({"show", match, records});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("48 of 64 slots armed; 48 records in use"));
  EXPECT_THAT(shown.out, ContainsRegex("43 +0x1e3 +0x1ff +1 +compute +0x25 "));
  EXPECT_THAT(shown.out, ContainsRegex("47 +0x0 +0x0 +1 +wildcard +0x19 "));
  EXPECT_THAT(shown.out, HasSubstr("remark[shadowed-slot]: match table, slot 43, byte 0x2b0"));
  // The same from one file that holds both, in any order of two.
  EXPECT_EQ(Ctl({"show", File("both", dve.match + dve.descriptors)}).out, shown.out);
  EXPECT_EQ(Ctl({"show", records, match}).out, shown.out);
  const auto json = Parse<v1::OpcodeBlob>(Ctl({"show", match, "-o", "json"}).out);
  EXPECT_EQ(json.armed(), 48u);
  EXPECT_EQ(json.slots(43).match().opcode(), 0x1e3u);
  EXPECT_FALSE(json.slots(43).has_record());
  EXPECT_EQ(json.match_sha256().size(), 64u);
}

TEST_F(Opcodes, CheckNamesWhatIsBroken) {
  const EngineTables& pe = Engine("mariana pe");
  const std::string sound = File("sound", pe.match + pe.descriptors);
  const ProgramResult fine = Ctl({"check", sound});
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
  EXPECT_EQ(fine.out, "sound: 22 of 64 slots armed; 22 records in use, 54 words not zero\n");
  EXPECT_THAT(Ctl({"check", File("m", pe.match)}).err, HasSubstr("was not checked"));

  std::string match = pe.match;
  PutWord(match, 3 * 16 + 4, 0x7f);
  const std::string broken = File("broken", match);
  const ProgramResult refused = Ctl({"check", broken});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("error[mask-domain]: match table, slot 3, byte 0x34: the mask "
                                     "is 0x7f"));
  EXPECT_THAT(refused.err, HasSubstr("observed: 0x7f"));
  EXPECT_THAT(refused.err, HasSubstr("limit: a mask is 0, 0xff or 0x1ff"));
  EXPECT_THAT(refused.err, HasSubstr("help: "));
  const ProgramResult json = Ctl({"check", broken, "--output", "json"});
  EXPECT_EQ(json.exit_code, 3);
  const auto reply = Parse<v1::OpcodeBlob>(json.out);
  ASSERT_EQ(reply.violations_size(), 1);
  EXPECT_EQ(reply.violations(0).violation().constraint_id(), "mask-domain");
  EXPECT_EQ(reply.violations(0).offset(), 0x34u);
  EXPECT_EQ(reply.violations(0).slot(), 3u);

  const ProgramResult garbage = Ctl({"check", File("garbage", std::string(1024, '\x5a'))});
  EXPECT_EQ(garbage.exit_code, 3);
  EXPECT_THAT(garbage.err, HasSubstr("note: 60 more of mask-domain"));
  EXPECT_THAT(garbage.err, HasSubstr("error[trailing-wildcard]: match table: no slot is armed"));
}

TEST_F(Opcodes, BadFilesAreSaid) {
  const std::string good = File("good", Engine("mariana pe").match);
  const std::string cut = File("cut", std::string(1000, '\0'));
  const std::string empty = File("empty", ""), large = File("large", std::string(1 << 20, 'x'));
  for (const char* verb : {"show", "arm"}) {
    std::vector<std::string> arguments = {verb, cut};
    if (arguments[0] == "arm") arguments.insert(arguments.end(), {"--map", good});
    const ProgramResult result = Ctl(arguments);
    EXPECT_EQ(result.exit_code, 2) << verb;
    EXPECT_THAT(result.err, HasSubstr(cut + ": no opcode table: it has 1000 bytes; a match table "
                                            "has 1024, a descriptor table 8192, both 9216"));
  }
  const ProgramResult checked = Ctl({"check", cut});
  EXPECT_EQ(checked.exit_code, 3);
  EXPECT_THAT(checked.err, HasSubstr("error[blob-size]: " + cut));
  EXPECT_EQ(Ctl({"check", empty}).exit_code, 3);
  EXPECT_THAT(Ctl({"check", large}).err, HasSubstr("an opcode table has at most 256.0 KiB"));
  EXPECT_EQ(Ctl({"check", large}).exit_code, 2);
  EXPECT_EQ(Ctl({"check", folder_.path() + "/nothing"}).exit_code, 2);
  EXPECT_EQ(Ctl({"show", good, good}).exit_code, 2);
  EXPECT_EQ(Ctl({"diff", good}).exit_code, 2);
  EXPECT_EQ(Ctl({"diff", good, good, good}).exit_code, 2);
  EXPECT_EQ(Ctl({"diff", good, File("d", Engine("mariana pe").descriptors)}).exit_code, 2);
  EXPECT_EQ(Ctl({}).exit_code, 2);
  EXPECT_EQ(Ctl({"frob"}).exit_code, 2);
  EXPECT_EQ(Ctl({"profile", good}).exit_code, 2) << "no YAML";
}

TEST_F(Opcodes, DiffIsLikeDiff) {
  const EngineTables &a = Engine("cayman act"), &b = Engine("mariana act");
  const std::string match_a = File("ma", a.match), match_b = File("mb", b.match);
  const std::string records_a = File("da", a.descriptors), records_b = File("db", b.descriptors);
  const ProgramResult same = Ctl({"diff", match_a, match_a});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.out, HasSubstr("no difference"));
  const ProgramResult differ = Ctl({"diff", match_a, match_b});
  EXPECT_EQ(differ.exit_code, 1);
  for (const char* opcode : {"0x25", "0x77", "0x78", "0x9f"}) {
    EXPECT_THAT(differ.out, ContainsRegex(absl::StrCat("added +", opcode, " ")));
  }
  EXPECT_THAT(differ.out, ContainsRegex("removed +0x68 +0xff +45 +- *\n"));
  EXPECT_THAT(differ.out, HasSubstr("21 opcodes are the same in another slot"));
  const ProgramResult all = Ctl({"diff", match_a, records_a, records_b, match_b});
  EXPECT_EQ(all.exit_code, 1) << all.err;
  EXPECT_THAT(all.out, HasSubstr("47 records in use, 150 words not zero"));
  EXPECT_THAT(all.out, HasSubstr("25 records in use, 68 words not zero"));
  EXPECT_THAT(all.out, ContainsRegex("described +0xa1 .*class 0x1001 -> 0x3"));
  const auto json = Parse<v1::OpcodeDiff>(Ctl({"-o", "json", "diff", records_a, records_b}).out);
  EXPECT_TRUE(json.descriptors_differ());
  EXPECT_FALSE(json.match_differs());
}

// Through a map, onto real counts.
class OpcodeProfiles : public Opcodes {
 protected:
  void SetUp() override {
    ASSERT_TRUE(daemon_.Start()) << daemon_.log();
    environment_ = {"RJDBI_CONTROL_SOCKET=" + daemon_.control_socket()};
  }
  // Everything, or what the selector leaves, of add_one and lds_sum; counter i counts i + 1.
  void Count(const std::string& sites) {
    daemon_.Attach("*", sites, "block-count");
    ASSERT_TRUE(agent_.emplace(daemon_.agent_socket()).Open().ok());
    const Agent::Answer answer = agent_->Admit(CodeObject(), 5);
    ASSERT_EQ(answer.decision.verdict(), v1::PATCHED);
    v1::ReportRequest request;
    request.set_session_id(agent_->session_id);
    request.add_loads()->set_load_id(5);
    request.mutable_loads(0)->set_final(true);
    for (uint64_t i = 0; i < answer.decision.counter_count(); ++i) {
      request.mutable_loads(0)->add_counters(i + 1);
    }
    ASSERT_TRUE(agent_->Report(request).ok());
  }
  Daemon daemon_;
  std::optional<Agent> agent_;
};

TEST_F(OpcodeProfiles, ClassesAddUpToWhatTheReportCounts) {
  Count("*");
  const std::string table = RJDBI_SOURCE_DIR "/clients/opcodes/examples/classes.yaml";
  const ProgramResult json = Ctl({"profile", table, "-o", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const auto profile = Parse<v1::OpcodeProfile>(json.out);
  uint64_t total = 0, sum = 0, sites = 0;
  const v1::GetReportReply report = daemon_.Report();
  for (const v1::SiteCount& count : report.counts()) total += count.count();
  for (const v1::OpcodeClassCount& c : profile.classes()) {
    sum += c.count();
    sites += c.sites();
    EXPECT_EQ(c.sites_not_counted(), 0u);
  }
  EXPECT_GT(total, 0u);
  EXPECT_EQ(profile.total(), total);
  EXPECT_EQ(sum, total);
  EXPECT_EQ(sites, static_cast<uint64_t>(report.counts_size()));
  EXPECT_EQ(profile.uncovered_size(), 0);
  const ProgramResult text = Ctl({"profile", table});
  EXPECT_THAT(text.out, ContainsRegex(absl::StrCat(total, " +100.00% +", sites, " +0 +total")));
  EXPECT_THAT(Ctl({"profile", table, "--by", "opcode"}).out, HasSubstr("s_endpgm"));
  EXPECT_THAT(Ctl({"profile", table, "--by", "row"}).out, HasSubstr("v_*"));
  EXPECT_EQ(Ctl({"profile", table, "--by", "colour"}).exit_code, 2);
  const auto one =
      Parse<v1::OpcodeProfile>(Ctl({"profile", table, "--kernel", "add_one", "-o", "json"}).out);
  EXPECT_LT(one.total(), total);
  EXPECT_GT(one.total(), 0u);
}

TEST_F(OpcodeProfiles, WhatIsNotCountedIsSaid) {
  Count("not ds_*");
  const std::string table = RJDBI_SOURCE_DIR "/clients/opcodes/examples/classes.yaml";
  const ProgramResult json = Ctl({"profile", table, "-o", "json"});
  EXPECT_EQ(json.exit_code, 4) << json.err;
  const auto profile = Parse<v1::OpcodeProfile>(json.out);
  uint64_t not_counted = 0;
  for (const v1::OpcodeClassCount& c : profile.classes()) {
    EXPECT_EQ(c.sites_not_counted() > 0, c.class_() == "lds") << c.class_();
    not_counted += c.sites_not_counted();
  }
  ASSERT_EQ(profile.uncovered_size(), 1);
  EXPECT_EQ(profile.uncovered(0).kernel(), "lds_sum");
  EXPECT_EQ(profile.uncovered(0).not_counted(), not_counted);
  EXPECT_TRUE(profile.uncovered(0).listed());
  const ProgramResult text = Ctl({"profile", table});
  EXPECT_THAT(text.out, HasSubstr("Instructions that nothing counts"));
  EXPECT_THAT(text.out, ContainsRegex(absl::StrCat(not_counted, " +[0-9]+ +lds_sum")));
}

TEST_F(OpcodeProfiles, NothingCountedIsRefused) {
  const std::string table = File("t", "rows: [{match: '*', class: all}]");
  const ProgramResult nothing = Ctl({"profile", table});
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("--probe block-count"));
  EXPECT_EQ(Ctl({"profile", File("bad", "rows: [{match: s_*, class: all}]")}).exit_code, 2);
  EXPECT_EQ(Ctl({"profile", File("nul", std::string(64, '\0'))}).exit_code, 2);
}

TEST_F(OpcodeProfiles, ABlobArmsTheProfiler) {
  Count("*");
  const EngineTables& act = Engine("mariana act");
  const std::string blob = File("act", act.match + act.descriptors);
  const std::string map = RJDBI_SOURCE_DIR "/clients/opcodes/examples/map.yaml";
  const std::string table = folder_.path() + "/table.yaml";
  const ProgramResult armed = Ctl({"arm", blob, "--map", map, "--output-table", table});
  EXPECT_EQ(armed.exit_code, 0) << armed.err;
  EXPECT_EQ(armed.out, "");
  EXPECT_THAT(armed.err,
              HasSubstr("remark: slot 22, opcode 0x78: counts nothing, it is not in the map"));
  EXPECT_EQ(Ctl({"arm", blob, "--map", map}).out, ReadFile(table));
  const auto json = Parse<v1::OpcodeArmReply>(Ctl({"arm", blob, "--map", map, "-o", "json"}).out);
  EXPECT_EQ(json.table().rows_size(), 25);
  const auto profile = Parse<v1::OpcodeProfile>(Ctl({"profile", table, "-o", "json"}).out);
  uint64_t total = 0, sum = 0;
  const v1::GetReportReply report = daemon_.Report();
  for (const v1::SiteCount& count : report.counts()) total += count.count();
  for (const v1::OpcodeRowCount& row : profile.rows()) sum += row.count();
  EXPECT_EQ(profile.rows_size(), 25);
  EXPECT_EQ(sum, total);
  EXPECT_EQ(profile.total(), total);
  EXPECT_LT(profile.rows(24).count(), total) << "not all is left to the wildcard";

  std::string broken = act.match;
  PutWord(broken, 24 * 16 + 4, 0xff);
  const ProgramResult refused = Ctl({"arm", File("b", broken), "--map", map});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("error[trailing-wildcard]"));
  EXPECT_EQ(Ctl({"arm", blob, "--map", table}).exit_code, 2) << "a table is no map";
}

TEST_F(Opcodes, CompletionOffersVerbsAndOptions) {
  const auto complete = [](const std::string& words, int index) {
    return RunProgram(
               {"/bin/bash", "-c",
                absl::StrCat("source <(", RJDBI_RJCTL, " completion bash); COMP_WORDS=(rjctl ",
                             words, "); COMP_CWORD=", index, "; _rjctl; echo \"${COMPREPLY[*]}\"")})
        .out;
  };
  EXPECT_EQ(complete("opc", 1), "opcodes\n");
  EXPECT_EQ(complete("opcodes ch", 2), "check\n");
  EXPECT_THAT(complete("opcodes arm --ma", 3), HasSubstr("--map"));
  EXPECT_THAT(complete("opcodes profile t --by ''", 5), HasSubstr("class row opcode"));
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = RunProgram({RJDBI_RJCTL, "completion", shell}).out;
    EXPECT_THAT(script, HasSubstr("opcodes")) << shell;
    EXPECT_THAT(script, HasSubstr("output-table")) << shell;
  }
}

}  // namespace
}  // namespace rjdbi::tests
