// Every code object that is loaded in this process, whether as it was or patched: what
// it is, where ROCR has put it, and where its bytes can be read once more, so that an
// image can be made to stand beside it while it runs.
//
// No copies are kept. What was read from memory may be gone when it is wanted, and what
// was read from a file may be another file by then; the hash tells.
#ifndef RJDBI_AGENT_LOADED_OBJECTS_H_
#define RJDBI_AGENT_LOADED_OBJECTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "agent/hsa_api.h"
#include "agent/reader_registry.h"
#include "agent/types.h"

namespace rjdbi::agent {

// Where ROCR has loaded a code object.
struct LoadPlace {
  uint64_t delta = 0;  // what is added to the object's addresses
  uint64_t base = 0;   // the first address
  uint64_t size = 0;   // bytes

  // Whether a kernel descriptor may lie there.
  bool HoldsDescriptor(uint64_t address) const {
    return size >= kDescriptorBytes && address >= base &&
           address - base <= size - kDescriptorBytes && address % kDescriptorBytes == 0;
  }
  bool Holds(uint64_t address) const { return address >= base && address - base < size; }
};

// Asks ROCR's loader. `loaded` with a handle of 0 stands for what the executable has
// loaded last. False: it does not say.
bool FindPlace(const LiveCalls& hsa, hsa_executable_t executable, hsa_loaded_code_object_t loaded,
               LoadPlace* place);

struct LoadedObject {
  uint64_t load_id = 0;
  Sha256Digest digest{};
  uint64_t size = 0;  // bytes
  std::string origin;
  std::string isa;
  uint32_t gpu_node = 0;
  hsa_agent_t agent{};
  hsa_executable_t executable{};
  ByteOrigin again;
  LoadPlace place;
  bool patched = false;  // what is loaded is not the object itself
  // The attachments that it is as they want it to be, as rpc Watch numbers them; 0: not
  // known.
  uint64_t generation = 0;
  uint64_t session = 0;  // number of the daemon's session that said so
};

// The bytes, once more: false, with a reason, when they are not those that were loaded.
bool ReadObjectAgain(const LoadedObject& object, OwnedBytes* bytes, std::string* why);

// Thread-safe; may throw std::bad_alloc.
class LoadedObjects {
 public:
  void Add(LoadedObject object);
  // In the order of loading.
  std::vector<LoadedObject> All();
  bool Find(uint64_t load_id, LoadedObject* object);
  // False: it is not loaded any more.
  bool SetGeneration(uint64_t load_id, uint64_t generation, uint64_t session);
  // Nothing is known to be in place but what this session has said.
  void ForgetOtherSessions(uint64_t session);
  // Takes an executable's objects out.
  std::vector<LoadedObject> Take(uint64_t executable);
  void Clear();
  size_t size();

 private:
  std::mutex mutex_;
  std::map<uint64_t, LoadedObject> objects_;  // by load id
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_LOADED_OBJECTS_H_
