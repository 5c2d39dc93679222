// What a place in a kernel can take, and what the kernel's code consists of: for
// people and tools. Nothing is decided here.
#ifndef PATCH_ANALYSIS_SITE_CAPABILITY_H_
#define PATCH_ANALYSIS_SITE_CAPABILITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/analysis/outstanding.h"

namespace rjdbi::patch {

enum class SiteTrait : uint8_t {
  kKernelEntry,
  kBlockEntry,
  kInClause,
  kInDelayWindow,  // an s_delay_alu speaks of it
  kInGprIndexRegion,
  kRegistersReleased,
  kUnreachable,
  kNearUndecodable,
  kBeforeSecondEntry,
  kExecUnknown,  // EXEC may have been written since the kernel's start
  kBranchTargetInside,
};

struct SiteCapability {
  std::vector<SiteTrait> traits;  // ascending
  std::optional<Refusal> immovable, immovable_after;
  uint32_t live_sgprs = 0, live_vgprs = 0, live_agprs = 0;  // ordinary ones
  // Allocated, dead and without a load in flight.
  uint32_t free_sgprs = 0, free_vgprs = 0, free_agprs = 0;
  uint32_t pending = 0;  // registers
  struct Counter {
    std::string_view name;
    uint8_t at_most = 0;  // Outstanding::kUnbounded: not known
  };
  std::vector<Counter> outstanding;  // those that may not be zero
  std::optional<int64_t> distance;   // bytes to the new segment; nullopt: there can be none
  bool direct_reach = false;
  bool kernel_can_move = false;
  std::string source_file;  // empty: not known
  uint32_t source_line = 0;
};

enum class CodeRangeKind : uint8_t { kFiller, kUnreachable, kData, kUndecoded };
struct CodeRange {
  uint64_t begin = 0, end = 0;  // offsets
  CodeRangeKind kind = CodeRangeKind::kFiller;
};

// As far as the transfer's basic block shows.
enum class TransferTarget : uint8_t { kDirect, kPcRelative, kLoaded, kUnknown };
struct Transfer {
  uint32_t instruction = 0;
  bool call = false;
  TransferTarget target = TransferTarget::kUnknown;
};

struct KernelStructure {
  uint32_t reachable_instructions = 0, reachable_blocks = 0;
  std::vector<CodeRange> ranges;    // what is not reachable code, ascending
  std::vector<Transfer> transfers;  // calls and indirect transfers
  // Why the control flow is not wholly known, a sentence each; empty: it is.
  std::vector<std::string> incomplete;
  bool position_independent = false;
};

class SiteCapabilities {
 public:
  // `kernel` must outlive this.
  explicit SiteCapabilities(const KernelAnalysis& kernel);

  SiteCapability At(uint32_t i, Position position) const;
  KernelStructure Structure() const;

 private:
  std::vector<SiteTrait> Traits(uint32_t i) const;
  void FindDelayWindows();
  void FindExec();

  const KernelAnalysis& kernel_;
  Outstanding outstanding_;
  std::vector<bool> delayed_, exec_unknown_;
  std::optional<uint64_t> segment_;  // vaddr
  bool position_independent_ = false;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ANALYSIS_SITE_CAPABILITY_H_
