// Finding the real HSA calls; see hsa_api.h.
#include "agent/hsa_api.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>

namespace rjdbi::agent {
namespace {

std::atomic<const HelperCalls*> g_table_helpers{nullptr};
std::atomic<const LiveCalls*> g_table_live{nullptr};

constexpr size_t kMaxPath = 4096;

// A copy of ROCR bundled with a framework may have another file name.
int FindRocrPath(dl_phdr_info* info, size_t, void* data) {
  if (!info->dlpi_name || !std::strstr(info->dlpi_name, "libhsa-runtime64")) return 0;
  auto* path = static_cast<char*>(data);
  const size_t size = std::strlen(info->dlpi_name) + 1;
  if (size > kMaxPath) return 0;
  std::memcpy(path, info->dlpi_name, size);
  return 1;
}

// ROCR when it is loaded outside the global scope, as Python extensions do:
// their references bind to a preloaded agent, but RTLD_NEXT does not see ROCR.
void* LoadedRocr() {
  static std::atomic<void*> cached{nullptr};
  if (void* handle = cached.load()) return handle;
  void* handle = dlopen("libhsa-runtime64.so.1", RTLD_LAZY | RTLD_NOLOAD);
  char path[kMaxPath];
  if (!handle && dl_iterate_phdr(&FindRocrPath, path) == 1) {
    handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  }
  cached.store(handle);
  return handle;
}

void* FindRocrSymbol(const char* name) {
  if (void* symbol = dlsym(RTLD_NEXT, name)) return symbol;
  void* rocr = LoadedRocr();
  return rocr ? dlsym(rocr, name) : nullptr;
}

// Written at most once, by one of the threads that find it empty: the others go
// on to read it as a plain pointer.
template <typename F>
void Resolve(F* pointer, const char* name) {
  F known = __atomic_load_n(pointer, __ATOMIC_ACQUIRE);
  if (known) return;
  F found = reinterpret_cast<F>(FindRocrSymbol(name));
  if (!found) return;
  __atomic_compare_exchange_n(pointer, &known, found, /*weak=*/false, __ATOMIC_ACQ_REL,
                              __ATOMIC_ACQUIRE);
}

}  // namespace

bool HelperCalls::complete() const {
  bool all = true;
#define RJDBI_CHECK(name) all = all && (name);
  RJDBI_CORE_HELPERS(RJDBI_CHECK)
  RJDBI_AMD_HELPERS(RJDBI_CHECK)
#undef RJDBI_CHECK
  return all;
}

bool LiveCalls::complete() const {
  bool all = hsa_amd_queue_intercept_create && hsa_amd_queue_intercept_register;
#define RJDBI_CHECK(name) all = all && (name);
  RJDBI_LIVE_CORE_CALLS(RJDBI_CHECK)
#undef RJDBI_CHECK
  return all;
}

const HookedCalls& DynamicCalls() {
  static constinit HookedCalls calls;
#define RJDBI_RESOLVE(name) Resolve(&calls.name, #name);
  RJDBI_HOOKED_CALLS(RJDBI_RESOLVE)
  return calls;
}

HelperCalls Helpers() {
  const HelperCalls* table = g_table_helpers.load();
  if (table && table->complete()) return *table;
  HelperCalls calls;
#define RJDBI_FIND(name) Resolve(&calls.name, #name);
  RJDBI_CORE_HELPERS(RJDBI_FIND)
  RJDBI_AMD_HELPERS(RJDBI_FIND)
#undef RJDBI_FIND
  return calls;
}

LiveCalls Live() {
  const LiveCalls* table = g_table_live.load();
  return table ? *table : LiveCalls();
}

void SetTableLiveCalls(const LiveCalls* calls) { g_table_live.store(calls); }

void SetTableHelpers(const HelperCalls* helpers) { g_table_helpers.store(helpers); }

}  // namespace rjdbi::agent
