// The C++ client of rjdbid's control service: one call per method, errors as
// absl::Status. UNAVAILABLE means that no daemon answered.
#ifndef CLIENTS_CONTROL_CLIENT_H_
#define CLIENTS_CONTROL_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// Payload of a status: what a person can do about it, one line.
inline constexpr char kHelpPayload[] = "rjdbi/help";

// Whether somebody listens on a unix socket: 0, or an errno (EAGAIN: its queue is full).
int TryConnect(const std::string& path);

class ControlClient {
 public:
  explicit ControlClient(std::string socket_path);
  ~ControlClient();

  absl::Status Attach(const v1::AttachRequest& request, v1::AttachReply& reply);
  absl::Status Detach(const v1::DetachRequest& request, v1::DetachReply& reply);
  absl::Status GetStatus(const v1::GetStatusRequest& request, v1::GetStatusReply& reply);
  absl::Status ListCodeObjects(const v1::ListCodeObjectsRequest& request,
                               v1::ListCodeObjectsReply& reply);
  absl::Status ListKernels(const v1::ListKernelsRequest& request, v1::ListKernelsReply& reply);
  absl::Status ListSites(const v1::ListSitesRequest& request, v1::ListSitesReply& reply);
  absl::Status WhyNotAttached(const v1::WhyNotAttachedRequest& request,
                              v1::WhyNotAttachedReply& reply);
  absl::Status GetCoverage(const v1::GetCoverageRequest& request, v1::GetCoverageReply& reply);
  absl::Status GetReport(const v1::GetReportRequest& request, v1::GetReportReply& reply);
  absl::Status GetRecords(const v1::GetRecordsRequest& request, v1::GetRecordsReply& reply);

 private:
  struct Connection;
  const std::string socket_path_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace rjdbi::clients

#endif  // CLIENTS_CONTROL_CLIENT_H_
