// From program counters of a patched object to the original's, and back.
#ifndef CONTRACT_ADDRESS_MAP_H_
#define CONTRACT_ADDRESS_MAP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "contract/code_pieces.h"
#include "contract/patch_record.h"
#include "patch/codeobject/code_object.h"
#include "rjdbi/v1/patch_record.pb.h"

namespace rjdbi::contract {

class AddressMap {
 public:
  // `image` must outlive the result. NOT_FOUND: it carries no patches. Else as
  // OpenPatched and CodeObject::Parse.
  static absl::StatusOr<AddressMap> Open(absl::Span<const uint8_t> image);

  // The kernels with probes that a glob matches ("": all).
  v1::AddressMap Describe(const std::string& kernel_glob) const;

  // `asked`: an address in the image ("0x5040", "20544"), or a place in a kernel or
  // function ("KERNEL", "KERNEL+0x40"): a mangled name, or a glob as KernelMatches
  // takes it. A kernel's offsets are the original's; a new function's ("KERNEL.rjdbi")
  // its own. One answer for each kernel that a glob matches.
  // INVALID_ARGUMENT: neither, or no such kernel.
  absl::StatusOr<std::vector<v1::MappedPc>> Resolve(const std::string& asked) const;

  const std::vector<uint8_t>& original() const { return patched_->original; }

 private:
  AddressMap() = default;
  v1::MappedPc AtAddress(uint64_t vaddr) const;
  v1::MappedPc InKernel(uint32_t kernel, uint64_t offset) const;
  void InNewCode(uint64_t vaddr, v1::MappedPc& pc) const;
  void InOldCode(uint64_t vaddr, v1::MappedPc& pc) const;
  bool MadeAnew(uint32_t kernel) const;
  bool Overwritten(uint64_t vaddr) const;
  const Piece* PieceAt(uint64_t vaddr) const;
  const Piece* PieceFor(uint32_t kernel, uint64_t offset) const;
  void SetPlace(uint32_t kernel, uint64_t offset, v1::MappedPc& pc) const;

  std::unique_ptr<PatchedObject> patched_;  // the spans below lead into it
  absl::Span<const uint8_t> image_;
  std::optional<patch::CodeObject> original_, object_;
  std::vector<Piece> pieces_;              // by address
  std::vector<const Piece*> application_;  // those of application code, by kernel and offset
  std::vector<uint64_t> entries_;          // by kernel: where it starts now
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_ADDRESS_MAP_H_
