// c = a + b. Argument: number of elements.
#include "tests/programs/hip_check.h"

__global__ void VectorAdd(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 100000);
  std::vector<float> a(n), b(n), want(n);
  for (int i = 0; i < n; ++i) {
    a[i] = 0.5f * static_cast<float>(i % 8191);
    b[i] = 3.0f - static_cast<float>(i % 127) * 0.125f;
    want[i] = a[i] + b[i];
  }
  DeviceBuffer<float> da(a), db(b), dc(static_cast<size_t>(n));
  VectorAdd<<<(n + 255) / 256, 256>>>(da.get(), db.get(), dc.get(), n);
  HIP_CHECK(hipGetLastError());
  Verdict verdict;
  verdict.Expect("sum", dc.Download(), want);
  return verdict.Finish();
}
