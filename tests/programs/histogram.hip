// Histogram: atomics in LDS within a workgroup, then in global memory.
#include "tests/programs/hip_check.h"

constexpr int kBins = 256;
constexpr int kGroup = 256;

__global__ void Histogram(const unsigned char* in, int n, unsigned* bins, unsigned* maximum) {
  __shared__ unsigned local[kBins];
  local[threadIdx.x] = 0;
  __syncthreads();
  const int stride = gridDim.x * kGroup;
  for (int i = blockIdx.x * kGroup + threadIdx.x; i < n; i += stride) atomicAdd(&local[in[i]], 1u);
  __syncthreads();
  const unsigned count = local[threadIdx.x];
  if (count != 0) atomicAdd(&bins[threadIdx.x], count);
  atomicMax(maximum, count);
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 30000);
  constexpr int kGroups = 6;
  std::vector<unsigned char> in(n);
  uint32_t state = 12345;
  for (int i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    in[i] = static_cast<unsigned char>((state >> 24) & (state >> 16));
  }
  std::vector<unsigned> want(kBins);
  std::vector<std::vector<unsigned>> per_group(kGroups, std::vector<unsigned>(kBins));
  for (int i = 0; i < n; ++i) {
    ++want[in[i]];
    ++per_group[i / kGroup % kGroups][in[i]];
  }
  std::vector<unsigned> want_maximum(1);
  for (const auto& group : per_group) {
    for (unsigned count : group) want_maximum[0] = std::max(want_maximum[0], count);
  }
  DeviceBuffer<unsigned char> din(in);
  DeviceBuffer<unsigned> bins(kBins), maximum(1);
  bins.Zero();
  maximum.Zero();
  Histogram<<<kGroups, kGroup>>>(din.get(), n, bins.get(), maximum.get());
  HIP_CHECK(hipGetLastError());
  Verdict verdict;
  verdict.Expect("bins", bins.Download(), want);
  verdict.Expect("maximum", maximum.Download(), want_maximum);
  return verdict.Finish();
}
