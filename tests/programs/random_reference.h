// Host definitions of rocRAND's pseudo-random generators, from their published
// recurrences: Philox4x32-10 (Salmon et al., 2011), XORWOW (Marsaglia, 2003) and
// MRG32k3a (L'Ecuyer, 1999). Jumps are made with matrix powers computed here,
// not with the library's precomputed tables.
//
// How rocRAND 5.3 deals the streams out to the output array:
//   Philox    output word k is word k of one sequence;
//   the other two have 2^17 engines, engine i being i subsequences into the
//   sequence: 2^67 words each for XORWOW, 2^76 for MRG32k3a. Results come from consecutive engines
//   (modulo 2^17), one result from each; a call goes on with the engine after the last one used.
#ifndef TESTS_PROGRAMS_RANDOM_REFERENCE_H_
#define TESTS_PROGRAMS_RANDOM_REFERENCE_H_

#include <array>
#include <cstdint>
#include <vector>

namespace reference {

constexpr int kEngines = 1 << 17;

class Philox {
 public:
  explicit Philox(uint64_t seed) : key_{uint32_t(seed), uint32_t(seed >> 32)} {}

  uint32_t Next() {
    if (position_ % 4 == 0) block_ = Block(position_ / 4);
    return block_[position_++ % 4];
  }

 private:
  std::array<uint32_t, 4> Block(uint64_t counter) const {
    std::array<uint32_t, 4> c = {uint32_t(counter), uint32_t(counter >> 32), 0, 0};
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xd2511f53} * c[0];
      const uint64_t p1 = uint64_t{0xcd9e8d57} * c[2];
      c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1,
           uint32_t(p0)};
      k0 += 0x9e3779b9;
      k1 += 0xbb67ae85;
    }
    return c;
  }

  uint32_t key_[2];
  uint64_t position_ = 0;
  std::array<uint32_t, 4> block_ = {};
};

class Xorwow {
 public:
  explicit Xorwow(uint64_t seed) {
    const uint32_t t0 = 1228688033u * (uint32_t(seed) ^ 0x2c7f967fu);
    const uint32_t t1 = 2073658381u * (uint32_t(seed >> 32) ^ 0xa03697cbu);
    x_ = {123456789u + t0, 362436069u ^ t0, 521288629u + t1, 88675123u ^ t1, 5783321u + t0};
    weyl_ = 6615241u + t1 + t0;
  }

  uint32_t Next() {
    Step(&x_);
    weyl_ += 362437;
    return weyl_ + x_[4];
  }

  // 2^67 words ahead. The Weyl part is unchanged: 2^32 divides 2^67.
  void NextSubsequence() {
    static const Matrix jump = SubsequenceJump();
    x_ = Apply(jump, x_);
  }

 private:
  using Words = std::array<uint32_t, 5>;
  using Matrix = std::vector<Words>;  // images of the 160 unit vectors

  static void Step(Words* x) {
    const uint32_t t = (*x)[0] ^ ((*x)[0] >> 2);
    const uint32_t last = (*x)[4];
    *x = {(*x)[1], (*x)[2], (*x)[3], last, (last ^ (last << 4)) ^ (t ^ (t << 1))};
  }
  static Words Apply(const Matrix& m, const Words& v) {
    Words r = {};
    for (int bit = 0; bit < 160; ++bit) {
      if ((v[bit / 32] >> (bit % 32) & 1) == 0) continue;
      for (int i = 0; i < 5; ++i) r[i] ^= m[bit][i];
    }
    return r;
  }
  static Matrix SubsequenceJump() {
    Matrix m(160);
    for (int bit = 0; bit < 160; ++bit) {
      m[bit][bit / 32] = 1u << (bit % 32);
      Step(&m[bit]);
    }
    for (int i = 0; i < 67; ++i) {
      Matrix square(160);
      for (int bit = 0; bit < 160; ++bit) square[bit] = Apply(m, m[bit]);
      m = square;
    }
    return m;
  }

  Words x_;
  uint32_t weyl_;
};

class Mrg32k3a {
 public:
  static constexpr uint64_t kM1 = 4294967087, kM2 = 4294944443;

  explicit Mrg32k3a(uint64_t seed) {
    const uint32_t x = uint32_t(seed) ^ 0x55555555u;
    const uint32_t y = uint32_t(seed >> 32) ^ 0xaaaaaaaau;
    g1_ = {Multiply(x, seed, kM1), Multiply(y, seed, kM1), Multiply(x, seed, kM1)};
    g2_ = {Multiply(y, seed, kM2), Multiply(x, seed, kM2), Multiply(y, seed, kM2)};
  }

  // In [1, kM1].
  uint32_t Next() {
    g1_ = Apply(kStep1, g1_, kM1);
    g2_ = Apply(kStep2, g2_, kM2);
    const uint64_t p1 = g1_[2], p2 = g2_[2];
    return uint32_t(p1 > p2 ? p1 - p2 : p1 + kM1 - p2);
  }

  void NextSubsequence() {
    static const Matrix jump1 = SubsequenceJump(kStep1, kM1);
    static const Matrix jump2 = SubsequenceJump(kStep2, kM2);
    g1_ = Apply(jump1, g1_, kM1);
    g2_ = Apply(jump2, g2_, kM2);
  }

 private:
  using Vector = std::array<uint64_t, 3>;
  using Matrix = std::array<Vector, 3>;
  static constexpr Matrix kStep1 = {{{0, 1, 0}, {0, 0, 1}, {kM1 - 810728, 1403580, 0}}};
  static constexpr Matrix kStep2 = {{{0, 1, 0}, {0, 0, 1}, {kM2 - 1370589, 0, 527612}}};

  static uint64_t Multiply(uint64_t a, uint64_t b, uint64_t m) {
    return uint64_t((unsigned __int128)(a)*b % m);
  }
  static Vector Apply(const Matrix& a, const Vector& v, uint64_t m) {
    Vector r = {};
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) r[i] = (r[i] + Multiply(a[i][k], v[k], m)) % m;
    }
    return r;
  }
  static Matrix SubsequenceJump(Matrix a, uint64_t m) {
    for (int n = 0; n < 76; ++n) {
      Matrix square = {};
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
          for (int k = 0; k < 3; ++k) {
            square[i][j] = (square[i][j] + Multiply(a[i][k], a[k][j], m)) % m;
          }
        }
      }
      a = square;
    }
    return a;
  }

  Vector g1_, g2_;
};

// One sequence.
class PhiloxStream {
 public:
  explicit PhiloxStream(uint64_t seed) : engine_(seed) {}
  std::vector<uint32_t> Take(int results, int words_each) {
    std::vector<uint32_t> words(results * words_each);
    for (uint32_t& w : words) w = engine_.Next();
    return words;
  }

 private:
  Philox engine_;
};

// Many engines; see the top of the file. Engines are made as they are needed.
template <typename Engine>
class EngineStream {
 public:
  explicit EngineStream(uint64_t seed) : engines_(1, Engine(seed)), frontier_(seed) {}
  std::vector<uint32_t> Take(int results, int words_each) {
    std::vector<uint32_t> words;
    for (int i = 0; i < results; ++i) {
      Engine& engine = At(next_);
      for (int w = 0; w < words_each; ++w) words.push_back(engine.Next());
      next_ = (next_ + 1) % kEngines;
    }
    return words;
  }

 private:
  Engine& At(int i) {
    while (static_cast<int>(engines_.size()) <= i) {
      frontier_.NextSubsequence();
      engines_.push_back(frontier_);
    }
    return engines_[i];
  }

  std::vector<Engine> engines_;
  Engine frontier_;  // the latest engine, not advanced
  int next_ = 0;
};

}  // namespace reference

#endif  // TESTS_PROGRAMS_RANDOM_REFERENCE_H_
