// What a report says of trace records: how many of them were observed, where the
// others were lost, and what those that are there say together.
#ifndef CLIENTS_RECORD_REPORT_H_
#define CLIENTS_RECORD_REPORT_H_

#include "absl/status/status.h"
#include "clients/control_client.h"
#include "clients/output.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// Asks for the records that `request` is about, the newest of them if there are many,
// and adds their summaries to `report`, which answers the same question.
absl::Status SummariseRecords(ControlClient& client, v1::GetRecordsRequest request,
                              v1::GetReportReply& report);

// Nothing, if no site writes records.
// `all`: sites of the runtime's own kernels without an event, too.
void PrintRecords(const Output& out, const v1::GetReportReply& report, bool all);

}  // namespace rjdbi::clients

#endif  // CLIENTS_RECORD_REPORT_H_
