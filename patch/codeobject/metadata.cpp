// A pull reader over MessagePack. Skipping counts outstanding values instead of
// recursing, so neither depth nor a huge element count can hurt: every value
// costs at least one byte of input.
#include "patch/codeobject/metadata.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "patch/codeobject/printable.h"

namespace rjdbi::patch {
namespace {

enum class Type : uint8_t {
  kNil,
  kBool,
  kUnsigned,
  kNegative,
  kFloat,
  kString,
  kBinary,
  kArray,
  kMap
};

// One value's header; `size` is a byte count (strings, binaries, floats) or an
// element count.
struct Header {
  Type type = Type::kNil;
  uint64_t number = 0;
  uint32_t size = 0;
};

// Leading bytes 0xc0..0xdf: type, width of the length or number that follows,
// fixed payload bytes after it. MessagePack specification, "Formats".
struct Format {
  Type type;
  uint8_t width;    // big-endian bytes after the leading byte
  uint8_t payload;  // further bytes of unspecified content
  bool valid;
};
constexpr Format kFormats[32] = {
    {Type::kNil, 0, 0, true},      {Type::kNil, 0, 0, false},     {Type::kBool, 0, 0, true},
    {Type::kBool, 0, 0, true},     {Type::kBinary, 1, 0, true},   {Type::kBinary, 2, 0, true},
    {Type::kBinary, 4, 0, true},   {Type::kBinary, 1, 1, true},   {Type::kBinary, 2, 1, true},
    {Type::kBinary, 4, 1, true},   {Type::kFloat, 0, 4, true},    {Type::kFloat, 0, 8, true},
    {Type::kUnsigned, 1, 0, true}, {Type::kUnsigned, 2, 0, true}, {Type::kUnsigned, 4, 0, true},
    {Type::kUnsigned, 8, 0, true}, {Type::kNegative, 1, 0, true}, {Type::kNegative, 2, 0, true},
    {Type::kNegative, 4, 0, true}, {Type::kNegative, 8, 0, true}, {Type::kBinary, 0, 2, true},
    {Type::kBinary, 0, 3, true},   {Type::kBinary, 0, 5, true},   {Type::kBinary, 0, 9, true},
    {Type::kBinary, 0, 17, true},  {Type::kString, 1, 0, true},   {Type::kString, 2, 0, true},
    {Type::kString, 4, 0, true},   {Type::kArray, 2, 0, true},    {Type::kArray, 4, 0, true},
    {Type::kMap, 2, 0, true},      {Type::kMap, 4, 0, true},
};

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }

  // Reads a header and moves past it and, for scalars, past the content.
  bool Next(Header& header) {
    if (position_ >= bytes_.size()) return false;
    const uint8_t lead = bytes_[position_++];
    if (lead < 0x80) return Number(header, lead);
    if (lead < 0x90) return Container(header, Type::kMap, lead & 0x0f);
    if (lead < 0xa0) return Container(header, Type::kArray, lead & 0x0f);
    if (lead < 0xc0) return Content(header, Type::kString, lead & 0x1f);
    if (lead >= 0xe0) {
      header = {Type::kNegative, 0, 0};
      return true;
    }
    return Formatted(header, lead);
  }

  // Skips one value with all its descendants.
  bool Skip() {
    uint64_t outstanding = 1;
    while (outstanding > 0) {
      Header header;
      if (!Next(header)) return false;
      outstanding += Children(header);
      --outstanding;
    }
    return true;
  }

  static uint64_t Children(const Header& header) {
    if (header.type == Type::kMap) return uint64_t{2} * header.size;
    return header.type == Type::kArray ? header.size : 0;
  }

  // The content of the string that Next has just passed.
  std::string_view Text(const Header& header) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + position_ - header.size, header.size};
  }

 private:
  bool Number(Header& header, uint64_t value) {
    header = {Type::kUnsigned, value, 0};
    return true;
  }
  bool Container(Header& header, Type type, uint32_t count) {
    header = {type, 0, count};
    return true;
  }
  bool Content(Header& header, Type type, uint64_t size) {
    if (size > bytes_.size() - position_) return false;
    position_ += size;
    header = {type, 0, static_cast<uint32_t>(size)};
    return true;
  }
  bool Formatted(Header& header, uint8_t lead) {
    const Format& format = kFormats[lead - 0xc0];
    if (!format.valid || format.width > bytes_.size() - position_) return false;
    uint64_t value = 0;
    for (unsigned i = 0; i < format.width; ++i) value = value << 8 | bytes_[position_++];
    switch (format.type) {
      case Type::kUnsigned:
        return Number(header, value);
      case Type::kArray:
      case Type::kMap:
        return Container(header, format.type, static_cast<uint32_t>(value));
      case Type::kString:
      case Type::kBinary:
        return Content(header, format.type, value + format.payload);
      case Type::kFloat:
        return Content(header, format.type, format.payload);
      case Type::kBool:
        header = {Type::kBool, lead & 1u, 0};
        return true;
      default:
        header = {format.type, 0, 0};
        return true;
    }
  }

  absl::Span<const uint8_t> bytes_;
  size_t position_ = 0;
};

// A listed kernel costs one byte of input but some hundred bytes of memory.
constexpr uint32_t kMaxKernels = 1 << 16;

struct NumberKey {
  std::string_view key;
  MetadataNumber number;
  std::optional<uint32_t> KernelMetadata::*field;
};
constexpr NumberKey kNumberKeys[] = {
    {".sgpr_count", MetadataNumber::kSgprCount, &KernelMetadata::sgpr_count},
    {".vgpr_count", MetadataNumber::kVgprCount, &KernelMetadata::vgpr_count},
    {".agpr_count", MetadataNumber::kAgprCount, &KernelMetadata::agpr_count},
    {".sgpr_spill_count", MetadataNumber::kSgprSpillCount, &KernelMetadata::sgpr_spill_count},
    {".vgpr_spill_count", MetadataNumber::kVgprSpillCount, &KernelMetadata::vgpr_spill_count},
    {".group_segment_fixed_size", MetadataNumber::kGroupSegmentFixedSize,
     &KernelMetadata::group_segment_fixed_size},
    {".private_segment_fixed_size", MetadataNumber::kPrivateSegmentFixedSize,
     &KernelMetadata::private_segment_fixed_size},
    {".kernarg_segment_size", MetadataNumber::kKernargSegmentSize,
     &KernelMetadata::kernarg_segment_size},
    {".wavefront_size", MetadataNumber::kWavefrontSize, &KernelMetadata::wavefront_size},
    {".max_flat_workgroup_size", MetadataNumber::kMaxFlatWorkgroupSize,
     &KernelMetadata::max_flat_workgroup_size},
};

absl::Status Malformed(size_t position, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("metadata note byte ", position, ": ", what));
}

const NumberKey* FindNumber(std::string_view key) {
  for (const NumberKey& row : kNumberKeys) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

absl::Status ReadNumber(Reader& reader, const NumberKey& key, NoteKernel& kernel) {
  const size_t begin = reader.position();
  Header value;
  if (!reader.Next(value) || value.type != Type::kUnsigned || value.number > UINT32_MAX) {
    return Malformed(begin, "not an unsigned 32-bit number");
  }
  kernel.metadata.*key.field = static_cast<uint32_t>(value.number);
  kernel.numbers[static_cast<size_t>(key.number)] = {begin, reader.position()};
  return absl::OkStatus();
}

absl::Status ReadText(Reader& reader, std::string& out) {
  const size_t begin = reader.position();
  Header value;
  if (!reader.Next(value) || value.type != Type::kString) return Malformed(begin, "not a string");
  out = ToUtf8(reader.Text(value));
  return absl::OkStatus();
}

absl::Status ReadFlag(Reader& reader, bool& out) {
  const size_t begin = reader.position();
  Header value;
  if (!reader.Next(value) || (value.type != Type::kBool && value.type != Type::kUnsigned)) {
    return Malformed(begin, "not a boolean");
  }
  out = value.number != 0;
  return absl::OkStatus();
}

absl::Status ReadEntry(Reader& reader, std::string_view key, NoteKernel& kernel) {
  if (key == ".name") return ReadText(reader, kernel.metadata.name);
  if (key == ".symbol") return ReadText(reader, kernel.metadata.symbol);
  if (key == ".uses_dynamic_stack") return ReadFlag(reader, kernel.metadata.uses_dynamic_stack);
  if (const NumberKey* number = FindNumber(key)) return ReadNumber(reader, *number, kernel);
  const size_t begin = reader.position();
  return reader.Skip() ? absl::OkStatus() : Malformed(begin, "truncated or invalid value");
}

absl::Status ReadKernel(Reader& reader, NoteKernel& kernel) {
  kernel.map_header.begin = reader.position();
  Header map;
  if (!reader.Next(map) || map.type != Type::kMap) {
    return Malformed(kernel.map_header.begin, "a kernel is not a map");
  }
  kernel.map_header.end = reader.position();
  kernel.map_entries = map.size;
  for (uint32_t i = 0; i < map.size; ++i) {
    const size_t begin = reader.position();
    Header key;
    if (!reader.Next(key) || key.type != Type::kString) return Malformed(begin, "key not a string");
    absl::Status status = ReadEntry(reader, reader.Text(key), kernel);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadKernels(Reader& reader, std::vector<NoteKernel>& kernels) {
  const size_t begin = reader.position();
  Header array;
  if (!reader.Next(array) || array.type != Type::kArray) {
    return Malformed(begin, "amdhsa.kernels is not an array");
  }
  if (array.size > kMaxKernels) {
    return absl::ResourceExhaustedError(
        absl::StrCat("metadata note lists ", array.size, " kernels, limit ", kMaxKernels));
  }
  // Not reserved by `size`: the count is foreign.
  for (uint32_t i = 0; i < array.size; ++i) {
    kernels.emplace_back();
    absl::Status status = ReadKernel(reader, kernels.back());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// ---- editing ----

// Big-endian, at least `min_bytes` wide: 0 stands for the one-byte form.
void AppendNumber(std::vector<uint8_t>& out, uint32_t value, size_t min_bytes = 0) {
  size_t bytes = value < 0x80 ? 0 : value <= 0xff ? 1 : value <= 0xffff ? 2 : 4;
  bytes = std::max(bytes, min_bytes);
  if (bytes == 0) {
    out.push_back(static_cast<uint8_t>(value));
    return;
  }
  out.push_back(static_cast<uint8_t>(bytes == 1   ? 0xcc
                                     : bytes == 2 ? 0xcd
                                     : bytes == 4 ? 0xce
                                                  : 0xcf));
  for (size_t i = bytes; i-- > 0;) {
    out.push_back(i < 4 ? static_cast<uint8_t>(value >> (8 * i)) : uint8_t{0});
  }
}

void AppendMapHeader(std::vector<uint8_t>& out, uint32_t entries) {
  if (entries < 16) {
    out.push_back(static_cast<uint8_t>(0x80 | entries));
    return;
  }
  const unsigned bytes = entries <= 0xffff ? 2 : 4;
  out.push_back(bytes == 2 ? 0xde : 0xdf);
  for (unsigned i = bytes; i-- > 0;) out.push_back(static_cast<uint8_t>(entries >> (8 * i)));
}

void AppendKey(std::vector<uint8_t>& out, MetadataNumber number) {
  for (const NumberKey& row : kNumberKeys) {
    if (row.number != number) continue;
    out.push_back(static_cast<uint8_t>(0xa0 | row.key.size()));  // all shorter than 32
    out.insert(out.end(), row.key.begin(), row.key.end());
  }
}

struct Splice {
  ByteSpan span;
  std::vector<uint8_t> bytes;
};

}  // namespace

absl::StatusOr<std::vector<NoteKernel>> ParseMetadata(absl::Span<const uint8_t> note) {
  std::vector<NoteKernel> kernels;
  Reader reader(note);
  Header root;
  if (!reader.Next(root) || root.type != Type::kMap) return Malformed(0, "the root is not a map");
  for (uint32_t i = 0; i < root.size; ++i) {
    const size_t begin = reader.position();
    Header key;
    if (!reader.Next(key) || key.type != Type::kString) return Malformed(begin, "key not a string");
    if (reader.Text(key) == "amdhsa.kernels") {
      if (!kernels.empty()) return Malformed(begin, "amdhsa.kernels given twice");
      absl::Status status = ReadKernels(reader, kernels);
      if (!status.ok()) return status;
    } else if (!reader.Skip()) {
      return Malformed(begin, "truncated or invalid value");
    }
  }
  return kernels;
}

std::vector<uint8_t> ReplaceNumbers(absl::Span<const uint8_t> note,
                                    const std::vector<NoteKernel>& kernels,
                                    const std::vector<NumberEdit>& edits) {
  std::vector<Splice> splices;
  std::vector<std::vector<uint8_t>> inserted(kernels.size());
  std::vector<uint32_t> insertions(kernels.size(), 0);
  for (const NumberEdit& edit : edits) {
    const ByteSpan span = kernels[edit.kernel].numbers[static_cast<size_t>(edit.number)];
    if (span.begin != span.end) {
      Splice splice{span, {}};
      // As wide as before where possible: then nothing behind it moves.
      AppendNumber(splice.bytes, edit.value, span.end - span.begin - 1);
      splices.push_back(std::move(splice));
      continue;
    }
    AppendKey(inserted[edit.kernel], edit.number);
    AppendNumber(inserted[edit.kernel], edit.value);
    ++insertions[edit.kernel];
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (insertions[i] == 0) continue;
    Splice splice{kernels[i].map_header, {}};
    AppendMapHeader(splice.bytes, kernels[i].map_entries + insertions[i]);
    splice.bytes.insert(splice.bytes.end(), inserted[i].begin(), inserted[i].end());
    splices.push_back(std::move(splice));
  }
  std::sort(splices.begin(), splices.end(),
            [](const Splice& a, const Splice& b) { return a.span.begin < b.span.begin; });
  std::vector<uint8_t> out;
  out.reserve(note.size() + 16 * splices.size());
  size_t at = 0;
  for (const Splice& splice : splices) {
    out.insert(out.end(), note.begin() + at, note.begin() + splice.span.begin);
    out.insert(out.end(), splice.bytes.begin(), splice.bytes.end());
    at = splice.span.end;
  }
  out.insert(out.end(), note.begin() + at, note.end());
  return out;
}

}  // namespace rjdbi::patch
