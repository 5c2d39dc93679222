// Probes that write trace records, from admission to the records themselves: every
// sequence is proven, the kernels compute on the soft GPU what they computed, and
// what the ring holds is what the soft GPU saw of the unpatched kernels. Records and
// lost ones together are the executions, site by site, however small the ring is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/ring_reader.h"
#include "contract/admission.h"
#include "contract/record_format.h"
#include "patch/rewrite/trampoline_rewriter.h"
#include "proto/rjdbi/telemetry_ring.h"
#include "tests/contract/beside_loading.h"
#include "tests/contract/expanded.h"
#include "tests/patch/analysis_assemble.h"
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
};

const std::vector<Program>& Samples() {
  static const std::vector<Program> programs = {
      {"vadd", {1024, 1024}, {1024}, 500, {512, 1}, {256, 1}},
      {"reduce", {512}, {16}, 0, {512, 1}, {256, 1}},
      {"collatz", {128}, {128}},
      {"scratch", {256}, {256}, 0, {128, 1}, {128, 1}},
      {"call", {128}, {128}},
      {"histogram", {1024}, {64}, 1000, {512, 1}, {256, 1}},
      {"any_space", {128}, {128}, 0, {64, 1}, {64, 1}},
      {"matmul", {256, 256}, {256}, 16, {16, 16}, {16, 16}},
      {"wide", {256}, {256, 256, 256}},
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

// One execution of an instruction, as the soft GPU saw it or as a record says it.
struct Execution {
  uint64_t exec = 0;
  std::vector<uint64_t> values;  // addresses of active lanes, a register, ...
  uint32_t wave = 0;
  uint32_t workgroup[3] = {0, 0, 0};
  auto operator<=>(const Execution&) const = default;
};
using Executions = std::map<Execution, uint64_t>;  // how often

// What the probes at a site should have recorded.
class Truth : public softgpu::Observer {
 public:
  using Collect = std::function<void(const Wave&, const Inst&, Execution*)>;
  void Want(uint64_t pc, Collect collect) { wanted_[pc] = std::move(collect); }
  void OnInstruction(const Wave& wave, const Inst& inst) override {
    const auto found = wanted_.find(inst.pc);
    if (found == wanted_.end()) return;
    Execution execution;
    execution.exec = wave.Exec();
    found->second(wave, inst, &execution);
    ++seen_[inst.pc][execution];
  }
  const Executions& At(uint64_t pc) { return seen_[pc]; }

 private:
  std::map<uint64_t, Collect> wanted_;
  std::map<uint64_t, Executions> seen_;
};

// A load's buffer: counters, then the ring; read with the agent's own reader.
class Buffer : public agent::RecordSink {
 public:
  Buffer(RangeMemory& memory, const v1::AdmissionRecord& record)
      : memory_(memory),
        bytes_(record.ring_offset() + RJDBI_RING_HEADER_BYTES +
               2 * uint64_t{record.ring_half_bytes()} + RJDBI_RING_PAD_BYTES),
        data_(bytes_ + RJDBI_RING_ALIGNMENT) {
    const auto at = reinterpret_cast<uintptr_t>(data_.data());
    begin_ = data_.data() + (RJDBI_RING_ALIGNMENT - at % RJDBI_RING_ALIGNMENT);
    memory_.Add(begin_, bytes_, true);
    agent::RingReader::Format(begin_ + record.ring_offset(), record.ring_half_bytes());
    agent::RingReader::Shape shape;
    shape.half_bytes = record.ring_half_bytes();
    for (const v1::Decision& d : record.decisions()) {
      if (!d.has_record_layout()) continue;
      ++shape.sites;
      shape.sizes |= uint64_t{1} << (d.record_layout().bytes() / RJDBI_RECORD_ALIGNMENT);
    }
    reader_.emplace(begin_ + record.ring_offset(), shape);
  }
  ~Buffer() override { memory_.Remove(begin_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void Take(const uint8_t* records, size_t bytes, uint64_t count) override {
    ++runs_;
    while (count-- > 0 && bytes > 0) {
      const uint32_t size = RecordBytes({records, bytes});
      ASSERT_GT(size, 0u);
      records_.emplace_back(records, records + size);
      records += size;
      bytes -= size;
    }
    EXPECT_EQ(bytes, 0u);
  }

  void Poll() { reader_->Read(++now_, *this); }
  void Finish() { reader_->Finish(*this); }
  uint8_t* begin() { return begin_; }
  const agent::RingTotals& totals() const { return reader_->totals(); }
  const std::vector<std::vector<uint8_t>>& records() const { return records_; }
  uint64_t runs() const { return runs_; }
  uint64_t Counter(uint32_t index) const {
    uint64_t value = 0;
    std::memcpy(&value, begin_ + 8 * uint64_t{index}, sizeof value);
    return value;
  }
  bool PadIsUntouched() const {
    const uint8_t* pad = begin_ + bytes_ - RJDBI_RING_PAD_BYTES;
    return std::all_of(pad, pad + RJDBI_RING_PAD_BYTES, [](uint8_t byte) { return byte == 0; });
  }

 private:
  RangeMemory& memory_;
  const uint64_t bytes_;
  std::vector<uint8_t> data_;
  uint8_t* begin_ = nullptr;
  std::optional<agent::RingReader> reader_;
  int64_t now_ = 0;  // far from any patience
  uint64_t runs_ = 0;
  std::vector<std::vector<uint8_t>> records_;
};

// Reads the ring while the kernel runs, every so many instructions.
class Drain : public softgpu::Observer {
 public:
  Drain(Buffer& buffer, uint32_t every) : buffer_(buffer), every_(every) {}
  void OnInstruction(const Wave&, const Inst&) override {
    if (every_ != 0 && ++instructions_ % every_ == 0) buffer_.Poll();
  }

 private:
  Buffer& buffer_;
  const uint32_t every_;
  uint64_t instructions_ = 0;
};

struct Outcome {
  Fault fault;
  std::vector<std::vector<uint32_t>> memory;
};

// A launch needs the observer's program counters before it runs.
using Prepare = std::function<softgpu::Observer*(const LoadedObject&)>;

// Buffers at the same addresses in every run, so that addresses can be compared.
class Host {
 public:
  Host(std::string target, uint64_t seed, const Program& program)
      : target_(std::move(target)), seed_(seed), program_(program) {
    for (const auto* list : {&program.in, &program.out}) {
      for (const uint32_t words : *list) {
        buffers_.push_back(std::make_unique<DeviceBuffer<uint32_t>>(memory_, words));
        args_.Add(buffers_.back()->data());
      }
    }
    if (program.count != 0) args_.Add(program.count);
  }

  RangeMemory& memory() { return memory_; }

  // The same in every run: in a buffer, or an offset into LDS or scratch. Other
  // addresses, of arguments and constants, count as 0.
  uint64_t Comparable(uint64_t address) const {
    if (address < uint64_t{1} << 32 || address >= uint64_t{1} << 48) return address;
    for (const auto& buffer : buffers_) {
      const auto begin = reinterpret_cast<uint64_t>(buffer->data());
      if (address >= begin && address < begin + 4 * buffer->size()) return address;
    }
    return 0;
  }

  Outcome Run(const std::vector<uint8_t>& elf, const Prepare& prepare) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
      for (uint32_t i = 0; i < buffers_[b]->size(); ++i) {
        (*buffers_[b])[i] = b < program_.in.size() ? Scramble(i) % 300 + 1 : 0;
      }
    }
    Outcome outcome;
    std::string error;
    auto object = LoadedObject::Load(elf, &memory_, &error);
    auto machine = Machine::Create(target_, seed_, &memory_, &error);
    EXPECT_TRUE(object && machine) << error;
    if (!object || !machine) return outcome;
    machine->SetObserver(prepare(*object));
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
  const uint64_t seed_;
  const Program& program_;
  RangeMemory memory_;
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers_;
  KernelArgs args_;
};

v1::Attachment Attach(const std::string& kernel, const std::string& probe, const std::string& sites,
                      v1::Placement placement, v1::Position position) {
  v1::Attachment a;
  a.set_id("a1");
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(sites);
  a.mutable_spec()->set_probe(probe);
  a.mutable_spec()->set_placement(placement);
  a.mutable_spec()->set_position(position);
  return a;
}

Policy Generous(uint32_t half_bytes) {
  Policy policy = DefaultPolicy();
  policy.ceiling = v1::Budget();
  policy.defaults.set_max_sgpr_delta(96);
  policy.defaults.set_max_vgpr_delta(256);
  policy.defaults.set_max_injected_instructions_per_event(256);
  policy.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 50);
  policy.ring_half_bytes = half_bytes;
  return policy;
}

// The executions that a decision's records tell of.
using Tell = std::function<Execution(const Host&, const Record&)>;
// What the soft GPU has to note of an execution.
using Note = std::function<Truth::Collect(const Host&, const v1::Decision&)>;

struct Case {
  std::string target, object, probe, sites = "*";
  v1::Placement placement = v1::CLONE;
  v1::Position position = v1::BEFORE;
  std::string value_register;
  uint32_t half_bytes = 1u << 20;
  uint32_t poll_every = 0;  // instructions; 0: only at the end
  bool beside = false;      // an image beside the loaded original
};

struct Totals {
  uint64_t requested = 0, sites = 0, records = 0, lost = 0, runs = 0;
  std::map<std::string, uint64_t> refused;  // by constraint
  std::vector<uint32_t> instructions;       // per event, of each site
};

bool IsAttached(const v1::Decision& d) {
  return d.outcome() == v1::VERIFIED_ATTACH || d.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

void Check(const Case& c, const std::vector<uint8_t>& bytes, const Program& program,
           const Note& note, const Tell& tell, Totals& totals) {
  SCOPED_TRACE(program.kernel);
  auto rewriter = patch::MakeTrampolineRewriter();
  v1::Attachment attachment = Attach(program.kernel, c.probe, c.sites, c.placement, c.position);
  attachment.mutable_spec()->set_value_register(c.value_register);
  Policy policy = Generous(c.half_bytes);
  policy.beside = c.beside;
  Admission admission = WithDecisions(Admit(bytes, {attachment}, policy, *rewriter));
  const v1::AdmissionRecord& record = admission.record;
  ASSERT_EQ(record.object_violations_size(), 0) << record.object_violations(0).DebugString();
  std::vector<const v1::Decision*> sites;
  for (const v1::Decision& d : record.decisions()) {
    // What cannot be recorded is refused for reasons of the site, never of the engine.
    EXPECT_NE(d.outcome(), v1::REJECTED_EFFECT) << d.DebugString();
    ++totals.requested;
    if (!IsAttached(d)) ++totals.refused[d.violations(0).constraint_id()];
    if (!IsAttached(d)) continue;
    totals.instructions.push_back(d.effects().instructions());
    ASSERT_EQ(d.record_layout().site(), sites.size());
    EXPECT_EQ(d.effects().certainty(), v1::PROVEN);
    sites.push_back(&d);
  }
  if (sites.empty()) return;
  ASSERT_EQ(record.ring_half_bytes(), c.half_bytes);
  EXPECT_EQ(record.ring_offset() % RJDBI_RING_ALIGNMENT, 0u);
  EXPECT_GE(record.ring_offset(), 8 * uint64_t{record.counter_count()});
  EXPECT_LT(record.ring_offset(), 8 * uint64_t{record.counter_count()} + RJDBI_RING_ALIGNMENT);
  Host host(c.target, 1, program);
  Truth truth;
  const auto vaddr = [](const v1::Decision& d) { return d.site().location().code_object_vaddr(); };
  uint64_t bias = 0;
  const Outcome before = host.Run(bytes, [&](const LoadedObject& object) {
    bias = object.bias();
    for (const v1::Decision* d : sites) truth.Want(bias + vaddr(*d), note(host, *d));
    return &truth;
  });
  ASSERT_EQ(before.fault.kind, Fault::Kind::kNone) << before.fault.what;
  Buffer buffer(host.memory(), record);
  Drain drain(buffer, c.poll_every);
  std::string error;
  const auto original = LoadedObject::Load(bytes, &host.memory(), &error);
  ASSERT_NE(original, nullptr) << error;
  test::FillFixups(admission.patched, admission.fixups, buffer.begin(), original->bias());
  std::optional<test::Fence> fence;
  const Outcome after = host.Run(admission.patched, [&](const LoadedObject& object) {
    if (c.beside) fence.emplace(host.memory(), admission, object.bias());
    return &drain;
  });
  ASSERT_EQ(after.fault.kind, Fault::Kind::kNone) << after.fault.what;
  EXPECT_EQ(after.memory, before.memory);
  buffer.Finish();
  EXPECT_TRUE(buffer.PadIsUntouched());
  std::map<uint32_t, Executions> told;  // by site
  std::map<uint32_t, uint64_t> records;
  for (const std::vector<uint8_t>& bytes_of : buffer.records()) {
    rjdbi_record_header header;
    std::memcpy(&header, bytes_of.data(), sizeof header);
    const uint32_t site = RJDBI_RECORD_SITE(header.descriptor);
    ASSERT_LT(site, sites.size());
    const auto decoded = DecodeRecord(sites[site]->record_layout(), bytes_of);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ++told[site][tell(host, *decoded)];
    ++records[site];
  }
  uint64_t lost_bytes = 0;
  for (uint32_t s = 0; s < sites.size(); ++s) {
    SCOPED_TRACE(sites[s]->site().location().ShortDebugString());
    const Executions& expected = truth.At(bias + vaddr(*sites[s]));
    uint64_t executions = 0;
    for (const auto& [execution, times] : expected) executions += times;
    const uint64_t lost = buffer.Counter(sites[s]->counter_index());
    EXPECT_EQ(records[s] + lost, executions);
    lost_bytes += lost * sites[s]->record_layout().bytes();
    for (const auto& [execution, times] : told[s]) {
      const auto found = expected.find(execution);
      EXPECT_GE(found == expected.end() ? 0 : found->second, times);
    }
    totals.lost += lost;
    totals.records += records[s];
  }
  const agent::RingTotals& ring = buffer.totals();
  EXPECT_EQ(ring.unfinished, 0u);
  EXPECT_EQ(ring.lost, lost_bytes);
  EXPECT_EQ(ring.asked, ring.read + ring.lost);
  totals.sites += sites.size();
  totals.runs += buffer.runs();
}

std::vector<uint8_t> ObjectFor(const Case& c) {
  return softgpu::ReadBinaryFile(
      absl::StrCat(SOFTGPU_KERNEL_DIR, "/", c.object, "-", c.target, ".co"));
}

// ---- what each probe says ---------------------------------------------------------------

Truth::Collect NoteExec(const Host&, const v1::Decision& d) {
  const bool known = d.record_layout().workgroup_id_known();
  return [known](const Wave& wave, const Inst&, Execution* e) {
    e->wave = wave.hw_id;
    if (known) std::copy(std::begin(wave.group->id), std::end(wave.group->id), e->workgroup);
  };
}

// An axis that the kernel is not told is ~0; the launches do not use it.
Execution TellExec(const Host&, const Record& r) {
  Execution e;
  e.exec = r.exec;
  e.wave = r.wave.value_or(~0u);
  for (size_t axis = 0; axis < 3; ++axis) {
    const uint32_t id = r.workgroup ? (*r.workgroup)[axis] : 0;
    e.workgroup[axis] = id == ~0u ? 0 : id;
  }
  return e;
}

// By the soft GPU's own decoding of the instruction.
uint64_t AddressOf(const Wave& wave, const Inst& inst, uint32_t lane, v1::AddressForm form) {
  Wave& w = const_cast<Wave&>(wave);  // its accessors are not const
  const auto vector = [&](uint16_t reg) { return uint64_t{w.V(reg)[lane]}; };
  const bool has_vector = inst.addr.kind == softgpu::Operand::Kind::kVgpr;
  const auto scalar = [&](const softgpu::Operand& o) {
    return o.kind == softgpu::Operand::Kind::kSgpr  ? uint64_t{wave.ReadS(o.reg)}
           : o.kind == softgpu::Operand::Kind::kImm ? uint64_t{o.imm}
                                                    : 0;
  };
  const auto offset = static_cast<uint64_t>(inst.offset);
  switch (form) {
    case v1::ADDRESS_FLAT:
      return vector(inst.addr.reg) + (vector(inst.addr.reg + 1) << 32) + offset;
    case v1::ADDRESS_GLOBAL_SADDR:
      return wave.ReadS64(inst.saddr.reg) + vector(inst.addr.reg) + offset;
    case v1::ADDRESS_LDS:
      return vector(inst.addr.reg) + offset;
    case v1::ADDRESS_SCRATCH:
      return static_cast<uint32_t>((has_vector ? vector(inst.addr.reg) : 0) + scalar(inst.saddr) +
                                   offset);
    case v1::ADDRESS_SCALAR:
      return wave.ReadS64(inst.saddr.reg) + scalar(inst.soffset) + offset;
    default:
      return 0;
  }
}

Truth::Collect NoteAddresses(const Host& host, const v1::Decision& d) {
  const v1::RecordLayout layout = d.record_layout();
  return [layout, &host](const Wave& wave, const Inst& inst, Execution* e) {
    const v1::AddressForm form = layout.address_form();
    if (form == v1::ADDRESS_BUFFER) return;
    if (form == v1::ADDRESS_SCALAR) {
      e->values.push_back(host.Comparable(AddressOf(wave, inst, 0, form)));
      return;
    }
    for (uint32_t lane = 0; lane < wave.lanes; ++lane) {
      if ((wave.Exec() >> lane & 1) == 0) continue;
      if (!layout.has_offset1()) {
        e->values.push_back(host.Comparable(AddressOf(wave, inst, lane, form)));
        continue;
      }
      // Offsets of two accesses are in elements, or 64 of them.
      const bool far = inst.name.find("ST64") != std::string_view::npos;
      const uint64_t unit = (inst.name.ends_with("B64") ? 8 : 4) * (far ? 64 : 1);
      const uint64_t base = AddressOf(wave, inst, lane, form) - static_cast<uint64_t>(inst.offset);
      e->values.push_back(base + static_cast<uint64_t>(inst.offset) * unit);
      e->values.push_back(base + static_cast<uint64_t>(inst.offset1) * unit);
    }
  };
}

Execution TellAddresses(const Host& host, const Record& r) {
  Execution e;
  e.exec = r.exec;
  if (r.scalar) e.values.push_back(host.Comparable(*r.scalar));
  if (!r.no_addresses.empty()) return e;
  for (const Record::Lane& lane : r.lanes) {
    e.values.push_back(host.Comparable(lane.value));
    if (lane.second) e.values.push_back(*lane.second);
  }
  return e;
}

uint64_t ScalarValue(const Wave& wave, const std::string& name) {
  if (name == "scc") return wave.scc ? 1 : 0;
  if (name == "m0") return wave.ReadS(softgpu::kM0);
  if (name == "exec" || name == "exec_lo") return wave.Exec();
  if (name == "vcc_lo") return wave.ReadS(softgpu::kVccLo);
  if (name == "vcc") return wave.ReadS64(softgpu::kVccLo);
  ADD_FAILURE() << name;
  return 0;
}

Truth::Collect NoteValue(const Host&, const v1::Decision& d) {
  const v1::RecordLayout layout = d.record_layout();
  return [layout](const Wave& wave, const Inst&, Execution* e) {
    const std::string& name = layout.value_register();
    if (layout.lane_bytes() == 0) {
      e->wave = wave.hw_id;
      e->values.push_back(ScalarValue(wave, name));
      return;
    }
    const auto reg = static_cast<uint32_t>(std::stoul(name.substr(1)));
    Wave& w = const_cast<Wave&>(wave);  // its accessors are not const
    for (uint32_t lane = 0; lane < wave.lanes; ++lane) {
      if ((wave.Exec() >> lane & 1) != 0) e->values.push_back(w.V(reg)[lane]);
    }
  };
}

Execution TellValue(const Host&, const Record& r) {
  Execution e;
  e.exec = r.exec;
  e.wave = r.wave.value_or(0);
  if (r.scalar) e.values.push_back(*r.scalar);
  for (const Record::Lane& lane : r.lanes) e.values.push_back(lane.value);
  return e;
}

// Times are the patched kernel's own.
Truth::Collect NoteClock(const Host&, const v1::Decision&) {
  return [](const Wave& wave, const Inst&, Execution* e) { e->wave = wave.hw_id; };
}
Execution TellClock(const Host&, const Record& r) {
  Execution e;
  e.exec = r.exec;
  e.wave = r.wave.value_or(~0u);
  EXPECT_NE(r.time.value_or(0), 0u);
  return e;
}

const struct Teller {
  const char* probe;
  Note note;
  Tell tell;
} kTellers[] = {{"trace-exec", NoteExec, TellExec},
                {"trace-address", NoteAddresses, TellAddresses},
                {"value", NoteValue, TellValue},
                {"clock", NoteClock, TellClock}};

void CheckSamples(const Case& c, Totals& totals) {
  const auto bytes = ObjectFor(c);
  ASSERT_FALSE(bytes.empty());
  for (const Teller& teller : kTellers) {
    if (c.probe != teller.probe) continue;
    for (const Program& program : Samples()) {
      // With calls all registers count as live, those that were never set too.
      const bool calls = program.kernel == "call" || program.kernel == "any_space";
      if (calls && c.probe == "value") continue;
      Check(c, bytes, program, teller.note, teller.tell, totals);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// AUTO: beside the loaded original.
using Variant = std::tuple<std::string, std::string, v1::Placement>;

class Records : public testing::TestWithParam<Variant> {
 protected:
  Case Of(const std::string& probe, const std::string& sites) const {
    const auto& [target, object, placement] = GetParam();
    return {.target = target,
            .object = object,
            .probe = probe,
            .sites = sites,
            .placement = placement,
            .beside = placement == v1::AUTO};
  }
};

TEST_P(Records, EveryExecutionBeforeAndBehind) {
  for (const v1::Position position : {v1::BEFORE, v1::AFTER}) {
    Case c = Of("trace-exec", "*");
    c.position = position;
    // EXEC behind an instruction is that before it unless it writes it.
    if (position == v1::AFTER) c.sites = "memory";
    Totals totals;
    CheckSamples(c, totals);
    EXPECT_GT(totals.sites, position == v1::BEFORE ? 300u : 50u);
    EXPECT_GT(totals.records, position == v1::BEFORE ? 1000u : 200u);
    EXPECT_EQ(totals.lost, 0u);
  }
}

TEST_P(Records, EveryAddressBeforeAndBehind) {
  for (const v1::Position position : {v1::BEFORE, v1::AFTER}) {
    Case c = Of("trace-address", "memory");
    c.position = position;
    Totals totals;
    CheckSamples(c, totals);
    EXPECT_GT(totals.sites, 50u);
    EXPECT_GT(totals.records, 300u);
    EXPECT_EQ(totals.lost, 0u);
    for (const auto& [id, sites] : totals.refused) {
      std::printf("%s: %llu of %llu\n", id.c_str(), static_cast<unsigned long long>(sites),
                  static_cast<unsigned long long>(totals.requested));
    }
    std::sort(totals.instructions.begin(), totals.instructions.end());
    std::printf("median instructions per event: %u\n",
                totals.instructions[totals.instructions.size() / 2]);
  }
}

TEST_P(Records, EveryValueWhereItIsKept) {
  Totals all;
  for (const char* name : {"v0", "v3", "exec", "vcc_lo", "scc"}) {
    Case c = Of("value", "not branch");
    c.value_register = name;
    Totals totals;
    CheckSamples(c, totals);
    all.sites += totals.sites;
    all.records += totals.records;
    if (std::string(name) == "exec") {
      EXPECT_GT(totals.sites, 100u);
    }
    for (const auto& [id, sites] : totals.refused) all.refused[id] += sites;
  }
  EXPECT_GT(all.sites, 200u);
  EXPECT_GT(all.refused["RJD-S021"], 100u);
  EXPECT_GT(all.refused["RJD-S022"], 10u);
}

TEST_P(Records, EveryTime) {
  Totals totals;
  CheckSamples(Of("clock", "memory or barrier or branch"), totals);
  EXPECT_GT(totals.records, 300u);
  EXPECT_EQ(totals.lost, 0u);
}

// Halves that hold a few records, read while wavefronts write.
TEST_P(Records, NothingIsUnaccountedForWhenTheRingIsSmall) {
  for (const char* probe : {"trace-exec", "trace-address"}) {
    for (const uint32_t every : {0u, 37u, 1009u}) {
      Case c = Of(probe, "memory");
      c.half_bytes = RJDBI_RING_LEAST_HALF_BYTES;
      c.poll_every = every;
      Totals totals;
      CheckSamples(c, totals);
      EXPECT_GT(totals.records, 100u);
      if (every == 0) {
        EXPECT_GT(totals.lost, 10u);
      } else {
        EXPECT_GT(totals.runs, 10u);
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
         v1::Placement_Name(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Generations, Records,
    testing::Combine(testing::Values("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"),
                     testing::Values("kernels"), testing::Values(v1::CLONE, v1::TRAMPOLINE)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Beside, Records,
                         testing::Combine(testing::Values("gfx90a", "gfx1030", "gfx1100",
                                                          "gfx1201"),
                                          testing::Values("kernels"), testing::Values(v1::AUTO)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, Records,
                         testing::Combine(testing::Values("gfx1030", "gfx1100", "gfx1201"),
                                          testing::Values("kernels64"), testing::Values(v1::CLONE)),
                         NameOf);

}  // namespace
}  // namespace rjdbi::contract
