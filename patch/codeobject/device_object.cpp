// Sections, symbols, relocations, in this order.
#include "patch/codeobject/device_object.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/elf_format.h"
#include "patch/codeobject/elf_view.h"
#include "patch/codeobject/read_target.h"

namespace rjdbi::patch {
namespace {

constexpr std::string_view kBundleMagic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kBitcodeMagic = "BC\xc0\xde";
constexpr uint64_t kMaxNameLength = 1024;
constexpr uint64_t kMaxRelocations = 65536;

bool StartsWith(absl::Span<const uint8_t> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

class DeviceObjectParser {
 public:
  explicit DeviceObjectParser(ElfView elf) : elf_(std::move(elf)) {}

  absl::StatusOr<DeviceObject> Run() {
    absl::StatusOr<TargetId> target = ReadTarget(elf_.header);
    if (!target.ok()) return target.status();
    out_.target_ = *std::move(target);
    for (size_t i = 0; i < elf_.sections.size(); ++i) {
      if (elf_.sections[i].type != elf::kShtSymtab) continue;
      if (absl::Status status = ReadSymbols(i); !status.ok()) return status;
    }
    for (size_t i = 0; i < elf_.sections.size(); ++i) {
      if (absl::Status status = ReadRelocations(i); !status.ok()) return status;
    }
    for (Found& found : found_) {
      std::sort(found.function.relocations.begin(), found.function.relocations.end());
      out_.functions_.push_back(std::move(found.function));
    }
    std::sort(out_.functions_.begin(), out_.functions_.end(),
              [](const DeviceFunction& a, const DeviceFunction& b) { return a.name < b.name; });
    return std::move(out_);
  }

 private:
  struct Found {
    DeviceFunction function;
    size_t section = 0;
    uint64_t begin = 0;  // within the section
  };

  bool Relocatable() const { return elf_.header.type == elf::kTypeRelocatable; }

  static bool IsCode(const elf::SectionHeader& section) {
    return section.type == elf::kShtProgbits && (section.flags & elf::kShfExec) != 0;
  }

  absl::StatusOr<std::string> ReadName(absl::Span<const uint8_t> strings, uint32_t offset,
                                       const std::string& where) const {
    if (offset >= strings.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": st_name ", offset, " exceeds the string table size ", strings.size()));
    }
    const uint8_t* begin = strings.data() + offset;
    const uint64_t limit = std::min<uint64_t>(strings.size() - offset, kMaxNameLength);
    const void* end = std::memchr(begin, 0, limit);
    if (end == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": the name at ", offset, " has no end within ", limit, " bytes"));
    }
    return std::string(reinterpret_cast<const char*>(begin),
                       static_cast<size_t>(static_cast<const uint8_t*>(end) - begin));
  }

  absl::Status ReadSymbols(size_t index) {
    const elf::SectionHeader& table = elf_.sections[index];
    const std::string where = absl::StrCat("section header ", index);
    if (table.entsize != sizeof(elf::Symbol)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": sh_entsize is ", table.entsize, ", must be 24"));
    }
    if (table.link >= elf_.sections.size() || elf_.sections[table.link].type != elf::kShtStrtab) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": sh_link ", table.link, " is not a string table"));
    }
    const absl::Span<const uint8_t> strings = elf_.SectionBytes(elf_.sections[table.link]);
    const absl::Span<const uint8_t> entries = elf_.SectionBytes(table);
    for (size_t i = 0; i < entries.size() / sizeof(elf::Symbol); ++i) {
      const auto symbol = elf::Load<elf::Symbol>(entries.data() + i * sizeof(elf::Symbol));
      if ((symbol.info & 0xf) != elf::kSymbolFunc || symbol.size == 0) continue;
      if (symbol.shndx == elf::kShnUndef || symbol.shndx >= elf_.sections.size()) continue;
      if (!IsCode(elf_.sections[symbol.shndx])) continue;
      absl::Status status = AddFunction(symbol, strings, absl::StrCat(where, ", symbol ", i));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AddFunction(const elf::Symbol& symbol, absl::Span<const uint8_t> strings,
                           const std::string& where) {
    if (found_.size() >= DeviceObject::kMaxFunctions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", DeviceObject::kMaxFunctions, " functions"));
    }
    const elf::SectionHeader& section = elf_.sections[symbol.shndx];
    const uint64_t base = Relocatable() ? 0 : section.addr;
    if (symbol.value < base || !elf::Fits(symbol.value - base, symbol.size, section.size)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": st_value 0x", absl::Hex(symbol.value), " and st_size 0x",
                       absl::Hex(symbol.size), " exceed section ", symbol.shndx, " of 0x",
                       absl::Hex(section.size), " bytes"));
    }
    absl::StatusOr<std::string> name = ReadName(strings, symbol.name, where);
    if (!name.ok()) return name.status();
    for (const Found& other : found_) {
      if (other.function.name == *name) {
        return absl::InvalidArgumentError(absl::StrCat(where, ": a second function ", *name));
      }
    }
    Found found;
    found.function.name = *std::move(name);
    found.section = symbol.shndx;
    found.begin = symbol.value - base;
    found.function.code = elf_.SectionBytes(section).subspan(found.begin, symbol.size);
    found_.push_back(std::move(found));
    return absl::OkStatus();
  }

  // A section that the table relocates: named by it in a relocatable object, any
  // by address in a linked one.
  absl::Status ReadRelocations(size_t index) {
    const elf::SectionHeader& table = elf_.sections[index];
    const std::string where = absl::StrCat("section header ", index);
    uint64_t entry = 0;
    if (table.type == elf::kShtRela) entry = 24;
    if (table.type == elf::kShtRel) entry = 16;
    if (entry == 0) return absl::OkStatus();
    if (table.entsize != entry) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": sh_entsize is ", table.entsize, ", must be ", entry));
    }
    const absl::Span<const uint8_t> entries = elf_.SectionBytes(table);
    if (entries.size() / entry > kMaxRelocations) {
      return absl::ResourceExhaustedError(
          absl::StrCat(where, ": more than ", kMaxRelocations, " relocations"));
    }
    for (size_t i = 0; i < entries.size() / entry; ++i) {
      const uint64_t place = elf::Load<elf::Relocation>(entries.data() + i * entry).offset;
      Note(Relocatable() ? std::optional<size_t>(table.info) : std::nullopt, place);
    }
    return absl::OkStatus();
  }

  // Relocations are up to eight bytes wide: one just before a function counts.
  void Note(std::optional<size_t> section, uint64_t place) {
    constexpr uint64_t kWidest = 8;
    for (Found& found : found_) {
      if (section && *section != found.section) continue;
      const uint64_t base = section ? 0 : elf_.sections[found.section].addr;
      const uint64_t begin = base + found.begin, size = found.function.code.size();
      if (place >= begin + size || place + kWidest <= begin) continue;
      found.function.relocations.push_back(place - std::min(place, begin));
    }
  }

  ElfView elf_;
  std::vector<Found> found_;
  DeviceObject out_;
};

absl::StatusOr<DeviceObject> DeviceObject::Parse(absl::Span<const uint8_t> bytes) {
  if (bytes.size() > kMaxSize) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the object has ", bytes.size(), " bytes, at most ", kMaxSize, " are read"));
  }
  if (StartsWith(bytes, kBundleMagic)) {
    return absl::InvalidArgumentError(
        "an offload bundle, not an object: compile with --no-gpu-bundle-output for one processor");
  }
  if (StartsWith(bytes, kBitcodeMagic)) {
    return absl::InvalidArgumentError("LLVM bitcode, not machine code: compile without -fgpu-rdc");
  }
  absl::StatusOr<ElfView> elf = ElfView::Open(bytes, /*relocatable_too=*/true);
  if (!elf.ok()) return elf.status();
  return DeviceObjectParser(*std::move(elf)).Run();
}

const DeviceFunction* DeviceObject::Find(std::string_view name) const {
  for (const DeviceFunction& function : functions_) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace rjdbi::patch
