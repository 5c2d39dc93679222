// Text per probe, assembled line by line so that literals can be located.
#include "patch/rewrite/probe_sequence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "patch/isa/hazards.h"

namespace rjdbi::patch {
namespace {

constexpr size_t kMostSequences = 4096;  // remembered; a rewriter lives long

// Not an inline constant, so the assembler must spend a literal word on it; the
// word is zeroed afterwards and left to the agent.
constexpr char kPlaceholder[] = "0x7edcba98";

std::string Vgpr(uint16_t reg) { return absl::StrCat("v", reg - kVgpr0); }
std::string VgprPair(uint16_t reg) {
  return absl::StrCat("v[", reg - kVgpr0, ":", reg - kVgpr0 + 1, "]");
}
std::string Sgpr(uint16_t reg) {
  if (reg == kVccLo) return "vcc_lo";
  if (reg == kVccHi) return "vcc_hi";
  return absl::StrCat("s", reg - kSgpr0);
}
std::string SgprPair(uint16_t reg) {
  if (reg == kVccLo) return "vcc";
  return absl::StrCat("s[", reg - kSgpr0, ":", reg - kSgpr0 + 1, "]");
}

class Builder {
 public:
  Builder(const KernelAnalysis& kernel, const RegisterChoice& registers, uint64_t addend,
          AssemblyCache& cache)
      : kernel_(kernel),
        isa_(kernel.isa()),
        generation_(isa_.generation()),
        registers_(registers),
        addend_(addend),
        cache_(cache),
        key_(AssemblyKey(kernel)) {}

  void Line(const std::string& text) {
    if (!status_.ok()) return;
    const auto bytes = cache_.Assemble(key_, isa_, text);
    if (!bytes.ok()) {
      status_ = bytes.status();
      return;
    }
    sequence_.bytes.insert(sequence_.bytes.end(), (*bytes)->begin(), (*bytes)->end());
    ++sequence_.instructions;
  }

  // Guards are several lines of the hardware table.
  void Lines(std::string_view text) {
    for (const auto& line :
         absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty())) {
      Line(std::string(line));
    }
  }

  void Counter(bool lanes) {
    Lines(HeadGuard());
    Line(absl::StrCat(Move(), ExecSave(), ", ", Exec()));
    if (registers_.address_sgpr) {
      Literal("s_mov_b32 ", Sgpr(*registers_.address_sgpr), false);
      Literal("s_mov_b32 ", Sgpr(*registers_.address_sgpr + 1), true);
    }
    Line(absl::StrCat(Move(), Exec(), ", 1"));
    // gfx12: scalar writes of registers that a vector instruction has read
    // before (our own, at an earlier site) must have landed before the reads.
    if (generation_.sgpr_reads_remembered) Lines(generation_.head_guard);
    Data(lanes);
    Line(Atomic());
    Lines(generation_.memory_guard);
    Line(absl::StrCat(Move(), Exec(), ", ", ExecSave()));
    Lines(generation_.tail_guard);
  }

  // Everything that the sequence depends on, but for what its fixups add.
  std::string Key(Probe probe) const {
    const auto number = [](const std::optional<uint16_t>& reg) { return reg ? int{*reg} : -1; };
    return absl::StrCat(key_, " ", static_cast<int>(probe), " ", registers_.exec_save, " ",
                        number(registers_.address_sgpr), " ", number(registers_.address_vgpr), " ",
                        registers_.data_vgpr, " ",
                        absl::string_view(HeadGuard().data(), HeadGuard().size()));
  }

  absl::StatusOr<ProbeSequence> Finish() {
    KeepApart();
    if (!status_.ok()) return status_;
    return std::move(sequence_);
  }

 private:
  // Whatever the application does right before and right behind (gfx9).
  void KeepApart() {
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

  bool Wave64() const { return isa_.wavefront_size() == 64; }
  std::string Move() const { return Wave64() ? "s_mov_b64 " : "s_mov_b32 "; }
  std::string Exec() const { return Wave64() ? "exec" : "exec_lo"; }
  std::string ExecSave() const {
    return Wave64() ? SgprPair(registers_.exec_save) : Sgpr(registers_.exec_save);
  }

  std::string_view HeadGuard() const {
    if (registers_.vgprs_fresh || generation_.mfma_head_guard.empty()) {
      return generation_.head_guard;
    }
    const auto& instructions = kernel_.instructions();
    bool mfma = kernel_.has_calls();
    for (size_t i = 0; i < instructions.size() && !mfma; ++i) mfma = instructions.Shared(i).mfma;
    return mfma ? generation_.mfma_head_guard : generation_.head_guard;
  }

  void Literal(const char* opcode, const std::string& destination, bool high_half) {
    Line(absl::StrCat(opcode, destination, ", ", kPlaceholder));
    if (!status_.ok()) return;
    const uint64_t offset = sequence_.bytes.size() - 4;
    std::fill(sequence_.bytes.end() - 4, sequence_.bytes.end(), uint8_t{0});
    sequence_.fixups.push_back({offset, high_half, addend_});
  }

  void Data(bool lanes) {
    if (registers_.address_vgpr) {
      Literal("v_mov_b32_e32 ", Vgpr(*registers_.address_vgpr), false);
      Literal("v_mov_b32_e32 ", Vgpr(*registers_.address_vgpr + 1), true);
    }
    const std::string low = Vgpr(registers_.data_vgpr);
    const std::string high = Vgpr(registers_.data_vgpr + 1);
    Line(absl::StrCat("v_mov_b32_e32 ", high, ", 0"));
    if (!lanes) {
      Line(absl::StrCat("v_mov_b32_e32 ", low, ", 1"));
      return;
    }
    const uint16_t save = registers_.exec_save;
    Line(absl::StrCat("v_bcnt_u32_b32 ", low, ", ", Sgpr(save), ", 0"));
    if (Wave64()) {
      Line(absl::StrCat("v_bcnt_u32_b32 ", low, ", ", Sgpr(save + 1), ", ", low));
    }
  }

  std::string Atomic() const {
    const std::string opcode(generation_.global_atomic_add_u64);
    const std::string data = VgprPair(registers_.data_vgpr);
    const std::string scope(generation_.system_scope);
    if (registers_.address_sgpr) {
      return absl::StrCat(opcode, " ", Vgpr(registers_.data_vgpr + 1), ", ", data, ", ",
                          SgprPair(*registers_.address_sgpr), scope);
    }
    return absl::StrCat(opcode, " ", VgprPair(*registers_.address_vgpr), ", ", data, ", off",
                        scope);
  }

  const KernelAnalysis& kernel_;
  Isa& isa_;
  const Generation& generation_;
  const RegisterChoice& registers_;
  const uint64_t addend_;
  AssemblyCache& cache_;
  const std::string key_;
  absl::Status status_;
  ProbeSequence sequence_;
};

}  // namespace

std::string AssemblyKey(const KernelAnalysis& kernel) {
  return absl::StrCat(kernel.object().target().processor, "/", kernel.isa().wavefront_size());
}

absl::StatusOr<ProbeSequence> BuildSequence(const KernelAnalysis& kernel, Probe probe,
                                            uint32_t counter_index, const RegisterChoice& registers,
                                            AssemblyCache& cache) {
  const uint64_t addend = uint64_t{counter_index} * kCounterBytes;
  Builder builder(kernel, registers, addend, cache);
  const std::string key = builder.Key(probe);
  if (const auto known = cache.sequences().find(key); known != cache.sequences().end()) {
    ProbeSequence sequence = known->second;
    for (WordFixup& fixup : sequence.fixups) fixup.addend = addend;
    return sequence;
  }
  switch (probe) {
    case Probe::kNop:
      builder.Line("s_nop 0");
      break;
    case Probe::kSabotage:
      builder.Line("s_endpgm");
      break;
    case Probe::kCountWaves:
      builder.Counter(false);
      break;
    case Probe::kCountLanes:
      builder.Counter(true);
      break;
    default:
      return absl::InternalError("a record probe is no counter");
  }
  absl::StatusOr<ProbeSequence> made = builder.Finish();
  if (cache.sequences().size() >= kMostSequences) cache.sequences().clear();
  if (made.ok()) cache.sequences().emplace(key, *made);
  return made;
}

}  // namespace rjdbi::patch
