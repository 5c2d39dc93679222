// Proof that a cloned kernel is the original with the admitted sequences in
// between and nothing else. Shares the decoder with the rewriter, none of its
// layout: it walks both codes side by side.
#ifndef CONTRACT_VALIDATE_CLONE_H_
#define CONTRACT_VALIDATE_CLONE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "contract/kernel_code.h"
#include "contract/validate.h"
#include "patch/plan/rewriter.h"

namespace rjdbi::contract {

struct CloneProof {
  std::vector<ValidationFinding> findings;  // empty: proven
  // By plan index: where its sequence lies, and how many instructions run per
  // event at its instruction (all plans of the instruction together).
  std::map<size_t, uint64_t> sequences;
  std::map<size_t, uint32_t> executed;
  // In an image beside the original: the words of addresses that it needs, by their
  // offset from `base`.
  std::vector<patch::WordFixup> fixups;
};

// `code`: the new segment's bytes from the kernel's new entry at `base` on.
// `wanted`: indices into `plans` of those for this kernel, ascending. `claimed`:
// what the rewriter says it did; only its map is used, as a hint that is checked.
//
// Proven is that
//  - each original instruction stands in the clone, in order, once, where the
//    map says: byte by byte, or
//      as the same branch to the place in front of the sequences that precede
//        the clone of the original's target,
//      as part of an s_getpc_b64 sum that gives the same absolute address; in an
//        image beside the original, s_mov_b64 0 and additions of two words that the
//        agent fills with that address in the loaded original,
//      as an s_clause that covers what the original covered up to the first
//        sequence in its run, or s_nop 0 where that is less than two,
//      as an s_delay_alu without hints for instructions behind a sequence;
//  - in between are exactly the admitted sequences (fixup words apart), the
//    s_clause of a clause's later part, and s_nop 0 between a sequence and the
//    message that deallocates VGPRs (gfx11 and later) or behind a branch (gfx10.1);
//  - control cannot leave the clone, nor enter it otherwise than at `base`;
//  - what an s_getpc_b64 sum carries is not read.
// In an image beside the original nothing else of a clone depends on where it lies: the
// copy of the original in its image is not referred to.
// Linear in the kernel's size; stops at the first finding of the walk.
CloneProof ProveClone(const KernelCode& kernel, const std::vector<patch::SitePlan>& plans,
                      const std::vector<size_t>& wanted, const patch::KernelOutcome& claimed,
                      absl::Span<const uint8_t> code, uint64_t base, bool beside = false);

}  // namespace rjdbi::contract

#endif  // CONTRACT_VALIDATE_CLONE_H_
