// A user's probe as the engine takes it: a body and what to pass to it.
#ifndef PATCH_PROBE_USER_PROBE_H_
#define PATCH_PROBE_USER_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "patch/probe/probe_body.h"

namespace rjdbi::patch {

// v1.ProbeArgument documents them.
enum class ArgumentKind : uint8_t {
  kConstant,
  kSite,
  kExec,
  kLane,
  kWaveSlot,
  kAddress,
  kTelemetry,
  kRegister,
};

struct ProbeArgument {
  ArgumentKind kind = ArgumentKind::kConstant;
  uint8_t dwords = 1;     // 1 or 2
  uint64_t constant = 0;  // kConstant
  uint16_t reg = 0;       // kRegister: the first of `dwords`
};

struct UserProbe {
  ProbeBody body;
  std::vector<ProbeArgument> arguments;
  uint32_t telemetry_words = 0;  // 64-bit ones, per site
};

// One dword that is passed in a vector register, by the calling convention in
// v0, v1, ... in order.
struct ArgumentWord {
  const ProbeArgument* argument = nullptr;
  uint8_t word = 0;  // of the argument
};
std::vector<ArgumentWord> ArgumentWords(const UserProbe& probe);

}  // namespace rjdbi::patch

#endif  // PATCH_PROBE_USER_PROBE_H_
