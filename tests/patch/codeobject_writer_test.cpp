// The writer: what changes, what must not, and whether other readers agree.
#include "patch/codeobject/code_object_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "patch/codeobject/elf_format.h"
#include "tests/patch/sample_objects.h"

namespace rjdbi::patch {
namespace {

using test::Peek;
using test::Poke;
using test::ReadSample;
using testing::HasSubstr;

CodeObjectEdit::KernelChange Unchanged(const Kernel& kernel) {
  CodeObjectEdit::KernelChange change;
  change.descriptor = kernel.descriptor;
  return change;
}

std::string Output(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>&1").c_str(), "r"), pclose);
  std::string out;
  char buffer[4096];
  while (size_t n = std::fread(buffer, 1, sizeof(buffer), pipe.get())) out.append(buffer, n);
  return out;
}

// What the device loader does: PT_LOADs in table order, the image as large as
// the end of the last one.
struct Image {
  std::vector<uint8_t> memory;
  bool fits = true;
};
Image LoadAsRocrDoes(const std::vector<uint8_t>& bytes) {
  const auto header = Peek<elf::FileHeader>(bytes, 0);
  std::vector<elf::ProgramHeader> loads;
  for (size_t i = 0; i < header.phnum; ++i) {
    const auto program =
        Peek<elf::ProgramHeader>(bytes, header.phoff + i * sizeof(elf::ProgramHeader));
    if (program.type == elf::kPtLoad) loads.push_back(program);
  }
  Image image;
  image.memory.resize(loads.back().vaddr + loads.back().memsz);
  for (const elf::ProgramHeader& load : loads) {
    if (load.vaddr + load.memsz > image.memory.size()) {
      image.fits = false;
      continue;
    }
    std::copy_n(bytes.begin() + load.offset, load.filesz, image.memory.begin() + load.vaddr);
  }
  return image;
}

class WriterTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    original_ = ReadSample(GetParam());
    auto object = CodeObject::Parse(original_);
    ASSERT_TRUE(object.ok()) << object.status();
    object_ = std::make_unique<CodeObject>(*std::move(object));
  }

  std::vector<uint8_t> Write(const CodeObjectEdit& edit) {
    auto bytes = WriteCodeObject(*object_, edit);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *std::move(bytes) : std::vector<uint8_t>();
  }

  // Every byte outside the given file ranges is as it was.
  void ExpectUntouched(const std::vector<uint8_t>& bytes,
                       const std::vector<std::pair<uint64_t, uint64_t>>& except) {
    ASSERT_GE(bytes.size(), original_.size());
    for (uint64_t i = 0; i < original_.size(); ++i) {
      const bool excepted = std::any_of(except.begin(), except.end(), [&](const auto& range) {
        return i >= range.first && i < range.second;
      });
      ASSERT_TRUE(excepted || bytes[i] == original_[i]) << "file offset " << i;
    }
  }

  // Other readers: no warnings, and the new section is listed.
  std::string ReadElf(const std::vector<uint8_t>& bytes) {
    const std::string path = testing::TempDir() + "writer_" + GetParam() + ".co";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
    return Output(std::string(RJDBI_READELF) + " --all --wide " + path);
  }

  std::pair<uint64_t, uint64_t> HeaderRange() const {
    const auto header = Peek<elf::FileHeader>(original_, 0);
    return {0, header.phoff + header.phnum * sizeof(elf::ProgramHeader)};
  }

  std::vector<uint8_t> original_;
  std::unique_ptr<CodeObject> object_;
};

TEST_P(WriterTest, EmptyEditIsIdentity) { EXPECT_EQ(Write({}), original_); }

TEST_P(WriterTest, NewSegment) {
  const auto vaddr = NewSegmentVaddr(*object_);
  ASSERT_TRUE(vaddr.ok()) << vaddr.status();
  EXPECT_EQ(*vaddr % 4096, 0u);
  for (size_t size : {size_t{4}, size_t{4096}, size_t{100004}, size_t{8} << 20}) {
    CodeObjectEdit edit;
    for (size_t i = 0; i < size; ++i) edit.new_segment.push_back(static_cast<uint8_t>(i * 7));
    const std::vector<uint8_t> bytes = Write(edit);
    const auto again = CodeObject::Parse(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    const auto code = again->AtVaddr(*vaddr, size);
    EXPECT_TRUE(
        std::equal(code.begin(), code.end(), edit.new_segment.begin(), edit.new_segment.end()));
    EXPECT_EQ(again->executable_ranges().back().begin, *vaddr);
    EXPECT_EQ(again->executable_ranges().back().end, *vaddr + size);
    const Image image = LoadAsRocrDoes(bytes);
    EXPECT_TRUE(image.fits);
    ASSERT_EQ(image.memory.size(), *vaddr + size);
    EXPECT_TRUE(std::equal(edit.new_segment.begin(), edit.new_segment.end(),
                           image.memory.begin() + static_cast<long>(*vaddr)));
    ExpectUntouched(bytes, {HeaderRange()});
  }
}

TEST_P(WriterTest, OtherReadersAgree) {
  CodeObjectEdit edit;
  edit.new_segment.assign(512, 0);
  CodeObjectEdit::KernelChange change = Unchanged(object_->kernels()[0]);
  change.vgpr_count = 200;  // does not fit where a one-byte number was
  change.sgpr_count = 102;
  edit.kernels[0] = change;
  const std::string text = ReadElf(Write(edit));
  EXPECT_THAT(text, testing::Not(HasSubstr("warning")));
  EXPECT_THAT(text, testing::Not(HasSubstr("error")));
  EXPECT_THAT(text, HasSubstr(".rjdbi.text"));
  EXPECT_THAT(text, HasSubstr(".vgpr_count:     200"));
  EXPECT_THAT(text, HasSubstr(".sgpr_count:     102"));
}

TEST_P(WriterTest, DescriptorAndMetadataInPlace) {
  const Kernel& kernel = object_->kernels()[1];
  CodeObjectEdit edit;
  CodeObjectEdit::KernelChange change = Unchanged(kernel);
  change.descriptor.compute_pgm_rsrc1 ^= 0x3f;
  change.descriptor.private_segment_fixed_size = 16;  // the note follows by itself
  change.vgpr_count = 77;
  edit.kernels[1] = change;
  const std::vector<uint8_t> bytes = Write(edit);
  EXPECT_EQ(bytes.size(), original_.size());
  const auto again = CodeObject::Parse(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  const Kernel& after = again->kernels()[1];
  EXPECT_EQ(after.descriptor.compute_pgm_rsrc1, kernel.descriptor.compute_pgm_rsrc1 ^ 0x3f);
  EXPECT_EQ(after.descriptor.private_segment_fixed_size, 16u);
  EXPECT_EQ(after.metadata.private_segment_fixed_size, 16u);
  EXPECT_EQ(after.metadata.vgpr_count, 77u);
  EXPECT_EQ(after.metadata.sgpr_count, kernel.metadata.sgpr_count);
  EXPECT_EQ(again->kernels()[0].metadata.vgpr_count, object_->kernels()[0].metadata.vgpr_count);
}

TEST_P(WriterTest, GrownNoteMovesToTheEnd) {
  CodeObjectEdit edit;
  for (size_t i = 0; i < 2; ++i) {
    CodeObjectEdit::KernelChange change = Unchanged(object_->kernels()[i]);
    change.vgpr_count = 256;
    change.agpr_count = static_cast<uint32_t>(1000 + i);
    change.group_segment_fixed_size = 65536;
    edit.kernels[i] = change;
  }
  const std::vector<uint8_t> bytes = Write(edit);
  EXPECT_GT(bytes.size(), original_.size());
  const auto again = CodeObject::Parse(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again->kernels()[i].metadata.vgpr_count, 256u);
    EXPECT_EQ(again->kernels()[i].metadata.agpr_count, 1000 + i);
    EXPECT_EQ(again->kernels()[i].metadata.group_segment_fixed_size, 65536u);
    EXPECT_EQ(again->kernels()[i].metadata.kernarg_segment_size,
              object_->kernels()[i].metadata.kernarg_segment_size);
  }
  ExpectUntouched(bytes, {HeaderRange()});
  EXPECT_EQ(LoadAsRocrDoes(bytes).memory.size(), LoadAsRocrDoes(original_).memory.size());
  const std::string text = ReadElf(bytes);
  EXPECT_THAT(text, testing::Not(HasSubstr("warning")));
  EXPECT_THAT(text, HasSubstr(".agpr_count:     1001"));
}

TEST_P(WriterTest, OverwritesAreExact) {
  const Kernel& kernel = object_->kernels()[0];
  CodeObjectEdit edit;
  edit.overwrites.push_back({kernel.entry_vaddr + 8, {1, 2, 3, 4}});
  edit.overwrites.push_back({kernel.entry_vaddr, {5, 6, 7, 8}});
  const std::vector<uint8_t> bytes = Write(edit);
  EXPECT_EQ(bytes.size(), original_.size());
  const uint64_t at = *object_->VaddrToOffset(kernel.entry_vaddr);
  EXPECT_EQ(Peek<uint32_t>(bytes, at), 0x08070605u);
  EXPECT_EQ(Peek<uint32_t>(bytes, at + 8), 0x04030201u);
  ExpectUntouched(bytes, {{at, at + 4}, {at + 8, at + 12}});
}

INSTANTIATE_TEST_SUITE_P(Samples, WriterTest, testing::ValuesIn(test::kSamples));

class WriterRefusal : public testing::Test {
 protected:
  void SetUp() override {
    bytes_ = ReadSample("gfx90a_v5");
    Reparse();
  }
  void Reparse() {
    auto object = CodeObject::Parse(bytes_);
    ASSERT_TRUE(object.ok()) << object.status();
    object_ = std::make_unique<CodeObject>(*std::move(object));
  }
  void ExpectRefused(const CodeObjectEdit& edit, absl::StatusCode code, const char* message) {
    const auto result = WriteCodeObject(*object_, edit);
    EXPECT_EQ(result.status().code(), code);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(message));
  }
  // Turns every program header of a type into PT_NULL.
  void Drop(uint32_t type) {
    const auto header = Peek<elf::FileHeader>(bytes_, 0);
    for (size_t i = 0; i < header.phnum; ++i) {
      const uint64_t at = header.phoff + i * sizeof(elf::ProgramHeader);
      if (Peek<uint32_t>(bytes_, at) == type) Poke<uint32_t>(bytes_, at, 0);
    }
    Reparse();
  }
  std::vector<uint8_t> bytes_;
  std::unique_ptr<CodeObject> object_;
};

TEST_F(WriterRefusal, BadEdits) {
  const Kernel& kernel = object_->kernels()[0];
  const Segment& last = object_->segments().back();
  ExpectRefused({.overwrites = {{UINT64_MAX - 1, {1, 2, 3, 4}}}},
                absl::StatusCode::kInvalidArgument, "outside the file-backed image");
  ExpectRefused({.overwrites = {{last.vaddr + last.filesz - 2, {1, 2, 3, 4}}}},
                absl::StatusCode::kInvalidArgument, "outside the file-backed image");
  ExpectRefused({.overwrites = {{kernel.entry_vaddr, {1, 2, 3, 4}}, {kernel.entry_vaddr + 3, {1}}}},
                absl::StatusCode::kInvalidArgument, "overlaps");
  ExpectRefused({.overwrites = {{0, {1}}}}, absl::StatusCode::kInvalidArgument, "the ELF header");
  ExpectRefused(
      {.overwrites = {{kernel.descriptor_vaddr + 4, {1}}}, .kernels = {{0, Unchanged(kernel)}}},
      absl::StatusCode::kInvalidArgument, "overlaps kernel descriptor");
  ExpectRefused({.kernels = {{7, Unchanged(kernel)}}}, absl::StatusCode::kInvalidArgument,
                "kernel index 7");
}

TEST_F(WriterRefusal, RelroServesWhenThereIsNoGnuStack) {
  Drop(elf::kPtGnuStack);
  const CodeObjectEdit edit{.new_segment = {0, 0, 0x80, 0xbf}};
  const auto bytes = WriteCodeObject(*object_, edit);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(LoadAsRocrDoes(*bytes).fits);
  Drop(elf::kPtGnuRelro);
  ExpectRefused(edit, absl::StatusCode::kFailedPrecondition, "to recycle");
  EXPECT_EQ(NewSegmentVaddr(*object_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WriterRefusal, HugeImage) {
  const auto header = Peek<elf::FileHeader>(bytes_, 0);
  const uint64_t at =
      header.phoff + object_->segments().back().phdr_index * sizeof(elf::ProgramHeader);
  Poke<uint64_t>(bytes_, at + 40, uint64_t{1} << 50);  // p_memsz
  Reparse();
  ExpectRefused({.new_segment = {0, 0, 0x80, 0xbf}}, absl::StatusCode::kFailedPrecondition,
                "the image ends at");
}

}  // namespace
}  // namespace rjdbi::patch
