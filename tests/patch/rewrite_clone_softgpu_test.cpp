// Clones on the soft GPU: with probes around every instruction that takes them,
// kernels compute what they computed, the counters equal the soft GPU's own
// record of the unpatched run, and the map of program counters accounts for
// every instruction of the clone's run.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "patch/plan/rewriter.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi {
namespace {

using patch::Placement;
using patch::Position;
using patch::Probe;
using patch::RegisterSet;
using patch::SitePlan;
using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::KernelArgs;
using softgpu::LoadedObject;
using softgpu::Machine;
using softgpu::RangeMemory;

// A launch: buffers of so many words, read or written, then perhaps a count.
struct Program {
  std::string kernel;
  std::vector<uint32_t> in, out;  // words
  uint32_t count = 0;             // last argument, unless 0
  uint32_t grid[2] = {128, 1}, group[2] = {64, 1};
};

uint32_t Scramble(uint32_t x) {
  x = (x ^ 61) ^ (x >> 16);
  x *= 9;
  x ^= x >> 4;
  x *= 0x27d4eb2d;
  return x ^ (x >> 15);
}

struct Outcome {
  Fault fault;
  std::vector<std::vector<uint32_t>> memory;
  std::map<uint64_t, softgpu::PcCount> counts;  // by vaddr
};

// Writes noise over every register that the analysis says is dead, all lanes of
// it, before each instruction of the kernel.
class Scrambler : public softgpu::Observer {
 public:
  explicit Scrambler(const patch::KernelAnalysis& kernel) : kernel_(kernel) {
    for (uint32_t i = 0; i < kernel.instructions().size(); ++i) {
      RegisterSet free = All();
      free -= kernel.LiveBefore(i);
      free -= kernel.PendingBefore(i);
      free_.push_back(free);
    }
  }
  void Loaded(uint64_t bias) { entry_ = bias + kernel_.kernel().entry_vaddr; }
  size_t scalars() const { return scalars_; }
  size_t vectors() const { return vectors_; }

  void OnInstruction(const softgpu::Wave& running, const softgpu::Inst&) override {
    const auto i = kernel_.InstructionAt(running.pc - entry_);
    if (!i) return;                                    // a callee
    auto& wave = const_cast<softgpu::Wave&>(running);  // the machine's own, and not const
    free_[*i].ForEach([&](uint16_t reg) {
      if (reg >= patch::kAgpr0) {
        Fill(wave.agpr, reg - patch::kAgpr0, wave.lanes);
      } else if (reg >= patch::kVgpr0) {
        Fill(wave.vgpr, reg - patch::kVgpr0, wave.lanes);
      } else if (reg == patch::kScc) {
        wave.scc = Noise() & 1;
      } else {
        const unsigned n = reg < patch::kVccLo ? reg : softgpu::kVccLo + (reg - patch::kVccLo);
        wave.sgpr[n] = Noise();
        ++scalars_;
      }
    });
  }

 private:
  // What a kernel may use for itself, and what the soft GPU numbers as we do.
  static RegisterSet All() {
    RegisterSet set;
    set.Add(patch::kSgpr0, 100);
    set.Add(patch::kVccLo, 2);
    set.Add(patch::kScc);
    set.Add(patch::kVgpr0, 512);
    return set;
  }
  uint32_t Noise() { return Scramble(++seed_); }
  void Fill(std::vector<uint32_t>& file, unsigned reg, uint32_t lanes) {
    if ((reg + 1) * lanes > file.size()) return;
    for (uint32_t lane = 0; lane < lanes; ++lane) file[reg * lanes + lane] = Noise();
    ++vectors_;
  }

  const patch::KernelAnalysis& kernel_;
  std::vector<RegisterSet> free_;  // by instruction
  uint64_t entry_ = 0;
  uint32_t seed_ = 0;
  size_t scalars_ = 0, vectors_ = 0;
};

// `preloads`: whether the firmware does, where the kernel asks for it.
Outcome Execute(const std::string& target, uint64_t seed, RangeMemory& memory,
                const std::vector<uint8_t>& elf, const Program& program, bool preloads = true,
                Scrambler* scrambler = nullptr) {
  Outcome outcome;
  std::string error;
  auto object = LoadedObject::Load(elf, &memory, &error);
  auto machine = Machine::Create(target, seed, &memory, &error);
  EXPECT_TRUE(object && machine) << error;
  if (!object || !machine) return outcome;
  if (scrambler != nullptr) scrambler->Loaded(object->bias());
  machine->SetObserver(scrambler);
  machine->SetPreloads(preloads);
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers;
  KernelArgs args;
  for (const auto* list : {&program.in, &program.out}) {
    for (const uint32_t words : *list) {
      buffers.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory, words));
      for (uint32_t i = 0; i < words; ++i) {
        (*buffers.back())[i] = list == &program.in ? Scramble(i) % 300 + 1 : 0;
      }
      args.Add(buffers.back()->data());
    }
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

struct Totals {
  size_t sites = 0, executed = 0, branches = 0, ends = 0, pc_relative = 0, in_clauses = 0;
};

// One counter: what it counts, at which instruction.
struct Counted {
  uint32_t instruction = 0;
  bool lanes = false;
};

// Waves and lanes before each instruction, waves behind it, wherever possible.
void PlanEverywhere(patch::Rewriter& rewriter, const patch::KernelAnalysis& kernel, uint32_t stride,
                    uint32_t first, std::vector<SitePlan>& plans, std::vector<Counted>& counted) {
  const struct {
    Probe probe;
    Position position;
  } kKinds[] = {{Probe::kCountWaves, Position::kBefore},
                {Probe::kCountLanes, Position::kBefore},
                {Probe::kCountWaves, Position::kAfter}};
  for (uint32_t i = first; i < kernel.instructions().size(); i += stride) {
    for (const auto& kind : kKinds) {
      const auto plan = rewriter.Plan(kernel, i,
                                      {.probe = kind.probe,
                                       .counter_index = static_cast<uint32_t>(counted.size()),
                                       .max_sgpr_delta = 96,
                                       .max_vgpr_delta = 256,
                                       .position = kind.position,
                                       .placement = Placement::kClone});
      if (!std::holds_alternative<SitePlan>(plan)) continue;
      plans.push_back(std::get<SitePlan>(plan));
      counted.push_back({i, kind.probe == Probe::kCountLanes});
    }
  }
}

// Original instructions ran as often as before, at their new places; the
// original code did not run at all.
void CheckMap(const patch::KernelOutcome& outcome, const patch::Kernel& kernel,
              const Outcome& before, const Outcome& after) {
  uint64_t last = 0;
  for (const patch::PcMapEntry& entry : outcome.pcs) {
    const auto was = before.counts.find(kernel.entry_vaddr + entry.original);
    const auto is = after.counts.find(outcome.clone_vaddr + entry.emitted);
    const uint64_t waves = was == before.counts.end() ? 0 : was->second.waves;
    const uint64_t lanes = was == before.counts.end() ? 0 : was->second.lanes;
    EXPECT_EQ(is == after.counts.end() ? 0 : is->second.waves, waves) << "at " << entry.original;
    EXPECT_EQ(is == after.counts.end() ? 0 : is->second.lanes, lanes) << "at " << entry.original;
    EXPECT_GE(entry.emitted, last);
    last = entry.emitted + 4;
  }
  const auto left = after.counts.lower_bound(kernel.entry_vaddr);
  EXPECT_TRUE(left == after.counts.end() || left->first >= kernel.entry_vaddr + kernel.code_size);
}

// The original and the clone, run on equal input.
void RunBoth(const std::string& target, uint64_t seed, const std::vector<uint8_t>& bytes,
             const Program& program, const patch::KernelAnalysis& kernel,
             patch::RewriteResult& result, const std::vector<Counted>& counted, bool preloads,
             Totals& totals) {
  RangeMemory memory;
  const Outcome before = Execute(target, seed, memory, bytes, program, preloads);
  ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
  DeviceBuffer<uint64_t> counters(memory, counted.size());
  ApplyFixups(result, reinterpret_cast<uint64_t>(counters.data()));
  const Outcome after = Execute(target, seed, memory, result.image, program, preloads);
  ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
  EXPECT_EQ(after.memory, before.memory);
  CheckMap(result.kernels[0], kernel.kernel(), before, after);
  for (size_t c = 0; c < counted.size(); ++c) {
    const uint32_t i = counted[c].instruction;
    const auto& in = kernel.instructions()[i];
    const auto found = before.counts.find(kernel.kernel().entry_vaddr + in.offset);
    const softgpu::PcCount truth =
        found == before.counts.end() ? softgpu::PcCount{} : found->second;
    EXPECT_EQ(counters[c], counted[c].lanes ? truth.lanes : truth.waves)
        << in.opcode << " at " << in.offset << ", counter " << c;
    const bool ran = truth.waves > 0;
    totals.executed += ran;
    totals.branches += ran && in.branch;
    totals.ends += ran && in.ends_program;
    totals.pc_relative += ran && in.reads_pc;
    totals.in_clauses += ran && kernel.SplittableClause(i).has_value();
  }
  totals.sites += counted.size();
}

void CloneAndRun(const std::string& target, uint64_t seed, const std::vector<uint8_t>& bytes,
                 test::Loaded& loaded, const Program& program, uint32_t stride, uint32_t first,
                 Totals& totals) {
  SCOPED_TRACE(absl::StrCat(program.kernel, ", every ", stride, " from ", first));
  const patch::KernelAnalysis& kernel = loaded.Kernel(program.kernel);
  ASSERT_FALSE(kernel.CloneObstacle().has_value()) << kernel.CloneObstacle()->detail;
  const auto rewriter = patch::MakeTrampolineRewriter();
  std::vector<SitePlan> plans;
  std::vector<Counted> counted;
  PlanEverywhere(*rewriter, kernel, stride, first, plans, counted);
  if (plans.empty()) return;
  auto result = rewriter->Emit(loaded.object(), loaded.All(), plans);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->kernels.size(), 1u);
  const patch::KernelOutcome& outcome = result->kernels[0];
  ASSERT_FALSE(outcome.not_cloned.has_value()) << outcome.not_cloned->detail;
  ASSERT_EQ(outcome.placement, Placement::kClone);
  ASSERT_EQ(outcome.pcs.size(), kernel.instructions().size());
  RunBoth(target, seed, bytes, program, kernel, *result, counted, true, totals);
  if (kernel.preload_entry() == 0) return;
  // The same image under firmware that enters at the other entry. LLVM 19 only traps there.
  if (kernel.instructions()[0].opcode == "s_trap") return;
  auto again = rewriter->Emit(loaded.object(), loaded.All(), plans);
  ASSERT_TRUE(again.ok()) << again.status();
  RunBoth(target, seed, bytes, program, kernel, *again, counted, false, totals);
}

// ---- The sample kernels -----------------------------------------------------------------

const std::vector<Program>& Samples() {
  static const std::vector<Program> programs = {
      {"vadd", {1024, 1024}, {1024}, 500, {512, 1}, {256, 1}},
      {"reduce", {512}, {16}, 0, {512, 1}, {256, 1}},
      {"collatz", {128}, {128}},
      {"scratch", {256}, {256}, 0, {128, 1}, {128, 1}},
      {"call", {128}, {128}},
      {"histogram", {1024}, {64}, 1000, {512, 1}, {256, 1}},
      {"any_space", {128}, {128}, 0, {64, 1}, {64, 1}},
      {"matmul", {1024, 1024}, {1024}, 32, {32, 32}, {16, 16}},
      {"wide", {256}, {256, 256, 256}},
      {"lanes", {128}, {128}},
  };
  return programs;
}

// What is dead may hold anything: neither memory nor control flow shows it.
void ScrambleAndRun(const std::string& target, uint64_t seed, const std::vector<uint8_t>& bytes,
                    test::Loaded& loaded, const Program& program, uint64_t& scrambled_vectors) {
  SCOPED_TRACE(absl::StrCat(program.kernel, " with dead registers scrambled"));
  RangeMemory memory;
  const Outcome before = Execute(target, seed, memory, bytes, program);
  Scrambler scrambler(loaded.Kernel(program.kernel));
  const Outcome after = Execute(target, seed, memory, bytes, program, true, &scrambler);
  ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
  EXPECT_EQ(after.memory, before.memory);
  EXPECT_EQ(after.counts.size(), before.counts.size());
  EXPECT_GT(scrambler.scalars(), 0u);
  scrambled_vectors += scrambler.vectors();  // a small kernel may have none dead
}

using Variant = std::tuple<std::string, std::string>;  // target, object
class CloneSamples : public testing::TestWithParam<Variant> {};

TEST_P(CloneSamples, ComputeTheSame) {
  const auto& [target, stem] = GetParam();
  const auto bytes =
      softgpu::ReadBinaryFile(std::string(SOFTGPU_KERNEL_DIR) + "/" + stem + "-" + target + ".co");
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  Totals totals;
  for (const Program& program : Samples()) {
    CloneAndRun(target, 1, bytes, loaded, program, 1, 0, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.sites, 1000u);
  EXPECT_GT(totals.executed, 900u);
  EXPECT_GT(totals.branches, 10u);
  EXPECT_GT(totals.ends, 0u);
}

TEST_P(CloneSamples, DeadRegistersMayHoldAnything) {
  const auto& [target, stem] = GetParam();
  const auto bytes =
      softgpu::ReadBinaryFile(std::string(SOFTGPU_KERNEL_DIR) + "/" + stem + "-" + target + ".co");
  ASSERT_FALSE(bytes.empty());
  test::Loaded loaded(bytes);
  uint64_t vectors = 0;
  for (const Program& program : Samples()) {
    ScrambleAndRun(target, 1, bytes, loaded, program, vectors);
  }
  EXPECT_GT(vectors, 0u);
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(
    Generations, CloneSamples,
    testing::Combine(testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1030", "gfx1100",
                                                           "gfx1201"})),
                     testing::Values("kernels", "kernels0")),
    NameOf);
// Two hardware entries: see CloneAndRun.
INSTANTIATE_TEST_SUITE_P(Preload, CloneSamples,
                         testing::Combine(testing::Values("gfx90a", "gfx942"),
                                          testing::Values("kernelsp")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, CloneSamples,
                         testing::Combine(testing::Values("gfx1030", "gfx1100", "gfx1201"),
                                          testing::Values("kernels64")),
                         NameOf);

// ---- Generated kernels --------------------------------------------------------------------

// A random kernel: nested loops and branches whose conditions differ between
// lanes, LDS, private arrays, and tables that are found by the program counter.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::string Source() {
    std::string source = "constant int table[64] = {";
    for (int i = 0; i < 64; ++i) absl::StrAppend(&source, Pick(1000), ",");
    absl::StrAppend(&source,
                    "};\n"
                    "kernel __attribute__((reqd_work_group_size(64, 1, 1)))\n"
                    "void g(global const int* in, global int* out) {\n"
                    "  local int tile[64];\n"
                    "  uint lid = __builtin_amdgcn_workitem_id_x();\n"
                    "  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + lid;\n"
                    "  int a = in[i], b = in[(i + 37) & 127], c = lid, d = 1;\n"
                    "  volatile int priv[4] = {1, 2, 3, 4}; priv[a & 3] = b;\n");
    for (int n = 0; n < 6; ++n) source += Statement(2);
    absl::StrAppend(&source,
                    "  tile[lid] = a ^ c;\n"
                    "  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");\n"
                    "  __builtin_amdgcn_s_barrier();\n"
                    "  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");\n"
                    "  b += tile[(lid * 5 + 3) & 63] + priv[c & 3];\n");
    for (int n = 0; n < 3; ++n) source += Statement(1);
    return source + "  out[i] = a + b * 3 + c * 5 + d * 7;\n}\n";
  }

 private:
  uint32_t Pick(uint32_t n) { return random_() % n; }
  std::string Variable() { return std::string(1, "abcd"[Pick(4)]); }

  std::string Expression() {
    const std::string x = Variable(), y = Variable();
    switch (Pick(8)) {
      case 0:
        return absl::StrCat(x, " + ", y, " * ", Pick(9) + 1);
      case 1:
        return absl::StrCat(x, " ^ (", y, " >> ", Pick(7), ")");
      case 2:
        return absl::StrCat("in[(", x, " + ", Pick(99), ") & 127] - ", y);
      case 3:
        return absl::StrCat("table[(", x, " ^ ", y, ") & 63]");
      case 4:
        return absl::StrCat("(", x, " + 3 < ", y, " ? ", x, " : ", y, " + 1)");
      case 5:
        return absl::StrCat("(int)((ulong)(uint)", x, " * (uint)", y, " >> ", Pick(20), ")");
      case 6:
        return absl::StrCat("priv[", x, " & 3] + ", y);
      default:
        return absl::StrCat(x, " & ", y, " | ", Pick(64));
    }
  }

  std::string Statement(int depth) {
    const std::string target = Variable();
    const uint32_t kind = depth > 0 ? Pick(5) : 4;
    const std::string body = depth > 0 ? Statement(depth - 1) + Statement(depth - 1) : "";
    if (kind == 0) {
      return absl::StrCat("  if ((", Variable(), " & ", Pick(7) + 1, ") != 0) {", body,
                          "  } else {", Statement(depth - 1), "  }\n");
    }
    if (kind == 1) {
      return absl::StrCat("  for (int k", depth, " = 0; k", depth, " < (", Variable(), " & 3) + ",
                          Pick(2), "; ++k", depth, ") {", body, "  }\n");
    }
    if (kind == 2) {
      return absl::StrCat("  for (int u", depth, " = 0; u", depth, " < ", Pick(4) + 1, "; ++u",
                          depth, ") {", body, " if (", Variable(), " == ", Pick(99),
                          ") break;  }\n");
    }
    return absl::StrCat("  ", target, " = ", Expression(), ";\n");
  }

  std::mt19937 random_;
};

using Generated = std::tuple<std::string, uint32_t>;  // target, seed
class CloneGenerated : public testing::TestWithParam<Generated> {};

TEST_P(CloneGenerated, ComputesTheSame) {
  const auto& [target, seed] = GetParam();
  const std::string source = Generator(seed).Source();
  SCOPED_TRACE(source);
  const auto bytes = test::CompileOpenCl(target, source);
  test::Loaded loaded(bytes);
  const Program program = {"g", {128}, {128}};
  Totals totals;
  CloneAndRun(target, seed, bytes, loaded, program, 1, 0, totals);
  CloneAndRun(target, seed, bytes, loaded, program, 7, seed % 7, totals);
  CloneAndRun(target, seed, bytes, loaded, program, 3, seed % 3, totals);
  EXPECT_GT(totals.executed, 50u);
}

TEST_P(CloneGenerated, DeadRegistersMayHoldAnything) {
  const auto& [target, seed] = GetParam();
  uint64_t vectors = 0;
  for (uint32_t more = 0; more < 4; ++more) {
    const std::string source = Generator(seed + 100 * more).Source();
    SCOPED_TRACE(source);
    const auto bytes = test::CompileOpenCl(target, source);
    test::Loaded loaded(bytes);
    ScrambleAndRun(target, seed, bytes, loaded, {"g", {128}, {128}}, vectors);
  }
  EXPECT_GT(vectors, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Generations, CloneGenerated,
    testing::Combine(testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1010", "gfx1030",
                                                           "gfx1100", "gfx1201"})),
                     testing::Range(1u, 9u)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_seed" + std::to_string(std::get<1>(info.param));
    });

// ---- What makes clones differ from copies --------------------------------------------------

constexpr char kTableSource[] = R"(
constant int table[64] = {5, 3, 8, 1, 9, 2, 7, 4};
kernel void look_up(global const int* in, global int* out) {
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  int sum = 0;
  for (int k = 0; k < (in[i] & 15); ++k) sum += table[(in[(i + k) & 127] + k) & 63];
  out[i] = sum;
}
)";

// Loads that the compiler puts into clauses.
constexpr char kClauseSource[] = R"(
kernel void gather(global const int* a, global const int* b, global int* out) {
  uint i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  int sum = a[i] * 3 + a[i + 128] + a[i + 256] * 5 + b[i] + b[i + 128] * 7;
  if (sum & 1) sum += a[(i * 7) & 127] + b[(i * 5) & 127] + a[(i * 3) & 127];
  out[i] = sum;
  out[i + 128] = sum ^ 5;
  out[i + 256] = sum + 9;
}
)";

class CloneSpecial : public testing::TestWithParam<std::string> {};

TEST_P(CloneSpecial, AddressesFromTheProgramCounter) {
  const auto bytes = test::CompileOpenCl(GetParam(), kTableSource);
  test::Loaded loaded(bytes);
  ASSERT_GT(loaded.Kernel("look_up").PcAddresses().size(), 0u);
  Totals totals;
  for (const uint32_t stride : {1, 2, 5, 11}) {
    CloneAndRun(GetParam(), 1, bytes, loaded, {"look_up", {128}, {128}}, stride, stride / 2,
                totals);
  }
  EXPECT_GT(totals.pc_relative, 0u);
}

TEST_P(CloneSpecial, ClausesInParts) {
  const auto bytes = test::CompileOpenCl(GetParam(), kClauseSource);
  test::Loaded loaded(bytes);
  Totals totals;
  for (const uint32_t stride : {1, 2, 3, 4, 5, 7}) {
    for (const uint32_t first : {0u, 1u}) {
      CloneAndRun(GetParam(), 1, bytes, loaded, {"gather", {512, 512}, {512}}, stride, first,
                  totals);
    }
  }
  const bool clauses = GetParam().compare(0, 4, "gfx9") != 0;
  EXPECT_EQ(totals.in_clauses > 0, clauses);
}

INSTANTIATE_TEST_SUITE_P(Generations, CloneSpecial,
                         testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1010",
                                                               "gfx1030", "gfx1100", "gfx1201"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rjdbi
