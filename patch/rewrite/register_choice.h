// Which registers a counting or record probe may use at one site.
//
// In order of preference: registers that the kernel never mentions but has
// allocated; mentioned ones that are dead and that no load in flight will still
// write; VCC on the same terms; registers gained by growing the allocation.
//
// "Growth" is growth of what the descriptor allocates, so the slack of a
// granule costs nothing. From gfx10 on every wave has the whole SGPR file, so
// SGPRs never grow there.
#ifndef PATCH_REWRITE_REGISTER_CHOICE_H_
#define PATCH_REWRITE_REGISTER_CHOICE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"

namespace rjdbi::patch {

struct RegisterChoice {
  uint16_t exec_save = 0;                // Register; a pair in wave64
  std::optional<uint16_t> address_sgpr;  // Register; pair with the counter's address
  std::optional<uint16_t> address_vgpr;  // Register; pair, when there is no address_sgpr
  uint16_t data_vgpr = 0;                // Register; pair
  // Record probes.
  uint16_t header_vgpr = 0;              // Register; four
  std::optional<uint16_t> compare_sgpr;  // Register; pair that v_cmpx writes: gfx9
  std::optional<uint16_t> scratch_sgpr;  // Register; one, free once the record has its place
  std::optional<uint16_t> sample_sgpr;   // Register; of the number asked for
  bool vgprs_fresh = true;               // the kernel mentions none of the VGPRs chosen
  RegisterSet temporaries, grown;
  uint32_t required_sgprs = 0;
  uint32_t required_vgprs = 0;
  int32_t sgpr_delta = 0;
  int32_t vgpr_delta = 0;
};

std::variant<RegisterChoice, Refusal> ChooseRegisters(const KernelAnalysis& kernel,
                                                      uint32_t instruction,
                                                      const ProbeRequest& request);

// What a record probe needs besides EXEC's and the address's pair, the data pair
// and the header.
struct RecordNeeds {
  bool scratch = false;       // an SGPR
  uint32_t sample_sgprs = 0;  // for what is read at the sequence's beginning: at most 4
};
std::variant<RegisterChoice, Refusal> ChooseRecordRegisters(const KernelAnalysis& kernel,
                                                            uint32_t instruction,
                                                            const ProbeRequest& request,
                                                            const RecordNeeds& needs);

// `count` scalar registers, one by one, that nothing in the kernel mentions, the
// highest ones first: what they hold survives from the kernel's beginning to its end.
std::variant<RegisterChoice, Refusal> ChooseKeptScalars(const KernelAnalysis& kernel,
                                                        const ProbeRequest& request, uint32_t count,
                                                        std::vector<uint16_t>* kept);

// One more than the highest ordinary SGPR (architectural VGPR, AGPR) mentioned.
uint32_t HighestSgpr(const KernelAnalysis& kernel);
uint32_t HighestVgpr(const KernelAnalysis& kernel);
uint32_t HighestAgpr(const KernelAnalysis& kernel);

// SGPRs allocated when `ordinary` ordinary ones are needed (allocated ones only
// ever increase). VGPRs likewise, accumulation registers included.
uint32_t SgprsAllocatedFor(const KernelAnalysis& kernel, uint32_t ordinary);
uint32_t VgprsAllocatedFor(const KernelAnalysis& kernel, uint32_t arch);

// Accumulation registers that must stay addressable.
uint32_t AgprsInUse(const KernelAnalysis& kernel);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_REGISTER_CHOICE_H_
