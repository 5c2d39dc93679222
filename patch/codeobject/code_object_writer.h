// Writes a new code object from an old one: patched words, changed kernel
// descriptors and metadata, and one new executable segment at the end.
//
// Layout of the result (what ROCR accepts, measured): every original byte keeps
// its file offset and address, except patched ones. The GNU_STACK program
// header becomes the last PT_LOAD (R+X) with the highest vaddr, 4 KiB aligned;
// a section header ".rjdbi.text" covers it; a grown note moves to the end.
#ifndef PATCH_CODEOBJECT_CODE_OBJECT_WRITER_H_
#define PATCH_CODEOBJECT_CODE_OBJECT_WRITER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/codeobject/code_object.h"

namespace rjdbi::patch {

struct CodeObjectEdit {
  struct Bytes {
    uint64_t vaddr = 0;
    std::vector<uint8_t> bytes;
  };
  std::vector<Bytes> overwrites;     // in existing file-backed ranges, disjoint
  std::vector<uint8_t> new_segment;  // code for the new segment; empty: none
  // By index into CodeObject::kernels(). The metadata counts (.sgpr_count,
  // .vgpr_count, sizes) are made to agree with what is given here.
  struct KernelChange {
    KernelDescriptor descriptor;
    std::optional<uint32_t> sgpr_count, vgpr_count, agpr_count;
    std::optional<uint32_t> private_segment_fixed_size, group_segment_fixed_size;
  };
  std::map<size_t, KernelChange> kernels;
};

// Address at which the new segment will be placed, known before it is written.
// FAILED_PRECONDITION: no program header can be recycled.
absl::StatusOr<uint64_t> NewSegmentVaddr(const CodeObject& object);

// INVALID_ARGUMENT: an edit lies outside the file-backed image or overlaps
// another (headers, descriptors and the note count as edits where they change).
// FAILED_PRECONDITION: as above. RESOURCE_EXHAUSTED: the result is too large.
absl::StatusOr<std::vector<uint8_t>> WriteCodeObject(const CodeObject& object,
                                                     const CodeObjectEdit& edit);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_CODE_OBJECT_WRITER_H_
