// What it costs to judge and patch an object: admission of count-waves at every
// memory instruction, its parts, and LLVM's disassembler beside it on the same
// object. All in one thread, and in CPU
// time on both sides, so that a busy machine disturbs it less. "times_objdump" is the figure to
// hold on to: it survives a change of machine.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "contract/admission.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/analysis/selector.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/isa.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/bench/bench_objects.h"

namespace rjdbi::bench {
namespace {

using benchmark::Counter;

// ---- Memory ------------------------------------------------------------------

// Starts a new peak: Linux resets VmHWM when 5 is written to clear_refs.
void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

double ReadStatusMb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == key + ":" && status >> kib) return kib / 1024;
  }
  return 0;
}

// ---- The parts -----------------------------------------------------------------

std::vector<v1::Attachment> CountWaves(const char* kernels) {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob(kernels);
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  return {attachment};
}

// An Isa per wavefront size, made on first use.
class Isas {
 public:
  explicit Isas(const patch::TargetId& target) : target_(target) {}
  patch::Isa& For(uint32_t wavefront_size) {
    auto& slot = wavefront_size == 32 ? wave32_ : wave64_;
    if (slot == nullptr) {
      auto made = patch::Isa::Create(target_, wavefront_size);
      if (made.ok()) slot = *std::move(made);
    }
    return *slot;
  }

 private:
  const patch::TargetId target_;
  std::unique_ptr<patch::Isa> wave32_, wave64_;
};

// Returns the number of instructions.
size_t DecodeAll(const patch::CodeObject& object) {
  Isas isas(object.target());
  size_t count = 0;
  for (const patch::Kernel& kernel : object.kernels()) {
    const auto code = object.AtVaddr(kernel.entry_vaddr, kernel.code_size);
    patch::Isa& isa = isas.For(kernel.wavefront_size);
    for (uint64_t offset = 0; offset + 4 <= code.size();) {
      const auto instruction = isa.Decode(code, offset);
      offset += instruction ? instruction->size : 4;
      ++count;
    }
  }
  return count;
}

// Decoding, control flow, liveness and loads in flight of every kernel.
size_t AnalyseAll(const patch::CodeObject& object) {
  Isas isas(object.target());
  size_t count = 0;
  for (size_t i = 0; i < object.kernels().size(); ++i) {
    auto kernel =
        patch::KernelAnalysis::Create(object, i, isas.For(object.kernels()[i].wavefront_size));
    if (!kernel.ok()) continue;
    count += (*kernel)->instructions().size();
    for (const patch::BasicBlock& block : (*kernel)->blocks()) {
      benchmark::DoNotOptimize((*kernel)->LiveBefore(block.first));
      benchmark::DoNotOptimize((*kernel)->PendingBefore(block.first));
    }
  }
  return count;
}

// ---- Benchmarks ------------------------------------------------------------------

double ObjdumpSeconds(const BenchObject& object) {
  const RunResult run = Run({RJDBI_OBJDUMP, "-d", object.file}, {}, /*keep_output=*/false);
  return run.ok ? run.cpu_seconds : 0;
}

// Times `work` and, beside it, the disassembler: turn by turn, as long as it has
// not been run often enough. The ratio is that of the medians.
constexpr size_t kEnoughObjdump = 7;
template <typename Work>
void MeasureBesideObjdump(benchmark::State& state, const BenchObject& object, Work&& work) {
  std::vector<double> own, other;
  for (auto _ : state) {
    const double start = CpuSeconds();
    work();
    own.push_back(CpuSeconds() - start);
    state.SetIterationTime(own.back());
    if (other.size() == kEnoughObjdump) continue;
    other.push_back(ObjdumpSeconds(object));
    if (other.back() <= 0) return state.SkipWithError("llvm-objdump failed");
  }
  state.counters["times_objdump"] = Median(own) / Median(other);
  state.counters["objdump_ms"] = Median(other) * 1e3;
  state.counters["object_MB"] = static_cast<double>(object.bytes.size()) / 1e6;
}

void PerSecond(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] = Counter(per_iteration, Counter::kIsIterationInvariantRate);
}

void Admit(benchmark::State& state, const std::string& target, const std::string& size_class) {
  const BenchObject& object = FindObject(target, size_class);
  const auto parsed = patch::CodeObject::Parse(object.bytes);
  if (!parsed.ok()) return state.SkipWithError(parsed.status().ToString().c_str());
  const double instructions = static_cast<double>(DecodeAll(*parsed));
  const auto attachments = CountWaves("*");
  const contract::Policy policy = contract::DefaultPolicy();
  uint64_t sites = 0, attached = 0;
  double growth = 0, peak = 0;
  ResetPeak();
  const double before = ReadStatusMb("VmRSS");
  MeasureBesideObjdump(state, object, [&] {
    const auto rewriter = patch::MakeTrampolineRewriter();
    const contract::Admission admission =
        contract::Admit(object.bytes, attachments, policy, *rewriter);
    sites = attached = 0;
    for (const v1::Coverage& row : admission.record.coverage()) {
      sites += row.requested();
      attached += row.attached() + row.degraded();
    }
    growth =
        static_cast<double>(admission.patched.size()) / static_cast<double>(object.bytes.size());
    peak = ReadStatusMb("VmHWM") - before;
  });
  if (attached == 0) return state.SkipWithError("nothing was attached");
  PerSecond(state, "instructions_per_s", instructions);
  PerSecond(state, "sites_per_s", static_cast<double>(sites));
  state.counters["sites"] = static_cast<double>(sites);
  state.counters["attached_percent"] =
      100 * static_cast<double>(attached) / static_cast<double>(sites);
  state.counters["image_growth_x"] = growth;
  state.counters["peak_MB"] = peak;
}

// What every object costs that no attachment wants anything of.
void AdmitNotSelected(benchmark::State& state, const std::string& target,
                      const std::string& size_class) {
  const BenchObject& object = FindObject(target, size_class);
  const auto attachments = CountWaves("no_such_kernel");
  const contract::Policy policy = contract::DefaultPolicy();
  MeasureBesideObjdump(state, object, [&] {
    const auto rewriter = patch::MakeTrampolineRewriter();
    benchmark::DoNotOptimize(contract::Admit(object.bytes, attachments, policy, *rewriter));
  });
}

void Parse(benchmark::State& state, const std::string& target, const std::string& size_class) {
  const BenchObject& object = FindObject(target, size_class);
  MeasureBesideObjdump(state, object,
                       [&] { benchmark::DoNotOptimize(patch::CodeObject::Parse(object.bytes)); });
}

void Part(benchmark::State& state, const std::string& target, const std::string& size_class,
          size_t (*part)(const patch::CodeObject&)) {
  const BenchObject& object = FindObject(target, size_class);
  const auto parsed = patch::CodeObject::Parse(object.bytes);
  if (!parsed.ok()) return state.SkipWithError(parsed.status().ToString().c_str());
  size_t count = 0;
  MeasureBesideObjdump(state, object, [&] { count = part(*parsed); });
  PerSecond(state, "instructions_per_s", static_cast<double>(count));
}

template <typename F, typename... Args>
void Register(const std::string& name, F f, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), f, args...)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  for (const std::string target : {"gfx90a", "gfx1030"}) {
    for (const std::string size : {"small", "median", "largest"}) {
      const std::string where = "/" + target + "/" + size;
      Register("admit" + where, Admit, target, size);
      Register("admit_not_selected" + where, AdmitNotSelected, target, size);
      Register("parse_only" + where, Parse, target, size);
      Register("decode_only" + where, Part, target, size, DecodeAll);
      Register("analysis_only" + where, Part, target, size, AnalyseAll);
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
