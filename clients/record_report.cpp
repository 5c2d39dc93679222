#include "clients/record_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/record_text.h"
#include "clients/report_rows.h"
#include "contract/demangle.h"
#include "contract/natural_order.h"
#include "contract/record_format.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::clients {
namespace {

// So that a report takes seconds: the newest ones.
constexpr uint64_t kMostAnalysed = 200'000;
// Below this share of a site's events its figures say nothing about the others, and no
// order of sites follows from them.
constexpr double kEnoughToRank = 0.5;
constexpr int kMostStrides = 8;
constexpr uint32_t kShaderCyclesBits = 20;  // SHADER_CYCLES: RDNA2 ISA 3.10, hardware register 29

struct Place {
  std::string attachment, kernel, object;
  uint64_t offset = 0;

  bool operator<(const Place& other) const {
    for (const auto member : {&Place::attachment, &Place::kernel, &Place::object}) {
      if (this->*member != other.*member) {
        return contract::NaturalLess(this->*member, other.*member);
      }
    }
    return offset < other.offset;
  }
};

// ---- Working out ----

// Sums over the records of one site.
struct SiteSums {
  const v1::RecordSource* source = nullptr;
  uint64_t records = 0, with_addresses = 0, lines64 = 0, lines128 = 0, irregular = 0;
  uint64_t lds_cycles = 0, lds_least = 0;
  std::map<uint32_t, uint64_t> lanes;
  std::map<int64_t, uint64_t> strides;
};

using WavePlace = std::tuple<std::string, uint64_t, uint32_t>;  // session, load, wave

class Analysis {
 public:
  // Sources have to stay where they are.
  void Add(const v1::RecordSource& source, const contract::Record& record) {
    const v1::Location& at = source.location();
    const Place place = {source.attachment_id(), at.kernel(), source.code_object_sha256(),
                         at.kernel_offset()};
    SiteSums& sums = sites_[place];
    sums.source = &source;
    ++sums.records;
    ++sums.lanes[contract::ActiveLanes(record)];
    if (source.layout().kind() == RJDBI_RECORD_ADDRESS) AddAddresses(source, record, sums);
    if (record.time.has_value() && record.wave.has_value()) AddTime(source, place, record);
  }

  void Fill(const std::map<Place, v1::SiteCount>& counts, v1::GetReportReply& report) const;

 private:
  struct Last {
    Place place;
    uint64_t time = 0;
  };

  static void AddAddresses(const v1::RecordSource& source, const contract::Record& record,
                           SiteSums& sums) {
    if (record.lanes.empty()) return;
    const v1::RecordLayout& layout = source.layout();
    ++sums.with_addresses;
    if (layout.address_form() == v1::ADDRESS_LDS) {
      const contract::BankUse use =
          contract::LdsBankUse(record, layout.access_bytes(), contract::LdsBanks(source.isa()));
      sums.lds_cycles += use.cycles;
      sums.lds_least += use.least;
    } else {
      sums.lines64 += contract::LinesTouched(record, layout.access_bytes(), 64);
      sums.lines128 += contract::LinesTouched(record, layout.access_bytes(), 128);
    }
    if (record.lanes.size() < 2) return;
    if (const auto stride = contract::CommonStride(record)) {
      ++sums.strides[*stride];
    } else {
      ++sums.irregular;
    }
  }

  void AddTime(const v1::RecordSource& source, const Place& place, const contract::Record& record) {
    const WavePlace wave = {source.session_id(), source.load_id(), *record.wave};
    const auto [last, fresh] = last_.try_emplace(wave);
    if (!fresh && last->second.place.attachment == place.attachment) {
      uint64_t took = *record.time - last->second.time;
      if (source.layout().clock() == "SHADER_CYCLES") took &= (1u << kShaderCyclesBits) - 1;
      times_[{last->second.place, place}].push_back(took);
    }
    last->second = {place, *record.time};
  }

  std::map<Place, SiteSums> sites_;
  std::map<WavePlace, Last> last_;
  std::map<std::pair<Place, Place>, std::vector<uint64_t>> times_;
};

void FillStrides(const SiteSums& sums, v1::RecordSummary& summary) {
  std::vector<std::pair<int64_t, uint64_t>> strides(sums.strides.begin(), sums.strides.end());
  std::stable_sort(strides.begin(), strides.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (strides.size() > kMostStrides) strides.resize(kMostStrides);
  for (const auto& [stride, records] : strides) {
    v1::StrideCount& count = *summary.add_strides();
    count.set_stride(stride);
    count.set_records(records);
  }
}

void Analysis::Fill(const std::map<Place, v1::SiteCount>& counts,
                    v1::GetReportReply& report) const {
  for (const auto& [place, sums] : sites_) {
    v1::RecordSummary& summary = *report.add_record_summaries();
    summary.set_attachment_id(place.attachment);
    summary.set_probe(sums.source->probe());
    summary.set_code_object_sha256(place.object);
    *summary.mutable_location() = sums.source->location();
    if (const auto found = counts.find(place); found != counts.end()) {
      summary.set_events(found->second.count());
      summary.set_stored(found->second.records().stored());
    }
    summary.set_analysed(sums.records);
    for (const auto& [lanes, records] : sums.lanes) {
      v1::LaneCount& count = *summary.add_lanes();
      count.set_lanes(lanes);
      count.set_records(records);
    }
    summary.set_with_addresses(sums.with_addresses);
    summary.set_lines64(sums.lines64);
    summary.set_lines128(sums.lines128);
    summary.set_irregular(sums.irregular);
    FillStrides(sums, summary);
    summary.set_lds_cycles(sums.lds_cycles);
    summary.set_lds_least_cycles(sums.lds_least);
    if (sums.lds_cycles > 0) summary.set_lds_banks(contract::LdsBanks(sums.source->isa()));
  }
  for (const auto& [pair, given] : times_) {
    std::vector<uint64_t> times = given;
    std::sort(times.begin(), times.end());
    v1::ClockPair& out = *report.add_clock_pairs();
    out.set_attachment_id(pair.first.attachment);
    out.set_code_object_sha256(pair.first.object);
    *out.mutable_from() = sites_.at(pair.first).source->location();
    *out.mutable_to() = sites_.at(pair.second).source->location();
    out.set_clock(sites_.at(pair.first).source->layout().clock());
    out.set_count(times.size());
    out.set_min(times.front());
    out.set_median(times[(times.size() - 1) / 2]);
    out.set_max(times.back());
  }
}

// The sites that write records, processes added up.
std::map<Place, v1::SiteCount> RecordSites(const v1::GetReportReply& report) {
  std::map<Place, v1::SiteCount> sites;
  for (const v1::SiteCount& count : report.counts()) {
    if (!count.has_records()) continue;
    const auto [found, fresh] =
        sites.try_emplace({count.attachment_id(), count.location().kernel(),
                           count.code_object_sha256(), count.location().kernel_offset()},
                          count);
    if (fresh) continue;
    v1::SiteCount& sum = found->second;
    sum.set_count(sum.count() + count.count());
    sum.set_final(sum.final() && count.final());
    AddRecordCounts(*sum.mutable_records(), count.records());
  }
  return sites;
}

// ---- Printing ----

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  if (part == whole) return "100%";
  // Never rounded to all, nor to nothing.
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent >= 99.95) return "99.9%";
  return percent < 0.05 && part > 0 ? "<0.1%" : absl::StrFormat("%.1f%%", percent);
}

std::string Kernel(const v1::Location& location) {
  return Printable(contract::Demangle(location.kernel()));
}
std::string Offset(const v1::Location& location) {
  return absl::StrFormat("0x%x", location.kernel_offset());
}

void PrintSites(const Output& out, const std::map<Place, v1::SiteCount>& sites, bool all) {
  std::vector<std::vector<std::string>> rows;
  size_t hidden = 0;
  for (const auto& [place, site] : sites) {
    if (!all && site.count() == 0 && RuntimeKernel(site.location().kernel())) {
      ++hidden;
      continue;
    }
    const v1::RecordCounts& records = site.records();
    rows.push_back({place.attachment, Printable(site.probe()),
                    absl::StrCat(site.count(), site.final() ? "" : "+"),
                    absl::StrCat(records.stored()), Percent(records.stored(), site.count()),
                    absl::StrCat(records.device_full()), absl::StrCat(NotArrived(records)),
                    absl::StrCat(records.rate_limited()), absl::StrCat(records.dropped()),
                    Kernel(site.location()), Offset(site.location()),
                    Printable(site.location().instruction())});
  }
  out.Print("Records, and where those of the other events were lost:\n");
  out.Table({"ATTACHMENT", "PROBE", "EVENTS", "RECORDS", "OBSERVED", "RING FULL", "NOT ARRIVED",
             "RATE LIMIT", "MADE ROOM", "KERNEL", "OFFSET", "INSTRUCTION"},
            rows, {2, 3, 4, 5, 6, 7, 8, 10});
  NoteHidden(out, hidden);
}

void PrintLosses(const Output& out, const v1::GetReportReply& report) {
  v1::RecordLosses sum;
  for (const v1::RecordLosses& losses : report.record_losses()) {
    sum.set_agent_queue(sum.agent_queue() + losses.agent_queue());
    sum.set_undelivered(sum.undelivered() + losses.undelivered());
    sum.set_on_the_way(sum.on_the_way() + losses.on_the_way());
    sum.set_rejected(sum.rejected() + losses.rejected());
    sum.set_unfinished_bytes(sum.unfinished_bytes() + losses.unfinished_bytes());
  }
  const std::pair<uint64_t, const char*> lines[] = {
      {sum.agent_queue(), "records did not arrive: the agent's queue was full"},
      {sum.undelivered(), "records did not arrive: their batches were lost"},
      {sum.on_the_way(), "records are on the way, or were lost with a process that was killed"},
      {sum.rejected(), "records arrived and were not understood"},
      {sum.unfinished_bytes(), "bytes of the ring were reserved and never completed"}};
  for (const auto& [count, text] : lines) {
    if (count > 0) out.Print(absl::StrCat(count, " ", text, "\n"));
  }
}

std::string PerRecord(uint64_t sum, uint64_t records) {
  if (records == 0) return "-";
  return absl::StrFormat("%.2f", static_cast<double>(sum) / static_cast<double>(records));
}

double MeanLanes(const v1::RecordSummary& summary) {
  double sum = 0;
  for (const v1::LaneCount& count : summary.lanes()) {
    sum += static_cast<double>(count.lanes()) * static_cast<double>(count.records());
  }
  return summary.analysed() == 0 ? 0 : sum / static_cast<double>(summary.analysed());
}

// "64: 90.0%, 32: 10.0%", the most frequent first.
std::string LanesText(const v1::RecordSummary& summary) {
  constexpr size_t kShown = 3;
  std::vector<v1::LaneCount> counts(summary.lanes().begin(), summary.lanes().end());
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.records() > b.records(); });
  std::string text;
  for (size_t i = 0; i < counts.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", counts[i].lanes(), ": ",
                    Percent(counts[i].records(), summary.analysed()));
  }
  return absl::StrCat(text, counts.size() > kShown ? ", ..." : "");
}

std::string StridesText(const v1::RecordSummary& summary) {
  constexpr int kShown = 2;
  uint64_t several = summary.irregular();
  for (const v1::StrideCount& stride : summary.strides()) several += stride.records();
  std::string text;
  for (int i = 0; i < summary.strides_size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", summary.strides(i).stride(), ": ",
                    Percent(summary.strides(i).records(), several));
  }
  if (summary.irregular() > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    "irregular: ", Percent(summary.irregular(), several));
  }
  return text.empty() ? "-" : text;
}

// What a site costs by its figures, for the order of the table.
double Cost(const v1::RecordSummary& summary) {
  if (summary.with_addresses() == 0) return -MeanLanes(summary);
  const uint64_t sum = summary.lds_cycles() > 0 ? summary.lds_cycles() - summary.lds_least_cycles()
                                                : summary.lines64();
  return static_cast<double>(sum) / static_cast<double>(summary.with_addresses()) *
         static_cast<double>(summary.events());
}

void PrintSummaries(const Output& out, const v1::GetReportReply& report) {
  std::vector<const v1::RecordSummary*> summaries;
  const v1::RecordSummary* least = nullptr;
  const auto share = [](const v1::RecordSummary& s) {
    return s.events() == 0 ? 0
                           : static_cast<double>(s.analysed()) / static_cast<double>(s.events());
  };
  for (const v1::RecordSummary& summary : report.record_summaries()) {
    summaries.push_back(&summary);
    if (least == nullptr || share(summary) < share(*least)) least = &summary;
  }
  if (summaries.empty()) return;
  const bool ranked = share(*least) >= kEnoughToRank;
  if (ranked) {
    std::stable_sort(summaries.begin(), summaries.end(),
                     [](const auto* a, const auto* b) { return Cost(*a) > Cost(*b); });
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::RecordSummary* s : summaries) {
    const bool lds = s->lds_cycles() > 0;
    rows.push_back({s->attachment_id(), Percent(s->analysed(), s->events()),
                    absl::StrFormat("%.1f", MeanLanes(*s)), LanesText(*s),
                    lds ? "-" : PerRecord(s->lines64(), s->with_addresses()),
                    lds ? "-" : PerRecord(s->lines128(), s->with_addresses()), StridesText(*s),
                    lds ? absl::StrCat(PerRecord(s->lds_cycles(), s->with_addresses()), " of ",
                                       PerRecord(s->lds_least_cycles(), s->with_addresses()))
                        : "-",
                    Kernel(s->location()), Offset(s->location()),
                    Printable(s->location().instruction())});
  }
  out.Print("\nWhat the records say:\n");
  out.Table({"ATTACHMENT", "OF EVENTS", "LANES", "HOW MANY: HOW OFTEN", "64B LINES", "128B LINES",
             "STRIDE: HOW OFTEN", "LDS CYCLES", "KERNEL", "OFFSET", "INSTRUCTION"},
            rows, {1, 2, 4, 5, 9});
  if (!ranked) {
    out.Print(absl::StrCat("not ranked: of the events at ", Kernel(least->location()), "+",
                           Offset(least->location()), " only ",
                           Percent(least->analysed(), least->events()), " were observed\n"));
  }
}

void PrintTimes(const Output& out, const v1::GetReportReply& report) {
  if (report.clock_pairs_size() == 0) return;
  std::vector<std::vector<std::string>> rows;
  for (const v1::ClockPair& pair : report.clock_pairs()) {
    rows.push_back({pair.attachment_id(), absl::StrCat(pair.count()), absl::StrCat(pair.min()),
                    absl::StrCat(pair.median()), absl::StrCat(pair.max()), pair.clock(),
                    Kernel(pair.from()), Offset(pair.from()), Offset(pair.to())});
  }
  out.Print("\nFrom one record of a wavefront to its next:\n");
  out.Table({"ATTACHMENT", "COUNT", "MIN", "MEDIAN", "MAX", "CLOCK", "KERNEL", "FROM", "TO"}, rows,
            {1, 2, 3, 4, 7, 8});
}

}  // namespace

absl::Status SummariseRecords(ControlClient& client, v1::GetRecordsRequest request,
                              v1::GetReportReply& report) {
  const std::map<Place, v1::SiteCount> sites = RecordSites(report);
  const bool any = std::any_of(sites.begin(), sites.end(),
                               [](const auto& site) { return site.second.records().stored() > 0; });
  if (!any) return absl::OkStatus();
  Analysis analysis;
  std::vector<std::unique_ptr<v1::GetRecordsReply>> replies;  // whose sources are referred to
  request.set_last(kMostAnalysed);
  do {
    auto reply = std::make_unique<v1::GetRecordsReply>();
    if (absl::Status s = client.GetRecords(request, *reply); !s.ok()) return s;
    ForEachRecord(*reply, [&](const v1::RecordSource& source, const contract::Record& record,
                              int64_t) { analysis.Add(source, record); });
    request.set_last(0);
    request.set_after(reply->next());
    reply->clear_chunks();
    replies.push_back(std::move(reply));
  } while (replies.back()->more());
  analysis.Fill(sites, report);
  return absl::OkStatus();
}

void PrintRecords(const Output& out, const v1::GetReportReply& report, bool all) {
  const std::map<Place, v1::SiteCount> sites = RecordSites(report);
  if (sites.empty()) return;
  PrintSites(out, sites, all);
  PrintLosses(out, report);
  PrintSummaries(out, report);
  PrintTimes(out, report);
  out.Print("\n");
}

}  // namespace rjdbi::clients
