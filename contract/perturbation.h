// What probes cost the kernels that carry them, added up over many code objects.
//
// Costs of a site are those of its decision. What a kernel lost is read from the
// descriptors before and after, not from what was decided, so that a loss that no
// decision declares is seen.
#ifndef CONTRACT_PERTURBATION_H_
#define CONTRACT_PERTURBATION_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "contract/admission.h"
#include "rjdbi/v1/perturbation.pb.h"

namespace rjdbi::contract {

class PerturbationTally {
 public:
  // One object with one attachment of `probe`, as Admit answered. Objects that
  // cannot be parsed count as refused, under the processor "".
  void Add(const std::string& probe, absl::Span<const uint8_t> original,
           const Admission& admission);
  // By probe, then processor, in natural order.
  std::vector<v1::Perturbation> Rows() const;

 private:
  struct Row {
    v1::Perturbation sums;
    std::map<uint32_t, uint64_t> injected;  // instructions -> sites
    struct Grown {
      uint64_t kernels = 0, sites = 0;
    };
    std::map<std::pair<std::string, uint32_t>, Grown> growth;
    struct Step {
      uint64_t kernels = 0, declared = 0;
    };
    std::map<std::pair<int32_t, int32_t>, Step> steps;
  };
  struct KernelSites;
  static void AddKernels(const std::map<std::string, KernelSites>& kernels,
                         absl::Span<const uint8_t> original, const Admission& admission, Row& row);

  std::map<std::pair<std::string, std::string>, Row> rows_;
};

// As a table for each row, for people.
std::string RenderPerturbation(const v1::Perturbation& row);

}  // namespace rjdbi::contract

#endif  // CONTRACT_PERTURBATION_H_
