// The host's queues, made so that the agent sees each packet before the GPU does: ROCR
// calls PacketHandler, on the thread that rings the doorbell, and passes on what it
// writes. Dispatches are directed there (dispatch_switch.h).
//
// What ROCR 5.2's interception has to be protected from, and us from it:
//  - It keeps the host's packets apart from those that the GPU reads, and takes the former
//    as consumed once they are written: a host that relies on the read index can have more
//    under way than the GPU's ring holds. What does not fit ROCR puts aside, for one packet
//    at a time; a second one is a failed assertion in builds that have them. So the agent
//    counts what is on its way. A barrier packet without the barrier bit, with a signal of the
//    agent's, goes in now and then: it waits for nothing, and once the GPU has come to it,
//    all before it has left the ring. What might not fit is waited for, as the host
//    itself would have to wait on a queue of its own.
//  - A handler may call the packet writer once only (a second call uses ROCR's array out
//    of bounds), so additional packets go with the host's in one call.
//  - Other tools that intercept may add packets behind the agent's back; where there are
//    such, it uses a quarter of the ring.
//  - Cooperative queues are shared inside ROCR, and destroyed with the interception: they
//    are not intercepted.
#ifndef RJDBI_AGENT_QUEUES_H_
#define RJDBI_AGENT_QUEUES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "agent/dispatch_switch.h"
#include "agent/hsa_api.h"
#include "agent/types.h"

namespace rjdbi::agent {

// As in hsa_queue_create.
struct QueueRequest {
  hsa_agent_t agent{};
  uint32_t size = 0;
  hsa_queue_type32_t type = 0;
  void (*callback)(hsa_status_t status, hsa_queue_t* source, void* data) = nullptr;
  void* data = nullptr;
  uint32_t private_segment_size = 0;
  uint32_t group_segment_size = 0;
};

// What a queue must have done before something can go: see Queues::AskForFences.
struct Fence {
  uint64_t queue = 0;   // its number
  uint64_t number = 0;  // of the fence, from 1
};

// How much of a ring is in use, at most, seen from what goes in and from marks that come
// out in the same order. Not thread-safe.
class RingRoom {
 public:
  // `size`: packets that the ring holds.
  explicit RingRoom(uint32_t size) : size_(size), interval_(size / 8 > 8 ? size / 8 : 8) {}

  // Whether `count` more packets fit for certain and leave one slot free.
  bool Has(uint64_t count) const { return sent_ - left_ + count < size_; }
  // Whether a mark is due before `count` more.
  bool WantsMark(uint64_t count) const {
    return sent_ + count - marked_ >= interval_ && marks_ - passed_ < kMostMarks;
  }
  void Sent(uint64_t count) { sent_ += count; }
  // A mark was sent, as the packet in front of all that is Sent later.
  void Marked();
  // The first `marks` marks ever sent have been passed by the GPU.
  void Passed(uint64_t marks);
  uint64_t sent() const { return sent_; }
  // Marks that the GPU may not have passed yet.
  bool HasMarks() const { return marks_ != passed_; }

 private:
  static constexpr uint64_t kMostMarks = 64;

  const uint64_t size_;
  const uint64_t interval_;
  uint64_t sent_ = 0;
  uint64_t left_ = 0;    // of these, known to have left the ring
  uint64_t marked_ = 0;  // sent_ when the last mark was
  uint64_t marks_ = 0;
  uint64_t passed_ = 0;
  uint64_t at_[kMostMarks] = {};  // sent_ after mark i, at i % kMostMarks
};

class Queues {
 public:
  explicit Queues(SwitchTable& table);
  ~Queues();

  // A queue that another tool has made with interception, or may have: from now on its
  // packets are seen here, too, before that tool sees them. False: it is not intercepted.
  bool Adopt(const LiveCalls& hsa, hsa_agent_t agent, hsa_queue_t* queue) noexcept;
  // Makes a queue that is seen, or, where that cannot be, none: false, and the host's
  // own call has to be made (and PlainQueue).
  bool Create(const LiveCalls& hsa, const QueueRequest& request, hsa_queue_t** queue) noexcept;
  // A queue was made whose dispatches stay unseen.
  void PlainQueue() { ++plain_; }
  uint64_t plain() const { return plain_.load(); }
  uint64_t intercepted() const { return intercepted_.load(); }

  // Destroys a queue by `destroy`, and then what belongs to it here, unless that fails.
  hsa_status_t Destroy(hsa_queue_t* queue, const std::function<hsa_status_t()>& destroy);

  // Whether each gate has been seen empty after the call began; gives up at the deadline.
  bool AllGatesEmptyOnce(Deadline deadline);
  // Asks those queues that have directed a dispatch by a table of at least this number for
  // a fence: a barrier packet behind all that they have been given, in front of the next
  // packet from the host. Appends what to wait for.
  void AskForFences(uint64_t table_number, std::vector<Fence>* fences);
  // Whether the GPU has passed it, or the queue is gone.
  bool IsPassed(const Fence& fence);

  // After the end of the runtime: forgets all, calls nothing.
  void Forget();

 private:
  struct Record;

  // Signals, room, handler; then takes the record. False: `record` still has it.
  bool Install(hsa_agent_t agent, hsa_queue_t* queue, std::unique_ptr<Record>* record);

  static void OnPackets(const void* packets, uint64_t count, uint64_t index, void* record,
                        PacketWriter writer);
  static void OnError(hsa_status_t status, hsa_queue_t* source, void* record);

  SwitchTable& table_;
  std::mutex mutex_;  // guards the map; records are also their handler's
  std::unordered_map<hsa_queue_t*, std::unique_ptr<Record>> records_;
  uint64_t next_number_ = 1;
  std::atomic<uint64_t> plain_{0};
  std::atomic<uint64_t> intercepted_{0};
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_QUEUES_H_
