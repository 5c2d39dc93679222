// Collects a sequence from lines of assembly: literals that the agent fills in,
// branches to places further on, guards of the hardware tables.
#ifndef PATCH_REWRITE_SEQUENCE_WRITER_H_
#define PATCH_REWRITE_SEQUENCE_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/analysis/kernel_analysis.h"
#include "patch/rewrite/assembly_cache.h"
#include "patch/rewrite/spacing.h"

namespace rjdbi::patch {

// Registers as the assembler calls them. VCC is a scalar register here.
std::string SgprText(uint16_t reg);
std::string SgprPairText(uint16_t reg);
std::string VgprText(uint16_t reg);
std::string VgprsText(uint16_t reg, uint32_t count);  // "v[4:7]", "v4"

class SequenceWriter {
 public:
  // A place in the sequence that branches lead to.
  struct Branch {
    size_t offset = 0;  // of the branch
  };

  // All must outlive it.
  SequenceWriter(const KernelAnalysis& kernel, AssemblyCache& cache);
  // `key`: as for the cache.
  SequenceWriter(Isa& isa, std::string key, AssemblyCache& cache);

  void Line(const std::string& text);
  // Guards are several lines of the hardware table, or none.
  void Lines(std::string_view text);
  // "s_mov_b32 s3, " and a word for the agent to fill in: half of base + addend.
  void Address(const std::string& text, bool high_half, uint64_t addend);
  // The same with a number; one text for all numbers.
  void Number(const std::string& text, uint32_t number);
  // Instructions as they are.
  void Code(absl::Span<const uint8_t> bytes, uint32_t instructions);
  // A branch whose target follows: BindHere says where.
  Branch Forward(const std::string& opcode);
  void BindHere(Branch branch);

  // Puts s_nops and fences between instructions that are too close to each other:
  // code from elsewhere has its own distances, not those to ours.
  void KeepApartInside();
  // Puts s_nops around the sequence, for whatever the application does right before
  // and right behind it (gfx9).
  void KeepApart();

  // INTERNAL: LLVM refused a line.
  absl::StatusOr<ProbeSequence> Finish();

 private:
  void Insert(const Spacing& spacing);
  // The literal, the last word of the last instruction, at its offset.
  size_t Placeholder(const std::string& text);

  AssemblyCache& cache_;
  Isa& isa_;
  const std::string key_;
  absl::Status status_;
  ProbeSequence sequence_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_SEQUENCE_WRITER_H_
