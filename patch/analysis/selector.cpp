// Lexer and recursive-descent parser, one node per term; a node's selection is
// one bit per instruction.
#include "patch/analysis/selector.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/analysis/selector_families.h"
#include "patch/analysis/selector_glob.h"

namespace rjdbi::patch {

struct Selector::Node {
  enum class Kind : uint8_t {
    kOr,
    kAnd,
    kNot,
    kEvery,   // number
    kGlob,    // text
    kFamily,  // family, access
    kEntry,
    kExit,
    kBlock,
    kOffset,    // number
    kFunction,  // text
    kSource,    // text, number
  };
  Kind kind = Kind::kOr;
  std::vector<std::unique_ptr<Node>> operands;
  std::string text;
  uint64_t number = 0;
  const Family* family = nullptr;
  const Family* access = nullptr;
};

namespace {

using Node = Selector::Node;
using NodePtr = std::unique_ptr<Node>;

constexpr std::string_view kOffsetPrefix = "kernel+";
constexpr std::string_view kEveryPrefix = "every:";
constexpr std::string_view kFunctionPrefix = "function:";
constexpr std::string_view kSourcePrefix = "source:";
constexpr std::string_view kEncodingSuffixes[] = {"_e32", "_e64", "_sdwa", "_dpp", "_e64_dpp"};
constexpr char kTerm[] =
    "an opcode glob, a family such as 'memory', 'entry', 'exit', 'block', 'kernel+0xOFFSET', "
    "'function:GLOB' or FILE:LINE";

// ---- text ----

struct Token {
  enum class Kind : uint8_t { kWord, kOpen, kClose, kComma, kEnd };
  Kind kind = Kind::kEnd;
  size_t column = 1;
  std::string text;  // a word, its quotes removed
  bool quoted = false;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // nullopt: a quote is not closed; `column` says where it opens.
  std::optional<Token> Next(size_t& column) {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
    Token token;
    token.column = column = at_ + 1;
    if (at_ == text_.size()) return token;
    static constexpr std::pair<char, Token::Kind> kSingle[] = {
        {'(', Token::Kind::kOpen}, {')', Token::Kind::kClose}, {',', Token::Kind::kComma}};
    for (const auto& [c, kind] : kSingle) {
      if (text_[at_] != c) continue;
      ++at_;
      token.kind = kind;
      return token;
    }
    token.kind = Token::Kind::kWord;
    for (; at_ < text_.size() && !Ends(text_[at_]); ++at_) {
      if (text_[at_] != '"') {
        token.text += text_[at_];
        continue;
      }
      const size_t close = text_.find('"', at_ + 1);
      if (close == std::string_view::npos) {
        column = at_ + 1;
        return std::nullopt;
      }
      token.text += text_.substr(at_ + 1, close - at_ - 1);
      token.quoted = true;
      at_ = close;
    }
    return token;
  }

 private:
  static bool Ends(char c) { return IsBlank(c) || c == ',' || c == '(' || c == ')'; }
  const std::string_view text_;
  size_t at_ = 0;
};

// The number that is all of `text`. `bad`: where it stops to be one.
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

bool IsGlobCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("_*?[]!^-").find(c) != std::string_view::npos;
}

// ---- parser ----

class Parser {
 public:
  Parser(std::string_view text, SelectorError& error) : lexer_(text), error_(error) {}

  // nullptr: see the error.
  NodePtr Parse() {
    Advance();
    NodePtr node = ParseOr(0);
    if (node && token_.kind != Token::Kind::kEnd) {
      return Fail(token_.column, "'and', 'or', ',' or the end");
    }
    return failed_ ? nullptr : std::move(node);
  }

 private:
  NodePtr Fail(size_t column, std::string expected) {
    if (!failed_) error_ = {column, std::move(expected)};
    failed_ = true;
    return nullptr;
  }

  void Advance() {
    size_t column = 0;
    std::optional<Token> next = lexer_.Next(column);
    if (!next) {
      Fail(column, "a '\"' that closes this one");
      next.emplace();
    }
    token_ = *std::move(next);
  }

  bool AtWord(std::string_view word) const {
    return token_.kind == Token::Kind::kWord && !token_.quoted && token_.text == word;
  }

  static NodePtr Make(Node::Kind kind) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    return node;
  }

  NodePtr ParseOr(int depth) {
    NodePtr node = Make(Node::Kind::kOr);
    while (true) {
      NodePtr operand = ParseAnd(depth);
      if (!operand) return nullptr;
      node->operands.push_back(std::move(operand));
      if (token_.kind != Token::Kind::kComma && !AtWord("or")) break;
      Advance();
    }
    return node->operands.size() == 1 ? std::move(node->operands.front()) : std::move(node);
  }

  NodePtr ParseAnd(int depth) {
    NodePtr node = Make(Node::Kind::kAnd);
    while (true) {
      NodePtr operand = ParsePrefixed(depth);
      if (!operand) return nullptr;
      node->operands.push_back(std::move(operand));
      if (!AtWord("and")) break;
      Advance();
    }
    return node->operands.size() == 1 ? std::move(node->operands.front()) : std::move(node);
  }

  NodePtr ParsePrefixed(int depth) {
    if (depth > Selector::kMaxDepth) {
      return Fail(token_.column, absl::StrCat("at most ", Selector::kMaxDepth, " levels"));
    }
    NodePtr node;
    if (AtWord("not")) {
      node = Make(Node::Kind::kNot);
    } else if (token_.kind == Token::Kind::kWord && token_.text.starts_with(kEveryPrefix)) {
      node = Make(Node::Kind::kEvery);
      size_t bad = 0;
      const auto number =
          ParseNumber(std::string_view(token_.text).substr(kEveryPrefix.size()), bad);
      if (!number || *number == 0) {
        return Fail(token_.column + kEveryPrefix.size() + (number ? 0 : bad),
                    "a number of 1 or more, below 2^64");
      }
      node->number = *number;
    } else {
      return ParsePrimary(depth);
    }
    Advance();
    NodePtr operand = ParsePrefixed(depth + 1);
    if (!operand) return nullptr;
    node->operands.push_back(std::move(operand));
    return node;
  }

  NodePtr ParsePrimary(int depth) {
    if (token_.kind == Token::Kind::kOpen) {
      Advance();
      NodePtr node = ParseOr(depth + 1);
      if (!node) return nullptr;
      if (token_.kind != Token::Kind::kClose) return Fail(token_.column, "'and', 'or', ',' or ')'");
      Advance();
      return node;
    }
    if (token_.kind != Token::Kind::kWord) return Fail(token_.column, kTerm);
    const Token word = token_;
    Advance();
    return ParseWord(word);
  }

  NodePtr ParseWord(const Token& word) {
    const std::string_view text = word.text;
    for (std::string_view reserved : {"and", "or"}) {
      if (text == reserved && !word.quoted) return Fail(word.column, kTerm);
    }
    if (text.starts_with(kOffsetPrefix)) return ParseOffset(word);
    if (text.starts_with(kFunctionPrefix)) return ParseFunction(word);
    if (text.starts_with(kSourcePrefix)) return ParseSource(word, kSourcePrefix.size());
    if (text.find(':') != std::string_view::npos) return ParseSource(word, 0);
    static constexpr std::pair<std::string_view, Node::Kind> kPlaces[] = {
        {"entry", Node::Kind::kEntry}, {"exit", Node::Kind::kExit}, {"block", Node::Kind::kBlock}};
    for (const auto& [name, kind] : kPlaces) {
      if (text == name) return Make(kind);
    }
    if (const Family* family = FindFamily(Families(), text)) return ParseFamily(*family);
    return ParseGlob(word);
  }

  NodePtr ParseOffset(const Token& word) {
    NodePtr node = Make(Node::Kind::kOffset);
    size_t bad = 0;
    const auto offset = ParseNumber(std::string_view(word.text).substr(kOffsetPrefix.size()), bad);
    if (!offset)
      return Fail(word.column + kOffsetPrefix.size() + bad, "an offset in bytes, below 2^64");
    node->number = *offset;
    return node;
  }

  NodePtr ParseFunction(const Token& word) {
    NodePtr node = Make(Node::Kind::kFunction);
    node->text = word.text.substr(kFunctionPrefix.size());
    if (node->text.empty()) return Fail(word.column + kFunctionPrefix.size(), "a function's name");
    return node;
  }

  NodePtr ParseSource(const Token& word, size_t prefix) {
    const size_t colon = word.text.rfind(':');
    if (colon < prefix || colon == prefix) return Fail(word.column + prefix, "FILE:LINE");
    NodePtr node = Make(Node::Kind::kSource);
    node->text = word.text.substr(prefix, colon - prefix);
    size_t bad = 0;
    const auto line = ParseNumber(std::string_view(word.text).substr(colon + 1), bad);
    if (!line || *line == 0 || *line > UINT32_MAX) {
      return Fail(word.column + colon + 1 + (line ? 0 : bad), "a line number");
    }
    node->number = *line;
    return node;
  }

  // "memory", "memory(read)".
  NodePtr ParseFamily(const Family& family) {
    NodePtr node = Make(Node::Kind::kFamily);
    node->family = &family;
    if (token_.kind != Token::Kind::kOpen) return node;
    if (!family.memory) return Fail(token_.column, "'and', 'or', ',' or the end");
    Advance();
    node->access =
        token_.kind == Token::Kind::kWord ? FindFamily(Accesses(), token_.text) : nullptr;
    if (node->access == nullptr) return Fail(token_.column, "'read', 'write' or 'atomic'");
    Advance();
    if (token_.kind != Token::Kind::kClose) return Fail(token_.column, "')'");
    Advance();
    return node;
  }

  NodePtr ParseGlob(const Token& word) {
    const std::string_view glob = word.text;
    for (size_t i = 0; i < glob.size(); ++i) {
      if (!IsGlobCharacter(glob[i])) return Fail(word.column + i, kTerm);
      if (glob[i] == '[' && MatchClass(glob, i, 'a').end == 0) {
        return Fail(word.column + i, "a ']' that closes this '['");
      }
    }
    // Every opcode has an underscore: a bare word is a slip.
    if (glob.find_first_of("_*?[") == std::string_view::npos) return Fail(word.column, kTerm);
    NodePtr node = Make(Node::Kind::kGlob);
    node->text = word.text;
    return node;
  }

  Lexer lexer_;
  SelectorError& error_;
  Token token_;
  bool failed_ = false;
};

// ---- evaluation ----

void CollectGlobs(const Node& node, std::vector<std::string>& globs) {
  if (node.kind == Node::Kind::kGlob) globs.push_back(node.text);
  for (const NodePtr& operand : node.operands) CollectGlobs(*operand, globs);
}

// "b/x.cl" names "/a/b/x.cl", "x.cl" does not name "/a/yx.cl".
bool PathEndsWith(std::string_view path, std::string_view suffix) {
  if (!path.ends_with(suffix)) return false;
  return path.size() == suffix.size() || suffix.front() == '/' ||
         path[path.size() - suffix.size() - 1] == '/';
}

class Evaluator {
 public:
  using Bits = std::vector<bool>;

  Evaluator(const KernelAnalysis& kernel, Selector::Selection& selection)
      : kernel_(kernel), instructions_(kernel.instructions()), selection_(selection) {}

  // `wanted`: not below a "not", so that a missing place is worth a word.
  Bits Evaluate(const Node& node, bool wanted) {
    Bits bits(instructions_.size(), false);
    switch (node.kind) {
      case Node::Kind::kOr:
        for (const NodePtr& operand : node.operands) Combine(bits, *operand, wanted, true);
        break;
      case Node::Kind::kAnd:
        bits = Evaluate(*node.operands[0], wanted);
        for (size_t i = 1; i < node.operands.size(); ++i) {
          Combine(bits, *node.operands[i], wanted, false);
        }
        break;
      case Node::Kind::kNot:
        bits = Evaluate(*node.operands[0], false);
        bits.flip();
        break;
      case Node::Kind::kEvery:
        bits = Evaluate(*node.operands[0], wanted);
        Thin(bits, node.number);
        break;
      case Node::Kind::kGlob:
        Globs(node.text, bits);
        break;
      case Node::Kind::kFamily:
        for (size_t i = 0; i < bits.size(); ++i) {
          const Instruction& in = instructions_.Shared(i);
          bits[i] = node.family->has(in) && (node.access == nullptr || node.access->has(in));
        }
        break;
      case Node::Kind::kEntry:
        Place(EntryOffset(), wanted, bits);
        break;
      case Node::Kind::kOffset:
        Place(node.number, wanted, bits);
        break;
      case Node::Kind::kExit:
        for (uint32_t i = 0; i < bits.size(); ++i) {
          if (instructions_.Shared(i).ends_program && kernel_.Reachable(i))
            bits[LastUsable(i)] = true;
        }
        break;
      case Node::Kind::kBlock:
        for (const BasicBlock& block : kernel_.blocks()) {
          bits[block.first] = kernel_.Reachable(block.first);
        }
        break;
      case Node::Kind::kFunction:
        Functions(node.text, bits);
        break;
      case Node::Kind::kSource:
        Lines(node.text, node.number, bits);
        break;
    }
    return bits;
  }

 private:
  void Combine(Bits& bits, const Node& operand, bool wanted, bool either) {
    const Bits other = Evaluate(operand, wanted);
    for (size_t i = 0; i < bits.size(); ++i) {
      bits[i] = either ? bits[i] || other[i] : bits[i] && other[i];
    }
  }

  // The 1st, the (n+1)-th, the (2n+1)-th ... by address.
  static void Thin(Bits& bits, uint64_t n) {
    uint64_t seen = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      if (bits[i] && seen++ % n != 0) bits[i] = false;
    }
  }

  // A kernel's instructions share a few opcodes, whose names are static.
  void Globs(const std::string& glob, Bits& bits) const {
    std::unordered_map<const char*, bool> known;
    for (size_t i = 0; i < bits.size(); ++i) {
      const std::string_view opcode = instructions_.Shared(i).opcode;
      const auto [found, fresh] = known.try_emplace(opcode.data(), false);
      if (fresh) found->second = OpcodeMatches(glob, opcode);
      bits[i] = found->second;
    }
  }

  void Place(uint64_t offset, bool wanted, Bits& bits) {
    if (const auto i = kernel_.InstructionAt(offset)) {
      bits[*i] = true;
    } else if (wanted) {
      selection_.missing_offsets.push_back(offset);
    }
  }

  // With two hardware entries the last: those who start at the first come by.
  uint64_t EntryOffset() const {
    uint64_t offset = 0;
    for (const BasicBlock& block : kernel_.blocks()) {
      if (block.entry) offset = std::max(offset, instructions_[block.first].offset);
    }
    return offset;
  }

  // An end of program, or, where the vector registers are given back right
  // before it, the message that does: behind that no probe can run.
  uint32_t LastUsable(uint32_t end) const {
    const auto& generation = kernel_.isa().generation();
    for (uint32_t i = end; i > 0; --i) {
      const Instruction& before = instructions_[i - 1];
      if (DeallocatesVgprs(before, kernel_.code(), generation)) return i - 1;
      if (before.opcode != "s_nop") break;
    }
    return end;
  }

  void Functions(const std::string& glob, Bits& bits) {
    for (const CodeSymbol& symbol : kernel_.object().code_symbols()) {
      if (!GlobMatch(glob, symbol.name)) continue;
      Range(symbol.vaddr, symbol.vaddr + symbol.size, bits);
    }
  }

  void Range(uint64_t begin, uint64_t end, Bits& bits) const {
    const uint64_t base = kernel_.kernel().entry_vaddr;
    const auto first = std::lower_bound(
        instructions_.begin(), instructions_.end(), begin,
        [&](const Instruction& in, uint64_t vaddr) { return base + in.offset < vaddr; });
    for (auto in = first; in != instructions_.end() && base + in->offset < end; ++in) {
      bits[static_cast<size_t>(in - instructions_.begin())] = true;
    }
  }

  void Lines(const std::string& file, uint64_t line, Bits& bits) {
    const auto& lines = kernel_.object().debug_info().lines();
    if (!lines.ok()) {
      const bool none = absl::IsNotFound(lines.status());
      return Refuse(none ? Reason::kNoLineTable : Reason::kBadDebugInfo, lines.status());
    }
    const uint64_t base = kernel_.kernel().entry_vaddr;
    for (const LineTable::Row& row : lines->Overlapping(base, base + kernel_.code().size())) {
      if (row.line == line && PathEndsWith(lines->FileName(row), file)) {
        Range(row.begin, row.end, bits);
      }
    }
  }

  void Refuse(Reason reason, const absl::Status& status) {
    for (const Refusal& refusal : selection_.refusals) {
      if (refusal.reason == reason) return;
    }
    selection_.refusals.push_back({reason, "", "", std::string(status.message())});
  }

  const KernelAnalysis& kernel_;
  const InstructionList& instructions_;
  Selector::Selection& selection_;
};

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string PointAt(std::string_view text, size_t column) {
  constexpr size_t kBefore = 48, kAfter = 28;
  const size_t at = std::min(column == 0 ? 0 : column - 1, text.size());
  size_t begin = at > kBefore ? at - kBefore : 0;
  size_t end = std::min(text.size(), at + kAfter);
  while (begin > 0 && ContinuesCharacter(text[begin])) --begin;
  while (end < text.size() && ContinuesCharacter(text[end])) ++end;
  std::string line = begin > 0 ? "..." : "", caret(line.size(), ' ');
  for (size_t i = begin; i < end; ++i) {
    line += static_cast<unsigned char>(text[i]) < ' ' ? ' ' : text[i];
    if (i < at && !ContinuesCharacter(text[i])) caret += ' ';
  }
  if (end < text.size()) line += "...";
  return absl::StrCat(line, "\n", caret, "^");
}

bool OpcodeMatches(std::string_view glob, std::string_view opcode) {
  if (GlobMatch(glob, opcode)) return true;
  return std::any_of(std::begin(kEncodingSuffixes), std::end(kEncodingSuffixes),
                     [&](std::string_view suffix) {
                       return opcode.ends_with(suffix) &&
                              GlobMatch(glob, opcode.substr(0, opcode.size() - suffix.size()));
                     });
}

std::vector<std::string> SelectorWords() {
  std::vector<std::string> words = {"entry", "exit", "block"};
  for (const Family& family : Families()) words.emplace_back(family.name);
  return words;
}

std::vector<std::string> Selector::OpcodeGlobs() const {
  std::vector<std::string> globs;
  if (root_ != nullptr) CollectGlobs(*root_, globs);
  return globs;
}

absl::StatusOr<Selector> Selector::Parse(std::string_view text, SelectorError* error) {
  SelectorError found;
  Selector selector;
  selector.text_ = std::string(text);
  if (text.size() > kMaxLength) {
    found = {kMaxLength + 1, absl::StrCat("at most ", kMaxLength, " bytes")};
  } else {
    selector.root_ = Parser(text, found).Parse();
  }
  if (selector.root_) return selector;
  if (error != nullptr) *error = found;
  return absl::InvalidArgumentError(absl::StrCat("selector, column ", found.column, ": expected ",
                                                 found.expected, "\n",
                                                 PointAt(text, found.column)));
}

Selector::Selection Selector::Select(const KernelAnalysis& kernel) const {
  Selection selection;
  const Evaluator::Bits chosen = Evaluator(kernel, selection).Evaluate(*root_, true);
  if (!selection.refusals.empty()) {
    selection.missing_offsets.clear();
    return selection;
  }
  for (uint32_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) selection.instructions.push_back(i);
  }
  return selection;
}

}  // namespace rjdbi::patch
