// The soft GPU's driver, seen through the unmodified ROCR: enumeration, memory,
// queues, copies, faults, several processes. Every test runs in processes of
// its own, so that each starts with a fresh runtime and may bring it down.
//
// SOFTGPU_TARGET picks the GPU; the kernels are in driver_test_kernels.cl.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kLongWait = UINT64_MAX;

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                                    \
    }                                                                              \
  } while (false)
#define REQUIRE_OK(call) REQUIRE((call) == HSA_STATUS_SUCCESS)

std::string Target() {
  const char* target = getenv("SOFTGPU_TARGET");
  return target != nullptr ? target : "gfx90a";
}

std::string KernelFile() {
  return std::string(RJDBI_BINARY_DIR) + "/softgpu/driver_test_kernels_" + Target() + ".co";
}

struct Pools {
  hsa_amd_memory_pool_t kernarg = {}, fine = {}, coarse = {};
};

hsa_status_t TakePool(hsa_amd_memory_pool_t pool, void* data) {
  auto* pools = static_cast<Pools*>(data);
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) {
    pools->kernarg = pool;
  } else if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED) {
    pools->fine = pool;
  } else {
    pools->coarse = pool;
  }
  return HSA_STATUS_SUCCESS;
}

std::atomic<int> g_queue_status{0};
void OnQueueError(hsa_status_t status, hsa_queue_t*, void*) { g_queue_status = status; }

// The GPU with a queue and the test kernels loaded.
class Gpu {
 public:
  Gpu() {
    REQUIRE_OK(hsa_init());
    REQUIRE_OK(hsa_iterate_agents(TakeAgent, this));
    REQUIRE(gpu_.handle != 0 && cpu_.handle != 0);
    REQUIRE_OK(hsa_amd_agent_iterate_memory_pools(cpu_, TakePool, &host_));
    REQUIRE_OK(hsa_amd_agent_iterate_memory_pools(gpu_, TakePool, &device_));
    queue_ = NewQueue();
    Load();
  }

  hsa_agent_t gpu() const { return gpu_; }
  hsa_agent_t cpu() const { return cpu_; }
  hsa_queue_t* queue() const { return queue_; }

  hsa_queue_t* NewQueue() {
    hsa_queue_t* queue = nullptr;
    REQUIRE_OK(hsa_queue_create(gpu_, 64, HSA_QUEUE_TYPE_MULTI, OnQueueError, nullptr, UINT32_MAX,
                                UINT32_MAX, &queue));
    return queue;
  }

  // Zeroed memory that both sides may use; on the GPU if `device`.
  template <typename T>
  T* Allocate(size_t n, bool device = false) {
    void* memory = nullptr;
    const hsa_amd_memory_pool_t pool = device ? device_.coarse : host_.kernarg;
    const hsa_agent_t agents[] = {cpu_, gpu_};
    REQUIRE_OK(hsa_amd_memory_pool_allocate(pool, n * sizeof(T), 0, &memory));
    REQUIRE_OK(hsa_amd_agents_allow_access(2, agents, nullptr, memory));
    std::memset(memory, 0, n * sizeof(T));
    return static_cast<T*>(memory);
  }

  static hsa_signal_t Signal(int64_t value) {
    hsa_signal_t signal;
    REQUIRE_OK(hsa_signal_create(value, 0, nullptr, &signal));
    return signal;
  }

  static void Wait(hsa_signal_t signal) {
    REQUIRE(hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, kLongWait,
                                      HSA_WAIT_STATE_BLOCKED) == 0);
  }

  // Puts a packet (64 bytes) into the queue and rings.
  template <typename Packet>
  static void Submit(hsa_queue_t* queue, const Packet& packet, uint16_t header) {
    static_assert(sizeof(Packet) == 64);
    const uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
    char* slot = static_cast<char*>(queue->base_address) + index % queue->size * 64;
    std::memcpy(slot + 2, reinterpret_cast<const char*>(&packet) + 2, 62);
    __atomic_store_n(reinterpret_cast<uint16_t*>(slot), header, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, static_cast<int64_t>(index));
  }

  // Starts a kernel of one-dimensional groups of 64; the signal falls to 0 at
  // its end.
  template <typename Arguments>
  hsa_signal_t Launch(const char* name, const Arguments& arguments, uint32_t items,
                      hsa_queue_t* queue = nullptr) {
    auto* memory = Allocate<Arguments>(1);
    *memory = arguments;
    hsa_kernel_dispatch_packet_t packet = Packet(name, memory, items);
    packet.completion_signal = Signal(1);
    Submit(queue != nullptr ? queue : queue_, packet,
           HSA_PACKET_TYPE_KERNEL_DISPATCH | 1 << HSA_PACKET_HEADER_BARRIER);
    return packet.completion_signal;
  }

  hsa_kernel_dispatch_packet_t Packet(const char* name, void* arguments, uint32_t items) {
    hsa_executable_symbol_t symbol;
    REQUIRE_OK(hsa_executable_get_symbol_by_name(executable_, (std::string(name) + ".kd").c_str(),
                                                 &gpu_, &symbol));
    hsa_kernel_dispatch_packet_t packet = {};
    hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT,
                                   &packet.kernel_object);
    hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE,
                                   &packet.private_segment_size);
    packet.setup = 1;
    packet.workgroup_size_x = 64;
    packet.workgroup_size_y = packet.workgroup_size_z = 1;
    packet.grid_size_x = items;
    packet.grid_size_y = packet.grid_size_z = 1;
    packet.kernarg_address = arguments;
    return packet;
  }

  // The status that the queue's error callback gets.
  static int QueueError() {
    for (int i = 0; i < 5000 && g_queue_status == 0; ++i) usleep(1000);
    return g_queue_status;
  }

 private:
  static hsa_status_t TakeAgent(hsa_agent_t agent, void* data) {
    auto* self = static_cast<Gpu*>(data);
    hsa_device_type_t type;
    hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
    (type == HSA_DEVICE_TYPE_GPU ? self->gpu_ : self->cpu_) = agent;
    return HSA_STATUS_SUCCESS;
  }

  void Load() {
    std::ifstream file(KernelFile(), std::ios::binary);
    code_.assign(std::istreambuf_iterator<char>(file), {});
    REQUIRE(!code_.empty());
    hsa_code_object_reader_t reader;
    REQUIRE_OK(hsa_code_object_reader_create_from_memory(code_.data(), code_.size(), &reader));
    REQUIRE_OK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                         nullptr, &executable_));
    REQUIRE_OK(hsa_executable_load_agent_code_object(executable_, gpu_, reader, nullptr, nullptr));
    REQUIRE_OK(hsa_executable_freeze(executable_, nullptr));
  }

  hsa_agent_t gpu_ = {}, cpu_ = {};
  Pools host_, device_;
  hsa_queue_t* queue_ = nullptr;
  std::vector<char> code_;
  hsa_executable_t executable_ = {};
};

// Runs the body in a process of its own; it passes if the body returns.
template <typename Body>
void InProcess(Body body) {
  EXPECT_EXIT(
      {
        alarm(60);
        body();
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DriverTest, Enumeration) {
  InProcess([] {
    const Gpu gpu;
    char name[64] = {};
    uint32_t wavefront = 0, units = 0;
    REQUIRE_OK(hsa_agent_get_info(gpu.gpu(), HSA_AGENT_INFO_NAME, name));
    REQUIRE(name == Target());
    REQUIRE_OK(hsa_agent_get_info(gpu.gpu(), HSA_AGENT_INFO_WAVEFRONT_SIZE, &wavefront));
    REQUIRE(wavefront == (Target() == "gfx1030" ? 32 : 64));
    REQUIRE_OK(hsa_agent_get_info(
        gpu.gpu(), static_cast<hsa_agent_info_t>(HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT), &units));
    REQUIRE(units == 8);
  });
}

TEST_F(DriverTest, UnknownTargetIsAnError) {
  EXPECT_EXIT(
      {
        setenv("SOFTGPU_TARGET", "gfx999", 1);
        _exit(hsa_init() == HSA_STATUS_SUCCESS ? 0 : 3);
      },
      testing::ExitedWithCode(3), "SOFTGPU_TARGET=gfx999.*known:.*gfx90a");
}

TEST_F(DriverTest, RunsAKernelAgainAfterShutDown) {
  InProcess([] {
    for (int round = 0; round < 2; ++round) {
      Gpu gpu;
      auto* out = gpu.Allocate<uint32_t>(256);
      Gpu::Wait(gpu.Launch("store_ids", out, 256));
      for (uint32_t i = 0; i < 256; ++i) REQUIRE(out[i] == i);
      REQUIRE_OK(hsa_shut_down());
    }
  });
}

TEST_F(DriverTest, ManyPacketsWrapTheQueue) {
  InProcess([] {
    Gpu gpu;
    auto* out = gpu.Allocate<uint32_t>(64);
    auto* arguments = gpu.Allocate<uint32_t*>(1);
    *arguments = out;
    const hsa_signal_t done = Gpu::Signal(200);
    for (int i = 0; i < 200; ++i) {
      while (hsa_queue_load_write_index_relaxed(gpu.queue()) -
                 hsa_queue_load_read_index_scacquire(gpu.queue()) >=
             gpu.queue()->size) {
        usleep(100);
      }
      hsa_kernel_dispatch_packet_t packet = gpu.Packet("store_ids", arguments, 64);
      packet.completion_signal = done;
      Gpu::Submit(gpu.queue(), packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
    }
    Gpu::Wait(done);
    REQUIRE(out[63] == 63);
  });
}

TEST_F(DriverTest, BarriersWaitForSignals) {
  InProcess([] {
    Gpu gpu;
    hsa_barrier_and_packet_t both = {};
    both.dep_signal[0] = Gpu::Signal(1);
    both.dep_signal[3] = Gpu::Signal(1);
    both.completion_signal = Gpu::Signal(1);
    Gpu::Submit(gpu.queue(), both, HSA_PACKET_TYPE_BARRIER_AND);
    hsa_barrier_or_packet_t either = {};
    either.dep_signal[1] = Gpu::Signal(1);
    either.dep_signal[2] = Gpu::Signal(1);
    either.completion_signal = Gpu::Signal(1);
    Gpu::Submit(gpu.queue(), either, HSA_PACKET_TYPE_BARRIER_OR);
    hsa_amd_barrier_value_packet_t value = {};
    value.header.AmdFormat = HSA_AMD_PACKET_TYPE_BARRIER_VALUE;
    value.signal = Gpu::Signal(0);
    value.mask = 0xff;
    value.value = 7;
    value.cond = HSA_SIGNAL_CONDITION_GTE;
    value.completion_signal = Gpu::Signal(1);
    Gpu::Submit(gpu.queue(), value, HSA_PACKET_TYPE_VENDOR_SPECIFIC);

    hsa_signal_store_screlease(both.dep_signal[0], 0);
    usleep(20000);
    REQUIRE(hsa_signal_load_relaxed(both.completion_signal) == 1);
    hsa_signal_store_screlease(both.dep_signal[3], 0);
    Gpu::Wait(both.completion_signal);
    usleep(20000);
    REQUIRE(hsa_signal_load_relaxed(either.completion_signal) == 1);
    hsa_signal_store_screlease(either.dep_signal[2], 0);
    Gpu::Wait(either.completion_signal);
    hsa_signal_store_screlease(value.signal, 0x106);  // 6 under the mask
    usleep(20000);
    REQUIRE(hsa_signal_load_relaxed(value.completion_signal) == 1);
    hsa_signal_store_screlease(value.signal, 0x107);
    Gpu::Wait(value.completion_signal);
  });
}

TEST_F(DriverTest, QueuesRunSideBySide) {
  InProcess([] {
    Gpu gpu;
    auto* flag = gpu.Allocate<uint32_t>(1);
    auto* out = gpu.Allocate<uint32_t>(64);
    const hsa_signal_t spinning = gpu.Launch("spin", flag, 64);
    Gpu::Wait(gpu.Launch("store_ids", out, 64, gpu.NewQueue()));
    REQUIRE(hsa_signal_load_relaxed(spinning) == 1);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    Gpu::Wait(spinning);
  });
}

TEST_F(DriverTest, DestroyingAQueueEndsItsKernel) {
  InProcess([] {
    Gpu gpu;
    auto* flag = gpu.Allocate<uint32_t>(1);
    hsa_queue_t* queue = gpu.NewQueue();
    gpu.Launch("spin", flag, 64, queue);
    usleep(50000);
    REQUIRE_OK(hsa_queue_destroy(queue));
  });
}

TEST_F(DriverTest, ProfilingTimesAreOrdered) {
  InProcess([] {
    Gpu gpu;
    REQUIRE_OK(hsa_amd_profiling_set_profiler_enabled(gpu.queue(), 1));
    auto* out = gpu.Allocate<uint32_t>(6400);
    uint64_t before = 0, after = 0;
    hsa_system_get_info(HSA_SYSTEM_INFO_TIMESTAMP, &before);
    const hsa_signal_t done = gpu.Launch("store_ids", out, 6400);
    Gpu::Wait(done);
    hsa_system_get_info(HSA_SYSTEM_INFO_TIMESTAMP, &after);
    hsa_amd_profiling_dispatch_time_t time = {};
    REQUIRE_OK(hsa_amd_profiling_get_dispatch_time(gpu.gpu(), done, &time));
    constexpr uint64_t kClockError = 100000;  // ns: translation between the clocks
    REQUIRE(time.start < time.end);
    REQUIRE(before < time.start + kClockError && time.end < after + kClockError);
  });
}

TEST_F(DriverTest, CopiesOfEverySize) {
  InProcess([] {
    Gpu gpu;
    for (size_t size : {1u, 3u, 64u, 4097u, 1u << 20, (9u << 20) + 5}) {
      auto* from = gpu.Allocate<uint8_t>(size);
      auto* device = gpu.Allocate<uint8_t>(size, true);
      auto* to = gpu.Allocate<uint8_t>(size);
      for (size_t i = 0; i < size; ++i) from[i] = static_cast<uint8_t>(i * 31 + i / 251);
      const hsa_signal_t up = Gpu::Signal(1), down = Gpu::Signal(1);
      REQUIRE_OK(
          hsa_amd_memory_async_copy(device, gpu.gpu(), from, gpu.cpu(), size, 0, nullptr, up));
      REQUIRE_OK(hsa_amd_memory_async_copy(to, gpu.cpu(), device, gpu.gpu(), size, 1, &up, down));
      Gpu::Wait(down);
      REQUIRE(std::memcmp(from, to, size) == 0);
    }
  });
}

TEST_F(DriverTest, RectangularCopy) {
  InProcess([] {
    Gpu gpu;
    constexpr uint32_t kPitch = 256, kRows = 20, kLayers = 3;
    constexpr size_t kSize = kPitch * kRows * kLayers;
    auto* from = gpu.Allocate<uint8_t>(kSize);
    auto* to = gpu.Allocate<uint8_t>(kSize, true);
    for (size_t i = 0; i < kSize; ++i) from[i] = static_cast<uint8_t>(1 + i % 199);
    const hsa_pitched_ptr_t source = {from, kPitch, kPitch * kRows};
    const hsa_pitched_ptr_t target = {to, kPitch, kPitch * kRows};
    const hsa_dim3_t source_at = {5, 2, 0}, target_at = {9, 4, 1}, range = {70, 11, 2};
    const hsa_signal_t done = Gpu::Signal(1);
    REQUIRE_OK(hsa_amd_memory_async_copy_rect(&target, &target_at, &source, &source_at, &range,
                                              gpu.gpu(), hsaHostToDevice, 0, nullptr, done));
    Gpu::Wait(done);
    for (uint32_t z = 0; z < kLayers; ++z) {
      for (uint32_t y = 0; y < kRows; ++y) {
        for (uint32_t x = 0; x < kPitch; ++x) {
          const bool inside = x >= 9 && x < 79 && y >= 4 && y < 15 && z >= 1;
          const uint8_t want =
              inside ? from[((z - 1) * kRows + y - 2) * kPitch + x - 4] : uint8_t{0};
          REQUIRE(to[(z * kRows + y) * kPitch + x] == want);
        }
      }
    }
  });
}

TEST_F(DriverTest, Fill) {
  InProcess([] {
    Gpu gpu;
    auto* memory = gpu.Allocate<uint32_t>(10001, true);
    REQUIRE_OK(hsa_amd_memory_fill(memory, 0xdeadbeef, 10000));
    REQUIRE(memory[0] == 0xdeadbeef && memory[9999] == 0xdeadbeef && memory[10000] == 0);
  });
}

TEST_F(DriverTest, ScratchGrowsOnDemand) {
  InProcess([] {
    Gpu gpu;
    struct {
      uint32_t* out;
      uint32_t rounds;
    } arguments = {gpu.Allocate<uint32_t>(64), 50};
    Gpu::Wait(gpu.Launch("private_array", arguments, 64));
    for (uint32_t lane = 0; lane < 64; ++lane) {
      uint32_t slots[40];
      for (uint32_t i = 0; i < 40; ++i) slots[i] = i * lane;
      uint32_t at = lane % 40;
      for (uint32_t i = 0; i < 50; ++i) {
        slots[at] += i;
        at = (at + slots[at]) % 40;
      }
      REQUIRE(arguments.out[lane] == slots[at] + at);
    }
  });
}

TEST_F(DriverTest, HostMemoryMustBeLocked) {
  InProcess([] {
    Gpu gpu;
    std::vector<uint32_t> memory(4096);
    void* for_gpu = nullptr;
    REQUIRE_OK(hsa_amd_memory_lock(memory.data(), memory.size() * 4, nullptr, 0, &for_gpu));
    Gpu::Wait(gpu.Launch("store_ids", for_gpu, 4096));
    REQUIRE(memory[4095] == 4095);
    REQUIRE_OK(hsa_amd_memory_unlock(memory.data()));
  });
  EXPECT_EXIT(
      {
        Gpu gpu;
        std::vector<uint32_t> memory(1 << 20);  // a mapping of its own: no page shared
        gpu.Launch("poke", &memory[1 << 19], 1);
        usleep(5000000);
        _exit(0);
      },
      testing::KilledBySignal(SIGABRT), "memory fault: write of");
}

TEST_F(DriverTest, IllegalInstructionStopsTheQueue) {
  EXPECT_EXIT(
      {
        Gpu gpu;
        gpu.Launch("illegal", gpu.Allocate<uint32_t>(1), 64);
        REQUIRE(Gpu::QueueError() == static_cast<int>(HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION));
        _exit(0);
      },
      testing::ExitedWithCode(0), "illegal instruction at pc");
}

TEST_F(DriverTest, TrapStopsTheQueue) {
  InProcess([] {
    Gpu gpu;
    gpu.Launch("trap", gpu.Allocate<uint32_t>(1), 64);
    REQUIRE(Gpu::QueueError() == HSA_STATUS_ERROR_EXCEPTION);
  });
}

TEST_F(DriverTest, ApertureViolationStopsTheQueue) {
  InProcess([] {
    Gpu gpu;
    gpu.Launch("poke", uint64_t{1} << 60, 1);
    REQUIRE(Gpu::QueueError() == static_cast<int>(HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION));
  });
}

TEST_F(DriverTest, InvalidPacketsStopTheQueue) {
  struct Case {
    void (*spoil)(hsa_kernel_dispatch_packet_t*);
    int status;
  };
  static const Case kCases[] = {
      {[](hsa_kernel_dispatch_packet_t* p) { p->setup = 0; },
       HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS},
      {[](hsa_kernel_dispatch_packet_t* p) { p->workgroup_size_x = 2000; },
       HSA_STATUS_ERROR_INVALID_ARGUMENT},
      {[](hsa_kernel_dispatch_packet_t* p) { p->group_segment_size = 1 << 20; },
       HSA_STATUS_ERROR_INVALID_ALLOCATION},
      {[](hsa_kernel_dispatch_packet_t* p) { p->kernel_object = 0; },
       HSA_STATUS_ERROR_INVALID_CODE_OBJECT},
  };
  for (const Case& c : kCases) {
    InProcess([&c] {
      Gpu gpu;
      hsa_kernel_dispatch_packet_t packet = gpu.Packet("illegal", gpu.Allocate<void*>(1), 64);
      c.spoil(&packet);
      Gpu::Submit(gpu.queue(), packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
      REQUIRE(Gpu::QueueError() == c.status);
    });
  }
}

TEST_F(DriverTest, SeveralProcessesAtOnce) {
  InProcess([] {
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        Gpu gpu;
        auto* out = gpu.Allocate<uint32_t>(640);
        Gpu::Wait(gpu.Launch("store_ids", out, 640));
        _exit(out[639] == 639 ? 0 : 1);
      }
      children.push_back(child);
    }
    for (pid_t child : children) {
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    }
  });
}

TEST_F(DriverTest, ForkedChildFailsInsteadOfHanging) {
  InProcess([] {
    Gpu gpu;
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      // Needs the driver, which the child has not opened.
      hsa_queue_t* queue = nullptr;
      const bool failed = hsa_queue_create(gpu.gpu(), 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr,
                                           UINT32_MAX, UINT32_MAX, &queue) != HSA_STATUS_SUCCESS;
      _exit(failed ? 7 : 8);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    // GPU memory is not inherited, so the child may also die of touching it.
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 7) ||
            (WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM));
    auto* out = gpu.Allocate<uint32_t>(64);
    Gpu::Wait(gpu.Launch("store_ids", out, 64));  // the parent is unharmed
    REQUIRE(out[63] == 63);
  });
}

// The journal names the kernel and counts its waves and lanes, also for a
// process that leaves by _exit.
TEST_F(DriverTest, CountsSurviveExit) {
  const std::string path = std::string(RJDBI_BINARY_DIR) + "/softgpu/driver_test_counts_" +
                           Target() + "_" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    setenv("SOFTGPU_COUNTS", path.c_str(), 1);
    Gpu gpu;
    auto* out = gpu.Allocate<uint32_t>(640);
    for (int i = 0; i < 3; ++i) Gpu::Wait(gpu.Launch("store_ids", out, 600));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ifstream file(path);
  std::string kernel, entry, line;
  int dispatches = 0;
  uint64_t waves = 0, lanes = 0;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string kind, id, code, descriptor, at, name;
    fields >> kind >> id;
    if (kind == "kernel" && line.find(" name=store_ids") != std::string::npos) {
      kernel = id;
      fields >> code >> descriptor >> at >> name;
      entry = at.substr(std::strlen("entry="));
    } else if (kind == "dispatch" && id == kernel) {
      ++dispatches;
      EXPECT_NE(line.find("grid=600,1,1 workgroup=64,1,1"), std::string::npos) << line;
    } else if (kind == "pc" && id == kernel) {
      uint64_t w = 0, l = 0;
      fields >> code >> at >> w >> l;
      if (at != entry) continue;
      waves += w;
      lanes += l;
    }
  }
  unlink(path.c_str());
  EXPECT_EQ(dispatches, 3);
  const uint64_t per_dispatch = Target() == "gfx1030" ? 19 : 10;  // waves of 32 or 64
  EXPECT_EQ(waves, 3 * per_dispatch);
  EXPECT_EQ(lanes, 3 * 600);
}

}  // namespace
