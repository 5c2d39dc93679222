// Verbs that need no daemon: the same engine, on a file.
#include <google/protobuf/struct.pb.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/files.h"
#include "clients/spec_text.h"
#include "clients/vacuous.h"
#include "clients/verbs.h"
#include "contract/address_map.h"
#include "contract/admission.h"
#include "contract/catalogue.h"
#include "contract/coverage.h"
#include "contract/decisions.h"
#include "contract/demangle.h"
#include "contract/inspect.h"
#include "contract/patch_record.h"
#include "contract/site.h"
#include "patch/codeobject/code_object.h"
#include "patch/rewrite/trampoline_rewriter.h"

namespace rjdbi::clients {
namespace {

// Nothing was found in what rjdbid holds: why, and what would change that.
void NoteWhyEmpty(const Context& context, bool filtered) {
  v1::ListCodeObjectsReply objects;
  ControlClient client(context.control_socket);
  if (!client.ListCodeObjects({}, objects).ok()) return;
  const auto known = std::count_if(objects.code_objects().begin(), objects.code_objects().end(),
                                   [](const auto& object) { return object.has_kernels(); });
  if (objects.code_objects().empty() && !filtered) {
    context.out.Note(
        "note: no process has loaded a code object since rjdbid started. Attach (rjctl attach), "
        "then run a program (rjctl run -- COMMAND); or name a FILE");
  } else if (known == 0) {
    context.out.Note(absl::StrCat(
        "note: the bytes of no code object were sent (", objects.code_objects_size(),
        " loaded): that happens only for the sake of an attachment. Attach (rjctl attach), then "
        "run the program again (rjctl run -- COMMAND); or name a FILE"));
  } else {
    context.out.Note(absl::StrCat(
        "note: none in the ", known, known == 1 ? " code object" : " code objects",
        " that rjdbid has seen", filtered ? " matches; rjctl kernels lists all kernels" : ""));
  }
}

constexpr char kNotWithFile[] = "--object chooses among what rjdbid has seen: not with a FILE";

int PrintKernels(const Context& context, const v1::ListKernelsReply& reply, bool with_object) {
  const Output& out = context.out;
  if (out.json()) {
    out.Json(reply);
    return kOk;
  }
  if (reply.kernels().empty()) return kOk;
  std::vector<std::string> header = {"INSTRUCTIONS", "CODE",    "SGPR", "VGPR",       "AGPR",
                                     "LDS",          "SCRATCH", "WAVE", "WAVES/SIMD", "KERNEL"};
  std::vector<size_t> right = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  if (with_object) {
    header.insert(header.begin(), "OBJECT");
    for (size_t& column : right) ++column;
  }
  std::vector<std::vector<std::string>> rows;
  for (const v1::KernelSummary& k : reply.kernels()) {
    std::vector<std::string>& row = rows.emplace_back();
    if (with_object) row.push_back(k.code_object_sha256().substr(0, 12));
    for (std::string& cell :
         std::vector<std::string>{absl::StrCat(k.instructions()), FormatBytes(k.code_bytes()),
                                  absl::StrCat(k.sgpr_count()), absl::StrCat(k.vgpr_count()),
                                  absl::StrCat(k.agpr_count()), FormatBytes(k.lds_bytes()),
                                  FormatBytes(k.scratch_bytes()), absl::StrCat(k.wavefront_size()),
                                  absl::StrCat(k.occupancy_waves()), Printable(k.demangled())}) {
      row.push_back(std::move(cell));
    }
  }
  out.Table(header, rows, right);
  return kOk;
}

// "12S 30V SCC VCC": scalar, vector and accumulation registers, special state.
std::string LiveText(const v1::Site& s) {
  const v1::SiteCapability& c = s.capability();
  std::string text = absl::StrCat(c.live_sgprs(), "S ", c.live_vgprs(), "V");
  if (c.live_agprs() > 0) absl::StrAppend(&text, " ", c.live_agprs(), "A");
  return absl::StrCat(text, s.scc_live() ? " SCC" : "", s.vcc_live() ? " VCC" : "");
}

// "vmcnt 2 lgkmcnt any"
std::string OutstandingText(const v1::SiteCapability& c) {
  std::string text;
  for (const v1::OutstandingCounter& o : c.outstanding()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", o.counter(), " ",
                    o.unbounded() ? "any" : absl::StrCat(o.at_most()));
  }
  return text;
}

std::string ProbeText(const v1::Site& s) {
  const v1::SiteCapability& c = s.capability();
  std::string text = s.movable() ? "yes" : absl::StrCat("no: ", s.immovable_constraint_id());
  if (s.movable() && !c.movable_after()) absl::StrAppend(&text, ", not after");
  if (s.has_splits_clause_at()) {
    absl::StrAppend(&text, absl::StrFormat(", splits the clause at +0x%x", s.splits_clause_at()));
  }
  if (s.movable() && !c.reach().direct()) absl::StrAppend(&text, ", out of a branch's reach");
  // Of what holds besides, what a person would not expect.
  for (const int trait : c.traits()) {
    if (trait == v1::SITE_UNREACHABLE || trait == v1::SITE_NEAR_UNDECODABLE ||
        trait == v1::SITE_IN_DELAY_WINDOW) {
      absl::StrAppend(&text, ", ", contract::SiteTraitName(static_cast<v1::SiteTrait>(trait)));
    }
  }
  return text;
}

// What of a kernel's code is not plainly known.
std::string StructureText(const v1::KernelStructure& k) {
  std::string text;
  for (const std::string& why : k.incomplete_because()) absl::StrAppend(&text, "  ", why, "\n");
  for (const v1::CodeRange& r : k.ranges()) {
    if (r.kind() == v1::CODE_FILLER) continue;
    const char* what = r.kind() == v1::CODE_UNREACHABLE ? "code that nothing leads to"
                       : r.kind() == v1::CODE_DATA      ? "no code, and nothing leads there"
                                                        : "reached, but no code";
    absl::StrAppend(&text, absl::StrFormat("  +0x%x to +0x%x: %s\n", r.begin(), r.end(), what));
  }
  for (const v1::MissingWait& w : k.missing_waits()) {
    absl::StrAppend(&text,
                    absl::StrFormat("  +0x%x: the application lacks a wait: ", w.kernel_offset()),
                    w.what(), "\n");
  }
  for (const v1::ControlTransferSite& t : k.transfers()) {
    const char* how = t.target() == v1::TARGET_DIRECT        ? "in the instruction"
                      : t.target() == v1::TARGET_PC_RELATIVE ? "computed from the address of code"
                      : t.target() == v1::TARGET_LOADED      ? "from memory, such as a jump table"
                                                             : "set elsewhere";
    absl::StrAppend(&text, absl::StrFormat("  +0x%x: %s, target %s\n", t.kernel_offset(),
                                           t.call() ? "call" : "indirect branch", how));
  }
  return text;
}

int PrintSites(const Context& context, const v1::ListSitesReply& reply) {
  if (context.out.json()) context.out.Json(reply);
  context.out.Violations(reply.violations());
  const int code = reply.violations_size() > 0 ? kRefused : kOk;
  if (context.out.json()) return code;
  // A table for each kernel.
  std::map<std::string, std::vector<std::vector<std::string>>> kernels;
  for (const v1::Site& s : reply.sites()) {
    kernels[s.location().kernel()].push_back(
        {absl::StrFormat("+0x%x", s.location().kernel_offset()),
         contract::SiteClassName(s.site_class()), absl::StrCat(s.free_sgprs()),
         absl::StrCat(s.free_vgprs()), LiveText(s), OutstandingText(s.capability()),
         Printable(s.location().instruction()), ProbeText(s)});
  }
  std::map<std::string, std::string> structures;
  for (const v1::KernelStructure& k : reply.structures()) structures[k.kernel()] = StructureText(k);
  const char* separator = "";
  for (const auto& [kernel, rows] : kernels) {
    context.out.Print(separator + context.out.Bold(Printable(contract::Demangle(kernel)) + "\n"));
    context.out.Print(structures[kernel]);
    context.out.Table({"OFFSET", "CLASS", "FREE SGPR", "FREE VGPR", "LIVE", "OUTSTANDING",
                       "INSTRUCTION", "PROBE"},
                      rows, {0, 2, 3});
    separator = "\n";
  }
  const auto movable = std::count_if(reply.sites().begin(), reply.sites().end(),
                                     [](const v1::Site& s) { return s.movable(); });
  context.out.Note(absl::StrFormat("%d sites, %d can take a probe", reply.sites_size(), movable));
  return code;
}

int RecordExit(const v1::AdmissionRecord& record) {
  uint64_t requested = 0, done = 0;
  for (const v1::Coverage& c : record.coverage()) {
    requested += c.requested();
    done += contract::DoneSites(c);
  }
  if (done == 0 || !FindVacuous(record.coverage()).empty()) return kRefused;
  return done == requested && record.object_violations_size() == 0 ? kOk : kPartial;
}

void WarnVacuousIn(const Context& context, const std::string& bytes,
                   const v1::AdmissionRecord& record,
                   const std::vector<v1::Attachment>& attachments) {
  for (Vacuous& vacuous : FindVacuous(record.coverage())) {
    if (vacuous.kernels == 0 && vacuous.left_out.empty() && !record.object_violations().empty()) {
      vacuous.left_out = record.object_violations(0).constraint_id();
    }
    const auto of = std::find_if(attachments.begin(), attachments.end(),
                                 [&](const auto& a) { return a.id() == vacuous.id; });
    if (of == attachments.end()) continue;
    const v1::AttachmentSpec& spec = of->spec();
    std::string hint;
    if (vacuous.requested == 0 && vacuous.left_out.empty()) {
      hint = contract::NearMiss(AsBytes(bytes), spec.kernel_glob(), spec.sites());
      absl::StrAppend(
          &hint, hint.empty() ? "" : " ", "rjctl ",
          vacuous.kernels == 0 ? "kernels FILE lists all" : "sites FILE lists what there is");
    }
    WarnVacuous(context.out, vacuous, spec, Printable(hint));
  }
}

// What only a process has.
void NoteUnused(const Context& context, const v1::AttachmentSpec& spec) {
  const std::pair<const char*, bool> fields[] = {{"pid", spec.pid() != 0},
                                                 {"process", !spec.process_glob().empty()},
                                                 {"owner", !spec.owner().empty()}};
  for (const auto& [name, given] : fields) {
    if (given) context.out.Note(absl::StrCat("note: ", name, "= has no meaning for a file"));
  }
}

int CheckSpecs(const Context& context, const std::vector<v1::Attachment>& attachments,
               const contract::Policy& policy) {
  v1::AttachReply refused;
  for (const v1::Attachment& attachment : attachments) {
    for (auto& violation : contract::CheckSpec(attachment.spec(), policy)) {
      *refused.add_violations() = std::move(violation);
    }
  }
  if (refused.violations_size() == 0) return kOk;
  if (context.out.json()) context.out.Json(refused);
  context.out.Violations(refused.violations());
  return kRefused;
}

// What a patched object has stays, in front of what is asked for now; the same
// twice is once. (Patches that cannot be read are Admit's to refuse.)
void KeepPriorAttachments(const Context& context, const std::string& bytes,
                          std::vector<v1::Attachment>& attachments) {
  const auto patched = contract::OpenPatched(AsBytes(bytes));
  if (!patched.ok() || !patched->has_value()) return;
  std::set<std::string> asked;
  for (const v1::Attachment& a : attachments) asked.insert(a.spec().SerializeAsString());
  std::vector<v1::Attachment> all;
  for (const v1::PatchedAttachment& prior : (*patched)->record.attachments()) {
    if (asked.insert(prior.spec().SerializeAsString()).second) {
      *all.emplace_back().mutable_spec() = prior.spec();
    }
  }
  const size_t kept = all.size();
  all.insert(all.end(), attachments.begin(), attachments.end());
  for (size_t i = 0; i < all.size(); ++i) all[i].set_id(absl::StrCat("a", i + 1));
  attachments = std::move(all);
  if (kept > 0) {
    context.out.Note(absl::StrCat("note: the object is patched; its attachments stay, as a1",
                                  kept > 1 ? absl::StrCat(" to a", kept) : ""));
  }
}

v1::AdmitBesideReply BesideReply(const contract::Admission& admission) {
  v1::AdmitBesideReply reply;
  *reply.mutable_record() = contract::Expanded(admission.record);
  for (const contract::KernelSwitch& from : admission.switches) {
    v1::KernelSwitch& to = *reply.add_kernel_switches();
    to.set_kernel(from.kernel);
    to.set_original_descriptor(from.original_descriptor);
    to.set_beside_descriptor(from.descriptor);
    to.set_private_segment_bytes(from.private_segment_bytes);
    to.set_group_segment_bytes(from.group_segment_bytes);
  }
  return reply;
}

void PrintSwitches(const Context& context, const contract::Admission& admission) {
  if (admission.switches.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (const contract::KernelSwitch& s : admission.switches) {
    rows.push_back({absl::StrFormat("0x%x", s.original_descriptor),
                    absl::StrFormat("0x%x", s.descriptor), absl::StrCat(s.private_segment_bytes),
                    absl::StrCat(s.group_segment_bytes), Printable(contract::Demangle(s.kernel))});
  }
  context.out.Print("\n");
  context.out.Table({"DESCRIPTOR", "BESIDE", "PRIVATE", "GROUP", "KERNEL"}, rows, {0, 1, 2, 3});
}

absl::Status WriteOutputs(const Context& context, const AdmitOptions& options,
                          const contract::Admission& admission) {
  if (admission.patched.empty()) return absl::OkStatus();
  if (!options.image.empty()) {
    absl::Status s = WriteFile(options.image, AsText(admission.patched));
    if (!s.ok()) return s;
    context.out.Note(absl::StrFormat("wrote %s (%d bytes; %d words are for the loader to fill in)",
                                     Printable(options.image), admission.patched.size(),
                                     admission.fixups.size()));
  }
  if (options.map.empty()) return absl::OkStatus();
  const auto map = contract::AddressMap::Open(admission.patched);
  if (!map.ok()) return map.status();
  v1::MapReply reply;
  *reply.mutable_map() = map->Describe("");
  absl::Status s = WriteFile(options.map, context.out.ToJson(reply));
  if (s.ok())
    context.out.Note(absl::StrCat("wrote ", Printable(options.map), " (the address map)"));
  return s;
}

}  // namespace

int Kernels(const Context& context, const std::string& file, const std::string& hash,
            const std::string& kernel) {
  if (file.empty()) {
    v1::ListKernelsRequest request;
    request.set_code_object_sha256(hash);
    request.set_kernel_glob(kernel);
    v1::ListKernelsReply reply;
    const absl::Status s = ControlClient(context.control_socket).ListKernels(request, reply);
    if (!s.ok()) return context.out.Fail(s);
    if (reply.kernels().empty()) NoteWhyEmpty(context, !hash.empty() || !kernel.empty());
    return PrintKernels(context, reply, /*with_object=*/true);
  }
  if (!hash.empty()) return context.out.FailUsage(kNotWithFile);
  const absl::StatusOr<std::string> bytes = ReadFile(file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  const auto reply = contract::InspectKernels(AsBytes(*bytes), kernel);
  if (!reply.ok()) return FailOnFile(context, file, *bytes, reply.status());
  if (reply->kernels().empty()) NoteNoKernel(context, *bytes, kernel);
  return PrintKernels(context, *reply, /*with_object=*/false);
}

int Sites(const Context& context, const std::string& file, const std::string& hash,
          const std::string& kernel, const std::string& sites) {
  if (file.empty()) {
    v1::ListSitesRequest request;
    request.set_code_object_sha256(hash);
    request.set_kernel_glob(kernel);
    request.set_sites(sites);
    v1::ListSitesReply reply;
    const absl::Status s = ControlClient(context.control_socket).ListSites(request, reply);
    if (!s.ok()) return context.out.Fail(s);
    if (reply.sites().empty()) {
      NoteWhyEmpty(context, !hash.empty() || !kernel.empty() || !sites.empty());
    }
    return PrintSites(context, reply);
  }
  if (!hash.empty()) return context.out.FailUsage(kNotWithFile);
  const absl::StatusOr<std::string> bytes = ReadFile(file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  const auto reply = contract::InspectSites(AsBytes(*bytes), kernel, sites);
  if (reply.ok() && reply->structures().empty()) NoteNoKernel(context, *bytes, kernel);
  if (reply.ok()) return PrintSites(context, *reply);
  if (absl::IsInvalidArgument(reply.status())) return context.out.Fail(reply.status());  // selector
  return FailOnFile(context, file, *bytes, reply.status());
}

int WaitCheck(const Context& context, const std::string& file, const std::string& kernel) {
  const absl::StatusOr<std::string> bytes = ReadFile(file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  const auto reply = contract::InspectWaits(AsBytes(*bytes), kernel);
  if (!reply.ok()) return FailOnFile(context, file, *bytes, reply.status());
  if (reply->kernels().empty()) NoteNoKernel(context, *bytes, kernel);
  uint64_t missing = 0, instructions = 0, waits = 0;
  std::vector<std::vector<std::string>> rows;
  for (const v1::KernelWaits& k : reply->kernels()) {
    instructions += k.instructions();
    waits += k.waits();
    missing += static_cast<uint64_t>(k.missing_size());
    const std::string name = Printable(contract::Demangle(k.kernel()));
    for (const v1::MissingWait& w : k.missing()) {
      rows.push_back({absl::StrFormat("+0x%x", w.kernel_offset()), w.what(), name});
    }
    if (k.complete()) continue;
    context.out.Note(absl::StrCat("note: not all of ", name, " could be followed"));
  }
  if (context.out.json()) {
    context.out.Json(*reply);
  } else if (!rows.empty()) {
    context.out.Table({"OFFSET", "MISSING WAIT", "KERNEL"}, rows, {0});
  }
  context.out.Note(absl::StrCat(reply->kernels_size(), " kernels, ", instructions,
                                " instructions, ", waits, " waits: ", missing, " missing"));
  return missing > 0 ? kRefused : kOk;
}

int Explain(const Context& context, const std::string& id) {
  const contract::CatalogueEntry* entry = contract::Find(absl::AsciiStrToUpper(id));
  if (entry == nullptr) {
    return context.out.FailUsage(absl::StrCat("no constraint '", Printable(id), "'; ids look like ",
                                              "RJD-B001, see rjdbi-reasons(7)"));
  }
  if (!context.out.json()) {
    context.out.Print(contract::RenderEntry(*entry, context.out.render()));
    return kOk;
  }
  google::protobuf::Struct message;
  auto& fields = *message.mutable_fields();
  fields["id"].set_string_value(std::string(entry->id));
  fields["title"].set_string_value(std::string(entry->title));
  fields["explanation"].set_string_value(std::string(entry->explanation));
  fields["nextStep"].set_string_value(std::string(entry->next_step));
  context.out.Json(message);
  return kOk;
}

namespace {

// Attachments from --attach, with what CheckSpec says about them; the exit code.
int ReadAttachments(const Context& context, const std::vector<std::string>& texts,
                    const std::string& mode, const contract::Policy& policy,
                    std::vector<v1::Attachment>& attachments) {
  for (const std::string& text : texts) {
    const absl::StatusOr<v1::AttachmentSpec> spec = ParseSpec(text, mode);
    if (!spec.ok()) return context.out.Fail(spec.status());
    v1::Attachment& attachment = attachments.emplace_back();
    attachment.set_id(absl::StrCat("a", attachments.size()));
    *attachment.mutable_spec() = *spec;
    NoteUnused(context, *spec);
  }
  return CheckSpecs(context, attachments, policy);
}

// On a file there is nobody to harm: the attachment's own consent is enough.
contract::Policy FilePolicy() {
  contract::Policy policy = contract::DefaultPolicy();
  policy.allow_sabotage = true;
  return policy;
}

// The decisions of a record that an answer is about.
void SortDecisions(const v1::AdmissionRecord& record, const WhyOptions& options,
                   v1::WhyNotAttachedReply& reply) {
  for (const contract::DecisionGroup& group : contract::DecisionGroups(record)) {
    if (!contract::KernelMatches(options.kernel, group.kernel())) continue;
    reply.set_kernel_known(true);
    for (size_t i = 0; i < group.size(); ++i) {
      if (options.offset.has_value() && group.kernel_offset(i) != *options.offset) continue;
      const v1::Decision& form = group.Form(i);
      const bool attached = form.outcome() == v1::VERIFIED_ATTACH ||
                            form.outcome() == v1::ATTACH_WITH_DECLARED_DEGRADATION;
      if (attached) reply.set_attached_sites(reply.attached_sites() + 1);
      if (attached && form.degradations().empty()) continue;
      *(attached ? reply.add_degraded() : reply.add_decisions()) = group.At(i);
    }
  }
}

// Nothing was decided: the place is no instruction, or nothing asks for it.
void SayWhyNothing(const std::string& bytes, const WhyOptions& options,
                   v1::WhyNotAttachedReply& reply) {
  if (options.offset.has_value()) {
    auto here = contract::InspectOffset(AsBytes(bytes), options.kernel, *options.offset);
    if (here.ok() && !here->some_start_there) {
      for (v1::Violation& v : here->missing) *reply.add_violations() = std::move(v);
      if (!here->missing.empty()) return;
    }
  }
  const auto kernels = contract::InspectKernels(AsBytes(bytes), options.kernel);
  const bool known = kernels.ok() && kernels->kernels_size() > 0;
  reply.set_kernel_known(known);
  const std::string near = known ? "" : contract::NearMiss(AsBytes(bytes), options.kernel, "");
  *reply.add_violations() = contract::MakeViolation(
      contract::id::kNothingAsked,
      known ? "0 sites" : absl::StrCat("no kernel '", options.kernel, "'"), "", {},
      known ? "no attachment selects such an instruction of this kernel"
            : absl::StrCat("no kernel of the file has this name", near.empty() ? "" : "; ", near));
}

}  // namespace

int WhyNotAttachedInFile(const Context& context, const WhyOptions& options) {
  const contract::Policy policy = FilePolicy();
  std::vector<v1::Attachment> attachments;
  if (const int code = ReadAttachments(context, options.attach, "", policy, attachments);
      code != kOk) {
    return code;
  }
  const absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  const auto rewriter = patch::MakeTrampolineRewriter();
  const v1::AdmissionRecord record =
      contract::Admit(AsBytes(*bytes), attachments, policy, *rewriter).record;
  v1::WhyNotAttachedReply reply;
  SortDecisions(record, options, reply);
  contract::AddExcerpts(AsBytes(*bytes), kMostExcerpts, reply.mutable_decisions());
  *reply.mutable_violations() = record.object_violations();
  if (reply.violations().empty() && reply.decisions().empty() && reply.attached_sites() == 0) {
    SayWhyNothing(*bytes, options, reply);
  }
  const int code = PrintWhyNotAttached(context, options, reply);
  NoteWrongKind(context, options.file, *bytes);
  return code;
}

int Admit(const Context& context, const AdmitOptions& options) {
  if (!options.image.empty() && OneFile(options.image, options.map)) {
    return context.out.FailUsage("admit: --output-image and --output-map name one file");
  }
  contract::Policy policy = FilePolicy();
  policy.beside = options.beside;
  std::vector<v1::Attachment> attachments;
  if (const int code = ReadAttachments(context, options.attach, options.mode, policy, attachments);
      code != kOk) {
    return code;
  }
  const absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  KeepPriorAttachments(context, *bytes, attachments);
  if (const int code = CheckSpecs(context, attachments, policy); code != kOk) return code;
  const auto rewriter = patch::MakeTrampolineRewriter();
  const contract::Admission admission =
      contract::Admit(AsBytes(*bytes), attachments, policy, *rewriter);
  if (!context.out.json()) {
    context.out.Print(
        contract::RenderRecord(admission.record, !options.all_decisions, context.out.render()));
    PrintSwitches(context, admission);
  } else if (options.beside) {
    context.out.Json(BesideReply(admission));
  } else {
    context.out.Json(contract::Expanded(admission.record));
  }
  WarnVacuousIn(context, *bytes, admission.record, attachments);
  NoteWrongKind(context, options.file, *bytes);
  if (absl::Status s = WriteOutputs(context, options, admission); !s.ok()) {
    return context.out.Fail(s);
  }
  return RecordExit(admission.record);
}

}  // namespace rjdbi::clients
