// What was collected, in the formats of other people's viewers.
#ifndef CLIENTS_EXPORT_H_
#define CLIENTS_EXPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::clients {

struct SourceLine {
  std::string file;
  uint32_t line = 0;
};

struct Collected {
  v1::GetReportReply report;
  v1::GetStatusReply status;
  // Where objects say so: by object, kernel and offset.
  std::map<std::tuple<std::string, std::string, uint64_t>, SourceLine> lines;
  std::vector<std::unique_ptr<v1::GetRecordsReply>> records;  // of a trace alone
};

struct Exported {
  std::string bytes;
  std::vector<std::string> left_out;  // what is not in them, with numbers
};

// "EXECUTABLE;KERNEL;FILE:LINE;+0xOFFSET INSTRUCTION COUNT", a line for each place that was
// counted; the source line only where the object has one.
// INVALID_ARGUMENT: the counts are of different things, which cannot be stacked.
absl::StatusOr<Exported> FoldedStacks(const Collected& collected);

// pprof's profile, compressed: executable, kernel and instruction are the frames, a code
// object is a mapping, and what probes count are the sample types.
absl::StatusOr<Exported> PprofProfile(const Collected& collected);

// JSON as Perfetto and chrome://tracing read it: for each process and clock a process, for
// each wavefront a thread. A record of a clock lasts until the wavefront's next one; other
// records are events at the time at which the daemon received them.
absl::StatusOr<Exported> TraceEvents(const Collected& collected);

}  // namespace rjdbi::clients

#endif  // CLIENTS_EXPORT_H_
