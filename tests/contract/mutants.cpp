// The table of operators, and the small edits that they are made of.
#include "tests/contract/mutants.h"

#include <algorithm>
#include <cstring>
#include <regex>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace rjdbi::test {
namespace {

using patch::Instruction;
using patch::InstructionOperand;
using patch::MemoryKind;
using patch::RegisterSet;
using patch::WordFixup;

using Made = std::optional<Mutant>;

size_t Below(Random& random, size_t n) { return n == 0 ? 0 : random() % n; }

template <typename Where>
std::optional<size_t> Pick(const MutantSource& s, Random& random, const Where& where) {
  std::vector<size_t> found;
  for (size_t i = 0; i < s.instructions.size(); ++i) {
    if (where(s.instructions[i])) found.push_back(i);
  }
  if (found.empty()) return std::nullopt;
  return found[Below(random, found.size())];
}

bool HoldsFixup(const MutantSource& s, const Instruction& in) {
  return std::any_of(s.fixups.begin(), s.fixups.end(), [&](const WordFixup& f) {
    return f.offset >= in.offset && f.offset < in.offset + in.size;
  });
}

Mutant Same(const MutantSource& s) { return {s.code, s.fixups, ""}; }

void DropFixups(Mutant& m, uint64_t begin, uint64_t end) {
  std::erase_if(m.fixups, [&](const WordFixup& f) { return f.offset >= begin && f.offset < end; });
}

// s_nop 0, on every generation.
void Erase(Mutant& m, const Instruction& in) {
  static constexpr uint8_t kNop[] = {0x00, 0x00, 0x80, 0xbf};
  for (size_t at = in.offset; at < in.offset + in.size; at += 4) {
    std::copy(std::begin(kNop), std::end(kNop), m.code.begin() + static_cast<ptrdiff_t>(at));
  }
  DropFixups(m, in.offset, in.offset + in.size);
}

Made ErasePicked(const MutantSource& s, const std::optional<size_t>& at) {
  if (!at) return std::nullopt;
  Mutant m = Same(s);
  Erase(m, s.instructions[*at]);
  return m;
}

void Put(Mutant& m, const Instruction& in, const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), m.code.begin() + static_cast<ptrdiff_t>(in.offset));
}

// The instruction, from its changed text. The assembler may choose another size.
Made FromText(const MutantSource& s, const Instruction& in, const std::string& text) {
  if (HoldsFixup(s, in)) return std::nullopt;
  const auto bytes = s.isa.Assemble(text);
  if (!bytes.ok() || bytes->size() != in.size) return std::nullopt;
  Mutant m = Same(s);
  Put(m, in, *bytes);
  return m;
}

std::string TextOf(const MutantSource& s, const Instruction& in) {
  return s.isa.Print(s.code, in.offset);
}

struct Token {
  size_t at = 0, size = 0;
};
std::vector<Token> Tokens(const std::string& text, const std::regex& what) {
  std::vector<Token> tokens;
  const size_t operands = text.find(' ');
  if (operands == std::string::npos) return tokens;
  for (std::sregex_iterator it(text.begin() + static_cast<ptrdiff_t>(operands), text.end(), what),
       end;
       it != end; ++it) {
    tokens.push_back(
        {operands + static_cast<size_t>(it->position(1)), static_cast<size_t>(it->length(1))});
  }
  return tokens;
}

// ---- Registers ----------------------------------------------------------------------

// A register of the same bank, somewhere that matters.
uint16_t Other(const MutantSource& s, uint16_t reg, uint8_t count, Random& random) {
  const uint16_t first = reg >= patch::kVgpr0 ? patch::kVgpr0 : patch::kSgpr0;
  const uint16_t end = reg >= patch::kVgpr0 ? patch::kAgpr0 : patch::kVccLo;
  RegisterSet mentioned;
  for (const Instruction& in : s.instructions) mentioned |= in.defs | in.uses | in.partial_defs;
  std::vector<uint16_t> choices;
  for (uint16_t r = first; r + count <= end; ++r) {
    if ((mentioned | s.live).HasAny(r, count) && r != reg) choices.push_back(r);
  }
  const size_t n = Below(random, choices.size() + 2);
  if (n < choices.size()) return choices[n];
  const int step = n == choices.size() ? 1 : -1;
  const int other = reg + step * (count > 1 ? 2 : 1);
  return other >= first && other + count <= end ? static_cast<uint16_t>(other) : reg;
}

Made RegisterSwapped(const MutantSource& s, Random& random) {
  const auto at = Pick(s, random, [](const Instruction& in) {
    return std::any_of(in.operands.begin(), in.operands.end(), [](const auto& o) {
      return o.kind == InstructionOperand::Kind::kRegister &&
             (o.reg < patch::kVccLo || o.reg >= patch::kVgpr0);
    });
  });
  if (!at) return std::nullopt;
  const Instruction& in = s.instructions[*at];
  std::vector<const InstructionOperand*> registers;
  for (const InstructionOperand& o : in.operands) {
    if (o.kind == InstructionOperand::Kind::kRegister &&
        (o.reg < patch::kVccLo || o.reg >= patch::kVgpr0)) {
      registers.push_back(&o);
    }
  }
  const InstructionOperand& o = *registers[Below(random, registers.size())];
  const uint16_t other = Other(s, o.reg, o.count, random);
  auto renaming = patch::NoRenaming();
  for (uint16_t n = 0; n < o.count; ++n) renaming[o.reg + n] = static_cast<uint16_t>(other + n);
  const auto bytes = s.isa.Rename(s.code, in.offset, renaming);
  if (!bytes.ok() || bytes->size() != in.size) return std::nullopt;
  Mutant m = Same(s);
  Put(m, in, *bytes);
  return m;
}

// One mention of a register, special ones included.
Made OperandSwapped(const MutantSource& s, Random& random) {
  static const std::regex kRegister(
      R"(\b((?:[sva]\[\d+:\d+\])|(?:[sva]\d+\b)|exec_lo|exec_hi|exec|vcc_lo|vcc_hi|vcc|m0|null|scc))");
  const auto at = Pick(s, random, [](const Instruction& in) { return !in.waitcnt && !in.branch; });
  if (!at) return std::nullopt;
  const Instruction& in = s.instructions[*at];
  const std::string text = TextOf(s, in);
  const auto tokens = Tokens(text, kRegister);
  if (tokens.empty()) return std::nullopt;
  const Token t = tokens[Below(random, tokens.size())];
  const std::string old = text.substr(t.at, t.size);
  static const char* const kSingle[] = {"vcc_lo", "exec_lo", "m0", "exec_hi", "vcc_hi"};
  static const char* const kPair[] = {"vcc", "exec"};
  const bool pair = old == "exec" || old == "vcc" || old.find(':') != std::string::npos;
  std::string now;
  if (Below(random, 2) == 0) {
    now = pair ? kPair[Below(random, 2)] : kSingle[Below(random, 5)];
  } else {
    std::vector<uint16_t> used;
    RegisterSet mentioned = s.live;
    for (const Instruction& each : s.instructions) {
      mentioned |= each.defs | each.uses | each.partial_defs;
    }
    mentioned.ForEach([&](uint16_t r) {
      if (r < patch::kVccLo || (r >= patch::kVgpr0 && r < patch::kAgpr0)) used.push_back(r);
    });
    if (used.empty()) return std::nullopt;
    const uint16_t r = used[Below(random, used.size())];
    const bool vector = r >= patch::kVgpr0;
    const unsigned n = vector ? r - patch::kVgpr0 : r;
    const unsigned even = vector ? n : n & ~1u;
    now = pair ? absl::StrCat(vector ? "v[" : "s[", even, ":", even + 1, "]")
               : absl::StrCat(vector ? "v" : "s", n);
  }
  return FromText(s, in, std::string(text).replace(t.at, t.size, now));
}

// Everywhere: two values share a register.
Made SaveOverlapped(const MutantSource& s, Random& random) {
  RegisterSet written;
  for (const Instruction& in : s.instructions) written |= in.defs | in.partial_defs;
  std::vector<uint16_t> choices;
  written.ForEach([&](uint16_t r) {
    if (r < patch::kVccLo || r >= patch::kVgpr0) choices.push_back(r);
  });
  if (choices.empty()) return std::nullopt;
  const uint16_t from = choices[Below(random, choices.size())];
  // Pairs move together.
  uint16_t base = from;
  uint8_t count = 1;
  for (const Instruction& in : s.instructions) {
    for (const InstructionOperand& o : in.operands) {
      const bool holds =
          o.kind == InstructionOperand::Kind::kRegister && o.reg <= from && from < o.reg + o.count;
      if (holds && o.count > count) base = o.reg, count = o.count;
    }
  }
  const uint16_t to = Other(s, base, count, random);
  auto renaming = patch::NoRenaming();
  for (uint16_t n = 0; n < count; ++n) renaming[base + n] = static_cast<uint16_t>(to + n);
  Mutant m = Same(s);
  for (const Instruction& in : s.instructions) {
    if (!(in.defs | in.uses | in.partial_defs).HasAny(base, count)) continue;
    const auto bytes = s.isa.Rename(s.code, in.offset, renaming);
    if (!bytes.ok() || bytes->size() != in.size) return std::nullopt;
    Put(m, in, *bytes);
  }
  return m;
}

// ---- Whole instructions -----------------------------------------------------------------

Made Deleted(const MutantSource& s, Random& random) {
  return ErasePicked(s, Pick(s, random, [](const Instruction& in) { return !in.waitcnt; }));
}

Made MaskNotRestored(const MutantSource& s, Random& random) {
  return ErasePicked(s, Pick(s, random, [](const Instruction& in) {
                       const RegisterSet writes = in.defs | in.partial_defs;
                       return writes.HasAny(patch::kExecLo, 2) || writes.Has(patch::kScc);
                     }));
}

Made Exchanged(const MutantSource& s, Random& random) {
  if (s.instructions.size() < 2) return std::nullopt;
  size_t i = Below(random, s.instructions.size() - 1), j = i + 1;
  if (Below(random, 3) == 0) j = i + 1 + Below(random, s.instructions.size() - i - 1);
  const Instruction &a = s.instructions[i], &b = s.instructions[j];
  if (j != i + 1 && a.size != b.size) return std::nullopt;
  Mutant m = Same(s);
  const auto bytes = [&](const Instruction& in) {
    return std::vector<uint8_t>(s.code.begin() + static_cast<ptrdiff_t>(in.offset),
                                s.code.begin() + static_cast<ptrdiff_t>(in.offset + in.size));
  };
  const uint64_t second = j == i + 1 ? a.offset + b.size : b.offset;
  const auto first = bytes(b), last = bytes(a);
  std::copy(first.begin(), first.end(), m.code.begin() + static_cast<ptrdiff_t>(a.offset));
  std::copy(last.begin(), last.end(), m.code.begin() + static_cast<ptrdiff_t>(second));
  // What the agent fills in moves along.
  for (WordFixup& f : m.fixups) {
    if (f.offset >= a.offset && f.offset < a.offset + a.size) {
      f.offset += second - a.offset;
    } else if (f.offset >= b.offset && f.offset < b.offset + b.size) {
      f.offset -= b.offset - a.offset;
    }
  }
  return m;
}

Made Replaced(const MutantSource& s, Random& random) {
  if (s.instructions.size() < 2) return std::nullopt;
  const Instruction& a = s.instructions[Below(random, s.instructions.size())];
  const Instruction& b = s.instructions[Below(random, s.instructions.size())];
  if (a.size != b.size || HoldsFixup(s, b)) return std::nullopt;
  Mutant m = Same(s);
  DropFixups(m, a.offset, a.offset + a.size);
  Put(m, a,
      {s.code.begin() + static_cast<ptrdiff_t>(b.offset),
       s.code.begin() + static_cast<ptrdiff_t>(b.offset + b.size)});
  return m;
}

Made OpcodeChanged(const MutantSource& s, Random& random) {
  // Both ways, on the opcode alone.
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"s_or_", "s_and_"},
      {"s_and_", "s_xor_"},
      {"v_and_", "v_or_"},
      {"v_add_", "v_sub_"},
      {"s_add_", "s_sub_"},
      {"_execz", "_execnz"},
      {"_scc0", "_scc1"},
      {"_eq_", "_lg_"},
      {"_eq_", "_ne_"},
      {"_lt_", "_gt_"},
      {"v_lshlrev_", "v_lshrrev_"},
      {"s_lshl_", "s_lshr_"},
      {"s_mov_", "s_not_"},
      {"v_mov_", "v_not_"},
      {"_add_x2", "_or_x2"},
      {"_add_u64", "_or_b64"},
      {"_saveexec_", "_wrexec_"},
      {"_atomic_add_", "_atomic_sub_"},
      {"mbcnt_lo", "mbcnt_hi"},
      {"readfirstlane", "mov"},
      {"s_bcnt1_", "s_bcnt0_"},
      {"s_cselect_", "s_and_"},
      {"store_dwordx2", "store_dwordx4"},
      {"store_b64", "store_b128"},
      {"v_cmpx_", "v_cmp_"},
      {"global_store", "flat_store"}};
  const auto at = Pick(s, random, [](const Instruction& in) { return !in.waitcnt; });
  if (!at) return std::nullopt;
  const std::string text = TextOf(s, s.instructions[*at]);
  const size_t end = std::min(text.find(' '), text.size());
  std::vector<std::string> made;
  for (const auto& [one, other] : kPairs) {
    for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
      const size_t found = text.substr(0, end).find(from);
      if (found == std::string::npos) continue;
      made.push_back(std::string(text).replace(found, from.size(), to));
    }
  }
  if (made.empty()) return std::nullopt;
  return FromText(s, s.instructions[*at], made[Below(random, made.size())]);
}

// ---- Numbers ------------------------------------------------------------------------------

std::string Changed(const std::string& number, Random& random) {
  int64_t value = 0;
  const bool hex = number.find("0x") != std::string::npos;
  if (!absl::SimpleHexAtoi(hex ? number : "", &value)) (void)absl::SimpleAtoi(number, &value);
  static constexpr int64_t kSteps[] = {1, -1, 2, 4, 8, -8, 16, 64, 256, 4096};
  const size_t n = Below(random, std::size(kSteps) + 2);
  const int64_t now = n < std::size(kSteps)    ? value + kSteps[n]
                      : n == std::size(kSteps) ? -value
                                               : value * 2;
  return absl::StrCat(now);
}

Made LiteralChanged(const MutantSource& s, Random& random) {
  static const std::regex kNumber(R"([ ,:](-?(?:0x[0-9a-f]+|\d+))\b(?!\]))");
  const auto at = Pick(s, random, [](const Instruction& in) { return !in.waitcnt && !in.branch; });
  if (!at) return std::nullopt;
  const Instruction& in = s.instructions[*at];
  // A literal word stands at the end.
  const bool has_literal = in.memory == MemoryKind::kNone && (in.size == 8 || in.size == 12) &&
                           (in.salu || in.size == 12) && !HoldsFixup(s, in);
  if (has_literal && Below(random, 2) == 0) {
    Mutant m = Same(s);
    m.code[in.offset + in.size - 4 + Below(random, 4)] ^=
        static_cast<uint8_t>(1u << Below(random, 8));
    return m;
  }
  const std::string text = TextOf(s, in);
  const auto tokens = Tokens(text, kNumber);
  if (tokens.empty()) return std::nullopt;
  const Token t = tokens[Below(random, tokens.size())];
  const std::string now = Changed(text.substr(t.at, t.size), random);
  return FromText(s, in, std::string(text).replace(t.at, t.size, now));
}

Made OffsetChanged(const MutantSource& s, Random& random) {
  const auto at = Pick(s, random, [](const Instruction& in) {
    return in.memory != MemoryKind::kNone && in.memory != MemoryKind::kScalar;
  });
  if (!at) return std::nullopt;
  const std::string text = TextOf(s, s.instructions[*at]);
  static const std::regex kOffset(R"(offset:(-?(?:0x[0-9a-f]+|\d+)))");
  const auto tokens = Tokens(text, kOffset);
  if (tokens.empty()) {
    static constexpr int kOffsets[] = {1, 4, 8, -8, 16, 64, 256, 2040, -2048};
    return FromText(s, s.instructions[*at],
                    absl::StrCat(text, " offset:", kOffsets[Below(random, 9)]));
  }
  const Token t = tokens[0];
  const std::string now = Changed(text.substr(t.at, t.size), random);
  return FromText(s, s.instructions[*at], std::string(text).replace(t.at, t.size, now));
}

Made FixupChanged(const MutantSource& s, Random& random) {
  if (s.fixups.empty()) return std::nullopt;
  Mutant m = Same(s);
  WordFixup& f = m.fixups[Below(random, m.fixups.size())];
  static constexpr uint64_t kSteps[] = {8, ~uint64_t{7}, 4, 64, 4096, uint64_t{1} << 32};
  const size_t n = Below(random, std::size(kSteps) + 3);
  if (n < std::size(kSteps)) {
    f.addend += kSteps[n];
  } else if (n == std::size(kSteps)) {
    f.high_half = !f.high_half;
  } else if (n == std::size(kSteps) + 1) {
    m.fixups.erase(m.fixups.begin() + (&f - m.fixups.data()));
  } else {
    f.offset += 4;
  }
  return m;
}

Made BranchRetargeted(const MutantSource& s, Random& random) {
  const auto at =
      Pick(s, random, [](const Instruction& in) { return in.target_offset && in.size == 4; });
  if (!at) return std::nullopt;
  const Instruction& in = s.instructions[*at];
  uint16_t offset = 0;
  std::memcpy(&offset, s.code.data() + in.offset, sizeof offset);
  const size_t n = Below(random, s.instructions.size() + 4);
  if (n < s.instructions.size()) {
    const auto to = static_cast<int64_t>(s.instructions[n].offset);
    offset = static_cast<uint16_t>((to - static_cast<int64_t>(in.offset) - 4) / 4);
  } else {
    static constexpr int kSteps[] = {1, -1, 2, -2};
    offset = static_cast<uint16_t>(offset + kSteps[n - s.instructions.size()]);
  }
  Mutant m = Same(s);
  std::memcpy(m.code.data() + in.offset, &offset, sizeof offset);
  return m;
}

// ---- Waits --------------------------------------------------------------------------------

bool IsPause(const Instruction& in) { return in.waitcnt || in.opcode == "s_nop"; }

Made WaitRemoved(const MutantSource& s, Random& random) {
  return ErasePicked(s, Pick(s, random, IsPause));
}

// `weaker`: more may be outstanding.
Made WaitChanged(const MutantSource& s, Random& random, bool weaker) {
  const auto at = Pick(s, random, IsPause);
  if (!at) return std::nullopt;
  const Instruction& in = s.instructions[*at];
  uint16_t field = 0;
  std::memcpy(&field, s.code.data() + in.offset, sizeof field);
  const bool nop = in.opcode == "s_nop";  // waits longer with a higher number
  std::vector<int> bits;
  for (int b = 0; b < 16; ++b) {
    if (((field >> b & 1) != 0) != (weaker != nop)) bits.push_back(b);
  }
  if (bits.empty()) return std::nullopt;
  field ^= static_cast<uint16_t>(1u << bits[Below(random, bits.size())]);
  Mutant m = Same(s);
  std::memcpy(m.code.data() + in.offset, &field, sizeof field);
  return m;
}
Made WaitLowered(const MutantSource& s, Random& random) { return WaitChanged(s, random, true); }
Made WaitRaised(const MutantSource& s, Random& random) { return WaitChanged(s, random, false); }

constexpr MutantOperator kOperators[] = {
    {"deleted", "an instruction is s_nop", Deleted},
    {"register swapped", "a register of an instruction is another one", RegisterSwapped},
    {"operand swapped", "one mention of a register is another one, special ones too",
     OperandSwapped},
    {"save overlapped", "a temporary is everywhere another register", SaveOverlapped},
    {"mask not restored", "an instruction that writes EXEC or SCC is s_nop", MaskNotRestored},
    {"exchanged", "two instructions change places", Exchanged},
    {"replaced", "an instruction is another one of the sequence", Replaced},
    {"opcode changed", "an instruction does something similar", OpcodeChanged},
    {"literal changed", "an immediate operand is another number", LiteralChanged},
    {"offset changed", "a memory access is elsewhere", OffsetChanged},
    {"fixup changed", "the agent writes another word, or elsewhere", FixupChanged},
    {"branch retargeted", "a branch leads elsewhere", BranchRetargeted},
    {"wait removed", "a wait or s_nop waits no more", WaitRemoved, true},
    {"wait lowered", "a wait lets more be outstanding", WaitLowered, true},
    {"wait raised", "a wait waits for more", WaitRaised, true},
};

bool SameFixups(const std::vector<WordFixup>& a, const std::vector<WordFixup>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const WordFixup& x, const WordFixup& y) {
           return x.offset == y.offset && x.high_half == y.high_half && x.addend == y.addend;
         });
}

}  // namespace

absl::Span<const MutantOperator> MutantOperators() { return kOperators; }

std::optional<MutantSource> MakeMutantSource(patch::Isa& isa, absl::Span<const uint8_t> code,
                                             std::vector<WordFixup> fixups,
                                             const RegisterSet& live) {
  MutantSource s{isa, {code.begin(), code.end()}, std::move(fixups), live, {}};
  for (uint64_t at = 0; at < code.size();) {
    auto in = isa.Decode(code, at);
    if (!in || in->size == 0) return std::nullopt;
    at += in->size;
    s.instructions.push_back(*std::move(in));
  }
  return s;
}

std::optional<Mutant> Mutate(const MutantSource& source, const MutantOperator& op, Random& random) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    Made m = op.make(source, random);
    if (!m) continue;
    if (m->code == source.code && SameFixups(m->fixups, source.fixups)) continue;
    bool different = !SameFixups(m->fixups, source.fixups), decodes = true;
    std::string before, after;
    for (uint64_t at = 0; at < m->code.size();) {
      const auto in = source.isa.Decode(m->code, at);
      if (!in || in->size == 0) {
        decodes = false;
        break;
      }
      const std::string now = source.isa.Print(m->code, at);
      const std::string was = source.isa.Print(source.code, at);
      const bool same = std::equal(m->code.begin() + static_cast<ptrdiff_t>(at),
                                   m->code.begin() + static_cast<ptrdiff_t>(at + in->size),
                                   source.code.begin() + static_cast<ptrdiff_t>(at));
      if (!same && now != was) {
        different = true;
        absl::StrAppend(&m->what, "  +", at, ": ", was, "  ->  ", now, "\n");
      }
      at += in->size;
    }
    if (!SameFixups(m->fixups, source.fixups)) {
      for (const auto& [sign, list] : {std::pair("  - ", &source.fixups), {"  + ", &m->fixups}}) {
        for (const WordFixup& f : *list) {
          absl::StrAppend(&m->what, sign, "fixup at ", f.offset, f.high_half ? " hi " : " lo ",
                          f.addend, "\n");
        }
      }
    }
    if (decodes && different) return m;
  }
  return std::nullopt;
}

}  // namespace rjdbi::test
