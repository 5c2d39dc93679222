// Bookkeeping of what is loaded; see loaded_objects.h.
#include "agent/loaded_objects.h"

#include <utility>

#include "agent/sha256.h"

namespace rjdbi::agent {
namespace {

using LoaderTable = hsa_ven_amd_loader_1_01_pfn_t;

template <typename T>
bool LoaderInfo(const LoaderTable& loader, hsa_loaded_code_object_t loaded,
                hsa_ven_amd_loader_loaded_code_object_info_t what, T* value) {
  static_assert(sizeof(T) == sizeof(uint64_t));
  return loader.hsa_ven_amd_loader_loaded_code_object_get_info(loaded, what, value) ==
         HSA_STATUS_SUCCESS;
}

hsa_status_t TakeLast(hsa_executable_t, hsa_loaded_code_object_t loaded, void* data) {
  *static_cast<hsa_loaded_code_object_t*>(data) = loaded;
  return HSA_STATUS_SUCCESS;
}

}  // namespace

bool FindPlace(const LiveCalls& hsa, hsa_executable_t executable, hsa_loaded_code_object_t loaded,
               LoadPlace* place) {
  LoaderTable loader{};
  if (!hsa.complete() ||
      hsa.hsa_system_get_major_extension_table(HSA_EXTENSION_AMD_LOADER, 1, sizeof loader,
                                               &loader) != HSA_STATUS_SUCCESS ||
      !loader.hsa_ven_amd_loader_loaded_code_object_get_info ||
      !loader.hsa_ven_amd_loader_executable_iterate_loaded_code_objects) {
    return false;
  }
  if (loaded.handle == 0) {
    loader.hsa_ven_amd_loader_executable_iterate_loaded_code_objects(executable, &TakeLast,
                                                                     &loaded);
  }
  return loaded.handle != 0 &&
         LoaderInfo(loader, loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_DELTA,
                    &place->delta) &&
         LoaderInfo(loader, loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_BASE,
                    &place->base) &&
         LoaderInfo(loader, loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_SIZE,
                    &place->size);
}

bool ReadObjectAgain(const LoadedObject& object, OwnedBytes* bytes, std::string* why) {
  if (!ReadAgain(object.again, object.size, bytes, why)) return false;
  if (Sha256(bytes->view()) == object.digest) return true;
  *why = "what is there now is not what was loaded";
  return false;
}

void LoadedObjects::Add(LoadedObject object) {
  std::lock_guard lock(mutex_);
  const uint64_t load_id = object.load_id;
  objects_.insert_or_assign(load_id, std::move(object));
}

std::vector<LoadedObject> LoadedObjects::All() {
  std::lock_guard lock(mutex_);
  std::vector<LoadedObject> all;
  all.reserve(objects_.size());
  for (const auto& [load_id, object] : objects_) all.push_back(object);
  return all;
}

bool LoadedObjects::Find(uint64_t load_id, LoadedObject* object) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(load_id);
  if (found == objects_.end()) return false;
  *object = found->second;
  return true;
}

bool LoadedObjects::SetGeneration(uint64_t load_id, uint64_t generation, uint64_t session) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(load_id);
  if (found == objects_.end()) return false;
  found->second.generation = generation;
  found->second.session = session;
  return true;
}

void LoadedObjects::ForgetOtherSessions(uint64_t session) {
  std::lock_guard lock(mutex_);
  for (auto& [load_id, object] : objects_) {
    if (object.session != session) object.generation = 0;
  }
}

std::vector<LoadedObject> LoadedObjects::Take(uint64_t executable) {
  std::lock_guard lock(mutex_);
  std::vector<LoadedObject> taken;
  for (auto at = objects_.begin(); at != objects_.end();) {
    if (at->second.executable.handle != executable) {
      ++at;
      continue;
    }
    taken.push_back(std::move(at->second));
    at = objects_.erase(at);
  }
  return taken;
}

void LoadedObjects::Clear() {
  std::lock_guard lock(mutex_);
  objects_.clear();
}

size_t LoadedObjects::size() {
  std::lock_guard lock(mutex_);
  return objects_.size();
}

}  // namespace rjdbi::agent
