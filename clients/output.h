// How rjctl speaks: data on standard output as a table or as the protos' JSON,
// everything else on standard error.
#ifndef CLIENTS_OUTPUT_H_
#define CLIENTS_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/render.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::clients {

// Exit codes; see rjctl(1).
enum ExitCode {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kRefused = 3,
  kPartial = 4,
  kUnreachable = 5,
};

struct OutputOptions {
  bool json = false;
  bool csv = false;
  std::string color = "auto";  // always, never
};

class Output {
 public:
  explicit Output(const OutputOptions& options);

  bool json() const { return options_.json; }
  bool csv() const { return options_.csv; }
  contract::RenderOptions render() const { return {out_colour_}; }
  contract::RenderOptions render_error() const { return {err_colour_}; }

  void Print(const std::string& text) const;  // data
  // Once, at the end. False, after saying so: data did not arrive.
  bool Finish() const;
  void Note(const std::string& text) const;  // one line for people; only in table mode
  void Warn(const std::string& text) const;  // one line, always
  void Json(const google::protobuf::Message& message) const;      // one whole object
  void JsonLine(const google::protobuf::Message& message) const;  // the same on one line
  static std::string ToJson(const google::protobuf::Message& message);
  // "error: ..." (JSON mode: {"error": {...}} on standard output); the exit code.
  int Fail(const absl::Status& status) const;
  int FailUsage(const std::string& message) const;
  // Violations that refuse a request, in the style of a compiler.
  void Violations(const google::protobuf::RepeatedPtrField<v1::Violation>& violations) const;

  // Aligned columns; `right` holds the indices of numeric columns.
  void Table(const std::vector<std::string>& header,
             const std::vector<std::vector<std::string>>& rows,
             const std::vector<size_t>& right = {}) const;
  std::string TableText(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows,
                        const std::vector<size_t>& right) const;
  // A table that comes in parts: `header` for the first one only; `widths` is kept from
  // part to part.
  void TablePart(const std::vector<std::string>& header,
                 const std::vector<std::vector<std::string>>& rows,
                 const std::vector<size_t>& right, std::vector<size_t>& widths) const;
  std::string Bold(const std::string& text) const;

 private:
  std::string PartText(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right, std::vector<size_t>& widths) const;

  const OutputOptions options_;
  bool out_colour_ = false, err_colour_ = false;
};

// Every HIP process loads kernels of the runtime's own, for copying and filling.
// Where nothing was counted or asked in one, a row is only in the way.
bool RuntimeKernel(const std::string& kernel);
void NoteHidden(const Output& out, size_t rows);  // such rows

// RFC 4180, with a line feed alone. Cells are made printable.
std::string CsvLine(const std::vector<std::string>& cells);
std::string FormatBytes(uint64_t bytes);  // "1.5 MiB"
std::string FormatTime(int64_t unix_ns);  // "2024-05-01 12:00:00", "-" for 0
using patch::Printable;

}  // namespace rjdbi::clients

#endif  // CLIENTS_OUTPUT_H_
