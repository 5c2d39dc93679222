// Triton's kernels on the soft GPU, on every processor that it models: with a probe
// at every instruction that takes one, as clones and with trampolines, they compute
// what they computed, and the counters equal the soft GPU's own record. Kernels with
// preloaded arguments run under both kinds of firmware.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi {
namespace {

using patch::Placement;
using patch::Probe;
using patch::SitePlan;
using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::RangeMemory;

constexpr uint32_t kElements = 4096, kUsed = 2900, kGroups = 3;

struct Outcome {
  Fault fault;
  std::vector<float> out;
  std::map<uint64_t, softgpu::PcCount> counts;  // by vaddr
};

// Every kernel takes one or two inputs, the output, perhaps a count, and two pointers
// that it does not use.
Outcome Execute(const std::string& target, const std::string& kernel, uint32_t group,
                RangeMemory& memory, const std::vector<uint8_t>& elf, bool preloads) {
  Outcome outcome;
  std::string error;
  auto object = softgpu::LoadedObject::Load(elf, &memory, &error);
  auto machine = softgpu::Machine::Create(target, 1, &memory, &error);
  EXPECT_TRUE(object && machine) << error;
  if (!object || !machine) return outcome;
  machine->SetPreloads(preloads);
  DeviceBuffer<float> x(memory, kElements), y(memory, kElements), out(memory, kElements);
  for (uint32_t i = 0; i < kElements; ++i) {
    x[i] = static_cast<float>(i % 97) * 0.25f - 9;
    y[i] = static_cast<float>(i % 31) * 0.5f;
  }
  softgpu::KernelArgs args;
  args.Add(x.data());
  if (kernel == "add") args.Add(y.data());
  args.Add(out.data());
  if (kernel == "add") args.Add(kUsed);
  if (kernel == "softmax") args.Add(uint32_t{900});
  args.Add(uint64_t{0}).Add(uint64_t{0});
  softgpu::LaunchShape shape;
  shape.workgroup[0] = group;
  shape.grid[0] = kGroups * group;
  outcome.fault = softgpu::Launch(*machine, memory, object->Descriptor("k_" + kernel), args, shape);
  outcome.out = out.contents();
  for (const auto& [pc, count] : machine->Counts()) outcome.counts[pc - object->bias()] = count;
  return outcome;
}

using Variant = std::tuple<std::string, std::string, Placement>;
class TritonKernels : public testing::TestWithParam<Variant> {};

TEST_P(TritonKernels, ComputeTheSame) {
  const auto& [target, name, placement] = GetParam();
  const auto bytes = softgpu::ReadBinaryFile(std::string(RJDBI_SOURCE_DIR) +
                                             "/tests/corpus/triton/" + name + "-" + target + ".co");
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  const patch::KernelAnalysis& kernel = loaded.Kernel("k_" + name);
  const uint32_t group = kernel.kernel().metadata.max_flat_workgroup_size.value_or(0);
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  std::vector<uint32_t> counted;  // instruction of each counter
  for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
    const auto plan = rewriter->Plan(kernel, i,
                                     {.probe = Probe::kCountWaves,
                                      .counter_index = static_cast<uint32_t>(counted.size()),
                                      .max_sgpr_delta = 32,
                                      .max_vgpr_delta = 16,
                                      .placement = placement});
    if (!std::holds_alternative<SitePlan>(plan)) continue;
    plans.push_back(std::get<SitePlan>(plan));
    counted.push_back(i);
  }
  EXPECT_GT(plans.size(), 50u);
  for (const bool preloads : {true, false}) {
    if (!preloads && kernel.preload_entry() == 0) continue;
    SCOPED_TRACE(preloads ? "firmware preloads" : "firmware does not preload");
    auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->kernels.size(), 1u);
    EXPECT_EQ(result->kernels[0].placement, placement);
    RangeMemory memory;
    const Outcome before = Execute(target, name, group, memory, bytes, preloads);
    ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
    EXPECT_NE(before.out, std::vector<float>(kElements, 0)) << "the kernel writes something";
    if (name == "add") {
      for (uint32_t i = 0; i < kUsed; ++i) {
        ASSERT_EQ(before.out[i],
                  static_cast<float>(i % 97) * 0.25f - 9 + static_cast<float>(i % 31) * 0.5f)
            << i;
      }
    }
    DeviceBuffer<uint64_t> counters(memory, counted.size());
    const auto base = reinterpret_cast<uint64_t>(counters.data());
    for (const auto& fixup : result->fixups) {
      const uint64_t address = base + fixup.addend;
      const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
      std::memcpy(result->image.data() + fixup.offset, &word, sizeof word);
    }
    const Outcome after = Execute(target, name, group, memory, result->image, preloads);
    ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
    EXPECT_EQ(std::memcmp(after.out.data(), before.out.data(), kElements * sizeof(float)), 0);
    uint64_t total = 0;
    for (size_t c = 0; c < counted.size(); ++c) {
      const auto& in = kernel.instructions()[counted[c]];
      const auto found = before.counts.find(kernel.kernel().entry_vaddr + in.offset);
      const uint64_t truth = found == before.counts.end() ? 0 : found->second.waves;
      if (result->sites[c].refusal) continue;
      EXPECT_EQ(counters[c], truth) << in.opcode << " at " << in.offset;
      total += truth;
    }
    EXPECT_GT(total, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Objects, TritonKernels,
    testing::Combine(testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1030", "gfx1100",
                                                           "gfx1201"})),
                     testing::Values("add", "cumsum", "softmax"),
                     testing::Values(Placement::kClone, Placement::kTrampoline)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" + std::get<1>(info.param) +
             (std::get<2>(info.param) == Placement::kClone ? "_clone" : "_trampoline");
    });

}  // namespace
}  // namespace rjdbi
