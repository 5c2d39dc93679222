// Gathers the new tables first, so that nothing is changed when one of them
// cannot be made, then writes them.
#include "patch/codeobject/appendix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "patch/codeobject/dwarf_cursor.h"
#include "patch/codeobject/elf_view.h"

namespace rjdbi::patch {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kLocalFunction = 0 << 4 | elf::kSymbolFunc;
constexpr uint8_t kHidden = 2;  // STV_HIDDEN

Bytes Copy(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

uint32_t AddString(Bytes& strings, std::string_view text) {
  if (strings.empty()) strings.push_back(0);
  const auto at = static_cast<uint32_t>(strings.size());
  strings.insert(strings.end(), text.begin(), text.end());
  strings.push_back(0);
  return at;
}

std::optional<absl::Span<const uint8_t>> SectionNames(const ElfView& elf) {
  const uint16_t index = elf.header.shstrndx;
  if (index >= elf.sections.size() || elf.sections[index].type != elf::kShtStrtab) {
    return std::nullopt;
  }
  return elf.SectionBytes(elf.sections[index]);
}

std::string_view NameOf(absl::Span<const uint8_t> names, const elf::SectionHeader& section) {
  bool known = true;
  const std::string_view name = dwarf::StringAt(names, section.name, known);
  return known ? name : std::string_view();
}

class Appender {
 public:
  Appender(Bytes& image, const Appendix& appendix, uint64_t keep)
      : image_(image), appendix_(appendix), keep_(keep) {}

  absl::Status Run() {
    absl::StatusOr<ElfView> elf = ElfView::Open(image_);
    if (!elf.ok()) return elf.status();
    elf_ = *std::move(elf);
    const auto names = SectionNames(elf_);
    if (!names) {
      return absl::FailedPreconditionError(
          absl::StrCat("ELF header: e_shstrndx ", elf_.header.shstrndx, " is not a string table"));
    }
    names_ = Copy(*names);
    for (const Appendix::Section& section : appendix_.sections) AddSection(section);
    if (absl::Status status = AddFunctions(); !status.ok()) return status;
    if (elf_.sections.size() >= elf::kShnLoReserve) {
      return absl::FailedPreconditionError("no section header can be added");
    }
    Write();
    return absl::OkStatus();
  }

 private:
  struct Content {  // of a section, to be written
    size_t section = 0;
    Bytes bytes;
  };

  size_t AddTable(std::string_view name, uint32_t type) {
    elf::SectionHeader section = {};
    section.name = AddString(names_, name);
    section.type = type;
    section.addralign = 1;
    elf_.sections.push_back(section);
    return elf_.sections.size() - 1;
  }

  void AddSection(const Appendix::Section& section) {
    size_t index = 0;
    const auto is_it = [&](const elf::SectionHeader& s) {
      return s.type == elf::kShtProgbits && NameOf(names_, s) == section.name;
    };
    while (index < elf_.sections.size() && !is_it(elf_.sections[index])) ++index;
    if (index == elf_.sections.size()) index = AddTable(section.name, elf::kShtProgbits);
    Bytes bytes;
    if (section.behind) bytes = Copy(elf_.SectionBytes(elf_.sections[index]));
    bytes.insert(bytes.end(), section.bytes.begin(), section.bytes.end());
    contents_.push_back({index, std::move(bytes)});
  }

  size_t FirstOfType(uint32_t type) const {
    size_t i = 0;
    while (i < elf_.sections.size() && elf_.sections[i].type != type) ++i;
    return i;
  }

  absl::StatusOr<uint16_t> CodeSectionOf(const Appendix::Function& function) const {
    for (size_t i = 0; i < elf_.sections.size(); ++i) {
      const elf::SectionHeader& section = elf_.sections[i];
      if ((section.flags & elf::kShfExec) == 0 || function.vaddr < section.addr) continue;
      if (elf::Fits(function.vaddr - section.addr, function.size, section.size)) {
        return static_cast<uint16_t>(i);
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("function ", function.name, " lies in no executable section"));
  }

  // Symbols that the new table begins with, and their strings.
  absl::Status TakeOldSymbols(size_t table, Bytes& symbols, Bytes& strings, size_t& locals) {
    symbols.assign(sizeof(elf::Symbol), 0);
    strings.assign(1, 0);
    locals = 1;
    if (table == elf_.sections.size()) return absl::OkStatus();
    const elf::SectionHeader& old = elf_.sections[table];
    const absl::Span<const uint8_t> entries = elf_.SectionBytes(old);
    const bool sound = old.entsize == sizeof(elf::Symbol) && old.link < elf_.sections.size() &&
                       elf_.sections[old.link].type == elf::kShtStrtab && old.info > 0 &&
                       old.info <= entries.size() / sizeof(elf::Symbol);
    if (!sound) {
      return absl::InvalidArgumentError(absl::StrCat("section header ", table, ": a symbol table",
                                                     " whose fields do not add up"));
    }
    symbols = Copy(entries.first(entries.size() / sizeof(elf::Symbol) * sizeof(elf::Symbol)));
    strings = Copy(elf_.SectionBytes(elf_.sections[old.link]));
    locals = old.info;
    return absl::OkStatus();
  }

  // Local symbols come before the others: what counts symbols from the end of the
  // locals would be misled, so a table that something refers to stays as it is.
  bool ReferredTo(size_t table) const {
    return std::any_of(elf_.sections.begin(), elf_.sections.end(),
                       [&](const elf::SectionHeader& s) { return s.link == table; });
  }

  absl::Status AddFunctions() {
    if (appendix_.functions.empty()) return absl::OkStatus();
    size_t table = FirstOfType(elf::kShtSymtab);
    const bool fresh = table == elf_.sections.size();
    if (!fresh && ReferredTo(table)) return absl::OkStatus();
    Bytes symbols, strings;
    size_t locals = 0;
    absl::Status status =
        TakeOldSymbols(fresh ? FirstOfType(elf::kShtDynsym) : table, symbols, strings, locals);
    if (!status.ok()) return status;
    Bytes added;
    for (const Appendix::Function& function : appendix_.functions) {
      const absl::StatusOr<uint16_t> section = CodeSectionOf(function);
      if (!section.ok()) return section.status();
      const elf::Symbol symbol = {AddString(strings, function.name),
                                  kLocalFunction,
                                  kHidden,
                                  *section,
                                  function.vaddr,
                                  function.size};
      const auto* bytes = reinterpret_cast<const uint8_t*>(&symbol);
      added.insert(added.end(), bytes, bytes + sizeof symbol);
    }
    symbols.insert(symbols.begin() + static_cast<ptrdiff_t>(locals * sizeof(elf::Symbol)),
                   added.begin(), added.end());
    if (fresh) {
      table = AddTable(".symtab", elf::kShtSymtab);
      elf_.sections[table].entsize = sizeof(elf::Symbol);
      elf_.sections[table].addralign = 8;
    }
    // Some linkers keep section names among the symbols' strings.
    size_t string_table = elf_.sections[table].link;
    if (fresh || string_table == elf_.header.shstrndx) {
      string_table = AddTable(".strtab", elf::kShtStrtab);
    }
    elf_.sections[table].link = static_cast<uint32_t>(string_table);
    elf_.sections[table].info = static_cast<uint32_t>(locals + appendix_.functions.size());
    contents_.push_back({table, std::move(symbols)});
    contents_.push_back({string_table, std::move(strings)});
    return absl::OkStatus();
  }

  // Takes away what ends the file and is written anew.
  void Trim(uint64_t offset, uint64_t size) {
    if (offset >= keep_ && offset + size == image_.size()) image_.resize(offset);
  }

  void Put(size_t section, const Bytes& bytes) {
    elf::SectionHeader& header = elf_.sections[section];
    const uint64_t alignment = std::clamp<uint64_t>(header.addralign, 1, 8);
    image_.resize((image_.size() + alignment - 1) / alignment * alignment);
    header.offset = image_.size();
    header.size = bytes.size();
    image_.insert(image_.end(), bytes.begin(), bytes.end());
  }

  void Write() {
    const elf::FileHeader old = elf_.header;
    Trim(old.shoff, old.shnum * sizeof(elf::SectionHeader));
    const elf::SectionHeader& names = elf_.sections[old.shstrndx];
    Trim(names.offset, names.size);
    for (const Content& content : contents_) Put(content.section, content.bytes);
    Put(old.shstrndx, names_);
    image_.resize((image_.size() + 7) / 8 * 8);
    elf_.header.shoff = image_.size();
    elf_.header.shnum = static_cast<uint16_t>(elf_.sections.size());
    const auto* headers = reinterpret_cast<const uint8_t*>(elf_.sections.data());
    image_.insert(image_.end(), headers,
                  headers + elf_.sections.size() * sizeof(elf::SectionHeader));
    std::memcpy(image_.data(), &elf_.header, sizeof elf_.header);
  }

  Bytes& image_;
  const Appendix& appendix_;
  const uint64_t keep_;
  ElfView elf_;
  Bytes names_;
  std::vector<Content> contents_;
};

}  // namespace

absl::Status Append(std::vector<uint8_t>& image, const Appendix& appendix, uint64_t keep) {
  return Appender(image, appendix, keep).Run();
}

std::optional<absl::Span<const uint8_t>> FindSection(absl::Span<const uint8_t> image,
                                                     std::string_view name) {
  const absl::StatusOr<ElfView> elf = ElfView::Open(image);
  if (!elf.ok()) return std::nullopt;
  const auto names = SectionNames(*elf);
  if (!names) return std::nullopt;
  for (const elf::SectionHeader& section : elf->sections) {
    if (section.type == elf::kShtProgbits && NameOf(*names, section) == name) {
      return elf->SectionBytes(section);
    }
  }
  return std::nullopt;
}

}  // namespace rjdbi::patch
