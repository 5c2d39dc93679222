// Control flow that differs from lane to lane: loops of unequal length, nested
// branches, a switch, early exit.
#include "tests/programs/hip_check.h"

__host__ __device__ uint32_t Walk(uint32_t seed) {
  uint32_t x = seed + 1, steps = 0, trace = 0;
  while (x != 1 && steps < 200) {  // Collatz
    if (x % 2 == 0) {
      x /= 2;
    } else {
      x = 3 * x + 1;
      if (x % 5 == 0) trace ^= x;
    }
    ++steps;
  }
  switch (seed % 7) {
    case 0:
      trace += steps * 3;
      break;
    case 1:
      for (uint32_t i = 0; i < seed % 13; ++i) {
        if ((trace + i) % 11 == 3) break;
        if (i % 3 == 1) continue;
        trace = trace * 31 + i;
      }
      break;
    case 2:
      return steps;
    case 3:
      trace = ~trace;
      [[fallthrough]];
    case 4:
      trace = (trace << 7) | (trace >> 25);
      break;
    default:
      trace -= seed;
  }
  return trace ^ (steps << 16);
}

__global__ void Divergent(uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = Walk(static_cast<uint32_t>(i));
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 3001);
  std::vector<uint32_t> want(n);
  for (int i = 0; i < n; ++i) want[i] = Walk(static_cast<uint32_t>(i));
  DeviceBuffer<uint32_t> out(static_cast<size_t>(n));
  Divergent<<<(n + 127) / 128, 128>>>(out.get(), n);
  HIP_CHECK(hipGetLastError());
  Verdict verdict;
  verdict.Expect("walk", out.Download(), want);
  return verdict.Finish();
}
