// The example that ships, compiled by clang, at every memory instruction of the
// sample kernels: every site is proven, the kernels compute what they computed, and
// the probes' words are what the soft GPU saw of the addresses in the unpatched run.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "contract/admission.h"
#include "contract/user_probe.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "tests/contract/beside_loading.h"
#include "tests/contract/expanded.h"
#include "tests/softgpu/interp/test_loader.h"

namespace rjdbi::contract {
namespace {

using softgpu::DeviceBuffer;
using softgpu::Fault;
using softgpu::Inst;
using softgpu::KernelArgs;
using softgpu::LoadedObject;
using softgpu::Machine;
using softgpu::RangeMemory;
using softgpu::Wave;

// A launch: buffers of so many words, read or written, then perhaps a count.
struct Program {
  std::string kernel;
  std::vector<uint32_t> in, out;  // words
  uint32_t count = 0;             // last argument, unless 0
  uint32_t grid[2] = {128, 1}, group[2] = {64, 1};
  bool alternating = false;  // in, out, in, out
};

const std::vector<Program>& Samples() {
  static const std::vector<Program> programs = {
      {"vadd", {1024, 1024}, {1024}, 500, {512, 1}, {256, 1}},
      {"reduce", {512}, {16}, 0, {512, 1}, {256, 1}},
      {"collatz", {128}, {128}},
      {"call", {128}, {128}},
      {"histogram", {1024}, {64}, 1000, {512, 1}, {256, 1}},
      {"any_space", {128}, {128}, 0, {64, 1}, {64, 1}},
      {"matmul", {256, 256}, {256}, 16, {16, 16}, {16, 16}},
      {"wide", {256}, {256, 256, 256}},
      {"bytes", {32, 64}, {32, 64}, 0, {128, 1}, {64, 1}, true},
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

// Where an instruction's address is, read from its disassembly.
struct Address {
  int vgpr = -1, base = -1;  // first register
  bool wide = false;         // two vector registers
  int64_t offset = 0;
};

Address AddressIn(const std::string& text) {
  Address address;
  static const std::regex token(R"((v|s)\[(\d+):(\d+)\]|v(\d+))");
  const bool returns = absl::StrContains(text, "_load_") || absl::StrContains(text, "_read_") ||
                       absl::StrContains(text, " glc") || absl::StrContains(text, " sc0") ||
                       absl::StrContains(text, "_rtn") || absl::StrContains(text, "ATOMIC_RETURN");
  int vectors = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), token), end; at != end; ++at) {
    const std::smatch& m = *at;
    if (m[1] == "s") {
      address.base = std::stoi(m[2]);
    } else if (vectors++ == (returns ? 1 : 0)) {
      address.wide = m[4].length() == 0;
      address.vgpr = std::stoi(address.wide ? m[2] : m[4]);
    }
  }
  static const std::regex offset(R"(offset:(-?\d+))");
  std::smatch m;
  if (std::regex_search(text, m, offset)) address.offset = std::stoll(m[1]);
  return address;
}

// Words of the two probes of the example, and of one with a loop.
struct Words {
  uint64_t misaligned = 0, lanes = 0, histogram[8] = {}, bits[3] = {};
};

class Truth : public softgpu::Observer {
 public:
  void Want(uint64_t pc, const std::string& text) { wanted_[pc] = AddressIn(text); }
  void OnInstruction(const Wave& wave, const Inst& inst) override {
    const auto found = wanted_.find(inst.pc);
    if (found == wanted_.end()) return;
    const Address& where = found->second;
    Words& words = seen_[inst.pc];
    for (uint32_t lane = 0; lane < wave.lanes; ++lane) {
      if ((wave.Exec() >> lane & 1) == 0) continue;
      const auto vgpr = [&](int n) {
        return uint64_t{wave.vgpr[static_cast<size_t>(n) * wave.lanes + lane]};
      };
      uint64_t address = vgpr(where.vgpr);
      if (where.wide) address |= vgpr(where.vgpr + 1) << 32;
      if (where.base >= 0) address += wave.ReadS64(static_cast<uint16_t>(where.base));
      address += static_cast<uint64_t>(where.offset);
      words.misaligned += (address & 3) != 0;
      ++words.lanes;
      ++words.histogram[address >> 2 & 7];
      for (unsigned bit = 0; bit < 3; ++bit) words.bits[bit] += address >> (bit + 2) & 1;
    }
  }
  const Words& At(uint64_t pc) { return seen_[pc]; }

 private:
  std::map<uint64_t, Address> wanted_;
  std::map<uint64_t, Words> seen_;
};

struct Outcome {
  Fault fault;
  std::vector<std::vector<uint32_t>> memory;
  uint64_t bias = 0;
};

// Buffers at the same addresses in every run, so that addresses can be compared.
class Host {
 public:
  Host(std::string target, const Program& program) : target_(std::move(target)), program_(program) {
    std::vector<std::pair<bool, uint32_t>> order;  // read, words
    for (const uint32_t words : program.in) order.emplace_back(true, words);
    size_t at = 1;
    for (const uint32_t words : program.out) {
      const size_t place = program.alternating ? at : order.size();
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), {false, words});
      at += 2;
    }
    for (const auto& [read, words] : order) {
      read_.push_back(read);
      buffers_.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory_, words));
      args_.Add(buffers_.back()->data());
    }
    if (program.count != 0) args_.Add(program.count);
  }
  RangeMemory& memory() { return memory_; }

  template <typename Prepare>
  Outcome Run(const std::vector<uint8_t>& elf, const Prepare& prepare) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
      for (uint32_t i = 0; i < buffers_[b]->size(); ++i) {
        (*buffers_[b])[i] = read_[b] ? Scramble(i) % 300 + 1 : 0;
      }
    }
    Outcome outcome;
    std::string error;
    auto object = LoadedObject::Load(elf, &memory_, &error);
    auto machine = Machine::Create(target_, 1, &memory_, &error);
    EXPECT_TRUE(object && machine) << error;
    if (!object || !machine) return outcome;
    outcome.bias = object->bias();
    machine->SetObserver(prepare(object->bias()));
    softgpu::LaunchShape shape;
    std::copy(std::begin(program_.grid), std::end(program_.grid), shape.grid);
    std::copy(std::begin(program_.group), std::end(program_.group), shape.workgroup);
    outcome.fault =
        softgpu::Launch(*machine, memory_, object->Descriptor(program_.kernel), args_, shape);
    for (const auto& buffer : buffers_) outcome.memory.push_back(buffer->contents());
    return outcome;
  }

 private:
  const std::string target_;
  const Program& program_;
  RangeMemory memory_;
  std::vector<bool> read_;
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers_;
  KernelArgs args_;
};

std::string ReadProbe(const std::string& target, const char* source) {
  std::ifstream file(absl::StrCat(RJDBI_PROBE_OBJECTS, "/", target, ".", source, ".19.o"),
                     std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string ManifestOf(const std::string& object, const std::string& entry, int words) {
  const auto parsed =
      patch::DeviceObject::Parse({reinterpret_cast<const uint8_t*>(object.data()), object.size()});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const patch::DeviceFunction* function = parsed->Find(entry);
  EXPECT_NE(function, nullptr);
  return absl::StrCat(R"(schema_version: 1
probe: "mine"
memory: PRIVATE_TELEMETRY
control: FALL_THROUGH
synchronisation: ATOMIC_SYSTEM_SCOPE
synchronisation: ATOMIC_AGENT_SCOPE
mask_policy: APPLICATION_MASK
max_instructions_per_event: 120
max_telemetry_bytes_per_event: 2048
amdgpu {
  reads: "EXEC" reads: "SCC" reads: "VCC" reads: "VGPR" reads: "SGPR"
  max_temporary_sgprs: 24
  max_temporary_vgprs: 16
}
user {
  entry: ")",
                      entry, "\"\n  body_sha256: \"", FunctionDigest(*function),
                      "\"\n  arguments { source: ADDRESS }\n  arguments { source: TELEMETRY }\n"
                      "  telemetry_words: ",
                      words, "\n}\n");
}

v1::Attachment Attach(const std::string& id, const std::string& kernel, const std::string& object,
                      const std::string& entry, int words, v1::Placement placement) {
  v1::Attachment a;
  a.set_id(id);
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites("global_* or flat_* or ds_*");
  a.mutable_spec()->set_probe("mine");
  a.mutable_spec()->set_probe_object(object);
  a.mutable_spec()->set_probe_manifest(ManifestOf(object, entry, words));
  a.mutable_spec()->set_placement(placement);
  return a;
}

Policy Generous() {
  Policy policy = DefaultPolicy();
  policy.ceiling = v1::Budget();
  policy.defaults.set_max_sgpr_delta(96);
  policy.defaults.set_max_vgpr_delta(256);
  policy.defaults.set_max_injected_instructions_per_event(256);
  policy.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 50);
  return policy;
}

bool IsAttached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

struct Totals {
  uint64_t sites = 0, refused = 0, unexpected = 0, misaligned = 0, lanes = 0, executed = 0;
};

// AUTO: beside the loaded original.
using Variant = std::tuple<std::string, v1::Placement>;
class UserProbes : public testing::TestWithParam<Variant> {
 protected:
  void Check(const std::vector<uint8_t>& bytes, const Program& program, Totals& totals);
};

void UserProbes::Check(const std::vector<uint8_t>& bytes, const Program& program, Totals& totals) {
  SCOPED_TRACE(program.kernel);
  const auto& [target, placement] = GetParam();
  const std::string object = ReadProbe(target, "hip"), loops = ReadProbe(target, "loops");
  auto rewriter = patch::MakeTrampolineRewriter();
  Policy policy = Generous();
  policy.beside = placement == v1::AUTO;
  Admission admission =
      WithDecisions(Admit(bytes,
                          {Attach("a1", program.kernel, object, "misaligned", 2, placement),
                           Attach("a2", program.kernel, object, "word_histogram", 8, placement),
                           Attach("a3", program.kernel, loops, "address_bits", 3, placement)},
                          policy, *rewriter));
  const v1::AdmissionRecord& record = admission.record;
  ASSERT_EQ(record.object_violations_size(), 0) << record.object_violations(0).DebugString();
  std::vector<const v1::Decision*> sites;
  for (const v1::Decision& d : record.decisions()) {
    EXPECT_NE(d.outcome(), v1::REJECTED_EFFECT) << d.DebugString();
    EXPECT_NE(d.outcome(), v1::OVER_BUDGET) << d.DebugString();
    if (IsAttached(d)) {
      EXPECT_EQ(d.effects().certainty(), v1::PROVEN);
      sites.push_back(&d);
    } else {
      ++totals.refused;
      // LDS instructions with two addresses, or with none (lanes, caches); or VCC,
      // which a load may still write.
      const std::string& id = d.violations(0).constraint_id();
      const std::string& text = d.site().location().instruction();
      const bool two = absl::StrContains(text, "read2") || absl::StrContains(text, "write2") ||
                       absl::StrContains(text, "_2addr_") || absl::StrContains(text, "permute") ||
                       absl::StrContains(text, "swizzle") ||
                       absl::StrContains(text, "global_inv") ||
                       absl::StrContains(text, "global_wb");
      EXPECT_TRUE(two ? id == "RJD-U015" : id == "RJD-R001") << d.DebugString();
      totals.unexpected += !two;
    }
  }
  if (sites.empty()) return;
  Host host(target, program);
  Truth truth;
  const Outcome before = host.Run(bytes, [&](uint64_t bias) {
    for (const v1::Decision* d : sites) {
      const v1::Location& at = d->site().location();
      truth.Want(bias + at.code_object_vaddr(), at.instruction());
    }
    return &truth;
  });
  ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
  DeviceBuffer<uint64_t> words(host.memory(), record.counter_count());
  std::string error;
  const auto original = LoadedObject::Load(bytes, &host.memory(), &error);
  ASSERT_NE(original, nullptr) << error;
  test::FillFixups(admission.patched, admission.fixups, words.data(), original->bias());
  std::optional<test::Fence> fence;
  const Outcome after = host.Run(admission.patched, [&](uint64_t bias) -> softgpu::Observer* {
    if (policy.beside) fence.emplace(host.memory(), admission, bias);
    return nullptr;
  });
  ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
  EXPECT_EQ(after.memory, before.memory);
  for (const v1::Decision* d : sites) {
    const v1::Location& at = d->site().location();
    SCOPED_TRACE(at.ShortDebugString());
    const Words& expected = truth.At(before.bias + at.code_object_vaddr());
    const uint32_t first = d->counter_index();
    if (d->attachment_id() == "a1") {
      EXPECT_EQ(words[first], expected.misaligned);
      EXPECT_EQ(words[first + 1], expected.lanes);
    } else if (d->attachment_id() == "a3") {
      for (uint32_t bit = 0; bit < 3; ++bit)
        EXPECT_EQ(words[first + bit], expected.bits[bit]) << bit;
    } else {
      for (uint32_t bin = 0; bin < 8; ++bin) {
        EXPECT_EQ(words[first + bin], expected.histogram[bin]) << bin;
      }
    }
    totals.lanes += expected.lanes;
    totals.misaligned += expected.misaligned;
    totals.executed += expected.lanes > 0;
  }
  totals.sites += sites.size();
}

TEST_P(UserProbes, CountWhatTheSoftGpuSaw) {
  const std::string target = std::get<0>(GetParam());
  const auto bytes =
      softgpu::ReadBinaryFile(absl::StrCat(SOFTGPU_KERNEL_DIR, "/kernels-", target, ".co"));
  ASSERT_FALSE(bytes.empty());
  Totals totals;
  for (const Program& program : Samples()) {
    Check(bytes, program, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.sites, 70u);
  EXPECT_GT(totals.executed, 60u);
  EXPECT_GT(totals.lanes, 10000u);
  EXPECT_GT(totals.misaligned, 100u);
  EXPECT_LT(totals.unexpected, totals.sites / 10);
  RecordProperty("sites", static_cast<int>(totals.sites));
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return absl::StrCat(std::get<0>(info.param), "_", v1::Placement_Name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Generations, UserProbes,
                         testing::Combine(testing::Values("gfx900", "gfx90a", "gfx942", "gfx1030",
                                                          "gfx1100", "gfx1201"),
                                          testing::Values(v1::CLONE, v1::TRAMPOLINE, v1::AUTO)),
                         NameOf);

}  // namespace
}  // namespace rjdbi::contract
