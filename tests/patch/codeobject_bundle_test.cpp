// Offload bundles, and what only looks like one.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "patch/codeobject/offload_bundle.h"

namespace rjdbi::patch {
namespace {

constexpr char kMagic[] = "__CLANG_OFFLOAD_BUNDLE__";

struct Entry {
  std::string id, bytes;
};

void Append(std::string& out, uint64_t value) {
  char word[sizeof value];
  std::memcpy(word, &value, sizeof value);
  out.append(word, sizeof word);
}

std::string Bundle(const std::vector<Entry>& entries) {
  std::string table;
  size_t table_size = sizeof kMagic - 1 + 8;
  for (const Entry& e : entries) table_size += 24 + e.id.size();
  std::string data;
  for (const Entry& e : entries) {
    Append(table, table_size + data.size());
    Append(table, e.bytes.size());
    Append(table, e.id.size());
    table += e.id;
    data += e.bytes;
  }
  std::string out = kMagic;
  Append(out, entries.size());
  return out + table + data;
}

absl::StatusOr<std::vector<BundledObject>> Extract(const std::string& bytes) {
  return ExtractBundles({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

const std::string& Sample() {
  static const std::string sample =
      Bundle({{"host-x86_64-unknown-linux--", ""},
              {"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", "one object"},
              {"hipv4-amdgcn-amd-amdhsa--gfx1030", "another"}});
  return sample;
}

TEST(OffloadBundle, DeviceObjectsByTarget) {
  const std::string two = Sample() + Sample();  // which the results point into
  const auto found = Extract(two);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 4u);
  EXPECT_EQ((*found)[0].target, "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-");
  EXPECT_EQ(std::string((*found)[1].bytes.begin(), (*found)[1].bytes.end()), "another");
  EXPECT_EQ((*found)[1].bundle, 0u);
  EXPECT_EQ((*found)[3].bundle, 1u);
}

TEST(OffloadBundle, WhatIsNone) {
  EXPECT_EQ(Extract("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Extract("some text").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Extract(std::string("CCOB") + std::string(100, '\0')).status().code(),
            absl::StatusCode::kUnimplemented);
  std::string elf(64, '\0');  // no sections
  elf.replace(0, 4, "\177ELF");
  EXPECT_FALSE(Extract(elf).ok());
}

TEST(OffloadBundle, TruncationsAndWrongNumbersAreErrorsOrAnswers) {
  for (size_t size = 0; size < Sample().size(); ++size) {
    const std::string part = Sample().substr(0, size);
    const auto found = Extract(part);
    EXPECT_FALSE(found.ok()) << size;
  }
  constexpr size_t kCount = sizeof kMagic - 1;
  for (size_t at = kCount; at + 8 <= Sample().size(); ++at) {
    for (const uint64_t wrong : {uint64_t{0}, uint64_t{1} << 32, ~uint64_t{0}, ~uint64_t{0} - 24}) {
      std::string bytes = Sample();
      std::memcpy(bytes.data() + at, &wrong, sizeof wrong);
      const auto found = Extract(bytes);
      if (!found.ok()) continue;
      for (const BundledObject& object : *found) {
        const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data());
        EXPECT_GE(object.bytes.data(), begin);
        EXPECT_LE(object.bytes.data() + object.bytes.size(), begin + bytes.size());
      }
    }
  }
}

}  // namespace
}  // namespace rjdbi::patch
