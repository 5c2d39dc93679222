// A kernel of the original as the proof sees it: decoded anew from the object's bytes,
// with control flow of its own. From the engine come neither instructions nor edges
// nor what is live (patch/analysis); shared are the decoder, and where kernels are
// (patch/codeobject).
#ifndef CONTRACT_KERNEL_CODE_H_
#define CONTRACT_KERNEL_CODE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "contract/code_facts.h"
#include "patch/codeobject/code_object.h"
#include "patch/isa/instruction_list.h"
#include "patch/isa/isa.h"

namespace rjdbi::contract {

// What kernels of one object have in common. The object must outlive it, and so must
// the Isas.
class ObjectCode {
 public:
  explicit ObjectCode(const patch::CodeObject& object);
  const patch::CodeObject& object() const { return object_; }
  CodeFacts& Facts(patch::Isa& isa);
  // Every register that code outside the kernels mentions; with `kernels_too` all code.
  const patch::RegisterSet& Mentioned(patch::Isa& isa, bool kernels_too);
  // Where hardware may start inside [begin, end), ascending.
  absl::Span<const uint64_t> EntriesIn(uint64_t begin, uint64_t end) const;

 private:
  const patch::CodeObject& object_;
  std::vector<uint64_t> entries_;  // of kernels, ascending
  std::map<patch::Isa*, std::unique_ptr<CodeFacts>> facts_;
  std::map<std::pair<patch::Isa*, bool>, patch::RegisterSet> mentioned_;
};

class KernelCode {
 public:
  static constexpr uint32_t kNone = ~0u;

  // Instructions that run one after the other. Calls end a block, too.
  struct Block {
    uint32_t first = 0, end = 0;        // instructions
    uint32_t next[2] = {kNone, kNone};  // blocks
    bool anywhere = false;              // control may leave to code that is not followed
    bool reached = false;               // from an entry, or nobody knows
  };

  // A kernel whose bytes are not in the file has no instructions. `index`: one that the
  // object has.
  KernelCode(ObjectCode& object, size_t index, patch::Isa& isa);

  const patch::CodeObject& object() const { return object_.object(); }
  size_t kernel_index() const { return index_; }
  const patch::Kernel& kernel() const { return object().kernels()[index_]; }
  patch::Isa& isa() const { return isa_; }
  absl::Span<const uint8_t> code() const { return code_; }

  // A linear sweep; words that do not decode are left out.
  const patch::InstructionList& instructions() const { return instructions_; }
  std::optional<uint32_t> InstructionAt(uint64_t offset) const {
    return instructions_.Find(offset);
  }
  const CodeFact& FactOf(uint32_t i) const { return facts_.Known(instructions_.Shared(i)); }

  const std::vector<Block>& blocks() const { return blocks_; }
  uint32_t BlockOf(uint32_t i) const;
  // Blocks in which hardware may start.
  const std::vector<uint32_t>& entries() const { return entries_; }
  bool has_calls() const { return calls_; }
  // Control goes somewhere that no edge shows, other than by calls.
  bool unknown_targets() const { return unknown_targets_; }
  // Reached code is not in instructions(): words that do not decode, or a branch into
  // an instruction. Nothing can then be said of the kernel.
  bool broken() const { return broken_; }
  // Control can go past the last instruction.
  bool runs_off() const { return runs_off_; }

  // Every register that the kernel mentions, or what it may call or go to.
  const patch::RegisterSet& mentioned() const { return mentioned_; }
  // Registers that its vector instructions reach through an index.
  const patch::RegisterSet& indexed() const { return indexed_; }
  // What a vector register's number means may change within the kernel.
  bool renumbers() const { return renumbers_; }

  // The place in front of instruction i, or behind it, where nothing may be inserted:
  // vector operands are relative there, or the registers are gone.
  bool Forbidden(uint32_t i, bool behind) const;
  // Every wavefront that executes one executes the other, equally often.
  bool TogetherWith(uint32_t i, uint32_t j) const;

 private:
  void Sweep();
  void MakeBlocks();
  void Connect(Block& block);
  void Reach();
  void FindRegions();
  void Mention();
  bool GapBehind(uint32_t i) const;

  ObjectCode& object_;
  const size_t index_;
  patch::Isa& isa_;
  CodeFacts& facts_;
  absl::Span<const uint8_t> code_;
  patch::InstructionList instructions_;
  std::vector<uint64_t> starts_;  // offsets of entries
  std::vector<Block> blocks_;
  std::vector<uint32_t> entries_;
  std::vector<bool> forbidden_;  // in front of an instruction; empty: nowhere
  patch::RegisterSet mentioned_, indexed_;
  bool calls_ = false, unknown_targets_ = false, broken_ = false, runs_off_ = false;
  bool leaves_ = false, renumbers_ = false, regions_ = false, skips_ = false, indexes_ = false;
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_KERNEL_CODE_H_
