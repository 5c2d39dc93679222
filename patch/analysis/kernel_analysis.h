// One kernel, decoded and analysed: instructions, control flow, liveness,
// registers with loads in flight. Made lazily, kernel by kernel.
#ifndef PATCH_ANALYSIS_KERNEL_ANALYSIS_H_
#define PATCH_ANALYSIS_KERNEL_ANALYSIS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/instruction_list.h"
#include "patch/isa/isa.h"
#include "patch/plan/reason.h"

namespace rjdbi::patch {

// Where a probe runs relative to its instruction. kAfter: once the instruction
// has issued; a load's result need not have arrived.
enum class Position : uint8_t { kBefore, kAfter };

struct ControlFlow;

// An address made from the program counter, as compilers write it:
//   s_getpc_b64 s[n:n+1]
//   s_sext_i32_i16 s[n+1], s[n+1]           where s_getpc_b64 zero-extends (gfx12)
//   s_add_u32   s[n],   s[n],   literal     (s_add_co_u32 on gfx12)
//   s_addc_u32  s[n+1], s[n+1], literal     (s_add_co_ci_u32)
// with nothing but waits, s_nop and s_delay_alu in between, and no way in but
// from the top: the counter itself is then never observed. Nor is SCC read behind it,
// which is what the sum carries.
struct PcAddress {
  uint32_t getpc = 0, low = 0, high = 0;  // instruction indices
  // Added to the address of the instruction behind s_getpc_b64.
  int64_t displacement = 0;
};

struct BasicBlock {
  uint32_t first = 0, last = 0;  // instruction indices, inclusive
  std::vector<uint32_t> successors, predecessors;
  bool entry = false;
};

// What analyses of one object's kernels have in common, found once for all of
// them: for one object, one thread and Isas that outlive it.
class ObjectFacts {
 public:
  // Everything that executable bytes outside the kernels mention (with
  // `kernels_too`, the kernels as well): what a callee may use.
  const RegisterSet& Mentioned(const CodeObject& object, Isa& isa, bool kernels_too);

 private:
  std::map<std::pair<Isa*, bool>, RegisterSet> mentioned_;
};

class KernelAnalysis {
 public:
  // `object` and `isa` must outlive the result. INVALID_ARGUMENT: the kernel's
  // code range is not file-backed. Undecodable bytes are not an error: see
  // undecodable_offset(). `facts`, if given, saves work on further kernels.
  static absl::StatusOr<std::unique_ptr<KernelAnalysis>> Create(const CodeObject& object,
                                                                size_t kernel_index, Isa& isa,
                                                                ObjectFacts* facts = nullptr);
  virtual ~KernelAnalysis() = default;

  virtual const CodeObject& object() const = 0;
  virtual size_t kernel_index() const = 0;
  virtual const Kernel& kernel() const = 0;
  virtual Isa& isa() const = 0;
  virtual absl::Span<const uint8_t> code() const = 0;  // from the kernel's entry

  virtual const InstructionList& instructions() const = 0;
  virtual const std::vector<BasicBlock>& blocks() const = 0;
  virtual const ControlFlow& flow() const = 0;
  // Bits of RegionFlag (hazard_regions.h) that hold at i.
  virtual uint8_t Regions(uint32_t i) const = 0;
  virtual std::optional<uint32_t> InstructionAt(uint64_t offset) const = 0;
  virtual std::optional<uint64_t> undecodable_offset() const = 0;
  // Some path of the kernel's control flow leads to i; with an indirect branch
  // every instruction counts.
  virtual bool Reachable(uint32_t i) const = 0;
  virtual bool has_indirect_branch() const = 0;
  // Some reachable instruction calls; everything live by convention is live.
  virtual bool has_calls() const = 0;
  // Here, or in what it calls.
  virtual bool may_run_matrix_instructions() const = 0;

  // Just before instruction i executes. A VGPR is live if any lane of it is.
  virtual const RegisterSet& LiveBefore(uint32_t i) const = 0;
  // Registers that a load, in flight on some path to i, may still write.
  virtual const RegisterSet& PendingBefore(uint32_t i) const = 0;
  // The same at a position. After an instruction that accesses memory its
  // operands count as pending too: it may not have read them yet.
  virtual RegisterSet LiveAt(uint32_t i, Position position) const = 0;
  virtual RegisterSet PendingAt(uint32_t i, Position position) const = 0;
  // Every register that the kernel (or, with calls, anything in the object)
  // mentions anywhere.
  virtual const RegisterSet& mentioned() const = 0;
  // Forgets the sets behind LiveBefore and PendingBefore, most of an analysis's
  // memory, and references to them. Asked again, they are made again.
  virtual void ReleaseSets() const = 0;

  // The s_clause whose run holds instruction i (i itself included) and that may
  // become s_nop 0: a clause is a scheduling hint, and its end changes timing
  // alone. nullopt: i is in no clause, or in one that must stay whole.
  virtual std::optional<uint32_t> SplittableClause(uint32_t i) const = 0;

  // Whether instruction i may be displaced into a trampoline with a probe at the
  // position; nullopt: yes, and then SplittableClause(i), if any, has to be
  // split. A direct branch is made anew there, for its target's distance.
  virtual std::optional<Refusal> Immovable(uint32_t i,
                                           Position position = Position::kBefore) const = 0;

  // Offset of the second hardware entry, for firmware that preloads arguments; 0: the
  // kernel has one. See Generation::preload_entry.
  virtual uint64_t preload_entry() const = 0;
  // Why the kernel cannot be written anew elsewhere with code inserted (a clone);
  // nullopt: it can.
  virtual const std::optional<Refusal>& CloneObstacle() const = 0;
  // In a clone: why code cannot be inserted at the position; nullopt: it can, and
  // then SplittableClause(i), if any, becomes two.
  virtual std::optional<Refusal> NotInsertable(uint32_t i, Position position) const = 0;
  // Addresses made from the program counter, when there is no CloneObstacle.
  virtual const std::vector<PcAddress>& PcAddresses() const = 0;
};

// Nothing in the kernel depends on where it lies, and control stays in it.
bool PositionIndependent(const KernelAnalysis& kernel);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_KERNEL_ANALYSIS_H_
