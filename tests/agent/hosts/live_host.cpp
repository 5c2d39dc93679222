// A host that does what it is told on standard input, one answer line each, so that
// things can be attached to it in between: live_host CODE_OBJECT.
//   load | unload         the code object, from memory, in an executable of its own
//   forget                overwrites the memory that it was loaded from, once loaded
//   run N [QUEUE]         N dispatches, one after the other, of `loader_kernel`, and
//                         checks each: "right R wrong W" (wrong: nothing was stored)
//   flood N [QUEUE]       N dispatches behind a barrier packet that holds them up; all are
//                         announced at once where the queue has room; "right R wrong W"
//   burst N [QUEUE]       the same, with nothing that holds them up
//   threads T N           N dispatches from each of T threads, each with its own queue
//   start N               the same from one thread in the background; "started"
//   join                  waits for it; "right R wrong W"
//   queue | drop          makes one more queue, destroys the last one
//   profile               a dispatch's times; "took" or "no time"
//   mask                  restricts the first queue to some compute units; "masked"
//   kernel                the address of the kernel's descriptor
//   shutdown              and starts again
//   time N                nanoseconds for a dispatch to be written and announced, of N
//   quit
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint32_t kItems = 128;
constexpr uint32_t kQueueSize = 64;

#define CHECK(call)                                                    \
  do {                                                                 \
    if (const hsa_status_t s = (call); s != HSA_STATUS_SUCCESS) {      \
      std::printf("FAIL %s: 0x%x\n", #call, static_cast<unsigned>(s)); \
      std::exit(1);                                                    \
    }                                                                  \
  } while (false)

struct Arguments {
  uint32_t* out;
  uint32_t n;
};

struct Tally {
  unsigned right = 0, wrong = 0;
};

class Host {
 public:
  explicit Host(const char* path) {
    std::ifstream file(path, std::ios::binary);
    original_.assign(std::istreambuf_iterator<char>(file), {});
    Begin();
  }

  void Begin() {
    gpu_ = cpu_ = {};
    CHECK(hsa_init());
    CHECK(hsa_iterate_agents(&TakeAgent, this));
    CHECK(hsa_amd_agent_iterate_memory_pools(cpu_, &TakePool, this));
    AddQueue();
  }
  void ShutDown() {
    while (!queues_.empty()) DropQueue();
    CHECK(hsa_shut_down());
  }

  void Load() {
    bytes_ = original_;
    CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                    nullptr, &executable_));
    CHECK(hsa_code_object_reader_create_from_memory(bytes_.data(), bytes_.size(), &reader_));
    CHECK(hsa_executable_load_agent_code_object(executable_, gpu_, reader_, nullptr, nullptr));
    CHECK(hsa_executable_freeze(executable_, nullptr));
    hsa_executable_symbol_t symbol;
    CHECK(hsa_executable_get_symbol_by_name(executable_, "loader_kernel.kd", &gpu_, &symbol));
    CHECK(
        hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &kernel_));
  }
  void Unload() {
    CHECK(hsa_executable_destroy(executable_));
    CHECK(hsa_code_object_reader_destroy(reader_));
  }
  void Forget() { std::fill(bytes_.begin(), bytes_.end(), 'x'); }
  uint64_t kernel() const { return kernel_; }

  void AddQueue() {
    hsa_queue_t* queue = nullptr;
    CHECK(hsa_queue_create(gpu_, kQueueSize, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX,
                           UINT32_MAX, &queue));
    queues_.push_back(queue);
  }
  void DropQueue() {
    CHECK(hsa_queue_destroy(queues_.back()));
    queues_.pop_back();
  }
  hsa_queue_t* queue(size_t i) { return queues_.at(i); }

  // One dispatch after the other.
  Tally Run(unsigned n, hsa_queue_t* queue) {
    Tally tally;
    Slot slot(*this);
    for (unsigned i = 0; i < n; ++i) {
      slot.Reset();
      const uint64_t index = Write(queue, slot.Dispatch(), kDispatch);
      hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
      slot.Wait();
      ++(slot.Right() ? tally.right : tally.wrong);
    }
    return tally;
  }

  // All at once, as far as they go.
  Tally Flood(unsigned n, hsa_queue_t* queue, bool held_up) {
    hsa_signal_t gate, done;
    CHECK(hsa_signal_create(1, 0, nullptr, &gate));
    CHECK(hsa_signal_create(static_cast<int64_t>(n), 0, nullptr, &done));
    std::vector<Slot*> slots;
    for (unsigned i = 0; i < n; ++i) slots.push_back(new Slot(*this));
    hsa_barrier_and_packet_t barrier{};
    barrier.dep_signal[0] = gate;
    uint64_t index = Write(queue, barrier, kBarrier);
    hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
    unsigned written = 0;
    bool open = !held_up;
    if (open) hsa_signal_store_screlease(gate, 0);
    while (written < n) {
      // Until the queue says that it is full, or far enough; then it is rung.
      unsigned burst = 0;
      while (written < n && burst < 24 &&
             hsa_queue_load_write_index_relaxed(queue) -
                     hsa_queue_load_read_index_scacquire(queue) <
                 queue->size) {
        hsa_kernel_dispatch_packet_t packet = slots[written]->Dispatch();
        packet.completion_signal = done;
        index = Write(queue, packet, kDispatch);
        ++written;
        ++burst;
      }
      hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
      if (!open && (burst == 0 || written >= kQueueSize / 2)) {
        hsa_signal_store_screlease(gate, 0);
        open = true;
      }
    }
    if (!open) hsa_signal_store_screlease(gate, 0);
    hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
    Tally tally;
    for (Slot* slot : slots) {
      ++(slot->Right() ? tally.right : tally.wrong);
      delete slot;
    }
    CHECK(hsa_signal_destroy(gate));
    CHECK(hsa_signal_destroy(done));
    return tally;
  }

  Tally Threads(unsigned threads, unsigned n) {
    while (queues_.size() < threads) AddQueue();
    std::vector<Tally> tallies(threads);
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t) {
      running.emplace_back([&, t] { tallies[t] = Run(n, queues_[t]); });
    }
    Tally sum;
    for (unsigned t = 0; t < threads; ++t) {
      running[t].join();
      sum.right += tallies[t].right;
      sum.wrong += tallies[t].wrong;
    }
    return sum;
  }

  void Start(unsigned n) {
    background_ = std::thread([this, n] { background_tally_ = Run(n, queues_[0]); });
  }
  Tally Join() {
    background_.join();
    return background_tally_;
  }

  bool Profile() {
    hsa_queue_t* const queue = queues_[0];
    CHECK(hsa_amd_profiling_set_profiler_enabled(queue, 1));
    Slot slot(*this);
    slot.Reset();
    const uint64_t index = Write(queue, slot.Dispatch(), kDispatch);
    hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
    slot.Wait();
    hsa_amd_profiling_dispatch_time_t time{};
    CHECK(hsa_amd_profiling_get_dispatch_time(gpu_, slot.done(), &time));
    CHECK(hsa_amd_profiling_set_profiler_enabled(queue, 0));
    return time.start != 0 && time.end >= time.start;
  }

  bool Mask() {
    uint32_t mask = 0xf;
    CHECK(hsa_amd_queue_cu_set_mask(queues_[0], 32, &mask));
    return true;
  }

  double Time(unsigned n) {
    hsa_queue_t* const queue = queues_[0];
    double best = 1e18;
    for (int round = 0; round < 20; ++round) {
      hsa_signal_t done;
      CHECK(hsa_signal_create(1, 0, nullptr, &done));
      Slot slot(*this);
      // Held up, so that only the host's part is seen: the GPU has nothing to do yet.
      hsa_signal_t gate;
      CHECK(hsa_signal_create(1, 0, nullptr, &gate));
      hsa_barrier_and_packet_t barrier{};
      barrier.dep_signal[0] = gate;
      uint64_t index = Write(queue, barrier, kBarrier);
      hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
      const auto start = std::chrono::steady_clock::now();
      for (unsigned i = 0; i < n; ++i) {
        hsa_kernel_dispatch_packet_t packet = slot.Dispatch();
        packet.completion_signal.handle = 0;
        index = Write(queue, packet, kDispatch);
        hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
      }
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count() / n);
      hsa_barrier_and_packet_t last{};
      last.completion_signal = done;
      index = Write(queue, last, kBarrier);
      hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
      hsa_signal_store_screlease(gate, 0);
      hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX,
                                HSA_WAIT_STATE_BLOCKED);
      CHECK(hsa_signal_destroy(done));
      CHECK(hsa_signal_destroy(gate));
    }
    return best;
  }

 private:
  // Results, arguments and completion of one dispatch.
  class Slot {
   public:
    explicit Slot(Host& host) : host_(host) {
      const size_t bytes = kItems * sizeof(uint32_t) + sizeof(Arguments);
      CHECK(hsa_amd_memory_pool_allocate(host.pool_, bytes, 0, &memory_));
      CHECK(hsa_amd_agents_allow_access(1, &host.gpu_, nullptr, memory_));
      CHECK(hsa_signal_create(1, 0, nullptr, &done_));
      Reset();
    }
    ~Slot() {
      CHECK(hsa_signal_destroy(done_));
      CHECK(hsa_amd_memory_pool_free(memory_));
    }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    void Reset() {
      std::memset(memory_, 0, kItems * sizeof(uint32_t));
      const Arguments arguments{out(), kItems};
      std::memcpy(out() + kItems, &arguments, sizeof arguments);
      hsa_signal_store_screlease(done_, 1);
    }
    hsa_kernel_dispatch_packet_t Dispatch() const {
      hsa_kernel_dispatch_packet_t packet{};
      packet.setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
      packet.workgroup_size_x = 64;
      packet.workgroup_size_y = packet.workgroup_size_z = 1;
      packet.grid_size_x = kItems;
      packet.grid_size_y = packet.grid_size_z = 1;
      packet.kernel_object = host_.kernel_;
      packet.kernarg_address = out() + kItems;
      packet.completion_signal = done_;
      return packet;
    }
    void Wait() const {
      hsa_signal_wait_scacquire(done_, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX,
                                HSA_WAIT_STATE_BLOCKED);
    }
    hsa_signal_t done() const { return done_; }
    bool Right() const {
      bool all = true, none = true;
      for (uint32_t i = 0; i < kItems; ++i) {
        all = all && out()[i] == i * 7 + 3;
        none = none && out()[i] == 0;
      }
      if (!all && !none) {
        std::puts("FAIL neither kernel's results");
        std::exit(1);
      }
      return all;
    }

   private:
    uint32_t* out() const { return static_cast<uint32_t*>(memory_); }
    Host& host_;
    void* memory_ = nullptr;
    hsa_signal_t done_{};
  };

  static constexpr uint16_t kFences =
      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
  static constexpr uint16_t kDispatch =
      HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | kFences;
  static constexpr uint16_t kBarrier = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE |
                                       1 << HSA_PACKET_HEADER_BARRIER | kFences;

  template <typename P>
  static uint64_t Write(hsa_queue_t* queue, P packet, uint16_t header) {
    static_assert(sizeof packet == 64);
    const uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
    while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) {
      std::this_thread::yield();
    }
    char* const slot = static_cast<char*>(queue->base_address) + index % queue->size * 64;
    std::memcpy(slot + 2, reinterpret_cast<char*>(&packet) + 2, 62);
    __atomic_store_n(reinterpret_cast<uint16_t*>(slot), header, __ATOMIC_RELEASE);
    return index;
  }

  static hsa_status_t TakeAgent(hsa_agent_t agent, void* data) {
    auto* host = static_cast<Host*>(data);
    hsa_device_type_t type;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    (type == HSA_DEVICE_TYPE_GPU ? host->gpu_ : host->cpu_) = agent;
    return HSA_STATUS_SUCCESS;
  }
  static hsa_status_t TakePool(hsa_amd_memory_pool_t pool, void* data) {
    hsa_amd_segment_t segment;
    uint32_t flags = 0;
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT)
      static_cast<Host*>(data)->pool_ = pool;
    return HSA_STATUS_SUCCESS;
  }

  std::vector<char> original_, bytes_;
  hsa_agent_t gpu_{}, cpu_{};
  hsa_amd_memory_pool_t pool_{};
  hsa_executable_t executable_{};
  hsa_code_object_reader_t reader_{};
  uint64_t kernel_ = 0;
  std::vector<hsa_queue_t*> queues_;
  std::thread background_;
  Tally background_tally_;
};

void Print(const Tally& tally) { std::printf("right %u wrong %u\n", tally.right, tally.wrong); }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Host host(argv[1]);
  std::puts("ready");
  std::fflush(stdout);
  char line[128];
  while (std::fgets(line, sizeof line, stdin)) {
    char verb[32] = "";
    unsigned a = 0, b = 0;
    std::sscanf(line, "%31s %u %u", verb, &a, &b);
    const std::string v = verb;
    if (v == "quit") break;
    if (v == "run") {
      Print(host.Run(a, host.queue(b)));
    } else if (v == "flood") {
      Print(host.Flood(a, host.queue(b), true));
    } else if (v == "burst") {
      Print(host.Flood(a, host.queue(b), false));
    } else if (v == "threads") {
      Print(host.Threads(a, b));
    } else if (v == "join") {
      Print(host.Join());
    } else if (v == "start") {
      host.Start(a);
      std::puts("started");
    } else if (v == "profile") {
      std::puts(host.Profile() ? "took" : "no time");
    } else if (v == "mask") {
      std::puts(host.Mask() ? "masked" : "not masked");
    } else if (v == "kernel") {
      std::printf("%" PRIu64 "\n", host.kernel());
    } else if (v == "time") {
      std::printf("%.1f\n", host.Time(a));
    } else {
      if (v == "load") {
        host.Load();
      } else if (v == "unload") {
        host.Unload();
      } else if (v == "forget") {
        host.Forget();
      } else if (v == "queue") {
        host.AddQueue();
      } else if (v == "drop") {
        host.DropQueue();
      } else if (v == "shutdown") {
        host.ShutDown();
        host.Begin();
      } else {
        std::puts("FAIL unknown command");
        return 1;
      }
      std::puts("ok");
    }
    std::fflush(stdout);
  }
  return 0;
}
