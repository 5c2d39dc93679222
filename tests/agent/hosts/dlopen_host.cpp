// A host that knows ROCR only through dlopen(RTLD_LOCAL) and dlsym, as language
// bindings do: dlopen_host CODE_OBJECT. Exit status 0 is success.
#include <dlfcn.h>
#include <hsa/hsa.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

int Fail(const char* what) {
  std::fprintf(stderr, "dlopen_host: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return Fail("usage: CODE_OBJECT");
  void* rocr = dlopen("libhsa-runtime64.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!rocr) return Fail(dlerror());
#define CALL(name) reinterpret_cast<decltype(&::name)>(dlsym(rocr, #name))
  if (CALL(hsa_init)() != HSA_STATUS_SUCCESS) return Fail("init");
  hsa_agent_t gpu{};
  auto visit = [](hsa_agent_t agent, void* data) {
    *static_cast<hsa_agent_t*>(data) = agent;  // the last one: GPUs come after CPUs
    return HSA_STATUS_SUCCESS;
  };
  CALL(hsa_iterate_agents)(visit, &gpu);
  std::ifstream file(argv[1], std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  hsa_executable_t executable;
  hsa_code_object_reader_t reader;
  if (CALL(hsa_executable_create_alt)(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                      nullptr, &executable) != HSA_STATUS_SUCCESS ||
      CALL(hsa_code_object_reader_create_from_memory)(bytes.data(), bytes.size(), &reader) !=
          HSA_STATUS_SUCCESS ||
      CALL(hsa_executable_load_agent_code_object)(executable, gpu, reader, nullptr, nullptr) !=
          HSA_STATUS_SUCCESS ||
      CALL(hsa_executable_freeze)(executable, nullptr) != HSA_STATUS_SUCCESS) {
    return Fail("load");
  }
  if (CALL(hsa_executable_destroy)(executable) != HSA_STATUS_SUCCESS ||
      CALL(hsa_shut_down)() != HSA_STATUS_SUCCESS) {
    return Fail("unload");
  }
  std::puts("PASS");
  return 0;
}
