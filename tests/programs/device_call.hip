// Device functions that are really called: one calls another, and the choice
// between two of them diverges.
#include "tests/programs/hip_check.h"

#define NOINLINE __host__ __device__ __attribute__((noinline))

NOINLINE uint32_t Mix(uint32_t x, uint32_t key) {
  x ^= key;
  x *= 0x85ebca6bu;
  return x ^ (x >> 13);
}

NOINLINE uint32_t MixTwice(uint32_t x, uint32_t key) { return Mix(Mix(x, key), ~key) + 1; }

NOINLINE float Polynomial(float x) { return ((x * 0.5f + 2.0f) * x - 1.0f) * x; }

__host__ __device__ uint32_t Compute(uint32_t i) {
  const uint32_t mixed = i % 3 == 0 ? MixTwice(i, 17) : Mix(i, 29);
  // Exact in float: multiples of 1/2 up to 8.
  const float y = Polynomial(static_cast<float>(mixed % 16) - 8.0f);
  return mixed ^ static_cast<uint32_t>(static_cast<int32_t>(y * 2.0f));
}

__global__ void DeviceCall(uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Compute(static_cast<uint32_t>(i));
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 2000);
  std::vector<uint32_t> want(n);
  for (int i = 0; i < n; ++i) want[i] = Compute(static_cast<uint32_t>(i));
  DeviceBuffer<uint32_t> out(static_cast<size_t>(n));
  DeviceCall<<<(n + 255) / 256, 256>>>(out.get(), n);
  HIP_CHECK(hipGetLastError());
  Verdict verdict;
  verdict.Expect("calls", out.Download(), want);
  return verdict.Finish();
}
