#include "clients/control_client.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "rjdbi/v1/control.grpc.pb.h"

namespace rjdbi::clients {
namespace {

// Listings of large libraries disassemble every kernel.
constexpr std::chrono::seconds kPatience{20}, kListingPatience{120};
constexpr int kMaxReplyBytes = 512 << 20;

constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

// gRPC's own words about a socket are of no help: what the socket itself says.
absl::Status Unreachable(const std::string& path) {
  const auto status = [&](const std::string& why, const std::string& help) {
    absl::Status s = absl::UnavailableError(absl::StrCat("no rjdbid answers on ", path, ": ", why));
    if (!help.empty()) s.SetPayload(kHelpPayload, absl::Cord(help));
    return s;
  };
  if (path.size() > kLongestPath) {
    return status("its path is too long for a socket", "name another with --socket");
  }
  switch (TryConnect(path)) {
    case 0:
      return status("it takes connections, but did not answer, or went away",
                    "see rjdbid's log (journalctl -u rjdbid), then restart it");
    case EAGAIN:
      return status("it does not take connections any more, and its queue is full",
                    "see rjdbid's log (journalctl -u rjdbid), then restart it");
    case ENOENT:
      return status("there is no such socket", "");
    case ECONNREFUSED:
      return status("nothing listens there", "");
    case EACCES:
      return status("permission denied",
                    "run rjctl as root, or as a member of the group that the socket belongs to");
    default:
      return status(absl::AsciiStrToLower(std::strerror(errno)), "");
  }
}

absl::Status ToAbsl(const grpc::Status& status, const std::string& path,
                    std::chrono::seconds patience) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return Unreachable(path);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("rjdbid on ", path, " did not answer within ", patience.count(), " s"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

// Not blocking: a full queue would hold us for as long as nobody takes from it.
int TryConnect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > kLongestPath) return errno = ENAMETOOLONG;
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(fd);
  return errno = result == 0 ? 0 : error;
}

struct ControlClient::Connection {
  std::unique_ptr<v1::Control::Stub> stub;
};

ControlClient::ControlClient(std::string socket_path)
    : socket_path_(std::move(socket_path)), connection_(std::make_unique<Connection>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  // The proxy settings of the environment are not about unix sockets.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  connection_->stub = v1::Control::NewStub(grpc::CreateCustomChannel(
      absl::StrCat("unix:", socket_path_), grpc::InsecureChannelCredentials(), arguments));
}

ControlClient::~ControlClient() = default;

// Every method is the same call with other types.
#define RJDBI_CONTROL_METHOD(Method, patience)                                        \
  absl::Status ControlClient::Method(const v1::Method##Request& request,              \
                                     v1::Method##Reply& reply) {                      \
    if (socket_path_.size() > kLongestPath) return Unreachable(socket_path_);         \
    grpc::ClientContext context;                                                      \
    context.set_deadline(std::chrono::system_clock::now() + (patience));              \
    const grpc::Status status = connection_->stub->Method(&context, request, &reply); \
    return status.ok() ? absl::OkStatus() : ToAbsl(status, socket_path_, patience);   \
  }
RJDBI_CONTROL_METHOD(Attach, kPatience)
RJDBI_CONTROL_METHOD(Detach, kPatience)
RJDBI_CONTROL_METHOD(GetStatus, kPatience)
RJDBI_CONTROL_METHOD(ListCodeObjects, kPatience)
RJDBI_CONTROL_METHOD(ListKernels, kListingPatience)
RJDBI_CONTROL_METHOD(ListSites, kListingPatience)
RJDBI_CONTROL_METHOD(WhyNotAttached, kPatience)
RJDBI_CONTROL_METHOD(GetCoverage, kPatience)
RJDBI_CONTROL_METHOD(GetReport, kPatience)
RJDBI_CONTROL_METHOD(GetRecords, kPatience)
#undef RJDBI_CONTROL_METHOD

}  // namespace rjdbi::clients
