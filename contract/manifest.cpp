// Parses manifests and keeps the built-in ones (see manifest.h).
#include "contract/manifest.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "contract/text.h"

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

void CollectLines(const Descriptor& type, const TextFormat::ParseInfoTree& tree,
                  const std::string& prefix, std::map<std::string, uint32_t, std::less<>>* lines) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto* field = type.field(i);
    const auto location = tree.GetLocation(field, field->is_repeated() ? 0 : -1);
    if (location.line < 0) continue;
    (*lines)[prefix + field->name()] = static_cast<uint32_t>(location.line) + 1;
    if (field->message_type() == nullptr) continue;
    if (auto* nested = tree.GetTreeForNested(field, -1)) {
      CollectLines(*field->message_type(), *nested, prefix + field->name() + ".", lines);
    }
  }
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
  for (const std::string& read : m.amdgpu().reads()) {
    if (std::find(std::begin(kStates), std::end(kStates), read) == std::end(kStates)) {
      return StrCat("amdgpu.reads: unknown state \"", read, "\"");
    }
  }
  return "";
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

absl::StatusOr<Manifest> Manifest::Parse(std::string_view text) {
  Manifest m;
  m.text_ = std::string(text);
  FirstError error;
  TextFormat::Parser parser;
  TextFormat::ParseInfoTree tree;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(m.text_, &m.proto_)) {
    return absl::InvalidArgumentError(error.text().empty() ? "manifest does not parse"
                                                           : error.text());
  }
  CollectLines(*v1::Manifest::descriptor(), tree, "", &m.lines_);
  std::string field;
  if (std::string broken = BrokenRule(m.proto_, &field); !broken.empty()) {
    return absl::InvalidArgumentError(
        StrCat("line ", std::max(1u, m.LineOf(field)), ", column 1: ", broken));
  }
  return m;
}

uint32_t Manifest::LineOf(std::string_view field) const {
  if (auto it = lines_.find(field); it != lines_.end()) return it->second;
  auto it = lines_.find("probe");
  return it != lines_.end() ? it->second : 0;
}

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
