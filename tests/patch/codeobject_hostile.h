// What the fuzzer and its replay do with one input: reader, then writer on
// whatever the reader accepts, then the reader on the writer's result.
#ifndef TESTS_PATCH_CODEOBJECT_HOSTILE_H_
#define TESTS_PATCH_CODEOBJECT_HOSTILE_H_

#include <string>

#include "absl/types/span.h"

namespace rjdbi::test {

struct HostileOutcome {
  bool parsed = false, written = false;
  std::string violation;  // empty: every promise was kept
};
HostileOutcome ExerciseCodeObject(absl::Span<const uint8_t> bytes);

}  // namespace rjdbi::test

#endif  // TESTS_PATCH_CODEOBJECT_HOSTILE_H_
