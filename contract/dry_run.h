// Attachments that only ask (MODE_DRYRUN): what they would come to, as part of a
// record in which they have no part.
#ifndef CONTRACT_DRY_RUN_H_
#define CONTRACT_DRY_RUN_H_

#include <vector>

#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

bool IsDryRun(const v1::Attachment& attachment);

// Takes the decisions and the coverage of attachments for which `dry` is true out of
// `asked`, an admission of all, as what they would be, into `record`, an admission of
// the others. Sites that are refused stay refused.
void AddDryRuns(const v1::AdmissionRecord& asked, const std::vector<v1::Attachment>& attachments,
                v1::AdmissionRecord& record);

}  // namespace rjdbi::contract

#endif  // CONTRACT_DRY_RUN_H_
