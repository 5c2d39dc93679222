#include "clients/spec_text.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "contract/manifest.h"

namespace rjdbi::clients {
namespace {

constexpr BudgetOption kBudgetOptions[] = {
    {"max-sgpr-delta", "max_sgpr_delta", "Scalar registers a kernel may grow by"},
    {"max-vgpr-delta", "max_vgpr_delta", "Vector registers a kernel may grow by, per lane"},
    {"max-injected-instructions", "max_injected_instructions_per_event",
     "Instructions executed per event"},
    {"max-telemetry-bytes-per-second", "max_telemetry_bytes_per_second",
     "Estimated counter traffic"},
    {"expected-events-per-second", "expected_events_per_second",
     "Events of one site, for that estimate"},
    {"max-code-growth-bytes", "max_code_growth_bytes", "Growth of a code object"},
    {"max-occupancy-loss", "max_occupancy_loss", "Wavefronts per SIMD that a kernel may lose"},
    {"max-agpr-delta", "max_agpr_delta", "Accumulation registers a kernel may grow by, per lane"},
    {"max-local-memory-delta", "max_local_memory_delta",
     "Bytes of scratch a kernel may grow by, per work-item"},
    {"max-shared-memory-delta", "max_shared_memory_delta",
     "Bytes of LDS a kernel may grow by, per workgroup"},
    {"max-sampled-event-fraction", "max_sampled_event_fraction",
     "Events of a site, of a million, that a probe may look at"},
    {"max-admission-time-ms", "max_admission_time_ms", "Time for judging one code object"},
};

template <typename Value>
struct Choice {
  const char* name;
  Value value;
};
constexpr Choice<v1::Placement> kPlacements[] = {
    {"auto", v1::AUTO}, {"trampoline", v1::TRAMPOLINE}, {"clone", v1::CLONE}};
constexpr Choice<v1::Mode> kModes[] = {
    {"enforce", v1::MODE_ENFORCE}, {"warn", v1::MODE_WARN}, {"dryrun", v1::MODE_DRYRUN}};
constexpr Choice<v1::ReductionStep> kReductions[] = {{"block-count", v1::REDUCE_BLOCK_COUNT},
                                                     {"rotate", v1::REDUCE_ROTATE}};

template <typename Choices>
auto Named(const Choices& choices, const std::string& name) {
  for (const auto& choice : choices) {
    if (choice.name == name) return std::optional(choice.value);
  }
  return std::optional<std::decay_t<decltype(choices[0].value)>>();
}

// "auto trampoline clone"
template <typename Choices>
std::string Names(const Choices& choices) {
  std::string names;
  for (const auto& choice : choices) {
    absl::StrAppend(&names, names.empty() ? "" : " ", choice.name);
  }
  return names;
}

// "mode: expected enforce, warn or dryrun, found 'x'". There are two names at least.
absl::Status BadChoice(const std::string& key, const std::string& names, const std::string& found) {
  const size_t last = names.rfind(' ');
  const std::string first = absl::StrReplaceAll(names.substr(0, last), {{" ", ", "}});
  return absl::InvalidArgumentError(absl::StrCat(key, ": expected ", first, " or ",
                                                 names.substr(last + 1), ", found '", found, "'"));
}

absl::Status SetReductions(v1::AttachmentSpec& spec, const std::string& value) {
  spec.clear_reduce();
  for (absl::string_view piece : absl::StrSplit(value, ',')) {
    const std::optional<v1::ReductionStep> step = Named(kReductions, std::string(piece));
    if (!step) return BadChoice("reduce", ReductionNames(), std::string(piece));
    spec.add_reduce(*step);
  }
  return absl::OkStatus();
}

absl::Status BadNumber(const std::string& key, const std::string& value, int least = 0) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": expected a whole number of ", least,
                                                 " or more that fits, found '", value, "'"));
}

absl::Status SetBudget(v1::Budget& budget, const BudgetOption& option, const std::string& value) {
  const auto* field = v1::Budget::descriptor()->FindFieldByName(option.field);
  const auto* reflection = budget.GetReflection();
  if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(value, &number)) return BadNumber(option.name, value);
    reflection->SetUInt64(&budget, field, number);
  } else {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(value, &number)) return BadNumber(option.name, value);
    reflection->SetUInt32(&budget, field, number);
  }
  return absl::OkStatus();
}

// A user's probe comes in two files; the manifest names it.
absl::Status ReadProbeFile(v1::AttachmentSpec& spec, const std::string& key,
                           const std::string& path) {
  constexpr size_t kMost = size_t{256} << 10;
  std::ifstream in(path, std::ios::binary);
  std::string bytes(kMost + 1, '\0');
  if (!in) return absl::InvalidArgumentError(absl::StrCat(key, ": ", path, " cannot be read"));
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(in.gcount()));
  if (bytes.empty() || bytes.size() > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": ", path, " has no bytes, or more than ", kMost));
  }
  if (key == "probe-object") {
    spec.set_probe_object(std::move(bytes));
    return absl::OkStatus();
  }
  const auto manifest = contract::Manifest::Parse(bytes);
  if (!manifest.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", manifest.status().message()));
  }
  if (spec.probe().empty()) spec.set_probe(manifest->proto().probe());
  spec.set_probe_manifest(std::move(bytes));
  return absl::OkStatus();
}

}  // namespace

absl::Span<const BudgetOption> BudgetOptions() { return kBudgetOptions; }
std::string PlacementNames() { return Names(kPlacements); }
std::string ModeNames() { return Names(kModes); }
std::string ReductionNames() { return Names(kReductions); }

absl::Status SetSpecField(v1::AttachmentSpec& spec, const std::string& key,
                          const std::string& value) {
  static const std::map<std::string, std::function<void(v1::AttachmentSpec&, const std::string&)>>
      kTexts = {
          {"kernel", [](auto& s, const auto& v) { s.set_kernel_glob(v); }},
          {"sites", [](auto& s, const auto& v) { s.set_sites(v); }},
          {"probe", [](auto& s, const auto& v) { s.set_probe(v); }},
          {"process", [](auto& s, const auto& v) { s.set_process_glob(v); }},
          {"owner", [](auto& s, const auto& v) { s.set_owner(v); }},
          {"register", [](auto& s, const auto& v) { s.set_value_register(v); }},
      };
  if (key == "probe-object" || key == "probe-manifest") return ReadProbeFile(spec, key, value);
  if (const auto text = kTexts.find(key); text != kTexts.end()) {
    text->second(spec, value);
    return absl::OkStatus();
  }
  for (const BudgetOption& option : kBudgetOptions) {
    if (key == option.name) return SetBudget(*spec.mutable_budget(), option, value);
  }
  if (key == "pid") {
    uint32_t pid = 0;
    if (!absl::SimpleAtoi(value, &pid) || pid == 0) return BadNumber(key, value, 1);
    spec.set_pid(pid);
    return absl::OkStatus();
  }
  if (key == "position") {
    if (value != "before" && value != "after") {
      return absl::InvalidArgumentError("position: expected before or after");
    }
    spec.set_position(value == "after" ? v1::AFTER : v1::BEFORE);
    return absl::OkStatus();
  }
  if (key == "placement") {
    const std::optional<v1::Placement> placement = Named(kPlacements, value);
    if (!placement) return BadChoice(key, PlacementNames(), value);
    spec.set_placement(*placement);
    return absl::OkStatus();
  }
  if (key == "mode") {
    const std::optional<v1::Mode> mode = Named(kModes, value);
    if (!mode) return BadChoice(key, ModeNames(), value);
    spec.set_mode(*mode);
    return absl::OkStatus();
  }
  if (key == "reduce") return SetReductions(spec, value);
  if (key == "rotation") {
    uint32_t rotation = 0;
    if (!absl::SimpleAtoi(value, &rotation)) return BadNumber(key, value);
    spec.set_rotation(rotation);
    return absl::OkStatus();
  }
  if (key == "allow-sabotage") {
    if (value != "true" && value != "false") {
      return absl::InvalidArgumentError("allow-sabotage: expected true or false");
    }
    spec.set_allow_sabotage(value == "true");
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown key '", key, "' in an attachment"));
}

absl::StatusOr<v1::AttachmentSpec> ParseSpec(const std::string& text, const std::string& mode) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (absl::string_view piece : absl::StrSplit(text, ',')) {
    const size_t equals = piece.find('=');
    if (equals == absl::string_view::npos && !parts.empty()) {
      absl::StrAppend(&parts.back().second, ",", piece);
    } else if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected kernel=...,sites=...,probe=...; "
                       "found '",
                       piece, "'"));
    } else {
      parts.emplace_back(piece.substr(0, equals), piece.substr(equals + 1));
    }
  }
  v1::AttachmentSpec spec;
  std::set<std::string> given;
  for (const auto& [key, value] : parts) {
    if (!given.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(key, "= is given twice"));
    }
    if (absl::Status status = SetSpecField(spec, key, value); !status.ok()) return status;
  }
  for (const auto& [key, value] :
       {std::pair{"kernel", spec.kernel_glob()}, std::pair{"sites", spec.sites()},
        std::pair{"probe", spec.probe()}}) {
    if (value.empty()) return absl::InvalidArgumentError(absl::StrCat(key, "= is missing"));
  }
  if (spec.mode() == v1::MODE_UNSPECIFIED && !mode.empty()) {
    if (absl::Status status = SetSpecField(spec, "mode", mode); !status.ok()) return status;
  }
  return spec;
}

}  // namespace rjdbi::clients
