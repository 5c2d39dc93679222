// Regions in which code must not be inserted: s_clause runs, relative VGPR
// indexing, after VGPR deallocation.
#ifndef PATCH_ANALYSIS_HAZARD_REGIONS_H_
#define PATCH_ANALYSIS_HAZARD_REGIONS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "patch/analysis/control_flow.h"
#include "patch/isa/instruction_list.h"
#include "patch/isa/isa.h"

namespace rjdbi::patch {

enum RegionFlag : uint8_t {
  kInClause = 1 << 0,      // s_clause or an instruction that it covers
  kInGprIndex = 1 << 1,    // between s_set_gpr_idx_on and _off on some path
  kAfterDealloc = 1 << 2,  // VGPRs may have been deallocated on some path
};

// An s_clause and the instructions that it covers, by index, inclusive. The
// hardware counts executed instructions; this counts instructions in a row.
struct Clause {
  uint32_t first = 0, last = 0;  // s_clause; last covered instruction, or of the kernel
  // The s_clause may become s_nop 0: counting is right, because the covered
  // instructions follow each other without control transfers, lie in the kernel
  // and are in no other clause.
  bool splittable = false;
};

// Ascending by `first`.
std::vector<Clause> FindClauses(const InstructionList& instructions);

// Flags per instruction; empty when no instruction has any.
std::vector<uint8_t> FindRegions(const InstructionList& instructions,
                                 absl::Span<const uint8_t> code, const ControlFlow& flow,
                                 const std::vector<Clause>& clauses, const Generation& generation);

// s_sendmsg that gives the vector registers back (gfx11 and later).
bool DeallocatesVgprs(const Instruction& in, absl::Span<const uint8_t> code,
                      const Generation& generation);

// Instructions that reach vector (scalar) registers through an index register.
bool IndexesVgprs(const Instruction& in);
// From here on a vector register's number may mean another register, or the
// wavefront has another number of them: s_set_vgpr_msb, writes of MODE's bits for
// it, s_alloc_vgpr.
bool ChangesVgprNumbers(const Instruction& in, absl::Span<const uint8_t> code,
                        const Generation& generation);
bool IndexesSgprs(const Instruction& in);

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_HAZARD_REGIONS_H_
