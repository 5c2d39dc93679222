// The report as one page that needs nothing else: coverage, what was counted, and the
// kernels' instructions with counts and refusals beside them.
#ifndef CLIENTS_HTML_REPORT_H_
#define CLIENTS_HTML_REPORT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/control_client.h"
#include "clients/report_rows.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// What the page says of a kernel of an object.
struct KernelPart {
  std::string object, kernel;           // SHA-256, mangled name
  std::vector<v1::Site> listing;        // empty: the daemon does not hold the object any more
  std::vector<v1::Decision> decisions;  // refused, left out and degraded sites
};

struct PageInput {
  v1::GetReportReply report;
  v1::GetStatusReply status;
  std::vector<KernelPart> kernels;  // in the order in which they are shown
  size_t not_shown = 0;             // more kernels, without a listing
};

// Asks for what the page shows of the report's kernels.
absl::StatusOr<PageInput> CollectPage(ControlClient& client, const Filter& filter,
                                      const v1::GetReportReply& report);

std::string HtmlPage(const PageInput& input);

}  // namespace rjdbi::clients

#endif  // CLIENTS_HTML_REPORT_H_
