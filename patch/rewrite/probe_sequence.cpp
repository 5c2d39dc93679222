// Text per probe, assembled line by line so that literals can be located.
#include "patch/rewrite/probe_sequence.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "patch/rewrite/sequence_writer.h"

namespace rjdbi::patch {
namespace {

constexpr size_t kMostSequences = 4096;  // remembered; a rewriter lives long

class CounterWriter {
 public:
  CounterWriter(const KernelAnalysis& kernel, const RegisterChoice& registers, AssemblyCache& cache)
      : kernel_(kernel),
        isa_(kernel.isa()),
        generation_(isa_.generation()),
        registers_(registers),
        out_(kernel, cache) {}

  absl::StatusOr<ProbeSequence> Write(Probe probe) {
    switch (probe) {
      case Probe::kNop:
        out_.Line("s_nop 0");
        break;
      case Probe::kSabotage:
        out_.Line("s_endpgm");
        break;
      case Probe::kCountWaves:
        Counter(false);
        break;
      case Probe::kCountLanes:
        Counter(true);
        break;
      default:
        return absl::InternalError("a record probe is no counter");
    }
    // Whatever the application does right before and right behind (gfx9).
    out_.KeepApart();
    return out_.Finish();
  }

  // Everything that the sequence depends on, but for what its fixups add.
  std::string Key(Probe probe) const {
    std::string key = AssemblyKey(kernel_);
    const auto add = [&key](const std::optional<uint16_t>& reg) {
      const uint16_t number = reg.value_or(kNumRegisters);
      key.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    key += static_cast<char>(probe);
    add(registers_.exec_save);
    add(registers_.address_sgpr);
    add(registers_.address_vgpr);
    add(registers_.data_vgpr);
    key += HeadGuard();
    return key;
  }

 private:
  void Counter(bool lanes) {
    out_.Lines(HeadGuard());
    out_.Line(absl::StrCat(Move(), ExecSave(), ", ", Exec()));
    if (registers_.address_sgpr) {
      Address("s_mov_b32 ", SgprText, *registers_.address_sgpr);
    }
    out_.Line(absl::StrCat(Move(), Exec(), ", 1"));
    // gfx12: scalar writes of registers that a vector instruction has read
    // before (our own, at an earlier site) must have landed before the reads.
    if (generation_.sgpr_reads_remembered) out_.Lines(generation_.head_guard);
    Data(lanes);
    out_.Line(Atomic());
    out_.Lines(generation_.memory_guard);
    out_.Line(absl::StrCat(Move(), Exec(), ", ", ExecSave()));
    out_.Lines(generation_.tail_guard);
  }

  bool Wave64() const { return isa_.wavefront_size() == 64; }
  std::string Move() const { return Wave64() ? "s_mov_b64 " : "s_mov_b32 "; }
  std::string Exec() const { return Wave64() ? "exec" : "exec_lo"; }
  std::string ExecSave() const {
    return Wave64() ? SgprPairText(registers_.exec_save) : SgprText(registers_.exec_save);
  }

  std::string_view HeadGuard() const {
    const bool matrix = !registers_.vgprs_fresh && !generation_.mfma_head_guard.empty() &&
                        kernel_.may_run_matrix_instructions();
    return matrix ? generation_.mfma_head_guard : generation_.head_guard;
  }

  void Address(const std::string& move, std::string (*name)(uint16_t), uint16_t reg) {
    out_.Address(absl::StrCat(move, name(reg), ", "), false, 0);
    out_.Address(absl::StrCat(move, name(static_cast<uint16_t>(reg + 1)), ", "), true, 0);
  }

  void Data(bool lanes) {
    if (registers_.address_vgpr) Address("v_mov_b32_e32 ", VgprText, *registers_.address_vgpr);
    const std::string low = VgprText(registers_.data_vgpr);
    const std::string high = VgprText(static_cast<uint16_t>(registers_.data_vgpr + 1));
    out_.Line(absl::StrCat("v_mov_b32_e32 ", high, ", 0"));
    if (!lanes) {
      out_.Line(absl::StrCat("v_mov_b32_e32 ", low, ", 1"));
      return;
    }
    const uint16_t save = registers_.exec_save;
    out_.Line(absl::StrCat("v_bcnt_u32_b32 ", low, ", ", SgprText(save), ", 0"));
    if (Wave64()) {
      out_.Line(absl::StrCat("v_bcnt_u32_b32 ", low, ", ",
                             SgprText(static_cast<uint16_t>(save + 1)), ", ", low));
    }
  }

  std::string Atomic() const {
    const std::string opcode(generation_.global_atomic_add_u64);
    const std::string data = VgprsText(registers_.data_vgpr, 2);
    const std::string scope(generation_.system_scope);
    if (registers_.address_sgpr) {
      return absl::StrCat(opcode, " ", VgprText(static_cast<uint16_t>(registers_.data_vgpr + 1)),
                          ", ", data, ", ", SgprPairText(*registers_.address_sgpr), scope);
    }
    return absl::StrCat(opcode, " ", VgprsText(*registers_.address_vgpr, 2), ", ", data, ", off",
                        scope);
  }

  const KernelAnalysis& kernel_;
  Isa& isa_;
  const Generation& generation_;
  const RegisterChoice& registers_;
  SequenceWriter out_;
};

}  // namespace

std::string AssemblyKey(const KernelAnalysis& kernel) {
  return absl::StrCat(kernel.object().target().processor, "/", kernel.isa().wavefront_size());
}

absl::StatusOr<SharedSequence> BuildSequence(const KernelAnalysis& kernel, Probe probe,
                                             uint32_t counter_index,
                                             const RegisterChoice& registers,
                                             AssemblyCache& cache) {
  const uint64_t addend = uint64_t{counter_index} * kCounterBytes;
  CounterWriter writer(kernel, registers, cache);
  const std::string key = writer.Key(probe);
  auto known = cache.sequences().find(key);
  if (known == cache.sequences().end()) {
    absl::StatusOr<ProbeSequence> made = writer.Write(probe);
    if (!made.ok()) return made.status();
    if (cache.sequences().size() >= kMostSequences) cache.sequences().clear();
    const SharedSequence shared = {std::move(made->bytes), std::move(made->fixups),
                                   made->instructions};
    known = cache.sequences().emplace(key, shared).first;
  }
  SharedSequence sequence = known->second;
  sequence.fixups = sequence.fixups.Plus(addend);
  return sequence;
}

}  // namespace rjdbi::patch
