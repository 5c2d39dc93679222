// Launches dispatches and schedules their wavefronts. See machine.h.
//
// Workgroups run one after another. Within a group a seeded generator picks
// which runnable wave goes next and for how many instructions, so that a race
// shows up for some seeds and can be replayed with the same seed.
#include "tests/softgpu/interp/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/softgpu/interp/decode.h"

namespace softgpu {
namespace {

// --- Random numbers -------------------------------------------------------

class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // Uniform enough for scheduling.
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>((Next() >> 32) * limit >> 32); }

 private:
  uint64_t state_;
};

// --- Kernel descriptor (64 bytes; AMDGPU usage guide, "Kernel Descriptor") --

struct Descriptor {
  int64_t entry_offset = 0;
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  uint16_t properties = 0, preload = 0;
  bool legacy = false;  // an amd_kernel_code_t: no rsrc3, no preload

  bool EnablePrivate() const { return rsrc2 & 1; }
  uint32_t UserSgprs() const { return rsrc2 >> 1 & 0x1f; }
  bool WorkgroupId(unsigned axis) const { return rsrc2 >> (7 + axis) & 1; }
  bool WorkgroupInfo() const { return rsrc2 >> 10 & 1; }
  uint32_t WorkitemIds() const { return rsrc2 >> 11 & 3; }
  bool Property(unsigned bit) const { return properties >> bit & 1; }
  bool Wave32() const { return Property(10); }
};

// The header that preceded the descriptor (ROCR's own copy kernels still have
// it) agrees on rsrc1, rsrc2 and the properties. It is recognised by its machine
// kind and version, where a descriptor has the kernarg size.
bool IsLegacyHeader(const uint8_t* bytes) {
  uint16_t kind_and_major[2];
  std::memcpy(kind_and_major, bytes + 8, sizeof(kind_and_major));
  return kind_and_major[0] == 1 && kind_and_major[1] >= 7 && kind_and_major[1] <= 12;
}

Descriptor ReadDescriptor(uint64_t address) {
  Descriptor descriptor;
  const auto* bytes = reinterpret_cast<const uint8_t*>(address);
  std::memcpy(&descriptor.entry_offset, bytes + 16, 8);
  std::memcpy(&descriptor.rsrc1, bytes + 48, 4);
  std::memcpy(&descriptor.rsrc2, bytes + 52, 4);
  std::memcpy(&descriptor.properties, bytes + 56, 2);
  descriptor.legacy = IsLegacyHeader(bytes);
  if (!descriptor.legacy) {
    std::memcpy(&descriptor.rsrc3, bytes + 44, 4);
    std::memcpy(&descriptor.preload, bytes + 58, 2);
  }
  return descriptor;
}

// Register file sizes a descriptor asks for.
struct Allocation {
  uint32_t sgprs = 0, vgprs = 0, agprs = 0;
};

Allocation AllocationOf(const Descriptor& descriptor, const Target& target, bool wave64) {
  Allocation out;
  const uint32_t granules = (descriptor.rsrc1 & 0x3f) + 1;
  if (target.AtLeast10()) {
    out.sgprs = 106;
    // Instructions name 256 of gfx1250's; see SetVgprMsb.
    out.vgprs = target.Gfx125() ? std::min(granules * 16, 256u) : granules * (wave64 ? 4 : 8);
    return out;
  }
  out.sgprs = ((descriptor.rsrc1 >> 6 & 0xf) / 2 + 1) * 16;
  if (target.Gfx90aPlus()) {
    const uint32_t total = granules * 8;
    out.vgprs = descriptor.legacy ? total : std::min(((descriptor.rsrc3 & 0x3f) + 1) * 4, total);
    out.agprs = total - out.vgprs;
    out.vgprs = std::min(out.vgprs, 256u);
    out.agprs = std::min(out.agprs, 256u);
  } else {
    out.vgprs = granules * 4;
    if (target.name == "gfx908") out.agprs = out.vgprs;
  }
  return out;
}

// --- Decoded instructions -------------------------------------------------

// What an instruction needs of the register allocation.
struct RegisterNeeds {
  uint16_t sgprs = 0, vgprs = 0, agprs = 0;  // one more than the highest used
  // gfx9: registers that live at the top of the wave's SGPR allocation.
  bool vcc = false, flat_scratch = false, xnack = false;

  void Merge(const RegisterNeeds& other) {
    sgprs = std::max(sgprs, other.sgprs);
    vgprs = std::max(vgprs, other.vgprs);
    agprs = std::max(agprs, other.agprs);
    vcc |= other.vcc;
    flat_scratch |= other.flat_scratch;
    xnack |= other.xnack;
  }
  void Add(const Operand& operand) {
    const auto end = static_cast<uint16_t>(operand.reg + operand.dwords);
    switch (operand.kind) {
      case Operand::Kind::kVgpr:
        vgprs = std::max(vgprs, end);
        return;
      case Operand::Kind::kAgpr:
        agprs = std::max(agprs, end);
        return;
      case Operand::Kind::kSgpr:
        if (operand.reg < kVccLo) sgprs = std::max(sgprs, end);
        vcc |= operand.reg == kVccLo || operand.reg == kVccHi;
        flat_scratch |= operand.reg == kFlatScrLo || operand.reg == kFlatScrHi;
        xnack |= operand.reg == kXnackLo || operand.reg == kXnackHi;
        return;
      default:
        return;
    }
  }
};

RegisterNeeds NeedsOf(const Inst& inst) {
  RegisterNeeds needs;
  if (inst.dual) {
    needs.Merge(NeedsOf(inst.dual->x));
    needs.Merge(NeedsOf(inst.dual->y));
  }
  for (const Operand* operand : {&inst.dst, &inst.sdst, &inst.addr, &inst.data, &inst.data2,
                                 &inst.saddr, &inst.rsrc, &inst.soffset}) {
    needs.Add(*operand);
  }
  for (unsigned i = 0; i < inst.num_src; ++i) needs.Add(inst.src[i]);
  return needs;
}

struct CachedInst {
  Inst inst;
  RegisterNeeds needs;
  uint64_t dispatch = 0;  // the dispatch for which `needs` was last checked
  PcCount count;
};

// Decoded instructions by address, in pages of a few KiB.
class CodeCache {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  struct Page {
    std::array<std::unique_ptr<CachedInst>, kPageBytes / 4> slots;
  };
  Page& PageAt(uint64_t number) {
    std::unique_ptr<Page>& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    return *page;
  }
  template <typename Fn>
  void ForEach(Fn&& fn) {
    for (auto& [number, page] : pages_) {
      for (auto& slot : page->slots) {
        if (slot) fn(*slot);
      }
    }
  }
  void Clear() { pages_.clear(); }

 private:
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
};

// --- The machine ----------------------------------------------------------

struct Slot {
  Wave wave;
  bool ended = false;
  bool parked = false;  // at a barrier
};

class MachineImpl : public Machine {
 public:
  MachineImpl(Target target, uint64_t seed, Memory* memory)
      : target_(std::move(target)), random_(seed), poison_(seed ^ 0x5bd1e995), memory_(memory) {}

  bool Init(std::string* error);
  Fault Run(const Dispatch& dispatch) override;
  void Interrupt() override { interrupted_.store(true, std::memory_order_relaxed); }
  void ClearInterrupt() override { interrupted_.store(false, std::memory_order_relaxed); }
  void SetMessageSink(MessageSink* sink) override { messages_ = sink; }
  void SetObserver(Observer* observer) override { observer_ = observer; }
  void InvalidateInstructionCache() override;
  void SetPreloads(bool preloads) override { preloads_ = preloads; }
  const std::map<uint64_t, PcCount>& Counts() const override;
  void ResetCounts() override;
  uint64_t LaneInstructions() const override { return lane_instructions_; }

 private:
  Fault Prepare(const Dispatch& dispatch);
  Fault RunGroup();
  void StartGroup();
  void StartWave(unsigned index);
  void LoadUserSgprs(Wave& wave, uint16_t& next) const;
  void LoadSystemSgprs(Wave& wave, unsigned index, uint16_t next) const;
  void LoadPrivateResource(Wave& wave, uint16_t& next) const;
  void LoadWorkitemIds(Wave& wave, unsigned index) const;
  uint32_t GroupInfo(unsigned index) const;
  uint32_t HardwareId(unsigned index) const;
  Step RunWave(Slot& slot, uint32_t quantum);
  CachedInst* Fetch(uint64_t pc, CodeCache::Page& page, Fault& fault);
  bool CheckNeeds(CachedInst& cached, Wave& wave);
  void FlushCounts() const;

  Target target_;
  SplitMix random_, poison_;
  Memory* memory_;
  MessageSink* messages_ = nullptr;
  Observer* observer_ = nullptr;
  bool preloads_ = true;
  std::atomic<bool> interrupted_{false};
  std::array<std::unique_ptr<Decoder>, 2> decoders_;  // wave32, wave64
  mutable std::array<CodeCache, 2> caches_;
  mutable std::map<uint64_t, PcCount> counts_;
  uint64_t lane_instructions_ = 0;
  uint64_t clock_ = 0;  // instructions issued

  // The dispatch being run.
  Dispatch dispatch_;
  uint64_t dispatch_number_ = 0;
  Descriptor descriptor_;
  Allocation allocation_;
  RegisterNeeds seen_;  // what its instructions have needed so far
  uint64_t entry_ = 0;
  bool wave64_ = true;
  uint32_t lanes_ = 64;
  uint32_t group_size_[3] = {};  // of the current group: smaller at the edges
  uint32_t group_count_[3] = {};
  Workgroup group_;
  std::vector<Slot> slots_;
  unsigned live_slots_ = 0;
  std::vector<uint32_t> poison_words_;
  std::vector<uint8_t> scratch_;
};

bool MachineImpl::Init(std::string* error) {
  for (const bool wave64 : {false, true}) {
    if (wave64 ? target_.Gfx125() : !target_.AtLeast10()) continue;
    decoders_[wave64] = Decoder::Create(target_, wave64, error);
    if (!decoders_[wave64]) return false;
  }
  return true;
}

Fault LaunchFault(std::string what, uint64_t address) {
  Fault fault;
  fault.kind = Fault::Kind::kMemory;
  fault.address = address;
  fault.what = std::move(what);
  return fault;
}

Fault MachineImpl::Prepare(const Dispatch& dispatch) {
  dispatch_ = dispatch;
  ++dispatch_number_;
  seen_ = RegisterNeeds();
  if (!memory_->Check(dispatch.kernel_descriptor, 64, false)) {
    return LaunchFault("kernel descriptor is not readable", dispatch.kernel_descriptor);
  }
  descriptor_ = ReadDescriptor(dispatch.kernel_descriptor);
  wave64_ = !target_.AtLeast10() || !descriptor_.Wave32();
  lanes_ = wave64_ ? 64 : 32;
  allocation_ = AllocationOf(descriptor_, target_, wave64_);
  entry_ = dispatch.kernel_descriptor + static_cast<uint64_t>(descriptor_.entry_offset);
  // Firmware that preloads kernel arguments enters past the compatibility
  // block that loads them; gfx1250's needs none. Other firmware does not preload.
  if (!target_.Gfx90aPlus() && !target_.Gfx125()) descriptor_.preload = 0;
  if (!preloads_) descriptor_.preload = 0;
  if ((descriptor_.preload & 0x7f) != 0 && target_.Gfx90aPlus()) entry_ += 256;
  if (wave64_ && target_.Gfx125()) return LaunchFault("gfx1250 has no wavefronts of 64", 0);
  uint64_t items = 1;
  for (unsigned axis = 0; axis < 3; ++axis) {
    if (dispatch.workgroup[axis] == 0) return LaunchFault("workgroup size is zero", 0);
    group_count_[axis] = static_cast<uint32_t>(
        (uint64_t{dispatch.grid[axis]} + dispatch.workgroup[axis] - 1) / dispatch.workgroup[axis]);
    items *= dispatch.workgroup[axis];
  }
  if (items > 1024) return LaunchFault("workgroup is larger than 1024 work-items", 0);
  const auto waves = static_cast<unsigned>((items + lanes_ - 1) / lanes_);
  const unsigned rows = std::max(allocation_.vgprs, allocation_.agprs);
  poison_words_.resize(size_t{rows} * lanes_);
  for (uint32_t& word : poison_words_) word = static_cast<uint32_t>(poison_.Next());
  if (slots_.size() < waves) slots_.resize(waves);
  scratch_.resize(size_t{dispatch.private_segment_size} * lanes_ * waves);
  return Fault();
}

Fault MachineImpl::Run(const Dispatch& dispatch) {
  Fault fault = Prepare(dispatch);
  if (fault.kind != Fault::Kind::kNone) return fault;
  for (uint32_t z = 0; z < group_count_[2]; ++z) {
    for (uint32_t y = 0; y < group_count_[1]; ++y) {
      for (uint32_t x = 0; x < group_count_[0]; ++x) {
        group_.id[0] = x;
        group_.id[1] = y;
        group_.id[2] = z;
        fault = RunGroup();
        if (fault.kind != Fault::Kind::kNone) return fault;
      }
    }
  }
  return fault;
}

// --- Launch state ---------------------------------------------------------

void MachineImpl::StartGroup() {
  uint32_t items = 1;
  for (unsigned axis = 0; axis < 3; ++axis) {
    const uint64_t done = uint64_t{group_.id[axis]} * dispatch_.workgroup[axis];
    group_size_[axis] = static_cast<uint32_t>(
        std::min<uint64_t>(dispatch_.workgroup[axis], dispatch_.grid[axis] - done));
    items *= group_size_[axis];
  }
  live_slots_ = (items + lanes_ - 1) / lanes_;
  group_.waves_alive = live_slots_;
  group_.waves_at_barrier = 0;
  group_.barriers_passed = 0;
  group_.lds.resize(dispatch_.group_segment_size);
  for (size_t i = 0; i < group_.lds.size(); ++i) {
    group_.lds[i] = static_cast<uint8_t>((i % 8 == 0 ? poison_.Next() : 0xa5) + i * 37);
  }
  if (!scratch_.empty()) {
    const auto pattern = static_cast<int>(poison_.Next() & 0xff);
    std::memset(scratch_.data(), pattern, scratch_.size());
  }
  for (unsigned i = 0; i < live_slots_; ++i) StartWave(i);
}

// HW_ID (gfx9: wave in [3:0], SIMD in [5:4]) and HW_ID1 (gfx10+: [4:0], [9:8]) of a
// group's wavefronts, which all run on one compute unit.
uint32_t MachineImpl::HardwareId(unsigned index) const {
  const unsigned simd = index % 4, slot = index / 4;
  return slot | simd << (target_.AtLeast10() ? 8 : 4);
}

void MachineImpl::StartWave(unsigned index) {
  Slot& slot = slots_[index];
  slot.ended = slot.parked = false;
  Wave& wave = slot.wave;
  wave.target = &target_;
  wave.memory = memory_;
  wave.messages = messages_;
  wave.group = &group_;
  wave.lanes = lanes_;
  for (uint32_t& reg : wave.sgpr) reg = static_cast<uint32_t>(poison_.Next());
  wave.scc = poison_.Next() & 1;
  wave.mode = descriptor_.rsrc1 >> 12 & 0xff;
  if (!target_.AtLeast12()) {
    wave.mode |= (descriptor_.rsrc1 >> 21 & 1) << 8 | (descriptor_.rsrc1 >> 23 & 1) << 9;
  }
  wave.mode |= (descriptor_.rsrc1 >> 26 & 1) << 23;  // FP16_OVFL
  wave.pc = entry_;
  wave.num_sgprs = allocation_.sgprs;
  wave.num_vgprs = allocation_.vgprs;
  wave.num_agprs = allocation_.agprs;
  wave.vgpr.assign(poison_words_.begin(),
                   poison_words_.begin() + static_cast<ptrdiff_t>(allocation_.vgprs * lanes_));
  wave.agpr.assign(poison_words_.begin(),
                   poison_words_.begin() + static_cast<ptrdiff_t>(allocation_.agprs * lanes_));
  wave.scratch_per_lane = dispatch_.private_segment_size;
  wave.scratch_base = scratch_.empty()
                          ? 0
                          : reinterpret_cast<uint64_t>(scratch_.data()) +
                                uint64_t{index} * lanes_ * dispatch_.private_segment_size;
  wave.shared_aperture = dispatch_.shared_aperture;
  wave.private_aperture = dispatch_.private_aperture;
  wave.wave_in_group = index;
  wave.hw_id = HardwareId(index);
  wave.barriers_signaled = 0;
  wave.fault = Fault();
  wave.sgpr[kM0] = static_cast<uint32_t>(poison_.Next());
  wave.sgpr[kExecLo] = wave.sgpr[kExecHi] = 0;
  const uint32_t items = group_size_[0] * group_size_[1] * group_size_[2];
  const uint32_t here = std::min(lanes_, items - index * lanes_);
  wave.SetExec(here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1);
  uint16_t next = 0;
  LoadUserSgprs(wave, next);
  LoadSystemSgprs(wave, index, next);
  LoadWorkitemIds(wave, index);
}

// Swizzled, thread id added: the same layout as flat scratch (see memory.cpp).
void MachineImpl::LoadPrivateResource(Wave& wave, uint16_t& next) const {
  const auto base = reinterpret_cast<uint64_t>(scratch_.data());
  const uint32_t index_stride = wave64_ ? 3 : 2;
  uint32_t word3 = index_stride << 21 | 1u << 23;
  uint32_t word1 = static_cast<uint32_t>(base >> 32 & 0xffff);
  if (target_.AtLeast11()) {
    word1 |= 1u << 30;
  } else {
    word1 |= 1u << 31;
    if (!target_.AtLeast10()) word3 |= 1u << 19;  // element size 4
  }
  wave.sgpr[next++] = static_cast<uint32_t>(base);
  wave.sgpr[next++] = word1;
  wave.sgpr[next++] = static_cast<uint32_t>(scratch_.size());
  wave.sgpr[next++] = word3;
}

void MachineImpl::LoadUserSgprs(Wave& wave, uint16_t& next) const {
  const uint64_t scratch = reinterpret_cast<uint64_t>(scratch_.data());
  if (descriptor_.Property(0)) LoadPrivateResource(wave, next);
  struct Pair {
    unsigned bit;
    uint64_t value;
  };
  const Pair pairs[] = {{1, dispatch_.packet},
                        {2, dispatch_.queue},
                        {3, dispatch_.kernarg},
                        {4, dispatch_.dispatch_id},
                        {5, scratch}};
  for (const Pair& pair : pairs) {
    if (!descriptor_.Property(pair.bit)) continue;
    wave.WriteS64(next, pair.value);
    next = static_cast<uint16_t>(next + 2);
  }
  if (descriptor_.Property(6)) wave.sgpr[next++] = dispatch_.private_segment_size;
  const uint32_t preload = descriptor_.preload & 0x7f;
  const uint64_t source = dispatch_.kernarg + uint64_t{descriptor_.preload} / 128 * 4;
  if (preload != 0 && memory_->Check(source, uint64_t{preload} * 4, false)) {
    for (uint32_t i = 0; i < preload && next < kVccLo; ++i) {
      std::memcpy(&wave.sgpr[next++], reinterpret_cast<const void*>(source + i * 4), 4);
    }
  }
  // System registers follow the count the descriptor declares.
  next = std::max(next, static_cast<uint16_t>(descriptor_.UserSgprs()));
}

uint32_t MachineImpl::GroupInfo(unsigned index) const {
  return (index == 0 ? 1u << 31 : 0) | index << 20 | live_slots_;
}

void MachineImpl::LoadSystemSgprs(Wave& wave, unsigned index, uint16_t next) const {
  if (target_.AtLeast12()) {
    wave.sgpr[kTtmp0 + 9] = group_.id[0];
    wave.sgpr[kTtmp0 + 6] = 0;  // gfx1250: clusters of one
    wave.sgpr[kTtmp0 + 7] = (group_.id[1] & 0xffff) | group_.id[2] << 16;
    wave.sgpr[kTtmp0 + 8] = index << 25;  // [29:25]: wave id in the group
    if (target_.Gfx125()) {
      wave.sgpr[kFlatScrLo] = static_cast<uint32_t>(wave.scratch_base);
      wave.sgpr[kFlatScrHi] = static_cast<uint32_t>(wave.scratch_base >> 32);
    }
    return;
  }
  for (unsigned axis = 0; axis < 3; ++axis) {
    if (descriptor_.WorkgroupId(axis)) wave.sgpr[next++] = group_.id[axis];
  }
  if (descriptor_.WorkgroupInfo()) wave.sgpr[next++] = GroupInfo(index);
  if (descriptor_.EnablePrivate() && !target_.ArchitectedFlatScratch()) {
    wave.sgpr[next++] = index * lanes_ * dispatch_.private_segment_size;
  }
}

void MachineImpl::LoadWorkitemIds(Wave& wave, unsigned index) const {
  const uint32_t mode = descriptor_.WorkitemIds();
  const bool packed = target_.Gfx90aPlus() || target_.AtLeast11();
  const uint32_t items = group_size_[0] * group_size_[1] * group_size_[2];
  for (uint32_t lane = 0; lane < lanes_ && index * lanes_ + lane < items; ++lane) {
    const uint32_t item = index * lanes_ + lane;
    const uint32_t x = item % group_size_[0];
    const uint32_t y = item / group_size_[0] % group_size_[1];
    const uint32_t z = item / group_size_[0] / group_size_[1];
    if (packed) {
      wave.V(0)[lane] = x | (mode >= 1 ? y << 10 : 0) | (mode >= 2 ? z << 20 : 0);
      continue;
    }
    wave.V(0)[lane] = x;
    if (mode >= 1 && wave.num_vgprs > 1) wave.V(1)[lane] = y;
    if (mode >= 2 && wave.num_vgprs > 2) wave.V(2)[lane] = z;
  }
}

// --- Execution ------------------------------------------------------------

Fault MachineImpl::RunGroup() {
  StartGroup();
  std::vector<unsigned> runnable;
  while (group_.waves_alive > 0) {
    runnable.clear();
    for (unsigned i = 0; i < live_slots_; ++i) {
      Slot& slot = slots_[i];
      if (slot.ended) continue;
      if (slot.parked && group_.barriers_passed < slot.wave.barriers_signaled) continue;
      slot.parked = false;
      runnable.push_back(i);
    }
    if (runnable.empty()) {
      Fault fault;
      fault.kind = Fault::Kind::kTrap;
      fault.what = "deadlock: every wave of the workgroup waits at a barrier";
      return fault;
    }
    Slot& slot = slots_[runnable[random_.Below(static_cast<uint32_t>(runnable.size()))]];
    const uint32_t quantum =
        runnable.size() == 1 ? 4096 : 1 + random_.Below(1u << random_.Below(9));
    const Step step = RunWave(slot, quantum);
    if (step == Step::kFault) return slot.wave.fault;
    if (step == Step::kBarrier) slot.parked = true;
    if (step == Step::kEnd) {
      slot.ended = true;
      --group_.waves_alive;
      group_.CompleteBarrier();
    }
    if (interrupted_.load(std::memory_order_relaxed)) {
      Fault fault;
      fault.kind = Fault::Kind::kTrap;
      fault.pc = slot.wave.pc;
      fault.what = "interrupted";
      return fault;
    }
  }
  return Fault();
}

Step MachineImpl::RunWave(Slot& slot, uint32_t quantum) {
  Wave& wave = slot.wave;
  CodeCache& cache = caches_[wave64_];
  CodeCache::Page* page = nullptr;
  uint64_t page_number = ~uint64_t{0};
  wave.memtime = clock_;
  uint64_t lane_count = 0;
  Step step = Step::kNext;
  while (quantum-- > 0) {
    if (wave.pc / CodeCache::kPageBytes != page_number) {
      page_number = wave.pc / CodeCache::kPageBytes;
      page = &cache.PageAt(page_number);
    }
    CachedInst* cached = page->slots[wave.pc % CodeCache::kPageBytes / 4].get();
    if (cached == nullptr || (wave.pc & 3) != 0) {
      cached = Fetch(wave.pc, *page, wave.fault);
      if (cached == nullptr) {
        step = Step::kFault;
        break;
      }
    }
    if (cached->dispatch != dispatch_number_ && !CheckNeeds(*cached, wave)) {
      step = Step::kFault;
      break;
    }
    const auto active = static_cast<uint64_t>(std::popcount(wave.Exec()));
    ++cached->count.waves;
    cached->count.lanes += active;
    lane_count += active;
    ++wave.memtime;
    if (observer_ != nullptr) observer_->OnInstruction(wave, cached->inst);
    step = cached->inst.handler(wave, cached->inst);
    if (step == Step::kNext) {
      wave.pc += cached->inst.size;
    } else if (step != Step::kJumped) {
      if (step != Step::kFault) wave.pc += cached->inst.size;
      break;
    }
  }
  clock_ = wave.memtime;
  lane_instructions_ += lane_count;
  return step;
}

CachedInst* MachineImpl::Fetch(uint64_t pc, CodeCache::Page& page, Fault& fault) {
  if ((pc & 3) != 0) {
    fault.kind = Fault::Kind::kMemory;
    fault.pc = fault.address = pc;
    fault.what = "misaligned program counter";
    return nullptr;
  }
  size_t available = 20;  // the longest instruction
  while (available >= 4 && !memory_->Check(pc, available, false)) available -= 4;
  if (available < 4) {
    fault.kind = Fault::Kind::kMemory;
    fault.pc = fault.address = pc;
    fault.what = "instruction fetch from unmapped memory";
    return nullptr;
  }
  auto cached = std::make_unique<CachedInst>();
  decoders_[wave64_]->Decode(pc, reinterpret_cast<const uint8_t*>(pc), available, &cached->inst);
  cached->needs = NeedsOf(cached->inst);
  std::unique_ptr<CachedInst>& home = page.slots[pc % CodeCache::kPageBytes / 4];
  home = std::move(cached);
  return home.get();
}

// Once per instruction and dispatch: are all its registers allocated? On gfx9
// VCC, XNACK_MASK and FLAT_SCRATCH are the last 2, 4 and 6 registers of the
// allocation, so a kernel that uses them may not use those as ordinary ones.
bool MachineImpl::CheckNeeds(CachedInst& cached, Wave& wave) {
  cached.dispatch = dispatch_number_;
  seen_.Merge(cached.needs);
  uint32_t limit = allocation_.sgprs;
  if (!target_.AtLeast10()) {
    limit -= seen_.flat_scratch ? 6 : seen_.xnack ? 4 : seen_.vcc ? 2 : 0;
    limit = std::min(limit, 102u);
  }
  if (seen_.sgprs > limit) {
    wave.FaultIllegal(cached.inst,
                      "scalar register out of allocation (" + std::to_string(limit) + " usable)");
    return false;
  }
  if (seen_.vgprs > allocation_.vgprs || seen_.agprs > allocation_.agprs) {
    wave.FaultIllegal(cached.inst, "vector register out of allocation (" +
                                       std::to_string(allocation_.vgprs) + " + " +
                                       std::to_string(allocation_.agprs) + ")");
    return false;
  }
  return true;
}

// --- Counts ---------------------------------------------------------------

void MachineImpl::FlushCounts() const {
  for (CodeCache& cache : caches_) {
    cache.ForEach([&](CachedInst& cached) {
      if (cached.count.waves == 0) return;
      PcCount& total = counts_[cached.inst.pc];
      total.waves += cached.count.waves;
      total.lanes += cached.count.lanes;
      cached.count = PcCount();
    });
  }
}

const std::map<uint64_t, PcCount>& MachineImpl::Counts() const {
  FlushCounts();
  return counts_;
}

void MachineImpl::ResetCounts() {
  FlushCounts();
  counts_.clear();
}

void MachineImpl::InvalidateInstructionCache() {
  FlushCounts();
  for (CodeCache& cache : caches_) cache.Clear();
}

}  // namespace

std::unique_ptr<Machine> Machine::Create(const std::string& gfx_name, uint64_t seed, Memory* memory,
                                         std::string* error) {
  Target target;
  if (!FindTarget(gfx_name, &target)) {
    *error = "the soft GPU has no model of " + gfx_name;
    return nullptr;
  }
  auto machine = std::make_unique<MachineImpl>(std::move(target), seed, memory);
  if (!machine->Init(error)) return nullptr;
  return machine;
}

}  // namespace softgpu
