// One Admit call: header, perhaps bytes, decision, perhaps the patched image.
//
//   header ──▶ lookup ──▶ answer ──▶ chunks ──▶ end
//                 └─▶ gate ─▶ receiving ─▶ verify, decide ─▶ answer ...
//
// Steps come from gRPC's threads, the pools and the watchdog; the mutex orders
// them, and nothing is started once Finish has been called.
#ifndef DAEMON_ADMIT_STREAM_H_
#define DAEMON_ADMIT_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/daemon_state.h"
#include "rjdbi/v1/admission.grpc.pb.h"

namespace rjdbi::daemon {

class AdmitStream final : public grpc::ServerBidiReactor<v1::AdmitRequest, v1::AdmitReply>,
                          public Timed,
                          public std::enable_shared_from_this<AdmitStream> {
 public:
  // The stream owns itself until gRPC is done with it.
  static AdmitStream* Start(DaemonState& state, const PeerIdentity& peer);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void CheckTime(std::chrono::steady_clock::time_point now) override;

 private:
  enum class Phase { kHeader, kLookup, kGate, kReceiving, kDeciding, kAnswering, kFinished };
  using Clock = std::chrono::steady_clock;

  AdmitStream(DaemonState& state, const PeerIdentity& peer)
      : state_(state), peer_(peer), config_(state.config()), progress_(Clock::now()) {}

  // All with mutex_ held.
  void TakeHeader();
  void TakeChunk(bool ok);
  void AskForBytes();
  void Verify();
  void AnswerWith(DecisionPtr decision);
  void WriteDecision();
  void FillDecision(const Decision& decision, v1::AdmitDecision& out) const;
  void AddRestores(v1::AdmitDecision& out) const;
  void SendChunk();
  void Write();  // reply_, once the previous write is done
  void Fail(grpc::StatusCode code, const std::string& message);
  void End(const grpc::Status& status);

  void OnLookedUp(absl::StatusOr<DecisionPtr> answer);
  void OnGranted(std::shared_ptr<void> grant);
  void OnDecided(absl::StatusOr<DecisionPtr> answer);

  DaemonState& state_;
  const PeerIdentity peer_;
  const std::shared_ptr<const Config> config_;
  std::shared_ptr<AdmitStream> self_;

  // Recursive: a pool that has stopped answers at once, in the asking thread.
  std::recursive_mutex mutex_;
  Phase phase_ = Phase::kHeader;
  Clock::time_point progress_;  // last step of the agent's
  Clock::time_point upload_start_;
  v1::AdmitRequest request_;
  v1::AdmitReply reply_;
  v1::ObjectHeader header_;
  contract::Policy policy_;
  uint64_t generation_ = 0;  // of the attachments in the question
  std::shared_ptr<const Question> question_;
  std::string received_;
  std::shared_ptr<void> grant_;
  DecisionPtr decision_;
  size_t sent_ = 0;
  bool writing_ = false;
  bool answer_waits_ = false;  // for need_bytes to be written
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_ADMIT_STREAM_H_
