// Emits the ring's protocol line by line; what differs between generations comes
// from the hardware table.
#include "patch/rewrite/record_sequence.h"

#include <bit>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "patch/rewrite/probe_sequence.h"
#include "patch/rewrite/sequence_writer.h"
#include "proto/rjdbi/telemetry_ring.h"

namespace rjdbi::patch {
namespace {

constexpr uint32_t kWordsAt = sizeof(rjdbi_record_header);
constexpr uint32_t kLanesAt = 32;  // bytes from a record's beginning

// absl's own kind of view here.
absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

class Emitter {
 public:
  Emitter(const KernelAnalysis& kernel, const ProbeRequest& request, const RecordContent& content,
          const RegisterChoice& registers, AssemblyCache& cache)
      : kernel_(kernel),
        generation_(kernel.isa().generation()),
        wave64_(kernel.isa().wavefront_size() == 64),
        request_(request),
        content_(content),
        registers_(registers),
        out_(kernel, cache) {}

  absl::StatusOr<ProbeSequence> Emit() {
    out_.Lines(HeadGuard());
    Sample();
    SaveExec();
    Reserve();
    const SequenceWriter::Branch fits = Compare();
    const SequenceWriter::Branch end = Lose();
    out_.BindHere(fits);
    FindPlace();
    Lanes();
    Words();
    Complete();
    out_.BindHere(end);
    MemoryGuard();
    RestoreExec();
    out_.Lines(generation_.tail_guard);
    out_.KeepApartInside();
    out_.KeepApart();
    return out_.Finish();
  }

 private:
  std::string Move() const { return wave64_ ? "s_mov_b64 " : "s_mov_b32 "; }
  std::string Exec() const { return wave64_ ? "exec" : "exec_lo"; }
  std::string Saved() const {
    return wave64_ ? SgprPairText(registers_.exec_save) : SgprText(registers_.exec_save);
  }
  std::string Ring() const { return SgprPairText(*registers_.address_sgpr); }
  std::string Scratch() const { return SgprText(*registers_.scratch_sgpr); }
  // The data pair: what is added, and the offset 0; later the record's place.
  std::string DataLow() const { return VgprText(registers_.data_vgpr); }
  std::string DataHigh() const { return Vgpr(registers_.data_vgpr, 1); }
  std::string Data() const { return VgprsText(registers_.data_vgpr, 2); }
  std::string Header(uint32_t word) const { return Vgpr(registers_.header_vgpr, word); }
  std::string Ticket() const {
    return VgprsText(static_cast<uint16_t>(registers_.header_vgpr + 2), 2);
  }
  static std::string Vgpr(uint16_t first, uint32_t n) {
    return VgprText(static_cast<uint16_t>(first + n));
  }

  std::string_view HeadGuard() const {
    const bool settled = content_.lanes.count == 0 || content_.lanes_settled;
    if ((registers_.vgprs_fresh && settled) || generation_.mfma_head_guard.empty()) {
      return generation_.head_guard;
    }
    return kernel_.may_run_matrix_instructions() ? generation_.mfma_head_guard
                                                 : generation_.head_guard;
  }

  // gfx12: scalar writes of registers that vector instructions have read, here or
  // at an earlier site, must have landed before vector instructions read them.
  void ScalarGuard() {
    if (generation_.sgpr_reads_remembered) out_.Lines(generation_.head_guard);
  }
  // Memory instructions must have read EXEC and SGPRs before a scalar instruction
  // overwrites them.
  void MemoryGuard() { out_.Lines(generation_.memory_guard); }

  void SetExec(const std::string& value) {
    out_.Line(absl::StrCat(Move(), Exec(), ", ", value));
    ScalarGuard();
  }
  void SaveExec() { out_.Line(absl::StrCat(Move(), Saved(), ", ", Exec())); }
  void RestoreExec() { out_.Line(absl::StrCat(Move(), Exec(), ", ", Saved())); }

  void LoadAddress(uint64_t addend) {
    const uint16_t low = *registers_.address_sgpr;
    out_.Address(absl::StrCat("s_mov_b32 ", SgprText(low), ", "), false, addend);
    out_.Address(absl::StrCat("s_mov_b32 ", SgprText(static_cast<uint16_t>(low + 1)), ", "), true,
                 addend);
  }

  void Sample() {
    if (!registers_.sample_sgpr) return;
    for (const std::string& line : content_.sample) {
      // The lines name the first register of the sample %0, the others %1, ...
      out_.Line(WithRegisters(line));
    }
  }
  std::string WithRegisters(const std::string& line) const {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] != '%') {
        text += line[i];
        continue;
      }
      const char which = line[++i];
      const auto first = *registers_.sample_sgpr;
      text += which == 'p' ? SgprPairText(first)
                           : SgprText(static_cast<uint16_t>(first + (which - '0')));
    }
    return text;
  }

  void Reserve() {
    LoadAddress(request_.ring_offset);
    SetExec("1");
    const uint32_t size = content_.layout.bytes;
    if (generation_.mov_b64) {
      out_.Line(absl::StrCat("v_mov_b64_e32 ", Data(), ", ", size));
    } else {
      out_.Line(absl::StrCat("v_mov_b32_e32 ", DataHigh(), ", 0"));
      out_.Line(absl::StrCat("v_mov_b32_e32 ", DataLow(), ", ", size));
    }
    out_.Line(absl::StrCat(Text(generation_.global_atomic_add_u64), " ", Ticket(), ", ", DataHigh(),
                           ", ", Data(), ", ", Ring(), Text(generation_.returning_system_scope)));
    out_.Line(std::string(generation_.load_wait));
  }

  SequenceWriter::Branch Compare() {
    const uint32_t limit = request_.ring_half_bytes - content_.layout.bytes + RJDBI_RING_HALF_BIT;
    MemoryGuard();
    if (!registers_.compare_sgpr) {
      out_.Line(absl::StrCat("v_cmpx_ge_u64_e32 ", limit, ", ", Ticket()));
    } else if (*registers_.compare_sgpr == kVccLo) {
      out_.Line(absl::StrCat("v_cmpx_ge_u64_e32 vcc, ", limit, ", ", Ticket()));
    } else {
      const std::string pair = SgprPairText(*registers_.compare_sgpr);
      out_.Line(absl::StrCat("s_mov_b64 ", pair, ", ", limit));
      out_.Line(absl::StrCat("v_cmpx_ge_u64_e64 ", pair, ", ", pair, ", ", Ticket()));
    }
    return out_.Forward("s_cbranch_execnz");
  }

  // The data pair's high half still is 0.
  SequenceWriter::Branch Lose() {
    LoadAddress(uint64_t{request_.counter_index} * kCounterBytes);
    SetExec("1");
    out_.Line(absl::StrCat("v_mov_b32_e32 ", DataLow(), ", 1"));
    out_.Line(absl::StrCat(Text(generation_.global_atomic_add_u64), " ", DataHigh(), ", ", Data(),
                           ", ", Ring(), Text(generation_.system_scope)));
    MemoryGuard();
    return out_.Forward("s_branch");
  }

  // Into the data pair's low half.
  void FindPlace() {
    const uint32_t half = request_.ring_half_bytes;
    const auto shift = static_cast<uint32_t>(std::countr_zero(half)) - 3;
    out_.Line(
        absl::StrCat("v_lshl_add_u32 ", DataLow(), ", ", Header(2), ", ", shift, ", ", Header(2)));
    out_.Line(absl::StrCat("v_and_b32_e32 ", DataLow(), ", ", 2 * half - RJDBI_RECORD_ALIGNMENT,
                           ", ", DataLow()));
  }

  void Store(const std::string& place, const std::string& data, uint32_t words, uint32_t offset) {
    const size_t width = words - 1;
    const bool renamed = generation_.renamed_stores;
    static constexpr std::string_view kOld[] = {"dword", "dwordx2", "dwordx3", "dwordx4"};
    static constexpr std::string_view kNew[] = {"b32", "b64", "b96", "b128"};
    out_.Line(absl::StrCat("global_store_", Text(renamed ? kNew[width] : kOld[width]), " ", place,
                           ", ", data, ", ", Ring(), " offset:", RJDBI_RING_HEADER_BYTES + offset,
                           Text(generation_.store_system_scope)));
  }

  // The lane's number finds its place, whatever EXEC is. The ticket's high half is
  // no longer needed.
  void Lanes() {
    if (content_.lanes.count == 0) return;
    const std::string place = Header(3);
    out_.Lines(generation_.readfirstlane_guard);
    out_.Line(absl::StrCat("v_readfirstlane_b32 ", Scratch(), ", ", DataLow()));
    SetExec(Saved());
    out_.Line(absl::StrCat("v_mbcnt_lo_u32_b32 ", place, ", -1, 0"));
    if (wave64_) out_.Line(absl::StrCat("v_mbcnt_hi_u32_b32 ", place, ", -1, ", place));
    const uint32_t words = content_.lanes.count;
    out_.Line(absl::StrCat("v_lshl_add_u32 ", place, ", ", place, ", ", words == 2 ? 3 : 2, ", ",
                           Scratch()));
    Store(place, VgprsText(content_.lanes.first, words), words, kLanesAt);
    MemoryGuard();
    SetExec("1");
  }

  // More than two words need the header's third, where the ticket is.
  void Words() {
    const auto count = static_cast<uint32_t>(content_.words.size());
    if (count > 2) out_.Line(absl::StrCat("v_mov_b32_e32 ", DataHigh(), ", ", Header(2)));
    for (uint32_t w = 0; w < count; ++w) {
      if (WordPair(w)) {
        ++w;
      } else {
        Word(w);
      }
    }
    if (count > 0) {
      Store(DataLow(), VgprsText(registers_.header_vgpr, count), count, kWordsAt);
    }
    if (count == 0 && content_.lanes.count == 0) return;
    out_.Line(std::string(generation_.store_wait));
    // gfx942: two wait states between a wide store and a write of what it stored.
    if (count > 2) out_.Lines(generation_.readfirstlane_guard);
    if (count > 2) out_.Line(absl::StrCat("v_mov_b32_e32 ", Header(2), ", ", DataHigh()));
  }

  // Two words from an aligned pair at once.
  bool WordPair(uint32_t w) {
    if (w % 2 != 0 || w + 1 >= content_.words.size()) return false;
    const RecordWord &low = content_.words[w], &high = content_.words[w + 1];
    using Kind = RecordWord::Kind;
    if (low.kind != Kind::kScalar || high.kind != Kind::kScalar) return false;
    if (low.scalar % 2 != 0 || high.scalar != low.scalar + 1 || low.scalar > kVccLo) return false;
    return MovePair(w, low.scalar);
  }

  // False: not in one instruction.
  bool MovePair(uint32_t word, uint16_t sgpr) {
    const std::string to = VgprsText(static_cast<uint16_t>(registers_.header_vgpr + word), 2);
    const std::string from = SgprPairText(sgpr);
    if (generation_.mov_b64) {
      out_.Line(absl::StrCat("v_mov_b64_e32 ", to, ", ", from));
    } else if (generation_.pk_mov) {
      out_.Line(absl::StrCat("v_pk_mov_b32 ", to, ", ", from, ", ", from, " op_sel:[0,1]"));
    } else {
      return false;
    }
    return true;
  }

  void Word(uint32_t w) {
    const RecordWord& word = content_.words[w];
    using Kind = RecordWord::Kind;
    if (word.kind == Kind::kNumber) {
      return out_.Line(
          absl::StrCat("v_mov_b32_e32 ", Header(w), ", ", static_cast<int32_t>(word.number)));
    }
    if (word.kind == Kind::kSampleHigh) return SampleHigh(Header(w));
    if (word.kind == Kind::kLowHalf) {
      // v_and_b32 takes one scalar operand at most beside a literal, everywhere.
      return out_.Line(
          absl::StrCat("v_and_b32_e64 ", Header(w), ", 0xffff, ", SgprText(word.scalar)));
    }
    if (word.kind == Kind::kHighHalf) {
      return out_.Line(
          absl::StrCat("v_lshrrev_b32_e64 ", Header(w), ", 16, ", SgprText(word.scalar)));
    }
    out_.Line(absl::StrCat("v_mov_b32_e32 ", Header(w), ", ", Source(word)));
  }

  // The low half has just wrapped if its top bit is clear: then the high half read
  // behind it belongs to it, else the one before. They differ only around a wrap.
  void SampleHigh(const std::string& vgpr) {
    const auto sample = [&](uint32_t n) {
      return SgprText(static_cast<uint16_t>(*registers_.sample_sgpr + n));
    };
    out_.Line(absl::StrCat("v_ashrrev_i32_e64 ", vgpr, ", 31, ", sample(0)));
    out_.Line(absl::StrCat("v_bfi_b32 ", vgpr, ", ", vgpr, ", ", sample(1), ", ", sample(2)));
  }

  // A scalar operand that holds the word.
  std::string Source(const RecordWord& word) {
    using Kind = RecordWord::Kind;
    const auto nth = [&](uint16_t first) {
      return SgprText(static_cast<uint16_t>(first + word.number));
    };
    switch (word.kind) {
      case Kind::kScalar:
        return word.scalar == kM0 ? "m0" : SgprText(word.scalar);
      case Kind::kSavedExec:
        return nth(registers_.exec_save);
      case Kind::kSample:
        return nth(*registers_.sample_sgpr);
      case Kind::kWave:
        out_.Line(absl::StrCat("s_getreg_b32 ", Scratch(), ", ", Text(generation_.wave_register)));
        ScalarGuard();
        return Scratch();
      case Kind::kScc:
        out_.Line(absl::StrCat("s_cselect_b32 ", Scratch(), ", 1, 0"));
        ScalarGuard();
        return Scratch();
      case Kind::kZero:
      case Kind::kNumber:
      case Kind::kSampleHigh:
      case Kind::kLowHalf:
      case Kind::kHighHalf:
        break;
    }
    return "0";
  }

  // EXEC, ticket, descriptor: the record is whole.
  void Complete() {
    const uint16_t saved = registers_.exec_save;
    if (!wave64_ || !MovePair(0, saved)) {
      out_.Line(absl::StrCat("v_mov_b32_e32 ", Header(0), ", ", SgprText(saved)));
      out_.Line(absl::StrCat("v_mov_b32_e32 ", Header(1), ", ",
                             wave64_ ? SgprText(static_cast<uint16_t>(saved + 1)) : "0"));
    }
    const RecordLayout& layout = content_.layout;
    const uint32_t descriptor = layout.site |
                                layout.bytes / RJDBI_RECORD_ALIGNMENT << RJDBI_RECORD_SIZE_SHIFT |
                                layout.kind << RJDBI_RECORD_KIND_SHIFT;
    out_.Number(absl::StrCat("v_mov_b32_e32 ", Header(3), ", "), descriptor);
    Store(DataLow(), VgprsText(registers_.header_vgpr, 4), 4, 0);
  }

  const KernelAnalysis& kernel_;
  const Generation& generation_;
  const bool wave64_;
  const ProbeRequest& request_;
  const RecordContent& content_;
  const RegisterChoice& registers_;
  SequenceWriter out_;
};

}  // namespace

absl::StatusOr<ProbeSequence> BuildRecordSequence(const KernelAnalysis& kernel,
                                                  const ProbeRequest& request,
                                                  const RecordContent& content,
                                                  const RegisterChoice& registers,
                                                  AssemblyCache& cache) {
  return Emitter(kernel, request, content, registers, cache).Emit();
}

}  // namespace rjdbi::patch
