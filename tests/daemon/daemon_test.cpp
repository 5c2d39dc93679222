// rjdbid as its peers see it: a real process, real sockets, the true protocol.
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/harness.h"

extern char** environ;

namespace rjdbi::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Admission, PatchesOnceAndThenAnswersFromTheHash) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  ASSERT_EQ(daemon.Attach("*", "global_store*", "count-waves").attachment().id(), "a1");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.report_interval_ms, 100u);
  const std::string object = CodeObject();

  const Agent::Answer first = agent.Admit(object, 1);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.sent, object.size());
  ASSERT_EQ(first.decision.verdict(), v1::PATCHED) << first.decision.summary();
  EXPECT_EQ(first.image.size(), first.decision.patched_size());
  EXPECT_EQ(Sha256(first.image), first.decision.patched_sha256());
  EXPECT_GT(first.decision.counter_count(), 0u);
  EXPECT_GT(first.decision.fixups_size(), 0);
  for (const v1::Fixup& fixup : first.decision.fixups()) {
    EXPECT_LE(fixup.file_offset() + 4, first.image.size());
    EXPECT_LT(fixup.addend(), 8u * first.decision.counter_count());
  }

  const Agent::Answer second = agent.Admit(object, 2);
  EXPECT_EQ(second.sent, 0u);
  EXPECT_EQ(second.image, first.image);
  EXPECT_EQ(daemon.Status().uploaded_bytes(), object.size());
  EXPECT_EQ(daemon.Status().cache_hits(), 1u);
}

TEST(Admission, AsksNothingOfAProcessThatNobodyWants) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer answer = agent.Admit(CodeObject());
  ASSERT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.sent, 0u);
  EXPECT_EQ(answer.decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
}

TEST(Admission, AKnownObjectIsNeverSentAgainForANewAttachment) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("no_such_kernel", "*", "nop");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  const Agent::Answer first = agent.Admit(object, 1);
  EXPECT_EQ(first.decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
  EXPECT_EQ(first.sent, object.size());
  daemon.Attach("no_such_kernel_either", "*", "nop");
  EXPECT_EQ(agent.Admit(object, 2).sent, 0u);
  daemon.Attach("lds_sum", "ds_*", "count-lanes");
  const Agent::Answer third = agent.Admit(object, 3);
  EXPECT_EQ(third.sent, 0u);
  EXPECT_EQ(third.decision.verdict(), v1::PATCHED);
}

TEST(Admission, RestartKeepsAttachmentsAndDecisions) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  daemon.Attach("*", "ds_*", "count-lanes");
  ASSERT_TRUE(daemon.Detach("a1").ok());
  const std::string object = CodeObject();
  std::string image;
  {
    Agent agent(daemon.agent_socket());
    ASSERT_TRUE(agent.Open().ok());
    image = agent.Admit(object).image;
    ASSERT_FALSE(image.empty());
  }
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(daemon.agent_socket()));
  EXPECT_FALSE(std::filesystem::exists(daemon.control_socket()));

  ASSERT_TRUE(daemon.Start()) << daemon.log();
  ASSERT_EQ(daemon.Status().attachments_size(), 1);
  EXPECT_EQ(daemon.Status().attachments(0).id(), "a2");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer answer = agent.Admit(object);
  EXPECT_EQ(answer.sent, 0u);
  EXPECT_EQ(answer.image, image);
  // Ids are not given twice.
  EXPECT_EQ(daemon.Attach("*", "ds_*", "nop").attachment().id(), "a3");
}

TEST(Admission, WhatWasDecidedLastIsExplainedAfterARestart) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "kernel+0x2", "count-waves");  // no instruction starts there
  daemon.Attach("*", "global_store*", "count-waves");
  {
    Agent agent(daemon.agent_socket());
    ASSERT_TRUE(agent.Open().ok());
    ASSERT_FALSE(agent.Admit(CodeObject()).image.empty());
  }
  const v1::WhyNotAttachedReply before = daemon.WhyNot("add_one");
  ASSERT_GT(before.decisions_size(), 0);
  EXPECT_EQ(before.remembered_objects_size(), 0);
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);

  ASSERT_TRUE(daemon.Start()) << daemon.log();
  const v1::WhyNotAttachedReply after = daemon.WhyNot("add_one");
  ASSERT_EQ(after.decisions_size(), before.decisions_size());
  EXPECT_EQ(after.decisions(0).SerializeAsString(), before.decisions(0).SerializeAsString());
  EXPECT_EQ(after.attached_sites(), before.attached_sites());
  ASSERT_EQ(after.remembered_objects_size(), 1);
  EXPECT_TRUE(after.kernel_known());
  EXPECT_EQ(daemon.WhyNot("no_such_kernel").remembered_objects_size(), 0);

  // A load of its own takes the place of what was remembered.
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_FALSE(agent.Admit(CodeObject()).image.empty());
  EXPECT_EQ(daemon.WhyNot("add_one").remembered_objects_size(), 0);
  EXPECT_EQ(daemon.WhyNot("add_one").decisions_size(), before.decisions_size());

  // Attachments that are gone have nothing to say, nor do decisions that left the cache.
  ASSERT_TRUE(daemon.Detach("a1").ok());
  ASSERT_TRUE(daemon.Detach("a2").ok());
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  EXPECT_EQ(daemon.WhyNot("add_one").decisions_size(), 0);
  EXPECT_EQ(daemon.WhyNot("add_one", true).decisions_size(), before.decisions_size());
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  for (const std::string& file : daemon.CacheFiles("decision-")) std::filesystem::remove(file);
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  EXPECT_EQ(daemon.WhyNot("add_one", true).decisions_size(), 0);
}

void FlipAByte(const std::string& file) {
  std::string bytes = ReadFile(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x20);
  WriteFile(file, bytes);
}

TEST(Admission, CorruptedCacheEntriesAreDropped) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  const std::string object = CodeObject();
  std::string image;
  {
    Agent agent(daemon.agent_socket());
    ASSERT_TRUE(agent.Open().ok());
    image = agent.Admit(object, 1).image;
  }
  ASSERT_EQ(daemon.Stop(SIGTERM), 0);
  for (const char* kind : {"decision-", "object-"}) {
    const std::vector<std::string> files = daemon.CacheFiles(kind);
    ASSERT_EQ(files.size(), 1u) << kind;
    FlipAByte(files[0]);
  }
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer again = agent.Admit(object, 2);
  EXPECT_EQ(again.sent, object.size()) << "a damaged object must not be used";
  EXPECT_EQ(again.image, image);
  EXPECT_THAT(daemon.log(), HasSubstr("failed verification"));
}

TEST(Admission, ADecisionInUseIsNotReadAgain) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  const std::string image = agent.Admit(object, 1).image;
  ASSERT_FALSE(image.empty());
  ASSERT_EQ(daemon.CacheFiles("decision-").size(), 1u);
  FlipAByte(daemon.CacheFiles("decision-")[0]);
  const Agent::Answer again = agent.Admit(object, 2);
  EXPECT_EQ(again.sent, 0u);
  EXPECT_EQ(again.image, image);
  EXPECT_EQ(daemon.Status().cache_hits(), 1u);
}

TEST(Admission, SurvivesSigkillInTheMiddle) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  {
    Agent agent(daemon.agent_socket());
    ASSERT_TRUE(agent.Open().ok());
    agent.BeginAdmission(CodeObject());
    EXPECT_EQ(daemon.Stop(SIGKILL), 128 + SIGKILL);
  }
  ASSERT_TRUE(std::filesystem::exists(daemon.agent_socket())) << "the stale socket is the point";
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.Admit(CodeObject()).decision.verdict(), v1::PATCHED);
}

TEST(Admission, StopsOrderlyInTheMiddleOfAnUpload) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  agent.BeginAdmission(CodeObject());
  EXPECT_EQ(daemon.Stop(SIGTERM), 0) << daemon.log();
}

struct Lie {
  const char* name;
  std::function<void(v1::ObjectHeader&)> change;
  absl::StatusCode expected;
};

TEST(Live, WatchersHearOfChangesThatConcernThem) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_STATE_UNSPECIFIED);
  v1::WatchReply none;
  ASSERT_TRUE(agent.Watch(0, 60'000, &none).ok());  // nothing seen yet: an answer at once
  EXPECT_NE(none.generation(), 0u);
  EXPECT_EQ(none.attachments(), 0u);
  EXPECT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_APPLYING);

  v1::WatchReply heard;
  absl::Status ended;
  std::thread waiting([&] { ended = agent.Watch(none.generation(), 60'000, &heard); });
  ASSERT_TRUE(Eventually([&] { return daemon.Status().sessions(0).live() == v1::LIVE_CURRENT; }));
  v1::AttachmentSpec other;  // of another process: nobody wakes up
  other.set_kernel_glob("*");
  other.set_sites("ds_*");
  other.set_probe("count-waves");
  other.set_process_glob("/bin/not-this-one");
  daemon.Attach(other);
  EXPECT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_CURRENT);
  const std::string id = daemon.Attach("*", "global_store*", "count-waves").attachment().id();
  waiting.join();
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(heard.attachments(), 1u);
  EXPECT_NE(heard.generation(), none.generation());
  EXPECT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_APPLYING);

  // Detached and attached again it is another attachment, whose counts are its own.
  ASSERT_TRUE(daemon.Detach(id).ok());
  v1::WatchReply again;
  ASSERT_TRUE(agent.Watch(heard.generation(), 60'000, &again).ok());
  EXPECT_EQ(again.generation(), none.generation());
  daemon.Attach("*", "global_store*", "count-waves");
  ASSERT_TRUE(agent.Watch(again.generation(), 60'000, &again).ok());
  EXPECT_NE(again.generation(), heard.generation());
  EXPECT_NE(again.generation(), none.generation());
}

// For a while after a restart of either side: it has not asked yet.
TEST(Live, WhoIsGoingToFollowIsKnownBeforeItAsks) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket()), other(daemon.agent_socket());
  agent.follows = true;
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_TRUE(other.Open().ok());
  ASSERT_EQ(daemon.Status().sessions_size(), 2);
  EXPECT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_APPLYING);
  EXPECT_EQ(daemon.Status().sessions(1).live(), v1::LIVE_STATE_UNSPECIFIED);
  const std::string id = daemon.Attach("add_one", "global_store*", "count-waves").attachment().id();
  const auto pending = [&] {
    const auto report = daemon.Report();
    const auto& processes = report.coverage().pending_processes();
    return std::map<std::string, uint32_t>(processes.begin(), processes.end());
  };
  EXPECT_EQ(pending(), (std::map<std::string, uint32_t>{{id, 1}}));
  ASSERT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::PATCHED);
  EXPECT_TRUE(pending().empty()) << "it has loaded something with it in place";
  const std::string more = daemon.Attach("*", "ds_*", "count-waves").attachment().id();
  EXPECT_EQ(pending(), (std::map<std::string, uint32_t>{{more, 1}}));
  v1::WatchReply now;
  ASSERT_TRUE(agent.Watch(0, 0, &now).ok());
  ASSERT_TRUE(agent.Watch(now.generation(), 0, &now).ok());
  EXPECT_EQ(daemon.Status().sessions(0).live(), v1::LIVE_CURRENT);
  EXPECT_TRUE(pending().empty());
}

// After a restart a process asks about objects that the daemon never saw it load.
TEST(Live, ObjectsAreCountedByWhatIsLoaded) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  for (uint64_t load_id = 11; load_id < 14; ++load_id) {
    v1::ObjectHeader header = agent.HeaderFor(object, load_id);
    header.set_beside(true);
    header.set_beside_load_id(3);
    ASSERT_EQ(agent.Admit(header, object).decision.verdict(), v1::PATCHED);
    EXPECT_EQ(daemon.Status().sessions(0).code_objects(), 1u);
    EXPECT_EQ(daemon.Status().sessions(0).patched(), 1u);
  }
}

TEST(Live, WaitsEnd) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  v1::WatchReply reply;
  ASSERT_TRUE(agent.Watch(0, 0, &reply).ok());
  const uint64_t generation = reply.generation();
  ASSERT_TRUE(agent.Watch(generation, 100, &reply).ok()) << "its time";
  EXPECT_EQ(reply.generation(), generation);
  absl::Status first;
  std::thread waiting([&] {
    v1::WatchReply superseded;
    first = agent.Watch(generation, 60'000, &superseded);
  });
  ASSERT_TRUE(Eventually([&] { return daemon.Status().sessions(0).live() == v1::LIVE_CURRENT; }));
  // One wait of a session at a time: the older one ends, whichever came in first.
  ASSERT_TRUE(agent.Watch(generation, 2'000, &reply).ok());
  waiting.join();
  EXPECT_TRUE(first.ok()) << first;

  Agent stranger(daemon.agent_socket());
  ASSERT_TRUE(stranger.Open().ok());
  stranger.session_id = "0123456789abcdef";
  EXPECT_EQ(stranger.Watch(0, 0, &reply).code(), absl::StatusCode::kNotFound);

  std::thread until_stop([&] { first = agent.Watch(generation, 60'000, &reply); });
  usleep(100'000);
  EXPECT_EQ(daemon.Stop(), 0) << "a wait holds nobody up";
  until_stop.join();
}

TEST(Live, AnImageBesideIsItsOwnDecision) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  const Agent::Answer plain = agent.Admit(object, 1);
  ASSERT_EQ(plain.decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
  v1::WatchReply now;
  ASSERT_TRUE(agent.Watch(0, 0, &now).ok());
  EXPECT_EQ(plain.decision.generation(), now.generation());

  daemon.Attach("add_one", "global_store*", "count-waves");
  ASSERT_TRUE(agent.Watch(0, 0, &now).ok());
  v1::ObjectHeader header = agent.HeaderFor(object, 2);
  header.set_beside(true);
  header.set_beside_load_id(1);
  const Agent::Answer beside = agent.Admit(header, object);
  ASSERT_TRUE(beside.status.ok()) << beside.status;
  ASSERT_EQ(beside.decision.verdict(), v1::PATCHED) << beside.decision.summary();
  EXPECT_EQ(beside.decision.generation(), now.generation());
  ASSERT_EQ(beside.decision.kernel_switches_size(), 1);
  EXPECT_EQ(beside.decision.kernel_switches(0).kernel(), "add_one");
  EXPECT_NE(beside.decision.kernel_switches(0).original_descriptor(), 0u);
  EXPECT_NE(beside.decision.kernel_switches(0).beside_descriptor(), 0u);
  // It is not the image that is loaded in the object's place, and is kept on its own.
  const Agent::Answer instead = agent.Admit(object, 3);
  ASSERT_EQ(instead.decision.verdict(), v1::PATCHED);
  EXPECT_EQ(instead.decision.kernel_switches_size(), 0);
  header.set_load_id(4);
  const Agent::Answer again = agent.Admit(header, object);
  EXPECT_EQ(again.sent, 0u);
  EXPECT_EQ(again.image, beside.image);
  EXPECT_EQ(again.decision.kernel_switches_size(), 1);
  const v1::GetStatusReply status = daemon.Status();
  EXPECT_EQ(status.sessions(0).code_objects(), 2u) << "images beside are no objects of their own";
  ASSERT_EQ(daemon.Report().counts_size(), 3) << "of loads 2, 3 and 4";
}

TEST(Live, KernelsPatchedAtLoadGetTheirOriginalBack) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  const std::string id = daemon.Attach("add_one", "global_store*", "count-waves").attachment().id();
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  ASSERT_EQ(agent.Admit(object, 1).decision.verdict(), v1::PATCHED);
  v1::ObjectHeader header = agent.HeaderFor(object, 2);
  header.set_beside(true);
  header.set_beside_load_id(1);
  EXPECT_EQ(agent.Admit(header, object).decision.kernel_restores_size(), 0) << "still attached";

  ASSERT_TRUE(daemon.Detach(id).ok());
  header.set_load_id(3);
  const Agent::Answer detached = agent.Admit(header, object);
  ASSERT_TRUE(detached.status.ok()) << detached.status;
  EXPECT_EQ(detached.decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
  EXPECT_EQ(detached.sent, 0u);
  ASSERT_EQ(detached.decision.kernel_restores_size(), 1);
  const v1::KernelRestore& restore = detached.decision.kernel_restores(0);
  EXPECT_EQ(restore.kernel(), "add_one");
  ASSERT_EQ(restore.original().size(), 64u);
  EXPECT_NE(object.find(restore.original()), std::string::npos);
  int64_t entry = 0;  // of the descriptor: bytes 16 to 23
  std::memcpy(&entry, restore.original().data() + 16, sizeof(entry));
  EXPECT_EQ(restore.code(), restore.patched_descriptor() + static_cast<uint64_t>(entry));
}

TEST(Hostile, LiesAboutTheObjectAreCaught) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Lie lies[] = {
      {"another hash", [](auto& h) { h.set_sha256(std::string(32, 'x')); },
       absl::StatusCode::kInvalidArgument},
      {"a short hash", [](auto& h) { h.set_sha256("x"); }, absl::StatusCode::kInvalidArgument},
      {"fewer bytes", [](auto& h) { h.set_size(100); }, absl::StatusCode::kInvalidArgument},
      {"more bytes", [](auto& h) { h.set_size(h.size() + 1); }, absl::StatusCode::kInvalidArgument},
      {"unknown session", [](auto& h) { h.set_session_id(std::string(16, 'x')); },
       absl::StatusCode::kNotFound},
      {"empty session", [](auto& h) { h.clear_session_id(); }, absl::StatusCode::kNotFound},
  };
  for (const Lie& lie : lies) {
    v1::ObjectHeader header = agent.HeaderFor(CodeObject());
    lie.change(header);
    EXPECT_EQ(agent.Admit(header, CodeObject()).status.code(), lie.expected) << lie.name;
  }
  EXPECT_EQ(agent.Admit(CodeObject()).decision.verdict(), v1::PATCHED) << "and the truth works";
}

TEST(Hostile, TooLargeIsAVerdictWithoutUpload) {
  Daemon daemon("limits: {max_code_object_bytes: 1KiB}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer answer = agent.Admit(CodeObject());
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.sent, 0u);
  EXPECT_EQ(answer.decision.verdict(), v1::ORIGINAL_REFUSED);
  EXPECT_THAT(answer.decision.summary(), HasSubstr("RJD-O002"));
}

TEST(Admission, APatchedObjectStandsForItsOriginal) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string once = agent.Admit(CodeObject(), 1).image;
  ASSERT_FALSE(once.empty());
  const Agent::Answer again = agent.Admit(once, 2);
  EXPECT_EQ(again.decision.verdict(), v1::PATCHED);
  EXPECT_EQ(again.image, once);
  daemon.Attach("*", "ds_*", "count-lanes");
  const Agent::Answer more = agent.Admit(once, 3), fresh = agent.Admit(CodeObject(), 4);
  EXPECT_EQ(more.image, fresh.image);
  EXPECT_EQ(more.decision.counter_count(), fresh.decision.counter_count());
  // What cannot be taken back is left alone.
  std::string damaged = once;
  damaged[0x40] = static_cast<char>(damaged[0x40] ^ 1);
  const Agent::Answer refused = agent.Admit(damaged, 5);
  EXPECT_EQ(refused.decision.verdict(), v1::ORIGINAL_REFUSED);
  EXPECT_THAT(refused.decision.summary(), HasSubstr("RJD-O010"));
}

TEST(Admission, AnAnswerThatTimeCutShortIsNotKept) {
  Daemon daemon("budgets:\n  defaults:\n    max_admission_time_ms: 0\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  for (const uint64_t load : {1, 2}) {
    const Agent::Answer answer = agent.Admit(CodeObject(), load);
    EXPECT_EQ(answer.decision.verdict(), v1::ORIGINAL_REFUSED);
    EXPECT_THAT(answer.decision.summary(), HasSubstr("0 of "));
  }
  EXPECT_EQ(daemon.Status().cache_hits(), 0u);
  EXPECT_EQ(daemon.CacheFiles("decision-").size(), 0u);
  EXPECT_EQ(daemon.CacheFiles("object-").size(), 1u) << "it need not be sent again";
  const v1::GetCoverageReply coverage = daemon.Report().coverage();
  EXPECT_GT(coverage.total().over_budget(), 0u);
  EXPECT_EQ(coverage.total().over_budget(), coverage.total().requested());
}

TEST(Admission, ADryRunIsJudgedAndNotShipped) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  v1::AttachmentSpec spec;
  spec.set_kernel_glob("*");
  spec.set_sites("global_store*");
  spec.set_probe("count-waves");
  spec.set_mode(v1::MODE_DRYRUN);
  ASSERT_EQ(daemon.Attach(spec).violations_size(), 0);
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer dry = agent.Admit(CodeObject(), 1);
  EXPECT_EQ(dry.decision.verdict(), v1::ORIGINAL_NOT_SELECTED);
  EXPECT_THAT(dry.decision.summary(), HasSubstr("would be attached, but for a dry run"));
  const v1::GetReportReply report = daemon.Report();
  EXPECT_GT(report.coverage().total().dry_run(), 0u);
  EXPECT_EQ(report.coverage().total().dry_run(), report.coverage().total().requested());
  EXPECT_EQ(report.counts_size(), 0);
  daemon.Attach("*", "ds_*", "count-lanes");
  EXPECT_EQ(agent.Admit(CodeObject(), 2).decision.verdict(), v1::PATCHED);
}

TEST(Hostile, GarbageIsRefusedNotFatal) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const std::string object = CodeObject();
  std::string flipped = object;
  for (size_t i = 40; i < flipped.size(); i += 97) flipped[i] = static_cast<char>(~flipped[i]);
  const std::pair<const char*, std::string> kInputs[] = {
      {"empty", ""},
      {"text", std::string(5000, 'a')},
      {"host ELF", ReadFile("/proc/self/exe").substr(0, 200000)},
      {"truncated", object.substr(0, object.size() / 2)},
      {"header only", object.substr(0, 64)},
      {"corrupted", flipped}};
  uint64_t load = 1;
  for (const auto& [name, bytes] : kInputs) {
    const Agent::Answer answer = agent.Admit(bytes, load++);
    ASSERT_TRUE(answer.status.ok()) << name << ": " << answer.status;
    EXPECT_EQ(answer.decision.verdict(), v1::ORIGINAL_REFUSED) << name;
    EXPECT_TRUE(answer.image.empty()) << name;
    EXPECT_THAT(answer.decision.summary(), HasSubstr("RJD-")) << name;
  }
  EXPECT_EQ(agent.Admit(object, load).decision.verdict(), v1::PATCHED);
}

TEST(Hostile, AStalledUploaderIsGivenUpAndDelaysNobody) {
  Daemon daemon("limits: {upload_stall_ms: 2000, max_upload_bytes_in_flight: 8KiB}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "global_store*", "count-waves");
  Agent slow(daemon.agent_socket()), quick(daemon.agent_socket());
  ASSERT_TRUE(slow.Open().ok());
  ASSERT_TRUE(quick.Open().ok());
  Agent::Answer stalled;
  std::thread waiting(
      [&] { stalled = slow.Admit(slow.HeaderFor(CodeObject()), CodeObject(), true); });
  EXPECT_EQ(quick.Admit(CodeObject()).decision.verdict(), v1::PATCHED);
  waiting.join();
  EXPECT_EQ(stalled.status.code(), absl::StatusCode::kDeadlineExceeded) << stalled.status;
}

TEST(Sessions, ThePidMustBeThePeers) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agent(daemon.agent_socket());
  EXPECT_EQ(agent.Open(1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(daemon.Status().sessions_size(), 1);
  EXPECT_EQ(daemon.Status().sessions(0).pid(), static_cast<uint32_t>(getpid()));
  EXPECT_EQ(daemon.Status().sessions(0).uid(), getuid());
  EXPECT_TRUE(agent.Close().ok());
  EXPECT_TRUE(daemon.Status().sessions(0).closed_cleanly());
  EXPECT_EQ(agent.Close().code(), absl::StatusCode::kNotFound);
}

TEST(Sessions, AreLimited) {
  Daemon daemon("limits: {max_sessions: 2}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  Agent agents[] = {Agent(daemon.agent_socket()), Agent(daemon.agent_socket()),
                    Agent(daemon.agent_socket())};
  EXPECT_TRUE(agents[0].Open().ok());
  EXPECT_TRUE(agents[1].Open().ok());
  EXPECT_EQ(agents[2].Open().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(agents[0].Close().ok());
  EXPECT_TRUE(agents[2].Open().ok());
}

TEST(Sessions, AKilledProcessIsNoticed) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "count-waves");
  const ProgramResult child =
      RunProgram({"/proc/self/exe"}, {"TEST_DIE_WITH_SESSION_ON=" + daemon.agent_socket()});
  ASSERT_EQ(child.exit_code, 42) << child.err;
  EXPECT_TRUE(Eventually([&] { return daemon.Status().sessions(0).closed_unix_ns() != 0; }));
  EXPECT_FALSE(daemon.Status().sessions(0).closed_cleanly());
  ASSERT_EQ(daemon.Report().counts_size(), 1);
  EXPECT_EQ(daemon.Report().counts(0).count(), 10u);
  EXPECT_FALSE(daemon.Report().counts(0).final()) << "the last report is missing";
}

TEST(Reports, TheLatestCountersAndTheGaps) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  const Agent::Answer answer = agent.Admit(CodeObject(), 7);
  ASSERT_EQ(answer.decision.counter_count(), 1u);

  const auto report = [&](uint64_t sequence, uint64_t count, bool final) {
    v1::ReportRequest request;
    request.set_session_id(agent.session_id);
    v1::LoadCounters* load = request.add_loads();
    load->set_load_id(7);
    load->set_sequence(sequence);
    load->add_counters(count);
    load->set_final(final);
    return agent.Report(request);
  };
  EXPECT_TRUE(report(1, 10, false).ok());
  EXPECT_TRUE(report(3, 30, false).ok());
  EXPECT_TRUE(report(2, 20, false).ok());  // overtaken
  ASSERT_EQ(daemon.Report().counts_size(), 1);
  EXPECT_EQ(daemon.Report().counts(0).count(), 30u);
  EXPECT_FALSE(daemon.Report().counts(0).final());
  EXPECT_EQ(daemon.Report().counts(0).attachment_id(), "a1");
  EXPECT_EQ(daemon.Report().counts(0).probe(), "count-waves");
  EXPECT_EQ(daemon.Report().counts(0).location().kernel(), "add_one");

  v1::ReportRequest gaps;
  gaps.set_session_id(agent.session_id);
  gaps.add_gaps()->set_kind(v1::GAP_DEADLINE_EXCEEDED);
  EXPECT_TRUE(agent.Report(gaps).ok());
  EXPECT_TRUE(report(4, 40, true).ok());
  EXPECT_TRUE(daemon.Detach("a1").ok());
  const v1::GetReportReply now = daemon.Report();
  EXPECT_EQ(now.counts_size(), 0) << "only what is attached now";
  EXPECT_EQ(now.coverage().total().requested(), 0u);
  ASSERT_EQ(now.coverage().detached_attachments_size(), 1);
  EXPECT_EQ(now.coverage().detached_attachments(0), "a1");
  const v1::GetReportReply last = daemon.Report(/*include_detached=*/true);
  EXPECT_EQ(last.counts(0).count(), 40u);
  EXPECT_TRUE(last.counts(0).final());
  EXPECT_EQ(last.coverage().gaps_size(), 1);
  EXPECT_EQ(last.coverage().total().requested(), 1u);
  EXPECT_EQ(last.coverage().total().attached() + last.coverage().total().degraded(), 1u);

  gaps.clear_gaps();
  gaps.add_loads()->set_load_id(99);
  EXPECT_EQ(agent.Report(gaps).code(), absl::StatusCode::kInvalidArgument);
}

v1::RecordBatch& AddBatch(v1::ReportRequest& request, uint64_t sequence, uint64_t written,
                          const std::vector<std::string>& records) {
  v1::RecordBatch& batch = *request.add_batches();
  batch.set_load_id(7);
  batch.set_sequence(sequence);
  batch.set_written(written);
  batch.set_count(records.size());
  for (const std::string& record : records) batch.mutable_records()->append(record);
  return batch;
}

TEST(Records, AreKeptAndEveryLossIsCounted) {
  Daemon daemon("telemetry: {ring_half_bytes: 64KiB}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "trace-exec");
  daemon.Attach("add_one", "global_load*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  for (int time = 0; time < 2; ++time) {  // the second answer is from the cache
    const v1::AdmitDecision decision = agent.Admit(CodeObject(), 7).decision;
    ASSERT_EQ(decision.verdict(), v1::PATCHED);
    EXPECT_EQ(decision.counter_count(), 2u);
    EXPECT_EQ(decision.ring_half_bytes(), 64u << 10);
    EXPECT_EQ(decision.ring_offset(), 256u);
    EXPECT_EQ(decision.ring_sites(), 1u);
    EXPECT_EQ(decision.ring_record_sizes(), 1u << 2);
  }
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  AddBatch(request, 1, 3, {ExecRecord(0, 1), ExecRecord(0, 2), ExecRecord(0, 3)});
  ASSERT_TRUE(agent.Report(request).ok());
  ASSERT_TRUE(agent.Report(request).ok());  // once more: changes nothing
  request.clear_batches();
  AddBatch(request, 3, 8, {ExecRecord(0, 4), ExecRecord(5, 0)}).set_lost_agent_queue(1);
  AddBatch(request, 9, 9, {ExecRecord(0, 9)}).set_load_id(99);
  ASSERT_TRUE(agent.Report(request).ok());
  request.clear_batches();
  v1::LoadCounters& last = *request.add_loads();
  last.set_load_id(7);
  last.set_sequence(1);
  last.set_final(true);
  last.add_site_records(8);
  last.set_lost_agent_queue(1);

  const v1::GetReportReply before = daemon.Report();
  uint32_t counter = 0;
  for (const v1::SiteCount& count : before.counts()) counter += count.has_records() ? 0 : 1;
  ASSERT_EQ(counter, 1u);
  // The lost ones are in the counter of the site, wherever that is.
  const bool first = before.counts(0).has_records();
  for (const uint64_t value : {first ? 20 : 5, first ? 5 : 20}) last.add_counters(value);
  ASSERT_TRUE(agent.Report(request).ok());

  const v1::GetReportReply report = daemon.Report();
  ASSERT_EQ(report.counts_size(), 2);
  const v1::SiteCount& site = report.counts(first ? 0 : 1);
  EXPECT_EQ(site.count(), 28u);
  EXPECT_EQ(report.counts(first ? 1 : 0).count(), 5u);
  EXPECT_FALSE(report.counts(first ? 1 : 0).has_records());
  EXPECT_EQ(site.records().device_full(), 20u);
  EXPECT_EQ(site.records().read(), 8u);
  EXPECT_EQ(site.records().received(), 4u);
  EXPECT_EQ(site.records().stored(), 4u);
  ASSERT_EQ(report.record_losses_size(), 1);
  const v1::RecordLosses& losses = report.record_losses(0);
  EXPECT_EQ(losses.written(), 8u);
  EXPECT_EQ(losses.received(), 5u);
  EXPECT_EQ(losses.rejected(), 1u);
  EXPECT_EQ(losses.agent_queue(), 1u);
  EXPECT_EQ(losses.undelivered(), 2u);
  EXPECT_EQ(losses.on_the_way(), 0u);
  EXPECT_EQ(daemon.Status().sessions(0).unknown_records(), 1u);

  const v1::GetRecordsReply records = daemon.Records();
  EXPECT_EQ(records.records(), 4u);
  ASSERT_EQ(records.sources_size(), 1);
  EXPECT_EQ(records.sources(0).attachment_id(), "a1");
  EXPECT_EQ(records.sources(0).probe(), "trace-exec");
  EXPECT_EQ(records.sources(0).pid(), static_cast<uint32_t>(getpid()));
  EXPECT_THAT(records.sources(0).isa(), HasSubstr("gfx90a"));
  // Detached, they are history.
  EXPECT_TRUE(daemon.Detach("a1").ok());
  EXPECT_EQ(daemon.Records().records(), 0u);
  v1::GetRecordsRequest detached;
  detached.set_include_detached(true);
  EXPECT_EQ(daemon.Records(detached).records(), 4u);
}

TEST(Records, SurviveARestart) {
  Daemon daemon;
  for (const int signal : {SIGTERM, SIGKILL}) {
    ASSERT_TRUE(daemon.Start()) << daemon.log();
    daemon.Attach("add_one", "global_store*", "trace-exec");
    const uint64_t before = daemon.Records().records();
    Agent agent(daemon.agent_socket());
    ASSERT_TRUE(agent.Open().ok());
    ASSERT_EQ(agent.Admit(CodeObject(), 7).decision.verdict(), v1::PATCHED);
    v1::ReportRequest request;
    request.set_session_id(agent.session_id);
    AddBatch(request, 1, 2, {ExecRecord(0, 1), ExecRecord(0, 2)});
    ASSERT_TRUE(agent.Report(request).ok());
    EXPECT_EQ(daemon.Records().records(), before + 2);
    // A moment later they are on disk; an orderly end does not need it.
    if (signal == SIGKILL) std::this_thread::sleep_for(std::chrono::seconds(2));
    daemon.Stop(signal);
    ASSERT_TRUE(daemon.Start()) << daemon.log();
    EXPECT_EQ(daemon.Records().records(), before + 2) << signal;
    EXPECT_EQ(daemon.Status().state_note(), "");
    daemon.Stop();
  }
}

TEST(Records, OfAnotherProcessAreRefused) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "trace-exec");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 7).decision.verdict(), v1::PATCHED);
  v1::ReportRequest request;
  request.set_session_id(std::string(16, 'x'));
  AddBatch(request, 1, 1, {ExecRecord(0, 1)});
  EXPECT_EQ(agent.Report(request).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(daemon.Records().records(), 0u);
}

TEST(Records, ASlowDaemonsLimitsHold) {
  Daemon daemon(
      "telemetry: {max_bytes_per_second: 64000, max_bytes_per_attachment: 40000, "
      "max_bytes: 1MiB}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "trace-exec");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 7).decision.verdict(), v1::PATCHED);
  uint64_t written = 0;
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    v1::ReportRequest request;
    request.set_session_id(agent.session_id);
    written += 500;
    AddBatch(request, sequence, written, std::vector<std::string>(500, ExecRecord(0, sequence)));
    ASSERT_TRUE(agent.Report(request).ok());
  }
  const v1::GetReportReply report = daemon.Report();
  ASSERT_EQ(report.counts_size(), 1);
  const v1::RecordCounts& counts = report.counts(0).records();
  EXPECT_EQ(counts.received(), 10'000u);
  EXPECT_GT(counts.rate_limited(), 0u);
  EXPECT_GT(counts.dropped(), 0u);
  EXPECT_EQ(counts.received(), counts.rate_limited() + counts.dropped() + counts.stored());
  EXPECT_LE(counts.stored() * 32, 40'000u);
  EXPECT_EQ(daemon.Records().records(), counts.stored());
}

// Beyond the latest 512 processes only sums are kept.
TEST(Reports, NoTotalEverFalls) {
  constexpr uint64_t kProcesses = 520, kFolded = kProcesses - 512;
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_*", "count-waves");
  Agent agent(daemon.agent_socket());
  for (uint64_t i = 0; i < kProcesses; ++i) {
    ASSERT_TRUE(agent.Open().ok());
    ASSERT_EQ(agent.Admit(CodeObject(), 7).decision.counter_count(), 2u);
    v1::ReportRequest request;
    request.set_session_id(agent.session_id);
    request.add_loads()->set_load_id(7);
    request.mutable_loads(0)->add_counters(10);
    request.mutable_loads(0)->add_counters(1);
    request.add_gaps()->set_kind(v1::GAP_DEADLINE_EXCEEDED);
    ASSERT_TRUE(agent.Report(request).ok());
    ASSERT_TRUE(agent.Close().ok());
  }
  const auto sum = [](const v1::GetReportReply& report) {
    uint64_t total = 0;
    for (const v1::SiteCount& count : report.counts()) total += count.count();
    return total;
  };
  const v1::GetReportReply report = daemon.Report();
  EXPECT_EQ(daemon.Status().sessions_size(), 512);
  EXPECT_EQ(sum(report), 11 * kProcesses);
  EXPECT_EQ(report.counts_size(), 2 * 512 + 2);
  EXPECT_EQ(report.coverage().folded_processes(), kFolded);
  EXPECT_EQ(report.coverage().folded_gaps(), kFolded);
  EXPECT_EQ(report.coverage().gaps_size(), 512);
  EXPECT_EQ(report.coverage().total().requested(), 2u);
  for (const v1::SiteCount& count : report.counts()) {
    EXPECT_TRUE(count.final());
    EXPECT_EQ(count.location().kernel(), "add_one");
    EXPECT_EQ(count.probe(), "count-waves");
  }

  // What is folded is history like all else: after detaching, only when asked for;
  // and it does not outweigh what another attachment has.
  EXPECT_TRUE(daemon.Detach("a1").ok());
  EXPECT_EQ(sum(daemon.Report()), 0u);
  EXPECT_EQ(sum(daemon.Report(/*include_detached=*/true)), 11 * kProcesses);
  for (uint64_t i = 0; i < 512; ++i) {
    ASSERT_TRUE(agent.Open().ok());
    ASSERT_TRUE(agent.Close().ok());
  }
  const v1::GetReportReply all = daemon.Report(/*include_detached=*/true);
  EXPECT_EQ(all.counts_size(), 2) << "all of them folded";
  EXPECT_EQ(sum(all), 11 * kProcesses);
  EXPECT_EQ(all.coverage().total().requested(), 2u);
  EXPECT_EQ(all.coverage().total().attached(), 2u);
  // The last decision is remembered as long as the cache has it.
  const v1::WhyNotAttachedReply last = daemon.WhyNot("add_one", /*include_detached=*/true);
  EXPECT_EQ(last.attached_sites(), 2u);
  EXPECT_EQ(last.remembered_objects_size(), 1);
  EXPECT_EQ(last.violations_size(), 0);
  for (const std::string& file : daemon.CacheFiles("decision-")) std::filesystem::remove(file);
  const v1::WhyNotAttachedReply why = daemon.WhyNot("add_one", /*include_detached=*/true);
  EXPECT_TRUE(why.kernel_known());
  ASSERT_EQ(why.violations_size(), 1);
  EXPECT_THAT(why.violations(0).message(), HasSubstr("no longer listed"));
  EXPECT_THAT(daemon.WhyNot("lds_sum", true).violations(0).message(),
              Not(HasSubstr("no longer listed")));
  const ProgramResult table =
      RunProgram({RJDBI_RJCTL, "--socket", daemon.control_socket(), "report", "--all"});
  EXPECT_THAT(table.out, HasSubstr("520 processes that are gone and no longer listed, with 520 "
                                   "gaps: only in the sums\n"));
  EXPECT_THAT(table.out, HasSubstr("520 gaps\n"));
}

TEST(Load, SixtyFourAgentsAtOnce) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("*", "memory", "count-waves");
  constexpr int kAgents = 64;
  std::vector<std::string> images(kAgents), errors(kAgents);
  std::vector<std::thread> threads;
  for (int i = 0; i < kAgents; ++i) {
    threads.emplace_back([&, i] {
      Agent agent(daemon.agent_socket());
      if (absl::Status s = agent.Open(); !s.ok()) errors[i] = s.ToString();
      const Agent::Answer answer = agent.Admit(CodeObject());
      if (!answer.status.ok()) errors[i] = answer.status.ToString();
      images[i] = answer.image;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()), std::set<std::string>{""});
  EXPECT_EQ(std::set<std::string>(images.begin(), images.end()).size(), 1u);
  EXPECT_FALSE(images[0].empty());
  EXPECT_EQ(daemon.Status().sessions_size(), kAgents);
}

TEST(Policy, RefusalsAreRepliesAndReloadChangesThem) {
  Daemon daemon("allow_sabotage: false\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  const v1::AttachReply refused = daemon.Attach("*", "global_store*", "sabotage", true);
  ASSERT_EQ(refused.violations_size(), 1);
  EXPECT_EQ(refused.violations(0).constraint_id(), "RJD-A003");
  EXPECT_FALSE(refused.has_attachment());
  WriteFile(daemon.config_file(), "allow_sabotage: true\n");
  kill(daemon.pid(), SIGHUP);
  EXPECT_TRUE(Eventually(
      [&] { return daemon.Attach("*", "global_store*", "sabotage", true).has_attachment(); }));
  WriteFile(daemon.config_file(), "allow_sabotage: perhaps\n");
  kill(daemon.pid(), SIGHUP);
  EXPECT_TRUE(Eventually([&] { return daemon.log().find("has errors") != std::string::npos; }));
  EXPECT_TRUE(daemon.Attach("*", "ds_*", "sabotage", true).has_attachment());
}

TEST(Policy, AnObjectIsJudgedForSoManyAttachments) {
  Daemon daemon("limits: {max_attachments_per_object: 2}\n");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  for (int i = 0; i < 4; ++i) daemon.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.Admit(CodeObject(), 1).decision.counter_count(), 2u);
  const v1::GetReportReply report = daemon.Report();
  ASSERT_EQ(report.counts_size(), 2);
  EXPECT_EQ(report.counts(0).attachment_id(), "a1");
  EXPECT_EQ(report.counts(1).attachment_id(), "a2");
  ASSERT_EQ(report.coverage().refused_objects_size(), 1);
  const v1::CodeObjectSummary& object = report.coverage().refused_objects(0);
  EXPECT_EQ(object.verdict(), v1::PATCHED);
  ASSERT_EQ(object.object_violations_size(), 1);
  EXPECT_EQ(object.object_violations(0).constraint_id(), "RJD-A009");
  ASSERT_EQ(report.coverage().unmatched_attachments_size(), 2) << "a3 and a4 have nothing";
  // Room that becomes free goes to the next in line.
  EXPECT_TRUE(daemon.Detach("a1").ok());
  EXPECT_EQ(agent.Admit(CodeObject(), 2).decision.counter_count(), 2u);
  EXPECT_EQ(daemon.Report().coverage().unmatched_attachments_size(), 1);
}

TEST(Policy, WhyNotAttachedSaysWhatIsMissing) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  ASSERT_EQ(daemon.WhyNot("add_one").violations_size(), 1);
  EXPECT_EQ(daemon.WhyNot("add_one").violations(0).constraint_id(), "RJD-A008");
  daemon.Attach("add_one", "kernel+0x2", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.Admit(CodeObject()).decision.verdict(), v1::ORIGINAL_REFUSED);
  const v1::WhyNotAttachedReply why = daemon.WhyNot("add_one");
  ASSERT_EQ(why.decisions_size(), 1);
  EXPECT_EQ(why.decisions(0).attachment_id(), "a1");
  EXPECT_FALSE(why.decisions(0).violations(0).next_step().empty());
  EXPECT_EQ(daemon.WhyNot("lds_sum").violations(0).constraint_id(), "RJD-A008");
  EXPECT_TRUE(daemon.WhyNot("lds_sum").kernel_known());
  EXPECT_FALSE(daemon.WhyNot("no_such_kernel").kernel_known());
}

TEST(Policy, WhatDetachedAttachmentsLeftIsHistory) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::PATCHED);
  EXPECT_GT(daemon.WhyNot("add_one").attached_sites(), 0u);
  EXPECT_TRUE(daemon.Detach("a1").ok());
  daemon.Attach("add_one", "kernel+0x2", "count-waves");
  EXPECT_EQ(agent.Admit(CodeObject(), 2).decision.verdict(), v1::ORIGINAL_REFUSED);
  const v1::WhyNotAttachedReply now = daemon.WhyNot("add_one");
  EXPECT_EQ(now.attached_sites(), 0u);
  ASSERT_EQ(now.decisions_size(), 1);
  EXPECT_EQ(now.decisions(0).attachment_id(), "a2");
  ASSERT_EQ(now.detached_attachments_size(), 1);
  EXPECT_GT(daemon.WhyNot("add_one", /*include_detached=*/true).attached_sites(), 0u);
}

TEST(Report, AGapOfAPatchedLoadTakesItsSitesBack) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  daemon.Attach("add_one", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  ASSERT_EQ(agent.Admit(CodeObject(), 7).decision.verdict(), v1::PATCHED);
  EXPECT_EQ(daemon.Report().coverage().total().attached(), 1u);
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  v1::Gap& gap = *request.add_gaps();
  gap.set_kind(v1::GAP_PATCHED_LOAD_FAILED);
  gap.set_load_id(7);
  gap.set_sha256(Sha256(CodeObject()));
  ASSERT_TRUE(agent.Report(request).ok());
  const v1::GetReportReply report = daemon.Report();
  EXPECT_EQ(report.counts_size(), 0);
  EXPECT_EQ(report.coverage().total().requested(), 1u);
  EXPECT_EQ(report.coverage().total().attached(), 0u);
  ASSERT_EQ(report.coverage().total().refused_size(), 1);
  EXPECT_EQ(report.coverage().total().refused(0).constraint_id(), "RJD-G007");
  ASSERT_EQ(daemon.WhyNot("add_one").decisions_size(), 1);
  EXPECT_EQ(daemon.WhyNot("add_one").decisions(0).violations(0).constraint_id(), "RJD-G007");
  // Another load of the same object is in place: its sites are.
  ASSERT_EQ(agent.Admit(CodeObject(), 8).decision.verdict(), v1::PATCHED);
  EXPECT_EQ(daemon.Report().coverage().total().attached(), 1u);
  EXPECT_EQ(daemon.Report().counts_size(), 1);
}

TEST(Process, RefusesASocketThatIsInUse) {
  Daemon daemon;
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  const TemporaryFolder folder;
  const ProgramResult second =
      RunProgram({RJDBI_RJDBID, "--agent-socket", daemon.agent_socket(), "--control-socket",
                  folder.path() + "/c.sock", "--state-dir", folder.path() + "/state"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("another rjdbid"));
  const ProgramResult third =
      RunProgram({RJDBI_RJDBID, "--agent-socket", folder.path() + "/a.sock", "--control-socket",
                  folder.path() + "/c.sock", "--state-dir", daemon.state()});
  EXPECT_EQ(third.exit_code, 1);
  EXPECT_THAT(third.err, HasSubstr("in use by another rjdbid"));
  EXPECT_EQ(daemon.Status().sessions_size(), 0) << "the first one still answers";
}

TEST(Process, ServesWithoutAStateDirectory) {
  Daemon daemon;
  WriteFile(daemon.state(), "a file where the directory should be");
  ASSERT_TRUE(daemon.Start()) << daemon.log();
  EXPECT_THAT(daemon.log(), HasSubstr("will not survive a restart"));
  daemon.Attach("*", "global_store*", "count-waves");
  Agent agent(daemon.agent_socket());
  ASSERT_TRUE(agent.Open().ok());
  EXPECT_EQ(agent.Admit(CodeObject(), 1).decision.verdict(), v1::PATCHED);
  EXPECT_EQ(agent.Admit(CodeObject(), 2).sent, 0u);
}

TEST(Process, TakesOverSocketsFromTheServiceManager) {
  const TemporaryFolder folder;
  const std::string agent_socket = folder.path() + "/a.sock";
  const std::string control_socket = folder.path() + "/c.sock";
  std::vector<std::string> command = {"/usr/bin/systemd-socket-activate",
                                      "-l",
                                      agent_socket,
                                      "-l",
                                      control_socket,
                                      "--fdname=agent:control",
                                      RJDBI_RJDBID,
                                      "--state-dir",
                                      folder.path() + "/state"};
  // It passes on nothing of its environment by itself.
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (std::getenv(name) != nullptr) command.insert(command.begin() + 1, {"-E", name});
  }
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  ASSERT_EQ(posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ), 0);
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(control_socket); }));
  Agent agent(agent_socket);
  EXPECT_TRUE(Eventually([&] { return agent.Open().ok(); }));
  kill(pid, SIGTERM);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(std::filesystem::exists(agent_socket)) << "not ours to remove";
}

// What systemd would hear on $NOTIFY_SOCKET.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& path)
      : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    bound_ = bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~NotifySocket() { close(fd_); }
  bool bound() const { return bound_; }
  // The next message; "" when none comes in time.
  std::string Next(int timeout_ms = 20000) {
    pollfd readable = {fd_, POLLIN, 0};
    if (poll(&readable, 1, timeout_ms) <= 0) return "";
    char text[1024];
    const ssize_t size = recv(fd_, text, sizeof(text), 0);
    return size > 0 ? std::string(text, static_cast<size_t>(size)) : "";
  }
  // The next message that is no sign of life.
  std::string NextEvent() {
    std::string text;
    do {
      text = Next();
    } while (text.rfind("WATCHDOG=1", 0) == 0);
    return text;
  }

 private:
  const int fd_;
  bool bound_ = false;
};

TEST(Process, TellsTheServiceManagerHowItIs) {
  using ::testing::StartsWith;
  const TemporaryFolder folder;
  NotifySocket manager(folder.path() + "/notify");
  ASSERT_TRUE(manager.bound());
  Daemon daemon;
  setenv("NOTIFY_SOCKET", (folder.path() + "/notify").c_str(), 1);
  setenv("WATCHDOG_USEC", "400000", 1);
  const bool started = daemon.Start();
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  ASSERT_TRUE(started) << daemon.log();
  EXPECT_EQ(manager.Next(), "READY=1");
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(manager.Next(), StartsWith("WATCHDOG=1\nSTATUS=0 attachments, 0 processes"));
  }
  // Twice as often as asked. Without the watchdog the status comes every 5 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6 * 5 / 2));
  daemon.Attach("*", "ds_*", "nop");
  std::string status;
  for (int i = 0; i < 50 && status.find("1 attachments") == std::string::npos; ++i) {
    status = manager.Next();
  }
  EXPECT_THAT(status, HasSubstr("STATUS=1 attachments"));

  for (const char* config : {"report_interval_ms: 60\n", "report_interval_ms: soon\n"}) {
    WriteFile(daemon.config_file(), config);
    kill(daemon.pid(), SIGHUP);
    EXPECT_EQ(manager.NextEvent(), "RELOADING=1") << config;
    EXPECT_EQ(manager.NextEvent(), "READY=1") << config;
  }
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  EXPECT_EQ(manager.NextEvent(), "STOPPING=1");
  EXPECT_EQ(manager.Next(0), "") << "nothing after that";
}

struct ConfigCase {
  const char* text;
  const char* expected;  // after the file's name; nullptr: right
};

TEST(Config, ProblemsHavePositions) {
  const ConfigCase cases[] = {
      {"report_interval_ms: 50\ncache: {max_bytes: 2GiB}\n", nullptr},
      {"", nullptr},
      {"budgets:\n  defaults:\n    max_sgpr_delta: 4\n", nullptr},
      {"no_such_key: 1\n", ":1:1: unknown key 'no_such_key'"},
      {"cache:\n  max_byte: 1\n", ":2:3: unknown key 'cache.max_byte'"},
      {"report_interval_ms: soon\n", ":1:21: 'report_interval_ms': expected a whole number"},
      {"limits: {max_attachments_per_object: 0}\n",
       ":1:38: 'limits.max_attachments_per_object': 0 is out of range"},
      {"telemetry: {ring_half_bytes: 4096}\n", nullptr},
      {"telemetry: {ring_half_bytes: 256MiB}\n", nullptr},
      {"telemetry: {ring_half_bytes: 2048}\n",
       ":1:30: 'telemetry.ring_half_bytes': 2048 is out of range"},
      {"telemetry: {ring_half_bytes: 12KiB}\n",
       ":1:30: 'telemetry.ring_half_bytes': 12KiB is out of range: a power of two"},
      {"telemetry: {ring_half_bytes: 512MiB}\n",
       ":1:30: 'telemetry.ring_half_bytes': 512MiB is out of range"},
      {"limits: {max_sessions: 0}\n", ":1:24: 'limits.max_sessions': 0 is out of range"},
      {"log: {level: loud}\n", ":1:14: 'log.level': expected one of"},
      {"cache: 5\n", ":1:8: 'cache' takes a map of keys"},
      {"allow_sabotage: yes\n", ":1:17: 'allow_sabotage': expected true or false"},
      {"agent_socket: relative\n", ":1:15: 'agent_socket': expected an absolute path"},
      {"cache: {max_bytes: 1}\ncache: {max_bytes: 2}\n", ":2:1: key 'cache' is given twice"},
      {"a: [1\n", ":2:1:"},
      {"report_interval_ms: 60\n---\nreport_interval_ms: 70\n", ":3:1: a second document"},
      {"budgets:\n  defaults:\n    expected_events_per_second: 4\n", nullptr},
      {"budgets:\n  ceilings:\n    expected_events_per_second: 4\n",
       ":3:5: unknown key 'budgets.ceilings.expected_events_per_second'"},
      {"budgets:\n  loop_factor: 1\n  ceilings: {max_admission_time_ms: 500}\n", nullptr},
      {"budgets:\n  loop_factor: 0\n",
       ":2:16: 'budgets.loop_factor': 0 is out of range: at least 1"},
  };
  for (const ConfigCase& c : cases) {
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/rjdbid.yaml";
    WriteFile(file, c.text);
    const ProgramResult result = RunProgram({RJDBI_RJDBID, "--check-config", "--config", file});
    EXPECT_EQ(result.exit_code, c.expected == nullptr ? 0 : 2) << c.text << result.err;
    if (c.expected != nullptr) {
      EXPECT_THAT(result.err, HasSubstr(file + c.expected));
    }
  }
}

TEST(Config, WhatCannotStartIsFound) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/rjdbid.yaml";
  const auto check = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {RJDBI_RJDBID, "--check-config", "--config", file});
    return RunProgram(more);
  };
  WriteFile(file, "agent_socket: /run/a.sock\ncontrol_socket: /run/a.sock\n");
  EXPECT_EQ(check({}).exit_code, 2);
  EXPECT_THAT(check({}).err, HasSubstr("are the same: /run/a.sock"));
  EXPECT_EQ(check({"--control-socket", "/run/b.sock"}).exit_code, 0);
  const ProgramResult long_path = check({"--agent-socket", "/" + std::string(120, 'a')});
  EXPECT_EQ(long_path.exit_code, 2);
  EXPECT_THAT(long_path.err, HasSubstr("a path of 121 bytes; a socket's has at most 107"));
  std::filesystem::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(check({}).exit_code, 2);
  EXPECT_THAT(check({}).err, HasSubstr("not a regular file"));
}

TEST(Config, DropInsOverrideAndPrintedConfigurationReadsBack) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/rjdbid.yaml";
  WriteFile(file, "report_interval_ms: 50\nlog: {level: warn}\n");
  std::filesystem::create_directory(folder.path() + "/conf.d");
  WriteFile(folder.path() + "/conf.d/10-a.yaml", "report_interval_ms: 60\n");
  WriteFile(folder.path() + "/conf.d/20-b.yaml", "report_interval_ms: 70\n");
  const ProgramResult printed = RunProgram({RJDBI_RJDBID, "--print-config", "--config", file});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_THAT(printed.out, HasSubstr("report_interval_ms: 70"));
  EXPECT_THAT(printed.out, HasSubstr("level: warn"));
  const TemporaryFolder other;
  WriteFile(other.path() + "/c.yaml", printed.out);
  const ProgramResult again =
      RunProgram({RJDBI_RJDBID, "--print-config", "--config", other.path() + "/c.yaml"});
  EXPECT_EQ(again.out, printed.out);
  EXPECT_EQ(RunProgram({RJDBI_RJDBID, "--no-such-option"}).exit_code, 2);
  EXPECT_EQ(RunProgram({RJDBI_RJDBID, "--config", "/nonexistent", "--check-config"}).exit_code, 2);
}

// Run by Sessions.AKilledProcessIsNoticed in a process of its own.
// Loads, reports ten events, and is gone without a last report.
int DieWithSession(const char* socket) {
  Agent agent(socket);
  if (!agent.Open().ok()) return 1;
  if (agent.Admit(CodeObject(), 7).decision.counter_count() != 1) return 2;
  v1::ReportRequest request;
  request.set_session_id(agent.session_id);
  request.add_loads()->set_load_id(7);
  request.mutable_loads(0)->set_sequence(1);
  request.mutable_loads(0)->add_counters(10);
  if (!agent.Report(request).ok()) return 3;
  _exit(42);
}

}  // namespace
}  // namespace rjdbi::tests

int main(int argc, char** argv) {
  if (const char* socket = std::getenv("TEST_DIE_WITH_SESSION_ON")) {
    return rjdbi::tests::DieWithSession(socket);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
