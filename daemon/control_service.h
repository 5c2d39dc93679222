// The operators' service. Queries are answered from the ledger; those that need
// a disassembler read stored objects.
#ifndef DAEMON_CONTROL_SERVICE_H_
#define DAEMON_CONTROL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/daemon_state.h"
#include "daemon/gpu_inventory.h"
#include "rjdbi/v1/control.grpc.pb.h"

namespace rjdbi::daemon {

// Open sessions, in hex, that follow attachments: whether they have the newest ones.
using LiveSessions = std::map<std::string, std::pair<SessionInfo, v1::LiveState>>;

class ControlService final : public v1::Control::Service {
 public:
  ControlService(DaemonState& state, GpuInventory gpus, std::string version);

  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest*, v1::AttachReply*) override;
  grpc::Status Detach(grpc::ServerContext*, const v1::DetachRequest*, v1::DetachReply*) override;
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusReply*) override;
  grpc::Status ListCodeObjects(grpc::ServerContext*, const v1::ListCodeObjectsRequest*,
                               v1::ListCodeObjectsReply*) override;
  grpc::Status ListKernels(grpc::ServerContext*, const v1::ListKernelsRequest*,
                           v1::ListKernelsReply*) override;
  grpc::Status ListSites(grpc::ServerContext*, const v1::ListSitesRequest*,
                         v1::ListSitesReply*) override;
  grpc::Status WhyNotAttached(grpc::ServerContext*, const v1::WhyNotAttachedRequest*,
                              v1::WhyNotAttachedReply*) override;
  grpc::Status GetCoverage(grpc::ServerContext*, const v1::GetCoverageRequest*,
                           v1::GetCoverageReply*) override;
  grpc::Status GetReport(grpc::ServerContext*, const v1::GetReportRequest*,
                         v1::GetReportReply*) override;
  grpc::Status GetRecords(grpc::ServerContext*, const v1::GetRecordsRequest*,
                          v1::GetRecordsReply*) override;

 private:
  LiveSessions LiveStates() const;
  // Request: GetCoverageRequest or GetReportRequest, whose filters are the same. `live` is
  // of before the view: what a process has taken over by then is in it.
  template <typename Request>
  void FillCoverage(const Request& request, const LiveSessions& live, const LedgerView& view,
                    v1::GetCoverageReply& reply) const;
  template <typename Request>
  absl::Status CheckNames(const Request& request) const;
  bool AttachmentKnown(const std::string& id) const;
  // Whether an object that a process has loaded has such a kernel.
  bool KernelKnown(const std::string& glob) const;
  bool HasKernel(const std::string& sha256, const std::string& glob) const;
  std::vector<std::string> KernelNames() const;  // of all objects that were seen
  void ShowPlaces(const std::string& sha256, const std::vector<int>& decisions,
                  v1::WhyNotAttachedReply& reply) const;
  std::vector<v1::Violation> NoSuchPlace(const v1::WhyNotAttachedRequest& request) const;
  v1::Violation WhyNothing(const v1::WhyNotAttachedRequest& request, bool selector_missed,
                           bool known) const;
  uint32_t PatchedAtLoadFor(const std::string& attachment) const;
  // Hashes of stored objects that start with `prefix`.
  std::vector<std::string> StoredObjects(const std::string& prefix) const;

  DaemonState& state_;
  const GpuInventory gpus_;
  const std::string version_;
  const int64_t started_unix_ns_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_CONTROL_SERVICE_H_
