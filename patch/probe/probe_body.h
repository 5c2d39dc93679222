// A user's probe: the machine code of one device function, read, understood and
// held to what can be put in line at any site.
//
// What is accepted is a function of LLVM's AMDGPU calling convention
// (AMDGPUUsage, "Calling Conventions, Non-Kernel Functions") that takes 32 and
// 64-bit arguments in v0, v1, ..., returns nothing through s[30:31], and whose
// control flow stays within itself, with loops whose number of rounds follows from
// constants: these are written out (unroll.h). It has no stack, no LDS, calls
// nothing, and does nothing that reaches beyond its wavefront.
#ifndef PATCH_PROBE_PROBE_BODY_H_
#define PATCH_PROBE_PROBE_BODY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "patch/codeobject/device_object.h"
#include "patch/isa/isa.h"
#include "patch/isa/register_set.h"

namespace rjdbi::patch {

// Arguments beyond v30 would come from the stack; v31 holds the packed work-item
// ids.
inline constexpr uint32_t kMaxArgumentDwords = 31;

// What keeps a body from being put in line.
enum class BodyRule : uint8_t {
  kSize,
  kRelocation,  // a linker would still fill in an address
  kUndecodable,
  kControl,  // control leaves it elsewhere than by its return
  kCall,     // calls and computed transfers
  kLoop,     // a loop whose number of rounds is not known, or too high
  kStack,    // scratch, or a resource descriptor
  kLds,
  kForbidden,  // reaches beyond the wavefront, or changes its modes
  kRegister,   // touches a register that cannot be renamed or restored
  kInput,      // reads what no argument provides
  kLoadsLeft,  // returns while a load may still write
};

// Why a body is not accepted, and where.
struct BodyRefusal {
  BodyRule rule = BodyRule::kSize;
  std::string observed;  // the instruction or register
  std::string limit;
  std::string detail;       // one sentence, with probe and offset
  uint32_t offset = 0;      // bytes from the function's start
  std::string instruction;  // disassembly; empty: none there
};

// What becomes of an instruction when the body is put in line.
enum class BodyRole : uint8_t {
  kKept,
  kReturn,  // control goes on behind the body
  // Waits that the calling convention asks for at both ends, where nothing is
  // left to wait for: the body leaves no register to be written.
  kDropped,
};

// Registers that go to consecutive registers together, because some operand
// names them together.
struct RegisterBlock {
  uint16_t first = 0;
  uint16_t count = 0;
  uint8_t alignment = 1;  // the new first must be equal to the old one modulo this
};

struct ProbeBody {
  static constexpr uint32_t kMaxBytes = 4096;

  std::string name;
  std::vector<uint8_t> code;              // loops written out
  std::vector<Instruction> instructions;  // of the Isa, which must outlive this
  std::vector<BodyRole> roles;            // parallel
  RegisterSet reads;                      // read before anything wrote them, EXEC and MODE aside
  RegisterSet writes;                     // s[30:31] are in neither
  RegisterSet mentioned;                  // by operands: what can be renamed
  std::vector<RegisterBlock> blocks;      // ascending
  uint32_t argument_dwords = 0;           // v0 to v(n-1) hold what it reads
  bool waits = false;                     // some wait is left
  bool needs_active_lane = false;         // EXEC = 0 may lead to a wild address
};

struct BodyReading {
  ProbeBody body;  // whole only without refusals
  std::vector<BodyRefusal> refusals;
  bool ok() const { return refusals.empty(); }
};

// Finds everything that is wrong, at most one refusal of a kind and instruction.
BodyReading ReadBody(const DeviceFunction& function, Isa& isa);

// What the calling convention keeps in a register: "s32 (stack pointer)".
std::string ConventionName(uint16_t reg);

}  // namespace rjdbi::patch

#endif  // PATCH_PROBE_PROBE_BODY_H_
