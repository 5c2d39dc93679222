// Where a kernel's every lane is active: all that the wavefront began with, and no
// other lane ever is.
//
// Two lanes stand for all: one that was active at the kernel's entry, and one that was
// not. Of each set of lanes in EXEC, VCC or scalar registers it is known, or not, whether
// the first one is in it, and whether the second is; logic on sets is logic on these
// bits. What is not recognised is not known.
#ifndef CONTRACT_LANES_H_
#define CONTRACT_LANES_H_

#include <vector>

#include "contract/kernel_code.h"

namespace rjdbi::contract {

// By instruction: when it executes, EXEC holds every lane that it held at the kernel's
// entry, on every path. All false if a lane beyond these can be active or written
// anywhere, or where control is not known.
std::vector<bool> EveryLaneActive(const KernelCode& kernel);

}  // namespace rjdbi::contract

#endif  // CONTRACT_LANES_H_
