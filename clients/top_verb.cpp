// `rjctl top`: where wavefronts are now. Counts of two reports, subtracted.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/json_text.h"
#include "clients/report_rows.h"
#include "clients/verbs.h"
#include "contract/demangle.h"
#include "contract/render.h"

namespace rjdbi::clients {
namespace {

using Clock = std::chrono::steady_clock;

// What the daemon said at one time.
struct Sample {
  Clock::time_point when;
  v1::GetStatusReply status;
  v1::GetReportReply report;
  CountSums sums;
};

struct Row {
  const CountRow* row = nullptr;
  double rate = 0;  // per second
};

// Waits; false: somebody has asked us to end.
bool Wait(std::chrono::duration<double> time) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wait = {
      whole.count(), std::chrono::duration_cast<std::chrono::nanoseconds>(time - whole).count()};
  return sigtimedwait(&set, nullptr, &wait) < 0;
}

// Held back while we work, so that no output is cut short.
void HoldSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

absl::StatusOr<Sample> Take(ControlClient& client, const Filter& filter) {
  Sample sample;
  v1::GetReportRequest request;
  FillRequest(filter, request);
  sample.when = Clock::now();
  absl::Status s = client.GetReport(request, sample.report);
  if (s.ok()) s = client.GetStatus({}, sample.status);
  if (!s.ok()) return s;
  sample.sums = SumCounts(sample.report, filter.by);
  return sample;
}

int64_t Running(const Sample& sample) {
  const auto& sessions = sample.status.sessions();
  return std::count_if(sessions.begin(), sessions.end(),
                       [](const v1::Session& session) { return session.closed_unix_ns() == 0; });
}

uint64_t Gaps(const Sample& sample) {
  const v1::GetCoverageReply& coverage = sample.report.coverage();
  return static_cast<uint64_t>(coverage.gaps_size()) + coverage.folded_gaps();
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What has been counted since `before`, the most frequent first.
std::vector<Row> Rates(const Sample& before, const Sample& now) {
  const double seconds = std::chrono::duration<double>(now.when - before.when).count();
  std::vector<Row> rows;
  for (const CountRow& row : now.sums) {
    const auto old = before.sums.find(row.first);
    const uint64_t was = old == before.sums.end() ? 0 : old->second.count;
    const uint64_t count = row.second.count;
    rows.push_back({&row, static_cast<double>(count - std::min(count, was)) / seconds});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.rate > b.rate; });
  return rows;
}

struct Screen {
  bool terminal = false;
  size_t rows = SIZE_MAX, columns = SIZE_MAX;
};

Screen ScreenNow() {
  winsize size = {};
  Screen screen;
  screen.terminal = isatty(1) != 0;
  if (screen.terminal && ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) {
    screen.rows = size.ws_row;
    screen.columns = size.ws_col;
  }
  return screen;
}

// The text's first `columns` code points.
std::string Cut(const std::string& text, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

class Top {
 public:
  Top(const Context& context, const TopOptions& options)
      : context_(context), out_(context.out), options_(options) {}

  int Run() {
    HoldSignals();
    client_ = std::make_unique<ControlClient>(context_.control_socket);
    auto first = Take(*client_, options_.filter);
    if (!first.ok()) return out_.Fail(first.status());
    last_ = std::move(*first);
    for (uint64_t i = 0; options_.count == 0 || i < options_.count; ++i) {
      if (!Wait(std::chrono::duration<double>(options_.interval_s))) return kOk;
      if (const int code = Step(); code != kOk) return code;
      if (std::fflush(stdout) != 0) break;  // Finish() says so
    }
    return away_ ? kUnreachable : kOk;
  }

 private:
  // kOk: go on.
  int Step() {
    auto now = Take(*client_, options_.filter);
    if (!now.ok()) return Away(now.status());
    const bool same = now->status.started_unix_ns() == last_.status.started_unix_ns() &&
                      now->status.pid() == last_.status.pid();
    if (!same) {
      out_.Warn("rjdbid has been restarted: rates begin anew");
      last_ = std::move(*now);
      away_ = false;
      return kOk;
    }
    if (away_) out_.Warn("rjdbid answers again");
    away_ = false;
    Print(*now);
    last_ = std::move(*now);
    return kOk;
  }

  int Away(const absl::Status& status) {
    const bool away = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                      absl::IsCancelled(status);
    if (!away) return out_.Fail(status);
    if (!away_) {
      out_.Warn(absl::StrCat("rjdbid does not answer (", std::string(status.message()),
                             "); still asking"));
    }
    away_ = true;
    // A connection that failed waits longer and longer before it tries again.
    client_ = std::make_unique<ControlClient>(context_.control_socket);
    return kOk;
  }

  void Print(const Sample& now) {
    const Ranking ranking = RankingOf(now.report, now.status);
    std::vector<Row> rows = Rates(last_, now);
    const double seconds = std::chrono::duration<double>(now.when - last_.when).count();
    rows.erase(std::remove_if(
                   rows.begin(), rows.end(),
                   [&](const Row& row) { return !options_.filter.all && row.row->second.Zero(); }),
               rows.end());
    if (out_.json()) return PrintJson(now, ranking, rows, seconds);
    PrintTable(now, ranking, rows, seconds);
  }

  static std::string Head(const Sample& now, double seconds) {
    const int64_t running = Running(now);
    const uint64_t gaps = Gaps(now);
    return absl::StrFormat("%s, over %.1f s: %d process%s, %d gap%s; %s\n", FormatTime(NowNs()),
                           seconds, running, running == 1 ? "" : "es", gaps, gaps == 1 ? "" : "s",
                           contract::RenderTotal(now.report.coverage().total()));
  }

  void PrintTable(const Sample& now, const Ranking& ranking, const std::vector<Row>& rows,
                  double seconds) {
    const Screen screen = ScreenNow();
    std::string text = Head(now, seconds);
    if (!ranking.why_not.empty()) {
      absl::StrAppend(&text, "of what is counted alone, no order of all: ", ranking.why_not, "\n");
    }
    const size_t lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 2;
    size_t most = options_.rows;
    if (screen.terminal) most = std::min(most, screen.rows > lines ? screen.rows - lines : 1);
    absl::StrAppend(&text, Table(rows, most));
    if (screen.terminal) out_.Print("\033[H\033[J");
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      out_.Print(Cut(std::string(line), screen.columns) + "\n");
    }
    if (!screen.terminal) out_.Print("\n");
  }

  std::string Table(const std::vector<Row>& rows, size_t most) const {
    const bool sites = options_.filter.by == Filter::By::kSite;
    std::vector<std::vector<std::string>> cells;
    for (size_t i = 0; i < std::min(rows.size(), most); ++i) {
      const auto& [key, sum] = *rows[i].row;
      cells.push_back(
          {absl::StrFormat("%.1f", rows[i].rate), absl::StrCat(sum.count), key.attachment,
           Printable(UnitOf(key.probe)), Printable(contract::Demangle(key.kernel)),
           sites ? absl::StrFormat("0x%x", key.offset) : absl::StrCat(sum.offsets.size()),
           Printable(sites ? sum.instruction : key.opcode)});
    }
    if (cells.empty()) return "Nothing has been counted yet.\n";
    return out_.TableText(
        {"PER SECOND", "COUNT", "ATTACHMENT", "UNIT", "KERNEL", sites ? "OFFSET" : "SITES",
         sites                                       ? "INSTRUCTION"
         : options_.filter.by == Filter::By::kOpcode ? "OPCODE"
                                                     : ""},
        cells, {0, 1, 5});
  }

  // In the spelling of the protos' JSON: 64-bit numbers are texts.
  void PrintJson(const Sample& now, const Ranking& ranking, const std::vector<Row>& rows,
                 double seconds) {
    std::vector<std::string> sites;
    for (size_t i = 0; i < std::min<size_t>(rows.size(), options_.rows); ++i) {
      const auto& [key, sum] = *rows[i].row;
      std::string text = absl::StrCat(
          R"({"perSecond":)", absl::StrFormat("%.3f", rows[i].rate), R"(,"count":")", sum.count,
          R"(","attachmentId":)", JsonString(key.attachment), R"(,"probe":)", JsonString(key.probe),
          R"(,"unit":)", JsonString(UnitOf(key.probe)), R"(,"kernel":)", JsonString(key.kernel),
          R"(,"codeObjectSha256":)", JsonString(key.object), R"(,"sites":)", sum.offsets.size());
      if (options_.filter.by == Filter::By::kSite) {
        absl::StrAppend(&text, R"(,"kernelOffset":")", key.offset, R"(","instruction":)",
                        JsonString(sum.instruction));
      } else if (options_.filter.by == Filter::By::kOpcode) {
        absl::StrAppend(&text, R"(,"opcode":)", JsonString(key.opcode));
      }
      sites.push_back(text + "}");
    }
    const v1::Coverage& total = now.report.coverage().total();
    out_.Print(absl::StrCat(R"({"unixNs":")", NowNs(), R"(","seconds":)",
                            absl::StrFormat("%.3f", seconds), R"(,"processes":)", Running(now),
                            R"(,"gaps":")", Gaps(now), R"(","requested":")", total.requested(),
                            R"(","attached":")", total.attached(), R"(","degraded":")",
                            total.degraded(), R"(","notRanked":)", JsonString(ranking.why_not),
                            R"(,"rows":[)", absl::StrJoin(sites, ","), "]}\n"));
  }

  const Context& context_;
  const Output& out_;
  const TopOptions& options_;
  std::unique_ptr<ControlClient> client_;
  Sample last_;
  bool away_ = false;
};

}  // namespace

int TopVerb(const Context& context, const TopOptions& options) {
  return Top(context, options).Run();
}

}  // namespace rjdbi::clients
