// Header checks of the reader: nothing behind a header is touched before its
// range is known to lie in the file.
#include "patch/codeobject/elf_view.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

absl::Status Bad(const std::string& where, const char* field, uint64_t value,
                 const std::string& limit) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", field, " is ", value, " (0x", absl::Hex(value), "), ", limit));
}

absl::Status CheckRange(const std::string& where, const char* field, uint64_t offset, uint64_t size,
                        uint64_t file_size) {
  if (elf::Fits(offset, size, file_size)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", field, " 0x", absl::Hex(offset),
                                                 " and size 0x", absl::Hex(size),
                                                 " exceed the file size 0x", absl::Hex(file_size)));
}

struct IdentRule {
  uint8_t index, value;
  const char* field;
};
constexpr IdentRule kIdentRules[] = {
    {0, 0x7f, "e_ident[0]"},
    {1, 'E', "e_ident[1]"},
    {2, 'L', "e_ident[2]"},
    {3, 'F', "e_ident[3]"},
    {elf::kIdentClass, elf::kClass64, "EI_CLASS"},
    {elf::kIdentData, elf::kDataLittle, "EI_DATA"},
    {elf::kIdentVersion, 1, "EI_VERSION"},
    {elf::kIdentOsAbi, elf::kOsAbiHsa, "EI_OSABI"},
};

absl::Status CheckFileHeader(const elf::FileHeader& header, bool relocatable) {
  const std::string where = "ELF header";
  for (const IdentRule& rule : kIdentRules) {
    if (header.ident[rule.index] == rule.value) continue;
    return Bad(where, rule.field, header.ident[rule.index], absl::StrCat("must be ", rule.value));
  }
  struct Rule {
    const char* field;
    uint64_t value, wanted;
  };
  const Rule rules[] = {
      {"e_machine", header.machine, elf::kMachineAmdgpu},
      {"e_type", header.type, relocatable ? elf::kTypeRelocatable : elf::kTypeShared},
      {"e_phentsize", relocatable ? sizeof(elf::ProgramHeader) : header.phentsize,
       sizeof(elf::ProgramHeader)},
      {"e_shentsize", header.shentsize, sizeof(elf::SectionHeader)},
  };
  for (const Rule& rule : rules) {
    if (rule.value != rule.wanted) {
      return Bad(where, rule.field, rule.value, absl::StrCat("must be ", rule.wanted));
    }
  }
  // The values that announce extended numbering are refused with the rest.
  if (!relocatable && (header.phnum == 0 || header.phnum == 0xffff)) {
    return Bad(where, "e_phnum", header.phnum, "must be 1 to 65534");
  }
  if (header.shnum == 0 || header.shnum >= elf::kShnLoReserve) {
    return Bad(where, "e_shnum", header.shnum, "must be 1 to 65279");
  }
  return absl::OkStatus();
}

absl::Status ReadPrograms(ElfView& elf) {
  for (size_t i = 0; i < elf.header.phnum; ++i) {
    const auto program = elf::Load<elf::ProgramHeader>(elf.bytes.data() + elf.header.phoff +
                                                       i * sizeof(elf::ProgramHeader));
    const std::string where = absl::StrCat("program header ", i);
    absl::Status status =
        CheckRange(where, "p_offset", program.offset, program.filesz, elf.bytes.size());
    if (!status.ok()) return status;
    if (program.type == elf::kPtLoad) {
      if (program.filesz > program.memsz) {
        return Bad(where, "p_filesz", program.filesz,
                   absl::StrCat("above p_memsz 0x", absl::Hex(program.memsz)));
      }
      if (program.memsz > UINT64_MAX - program.vaddr) {
        return Bad(where, "p_vaddr", program.vaddr,
                   absl::StrCat("wraps with p_memsz 0x", absl::Hex(program.memsz)));
      }
    }
    elf.programs.push_back(program);
  }
  return absl::OkStatus();
}

absl::Status ReadSections(ElfView& elf) {
  for (size_t i = 0; i < elf.header.shnum; ++i) {
    const auto section = elf::Load<elf::SectionHeader>(elf.bytes.data() + elf.header.shoff +
                                                       i * sizeof(elf::SectionHeader));
    const bool in_file = section.type != elf::kShtNobits && section.type != 0;
    if (in_file) {
      absl::Status status = CheckRange(absl::StrCat("section header ", i), "sh_offset",
                                       section.offset, section.size, elf.bytes.size());
      if (!status.ok()) return status;
    }
    elf.sections.push_back(section);
  }
  return absl::OkStatus();
}

uint64_t Align4(uint64_t value) { return (value + 3) & ~uint64_t{3}; }

// Scans one PT_NOTE. Notes are 4-byte aligned (AMDGPUUsage "Note Records").
absl::Status ScanNotes(const ElfView& elf, size_t index, std::optional<NoteLocation>& found) {
  const elf::ProgramHeader& program = elf.programs[index];
  const uint64_t end = program.offset + program.filesz;
  uint64_t at = program.offset;
  while (!found && end - at >= sizeof(elf::NoteHeader)) {
    const auto note = elf::Load<elf::NoteHeader>(elf.bytes.data() + at);
    const uint64_t name = at + sizeof(elf::NoteHeader);
    const uint64_t desc = name + Align4(note.namesz);
    if (desc > end || note.descsz > end - desc) {
      return absl::InvalidArgumentError(absl::StrCat(
          "note at 0x", absl::Hex(at), ": n_namesz ", note.namesz, " and n_descsz ", note.descsz,
          " exceed program header ", index, " ending at 0x", absl::Hex(end)));
    }
    const std::string_view owner(reinterpret_cast<const char*>(elf.bytes.data()) + name,
                                 note.namesz);
    if (note.type == elf::kNoteMetadata && owner == std::string_view("AMDGPU\0", 7)) {
      found = NoteLocation{at, desc, note.descsz, index};
    }
    const uint64_t next = desc + Align4(note.descsz);
    if (next >= end) break;
    at = next;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ElfView> ElfView::Open(absl::Span<const uint8_t> bytes, bool relocatable_too) {
  ElfView elf;
  elf.bytes = bytes;
  if (bytes.size() < sizeof(elf::FileHeader)) {
    return Bad("ELF header", "file size", bytes.size(), "at least 64 needed");
  }
  elf.header = elf::Load<elf::FileHeader>(bytes.data());
  const bool relocatable = relocatable_too && elf.header.type == elf::kTypeRelocatable;
  absl::Status status = CheckFileHeader(elf.header, relocatable);
  if (!status.ok()) return status;
  if (relocatable) elf.header.phnum = 0;
  const uint64_t programs_size = uint64_t{elf.header.phnum} * sizeof(elf::ProgramHeader);
  const uint64_t sections_size = uint64_t{elf.header.shnum} * sizeof(elf::SectionHeader);
  status = CheckRange("ELF header", "e_phoff", elf.header.phoff, programs_size, bytes.size());
  if (!status.ok()) return status;
  status = CheckRange("ELF header", "e_shoff", elf.header.shoff, sections_size, bytes.size());
  if (!status.ok()) return status;
  status = ReadPrograms(elf);
  if (status.ok()) status = ReadSections(elf);
  if (!status.ok()) return status;
  return elf;
}

absl::StatusOr<std::optional<NoteLocation>> FindMetadataNote(const ElfView& elf) {
  std::optional<NoteLocation> found;
  for (size_t i = 0; i < elf.programs.size() && !found; ++i) {
    if (elf.programs[i].type != elf::kPtNote) continue;
    absl::Status status = ScanNotes(elf, i, found);
    if (!status.ok()) return status;
  }
  return found;
}

}  // namespace rjdbi::patch
