// Replays the fuzzer's corpus in ordinary builds: what was found once stays
// fixed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/patch/codeobject_hostile.h"

namespace rjdbi::test {
namespace {

TEST(CodeObjectCorpus, Replay) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(RJDBI_FUZZ_CORPUS)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_GE(paths.size(), 10u);
  size_t parsed = 0, written = 0;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
    const HostileOutcome outcome = ExerciseCodeObject(bytes);
    EXPECT_EQ(outcome.violation, "") << path;
    parsed += outcome.parsed;
    written += outcome.written;
  }
  // The corpus reaches beyond the first checks.
  EXPECT_GT(parsed, 3u);
  EXPECT_GT(written, 1u);
  EXPECT_LT(parsed, paths.size());
}

}  // namespace
}  // namespace rjdbi::test
