// rjdbid: options, sockets, services, and an orderly end.
#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/admission_service.h"
#include "daemon/config.h"
#include "daemon/control_service.h"
#include "daemon/daemon_state.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::daemon {
namespace {

constexpr std::chrono::seconds kStopPatience{5};
constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2;

struct Options {
  std::string config_file;
  std::string agent_socket, control_socket, state_directory, log_level, log_format;
  bool check_config = false, print_config = false;
};

// Command-line values win over files. nullopt: see `problems`.
std::optional<Config> ReadConfig(const Options& options, std::vector<std::string>& problems) {
  Config config;
  const bool given = !options.config_file.empty();
  LoadConfig(given ? options.config_file : kDefaultConfigFile, given, config, problems);
  if (!problems.empty()) return std::nullopt;
  const std::pair<const std::string&, std::string&> overrides[] = {
      {options.agent_socket, config.agent_socket},
      {options.control_socket, config.control_socket},
      {options.state_directory, config.state_directory},
      {options.log_level, config.log_level},
      {options.log_format, config.log_format}};
  for (const auto& [value, field] : overrides) {
    if (!value.empty()) field = value;
  }
  problems = CheckConfig(config);
  if (!problems.empty()) return std::nullopt;
  return config;
}

// The directory if it can be used, "" if the daemon has to go without.
// ALREADY_EXISTS: another rjdbid uses it.
absl::StatusOr<std::string> PrepareStateDirectory(const std::string& path, int& lock_fd) {
  const auto without = [&](const std::string& why) {
    spdlog::warn("{}: {}; attachments and decisions will not survive a restart", path, why);
    return std::string();
  };
  std::error_code error;
  std::filesystem::create_directories(path + "/cache", error);
  if (error) return without(error.message());
  chmod(path.c_str(), 0700);
  lock_fd = open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) return without(std::strerror(errno));
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat(path, ": in use by another rjdbid"));
  }
  if (access((path + "/cache").c_str(), W_OK) != 0) return without(std::strerror(errno));
  return path;
}

// One socket, one service, one gRPC server.
class Endpoint {
 public:
  absl::Status Open(const std::map<std::string, int>& inherited, const std::string& name,
                    const std::string& path, mode_t mode) {
    if (const auto found = inherited.find(name); found != inherited.end()) {
      socket_.fd = found->second;
      fcntl(socket_.fd, F_SETFL, fcntl(socket_.fd, F_GETFL) | O_NONBLOCK);
      spdlog::info("{} socket: passed by the service manager", name);
      return absl::OkStatus();
    }
    absl::StatusOr<ListeningSocket> made = Listen(path, mode);
    if (!made.ok()) return made.status();
    socket_ = *made;
    spdlog::info("{} socket: {}", name, path);
    return absl::OkStatus();
  }

  bool Serve(grpc::Service* service, PeerRegistry& peers, int max_threads) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(max_threads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(16 << 20);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return false;
    acceptor_.emplace(socket_.fd, [this, &peers](int fd) {
      const int registered = peers.Register(fd);
      if (registered < 0) {
        spdlog::warn("a connection was dropped: {}", std::strerror(errno));
      } else {
        grpc::AddInsecureChannelFromFd(server_.get(), registered);
      }
    });
    return true;
  }

  void StopAccepting() {
    if (acceptor_.has_value()) acceptor_->Stop();
    CloseAndRemove(socket_);
  }
  void Shutdown(std::chrono::system_clock::time_point deadline) {
    if (server_ != nullptr) server_->Shutdown(deadline);
  }

 private:
  ListeningSocket socket_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Acceptor> acceptor_;
};

// Freed chunks stay with the allocator: an upload must not fault in every page
// of every message anew.
void TuneAllocator() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is one more way of a full disk
  return signals;
}

std::string StatusLine(DaemonState& state) {
  size_t open = 0;
  for (const v1::Session& session : state.ledger.Sessions()) open += session.closed_unix_ns() == 0;
  const BlobStore::Stats cache = state.blobs.stats();
  return absl::StrFormat("STATUS=%d attachments, %d processes, %d cache entries (%d MiB)",
                         state.attachments.All().size(), open, cache.entries, cache.bytes >> 20);
}

void Reload(const Options& options, DaemonState& state) {
  sd_notify(0, "RELOADING=1");
  std::vector<std::string> problems;
  if (const std::optional<Config> config = ReadConfig(options, problems)) {
    state.Reload(*config);
    spdlog::set_level(spdlog::level::from_str(config->log_level));
    spdlog::info(
        "configuration reloaded; sockets, state directory, cache size, worker count and "
        "log format change at the next start");
  } else {
    for (const std::string& problem : problems) spdlog::error("{}", problem);
    spdlog::error("the configuration has errors; going on with the one before");
  }
  sd_notify(0, "READY=1");
}

// Until SIGTERM or SIGINT.
void WaitForSignals(const sigset_t& signals, const Options& options, DaemonState& state) {
  uint64_t watchdog_us = 0;
  sd_watchdog_enabled(0, &watchdog_us);
  const int interval_ms =
      watchdog_us == 0 ? 5000 : static_cast<int>(std::min<uint64_t>(watchdog_us / 2000, 5000));
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC);
  while (true) {
    sd_notify(0, absl::StrCat("WATCHDOG=1\n", StatusLine(state)).c_str());
    pollfd event = {fd, POLLIN, 0};
    if (poll(&event, 1, interval_ms) <= 0) continue;
    signalfd_siginfo info = {};
    if (read(fd, &info, sizeof(info)) != sizeof(info)) continue;
    if (info.ssi_signo != SIGHUP) {
      spdlog::info("{}: stopping", strsignal(static_cast<int>(info.ssi_signo)));
      break;
    }
    Reload(options, state);
  }
  close(fd);
}

// An admission that runs cannot be interrupted, and may take long. What is on disk
// is whole at every moment, so that leaving without it is safe.
void ExitAfter(std::chrono::seconds patience) {
  std::thread([patience] {
    std::this_thread::sleep_for(patience);
    spdlog::warn("an admission goes on after {} s; leaving it", patience.count());
    spdlog::default_logger()->flush();
    _exit(kExitOk);
  }).detach();
}

int Serve(const Options& options, const Config& config) {
  const sigset_t signals = BlockSignals();
  TuneAllocator();
  int lock_fd = -1;
  const absl::StatusOr<std::string> directory =
      PrepareStateDirectory(config.state_directory, lock_fd);
  if (!directory.ok()) {
    spdlog::critical("{}", std::string(directory.status().message()));
    return kExitFailure;
  }
  const std::map<std::string, int> inherited = InheritedSockets();
  DaemonState state(config, *directory);
  AdmissionService admission(state);
  ControlService control(state, ReadGpuInventory(), RJDBI_VERSION);
  Endpoint agents, operators;
  absl::Status opened = agents.Open(inherited, "agent", config.agent_socket, 0666);
  if (opened.ok()) opened = operators.Open(inherited, "control", config.control_socket, 0660);
  if (!opened.ok()) {
    agents.StopAccepting();
    spdlog::critical("{}", std::string(opened.message()));
    return kExitFailure;
  }
  if (!agents.Serve(&admission, state.peers, 64) || !operators.Serve(&control, state.peers, 32)) {
    agents.StopAccepting();
    operators.StopAccepting();
    spdlog::critical("the gRPC server did not start");
    return kExitFailure;
  }
  sd_notify(0, "READY=1");
  spdlog::info("rjdbid {} is ready", RJDBI_VERSION);
  WaitForSignals(signals, options, state);

  sd_notify(0, "STOPPING=1");
  agents.StopAccepting();
  operators.StopAccepting();
  // Waiting admissions are answered UNAVAILABLE, running ones end; then calls
  // that have not ended on their own are cancelled.
  ExitAfter(kStopPatience);
  state.decider.Stop();
  state.watches->Stop();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(1);
  agents.Shutdown(deadline);
  operators.Shutdown(deadline);
  spdlog::info("stopped");
  if (lock_fd >= 0) close(lock_fd);
  return kExitOk;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("rjdbid decides which probes go into the GPU code that processes load.", "rjdbid");
  app.add_option("--config", options.config_file, "Configuration file")->type_name("FILE");
  app.add_option("--agent-socket", options.agent_socket, "Where agents connect")->type_name("PATH");
  app.add_option("--control-socket", options.control_socket, "Where rjctl connects")
      ->type_name("PATH");
  app.add_option("--state-dir", options.state_directory, "Cache and attachments")->type_name("DIR");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error, critical, off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "critical", "off"}));
  app.add_option("--log-format", options.log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--check-config", options.check_config, "Check the configuration and exit");
  app.add_flag("--print-config", options.print_config,
               "Print the effective configuration and exit");
  app.set_version_flag("--version", std::string("rjdbid ") + RJDBI_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    std::cerr << "error: " << e.what() << "\nhelp: rjdbid --help\n";
    return kExitUsage;
  }
  std::vector<std::string> problems;
  const std::optional<Config> config = ReadConfig(options, problems);
  for (const std::string& problem : problems) {
    std::cerr << "error: " << patch::Printable(problem) << "\n";
  }
  if (!config.has_value()) return kExitUsage;
  if (options.print_config && !(std::cout << PrintConfig(*config) << std::flush)) {
    std::cerr << "error: standard output: a write failed\n";
    return kExitFailure;
  }
  if (options.print_config || options.check_config) return kExitOk;
  SetUpLogging(config->log_level, config->log_format);
  return Serve(options, *config);
}

}  // namespace
}  // namespace rjdbi::daemon

int main(int argc, char** argv) { return rjdbi::daemon::Main(argc, argv); }
