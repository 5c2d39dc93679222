// A user's probe at a site that no kernel has: every register holds something that
// the application needs, and addresses are sums of all parts that they can have.
// For judging a probe before there is a kernel.
#ifndef PATCH_REWRITE_USER_SAMPLE_H_
#define PATCH_REWRITE_USER_SAMPLE_H_

#include "absl/status/statusor.h"
#include "patch/isa/isa.h"
#include "patch/isa/register_set.h"
#include "patch/probe/user_probe.h"
#include "patch/rewrite/assembly_cache.h"

namespace rjdbi::patch {

struct UserSample {
  ProbeSequence sequence;  // its telemetry words are those from 0 on
  RegisterSet live;        // where it starts
};

// RESOURCE_EXHAUSTED: the probe needs more registers than there are.
absl::StatusOr<UserSample> SampleUserSequence(const UserProbe& probe, Isa& isa);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_USER_SAMPLE_H_
