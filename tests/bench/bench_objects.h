// What the benchmarks share: real library objects to work on, programs run
// beside the measured code, medians.
#ifndef TESTS_BENCH_BENCH_OBJECTS_H_
#define TESTS_BENCH_BENCH_OBJECTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace rjdbi::bench {

// An object of Debian's librocsparse, as a file of its own too: other programs
// are run on it.
struct BenchObject {
  std::string target, size_class;  // "gfx90a", "median"
  std::string file;
  absl::Span<const uint8_t> bytes;
};

// By size among the objects for a target with XNACK off: "small" is the tenth percentile, "median"
// the median, "large" the largest below 4 MB, "largest" the largest. Ends the program, with a
// message, if the library cannot be read. The reference lives until the program ends.
const BenchObject& FindObject(const std::string& target, const std::string& size_class);

// Of the same objects every so manieth, by size, the largest among them.
std::vector<BenchObject> EveryObject(const std::string& target, size_t every);

struct RunResult {
  bool ok = false;  // exit code 0
  double seconds = 0, cpu_seconds = 0;
  std::string out;
};
// Runs a program, stderr discarded, "NAME=value" strings added to the
// environment. Without `keep_output` stdout goes to /dev/null.
RunResult Run(const std::vector<std::string>& command, const std::vector<std::string>& environment,
              bool keep_output);

double Median(std::vector<double> values);  // 0 of an empty vector
double Seconds();                           // monotonic
double CpuSeconds();                        // of this process

// RJDBI_BENCH_ROUNDS overrides how often interleaved measurements are repeated.
int Rounds(int normal);

}  // namespace rjdbi::bench

#endif  // TESTS_BENCH_BENCH_OBJECTS_H_
