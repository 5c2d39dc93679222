// What the HIP test programs share: error checks, device buffers, and the
// one-line verdict "PASS <checksum of all result bytes>".
#ifndef TESTS_PROGRAMS_HIP_CHECK_H_
#define TESTS_PROGRAMS_HIP_CHECK_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define HIP_CHECK(call)                                                  \
  do {                                                                   \
    const hipError_t hip_check_error = (call);                           \
    if (hip_check_error != hipSuccess) {                                 \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   hipGetErrorString(hip_check_error));                  \
      std::puts("FAIL");                                                 \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

// Makes HIP sleep while it waits; by default it spins, on a core that the soft
// GPU could use. Call first in main.
inline void WaitAsleep() { HIP_CHECK(hipSetDeviceFlags(hipDeviceScheduleBlockingSync)); }

// Device memory of n elements.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t n) : size_(n) { HIP_CHECK(hipMalloc(&data_, n * sizeof(T))); }
  explicit DeviceBuffer(const std::vector<T>& from) : DeviceBuffer(from.size()) {
    HIP_CHECK(hipMemcpy(data_, from.data(), size_ * sizeof(T), hipMemcpyHostToDevice));
  }
  ~DeviceBuffer() { HIP_CHECK(hipFree(data_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* get() { return data_; }
  void Zero() { HIP_CHECK(hipMemset(data_, 0, size_ * sizeof(T))); }
  std::vector<T> Download() const {
    std::vector<T> to(size_);
    HIP_CHECK(hipMemcpy(to.data(), data_, size_ * sizeof(T), hipMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Collects results; the checksum (64-bit FNV-1a) covers every byte of them.
class Verdict {
 public:
  // Compares bit for bit. Reports the first difference.
  template <typename T>
  void Expect(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
    Hash(got.data(), got.size() * sizeof(T));
    if (got.size() != want.size()) return Mismatch(what, got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) return Mismatch(what, i);
    }
  }
  // Adds results that the caller has judged itself.
  template <typename T>
  void Judge(const char* what, const std::vector<T>& got, bool good) {
    Hash(got.data(), got.size() * sizeof(T));
    if (!good) Mismatch(what, 0);
  }
  // Prints the verdict; the result is main's.
  int Finish() const {
    if (good_) {
      std::printf("PASS %016llx\n", static_cast<unsigned long long>(hash_));
    } else {
      std::puts("FAIL");
    }
    return good_ ? 0 : 1;
  }

 private:
  void Hash(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3ull;
  }
  void Mismatch(const char* what, size_t at) {
    std::fprintf(stderr, "%s: wrong at element %zu\n", what, at);
    good_ = false;
  }

  bool good_ = true;
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

// The first argument as a positive number, or the default.
inline int SizeArgument(int argc, char** argv, int fallback) {
  if (argc < 2) return fallback;
  const int n = std::atoi(argv[1]);
  if (n > 0) return n;
  std::fprintf(stderr, "usage: %s [size]\n", argv[0]);
  std::exit(2);
}

#endif  // TESTS_PROGRAMS_HIP_CHECK_H_
