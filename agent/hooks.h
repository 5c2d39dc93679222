// What the agent does in each interposed call, whichever way it was reached.
// Each hook takes the calls to pass on to: the next definitions in the process
// (LD_PRELOAD) or the API table's former entries (HSA_TOOLS_LIB). With both in
// place the outer one works and the inner passes through.
#ifndef RJDBI_AGENT_HOOKS_H_
#define RJDBI_AGENT_HOOKS_H_

#include "agent/hsa_api.h"

namespace rjdbi::agent::hooks {

hsa_status_t hsa_code_object_reader_create_from_memory(const HookedCalls& next, const void* data,
                                                       size_t size,
                                                       hsa_code_object_reader_t* reader);
hsa_status_t hsa_code_object_reader_create_from_file(const HookedCalls& next, hsa_file_t file,
                                                     hsa_code_object_reader_t* reader);
hsa_status_t hsa_code_object_reader_destroy(const HookedCalls& next,
                                            hsa_code_object_reader_t reader);
hsa_status_t hsa_code_object_deserialize(const HookedCalls& next, void* data, size_t size,
                                         const char* options, hsa_code_object_t* code_object);
hsa_status_t hsa_code_object_destroy(const HookedCalls& next, hsa_code_object_t code_object);
hsa_status_t hsa_executable_load_agent_code_object(const HookedCalls& next,
                                                   hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader,
                                                   const char* options,
                                                   hsa_loaded_code_object_t* loaded);
hsa_status_t hsa_executable_load_code_object(const HookedCalls& next, hsa_executable_t executable,
                                             hsa_agent_t agent, hsa_code_object_t code_object,
                                             const char* options);
hsa_status_t hsa_executable_destroy(const HookedCalls& next, hsa_executable_t executable);
hsa_status_t hsa_queue_create(const HookedCalls& next, hsa_agent_t agent, uint32_t size,
                              hsa_queue_type32_t type,
                              void (*callback)(hsa_status_t, hsa_queue_t*, void*), void* data,
                              uint32_t private_segment_size, uint32_t group_segment_size,
                              hsa_queue_t** queue);
hsa_status_t hsa_queue_destroy(const HookedCalls& next, hsa_queue_t* queue);
// In the API table only: another tool makes a queue with interception.
hsa_status_t hsa_amd_queue_intercept_create(hsa_agent_t agent, uint32_t size,
                                            hsa_queue_type32_t type,
                                            void (*callback)(hsa_status_t, hsa_queue_t*, void*),
                                            void* data, uint32_t private_segment_size,
                                            uint32_t group_segment_size, hsa_queue_t** queue);
hsa_status_t hsa_system_get_extension_table(const HookedCalls& next, uint16_t extension,
                                            uint16_t major, uint16_t minor, void* table);
hsa_status_t hsa_system_get_major_extension_table(const HookedCalls& next, uint16_t extension,
                                                  uint16_t major, size_t table_bytes, void* table);
hsa_status_t hsa_shut_down(const HookedCalls& next);

}  // namespace rjdbi::agent::hooks

#endif  // RJDBI_AGENT_HOOKS_H_
