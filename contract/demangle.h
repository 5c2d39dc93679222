// Demangling of names that come from foreign files.
#ifndef CONTRACT_DEMANGLE_H_
#define CONTRACT_DEMANGLE_H_

#include <string>
#include <string_view>

namespace rjdbi::contract {

// The demangled name, or the name itself when it is not mangled, is longer than
// 1 KiB, or refers back to itself so often (more than 40 substitutions) that its
// demangled form could grow without bound.
std::string Demangle(std::string_view name);

// Of a demangled name: "reduce<float>" of "void reduce<float>(float*, int)".
std::string_view WithoutSignature(std::string_view demangled);

// Whether a glob matches a kernel's mangled or demangled name. A pattern without
// parentheses is also held against the demangled name without return type and
// parameters: "reduce<*>" matches "void reduce<float>(float*, int)".
bool KernelMatches(std::string_view glob, std::string_view name);

// The same for many globs: the name is demangled once.
class KernelName {
 public:
  explicit KernelName(std::string_view name);
  bool Matches(std::string_view glob) const;

 private:
  std::string name_, demangled_;  // the latter empty: not mangled
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_DEMANGLE_H_
