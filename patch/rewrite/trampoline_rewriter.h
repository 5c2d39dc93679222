// The trampoline placement strategy: each anchor becomes a branch to new code in
// an appended segment.
#ifndef PATCH_REWRITE_TRAMPOLINE_REWRITER_H_
#define PATCH_REWRITE_TRAMPOLINE_REWRITER_H_

#include <memory>

#include "patch/plan/rewriter.h"

namespace rjdbi::patch {

std::unique_ptr<Rewriter> MakeTrampolineRewriter();

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_TRAMPOLINE_REWRITER_H_
