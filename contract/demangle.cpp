// See demangle.h. A substitution stands for a part of the name already printed,
// so n of them can make the output grow like 3^(n/3): bounded before the call.
#include "contract/demangle.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "patch/analysis/selector.h"

namespace rjdbi::contract {
namespace {

constexpr size_t kMaxName = 1024;
constexpr int kMaxReferences = 40;

// "S_", "S1A_", "T_", "T0_"
int CountReferences(std::string_view name) {
  int count = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != 'S' && name[i] != 'T') continue;
    size_t j = i + 1;
    while (j < name.size() && (std::isdigit(static_cast<unsigned char>(name[j])) != 0 ||
                               (name[j] >= 'A' && name[j] <= 'Z'))) {
      ++j;
    }
    if (j < name.size() && name[j] == '_') ++count;
  }
  return count;
}

}  // namespace

std::string_view WithoutSignature(std::string_view name) {
  int depth = 0;
  size_t end = name.size(), begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth == 0 && c == ' ') begin = i + 1;
    if (depth == 0 && c == '(' && name.substr(i, 21) != "(anonymous namespace)") {
      end = i;
      break;
    }
  }
  return begin < end ? name.substr(begin, end - begin) : name;
}

std::string Demangle(std::string_view name) {
  const bool mangled = name.substr(0, 2) == "_Z";
  if (!mangled || name.size() > kMaxName || CountReferences(name) > kMaxReferences) {
    return std::string(name);
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : std::string(name);
}

KernelName::KernelName(std::string_view name) : name_(name), demangled_(Demangle(name)) {
  if (demangled_ == name_) demangled_.clear();
}

bool KernelName::Matches(std::string_view glob) const {
  if (patch::GlobMatch(glob, name_)) return true;
  if (demangled_.empty()) return false;
  if (patch::GlobMatch(glob, demangled_)) return true;
  if (glob.find('(') != std::string_view::npos) return false;
  return patch::GlobMatch(glob, WithoutSignature(demangled_));
}

bool KernelMatches(std::string_view glob, std::string_view name) {
  return patch::GlobMatch(glob, name) || KernelName(name).Matches(glob);
}

}  // namespace rjdbi::contract
