// See dwarf_writer.h. Everything is of version 5, whatever the object's own units
// are: each says its version, and strings are in place, so that no other section
// has to grow.
#include "patch/codeobject/dwarf_writer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "patch/codeobject/dwarf_cursor.h"
#include "patch/codeobject/elf_view.h"

namespace rjdbi::patch {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint16_t kVersion = 5;
constexpr uint8_t kAddressSize = 8;

void Put(Bytes& out, uint64_t value, unsigned size) {
  for (unsigned i = 0; i < size; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void PutUleb(Bytes& out, uint64_t value) {
  do {
    const auto low = static_cast<uint8_t>(value & 0x7f);
    value >>= 7;
    out.push_back(low | (value != 0 ? 0x80 : 0));
  } while (value != 0);
}

void PutSleb(Bytes& out, int64_t value) {
  for (bool more = true; more;) {
    const auto low = static_cast<uint8_t>(value & 0x7f);
    value >>= 7;
    more = !((value == 0 && (low & 0x40) == 0) || (value == -1 && (low & 0x40) != 0));
    out.push_back(low | (more ? 0x80 : 0));
  }
}

void PutString(Bytes& out, std::string_view text) {
  out.insert(out.end(), text.begin(), text.end());
  out.push_back(0);
}

// A unit's length goes in front of it.
Bytes WithLength(const Bytes& unit) {
  Bytes out;
  Put(out, unit.size(), 4);
  out.insert(out.end(), unit.begin(), unit.end());
  return out;
}

// ---- Lines -----------------------------------------------------------------------

constexpr uint8_t kMinimumLength = 4;  // bytes of an instruction
constexpr int kLineBase = -5;
constexpr int kLineRange = 14;
constexpr uint8_t kOpcodeBase = 13;
constexpr uint8_t kOperands[kOpcodeBase - 1] = {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1};
enum : uint8_t { kExtended = 0, kCopy = 1, kAdvancePc = 2, kAdvanceLine = 3, kSetFile = 4 };
enum : uint8_t { kEndSequence = 1, kSetAddress = 2 };  // DW_LNE_*
enum : uint8_t { kContentPath = 1, kContentDirectory = 2 };
enum : uint8_t { kFormUdata = 0x0f, kFormString = 0x08 };

class LineProgram {
 public:
  // A row: from `vaddr` on, code of this line. Rows by address.
  void Row(uint64_t vaddr, uint32_t file, uint32_t line) {
    if (open_ && file == file_ && line == line_) return;
    if (!open_) Begin(vaddr);
    if (file != file_) {
      program_.push_back(kSetFile);
      PutUleb(program_, file_ = file);
    }
    const uint64_t advance = (vaddr - address_) / kMinimumLength;
    const int64_t delta = int64_t{line} - int64_t{line_};
    const int64_t special = delta - kLineBase + kLineRange * static_cast<int64_t>(advance);
    const bool near = delta >= kLineBase && delta < kLineBase + kLineRange && advance < 256;
    if (near && special + kOpcodeBase <= 255) {
      program_.push_back(static_cast<uint8_t>(special + kOpcodeBase));
    } else {
      if (delta != 0) {
        program_.push_back(kAdvanceLine);
        PutSleb(program_, delta);
      }
      Advance(advance);
      program_.push_back(kCopy);
    }
    address_ = vaddr;
    line_ = line;
  }

  // The code ends at `vaddr`; what follows may lie anywhere.
  void End(uint64_t vaddr) {
    if (!open_) return;
    Advance((vaddr - address_) / kMinimumLength);
    Extended(kEndSequence, 0, 0);
    open_ = false;
  }

  const Bytes& bytes() const { return program_; }

 private:
  void Begin(uint64_t vaddr) {
    Extended(kSetAddress, vaddr, kAddressSize);
    address_ = vaddr;
    file_ = line_ = 1;
    open_ = true;
  }
  void Advance(uint64_t words) {
    if (words == 0) return;
    program_.push_back(kAdvancePc);
    PutUleb(program_, words);
  }
  void Extended(uint8_t opcode, uint64_t operand, unsigned size) {
    program_.push_back(kExtended);
    PutUleb(program_, 1 + size);
    program_.push_back(opcode);
    Put(program_, operand, size);
  }

  Bytes program_;
  bool open_ = false;
  uint64_t address_ = 0;
  uint32_t file_ = 1, line_ = 1;
};

class LineUnit {
 public:
  explicit LineUnit(const LineTable& lines) : lines_(lines) {
    directories_.emplace_back();
    files_.push_back({"rjdbi", 0});  // entry 0: the compile unit's own
  }

  Bytes Make(const std::vector<CodeOrigin>& origins) {
    uint64_t end = 0;
    for (const CodeOrigin& origin : origins) {
      if (origin.vaddr != end) program_.End(end);
      Rows(origin);
      end = origin.vaddr + origin.size;
    }
    program_.End(end);
    Bytes header = Header();
    Bytes unit;
    Put(unit, kVersion, 2);
    Put(unit, kAddressSize, 1);
    Put(unit, 0, 1);  // segment selectors
    Put(unit, header.size(), 4);
    unit.insert(unit.end(), header.begin(), header.end());
    unit.insert(unit.end(), program_.bytes().begin(), program_.bytes().end());
    return WithLength(unit);
  }

 private:
  void Rows(const CodeOrigin& origin) {
    const uint64_t size = origin.injected ? 1 : origin.size;  // of the original
    const uint64_t last = origin.original + size;
    uint64_t at = 0;
    for (const LineTable::Row& row : lines_.Overlapping(origin.original, last)) {
      const uint64_t begin = std::max(row.begin, origin.original) - origin.original;
      if (begin > at) NoLine(origin.vaddr + at);
      program_.Row(origin.vaddr + begin, FileIndex(row), row.line);
      at = std::min(row.end, last) - origin.original;
    }
    if (at < size) NoLine(origin.vaddr + at);
  }

  // DWARF's line 0: there is no source.
  void NoLine(uint64_t vaddr) { program_.Row(vaddr, last_file_, 0); }

  uint32_t FileIndex(const LineTable::Row& row) {
    const auto [found, fresh] = index_.emplace(row.file, static_cast<uint32_t>(files_.size()));
    if (fresh) AddFile(lines_.FileName(row));
    return last_file_ = found->second;
  }

  // As compilers do: folders are named once, and tools can print names without.
  void AddFile(std::string_view path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string_view::npos) {
      files_.emplace_back(path, 0);
      return;
    }
    const std::string directory(path.substr(0, std::max<size_t>(slash, 1)));
    const auto [found, fresh] = directory_index_.emplace(directory, directories_.size());
    if (fresh) directories_.push_back(directory);
    files_.emplace_back(path.substr(slash + 1), found->second);
  }

  // What follows the header's length.
  Bytes Header() const {
    Bytes out;
    Put(out, kMinimumLength, 1);
    Put(out, 1, 1);  // operations per instruction
    Put(out, 1, 1);  // rows are statements
    Put(out, static_cast<uint8_t>(kLineBase), 1);
    Put(out, kLineRange, 1);
    Put(out, kOpcodeBase, 1);
    out.insert(out.end(), std::begin(kOperands), std::end(kOperands));
    out.insert(out.end(), {1, kContentPath, kFormString});
    PutUleb(out, directories_.size());
    for (const std::string& directory : directories_) PutString(out, directory);
    out.insert(out.end(), {2, kContentPath, kFormString, kContentDirectory, kFormUdata});
    PutUleb(out, files_.size());
    for (const auto& [name, directory] : files_) {
      PutString(out, name);
      PutUleb(out, directory);
    }
    return out;
  }

  const LineTable& lines_;
  LineProgram program_;
  std::vector<std::string> directories_;  // 0: none
  std::unordered_map<std::string, size_t> directory_index_;
  std::vector<std::pair<std::string, size_t>> files_;  // with their directories
  std::unordered_map<uint32_t, uint32_t> index_;       // LineTable's file -> ours
  uint32_t last_file_ = 0;
};

// ---- The compile unit --------------------------------------------------------------

// DW_TAG_*, DW_AT_*, DW_FORM_*.
enum : uint8_t { kTagCompileUnit = 0x11, kTagSubprogram = 0x2e };
enum : uint8_t {
  kAtName = 0x03,
  kAtStmtList = 0x10,
  kAtLowPc = 0x11,
  kAtHighPc = 0x12,
  kAtProducer = 0x25,
  kAtArtificial = 0x34,
};
enum : uint8_t { kFormAddr = 0x01, kFormData8 = 0x07, kFormSecOffset = 0x17, kFormPresent = 0x19 };
constexpr uint8_t kAbbreviations[] = {
    1,
    kTagCompileUnit,
    1,  // with children
    kAtProducer,
    kFormString,
    kAtName,
    kFormString,
    kAtStmtList,
    kFormSecOffset,
    kAtLowPc,
    kFormAddr,
    kAtHighPc,
    kFormData8,
    0,
    0,
    2,
    kTagSubprogram,
    0,
    kAtName,
    kFormString,
    kAtLowPc,
    kFormAddr,
    kAtHighPc,
    kFormData8,
    kAtArtificial,
    kFormPresent,
    0,
    0,
    0,
};
constexpr uint8_t kUnitCompile = 1;  // DW_UT_compile

Bytes CompileUnit(uint64_t abbreviations, uint64_t line_program, uint64_t begin, uint64_t end,
                  const std::vector<Appendix::Function>& functions) {
  Bytes unit;
  Put(unit, kVersion, 2);
  Put(unit, kUnitCompile, 1);
  Put(unit, kAddressSize, 1);
  Put(unit, abbreviations, 4);
  PutUleb(unit, 1);
  PutString(unit, "rjdbi");
  PutString(unit, "rjdbi");
  Put(unit, line_program, 4);
  Put(unit, begin, kAddressSize);
  Put(unit, end - begin, 8);
  for (const Appendix::Function& function : functions) {
    PutUleb(unit, 2);
    PutString(unit, function.name);
    Put(unit, function.vaddr, kAddressSize);
    Put(unit, function.size, 8);
  }
  unit.push_back(0);  // no more children
  return WithLength(unit);
}

constexpr uint64_t kShfCompressed = 0x800;

// A section's size; 0: there is none. nullopt: it cannot be appended to.
std::optional<uint64_t> PlainSize(const ElfView& elf, std::string_view wanted) {
  const uint16_t index = elf.header.shstrndx;
  if (index >= elf.sections.size() || elf.sections[index].type != elf::kShtStrtab) {
    return std::nullopt;
  }
  const auto names = elf.SectionBytes(elf.sections[index]);
  for (const elf::SectionHeader& section : elf.sections) {
    bool known = section.type == elf::kShtProgbits;
    if (!known || dwarf::StringAt(names, section.name, known) != wanted) continue;
    // Offsets of four bytes lead into it.
    if ((section.flags & kShfCompressed) != 0 || section.size > UINT32_MAX / 2) return std::nullopt;
    return section.size;
  }
  return 0;
}

}  // namespace

std::vector<Appendix::Section> LinesForNewCode(absl::Span<const uint8_t> image,
                                               const LineTable& lines,
                                               const std::vector<CodeOrigin>& origins,
                                               const std::vector<Appendix::Function>& functions) {
  const absl::StatusOr<ElfView> elf = ElfView::Open(image);
  if (!elf.ok() || origins.empty()) return {};
  const auto line = PlainSize(*elf, ".debug_line"), info = PlainSize(*elf, ".debug_info"),
             abbreviations = PlainSize(*elf, ".debug_abbrev");
  if (!line || *line == 0 || !info || !abbreviations) return {};
  const uint64_t begin = origins.front().vaddr, end = origins.back().vaddr + origins.back().size;
  return {
      {".debug_line", LineUnit(lines).Make(origins), true},
      {".debug_abbrev", Bytes(std::begin(kAbbreviations), std::end(kAbbreviations)), true},
      {".debug_info", CompileUnit(*abbreviations, *line, begin, end, functions), true},
  };
}

}  // namespace rjdbi::patch
