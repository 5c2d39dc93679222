// What records say: bytes as a wavefront writes them, against addresses, lanes and
// figures worked out by hand.
#include "contract/record_format.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::contract {
namespace {

// A record and the layout of its site.
class Made {
 public:
  Made(uint32_t kind, uint32_t lane_bytes, uint32_t wavefront_size = 64) {
    layout.set_kind(kind);
    layout.set_lane_bytes(lane_bytes);
    layout.set_wavefront_size(wavefront_size);
    layout.set_bytes(32 + lane_bytes * wavefront_size);
    bytes.resize(layout.bytes());
    Put(12, kind << RJDBI_RECORD_KIND_SHIFT | layout.bytes() / 16 << RJDBI_RECORD_SIZE_SHIFT);
  }
  Made& Exec(uint64_t exec) {
    std::memcpy(bytes.data(), &exec, 8);
    return *this;
  }
  Made& Uniform(std::initializer_list<uint32_t> words) {
    size_t at = 16;
    for (const uint32_t word : words) Put(at, word), at += 4;
    return *this;
  }
  Made& Lane(uint32_t lane, uint64_t value) {
    std::memcpy(bytes.data() + 32 + lane * layout.lane_bytes(), &value, layout.lane_bytes());
    return *this;
  }
  void Put(size_t at, uint32_t word) { std::memcpy(bytes.data() + at, &word, 4); }
  Record Decode() const {
    const absl::StatusOr<Record> record = DecodeRecord(layout, bytes);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(Record());
  }

  v1::RecordLayout layout;
  std::vector<uint8_t> bytes;
};

Made Address(v1::AddressForm form, uint32_t lane_bytes, int64_t offset) {
  Made made(RJDBI_RECORD_ADDRESS, lane_bytes);
  made.layout.set_address_form(form);
  made.layout.set_offset(offset);
  return made;
}

std::vector<uint64_t> Values(const Record& record) {
  std::vector<uint64_t> values;
  for (const Record::Lane& lane : record.lanes) values.push_back(lane.value);
  return values;
}

// Lanes 0, 1, ... at these addresses.
Record At(const std::vector<uint64_t>& addresses) {
  Record record;
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    record.lanes.push_back({i, addresses[i], std::nullopt});
    record.exec |= uint64_t{1} << i;
  }
  return record;
}

Record Strided(uint64_t first, int64_t stride, uint32_t lanes) {
  std::vector<uint64_t> addresses;
  for (uint32_t i = 0; i < lanes; ++i) {
    addresses.push_back(first + static_cast<uint64_t>(stride * i));
  }
  return At(addresses);
}

TEST(RecordFormat, Exec) {
  Made made(RJDBI_RECORD_EXEC, 0);
  made.Exec(0xf0f0000000000001).Uniform({7, 8, 9, 0x1234});
  made.layout.set_workgroup_id_known(true);
  Record record = made.Decode();
  EXPECT_EQ(record.exec, 0xf0f0000000000001);
  EXPECT_EQ(ActiveLanes(record), 9u);
  EXPECT_THAT(*record.workgroup, testing::ElementsAre(7, 8, 9));
  EXPECT_EQ(record.wave, 0x1234u);
  EXPECT_TRUE(record.lanes.empty());
  made.layout.set_workgroup_id_known(false);
  EXPECT_FALSE(made.Decode().workgroup.has_value());
}

TEST(RecordFormat, ClockAndScalarValue) {
  Made clock(RJDBI_RECORD_CLOCK, 0);
  Record record = clock.Uniform({0x89abcdef, 0x01234567, 5, 0}).Decode();
  EXPECT_EQ(record.time, 0x0123456789abcdefu);
  EXPECT_EQ(record.wave, 5u);
  Made value(RJDBI_RECORD_VALUE, 0);
  record = value.Uniform({3, 4, 6, 0}).Decode();
  EXPECT_EQ(record.scalar, 0x400000003u);
  EXPECT_EQ(record.wave, 6u);
  Made vector(RJDBI_RECORD_VALUE, 4, 32);
  record = vector.Exec(0x80000002).Lane(1, 10).Lane(31, 20).Lane(7, 99).Decode();
  ASSERT_EQ(record.lanes.size(), 2u);
  EXPECT_EQ(record.lanes[0].lane, 1u);
  EXPECT_EQ(record.lanes[0].value, 10u);
  EXPECT_EQ(record.lanes[1].lane, 31u);
  EXPECT_EQ(record.lanes[1].value, 20u);
}

TEST(RecordFormat, FlatAddresses) {
  Made made = Address(v1::ADDRESS_FLAT, 8, -16);
  made.Exec(0b101).Lane(0, 0x7f0000001000).Lane(1, 1).Lane(2, 8);
  EXPECT_THAT(Values(made.Decode()),
              testing::ElementsAre(0x7f0000000ff0, 0xfffffffffffffff8));  // modulo 2^64
}

TEST(RecordFormat, GlobalAddressesWithAScalarBase) {
  Made made = Address(v1::ADDRESS_GLOBAL_SADDR, 4, 4095);
  made.Exec(0b11).Uniform({0x1000, 0x7f00}).Lane(0, 0).Lane(1, 0xffffffff);  // unsigned
  EXPECT_THAT(Values(made.Decode()),
              testing::ElementsAre(0x7f0000001fff, 0x7f0000001000 + 0xffffffffull + 4095));
}

TEST(RecordFormat, LdsAddresses) {
  Made made = Address(v1::ADDRESS_LDS, 4, 256);
  made.Exec(0b11).Lane(0, 0x100).Lane(1, 0xffffffff);
  EXPECT_THAT(Values(made.Decode()), testing::ElementsAre(0x200, 0xff));  // modulo 2^32
  made.layout.set_offset1(0);
  Record record = made.Decode();
  EXPECT_EQ(record.lanes[0].second, 0x100u);
  EXPECT_EQ(record.lanes[1].second, 0xffffffffu);
  made.layout.clear_offset1();
  EXPECT_FALSE(made.Decode().lanes[0].second.has_value());
}

TEST(RecordFormat, ScalarAddresses) {
  Made made = Address(v1::ADDRESS_SCALAR, 0, -8);
  const Record record = made.Exec(1).Uniform({0x1000, 0x7f00, 0x20, 0}).Decode();
  EXPECT_EQ(record.scalar, 0x7f0000001018u);
  EXPECT_TRUE(record.lanes.empty());
}

TEST(RecordFormat, ScratchAddresses) {
  Made made = Address(v1::ADDRESS_SCRATCH, 4, 8);
  EXPECT_THAT(Values(made.Exec(0b10).Uniform({0x40}).Lane(1, 4).Decode()),
              testing::ElementsAre(0x4c));
}

TEST(RecordFormat, BufferAddresses) {
  // Base 0x7f0012345678, stride 12, soffset 0x100.
  const std::initializer_list<uint32_t> resource = {0x12345678, 0x7f00 | 12 << 16, 0x100, 0};
  const uint64_t base = 0x7f0012345678 + 0x100 + 64;
  Made both = Address(v1::ADDRESS_BUFFER, 8, 64);
  both.layout.set_buffer_index(true);
  both.layout.set_buffer_offset(true);
  both.Exec(0b11).Uniform(resource).Lane(0, 0).Lane(1, 3 | uint64_t{20} << 32);
  EXPECT_THAT(Values(both.Decode()), testing::ElementsAre(base, base + 36 + 20));
  Made index = Address(v1::ADDRESS_BUFFER, 4, 64);
  index.layout.set_buffer_index(true);
  EXPECT_THAT(Values(index.Exec(1).Uniform(resource).Lane(0, 5).Decode()),
              testing::ElementsAre(base + 60));
  Made offset = Address(v1::ADDRESS_BUFFER, 4, 64);
  offset.layout.set_buffer_offset(true);
  EXPECT_THAT(Values(offset.Exec(1).Uniform(resource).Lane(0, 5).Decode()),
              testing::ElementsAre(base + 5));
  Made neither = Address(v1::ADDRESS_BUFFER, 0, 64);
  EXPECT_THAT(Values(neither.Exec(0b110).Uniform(resource).Decode()),
              testing::ElementsAre(base, base));
  // What the four words do not say is not made up.
  Made swizzled = Address(v1::ADDRESS_BUFFER, 0, 0);
  const Record unknown = swizzled.Exec(1).Uniform({0, 1u << 31, 0, 0}).Decode();
  EXPECT_TRUE(unknown.lanes.empty());
  EXPECT_THAT(unknown.no_addresses, testing::HasSubstr("swizzled"));
  EXPECT_THAT(swizzled.Uniform({0, 0, 0, 1u << 23}).Decode().no_addresses,
              testing::HasSubstr("lane"));
}

TEST(RecordFormat, WhatIsNoRecordOfTheLayoutIsRefused) {
  const Made good(RJDBI_RECORD_ADDRESS, 8);
  EXPECT_TRUE(DecodeRecord(good.layout, good.bytes).ok());
  EXPECT_EQ(RecordBytes(good.bytes), good.bytes.size());
  EXPECT_EQ(RecordBytes(absl::MakeSpan(good.bytes).first(100)), 0u);
  EXPECT_EQ(RecordBytes({}), 0u);
  const auto refused = [](const Made& made) {
    return absl::IsInvalidArgument(DecodeRecord(made.layout, made.bytes).status());
  };
  Made made = good;
  made.bytes.resize(made.bytes.size() - 16);
  EXPECT_TRUE(refused(made));
  made = good;
  made.bytes.clear();
  EXPECT_TRUE(refused(made));
  made = good;
  made.layout.set_kind(RJDBI_RECORD_EXEC);
  EXPECT_TRUE(refused(made));
  made = good;
  made.layout.set_lane_bytes(16);
  EXPECT_TRUE(refused(made));
  made = good;
  made.layout.set_wavefront_size(UINT32_MAX);
  EXPECT_TRUE(refused(made));
  made = good;
  made.layout.set_bytes(made.layout.bytes() + 16);
  EXPECT_TRUE(refused(made));
}

TEST(RecordFormat, LinesOfAnAccess) {
  EXPECT_EQ(LinesTouched(Strided(0x1000, 4, 64), 4, 64), 4u);  // contiguous words
  EXPECT_EQ(LinesTouched(Strided(0x1000, 4, 64), 4, 128), 2u);
  EXPECT_EQ(LinesTouched(Strided(0x1004, 4, 64), 4, 64), 5u);    // not aligned
  EXPECT_EQ(LinesTouched(Strided(0x1000, 64, 64), 4, 64), 64u);  // one line for each lane
  EXPECT_EQ(LinesTouched(Strided(0x1000, 0, 64), 4, 64), 1u);    // one word for all
  EXPECT_EQ(LinesTouched(At({0x103e}), 4, 64), 2u);              // across two
  EXPECT_EQ(LinesTouched(At({UINT64_MAX - 1}), 4, 64), 2u);      // around the end
  EXPECT_EQ(LinesTouched(Record(), 4, 64), 0u);
}

TEST(RecordFormat, StrideOfNeighbours) {
  EXPECT_EQ(CommonStride(Strided(0x1000, 4, 64)), 4);
  EXPECT_EQ(CommonStride(Strided(0x1000, -8, 3)), -8);
  EXPECT_EQ(CommonStride(Strided(0x1000, 0, 2)), 0);
  EXPECT_EQ(CommonStride(At({1, 2, 4})), std::nullopt);
  EXPECT_EQ(CommonStride(At({1})), std::nullopt);
  Record gap = Strided(0, 4, 4);
  gap.lanes.erase(gap.lanes.begin() + 1);
  EXPECT_EQ(CommonStride(gap), std::nullopt);  // lanes 0 and 2 are no neighbours
}

TEST(RecordFormat, BanksOfLds) {
  const auto use = [](const Record& record, uint32_t bytes = 4) {
    const BankUse banks = LdsBankUse(record, bytes, 32);
    return std::pair(banks.cycles, banks.least);
  };
  EXPECT_EQ(use(Strided(0, 4, 64)), std::pair(2u, 2u));     // no conflict
  EXPECT_EQ(use(Strided(0, 8, 64)), std::pair(4u, 2u));     // every other bank
  EXPECT_EQ(use(Strided(0, 128, 64)), std::pair(64u, 2u));  // one bank
  EXPECT_EQ(use(Strided(0, 132, 64)), std::pair(2u, 2u));   // padded by a word: none
  EXPECT_EQ(use(Strided(16, 0, 64)), std::pair(2u, 2u));    // a word that all share
  EXPECT_EQ(use(Strided(0, 8, 64), 8), std::pair(4u, 4u));  // 64-bit accesses
  EXPECT_EQ(use(Record()), std::pair(0u, 0u));
  EXPECT_EQ(LdsBankUse(Strided(0, 4, 64), 4, 0).cycles, 0u);
  Record two = At({0});
  two.lanes[0].second = 128;
  EXPECT_EQ(use(two), std::pair(2u, 1u));  // both of its words in one bank
}

TEST(RecordFormat, BanksByGeneration) {
  EXPECT_EQ(LdsBanks("amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"), 32u);
  EXPECT_EQ(LdsBanks("amdgcn-amd-amdhsa--gfx950"), 64u);
  EXPECT_EQ(LdsBanks("amdgcn-amd-amdhsa--gfx1030"), 32u);
  EXPECT_EQ(LdsBanks("amdgcn-amd-amdhsa--gfx1201"), 32u);
  EXPECT_EQ(LdsBanks("amdgcn-amd-amdhsa--gfx803"), 0u);
  EXPECT_EQ(LdsBanks(""), 0u);
}

}  // namespace
}  // namespace rjdbi::contract
