// Attaching to and detaching from programs that run, on the unmodified ROCR and the
// software GPU, with a daemon that says what it is told. The image beside stores nothing
// and counts, so that the program itself sees which of its dispatches were directed.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

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
using testing::LiveState;
using testing::RunningHost;
using testing::Script;
using testing::Sha256Of;
using testing::SocketPath;
using testing::Through;

constexpr uint64_t kNothing = 1;  // generations
constexpr uint64_t kLanes = 128;  // of one dispatch of the host

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Enough of the code object to replace its kernel.
class Elf {
 public:
  explicit Elf(const std::string& bytes) : bytes_(bytes) {
    std::memcpy(&header_, bytes.data(), sizeof header_);
  }
  uint64_t TextOffset() const {
    for (int i = 0; i < header_.e_shnum; ++i) {
      if (Section(i).sh_flags & SHF_EXECINSTR) return Section(i).sh_offset;
    }
    return 0;
  }
  uint64_t TextAddress() const {
    for (int i = 0; i < header_.e_shnum; ++i) {
      if (Section(i).sh_flags & SHF_EXECINSTR) return Section(i).sh_addr;
    }
    return 0;
  }
  uint64_t Symbol(const std::string& name) const {
    for (int i = 0; i < header_.e_shnum; ++i) {
      const Elf64_Shdr section = Section(i);
      if (section.sh_type != SHT_DYNSYM) continue;
      for (uint64_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::memcpy(&symbol, bytes_.data() + section.sh_offset + at, sizeof symbol);
        if (name ==
            bytes_.data() + Section(static_cast<int>(section.sh_link)).sh_offset + symbol.st_name) {
          return symbol.st_value;
        }
      }
    }
    return 0;
  }
  // The file's bytes at an address.
  std::string At(uint64_t address, size_t size) const {
    for (int i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment;
      std::memcpy(&segment, bytes_.data() + header_.e_phoff + i * sizeof segment, sizeof segment);
      if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
          address + size <= segment.p_vaddr + segment.p_filesz) {
        return bytes_.substr(segment.p_offset + address - segment.p_vaddr, size);
      }
    }
    return "";
  }

 private:
  Elf64_Shdr Section(int i) const {
    Elf64_Shdr section;
    std::memcpy(&section, bytes_.data() + header_.e_shoff + static_cast<size_t>(i) * sizeof section,
                sizeof section);
    return section;
  }
  const std::string& bytes_;
  Elf64_Ehdr header_;
};

// The kernel replaced by one that adds to the first counter in every lane: 1, or the
// address of the original's descriptor, which only the agent can have filled in.
LiveState Counting(const std::string& original, uint64_t generation, bool addresses = false) {
  const Elf elf(original);
  const uint64_t text = elf.TextOffset();
  const uint64_t descriptor = elf.Symbol("loader_kernel.kd");
  EXPECT_NE(text, 0u);
  EXPECT_NE(descriptor, 0u);
  const uint32_t code[] = {
      0xbe8000ff, 0,           // s_mov_b32 s0, counter address, low word
      0xbe8100ff, 0,           // s_mov_b32 s1, counter address, high word
      0xbe8200ff, 1,           // s_mov_b32 s2, what is added, low word
      0xbe8300ff, 0,           // s_mov_b32 s3, what is added, high word
      0x7e000280,              // v_mov_b32 v0, 0
      0x7e040202,              // v_mov_b32 v2, s2
      0x7e060203,              // v_mov_b32 v3, s3
      0xdd888000, 0x00000200,  // global_atomic_add_x2 v0, v[2:3], s[0:1]
      0xbf8c0000,              // s_waitcnt 0
      0xbf810000,              // s_endpgm
  };
  LiveState live;
  live.generation = generation;
  live.attachments = 1;
  live.image = original;
  live.image.replace(text, sizeof code, reinterpret_cast<const char*>(code), sizeof code);
  v1::AdmitDecision& decision = live.decision;
  decision.set_verdict(v1::PATCHED);
  decision.set_generation(generation);
  decision.set_patched_size(live.image.size());
  decision.set_patched_sha256(Sha256Of(live.image));
  decision.set_counter_count(1);
  const auto fix = [&](uint64_t at, v1::FixupKind kind, uint64_t addend) {
    v1::Fixup* fixup = decision.add_fixups();
    fixup->set_file_offset(text + at);
    fixup->set_kind(kind);
    fixup->set_addend(addend);
  };
  fix(4, v1::COUNTER_ADDRESS_LO32, 0);
  fix(12, v1::COUNTER_ADDRESS_HI32, 0);
  if (addresses) {
    fix(20, v1::ORIGINAL_ADDRESS_LO32, descriptor);
    fix(28, v1::ORIGINAL_ADDRESS_HI32, descriptor);
  }
  v1::KernelSwitch* direct = decision.add_kernel_switches();
  direct->set_kernel("loader_kernel");
  direct->set_original_descriptor(descriptor);
  direct->set_beside_descriptor(descriptor);
  return live;
}

LiveState Nothing(uint64_t generation) {
  LiveState live;
  live.generation = generation;
  live.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  live.decision.set_generation(generation);
  return live;
}

Script Original() {
  Script script;
  script.knows_watch = true;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  script.decision.set_generation(kNothing);
  return script;
}

class LiveHostTest : public ::testing::Test {
 protected:
  void SetUp() override { Begin(Original()); }

  void Begin(Script script) {
    daemon_.reset();
    daemon_ = std::make_unique<FakeDaemon>(socket_.path(), std::move(script));
    daemon_->SetLive(Nothing(kNothing));
  }

  std::unique_ptr<RunningHost> Start(Through through = kBoth,
                                     std::map<std::string, std::string> environment = {}) {
    environment.insert({{"RJDBI_SOCKET", socket_.path()},
                        {"RJDBI_DEADLINE_MS", "20000"},
                        {"RJDBI_GAP_FILE", gap_file_}});
    auto host = std::make_unique<RunningHost>(
        std::vector<std::string>{RJDBI_BINARY_DIR "/tests/agent/agent_live_host", kObject}, through,
        std::move(environment));
    EXPECT_EQ(host->Hear(), "ready");
    EXPECT_EQ(host->Say("load"), "ok");
    return host;
  }

  void Set(LiveState live) {
    const uint64_t generation = live.generation;
    daemon_->SetLive(std::move(live));
    EXPECT_TRUE(daemon_->WaitInPlace(generation)) << Gaps();
  }

  std::string Gaps() { return ReadFile(gap_file_); }

  // The last values of each load that has counters.
  std::map<uint64_t, v1::LoadCounters> Values() {
    std::map<uint64_t, v1::LoadCounters> values;
    for (const v1::ReportRequest& report : daemon_->reports()) {
      for (const v1::LoadCounters& load : report.loads()) values[load.load_id()] = load;
    }
    return values;
  }
  uint64_t Sum() {
    uint64_t sum = 0;
    for (const auto& [load_id, load] : Values()) sum += load.counters(0);
    return sum;
  }
  bool Eventually(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return holds();
  }

  static constexpr char kObject[] = RJDBI_BINARY_DIR "/tests/programs/loader_kernel_gfx90a.co";
  SocketPath socket_;
  const std::string original_ = ReadFile(kObject);
  const std::string gap_file_ = socket_.directory() + "/gaps.jsonl";
  std::unique_ptr<FakeDaemon> daemon_;
};

TEST_F(LiveHostTest, AttachAndDetachTakeEffectAtTheNextDispatch) {
  for (Through through : {kToolsLib, kBoth}) {
    Begin(Original());
    auto host = Start(through);
    EXPECT_EQ(host->Say("run 3"), "right 3 wrong 0");
    Set(Counting(original_, 2));
    EXPECT_EQ(host->Say("run 5"), "right 0 wrong 5");
    Set(Nothing(3));
    EXPECT_EQ(host->Say("run 2"), "right 2 wrong 0");
    EXPECT_EQ(host->Say("run 2"), "right 2 wrong 0");
    // The fence went in front of the second; the image is gone, with its last values.
    EXPECT_TRUE(Eventually([&] {
      const auto values = Values();
      return values.size() == 1 && values.begin()->second.final();
    }));
    EXPECT_EQ(Sum(), 5 * kLanes);
    ASSERT_EQ(daemon_->headers().size(), 3u);
    EXPECT_FALSE(daemon_->headers()[0].beside());
    EXPECT_TRUE(daemon_->headers()[1].beside());
    EXPECT_EQ(daemon_->headers()[1].beside_load_id(), daemon_->headers()[0].load_id());
    EXPECT_EQ(host->Finish(), 0);
    EXPECT_EQ(daemon_->sessions(), 1);
    EXPECT_TRUE(daemon_->opened().at(0).follows());
    EXPECT_EQ(daemon_->closed_sessions(), 1);
    EXPECT_EQ(Gaps(), "");
  }
}

TEST_F(LiveHostTest, AddressesOfTheOriginalAreFilledIn) {
  auto host = Start();
  Set(Counting(original_, 2, /*addresses=*/true));
  const uint64_t kernel = std::stoull(host->Say("kernel"));
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  Set(Nothing(3));
  EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0");
  EXPECT_TRUE(Eventually([&] { return Sum() == kLanes * kernel; })) << Sum();
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, OneImageTakesTheOthersPlace) {
  auto host = Start();
  uint64_t dispatches = 0;
  for (uint64_t generation = 2; generation < 12; ++generation) {
    Set(Counting(original_, generation));
    EXPECT_EQ(host->Say("run 2"), "right 0 wrong 2");
    dispatches += 2;
  }
  EXPECT_TRUE(Eventually([&] { return Sum() == dispatches * kLanes; })) << Sum();
  // All but the last are gone: each had its fence in front of the next one's dispatches.
  EXPECT_TRUE(Eventually([&] {
    size_t finals = 0;
    for (const auto& [load_id, load] : Values()) finals += load.final();
    return finals == 9;
  }));
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(LiveHostTest, IdleQueuesKeepOneImageAndTheExecutableTakesItAlong) {
  auto host = Start();
  EXPECT_EQ(host->Say("queue"), "ok");
  for (uint64_t generation = 2; generation < 8; ++generation) {
    Set(Counting(original_, generation));
    EXPECT_EQ(host->Say("run 1 0"), "right 0 wrong 1");
    if (generation == 3) {
      EXPECT_EQ(host->Say("run 1 1"), "right 0 wrong 1");
    }
  }
  Set(Nothing(8));
  EXPECT_EQ(host->Say("run 1 0"), "right 1 wrong 0");
  // The second queue is still owed its fence for what it ran last.
  const auto finals = [&] {
    size_t count = 0;
    for (const auto& [load_id, load] : Values()) count += load.final();
    return count;
  };
  EXPECT_TRUE(Eventually([&] { return finals() == 5; })) << finals();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(finals(), 5u);
  EXPECT_EQ(host->Say("unload"), "ok");
  EXPECT_TRUE(Eventually([&] { return finals() == 6; })) << finals();
  EXPECT_EQ(Sum(), 7 * kLanes);
  EXPECT_EQ(host->Say("load"), "ok");
  EXPECT_EQ(host->Say("run 1 1"), "right 1 wrong 0");
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(LiveHostTest, AQueueThatIsDestroyedOwesNothing) {
  auto host = Start();
  EXPECT_EQ(host->Say("queue"), "ok");
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 1 1"), "right 0 wrong 1");
  Set(Nothing(3));
  EXPECT_EQ(host->Say("drop"), "ok");
  EXPECT_TRUE(Eventually([&] {
    const auto values = Values();
    return values.size() == 1 && values.begin()->second.final();
  }));
  EXPECT_EQ(Sum(), kLanes);
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, UnloadWhileAttachedAndLoadAgain) {
  auto host = Start();
  Set(Counting(original_, 2));
  for (int i = 0; i < 5; ++i) {
    // Directed or not yet: both are sound.
    EXPECT_THAT(host->Say("run 1"), ::testing::AnyOf("right 0 wrong 1", "right 1 wrong 0"));
    EXPECT_EQ(host->Say("unload"), "ok");
    EXPECT_EQ(host->Say("load"), "ok");
  }
  // Loaded anew as the daemon says it is to be; its generation is one that is not in
  // place, so it is asked about: the same again, beside.
  EXPECT_TRUE(Eventually([&] { return host->Say("run 1") == "right 0 wrong 1"; }));
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(LiveHostTest, MoreUnderWayThanTheRingHolds) {
  auto host = Start();
  EXPECT_EQ(host->Say("flood 500"), "right 500 wrong 0");
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("flood 500"), "right 0 wrong 500");
  Set(Nothing(3));
  EXPECT_EQ(host->Say("flood 500"), "right 500 wrong 0");
  EXPECT_TRUE(Eventually([&] { return Sum() == 500 * kLanes; })) << Sum();
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, ManyThreadsWhileItComesAndGoes) {
  auto host = Start();
  std::thread changes([&] {
    for (uint64_t i = 0; i < 40; ++i) {
      Set(Counting(original_, 2 + 2 * i));
      Set(Nothing(3 + 2 * i));
    }
  });
  uint64_t wrong = 0, total = 0;
  for (int i = 0; i < 10; ++i) {
    unsigned r = 0, w = 0;
    const std::string line = host->Say("threads 4 100");
    ASSERT_EQ(std::sscanf(line.c_str(), "right %u wrong %u", &r, &w), 2) << line;
    total += r + w;
    wrong += w;
  }
  changes.join();
  EXPECT_EQ(total, 4000u);
  EXPECT_EQ(host->Say("threads 4 1"), "right 4 wrong 0");
  // Exactly those that were directed have been counted.
  EXPECT_TRUE(Eventually([&] { return Sum() == wrong * kLanes; })) << Sum() << " " << wrong;
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Gaps(), "");
}

TEST_F(LiveHostTest, KernelsThatWerePatchedAtLoadGetTheirOriginalBack) {
  Script script = Original();
  const LiveState at_load = Counting(original_, 2);
  script.decision = at_load.decision;
  script.decision.clear_kernel_switches();
  // The kernel's own code stays; a second one stands for the clone. Here: the
  // descriptor's entry moves to code that does nothing.
  const Elf elf(original_);
  const uint64_t descriptor = elf.Symbol("loader_kernel.kd");
  const std::string own = elf.At(descriptor, 64);
  int64_t entry = 0;
  std::memcpy(&entry, own.data() + 16, sizeof entry);
  script.image = original_;
  const size_t at = script.image.find(own);
  ASSERT_NE(at, std::string::npos);
  // The last instruction of the kernel is s_endpgm.
  const std::string end("\x00\x00\x81\xbf", 4);
  const uint64_t last = elf.TextOffset() + original_.substr(elf.TextOffset()).find(end);
  const int64_t moved = static_cast<int64_t>(elf.TextAddress() + (last - elf.TextOffset())) -
                        static_cast<int64_t>(descriptor);
  script.image.replace(at + 16, sizeof moved, reinterpret_cast<const char*>(&moved), sizeof moved);
  script.decision.clear_fixups();
  script.decision.set_patched_size(script.image.size());
  script.decision.set_patched_sha256(Sha256Of(script.image));
  Begin(script);
  LiveState attached = Nothing(2);
  attached.attachments = 1;
  daemon_->SetLive(attached);
  auto host = Start();
  EXPECT_EQ(host->Say("run 2"), "right 0 wrong 2");
  LiveState detached = Nothing(3);
  v1::KernelRestore* restore = detached.decision.add_kernel_restores();
  restore->set_kernel("loader_kernel");
  restore->set_patched_descriptor(descriptor);
  restore->set_original(own);
  restore->set_code(descriptor + static_cast<uint64_t>(entry));
  Set(detached);
  EXPECT_EQ(host->Say("run 3"), "right 3 wrong 0");
  LiveState again = Nothing(4);
  again.attachments = 1;
  Set(again);
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Gaps(), "");
}

// ---- What goes wrong leaves the original, and a gap ----

TEST_F(LiveHostTest, BytesThatAreGone) {
  auto host = Start();
  EXPECT_EQ(host->Say("forget"), "ok");
  LiveState live = Counting(original_, 2);
  live.need_bytes = true;
  Set(live);
  EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0");
  EXPECT_THAT(Gaps(), HasSubstr("GAP_UNREADABLE_OBJECT"));
  EXPECT_THAT(Gaps(), HasSubstr("not what was loaded"));
  // A daemon that has them does not need ours.
  Set(Counting(original_, 3));
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, BytesThatAreWantedAreSent) {
  auto host = Start();
  LiveState live = Counting(original_, 2);
  live.need_bytes = true;
  Set(live);
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  ASSERT_EQ(daemon_->uploads().size(), 1u);
  EXPECT_TRUE(daemon_->uploads()[0] == original_);
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, WrongAnswersChangeNothing) {
  auto host = Start();
  uint64_t generation = 2;
  std::vector<LiveState> answers;
  LiveState answer = Counting(original_, 0);
  answer.decision.mutable_kernel_switches(0)->set_original_descriptor(0x123456789000);
  answers.push_back(answer);
  answer = Counting(original_, 0);
  answer.decision.mutable_kernel_switches(0)->set_beside_descriptor(0x40000000);
  answers.push_back(answer);
  answer = Counting(original_, 0);
  answer.decision.mutable_kernel_switches(0)->set_beside_descriptor(
      answer.decision.kernel_switches(0).beside_descriptor() + 8);
  answers.push_back(answer);
  answer = Counting(original_, 0);
  answer.image = std::string(answer.image.size(), 'x');
  answer.decision.set_patched_sha256(Sha256Of(answer.image));
  answers.push_back(answer);
  answer = Counting(original_, 0);
  answer.image.back() ^= 1;  // not what is announced
  answers.push_back(answer);
  answer = Counting(original_, 0);
  answer.admit_status = 13;
  answers.push_back(answer);
  answer = Nothing(0);
  answer.attachments = 1;
  v1::KernelRestore* restore = answer.decision.add_kernel_restores();
  restore->set_patched_descriptor(0x77777777000);
  restore->set_original(std::string(64, 'd'));
  answers.push_back(answer);
  size_t gaps = 0;
  for (LiveState& wrong : answers) {
    wrong.generation = ++generation;
    wrong.decision.set_generation(generation);
    daemon_->SetLive(wrong);
    EXPECT_TRUE(Eventually([&] {
      const std::string text = Gaps();
      return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) > gaps;
    })) << generation;
    const std::string text = Gaps();
    gaps = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0") << generation;
  }
  Set(Counting(original_, ++generation));
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1") << Gaps();
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, TheDaemonGoesAndAnotherComes) {
  auto host = Start();
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  daemon_.reset();
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");  // what is in place stays
  Begin(Original());
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 2"), "right 0 wrong 2");
  // The new daemon has a load of its own to count. (It also hears of the old one.)
  ASSERT_EQ(daemon_->headers().size(), 1u);
  const uint64_t own = daemon_->headers()[0].load_id();
  EXPECT_TRUE(Eventually([&] {
    const auto values = Values();
    const auto found = values.find(own);
    return found != values.end() && found->second.counters(0) == 2 * kLanes;
  }));
  Set(Nothing(3));
  EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0");
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, AnOutageIsAGapOnlyIfNothingComesOfTheRepeats) {
  for (const bool comes_back : {true, false}) {
    Begin(Original());
    auto host = Start();
    LiveState live = Counting(original_, 2);
    live.hang_up = true;
    daemon_->SetLive(live);
    // The load, and two images beside it, each asked about on a connection that was open
    // already and on a new one.
    EXPECT_TRUE(Eventually([&] { return daemon_->headers().size() >= 4; }));
    EXPECT_EQ(Gaps(), "");
    EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0");
    if (comes_back) {
      Set(Counting(original_, 2));
      EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
    }
    EXPECT_EQ(host->Finish(), 0);
    if (comes_back) {
      EXPECT_EQ(Gaps(), "");
    } else {
      EXPECT_THAT(Gaps(), HasSubstr("GAP_DAEMON_UNREACHABLE"));
    }
  }
}

TEST_F(LiveHostTest, ASessionThatIsForgottenIsOpenedAgain) {
  auto host = Start();
  daemon_->ForgetSessions();
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 1"), "right 0 wrong 1");
  EXPECT_EQ(daemon_->sessions(), 2);
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, AnOldDaemonIsAskedOnce) {
  Script script = Original();
  script.knows_watch = false;
  Begin(script);
  auto host = Start();
  EXPECT_TRUE(Eventually([&] { return daemon_->connections() == 2; }));
  EXPECT_EQ(host->Say("run 2"), "right 2 wrong 0");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(daemon_->watches().empty());
  EXPECT_EQ(daemon_->connections(), 2);
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(daemon_->closed_sessions(), 1);
}

// ---- The host's own business ----

TEST_F(LiveHostTest, ProfilingAndMasksWork) {
  auto host = Start();
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("profile"), "took");
  EXPECT_EQ(host->Say("mask"), "masked");
  EXPECT_EQ(host->Say("run 2"), "right 0 wrong 2");
  EXPECT_EQ(host->Finish(), 0);
}

// Loaded before the agent and after it: both see every dispatch, and both keep the queue's
// ring from overflowing.
TEST_F(LiveHostTest, AnotherToolThatInterceptsQueues) {
  const std::string agent = RJDBI_AGENT_PATH, other = RJDBI_SECOND_TOOL;
  const std::string file = socket_.directory() + "/second";
  for (const std::string& tools : {agent + " " + other, other + " " + agent}) {
    for (Through through : {kNone, kPreload}) {
      Begin(Original());
      auto host = Start(through, {{"HSA_TOOLS_LIB", tools}, {"SECOND_TOOL_FILE", file}});
      EXPECT_EQ(host->Say("run 3"), "right 3 wrong 0");
      Set(Counting(original_, 2));
      EXPECT_EQ(host->Say("run 5"), "right 0 wrong 5");
      Set(Nothing(3));
      EXPECT_EQ(host->Say("run 2"), "right 2 wrong 0");
      EXPECT_TRUE(Eventually([&] { return Sum() == 5 * kLanes; })) << Sum();
      EXPECT_EQ(host->Say("burst 300"), "right 300 wrong 0");
      EXPECT_EQ(host->Finish(), 0);
      EXPECT_EQ(ReadFile(file), "1 queues 310 dispatches\n") << tools;
    }
  }
  EXPECT_EQ(Gaps(), "");
}

TEST_F(LiveHostTest, ADispatchCostsTheHostLessThanAMicrosecond) {
  const auto nanoseconds = [&](RunningHost& host) { return std::stod(host.Say("time 32")); };
  auto plain = Start(kBoth, {{"RJDBI_LIVE", "0"}});
  auto live = Start();
  const double without = nanoseconds(*plain);
  const double detached = nanoseconds(*live);
  LiveState other = Counting(original_, 2);
  v1::KernelSwitch* direct = other.decision.mutable_kernel_switches(0);
  direct->set_original_descriptor(direct->original_descriptor() + 64);  // of no kernel
  Set(other);
  const double attached = nanoseconds(*live);
  EXPECT_EQ(live->Say("run 1"), "right 1 wrong 0");
  std::printf("a dispatch: %.0f ns plain, %+.0f ns intercepted, %+.0f ns with another attached\n",
              without, detached - without, attached - without);
#if !RJDBI_SANITIZED
  EXPECT_LT(attached - without, 1000);
#endif
  EXPECT_EQ(live->Finish(), 0);
  EXPECT_EQ(plain->Finish(), 0);
}

TEST_F(LiveHostTest, ShutDownAndStartAgain) {
  auto host = Start();
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 2"), "right 0 wrong 2");
  EXPECT_EQ(host->Say("shutdown"), "ok");
  EXPECT_EQ(host->Say("load"), "ok");
  EXPECT_TRUE(Eventually([&] { return host->Say("run 1") == "right 0 wrong 1"; }));
  Set(Nothing(3));
  EXPECT_EQ(host->Say("run 1"), "right 1 wrong 0");
  EXPECT_EQ(host->Finish(), 0);
}

TEST_F(LiveHostTest, EndsWhileAttached) {
  auto host = Start();
  Set(Counting(original_, 2));
  EXPECT_EQ(host->Say("run 4"), "right 0 wrong 4");
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_EQ(Sum(), 4 * kLanes);
  ASSERT_EQ(Values().size(), 1u);
  EXPECT_TRUE(Values().begin()->second.final());
}

TEST_F(LiveHostTest, SwitchedOffNothingIsWatched) {
  auto host = Start(kBoth, {{"RJDBI_LIVE", "0"}});
  daemon_->SetLive(Counting(original_, 2));
  EXPECT_EQ(host->Say("flood 200"), "right 200 wrong 0");
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_TRUE(daemon_->watches().empty());
  EXPECT_FALSE(daemon_->opened().at(0).follows());
  EXPECT_EQ(daemon_->connections(), 1);
}

TEST_F(LiveHostTest, WithoutTheToolsTableNothingIsWatched) {
  auto host = Start(kPreload);
  daemon_->SetLive(Counting(original_, 2));
  EXPECT_EQ(host->Say("flood 200"), "right 200 wrong 0");
  EXPECT_EQ(host->Finish(), 0);
  EXPECT_TRUE(daemon_->watches().empty());
  EXPECT_FALSE(daemon_->opened().at(0).follows());
}

}  // namespace
}  // namespace rjdbi::agent
