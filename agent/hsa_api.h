// The HSA calls the agent interposes and those it uses itself, and where the
// real ones are: behind us in the dynamic linker's search order, or in the API
// table that ROCR hands to its tools.
#ifndef RJDBI_AGENT_HSA_API_H_
#define RJDBI_AGENT_HSA_API_H_

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>

namespace rjdbi::agent {

// Interposed; all are in the core table. Two are deprecated since HSA 1.1, and
// still exported.
#define RJDBI_HOOKED_CALLS(X)                  \
  X(hsa_code_object_reader_create_from_memory) \
  X(hsa_code_object_reader_create_from_file)   \
  X(hsa_code_object_reader_destroy)            \
  X(hsa_code_object_deserialize)               \
  X(hsa_code_object_destroy)                   \
  X(hsa_executable_load_agent_code_object)     \
  X(hsa_executable_load_code_object)           \
  X(hsa_executable_destroy)                    \
  X(hsa_queue_create)                          \
  X(hsa_queue_destroy)                         \
  X(hsa_system_get_extension_table)            \
  X(hsa_system_get_major_extension_table)      \
  X(hsa_shut_down)

#define RJDBI_CORE_HELPERS(X) \
  X(hsa_iterate_agents)       \
  X(hsa_agent_get_info)       \
  X(hsa_agent_iterate_isas)   \
  X(hsa_isa_get_info_alt)     \
  X(hsa_system_get_info)

#define RJDBI_AMD_HELPERS(X)            \
  X(hsa_amd_agent_iterate_memory_pools) \
  X(hsa_amd_memory_pool_get_info)       \
  X(hsa_amd_agent_memory_pool_get_info) \
  X(hsa_amd_memory_pool_allocate)       \
  X(hsa_amd_memory_pool_free)           \
  X(hsa_amd_agents_allow_access)

// What attaching to a running process takes besides; from the API table alone, which is
// the only place that has the interception of queues.
#define RJDBI_LIVE_CORE_CALLS(X)               \
  X(hsa_system_get_major_extension_table)      \
  X(hsa_executable_create_alt)                 \
  X(hsa_executable_get_info)                   \
  X(hsa_executable_load_agent_code_object)     \
  X(hsa_executable_freeze)                     \
  X(hsa_executable_destroy)                    \
  X(hsa_code_object_reader_create_from_memory) \
  X(hsa_code_object_reader_destroy)            \
  X(hsa_queue_destroy)                         \
  X(hsa_signal_create)                         \
  X(hsa_signal_destroy)                        \
  X(hsa_signal_load_relaxed)

// As hsa_api_trace.h declares them, which belongs to tools_onload.cpp alone.
using PacketWriter = void (*)(const void* packets, uint64_t count);
using PacketHandler = void (*)(const void* packets, uint64_t count, uint64_t index, void* data,
                               PacketWriter writer);
using InterceptCreate = hsa_status_t (*)(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
                                         void (*callback)(hsa_status_t, hsa_queue_t*, void*),
                                         void* data, uint32_t private_segment_size,
                                         uint32_t group_segment_size, hsa_queue_t** queue);
using InterceptRegister = hsa_status_t (*)(hsa_queue_t* queue, PacketHandler handler, void* data);

// The headers mark some of these deprecated; naming them is the point here.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// NOLINTNEXTLINE(bugprone-macro-parentheses): declares a member of that name
#define RJDBI_DECLARE_POINTER(name) decltype(&::name) name = nullptr;

// Where a hook passes its call on to.
struct HookedCalls {
  RJDBI_HOOKED_CALLS(RJDBI_DECLARE_POINTER)
};

// What the agent itself needs of ROCR.
struct HelperCalls {
  RJDBI_CORE_HELPERS(RJDBI_DECLARE_POINTER)
  RJDBI_AMD_HELPERS(RJDBI_DECLARE_POINTER)

  bool complete() const;
};

struct LiveCalls {
  RJDBI_LIVE_CORE_CALLS(RJDBI_DECLARE_POINTER)
  InterceptCreate hsa_amd_queue_intercept_create = nullptr;
  InterceptRegister hsa_amd_queue_intercept_register = nullptr;
  // Another tool was loaded before, and makes queues in its own way.
  bool others_make_queues = false;

  bool complete() const;
};

#undef RJDBI_DECLARE_POINTER
#pragma GCC diagnostic pop

// The next definitions after ours, found once ROCR is in the process; members
// stay null until then.
const HookedCalls& DynamicCalls();

// From the API table while a tool, else from the dynamic linker.
HelperCalls Helpers();

// The API table's; all null while the agent is no tool.
LiveCalls Live();

// Set and cleared by tools_onload; must outlive its use.
void SetTableHelpers(const HelperCalls* helpers);
void SetTableLiveCalls(const LiveCalls* calls);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_HSA_API_H_
