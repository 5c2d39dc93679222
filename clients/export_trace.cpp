// Trace records as JSON that Perfetto and chrome://tracing read.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/export.h"
#include "clients/json_text.h"
#include "clients/output.h"
#include "clients/record_text.h"
#include "contract/demangle.h"
#include "contract/render.h"

namespace rjdbi::clients {
namespace {

constexpr uint32_t kShaderCyclesBits = 20;  // SHADER_CYCLES: RDNA2 ISA 3.10, hardware register 29
constexpr char kReceived[] = "";            // the clock of records that have none of the device

// What viewers show as a process: one clock of one process, whose times compare.
struct Axis {
  uint64_t id = 0;
  uint64_t begin = UINT64_MAX;  // the earliest time; of a clock that wraps 0
  std::map<std::tuple<uint64_t, uint32_t, std::string>, uint64_t> threads;
};

std::string Offset(uint64_t offset) { return absl::StrFormat("+0x%x", offset); }

class Trace {
 public:
  explicit Trace(const Collected& collected) {
    ForEach(collected,
            [&](const v1::RecordSource& source, const contract::Record& record, int64_t received) {
              Axis& axis = axes_[{source.session_id(), Clock(source, record)}];
              const uint64_t time = Wraps(source) ? 0 : Time(record, received);
              axis.begin = std::min(axis.begin, time);
            });
    for (auto& [key, axis] : axes_) axis.id = ++last_id_;
    damaged_ = ForEach(collected, [&](const v1::RecordSource& source,
                                      const contract::Record& record, int64_t received) {
      ++records_;
      Add(source, record, received);
    });
    for (auto& [key, open] : open_) Instant(open);
  }

  std::string Events() { return absl::StrJoin(events_, ",\n"); }
  uint64_t records() const { return records_; }
  uint64_t damaged() const { return damaged_; }

 private:
  // A record whose end is not known yet.
  struct Open {
    v1::TraceRecord record;
    uint64_t process = 0, thread = 0, time = 0;
  };

  template <typename Each>
  static uint64_t ForEach(const Collected& collected, Each each) {
    uint64_t damaged = 0;
    for (const auto& reply : collected.records) damaged += ForEachRecord(*reply, each);
    return damaged;
  }
  static std::string Clock(const v1::RecordSource& source, const contract::Record& record) {
    return record.time.has_value() ? source.layout().clock() : kReceived;
  }
  static bool Wraps(const v1::RecordSource& source) {
    return source.layout().clock() == "SHADER_CYCLES";
  }
  static uint64_t Time(const contract::Record& record, int64_t received) {
    return record.time.value_or(static_cast<uint64_t>(received));
  }

  void Add(const v1::RecordSource& source, const contract::Record& record, int64_t received) {
    const std::string clock = Clock(source, record);
    Axis& axis = axes_.at({source.session_id(), clock});
    if (axis.threads.empty()) NameProcess(source, clock, axis.id);
    const auto [thread, fresh] = axis.threads.emplace(
        std::tuple(source.load_id(), record.wave.value_or(0), source.attachment_id()),
        axis.threads.size() + 1);
    if (fresh) NameThread(source, record, axis.id, thread->second);
    Open now = {DescribeRecord(source, record, received), axis.id, thread->second,
                Time(record, received) - axis.begin};
    if (!record.time.has_value()) return Instant(now);
    const auto before = open_.find({axis.id, thread->second});
    if (before == open_.end()) {
      open_.emplace(std::pair(axis.id, thread->second), std::move(now));
      return;
    }
    Open& last = before->second;
    if (Wraps(source)) now.time = last.time + Wrapped(now.time - last.time);
    // What starts anew, or goes back in time, is another wavefront in the same place.
    if (now.record.kernel_offset() == 0 || now.time < last.time) {
      Instant(last);
    } else {
      Span(last, now);
    }
    last = std::move(now);
  }

  static uint64_t Wrapped(uint64_t ticks) { return ticks & ((1u << kShaderCyclesBits) - 1); }

  void NameProcess(const v1::RecordSource& source, const std::string& clock, uint64_t id) {
    const std::string name =
        absl::StrCat(Printable(source.executable()), ", pid ", source.pid(),
                     clock == kReceived ? ", as rjdbid received them" : ", clock " + clock);
    events_.push_back(absl::StrCat(R"({"ph":"M","name":"process_name","pid":)", id,
                                   R"(,"tid":0,"args":{"name":)", JsonString(name), "}}"));
  }

  void NameThread(const v1::RecordSource& source, const contract::Record& record, uint64_t process,
                  uint64_t thread) {
    const std::string wave =
        record.wave.has_value() ? absl::StrFormat("wave 0x%x", *record.wave) : std::string("waves");
    const std::string name =
        absl::StrCat(wave, ", load ", source.load_id(), ", ", source.attachment_id());
    events_.push_back(absl::StrCat(R"({"ph":"M","name":"thread_name","pid":)", process,
                                   R"(,"tid":)", thread, R"(,"args":{"name":)", JsonString(name),
                                   "}}"));
  }

  // A tick, or a nanosecond, is shown as a nanosecond: times are in microseconds.
  static std::string Microseconds(uint64_t time) {
    return absl::StrFormat("%d.%03d", time / 1000, time % 1000);
  }

  static std::string Head(const Open& at, const char* phase, const std::string& name) {
    return absl::StrCat(R"({"ph":")", phase, R"(","name":)", JsonString(name), R"(,"cat":)",
                        JsonString(Printable(at.record.probe())), R"(,"pid":)", at.process,
                        R"(,"tid":)", at.thread, R"(,"ts":)", Microseconds(at.time));
  }

  static std::string Arguments(const v1::TraceRecord& record) {
    std::string text =
        absl::StrCat(R"(,"args":{"kernel":)", JsonString(Printable(record.kernel())),
                     R"(,"offset":")", Offset(record.kernel_offset()), R"(","instruction":)",
                     JsonString(Printable(record.instruction())), R"(,"attachment":)",
                     JsonString(record.attachment_id()), R"(,"exec":)", JsonString(record.exec()),
                     R"(,"lanes":)", record.active_lanes());
    if (record.workgroup_size() > 0) {
      absl::StrAppend(&text, R"(,"workgroup":[)", absl::StrJoin(record.workgroup(), ","), "]");
    }
    if (const std::string data = RecordData(record); !data.empty()) {
      absl::StrAppend(&text, R"(,"data":)", JsonString(Printable(data)));
    }
    return text + "}}";
  }

  static std::string Place(const v1::TraceRecord& record) {
    const std::string kernel = contract::Demangle(record.kernel());
    return absl::StrCat(Printable(contract::WithoutSignature(kernel)),
                        Offset(record.kernel_offset()));
  }

  void Span(const Open& from, const Open& to) {
    const std::string name =
        absl::StrCat(Place(from.record), " to ", Offset(to.record.kernel_offset()));
    events_.push_back(absl::StrCat(Head(from, "X", name), R"(,"dur":)",
                                   Microseconds(to.time - from.time), Arguments(from.record)));
  }

  void Instant(const Open& at) {
    events_.push_back(
        absl::StrCat(Head(at, "i", Place(at.record)), R"(,"s":"t")", Arguments(at.record)));
  }

  std::map<std::pair<std::string, std::string>, Axis> axes_;  // session, clock
  std::map<std::pair<uint64_t, uint64_t>, Open> open_;        // process, thread
  std::vector<std::string> events_;
  uint64_t last_id_ = 0, records_ = 0, damaged_ = 0;
};

constexpr char kTimes[] =
    "A process is one clock of one process, and begins with its first record. Of clocks of the "
    "device a nanosecond stands for a tick. A thread is a place where the hardware runs "
    "wavefronts: its next record may be another wavefront's. SHADER_CYCLES has 20 bits: times "
    "between two records are modulo that, and threads of it are not aligned with each other.";

}  // namespace

absl::StatusOr<Exported> TraceEvents(const Collected& collected) {
  Trace trace(collected);
  uint64_t events = 0, counted = 0;
  for (const v1::SiteCount& count : collected.report.counts()) {
    if (count.has_records()) events += count.count();
    counted += count.has_records() || count.count() == 0 ? 0 : 1;
  }
  Exported out;
  if (events > trace.records()) {
    out.left_out.push_back(absl::StrCat(
        events - trace.records(), " of ", events,
        " events have no record any more, or none yet (rjctl report says where they were lost)"));
  }
  if (trace.damaged() > 0) {
    out.left_out.push_back(absl::StrCat(trace.damaged(), " records could not be read"));
  }
  if (counted > 0) {
    out.left_out.push_back(absl::StrCat(
        counted, " counts have no times: they are not in a trace (folded and pprof have them)"));
  }
  std::vector<std::string> notes = {kTimes,
                                    contract::RenderTotal(collected.report.coverage().total())};
  notes.insert(notes.end(), out.left_out.begin(), out.left_out.end());
  out.bytes = absl::StrCat(R"({"displayTimeUnit":"ns","otherData":{"notes":)",
                           JsonString(absl::StrJoin(notes, "\n")), R"(},"traceEvents":[)", "\n",
                           trace.Events(), "\n]}\n");
  return out;
}

}  // namespace rjdbi::clients
