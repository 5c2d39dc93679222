// What is in a code object, for people: kernels, and places in them. The daemon
// and rjctl's offline verbs both answer from here.
#ifndef CONTRACT_INSPECT_H_
#define CONTRACT_INSPECT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/code_object.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::contract {

// Every kernel, from descriptors and metadata alone: no instruction count, and
// no occupancy for an unknown processor.
v1::ListKernelsReply SummariseKernels(const patch::CodeObject& object);

// Of an object that carries patches these describe the original, which is what
// would be admitted again.

// The kernels that a glob matches ("": all), instructions counted. Errors are
// those of PlainObject::Parse.
absl::StatusOr<v1::ListKernelsReply> InspectKernels(absl::Span<const uint8_t> object,
                                                    const std::string& kernel_glob);

// The places that a selector ("": every instruction) selects in those kernels.
// INVALID_ARGUMENT: the selector does not parse. Otherwise as above, except that
// a malformed object is DATA_LOSS. A kernel that cannot be analysed has no sites;
// a selector that the object has no answer for (source lines without a line table)
// is a violation in the reply.
absl::StatusOr<v1::ListSitesReply> InspectSites(absl::Span<const uint8_t> object,
                                                const std::string& kernel_glob,
                                                const std::string& selector);

// What an attachment that selects nothing of these kernels was probably meant for:
// kernels close to a glob that matches none, or opcodes and families close to those of
// the selector that none of the matched kernels has ("did you mean 'x'?"; "": nothing
// is near, or the object cannot be read).
std::string NearMiss(absl::Span<const uint8_t> object, const std::string& kernel_glob,
                     const std::string& selector);

// Adds to a refused decision's first violation the instructions around its site, the
// site's own marked, where the object (the one that was judged, or its original) has
// it: to the first `most`, where there are more to the first of each kernel and reason.
void AddExcerpts(absl::Span<const uint8_t> object, size_t most,
                 google::protobuf::RepeatedPtrField<v1::Decision>* decisions);

// Waits that are missing in the kernels that a glob matches. Errors as InspectKernels.
absl::StatusOr<v1::WaitCheckReply> InspectWaits(absl::Span<const uint8_t> object,
                                                const std::string& kernel_glob);

struct OffsetInspection {
  bool some_start_there = false;       // an instruction of one of the kernels
  std::vector<v1::Violation> missing;  // RJD-S012 of each of the others
};
// Whether an instruction of the kernels that a glob matches starts at `offset`.
absl::StatusOr<OffsetInspection> InspectOffset(absl::Span<const uint8_t> object,
                                               const std::string& kernel_glob, uint64_t offset);

}  // namespace rjdbi::contract

#endif  // CONTRACT_INSPECT_H_
