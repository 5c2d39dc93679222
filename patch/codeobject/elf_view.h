// Checked access to the headers of one ELF64 file, and to its metadata note.
// Private to patch/codeobject: shared by the reader and the writer.
#ifndef PATCH_CODEOBJECT_ELF_VIEW_H_
#define PATCH_CODEOBJECT_ELF_VIEW_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/elf_format.h"

namespace rjdbi::patch {

// Headers by value; every file range in them has been checked.
struct ElfView {
  absl::Span<const uint8_t> bytes;
  elf::FileHeader header = {};
  std::vector<elf::ProgramHeader> programs;
  std::vector<elf::SectionHeader> sections;

  // INVALID_ARGUMENT as CodeObject::Parse. `relocatable_too`: what a compiler
  // leaves for a linker (ET_REL) is accepted as well, which has no segments.
  static absl::StatusOr<ElfView> Open(absl::Span<const uint8_t> bytes,
                                      bool relocatable_too = false);

  absl::Span<const uint8_t> SectionBytes(const elf::SectionHeader& section) const {
    return section.type == elf::kShtNobits ? absl::Span<const uint8_t>()
                                           : bytes.subspan(section.offset, section.size);
  }
};

// File range of the metadata note's content, without the note header.
struct NoteLocation {
  uint64_t note_offset = 0;  // of the note header
  uint64_t desc_offset = 0, desc_size = 0;
  size_t program = 0;  // index of the PT_NOTE
};

// nullopt: no such note. INVALID_ARGUMENT: a note runs over its segment.
absl::StatusOr<std::optional<NoteLocation>> FindMetadataNote(const ElfView& elf);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_ELF_VIEW_H_
