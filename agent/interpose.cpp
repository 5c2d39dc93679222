// LD_PRELOAD: the same names as ROCR's, ahead of it in the search order. Only
// pointers are set up until the first code object.
#include "agent/hooks.h"
#include "agent/runtime.h"

using rjdbi::agent::DynamicCalls;
using rjdbi::agent::LoadedThrough;
using rjdbi::agent::NoteLoadedThrough;
namespace hooks = rjdbi::agent::hooks;

#define RJDBI_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const rjdbi::agent::HookedCalls& Next() {
  NoteLoadedThrough(LoadedThrough::kPreload);
  return DynamicCalls();
}

// After the host's own exit handlers.
__attribute__((destructor)) void AtExit() { rjdbi::agent::FinishAtExit(); }

}  // namespace

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

RJDBI_EXPORT hsa_status_t hsa_code_object_reader_create_from_memory(
    const void* data, size_t size, hsa_code_object_reader_t* reader) {
  return hooks::hsa_code_object_reader_create_from_memory(Next(), data, size, reader);
}

RJDBI_EXPORT hsa_status_t
hsa_code_object_reader_create_from_file(hsa_file_t file, hsa_code_object_reader_t* reader) {
  return hooks::hsa_code_object_reader_create_from_file(Next(), file, reader);
}

RJDBI_EXPORT hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t reader) {
  return hooks::hsa_code_object_reader_destroy(Next(), reader);
}

RJDBI_EXPORT hsa_status_t hsa_code_object_deserialize(void* data, size_t size, const char* options,
                                                      hsa_code_object_t* code_object) {
  return hooks::hsa_code_object_deserialize(Next(), data, size, options, code_object);
}

RJDBI_EXPORT hsa_status_t hsa_code_object_destroy(hsa_code_object_t code_object) {
  return hooks::hsa_code_object_destroy(Next(), code_object);
}

RJDBI_EXPORT hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable,
                                                                hsa_agent_t agent,
                                                                hsa_code_object_reader_t reader,
                                                                const char* options,
                                                                hsa_loaded_code_object_t* loaded) {
  return hooks::hsa_executable_load_agent_code_object(Next(), executable, agent, reader, options,
                                                      loaded);
}

RJDBI_EXPORT hsa_status_t hsa_executable_load_code_object(hsa_executable_t executable,
                                                          hsa_agent_t agent,
                                                          hsa_code_object_t code_object,
                                                          const char* options) {
  return hooks::hsa_executable_load_code_object(Next(), executable, agent, code_object, options);
}

RJDBI_EXPORT hsa_status_t hsa_executable_destroy(hsa_executable_t executable) {
  return hooks::hsa_executable_destroy(Next(), executable);
}

RJDBI_EXPORT hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size,
                                           hsa_queue_type32_t type,
                                           void (*callback)(hsa_status_t, hsa_queue_t*, void*),
                                           void* data, uint32_t private_segment_size,
                                           uint32_t group_segment_size, hsa_queue_t** queue) {
  const auto& next = Next();
  // Where there is a table, it is in its hook that queues are made: between those of other
  // tools, so that they see queues and packets, too.
  if (rjdbi::agent::Live().complete() && next.hsa_queue_create) {
    return next.hsa_queue_create(agent, size, type, callback, data, private_segment_size,
                                 group_segment_size, queue);
  }
  return hooks::hsa_queue_create(next, agent, size, type, callback, data, private_segment_size,
                                 group_segment_size, queue);
}

RJDBI_EXPORT hsa_status_t hsa_queue_destroy(hsa_queue_t* queue) {
  const auto& next = Next();
  if (rjdbi::agent::Live().complete() && next.hsa_queue_destroy) {
    return next.hsa_queue_destroy(queue);
  }
  return hooks::hsa_queue_destroy(next, queue);
}

RJDBI_EXPORT hsa_status_t hsa_system_get_extension_table(uint16_t extension, uint16_t major,
                                                         uint16_t minor, void* table) {
  return hooks::hsa_system_get_extension_table(Next(), extension, major, minor, table);
}

RJDBI_EXPORT hsa_status_t hsa_system_get_major_extension_table(uint16_t extension, uint16_t major,
                                                               size_t table_bytes, void* table) {
  return hooks::hsa_system_get_major_extension_table(Next(), extension, major, table_bytes, table);
}

RJDBI_EXPORT hsa_status_t hsa_shut_down() { return hooks::hsa_shut_down(Next()); }

#pragma GCC diagnostic pop
