// `rjctl run`: a program with the agent loaded, attachments for as long as it
// runs, and its own exit code as ours.
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "clients/control_client.h"
#include "clients/record_report.h"
#include "clients/report_rows.h"
#include "clients/spec_text.h"
#include "clients/verbs.h"
#include "contract/coverage.h"

namespace rjdbi::clients {
namespace {

constexpr char kAgentName[] = "librjdbi-agent.so";
constexpr char kDefaultAgentSocket[] = "/run/rjdbid/agent.sock";
constexpr int kCannotRun = 126, kNotFound = 127, kSignalBase = 128;  // as shells have it

pid_t child_pid = 0;  // for the signal handler

void ForwardSignal(int signal) { kill(child_pid, signal); }

std::string EnvOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

absl::StatusOr<std::string> FindAgent(const std::string& given) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> places;
  if (!given.empty()) {
    places = {given};
  } else {
    const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
    places = {here / "../agent" / kAgentName,                              // build tree
              here / ".." / RJDBI_RELATIVE_LIBDIR / "rjdbi" / kAgentName,  // relocated install
              fs::path(RJDBI_FULL_LIBDIR) / "rjdbi" / kAgentName};
  }
  for (const fs::path& place : places) {
    if (fs::exists(place, error)) return fs::weakly_canonical(place, error).string();
  }
  return absl::InvalidArgumentError(absl::StrCat("the agent library was not found (looked for ",
                                                 places.back().string(),
                                                 "); name it with --agent"));
}

// The dynamic linker would go on without it, and say so in words of its own.
bool IsSharedLibrary(const std::string& path) {
  Elf64_Ehdr header = {};
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(&header), sizeof(header)) &&
         std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_DYN &&
         header.e_machine == EM_X86_64;
}

// `value` added to a list in the environment, unless it is in there already.
void AddToList(const char* name, const std::string& value, char separator, bool first) {
  const std::string old = EnvOr(name, "");
  const std::string sep(1, separator);
  if (absl::StrCat(sep, old, sep).find(absl::StrCat(sep, value, sep)) != std::string::npos) return;
  const std::string joined = old.empty() ? value
                             : first     ? absl::StrCat(value, sep, old)
                                         : absl::StrCat(old, sep, value);
  setenv(name, joined.c_str(), 1);
}

// The agent alone waits 2 s, because nobody may have asked for it. Here somebody
// has: a large library's first admission may take longer than that.
constexpr char kPatienceMs[] = "30000";

void SetEnvironment(const std::string& agent, const RunOptions& options) {
  AddToList("LD_PRELOAD", agent, ':', true);
  AddToList("HSA_TOOLS_LIB", agent, ' ', false);
  // Newer ROCm ignores HSA_TOOLS_LIB once another tool has registered, unless
  // this is set; older ROCm does not know it.
  setenv("HSA_TOOLS_ROCPROFILER_V1_TOOLS", "1", 0);
  if (!options.agent_socket.empty()) setenv("RJDBI_SOCKET", options.agent_socket.c_str(), 1);
  if (options.deadline_ms > 0) {
    setenv("RJDBI_DEADLINE_MS", std::to_string(options.deadline_ms).c_str(), 1);
  } else {
    setenv("RJDBI_DEADLINE_MS", kPatienceMs, 0);
  }
}

// Waits for the starting byte, then becomes the command. Nothing of gRPC has
// been touched before the fork.
[[noreturn]] void BecomeCommand(int start_fd, const RunOptions& options, const std::string& agent) {
  char byte = 0;
  if (read(start_fd, &byte, 1) != 1) _exit(kInternal);
  SetEnvironment(agent, options);
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  std::fprintf(stderr, "error: %s: %s\n", arguments[0], std::strerror(error));
  _exit(error == ENOENT ? kNotFound : kCannotRun);
}

// Attachments that live as long as the run.
class RunAttachments {
 public:
  RunAttachments(const Context& context, ControlClient& client)
      : context_(context), client_(client) {}
  ~RunAttachments() {
    for (const std::string& id : ids_) {
      v1::DetachRequest request;
      request.set_attachment_id(id);
      v1::DetachReply reply;
      if (absl::Status s = client_.Detach(request, reply); !s.ok()) context_.out.Fail(s);
    }
  }
  int Add(const v1::AttachmentSpec& spec) {
    v1::AttachRequest request;
    *request.mutable_spec() = spec;
    v1::AttachReply reply;
    if (absl::Status s = client_.Attach(request, reply); !s.ok()) return context_.out.Fail(s);
    context_.out.Violations(reply.violations());
    if (reply.violations_size() > 0) return kRefused;
    ids_.push_back(reply.attachment().id());
    return kOk;
  }
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  const Context& context_;
  ControlClient& client_;
  std::vector<std::string> ids_;
};

int WaitForChild() {
  int status = 0;
  while (waitpid(child_pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Gaps of the processes that have connected since the run began: not those of
// others before.
absl::Status GetGaps(ControlClient& client, int64_t start_unix_ns, v1::GetCoverageReply& merged) {
  merged.clear_gaps();
  merged.clear_folded_gaps();
  merged.clear_folded_processes();
  v1::GetStatusReply status;
  if (absl::Status s = client.GetStatus({}, status); !s.ok()) return s;
  for (const v1::Session& session : status.sessions()) {
    if (session.gaps() == 0 || session.opened_unix_ns() < start_unix_ns) continue;
    v1::GetCoverageRequest request;
    request.set_session_id(session.id());
    v1::GetCoverageReply reply;
    if (absl::Status s = client.GetCoverage(request, reply); !s.ok()) return s;
    merged.mutable_gaps()->MergeFrom(reply.gaps());
  }
  return absl::OkStatus();
}

// The run's own attachments, or, without any, everything of the process.
absl::Status GetReports(ControlClient& client, const std::vector<std::string>& ids,
                        v1::GetReportReply& merged) {
  std::vector<v1::GetReportRequest> requests;
  for (const std::string& id : ids) requests.emplace_back().set_attachment_id(id);
  if (ids.empty()) {
    v1::GetStatusReply status;
    if (absl::Status s = client.GetStatus({}, status); !s.ok()) return s;
    for (const v1::Session& session : status.sessions()) {
      if (session.pid() == static_cast<uint32_t>(child_pid)) {
        requests.emplace_back().set_session_id(session.id());
      }
    }
  }
  for (const v1::GetReportRequest& request : requests) {
    v1::GetReportReply reply;
    absl::Status s = client.GetReport(request, reply);
    if (s.ok()) s = SummariseRecords(client, RecordsOf(request), reply);
    if (!s.ok()) return s;
    // Gaps belong to processes: each reply repeats them.
    if (merged.counts_size() > 0 || merged.has_coverage()) {
      reply.mutable_coverage()->clear_gaps();
      reply.mutable_coverage()->clear_refused_objects();
      reply.mutable_coverage()->clear_folded_processes();
      reply.mutable_coverage()->clear_folded_gaps();
    }
    v1::Coverage total = merged.coverage().total();
    contract::AddCoverage(total, reply.coverage().total());
    merged.MergeFrom(reply);
    *merged.mutable_coverage()->mutable_total() = total;
  }
  return absl::OkStatus();
}

int Supervise(const Context& context, const RunOptions& options,
              const std::vector<v1::AttachmentSpec>& specs, int start_fd) {
  ControlClient client(context.control_socket);
  RunAttachments attachments(context, client);
  for (v1::AttachmentSpec spec : specs) {
    spec.set_pid(static_cast<uint32_t>(child_pid));
    if (const int code = attachments.Add(spec); code != kOk) {
      close(start_fd);  // the child ends without having become the command
      WaitForChild();
      return code;
    }
  }
  const int64_t start_unix_ns = UnixNanos();
  if (write(start_fd, "x", 1) != 1) return kInternal;
  close(start_fd);
  const int code = WaitForChild();
  if (options.report) {
    v1::GetReportReply reply;
    absl::Status s = GetReports(client, attachments.ids(), reply);
    if (s.ok()) s = GetGaps(client, start_unix_ns, *reply.mutable_coverage());
    if (!s.ok()) {
      context.out.Fail(s);
    } else if (context.out.json()) {
      context.out.Json(reply);
    } else {
      PrintReport(context.out, reply, {}, std::nullopt);
    }
    if (s.ok()) WarnVacuousIn(context, reply.coverage());
  }
  return code;
}

}  // namespace

int Run(const Context& context, const RunOptions& given) {
  RunOptions options = given;
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  }
  if (options.command.empty()) return context.out.FailUsage("run: which command?");
  const absl::StatusOr<std::string> agent = FindAgent(options.agent_library);
  if (!agent.ok()) return context.out.Fail(agent.status());
  if (!IsSharedLibrary(*agent)) {
    return context.out.FailUsage(absl::StrCat(*agent, ": not a shared library of this machine"));
  }
  if (agent->find_first_of(" :") != std::string::npos) {
    return context.out.FailUsage(
        absl::StrCat(*agent, ": LD_PRELOAD cannot name a path with blanks or colons"));
  }
  std::vector<v1::AttachmentSpec> specs;
  for (const std::string& text : options.attach) {
    const absl::StatusOr<v1::AttachmentSpec> spec = ParseSpec(text, options.mode);
    if (!spec.ok()) return context.out.Fail(spec.status());
    specs.push_back(*spec);
  }
  const std::string socket = options.agent_socket.empty()
                                 ? EnvOr("RJDBI_SOCKET", kDefaultAgentSocket)
                                 : options.agent_socket;
  // When attachments cannot be made, the program does not run, and that is said.
  const bool runs = specs.empty() || TryConnect(context.control_socket) == 0;
  if (TryConnect(socket) != 0 && runs) {
    context.out.Warn(
        absl::StrCat("no rjdbid answers on ", socket, "; the program runs unobserved"));
  }
  int pipe_fds[2] = {-1, -1};
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return kInternal;
  std::fflush(nullptr);
  child_pid = fork();
  if (child_pid < 0) {
    return context.out.Fail(absl::InternalError(absl::StrCat("fork: ", std::strerror(errno))));
  }
  if (child_pid == 0) {
    close(pipe_fds[1]);
    BecomeCommand(pipe_fds[0], options, *agent);
  }
  close(pipe_fds[0]);
  // The terminal sends these to the program too; others are passed on.
  signal(SIGINT, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  signal(SIGTERM, ForwardSignal);
  signal(SIGHUP, ForwardSignal);
  return Supervise(context, options, specs, pipe_fds[1]);
}

}  // namespace rjdbi::clients
