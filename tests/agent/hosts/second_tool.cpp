// Another HSA tool that intercepts queues, as profilers do: it makes them itself, adds a
// barrier packet in front of each dispatch, and counts dispatches. At the end it writes
// their number, and that of queues, to the file SECOND_TOOL_FILE.
#define AMD_INTERNAL_BUILD 1
#include <hsa_api_trace.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

decltype(&hsa_amd_queue_intercept_create) g_create = nullptr;
decltype(&hsa_amd_queue_intercept_register) g_register = nullptr;
std::atomic<unsigned> g_queues{0}, g_dispatches{0};

void OnPackets(const void* packets, uint64_t count, uint64_t, void*,
               hsa_amd_queue_intercept_packet_writer writer) {
  hsa_barrier_and_packet_t out[8]{};
  const auto* in = static_cast<const hsa_barrier_and_packet_t*>(packets);
  uint64_t n = 0;
  for (uint64_t i = 0; i < count && n + 2 <= 8; ++i) {
    const unsigned type = in[i].header & 0xff;
    if (type == HSA_PACKET_TYPE_KERNEL_DISPATCH) {
      ++g_dispatches;
      out[n++].header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE;
    }
    std::memcpy(&out[n++], &in[i], sizeof out[0]);
  }
  writer(out, n);
}

hsa_status_t CreateQueue(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                         void (*callback)(hsa_status_t, hsa_queue_t*, void*), void* data,
                         uint32_t private_segment_size, uint32_t group_segment_size,
                         hsa_queue_t** queue) {
  const hsa_status_t status =
      g_create(agent, size, type, callback, data, private_segment_size, group_segment_size, queue);
  if (status != HSA_STATUS_SUCCESS) return status;
  ++g_queues;
  return g_register(*queue, &OnPackets, nullptr);
}

__attribute__((destructor)) void Write() {
  const char* path = std::getenv("SECOND_TOOL_FILE");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  std::fprintf(file, "%u queues %u dispatches\n", g_queues.load(), g_dispatches.load());
  std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) bool OnLoad(void* table, uint64_t, uint64_t,
                                                              const char* const*) {
  auto* api = static_cast<HsaApiTable*>(table);
  g_create = api->amd_ext_->hsa_amd_queue_intercept_create_fn;
  g_register = api->amd_ext_->hsa_amd_queue_intercept_register_fn;
  api->core_->hsa_queue_create_fn = &CreateQueue;
  return true;
}

extern "C" __attribute__((visibility("default"))) void OnUnload() {}
