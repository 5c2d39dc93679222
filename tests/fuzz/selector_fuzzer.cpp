// libFuzzer entry: selectors. What parses must parse again from its own text, and
// an error's column must lie in the text or right behind it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "patch/analysis/selector.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using rjdbi::patch::Selector;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  rjdbi::patch::SelectorError error;
  const auto selector = Selector::Parse(text, &error);
  if (selector.ok()) {
    if (!Selector::Parse(selector->text()).ok()) std::abort();
  } else if (error.column < 1 || error.column > size + 1) {
    std::abort();
  }
  return 0;
}
