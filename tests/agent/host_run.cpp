// See host_run.h.
#include "tests/agent/host_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

extern char** environ;

namespace rjdbi::agent::testing {
namespace {

constexpr char kAgent[] = RJDBI_AGENT_PATH;
constexpr char kSanitizerRuntime[] = RJDBI_SANITIZER_RUNTIME;  // "" without sanitizers

}  // namespace

Result RunHost(const std::vector<std::string>& command, Through through,
               std::map<std::string, std::string> environment) {
  for (char** entry = environ; *entry; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    environment.try_emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  environment["LD_LIBRARY_PATH"] = RJDBI_BINARY_DIR "/softgpu";
  environment.try_emplace("SOFTGPU_TARGET", "gfx90a");
  // A sanitized library can only be preloaded after its runtime.
  std::string preload = kSanitizerRuntime;
  if (through & kPreload) preload += (preload.empty() ? "" : ":") + std::string(kAgent);
  if (!preload.empty()) environment["LD_PRELOAD"] = preload;
  // Foreign programs may leave their memory to the process's end, and ROCR may
  // crash on a bad object, with the agent as without it. Some fork a hundred times.
  environment["ASAN_OPTIONS"] += ":detect_leaks=0:handle_segv=0:handle_sigbus=0";
  environment["TSAN_OPTIONS"] += ":handle_segv=0:handle_sigbus=0:atexit_sleep_ms=50";
  if (through & kToolsLib) environment["HSA_TOOLS_LIB"] = kAgent;

  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> env_pointers, arg_pointers;
  for (std::string& entry : entries) env_pointers.push_back(entry.data());
  env_pointers.push_back(nullptr);
  std::vector<std::string> arguments = command;
  for (std::string& argument : arguments) arg_pointers.push_back(argument.data());
  arg_pointers.push_back(nullptr);

  Result result;
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  auto start = std::chrono::steady_clock::now();
  auto elapsed_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 start)
        .count();
  };
  if (posix_spawn(&result.pid, command[0].c_str(), &actions, nullptr, arg_pointers.data(),
                  env_pointers.data()) != 0) {
    ADD_FAILURE() << "cannot start " << command[0];
    return result;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  bool killed = false;
  for (;;) {
    pollfd ready{output[0], POLLIN, 0};
    if (poll(&ready, 1, 1000) > 0) {
      char buffer[4096];
      ssize_t size = read(output[0], buffer, sizeof buffer);
      if (size <= 0) break;
      result.output.append(buffer, static_cast<size_t>(size));
    } else if (elapsed_ms() > 200'000 && !killed) {
      ADD_FAILURE() << command[0] << " hangs";
      kill(result.pid, SIGKILL);
      killed = true;
      break;
    }
  }
  close(output[0]);
  int status = 0;
  rusage usage{};
  wait4(result.pid, &status, 0, &usage);
  result.ms = elapsed_ms();
  result.cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 +
                  usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace rjdbi::agent::testing
