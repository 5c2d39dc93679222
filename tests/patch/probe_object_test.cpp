// Reading device objects: what compilers make, and what hostile files hold.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "patch/codeobject/device_object.h"
#include "patch/codeobject/elf_format.h"
#include "tests/patch/probe_samples.h"

namespace rjdbi {
namespace {

using patch::DeviceObject;
using test::ReadProbeObject;
namespace elf = patch::elf;

TEST(DeviceObject, ReadsWhatCompilersMake) {
  for (const char* name : test::kProbeObjects) {
    SCOPED_TRACE(name);
    const std::vector<uint8_t> bytes = ReadProbeObject(name);
    const auto object = DeviceObject::Parse(bytes);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->target().processor, std::string(name).substr(0, std::string(name).find('.')));
    ASSERT_EQ(object->functions().size(), 2u);
    EXPECT_EQ(object->functions()[0].name, "misaligned");
    EXPECT_EQ(object->functions()[1].name, "word_histogram");
    for (const auto& function : object->functions()) {
      EXPECT_TRUE(function.relocations.empty());
      EXPECT_GT(function.code.size(), 16u);
      // Exactly the function: its last word is the return.
      uint32_t last = 0;
      std::memcpy(&last, function.code.data() + function.code.size() - 4, 4);
      EXPECT_EQ(last & 0xff8000ff, 0xbe80001e) << std::hex << last;  // s_setpc_b64 s[30:31]
    }
    EXPECT_EQ(object->Find("word_histogram"), &object->functions()[1]);
    EXPECT_EQ(object->Find("word"), nullptr);
  }
}

TEST(DeviceObject, SaysWhatToAskTheCompilerFor) {
  const std::string bundle = "__CLANG_OFFLOAD_BUNDLE__ and more";
  auto parsed = DeviceObject::Parse(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bundle.data()), bundle.size()));
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("--no-gpu-bundle-output"), absl::string_view::npos);
  const std::string bitcode = "BC\xc0\xde....";
  parsed = DeviceObject::Parse(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bitcode.data()), bitcode.size()));
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("-fgpu-rdc"), absl::string_view::npos);
}

TEST(DeviceObject, FindsRelocationsInRelocatableObjects) {
  // A relocation section of one entry, in the place of .note's header: the text
  // section is the third.
  std::vector<uint8_t> bytes = ReadProbeObject("gfx90a.cl.19");
  auto header = elf::Load<elf::FileHeader>(bytes.data());
  ASSERT_EQ(header.type, elf::kTypeRelocatable);
  const auto parsed = DeviceObject::Parse(bytes);
  ASSERT_TRUE(parsed.ok());
  const uint64_t place = static_cast<uint64_t>(parsed->functions()[1].code.data() -
                                               parsed->functions()[0].code.data());
  size_t text = 0;
  for (size_t i = 0; i < header.shnum; ++i) {
    const uint64_t at = header.shoff + i * sizeof(elf::SectionHeader);
    auto section = elf::Load<elf::SectionHeader>(bytes.data() + at);
    if (section.flags & elf::kShfExec) text = i;
    if (section.type != elf::kShtNote || text == 0) continue;
    const uint64_t entry[3] = {place + 8, 0, 0};
    section.type = elf::kShtRela;
    section.entsize = section.size = sizeof entry;
    section.offset = bytes.size();
    section.info = static_cast<uint32_t>(text);
    std::memcpy(bytes.data() + at, &section, sizeof section);
    const auto* raw = reinterpret_cast<const uint8_t*>(entry);
    bytes.insert(bytes.end(), raw, raw + sizeof entry);
    break;
  }
  const auto again = DeviceObject::Parse(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->functions()[0].relocations.empty());
  EXPECT_EQ(again->functions()[1].relocations, std::vector<uint64_t>{8});
  // The reader of bodies refuses it.
  const auto isa = test::MakeIsa("gfx90a");
  const auto body = patch::ReadBody(again->functions()[1], *isa);
  ASSERT_EQ(body.refusals.size(), 1u);
  EXPECT_EQ(body.refusals[0].rule, patch::BodyRule::kRelocation);
  EXPECT_EQ(body.refusals[0].offset, 8u);
}

// Whatever is in the file, spans stay inside it.
void Exercise(const std::vector<uint8_t>& bytes, int* parsed) {
  const auto object = DeviceObject::Parse(bytes);
  if (!object.ok()) {
    ASSERT_FALSE(object.status().message().empty());
    return;
  }
  ++*parsed;
  for (const auto& function : object->functions()) {
    ASSERT_GE(function.code.data(), bytes.data());
    ASSERT_LE(function.code.data() + function.code.size(), bytes.data() + bytes.size());
  }
}

TEST(DeviceObject, HostileFiles) {
  for (const char* name : {"gfx90a.cl.19", "gfx1030.hip.19"}) {
    const std::vector<uint8_t> bytes = ReadProbeObject(name);
    int parsed = 0;
    for (size_t size = 0; size < bytes.size(); size += 13) {
      Exercise({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, &parsed);
    }
    EXPECT_EQ(parsed, 0);  // section headers are at the end
    std::mt19937 random(7);
    const auto header = elf::Load<elf::FileHeader>(bytes.data());
    for (int round = 0; round < 4000; ++round) {
      std::vector<uint8_t> changed = bytes;
      const bool in_sections = round % 2 == 0;
      for (unsigned n = 1 + random() % 4; n > 0; --n) {
        const uint64_t at =
            in_sections ? header.shoff + random() % (header.shnum * 64u) : random() % bytes.size();
        changed[at] = static_cast<uint8_t>(random() % 3 == 0 ? 0xff : random());
      }
      Exercise(changed, &parsed);
    }
    EXPECT_GT(parsed, 100);  // many changes do no harm
  }
  std::vector<uint8_t> large(DeviceObject::kMaxSize + 1);
  EXPECT_EQ(DeviceObject::Parse(large).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace rjdbi
