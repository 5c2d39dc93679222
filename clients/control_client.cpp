#include "clients/control_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "rjdbi/v1/control.grpc.pb.h"

namespace rjdbi::clients {
namespace {

// Listings of large libraries disassemble every kernel.
constexpr std::chrono::seconds kDeadline{120};
constexpr int kMaxReplyBytes = 512 << 20;

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
#define RJDBI_CONTROL_METHOD(Method)                                                          \
  absl::Status ControlClient::Method(const v1::Method##Request& request,                      \
                                     v1::Method##Reply& reply) {                              \
    grpc::ClientContext context;                                                              \
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);                       \
    const grpc::Status status = connection_->stub->Method(&context, request, &reply);         \
    if (status.ok()) return absl::OkStatus();                                                 \
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {                               \
      return absl::UnavailableError(                                                          \
          absl::StrCat("no rjdbid answers on ", socket_path_, ": ", status.error_message())); \
    }                                                                                         \
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),                   \
                        status.error_message());                                              \
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
#undef RJDBI_CONTROL_METHOD

}  // namespace rjdbi::clients
