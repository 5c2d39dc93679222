#include "clients/record_text.h"

#include <ctime>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rjdbi::clients {
namespace {

std::string Hex(uint64_t value) { return absl::StrFormat("0x%x", value); }

uint64_t Number(const std::string& hex) {
  uint64_t value = 0;
  return absl::SimpleHexAtoi(hex, &value) ? value : 0;
}

// Of consecutive lanes; nullopt: none, or not the same everywhere.
std::optional<int64_t> Stride(const v1::TraceRecord& record) {
  std::optional<int64_t> stride;
  for (int i = 1; i < record.lanes_size(); ++i) {
    const v1::LaneValue& a = record.lanes(i - 1);
    const v1::LaneValue& b = record.lanes(i);
    const auto distance = static_cast<int64_t>(Number(b.value()) - Number(a.value()));
    if (b.lane() != a.lane() + 1 || (stride.has_value() && *stride != distance)) {
      return std::nullopt;
    }
    stride = distance;
  }
  return stride;
}

std::string LanesText(const v1::TraceRecord& record) {
  constexpr int kShown = 4;
  const int lanes = record.lanes_size();
  const std::string count = absl::StrCat(" (", lanes, lanes == 1 ? " lane)" : " lanes)");
  const std::optional<int64_t> stride = Stride(record);
  std::string text;
  if (lanes > kShown && stride.has_value() && !record.lanes(0).has_second()) {
    const uint32_t first = record.lanes(0).lane();
    const std::string lane = first == 0 ? "lane" : absl::StrCat("(lane - ", first, ")");
    text = record.lanes(0).value();
    if (*stride != 0) absl::StrAppend(&text, " + ", *stride, " * ", lane);
    return text + count;
  }
  for (int i = 0; i < lanes && i < kShown; ++i) {
    const v1::LaneValue& lane = record.lanes(i);
    absl::StrAppend(&text, i == 0 ? "" : " ", lane.lane(), ":", lane.value());
    if (lane.has_second()) absl::StrAppend(&text, "+", lane.second());
  }
  return absl::StrCat(text, lanes > kShown ? " ..." : "", count);
}

}  // namespace

uint64_t ForEachRecord(
    const v1::GetRecordsReply& reply,
    absl::FunctionRef<void(const v1::RecordSource&, const contract::Record&, int64_t)> each) {
  uint64_t damaged = 0;
  for (const v1::RecordChunk& chunk : reply.chunks()) {
    absl::Span<const uint8_t> rest(reinterpret_cast<const uint8_t*>(chunk.records().data()),
                                   chunk.records().size());
    for (const uint32_t index : chunk.sources()) {
      const uint32_t bytes = contract::RecordBytes(rest);
      if (bytes == 0 || index >= static_cast<uint32_t>(reply.sources_size())) {
        ++damaged;
        break;
      }
      const v1::RecordSource& source = reply.sources(static_cast<int>(index));
      const auto record = contract::DecodeRecord(source.layout(), rest.first(bytes));
      if (record.ok()) {
        each(source, *record, chunk.received_unix_ns());
      } else {
        ++damaged;
      }
      rest.remove_prefix(bytes);
    }
  }
  return damaged;
}

v1::TraceRecord DescribeRecord(const v1::RecordSource& source, const contract::Record& record,
                               int64_t received_unix_ns) {
  v1::TraceRecord out;
  out.set_received_unix_ns(received_unix_ns);
  out.set_session_id(source.session_id());
  out.set_pid(source.pid());
  out.set_executable(source.executable());
  out.set_attachment_id(source.attachment_id());
  out.set_probe(source.probe());
  out.set_kernel(source.location().kernel());
  out.set_kernel_offset(source.location().kernel_offset());
  out.set_instruction(source.location().instruction());
  out.set_exec(Hex(record.exec));
  out.set_active_lanes(contract::ActiveLanes(record));
  if (record.workgroup.has_value()) {
    out.mutable_workgroup()->Add(record.workgroup->begin(), record.workgroup->end());
  }
  if (record.wave.has_value()) out.set_wave(*record.wave);
  if (record.time.has_value()) {
    out.set_time(*record.time);
    out.set_clock(source.layout().clock());
  }
  if (record.scalar.has_value()) out.set_value(Hex(*record.scalar));
  for (const contract::Record::Lane& lane : record.lanes) {
    v1::LaneValue& value = *out.add_lanes();
    value.set_lane(lane.lane);
    value.set_value(Hex(lane.value));
    if (lane.second.has_value()) value.set_second(Hex(*lane.second));
  }
  out.set_no_addresses(record.no_addresses);
  return out;
}

std::vector<v1::TraceRecord> DecodeReply(const v1::GetRecordsReply& reply, uint64_t* damaged) {
  std::vector<v1::TraceRecord> records;
  *damaged += ForEachRecord(
      reply, [&](const v1::RecordSource& source, const contract::Record& record, int64_t received) {
        records.push_back(DescribeRecord(source, record, received));
      });
  return records;
}

std::string RecordData(const v1::TraceRecord& record) {
  if (!record.no_addresses().empty()) return absl::StrCat("(", record.no_addresses(), ")");
  if (record.lanes_size() > 0) return LanesText(record);
  if (record.has_time()) return absl::StrCat(record.clock(), " ", record.time());
  return record.has_value() ? record.value() : "";
}

std::string FormatTimeOfDay(int64_t unix_ns) {
  const time_t seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm local = {};
  localtime_r(&seconds, &local);
  char text[16];
  strftime(text, sizeof text, "%H:%M:%S", &local);
  return absl::StrFormat("%s.%06d", text, unix_ns % 1'000'000'000 / 1000);
}

}  // namespace rjdbi::clients
