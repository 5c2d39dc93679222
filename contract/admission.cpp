// Admission of one code object: see admission.h. The order of work is fixed, so
// that the same input gives the same answer: attachments by id, kernels as the
// object lists them, instructions by offset.
#include "contract/admission.h"

#include <openssl/sha.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "contract/budget.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/dead.h"
#include "contract/demangle.h"
#include "contract/dry_run.h"
#include "contract/inference.h"
#include "contract/kernel_code.h"
#include "contract/link_pair.h"
#include "contract/manifest.h"
#include "contract/natural_order.h"
#include "contract/near_miss.h"
#include "contract/occupancy.h"
#include "contract/patch_record.h"
#include "contract/record_layout.h"
#include "contract/reduction.h"
#include "contract/site.h"
#include "contract/text.h"
#include "contract/user_probe.h"
#include "contract/validate.h"
#include "contract/verdicts.h"
#include "patch/analysis/control_flow.h"
#include "patch/analysis/equal_counts.h"
#include "patch/analysis/loops.h"
#include "patch/analysis/selector.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::contract {
namespace {

using patch::CodeObject;
using patch::Kernel;
using patch::KernelAnalysis;
using patch::Reason;
using patch::SitePlan;

constexpr size_t kMaxPattern = 1024;
// Each round gives up at least one site or ends; proportional steps need few.
constexpr int kMaxEmitRounds = 64;
constexpr uint32_t kLeastJumps = 2;  // to the probe, and back

std::string Sha256Hex(absl::Span<const uint8_t> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(bytes.data(), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a + b < a ? ~uint64_t{0} : a + b; }

bool IsElf(absl::Span<const uint8_t> bytes) {
  constexpr uint8_t kMagic[] = {0x7f, 'E', 'L', 'F'};
  return bytes.size() >= sizeof kMagic && std::equal(kMagic, kMagic + sizeof kMagic, bytes.begin());
}

// "5000 bytes that begin with 61 61 61 61"
std::string FirstBytes(absl::Span<const uint8_t> bytes) {
  std::string out = StrCat(bytes.size(), bytes.size() == 1 ? " byte" : " bytes");
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 4); ++i) {
    StrAppend(&out, i == 0 ? " that begin with " : " ", absl::Hex(bytes[i], absl::kZeroPad2));
  }
  return out;
}

// The probe "value", and no other, names a register.
std::vector<v1::Violation> CheckValueRegister(const v1::AttachmentSpec& spec,
                                              const BuiltinProbe& probe) {
  const std::string& text = spec.value_register();
  const bool wanted = probe.probe == patch::Probe::kValue;
  if (wanted ? patch::ParseRange(text).has_value() : text.empty()) return {};
  std::string message = StrCat("the probe \"", probe.name, "\" records no register");
  if (wanted && text.empty()) message = "the probe \"value\" needs a register to record";
  if (wanted && !text.empty()) {
    message = StrCat("\"", text, "\" is no register that can be recorded");
  }
  v1::Violation v = MakeViolation(
      id::kBadSpec, text.empty() ? "no register" : StrCat("register \"", text, "\""),
      wanted ? "a register, such as s7, s[4:5], v3, vcc, exec, m0 or scc" : "no register", {},
      std::move(message));
  v.set_next_step(wanted ? "Name a register with --register, as disassembly calls it."
                         : "Leave --register out, or use --probe value.");
  return {std::move(v)};
}

// The word around a column (1-based) of a selector; "": there is none.
std::string_view WordAt(std::string_view text, size_t column) {
  const auto ends = [&](size_t i) {
    return std::string_view(" \t\n(),").find(text[i]) != std::string_view::npos;
  };
  size_t begin = std::min(column - 1, text.size()), end = begin;
  while (begin > 0 && !ends(begin - 1)) --begin;
  while (end < text.size() && !ends(end)) ++end;
  return text.substr(begin, end - begin);
}

// Whether the probe exists, the selector parses and both consents are given.
std::vector<v1::Violation> CheckWhatIsAsked(const v1::AttachmentSpec& spec, const Policy& policy) {
  std::vector<v1::Violation> out;
  patch::SelectorError error;
  if (!patch::Selector::Parse(spec.sites(), &error).ok()) {
    const std::vector<std::string> words = patch::SelectorWords();
    const std::string meant =
        DidYouMean(ClosestNames(WordAt(spec.sites(), error.column), {words.begin(), words.end()}));
    v1::Violation v =
        MakeViolation(id::kBadSelector, StrCat("\"", spec.sites(), "\""), "a site selector", {},
                      StrCat("selector, column ", error.column, ": expected ", error.expected,
                             meant.empty() ? "" : "; ", meant));
    v.set_excerpt(patch::PointAt(spec.sites(), error.column));
    out.push_back(std::move(v));
  }
  if (BringsProbe(spec)) {
    auto read = UserProbeFile::Read(spec);
    if (auto* wrong = std::get_if<std::vector<v1::Violation>>(&read)) {
      for (v1::Violation& v : *wrong) out.push_back(std::move(v));
    }
    return out;
  }
  const BuiltinProbe* probe = FindProbe(spec.probe());
  if (probe == nullptr) {
    std::set<std::string> names;
    for (const BuiltinProbe& known : BuiltinProbes()) names.insert(known.name);
    const std::string meant = DidYouMean(ClosestNames(spec.probe(), names));
    out.push_back(
        MakeViolation(id::kUnknownProbe, StrCat("\"", spec.probe(), "\""), ProbeNames(), {},
                      StrCat("there is no probe \"", spec.probe(), "\"; ",
                             meant.empty() ? StrCat("there are ", ProbeNames()) : meant)));
    return out;
  }
  for (v1::Violation& v : CheckValueRegister(spec, *probe)) out.push_back(std::move(v));
  if (!probe->manifest.proto().amdgpu().requires_double_opt_in()) return out;
  v1::Location manifest;
  manifest.set_manifest_line(probe->manifest.LineOf("amdgpu.requires_double_opt_in"));
  if (!policy.allow_sabotage) {
    out.push_back(MakeViolation(id::kSabotageForbidden, "policy does not allow it",
                                "policy and attachment both allow it", manifest));
  }
  if (!spec.allow_sabotage()) {
    out.push_back(MakeViolation(id::kSabotageNotAsked, "attachment does not allow it",
                                "the attachment allows it", manifest));
  }
  return out;
}

std::vector<v1::Violation> CheckFields(const v1::AttachmentSpec& spec) {
  std::vector<v1::Violation> out;
  const std::pair<std::string_view, const std::string*> fields[] = {
      {"kernel_glob", &spec.kernel_glob()},
      {"sites", &spec.sites()},
      {"process_glob", &spec.process_glob()},
      {"owner", &spec.owner()}};
  for (const auto& [name, value] : fields) {
    if (value->size() <= kMaxPattern) continue;
    out.push_back(MakeViolation(id::kBadSpec, StrCat(value->size(), " bytes"),
                                StrCat(kMaxPattern, " bytes"), {}, StrCat(name, " is too long")));
  }
  if (spec.kernel_glob().empty()) {
    out.push_back(MakeViolation(id::kBadSpec, "empty kernel_glob", "a pattern, such as *", {},
                                "kernel_glob is empty"));
  }
  return out;
}

// One attachment, with everything about it that does not depend on the kernel.
struct Asked {
  const v1::Attachment* attachment = nullptr;
  const BuiltinProbe* probe = nullptr;
  std::optional<patch::Selector> selector;
  EffectiveBudget budget;  // what refuses
  EffectiveBudget own;     // in MODE_WARN what is declared; else the same
  bool warns = false;
  const Ladder* ladder = nullptr;
  std::optional<TelemetryBudget> telemetry;
  std::vector<v1::Violation> refusals;  // of the attachment as a whole
  v1::Placement placement = v1::AUTO;
  patch::RegisterRange value_register;
  bool matched = false;
  bool left_out = false;  // beyond the limit of attachments: see RJD-A009
  // A user's probe: what `probe` is, and what becomes of it by wavefront size.
  std::optional<UserProbeFile> file;
  std::unique_ptr<BuiltinProbe> own_probe;
  std::map<uint32_t, std::variant<patch::UserProbe, v1::Violation>> bodies;
};

// How a kernel runs its probes, and why it is no clone.
struct KernelChoice {
  patch::Placement placement = patch::Placement::kTrampoline;
  std::optional<patch::Refusal> not_cloned;
  std::optional<uint64_t> code_bytes;  // once it is emitted
};

// What a plan was judged to rest on: registers that nothing reads any more, and such that
// no load in flight may write.
struct Assumed {
  const patch::RegisterSet* dead = nullptr;
  const patch::RegisterSet* landed = nullptr;
};

// A verdict on its way: its number, and where its plan applies.
struct Candidate {
  size_t verdict = 0;
  size_t asked = 0;
  const KernelAnalysis* kernel = nullptr;
  uint32_t instruction = 0;
  Assumed assumed;
};

// What was found out about an inference before.
struct KnownInference {
  uint32_t effects = 0;                // in the table
  const BuiltinProbe* kept = nullptr;  // the probe whose manifest it keeps to
  Assumed assumed;
};

// How long the admission has taken; what has begun counts, so that of no time at all
// there is never enough.
struct Stopwatch {
  const Clock& now;
  const std::chrono::steady_clock::time_point start = now();

  uint64_t Milliseconds() const {
    const auto passed = std::chrono::ceil<std::chrono::milliseconds>(now() - start);
    return static_cast<uint64_t>(std::max<int64_t>(passed.count(), 0));
  }
};

class Engine {
 public:
  // `attachments` in the order of their ids; `ladders` are theirs.
  Engine(absl::Span<const uint8_t> bytes, const std::vector<const v1::Attachment*>& attachments,
         const std::vector<Ladder>& ladders, const Policy& policy, patch::Rewriter& rewriter,
         const Stopwatch& stopwatch)
      : bytes_(bytes),
        policy_(policy),
        rewriter_(rewriter),
        order_(attachments),
        ladders_(ladders),
        stopwatch_(stopwatch) {}

  Admission Run();
  // After Run, of attachments that allow reductions.
  const std::vector<SumUse>& sum_uses() const { return sum_uses_; }

 private:
  bool ParseObject();
  bool TakePatchesBack();
  void PrepareAttachments();
  void TakeUserProbe(Asked& a);
  void MatchKernels();
  void JudgeKernel(size_t index);
  void PlanEntry(const KernelAnalysis& kernel);
  std::vector<SitePlan> Entries() const;
  const std::vector<SitePlan>& Emitted() const {
    return with_entries_.empty() ? plans_ : with_entries_;
  }
  void ChoosePlacement(const KernelAnalysis& kernel, const std::vector<size_t>& wanted);
  const KernelAnalysis* Analyse(size_t index);
  void JudgeAttachment(size_t asked, const KernelAnalysis& kernel);
  std::vector<absl::Span<const uint32_t>> Units(const Asked& a, const KernelAnalysis& kernel,
                                                absl::Span<const uint32_t> sites) const;
  void RotateOut(size_t asked, const KernelAnalysis& kernel, absl::Span<const uint32_t> sites,
                 uint32_t window);
  std::optional<v1::Violation> Late(const EffectiveBudget& budget);
  bool RefuseLate();
  bool OverDescriptors(const patch::RewriteResult& result);
  void DeclareOverruns(int64_t code_growth);
  void SumUp();
  void JudgeMissing(const KernelAnalysis& kernel, uint64_t offset);
  void JudgeUnanswerable(const patch::Refusal& refusal);
  void JudgeLate(const v1::Violation& late);
  bool RoomAtSite(const Asked& a, const KernelAnalysis& kernel, uint32_t i, Verdict& v);
  void TakeSite(const Asked& a, uint32_t i, const Verdict& v);
  void JudgeRegion(size_t asked, const KernelAnalysis& kernel, absl::Span<const uint32_t> sites);
  size_t AddVerdict(const Asked& a, const KernelAnalysis& kernel, uint32_t i);
  bool JudgeSite(size_t asked, const KernelAnalysis& kernel, uint32_t i, size_t verdict);
  std::optional<SitePlan> PlanSite(Asked& a, const KernelAnalysis& kernel, uint32_t i, Verdict& v);
  // What of the telemetry buffer a site has.
  struct Place {
    uint32_t counter = 0, record_site = 0;
  };
  // `assumed`: to be proven by RefuseLive.
  bool JudgeEffects(const Asked& a, const KernelAnalysis& kernel, const SitePlan& plan,
                    const Place& place, Verdict& v, Assumed& assumed);
  bool RefuseLive();
  bool RefuseLive(const KernelCode& code, size_t begin, size_t end, std::set<size_t>& gone);
  void RefuseUnequal(const KernelCode& code, size_t begin, size_t end, std::set<size_t>& gone);
  const patch::RegisterSet* Keep(const patch::RegisterSet& set) {
    return &*assumed_.insert(set).first;
  }
  uint32_t LeastJumps(const KernelAnalysis& kernel) const {
    const bool clone = choices_.at(kernel.kernel_index()).placement == patch::Placement::kClone;
    return clone ? 0 : kLeastJumps;
  }
  patch::ProbeRequest Request(const Asked& a, const EffectiveBudget& budget,
                              const KernelAnalysis& kernel, const Place& place) const;
  std::variant<SitePlan, patch::Refusal> Plan(const Asked& a, const KernelAnalysis& kernel,
                                              uint32_t i, const Place& place);
  // What the limit on lost occupancy leaves of a kernel's growth.
  static Headroom RoomToGrow(const EffectiveBudget& budget, const KernelAnalysis& kernel);
  static v1::Violation OverRegisters(const Asked& a, const KernelAnalysis& kernel,
                                     const patch::Refusal& refusal);
  bool HoldsPlace(const Asked& a, const Verdict& v, const Place& place) const;
  void TakePlace(const Asked& a, const Place& place, Verdict& v);
  bool JudgeBudgets(Asked& a, const KernelAnalysis& kernel, const SitePlan& plan, Verdict& v);
  void SetDelta(const KernelAnalysis& kernel, const SitePlan& plan, Verdict& v);
  void Degrade(const KernelAnalysis& kernel, const SitePlan& plan, Verdict& v);
  void EmitAndValidate();
  bool Renumber();
  bool GiveUpClones(const patch::RewriteResult& result);
  bool GiveUpClonesForGrowth(int64_t growth);
  void FallBack(const std::map<size_t, patch::Refusal>& kernels);
  bool ReplanAsTrampoline(size_t candidate);
  std::optional<size_t> TightestGrowth(int64_t growth) const;
  bool GiveUpForGrowth(int64_t growth);
  bool OverInstructions(const std::vector<uint32_t>& executed);
  void Ship(patch::RewriteResult result);
  void NoteSwitches(const patch::RewriteResult& result);
  void NoteApplicationWaits(const ValidationReport& report);
  PatchFacts FactsOf(const patch::RewriteResult& result) const;
  void FollowCounters();
  void RefuseAll(std::string_view id, const std::string& observed, const std::string& limit,
                 const std::string& message);
  void Refuse(Verdict& v, v1::Outcome outcome, v1::Violation violation);
  void RefuseCandidate(Candidate& c, v1::Outcome outcome, v1::Violation violation);
  void Drop(const std::set<size_t>& candidates);
  void Cover();
  void CoverGroup(const VerdictTable::Group& group, uint64_t looked_at);
  void CoverNothing(const Asked& a);
  void CoverPlacement(size_t kernel, v1::Coverage& coverage);
  v1::AdmissionRecord& record() { return out_.record; }
  Verdict& verdict(const Candidate& c) { return verdicts_[c.verdict]; }
  static patch::Position PositionOf(const Asked& a) {
    return contract::PositionOf(a.attachment->spec().position());
  }
  using Sequence = std::tuple<patch::Probe, patch::Position, uint64_t, uint64_t, uint64_t, uint16_t,
                              uint8_t, const BuiltinProbe*, bool>;
  // What a sequence at a site depends on.
  static Sequence SequenceKey(const Asked& a) {
    return {a.probe->probe,
            PositionOf(a),
            a.own.sgpr.value,
            a.own.vgpr.value,
            a.own.occupancy_loss.value,
            a.value_register.first,
            a.value_register.count,
            a.own_probe.get(),
            a.warns};
  }
  static bool WritesRecords(const Asked& a) { return patch::WritesRecords(a.probe->probe); }
  // 64-bit words of a site: the count of events, or of lost records; or what the
  // user's probe keeps there.
  static uint32_t Words(const Asked& a) {
    if (a.file) return a.file->manifest().proto().user().telemetry_words();
    const bool counts =
        a.probe->probe == patch::Probe::kCountWaves || a.probe->probe == patch::Probe::kCountLanes;
    return counts || WritesRecords(a) ? 1 : 0;
  }
  std::variant<patch::UserProbe, v1::Violation>& BodyFor(Asked& a, const KernelAnalysis& kernel);

  absl::Span<const uint8_t> bytes_;
  const Policy& policy_;
  patch::Rewriter& rewriter_;
  const std::vector<const v1::Attachment*>& order_;
  const std::vector<Ladder>& ladders_;
  const Stopwatch& stopwatch_;
  std::vector<Asked> asked_;
  std::vector<std::vector<size_t>> wanted_;  // by kernel: indices of asked_
  std::optional<PatchedObject> prior_;       // what the bytes were patched from
  std::string original_sha256_;              // hex
  std::optional<CodeObject> object_;
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas_;  // by wavefront size
  patch::ObjectFacts facts_;
  InferenceMemo inferences_;
  std::map<size_t, std::unique_ptr<KernelAnalysis>> analyses_;
  std::map<size_t, KernelChoice> choices_;
  std::map<size_t, patch::EntryPlan> entries_;  // by kernel index
  std::map<size_t, Assumed> entries_assume_;
  std::vector<Candidate> candidates_;
  std::vector<SitePlan> plans_;  // parallel to candidates
  // Those of kernels' entries, then plans_; empty if there are no entries.
  std::vector<SitePlan> with_entries_;
  uint32_t next_counter_ = 0, next_record_site_ = 0;
  // Until the number of counters is known the ring is far behind them.
  uint64_t ring_offset_ = uint64_t{1} << 30;
  bool replan_records_ = false;  // what they rest on is gone
  // Verdicts whose instruction is counted by the probe of another one.
  struct Follower {
    size_t verdict, counted_by;
  };
  std::vector<Follower> followers_;
  // Verdicts that a probe of an attachment with a ladder stands for.
  struct Unit {
    size_t asked = 0, kernel = 0, first = 0, last = 0;
  };
  std::vector<Unit> units_;
  std::vector<SumUse> sum_uses_;       // by attachment
  std::vector<uint32_t> loop_depths_;  // by block, of the kernel that is judged
  // What the probes of several attachments at one site come to.
  struct SiteUse {
    SharedSite event;
    std::map<Sequence, uint32_t> sequence_of;  // instructions
  };
  // By instruction, of a kernel that several attachments want, while it is judged.
  std::map<uint32_t, SiteUse> sites_;
  bool shared_ = false;  // the kernel is one
  VerdictTable verdicts_;
  std::vector<uint64_t> looked_at_;  // instructions of the kernel; by the groups of verdicts
  absl::flat_hash_map<uint64_t, KnownInference> known_inferences_;
  struct HashSet {
    size_t operator()(const patch::RegisterSet& set) const { return set.Hash(); }
  };
  std::unordered_set<patch::RegisterSet, HashSet> assumed_;  // stay where they are
  std::optional<ObjectCode> code_;                           // of object_, for the proofs
  DeadProof dead_proof_;
  Admission out_;
};

// ---- Object and attachments -------------------------------------------------------

bool Engine::ParseObject() {
  record().set_code_object_sha256(Sha256Hex(bytes_));
  record().set_size(bytes_.size());
  record().set_engine_version(EngineVersion());
  record().set_beside(policy_.beside);
  const uint64_t limit = std::min(policy_.max_code_object_bytes, CodeObject::kMaxSize);
  if (bytes_.size() > limit) {
    *record().add_object_violations() = MakeViolation(
        id::kObjectTooLarge, StrCat(bytes_.size(), " bytes"), StrCat(limit, " bytes"));
    return false;
  }
  original_sha256_ = record().code_object_sha256();
  if (!TakePatchesBack()) return false;
  auto parsed = CodeObject::Parse(bytes_);
  if (parsed.ok()) {
    object_ = *std::move(parsed);
    record().set_isa(object_->target().ToString());
    record().set_kernels(static_cast<uint32_t>(object_->kernels().size()));
    return true;
  }
  std::string_view id = id::kObjectMalformed;
  if (parsed.status().code() == absl::StatusCode::kUnimplemented) id = id::kObjectUnsupported;
  if (parsed.status().code() == absl::StatusCode::kResourceExhausted) id = id::kObjectTooLarge;
  const bool elf = IsElf(bytes_);
  *record().add_object_violations() = MakeViolation(
      id, elf ? StrCat("an ELF file of ", bytes_.size(), " bytes") : FirstBytes(bytes_),
      "a supported AMDGPU HSA code object", {},
      elf ? std::string(parsed.status().message()) : "the bytes are not an ELF file");
  return false;
}

// The engine works on originals. False: these bytes have none.
bool Engine::TakePatchesBack() {
  absl::StatusOr<std::optional<PatchedObject>> opened = OpenPatched(bytes_);
  if (!opened.ok()) {
    *record().add_object_violations() = MakeViolation(
        id::kPatchesStuck, "patches that cannot be taken back",
        "an original, or patches with a sound record", {}, std::string(opened.status().message()));
    return false;
  }
  if (!opened->has_value()) return true;
  prior_ = **std::move(opened);
  bytes_ = prior_->original;
  original_sha256_ = absl::BytesToHexString(prior_->record.original_sha256());
  v1::PriorPatch* prior = record().mutable_prior_patch();
  prior->set_original_sha256(original_sha256_);
  prior->set_engine_version(prior_->record.engine_version());
  for (const v1::PatchedAttachment& attachment : prior_->record.attachments()) {
    *prior->add_attachments() = attachment.spec();
  }
  return true;
}

void Engine::PrepareAttachments() {
  for (const v1::Attachment* attachment : order_) {
    Asked a;
    a.attachment = attachment;
    a.ladder = &ladders_[asked_.size()];
    a.probe = FindProbe(a.ladder->block_count() ? "block-count" : attachment->spec().probe());
    if (auto s = patch::Selector::Parse(attachment->spec().sites()); s.ok()) {
      a.selector = *std::move(s);
    }
    if (BringsProbe(attachment->spec())) TakeUserProbe(a);
    a.own = ComputeBudget(attachment->spec().budget(), policy_);
    a.warns = attachment->spec().mode() == v1::MODE_WARN;
    a.budget = a.warns ? CeilingBudget(attachment->spec().budget(), policy_) : a.own;
    a.telemetry.emplace(a.budget);
    a.value_register =
        patch::ParseRange(attachment->spec().value_register()).value_or(patch::RegisterRange());
    a.refusals = CheckWhatIsAsked(attachment->spec(), policy_);
    a.placement = attachment->spec().placement();
    if (a.placement == v1::PLACEMENT_UNSPECIFIED) {
      a.placement = policy_.beside ? v1::AUTO : policy_.placement;
    }
    if (!a.selector || a.probe == nullptr) {
      for (const v1::Violation& v : a.refusals) *record().add_object_violations() = v;
    }
    asked_.push_back(std::move(a));
  }
}

void Engine::TakeUserProbe(Asked& a) {
  a.probe = nullptr;
  auto read = UserProbeFile::Read(a.attachment->spec());
  if (auto* file = std::get_if<UserProbeFile>(&read)) {
    a.file = std::move(*file);
    const Manifest& manifest = a.file->manifest();
    a.own_probe = std::make_unique<BuiltinProbe>(
        BuiltinProbe{manifest.proto().probe(), patch::Probe::kUser, false, manifest});
    a.probe = a.own_probe.get();
  }
}

// The user's probe for kernels of this wavefront size.
std::variant<patch::UserProbe, v1::Violation>& Engine::BodyFor(Asked& a,
                                                               const KernelAnalysis& kernel) {
  const uint32_t wave = kernel.isa().wavefront_size();
  auto found = a.bodies.find(wave);
  if (found == a.bodies.end()) {
    found = a.bodies.emplace(wave, a.file->For(object_->target(), kernel.isa())).first;
  }
  return found->second;
}

const KernelAnalysis* Engine::Analyse(size_t index) {
  const Kernel& kernel = object_->kernels()[index];
  v1::Location where;
  where.set_kernel(kernel.name);
  where.set_code_object_vaddr(kernel.entry_vaddr);
  auto& isa = isas_[kernel.wavefront_size];
  if (isa == nullptr) {
    auto created = patch::Isa::Create(object_->target(), kernel.wavefront_size);
    if (!created.ok()) {
      isas_.erase(kernel.wavefront_size);
      *record().add_object_violations() = MakeViolation(
          ForReason(Reason::kUnknownProcessor).id, object_->target().processor,
          "a processor with hardware tables", where, std::string(created.status().message()));
      return nullptr;
    }
    isa = *std::move(created);
  }
  auto analysis = rewriter_.Analyse(*object_, index, *isa, &facts_);
  if (!analysis.ok()) {
    *record().add_object_violations() =
        MakeViolation(id::kKernelUnreadable, StrCat("kernel ", kernel.name),
                      "code backed by the file", where, std::string(analysis.status().message()));
    return nullptr;
  }
  return (analyses_[index] = *std::move(analysis)).get();
}

// ---- Sites ------------------------------------------------------------------------

// Which attachments want which kernels. Those beyond the limit want none.
void Engine::MatchKernels() {
  const auto& kernels = object_->kernels();
  wanted_.resize(kernels.size());
  std::map<std::string, std::vector<size_t>> kernels_of;  // by glob
  for (const Asked& a : asked_) kernels_of[a.attachment->spec().kernel_glob()];
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelName name(kernels[i].name);
    for (auto& [glob, matches] : kernels_of) {
      if (name.Matches(glob)) matches.push_back(i);
    }
  }
  size_t admitted = 0, left_out = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    Asked& a = asked_[i];
    const std::vector<size_t>& matches = kernels_of[a.attachment->spec().kernel_glob()];
    if (!a.selector || a.probe == nullptr || matches.empty()) continue;
    if (admitted >= policy_.max_attachments_per_object) {
      ++left_out;
      a.left_out = true;
      continue;
    }
    ++admitted;
    a.matched = true;
    for (size_t kernel : matches) wanted_[kernel].push_back(i);
  }
  if (left_out == 0) return;
  *record().add_object_violations() = MakeViolation(
      id::kTooManyAttachments, StrCat(admitted + left_out, " attachments"),
      StrCat(policy_.max_attachments_per_object, " attachments of one code object"), {},
      StrCat(admitted + left_out, " attachments want kernels of this code object; the last ",
             left_out, left_out == 1 ? " is" : " are", " left out"));
}

void Engine::JudgeKernel(size_t index) {
  const std::vector<size_t> all = wanted_[index];
  if (all.empty()) return;  // never decoded
  std::map<size_t, v1::Violation> late;
  for (size_t i : all) {
    if (auto violation = Late(asked_[i].budget)) late.emplace(i, *std::move(violation));
  }
  std::vector<size_t>& wanted = wanted_[index];
  std::erase_if(wanted, [&](size_t i) { return late.contains(i); });
  const KernelAnalysis* kernel = wanted.empty() ? nullptr : Analyse(index);
  if (kernel != nullptr) {
    loop_depths_ = patch::LoopDepths(kernel->blocks());
    ChoosePlacement(*kernel, wanted);
    PlanEntry(*kernel);
  }
  bool planned = false;
  shared_ = wanted.size() > 1;
  for (size_t i : all) {
    verdicts_.Begin(index, i);
    const auto violation = late.find(i);
    const bool looked = kernel != nullptr && violation == late.end();
    looked_at_.push_back(looked ? kernel->instructions().size() : 0);
    if (violation != late.end()) JudgeLate(violation->second);
    if (!looked) continue;
    const size_t before = candidates_.size();
    JudgeAttachment(i, *kernel);
    planned |= candidates_.size() > before;
  }
  sites_.clear();
  // Keep what plans and their emission need.
  if (kernel != nullptr) kernel->ReleaseSets();
  if (!planned) analyses_.erase(index);
}

// The same, of an image beside the original.
patch::Refusal NotBeside(const patch::Refusal& not_cloned) {
  return {Reason::kNotBeside, not_cloned.observed, not_cloned.limit,
          StrCat("the kernel cannot run from an image beside the loaded original: ",
                 not_cloned.detail)};
}

// One choice for all attachments: trampolines if any of them asks for these, or
// if the kernel cannot be cloned. Beside the original there are clones alone.
void Engine::ChoosePlacement(const KernelAnalysis& kernel, const std::vector<size_t>& wanted) {
  KernelChoice& choice = choices_[kernel.kernel_index()];
  if (policy_.beside) {
    choice.placement = patch::Placement::kClone;
    if (kernel.CloneObstacle()) choice.not_cloned = NotBeside(*kernel.CloneObstacle());
    return;
  }
  bool clone = false, trampolines = false;
  for (size_t i : wanted) {
    (asked_[i].placement == v1::TRAMPOLINE ? trampolines : clone) = true;
  }
  if (!clone) return;
  if (trampolines) {
    choice.not_cloned = patch::Refusal{Reason::kNotClonable, "trampolines", "a clone",
                                       "another attachment asks for trampolines in the kernel"};
    return;
  }
  choice.not_cloned = kernel.CloneObstacle();
  if (!choice.not_cloned) choice.placement = patch::Placement::kClone;
}

// What the kernel has to keep from its beginning on, if any attachment wants it. It
// is judged like a probe; without it the records say less.
void Engine::PlanEntry(const KernelAnalysis& kernel) {
  const size_t index = kernel.kernel_index();
  entries_.erase(index);
  const Asked* wants = nullptr;
  for (size_t i : wanted_[index]) {
    const Asked& a = asked_[i];
    if (a.probe->probe != patch::Probe::kTraceExec || !a.refusals.empty()) continue;
    if (wants == nullptr || a.own.sgpr.value < wants->own.sgpr.value) wants = &a;
  }
  if (wants == nullptr) return;
  auto planned = rewriter_.PlanEntry(kernel, Request(*wants, wants->own, kernel, {}));
  auto* entry = std::get_if<patch::EntryPlan>(&planned);
  if (entry == nullptr) return;
  InferenceInput input;
  input.sequence = entry->plan.sequence;
  input.live = kernel.LiveAt(0, patch::Position::kBefore);
  input.pending = kernel.PendingAt(0, patch::Position::kBefore);
  const Inference& inference = inferences_.Infer(input, kernel.isa());
  const bool sound = entry->plan.fixups.empty() && inference.effects.memory().empty() &&
                     CheckManifest(inference, wants->probe->manifest, {}).empty();
  if (!sound) return;
  entries_.emplace(index, std::move(*entry));
  entries_assume_[index] = {Keep(inference.assumed_dead), Keep(inference.assumed_landed)};
}

void Engine::JudgeAttachment(size_t asked, const KernelAnalysis& kernel) {
  Asked& a = asked_[asked];
  const auto selection = a.selector->Select(kernel);
  for (const absl::Span<const uint32_t> sites : Units(a, kernel, selection.instructions)) {
    const size_t first = verdicts_.size();
    const uint64_t offset = kernel.instructions().OffsetOf(sites.front());
    if (const auto window = a.ladder->OutOfTurn(kernel.kernel_index(), offset)) {
      RotateOut(asked, kernel, sites, *window);
    } else if (a.probe->per_block) {
      JudgeRegion(asked, kernel, sites);
    } else {
      JudgeSite(asked, kernel, sites.front(), AddVerdict(a, kernel, sites.front()));
    }
    if (a.ladder->asked()) {
      units_.push_back({asked, kernel.kernel_index(), first, verdicts_.size() - 1});
    }
  }
  for (uint64_t offset : selection.missing_offsets) {
    JudgeMissing(kernel, offset);
  }
  for (const patch::Refusal& refusal : selection.refusals) {
    JudgeUnanswerable(refusal);
  }
}

// Sites that one probe stands for.
std::vector<absl::Span<const uint32_t>> Engine::Units(const Asked& a, const KernelAnalysis& kernel,
                                                      absl::Span<const uint32_t> sites) const {
  std::vector<absl::Span<const uint32_t>> units;
  const std::vector<uint32_t> regions =
      a.probe->per_block ? patch::EqualCountRegions(kernel) : std::vector<uint32_t>();
  for (size_t n = 0, end = 0; n < sites.size(); n = end) {
    end = n + 1;
    while (a.probe->per_block && end < sites.size() && regions[sites[end]] == regions[sites[n]]) {
      ++end;
    }
    units.push_back(sites.subspan(n, end - n));
  }
  return units;
}

void Engine::RotateOut(size_t asked, const KernelAnalysis& kernel, absl::Span<const uint32_t> sites,
                       uint32_t window) {
  const Asked& a = asked_[asked];
  const v1::Violation violation = MakeViolation(
      id::kRotatedOut, StrCat("window ", a.ladder->window() + 1, " of ", a.ladder->windows()),
      StrCat("window ", window + 1, " of ", a.ladder->windows()), {},
      StrCat("the attachment's sites take turns, and it is that of window ", a.ladder->window() + 1,
             " of ", a.ladder->windows(), "; this site's is --rotation ", window));
  for (const uint32_t i : sites) {
    Refuse(verdicts_[AddVerdict(a, kernel, i)], v1::ROTATED_OUT, violation);
  }
}

// A violation without a place of its own is at the site.
void Engine::Refuse(Verdict& v, v1::Outcome outcome, v1::Violation violation) {
  v.outcome = outcome;
  v.counter = v.counter_count = v.layout = v.record_site = v.degradations = 0;
  verdicts_.AddViolation(v, std::move(violation));
}

void Engine::JudgeMissing(const KernelAnalysis& kernel, uint64_t offset) {
  Verdict v;
  v.kernel_offset = offset;
  v.site.immovable = Find(id::kNoInstruction);
  Refuse(v, v1::UNSUPPORTED_SITE,
         NoInstructionAt(kernel, offset)
             .value_or(MakeViolation(id::kNoInstruction, StrCat("offset 0x", absl::Hex(offset)),
                                     "an instruction's start", {})));
  verdicts_.Add(v);
}

// The selector asks what the object does not say: one refusal for the kernel.
void Engine::JudgeUnanswerable(const patch::Refusal& refusal) {
  Verdict v;
  v.site.immovable = &ForReason(refusal.reason);
  Refuse(v, v1::UNSUPPORTED_SITE, MakeViolation(refusal, {}));
  verdicts_.Add(v);
}

// The kernel was not looked at: one refusal for it.
void Engine::JudgeLate(const v1::Violation& late) {
  record().set_cut_short(true);
  Verdict v;
  Refuse(v, v1::OVER_BUDGET, late);
  verdicts_.Add(v);
}

std::optional<v1::Violation> Engine::Late(const EffectiveBudget& budget) {
  if (budget.admission_time.value == Limit::kNone) return std::nullopt;
  return CheckAdmissionTime(budget, stopwatch_.Milliseconds());
}

// Every wavefront executes these instructions equally often: the first that can
// take the probe counts for all. Those whose clause would have to be split come
// last. If none can, each has its own refusal.
void Engine::JudgeRegion(size_t asked, const KernelAnalysis& kernel,
                         absl::Span<const uint32_t> sites) {
  std::vector<std::pair<uint32_t, size_t>> trials;  // instruction, verdict
  for (uint32_t i : sites) trials.emplace_back(i, AddVerdict(asked_[asked], kernel, i));
  const std::pair<size_t, size_t> range = {trials.front().second, trials.back().second};
  std::stable_partition(trials.begin(), trials.end(),
                        [&](const auto& t) { return !kernel.SplittableClause(t.first); });
  const auto counting = std::find_if(trials.begin(), trials.end(), [&](const auto& t) {
    return JudgeSite(asked, kernel, t.first, t.second);
  });
  if (counting == trials.end()) return;
  for (size_t v = range.first; v <= range.second; ++v) {
    if (v != counting->second) followers_.push_back({v, counting->second});
  }
}

// Whatever became of the probe that counts for them became of them.
void Engine::FollowCounters() {
  auto group = verdicts_.groups().begin();
  for (const Follower& follower : followers_) {
    while (follower.verdict >= group->end) ++group;
    Verdict& v = verdicts_[follower.verdict];
    const Verdict& by = verdicts_[follower.counted_by];
    v.outcome = by.outcome;
    verdicts_.CopyViolations(by, object_->kernels()[group->kernel], v);
    v.degradations = by.degradations;
    v.delta = v.effects = v.rate = 0;
    if (by.counter == 0) continue;
    v.counter = by.counter;
    v.placement = by.placement;
    v.counted_at = static_cast<uint32_t>(by.kernel_offset) + 1;
  }
}

size_t Engine::AddVerdict(const Asked& a, const KernelAnalysis& kernel, uint32_t i) {
  Verdict v;
  v.kernel_offset = kernel.instructions().OffsetOf(i);
  v.instruction = verdicts_.Text(kernel, i);
  v.site = FactsOfSite(kernel, i, PositionOf(a));
  return verdicts_.Add(v);
}

// True: the site is a candidate.
bool Engine::JudgeSite(size_t asked, const KernelAnalysis& kernel, uint32_t i, size_t index) {
  Asked& a = asked_[asked];
  Verdict& v = verdicts_[index];
  if (!a.refusals.empty()) {
    for (v1::Violation here : a.refusals) {
      const uint32_t line = here.location().manifest_line();
      here.mutable_location()->Clear();
      here.mutable_location()->set_manifest_line(line);
      Refuse(v, v1::REJECTED_EFFECT, std::move(here));
    }
    return false;
  }
  const KernelChoice& choice = choices_[kernel.kernel_index()];
  if ((a.placement == v1::CLONE || policy_.beside) && choice.not_cloned) {
    Refuse(v, v1::UNSUPPORTED_SITE, MakeViolation(*choice.not_cloned, {}));
    return false;
  }
  if (policy_.beside && a.placement == v1::TRAMPOLINE) {
    Refuse(v, v1::UNSUPPORTED_SITE,
           MakeViolation({Reason::kNotBeside, "trampolines", "a clone",
                          "the attachment asks for trampolines, which an image beside the loaded "
                          "original does not have"},
                         {}));
    return false;
  }
  if (a.file) {
    if (auto* unfit = std::get_if<v1::Violation>(&BodyFor(a, kernel))) {
      v1::Violation why = *unfit;
      v1::Location& where = *why.mutable_location();
      if (where.instruction().empty()) where.set_instruction(verdicts_.text(v));
      Refuse(v, v1::UNSUPPORTED_SITE, std::move(why));
      return false;
    }
  }
  if (!RoomAtSite(a, kernel, i, v)) return false;
  if (WritesRecords(a) && next_record_site_ >= RJDBI_RECORD_MOST_SITES) {
    Refuse(v, v1::UNSUPPORTED_SITE,
           MakeViolation(ForReason(Reason::kTooManyRecordSites).id,
                         StrCat(uint64_t{next_record_site_} + 1, " sites"),
                         StrCat(RJDBI_RECORD_MOST_SITES, " sites"), {}));
    return false;
  }
  std::optional<SitePlan> plan = PlanSite(a, kernel, i, v);
  if (!plan) return false;
  const Place place{next_counter_, next_record_site_};
  Assumed assumed;
  if (!JudgeEffects(a, kernel, *plan, place, v, assumed)) return false;
  if (!JudgeBudgets(a, kernel, *plan, v)) return false;
  TakeSite(a, i, v);
  Degrade(kernel, *plan, v);
  next_counter_ += Words(a);
  if (WritesRecords(a)) ++next_record_site_;
  TakePlace(a, place, v);
  candidates_.push_back({index, asked, &kernel, i, assumed});
  plans_.push_back(*std::move(plan));
  return true;
}

// A site that is full for a probe is full for the same probe of a later attachment:
// nothing needs to be planned to know that.
bool Engine::RoomAtSite(const Asked& a, const KernelAnalysis& kernel, uint32_t i, Verdict& v) {
  const auto found = sites_.find(i);
  if (found == sites_.end()) return true;
  const auto known = found->second.sequence_of.find(SequenceKey(a));
  if (known == found->second.sequence_of.end()) return true;
  auto full =
      found->second.event.Check(known->second, LeastJumps(kernel), a.budget.instructions, {});
  if (full) Refuse(v, v1::OVER_BUDGET, *std::move(full));
  return !full;
}

void Engine::TakeSite(const Asked& a, uint32_t i, const Verdict& v) {
  if (!shared_) return;
  const uint32_t own = verdicts_.effects(v).instructions();
  SiteUse& use = sites_[i];
  use.event.Take(own, a.budget.instructions, a.attachment->id());
  use.sequence_of[SequenceKey(a)] = own;
}

void Engine::TakePlace(const Asked& a, const Place& place, Verdict& v) {
  if (Words(a) > 0) v.counter = place.counter + 1;
  if (Words(a) > 1) v.counter_count = Words(a);
  if (WritesRecords(a)) v.record_site = place.record_site;
}

bool Engine::HoldsPlace(const Asked& a, const Verdict& v, const Place& place) const {
  return v.counter == place.counter + 1 &&
         (!WritesRecords(a) || v.record_site == place.record_site);
}

patch::ProbeRequest Engine::Request(const Asked& a, const EffectiveBudget& budget,
                                    const KernelAnalysis& kernel, const Place& place) const {
  patch::ProbeRequest request;
  request.probe = a.probe->probe;
  request.counter_index = place.counter;
  request.record_site = place.record_site;
  request.ring_offset = ring_offset_;
  request.ring_half_bytes = policy_.ring_half_bytes;
  request.value_register = a.value_register;
  if (const auto entry = entries_.find(kernel.kernel_index()); entry != entries_.end()) {
    request.workgroup_ids = entry->second.workgroup_ids;
    request.reserved = entry->second.kept;
  }
  if (a.file) {
    request.user = &std::get<patch::UserProbe>(a.bodies.at(kernel.isa().wavefront_size()));
  }
  const Headroom room = RoomToGrow(budget, kernel);
  const auto least = [](uint64_t limit, uint32_t growth) {
    return static_cast<uint32_t>(std::min<uint64_t>({limit, growth, 1024}));
  };
  request.max_sgpr_delta = least(budget.sgpr.value, room.sgprs);
  request.max_vgpr_delta = least(budget.vgpr.value, room.vgprs);
  request.position = PositionOf(a);
  request.placement = choices_.at(kernel.kernel_index()).placement;
  return request;
}

bool OverRegisterBudget(const patch::Refusal& refusal) {
  return refusal.reason == Reason::kSgprBudget || refusal.reason == Reason::kVgprBudget;
}

// Beyond its own limits only where it has to go: what a mode that warns attaches is
// what one that refuses would, wherever that would attach anything.
std::variant<SitePlan, patch::Refusal> Engine::Plan(const Asked& a, const KernelAnalysis& kernel,
                                                    uint32_t i, const Place& place) {
  auto planned = rewriter_.Plan(kernel, i, Request(a, a.own, kernel, place));
  const auto* refusal = std::get_if<patch::Refusal>(&planned);
  if (!a.warns || refusal == nullptr || !OverRegisterBudget(*refusal)) return planned;
  return rewriter_.Plan(kernel, i, Request(a, a.budget, kernel, place));
}

Headroom Engine::RoomToGrow(const EffectiveBudget& budget, const KernelAnalysis& kernel) {
  const uint64_t loss = budget.occupancy_loss.value;
  if (loss == Limit::kNone) return {};
  const patch::Generation& g = kernel.isa().generation();
  const Shape shape = KernelShape(g, kernel.kernel());
  const int64_t waves = WavesPerSimd(g, shape) - static_cast<int64_t>(std::min<uint64_t>(loss, 64));
  return HeadroomAt(g, shape, static_cast<int32_t>(std::max<int64_t>(waves, 0)));
}

// The rewriter knows the number; whose limit it was is known here.
v1::Violation Engine::OverRegisters(const Asked& a, const KernelAnalysis& kernel,
                                    const patch::Refusal& refusal) {
  const bool sgpr = refusal.reason == Reason::kSgprBudget;
  const Limit& limit = sgpr ? a.budget.sgpr : a.budget.vgpr;
  const std::string_view unit = sgpr ? "SGPRs" : "VGPRs";
  const Headroom room = RoomToGrow(a.budget, kernel);
  const uint32_t growth = sgpr ? room.sgprs : room.vgprs;
  v1::Violation v = MakeViolation(refusal, {});
  if (growth >= limit.value) {
    v.set_limit(LimitText(limit, unit));
    return v;
  }
  const Limit& loss = a.budget.occupancy_loss;
  return MakeViolation(id::kOccupancyBudget, refusal.observed, StrCat(growth, " ", unit), {},
                       StrCat("the probe needs ", refusal.observed, "; the kernel can grow by ",
                              growth, " before it loses more than ", loss.value,
                              " wavefronts per SIMD, which ", loss.source, " allows"));
}

std::optional<SitePlan> Engine::PlanSite(Asked& a, const KernelAnalysis& kernel, uint32_t i,
                                         Verdict& v) {
  const bool clone = choices_[kernel.kernel_index()].placement == patch::Placement::kClone;
  if (auto impossible =
          clone ? kernel.NotInsertable(i, PositionOf(a)) : kernel.Immovable(i, PositionOf(a))) {
    Refuse(v, v1::UNSUPPORTED_SITE, MakeViolation(*impossible, {}));
    return std::nullopt;
  }
  if (a.probe->manifest.Declares(v1::CALLS)) {
    const auto max_delta = static_cast<uint32_t>(std::min<uint64_t>(a.budget.sgpr.value, 1024));
    if (auto refusal = LinkPairUnavailable(kernel, i, max_delta, PositionOf(a))) {
      Refuse(v, v1::UNSUPPORTED_SITE, MakeViolation(*refusal, {}));
      return std::nullopt;
    }
  }
  auto planned = Plan(a, kernel, i, {next_counter_, next_record_site_});
  if (auto* plan = std::get_if<SitePlan>(&planned)) return std::move(*plan);
  const patch::Refusal& refusal = std::get<patch::Refusal>(planned);
  const bool over = OverRegisterBudget(refusal);
  Refuse(v, over ? v1::OVER_BUDGET : v1::UNSUPPORTED_SITE,
         over ? OverRegisters(a, kernel, refusal) : MakeViolation(refusal, {}));
  return std::nullopt;
}

bool Engine::JudgeEffects(const Asked& a, const KernelAnalysis& kernel, const SitePlan& plan,
                          const Place& place, Verdict& v, Assumed& assumed) {
  InferenceInput input;
  input.sequence = plan.sequence;
  const std::vector<patch::WordFixup> fixups(plan.fixups.begin(), plan.fixups.end());
  input.fixups = fixups;
  input.live = kernel.LiveAt(plan.instruction, PositionOf(a));
  input.pending = kernel.PendingAt(plan.instruction, PositionOf(a));
  // What the instruction reads, but for what it overwrites, has arrived when it
  // issues.
  const patch::Instruction ins = kernel.instructions()[plan.instruction];
  input.arrived = ins.uses;
  if (PositionOf(a) == patch::Position::kAfter) input.arrived -= ins.defs | ins.partial_defs;
  // The site's own words and nothing else.
  if (Words(a) > 0) input.telemetry_begin = uint64_t{place.counter} * 8;
  input.telemetry_end = input.telemetry_begin + uint64_t{Words(a)} * 8;
  if (a.probe->probe == patch::Probe::kCountWaves) input.counts = InferenceInput::Counts::kWaves;
  if (a.probe->probe == patch::Probe::kCountLanes) input.counts = InferenceInput::Counts::kLanes;
  if (WritesRecords(a)) {
    input.ring_begin = ring_offset_;
    input.ring_half_bytes = policy_.ring_half_bytes;
  }
  const Inference& inference = inferences_.Infer(input, kernel.isa());
  KnownInference& known = known_inferences_[inference.serial];
  if (known.effects == 0) {
    known.effects = verdicts_.Effects(inference.effects);
    known.assumed = {Keep(inference.assumed_dead), Keep(inference.assumed_landed)};
  }
  assumed = known.assumed;
  v.effects = known.effects;
  v.layout = plan.record ? verdicts_.Layout(LayoutOf(*plan.record)) : 0;
  if (known.kept == a.probe) return true;
  std::vector<v1::Violation> broken = CheckManifest(inference, a.probe->manifest, {});
  for (v1::Violation& b : broken) Refuse(v, v1::REJECTED_EFFECT, std::move(b));
  if (broken.empty()) known.kept = a.probe;
  return broken.empty();
}

void Engine::SetDelta(const KernelAnalysis& kernel, const SitePlan& plan, Verdict& v) {
  const patch::Generation& g = kernel.isa().generation();
  Shape shape = KernelShape(g, kernel.kernel());
  v1::ResourceDelta delta;
  const v1::InferredEffects& effects = verdicts_.effects(v);
  const auto entry = entries_.find(kernel.kernel_index());
  const bool kept = plan.probe == patch::Probe::kTraceExec && entry != entries_.end();
  delta.set_sgpr(kept ? std::max(plan.sgpr_delta, entry->second.plan.sgpr_delta) : plan.sgpr_delta);
  delta.set_vgpr(plan.vgpr_delta);
  // At least the jumps, whatever the plan says.
  delta.set_injected_instructions(
      std::max(plan.injected_instructions, effects.instructions() + LeastJumps(kernel)));
  delta.set_telemetry_bytes_per_event(
      std::max(effects.telemetry_bytes(), verdicts_.layout(v).bytes()));
  delta.set_code_bytes(static_cast<int64_t>(plan.sequence.size()));
  delta.set_occupancy_waves_before(WavesPerSimd(g, shape));
  shape.vgprs += static_cast<uint32_t>(std::max(0, plan.vgpr_delta));
  if (g.sgprs_allocated) shape.sgprs += static_cast<uint32_t>(std::max(0, delta.sgpr()));
  delta.set_occupancy_waves_after(WavesPerSimd(g, shape));
  v.delta = verdicts_.Delta(delta);
}

bool Engine::JudgeBudgets(Asked& a, const KernelAnalysis& kernel, const SitePlan& plan,
                          Verdict& v) {
  SetDelta(kernel, plan, v);
  const v1::ResourceDelta& delta = verdicts_.delta(v);
  const v1::EventRate rate =
      RateAt(a.budget, loop_depths_[kernel.flow().block_of[plan.instruction]]);
  v.rate = verdicts_.Rate(rate);
  std::vector<v1::Violation> over = CheckSiteBudget(a.budget, delta, {});
  const auto shared = sites_.find(plan.instruction);
  if (over.empty() && shared != sites_.end()) {
    const uint32_t own = verdicts_.effects(v).instructions();
    if (auto full = shared->second.event.Check(own, delta.injected_instructions() - own,
                                               a.budget.instructions, {})) {
      over.push_back(*std::move(full));
    }
  }
  if (over.empty()) {
    if (auto full = a.telemetry->Take(delta.telemetry_bytes_per_event(), rate, {})) {
      over.push_back(*std::move(full));
    }
  }
  for (v1::Violation& o : over) Refuse(v, v1::OVER_BUDGET, std::move(o));
  return over.empty();
}

// Sets the outcome, too.
void Engine::Degrade(const KernelAnalysis& kernel, const SitePlan& plan, Verdict& v) {
  const v1::ResourceDelta& delta = verdicts_.delta(v);
  const auto& touched = verdicts_.effects(v).memory();
  const bool unproven_store =
      plan.probe == patch::Probe::kUser &&
      std::find(touched.begin(), touched.end(), v1::APPLICATION_MEMORY_WRITE) != touched.end();
  const bool workgroup_lost =
      plan.record && plan.probe == patch::Probe::kTraceExec && !plan.record->workgroup_id_known;
  const bool occupancy_falls = delta.occupancy_waves_after() < delta.occupancy_waves_before();
  // The validator holds the image to the same clause, so this does not depend on
  // what the plan says. In a clone both parts stay clauses.
  const auto clause = plan.placement == patch::Placement::kTrampoline
                          ? kernel.SplittableClause(plan.instruction)
                          : std::nullopt;
  v.outcome = v1::VERIFIED_ATTACH;
  v.degradations = 0;
  if (!plan.drains_waits && !unproven_store && !workgroup_lost && !occupancy_falls && !clause) {
    return;
  }
  std::vector<v1::Degradation> all;
  if (plan.drains_waits) {
    all.push_back(MakeDegradation(
        id::kDrainsWaits,
        plan.record ? "the probe waits for its place in the ring, and so for all vector memory "
                      "operations in flight"
                    : "the probe waits for loads in flight before it uses their registers"));
  }
  if (unproven_store) {
    all.push_back(MakeDegradation(
        id::kUnprovenStore,
        "the probe writes memory that is not proven to be its own; its manifest grants that"));
  }
  if (workgroup_lost) {
    all.push_back(MakeDegradation(id::kWorkgroupUnknown,
                                  "the records do not name the wavefront's workgroup"));
  }
  if (occupancy_falls) {
    all.push_back(
        MakeDegradation(id::kOccupancyFalls,
                        StrCat("the kernel's occupancy falls from ", delta.occupancy_waves_before(),
                               " to ", delta.occupancy_waves_after(), " wavefronts per SIMD")));
  }
  if (clause) {
    const patch::Instruction& ins = kernel.instructions()[*clause];
    all.push_back(MakeDegradation(
        id::kSplitsClause,
        StrCat("the clause of ", uint32_t{ins.clause_length}, " instructions at kernel+0x",
               absl::Hex(ins.offset),
               " is split: other wavefronts' memory instructions may come between them")));
  }
  v.outcome = v1::ATTACH_WITH_DECLARED_DEGRADATION;
  v.degradations = verdicts_.Degradations(all);
}

// ---- Emission ------------------------------------------------------------------------

void Engine::RefuseCandidate(Candidate& c, v1::Outcome outcome, v1::Violation violation) {
  Refuse(verdict(c), outcome, std::move(violation));
}

void Engine::Drop(const std::set<size_t>& gone) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (gone.count(i) != 0) continue;
    if (kept != i) {
      candidates_[kept] = candidates_[i];
      plans_[kept] = std::move(plans_[i]);
    }
    ++kept;
  }
  candidates_.resize(kept);
  plans_.resize(kept);
}

void Engine::RefuseAll(std::string_view id, const std::string& observed, const std::string& limit,
                       const std::string& message) {
  *record().add_object_violations() = MakeViolation(id, observed, limit, {}, message);
  for (Candidate& c : candidates_) {
    RefuseCandidate(c, v1::UNSUPPORTED_SITE, MakeViolation(id, observed, limit, {}, message));
  }
  candidates_.clear();
  plans_.clear();
}

// Counters are dense: after refusals the remaining plans are made anew for their
// new counters, and judged anew, because they are new bytes. False: a plan that
// was possible before is no longer, which is a bug.
bool Engine::Renumber() {
  Place next;
  for (const Candidate& c : candidates_) {
    next.counter += Words(asked_[c.asked]);
  }
  constexpr uint64_t kAlignment = RJDBI_RING_ALIGNMENT;
  const uint64_t ring = (uint64_t{next.counter} * 8 + kAlignment - 1) / kAlignment * kAlignment;
  const bool moved = ring != ring_offset_ || std::exchange(replan_records_, false);
  ring_offset_ = ring;
  next = {};
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& c = candidates_[i];
    Asked& a = asked_[c.asked];
    Verdict& v = verdict(c);
    if (Words(a) == 0) continue;
    const Place place = next;
    next.counter += Words(a);
    if (WritesRecords(a)) ++next.record_site;
    if (HoldsPlace(a, v, place) && !(moved && WritesRecords(a))) continue;
    auto planned = Plan(a, *c.kernel, c.instruction, place);
    auto* plan = std::get_if<SitePlan>(&planned);
    if (plan == nullptr || !JudgeEffects(a, *c.kernel, *plan, place, v, c.assumed)) {
      return false;
    }
    plans_[i] = std::move(*plan);
    TakePlace(a, place, v);
    Degrade(*c.kernel, plans_[i], v);
  }
  next_counter_ = next.counter;
  next_record_site_ = next.record_site;
  return true;
}

// ---- Clones given up --------------------------------------------------------------------

// A trampoline in a clone's place; what differs is judged anew. False: refused.
bool Engine::ReplanAsTrampoline(size_t candidate) {
  Candidate& c = candidates_[candidate];
  Asked& a = asked_[c.asked];
  Verdict& v = verdict(c);
  const Place place{std::max(v.counter, 1u) - 1, v.record_site};
  auto planned = Plan(a, *c.kernel, c.instruction, place);
  if (const auto* refusal = std::get_if<patch::Refusal>(&planned)) {
    RefuseCandidate(c, v1::UNSUPPORTED_SITE, MakeViolation(*refusal, {}));
    return false;
  }
  SitePlan& plan = plans_[candidate] = std::get<SitePlan>(std::move(planned));
  if (!JudgeEffects(a, *c.kernel, plan, place, v, c.assumed)) return false;
  SetDelta(*c.kernel, plan, v);
  std::vector<v1::Violation> over = CheckSiteBudget(a.budget, verdicts_.delta(v), {});
  for (v1::Violation& o : over) Refuse(v, v1::OVER_BUDGET, std::move(o));
  if (!over.empty()) return false;
  Degrade(*c.kernel, plan, v);
  return true;
}

// These kernels get trampolines, or nothing where a clone was insisted on.
void Engine::FallBack(const std::map<size_t, patch::Refusal>& kernels) {
  for (const auto& [index, refusal] : kernels) {
    choices_[index] = {patch::Placement::kTrampoline, refusal, std::nullopt};
    if (!policy_.beside) PlanEntry(*analyses_.at(index));
  }
  std::set<size_t> gone;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& c = candidates_[i];
    const auto refusal = kernels.find(c.kernel->kernel_index());
    if (refusal == kernels.end()) continue;
    if (asked_[c.asked].placement == v1::CLONE || policy_.beside) {
      RefuseCandidate(c, v1::UNSUPPORTED_SITE, MakeViolation(refusal->second, {}));
      gone.insert(i);
    } else if (!ReplanAsTrampoline(i)) {
      gone.insert(i);
    }
  }
  Drop(gone);
}

bool Engine::GiveUpClones(const patch::RewriteResult& result) {
  std::map<size_t, patch::Refusal> kernels;
  for (const patch::KernelOutcome& outcome : result.kernels) {
    if (!outcome.not_cloned) continue;
    kernels[outcome.kernel_index] =
        policy_.beside ? NotBeside(*outcome.not_cloned) : *outcome.not_cloned;
  }
  if (!kernels.empty()) FallBack(kernels);
  return !kernels.empty();
}

// Trampolines grow the image less; sites are worth more than clones.
bool Engine::GiveUpClonesForGrowth(int64_t growth) {
  if (policy_.beside) return false;
  const auto tightest = TightestGrowth(growth);
  if (!tightest) return false;
  const Limit& limit = asked_[*tightest].budget.code_growth;
  const patch::Refusal refusal{Reason::kNotClonable, StrCat(growth, " bytes of code"),
                               LimitText(limit, "bytes of code"),
                               "with clones the image would grow beyond the budget"};
  std::map<size_t, patch::Refusal> kernels;
  std::set<size_t> insisted;
  for (const Candidate& c : candidates_) {
    const size_t index = c.kernel->kernel_index();
    if (choices_[index].placement == patch::Placement::kClone) kernels[index] = refusal;
    if (asked_[c.asked].placement == v1::CLONE) insisted.insert(index);
  }
  for (size_t index : insisted) kernels.erase(index);
  if (!kernels.empty()) FallBack(kernels);
  return !kernels.empty();
}

// The attachment with the tightest limit that this growth exceeds.
std::optional<size_t> Engine::TightestGrowth(int64_t growth) const {
  std::optional<size_t> tightest;
  for (const Candidate& c : candidates_) {
    const uint64_t limit = asked_[c.asked].budget.code_growth.value;
    if (static_cast<uint64_t>(std::max<int64_t>(growth, 0)) <= limit) continue;
    if (!tightest || limit < asked_[*tightest].budget.code_growth.value) tightest = c.asked;
  }
  return tightest;
}

// The growth of the image as a whole is held against every attachment with a
// site in it, the tightest limit first; that attachment keeps the part of its
// sites, from the lowest address, that would fit in proportion.
bool Engine::GiveUpForGrowth(int64_t growth) {
  const auto tightest = TightestGrowth(growth);
  if (!tightest) return false;
  const Limit& limit = asked_[*tightest].budget.code_growth;
  std::vector<size_t> own;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].asked == *tightest) own.push_back(i);
  }
  const auto proportion = static_cast<double>(limit.value) / static_cast<double>(growth);
  const size_t keep =
      std::min(own.size() - 1, static_cast<size_t>(static_cast<double>(own.size()) * proportion));
  std::set<size_t> gone;
  for (size_t n = keep; n < own.size(); ++n) {
    Candidate& c = candidates_[own[n]];
    gone.insert(own[n]);
    RefuseCandidate(c, v1::OVER_BUDGET, *CheckCodeGrowth(asked_[*tightest].budget, growth));
  }
  Drop(gone);
  return true;
}

// The way to a trampoline may be longer than planned; the validator has counted, for
// each site as a whole.
bool Engine::OverInstructions(const std::vector<uint32_t>& executed) {
  using Place = std::tuple<size_t, uint32_t, size_t>;  // kernel, instruction, candidate
  std::vector<Place> places;
  places.reserve(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (executed[i] == 0) continue;
    const Candidate& c = candidates_[i];
    Verdict& v = verdict(c);
    v1::ResourceDelta delta = verdicts_.delta(v);
    delta.set_injected_instructions(executed[i]);
    v.delta = verdicts_.Delta(delta);
    places.emplace_back(c.kernel->kernel_index(), c.instruction, i);
  }
  std::sort(places.begin(), places.end());
  std::set<size_t> gone;
  const auto same_site = [&](const Place& a, const Place& b) {
    return std::get<0>(a) == std::get<0>(b) && std::get<1>(a) == std::get<1>(b);
  };
  for (auto begin = places.begin(), end = begin; begin != places.end(); begin = end) {
    uint32_t sequences = 0;
    for (; end != places.end() && same_site(*begin, *end); ++end) {
      sequences += verdicts_.effects(verdict(candidates_[std::get<2>(*end)])).instructions();
    }
    const uint32_t total = executed[std::get<2>(*begin)];
    const uint32_t jumps = total - std::min(total, sequences);
    SharedSite event;
    for (auto at = begin; at != end; ++at) {
      const size_t i = std::get<2>(*at);
      Verdict& v = verdict(candidates_[i]);
      const Asked& a = asked_[candidates_[i].asked];
      const uint32_t own = verdicts_.effects(v).instructions();
      if (auto over = event.Check(own, jumps, a.budget.instructions, {})) {
        Refuse(v, v1::OVER_BUDGET, *std::move(over));
        gone.insert(i);
      } else {
        event.Take(own, a.budget.instructions, a.attachment->id());
      }
    }
  }
  Drop(gone);
  return !gone.empty();
}

// ---- What plans rest on -----------------------------------------------------------------

// Plans were judged by what the engine says is live. Here each register that they took
// for dead is held against the code itself: what is not proven to be is refused.
bool Engine::RefuseLive() {
  if (!code_) code_.emplace(*object_);
  std::set<size_t> gone;
  bool entry_gone = false;
  for (size_t begin = 0, end = 0; begin < candidates_.size(); begin = end) {
    const KernelAnalysis* kernel = candidates_[begin].kernel;
    while (end < candidates_.size() && candidates_[end].kernel == kernel) ++end;
    const KernelCode code(*code_, kernel->kernel_index(), kernel->isa());
    entry_gone |= RefuseLive(code, begin, end, gone);
    if (!followers_.empty()) RefuseUnequal(code, begin, end, gone);
  }
  if (entry_gone) replan_records_ = true;
  Drop(gone);
  return entry_gone || !gone.empty();
}

// True: what the kernel keeps from its beginning on cannot be kept.
bool Engine::RefuseLive(const KernelCode& code, size_t begin, size_t end, std::set<size_t>& gone) {
  std::vector<DeadClaim> claims;
  claims.reserve(end - begin + 1);
  for (size_t c = begin; c < end; ++c) {
    const bool behind = plans_[c].position == patch::Position::kAfter;
    const Assumed& assumed = candidates_[c].assumed;
    claims.push_back({candidates_[c].instruction, behind, assumed.dead, assumed.landed});
  }
  const auto entry = entries_.find(code.kernel_index());
  if (entry != entries_.end()) {
    const Assumed& assumed = entries_assume_.at(entry->first);
    claims.push_back({0, false, assumed.dead, assumed.landed});
  }
  bool entry_gone = false;
  for (const NotDead& finding : dead_proof_.Refute(code, claims)) {
    if (begin + finding.claim >= end) {
      entries_.erase(entry);
      entry_gone = true;
      continue;
    }
    RefuseCandidate(
        candidates_[begin + finding.claim], v1::REJECTED_EFFECT,
        MakeViolation(id::kNotProvenDead, ObservedNotDead(finding),
                      "registers that are proven to be free", {}, DescribeNotDead(finding, code)));
    gone.insert(begin + finding.claim);
  }
  return entry_gone;
}

// Instructions that are counted by another one's probe are executed with it.
void Engine::RefuseUnequal(const KernelCode& code, size_t begin, size_t end,
                           std::set<size_t>& gone) {
  std::map<size_t, size_t> counting;  // candidates, by verdict
  for (size_t c = begin; c < end; ++c) counting.emplace(candidates_[c].verdict, c);
  for (const Follower& follower : followers_) {
    const auto by = counting.find(follower.counted_by);
    if (by == counting.end() || gone.count(by->second) != 0) continue;
    const auto i = code.InstructionAt(verdicts_[follower.verdict].kernel_offset);
    Candidate& c = candidates_[by->second];
    if (i && code.TogetherWith(*i, c.instruction)) continue;
    RefuseCandidate(c, v1::REJECTED_EFFECT,
                    MakeViolation(id::kUnproven, "counts of one probe for several instructions",
                                  "instructions that are executed equally often", {},
                                  "the instructions that share the probe's counts are not "
                                  "proven to be executed equally often"));
    gone.insert(by->second);
  }
}

// Of the kernels that have a use for them.
std::vector<SitePlan> Engine::Entries() const {
  std::set<size_t> used;
  for (const SitePlan& plan : plans_) {
    if (plan.probe == patch::Probe::kTraceExec) used.insert(plan.kernel_index);
  }
  std::vector<SitePlan> plans;
  for (const auto& [index, entry] : entries_) {
    if (used.count(index) != 0) plans.push_back(entry.plan);
  }
  return plans;
}

void Engine::EmitAndValidate() {
  for (int round = 0; round < kMaxEmitRounds && !candidates_.empty(); ++round) {
    if (RefuseLate()) continue;
    if (!Renumber()) {
      return RefuseAll(id::kEngineFault, "a plan could not be repeated", "deterministic plans",
                       "a plan could not be repeated for another counter");
    }
    if (RefuseLive()) continue;
    std::vector<const KernelAnalysis*> kernels;
    for (const auto& [index, analysis] : analyses_) kernels.push_back(analysis.get());
    with_entries_ = Entries();
    const size_t entries = with_entries_.size();
    if (entries > 0) with_entries_.insert(with_entries_.end(), plans_.begin(), plans_.end());
    const std::vector<SitePlan>& plans = Emitted();
    auto result = rewriter_.Emit(*object_, kernels, plans, policy_.beside);
    if (!result.ok()) {
      const std::string message(result.status().message());
      return RefuseAll(id::kEngineFault, message, "no failure", message);
    }
    if (GiveUpClones(*result)) continue;
    std::set<size_t> gone;
    bool entry_gone = false;
    for (const patch::EmittedSite& site : result->sites) {
      if (!site.refusal || site.plan >= plans.size()) continue;
      if (site.plan < entries) {
        entries_.erase(plans[site.plan].kernel_index);
        entry_gone = true;
        continue;
      }
      Candidate& c = candidates_[site.plan - entries];
      if (!gone.insert(site.plan - entries).second) continue;
      RefuseCandidate(c, v1::UNSUPPORTED_SITE, MakeViolation(*site.refusal, {}));
    }
    if (entry_gone) replan_records_ = true;
    if (!gone.empty() || entry_gone) {
      Drop(gone);
      continue;
    }
    if (GiveUpClonesForGrowth(result->code_growth)) continue;
    if (GiveUpForGrowth(result->code_growth)) continue;
    const ValidationReport report =
        ValidateImage(*object_, kernels, plans, *result, policy_.beside, &*code_);
    if (!report.findings.empty()) {
      const ValidationFinding& f = report.findings.front();
      const std::string where =
          f.vaddr != 0 ? StrCat(f.what, " (address 0x", absl::Hex(f.vaddr), ")") : f.what;
      if (!f.constraint.empty()) {
        return RefuseAll(f.constraint, f.what, "the original's waits",
                         StrCat("the patched image lacks a wait: ", where));
      }
      return RefuseAll(id::kValidationFailed, StrCat(report.findings.size(), " findings"),
                       "0 findings", StrCat("the patched image failed validation: ", where));
    }
    const std::vector<uint32_t> executed(
        report.executed_instructions.begin() + static_cast<ptrdiff_t>(entries),
        report.executed_instructions.end());
    if (OverInstructions(executed)) continue;
    if (OverDescriptors(*result)) continue;
    DeclareOverruns(result->code_growth);
    NoteApplicationWaits(report);
    return Ship(*std::move(result));
  }
  if (!candidates_.empty()) {
    RefuseAll(id::kEngineFault, StrCat(kMaxEmitRounds, " rounds"), "fewer rounds",
              "the set of sites did not settle");
  }
}

// What has not become code by the time that its attachment has.
bool Engine::RefuseLate() {
  std::map<size_t, v1::Violation> late;  // by attachment
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (auto violation = Late(asked_[i].budget)) late.emplace(i, *std::move(violation));
  }
  if (late.empty()) return false;
  std::set<size_t> gone;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const auto found = late.find(candidates_[i].asked);
    if (found == late.end()) continue;
    RefuseCandidate(candidates_[i], v1::OVER_BUDGET, found->second);
    gone.insert(i);
  }
  if (!gone.empty()) record().set_cut_short(true);
  Drop(gone);
  return !gone.empty();
}

// The descriptor in the finished image; it is where it was, which the validator has
// seen to.
std::optional<patch::KernelDescriptor> DescriptorIn(const std::vector<uint8_t>& image,
                                                    const CodeObject& original,
                                                    const Kernel& kernel) {
  constexpr uint64_t kBytes = 64;
  for (const patch::Segment& s : original.segments()) {
    const uint64_t at = kernel.descriptor_vaddr - s.vaddr;  // wraps where it is below
    if (at >= s.filesz || s.filesz - at < kBytes) continue;
    if (image.size() < kBytes || s.offset + at > image.size() - kBytes) continue;
    return patch::KernelDescriptor::Read(image.data() + s.offset + at);
  }
  return std::nullopt;
}

// What the finished descriptors ask for beyond the originals'.
bool Engine::OverDescriptors(const patch::RewriteResult& result) {
  std::map<size_t, v1::ResourceDelta> grown;  // by kernel: what is not zero
  for (const auto& [index, analysis] : analyses_) {
    const Kernel& kernel = analysis->kernel();
    const auto after = DescriptorIn(result.image, *object_, kernel);
    if (!after) continue;
    v1::ResourceDelta delta;
    SetDescriptorDelta(analysis->isa().generation(), kernel.wavefront_size, kernel.descriptor,
                       *after, delta);
    if (delta.agpr() != 0 || delta.scratch_bytes() != 0 || delta.lds_bytes() != 0) {
      grown.emplace(index, delta);
    }
  }
  if (grown.empty()) return false;
  std::set<size_t> gone;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& c = candidates_[i];
    const auto found = grown.find(c.kernel->kernel_index());
    if (found == grown.end()) continue;
    Verdict& v = verdict(c);
    v1::ResourceDelta delta = verdicts_.delta(v);
    delta.set_agpr(found->second.agpr());
    delta.set_scratch_bytes(found->second.scratch_bytes());
    delta.set_lds_bytes(found->second.lds_bytes());
    v.delta = verdicts_.Delta(delta);
    std::vector<v1::Violation> over = CheckSiteBudget(asked_[c.asked].budget, delta, {});
    if (over.empty()) continue;
    for (v1::Violation& o : over) Refuse(v, v1::OVER_BUDGET, std::move(o));
    gone.insert(i);
  }
  Drop(gone);
  return !gone.empty();
}

// Of attachments that only warn: what would have been refused is declared.
void Engine::DeclareOverruns(int64_t code_growth) {
  std::map<size_t, TelemetryBudget> telemetry;  // by attachment
  std::map<size_t, std::optional<v1::Violation>> late;
  for (const Candidate& c : candidates_) {
    const Asked& a = asked_[c.asked];
    if (!a.warns) continue;
    Verdict& v = verdict(c);
    const v1::ResourceDelta& delta = verdicts_.delta(v);
    std::vector<v1::Violation> over = CheckSiteBudget(a.own, delta, {});
    const auto [sum, fresh] = telemetry.try_emplace(c.asked, a.own);
    if (fresh) late[c.asked] = Late(a.own);
    const auto add = [&](std::optional<v1::Violation> violation) {
      if (violation) over.push_back(*std::move(violation));
    };
    add(sum->second.Take(delta.telemetry_bytes_per_event(), verdicts_.rate(v), {}));
    add(CheckCodeGrowth(a.own, code_growth));
    add(late[c.asked]);
    if (over.empty()) continue;
    const auto& known = verdicts_.degradations(v);
    std::vector<v1::Degradation> all(known.begin(), known.end());
    for (const v1::Violation& o : over) {
      all.push_back(MakeDegradation(id::kOverOwnLimit,
                                    StrCat(o.message(), " (", o.constraint_id(), ", mode warn)")));
    }
    v.outcome = v1::ATTACH_WITH_DECLARED_DEGRADATION;
    v.degradations = verdicts_.Degradations(all);
  }
}

// Some of them: the record is not the place for a list.
void Engine::NoteApplicationWaits(const ValidationReport& report) {
  constexpr int kMost = 16;
  const CodeAt code = CodeIn(*object_);
  for (const ApplicationWait& wait : report.application_waits) {
    if (record().application_missing_waits_size() >= kMost) return;
    const KernelAnalysis& kernel = *analyses_.at(wait.kernel_index);
    *record().add_application_missing_waits() =
        MakeMissingWait(wait.wait, kernel.kernel(), kernel.isa(), code);
  }
}

v1::Placement PlacementOf(patch::Placement placement) {
  return placement == patch::Placement::kClone ? v1::CLONE : v1::TRAMPOLINE;
}

PatchFacts Engine::FactsOf(const patch::RewriteResult& result) const {
  const std::vector<SitePlan>& emitted = Emitted();
  PatchFacts facts{*object_, emitted, result.sites, result.kernels, {}, {}, {}};
  std::map<size_t, uint32_t> numbers;  // of the attachments that have sites
  for (const Candidate& c : candidates_) numbers.emplace(c.asked, 0);
  for (auto& [asked, number] : numbers) {
    number = static_cast<uint32_t>(facts.attachments.size());
    *facts.attachments.emplace_back().mutable_spec() = asked_[asked].attachment->spec();
  }
  // What a kernel keeps from its entry on belongs to the first attachment that reads it.
  for (size_t e = 0; e + plans_.size() < emitted.size(); ++e) {
    const auto reader = std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& c) {
      return c.kernel->kernel_index() == emitted[e].kernel_index &&
             asked_[c.asked].probe->probe == patch::Probe::kTraceExec;
    });
    facts.attachment_of.push_back(numbers.at(reader->asked));
    facts.instruction_offset.push_back(0);
  }
  for (const Candidate& c : candidates_) {
    v1::PatchedAttachment& attachment = facts.attachments[numbers[c.asked]];
    attachment.set_sites(attachment.sites() + 1);
    facts.attachment_of.push_back(numbers[c.asked]);
    facts.instruction_offset.push_back(
        static_cast<uint32_t>(c.kernel->instructions()[c.instruction].offset));
  }
  return facts;
}

// Kernels come in the object's order, and those with a site alone.
void Engine::NoteSwitches(const patch::RewriteResult& result) {
  for (const patch::KernelOutcome& outcome : result.kernels) {
    const Kernel& kernel = object_->kernels()[outcome.kernel_index];
    const auto descriptor = DescriptorIn(result.image, *object_, kernel);
    if (!descriptor) continue;  // the validator has read it
    KernelSwitch& to = out_.switches.emplace_back();
    to.kernel = kernel.name;
    // Where the original has it: nothing of the original moves.
    to.original_descriptor = to.descriptor = kernel.descriptor_vaddr;
    to.private_segment_bytes = descriptor->private_segment_fixed_size;
    to.group_segment_bytes = descriptor->group_segment_fixed_size;
  }
}

void Engine::Ship(patch::RewriteResult result) {
  v1::PatchRecord patch;
  patch.set_engine_version(EngineVersion());
  patch.set_original_sha256(absl::HexStringToBytes(original_sha256_));
  patch.set_beside(policy_.beside);
  if (policy_.beside) NoteSwitches(result);
  const PatchFacts facts = FactsOf(result);
  // Nothing needs the code any more: what is made now takes its room.
  analyses_.clear();
  isas_.clear();
  const absl::Status added = AddPatchRecord(facts, std::move(patch), result.image);
  if (!added.ok()) {
    const bool large = absl::IsResourceExhausted(added);
    return RefuseAll(large ? id::kObjectTooLarge : id::kEngineFault, std::string(added.message()),
                     large ? StrCat(CodeObject::kMaxSize, " bytes") : "no failure",
                     std::string(added.message()));
  }
  for (const patch::KernelOutcome& outcome : result.kernels) {
    choices_[outcome.kernel_index].code_bytes = outcome.code_bytes;
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    verdict(candidates_[i]).placement = PlacementOf(plans_[i].placement);
  }
  out_.kernels = std::move(result.kernels);
  out_.patched = std::move(result.image);
  out_.fixups = std::move(result.fixups);
  record().set_patched_size(out_.patched.size());
  record().set_patched_sha256(Sha256Hex(out_.patched));
  record().set_counter_count(next_counter_);
  if (next_record_site_ == 0) return;
  record().set_ring_offset(ring_offset_);
  record().set_ring_half_bytes(policy_.ring_half_bytes);
}

// ---- Coverage --------------------------------------------------------------------------

void Engine::CoverNothing(const Asked& a) {
  v1::Coverage* c = record().add_coverage();
  c->set_code_object_sha256(record().code_object_sha256());
  c->set_attachment_id(a.attachment->id());
  c->set_isa(record().isa());
}

void Engine::CoverPlacement(size_t kernel, v1::Coverage& coverage) {
  const auto found = choices_.find(kernel);
  if (found == choices_.end() || !found->second.code_bytes) return;
  const KernelChoice& choice = found->second;
  v1::KernelPlacement* placement = coverage.mutable_placement();
  placement->set_placement(PlacementOf(choice.placement));
  placement->set_code_bytes(static_cast<int64_t>(*choice.code_bytes));
  if (!choice.not_cloned) return;
  v1::Location where;
  where.set_kernel(object_->kernels()[kernel].name);
  where.set_code_object_vaddr(object_->kernels()[kernel].entry_vaddr);
  *placement->mutable_not_cloned() = MakeViolation(*choice.not_cloned, where);
}

// What each attachment's probes come to, and whether a sum was in their way.
void Engine::SumUp() {
  sum_uses_.resize(asked_.size());
  for (size_t i = 0; i < asked_.size(); ++i) {
    sum_uses_[i].telemetry_limit = asked_[i].budget.telemetry.value;
  }
  for (const Unit& unit : units_) {
    SumUse& use = sum_uses_[unit.asked];
    ProbeUnit probe{unit.kernel, verdicts_[unit.first].kernel_offset, 0};
    bool attached = false;
    std::string_view over;
    for (size_t i = unit.first; i <= unit.last; ++i) {
      const Verdict& v = verdicts_[i];
      const auto& violations = verdicts_.violations(v);
      attached |= v.attached();
      const uint64_t bytes =
          TelemetryRate(verdicts_.delta(v).telemetry_bytes_per_event(), verdicts_.rate(v));
      if (v.outcome == v1::OVER_BUDGET && violations.size() == 1) {
        for (const std::string_view sum : {id::kTelemetryBudget, id::kCodeGrowthBudget}) {
          if (violations.Get(0).constraint_id() == sum) over = sum;
        }
      }
      probe.bytes_per_second = std::max(probe.bytes_per_second, bytes);
    }
    if (!attached && over.empty()) continue;
    use.attached += attached ? 1 : 0;
    use.units.push_back(probe);
    if (attached) continue;
    if (use.over.empty()) use.over = over;
    use.growth |= over == id::kCodeGrowthBudget;
  }
}

void Engine::CoverGroup(const VerdictTable::Group& group, uint64_t looked_at) {
  uint64_t selected = 0;
  std::map<uint8_t, uint64_t> outcomes;
  std::map<std::string, uint64_t> refused, degradations;
  uint64_t events = 0, bytes = 0;
  std::set<v1::RateSource> sources;
  for (size_t i = group.begin; i < group.end; ++i) {
    const Verdict& v = verdicts_[i];
    ++outcomes[v.outcome];
    if (v.site.instruction_bytes != 0) ++selected;
    if (v.attached()) {
      std::set<std::string> ids;
      for (const v1::Degradation& g : verdicts_.degradations(v)) ids.insert(g.constraint_id());
      for (const std::string& id : ids) ++degradations[id];
      if (v.rate == 0) continue;
      const v1::EventRate& rate = verdicts_.rate(v);
      sources.insert(rate.source());
      events = SaturatingAdd(events, rate.events_per_second());
      bytes =
          SaturatingAdd(bytes, TelemetryRate(verdicts_.delta(v).telemetry_bytes_per_event(), rate));
    } else if (v.outcome != v1::ROTATED_OUT) {
      const auto& violations = verdicts_.violations(v);
      ++refused[violations.empty() ? std::string(id::kEngineFault)
                                   : violations.Get(0).constraint_id()];
    }
  }
  CoverNothing(asked_[group.attachment]);
  v1::Coverage* c = record().mutable_coverage(record().coverage_size() - 1);
  c->set_kernel(object_->kernels()[group.kernel].name);
  c->set_requested(group.end - group.begin);
  c->set_attached(outcomes[v1::VERIFIED_ATTACH]);
  c->set_degraded(outcomes[v1::ATTACH_WITH_DECLARED_DEGRADATION]);
  c->set_unsupported(outcomes[v1::UNSUPPORTED_SITE]);
  c->set_rejected(outcomes[v1::REJECTED_EFFECT]);
  c->set_over_budget(outcomes[v1::OVER_BUDGET]);
  c->set_rotated_out(outcomes[v1::ROTATED_OUT]);
  c->set_expected_events_per_second(events);
  c->set_expected_telemetry_bytes_per_second(bytes);
  if (sources.size() == 1) c->set_rate_source(*sources.begin());
  CoverPlacement(group.kernel, *c);
  c->set_not_selected(looked_at - std::min(looked_at, selected));
  for (const auto& [id, n] : refused) CountReason(*c->mutable_refused(), id, n);
  for (const auto& [id, n] : degradations) CountReason(*c->mutable_degradations(), id, n);
}

// Groups come by kernel, then by attachment.
void Engine::Cover() {
  for (size_t g = 0; g < verdicts_.groups().size(); ++g) {
    CoverGroup(verdicts_.groups()[g], looked_at_[g]);
  }
  for (const Asked& a : asked_) {
    if (a.matched) continue;
    CoverNothing(a);
    if (!a.left_out) continue;
    v1::Coverage* c = record().mutable_coverage(record().coverage_size() - 1);
    CountReason(*c->mutable_refused(), id::kTooManyAttachments, 0);
  }
}

Admission Engine::Run() {
  const bool parsed = ParseObject();
  PrepareAttachments();
  if (parsed) {
    MatchKernels();
    for (size_t i = 0; i < object_->kernels().size(); ++i) JudgeKernel(i);
    EmitAndValidate();
    FollowCounters();
  }
  SumUp();
  Cover();
  if (verdicts_.size() > 0) {
    std::vector<std::string> ids;
    for (const Asked& a : asked_) ids.push_back(a.attachment->id());
    *record().mutable_table() = verdicts_.Write(object_->kernels(), ids);
  }
  return std::move(out_);
}

}  // namespace

const std::string& EngineVersion() {
  static const auto& version =
      *new std::string(absl::StrCat(kEngineVersion, "+llvm", patch::LlvmVersion()));
  return version;
}

namespace {

// What was done about sums, in the rows of the kernels where it shows.
void AddReductions(const std::vector<const v1::Attachment*>& attachments,
                   const std::vector<Ladder>& ladders, v1::AdmissionRecord& record) {
  for (size_t i = 0; i < attachments.size(); ++i) {
    for (v1::Coverage& row : *record.mutable_coverage()) {
      if (row.kernel().empty() || row.attachment_id() != attachments[i]->id()) continue;
      for (const v1::Reduction& step : ladders[i].steps()) *row.add_reductions() = step;
    }
  }
}

// Judges, and judges anew for each step that attachments over budget allow.
Admission AdmitReduced(absl::Span<const uint8_t> object,
                       const std::vector<const v1::Attachment*>& attachments, const Policy& policy,
                       patch::Rewriter& rewriter, const Clock& now) {
  const Stopwatch stopwatch{now};
  std::vector<Ladder> ladders;
  for (const v1::Attachment* a : attachments) ladders.emplace_back(a->spec());
  for (;;) {
    Engine engine(object, attachments, ladders, policy, rewriter, stopwatch);
    Admission admission = engine.Run();
    bool again = false;
    for (size_t i = 0; i < ladders.size(); ++i) {
      if (ladders[i].asked()) again |= ladders[i].Step(engine.sum_uses()[i]);
    }
    if (again) continue;
    AddReductions(attachments, ladders, admission.record);
    return admission;
  }
}

}  // namespace

Admission Admit(absl::Span<const uint8_t> object, const std::vector<v1::Attachment>& attachments,
                const Policy& policy, patch::Rewriter& rewriter, const Clock& now) {
  std::vector<const v1::Attachment*> all, shipped;
  for (const v1::Attachment& a : attachments) all.push_back(&a);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto* a, const auto* b) { return NaturalLess(a->id(), b->id()); });
  for (const v1::Attachment* a : all) {
    if (!IsDryRun(*a)) shipped.push_back(a);
  }
  Admission admission = AdmitReduced(object, shipped, policy, rewriter, now);
  if (shipped.size() == all.size()) return admission;
  AddDryRuns(AdmitReduced(object, all, policy, rewriter, now).record, attachments,
             admission.record);
  return admission;
}

std::vector<v1::Violation> CheckSpec(const v1::AttachmentSpec& spec, const Policy& policy) {
  std::vector<v1::Violation> out = CheckFields(spec);
  for (v1::Violation& v : CheckWhatIsAsked(spec, policy)) out.push_back(std::move(v));
  for (v1::Violation& v : CheckCeiling(spec.budget(), policy)) out.push_back(std::move(v));
  for (v1::Violation& v : CheckReductions(spec)) out.push_back(std::move(v));
  return out;
}

}  // namespace rjdbi::contract
