// See the header.
#include "contract/user_probe.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/escaping.h"
#include "contract/catalogue.h"
#include "contract/text.h"
#include "patch/codeobject/offload_bundle.h"

namespace rjdbi::contract {
namespace {

using patch::ArgumentKind;
using patch::DeviceFunction;
using patch::DeviceObject;
using patch::ProbeArgument;
using patch::TargetId;

constexpr std::string_view kBundleMagic = "__CLANG_OFFLOAD_BUNDLE__";

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

struct SourceRow {
  v1::ArgumentSource source;
  ArgumentKind kind;
  uint8_t dwords;
};
constexpr SourceRow kSources[] = {
    {v1::SITE_ID, ArgumentKind::kSite, 1},        {v1::EXEC_MASK, ArgumentKind::kExec, 2},
    {v1::LANE_ID, ArgumentKind::kLane, 1},        {v1::ADDRESS, ArgumentKind::kAddress, 2},
    {v1::TELEMETRY, ArgumentKind::kTelemetry, 2}, {v1::WAVE_SLOT, ArgumentKind::kWaveSlot, 1},
};

// A probe that does not care runs anywhere; one that was compiled for one setting
// does not run under the other.
bool FeatureFits(TargetId::Feature probe, TargetId::Feature kernel) {
  using Feature = TargetId::Feature;
  return probe == kernel || probe == Feature::kAny || probe == Feature::kUnsupported;
}

bool Fits(const TargetId& probe, const TargetId& kernel) {
  return probe.processor == kernel.processor && FeatureFits(probe.xnack, kernel.xnack) &&
         FeatureFits(probe.sramecc, kernel.sramecc);
}

// One number, off the front.
std::optional<unsigned> TakeNumber(std::string_view* text) {
  unsigned number = 0;
  size_t digits = 0;
  while (digits < text->size() && std::isdigit(static_cast<unsigned char>((*text)[digits]))) {
    number = number * 10 + static_cast<unsigned>((*text)[digits++] - '0');
    if (digits > 3) return std::nullopt;
  }
  text->remove_prefix(digits);
  if (digits == 0) return std::nullopt;
  return number;
}

}  // namespace

class UserProbeReader {
 public:
  explicit UserProbeReader(const v1::AttachmentSpec& spec) : spec_(spec) {}

  std::variant<UserProbeFile, std::vector<v1::Violation>> Run() {
    if (ReadManifest()) {
      ReadArguments();
      ReadObjects();
    }
    if (!violations_.empty()) return std::move(violations_);
    return std::move(out_);
  }

 private:
  void Add(std::string_view id, std::string observed, std::string limit, std::string message,
           uint32_t line = 0) {
    v1::Location where;
    where.set_manifest_line(line);
    violations_.push_back(
        MakeViolation(id, std::move(observed), std::move(limit), where, std::move(message)));
  }

  const v1::UserProbe& user() const { return out_.manifest_.proto().user(); }

  bool ReadManifest() {
    const std::string& text = spec_.probe_manifest();
    if (auto unfit = UnfitManifestSize(text)) {
      violations_.push_back(*std::move(unfit));
      return false;
    }
    auto parsed = Manifest::Parse(text);
    if (!parsed.ok()) {
      violations_.push_back(UnreadableManifest(text, parsed.status()));
      return false;
    }
    out_.manifest_ = *std::move(parsed);
    const v1::Manifest& m = out_.manifest_.proto();
    if (!m.has_user()) {
      Add(id::kProbeManifest, "no section user", "user { entry: ... }",
          "the manifest does not say which function of the object is the probe",
          out_.manifest_.LineOf("probe"));
    } else if (spec_.probe() != m.probe()) {
      Add(id::kProbeManifest, StrCat("\"", spec_.probe(), "\""), StrCat("\"", m.probe(), "\""),
          StrCat("the attachment asks for the probe \"", spec_.probe(),
                 "\", the manifest is that of \"", m.probe(), "\""),
          out_.manifest_.LineOf("probe"));
    } else if (FindProbe(m.probe()) != nullptr) {
      Add(id::kProbeManifest, StrCat("\"", m.probe(), "\""), "another name",
          "the manifest's probe has the name of a built-in one", out_.manifest_.LineOf("probe"));
    }
    return violations_.empty();
  }

  // Parsing has found them in order.
  void ReadArguments() {
    for (const v1::ProbeArgument& argument : user().arguments()) {
      out_.arguments_.push_back(*ToArgument(argument));
    }
  }

  void ReadObjects() {
    for (DeviceObject& object : ReadDeviceObjects(Bytes(spec_.probe_object()), &violations_)) {
      const DeviceFunction* function = object.Find(user().entry());
      if (function == nullptr) {
        std::string names;
        for (const DeviceFunction& f : object.functions()) {
          StrAppend(&names, names.empty() ? "" : ", ", f.name);
        }
        Add(id::kProbeFunction, StrCat("\"", user().entry(), "\""),
            names.empty() ? "no functions" : names,
            StrCat("the object for ", object.target().processor, " has no function \"",
                   user().entry(), "\""),
            out_.manifest_.LineOf("user.entry"));
        continue;
      }
      CheckFunction(object, *function);
      out_.objects_.push_back(std::move(object));
    }
  }

  void CheckFunction(const DeviceObject& object, const DeviceFunction& function) {
    const std::string digest = FunctionDigest(function);
    const auto& known = user().body_sha256();
    if (std::find(known.begin(), known.end(), digest) == known.end()) {
      Add(id::kProbeFunction, digest,
          known.empty() ? "no digest" : StrCat(known.size() > 1 ? "one of " : "", known.Get(0)),
          StrCat("the manifest does not speak of this function for ", object.target().processor,
                 ", whose digest is ", digest),
          out_.manifest_.LineOf("user.body_sha256"));
      return;
    }
    const uint32_t wave = user().wavefront_size() != 0
                              ? user().wavefront_size()
                              : DefaultWavefrontSize(object.target().processor);
    auto isa = patch::Isa::Create(object.target(), wave);
    if (!isa.ok()) {
      return Add(id::kProbeObject, object.target().processor, "a processor with hardware tables",
                 std::string(isa.status().message()), out_.manifest_.LineOf("user.wavefront_size"));
    }
    const patch::BodyReading read = patch::ReadBody(function, **isa);
    for (const patch::BodyRefusal& refusal : read.refusals) {
      violations_.push_back(MakeViolation(refusal));
    }
    if (read.ok()) CheckProvided(read.body);
  }

  void CheckProvided(const patch::ProbeBody& body) {
    uint32_t dwords = 0;
    for (const ProbeArgument& argument : out_.arguments_) dwords += argument.dwords;
    if (body.argument_dwords <= dwords) return;
    Add(ForRule(patch::BodyRule::kInput).id, StrCat("v", body.argument_dwords - 1),
        StrCat(dwords, " words of arguments"),
        StrCat("the probe reads v", body.argument_dwords - 1, ", its arguments end before"),
        out_.manifest_.LineOf("user.arguments"));
  }

  const v1::AttachmentSpec& spec_;
  UserProbeFile out_;
  std::vector<v1::Violation> violations_;
};

std::variant<UserProbeFile, std::vector<v1::Violation>> UserProbeFile::Read(
    const v1::AttachmentSpec& spec) {
  return UserProbeReader(spec).Run();
}

std::variant<patch::UserProbe, v1::Violation> UserProbeFile::For(const TargetId& target,
                                                                 patch::Isa& isa) const {
  const v1::UserProbe& user = manifest_.proto().user();
  v1::Location where;
  std::string there;
  for (const DeviceObject& object : objects_) {
    StrAppend(&there, there.empty() ? "" : ", ", object.target().ToString());
    if (!Fits(object.target(), target)) continue;
    const uint32_t wave =
        user.wavefront_size() != 0 ? user.wavefront_size() : DefaultWavefrontSize(target.processor);
    if (wave != isa.wavefront_size()) {
      where.set_manifest_line(manifest_.LineOf("user.wavefront_size"));
      return MakeViolation(id::kProbeWavefrontSize, StrCat("wave", wave, " code"),
                           StrCat("wave", isa.wavefront_size()), where,
                           StrCat("the probe is compiled for ", wave, " lanes, the kernel runs ",
                                  isa.wavefront_size()));
    }
    patch::BodyReading read = patch::ReadBody(*object.Find(user.entry()), isa);
    if (!read.ok()) return MakeViolation(read.refusals.front());
    return patch::UserProbe{std::move(read.body), arguments_, user.telemetry_words()};
  }
  return MakeViolation(
      id::kProbeTarget, there, target.ToString(), where,
      StrCat("the probe is compiled for ", there, ", the code object for ", target.ToString()));
}

bool BringsProbe(const v1::AttachmentSpec& spec) {
  return !spec.probe_object().empty() || !spec.probe_manifest().empty();
}

std::vector<DeviceObject> ReadDeviceObjects(absl::Span<const uint8_t> file,
                                            std::vector<v1::Violation>* violations) {
  const auto bad = [&](const absl::Status& status) {
    violations->push_back(MakeViolation(id::kProbeObject, StrCat(file.size(), " bytes"),
                                        "an AMDGPU object with a device function", {},
                                        StrCat("the probe's object: ", status.message())));
  };
  std::vector<absl::Span<const uint8_t>> parts = {file};
  const bool bundle = file.size() >= kBundleMagic.size() &&
                      std::equal(kBundleMagic.begin(), kBundleMagic.end(), file.begin());
  if (bundle && file.size() <= DeviceObject::kMaxSize) {
    parts.clear();
    const auto bundled = patch::ExtractBundles(file);
    if (!bundled.ok()) bad(bundled.status());
    if (bundled.ok()) {
      for (const patch::BundledObject& object : *bundled) parts.push_back(object.bytes);
    }
  }
  std::vector<DeviceObject> objects;
  for (const absl::Span<const uint8_t> part : parts) {
    auto object = DeviceObject::Parse(part);
    if (object.ok()) objects.push_back(*std::move(object));
    if (!object.ok()) bad(object.status());
  }
  return objects;
}

uint32_t DefaultWavefrontSize(std::string_view processor) {
  return StartsWith(processor, "gfx9") ? 64 : 32;
}

std::string FunctionDigest(const DeviceFunction& function) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(function.code.data(), function.code.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
}

std::optional<v1::Violation> UnfitManifestSize(std::string_view text) {
  if (!text.empty() && text.size() <= kMaxProbeManifest) return std::nullopt;
  return MakeViolation(
      id::kProbeManifest, StrCat(text.size(), " bytes"),
      StrCat("1 to ", kMaxProbeManifest, " bytes"), {},
      text.empty() ? "a probe's object comes with its manifest" : "the manifest is too long");
}

v1::Violation UnreadableManifest(std::string_view text, const absl::Status& error) {
  v1::Violation violation =
      MakeViolation(id::kProbeManifest, "a text that does not parse", "a manifest", {},
                    StrCat("the probe's manifest, ", error.message()));
  violation.set_excerpt(ManifestExcerpt(text, error));
  return violation;
}

v1::Violation MakeViolation(const patch::BodyRefusal& refusal) {
  v1::Location where;
  where.set_in_probe(true);
  where.set_probe_offset(refusal.offset);
  where.set_instruction(refusal.instruction);
  return MakeViolation(ForRule(refusal.rule).id, refusal.observed, refusal.limit, where,
                       refusal.detail);
}

std::optional<ProbeArgument> ToArgument(const v1::ProbeArgument& from) {
  ProbeArgument to;
  switch (from.value_case()) {
    case v1::ProbeArgument::kConstant32:
      to.constant = from.constant32();
      return to;
    case v1::ProbeArgument::kConstant64:
      to.constant = from.constant64();
      to.dwords = 2;
      return to;
    case v1::ProbeArgument::kRegister:
      return ParseRegisterArgument(from.register_());
    default:
      break;
  }
  for (const SourceRow& row : kSources) {
    if (row.source != from.source()) continue;
    to.kind = row.kind;
    to.dwords = row.dwords;
    return to;
  }
  return std::nullopt;
}

std::optional<ProbeArgument> ParseRegisterArgument(std::string_view text) {
  ProbeArgument argument;
  argument.kind = ArgumentKind::kRegister;
  if (text == "vcc") {
    argument.reg = patch::kVccLo;
    argument.dwords = 2;
    return argument;
  }
  if (text.empty() || (text[0] != 's' && text[0] != 'v')) return std::nullopt;
  const bool scalar = text[0] == 's';
  text.remove_prefix(1);
  const bool bracket = StartsWith(text, "[");
  if (bracket) text.remove_prefix(1);
  const std::optional<unsigned> first = TakeNumber(&text);
  std::optional<unsigned> last = first;
  if (bracket) {
    if (!StartsWith(text, ":")) return std::nullopt;
    text.remove_prefix(1);
    last = TakeNumber(&text);
    if (text != "]") return std::nullopt;
    text.remove_prefix(1);
  }
  constexpr unsigned kSgprs = 102, kVgprs = 256;
  if (!first || !last || !text.empty() || *last < *first || *last - *first > 1 ||
      *last >= (scalar ? kSgprs : kVgprs)) {
    return std::nullopt;
  }
  argument.reg = static_cast<uint16_t>((scalar ? patch::kSgpr0 : patch::kVgpr0) + *first);
  argument.dwords = static_cast<uint8_t>(*last - *first + 1);
  return argument;
}

}  // namespace rjdbi::contract
