// See the header.
#include "patch/rewrite/sequence_writer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "patch/isa/hazards.h"
#include "patch/rewrite/probe_sequence.h"

namespace rjdbi::patch {
namespace {

// Not an inline constant, so the assembler must spend a literal word on it.
constexpr char kPlaceholder[] = "0x7edcba98";

std::string Range(const char* file, uint32_t first, uint32_t count) {
  if (count == 1) return absl::StrCat(file, first);
  return absl::StrCat(file, "[", first, ":", first + count - 1, "]");
}

}  // namespace

std::string SgprText(uint16_t reg) {
  if (reg == kVccLo) return "vcc_lo";
  if (reg == kVccHi) return "vcc_hi";
  if (reg >= kTtmp0 && reg < kTtmp0 + 16) return absl::StrCat("ttmp", reg - kTtmp0);
  return Range("s", reg - kSgpr0, 1);
}
std::string SgprPairText(uint16_t reg) {
  return reg == kVccLo ? "vcc" : Range("s", reg - kSgpr0, 2);
}
std::string VgprText(uint16_t reg) { return Range("v", reg - kVgpr0, 1); }
std::string VgprsText(uint16_t reg, uint32_t count) { return Range("v", reg - kVgpr0, count); }

SequenceWriter::SequenceWriter(const KernelAnalysis& kernel, AssemblyCache& cache)
    : SequenceWriter(kernel.isa(), AssemblyKey(kernel), cache) {}

SequenceWriter::SequenceWriter(Isa& isa, std::string key, AssemblyCache& cache)
    : cache_(cache), isa_(isa), key_(std::move(key)) {}

void SequenceWriter::Line(const std::string& text) {
  if (!status_.ok()) return;
  const auto bytes = cache_.Assemble(key_, isa_, text);
  if (!bytes.ok()) {
    status_ = bytes.status();
    return;
  }
  sequence_.bytes.insert(sequence_.bytes.end(), (*bytes)->begin(), (*bytes)->end());
  ++sequence_.instructions;
}

void SequenceWriter::Lines(std::string_view text) {
  for (const auto& line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty())) {
    Line(std::string(line));
  }
}

size_t SequenceWriter::Placeholder(const std::string& text) {
  Line(absl::StrCat(text, kPlaceholder));
  return status_.ok() ? sequence_.bytes.size() - 4 : 0;
}

void SequenceWriter::Address(const std::string& text, bool high_half, uint64_t addend) {
  const size_t at = Placeholder(text);
  if (!status_.ok()) return;
  std::memset(sequence_.bytes.data() + at, 0, 4);
  sequence_.fixups.push_back({at, high_half, addend});
}

void SequenceWriter::Number(const std::string& text, uint32_t number) {
  const size_t at = Placeholder(text);
  if (status_.ok()) std::memcpy(sequence_.bytes.data() + at, &number, sizeof number);
}

void SequenceWriter::Code(absl::Span<const uint8_t> bytes, uint32_t instructions) {
  sequence_.bytes.insert(sequence_.bytes.end(), bytes.begin(), bytes.end());
  sequence_.instructions += instructions;
}

SequenceWriter::Branch SequenceWriter::Forward(const std::string& opcode) {
  const Branch branch{sequence_.bytes.size()};
  Line(absl::StrCat(opcode, " 0"));
  return branch;
}

void SequenceWriter::BindHere(Branch branch) {
  if (!status_.ok()) return;
  const auto words = static_cast<uint16_t>((sequence_.bytes.size() - branch.offset - 4) / 4);
  std::memcpy(sequence_.bytes.data() + branch.offset, &words, sizeof words);
}

void SequenceWriter::KeepApartInside() {
  while (status_.ok()) {
    const std::optional<Spacing> missing = SpacingMissing(isa_, sequence_.bytes);
    if (!missing) return;
    Insert(*missing);
  }
}

void SequenceWriter::Insert(const Spacing& spacing) {
  const ProbeSequence before = std::exchange(sequence_, {});
  const auto at = static_cast<ptrdiff_t>(spacing.offset);
  sequence_.bytes.assign(before.bytes.begin(), before.bytes.begin() + at);
  Lines(spacing.lines);
  const size_t size = sequence_.bytes.size() - spacing.offset;
  sequence_.bytes.insert(sequence_.bytes.end(), before.bytes.begin() + at, before.bytes.end());
  sequence_.instructions += before.instructions;
  sequence_.fixups = before.fixups;
  for (WordFixup& fixup : sequence_.fixups) {
    if (fixup.offset >= spacing.offset) fixup.offset += size;
  }
  // Branches across it; those to it now run it.
  for (uint64_t offset = 0; offset < before.bytes.size();) {
    const Instruction* in = isa_.DecodeShared(before.bytes, offset);
    if (in == nullptr) break;
    if (in->branch && in->target_offset) {
      const uint64_t from = offset + (offset >= spacing.offset ? size : 0);
      uint64_t target = static_cast<uint64_t>(static_cast<int64_t>(offset) + *in->target_offset);
      if (target > spacing.offset) target += size;
      const auto words = static_cast<uint16_t>((target - from - 4) / 4);
      std::memcpy(sequence_.bytes.data() + from, &words, sizeof words);
    }
    offset += in->size;
  }
}

void SequenceWriter::KeepApart() {
  if (!status_.ok()) return;
  if (const uint32_t states = WaitStatesMissingAhead(isa_, sequence_.bytes)) {
    ProbeSequence rest = std::exchange(sequence_, {});
    Line(absl::StrCat("s_nop ", states - 1));
    for (WordFixup& fixup : rest.fixups) fixup.offset += sequence_.bytes.size();
    rest.bytes.insert(rest.bytes.begin(), sequence_.bytes.begin(), sequence_.bytes.end());
    rest.instructions += sequence_.instructions;
    sequence_ = std::move(rest);
  }
  if (const uint32_t states = WaitStatesMissingBehind(isa_, sequence_.bytes)) {
    Line(absl::StrCat("s_nop ", states - 1));
  }
}

absl::StatusOr<ProbeSequence> SequenceWriter::Finish() {
  if (!status_.ok()) return status_;
  return std::move(sequence_);
}

}  // namespace rjdbi::patch
