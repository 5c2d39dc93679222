// Loaded code objects, as a debugger would find them: through the r_debug list
// that ROCR hands to hsaKmtRuntimeEnable, and the ELF image in GPU memory.
//
// The list belongs to ROCR's loader and may change while it is read, so it is
// read through /proc/self/mem: a stale pointer gives an error, not a crash.
#ifndef TESTS_SOFTGPU_THUNK_CODE_OBJECTS_H_
#define TESTS_SOFTGPU_THUNK_CODE_OBJECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace softgpu {

struct CodeObject {
  uint64_t bias = 0;  // load address less the ELF's virtual address
  std::string uri;    // "file://..." or "memory://..."
};

class LoadedCode {
 public:
  LoadedCode() = default;
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  void SetDebugList(uint64_t r_debug) { r_debug_ = r_debug; }
  // The code object loaded in [begin, end), if there is one.
  std::optional<CodeObject> FindIn(uint64_t begin, uint64_t end);
  // Name of the dynamic symbol with this value, from the image at bias whose
  // memory ends at end; empty if there is none.
  std::string SymbolAt(uint64_t bias, uint64_t end, uint64_t value);

 private:
  bool Read(uint64_t address, void* to, uint64_t size);
  std::string ReadString(uint64_t address, uint64_t limit);

  uint64_t r_debug_ = 0;
  int mem_fd_ = -1;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_CODE_OBJECTS_H_
