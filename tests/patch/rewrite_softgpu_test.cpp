// Every instruction that can take a probe takes two, on every generation: the
// kernels still compute what they computed, and the counters equal the soft
// GPU's own record of the unpatched run, instruction by instruction.
#include <gtest/gtest.h>

#include <cstdint>
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

using patch::Probe;
using patch::SitePlan;
using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::KernelArgs;
using softgpu::LoadedObject;
using softgpu::Machine;
using softgpu::RangeMemory;

enum class Fill : uint8_t { kZero, kSmall, kAny, kReal };

// A launch: the arguments are buffers (bytes, contents), then perhaps a count.
struct Program {
  const char* kernel;
  std::vector<std::pair<uint32_t, Fill>> buffers;
  uint32_t count;  // last argument, unless 0
  uint32_t grid[3], group[3];
};

const std::vector<Program>& Programs() {
  static const std::vector<Program> programs = {
      {"vadd",
       {{4096, Fill::kReal}, {4096, Fill::kReal}, {4096, Fill::kZero}},
       500,
       {512, 1, 1},
       {256, 1, 1}},
      {"reduce", {{2048, Fill::kAny}, {64, Fill::kZero}}, 0, {512, 1, 1}, {256, 1, 1}},
      {"collatz", {{512, Fill::kSmall}, {512, Fill::kZero}}, 0, {128, 1, 1}, {64, 1, 1}},
      {"scratch", {{1024, Fill::kSmall}, {1024, Fill::kZero}}, 0, {128, 1, 1}, {128, 1, 1}},
      {"call", {{512, Fill::kAny}, {512, Fill::kZero}}, 0, {128, 1, 1}, {64, 1, 1}},
      {"histogram", {{4096, Fill::kAny}, {256, Fill::kZero}}, 1000, {512, 1, 1}, {256, 1, 1}},
      {"any_space", {{512, Fill::kAny}, {512, Fill::kZero}}, 0, {64, 1, 1}, {64, 1, 1}},
      {"matmul",
       {{4096, Fill::kReal}, {4096, Fill::kReal}, {4096, Fill::kZero}},
       32,
       {32, 32, 1},
       {16, 16, 1}},
      {"wide",
       {{1024, Fill::kAny}, {1024, Fill::kZero}, {1024, Fill::kZero}, {1024, Fill::kZero}},
       0,
       {128, 1, 1},
       {64, 1, 1}},
      {"bytes",
       {{128, Fill::kAny}, {128, Fill::kZero}, {256, Fill::kAny}, {256, Fill::kZero}},
       0,
       {128, 1, 1},
       {64, 1, 1}},
      {"lanes", {{512, Fill::kAny}, {512, Fill::kZero}}, 0, {128, 1, 1}, {64, 1, 1}},
  };
  return programs;
}

uint32_t Scramble(uint32_t x) {
  x = (x ^ 61) ^ (x >> 16);
  x *= 9;
  x ^= x >> 4;
  x *= 0x27d4eb2d;
  return x ^ (x >> 15);
}

uint32_t WordFor(Fill fill, uint32_t i) {
  if (fill == Fill::kSmall) return Scramble(i) % 300 + 1;
  if (fill == Fill::kAny) return Scramble(i);
  if (fill == Fill::kReal) return 0x3f800000 + Scramble(i) % 0x7fffff;
  return 0;
}

struct Outcome {
  Fault fault;
  std::vector<std::vector<uint32_t>> memory;
  std::map<uint64_t, softgpu::PcCount> counts;  // by vaddr
};

Outcome Execute(const std::string& target, uint64_t seed, RangeMemory& memory,
                const std::vector<uint8_t>& elf, const Program& program) {
  Outcome outcome;
  std::string error;
  auto object = LoadedObject::Load(elf, &memory, &error);
  auto machine = Machine::Create(target, seed, &memory, &error);
  EXPECT_TRUE(object && machine) << error;
  if (!object || !machine) return outcome;
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers;
  KernelArgs args;
  for (const auto& [bytes, fill] : program.buffers) {
    buffers.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory, bytes / 4));
    for (uint32_t i = 0; i < bytes / 4; ++i) (*buffers.back())[i] = WordFor(fill, i);
    args.Add(buffers.back()->data());
  }
  if (program.count != 0) args.Add(program.count);
  softgpu::LaunchShape shape;
  std::copy(std::begin(program.grid), std::end(program.grid), shape.grid);
  std::copy(std::begin(program.group), std::end(program.group), shape.workgroup);
  outcome.fault =
      softgpu::Launch(*machine, memory, object->Descriptor(program.kernel), args, shape);
  for (const auto& buffer : buffers) outcome.memory.push_back(buffer->contents());
  for (const auto& [pc, count] : machine->Counts()) {
    outcome.counts[pc - object->bias()] = count;
  }
  return outcome;
}

void ApplyFixups(patch::RewriteResult& result, uint64_t base) {
  for (const auto& fixup : result.fixups) {
    const uint64_t address = base + fixup.addend;
    const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
    ASSERT_LE(fixup.offset + 4, result.image.size());
    std::memcpy(result.image.data() + fixup.offset, &word, sizeof(word));
  }
}

using Variant = std::tuple<std::string, std::string, uint64_t>;  // target, object, seed

// "compiled": the same kernels, for processors that the soft GPU's own tests
// leave out.
std::vector<uint8_t> ObjectFor(const std::string& target, const std::string& stem) {
  const std::string folder = SOFTGPU_KERNEL_DIR, source = RJDBI_SOURCE_DIR;
  if (stem != "compiled") {
    return softgpu::ReadBinaryFile(folder + "/" + stem + "-" + target + ".co");
  }
  const auto text = softgpu::ReadBinaryFile(source + "/tests/softgpu/interp/kernels/kernels.cl");
  return test::CompileOpenCl(target, std::string(text.begin(), text.end()));
}

class Preservation : public testing::TestWithParam<Variant> {};

TEST_P(Preservation, EveryInstructionCounted) {
  const auto& [target, stem, seed] = GetParam();
  const auto bytes = ObjectFor(target, stem);
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  size_t probed = 0, executed = 0;
  for (const Program& program : Programs()) {
    SCOPED_TRACE(program.kernel);
    const patch::KernelAnalysis& kernel = loaded.Kernel(program.kernel);
    auto rewriter = patch::MakeTrampolineRewriter();
    std::vector<SitePlan> plans;
    std::vector<uint32_t> sites;
    for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
      const auto index = static_cast<uint32_t>(2 * sites.size());
      patch::ProbeRequest request{.probe = Probe::kCountWaves,
                                  .counter_index = index,
                                  .max_sgpr_delta = 96,
                                  .max_vgpr_delta = 256};
      const auto waves = rewriter->Plan(kernel, i, request);
      request.probe = Probe::kCountLanes;
      request.counter_index = index + 1;
      const auto lanes = rewriter->Plan(kernel, i, request);
      if (!std::holds_alternative<SitePlan>(waves) || !std::holds_alternative<SitePlan>(lanes)) {
        continue;
      }
      plans.push_back(std::get<SitePlan>(waves));
      plans.push_back(std::get<SitePlan>(lanes));
      sites.push_back(i);
    }
    ASSERT_FALSE(sites.empty());
    auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
    ASSERT_TRUE(result.ok()) << result.status();
    RangeMemory memory;
    const Outcome before = Execute(target, seed, memory, bytes, program);
    ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
    DeviceBuffer<uint64_t> counters(memory, 2 * sites.size());
    ApplyFixups(*result, reinterpret_cast<uint64_t>(counters.data()));
    const Outcome after = Execute(target, seed, memory, result->image, program);
    ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
    EXPECT_EQ(after.memory, before.memory);
    for (size_t s = 0; s < sites.size(); ++s) {
      ASSERT_FALSE(result->sites[2 * s].refusal.has_value());
      const auto& in = kernel.instructions()[sites[s]];
      const auto found = before.counts.find(kernel.kernel().entry_vaddr + in.offset);
      const softgpu::PcCount truth =
          found == before.counts.end() ? softgpu::PcCount{} : found->second;
      EXPECT_EQ(counters[2 * s], truth.waves) << in.opcode << " at " << in.offset;
      EXPECT_EQ(counters[2 * s + 1], truth.lanes) << in.opcode << " at " << in.offset;
      executed += truth.waves > 0;
    }
    probed += sites.size();
  }
  EXPECT_GT(probed, 400u);
  EXPECT_GT(executed, 300u);
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_seed" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Generations, Preservation,
    testing::Combine(testing::Values("gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                     testing::Values("kernels", "kernels0"), testing::Values(1, 2)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, Preservation,
                         testing::Combine(testing::Values("gfx1030", "gfx1100", "gfx1201"),
                                          testing::Values("kernels64"), testing::Values(1, 2)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Others, Preservation,
                         testing::Combine(testing::Values("gfx906", "gfx908", "gfx1010"),
                                          testing::Values("compiled"), testing::Values(1, 2)),
                         NameOf);

// Sabotage shows that the patched bytes run; nop shows that running them alone
// changes nothing.
TEST(Probes, SabotageStopsAndNopDoesNot) {
  const auto bytes =
      softgpu::ReadBinaryFile(std::string(SOFTGPU_KERNEL_DIR) + "/kernels-gfx90a.co");
  test::Loaded loaded(bytes);
  const Program& program = Programs()[0];
  const auto& kernel = loaded.Kernel(program.kernel);
  RangeMemory memory;
  const Outcome before = Execute("gfx90a", 1, memory, bytes, program);
  ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
  for (const Probe probe : {Probe::kNop, Probe::kSabotage}) {
    auto rewriter = patch::MakeTrampolineRewriter();
    const auto plan = rewriter->Plan(kernel, 0, {.probe = probe});
    ASSERT_TRUE(std::holds_alternative<SitePlan>(plan));
    const auto result = rewriter->Emit(loaded.object(), loaded.All(), {std::get<SitePlan>(plan)});
    ASSERT_TRUE(result.ok()) << result.status();
    const Outcome after = Execute("gfx90a", 1, memory, result->image, program);
    ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
    if (probe == Probe::kNop) {
      EXPECT_EQ(after.memory, before.memory);
    } else {
      EXPECT_EQ(after.memory[2], std::vector<uint32_t>(after.memory[2].size(), 0));
      EXPECT_NE(before.memory[2], after.memory[2]);
    }
  }
}

}  // namespace
}  // namespace rjdbi
