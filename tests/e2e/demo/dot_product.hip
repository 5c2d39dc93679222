// The demo's workload: a dot product whose workgroups reduce in LDS. Prints one
// line that depends on every result, so that two runs can be compared.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                      \
  do {                                                                   \
    const hipError_t error = (call);                                     \
    if (error != hipSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, hipGetErrorString(error)); \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

constexpr int kGroup = 256;

__global__ void dot_product(const float* a, const float* b, float* partial, int n) {
  __shared__ float sums[kGroup];
  float sum = 0;
  for (int i = blockIdx.x * kGroup + threadIdx.x; i < n; i += gridDim.x * kGroup)
    sum += a[i] * b[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kGroup / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

int main() {
  const int n = 100000, groups = 32;
  std::vector<float> a(n), b(n), partial(groups);
  for (int i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i % 97) * 0.25f;
    b[i] = 1.0f / static_cast<float>(1 + i % 13);
  }
  float *da, *db, *dp;
  CHECK(hipMalloc(&da, n * sizeof(float)));
  CHECK(hipMalloc(&db, n * sizeof(float)));
  CHECK(hipMalloc(&dp, groups * sizeof(float)));
  CHECK(hipMemcpy(da, a.data(), n * sizeof(float), hipMemcpyHostToDevice));
  CHECK(hipMemcpy(db, b.data(), n * sizeof(float), hipMemcpyHostToDevice));
  dot_product<<<groups, kGroup>>>(da, db, dp, n);
  CHECK(hipGetLastError());
  CHECK(hipMemcpy(partial.data(), dp, groups * sizeof(float), hipMemcpyDeviceToHost));
  double total = 0;
  uint64_t hash = 0xcbf29ce484222325u;
  for (float value : partial) {
    total += value;
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3u;
  }
  std::printf("dot product %.3f, checksum of all partial sums %016llx\n", total,
              static_cast<unsigned long long>(hash));
  return 0;
}
