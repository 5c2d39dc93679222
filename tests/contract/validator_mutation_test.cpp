// What admission lets through when the engine makes mistakes: plans and images with one
// instruction wrong are judged as ever, and what is accepted runs on the soft GPU. It
// must compute what the original computed, leave every register that the application
// needs as it found it, and write the telemetry that the right plan writes.
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
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/ring_reader.h"
#include "contract/admission.h"
#include "proto/rjdbi/telemetry_ring.h"
#include "tests/contract/expanded.h"
#include "tests/contract/mutating_rewriter.h"
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
using test::MutatingRewriter;
using Site = MutatingRewriter::Site;
using Where = MutatingRewriter::Where;

constexpr uint32_t kHalfBytes = 1u << 17;
constexpr size_t kGuardBytes = 8192;
constexpr uint8_t kGuardByte = 0xa5;

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

// ---- What the application sees -----------------------------------------------------------

// Registers as the soft GPU holds them. TTMPs and trap state are out of its reach.
std::vector<uint32_t> Values(const softgpu::Wave& wave, const RegisterSet& wanted) {
  std::vector<uint32_t> values;
  wanted.ForEach([&](uint16_t r) {
    const auto lanes = [&](const std::vector<uint32_t>& file, size_t n) {
      if ((n + 1) * wave.lanes > file.size()) return;
      values.insert(values.end(), file.begin() + static_cast<ptrdiff_t>(n * wave.lanes),
                    file.begin() + static_cast<ptrdiff_t>((n + 1) * wave.lanes));
    };
    if (r >= patch::kAgpr0) return lanes(wave.agpr, r - patch::kAgpr0);
    if (r >= patch::kVgpr0) return lanes(wave.vgpr, r - patch::kVgpr0);
    if (r == patch::kScc) return values.push_back(wave.scc);
    if (r == patch::kMode) return values.push_back(wave.mode);
    if (r < patch::kVccLo && r < softgpu::kVccLo) return values.push_back(wave.sgpr[r]);
    static constexpr std::pair<uint16_t, uint16_t> kSpecial[] = {
        {patch::kVccLo, softgpu::kVccLo},
        {patch::kVccHi, softgpu::kVccHi},
        {patch::kExecLo, softgpu::kExecLo},
        {patch::kExecHi, softgpu::kExecHi},
        {patch::kM0, softgpu::kM0},
        {patch::kFlatScratchLo, softgpu::kFlatScrLo},
        {patch::kFlatScratchHi, softgpu::kFlatScrHi}};
    for (const auto& [ours, theirs] : kSpecial) {
      if (r == ours) values.push_back(wave.sgpr[theirs]);
    }
  });
  return values;
}

// Holds what the application needs when a sequence begins against what it finds behind.
class AtSite : public softgpu::Observer {
 public:
  AtSite(Machine& machine, uint64_t begin, uint64_t end, RegisterSet needed)
      : machine_(machine), begin_(begin), end_(end), needed_(std::move(needed)) {}
  void OnInstruction(const softgpu::Wave& wave, const softgpu::Inst& inst) override {
    if (++instructions_ > kMostInstructions) machine_.Interrupt();  // it may never end
    const uint64_t key = (uint64_t{wave.group->id[1]} << 40) + (uint64_t{wave.group->id[0]} << 16) +
                         wave.wave_in_group;
    if (inst.pc >= begin_ && inst.pc < end_) {
      if (inst.pc == begin_) ++passes_;
      if (entered_.count(key) == 0) entered_[key] = Values(wave, needed_);
      return;
    }
    const auto found = entered_.find(key);
    if (found == entered_.end()) return;
    if (inst.pc != end_) wrong_ = absl::StrCat("leaves to ", inst.pc - begin_);
    if (Values(wave, needed_) != found->second) wrong_ = "a register has changed";
    entered_.erase(found);
  }
  uint64_t passes() const { return passes_; }
  std::string wrong() const { return !entered_.empty() ? "does not come back" : wrong_; }

 private:
  static constexpr uint64_t kMostInstructions = 400'000;
  Machine& machine_;
  uint64_t instructions_ = 0;
  const uint64_t begin_, end_;
  const RegisterSet needed_;
  std::map<uint64_t, std::vector<uint32_t>> entered_;  // by wavefront
  uint64_t passes_ = 0;
  std::string wrong_;
};

// ---- Telemetry ---------------------------------------------------------------------------

class Buffer : public agent::RecordSink {
 public:
  Buffer(RangeMemory& memory, uint64_t counter_bytes, uint64_t ring_offset)
      : memory_(memory), counters_(counter_bytes), ring_(ring_offset) {
    bytes_ =
        std::max(counter_bytes, ring_ == 0 ? 0
                                           : ring_ + RJDBI_RING_HEADER_BYTES +
                                                 2 * uint64_t{kHalfBytes} + RJDBI_RING_PAD_BYTES);
    data_.resize(bytes_ + 2 * kGuardBytes + RJDBI_RING_ALIGNMENT);
    memory_.Add(data_.data(), data_.size(), true);
    Clear();
  }
  ~Buffer() override { memory_.Remove(data_.data()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void Clear() {
    std::fill(data_.begin(), data_.end(), kGuardByte);
    std::fill_n(begin(), bytes_, uint8_t{0});
    records_.clear();
    if (ring_ != 0) agent::RingReader::Format(begin() + ring_, kHalfBytes);
  }
  uint8_t* begin() {
    const auto at = reinterpret_cast<uintptr_t>(data_.data()) + kGuardBytes;
    return data_.data() + kGuardBytes + (RJDBI_RING_ALIGNMENT - at % RJDBI_RING_ALIGNMENT);
  }
  void Take(const uint8_t* records, size_t bytes, uint64_t count) override {
    // One by one, and without their tickets: wavefronts take turns as they like.
    while (count-- > 0 && bytes >= sizeof(rjdbi_record_header)) {
      rjdbi_record_header header;
      std::memcpy(&header, records, sizeof header);
      const size_t size = RJDBI_RECORD_BYTES(header.descriptor);
      if (size == 0 || size > bytes) return;
      header.ticket = 0;
      std::string record(reinterpret_cast<const char*>(records), size);
      std::memcpy(record.data(), &header, sizeof header);
      records_.insert(std::move(record));
      records += size;
      bytes -= size;
    }
  }
  struct Contents {
    std::vector<uint8_t> counters;
    std::multiset<std::string> records;
    uint64_t read = 0, lost = 0, unfinished = 0;
    bool guards = true;  // untouched
    bool operator==(const Contents&) const = default;
  };
  Contents Read() {
    Contents c;
    c.counters.assign(begin(), begin() + counters_);
    if (ring_ != 0) {
      agent::RingReader reader(begin() + ring_, {.half_bytes = kHalfBytes, .sites = 1, .sizes = 0});
      reader.Finish(*this);
      c.records = std::move(records_);
      c.read = reader.totals().read;
      c.lost = reader.totals().lost;
      c.unfinished = reader.totals().unfinished;
    }
    const auto guarded = [](const uint8_t* from, const uint8_t* to) {
      return std::all_of(from, to, [](uint8_t b) { return b == kGuardByte; });
    };
    c.guards =
        guarded(data_.data(), begin()) && guarded(begin() + bytes_, data_.data() + data_.size());
    return c;
  }

 private:
  RangeMemory& memory_;
  const uint64_t counters_, ring_;
  uint64_t bytes_ = 0;
  std::vector<uint8_t> data_;
  std::multiset<std::string> records_;
};

// ---- Runs ---------------------------------------------------------------------------------

struct Outcome {
  Fault fault;
  std::vector<std::vector<uint32_t>> memory;
  std::map<uint64_t, softgpu::PcCount> counts;  // by vaddr
  std::string wrong;                            // at the site
  uint64_t passes = 0;
  Buffer::Contents telemetry;
};

// Buffers at the same addresses in every run, so that runs can be compared.
class Host {
 public:
  Host(const std::string& target, const Program& program) : program_(program) {
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
  RangeMemory& memory() { return memory_; }

  // `sequence`: its addresses in the object, and what must survive it.
  Outcome Run(const std::vector<uint8_t>& elf, std::pair<uint64_t, uint64_t> sequence = {},
              const RegisterSet& needed = {}) {
    for (size_t b = 0; b < buffers_.size(); ++b) {
      for (uint32_t i = 0; i < buffers_[b]->size(); ++i) {
        (*buffers_[b])[i] = b < program_.in.size() ? Scramble(i) % 300 + 1 : 0;
      }
    }
    Outcome outcome;
    std::string error;
    auto object = LoadedObject::Load(elf, &memory_, &error);
    EXPECT_TRUE(object) << error;
    if (!object || !machine_) return outcome;
    AtSite site(*machine_, object->bias() + sequence.first, object->bias() + sequence.second,
                needed);
    machine_->SetObserver(sequence.second != 0 ? &site : nullptr);
    machine_->InvalidateInstructionCache();
    machine_->ResetCounts();
    machine_->ClearInterrupt();
    softgpu::LaunchShape shape;
    std::copy(std::begin(program_.grid), std::end(program_.grid), shape.grid);
    std::copy(std::begin(program_.group), std::end(program_.group), shape.workgroup);
    outcome.fault =
        softgpu::Launch(*machine_, memory_, object->Descriptor(program_.kernel), args_, shape);
    machine_->SetObserver(nullptr);
    for (const auto& buffer : buffers_) outcome.memory.push_back(buffer->contents());
    for (const auto& [pc, count] : machine_->Counts()) outcome.counts[pc - object->bias()] = count;
    outcome.wrong = site.wrong();
    outcome.passes = site.passes();
    return outcome;
  }

 private:
  const Program& program_;
  RangeMemory memory_;
  std::vector<std::unique_ptr<DeviceBuffer<uint32_t>>> buffers_;
  KernelArgs args_;
  std::unique_ptr<Machine> machine_;
};

std::vector<uint8_t> WithFixups(std::vector<uint8_t> image,
                                const std::vector<patch::WordFixup>& fixups, const void* buffer) {
  for (const auto& fixup : fixups) {
    const uint64_t address = reinterpret_cast<uint64_t>(buffer) + fixup.addend;
    const auto word = static_cast<uint32_t>(fixup.high_half ? address >> 32 : address);
    if (fixup.offset + 4 > image.size()) continue;
    std::memcpy(image.data() + fixup.offset, &word, sizeof(word));
  }
  return image;
}

// ---- Statistics -----------------------------------------------------------------------------

struct Row {
  uint64_t mutants = 0, rejected = 0, equivalent = 0, telemetry = 0, wrong = 0;
  // Of the rejected ones that were run all the same.
  uint64_t run = 0, harmful = 0;
  void Add(const Row& o) {
    mutants += o.mutants, rejected += o.rejected, equivalent += o.equivalent;
    telemetry += o.telemetry, wrong += o.wrong, run += o.run, harmful += o.harmful;
  }
};
using Table = std::map<std::pair<Where, size_t>, Row>;

void Print(const Table& table) {
  std::printf("%-7s %-18s %8s %9s %12s %10s %6s  %s\n", "where", "operator", "mutants", "rejected",
              "equivalent", "telemetry", "FALSE", "rejected and run: changed something");
  Row all;
  for (const auto& [key, r] : table) {
    std::printf(
        "%-7s %-18s %8llu %9llu %12llu %10llu %6llu  %llu: %llu\n",
        key.first == Where::kPlan ? "plan" : "image", test::MutantOperators()[key.second].name,
        static_cast<unsigned long long>(r.mutants), static_cast<unsigned long long>(r.rejected),
        static_cast<unsigned long long>(r.equivalent), static_cast<unsigned long long>(r.telemetry),
        static_cast<unsigned long long>(r.wrong), static_cast<unsigned long long>(r.run),
        static_cast<unsigned long long>(r.harmful));
    all.Add(r);
  }
  std::printf(
      "%-26s %8llu %9llu %12llu %10llu %6llu  %llu: %llu\n", "all",
      static_cast<unsigned long long>(all.mutants), static_cast<unsigned long long>(all.rejected),
      static_cast<unsigned long long>(all.equivalent),
      static_cast<unsigned long long>(all.telemetry), static_cast<unsigned long long>(all.wrong),
      static_cast<unsigned long long>(all.run), static_cast<unsigned long long>(all.harmful));
}

uint32_t Scale() {
  const char* more = std::getenv("RJDBI_MUTANTS");
  const int n = more != nullptr ? std::atoi(more) : 1;
  return n > 0 ? static_cast<uint32_t>(n) : 1;
}

// ---- The harness ------------------------------------------------------------------------------

struct Probe {
  const char* name;
  const char* sites = "*";
  v1::Position position = v1::BEFORE;
  const char* value_register = "";
  bool counts = false;  // its telemetry is a number that has to be right
  uint32_t rounds = 1;
};
constexpr Probe kProbes[] = {
    {"count-waves", "*", v1::BEFORE, "", true, 3},
    {"count-lanes", "*", v1::BEFORE, "", true, 3},
    {"count-lanes", "memory", v1::AFTER, "", true, 1},
    {"block-count", "*", v1::BEFORE, "", true, 2},
    {"trace-exec", "*", v1::BEFORE, "", false, 2},
    {"trace-exec", "memory", v1::AFTER, "", false, 1},
    {"trace-address", "memory", v1::BEFORE, "", false, 3},
    {"clock", "memory", v1::BEFORE, "", false, 1},
    {"value", "not branch", v1::BEFORE, "exec", false, 2},
    {"value", "not branch", v1::BEFORE, "v0", false, 1},
};

using Variant = std::tuple<std::string, std::string, v1::Placement>;

class Mutants : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    bytes_ = softgpu::ReadBinaryFile(absl::StrCat(SOFTGPU_KERNEL_DIR, "/", std::get<1>(GetParam()),
                                                  "-", std::get<0>(GetParam()), ".co"));
    ASSERT_FALSE(bytes_.empty());
    loaded_ = std::make_unique<test::Loaded>(bytes_);
  }

  Admission Judge(const Program& program, const Probe& probe) {
    v1::Attachment a;
    a.set_id("a1");
    a.mutable_spec()->set_kernel_glob(program.kernel);
    a.mutable_spec()->set_sites(probe.sites);
    a.mutable_spec()->set_probe(probe.name);
    a.mutable_spec()->set_placement(std::get<2>(GetParam()));
    a.mutable_spec()->set_position(probe.position);
    a.mutable_spec()->set_value_register(probe.value_register);
    Policy policy = DefaultPolicy();
    policy.ceiling = v1::Budget();
    policy.defaults.set_max_sgpr_delta(96);
    policy.defaults.set_max_vgpr_delta(256);
    policy.defaults.set_max_injected_instructions_per_event(256);
    policy.defaults.set_max_telemetry_bytes_per_second(uint64_t{1} << 50);
    policy.ring_half_bytes = kHalfBytes;
    return WithDecisions(Admit(bytes_, {a}, policy, rewriter_));
  }

  // The right plan at the site alone, and what its run gives.
  struct Reference {
    Admission admission;
    Outcome outcome;
    std::vector<patch::SitePlan> plans;
    RegisterSet needed;
    patch::Position position = patch::Position::kBefore;
    // Two runs of the right plan tell the same: no times, no addresses of the host.
    bool repeats = true;
  };
  const Reference& ReferenceFor(Host& host, const Program& program, const Probe& probe,
                                const Site& site);
  Outcome RunImage(Host& host, const Reference& reference, const std::vector<uint8_t>& image,
                   const std::vector<patch::WordFixup>& fixups, const Site& site);
  std::string Difference(const Reference& reference, const Outcome& after, bool* telemetry_alone);
  void Batch(Host& host, const Program& program, const Probe& probe, uint32_t seed);
  void Single(Host& host, const Program& program, const Probe& probe, const Site& site);
  void RunRejected(Host& host, const Program& program, const Probe& probe, const Site& site);
  std::string Describe(const Program& program, const Probe& probe, const Site& site,
                       const MutatingRewriter::Note& note) const;

  std::vector<uint8_t> bytes_;
  std::unique_ptr<test::Loaded> loaded_;
  MutatingRewriter rewriter_;
  std::optional<Outcome> original_;  // of the program at hand
  std::map<Site, Reference> references_;
  std::map<uint64_t, std::unique_ptr<Buffer>> telemetry_;  // by the ring's offset
  Table table_;
  uint64_t rejected_ = 0, admissions_ = 0;
  size_t false_ = 0, attached_references_ = 0;
};

std::string Mutants::Describe(const Program& program, const Probe& probe, const Site& site,
                              const MutatingRewriter::Note& note) const {
  const auto& kernel = loaded_->Kernel(program.kernel);
  return absl::StrCat(
      probe.name, " in ", program.kernel, " at ",
      kernel.isa().Print(kernel.code(), kernel.instructions().OffsetOf(site.instruction)),
      " (instruction ", site.instruction, "), ", test::MutantOperators()[note.op].name, ":\n",
      note.what);
}

const Mutants::Reference& Mutants::ReferenceFor(Host& host, const Program& program,
                                                const Probe& probe, const Site& site) {
  const auto [found, fresh] = references_.try_emplace(site);
  Reference& r = found->second;
  if (!fresh) return r;
  rewriter_.where = Where::kNowhere;
  rewriter_.only = site;
  r.admission = Judge(program, probe);
  r.plans = rewriter_.plans;
  if (r.admission.patched.empty()) return r;
  ++attached_references_;
  const auto& kernel = loaded_->Kernel(program.kernel);
  r.position = probe.position == v1::AFTER ? patch::Position::kAfter : patch::Position::kBefore;
  r.needed = kernel.LiveAt(site.instruction, r.position);
  r.needed |= kernel.PendingAt(site.instruction, r.position);
  r.needed.Add(patch::kExecLo, 2);
  r.needed.Add(patch::kMode);
  r.needed.Add(patch::kFlatScratchLo, 2);
  r.outcome = RunImage(host, r, r.admission.patched, r.admission.fixups, site);
  const std::vector<uint8_t> elsewhere(1 << 16);  // so that what is allocated moves
  r.repeats = RunImage(host, r, r.admission.patched, r.admission.fixups, site).telemetry ==
              r.outcome.telemetry;
  EXPECT_EQ(r.outcome.fault.kind, Fault::Kind::kNone) << r.outcome.fault.what;
  EXPECT_EQ(r.outcome.memory, original_->memory);
  EXPECT_EQ(r.outcome.wrong, "") << Describe(program, probe, site, {});
  EXPECT_TRUE(r.outcome.telemetry.guards);
  const auto counted = original_->counts.find(kernel.kernel().entry_vaddr +
                                              kernel.instructions().OffsetOf(site.instruction));
  const uint64_t executions = counted == original_->counts.end() ? 0 : counted->second.waves;
  EXPECT_EQ(r.outcome.passes, executions) << Describe(program, probe, site, {});
  return r;
}

Outcome Mutants::RunImage(Host& host, const Reference& reference, const std::vector<uint8_t>& image,
                          const std::vector<patch::WordFixup>& fixups, const Site& site) {
  const v1::AdmissionRecord& record = reference.admission.record;
  const uint64_t ring = record.ring_half_bytes() != 0 ? record.ring_offset() : 0;
  auto& buffer = telemetry_[ring];
  if (buffer == nullptr) {
    buffer = std::make_unique<Buffer>(host.memory(), 8 * uint64_t{record.counter_count()}, ring);
  }
  buffer->Clear();
  Outcome outcome = host.Run(WithFixups(image, fixups, buffer->begin()), rewriter_.sequences[site],
                             reference.needed);
  outcome.telemetry = buffer->Read();
  return outcome;
}

// Empty: nobody can tell them apart.
std::string Mutants::Difference(const Reference& reference, const Outcome& after,
                                bool* telemetry_alone) {
  *telemetry_alone = false;
  if (after.fault.kind != Fault::Kind::kNone) return absl::StrCat("fault: ", after.fault.what);
  if (after.memory != original_->memory) return "memory differs";
  if (!after.wrong.empty()) return after.wrong;
  if (!after.telemetry.guards) return "memory around the telemetry is written";
  Buffer::Contents mine = after.telemetry, theirs = reference.outcome.telemetry;
  if (!reference.repeats) mine.records.clear(), theirs.records.clear();
  if (mine == theirs) return "";
  *telemetry_alone = true;
  return "the telemetry differs";
}

// One mutant at every site at once: most are refused one by one.
void Mutants::Batch(Host& host, const Program& program, const Probe& probe, uint32_t seed) {
  rewriter_.where = Where::kPlan;
  rewriter_.only.reset();
  rewriter_.seed = seed;
  rewriter_.made.clear();
  const Admission a = Judge(program, probe);
  ++admissions_;
  const auto made = rewriter_.made;
  const auto& kernel = loaded_->Kernel(program.kernel);
  std::set<Site> alone;
  for (const v1::Decision& d : a.record.decisions()) {
    const auto i = kernel.InstructionAt(d.site().location().kernel_offset());
    if (!i) continue;
    const Site site{kernel.kernel_index(), *i};
    const auto note = made.find(site);
    if (note == made.end() || d.has_counted_at()) continue;
    if (d.outcome() != v1::REJECTED_EFFECT ||
        d.violations(0).constraint_id().substr(0, 5) != "RJD-E") {
      alone.insert(site);
      continue;
    }
    Row& row = table_[{Where::kPlan, note->second.op}];
    ++row.mutants;
    ++row.rejected;
    if (++rejected_ % 16 == 0) RunRejected(host, program, probe, site);
  }
  for (const Site& site : alone) {
    rewriter_.where = Where::kPlan;
    rewriter_.seed = seed;
    Single(host, program, probe, site);
    if (HasFatalFailure()) return;
  }
}

// Emits what admission refused, and looks what it would have done.
void Mutants::RunRejected(Host& host, const Program& program, const Probe& probe,
                          const Site& site) {
  const uint32_t seed = rewriter_.seed;
  const Reference& reference = ReferenceFor(host, program, probe, site);
  rewriter_.seed = seed;
  if (reference.plans.empty()) return;
  std::vector<patch::SitePlan> plans = reference.plans;
  MutatingRewriter::Note note;
  if (!rewriter_.MutateAgain(loaded_->Kernel(program.kernel), site, plans.back())) return;
  rewriter_.where = Where::kNowhere;
  auto result = rewriter_.Emit(loaded_->object(), loaded_->All(), plans);
  if (!result.ok() || result->image.empty()) return;
  const Outcome after = RunImage(host, reference, result->image, result->fixups, site);
  bool telemetry = false;
  Row& row = table_[{Where::kPlan, rewriter_.made[site].op}];
  ++row.run;
  row.harmful += !Difference(reference, after, &telemetry).empty();
}

void Mutants::Single(Host& host, const Program& program, const Probe& probe, const Site& site) {
  const Where where = rewriter_.where;
  const uint32_t seed = rewriter_.seed;
  const Reference& reference = ReferenceFor(host, program, probe, site);
  if (reference.admission.patched.empty()) return;
  rewriter_.where = where;
  rewriter_.seed = seed;
  rewriter_.only = site;
  rewriter_.made.clear();
  const Admission a = Judge(program, probe);
  ++admissions_;
  if (where == Where::kImage ? !rewriter_.made_in_image : rewriter_.made.count(site) == 0) return;
  const MutatingRewriter::Note note =
      where == Where::kImage ? *rewriter_.made_in_image : rewriter_.made[site];
  Row& row = table_[{where, note.op}];
  ++row.mutants;
  if (a.patched.empty()) {
    ++row.rejected;
    return;
  }
  const Outcome after = RunImage(host, reference, a.patched, a.fixups, site);
  bool telemetry = false;
  const std::string difference = Difference(reference, after, &telemetry);
  if (difference.empty()) {
    ++row.equivalent;
    if (std::getenv("RJDBI_MUTANTS_SHOW") != nullptr) {
      std::printf("equivalent: %s", Describe(program, probe, site, note).c_str());
    }
    return;
  }
  if (telemetry && !probe.counts) {
    ++row.telemetry;
    if (std::getenv("RJDBI_MUTANTS_SHOW") != nullptr) {
      std::printf("telemetry: %s", Describe(program, probe, site, note).c_str());
    }
    return;
  }
  ++row.wrong;
  if (++false_ <= 40) {
    ADD_FAILURE() << "accepted, though " << difference << ": "
                  << Describe(program, probe, site, note);
  }
}

TEST_P(Mutants, AreRejectedOrChangeNothing) {
  uint32_t seed = 0;
  for (const Program& program : Programs()) {
    for (const Probe& probe : kProbes) {
      telemetry_.clear();
      references_.clear();
      Host host(std::get<0>(GetParam()), program);
      original_ = host.Run(bytes_);
      ASSERT_EQ(original_->fault.kind, Fault::Kind::kNone) << original_->fault.what;
      for (uint32_t round = 0; round < probe.rounds * Scale(); ++round) {
        Batch(host, program, probe, ++seed);
        if (HasFatalFailure()) return;
      }
      // Some sites, in the finished image.
      const auto& kernel = loaded_->Kernel(program.kernel);
      for (uint32_t n = 0; n < 4 * probe.rounds * Scale(); ++n) {
        rewriter_.where = Where::kImage;
        rewriter_.seed = ++seed;
        const auto i = static_cast<uint32_t>(Scramble(seed) % kernel.instructions().size());
        Single(host, program, probe, {kernel.kernel_index(), i});
        if (HasFatalFailure()) return;
      }
      telemetry_.clear();
    }
  }
  Print(table_);
  Row all;
  for (const auto& [key, row] : table_) all.Add(row);
  std::printf("%llu admissions\n", static_cast<unsigned long long>(admissions_));
  RecordProperty("mutants", std::to_string(all.mutants));
  RecordProperty("rejected", std::to_string(all.rejected));
  RecordProperty("equivalent", std::to_string(all.equivalent));
  RecordProperty("telemetry", std::to_string(all.telemetry));
  RecordProperty("false", std::to_string(all.wrong));
  EXPECT_EQ(all.wrong, 0u);
  EXPECT_EQ(all.mutants, all.rejected + all.equivalent + all.telemetry + all.wrong);
  EXPECT_GT(all.mutants, 1500u);
  EXPECT_GT(all.harmful, all.run / 2);  // the mutants are worth refusing
  EXPECT_GT(all.equivalent, 0u);        // and some were run
}

std::string NameOf(const testing::TestParamInfo<Variant>& info) {
  return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param), "_",
                      v1::Placement_Name(std::get<2>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(
    Generations, Mutants,
    testing::Combine(testing::Values("gfx90a", "gfx1030", "gfx1100", "gfx1201"),
                     testing::Values("kernels"), testing::Values(v1::CLONE, v1::TRAMPOLINE)),
    NameOf);
INSTANTIATE_TEST_SUITE_P(Wave64, Mutants,
                         testing::Values(Variant("gfx1100", "kernels64", v1::CLONE)), NameOf);

}  // namespace
}  // namespace rjdbi::contract
