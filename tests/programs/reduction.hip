// Tree reduction in LDS: one partial sum a workgroup, barriers between levels.
// The integer sums are order-free; the float sums follow the same tree on the
// host, so both are compared bit for bit.
#include "tests/programs/hip_check.h"

constexpr int kGroup = 256;

template <typename T>
__global__ void Reduce(const T* in, T* out, int n) {
  __shared__ T tile[kGroup];
  const int lane = threadIdx.x;
  const int i = blockIdx.x * kGroup + lane;
  tile[lane] = i < n ? in[i] : T(0);
  __syncthreads();
  for (int half = kGroup / 2; half > 0; half /= 2) {
    if (lane < half) tile[lane] += tile[lane + half];
    __syncthreads();
  }
  if (lane == 0) out[blockIdx.x] = tile[0];
}

template <typename T>
std::vector<T> ReduceOnHost(const std::vector<T>& in) {
  std::vector<T> out;
  for (size_t base = 0; base < in.size(); base += kGroup) {
    T tile[kGroup] = {};
    for (size_t i = 0; i < kGroup && base + i < in.size(); ++i) tile[i] = in[base + i];
    for (int half = kGroup / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) tile[i] += tile[i + half];
    }
    out.push_back(tile[0]);
  }
  return out;
}

template <typename T>
void Check(const char* what, const std::vector<T>& in, Verdict* verdict) {
  const int n = static_cast<int>(in.size());
  const int groups = (n + kGroup - 1) / kGroup;
  DeviceBuffer<T> din(in), dout(static_cast<size_t>(groups));
  Reduce<T><<<groups, kGroup>>>(din.get(), dout.get(), n);
  HIP_CHECK(hipGetLastError());
  verdict->Expect(what, dout.Download(), ReduceOnHost(in));
}

int main(int argc, char** argv) {
  WaitAsleep();
  const int n = SizeArgument(argc, argv, 20000);
  std::vector<uint32_t> integers(n);
  std::vector<float> floats(n);
  for (int i = 0; i < n; ++i) {
    integers[i] = static_cast<uint32_t>(i) * 2654435761u;
    floats[i] = 1.0f / static_cast<float>(1 + i % 1000);
  }
  Verdict verdict;
  Check("integers", integers, &verdict);
  Check("floats", floats, &verdict);
  return verdict.Finish();
}
