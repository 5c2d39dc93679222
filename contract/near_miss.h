// Names close to one that matched nothing: what was probably meant.
#ifndef CONTRACT_NEAR_MISS_H_
#define CONTRACT_NEAR_MISS_H_

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rjdbi::contract {

// The known names nearest to a glob, nearest first: those that it would match with
// other capitals, those that contain its letters (without *, ?, [..]), then those that
// differ by few letters (a third of its length at most). Ties in the names' order.
std::vector<std::string> ClosestNames(std::string_view glob, const std::set<std::string>& known,
                                      size_t most = 3);

// The same for kernels: mangled names are compared, and given back, demangled and
// without return type and parameters where the glob has no parentheses.
std::vector<std::string> ClosestKernels(std::string_view glob,
                                        const std::vector<std::string>& kernels, size_t most = 3);

// "did you mean a, b or c?"; "" for none.
std::string DidYouMean(const std::vector<std::string>& names);

}  // namespace rjdbi::contract

#endif  // CONTRACT_NEAR_MISS_H_
