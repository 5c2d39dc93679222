// Missing waits: code that uses a register while a memory operation may still write it,
// or that overwrites one which an operation may still read.
//
// Forward data flow over the code that can be reached from a kernel's entry, direct
// branches followed wherever they lead, so that clones and trampolines are judged as
// they run. For each operation in flight it keeps, per counter, how many later
// operations that counter has counted at least: a wait that leaves N outstanding has
// waited for it if that is N or more, provided that the counter's operations return in
// order. What holds on any path counts. Shares the decoder and the hardware tables with
// the engine, not its analyses.
//
// Facts (LLVM AMDGPUUsage "Memory Model", SIInsertWaitcnts.cpp; ISA manuals, section
// "Manually Inserted Wait States" and "Data dependency resolution"):
//  - vector loads return in order; before gfx10 stores count with them (vmcnt), later
//    apart (vscnt, storecnt); gfx12 counts samples and BVH queries apart;
//  - LDS operations return in order; scalar loads in any order, and so a counter that
//    has both in flight says something at zero only; so does one with messages;
//  - flat operations count in both, and on gfx9 return in any order with others;
//  - operations of a kind write their registers in order, scalar ones apart;
//  - exports, and GDS, read their registers late (expcnt).
#ifndef CONTRACT_WAITCHECK_H_
#define CONTRACT_WAITCHECK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "contract/by_id.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {

struct WaitFinding {
  uint64_t vaddr = 0;     // the instruction that comes too early
  uint64_t producer = 0;  // the operation in flight
  uint16_t reg = 0;       // the first register of those they share
  enum class Kind : uint8_t { kRead, kOverwritten, kReadLate } kind = Kind::kRead;
  auto operator<=>(const WaitFinding&) const = default;
};

struct WaitReport {
  std::vector<WaitFinding> findings;  // by address, one for each pair of instructions
  uint32_t instructions = 0;          // reached
  uint32_t waits = 0;                 // of them
  // Calls count as waiting for everything, which compilers' callees do. false: behind
  // an indirect branch or undecodable bytes nothing was looked at, or the work was too
  // much (kMostFindings, more operations in flight than any counter holds, loops that
  // do not settle).
  bool complete = true;
};
inline constexpr size_t kMostFindings = 256;

// Bytes of the code object from an address to the end of its segment; empty: none.
using CodeAt = std::function<absl::Span<const uint8_t>(uint64_t vaddr)>;

// Of its executable segments. The object must outlive it.
CodeAt CodeIn(const patch::CodeObject& object);

// What instructions do to the counters: found once for all code that one Isa decodes.
// The Isas must outlive it.
class WaitEffects {
 public:
  struct Effect;
  using OfIsa = ById<std::shared_ptr<const Effect>>;
  OfIsa& Of(const patch::Isa& isa) { return effects_[&isa]; }

 private:
  std::unordered_map<const patch::Isa*, OfIsa> effects_;
};

WaitReport CheckWaits(patch::Isa& isa, const CodeAt& code, uint64_t entry,
                      WaitEffects* effects = nullptr);

// "v3 is read while global_load_dword at 0x1234 may still write it".
std::string DescribeWait(const WaitFinding& finding, patch::Isa& isa, const CodeAt& code);

}  // namespace rjdbi::contract

#endif  // CONTRACT_WAITCHECK_H_
