// See placement_text.h.
#include "contract/placement_text.h"

#include <map>
#include <set>
#include <utility>

#include "contract/text.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::contract {
namespace {

using patch::Printable;

std::string Kernels(uint64_t n) { return StrCat(n, n == 1 ? " kernel" : " kernels"); }

}  // namespace

std::string RenderPlacements(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage) {
  struct Sum {
    uint64_t kernels = 0;
    int64_t bytes = 0;
  };
  std::map<v1::Placement, Sum> sums;
  std::map<std::string, uint64_t> reasons;
  std::set<std::pair<std::string, std::string>> seen;
  for (const v1::Coverage& c : coverage) {
    if (!c.has_placement() || !seen.insert({c.code_object_sha256(), c.kernel()}).second) continue;
    Sum& sum = sums[c.placement().placement()];
    ++sum.kernels;
    sum.bytes += c.placement().code_bytes();
    if (c.placement().has_not_cloned()) ++reasons[c.placement().not_cloned().message()];
  }
  std::string out;
  for (const auto& [placement, text] :
       {std::pair{v1::CLONE, "cloned with probes in line"}, {v1::TRAMPOLINE, "with trampolines"}}) {
    const Sum& sum = sums[placement];
    if (sum.kernels == 0) continue;
    StrAppend(&out, Kernels(sum.kernels), " ", text, ", ", sum.bytes, " bytes of code\n");
  }
  for (const auto& [message, kernels] : reasons) {
    StrAppend(&out, "  no clone of ", Kernels(kernels), ": ", Printable(message), "\n");
  }
  return out;
}

}  // namespace rjdbi::contract
