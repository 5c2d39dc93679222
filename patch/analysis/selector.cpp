// Selector grammar and globbing.
#include "patch/analysis/selector.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

constexpr std::string_view kOffsetPrefix = "kernel+";
constexpr std::string_view kEncodingSuffixes[] = {"_e32", "_e64", "_sdwa", "_dpp", "_e64_dpp"};

// The class that starts at glob[at] == '[': where it ends, whether c is in it.
struct ClassMatch {
  size_t end = 0;  // past ']'; 0: unterminated, the '[' is then literal
  bool matches = false;
};

ClassMatch MatchClass(std::string_view glob, size_t at, char c) {
  size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool found = false;
  for (bool first = true; i < glob.size(); first = false) {
    if (glob[i] == ']' && !first) return {i + 1, found != negated};
    const char low = glob[i];
    char high = low;
    if (i + 2 < glob.size() && glob[i + 1] == '-' && glob[i + 2] != ']') {
      high = glob[i + 2];
      i += 2;
    }
    found |= low <= c && c <= high;
    ++i;
  }
  return {};
}

// One pattern element against one character; next: where the pattern goes on.
bool MatchOne(std::string_view glob, size_t at, char c, size_t& next) {
  if (glob[at] == '[') {
    const ClassMatch match = MatchClass(glob, at, c);
    if (match.end != 0) {
      next = match.end;
      return match.matches;
    }
  }
  next = at + 1;
  return glob[at] == '?' || glob[at] == c;
}

bool IsGlobCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("_*?[]!^-").find(c) != std::string_view::npos;
}

absl::Status ErrorAt(size_t column, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("selector, column ", column, ": expected ", expected));
}

std::optional<uint64_t> ParseNumber(std::string_view text, size_t& bad) {
  const bool hex = text.starts_with("0x");
  const uint64_t base = hex ? 16 : 10;
  bad = hex ? 2 : 0;
  if (bad == text.size()) return std::nullopt;
  uint64_t value = 0;
  for (; bad < text.size(); ++bad) {
    const char c = text[bad];
    uint64_t digit = base;
    if (c >= '0' && c <= '9') digit = static_cast<uint64_t>(c - '0');
    if (c >= 'a' && c <= 'f') digit = static_cast<uint64_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') digit = static_cast<uint64_t>(c - 'A' + 10);
    if (digit >= base || value > (UINT64_MAX - digit) / base) return std::nullopt;
    value = value * base + digit;
  }
  return value;
}

// The first character of a glob that cannot be in an opcode, or an open class.
absl::Status CheckGlob(std::string_view glob, size_t column) {
  for (size_t i = 0; i < glob.size(); ++i) {
    if (!IsGlobCharacter(glob[i])) return ErrorAt(column + i, "an opcode glob");
    if (glob[i] == '[' && MatchClass(glob, i, 'a').end == 0) {
      return ErrorAt(column + i, "a ']' that closes this '['");
    }
  }
  return absl::OkStatus();
}

bool OpcodeMatches(std::string_view glob, std::string_view opcode) {
  if (GlobMatch(glob, opcode)) return true;
  return std::any_of(std::begin(kEncodingSuffixes), std::end(kEncodingSuffixes),
                     [&](std::string_view suffix) {
                       return opcode.ends_with(suffix) &&
                              GlobMatch(glob, opcode.substr(0, opcode.size() - suffix.size()));
                     });
}

bool AccessesMemory(const Instruction& in) {
  return in.memory != MemoryKind::kNone && (in.load || in.store || in.atomic);
}

}  // namespace

// Backtracks to the last '*' only, so the time is at most |glob| * |text|.
bool GlobMatch(std::string_view glob, std::string_view text) {
  size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    size_t next = 0;
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && MatchOne(glob, g, text[t], next)) {
      g = next;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

absl::StatusOr<Selector> Selector::Parse(std::string_view text) {
  Selector selector;
  selector.text_ = std::string(text);
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    const size_t next = end + 1;
    size_t first = begin;
    while (first < end && text[first] == ' ') ++first;
    while (end > first && text[end - 1] == ' ') --end;
    const std::string_view word = text.substr(first, end - first);
    const size_t column = first + 1;
    if (word.empty()) {
      return ErrorAt(column, "an opcode glob, 'entry', 'memory' or 'kernel+0xOFFSET'");
    }
    Term term;
    term.kind = Term::Kind::kOpcodeGlob;
    if (word == "entry") {
      term.kind = Term::Kind::kEntry;
    } else if (word == "memory") {
      term.kind = Term::Kind::kMemory;
    } else if (word.starts_with(kOffsetPrefix)) {
      term.kind = Term::Kind::kOffset;
      size_t bad = 0;
      const auto offset = ParseNumber(word.substr(kOffsetPrefix.size()), bad);
      if (!offset) return ErrorAt(column + kOffsetPrefix.size() + bad, "an offset in bytes");
      term.offset = *offset;
    } else {
      if (absl::Status status = CheckGlob(word, column); !status.ok()) return status;
      term.glob = std::string(word);
    }
    selector.terms_.push_back(std::move(term));
    begin = next;
  }
  return selector;
}

Selector::Selection Selector::Select(const KernelAnalysis& kernel) const {
  Selection selection;
  const InstructionList& instructions = kernel.instructions();
  std::vector<bool> chosen(instructions.size(), false);
  for (const Term& term : terms_) {
    switch (term.kind) {
      case Term::Kind::kEntry:
      case Term::Kind::kOffset:
        if (auto i = kernel.InstructionAt(term.offset)) {
          chosen[*i] = true;
        } else {
          selection.missing_offsets.push_back(term.offset);
        }
        break;
      case Term::Kind::kMemory:
        for (size_t i = 0; i < instructions.size(); ++i) {
          if (AccessesMemory(instructions[i])) chosen[i] = true;
        }
        break;
      case Term::Kind::kOpcodeGlob:
        for (size_t i = 0; i < instructions.size(); ++i) {
          if (!chosen[i] && OpcodeMatches(term.glob, instructions[i].opcode)) chosen[i] = true;
        }
        break;
    }
  }
  for (uint32_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) selection.instructions.push_back(i);
  }
  return selection;
}

}  // namespace rjdbi::patch
