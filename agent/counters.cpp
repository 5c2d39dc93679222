// Choosing a memory pool and living in it; see counters.h.
#include "agent/counters.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "agent/ring_reader.h"

namespace rjdbi::agent {
namespace {

struct Pool {
  hsa_agent_t owner;
  bool owner_is_gpu;
  hsa_amd_memory_pool_t pool;
};

struct Topology {
  const HelperCalls* hsa;
  hsa_agent_t current{};
  bool current_is_gpu = false;
  std::vector<hsa_agent_t> cpus;
  std::vector<Pool> pools;
};

hsa_status_t VisitPool(hsa_amd_memory_pool_t pool, void* data) {
  auto* topology = static_cast<Topology*>(data);
  try {
    topology->pools.push_back({topology->current, topology->current_is_gpu, pool});
  } catch (const std::exception&) {
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t VisitAgent(hsa_agent_t agent, void* data) {
  auto* topology = static_cast<Topology*>(data);
  hsa_device_type_t type;
  if (topology->hsa->hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type) !=
      HSA_STATUS_SUCCESS) {
    return HSA_STATUS_SUCCESS;
  }
  topology->current = agent;
  topology->current_is_gpu = type == HSA_DEVICE_TYPE_GPU;
  try {
    if (type == HSA_DEVICE_TYPE_CPU) topology->cpus.push_back(agent);
  } catch (const std::exception&) {
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  topology->hsa->hsa_amd_agent_iterate_memory_pools(agent, &VisitPool, data);
  return HSA_STATUS_SUCCESS;
}

template <typename T>
bool PoolInfo(const HelperCalls& hsa, hsa_amd_memory_pool_t pool, hsa_amd_memory_pool_info_t what,
              T* value) {
  return hsa.hsa_amd_memory_pool_get_info(pool, what, value) == HSA_STATUS_SUCCESS;
}

// Global, fine-grained, allocatable, large enough.
bool IsFineGrained(const HelperCalls& hsa, hsa_amd_memory_pool_t pool, size_t bytes,
                   bool* for_kernargs) {
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  bool allocatable = false;
  size_t largest = 0;
  if (!PoolInfo(hsa, pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment) ||
      segment != HSA_AMD_SEGMENT_GLOBAL ||
      !PoolInfo(hsa, pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags) ||
      !PoolInfo(hsa, pool, HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, &allocatable) ||
      !PoolInfo(hsa, pool, HSA_AMD_MEMORY_POOL_INFO_SIZE, &largest)) {
    return false;
  }
  *for_kernargs = (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) != 0;
  return (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED) && allocatable && bytes <= largest;
}

bool MayAccess(const HelperCalls& hsa, hsa_agent_t agent, hsa_amd_memory_pool_t pool) {
  hsa_amd_memory_pool_access_t access = HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED;
  return hsa.hsa_amd_agent_memory_pool_get_info(agent, pool, HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS,
                                                &access) == HSA_STATUS_SUCCESS &&
         access != HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED;
}

// Every hop from the GPU to the pool carries coherent 64-bit atomics. `hops` is
// the distance, for choosing the nearest.
bool LinkCarriesAtomics(const HelperCalls& hsa, hsa_agent_t gpu, hsa_amd_memory_pool_t pool,
                        uint32_t* hops) {
  static constexpr uint32_t kMostHops = 16;
  *hops = 0;
  if (hsa.hsa_amd_agent_memory_pool_get_info(
          gpu, pool, HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS, hops) != HSA_STATUS_SUCCESS ||
      *hops == 0 || *hops > kMostHops) {
    return false;
  }
  hsa_amd_memory_pool_link_info_t links[kMostHops] = {};
  if (hsa.hsa_amd_agent_memory_pool_get_info(gpu, pool, HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO,
                                             links) != HSA_STATUS_SUCCESS) {
    return false;
  }
  for (uint32_t i = 0; i < *hops; ++i) {
    if (!links[i].atomic_support_64bit || !links[i].coherent_support) return false;
  }
  return true;
}

// Lower is better; negative is unsuitable.
int Rank(const HelperCalls& hsa, hsa_agent_t gpu, const Topology& topology, const Pool& pool,
         size_t bytes, bool host_reads_much) {
  static constexpr int kUnsuitable = -1;
  static constexpr int kAcrossTheBus = 50;
  bool for_kernargs = false;
  if (!IsFineGrained(hsa, pool.pool, bytes, &for_kernargs)) return kUnsuitable;
  if (pool.owner_is_gpu) {
    if (pool.owner.handle != gpu.handle) return kUnsuitable;
    for (hsa_agent_t cpu : topology.cpus) {
      if (MayAccess(hsa, cpu, pool.pool)) return host_reads_much ? kAcrossTheBus : 0;
    }
    return kUnsuitable;
  }
  uint32_t hops = 0;
  if (!MayAccess(hsa, gpu, pool.pool) || !LinkCarriesAtomics(hsa, gpu, pool.pool, &hops)) {
    return kUnsuitable;
  }
  // The kernarg pool is scarce where it is special: last.
  return static_cast<int>(hops) + (for_kernargs ? 100 : 0);
}

bool AllowAccess(const HelperCalls& hsa, hsa_agent_t gpu, const Topology& topology,
                 const Pool& pool, const void* memory) {
  std::vector<hsa_agent_t> agents{gpu};
  for (hsa_agent_t cpu : topology.cpus) {
    if (MayAccess(hsa, cpu, pool.pool)) agents.push_back(cpu);
  }
  return hsa.hsa_amd_agents_allow_access(static_cast<uint32_t>(agents.size()), agents.data(),
                                         nullptr, memory) == HSA_STATUS_SUCCESS;
}

}  // namespace

CounterBuffer CounterBuffer::Allocate(const HelperCalls& hsa, hsa_agent_t gpu,
                                      const BufferLayout& layout, std::string* why) {
  CounterBuffer buffer;
  if (!hsa.complete()) {
    *why = "the runtime lacks memory pool calls";
    return buffer;
  }
  const size_t bytes = layout.bytes();
  Topology topology;
  topology.hsa = &hsa;
  hsa.hsa_iterate_agents(&VisitAgent, &topology);
  const Pool* best = nullptr;
  int best_rank = 0;
  for (const Pool& pool : topology.pools) {
    int rank = Rank(hsa, gpu, topology, pool, bytes, layout.has_ring());
    if (rank >= 0 && (!best || rank < best_rank)) {
      best = &pool;
      best_rank = rank;
    }
  }
  if (!best) {
    *why = "no fine-grained memory that this GPU can update atomically and the host can read";
    return buffer;
  }
  void* memory = nullptr;
  if (hsa.hsa_amd_memory_pool_allocate(best->pool, bytes, 0, &memory) != HSA_STATUS_SUCCESS) {
    *why = "the memory pool refused " + std::to_string(bytes) + " bytes";
    return buffer;
  }
  if (!AllowAccess(hsa, gpu, topology, *best, memory)) {
    hsa.hsa_amd_memory_pool_free(memory);
    *why = "the GPU was not given access to the counter memory";
    return buffer;
  }
  std::memset(memory, 0, bytes);
  buffer.words_ = static_cast<uint64_t*>(memory);
  buffer.layout_ = layout;
  if (layout.has_ring()) RingReader::Format(buffer.ring(), layout.ring_half_bytes);
  buffer.free_ = hsa.hsa_amd_memory_pool_free;
  return buffer;
}

void CounterBuffer::Free() {
  if (words_ && free_) free_(words_);
  words_ = nullptr;
  layout_ = BufferLayout();
}

void* CounterBuffer::ring() const {
  if (!words_ || !layout_.has_ring()) return nullptr;
  return reinterpret_cast<char*>(words_) + layout_.ring_offset;
}

std::vector<uint64_t> CounterBuffer::Read() const {
  std::vector<uint64_t> values(count());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = __atomic_load_n(&words_[i], __ATOMIC_RELAXED);
  return values;
}

// mincore knows device mappings too, which reading through the kernel does not.
bool CounterBuffer::StillMapped() const {
  if (!words_) return true;
  static constexpr size_t kPagesAtOnce = 1024;
  unsigned char resident[kPagesAtOnce];
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  char* const words = reinterpret_cast<char*>(words_);
  char* const end = words + layout_.bytes();
  char* at = words - (reinterpret_cast<uintptr_t>(words) & (page - 1));
  while (at < end) {
    const size_t bytes = std::min(static_cast<size_t>(end - at), kPagesAtOnce * page);
    if (mincore(at, bytes, resident) != 0) return false;
    at += bytes;
  }
  return true;
}

void ApplyFixups(const std::vector<Fixup>& fixups, uint64_t counter_address,
                 uint64_t original_delta, OwnedBytes* image) {
  for (const Fixup& fixup : fixups) {
    const uint64_t base = IsOfOriginal(fixup.kind) ? original_delta : counter_address;
    const uint64_t address = base + fixup.addend;
    const auto word = static_cast<uint32_t>(IsHighHalf(fixup.kind) ? address >> 32 : address);
    std::memcpy(image->data() + fixup.file_offset, &word, sizeof word);
  }
}

}  // namespace rjdbi::agent
