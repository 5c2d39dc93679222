// The facade: decode and print one instruction at a time.
#include "patch/isa/isa.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/MC/MCExpr.h"
#include "llvm/MC/MCInst.h"
#include "llvm/Support/raw_ostream.h"
#include "patch/isa/assembler.h"
#include "patch/isa/instruction_traits.h"
#include "patch/isa/llvm_target.h"
#include "patch/isa/rename.h"

namespace rjdbi::patch {
namespace {

constexpr unsigned kHwregMode = 1;

uint32_t FirstWord(absl::Span<const uint8_t> code, uint64_t offset) {
  return static_cast<uint32_t>(code[offset]) | static_cast<uint32_t>(code[offset + 1]) << 8 |
         static_cast<uint32_t>(code[offset + 2]) << 16 |
         static_cast<uint32_t>(code[offset + 3]) << 24;
}

std::string SingleBlanks(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (blank && (out.empty() || out.back() == ' ')) continue;
    out += blank ? ' ' : c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// The same for every processor: made once, because it goes by names.
const RegisterMap& SharedRegisterMap(const llvm::MCRegisterInfo& info) {
  static const RegisterMap map = RegisterMap::Build(info);
  return map;
}

const RegisterSet& VectorRegisters() {
  static const RegisterSet vectors = [] {
    RegisterSet all;
    all.Add(kVgpr0, kNumRegisters - kVgpr0);
    return all;
  }();
  return vectors;
}

// SDWA (gfx9, gfx10): a second word chooses bytes of the operands, and some
// values mean nothing. LLVM decodes them and falls over when it prints them.
// Source: the ISA documents' SDWA fields; VOPC has no destination to choose in.
bool ChoosesNothing(absl::Span<const uint8_t> bytes) {
  constexpr uint32_t kMarker = 0xf9, kVop1 = 0x3f, kVopc = 0x3e;
  const uint32_t word = FirstWord(bytes, 0);
  if (bytes.size() < 8 || word >> 31 != 0 || (word & 0x1ff) != kMarker) return false;
  const uint32_t choice = FirstWord(bytes, 4), encoding = word >> 25;
  const auto reserved = [choice](unsigned bit) { return (choice >> bit & 7) == 7; };
  if (reserved(16) || (encoding != kVop1 && reserved(24))) return true;
  return encoding != kVopc && (reserved(8) || (choice >> 11 & 3) == 3);
}

// gfx12's barrier instructions take an inline constant or M0. LLVM 22 falls over a
// literal there. Source: the ISA document's SOP1 opcodes 0x4e to 0x52.
bool NamesBarrierByLiteral(uint32_t word) {
  const uint32_t opcode = word >> 8 & 0xff, source = word & 0xff;
  return word >> 23 == 0x17d && opcode >= 0x4e && opcode <= 0x52 && source >= 0xfe;
}

// LLVM 21 and later wrap literals that an inline constant could also give.
std::optional<int64_t> ValueOf(const llvm::MCOperand& operand) {
  if (operand.isImm()) return operand.getImm();
  int64_t value = 0;
  if (operand.isExpr() && operand.getExpr()->evaluateAsAbsolute(value)) return value;
  return std::nullopt;
}

// Owns what decoded instructions share. Nothing moves once it is here.
class Interner {
 public:
  RegisterSetRef Set(const RegisterSet& set) {
    if (set.Empty()) return RegisterSetRef();
    const auto found = by_content_.find(&set);
    if (found != by_content_.end()) return RegisterSetRef(**found);
    sets_.push_back(set);
    by_content_.insert(&sets_.back());
    return RegisterSetRef(sets_.back());
  }

  absl::Span<const InstructionOperand> Operands(absl::Span<const InstructionOperand> operands) {
    if (operands.empty()) return {};
    if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < operands.size()) {
      chunks_.emplace_back().reserve(std::max(kChunk, operands.size()));
    }
    std::vector<InstructionOperand>& chunk = chunks_.back();
    chunk.insert(chunk.end(), operands.begin(), operands.end());
    return absl::MakeConstSpan(chunk).last(operands.size());
  }

 private:
  static constexpr size_t kChunk = 1024;
  struct Hash {
    size_t operator()(const RegisterSet* set) const { return set->Hash(); }
  };
  struct Equal {
    bool operator()(const RegisterSet* a, const RegisterSet* b) const { return *a == *b; }
  };
  std::deque<RegisterSet> sets_;
  absl::flat_hash_set<const RegisterSet*, Hash, Equal> by_content_;
  std::deque<std::vector<InstructionOperand>> chunks_;
};

// What is known of one encoding.
struct Known {
  Instruction instruction;  // at offset 0
};

// An instruction on its way, with sets of its own.
struct Building {
  Instruction base;
  RegisterSet defs, uses, partial_defs;
  std::vector<InstructionOperand> operands;
};

class LlvmIsa : public Isa {
 public:
  LlvmIsa(const Generation& generation, uint32_t wavefront_size, std::unique_ptr<LlvmTarget> llvm)
      : generation_(generation),
        wavefront_size_(wavefront_size),
        llvm_(std::move(llvm)),
        map_(SharedRegisterMap(*llvm_->registers)),
        traits_(llvm_->instructions->getNumOpcodes()) {}

  const Generation& generation() const override { return generation_; }
  uint32_t wavefront_size() const override { return wavefront_size_; }

  std::optional<Instruction> Decode(absl::Span<const uint8_t> code, uint64_t offset) override;
  const Instruction* DecodeShared(absl::Span<const uint8_t> code, uint64_t offset) override {
    const Known* known = Lookup(code, offset);
    return known == nullptr ? nullptr : &known->instruction;
  }
  std::string Print(absl::Span<const uint8_t> code, uint64_t offset) override;
  absl::StatusOr<std::vector<uint8_t>> Assemble(std::string_view text) override {
    return AssembleText(*llvm_, text);
  }
  absl::StatusOr<std::vector<uint8_t>> Rename(absl::Span<const uint8_t> code, uint64_t offset,
                                              const RegisterRenaming& renaming) override;

 private:
  // The longest encoding is 20 bytes.
  static constexpr size_t kMaxSize = 20;
  using LongKey = std::pair<std::array<uint8_t, kMaxSize>, size_t>;

  Known* Lookup(absl::Span<const uint8_t> code, uint64_t offset);
  Known* LookupLong(absl::Span<const uint8_t> bytes);
  Known* DecodeAnew(absl::Span<const uint8_t> bytes);
  bool DecodeInst(absl::Span<const uint8_t> bytes, llvm::MCInst& inst, uint64_t& size);
  const OpcodeTraits& TraitsOf(const llvm::MCInst& inst);
  std::string PrintInst(const llvm::MCInst& inst) const;
  int64_t SignedOffset(MemoryKind kind, int64_t imm) const;
  bool AddOperands(const llvm::MCInst& inst, const OpcodeTraits& traits, Building& out) const;
  void AddHardwareRegister(const OpcodeTraits& traits, uint32_t word, Building& out) const;
  void AddIndexed(const OpcodeTraits& traits, Building& out) const;
  void AddGds(const OpcodeTraits& traits, uint32_t word, Building& out) const;

  const Generation& generation_;
  const uint32_t wavefront_size_;
  std::unique_ptr<LlvmTarget> llvm_;
  const RegisterMap& map_;
  std::vector<std::unique_ptr<OpcodeTraits>> traits_;  // by LLVM opcode, on demand
  Interner interner_;
  std::unique_ptr<Renamer> renamer_;  // once it is needed
  std::deque<Known> known_;
  absl::flat_hash_map<const Known*, std::string> texts_;  // that were asked for
  // By the bytes shown to LLVM; nullptr: they are no instruction by themselves.
  absl::flat_hash_map<uint32_t, Known*> by_word_;
  absl::flat_hash_map<uint64_t, Known*> by_pair_;
  absl::flat_hash_map<LongKey, Known*> by_bytes_;
};

bool LlvmIsa::DecodeInst(absl::Span<const uint8_t> bytes, llvm::MCInst& inst, uint64_t& size) {
  size = 0;
  if (generation_.sdwa && ChoosesNothing(bytes)) return false;
  if (generation_.major >= 12 && NamesBarrierByLiteral(FirstWord(bytes, 0))) return false;
  // Zeros behind them: LLVM 22 falls over where an instruction's literal is cut off.
  std::array<uint8_t, 2 * kMaxSize> shown = {};
  std::copy_n(bytes.begin(), std::min(bytes.size(), kMaxSize), shown.begin());
  const auto status = llvm_->disassembler->getInstruction(
      inst, size, llvm::ArrayRef<uint8_t>(shown.data(), shown.size()), 0, llvm::nulls());
  const size_t limit = std::min<size_t>(bytes.size(), generation_.max_instruction_bytes);
  return status != llvm::MCDisassembler::Fail && size >= 4 && size <= limit;
}

const OpcodeTraits& LlvmIsa::TraitsOf(const llvm::MCInst& inst) {
  std::unique_ptr<OpcodeTraits>& slot = traits_[inst.getOpcode()];
  if (!slot) {
    slot = std::make_unique<OpcodeTraits>(BuildTraits(*llvm_, map_, inst, wavefront_size_));
  }
  return *slot;
}

// LLVM leaves the offsets of the FLAT family as raw bits.
int64_t LlvmIsa::SignedOffset(MemoryKind kind, int64_t imm) const {
  const bool segment = kind == MemoryKind::kGlobal || kind == MemoryKind::kScratch;
  if (!segment && !(kind == MemoryKind::kFlat && generation_.signed_flat_offsets)) return imm;
  const int64_t sign = int64_t{1} << (generation_.flat_offset_bits - 1);
  return ((imm & ((sign << 1) - 1)) ^ sign) - sign;
}

// False: an operand whose register or value is not known.
bool LlvmIsa::AddOperands(const llvm::MCInst& inst, const OpcodeTraits& traits,
                          Building& out) const {
  const llvm::MCInstrDesc& desc = llvm_->instructions->get(inst.getOpcode());
  bool offset_seen = false;
  out.operands.reserve(inst.getNumOperands());
  for (unsigned i = 0; i < inst.getNumOperands(); ++i) {
    const llvm::MCOperand& from = inst.getOperand(i);
    InstructionOperand operand;
    operand.is_def = i < desc.getNumDefs();
    if (from.isReg()) {
      const RegisterMap::Range range = map_.ranges[from.getReg()];
      if (range.foreign) return false;
      if (range.count > 0) {
        operand.kind = InstructionOperand::Kind::kRegister;
        operand.reg = range.first;
        operand.count = range.count;
        operand.condition = range.condition;
        (operand.is_def ? out.defs : out.uses).Add(range.first, range.count);
        if (operand.is_def && traits.reads_destination) out.uses.Add(range.first, range.count);
      }
    } else if (const std::optional<int64_t> value = ValueOf(from)) {
      operand.imm = *value;
      const bool plain = i < desc.getNumOperands() &&
                         desc.operands()[i].OperandType == llvm::MCOI::OPERAND_IMMEDIATE;
      if (!offset_seen && plain && out.base.memory != MemoryKind::kNone) {
        offset_seen = true;
        out.base.memory_offset = SignedOffset(out.base.memory, operand.imm);
      }
    }
    if (from.isExpr() && !ValueOf(from)) return false;
    out.operands.push_back(operand);
  }
  return true;
}

void LlvmIsa::AddHardwareRegister(const OpcodeTraits& traits, uint32_t word, Building& out) const {
  if (!traits.reads_hwreg && !traits.writes_hwreg) return;
  RegisterSet named;
  const unsigned id = word & 0x3f;
  if (id == kHwregMode) named.Add(kMode);
  for (const HardwareRegister& row : generation_.hwregs) {
    if (row.id == id) named.Add(row.first, row.count);
  }
  if (traits.reads_hwreg) {
    out.uses |= named;
    return;
  }
  out.defs.Remove(kMode);  // LLVM claims MODE for every hardware register
  out.defs |= named;
  out.partial_defs |= named;
}

void LlvmIsa::AddIndexed(const OpcodeTraits& traits, Building& out) const {
  RegisterSet file;
  if (traits.indexes_vgprs) file.Add(kVgpr0, 256);
  if (traits.indexes_sgprs) file.Add(kSgpr0, generation_.addressable_sgprs);
  if (file.Empty()) return;
  out.uses |= file;
  out.defs |= file;
  out.partial_defs |= file;
}

void LlvmIsa::AddGds(const OpcodeTraits& traits, uint32_t word, Building& out) const {
  if (!traits.is_ds || generation_.gds_bit == 0 || out.base.memory == MemoryKind::kNone) return;
  if ((word >> generation_.gds_bit & 1) == 0) return;
  // Parameter loads share the flag but not the encoding.
  if (traits.mnemonic.substr(0, 3) != "ds_") return;
  out.base.memory = MemoryKind::kGds;
  out.uses.Add(kM0);
}

// nullptr: `bytes` do not start with an instruction.
Known* LlvmIsa::DecodeAnew(absl::Span<const uint8_t> bytes) {
  llvm::MCInst inst;
  uint64_t size = 0;
  if (!DecodeInst(bytes, inst, size)) return nullptr;
  const OpcodeTraits& traits = TraitsOf(inst);
  const uint32_t word = FirstWord(bytes, 0);
  Building made{traits.base, traits.defs, traits.uses, traits.partial_defs, {}};
  if (!AddOperands(inst, traits, made)) return nullptr;
  AddHardwareRegister(traits, word, made);
  AddIndexed(traits, made);
  AddGds(traits, word, made);
  made.partial_defs |= made.defs & VectorRegisters();
  if (traits.conditional_write) made.partial_defs |= made.defs;

  Instruction& out = known_.emplace_back().instruction;
  out = made.base;
  out.id = static_cast<uint32_t>(known_.size() - 1);
  out.size = static_cast<uint8_t>(size);
  if (traits.pc_relative) {
    out.target_offset = 4 + int64_t{4} * static_cast<int16_t>(word & 0xffff);
  }
  if (out.is_clause) out.clause_length = static_cast<uint8_t>((word & 0x3f) + 1);
  out.defs = interner_.Set(made.defs);
  out.uses = interner_.Set(made.uses);
  out.partial_defs = made.partial_defs == made.defs ? out.defs : interner_.Set(made.partial_defs);
  out.operands = interner_.Operands(made.operands);
  if (generation_.scaled_offsets && out.memory != MemoryKind::kNone) {
    out.scales_offset = PrintInst(inst).find(" scale_offset") != std::string::npos;
  }
  return &known_.back();
}

// Most encodings with both high bits set have two words, and so have vector ones
// whose first operand is a literal or a modifier. Only a guess at what to show.
bool SeldomAlone(uint32_t word) {
  const uint32_t operand = word & 0x1ff;
  const bool extended = operand == 0xff || operand == 0xf9 || operand == 0xfa;
  return word >> 30 == 3 || (word >> 31 == 0 && extended);
}

// More is shown only where less was no instruction, so that the answer depends
// on the instruction's own bytes and can be kept under them.
Known* LlvmIsa::Lookup(absl::Span<const uint8_t> code, uint64_t offset) {
  if (offset >= code.size() || code.size() - offset < 4) return nullptr;
  const auto bytes = code.subspan(offset, kMaxSize);
  const uint32_t word = FirstWord(bytes, 0);
  if (bytes.size() < 8 || !SeldomAlone(word)) {
    const auto [single, fresh] = by_word_.try_emplace(word, nullptr);
    if (fresh) single->second = DecodeAnew(bytes.first(4));
    if (single->second != nullptr || bytes.size() < 8) return single->second;
  }
  const uint64_t words = uint64_t{FirstWord(bytes, 4)} << 32 | word;
  const auto [pair, new_pair] = by_pair_.try_emplace(words, nullptr);
  if (new_pair) pair->second = DecodeAnew(bytes.first(8));
  return pair->second != nullptr ? pair->second : LookupLong(bytes);
}

Known* LlvmIsa::LookupLong(absl::Span<const uint8_t> bytes) {
  for (size_t size = 12; size <= bytes.size(); size += 4) {
    LongKey key{{}, size};
    std::copy_n(bytes.begin(), size, key.first.begin());
    const auto [it, fresh] = by_bytes_.try_emplace(key, nullptr);
    if (fresh) it->second = DecodeAnew(bytes.first(size));
    if (it->second != nullptr) return it->second;
  }
  return nullptr;
}

std::optional<Instruction> LlvmIsa::Decode(absl::Span<const uint8_t> code, uint64_t offset) {
  const Known* known = Lookup(code, offset);
  if (known == nullptr) return std::nullopt;
  Instruction out = known->instruction;
  out.offset = offset;
  if (out.target_offset) *out.target_offset += static_cast<int64_t>(offset);
  return out;
}

std::string LlvmIsa::Print(absl::Span<const uint8_t> code, uint64_t offset) {
  Known* known = Lookup(code, offset);
  if (known == nullptr) return "";
  std::string& kept = texts_[known];
  if (!kept.empty()) return kept;
  llvm::MCInst inst;
  uint64_t size = 0;
  if (!DecodeInst(code.subspan(offset, known->instruction.size), inst, size)) return "";
  return kept = PrintInst(inst);
}

std::string LlvmIsa::PrintInst(const llvm::MCInst& inst) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm_->printer->printInst(&inst, 0, "", *llvm_->subtarget, stream);
  stream.flush();
  return SingleBlanks(text);
}

// Same instruction, operands as the renaming says.
bool IsRenamed(const Instruction& from, const Instruction& to, const RegisterRenaming& renaming) {
  if (from.opcode != to.opcode || from.size != to.size ||
      from.operands.size() != to.operands.size()) {
    return false;
  }
  for (size_t i = 0; i < from.operands.size(); ++i) {
    const InstructionOperand &a = from.operands[i], &b = to.operands[i];
    if (a.kind != b.kind || a.is_def != b.is_def || a.imm != b.imm || a.count != b.count) {
      return false;
    }
    const bool reg = a.kind == InstructionOperand::Kind::kRegister;
    if (reg && b.reg != renaming[a.reg]) return false;
  }
  return true;
}

absl::StatusOr<std::vector<uint8_t>> LlvmIsa::Rename(absl::Span<const uint8_t> code,
                                                     uint64_t offset,
                                                     const RegisterRenaming& renaming) {
  const Known* known = Lookup(code, offset);
  if (known == nullptr) return absl::InvalidArgumentError("no instruction");
  llvm::MCInst inst;
  uint64_t size = 0;
  if (!DecodeInst(code.subspan(offset, known->instruction.size), inst, size)) {
    return absl::InvalidArgumentError("no instruction");
  }
  if (renamer_ == nullptr) renamer_ = std::make_unique<Renamer>(*llvm_, map_);
  absl::StatusOr<std::vector<uint8_t>> made = renamer_->Encode(inst, renaming);
  if (!made.ok()) return made.status();
  const Known* result = Lookup(*made, 0);
  if (result == nullptr || !IsRenamed(known->instruction, result->instruction, renaming)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Print(code, offset), "\" cannot have these registers"));
  }
  return made;
}

}  // namespace

RegisterRenaming NoRenaming() {
  RegisterRenaming same = {};
  for (uint16_t reg = 0; reg < kNumRegisters; ++reg) same[reg] = reg;
  return same;
}

int LlvmVersion() { return LLVM_VERSION_MAJOR; }

absl::StatusOr<std::unique_ptr<Isa>> Isa::Create(const TargetId& target, uint32_t wavefront_size) {
  absl::StatusOr<const Generation*> generation = FindGeneration(target.processor);
  absl::StatusOr<std::unique_ptr<LlvmTarget>> llvm = LlvmTarget::Create(target, wavefront_size);
  if (!llvm.ok()) return llvm.status();
  if (absl::Status status = CheckFlagPositions(); !status.ok()) return status;
  return std::make_unique<LlvmIsa>(**generation, wavefront_size, *std::move(llvm));
}

}  // namespace rjdbi::patch
