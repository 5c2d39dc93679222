// Runs dispatches: the soft GPU's shader array. The KFD thunk's command
// processor and tests that dispatch directly both use this.
#ifndef TESTS_SOFTGPU_INTERP_MACHINE_H_
#define TESTS_SOFTGPU_INTERP_MACHINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/softgpu/interp/wave.h"

namespace softgpu {

// What a dispatch needs, independent of queues. All addresses are host
// addresses; the kernel descriptor (64 bytes) is read from memory.
struct Dispatch {
  uint64_t kernel_descriptor = 0;
  uint64_t kernarg = 0;
  uint64_t packet = 0;  // address of the AQL packet (dispatch_ptr)
  uint64_t queue = 0;   // address of amd_queue_t (queue_ptr)
  uint64_t dispatch_id = 0;
  uint32_t grid[3] = {1, 1, 1};       // work-items
  uint32_t workgroup[3] = {1, 1, 1};  // work-items; partial groups at the edge
  uint32_t private_segment_size = 0;  // bytes per lane, from the packet
  uint32_t group_segment_size = 0;    // bytes, from the packet
  uint64_t shared_aperture = uint64_t{1} << 48;
  uint64_t private_aperture = uint64_t{2} << 48;
};

// Executions at one program counter.
struct PcCount {
  uint64_t waves = 0;  // times issued, whatever EXEC was
  uint64_t lanes = 0;  // sum of active lanes at issue
};

// Sees every instruction before it runs, on the thread inside Run.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnInstruction(const Wave& wave, const Inst& inst) = 0;
};

class Machine {
 public:
  // gfx_name: "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx1010",
  // "gfx950", "gfx1030", "gfx1100", "gfx1200", "gfx1201", "gfx1250". Returns nullptr, with *error
  // set, for a name that LLVM or the interpreter does not know.
  // seed: orders the interleaving of a workgroup's wavefronts.
  static std::unique_ptr<Machine> Create(const std::string& gfx_name, uint64_t seed, Memory* memory,
                                         std::string* error);
  virtual ~Machine() = default;

  // Runs to completion or to the first fault. Not thread-safe.
  virtual Fault Run(const Dispatch& dispatch) = 0;

  // Makes a Run in progress on another thread return soon, with a kTrap fault
  // whose text is "interrupted". Sticky until ClearInterrupt.
  virtual void Interrupt() = 0;
  virtual void ClearInterrupt() = 0;

  // Where s_sendmsg interrupts go; nullptr (the default) drops them. Called on
  // the thread inside Run.
  virtual void SetMessageSink(MessageSink* sink) = 0;

  // nullptr (the default): nobody.
  virtual void SetObserver(Observer* observer) = 0;

  // Whether the firmware preloads kernel arguments, on processors that can (the
  // default): other firmware enters kernels at their compatibility block.
  virtual void SetPreloads(bool preloads) = 0;

  // Forget decoded instructions (code was written or freed).
  virtual void InvalidateInstructionCache() = 0;

  // Ground truth. Keys are absolute addresses.
  virtual const std::map<uint64_t, PcCount>& Counts() const = 0;
  virtual void ResetCounts() = 0;
  virtual uint64_t LaneInstructions() const = 0;  // executed, since creation
};

}  // namespace softgpu

#endif  // TESTS_SOFTGPU_INTERP_MACHINE_H_
