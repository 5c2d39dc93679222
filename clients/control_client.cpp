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
constexpr std::chrono::seconds kDeadline{120};
constexpr int kMaxReplyBytes = 512 << 20;

// gRPC's own words about a socket are of no help: what the socket itself says.
std::string WhyUnreachable(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return "its path is too long for a socket";
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  close(fd);
  if (connected) return "the connection was lost";
  if (error == ENOENT) return "there is no such socket";
  if (error == ECONNREFUSED) return "nothing listens there";
  return absl::AsciiStrToLower(std::strerror(error));
}

absl::Status ToAbsl(const grpc::Status& status, const std::string& path) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("no rjdbid answers on ", path, ": ", WhyUnreachable(path)));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("rjdbid on ", path, " did not answer within ", kDeadline.count(), " s"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

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
#define RJDBI_CONTROL_METHOD(Method)                                                  \
  absl::Status ControlClient::Method(const v1::Method##Request& request,              \
                                     v1::Method##Reply& reply) {                      \
    grpc::ClientContext context;                                                      \
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);               \
    const grpc::Status status = connection_->stub->Method(&context, request, &reply); \
    return status.ok() ? absl::OkStatus() : ToAbsl(status, socket_path_);             \
  }
RJDBI_CONTROL_METHOD(Attach)
RJDBI_CONTROL_METHOD(Detach)
RJDBI_CONTROL_METHOD(GetStatus)
RJDBI_CONTROL_METHOD(ListCodeObjects)
RJDBI_CONTROL_METHOD(ListKernels)
RJDBI_CONTROL_METHOD(ListSites)
RJDBI_CONTROL_METHOD(WhyNotAttached)
RJDBI_CONTROL_METHOD(GetCoverage)
RJDBI_CONTROL_METHOD(GetReport)
RJDBI_CONTROL_METHOD(GetRecords)
#undef RJDBI_CONTROL_METHOD

}  // namespace rjdbi::clients
