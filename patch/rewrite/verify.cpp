// See the header.
#include "patch/rewrite/verify.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace rjdbi::patch {
namespace {

constexpr int kMaxRelays = 4096;

class Checker {
 public:
  Checker(const CodeObject& image, const SiteCode& site)
      : image_(image), site_(site), isa_(site.kernel->isa()) {}

  absl::Status Check() {
    const Instruction& displaced = site_.kernel->instructions()[site_.instruction];
    if (!LeadsTo(site_.anchor_vaddr, site_.trampoline_vaddr)) {
      return Fail("the anchor does not lead to the trampoline");
    }
    const absl::Span<const uint8_t> body =
        image_.AtVaddr(site_.trampoline_vaddr, site_.body.size());
    if (!std::equal(body.begin(), body.end(), site_.body.begin(), site_.body.end())) {
      return Fail("the trampoline's bytes differ");
    }
    uint64_t at = 0;
    while (at < body.size()) {
      const Instruction* in = isa_.DecodeShared(body, at);
      if (in == nullptr) return Fail(absl::StrCat("the trampoline does not decode at byte ", at));
      at += in->size;
    }
    if (at != body.size()) return Fail("the trampoline's last instruction is cut off");
    const uint64_t home = site_.anchor_vaddr + displaced.size;
    uint64_t out = site_.trampoline_vaddr + body.size();
    while (IsNop(out)) out += 4;
    if (!LeadsOut(displaced, out, home)) return Fail("the trampoline does not lead back");
    if (ClauseLeftWhole(displaced)) return Fail("the clause around the site is left whole");
    return absl::OkStatus();
  }

 private:
  absl::Status Fail(std::string what) const {
    return absl::InternalError(absl::StrCat(
        site_.kernel->kernel().name, "+0x",
        absl::Hex(site_.kernel->instructions()[site_.instruction].offset), ": ", what));
  }

  const Instruction* Fetch(uint64_t vaddr) {
    const absl::Span<const uint8_t> word = image_.AtVaddr(vaddr, 4);
    if (word.size() != 4) return nullptr;
    return isa_.DecodeShared(word, 0);
  }

  bool IsNop(uint64_t vaddr) {
    const Instruction* in = Fetch(vaddr);
    return in != nullptr && in->opcode == "s_nop";
  }

  // To `home`, or wherever the displaced instruction branches.
  bool LeadsOut(const Instruction& displaced, uint64_t out, uint64_t home) {
    if (displaced.ends_program) return true;  // the body's end, compared above
    if (!displaced.branch) return LeadsTo(out, home);
    const uint64_t target =
        site_.anchor_vaddr - displaced.offset + static_cast<uint64_t>(*displaced.target_offset);
    if (!displaced.conditional) return LeadsTo(out, target);
    const Instruction* in = Fetch(out);
    return in != nullptr && in->opcode == displaced.opcode && in->target_offset == 8 &&
           LeadsTo(out + 4, home) && LeadsTo(out + 8, target);
  }

  // The s_clause is s_nop 0 or, a site itself, a branch.
  bool ClauseLeftWhole(const Instruction& displaced) {
    if (!site_.broken_clause) return false;
    const uint64_t offset = site_.kernel->instructions()[*site_.broken_clause].offset;
    const Instruction* in = Fetch(site_.anchor_vaddr - displaced.offset + offset);
    return in == nullptr || (in->opcode != "s_nop" && in->opcode != "s_branch");
  }

  // Follows unconditional branches from `vaddr` until `target`.
  bool LeadsTo(uint64_t vaddr, uint64_t target) {
    for (int hop = 0; hop < kMaxRelays; ++hop) {
      const Instruction* in = Fetch(vaddr);
      if (in == nullptr || in->opcode != "s_branch" || !in->target_offset) return false;
      vaddr += static_cast<uint64_t>(*in->target_offset);
      if (vaddr == target) return true;
    }
    return false;
  }

  const CodeObject& image_;
  const SiteCode& site_;
  Isa& isa_;
};

}  // namespace

absl::Status VerifyImage(const CodeObject& image, const std::vector<SiteCode>& sites) {
  for (const SiteCode& site : sites) {
    if (site.refusal) continue;
    if (absl::Status status = Checker(image, site).Check(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace rjdbi::patch
