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

// Of the kernels that `loaded` cloned those without a switch: others have no code of their
// own any more. `object` are the original's bytes; kernels that it does not have are left
// out.
std::vector<v1::KernelRestore> OriginalKernels(absl::Span<const uint8_t> object,
                                               const v1::AdmissionRecord& loaded,
                                               const std::vector<contract::KernelSwitch>& switches);

}  // namespace rjdbi::daemon

#endif  // DAEMON_ORIGINAL_KERNELS_H_
