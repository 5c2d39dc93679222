// rjctl as people and scripts see it: what it prints where, and its exit codes.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rjdbi/v1/contract.pb.h"
#include "rjdbi/v1/control.pb.h"
#include "rjdbi/v1/patch_record.pb.h"
#include "rjdbi/v1/perturbation.pb.h"
#include "tests/daemon/harness.h"

namespace rjdbi::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
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

  const ProgramResult opcodes = Ctl({"report", "--by", "opcode"});
  EXPECT_THAT(opcodes.out, ContainsRegex("KERNEL +SITES +OPCODE"));
  EXPECT_THAT(opcodes.out, ContainsRegex("1234 +add_one +1 +global_store_dword *\n"));
  EXPECT_THAT(Ctl({"report", "--by", "kernel"}).out, ContainsRegex("1234 +add_one +1 *\n"));
  EXPECT_EQ(Ctl({"report", "--summary"}).out, Ctl({"report", "--by", "kernel"}).out);
  EXPECT_EQ(Ctl({"report", "--by", "colour"}).exit_code, 2);

  // An attachment that matches nothing.
  const std::string nowhere = daemon_.Attach("add_oen", "*", "nop").attachment().id();
  const ProgramResult vacuous = Ctl({"report"});
  EXPECT_EQ(vacuous.exit_code, 3);
  EXPECT_THAT(vacuous.err, HasSubstr(nowhere + " is vacuous, it attached nowhere: no kernel "
                                               "matches 'add_oen'; did you mean 'add_one'?"));
  EXPECT_EQ(Ctl({"report", "--attachment", "a1"}).exit_code, 0);
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

// Three records of one site, and 7 events that have none.
void SendRecords(Daemon& daemon, Agent& agent) {
  daemon.Attach("add_one", "entry", "trace-exec");
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 5).decision.verdict(), v1::PATCHED);
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  v1::RecordBatch& batch = *request.add_batches();
  batch.set_load_id(5);
  batch.set_sequence(1);
  batch.set_count(3);
  batch.set_written(3);
  batch.set_records(ExecRecord(0, UINT64_MAX, 0, 0x11) + ExecRecord(0, 0xff, 1, 0x12) +
                    ExecRecord(0, 0, 2, 0x13));
  v1::LoadCounters& load = *request.add_loads();
  load.set_load_id(5);
  load.add_counters(7);
  load.add_site_records(3);
  load.set_final(true);
  ASSERT_TRUE(agent.Report(request).ok());
}

// A user's probes, compiled; "" when that failed.
std::string CompileProbes(const TemporaryFolder& folder, const std::string& functions,
                          const std::string& target = "gfx90a",
                          const std::vector<std::string>& flags = {}) {
  const std::string source = folder.path() + "/probes.hip", object = folder.path() + "/probes.o";
  WriteFile(source, "#include <rjdbi/probe.h>\n" + functions);
  std::vector<std::string> command = {RJDBI_CLANG,
                                      "-x",
                                      "hip",
                                      "--offload-device-only",
                                      "--no-gpu-bundle-output",
                                      "--offload-arch=" + target,
                                      "-nogpuinc",
                                      "-nogpulib",
                                      "-O2",
                                      "-I",
                                      RJDBI_SOURCE_DIR "/deploy/include",
                                      "-c",
                                      source,
                                      "-o",
                                      object};
  command.insert(command.end(), flags.begin(), flags.end());
  const ProgramResult compiled = RunProgram(command);
  EXPECT_EQ(compiled.exit_code, 0) << compiled.err;
  return compiled.exit_code == 0 ? object : "";
}

// A probe's name is whatever its manifest says.
TEST_F(WithDaemon, NamesOfProbesMayBeAnything) {
  const TemporaryFolder folder;
  const std::string object =
      CompileProbes(folder, "RJDBI_PROBE counted(RJDBI_TELEMETRY c) { rjdbi_add(c, 1); }");
  const std::string manifest = folder.path() + "/m", name = "x\x1b[31m\nerror: no";
  WriteFile(manifest, Rjctl({"infer", object, "--arguments", "telemetry", "--name", name}).out);
  const ProgramResult attached = Ctl({"attach", "--kernel", "add_one", "--sites", "global_store*",
                                      "--probe-object", object, "--probe-manifest", manifest});
  ASSERT_EQ(attached.exit_code, 0) << attached.err;
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 5).decision.verdict(), v1::PATCHED);
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  request.add_loads()->set_load_id(5);
  request.mutable_loads(0)->add_counters(1234);
  ASSERT_TRUE(agent.Report(request).ok());
  std::string all = attached.out + attached.err;
  for (const char* verb : {"status", "report", "coverage", "records"}) {
    const ProgramResult said = Ctl({verb});
    all += said.out + said.err;
  }
  EXPECT_THAT(all, HasSubstr("x?[31m?error: no"));
  EXPECT_EQ(all.find('\x1b'), std::string::npos) << all;
  EXPECT_EQ(all.find("\nerror: no"), std::string::npos) << all;
}

TEST_F(WithDaemon, NothingFoundIsExplained) {
  daemon_.Attach("*", "memory", "nop");
  EXPECT_THAT(Ctl({"report"}).err, HasSubstr("no kernel matches '*'; rjdbid has not been sent"));
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 5).decision.verdict(), v1::PATCHED);
  for (const char* verb : {"report", "coverage"}) {
    const ProgramResult slip = Ctl({verb, "--kernel", "add_oen"});
    EXPECT_EQ(slip.exit_code, 3);
    EXPECT_THAT(slip.err, HasSubstr("'add_oen' matches; did you mean 'add_one'?"));
    EXPECT_THAT(Ctl({verb, "--kernel", "add_one"}).err, Not(HasSubstr("did you mean")));
  }
}

TEST_F(WithDaemon, RecordsAreLines) {
  EXPECT_EQ(Ctl({"records"}).exit_code, 0);
  EXPECT_EQ(Ctl({"records"}).out, "");
  EXPECT_THAT(Ctl({"records"}).err, HasSubstr("no records"));
  Agent agent(daemon_.agent_socket());
  SendRecords(daemon_, agent);
  const ProgramResult table = Ctl({"records"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("^RECEIVED +PID +KERNEL +OFFSET +INSTRUCTION +EXEC"));
  EXPECT_THAT(table.out, ContainsRegex("add_one +0x0 +s_.* 0xffffffffffffffff +[-0,]+ +0x11"));
  EXPECT_THAT(table.out, ContainsRegex("0xff +[-01,]+ +0x12"));
  EXPECT_THAT(table.out, ContainsRegex("0x0 +[-02,]+ +0x13"));

  const ProgramResult json = Ctl({"records", "-o", "json"});
  std::istringstream lines(json.out);
  std::vector<v1::TraceRecord> records;
  for (std::string line; std::getline(lines, line);) {
    records.push_back(Parse<v1::TraceRecord>(line));
  }
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].exec(), "0xff");
  EXPECT_EQ(records[1].active_lanes(), 8u);
  EXPECT_EQ(records[1].kernel(), "add_one");
  EXPECT_EQ(records[2].active_lanes(), 0u);

  const ProgramResult csv = Ctl({"records", "--output", "csv", "--last", "1"});
  EXPECT_THAT(csv.out, ContainsRegex("^received_unix_ns,session,pid,.*,instruction\n"));
  EXPECT_THAT(csv.out, HasSubstr(",a1,trace-exec,add_one,"));
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 2);
  EXPECT_EQ(csv.err, "");
  EXPECT_EQ(Ctl({"records", "--kernel", "other", "-o", "json"}).out, "");
  EXPECT_EQ(Ctl({"records", "--attachment", "a9"}).exit_code, 2);
  EXPECT_EQ(Ctl({"records", "--last", "0"}).exit_code, 2);
  EXPECT_EQ(Ctl({"coverage", "-o", "csv"}).exit_code, 2) << "records and reports have CSV";
}

TEST_F(WithDaemon, ReportsSayWhatOfTheEventsWasObserved) {
  Agent agent(daemon_.agent_socket());
  SendRecords(daemon_, agent);
  const ProgramResult table = Ctl({"report"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("EVENTS +RECORDS +OBSERVED +RING FULL"));
  EXPECT_THAT(table.out, ContainsRegex("a1 +trace-exec +10 +3 +30.0% +7 +0 +0 +0 +add_one"));
  EXPECT_THAT(table.out, HasSubstr("not ranked: of the events at add_one+"));
  EXPECT_THAT(table.out, HasSubstr("only 30.0% were observed"));
  const auto report = Parse<v1::GetReportReply>(Ctl({"report", "-o", "json"}).out);
  ASSERT_EQ(report.record_summaries_size(), 1);
  const v1::RecordSummary& summary = report.record_summaries(0);
  EXPECT_EQ(summary.events(), 10u);
  EXPECT_EQ(summary.analysed(), 3u);
  ASSERT_EQ(summary.lanes_size(), 3);
  EXPECT_EQ(summary.lanes(0).lanes(), 0u);
  EXPECT_EQ(summary.lanes(1).lanes(), 8u);
  EXPECT_EQ(summary.lanes(2).lanes(), 64u);
  EXPECT_EQ(report.counts(0).count(), 10u);
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
  EXPECT_EQ(all.exit_code, 3) << "what is attached now attached nowhere";
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

TEST_F(WithDaemon, DegradationsAreNamedWhereverTheyCount) {
  Ctl({"attach", "--kernel", "gather", "--sites", "global_load*,kernel+0x2", "--probe",
       "count-waves", "--placement", "trampoline"});
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(ClauseObject(), 1).decision.verdict(), v1::PATCHED);
  for (const char* verb : {"coverage", "report"}) {
    const std::string text = Ctl({verb}).out;
    EXPECT_THAT(text, HasSubstr("5 sites requested: 0 attached, 4 degraded (RJD-D003 x4), "
                                "1 refused (RJD-S012 x1)"))
        << verb;
    EXPECT_THAT(text, HasSubstr("RJD-S012 x1, RJD-D003 x4  gather\n")) << "in the kernel's row";
  }
  const auto coverage = Parse<v1::GetCoverageReply>(Ctl({"coverage", "-o", "json"}).out);
  ASSERT_EQ(coverage.total().degradations_size(), 1);
  EXPECT_EQ(coverage.total().degradations(0).sites(), 4u);
  const std::string why = Ctl({"why-not-attached", "gather"}).out;
  EXPECT_THAT(why, HasSubstr("degraded[RJD-D003]: the clause of 4 instructions"));
  EXPECT_THAT(why, HasSubstr("and 3 more sites"));
  EXPECT_THAT(why, HasSubstr("1 site refused, 4 attached (4 degraded)\n"));
  EXPECT_THAT(Ctl({"why-not-attached", "gather", "--all"}).out,
              HasSubstr("1 site refused, 4 attached (4 degraded)\n"));
}

TEST_F(WithDaemon, PlacementIsChosenAndShown) {
  const std::vector<std::string> attach = {"attach",      "--kernel",     "gather",
                                           "--sites",     "global_load*", "--probe",
                                           "count-waves", "--placement"};
  const auto with = [&](const std::string& placement) {
    std::vector<std::string> arguments = attach;
    arguments.push_back(placement);
    return Ctl(arguments);
  };
  EXPECT_EQ(with("sideways").exit_code, 2);
  EXPECT_THAT(with("sideways").err, HasSubstr("expected auto, trampoline or clone"));
  EXPECT_EQ(with("clone").exit_code, 0);
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(ClauseObject(), 1).decision.verdict(), v1::PATCHED);
  const std::string text = Ctl({"coverage"}).out;
  EXPECT_THAT(text, HasSubstr("4 sites requested: 4 attached, 0 degraded"));
  EXPECT_THAT(text, HasSubstr("1 kernel cloned with probes in line, "));
  const auto coverage = Parse<v1::GetCoverageReply>(Ctl({"coverage", "-o", "json"}).out);
  ASSERT_EQ(coverage.coverage_size(), 1);
  EXPECT_EQ(coverage.coverage(0).placement().placement(), v1::CLONE);
}

TEST_F(WithDaemon, UnknownNamesAreUsageErrors) {
  for (const char* verb : {"coverage", "report"}) {
    const ProgramResult attachment = Ctl({verb, "--attachment", "a9"});
    EXPECT_EQ(attachment.exit_code, 2) << attachment.out;
    EXPECT_EQ(attachment.out, "");
    EXPECT_THAT(attachment.err, HasSubstr("no attachment 'a9' exists, or has left anything; "
                                          "rjctl status lists"));
    const ProgramResult session = Ctl({verb, "--session", "zz"});
    EXPECT_EQ(session.exit_code, 2);
    EXPECT_THAT(session.err, HasSubstr("no session begins with 'zz'; rjctl status --all lists"));
  }
  daemon_.Attach("*", "memory", "nop");
  EXPECT_EQ(Ctl({"report", "--attachment", "a1"}).exit_code, 3) << "known, and nothing yet";
}

TEST_F(WithDaemon, AnOffsetWithoutAnInstructionSaysWhereTheNextOnesAre) {
  daemon_.Attach("*", "ds_*", "count-lanes");
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  agent.Admit(CodeObject(), 1);
  const std::string inside = Ctl({"why-not-attached", "add_one", "0x2"}).out;
  EXPECT_THAT(inside, HasSubstr("error[RJD-S012]: no instruction starts at offset 0x2; the nearest "
                                "start at 0x0 and 0x"));
  EXPECT_THAT(inside, HasSubstr("--> add_one+0x2"));
  const std::string beyond = Ctl({"why-not-attached", "add_one", "65536"}).out;
  EXPECT_THAT(beyond, HasSubstr("error[RJD-S012]: no instruction starts at offset 0x10000; the "
                                "nearest start at 0x"));
  EXPECT_THAT(beyond, Not(HasSubstr(" and 0x")));
  EXPECT_THAT(Ctl({"why-not-attached", "add_one", "0"}).out, HasSubstr("error[RJD-A008]"))
      << "an instruction, of which nothing was asked";
}

TEST_F(WithDaemon, EmptyListsSayWhyAndWhatNext) {
  for (const char* verb : {"kernels", "sites"}) {
    const ProgramResult nothing = Ctl({verb});
    EXPECT_EQ(nothing.exit_code, 0);
    EXPECT_EQ(nothing.out, "");
    EXPECT_THAT(nothing.err, HasSubstr("no process has loaded a code object since rjdbid started"));
    EXPECT_THAT(nothing.err, HasSubstr("rjctl attach"));
  }
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  agent.Admit(CodeObject(), 1);
  for (const char* verb : {"kernels", "sites"}) {
    EXPECT_THAT(Ctl({verb}).err, HasSubstr("the bytes of no code object were sent (1 loaded)"));
  }
  const auto kernels_of = [&] {
    const std::string table = Ctl({"code-objects"}).out;
    std::istringstream row(table.substr(table.find('\n') + 1));
    std::string hash, isa, size, unit, kernels;
    row >> hash >> isa >> size >> unit >> kernels;
    return kernels;
  };
  EXPECT_EQ(kernels_of(), "-");
  daemon_.Attach("*", "ds_*", "nop");
  agent.Admit(CodeObject(), 2);
  EXPECT_EQ(kernels_of(), "2");
  EXPECT_EQ(Ctl({"kernels"}).err, "");
  EXPECT_THAT(Ctl({"kernels", "--kernel", "no_such"}).err, HasSubstr("none in the 1 code object"));
}

TEST_F(WithDaemon, NumbersAreInNaturalOrder) {
  for (int i = 0; i < 11; ++i) daemon_.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::PATCHED);
  for (const char* verb : {"coverage", "report"}) {
    const std::string text = Ctl({verb}).out;
    size_t before = 0;
    for (const char* id : {"a1 ", "a2 ", "a3 ", "a9 ", "a10 ", "a11 "}) {
      const size_t at = text.find(id);
      ASSERT_NE(at, std::string::npos) << id << text;
      EXPECT_GT(at, before) << verb << " " << id << "\n" << text;
      before = at;
    }
  }
  // Not all of them fit: who is in, is said by name.
  const std::string why = Ctl({"why-not-attached", "add_one"}).out;
  EXPECT_THAT(why, HasSubstr("error[RJD-B003]: with this probe the site executes "));
  EXPECT_THAT(why, HasSubstr("  taken by: a1, a2, "));
  EXPECT_THAT(why, Not(HasSubstr("#")));
}

TEST_F(WithDaemon, ZerosOfTheRuntimesOwnKernelsAreLeftOut) {
  daemon_.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(ClauseObject(), 1).decision.counter_count(), 2u);
  // The table of counts ends with an empty line; coverage leaves nothing out here.
  const auto counts = [&](std::vector<std::string> arguments) {
    const ProgramResult report = Ctl(std::move(arguments));
    return report.out.substr(0, report.out.find("\n\n")) + report.err;
  };
  EXPECT_THAT(counts({"report"}), HasSubstr("  gather "));
  EXPECT_THAT(counts({"report"}), Not(HasSubstr("  __amd_rocclr_fill ")));
  EXPECT_THAT(counts({"report"}), HasSubstr("1 row of the runtime's own kernels"));
  EXPECT_THAT(counts({"report", "--all"}), HasSubstr("  __amd_rocclr_fill "));
  EXPECT_THAT(Ctl({"coverage"}).out, HasSubstr("__amd_rocclr_fill")) << "a site was asked for";
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  request.add_loads()->set_load_id(1);
  for (int i = 0; i < 2; ++i) request.mutable_loads(0)->add_counters(3);
  ASSERT_TRUE(agent.Report(request).ok());
  EXPECT_THAT(counts({"report"}), HasSubstr("  __amd_rocclr_fill ")) << "counted";
}

TEST_F(WithDaemon, OwnersAreListedOnceThereAreSome) {
  daemon_.Attach("*", "ds_*", "nop");
  EXPECT_THAT(Ctl({"status"}).out, Not(HasSubstr("OWNER")));
  Ctl({"attach", "--kernel", "*", "--sites", "ds_*", "--probe", "nop", "--owner", "night shift"});
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("OWNER"));
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("  night shift\n"));
}

TEST_F(WithDaemon, CompletionOffersIdsNotFiles) {
  daemon_.Attach("*", "ds_*", "nop");
  daemon_.Attach("*", "ds_*", "nop");
  const auto complete = [&](const std::string& words) {
    return RunProgram({"/bin/bash", "-c",
                       std::string("source <(") + RJDBI_RJCTL + " completion bash); COMP_WORDS=(" +
                           RJDBI_RJCTL + " " + words +
                           "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _rjctl; "
                           "echo \"${COMPREPLY[@]}\""},
                      environment_)
        .out;
  };
  EXPECT_EQ(complete("detach ''"), "a1 a2\n");
  EXPECT_EQ(complete("report --attachment ''"), "a1 a2\n");
  EXPECT_EQ(complete("explain rjd-s00"),
            "RJD-S001 RJD-S002 RJD-S003 RJD-S004 RJD-S005 RJD-S006 "
            "RJD-S007 RJD-S008 RJD-S009\n");
  EXPECT_EQ(complete("why-not-attached ''"), "\n");
  EXPECT_THAT(complete("kernels /proc/self/c"), HasSubstr("/proc/self/cmdline"));
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

TEST_F(WithDaemon, ADryRunIsNotCalledVacuous) {
  EXPECT_THAT(Ctl({"attach", "--kernel", "*", "--sites", "global_store*", "--probe", "count-waves",
                   "--mode", "dryrun"})
                  .err,
              HasSubstr("judging, as a dry run, count-waves"));
  Agent agent(daemon_.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
  for (const char* verb : {"coverage", "report"}) {
    const ProgramResult result = Ctl({verb});
    EXPECT_EQ(result.exit_code, 0) << verb;
    EXPECT_THAT(result.out, HasSubstr("a1: a dry run, nothing of it is attached; 2 of 2 sites"));
    EXPECT_THAT(result.out, HasSubstr("2 sites requested: 0 attached, 0 degraded, 0 refused, "
                                      "2 dry run;"));
    EXPECT_THAT(result.out, HasSubstr("DRY RUN"));
  }
  const ProgramResult why = Ctl({"why-not-attached", "*"});
  EXPECT_THAT(why.out, HasSubstr("dry run, would be attached  add_one+0x"));
  EXPECT_THAT(why.out, HasSubstr("0 sites refused, 2 in dry runs, 0 attached"));
  const auto json = Parse<v1::GetCoverageReply>(Ctl({"coverage", "-o", "json"}).out);
  EXPECT_EQ(json.total().dry_run(), 2u);
}

// A process that follows attachments while it runs, as the agent does.
class Follower {
 public:
  explicit Follower(const Daemon& daemon) : agent_(daemon.agent_socket()) {
    agent_.follows = true;
    EXPECT_TRUE(agent_.Open().ok());
    EXPECT_TRUE(agent_.Admit(CodeObject(), 1).status.ok());
  }
  ~Follower() { Stop(); }
  void Follow() {
    stop_ = false;
    thread_ = std::thread([this] { Run(); });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Agent& agent() { return agent_; }

 private:
  void Run() {
    const std::string object = CodeObject();
    while (!stop_) {
      v1::WatchReply now;
      if (!agent_.Watch(seen_, 50, &now).ok()) return;
      if (now.generation() == seen_) continue;
      v1::ObjectHeader header = agent_.HeaderFor(object, ++load_id_);
      header.set_beside(true);
      header.set_beside_load_id(1);
      if (agent_.Admit(header, object).status.ok()) seen_ = now.generation();
    }
  }
  Agent agent_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  uint64_t load_id_ = 1, seen_ = 0;
};

TEST_F(WithDaemon, AProcessThatHasNotAskedYetIsWaitedForAndPending) {
  Follower process(daemon_);
  const ProgramResult waited = Ctl({"attach", "--kernel", "add_one", "--sites", "global_store*",
                                    "--probe", "count-waves", "--wait", "1"});
  EXPECT_EQ(waited.exit_code, 0) << "waiting is no fault";
  EXPECT_EQ(waited.out, "a1\n");
  EXPECT_THAT(waited.err, HasSubstr("on its way to 1 process"));
  EXPECT_THAT(waited.err, Not(HasSubstr("cannot follow")));
  for (const char* verb : {"coverage", "report"}) {
    const ProgramResult result = Ctl({verb});
    EXPECT_EQ(result.exit_code, 3) << verb;
    EXPECT_THAT(result.err, HasSubstr("a1 is pending in 1 process that has not taken it over"));
    EXPECT_THAT(result.err, Not(HasSubstr("vacuous")));
  }
  const auto coverage = Parse<v1::GetCoverageReply>(Ctl({"coverage", "-o", "json"}).out);
  EXPECT_EQ(coverage.pending_processes().at("a1"), 1u);

  process.Follow();
  const ProgramResult next = Ctl({"attach", "--kernel", "add_one", "--sites", "global_load*",
                                  "--probe", "count-waves", "--wait", "60"});
  EXPECT_EQ(next.exit_code, 0);
  EXPECT_THAT(next.err, HasSubstr("in effect in 1 process from the next dispatch on"));
  EXPECT_THAT(next.err, HasSubstr("1 of 1 site attached"));
  const ProgramResult result = Ctl({"coverage"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  // It has both, and comes to a third one no more: pending, and the counts go on.
  process.Stop();
  daemon_.Attach("lds_sum", "ds_*", "count-waves");
  const ProgramResult partial = Ctl({"coverage"});
  EXPECT_EQ(partial.exit_code, 4);
  EXPECT_THAT(partial.err, HasSubstr("a3 is pending in 1 process"));
}

TEST_F(WithDaemon, AttachingWithoutEffectHasAnExitCode) {
  Follower process(daemon_);
  process.Follow();
  const auto attach = [&](const std::string& kernel, const std::string& sites,
                          std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"attach",  "--kernel",    kernel,   "--sites", sites,
                                          "--probe", "count-waves", "--wait", "60"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Ctl(arguments);
  };
  const ProgramResult refused = attach("lds_sum", "ds_*", {"--max-injected-instructions", "1"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_EQ(refused.out, "a1\n") << "it was made";
  EXPECT_THAT(refused.err, ContainsRegex("a1 is vacuous, it attached nowhere: .*refused "
                                         "\\(RJD-B[0-9]+ x[0-9]+\\)"));
  EXPECT_THAT(refused.err, HasSubstr("taken over by 1 process"));
  EXPECT_THAT(refused.err, Not(HasSubstr("in effect")));
  const ProgramResult nothing = attach("lds_sum", "mfma");
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_THAT(nothing.err, HasSubstr("a2 is vacuous, it attached nowhere: 'mfma' selects no "));
  EXPECT_THAT(nothing.err, Not(HasSubstr("in effect")));
  // Such a kernel may be loaded yet.
  const ProgramResult none = attach("ads_one", "ds_*");
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("a3 has no effect yet: no kernel that is loaded matches "
                                  "'ads_one'; did you mean 'add_one'?"));
  EXPECT_THAT(none.err, Not(HasSubstr("in effect in")));
  EXPECT_THAT(none.err, Not(HasSubstr("vacuous")));
  const ProgramResult dry = attach("add_one", "global_store*", {"--mode", "dryrun"});
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.err, HasSubstr("taken over by 1 process"));
  EXPECT_THAT(dry.err, HasSubstr("1 of 1 site judged"));
  // Elsewhere: no process is concerned.
  EXPECT_EQ(attach("lds_sum", "mfma", {"--process", "another"}).exit_code, 0);
}

TEST_F(WithDaemon, AProcessThatEndsDuringTheWaitIsSaid) {
  Follower process(daemon_);
  ProgramResult attached;
  std::thread attaching([&] {
    attached = Ctl({"attach", "--kernel", "add_one", "--sites", "global_store*", "--probe",
                    "count-waves", "--wait", "60"});
  });
  EXPECT_TRUE(Eventually([&] { return daemon_.Status().attachments_size() == 1; }));
  usleep(500'000);  // it has begun to wait
  EXPECT_TRUE(process.agent().Close().ok());
  attaching.join();
  EXPECT_EQ(attached.exit_code, 0);
  EXPECT_THAT(attached.err, HasSubstr("1 process ended meanwhile"));
}

TEST_F(WithDaemon, ARestartDuringTheWaitIsSaid) {
  Follower process(daemon_);
  ProgramResult attached;
  std::thread attaching([&] {
    attached = Ctl({"-o", "json", "attach", "--kernel", "add_one", "--sites", "global_store*",
                    "--probe", "count-waves", "--wait", "60"});
  });
  EXPECT_TRUE(Eventually([&] { return daemon_.Status().attachments_size() == 1; }));
  usleep(500'000);
  daemon_.Stop(SIGKILL);
  attaching.join();
  EXPECT_EQ(attached.exit_code, 5);
  EXPECT_THAT(attached.out, HasSubstr("(a1 is attached)"));
}

TEST_F(WithDaemon, DetachSaysWhatIsDetached) {
  const ProgramResult none = Ctl({"detach", "--all"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("Nothing is attached."));
  daemon_.Attach("*", "ds_*", "nop");
  daemon_.Attach("*", "ds_*", "nop");
  daemon_.Attach("*", "ds_*", "nop");
  const auto reply = Parse<v1::DetachReply>(Ctl({"-o", "json", "detach", "a1", "a3"}).out);
  EXPECT_THAT(reply.detached(), ElementsAre("a1", "a3"));
  const ProgramResult some = Ctl({"-o", "json", "detach", "a2", "zz"});
  EXPECT_EQ(some.exit_code, 2);
  EXPECT_THAT(some.out, HasSubstr("(detached: a2)"));
  EXPECT_EQ(daemon_.Status().attachments_size(), 0);
  EXPECT_EQ(Parse<v1::DetachReply>(Ctl({"-o", "json", "detach", "--all"}).out).detached_size(), 0);
}

TEST(Offline, ModesAndReductions) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", image = folder.path() + "/out.co";
  WriteFile(input, CodeObject());
  const std::string spec = "kernel=*,sites=global_store*,probe=count-waves";
  const ProgramResult dry =
      Rjctl({"admit", input, "--attach", spec, "--mode", "dryrun", "--output-image", image});
  EXPECT_EQ(dry.exit_code, 0) << dry.err << dry.out;
  EXPECT_THAT(dry.out, HasSubstr("; not patched"));
  EXPECT_THAT(dry.out, HasSubstr("2 of 2 sites would be"));
  EXPECT_FALSE(std::filesystem::exists(image));

  const std::string tight = spec + ",max-injected-instructions=3";
  EXPECT_EQ(Rjctl({"admit", input, "--attach", tight}).exit_code, 3);
  const ProgramResult warned = Rjctl({"admit", input, "--attach", tight + ",mode=warn", "--all"});
  EXPECT_EQ(warned.exit_code, 0) << warned.out;
  EXPECT_THAT(warned.out, HasSubstr("degraded[RJD-D006]: the probe needs"));
  EXPECT_EQ(Rjctl({"admit", input, "--attach", tight, "--mode", "warn"}).exit_code, 0);
  EXPECT_EQ(
      Rjctl({"admit", input, "--attach", tight + ",mode=enforce", "--mode", "warn"}).exit_code, 3)
      << "what a specification says itself counts";
  const ProgramResult maybe = Rjctl({"admit", input, "--attach", spec + ",mode=maybe"});
  EXPECT_EQ(maybe.exit_code, 2);
  EXPECT_THAT(maybe.err, HasSubstr("mode: expected enforce, warn or dryrun, found '"));
  EXPECT_EQ(Rjctl({"admit", input, "--attach", spec, "--mode", "maybe"}).exit_code, 2);

  const std::string one =
      spec + ",expected-events-per-second=1,max-telemetry-bytes-per-second=8,reduce=rotate";
  const ProgramResult first = Rjctl({"admit", input, "--attach", one});
  EXPECT_EQ(first.exit_code, 4) << first.out;
  EXPECT_THAT(first.out, HasSubstr("reduced by rotate (RJD-B004): 2 probes to 1, window 1 of 2"));
  EXPECT_THAT(first.out, HasSubstr("error[RJD-B012]: the attachment's sites take turns"));
  EXPECT_THAT(Rjctl({"admit", input, "--attach", one + ",rotation=1"}).out,
              HasSubstr("window 2 of 2"));
  EXPECT_EQ(Rjctl({"admit", input, "--attach", spec + ",reduce=some"}).exit_code, 2);
  EXPECT_EQ(Rjctl({"admit", input, "--attach", spec + ",rotation=1"}).exit_code, 3)
      << "without the reduction";
  const std::string script = Rjctl({"completion", "bash"}).out;
  EXPECT_THAT(script, HasSubstr("--mode) COMPREPLY=($(compgen -W 'enforce warn dryrun'"));
  EXPECT_THAT(script, HasSubstr("--reduce) COMPREPLY=($(compgen -W 'block-count rotate'"));
}

TEST(Offline, AdmitMakesImagesBeside) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", image = folder.path() + "/out.co",
                    restored = folder.path() + "/restored.co";
  WriteFile(input, CodeObject());
  const std::string spec = "kernel=add_one,sites=global_store*,probe=count-waves";
  const ProgramResult json =
      Rjctl({"admit", input, "--attach", spec, "--beside", "--output-image", image, "-o", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err << json.out;
  const auto reply = Parse<v1::AdmitBesideReply>(json.out);
  EXPECT_TRUE(reply.record().beside());
  ASSERT_EQ(reply.kernel_switches_size(), 1);
  EXPECT_EQ(reply.kernel_switches(0).kernel(), "add_one");
  EXPECT_GT(reply.kernel_switches(0).original_descriptor(), 0u);
  const ProgramResult table = Rjctl({"admit", input, "--attach", spec, "--beside"});
  EXPECT_THAT(table.out, HasSubstr("for loading beside the loaded original"));
  EXPECT_THAT(table.out, HasSubstr("BESIDE"));
  EXPECT_THAT(Rjctl({"map", image}).out, HasSubstr("only the new code runs"));
  EXPECT_EQ(Rjctl({"unpatch", image, "--output-image", restored}).exit_code, 0);
  EXPECT_EQ(ReadFile(restored), ReadFile(input));
  const ProgramResult trampolines =
      Rjctl({"admit", input, "--attach", spec + ",placement=trampoline", "--beside"});
  EXPECT_EQ(trampolines.exit_code, 3);
  EXPECT_THAT(trampolines.out, HasSubstr("RJD-P004"));
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

TEST(Offline, PerturbationOfFilesFoldersAndLibraries) {
  const TemporaryFolder folder;
  WriteFile(folder.path() + "/in.co", CodeObject());
  WriteFile(folder.path() + "/readme", "some text");
  const ProgramResult json = Rjctl(
      {"perturbation", folder.path(), "--probe", "count-waves", "--probe", "nop", "-o", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err << json.out;
  const auto reply = Parse<v1::PerturbationReply>(json.out);
  ASSERT_EQ(reply.rows_size(), 2);
  EXPECT_EQ(reply.rows(0).probe(), "count-waves");
  EXPECT_EQ(reply.rows(0).kernels_patched(), 2u);
  EXPECT_GT(reply.rows(0).injected_instructions().median(), 4u);
  EXPECT_EQ(reply.rows(1).injected_instructions().median(), 1u);
  const ProgramResult table = Rjctl({"perturbation", folder.path() + "/in.co"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("count-waves on gfx"));
  EXPECT_THAT(table.out, ContainsRegex("kernels of unchanged occupancy +2 of 2"));

  const ProgramResult text = Rjctl({"perturbation", folder.path() + "/readme"});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.err, HasSubstr("/readme: not a readable ELF64 library"));
  EXPECT_THAT(Rjctl({"perturbation", "/proc/self/exe"}).err, HasSubstr("no .hip_fatbin section"));
  EXPECT_EQ(Rjctl({"perturbation", folder.path(), "--target", "gfx803"}).exit_code, 2);
  EXPECT_EQ(Rjctl({"perturbation", folder.path(), "--probe", "magic"}).exit_code, 3);
  EXPECT_EQ(Rjctl({"perturbation", folder.path(), "--sites", "mfma"}).exit_code, 3)
      << "there are no such sites";

  const ProgramResult library =
      Rjctl({"perturbation", RJDBI_ROCRAND, "--target", "gfx90a", "--limit", "1", "-o", "json"});
  EXPECT_EQ(library.exit_code, 0) << library.err;
  const auto one = Parse<v1::PerturbationReply>(library.out);
  ASSERT_EQ(one.rows_size(), 1);
  EXPECT_EQ(one.rows(0).objects_patched(), 1u);
  EXPECT_GT(one.objects_not_wanted(), 0u);
}

TEST(Offline, APatchedObjectSaysWhatItIsAndWas) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", patched = folder.path() + "/p.co",
                    back = folder.path() + "/back.co", map_file = folder.path() + "/map.json";
  WriteFile(input, CodeObject());
  const ProgramResult admitted =
      Rjctl({"admit", input, "--attach", "kernel=add_one,sites=memory,probe=count-waves",
             "--output-image", patched, "--output-map", map_file});
  ASSERT_EQ(admitted.exit_code, 0) << admitted.err;

  const auto map = Parse<v1::MapReply>(Rjctl({"map", patched, "-o", "json"}).out);
  ASSERT_EQ(map.map().kernels_size(), 1);
  EXPECT_EQ(map.map().kernels(0).kernel(), "add_one");
  EXPECT_EQ(Parse<v1::MapReply>(ReadFile(map_file)).SerializeAsString(), map.SerializeAsString());
  const ProgramResult table = Rjctl({"map", patched, "--original", input});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("attachment 1: count-waves at memory of add_one"));
  EXPECT_THAT(table.out, ContainsRegex("0x[0-9a-f]+ +[0-9]+ +for \\+0x[0-9a-f]+ +injected"));
  EXPECT_EQ(Rjctl({"map", patched, "--kernel", "no*"}).out.find("add_one\n"), std::string::npos);

  const auto pcs = Parse<v1::MapReply>(
      Rjctl({"map", patched, "add_one+0x0", "add_one.rjdbi", "-o", "json"}).out);
  ASSERT_EQ(pcs.pcs_size(), 2);
  EXPECT_EQ(pcs.pcs(0).kind(), v1::APPLICATION_CODE);
  EXPECT_EQ(pcs.pcs(0).original_vaddr(), map.map().kernels(0).original_vaddr());
  EXPECT_EQ(pcs.pcs(1).kernel(), "add_one");
  const ProgramResult lines = Rjctl({"map", patched, "add_one+0x0", "0x4"});
  EXPECT_THAT(lines.out, ContainsRegex("add_one\\+0x0 +0x[0-9a-f]+ +0x[0-9a-f]+ +add_one\\+0x0"));
  EXPECT_THAT(lines.out, HasSubstr("no code"));
  EXPECT_EQ(Rjctl({"map", patched, "no_such+0x4"}).exit_code, 2);

  const ProgramResult unpatched = Rjctl({"unpatch", patched, "--output-image", back});
  EXPECT_EQ(unpatched.exit_code, 0) << unpatched.err;
  EXPECT_EQ(ReadFile(back), ReadFile(input));
  EXPECT_EQ(unpatched.out, map.map().original_sha256() + "\n");
  EXPECT_EQ(Parse<v1::PriorPatch>(Rjctl({"unpatch", patched, "-o", "json"}).out).attachments_size(),
            1);
  const ProgramResult plain = Rjctl({"unpatch", input});
  EXPECT_EQ(plain.exit_code, 2);
  EXPECT_THAT(plain.err, HasSubstr("carries no patches"));
  EXPECT_EQ(Rjctl({"map", patched, "--original", patched}).exit_code, 2);
}

TEST(Offline, PatchingAgainAddsAttachments) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", once = folder.path() + "/1.co",
                    twice = folder.path() + "/2.co", both = folder.path() + "/both.co";
  WriteFile(input, CodeObject());
  const std::string first = "kernel=*,sites=memory,probe=count-waves",
                    second = "kernel=*,sites=exit,probe=nop";
  ASSERT_EQ(Rjctl({"admit", input, "--attach", first, "--output-image", once}).exit_code, 0);
  const ProgramResult again = Rjctl({"admit", once, "--attach", second, "--output-image", twice});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("it came with patches (count-waves at memory of *)"));
  ASSERT_EQ(Rjctl({"admit", input, "--attach", first, "--attach", second, "--output-image", both})
                .exit_code,
            0);
  EXPECT_EQ(ReadFile(twice), ReadFile(both));
  // The same again changes nothing.
  ASSERT_EQ(Rjctl({"admit", twice, "--attach", second, "--output-image", both}).exit_code, 0);
  EXPECT_EQ(ReadFile(twice), ReadFile(both));

  std::string damaged = ReadFile(once);
  damaged[0x40] ^= 1;
  const std::string broken = folder.path() + "/broken.co";
  WriteFile(broken, damaged);
  const ProgramResult refused = Rjctl({"admit", broken, "--attach", second});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.out, HasSubstr("error[RJD-O010]"));
  EXPECT_EQ(Rjctl({"unpatch", broken}).exit_code, 2);
}

TEST(Offline, ABadSelectorIsPointedAt) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co";
  WriteFile(input, CodeObject());
  const ProgramResult sites = Rjctl({"sites", input, "--sites", "ds_* and (, entry)"});
  EXPECT_EQ(sites.exit_code, 2);
  EXPECT_THAT(sites.err, HasSubstr("error: selector, column 11: expected an opcode glob"));
  EXPECT_THAT(sites.err, HasSubstr("\n  ds_* and (, entry)\n            ^\n"));
  const ProgramResult admit =
      Rjctl({"admit", input, "--attach", "kernel=*,sites=every:0 memory,probe=nop"});
  EXPECT_EQ(admit.exit_code, 3);
  EXPECT_THAT(admit.err, HasSubstr("  | every:0 memory\n  |       ^\n"));
}

TEST(Offline, SitesShowWhatAPlaceCanTake) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co";
  WriteFile(input, CodeObject());
  const auto reply =
      Parse<v1::ListSitesReply>(Rjctl({"sites", input, "--kernel", "lds_sum", "-o", "json"}).out);
  ASSERT_EQ(reply.structures_size(), 1);
  EXPECT_EQ(reply.structures(0).kernel(), "lds_sum");
  EXPECT_TRUE(reply.structures(0).control_flow_complete());
  ASSERT_EQ(reply.structures(0).instructions(), static_cast<uint32_t>(reply.sites_size()));
  bool waits = false;
  for (const v1::Site& site : reply.sites()) {
    EXPECT_TRUE(site.capability().reach().direct());
    EXPECT_TRUE(site.capability().reach().kernel_can_move());
    waits |= site.capability().outstanding_size() > 0;
  }
  EXPECT_TRUE(waits);
  EXPECT_EQ(reply.sites(0).capability().traits(0), v1::SITE_KERNEL_ENTRY);
  const ProgramResult exit = Rjctl({"sites", input, "--kernel", "lds_sum", "--sites", "exit"});
  EXPECT_EQ(exit.exit_code, 0);
  EXPECT_THAT(exit.out, HasSubstr("yes, not after"));
  const ProgramResult lines = Rjctl({"sites", input, "--sites", "x.cl:3"});
  EXPECT_EQ(lines.exit_code, 3);
  EXPECT_THAT(lines.err, HasSubstr("error[RJD-S015]: the code object has no line table"));
  const ProgramResult after = Rjctl({"admit", input, "--attach",
                                     "kernel=*,sites=global_load*,probe=count-waves,"
                                     "position=after",
                                     "--all"});
  EXPECT_EQ(after.exit_code, 0) << after.out;
  EXPECT_THAT(after.out, HasSubstr("after lds_sum+0x"));
  EXPECT_EQ(
      Rjctl({"admit", input, "--attach", "kernel=*,sites=*,probe=nop,position=beside"}).exit_code,
      2);
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

TEST(Offline, ErrorsNameFileAndKind) {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/text";
  WriteFile(text, "some text");
  for (const char* verb : {"kernels", "sites"}) {
    const ProgramResult result = Rjctl({verb, text});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("error: " + text + ": not an ELF file\n"));
  }
  const ProgramResult host = Rjctl({"kernels", "/proc/self/exe"});
  EXPECT_THAT(host.err, HasSubstr("error: /proc/self/exe: ELF header"));
  const std::string spec = "kernel=*,sites=*,probe=nop";
  const ProgramResult admit = Rjctl({"admit", text, "--attach", spec});
  EXPECT_EQ(admit.exit_code, 3);
  EXPECT_THAT(admit.err, HasSubstr(text + ": not an ELF file"));
  EXPECT_THAT(admit.err, HasSubstr("it attached nowhere: it was left out: RJD-O001\n"));
  EXPECT_THAT(admit.out, HasSubstr("error[RJD-O001]: the bytes are not an ELF file\n"
                                   "  observed: 9 bytes that begin with 73 6f 6d 65\n"));
  const auto record = Parse<v1::AdmissionRecord>(
      Rjctl({"admit", "/proc/self/exe", "--attach", spec, "-o", "json"}).out);
  ASSERT_EQ(record.object_violations_size(), 1);
  EXPECT_NE(record.object_violations(0).observed(), record.object_violations(0).message());

  const std::string object = folder.path() + "/in.co";
  WriteFile(object, CodeObject());
  const ProgramResult sabotage =
      Rjctl({"admit", object, "--attach", "kernel=*,sites=ds_*,probe=sabotage"});
  EXPECT_EQ(sabotage.exit_code, 3);
  EXPECT_THAT(sabotage.err, HasSubstr("error[RJD-A004]"));
  EXPECT_THAT(sabotage.err, HasSubstr("allow-sabotage=true"));
  EXPECT_THAT(sabotage.err, Not(HasSubstr("policy")));
  EXPECT_THAT(Rjctl({"kernels", object}).out, Not(HasSubstr("OBJECT")));
}

// The test object with a kernel's name written over, everywhere it stands.
std::string WithKernelName(const std::string& name) {
  std::string object = CodeObject();
  const std::string old = "add_one";
  EXPECT_EQ(name.size(), old.size());
  for (size_t at = 0; (at = object.find(old, at)) != std::string::npos; at += old.size()) {
    object.replace(at, old.size(), name);
  }
  return object;
}

TEST(Offline, NamesOfKernelsMayBeAnything) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co";
  struct Case {
    std::string name, in_json, in_table;
  };
  const Case cases[] = {{"\xff\xfe\x9b"
                         "add_",
                         "\\xff\\xfe\\x9badd_", "\\xff\\xfe\\x9badd_"},
                        {"\x1b[31mad", "\x1b[31mad", "?[31mad"},
                        {"\xc2\x9b"
                         "31mad",
                         "\xc2\x9b"
                         "31mad",
                         "?31mad"},
                        {"\xe2\x80\xae"
                         "add_",
                         "\xe2\x80\xae"
                         "add_",
                         "?add_"}};
  for (const Case& c : cases) {
    WriteFile(file, WithKernelName(c.name));
    const ProgramResult json = Rjctl({"kernels", file, "-o", "json"});
    EXPECT_EQ(json.exit_code, 0) << json.err;
    EXPECT_EQ(json.err, "");
    const auto kernels = Parse<v1::ListKernelsReply>(json.out).kernels();
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [&](const auto& kernel) {
      return kernel.name() == c.in_json;
    })) << json.out;
    const std::string spec = "kernel=*,sites=*,probe=nop,position=after";
    for (const ProgramResult& table : {Rjctl({"kernels", file}), Rjctl({"sites", file}),
                                       Rjctl({"admit", file, "--attach", spec})}) {
      EXPECT_THAT(table.out, HasSubstr(c.in_table));
      EXPECT_EQ(table.out.find(c.name), std::string::npos);
    }
    const ProgramResult admit = Rjctl({"admit", file, "--attach", spec, "-o", "json"});
    EXPECT_EQ(admit.err, "");
    EXPECT_GT(Parse<v1::AdmissionRecord>(admit.out).decisions_size(), 0);
  }
}

TEST(Offline, AFailedWriteLeavesWhatWasThere) {
#ifdef _GLIBCXX_TSAN
  GTEST_SKIP() << "the thread sanitizer's own runtime does not survive a limit on file sizes";
#endif
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co";
  WriteFile(file, CodeObject());
  const std::string command = "trap '' XFSZ; ulimit -f 4; exec " RJDBI_RJCTL " admit " + file +
                              " --attach kernel=*,sites=memory,probe=nop --output-image " + file;
  const ProgramResult failed = RunProgram({"/bin/sh", "-c", command});
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err, HasSubstr(file + ": File too large"));
  EXPECT_THAT(failed.out, HasSubstr("ATTACHED")) << "the judgement is said all the same";
  EXPECT_EQ(ReadFile(file), CodeObject());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const ProgramResult full =
      RunProgram({"/bin/sh", "-c", "exec " RJDBI_RJCTL " sites " + file + " >/dev/full"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("error: standard output: "));
}

TEST(Offline, LinksAreWrittenThrough) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", patched = folder.path() + "/p.co",
                    link = folder.path() + "/link", fresh = folder.path() + "/fresh",
                    loop = folder.path() + "/loop";
  WriteFile(input, CodeObject());
  ASSERT_EQ(Rjctl({"admit", input, "--attach", "kernel=*,sites=memory,probe=nop", "--output-image",
                   patched})
                .exit_code,
            0);
  std::filesystem::create_symlink("p.co", link);
  std::filesystem::create_symlink("made.co", fresh);
  std::filesystem::create_symlink("loop", loop);
  EXPECT_EQ(Rjctl({"unpatch", patched, "--output-image", fresh}).exit_code, 0);
  EXPECT_EQ(ReadFile(folder.path() + "/made.co"), CodeObject());
  const ProgramResult looped = Rjctl({"unpatch", patched, "--output-image", loop});
  EXPECT_EQ(looped.exit_code, 2);
  EXPECT_THAT(looped.err, HasSubstr("error: " + loop + ": "));
  EXPECT_EQ(Rjctl({"unpatch", link, "--output-image", link}).exit_code, 0);
  EXPECT_EQ(ReadFile(patched), CodeObject());
  for (const std::string& name : {link, fresh, loop}) {
    EXPECT_TRUE(std::filesystem::is_symlink(name)) << name;
  }
}

TEST(Offline, ASocketThatNobodyServesIsNotWaitedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, name, sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  std::vector<int> waiting;
  do {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back(), name, sizeof(address)) == 0 && waiting.size() < 64);
  ASSERT_EQ(errno, EAGAIN);
  const ProgramResult status = Rjctl({"--socket", path, "status"});
  EXPECT_EQ(status.exit_code, 5);
  EXPECT_THAT(status.err, HasSubstr("its queue is full\nhelp: see rjdbid's log"));
  const ProgramResult run =
      Rjctl({"--socket", path, "run", "--agent-socket", path, "--", "/bin/echo", "ran"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "ran\n");
  EXPECT_THAT(run.err, HasSubstr("the program runs unobserved"));
  const ProgramResult attach = Rjctl({"--socket", path, "run", "--agent-socket", path, "--attach",
                                      "kernel=*,sites=memory,probe=nop", "--", "/bin/echo", "ran"});
  EXPECT_EQ(attach.exit_code, 5);
  EXPECT_EQ(attach.out, "");
  EXPECT_THAT(attach.err, Not(HasSubstr("the program runs")));
  for (int fd : waiting) close(fd);
  close(listener);
}

TEST(Offline, SlipsAreNotTakenForSomethingElse) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co";
  WriteFile(file, CodeObject());
  const auto admit = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"admit", file});
    return Rjctl(more);
  };
  const ProgramResult twice = admit({"--attach", "kernel=a,sites=*,probe=nop,kernel=b"});
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_THAT(twice.err, HasSubstr("kernel= is given twice"));
  const ProgramResult empty =
      admit({"--attach", "kernel=*,sites=*,probe=nop", "--output-image", ""});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("--output-image: the value is empty"));
  EXPECT_THAT(Rjctl({"report", "--by", "foo"}).err, HasSubstr("expected site, opcode or kernel"));
  EXPECT_EQ(Rjctl({"kernels", file, "--object", "abc"}).exit_code, 2);
  EXPECT_THAT(Rjctl({"kernels", file, "--kernel", "zzz"}).err, HasSubstr("matches 'zzz'"));
  const ProgramResult vacuous = admit({"--attach", "kernel=*,sites=mfma,probe=nop"});
  EXPECT_EQ(vacuous.exit_code, 3);
  EXPECT_THAT(vacuous.err, HasSubstr("a1 is vacuous, it attached nowhere: 'mfma' selects no "));
  const ProgramResult beside = admit({"--attach", "kernel=*,sites=memory,probe=nop", "--attach",
                                      "kernel=add_won,sites=memory,probe=nop"});
  EXPECT_EQ(beside.exit_code, 3) << "one of two";
  EXPECT_THAT(beside.err, HasSubstr("a2 is vacuous, it attached nowhere: no kernel matches "
                                    "'add_won'; did you mean 'add_one'?"));
  std::vector<std::string> many;
  for (int i = 0; i < 66; ++i) {
    many.insert(many.end(), {"--attach", "kernel=*,sites=memory,probe=nop"});
  }
  const ProgramResult left_out = admit(many);
  EXPECT_EQ(left_out.exit_code, 3) << "a66 attached nowhere";
  EXPECT_THAT(left_out.err, HasSubstr("a66 is vacuous"));
  EXPECT_THAT(left_out.out, HasSubstr("attachment a66 is left out of code object"));
  const ProgramResult agent = Rjctl({"run", "--agent", file, "--", "/bin/true"});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_THAT(agent.err, HasSubstr("not a shared library"));
}

TEST(Offline, WhyNotAttachedAsksTheEngine) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co";
  WriteFile(file, CodeObject());
  const auto why = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"why-not-attached", "--file", file});
    return Rjctl(more);
  };
  const std::string spec = "kernel=add_one,sites=*,probe=count-lanes,max-injected-instructions=5";
  const ProgramResult all = why({"--attach", spec, "add_one"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("error[RJD-"));
  EXPECT_THAT(all.out, HasSubstr("  | > +0x"));
  EXPECT_THAT(all.out, HasSubstr("help: "));
  const auto reply =
      Parse<v1::WhyNotAttachedReply>(why({"--attach", spec, "add_one", "-o", "json"}).out);
  ASSERT_GT(reply.decisions_size(), 0);
  EXPECT_EQ(reply.attached_sites(), 0u);
  EXPECT_THAT(reply.decisions(0).violations(0).excerpt(), HasSubstr("> +0x"));
  const uint64_t offset = reply.decisions(0).site().location().kernel_offset();
  const ProgramResult one = why({"--attach", spec, "add_one", absl::StrCat(offset)});
  EXPECT_THAT(one.out, HasSubstr("1 site refused, 0 attached"));

  const ProgramResult unknown = why({"--attach", spec, "add_onee"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.out, HasSubstr("did you mean 'add_one'?"));
  EXPECT_THAT(why({"--attach", spec, "add_one", "0x2"}).out, HasSubstr("error[RJD-S012]"));
  EXPECT_EQ(why({"add_one"}).exit_code, 2) << "nothing is asked for";
  EXPECT_EQ(why({"--attach", "kernel=*,sites=(,probe=nop", "add_one"}).exit_code, 3);
  EXPECT_EQ(Rjctl({"why-not-attached", "x", "--file", "/nowhere", "--attach", spec}).exit_code, 2);
}

TEST(Offline, ManifestsAreReadByThemselves) {
  const TemporaryFolder folder;
  const std::string good =
      ReadFile(std::string(RJDBI_SOURCE_DIR) + "/contract/manifests/count-waves.textproto");
  const auto check = [&](const std::string& name, const std::string& text) {
    WriteFile(folder.path() + "/" + name, text);
    return Rjctl({"check", folder.path() + "/" + name});
  };
  const ProgramResult fine = check("good.textproto", good);
  EXPECT_EQ(fine.exit_code, 0) << fine.out << fine.err;
  EXPECT_THAT(fine.err, HasSubstr("a manifest of count-waves"));
  const ProgramResult typo = check("typo.yaml", "schema_version: 1\nprobe: p\ncontroll: [CALLS]\n");
  EXPECT_EQ(typo.exit_code, 3);
  EXPECT_THAT(typo.out + typo.err, HasSubstr("error[RJD-U017]"));
  EXPECT_THAT(typo.out + typo.err, HasSubstr("line 3, column 1: unknown field"));
  EXPECT_THAT(typo.out + typo.err, HasSubstr("  | controll: [CALLS]\n  | ^\n"));
  const ProgramResult empty = check("empty", "");
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_THAT(empty.err, HasSubstr("the file is empty"));
  EXPECT_EQ(Rjctl({"check", folder.path() + "/nothing"}).exit_code, 2);
  const ProgramResult object =
      Rjctl({"check", folder.path() + "/good.textproto", "--probe", folder.path() + "/typo.yaml"});
  EXPECT_EQ(object.exit_code, 3) << "no object";
}

constexpr char kTwoProbes[] = R"(
RJDBI_PROBE counted(RJDBI_TELEMETRY counters) { rjdbi_add(counters, 1); }
RJDBI_PROBE unused(RJDBI_TELEMETRY counters, rjdbi_u32 site) {}
)";

// What infer writes is a manifest that check and attach read.
TEST(Offline, InferWritesNothingThatIsRefused) {
  const TemporaryFolder folder;
  const std::string object = CompileProbes(folder, kTwoProbes);
  const auto infer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"infer", object});
    return Rjctl(more);
  };
  const std::string manifest = folder.path() + "/m";
  for (const char* format : {"textproto", "yaml"}) {
    // Passed, though not used.
    const ProgramResult inferred =
        infer({"--entry", "unused", "--arguments", "telemetry,site", "--format", format});
    ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
    WriteFile(manifest, inferred.out);
    const ProgramResult checked = Rjctl({"check", object, manifest});
    EXPECT_EQ(checked.exit_code, 0) << checked.err << inferred.out;
  }
  struct Case {
    std::vector<std::string> options;
    std::string says;
  };
  std::string many = "telemetry";
  for (int i = 0; i < 40; ++i) many += ",1";
  const std::vector<Case> cases = {
      {{"--arguments", "telemetry", "--telemetry-words", "513"}, "no number from 1 to 512"},
      {{"--arguments", "telemetry", "--telemetry-words", "0"}, "--telemetry-words"},
      {{"--arguments", many}, "would be passed on the stack"},
      {{"--arguments", "telemetry,,7"}, "argument 2 is empty"},
      {{"--arguments", "telemetry,"}, "argument 2 is empty"},
      {{"--arguments", "telemetry", "--name", "nop"}, "name of a built-in"}};
  for (const Case& c : cases) {
    std::vector<std::string> options = {"--entry", "counted"};
    options.insert(options.end(), c.options.begin(), c.options.end());
    const ProgramResult refused = infer(options);
    EXPECT_EQ(refused.exit_code, 2) << c.says << refused.err;
    EXPECT_EQ(refused.out, "") << c.says;
    EXPECT_THAT(refused.err, HasSubstr(c.says));
  }
}

// What is granted by a slip is said aloud.
TEST(Offline, InferWarnsOfWritesThatAreNotProven) {
  const TemporaryFolder folder;
  const std::string object = CompileProbes(folder, R"(
RJDBI_PROBE low(rjdbi_u64 address, RJDBI_TELEMETRY c) { rjdbi_add(c + 1, address & 3); }
)");
  const auto infer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"infer", object, "--arguments"});
    return Rjctl(more);
  };
  const ProgramResult right = infer({"address, telemetry"});
  EXPECT_EQ(right.exit_code, 0);
  EXPECT_EQ(right.err, "");
  EXPECT_THAT(right.out, HasSubstr("telemetry_words: 2"));
  for (const ProgramResult& slip :
       {infer({"telemetry,address"}), infer({"address,telemetry", "--telemetry-words", "1"})}) {
    EXPECT_EQ(slip.exit_code, 0);
    EXPECT_THAT(slip.out, HasSubstr("APPLICATION_MEMORY_WRITE"));
    EXPECT_THAT(slip.err, HasSubstr("warning: the manifest grants writes to the application"));
  }
  const ProgramResult large = infer({"address,telemetry", "--name", std::string(70000, 'x')});
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.err, HasSubstr("the manifest is too long"));
}

TEST(Offline, NamesOfProbesMayBeAnything) {
  const TemporaryFolder folder;
  const std::string object = CompileProbes(folder, kTwoProbes);
  std::string bytes = ReadFile(object);
  const size_t at = bytes.find("counted");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 7, "\x1b[31m\xff\x9b");
  WriteFile(object, bytes);
  const ProgramResult table = Rjctl({"check", object});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(table.out, HasSubstr("?[31m\\xff\\x9b  amdgcn"));
  const ProgramResult json = Rjctl({"check", object, "-o", "json"});
  EXPECT_EQ(json.err, "");
  EXPECT_EQ(Parse<v1::CheckProbeReply>(json.out).probes(0).entry(), "\x1b[31m\\xff\\x9b");
  // No text names such a function.
  bytes.replace(bytes.find("unused"), 6, "\xff nuse");
  WriteFile(object, bytes);
  for (const char* format : {"textproto", "yaml"}) {
    const ProgramResult inferred = Rjctl({"infer", object, "--format", format});
    EXPECT_EQ(inferred.exit_code, 2);
    EXPECT_EQ(inferred.out, "");
    EXPECT_EQ(inferred.err.find('\x1b'), std::string::npos);
  }
}

TEST(Offline, CheckHoldsTheFunctionThatTheManifestNames) {
  const TemporaryFolder folder;
  const std::string object = CompileProbes(folder, kTwoProbes), manifest = folder.path() + "/m";
  WriteFile(manifest,
            Rjctl({"infer", object, "--entry", "counted", "--arguments", "telemetry"}).out);
  const ProgramResult both = Rjctl({"check", object, manifest});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("manifest   kept"));
  EXPECT_THAT(both.out, HasSubstr("manifest   is of another function"));
  EXPECT_EQ(Rjctl({"check", manifest, object}).out, both.out) << "in either order";
  EXPECT_EQ(Rjctl({"check", manifest, "--probe", object}).out, both.out);
  const ProgramResult other = Rjctl({"check", object, manifest, "--entry", "unused"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("the manifest is of counted"));

  const ProgramResult alone = Rjctl({"check", manifest, "--entry", "unused"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("the manifest is of counted"));
  const auto none =
      Parse<v1::CheckProbeReply>(Rjctl({"check", manifest, manifest, "-o", "json"}).out);
  EXPECT_EQ(none.violations_size(), 1) << "no object, said once";

  std::string strict = ReadFile(manifest);
  strict.replace(strict.find("memory: PRIVATE_TELEMETRY"), 25, "");
  WriteFile(manifest, strict);
  const ProgramResult broken = Rjctl({"check", object, manifest});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_THAT(broken.out, HasSubstr("manifest   broken"));
}

// The manifest says how many lanes the code is for.
TEST(Offline, CheckReadsCodeAsTheManifestSays) {
  const TemporaryFolder folder;
  const std::string object =
      CompileProbes(folder, "RJDBI_PROBE counted(RJDBI_TELEMETRY c) { rjdbi_count(c, 1); }",
                    "gfx1030", {"-mwavefrontsize64"});
  const std::string manifest = folder.path() + "/m";
  const ProgramResult inferred =
      Rjctl({"infer", object, "--arguments", "telemetry", "--wavefront-size", "64"});
  ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
  WriteFile(manifest, inferred.out);
  const ProgramResult checked = Rjctl({"check", object, manifest});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("wave64"));
  const ProgramResult other = Rjctl({"check", object, manifest, "--wavefront-size", "32"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("the manifest says 64"));
}

// Files that are none, and those that never end, are named and left.
TEST(Offline, OnlyRegularFilesAreRead) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero"), folder.path()}) {
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"check", file}, {"infer", file}, {"map", file}, {"unpatch", file}}) {
      const ProgramResult result = Rjctl(command);
      EXPECT_EQ(result.exit_code, 2) << command[0];
      EXPECT_THAT(result.err, HasSubstr(file + ": not a regular file\n")) << command[0];
    }
  }
  const ProgramResult perturbation = Rjctl({"perturbation", pipe});
  EXPECT_EQ(perturbation.exit_code, 2);
  EXPECT_THAT(perturbation.err, HasSubstr("warning: " + pipe + ": not a regular file"));
  EXPECT_EQ(Rjctl({"perturbation", "/nonexistent"}).err.find("warning: /nonexistent: No such"), 0u);
}

TEST(Offline, ManifestsThatAreBombsAreRefused) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& text) {
    WriteFile(folder.path() + "/m", text);
    return Rjctl({"check", folder.path() + "/m"});
  };
  std::string deep = "probe: ";
  for (int i = 0; i < 20000; ++i) deep += "[";
  const ProgramResult nested = check(deep);
  EXPECT_EQ(nested.exit_code, 3);
  EXPECT_THAT(nested.err, HasSubstr("nested too deeply"));
  std::string fields;
  for (int i = 0; i < 10000; ++i) fields += "user{";
  EXPECT_EQ(check(fields).exit_code, 3);
  // Longer than what attach takes.
  const ProgramResult large = check(std::string(100000, '#'));
  EXPECT_EQ(large.exit_code, 3);
  EXPECT_THAT(large.err, HasSubstr("the manifest is too long"));
}

TEST(Offline, PerturbationCountsEachOnce) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co", link = folder.path() + "/link.co";
  WriteFile(file, CodeObject());
  std::filesystem::create_symlink(file, link);
  const auto reply =
      Parse<v1::PerturbationReply>(Rjctl({"perturbation", file, file, link, folder.path(),
                                          "--probe", "nop", "--probe", "nop", "-o", "json"})
                                       .out);
  ASSERT_EQ(reply.rows_size(), 1);
  EXPECT_EQ(reply.rows(0).objects(), 1u);
  EXPECT_EQ(Rjctl({"perturbation", file, "--limit", "-3"}).exit_code, 2);
  EXPECT_THAT(Rjctl({"perturbation", file, "--limit", "0"}).err,
              HasSubstr("error: --limit: '0' is no number of 1 or more\n"));
  const ProgramResult kernel = Rjctl({"perturbation", file, "--kernel", "add_oen"});
  EXPECT_EQ(kernel.exit_code, 3);
  EXPECT_THAT(kernel.err, HasSubstr("note: nothing of the objects is selected"));
}

TEST(Offline, MapSaysWhatItDoesNotFind) {
  const TemporaryFolder folder;
  const std::string input = folder.path() + "/in.co", patched = folder.path() + "/p.co";
  WriteFile(input, CodeObject());
  const std::string spec = "kernel=add_one,sites=memory,probe=count-waves";
  ASSERT_EQ(Rjctl({"admit", input, "--attach", spec, "--output-image", patched}).exit_code, 0);
  const ProgramResult pc = Rjctl({"map", patched, "add_oen+0x4"});
  EXPECT_EQ(pc.exit_code, 2);
  EXPECT_THAT(pc.err, HasSubstr("did you mean 'add_one'?"));
  const ProgramResult kernel = Rjctl({"map", patched, "--kernel", "add_oen"});
  EXPECT_EQ(kernel.exit_code, 0);
  EXPECT_THAT(kernel.err, HasSubstr("note: no kernel of the file matches 'add_oen'; did you mean"));
  const ProgramResult plain = Rjctl({"map", patched, "--kernel", "lds_sum"});
  EXPECT_THAT(plain.err, HasSubstr("note: no kernel that 'lds_sum' matches has probes"));
  const ProgramResult both = Rjctl({"map", patched, "0x0", "--kernel", "add_one"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--kernel"));
  // One file cannot be both.
  for (const std::string& same : {patched, folder.path() + "/./p.co"}) {
    const ProgramResult outputs =
        Rjctl({"admit", input, "--attach", spec, "--output-image", patched, "--output-map", same});
    EXPECT_EQ(outputs.exit_code, 2);
    EXPECT_THAT(outputs.err, HasSubstr("one file"));
  }
  EXPECT_EQ(Rjctl({"unpatch", patched}).exit_code, 0) << "it is as it was";
}

TEST(Offline, WhyNotAttachedSaysWhatTheFileIs) {
  const ProgramResult host = Rjctl({"why-not-attached", "k", "--file", "/proc/self/exe", "--attach",
                                    "kernel=*,sites=*,probe=nop"});
  EXPECT_EQ(host.exit_code, 3);
  EXPECT_THAT(host.err, HasSubstr("roc-obj-extract"));
}

// An option that may be repeated takes one value at a time, whatever comes behind.
TEST(Offline, OptionsAndNamesInAnyOrder) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/in.co";
  WriteFile(file, CodeObject());
  const std::string spec = "kernel=*,sites=memory,probe=nop";
  const std::vector<std::vector<std::string>> orders = {
      {"admit", "--attach", spec, file, "-o", "json"},
      {"admit", file, "--attach", spec, "-o", "json"},
      {"admit", "-o", "json", "--attach", spec, "--attach", spec, file},
      {"perturbation", "--probe", "nop", file, "-o", "json"},
      {"why-not-attached", "--attach", spec, "--file", file, "add_one", "-o", "json"},
      {"why-not-attached", "--file", file, "--attach", spec, "add_one", "0x0", "-o", "json"}};
  for (const std::vector<std::string>& order : orders) {
    const ProgramResult result = Rjctl(order);
    EXPECT_EQ(result.exit_code, 0) << absl::StrJoin(order, " ") << result.err << result.out;
  }
}

TEST(Offline, MessagesArePlain) {
  EXPECT_THAT(Rjctl({"--frob"}).err, HasSubstr("unknown option '--frob'"));
  EXPECT_THAT(Rjctl({"frob"}).err, HasSubstr("unknown verb 'frob'"));
  EXPECT_THAT(Rjctl({"explain", "rjd-b003"}).out, HasSubstr("RJD-B003: "));
  EXPECT_THAT(Rjctl({"explain", "RJD-B003"}).out, HasSubstr("--max-injected-instructions"));
  for (const char* wait : {"abc", "1.5", "-1", "3601", "99999999999999999999"}) {
    const ProgramResult result = Rjctl({"detach", "--all", "--wait", wait});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("'", wait, "' is no number from 0 to 3600")));
  }
  const ProgramResult none = Rjctl({"--socket", "/nonexistent", "status"});
  EXPECT_EQ(none.err,
            "error: no rjdbid answers on /nonexistent: there is no such socket\n"
            "help: start rjdbid (systemctl start rjdbid.socket, or rjdbid by hand), or name its "
            "socket with --socket or RJDBI_CONTROL_SOCKET\n");
}

TEST(Offline, ColourOnlyWhenAsked) {
  EXPECT_THAT(Rjctl({"explain", "RJD-B001"}).out, Not(HasSubstr("\033[")));
  EXPECT_THAT(Rjctl({"--color", "always", "explain", "RJD-B001"}).out, HasSubstr("\033["));
}

TEST(Offline, CompletionNamesEveryVerb) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Rjctl({"completion", shell}).out;
    for (const char* verb : {"run", "attach", "why-not-attached", "coverage", "export", "top",
                             "admit", "map", "unpatch"}) {
      EXPECT_THAT(script, HasSubstr(verb)) << shell;
    }
  }
  const ProgramResult completed = RunProgram({"/bin/bash", "-c",
                                              std::string("source <(") + RJDBI_RJCTL +
                                                  " completion bash); COMP_WORDS=(rjctl why); "
                                                  "COMP_CWORD=1; _rjctl; echo \"$COMPREPLY\""});
  EXPECT_EQ(completed.out, "why-not-attached\n") << completed.err;
}

}  // namespace
}  // namespace rjdbi::tests
