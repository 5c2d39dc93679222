// The command processor of AQL queues.
//
// Packets execute in order, one after the other; that is one of the schedules
// the HSA specification allows whatever their barrier bits are, and it satisfies
// every acquire and release fence (host memory is coherent here).
//
// Error codes stored to queue_inactive_signal are those that ROCR's handler
// (AqlQueue::DynamicScratchHandler) understands.
#include <hsa/amd_hsa_queue.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <algorithm>
#include <cstring>

#include "tests/softgpu/thunk/driver.h"
#include "tests/softgpu/thunk/log.h"
#include "tests/softgpu/thunk/signals.h"

namespace softgpu {
namespace {

enum InactiveCode : uint64_t {
  kNeedScratchWave64 = 0x1,
  kBadDimensions = 0x2,
  kBadGroupMemory = 0x4,
  kBadCode = 0x8,
  kBadPacket = 0x20,
  kBadWorkgroupSize = 0x40,
  kBadVendorPacket = 0x100,
  kReclaimScratch = 0x200,
  kNeedScratchWave32 = 0x400,
  kApertureViolation = 0x20000000,
  kIllegalInstruction = 0x40000000,
  kTrapped = 0x80000000,
};

constexpr uint64_t kPacketBytes = 64;
constexpr uint64_t kDescriptorBytes = 64;
constexpr uint64_t kDescriptorProperties = 56;  // offset of kernel_code_properties
constexpr uint16_t kPropertyWave32 = 1 << 10;

// Vendor packets (AmdFormat).
constexpr uint8_t kVendorPm4Ib = 1;

// PM4 type 3 packets.
constexpr uint32_t kPm4Nop = 0x10;
constexpr uint32_t kPm4IndirectBuffer = 0x3f;
constexpr uint32_t kPm4AcquireMem = 0x58;

// PM4 indirect buffer in an AQL slot.
struct Pm4IbPacket {
  uint16_t header;
  uint16_t vendor_header;
  uint32_t jump[4];  // header; address low, high; size in dwords
  uint32_t remaining_dwords;
  uint32_t reserved[8];
  hsa_signal_t completion_signal;
};
static_assert(sizeof(Pm4IbPacket) == kPacketBytes);

// An address no page table could map: neither half of the canonical range.
bool BeyondAddressSpace(uint64_t address) {
  const uint64_t top = address >> 47;
  return top != 0 && top != 0x1ffff;
}

bool Satisfied(const hsa_amd_barrier_value_packet_t& packet) {
  if (packet.signal.handle == 0) return true;
  const int64_t value = LoadSignal(packet.signal.handle) & packet.mask;
  switch (packet.cond) {
    case HSA_SIGNAL_CONDITION_EQ:
      return value == packet.value;
    case HSA_SIGNAL_CONDITION_NE:
      return value != packet.value;
    case HSA_SIGNAL_CONDITION_LT:
      return value < packet.value;
    default:
      return value >= packet.value;
  }
}

// Interrupts that kernels raise themselves (signals updated by device code).
class KernelInterrupts : public MessageSink {
 public:
  explicit KernelInterrupts(Events* events) : events_(events) {}
  void OnMessage(uint32_t message, uint32_t m0) override {
    constexpr uint32_t kMessageInterrupt = 1, kEventMask = 0xffffff;
    if ((message & 0xf) == kMessageInterrupt) events_->Signal(m0 & kEventMask);
  }

 private:
  Events* const events_;
};

class AqlQueue : public Queue {
 public:
  AqlQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell, void* ring, uint64_t size,
           amd_queue_t* queue)
      : Queue(driver, id, doorbell, ring, size), queue_(queue), interrupts_(driver->events()) {}
  ~AqlQueue() override { Stop(); }

 protected:
  bool Step() override;
  void Interrupt() override {
    if (Machine* machine = running_.load()) machine->Interrupt();
  }

 private:
  enum class Outcome { kDone, kStopped };

  Outcome Execute(const uint8_t* slot, uint16_t header);
  Outcome RunKernel(const hsa_kernel_dispatch_packet_t& packet, const uint8_t* slot);
  Outcome RunVendor(const uint8_t* slot);
  Outcome RunPm4(const Pm4IbPacket& packet);
  Outcome WaitAnd(const hsa_barrier_and_packet_t& packet);
  Outcome WaitOr(const hsa_barrier_or_packet_t& packet);
  uint64_t Validate(const hsa_kernel_dispatch_packet_t& packet);
  Outcome EnsureScratch(const hsa_kernel_dispatch_packet_t& packet);
  Outcome ReportFault(const Fault& fault);
  Outcome Fail(InactiveCode code, const char* what);
  bool RaiseAndWait(InactiveCode code);
  bool PrepareMachine();

  uint64_t ReadIndex() const {
    return __atomic_load_n(const_cast<uint64_t*>(&queue_->read_dispatch_id), __ATOMIC_RELAXED);
  }

  amd_queue_t* const queue_;
  KernelInterrupts interrupts_;
  std::unique_ptr<Machine> machine_;
  std::atomic<Machine*> running_{nullptr};  // machine_, for Interrupt
  uint64_t code_generation_ = 0;
  uint64_t limit_ = 0;  // packets below this index have been announced
};

bool AqlQueue::Step() {
  uint64_t rung;
  if (TakeDoorbell(&rung)) {
    // The bell says "look": the write index is read from memory, so rings that
    // overtake each other lose nothing.
    const uint64_t write =
        __atomic_load_n(const_cast<uint64_t*>(&queue_->write_dispatch_id), __ATOMIC_ACQUIRE);
    limit_ = std::max({limit_, write, rung + 1});
  }
  const uint64_t read = ReadIndex();
  if (read >= limit_) return false;
  uint8_t* slot = ring_ + (read * kPacketBytes & (size_ - 1));
  auto* header = reinterpret_cast<uint16_t*>(slot);
  const uint16_t bits = __atomic_load_n(header, __ATOMIC_ACQUIRE);
  if ((bits & 0xff) == HSA_PACKET_TYPE_INVALID) return false;  // not yet written

  uint8_t copy[kPacketBytes];
  memcpy(copy, slot, kPacketBytes);
  Timestamps times;
  times.start = GpuClock();
  if (Execute(slot, bits) == Outcome::kStopped) return true;
  times.end = GpuClock();
  times.valid = (queue_->queue_properties & AMD_QUEUE_PROPERTIES_ENABLE_PROFILING) != 0;

  __atomic_store_n(header, uint16_t{HSA_PACKET_TYPE_INVALID}, __ATOMIC_RELEASE);
  __atomic_store_n(const_cast<uint64_t*>(&queue_->read_dispatch_id), read + 1, __ATOMIC_RELEASE);
  uint64_t completion;  // every packet type has it last
  memcpy(&completion, copy + kPacketBytes - sizeof(completion), sizeof(completion));
  if (completion != 0) CompleteSignal(completion, times, driver_->events());
  return true;
}

AqlQueue::Outcome AqlQueue::Execute(const uint8_t* slot, uint16_t header) {
  switch (header & 0xff) {
    case HSA_PACKET_TYPE_KERNEL_DISPATCH: {
      hsa_kernel_dispatch_packet_t packet;
      memcpy(&packet, slot, sizeof(packet));
      return RunKernel(packet, slot);
    }
    case HSA_PACKET_TYPE_BARRIER_AND: {
      hsa_barrier_and_packet_t packet;
      memcpy(&packet, slot, sizeof(packet));
      return WaitAnd(packet);
    }
    case HSA_PACKET_TYPE_BARRIER_OR: {
      hsa_barrier_or_packet_t packet;
      memcpy(&packet, slot, sizeof(packet));
      return WaitOr(packet);
    }
    case HSA_PACKET_TYPE_VENDOR_SPECIFIC:
      return RunVendor(slot);
    default:
      Complain("queue %lu: not implemented: AQL packet of type %u", id_, header & 0xff);
      return Fail(kBadPacket, "unsupported packet");
  }
}

AqlQueue::Outcome AqlQueue::WaitAnd(const hsa_barrier_and_packet_t& packet) {
  for (const hsa_signal_t& signal : packet.dep_signal) {
    if (signal.handle == 0) continue;
    if (!WaitUntil([&] { return LoadSignal(signal.handle) == 0; })) return Outcome::kStopped;
  }
  return Outcome::kDone;
}

AqlQueue::Outcome AqlQueue::WaitOr(const hsa_barrier_or_packet_t& packet) {
  const bool any = WaitUntil([&] {
    bool none = true;
    for (const hsa_signal_t& signal : packet.dep_signal) {
      if (signal.handle == 0) continue;
      none = false;
      if (LoadSignal(signal.handle) == 0) return true;
    }
    return none;  // no dependency at all is satisfied
  });
  return any ? Outcome::kDone : Outcome::kStopped;
}

AqlQueue::Outcome AqlQueue::RunVendor(const uint8_t* slot) {
  const uint8_t format = slot[2];
  if (format == kVendorPm4Ib) {
    Pm4IbPacket packet;
    memcpy(&packet, slot, sizeof(packet));
    return RunPm4(packet);
  }
  if (format == HSA_AMD_PACKET_TYPE_BARRIER_VALUE) {
    hsa_amd_barrier_value_packet_t packet;
    memcpy(&packet, slot, sizeof(packet));
    if (!WaitUntil([&] { return Satisfied(packet); })) return Outcome::kStopped;
    return Outcome::kDone;
  }
  Complain("queue %lu: not implemented: vendor packet of format %u", id_, format);
  return Fail(kBadVendorPacket, "unsupported vendor packet");
}

AqlQueue::Outcome AqlQueue::RunPm4(const Pm4IbPacket& packet) {
  auto opcode = [](uint32_t header) { return header >> 8 & 0xff; };
  const uint64_t address = (packet.jump[1] & ~3u) | (uint64_t{packet.jump[2] & 0xffff} << 32);
  const uint32_t dwords = packet.jump[3] & 0xfffff;
  if (opcode(packet.jump[0]) != kPm4IndirectBuffer || !memory_.Check(address, dwords * 4, false)) {
    Complain("queue %lu: malformed PM4 indirect buffer packet", id_);
    return Fail(kBadVendorPacket, "malformed PM4_IB");
  }
  const auto* ib = reinterpret_cast<const uint32_t*>(address);
  for (uint32_t at = 0; at < dwords; at += (ib[at] >> 16 & 0x3fff) + 2) {
    const uint32_t op = opcode(ib[at]);
    if (op == kPm4AcquireMem) {
      driver_->InvalidateCode();
    } else if (op != kPm4Nop) {
      Complain("queue %lu: not implemented: PM4 packet with opcode 0x%x", id_, op);
      return Fail(kBadVendorPacket, "unsupported PM4 packet");
    }
  }
  return Outcome::kDone;
}

uint64_t AqlQueue::Validate(const hsa_kernel_dispatch_packet_t& packet) {
  const uint32_t dimensions = packet.setup & 3;
  const uint64_t group =
      uint64_t{packet.workgroup_size_x} * packet.workgroup_size_y * packet.workgroup_size_z;
  if (dimensions == 0 || group == 0 || packet.grid_size_x == 0 || packet.grid_size_y == 0 ||
      packet.grid_size_z == 0) {
    return kBadDimensions;
  }
  if (group > kMaxWorkgroup) return kBadWorkgroupSize;
  if (packet.group_segment_size > kLdsBytes) return kBadGroupMemory;
  if (!memory_.Check(packet.kernel_object, kDescriptorBytes, false)) return kBadCode;
  return 0;
}

AqlQueue::Outcome AqlQueue::EnsureScratch(const hsa_kernel_dispatch_packet_t& packet) {
  if (packet.private_segment_size == 0) return Outcome::kDone;
  uint16_t properties;
  memcpy(&properties, reinterpret_cast<const char*>(packet.kernel_object) + kDescriptorProperties,
         sizeof(properties));
  const bool wave32 = driver_->model().major >= 10 && (properties & kPropertyWave32) != 0;
  const uint64_t needed = uint64_t{packet.private_segment_size} * (wave32 ? 32 : 64);
  while (true) {
    // COMPUTE_TMPRING_SIZE.WAVESIZE, bits 12 to 24: bytes of a wave in units of 1 KB.
    const uint64_t granted = uint64_t{queue_->compute_tmpring_size >> 12 & 0x1fff} * 1024;
    if (needed <= granted) return Outcome::kDone;
    Log("queue %lu: asks for %lu bytes of scratch a wave, has %lu", id_, needed, granted);
    if (!RaiseAndWait(wave32 ? kNeedScratchWave32 : kNeedScratchWave64)) return Outcome::kStopped;
  }
}

bool AqlQueue::PrepareMachine() {
  if (machine_ == nullptr) {
    machine_ = driver_->NewMachine(&memory_);
    if (machine_ == nullptr) return false;
    machine_->SetMessageSink(&interrupts_);
    running_.store(machine_.get());
  }
  const uint64_t generation = driver_->CodeGeneration();
  if (generation != code_generation_) {
    machine_->InvalidateInstructionCache();
    code_generation_ = generation;
  }
  return true;
}

AqlQueue::Outcome AqlQueue::RunKernel(const hsa_kernel_dispatch_packet_t& packet,
                                      const uint8_t* slot) {
  if (const uint64_t code = Validate(packet)) {
    return Fail(static_cast<InactiveCode>(code), "invalid dispatch packet");
  }
  if (EnsureScratch(packet) == Outcome::kStopped) return Outcome::kStopped;
  if (!PrepareMachine()) return Fail(kIllegalInstruction, "no interpreter");
  if (Stopping()) return Outcome::kStopped;

  const uint32_t dimensions = packet.setup & 3;
  Dispatch dispatch;
  dispatch.kernel_descriptor = packet.kernel_object;
  dispatch.kernarg = reinterpret_cast<uint64_t>(packet.kernarg_address);
  dispatch.packet = reinterpret_cast<uint64_t>(slot);
  dispatch.queue = reinterpret_cast<uint64_t>(queue_);
  dispatch.dispatch_id = ReadIndex();
  const uint32_t grid[3] = {packet.grid_size_x, packet.grid_size_y, packet.grid_size_z};
  const uint32_t group[3] = {packet.workgroup_size_x, packet.workgroup_size_y,
                             packet.workgroup_size_z};
  for (uint32_t i = 0; i < dimensions; ++i) {
    dispatch.grid[i] = grid[i];
    dispatch.workgroup[i] = group[i];
  }
  dispatch.private_segment_size = packet.private_segment_size;
  dispatch.group_segment_size = packet.group_segment_size;
  dispatch.shared_aperture = uint64_t{queue_->group_segment_aperture_base_hi} << 32;
  dispatch.private_aperture = uint64_t{queue_->private_segment_aperture_base_hi} << 32;
  Log("queue %lu: kernel 0x%lx, grid %u,%u,%u, workgroup %u,%u,%u, scratch %u, LDS %u", id_,
      dispatch.kernel_descriptor, dispatch.grid[0], dispatch.grid[1], dispatch.grid[2],
      dispatch.workgroup[0], dispatch.workgroup[1], dispatch.workgroup[2],
      dispatch.private_segment_size, dispatch.group_segment_size);

  const Fault fault = machine_->Run(dispatch);
  if (driver_->counts()->enabled()) driver_->counts()->Record(dispatch, machine_->Counts());
  machine_->ResetCounts();
  if (Stopping()) return Outcome::kStopped;
  if (fault.kind != Fault::Kind::kNone) return ReportFault(fault);
  if ((queue_->queue_properties & AMD_QUEUE_PROPERTIES_USE_SCRATCH_ONCE) != 0 &&
      !RaiseAndWait(kReclaimScratch)) {
    return Outcome::kStopped;
  }
  return Outcome::kDone;
}

AqlQueue::Outcome AqlQueue::ReportFault(const Fault& fault) {
  if (fault.kind == Fault::Kind::kMemory) {
    Complain("queue %lu: memory fault: %s of 0x%lx at pc 0x%lx: %s", id_,
             fault.write ? "write" : "read", fault.address, fault.pc, fault.what.c_str());
    if (BeyondAddressSpace(fault.address)) return Fail(kApertureViolation, "aperture violation");
    Halt();
    driver_->events()->RaiseMemoryFault(kGpuNode, fault.address);
    return Outcome::kStopped;
  }
  const bool trap = fault.kind == Fault::Kind::kTrap;
  Complain("queue %lu: %s at pc 0x%lx: %s", id_, trap ? "trap" : "illegal instruction", fault.pc,
           fault.what.c_str());
  return Fail(trap ? kTrapped : kIllegalInstruction, "wave exception");
}

AqlQueue::Outcome AqlQueue::Fail(InactiveCode code, const char* what) {
  Complain("queue %lu: stopped: %s (0x%lx)", id_, what, static_cast<uint64_t>(code));
  Halt();
  RaiseSignal(queue_->queue_inactive_signal.handle, code, driver_->events());
  return Outcome::kStopped;
}

bool AqlQueue::RaiseAndWait(InactiveCode code) {
  const uint64_t signal = queue_->queue_inactive_signal.handle;
  RaiseSignal(signal, code, driver_->events());
  // The runtime stores 0 to resume the queue. It stores -1 when it gives up.
  return WaitUntil([&] {
           const int64_t value = LoadSignal(signal);
           return value == 0 || value == -1;
         }) &&
         LoadSignal(signal) == 0;
}

}  // namespace

std::unique_ptr<Queue> MakeAqlQueue(Driver* driver, uint64_t id, std::atomic<uint64_t>* doorbell,
                                    void* ring, uint64_t size, uint64_t amd_queue) {
  return std::make_unique<AqlQueue>(driver, id, doorbell, ring, size,
                                    reinterpret_cast<amd_queue_t*>(amd_queue));
}

}  // namespace softgpu
