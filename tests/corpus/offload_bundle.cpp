// Format: clang "Offload Bundler" documentation, "Bundled Binary File Layout".
#include "tests/corpus/offload_bundle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/elf_format.h"

namespace rjdbi::test {
namespace {

namespace elf = rjdbi::patch::elf;

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kSection = ".hip_fatbin";

struct BundleEntry {
  uint64_t offset, size, id_size;
};

absl::StatusOr<absl::Span<const uint8_t>> FatBinarySection(absl::Span<const uint8_t> file) {
  const absl::Status bad = absl::InvalidArgumentError("not a readable ELF64 library");
  if (file.size() < sizeof(elf::FileHeader)) return bad;
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
  return absl::NotFoundError("no .hip_fatbin section");
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

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(path);
  struct stat info = {};
  void* data = MAP_FAILED;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  }
  close(fd);
  if (data == MAP_FAILED) return absl::InternalError("cannot map " + path);
  return MappedFile(static_cast<const uint8_t*>(data), static_cast<size_t>(info.st_size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::vector<BundledObject>> ExtractBundles(absl::Span<const uint8_t> library) {
  absl::StatusOr<absl::Span<const uint8_t>> section = FatBinarySection(library);
  if (!section.ok()) return section.status();
  const std::string_view text(reinterpret_cast<const char*>(section->data()), section->size());
  std::vector<BundledObject> out;
  size_t number = 0;
  for (size_t at = text.find(kMagic); at != std::string_view::npos; at = text.find(kMagic, at)) {
    absl::StatusOr<uint64_t> end = ReadBundle(*section, at, number++, out);
    if (!end.ok()) return end.status();
    at = *end;
  }
  return out;
}

}  // namespace rjdbi::test
