// The hooks; see hooks.h. They are transparent to everything that passes through
// them: status codes, errno, thread cancellation, and unwinding.
#include "agent/hooks.h"

#include <atomic>
#include <cstddef>
#include <exception>
#include <utility>

#include "agent/host_untouched.h"
#include "agent/inside.h"
#include "agent/runtime.h"
#include "agent/substitution.h"

namespace rjdbi::agent {

constinit thread_local int t_depth = 0;

}  // namespace rjdbi::agent

namespace rjdbi::agent::hooks {
namespace {

// Calls the real function with the guard up. A missing one means that ROCR is
// not in the process.
template <typename F, typename... A>
hsa_status_t Forward(F* real, A... args) {
  if (!real) return HSA_STATUS_ERROR_NOT_INITIALIZED;
  Inside inside;
  return real(args...);
}

// Runs `work(runtime)` unless nested, disabled or out of memory.
template <typename F>
void InRuntime(F&& work) {
  if (t_depth > 0) return;
  HostUntouched untouched;
  Runtime* runtime = Runtime::Current();
  if (!runtime) return;
  Inside inside;
  try {
    work(*runtime);
  } catch (const std::exception&) {
    runtime->gaps.Record(Gap{.kind = GapKind::kOutOfMemory});
  }
}

void Remember(ReaderRegistry& registry, uint64_t handle, CodeObject object) {
  registry.Add(handle, std::move(object));
}

// ---- The AMD loader's extension table ----

using CreateFromRange =
    decltype(hsa_ven_amd_loader_1_03_pfn_t::
                 hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size);
constexpr size_t kRangeOffset =
    offsetof(hsa_ven_amd_loader_1_03_pfn_t,
             hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size);
constexpr uint16_t kRangeMinor = 2;  // the table's first minor version with that entry

std::atomic<CreateFromRange> g_create_from_range{nullptr};

hsa_status_t CreateFromRangeHook(hsa_file_t file, size_t offset, size_t size,
                                 hsa_code_object_reader_t* reader) {
  hsa_status_t status = Forward(g_create_from_range.load(), file, offset, size, reader);
  if (status == HSA_STATUS_SUCCESS && reader) {
    InRuntime([&](Runtime& runtime) {
      Remember(runtime.readers, reader->handle, DescribeFile(file, offset, size));
    });
  }
  return status;
}

// Replaces the entry in the caller's own copy of the table, if it is there.
void PatchLoaderTable(void* table, CreateFromRange real) {
  auto* entry = reinterpret_cast<CreateFromRange*>(static_cast<char*>(table) + kRangeOffset);
  if (!real || *entry != real || real == &CreateFromRangeHook) return;
  g_create_from_range.store(real);
  *entry = &CreateFromRangeHook;
}

// ROCR's own pointer, from a table whose size is stated.
CreateFromRange RealCreateFromRange(const HookedCalls& next) {
  hsa_ven_amd_loader_1_03_pfn_t full{};
  hsa_status_t status =
      Forward(next.hsa_system_get_major_extension_table, uint16_t{HSA_EXTENSION_AMD_LOADER},
              uint16_t{1}, sizeof full, static_cast<void*>(&full));
  return status == HSA_STATUS_SUCCESS
             ? full.hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size
             : nullptr;
}

// ---- Loading ----

bool RuntimeIsUp(const HelperCalls& hsa) {
  uint16_t major = 0;
  return hsa.hsa_system_get_info &&
         hsa.hsa_system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major) == HSA_STATUS_SUCCESS;
}

PreparedLoad FindSubstitute(ReaderRegistry Runtime::*registry, uint64_t handle, hsa_agent_t agent) {
  PreparedLoad prepared;
  InRuntime([&](Runtime& runtime) {
    LoadRequest request;
    request.known = (runtime.*registry).Find(handle, &request.object);
    request.agent = agent;
    prepared = PrepareLoad(runtime, Helpers(), request);
  });
  return prepared;
}

void Note(hsa_executable_t executable, hsa_loaded_code_object_t loaded,
          std::unique_ptr<LoadedObject> object) {
  if (!object) return;
  HostUntouched untouched;
  Inside inside;
  if (Runtime* runtime = Runtime::Existing()) {
    NoteLoaded(*runtime, executable, loaded, std::move(object));
  }
}

// `make` creates ROCR's handle over the patched image and stores how to destroy
// it; `load` loads that. False: the host's own object has to be loaded.
template <typename Make, typename Load>
bool LoadSubstitute(hsa_executable_t executable, std::unique_ptr<Substitute> substitute,
                    Make&& make, Load&& load, hsa_status_t* status) {
  const char* step = "reader for the patched image";
  *status = make(*substitute->load);
  if (*status == HSA_STATUS_SUCCESS) {
    step = "load of the patched image";
    *status = load();
  }
  HostUntouched untouched;
  Inside inside;
  Runtime* runtime = Runtime::Existing();
  if (!runtime) {  // forked in between, by a handler of the host's
    (void)substitute->load.release();
    return *status == HSA_STATUS_SUCCESS;
  }
  if (*status == HSA_STATUS_SUCCESS) {
    CommitSubstitute(*runtime, executable, std::move(substitute));
    return true;
  }
  RejectSubstitute(*runtime, std::move(substitute), step, *status);
  return false;
}

// Loads what the daemon made of the host's object, or else the object itself. The
// two ways to load differ in the kind of handle, and in how one is made and
// destroyed: `make(image, &handle)` gives ROCR's over the patched image. `loaded` is where
// `load` leaves what ROCR calls the loaded object, if it does.
template <typename Handle, typename Load, typename Make, typename Destroy>
hsa_status_t LoadObject(ReaderRegistry Runtime::*registry, hsa_executable_t executable,
                        hsa_agent_t agent, Handle object, const hsa_loaded_code_object_t* loaded,
                        Load&& load, Make&& make, Destroy* destroy) {
  auto [substitute, known] = FindSubstitute(registry, object.handle, agent);
  auto load_original = [&, known = &known] {
    const hsa_status_t status = load(object);
    if (status == HSA_STATUS_SUCCESS) Note(executable, *loaded, std::move(*known));
    return status;
  };
  if (!substitute) return load_original();
  Handle patched{};
  auto make_patched = [&](PatchedLoad& patched_load) {
    hsa_status_t status = make(patched_load.image, &patched);
    if (status == HSA_STATUS_SUCCESS) {
      patched_load.destroy_replacement = [destroy, patched] { Forward(destroy, patched); };
    }
    return status;
  };
  hsa_status_t status;
  if (LoadSubstitute(
          executable, std::move(substitute), make_patched, [&] { return load(patched); },
          &status)) {
    if (known) known->patched = true;
    Note(executable, *loaded, std::move(known));
    return status;
  }
  return load_original();
}

}  // namespace

hsa_status_t hsa_code_object_reader_create_from_memory(const HookedCalls& next, const void* data,
                                                       size_t size,
                                                       hsa_code_object_reader_t* reader) {
  hsa_status_t status = Forward(next.hsa_code_object_reader_create_from_memory, data, size, reader);
  if (status == HSA_STATUS_SUCCESS && reader) {
    InRuntime([&](Runtime& runtime) {
      Remember(runtime.readers, reader->handle, DescribeMemory(data, size));
    });
  }
  return status;
}

hsa_status_t hsa_code_object_reader_create_from_file(const HookedCalls& next, hsa_file_t file,
                                                     hsa_code_object_reader_t* reader) {
  hsa_status_t status = Forward(next.hsa_code_object_reader_create_from_file, file, reader);
  if (status == HSA_STATUS_SUCCESS && reader) {
    InRuntime([&](Runtime& runtime) {
      Remember(runtime.readers, reader->handle, DescribeWholeFile(file));
    });
  }
  return status;
}

hsa_status_t hsa_code_object_reader_destroy(const HookedCalls& next,
                                            hsa_code_object_reader_t reader) {
  // Forgotten first: afterwards the handle may already be another reader's.
  if (t_depth == 0) {
    HostUntouched untouched;
    if (Runtime* runtime = Runtime::Existing()) runtime->readers.Remove(reader.handle);
  }
  return Forward(next.hsa_code_object_reader_destroy, reader);
}

hsa_status_t hsa_code_object_deserialize(const HookedCalls& next, void* data, size_t size,
                                         const char* options, hsa_code_object_t* code_object) {
  hsa_status_t status = Forward(next.hsa_code_object_deserialize, data, size, options, code_object);
  if (status == HSA_STATUS_SUCCESS && code_object) {
    // The host may drop its bytes unless they are the code object themselves.
    bool same = code_object->handle == reinterpret_cast<uintptr_t>(data);
    InRuntime([&](Runtime& runtime) {
      Remember(runtime.code_objects, code_object->handle,
               same ? DescribeMemory(data, size) : CopyMemory(data, size));
    });
  }
  return status;
}

hsa_status_t hsa_code_object_destroy(const HookedCalls& next, hsa_code_object_t code_object) {
  if (t_depth == 0) {
    HostUntouched untouched;
    if (Runtime* runtime = Runtime::Existing()) runtime->code_objects.Remove(code_object.handle);
  }
  return Forward(next.hsa_code_object_destroy, code_object);
}

hsa_status_t hsa_executable_load_agent_code_object(const HookedCalls& next,
                                                   hsa_executable_t executable, hsa_agent_t agent,
                                                   hsa_code_object_reader_t reader,
                                                   const char* options,
                                                   hsa_loaded_code_object_t* loaded) {
  hsa_loaded_code_object_t own{};
  if (!loaded) loaded = &own;
  return LoadObject(
      &Runtime::readers, executable, agent, reader, loaded,
      [&](hsa_code_object_reader_t which) {
        return Forward(next.hsa_executable_load_agent_code_object, executable, agent, which,
                       options, loaded);
      },
      [&](auto& image, hsa_code_object_reader_t* patched) {
        return Forward(next.hsa_code_object_reader_create_from_memory,
                       static_cast<const void*>(image.data()), image.size(), patched);
      },
      next.hsa_code_object_reader_destroy);
}

hsa_status_t hsa_executable_load_code_object(const HookedCalls& next, hsa_executable_t executable,
                                             hsa_agent_t agent, hsa_code_object_t code_object,
                                             const char* options) {
  static constexpr hsa_loaded_code_object_t kTheLast{};
  return LoadObject(
      &Runtime::code_objects, executable, agent, code_object, &kTheLast,
      [&](hsa_code_object_t which) {
        return Forward(next.hsa_executable_load_code_object, executable, agent, which, options);
      },
      [&](auto& image, hsa_code_object_t* patched) {
        return Forward(next.hsa_code_object_deserialize, static_cast<void*>(image.data()),
                       image.size(), options, patched);
      },
      next.hsa_code_object_destroy);
}

hsa_status_t hsa_executable_destroy(const HookedCalls& next, hsa_executable_t executable) {
  PatchedLoadList loads;
  bool beside = false;  // something stands beside its objects
  if (t_depth == 0) {
    HostUntouched untouched;
    if (Runtime* runtime = Runtime::Existing()) {
      Inside inside;
      loads = runtime->loads.Take(executable.handle);
      beside = runtime->beside.BeforeDestroy(executable);
    }
  }
  hsa_status_t status = Forward(next.hsa_executable_destroy, executable);
  if (loads.empty() && !beside) return status;
  HostUntouched untouched;
  Inside inside;
  Runtime* runtime = Runtime::Existing();
  if (runtime && beside) runtime->beside.AfterDestroy(executable, status == HSA_STATUS_SUCCESS);
  if (loads.empty()) return status;
  if (runtime && status == HSA_STATUS_SUCCESS) {
    FinishLoads(*runtime, std::move(loads), /*runtime_is_up=*/true);
  } else if (runtime && RuntimeIsUp(Helpers())) {
    runtime->loads.PutBack(executable.handle, std::move(loads));
  }
  return status;
}

hsa_status_t hsa_queue_create(const HookedCalls& next, hsa_agent_t agent, uint32_t size,
                              hsa_queue_type32_t type,
                              void (*callback)(hsa_status_t, hsa_queue_t*, void*), void* data,
                              uint32_t private_segment_size, uint32_t group_segment_size,
                              hsa_queue_t** queue) {
  bool made = false;
  const LiveCalls live = Live();
  InRuntime([&](Runtime& runtime) {
    if (!runtime.config.live || live.others_make_queues) return;
    made = runtime.queues.Create(live,
                                 {.agent = agent,
                                  .size = size,
                                  .type = type,
                                  .callback = callback,
                                  .data = data,
                                  .private_segment_size = private_segment_size,
                                  .group_segment_size = group_segment_size},
                                 queue);
  });
  if (made) return HSA_STATUS_SUCCESS;
  const hsa_status_t status = Forward(next.hsa_queue_create, agent, size, type, callback, data,
                                      private_segment_size, group_segment_size, queue);
  if (status == HSA_STATUS_SUCCESS) {
    InRuntime([&](Runtime& runtime) {
      // The other tool's, if it is one that intercepts.
      const bool adopted = runtime.config.live && live.others_make_queues &&
                           runtime.queues.Adopt(live, agent, *queue);
      if (!adopted) runtime.queues.PlainQueue();
    });
  }
  return status;
}

hsa_status_t hsa_amd_queue_intercept_create(hsa_agent_t agent, uint32_t size,
                                            hsa_queue_type32_t type,
                                            void (*callback)(hsa_status_t, hsa_queue_t*, void*),
                                            void* data, uint32_t private_segment_size,
                                            uint32_t group_segment_size, hsa_queue_t** queue) {
  const LiveCalls live = Live();
  const hsa_status_t status =
      Forward(live.hsa_amd_queue_intercept_create, agent, size, type, callback, data,
              private_segment_size, group_segment_size, queue);
  if (status == HSA_STATUS_SUCCESS && queue) {
    InRuntime([&](Runtime& runtime) {
      if (runtime.config.live) runtime.queues.Adopt(live, agent, *queue);
    });
  }
  return status;
}

hsa_status_t hsa_queue_destroy(const HookedCalls& next, hsa_queue_t* queue) {
  Runtime* runtime = t_depth == 0 ? Runtime::Existing() : nullptr;
  auto destroy = [&] { return Forward(next.hsa_queue_destroy, queue); };
  return runtime ? runtime->queues.Destroy(queue, destroy) : destroy();
}

hsa_status_t hsa_system_get_extension_table(const HookedCalls& next, uint16_t extension,
                                            uint16_t major, uint16_t minor, void* table) {
  hsa_status_t status =
      Forward(next.hsa_system_get_extension_table, extension, major, minor, table);
  // The version says how large the caller's table is.
  if (status == HSA_STATUS_SUCCESS && t_depth == 0 && table &&
      extension == HSA_EXTENSION_AMD_LOADER && major == 1 && minor >= kRangeMinor &&
      !DisabledByEnvironment()) {
    PatchLoaderTable(table, RealCreateFromRange(next));
  }
  return status;
}

hsa_status_t hsa_system_get_major_extension_table(const HookedCalls& next, uint16_t extension,
                                                  uint16_t major, size_t table_bytes, void* table) {
  hsa_status_t status =
      Forward(next.hsa_system_get_major_extension_table, extension, major, table_bytes, table);
  if (status == HSA_STATUS_SUCCESS && t_depth == 0 && table &&
      extension == HSA_EXTENSION_AMD_LOADER && major == 1 &&
      table_bytes >= kRangeOffset + sizeof(CreateFromRange) && !DisabledByEnvironment()) {
    PatchLoaderTable(table, RealCreateFromRange(next));
  }
  return status;
}

// hsa_init is counted, so this may or may not be the end of the runtime and of
// the counters' memory.
hsa_status_t hsa_shut_down(const HookedCalls& next) {
  Runtime* runtime = t_depth == 0 ? Runtime::Existing() : nullptr;
  if (!runtime) return Forward(next.hsa_shut_down);
  {
    HostUntouched untouched;
    try {
      runtime->loads.DrainRings();
      runtime->reporter.Enqueue(runtime->loads.SnapshotChanged());
    } catch (const std::exception&) {
    }
    runtime->beside.Hold(true);
    runtime->loads.HoldReads(true);
  }
  hsa_status_t status = Forward(next.hsa_shut_down);
  HostUntouched untouched;
  Inside inside;
  if (!RuntimeIsUp(Helpers())) {
    try {
      runtime->beside.RuntimeIsGone();
      FinishLoads(*runtime, runtime->loads.TakeAll(), /*runtime_is_up=*/false);
    } catch (const std::exception&) {
    }
  }
  runtime->loads.HoldReads(false);
  runtime->beside.Hold(false);
  return status;
}

}  // namespace rjdbi::agent::hooks
