// Loads code objects into the real ROCR and freezes them: load_images FILE...
// Prints a line per file, "LOADED file kernels=N"; exits 1 if any is refused.
#include <hsa/hsa.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

std::string Text(hsa_status_t status) {
  const char* text = "unknown status";
  hsa_status_string(status, &text);
  return text;
}

hsa_status_t FindGpu(hsa_agent_t agent, void* data) {
  hsa_device_type_t type;
  if (hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type) != HSA_STATUS_SUCCESS ||
      type != HSA_DEVICE_TYPE_GPU) {
    return HSA_STATUS_SUCCESS;
  }
  *static_cast<hsa_agent_t*>(data) = agent;
  return HSA_STATUS_INFO_BREAK;
}

hsa_status_t CountKernel(hsa_executable_t, hsa_agent_t, hsa_executable_symbol_t symbol,
                         void* data) {
  hsa_symbol_kind_t kind;
  hsa_status_t status =
      hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_TYPE, &kind);
  if (status == HSA_STATUS_SUCCESS && kind == HSA_SYMBOL_KIND_KERNEL) {
    uint64_t object = 0;
    status =
        hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object);
    if (object != 0) ++*static_cast<int*>(data);
  }
  return status;
}

// Returns the number of kernels, or -1 with *error set.
int Load(hsa_agent_t gpu, const std::vector<char>& bytes, std::string* error) {
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  hsa_status_t status =
      hsa_code_object_reader_create_from_memory(bytes.data(), bytes.size(), &reader);
  if (status == HSA_STATUS_SUCCESS) {
    status = hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                       nullptr, &executable);
  }
  if (status == HSA_STATUS_SUCCESS) {
    status = hsa_executable_load_agent_code_object(executable, gpu, reader, nullptr, nullptr);
  }
  if (status == HSA_STATUS_SUCCESS) status = hsa_executable_freeze(executable, nullptr);
  int kernels = 0;
  if (status == HSA_STATUS_SUCCESS) {
    status = hsa_executable_iterate_agent_symbols(executable, gpu, CountKernel, &kernels);
  }
  if (status != HSA_STATUS_SUCCESS) {
    *error = Text(status);
    return -1;
  }
  hsa_executable_destroy(executable);
  hsa_code_object_reader_destroy(reader);
  return kernels;
}

}  // namespace

int main(int argc, char** argv) {
  hsa_agent_t gpu{};
  if (hsa_init() != HSA_STATUS_SUCCESS ||
      hsa_iterate_agents(FindGpu, &gpu) != HSA_STATUS_INFO_BREAK) {
    std::fprintf(stderr, "load_images: no GPU\n");
    return 1;
  }
  int refused = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::string error;
    const int kernels = Load(gpu, bytes, &error);
    if (kernels >= 0) {
      std::printf("LOADED %s kernels=%d\n", argv[i], kernels);
    } else {
      std::printf("REFUSED %s %s\n", argv[i], error.c_str());
      ++refused;
    }
  }
  hsa_shut_down();
  return refused == 0 ? 0 : 1;
}
