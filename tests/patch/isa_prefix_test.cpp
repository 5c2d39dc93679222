// Isa::Decode takes the shortest prefix that is an instruction, so that what
// follows an instruction cannot matter. LLVM, shown all that follows, has to
// agree: this holds random words, with random words behind them, against it.
#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cstring>
#include <memory>
#include <random>
#include <regex>
#include <string>

#include "llvm/MC/MCInst.h"
#include "llvm/Support/raw_ostream.h"
#include "patch/isa/isa.h"
#include "patch/isa/llvm_target.h"

namespace rjdbi::patch {
namespace {

constexpr size_t kShown = 20;  // the longest encoding
using Bytes = std::array<uint8_t, kShown>;

struct Decoded {
  uint64_t size = 0;  // 0: no instruction
  std::string text;   // blanks removed
};

std::string WithoutBlanks(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) out += c;
  }
  return out;
}

Decoded ByLlvm(LlvmTarget& llvm, size_t limit, const Bytes& bytes) {
  llvm::MCInst inst;
  Decoded out;
  const auto status = llvm.disassembler->getInstruction(
      inst, out.size, llvm::ArrayRef<uint8_t>(bytes.data(), bytes.size()), 0, llvm::nulls());
  if (status == llvm::MCDisassembler::Fail || out.size < 4 || out.size > limit) return {};
  llvm::raw_string_ostream stream(out.text);
  llvm.printer->printInst(&inst, 0, "", *llvm.subtarget, stream);
  stream.flush();
  out.text = WithoutBlanks(out.text);
  return out;
}

Decoded ByIsa(Isa& isa, const Bytes& bytes) {
  const auto in = isa.Decode(bytes, 0);
  if (!in) return {};
  return {in->size, WithoutBlanks(isa.Print(bytes, 0))};
}

// SDWA with a reserved value in some field.
bool MayChooseNothing(uint32_t word, uint32_t choice) {
  if (word >> 31 != 0 || (word & 0x1ff) != 0xf9) return false;
  const auto field = [choice](unsigned bit, unsigned bits) {
    return choice >> bit & ((1u << bits) - 1);
  };
  return field(8, 3) == 7 || field(11, 2) == 3 || field(16, 3) == 7 || field(24, 3) == 7;
}

// A tuple that goes beyond the last register, which LLVM prints for what does not
// exist (v[254:257]). Ours refuses it.
bool BeyondLastRegister(const std::string& text) {
  static const std::regex range("[va]\\[\\d+:(\\d+)\\]");
  for (std::sregex_iterator at(text.begin(), text.end(), range), end; at != end; ++at) {
    if (std::stoi((*at)[1]) > 255) return true;
  }
  return false;
}

struct Target {
  const char* processor;
  uint32_t wave;
};

class PrefixTest : public testing::TestWithParam<Target> {};

TEST_P(PrefixTest, AgreesWithLlvmShownMore) {
  TargetId id;
  id.processor = GetParam().processor;
  auto llvm = LlvmTarget::Create(id, GetParam().wave);
  auto isa = Isa::Create(id, GetParam().wave);
  ASSERT_TRUE(llvm.ok() && isa.ok()) << llvm.status() << isa.status();
  constexpr int kWords = 30000, kTails = 3;
  std::mt19937 random(20);
  int instructions = 0;
  for (int n = 0; n < kWords; ++n) {
    std::array<uint32_t, kShown / 4> words = {};
    words[0] = static_cast<uint32_t>(random());
    for (int tail = 0; tail < kTails; ++tail) {
      for (size_t i = 1; i < words.size(); ++i) words[i] = static_cast<uint32_t>(random());
      if (tail == 1) words[1] &= 0x01ffffff;  // fields that must be zero often are
      Bytes bytes;
      std::memcpy(bytes.data(), words.data(), bytes.size());
      const Decoded actual = ByIsa(**isa, bytes);
      // LLVM cannot print these; ours must have survived them.
      if (MayChooseNothing(words[0], words[1])) continue;
      const Decoded expected = ByLlvm(**llvm, (*isa)->generation().max_instruction_bytes, bytes);
      if (BeyondLastRegister(expected.text)) {
        EXPECT_EQ(actual.size, 0u) << expected.text;
        continue;
      }
      instructions += expected.size != 0 ? 1 : 0;
      ASSERT_TRUE(actual.size == expected.size && actual.text == expected.text)
          << std::hex << words[0] << " " << words[1] << std::dec << ": " << actual.size << " \""
          << actual.text << "\", LLVM has " << expected.size << " \"" << expected.text << "\"";
    }
  }
  EXPECT_GT(instructions, kWords / 10);
}

std::vector<Target> Known() {
  std::vector<Target> targets = {{"gfx900", 64},  {"gfx908", 64},  {"gfx90a", 64},
                                 {"gfx942", 64},  {"gfx1010", 32}, {"gfx1030", 32},
                                 {"gfx1030", 64}, {"gfx1100", 32}, {"gfx1201", 32}};
  if (LlvmVersion() >= 22) targets.insert(targets.end(), {{"gfx950", 64}, {"gfx1250", 32}});
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Generations, PrefixTest, testing::ValuesIn(Known()),
                         [](const auto& tested) {
                           return std::string(tested.param.processor) + "w" +
                                  std::to_string(tested.param.wave);
                         });

}  // namespace
}  // namespace rjdbi::patch
