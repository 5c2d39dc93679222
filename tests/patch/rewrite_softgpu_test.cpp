// Every instruction that can take a probe takes two before it, two behind it or
// all four, on every generation: the kernels still compute what they computed, and the counters
// equal the soft GPU's own record of the unpatched run, instruction by instruction.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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

enum class Where : uint8_t { kBefore, kAfter, kBothSides };

struct Probed {
  size_t sites = 0, executed = 0;  // places with probes; those of them that ran
  size_t branches = 0;             // executed sites that are branches
  size_t in_clauses = 0;           // executed sites in a clause, or on its s_clause
  size_t ends = 0;                 // executed sites that end the program
  size_t loads_behind = 0;         // executed sites right behind a load
  std::vector<uint8_t> image;
};

// How often a place is passed; with how many lanes, unless the record of the
// unpatched run does not say.
struct Truth {
  uint64_t waves = 0;
  std::optional<uint64_t> lanes;
};

// Behind an instruction the lanes are those before the next one, where nobody
// else comes by; else its own, if it leaves EXEC alone.
Truth TruthAt(const patch::KernelAnalysis& kernel, uint32_t i, patch::Position position,
              const std::map<uint64_t, softgpu::PcCount>& counts) {
  const auto at = [&](uint32_t index) {
    const auto& in = kernel.instructions()[index];
    const auto found = counts.find(kernel.kernel().entry_vaddr + in.offset);
    return found == counts.end() ? softgpu::PcCount{} : found->second;
  };
  const softgpu::PcCount here = at(i);
  if (position == patch::Position::kBefore) return {here.waves, here.lanes};
  for (const patch::BasicBlock& block : kernel.blocks()) {
    if (block.first <= i && i < block.last) return {here.waves, at(i + 1).lanes};
  }
  const auto& in = kernel.instructions()[i];
  if (in.defs.HasAny(patch::kExecLo, 2)) return {here.waves, std::nullopt};
  return {here.waves, here.lanes};
}

struct Place {
  uint32_t instruction = 0;
  patch::Position position = patch::Position::kBefore;
};

// Plans for two probes at a place, waves and lanes, if it can take both.
void PlanPair(patch::Rewriter& rewriter, const patch::KernelAnalysis& kernel, Place place,
              std::vector<SitePlan>& plans, std::vector<Place>& places) {
  const auto index = static_cast<uint32_t>(2 * places.size());
  patch::ProbeRequest request{.probe = Probe::kCountWaves,
                              .counter_index = index,
                              .max_sgpr_delta = 96,
                              .max_vgpr_delta = 256,
                              .position = place.position};
  const auto waves = rewriter.Plan(kernel, place.instruction, request);
  request.probe = Probe::kCountLanes;
  request.counter_index = index + 1;
  const auto lanes = rewriter.Plan(kernel, place.instruction, request);
  if (!std::holds_alternative<SitePlan>(waves) || !std::holds_alternative<SitePlan>(lanes)) return;
  plans.push_back(std::get<SitePlan>(waves));
  plans.push_back(std::get<SitePlan>(lanes));
  places.push_back(place);
}

// Two probes at each place that is wanted and can take them; runs the program
// before and after.
void CountWhere(const std::string& target, uint64_t seed, const std::vector<uint8_t>& bytes,
                test::Loaded& loaded, const Program& program, Where where,
                bool (*wanted)(const patch::KernelAnalysis&, uint32_t), Probed& probed) {
  const patch::KernelAnalysis& kernel = loaded.Kernel(program.kernel);
  auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  std::vector<Place> places;
  for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
    if (!wanted(kernel, i)) continue;
    for (const auto position : {patch::Position::kBefore, patch::Position::kAfter}) {
      if ((where == Where::kBefore && position != patch::Position::kBefore) ||
          (where == Where::kAfter && position != patch::Position::kAfter)) {
        continue;
      }
      PlanPair(*rewriter, kernel, {i, position}, plans, places);
    }
  }
  ASSERT_FALSE(places.empty());
  auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
  ASSERT_TRUE(result.ok()) << result.status();
  probed.image = result->image;
  RangeMemory memory;
  const Outcome before = Execute(target, seed, memory, bytes, program);
  ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
  DeviceBuffer<uint64_t> counters(memory, 2 * places.size());
  ApplyFixups(*result, reinterpret_cast<uint64_t>(counters.data()));
  const Outcome after = Execute(target, seed, memory, result->image, program);
  ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
  EXPECT_EQ(after.memory, before.memory);
  for (size_t s = 0; s < places.size(); ++s) {
    ASSERT_FALSE(result->sites[2 * s].refusal.has_value());
    const auto [i, position] = places[s];
    const auto& in = kernel.instructions()[i];
    const bool behind = position == patch::Position::kAfter;
    const Truth truth = TruthAt(kernel, i, position, before.counts);
    const auto what = [&] {
      return std::string(behind ? "behind " : "before ") + std::string(in.opcode) + " at " +
             std::to_string(in.offset);
    };
    EXPECT_EQ(counters[2 * s], truth.waves) << what();
    if (truth.lanes) {
      EXPECT_EQ(counters[2 * s + 1], *truth.lanes) << what();
    }
    if (truth.waves == 0) continue;
    ++probed.executed;
    probed.branches += in.branch;
    probed.ends += in.ends_program || in.sendmsg;  // or gives registers back before
    probed.loads_behind += behind && in.load;
    probed.in_clauses += kernel.SplittableClause(i).has_value();
  }
  probed.sites += places.size();
}

bool Everywhere(const patch::KernelAnalysis&, uint32_t) { return true; }

class Preservation : public testing::TestWithParam<Variant> {};

TEST_P(Preservation, EveryInstructionCounted) {
  const auto& [target, stem, seed] = GetParam();
  const auto bytes = ObjectFor(target, stem);
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  Probed probed;
  for (const Program& program : Programs()) {
    SCOPED_TRACE(program.kernel);
    CountWhere(target, seed, bytes, loaded, program, Where::kBefore, Everywhere, probed);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(probed.sites, 400u);
  EXPECT_GT(probed.executed, 300u);
  EXPECT_GT(probed.branches, 10u);
  EXPECT_GE(probed.ends, Programs().size() / 2);
}

TEST_P(Preservation, BehindEveryInstructionCounted) {
  const auto& [target, stem, seed] = GetParam();
  const auto bytes = ObjectFor(target, stem);
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  for (const Where where : {Where::kAfter, Where::kBothSides}) {
    Probed probed;
    for (const Program& program : Programs()) {
      SCOPED_TRACE(program.kernel);
      CountWhere(target, seed, bytes, loaded, program, where, Everywhere, probed);
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(probed.executed, 250u);
    EXPECT_GT(probed.loads_behind, 25u);
  }
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_seed" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Generations, Preservation,
    testing::Combine(testing::ValuesIn(softgpu::WithNewer({"gfx900", "gfx90a", "gfx942", "gfx1030",
                                                           "gfx1100", "gfx1201"})),
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

// Kernels that the compiler fills with clauses: scalar, vector, LDS, stores.
constexpr char kClauseSource[] = R"(
kernel void gather(global const int* a, global const int* b, global int* out) {
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  int sum = a[i] * 3 + a[i + 128] + a[i + 256] * 5 + b[i] + b[i + 128] * 7;
  if (sum & 1) sum += a[(i * 7) & 127] + b[(i * 5) & 127] + a[(i * 3) & 127];
  out[i] = sum;
  out[i + 128] = sum ^ 5;
  out[i + 256] = sum + 9;
}
kernel void uniform(global const int* restrict a, global int* restrict out, uint n) {
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  int sum = i;
  for (uint k = 0; k < n; ++k) sum = sum * a[k * 16] + a[k * 16 + 9] + a[k * 16 + 5];
  out[i] = sum;
}
kernel void tile(global const int* a, global int* out) {
  local int t[256];
  uint i = __builtin_amdgcn_workitem_id_x();
  t[i] = a[i];
  t[i + 64] = a[i + 64] * 3;
  t[i + 128] = a[i + 128] * 5;
  t[i + 192] = a[i + 192] * 7;
  __builtin_amdgcn_s_barrier();
  out[i] = t[i ^ 1] + t[(i * 5) & 255] * t[(i * 9) & 255] + t[(i * 11) & 255];
}
)";

const std::vector<Program>& ClausePrograms() {
  static const std::vector<Program> programs = {
      {"gather",
       {{2048, Fill::kAny}, {2048, Fill::kAny}, {2048, Fill::kZero}},
       0,
       {128, 1, 1},
       {64, 1, 1}},
      {"uniform", {{2048, Fill::kAny}, {512, Fill::kZero}}, 12, {128, 1, 1}, {64, 1, 1}},
      {"tile", {{1024, Fill::kAny}, {256, Fill::kZero}}, 0, {64, 1, 1}, {64, 1, 1}},
  };
  return programs;
}

// The last instruction of each clause: the s_clause itself is no site, so it
// becomes s_nop.
bool LastOfAClause(const patch::KernelAnalysis& kernel, uint32_t i) {
  const auto clause = kernel.SplittableClause(i);
  return clause && *clause + kernel.instructions()[*clause].clause_length == i;
}

bool InAClause(const patch::KernelAnalysis& kernel, uint32_t i) {
  return kernel.SplittableClause(i).has_value();
}

size_t CountClauses(const patch::KernelAnalysis& kernel) {
  size_t clauses = 0;
  for (const auto& in : kernel.instructions()) clauses += in.is_clause;
  return clauses;
}

using ClauseVariant = std::tuple<std::string, uint32_t, uint64_t>;  // target, wave, seed

class Clauses : public testing::TestWithParam<ClauseVariant> {};

TEST_P(Clauses, SplitClausesComputeTheSame) {
  const auto& [target, wave, seed] = GetParam();
  const std::string flags = wave == 64 ? " -mwavefrontsize64" : "";
  const auto bytes = test::CompileOpenCl(target + flags, kClauseSource);
  test::Loaded loaded(bytes);
  size_t clauses = 0;
  for (const Program& program : ClausePrograms()) {
    SCOPED_TRACE(program.kernel);
    const auto& kernel = loaded.Kernel(program.kernel);
    ASSERT_GT(CountClauses(kernel), 0u);
    clauses += CountClauses(kernel);
    for (const auto& [wanted, where] :
         {std::pair{&LastOfAClause, Where::kBefore}, std::pair{&InAClause, Where::kBefore},
          std::pair{&Everywhere, Where::kBefore}, std::pair{&InAClause, Where::kAfter},
          std::pair{&Everywhere, Where::kAfter}}) {
      Probed probed;
      CountWhere(target, seed, bytes, loaded, program, where, wanted, probed);
      if (HasFatalFailure()) return;
      EXPECT_GE(probed.in_clauses, CountClauses(kernel));
      size_t wanted_sites = 0;
      for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
        wanted_sites += InAClause(kernel, i) && wanted(kernel, i);
      }
      EXPECT_EQ(probed.in_clauses, wanted_sites) << "every one is admitted and ran";
      test::Loaded patched(probed.image);
      EXPECT_EQ(CountClauses(patched.Kernel(program.kernel)), 0u);
    }
  }
  EXPECT_GE(clauses, 4u);
}

INSTANTIATE_TEST_SUITE_P(Generations, Clauses,
                         testing::Combine(testing::Values("gfx1010", "gfx1030", "gfx1100",
                                                          "gfx1201"),
                                          testing::Values(32, 64), testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_wave" +
                                  std::to_string(std::get<1>(info.param)) + "_seed" +
                                  std::to_string(std::get<2>(info.param));
                         });

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
