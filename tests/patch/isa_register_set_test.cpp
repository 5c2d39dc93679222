// Register names and set printing: messages and the other tests rely on them.
#include "patch/isa/register_set.h"

#include <gtest/gtest.h>

#include <set>

namespace rjdbi::patch {
namespace {

TEST(RegisterSet, Printing) {
  RegisterSet set;
  EXPECT_EQ(set.ToString(), "");
  set.Add(kSgpr0, 4);
  set.Add(kVccLo, 2);
  set.Add(kVgpr0 + 7);
  EXPECT_EQ(set.ToString(), "s0-s3 vcc v7");
  set.Remove(kVccHi);
  set.Add(kExecHi);
  set.Add(kVgpr0 + 255);
  set.Add(kAgpr0);
  EXPECT_EQ(set.ToString(), "s0-s3 vcc_lo exec_hi v7 v255 a0");
}

TEST(RegisterSet, Algebra) {
  RegisterSet a, b;
  a.Add(kSgpr0, 3);
  b.Add(kSgpr0 + 2, 3);
  EXPECT_EQ((a | b).Count(), 5u);
  EXPECT_EQ((a & b).ToString(), "s2");
  EXPECT_EQ((a - b).ToString(), "s0-s1");
  EXPECT_TRUE(a.HasAny(kSgpr0 + 2, 2));
  EXPECT_FALSE(a.HasAny(kSgpr0 + 3, 2));
}

TEST(RegisterSet, EveryNumberedRegisterHasItsOwnName) {
  std::set<std::string> names;
  for (uint16_t reg = 0; reg < kNumRegisters; ++reg) names.insert(RegisterName(reg));
  EXPECT_EQ(names.size(), size_t{kNumRegisters});
}

}  // namespace
}  // namespace rjdbi::patch
