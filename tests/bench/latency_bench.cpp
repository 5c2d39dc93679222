// What a load waits for, as ratios: a decision that rjdbid has kept, beside the hash of
// the object (which the agent computes anyway); and the whole admission, beside the
// patching alone of what it admits.
#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "contract/admission.h"
#include "daemon/blob_store.h"
#include "daemon/decider.h"
#include "daemon/digest.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/analysis/selector.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/isa.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/bench/bench_objects.h"

namespace rjdbi::bench {
namespace {

std::vector<v1::Attachment> CountWaves() {
  v1::Attachment attachment;
  attachment.set_id("a1");
  attachment.mutable_spec()->set_kernel_glob("*");
  attachment.mutable_spec()->set_sites("memory");
  attachment.mutable_spec()->set_probe("count-waves");
  return {attachment};
}

// Every site is attached, so that both sides patch the same.
contract::Policy Unlimited() {
  contract::Policy policy = contract::DefaultPolicy();
  policy.defaults = policy.ceiling = v1::Budget();
  return policy;
}

// ---- A kept decision -------------------------------------------------------------

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/rjdbi-bench-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using Answer = absl::StatusOr<daemon::DecisionPtr>;

template <typename Ask>
Answer Await(Ask&& ask) {
  std::promise<Answer> promise;
  ask([&](Answer answer) { promise.set_value(std::move(answer)); });
  return promise.get_future().get();
}

// `in_place`: a process holds the decision; else it is read from disk and verified.
void Cached(benchmark::State& state, const std::string& target, const std::string& size_class,
            bool in_place) {
  const BenchObject& object = FindObject(target, size_class);
  const auto bytes = std::make_shared<const std::string>(object.bytes.begin(), object.bytes.end());
  const auto question = std::make_shared<const daemon::Question>(
      daemon::Question::Make(daemon::Sha256(*bytes), CountWaves()));
  const contract::Policy policy = Unlimited();
  const Folder folder;
  daemon::BlobStore store(folder.path(), uint64_t{1} << 32);
  daemon::Decider decider(store, 1);
  Answer first = Await([&](auto done) { decider.Decide(question, policy, bytes, done); });
  if (!first.ok() || (*first)->patched.empty()) return state.SkipWithError("nothing was patched");
  const double image = static_cast<double>((*first)->patched.size());
  if (!in_place) first = daemon::DecisionPtr();

  std::vector<double> lookup, hash;
  for (auto _ : state) {
    double start = Seconds();
    Answer again = Await([&](auto done) { decider.Lookup(question, policy, done); });
    lookup.push_back(Seconds() - start);
    if (!again.ok() || *again == nullptr) return state.SkipWithError("the cache forgot");
    state.SetIterationTime(lookup.back());
    again = daemon::DecisionPtr();
    start = Seconds();
    benchmark::DoNotOptimize(daemon::Sha256(*bytes));
    hash.push_back(Seconds() - start);
  }
  state.counters["times_hash"] = Median(lookup) / Median(hash);
  state.counters["hash_ms"] = Median(hash) * 1e3;
  state.counters["image_growth_x"] = image / static_cast<double>(bytes->size());
  state.counters["object_MB"] = static_cast<double>(bytes->size()) / 1e6;
}

// ---- Contract and validation ----------------------------------------------------------

// What a tool without a contract would do: plan every site that it can, and emit.
// Returns the number of sites in the image.
size_t PatchAlone(absl::Span<const uint8_t> bytes) {
  const auto object = patch::CodeObject::Parse(bytes);
  const auto selector = patch::Selector::Parse("memory");
  if (!object.ok() || !selector.ok()) return 0;
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas;
  std::vector<std::unique_ptr<patch::KernelAnalysis>> analyses;
  std::vector<const patch::KernelAnalysis*> kernels;
  std::vector<patch::SitePlan> plans;
  patch::ObjectFacts facts;
  uint32_t counter = 0;
  for (size_t k = 0; k < object->kernels().size(); ++k) {
    const uint32_t wave = object->kernels()[k].wavefront_size;
    if (isas[wave] == nullptr) {
      auto isa = patch::Isa::Create(object->target(), wave);
      if (!isa.ok()) return 0;
      isas[wave] = *std::move(isa);
    }
    auto analysis = patch::KernelAnalysis::Create(*object, k, *isas[wave], &facts);
    if (!analysis.ok()) continue;
    const patch::KernelAnalysis& kernel = **analysis;
    patch::ProbeRequest request;
    request.probe = patch::Probe::kCountWaves;
    request.max_sgpr_delta = request.max_vgpr_delta = 512;
    request.placement =
        kernel.CloneObstacle() ? patch::Placement::kTrampoline : patch::Placement::kClone;
    for (const uint32_t i : selector->Select(kernel).instructions) {
      request.counter_index = counter;
      auto plan = rewriter->Plan(kernel, i, request);
      auto* planned = std::get_if<patch::SitePlan>(&plan);
      if (planned == nullptr) continue;
      ++counter;
      plans.push_back(std::move(*planned));
    }
    kernel.ReleaseSets();
    kernels.push_back(&kernel);
    analyses.push_back(*std::move(analysis));
  }
  const auto result = rewriter->Emit(*object, kernels, plans);
  if (!result.ok() || result->image.empty()) return 0;
  size_t placed = 0;
  for (const patch::EmittedSite& site : result->sites) placed += site.refusal ? 0 : 1;
  return placed;
}

void Contract(benchmark::State& state, const std::string& target, const std::string& size_class) {
  const BenchObject& object = FindObject(target, size_class);
  const auto attachments = CountWaves();
  const contract::Policy policy = Unlimited();
  std::vector<double> whole, alone;
  for (auto _ : state) {
    double start = CpuSeconds();
    const auto rewriter = patch::MakeTrampolineRewriter();
    uint64_t attached = 0;
    {
      const auto admission = contract::Admit(object.bytes, attachments, policy, *rewriter);
      for (const v1::Coverage& row : admission.record.coverage()) {
        attached += row.attached() + row.degraded();
      }
    }
    whole.push_back(CpuSeconds() - start);
    state.SetIterationTime(whole.back());
    start = CpuSeconds();
    const size_t placed = PatchAlone(object.bytes);
    alone.push_back(CpuSeconds() - start);
    if (attached == 0 || placed < attached) return state.SkipWithError("the sites differ");
    state.counters["sites"] = static_cast<double>(attached);
  }
  state.counters["times_patching"] = Median(whole) / Median(alone);
  state.counters["patching_ms"] = Median(alone) * 1e3;
  state.counters["object_MB"] = static_cast<double>(object.bytes.size()) / 1e6;
}

void RegisterAll() {
  for (const std::string target : {"gfx90a", "gfx1030"}) {
    for (const std::string size : {"small", "median", "largest"}) {
      const std::string where = "/" + target + "/" + size;
      const auto add = [&](const std::string& name, auto... arguments) {
        benchmark::RegisterBenchmark((name + where).c_str(), arguments...)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      };
      add("cached_on_disk", Cached, target, size, false);
      add("cached_in_place", Cached, target, size, true);
      add("contract", Contract, target, size);
    }
  }
}

}  // namespace
}  // namespace rjdbi::bench

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);  // a line for each decision is no figure
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  rjdbi::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
