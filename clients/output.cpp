#include "clients/output.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "clients/control_client.h"
#include "google/protobuf/struct.pb.h"

namespace rjdbi::clients {
namespace {

bool WantColour(const std::string& mode, int fd) {
  if (mode != "auto") return mode == "always";
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string(term) == "dumb";
  return (no_color == nullptr || *no_color == '\0') && !dumb && isatty(fd) != 0;
}

// Columns of a terminal that UTF-8 text takes, one per code point.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Row(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                const std::vector<size_t>& right) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - Width(cells[i]), ' ');
    const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
    absl::StrAppend(&line, i == 0 ? "" : "  ", to_right ? padding + cells[i] : cells[i] + padding);
  }
  absl::StripTrailingAsciiWhitespace(&line);
  return line + "\n";
}

}  // namespace

Output::Output(const OutputOptions& options)
    : options_(options),
      out_colour_(WantColour(options.color, 1)),
      err_colour_(WantColour(options.color, 2)) {}

void Output::Print(const std::string& text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

bool Output::Finish() const {
  const char* problem = std::fflush(stdout) != 0 ? std::strerror(errno) : "a write failed";
  if (std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "error: standard output: %s\n", problem);
  return false;
}

void Output::Note(const std::string& text) const {
  if (options_.json || options_.csv) return;
  std::fflush(stdout);  // in the order in which it was said
  std::fprintf(stderr, "%s\n", text.c_str());
}

void Output::Warn(const std::string& text) const {
  std::fprintf(stderr, "warning: %s\n", text.c_str());
}

std::string Output::ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return text;
}

void Output::JsonLine(const google::protobuf::Message& message) const {
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  Print(text + "\n");
}

void Output::Json(const google::protobuf::Message& message) const { Print(ToJson(message)); }

int Output::Fail(const absl::Status& status) const {
  int code = kInternal;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) code = kUnreachable;
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) code = kUsage;
  // The lines after the first point into something, such as a selector.
  std::string message, shown;
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    absl::StrAppend(&message, message.empty() ? "" : "\n", Printable(std::string(line)));
    absl::StrAppend(&shown, shown.empty() ? "" : "\n  ", Printable(std::string(line)));
  }
  if (options_.json) {
    google::protobuf::Struct error;
    auto& fields = *(*error.mutable_fields())["error"].mutable_struct_value()->mutable_fields();
    fields["code"].set_string_value(absl::StatusCodeToString(status.code()));
    fields["exitCode"].set_number_value(code);
    fields["message"].set_string_value(message);
    Json(error);
  }
  const char* red = err_colour_ ? "\033[1;31m" : "";
  std::fprintf(stderr, "%serror%s: %s\n", red, err_colour_ ? "\033[0m" : "", shown.c_str());
  std::string help;
  if (const auto payload = status.GetPayload(kHelpPayload)) {
    help = std::string(*payload);
  } else if (absl::IsDeadlineExceeded(status)) {
    help = "see rjdbid's log (journalctl -u rjdbid)";
  } else if (code == kUnreachable) {
    help =
        "start rjdbid (systemctl start rjdbid.socket, or rjdbid by hand), or name its socket with "
        "--socket or RJDBI_CONTROL_SOCKET";
  }
  if (!help.empty()) std::fprintf(stderr, "help: %s\n", help.c_str());
  return code;
}

int Output::FailUsage(const std::string& message) const {
  return Fail(absl::InvalidArgumentError(message));
}

void Output::Violations(const google::protobuf::RepeatedPtrField<v1::Violation>& violations) const {
  for (const v1::Violation& violation : violations) {
    const std::string text = contract::RenderViolation(violation, render_error());
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

void Output::Table(const std::vector<std::string>& header,
                   const std::vector<std::vector<std::string>>& rows,
                   const std::vector<size_t>& right) const {
  Print(TableText(header, rows, right));
}

std::string Output::TableText(const std::vector<std::string>& header,
                              const std::vector<std::vector<std::string>>& rows,
                              const std::vector<size_t>& right) const {
  std::vector<size_t> widths;
  return PartText(header, rows, right, widths);
}

void Output::TablePart(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right, std::vector<size_t>& widths) const {
  Print(PartText(header, rows, right, widths));
}

std::string Output::PartText(const std::vector<std::string>& header,
                             const std::vector<std::vector<std::string>>& rows,
                             const std::vector<size_t>& right, std::vector<size_t>& widths) const {
  const auto widen = [&widths](const std::vector<std::string>& cells) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], Width(cells[i]));
  };
  widen(header);
  for (const auto& row : rows) widen(row);
  std::string text;
  if (!header.empty()) text = Bold(Row(header, widths, right));
  for (const auto& row : rows) text += Row(row, widths, right);
  return text;
}

std::string Output::Bold(const std::string& text) const {
  if (!out_colour_) return text;
  const size_t end = text.find_last_not_of('\n') + 1;
  return absl::StrCat("\033[1m", text.substr(0, end), "\033[0m", text.substr(end));
}

bool RuntimeKernel(const std::string& kernel) { return absl::StartsWith(kernel, "__amd_rocclr_"); }

void NoteHidden(const Output& out, size_t rows) {
  if (rows == 0) return;
  out.Note(absl::StrCat("note: ", rows, rows == 1 ? " row" : " rows",
                        " of the runtime's own kernels, all zero, not shown (--all)"));
}

std::string CsvLine(const std::vector<std::string>& cells) {
  std::string line;
  const char* separator = "";
  for (const std::string& cell : cells) {
    const std::string text = Printable(cell);
    const bool quote = text.find_first_of(",\"") != std::string::npos;
    absl::StrAppend(
        &line, separator,
        quote ? absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"") : text);
    separator = ",";
  }
  return line + "\n";
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatTime(int64_t unix_ns) {
  if (unix_ns == 0) return "-";
  const time_t seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

}  // namespace rjdbi::clients
