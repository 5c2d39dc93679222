// Environment variables to Config. A malformed value keeps the default: the host
// must start whatever its environment says.
#include "agent/config.h"

#include <cstdlib>
#include <cstring>

#include "agent/types.h"

namespace rjdbi::agent {
namespace {

constexpr int64_t kLongestDeadlineMs = 600'000;
constexpr int64_t kLeastQueueBytes = int64_t{64} << 10;
constexpr int64_t kMostQueueBytes = int64_t{4} << 30;

// secure_getenv: a set-uid host must not be steered by its caller.
const char* Value(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

bool IsOn(const char* name) {
  const char* value = Value(name);
  return value && std::strcmp(value, "0") != 0;
}

// 0: it is not set, or not a number of that range.
int64_t Number(const char* name, int64_t least, int64_t most) {
  const char* text = Value(name);
  if (!text) return 0;
  char* end = nullptr;
  const long long number = std::strtoll(text, &end, 10);
  return *end == '\0' && number >= least && number <= most ? number : 0;
}

}  // namespace

Config Config::FromEnvironment() {
  Config config;
  if (const char* path = Value("RJDBI_SOCKET")) config.socket_path = path;
  if (const char* path = Value("RJDBI_GAP_FILE")) config.gap_file = path;
  config.log = IsOn("RJDBI_LOG");
  if (Value("RJDBI_LIVE")) config.live = IsOn("RJDBI_LIVE");
  if (int64_t ms = Number("RJDBI_DEADLINE_MS", 1, kLongestDeadlineMs)) {
    config.deadline_ns = ms * kNsPerMs;
  }
  if (int64_t bytes = Number("RJDBI_QUEUE_BYTES", kLeastQueueBytes, kMostQueueBytes)) {
    config.queue_bytes = static_cast<size_t>(bytes);
  }
  return config;
}

bool DisabledByEnvironment() { return IsOn("RJDBI_DISABLE"); }

}  // namespace rjdbi::agent
