// See render.h. Names inside records come from foreign files: control characters
// never reach the terminal.
#include "contract/render.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "contract/coverage.h"
#include "contract/coverage_text.h"
#include "contract/decisions.h"
#include "contract/demangle.h"
#include "contract/natural_order.h"
#include "contract/placement_text.h"
#include "contract/site.h"
#include "contract/text.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::contract {
namespace {

using patch::Printable;

constexpr std::string_view kRed = "\033[1;31m", kBlue = "\033[1;34m", kGreen = "\033[1;32m",
                           kYellow = "\033[1;33m", kReset = "\033[0m";

std::string Paint(std::string_view text, std::string_view colour, const RenderOptions& o) {
  return o.colour ? StrCat(colour, text, kReset) : std::string(text);
}

std::string Place(const v1::Location& l) {
  if (l.kernel().empty()) return "";
  return StrCat(Printable(Demangle(l.kernel())), "+0x", absl::Hex(l.kernel_offset()));
}

std::string LowerFirst(std::string text) {
  if (!text.empty()) text[0] = absl::ascii_tolower(static_cast<unsigned char>(text[0]));
  return text;
}

std::string LocationLines(const v1::Location& l, const RenderOptions& o) {
  std::string out;
  const std::string arrow = Paint("-->", kBlue, o);
  const std::string instruction =
      l.instruction().empty() ? "" : StrCat(": ", Printable(l.instruction()));
  if (const std::string place = Place(l); !place.empty()) {
    StrAppend(&out, "  ", arrow, " ", place, l.in_probe() ? "" : instruction, "\n");
  }
  if (l.in_probe()) {
    StrAppend(&out, "  ", arrow, " probe+0x", absl::Hex(l.probe_offset()), instruction, "\n");
  }
  if (l.manifest_line() != 0) {
    StrAppend(&out, "  ", arrow, " manifest line ", l.manifest_line(), "\n");
  }
  return out;
}

std::string Wrap(std::string_view text, size_t width, std::string_view indent) {
  std::string out(indent);
  size_t column = indent.size();
  bool first = true;
  for (absl::string_view word : absl::StrSplit(ToAbsl(text), ' ', absl::SkipEmpty())) {
    if (!first && column + 1 + word.size() > width) {
      StrAppend(&out, "\n", indent);
      column = indent.size();
      first = true;
    }
    StrAppend(&out, first ? "" : " ", word);
    column += word.size() + (first ? 0 : 1);
    first = false;
  }
  return out + "\n";
}

using Row = std::vector<std::string>;

std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i != 0) line += "  ";
      // Numbers to the right, the first and the last two columns to the left.
      const bool left = i == 0 || i + 2 >= row.size();
      line += left ? absl::StrFormat("%-*s", static_cast<int>(widths[i]), row[i])
                   : absl::StrFormat("%*s", static_cast<int>(widths[i]), row[i]);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    StrAppend(&out, line, "\n");
  }
  return out;
}

bool Attached(v1::Outcome outcome) {
  return outcome == v1::VERIFIED_ATTACH || outcome == v1::ATTACH_WITH_DECLARED_DEGRADATION;
}

}  // namespace

std::string OutcomeName(v1::Outcome outcome) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(v1::Outcome_Name(outcome), {{"_", " "}}));
}

std::string RenderViolation(const v1::Violation& v, const RenderOptions& o) {
  std::string out = StrCat(Paint(StrCat("error[", v.constraint_id(), "]"), kRed, o), ": ",
                           Printable(v.message()), "\n", LocationLines(v.location(), o));
  for (absl::string_view line : absl::StrSplit(v.excerpt(), '\n', absl::SkipEmpty())) {
    const std::string text = Printable({line.data(), line.size()});
    const bool culprit = StartsWith(text, "> ");
    StrAppend(&out, "  ", Paint("|", kBlue, o), " ", culprit ? Paint(text, kRed, o) : text, "\n");
  }
  if (!v.observed().empty()) StrAppend(&out, "  observed: ", Printable(v.observed()), "\n");
  if (!v.limit().empty()) StrAppend(&out, "  limit: ", Printable(v.limit()), "\n");
  if (v.taken_by_size() > 0) {
    StrAppend(&out, "  taken by: ", Printable(absl::StrJoin(v.taken_by(), ", ")), "\n");
  }
  if (!v.next_step().empty()) {
    StrAppend(&out, "  ", Paint("help", kGreen, o), ": ", LowerFirst(v.next_step()), "\n");
  }
  return out;
}

std::string RenderDecision(const v1::Decision& d, const RenderOptions& o) {
  std::string out;
  if (d.outcome() == v1::DRY_RUN) {
    StrAppend(&out, Paint("dry run", kGreen, o), ", ", WouldBe(d), "  ",
              d.site().position() == v1::AFTER ? "after " : "", Place(d.site().location()), ": ",
              Printable(d.site().location().instruction()), "\n");
    for (const v1::Degradation& g : d.degradations()) {
      StrAppend(&out, "  ", Paint(StrCat("degraded[", g.constraint_id(), "]"), kYellow, o), ": ",
                Printable(g.message()), "\n");
    }
    return out;
  }
  if (Attached(d.outcome())) {
    StrAppend(&out, Paint(OutcomeName(d.outcome()), kGreen, o), "  ",
              d.site().position() == v1::AFTER ? "after " : "", Place(d.site().location()), ": ",
              Printable(d.site().location().instruction()));
    if (d.has_counter_index()) StrAppend(&out, "  counter ", d.counter_index());
    StrAppend(&out, "\n");
    for (const v1::Degradation& g : d.degradations()) {
      StrAppend(&out, "  ", Paint(StrCat("degraded[", g.constraint_id(), "]"), kYellow, o), ": ",
                Printable(g.message()), "\n");
    }
    return out;
  }
  for (const v1::Violation& v : d.violations()) StrAppend(&out, RenderViolation(v, o));
  return out;
}

namespace {

constexpr size_t kListedOffsets = 8;

// Decisions of one kernel that say the same.
struct Group {
  const v1::Decision* first = nullptr;
  std::vector<uint64_t> others;  // offsets
  std::set<uint64_t> places;
  std::set<std::string, NaturalOrder> attachments;
};

using DecisionList = google::protobuf::RepeatedPtrField<v1::Decision>;

// `said` gives what a decision says, "" for one that is left out.
template <typename Said>
std::vector<Group> GroupDecisions(const DecisionList& decisions, Said said) {
  std::map<std::string, size_t> by_text;
  std::vector<Group> groups;
  for (const v1::Decision& d : decisions) {
    const std::string text = said(d);
    if (text.empty()) continue;
    const v1::Location& place = d.site().location();
    const auto [found, fresh] = by_text.emplace(StrCat(place.kernel(), "\n", text), groups.size());
    if (fresh) groups.emplace_back().first = &d;
    Group& group = groups[found->second];
    group.attachments.insert(d.attachment_id());
    if (group.places.insert(place.kernel_offset()).second && !fresh) {
      group.others.push_back(place.kernel_offset());
    }
  }
  return groups;
}

std::string GroupTail(const Group& group) {
  std::string out;
  const size_t more = group.others.size();
  if (more > 0) StrAppend(&out, "  and ", more, more == 1 ? " more site: " : " more sites: ");
  for (size_t i = 0; i < std::min(more, kListedOffsets); ++i) {
    StrAppend(&out, i == 0 ? "+0x" : ", +0x", absl::Hex(group.others[i]));
  }
  if (more > 0) StrAppend(&out, more > kListedOffsets ? ", ...\n" : "\n");
  if (group.attachments.size() > 1) {
    StrAppend(&out, "  of attachments ", absl::StrJoin(group.attachments, ", "), "\n");
  }
  return out;
}

std::string Refused(const v1::Decision& d) {
  std::string text;
  if (Attached(d.outcome())) return text;
  if (d.outcome() == v1::DRY_RUN) return StrCat("dry run\n", WouldBe(d));
  for (const v1::Violation& v : d.violations()) {
    StrAppend(&text, v.constraint_id(), "\n", v.message(), "\n", v.observed(), "\n", v.limit(),
              "\n");
  }
  return text;
}

std::string Degraded(const v1::Decision& d) {
  std::string text;
  if (!Attached(d.outcome())) return text;
  for (const v1::Degradation& g : d.degradations()) {
    StrAppend(&text, g.constraint_id(), "\n", g.message(), "\n");
  }
  return text;
}

std::string RenderDegraded(const v1::Decision& d, const RenderOptions& o) {
  std::string out;
  for (const v1::Degradation& g : d.degradations()) {
    StrAppend(&out, Paint(StrCat("degraded[", g.constraint_id(), "]"), kYellow, o), ": ",
              Printable(g.message()), "\n", LocationLines(d.site().location(), o));
    const CatalogueEntry* entry = Find(g.constraint_id());
    if (entry == nullptr) continue;
    StrAppend(&out, "  ", Paint("help", kGreen, o), ": ", LowerFirst(std::string(entry->next_step)),
              "\n");
  }
  return out;
}

}  // namespace

std::string RenderRefusals(const DecisionList& decisions, const RenderOptions& o) {
  std::string out;
  for (const Group& group : GroupDecisions(decisions, Refused)) {
    StrAppend(&out, RenderDecision(*group.first, o), GroupTail(group));
  }
  return out;
}

std::string RenderDegradations(const DecisionList& decisions, const RenderOptions& o) {
  std::string out;
  for (const Group& group : GroupDecisions(decisions, Degraded)) {
    StrAppend(&out, RenderDegraded(*group.first, o), GroupTail(group));
  }
  return out;
}

std::string ReasonList(const google::protobuf::RepeatedPtrField<v1::ReasonCount>& reasons) {
  std::map<std::string, uint64_t> ordered;
  for (const v1::ReasonCount& r : reasons) ordered[r.constraint_id()] += r.sites();
  std::string out;
  for (const auto& [id, sites] : ordered) {
    StrAppend(&out, out.empty() ? "" : ", ", Printable(id), " x", sites);
  }
  return out;
}

std::string RenderTotal(const v1::Coverage& c) {
  const std::string degraded = ReasonList(c.degradations()), refused = ReasonList(c.refused());
  return StrCat(c.requested(), c.requested() == 1 ? " site" : " sites",
                " requested: ", c.attached(), " attached, ", c.degraded(), " degraded",
                degraded.empty() ? "" : StrCat(" (", degraded, ")"), ", ", RefusedSites(c),
                " refused", refused.empty() ? "" : StrCat(" (", refused, ")"), RefusedParts(c),
                LeftOutParts(c), "; ", c.not_selected(),
                c.not_selected() == 1 ? " instruction" : " instructions", " not selected");
}

std::string RenderCoverage(const google::protobuf::RepeatedPtrField<v1::Coverage>& coverage,
                           const RenderOptions& o) {
  // Names of kernels last: some are longer than a terminal is wide.
  std::vector<Row> rows = {
      {"ATTACHMENT", "REQUESTED", "ATTACHED", "DEGRADED", "REFUSED", "NOT SELECTED"}};
  // Columns that few need.
  using Number = uint64_t (v1::Coverage::*)() const;
  std::vector<Number> more;
  for (const auto& [name, number] :
       {std::pair<const char*, Number>{"UNSUPPORTED", &v1::Coverage::unsupported},
        {"REJECTED", &v1::Coverage::rejected},
        {"OVER BUDGET", &v1::Coverage::over_budget},
        {"ROTATED OUT", &v1::Coverage::rotated_out},
        {"DRY RUN", &v1::Coverage::dry_run}}) {
    const bool any = std::any_of(coverage.begin(), coverage.end(),
                                 [n = number](const auto& c) { return (c.*n)() != 0; });
    if (!any) continue;
    rows[0].push_back(name);
    more.push_back(number);
  }
  rows[0].insert(rows[0].end(), {"REASONS", "KERNEL"});
  std::vector<const v1::Coverage*> ordered;
  for (const v1::Coverage& c : coverage) ordered.push_back(&c);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    if (a->attachment_id() != b->attachment_id()) {
      return NaturalLess(a->attachment_id(), b->attachment_id());
    }
    return NaturalLess(a->kernel(), b->kernel());
  });
  // An object without a wanted kernel is worth a word only of an attachment that
  // found none anywhere: every HIP process also loads HIP's own copy kernels.
  std::set<std::string> matched;
  for (const v1::Coverage& c : coverage) {
    if (!c.kernel().empty()) matched.insert(c.attachment_id());
  }
  std::string unmatched;
  for (const v1::Coverage* c : ordered) {
    if (c->kernel().empty()) {
      if (matched.contains(c->attachment_id())) continue;
      const std::string object = c->code_object_sha256().substr(0, 12);
      StrAppend(&unmatched, "attachment ", Printable(c->attachment_id()),
                c->refused().empty() ? StrCat(" covers no kernel of code object ", object)
                                     : StrCat(" is left out of code object ", object, ": ",
                                              Printable(c->refused(0).constraint_id())),
                "\n");
      continue;
    }
    const std::string refused = ReasonList(c->refused()), degraded = ReasonList(c->degradations());
    const std::string reasons =
        StrCat(refused, refused.empty() || degraded.empty() ? "" : ", ", degraded);
    rows.push_back({Printable(c->attachment_id()), StrCat(c->requested()), StrCat(c->attached()),
                    StrCat(c->degraded()), StrCat(RefusedSites(*c)), StrCat(c->not_selected())});
    for (const Number number : more) rows.back().push_back(StrCat((c->*number)()));
    rows.back().insert(rows.back().end(),
                       {reasons.empty() ? "-" : reasons, Printable(Demangle(c->kernel()))});
  }
  if (rows.size() == 1 && unmatched.empty()) return "no coverage recorded\n";
  std::string table = rows.size() == 1 ? "" : Table(rows);
  if (o.colour && !table.empty()) {
    const size_t end = table.find('\n');
    table = StrCat(kBlue, table.substr(0, end), kReset, table.substr(end));
  }
  return table + unmatched + RenderPlacements(coverage) + RenderBudgetLines(coverage);
}

namespace {

// "it came with patches: count-waves at memory, in *; judged is the original 0123.."
std::string RenderPrior(const v1::PriorPatch& prior) {
  std::string had;
  for (const v1::AttachmentSpec& spec : prior.attachments()) {
    StrAppend(&had, had.empty() ? "" : "; ", Printable(spec.probe()), " at ",
              Printable(spec.sites()), " of ", Printable(spec.kernel_glob()));
  }
  return StrCat("it came with patches (", had, "); judged is its original, ",
                prior.original_sha256().substr(0, 12), "\n");
}

}  // namespace

std::string RenderRecord(const v1::AdmissionRecord& r, bool refused_only, const RenderOptions& o) {
  std::string out = StrCat("code object ", r.code_object_sha256().substr(0, 12), "  ",
                           r.isa().empty() ? "unknown target" : r.isa(), "  ", r.size(), " bytes, ",
                           r.kernels(), r.kernels() == 1 ? " kernel" : " kernels");
  if (r.patched_size() == 0) {
    StrAppend(&out, "; not patched\n");
  } else {
    StrAppend(&out, "; patched: ", r.patched_size(), " bytes",
              r.beside() ? ", for loading beside the loaded original\n" : "\n");
  }
  if (r.has_prior_patch()) StrAppend(&out, RenderPrior(r.prior_patch()));
  for (const v1::Violation& v : r.object_violations()) {
    StrAppend(&out, RenderViolation(v, o));
  }
  if (const int n = r.application_missing_waits_size(); n > 0) {
    const v1::MissingWait& w = r.application_missing_waits(0);
    StrAppend(&out, "note: the application itself lacks waits: ", Printable(Demangle(w.kernel())),
              "+0x", absl::Hex(w.kernel_offset()), ": ", w.what(),
              n > 1 ? StrCat(", and ", n - 1, " more") : "", " (rjctl waitcheck lists them)\n");
  }
  DecisionList refused;
  for (const DecisionGroup& group : DecisionGroups(r)) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (!refused_only) {
        StrAppend(&out, RenderDecision(group.At(i), o));
      } else if (!Attached(group.Form(i).outcome()) && group.Form(i).outcome() != v1::DRY_RUN) {
        *refused.Add() = group.At(i);
      }
    }
  }
  StrAppend(&out, RenderRefusals(refused, o));
  StrAppend(&out, RenderCoverage(r.coverage(), o));
  return out;
}

std::string RenderEntry(const CatalogueEntry& e, const RenderOptions& o) {
  return StrCat(Paint(e.id, kBlue, o), ": ", e.title, "\n\n", Wrap(e.explanation, 78, "  "), "\n",
                Wrap(StrCat("Next step: ", e.next_step), 78, "  "));
}

std::string RenderSite(const v1::Site& s) {
  std::string out = StrCat(Place(s.location()), ": ", Printable(s.location().instruction()), "  [",
                           SiteClassName(s.site_class()), "]");
  if (!s.movable()) StrAppend(&out, "  not movable: ", s.immovable_constraint_id());
  if (s.has_splits_clause_at()) {
    StrAppend(&out, "  splits the clause at +0x", absl::Hex(s.splits_clause_at()));
  }
  StrAppend(&out, "  free ", s.free_sgprs(), " SGPRs, ", s.free_vgprs(), " VGPRs",
            s.scc_live() ? ", SCC live" : "", s.vcc_live() ? ", VCC live" : "", "\n");
  return out;
}

}  // namespace rjdbi::contract
