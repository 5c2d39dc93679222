// rocRAND's generators against their definitions: raw words and uniform floats
// bit for bit, normal floats within the precision of the device's sine and
// logarithm. Argument: philox, xorwow or mrg32k3a; without one, all three.
#include <rocrand/rocrand.h>

#include <cmath>
#include <string>

#include "tests/programs/hip_check.h"
#include "tests/programs/random_reference.h"

namespace {

// 32 bits: with more, the MRG32k3a seeding of rocRAND 5.3 overflows.
constexpr uint64_t kSeed = 0x9abcdef1;
constexpr int kCount = 3000;  // even, as rocRAND wants for normals
constexpr float kMean = 1.5f, kDeviation = 2.0f;

#define ROCRAND_CHECK(call)                                              \
  do {                                                                   \
    const rocrand_status rocrand_check_status = (call);                  \
    if (rocrand_check_status != ROCRAND_STATUS_SUCCESS) {                \
      std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, \
                   static_cast<int>(rocrand_check_status));              \
      std::puts("FAIL");                                                 \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

constexpr float kPow32Inverse = 0x1p-32f;
constexpr float kTwoPi = 6.2831855f;

// Words to numbers, as rocRAND defines it for generators of 32-bit words...
struct FullRange {
  static uint32_t Word(uint32_t w) { return w; }
  static float Uniform(uint32_t w) { return kPow32Inverse + static_cast<float>(w) * kPow32Inverse; }
  static float Angle(uint32_t w) {
    const float scale = kPow32Inverse * kTwoPi;
    return scale + static_cast<float>(w) * scale;
  }
};

// ...and for MRG32k3a, whose words are in [1, m1].
struct MrgRange {
  static uint32_t Word(uint32_t w) {
    return static_cast<uint32_t>(static_cast<double>(w - 1) * 1.000000048661607);
  }
  static float Uniform(uint32_t w) {
    return static_cast<float>(static_cast<double>(w) * 2.3283065498378288e-10);
  }
  static float Angle(uint32_t w) { return Uniform(w) * kTwoPi; }
};

// Box-Muller in double precision; the device computes in float with fast sine.
template <typename Range>
bool NormalsMatch(const std::vector<uint32_t>& words, const std::vector<float>& got) {
  for (size_t i = 0; i < got.size(); i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(Range::Uniform(words[i]))));
    const double angle = Range::Angle(words[i + 1]);
    const double want[2] = {kMean + kDeviation * radius * std::sin(angle),
                            kMean + kDeviation * radius * std::cos(angle)};
    for (int k = 0; k < 2; ++k) {
      if (!(std::fabs(got[i + k] - want[k]) < 1e-4)) {
        std::fprintf(stderr, "normal %zu: got %.9g, want %.9g\n", i + k, got[i + k], want[k]);
        return false;
      }
    }
  }
  return true;
}

template <typename Stream, typename Range>
void Check(const std::string& name, rocrand_rng_type type, Verdict* verdict) {
  rocrand_generator generator;
  ROCRAND_CHECK(rocrand_create_generator(&generator, type));
  ROCRAND_CHECK(rocrand_set_seed(generator, kSeed));
  DeviceBuffer<uint32_t> words(kCount);
  DeviceBuffer<float> floats(kCount);
  Stream stream(kSeed);

  ROCRAND_CHECK(rocrand_generate(generator, words.get(), kCount));
  std::vector<uint32_t> want_words;
  for (uint32_t w : stream.Take(kCount, 1)) want_words.push_back(Range::Word(w));
  verdict->Expect((name + " words").c_str(), words.Download(), want_words);

  ROCRAND_CHECK(rocrand_generate_uniform(generator, floats.get(), kCount));
  std::vector<float> want_floats;
  for (uint32_t w : stream.Take(kCount, 1)) want_floats.push_back(Range::Uniform(w));
  verdict->Expect((name + " uniform").c_str(), floats.Download(), want_floats);

  ROCRAND_CHECK(rocrand_generate_normal(generator, floats.get(), kCount, kMean, kDeviation));
  const std::vector<float> normals = floats.Download();
  const bool match = NormalsMatch<Range>(stream.Take(kCount / 2, 2), normals);
  verdict->Judge((name + " normal").c_str(), normals, match);
  ROCRAND_CHECK(rocrand_destroy_generator(generator));
}

}  // namespace

int main(int argc, char** argv) {
  WaitAsleep();
  const std::string which = argc > 1 ? argv[1] : "all";
  Verdict verdict;
  bool known = false;
  auto wanted = [&](const char* name) {
    const bool yes = which == "all" || which == name;
    known |= yes;
    return yes;
  };
  if (wanted("philox")) {
    Check<reference::PhiloxStream, FullRange>("philox", ROCRAND_RNG_PSEUDO_PHILOX4_32_10, &verdict);
  }
  if (wanted("xorwow")) {
    Check<reference::EngineStream<reference::Xorwow>, FullRange>(
        "xorwow", ROCRAND_RNG_PSEUDO_XORWOW, &verdict);
  }
  if (wanted("mrg32k3a")) {
    Check<reference::EngineStream<reference::Mrg32k3a>, MrgRange>(
        "mrg32k3a", ROCRAND_RNG_PSEUDO_MRG32K3A, &verdict);
  }
  if (!known) {
    std::fprintf(stderr, "usage: %s [philox|xorwow|mrg32k3a]\n", argv[0]);
    return 2;
  }
  return verdict.Finish();
}
