// See the header.
#include "clients/report_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "contract/coverage.h"
#include "contract/demangle.h"
#include "contract/manifest.h"
#include "contract/natural_order.h"

namespace rjdbi::clients {
namespace {

bool Degraded(v1::Outcome outcome) { return outcome == v1::ATTACH_WITH_DECLARED_DEGRADATION; }

// Counts that end with the last report of a process that was killed.
bool EndsEarly(const v1::SiteCount& count, const std::set<std::string>& lost) {
  return !count.final() && (count.session_id().empty() || lost.count(count.session_id()) != 0);
}

std::string Sites(uint64_t n) { return absl::StrCat(n, n == 1 ? " site" : " sites"); }

}  // namespace

bool CountKey::operator<(const CountKey& other) const {
  const std::pair<const std::string*, const std::string*> texts[] = {
      {&attachment, &other.attachment},
      {&kernel, &other.kernel},
      {&probe, &other.probe},
      {&object, &other.object},
      {&opcode, &other.opcode}};
  for (const auto& [mine, theirs] : texts) {
    if (*mine != *theirs) return contract::NaturalLess(*mine, *theirs);
  }
  return offset < other.offset;
}

bool CountSum::Zero() const {
  return count == 0 &&
         std::all_of(words.begin(), words.end(), [](uint64_t word) { return word == 0; });
}

std::string OpcodeOf(const std::string& instruction) {
  return instruction.substr(0, instruction.find(' '));
}

void AddRecordCounts(v1::RecordCounts& sum, const v1::RecordCounts& part) {
  sum.set_device_full(sum.device_full() + part.device_full());
  sum.set_read(sum.read() + part.read());
  sum.set_received(sum.received() + part.received());
  sum.set_rate_limited(sum.rate_limited() + part.rate_limited());
  sum.set_dropped(sum.dropped() + part.dropped());
  sum.set_stored(sum.stored() + part.stored());
}

uint64_t NotArrived(const v1::RecordCounts& records) {
  return records.read() - std::min(records.read(), records.received());
}

CountSums SumCounts(const v1::GetReportReply& reply, Filter::By by) {
  CountSums sums;
  for (const v1::SiteCount& c : reply.counts()) {
    CountSum& sum =
        sums[{c.attachment_id(), c.location().kernel(), c.probe(), c.code_object_sha256(),
              by == Filter::By::kSite ? c.location().kernel_offset() : 0,
              by == Filter::By::kOpcode ? OpcodeOf(c.location().instruction()) : ""}];
    sum.count += c.count();
    sum.words.resize(std::max(sum.words.size(), static_cast<size_t>(c.words_size())));
    for (int word = 0; word < c.words_size(); ++word) {
      sum.words[static_cast<size_t>(word)] += c.words(word);
    }
    sum.offsets.insert(c.location().kernel_offset());
    if (!c.session_id().empty()) sum.sessions.insert(c.session_id());
    sum.final = sum.final && c.final();
    sum.instruction = c.location().instruction();
    sum.vaddr = c.location().code_object_vaddr();
    if (!Degraded(sum.outcome)) sum.outcome = c.outcome();
    if (!c.has_records()) continue;
    sum.has_records = true;
    AddRecordCounts(sum.records, c.records());
  }
  return sums;
}

std::string UnitOf(const std::string& probe) {
  if (contract::FindProbe(probe) == nullptr) return "probe:" + probe;
  if (probe == "count-lanes") return "lanes";
  return probe == "count-waves" || probe == "block-count" ? "wavefronts" : "executions";
}

Ranking RankingOf(const v1::GetReportReply& reply, const v1::GetStatusReply& status) {
  std::set<std::string> units, lost;
  for (const v1::Session& session : status.sessions()) {
    if (session.closed_unix_ns() != 0 && !session.closed_cleanly()) lost.insert(session.id());
  }
  Ranking ranking;
  std::set<std::string> ended_early;
  uint64_t without_place = 0;
  for (const v1::SiteCount& count : reply.counts()) {
    units.insert(UnitOf(count.probe()));
    ranking.unfinished = ranking.unfinished || !count.final();
    if (count.location().kernel().empty() && count.count() > 0) ++without_place;
    if (EndsEarly(count, lost)) ended_early.insert(count.session_id());
  }
  const v1::GetCoverageReply& coverage = reply.coverage();
  const uint64_t unobserved = coverage.total().requested() - contract::DoneSites(coverage.total());
  const uint64_t gaps = static_cast<uint64_t>(coverage.gaps_size()) + coverage.folded_gaps();
  const auto objects = static_cast<uint64_t>(coverage.refused_objects_size());
  if (units.size() > 1) {
    ranking.why_not =
        absl::StrCat("the counts are of different things: ", absl::StrJoin(units, ", "),
                     " (--attachment chooses)");
  } else if (unobserved > 0) {
    ranking.why_not =
        absl::StrCat(unobserved, " of ", Sites(coverage.total().requested()),
                     " that were asked for are not counted, and any of them could be above those "
                     "that are");
  } else if (!coverage.pending_processes().empty()) {
    ranking.why_not =
        "running processes have not taken over all attachments yet (rjctl status: applying), and "
        "what they run meanwhile is not counted";
  } else if (gaps + objects > 0) {
    ranking.why_not =
        absl::StrCat("code objects ran unobserved (gaps: ", gaps, ", refused: ", objects,
                     "), and any of their sites could be above those that are counted");
  } else if (!ended_early.empty()) {
    ranking.why_not =
        "a process was killed: its counts end with its last report, and any of its sites may "
        "have run more often";
  } else if (without_place > 0) {
    ranking.why_not = "some counts are of places that are no longer kept apart";
  }
  if (!ranking.why_not.empty()) ranking.why_not = Printable(ranking.why_not);
  return ranking;
}

std::vector<const CountRow*> OrderedRows(const CountSums& sums, bool by_count) {
  std::vector<const CountRow*> rows;
  for (const CountRow& row : sums) rows.push_back(&row);
  if (by_count) {
    std::stable_sort(rows.begin(), rows.end(), [](const CountRow* a, const CountRow* b) {
      return a->second.count > b->second.count;
    });
  }
  return rows;
}

std::vector<uint64_t> Ranks(const std::vector<const CountRow*>& rows) {
  std::vector<uint64_t> ranks;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool equal = i > 0 && rows[i]->second.count == rows[i - 1]->second.count;
    ranks.push_back(equal ? ranks.back() : i + 1);
  }
  return ranks;
}

bool InTheWay(const CountRow& row) { return row.second.Zero() && RuntimeKernel(row.first.kernel); }

void PrintReportCsv(const Output& out, const std::vector<const CountRow*>& rows,
                    const v1::GetReportReply& reply, Filter::By by, bool ranked) {
  const bool sites = by == Filter::By::kSite;
  const auto& gone = reply.coverage().detached_attachments();
  const std::set<std::string> detached(gone.begin(), gone.end());
  const std::vector<uint64_t> ranks = Ranks(rows);
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  out.Print(CsvLine({"rank",
                     "attachment",
                     "detached",
                     "probe",
                     "unit",
                     "count",
                     "lower_bound",
                     "words",
                     "kernel",
                     "kernel_demangled",
                     "code_object_sha256",
                     "kernel_offset",
                     "sites",
                     "code_object_vaddr",
                     "opcode",
                     "instruction",
                     "outcome",
                     "sessions",
                     "records_stored",
                     "ring_full",
                     "not_arrived",
                     "rate_limited",
                     "made_room"}));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& [key, sum] = *rows[i];
    const auto record = [&sum = sum](uint64_t number) {
      return sum.has_records ? absl::StrCat(number) : std::string();
    };
    out.Print(CsvLine({ranked ? absl::StrCat(ranks[i]) : "",
                       key.attachment,
                       yes(detached.count(key.attachment) != 0),
                       key.probe,
                       UnitOf(key.probe),
                       absl::StrCat(sum.count),
                       yes(!sum.final),
                       absl::StrJoin(sum.words, " "),
                       key.kernel,
                       contract::Demangle(key.kernel),
                       key.object,
                       sites ? absl::StrCat(key.offset) : "",
                       absl::StrCat(sum.offsets.size()),
                       sites ? absl::StrCat(sum.vaddr) : "",
                       sites ? OpcodeOf(sum.instruction) : key.opcode,
                       sites ? sum.instruction : "",
                       sites ? v1::Outcome_Name(sum.outcome) : "",
                       absl::StrJoin(sum.sessions, " "),
                       record(sum.records.stored()),
                       record(sum.records.device_full()),
                       record(NotArrived(sum.records)),
                       record(sum.records.rate_limited()),
                       record(sum.records.dropped())}));
  }
}

}  // namespace rjdbi::clients
