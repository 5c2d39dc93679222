// What admission lets through when the engine's analysis is wrong: it overlooks that a
// register is live, plans with it, and everything that judges the plan sees the same
// wrong analysis. What is accepted runs on the soft GPU, and must compute what the
// original computes.
//
// RJDBI_MUTANTS=N: N times as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "tests/contract/blind_rewriter.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::contract {
namespace {

using patch::RegisterSet;
using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::KernelArgs;
using softgpu::LoadedObject;
using softgpu::Machine;
using softgpu::RangeMemory;
using test::Blind;
using test::BlindRewriter;

// A launch: buffers of so many words, read or written, then perhaps a count.
struct Program {
  std::string kernel;
  std::vector<uint32_t> in, out;  // words
  uint32_t count = 0;             // last argument, unless 0
  uint32_t grid[2] = {128, 1}, group[2] = {64, 1};
};

const std::vector<Program>& Programs() {
  static const std::vector<Program> programs = {
      {"vadd", {256, 256}, {256}, 100, {128, 1}, {64, 1}},
      {"reduce", {256}, {16}, 0, {256, 1}, {256, 1}},
      {"collatz", {64}, {64}, 0, {64, 1}, {64, 1}},
      {"histogram", {256}, {64}, 200, {256, 1}, {256, 1}},
      {"matmul", {256, 256}, {256}, 16, {16, 16}, {16, 16}},
      {"lanes", {128}, {128}},
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

// A kernel whose registers are wrong may never end.
class Limit : public softgpu::Observer {
 public:
  explicit Limit(Machine& machine) : machine_(machine) {}
  void OnInstruction(const softgpu::Wave&, const softgpu::Inst&) override {
    if (++instructions_ > kMost) machine_.Interrupt();
  }
  bool reached() const { return instructions_ > kMost; }

 private:
  static constexpr uint64_t kMost = 400'000;
  Machine& machine_;
  uint64_t instructions_ = 0;
};

struct Outcome {
  Fault::Kind fault = Fault::Kind::kNone;
  bool ended = true;
  std::vector<std::vector<uint32_t>> memory;
  bool operator==(const Outcome&) const = default;
};

// Buffers at the same addresses in every run, so that runs can be compared.
class Host {
 public:
  Host(const std::string& target, const Program& program)
      : program_(program), counters_(memory_, 64) {
    for (const auto* list : {&program.in, &program.out}) {
      for (const uint32_t words : *list) {
        buffers_.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory_, words));
        args_.Add(buffers_.back()->data());
      }
    }
    if (program.count != 0) args_.Add(program.count);
    std::string error;
    machine_ = Machine::Create(target, 1, &memory_, &error);
    EXPECT_TRUE(machine_) << error;
  }

  Outcome Run(std::vector<uint8_t> elf, const std::vector<patch::WordFixup>& fixups) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
      for (uint32_t i = 0; i < buffers_[b]->size(); ++i) {
        (*buffers_[b])[i] = b < program_.in.size() ? Scramble(i) % 300 + 1 : 0;
      }
    }
    for (const auto& fixup : fixups) {
      const uint64_t address = reinterpret_cast<uint64_t>(counters_.data()) + fixup.addend;
      const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
      std::memcpy(elf.data() + fixup.offset, &word, sizeof word);
    }
    Outcome outcome;
    std::string error;
    const auto object = LoadedObject::Load(elf, &memory_, &error);
    EXPECT_TRUE(object) << error;
    if (!object || !machine_) return outcome;
    Limit limit(*machine_);
    machine_->SetObserver(&limit);
    machine_->InvalidateInstructionCache();
    machine_->ClearInterrupt();
    softgpu::LaunchShape shape;
    std::copy(std::begin(program_.grid), std::end(program_.grid), shape.grid);
    std::copy(std::begin(program_.group), std::end(program_.group), shape.workgroup);
    outcome.fault =
        softgpu::Launch(*machine_, memory_, object->Descriptor(program_.kernel), args_, shape).kind;
    outcome.ended = !limit.reached();
    machine_->SetObserver(nullptr);
    for (const auto& buffer : buffers_) outcome.memory.push_back(buffer->contents());
    return outcome;
  }

 private:
  const Program& program_;
  RangeMemory memory_;
  DeviceBuffer<uint64_t> counters_;
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers_;
  KernelArgs args_;
  std::unique_ptr<Machine> machine_;
};

uint32_t Scale() {
  const char* more = std::getenv("RJDBI_MUTANTS");
  const int n = more != nullptr ? std::atoi(more) : 1;
  return n > 0 ? static_cast<uint32_t>(n) : 1;
}

struct Row {
  // Plans that write a register which was overlooked; of them, refused, accepted with the
  // same results, accepted with others.
  uint64_t misled = 0, refused = 0, same = 0, wrong = 0;
  // Of the refused ones that were run all the same: with other results.
  uint64_t run = 0, harmful = 0;
  std::map<std::string, uint64_t> by;  // refusals, by constraint
};

RegisterSet WrittenBy(patch::Isa& isa, const std::vector<uint8_t>& code) {
  RegisterSet written;
  for (uint64_t at = 0; at < code.size();) {
    const patch::Instruction* in = isa.DecodeShared(code, at);
    if (in == nullptr) break;
    written |= in->defs;
    at += in->size;
  }
  return written;
}

using Variant = std::tuple<std::string, std::string, v1::Placement>;

class Misled : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    bytes_ = softgpu::ReadBinaryFile(absl::StrCat(SOFTGPU_KERNEL_DIR, "/", std::get<1>(GetParam()),
                                                  "-", std::get<0>(GetParam()), ".co"));
    ASSERT_FALSE(bytes_.empty());
    loaded_ = std::make_unique<test::Loaded>(bytes_);
  }

  Admission Judge(const Program& program, const char* probe, bool may_grow) {
    v1::Attachment a;
    a.set_id("a1");
    a.mutable_spec()->set_kernel_glob(program.kernel);
    a.mutable_spec()->set_sites("*");
    a.mutable_spec()->set_probe(probe);
    a.mutable_spec()->set_placement(std::get<2>(GetParam()));
    a.mutable_spec()->set_position(rewriter_.position == patch::Position::kAfter ? v1::AFTER
                                                                                 : v1::BEFORE);
    Policy policy = DefaultPolicy();
    policy.ceiling = v1::Budget();
    policy.defaults.set_max_sgpr_delta(may_grow ? 96 : 0);
    policy.defaults.set_max_vgpr_delta(may_grow ? 256 : 0);
    policy.defaults.set_max_injected_instructions_per_event(256);
    policy.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 50);
    return WithDecisions(Admit(bytes_, {a}, policy, rewriter_));
  }

  void One(Host& host, const Outcome& original, const Program& program, uint32_t seed);

  std::vector<uint8_t> bytes_;
  std::unique_ptr<test::Loaded> loaded_;
  BlindRewriter rewriter_;
  std::map<Blind, Row> table_;
  uint64_t shown_ = 0;
};

void Misled::One(Host& host, const Outcome& original, const Program& program, uint32_t seed) {
  const auto& kernel = loaded_->Kernel(program.kernel);
  const uint32_t chance = Scramble(seed * 2654435761u + 1);
  rewriter_.kernel = kernel.kernel_index();
  rewriter_.instruction = chance % static_cast<uint32_t>(kernel.instructions().size());
  rewriter_.position = (chance >> 12) % 4 == 0 ? patch::Position::kAfter : patch::Position::kBefore;
  rewriter_.blind = static_cast<Blind>((chance >> 16) % test::kBlindNames.size());
  rewriter_.seed = seed;
  rewriter_.plan.reset();
  const char* probe = (chance >> 20) % 2 == 0 ? "count-waves" : "count-lanes";
  const Admission a = Judge(program, probe, (chance >> 24) % 2 == 0);
  if (!rewriter_.plan || rewriter_.lost.Empty()) return;
  const RegisterSet clobbered =
      WrittenBy(loaded_->isa(), rewriter_.plan->sequence.get()) & rewriter_.lost;
  if (clobbered.Empty()) return;
  Row& row = table_[*rewriter_.blind];
  ++row.misled;
  if (a.patched.empty()) {
    ++row.refused;
    for (const v1::Decision& d : a.record.decisions()) {
      const uint64_t offset = kernel.instructions().OffsetOf(rewriter_.instruction);
      if (d.site().location().kernel_offset() != offset || d.violations_size() == 0) continue;
      ++row.by[d.violations(0).constraint_id()];
    }
    const auto emitted = rewriter_.Emit(loaded_->object(), loaded_->All(), {*rewriter_.plan},
                                        /*beside=*/false);
    if (!emitted.ok() || emitted->image.empty()) return;
    ++row.run;
    row.harmful += host.Run(emitted->image, emitted->fixups) != original;
    return;
  }
  if (host.Run(a.patched, a.fixups) == original) {
    ++row.same;
    return;
  }
  ++row.wrong;
  if (++shown_ > 20) return;
  ADD_FAILURE() << "accepted, though results differ: " << probe << " in " << program.kernel
                << " at instruction " << rewriter_.instruction << " ("
                << kernel.isa().Print(kernel.code(),
                                      kernel.instructions().OffsetOf(rewriter_.instruction))
                << "), overlooked: " << rewriter_.lost.ToString()
                << ", written: " << clobbered.ToString() << ", "
                << test::kBlindNames[static_cast<size_t>(*rewriter_.blind)] << ", seed " << seed;
}

TEST_P(Misled, PlansAreRefusedOrChangeNothing) {
  uint32_t seed = 0;
  for (const Program& program : Programs()) {
    Host host(std::get<0>(GetParam()), program);
    const Outcome original = host.Run(bytes_, {});
    ASSERT_EQ(original.fault, Fault::Kind::kNone);
    ASSERT_TRUE(original.ended);
    for (uint32_t n = 0; n < 250 * Scale(); ++n) {
      One(host, original, program, ++seed);
      if (HasFatalFailure()) return;
    }
  }
  Row all;
  std::printf("%-6s %7s %8s %6s %6s  %s\n", "blind", "misled", "refused", "same", "FALSE",
              "refused and run: changed something");
  const auto print = [](const char* name, const Row& r) {
    std::printf("%-6s %7llu %8llu %6llu %6llu  %llu: %llu\n", name,
                static_cast<unsigned long long>(r.misled),
                static_cast<unsigned long long>(r.refused), static_cast<unsigned long long>(r.same),
                static_cast<unsigned long long>(r.wrong), static_cast<unsigned long long>(r.run),
                static_cast<unsigned long long>(r.harmful));
  };
  for (const auto& [blind, r] : table_) {
    print(test::kBlindNames[static_cast<size_t>(blind)], r);
    all.misled += r.misled, all.refused += r.refused, all.same += r.same, all.wrong += r.wrong;
    all.run += r.run, all.harmful += r.harmful;
    for (const auto& [id, count] : r.by) all.by[id] += count;
  }
  print("all", all);
  for (const auto& [id, count] : all.by) {
    std::printf("  refused, %s: %llu\n", id.c_str(), static_cast<unsigned long long>(count));
  }
  RecordProperty("misled", std::to_string(all.misled));
  RecordProperty("refused", std::to_string(all.refused));
  RecordProperty("harmful", std::to_string(all.harmful));
  EXPECT_EQ(all.wrong, 0u);
  EXPECT_EQ(all.misled, all.refused + all.same + all.wrong);
  EXPECT_GT(all.misled, 150u);
  EXPECT_GT(all.harmful, all.run / 3);  // it was worth refusing them
  // By the proof, since nobody else could know.
  EXPECT_GT(all.by[std::string(id::kNotProvenDead)], all.refused / 2);
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param), "_",
                      v1::Placement_Name(std::get<2>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(
    Generations, Misled,
    testing::Combine(testing::Values("gfx90a", "gfx1030", "gfx1100", "gfx1201"),
                     testing::Values("kernels"), testing::Values(v1::CLONE, v1::TRAMPOLINE)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, Misled,
                         testing::Values(Variant("gfx1100", "kernels64", v1::CLONE)), NameOf);

}  // namespace
}  // namespace rjdbi::contract
