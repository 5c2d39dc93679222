// Tiled matrix multiply through LDS. The values are small multiples of 1/8, so
// every product and sum is exact in float, in any order.
#include "tests/programs/hip_check.h"

constexpr int kTile = 16;

__global__ void MatMul(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[kTile][kTile];
  __shared__ float tb[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    const bool a_inside = row < n && t + static_cast<int>(threadIdx.x) < n;
    const bool b_inside = column < n && t + static_cast<int>(threadIdx.y) < n;
    ta[threadIdx.y][threadIdx.x] = a_inside ? a[row * n + t + threadIdx.x] : 0;
    tb[threadIdx.y][threadIdx.x] = b_inside ? b[(t + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 50);
  std::vector<float> a(n * n), b(n * n), want(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = 0.125f * static_cast<float>(i * 7 % 31 - 15);
    b[i] = 0.125f * static_cast<float>(i * 11 % 29 - 14);
  }
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      want[row * n + column] = sum;
    }
  }
  DeviceBuffer<float> da(a), db(b), dc(a.size());
  const unsigned groups = (n + kTile - 1) / kTile;
  MatMul<<<dim3(groups, groups), dim3(kTile, kTile)>>>(da.get(), db.get(), dc.get(), n);
  HIP_CHECK(hipGetLastError());
  Verdict verdict;
  verdict.Expect("product", dc.Download(), want);
  return verdict.Finish();
}
