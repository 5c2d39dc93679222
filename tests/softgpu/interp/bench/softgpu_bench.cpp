// Interpretation speed: lane-instructions per second, on kernels of different
// character. "lane_instructions" is the rate; the first argument is the number
// of work-items.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/softgpu/interp/test_loader.h"

namespace softgpu {
namespace {

struct Rig {
  RangeMemory memory;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<LoadedObject> object;

  bool Init(const std::string& target, benchmark::State& state) {
    std::string error;
    machine = Machine::Create(target, 1, &memory, &error);
    const std::string path = std::string(SOFTGPU_KERNEL_DIR) + "/kernels-" + target + ".co";
    if (machine) object = LoadedObject::Load(ReadBinaryFile(path), &memory, &error);
    if (!object) state.SkipWithError(error.c_str());
    return object != nullptr;
  }
  bool Run(const char* kernel, const KernelArgs& args, uint32_t items, uint32_t group,
           benchmark::State& state) {
    const Fault fault = Launch(*machine, memory, object->Descriptor(kernel), args,
                               {.grid = {items, 1, 1}, .workgroup = {group, 1, 1}});
    if (fault.kind != Fault::Kind::kNone) state.SkipWithError(fault.what.c_str());
    return fault.kind == Fault::Kind::kNone;
  }
  void Report(benchmark::State& state) const {
    state.counters["lane_instructions"] = benchmark::Counter(
        static_cast<double>(machine->LaneInstructions()), benchmark::Counter::kIsRate);
  }
};

void VectorAdd(benchmark::State& state, const char* target) {
  const auto count = static_cast<uint32_t>(state.range(0));
  Rig rig;
  if (!rig.Init(target, state)) return;
  DeviceBuffer<float> a(rig.memory, count, 1.5f), b(rig.memory, count, 2.0f), c(rig.memory, count);
  const auto args = KernelArgs().Add(a.data()).Add(b.data()).Add(c.data()).Add(count);
  for (auto _ : state) {
    if (!rig.Run("vadd", args, count, 256, state)) return;
  }
  rig.Report(state);
}

void Divergent(benchmark::State& state, const char* target) {
  const auto count = static_cast<uint32_t>(state.range(0));
  Rig rig;
  if (!rig.Init(target, state)) return;
  DeviceBuffer<uint32_t> in(rig.memory, count), steps(rig.memory, count);
  for (uint32_t i = 0; i < count; ++i) in[i] = i + 1;
  const auto args = KernelArgs().Add(in.data()).Add(steps.data());
  for (auto _ : state) {
    if (!rig.Run("collatz", args, count, 64, state)) return;
  }
  rig.Report(state);
}

void Reduction(benchmark::State& state, const char* target) {
  const auto count = static_cast<uint32_t>(state.range(0));
  Rig rig;
  if (!rig.Init(target, state)) return;
  DeviceBuffer<uint32_t> in(rig.memory, count, 1), out(rig.memory, count / 256);
  const auto args = KernelArgs().Add(in.data()).Add(out.data());
  for (auto _ : state) {
    if (!rig.Run("reduce", args, count, 256, state)) return;
  }
  rig.Report(state);
}

BENCHMARK_CAPTURE(VectorAdd, gfx90a, "gfx90a")->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(VectorAdd, gfx1030, "gfx1030")->Arg(1 << 20)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Reduction, gfx90a, "gfx90a")->Arg(1 << 16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Reduction, gfx1030, "gfx1030")->Arg(1 << 16)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Divergent, gfx90a, "gfx90a")->Arg(1 << 12)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Divergent, gfx1030, "gfx1030")->Arg(1 << 12)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace softgpu
