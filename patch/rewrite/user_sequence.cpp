// Text around the renamed body.
#include "patch/rewrite/user_sequence.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "patch/probe/rename.h"
#include "patch/rewrite/sequence_writer.h"

namespace rjdbi::patch {
namespace {

constexpr uint32_t kWordBytes = 8;  // of telemetry

class Builder {
 public:
  Builder(Isa& isa, const std::string& key, const UserProbe& probe, const UserRegisters& registers,
          const UserSite& site, AssemblyCache& cache)
      : isa_(isa),
        generation_(isa.generation()),
        wave64_(isa.wavefront_size() == 64),
        probe_(probe),
        registers_(registers),
        site_(site),
        writer_(isa, key, cache) {}

  absl::StatusOr<ProbeSequence> Run() {
    const absl::StatusOr<RenamedBody> body = RenameBody(probe_.body, registers_.renaming, isa_);
    if (!body.ok()) return body.status();
    writer_.Lines(site_.head_guard);
    Keep();
    const bool set_up = SetUp();
    if (set_up) writer_.Lines(generation_.head_guard);
    std::optional<SequenceWriter::Branch> skip;
    if (probe_.body.needs_active_lane) skip = writer_.Forward("s_cbranch_execz");
    writer_.Code(body->bytes, body->instructions);
    if (skip) writer_.BindHere(*skip);
    Restore();
    writer_.Lines(generation_.tail_guard);
    writer_.KeepApartInside();
    writer_.KeepApart();
    return writer_.Finish();
  }

 private:
  std::string Move() const { return wave64_ ? "s_mov_b64 " : "s_mov_b32 "; }
  std::string Exec() const { return wave64_ ? "exec" : "exec_lo"; }
  std::string Mask(uint16_t reg) const { return wave64_ ? SgprPairText(reg) : SgprText(reg); }

  void Keep() {
    const UserNeeds& needs = site_.needs;
    if (needs.exec) writer_.Line(absl::StrCat(Move(), Mask(registers_.exec), ", ", Exec()));
    if (needs.vcc) writer_.Line(absl::StrCat("s_mov_b64 ", SgprPairText(registers_.vcc), ", vcc"));
    if (needs.m0) writer_.Line(absl::StrCat("s_mov_b32 ", SgprText(registers_.m0), ", m0"));
    if (needs.scc) {
      writer_.Line(absl::StrCat("s_cselect_b32 ", SgprText(registers_.scc), ", 1, 0"));
    }
  }

  void Restore() {
    const UserNeeds& needs = site_.needs;
    // gfx10.1: a memory instruction's EXEC and SGPRs must have been read before a
    // scalar instruction overwrites them, which is what its guard waits for.
    writer_.Lines(generation_.memory_guard);
    if (needs.exec) writer_.Line(absl::StrCat(Move(), Exec(), ", ", Mask(registers_.exec)));
    if (needs.vcc) writer_.Line(absl::StrCat("s_mov_b64 vcc, ", SgprPairText(registers_.vcc)));
    if (needs.m0) writer_.Line(absl::StrCat("s_mov_b32 m0, ", SgprText(registers_.m0)));
    if (needs.scc) writer_.Line(absl::StrCat("s_cmp_lg_u32 ", SgprText(registers_.scc), ", 0"));
  }

  // The body's register for an argument word, if something has to be moved there.
  std::string Target(size_t word) const {
    const auto reg = static_cast<uint16_t>(kVgpr0 + word);
    if (!probe_.body.reads.Has(reg) || registers_.direct.Has(reg)) return "";
    return VgprText(registers_.renaming[reg]);
  }

  // True: something was passed.
  bool SetUp() {
    const std::vector<ArgumentWord> words = ArgumentWords(probe_);
    bool any = false;
    for (size_t n = 0; n < words.size(); ++n) {
      const std::string to = Target(n);
      any |= !to.empty();
      if (words[n].argument->kind != ArgumentKind::kAddress) {
        if (!to.empty()) Pass(words[n], to);
      } else if (words[n].word == 0) {
        const std::string high = Target(n + 1);
        if (!to.empty() || !high.empty()) PassAddress(to, high);
      }
    }
    return any;
  }

  void Vmov(const std::string& to, const std::string& from) {
    writer_.Line(absl::StrCat("v_mov_b32_e32 ", to, ", ", from));
  }

  void Pass(const ArgumentWord& word, const std::string& to) {
    const ProbeArgument& argument = *word.argument;
    const std::string move = absl::StrCat("v_mov_b32_e32 ", to, ", ");
    switch (argument.kind) {
      case ArgumentKind::kConstant:
        Vmov(to, absl::StrCat(static_cast<uint32_t>(argument.constant >> (32 * word.word))));
        break;
      case ArgumentKind::kSite:
        writer_.Number(move, site_.counter_index);
        break;
      case ArgumentKind::kExec:
        if (word.word == 0) Vmov(to, "exec_lo");
        if (word.word == 1) Vmov(to, wave64_ ? "exec_hi" : "0");
        break;
      case ArgumentKind::kLane:
        writer_.Line(absl::StrCat("v_mbcnt_lo_u32_b32 ", to, ", -1, 0"));
        if (wave64_) writer_.Line(absl::StrCat("v_mbcnt_hi_u32_b32 ", to, ", -1, ", to));
        break;
      case ArgumentKind::kWaveSlot:
        writer_.Line(absl::StrCat(
            "s_getreg_b32 ", SgprText(registers_.mask), ", ",
            absl::string_view(generation_.wave_register.data(), generation_.wave_register.size())));
        Vmov(to, SgprText(registers_.mask));
        break;
      case ArgumentKind::kTelemetry:
        writer_.Address(move, word.word == 1, uint64_t{site_.counter_index} * kWordBytes);
        break;
      case ArgumentKind::kRegister: {
        const auto from = static_cast<uint16_t>(argument.reg + word.word);
        Vmov(to, from >= kVgpr0 ? VgprText(from) : SgprText(from));
        break;
      }
      case ArgumentKind::kAddress:
        break;  // both words at once
    }
  }

  // ---- the address: vector part + scalar base + offset ----

  std::string AddCarryOut(const std::string& to, const std::string& a, const std::string& b) const {
    return absl::StrCat(generation_.major == 9 ? "v_add_co_u32_e64 " : "v_add_co_u32 ", to, ", ",
                        Mask(registers_.mask), ", ", a, ", ", b);
  }
  std::string AddCarryIn(const std::string& to, const std::string& a, const std::string& b) const {
    const std::string mask = Mask(registers_.mask);
    return absl::StrCat(generation_.major == 9 ? "v_addc_co_u32_e64 " : "v_add_co_ci_u32_e64 ", to,
                        ", ", mask, ", ", a, ", ", b, ", ", mask);
  }
  std::string Add(const std::string& to, const std::string& a, const std::string& b) const {
    return absl::StrCat(generation_.major == 9 ? "v_add_u32_e32 " : "v_add_nc_u32_e32 ", to, ", ",
                        a, ", ", b);
  }

  // low, high: where the halves go; empty: the body does not read them.
  void PassAddress(const std::string& low, const std::string& high) {
    const AccessAddress& address = *site_.address;
    const std::string lane = VgprText(address.vgpr);
    const bool sum = address.base || address.offset != 0;
    if (address.vgpr_dwords == 1 && !address.base) {  // LDS
      if (!low.empty()) PassLow(low, lane);
      if (!high.empty()) Vmov(high, "0");
    } else if (high.empty()) {
      PassLow(low, lane);
    } else if (sum) {
      // Without the low half its register is scratch: it is summed first.
      PassSum(low.empty() ? high : low, high, lane);
    } else {
      if (!low.empty()) Vmov(low, lane);
      Vmov(high, VgprText(static_cast<uint16_t>(address.vgpr + 1)));
    }
  }

  void PassLow(const std::string& low, std::string lane) {
    const AccessAddress& address = *site_.address;
    if (!address.base && address.offset == 0) return Vmov(low, lane);
    if (address.base) writer_.Line(Add(low, SgprText(*address.base), lane));
    if (address.base) lane = low;
    if (address.offset != 0) {
      writer_.Line(Add(low, absl::StrCat(static_cast<int32_t>(address.offset)), lane));
    }
  }

  void PassSum(const std::string& low, const std::string& high, std::string lane) {
    const AccessAddress& address = *site_.address;
    std::string lane_high = address.base ? "" : VgprText(static_cast<uint16_t>(address.vgpr + 1));
    if (address.base) {
      writer_.Line(AddCarryOut(low, SgprText(*address.base), lane));
      Vmov(high, SgprText(static_cast<uint16_t>(*address.base + 1)));
      writer_.Line(AddCarryIn(high, "0", high));
      lane = low;
      lane_high = high;
    }
    if (address.offset == 0) return;
    // A literal fits in a scalar move everywhere; the mask's register is free again.
    if (address.base && generation_.major >= 10) writer_.Lines(generation_.head_guard);
    const std::string number = SgprText(registers_.mask);
    writer_.Line(absl::StrCat("s_mov_b32 ", number, ", ", static_cast<int32_t>(address.offset)));
    writer_.Line(AddCarryOut(low, number, lane));
    writer_.Line(AddCarryIn(high, address.offset < 0 ? "-1" : "0", lane_high));
  }

  Isa& isa_;
  const Generation& generation_;
  const bool wave64_;
  const UserProbe& probe_;
  const UserRegisters& registers_;
  const UserSite& site_;
  SequenceWriter writer_;
};

}  // namespace

absl::StatusOr<ProbeSequence> BuildUserSequence(Isa& isa, const std::string& key,
                                                const UserProbe& probe,
                                                const UserRegisters& registers,
                                                const UserSite& site, AssemblyCache& cache) {
  return Builder(isa, key, probe, registers, site, cache).Run();
}

}  // namespace rjdbi::patch
