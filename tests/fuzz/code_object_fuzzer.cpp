// libFuzzer entry: code object reader and writer on any bytes. Start it with
// the corpus folder beside this file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/patch/codeobject_hostile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto outcome = rjdbi::test::ExerciseCodeObject({data, size});
  if (!outcome.violation.empty()) {
    std::fprintf(stderr, "%s\n", outcome.violation.c_str());
    std::abort();
  }
  return 0;
}
