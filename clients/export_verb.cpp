// `rjctl export`: what was collected, for other people's viewers.
#include <unistd.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "clients/export.h"
#include "clients/files.h"
#include "clients/listing.h"
#include "clients/verbs.h"
#include "contract/render.h"

namespace rjdbi::clients {
namespace {

// Where the objects say which source lines their instructions come from.
absl::Status AddLines(ControlClient& client, Collected& collected) {
  std::set<std::pair<std::string, std::string>> kernels;
  for (const v1::SiteCount& count : collected.report.counts()) {
    if (count.count() == 0 || count.location().kernel().empty()) continue;
    kernels.insert({count.code_object_sha256(), count.location().kernel()});
  }
  Progress progress("source lines of kernels", kernels.size());
  for (const auto& [object, kernel] : kernels) {
    const auto sites = ListKernel(client, object, kernel);
    if (!sites.ok()) return sites.status();
    for (const v1::Site& site : *sites) {
      const v1::SiteCapability& known = site.capability();
      if (known.source_file().empty()) continue;
      collected.lines[{object, kernel, site.location().kernel_offset()}] = {known.source_file(),
                                                                            known.source_line()};
    }
    progress.Step();
  }
  return absl::OkStatus();
}

absl::Status AddRecords(ControlClient& client, const v1::GetReportRequest& about,
                        Collected& collected) {
  v1::GetRecordsRequest request = RecordsOf(about);
  do {
    auto reply = std::make_unique<v1::GetRecordsReply>();
    if (absl::Status s = client.GetRecords(request, *reply); !s.ok()) return s;
    request.set_after(reply->next());
    collected.records.push_back(std::move(reply));
  } while (collected.records.back()->more());
  return absl::OkStatus();
}

absl::StatusOr<Collected> Collect(ControlClient& client, const ExportOptions& options) {
  v1::GetReportRequest request;
  FillRequest(options.filter, request);
  Collected collected;
  absl::Status s = client.GetReport(request, collected.report);
  if (s.ok()) s = client.GetStatus({}, collected.status);
  if (s.ok()) {
    s = options.format == "perfetto" ? AddRecords(client, request, collected)
                                     : AddLines(client, collected);
  }
  if (!s.ok()) return s;
  return collected;
}

}  // namespace

int Export(const Context& context, const ExportOptions& options) {
  const Output& out = context.out;
  if (options.format == "pprof" && options.file.empty() && isatty(1) != 0) {
    return out.FailUsage("pprof's format is not for a terminal: name a file with --output-file");
  }
  ControlClient client(context.control_socket);
  const auto collected = Collect(client, options);
  if (!collected.ok()) return out.Fail(collected.status());
  const auto exported = options.format == "folded"  ? FoldedStacks(*collected)
                        : options.format == "pprof" ? PprofProfile(*collected)
                                                    : TraceEvents(*collected);
  if (!exported.ok()) return out.Fail(exported.status());
  if (options.file.empty()) {
    out.Print(exported->bytes);
  } else if (absl::Status s = WriteFile(options.file, exported->bytes); !s.ok()) {
    return out.Fail(s);
  }
  const v1::GetCoverageReply& coverage = collected->report.coverage();
  for (const std::string& note : exported->left_out) out.Warn(note);
  out.Note(absl::StrCat(contract::RenderTotal(coverage.total()), "; ",
                        static_cast<uint64_t>(coverage.gaps_size()) + coverage.folded_gaps(),
                        " gaps"));
  NoteDetachedIn(context, coverage, options.filter);
  WarnVacuousIn(context, coverage);
  return CoverageExit(coverage);
}

}  // namespace rjdbi::clients
