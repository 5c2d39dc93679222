// Finds the sections, and keeps what was read.
#include "patch/codeobject/debug_info.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/dwarf_cursor.h"
#include "patch/codeobject/elf_view.h"

namespace rjdbi::patch {
namespace {

constexpr uint64_t kShfCompressed = 0x800;

struct NamedSection {
  std::string_view name;
  absl::Span<const uint8_t> dwarf::Sections::*bytes;
};
constexpr NamedSection kNames[] = {
    {".debug_line", &dwarf::Sections::line},
    {".debug_line_str", &dwarf::Sections::line_str},
    {".debug_str", &dwarf::Sections::str},
};

absl::StatusOr<dwarf::Sections> FindSections(absl::Span<const uint8_t> object) {
  absl::StatusOr<ElfView> elf = ElfView::Open(object);
  if (!elf.ok()) return elf.status();
  dwarf::Sections sections;
  const uint16_t index = elf->header.shstrndx;
  if (index >= elf->sections.size() || elf->sections[index].type != elf::kShtStrtab) {
    return sections;  // no names, so none of ours
  }
  const absl::Span<const uint8_t> names = elf->SectionBytes(elf->sections[index]);
  for (const elf::SectionHeader& section : elf->sections) {
    if (section.type != elf::kShtProgbits) continue;
    bool named = true;
    const std::string_view name = dwarf::StringAt(names, section.name, named);
    for (const NamedSection& wanted : kNames) {
      if (!named || name != wanted.name) continue;
      if ((section.flags & kShfCompressed) != 0) {
        return absl::InvalidArgumentError(absl::StrCat("section ", std::string(name),
                                                       " is compressed (decompress it with objcopy "
                                                       "--decompress-debug-sections)"));
      }
      sections.*wanted.bytes = elf->SectionBytes(section);
    }
  }
  return sections;
}

}  // namespace

LineTable::LineTable(std::vector<Row> rows, std::vector<std::string> files)
    : files_(std::move(files)) {
  const auto earlier = [](const Row& a, const Row& b) { return a.begin < b.begin; };
  if (!std::is_sorted(rows.begin(), rows.end(), earlier)) {
    std::stable_sort(rows.begin(), rows.end(), earlier);
  }
  size_t kept = 0;  // of the rows that were looked at, in their place
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row row = rows[i];
    if (row.begin >= row.end) continue;
    while (kept > 0 && rows[kept - 1].begin == row.begin) --kept;
    if (kept > 0) rows[kept - 1].end = std::min(rows[kept - 1].end, row.begin);
    rows[kept++] = row;
  }
  rows.resize(kept);
  rows_ = std::move(rows);
}

absl::Span<const LineTable::Row> LineTable::Overlapping(uint64_t begin, uint64_t end) const {
  const auto first = std::lower_bound(rows_.begin(), rows_.end(), begin,
                                      [](const Row& row, uint64_t at) { return row.end <= at; });
  const auto last = std::lower_bound(first, rows_.end(), end,
                                     [](const Row& row, uint64_t at) { return row.begin < at; });
  return absl::MakeConstSpan(rows_).subspan(static_cast<size_t>(first - rows_.begin()),
                                            static_cast<size_t>(last - first));
}

struct DebugInfo::Lazy {
  absl::Span<const uint8_t> object;
  std::once_flag lines_once;
  std::optional<absl::StatusOr<LineTable>> lines;
};

DebugInfo::DebugInfo(absl::Span<const uint8_t> object) : lazy_(std::make_unique<Lazy>()) {
  lazy_->object = object;
}
DebugInfo::~DebugInfo() = default;

const absl::StatusOr<LineTable>& DebugInfo::lines() const {
  std::call_once(lazy_->lines_once, [this] {
    const auto sections = FindSections(lazy_->object);
    if (sections.ok()) {
      lazy_->lines.emplace(dwarf::ReadLines(*sections));
    } else {
      lazy_->lines.emplace(sections.status());
    }
  });
  return *lazy_->lines;
}

}  // namespace rjdbi::patch
