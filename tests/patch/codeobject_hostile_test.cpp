// Truncations, systematic and random mutations of real objects. Seeds are
// fixed: a failure names the mutation that reproduces it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>

#include "patch/codeobject/elf_format.h"
#include "tests/patch/codeobject_hostile.h"
#include "tests/patch/sample_objects.h"

namespace rjdbi::test {
namespace {

namespace elf = patch::elf;

class HostileTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    original_ = ReadSample(GetParam());
    header_ = Peek<elf::FileHeader>(original_, 0);
  }

  void Exercise(const std::vector<uint8_t>& bytes, const std::string& what) {
    const HostileOutcome outcome = ExerciseCodeObject(bytes);
    ASSERT_EQ(outcome.violation, "") << GetParam() << ": " << what;
    parsed_ += outcome.parsed;
    written_ += outcome.written;
    ++total_;
  }

  // Offsets at which some structure starts or ends.
  std::set<uint64_t> Boundaries() const {
    std::set<uint64_t> out = {0, 16, sizeof(elf::FileHeader), header_.phoff, header_.shoff};
    for (size_t i = 0; i <= header_.phnum; ++i) {
      out.insert(header_.phoff + i * sizeof(elf::ProgramHeader));
    }
    for (size_t i = 0; i < header_.shnum; ++i) {
      const uint64_t at = header_.shoff + i * sizeof(elf::SectionHeader);
      const auto section = Peek<elf::SectionHeader>(original_, at);
      out.insert({at, section.offset, section.offset + section.size});
    }
    return out;
  }

  std::vector<uint8_t> original_;
  elf::FileHeader header_ = {};
  size_t parsed_ = 0, written_ = 0, total_ = 0;
};

TEST_P(HostileTest, OriginalIsAcceptedAndRewritten) {
  Exercise(original_, "original");
  EXPECT_EQ(parsed_, 1u);
  EXPECT_EQ(written_, 1u);
}

TEST_P(HostileTest, Truncations) {
  for (uint64_t boundary : Boundaries()) {
    for (int64_t delta : {-1, 0, 1}) {
      const uint64_t size = boundary + static_cast<uint64_t>(delta);
      if (size >= original_.size()) continue;
      // Exactly sized: a sanitizer sees any read beyond the end.
      Exercise(std::vector<uint8_t>(original_.begin(), original_.begin() + size),
               "truncated to " + std::to_string(size));
    }
  }
  EXPECT_GT(total_, 50u);
  EXPECT_EQ(parsed_, 0u);  // the section headers are at the end
}

// Every byte of every header and of the note, set to telling values.
TEST_P(HostileTest, HeaderBytes) {
  std::vector<std::pair<uint64_t, uint64_t>> areas = {
      {0, header_.phoff + header_.phnum * sizeof(elf::ProgramHeader)},
      {header_.shoff, original_.size()}};
  for (size_t i = 0; i < header_.shnum; ++i) {
    const auto section =
        Peek<elf::SectionHeader>(original_, header_.shoff + i * sizeof(elf::SectionHeader));
    const bool interesting = section.type == elf::kShtNote || section.type == elf::kShtSymtab ||
                             section.type == elf::kShtDynsym;
    if (interesting) areas.push_back({section.offset, section.offset + section.size});
  }
  for (const auto& [begin, end] : areas) {
    for (uint64_t at = begin; at < end; ++at) {
      for (uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff, 0xdf}) {
        std::vector<uint8_t> bytes = original_;
        if (bytes[at] == value) continue;
        bytes[at] = value;
        Exercise(bytes, "byte " + std::to_string(at) + " = " + std::to_string(value));
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(total_, 5000u);
  EXPECT_GT(written_, 100u);
}

// 64-bit fields of program and section headers set to extremes.
TEST_P(HostileTest, HeaderFields) {
  const uint64_t values[] = {0,          1,          original_.size() - 1, original_.size(),
                             UINT32_MAX, 1ull << 32, 1ull << 62,           INT64_MAX,
                             1ull << 63, UINT64_MAX, UINT64_MAX - 63,      UINT64_MAX - 4095};
  const auto sweep = [&](uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at + 8 <= end; at += 8) {
      for (uint64_t value : values) {
        std::vector<uint8_t> bytes = original_;
        Poke(bytes, at, value);
        Exercise(bytes, "word " + std::to_string(at) + " = " + std::to_string(value));
        if (HasFatalFailure()) return;
      }
    }
  };
  sweep(24, 64);
  sweep(header_.phoff, header_.phoff + header_.phnum * sizeof(elf::ProgramHeader));
  sweep(header_.shoff, original_.size());
  EXPECT_GT(total_, 1000u);
}

TEST_P(HostileTest, RandomMutations) {
  std::mt19937 random(20221101);
  for (int round = 0; round < 4000; ++round) {
    std::vector<uint8_t> bytes = original_;
    const unsigned count = 1 + random() % 8;
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t at = random() % bytes.size();
      if (random() % 2 == 0 || at + 8 > bytes.size()) {
        bytes[at] = static_cast<uint8_t>(random());
      } else {
        Poke(bytes, at & ~uint64_t{7}, uint64_t{random()} << (random() % 33));
      }
    }
    Exercise(bytes, "round " + std::to_string(round));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(total_, 4000u);
  EXPECT_GT(written_, 100u);
}

INSTANTIATE_TEST_SUITE_P(Samples, HostileTest,
                         testing::Values("gfx900_v4", "gfx90a_v5", "gfx1030_v5", "gfx1200_v5"));

// An object with many symbols that share one name of this size.
std::vector<uint8_t> ManySymbols(uint64_t name_bytes) {
  std::vector<uint8_t> bytes = ReadSample("gfx90a_v5");
  auto header = Peek<elf::FileHeader>(bytes, 0);
  std::vector<elf::SectionHeader> sections(header.shnum);
  std::memcpy(sections.data(), bytes.data() + header.shoff,
              sections.size() * sizeof(elf::SectionHeader));
  constexpr uint64_t kSymbols = 1 << 18;
  const auto table =
      std::find_if(sections.begin(), sections.end(),
                   [](const elf::SectionHeader& s) { return s.type == elf::kShtSymtab; });
  if (table == sections.end()) return {};
  elf::SectionHeader& strings = sections[table->link];
  strings.offset = bytes.size();
  strings.size = name_bytes + 1;
  bytes.insert(bytes.end(), name_bytes, 'x');
  bytes.push_back(0);
  elf::Symbol symbol = {};
  symbol.info = elf::kSymbolFunc;
  symbol.shndx = 1;
  bytes.resize((bytes.size() + 7) & ~size_t{7});
  table->offset = bytes.size();
  table->size = kSymbols * sizeof(symbol);
  for (uint64_t i = 0; i < kSymbols; ++i) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&symbol);
    bytes.insert(bytes.end(), raw, raw + sizeof(symbol));
  }
  header.shoff = bytes.size();
  const auto* raw = reinterpret_cast<const uint8_t*>(sections.data());
  bytes.insert(bytes.end(), raw, raw + sections.size() * sizeof(elf::SectionHeader));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

// The sum of name bytes is bounded, not the number of symbols: a name that is 500 times
// as long must not cost 500 times as much.
TEST(HostileCost, ManySymbolsWithOneLongName) {
  const auto cost = [](uint64_t name_bytes, bool parsed) {
    const std::vector<uint8_t> bytes = ManySymbols(name_bytes);
    EXPECT_FALSE(bytes.empty());
    const auto start = std::chrono::steady_clock::now();
    const HostileOutcome outcome = ExerciseCodeObject(bytes);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_EQ(outcome.parsed, parsed);
    return std::chrono::steady_clock::now() - start;
  };
  const auto usual = cost(120, true), hostile = cost(60000, false);
  EXPECT_LT(hostile, 50 * usual);
}

}  // namespace
}  // namespace rjdbi::test
