// Access to the objects of samples.cmake, and little-endian patching of copies.
#ifndef TESTS_PATCH_SAMPLE_OBJECTS_H_
#define TESTS_PATCH_SAMPLE_OBJECTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rjdbi::test {

// Every sample of a supported version.
inline constexpr const char* kSamples[] = {"gfx900_v4",  "gfx908_v5",  "gfx90a_v4",
                                           "gfx90a_v5",  "gfx942_v5",  "gfx1010_v5",
                                           "gfx1030_v5", "gfx1100_v5", "gfx1200_v5"};

inline std::vector<uint8_t> ReadSample(const std::string& name) {
  std::ifstream file(std::string(RJDBI_SAMPLE_OBJECTS) + "/" + name + ".co", std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << name;
  return bytes;
}

template <typename T>
void Poke(std::vector<uint8_t>& bytes, uint64_t offset, T value) {
  ASSERT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

template <typename T>
T Peek(const std::vector<uint8_t>& bytes, uint64_t offset) {
  T value = {};
  EXPECT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace rjdbi::test

#endif  // TESTS_PATCH_SAMPLE_OBJECTS_H_
