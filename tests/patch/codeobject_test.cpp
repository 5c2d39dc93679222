// The reader on real small objects, and its messages on damaged ones.
#include "patch/codeobject/code_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "patch/codeobject/elf_format.h"
#include "tests/patch/sample_objects.h"

namespace rjdbi::patch {
namespace {

using test::Peek;
using test::Poke;
using test::ReadSample;
using testing::HasSubstr;

class ReaderTest : public testing::TestWithParam<const char*> {};

TEST_P(ReaderTest, FindsKernels) {
  const std::string name = GetParam();
  const std::vector<uint8_t> bytes = ReadSample(name);
  const auto object = CodeObject::Parse(bytes);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->target().processor, name.substr(0, name.find('_')));
  EXPECT_EQ(object->target().abi_version, name.back() - '0');
  ASSERT_EQ(object->kernels().size(), 2u);
  for (const Kernel& kernel : object->kernels()) {
    EXPECT_EQ(kernel.entry_vaddr % 256, 0u);
    EXPECT_EQ(kernel.metadata.symbol, kernel.name + ".kd");
    EXPECT_EQ(kernel.metadata.name, kernel.name);
    EXPECT_EQ(kernel.metadata.wavefront_size, kernel.wavefront_size);
    EXPECT_EQ(kernel.wavefront_size, name.starts_with("gfx9") ? 64u : 32u);
    EXPECT_EQ(kernel.metadata.group_segment_fixed_size, kernel.name == "add" ? 1024u : 0u);
    EXPECT_EQ(kernel.descriptor.group_segment_fixed_size, kernel.name == "add" ? 1024u : 0u);
    EXPECT_EQ(kernel.metadata.kernarg_segment_size, kernel.descriptor.kernarg_size);
    EXPECT_GT(kernel.metadata.vgpr_count.value_or(0), 0u);
    EXPECT_FALSE(kernel.metadata.uses_dynamic_stack);
    EXPECT_GE(kernel.code_size, 40u);
  }
  EXPECT_EQ(object->code_symbols().size(), 2u);
  ASSERT_EQ(object->executable_ranges().size(), 1u);
  const CodeObject::Range range = object->executable_ranges()[0];
  EXPECT_EQ(object->AtVaddr(range.begin, range.end - range.begin).size(), range.end - range.begin);
}

INSTANTIATE_TEST_SUITE_P(Samples, ReaderTest, testing::ValuesIn(test::kSamples));

TEST(Reader, TargetFeatures) {
  std::vector<uint8_t> bytes = ReadSample("gfx90a_v5");
  EXPECT_EQ(CodeObject::Parse(bytes)->target().ToString(), "amdgcn-amd-amdhsa--gfx90a");
  Poke<uint32_t>(bytes, 48, 0x3f | 3u << 10 | 2u << 8);
  EXPECT_EQ(CodeObject::Parse(bytes)->target().ToString(),
            "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-");
  bytes[8] = 1;  // v3 has one bit each
  Poke<uint32_t>(bytes, 48, 0x3f | 0x100);
  const auto v3 = CodeObject::Parse(bytes);
  ASSERT_TRUE(v3.ok()) << v3.status();
  EXPECT_EQ(v3->target().abi_version, 3);
  EXPECT_EQ(v3->target().ToString(), "amdgcn-amd-amdhsa--gfx90a:sramecc-:xnack+");
  Poke<uint32_t>(bytes, 48, 0x36 | 0x300);  // gfx1030 has neither
  EXPECT_EQ(CodeObject::Parse(bytes)->target().ToString(), "amdgcn-amd-amdhsa--gfx1030");
}

TEST(Reader, AddressTranslation) {
  const std::vector<uint8_t> bytes = ReadSample("gfx90a_v5");
  const auto object = CodeObject::Parse(bytes);
  ASSERT_TRUE(object.ok());
  const Segment& first = object->segments().front();
  const Segment& last = object->segments().back();
  EXPECT_EQ(object->VaddrToOffset(first.vaddr), first.offset);
  EXPECT_EQ(object->VaddrToOffset(last.vaddr + last.filesz), std::nullopt);
  EXPECT_EQ(object->VaddrToOffset(UINT64_MAX), std::nullopt);
  EXPECT_TRUE(object->AtVaddr(first.vaddr, first.filesz + 1).empty());
  EXPECT_TRUE(object->AtVaddr(first.vaddr, UINT64_MAX).empty());
  EXPECT_EQ(object->AtVaddr(first.vaddr, 4).data(), bytes.data());
}

TEST(Reader, DescriptorRoundTrip) {
  std::vector<uint8_t> bytes(64);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(3 * i + 1);
  const KernelDescriptor descriptor = KernelDescriptor::Read(bytes.data());
  EXPECT_EQ(descriptor.compute_pgm_rsrc1, Peek<uint32_t>(bytes, 48));
  std::vector<uint8_t> copy = bytes;
  descriptor.Write(copy.data());
  EXPECT_EQ(copy, bytes);
  std::vector<uint8_t> zeros(64);
  descriptor.Write(zeros.data());
  EXPECT_EQ(Peek<uint32_t>(zeros, 12), 0u);  // reserved bytes are not touched
  EXPECT_EQ(Peek<uint64_t>(zeros, 24), 0u);
}

// ---- refusals ----

struct Damage {
  const char* name;
  std::function<void(std::vector<uint8_t>&, const elf::FileHeader&)> apply;
  absl::StatusCode code;
  const char* message;
};

uint64_t ProgramAt(const elf::FileHeader& header, size_t index) {
  return header.phoff + index * sizeof(elf::ProgramHeader);
}
uint64_t FirstSectionOf(const std::vector<uint8_t>& bytes, const elf::FileHeader& header,
                        uint32_t type) {
  for (size_t i = 0; i < header.shnum; ++i) {
    const uint64_t at = header.shoff + i * sizeof(elf::SectionHeader);
    if (Peek<elf::SectionHeader>(bytes, at).type == type) return at;
  }
  ADD_FAILURE() << "no section of type " << type;
  return header.shoff;
}

const Damage kDamages[] = {
    {"Magic", [](auto& b, auto&) { b[0] = 'X'; }, absl::StatusCode::kInvalidArgument,
     "ELF header: e_ident[0] is 88 (0x58), must be 127"},
    {"Class", [](auto& b, auto&) { b[4] = 1; }, absl::StatusCode::kInvalidArgument,
     "EI_CLASS is 1"},
    {"OsAbi", [](auto& b, auto&) { b[7] = 0; }, absl::StatusCode::kInvalidArgument,
     "EI_OSABI is 0 (0x0), must be 64"},
    {"HostMachine", [](auto& b, auto&) { Poke<uint16_t>(b, 18, 62); },
     absl::StatusCode::kInvalidArgument, "e_machine is 62"},
    {"Relocatable", [](auto& b, auto&) { Poke<uint16_t>(b, 16, 1); },
     absl::StatusCode::kInvalidArgument, "e_type is 1"},
    {"AbiV2", [](auto& b, auto&) { b[8] = 0; }, absl::StatusCode::kUnimplemented, "code object v2"},
    {"AbiV6", [](auto& b, auto&) { b[8] = 4; }, absl::StatusCode::kUnimplemented, "code object v6"},
    {"AbiFuture", [](auto& b, auto&) { b[8] = 9; }, absl::StatusCode::kUnimplemented, "v11"},
    {"UnknownMachine", [](auto& b, auto&) { b[48] = 0xee; }, absl::StatusCode::kUnimplemented,
     "machine 0xee"},
    {"NoSections", [](auto& b, auto&) { Poke<uint16_t>(b, 60, 0); },
     absl::StatusCode::kInvalidArgument, "e_shnum is 0"},
    {"ProgramTable", [](auto& b, auto&) { Poke<uint64_t>(b, 32, 1ull << 40); },
     absl::StatusCode::kInvalidArgument, "ELF header: e_phoff 0x10000000000"},
    {"SectionTable", [](auto& b, auto&) { Poke<uint64_t>(b, 40, UINT64_MAX); },
     absl::StatusCode::kInvalidArgument, "e_shoff 0xffffffffffffffff"},
    {"SegmentOffset", [](auto& b, auto& h) { Poke<uint64_t>(b, ProgramAt(h, 1) + 8, 1ull << 33); },
     absl::StatusCode::kInvalidArgument, "program header 1: p_offset 0x200000000"},
    {"SegmentWraps",
     [](auto& b, auto& h) { Poke<uint64_t>(b, ProgramAt(h, 1) + 16, UINT64_MAX - 1); },
     absl::StatusCode::kInvalidArgument, "program header 1: p_vaddr"},
    {"SegmentsOverlap", [](auto& b, auto& h) { Poke<uint64_t>(b, ProgramAt(h, 2) + 16, 0x100); },
     absl::StatusCode::kInvalidArgument, "lies inside program header 1"},
    {"FileLargerThanMemory", [](auto& b, auto& h) { Poke<uint64_t>(b, ProgramAt(h, 1) + 40, 1); },
     absl::StatusCode::kInvalidArgument, "above p_memsz 0x1"},
    {"SymbolEntrySize",
     [](auto& b, auto& h) { Poke<uint64_t>(b, FirstSectionOf(b, h, elf::kShtSymtab) + 56, 0); },
     absl::StatusCode::kInvalidArgument, "sh_entsize is 0, must be 24"},
    {"SymbolStrings",
     [](auto& b, auto& h) {
       Poke<uint32_t>(b, FirstSectionOf(b, h, elf::kShtSymtab) + 40, 0xffff);
     },
     absl::StatusCode::kInvalidArgument, "sh_link 65535 is not a string table"},
    {"SectionSize",
     [](auto& b, auto& h) {
       Poke<uint64_t>(b, FirstSectionOf(b, h, elf::kShtNote) + 32, UINT64_MAX);
     },
     absl::StatusCode::kInvalidArgument, "sh_offset"},
};

class DamageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamageTest, IsRefusedWithTheFieldNamed) {
  std::vector<uint8_t> bytes = ReadSample("gfx90a_v5");
  GetParam().apply(bytes, Peek<elf::FileHeader>(bytes, 0));
  const auto object = CodeObject::Parse(bytes);
  EXPECT_EQ(object.status().code(), GetParam().code);
  EXPECT_THAT(std::string(object.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Fields, DamageTest, testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Reader, KernelOutsideTheCodeIsRefused) {
  std::vector<uint8_t> bytes = ReadSample("gfx90a_v5");
  const auto object = CodeObject::Parse(bytes);
  ASSERT_TRUE(object.ok());
  const Kernel kernel = object->kernels()[0];
  const uint64_t at = *object->VaddrToOffset(kernel.descriptor_vaddr) + 16;
  Poke<int64_t>(bytes, at, 1 << 20);
  EXPECT_THAT(std::string(CodeObject::Parse(bytes).status().message()),
              HasSubstr("outside executable sections"));
  Poke<int64_t>(bytes, at, kernel.descriptor.kernel_code_entry_byte_offset + 2);
  EXPECT_THAT(std::string(CodeObject::Parse(bytes).status().message()),
              HasSubstr("is not a multiple of 4"));
}

TEST(Reader, RealV6IsUnimplemented) {
  const auto object = CodeObject::Parse(ReadSample("gfx1030_v6"));
  EXPECT_EQ(object.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(object.status().message()), HasSubstr("v6"));
}

TEST(Reader, SizeLimit) {
  const uint8_t byte = 0;
  EXPECT_EQ(CodeObject::Parse({&byte, CodeObject::kMaxSize + 1}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeObject::Parse({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rjdbi::patch
