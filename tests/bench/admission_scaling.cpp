// How admission's time and memory grow with an object's size, over the objects of a
// library: count-waves at every memory instruction, each object in a process of its
// own, one thread. Prints a row for each and the straight lines that fit best; the
// constant part of the memory is mostly what LLVM touches once in a process.
//
// Usage: admission_scaling TARGET [EVERY]
//   TARGET  "gfx90a"; objects with XNACK on are left out
//   EVERY   take every so manieth object, by size (default 1)
// Exit code 1: memory does not grow in proportion to size.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "contract/admission.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/bench/bench_objects.h"

namespace rjdbi::bench {
namespace {

struct Row {
  double size = 0;              // MB, and all of them
  double cpu = 0, objdump = 0;  // seconds
  double peak = 0;              // on top of the object
  double sites = 0;
};

double ReadStatusMb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == key + ":" && status >> kib) return kib * 1024 / 1e6;
  }
  return 0;
}

// In the child: fills in what it measures.
Row Measure(absl::Span<const uint8_t> object) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  // The object's own pages are not admission's.
  volatile uint8_t touched = 0;
  for (size_t at = 0; at < object.size(); at += 4096) touched = touched ^ object[at];
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // Linux: a new peak begins
  Row row;
  const double before = ReadStatusMb("VmRSS"), start = CpuSeconds();
  const auto rewriter = patch::MakeTrampolineRewriter();
  const contract::Admission admission =
      contract::Admit(object, {attachment}, contract::DefaultPolicy(), *rewriter);
  row.cpu = CpuSeconds() - start;
  row.peak = ReadStatusMb("VmHWM") - before;
  for (const v1::Coverage& c : admission.record.coverage()) {
    row.sites += static_cast<double>(c.attached() + c.degraded());
  }
  return row;
}

// False: the child failed.
bool MeasureInChild(absl::Span<const uint8_t> object, Row& row) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    const Row measured = Measure(object);
    const bool written = write(ends[1], &measured, sizeof measured) == sizeof measured;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  const bool read_all = child > 0 && read(ends[0], &row, sizeof row) == sizeof row;
  close(ends[0]);
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  return read_all && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Least squares.
struct Line {
  double slope = 0, constant = 0, r2 = 0;
};
template <typename X, typename Y>
Line Fit(const std::vector<Row>& rows, X x, Y y) {
  const auto n = static_cast<double>(rows.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
  for (const Row& row : rows) {
    sx += x(row);
    sy += y(row);
    sxx += x(row) * x(row);
    sxy += x(row) * y(row);
    syy += y(row) * y(row);
  }
  const double vx = sxx - sx * sx / n, vy = syy - sy * sy / n, vxy = sxy - sx * sy / n;
  Line line;
  line.slope = vxy / vx;
  line.constant = (sy - line.slope * sx) / n;
  line.r2 = vxy * vxy / (vx * vy);
  return line;
}

int Main(const std::string& target, size_t every) {
  std::vector<Row> rows;
  std::printf("%10s %8s %10s %10s %8s %10s %8s\n", "object", "sites", "admission", "objdump",
              "times", "peak", "times");
  for (const BenchObject& object : EveryObject(target, every)) {
    Row row;
    if (!MeasureInChild(object.bytes, row)) {
      std::fprintf(stderr, "error: admission failed on %s\n", object.file.c_str());
      return 2;
    }
    row.size = static_cast<double>(object.bytes.size()) / 1e6;
    row.objdump = Run({RJDBI_OBJDUMP, "-d", object.file}, {}, /*keep_output=*/false).cpu_seconds;
    std::printf("%7.3f MB %8.0f %7.1f ms %7.1f ms %8.2f %7.1f MB %8.1f\n", row.size, row.sites,
                row.cpu * 1e3, row.objdump * 1e3, row.cpu / row.objdump, row.peak,
                row.peak / row.size);
    rows.push_back(row);
  }
  if (rows.size() < 3) {
    std::fprintf(stderr, "error: %zu objects are too few\n", rows.size());
    return 2;
  }
  const auto size = [](const Row& r) { return r.size; };
  const Line time = Fit(rows, size, [](const Row& r) { return r.cpu * 1e3; });
  const Line dump = Fit(rows, size, [](const Row& r) { return r.objdump * 1e3; });
  const Line memory = Fit(rows, size, [](const Row& r) { return r.peak; });
  std::printf("admission: %.1f ms + %.1f ms per MB, R^2 %.4f\n", time.constant, time.slope,
              time.r2);
  std::printf("objdump:   %.1f ms + %.1f ms per MB, R^2 %.4f; admission has %.2f times its slope\n",
              dump.constant, dump.slope, dump.r2, time.slope / dump.slope);
  std::printf("memory:    %.1f MB + %.2f times the object's size, R^2 %.4f\n", memory.constant,
              memory.slope, memory.r2);
  const bool linear = memory.r2 >= 0.9 && std::isfinite(time.slope) && time.slope > 0;
  if (!linear) std::fprintf(stderr, "error: memory is not linear in size\n");
  return linear ? 0 : 1;
}

}  // namespace
}  // namespace rjdbi::bench

int main(int argc, char** argv) {
  const int every = argc > 2 ? std::atoi(argv[2]) : 1;
  if (argc < 2 || argc > 3 || every < 1) {
    std::fprintf(stderr, "usage: admission_scaling TARGET [EVERY]\n");
    return 2;
  }
  return rjdbi::bench::Main(argv[1], static_cast<size_t>(every));
}
