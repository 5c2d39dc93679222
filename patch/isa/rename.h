// The same instruction with other registers, through LLVM's encoder. Private to
// patch/isa; see Isa::Rename.
#ifndef PATCH_ISA_RENAME_H_
#define PATCH_ISA_RENAME_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "llvm/MC/MCCodeEmitter.h"
#include "llvm/MC/MCInst.h"
#include "patch/isa/instruction_traits.h"
#include "patch/isa/isa.h"
#include "patch/isa/llvm_target.h"

namespace rjdbi::patch {

class Renamer {
 public:
  // Both must outlive it.
  Renamer(const LlvmTarget& target, const RegisterMap& map);

  // INVALID_ARGUMENT: an operand's registers would no longer be consecutive, or
  // LLVM has no such operand. The encoding is not checked here.
  absl::StatusOr<std::vector<uint8_t>> Encode(llvm::MCInst inst, const RegisterRenaming& renaming);

 private:
  unsigned Counterpart(unsigned llvm_register, uint16_t first, uint8_t count,
                       int register_class) const;

  const LlvmTarget& target_;
  const RegisterMap& map_;
  std::unique_ptr<llvm::MCCodeEmitter> emitter_;
  std::map<std::pair<uint16_t, uint8_t>, std::vector<unsigned>> by_range_;
};

}  // namespace rjdbi::patch

#endif  // PATCH_ISA_RENAME_H_
