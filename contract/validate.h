// The last word before an image is shipped: the patched bytes against the
// original and the plans that were admitted. Shares the parser and the decoder
// with the rewriter, and none of its planning: it has to be able to catch the
// rewriter's mistakes.
#ifndef CONTRACT_VALIDATE_H_
#define CONTRACT_VALIDATE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "contract/kernel_code.h"
#include "contract/waitcheck.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"

namespace rjdbi::contract {

struct ValidationFinding {
  std::string what;             // one sentence
  uint64_t vaddr = 0;           // where, in the image; 0: the file as a whole
  std::string_view constraint;  // of the catalogue; empty: RJD-O007
};

// A wait that the original lacks, whatever is attached: the application's own.
struct ApplicationWait {
  size_t kernel_index = 0;
  WaitFinding wait;  // addresses in the original
};

struct ValidationReport {
  std::vector<ValidationFinding> findings;  // empty: the image is what was admitted
  // By plan: instructions executed per event, counted along the validated path
  // (jumps included, displaced instruction excluded). 0: refused by Emit.
  std::vector<uint32_t> executed_instructions;
  // Of kernels with a placed site, where they show in the image: what a probe waits for
  // may stand in for what the application should have waited for.
  std::vector<ApplicationWait> application_waits;
};

// Checks that
//  - the image parses, with the same target, kernels and segments, plus one new
//    executable segment above all others;
//  - every original byte is unchanged, except ELF headers, the metadata note,
//    register fields and entry of descriptors of kernels with a placed site, the
//    anchors, split clauses, and branch words in gaps between functions that an
//    anchor leads to;
//  - each s_clause with a placed site in its run, and no other, is s_nop 0, in
//    the code that runs and, if the s_clause is a site itself, in its trampoline;
//  - a kernel whose entry moved runs from a copy in the new segment that equals
//    the kernel, anchors and split clauses apart, and whose code does not depend
//    on its address;
//  - each anchor leads by direct branches into the new segment, to exactly the
//    admitted sequences (fixup words apart) around the displaced instruction, each
//    at its position, and back by direct branches to the instruction after the
//    site; a displaced direct branch instead appears as its condition, if it has
//    one, and the ways to the instruction after the site and to its target; a
//    displaced s_endpgm is the end;
//  - a kernel planned as a clone runs from one: see validate_clone.h;
//  - in an image to be loaded beside the original (`beside`) there are clones alone, and
//    nothing that runs refers to the image's copy of the original;
//  - every sequence keeps hazards apart at its seams: see seams.h;
//  - no wait is missing that is not missing in the original, too: see waitcheck.h;
//  - every register that the trampoline names lies within the kernel's new
//    allocation, and no allocation shrank;
//  - the fixups of the image are exactly those of the placed sequences and, beside the
//    original, of the addresses in it that clones use.
// Of the engine's `kernels` their numbers and decoders count alone: what they are is
// decoded anew from `original`. `code`, if given, is of the same object and saves work.
// That the registers which plans took for dead are so is proven apart: see dead.h.
// Bounded by the size of the inputs; stops after 16 findings.
ValidationReport ValidateImage(const patch::CodeObject& original,
                               const std::vector<const patch::KernelAnalysis*>& kernels,
                               const std::vector<patch::SitePlan>& plans,
                               const patch::RewriteResult& result, bool beside = false,
                               ObjectCode* code = nullptr);

}  // namespace rjdbi::contract

#endif  // CONTRACT_VALIDATE_H_
