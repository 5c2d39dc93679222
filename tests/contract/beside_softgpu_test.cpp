// Images beside the loaded original, on the soft GPU: dispatches alternate between the
// original and the image, and compute what the original alone computes, with one set of
// variables, tables and functions: the original's. The image is fenced in: of its copy of
// the original nothing is there. Counters equal what the soft GPU counted at the same
// instructions when the original ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "contract/admission.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/beside_loading.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::contract {
namespace {

using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::KernelArgs;
using softgpu::LoadedObject;
using softgpu::Machine;
using softgpu::RangeMemory;

v1::Attachment Attach(const std::string& id, const std::string& kernel, const std::string& sites,
                      const std::string& probe) {
  v1::Attachment a;
  a.set_id(id);
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe(probe);
  return a;
}

Policy BesidePolicy() {
  Policy policy = DefaultPolicy();
  policy.ceiling = v1::Budget();
  policy.defaults.set_max_sgpr_delta(96);
  policy.defaults.set_max_vgpr_delta(256);
  policy.defaults.set_max_injected_instructions_per_event(256);
  policy.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 50);
  policy.beside = true;
  return policy;
}

Admission AdmitBeside(const std::vector<uint8_t>& bytes,
                      const std::vector<v1::Attachment>& attachments) {
  auto rewriter = patch::MakeTrampolineRewriter();
  return WithDecisions(Admit(bytes, attachments, BesidePolicy(), *rewriter));
}

bool IsAttached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

uint64_t AddressOf(const v1::Decision& d) { return d.site().location().code_object_vaddr(); }

using Counts = std::map<uint64_t, softgpu::PcCount>;  // by address in the original

// One device with the original loaded, and perhaps an image beside it.
class Device {
 public:
  Device(std::string target, const std::vector<uint8_t>& bytes) : target_(std::move(target)) {
    original_ = Load(bytes);
  }
  RangeMemory& memory() { return memory_; }
  LoadedObject& original() { return *original_; }

  // As an agent does it.
  void LoadBeside(Admission& admission, const void* counters) {
    test::FillFixups(admission.patched, admission.fixups, counters, original_->bias());
    beside_ = Load(admission.patched);
    ASSERT_NE(beside_, nullptr);
    fence_.emplace(memory_, admission, beside_->bias());
    for (const KernelSwitch& s : admission.switches) {
      switches_[original_->bias() + s.original_descriptor] = beside_->bias() + s.descriptor;
    }
  }

  // `attached`: by the switches. What ran in the original is counted, and added to.
  Fault Dispatch(const std::string& kernel, const KernelArgs& args,
                 const softgpu::LaunchShape& shape, bool attached, Counts* counts = nullptr,
                 bool preloads = true) {
    std::string error;
    auto machine = Machine::Create(target_, 1, &memory_, &error);
    EXPECT_NE(machine, nullptr) << error;
    machine->SetPreloads(preloads);
    uint64_t descriptor = original_->Descriptor(kernel);
    EXPECT_NE(descriptor, 0u) << kernel;
    if (attached) {
      const auto to = switches_.find(descriptor);
      EXPECT_NE(to, switches_.end()) << kernel;
      if (to != switches_.end()) descriptor = to->second;
    }
    const Fault fault = softgpu::Launch(*machine, memory_, descriptor, args, shape);
    if (counts == nullptr) return fault;
    for (const auto& [pc, count] : machine->Counts()) {
      softgpu::PcCount& sum = (*counts)[pc - original_->bias()];
      sum.waves += count.waves;
      sum.lanes += count.lanes;
    }
    return fault;
  }

 private:
  std::unique_ptr<LoadedObject> Load(const std::vector<uint8_t>& bytes) {
    std::string error;
    auto object = LoadedObject::Load(bytes, &memory_, &error);
    EXPECT_NE(object, nullptr) << error;
    return object;
  }

  const std::string target_;
  RangeMemory memory_;
  std::unique_ptr<LoadedObject> original_, beside_;
  std::optional<test::Fence> fence_;
  std::map<uint64_t, uint64_t> switches_;  // descriptors
};

// Waves before each instruction, lanes too, waves behind it.
std::vector<v1::Attachment> CountEverywhere(const std::string& kernel) {
  std::vector<v1::Attachment> all = {Attach("a1", kernel, "*", "count-waves"),
                                     Attach("a2", kernel, "*", "count-lanes"),
                                     Attach("a3", kernel, "*", "count-waves")};
  all[2].mutable_spec()->set_position(v1::AFTER);
  return all;
}

// Returns how many sites ran.
size_t CheckCounters(const Admission& admission, const std::vector<uint64_t>& counters,
                     const Counts& truth) {
  size_t ran = 0;
  for (const v1::Decision& d : admission.record.decisions()) {
    if (!IsAttached(d)) continue;
    const auto found = truth.find(AddressOf(d));
    const softgpu::PcCount expected = found == truth.end() ? softgpu::PcCount() : found->second;
    const uint64_t want = d.attachment_id() == "a2" ? expected.lanes : expected.waves;
    EXPECT_EQ(counters[d.counter_index()], want) << d.site().location().ShortDebugString();
    ran += want > 0;
  }
  return ran;
}

// ---- State that the original and the image share ----------------------------------------

// Variables found directly and through the global offset table, tables, functions that
// are called and functions whose addresses are in a table.
constexpr char kShared[] = R"(
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#define NOINLINE __attribute__((noinline))
#define INDEX (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
typedef unsigned int u32;
typedef u32 (*operation)(u32);

global u32 total = 5;
static global u32 steps = 7;
static global u32 history[256];
static constant u32 table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};

static void add(global u32* to, u32 n) {
  __opencl_atomic_fetch_add((global atomic_uint*)to, n, __ATOMIC_RELAXED,
                            __OPENCL_MEMORY_SCOPE_DEVICE);
}
NOINLINE u32 twist(u32 x) { return (x ^ table[x & 15]) * 2654435761u; }
NOINLINE u32 remember(u32 x) {
  add(&total, x & 31);
  return x + table[(x >> 4) & 15];
}
constant operation operations[2] = {twist, remember};

kernel void advance(global u32* out, u32 which) {
  u32 i = INDEX;
  u32 v = table[i & 15] + twist(i + history[i & 255]);
  history[i & 255] = v;
  add(&total, v & 7);
  if (i == 0) steps++;
  out[i] = operations[which & 1](v);
}

kernel void look(global u32* out, u32 which) {
  u32 i = INDEX;
  out[i] = total * 3 + steps + history[(i + which) & 255] + table[i & 15];
}

kernel void apart(global u32* out, u32 which) { out[INDEX] = which; }
)";

class BesideState : public testing::TestWithParam<std::string> {};

// What is in the original's data at the end.
std::vector<uint32_t> StateOf(Device& device) {
  std::vector<uint32_t> state;
  for (const char* name : {"total", "steps", "history"}) {
    const uint64_t at = device.original().Symbol(name);
    EXPECT_NE(at, 0u) << name;
    if (at == 0) continue;
    const size_t words = std::string(name) == "history" ? 256 : 1;
    const auto* first = reinterpret_cast<const uint32_t*>(at);
    state.insert(state.end(), first, first + words);
  }
  return state;
}

TEST_P(BesideState, IsTheOriginals) {
  const auto bytes = test::CompileOpenCl(GetParam(), kShared);
  std::vector<v1::Attachment> asked = CountEverywhere("advance");
  asked.push_back(Attach("a4", "look", "*", "count-waves"));
  Admission admission = AdmitBeside(bytes, asked);
  for (const v1::Violation& v : admission.record.object_violations()) {
    ADD_FAILURE() << v.DebugString();
  }
  ASSERT_EQ(admission.switches.size(), 2u);
  const auto relocated = [](const auto& f) { return f.base == patch::FixupBase::kOriginal; };
  EXPECT_GE(std::count_if(admission.fixups.begin(), admission.fixups.end(), relocated), 12);

  Device alone(GetParam(), bytes), shared(GetParam(), bytes);
  DeviceBuffer<uint64_t> counters(shared.memory(), admission.record.counter_count());
  shared.LoadBeside(admission, counters.data());
  ASSERT_FALSE(HasFatalFailure());
  DeviceBuffer<uint32_t> want(alone.memory(), 128), have(shared.memory(), 128);
  const softgpu::LaunchShape shape = {.grid = {128, 1, 1}, .workgroup = {64, 1, 1}};
  Counts truth, ignored;
  for (uint32_t n = 0; n < 12; ++n) {
    SCOPED_TRACE(n);
    const std::string kernel = n % 3 == 2 ? "look" : "advance";
    const bool beside = n % 2 == 1 || n == 8;
    const Fault expected = alone.Dispatch(kernel, KernelArgs().Add(want.data()).Add(n / 2), shape,
                                          /*attached=*/false, beside ? &truth : &ignored);
    ASSERT_EQ(expected.kind, Fault::Kind::kNone) << expected.what;
    const Fault fault =
        shared.Dispatch(kernel, KernelArgs().Add(have.data()).Add(n / 2), shape, beside);
    ASSERT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
    EXPECT_EQ(have.contents(), want.contents());
    EXPECT_EQ(StateOf(shared), StateOf(alone));
  }
  EXPECT_GT(CheckCounters(admission, counters.contents(), truth), 60u);
}

// The test would see it: a call, a table or a variable at its place in the image.
TEST_P(BesideState, WouldFaultInTheCopy) {
  const auto bytes = test::CompileOpenCl(GetParam(), kShared);
  Admission admission = AdmitBeside(bytes, {Attach("a1", "look", "*", "nop")});
  ASSERT_EQ(admission.switches.size(), 1u);
  Device device(GetParam(), bytes);
  // The loader takes the image's own address for the original's.
  std::string error;
  const auto image = LoadedObject::Load(admission.patched, &device.memory(), &error);
  ASSERT_NE(image, nullptr) << error;
  for (const patch::WordFixup& f : admission.fixups) {
    const uint64_t address = image->bias() + f.addend;
    const auto word = static_cast<uint32_t>(f.high_half ? address >> 32 : address);
    const auto parsed = patch::CodeObject::Parse(admission.patched);
    const patch::Segment& segment = parsed->segments().back();
    std::memcpy(image->image().data() + segment.vaddr + f.offset - segment.offset, &word, 4);
  }
  const test::Fence fence(device.memory(), admission, image->bias());
  DeviceBuffer<uint32_t> out(device.memory(), 128);
  auto machine = Machine::Create(GetParam(), 1, &device.memory(), &error);
  const Fault fault =
      softgpu::Launch(*machine, device.memory(), image->bias() + admission.switches[0].descriptor,
                      KernelArgs().Add(out.data()).Add(uint32_t{0}),
                      {.grid = {128, 1, 1}, .workgroup = {64, 1, 1}});
  EXPECT_NE(fault.kind, Fault::Kind::kNone);
}

// The rewriter with a mistake in what it emits.
class Mistaken : public patch::Rewriter {
 public:
  std::variant<patch::SitePlan, patch::Refusal> Plan(const patch::KernelAnalysis& kernel,
                                                     uint32_t instruction,
                                                     const patch::ProbeRequest& request) override {
    return real_->Plan(kernel, instruction, request);
  }
  absl::StatusOr<patch::RewriteResult> Emit(
      const patch::CodeObject& object, const std::vector<const patch::KernelAnalysis*>& kernels,
      const std::vector<patch::SitePlan>& plans, bool beside) override {
    auto result = real_->Emit(object, kernels, plans, beside);
    if (result.ok() && mistake) mistake(*result);
    return result;
  }
  std::function<void(patch::RewriteResult&)> mistake;

 private:
  std::unique_ptr<patch::Rewriter> real_ = patch::MakeTrampolineRewriter();
};

TEST_P(BesideState, MistakesInAddressesAreRefused) {
  const auto bytes = test::CompileOpenCl(GetParam(), kShared);
  const v1::Attachment asked = Attach("a1", "advance", "memory", "count-waves");
  Mistaken rewriter;
  const auto ids = [&] {
    const Admission a = Admit(bytes, {asked}, BesidePolicy(), rewriter);
    EXPECT_EQ(a.patched.empty(), a.record.object_violations_size() > 0);
    EXPECT_EQ(a.patched.empty(), a.switches.empty());
    return a.record.object_violations_size() > 0 ? a.record.object_violations(0).constraint_id()
                                                 : "";
  };
  std::vector<size_t> words;    // of addresses: indices of fixups
  std::vector<uint64_t> zeros;  // where s_mov_b64 stands for s_getpc_b64: file offsets
  std::vector<uint32_t> were;   // the s_getpc_b64s
  test::Loaded loaded(bytes);
  rewriter.mistake = [&](patch::RewriteResult& result) {
    for (size_t i = 0; i < result.fixups.size(); ++i) {
      if (result.fixups[i].base == patch::FixupBase::kOriginal) words.push_back(i);
    }
    const auto image = patch::CodeObject::Parse(result.image);
    const patch::KernelAnalysis& kernel = loaded.Kernel("advance");
    for (const patch::PcAddress& address : kernel.PcAddresses()) {
      zeros.push_back(*image->VaddrToOffset(result.kernels[0].clone_vaddr +
                                            result.kernels[0].pcs[address.getpc].emitted));
      std::memcpy(&were.emplace_back(),
                  kernel.code().data() + kernel.instructions()[address.getpc].offset, 4);
    }
  };
  ASSERT_EQ(ids(), "");
  ASSERT_EQ(words.size(), 2 * zeros.size());
  ASSERT_GE(zeros.size(), 4u);
  const auto expect_refused = [&](std::function<void(patch::RewriteResult&)> mistake) {
    rewriter.mistake = std::move(mistake);
    EXPECT_EQ(ids(), "RJD-O007");
  };
  for (size_t i = 0; i < zeros.size(); ++i) {
    SCOPED_TRACE(i);
    expect_refused([&](auto& result) { std::memcpy(&result.image[zeros[i]], &were[i], 4); });
    expect_refused([&](auto& result) { result.image[zeros[i]] = 0x81; });  // 1
    expect_refused([&](auto& result) { result.image[zeros[i] + 2] += 2; });
  }
  for (const size_t i : words) {
    SCOPED_TRACE(i);
    using Result = patch::RewriteResult;
    expect_refused([i](Result& r) { r.fixups[i].addend += 4; });
    expect_refused([i](Result& r) { r.fixups[i].addend -= uint64_t{1} << 32; });
    expect_refused([i](Result& r) { r.fixups[i].addend = r.fixups[i].offset; });
    expect_refused([i](Result& r) { r.fixups[i].high_half = !r.fixups[i].high_half; });
    expect_refused([i](Result& r) { r.fixups[i].base = patch::FixupBase::kCounters; });
    expect_refused([i](Result& r) { r.fixups[i].offset += 4; });
    expect_refused(
        [i](Result& r) { r.fixups.erase(r.fixups.begin() + static_cast<ptrdiff_t>(i)); });
    expect_refused([i](Result& r) { r.fixups.push_back(r.fixups[i]); });
  }
}

INSTANTIATE_TEST_SUITE_P(Generations, BesideState,
                         testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1010",
                                                               "gfx1030", "gfx1100", "gfx1201"})),
                         [](const auto& info) { return info.param; });

// ---- The sample kernels ----------------------------------------------------------------

// A launch: buffers of so many words, read or written, then perhaps a count.
struct Program {
  std::string kernel;
  std::vector<uint32_t> in, out;  // words
  uint32_t count = 0;             // last argument, unless 0
  uint32_t grid[2] = {128, 1}, group[2] = {64, 1};
};

const std::vector<Program>& Samples() {
  static const std::vector<Program> programs = {
      {"vadd", {1024, 1024}, {1024}, 500, {512, 1}, {256, 1}},
      {"reduce", {512}, {16}, 0, {512, 1}, {256, 1}},
      {"scratch", {256}, {256}, 0, {128, 1}, {128, 1}},
      {"call", {128}, {128}},
      {"histogram", {1024}, {64}, 1000, {512, 1}, {256, 1}},
      {"any_space", {128}, {128}, 0, {64, 1}, {64, 1}},
      {"matmul", {256, 256}, {256}, 16, {16, 16}, {16, 16}},
  };
  return programs;
}

// The program's buffers on one device.
struct Buffers {
  Buffers(RangeMemory& memory, const Program& program) {
    for (const auto* list : {&program.in, &program.out}) {
      for (const uint32_t words : *list) {
        all.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory, words));
        for (uint32_t i = 0; list == &program.in && i < words; ++i) {
          (*all.back())[i] = (i * 2654435761u >> 20) % 300 + 1;
        }
        args.Add(all.back()->data());
      }
    }
    if (program.count != 0) args.Add(program.count);
  }
  std::vector<std::vector<uint32_t>> Contents() const {
    std::vector<std::vector<uint32_t>> contents;
    for (const auto& buffer : all) contents.push_back(buffer->contents());
    return contents;
  }
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> all;
  KernelArgs args;
};

using Variant = std::tuple<std::string, std::string>;  // target, object
class BesideSamples : public testing::TestWithParam<Variant> {
 protected:
  size_t Check(const std::vector<uint8_t>& bytes, const Program& program, bool preloads) {
    SCOPED_TRACE(absl::StrCat(program.kernel, preloads ? "" : ", arguments not preloaded"));
    const auto& [target, stem] = GetParam();
    Admission admission = AdmitBeside(bytes, CountEverywhere(program.kernel));
    EXPECT_EQ(admission.switches.size(), 1u);
    if (admission.switches.size() != 1) return 0;
    EXPECT_EQ(admission.switches[0].kernel, program.kernel);
    Device device(target, bytes);
    DeviceBuffer<uint64_t> counters(device.memory(), admission.record.counter_count());
    device.LoadBeside(admission, counters.data());
    softgpu::LaunchShape shape;
    std::copy(std::begin(program.grid), std::end(program.grid), shape.grid);
    std::copy(std::begin(program.group), std::end(program.group), shape.workgroup);
    Buffers want(device.memory(), program), have(device.memory(), program);
    Counts truth;
    const Fault expected =
        device.Dispatch(program.kernel, want.args, shape, false, &truth, preloads);
    EXPECT_EQ(expected.kind, Fault::Kind::kNone) << expected.what;
    const Fault fault = device.Dispatch(program.kernel, have.args, shape, true, nullptr, preloads);
    EXPECT_EQ(fault.kind, Fault::Kind::kNone) << fault.what;
    EXPECT_EQ(have.Contents(), want.Contents());
    return CheckCounters(admission, counters.contents(), truth);
  }
};

TEST_P(BesideSamples, ComputeTheSame) {
  const auto& [target, stem] = GetParam();
  const auto bytes =
      softgpu::ReadBinaryFile(absl::StrCat(SOFTGPU_KERNEL_DIR, "/", stem, "-", target, ".co"));
  ASSERT_FALSE(bytes.empty());
  size_t ran = 0;
  for (const Program& program : Samples()) {
    ran += Check(bytes, program, true);
    // LLVM 19 only traps at the other entry.
    if (stem != "kernelsp") continue;
    test::Loaded loaded(bytes);
    const patch::KernelAnalysis& kernel = loaded.Kernel(program.kernel);
    if (kernel.preload_entry() == 0 || kernel.instructions()[0].opcode == "s_trap") continue;
    ran += Check(bytes, program, false);
  }
  EXPECT_GT(ran, 600u);
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param);
}
INSTANTIATE_TEST_SUITE_P(
    Generations, BesideSamples,
    testing::Combine(testing::ValuesIn(softgpu::WithNewer({"gfx90a", "gfx942", "gfx1030", "gfx1100",
                                                           "gfx1201"})),
                     testing::Values("kernels", "kernels0")),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Preload, BesideSamples,
                         testing::Combine(testing::Values("gfx90a", "gfx942"),
                                          testing::Values("kernelsp")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, BesideSamples,
                         testing::Combine(testing::Values("gfx1030", "gfx1100", "gfx1201"),
                                          testing::Values("kernels64")),
                         NameOf);

}  // namespace
}  // namespace rjdbi::contract
