// Logging set-up: journald when systemd runs us, standard error otherwise.
#ifndef DAEMON_LOG_H_
#define DAEMON_LOG_H_

#include <string>

namespace rjdbi::daemon {

// level: spdlog's names; format: "text" or "json" (one object per line).
void SetUpLogging(const std::string& level, const std::string& format);

}  // namespace rjdbi::daemon

#endif  // DAEMON_LOG_H_
