// Verbs about a patched object: what its code stands for, and what it was.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/files.h"
#include "clients/verbs.h"
#include "contract/address_map.h"
#include "contract/demangle.h"
#include "contract/inspect.h"
#include "contract/patch_record.h"

namespace rjdbi::clients {
namespace {

// "attachment 1 (count-waves)"
std::string AttachmentText(const v1::AddressMap& map, uint32_t attachment) {
  const int index = static_cast<int>(attachment) - 1;
  const bool known = index >= 0 && index < map.attachments_size();
  return absl::StrCat("attachment ", attachment,
                      known ? " (" + Printable(map.attachments(index).spec().probe()) + ")" : "");
}

std::string KindText(const v1::AddressMap& map, v1::CodePieceKind kind, uint32_t attachment) {
  if (kind == v1::APPLICATION_CODE) return "application";
  if (kind == v1::PROBE_CODE) return "injected: " + AttachmentText(map, attachment);
  return kind == v1::ENGINE_CODE ? "injected: rjdbi" : "-";
}

std::string Address(uint64_t vaddr) { return vaddr == 0 ? "-" : absl::StrFormat("0x%x", vaddr); }

void PrintKernel(const Output& out, const v1::AddressMap& map, const v1::MappedKernel& kernel) {
  const bool clone = kernel.placement() == v1::CLONE;
  const bool moved = kernel.entry_vaddr() != kernel.original_vaddr();
  out.Print(out.Bold(Printable(contract::Demangle(kernel.kernel())) + "\n"));
  out.Print(absl::StrFormat(
      "  original at 0x%x, %d bytes; %s\n", kernel.original_vaddr(), kernel.original_size(),
      clone   ? absl::StrFormat("runs from a clone at 0x%x", kernel.entry_vaddr())
      : moved ? absl::StrFormat("runs from a copy at 0x%x, with trampolines", kernel.entry_vaddr())
              : std::string("runs there, with trampolines")));
  std::vector<std::vector<std::string>> rows;
  for (const v1::CodePiece& piece : kernel.pieces()) {
    const bool application = piece.kind() == v1::APPLICATION_CODE;
    const std::string original = application
                                     ? absl::StrFormat("+0x%x to +0x%x", piece.kernel_offset(),
                                                       piece.kernel_offset() + piece.size())
                                     : absl::StrFormat("for +0x%x", piece.kernel_offset());
    rows.push_back({absl::StrFormat("0x%x", piece.vaddr()), absl::StrCat(piece.size()), original,
                    KindText(map, piece.kind(), piece.attachment())});
  }
  out.Table({"NEW", "BYTES", "ORIGINAL", "CODE"}, rows, {0, 1});
}

void PrintMap(const Output& out, const v1::AddressMap& map) {
  if (map.beside()) {
    out.Print("for loading beside the loaded original: of this image only the new code runs\n");
  }
  for (int i = 0; i < map.attachments_size(); ++i) {
    const v1::PatchedAttachment& a = map.attachments(i);
    out.Print(absl::StrFormat("attachment %d: %s at %s of %s, %d sites\n", i + 1,
                              Printable(a.spec().probe()), Printable(a.spec().sites()),
                              Printable(a.spec().kernel_glob()), a.sites()));
  }
  for (const v1::MappedKernel& kernel : map.kernels()) {
    out.Print("\n");
    PrintKernel(out, map, kernel);
  }
}

void PrintPcs(const Output& out, const v1::MapReply& reply) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::MappedPc& pc : reply.pcs()) {
    std::string code = KindText(reply.map(), pc.kind(), pc.attachment());
    if (!pc.note().empty()) {
      code = pc.kind() == v1::CODE_PIECE_KIND_UNSPECIFIED ? pc.note() : code + ", " + pc.note();
    }
    rows.push_back({Printable(pc.asked()), Address(pc.original_vaddr()), Address(pc.runs_at()),
                    pc.kernel().empty()
                        ? "-"
                        : absl::StrFormat("%s+0x%x", Printable(contract::Demangle(pc.kernel())),
                                          pc.kernel_offset()),
                    code});
  }
  out.Table({"PC", "ORIGINAL", "RUNS AT", "PLACE", "CODE"}, rows, {1, 2});
}

// A file without patches, or with some that are of no use, is the caller's.
int FailOnPatches(const Context& context, const std::string& file, const std::string& bytes,
                  const absl::Status& status) {
  return FailOnFile(context, file, bytes, absl::InvalidArgumentError(status.message()));
}

void NoteNoneMapped(const Context& context, const std::string& bytes, const std::string& kernel) {
  const auto kernels = contract::InspectKernels(AsBytes(bytes), kernel);
  if (!kernels.ok()) return;
  if (kernels->kernels().empty()) return NoteNoKernel(context, bytes, kernel);
  context.out.Note(
      absl::StrCat("note: no kernel that '", Printable(kernel), "' matches has probes"));
}

// The original is the one that was expected, if any was.
absl::Status CheckOriginal(const std::string& path, const std::vector<uint8_t>& original) {
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  const absl::Span<const uint8_t> wanted = AsBytes(*bytes);
  if (std::equal(wanted.begin(), wanted.end(), original.begin(), original.end())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": the object was patched from other bytes"));
}

}  // namespace

int Map(const Context& context, const PatchedOptions& options) {
  if (!options.pcs.empty() && !options.kernel.empty()) {
    return context.out.FailUsage("map: --kernel narrows the list of kernels; a PC names its own");
  }
  const absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  const absl::StatusOr<contract::AddressMap> map = contract::AddressMap::Open(AsBytes(*bytes));
  if (!map.ok()) return FailOnPatches(context, options.file, *bytes, map.status());
  const absl::Status expected = CheckOriginal(options.original, map->original());
  if (!expected.ok()) return context.out.Fail(expected);
  v1::MapReply reply;
  *reply.mutable_map() = map->Describe(options.kernel);
  for (const std::string& pc : options.pcs) {
    auto answers = map->Resolve(pc);
    if (!answers.ok()) return context.out.Fail(answers.status());
    for (v1::MappedPc& answer : *answers) *reply.add_pcs() = std::move(answer);
  }
  if (!options.pcs.empty()) {
    reply.mutable_map()->clear_kernels();
  } else if (reply.map().kernels().empty()) {
    NoteNoneMapped(context, *bytes, options.kernel);
  }
  if (context.out.json()) {
    context.out.Json(reply);
  } else if (options.pcs.empty()) {
    PrintMap(context.out, reply.map());
  } else {
    PrintPcs(context.out, reply);
  }
  return kOk;
}

int Unpatch(const Context& context, const PatchedOptions& options) {
  const absl::StatusOr<std::string> bytes = ReadFile(options.file);
  if (!bytes.ok()) return context.out.Fail(bytes.status());
  auto patched = contract::OpenPatched(AsBytes(*bytes));
  if (patched.ok() && !patched->has_value()) {
    patched = absl::NotFoundError("the object carries no patches of rjdbi");
  }
  if (!patched.ok()) return FailOnPatches(context, options.file, *bytes, patched.status());
  const contract::PatchedObject& object = **patched;
  v1::PriorPatch reply;
  reply.set_original_sha256(absl::BytesToHexString(object.record.original_sha256()));
  reply.set_engine_version(object.record.engine_version());
  for (const v1::PatchedAttachment& a : object.record.attachments()) {
    *reply.add_attachments() = a.spec();
  }
  if (!options.image.empty()) {
    const absl::Status s = WriteFile(options.image, AsText(object.original));
    if (!s.ok()) return context.out.Fail(s);
    context.out.Note(
        absl::StrFormat("wrote %s (%d bytes)", Printable(options.image), object.original.size()));
  }
  if (context.out.json()) {
    context.out.Json(reply);
  } else {
    context.out.Print(reply.original_sha256() + "\n");
  }
  return kOk;
}

}  // namespace rjdbi::clients
