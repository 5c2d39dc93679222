// The families' tables, one file each; patch/isa/generation.cpp puts them
// together. docs/adding-a-generation.md says how to add one.
//
// Sources, by field (a row's own comments name what is particular to it):
//  - VGPR/SGPR files, granules, waves: LLVM AMDGPUUsage "compute_pgm_rsrc1" and
//    LLVM's AMDGPUBaseInfo/GCNSubtarget occupancy model. tests/patch/isa_* hold
//    every row against the installed LLVM.
//  - guards: the two-instruction experiments with LLVM's hazard recogniser,
//    gathered as the always-safe envelope: only a trampoline's two seams can
//    create a hazard that the compiler has not already resolved.
//  - waits: LLVM AMDGPUUsage "Memory Model" and the ISA documents' s_waitcnt
//    fields; encodings checked against LLVM's assembler in tests/patch.
//  - end padding: what LLVM emits after the last function
//    (AMDGPUTargetStreamer::EmitCodeEnd), measured on compiled objects.
#ifndef PATCH_ISA_GENERATIONS_FAMILIES_H_
#define PATCH_ISA_GENERATIONS_FAMILIES_H_

#include <string_view>

#include "absl/types/span.h"
#include "patch/isa/generation.h"

namespace rjdbi::patch {

struct ProcessorRow {
  std::string_view processor;  // "gfx90a"
  const Generation* generation;
};

absl::Span<const ProcessorRow> Gfx9Processors();
absl::Span<const ProcessorRow> Gfx10Processors();
absl::Span<const ProcessorRow> Gfx11Processors();
absl::Span<const ProcessorRow> Gfx12Processors();
absl::Span<const ProcessorRow> Gfx125Processors();

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_GENERATIONS_FAMILIES_H_
