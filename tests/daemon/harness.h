// What the daemon's and rjctl's tests share: a real rjdbid on private sockets,
// an agent that speaks the true protocol, and code objects made by clang.
#ifndef TESTS_DAEMON_HARNESS_H_
#define TESTS_DAEMON_HARNESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::tests {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal
  std::string out, err;
};
// Runs a program to its end (60 s at most), `environment` added to our own.
ProgramResult RunProgram(const std::vector<std::string>& command,
                         const std::vector<std::string>& environment = {});

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);
std::string Sha256(const std::string& bytes);  // 32 raw bytes
// A code object that the build compiled for gfx90a: kernels "add_one" and
// "lds_sum".
std::string CodeObject();
// One for gfx1030 whose kernel "gather" has four loads in a clause.
std::string ClauseObject();

// rjdbid, as installed, in a folder of its own.
class Daemon {
 public:
  explicit Daemon(const std::string& config = "");
  ~Daemon();  // SIGKILL, if it still runs

  // False: it ended instead of becoming ready.
  bool Start(const std::vector<std::string>& extra = {});
  int Stop(int signal = 15);  // exit code, 128 + signal
  pid_t pid() const { return pid_; }
  std::string agent_socket() const { return folder_.path() + "/agent.sock"; }
  std::string control_socket() const { return folder_.path() + "/control.sock"; }
  std::string state() const { return folder_.path() + "/state"; }
  std::string config_file() const { return folder_.path() + "/rjdbid.yaml"; }
  std::string log() const { return ReadFile(folder_.path() + "/log"); }

  // Over the control socket.
  v1::GetStatusReply Status();
  v1::GetReportReply Report(bool include_detached = false);
  v1::GetRecordsReply Records(const v1::GetRecordsRequest& request = {});
  v1::WhyNotAttachedReply WhyNot(const std::string& kernel, bool include_detached = false);
  v1::AttachReply Attach(const std::string& kernel, const std::string& sites,
                         const std::string& probe, bool allow_sabotage = false);
  v1::AttachReply Attach(const v1::AttachmentSpec& spec);
  absl::Status Detach(const std::string& id);
  std::vector<std::string> CacheFiles(const std::string& prefix) const;

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
};

// A record of trace-exec, as a wavefront writes it.
std::string ExecRecord(uint32_t site, uint64_t exec, uint32_t workgroup = 0, uint32_t wave = 0);

// One connection and session of a process.
class Agent {
 public:
  explicit Agent(const std::string& socket);
  ~Agent();

  absl::Status Open(uint32_t pid);
  absl::Status Open();  // with our own pid
  absl::Status Close();

  struct Answer {
    absl::Status status;
    v1::AdmitDecision decision;
    std::string image;  // patched
    uint64_t sent = 0;  // bytes of the object that were asked for
  };
  // `header` may lie about `bytes`; `stall` sends the first chunk only, and waits.
  Answer Admit(const v1::ObjectHeader& header, const std::string& bytes, bool stall = false);
  Answer Admit(const std::string& bytes, uint64_t load_id = 1);
  v1::ObjectHeader HeaderFor(const std::string& bytes, uint64_t load_id = 1) const;
  absl::Status Report(const v1::ReportRequest& request);
  // Waits as long as the daemon lets it. `seen`: what this process has in place.
  absl::Status Watch(uint64_t seen, uint32_t max_wait_ms, v1::WatchReply* reply);
  // Sends a header and, when asked for, half of the bytes; leaves the call open.
  void BeginAdmission(const std::string& bytes);

  bool follows = false;  // what Open says
  std::string session_id;
  uint32_t report_interval_ms = 0;

 private:
  struct Connection;
  std::unique_ptr<Connection> connection_;
};

// Polls until true, 20 s at most.
bool Eventually(const std::function<bool()>& condition);

}  // namespace rjdbi::tests

#endif  // TESTS_DAEMON_HARNESS_H_
