// The writer: copies the file, patches it, and appends what is new. Nothing
// that was there moves, so no address or file offset has to be recomputed.
#include "patch/codeobject/code_object_writer.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/elf_format.h"
#include "patch/codeobject/elf_view.h"
#include "patch/codeobject/metadata.h"

namespace rjdbi::patch {
namespace {

constexpr uint64_t kPage = 4096;
constexpr char kSectionName[] = ".rjdbi.text";
constexpr uint64_t kCodeAlignment = 256;
// The loader allocates and shadows the whole image: a larger one cannot load.
constexpr uint64_t kMaxImage = uint64_t{4} << 30;

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The program header to turn into a PT_LOAD. The loader takes the image size
// from the last PT_LOAD in the table: only an entry behind all of them will do.
// The kinds are ones that it ignores, in order of preference.
absl::StatusOr<size_t> RecyclableProgram(const ElfView& elf) {
  size_t after_loads = 0;
  for (size_t i = 0; i < elf.programs.size(); ++i) {
    if (elf.programs[i].type == elf::kPtLoad) after_loads = i + 1;
  }
  for (uint32_t type : {uint32_t{elf::kPtGnuStack}, uint32_t{elf::kPtGnuRelro}}) {
    for (size_t i = elf.programs.size(); i-- > after_loads;) {
      if (elf.programs[i].type == type) return i;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no GNU_STACK or GNU_RELRO program header behind the last PT_LOAD (index ",
                   after_loads - 1, ") of ", elf.programs.size(), " to recycle"));
}

absl::StatusOr<uint64_t> VaddrAboveEverything(const ElfView& elf) {
  uint64_t end = 0;
  for (const elf::ProgramHeader& program : elf.programs) {
    if (program.type == elf::kPtLoad) end = std::max(end, program.vaddr + program.memsz);
  }
  if (end > kMaxImage) {
    return absl::FailedPreconditionError(
        absl::StrCat("the image ends at 0x", absl::Hex(end), ", limit 0x", absl::Hex(kMaxImage)));
  }
  return AlignUp(end, kPage);
}

// One file range that is to be changed, or that no edit may touch: headers and
// symbols, which a segment's file range can cover.
struct FileRange {
  uint64_t begin = 0, end = 0;
  std::string what;
  bool guard = false;
};

class Writer {
 public:
  Writer(const CodeObject& object, const CodeObjectEdit& edit) : object_(object), edit_(edit) {}

  absl::StatusOr<std::vector<uint8_t>> Run();

 private:
  absl::Status Open();
  absl::Status PatchBytes();
  absl::Status PatchDescriptors();
  absl::Status PatchNote();
  absl::Status CheckDisjoint();
  absl::Status AppendSegment();
  void MoveNotes(const NoteLocation& where, const std::vector<uint8_t>& note);
  void RetargetNoteSections(const NoteLocation& where, uint64_t old_offset, uint64_t old_size,
                            uint64_t new_offset, uint64_t growth);
  absl::Status AppendSectionName(uint32_t& name);
  void FlushHeaders();
  std::vector<NumberEdit> NumberEdits(const std::vector<NoteKernel>& described) const;

  void Guard(uint64_t begin, uint64_t size, std::string what) {
    if (size > 0) ranges_.push_back({begin, begin + size, std::move(what), true});
  }
  uint64_t Append(const uint8_t* bytes, uint64_t size, uint64_t alignment) {
    out_.resize(AlignUp(out_.size(), alignment));
    const uint64_t offset = out_.size();
    out_.insert(out_.end(), bytes, bytes + size);
    return offset;
  }

  const CodeObject& object_;
  const CodeObjectEdit& edit_;
  ElfView elf_;
  std::vector<uint8_t> out_;
  std::vector<FileRange> ranges_;
  bool sections_moved_ = false;
};

absl::Status Writer::Open() {
  absl::StatusOr<ElfView> elf = ElfView::Open(object_.bytes());
  if (!elf.ok()) return elf.status();
  elf_ = *std::move(elf);
  // With room for what comes behind, and for what callers put behind that: growing
  // would hold the image twice.
  out_.reserve(object_.bytes().size() + object_.bytes().size() / 4 +
               edit_.new_segment.size() * 3 / 2 + (size_t{1} << 16));
  out_.assign(object_.bytes().begin(), object_.bytes().end());
  const elf::FileHeader& header = elf_.header;
  Guard(0, sizeof(elf::FileHeader), "the ELF header");
  Guard(header.phoff, header.phnum * sizeof(elf::ProgramHeader), "the program headers");
  Guard(header.shoff, header.shnum * sizeof(elf::SectionHeader), "the section headers");
  for (size_t i = 0; i < elf_.sections.size(); ++i) {
    const elf::SectionHeader& section = elf_.sections[i];
    const bool symbolic = section.type == elf::kShtSymtab || section.type == elf::kShtDynsym ||
                          section.type == elf::kShtStrtab;
    if (symbolic) Guard(section.offset, section.size, absl::StrCat("section ", i));
  }
  return absl::OkStatus();
}

absl::Status Writer::PatchBytes() {
  for (const CodeObjectEdit::Bytes& bytes : edit_.overwrites) {
    if (bytes.bytes.empty()) continue;
    if (object_.AtVaddr(bytes.vaddr, bytes.bytes.size()).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("overwrite of ", bytes.bytes.size(),
                                                     " bytes at 0x", absl::Hex(bytes.vaddr),
                                                     " lies outside the file-backed image"));
    }
    const uint64_t offset = *object_.VaddrToOffset(bytes.vaddr);
    std::copy(bytes.bytes.begin(), bytes.bytes.end(), out_.begin() + offset);
    ranges_.push_back({offset, offset + bytes.bytes.size(),
                       absl::StrCat("overwrite at 0x", absl::Hex(bytes.vaddr))});
  }
  return absl::OkStatus();
}

absl::Status Writer::PatchDescriptors() {
  for (const auto& [index, change] : edit_.kernels) {
    if (index >= object_.kernels().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel index ", index, ", the object has ", object_.kernels().size()));
    }
    const Kernel& kernel = object_.kernels()[index];
    const uint64_t offset = *object_.VaddrToOffset(kernel.descriptor_vaddr);
    change.descriptor.Write(out_.data() + offset);
    ranges_.push_back({offset, offset + 64, "kernel descriptor " + kernel.name});
  }
  return absl::OkStatus();
}

// What the note has to say differently. Sizes follow the descriptor when the
// edit does not name them.
std::vector<NumberEdit> Writer::NumberEdits(const std::vector<NoteKernel>& described) const {
  std::unordered_map<std::string, size_t> by_symbol;
  for (size_t i = 0; i < described.size(); ++i) by_symbol[described[i].metadata.symbol] = i;
  std::vector<NumberEdit> edits;
  for (const auto& [index, change] : edit_.kernels) {
    const Kernel& kernel = object_.kernels()[index];
    const auto at = by_symbol.find(kernel.name + ".kd");
    if (at == by_symbol.end()) continue;
    auto agree = [](const std::optional<uint32_t>& given, uint32_t before, uint32_t after) {
      return given || before == after ? given : std::optional<uint32_t>(after);
    };
    const std::pair<MetadataNumber, std::optional<uint32_t>> numbers[] = {
        {MetadataNumber::kSgprCount, change.sgpr_count},
        {MetadataNumber::kVgprCount, change.vgpr_count},
        {MetadataNumber::kAgprCount, change.agpr_count},
        {MetadataNumber::kPrivateSegmentFixedSize,
         agree(change.private_segment_fixed_size, kernel.descriptor.private_segment_fixed_size,
               change.descriptor.private_segment_fixed_size)},
        {MetadataNumber::kGroupSegmentFixedSize,
         agree(change.group_segment_fixed_size, kernel.descriptor.group_segment_fixed_size,
               change.descriptor.group_segment_fixed_size)},
    };
    for (const auto& [number, value] : numbers) {
      if (value) edits.push_back({at->second, number, *value});
    }
  }
  return edits;
}

absl::Status Writer::PatchNote() {
  if (edit_.kernels.empty()) return absl::OkStatus();
  absl::StatusOr<std::optional<NoteLocation>> where = FindMetadataNote(elf_);
  if (!where.ok()) return where.status();
  if (!*where) return absl::OkStatus();
  const NoteLocation& location = **where;
  const auto old_note = object_.bytes().subspan(location.desc_offset, location.desc_size);
  absl::StatusOr<std::vector<NoteKernel>> described = ParseMetadata(old_note);
  if (!described.ok()) return described.status();
  const std::vector<NumberEdit> edits = NumberEdits(*described);
  if (edits.empty()) return absl::OkStatus();
  const std::vector<uint8_t> note = ReplaceNumbers(old_note, *described, edits);
  if (note.size() != old_note.size()) {
    MoveNotes(location, note);
    return absl::OkStatus();
  }
  std::copy(note.begin(), note.end(), out_.begin() + location.desc_offset);
  ranges_.push_back({location.desc_offset, location.desc_offset + note.size(), "the metadata"});
  return absl::OkStatus();
}

// Puts the whole PT_NOTE, with the longer note in it, at the end of the file.
// Nobody reads notes through their load address; the stale copy stays mapped.
void Writer::MoveNotes(const NoteLocation& where, const std::vector<uint8_t>& note) {
  elf::ProgramHeader& program = elf_.programs[where.program];
  const uint64_t old_offset = program.offset, old_size = program.filesz;
  const uint8_t* old_bytes = object_.bytes().data() + old_offset;
  const uint64_t head = where.desc_offset - old_offset;
  const uint64_t old_tail = std::min(old_size, head + AlignUp(where.desc_size, 4));
  std::vector<uint8_t> notes(old_bytes, old_bytes + head);
  const auto desc_size = static_cast<uint32_t>(note.size());
  std::memcpy(notes.data() + (where.note_offset - old_offset) + 4, &desc_size, sizeof(desc_size));
  notes.insert(notes.end(), note.begin(), note.end());
  notes.resize(AlignUp(notes.size(), 4));
  const uint64_t growth = notes.size() - old_tail;
  notes.insert(notes.end(), old_bytes + old_tail, old_bytes + old_size);

  const uint64_t offset = Append(notes.data(), notes.size(), 8);
  program.offset = offset;
  program.vaddr = program.paddr = 0;
  program.filesz = program.memsz = notes.size();
  RetargetNoteSections(where, old_offset, old_size, offset, growth);
}

void Writer::RetargetNoteSections(const NoteLocation& where, uint64_t old_offset, uint64_t old_size,
                                  uint64_t new_offset, uint64_t growth) {
  for (elf::SectionHeader& section : elf_.sections) {
    const bool inside = section.type == elf::kShtNote && section.offset >= old_offset &&
                        elf::Fits(section.offset - old_offset, section.size, old_size);
    if (!inside) continue;
    const bool holds_it =
        section.offset <= where.note_offset && where.note_offset < section.offset + section.size;
    const bool behind = section.offset > where.note_offset;
    section.offset = section.offset - old_offset + new_offset + (behind ? growth : 0);
    if (holds_it) section.size += growth;
    section.addr = 0;
    section.flags &= ~uint64_t{elf::kShfAlloc};
  }
  sections_moved_ = true;
}

absl::Status Writer::CheckDisjoint() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const FileRange& a, const FileRange& b) { return a.begin < b.begin; });
  // The furthest-reaching range so far of each kind. Guards may overlap guards.
  const FileRange* edit = nullptr;
  const FileRange* guard = nullptr;
  for (const FileRange& range : ranges_) {
    const FileRange* hit = edit != nullptr && range.begin < edit->end ? edit : nullptr;
    if (!range.guard && guard != nullptr && range.begin < guard->end) hit = guard;
    if (hit != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(range.what, " overlaps ", hit->what));
    }
    const FileRange*& furthest = range.guard ? guard : edit;
    if (furthest == nullptr || furthest->end < range.end) furthest = &range;
  }
  return absl::OkStatus();
}

absl::Status Writer::AppendSectionName(uint32_t& name) {
  const uint16_t index = elf_.header.shstrndx;
  if (index >= elf_.sections.size() || elf_.sections[index].type != elf::kShtStrtab) {
    return absl::FailedPreconditionError(
        absl::StrCat("ELF header: e_shstrndx ", index, " is not a string table"));
  }
  elf::SectionHeader& strings = elf_.sections[index];
  if (strings.size > UINT32_MAX / 2) {
    return absl::FailedPreconditionError("the section name table is too large");
  }
  const uint64_t old_size = strings.size;
  std::vector<uint8_t> bytes(out_.begin() + strings.offset,
                             out_.begin() + strings.offset + old_size);
  name = static_cast<uint32_t>(old_size);
  bytes.insert(bytes.end(), kSectionName, kSectionName + sizeof(kSectionName));
  strings.offset = Append(bytes.data(), bytes.size(), 1);
  strings.size = bytes.size();
  return absl::OkStatus();
}

absl::Status Writer::AppendSegment() {
  if (edit_.new_segment.empty()) return absl::OkStatus();
  absl::StatusOr<size_t> recycled = RecyclableProgram(elf_);
  if (!recycled.ok()) return recycled.status();
  absl::StatusOr<uint64_t> vaddr = VaddrAboveEverything(elf_);
  if (!vaddr.ok()) return vaddr.status();
  if (elf_.sections.size() + 1 >= elf::kShnLoReserve) {
    return absl::FailedPreconditionError("no section header can be added");
  }
  const uint64_t size = edit_.new_segment.size();
  // Page-aligned in the file too: offset and address agree modulo the page.
  const uint64_t offset = Append(edit_.new_segment.data(), size, kPage);
  elf::ProgramHeader& program = elf_.programs[*recycled];
  program = {elf::kPtLoad, elf::kPfRead | elf::kPfExecute, offset, *vaddr, *vaddr, size, size,
             kPage};
  elf::SectionHeader section = {};
  absl::Status status = AppendSectionName(section.name);
  if (!status.ok()) return status;
  section.type = elf::kShtProgbits;
  section.flags = elf::kShfAlloc | elf::kShfExec;
  section.addr = *vaddr;
  section.offset = offset;
  section.size = size;
  section.addralign = kCodeAlignment;
  elf_.sections.push_back(section);
  sections_moved_ = true;
  return absl::OkStatus();
}

void Writer::FlushHeaders() {
  if (!sections_moved_) return;
  const auto* sections = reinterpret_cast<const uint8_t*>(elf_.sections.data());
  elf_.header.shoff = Append(sections, elf_.sections.size() * sizeof(elf::SectionHeader), 8);
  elf_.header.shnum = static_cast<uint16_t>(elf_.sections.size());
  std::memcpy(out_.data(), &elf_.header, sizeof(elf_.header));
  std::memcpy(out_.data() + elf_.header.phoff, elf_.programs.data(),
              elf_.programs.size() * sizeof(elf::ProgramHeader));
}

absl::StatusOr<std::vector<uint8_t>> Writer::Run() {
  for (absl::Status (Writer::*step)() :
       {&Writer::Open, &Writer::PatchBytes, &Writer::PatchDescriptors, &Writer::PatchNote,
        &Writer::CheckDisjoint, &Writer::AppendSegment}) {
    absl::Status status = (this->*step)();
    if (!status.ok()) return status;
  }
  FlushHeaders();
  if (out_.size() > CodeObject::kMaxSize) {
    return absl::ResourceExhaustedError(absl::StrCat("the rewritten code object has ", out_.size(),
                                                     " bytes, limit ", CodeObject::kMaxSize));
  }
  return std::move(out_);
}

}  // namespace

absl::StatusOr<uint64_t> NewSegmentVaddr(const CodeObject& object) {
  absl::StatusOr<ElfView> elf = ElfView::Open(object.bytes());
  if (!elf.ok()) return elf.status();
  absl::StatusOr<size_t> recycled = RecyclableProgram(*elf);
  if (!recycled.ok()) return recycled.status();
  return VaddrAboveEverything(*elf);
}

absl::StatusOr<std::vector<uint8_t>> WriteCodeObject(const CodeObject& object,
                                                     const CodeObjectEdit& edit) {
  return Writer(object, edit).Run();
}

}  // namespace rjdbi::patch
