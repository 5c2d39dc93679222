// What each record probe writes at a site.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "patch/rewrite/record_sequence.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::patch {
namespace {

using Kind = RecordWord::Kind;
using OperandKind = InstructionOperand::Kind;

constexpr uint32_t kFixedBytes = 32;  // header and four words

RecordWord Scalar(uint16_t reg) { return {Kind::kScalar, 0, reg}; }
RecordWord Number(int64_t number) { return {Kind::kNumber, static_cast<uint32_t>(number), 0}; }
RecordWord Wave() { return {Kind::kWave, 0, 0}; }

bool IsVector(uint16_t reg) { return reg >= kVgpr0 && reg < kAgpr0; }

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

// ---- trace-address ----------------------------------------------------------------

// Bytes that one lane's access covers. First match wins; 0: the format decides.
struct WidthRow {
  std::string_view part;
  uint32_t bytes;
};
constexpr WidthRow kWidths[] = {
    {"format", 0},  {"ubyte", 1},     {"sbyte", 1},    {"byte", 1},     {"_u8", 1},
    {"_i8", 1},     {"_b8", 1},       {"short", 2},    {"_u16", 2},     {"_i16", 2},
    {"_b16", 2},    {"dwordx16", 64}, {"dwordx8", 32}, {"dwordx4", 16}, {"dwordx3", 12},
    {"dwordx2", 8}, {"b512", 64},     {"b256", 32},    {"b128", 16},    {"b96", 12},
    {"b64", 8},     {"u64", 8},       {"i64", 8},      {"f64", 8},      {"_x2", 8},
};

uint32_t AccessBytes(std::string_view opcode) {
  for (const WidthRow& row : kWidths) {
    if (absl::StrContains(Text(opcode), Text(row.part))) return row.bytes;
  }
  return 4;
}

class AddressReader {
 public:
  AddressReader(const KernelAnalysis& kernel, uint32_t instruction)
      : in_(kernel.instructions()[instruction]),
        text_(kernel.isa().Print(kernel.code(), in_.offset)),
        addressable_(kernel.isa().generation().addressable_sgprs) {}

  // nullopt: not by registers that can be recorded as they are.
  std::optional<RecordContent> Read() {
    if (in_.opcode.find("_lds_") != std::string_view::npos || HasWord("lds") || HasWord("tfe")) {
      return std::nullopt;
    }
    content_.layout.offset = in_.memory_offset;
    content_.layout.access_bytes = AccessBytes(in_.opcode);
    content_.layout.load = in_.load || in_.atomic;
    content_.layout.store = in_.store || in_.atomic;
    if (!ReadForm()) return std::nullopt;
    return std::move(content_);
  }

 private:
  bool HasWord(std::string_view word) const {
    for (absl::string_view part : absl::StrSplit(text_, absl::ByAnyChar(" ,"), absl::SkipEmpty())) {
      if (part == Text(word)) return true;
    }
    return false;
  }

  bool ReadForm() {
    switch (in_.memory) {
      case MemoryKind::kFlat:
      case MemoryKind::kGlobal:
        return Flat();
      case MemoryKind::kLds:
        return Lds();
      case MemoryKind::kScalar:
        return ScalarLoad();
      case MemoryKind::kBuffer:
        return Buffer();
      case MemoryKind::kScratch:
        return Scratch();
      default:
        return false;
    }
  }

  // LLVM's order: the address is the first vector register that is read.
  const InstructionOperand* FirstVector() const {
    for (const InstructionOperand& o : in_.operands) {
      if (o.kind == OperandKind::kRegister && !o.is_def && IsVector(o.reg)) return &o;
    }
    return nullptr;
  }
  const InstructionOperand* ScalarOf(uint8_t count) const {
    for (const InstructionOperand& o : in_.operands) {
      if (o.kind == OperandKind::kRegister && !o.is_def && !IsVector(o.reg) && o.count == count) {
        return &o;
      }
    }
    return nullptr;
  }
  // Bytes of a v_mov_b32's scalar operand.
  bool Readable(const InstructionOperand& o) const {
    return o.reg + o.count <= kSgpr0 + addressable_ || (o.reg == kVccLo && o.count <= 2) ||
           o.reg == kVccHi || o.reg == kM0 || (o.reg >= kTtmp0 && o.reg < kTtmp0 + 16);
  }
  bool AddWords(const InstructionOperand& o, uint32_t count) {
    if (!Readable(o)) return false;
    for (uint32_t w = 0; w < count; ++w) {
      content_.words.push_back(Scalar(static_cast<uint16_t>(o.reg + w)));
    }
    return true;
  }
  void LaneRegisters(const InstructionOperand& o) {
    content_.lanes = {o.reg, o.count};
    content_.layout.lane_bytes = o.count * 4u;
  }

  bool Flat() {
    const InstructionOperand* vaddr = FirstVector();
    if (vaddr == nullptr || vaddr->count > 2) return false;
    LaneRegisters(*vaddr);
    if (vaddr->count == 2) {
      content_.layout.address_form = AddressForm::kFlat;
      return true;
    }
    content_.layout.address_form = AddressForm::kGlobalSaddr;
    const InstructionOperand* saddr = ScalarOf(2);
    return saddr != nullptr && AddWords(*saddr, 2);
  }

  // Offsets of the two-address forms count elements, or 64 of them.
  bool Lds() {
    const std::string_view op = in_.opcode;
    const bool relative = op.find("addtid") != op.npos || op.find("append") != op.npos ||
                          op.find("consume") != op.npos || op.find("permute") != op.npos ||
                          op.find("swizzle") != op.npos || op.find("bvh") != op.npos ||
                          op.substr(0, 3) != "ds_";
    const InstructionOperand* address = FirstVector();
    if (relative || address == nullptr || address->count != 1) return false;
    LaneRegisters(*address);
    content_.layout.address_form = AddressForm::kLds;
    const bool two =
        op.find("2_") != op.npos || op.find("2st64") != op.npos || op.find("_2addr") != op.npos;
    if (!two) return true;
    // The first two immediates are the offsets.
    int64_t offsets[2] = {0, 0};
    size_t found = 0;
    for (const InstructionOperand& o : in_.operands) {
      if (o.kind != OperandKind::kImmediate || found == 2) continue;
      offsets[found++] = o.imm & 0xff;
    }
    if (found != 2) return false;
    const bool far = op.find("st64") != op.npos || op.find("stride64") != op.npos;
    const int64_t unit = int64_t{content_.layout.access_bytes} * (far ? 64 : 1);
    content_.layout.offset = offsets[0] * unit;
    content_.layout.offset1 = offsets[1] * unit;
    return true;
  }

  // A base pair or, of s_buffer_load, a resource; the offset is a number, a
  // register or both. Which immediate is which, the text says.
  bool ScalarLoad() {
    if (!in_.load && !in_.store && !in_.atomic) return false;
    const bool buffer = in_.opcode.find("buffer") != std::string_view::npos;
    const InstructionOperand* base = nullptr;
    const InstructionOperand* offset = nullptr;
    for (const InstructionOperand& o : in_.operands) {
      if (o.kind != OperandKind::kRegister || o.is_def) continue;
      if (base == nullptr && o.count == (buffer ? 4 : 2)) {
        base = &o;
      } else if (base != nullptr && o.count == 1) {
        offset = &o;
      }
    }
    if (base == nullptr || in_.atomic || in_.store) return false;
    // The cache policy comes last; an offset, if there is one, before it.
    content_.layout.offset = 0;
    std::vector<int64_t> numbers;
    for (const InstructionOperand& o : in_.operands) {
      if (o.kind == OperandKind::kImmediate) numbers.push_back(o.imm);
    }
    if (numbers.size() > 1) content_.layout.offset = numbers[0];
    content_.layout.address_form = buffer ? AddressForm::kBuffer : AddressForm::kScalar;
    if (!AddWords(*base, 2)) return false;
    if (offset != nullptr) {
      if (!AddWords(*offset, 1)) return false;
    } else if (buffer) {
      content_.words.push_back({});
    }
    if (!buffer) return true;
    content_.words.push_back(Scalar(static_cast<uint16_t>(base->reg + 3)));
    return true;
  }

  bool Buffer() {
    const auto& all = in_.operands;
    size_t resource = 0;
    while (resource < all.size() &&
           !(all[resource].kind == OperandKind::kRegister && !all[resource].is_def &&
             !IsVector(all[resource].reg) && all[resource].count == 4)) {
      ++resource;
    }
    if (resource + 1 >= all.size() || !Readable(all[resource])) return false;
    content_.layout.address_form = AddressForm::kBuffer;
    content_.layout.buffer_index = HasWord("idxen");
    content_.layout.buffer_offset = HasWord("offen");
    if (HasWord("addr64")) return false;
    const uint32_t lane_words =
        uint32_t{content_.layout.buffer_index} + uint32_t{content_.layout.buffer_offset};
    if (lane_words > 0) {
      if (resource == 0) return false;
      const InstructionOperand& vaddr = all[resource - 1];
      if (vaddr.kind != OperandKind::kRegister || !IsVector(vaddr.reg) ||
          vaddr.count != lane_words) {
        return false;
      }
      LaneRegisters(vaddr);
    }
    const InstructionOperand& rsrc = all[resource];
    const InstructionOperand& soffset = all[resource + 1];
    AddWords(rsrc, 2);
    if (soffset.kind == OperandKind::kRegister) {
      if (!AddWords(soffset, 1)) return false;
    } else {
      content_.words.push_back(Number(soffset.imm));
    }
    content_.words.push_back(Scalar(static_cast<uint16_t>(rsrc.reg + 3)));
    return true;
  }

  // The parts there are: "off" stands for one that is not.
  bool Scratch() {
    content_.layout.address_form = AddressForm::kScratch;
    const size_t first = text_.find(' ');
    if (first == std::string::npos) return false;
    const std::vector<std::string> parts =
        absl::StrSplit(text_.substr(first + 1), absl::ByAnyChar(" ,"), absl::SkipEmpty());
    // Stores: address, data, saddr; loads: data, address, saddr.
    const size_t address = in_.store ? 0 : 1;
    if (in_.atomic || parts.size() < 3) return false;
    if (parts[address] != "off") {
      const InstructionOperand* vaddr = FirstVector();
      if (vaddr == nullptr || vaddr->count != 1) return false;
      LaneRegisters(*vaddr);
    }
    if (parts[2] == "off") return true;
    const InstructionOperand* saddr = ScalarOf(1);
    return saddr != nullptr && AddWords(*saddr, 1);
  }

  const Instruction in_;
  const std::string text_;
  const uint32_t addressable_;
  RecordContent content_;
};

// What the content reads of the application.
RegisterSet ReadBy(const RecordContent& content) {
  RegisterSet read;
  if (content.lanes.count > 0) read.Add(content.lanes.first, content.lanes.count);
  for (const RecordWord& word : content.words) {
    if (word.kind == Kind::kScalar) read.Add(word.scalar);
  }
  return read;
}

std::variant<RecordContent, Refusal> AddressContent(const KernelAnalysis& kernel, uint32_t i,
                                                    Position position) {
  const Instruction in = kernel.instructions()[i];
  const std::string text = kernel.isa().Print(kernel.code(), in.offset);
  if (in.memory == MemoryKind::kNone || in.waitcnt || (!in.load && !in.store && !in.atomic)) {
    return Refusal{Reason::kNoAddress, text, "a load, a store or an atomic",
                   "the instruction accesses no memory"};
  }
  std::optional<RecordContent> content = AddressReader(kernel, i).Read();
  if (!content) {
    return Refusal{Reason::kAddressForm, text,
                   "a flat, global, LDS, scalar, buffer or scratch address in registers",
                   "the instruction's addresses cannot be recorded from its operands alone"};
  }
  if (position == Position::kAfter) {
    const RegisterSet lost = ReadBy(*content) & (in.defs | in.partial_defs);
    if (!lost.Empty()) {
      return Refusal{Reason::kAddressLost, absl::StrCat(lost.ToString(), " overwritten"),
                     "address registers that survive",
                     "the instruction overwrites registers that hold its own address"};
    }
  }
  content->layout.kind = RJDBI_RECORD_ADDRESS;
  content->needs.scratch = content->lanes.count > 0;
  return *std::move(content);
}

// ---- the others -------------------------------------------------------------------

// ttmp9 is x; ttmp7 has y in its low half and z above: LLVM AMDGPUUsage, "Initial
// kernel execution state", architected SGPRs.
std::vector<RecordWord> WorkgroupInTtmp() {
  constexpr uint16_t kX = kTtmp0 + 9, kYz = kTtmp0 + 7;
  return {Scalar(kX), {Kind::kLowHalf, 0, kYz}, {Kind::kHighHalf, 0, kYz}};
}

RecordContent ExecContent(const Generation& generation, const WorkgroupIds& ids) {
  RecordContent content;
  content.layout.kind = RJDBI_RECORD_EXEC;
  if (generation.workgroup_id_in_ttmp) {
    content.words = WorkgroupInTtmp();
    content.layout.workgroup_id_known = true;
  } else {
    for (const std::optional<uint16_t>& id : ids) {
      content.words.push_back(id ? Scalar(*id) : Number(-1));
      content.layout.workgroup_id_known |= id.has_value();
    }
  }
  content.words.push_back(Wave());
  content.needs.scratch = true;
  return content;
}

RecordContent ClockContent(const Generation& generation) {
  RecordContent content;
  content.layout.kind = RJDBI_RECORD_CLOCK;
  content.layout.clock = generation.clock_name;
  for (absl::string_view line : absl::StrSplit(Text(generation.clock_lines), '\n')) {
    content.sample.emplace_back(line);
  }
  RecordWord high;
  if (generation.clock_sgprs == 2) high = {Kind::kSample, 1, 0};
  if (generation.clock_sgprs == 3) high = {Kind::kSampleHigh, 0, 0};
  content.words = {{Kind::kSample, 0, 0}, high, Wave()};
  content.needs.scratch = true;
  content.needs.sample_sgprs = generation.clock_sgprs;
  return content;
}

std::variant<RecordContent, Refusal> ValueContent(const KernelAnalysis& kernel, uint32_t i,
                                                  const ProbeRequest& request) {
  RegisterRange reg = request.value_register;
  // Masks have one half in wave32.
  const bool mask = reg.first == kExecLo || reg.first == kVccLo;
  if (mask && kernel.isa().wavefront_size() == 32) reg.count = 1;
  const std::string name = RangeName(reg);
  const bool wave64 = kernel.isa().wavefront_size() == 64;
  const bool exec = reg.first == kExecLo || reg.first == kExecHi;
  const bool half_missing = !wave64 && (reg.first == kExecHi || (exec && reg.count == 2));
  if (reg.count == 0 || half_missing) {
    return Refusal{Reason::kValueNotThere, name, "a register of the kernel",
                   "there is no such register here"};
  }
  const RegisterSet live = kernel.LiveAt(i, request.position);
  const RegisterSet pending = kernel.PendingAt(i, request.position);
  // What the instruction reads has arrived, or the kernel itself would be wrong.
  const RegisterSet arrived = request.position == Position::kBefore
                                  ? RegisterSet(kernel.instructions()[i].uses.get())
                                  : RegisterSet();
  for (uint16_t r = reg.first; r < reg.first + reg.count; ++r) {
    if (exec) break;
    if (pending.Has(r) && !arrived.Has(r)) {
      return Refusal{Reason::kValueInFlight, name, "a register that no load may still write",
                     "a memory operation in flight may still write the register, so that it has "
                     "no definite value here"};
    }
    if (!live.Has(r)) {
      return Refusal{Reason::kValueNotLive, name, "a register that is read later on",
                     "nothing reads the register after this place, so that nothing keeps what it "
                     "holds"};
    }
  }
  RecordContent content;
  content.layout.kind = RJDBI_RECORD_VALUE;
  content.layout.value_register = reg;
  if (IsVector(reg.first)) {
    content.lanes = reg;
    content.layout.lane_bytes = 4;
    content.needs.scratch = true;
    return content;
  }
  for (uint8_t w = 0; w < reg.count; ++w) {
    const auto r = static_cast<uint16_t>(reg.first + w);
    if (exec) {
      content.words.push_back({Kind::kSavedExec, static_cast<uint32_t>(r - kExecLo), 0});
    } else if (r == kScc) {
      content.words.push_back({Kind::kScc, 0, 0});
    } else {
      content.words.push_back(Scalar(r));
    }
  }
  if (content.words.size() == 1) content.words.push_back({});
  content.words.push_back(Wave());
  content.needs.scratch = true;
  return content;
}

}  // namespace

// User registers come first, then an id for each axis that the descriptor asks for
// (compute_pgm_rsrc2, bits 7 to 9).
WorkgroupIds WorkgroupIdsAtEntry(const KernelAnalysis& kernel) {
  const uint32_t rsrc2 = kernel.kernel().descriptor.compute_pgm_rsrc2;
  auto next = static_cast<uint16_t>(kSgpr0 + (rsrc2 >> 1 & 0x1f));
  WorkgroupIds ids;
  for (size_t axis = 0; axis < ids.size(); ++axis) {
    if ((rsrc2 >> (7 + axis) & 1) != 0) ids[axis] = next++;
  }
  return ids;
}

std::variant<RecordContent, Refusal> ContentOf(const KernelAnalysis& kernel, uint32_t instruction,
                                               const ProbeRequest& request) {
  std::variant<RecordContent, Refusal> made;
  switch (request.probe) {
    case Probe::kTraceExec:
      made = ExecContent(kernel.isa().generation(), request.workgroup_ids);
      break;
    case Probe::kTraceAddress:
      made = AddressContent(kernel, instruction, request.position);
      break;
    case Probe::kClock:
      made = ClockContent(kernel.isa().generation());
      break;
    case Probe::kValue:
      made = ValueContent(kernel, instruction, request);
      break;
    default:
      return Refusal{Reason::kNoAddress, "no record probe", "a record probe", ""};
  }
  auto* content = std::get_if<RecordContent>(&made);
  if (content == nullptr) return made;
  const Instruction& in = kernel.instructions().Shared(instruction);
  if (content->lanes.count > 0 && !in.mfma) {
    RegisterSet lanes;
    lanes.Add(content->lanes.first, content->lanes.count);
    content->lanes_settled = (lanes - in.uses.get()).Empty();
  }
  RecordLayout& layout = content->layout;
  layout.site = request.record_site;
  layout.wavefront_size = kernel.isa().wavefront_size();
  const uint32_t lanes = layout.lane_bytes * layout.wavefront_size;
  layout.bytes = kFixedBytes + (lanes + RJDBI_RECORD_ALIGNMENT - 1) / RJDBI_RECORD_ALIGNMENT *
                                   RJDBI_RECORD_ALIGNMENT;
  return made;
}

}  // namespace rjdbi::patch
