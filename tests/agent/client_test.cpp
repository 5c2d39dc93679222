// The daemon client against peers that behave and peers that do not: whatever
// they do, the answer is a checked decision or a fault within the deadline.
#include "agent/daemon_client/client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "agent/sha256.h"
#include "tests/agent/fake_daemon.h"

namespace rjdbi::agent {
namespace {

using testing::FakeDaemon;
using testing::GrpcFrame;
using testing::Point;
using testing::Script;
using testing::Sha256Of;
using testing::SocketPath;

// For conversations that must succeed; and for those that must run into it.
constexpr int64_t kPatientMs = 20'000;
constexpr int64_t kDeadlineMs = 400;
// What a loaded machine may add to a deadline.
constexpr int64_t kSlackMs = 1000;

std::string Through() { return "LD_PRELOAD"; }

std::string Object(size_t size) {
  std::string bytes(size, '\0');
  std::mt19937 random(size);
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

Script Patched(const std::string& image) {
  Script script;
  script.image = image;
  script.decision.set_verdict(v1::PATCHED);
  script.decision.set_patched_size(image.size());
  script.decision.set_patched_sha256(Sha256Of(image));
  script.decision.set_counter_count(2);
  script.decision.set_summary("two sites");
  auto* low = script.decision.add_fixups();
  low->set_file_offset(8);
  low->set_kind(v1::COUNTER_ADDRESS_LO32);
  low->set_addend(8);
  auto* high = script.decision.add_fixups();
  high->set_file_offset(12);
  high->set_kind(v1::COUNTER_ADDRESS_HI32);
  high->set_addend(8);
  return script;
}

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    config_.socket_path = socket_.path();
    NewClient(kPatientMs);
  }

  void NewClient(int64_t deadline_ms) {
    config_.deadline_ns = deadline_ms * kNsPerMs;
    client_ = std::make_unique<DaemonClient>(config_, &Through);
  }

  Fault Admit(const std::string& object, Decision* decision) {
    ByteView view{reinterpret_cast<const uint8_t*>(object.data()), object.size()};
    ObjectHeader header;
    header.digest = Sha256(view);
    header.size = object.size();
    header.origin = "memory://1#offset=0x10&size=20";
    header.load_id = ++load_id_;
    header.agent_isa = "amdgcn-amd-amdhsa--gfx90a";
    header.gpu_node = 1;
    int64_t start = MonotonicNs();
    Fault fault = client_->Admit(header, view, decision);
    took_ms_ = (MonotonicNs() - start) / kNsPerMs;
    return fault;
  }

  FaultKind AdmitSmall() {
    Decision decision;
    Fault fault = Admit(Object(5000), &decision);
    detail_ = fault.detail;
    return fault.kind;
  }

  SocketPath socket_;
  Config config_;
  std::unique_ptr<DaemonClient> client_;
  uint64_t load_id_ = 0;
  int64_t took_ms_ = 0;
  std::string detail_;
};

TEST_F(ClientTest, OriginalNotSelected) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  Decision decision;
  const std::string object = Object(5000);
  ASSERT_TRUE(Admit(object, &decision).ok());
  EXPECT_EQ(decision.verdict, Verdict::kOriginalNotSelected);
  ASSERT_EQ(daemon.headers().size(), 1u);
  const v1::ObjectHeader header = daemon.headers()[0];
  EXPECT_EQ(header.session_id(), "0123456789abcdef");
  EXPECT_EQ(header.sha256(), Sha256Of(object));
  EXPECT_EQ(header.size(), 5000u);
  EXPECT_EQ(header.load_id(), 1u);
  EXPECT_EQ(header.agent_isa(), "amdgcn-amd-amdhsa--gfx90a");
  EXPECT_EQ(header.gpu_node(), 1u);
  EXPECT_TRUE(daemon.uploads().empty());
  const v1::OpenSessionRequest opened = daemon.opened().at(0);
  EXPECT_EQ(opened.pid(), static_cast<uint32_t>(getpid()));
  EXPECT_THAT(opened.executable(), ::testing::HasSubstr("agent_client_test"));
  EXPECT_THAT(opened.command_line(), ::testing::HasSubstr("agent_client_test"));
  EXPECT_EQ(opened.loaded_through(), "LD_PRELOAD");
}

TEST_F(ClientTest, OneSessionForManyObjects) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_REFUSED);
  FakeDaemon daemon(socket_.path(), script);
  for (int i = 0; i < 50; ++i) ASSERT_EQ(AdmitSmall(), FaultKind::kNone);
  EXPECT_EQ(daemon.sessions(), 1);
  EXPECT_EQ(daemon.headers().size(), 50u);
}

TEST_F(ClientTest, PatchedImageAndFixups) {
  const std::string image = Object(123'456);
  FakeDaemon daemon(socket_.path(), Patched(image));
  Decision decision;
  ASSERT_TRUE(Admit(Object(100'000), &decision).ok());
  EXPECT_EQ(decision.verdict, Verdict::kPatched);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(decision.image.data()), decision.image.size()),
            image);
  EXPECT_EQ(decision.buffer.counter_count, 2u);
  EXPECT_EQ(decision.summary, "two sites");
  ASSERT_EQ(decision.fixups.size(), 2u);
  EXPECT_EQ(decision.fixups[1].file_offset, 12u);
  EXPECT_EQ(decision.fixups[1].kind, FixupKind::kCounterAddressHi32);
  EXPECT_EQ(decision.fixups[1].addend, 8u);
}

TEST_F(ClientTest, UploadsEveryByteOnAMiss) {
  for (size_t size :
       {size_t{1}, DaemonClient::kChunkBytes, DaemonClient::kChunkBytes + 1, size_t{5} << 20}) {
    const std::string object = Object(size);
    Script script = Patched(object + "patch");
    script.image_chunk = 1 << 20;
    script.decision.clear_fixups();
    script.need_bytes = true;
    NewClient(kPatientMs);
    FakeDaemon daemon(socket_.path(), script);
    Decision decision;
    Fault fault = Admit(object, &decision);
    ASSERT_TRUE(fault.ok()) << fault.detail;
    ASSERT_EQ(daemon.uploads().size(), 1u);
    EXPECT_TRUE(daemon.uploads()[0] == object) << size;
    EXPECT_EQ(decision.image.size(), object.size() + 5);
  }
}

TEST_F(ClientTest, ObjectOverTheDaemonsLimitIsNotUploaded) {
  Script script;
  script.need_bytes = true;
  FakeDaemon daemon(socket_.path(), script);
  Decision decision;
  Fault fault = Admit(std::string((64 << 20) + 1, 'x'), &decision);
  EXPECT_EQ(fault.kind, FaultKind::kTooLarge) << fault.detail;
  EXPECT_TRUE(daemon.uploads().empty());
}

TEST_F(ClientTest, MissingDaemonCostsNothingAndIsFoundLater) {
  EXPECT_EQ(AdmitSmall(), FaultKind::kUnreachable);
  EXPECT_LT(took_ms_, 100);
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kUnreachable);  // backing off
  EXPECT_EQ(daemon.connections(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_EQ(AdmitSmall(), FaultKind::kNone) << detail_;
}

TEST_F(ClientTest, RestartedDaemonIsJoinedAtOnce) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  auto first = std::make_unique<FakeDaemon>(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kNone);
  first.reset();
  FakeDaemon second(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kNone) << detail_;
  EXPECT_EQ(second.sessions(), 1);
}

TEST_F(ClientTest, UnknownSessionIsReopenedOnce) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  script.admit_status = 5;
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kRemote);
  EXPECT_EQ(daemon.sessions(), 1);
  EXPECT_EQ(AdmitSmall(), FaultKind::kRemote);
  EXPECT_EQ(daemon.sessions(), 2);
}

// A session that is lent may have ended without the lender's having noticed.
TEST_F(ClientTest, ASessionThatWasLentIsReopenedByTheLender) {
  Script script;
  script.knows_watch = true;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  testing::LiveState live;
  live.generation = 7;
  daemon.SetLive(live);
  ASSERT_EQ(AdmitSmall(), FaultKind::kNone);
  for (int round = 0; round < 2; ++round) {
    DaemonClient borrower(config_, &Through);
    borrower.BorrowSessionsOf(*client_);
    daemon.ForgetSessions();
    if (round == 0) {
      WatchAnswer answer;
      const Fault fault = borrower.Watch(0, 0, 0, &answer);
      EXPECT_TRUE(fault.ok()) << fault.detail;
      EXPECT_EQ(answer.generation, 7u);
    } else {
      const std::string object = Object(5000);
      ObjectHeader header;
      header.size = object.size();
      Decision decision;
      const Fault fault = borrower.Admit(
          header, {reinterpret_cast<const uint8_t*>(object.data()), object.size()}, &decision);
      EXPECT_TRUE(fault.ok()) << fault.detail;
    }
    EXPECT_EQ(daemon.sessions(), 2 + round);
    EXPECT_EQ(borrower.session_number(), client_->session_number());
  }
}

TEST_F(ClientTest, ADaemonThatKnowsNoSessionIsNotAskedForever) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  script.admit_status = 5;
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kRemote);
  DaemonClient borrower(config_, &Through);
  borrower.BorrowSessionsOf(*client_);
  const std::string object = Object(5000);
  ObjectHeader header;
  header.size = object.size();
  Decision decision;
  const Fault fault = borrower.Admit(
      header, {reinterpret_cast<const uint8_t*>(object.data()), object.size()}, &decision);
  EXPECT_EQ(fault.kind, FaultKind::kRemote);
  EXPECT_EQ(daemon.sessions(), 2);
}

// ---- Stalls and closes: one delay, bounded ----

struct PointCase {
  Point point;
  const char* name;
};

class StallTest : public ClientTest, public ::testing::WithParamInterface<PointCase> {
 protected:
  StallTest() { NewClient(kDeadlineMs); }

  Script Conversation() {
    Script script = Patched(Object(20'000));
    script.need_bytes = true;
    return script;
  }
};

TEST_P(StallTest, StallIsOneBoundedDelay) {
  Script script = Conversation();
  script.stall = GetParam().point;
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kDeadline) << detail_;
  EXPECT_GE(took_ms_, kDeadlineMs - 50);
  EXPECT_LE(took_ms_, kDeadlineMs + kSlackMs);
  int64_t rest = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(AdmitSmall(), FaultKind::kNone);
    rest += took_ms_;
  }
  EXPECT_LE(rest, kSlackMs);
}

TEST_P(StallTest, StallStaysOneDelayAcrossBackoffs) {
  Script script = Conversation();
  script.stall = GetParam().point;
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kDeadline) << detail_;
  int64_t rest = 0;
  int64_t start = MonotonicNs();
  while (MonotonicNs() - start < 3500 * kNsPerMs) {
    EXPECT_NE(AdmitSmall(), FaultKind::kNone);
    rest += took_ms_;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // One percent of the elapsed time may be spent again.
  EXPECT_LE(rest, 35 + kSlackMs / 2);
}

TEST_P(StallTest, CloseIsAFaultAtOnce) {
  Script script = Conversation();
  script.close = GetParam().point;
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kUnreachable) << detail_;
  EXPECT_LE(took_ms_, kSlackMs);
}

INSTANTIATE_TEST_SUITE_P(Points, StallTest,
                         ::testing::Values(PointCase{Point::kAccept, "Accept"},
                                           PointCase{Point::kOpenSession, "Open"},
                                           PointCase{Point::kHeader, "Header"},
                                           PointCase{Point::kUpload, "Upload"},
                                           PointCase{Point::kDecision, "Decision"},
                                           PointCase{Point::kMidImage, "MidImage"},
                                           PointCase{Point::kTrailers, "Trailers"}),
                         [](const auto& info) { return info.param.name; });

TEST_F(ClientTest, ThreadsShareTheOneDelay) {
  NewClient(kDeadlineMs);
  Script script;
  script.stall = Point::kOpenSession;
  FakeDaemon daemon(socket_.path(), script);
  std::vector<std::thread> threads;
  std::atomic<int64_t> longest{0};
  const std::string object = Object(1000);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ByteView view{reinterpret_cast<const uint8_t*>(object.data()), object.size()};
      ObjectHeader header;
      header.size = object.size();
      int64_t start = MonotonicNs();
      for (int k = 0; k < 5; ++k) {
        Decision decision;
        EXPECT_FALSE(client_->Admit(header, view, &decision).ok());
      }
      int64_t took = (MonotonicNs() - start) / kNsPerMs;
      int64_t seen = longest.load();
      while (took > seen && !longest.compare_exchange_weak(seen, took)) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(longest.load(), kDeadlineMs + kSlackMs);
}

// A daemon that comes back after it used up the whole budget is found without
// anyone waiting for it.
TEST_F(ClientTest, StalledDaemonThatRecoversIsUsedAgain) {
  NewClient(500);  // enough for an answer on a machine that is busy otherwise
  {
    Script script;
    script.stall = Point::kOpenSession;
    FakeDaemon daemon(socket_.path(), script);
    EXPECT_EQ(AdmitSmall(), FaultKind::kDeadline);
  }
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  bool recovered = false;
  for (int i = 0; i < 200 && !recovered; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    recovered = AdmitSmall() == FaultKind::kNone;
    EXPECT_LE(took_ms_, kSlackMs);
  }
  EXPECT_TRUE(recovered) << detail_;
}

// ---- Lies ----

struct LieCase {
  const char* name;
  void (*tell)(Script*);
  FaultKind expected;
};

class LieTest : public ClientTest, public ::testing::WithParamInterface<LieCase> {};

TEST_P(LieTest, IsAFaultNotADecision) {
  Script script = Patched(Object(20'000));
  GetParam().tell(&script);
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), GetParam().expected) << detail_;
  EXPECT_FALSE(detail_.empty());
  EXPECT_LE(took_ms_, kPatientMs / 4);  // seen for what it is, not waited for
}

const LieCase kLies[] = {
    {"WrongHash", [](Script* s) { s->decision.set_patched_sha256(std::string(32, 'x')); },
     FaultKind::kProtocol},
    {"ShortHash", [](Script* s) { s->decision.set_patched_sha256("x"); }, FaultKind::kProtocol},
    {"LongHash", [](Script* s) { s->decision.set_patched_sha256(std::string(33, 'x')); },
     FaultKind::kProtocol},
    {"NoHash", [](Script* s) { s->decision.clear_patched_sha256(); }, FaultKind::kProtocol},
    {"NoSize", [](Script* s) { s->decision.set_patched_size(0); }, FaultKind::kProtocol},
    {"HugeSize", [](Script* s) { s->decision.set_patched_size(uint64_t{1} << 40); },
     FaultKind::kProtocol},
    {"MaxSize", [](Script* s) { s->decision.set_patched_size(UINT64_MAX); }, FaultKind::kProtocol},
    {"ImageTooLong", [](Script* s) { s->decision.set_patched_size(10'000); }, FaultKind::kProtocol},
    {"ImageTooShort", [](Script* s) { s->decision.set_patched_size(30'000); },
     FaultKind::kProtocol},
    {"FixupPastTheEnd",
     [](Script* s) { s->decision.mutable_fixups(0)->set_file_offset(20'000 - 3); },
     FaultKind::kProtocol},
    {"FixupOverflow",
     [](Script* s) { s->decision.mutable_fixups(0)->set_file_offset(UINT64_MAX - 1); },
     FaultKind::kProtocol},
    {"FixupKind",
     [](Script* s) { s->decision.mutable_fixups(0)->set_kind(static_cast<v1::FixupKind>(77)); },
     FaultKind::kProtocol},
    {"FixupAddend", [](Script* s) { s->decision.mutable_fixups(0)->set_addend(16); },
     FaultKind::kProtocol},
    {"FixupWithoutCounters", [](Script* s) { s->decision.set_counter_count(0); },
     FaultKind::kProtocol},
    {"TooManyCounters", [](Script* s) { s->decision.set_counter_count(UINT32_MAX); },
     FaultKind::kProtocol},
    {"TooLongSummary", [](Script* s) { s->decision.set_summary(std::string(100'000, 's')); },
     FaultKind::kProtocol},
    {"UnknownVerdict", [](Script* s) { s->decision.set_verdict(static_cast<v1::AdmitVerdict>(9)); },
     FaultKind::kProtocol},
    {"NoVerdict", [](Script* s) { s->decision.clear_verdict(); }, FaultKind::kProtocol},
    {"EmptyReply", [](Script* s) { s->raw_admit_reply = GrpcFrame(""); }, FaultKind::kProtocol},
    {"GarbageReply", [](Script* s) { s->raw_admit_reply = GrpcFrame("\xff\xff\xff\xff\xff"); },
     FaultKind::kProtocol},
    {"CompressedReply",
     [](Script* s) { s->raw_admit_reply = std::string("\x01\x00\x00\x00\x00", 5); },
     FaultKind::kProtocol},
    {"GiantMessage", [](Script* s) { s->raw_admit_reply = std::string("\x00\xff\xff\xff\xff", 5); },
     FaultKind::kProtocol},
    {"TruncatedMessage",
     [](Script* s) { s->raw_admit_reply = std::string("\x00\x00\x00\x00\x09zz", 7); },
     FaultKind::kProtocol},
    {"TwoParts",
     [](Script* s) {
       v1::AdmitReply chunk, decision;
       chunk.set_chunk("x");
       decision.mutable_decision()->set_verdict(v1::ORIGINAL_REFUSED);
       s->raw_admit_reply = GrpcFrame(chunk.SerializeAsString() + decision.SerializeAsString());
     },
     FaultKind::kProtocol},
    {"ChunkFirst",
     [](Script* s) {
       v1::AdmitReply chunk;
       chunk.set_chunk("xyz");
       s->raw_admit_reply = GrpcFrame(chunk.SerializeAsString());
     },
     FaultKind::kProtocol},
    {"MoreAfterTheImage", [](Script* s) { s->image += "more"; }, FaultKind::kProtocol},
    {"ErrorAfterDecision", [](Script* s) { s->admit_status = 13; }, FaultKind::kRemote},
    {"ExhaustedMeansTooLarge",
     [](Script* s) {
       s->decision.Clear();
       s->image.clear();
       s->admit_status = 8;
       s->decision.set_verdict(v1::ORIGINAL_REFUSED);
     },
     FaultKind::kRemote},
    {"NoTrailers", [](Script* s) { s->omit_trailers = true; }, FaultKind::kProtocol},
    {"HttpError", [](Script* s) { s->http_status = "503"; }, FaultKind::kProtocol},
    {"OpenRefused", [](Script* s) { s->open_status = 8; }, FaultKind::kRemote},
    {"GarbageGreeting", [](Script* s) { s->raw_greeting = "220 mail.example.org ESMTP\r\n"; },
     FaultKind::kProtocol},
    {"Http1Greeting", [](Script* s) { s->raw_greeting = "HTTP/1.1 400 Bad Request\r\n\r\n"; },
     FaultKind::kProtocol},
};

INSTANTIATE_TEST_SUITE_P(Lies, LieTest, ::testing::ValuesIn(kLies),
                         [](const auto& info) { return info.param.name; });

// Each mutation of the server's byte stream ends in a fault or in the true
// decision; never in a wrong image, a hang or a crash.
TEST_F(ClientTest, MutatedServerStreams) {
  const std::string image = Object(3000);
  const std::string object = Object(2000);
  size_t stream_bytes = 0;
  {
    FakeDaemon daemon(socket_.path(), Patched(image));
    Decision decision;
    ASSERT_TRUE(Admit(object, &decision).ok());
    stream_bytes = static_cast<size_t>(daemon.bytes_sent());
  }
  constexpr int64_t kMutantDeadlineMs = 150;
  std::mt19937 random(20261130);
  int decided = 0;
  int faults = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t target = random() % stream_bytes;
    const uint32_t kind = random() % 4;
    const char value = static_cast<char>(random());
    Script script = Patched(image);
    script.corrupt = [=](size_t offset, std::string* bytes) {
      if (target < offset || target >= offset + bytes->size()) return;
      size_t at = target - offset;
      if (kind == 0) (*bytes)[at] = value;
      if (kind == 1) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << (value & 7)));
      if (kind == 2) bytes->insert(at, 1, value);
      if (kind == 3) bytes->erase(at);
    };
    NewClient(kMutantDeadlineMs);
    FakeDaemon daemon(socket_.path(), script);
    Decision decision;
    Fault fault = Admit(object, &decision);
    EXPECT_LE(took_ms_, kMutantDeadlineMs + 2 * kSlackMs);
    if (!fault.ok()) {
      ++faults;
      continue;
    }
    ++decided;
    if (decision.verdict == Verdict::kPatched) {
      EXPECT_EQ(Sha256(decision.image.view()), decision.patched_digest);
      for (const Fixup& fixup : decision.fixups) {
        EXPECT_LE(fixup.file_offset + 4, decision.patched_size);
      }
    }
  }
  EXPECT_GT(faults, 75);
  EXPECT_GT(decided, 0);  // some bytes do not matter
}

TEST_F(ClientTest, NeverTakesAStandardStream) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);
  close(STDIN_FILENO);
  EXPECT_EQ(AdmitSmall(), FaultKind::kNone) << detail_;
  // The daemon's end may be there, in this process; it has the socket's name.
  sockaddr_un name = {};
  socklen_t size = sizeof name;
  if (getsockname(STDIN_FILENO, reinterpret_cast<sockaddr*>(&name), &size) == 0) {
    EXPECT_GT(size, sizeof name.sun_family) << "the client's socket is standard input";
  }
  client_.reset();
  dup2(kept, STDIN_FILENO);
  close(kept);
}

// ---- Reports ----

TEST_F(ClientTest, TextsOfGapsAreMadeUtf8) {
  FakeDaemon daemon(socket_.path(), {});
  Gap gap;
  gap.kind = GapKind::kProtocolError;
  gap.origin = "file:///\xff";
  gap.detail = "it said \xc3\x28 and \xc3\xa4";
  ASSERT_TRUE(client_->Report({}, {gap}, kPatientMs * kNsPerMs, false).ok());
  ASSERT_EQ(daemon.reports().size(), 1u);
  EXPECT_EQ(daemon.reports()[0].gaps(0).origin(), "file:///?");
  EXPECT_EQ(daemon.reports()[0].gaps(0).detail(), "it said ?( and \xc3\xa4");
}

TEST_F(ClientTest, ReportCarriesCountersAndGaps) {
  FakeDaemon daemon(socket_.path(), {});
  LoadCounters load{7, 3, {1, 0, UINT64_MAX}, true};
  Gap gap;
  gap.kind = GapKind::kPatchedLoadFailed;
  gap.has_digest = true;
  gap.digest.fill(0xab);
  gap.size = 99;
  gap.origin = "file:///x#offset=0x0&size=99";
  gap.detail = "why";
  gap.unix_ns = 12345;
  gap.load_id = 8;
  ASSERT_TRUE(client_->Report({load}, {gap}, kPatientMs * kNsPerMs, false).ok());
  ASSERT_EQ(daemon.reports().size(), 1u);
  const v1::ReportRequest report = daemon.reports()[0];
  ASSERT_EQ(report.loads_size(), 1);
  EXPECT_EQ(report.loads(0).load_id(), 7u);
  EXPECT_EQ(report.loads(0).sequence(), 3u);
  EXPECT_TRUE(report.loads(0).final());
  EXPECT_THAT(report.loads(0).counters(), ::testing::ElementsAre(1u, 0u, UINT64_MAX));
  ASSERT_EQ(report.gaps_size(), 1);
  EXPECT_EQ(report.gaps(0).kind(), v1::GAP_PATCHED_LOAD_FAILED);
  EXPECT_EQ(report.gaps(0).sha256(), std::string(32, '\xab'));
  EXPECT_EQ(report.gaps(0).size(), 99u);
  EXPECT_EQ(report.gaps(0).origin(), gap.origin);
  EXPECT_EQ(report.gaps(0).detail(), "why");
  EXPECT_EQ(report.gaps(0).unix_ns(), 12345);
  EXPECT_EQ(report.gaps(0).load_id(), 8u);
}

TEST_F(ClientTest, ReportCarriesWhatBecameOfRecords) {
  FakeDaemon daemon(socket_.path(), {});
  LoadCounters load{7, 3, {1}, false};
  load.records = {{3, 0, 4}, 7, 2, 48};
  ASSERT_TRUE(client_->Report({load}, {}, kPatientMs * kNsPerMs, false).ok());
  ASSERT_EQ(daemon.reports().size(), 1u);
  const v1::LoadCounters heard = daemon.reports()[0].loads(0);
  EXPECT_THAT(heard.site_records(), ::testing::ElementsAre(3u, 0u, 4u));
  EXPECT_EQ(heard.lost_agent_queue(), 2u);
  EXPECT_EQ(heard.unfinished_bytes(), 48u);
}

TEST_F(ClientTest, BatchesCarryRecordsAsTheyAre) {
  FakeDaemon daemon(socket_.path(), {});
  std::vector<RecordBatch> batches(2);
  batches[0] = {.load_id = 7,
                .sequence = 9,
                .records = WireBytes(320, 0xa5),
                .count = 10,
                .written = 100,
                .lost_agent_queue = 20,
                .unfinished_bytes = 32};
  batches[1].load_id = 8;
  batches[1].records = {1, 2, 3};
  ASSERT_TRUE(client_->ReportBatches(batches, kPatientMs * kNsPerMs, false).ok());
  ASSERT_EQ(daemon.reports().size(), 1u);
  ASSERT_EQ(daemon.reports()[0].batches_size(), 2);
  const v1::RecordBatch heard = daemon.reports()[0].batches(0);
  EXPECT_EQ(heard.load_id(), 7u);
  EXPECT_EQ(heard.sequence(), 9u);
  EXPECT_EQ(heard.records(), std::string(320, '\xa5'));
  EXPECT_EQ(heard.count(), 10u);
  EXPECT_EQ(heard.written(), 100u);
  EXPECT_EQ(heard.lost_agent_queue(), 20u);
  EXPECT_EQ(heard.unfinished_bytes(), 32u);
  EXPECT_EQ(daemon.reports()[0].batches(1).records(), std::string("\x01\x02\x03"));
}

struct RingCase {
  const char* what;
  uint64_t offset;
  uint32_t half_bytes, sites;
  bool good;
};

TEST_F(ClientTest, ARingIsCheckedBeforeItIsAllocated) {
  const RingCase cases[] = {
      {"none", 0, 0, 0, true},
      {"behind two counters", 256, 4096, 1, true},
      {"the largest", 256, 1u << 28, 1u << 20, true},
      {"not aligned", 264, 4096, 1, false},
      {"over the counters", 0, 4096, 1, false},
      {"far away", 1 << 20, 4096, 1, false},
      {"too small", 256, 2048, 1, false},
      {"no power of two", 256, 4096 + 64, 1, false},
      {"too large", 256, 1u << 29, 1, false},
      {"too many sites", 256, 4096, (1u << 20) + 1, false},
      {"an offset without a ring", 256, 0, 0, false},
  };
  for (const RingCase& c : cases) {
    SCOPED_TRACE(c.what);
    SocketPath socket;
    Script script = Patched(Object(100));
    script.decision.set_ring_offset(c.offset);
    script.decision.set_ring_half_bytes(c.half_bytes);
    script.decision.set_ring_sites(c.sites);
    script.decision.set_ring_record_sizes(4);
    FakeDaemon daemon(socket.path(), script);
    config_.socket_path = socket.path();
    NewClient(kPatientMs);
    Decision decision;
    const Fault fault = Admit(Object(5000), &decision);
    EXPECT_EQ(fault.kind, c.good ? FaultKind::kNone : FaultKind::kProtocol) << fault.detail;
    if (!c.good) continue;
    EXPECT_EQ(decision.buffer.ring_half_bytes, c.half_bytes);
    EXPECT_EQ(decision.buffer.ring_sites, c.sites);
    EXPECT_EQ(decision.buffer.ring_record_sizes, 4u);
    EXPECT_EQ(decision.buffer.bytes(),
              c.half_bytes == 0 ? 16u : c.offset + 256 + 2ull * c.half_bytes + 1024);
  }
}

TEST_F(ClientTest, LargeReportsAreSplit) {
  FakeDaemon daemon(socket_.path(), {});
  std::vector<LoadCounters> loads;
  for (uint64_t i = 0; i < 5; ++i) loads.push_back({i, 1, std::vector<uint64_t>(60'000, i), false});
  std::vector<Gap> gaps(600);
  ASSERT_TRUE(client_->Report(loads, gaps, 10'000 * kNsPerMs, false).ok());
  int load_count = 0;
  int gap_count = 0;
  for (const v1::ReportRequest& report : daemon.reports()) {
    EXPECT_LT(report.ByteSizeLong(), size_t{4} << 20);
    load_count += report.loads_size();
    gap_count += report.gaps_size();
  }
  EXPECT_EQ(load_count, 5);
  EXPECT_EQ(gap_count, 600);
}

TEST_F(ClientTest, BackgroundReportsDoNotSpendTheBudget) {
  Script script;
  script.stall = Point::kReport;
  FakeDaemon daemon(socket_.path(), script);
  LoadCounters load{1, 1, {1}, false};
  const int64_t before = client_->budget_ns();
  EXPECT_GT(before, config_.deadline_ns / 2);
  ASSERT_TRUE(client_->Report({}, {}, 100 * kNsPerMs, false).ok());
  EXPECT_EQ(client_->Report({load}, {}, 100 * kNsPerMs, false).kind, FaultKind::kDeadline);
  EXPECT_EQ(client_->budget_ns(), before);
  client_->ReleaseReserve();
  EXPECT_EQ(client_->budget_ns(), config_.deadline_ns);
}

TEST_F(ClientTest, CloseSessionSaysGoodbye) {
  Script script;
  script.decision.set_verdict(v1::ORIGINAL_NOT_SELECTED);
  FakeDaemon daemon(socket_.path(), script);
  EXPECT_EQ(AdmitSmall(), FaultKind::kNone);
  client_->CloseSession(kPatientMs * kNsPerMs);
  EXPECT_EQ(daemon.closed_sessions(), 1);
  EXPECT_FALSE(client_->session_open());
}

}  // namespace
}  // namespace rjdbi::agent
