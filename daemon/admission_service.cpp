#include "daemon/admission_service.h"

#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "daemon/admit_stream.h"

namespace rjdbi::daemon {
namespace {

const PeerIdentity kNobody = {-1, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

grpc::Status AdmissionService::OpenSession(grpc::ServerContext* context,
                                           const v1::OpenSessionRequest* request,
                                           v1::OpenSessionReply* reply) {
  const std::optional<PeerIdentity> peer = state_.peers.Find(context->peer());
  if (!peer.has_value()) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "the connection has no known peer");
  }
  if (peer->pid != 0 && !PidClaimHolds(peer->pid, request->pid())) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        absl::StrCat("pid ", request->pid(), " is not the peer's (", peer->pid,
                                     "); a process opens its own connection"));
  }
  const absl::StatusOr<SessionInfo> session = state_.ledger.Open(*peer, *request);
  if (!session.ok()) return ToGrpc(session.status());
  state_.processes.Watch(session->id, session->pid);
  reply->set_session_id(session->id);
  reply->set_report_interval_ms(state_.config()->report_interval_ms);
  reply->set_max_code_object_bytes(state_.config()->policy.max_code_object_bytes);
  spdlog::info("session opened: pid {} uid {} {} (agent {}, {})", peer->pid, peer->uid,
               session->executable, request->agent_version(), request->loaded_through());
  return grpc::Status::OK;
}

grpc::ServerBidiReactor<v1::AdmitRequest, v1::AdmitReply>* AdmissionService::Admit(
    grpc::CallbackServerContext* context) {
  return AdmitStream::Start(state_, state_.peers.Find(context->peer()).value_or(kNobody));
}

grpc::Status AdmissionService::Report(grpc::ServerContext* context,
                                      const v1::ReportRequest* request, v1::ReportReply*) {
  const PeerIdentity peer = state_.peers.Find(context->peer()).value_or(kNobody);
  for (const v1::RecordBatch& batch : request->batches()) {
    const absl::StatusOr<OriginPtr> origin =
        state_.ledger.OriginOf(request->session_id(), peer, batch);
    if (!origin.ok()) return ToGrpc(origin.status());
    if (*origin != nullptr) state_.records.Add(*origin, batch, UnixNanos());
  }
  return ToGrpc(state_.ledger.Report(*request, peer));
}

grpc::ServerUnaryReactor* AdmissionService::Watch(grpc::CallbackServerContext* context,
                                                  const v1::WatchRequest* request,
                                                  v1::WatchReply* reply) {
  const PeerIdentity peer = state_.peers.Find(context->peer()).value_or(kNobody);
  const absl::StatusOr<SessionInfo> session = state_.ledger.Find(request->session_id(), peer);
  if (!session.ok()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(session.status()));
    return reactor;
  }
  state_.ledger.NoteInPlace(session->id, request->seen());
  return state_.watches->Watch(*session, *request, reply);
}

grpc::Status AdmissionService::CloseSession(grpc::ServerContext* context,
                                            const v1::CloseSessionRequest* request,
                                            v1::CloseSessionReply*) {
  const PeerIdentity peer = state_.peers.Find(context->peer()).value_or(kNobody);
  const absl::StatusOr<SessionInfo> session = state_.ledger.Find(request->session_id(), peer);
  if (!session.ok()) return ToGrpc(session.status());
  state_.ledger.Close(session->id, true);
  state_.processes.Forget(session->id);
  spdlog::info("session closed: pid {} {}", session->pid, session->executable);
  return grpc::Status::OK;
}

}  // namespace rjdbi::daemon
