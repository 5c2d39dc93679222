// rjctl check and infer: a user's probe before it is attached to anything.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/files.h"
#include "clients/verbs.h"
#include "contract/inference.h"
#include "contract/manifest_yaml.h"
#include "contract/near_miss.h"
#include "contract/render.h"
#include "contract/user_probe.h"
#include "patch/rewrite/user_sample.h"

namespace rjdbi::clients {
namespace {

std::vector<std::string> Names(const patch::RegisterSet& set) {
  if (set.Empty()) return {};
  return absl::StrSplit(set.ToString(), ' ');
}

// One function of one object, with the decoder that its instructions belong to.
struct Candidate {
  std::string isa;
  std::unique_ptr<patch::Isa> decoder;
  const patch::DeviceFunction* function = nullptr;
  patch::BodyReading read;
};

v1::ProbeReport ReportOf(const Candidate& c) {
  const patch::ProbeBody& body = c.read.body;
  v1::ProbeReport report;
  report.set_isa(c.isa);
  report.set_entry(patch::ToUtf8(body.name));
  report.set_body_sha256(contract::FunctionDigest(*c.function));
  report.set_bytes(static_cast<uint32_t>(body.code.size()));
  report.set_instructions(static_cast<uint32_t>(body.instructions.size()));
  report.set_wavefront_size(c.decoder->wavefront_size());
  for (const std::string& name : Names(body.reads)) report.add_reads(name);
  for (const std::string& name : Names(body.writes)) report.add_writes(name);
  report.set_argument_words(body.argument_dwords);
  report.set_sgprs(body.mentioned.CountIn(patch::kSgpr0, patch::kVccLo));
  report.set_vgprs(body.mentioned.CountIn(patch::kVgpr0, patch::kAgpr0 - patch::kVgpr0));
  report.set_waits(body.waits);
  for (const patch::Instruction& in : body.instructions) {
    if (in.memory == patch::MemoryKind::kNone) continue;
    v1::ProbeInstruction* instruction = report.add_memory();
    instruction->set_offset(static_cast<uint32_t>(in.offset));
    instruction->set_text(c.decoder->Print(body.code, in.offset));
  }
  for (const patch::BodyRefusal& refusal : c.read.refusals) {
    *report.add_violations() = contract::MakeViolation(refusal);
  }
  return report;
}

// What is asked of either verb.
class Probes {
 public:
  explicit Probes(const ProbeOptions& options) : options_(options) {}

  absl::Status Load() {
    auto bytes = ReadProbeFile(options_.object);
    if (!bytes.ok()) return bytes.status();
    bytes_ = *std::move(bytes);
    std::vector<v1::Violation> violations;
    objects_ = contract::ReadDeviceObjects(
        {reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}, &violations);
    for (v1::Violation& v : violations) *reply_.add_violations() = std::move(v);
    for (const patch::DeviceObject& object : objects_) {
      for (const patch::DeviceFunction& function : object.functions()) {
        if (!options_.entry.empty() && function.name != options_.entry) continue;
        if (absl::Status status = Add(object, function); !status.ok()) return status;
      }
    }
    if (candidates_.empty() && violations.empty()) {
      return absl::NotFoundError(NoFunction());
    }
    return absl::OkStatus();
  }

  std::vector<Candidate>& candidates() { return candidates_; }
  const std::string& bytes() const { return bytes_; }
  v1::CheckProbeReply& reply() { return reply_; }

 private:
  std::string NoFunction() const {
    if (options_.entry.empty()) return options_.object + ": no device function in it";
    std::set<std::string> names;
    for (const patch::DeviceObject& object : objects_) {
      for (const patch::DeviceFunction& function : object.functions()) names.insert(function.name);
    }
    const std::string near = contract::DidYouMean(contract::ClosestNames(options_.entry, names));
    return absl::StrCat(options_.object, ": no device function \"", options_.entry, "\"",
                        near.empty() ? "" : "; ", near);
  }

  absl::Status Add(const patch::DeviceObject& object, const patch::DeviceFunction& function) {
    const uint32_t wave = options_.wavefront_size != 0
                              ? options_.wavefront_size
                              : contract::DefaultWavefrontSize(object.target().processor);
    auto isa = patch::Isa::Create(object.target(), wave);
    if (!isa.ok()) return isa.status();
    Candidate c;
    c.isa = object.target().ToString();
    c.decoder = *std::move(isa);
    c.function = &function;
    c.read = patch::ReadBody(function, *c.decoder);
    candidates_.push_back(std::move(c));
    return absl::OkStatus();
  }

  const ProbeOptions& options_;
  std::string bytes_;
  std::vector<patch::DeviceObject> objects_;
  std::vector<Candidate> candidates_;
  v1::CheckProbeReply reply_;
};

absl::StatusOr<contract::Inference> Infer(const patch::UserProbe& probe, patch::Isa& isa,
                                          uint32_t telemetry_words) {
  const auto sample = patch::SampleUserSequence(probe, isa);
  if (!sample.ok()) return sample.status();
  contract::InferenceInput input;
  input.sequence = sample->sequence.bytes;
  input.fixups = sample->sequence.fixups;
  input.live = sample->live;
  input.telemetry_end = uint64_t{telemetry_words} * 8;
  return contract::InferEffects(input, isa);
}

// ---- check ----------------------------------------------------------------------

// `promised`: the function that a manifest is of, if there is one.
void PrintReport(const Output& out, const v1::ProbeReport& r, const std::string& promised) {
  const auto line = [&](const char* what, const std::string& text) {
    if (!text.empty()) out.Print(absl::StrFormat("  %-10s %s\n", what, text));
  };
  out.Print(absl::StrCat(out.Bold(Printable(r.entry())), "  ", r.isa(), ", wave",
                         r.wavefront_size(), ", ", r.instructions(), " instructions, ", r.bytes(),
                         " bytes\n"));
  line("sha256", r.body_sha256());
  line("reads", absl::StrJoin(r.reads(), " "));
  line("writes", absl::StrJoin(r.writes(), " "));
  line("needs", absl::StrCat(r.sgprs(), " SGPRs, ", r.vgprs(), " VGPRs"));
  for (const v1::ProbeInstruction& in : r.memory()) {
    line("memory", absl::StrCat("offset ", in.offset(), ": ", in.text()));
  }
  if (r.waits()) line("waits", "for its own loads, and so for the application's");
  if (r.has_effects()) {
    const v1::InferredEffects& e = r.effects();
    std::vector<std::string> regions;
    for (int region : e.memory()) {
      regions.push_back(contract::RegionName(static_cast<v1::MemoryRegion>(region)));
    }
    line("effects",
         absl::StrCat(e.instructions(), " instructions, ",
                      regions.empty() ? "no memory" : absl::StrJoin(regions, ", "), ", ",
                      e.temporary_sgprs(), " temporary SGPRs, ", e.temporary_vgprs(), " VGPRs"));
  }
  line("in line", r.violations().empty() ? "yes" : "no");
  if (r.has_effects()) {
    line("manifest", r.violations().empty() ? "kept" : "broken");
  } else if (!promised.empty() && r.entry() != promised) {
    line("manifest", "is of another function");
  }
}

// The manifest against every function that it speaks of.
void CheckAgainst(const std::string& text, Probes& probes) {
  v1::AttachmentSpec spec;
  spec.set_probe_object(probes.bytes());
  spec.set_probe_manifest(text);
  if (const auto manifest = contract::Manifest::Parse(text); manifest.ok()) {
    spec.set_probe(manifest->proto().probe());
  }
  auto read = contract::UserProbeFile::Read(spec);
  if (auto* violations = std::get_if<std::vector<v1::Violation>>(&read)) {
    const bool said = !probes.reply().violations().empty();  // what the object is not
    for (v1::Violation& v : *violations) {
      if (said && v.constraint_id() == contract::id::kProbeObject) continue;
      *probes.reply().add_violations() = std::move(v);
    }
    return;
  }
  const auto& file = std::get<contract::UserProbeFile>(read);
  const v1::UserProbe& user = file.manifest().proto().user();
  for (size_t i = 0; i < probes.candidates().size(); ++i) {
    Candidate& c = probes.candidates()[i];
    v1::ProbeReport* report = probes.reply().mutable_probes(static_cast<int>(i));
    if (!c.read.ok() || c.function->name != user.entry()) continue;
    const patch::UserProbe probe{c.read.body, file.arguments(), user.telemetry_words()};
    const auto inference = Infer(probe, *c.decoder, user.telemetry_words());
    if (!inference.ok()) continue;  // a site will say so
    *report->mutable_effects() = inference->effects;
    for (v1::Violation& v : contract::CheckManifest(*inference, file.manifest(), {})) {
      *report->add_violations() = std::move(v);
    }
  }
}

// ---- infer ----------------------------------------------------------------------

absl::StatusOr<v1::ProbeArgument> ParseArgument(const std::string& text) {
  constexpr std::pair<const char*, v1::ArgumentSource> kSources[] = {
      {"address", v1::ADDRESS}, {"telemetry", v1::TELEMETRY}, {"exec", v1::EXEC_MASK},
      {"lane", v1::LANE_ID},    {"site", v1::SITE_ID},        {"wave", v1::WAVE_SLOT}};
  v1::ProbeArgument argument;
  for (const auto& [name, source] : kSources) {
    if (text != name) continue;
    argument.set_source(source);
    return argument;
  }
  if (contract::ParseRegisterArgument(text)) {
    argument.set_register_(text);
    return argument;
  }
  const bool wide = absl::EndsWith(text, ":64");
  const std::string number = wide ? text.substr(0, text.size() - 3) : text;
  uint64_t value = 0;
  const bool hex = absl::StartsWith(number, "0x");
  if (!(hex ? absl::SimpleHexAtoi(number, &value) : absl::SimpleAtoi(number, &value)) ||
      (!wide && value > ~uint32_t{0})) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is no argument: address, telemetry, exec, lane, site, wave, a register, or "
                     "a number (with :64 behind it a wide one)"));
  }
  if (wide) argument.set_constant64(value);
  if (!wide) argument.set_constant32(static_cast<uint32_t>(value));
  return argument;
}

bool Same(const v1::InferredEffects& a, const v1::InferredEffects& b) {
  return a.memory().size() == b.memory().size() &&
         std::equal(a.memory().begin(), a.memory().end(), b.memory().begin());
}

// The fewest words with which the probe touches no more than with many.
uint32_t TelemetryWords(const patch::UserProbe& probe, patch::Isa& isa) {
  const auto most = Infer(probe, isa, contract::kMaxTelemetryWords);
  if (!most.ok()) return 0;
  uint32_t least = 0, enough = contract::kMaxTelemetryWords;
  while (least < enough) {
    const uint32_t middle = (least + enough) / 2;
    const auto inference = Infer(probe, isa, middle);
    const bool fits = inference.ok() && Same(inference->effects, most->effects);
    (fits ? enough : least) = fits ? middle : middle + 1;
  }
  return enough;
}

// What the effects at a site where everything is needed make necessary.
void Declare(const v1::InferredEffects& e, v1::Manifest& m) {
  const auto add = [](auto* list, int value) {
    if (std::find(list->begin(), list->end(), value) == list->end()) list->Add(value);
  };
  for (int region : e.memory()) add(m.mutable_memory(), region);
  for (int control : e.control()) add(m.mutable_control(), control);
  for (int sync : e.synchronisation()) add(m.mutable_synchronisation(), sync);
  const bool other =
      m.mask_policy() != 0 && e.mask_policy() != 0 && m.mask_policy() != e.mask_policy();
  if (e.mask_policy() != 0) m.set_mask_policy(other ? v1::ALL_LANES : e.mask_policy());
  m.set_max_instructions_per_event(std::max(m.max_instructions_per_event(), e.instructions()));
  m.set_max_telemetry_bytes_per_event(
      std::max(m.max_telemetry_bytes_per_event(), e.telemetry_bytes()));
  v1::AmdgpuEffects& amdgpu = *m.mutable_amdgpu();
  for (const std::string& read : e.reads()) {
    const auto& known = amdgpu.reads();
    if (std::find(known.begin(), known.end(), read) == known.end()) amdgpu.add_reads(read);
  }
  amdgpu.set_max_temporary_sgprs(std::max(amdgpu.max_temporary_sgprs(), e.temporary_sgprs()));
  amdgpu.set_max_temporary_vgprs(std::max(amdgpu.max_temporary_vgprs(), e.temporary_vgprs()));
}

// An empty one would move those behind it.
absl::Status ReadArguments(const ProbeOptions& options, v1::UserProbe& user) {
  for (const std::string& list : options.arguments) {
    for (const absl::string_view item : absl::StrSplit(list, ',')) {
      const absl::string_view text = absl::StripAsciiWhitespace(item);
      if (text.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--arguments: argument ", user.arguments_size() + 1, " is empty"));
      }
      auto argument = ParseArgument(std::string(text));
      if (!argument.ok()) return argument.status();
      *user.add_arguments() = *argument;
    }
  }
  return absl::OkStatus();
}

absl::Status InferInto(const ProbeOptions& options, Probes& probes, v1::Manifest& m) {
  if (absl::Status s = ReadArguments(options, *m.mutable_user()); !s.ok()) return s;
  std::vector<patch::ProbeArgument> arguments;
  bool passes_words = false;
  for (const v1::ProbeArgument& argument : m.user().arguments()) {
    arguments.push_back(*contract::ToArgument(argument));
    passes_words |= argument.source() == v1::TELEMETRY || argument.source() == v1::SITE_ID;
  }
  uint32_t words = options.telemetry_words;
  for (Candidate& c : probes.candidates()) {
    if (!c.read.ok()) continue;
    uint32_t given = 0;
    for (const patch::ProbeArgument& argument : arguments) given += argument.dwords;
    if (given < c.read.body.argument_dwords) {
      return absl::InvalidArgumentError(absl::StrCat(
          c.read.body.name, " reads ", c.read.body.argument_dwords, " words of arguments (",
          c.read.body.reads.ToString(), "), --arguments gives ", given));
    }
    const patch::UserProbe probe{c.read.body, arguments, words};
    if (options.telemetry_words == 0) words = std::max(words, TelemetryWords(probe, *c.decoder));
  }
  if (passes_words) words = std::max(words, 1u);  // there have to be some, used or not
  m.mutable_user()->set_telemetry_words(words);
  for (Candidate& c : probes.candidates()) {
    if (!c.read.ok()) continue;
    const auto inference = Infer({c.read.body, arguments, words}, *c.decoder, words);
    if (!inference.ok()) return inference.status();
    Declare(inference->effects, m);
    m.mutable_user()->add_body_sha256(contract::FunctionDigest(*c.function));
  }
  return absl::OkStatus();
}

// Every violation, object by object; the exit code.
int Finish(const Context& context, v1::CheckProbeReply& reply, const std::string& promised = "") {
  bool refused = !reply.violations().empty();
  for (const v1::ProbeReport& report : reply.probes()) refused |= !report.violations().empty();
  if (context.out.json()) {
    context.out.Json(reply);
    return refused ? kRefused : kOk;
  }
  for (const v1::ProbeReport& report : reply.probes()) {
    PrintReport(context.out, report, promised);
    context.out.Violations(report.violations());
  }
  context.out.Violations(reply.violations());
  return refused ? kRefused : kOk;
}

}  // namespace

namespace {

bool IsManifest(const std::string& bytes) {
  return !absl::StartsWith(bytes,
                           "\x7f"
                           "ELF") &&
         !absl::StartsWith(bytes, "__CLANG_OFFLOAD") && bytes.find('\0') == std::string::npos;
}

// A manifest without the object that it speaks of.
int Lint(const Context& context, const std::string& path, const std::string& text) {
  v1::CheckProbeReply reply;
  auto unfit = contract::UnfitManifestSize(text);
  if (unfit.has_value()) {
    if (text.empty()) unfit->set_message("the file is empty");
    *reply.add_violations() = *std::move(unfit);
    return Finish(context, reply);
  }
  const auto manifest = contract::Manifest::Parse(text);
  if (!manifest.ok()) {
    *reply.add_violations() = contract::UnreadableManifest(text, manifest.status());
  }
  const int code = Finish(context, reply);
  if (manifest.ok()) {
    context.out.Note(absl::StrCat(
        Printable(path), ": a manifest of ", Printable(manifest->proto().probe()),
        manifest->proto().has_user() ? "; --probe OBJECT holds the object to it" : ""));
  }
  return code;
}

// What the manifest says of its code, where no option does; they must not disagree.
// What is wrong with the manifest itself is CheckAgainst's to say.
absl::Status TakeFromManifest(const std::string& text, ProbeOptions& options,
                              std::string& promised) {
  if (contract::UnfitManifestSize(text).has_value()) return absl::OkStatus();
  const auto manifest = contract::Manifest::Parse(text);
  if (!manifest.ok() || !manifest->proto().has_user()) return absl::OkStatus();
  const v1::UserProbe& user = manifest->proto().user();
  promised = user.entry();
  if (!options.entry.empty() && options.entry != promised) {
    return absl::InvalidArgumentError(
        absl::StrCat("--entry ", options.entry, ": the manifest is of ", promised));
  }
  if (user.wavefront_size() == 0) return absl::OkStatus();
  if (options.wavefront_size != 0 && options.wavefront_size != user.wavefront_size()) {
    return absl::InvalidArgumentError(absl::StrCat("--wavefront-size ", options.wavefront_size,
                                                   ": the manifest says ", user.wavefront_size()));
  }
  options.wavefront_size = user.wavefront_size();
  return absl::OkStatus();
}

}  // namespace

int Check(const Context& context, const ProbeOptions& given) {
  ProbeOptions options = given;
  auto text = ReadProbeFile(options.object);
  if (!text.ok()) return context.out.Fail(text.status());
  const bool manifest_first = IsManifest(*text);
  if (!options.probe.empty()) {
    if (!options.manifest.empty() || !manifest_first) {
      return context.out.FailUsage("check: --probe is for a MANIFEST that is named first");
    }
    options.manifest = options.probe;
  }
  const bool alone = manifest_first && options.manifest.empty();
  // Which is which, the files say themselves.
  if (manifest_first && !alone) {
    std::swap(options.object, options.manifest);
  } else if (!options.manifest.empty()) {
    text = ReadProbeFile(options.manifest);
    if (!text.ok()) return context.out.Fail(text.status());
  }
  std::string promised;
  if (manifest_first || !options.manifest.empty()) {
    const absl::Status status = TakeFromManifest(*text, options, promised);
    if (!status.ok()) return context.out.Fail(status);
  }
  if (alone) return Lint(context, options.object, *text);
  Probes probes(options);
  if (absl::Status status = probes.Load(); !status.ok()) return context.out.Fail(status);
  for (const Candidate& c : probes.candidates()) *probes.reply().add_probes() = ReportOf(c);
  if (!options.manifest.empty()) CheckAgainst(*text, probes);
  return Finish(context, probes.reply(), promised);
}

namespace {

// Whether the manifest, once written, will be read.
absl::Status CheckWritten(const v1::Manifest& m, const std::string& text) {
  const std::string& entry = m.user().entry();
  if (patch::ToUtf8(entry) != entry) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry, ": the function's name is not UTF-8; a manifest, which names it, has to be"));
  }
  if (contract::FindProbe(m.probe()) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", m.probe(), "' is the name of a built-in probe: give another (--name)"));
  }
  if (const auto unfit = contract::UnfitManifestSize(text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "what would be written is no manifest: ", unfit->message(), ", ", unfit->observed()));
  }
  const auto read = contract::Manifest::Parse(text);
  if (read.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("what would be written is no manifest: ", read.status().message()));
}

}  // namespace

int Infer(const Context& context, const ProbeOptions& options) {
  Probes probes(options);
  if (absl::Status status = probes.Load(); !status.ok()) return context.out.Fail(status);
  const std::string entry =
      probes.candidates().empty() ? "" : probes.candidates().front().read.body.name;
  bool refused = !probes.reply().violations().empty();
  for (const Candidate& c : probes.candidates()) {
    if (c.read.body.name != entry) {
      return context.out.FailUsage(absl::StrCat("the object has several functions, such as ", entry,
                                                " and ", c.read.body.name,
                                                ": say which with --entry"));
    }
    refused |= !c.read.ok();
  }
  if (refused) {
    for (const Candidate& c : probes.candidates()) *probes.reply().add_probes() = ReportOf(c);
    return Finish(context, probes.reply());
  }
  v1::Manifest m;
  m.set_schema_version(1);
  m.set_probe(options.name.empty() ? entry : options.name);
  m.set_purpose(absl::StrCat("The function ", entry, "."));
  m.mutable_user()->set_entry(entry);
  if (options.wavefront_size != 0) m.mutable_user()->set_wavefront_size(options.wavefront_size);
  if (absl::Status status = InferInto(options, probes, m); !status.ok()) {
    return context.out.Fail(status);
  }
  if (m.mask_policy() == v1::MASK_POLICY_UNSPECIFIED) m.set_mask_policy(v1::APPLICATION_MASK);
  if (m.synchronisation().empty()) m.add_synchronisation(v1::SYNCHRONISATION_NONE);
  std::string text = contract::WriteYaml(m);
  if (options.format != "yaml") google::protobuf::TextFormat::PrintToString(m, &text);
  if (absl::Status status = CheckWritten(m, text); !status.ok()) return context.out.Fail(status);
  if (context.out.json()) {
    context.out.Json(m);
  } else {
    context.out.Print(text);
  }
  // Arguments in another order, or too few words, have the same effect as such a probe.
  if (std::count(m.memory().begin(), m.memory().end(), v1::APPLICATION_MEMORY_WRITE) > 0) {
    context.out.Warn(
        "the manifest grants writes to the application's memory: it is not proven that the "
        "probe's stores stay within its own words. Are --arguments in the order of the "
        "function's parameters, and --telemetry-words enough?");
  }
  return kOk;
}

}  // namespace rjdbi::clients
