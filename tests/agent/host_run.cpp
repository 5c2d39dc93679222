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
#include <utility>

extern char** environ;

namespace rjdbi::agent::testing {
namespace {

constexpr char kAgent[] = RJDBI_AGENT_PATH;
constexpr char kSanitizerRuntime[] = RJDBI_SANITIZER_RUNTIME;  // "" without sanitizers

std::vector<std::string> Environment(Through through,
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
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

RunningHost::RunningHost(const std::vector<std::string>& command, Through through,
                         std::map<std::string, std::string> environment) {
  std::vector<std::string> entries = Environment(through, std::move(environment));
  std::vector<std::string> arguments = command;
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  if (posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, Pointers(arguments).data(),
                  Pointers(entries).data()) != 0) {
    ADD_FAILURE() << "cannot start " << command[0];
    pid_ = 0;
  }
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  in_ = input[1];
  out_ = output[0];
}

RunningHost::~RunningHost() {
  if (in_ >= 0) close(in_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) close(out_);
}

std::string RunningHost::Hear() {
  for (;;) {
    if (const size_t end = heard_.find('\n'); end != std::string::npos) {
      const std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd ready{out_, POLLIN, 0};
    char buffer[4096];
    const int polled = poll(&ready, 1, 100'000);
    const ssize_t size = polled > 0 ? read(out_, buffer, sizeof buffer) : -1;
    if (size <= 0) {
      if (polled == 0) ADD_FAILURE() << "no answer";
      return "";
    }
    heard_.append(buffer, static_cast<size_t>(size));
  }
}

std::string RunningHost::Say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return "";
  return Hear();
}

int RunningHost::Finish() {
  close(in_);
  in_ = -1;
  int status = 0;
  int waited_ms = 0;
  for (; waitpid(pid_, &status, WNOHANG) == 0; waited_ms += 5) {
    if (waited_ms == 60'000) {
      ADD_FAILURE() << "it does not end";
      kill(pid_, SIGKILL);
    }
    usleep(5000);
  }
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Result RunHost(const std::vector<std::string>& command, Through through,
               std::map<std::string, std::string> environment) {
  std::vector<std::string> entries = Environment(through, std::move(environment));
  std::vector<std::string> arguments = command;
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
  if (posix_spawn(&result.pid, command[0].c_str(), &actions, nullptr, Pointers(arguments).data(),
                  Pointers(entries).data()) != 0) {
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
