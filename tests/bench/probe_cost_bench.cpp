// What probes add on the device, as instruction counts of the soft GPU: how many
// wavefront-instructions a program executes instrumented, against plain. It is
// not time: real hardware overlaps some of them, and waits for others. Time is
// what the column of that name says of the soft GPU's interpreter, nothing else.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/bench/bench_objects.h"
#include "tests/daemon/harness.h"

namespace rjdbi::bench {
namespace {

struct Executed {
  double waves = 0, lanes = 0;  // instructions issued; the same per active lane
  double seconds = 0;
};

// Adds up a journal; its format is described in tests/softgpu/thunk/counts.h.
// Code that no code object holds is ROCR's own: not the program's.
Executed ReadJournal(const std::string& path) {
  Executed total;
  std::ifstream journal(path);
  for (std::string line; std::getline(journal, line);) {
    std::istringstream words(line);
    std::string kind, kernel, code, address;
    double waves = 0, lanes = 0;
    if (!(words >> kind >> kernel >> code >> address >> waves >> lanes) || kind != "pc") continue;
    if (code.size() >= 2 && code.compare(code.size() - 2, 2, ".0") == 0) continue;
    total.waves += waves;
    total.lanes += lanes;
  }
  return total;
}

Executed RunProgram(const std::string& program, const std::string& target,
                    std::vector<std::string> environment) {
  const tests::TemporaryFolder folder;
  const std::string counts = folder.path() + "/counts";
  for (const std::string& variable :
       {std::string("LD_LIBRARY_PATH=" RJDBI_BINARY_DIR "/softgpu"), "SOFTGPU_TARGET=" + target,
        std::string("SOFTGPU_SEED=1"), "SOFTGPU_COUNTS=" + counts}) {
    environment.push_back(variable);
  }
  const RunResult run =
      Run({RJDBI_BINARY_DIR "/tests/programs/" + program}, environment, /*keep_output=*/true);
  if (!run.ok || run.out.find("PASS") == std::string::npos) return {};
  Executed executed = ReadJournal(counts);
  executed.seconds = run.seconds;
  return executed;
}

// The plain run of a program, made once.
const Executed& Plain(const std::string& program, const std::string& target) {
  static std::map<std::string, Executed> made;
  auto [it, fresh] = made.try_emplace(program + target);
  if (fresh) it->second = RunProgram(program, target, {});
  return it->second;
}

void ProbeCost(benchmark::State& state, const std::string& program, const std::string& target,
               const std::string& probe) {
  const Executed& plain = Plain(program, target);
  if (plain.waves == 0) return state.SkipWithError("the plain run failed");
  tests::Daemon daemon;
  if (!daemon.Start() || !daemon.Attach("*", "memory", probe).has_attachment()) {
    return state.SkipWithError("rjdbid did not start");
  }
  Executed instrumented;
  for (auto _ : state) {
    instrumented = RunProgram(program, target,
                              {"LD_PRELOAD=" RJDBI_AGENT, "RJDBI_SOCKET=" + daemon.agent_socket(),
                               "RJDBI_DEADLINE_MS=60000"});
    state.SetIterationTime(instrumented.seconds);
  }
  if (instrumented.waves == 0) return state.SkipWithError("the instrumented run failed");
  const v1::GetReportReply report = daemon.Report();
  const v1::Coverage& total = report.coverage().total();
  const double attached = static_cast<double>(total.attached() + total.degraded());
  if (attached == 0) return state.SkipWithError("nothing was attached");
  state.counters["wave_instructions_x"] = instrumented.waves / plain.waves;
  state.counters["lane_instructions_x"] = instrumented.lanes / plain.lanes;
  state.counters["wave_instructions_plain"] = plain.waves;
  state.counters["sites_attached"] = attached;
  state.counters["sites_requested"] = static_cast<double>(total.requested());
  if (probe == "count-lanes") return;  // its counts are not of wavefronts
  double events = 0;                   // wavefronts at sites
  for (const v1::SiteCount& site : report.counts()) events += static_cast<double>(site.count());
  state.counters["events_percent"] = 100 * events / plain.waves;
  state.counters["added_per_event"] = (instrumented.waves - plain.waves) / events;
}

void RegisterAll() {
  for (const std::string program : {"vector_add", "reduction", "matmul"}) {
    for (const std::string target : {"gfx90a", "gfx1030"}) {
      for (const std::string probe : {"count-waves", "count-lanes", "block-count"}) {
        const std::string name = "instruction_count/" + program + "/" + target + "/" + probe;
        benchmark::RegisterBenchmark(name.c_str(), ProbeCost, program, target, probe)
            ->UseManualTime()
            ->Iterations(1)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace rjdbi::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  rjdbi::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
