// See the header.
#include "patch/probe/user_probe.h"

namespace rjdbi::patch {

std::vector<ArgumentWord> ArgumentWords(const UserProbe& probe) {
  std::vector<ArgumentWord> words;
  for (const ProbeArgument& argument : probe.arguments) {
    for (uint8_t word = 0; word < argument.dwords; ++word) words.push_back({&argument, word});
  }
  return words;
}

}  // namespace rjdbi::patch
