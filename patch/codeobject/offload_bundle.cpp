// Every offset is checked against what is there.
#include "patch/codeobject/offload_bundle.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/elf_format.h"

namespace rjdbi::patch {
namespace {

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kCompressedMagic = "CCOB";
constexpr std::string_view kSection = ".hip_fatbin";

struct BundleEntry {
  uint64_t offset, size, id_size;
};

std::string_view Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<absl::Span<const uint8_t>> FatBinarySection(absl::Span<const uint8_t> file) {
  const absl::Status bad = absl::InvalidArgumentError("not a readable ELF64 library");
  if (Text(file).substr(0, kCompressedMagic.size()) == kCompressedMagic) return file;
  if (file.size() < sizeof(elf::FileHeader) || Text(file).substr(0, 4) != "\177ELF") return bad;
  const auto header = elf::Load<elf::FileHeader>(file.data());
  const uint64_t table_size = uint64_t{header.shnum} * sizeof(elf::SectionHeader);
  if (!elf::Fits(header.shoff, table_size, file.size()) || header.shstrndx >= header.shnum) {
    return bad;
  }
  auto section = [&](size_t index) {
    return elf::Load<elf::SectionHeader>(file.data() + header.shoff +
                                         index * sizeof(elf::SectionHeader));
  };
  const elf::SectionHeader names = section(header.shstrndx);
  for (size_t i = 0; i < header.shnum; ++i) {
    const elf::SectionHeader candidate = section(i);
    const uint64_t name = names.offset + candidate.name;
    if (!elf::Fits(name, kSection.size() + 1, file.size())) continue;
    if (std::memcmp(file.data() + name, kSection.data(), kSection.size() + 1) != 0) continue;
    if (!elf::Fits(candidate.offset, candidate.size, file.size())) return bad;
    return file.subspan(candidate.offset, candidate.size);
  }
  return absl::NotFoundError("no .hip_fatbin section, so no code objects in it");
}

// Adds one bundle's device objects; returns where the bundle ends.
absl::StatusOr<uint64_t> ReadBundle(absl::Span<const uint8_t> section, uint64_t begin,
                                    size_t number, std::vector<BundledObject>& out) {
  const absl::Status bad =
      absl::InvalidArgumentError(absl::StrCat("bundle ", number, ": leaves its section"));
  uint64_t at = begin + kMagic.size();
  if (!elf::Fits(at, sizeof(uint64_t), section.size())) return bad;
  const auto count = elf::Load<uint64_t>(section.data() + at);
  at += sizeof(uint64_t);
  uint64_t end = at;
  for (uint64_t i = 0; i < count; ++i) {
    if (!elf::Fits(at, sizeof(BundleEntry), section.size())) return bad;
    const auto entry = elf::Load<BundleEntry>(section.data() + at);
    at += sizeof(BundleEntry);
    if (!elf::Fits(at, entry.id_size, section.size())) return bad;
    std::string id(reinterpret_cast<const char*>(section.data()) + at, entry.id_size);
    at += entry.id_size;
    if (!elf::Fits(entry.offset, entry.size, section.size() - begin)) return bad;
    end = std::max({end, at, begin + entry.offset + entry.size});
    if (entry.size == 0 || id.find("amdgcn") == std::string::npos) continue;
    out.push_back({std::move(id), section.subspan(begin + entry.offset, entry.size), number});
  }
  return end;
}

}  // namespace

absl::StatusOr<std::vector<BundledObject>> ExtractBundles(absl::Span<const uint8_t> file) {
  const bool bundle = Text(file).substr(0, kMagic.size()) == kMagic;
  absl::StatusOr<absl::Span<const uint8_t>> section = file;
  if (!bundle) section = FatBinarySection(file);
  if (!section.ok()) return section.status();
  const std::string_view text = Text(*section);
  if (text.substr(0, kCompressedMagic.size()) == kCompressedMagic) {
    return absl::UnimplementedError("the bundle is compressed");
  }
  std::vector<BundledObject> out;
  size_t number = 0;
  for (size_t at = text.find(kMagic); at != std::string_view::npos; at = text.find(kMagic, at)) {
    absl::StatusOr<uint64_t> end = ReadBundle(*section, at, number++, out);
    if (!end.ok()) return end.status();
    at = *end;
  }
  if (out.empty() && number == 0) return absl::NotFoundError("no offload bundle in it");
  return out;
}

}  // namespace rjdbi::patch
