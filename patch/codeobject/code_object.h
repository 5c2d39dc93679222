// A parsed AMDGPU code object (ELF64, EM_AMDGPU, ELFOSABI_AMDGPU_HSA, ABI
// v3 to v5): kernels, their descriptors and metadata, segments, symbols.
//
// The bytes are foreign: every range is checked before it is used, and nothing
// is handed to LLVM's object layer. Sources: LLVM AMDGPUUsage "Code Object
// Format", llvm/Support/AMDHSAKernelDescriptor.h.
#ifndef PATCH_CODEOBJECT_CODE_OBJECT_H_
#define PATCH_CODEOBJECT_CODE_OBJECT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "patch/codeobject/debug_info.h"

namespace rjdbi::patch {

// The 64-byte kernel descriptor, with the fields that the rewriter reads or
// changes. Bit positions: AMDHSAKernelDescriptor.h.
struct KernelDescriptor {
  uint32_t group_segment_fixed_size = 0;    // bytes of LDS per workgroup
  uint32_t private_segment_fixed_size = 0;  // bytes of scratch per lane
  uint32_t kernarg_size = 0;                // bytes
  int64_t kernel_code_entry_byte_offset = 0;
  uint32_t compute_pgm_rsrc3 = 0;
  uint32_t compute_pgm_rsrc1 = 0;
  uint32_t compute_pgm_rsrc2 = 0;
  uint16_t kernel_code_properties = 0;
  uint16_t kernarg_preload = 0;

  static KernelDescriptor Read(const uint8_t* bytes64);
  void Write(uint8_t* bytes64) const;  // reserved bytes are left as they are
};

// What the NT_AMDGPU_METADATA note says of a kernel. Absent keys are nullopt.
struct KernelMetadata {
  std::string name;
  std::string symbol;  // "<name>.kd"
  std::optional<uint32_t> sgpr_count, vgpr_count, agpr_count;
  std::optional<uint32_t> sgpr_spill_count, vgpr_spill_count;
  std::optional<uint32_t> group_segment_fixed_size, private_segment_fixed_size;
  std::optional<uint32_t> kernarg_segment_size, wavefront_size, max_flat_workgroup_size;
  bool uses_dynamic_stack = false;
};

struct Kernel {
  std::string name;  // mangled, without ".kd"
  uint64_t descriptor_vaddr = 0;
  uint64_t entry_vaddr = 0;
  uint64_t code_size = 0;  // bytes, from the FUNC symbol, or up to the next symbol
  uint32_t wavefront_size = 64;
  KernelDescriptor descriptor;
  KernelMetadata metadata;  // empty when the note lacks the kernel
};

struct Segment {  // PT_LOAD
  uint64_t vaddr = 0, memsz = 0, offset = 0, filesz = 0;
  uint32_t flags = 0;
  uint32_t phdr_index = 0;
};

// A function or padding range in executable sections.
struct CodeSymbol {
  std::string name;
  uint64_t vaddr = 0, size = 0;
};

// Which hardware: everything that LLVM needs to decode.
struct TargetId {
  std::string processor;  // "gfx90a"; "gfx9-generic"
  uint8_t mach = 0;       // EF_AMDGPU_MACH
  enum class Feature : uint8_t { kUnsupported, kAny, kOff, kOn };
  Feature xnack = Feature::kUnsupported, sramecc = Feature::kUnsupported;
  uint8_t abi_version = 0;  // 3, 4, 5
  // "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"
  std::string ToString() const;
};

class CodeObject {
 public:
  // Objects larger than this are refused (RESOURCE_EXHAUSTED).
  static constexpr uint64_t kMaxSize = uint64_t{256} << 20;

  // Copies nothing but the names: `bytes` must outlive the result.
  // INVALID_ARGUMENT: not an ELF64 AMDGPU HSA object, or malformed (the message
  // names header, field, value, limit). UNIMPLEMENTED: well-formed, but an ABI
  // version or a machine that is not supported. RESOURCE_EXHAUSTED: too large.
  static absl::StatusOr<CodeObject> Parse(absl::Span<const uint8_t> bytes);

  absl::Span<const uint8_t> bytes() const { return bytes_; }
  const TargetId& target() const { return target_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<Segment>& segments() const { return segments_; }
  // FUNC symbols of executable sections by address, kernels included.
  const std::vector<CodeSymbol>& code_symbols() const { return code_symbols_; }
  // Executable sections' address ranges.
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  const std::vector<Range>& executable_ranges() const { return executable_ranges_; }

  // Read when first asked for; shared by copies of this object.
  const DebugInfo& debug_info() const { return *debug_info_; }

  // The file bytes behind [vaddr, vaddr+size), or empty if not file-backed.
  absl::Span<const uint8_t> AtVaddr(uint64_t vaddr, uint64_t size) const;
  std::optional<uint64_t> VaddrToOffset(uint64_t vaddr) const;

 private:
  friend class CodeObjectParser;
  absl::Span<const uint8_t> bytes_;
  TargetId target_;
  std::vector<Kernel> kernels_;
  std::vector<Segment> segments_;
  std::vector<CodeSymbol> code_symbols_;
  std::vector<Range> executable_ranges_;
  std::shared_ptr<const DebugInfo> debug_info_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_CODEOBJECT_CODE_OBJECT_H_
