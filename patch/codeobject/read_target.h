// The processor and features that an ELF header names. Private to
// patch/codeobject.
#ifndef PATCH_CODEOBJECT_READ_TARGET_H_
#define PATCH_CODEOBJECT_READ_TARGET_H_

#include "absl/status/statusor.h"
#include "patch/codeobject/code_object.h"
#include "patch/codeobject/elf_format.h"

namespace rjdbi::patch {

// UNIMPLEMENTED: an ABI version or a machine that is not supported.
absl::StatusOr<TargetId> ReadTarget(const elf::FileHeader& header);

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_READ_TARGET_H_
