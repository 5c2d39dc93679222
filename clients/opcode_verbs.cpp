// `rjctl opcodes`: tables that say which opcodes are counted in which class.
#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/files.h"
#include "clients/opcodes/blob.h"
#include "clients/opcodes/profile.h"
#include "clients/opcodes/table.h"
#include "clients/verbs.h"
#include "contract/demangle.h"
#include "contract/manifest_yaml.h"

namespace rjdbi::clients {
namespace {

using Violations = google::protobuf::RepeatedPtrField<v1::OpcodeViolation>;
using Rows = std::vector<std::vector<std::string>>;

constexpr int kMostAlike = 4;               // violations of one invariant, in a terminal
constexpr size_t kMostListed = 200;         // kernels whose instructions are asked for
constexpr size_t kMostUncoveredShown = 20;  // kernels

std::string Hex(uint32_t value) { return absl::StrFormat("0x%x", value); }

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<OpcodeBlob> ReadOneBlob(const std::string& path) {
  const auto bytes = ReadOpcodeFile(path);
  if (!bytes.ok()) return bytes.status();
  auto blob = ReadOpcodeBlob(AsBytes(*bytes));
  if (!blob.ok()) return InFile(path, blob.status());
  return blob;
}

// One file, or one with each of the tables.
absl::StatusOr<OpcodeBlob> ReadBlobs(const std::vector<std::string>& paths) {
  auto first = ReadOneBlob(paths[0]);
  if (!first.ok() || paths.size() == 1) return first;
  const auto second = ReadOneBlob(paths[1]);
  if (!second.ok()) return second;
  return JoinOpcodeBlobs(*first, *second);
}

// To standard error, as every refusal; many alike only in part.
void PrintViolations(const Output& out, const Violations& violations) {
  std::map<std::string, int> seen;
  google::protobuf::RepeatedPtrField<v1::Violation> shown;
  for (const v1::OpcodeViolation& v : violations) {
    if (++seen[v.violation().constraint_id()] <= kMostAlike) *shown.Add() = v.violation();
  }
  out.Violations(shown);
  for (const auto& [name, count] : seen) {
    if (count <= kMostAlike) continue;
    out.Note(absl::StrCat("note: ", count - kMostAlike, " more of ", name, " (-o json lists all)"));
  }
}

void PrintRemarks(const Output& out, const Violations& remarks) {
  for (const v1::OpcodeViolation& remark : remarks) {
    const v1::Violation& v = remark.violation();
    out.Print(
        absl::StrCat("remark[", v.constraint_id(), "]: ", v.message(), " (", v.observed(), ")\n"));
  }
}

std::string Summary(const v1::OpcodeBlob& blob) {
  std::vector<std::string> parts;
  if (!blob.match_sha256().empty()) {
    parts.push_back(absl::StrCat(blob.armed(), " of ", kOpcodeSlots, " slots armed"));
  }
  if (!blob.descriptor_sha256().empty()) {
    parts.push_back(absl::StrCat(blob.populated(), " records in use, ", blob.nonzero_words(),
                                 " words not zero"));
  }
  return absl::StrJoin(parts, "; ");
}

void PrintHashes(const Output& out, const v1::OpcodeBlob& blob) {
  const auto line = [&out](const char* what, const std::string& hash) {
    if (!hash.empty()) out.Print(absl::StrFormat("%-16s  sha256 %s\n", what, hash));
  };
  line("match table", blob.match_sha256());
  line("descriptor table", blob.descriptor_sha256());
}

void PrintSlots(const Output& out, const v1::OpcodeBlob& blob) {
  const bool match = !blob.match_sha256().empty(), described = !blob.descriptor_sha256().empty();
  std::vector<std::string> header = {"SLOT"};
  if (match) header.insert(header.end(), {"OPCODE", "MASK", "ENABLE", "KIND"});
  if (described) header.insert(header.end(), {"CLASS", "CFG0", "CFG1", "DESCR"});
  Rows rows;
  for (const v1::OpcodeSlot& slot : blob.slots()) {
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(absl::StrCat(slot.slot()));
    if (match) {
      const v1::OpcodeMatch& m = slot.match();
      const std::string enable = absl::StrCat(m.enable());
      row.insert(row.end(),
                 {Hex(m.opcode()), Hex(m.mask()), enable, slot.kind().empty() ? "-" : slot.kind()});
    }
    if (described) {
      const v1::OpcodeDescriptor& d = slot.record();
      const std::string beyond = d.beyond().empty() ? "" : absl::StrCat(" + ", d.beyond());
      row.insert(row.end(), {Hex(d.class_word()), Hex(d.cfg0()), Hex(d.cfg1()),
                             absl::StrCat(d.descr(), beyond)});
    }
  }
  if (rows.empty()) return out.Print("every slot is zero\n");
  out.Table(header, rows, {0, 1, 2, 3});
}

// ---- diff ----

// "class 0x1000 -> 0x3, cfg0 0x201 -> 0x0"
std::string DescriptorChange(const v1::OpcodeChange& change) {
  std::vector<std::string> parts;
  const v1::OpcodeDescriptor &a = change.a(), &b = change.b();
  const auto add = [&parts](const char* what, const std::string& from, const std::string& to) {
    if (from != to) parts.push_back(absl::StrCat(what, " ", from, " -> ", to));
  };
  add("class", Hex(a.class_word()), Hex(b.class_word()));
  add("cfg0", Hex(a.cfg0()), Hex(b.cfg0()));
  add("cfg1", Hex(a.cfg1()), Hex(b.cfg1()));
  add("descr", a.descr(), b.descr());
  add("beyond", a.beyond(), b.beyond());
  return absl::StrJoin(parts, ", ");
}

void PrintDiff(const Output& out, const v1::OpcodeDiff& diff) {
  const bool match = !diff.a().match_sha256().empty() && !diff.b().match_sha256().empty();
  out.Print(absl::StrCat("A: ", Summary(diff.a()), "\nB: ", Summary(diff.b()), "\n"));
  if (!diff.match_differs() && !diff.descriptors_differ()) return out.Print("no difference\n");
  const auto slot = [](bool has, uint32_t number) { return has ? absl::StrCat(number) : "-"; };
  Rows rows;
  size_t moved = 0;
  for (const v1::OpcodeChange& c : diff.changes()) {
    const bool both = c.has_slot_a() && c.has_slot_b();
    if (both && !c.has_a() && !c.has_b()) {
      ++moved;
      continue;
    }
    rows.push_back({both             ? "described"
                    : c.has_slot_a() ? "removed"
                                     : "added",
                    match ? Hex(c.opcode()) : "-", match ? Hex(c.mask()) : "-",
                    slot(c.has_slot_a(), c.slot_a()), slot(c.has_slot_b(), c.slot_b()),
                    both ? DescriptorChange(c) : ""});
  }
  if (!rows.empty()) {
    out.Table({"CHANGE", "OPCODE", "MASK", "SLOT A", "SLOT B", "FROM A TO B"}, rows, {1, 2, 3, 4});
  }
  if (moved > 0) {
    out.Print(absl::StrCat(moved, moved == 1 ? " opcode is" : " opcodes are",
                           " the same in another slot\n"));
  }
  if (diff.other_bytes() > 0) {
    out.Print(absl::StrCat(diff.other_bytes(), diff.other_bytes() == 1 ? " byte" : " bytes",
                           " beside that, from slot ", diff.first_other_slot(), " on\n"));
  }
}

// ---- profile ----

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void PrintCounts(const Output& out, const v1::OpcodeProfile& profile, OpcodesOptions::By by) {
  const char* plus = profile.final() ? "" : "+";
  uint64_t sites = 0, not_counted = 0;
  for (const v1::OpcodeClassCount& c : profile.classes()) {
    sites += c.sites();
    not_counted += c.sites_not_counted();
  }
  Rows rows;
  const auto add = [&](const std::vector<std::string>& names, const auto& sum) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {absl::StrCat(sum.count(), plus), Share(sum.count(), profile.total()),
           absl::StrCat(sum.sites()), absl::StrCat(sum.sites_not_counted())};
    row.insert(row.end(), names.begin(), names.end());
  };
  std::vector<std::string> header = {"COUNT", "SHARE", "COUNTED", "NOT COUNTED", "CLASS"};
  if (by == OpcodesOptions::By::kClass) {
    for (const v1::OpcodeClassCount& c : profile.classes()) add({Printable(c.class_())}, c);
  }
  if (by == OpcodesOptions::By::kRow) header.insert(header.end(), {"ROW", "PATTERN"});
  if (by == OpcodesOptions::By::kOpcode) header.push_back("OPCODE");
  for (const v1::OpcodeRowCount& r : profile.rows()) {
    if (by == OpcodesOptions::By::kRow) {
      add({Printable(r.class_()), absl::StrCat(r.row()),
           absl::StrCat(Printable(r.pattern()), r.off() ? " (off)" : "")},
          r);
    }
    for (const v1::OpcodeCount& c : r.opcodes()) {
      if (by == OpcodesOptions::By::kOpcode) add({Printable(r.class_()), Printable(c.opcode())}, c);
    }
  }
  rows.push_back({absl::StrCat(profile.total(), plus), Share(profile.total(), profile.total()),
                  absl::StrCat(sites), absl::StrCat(not_counted), "total"});
  for (std::vector<std::string>& row : rows) row.resize(header.size());
  out.Table(header, rows, {0, 1, 2, 3});
}

void PrintCaveats(const Output& out, const v1::OpcodeProfile& profile) {
  if (!profile.final()) {
    out.Print(
        "+ is a lower bound: a process still runs, or ended without its last report "
        "(rjctl status says which).\n");
  }
  Rows rows;
  uint64_t not_listed = 0;
  for (const v1::OpcodeUncovered& kernel : profile.uncovered()) {
    if (!kernel.listed()) not_listed += kernel.not_counted();
    if (rows.size() >= kMostUncoveredShown) continue;
    rows.push_back({absl::StrCat(kernel.not_counted()), absl::StrCat(kernel.instructions()),
                    Printable(contract::Demangle(kernel.kernel()))});
  }
  if (!rows.empty()) {
    out.Print("\nInstructions that nothing counts (rjctl why-not-attached KERNEL says why):\n");
    out.Table({"NOT COUNTED", "OF", "KERNEL"}, rows, {0, 1});
    const size_t more = static_cast<size_t>(profile.uncovered_size()) - rows.size();
    if (more > 0) out.Print(absl::StrCat("... and ", more, " kernels more (-o json lists all)\n"));
  }
  const std::pair<uint64_t, const char*> lines[] = {
      {not_listed, "of them are in no class above: their kernels' instructions were not listed"},
      {profile.gaps(), "gaps: code was loaded without a decision (rjctl coverage)"},
      {profile.counted_twice(), "places are counted by several attachments, and taken once"},
      {profile.unplaced(),
       "executions are in no class: in processes long gone, of instructions no longer known"},
      {profile.skipped_places(),
       "places have another probe than block-count or count-waves, and are left out"}};
  for (const auto& [count, text] : lines) {
    if (count > 0) out.Print(absl::StrCat(count, " ", text, "\n"));
  }
}

absl::Status AskForInstructions(ControlClient& client, OpcodeProfiler& profiler) {
  size_t asked = 0;
  for (const OpcodeProfiler::Kernel& kernel : profiler.Incomplete()) {
    if (++asked > kMostListed) break;
    v1::ListSitesRequest request;
    request.set_code_object_sha256(kernel.object);
    request.set_kernel_glob(kernel.name);
    request.set_sites("*");
    v1::ListSitesReply reply;
    if (absl::Status s = client.ListSites(request, reply); !s.ok()) return s;
    profiler.AddListing(kernel, reply);
  }
  return absl::OkStatus();
}

}  // namespace

int OpcodesShow(const Context& context, const OpcodesOptions& options) {
  const auto blob = ReadBlobs(options.files);
  if (!blob.ok()) return context.out.Fail(blob.status());
  const v1::OpcodeBlob described = DescribeOpcodeBlob(*blob);
  if (context.out.json()) {
    context.out.Json(described);
    return kOk;
  }
  PrintHashes(context.out, described);
  context.out.Print(absl::StrCat(Summary(described), "\n"));
  PrintSlots(context.out, described);
  PrintRemarks(context.out, described.remarks());
  if (const int broken = described.violations_size(); broken > 0) {
    context.out.Note(absl::StrCat("note: not sound, ", broken,
                                  broken == 1 ? " violation" : " violations",
                                  " (rjctl opcodes check)"));
  }
  return kOk;
}

int OpcodesCheck(const Context& context, const OpcodesOptions& options) {
  v1::OpcodeBlob reply;
  for (const std::string& path : options.files) {  // a wrong size is a finding here
    const auto bytes = ReadOpcodeFile(path);
    if (!bytes.ok()) return context.out.Fail(bytes.status());
    if (ReadOpcodeBlob(AsBytes(*bytes)).ok()) continue;
    v1::OpcodeViolation& v = *reply.add_violations() = WrongBlobSize(bytes->size());
    v.mutable_violation()->set_message(absl::StrCat(path, ": ", v.violation().message()));
  }
  bool both = false;
  if (reply.violations().empty()) {
    const auto blob = ReadBlobs(options.files);
    if (!blob.ok()) return context.out.Fail(blob.status());
    both = blob->match.has_value() && blob->descriptors.has_value();
    reply = DescribeOpcodeBlob(*blob);
    reply.clear_slots();
  }
  const int code = reply.violations().empty() ? kOk : kRefused;
  if (context.out.json()) {
    context.out.Json(reply);
    return code;
  }
  PrintRemarks(context.out, reply.remarks());
  PrintViolations(context.out, reply.violations());
  if (reply.match_sha256().empty() && reply.descriptor_sha256().empty()) return code;
  context.out.Print(absl::StrCat(code == kOk ? "sound: " : "not sound: ", Summary(reply), "\n"));
  if (!both) {
    context.out.Note(
        "note: one table only; what ties a match table to its descriptor table was not checked");
  }
  return code;
}

int OpcodesDiff(const Context& context, const OpcodesOptions& options) {
  const std::vector<std::string>& files = options.files;
  if (files.size() != 2 && files.size() != 4) {
    return context.out.FailUsage("opcodes diff: give A B, or A's two tables and B's two tables");
  }
  const auto middle = files.begin() + static_cast<std::ptrdiff_t>(files.size() / 2);
  const auto a = ReadBlobs({files.begin(), middle});
  if (!a.ok()) return context.out.Fail(a.status());
  const auto b = ReadBlobs({middle, files.end()});
  if (!b.ok()) return context.out.Fail(b.status());
  const auto diff = DiffOpcodeBlobs(*a, *b);
  if (!diff.ok()) return context.out.Fail(diff.status());
  if (context.out.json()) {
    context.out.Json(*diff);
  } else {
    PrintDiff(context.out, *diff);
  }
  return diff->match_differs() || diff->descriptors_differ() ? 1 : kOk;  // as diff(1)
}

int OpcodesArm(const Context& context, const OpcodesOptions& options) {
  const auto blob = ReadBlobs(options.files);
  if (!blob.ok()) return context.out.Fail(blob.status());
  const auto text = ReadOpcodeFile(options.map);
  if (!text.ok()) return context.out.Fail(text.status());
  const auto map = ReadOpcodeMap(*text);
  if (!map.ok()) return context.out.Fail(InFile(options.map, map.status()));
  v1::OpcodeArmReply reply;
  for (v1::OpcodeViolation& v : CheckOpcodeBlob(*blob)) *reply.add_violations() = std::move(v);
  if (!reply.violations().empty()) {
    if (context.out.json()) context.out.Json(reply);
    if (!context.out.json()) PrintViolations(context.out, reply.violations());
    return kRefused;
  }
  std::vector<std::string> remarks;
  const auto table = ArmOpcodeTable(*blob, *map, &remarks);
  if (!table.ok()) return context.out.Fail(InFile(options.files[0], table.status()));
  *reply.mutable_table() = *table;
  for (const std::string& remark : remarks) reply.add_remarks(remark);
  const std::string yaml = contract::WriteYaml(*table);
  if (!options.table.empty()) {
    if (absl::Status s = WriteFile(options.table, yaml); !s.ok()) return context.out.Fail(s);
  }
  if (context.out.json()) {
    context.out.Json(reply);
    return kOk;
  }
  if (options.table.empty()) context.out.Print(yaml);
  for (const std::string& remark : remarks) context.out.Note(absl::StrCat("remark: ", remark));
  return kOk;
}

int OpcodesProfile(const Context& context, const OpcodesOptions& options) {
  const auto text = ReadOpcodeFile(options.table);
  if (!text.ok()) return context.out.Fail(text.status());
  const auto classes = OpcodeClasses::Read(*text);
  if (!classes.ok()) return context.out.Fail(InFile(options.table, classes.status()));
  ControlClient client(context.control_socket);
  v1::GetReportRequest request;
  request.set_attachment_id(options.filter.attachment);
  request.set_kernel_glob(options.filter.kernel);
  request.set_session_id(options.filter.session);
  request.set_include_detached(options.filter.all);
  v1::GetReportReply report;
  if (absl::Status s = client.GetReport(request, report); !s.ok()) return context.out.Fail(s);
  OpcodeProfiler profiler(*classes, report);
  if (absl::Status s = AskForInstructions(client, profiler); !s.ok()) return context.out.Fail(s);
  const v1::OpcodeProfile profile = profiler.Finish();
  uint64_t sites = 0;
  for (const v1::OpcodeClassCount& c : profile.classes()) sites += c.sites();
  if (context.out.json()) {
    context.out.Json(profile);
  } else {
    PrintCounts(context.out, profile, options.by);
    PrintCaveats(context.out, profile);
    if (sites == 0) {
      context.out.Note(
          "help: rjctl attach --kernel GLOB --sites '*' --probe block-count, then run the program");
    }
  }
  NoteDetachedIn(context, report.coverage(), options.filter);
  WarnVacuousIn(context, report.coverage());
  if (sites == 0) return kRefused;
  const bool whole = profile.uncovered().empty() && profile.gaps() == 0 &&
                     report.coverage().refused_objects().empty() && profile.unplaced() == 0;
  return whole ? kOk : kPartial;
}

}  // namespace rjdbi::clients
