#include "tests/daemon/harness.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "proto/rjdbi/telemetry_ring.h"
#include "rjdbi/v1/admission.grpc.pb.h"
#include "rjdbi/v1/control.grpc.pb.h"

extern char** environ;

namespace rjdbi::tests {
namespace {

constexpr size_t kChunk = 256 << 10;

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(std::vector<std::string> command, const std::vector<std::string>& environment,
            const std::string& out, const std::string& err) {
  std::vector<std::string> env;
  for (char** e = environ; *e != nullptr; ++e) env.emplace_back(*e);
  env.insert(env.end(), environment.begin(), environment.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, command[0].c_str(), &actions, nullptr,
                                Pointers(command).data(), Pointers(env).data());
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// -1: still running after `timeout`.
int WaitFor(pid_t pid, std::chrono::seconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  int status = 0;
  while (std::chrono::steady_clock::now() < end) {
    if (waitpid(pid, &status, WNOHANG) == pid) return ExitCode(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

std::shared_ptr<grpc::Channel> Channel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection per object
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

}  // namespace

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 400; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return condition();
}

TemporaryFolder::TemporaryFolder() {
  char name[] = "/tmp/rjdbi-test-XXXXXX";
  path_ = mkdtemp(name);
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string Sha256(const std::string& bytes) {
  std::string digest(32, '\0');
  EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr,
             EVP_sha256(), nullptr);
  return digest;
}

std::string CodeObject() { return ReadFile(RJDBI_TEST_CODE_OBJECT); }
std::string ClauseObject() { return ReadFile(RJDBI_TEST_CLAUSE_OBJECT); }

ProgramResult RunProgram(const std::vector<std::string>& command,
                         const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out", err = folder.path() + "/err";
  const pid_t pid = Spawn(command, environment, out, err);
  ProgramResult result;
  if (pid < 0) return result;
  result.exit_code = WaitFor(pid, std::chrono::seconds(60));
  if (result.exit_code < 0) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  result.out = ReadFile(out);
  result.err = ReadFile(err);
  return result;
}

Daemon::Daemon(const std::string& config) {
  // A loaded machine is not a stalled uploader.
  WriteFile(config_file(), config.empty()
                               ? "report_interval_ms: 100\nlimits: {upload_stall_ms: 30000}\n"
                               : config);
}

Daemon::~Daemon() {
  if (pid_ > 0) Stop(SIGKILL);
}

std::string ExecRecord(uint32_t site, uint64_t exec, uint32_t workgroup, uint32_t wave) {
  constexpr uint32_t kBytes = 32;
  const rjdbi_record_header header = {
      exec, 0,
      uint32_t{RJDBI_RECORD_EXEC} << RJDBI_RECORD_KIND_SHIFT |
          kBytes / RJDBI_RECORD_ALIGNMENT << RJDBI_RECORD_SIZE_SHIFT | site};
  const uint32_t own[4] = {workgroup, 0, 0, wave};
  std::string record(kBytes, '\0');
  std::memcpy(record.data(), &header, sizeof header);
  std::memcpy(record.data() + sizeof header, own, sizeof own);
  return record;
}

bool Daemon::Start(const std::vector<std::string>& extra) {
  std::vector<std::string> command = {RJDBI_RJDBID,     "--config",     config_file(),
                                      "--agent-socket", agent_socket(), "--control-socket",
                                      control_socket(), "--state-dir",  state()};
  command.insert(command.end(), extra.begin(), extra.end());
  const std::string log = folder_.path() + "/log";
  std::filesystem::remove(log);
  pid_ = Spawn(command, {}, log, log);
  bool ended = false;
  const bool ready = Eventually([&] {
    ended = waitpid(pid_, nullptr, WNOHANG) == pid_;
    return ended || this->log().find("is ready") != std::string::npos;
  });
  if (ended) pid_ = -1;
  return ready && !ended;
}

int Daemon::Stop(int signal) {
  kill(pid_, signal);
  int code = WaitFor(pid_, std::chrono::seconds(30));
  if (code < 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  return code;
}

v1::GetStatusReply Daemon::Status() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetStatusReply reply;
  v1::Control::NewStub(Channel(control_socket()))->GetStatus(&context, {}, &reply);
  return reply;
}

v1::GetReportReply Daemon::Report(bool include_detached) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetReportRequest request;
  request.set_include_detached(include_detached);
  v1::GetReportReply reply;
  v1::Control::NewStub(Channel(control_socket()))->GetReport(&context, request, &reply);
  return reply;
}

v1::GetRecordsReply Daemon::Records(const v1::GetRecordsRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetRecordsReply reply;
  v1::Control::NewStub(Channel(control_socket()))->GetRecords(&context, request, &reply);
  return reply;
}

v1::WhyNotAttachedReply Daemon::WhyNot(const std::string& kernel, bool include_detached) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WhyNotAttachedRequest request;
  request.set_kernel_glob(kernel);
  request.set_include_detached(include_detached);
  v1::WhyNotAttachedReply reply;
  v1::Control::NewStub(Channel(control_socket()))->WhyNotAttached(&context, request, &reply);
  return reply;
}

v1::AttachReply Daemon::Attach(const std::string& kernel, const std::string& sites,
                               const std::string& probe, bool allow_sabotage) {
  v1::AttachmentSpec spec;
  spec.set_kernel_glob(kernel);
  spec.set_sites(sites);
  spec.set_probe(probe);
  spec.set_allow_sabotage(allow_sabotage);
  return Attach(spec);
}

v1::AttachReply Daemon::Attach(const v1::AttachmentSpec& spec) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::AttachRequest request;
  *request.mutable_spec() = spec;
  v1::AttachReply reply;
  v1::Control::NewStub(Channel(control_socket()))->Attach(&context, request, &reply);
  return reply;
}

absl::Status Daemon::Detach(const std::string& id) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::DetachRequest request;
  request.set_attachment_id(id);
  v1::DetachReply reply;
  return ToAbsl(v1::Control::NewStub(Channel(control_socket()))->Detach(&context, request, &reply));
}

std::vector<std::string> Daemon::CacheFiles(const std::string& prefix) const {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(state() + "/cache")) {
    if (entry.path().filename().string().rfind(prefix, 0) == 0) files.push_back(entry.path());
  }
  return files;
}

struct Agent::Connection {
  std::unique_ptr<v1::Admission::Stub> stub;
  // Of an admission that is left open.
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AdmitRequest, v1::AdmitReply>> stream;
};

Agent::Agent(const std::string& socket) : connection_(std::make_unique<Connection>()) {
  connection_->stub = v1::Admission::NewStub(Channel(socket));
}

Agent::~Agent() {
  if (connection_->stream == nullptr) return;
  connection_->context->TryCancel();
  connection_->stream->Finish();
}

absl::Status Agent::Open() { return Open(static_cast<uint32_t>(getpid())); }

absl::Status Agent::Open(uint32_t pid) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::OpenSessionRequest request;
  request.set_pid(pid);
  request.set_executable("/opt/test/program");
  request.set_agent_version("test");
  request.set_follows(follows);
  v1::OpenSessionReply reply;
  const grpc::Status status = connection_->stub->OpenSession(&context, request, &reply);
  session_id = reply.session_id();
  report_interval_ms = reply.report_interval_ms();
  return ToAbsl(status);
}

absl::Status Agent::Close() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::CloseSessionRequest request;
  request.set_session_id(session_id);
  v1::CloseSessionReply reply;
  return ToAbsl(connection_->stub->CloseSession(&context, request, &reply));
}

v1::ObjectHeader Agent::HeaderFor(const std::string& bytes, uint64_t load_id) const {
  v1::ObjectHeader header;
  header.set_session_id(session_id);
  header.set_sha256(Sha256(bytes));
  header.set_size(bytes.size());
  header.set_origin("memory://");
  header.set_load_id(load_id);
  header.set_agent_isa("amdgcn-amd-amdhsa--gfx90a");
  return header;
}

Agent::Answer Agent::Admit(const std::string& bytes, uint64_t load_id) {
  return Admit(HeaderFor(bytes, load_id), bytes);
}

Agent::Answer Agent::Admit(const v1::ObjectHeader& header, const std::string& bytes, bool stall) {
  grpc::ClientContext context;
  SetDeadline(context);
  Answer answer;
  const auto stream = connection_->stub->Admit(&context);
  v1::AdmitRequest request;
  *request.mutable_header() = header;
  stream->Write(request);
  v1::AdmitReply reply;
  while (stream->Read(&reply)) {
    switch (reply.kind_case()) {
      case v1::AdmitReply::kNeedBytes: {
        bool going = true;
        for (size_t at = 0; at < bytes.size() && going; at += kChunk) {
          request.set_chunk(bytes.substr(at, stall ? 16 : kChunk));
          going = stream->Write(request);
          answer.sent += going ? request.chunk().size() : 0;
          if (stall) break;
        }
        if (!stall) stream->WritesDone();
        break;
      }
      case v1::AdmitReply::kDecision:
        answer.decision = reply.decision();
        break;
      case v1::AdmitReply::kChunk:
        answer.image += reply.chunk();
        break;
      case v1::AdmitReply::KIND_NOT_SET:
        break;
    }
  }
  answer.status = ToAbsl(stream->Finish());
  return answer;
}

void Agent::BeginAdmission(const std::string& bytes) {
  connection_->context = std::make_unique<grpc::ClientContext>();
  connection_->stream = connection_->stub->Admit(connection_->context.get());
  v1::AdmitRequest request;
  *request.mutable_header() = HeaderFor(bytes);
  connection_->stream->Write(request);
  v1::AdmitReply reply;
  if (!connection_->stream->Read(&reply) || !reply.has_need_bytes()) return;
  request.set_chunk(bytes.substr(0, bytes.size() / 2));
  connection_->stream->Write(request);
}

absl::Status Agent::Watch(uint64_t seen, uint32_t max_wait_ms, v1::WatchReply* reply) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::WatchRequest request;
  request.set_session_id(session_id);
  request.set_seen(seen);
  request.set_max_wait_ms(max_wait_ms);
  return ToAbsl(connection_->stub->Watch(&context, request, reply));
}

absl::Status Agent::Report(const v1::ReportRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ReportReply reply;
  return ToAbsl(connection_->stub->Report(&context, request, &reply));
}

}  // namespace rjdbi::tests
