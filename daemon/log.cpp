#include "daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/systemd_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_format.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::daemon {
namespace {

// The message, escaped for a JSON string.
class JsonMessageFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c :
         patch::ToUtf8(std::string_view(message.payload.data(), message.payload.size()))) {
      if (c == '"' || c == '\\') {
        out.push_back('\\');
        out.push_back(c);
      } else if (static_cast<unsigned char>(c) < 0x20) {
        const std::string escaped = absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
        out.append(escaped.data(), escaped.data() + escaped.size());
      } else {
        out.push_back(c);
      }
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessageFlag>();
  }
};

// The message, on one line and without what a terminal would act on: parts of it
// are other people's, such as paths.
class PlainMessageFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const std::string text = patch::Printable({message.payload.data(), message.payload.size()});
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PlainMessageFlag>();
  }
};

std::unique_ptr<spdlog::formatter> MakeFormatter(bool json, bool journal) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  if (json) {
    formatter->add_flag<JsonMessageFlag>('*').set_pattern(
        R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%*"})");
  } else {
    formatter->add_flag<PlainMessageFlag>('*').set_pattern(
        journal ? "%*" : "%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %*");
  }
  return formatter;
}

// systemd sets JOURNAL_STREAM to device:inode of the stream it gave us; a child
// whose standard error was redirected since then is not logging to the journal.
bool StderrIsJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  unsigned long long device = 0, inode = 0;
  if (stream == nullptr || std::sscanf(stream, "%llu:%llu", &device, &inode) != 2) return false;
  struct stat info = {};
  return fstat(2, &info) == 0 && info.st_dev == device && info.st_ino == inode;
}

}  // namespace

void SetUpLogging(const std::string& level, const std::string& format) {
  const bool journal = StderrIsJournal();
  spdlog::sink_ptr sink;
  if (journal) {
    sink = std::make_shared<spdlog::sinks::systemd_sink_mt>("rjdbid", true);
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  }
  auto logger = std::make_shared<spdlog::logger>("rjdbid", sink);
  logger->set_formatter(MakeFormatter(format == "json", journal));
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
}

}  // namespace rjdbi::daemon
