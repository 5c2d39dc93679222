// The record that a patched object carries (section .rjdbi): how to get the
// original back, byte for byte, which attachments it serves, and where its new
// code comes from. With it goes the naming of that code in the symbol table.
//
// In the file the record is
//   "RJDBI\0\0\0", format version (u32, 1), 0 (u32), size when inflated (u64),
//   size (u64), SHA-256 of what follows,
// and then a v1::PatchRecord, deflated (RFC 1950). Numbers are little-endian.
#ifndef CONTRACT_PATCH_RECORD_H_
#define CONTRACT_PATCH_RECORD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/code_object.h"
#include "patch/plan/rewriter.h"
#include "rjdbi/v1/patch_record.pb.h"

namespace rjdbi::contract {

// What AddPatchRecord has to know of a rewritten object.
struct PatchFacts {
  const patch::CodeObject& original;
  const std::vector<patch::SitePlan>& plans;
  const std::vector<patch::EmittedSite>& sites;
  const std::vector<patch::KernelOutcome>& kernels;
  std::vector<v1::PatchedAttachment> attachments;
  std::vector<uint32_t> attachment_of;       // by plan: index into `attachments`
  std::vector<uint32_t> instruction_offset;  // by plan: kernel offset of the site
};

// Adds the record and symbols ("<kernel>.rjdbi" for a clone or copy,
// "<kernel>.rjdbi.sites" for trampolines) to `image`, the rewriter's result, and
// source lines where the original has a line table.
// `record` is given as far as it is no matter of layout: engine version, hash.
// RESOURCE_EXHAUSTED: the image would become too large. FAILED_PRECONDITION: no
// room for section headers. On an error the image is of no use.
absl::Status AddPatchRecord(const PatchFacts& facts, v1::PatchRecord record,
                            std::vector<uint8_t>& image);

// The section's content. Exposed for tests.
std::vector<uint8_t> SealRecord(const v1::PatchRecord& record);

struct PatchedObject {
  v1::PatchRecord record;
  std::vector<uint8_t> original;
};

// The original in a patched object; its hash has been verified. nullopt: the
// bytes carry no patches of this engine (and may be anything).
// DATA_LOSS: the record is damaged or gone, or the bytes were changed since.
// UNIMPLEMENTED: a format of a later version.
// Work and memory are bounded by the size of `image`, whatever it says.
absl::StatusOr<std::optional<PatchedObject>> OpenPatched(absl::Span<const uint8_t> image);

// What bytes stand for: the original where they carry patches, else themselves.
class PlainObject {
 public:
  // `bytes` must outlive the result. Errors: those of OpenPatched and of
  // CodeObject::Parse.
  static absl::StatusOr<PlainObject> Parse(absl::Span<const uint8_t> bytes);

  const patch::CodeObject& object() const { return *object_; }
  const v1::PatchRecord* record() const { return patched_ ? &patched_->record : nullptr; }

 private:
  std::unique_ptr<PatchedObject> patched_;
  std::optional<patch::CodeObject> object_;
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_PATCH_RECORD_H_
