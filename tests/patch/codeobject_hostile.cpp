// Checks the promises of code_object.h and code_object_writer.h on any bytes.
#include "tests/patch/codeobject_hostile.h"

#include <vector>

#include "patch/codeobject/code_object.h"
#include "patch/codeobject/code_object_writer.h"

namespace rjdbi::test {
namespace {

using patch::CodeObject;
using patch::CodeObjectEdit;
using patch::Kernel;

bool DocumentedParseError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
         absl::IsResourceExhausted(status);
}
bool DocumentedWriteError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsResourceExhausted(status);
}

// Rows are disjoint, ascending, and have a file each.
std::string CheckLines(const CodeObject& object) {
  const auto& lines = object.debug_info().lines();
  if (!lines.ok()) {
    const bool documented =
        absl::IsNotFound(lines.status()) || absl::IsInvalidArgument(lines.status());
    return documented ? "" : lines.status().ToString();
  }
  uint64_t end = 0;
  for (const auto& row : lines->Overlapping(0, UINT64_MAX)) {
    if (row.begin < end || row.end <= row.begin) return "line table rows overlap";
    end = row.end;
    if (lines->FileName(row).size() > object.bytes().size()) return "file name out of range";
  }
  return "";
}

// Reads every byte that the object vouches for.
std::string CheckObject(const CodeObject& object) {
  if (std::string wrong = CheckLines(object); !wrong.empty()) return wrong;
  uint64_t sum = 0;
  for (const Kernel& kernel : object.kernels()) {
    if (object.AtVaddr(kernel.descriptor_vaddr, 64).size() != 64) return "descriptor out of range";
    const auto code = object.AtVaddr(kernel.entry_vaddr, kernel.code_size);
    if (kernel.code_size == 0 || code.size() != kernel.code_size) return "kernel out of range";
    for (uint8_t byte : code) sum += byte;
  }
  for (const CodeObject::Range& range : object.executable_ranges()) {
    const auto code = object.AtVaddr(range.begin, range.end - range.begin);
    if (code.size() != range.end - range.begin) return "executable range out of range";
    for (uint8_t byte : code) sum += byte;
  }
  // Keeps the reads from being optimised away.
  return sum == UINT64_MAX ? "impossible sum" : "";
}

CodeObjectEdit EditOf(const CodeObject& object) {
  CodeObjectEdit edit;
  edit.new_segment.assign(64, 0xbf);
  for (size_t i = 0; i < object.kernels().size() && i < 4; ++i) {
    const Kernel& kernel = object.kernels()[i];
    CodeObjectEdit::KernelChange change;
    change.descriptor = kernel.descriptor;
    change.descriptor.private_segment_fixed_size += 1000;
    change.vgpr_count = 200;
    change.agpr_count = 300;
    edit.kernels[i] = change;
    if (kernel.code_size >= 4) edit.overwrites.push_back({kernel.entry_vaddr, {0, 0, 0x80, 0xbf}});
  }
  return edit;
}

}  // namespace

HostileOutcome ExerciseCodeObject(absl::Span<const uint8_t> bytes) {
  HostileOutcome outcome;
  const auto object = CodeObject::Parse(bytes);
  if (!object.ok()) {
    if (!DocumentedParseError(object.status())) outcome.violation = object.status().ToString();
    return outcome;
  }
  outcome.parsed = true;
  outcome.violation = CheckObject(*object);
  if (!outcome.violation.empty()) return outcome;
  const auto vaddr = patch::NewSegmentVaddr(*object);
  const auto written = patch::WriteCodeObject(*object, EditOf(*object));
  if (!written.ok()) {
    if (!DocumentedWriteError(written.status())) outcome.violation = written.status().ToString();
    return outcome;
  }
  outcome.written = true;
  const auto again = CodeObject::Parse(*written);
  if (!again.ok()) {
    outcome.violation = "own result refused: " + again.status().ToString();
  } else if (again->kernels().size() != object->kernels().size()) {
    outcome.violation = "kernels lost";
  } else if (!vaddr.ok() || again->segments().back().vaddr != *vaddr) {
    outcome.violation = "new segment elsewhere than announced";
  }
  return outcome;
}

}  // namespace rjdbi::test
