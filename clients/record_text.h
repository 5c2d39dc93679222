// Records as rjctl shows them.
#ifndef CLIENTS_RECORD_TEXT_H_
#define CLIENTS_RECORD_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

// The reply's records, in its order. `damaged` grows by those that do not fit their
// layout.
std::vector<v1::TraceRecord> DecodeReply(const v1::GetRecordsReply& reply, uint64_t* damaged);

// Clock, value or lanes in one short text: "0x7f0010000 + 4 * lane (64 lanes)".
std::string RecordData(const v1::TraceRecord& record);

// "12:00:00.123456", local.
std::string FormatTimeOfDay(int64_t unix_ns);

}  // namespace rjdbi::clients

#endif  // CLIENTS_RECORD_TEXT_H_
