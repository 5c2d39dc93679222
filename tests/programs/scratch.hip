// Private memory: an array indexed at run time, and true recursion, whose depth
// differs from lane to lane.
#include "tests/programs/hip_check.h"

constexpr int kSlots = 48;

__host__ __device__ uint32_t Shuffle(uint32_t seed) {
  uint32_t slots[kSlots];
  for (int i = 0; i < kSlots; ++i) slots[i] = seed * 2654435761u + static_cast<uint32_t>(i);
  uint32_t at = seed % kSlots;
  for (int step = 0; step < 64; ++step) {
    slots[at] = slots[at] * 1664525u + 1013904223u + static_cast<uint32_t>(step);
    at = (slots[at] >> 8) % kSlots;
  }
  uint32_t sum = 0;
  for (int i = 0; i < kSlots; ++i) sum = sum * 33 + slots[i];
  return sum;
}

// Ackermann-like: neither a loop nor a tail call will do.
__host__ __device__ __attribute__((noinline)) uint32_t Recurse(uint32_t n, uint32_t mix) {
  if (n < 2) return n + mix;
  const uint32_t left = Recurse(n - 1, mix * 3 + 1);
  const uint32_t right = Recurse(n - 2, mix ^ left);
  return left * 5 + right;
}

__global__ void ArrayKernel(uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Shuffle(static_cast<uint32_t>(i));
}

__global__ void RecursiveKernel(uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Recurse(static_cast<uint32_t>(i) % 7, static_cast<uint32_t>(i));
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 500);
  std::vector<uint32_t> array(n), recursion(n);
  for (int i = 0; i < n; ++i) {
    array[i] = Shuffle(static_cast<uint32_t>(i));
    recursion[i] = Recurse(static_cast<uint32_t>(i) % 7, static_cast<uint32_t>(i));
  }
  DeviceBuffer<uint32_t> out(static_cast<size_t>(n));
  const int groups = (n + 63) / 64;
  Verdict verdict;
  ArrayKernel<<<groups, 64>>>(out.get(), n);
  HIP_CHECK(hipGetLastError());
  verdict.Expect("array", out.Download(), array);
  RecursiveKernel<<<groups, 64>>>(out.get(), n);
  HIP_CHECK(hipGetLastError());
  verdict.Expect("recursion", out.Download(), recursion);
  ArrayKernel<<<groups, 64>>>(out.get(), n);  // after the larger scratch was given back
  HIP_CHECK(hipGetLastError());
  verdict.Expect("array again", out.Download(), array);
  return verdict.Finish();
}
