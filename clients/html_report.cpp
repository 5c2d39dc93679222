// See the header. Everything that comes from programs goes through Html().
#include "clients/html_report.h"

#include <openssl/sha.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "clients/listing.h"
#include "clients/output.h"
#include "clients/report_page.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/demangle.h"
#include "contract/natural_order.h"
#include "contract/render.h"
#include "contract/site.h"

namespace rjdbi::clients {
namespace {

constexpr size_t kMostListings = 200;  // kernels that anybody reads in one page

std::string Html(const std::string& text) {
  return absl::StrReplaceAll(
      Printable(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string KernelName(const std::string& kernel) {
  return kernel.empty() ? "(places no longer kept apart)" : Html(contract::Demangle(kernel));
}

// What a browser lets run: this script and no other.
std::string ScriptDigest() {
  const std::string script(kPageScript);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(script.data()), script.size(), digest);
  return absl::Base64Escape(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
}

std::string Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? "-"
                    : absl::StrFormat(
                          "%.1f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

using KernelKey = std::pair<std::string, std::string>;  // object, kernel

// ---- What to show ----

std::vector<KernelKey> KernelsOf(const v1::GetReportReply& report, bool by_count, bool all) {
  std::map<KernelKey, uint64_t> counts;
  std::map<KernelKey, uint64_t> asked;
  for (const v1::SiteCount& count : report.counts()) {
    counts[{count.code_object_sha256(), count.location().kernel()}] += count.count();
  }
  for (const v1::Coverage& part : report.coverage().coverage()) {
    asked[{part.code_object_sha256(), part.kernel()}] += part.requested();
  }
  std::vector<KernelKey> kernels;
  for (const auto& [key, requested] : asked) {
    const bool in_the_way = !all && counts[key] == 0 && RuntimeKernel(key.second);
    if (requested > 0 && !key.second.empty() && !in_the_way) kernels.push_back(key);
  }
  std::sort(kernels.begin(), kernels.end(), [&](const KernelKey& a, const KernelKey& b) {
    if (by_count && counts[a] != counts[b]) return counts[a] > counts[b];
    return a.second != b.second ? contract::NaturalLess(a.second, b.second) : a.first < b.first;
  });
  return kernels;
}

absl::StatusOr<KernelPart> CollectKernel(ControlClient& client, const Filter& filter,
                                         const KernelKey& key) {
  KernelPart part = {key.first, key.second, {}, {}};
  auto listing = ListKernel(client, part.object, part.kernel);
  if (!listing.ok()) return listing.status();
  part.listing = std::move(*listing);
  v1::WhyNotAttachedRequest request;
  request.set_kernel_glob(GlobFor(part.kernel));
  request.set_include_detached(filter.all || !filter.attachment.empty());
  v1::WhyNotAttachedReply reply;
  if (absl::Status s = client.WhyNotAttached(request, reply); !s.ok()) return s;
  for (auto* decisions : {reply.mutable_decisions(), reply.mutable_degraded()}) {
    for (v1::Decision& decision : *decisions) {
      const bool wanted =
          filter.attachment.empty() || decision.attachment_id() == filter.attachment;
      if (wanted && decision.site().location().kernel() == part.kernel) {
        part.decisions.push_back(std::move(decision));
      }
    }
  }
  return part;
}

// ---- Pieces of the page ----

using Attributes = std::vector<std::pair<const char*, std::string>>;

std::string Open(const char* element, const Attributes& attributes) {
  std::string text = absl::StrCat("<", element);
  for (const auto& [name, value] : attributes) {
    if (!value.empty()) absl::StrAppend(&text, " ", name, "=\"", value, "\"");
  }
  return text + ">";
}

// `content` is HTML already.
std::string Cell(const std::string& content, const Attributes& attributes = {}) {
  return absl::StrCat(Open("td", attributes), content, "</td>");
}

const char* ClassOf(v1::Outcome outcome) {
  switch (outcome) {
    case v1::VERIFIED_ATTACH:
      return "attached";
    case v1::ATTACH_WITH_DECLARED_DEGRADATION:
      return "degraded";
    case v1::ROTATED_OUT:
      return "rotated out";
    case v1::DRY_RUN:
      return "dry run";
    default:
      return "refused";
  }
}

std::string OutcomeSpan(v1::Outcome outcome) {
  const char* name = ClassOf(outcome);
  return absl::StrCat("<span class=\"", name, "\">", name, "</span>");
}

class Page {
 public:
  explicit Page(const PageInput& input)
      : in_(input), ranking_(RankingOf(input.report, input.status)) {
    for (const v1::SiteCount& count : in_.report.counts()) {
      units_[UnitOf(count.probe())] += count.count();
      bounds_ += count.final() ? 0 : 1;
    }
    for (size_t i = 0; i < in_.kernels.size(); ++i) {
      anchors_[{in_.kernels[i].object, in_.kernels[i].kernel}] = absl::StrCat("k", i + 1);
    }
    sums_ = SumCounts(in_.report, Filter::By::kSite);
  }

  std::string Text() const {
    std::string text = absl::StrCat(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'; script-src 'sha256-",
        ScriptDigest(),
        "'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"
        "<title>rjdbi report</title>\n<style>",
        kPageStyle, "</style></head>\n<body>\n<h1>Report</h1>\n");
    absl::StrAppend(&text, Coverage(), Counts());
    for (const KernelPart& kernel : in_.kernels) absl::StrAppend(&text, Kernel(kernel));
    if (in_.not_shown > 0) {
      absl::StrAppend(&text, "<p id=\"not-shown\">The instructions of ", in_.not_shown,
                      " more kernels are not shown: --kernel chooses.</p>\n");
    }
    return absl::StrCat(text, "<script>", kPageScript, "</script>\n</body></html>\n");
  }

 private:
  std::string Coverage() const {
    const v1::GetCoverageReply& coverage = in_.report.coverage();
    const v1::Coverage& total = coverage.total();
    const uint64_t gaps = static_cast<uint64_t>(coverage.gaps_size()) + coverage.folded_gaps();
    std::string text =
        absl::StrCat("<section id=\"coverage\">\n",
                     Open("p", {{"class", "statement"},
                                {"id", "statement"},
                                {"data-requested", absl::StrCat(total.requested())},
                                {"data-attached", absl::StrCat(total.attached())},
                                {"data-degraded", absl::StrCat(total.degraded())},
                                {"data-refused", absl::StrCat(contract::RefusedSites(total))},
                                {"data-gaps", absl::StrCat(gaps)}}),
                     Html(contract::RenderTotal(total)), "; ", gaps, gaps == 1 ? " gap" : " gaps",
                     "</p>\n<ul>\n");
    const auto item = [&text](const std::string& html) {
      absl::StrAppend(&text, "<li>", html, "</li>\n");
    };
    if (ranking_.why_not.empty()) {
      item(
          "<span id=\"ranking\">Everything that was asked for is counted: counts can be put in "
          "order.</span>");
    } else {
      item(absl::StrCat("<span id=\"ranking\" class=\"no\">Not ranked:</span> ",
                        Html(ranking_.why_not), "."));
    }
    item("Counters count on the device, each execution once; none is sampled.");
    if (bounds_ > 0) {
      item(absl::StrCat(bounds_, " of ", in_.report.counts_size(),
                        " counts are lower bounds (+): a process still runs, or ended without its "
                        "last report."));
    }
    for (const v1::Gap& gap : coverage.gaps()) {
      const contract::CatalogueEntry& entry = contract::ForGap(gap.kind());
      item(absl::StrCat("Gap <b>", Html(std::string(entry.id)),
                        "</b>: ", Html(std::string(entry.title)), ": ", Html(gap.origin()), " ",
                        Html(gap.detail())));
    }
    for (const v1::CodeObjectSummary& object : coverage.refused_objects()) {
      for (const v1::Violation& v : object.object_violations()) {
        item(absl::StrCat("Object ", Html(object.sha256().substr(0, 12)), " refused: <b>",
                          Html(v.constraint_id()), "</b> ", Html(v.message())));
      }
    }
    absl::StrAppend(&text, "</ul>\n<p class=\"dim\">rjdbid ", Html(in_.status.version()), ", ",
                    Html(FormatTime(static_cast<int64_t>(time(nullptr)) * 1'000'000'000)),
                    ".</p>\n");
    return absl::StrCat(text, CoverageTable(), "</section>\n");
  }

  std::string CoverageTable() const {
    std::string text =
        "<details><summary>By attachment and kernel</summary>\n"
        "<div class=\"wide\"><table id=\"by-kernel\"><thead><tr><th>Attachment</th>"
        "<th class=\"n\">Requested</th><th class=\"n\">Attached</th><th class=\"n\">Degraded</th>"
        "<th class=\"n\">Refused</th><th>Reasons</th><th>Kernel</th></tr></thead><tbody>\n";
    for (const v1::Coverage& part : in_.report.coverage().coverage()) {
      if (part.kernel().empty() || part.requested() == 0) continue;
      std::vector<std::string> reasons;
      for (const auto* list : {&part.refused(), &part.degradations()}) {
        for (const v1::ReasonCount& reason : *list) {
          reasons.push_back(absl::StrCat(Html(reason.constraint_id()), " ×", reason.sites()));
        }
      }
      const auto anchor = anchors_.find({part.code_object_sha256(), part.kernel()});
      const std::string name = KernelName(part.kernel());
      absl::StrAppend(&text, "<tr>", Cell(Html(part.attachment_id())),
                      Cell(absl::StrCat(part.requested()), {{"class", "n"}}),
                      Cell(absl::StrCat(part.attached()), {{"class", "n"}}),
                      Cell(absl::StrCat(part.degraded()), {{"class", "n"}}),
                      Cell(absl::StrCat(contract::RefusedSites(part)), {{"class", "n"}}),
                      Cell(absl::StrJoin(reasons, ", ")),
                      Cell(anchor == anchors_.end()
                               ? name
                               : absl::StrCat("<a href=\"#", anchor->second, "\">", name, "</a>")),
                      "</tr>\n");
    }
    return text + "</tbody></table></div></details>\n";
  }

  // Sortable by every column, by counts only where that is an order.
  static std::string Heading(const char* name, const char* title, bool sortable, bool number) {
    const std::string text =
        sortable ? absl::StrCat("<button type=\"button\">", title, "</button>") : title;
    return absl::StrCat(Open("th", {{"class", number ? "n" : ""},
                                    {"data-sort", sortable ? name : ""},
                                    {"data-first", number ? "down" : ""}}),
                        text, "</th>");
  }

  std::string Counts() const {
    const bool ranked = ranking_.why_not.empty();
    const std::vector<const CountRow*> rows = OrderedRows(sums_, ranked);
    const std::vector<uint64_t> ranks = Ranks(rows);
    std::string text = absl::StrCat(
        "<section id=\"counts\">\n<h2>What was counted</h2>\n",
        rows.empty() ? "<p>Nothing.</p>\n" : "",
        "<div class=\"wide\"><table id=\"sites\"><thead><tr>",
        ranked ? "<th class=\"n\">Rank</th>" : "", Heading("count", "Count", ranked, true),
        Heading("share", "Of its unit", ranked, true), Heading("unit", "Unit", true, false),
        Heading("attachment", "Attachment", true, false),
        Heading("outcome", "Coverage", true, false), Heading("records", "Records", true, false),
        Heading("kernel", "Kernel", true, false), Heading("offset", "Offset", true, true),
        Heading("instruction", "Instruction", true, false), "</tr></thead><tbody>\n");
    size_t hidden = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (InTheWay(*rows[i])) {
        ++hidden;
        continue;
      }
      absl::StrAppend(&text, CountRowHtml(*rows[i], ranked ? absl::StrCat(ranks[i]) : ""));
    }
    absl::StrAppend(&text, "</tbody></table></div>\n");
    if (hidden > 0) {
      absl::StrAppend(&text, "<p class=\"dim\">", hidden,
                      " rows of the runtime's own kernels, all zero, are not shown.</p>\n");
    }
    return text + "</section>\n";
  }

  std::string CountRowHtml(const CountRow& row, const std::string& rank) const {
    const auto& [key, sum] = row;
    const std::string unit = UnitOf(key.probe);
    const std::string share = Share(sum.count, units_.at(unit));
    const auto anchor = anchors_.find({key.object, key.kernel});
    const std::string offset = absl::StrFormat("0x%x", key.offset);
    const std::string place =
        anchor == anchors_.end()
            ? offset
            : absl::StrCat("<a href=\"#", anchor->second, "-", offset, "\">", offset, "</a>");
    return absl::StrCat(
        Open("tr", {{"data-attachment", Html(key.attachment)},
                    {"data-object", Html(key.object)},
                    {"data-kernel", Html(key.kernel)},
                    {"data-offset", absl::StrCat(key.offset)},
                    {"data-count", absl::StrCat(sum.count)}}),
        rank.empty() ? "" : Cell(rank, {{"class", "n"}}),
        Cell(CountText(sum), {{"class", "n"}, {"data-key", absl::StrCat(sum.count)}}),
        Cell(share, {{"class", "n heat"}, {"style", "--share:" + (share == "-" ? "0%" : share)}}),
        Cell(Html(unit)), Cell(Html(key.attachment)), Cell(OutcomeSpan(sum.outcome)),
        Cell(RecordsText(sum)), Cell(KernelName(key.kernel)),
        Cell(place, {{"class", "n"}, {"data-key", absl::StrCat(key.offset)}}),
        Cell("<code>" + Html(sum.instruction) + "</code>"), "</tr>\n");
  }

  static std::string CountText(const CountSum& sum) {
    std::string text = absl::StrCat(sum.count, sum.final ? "" : "+");
    if (sum.words.size() > 1) {
      absl::StrAppend(&text, "<br><span class=\"dim\">", absl::StrJoin(sum.words, ", "), "</span>");
    }
    return text;
  }

  // How many of a site's events have a record.
  static std::string RecordsText(const CountSum& sum) {
    if (!sum.has_records) return "";
    return absl::StrCat(sum.records.stored(), " (", Share(sum.records.stored(), sum.count), ")");
  }

  std::string Kernel(const KernelPart& part) const {
    v1::Coverage total;
    for (const v1::Coverage& c : in_.report.coverage().coverage()) {
      if (c.code_object_sha256() == part.object && c.kernel() == part.kernel) {
        contract::AddCoverage(total, c);
      }
    }
    std::string text = absl::StrCat(
        Open("section", {{"class", "kernel"}, {"data-kernel", Html(part.kernel)}}), "\n<h2 id=\"",
        anchors_.at({part.object, part.kernel}), "\">", KernelName(part.kernel), "</h2>\n<p>",
        Html(contract::RenderTotal(total)), ".</p>\n<p class=\"dim\">Code object <code>",
        Html(part.object), "</code></p>\n");
    if (part.listing.empty()) {
      return text +
             "<p>rjdbid does not hold this object any more: its instructions are not "
             "shown.</p>\n</section>\n";
    }
    absl::StrAppend(
        &text,
        "<div class=\"wide\"><table class=\"asm\"><thead><tr><th class=\"n\">Offset</th>"
        "<th class=\"n\">Count</th><th>Of</th><th>Coverage</th><th>Instruction</th>"
        "<th></th></tr></thead><tbody>\n",
        Listing(part), "</tbody></table></div>\n</section>\n");
    return text;
  }

  std::string Listing(const KernelPart& part) const {
    std::map<uint64_t, std::vector<const CountRow*>> counts;
    std::map<std::string, uint64_t> highest;  // by unit
    for (const CountRow& row : sums_) {
      if (row.first.object != part.object || row.first.kernel != part.kernel) continue;
      counts[row.first.offset].push_back(&row);
      uint64_t& most = highest[UnitOf(row.first.probe)];
      most = std::max(most, row.second.count);
    }
    std::map<uint64_t, std::vector<const v1::Decision*>> decisions;
    for (const v1::Decision& decision : part.decisions) {
      decisions[decision.site().location().kernel_offset()].push_back(&decision);
    }
    std::string text, source;
    for (const v1::Site& site : part.listing) {
      const v1::SiteCapability& known = site.capability();
      const std::string line = known.source_file().empty()
                                   ? ""
                                   : absl::StrCat(known.source_file(), ":", known.source_line());
      if (line != source && !line.empty()) {
        absl::StrAppend(&text, "<tr><td></td><td></td><td></td><td></td><td class=\"dim\">",
                        Html(line), "</td><td></td></tr>\n");
      }
      source = line;
      const uint64_t offset = site.location().kernel_offset();
      absl::StrAppend(&text, Instruction(part, site, counts[offset], decisions[offset], highest));
    }
    return text;
  }

  std::string Instruction(const KernelPart& part, const v1::Site& site,
                          const std::vector<const CountRow*>& counts,
                          const std::vector<const v1::Decision*>& decisions,
                          const std::map<std::string, uint64_t>& highest) const {
    const v1::Location& at = site.location();
    std::vector<std::string> numbers, of, coverage, why;
    double heat = 0;
    for (const CountRow* row : counts) {
      const auto& [key, sum] = *row;
      const std::string unit = UnitOf(key.probe);
      numbers.push_back(absl::StrCat(Open("span", {{"data-attachment", Html(key.attachment)},
                                                   {"data-count", absl::StrCat(sum.count)}}),
                                     CountText(sum), "</span>"));
      of.push_back(absl::StrCat("<span class=\"dim\">", Html(unit), ", ", Html(key.attachment),
                                sum.has_records ? ", " + RecordsText(sum) + " recorded" : "",
                                "</span>"));
      coverage.push_back(OutcomeSpan(sum.outcome));
      const uint64_t most = highest.at(unit);
      if (most > 0) {
        heat = std::max(heat, static_cast<double>(sum.count) / static_cast<double>(most));
      }
    }
    bool refused = false;
    for (const v1::Decision* decision : decisions) {
      // Another build of the kernel may have another instruction there.
      const v1::Location& place = decision->site().location();
      if (place.code_object_vaddr() != at.code_object_vaddr() ||
          place.instruction() != at.instruction()) {
        continue;
      }
      refused = refused || decision->violations_size() > 0;
      why.push_back(Why(*decision));
      if (decision->degradations_size() == 0) coverage.push_back(OutcomeSpan(decision->outcome()));
    }
    const std::string offset = absl::StrFormat("0x%x", at.kernel_offset());
    return absl::StrCat(
        Open("tr", {{"id", absl::StrCat(anchors_.at({part.object, part.kernel}), "-", offset)},
                    {"data-offset", absl::StrCat(at.kernel_offset())},
                    {"class", refused ? "bad" : ""}}),
        Cell("+" + offset, {{"class", "n"}}),
        Cell(absl::StrJoin(numbers, "<br>"),
             {{"class", "n heat"}, {"style", absl::StrFormat("--share:%.1f%%", 100 * heat)}}),
        Cell(absl::StrJoin(of, "<br>")), Cell(absl::StrJoin(coverage, "<br>")),
        Cell("<code>" + Html(at.instruction()) + "</code>"),
        Cell(absl::StrJoin(why, "<br>"), {{"class", "why"}}), "</tr>\n");
  }

  // Constraint, what it is about, and of which attachment.
  static std::string Why(const v1::Decision& decision) {
    std::vector<std::string> parts;
    for (const v1::Violation& v : decision.violations()) {
      parts.push_back(absl::StrCat(Open("b", {{"title", Html(v.next_step())}}),
                                   Html(v.constraint_id()), "</b> ", Html(v.message())));
    }
    for (const v1::Degradation& d : decision.degradations()) {
      parts.push_back(absl::StrCat("<b class=\"degraded\">", Html(d.constraint_id()), "</b> ",
                                   Html(d.message())));
    }
    return absl::StrCat(Html(decision.attachment_id()), ": ",
                        parts.empty() ? ClassOf(decision.outcome()) : absl::StrJoin(parts, "; "));
  }

  const PageInput& in_;
  const Ranking ranking_;
  CountSums sums_;
  std::map<std::string, uint64_t> units_;
  std::map<KernelKey, std::string> anchors_;
  uint64_t bounds_ = 0;
};

}  // namespace

absl::StatusOr<PageInput> CollectPage(ControlClient& client, const Filter& filter,
                                      const v1::GetReportReply& report) {
  PageInput input;
  input.report = report;
  if (absl::Status s = client.GetStatus({}, input.status); !s.ok()) return s;
  const bool ranked = RankingOf(report, input.status).why_not.empty();
  std::vector<KernelKey> kernels = KernelsOf(report, ranked, filter.all);
  if (kernels.size() > kMostListings) {
    input.not_shown = kernels.size() - kMostListings;
    kernels.resize(kMostListings);
  }
  Progress progress("kernels", kernels.size());
  for (const KernelKey& key : kernels) {
    auto part = CollectKernel(client, filter, key);
    if (!part.ok()) return part.status();
    input.kernels.push_back(std::move(*part));
    progress.Step();
  }
  return input;
}

std::string HtmlPage(const PageInput& input) { return Page(input).Text(); }

}  // namespace rjdbi::clients
