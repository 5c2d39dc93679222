// Sums of coverage, for the daemon's totals and for reports put together from
// several answers.
#ifndef CONTRACT_COVERAGE_H_
#define CONTRACT_COVERAGE_H_

#include <string_view>

#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Adds `sites` to the reason's count.
void CountReason(google::protobuf::RepeatedPtrField<v1::ReasonCount>& reasons, std::string_view id,
                 uint64_t sites);
// The numbers of `part`; names and hashes stay those of `total`.
void AddCoverage(v1::Coverage& total, const v1::Coverage& part);
// Whether every requested site is in exactly one of the sums: see Coverage.
bool Conserved(const v1::Coverage& coverage);
// Sites that are as they were asked to be; those of dry runs are.
uint64_t DoneSites(const v1::Coverage& coverage);
uint64_t RefusedSites(const v1::Coverage& coverage);

}  // namespace rjdbi::contract

#endif  // CONTRACT_COVERAGE_H_
