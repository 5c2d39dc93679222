#include "daemon/control_service.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/decisions.h"
#include "contract/demangle.h"
#include "contract/inspect.h"
#include "contract/near_miss.h"
#include "daemon/admission_service.h"
#include "daemon/digest.h"

namespace rjdbi::daemon {
namespace {

constexpr char kObjectPrefix[] = "object-";
constexpr char kKernelsPrefix[] = "kernels-";

bool KernelWanted(const std::string& glob, const std::string& kernel) {
  return glob.empty() || contract::KernelMatches(glob, kernel);
}

// Attachments that exist now. Results of others are history: left out unless
// they are asked for, by name or all together.
class Current {
 public:
  Current(const AttachmentStore& store, bool include_detached, std::string named)
      : include_detached_(include_detached), named_(std::move(named)) {
    for (const v1::Attachment& attachment : store.All()) ids_.insert(attachment.id());
  }
  bool Wants(const std::string& id) {
    if (!named_.empty() && id != named_) return false;
    if (ids_.count(id) != 0) return true;
    detached_.insert(id);
    return include_detached_ || !named_.empty();
  }
  bool WantsAnyOf(const LoadRecord& load) {
    if (load.question == nullptr) return false;
    bool any = false;
    for (const std::string& id : load.question->ids) any = Wants(id) || any;
    return any;
  }
  const std::set<std::string>& detached() const { return detached_; }

 private:
  const bool include_detached_;
  const std::string named_;
  std::set<std::string> ids_, detached_;
};

// What a load's decision has come to. Loads that are in place come first, so that
// the same object's failed load does not hide them.
std::vector<LoadRecord> InPlaceFirst(std::vector<LoadRecord> loads) {
  std::stable_partition(loads.begin(), loads.end(),
                        [](const LoadRecord& load) { return load.in_place(); });
  return loads;
}

// A process that is about to take one attachment over may have had another for long: then
// some load of it was decided for that one.
void FillPending(const LiveSessions& sessions, const std::string& session_prefix,
                 const std::vector<v1::Attachment>& attachments, const LedgerView& view,
                 Current& current, v1::GetCoverageReply& reply) {
  std::set<std::pair<std::string, std::string>> taken_over;  // session, attachment
  for (const LoadRecord& load : view.loads) {
    if (load.question == nullptr) continue;
    for (const std::string& id : load.question->ids) taken_over.insert({load.session_id, id});
  }
  for (const auto& [session, state] : sessions) {
    const auto& [info, live] = state;
    if (live != v1::LIVE_APPLYING || !absl::StartsWith(session, session_prefix)) continue;
    for (const v1::Attachment& attachment : attachments) {
      if (MatchesProcess(attachment.spec(), info.executable, info.pid) &&
          taken_over.count({session, attachment.id()}) == 0 && current.Wants(attachment.id())) {
        ++(*reply.mutable_pending_processes())[attachment.id()];
      }
    }
  }
}

v1::Violation NothingAsked(const std::string& observed, const std::string& message) {
  return contract::MakeViolation(contract::id::kNothingAsked, observed, "", {}, message);
}

// Whether processes that are no longer listed were asked about such a kernel.
bool CoveredInSums(const KeptSums& sums, const std::string& glob, Current& current) {
  bool covered = false;
  for (const auto& [id, kept] : sums.attachments()) {
    if (!current.Wants(id)) continue;
    for (const auto& [place, part] : kept.coverage) {
      covered = covered || (!place.second.empty() && KernelWanted(glob, place.second));
    }
  }
  return covered;
}

v1::Violation OnlyInSums(uint64_t processes) {
  v1::Violation v = NothingAsked(
      absl::StrCat(processes, " processes that are no longer listed"),
      "the processes that loaded the kernel are gone and no longer listed: what became of its "
      "sites is in the sums, the reasons in detail are not");
  v.set_next_step("See rjctl coverage, or run the program again.");
  return v;
}

}  // namespace

ControlService::ControlService(DaemonState& state, GpuInventory gpus, std::string version)
    : state_(state),
      gpus_(std::move(gpus)),
      version_(std::move(version)),
      started_unix_ns_(UnixNanos()) {}

grpc::Status ControlService::Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                                    v1::AttachReply* reply) {
  if (!request->has_spec()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the request has no spec");
  }
  for (v1::Violation& violation : contract::CheckSpec(request->spec(), state_.config()->policy)) {
    *reply->add_violations() = std::move(violation);
  }
  if (reply->violations_size() > 0) return grpc::Status::OK;
  *reply->mutable_attachment() = state_.attachments.Add(request->spec(), UnixNanos());
  reply->mutable_attachment()->mutable_spec()->clear_probe_object();
  state_.AttachmentsChanged();
  const PeerIdentity peer = state_.peers.Find(context->peer()).value_or(PeerIdentity());
  spdlog::info("attached {}: kernel {} sites {} probe {} (uid {} pid {})", reply->attachment().id(),
               request->spec().kernel_glob(), request->spec().sites(), request->spec().probe(),
               peer.uid, peer.pid);
  return grpc::Status::OK;
}

// Running processes that loaded kernels with the attachment in place and cannot go back to
// the application's own: those that do not follow changes; for kernels with trampolines all,
// since pieces of a kernel's own code are gone there; and for objects whose bytes are no
// longer stored, where the original descriptors would come from. (Loads from before this
// daemon's start are not known to it: Ledger::WithEarlierLoads.)
uint32_t ControlService::PatchedAtLoadFor(const std::string& attachment) const {
  const auto following = state_.ledger.InPlace();
  std::set<std::string> open, sessions;
  for (const v1::Session& session : state_.ledger.Sessions()) {
    if (session.closed_unix_ns() == 0) open.insert(session.id());
  }
  for (const LoadRecord& load : state_.ledger.View().loads) {
    if (load.beside || load.final || !load.in_place() || load.decision == nullptr ||
        load.decision->patched.empty() || open.count(load.session_id) == 0) {
      continue;
    }
    const bool restorable = following.count(load.session_id) != 0 &&
                            state_.blobs.Contains(absl::StrCat(kObjectPrefix, load.sha256));
    for (const v1::Coverage& part : load.decision->record.coverage()) {
      if (part.attached() + part.degraded() > 0 &&
          RealId(load, part.attachment_id()) == attachment &&
          (!restorable || part.placement().placement() != v1::CLONE)) {
        sessions.insert(load.session_id);
      }
    }
  }
  return static_cast<uint32_t>(sessions.size());
}

grpc::Status ControlService::Detach(grpc::ServerContext* context, const v1::DetachRequest* request,
                                    v1::DetachReply* reply) {
  const uint32_t stay = PatchedAtLoadFor(request->attachment_id());
  int64_t made_unix_ns = 0;
  for (const v1::Attachment& attachment : state_.attachments.All()) {
    if (attachment.id() == request->attachment_id()) made_unix_ns = attachment.created_unix_ns();
  }
  const absl::Status status = state_.attachments.Remove(request->attachment_id());
  const PeerIdentity peer = state_.peers.Find(context->peer()).value_or(PeerIdentity());
  if (status.ok()) {
    state_.AttachmentsChanged();
    const uint32_t before = state_.ledger.WithEarlierLoads(made_unix_ns);
    if (stay > 0) reply->mutable_live()->set_patched_at_load(stay);
    if (before > 0) reply->mutable_live()->set_loaded_before(before);
    spdlog::info("detached {} (uid {} pid {})", request->attachment_id(), peer.uid, peer.pid);
  }
  return ToGrpc(status);
}

LiveSessions ControlService::LiveStates() const {
  LiveSessions states;
  for (const auto& [id, in_place] : state_.ledger.InPlace()) {
    const auto& [info, generation] = in_place;
    const bool current = generation == state_.WatchAnswer(info).generation();
    states[id] = {info, current ? v1::LIVE_CURRENT : v1::LIVE_APPLYING};
  }
  return states;
}

grpc::Status ControlService::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest* request,
                                       v1::GetStatusReply* reply) {
  std::optional<v1::AttachmentSpec> concerning;
  if (!request->concerned_by().empty()) {
    for (const v1::Attachment& attachment : state_.attachments.All()) {
      if (attachment.id() == request->concerned_by()) concerning = attachment.spec();
    }
    if (!concerning) {
      return ToGrpc(
          absl::NotFoundError(absl::StrCat("no attachment '", request->concerned_by(), "'")));
    }
  }
  reply->set_version(version_);
  reply->set_pid(static_cast<uint32_t>(getpid()));
  reply->set_started_unix_ns(started_unix_ns_);
  for (auto& attachment : state_.attachments.All()) {
    attachment.mutable_spec()->clear_probe_object();  // large, and its manifest names it
    *reply->add_attachments() = std::move(attachment);
  }
  const auto live = LiveStates();
  for (auto& session : state_.ledger.Sessions()) {
    if (concerning &&
        (session.closed_unix_ns() != 0 ||
         !MatchesProcess(*concerning, session.executable(), static_cast<pid_t>(session.pid())))) {
      continue;
    }
    if (const auto found = live.find(session.id()); found != live.end()) {
      session.set_live(found->second.second);
    }
    *reply->add_sessions() = std::move(session);
  }
  for (const v1::Gpu& gpu : gpus_.gpus) *reply->add_gpus() = gpu;
  reply->set_gpu_inventory_note(gpus_.note);
  const BlobStore::Stats blobs = state_.blobs.stats();
  const Decider::Stats decisions = state_.decider.stats();
  reply->set_cache_hits(decisions.hits);
  reply->set_cache_misses(decisions.misses);
  reply->set_cache_bytes(blobs.bytes);
  reply->set_cache_entries(blobs.entries);
  reply->set_uploaded_bytes(state_.ledger.uploaded_bytes());
  reply->set_state_note(state_.StateNote());
  return grpc::Status::OK;
}

grpc::Status ControlService::ListCodeObjects(grpc::ServerContext*,
                                             const v1::ListCodeObjectsRequest*,
                                             v1::ListCodeObjectsReply* reply) {
  for (v1::CodeObjectSummary& object : state_.ledger.CodeObjects()) {
    if (!object.has_kernels()) {  // perhaps it was sent before the daemon's start
      if (const auto known = state_.decider.KnownKernels(object.sha256())) {
        object.set_kernels(static_cast<uint32_t>(known->kernels_size()));
      }
    }
    *reply->add_code_objects() = std::move(object);
  }
  return grpc::Status::OK;
}

std::vector<std::string> ControlService::StoredObjects(const std::string& prefix) const {
  std::set<std::string> hashes;
  for (const char* kind : {kObjectPrefix, kKernelsPrefix}) {
    for (const std::string& name : state_.blobs.Names(absl::StrCat(kind, prefix))) {
      hashes.insert(name.substr(std::string(kind).size()));
    }
  }
  return {hashes.begin(), hashes.end()};
}

grpc::Status ControlService::ListKernels(grpc::ServerContext*,
                                         const v1::ListKernelsRequest* request,
                                         v1::ListKernelsReply* reply) {
  for (const std::string& hash : StoredObjects(request->code_object_sha256())) {
    v1::ListKernelsReply kernels;
    const Bytes object = state_.decider.StoredObject(hash);
    if (object != nullptr) {
      auto inspected = contract::InspectKernels(AsBytes(*object), request->kernel_glob());
      if (inspected.ok()) kernels = std::move(*inspected);
    } else if (const auto known = state_.decider.KnownKernels(hash)) {
      for (const v1::KernelSummary& kernel : known->kernels()) {
        if (KernelWanted(request->kernel_glob(), kernel.name())) *kernels.add_kernels() = kernel;
      }
    }
    for (v1::KernelSummary& kernel : *kernels.mutable_kernels()) {
      kernel.set_code_object_sha256(hash);
      *reply->add_kernels() = std::move(kernel);
    }
  }
  return grpc::Status::OK;
}

grpc::Status ControlService::ListSites(grpc::ServerContext*, const v1::ListSitesRequest* request,
                                       v1::ListSitesReply* reply) {
  for (const std::string& hash : StoredObjects(request->code_object_sha256())) {
    const Bytes object = state_.decider.StoredObject(hash);
    if (object == nullptr) continue;
    const auto sites =
        contract::InspectSites(AsBytes(*object), request->kernel_glob(), request->sites());
    if (!sites.ok() && absl::IsInvalidArgument(sites.status())) return ToGrpc(sites.status());
    if (!sites.ok()) continue;
    for (const v1::Site& site : sites->sites()) *reply->add_sites() = site;
  }
  return grpc::Status::OK;
}

bool ControlService::HasKernel(const std::string& sha256, const std::string& glob) const {
  const auto kernels = state_.decider.KnownKernels(sha256);
  return kernels != nullptr &&
         std::any_of(kernels->kernels().begin(), kernels->kernels().end(),
                     [&](const v1::KernelSummary& k) { return KernelWanted(glob, k.name()); });
}

bool ControlService::KernelKnown(const std::string& glob) const {
  const std::vector<v1::CodeObjectSummary> objects = state_.ledger.CodeObjects();
  return std::any_of(objects.begin(), objects.end(), [&](const v1::CodeObjectSummary& object) {
    return HasKernel(object.sha256(), glob);
  });
}

std::vector<std::string> ControlService::KernelNames() const {
  std::vector<std::string> names;
  for (const v1::CodeObjectSummary& object : state_.ledger.CodeObjects()) {
    const auto kernels = state_.decider.KnownKernels(object.sha256());
    if (kernels == nullptr) continue;
    for (const v1::KernelSummary& kernel : kernels->kernels()) names.push_back(kernel.name());
  }
  return names;
}

// For an offset at which no matching kernel has an instruction: where the nearest are.
std::vector<v1::Violation> ControlService::NoSuchPlace(
    const v1::WhyNotAttachedRequest& request) const {
  constexpr size_t kMost = 8;
  std::vector<v1::Violation> missing;
  if (!request.has_kernel_offset()) return missing;
  for (const v1::CodeObjectSummary& summary : state_.ledger.CodeObjects()) {
    const Bytes object = state_.decider.StoredObject(summary.sha256());
    if (object == nullptr) continue;
    auto here =
        contract::InspectOffset(AsBytes(*object), request.kernel_glob(), request.kernel_offset());
    if (!here.ok()) continue;
    if (here->some_start_there) return {};
    for (v1::Violation& v : here->missing) {
      if (missing.size() < kMost) missing.push_back(std::move(v));
    }
  }
  return missing;
}

// Nothing was decided about the kernel: why?
v1::Violation ControlService::WhyNothing(const v1::WhyNotAttachedRequest& request,
                                         bool selector_missed, bool known) const {
  const size_t attachments = state_.attachments.All().size();
  if (selector_missed && request.has_kernel_offset()) {
    return NothingAsked(
        absl::StrCat("offset 0x", absl::Hex(request.kernel_offset())),
        "an attachment matches the kernel, but its selector does not cover this offset");
  }
  if (selector_missed) {
    return NothingAsked("0 sites",
                        "an attachment matches the kernel, but its selector matches no "
                        "instruction");
  }
  if (attachments == 0) return NothingAsked("0 attachments", "nothing is attached");
  if (state_.ledger.Sessions().empty()) {
    return NothingAsked("0 processes", "no process has connected since rjdbid started");
  }
  if (!known) {
    const std::string near =
        contract::DidYouMean(contract::ClosestKernels(request.kernel_glob(), KernelNames()));
    return NothingAsked(
        absl::StrCat("no kernel '", request.kernel_glob(), "'"),
        absl::StrCat("no process that an attachment wants has loaded a kernel of this name",
                     near.empty() ? "" : "; ", near));
  }
  return NothingAsked(
      absl::StrCat(attachments, " attachments"),
      "no process that an attachment wants has loaded a kernel of this name since the "
      "attachment was made, and those that had loaded one earlier do not follow attachments "
      "while they run, or have not yet");
}

// The instructions around refused sites of one object, if its bytes are still held.
void ControlService::ShowPlaces(const std::string& sha256, const std::vector<int>& decisions,
                                v1::WhyNotAttachedReply& reply) const {
  constexpr size_t kMost = 64;  // more than anybody reads
  const Bytes object = state_.decider.StoredObject(sha256);
  if (object == nullptr) return;
  google::protobuf::RepeatedPtrField<v1::Decision> refused;
  for (const int i : decisions) refused.Add()->Swap(reply.mutable_decisions(i));
  contract::AddExcerpts(AsBytes(*object), kMost, &refused);
  for (int i = 0; i < refused.size(); ++i) {
    reply.mutable_decisions(decisions[static_cast<size_t>(i)])->Swap(refused.Mutable(i));
  }
}

namespace {

// Puts an answer together, load by load.
class WhyAnswer {
 public:
  WhyAnswer(const v1::WhyNotAttachedRequest& request, Current& current,
            v1::WhyNotAttachedReply& reply)
      : request_(request), current_(current), reply_(reply) {}

  // False: nothing of the load is about such a kernel.
  bool Take(const LoadRecord& load) {
    bool known = false;
    for (const v1::Coverage& coverage : load.decision->record.coverage()) {
      if (coverage.kernel().empty() || !KernelWanted(glob(), coverage.kernel())) continue;
      known = true;
      decided_ = current_.Wants(RealId(load, coverage.attachment_id())) || decided_;
    }
    for (const contract::DecisionGroup& group : contract::DecisionGroups(load.decision->record)) {
      if (KernelWanted(glob(), group.kernel())) TakeGroup(load, group);
    }
    known_ = known_ || known;
    if (load.decision->record.object_violations().empty() || !current_.WantsAnyOf(load)) {
      return known;
    }
    for (const v1::Violation& violation : load.decision->record.object_violations()) {
      if (seen_.insert({load.sha256, "", violation.constraint_id(), 0}).second) {
        *reply_.add_violations() = violation;
      }
    }
    return known;
  }

  bool decided() const { return decided_; }
  bool known() const { return known_; }
  // Indices of refused decisions in the reply, by the object's SHA-256.
  const std::map<std::string, std::vector<int>>& of_object() const { return of_object_; }

 private:
  const std::string& glob() const { return request_.kernel_glob(); }

  void TakeGroup(const LoadRecord& load, const contract::DecisionGroup& group) {
    const std::string id = RealId(load, group.attachment_id());
    for (size_t i = 0; i < group.size(); ++i) {
      const uint64_t offset = group.kernel_offset(i);
      if (request_.has_kernel_offset() && request_.kernel_offset() != offset) continue;
      if (!current_.Wants(id)) break;
      if (!seen_.insert({load.sha256, id, group.kernel(), offset}).second) continue;
      const bool attached = load.in_place() && Attached(group.Form(i).outcome());
      if (attached) reply_.set_attached_sites(reply_.attached_sites() + 1);
      if (attached && group.Form(i).degradations().empty()) continue;
      if (!attached) of_object_[load.sha256].push_back(reply_.decisions_size());
      *(attached ? reply_.add_degraded() : reply_.add_decisions()) = DecisionOf(load, group.At(i));
    }
  }

  const v1::WhyNotAttachedRequest& request_;
  Current& current_;
  v1::WhyNotAttachedReply& reply_;
  std::set<std::tuple<std::string, std::string, std::string, uint64_t>> seen_;
  std::map<std::string, std::vector<int>> of_object_;
  bool decided_ = false, known_ = false;
};

}  // namespace

grpc::Status ControlService::WhyNotAttached(grpc::ServerContext*,
                                            const v1::WhyNotAttachedRequest* request,
                                            v1::WhyNotAttachedReply* reply) {
  const std::string& glob = request->kernel_glob();
  Current current(state_.attachments, request->include_detached(), "");
  WhyAnswer answer(*request, current, *reply);
  const LedgerView view = state_.ledger.View();
  std::set<std::string> listed;
  for (const LoadRecord& load : InPlaceFirst(view.loads)) {
    if (load.decision == nullptr) continue;
    listed.insert(load.sha256);
    answer.Take(load);
  }
  state_.decider.ForEachLast(
      [&](const std::string& sha256) {
        return listed.count(sha256) == 0 && HasKernel(sha256, glob);
      },
      [&](const LastAdmissions::Entry& entry, DecisionPtr decision) {
        auto question = std::make_shared<Question>();
        question->ids = entry.ids;
        LoadRecord load;
        load.sha256 = entry.sha256;
        load.decision = std::move(decision);
        load.question = std::move(question);
        if (current.WantsAnyOf(load) && answer.Take(load)) {
          reply->add_remembered_objects(entry.sha256);
        }
      });
  for (const auto& [sha256, decisions] : answer.of_object()) {
    ShowPlaces(sha256, decisions, *reply);
  }
  const bool folded = CoveredInSums(*view.kept, glob, current);
  for (const std::string& id : current.detached()) reply->add_detached_attachments(id);
  reply->set_kernel_known(answer.known() || folded || KernelKnown(glob));
  if (reply->decisions_size() == 0 && reply->attached_sites() == 0) {
    for (v1::Violation& v : NoSuchPlace(*request)) *reply->add_violations() = std::move(v);
    if (reply->violations_size() > 0) return grpc::Status::OK;
    *reply->add_violations() = folded && !answer.decided()
                                   ? OnlyInSums(view.kept->processes())
                                   : WhyNothing(*request, answer.decided(), reply->kernel_known());
  }
  return grpc::Status::OK;
}

// NOT_FOUND for names that nothing is known of.
template <typename Request>
absl::Status ControlService::CheckNames(const Request& request) const {
  const std::string& id = request.attachment_id();
  if (!id.empty() && !AttachmentKnown(id)) {
    return absl::NotFoundError(absl::StrCat("no attachment '", id,
                                            "' exists, or has left anything; rjctl status lists "
                                            "attachments, rjctl coverage --all those that are "
                                            "detached, too"));
  }
  const std::string& session = request.session_id();
  if (session.empty()) return absl::OkStatus();
  const std::vector<v1::Session> sessions = state_.ledger.Sessions();
  const bool known = std::any_of(sessions.begin(), sessions.end(), [&](const v1::Session& s) {
    return absl::StartsWith(s.id(), session);
  });
  if (known || state_.records.KnowsSession(session)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("no session begins with '", session, "'; rjctl status --all lists sessions"));
}

bool ControlService::AttachmentKnown(const std::string& id) const {
  for (const v1::Attachment& attachment : state_.attachments.All()) {
    if (attachment.id() == id) return true;
  }
  const LedgerView view = state_.ledger.View();
  for (const LoadRecord& load : view.loads) {
    if (load.question == nullptr) continue;
    const std::vector<std::string>& ids = load.question->ids;
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) return true;
  }
  return view.kept->attachments().count(id) != 0 || state_.records.KnowsAttachment(id);
}

template <typename Request>
void ControlService::FillCoverage(const Request& request, const LiveSessions& live,
                                  const LedgerView& view, v1::GetCoverageReply& reply) const {
  struct Part {
    std::string sha256;
    v1::Coverage coverage;
    bool in_place;
  };
  Current current(state_.attachments, request.include_detached(), request.attachment_id());
  std::vector<Part> parts;
  std::set<std::string> refused;
  for (const LoadRecord& load : view.loads) {
    if (load.decision == nullptr) continue;
    if (!load.decision->record.object_violations().empty() && current.WantsAnyOf(load)) {
      refused.insert(load.sha256);
    }
    for (const v1::Coverage& part : load.decision->record.coverage()) {
      parts.push_back({load.sha256, CoverageOf(load, part), load.in_place()});
    }
  }
  for (const auto& [id, kept] : view.kept->attachments()) {
    if (!kept.refused_objects.empty() && current.Wants(id)) {
      refused.insert(kept.refused_objects.begin(), kept.refused_objects.end());
    }
    for (const auto& [place, part] : kept.coverage) {
      parts.push_back({place.first, part.coverage, part.in_place});
    }
  }
  // So that the same object's failed load does not hide those that are in place.
  std::stable_partition(parts.begin(), parts.end(), [](const Part& part) { return part.in_place; });
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  std::set<std::string> matched;
  for (Part& part : parts) {
    const std::string& id = part.coverage.attachment_id();
    const std::string& kernel = part.coverage.kernel();
    if (!kernel.empty()) matched.insert(id);
    if (!KernelWanted(request.kernel_glob(), kernel) || !current.Wants(id)) continue;
    if (!seen.insert({part.sha256, kernel, id}).second) continue;
    contract::AddCoverage(*reply.mutable_total(), part.coverage);
    *reply.add_coverage() = std::move(part.coverage);
  }
  reply.mutable_total();
  for (v1::CodeObjectSummary& object : state_.ledger.CodeObjects()) {
    if (refused.count(object.sha256()) != 0) *reply.add_refused_objects() = std::move(object);
  }
  reply.mutable_gaps()->Add(view.gaps.begin(), view.gaps.end());
  reply.set_folded_processes(view.kept->processes());
  reply.set_folded_gaps(view.kept->gaps());
  for (const v1::Attachment& attachment : state_.attachments.All()) {
    if (matched.count(attachment.id()) == 0 && current.Wants(attachment.id())) {
      reply.add_unmatched_attachments(attachment.id());
    }
  }
  FillPending(live, request.session_id(), state_.attachments.All(), view, current, reply);
  for (const std::string& id : current.detached()) reply.add_detached_attachments(id);
}

grpc::Status ControlService::GetCoverage(grpc::ServerContext*,
                                         const v1::GetCoverageRequest* request,
                                         v1::GetCoverageReply* reply) {
  if (absl::Status s = CheckNames(*request); !s.ok()) return ToGrpc(s);
  const LiveSessions live = LiveStates();
  const LedgerView view = state_.ledger.View(request->session_id());
  FillCoverage(*request, live, view, *reply);
  return grpc::Status::OK;
}

grpc::Status ControlService::GetReport(grpc::ServerContext*, const v1::GetReportRequest* request,
                                       v1::GetReportReply* reply) {
  if (absl::Status s = CheckNames(*request); !s.ok()) return ToGrpc(s);
  const LiveSessions live = LiveStates();
  const LedgerView view = state_.ledger.View(request->session_id());
  Current current(state_.attachments, request->include_detached(), request->attachment_id());
  const auto add = [&](const v1::SiteCount& count) {
    if (KernelWanted(request->kernel_glob(), count.location().kernel()) &&
        current.Wants(count.attachment_id())) {
      *reply->add_counts() = count;
    }
  };
  for (const auto& [id, kept] : view.kept->attachments()) {
    for (const auto& [place, count] : kept.counts) add(count);
  }
  for (const LoadRecord& load : view.loads) {
    for (const v1::SiteCount& count : CountsOf(load)) add(count);
  }
  const auto add_losses = [&](v1::RecordLosses losses, const LoadRecord* load) {
    const auto& ids = losses.attachment_ids();
    if (std::none_of(ids.begin(), ids.end(), [&](const auto& id) { return current.Wants(id); })) {
      return;
    }
    if (load != nullptr) {
      losses.set_session_id(load->session_id);
      losses.set_load_id(load->load_id);
      losses.set_code_object_sha256(load->sha256);
    }
    *reply->add_record_losses() = std::move(losses);
  };
  if (view.kept->processes() > 0) add_losses(view.kept->record_losses(), nullptr);
  for (const LoadRecord& load : view.loads) {
    if (load.records != nullptr && load.in_place()) add_losses(load.records->Losses(), &load);
  }
  FillCoverage(*request, live, view, *reply->mutable_coverage());
  return grpc::Status::OK;
}

grpc::Status ControlService::GetRecords(grpc::ServerContext*, const v1::GetRecordsRequest* request,
                                        v1::GetRecordsReply* reply) {
  if (absl::Status s = CheckNames(*request); !s.ok()) return ToGrpc(s);
  Current current(state_.attachments, request->include_detached(), request->attachment_id());
  state_.records.Get(
      *request, [&](const std::string& id) { return current.Wants(id); }, *reply);
  for (const std::string& id : current.detached()) reply->add_detached_attachments(id);
  return grpc::Status::OK;
}

}  // namespace rjdbi::daemon
