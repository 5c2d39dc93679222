// The facade: decode and print one instruction at a time.
#include "patch/isa/isa.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <string_view>
#include <utility>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/MC/MCInst.h"
#include "llvm/Support/raw_ostream.h"
#include "patch/isa/assembler.h"
#include "patch/isa/instruction_traits.h"
#include "patch/isa/llvm_target.h"

namespace rjdbi::patch {
namespace {

// Hardware register numbers of s_getreg/s_setreg, simm16[5:0]: the ones that
// alias a Register. Source: LLVM AMDGPU "hwreg" names.
constexpr unsigned kHwregMode = 1, kHwregFlatScratchLo = 20, kHwregFlatScratchHi = 21,
                   kHwregXnackMask = 22;

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

// Instructions decoded lately, by all the bytes that LLVM was shown. The same
// probe sequences come by many times: planned, judged, verified, validated.
class DecodeCache {
 public:
  // The longest encoding is 20 bytes; LLVM gets no more than it needs.
  static constexpr uint64_t kMaxSize = 20;

  struct Entry {
    std::array<uint8_t, kMaxSize> bytes = {};
    uint8_t length = 0;  // of `bytes`; 0: nothing here
    Instruction instruction;
  };

  // `bytes`: at most kMaxSize. The slot for them; it may hold others.
  Entry& SlotOf(absl::Span<const uint8_t> bytes) {
    const std::string_view key(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::unique_ptr<Entry>& slot = slots_[std::hash<std::string_view>()(key) % kSlots];
    if (!slot) slot = std::make_unique<Entry>();
    return *slot;
  }
  static bool Holds(const Entry& entry, absl::Span<const uint8_t> bytes) {
    return entry.length == bytes.size() &&
           std::equal(bytes.begin(), bytes.end(), entry.bytes.begin());
  }
  static void Put(Entry& entry, absl::Span<const uint8_t> bytes, const Instruction& instruction) {
    std::copy(bytes.begin(), bytes.end(), entry.bytes.begin());
    entry.length = static_cast<uint8_t>(bytes.size());
    entry.instruction = instruction;
  }

 private:
  static constexpr size_t kSlots = 4096;
  std::vector<std::unique_ptr<Entry>> slots_ = std::vector<std::unique_ptr<Entry>>(kSlots);
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
  std::string Print(absl::Span<const uint8_t> code, uint64_t offset) override;
  absl::StatusOr<std::vector<uint8_t>> Assemble(std::string_view text) override {
    return AssembleText(*llvm_, text);
  }

 private:
  static constexpr uint64_t kMaxSize = DecodeCache::kMaxSize;

  std::optional<Instruction> DecodeAnew(absl::Span<const uint8_t> bytes);
  bool DecodeInst(absl::Span<const uint8_t> code, uint64_t offset, llvm::MCInst& inst,
                  uint64_t& size);
  const OpcodeTraits& TraitsOf(const llvm::MCInst& inst);
  int64_t SignedOffset(MemoryKind kind, int64_t imm) const;
  void AddOperands(const llvm::MCInst& inst, const OpcodeTraits& traits, Instruction& out) const;
  void AddHardwareRegister(const OpcodeTraits& traits, uint32_t word, Instruction& out) const;
  void AddIndexed(const OpcodeTraits& traits, Instruction& out) const;
  void AddGds(const OpcodeTraits& traits, uint32_t word, Instruction& out) const;

  const Generation& generation_;
  const uint32_t wavefront_size_;
  std::unique_ptr<LlvmTarget> llvm_;
  const RegisterMap& map_;
  std::vector<std::unique_ptr<OpcodeTraits>> traits_;  // by LLVM opcode, on demand
  DecodeCache cache_;
};

bool LlvmIsa::DecodeInst(absl::Span<const uint8_t> code, uint64_t offset, llvm::MCInst& inst,
                         uint64_t& size) {
  if (offset >= code.size() || code.size() - offset < 4) return false;
  const uint64_t length = std::min<uint64_t>(code.size() - offset, kMaxSize);
  const llvm::ArrayRef<uint8_t> bytes(code.data() + offset, length);
  size = 0;
  const auto status = llvm_->disassembler->getInstruction(inst, size, bytes, 0, llvm::nulls());
  return status != llvm::MCDisassembler::Fail && size >= 4 && size <= length;
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
  if (!segment && !(kind == MemoryKind::kFlat && generation_.major >= 12)) return imm;
  const unsigned bits = generation_.major == 10 ? 12 : generation_.major >= 12 ? 24 : 13;
  const int64_t sign = int64_t{1} << (bits - 1);
  return ((imm & ((sign << 1) - 1)) ^ sign) - sign;
}

void LlvmIsa::AddOperands(const llvm::MCInst& inst, const OpcodeTraits& traits,
                          Instruction& out) const {
  const llvm::MCInstrDesc& desc = llvm_->instructions->get(inst.getOpcode());
  bool offset_seen = false;
  out.operands.reserve(inst.getNumOperands());
  for (unsigned i = 0; i < inst.getNumOperands(); ++i) {
    const llvm::MCOperand& from = inst.getOperand(i);
    InstructionOperand operand;
    operand.is_def = i < desc.getNumDefs();
    if (from.isReg()) {
      const RegisterMap::Range range = map_.ranges[from.getReg()];
      if (range.count > 0) {
        operand.kind = InstructionOperand::Kind::kRegister;
        operand.reg = range.first;
        operand.count = range.count;
        (operand.is_def ? out.defs : out.uses).Add(range.first, range.count);
        if (operand.is_def && traits.reads_destination) out.uses.Add(range.first, range.count);
      }
    } else if (from.isImm()) {
      operand.imm = from.getImm();
      const bool plain = i < desc.getNumOperands() &&
                         desc.operands()[i].OperandType == llvm::MCOI::OPERAND_IMMEDIATE;
      if (!offset_seen && plain && out.memory != MemoryKind::kNone) {
        offset_seen = true;
        out.memory_offset = SignedOffset(out.memory, operand.imm);
      }
    }
    out.operands.push_back(operand);
  }
}

void LlvmIsa::AddHardwareRegister(const OpcodeTraits& traits, uint32_t word,
                                  Instruction& out) const {
  if (!traits.reads_hwreg && !traits.writes_hwreg) return;
  RegisterSet named;
  const unsigned id = word & 0x3f;
  if (id == kHwregMode) named.Add(kMode);
  if (generation_.major >= 10 && id == kHwregFlatScratchLo) named.Add(kFlatScratchLo);
  if (generation_.major >= 10 && id == kHwregFlatScratchHi) named.Add(kFlatScratchHi);
  if (generation_.major == 10 && id == kHwregXnackMask) named.Add(kXnackMaskLo, 2);
  if (traits.reads_hwreg) {
    out.uses |= named;
    return;
  }
  out.defs.Remove(kMode);  // LLVM claims MODE for every hardware register
  out.defs |= named;
  out.partial_defs |= named;
}

void LlvmIsa::AddIndexed(const OpcodeTraits& traits, Instruction& out) const {
  RegisterSet file;
  if (traits.indexes_vgprs) file.Add(kVgpr0, 256);
  if (traits.indexes_sgprs) file.Add(kSgpr0, generation_.addressable_sgprs);
  if (file.Empty()) return;
  out.uses |= file;
  out.defs |= file;
  out.partial_defs |= file;
}

void LlvmIsa::AddGds(const OpcodeTraits& traits, uint32_t word, Instruction& out) const {
  if (!traits.is_ds || generation_.major >= 12 || out.memory == MemoryKind::kNone) return;
  if ((word >> (generation_.major == 9 ? 16 : 17) & 1) == 0) return;
  // Parameter loads share the flag but not the encoding.
  if (traits.mnemonic.substr(0, 3) != "ds_") return;
  out.memory = MemoryKind::kGds;
  out.uses.Add(kM0);
}

// At offset 0 of `bytes`.
std::optional<Instruction> LlvmIsa::DecodeAnew(absl::Span<const uint8_t> bytes) {
  llvm::MCInst inst;
  uint64_t size = 0;
  if (!DecodeInst(bytes, 0, inst, size)) return std::nullopt;
  const OpcodeTraits& traits = TraitsOf(inst);
  const uint32_t word = FirstWord(bytes, 0);
  Instruction out = traits.base;
  out.size = static_cast<uint8_t>(size);
  AddOperands(inst, traits, out);
  AddHardwareRegister(traits, word, out);
  AddIndexed(traits, out);
  AddGds(traits, word, out);
  if (traits.pc_relative) {
    out.target_offset = 4 + int64_t{4} * static_cast<int16_t>(word & 0xffff);
  }
  if (out.is_clause) out.clause_length = static_cast<uint8_t>((word & 0x3f) + 1);
  out.partial_defs |= out.defs & VectorRegisters();
  if (traits.conditional_write) out.partial_defs |= out.defs;
  return out;
}

std::optional<Instruction> LlvmIsa::Decode(absl::Span<const uint8_t> code, uint64_t offset) {
  if (offset >= code.size()) return std::nullopt;
  const auto bytes = code.subspan(offset, kMaxSize);
  DecodeCache::Entry& entry = cache_.SlotOf(bytes);
  std::optional<Instruction> out;
  if (DecodeCache::Holds(entry, bytes)) {
    out = entry.instruction;
  } else {
    out = DecodeAnew(bytes);
    if (!out) return std::nullopt;
    DecodeCache::Put(entry, bytes, *out);
  }
  out->offset = offset;
  if (out->target_offset) *out->target_offset += static_cast<int64_t>(offset);
  return out;
}

std::string LlvmIsa::Print(absl::Span<const uint8_t> code, uint64_t offset) {
  llvm::MCInst inst;
  uint64_t size = 0;
  if (!DecodeInst(code, offset, inst, size)) return "";
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm_->printer->printInst(&inst, 0, "", *llvm_->subtarget, stream);
  stream.flush();
  return SingleBlanks(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Isa>> Isa::Create(const TargetId& target, uint32_t wavefront_size) {
  absl::StatusOr<const Generation*> generation = FindGeneration(target.processor);
  if (!generation.ok()) return absl::UnimplementedError(generation.status().message());
  absl::StatusOr<std::unique_ptr<LlvmTarget>> llvm = LlvmTarget::Create(target, wavefront_size);
  if (!llvm.ok()) return llvm.status();
  if (absl::Status status = CheckFlagPositions(); !status.ok()) return status;
  return std::make_unique<LlvmIsa>(**generation, wavefront_size, *std::move(llvm));
}

}  // namespace rjdbi::patch
