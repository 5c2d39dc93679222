// Verbs that ask the daemon.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/files.h"
#include "clients/html_report.h"
#include "clients/live_effect.h"
#include "clients/record_report.h"
#include "clients/report_rows.h"
#include "clients/vacuous.h"
#include "clients/verbs.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/demangle.h"
#include "contract/near_miss.h"

namespace rjdbi::clients {
namespace {

constexpr size_t kShortHash = 12;

std::string Count(uint64_t n, const std::string& what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

std::string Target(const v1::AttachmentSpec& spec) {
  std::string text;
  if (spec.pid() != 0) absl::StrAppend(&text, "pid ", spec.pid());
  if (!spec.process_glob().empty()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", spec.process_glob());
  }
  return text.empty() ? "every process" : Printable(text);
}

std::string VerdictName(v1::AdmitVerdict verdict) {
  static const std::map<v1::AdmitVerdict, std::string> kNames = {
      {v1::ORIGINAL_NOT_SELECTED, "not selected"},
      {v1::ORIGINAL_REFUSED, "refused"},
      {v1::PATCHED, "patched"}};
  const auto found = kNames.find(verdict);
  return found == kNames.end() ? "unknown" : found->second;
}

void PrintAttachments(const Output& out, const v1::GetStatusReply& reply) {
  if (reply.attachments_size() == 0) return out.Print("Nothing is attached.\n");
  const bool owned = std::any_of(reply.attachments().begin(), reply.attachments().end(),
                                 [](const v1::Attachment& a) { return !a.spec().owner().empty(); });
  std::vector<std::string> header = {"ATTACHMENT", "KERNEL",    "SITES",
                                     "PROBE",      "PROCESSES", "SINCE"};
  if (owned) header.push_back("OWNER");
  std::vector<std::vector<std::string>> rows;
  for (const v1::Attachment& a : reply.attachments()) {
    rows.push_back({a.id(), Printable(a.spec().kernel_glob()), Printable(a.spec().sites()),
                    Printable(a.spec().probe()), Target(a.spec()),
                    FormatTime(a.created_unix_ns())});
    if (owned) rows.back().push_back(a.spec().owner().empty() ? "-" : Printable(a.spec().owner()));
  }
  out.Table(header, rows);
}

// The processes that run, and the latest of the others.
void PrintSessions(const Output& out, const v1::GetStatusReply& reply, bool all) {
  constexpr int64_t kEnded = 10;
  if (reply.sessions_size() == 0) return out.Print("No process has connected.\n");
  std::vector<std::vector<std::string>> rows;
  const int64_t ended = std::count_if(reply.sessions().begin(), reply.sessions().end(),
                                      [](const auto& s) { return s.closed_unix_ns() != 0; });
  int64_t hidden = all ? 0 : std::max<int64_t>(0, ended - kEnded);
  if (hidden > 0) {
    out.Print(absl::StrFormat("%d processes that ended earlier are not shown (--all)\n", hidden));
  }
  for (const v1::Session& s : reply.sessions()) {
    if (s.closed_unix_ns() != 0 && hidden > 0) {
      --hidden;
      continue;
    }
    const char* state = s.closed_unix_ns() != 0         ? s.closed_cleanly() ? "ended" : "lost"
                        : s.live() == v1::LIVE_CURRENT  ? "live"
                        : s.live() == v1::LIVE_APPLYING ? "applying"
                                                        : "open";
    rows.push_back({s.id().substr(0, kShortHash), absl::StrCat(s.pid()), absl::StrCat(s.uid()),
                    state, absl::StrCat(s.code_objects()), absl::StrCat(s.patched()),
                    absl::StrCat(s.gaps()), FormatTime(s.opened_unix_ns()),
                    Printable(s.executable())});
  }
  out.Table({"SESSION", "PID", "UID", "STATE", "OBJECTS", "PATCHED", "GAPS", "SINCE", "EXECUTABLE"},
            rows, {1, 2, 4, 5, 6});
}

void PrintGpus(const Output& out, const v1::GetStatusReply& reply) {
  if (reply.gpus_size() == 0) {
    return out.Print(absl::StrCat("No GPU: ", reply.gpu_inventory_note(), ".\n"));
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::Gpu& gpu : reply.gpus()) {
    rows.push_back(
        {absl::StrCat(gpu.index()), gpu.isa(), gpu.pci_address(), Printable(gpu.name())});
  }
  out.Table({"GPU", "ISA", "PCI", "NAME"}, rows);
}

void PrintGaps(const Output& out, const v1::GetCoverageReply& reply) {
  for (const v1::Gap& gap : reply.gaps()) {
    const contract::CatalogueEntry& entry = contract::ForGap(gap.kind());
    out.Print(absl::StrCat("gap[", std::string(entry.id), "]: ", std::string(entry.title), ": ",
                           Printable(gap.origin()), " (", FormatBytes(gap.size()), ")",
                           gap.detail().empty() ? "" : ": ", Printable(gap.detail()), "\n"));
  }
}

// Attachments that are gone are marked, or their absence is noted.
std::set<std::string> Detached(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  return {ids.begin(), ids.end()};
}

void NoteDetached(const Output& out, const google::protobuf::RepeatedPtrField<std::string>& ids,
                  bool all) {
  if (all || ids.empty()) return;
  out.Note(absl::StrCat("note: what ", ids.size(),
                        ids.size() == 1 ? " detached attachment has" : " detached attachments have",
                        " left is not shown (--all)"));
}

std::string MarkedId(const std::string& id, const std::set<std::string>& detached) {
  return detached.count(id) != 0 ? id + " (detached)" : id;
}

void PrintObjectViolations(
    const Output& out, const google::protobuf::RepeatedPtrField<v1::CodeObjectSummary>& objects) {
  for (const v1::CodeObjectSummary& object : objects) {
    for (const v1::Violation& violation : object.object_violations()) {
      out.Print(absl::StrCat("object ", object.sha256().substr(0, kShortHash), ", ",
                             Printable(object.origin()), " (", FormatBytes(object.size()), "):\n",
                             contract::RenderViolation(violation, out.render())));
    }
  }
}

uint64_t Gaps(const v1::GetCoverageReply& reply) {
  return static_cast<uint64_t>(reply.gaps_size()) + reply.folded_gaps();
}

void PrintCoverage(const Output& out, const v1::GetCoverageReply& reply, bool all) {
  google::protobuf::RepeatedPtrField<v1::Coverage> rows;
  const std::set<std::string> detached = Detached(reply.detached_attachments());
  size_t hidden = 0;
  for (const v1::Coverage& row : reply.coverage()) {
    if (!all && row.requested() == 0 && RuntimeKernel(row.kernel())) {
      ++hidden;
      continue;
    }
    *rows.Add() = row;
    rows.rbegin()->set_attachment_id(MarkedId(row.attachment_id(), detached));
  }
  out.Print(contract::RenderCoverage(rows, out.render()));
  PrintObjectViolations(out, reply.refused_objects());
  PrintGaps(out, reply);
  if (reply.folded_processes() > 0) {
    out.Print(
        absl::StrCat(reply.folded_processes(),
                     reply.folded_processes() == 1 ? " process that is" : " processes that are",
                     " gone and no longer listed, with ", Count(reply.folded_gaps(), "gap"),
                     ": only in the sums\n"));
  }
  out.Print(
      absl::StrCat(contract::RenderTotal(reply.total()), "; ", Count(Gaps(reply), "gap"), "\n"));
  NoteHidden(out, hidden);
}

}  // namespace

int CoverageExit(const v1::GetCoverageReply& reply) {
  const v1::Coverage& total = reply.total();
  const uint64_t done = contract::DoneSites(total);
  if (done == 0 || !FindVacuous(reply).empty()) return kRefused;
  const bool whole = done == total.requested() && Gaps(reply) == 0 &&
                     reply.refused_objects_size() == 0 && reply.pending_processes().empty();
  return whole ? kOk : kPartial;
}

namespace {

// Of all that rjdbid knows.
std::vector<std::string> KernelNames(ControlClient& client) {
  v1::ListKernelsReply kernels;
  std::vector<std::string> names;
  if (!client.ListKernels({}, kernels).ok()) return names;
  for (const v1::KernelSummary& kernel : kernels.kernels()) names.push_back(kernel.name());
  return names;
}

// What was probably meant by a glob that matches none of them.
std::string NearKernels(const std::string& glob, const std::vector<std::string>& names) {
  return names.empty() ? "rjdbid has not been sent a code object with kernels"
                       : Printable(contract::DidYouMean(contract::ClosestKernels(glob, names)));
}

}  // namespace

void NoteDetachedIn(const Context& context, const v1::GetCoverageReply& reply,
                    const Filter& filter) {
  NoteDetached(context.out, reply.detached_attachments(), filter.all || !filter.attachment.empty());
}

void WarnVacuousIn(const Context& context, const v1::GetCoverageReply& reply) {
  const auto& pending = reply.pending_processes();
  for (const auto& [id, n] : std::map<std::string, uint32_t>(pending.begin(), pending.end())) {
    context.out.Warn(absl::StrCat(Printable(id), " is pending in ", n,
                                  n == 1 ? " process that has" : " processes that have",
                                  " not taken it over yet (rjctl status: applying)"));
  }
  const std::vector<Vacuous> vacuous = FindVacuous(reply);
  v1::GetStatusReply status;
  ControlClient client(context.control_socket);
  if (vacuous.empty() || !client.GetStatus({}, status).ok()) return;
  std::optional<std::vector<std::string>> names;
  for (const Vacuous& v : vacuous) {
    for (const v1::Attachment& attachment : status.attachments()) {
      if (attachment.id() != v.id) continue;
      std::string hint;
      if (v.kernels == 0 && v.left_out.empty()) {
        if (!names) names = KernelNames(client);
        hint = NearKernels(attachment.spec().kernel_glob(), *names);
      }
      WarnVacuous(context.out, v, attachment.spec(), hint);
    }
  }
}

namespace {

// What an attachment has come to in processes that have taken it over. No such kernel yet is
// no fault: they may load one. That it matches kernels and is nowhere in them is one.
int TakenOver(const Context& context, ControlClient& client, const v1::AttachmentSpec& spec,
              const v1::GetCoverageReply& coverage) {
  const v1::Coverage& total = coverage.total();
  const std::vector<Vacuous> vacuous = FindVacuous(coverage);
  if (vacuous.empty() && total.requested() > 0) {
    context.out.Note(absl::StrCat(contract::DoneSites(total), " of ",
                                  Count(total.requested(), "site"),
                                  spec.mode() == v1::MODE_DRYRUN ? " judged" : " attached",
                                  " in what processes have loaded; see rjctl coverage"));
  }
  for (const Vacuous& v : vacuous) {
    if (v.kernels > 0 || !v.left_out.empty()) {
      WarnVacuous(context.out, v, spec, v.requested > 0 ? "see rjctl why-not-attached" : "");
      return kRefused;
    }
    const std::string near = coverage.refused_objects_size() > 0
                                 ? "code objects were refused as a whole, see rjctl coverage"
                                 : NearKernels(spec.kernel_glob(), KernelNames(client));
    context.out.Warn(absl::StrCat(Printable(v.id), " has no effect yet: no kernel that is loaded ",
                                  "matches '", Printable(spec.kernel_glob()), "'",
                                  near.empty() ? "" : "; ", near));
  }
  return kOk;
}

}  // namespace

int Attach(const Context& context, const v1::AttachmentSpec& spec, int wait_s) {
  v1::AttachRequest request;
  *request.mutable_spec() = spec;
  v1::AttachReply reply;
  ControlClient client(context.control_socket);
  if (absl::Status s = client.Attach(request, reply); !s.ok()) return context.out.Fail(s);
  if (reply.violations_size() > 0) {
    if (context.out.json()) context.out.Json(reply);
    context.out.Violations(reply.violations());
    return kRefused;
  }
  // It exists from here on, whatever becomes of the wait.
  const std::string& id = reply.attachment().id();
  if (!context.out.json()) context.out.Print(id + "\n");
  const auto fail = [&](const absl::Status& s) {
    return context.out.Fail(
        absl::Status(s.code(), absl::StrCat(s.message(), " (", id, " is attached)")));
  };
  const auto sessions = ConcernedSessions(client, id);
  if (!sessions.ok()) return fail(sessions.status());
  const auto effect = WaitForEffect(client, *sessions, std::chrono::seconds(wait_s));
  if (!effect.ok()) return fail(effect.status());
  v1::GetCoverageReply coverage;
  if (!sessions->empty()) *reply.mutable_live() = *effect;
  if (effect->current() > 0) {
    v1::GetCoverageRequest about;
    about.set_attachment_id(id);
    if (absl::Status s = client.GetCoverage(about, coverage); !s.ok()) return fail(s);
    *reply.mutable_coverage() = coverage.total();
  }
  if (context.out.json()) context.out.Json(reply);
  const bool dry = spec.mode() == v1::MODE_DRYRUN;
  context.out.Note(absl::StrCat(dry ? "judging, as a dry run, " : "attached ",
                                Printable(spec.probe()), " at ", Printable(spec.sites()),
                                " of kernels ", Printable(spec.kernel_glob()), ", ", Target(spec),
                                "; code objects loaded from now on are affected"));
  const bool probes = !dry && contract::DoneSites(coverage.total()) > 0;
  if (const std::string text = EffectText(*effect, probes); !text.empty()) context.out.Note(text);
  return effect->current() > 0 ? TakenOver(context, client, spec, coverage) : kOk;
}

int Detach(const Context& context, const std::vector<std::string>& ids, bool all, int wait_s) {
  ControlClient client(context.control_socket);
  std::vector<std::string> wanted = ids;
  if (all) {
    v1::GetStatusReply status;
    if (absl::Status s = client.GetStatus({}, status); !s.ok()) return context.out.Fail(s);
    for (const v1::Attachment& a : status.attachments()) wanted.push_back(a.id());
    if (wanted.empty()) context.out.Note("Nothing is attached.");
  }
  std::set<std::string> concerned;
  v1::DetachReply all_replies;
  const auto fail = [&](const absl::Status& s) {
    const auto& done = all_replies.detached();
    return context.out.Fail(
        done.empty()
            ? s
            : absl::Status(s.code(), absl::StrCat(s.message(),
                                                  " (detached: ", absl::StrJoin(done, ", "), ")")));
  };
  for (const std::string& id : wanted) {
    if (auto sessions = ConcernedSessions(client, id); sessions.ok()) concerned.merge(*sessions);
    v1::DetachRequest request;
    request.set_attachment_id(id);
    v1::DetachReply reply;
    if (absl::Status s = client.Detach(request, reply); !s.ok()) return fail(s);
    context.out.Note(absl::StrCat("detached ", id));
    all_replies.add_detached(id);
    all_replies.mutable_live()->set_patched_at_load(
        std::max(all_replies.live().patched_at_load(), reply.live().patched_at_load()));
    all_replies.mutable_live()->set_loaded_before(
        std::max(all_replies.live().loaded_before(), reply.live().loaded_before()));
  }
  auto effect = WaitForEffect(client, concerned, std::chrono::seconds(wait_s));
  if (!effect.ok()) return fail(effect.status());
  effect->set_patched_at_load(all_replies.live().patched_at_load());
  effect->set_loaded_before(all_replies.live().loaded_before());
  all_replies.clear_live();
  if (effect->ByteSizeLong() > 0) *all_replies.mutable_live() = *effect;
  const std::string text = EffectText(*effect, /*takes_effect=*/true);
  if (!text.empty()) context.out.Note(text);
  if (context.out.json()) context.out.Json(all_replies);
  return kOk;
}

int Status(const Context& context, bool all) {
  v1::GetStatusReply reply;
  if (absl::Status s = ControlClient(context.control_socket).GetStatus({}, reply); !s.ok()) {
    return context.out.Fail(s);
  }
  const Output& out = context.out;
  if (out.json()) {
    out.Json(reply);
    return kOk;
  }
  out.Print(absl::StrFormat("rjdbid %s, pid %d, since %s\n", reply.version(), reply.pid(),
                            FormatTime(reply.started_unix_ns())));
  out.Print(
      absl::StrFormat("cache: %d hits, %d misses, %d entries, %s; %s received from agents\n\n",
                      reply.cache_hits(), reply.cache_misses(), reply.cache_entries(),
                      FormatBytes(reply.cache_bytes()), FormatBytes(reply.uploaded_bytes())));
  if (!reply.state_note().empty()) out.Print(absl::StrCat("warning: ", reply.state_note(), "\n\n"));
  PrintAttachments(out, reply);
  out.Print("\n");
  PrintSessions(out, reply, all);
  out.Print("\n");
  PrintGpus(out, reply);
  return kOk;
}

int CodeObjects(const Context& context) {
  v1::ListCodeObjectsReply reply;
  if (absl::Status s = ControlClient(context.control_socket).ListCodeObjects({}, reply); !s.ok()) {
    return context.out.Fail(s);
  }
  if (context.out.json()) {
    context.out.Json(reply);
    return kOk;
  }
  if (reply.code_objects().empty()) {
    context.out.Note("No process has loaded a code object since rjdbid started.");
    return kOk;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::CodeObjectSummary& o : reply.code_objects()) {
    rows.push_back({o.sha256().substr(0, kShortHash), Printable(o.isa()), FormatBytes(o.size()),
                    o.has_kernels() ? absl::StrCat(o.kernels()) : "-", absl::StrCat(o.loads()),
                    VerdictName(o.verdict()), Printable(o.origin())});
  }
  context.out.Table({"OBJECT", "ISA", "SIZE", "KERNELS", "LOADS", "VERDICT", "ORIGIN"}, rows,
                    {2, 3, 4});
  PrintObjectViolations(context.out, reply.code_objects());
  return kOk;
}

int WhyNotAttached(const Context& context, const WhyOptions& options) {
  v1::WhyNotAttachedRequest request;
  request.set_kernel_glob(options.kernel);
  if (options.offset.has_value()) request.set_kernel_offset(*options.offset);
  request.set_include_detached(options.all);
  v1::WhyNotAttachedReply reply;
  if (absl::Status s = ControlClient(context.control_socket).WhyNotAttached(request, reply);
      !s.ok()) {
    return context.out.Fail(s);
  }
  return PrintWhyNotAttached(context, options, reply);
}

int PrintWhyNotAttached(const Context& context, const WhyOptions& options,
                        const v1::WhyNotAttachedReply& reply) {
  // Nobody has loaded such a kernel, as far as rjdbid can tell: no answer.
  const bool unknown =
      !reply.kernel_known() && reply.decisions_size() == 0 && reply.attached_sites() == 0;
  const int code = unknown ? kRefused : kOk;
  if (context.out.json()) {
    context.out.Json(reply);
    return code;
  }
  if (options.all) {
    for (const auto* decisions : {&reply.decisions(), &reply.degraded()}) {
      for (const v1::Decision& decision : *decisions) {
        context.out.Print(contract::RenderDecision(decision, context.out.render()));
      }
    }
  } else {
    context.out.Print(contract::RenderRefusals(reply.decisions(), context.out.render()));
    context.out.Print(contract::RenderDegradations(reply.degraded(), context.out.render()));
  }
  for (const v1::Violation& violation : reply.violations()) {
    context.out.Print(contract::RenderViolation(violation, context.out.render()));
  }
  std::map<v1::Outcome, uint64_t> others;
  for (const v1::Decision& d : reply.decisions()) ++others[d.outcome()];
  const uint64_t dry = others[v1::DRY_RUN], rotated = others[v1::ROTATED_OUT];
  context.out.Print(absl::StrFormat(
      "%s refused%s%s, %d attached%s\n",
      Count(static_cast<uint64_t>(reply.decisions_size()) - dry - rotated, "site"),
      rotated == 0 ? "" : absl::StrCat(", ", rotated, " rotated out"),
      dry == 0 ? "" : absl::StrCat(", ", dry, " in dry runs"), reply.attached_sites(),
      reply.degraded_size() == 0 ? "" : absl::StrFormat(" (%d degraded)", reply.degraded_size())));
  if (unknown && options.file.empty()) {
    context.out.Note(
        absl::StrCat("no process has loaded a kernel that matches '", Printable(options.kernel),
                     "', as far as rjdbid has seen: objects that no attachment asks about are "
                     "not sent to it. Attach, then run the program"));
  }
  if (reply.remembered_objects_size() > 0) {
    context.out.Note(absl::StrCat(
        "note: ", Count(static_cast<uint64_t>(reply.remembered_objects_size()), "code object"),
        " of these no listed process has loaded: what was decided last is shown"));
  }
  NoteDetached(context.out, reply.detached_attachments(), options.all);
  return code;
}

namespace {

// "12", or of a user's probe "12, 0, 7".
std::string CountCell(const CountSum& sum) {
  constexpr size_t kMostWords = 16;  // in a table
  std::string cell = absl::StrCat(sum.count);
  for (size_t word = 1; word < std::min(sum.words.size(), kMostWords); ++word) {
    absl::StrAppend(&cell, ", ", sum.words[word]);
  }
  if (sum.words.size() > kMostWords) absl::StrAppend(&cell, ", ...");
  return cell;
}

// Some kernel was seen in more than one code object.
bool ObjectsDiffer(const CountSums& sums) {
  std::map<std::string, std::string> object_of;
  for (const auto& [key, sum] : sums) {
    if (object_of.emplace(key.kernel, key.object).first->second != key.object) return true;
  }
  return false;
}

std::string KernelCell(const std::string& kernel) {
  return kernel.empty() ? "(places no longer kept apart)" : Printable(contract::Demangle(kernel));
}

std::vector<std::string> CountHeader(const Filter& filter, bool ranked, bool with_object) {
  const bool sites = filter.by == Filter::By::kSite;
  std::vector<std::string> header = {"ATTACHMENT",
                                     "PROBE",
                                     "COUNT",
                                     "KERNEL",
                                     sites ? "OFFSET" : "SITES",
                                     sites                              ? "INSTRUCTION"
                                     : filter.by == Filter::By::kOpcode ? "OPCODE"
                                                                        : ""};
  if (with_object) header.insert(header.begin() + 4, "OBJECT");
  if (ranked) header.insert(header.begin(), "RANK");
  return header;
}

void PrintCounts(const Output& out, const std::vector<const CountRow*>& counts,
                 const std::set<std::string>& detached, const Filter& filter, bool ranked,
                 bool with_object) {
  const bool sites = filter.by == Filter::By::kSite;
  const std::vector<uint64_t> ranks = Ranks(counts);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto& [key, sum] = *counts[i];
    rows.push_back({MarkedId(key.attachment, detached), Printable(key.probe),
                    absl::StrCat(CountCell(sum), sum.final ? "" : "+"), KernelCell(key.kernel),
                    sites ? absl::StrFormat("0x%x", key.offset) : absl::StrCat(sum.offsets.size()),
                    sites ? Printable(sum.instruction) : Printable(key.opcode)});
    if (with_object) rows.back().insert(rows.back().begin() + 4, key.object.substr(0, 12));
    if (ranked) rows.back().insert(rows.back().begin(), absl::StrCat(ranks[i]));
  }
  if (rows.empty()) return out.Print("No counts.\n");
  const size_t shift = ranked ? 1 : 0;
  std::vector<size_t> right = {2 + shift, (with_object ? 5 : 4) + shift};
  if (ranked) right.push_back(0);
  out.Table(CountHeader(filter, ranked, with_object), rows, right);
}

}  // namespace

void PrintReport(const Output& out, const v1::GetReportReply& reply, const Filter& filter,
                 const std::optional<Ranking>& ranking) {
  const CountSums sums = SumCounts(reply, filter.by);
  const bool ranked = ranking.has_value() && ranking->why_not.empty();
  std::vector<const CountRow*> rows = OrderedRows(sums, ranked);
  size_t hidden = 0;
  if (!filter.all) {
    hidden = rows.size();
    rows.erase(std::remove_if(rows.begin(), rows.end(), [](const auto* r) { return InTheWay(*r); }),
               rows.end());
    hidden -= rows.size();
  }
  if (ranking.has_value() && !ranked) out.Warn("not ranked: " + ranking->why_not);
  if (out.csv()) return PrintReportCsv(out, rows, reply, filter.by, ranked);
  PrintCounts(out, rows, Detached(reply.coverage().detached_attachments()), filter, ranked,
              ObjectsDiffer(sums));
  NoteHidden(out, hidden);
  if (std::any_of(sums.begin(), sums.end(),
                  [](const CountRow& row) { return !row.second.final; })) {
    out.Print(
        "+ is a lower bound: a process still runs, or ended without its last report "
        "(rjctl status says which).\n");
  }
  out.Print("\n");
  PrintRecords(out, reply, filter.all);
  PrintCoverage(out, reply.coverage(), filter.all);
}

v1::GetRecordsRequest RecordsOf(const v1::GetReportRequest& request) {
  v1::GetRecordsRequest records;
  records.set_attachment_id(request.attachment_id());
  records.set_kernel_glob(request.kernel_glob());
  records.set_session_id(request.session_id());
  records.set_include_detached(request.include_detached());
  return records;
}

namespace {

absl::Status AddMore(ControlClient&, const v1::GetCoverageRequest&, v1::GetCoverageReply&) {
  return absl::OkStatus();
}
absl::Status AddMore(ControlClient& client, const v1::GetReportRequest& request,
                     v1::GetReportReply& reply) {
  return SummariseRecords(client, RecordsOf(request), reply);
}

const v1::GetCoverageReply& CoverageIn(const v1::GetCoverageReply& reply) { return reply; }
const v1::GetCoverageReply& CoverageIn(const v1::GetReportReply& reply) { return reply.coverage(); }

// The answer is empty because of --kernel, perhaps of a slip in it.
void NoteNoKernelAsked(const Context& context, ControlClient& client, const std::string& glob) {
  const std::vector<std::string> names = KernelNames(client);
  const std::string near = contract::DidYouMean(contract::ClosestKernels(glob, names));
  context.out.Note(absl::StrCat("note: nothing is known of kernels that '", Printable(glob),
                                "' matches; ", near.empty() ? "" : Printable(near) + " ",
                                "rjctl kernels lists all"));
}

// Both verbs ask the same question; the answers differ in the counts.
template <typename Request, typename Reply>
int Query(const Context& context, const Filter& filter,
          absl::Status (ControlClient::*ask)(const Request&, Reply&),
          const std::function<absl::Status(ControlClient&, const Reply&)>& print) {
  Request request;
  FillRequest(filter, request);
  Reply reply;
  ControlClient client(context.control_socket);
  absl::Status s = (client.*ask)(request, reply);
  if (s.ok()) s = AddMore(client, request, reply);
  if (!s.ok()) return context.out.Fail(s);
  const v1::GetCoverageReply& coverage = CoverageIn(reply);
  if (context.out.json()) {
    context.out.Json(reply);
  } else {
    if (s = print(client, reply); !s.ok()) return context.out.Fail(s);
    NoteDetachedIn(context, coverage, filter);
    if (!filter.kernel.empty() && coverage.coverage().empty()) {
      NoteNoKernelAsked(context, client, filter.kernel);
    }
  }
  WarnVacuousIn(context, coverage);
  return CoverageExit(coverage);
}

}  // namespace

int Coverage(const Context& context, const Filter& filter) {
  return Query<v1::GetCoverageRequest, v1::GetCoverageReply>(
      context, filter, &ControlClient::GetCoverage,
      [&](ControlClient&, const v1::GetCoverageReply& reply) {
        PrintCoverage(context.out, reply, filter.all);
        return absl::OkStatus();
      });
}

int Report(const Context& context, const Filter& filter) {
  return Query<v1::GetReportRequest, v1::GetReportReply>(
      context, filter, &ControlClient::GetReport,
      [&](ControlClient& client, const v1::GetReportReply& reply) {
        std::optional<Ranking> ranking;
        if (filter.by_count) {
          v1::GetStatusReply status;
          if (absl::Status s = client.GetStatus({}, status); !s.ok()) return s;
          ranking = RankingOf(reply, status);
        }
        PrintReport(context.out, reply, filter, ranking);
        return absl::OkStatus();
      });
}

int ReportPage(const Context& context, const Filter& filter) {
  v1::GetReportRequest request;
  FillRequest(filter, request);
  v1::GetReportReply reply;
  ControlClient client(context.control_socket);
  if (absl::Status s = client.GetReport(request, reply); !s.ok()) return context.out.Fail(s);
  const auto input = CollectPage(client, filter, reply);
  if (!input.ok()) return context.out.Fail(input.status());
  if (absl::Status s = WriteFile(filter.html, HtmlPage(*input)); !s.ok()) {
    return context.out.Fail(s);
  }
  context.out.Note(absl::StrCat(contract::RenderTotal(reply.coverage().total()), "; ",
                                Count(Gaps(reply.coverage()), "gap")));
  NoteDetachedIn(context, reply.coverage(), filter);
  WarnVacuousIn(context, reply.coverage());
  return CoverageExit(reply.coverage());
}

}  // namespace rjdbi::clients
