// Environment variables to Config. A malformed value keeps the default: the host
// must start whatever its environment says.
#include "agent/config.h"

#include <cstdlib>
#include <cstring>

#include "agent/types.h"

namespace rjdbi::agent {
namespace {

constexpr int64_t kLongestDeadlineMs = 600'000;

// secure_getenv: a set-uid host must not be steered by its caller.
const char* Value(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

bool IsOn(const char* name) {
  const char* value = Value(name);
  return value && std::strcmp(value, "0") != 0;
}

}  // namespace

Config Config::FromEnvironment() {
  Config config;
  if (const char* path = Value("RJDBI_SOCKET")) config.socket_path = path;
  if (const char* path = Value("RJDBI_GAP_FILE")) config.gap_file = path;
  config.log = IsOn("RJDBI_LOG");
  if (const char* text = Value("RJDBI_DEADLINE_MS")) {
    char* end = nullptr;
    long long ms = std::strtoll(text, &end, 10);
    if (*end == '\0' && ms >= 1 && ms <= kLongestDeadlineMs) config.deadline_ns = ms * kNsPerMs;
  }
  return config;
}

bool DisabledByEnvironment() { return IsOn("RJDBI_DISABLE"); }

}  // namespace rjdbi::agent
