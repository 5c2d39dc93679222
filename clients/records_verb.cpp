// `rjctl records`: trace records, one line each.
#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/record_text.h"
#include "clients/verbs.h"
#include "contract/demangle.h"

namespace rjdbi::clients {
namespace {

// Between two questions of --follow.
constexpr std::chrono::milliseconds kFollowInterval{50};

const std::vector<std::string> kColumns = {
    "RECEIVED", "PID", "KERNEL", "OFFSET", "INSTRUCTION", "EXEC", "WORKGROUP", "WAVE", "DATA"};
const std::vector<std::string> kCsvColumns = {"received_unix_ns",
                                              "session",
                                              "pid",
                                              "attachment",
                                              "probe",
                                              "kernel",
                                              "kernel_offset",
                                              "exec",
                                              "active_lanes",
                                              "workgroup_x",
                                              "workgroup_y",
                                              "workgroup_z",
                                              "wave",
                                              "time",
                                              "value",
                                              "lanes",
                                              "instruction"};

// The kernel is not told its workgroup's place on this axis: it does not ask.
constexpr uint32_t kNotTold = ~uint32_t{0};

std::string WorkgroupText(const v1::TraceRecord& record) {
  if (record.workgroup_size() == 0) return "-";
  return absl::StrJoin(record.workgroup(), ",", [](std::string* out, uint32_t id) {
    absl::StrAppend(out, id == kNotTold ? "-" : absl::StrCat(id));
  });
}

std::vector<std::string> TableCells(const v1::TraceRecord& record) {
  return {FormatTimeOfDay(record.received_unix_ns()),
          absl::StrCat(record.pid()),
          Printable(contract::Demangle(record.kernel())),
          absl::StrFormat("0x%x", record.kernel_offset()),
          Printable(record.instruction()),
          record.exec(),
          WorkgroupText(record),
          record.has_wave() ? absl::StrFormat("0x%x", record.wave()) : "-",
          RecordData(record)};
}

std::string RecordLine(const v1::TraceRecord& record) {
  const auto workgroup = [&](int i) {
    const bool told = i < record.workgroup_size() && record.workgroup(i) != kNotTold;
    return told ? absl::StrCat(record.workgroup(i)) : "";
  };
  const std::string lanes =
      absl::StrJoin(record.lanes(), " ", [](std::string* out, const v1::LaneValue& lane) {
        absl::StrAppend(out, lane.lane(), ":", lane.value());
        if (lane.has_second()) absl::StrAppend(out, "+", lane.second());
      });
  return CsvLine({absl::StrCat(record.received_unix_ns()), record.session_id(),
                  absl::StrCat(record.pid()), record.attachment_id(), record.probe(),
                  record.kernel(), absl::StrCat(record.kernel_offset()), record.exec(),
                  absl::StrCat(record.active_lanes()), workgroup(0), workgroup(1), workgroup(2),
                  record.has_wave() ? absl::StrCat(record.wave()) : "",
                  record.has_time() ? absl::StrCat(record.time()) : "", record.value(), lanes,
                  record.instruction()});
}

// Prints records as they come.
class Printer {
 public:
  explicit Printer(const Output& out) : out_(out) {}

  void Print(const std::vector<v1::TraceRecord>& records) {
    if (out_.json()) {
      for (const v1::TraceRecord& record : records) out_.JsonLine(record);
    } else if (out_.csv()) {
      if (!header_) out_.Print(CsvLine(kCsvColumns));
      for (const v1::TraceRecord& record : records) out_.Print(RecordLine(record));
      header_ = true;
    } else {
      PrintTable(records);
    }
  }

 private:
  // The columns keep their widths from one reply to the next, unless they grow.
  void PrintTable(const std::vector<v1::TraceRecord>& records) {
    std::vector<std::vector<std::string>> rows;
    for (const v1::TraceRecord& record : records) rows.push_back(TableCells(record));
    if (rows.empty()) return;
    out_.TablePart(header_ ? std::vector<std::string>() : kColumns, rows, {1, 3}, widths_);
    header_ = true;
  }

  const Output& out_;
  bool header_ = false;
  std::vector<size_t> widths_;
};

}  // namespace

int Records(const Context& context, const RecordsOptions& options) {
  v1::GetRecordsRequest request;
  FillRequest(options.filter, request);
  request.set_last(options.last);
  ControlClient client(context.control_socket);
  Printer printer(context.out);
  uint64_t printed = 0, damaged = 0;
  for (;;) {
    v1::GetRecordsReply reply;
    if (absl::Status s = client.GetRecords(request, reply); !s.ok()) return context.out.Fail(s);
    std::vector<v1::TraceRecord> records = DecodeReply(reply, &damaged);
    if (options.last > 0 && !options.follow) {  // newer ones may have come in between
      records.resize(std::min<size_t>(records.size(), options.last - printed));
    }
    printer.Print(records);
    printed += records.size();
    if (printed > 0 && std::fflush(stdout) != 0) return kInternal;
    request.set_last(0);
    request.set_after(reply.next());
    if (reply.more() && (options.last == 0 || options.follow || printed < options.last)) continue;
    if (!options.follow) break;
    std::this_thread::sleep_for(kFollowInterval);
  }
  if (damaged > 0) context.out.Warn(absl::StrCat(damaged, " records could not be read"));
  if (printed == 0)
    context.out.Note(
        "no records (--all: of detached attachments, too; rjctl report says what was "
        "lost, and where)");
  return kOk;
}

}  // namespace rjdbi::clients
