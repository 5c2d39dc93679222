// See driver.h.
#include "tests/softgpu/thunk/driver.h"

#include <hsa/amd_hsa_queue.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "tests/softgpu/thunk/log.h"

namespace softgpu {
namespace {

constexpr uint64_t kPage = 4096;

// The trap handler finds a queue by bits 3 to 12 of its doorbell's address, so
// the doorbells' 8 KB are aligned to their size.
constexpr uint64_t kDoorbellBytes = 8192;

void* MapPages(uint64_t size, uint64_t align) {
  void* raw =
      mmap(nullptr, size + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uint64_t begin = reinterpret_cast<uint64_t>(raw);
  return reinterpret_cast<void*>((begin + align - 1) / align * align);
}

// Half of the host's memory, at most 16 GB, in whole 2 MB pages.
uint64_t VramBytes() {
  const uint64_t host =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(host / 2, uint64_t{16} << 30) & ~((uint64_t{2} << 20) - 1);
}

const char* Env(const char* name, const char* fallback) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

uint64_t GpuClock() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
  return ns / (1000000000 / kGpuClockHz);
}

std::unique_ptr<Driver> Driver::Create() {
  const char* target = Env("SOFTGPU_TARGET", "gfx90a");
  const GpuModel* model = FindGpuModel(target);
  if (model == nullptr) {
    Complain("SOFTGPU_TARGET=%s is not a GPU this driver can pose as; known: %s", target,
             GpuModelNames().c_str());
    return nullptr;
  }
  const char* seed_text = Env("SOFTGPU_SEED", "0");
  char* end = nullptr;
  errno = 0;
  const uint64_t seed = strtoull(seed_text, &end, 0);
  if (errno != 0 || *end != '\0') {
    Complain("SOFTGPU_SEED=%s is not a number", seed_text);
    return nullptr;
  }
  const uint64_t vram = VramBytes();
  void* doorbells = MapPages(kDoorbellBytes, kDoorbellBytes);
  void* mmio = MapPages(kPage, kPage);
  if (doorbells == nullptr || mmio == nullptr) {
    Complain("no memory for the doorbells");
    return nullptr;
  }
  // Mailboxes are ordinary GPU-visible memory: SDMA queues write them.
  void* mailboxes = MapPages(Events::kMaxEvents * sizeof(uint64_t), kPage);
  if (mailboxes == nullptr) {
    Complain("no memory for the event mailboxes");
    return nullptr;
  }
  std::unique_ptr<Driver> driver(new Driver(*model, seed, vram, static_cast<uint64_t*>(mailboxes),
                                            doorbells, mmio, Env("SOFTGPU_COUNTS", "")));
  driver->address_space()->Register(mailboxes, Events::kMaxEvents * sizeof(uint64_t), {});
  driver->address_space()->Map(mailboxes, Events::kMaxEvents * sizeof(uint64_t));
  Log("%s, seed %lu, %lu MB of memory", model->name, seed, vram >> 20);
  return driver;
}

Driver::Driver(const GpuModel& model, uint64_t seed, uint64_t vram_bytes, uint64_t* mailboxes,
               void* doorbells, void* mmio_page, const std::string& counts_path)
    : model_(model),
      seed_(seed),
      vram_bytes_(vram_bytes),
      address_space_(vram_bytes),
      events_(mailboxes),
      counts_(counts_path, model.name, &address_space_),
      doorbells_(static_cast<std::atomic<uint64_t>*>(doorbells)),
      mmio_page_(mmio_page) {}

HSAKMT_STATUS Driver::CreateQueue(HSA_QUEUE_TYPE type, void* ring, uint64_t size,
                                  HsaQueueResource* resource) {
  if (ring == nullptr || size == 0 || (size & (size - 1)) != 0) {
    return HSAKMT_STATUS_INVALID_PARAMETER;
  }
  const bool aql = type == HSA_QUEUE_COMPUTE_AQL;
  if (!aql && type != HSA_QUEUE_SDMA) {
    Complain("not implemented: queue of type %d", static_cast<int>(type));
    return HSAKMT_STATUS_NOT_SUPPORTED;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  bool* slot = std::find(doorbell_used_, doorbell_used_ + kDoorbells, false);
  if (slot == doorbell_used_ + kDoorbells) return HSAKMT_STATUS_OUT_OF_RESOURCES;
  QueueEntry entry;
  entry.doorbell = static_cast<uint32_t>(slot - doorbell_used_);
  const uint64_t id = next_queue_++;
  std::atomic<uint64_t>* doorbell = doorbells_ + entry.doorbell;
  if (aql) {
    const uint64_t amd_queue = resource->QueueRptrValue - offsetof(amd_queue_t, read_dispatch_id);
    entry.queue = MakeAqlQueue(this, id, doorbell, ring, size, amd_queue);
  } else {
    entry.pointers = std::make_unique<SdmaPointers>();
    resource->QueueRptrValue = reinterpret_cast<uint64_t>(&entry.pointers->read);
    resource->QueueWptrValue = reinterpret_cast<uint64_t>(&entry.pointers->write);
    entry.queue = MakeSdmaQueue(this, id, doorbell, ring, size, &entry.pointers->read,
                                &entry.pointers->write);
  }
  *slot = true;
  resource->QueueId = id;
  resource->QueueDoorBell = reinterpret_cast<uint64_t>(doorbell);
  entry.queue->Start();
  queues_[id] = std::move(entry);
  Log("queue %lu: %s, %lu bytes", id, aql ? "AQL" : "SDMA", size);
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS Driver::DestroyQueue(HSA_QUEUEID id) {
  QueueEntry entry;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = queues_.find(id);
    if (it == queues_.end()) return HSAKMT_STATUS_INVALID_HANDLE;
    entry = std::move(it->second);
    queues_.erase(it);
  }
  entry.queue->Stop();  // outside the lock: the queue may be in a long kernel
  std::lock_guard<std::mutex> lock(mutex_);
  doorbell_used_[entry.doorbell] = false;
  Log("queue %lu: destroyed", id);
  return HSAKMT_STATUS_SUCCESS;
}

HSAKMT_STATUS Driver::UpdateQueue(HSA_QUEUEID id, uint32_t percentage) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = queues_.find(id);
  if (it == queues_.end()) return HSAKMT_STATUS_INVALID_HANDLE;
  it->second.queue->SetSuspended(percentage == 0);
  return HSAKMT_STATUS_SUCCESS;
}

bool Driver::HasQueue(HSA_QUEUEID id) {
  std::lock_guard<std::mutex> lock(mutex_);
  return queues_.count(id) != 0;
}

std::unique_ptr<Machine> Driver::NewMachine(Memory* memory) {
  std::string error;
  std::unique_ptr<Machine> machine = Machine::Create(model_.name, seed_, memory, &error);
  if (machine == nullptr) Complain("no interpreter for %s: %s", model_.name, error.c_str());
  return machine;
}

}  // namespace softgpu
