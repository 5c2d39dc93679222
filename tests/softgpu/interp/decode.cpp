// See decode.h. The steps: disassemble to text, split the text into a mnemonic,
// operands and modifiers, turn operand words into Operand records, and place
// them in the fields of Inst by the shape of the instruction's encoding family.
#include "tests/softgpu/interp/decode.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "tests/softgpu/interp/llvm_triple.h"

namespace softgpu {
namespace {

// --- Text to pieces -------------------------------------------------------

struct Piece {
  std::string word;                    // "v[0:1]", "-|v2|", "0x10"; may be empty
  std::vector<std::string> modifiers;  // words after the operand
};

struct Statement {
  std::string mnemonic;
  std::vector<Piece> pieces;
};

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

// Splits at `separator` outside brackets and parentheses.
std::vector<std::string> SplitTopLevel(std::string_view text, char separator) {
  std::vector<std::string> out;
  int depth = 0;
  std::string current;
  for (char c : text) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == separator && depth == 0) {
      if (std::string piece = Trim(current); !piece.empty()) out.push_back(piece);
      current.clear();
    } else {
      current += c == '\t' ? ' ' : c;
    }
  }
  if (std::string piece = Trim(current); !piece.empty()) out.push_back(piece);
  return out;
}

Statement Split(std::string_view text) {
  Statement statement;
  const std::string trimmed = Trim(text);
  const size_t space = trimmed.find_first_of(" \t");
  statement.mnemonic = trimmed.substr(0, space);
  if (space == std::string::npos) return statement;
  for (const std::string& part : SplitTopLevel(trimmed.substr(space + 1), ',')) {
    std::vector<std::string> words = SplitTopLevel(part, ' ');
    Piece piece;
    piece.word = words.front();
    piece.modifiers.assign(words.begin() + 1, words.end());
    statement.pieces.push_back(std::move(piece));
  }
  return statement;
}

// --- Operand words --------------------------------------------------------

struct NamedReg {
  std::string_view name;
  uint16_t reg;
  uint8_t dwords;
};
constexpr NamedReg kNamedRegs[] = {
    {"vcc", kVccLo, 2},
    {"vcc_lo", kVccLo, 1},
    {"vcc_hi", kVccHi, 1},
    {"exec", kExecLo, 2},
    {"exec_lo", kExecLo, 1},
    {"exec_hi", kExecHi, 1},
    {"m0", kM0, 1},
    {"null", kNull, 2},
    {"scc", kScc, 1},
    {"src_scc", kScc, 1},
    {"vccz", kVccz, 1},
    {"src_vccz", kVccz, 1},
    {"execz", kExecz, 1},
    {"src_execz", kExecz, 1},
    {"flat_scratch", kFlatScrLo, 2},
    {"flat_scratch_lo", kFlatScrLo, 1},
    {"flat_scratch_hi", kFlatScrHi, 1},
    {"xnack_mask", kXnackLo, 2},
    {"xnack_mask_lo", kXnackLo, 1},
    {"xnack_mask_hi", kXnackHi, 1},
    {"src_shared_base", kSharedBase, 2},
    {"src_shared_limit", kSharedLimit, 2},
    {"src_private_base", kPrivateBase, 2},
    {"src_private_limit", kPrivateLimit, 2},
    {"src_flat_scratch_base_lo", kFlatScrLo, 2},
    {"src_flat_scratch_base_hi", kFlatScrHi, 1},
    {"src_lds_direct", kLdsDirect, 1},
    {"lds_direct", kLdsDirect, 1},
};

struct RegPrefix {
  std::string_view prefix;
  Operand::Kind kind;
  uint16_t first;
};
constexpr RegPrefix kRegPrefixes[] = {
    {"ttmp", Operand::Kind::kSgpr, kTtmp0},
    {"v", Operand::Kind::kVgpr, 0},
    {"a", Operand::Kind::kAgpr, 0},
    {"s", Operand::Kind::kSgpr, kSgpr0},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// "v7", "v[4:5]", "v7.l", "s3", "ttmp[4:5]".
bool ParseNumberedReg(std::string_view word, Operand& operand) {
  for (const RegPrefix& prefix : kRegPrefixes) {
    if (!word.starts_with(prefix.prefix)) continue;
    const std::string rest(word.substr(prefix.prefix.size()));
    if (rest.empty() || (!IsDigit(rest[0]) && rest[0] != '[')) continue;
    char* end = nullptr;
    const char* digits = rest.c_str() + (rest[0] == '[' ? 1 : 0);
    const long first = std::strtol(digits, &end, 10);
    long last = first;
    if (rest[0] == '[') {
      if (*end == ':') last = std::strtol(end + 1, &end, 10);
      if (*end != ']') return false;
      ++end;
    }
    if (std::strcmp(end, ".h") == 0) operand.hi16 = true;
    if (*end != '\0' && *end != '.') return false;
    operand.kind = prefix.kind;
    operand.reg = static_cast<uint16_t>(prefix.first + first);
    operand.dwords = static_cast<uint8_t>(last - first + 1);
    return true;
  }
  return false;
}

bool ParseReg(std::string_view word, Operand& operand) {
  for (const NamedReg& named : kNamedRegs) {
    if (word != named.name) continue;
    operand.kind = Operand::Kind::kSgpr;
    operand.reg = named.reg;
    operand.dwords = named.dwords;
    return true;
  }
  return ParseNumberedReg(word, operand);
}

// Inline float constants with their three encodings (the ISA's tables of
// operand values 240 to 248).
struct InlineFloat {
  float value;
  uint32_t f32;
  uint64_t f64;
  uint16_t f16;
};
constexpr InlineFloat kInlineFloats[] = {
    {0.5f, 0x3f000000, 0x3fe0000000000000, 0x3800},
    {-0.5f, 0xbf000000, 0xbfe0000000000000, 0xb800},
    {1.0f, 0x3f800000, 0x3ff0000000000000, 0x3c00},
    {-1.0f, 0xbf800000, 0xbff0000000000000, 0xbc00},
    {2.0f, 0x40000000, 0x4000000000000000, 0x4000},
    {-2.0f, 0xc0000000, 0xc000000000000000, 0xc000},
    {4.0f, 0x40800000, 0x4010000000000000, 0x4400},
    {-4.0f, 0xc0800000, 0xc010000000000000, 0xc400},
    {0.15915494f, 0x3e22f983, 0x3fc45f306dc9c882, 0x3118},
};

// How a 32-bit literal widens to a 64-bit operand.
enum class Widen { kZero, kSign, kHigh, kNone };

bool ParseImm(const std::string& word, Widen widen, Operand& operand) {
  if (word.empty() || !(IsDigit(word[0]) || (word[0] == '-' && word.size() > 1))) return false;
  operand.kind = Operand::Kind::kImm;
  char* end = nullptr;
  if (word.find('.') != std::string::npos && !word.starts_with("0x")) {
    const float value = std::strtof(word.c_str(), &end);
    if (*end != '\0') return false;
    for (const InlineFloat& inline_float : kInlineFloats) {
      if (inline_float.value != value) continue;
      operand.imm = inline_float.f32;
      operand.imm64 = inline_float.f64;
      operand.imm16 = inline_float.f16;
      return true;
    }
    return false;
  }
  const bool literal = word.find('x') != std::string::npos;
  const auto value = literal ? static_cast<int64_t>(std::strtoull(word.c_str(), &end, 0))
                             : std::strtoll(word.c_str(), &end, 0);
  if (*end != '\0') return false;
  operand.imm = static_cast<uint32_t>(value);
  operand.imm16 = static_cast<uint16_t>(value);
  operand.imm64 = static_cast<uint64_t>(value);
  const bool wide = static_cast<uint64_t>(value) > UINT32_MAX;  // a 64-bit literal
  if (literal && !wide) {
    if (widen == Widen::kHigh) operand.imm64 = uint64_t{operand.imm} << 32;
    if (widen == Widen::kZero) operand.imm64 = operand.imm;
    if (widen == Widen::kSign) {
      operand.imm64 = static_cast<uint64_t>(int64_t{static_cast<int32_t>(operand.imm)});
    }
  }
  return true;
}

// Removes "f(" ... ")"; true when it was there.
bool Unwrap(std::string& word, std::string_view open, std::string_view close) {
  if (word.size() < open.size() + close.size() || !word.starts_with(open) ||
      !word.ends_with(close)) {
    return false;
  }
  word = word.substr(open.size(), word.size() - open.size() - close.size());
  return true;
}

// False when the word is not an operand at all (a bare modifier, a symbol).
bool ParseOperand(std::string word, Widen widen, Operand& operand) {
  operand = Operand();
  if (word == "off") return true;
  if (Unwrap(word, "neg(", ")")) operand.neg = true;
  // A literal whose value an inline constant or the other width could also give.
  Unwrap(word, "lit(", ")");
  if (Unwrap(word, "lit64(", ")")) widen = Widen::kNone;
  if (Unwrap(word, "sext(", ")")) operand.sext = true;
  if (ParseImm(word, widen, operand)) return true;
  if (word.starts_with("-")) {
    operand.neg = true;
    word = word.substr(1);
  }
  if (Unwrap(word, "|", "|") || Unwrap(word, "abs(", ")")) operand.abs = true;
  if (Unwrap(word, "sext(", ")")) operand.sext = true;
  return ParseReg(word, operand) || ParseImm(word, widen, operand);
}

Widen WidenRule(std::string_view name) {
  if (name.find("F64") != std::string_view::npos) return Widen::kHigh;
  if (name.find("I64") != std::string_view::npos) return Widen::kSign;
  return Widen::kZero;
}

// --- Modifiers ------------------------------------------------------------

uint8_t SdwaSel(std::string_view value) {
  constexpr std::string_view kNames[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3",
                                         "WORD_0", "WORD_1", "DWORD"};
  for (uint8_t i = 0; i < std::size(kNames); ++i) {
    if (value == kNames[i]) return i;
  }
  return 6;
}

std::vector<bool> BitList(const std::string& value) {
  std::vector<bool> bits;
  for (char c : value) {
    if (c == '0' || c == '1') bits.push_back(c == '1');
  }
  return bits;
}

void ApplyFlag(const std::string& word, Inst& inst) {
  struct Flag {
    std::string_view word;
    bool Inst::*field;
  };
  constexpr Flag kFlags[] = {
      {"glc", &Inst::glc},     {"sc0", &Inst::glc},     {"clamp", &Inst::clamp},
      {"offen", &Inst::offen}, {"idxen", &Inst::idxen}, {"lds", &Inst::lds},
      {"gds", &Inst::gds},     {"tfe", &Inst::tfe},     {"scale_offset", &Inst::scale_offset},
  };
  for (const Flag& flag : kFlags) {
    if (word == flag.word) inst.*flag.field = true;
  }
}

void ApplyOpSel(const std::vector<bool>& bits, Inst& inst) {
  for (size_t i = 0; i < bits.size() && i < inst.src.size(); ++i) {
    if (i < inst.num_src) inst.src[i].op_sel = bits[i];
  }
  if (bits.size() == size_t{inst.num_src} + 1) inst.op_sel_dst = bits.back();
}

void ApplyModifier(const std::string& word, Inst& inst) {
  const size_t colon = word.find(':');
  if (colon == std::string::npos) return ApplyFlag(word, inst);
  const std::string key = word.substr(0, colon);
  const std::string value = word.substr(colon + 1);
  const auto number = [&] { return std::strtoll(value.c_str(), nullptr, 0); };
  if (key == "offset" || key == "offset0") inst.offset = number();
  if (key == "offset1") inst.offset1 = number();
  if (key == "mul") inst.omod = value == "4" ? 2 : 1;
  if (key == "div") inst.omod = 3;
  if (key == "cbsz") inst.cbsz = static_cast<uint8_t>(number());
  if (key == "abid") inst.abid = static_cast<uint8_t>(number());
  if (key == "blgp") inst.blgp = static_cast<uint8_t>(number());
  if (key == "bitop3") inst.truth = static_cast<uint8_t>(number());
  if (key == "neg") {
    // gfx940's F64 MFMA spells blgp as a negation list.
    const std::vector<bool> bits = BitList(value);
    for (size_t i = 0; i < bits.size(); ++i) inst.blgp |= static_cast<uint8_t>(bits[i] << i);
  }
  if (key == "th" && value.find("RETURN") != std::string::npos) inst.glc = true;
  if (key == "op_sel") ApplyOpSel(BitList(value), inst);
  if (key == "dst_sel") inst.sdwa.dst_sel = SdwaSel(value);
  if (key == "dst_unused") {
    inst.sdwa.dst_unused = value == "UNUSED_SEXT" ? 1 : value == "UNUSED_PRESERVE" ? 2 : 0;
  }
  if (key == "src0_sel") inst.src[0].sdwa_sel = SdwaSel(value);
  if (key == "src1_sel") inst.src[1].sdwa_sel = SdwaSel(value);
}

// --- Fields taken from the encoding ---------------------------------------

bool StartsWithAny(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  for (std::string_view prefix : prefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// VOP3P: bits of the two dwords are the same from gfx9 to gfx12 (op_sel
// [13:11], op_sel_hi [14] and [28:27] of the second, neg_hi [10:8], neg
// [31:29] of the second).
void DecodeVop3p(const Target& target, Inst& inst) {
  const bool vop3p =
      target.AtLeast10() ? (inst.raw[0] >> 24) == 0xcc : (inst.raw[0] >> 23) == 0x1a7;
  if (!vop3p || inst.size < 8 || inst.name.starts_with("V_MFMA") ||
      inst.name.starts_with("V_SMFMAC") || inst.name.starts_with("V_ACCVGPR")) {
    return;
  }
  const bool mix = inst.name.find("_MIX") != std::string_view::npos;
  for (unsigned i = 0; i < 3; ++i) {
    Operand& src = inst.src[i];
    src.op_sel = inst.raw[0] >> (11 + i) & 1;
    src.op_sel_hi = i < 2 ? inst.raw[1] >> (27 + i) & 1 : inst.raw[0] >> 14 & 1;
    src.neg = inst.raw[1] >> (29 + i) & 1;
    // The mixed-precision forms use the same bits as absolute values.
    (mix ? src.abs : src.neg_hi) = inst.raw[0] >> (8 + i) & 1;
  }
}

void DecodeDpp(uint32_t dword, bool dpp8, Inst& inst) {
  Dpp& dpp = inst.dpp;
  dpp.present = true;
  dpp.dpp8 = dpp8;
  if (dpp8) {
    dpp.ctrl = dword >> 8;
    return;
  }
  dpp.ctrl = dword >> 8 & 0x1ff;
  dpp.fi = dword >> 18 & 1;
  dpp.bound_ctrl = dword >> 19 & 1;
  dpp.bank_mask = dword >> 24 & 0xf;
  dpp.row_mask = dword >> 28 & 0xf;
}

// --- Placing operands -----------------------------------------------------

struct Operands {
  std::vector<Operand> list;
  const Operand& At(size_t i) const {
    static const Operand none;
    return i < list.size() ? list[i] : none;
  }
};

void PlaceSources(const Operands& operands, size_t first, Inst& inst) {
  for (size_t i = first; i < operands.list.size() && inst.num_src < inst.src.size(); ++i) {
    inst.src[inst.num_src++] = operands.list[i];
  }
}

bool HasCarryOut(std::string_view name) {
  return StartsWithAny(name, {"V_ADD_CO_", "V_SUB_CO_", "V_SUBREV_CO_", "V_ADDC_CO_", "V_SUBB_CO_",
                              "V_SUBBREV_CO_", "V_DIV_SCALE_", "V_MAD_U64_U32", "V_MAD_I64_I32"});
}

void PlaceVector(const Operands& operands, const Target& target, Inst& inst) {
  size_t next = 0;
  if (inst.name.starts_with("V_CMPX_") && target.AtLeast10()) {
    inst.dst.kind = Operand::Kind::kSgpr;
    inst.dst.reg = kExecLo;
    inst.dst.dwords = 2;
    // The 64-bit encoding may still spell the destination.
    if (operands.At(0).kind == Operand::Kind::kSgpr && operands.At(0).reg == kExecLo &&
        operands.list.size() > 2) {
      next = 1;
    }
  } else if (inst.name != "V_NOP") {
    inst.dst = operands.At(next++);
  }
  if (HasCarryOut(inst.name)) inst.sdst = operands.At(next++);
  PlaceSources(operands, next, inst);
}

// SOP1/SOP2 forms without a destination.
bool ScalarWithoutDst(std::string_view name) {
  return StartsWithAny(
      name, {"S_CMP_", "S_BITCMP", "S_SETPC", "S_RFE", "S_SETVSKIP", "S_CBRANCH_G", "S_CBRANCH_I",
             "S_CBRANCH_JOIN", "S_SET_GPR_IDX_ON", "S_SET_GPR_IDX_IDX", "S_SETREG", "S_CMPK",
             "S_BARRIER_SIGNAL", "S_BARRIER_INIT", "S_BARRIER_JOIN", "S_SLEEP_VAR", "S_ALLOC_VGPR",
             "S_WAITCNT_"});
}

bool IsSmem(std::string_view name) {
  return StartsWithAny(name,
                       {"S_LOAD_", "S_BUFFER_", "S_STORE_", "S_SCRATCH_", "S_ATOMIC_", "S_DCACHE_",
                        "S_MEMTIME", "S_MEMREALTIME", "S_PREFETCH_", "S_GL1_INV", "S_ATC_PROBE"});
}

// "sdata, sbase, offset" and the forms without data.
void PlaceSmem(const Operands& operands, Inst& inst) {
  if (StartsWithAny(inst.name, {"S_MEM"})) {
    inst.dst = operands.At(0);
    return;
  }
  if (StartsWithAny(inst.name, {"S_PREFETCH_", "S_DCACHE_", "S_GL1_", "S_ATC_"})) return;
  const bool load = inst.name.find("LOAD_") != std::string_view::npos;
  (load ? inst.dst : inst.data) = operands.At(0);
  inst.saddr = operands.At(1);
  inst.soffset = operands.At(2);
  if (inst.soffset.kind == Operand::Kind::kImm) {
    inst.offset = static_cast<int32_t>(inst.soffset.imm);
    inst.soffset = Operand();
  }
  // "s5 offset:0x10" has put the immediate in inst.offset already.
}

void PlaceScalar(const Operands& operands, const Target& target, Inst& inst) {
  inst.simm = static_cast<int16_t>(inst.raw[0] & 0xffff);
  (void)target;
  if (IsSmem(inst.name)) return PlaceSmem(operands, inst);
  const uint32_t top9 = inst.raw[0] >> 23;
  const bool sopp = top9 == 0x17f;
  const bool branch =
      StartsWithAny(inst.name, {"S_BRANCH", "S_CBRANCH_", "S_CALL_", "S_SUBVECTOR_"});
  if (branch) inst.target = inst.pc + 4 + static_cast<uint64_t>(inst.simm * 4);
  if (sopp) return;
  size_t next = 0;
  if (!ScalarWithoutDst(inst.name)) inst.dst = operands.At(next++);
  PlaceSources(operands, next, inst);
}

bool IsStore(std::string_view name) { return name.find("_STORE_") != std::string_view::npos; }
bool IsAtomic(std::string_view name) { return name.find("_ATOMIC_") != std::string_view::npos; }

// FLAT: "vdst, vaddr" / "vaddr, vdata"; GLOBAL and SCRATCH add saddr last.
void PlaceFlat(const Operands& operands, Inst& inst) {
  const bool flat = inst.name.starts_with("FLAT_");
  const size_t addressing = flat ? 1 : 2;
  size_t next = 0;
  if (IsStore(inst.name)) {
    inst.addr = operands.At(next++);
    inst.data = operands.At(next++);
  } else if (IsAtomic(inst.name)) {
    if (operands.list.size() > addressing + 1) {
      inst.dst = operands.At(next++);
      inst.glc = true;
    } else {
      inst.glc = false;
    }
    inst.addr = operands.At(next++);
    inst.data = operands.At(next++);
  } else {
    if (operands.list.size() > addressing) {
      inst.dst = operands.At(next++);
    } else {
      inst.lds = true;  // global_load_lds_*: the destination is LDS
    }
    inst.addr = operands.At(next++);
  }
  // gfx1250 has a scalar base in FLAT, too.
  const bool based = !flat || operands.At(next).kind == Operand::Kind::kSgpr;
  if (based) inst.saddr = operands.At(next++);
  if (inst.saddr.kind == Operand::Kind::kSgpr && inst.saddr.reg == kNull) inst.saddr = Operand();
}

// "vdata, vaddr|off, srsrc, soffset"; without vdata when it goes to LDS.
void PlaceBuffer(const Operands& operands, Inst& inst) {
  size_t next = 0;
  if (operands.list.size() < 3) return;  // cache controls
  if (operands.list.size() >= 4) {
    const bool load = inst.name.find("LOAD") != std::string_view::npos;
    (load ? inst.dst : inst.data) = operands.At(next++);
    if (IsAtomic(inst.name) && inst.glc) inst.dst = inst.data;
  }
  inst.addr = operands.At(next++);
  inst.rsrc = operands.At(next++);
  inst.soffset = operands.At(next++);
}

bool DsReturns(std::string_view name) {
  return name.find("_RTN_") != std::string_view::npos ||
         StartsWithAny(name, {"DS_READ", "DS_PERMUTE", "DS_BPERMUTE", "DS_SWIZZLE", "DS_CONSUME",
                              "DS_APPEND", "DS_ORDERED", "DS_CONDXCHG", "DS_BVH"});
}

// "vdst, vaddr, data0, data1" less whatever the operation lacks.
void PlaceDs(const Operands& operands, Inst& inst) {
  size_t next = 0;
  if (DsReturns(inst.name)) inst.dst = operands.At(next++);
  const bool no_address =
      StartsWithAny(inst.name, {"DS_CONSUME", "DS_APPEND"}) || inst.name.ends_with("ADDTID_B32");
  if (!no_address) inst.addr = operands.At(next++);
  inst.data = operands.At(next++);
  inst.data2 = operands.At(next++);
  // ds_swizzle prints its pattern symbolically; offsets are the low half word.
  if (inst.name == "DS_SWIZZLE_B32") inst.offset = inst.raw[0] & 0xffff;
}

void Place(const Operands& operands, const Target& target, Inst& inst) {
  if (inst.name.starts_with("V_")) return PlaceVector(operands, target, inst);
  if (inst.name.starts_with("S_")) return PlaceScalar(operands, target, inst);
  if (inst.name.starts_with("DS_")) return PlaceDs(operands, inst);
  if (StartsWithAny(inst.name, {"FLAT_", "GLOBAL_", "SCRATCH_"})) return PlaceFlat(operands, inst);
  if (StartsWithAny(inst.name, {"BUFFER_", "TBUFFER_"})) return PlaceBuffer(operands, inst);
}

// --- Handlers the decoder supplies ----------------------------------------

Step Unimplemented(Wave& wave, const Inst& inst) {
  return wave.FaultIllegal(inst, "unimplemented");
}

Step Undecodable(Wave& wave, const Inst& inst) {
  return wave.FaultIllegal(inst, "not an instruction");
}

bool Reads(const Inst& inst, const Operand& reg) {
  for (unsigned i = 0; i < inst.num_src; ++i) {
    const Operand& src = inst.src[i];
    const bool overlap = src.reg < reg.reg + reg.dwords && reg.reg < src.reg + src.dwords;
    if (src.kind == reg.kind && overlap) return true;
  }
  return false;
}

// Both halves of a VOPD read their sources before either writes. When each
// reads the other's destination, the first result waits in a copy.
Step DualIssue(Wave& wave, const Inst& inst) {
  const Inst& x = inst.dual->x;
  const Inst& y = inst.dual->y;
  const bool y_first = Reads(y, x.dst);
  if (!y_first || !Reads(x, y.dst)) {
    const Inst& first = y_first ? y : x;
    const Inst& second = y_first ? x : y;
    const Step step = first.handler(wave, first);
    return step == Step::kNext ? second.handler(wave, second) : step;
  }
  std::vector<std::vector<uint32_t>> before, result;
  const auto copy_to = [&](std::vector<std::vector<uint32_t>>& rows) {
    for (unsigned d = 0; d < x.dst.dwords; ++d) {
      const uint32_t* row = wave.V(x.dst.reg + d);
      rows.emplace_back(row, row + wave.lanes);
    }
  };
  const auto copy_back = [&](const std::vector<std::vector<uint32_t>>& rows) {
    for (unsigned d = 0; d < x.dst.dwords; ++d) {
      std::copy(rows[d].begin(), rows[d].end(), wave.V(x.dst.reg + d));
    }
  };
  copy_to(before);
  Step step = x.handler(wave, x);
  if (step != Step::kNext) return step;
  copy_to(result);
  copy_back(before);
  step = y.handler(wave, y);
  copy_back(result);
  return step;
}

Handler FindHandler(Inst& inst, const Target& target) {
  if (Handler handler = FindScalarHandler(inst, target)) return handler;
  if (Handler handler = FindMemoryHandler(inst, target)) return handler;
  if (Handler handler = FindPseudoScalarHandler(inst, target)) return handler;
  if (Handler handler = FindVectorHandler(inst, target)) return handler;
  return Unimplemented;
}

// --- The decoder ----------------------------------------------------------

void InitLlvm() {
  static const bool done = [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    return true;
  }();
  (void)done;
}

class LlvmDecoder : public Decoder {
 public:
  bool Init(const Target& target, bool wave64, std::string* error);
  void Decode(uint64_t pc, const uint8_t* bytes, size_t available, Inst* inst) override;

 private:
  void Fill(const std::string& text, uint32_t last_dword, Inst& inst);
  void FillDual(const std::string& text, Inst& inst);
  std::string_view Intern(std::string name) { return *names_.insert(std::move(name)).first; }

  Target target_;
  std::unordered_set<std::string> names_;  // node based: views stay valid
  llvm::MCTargetOptions options_;
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> asm_info_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> disassembler_;
  std::unique_ptr<llvm::MCInstPrinter> printer_;
};

bool LlvmDecoder::Init(const Target& target, bool wave64, std::string* error) {
  InitLlvm();
  target_ = target;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(AmdgpuTriple(), *error);
  if (llvm_target == nullptr) return false;
  std::string features;
  if (target.AtLeast10()) {
    features = wave64 ? "+wavefrontsize64,-wavefrontsize32" : "+wavefrontsize32,-wavefrontsize64";
  }
  subtarget_.reset(llvm_target->createMCSubtargetInfo(AmdgpuTriple(), target.name, features));
  if (!subtarget_ || !subtarget_->isCPUStringValid(target.name)) {
    *error = "LLVM does not know the processor " + target.name;
    return false;
  }
  registers_.reset(llvm_target->createMCRegInfo(AmdgpuTriple()));
  asm_info_.reset(llvm_target->createMCAsmInfo(*registers_, AmdgpuTriple(), options_));
  instructions_.reset(llvm_target->createMCInstrInfo());
  context_ = std::make_unique<llvm::MCContext>(llvm::Triple(AmdgpuTriple()), asm_info_.get(),
                                               registers_.get(), subtarget_.get());
  disassembler_.reset(llvm_target->createMCDisassembler(*subtarget_, *context_));
  printer_.reset(llvm_target->createMCInstPrinter(llvm::Triple(AmdgpuTriple()),
                                                  asm_info_->getAssemblerDialect(), *asm_info_,
                                                  *instructions_, *registers_));
  if (!disassembler_ || !printer_) {
    *error = "LLVM lacks an AMDGPU disassembler";
    return false;
  }
  return true;
}

void LlvmDecoder::Decode(uint64_t pc, const uint8_t* bytes, size_t available, Inst* inst) {
  *inst = Inst();
  inst->pc = pc;
  llvm::MCInst mc;
  uint64_t size = 0;
  // Never cut off: LLVM 22 falls over where a literal is missing.
  uint8_t shown[32] = {};
  std::memcpy(shown, bytes, std::min(available, sizeof(shown)));
  const auto status = disassembler_->getInstruction(mc, size, llvm::ArrayRef(shown, sizeof(shown)),
                                                    0, llvm::nulls());
  std::memcpy(inst->raw, bytes, std::min<size_t>(available, sizeof(inst->raw)));
  if (status == llvm::MCDisassembler::Fail || size < 4 || size > available) {
    inst->name = Intern("INVALID");
    inst->handler = Undecodable;
    return;
  }
  inst->size = static_cast<uint8_t>(size);
  if (size < 8) inst->raw[1] = 0;
  std::string text;
  llvm::raw_string_ostream stream(text);
  printer_->printInst(&mc, 0, "", *subtarget_, stream);
  stream.flush();
  inst->text = Trim(text);
  uint32_t last_dword = 0;
  std::memcpy(&last_dword, bytes + size - 4, 4);
  if (inst->text.find(" :: ") != std::string::npos) {
    FillDual(inst->text, *inst);
  } else {
    Fill(inst->text, last_dword, *inst);
  }
}

void LlvmDecoder::Fill(const std::string& text, uint32_t last_dword, Inst& inst) {
  const Statement statement = Split(text);
  inst.name = Intern(CanonicalName(statement.mnemonic));
  const Widen widen = WidenRule(inst.name);
  Operands operands;
  std::vector<std::string> modifiers;
  for (const Piece& piece : statement.pieces) {
    Operand operand;
    if (ParseOperand(piece.word, widen, operand)) {
      operands.list.push_back(operand);
    } else {
      modifiers.push_back(piece.word);
    }
    modifiers.insert(modifiers.end(), piece.modifiers.begin(), piece.modifiers.end());
  }
  // Cache policy must be known before operands are placed (atomics returning).
  for (const std::string& word : modifiers) ApplyModifier(word, inst);
  Place(operands, target_, inst);
  // And selectors only after the sources are there.
  for (const std::string& word : modifiers) {
    if (word.starts_with("op_sel:") || word.starts_with("src")) ApplyModifier(word, inst);
  }
  if (inst.name.starts_with("V_")) {
    const std::string& mnemonic = statement.mnemonic;
    inst.sdwa.present = mnemonic.ends_with("_sdwa");
    const bool dpp8 = mnemonic.ends_with("_dpp") && text.find(" dpp8:") != std::string::npos;
    if (mnemonic.ends_with("_dpp")) DecodeDpp(last_dword, dpp8, inst);
    // DPP8's fetch-inactive form is told by the marker in the source field.
    if (dpp8) inst.dpp.fi = text.find(" fi:1") != std::string::npos;
    DecodeVop3p(target_, inst);
  }
  if (inst.name == "S_SETREG_IMM32_B32") {
    inst.src[0] = Operand();
    inst.src[0].kind = Operand::Kind::kImm;
    inst.src[0].imm = last_dword;
    inst.num_src = 1;
  }
  inst.handler = FindHandler(inst, target_);
}

void LlvmDecoder::FillDual(const std::string& text, Inst& inst) {
  const size_t at = text.find(" :: ");
  auto pair = std::make_shared<DualPair>();
  const std::pair<Inst*, std::string> halves[] = {{&pair->x, text.substr(0, at)},
                                                  {&pair->y, text.substr(at + 4)}};
  for (const auto& [half, half_text] : halves) {
    half->pc = inst.pc;
    half->size = inst.size;
    half->text = text;
    Fill(half_text, 0, *half);
    if (half->name == "V_CNDMASK_B32" && half->num_src == 2) {
      Operand& vcc = half->src[half->num_src++];
      vcc.kind = Operand::Kind::kSgpr;
      vcc.reg = kVccLo;
    }
  }
  inst.name = Intern("VOPD");
  inst.dual = std::move(pair);
  inst.handler = DualIssue;
}

struct TargetRow {
  std::string_view name;
  Gen gen;
};
constexpr TargetRow kTargets[] = {
    {"gfx900", Gen::kGfx9},     {"gfx902", Gen::kGfx9},     {"gfx904", Gen::kGfx9},
    {"gfx906", Gen::kGfx9},     {"gfx908", Gen::kGfx9},     {"gfx909", Gen::kGfx9},
    {"gfx90c", Gen::kGfx9},     {"gfx90a", Gen::kGfx90a},   {"gfx940", Gen::kGfx940},
    {"gfx941", Gen::kGfx940},   {"gfx942", Gen::kGfx940},   {"gfx950", Gen::kGfx940},
    {"gfx1010", Gen::kGfx10},   {"gfx1011", Gen::kGfx10},   {"gfx1012", Gen::kGfx10},
    {"gfx1013", Gen::kGfx10},   {"gfx1030", Gen::kGfx10_3}, {"gfx1031", Gen::kGfx10_3},
    {"gfx1032", Gen::kGfx10_3}, {"gfx1033", Gen::kGfx10_3}, {"gfx1034", Gen::kGfx10_3},
    {"gfx1035", Gen::kGfx10_3}, {"gfx1036", Gen::kGfx10_3}, {"gfx1100", Gen::kGfx11},
    {"gfx1101", Gen::kGfx11},   {"gfx1102", Gen::kGfx11},   {"gfx1103", Gen::kGfx11},
    {"gfx1150", Gen::kGfx11},   {"gfx1151", Gen::kGfx11},   {"gfx1152", Gen::kGfx11},
    {"gfx1200", Gen::kGfx12},   {"gfx1201", Gen::kGfx12},   {"gfx1250", Gen::kGfx12_5},
};

}  // namespace

bool FindTarget(const std::string& gfx_name, Target* target) {
  for (const TargetRow& row : kTargets) {
    if (row.name != gfx_name) continue;
    target->name = gfx_name;
    target->gen = row.gen;
    return true;
  }
  return false;
}

std::unique_ptr<Decoder> Decoder::Create(const Target& target, bool wave64, std::string* error) {
  auto decoder = std::make_unique<LlvmDecoder>();
  if (!decoder->Init(target, wave64, error)) return nullptr;
  return decoder;
}

}  // namespace softgpu
