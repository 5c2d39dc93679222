#include "daemon/ledger.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/digest.h"

namespace rjdbi::daemon {
namespace {

// Bounds on what one process can make the daemon remember.
constexpr size_t kMaxText = 4096;
constexpr size_t kMaxLoads = 65536;
constexpr size_t kMaxGaps = 1024;
constexpr size_t kMaxClosed = 512;
constexpr size_t kMaxObjects = 65536;

// Cut to the bound, and valid UTF-8 (protobuf strings must be).
std::string Bounded(const std::string& text) {
  std::string out = text.substr(0, kMaxText);
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
  if (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0xC0) out.pop_back();
  return text.size() <= kMaxText ? text : out;
}

}  // namespace

int64_t UnixNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Ledger::set_max_sessions(uint32_t n) {
  const std::lock_guard lock(mutex_);
  max_sessions_ = n;
}

absl::StatusOr<SessionInfo> Ledger::Open(const PeerIdentity& peer,
                                         const v1::OpenSessionRequest& request) {
  std::string id(16, '\0');
  if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    return absl::InternalError("no random numbers for a session id");
  }
  const std::lock_guard lock(mutex_);
  if (open_.size() >= max_sessions_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many sessions are open: ", open_.size(), ", limit ", max_sessions_));
  }
  SessionState& session = open_[id];
  session.peer = peer;
  session.info = {id, peer.pid, Bounded(request.executable())};
  session.summary.set_id(Hex(id));
  session.summary.set_pid(peer.pid != 0 ? static_cast<uint32_t>(peer.pid) : request.pid());
  session.summary.set_uid(peer.uid);
  session.summary.set_executable(session.info.executable);
  session.summary.set_opened_unix_ns(UnixNanos());
  if (request.follows()) session.generation = 0;
  return session.info;
}

Ledger::SessionState* Ledger::FindOpen(const std::string& id, const PeerIdentity& peer) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.peer.pid != peer.pid ||
      found->second.peer.uid != peer.uid) {
    return nullptr;
  }
  return &found->second;
}

absl::StatusOr<SessionInfo> Ledger::Find(const std::string& id, const PeerIdentity& peer) const {
  const std::lock_guard lock(mutex_);
  const SessionState* session = const_cast<Ledger*>(this)->FindOpen(id, peer);
  if (session == nullptr) return absl::NotFoundError("no such session of this process");
  return session->info;
}

DecisionPtr Ledger::DecisionOfLoad(const std::string& session_id, uint64_t load_id) const {
  const std::lock_guard lock(mutex_);
  const auto session = open_.find(session_id);
  if (session == open_.end()) return nullptr;
  const auto load = session->second.loads.find(load_id);
  if (load == session->second.loads.end() || !load->second.record.in_place()) return nullptr;
  return load->second.record.decision;
}

absl::Status Ledger::RecordLoad(const std::string& session_id, const v1::ObjectHeader& header,
                                DecisionPtr decision, std::shared_ptr<const Question> question) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(session_id);
  if (found == open_.end()) return absl::NotFoundError("the session has been closed");
  SessionState& session = found->second;
  if (session.loads.size() >= kMaxLoads) {
    return absl::ResourceExhaustedError(
        absl::StrCat("one session has at most ", kMaxLoads, " loads"));
  }
  if (header.beside() && session.loads.count(header.beside_load_id()) == 0) {
    session.earlier_loads = true;
  }
  const std::string hex = Hex(header.sha256());
  Load& load = session.loads[header.load_id()];
  load = Load();
  load.record.session_id = session.summary.id();
  load.record.load_id = header.load_id();
  load.record.beside = header.beside();
  load.record.sha256 = hex;
  load.record.decision = decision;
  load.record.question = std::move(question);
  load.record.records = LoadRecords::Make(decision, load.record.question);
  load.origin = MakeOrigin(session, load.record);
  if (decision != nullptr) load.record.counters.resize(decision->record.counter_count());

  // One more image of an object that is loaded already is not one more object.
  const bool patched_now = decision != nullptr && decision->verdict() == v1::PATCHED;
  const auto [object_loaded, first] = session.objects.try_emplace(
      header.beside() ? header.beside_load_id() : header.load_id(), false);
  if (first) session.summary.set_code_objects(session.summary.code_objects() + 1);
  if (patched_now && !std::exchange(object_loaded->second, true)) {
    session.summary.set_patched(session.summary.patched() + 1);
  }
  if (objects_.size() >= kMaxObjects && objects_.count(hex) == 0) objects_.erase(objects_.begin());
  v1::CodeObjectSummary& object = objects_[hex];
  object.set_sha256(hex);
  object.set_size(header.size());
  object.set_origin(Bounded(header.origin()));
  if (!header.beside()) object.set_loads(object.loads() + 1);
  object.set_isa(Bounded(header.agent_isa()));
  object.set_verdict(decision == nullptr ? v1::ORIGINAL_NOT_SELECTED : decision->verdict());
  object.clear_object_violations();
  if (decision != nullptr) {
    if (!decision->record.isa().empty()) object.set_isa(decision->record.isa());
    // An object that was not read, such as one that is too large, has kernels all the same.
    if (decision->record.object_violations().empty() || !decision->record.isa().empty()) {
      object.set_kernels(decision->record.kernels());
    }
    *object.mutable_object_violations() = decision->record.object_violations();
  }
  return absl::OkStatus();
}

OriginPtr Ledger::MakeOrigin(const SessionState& session, const LoadRecord& load) const {
  if (load.records == nullptr) return nullptr;
  auto origin = std::make_shared<RecordOrigin>();
  origin->session_id = load.session_id;
  origin->records = load.records;
  origin->rate = session.rate;
  for (const LoadRecords::Site& site : load.records->sites()) {
    v1::RecordSource& source = origin->sources.emplace_back();
    if (site.decision == nullptr) continue;
    source.set_session_id(load.session_id);
    source.set_load_id(load.load_id);
    source.set_pid(session.summary.pid());
    source.set_executable(session.summary.executable());
    source.set_code_object_sha256(load.sha256);
    source.set_isa(load.decision->record.isa());
    source.set_attachment_id(load.question->ids[site.attachment]);
    source.set_probe(load.question->wanted[site.attachment].spec().probe());
    *source.mutable_location() = site.decision->site().location();
    *source.mutable_layout() = site.decision->record_layout();
  }
  return origin;
}

absl::StatusOr<OriginPtr> Ledger::OriginOf(const std::string& session_id, const PeerIdentity& peer,
                                           const v1::RecordBatch& batch) {
  const std::lock_guard lock(mutex_);
  SessionState* session = FindOpen(session_id, peer);
  if (session == nullptr) return absl::NotFoundError("no such session of this process");
  const auto load = session->loads.find(batch.load_id());
  if (load != session->loads.end() && load->second.origin != nullptr) return load->second.origin;
  session->summary.set_unknown_records(session->summary.unknown_records() + batch.count());
  return OriginPtr();
}

absl::Status Ledger::TakeCounters(SessionState& session, const v1::LoadCounters& counters) {
  const auto found = session.loads.find(counters.load_id());
  if (found == session.loads.end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown load ", counters.load_id()));
  }
  Load& load = found->second;
  if (static_cast<size_t>(counters.counters_size()) != load.record.counters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("load ", counters.load_id(), " has ",
                                                   load.record.counters.size(), " counters, not ",
                                                   counters.counters_size()));
  }
  // A report that was overtaken, or is repeated, changes nothing.
  if (load.reported && counters.sequence() <= load.sequence) return absl::OkStatus();
  load.reported = true;
  load.sequence = counters.sequence();
  load.record.final = load.record.final || counters.final();
  load.record.counters.assign(counters.counters().begin(), counters.counters().end());
  if (load.record.records != nullptr) load.record.records->NoteTotals(counters, counters.final());
  return absl::OkStatus();
}

// A gap of a load that has a decision: what was decided is not what runs. The
// process may have had to open another session since.
void Ledger::NoteOriginalLoaded(const PeerIdentity& peer, const v1::Gap& gap) {
  const std::string hex = Hex(gap.sha256());
  for (auto& [id, session] : open_) {
    if (session.peer.pid != peer.pid || session.peer.uid != peer.uid) continue;
    const auto load = session.loads.find(gap.load_id());
    if (load == session.loads.end() || load->second.record.sha256 != hex) continue;
    load->second.record.not_in_place = gap.kind();
    const auto object = objects_.find(hex);
    if (object != objects_.end() && object->second.verdict() == v1::PATCHED) {
      object->second.set_verdict(v1::ORIGINAL_REFUSED);
    }
  }
}

void Ledger::TakeGap(SessionState& session, const v1::Gap& gap) {
  session.summary.set_gaps(session.summary.gaps() + 1);
  NoteOriginalLoaded(session.peer, gap);
  v1::Gap kept = gap;
  kept.set_origin(Bounded(gap.origin()));
  kept.set_detail(Bounded(gap.detail()));
  if (kept.sha256().size() > 32) kept.mutable_sha256()->resize(32);
  session.gaps.push_back(std::move(kept));
  if (session.gaps.size() > kMaxGaps) session.gaps.pop_front();
}

absl::Status Ledger::Report(const v1::ReportRequest& request, const PeerIdentity& peer) {
  const std::lock_guard lock(mutex_);
  SessionState* session = FindOpen(request.session_id(), peer);
  if (session == nullptr) return absl::NotFoundError("no such session of this process");
  absl::Status first;
  for (const v1::LoadCounters& counters : request.loads()) {
    first.Update(TakeCounters(*session, counters));
  }
  for (const v1::Gap& gap : request.gaps()) TakeGap(*session, gap);
  return first;
}

void Ledger::NoteInPlace(const std::string& session_id, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(session_id);
  if (found != open_.end()) found->second.generation = generation;
}

std::map<std::string, std::pair<SessionInfo, uint64_t>> Ledger::InPlace() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::pair<SessionInfo, uint64_t>> in_place;
  for (const auto& [id, session] : open_) {
    if (session.generation) in_place[session.summary.id()] = {session.info, *session.generation};
  }
  return in_place;
}

uint32_t Ledger::WithEarlierLoads(int64_t unix_ns) const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(std::count_if(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second.earlier_loads && entry.second.summary.opened_unix_ns() >= unix_ns;
  }));
}

bool Ledger::Close(const std::string& id, bool cleanly) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end()) return false;
  SessionState& session = found->second;
  session.summary.set_closed_unix_ns(UnixNanos());
  session.summary.set_closed_cleanly(cleanly);
  // Without a goodbye the last report is missing: what is known stays a lower
  // bound.
  if (cleanly) {
    for (auto& [load_id, load] : session.loads) {
      load.record.final = true;
      if (load.record.records != nullptr) load.record.records->NoteTotals({}, /*final=*/true);
    }
  }
  closed_.push_back(std::move(session));
  open_.erase(found);
  if (closed_.size() > kMaxClosed) FoldOldest();
  return true;
}

void Ledger::FoldOldest() {
  // (Whether a query still holds them cannot be told from a use count, which does
  // not order its reads before our writes.)
  if (kept_handed_out_) kept_ = std::make_shared<KeptSums>(*kept_);
  kept_handed_out_ = false;
  const SessionState& oldest = closed_.front();
  kept_->AddProcess(oldest.summary.gaps());
  for (const auto& [id, load] : oldest.loads) {
    if (load.record.records != nullptr) forget_(*load.record.records);
    kept_->Add(load.record);
  }
  closed_.pop_front();
}

std::vector<v1::Session> Ledger::Sessions() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::Session> sessions;
  for (const SessionState& session : closed_) sessions.push_back(session.summary);
  for (const auto& [id, session] : open_) sessions.push_back(session.summary);
  std::stable_sort(sessions.begin(), sessions.end(), [](const auto& a, const auto& b) {
    return a.opened_unix_ns() < b.opened_unix_ns();
  });
  return sessions;
}

std::vector<v1::CodeObjectSummary> Ledger::CodeObjects() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::CodeObjectSummary> objects;
  for (const auto& [hex, object] : objects_) objects.push_back(object);
  return objects;
}

LedgerView Ledger::View(const std::string& session_prefix) const {
  const std::lock_guard lock(mutex_);
  LedgerView view;
  kept_handed_out_ = kept_handed_out_ || session_prefix.empty();
  view.kept = session_prefix.empty() ? kept_ : std::make_shared<KeptSums>();
  const auto take = [&](const SessionState& session) {
    if (!absl::StartsWith(session.summary.id(), session_prefix)) return;
    for (const auto& [id, load] : session.loads) view.loads.push_back(load.record);
    view.gaps.insert(view.gaps.end(), session.gaps.begin(), session.gaps.end());
  };
  for (const SessionState& session : closed_) take(session);
  for (const auto& [id, session] : open_) take(session);
  return view;
}

void Ledger::AddUploaded(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  uploaded_bytes_ += bytes;
}

uint64_t Ledger::uploaded_bytes() const {
  const std::lock_guard lock(mutex_);
  return uploaded_bytes_;
}

}  // namespace rjdbi::daemon
