// Intercepted queues and what is done with their packets; see queues.h.
#include "agent/queues.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "agent/host_untouched.h"

namespace rjdbi::agent {
namespace {

// AQL packets are 64 bytes each, of whatever type (HSA runtime, 2.8).
union Packet {
  uint16_t header;
  hsa_kernel_dispatch_packet_t dispatch;
  hsa_barrier_and_packet_t barrier;
};
static_assert(sizeof(Packet) == 64);

// Signals count down from here, once for each of their packets.
constexpr hsa_signal_value_t kSignalStart = hsa_signal_value_t{1} << 62;
// The host's packets come one by one; others that intercept may pass on several.
constexpr size_t kOnStack = 16;
constexpr uint64_t kOurs = 2;  // a fence and a mark
// Of waiting for room: then the GPU is busy with longer things.
constexpr int kEagerTurns = 200;
constexpr long kPauseNs = 20'000;

unsigned TypeOf(const Packet& packet) {
  return packet.header >> HSA_PACKET_HEADER_TYPE & ((1u << HSA_PACKET_HEADER_WIDTH_TYPE) - 1);
}

Packet Barrier(hsa_signal_t completion, bool waits_for_all) {
  Packet packet{};
  packet.header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE;
  if (waits_for_all) {
    // What the kernels before it have counted is there for the host.
    packet.header |= 1 << HSA_PACKET_HEADER_BARRIER;
    packet.header |= HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
  }
  packet.barrier.completion_signal = completion;
  return packet;
}

}  // namespace

void RingRoom::Marked() {
  ++sent_;
  marked_ = sent_;
  at_[marks_++ % kMostMarks] = sent_;
}

void RingRoom::Passed(uint64_t marks) {
  passed_ = std::min(std::max(marks, passed_), marks_);
  if (passed_ > 0) left_ = std::max(left_, at_[(passed_ - 1) % kMostMarks]);
}

// The handler's, under ROCR's lock of the queue, but for what is atomic.
struct Queues::Record {
  Record(const LiveCalls& calls, SwitchTable& switches, const QueueRequest& request)
      : hsa(calls), table(switches), callback(request.callback), callback_data(request.data) {}

  uint64_t PassedFences() const { return Completed(fence_signal); }
  uint64_t Completed(hsa_signal_t signal) const {
    return static_cast<uint64_t>(kSignalStart - hsa.hsa_signal_load_relaxed(signal));
  }
  void WaitForRoom(uint64_t count);
  void Pass(const Packet* packets, uint64_t count, const Directions* directions,
            PacketWriter writer);
  bool Direct(const Directions& directions, Packet* packet);
  void DestroySignals();

  const LiveCalls hsa;
  SwitchTable& table;
  void (*const callback)(hsa_status_t, hsa_queue_t*, void*);
  void* const callback_data;
  uint64_t number = 0;
  hsa_queue_t* queue = nullptr;
  std::unique_ptr<RingRoom> room;
  hsa_signal_t mark_signal{};
  hsa_signal_t fence_signal{};
  std::atomic<bool> failed{false};

  SwitchTable::Gate gate;
  std::atomic<uint64_t> directed_by{0};    // number of the last table that directed a dispatch
  std::atomic<uint64_t> fences_wanted{0};  // at most one more than were sent
  std::atomic<uint64_t> fences_sent{0};
};

void Queues::Record::DestroySignals() {
  for (hsa_signal_t* signal : {&mark_signal, &fence_signal}) {
    if (signal->handle != 0) hsa.hsa_signal_destroy(*signal);
    signal->handle = 0;
  }
}

// On a queue that has failed nothing moves any more, and nothing matters.
void Queues::Record::WaitForRoom(uint64_t count) {
  for (int turns = 0; !room->Has(count) && room->HasMarks() && !failed.load(); ++turns) {
    room->Passed(Completed(mark_signal));
    if (room->Has(count)) return;
    if (turns < kEagerTurns) {
      sched_yield();
    } else {
      timespec pause{0, kPauseNs};
      nanosleep(&pause, nullptr);
    }
  }
}

bool Queues::Record::Direct(const Directions& directions, Packet* packet) {
  if (TypeOf(*packet) != HSA_PACKET_TYPE_KERNEL_DISPATCH) return false;
  const Direction* direction = directions.Find(packet->dispatch.kernel_object);
  if (!direction || !direction->counts->Take()) return false;
  hsa_kernel_dispatch_packet_t& dispatch = packet->dispatch;
  dispatch.kernel_object = direction->descriptor;
  dispatch.private_segment_size =
      std::max(dispatch.private_segment_size, direction->private_segment_bytes);
  dispatch.group_segment_size =
      std::max(dispatch.group_segment_size, direction->group_segment_bytes);
  directed_by.store(directions.number());
  return true;
}

void Queues::Record::Pass(const Packet* packets, uint64_t count, const Directions* directions,
                          PacketWriter writer) {
  HostUntouched untouched;
  Packet on_stack[kOnStack];
  std::unique_ptr<Packet[]> on_heap;
  Packet* out = on_stack;
  if (count + kOurs > kOnStack) {
    on_heap.reset(new (std::nothrow) Packet[count + kOurs]);
    out = on_heap.get();
  }
  WaitForRoom(count + kOurs);
  if (!out) {  // no memory: as they are
    room->Sent(count);
    writer(packets, count);
    return;
  }
  uint64_t n = 0;
  if (fences_wanted.load() != fences_sent.load()) {
    ++fences_sent;
    out[n++] = Barrier(fence_signal, /*waits_for_all=*/true);
    room->Sent(1);
  }
  if (room->WantsMark(count)) {
    out[n++] = Barrier(mark_signal, /*waits_for_all=*/false);
    room->Marked();
  }
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(&out[n], &packets[i], sizeof out[n]);
    if (directions) Direct(*directions, &out[n]);
    ++n;
  }
  room->Sent(count);
  writer(out, n);
}

Queues::Queues(SwitchTable& table) : table_(table) {}
Queues::~Queues() { Forget(); }

void Queues::OnPackets(const void* packets, uint64_t count, uint64_t, void* data,
                       PacketWriter writer) {
  auto& record = *static_cast<Record*>(data);
  const auto* first = static_cast<const Packet*>(packets);
  const Directions* directions = record.table.Enter(record.gate);
  const bool plain = !directions && record.room->Has(count) && !record.room->WantsMark(count) &&
                     record.fences_wanted.load(std::memory_order_relaxed) ==
                         record.fences_sent.load(std::memory_order_relaxed);
  if (plain) {
    record.room->Sent(count);
    writer(packets, count);
    return;
  }
  // Still inside the gate while the packets are handed over: whoever finds it empty knows
  // that they are in the GPU's ring.
  record.Pass(first, count, directions, writer);
  if (directions) SwitchTable::Leave(record.gate);
}

void Queues::OnError(hsa_status_t status, hsa_queue_t* source, void* data) {
  auto& record = *static_cast<Record*>(data);
  record.failed = true;
  record.callback(status, source, record.callback_data);
}

bool Queues::Create(const LiveCalls& hsa, const QueueRequest& request,
                    hsa_queue_t** queue) noexcept {
  if (!queue || !hsa.complete() || request.type == HSA_QUEUE_TYPE_COOPERATIVE) return false;
  std::unique_ptr<Record> record;  // the queue's: it outlives it
  hsa_queue_t* made = nullptr;
  try {
    record = std::make_unique<Record>(hsa, table_, request);
    auto* callback = request.callback ? &OnError : nullptr;  // ROCR has one of its own
    if (hsa.hsa_amd_queue_intercept_create(request.agent, request.size, request.type, callback,
                                           record.get(), request.private_segment_size,
                                           request.group_segment_size,
                                           &made) != HSA_STATUS_SUCCESS) {
      return false;
    }
    if (Install(request.agent, made, &record)) {
      *queue = made;
      return true;
    }
  } catch (const std::exception&) {  // std::bad_alloc
  }
  if (made) hsa.hsa_queue_destroy(made);
  return false;
}

bool Queues::Adopt(const LiveCalls& hsa, hsa_agent_t agent, hsa_queue_t* queue) noexcept {
  if (!queue || !hsa.complete()) return false;
  try {
    auto record = std::make_unique<Record>(hsa, table_, QueueRequest());
    return Install(agent, queue, &record);
  } catch (const std::exception&) {
    return false;
  }
}

bool Queues::Install(hsa_agent_t agent, hsa_queue_t* queue, std::unique_ptr<Record>* record) {
  Record& r = **record;
  const uint32_t usable = r.hsa.others_make_queues ? queue->size / 4 : queue->size;
  r.room = std::make_unique<RingRoom>(usable);
  r.queue = queue;
  bool ready = true;
  for (hsa_signal_t* signal : {&r.mark_signal, &r.fence_signal}) {
    ready = ready && r.hsa.hsa_signal_create(kSignalStart, 1, &agent, signal) == HSA_STATUS_SUCCESS;
  }
  std::lock_guard lock(mutex_);
  // In the books before the first packet can come.
  const auto entry = records_.try_emplace(queue);
  if (!entry.second) {  // seen already
    r.DestroySignals();
    return true;
  }
  entry.first->second = std::move(*record);
  r.number = next_number_++;
  if (ready &&
      r.hsa.hsa_amd_queue_intercept_register(queue, &OnPackets, &r) == HSA_STATUS_SUCCESS) {
    ++intercepted_;
    return true;
  }
  r.DestroySignals();
  *record = std::move(entry.first->second);
  records_.erase(entry.first);
  return false;
}

// The entry leaves the map first, since the address may soon be another queue's.
hsa_status_t Queues::Destroy(hsa_queue_t* queue, const std::function<hsa_status_t()>& destroy) {
  decltype(records_)::node_type entry;
  {
    std::lock_guard lock(mutex_);
    entry = records_.extract(queue);
  }
  const hsa_status_t status = destroy();
  if (!entry) return status;
  if (status == HSA_STATUS_SUCCESS) {
    entry.mapped()->DestroySignals();
    return status;
  }
  std::lock_guard lock(mutex_);
  if (!records_.insert(std::move(entry)).inserted) (void)entry.mapped().release();
  return status;
}

bool Queues::AllGatesEmptyOnce(Deadline deadline) {
  std::lock_guard lock(mutex_);
  for (const auto& [queue, record] : records_) {
    while (!SwitchTable::IsEmpty(record->gate)) {
      if (deadline.Passed()) return false;
      sched_yield();
    }
  }
  return true;
}

void Queues::AskForFences(uint64_t table_number, std::vector<Fence>* fences) {
  std::lock_guard lock(mutex_);
  for (const auto& [queue, record] : records_) {
    if (record->directed_by.load() < table_number) continue;
    // One that is still to be sent will be behind all that has been handed over by now.
    const uint64_t next = record->fences_sent.load() + 1;
    if (record->fences_wanted.load() < next) record->fences_wanted.store(next);
    fences->push_back({record->number, record->fences_wanted.load()});
  }
}

bool Queues::IsPassed(const Fence& fence) {
  std::lock_guard lock(mutex_);
  for (const auto& [queue, record] : records_) {
    if (record->number == fence.queue) return record->PassedFences() >= fence.number;
  }
  return true;
}

void Queues::Forget() {
  std::lock_guard lock(mutex_);
  // Threads of the host may still be in a handler of theirs: not freed.
  for (auto& [queue, record] : records_) (void)record.release();
  records_.clear();
}

}  // namespace rjdbi::agent
