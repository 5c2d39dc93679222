// HSA_TOOLS_LIB: ROCR loads the agent as a tool and hands it its API table. This
// reaches hosts that resolve HSA through dlopen and dlsym.
//
// A table's minor_id is its size in the ROCR at hand: an entry beyond it is not
// there. A table of another major version has an unknown layout and is left
// alone (LD_PRELOAD still works).
#define AMD_INTERNAL_BUILD 1  // Debian installs hsa_api_trace.h beside what it includes
#include <dlfcn.h>
#include <hsa_api_trace.h>

#include <cstdint>

#include "agent/config.h"
#include "agent/hooks.h"
#include "agent/hsa_api.h"
#include "agent/runtime.h"

namespace rjdbi::agent {
namespace {

// What the table held before us. Kept after OnUnload: a call may still be on its
// way through a hook.
constinit HookedCalls g_saved;
constinit HelperCalls g_helpers;
constinit LiveCalls g_live;
CoreApiTable* g_core = nullptr;
AmdExtTable* g_amd = nullptr;

template <auto Hook>
struct Thunk;
template <typename... A, hsa_status_t (*Hook)(const HookedCalls&, A...)>
struct Thunk<Hook> {
  static hsa_status_t Call(A... args) { return Hook(g_saved, args...); }
};

template <typename F>
bool Has(const ApiTableVersion& version, const F* entry) {
  auto end = reinterpret_cast<const char*>(entry + 1);
  return end <= reinterpret_cast<const char*>(&version) + version.minor_id && *entry;
}

template <typename F>
void Install(const CoreApiTable& core, F* entry, F ours, F* saved) {
  if (!Has(core.version, entry) || *entry == ours) return;
  *saved = *entry;
  *entry = ours;
}

template <typename F>
void Restore(const CoreApiTable& core, F* entry, F ours, F saved) {
  if (Has(core.version, entry) && *entry == ours) *entry = saved;
}

template <typename F>
void Copy(const ApiTableVersion& version, const F* entry, F* to) {
  if (Has(version, entry)) *to = *entry;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

void CollectHelpers(const HsaApiTable& table) {
#define RJDBI_COPY_CORE(name) Copy(table.core_->version, &table.core_->name##_fn, &g_helpers.name);
#define RJDBI_COPY_AMD(name) \
  Copy(table.amd_ext_->version, &table.amd_ext_->name##_fn, &g_helpers.name);
  RJDBI_CORE_HELPERS(RJDBI_COPY_CORE)
  if (table.amd_ext_ && table.amd_ext_->version.major_id == HSA_AMD_EXT_API_TABLE_MAJOR_VERSION) {
    RJDBI_AMD_HELPERS(RJDBI_COPY_AMD)
    if (table.amd_ext_->hsa_amd_queue_intercept_create_fn !=
        &hooks::hsa_amd_queue_intercept_create) {
      Copy(table.amd_ext_->version, &table.amd_ext_->hsa_amd_queue_intercept_create_fn,
           &g_live.hsa_amd_queue_intercept_create);
    }
    Copy(table.amd_ext_->version, &table.amd_ext_->hsa_amd_queue_intercept_register_fn,
         &g_live.hsa_amd_queue_intercept_register);
  }
#define RJDBI_COPY_LIVE(name) Copy(table.core_->version, &table.core_->name##_fn, &g_live.name);
  RJDBI_LIVE_CORE_CALLS(RJDBI_COPY_LIVE)
#undef RJDBI_COPY_LIVE
#undef RJDBI_COPY_CORE
#undef RJDBI_COPY_AMD
}

void InstallHooks(CoreApiTable* core) {
#define RJDBI_INSTALL(name) \
  Install(*core, &core->name##_fn, &Thunk<&hooks::name>::Call, &g_saved.name);
  RJDBI_HOOKED_CALLS(RJDBI_INSTALL)
#undef RJDBI_INSTALL
}

// Whether a function of the table is still ROCR's own, as far as can be seen. A ROCR that
// comes with a framework may have another file name.
bool IsRocrs(const void* function, const void* sure) {
  Dl_info one{}, other{};
  return dladdr(function, &one) != 0 && dladdr(sure, &other) != 0 &&
         one.dli_fbase == other.dli_fbase;
}

// Tools that are loaded later may make queues with interception: those are seen, too.
void InstallIntercept(AmdExtTable* amd) {
  if (!g_live.hsa_amd_queue_intercept_create) return;
  amd->hsa_amd_queue_intercept_create_fn = &hooks::hsa_amd_queue_intercept_create;
}

void RestoreIntercept(AmdExtTable* amd) {
  if (amd->hsa_amd_queue_intercept_create_fn == &hooks::hsa_amd_queue_intercept_create) {
    amd->hsa_amd_queue_intercept_create_fn = g_live.hsa_amd_queue_intercept_create;
  }
}

void RestoreHooks(CoreApiTable* core) {
#define RJDBI_RESTORE(name) \
  Restore(*core, &core->name##_fn, &Thunk<&hooks::name>::Call, g_saved.name);
  RJDBI_HOOKED_CALLS(RJDBI_RESTORE)
#undef RJDBI_RESTORE
}

#pragma GCC diagnostic pop

bool KnownLayout(const HsaApiTable* table) {
  return table && table->version.major_id == HSA_API_TABLE_MAJOR_VERSION &&
         table->version.minor_id >= offsetof(HsaApiTable, amd_ext_) + sizeof(void*) &&
         table->core_ && table->core_->version.major_id == HSA_CORE_API_TABLE_MAJOR_VERSION;
}

}  // namespace
}  // namespace rjdbi::agent

extern "C" __attribute__((visibility("default"))) bool OnLoad(void* table, uint64_t, uint64_t,
                                                              const char* const*) {
  using namespace rjdbi::agent;
  auto* api = static_cast<HsaApiTable*>(table);
  if (DisabledByEnvironment() || !KnownLayout(api)) return true;
  NoteLoadedThrough(LoadedThrough::kToolsLib);
  CollectHelpers(*api);
  SetTableHelpers(&g_helpers);
  SetTableLiveCalls(&g_live);
  // No tool has a reason to replace this one.
  g_live.others_make_queues =
      g_live.complete() && !IsRocrs(reinterpret_cast<void*>(api->core_->hsa_queue_create_fn),
                                    reinterpret_cast<void*>(api->core_->hsa_status_string_fn));
  InstallHooks(api->core_);
  g_core = api->core_;
  if (g_live.complete()) {
    InstallIntercept(api->amd_ext_);
    g_amd = api->amd_ext_;
  }
  return true;
}

extern "C" __attribute__((visibility("default"))) void OnUnload() {
  using namespace rjdbi::agent;
  SetTableLiveCalls(nullptr);
  if (g_amd) RestoreIntercept(g_amd);
  g_amd = nullptr;
  if (g_core) RestoreHooks(g_core);
  g_core = nullptr;
}
