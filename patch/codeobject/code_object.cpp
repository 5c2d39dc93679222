// The reader: segments, code ranges, symbols, kernels, metadata, in this order,
// each checked against the ones before.
#include "patch/codeobject/code_object.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/elf_format.h"
#include "patch/codeobject/elf_view.h"
#include "patch/codeobject/metadata.h"
#include "patch/codeobject/printable.h"
#include "patch/codeobject/read_target.h"

namespace rjdbi::patch {
namespace {

constexpr uint64_t kDescriptorSize = 64;
constexpr uint16_t kPropertyWave32 = 1 << 10;
constexpr uint64_t kMaxNameLength = uint64_t{1} << 16;

// Byte offsets of the kernel descriptor: AMDHSAKernelDescriptor.h.
enum : size_t {
  kGroupSegment = 0,
  kPrivateSegment = 4,
  kKernargSize = 8,
  kEntryOffset = 16,
  kRsrc3 = 44,
  kRsrc1 = 48,
  kRsrc2 = 52,
  kProperties = 56,
  kPreload = 58,
};

template <typename T>
void Store(uint8_t* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

const char* FeatureText(TargetId::Feature feature) {
  if (feature == TargetId::Feature::kOn) return "+";
  return feature == TargetId::Feature::kOff ? "-" : nullptr;
}

struct RawSymbol {
  std::string name;
  elf::Symbol symbol;
};

}  // namespace

KernelDescriptor KernelDescriptor::Read(const uint8_t* bytes64) {
  KernelDescriptor d;
  d.group_segment_fixed_size = elf::Load<uint32_t>(bytes64 + kGroupSegment);
  d.private_segment_fixed_size = elf::Load<uint32_t>(bytes64 + kPrivateSegment);
  d.kernarg_size = elf::Load<uint32_t>(bytes64 + kKernargSize);
  d.kernel_code_entry_byte_offset = elf::Load<int64_t>(bytes64 + kEntryOffset);
  d.compute_pgm_rsrc3 = elf::Load<uint32_t>(bytes64 + kRsrc3);
  d.compute_pgm_rsrc1 = elf::Load<uint32_t>(bytes64 + kRsrc1);
  d.compute_pgm_rsrc2 = elf::Load<uint32_t>(bytes64 + kRsrc2);
  d.kernel_code_properties = elf::Load<uint16_t>(bytes64 + kProperties);
  d.kernarg_preload = elf::Load<uint16_t>(bytes64 + kPreload);
  return d;
}

void KernelDescriptor::Write(uint8_t* bytes64) const {
  Store(bytes64 + kGroupSegment, group_segment_fixed_size);
  Store(bytes64 + kPrivateSegment, private_segment_fixed_size);
  Store(bytes64 + kKernargSize, kernarg_size);
  Store(bytes64 + kEntryOffset, kernel_code_entry_byte_offset);
  Store(bytes64 + kRsrc3, compute_pgm_rsrc3);
  Store(bytes64 + kRsrc1, compute_pgm_rsrc1);
  Store(bytes64 + kRsrc2, compute_pgm_rsrc2);
  Store(bytes64 + kProperties, kernel_code_properties);
  Store(bytes64 + kPreload, kernarg_preload);
}

std::string TargetId::ToString() const {
  std::string out = "amdgcn-amd-amdhsa--" + processor;
  if (const char* text = FeatureText(sramecc)) absl::StrAppend(&out, ":sramecc", text);
  if (const char* text = FeatureText(xnack)) absl::StrAppend(&out, ":xnack", text);
  return out;
}

std::optional<uint64_t> CodeObject::VaddrToOffset(uint64_t vaddr) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), vaddr,
                                [](uint64_t v, const Segment& s) { return v < s.vaddr; });
  if (after == segments_.begin()) return std::nullopt;
  const Segment& segment = *--after;
  if (vaddr - segment.vaddr >= segment.filesz) return std::nullopt;
  return segment.offset + (vaddr - segment.vaddr);
}

absl::Span<const uint8_t> CodeObject::AtVaddr(uint64_t vaddr, uint64_t size) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), vaddr,
                                [](uint64_t v, const Segment& s) { return v < s.vaddr; });
  if (after == segments_.begin()) return {};
  const Segment& segment = *--after;
  if (!elf::Fits(vaddr - segment.vaddr, size, segment.filesz)) return {};
  return bytes_.subspan(segment.offset + (vaddr - segment.vaddr), size);
}

// Fills a CodeObject step by step.
class CodeObjectParser {
 public:
  explicit CodeObjectParser(absl::Span<const uint8_t> bytes) {
    out_.bytes_ = bytes;
    out_.debug_info_ = std::make_shared<DebugInfo>(bytes);
  }

  absl::StatusOr<CodeObject> Run() {
    absl::StatusOr<ElfView> elf = ElfView::Open(out_.bytes_);
    if (!elf.ok()) return elf.status();
    elf_ = *std::move(elf);
    absl::StatusOr<TargetId> target = ReadTarget(elf_.header);
    if (!target.ok()) return target.status();
    out_.target_ = *std::move(target);
    for (absl::Status (CodeObjectParser::*step)() :
         {&CodeObjectParser::ReadSegments, &CodeObjectParser::ReadExecutableRanges,
          &CodeObjectParser::ReadSymbols, &CodeObjectParser::CollectCode,
          &CodeObjectParser::CollectKernels, &CodeObjectParser::AttachMetadata}) {
      absl::Status status = (this->*step)();
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  absl::Status ReadSegments();
  absl::Status ReadExecutableRanges();
  absl::Status ReadSymbols();
  absl::Status ReadSymbolTable(size_t index);
  absl::StatusOr<std::string> ReadName(absl::Span<const uint8_t> strings, uint32_t offset,
                                       const std::string& where);
  absl::Status CollectCode();
  absl::Status CollectKernels();
  absl::Status AddKernel(const RawSymbol& raw);
  absl::Status AttachMetadata();
  const CodeObject::Range* ExecutableRangeOf(uint64_t vaddr) const;
  uint64_t CodeSize(uint64_t entry) const;

  CodeObject out_;
  ElfView elf_;
  std::vector<RawSymbol> symbols_;  // FUNC symbols and kernel descriptors
  uint64_t name_bytes_ = 0;
};

absl::Status CodeObjectParser::ReadSegments() {
  for (size_t i = 0; i < elf_.programs.size(); ++i) {
    const elf::ProgramHeader& program = elf_.programs[i];
    if (program.type != elf::kPtLoad) continue;
    Segment segment;
    segment.vaddr = program.vaddr;
    segment.memsz = program.memsz;
    segment.offset = program.offset;
    segment.filesz = program.filesz;
    segment.flags = program.flags;
    segment.phdr_index = static_cast<uint32_t>(i);
    if (segment.memsz > 0) out_.segments_.push_back(segment);
  }
  std::vector<Segment>& segments = out_.segments_;
  if (segments.empty()) return absl::InvalidArgumentError("program headers: no PT_LOAD");
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.vaddr < b.vaddr; });
  for (size_t i = 1; i < segments.size(); ++i) {
    const Segment& previous = segments[i - 1];
    if (segments[i].vaddr >= previous.vaddr + previous.memsz) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "program header ", segments[i].phdr_index, ": p_vaddr 0x", absl::Hex(segments[i].vaddr),
        " lies inside program header ", previous.phdr_index, " ending at 0x",
        absl::Hex(previous.vaddr + previous.memsz)));
  }
  return absl::OkStatus();
}

absl::Status CodeObjectParser::ReadExecutableRanges() {
  std::vector<CodeObject::Range>& ranges = out_.executable_ranges_;
  for (size_t i = 0; i < elf_.sections.size(); ++i) {
    const elf::SectionHeader& section = elf_.sections[i];
    const bool code = (section.flags & elf::kShfExec) != 0 && (section.flags & elf::kShfAlloc) != 0;
    if (!code || section.size == 0) continue;
    if (out_.AtVaddr(section.addr, section.size).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("section header ", i, ": sh_addr 0x",
                                                     absl::Hex(section.addr), " and sh_size 0x",
                                                     absl::Hex(section.size),
                                                     " lie outside file-backed "
                                                     "segments"));
    }
    ranges.push_back({section.addr, section.addr + section.size});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i - 1].end) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("executable sections overlap at 0x", absl::Hex(ranges[i].begin)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CodeObjectParser::ReadName(absl::Span<const uint8_t> strings,
                                                       uint32_t offset, const std::string& where) {
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
  // Names go into messages: see printable.h. Metadata does the same, so that names
  // of both still meet.
  std::string name = ToUtf8({reinterpret_cast<const char*>(begin),
                             static_cast<size_t>(static_cast<const uint8_t*>(end) - begin)});
  // Many symbols may share one long string: bound the sum, and so the time.
  name_bytes_ += name.size();
  if (name_bytes_ > (uint64_t{16} << 20) + 4 * out_.bytes_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("symbol names exceed ", name_bytes_, " bytes"));
  }
  return name;
}

absl::Status CodeObjectParser::ReadSymbolTable(size_t index) {
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
    const uint8_t type = symbol.info & 0xf;
    if (symbol.shndx == elf::kShnUndef || symbol.shndx >= elf::kShnLoReserve) continue;
    if (type != elf::kSymbolFunc && type != elf::kSymbolObject) continue;
    absl::StatusOr<std::string> name =
        ReadName(strings, symbol.name, absl::StrCat(where, ", symbol ", i));
    if (!name.ok()) return name.status();
    const bool descriptor = type == elf::kSymbolObject && name->size() > 3 &&
                            name->compare(name->size() - 3, 3, ".kd") == 0;
    if (type == elf::kSymbolFunc || descriptor) symbols_.push_back({*std::move(name), symbol});
  }
  return absl::OkStatus();
}

absl::Status CodeObjectParser::ReadSymbols() {
  for (size_t i = 0; i < elf_.sections.size(); ++i) {
    const uint32_t type = elf_.sections[i].type;
    if (type != elf::kShtSymtab && type != elf::kShtDynsym) continue;
    absl::Status status = ReadSymbolTable(i);
    if (!status.ok()) return status;
  }
  // .symtab and .dynsym list the same symbols.
  auto key = [](const RawSymbol& raw) {
    return std::tie(raw.symbol.value, raw.name, raw.symbol.size);
  };
  std::sort(symbols_.begin(), symbols_.end(),
            [&](const RawSymbol& a, const RawSymbol& b) { return key(a) < key(b); });
  auto same = [](const RawSymbol& a, const RawSymbol& b) {
    return a.symbol.value == b.symbol.value && a.name == b.name;
  };
  symbols_.erase(std::unique(symbols_.begin(), symbols_.end(), same), symbols_.end());
  return absl::OkStatus();
}

const CodeObject::Range* CodeObjectParser::ExecutableRangeOf(uint64_t vaddr) const {
  const auto& ranges = out_.executable_ranges_;
  auto after = std::upper_bound(ranges.begin(), ranges.end(), vaddr,
                                [](uint64_t v, const CodeObject::Range& r) { return v < r.begin; });
  if (after == ranges.begin()) return nullptr;
  --after;
  return vaddr < after->end ? &*after : nullptr;
}

absl::Status CodeObjectParser::CollectCode() {
  for (const RawSymbol& raw : symbols_) {
    if ((raw.symbol.info & 0xf) != elf::kSymbolFunc) continue;
    const CodeObject::Range* range = ExecutableRangeOf(raw.symbol.value);
    if (range == nullptr) continue;  // functions elsewhere are data to us
    if (raw.symbol.size > range->end - raw.symbol.value) {
      return absl::InvalidArgumentError(
          absl::StrCat("symbol ", raw.name, ": st_size 0x", absl::Hex(raw.symbol.size),
                       " exceeds its section, which ends at 0x", absl::Hex(range->end)));
    }
    out_.code_symbols_.push_back({raw.name, raw.symbol.value, raw.symbol.size});
  }
  // The largest of several at one address comes first.
  std::stable_sort(out_.code_symbols_.begin(), out_.code_symbols_.end(),
                   [](const CodeSymbol& a, const CodeSymbol& b) {
                     return a.vaddr != b.vaddr ? a.vaddr < b.vaddr : a.size > b.size;
                   });
  return absl::OkStatus();
}

uint64_t CodeObjectParser::CodeSize(uint64_t entry) const {
  const auto& code = out_.code_symbols_;
  auto below = [](const CodeSymbol& s, uint64_t v) { return s.vaddr < v; };
  auto above = [](uint64_t v, const CodeSymbol& s) { return v < s.vaddr; };
  const auto at = std::lower_bound(code.begin(), code.end(), entry, below);
  if (at != code.end() && at->vaddr == entry && at->size > 0) return at->size;
  const auto next = std::upper_bound(code.begin(), code.end(), entry, above);
  const uint64_t end = ExecutableRangeOf(entry)->end;
  return (next != code.end() ? std::min(next->vaddr, end) : end) - entry;
}

absl::Status CodeObjectParser::AddKernel(const RawSymbol& raw) {
  Kernel kernel;
  kernel.name = raw.name.substr(0, raw.name.size() - 3);
  kernel.descriptor_vaddr = raw.symbol.value;
  const absl::Span<const uint8_t> bytes = out_.AtVaddr(raw.symbol.value, kDescriptorSize);
  if (bytes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("symbol ", raw.name, ": st_value 0x", absl::Hex(raw.symbol.value),
                     " leaves no 64 file-backed bytes for a kernel descriptor"));
  }
  kernel.descriptor = KernelDescriptor::Read(bytes.data());
  kernel.entry_vaddr = kernel.descriptor_vaddr +
                       static_cast<uint64_t>(kernel.descriptor.kernel_code_entry_byte_offset);
  if (ExecutableRangeOf(kernel.entry_vaddr) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel descriptor ", raw.name, ": kernel_code_entry_byte_offset leads to 0x",
                     absl::Hex(kernel.entry_vaddr), ", outside executable sections"));
  }
  if (kernel.entry_vaddr % 4 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("kernel descriptor ", raw.name, ": entry 0x",
                                                   absl::Hex(kernel.entry_vaddr),
                                                   " is not a multiple of 4"));
  }
  kernel.code_size = CodeSize(kernel.entry_vaddr);
  // Before gfx10 (four-digit names) the bit is reserved: every wave has 64 lanes.
  const bool wave32 = (kernel.descriptor.kernel_code_properties & kPropertyWave32) != 0;
  kernel.wavefront_size = wave32 && out_.target_.processor.size() > 6 ? 32 : 64;
  out_.kernels_.push_back(std::move(kernel));
  return absl::OkStatus();
}

absl::Status CodeObjectParser::CollectKernels() {
  std::unordered_map<std::string, uint64_t> seen;
  for (const RawSymbol& raw : symbols_) {
    if ((raw.symbol.info & 0xf) != elf::kSymbolObject) continue;
    const auto [at, fresh] = seen.emplace(raw.name, raw.symbol.value);
    if (!fresh) {
      return absl::InvalidArgumentError(absl::StrCat("symbol ", raw.name, ": defined at 0x",
                                                     absl::Hex(at->second), " and at 0x",
                                                     absl::Hex(raw.symbol.value)));
    }
    absl::Status status = AddKernel(raw);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CodeObjectParser::AttachMetadata() {
  absl::StatusOr<std::optional<NoteLocation>> note = FindMetadataNote(elf_);
  if (!note.ok()) return note.status();
  if (!*note) return absl::OkStatus();
  absl::StatusOr<std::vector<NoteKernel>> described =
      ParseMetadata(out_.bytes_.subspan((*note)->desc_offset, (*note)->desc_size));
  if (!described.ok()) return described.status();
  std::unordered_map<std::string, Kernel*> by_symbol;
  for (Kernel& kernel : out_.kernels_) by_symbol.emplace(kernel.name + ".kd", &kernel);
  for (NoteKernel& entry : *described) {
    auto at = by_symbol.find(entry.metadata.symbol);
    if (at != by_symbol.end()) at->second->metadata = std::move(entry.metadata);
  }
  return absl::OkStatus();
}

absl::StatusOr<CodeObject> CodeObject::Parse(absl::Span<const uint8_t> bytes) {
  if (bytes.size() > kMaxSize) {
    return absl::ResourceExhaustedError(
        absl::StrCat("code object of ", bytes.size(), " bytes, limit ", kMaxSize));
  }
  return CodeObjectParser(bytes).Run();
}

}  // namespace rjdbi::patch
