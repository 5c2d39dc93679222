// What load_bench runs: loads a code object into the real ROCR, N times.
//
//   load_program FILE N
//
// Prints a line per load, in nanoseconds: reader, executable, load and freeze
// together; then destruction. The bytes are read once, before.
#include <hsa/hsa.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

void Check(hsa_status_t status, const char* what) {
  if (status == HSA_STATUS_SUCCESS) return;
  std::fprintf(stderr, "load_program: %s: status 0x%x\n", what, static_cast<unsigned>(status));
  std::exit(1);
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

long long Nanoseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

void LoadOnce(hsa_agent_t gpu, const std::vector<char>& bytes) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  Check(hsa_code_object_reader_create_from_memory(bytes.data(), bytes.size(), &reader), "reader");
  Check(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT,
                                  nullptr, &executable),
        "executable");
  Check(hsa_executable_load_agent_code_object(executable, gpu, reader, nullptr, nullptr), "load");
  Check(hsa_executable_freeze(executable, nullptr), "freeze");
  const auto loaded = Clock::now();
  Check(hsa_executable_destroy(executable), "destroy");
  Check(hsa_code_object_reader_destroy(reader), "reader destroy");
  std::printf("%lld %lld\n", Nanoseconds(loaded - start), Nanoseconds(Clock::now() - loaded));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FILE N\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  hsa_agent_t gpu{};
  Check(hsa_init(), "hsa_init");
  if (hsa_iterate_agents(FindGpu, &gpu) != HSA_STATUS_INFO_BREAK) {
    std::fprintf(stderr, "load_program: no GPU\n");
    return 1;
  }
  for (int i = 0; i < std::atoi(argv[2]); ++i) LoadOnce(gpu, bytes);
  hsa_shut_down();
  return 0;
}
