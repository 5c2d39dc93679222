// The agent's books: which bytes a reader reads, what a gap says, where the
// fixups go, what the environment means.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "agent/config.h"
#include "agent/counters.h"
#include "agent/gaps.h"
#include "agent/patched_loads.h"
#include "agent/reader_registry.h"
#include "agent/runtime.h"
#include "agent/sha256.h"
#include "tests/agent/fake_daemon.h"

namespace rjdbi::agent {
namespace {

using ::testing::HasSubstr;
using testing::Sha256Of;
using testing::SocketPath;

std::string Text(ByteView view) {
  return std::string(reinterpret_cast<const char*>(view.data), view.size);
}

class TempFile {
 public:
  explicit TempFile(const std::string& name, const std::string& content)
      : path_(directory_.directory() + "/" + name) {
    std::ofstream(path_, std::ios::binary) << content;
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~TempFile() { close(fd_); }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  SocketPath directory_;
  std::string path_;
  int fd_;
};

TEST(Sha256, AgreesWithOpenSsl) {
  for (size_t size : {0, 1, 55, 56, 63, 64, 65, 1000, 1 << 20}) {
    std::string bytes(size, 'q');
    Sha256Digest digest = Sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    EXPECT_EQ(std::string(digest.begin(), digest.end()), Sha256Of(bytes)) << size;
  }
}

TEST(Readers, MemoryIsPointedAt) {
  std::string bytes = "code object";
  CodeObject object = DescribeMemory(bytes.data(), bytes.size());
  EXPECT_EQ(reinterpret_cast<const char*>(object.bytes.data), bytes.data());
  EXPECT_THAT(object.origin, HasSubstr("memory://" + std::to_string(getpid()) + "#offset=0x"));
  EXPECT_THAT(object.origin, HasSubstr("&size=11"));
}

TEST(Readers, WholeFileSurvivesItsDescriptor) {
  CodeObject object;
  {
    TempFile file("a b.co", "0123456789");
    lseek(file.fd(), 4, SEEK_SET);
    object = DescribeWholeFile(file.fd());
    EXPECT_EQ(lseek(file.fd(), 0, SEEK_CUR), 4);  // the host's position is untouched
    EXPECT_THAT(object.origin, HasSubstr("file:///"));
    EXPECT_THAT(object.origin, HasSubstr("a%20b.co#offset=0x0&size=10"));
  }
  EXPECT_EQ(Text(object.bytes), "0123456789");
}

TEST(Readers, FileRange) {
  TempFile file("x.co", "0123456789");
  CodeObject object = DescribeFile(file.fd(), 3, 4);
  EXPECT_EQ(Text(object.bytes), "3456");
  EXPECT_THAT(object.origin, HasSubstr("#offset=0x3&size=4"));
}

TEST(Readers, BadRangesAreProblems) {
  TempFile file("x.co", "0123456789");
  EXPECT_NE(DescribeFile(file.fd(), 11, 1).problem, "");
  EXPECT_NE(DescribeFile(file.fd(), 5, 6).problem, "");
  EXPECT_NE(DescribeFile(file.fd(), 0, 0).problem, "");
  EXPECT_NE(DescribeFile(file.fd(), UINT64_MAX, 2).problem, "");
  EXPECT_NE(DescribeFile(-1, 0, 1).problem, "");
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  EXPECT_NE(DescribeWholeFile(pipe_fds[0]).problem, "");
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(Readers, UnreadableMemoryIsSeenBeforeItIsTouched) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_TRUE(IsReadable({memory, 3 * page}));
  EXPECT_TRUE(IsReadable({memory + 17, page}));
  mprotect(memory + 2 * page, page, PROT_NONE);
  EXPECT_TRUE(IsReadable({memory, 2 * page}));
  EXPECT_FALSE(IsReadable({memory, 2 * page + 1}));
  munmap(memory + 2 * page, page);
  EXPECT_FALSE(IsReadable({memory + page, page + 1}));
  EXPECT_FALSE(IsReadable({memory, SIZE_MAX}));
  EXPECT_FALSE(IsReadable({nullptr, 10}));
  EXPECT_FALSE(IsReadable({memory, 0}));
  munmap(memory, 2 * page);
}

TEST(Readers, RegistryFollowsHandles) {
  ReaderRegistry registry;
  registry.Add(5, DescribeMemory("one", 3));
  registry.Add(5, DescribeMemory("three", 5));  // the handle was reused
  CodeObject found;
  ASSERT_TRUE(registry.Find(5, &found));
  EXPECT_EQ(Text(found.bytes), "three");
  registry.Remove(5);
  EXPECT_FALSE(registry.Find(5, &found));
  EXPECT_EQ(registry.size(), 0u);
}

TEST(Fixups, FillLittleEndianWords) {
  OwnedBytes image = OwnedBytes::Allocate(16);
  std::memset(image.data(), 0xee, image.size());
  ApplyFixups(
      {{2, FixupKind::kCounterAddressLo32, 0x18}, {9, FixupKind::kCounterAddressHi32, 0x18}},
      0x00007ffffffffff0, 0, &image);
  // 0x7ffffffffff0 + 0x18 = 0x800000000008
  const uint8_t expected[16] = {0xee, 0xee, 0x08, 0, 0, 0,    0xee, 0xee,
                                0xee, 0x00, 0x80, 0, 0, 0xee, 0xee, 0xee};
  EXPECT_EQ(std::memcmp(image.data(), expected, 16), 0);
}

TEST(Gaps, JsonIsEscaped) {
  Gap gap;
  gap.kind = GapKind::kUnreadableObject;
  gap.origin = "file:///a\"b\\c\n\xff";
  gap.size = 3;
  std::string json = GapAsJson(gap);
  EXPECT_THAT(json, HasSubstr("\"kind\":\"GAP_UNREADABLE_OBJECT\""));
  EXPECT_THAT(json, HasSubstr("a\\\"b\\\\c\\u000a\\u00ff"));
  EXPECT_THAT(json, HasSubstr("\"sha256\":\"\""));
}

TEST(Gaps, AreAppendedToTheFileAndQueued) {
  SocketPath directory;
  Config config;
  config.gap_file = directory.directory() + "/gaps.jsonl";
  GapLog log(config);
  EXPECT_FALSE(log.HasPending());
  log.Record(Gap{.kind = GapKind::kDaemonUnreachable});
  log.Record(Gap{.kind = GapKind::kProtocolError});
  std::ifstream file(config.gap_file);
  std::string first, second, third;
  EXPECT_TRUE(std::getline(file, first) && std::getline(file, second));
  EXPECT_FALSE(std::getline(file, third));
  EXPECT_THAT(second, HasSubstr("GAP_PROTOCOL_ERROR"));
  std::vector<Gap> pending = log.TakePending();
  ASSERT_EQ(pending.size(), 2u);
  EXPECT_GT(pending[0].unix_ns, 0);
  EXPECT_FALSE(log.HasPending());
  log.Restore(std::move(pending));
  EXPECT_TRUE(log.HasPending());
}

TEST(Gaps, QueueIsBoundedAndTheLossIsCounted) {
  Config config;
  GapLog log(config);
  for (int i = 0; i < 1500; ++i) log.Record(Gap{.kind = GapKind::kDaemonUnreachable});
  std::vector<Gap> pending = log.TakePending();
  ASSERT_EQ(pending.size(), 1025u);
  EXPECT_THAT(pending.back().detail, HasSubstr("476 further gaps"));
}

TEST(Gaps, ALimitOnFilesDoesNotKillTheHost) {
  SocketPath directory;
  pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_FSIZE, &none);
    signal(SIGXFSZ, SIG_DFL);
    Config config;
    config.gap_file = directory.directory() + "/gaps.jsonl";
    GapLog log(config);
    log.Record(Gap{.kind = GapKind::kDaemonUnreachable});
    _exit(log.HasPending() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Gaps, ClosedStderrDoesNotKillTheHost) {
  pid_t child = fork();
  if (child == 0) {
    int fds[2];
    if (pipe(fds) != 0) _exit(2);
    dup2(fds[1], STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
    signal(SIGPIPE, SIG_DFL);
    Config config;
    config.log = true;
    GapLog log(config);
    log.Record(Gap{.kind = GapKind::kDaemonUnreachable});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Config, ReadsTheEnvironment) {
  setenv("RJDBI_SOCKET", "/x/y", 1);
  setenv("RJDBI_DEADLINE_MS", "150", 1);
  setenv("RJDBI_GAP_FILE", "/g", 1);
  setenv("RJDBI_LOG", "1", 1);
  Config config = Config::FromEnvironment();
  EXPECT_EQ(config.socket_path, "/x/y");
  EXPECT_EQ(config.deadline_ns, 150 * kNsPerMs);
  EXPECT_EQ(config.gap_file, "/g");
  EXPECT_TRUE(config.log);
  for (const char* bad : {"", "x", "0", "-5", "12x", "99999999999999999999"}) {
    setenv("RJDBI_DEADLINE_MS", bad, 1);
    EXPECT_EQ(Config::FromEnvironment().deadline_ns, 2000 * kNsPerMs) << bad;
  }
  for (const char* name : {"RJDBI_SOCKET", "RJDBI_DEADLINE_MS", "RJDBI_GAP_FILE", "RJDBI_LOG"}) {
    unsetenv(name);
  }
  EXPECT_EQ(Config::FromEnvironment().socket_path, "/run/rjdbid/agent.sock");
}

TEST(Config, DisableIsHonoured) {
  EXPECT_FALSE(DisabledByEnvironment());
  setenv("RJDBI_DISABLE", "0", 1);
  EXPECT_FALSE(DisabledByEnvironment());
  setenv("RJDBI_DISABLE", "1", 1);
  EXPECT_TRUE(DisabledByEnvironment());
  unsetenv("RJDBI_DISABLE");
}

TEST(PatchedLoadsTest, TakenLoadsAreNotReported) {
  PatchedLoads loads;
  auto load = std::make_unique<PatchedLoad>();
  load->load_id = 4;
  loads.Add(77, load);
  EXPECT_EQ(load, nullptr);
  std::vector<LoadCounters> first = loads.SnapshotChanged();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].sequence, 1u);
  EXPECT_TRUE(loads.SnapshotChanged().empty());  // nothing changed
  loads.ForgetReported();
  EXPECT_EQ(loads.SnapshotChanged().at(0).sequence, 2u);
  loads.ForgetReported();
  loads.HoldReads(true);
  EXPECT_TRUE(loads.SnapshotChanged().empty());
  loads.HoldReads(false);
  PatchedLoadList taken = loads.Take(77);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(loads.empty());
  EXPECT_TRUE(loads.Take(77).empty());
  loads.PutBack(77, std::move(taken));
  EXPECT_FALSE(loads.empty());
}

TEST(RuntimeTest, AChildStartsOver) {
  Runtime* parent = Runtime::Current();
  ASSERT_NE(parent, nullptr);
  parent->readers.Add(1, DescribeMemory("x", 1));
  pid_t child = fork();
  if (child == 0) {
    if (Runtime::Existing() != nullptr) _exit(1);
    Runtime* own = Runtime::Current();
    if (!own || own == parent || own->pid != getpid()) _exit(2);
    CodeObject object;
    if (own->readers.Find(1, &object)) _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Runtime::Existing(), parent);
}

}  // namespace
}  // namespace rjdbi::agent
