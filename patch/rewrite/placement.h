// Where trampolines go, and how control gets there and back.
//
// An anchor is one 4-byte s_branch, which reaches 128 KiB. A kernel that must
// stay where it is (it depends on its address, or control may leave it) is
// served first, site by site: a direct branch to the new segment, or a relay, a
// chain of s_branch words in the filler between functions; else the site is
// refused. Then the other kernels, each as a whole:
//   1. all its anchors reach the new segment directly;
//   2. relays, of at most two hops each way;
//   3. it is copied, byte for byte, into the new segment next to its
//      trampolines, and its descriptor's entry moved.
//
// A trampoline ends with a branch behind the displaced instruction. Where that
// is a direct branch itself, it ends with a branch to its target, or with
//   s_cbranch_* +1; s_branch <behind>; s_branch <target>
// so that both ways have an s_branch's reach and may use relays. A displaced
// s_endpgm ends its trampoline: nothing leads out.
//
// An s_clause with a placed site in its run becomes s_nop 0, in the code that
// runs: the copy of a copied kernel. Without a placed site it stays.
#ifndef PATCH_REWRITE_PLACEMENT_H_
#define PATCH_REWRITE_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "patch/analysis/kernel_analysis.h"
#include "patch/plan/rewriter.h"

namespace rjdbi::patch {

// A displaced direct branch: taken, control goes on at `target`.
struct DisplacedBranch {
  int64_t target = 0;        // from the kernel's first instruction
  uint32_t conditional = 0;  // s_cbranch_* with a zero offset; 0: s_branch
};

// Code for one anchor, and where it went.
struct SiteCode {
  const KernelAnalysis* kernel = nullptr;
  uint32_t instruction = 0;
  // The s_clause around the site, which may be the site: see SitePlan.
  std::optional<uint32_t> broken_clause;
  std::vector<size_t> plans;              // indices, in execution order
  std::vector<uint8_t> body;              // all of the trampoline but what leads out of it
  std::optional<DisplacedBranch> branch;  // not in `body`
  bool ends_program = false;              // `body` ends with s_endpgm
  std::vector<WordFixup> fixups;          // offsets into `body`
  std::vector<uint32_t> sequences;        // offsets into `body`, by `plans`
  uint32_t displaced = 0;                 // the instruction's offset into `body`, unless a branch

  std::optional<Refusal> refusal;
  uint64_t anchor_vaddr = 0;
  uint64_t trampoline_vaddr = 0;
  uint32_t trampoline_size = 0;  // bytes
  uint64_t displaced_vaddr = 0;
};

// Words of the target that placement needs.
struct BranchEncoding {
  uint32_t branch = 0;               // s_branch with a zero offset
  uint32_t nop = 0;                  // s_nop 0
  uint32_t zero_pair = 0;            // s_mov_b64 s[0:1], 0
  bool offset_3f_is_broken = false;  // gfx10.1: simm16 = 0x3f jumps elsewhere
};

struct PlacedCode {
  std::vector<uint8_t> segment;
  std::map<uint64_t, uint32_t> words;        // existing code to overwrite, by vaddr
  std::map<size_t, uint64_t> moved_kernels;  // kernel index -> vaddr of its copy
  std::map<size_t, uint64_t> kernel_bytes;   // kernel index -> bytes of the segment
};

// simm16 of a branch at `from` to `to`; nullopt: out of reach.
std::optional<uint16_t> BranchOffset(const BranchEncoding& encoding, uint64_t from, uint64_t to);

// Fills in anchor_vaddr and trampoline_vaddr, or refusal, of every site.
// Deterministic. `kernels`: every analysis at hand (their branches are checked
// against the filler). `sites` must be ordered by kernel address, then offset.
PlacedCode PlaceSites(const CodeObject& object, const std::vector<const KernelAnalysis*>& kernels,
                      uint64_t segment_vaddr, const BranchEncoding& encoding,
                      std::vector<SiteCode>& sites);

// Addresses of filler words between functions, ascending. Exposed for tests.
std::vector<uint64_t> FindFillerWords(const CodeObject& object,
                                      const std::vector<const KernelAnalysis*>& kernels);

}  // namespace rjdbi::patch

#endif  // PATCH_REWRITE_PLACEMENT_H_
