// The line number program of each unit of .debug_line, DWARF 2 to 5.
#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/dwarf_cursor.h"

namespace rjdbi::patch::dwarf {
namespace {

// DW_FORM_*, those that entry formats of line tables may use.
enum : uint64_t {
  kFormBlock2 = 0x03,
  kFormBlock4 = 0x04,
  kFormData2 = 0x05,
  kFormData4 = 0x06,
  kFormData8 = 0x07,
  kFormString = 0x08,
  kFormBlock = 0x09,
  kFormBlock1 = 0x0a,
  kFormData1 = 0x0b,
  kFormStrp = 0x0e,
  kFormUdata = 0x0f,
  kFormData16 = 0x1e,
  kFormLineStrp = 0x1f,
};
enum : uint64_t { kContentPath = 1, kContentDirectory = 2 };
enum : uint8_t {  // DW_LNS_*
  kExtended = 0,
  kCopy = 1,
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kConstAddPc = 8,
  kFixedAdvancePc = 9,
};
enum : uint8_t { kEndSequence = 1, kSetAddress = 2, kDefineFile = 3 };  // DW_LNE_*

struct Entry {  // of a directory or file table
  std::string path;
  uint64_t directory = 0;
};

std::string Join(const std::string& directory, const std::string& path) {
  if (directory.empty() || path.starts_with('/')) return path;
  return directory.back() == '/' ? directory + path : absl::StrCat(directory, "/", path);
}

// What a table may amount to, whatever its bytes say: an entry of a few bytes can
// name a long string, a byte can make a row.
struct Limits {
  uint64_t name_bytes = uint64_t{64} << 20;
  uint64_t files = uint64_t{1} << 20;
  uint64_t rows = uint64_t{1} << 23;

  bool Take(uint64_t& budget, uint64_t amount) {
    exceeded |= budget < amount;
    budget -= std::min(budget, amount);
    return !exceeded;
  }
  bool exceeded = false;
};

class Unit {
 public:
  Unit(const Sections& sections, Cursor cursor, unsigned offset_size, Limits& limits)
      : sections_(sections), in_(cursor), offset_size_(offset_size), limits_(limits) {}

  // Adds rows, and the unit's files behind those in `files`.
  absl::Status Read(std::vector<LineTable::Row>& rows, std::vector<std::string>& files) {
    version_ = static_cast<unsigned>(in_.Unsigned(2));
    if (in_.ok() && (version_ < 2 || version_ > 5)) return Bad(absl::StrCat("version ", version_));
    if (version_ >= 5) {
      address_size_ = in_.Byte();
      if (in_.Byte() != 0) return Bad("segment selectors");
    }
    const uint64_t length = in_.Unsigned(offset_size_);
    if (length > in_.left()) return Bad("a header longer than the unit");
    const uint64_t program = in_.at() + length;
    ReadParameters();
    const bool tables = version_ >= 5 ? ReadTables() : ReadOldTables();
    if (!in_.ok() || !tables) return Bad("a header that does not add up");
    first_file_ = files.size();
    for (const Entry& file : files_) AddFile(file, files);
    if (program < in_.at()) return Bad("tables that overlap the program");
    in_.Skip(program - in_.at());
    return Run(rows, files);
  }

 private:
  static absl::Status Bad(const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("the line table has ", what));
  }

  void ReadParameters() {
    minimum_length_ = in_.Byte();
    if (version_ >= 4 && in_.Byte() > 1) in_.Fail();  // VLIW
    in_.Byte();                                       // default_is_stmt
    line_base_ = static_cast<int8_t>(in_.Byte());
    line_range_ = in_.Byte();
    opcode_base_ = in_.Byte();
    for (unsigned i = 1; i < opcode_base_; ++i) operands_[i] = in_.Byte();
    if (opcode_base_ == 0) in_.Fail();
  }

  // Version 5: tables that describe their own entries.
  bool ReadTables() { return ReadTable(directories_) && ReadTable(files_); }

  bool ReadTable(std::vector<Entry>& entries) {
    std::vector<std::pair<uint64_t, uint64_t>> format(in_.Byte());
    for (auto& [content, form] : format) {
      content = in_.Uleb();
      form = in_.Uleb();
    }
    const uint64_t count = in_.Uleb();
    // Each entry takes a byte at least, or the count means nothing.
    if (count > in_.left() || (format.empty() && count > 0)) return false;
    for (uint64_t i = 0; i < count && in_.ok(); ++i) {
      Entry entry;
      for (const auto& [content, form] : format) {
        std::string_view text;
        uint64_t number = 0;
        if (!ReadForm(form, text, number)) return false;
        if (content == kContentPath) entry.path = Name(text);
        if (content == kContentDirectory) entry.directory = number;
      }
      entries.push_back(std::move(entry));
    }
    return in_.ok();
  }

  bool ReadForm(uint64_t form, std::string_view& text, uint64_t& number) {
    bool ok = true;
    switch (form) {
      case kFormString:
        text = in_.String();
        break;
      case kFormLineStrp:
        text = StringAt(sections_.line_str, in_.Unsigned(offset_size_), ok);
        break;
      case kFormStrp:
        text = StringAt(sections_.str, in_.Unsigned(offset_size_), ok);
        break;
      case kFormUdata:
        number = in_.Uleb();
        break;
      case kFormData1:
        number = in_.Unsigned(1);
        break;
      case kFormData2:
        number = in_.Unsigned(2);
        break;
      case kFormData4:
        number = in_.Unsigned(4);
        break;
      case kFormData8:
        number = in_.Unsigned(8);
        break;
      case kFormData16:
        in_.Skip(16);
        break;
      case kFormBlock:
        in_.Skip(in_.Uleb());
        break;
      case kFormBlock1:
        in_.Skip(in_.Unsigned(1));
        break;
      case kFormBlock2:
        in_.Skip(in_.Unsigned(2));
        break;
      case kFormBlock4:
        in_.Skip(in_.Unsigned(4));
        break;
      default:
        return false;  // of unknown size
    }
    return ok && in_.ok();
  }

  // Before version 5: strings until an empty one. Directory 0 is the unit's own,
  // which only .debug_info knows; files count from 1.
  bool ReadOldTables() {
    directories_.emplace_back();
    for (std::string_view text = in_.String(); !text.empty(); text = in_.String()) {
      directories_.push_back({Name(text), 0});
    }
    files_.emplace_back();
    for (std::string_view text = in_.String(); !text.empty(); text = in_.String()) {
      files_.push_back({Name(text), in_.Uleb()});
      in_.Uleb();  // time
      in_.Uleb();  // length
    }
    return in_.ok();
  }

  std::string Name(std::string_view text) {
    constexpr size_t kMaxPath = 4096;
    text = text.substr(0, kMaxPath);
    if (!limits_.Take(limits_.name_bytes, text.size())) in_.Fail();
    return in_.ok() ? std::string(text) : "";
  }

  void AddFile(const Entry& file, std::vector<std::string>& files) {
    std::string path = PathOf(file);
    if (!limits_.Take(limits_.files, 1) || !limits_.Take(limits_.name_bytes, path.size())) {
      return in_.Fail();
    }
    files.push_back(std::move(path));
  }

  std::string PathOf(const Entry& file) const {
    if (file.directory >= directories_.size()) return file.path;
    const std::string& directory = directories_[file.directory].path;
    if (version_ < 5 || file.directory == 0 || directories_.empty()) {
      return Join(directory, file.path);
    }
    return Join(Join(directories_[0].path, directory), file.path);
  }

  struct Registers {
    uint64_t address = 0, file = 1;
    uint32_t line = 1;
    bool open = false;  // a row has begun
    LineTable::Row row;
  };

  absl::Status Run(std::vector<LineTable::Row>& rows, std::vector<std::string>& files) {
    Registers r;
    while (in_.left() > 0) {
      const uint8_t opcode = in_.Byte();
      if (opcode >= opcode_base_) {
        if (line_range_ == 0) return Bad("a line range of 0");
        const unsigned adjusted = opcode - opcode_base_;
        r.address += uint64_t{minimum_length_} * (adjusted / line_range_);
        r.line += static_cast<uint32_t>(line_base_ + static_cast<int>(adjusted % line_range_));
        Emit(r, rows);
      } else if (opcode == kExtended) {
        Extended(r, rows, files);
      } else {
        Standard(opcode, r, rows);
      }
      if (!in_.ok()) return Bad("a program that is cut off");
    }
    return absl::OkStatus();
  }

  // Ends the row before, and begins one.
  void Emit(Registers& r, std::vector<LineTable::Row>& rows) {
    Close(r, rows);
    r.open = true;
    r.row = {r.address, r.address, r.line, 0};
    // A file that is not in the table has no name, so nothing matches it.
    const bool known = r.file < files_.size();
    r.row.file = known ? static_cast<uint32_t>(first_file_ + r.file) : 0;
    if (!known) r.row.line = 0;
  }

  void Close(Registers& r, std::vector<LineTable::Row>& rows) {
    if (!r.open) return;
    r.row.end = r.address;
    if (!limits_.Take(limits_.rows, 1)) in_.Fail();
    if (r.row.begin < r.row.end && in_.ok()) rows.push_back(r.row);
    r.open = false;
  }

  void Standard(uint8_t opcode, Registers& r, std::vector<LineTable::Row>& rows) {
    switch (opcode) {
      case kCopy:
        return Emit(r, rows);
      case kAdvancePc:
        r.address += minimum_length_ * in_.Uleb();
        return;
      case kAdvanceLine:
        r.line += static_cast<uint32_t>(in_.Sleb());
        return;
      case kSetFile:
        r.file = in_.Uleb();
        return;
      case kConstAddPc:
        if (line_range_ == 0) return in_.Fail();
        r.address += uint64_t{minimum_length_} * ((255u - opcode_base_) / line_range_);
        return;
      case kFixedAdvancePc:
        r.address += in_.Unsigned(2);
        return;
      default:
        for (unsigned i = 0; i < operands_[opcode]; ++i) in_.Uleb();
    }
  }

  void Extended(Registers& r, std::vector<LineTable::Row>& rows, std::vector<std::string>& files) {
    const uint64_t length = in_.Uleb();
    if (length == 0 || length > in_.left()) return in_.Fail();
    const uint64_t end = in_.at() + length;
    switch (in_.Byte()) {
      case kEndSequence:
        Close(r, rows);
        r = Registers();
        break;
      case kSetAddress:
        r.address = in_.Unsigned(static_cast<unsigned>(length - 1));
        break;
      case kDefineFile: {
        Entry file{Name(in_.String()), 0};
        file.directory = in_.Uleb();
        AddFile(file, files);
        files_.push_back(std::move(file));
        break;
      }
      default:
        break;
    }
    if (in_.ok() && in_.at() > end) return in_.Fail();
    if (in_.ok()) in_.Skip(end - in_.at());
  }

  const Sections& sections_;
  Cursor in_;
  const unsigned offset_size_;
  Limits& limits_;
  unsigned version_ = 0;
  uint8_t address_size_ = 8, minimum_length_ = 1, line_range_ = 1, opcode_base_ = 1;
  int line_base_ = 0;
  uint8_t operands_[256] = {};
  std::vector<Entry> directories_, files_;
  size_t first_file_ = 0;
};

}  // namespace

absl::StatusOr<LineTable> ReadLines(const Sections& sections) {
  if (sections.line.empty()) {
    return absl::NotFoundError("the code object has no line table (.debug_line)");
  }
  std::vector<LineTable::Row> rows;
  std::vector<std::string> files = {""};
  Limits limits;
  for (Cursor cursor(sections.line, 0); cursor.left() > 0;) {
    unsigned offset_size = 4;
    const uint64_t length = cursor.UnitLength(offset_size);
    if (!cursor.ok()) {
      return absl::InvalidArgumentError("the line table has a unit that is cut off");
    }
    const auto unit = sections.line.subspan(cursor.at(), length);
    const absl::Status status =
        Unit(sections, Cursor(unit, 0), offset_size, limits).Read(rows, files);
    if (limits.exceeded) return absl::InvalidArgumentError("the line table is too large");
    if (!status.ok()) return status;
    cursor.Skip(length);
  }
  return LineTable(std::move(rows), std::move(files));
}

}  // namespace rjdbi::patch::dwarf
