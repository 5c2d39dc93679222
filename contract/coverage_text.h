// What coverage says of attachments besides where they are in place, for people.
#ifndef CONTRACT_COVERAGE_TEXT_H_
#define CONTRACT_COVERAGE_TEXT_H_

#include <string>

#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Lines for each attachment, in their order: what its sites are expected to come to,
// the steps that were taken to stay within a budget, and that it is a dry run.
std::string RenderBudgetLines(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage);

// " = 2 unsupported + 1 over budget" of the sites that are refused, "" if none is;
// then ", 2 rotated out, 4 dry run (1 of them degraded: RJD-D003 x1)", what is not zero.
std::string RefusedParts(const v1::Coverage& coverage);
std::string LeftOutParts(const v1::Coverage& coverage);

// "would be attached, degraded": of a DRY_RUN decision.
std::string WouldBe(const v1::Decision& decision);

}  // namespace rjdbi::contract

#endif  // CONTRACT_COVERAGE_TEXT_H_
