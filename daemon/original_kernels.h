// The application's own form of kernels that were patched when they were loaded: what a
// process needs to run them as they were, while the patched object stays loaded.
#ifndef DAEMON_ORIGINAL_KERNELS_H_
#define DAEMON_ORIGINAL_KERNELS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "contract/admission.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::daemon {

// Kernels of the record with attached sites, by how they came to run them. Only clones
// leave the original's code as it was.
struct PatchedKernels {
  std::vector<std::string> clones, trampolines;
};
PatchedKernels KernelsPatchedBy(const v1::AdmissionRecord& record);

// Of `clones` those without a switch. `object` are the original's bytes; kernels that it
// does not have are left out.
std::vector<v1::KernelRestore> OriginalKernels(absl::Span<const uint8_t> object,
                                               const std::vector<std::string>& clones,
                                               const std::vector<contract::KernelSwitch>& switches);

}  // namespace rjdbi::daemon

#endif  // DAEMON_ORIGINAL_KERNELS_H_
