// The agents' service. Its peers are untrusted: every size is bounded, every
// hash checked, every wait limited.
#ifndef DAEMON_ADMISSION_SERVICE_H_
#define DAEMON_ADMISSION_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "daemon/daemon_state.h"
#include "rjdbi/v1/admission.grpc.pb.h"

namespace rjdbi::daemon {

// Admit and Watch are asynchronous (no thread waits for an agent); the rest is short.
class AdmissionService final
    : public v1::Admission::WithCallbackMethod_Admit<
          v1::Admission::WithCallbackMethod_Watch<v1::Admission::Service>> {
 public:
  explicit AdmissionService(DaemonState& state) : state_(state) {}

  grpc::Status OpenSession(grpc::ServerContext* context, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override;
  grpc::ServerBidiReactor<v1::AdmitRequest, v1::AdmitReply>* Admit(
      grpc::CallbackServerContext* context) override;
  grpc::Status Report(grpc::ServerContext* context, const v1::ReportRequest* request,
                      v1::ReportReply* reply) override;
  grpc::ServerUnaryReactor* Watch(grpc::CallbackServerContext* context,
                                  const v1::WatchRequest* request, v1::WatchReply* reply) override;
  grpc::Status CloseSession(grpc::ServerContext* context, const v1::CloseSessionRequest* request,
                            v1::CloseSessionReply* reply) override;

 private:
  DaemonState& state_;
};

grpc::Status ToGrpc(const absl::Status& status);

}  // namespace rjdbi::daemon

#endif  // DAEMON_ADMISSION_SERVICE_H_
