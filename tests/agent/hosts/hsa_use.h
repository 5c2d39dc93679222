// The least a host does to use the GPU: initialise HSA, load a code object from
// memory and freeze it (which makes ROCR run a copy kernel), and unload it.
#ifndef RJDBI_TESTS_AGENT_HOSTS_HSA_USE_H_
#define RJDBI_TESTS_AGENT_HOSTS_HSA_USE_H_

#include <hsa/hsa.h>

#include <fstream>
#include <iterator>
#include <vector>

class HsaUse {
 public:
  explicit HsaUse(const char* code_object) {
    std::ifstream file(code_object, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  bool Init() {
    if (hsa_init() != HSA_STATUS_SUCCESS) return false;
    auto visit = [](hsa_agent_t agent, void* data) {
      hsa_device_type_t type;
      hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
      if (type != HSA_DEVICE_TYPE_GPU) return HSA_STATUS_SUCCESS;
      *static_cast<hsa_agent_t*>(data) = agent;
      return HSA_STATUS_INFO_BREAK;
    };
    hsa_iterate_agents(visit, &gpu_);
    return gpu_.handle != 0;
  }

  bool Load() {
    return hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                     nullptr, &executable_) == HSA_STATUS_SUCCESS &&
           hsa_code_object_reader_create_from_memory(bytes_.data(), bytes_.size(), &reader_) ==
               HSA_STATUS_SUCCESS &&
           hsa_executable_load_agent_code_object(executable_, gpu_, reader_, nullptr, nullptr) ==
               HSA_STATUS_SUCCESS &&
           hsa_executable_freeze(executable_, nullptr) == HSA_STATUS_SUCCESS;
  }

  bool Unload() {
    return hsa_executable_destroy(executable_) == HSA_STATUS_SUCCESS &&
           hsa_code_object_reader_destroy(reader_) == HSA_STATUS_SUCCESS;
  }

 private:
  std::vector<char> bytes_;
  hsa_agent_t gpu_{};
  hsa_executable_t executable_{};
  hsa_code_object_reader_t reader_{};
};

#endif  // RJDBI_TESTS_AGENT_HOSTS_HSA_USE_H_
