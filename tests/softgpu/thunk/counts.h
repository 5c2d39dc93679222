// Ground truth of what ran: a journal of executions per program counter.
//
// The file named by SOFTGPU_COUNTS ("%p" becomes the process id) is appended to
// in whole records before a kernel's completion is signalled, so it is complete
// for everything the host can know to have finished, however the process ends
// (exit, _exit, a signal). Several processes may share one file. Text lines:
//
//   target <pid> <gfx name>
//   code <code id> base=0x<load bias> uri=<uri>
//   kernel <kernel id> code=<code id> kd=0x<v> entry=0x<v> name=<name>
//   dispatch <kernel id> grid=<x,y,z> workgroup=<x,y,z>
//   pc <kernel id> <code id> 0x<v> <waves> <lanes>
//
// Ids are "<pid>.<n>" and precede their use. Each load of a code object has its
// own id. <v> is an address less the load bias: the virtual address in the code
// object's ELF, as a disassembler shows it. Code that no code object holds
// (ROCR's own copy kernels) belongs to code id "<pid>.0": bias 0, uri "-".
// Equal (kernel, code, address) lines add up: each stands for one dispatch.
//   waves: times issued, whatever EXEC was; lanes: sum of active lanes at issue.
#ifndef TESTS_SOFTGPU_THUNK_COUNTS_H_
#define TESTS_SOFTGPU_THUNK_COUNTS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/softgpu/interp/machine.h"
#include "tests/softgpu/thunk/address_space.h"
#include "tests/softgpu/thunk/code_objects.h"

namespace softgpu {

class CountJournal {
 public:
  // An empty path turns the journal off.
  CountJournal(const std::string& path, const std::string& target, AddressSpace* space);

  bool enabled() const { return !path_.empty(); }
  // The list of loaded code objects (ROCR's r_debug).
  void SetDebugList(uint64_t r_debug);
  // Writes one dispatch to the file. Thread-safe.
  void Record(const Dispatch& dispatch, const std::map<uint64_t, PcCount>& counts);

 private:
  // What holds an address: the code object's id and its load bias, and the
  // bounds of its memory.
  struct Home {
    uint64_t id = 0;
    uint64_t bias = 0;
    uint64_t begin = 0, end = 0;
  };
  Home FindHome(uint64_t address, std::string* out);
  uint64_t FindKernel(const Dispatch& dispatch, std::string* out);
  void Append(const std::string& text);

  std::string path_;
  const std::string target_;
  AddressSpace* const space_;
  std::mutex mutex_;
  LoadedCode loaded_;
  bool started_ = false;
  std::map<uint64_t, Home> homes_;                             // by allocation serial
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> kernels_;  // (code id, descriptor)
  uint64_t next_code_ = 1, next_kernel_ = 1;
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_THUNK_COUNTS_H_
