// Memory for a patched code object's counters and its ring of trace records: the GPU
// adds to it with 64-bit atomics while kernels run, and the host reads it at any time.
//
// Which memory that is differs between machines, so it is asked, not assumed:
// a fine-grained pool of the GPU itself if the host may access it (atomics stay
// on the device), else a fine-grained pool of a CPU if every link between says
// that it carries 64-bit atomics coherently. With a ring it is the other way round:
// the host reads all of that, and across the bus it would read word by word.
// Neither: no counters, and the original code object is loaded.
#ifndef RJDBI_AGENT_COUNTERS_H_
#define RJDBI_AGENT_COUNTERS_H_

#include <string>
#include <vector>

#include "agent/hsa_api.h"
#include "agent/types.h"

namespace rjdbi::agent {

class CounterBuffer {
 public:
  CounterBuffer() = default;
  // Zeroed counters that `gpu` can reach, and an empty ring if `layout` has one; no
  // memory, with a reason, when the platform grants no suitable one.
  static CounterBuffer Allocate(const HelperCalls& hsa, hsa_agent_t gpu, const BufferLayout& layout,
                                std::string* why);

  // Gives the memory back to ROCR. Only while ROCR is up, and not in a forked
  // child; a buffer that is not freed is simply left.
  void Free();

  uint64_t address() const { return reinterpret_cast<uintptr_t>(words_); }
  size_t count() const { return layout_.counter_count; }
  bool allocated() const { return words_ != nullptr; }
  // The ring's header; nullptr: there is none.
  void* ring() const;
  const BufferLayout& layout() const { return layout_; }
  // Absolute values. The caller knows that the memory is still there.
  std::vector<uint64_t> Read() const;
  // For process exit: whether the pages are still mapped.
  bool StillMapped() const;

 private:
  uint64_t* words_ = nullptr;
  BufferLayout layout_;
  decltype(&::hsa_amd_memory_pool_free) free_ = nullptr;
};

// Fills in the fixups of a verified decision. `original_delta`: where the loaded original's
// address 0 is; only of images beside it.
void ApplyFixups(const std::vector<Fixup>& fixups, uint64_t counter_address,
                 uint64_t original_delta, OwnedBytes* image);

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_COUNTERS_H_
