// What attaching to a running process is made of: the table of directions and those who
// read it meanwhile, the room in a ring, the books of what is loaded, and the messages.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <deque>
#include <fstream>
#include <random>
#include <thread>

#include "agent/daemon_client/messages.h"
#include "agent/dispatch_switch.h"
#include "agent/loaded_objects.h"
#include "agent/queues.h"
#include "agent/sha256.h"
#include "rjdbi/v1/admission.pb.h"
#include "tests/agent/fake_daemon.h"

namespace rjdbi::agent {
namespace {

using ::testing::HasSubstr;
using testing::SocketPath;

// ---- Which dispatches ----

uint64_t Taken(const DispatchChoice& choice, uint64_t of) {
  uint64_t taken = 0;
  for (uint64_t i = 0; i < of; ++i) taken += choice.Takes(i);
  return taken;
}

TEST(Choice, All) { EXPECT_EQ(Taken({}, 1000), 1000u); }

TEST(Choice, EveryNth) {
  const DispatchChoice choice{DispatchChoice::Rule::kEveryNth, 7, 0};
  EXPECT_TRUE(choice.Takes(0));
  EXPECT_FALSE(choice.Takes(6));
  EXPECT_TRUE(choice.Takes(7));
  EXPECT_EQ(Taken(choice, 700), 100u);
  EXPECT_EQ(Taken({DispatchChoice::Rule::kEveryNth, 0, 0}, 100), 0u);
}

TEST(Choice, First) {
  const DispatchChoice choice{DispatchChoice::Rule::kFirst, 5, 0};
  EXPECT_TRUE(choice.Takes(4));
  EXPECT_FALSE(choice.Takes(5));
  EXPECT_EQ(Taken(choice, 1000), 5u);
}

TEST(Choice, FractionIsTheSeedsAndHolds) {
  constexpr uint64_t kOf = 100'000;
  for (double fraction : {0.01, 0.25, 0.9}) {
    const auto n = static_cast<uint64_t>(fraction * 4294967296.0);
    const DispatchChoice one{DispatchChoice::Rule::kFraction, n, 1};
    const DispatchChoice other{DispatchChoice::Rule::kFraction, n, 2};
    // Five standard deviations of a binomial distribution.
    const double slack = 5 * std::sqrt(kOf * fraction * (1 - fraction));
    EXPECT_NEAR(static_cast<double>(Taken(one, kOf)), kOf * fraction, slack);
    EXPECT_NEAR(static_cast<double>(Taken(other, kOf)), kOf * fraction, slack);
    int same = 0;
    for (uint64_t i = 0; i < kOf; ++i) same += one.Takes(i) == other.Takes(i);
    const double agree = fraction * fraction + (1 - fraction) * (1 - fraction);
    EXPECT_NEAR(same, kOf * agree, 5 * std::sqrt(kOf * agree * (1 - agree)));
    EXPECT_EQ(Taken(one, kOf), Taken({DispatchChoice::Rule::kFraction, n, 1}, kOf));
  }
  EXPECT_EQ(Taken({DispatchChoice::Rule::kFraction, uint64_t{1} << 32, 3}, 1000), 1000u);
  EXPECT_EQ(Taken({DispatchChoice::Rule::kFraction, 0, 3}, 1000), 0u);
}

TEST(Choice, CountsWhatItTakesAndWhatItLeaves) {
  DispatchCounts counts({DispatchChoice::Rule::kEveryNth, 4, 0});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(counts.Take(), i % 4 == 0);
  EXPECT_EQ(counts.switched(), 3u);
  EXPECT_EQ(counts.passed(), 7u);
}

// ---- The table ----

Direction To(uint64_t original, uint64_t descriptor) {
  return {original, descriptor, 0, 0, std::make_shared<DispatchCounts>()};
}

TEST(Table, FindsWhatItHasAndNothingElse) {
  std::mt19937_64 random(1);
  for (size_t size : {size_t{1}, size_t{2}, size_t{3}, size_t{64}, size_t{1000}}) {
    std::vector<Direction> list;
    for (size_t i = 0; i < size; ++i) list.push_back(To(0x7f0000000000 + i * 64, i));
    const Directions table(list, 5);
    EXPECT_EQ(table.number(), 5u);
    for (size_t i = 0; i < size; ++i) {
      const Direction* found = table.Find(0x7f0000000000 + i * 64);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->descriptor, i);
      EXPECT_EQ(table.Find(0x7f0000000000 + i * 64 + 8), nullptr);
    }
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(table.Find(random() | 1), nullptr);
  }
}

TEST(Table, TheLastOfSeveralHolds) {
  const Directions table({To(64, 1), To(128, 2), To(64, 3)}, 1);
  EXPECT_EQ(table.Find(64)->descriptor, 3u);
  EXPECT_EQ(table.Find(128)->descriptor, 2u);
}

TEST(Table, EmptyIsNull) {
  SwitchTable table;
  SwitchTable::Gate gate;
  EXPECT_EQ(table.Enter(gate), nullptr);
  EXPECT_TRUE(SwitchTable::IsEmpty(gate));
  auto first = std::make_unique<Directions>(std::vector<Direction>{To(64, 1)}, 1);
  EXPECT_EQ(table.Exchange(std::move(first)), nullptr);
  const Directions* seen = table.Enter(gate);
  ASSERT_NE(seen, nullptr);
  EXPECT_FALSE(SwitchTable::IsEmpty(gate));
  const auto old = table.Exchange(nullptr);
  EXPECT_EQ(old.get(), seen);
  EXPECT_EQ(seen->Find(64)->descriptor, 1u);  // still there: the gate is not empty
  SwitchTable::Leave(gate);
  EXPECT_TRUE(SwitchTable::IsEmpty(gate));
  EXPECT_EQ(table.Enter(gate), nullptr);
}

// What a direction leads to, and whether it may still be used.
struct Target {
  std::atomic<bool> alive{true};
};

// Readers use what they find; the writer ends what it has taken out as soon as the rule
// allows. A reader that finds something ended, or a report of a sanitizer, is a failure.
TEST(Table, NothingIsUsedAfterItsEnd) {
  constexpr int kReaders = 4;
  constexpr int kTables = 20'000;
  SwitchTable table;
  SwitchTable::Gate gates[kReaders];
  std::deque<Target> targets(kTables);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> uses{0}, misuses{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      while (!stop) {
        const Directions* directions = table.Enter(gates[r]);
        if (!directions) continue;
        const Direction* found = directions->Find(64);
        auto* target = reinterpret_cast<Target*>(found->descriptor);
        for (int i = 0; i < 3; ++i) misuses += !target->alive.load(std::memory_order_relaxed);
        ++uses;
        SwitchTable::Leave(gates[r]);
      }
    });
  }
  struct Old {
    std::unique_ptr<const Directions> table;
    Target* target;
  };
  std::vector<Old> old;
  Target* current = nullptr;
  for (int i = 0; i < kTables || uses == 0; ++i) {
    if (i >= kTables) {
      std::this_thread::yield();
      continue;
    }
    const bool none = i % 5 == 4 && i + 1 < kTables;
    std::unique_ptr<const Directions> next;
    Target* target = none ? nullptr : &targets[i];
    if (target) {
      next = std::make_unique<Directions>(
          std::vector<Direction>{To(64, reinterpret_cast<uintptr_t>(target))}, i + 1);
    }
    auto taken = table.Exchange(std::move(next));
    if (taken) old.push_back({std::move(taken), current});
    current = target;
    for (SwitchTable::Gate& gate : gates) {
      while (!SwitchTable::IsEmpty(gate)) std::this_thread::yield();
    }
    for (Old& gone : old) gone.target->alive.store(false, std::memory_order_relaxed);
    old.clear();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  table.Exchange(nullptr);  // the last one goes, too
  EXPECT_GT(uses.load(), 0u);
  EXPECT_EQ(misuses.load(), 0u);
}

// ---- Room in a ring ----

// A ring with a GPU that takes out what is in it at any pace. Never more goes in than fits
// with one slot left free, and the sender never waits for what cannot come.
TEST(Room, NeverMoreThanTheRingHolds) {
  std::mt19937 random(7);
  for (uint32_t size : {16u, 64u, 1024u}) {
    RingRoom room(size);
    std::deque<bool> ring;  // whether it is a mark
    uint64_t passed = 0;
    const auto take_one = [&] {
      passed += ring.front();
      ring.pop_front();
    };
    size_t most = 0;
    for (int step = 0; step < 50'000; ++step) {
      const uint64_t count = 1 + random() % 3;
      while (!room.Has(count + 2)) {
        ASSERT_TRUE(room.HasMarks());
        room.Passed(passed);
        if (room.Has(count + 2)) break;
        ASSERT_FALSE(ring.empty());
        take_one();
      }
      if (room.WantsMark(count)) {
        room.Marked();
        ring.push_back(true);
      }
      room.Sent(count);
      ring.insert(ring.end(), count, false);
      ASSERT_LT(ring.size(), size);
      most = std::max(most, ring.size());
      while (!ring.empty() && random() % 100 < (step / 1000 % 2 ? 75u : 20u)) take_one();
    }
    EXPECT_GT(most, size / 2);  // and it is used
  }
}

// ---- What is loaded ----

LoadedObject Object(const std::string& bytes, uint64_t load_id, uint64_t executable) {
  LoadedObject object;
  object.load_id = load_id;
  object.size = bytes.size();
  object.digest = Sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  object.executable.handle = executable;
  return object;
}

std::string Text(const OwnedBytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST(Loaded, MemoryIsReadAgain) {
  std::string bytes(10'000, 'm');
  LoadedObject object = Object(bytes, 1, 1);
  object.again = DescribeMemory(bytes.data(), bytes.size()).again;
  OwnedBytes copy;
  std::string why;
  ASSERT_TRUE(ReadObjectAgain(object, &copy, &why)) << why;
  EXPECT_EQ(Text(copy), bytes);
  bytes[77] = 'x';
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  EXPECT_THAT(why, HasSubstr("not what was loaded"));
}

TEST(Loaded, MemoryThatIsGoneIsAReason) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  LoadedObject object = Object(std::string(2 * page, '\0'), 1, 1);
  object.again = DescribeMemory(memory, 2 * page).again;
  OwnedBytes copy;
  std::string why;
  ASSERT_TRUE(ReadObjectAgain(object, &copy, &why)) << why;
  munmap(static_cast<char*>(memory) + page, page);
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  EXPECT_THAT(why, HasSubstr("gone"));
  mprotect(memory, page, PROT_NONE);
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  munmap(memory, page);
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
}

TEST(Loaded, FilesAreOpenedAgain) {
  SocketPath folder;
  const std::string path = folder.directory() + "/a b.co";
  std::ofstream(path) << "0123456789";
  LoadedObject object = Object("3456", 1, 1);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  object.again = DescribeFile(fd, 3, 4).again;
  close(fd);
  OwnedBytes copy;
  std::string why;
  ASSERT_TRUE(ReadObjectAgain(object, &copy, &why)) << why;
  EXPECT_EQ(Text(copy), "3456");
  std::ofstream(path) << "0123X56789";
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  EXPECT_THAT(why, HasSubstr("not what was loaded"));
  std::ofstream(path) << "012";
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  unlink(path.c_str());
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));
  EXPECT_THAT(why, HasSubstr("cannot be opened"));
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(ReadObjectAgain(object, &copy, &why));  // and nobody waits
}

TEST(Loaded, BooksFollowExecutables) {
  LoadedObjects objects;
  objects.Add(Object("a", 1, 10));
  objects.Add(Object("b", 2, 20));
  objects.Add(Object("c", 3, 10));
  EXPECT_EQ(objects.size(), 3u);
  EXPECT_TRUE(objects.SetGeneration(2, 9, 1));
  EXPECT_FALSE(objects.SetGeneration(4, 9, 1));
  LoadedObject found;
  ASSERT_TRUE(objects.Find(2, &found));
  EXPECT_EQ(found.generation, 9u);
  const auto taken = objects.Take(10);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].load_id + taken[1].load_id, 4u);
  EXPECT_TRUE(objects.Take(10).empty());
  objects.ForgetOtherSessions(1);
  EXPECT_TRUE(objects.Find(2, &found));
  EXPECT_EQ(found.generation, 9u);
  objects.ForgetOtherSessions(2);
  ASSERT_EQ(objects.All().size(), 1u);
  EXPECT_EQ(objects.All()[0].generation, 0u);
}

TEST(Loaded, DescriptorsLieInsideAndAligned) {
  const LoadPlace place{0x1000, 0x2000, 0x400};
  EXPECT_TRUE(place.HoldsDescriptor(0x2000));
  EXPECT_TRUE(place.HoldsDescriptor(0x23c0));
  EXPECT_FALSE(place.HoldsDescriptor(0x2020));
  EXPECT_FALSE(place.HoldsDescriptor(0x2400));
  EXPECT_FALSE(place.HoldsDescriptor(0x1fc0));
  EXPECT_FALSE(place.HoldsDescriptor(UINT64_MAX & ~uint64_t{63}));
  EXPECT_FALSE((LoadPlace{0, 0, 32}.HoldsDescriptor(0)));
}

// ---- Messages ----

DecodeLimits Limits(bool beside) { return {100, 100, 1000, 10, beside}; }

bool Decode(const v1::AdmitReply& reply, bool beside, Decision* decision, std::string* why) {
  const std::string bytes = reply.SerializeAsString();
  ChunkSink none;
  AdmitReplyKind kind;
  *decision = Decision();
  return DecodeAdmitReply({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                          Limits(beside), &none, &kind, decision, why);
}

v1::AdmitReply Reply() {
  v1::AdmitReply reply;
  v1::AdmitDecision& decision = *reply.mutable_decision();
  decision.set_verdict(v1::PATCHED);
  decision.set_patched_size(1000);
  decision.set_patched_sha256(std::string(32, 'h'));
  decision.set_generation(77);
  v1::KernelSwitch& item = *decision.add_kernel_switches();
  item.set_kernel("a kernel");
  item.set_original_descriptor(0x1000);
  item.set_beside_descriptor(0x2000);
  item.set_private_segment_bytes(16);
  item.set_group_segment_bytes(32);
  v1::Fixup& fixup = *decision.add_fixups();
  fixup.set_kind(v1::ORIGINAL_ADDRESS_HI32);
  fixup.set_file_offset(996);
  fixup.set_addend(uint64_t{1} << 40);
  v1::KernelRestore& restore = *decision.add_kernel_restores();
  restore.set_kernel("another");
  restore.set_patched_descriptor(0x40);
  restore.set_code(0x100);
  restore.set_original(std::string(64, 'd'));
  return reply;
}

TEST(Messages, WhatBelongsToAnImageBeside) {
  Decision decision;
  std::string why;
  ASSERT_TRUE(Decode(Reply(), true, &decision, &why)) << why;
  EXPECT_EQ(decision.generation, 77u);
  ASSERT_EQ(decision.switches.size(), 1u);
  EXPECT_EQ(decision.switches[0].original_descriptor, 0x1000u);
  EXPECT_EQ(decision.switches[0].descriptor, 0x2000u);
  EXPECT_EQ(decision.switches[0].private_segment_bytes, 16u);
  EXPECT_EQ(decision.switches[0].group_segment_bytes, 32u);
  ASSERT_EQ(decision.fixups.size(), 1u);
  EXPECT_EQ(decision.fixups[0].kind, FixupKind::kOriginalAddressHi32);
  EXPECT_EQ(decision.fixups[0].addend, uint64_t{1} << 40);
  ASSERT_EQ(decision.restores.size(), 1u);
  EXPECT_EQ(decision.restores[0].descriptor, 0x40u);
  EXPECT_EQ(decision.restores[0].code, 0x100u);
  EXPECT_EQ(decision.restores[0].original[63], 'd');
}

TEST(Messages, IsRefusedElsewhere) {
  Decision decision;
  std::string why;
  EXPECT_FALSE(Decode(Reply(), false, &decision, &why));
  v1::AdmitReply reply = Reply();
  reply.mutable_decision()->clear_kernel_switches();
  reply.mutable_decision()->clear_kernel_restores();
  EXPECT_FALSE(Decode(reply, false, &decision, &why));
  EXPECT_THAT(why, HasSubstr("fixup out of range"));
}

TEST(Messages, HostileSizesAreRefused) {
  Decision decision;
  std::string why;
  v1::AdmitReply reply = Reply();
  for (int i = 0; i < 10; ++i) reply.mutable_decision()->add_kernel_switches();
  EXPECT_FALSE(Decode(reply, true, &decision, &why));
  EXPECT_THAT(why, HasSubstr("too many kernel switches"));
  reply = Reply();
  for (int i = 0; i < 10; ++i) {
    *reply.mutable_decision()->add_kernel_restores() = Reply().decision().kernel_restores(0);
  }
  EXPECT_FALSE(Decode(reply, true, &decision, &why));
  EXPECT_THAT(why, HasSubstr("too many kernel restores"));
  for (size_t size : {0, 63, 65, 1000}) {
    reply = Reply();
    reply.mutable_decision()->mutable_kernel_restores(0)->set_original(std::string(size, 'd'));
    EXPECT_FALSE(Decode(reply, true, &decision, &why)) << size;
  }
  for (uint64_t offset : {uint64_t{997}, uint64_t{1000}, UINT64_MAX}) {
    reply = Reply();
    reply.mutable_decision()->mutable_fixups(0)->set_file_offset(offset);
    EXPECT_FALSE(Decode(reply, true, &decision, &why)) << offset;
  }
  reply = Reply();
  reply.mutable_decision()->mutable_fixups(0)->set_kind(static_cast<v1::FixupKind>(5));
  EXPECT_FALSE(Decode(reply, true, &decision, &why));
  // A long name is nobody's memory.
  reply = Reply();
  reply.mutable_decision()->mutable_kernel_switches(0)->set_kernel(std::string(1 << 20, 'k'));
  EXPECT_TRUE(Decode(reply, true, &decision, &why)) << why;
}

TEST(Messages, CutAnywhereIsRefusedOrWhole) {
  const std::string whole = Reply().SerializeAsString();
  for (size_t size = 0; size < whole.size(); ++size) {
    Decision decision;
    std::string why;
    ChunkSink none;
    AdmitReplyKind kind;
    EXPECT_FALSE(DecodeAdmitReply({reinterpret_cast<const uint8_t*>(whole.data()), size},
                                  Limits(true), &none, &kind, &decision, &why))
        << size;
  }
}

TEST(Messages, Watch) {
  const WireBytes session = {'s', 'i', 'd'};
  const WireBytes bytes = EncodeWatch(session, UINT64_MAX, 30'000);
  v1::WatchRequest request;
  ASSERT_TRUE(request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  EXPECT_EQ(request.session_id(), "sid");
  EXPECT_EQ(request.seen(), UINT64_MAX);
  EXPECT_EQ(request.max_wait_ms(), 30'000u);

  v1::WatchReply reply;
  reply.set_generation(5);
  reply.set_attachments(2);
  std::string text = reply.SerializeAsString();
  WatchAnswer answer;
  std::string why;
  const auto decode = [&] {
    return DecodeWatch({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &answer, &why);
  };
  ASSERT_TRUE(decode()) << why;
  EXPECT_EQ(answer.generation, 5u);
  EXPECT_EQ(answer.attachments, 2u);
  reply.set_generation(0);
  text = reply.SerializeAsString();
  EXPECT_FALSE(decode());
  text = "\xff\xff";
  EXPECT_FALSE(decode());
}

TEST(Messages, HeaderOfAnImageBeside) {
  ObjectHeader header;
  header.load_id = 4;
  header.beside = true;
  header.beside_load_id = 3;
  const WireBytes bytes = EncodeObjectHeader({}, header);
  v1::AdmitRequest request;
  ASSERT_TRUE(request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  EXPECT_TRUE(request.header().beside());
  EXPECT_EQ(request.header().beside_load_id(), 3u);
  EXPECT_EQ(request.header().load_id(), 4u);
}

}  // namespace
}  // namespace rjdbi::agent
