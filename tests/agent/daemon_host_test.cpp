// The agent with the real rjdbid: what it says is understood, and what happens to
// the daemon does not happen to the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/agent/host_run.h"
#include "tests/daemon/harness.h"

namespace rjdbi::agent {
namespace {

using ::testing::HasSubstr;
using testing::kBoth;
using testing::kNone;
using testing::Result;
using testing::RunHost;
using ::testing::StartsWith;
using tests::Daemon;
using tests::Eventually;

constexpr char kPrograms[] = RJDBI_BINARY_DIR "/tests/programs/";

class DaemonHostTest : public ::testing::Test {
 protected:
  DaemonHostTest() : gap_file_(folder_.path() + "/gaps.jsonl") {}

  Result RunLoader(const std::string& repeat, testing::Through through, int deadline_ms = 20'000) {
    return RunHost({std::string(kPrograms) + "hsa_loader_paths", "--code-object",
                    std::string(kPrograms) + "loader_kernel_gfx90a.co", "--repeat", repeat},
                   through,
                   {{"RJDBI_SOCKET", daemon_.agent_socket()},
                    {"RJDBI_DEADLINE_MS", std::to_string(deadline_ms)},
                    {"RJDBI_GAP_FILE", gap_file_}});
  }

  long Gaps() {
    const std::string text = tests::ReadFile(gap_file_);
    return std::count(text.begin(), text.end(), '\n');
  }

  tests::TemporaryFolder folder_;
  std::string gap_file_;
  Daemon daemon_;
};

TEST_F(DaemonHostTest, NothingAttachedNothingSent) {
  ASSERT_TRUE(daemon_.Start()) << daemon_.log();
  Result result = RunLoader("2", kBoth);
  EXPECT_THAT(result.output, StartsWith("PASS"));
  const v1::GetStatusReply status = daemon_.Status();
  EXPECT_EQ(status.uploaded_bytes(), 0u);
  ASSERT_EQ(status.sessions_size(), 1);
  EXPECT_EQ(status.sessions(0).pid(), static_cast<uint32_t>(result.pid));
  EXPECT_EQ(status.sessions(0).code_objects(), 2u);
  EXPECT_TRUE(status.sessions(0).closed_cleanly());
  EXPECT_THAT(status.sessions(0).executable(), HasSubstr("hsa_loader_paths"));
  EXPECT_EQ(Gaps(), 0);
}

TEST_F(DaemonHostTest, KnownObjectsAreSentOnceAndResultsStay) {
  ASSERT_TRUE(daemon_.Start()) << daemon_.log();
  Result plain = RunLoader("1", kNone);
  daemon_.Attach("*", "global_store*", "nop");
  const uint64_t size = tests::ReadFile(std::string(kPrograms) + "loader_kernel_gfx90a.co").size();
  for (int i = 0; i < 2; ++i) {
    Result result = RunLoader("1", kBoth);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.output, plain.output);
    EXPECT_EQ(daemon_.Status().uploaded_bytes(), size);
  }
  EXPECT_EQ(Gaps(), 0);
}

TEST_F(DaemonHostTest, StoppedDaemonIsOneDelay) {
  ASSERT_TRUE(daemon_.Start()) << daemon_.log();
  daemon_.Attach("*", "global_store*", "nop");
  Result plain = RunLoader("5", kNone);
  ASSERT_EQ(kill(daemon_.pid(), SIGSTOP), 0);
  Result result = RunLoader("5", kBoth, 500);
  kill(daemon_.pid(), SIGCONT);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, plain.output);
  EXPECT_LE(result.ms, plain.ms + 500 + 2500);
  EXPECT_EQ(Gaps(), 5);
}

TEST_F(DaemonHostTest, DaemonKilledWhileTheProgramLoads) {
  ASSERT_TRUE(daemon_.Start()) << daemon_.log();
  daemon_.Attach("*", "global_store*", "nop");
  std::thread killer([this] {
    Eventually([this] {
      const v1::GetStatusReply status = daemon_.Status();
      return status.sessions_size() > 0 && status.sessions(0).code_objects() > 3;
    });
    daemon_.Stop(SIGKILL);
  });
  Result result = RunLoader("400", kBoth, 2000);
  killer.join();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, StartsWith("PASS"));
  EXPECT_GT(Gaps(), 0);
}

TEST_F(DaemonHostTest, GapsOfAnOutageReachTheDaemon) {
  std::thread late([this] {
    Eventually([this] { return Gaps() > 0; });
    ASSERT_TRUE(daemon_.Start()) << daemon_.log();
  });
  // Takes several seconds: the daemon comes up and the back-off passes meanwhile.
  Result result = RunLoader("1000", kBoth);
  EXPECT_EQ(result.exit_code, 0);
  late.join();
  uint64_t gaps = 0;
  const v1::GetStatusReply status = daemon_.Status();
  for (const v1::Session& session : status.sessions()) gaps += session.gaps();
  EXPECT_GT(gaps, 0u);
}

}  // namespace
}  // namespace rjdbi::agent
