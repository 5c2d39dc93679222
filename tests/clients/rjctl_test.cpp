// rjctl as people and scripts see it: what it prints where, and its exit codes.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/harness.h"

namespace rjdbi::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgramResult Rjctl(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), RJDBI_RJCTL);
  return RunProgram(arguments, environment);
}

template <typename Message>
Message Parse(const std::string& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return message;
}

class WithDaemon : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(daemon_.Start()) << daemon_.log();
    environment_ = {"RJDBI_CONTROL_SOCKET=" + daemon_.control_socket(),
                    "RJDBI_SOCKET=" + daemon_.agent_socket()};
  }
  ProgramResult Ctl(std::vector<std::string> arguments) {
    return Rjctl(std::move(arguments), environment_);
  }
  Daemon daemon_;
  std::vector<std::string> environment_;
};

TEST_F(WithDaemon, AttachPrintsTheIdAndDetachRemovesIt) {
  const ProgramResult attached =
      Ctl({"attach", "--kernel", "add_*", "--sites", "global_store*,ds_*", "--probe", "count-waves",
           "--max-sgpr-delta", "2", "--process", "program"});
  EXPECT_EQ(attached.exit_code, 0) << attached.err;
  EXPECT_EQ(attached.out, "a1\n");
  const auto status = Parse<v1::GetStatusReply>(Ctl({"status", "--output", "json"}).out);
  ASSERT_EQ(status.attachments_size(), 1);
  EXPECT_EQ(status.attachments(0).spec().sites(), "global_store*,ds_*");
  EXPECT_EQ(status.attachments(0).spec().budget().max_sgpr_delta(), 2u);
  EXPECT_EQ(status.attachments(0).spec().process_glob(), "program");
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("add_*"));
  EXPECT_EQ(Ctl({"detach", "a1"}).exit_code, 0);
  EXPECT_EQ(Ctl({"detach", "a1"}).exit_code, 2);
  EXPECT_EQ(Ctl({"detach"}).exit_code, 2);
  EXPECT_EQ(daemon_.Status().attachments_size(), 0);
}

TEST_F(WithDaemon, ARefusalHasIdPlaceAndHelp) {
  const ProgramResult table = Ctl({"attach", "--kernel", "*", "--sites", "*", "--probe", "magic"});
  EXPECT_EQ(table.exit_code, 3);
  EXPECT_EQ(table.out, "");
  EXPECT_THAT(table.err, HasSubstr("error[RJD-A002]"));
  EXPECT_THAT(table.err, HasSubstr("help:"));
  const ProgramResult json =
      Ctl({"-o", "json", "attach", "--kernel", "*", "--sites", "*", "--probe", "magic"});
  EXPECT_EQ(json.exit_code, 3);
  EXPECT_EQ(Parse<v1::AttachReply>(json.out).violations(0).constraint_id(), "RJD-A002");
}

TEST_F(WithDaemon, ReportAndCoverageSayHowMuchIsInPlace) {
  EXPECT_EQ(Ctl({"coverage"}).exit_code, 3) << "nothing attached is vacuous";
  daemon_.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 5).decision.verdict(), v1::PATCHED);
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  request.add_loads()->set_load_id(5);
  request.mutable_loads(0)->add_counters(1234);
  request.mutable_loads(0)->set_final(true);
  ASSERT_TRUE(agent.Report(request).ok());

  EXPECT_EQ(Ctl({"coverage"}).exit_code, 0);
  const ProgramResult table = Ctl({"report"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("1234"));
  EXPECT_THAT(table.out, HasSubstr("global_store_dword"));
  EXPECT_THAT(table.out, Not(HasSubstr("lower bound")));
  const auto report = Parse<v1::GetReportReply>(Ctl({"report", "-o", "json"}).out);
  ASSERT_EQ(report.counts_size(), 1);
  EXPECT_EQ(report.counts(0).count(), 1234u);
  EXPECT_EQ(report.counts(0).location().kernel(), "add_one");

  // An attachment that matches nothing makes it partial.
  daemon_.Attach("no_such_kernel", "*", "nop");
  EXPECT_EQ(Ctl({"report"}).exit_code, 4);
  const auto kernels = Parse<v1::ListKernelsReply>(Ctl({"kernels", "-o", "json"}).out);
  ASSERT_EQ(kernels.kernels_size(), 2);
  EXPECT_GT(kernels.kernels(0).instructions(), 0u);
  const auto sites = Parse<v1::ListSitesReply>(Ctl({"sites", "--sites", "ds_*", "-o", "json"}).out);
  EXPECT_GT(sites.sites_size(), 0);
  for (const v1::Site& site : sites.sites()) {
    EXPECT_THAT(site.location().instruction(), HasSubstr("ds_"));
  }
  EXPECT_EQ(Ctl({"sites", "--sites", ",,"}).exit_code, 2);
  const auto objects = Parse<v1::ListCodeObjectsReply>(Ctl({"code-objects", "-o", "json"}).out);
  ASSERT_EQ(objects.code_objects_size(), 1);
  EXPECT_EQ(objects.code_objects(0).verdict(), v1::PATCHED);
}

TEST_F(WithDaemon, OnlyWhatIsAttachedNowCounts) {
  daemon_.Attach("add_one", "global_*", "count-waves");
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::PATCHED);
  EXPECT_EQ(Ctl({"detach", "--all"}).exit_code, 0);
  daemon_.Attach("add_one", "kernel+0x2", "count-waves");
  ASSERT_EQ(agent.Admit(CodeObject(), 2).decision.verdict(), v1::ORIGINAL_REFUSED);

  const ProgramResult why = Ctl({"why-not-attached", "add_one"});
  EXPECT_EQ(why.exit_code, 0);
  EXPECT_THAT(why.out, HasSubstr("1 site refused, 0 attached"));
  EXPECT_THAT(why.err, HasSubstr("1 detached attachment has left is not shown (--all)"));
  EXPECT_THAT(Ctl({"why-not-attached", "add_one", "--all"}).out,
              HasSubstr("1 site refused, 2 attached"));

  EXPECT_EQ(Ctl({"coverage"}).exit_code, 3);
  EXPECT_THAT(Ctl({"coverage"}).out, HasSubstr("1 site requested: 0 attached"));
  const ProgramResult all = Ctl({"coverage", "--all"});
  EXPECT_EQ(all.exit_code, 4);
  EXPECT_THAT(all.out, HasSubstr("a1 (detached)"));
  EXPECT_THAT(all.out, HasSubstr("3 sites requested: 2 attached"));
  EXPECT_THAT(Ctl({"report"}).out, HasSubstr("No counts."));
  EXPECT_THAT(Ctl({"report", "--all"}).out, HasSubstr("a1 (detached)"));
  EXPECT_EQ(Ctl({"report", "--attachment", "a1"}).exit_code, 0) << "named, it is there";

  const ProgramResult unknown = Ctl({"why-not-attached", "no_such_kernel"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("no process has loaded a kernel that matches"));
  const auto json =
      Parse<v1::WhyNotAttachedReply>(Ctl({"why-not-attached", "no_such_kernel", "-o", "json"}).out);
  EXPECT_FALSE(json.kernel_known());
  EXPECT_EQ(json.violations_size(), 1);
}

TEST_F(WithDaemon, EqualRefusalsArePrintedOnce) {
  daemon_.Attach("*", "memory", "count-lanes");
  EXPECT_THAT(Ctl({"attach", "--kernel", "lds_sum", "--sites", "ds_*", "--probe", "count-lanes",
                   "--max-injected-instructions", "1"})
                  .out,
              HasSubstr("a2"));
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  agent.Admit(CodeObject(), 1);
  const std::string grouped = Ctl({"why-not-attached", "lds_sum"}).out;
  const std::string each = Ctl({"why-not-attached", "lds_sum", "--all"}).out;
  const auto times = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_LT(times(grouped, "error[RJD-B"), times(each, "error[RJD-B"));
  EXPECT_THAT(grouped, HasSubstr(" more site"));
  EXPECT_THAT(each, Not(HasSubstr(" more site")));
  const auto total = [](const std::string& text) {
    return text.substr(text.rfind('\n', text.size() - 2));
  };
  EXPECT_EQ(total(grouped), total(each));
}

TEST_F(WithDaemon, RunPassesExitCodeAndEnvironmentThrough) {
  const TemporaryFolder folder;
  const std::string agent = folder.path() + "/agent.so";
  ASSERT_EQ(RunProgram({"/usr/bin/gcc", "-shared", "-o", agent, "-x", "c", "/dev/null"}).exit_code,
            0);
  environment_.push_back("HSA_TOOLS_LIB=/other/tool.so");
  const ProgramResult run =
      Ctl({"run", "--agent", agent, "--", "/bin/sh", "-c",
           "echo \"$LD_PRELOAD|$HSA_TOOLS_LIB|$HSA_TOOLS_ROCPROFILER_V1_TOOLS\"; exit 7"});
  EXPECT_EQ(run.exit_code, 7) << run.err;
  EXPECT_EQ(run.out, agent + "|/other/tool.so " + agent + "|1\n");
  EXPECT_EQ(Ctl({"run", "--agent", agent, "/bin/sh", "-c", "kill -9 $$"}).exit_code, 137);
  EXPECT_EQ(Ctl({"run", "--agent", agent, "/no/such/program"}).exit_code, 127);
  EXPECT_EQ(Ctl({"run", "--agent", agent}).exit_code, 2);
  EXPECT_EQ(Ctl({"run", "--agent", "/no/such/agent.so", "true"}).exit_code, 2);
}

TEST_F(WithDaemon, RunAttachesForItsOwnTime) {
  const TemporaryFolder folder;
  const std::string agent = folder.path() + "/agent.so";
  ASSERT_EQ(RunProgram({"/usr/bin/gcc", "-shared", "-o", agent, "-x", "c", "/dev/null"}).exit_code,
            0);
  const ProgramResult run =
      Ctl({"run", "--agent", agent, "--attach", "kernel=*,sites=ds_*,global_store*,probe=nop", "--",
           RJDBI_RJCTL, "status", "--output", "json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const auto inside = Parse<v1::GetStatusReply>(run.out);
  ASSERT_EQ(inside.attachments_size(), 1);
  EXPECT_EQ(inside.attachments(0).spec().sites(), "ds_*,global_store*");
  EXPECT_NE(inside.attachments(0).spec().pid(), 0u);
  EXPECT_EQ(daemon_.Status().attachments_size(), 0);
  const ProgramResult refused = Ctl({"run", "--agent", agent, "--attach",
                                     "kernel=*,sites=*,probe=magic", "--", "/bin/echo", "ran"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.out, Not(HasSubstr("ran")));
}

TEST(Offline, AdmitPatchesAFile) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", image = folder.path() + "/out.co";
  WriteFile(input, CodeObject());
  const ProgramResult json =
      Rjctl({"admit", input, "--attach", "kernel=*,sites=global_store*,probe=count-waves",
             "--output-image", image, "-o", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err << json.out;
  const auto record = Parse<v1::AdmissionRecord>(json.out);
  EXPECT_EQ(record.patched_size(), ReadFile(image).size());
  EXPECT_EQ(record.decisions_size(), 2);
  const ProgramResult table =
      Rjctl({"admit", input, "--attach", "kernel=*,sites=kernel+0x2,probe=count-waves"});
  EXPECT_EQ(table.exit_code, 3);
  EXPECT_THAT(table.out, HasSubstr("error[RJD-S"));
  EXPECT_EQ(Rjctl({"admit", "/proc/self/exe", "--attach", "kernel=*,sites=*,probe=nop"}).exit_code,
            3);
  EXPECT_EQ(Rjctl({"admit", "/nonexistent", "--attach", "kernel=*,sites=*,probe=nop"}).exit_code,
            2);
  EXPECT_EQ(Rjctl({"admit", input, "--attach", "kernel=*"}).exit_code, 2);
  EXPECT_THAT(Rjctl({"kernels", input}).out, HasSubstr("lds_sum"));
  EXPECT_THAT(Rjctl({"sites", input, "--kernel", "lds_sum", "--sites", "ds_*"}).out,
              HasSubstr("ds_write"));
}

TEST(Offline, ExitCodesAndErrors) {
  EXPECT_EQ(Rjctl({"--socket", "/nonexistent", "status"}).exit_code, 5);
  const ProgramResult json = Rjctl({"--socket", "/nonexistent", "status", "--output", "json"});
  EXPECT_EQ(json.exit_code, 5);
  const auto error = Parse<google::protobuf::Struct>(json.out);
  EXPECT_EQ(error.fields().at("error").struct_value().fields().at("exitCode").number_value(), 5);
  EXPECT_EQ(Rjctl({}).exit_code, 2);
  EXPECT_EQ(Rjctl({"frobnicate"}).exit_code, 2);
  EXPECT_EQ(Rjctl({"--version"}).exit_code, 0);
  EXPECT_EQ(Rjctl({"attach", "--help"}).exit_code, 0);
  const ProgramResult usage = Rjctl({"attach", "-o", "json"});
  EXPECT_EQ(usage.exit_code, 2);
  EXPECT_EQ(Parse<google::protobuf::Struct>(usage.out).fields().count("error"), 1u);
  EXPECT_THAT(Rjctl({"explain", "RJD-B001"}).out, HasSubstr("RJD-B001"));
  EXPECT_EQ(Rjctl({"explain", "RJD-X999"}).exit_code, 2);
}

TEST(Offline, ColourOnlyWhenAsked) {
  EXPECT_THAT(Rjctl({"explain", "RJD-B001"}).out, Not(HasSubstr("\033[")));
  EXPECT_THAT(Rjctl({"--color", "always", "explain", "RJD-B001"}).out, HasSubstr("\033["));
}

TEST(Offline, CompletionNamesEveryVerb) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Rjctl({"completion", shell}).out;
    for (const char* verb : {"run", "attach", "why-not-attached", "coverage", "admit"}) {
      EXPECT_THAT(script, HasSubstr(verb)) << shell;
    }
  }
  const ProgramResult completed = RunProgram(
      {"/bin/bash", "-c",
       std::string("source <(") + RJDBI_RJCTL +
           " completion bash); COMP_WORDS=(rjctl why); COMP_CWORD=1; _rjctl; echo \"$COMPREPLY\""});
  EXPECT_EQ(completed.out, "why-not-attached\n") << completed.err;
}

}  // namespace
}  // namespace rjdbi::tests
