#include "daemon/admit_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "contract/catalogue.h"
#include "contract/decisions.h"
#include "daemon/digest.h"
#include "daemon/original_kernels.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::daemon {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

DecisionPtr TooLarge(const v1::ObjectHeader& header, uint64_t limit) {
  auto decision = std::make_shared<Decision>();
  decision->record.set_code_object_sha256(Hex(header.sha256()));
  decision->record.set_size(header.size());
  decision->record.set_engine_version(contract::EngineVersion());
  *decision->record.add_object_violations() =
      contract::MakeViolation(contract::id::kObjectTooLarge, absl::StrCat(header.size(), " bytes"),
                              absl::StrCat(limit, " bytes"));
  return decision;
}

v1::FixupKind KindOf(const patch::WordFixup& fixup) {
  if (fixup.base == patch::FixupBase::kOriginal) {
    return fixup.high_half ? v1::ORIGINAL_ADDRESS_HI32 : v1::ORIGINAL_ADDRESS_LO32;
  }
  return fixup.high_half ? v1::COUNTER_ADDRESS_HI32 : v1::COUNTER_ADDRESS_LO32;
}

void FillRingShape(const v1::AdmissionRecord& record, v1::AdmitDecision& out) {
  uint64_t sizes = 0;
  uint32_t sites = 0;
  for (const contract::DecisionGroup& group : contract::DecisionGroups(record)) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (!group.has_record_layout(i)) continue;
      const v1::RecordLayout layout = group.RecordLayout(i);
      const uint32_t units = layout.bytes() / RJDBI_RECORD_ALIGNMENT;
      if (units < 64) sizes |= uint64_t{1} << units;
      sites = std::max(sites, layout.site() + 1);
    }
  }
  out.set_ring_record_sizes(sizes);
  out.set_ring_sites(sites);
}

}  // namespace

AdmitStream* AdmitStream::Start(DaemonState& state, const PeerIdentity& peer) {
  std::shared_ptr<AdmitStream> stream(new AdmitStream(state, peer));
  stream->self_ = stream;
  state.watchdog.Add(stream);
  stream->StartRead(&stream->request_);
  return stream.get();
}

void AdmitStream::OnDone() {
  std::shared_ptr<AdmitStream> last;  // outlives the lock
  const std::lock_guard lock(mutex_);
  last = std::move(self_);
}

void AdmitStream::End(const grpc::Status& status) {
  if (phase_ == Phase::kFinished) return;
  phase_ = Phase::kFinished;
  received_.clear();
  received_.shrink_to_fit();
  grant_.reset();
  Finish(status);
}

void AdmitStream::Fail(grpc::StatusCode code, const std::string& message) {
  if (phase_ == Phase::kFinished) return;
  spdlog::warn("admission of pid {} failed: {}", peer_.pid, message);
  End(grpc::Status(code, message));
}

void AdmitStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  End(grpc::Status::CANCELLED);
}

void AdmitStream::CheckTime(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto stall = std::chrono::milliseconds(config_->upload_stall_ms);
  const auto total = std::chrono::milliseconds(config_->upload_timeout_ms);
  const bool waiting_for_agent =
      phase_ == Phase::kHeader || phase_ == Phase::kReceiving || phase_ == Phase::kAnswering;
  if (waiting_for_agent && now - progress_ > stall) {
    Fail(grpc::StatusCode::DEADLINE_EXCEEDED,
         absl::StrCat("no progress for ", config_->upload_stall_ms, " ms"));
  } else if (phase_ == Phase::kReceiving && now - upload_start_ > total) {
    Fail(grpc::StatusCode::DEADLINE_EXCEEDED,
         absl::StrCat("the upload took longer than ", config_->upload_timeout_ms, " ms"));
  } else if (phase_ == Phase::kGate && now - progress_ > total) {
    Fail(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many uploads at the same time");
  }
}

void AdmitStream::OnReadDone(bool ok) {
  const std::lock_guard lock(mutex_);
  progress_ = Clock::now();
  if (phase_ == Phase::kHeader) {
    if (!ok) return Fail(grpc::StatusCode::INVALID_ARGUMENT, "the stream ended before a header");
    return TakeHeader();
  }
  if (phase_ == Phase::kReceiving) TakeChunk(ok);
}

void AdmitStream::TakeHeader() {
  if (request_.kind_case() != v1::AdmitRequest::kHeader) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT, "the first message must be a header");
  }
  header_ = std::move(*request_.mutable_header());
  if (header_.sha256().size() != 32) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT, "sha256 must have 32 bytes");
  }
  const absl::StatusOr<SessionInfo> session = state_.ledger.Find(header_.session_id(), peer_);
  if (!session.ok()) {
    return Fail(grpc::StatusCode::NOT_FOUND, std::string(session.status().message()));
  }
  const auto matching = state_.attachments.Matching(session->executable, session->pid);
  generation_ = Generation(matching, config_->policy);
  if (matching.empty()) return AnswerWith(nullptr);
  policy_ = config_->policy;
  policy_.beside = header_.beside();
  auto question = std::make_shared<Question>(Question::Make(header_.sha256(), matching));
  question_ = question;
  if (header_.size() > config_->policy.max_code_object_bytes) {
    return AnswerWith(TooLarge(header_, config_->policy.max_code_object_bytes));
  }
  phase_ = Phase::kLookup;
  state_.decider.Lookup(std::move(question), policy_,
                        [self = shared_from_this()](absl::StatusOr<DecisionPtr> answer) {
                          self->OnLookedUp(std::move(answer));
                        });
}

void AdmitStream::OnLookedUp(absl::StatusOr<DecisionPtr> answer) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::kLookup) return;
    if (!answer.ok() || *answer != nullptr) {
      phase_ = Phase::kDeciding;
    } else {
      phase_ = Phase::kGate;
      progress_ = Clock::now();
    }
  }
  if (!answer.ok() || *answer != nullptr) return OnDecided(std::move(answer));
  // Not under the mutex: the grant may come at once, in this thread.
  state_.uploads.Acquire(header_.size(), [self = shared_from_this()](std::shared_ptr<void> grant) {
    self->OnGranted(std::move(grant));
  });
}

void AdmitStream::OnGranted(std::shared_ptr<void> grant) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kGate) return;  // too late: the grant goes back
  grant_ = std::move(grant);
  AskForBytes();
}

void AdmitStream::AskForBytes() {
  phase_ = Phase::kReceiving;
  progress_ = upload_start_ = Clock::now();
  reply_.mutable_need_bytes();
  Write();
  StartRead(&request_);
}

void AdmitStream::TakeChunk(bool ok) {
  if (!ok) return Verify();  // half-close
  if (request_.kind_case() != v1::AdmitRequest::kChunk) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT, "expected a chunk");
  }
  if (request_.chunk().size() > header_.size() - received_.size()) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT,
                absl::StrCat("more than the announced ", header_.size(), " bytes"));
  }
  // Grows with what arrives: an announced size alone reserves nothing.
  received_.append(request_.chunk());
  state_.ledger.AddUploaded(request_.chunk().size());
  StartRead(&request_);
}

void AdmitStream::Verify() {
  if (received_.size() != header_.size()) {
    return Fail(grpc::StatusCode::INVALID_ARGUMENT,
                absl::StrCat(received_.size(), " bytes received, ", header_.size(), " announced"));
  }
  phase_ = Phase::kDeciding;
  // The bytes carry their grant: it goes back when the last user lets go.
  auto owned = std::make_shared<std::pair<std::string, std::shared_ptr<void>>>(std::move(received_),
                                                                               std::move(grant_));
  Bytes object(owned, &owned->first);
  state_.decider.RunAside([self = shared_from_this(), object = std::move(object)](bool cancelled) {
    if (cancelled) return self->OnDecided(absl::UnavailableError("rjdbid is shutting down"));
    if (Sha256(*object) != self->header_.sha256()) {
      return self->OnDecided(
          absl::InvalidArgumentError("the bytes do not have the announced hash"));
    }
    self->state_.decider.Decide(
        self->question_, self->policy_, object,
        [self](absl::StatusOr<DecisionPtr> answer) { self->OnDecided(std::move(answer)); });
  });
}

void AdmitStream::OnDecided(absl::StatusOr<DecisionPtr> answer) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kDeciding) return;
  if (!answer.ok()) {
    return Fail(static_cast<grpc::StatusCode>(answer.status().code()),
                std::string(answer.status().message()));
  }
  AnswerWith(std::move(*answer));
}

void AdmitStream::AnswerWith(DecisionPtr decision) {
  const absl::Status recorded =
      state_.ledger.RecordLoad(header_.session_id(), header_, decision, question_);
  if (!recorded.ok()) {
    return Fail(static_cast<grpc::StatusCode>(recorded.code()), std::string(recorded.message()));
  }
  phase_ = Phase::kAnswering;
  progress_ = Clock::now();
  decision_ = std::move(decision);
  // An agent that sends without being asked can be faster than our request.
  answer_waits_ = writing_;
  if (!answer_waits_) WriteDecision();
}

void AdmitStream::Write() {
  writing_ = true;
  StartWrite(&reply_);
}

void AdmitStream::WriteDecision() {
  reply_.Clear();
  v1::AdmitDecision& out = *reply_.mutable_decision();
  out.set_generation(generation_);
  if (decision_ != nullptr) {
    FillDecision(*decision_, out);
  } else {
    out.set_verdict(v1::ORIGINAL_NOT_SELECTED);
    out.set_summary("original: no attachment wants this process");
  }
  if (header_.beside()) AddRestores(out);
  Write();
}

void AdmitStream::FillDecision(const Decision& decision, v1::AdmitDecision& out) const {
  out.set_verdict(decision.verdict());
  out.set_summary(Summarise(decision.record));
  if (decision.verdict() != v1::PATCHED) return;
  out.set_patched_size(decision.patched.size());
  out.set_patched_sha256(absl::HexStringToBytes(decision.record.patched_sha256()));
  out.set_counter_count(decision.record.counter_count());
  out.set_ring_offset(decision.record.ring_offset());
  out.set_ring_half_bytes(decision.record.ring_half_bytes());
  FillRingShape(decision.record, out);
  for (const patch::WordFixup& fixup : decision.fixups) {
    v1::Fixup* item = out.add_fixups();
    item->set_file_offset(fixup.offset);
    item->set_kind(KindOf(fixup));
    item->set_addend(fixup.addend);
  }
  for (const contract::KernelSwitch& kernel : decision.switches) {
    v1::KernelSwitch* item = out.add_kernel_switches();
    item->set_kernel(kernel.kernel);
    item->set_original_descriptor(kernel.original_descriptor);
    item->set_beside_descriptor(kernel.descriptor);
    item->set_private_segment_bytes(kernel.private_segment_bytes);
    item->set_group_segment_bytes(kernel.group_segment_bytes);
  }
}

// Without the original's bytes nothing is restored, and Detach says that such processes go
// on (ControlService::PatchedAtLoadFor).
void AdmitStream::AddRestores(v1::AdmitDecision& out) const {
  const DecisionPtr loaded =
      state_.ledger.DecisionOfLoad(header_.session_id(), header_.beside_load_id());
  if (loaded == nullptr || loaded->patched.empty()) return;
  const Bytes object = state_.decider.StoredObject(Hex(header_.sha256()));
  if (object == nullptr) return;
  static const std::vector<contract::KernelSwitch> kNone;
  for (v1::KernelRestore& restore : OriginalKernels(
           AsBytes(*object), loaded->record, decision_ == nullptr ? kNone : decision_->switches)) {
    *out.add_kernel_restores() = std::move(restore);
  }
}

void AdmitStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (phase_ == Phase::kFinished) return;
  if (!ok) return Fail(grpc::StatusCode::CANCELLED, "the agent is gone");
  progress_ = Clock::now();
  if (phase_ != Phase::kAnswering) return;
  if (answer_waits_) {
    answer_waits_ = false;
    WriteDecision();
  } else {
    SendChunk();
  }
}

void AdmitStream::SendChunk() {
  const size_t size = decision_ == nullptr ? 0 : decision_->patched.size();
  if (sent_ == size) return End(grpc::Status::OK);
  const size_t count = std::min(kChunkBytes, size - sent_);
  reply_.set_chunk(decision_->patched.data() + sent_, count);
  sent_ += count;
  Write();
}

}  // namespace rjdbi::daemon
