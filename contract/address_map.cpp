// See address_map.h.
#include "contract/address_map.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "contract/demangle.h"
#include "contract/near_miss.h"
#include "contract/text.h"

namespace rjdbi::contract {
namespace {

using patch::CodeObject;
using patch::Kernel;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const bool hex = StartsWith(text, "0x");
  const bool ok =
      hex ? absl::SimpleHexAtoi(ToAbsl(text), &value) : absl::SimpleAtoi(ToAbsl(text), &value);
  return ok ? std::optional<uint64_t>(value) : std::nullopt;
}

v1::CodePieceKind KindOf(uint32_t owner) {
  if (owner == kApplicationCode) return v1::APPLICATION_CODE;
  return owner == kEngineCode ? v1::ENGINE_CODE : v1::PROBE_CODE;
}

std::string HexText(uint64_t value) { return StrCat("0x", absl::Hex(value)); }

}  // namespace

absl::StatusOr<AddressMap> AddressMap::Open(absl::Span<const uint8_t> image) {
  absl::StatusOr<std::optional<PatchedObject>> patched = OpenPatched(image);
  if (!patched.ok()) return patched.status();
  if (!patched->has_value()) return absl::NotFoundError("the object carries no patches of rjdbi");
  AddressMap map;
  map.image_ = image;
  map.patched_ = std::make_unique<PatchedObject>(**std::move(patched));
  absl::StatusOr<CodeObject> original = CodeObject::Parse(map.patched_->original);
  if (!original.ok()) return original.status();
  absl::StatusOr<CodeObject> object = CodeObject::Parse(image);
  if (!object.ok()) return object.status();
  map.original_ = *std::move(original);
  map.object_ = *std::move(object);
  absl::StatusOr<std::vector<Piece>> pieces = DecodePieces(map.patched_->record, *map.original_);
  if (!pieces.ok()) return pieces.status();
  map.pieces_ = *std::move(pieces);
  const v1::PatchRecord& record = map.patched_->record;
  if (map.object_->kernels().size() != map.original_->kernels().size() ||
      map.object_->AtVaddr(record.segment_vaddr(), record.segment_size()).empty()) {
    return absl::DataLossError(
        "the object carries patches, and is not what their record describes");
  }
  for (const Kernel& kernel : map.object_->kernels()) map.entries_.push_back(kernel.entry_vaddr);
  for (const Piece& piece : map.pieces_) {
    if (piece.owner == kApplicationCode) map.application_.push_back(&piece);
  }
  std::sort(map.application_.begin(), map.application_.end(), [](const Piece* a, const Piece* b) {
    return std::tie(a->kernel, a->original) < std::tie(b->kernel, b->original);
  });
  return map;
}

// Its original code is not executed any more.
bool AddressMap::MadeAnew(uint32_t kernel) const {
  return entries_[kernel] != original_->kernels()[kernel].entry_vaddr;
}

const Piece* AddressMap::PieceAt(uint64_t vaddr) const {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), vaddr,
                                      [](uint64_t v, const Piece& p) { return v < p.vaddr; });
  if (after == pieces_.begin()) return nullptr;
  const Piece& piece = *(after - 1);
  return vaddr - piece.vaddr < piece.size ? &piece : nullptr;
}

const Piece* AddressMap::PieceFor(uint32_t kernel, uint64_t offset) const {
  const std::pair<uint32_t, uint64_t> wanted(kernel, offset);
  const auto after = std::upper_bound(
      application_.begin(), application_.end(), wanted, [](const auto& w, const Piece* p) {
        return w < std::pair<uint32_t, uint64_t>(p->kernel, p->original);
      });
  if (after == application_.begin()) return nullptr;
  const Piece* piece = *(after - 1);
  return piece->kernel == kernel && offset - piece->original < piece->size ? piece : nullptr;
}

// Whether the byte differs from the original's.
bool AddressMap::Overwritten(uint64_t vaddr) const {
  const auto before = original_->AtVaddr(vaddr, 1), now = object_->AtVaddr(vaddr, 1);
  return !before.empty() && !now.empty() && before[0] != now[0];
}

void AddressMap::SetPlace(uint32_t kernel, uint64_t offset, v1::MappedPc& pc) const {
  const Kernel& original = original_->kernels()[kernel];
  pc.set_kernel(original.name);
  pc.set_kernel_offset(offset);
  pc.set_original_vaddr(original.entry_vaddr + offset);
  if (const Piece* piece = PieceFor(kernel, offset)) {
    pc.set_runs_at(piece->vaddr + (offset - piece->original));
  } else if (!MadeAnew(kernel)) {
    pc.set_runs_at(original.entry_vaddr + offset);
  }
}

v1::MappedPc AddressMap::InKernel(uint32_t kernel, uint64_t offset) const {
  v1::MappedPc pc;
  const Kernel& original = original_->kernels()[kernel];
  if (offset >= original.code_size) {
    pc.set_kernel(original.name);
    pc.set_kernel_offset(offset);
    pc.set_note(StrCat("behind the kernel's end at +", HexText(original.code_size)));
    return pc;
  }
  pc.set_kind(v1::APPLICATION_CODE);
  SetPlace(kernel, offset, pc);
  return pc;
}

void AddressMap::InNewCode(uint64_t vaddr, v1::MappedPc& pc) const {
  const Piece* piece = PieceAt(vaddr);
  if (piece == nullptr) {
    pc.set_note("padding between new code");
    return;
  }
  pc.set_kind(KindOf(piece->owner));
  const bool application = piece->owner == kApplicationCode;
  SetPlace(piece->kernel, piece->original + (application ? vaddr - piece->vaddr : 0), pc);
  if (piece->owner >= kFirstAttachment) pc.set_attachment(piece->owner - kFirstAttachment + 1);
}

// In the part of the image that the original has, too.
void AddressMap::InOldCode(uint64_t vaddr, v1::MappedPc& pc) const {
  const std::vector<Kernel>& kernels = original_->kernels();
  for (uint32_t k = 0; k < kernels.size(); ++k) {
    if (vaddr < kernels[k].entry_vaddr || vaddr - kernels[k].entry_vaddr >= kernels[k].code_size) {
      continue;
    }
    const uint64_t offset = vaddr - kernels[k].entry_vaddr;
    pc.set_kind(v1::APPLICATION_CODE);
    SetPlace(k, offset, pc);
    if (MadeAnew(k)) {
      pc.set_note(StrCat("not executed: the kernel starts at ", HexText(entries_[k])));
    } else if (pc.runs_at() != vaddr) {
      pc.set_kind(v1::ENGINE_CODE);
      pc.set_note("the jump to the site's new code");
    }
    return;
  }
  const auto& ranges = original_->executable_ranges();
  const bool code = std::any_of(ranges.begin(), ranges.end(), [&](const CodeObject::Range& r) {
    return r.begin <= vaddr && vaddr < r.end;
  });
  if (!code) {
    pc.set_note("no code");
  } else if (Overwritten(vaddr & ~uint64_t{3}) || Overwritten(vaddr | 3)) {
    pc.set_kind(v1::ENGINE_CODE);
    pc.set_note("a jump on the way to or from new code");
  } else {
    pc.set_kind(v1::APPLICATION_CODE);
    pc.set_original_vaddr(vaddr);
    pc.set_runs_at(vaddr);
    pc.set_note("outside the kernels, as it was");
  }
}

v1::MappedPc AddressMap::AtAddress(uint64_t vaddr) const {
  v1::MappedPc pc;
  const v1::PatchRecord& record = patched_->record;
  const bool is_new =
      vaddr >= record.segment_vaddr() && vaddr - record.segment_vaddr() < record.segment_size();
  if (is_new) {
    InNewCode(vaddr, pc);
  } else {
    InOldCode(vaddr, pc);
  }
  return pc;
}

absl::StatusOr<std::vector<v1::MappedPc>> AddressMap::Resolve(const std::string& asked) const {
  std::vector<v1::MappedPc> answers;
  const auto plus = asked.rfind('+');
  const auto offset = plus == std::string::npos
                          ? std::optional<uint64_t>(0)
                          : ParseNumber(std::string_view(asked).substr(plus + 1));
  // A name may hold a plus sign itself.
  const std::string name = offset && plus != std::string::npos ? asked.substr(0, plus) : asked;
  if (const auto vaddr = ParseNumber(asked)) {
    answers.push_back(AtAddress(*vaddr));
  } else {
    for (uint32_t k = 0; k < original_->kernels().size(); ++k) {
      const std::string& kernel = original_->kernels()[k].name;
      if (kernel == name || KernelMatches(name, kernel)) {
        answers.push_back(InKernel(k, offset.value_or(0)));
      }
    }
  }
  if (answers.empty()) {
    for (const patch::CodeSymbol& symbol : object_->code_symbols()) {
      if (symbol.name == name) answers.push_back(AtAddress(symbol.vaddr + offset.value_or(0)));
    }
  }
  if (answers.empty()) {
    std::vector<std::string> kernels;
    for (const Kernel& kernel : original_->kernels()) kernels.push_back(kernel.name);
    const std::string near = DidYouMean(ClosestKernels(name, kernels));
    return absl::InvalidArgumentError(
        StrCat("'", asked,
               "' is neither an address (0x5040) nor a place in one of the object's kernels "
               "(KERNEL+0x40)",
               near.empty() ? "" : "; ", near));
  }
  for (v1::MappedPc& pc : answers) pc.set_asked(asked);
  return answers;
}

v1::AddressMap AddressMap::Describe(const std::string& kernel_glob) const {
  const v1::PatchRecord& record = patched_->record;
  v1::AddressMap map;
  map.set_original_sha256(absl::BytesToHexString(record.original_sha256()));
  map.set_original_size(record.original_size());
  map.set_engine_version(record.engine_version());
  map.set_segment_vaddr(record.segment_vaddr());
  map.set_segment_size(record.segment_size());
  map.set_beside(record.beside());
  *map.mutable_attachments() = record.attachments();
  std::map<uint64_t, v1::Placement> placements;  // by descriptor
  for (const v1::CodeRun& run : record.runs()) placements[run.descriptor_vaddr()] = run.placement();
  std::vector<v1::MappedKernel*> kernels(entries_.size());
  std::vector<bool> wanted;
  for (const Kernel& kernel : original_->kernels()) {
    wanted.push_back(kernel_glob.empty() || KernelMatches(kernel_glob, kernel.name));
  }
  for (const Piece& piece : pieces_) {
    if (!wanted[piece.kernel]) continue;
    v1::MappedKernel*& kernel = kernels[piece.kernel];
    if (kernel == nullptr) {
      const Kernel& original = original_->kernels()[piece.kernel];
      kernel = map.add_kernels();
      kernel->set_kernel(original.name);
      kernel->set_original_vaddr(original.entry_vaddr);
      kernel->set_original_size(original.code_size);
      kernel->set_entry_vaddr(entries_[piece.kernel]);
      kernel->set_placement(placements[original.descriptor_vaddr]);
    }
    v1::CodePiece* out = kernel->add_pieces();
    out->set_vaddr(piece.vaddr);
    out->set_size(piece.size);
    out->set_kind(KindOf(piece.owner));
    out->set_kernel_offset(piece.original);
    if (piece.owner >= kFirstAttachment) out->set_attachment(piece.owner - kFirstAttachment + 1);
  }
  return map;
}

}  // namespace rjdbi::contract
