// Allocation, registration and mapping; see address_space.h.
#include "tests/softgpu/thunk/address_space.h"

#include <sys/mman.h>

#include <algorithm>

#include "tests/softgpu/thunk/log.h"

namespace softgpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2 << 20;

uint64_t AlignUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Reserves size bytes aligned to `align`, committed as they are touched. Like
// the kernel driver's mappings they are not inherited over fork().
void* MapAligned(uint64_t size, uint64_t align) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* raw = mmap(nullptr, size + align, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uint64_t begin = reinterpret_cast<uint64_t>(raw);
  const uint64_t aligned = AlignUp(begin, align);
  if (aligned > begin) munmap(raw, aligned - begin);
  const uint64_t tail = begin + size + align - (aligned + size);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + size), tail);
  return reinterpret_cast<void*>(aligned);
}

void* MapFixed(void* address, uint64_t size) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* got = mmap(address, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  if (got != address) {  // kernels without MAP_FIXED_NOREPLACE take it as a hint
    munmap(got, size);
    return nullptr;
  }
  return got;
}

bool Contains(const Allocation& a, uint64_t address) {
  return address >= a.base && address - a.base < a.size;
}

}  // namespace

HSAKMT_STATUS AddressSpace::Allocate(uint32_t node, uint64_t size, HsaMemFlags flags,
                                     void** address) {
  if (size == 0) return HSAKMT_STATUS_INVALID_PARAMETER;
  if (flags.ui32.GDSMemory || flags.ui32.ReadOnly) {
    Complain("not implemented: AllocMemory of %s",
             flags.ui32.GDSMemory ? "GDS memory" : "read-only memory");
    return HSAKMT_STATUS_NOT_SUPPORTED;
  }
  size = AlignUp(size, kPage);
  const bool vram = node != 0 && !flags.ui32.Scratch;
  std::lock_guard<std::mutex> lock(mutex_);
  if (vram && vram_used_ + size > vram_bytes_) return HSAKMT_STATUS_NO_MEMORY;
  const bool large = size >= kHugePage || flags.ui32.Scratch;
  void* memory = flags.ui32.FixedAddress ? MapFixed(*address, size)
                                         : MapAligned(size, large ? kHugePage : kPage);
  if (memory == nullptr) return HSAKMT_STATUS_NO_MEMORY;
  madvise(memory, size, MADV_DONTFORK);
  Allocation a;
  a.base = reinterpret_cast<uint64_t>(memory);
  a.size = size;
  a.flags = flags;
  a.node = node;
  a.serial = next_serial_++;
  if (vram) vram_used_ += size;
  owned_[a.base] = std::move(a);
  *address = memory;
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS AddressSpace::Free(void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = owned_.find(reinterpret_cast<uint64_t>(address));
  if (it == owned_.end()) return HSAKMT_STATUS_INVALID_PARAMETER;
  const uint64_t size = it->second.size;
  if (it->second.node != 0 && !it->second.flags.ui32.Scratch) vram_used_ -= size;
  owned_.erase(it);
  Changed();
  munmap(address, size);
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS AddressSpace::Register(void* address, uint64_t size, HsaMemFlags flags) {
  if (address == nullptr || size == 0) return HSAKMT_STATUS_INVALID_PARAMETER;
  std::lock_guard<std::mutex> lock(mutex_);
  Allocation a;
  a.base = reinterpret_cast<uint64_t>(address);
  a.size = size;
  a.flags = flags;
  a.user = true;
  a.serial = next_serial_++;
  registered_.emplace(a.base, std::move(a));
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS AddressSpace::Deregister(void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto range = registered_.equal_range(reinterpret_cast<uint64_t>(address));
  if (range.first == range.second) return HSAKMT_STATUS_MEMORY_NOT_REGISTERED;
  registered_.erase(std::prev(range.second));  // the latest registration
  Changed();
  return HSAKMT_STATUS_SUCCESS;
}

Allocation* AddressSpace::FindLocked(uint64_t address) {
  auto it = owned_.upper_bound(address);
  if (it != owned_.begin() && Contains(std::prev(it)->second, address)) {
    return &std::prev(it)->second;
  }
  // Registrations may overlap, so the nearest below need not be the one.
  for (auto r = registered_.upper_bound(address); r != registered_.begin();) {
    --r;
    if (Contains(r->second, address)) return &r->second;
  }
  return nullptr;
}

HSAKMT_STATUS AddressSpace::Map(void* address, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t base = reinterpret_cast<uint64_t>(address);
  Allocation* a = FindLocked(base);
  if (a == nullptr) return HSAKMT_STATUS_INVALID_PARAMETER;
  if (a->flags.ui32.Scratch && !a->user) {
    if (base + size > a->base + a->size) return HSAKMT_STATUS_INVALID_PARAMETER;
    a->mapped_parts[base] = size;
  } else {
    a->mapped = true;
  }
  Changed();
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS AddressSpace::Unmap(void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t base = reinterpret_cast<uint64_t>(address);
  Allocation* a = FindLocked(base);
  if (a == nullptr) return HSAKMT_STATUS_INVALID_PARAMETER;
  if (a->flags.ui32.Scratch && !a->user) {
    a->mapped_parts.erase(base);
  } else {
    a->mapped = false;
  }
  Changed();
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS AddressSpace::SetUserData(const void* address, void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  Allocation* a = FindLocked(reinterpret_cast<uint64_t>(address));
  if (a == nullptr) return HSAKMT_STATUS_ERROR;
  a->user_data = data;
  return HSAKMT_STATUS_SUCCESS;
}

std::optional<Allocation> AddressSpace::Find(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Allocation* a = FindLocked(address);
  if (a == nullptr) return std::nullopt;
  return *a;
}

void AddressSpace::Rebuild() {
  std::vector<Interval> all;
  auto add = [&all](const Allocation& a) {
    for (const auto& [base, size] : a.mapped_parts) all.push_back({base, base + size});
    if (!a.mapped) return;
    all.push_back({a.base / kPage * kPage, AlignUp(a.base + a.size, kPage)});
  };
  for (const auto& [base, a] : owned_) add(a);
  for (const auto& [base, a] : registered_) add(a);
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  intervals_.clear();
  for (const Interval& i : all) {
    if (!intervals_.empty() && i.begin <= intervals_.back().end) {
      intervals_.back().end = std::max(intervals_.back().end, i.end);
    } else {
      intervals_.push_back(i);
    }
  }
  built_ = Generation();
}

std::optional<Interval> AddressSpace::Accessible(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (built_ != Generation()) Rebuild();
  auto it = std::upper_bound(intervals_.begin(), intervals_.end(), address,
                             [](uint64_t a, const Interval& i) { return a < i.begin; });
  if (it == intervals_.begin()) return std::nullopt;
  --it;
  if (address >= it->end) return std::nullopt;
  return *it;
}

bool QueueMemory::Check(uint64_t address, uint64_t size, bool write) {
  static_cast<void>(write);  // no read-only mappings
  if (abandon_->load(std::memory_order_relaxed)) return false;
  const uint64_t generation = space_->Generation();
  if (generation != generation_) {
    recent_ = {};
    generation_ = generation;
  }
  for (const Interval& i : recent_) {
    if (address >= i.begin && address < i.end) return size <= i.end - address;
  }
  const std::optional<Interval> found = space_->Accessible(address);
  if (!found) return false;
  recent_[next_++ % recent_.size()] = *found;
  return size <= found->end - address;
}

}  // namespace softgpu
