// Whole processes under the agent: the unmodified ROCR on the software GPU, every
// way of loading, every way of interposing, and a daemon of any temper. The
// program's own result check says whether it was disturbed.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "tests/agent/fake_daemon.h"
#include "tests/agent/host_run.h"

namespace rjdbi::agent {
namespace {

using testing::FakeDaemon;
using ::testing::HasSubstr;
using testing::kBoth;
using testing::kNone;
using testing::kPreload;
using testing::kToolsLib;
using testing::Point;
using testing::Result;
using testing::RunHost;
using testing::Script;
using testing::Sha256Of;
using testing::SocketPath;
using ::testing::StartsWith;
using testing::Through;

constexpr char kPrograms[] = RJDBI_BINARY_DIR "/tests/programs/";
constexpr char kHosts[] = RJDBI_BINARY_DIR "/tests/agent/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string CodeObjectPath() { return std::string(kPrograms) + "loader_kernel_gfx90a.co"; }

// The kernel replaced by one that adds 1 to the first counter in every lane.
Script CountingPatch(const std::string& original, uint32_t counters = 1) {
  Elf64_Ehdr header;
  std::memcpy(&header, original.data(), sizeof header);
  uint64_t text = 0;
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section,
                original.data() + header.e_shoff + static_cast<size_t>(i) * sizeof section,
                sizeof section);
    if (section.sh_flags & SHF_EXECINSTR) text = section.sh_offset;
  }
  EXPECT_NE(text, 0u);
  const uint32_t code[] = {
      0xbe8000ff, 0,           // s_mov_b32 s0, counter address, low word
      0xbe8100ff, 0,           // s_mov_b32 s1, counter address, high word
      0x7e000280,              // v_mov_b32 v0, 0
      0x7e040281,              // v_mov_b32 v2, 1
      0x7e060280,              // v_mov_b32 v3, 0
      0xdd888000, 0x00000200,  // global_atomic_add_x2 v0, v[2:3], s[0:1]
      0xbf8c0000,              // s_waitcnt 0
      0xbf810000,              // s_endpgm
  };
  Script script;
  script.image = original;
  script.image.replace(text, sizeof code, reinterpret_cast<const char*>(code), sizeof code);
  script.decision.set_verdict(v1::PATCHED);
  script.decision.set_patched_size(script.image.size());
  script.decision.set_patched_sha256(Sha256Of(script.image));
  script.decision.set_counter_count(counters);
  auto* low = script.decision.add_fixups();
  low->set_file_offset(text + 4);
  low->set_kind(v1::COUNTER_ADDRESS_LO32);
  auto* high = script.decision.add_fixups();
  high->set_file_offset(text + 12);
  high->set_kind(v1::COUNTER_ADDRESS_HI32);
  return script;
}

Script NotSelected() {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  return script;
}

class HostTest : public ::testing::Test {
 protected:
  HostTest()
      : original_(ReadFile(CodeObjectPath())), gap_file_(socket_.directory() + "/gaps.jsonl") {}

  std::map<std::string, std::string> Environment(int deadline_ms) {
    return {{"RJDBI_SOCKET", socket_.path()},
            {"RJDBI_DEADLINE_MS", std::to_string(deadline_ms)},
            {"RJDBI_GAP_FILE", gap_file_}};
  }

  Result RunLoader(std::vector<std::string> options, Through through, int deadline_ms = 20'000) {
    std::vector<std::string> command = {std::string(kPrograms) + "hsa_loader_paths",
                                        "--code-object", CodeObjectPath()};
    command.insert(command.end(), options.begin(), options.end());
    return RunHost(command, through, Environment(deadline_ms));
  }

  std::string Gaps() { return ReadFile(gap_file_); }

  // The last values reported for each load.
  static std::map<uint64_t, v1::LoadCounters> Finals(FakeDaemon& daemon) {
    std::map<uint64_t, v1::LoadCounters> finals;
    for (const v1::ReportRequest& report : daemon.reports()) {
      for (const v1::LoadCounters& load : report.loads()) {
        if (load.final()) finals[load.load_id()] = load;
      }
    }
    return finals;
  }

  SocketPath socket_;
  std::string original_;
  std::string gap_file_;
};

// ---- Every way of loading, every way of interposing ----

struct Way {
  const char* name;
  std::vector<std::string> options;
  std::string origin;  // how the daemon hears it called
};

const Way kWays[] = {
    {"Memory", {"--path", "memory"}, "memory://"},
    {"File", {"--path", "file"}, "file:///"},
    {"Offset", {"--path", "offset"}, "file:///"},
    {"OffsetMajor", {"--path", "offset-major"}, "file:///"},
    {"Deprecated", {"--load", "deprecated"}, "memory://"},
};

class WayTest : public HostTest, public ::testing::WithParamInterface<std::tuple<Way, Through>> {};

TEST_P(WayTest, SeesTheObjectOnceAndLeavesTheProgramAlone) {
  const auto& [way, through] = GetParam();
  FakeDaemon daemon(socket_.path(), NotSelected());
  Result result = RunLoader(way.options, through);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, StartsWith("PASS"));
  const auto headers = daemon.headers();
  ASSERT_EQ(headers.size(), 1u);
  EXPECT_EQ(headers[0].sha256(), Sha256Of(original_));
  EXPECT_EQ(headers[0].size(), original_.size());
  EXPECT_THAT(headers[0].origin(), StartsWith(way.origin));
  EXPECT_THAT(headers[0].agent_isa(), HasSubstr("gfx90a"));
  const char* texts[] = {"", "LD_PRELOAD", "HSA_TOOLS_LIB", "LD_PRELOAD,HSA_TOOLS_LIB"};
  EXPECT_EQ(daemon.opened().at(0).loaded_through(), texts[through]);
  EXPECT_EQ(daemon.opened().at(0).pid(), static_cast<uint32_t>(result.pid));
  EXPECT_EQ(daemon.closed_sessions(), 1);
  EXPECT_EQ(Gaps(), "");
}

TEST_P(WayTest, PatchedBytesRunAndTheirCountersArrive) {
  const auto& [way, through] = GetParam();
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  Result result = RunLoader(way.options, through);
  EXPECT_NE(result.exit_code, 0);  // the patch computes nothing else
  EXPECT_THAT(result.output, HasSubstr("FAIL"));
  ASSERT_EQ(daemon.headers().size(), 1u);
  const auto finals = Finals(daemon);
  ASSERT_EQ(finals.size(), 1u);
  ASSERT_EQ(finals.begin()->second.counters_size(), 1);
  EXPECT_EQ(finals.begin()->second.counters(0), 1024u);  // 1000 elements in workgroups of 64
  EXPECT_EQ(Gaps(), "");
}

std::string WayName(const ::testing::TestParamInfo<std::tuple<Way, Through>>& info) {
  const char* texts[] = {"", "Preload", "ToolsLib", "Both"};
  return std::string(std::get<0>(info.param).name) + texts[std::get<1>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Ways, WayTest,
                         ::testing::Combine(::testing::ValuesIn(kWays),
                                            ::testing::Values(kPreload, kToolsLib, kBoth)),
                         WayName);

TEST_F(HostTest, HostThatFindsRocrThroughDlsym) {
  for (Through through : {kToolsLib, kBoth}) {
    FakeDaemon daemon(socket_.path(), NotSelected());
    Result result = RunHost({std::string(kHosts) + "agent_dlopen_host", CodeObjectPath()}, through,
                            Environment(20'000));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(daemon.headers().size(), 1u);
    EXPECT_EQ(Gaps(), "");
  }
}

TEST_F(HostTest, HostWithItsOwnProtobufAndGrpc) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  Result result = RunHost({std::string(kHosts) + "agent_grpc_host", CodeObjectPath()}, kBoth,
                          Environment(20'000));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("PASS"));
  EXPECT_EQ(daemon.headers().size(), 1u);
  EXPECT_EQ(Finals(daemon).size(), 1u);
}

TEST_F(HostTest, RepeatedLoadsCountSeparately) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_, 300));
  RunLoader({"--repeat", "1"}, kBoth);
  ASSERT_EQ(Finals(daemon).size(), 1u);
  EXPECT_EQ(Finals(daemon).begin()->second.counters_size(), 300);
}

TEST_F(HostTest, DisabledMeansUntouched) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  auto environment = Environment(2000);
  environment["RJDBI_DISABLE"] = "1";
  for (Through through : {kPreload, kToolsLib, kBoth}) {
    Result result = RunHost({std::string(kPrograms) + "hsa_loader_paths", "--code-object",
                             CodeObjectPath(), "--path", "offset"},
                            through, environment);
    EXPECT_THAT(result.output, StartsWith("PASS"));
  }
  EXPECT_EQ(daemon.connections(), 0);
}

TEST_F(HostTest, RefusedPatchedImageFallsBackToTheOriginal) {
  Script script = CountingPatch(original_);
  script.image = std::string(script.image.size(), 'x');
  script.decision.set_patched_sha256(Sha256Of(script.image));
  FakeDaemon daemon(socket_.path(), script);
  Result result = RunLoader({}, kBoth);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, StartsWith("PASS"));
  EXPECT_THAT(Gaps(), HasSubstr("GAP_PATCHED_LOAD_FAILED"));
  ASSERT_EQ(daemon.reports().size(), 1u);  // told at exit
  ASSERT_EQ(daemon.reports()[0].gaps_size(), 1);
  EXPECT_EQ(daemon.reports()[0].gaps(0).kind(), v1::GAP_PATCHED_LOAD_FAILED);
}

// ---- Bad objects: ROCR's verdict is the same with and without the agent ----

TEST_F(HostTest, BadObjectsAreRefusedAsWithoutTheAgent) {
  const std::string garbage(5000, 'g');
  for (const std::string& bytes :
       {std::string(256, '\0'), original_.substr(0, original_.size() / 2), garbage,
        original_.substr(0, 20), ReadFile("/bin/true")}) {
    const std::string path = socket_.directory() + "/bad.co";
    std::ofstream(path, std::ios::binary) << bytes;
    FakeDaemon daemon(socket_.path(), NotSelected());
    auto run = [&](Through through) {
      return RunHost({std::string(kPrograms) + "hsa_loader_paths", "--code-object", path}, through,
                     Environment(20'000));
    };
    Result plain = run(kNone);
    Result agent = run(kBoth);
    EXPECT_EQ(agent.exit_code, plain.exit_code);
    EXPECT_EQ(agent.output, plain.output);
  }
}

// ---- Bad daemons: the program runs unpatched, late by the deadline at most ----

constexpr int kDeadlineMs = 500;
constexpr int64_t kSlackMs = 2500;  // a busy machine's

struct Daemon {
  const char* name;
  Point stall;
  Point close;
  const char* gap;
};

const Daemon kDaemons[] = {
    {"StallsAtAccept", Point::kAccept, Point::kNever, "GAP_DEADLINE_EXCEEDED"},
    {"StallsAtOpen", Point::kOpenSession, Point::kNever, "GAP_DEADLINE_EXCEEDED"},
    {"StallsAtHeader", Point::kHeader, Point::kNever, "GAP_DEADLINE_EXCEEDED"},
    {"StallsAtDecision", Point::kDecision, Point::kNever, "GAP_DEADLINE_EXCEEDED"},
    {"StallsInTheImage", Point::kMidImage, Point::kNever, "GAP_DEADLINE_EXCEEDED"},
    {"DiesAtAccept", Point::kNever, Point::kAccept, "GAP_DAEMON_UNREACHABLE"},
    {"DiesAtHeader", Point::kNever, Point::kHeader, "GAP_DAEMON_UNREACHABLE"},
    {"DiesInTheUpload", Point::kNever, Point::kUpload, "GAP_DAEMON_UNREACHABLE"},
    {"DiesInTheImage", Point::kNever, Point::kMidImage, "GAP_DAEMON_UNREACHABLE"},
};

class BadDaemonTest : public HostTest, public ::testing::WithParamInterface<Daemon> {};

TEST_P(BadDaemonTest, OneDelayOriginalLoadedGapRecorded) {
  Result plain = RunLoader({"--repeat", "5"}, kNone);
  ASSERT_EQ(plain.exit_code, 0);
  Script script = CountingPatch(original_);
  script.need_bytes = true;
  script.stall = GetParam().stall;
  script.close = GetParam().close;
  FakeDaemon daemon(socket_.path(), script);
  Result result = RunLoader({"--repeat", "5"}, kBoth, kDeadlineMs);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, plain.output);
  EXPECT_LE(result.ms, plain.ms + kDeadlineMs + kSlackMs);
  const std::string gaps = Gaps();
  EXPECT_EQ(std::count(gaps.begin(), gaps.end(), '\n'), 5) << gaps;
  EXPECT_THAT(gaps, HasSubstr(GetParam().gap));
}

INSTANTIATE_TEST_SUITE_P(Daemons, BadDaemonTest, ::testing::ValuesIn(kDaemons),
                         [](const auto& info) { return info.param.name; });

TEST_F(HostTest, MissingDaemon) {
  Result result = RunLoader({"--repeat", "3"}, kBoth, kDeadlineMs);
  EXPECT_EQ(result.exit_code, 0);
  const std::string gaps = Gaps();
  EXPECT_EQ(std::count(gaps.begin(), gaps.end(), '\n'), 3) << gaps;
  EXPECT_THAT(gaps, HasSubstr("GAP_DAEMON_UNREACHABLE"));
}

// ---- Forks ----

class ForkTest : public HostTest {
 protected:
  Result Fork(const char* mode, Through through) {
    return RunHost({std::string(kHosts) + "agent_fork_host", mode, "100", CodeObjectPath()},
                   through, Environment(20'000));
  }
};

TEST_F(ForkTest, ExecWithTheGpuInUse) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  Result result = Fork("exec", kBoth);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(daemon.sessions(), 1);
  EXPECT_EQ(Finals(daemon).size(), 2u);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(ForkTest, ExitWithTheGpuInUse) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  Result result = Fork("exit", kBoth);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(daemon.sessions(), 1);  // no child speaks for its parent
  EXPECT_EQ(daemon.closed_sessions(), 1);
  int final_reports = 0;
  for (const auto& report : daemon.reports()) {
    for (const auto& load : report.loads()) final_reports += load.final();
  }
  EXPECT_EQ(final_reports, 2);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(ForkTest, BothSidesAfterAForkBeforeFirstUse) {
  FakeDaemon daemon(socket_.path(), CountingPatch(original_));
  Result result = Fork("both", kBoth);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(daemon.sessions(), 200);
  EXPECT_EQ(daemon.closed_sessions(), 200);
  std::set<uint32_t> pids;
  for (const auto& opened : daemon.opened()) pids.insert(opened.pid());
  EXPECT_EQ(pids.size(), 200u);
  int final_reports = 0;
  for (const auto& report : daemon.reports()) {
    for (const auto& load : report.loads()) final_reports += load.final();
  }
  EXPECT_EQ(final_reports, 200);
  EXPECT_EQ(Gaps(), "");
}

// ---- Hosts without HSA ----

// Processor time, the least of many runs taken in turns: wall time says more
// about the machine's other work. What a sanitizer costs is of no interest.
TEST_F(HostTest, PreloadingIntoOtherProgramsCostsNextToNothing) {
  FakeDaemon daemon(socket_.path(), NotSelected());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"/bin/true"}, {"/usr/bin/cmake", "--version"}}) {
    int64_t least_us[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i < (RJDBI_SANITIZED ? 2 : 40); ++i) {
      for (Through through : {kNone, kPreload}) {
        Result result = RunHost(command, through, Environment(2000));
        EXPECT_EQ(result.exit_code, 0);
        least_us[through] = std::min(least_us[through], result.cpu_us);
      }
    }
    int64_t cost_us = least_us[kPreload] - least_us[kNone];
    std::printf("%s: %ld us of processor time, %+ld us preloaded\n", command[0].c_str(),
                static_cast<long>(least_us[kNone]), static_cast<long>(cost_us));
#if !RJDBI_SANITIZED
    EXPECT_LT(cost_us, 1000);
#endif
  }
  EXPECT_EQ(daemon.connections(), 0);
}

}  // namespace
}  // namespace rjdbi::agent
