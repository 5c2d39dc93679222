// Decoding, then one rule after the other; control flow is acyclic, so that each
// dataflow is one pass.
#include "patch/probe/probe_body.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "patch/analysis/hazard_regions.h"
#include "patch/analysis/wait_counters.h"
#include "patch/probe/unroll.h"

namespace rjdbi::patch {
namespace {

constexpr uint16_t kLinkLo = kSgpr0 + 30, kLinkHi = kSgpr0 + 31;
constexpr uint16_t kWorkItemIds = kVgpr0 + 31;

// Opcodes that no probe may have, whatever its manifest says.
struct ForbiddenRow {
  std::string_view prefix, why;
};
constexpr ForbiddenRow kForbidden[] = {
    {"s_setreg", "it writes a hardware register"},
    {"s_round_mode", "it changes the rounding mode"},
    {"s_denorm_mode", "it changes the denormal mode"},
    {"s_barrier", "it waits for other wavefronts"},
    {"s_sendmsg", "it sends a message"},
    {"s_trap", "it traps"},
    {"s_rfe", "it leaves a trap handler"},
    {"s_sethalt", "it halts wavefronts"},
    {"s_setkill", "it ends wavefronts"},
    {"s_setprio", "it changes the wavefront's priority"},
    {"s_set_gpr_idx", "it makes register numbers relative"},
    {"s_set_vgpr_msb", "it makes register numbers relative"},
    {"s_setvskip", "it makes instructions skip"},
    {"s_incperflevel", "it changes performance counters"},
    {"s_decperflevel", "it changes performance counters"},
    {"s_ttrace", "it writes to the thread trace"},
    {"s_icache", "it invalidates caches"},
    {"s_getpc", "it computes with its own address, which is the kernel's once it is in line"},
    {"s_alloc_vgpr", "it changes the wavefront's registers"},
    {"s_wakeup", "it wakes other wavefronts"},
    {"export", "it exports"},
    {"exp", "it exports"},
};

// Waits for operations, not those that are hazard guards.
bool WaitsForOperations(const Instruction& in) {
  return in.waitcnt && in.opcode != "s_waitcnt_depctr" && in.opcode != "s_wait_alu" &&
         in.opcode != "s_wait_event" && in.opcode != "s_wait_idle";
}

bool Ordinary(uint16_t reg) { return reg < kVccLo || reg >= kVgpr0; }
bool IsVector(uint16_t reg) { return reg >= kVgpr0; }

class Reader {
 public:
  Reader(const DeviceFunction& function, Isa& isa) : function_(function), isa_(isa) {
    body_.name = function.name;
    body_.code.assign(function.code.begin(), function.code.end());
  }

  BodyReading Run() {
    if (Sized() && Decode()) {
      for (size_t i = 0; i < Code().size(); ++i) CheckInstruction(i);
      if (CheckControl() && WriteOutLoops()) {
        FindReads();
        CheckReads();
        CheckLoads();
        AssignRoles();
      }
      FindBlocks();
    }
    return {std::move(body_), std::move(refusals_)};
  }

 private:
  const std::vector<Instruction>& Code() const { return body_.instructions; }

  void Refuse(BodyRule rule, size_t i, std::string observed, std::string limit,
              const std::string& detail) {
    const bool there = i < Code().size();
    const uint64_t offset = there ? Code()[i].offset : 0;
    const uint64_t origin = there && !origins_.empty() ? origins_[i] : offset;
    RefuseAt(rule, origin, there ? isa_.Print(body_.code, offset) : "", std::move(observed),
             std::move(limit), detail);
  }
  void RefuseAt(BodyRule rule, uint64_t offset, std::string instruction, std::string observed,
                std::string limit, const std::string& detail) {
    for (const BodyRefusal& earlier : refusals_) {
      if (earlier.rule == rule && earlier.offset == offset) return;
    }
    if (refusals_.size() >= kMostRefusals) return;
    refusals_.push_back({rule, std::move(observed), std::move(limit),
                         absl::StrCat("probe ", body_.name, ", offset ", offset, ": ", detail),
                         static_cast<uint32_t>(offset), std::move(instruction)});
  }

  bool Sized() {
    if (!body_.code.empty() && body_.code.size() <= ProbeBody::kMaxBytes &&
        body_.code.size() % 4 == 0) {
      return true;
    }
    RefuseAt(BodyRule::kSize, 0, "", absl::StrCat(body_.code.size(), " bytes"),
             absl::StrCat("1 to ", ProbeBody::kMaxBytes, " bytes, whole words"),
             absl::StrCat("the function has ", body_.code.size(), " bytes"));
    return false;
  }

  bool Decode() {
    for (uint64_t place : function_.relocations) {
      RefuseAt(BodyRule::kRelocation, place, "", absl::StrCat("a relocation at offset ", place),
               "none", "a linker would still fill in an address here");
    }
    for (uint64_t at = 0; at < body_.code.size();) {
      std::optional<Instruction> in = isa_.Decode(body_.code, at);
      if (!in || in->size == 0) {
        RefuseAt(BodyRule::kUndecodable, at, "", absl::StrCat("offset ", at), "instructions",
                 "the bytes are no instruction of this processor");
        return false;
      }
      at += in->size;
      body_.instructions.push_back(*std::move(in));
    }
    return function_.relocations.empty();
  }

  static bool Returns(const Instruction& in) {
    return in.opcode == "s_setpc_b64" && in.operands.size() == 1 &&
           in.operands[0].kind == InstructionOperand::Kind::kRegister &&
           in.operands[0].reg == kLinkLo && in.operands[0].count == 2;
  }

  // ---- instructions by themselves ----

  void CheckInstruction(size_t i) {
    const Instruction& in = Code()[i];
    CheckOpcode(i, in);
    CheckMemory(i, in);
    CheckRegisters(i, in);
  }

  void CheckOpcode(size_t i, const Instruction& in) {
    const std::string opcode(in.opcode);
    for (const ForbiddenRow& row : kForbidden) {
      if (!in.opcode.starts_with(row.prefix)) continue;
      return Refuse(BodyRule::kForbidden, i, opcode, "none", std::string(row.why));
    }
    if (in.ends_program) {
      return Refuse(BodyRule::kForbidden, i, opcode, "none", "it ends the wavefront");
    }
    if (in.barrier || in.sendmsg || in.trap || in.setreg) {
      return Refuse(BodyRule::kForbidden, i, opcode, "none", "it reaches beyond the wavefront");
    }
    if (IndexesVgprs(in) || IndexesSgprs(in)) {
      return Refuse(BodyRule::kForbidden, i, opcode, "none",
                    "the registers that it names are chosen at run time");
    }
    if (in.call || (in.indirect && !Returns(in))) {
      return Refuse(BodyRule::kCall, i, opcode, "s_setpc_b64 s[30:31] alone",
                    "control goes where the body does not say");
    }
    if (in.reads_pc) {
      Refuse(BodyRule::kForbidden, i, opcode, "none", "it reads the program counter");
    }
  }

  void CheckMemory(size_t i, const Instruction& in) {
    const std::string opcode(in.opcode);
    switch (in.memory) {
      case MemoryKind::kScratch:
      case MemoryKind::kBuffer:
      case MemoryKind::kImage:
        Refuse(BodyRule::kStack, i, opcode, "global, flat and scalar memory",
               "it uses the stack or a resource descriptor, which a probe does not have");
        break;
      case MemoryKind::kLds:
      case MemoryKind::kGds:
        Refuse(BodyRule::kLds, i, opcode, "global, flat and scalar memory",
               "it uses LDS or GDS, which belongs to the application");
        break;
      default:
        break;
    }
  }

  void CheckRegisters(size_t i, const Instruction& in) {
    const RegisterSet writes = in.defs | in.partial_defs;
    body_.writes |= writes;
    writes.ForEach([&](uint16_t reg) {
      const bool special = !Ordinary(reg) && reg != kVccLo && reg != kVccHi && reg != kExecLo &&
                           reg != kExecHi && reg != kM0 && reg != kScc;
      if (!special && reg != kLinkLo && reg != kLinkHi && reg < kAgpr0) return;
      Refuse(BodyRule::kRegister, i, ConventionName(reg), "SGPRs, VGPRs, VCC, EXEC, M0 and SCC",
             absl::StrCat("it writes ", ConventionName(reg)));
    });
    in.uses.get().ForEach([&](uint16_t reg) {
      if (reg < kAgpr0) return;
      Refuse(BodyRule::kRegister, i, ConventionName(reg), "SGPRs, VGPRs, VCC, EXEC, M0 and SCC",
             absl::StrCat("it names the accumulation register ", RegisterName(reg)));
    });
  }

  // ---- control ----

  std::optional<size_t> IndexOf(int64_t offset) const {
    const auto at = std::lower_bound(
        Code().begin(), Code().end(), offset,
        [](const Instruction& in, int64_t o) { return static_cast<int64_t>(in.offset) < o; });
    if (at == Code().end() || static_cast<int64_t>(at->offset) != offset) return std::nullopt;
    return static_cast<size_t>(at - Code().begin());
  }

  // Branches to instructions, and no way to the bytes behind.
  bool CheckControl() {
    const size_t before = refusals_.size();
    targets_.assign(Code().size(), std::nullopt);
    for (size_t i = 0; i < Code().size(); ++i) {
      const Instruction& in = Code()[i];
      if (!in.branch || in.indirect || in.call) continue;
      const int64_t target = in.target_offset.value_or(-1);
      const std::optional<size_t> index = IndexOf(target);
      if (!index) {
        Refuse(BodyRule::kControl, i, absl::StrCat("a branch to offset ", target),
               absl::StrCat("instructions at offsets 0 to ", body_.code.size() - 4),
               "the branch leads to no instruction of the body");
      } else {
        loops_ |= *index <= i;
        targets_[i] = *index;
      }
    }
    const Instruction& last = Code().back();
    if (!Returns(last) && !(last.branch && !last.conditional)) {
      Refuse(BodyRule::kControl, Code().size() - 1, "no return",
             "s_setpc_b64 s[30:31], or a branch", "control falls out of the body's end");
    }
    return refusals_.size() == before && !Breaks(BodyRule::kCall) && !Breaks(BodyRule::kForbidden);
  }

  // From here on branches lead forward.
  bool WriteOutLoops() {
    if (!loops_) return true;
    auto made = Unroll(Code(), body_.code, isa_);
    if (const Endless* endless = std::get_if<Endless>(&made)) {
      Refuse(BodyRule::kLoop, endless->instruction, endless->observed, endless->limit,
             endless->detail);
      return false;
    }
    Unrolled& unrolled = std::get<Unrolled>(made);
    body_.code = std::move(unrolled.code);
    body_.instructions.clear();
    for (uint64_t at = 0; at < body_.code.size();) {
      body_.instructions.push_back(*isa_.Decode(body_.code, at));  // decoded before
      at += body_.instructions.back().size;
    }
    origins_ = std::move(unrolled.origins);
    loops_ = false;
    return CheckControl();
  }

  bool Breaks(BodyRule rule) const {
    return std::any_of(refusals_.begin(), refusals_.end(),
                       [&](const BodyRefusal& r) { return r.rule == rule; });
  }

  template <typename Visit>
  void ForSuccessors(size_t i, const Visit& visit) const {
    const Instruction& in = Code()[i];
    if (Returns(in)) return;
    if (targets_[i]) visit(*targets_[i]);
    if (!(in.branch && !in.conditional) && i + 1 < Code().size()) visit(i + 1);
  }

  // ---- what is read before it is written ----

  // A vector register that was written holds a value in the lanes that matter:
  // those that were active.
  void FindReads() {
    std::vector<RegisterSet> live(Code().size());
    for (size_t i = Code().size(); i-- > 0;) {
      const Instruction& in = Code()[i];
      ForSuccessors(i, [&](size_t next) { live[i] |= live[next]; });
      RegisterSet kills = in.defs.get();
      in.partial_defs.get().ForEach([&](uint16_t reg) {
        if (!IsVector(reg)) kills.Remove(reg);
      });
      live[i] -= kills;
      RegisterSet uses = Returns(in) ? RegisterSet() : in.uses.get();
      // DS and FLAT forms claim M0 and FLAT_SCRATCH; the latter only matters for
      // addresses on the stack, which nobody gives to a probe.
      if (in.memory != MemoryKind::kNone) {
        uses.Remove(kM0);
        uses.Remove(kFlatScratchLo, 2);
      }
      live[i] |= uses;
    }
    body_.reads = live.front();
    body_.reads.Remove(kExecLo, 2);
    body_.reads.Remove(kMode);
    body_.argument_dwords = body_.reads.HighestIn(kVgpr0, kMaxArgumentDwords);
  }

  void CheckReads() {
    body_.reads.ForEach([&](uint16_t reg) {
      if (reg >= kVgpr0 && reg < kVgpr0 + kMaxArgumentDwords) return;
      const auto at = std::find_if(Code().begin(), Code().end(),
                                   [&](const Instruction& in) { return in.uses.Has(reg); });
      Refuse(BodyRule::kInput, static_cast<size_t>(at - Code().begin()), ConventionName(reg),
             "v0 to v30",
             absl::StrCat("it reads ", ConventionName(reg),
                          ", which no argument of a probe provides"));
    });
  }

  // ---- loads ----

  static bool ResultIsLate(const Instruction& in, const Generation& generation) {
    return CountersRaised(in, generation) != 0 && !(in.defs | in.partial_defs).Empty();
  }

  uint32_t WordOf(const Instruction& in) const {
    uint32_t word = 0;
    std::memcpy(&word, body_.code.data() + in.offset, sizeof word);
    return word;
  }

  void CheckLoads() {
    const Generation& generation = isa_.generation();
    std::vector<uint8_t> pending(Code().size(), 0);
    for (size_t i = 0; i < Code().size(); ++i) {
      const Instruction& in = Code()[i];
      uint8_t after = pending[i];
      if (ResultIsLate(in, generation)) {
        late_ = true;
        after |= CountersRaised(in, generation);
      }
      after &= static_cast<uint8_t>(~CountersCleared(in, WordOf(in), generation));
      if (Returns(in) && after != 0) {
        Refuse(BodyRule::kLoadsLeft, i, "a load in flight", "none",
               "it returns before the results of its own loads are waited for");
      }
      ForSuccessors(i, [&](size_t next) { pending[next] |= after; });
      body_.needs_active_lane |=
          in.memory == MemoryKind::kScalar || in.opcode.starts_with("v_readfirstlane");
    }
  }

  // ---- roles ----

  void AssignRoles() {
    body_.roles.assign(Code().size(), BodyRole::kKept);
    for (size_t i = 0; i < Code().size(); ++i) {
      if (!Returns(Code()[i])) continue;
      body_.roles[i] = BodyRole::kReturn;
      for (size_t w = i; !late_ && w-- > 0 && WaitsForOperations(Code()[w]);) {
        body_.roles[w] = BodyRole::kDropped;
      }
    }
    for (size_t i = 0; !late_ && i < Code().size() && WaitsForOperations(Code()[i]); ++i) {
      body_.roles[i] = BodyRole::kDropped;
    }
    for (size_t i = 0; i < Code().size(); ++i) {
      body_.waits |= body_.roles[i] == BodyRole::kKept && WaitsForOperations(Code()[i]);
    }
  }

  // ---- what stays together ----

  uint8_t AlignmentOf(const InstructionOperand& operand, const Instruction& in) const {
    const bool vector = IsVector(operand.reg);
    // Dual instructions read their operands from four banks of registers.
    if (vector && in.opcode.starts_with("v_dual_")) return 4;
    if (vector) return operand.count > 1 && isa_.generation().vgpr64_alignment ? 2 : 1;
    return operand.count > 2 ? 4 : operand.count;
  }

  void FindBlocks() {
    std::vector<RegisterBlock> found;
    for (const Instruction& in : Code()) {
      if (Returns(in)) continue;
      for (const InstructionOperand& operand : in.operands) {
        const bool reg = operand.kind == InstructionOperand::Kind::kRegister;
        if (!reg || !Ordinary(operand.reg)) continue;
        body_.mentioned.Add(operand.reg, operand.count);
        found.push_back({operand.reg, operand.count, AlignmentOf(operand, in)});
      }
    }
    std::sort(found.begin(), found.end(),
              [](const RegisterBlock& a, const RegisterBlock& b) { return a.first < b.first; });
    for (const RegisterBlock& block : found) {
      std::vector<RegisterBlock>& blocks = body_.blocks;
      if (blocks.empty() || block.first >= blocks.back().first + blocks.back().count) {
        blocks.push_back(block);
        continue;
      }
      RegisterBlock& last = blocks.back();
      const int end = std::max(last.first + last.count, block.first + block.count);
      last.count = static_cast<uint16_t>(end - last.first);
      last.alignment = std::max(last.alignment, block.alignment);
    }
  }

  static constexpr size_t kMostRefusals = 32;

  const DeviceFunction& function_;
  Isa& isa_;
  ProbeBody body_;
  std::vector<BodyRefusal> refusals_;
  std::vector<std::optional<size_t>> targets_;
  bool loops_ = false;
  std::vector<uint32_t> origins_;  // of loops written out: offsets in the function
  bool late_ = false;              // some result arrives after its instruction
};

// AMDGPUUsage, "Non-Kernel Functions": what callers put where.
struct ConventionRow {
  uint16_t first, last;
  std::string_view what;
};
constexpr ConventionRow kConvention[] = {
    {kSgpr0 + 0, kSgpr0 + 3, "scratch resource"},
    {kSgpr0 + 4, kSgpr0 + 5, "dispatch packet's address"},
    {kSgpr0 + 6, kSgpr0 + 7, "queue's address"},
    {kSgpr0 + 8, kSgpr0 + 9, "implicit arguments' address"},
    {kSgpr0 + 10, kSgpr0 + 11, "dispatch id"},
    {kSgpr0 + 12, kSgpr0 + 12, "workgroup id x"},
    {kSgpr0 + 13, kSgpr0 + 13, "workgroup id y"},
    {kSgpr0 + 14, kSgpr0 + 14, "workgroup id z"},
    {kSgpr0 + 15, kSgpr0 + 15, "LDS kernel id"},
    {kLinkLo, kLinkHi, "return address"},
    {kSgpr0 + 32, kSgpr0 + 32, "stack pointer"},
    {kSgpr0 + 33, kSgpr0 + 33, "frame pointer"},
    {kWorkItemIds, kWorkItemIds, "packed work-item ids"},
};

}  // namespace

std::string ConventionName(uint16_t reg) {
  for (const ConventionRow& row : kConvention) {
    if (reg < row.first || reg > row.last) continue;
    return absl::StrCat(RegisterName(reg), " (",
                        absl::string_view(row.what.data(), row.what.size()), ")");
  }
  return RegisterName(reg);
}

BodyReading ReadBody(const DeviceFunction& function, Isa& isa) {
  return Reader(function, isa).Run();
}

}  // namespace rjdbi::patch
