#include "patch/isa/hazards.h"

#include <algorithm>
#include <vector>

#include "patch/isa/sequence_flow.h"

namespace rjdbi::patch {
namespace {

using P = HazardProducer;
using C = HazardConsumer;

constexpr unsigned kScalars = kVccHi + 1;  // SGPRs and VCC
constexpr unsigned kVectors = kNumRegisters - kVgpr0;

bool Scalar(const RegisterSet& set) { return set.CountIn(kSgpr0, kScalars) > 0; }
bool Vector(const RegisterSet& set) { return set.CountIn(kVgpr0, kVectors) > 0; }
bool IsReadlane(std::string_view op) {
  return op.starts_with("v_readlane") || op.starts_with("v_writelane");
}
bool VectorMemory(const Instruction& in) {
  return in.memory == MemoryKind::kGlobal || in.memory == MemoryKind::kFlat ||
         in.memory == MemoryKind::kScratch || in.memory == MemoryKind::kBuffer ||
         in.memory == MemoryKind::kImage;
}

// More than two registers in one operand: data, or the address of an image.
bool ReadsWide(const Instruction& in) {
  return std::any_of(in.operands.begin(), in.operands.end(), [](const InstructionOperand& o) {
    return o.kind == InstructionOperand::Kind::kRegister && !o.is_def && o.reg >= kVgpr0 &&
           o.count > 2;
  });
}

}  // namespace

bool Is(HazardProducer producer, const Instruction& in) {
  switch (producer) {
    case P::kValuWritesScalar:
      return in.valu && Scalar(in.defs);
    case P::kValuWritesExec:
      return in.valu && in.defs.HasAny(kExecLo, 2);
    case P::kWritesVector:
      return Vector(in.defs);
    case P::kDotWritesVector:
      return in.opcode.starts_with("v_dot");
    case P::kTransWritesVector:
      return in.trans;
    case P::kStoresWideData:
      return VectorMemory(in) && (in.store || in.atomic) && ReadsWide(in);
    case P::kVectorMemory:
      return VectorMemory(in);
    case P::kScalarMemory:
      return in.memory == MemoryKind::kScalar;
    case P::kWritesM0:
      return in.salu && in.defs.Has(kM0);
    case P::kSetsRegister:
      return in.setreg;
  }
  return true;
}

bool Is(HazardConsumer consumer, const Instruction& in) {
  switch (consumer) {
    case C::kMemoryReadsScalar:
      return VectorMemory(in) && Scalar(in.uses);
    case C::kVectorMemory:
      return VectorMemory(in);
    case C::kScalarMemory:
      return in.memory == MemoryKind::kScalar;
    case C::kSelectsLane:
      return IsReadlane(in.opcode);
    case C::kValuReadsScalar:
      return in.valu && Scalar(in.uses);
    case C::kDividesWithVcc:
      return in.opcode.starts_with("v_div_fmas");
    case C::kCrossesLanes:
      return in.valu && !in.lanewise;
    case C::kReadsLane:
      return IsReadlane(in.opcode) || in.opcode.starts_with("v_readfirstlane");
    case C::kTouchesVector:
      return (in.valu || VectorMemory(in)) && (Vector(in.uses) || Vector(in.defs));
    case C::kValuReadsVector:
      return in.valu && Vector(in.uses);
    case C::kValuWritesVector:
      return in.valu && Vector(in.defs);
    case C::kReadsM0:
      return in.uses.Has(kM0);
    case C::kTouchesRegister:
      return in.setreg || in.opcode.starts_with("s_getreg");
  }
  return true;
}

uint32_t WaitStatesOf(const Instruction& in, uint32_t word) {
  return in.opcode == "s_nop" ? (word & 0xf) + 1 : 1;
}

bool Clash(const HazardRule& rule, const Instruction& first, const Instruction& second) {
  if (!Is(rule.producer, first) || !Is(rule.consumer, second)) return false;
  // Of what crosses lanes only DPP reads too early; the others have rows of their own.
  if (rule.consumer == C::kCrossesLanes && second.opcode.find("lane") != std::string_view::npos) {
    return false;
  }
  const RegisterSet &made = first.defs, &read = second.uses;
  switch (rule.producer) {
    case P::kValuWritesScalar:
      return Scalar(made & read);
    case P::kWritesVector:
    case P::kTransWritesVector:
      return Vector(made & read);
    case P::kDotWritesVector:
      return Vector(made & (read | second.defs));
    case P::kStoresWideData:
      return Vector(first.uses & second.defs);
    case P::kVectorMemory:
    case P::kScalarMemory:
      return false;  // only an access that the application's rows are continued with
    case P::kValuWritesExec:
    case P::kWritesM0:
    case P::kSetsRegister:
      return true;
  }
  return true;
}

uint32_t WaitStatesMissingAhead(Isa& isa, absl::Span<const uint8_t> code) {
  const std::vector<FlowStep> flow = Flow(isa, code);
  const std::vector<uint32_t> ahead = StatesAhead(flow);
  uint32_t missing = 0;
  for (size_t i = 0; i < flow.size(); ++i) {
    for (const HazardRule& rule : isa.generation().hazards) {
      if (ahead[i] < rule.wait_states && Is(rule.consumer, *flow[i].in)) {
        missing = std::max(missing, rule.wait_states - ahead[i]);
      }
    }
  }
  return missing;
}

uint32_t WaitStatesMissingBehind(Isa& isa, absl::Span<const uint8_t> code) {
  const std::vector<FlowStep> flow = Flow(isa, code);
  const std::vector<uint32_t> behind = StatesBehind(flow);
  uint32_t missing = 0;
  for (size_t i = 0; i < flow.size(); ++i) {
    for (const HazardRule& rule : isa.generation().hazards) {
      if (behind[i] < rule.wait_states && Is(rule.producer, *flow[i].in)) {
        missing = std::max(missing, rule.wait_states - behind[i]);
      }
    }
  }
  return missing;
}

}  // namespace rjdbi::patch
