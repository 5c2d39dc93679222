// Reads an emitted image back and follows every anchor, as a check on the
// rewriter that shares none of its arithmetic.
#ifndef PATCH_REWRITE_VERIFY_H_
#define PATCH_REWRITE_VERIFY_H_

#include <vector>

#include "absl/status/status.h"
#include "patch/codeobject/code_object.h"
#include "patch/rewrite/placement.h"

namespace rjdbi::patch {

// INTERNAL, naming the site: an anchor does not lead to its trampoline, the
// trampoline does not decode to its body, control does not come back right
// behind the displaced instruction, or an s_clause that was to be split is left.
absl::Status VerifyImage(const CodeObject& image, const std::vector<SiteCode>& sites);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_VERIFY_H_
