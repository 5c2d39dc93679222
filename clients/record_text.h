// Records as rjctl shows them.
#ifndef CLIENTS_RECORD_TEXT_H_
#define CLIENTS_RECORD_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "contract/record_format.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// Calls `each` for every record of the reply, in its order. Returns how many do not fit
// their layout.
uint64_t ForEachRecord(
    const v1::GetRecordsReply& reply,
    absl::FunctionRef<void(const v1::RecordSource& source, const contract::Record& record,
                           int64_t received_unix_ns)>
        each);

v1::TraceRecord DescribeRecord(const v1::RecordSource& source, const contract::Record& record,
                               int64_t received_unix_ns);

// The reply's records, in its order. `damaged` grows by those that do not fit their
// layout.
std::vector<v1::TraceRecord> DecodeReply(const v1::GetRecordsReply& reply, uint64_t* damaged);

// Clock, value or lanes in one short text: "0x7f0010000 + 4 * lane (64 lanes)".
std::string RecordData(const v1::TraceRecord& record);

// "12:00:00.123456", local.
std::string FormatTimeOfDay(int64_t unix_ns);

}  // namespace rjdbi::clients

#endif  // CLIENTS_RECORD_TEXT_H_
