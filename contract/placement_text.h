// How kernels run their probes, in a line or two for a person.
#ifndef CONTRACT_PLACEMENT_TEXT_H_
#define CONTRACT_PLACEMENT_TEXT_H_

#include <string>

#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Numbers of kernels by placement, the code they cost, and why some are no
// clones. Empty when no row says. Several rows of a kernel count once.
std::string RenderPlacements(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage);

}  // namespace rjdbi::contract

#endif  // CONTRACT_PLACEMENT_TEXT_H_
