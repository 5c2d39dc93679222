// See patch_record.h. What is read here is foreign: a record in a file that
// anybody may have written.
#include "contract/patch_record.h"

#include <openssl/sha.h>
#include <zlib.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "contract/code_pieces.h"
#include "patch/codeobject/appendix.h"
#include "patch/codeobject/dwarf_writer.h"

namespace rjdbi::contract {
namespace {

using Bytes = std::vector<uint8_t>;
using ByteSpan = absl::Span<const uint8_t>;

constexpr char kRecordSection[] = ".rjdbi";
constexpr char kCodeSection[] = ".rjdbi.text";
constexpr uint8_t kMagic[8] = {'R', 'J', 'D', 'B', 'I', 0, 0, 0};
constexpr uint32_t kFormatVersion = 1;
constexpr uint64_t kElfHeader = 64;
// New code has no source lines where more than this would have to be copied: DWARF
// can only grow at the end.
constexpr uint64_t kMaxDwarf = uint64_t{4} << 20;
constexpr std::string_view kDwarfSections[] = {".debug_line", ".debug_info", ".debug_abbrev"};
// Runs closer than this cost less as one.
constexpr uint64_t kNear = 4;

struct Preamble {
  uint8_t magic[8];
  uint32_t version, zero;
  uint64_t raw_size, size;
  uint8_t sha256[SHA256_DIGEST_LENGTH];
};
static_assert(sizeof(Preamble) == 64);

// The record is small numbers that repeat: nine tenths are saved in no time.
constexpr int kCompression = 6;
// What it may come to when it is read. It holds at most the original's bytes, and
// a few numbers for each word of new code.
constexpr uint64_t kMaxGrowth = 4;

std::string Sha256(ByteSpan bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// ---- Writing -----------------------------------------------------------------

// The first difference at or behind `at`; the end when there is none.
uint64_t NextDifference(ByteSpan a, ByteSpan b, uint64_t at) {
  constexpr uint64_t kBlock = 256;
  while (at + kBlock <= a.size() && std::memcmp(a.data() + at, b.data() + at, kBlock) == 0) {
    at += kBlock;
  }
  while (at < a.size() && a[at] == b[at]) ++at;
  return at;
}

void NoteOriginalBytes(ByteSpan original, ByteSpan image, v1::OriginalBytes& out) {
  uint64_t last = 0;
  const auto note = [&](uint64_t begin, uint64_t end) {
    out.add_gaps(static_cast<uint32_t>(begin - last));
    out.add_sizes(static_cast<uint32_t>(end - begin));
    out.mutable_bytes()->append(reinterpret_cast<const char*>(original.data()) + begin,
                                end - begin);
    last = end;
  };
  // The ELF header as a whole: it will change again.
  uint64_t begin = 0, end = kElfHeader;
  for (;;) {
    const uint64_t at = NextDifference(original, image, end);
    if (at >= end + kNear || at >= original.size()) {
      note(begin, end);
      begin = at;
    }
    if (at >= original.size()) return;
    end = at;
    while (end < original.size() && original[end] != image[end]) ++end;
  }
}

}  // namespace

std::vector<uint8_t> SealRecord(const v1::PatchRecord& record) {
  const std::string text = record.SerializeAsString();
  uLongf size = compressBound(text.size());
  Bytes content(size);
  compress2(content.data(), &size, reinterpret_cast<const Bytef*>(text.data()), text.size(),
            kCompression);
  content.resize(size);
  Preamble preamble = {};
  std::copy(std::begin(kMagic), std::end(kMagic), preamble.magic);
  preamble.version = kFormatVersion;
  preamble.raw_size = text.size();
  preamble.size = content.size();
  const std::string digest = Sha256(content);
  std::copy(digest.begin(), digest.end(), preamble.sha256);
  Bytes out(sizeof preamble + content.size());
  std::memcpy(out.data(), &preamble, sizeof preamble);
  std::copy(content.begin(), content.end(), out.begin() + sizeof preamble);
  return out;
}

namespace {

// One symbol for the code that runs instead of the kernel's, one for each stretch
// of trampolines.
void NameCode(const std::string& kernel, uint64_t code_size, const patch::KernelOutcome& outcome,
              std::vector<patch::Appendix::Function>& out) {
  if (outcome.placement == patch::Placement::kClone) {
    out.push_back({kernel + ".rjdbi", outcome.clone_vaddr, outcome.code_bytes});
    return;
  }
  if (outcome.copy_vaddr != 0) out.push_back({kernel + ".rjdbi", outcome.copy_vaddr, code_size});
  std::vector<std::pair<uint64_t, uint64_t>> stretches;  // begin, end
  for (const patch::Trampoline& t : outcome.trampolines) {
    stretches.emplace_back(t.vaddr, t.vaddr + t.size);
  }
  std::sort(stretches.begin(), stretches.end());
  size_t named = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    if (i > 0 && stretches[i - 1].second == stretches[i].first) {
      out.back().size += stretches[i].second - stretches[i].first;
      continue;
    }
    out.push_back({absl::StrCat(kernel, ".rjdbi.sites", named == 0 ? "" : absl::StrCat(".", named)),
                   stretches[i].first, stretches[i].second - stretches[i].first});
    ++named;
  }
}

// Debuggers find source lines in new code as in the original; what was injected has
// its site's, so that profilers count it there.
void AddLines(const PatchFacts& facts, const std::vector<Piece>& pieces, ByteSpan image,
              patch::Appendix& appendix) {
  uint64_t copied = 0;
  for (const std::string_view name : kDwarfSections) {
    const auto section = patch::FindSection(facts.original.bytes(), name);
    if (section) copied += section->size();
  }
  if (copied == 0 || copied > kMaxDwarf) return;
  const absl::StatusOr<patch::LineTable>& lines = facts.original.debug_info().lines();
  if (!lines.ok()) return;  // nor does a debugger find any in the original
  std::vector<patch::CodeOrigin> origins;
  for (const Piece& piece : pieces) {
    const uint64_t entry = facts.original.kernels()[piece.kernel].entry_vaddr;
    origins.push_back(
        {piece.vaddr, piece.size, entry + piece.original, piece.owner != kApplicationCode});
  }
  for (patch::Appendix::Section& section :
       patch::LinesForNewCode(image, *lines, origins, appendix.functions)) {
    appendix.sections.push_back(std::move(section));
  }
}

// ---- Reading -----------------------------------------------------------------

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat("the object carries patches, and ", std::string(what)));
}

absl::StatusOr<v1::PatchRecord> ReadRecord(ByteSpan section, uint64_t image_size) {
  Preamble preamble;
  if (section.size() < sizeof preamble) return Damaged("their record is cut off");
  std::memcpy(&preamble, section.data(), sizeof preamble);
  if (!std::equal(std::begin(kMagic), std::end(kMagic), preamble.magic) || preamble.zero != 0) {
    return Damaged("their record does not begin like one");
  }
  if (preamble.version != kFormatVersion) {
    return absl::UnimplementedError(
        absl::StrCat("the object carries patches whose record has format ", preamble.version,
                     "; this engine reads format ", kFormatVersion));
  }
  const ByteSpan content = section.subspan(sizeof preamble);
  if (preamble.size != content.size()) return Damaged("their record has another size than it says");
  const std::string digest = Sha256(content);
  if (std::memcmp(digest.data(), preamble.sha256, digest.size()) != 0) {
    return Damaged("their record's checksum is wrong");
  }
  if (preamble.raw_size > kMaxGrowth * image_size) return Damaged("their record is too large");
  Bytes raw(preamble.raw_size);
  uLongf raw_size = raw.size();
  v1::PatchRecord record;
  const bool sound = uncompress(raw.data(), &raw_size, content.data(), content.size()) == Z_OK &&
                     raw_size == raw.size() && raw.size() <= INT_MAX &&
                     record.ParseFromArray(raw.data(), static_cast<int>(raw.size()));
  if (!sound) return Damaged("their record does not parse");
  return record;
}

absl::StatusOr<Bytes> Restore(ByteSpan image, const v1::PatchRecord& record) {
  const v1::OriginalBytes& kept = record.original_bytes();
  if (record.original_size() > image.size() || record.original_size() < kElfHeader ||
      kept.gaps_size() != kept.sizes_size()) {
    return Damaged("their record's sizes do not add up");
  }
  Bytes original(image.begin(), image.begin() + static_cast<ptrdiff_t>(record.original_size()));
  uint64_t at = 0, taken = 0;
  for (int i = 0; i < kept.gaps_size(); ++i) {
    const uint64_t begin = at + kept.gaps(i), size = kept.sizes(i);
    if (begin > original.size() || size > original.size() - begin ||
        size > kept.bytes().size() - taken) {
      return Damaged("their record's sizes do not add up");
    }
    std::memcpy(original.data() + begin, kept.bytes().data() + taken, size);
    at = begin + size;
    taken += size;
  }
  if (Sha256(original) != record.original_sha256()) {
    return Damaged(
        "was changed since it was patched: what it would be without them is not the "
        "original (SHA-256)");
  }
  return original;
}

}  // namespace

absl::Status AddPatchRecord(const PatchFacts& facts, v1::PatchRecord record,
                            std::vector<uint8_t>& image) {
  const ByteSpan original = facts.original.bytes();
  if (image.size() < original.size() || original.size() < kElfHeader) {
    return absl::InternalError("the patched image is smaller than the original");
  }
  record.set_original_size(original.size());
  NoteOriginalBytes(original, ByteSpan(image).first(original.size()),
                    *record.mutable_original_bytes());
  for (const v1::PatchedAttachment& attachment : facts.attachments) {
    *record.add_attachments() = attachment;
  }
  const absl::StatusOr<patch::CodeObject> patched = patch::CodeObject::Parse(image);
  if (!patched.ok()) return absl::InternalError(std::string(patched.status().message()));
  const patch::Segment& segment = patched->segments().back();  // the highest
  record.set_segment_vaddr(segment.vaddr);
  record.set_segment_size(segment.filesz);
  const std::vector<Piece> pieces = PiecesOf(facts);
  EncodePieces(pieces, facts, segment.vaddr, record);

  patch::Appendix appendix;
  appendix.sections.push_back({kRecordSection, SealRecord(record)});
  for (const patch::KernelOutcome& outcome : facts.kernels) {
    const patch::Kernel& kernel = facts.original.kernels()[outcome.kernel_index];
    NameCode(kernel.name, kernel.code_size, outcome, appendix.functions);
  }
  std::sort(appendix.functions.begin(), appendix.functions.end(),
            [](const auto& a, const auto& b) { return a.vaddr < b.vaddr; });
  AddLines(facts, pieces, image, appendix);
  const absl::Status status = patch::Append(image, appendix, original.size());
  if (status.ok() && image.size() > patch::CodeObject::kMaxSize) {
    return absl::ResourceExhaustedError(
        absl::StrCat("with its record the image has ", image.size(), " bytes"));
  }
  return status;
}

absl::StatusOr<PlainObject> PlainObject::Parse(ByteSpan bytes) {
  absl::StatusOr<std::optional<PatchedObject>> patched = OpenPatched(bytes);
  if (!patched.ok()) return patched.status();
  PlainObject plain;
  if (patched->has_value()) {
    plain.patched_ = std::make_unique<PatchedObject>(**std::move(patched));
    bytes = plain.patched_->original;
  }
  absl::StatusOr<patch::CodeObject> object = patch::CodeObject::Parse(bytes);
  if (!object.ok()) return object.status();
  plain.object_ = *std::move(object);
  return plain;
}

absl::StatusOr<std::optional<PatchedObject>> OpenPatched(ByteSpan image) {
  const auto section = patch::FindSection(image, kRecordSection);
  if (!section) {
    if (!patch::FindSection(image, kCodeSection)) return std::nullopt;
    return Damaged("their record is gone");
  }
  absl::StatusOr<v1::PatchRecord> record = ReadRecord(*section, image.size());
  if (!record.ok()) return record.status();
  absl::StatusOr<Bytes> original = Restore(image, *record);
  if (!original.ok()) return original.status();
  return PatchedObject{*std::move(record), *std::move(original)};
}

}  // namespace rjdbi::contract
