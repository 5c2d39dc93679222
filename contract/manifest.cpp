// Parses manifests and keeps the built-in ones (see manifest.h).
#include "contract/manifest.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "contract/manifest_yaml.h"
#include "contract/text.h"
#include "contract/user_probe.h"
#include "patch/analysis/selector.h"

namespace rjdbi::contract {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::TextFormat;

// Keeps the first error: later ones are usually its consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool IsDigest(const std::string& text) {
  constexpr size_t kHexDigits = 64;
  return text.size() == kHexDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string BrokenArgumentRule(const v1::UserProbe& user, std::string* field) {
  uint32_t words = 0;
  for (int i = 0; i < user.arguments_size(); ++i) {
    *field = StrCat("user.arguments[", i, "]");
    const auto argument = ToArgument(user.arguments(i));
    if (!argument) {
      return StrCat("argument ", i + 1, " names nothing that can be passed: { ",
                    user.arguments(i).ShortDebugString(), " }");
    }
    words += argument->dwords;
    if (words > patch::kMaxArgumentDwords) {
      return StrCat("argument ", i + 1, " would be passed on the stack: at most ",
                    patch::kMaxArgumentDwords, " words are passed in registers");
    }
    if (argument->kind == patch::ArgumentKind::kTelemetry && user.telemetry_words() == 0) {
      return "TELEMETRY is passed, but telemetry_words is 0";
    }
    if (argument->kind == patch::ArgumentKind::kSite && user.telemetry_words() == 0) {
      return "SITE_ID is the number of the site's first word, but telemetry_words is 0";
    }
  }
  return "";
}

// Of the section about a user's probe.
std::string BrokenUserRule(const v1::UserProbe& user, std::string* field) {
  if (*field = "user.entry"; user.entry().empty()) return "user.entry must name the function";
  *field = "user.body_sha256";
  if (user.body_sha256().empty()) return "user.body_sha256 must say which function is meant";
  for (int i = 0; i < user.body_sha256_size(); ++i) {
    *field = StrCat("user.body_sha256[", i, "]");
    if (!IsDigest(user.body_sha256(i))) return "user.body_sha256 must be 64 hexadecimal digits";
  }
  *field = "user.wavefront_size";
  const uint32_t wave = user.wavefront_size();
  if (wave != 0 && wave != 32 && wave != 64) return "user.wavefront_size must be 32 or 64";
  if (*field = "user.telemetry_words"; user.telemetry_words() > kMaxTelemetryWords) {
    return StrCat("user.telemetry_words must be at most ", kMaxTelemetryWords);
  }
  return BrokenArgumentRule(user, field);
}

// Rules that the text format cannot express. Empty: all kept.
std::string BrokenRule(const v1::Manifest& m, std::string* field) {
  if (*field = "schema_version"; m.schema_version() != 1) return "schema_version must be 1";
  if (*field = "probe"; m.probe().empty()) return "probe must be named";
  if (*field = "control"; m.control().empty()) return "control must be declared";
  if (*field = "mask_policy"; m.mask_policy() == v1::MASK_POLICY_UNSPECIFIED) {
    return "mask_policy must be declared";
  }
  if (*field = "max_instructions_per_event"; m.max_instructions_per_event() == 0) {
    return "max_instructions_per_event must be positive";
  }
  static constexpr std::string_view kStates[] = {"EXEC", "SCC",  "VCC", "M0",
                                                 "MODE", "SGPR", "VGPR"};
  *field = "amdgpu.reads";
  for (int i = 0; i < m.amdgpu().reads_size(); ++i) {
    const std::string& read = m.amdgpu().reads(i);
    *field = StrCat("amdgpu.reads[", i, "]");
    if (std::find(std::begin(kStates), std::end(kStates), read) == std::end(kStates)) {
      return StrCat("amdgpu.reads: unknown state \"", read, "\"");
    }
  }
  return m.has_user() ? BrokenUserRule(m.user(), field) : "";
}

std::vector<BuiltinProbe> LoadBuiltins() {
  constexpr struct {
    std::string_view name;
    patch::Probe probe;
    bool per_block;
  } kProbes[] = {{"block-count", patch::Probe::kCountWaves, true},
                 {"clock", patch::Probe::kClock, false},
                 {"count-lanes", patch::Probe::kCountLanes, false},
                 {"count-waves", patch::Probe::kCountWaves, false},
                 {"nop", patch::Probe::kNop, false},
                 {"sabotage", patch::Probe::kSabotage, false},
                 {"trace-address", patch::Probe::kTraceAddress, false},
                 {"trace-exec", patch::Probe::kTraceExec, false},
                 {"value", patch::Probe::kValue, false}};
  std::vector<BuiltinProbe> out;
  for (const auto& p : kProbes) {
    for (size_t i = 0; i < internal::kEmbeddedManifestCount; ++i) {
      if (p.name != internal::kEmbeddedManifests[i].name) continue;
      auto manifest = Manifest::Parse(internal::kEmbeddedManifests[i].text);
      if (!manifest.ok()) {  // part of the build; tests parse each
        std::fprintf(stderr, "rjdbi: built-in manifest %s: %s\n",
                     internal::kEmbeddedManifests[i].name, manifest.status().ToString().c_str());
        std::abort();
      }
      out.push_back({std::string(p.name), p.probe, p.per_block, *std::move(manifest)});
    }
  }
  return out;
}

template <typename List, typename Value>
bool Contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

// Notes where each field of a text stands.
class PlaceCollector {
 public:
  explicit PlaceCollector(Manifest* manifest) : manifest_(manifest) {}

  void Collect(const Descriptor& type, const TextFormat::ParseInfoTree& tree,
               const std::string& prefix) {
    for (int i = 0; i < type.field_count(); ++i) {
      const auto* field = type.field(i);
      const std::string name = prefix + field->name();
      const bool repeated = field->is_repeated();
      for (int n = 0; n == 0 || repeated; ++n) {
        const auto at = tree.GetLocation(field, repeated ? n : -1);
        if (at.line < 0) break;
        const Manifest::Place place{static_cast<uint32_t>(at.line) + 1,
                                    static_cast<uint32_t>(at.column) + 1};
        if (n == 0) manifest_->places_[name] = place;
        if (repeated) manifest_->places_[StrCat(name, "[", n, "]")] = place;
      }
      if (field->message_type() == nullptr || repeated) continue;
      if (auto* nested = tree.GetTreeForNested(field, -1)) {
        Collect(*field->message_type(), *nested, name + ".");
      }
    }
  }

 private:
  Manifest* const manifest_;
};

absl::Status Manifest::Read() {
  FirstError error;
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree tree;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  if (parser.ParseFromString(text_, &proto_)) {
    PlaceCollector(this).Collect(*v1::Manifest::descriptor(), tree, "");
    return absl::OkStatus();
  }
  if (LooksLikeYaml(text_)) {
    proto_.Clear();
    return ReadYaml(
        text_,
        [this](const std::string& field, uint32_t line, uint32_t column) {
          places_[field] = {line, column};
        },
        &proto_);
  }
  return absl::InvalidArgumentError(error.text().empty() ? "manifest does not parse"
                                                         : error.text());
}

absl::StatusOr<Manifest> Manifest::Parse(std::string_view text) {
  Manifest m;
  m.text_ = std::string(text);
  if (absl::Status status = m.Read(); !status.ok()) return status;
  std::string field;
  if (std::string broken = BrokenRule(m.proto_, &field); !broken.empty()) {
    return absl::InvalidArgumentError(StrCat("line ", std::max(1u, m.LineOf(field)), ", column ",
                                             std::max(1u, m.ColumnOf(field)), ": ", broken));
  }
  return m;
}

std::string ManifestExcerpt(std::string_view text, const absl::Status& error) {
  unsigned line = 0, column = 0;
  const std::string message(error.message());
  if (std::sscanf(message.c_str(), "line %u, column %u:", &line, &column) != 2) return "";
  for (; line > 1; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + 1);
  }
  return patch::PointAt(text.substr(0, text.find('\n')), column);
}

// Of a field that is absent, its section's, or the probe's.
Manifest::Place Manifest::PlaceOf(std::string_view field) const {
  for (std::string_view at = field;;) {
    if (auto it = places_.find(at); it != places_.end()) return it->second;
    const size_t end = at.find_last_of(".[");
    if (end == std::string_view::npos) break;
    at = at.substr(0, end);
  }
  auto it = places_.find("probe");
  return it != places_.end() ? it->second : Place();
}

uint32_t Manifest::LineOf(std::string_view field) const { return PlaceOf(field).line; }
uint32_t Manifest::ColumnOf(std::string_view field) const { return PlaceOf(field).column; }

bool Manifest::Declares(v1::MemoryRegion region) const {
  return Contains(proto_.memory(), static_cast<int>(region));
}
bool Manifest::Declares(v1::ControlTransfer control) const {
  return Contains(proto_.control(), static_cast<int>(control));
}
bool Manifest::Declares(v1::Synchronisation sync) const {
  return Contains(proto_.synchronisation(), static_cast<int>(sync));
}
bool Manifest::DeclaresRead(std::string_view state) const {
  return Contains(proto_.amdgpu().reads(), state);
}
bool Manifest::DeclaresChange(std::string_view state) const {
  return Contains(proto_.application_state_changed(), state);
}

const std::vector<BuiltinProbe>& BuiltinProbes() {
  static const auto& probes = *new std::vector<BuiltinProbe>(LoadBuiltins());
  return probes;
}

const BuiltinProbe* FindProbe(std::string_view name) {
  for (const BuiltinProbe& p : BuiltinProbes()) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

std::string ProbeNames() {
  return absl::StrJoin(BuiltinProbes(), ", ",
                       [](std::string* out, const BuiltinProbe& p) { out->append(p.name); });
}

}  // namespace rjdbi::contract
