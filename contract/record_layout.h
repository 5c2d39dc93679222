// How to read records, as the engine says it and as it travels.
#ifndef CONTRACT_RECORD_LAYOUT_H_
#define CONTRACT_RECORD_LAYOUT_H_

#include "patch/plan/record.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

v1::RecordLayout LayoutOf(const patch::RecordLayout& layout);

}  // namespace rjdbi::contract

#endif  // CONTRACT_RECORD_LAYOUT_H_
