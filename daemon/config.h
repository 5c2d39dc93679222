// rjdbid's configuration: a YAML file plus drop-ins, each key checked, every
// complaint with file, line and column.
#ifndef DAEMON_CONFIG_H_
#define DAEMON_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/admission.h"
#include "daemon/record_store.h"

namespace rjdbi::daemon {

struct Config {
  std::string agent_socket = "/run/rjdbid/agent.sock";
  std::string control_socket = "/run/rjdbid/control.sock";
  std::string state_directory = "/var/lib/rjdbid";
  uint64_t cache_max_bytes = uint64_t{1} << 30;
  contract::Policy policy = contract::DefaultPolicy();
  uint32_t max_sessions = 1024;            // open at the same time
  uint32_t max_concurrent_admissions = 0;  // worker threads; 0: one per processor
  uint64_t max_upload_bytes_in_flight = uint64_t{512} << 20;
  uint32_t upload_stall_ms = 5000;     // without progress
  uint32_t upload_timeout_ms = 30000;  // for one whole object
  uint32_t report_interval_ms = 1000;
  RecordLimits records;
  std::string log_level = "info";
  std::string log_format = "text";  // text, json
};

inline constexpr char kDefaultConfigFile[] = "/etc/rjdbid/rjdbid.yaml";

// Applies one file to `config`. Appends "file:line:column: message" per problem.
// A missing file is a problem.
void ApplyConfigFile(const std::string& path, Config& config, std::vector<std::string>& problems);

// `path`, then conf.d/*.yaml beside it in name order. A missing `path` is a
// problem only if `required`.
void LoadConfig(const std::string& path, bool required, Config& config,
                std::vector<std::string>& problems);

// What no key shows by itself, such as two sockets with one path. Empty: all is well.
std::vector<std::string> CheckConfig(const Config& config);

// The effective configuration as YAML that LoadConfig reads back.
std::string PrintConfig(const Config& config);

}  // namespace rjdbi::daemon

#endif  // DAEMON_CONFIG_H_
