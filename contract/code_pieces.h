// What the new code of a patched object stands for, piece by piece: from what
// the rewriter reports, to columns in the record, and back.
#ifndef CONTRACT_CODE_PIECES_H_
#define CONTRACT_CODE_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/codeobject/code_object.h"
#include "rjdbi/v1/patch_record.pb.h"

namespace rjdbi::contract {

struct PatchFacts;

// Owners, as CodeRun.owners has them.
inline constexpr uint32_t kApplicationCode = 0, kEngineCode = 1, kFirstAttachment = 2;

struct Piece {
  uint64_t vaddr = 0;
  uint32_t size = 0;
  uint32_t owner = kApplicationCode;
  uint32_t original = 0;  // kernel offset: of the code, or of the site's instruction
  uint32_t kernel = 0;    // index into CodeObject::kernels()
};

// By address, disjoint.
std::vector<Piece> PiecesOf(const PatchFacts& facts);

void EncodePieces(const std::vector<Piece>& pieces, const PatchFacts& facts, uint64_t segment_vaddr,
                  v1::PatchRecord& record);
// By address, disjoint, inside the segment, of kernels and attachments that exist,
// with offsets inside their kernels. DATA_LOSS: the record says something else.
absl::StatusOr<std::vector<Piece>> DecodePieces(const v1::PatchRecord& record,
                                                const patch::CodeObject& original);

}  // namespace rjdbi::contract

#endif  // CONTRACT_CODE_PIECES_H_
