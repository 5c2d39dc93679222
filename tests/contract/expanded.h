// Admissions whose record has its decisions one by one, which is how tests look at
// them.
#ifndef TESTS_CONTRACT_EXPANDED_H_
#define TESTS_CONTRACT_EXPANDED_H_

#include <utility>

#include "contract/admission.h"
#include "contract/decisions.h"

namespace rjdbi::contract {

inline Admission WithDecisions(Admission admission) {
  admission.record = Expanded(std::move(admission.record));
  return admission;
}

}  // namespace rjdbi::contract

#endif  // TESTS_CONTRACT_EXPANDED_H_
