// What a process pays at load: the real ROCR on the soft GPU, without the rjdbi
// agent and with it, against a real rjdbid.
//
//   plain         without the agent
//   not_selected  agent and daemon; attachments that want nothing of the object
//   cached        agent and daemon; the patched image is in the daemon's cache
//   first         agent and daemon; nobody has seen the object: upload, admission
//
// The runs of one object are interleaved and every row shows a median. The
// column Time is that of one load; "over_plain" is its ratio to the plain load of
// the same object. A process's first load, with connection and session (and
// ROCR's own first-time work, plain or not), is a column of its own.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agent/sha256.h"
#include "tests/bench/bench_objects.h"
#include "tests/daemon/harness.h"

namespace rjdbi::bench {
namespace {

constexpr int kLoadsPerProcess = 8;

std::vector<std::string> PlainEnvironment(const std::string& target) {
  return {"LD_LIBRARY_PATH=" RJDBI_BINARY_DIR "/softgpu", "SOFTGPU_TARGET=" + target};
}

std::vector<std::string> AgentEnvironment(const std::string& target, const std::string& socket) {
  auto environment = PlainEnvironment(target);
  environment.push_back("LD_PRELOAD=" RJDBI_AGENT);
  environment.push_back("RJDBI_SOCKET=" + socket);
  // A first admission must not be cut short: that would measure the deadline.
  environment.push_back("RJDBI_DEADLINE_MS=300000");
  return environment;
}

// ---- Loads -----------------------------------------------------------------------

struct Samples {
  std::vector<double> first_load, later_load;  // seconds
};

bool RunLoads(const BenchObject& object, const std::vector<std::string>& environment, int loads,
              Samples* samples) {
  const RunResult run = Run({RJDBI_LOAD_PROGRAM, object.file, std::to_string(loads)}, environment,
                            /*keep_output=*/true);
  std::istringstream lines(run.out);
  double load = 0, destroy = 0;
  for (int i = 0; lines >> load >> destroy; ++i) {
    (i == 0 ? samples->first_load : samples->later_load).push_back(load * 1e-9);
  }
  return run.ok && samples->first_load.size() + samples->later_load.size() > 0;
}

bool StartWith(tests::Daemon& daemon, const std::string& kernels) {
  return daemon.Start() && daemon.Attach(kernels, "memory", "count-waves").has_attachment();
}

uint64_t PatchedLoads(tests::Daemon& daemon) {
  uint64_t patched = 0;
  const v1::GetStatusReply status = daemon.Status();
  for (const v1::Session& session : status.sessions()) patched += session.patched();
  return patched;
}

struct Measured {
  std::string problem;  // empty: complete
  std::map<std::string, Samples> modes;
  double hash_seconds = 0;
};

// Every mode once per round, so that noise falls on all of them alike.
Measured Measure(const BenchObject& object) {
  Measured m;
  const auto fail = [&m](const char* why) {
    m.problem = why;
    return m;
  };
  const int rounds = Rounds(7);
  tests::Daemon not_selected, cached;
  if (!StartWith(not_selected, "no_such_kernel") || !StartWith(cached, "*")) {
    return fail("rjdbid did not start");
  }
  const auto plain = PlainEnvironment(object.target);
  const auto selected_environment = AgentEnvironment(object.target, cached.agent_socket());
  const auto other_environment = AgentEnvironment(object.target, not_selected.agent_socket());
  Samples warm_up;
  if (!RunLoads(object, other_environment, 1, &warm_up) ||
      !RunLoads(object, selected_environment, 1, &warm_up)) {
    return fail("a load failed");
  }
  if (PatchedLoads(cached) != 1 || PatchedLoads(not_selected) != 0) {
    return fail("the daemons did not decide as expected");
  }
  std::vector<double> hashes;
  for (int round = 0; round < rounds; ++round) {
    if (!RunLoads(object, plain, kLoadsPerProcess, &m.modes["plain"]) ||
        !RunLoads(object, other_environment, kLoadsPerProcess, &m.modes["not_selected"]) ||
        !RunLoads(object, selected_environment, kLoadsPerProcess, &m.modes["cached"])) {
      return fail("a load failed");
    }
    const double start = Seconds();
    benchmark::DoNotOptimize(agent::Sha256({object.bytes.data(), object.bytes.size()}));
    hashes.push_back(Seconds() - start);
  }
  for (int round = 0; round < Rounds(3); ++round) {
    tests::Daemon fresh;
    Samples one;
    if (!StartWith(fresh, "*") ||
        !RunLoads(object, AgentEnvironment(object.target, fresh.agent_socket()), 1, &one)) {
      return fail("a first load failed");
    }
    if (PatchedLoads(fresh) != 1) return fail("a first load was not patched");
    m.modes["first"].later_load.push_back(one.first_load.front());
    m.modes["first"].first_load.push_back(one.first_load.front());
  }
  m.hash_seconds = Median(hashes);
  return m;
}

const Measured& MeasuredOf(const BenchObject& object) {
  static std::map<std::string, Measured> all;
  auto [it, fresh] = all.try_emplace(object.file);
  if (fresh) it->second = Measure(object);
  return it->second;
}

void Load(benchmark::State& state, const std::string& target, const std::string& size_class,
          const std::string& mode) {
  const BenchObject& object = FindObject(target, size_class);
  const Measured& m = MeasuredOf(object);
  if (!m.problem.empty()) return state.SkipWithError(m.problem.c_str());
  const Samples& plain = m.modes.at("plain");
  const Samples& own = m.modes.at(mode);
  const double base = Median(plain.later_load), load = Median(own.later_load);
  for (auto _ : state) state.SetIterationTime(load);
  state.counters["object_KB"] = static_cast<double>(object.bytes.size()) / 1e3;
  state.counters["over_plain_x"] = load / base;
  const double fastest = *std::min_element(own.later_load.begin(), own.later_load.end());
  const double fastest_plain = *std::min_element(plain.later_load.begin(), plain.later_load.end());
  state.counters["fastest_us"] = fastest * 1e6;
  state.counters["fastest_over_plain_x"] = fastest / fastest_plain;
  state.counters["first_in_process_us"] = Median(own.first_load) * 1e6;
  state.counters["first_in_process_over_plain_x"] =
      Median(own.first_load) / Median(plain.first_load);
  if (mode == "plain") return;
  state.counters["extra_us"] = (load - base) * 1e6;
  state.counters["fastest_extra_us"] = (fastest - fastest_plain) * 1e6;
  if (mode == "first") return;
  state.counters["extra_hash_us"] = m.hash_seconds * 1e6;
  state.counters["extra_other_us"] = (load - base - m.hash_seconds) * 1e6;
}

// ---- Process start --------------------------------------------------------------------

void ProcessStart(benchmark::State& state) {
  const std::vector<std::string> command = {"/bin/true"};
  const std::vector<std::string> preload = {"LD_PRELOAD=" RJDBI_AGENT};
  std::vector<double> plain, with_agent;
  for (int round = 0; round < Rounds(200); ++round) {
    const RunResult a = Run(command, {}, false), b = Run(command, preload, false);
    if (!a.ok || !b.ok) return state.SkipWithError("/bin/true failed");
    plain.push_back(a.seconds);
    with_agent.push_back(b.seconds);
  }
  for (auto _ : state) state.SetIterationTime(Median(with_agent));
  state.counters["plain_us"] = Median(plain) * 1e6;
  state.counters["extra_us"] = (Median(with_agent) - Median(plain)) * 1e6;
  state.counters["over_plain_x"] = Median(with_agent) / Median(plain);
}

void Add(const std::string& name, const std::function<void(benchmark::State&)>& f) {
  benchmark::RegisterBenchmark(name.c_str(), f)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  Add("process_start_with_agent", ProcessStart);
  for (const std::string size : {"small", "median", "large"}) {
    for (const std::string mode : {"plain", "not_selected", "cached", "first"}) {
      Add("load/gfx90a/" + size + "/" + mode,
          [size, mode](benchmark::State& state) { Load(state, "gfx90a", size, mode); });
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
