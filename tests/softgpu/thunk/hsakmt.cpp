// The 42 functions that ROCR 5.2.3 imports from libhsakmt.so.1.
//
// State lives in one Driver per process, made by hsaKmtOpenKFD and never
// destroyed: HIP programs use the GPU until the very end of exit(). A forked
// child starts without one, as it does with the kernel driver: until it opens
// the device itself every call fails with KERNEL_IO_CHANNEL_NOT_OPENED.
#include <hsakmt.h>
#include <pthread.h>
#include <time.h>

#include <mutex>

#include "tests/softgpu/thunk/driver.h"
#include "tests/softgpu/thunk/log.h"
#include "tests/softgpu/thunk/topology.h"

#define SOFTGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace softgpu {
namespace {

// The kernel interface this corresponds to.
constexpr uint32_t kInterfaceMajor = 1, kInterfaceMinor = 6;

std::atomic<Driver*> g_driver{nullptr};
std::atomic<int> g_opened{0};
// Constant-initialised and trivially destroyed, so usable at any time.
pthread_mutex_t g_open_mutex = PTHREAD_MUTEX_INITIALIZER;

void ForgetParent() {
  g_driver.store(nullptr);  // leaked: its threads and locks stayed in the parent
  g_opened.store(0);
  g_open_mutex = PTHREAD_MUTEX_INITIALIZER;
}

// nullptr if the device is not open in this process.
Driver* Opened() {
  return g_opened.load(std::memory_order_acquire) > 0 ? g_driver.load() : nullptr;
}

HSAKMT_STATUS NotSupported(const char* function) {
  Log("%s: not supported", function);
  return HSAKMT_STATUS_NOT_SUPPORTED;
}

}  // namespace
}  // namespace softgpu

using softgpu::Driver;

// Binds `driver`, or returns as the kernel interface does when it is not open.
#define SOFTGPU_DRIVER_OR_RETURN(driver)    \
  Driver* const driver = softgpu::Opened(); \
  if (driver == nullptr) return HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED

#define SOFTGPU_REQUIRE(condition) \
  if (!(condition)) return HSAKMT_STATUS_INVALID_PARAMETER

#define SOFTGPU_REQUIRE_NODE(node) \
  if ((node) >= softgpu::kNodes) return HSAKMT_STATUS_INVALID_NODE_UNIT

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtOpenKFD() {
  pthread_mutex_lock(&softgpu::g_open_mutex);
  if (softgpu::g_driver.load() == nullptr) {
    static bool registered = false;
    if (!registered) pthread_atfork(nullptr, nullptr, softgpu::ForgetParent);
    registered = true;
    softgpu::g_driver.store(Driver::Create().release());
  }
  const bool ok = softgpu::g_driver.load() != nullptr;
  if (ok) softgpu::g_opened.fetch_add(1);
  pthread_mutex_unlock(&softgpu::g_open_mutex);
  return ok ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_KERNEL_IO_CHANNEL_NOT_OPENED;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtCloseKFD() {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  softgpu::g_opened.fetch_sub(1);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetVersion(HsaVersionInfo* version) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(version != nullptr);
  version->KernelInterfaceMajorVersion = softgpu::kInterfaceMajor;
  version->KernelInterfaceMinorVersion = softgpu::kInterfaceMinor;
  return HSAKMT_STATUS_SUCCESS;
}

// --- Topology -------------------------------------------------------------

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtAcquireSystemProperties(HsaSystemProperties* properties) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(properties != nullptr);
  *properties = {};
  properties->NumNodes = softgpu::kNodes;
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtReleaseSystemProperties() { return HSAKMT_STATUS_SUCCESS; }

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetNodeProperties(HSAuint32 node,
                                                     HsaNodeProperties* properties) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(properties != nullptr);
  softgpu::DescribeNode(*driver, node, properties);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetNodeMemoryProperties(HSAuint32 node, HSAuint32 banks,
                                                           HsaMemoryProperties* properties) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(properties != nullptr);
  softgpu::DescribeMemory(*driver, node, banks, properties);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetNodeCacheProperties(HSAuint32 node, HSAuint32,
                                                          HSAuint32 caches,
                                                          HsaCacheProperties* properties) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(properties != nullptr);
  softgpu::DescribeCaches(*driver, node, caches, properties);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetNodeIoLinkProperties(HSAuint32 node, HSAuint32 links,
                                                           HsaIoLinkProperties* properties) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(properties != nullptr);
  softgpu::DescribeLinks(node, links, properties);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetTileConfig(HSAuint32 node, HsaGpuTileConfig* config) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(node == softgpu::kGpuNode && config != nullptr);
  softgpu::DescribeTiles(*driver, config);
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetClockCounters(HSAuint32 node, HsaClockCounters* counters) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(counters != nullptr);
  auto read = [](clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
  };
  counters->GPUClockCounter = softgpu::GpuClock();
  counters->CPUClockCounter = read(CLOCK_MONOTONIC_RAW);
  counters->SystemClockCounter = read(CLOCK_BOOTTIME);
  counters->SystemClockFrequencyHz = 1000000000;
  return HSAKMT_STATUS_SUCCESS;
}

// --- Memory ---------------------------------------------------------------

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtAllocMemory(HSAuint32 node, HSAuint64 size, HsaMemFlags flags,
                                               void** address) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  SOFTGPU_REQUIRE(address != nullptr);
  return driver->address_space()->Allocate(node, size, flags, address);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtFreeMemory(void* address, HSAuint64) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(address != nullptr);
  return driver->address_space()->Free(address);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRegisterMemoryWithFlags(void* address, HSAuint64 size,
                                                           HsaMemFlags flags) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->address_space()->Register(address, size, flags);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtDeregisterMemory(void* address) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->address_space()->Deregister(address);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtMapMemoryToGPU(void* address, HSAuint64 size,
                                                  HSAuint64* alternate) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(address != nullptr);
  if (alternate != nullptr) *alternate = 0;  // same address on host and GPU
  return driver->address_space()->Map(address, size);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtMapMemoryToGPUNodes(void* address, HSAuint64 size,
                                                       HSAuint64* alternate, HsaMemMapFlags,
                                                       HSAuint64 count, HSAuint32* nodes) {
  SOFTGPU_REQUIRE(nodes != nullptr || count == 0);
  for (HSAuint64 i = 0; i < count; ++i) {
    if (nodes[i] != softgpu::kGpuNode) return HSAKMT_STATUS_INVALID_NODE_UNIT;
  }
  return hsaKmtMapMemoryToGPU(address, size, alternate);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtUnmapMemoryToGPU(void* address) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->address_space()->Unmap(address);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtQueryPointerInfo(const void* pointer, HsaPointerInfo* info) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(info != nullptr);
  static const HSAuint32 kGpuNodes[] = {softgpu::kGpuNode};
  *info = {};
  info->Type = HSA_POINTER_UNKNOWN;
  const auto found = driver->address_space()->Find(reinterpret_cast<uint64_t>(pointer));
  if (!found || (found->flags.ui32.Scratch && !found->user)) return HSAKMT_STATUS_ERROR;
  info->Type = found->user ? HSA_POINTER_REGISTERED_USER : HSA_POINTER_ALLOCATED;
  info->Node = found->node;
  info->MemFlags = found->flags;
  info->CPUAddress = reinterpret_cast<void*>(found->base);
  info->GPUAddress = found->base;
  info->SizeInBytes = found->size;
  info->NMappedNodes = found->mapped ? 1 : 0;
  info->MappedNodes = found->mapped ? kGpuNodes : nullptr;
  info->UserData = found->user_data;
  return HSAKMT_STATUS_SUCCESS;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetMemoryUserData(const void* pointer, void* data) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->address_space()->SetUserData(pointer, data);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetMemoryPolicy(HSAuint32, HSAuint32, HSAuint32, void*,
                                                   HSAuint64) {
  return softgpu::NotSupported(__func__);  // gfx7 only
}

// Sharing between processes, graphics interoperation and shared virtual memory:
// a soft GPU process has nobody to share with.

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtShareMemory(void*, HSAuint64, HsaSharedMemoryHandle*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRegisterSharedHandle(const HsaSharedMemoryHandle*, void**,
                                                        HSAuint64*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRegisterSharedHandleToNodes(const HsaSharedMemoryHandle*, void**,
                                                               HSAuint64*, HSAuint64, HSAuint32*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRegisterGraphicsHandleToNodes(HSAuint64,
                                                                 HsaGraphicsResourceInfo*,
                                                                 HSAuint64, HSAuint32*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSVMSetAttr(void*, HSAuint64, unsigned int, HSA_SVM_ATTRIBUTE*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSVMGetAttr(void*, HSAuint64, unsigned int, HSA_SVM_ATTRIBUTE*) {
  return softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetXNACKMode(HSAint32 enable) {
  return enable == 0 ? HSAKMT_STATUS_SUCCESS : softgpu::NotSupported(__func__);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtGetXNACKMode(HSAint32* enable) {
  SOFTGPU_REQUIRE(enable != nullptr);
  *enable = 0;
  return HSAKMT_STATUS_SUCCESS;
}

// --- Events ---------------------------------------------------------------

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtCreateEvent(HsaEventDescriptor* descriptor, bool manual_reset,
                                               bool signaled, HsaEvent** event) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(descriptor != nullptr && event != nullptr);
  return driver->events()->Create(*descriptor, manual_reset, signaled, event);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtDestroyEvent(HsaEvent* event) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->events()->Destroy(event);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetEvent(HsaEvent* event) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->events()->Set(event);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtWaitOnEvent(HsaEvent* event, HSAuint32 milliseconds) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  if (event == nullptr) return HSAKMT_STATUS_INVALID_HANDLE;
  return driver->events()->Wait(&event, 1, true, milliseconds);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtWaitOnMultipleEvents(HsaEvent* events[], HSAuint32 count,
                                                        bool all, HSAuint32 milliseconds) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  if (events == nullptr) return HSAKMT_STATUS_INVALID_HANDLE;
  return driver->events()->Wait(events, count, all, milliseconds);
}

// --- Queues ---------------------------------------------------------------

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtCreateQueue(HSAuint32 node, HSA_QUEUE_TYPE type, HSAuint32,
                                               HSA_QUEUE_PRIORITY, void* ring, HSAuint64 size,
                                               HsaEvent*, HsaQueueResource* resource) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  if (node != softgpu::kGpuNode) return HSAKMT_STATUS_INVALID_NODE_UNIT;
  SOFTGPU_REQUIRE(resource != nullptr);
  return driver->CreateQueue(type, ring, size, resource);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtUpdateQueue(HSA_QUEUEID id, HSAuint32 percentage,
                                               HSA_QUEUE_PRIORITY, void*, HSAuint64, HsaEvent*) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->UpdateQueue(id, percentage);
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtDestroyQueue(HSA_QUEUEID id) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  return driver->DestroyQueue(id);
}

// Where waves are placed has no visible effect here.
SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetQueueCUMask(HSA_QUEUEID id, HSAuint32 count,
                                                  HSAuint32* mask) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE(count != 0 && count % 32 == 0 && mask != nullptr);
  return driver->HasQueue(id) ? HSAKMT_STATUS_SUCCESS : HSAKMT_STATUS_INVALID_HANDLE;
}

// All of the global wave sync unit: kernels that use it run one queue at a time.
SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtAllocQueueGWS(HSA_QUEUEID id, HSAuint32, HSAuint32* first) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  if (!driver->HasQueue(id)) return HSAKMT_STATUS_INVALID_HANDLE;
  if (first != nullptr) *first = 0;
  return HSAKMT_STATUS_SUCCESS;
}

// --- Debugging ------------------------------------------------------------

// Exception debugging is not offered, so ROCR reads errors from the queue's
// inactive signal. The list of loaded code objects is kept for the journal.
SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRuntimeEnable(void* r_debug, bool) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  driver->counts()->SetDebugList(reinterpret_cast<uint64_t>(r_debug));
  return HSAKMT_STATUS_NOT_SUPPORTED;
}

SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtRuntimeDisable() {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  driver->counts()->SetDebugList(0);
  return HSAKMT_STATUS_SUCCESS;
}

// Traps are reported by the command processor itself, as ROCR's trap handler
// would report them.
SOFTGPU_EXPORT HSAKMT_STATUS hsaKmtSetTrapHandler(HSAuint32 node, void*, HSAuint64, void*,
                                                  HSAuint64) {
  SOFTGPU_DRIVER_OR_RETURN(driver);
  SOFTGPU_REQUIRE_NODE(node);
  return HSAKMT_STATUS_SUCCESS;
}
