// One table row per key; reading, type checks and printing all go through it.
#include "daemon/config.h"

#include <sys/un.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::daemon {
namespace {

enum class Type { kString, kBool, kUint, kBytes };

struct Key {
  std::string path;  // dotted
  Type type;
  // Returns "" or what is wrong with the value.
  std::function<std::string(Config&, const std::string&)> set;
  std::function<std::string(const Config&)> get;  // "" : unset, not printed
};

constexpr char kSizeHint[] = "expected a size such as 4096, 64KiB, 256MiB or 2GiB";

std::string ParseUint(const std::string& text, uint64_t max, uint64_t& out) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::StrCat("expected a whole number of 0 or more, found '", text, "'");
  }
  if (value > max) return absl::StrCat(text, " is out of range: at most ", max);
  out = value;
  return "";
}

std::string ParseBytes(const std::string& text, uint64_t& out) {
  static constexpr std::pair<const char*, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  std::string digits = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (text.size() > 3 && text.compare(text.size() - 3, 3, unit) == 0) {
      digits = text.substr(0, text.size() - 3);
      shift = bits;
    }
  }
  uint64_t value = 0;
  if (!absl::SimpleAtoi(digits, &value)) return absl::StrCat(kSizeHint, ", found '", text, "'");
  if (value > (UINT64_MAX >> shift)) return absl::StrCat(text, " is out of range");
  out = value << shift;
  return "";
}

Key StringKey(std::string path, std::string Config::*field) {
  return {std::move(path), Type::kString,
          [field](Config& c, const std::string& v) -> std::string {
            if (v.empty()) return "must not be empty";
            c.*field = v;
            return "";
          },
          [field](const Config& c) { return c.*field; }};
}

Key PathKey(std::string path, std::string Config::*field) {
  Key key = StringKey(std::move(path), field);
  key.set = [field](Config& c, const std::string& v) -> std::string {
    if (v.empty() || v[0] != '/') {
      return absl::StrCat("expected an absolute path, found '", v, "'");
    }
    c.*field = v;
    return "";
  };
  return key;
}

Key ChoiceKey(std::string path, std::string Config::*field, std::vector<std::string> choices) {
  Key key = StringKey(std::move(path), field);
  key.set = [field, choices](Config& c, const std::string& v) -> std::string {
    if (std::find(choices.begin(), choices.end(), v) == choices.end()) {
      return absl::StrCat("expected one of ", absl::StrJoin(choices, ", "), "; found '", v, "'");
    }
    c.*field = v;
    return "";
  };
  return key;
}

Key Uint32Key(std::string path, uint32_t Config::*field, uint32_t min) {
  return {std::move(path), Type::kUint,
          [field, min](Config& c, const std::string& v) -> std::string {
            uint64_t n = 0;
            if (std::string e = ParseUint(v, UINT32_MAX, n); !e.empty()) return e;
            if (n < min) return absl::StrCat(v, " is out of range: at least ", min);
            c.*field = static_cast<uint32_t>(n);
            return "";
          },
          [field](const Config& c) { return absl::StrCat(c.*field); }};
}

Key BytesKey(std::string path, uint64_t& (*field)(Config&), uint64_t max) {
  return {std::move(path), Type::kBytes,
          [field, max](Config& c, const std::string& v) -> std::string {
            uint64_t n = 0;
            if (std::string e = ParseBytes(v, n); !e.empty()) return e;
            if (n > max) return absl::StrCat(v, " is out of range: at most ", max, " bytes");
            field(c) = n;
            return "";
          },
          [field](const Config& c) { return absl::StrCat(field(const_cast<Config&>(c))); }};
}

// An estimate: there is nothing to be held against a ceiling of it.
constexpr int kNoCeiling = v1::Budget::kExpectedEventsPerSecondFieldNumber;

// The fields of Budget, by reflection: a field added to the proto is a key at once.
void AddBudgetKeys(const std::string& prefix, v1::Budget& (*budget)(Config&), int without,
                   std::vector<Key>& keys) {
  const google::protobuf::Descriptor* type = v1::Budget::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = type->field(i);
    if (field->number() == without) continue;
    const bool wide = field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64;
    keys.push_back(
        {absl::StrCat(prefix, ".", field->name()), wide ? Type::kBytes : Type::kUint,
         [=](Config& c, const std::string& v) -> std::string {
           uint64_t n = 0;
           std::string e = wide ? ParseBytes(v, n) : ParseUint(v, UINT32_MAX, n);
           if (!e.empty()) return e;
           v1::Budget& message = budget(c);
           if (wide) {
             message.GetReflection()->SetUInt64(&message, field, n);
           } else {
             message.GetReflection()->SetUInt32(&message, field, static_cast<uint32_t>(n));
           }
           return "";
         },
         [=](const Config& c) -> std::string {
           const v1::Budget& message = budget(const_cast<Config&>(c));
           if (!message.GetReflection()->HasField(message, field)) return "";
           return wide ? absl::StrCat(message.GetReflection()->GetUInt64(message, field))
                       : absl::StrCat(message.GetReflection()->GetUInt32(message, field));
         }});
  }
}

std::vector<Key> MakeKeys() {
  std::vector<Key> keys = {
      PathKey("agent_socket", &Config::agent_socket),
      PathKey("control_socket", &Config::control_socket),
      PathKey("state_directory", &Config::state_directory),
      Uint32Key("report_interval_ms", &Config::report_interval_ms, 10),
      {"allow_sabotage", Type::kBool,
       [](Config& c, const std::string& v) -> std::string {
         c.policy.allow_sabotage = v == "true";
         return "";
       },
       [](const Config& c) { return c.policy.allow_sabotage ? "true" : "false"; }},
      {"placement", Type::kString,
       [](Config& c, const std::string& v) -> std::string {
         const std::string name = absl::AsciiStrToUpper(v);
         v1::Placement placement = v1::PLACEMENT_UNSPECIFIED;
         const bool known = absl::AsciiStrToLower(v) == v && v1::Placement_Parse(name, &placement);
         if (!known || placement == v1::PLACEMENT_UNSPECIFIED) {
           return "expected auto, trampoline or clone";
         }
         c.policy.placement = placement;
         return "";
       },
       [](const Config& c) {
         return absl::AsciiStrToLower(v1::Placement_Name(c.policy.placement));
       }},
      BytesKey(
          "cache.max_bytes", +[](Config& c) -> uint64_t& { return c.cache_max_bytes; },
          uint64_t{1} << 50),
      BytesKey(
          "limits.max_code_object_bytes",
          +[](Config& c) -> uint64_t& { return c.policy.max_code_object_bytes; },
          patch::CodeObject::kMaxSize),
      {"limits.max_attachments_per_object", Type::kUint,
       [](Config& c, const std::string& v) -> std::string {
         uint64_t n = 0;
         if (std::string e = ParseUint(v, UINT32_MAX, n); !e.empty()) return e;
         if (n == 0) return "0 is out of range: at least 1";
         c.policy.max_attachments_per_object = static_cast<uint32_t>(n);
         return "";
       },
       [](const Config& c) { return absl::StrCat(c.policy.max_attachments_per_object); }},
      BytesKey(
          "limits.max_upload_bytes_in_flight",
          +[](Config& c) -> uint64_t& { return c.max_upload_bytes_in_flight; }, uint64_t{1} << 40),
      {"telemetry.ring_half_bytes", Type::kBytes,
       [](Config& c, const std::string& v) -> std::string {
         uint64_t n = 0;
         if (std::string e = ParseBytes(v, n); !e.empty()) return e;
         if (n < RJDBI_RING_LEAST_HALF_BYTES || n > RJDBI_RING_MOST_HALF_BYTES ||
             (n & (n - 1)) != 0) {
           return absl::StrCat(v, " is out of range: a power of two from ",
                               RJDBI_RING_LEAST_HALF_BYTES, " to ", RJDBI_RING_MOST_HALF_BYTES);
         }
         c.policy.ring_half_bytes = static_cast<uint32_t>(n);
         return "";
       },
       [](const Config& c) { return absl::StrCat(c.policy.ring_half_bytes); }},
      BytesKey(
          "telemetry.max_bytes_per_second",
          +[](Config& c) -> uint64_t& { return c.records.bytes_per_second; }, uint64_t{1} << 40),
      BytesKey(
          "telemetry.max_bytes_per_attachment",
          +[](Config& c) -> uint64_t& { return c.records.bytes_per_attachment; },
          uint64_t{1} << 40),
      BytesKey(
          "telemetry.max_bytes", +[](Config& c) -> uint64_t& { return c.records.bytes; },
          uint64_t{1} << 40),
      {"budgets.loop_factor", Type::kUint,
       [](Config& c, const std::string& v) -> std::string {
         uint64_t n = 0;
         if (std::string e = ParseUint(v, UINT32_MAX, n); !e.empty()) return e;
         if (n == 0) return "0 is out of range: at least 1";
         c.policy.loop_factor = static_cast<uint32_t>(n);
         return "";
       },
       [](const Config& c) { return absl::StrCat(c.policy.loop_factor); }},
      Uint32Key("limits.max_sessions", &Config::max_sessions, 1),
      Uint32Key("limits.max_concurrent_admissions", &Config::max_concurrent_admissions, 0),
      Uint32Key("limits.upload_stall_ms", &Config::upload_stall_ms, 10),
      Uint32Key("limits.upload_timeout_ms", &Config::upload_timeout_ms, 10),
      ChoiceKey("log.level", &Config::log_level,
                {"trace", "debug", "info", "warn", "error", "critical", "off"}),
      ChoiceKey("log.format", &Config::log_format, {"text", "json"}),
  };
  AddBudgetKeys(
      "budgets.defaults", +[](Config& c) -> v1::Budget& { return c.policy.defaults; }, 0, keys);
  AddBudgetKeys(
      "budgets.ceilings", +[](Config& c) -> v1::Budget& { return c.policy.ceiling; }, kNoCeiling,
      keys);
  return keys;
}

const std::vector<Key>& Keys() {
  static const auto* keys = new std::vector<Key>(MakeKeys());
  return *keys;
}

class Reader {
 public:
  Reader(std::string file, Config& config, std::vector<std::string>& problems)
      : file_(std::move(file)), config_(config), problems_(problems) {}

  void ReadMap(const YAML::Node& map, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) {
        Complain(entry.first, "expected a key name");
        continue;
      }
      const std::string path =
          prefix.empty() ? entry.first.Scalar() : absl::StrCat(prefix, ".", entry.first.Scalar());
      if (!seen.insert(path).second) {
        Complain(entry.first, absl::StrCat("key '", path, "' is given twice"));
        continue;
      }
      ReadEntry(path, entry.first, entry.second);
    }
  }

  void Complain(const YAML::Mark& mark, const std::string& message) {
    problems_.push_back(mark.is_null() ? absl::StrCat(file_, ": ", message)
                                       : absl::StrFormat("%s:%d:%d: %s", file_, mark.line + 1,
                                                         mark.column + 1, message));
  }
  void Complain(const YAML::Node& at, const std::string& message) { Complain(at.Mark(), message); }

 private:
  void ReadEntry(const std::string& path, const YAML::Node& name, const YAML::Node& value) {
    for (const Key& key : Keys()) {
      if (key.path == path) return ReadValue(key, name, value);
    }
    const bool is_section = std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) {
      return key.path.compare(0, path.size() + 1, path + ".") == 0;
    });
    if (!is_section) return Complain(name, absl::StrCat("unknown key '", path, "'"));
    if (value.IsNull()) return;  // a section with everything commented out
    if (!value.IsMap()) return Complain(value, absl::StrCat("'", path, "' takes a map of keys"));
    ReadMap(value, path);
  }

  void ReadValue(const Key& key, const YAML::Node& name, const YAML::Node& value) {
    static const std::map<Type, const char*> kNames = {{Type::kString, "a string"},
                                                       {Type::kBool, "true or false"},
                                                       {Type::kUint, "a whole number"},
                                                       {Type::kBytes, "a whole number"}};
    if (!value.IsScalar()) {
      return Complain(value.IsNull() ? name : value,
                      absl::StrCat("'", key.path, "' takes ", kNames.at(key.type)));
    }
    const std::string& text = value.Scalar();
    if (key.type == Type::kBool && text != "true" && text != "false") {
      return Complain(value,
                      absl::StrCat("'", key.path, "': expected true or false, found '", text, "'"));
    }
    if (std::string wrong = key.set(config_, text); !wrong.empty()) {
      Complain(value, absl::StrCat("'", key.path, "': ", wrong));
    }
  }

  std::string file_;
  Config& config_;
  std::vector<std::string>& problems_;
};

std::vector<std::string> DropIns(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  const std::filesystem::path dir = std::filesystem::path(path).parent_path() / "conf.d";
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

// yaml-cpp reports by exception; none leaves this function.
void ApplyConfigFile(const std::string& path, Config& config, std::vector<std::string>& problems) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!error && !std::filesystem::is_regular_file(status)) {  // a FIFO would never end
    problems.push_back(absl::StrCat(path, std::filesystem::exists(status)
                                              ? ": not a regular file"
                                              : ": there is no such file"));
    return;
  }
  errno = 0;
  std::ifstream in(path);
  if (!in) {
    problems.push_back(absl::StrCat(path, ": ", std::strerror(errno)));
    return;
  }
  Reader reader(path, config, problems);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(in);
    if (documents.size() > 1) {
      return reader.Complain(documents[1], "a second document: one file is one configuration");
    }
    if (documents.empty() || documents[0].IsNull()) return;
    const YAML::Node& root = documents[0];
    if (!root.IsMap()) return reader.Complain(root, "expected a map of keys");
    reader.ReadMap(root, "");
  } catch (const YAML::Exception& e) {
    reader.Complain(e.mark, e.msg);
  }
}

void LoadConfig(const std::string& path, bool required, Config& config,
                std::vector<std::string>& problems) {
  std::error_code error;
  if (required || std::filesystem::exists(path, error)) ApplyConfigFile(path, config, problems);
  for (const std::string& file : DropIns(path)) ApplyConfigFile(file, config, problems);
}

std::vector<std::string> CheckConfig(const Config& config) {
  std::vector<std::string> problems;
  const std::pair<const char*, const std::string&> sockets[] = {
      {"agent_socket", config.agent_socket}, {"control_socket", config.control_socket}};
  constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;
  for (const auto& [name, path] : sockets) {
    if (path.size() <= kMostBytes) continue;
    problems.push_back(absl::StrCat(name, ": a path of ", path.size(),
                                    " bytes; a socket's has at most ", kMostBytes));
  }
  if (config.agent_socket == config.control_socket) {
    problems.push_back(
        absl::StrCat("agent_socket and control_socket are the same: ", config.agent_socket));
  }
  return problems;
}

std::string PrintConfig(const Config& config) {
  YAML::Node root(YAML::NodeType::Map);  // a null node would not be shared by copies
  for (const Key& key : Keys()) {
    const std::string value = key.get(config);
    if (value.empty()) continue;
    YAML::Node node = root;
    std::string rest = key.path;
    for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
      node.reset(node[rest.substr(0, dot)]);
    }
    node[rest] = value;
  }
  return absl::StrCat(YAML::Dump(root), "\n");
}

}  // namespace rjdbi::daemon
