// A program that runs until it is told to stop, so that probes can be attached to it and
// detached again meanwhile. Commands on standard input, one answer line each:
//
//   run N       N launches of `work`, each checked against the host; "ran N"
//   quit
//
// `work` shares state with the host and with its own earlier launches in every way that
// a code object offers: variables, constants, a table of function pointers, a device
// function that is called. Whoever runs another copy of it must share that, too.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/programs/hip_check.h"

namespace {

constexpr unsigned kLaunch = 256, kWidth = 64;

}  // namespace

__device__ unsigned launches = 0;       // changed by the device
__device__ unsigned added_by_host = 0;  // changed by the host between launches
__constant__ unsigned table[kWidth];

__device__ __noinline__ unsigned Triple(unsigned x) { return 3 * x; }
__device__ __noinline__ unsigned Square(unsigned x) { return x * x; }
using Function = unsigned (*)(unsigned);
__device__ Function functions[2] = {Triple, Square};

__global__ void work(unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) atomicAdd(&launches, 1u);
  out[i] = functions[i % 2](out[i]) + Triple(table[i % kWidth]) + added_by_host;
}

namespace {

struct State {
  unsigned* device = nullptr;
  std::vector<unsigned> expected = std::vector<unsigned>(kLaunch);
  unsigned launched = 0;
};

bool Launch(State& state) {
  const unsigned add = state.launched * 7 + 1;
  HIP_CHECK(hipMemcpyToSymbol(HIP_SYMBOL(added_by_host), &add, sizeof(add)));
  work<<<kLaunch / kWidth, kWidth>>>(state.device);
  HIP_CHECK(hipGetLastError());
  std::vector<unsigned> got(kLaunch);
  HIP_CHECK(hipMemcpy(got.data(), state.device, kLaunch * sizeof(unsigned), hipMemcpyDeviceToHost));
  ++state.launched;
  for (unsigned i = 0; i < kLaunch; ++i) {
    unsigned& e = state.expected[i];
    e = (i % 2 == 0 ? 3 * e : e * e) + 3 * (i % kWidth * 5 + 2) + add;
    if (got[i] != e) {
      std::printf("WRONG launch %u item %u: %u, not %u\n", state.launched, i, got[i], e);
      return false;
    }
  }
  unsigned counted = 0;
  HIP_CHECK(hipMemcpyFromSymbol(&counted, HIP_SYMBOL(launches), sizeof(counted)));
  if (counted != state.launched) {
    std::printf("WRONG the device counts %u launches, not %u\n", counted, state.launched);
    return false;
  }
  return true;
}

}  // namespace

int main() {
  WaitAsleep();
  State state;
  unsigned values[kWidth];
  for (unsigned i = 0; i < kWidth; ++i) values[i] = 5 * i + 2;
  HIP_CHECK(hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof(values)));
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&state.device), kLaunch * sizeof(unsigned)));
  for (unsigned i = 0; i < kLaunch; ++i) state.expected[i] = i;
  HIP_CHECK(hipMemcpy(state.device, state.expected.data(), kLaunch * sizeof(unsigned),
                      hipMemcpyHostToDevice));
  std::puts("ready");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    unsigned n = 0;
    if (std::strcmp(line, "quit\n") == 0) break;
    if (std::sscanf(line, "run %u", &n) != 1) {
      std::puts("unknown command");
      return 1;
    }
    for (unsigned i = 0; i < n; ++i) {
      if (!Launch(state)) return 1;
    }
    std::printf("ran %u\n", n);
    std::fflush(stdout);
  }
  HIP_CHECK(hipFree(state.device));
  std::puts("PASS");
  return 0;
}
