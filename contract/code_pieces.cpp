// See code_pieces.h.
#include "contract/code_pieces.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "contract/patch_record.h"

namespace rjdbi::contract {
namespace {

constexpr uint32_t kWord = 4;

// Lays one kernel's pieces out; what nobody claims is the engine's.
class Layout {
 public:
  Layout(const PatchFacts& facts, const patch::KernelOutcome& outcome, std::vector<Piece>& out)
      : kernel_(facts.original.kernels()[outcome.kernel_index]), outcome_(outcome), out_(out) {
    index_ = static_cast<uint32_t>(outcome.kernel_index);
  }

  // A plan's sequence, for the instruction at `original`.
  void Claim(uint64_t vaddr, uint64_t size, uint32_t owner, uint32_t original) {
    if (size > 0) claims_.push_back({vaddr, static_cast<uint32_t>(size), owner, original, index_});
  }

  void Run() {
    if (outcome_.placement == patch::Placement::kClone) {
      ClaimClone();
    } else {
      ClaimTrampolines();
      ClaimCopy();
    }
    std::sort(claims_.begin(), claims_.end(),
              [](const Piece& a, const Piece& b) { return a.vaddr < b.vaddr; });
    for (const auto& [begin, end] : extents_) Fill(begin, end);
  }

 private:
  void ClaimClone() {
    const std::vector<patch::PcMapEntry>& pcs = outcome_.pcs;
    for (size_t i = 0; i < pcs.size(); ++i) {
      const bool last = i + 1 == pcs.size();
      const uint64_t behind = last ? kernel_.code_size : pcs[i + 1].original;
      const uint64_t room = (last ? outcome_.code_bytes : pcs[i + 1].emitted) - pcs[i].emitted;
      Claim(outcome_.clone_vaddr + pcs[i].emitted, std::min(behind - pcs[i].original, room),
            kApplicationCode, pcs[i].original);
    }
    extents_.emplace_back(outcome_.clone_vaddr, outcome_.clone_vaddr + outcome_.code_bytes);
  }

  void ClaimTrampolines() {
    for (const patch::Trampoline& t : outcome_.trampolines) {
      Claim(t.displaced_vaddr, t.displaced_size, kApplicationCode, t.original);
      extents_.emplace_back(t.vaddr, t.vaddr + t.size);
    }
    std::sort(extents_.begin(), extents_.end());
  }

  // The kernel as it was, but for the branches to the trampolines.
  void ClaimCopy() {
    if (outcome_.copy_vaddr == 0) return;
    uint32_t at = 0;
    for (const patch::Trampoline& t : outcome_.trampolines) {
      Claim(outcome_.copy_vaddr + at, t.original - at, kApplicationCode, at);
      at = t.original + t.displaced_size;
      Claim(outcome_.copy_vaddr + t.original, t.displaced_size, kEngineCode, t.original);
    }
    Claim(outcome_.copy_vaddr + at, kernel_.code_size - at, kApplicationCode, at);
    extents_.emplace_back(outcome_.copy_vaddr, outcome_.copy_vaddr + kernel_.code_size);
    std::sort(extents_.begin(), extents_.end());
  }

  void Fill(uint64_t begin, uint64_t end) {
    uint64_t at = begin;
    while (next_ < claims_.size() && claims_[next_].vaddr < end) {
      const Piece& claim = claims_[next_++];
      if (claim.vaddr > at)
        Add({at, static_cast<uint32_t>(claim.vaddr - at), kEngineCode, claim.original, index_});
      Add(claim);
      at = claim.vaddr + claim.size;
    }
    const uint32_t last = next_ == 0 ? 0 : claims_[next_ - 1].original;
    if (end > at) Add({at, static_cast<uint32_t>(end - at), kEngineCode, last, index_});
  }

  void Add(const Piece& piece) {
    if (!out_.empty()) {
      Piece& last = out_.back();
      const bool goes_on =
          last.kernel == piece.kernel && last.owner == piece.owner &&
          last.vaddr + last.size == piece.vaddr &&
          last.original + (piece.owner == kApplicationCode ? last.size : 0) == piece.original;
      if (goes_on) {
        last.size += piece.size;
        return;
      }
    }
    out_.push_back(piece);
  }

  const patch::Kernel& kernel_;
  const patch::KernelOutcome& outcome_;
  std::vector<Piece>& out_;
  uint32_t index_ = 0;
  std::vector<Piece> claims_;
  std::vector<std::pair<uint64_t, uint64_t>> extents_;
  size_t next_ = 0;
};

absl::Status Damaged() {
  return absl::DataLossError("the object carries patches, and their address map does not add up");
}

// One run of the record, checked on the way.
class RunReader {
 public:
  RunReader(const v1::PatchRecord& record, const patch::Kernel& kernel, uint32_t index)
      : record_(record), kernel_(kernel), index_(index) {}

  // False: it does not add up. `end`: of the run before, into the segment.
  bool Read(const v1::CodeRun& run, uint64_t& end, std::vector<Piece>& out) const {
    const int pieces = run.words_size();
    if (run.owners_size() != pieces || run.originals_size() != pieces) return false;
    if (run.segment_offset() < end || run.segment_offset() % kWord != 0) return false;
    uint64_t at = run.segment_offset();
    int64_t expected = 0;  // words
    for (int i = 0; i < pieces; ++i) {
      const uint64_t size = uint64_t{run.words(i)} * kWord;
      const int64_t original = expected + run.originals(i);
      if (size == 0 || at > record_.segment_size() || size > record_.segment_size() - at) {
        return false;
      }
      const bool application = run.owners(i) == kApplicationCode;
      if (!Inside(original, application ? size : kWord)) return false;
      if (run.owners(i) >= kFirstAttachment + static_cast<uint32_t>(record_.attachments_size())) {
        return false;
      }
      out.push_back({record_.segment_vaddr() + at, static_cast<uint32_t>(size), run.owners(i),
                     static_cast<uint32_t>(original) * kWord, index_});
      if (application) expected = original + run.words(i);
      at += size;
    }
    end = at;
    return true;
  }

 private:
  bool Inside(int64_t words, uint64_t size) const {
    if (words < 0) return false;
    const uint64_t offset = static_cast<uint64_t>(words) * kWord;
    return offset <= kernel_.code_size && size <= kernel_.code_size - offset;
  }

  const v1::PatchRecord& record_;
  const patch::Kernel& kernel_;
  const uint32_t index_;
};

}  // namespace

std::vector<Piece> PiecesOf(const PatchFacts& facts) {
  std::vector<Piece> out;
  std::map<size_t, std::vector<size_t>> plans;  // by kernel
  for (size_t p = 0; p < facts.plans.size() && p < facts.sites.size(); ++p) {
    if (!facts.sites[p].refusal) plans[facts.plans[p].kernel_index].push_back(p);
  }
  for (const patch::KernelOutcome& outcome : facts.kernels) {
    Layout layout(facts, outcome, out);
    for (const size_t p : plans[outcome.kernel_index]) {
      layout.Claim(facts.sites[p].sequence_vaddr, facts.plans[p].sequence.size(),
                   kFirstAttachment + facts.attachment_of[p], facts.instruction_offset[p]);
    }
    layout.Run();
  }
  std::sort(out.begin(), out.end(),
            [](const Piece& a, const Piece& b) { return a.vaddr < b.vaddr; });
  return out;
}

void EncodePieces(const std::vector<Piece>& pieces, const PatchFacts& facts, uint64_t segment_vaddr,
                  v1::PatchRecord& record) {
  std::map<size_t, v1::Placement> placements;
  for (const patch::KernelOutcome& outcome : facts.kernels) {
    const bool clone = outcome.placement == patch::Placement::kClone;
    placements[outcome.kernel_index] = clone ? v1::CLONE : v1::TRAMPOLINE;
  }
  v1::CodeRun* run = nullptr;
  int64_t expected = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const bool goes_on = i > 0 && pieces[i - 1].kernel == piece.kernel &&
                         pieces[i - 1].vaddr + pieces[i - 1].size == piece.vaddr;
    if (!goes_on) {
      run = record.add_runs();
      run->set_descriptor_vaddr(facts.original.kernels()[piece.kernel].descriptor_vaddr);
      run->set_placement(placements[piece.kernel]);
      run->set_segment_offset(piece.vaddr - segment_vaddr);
      expected = 0;
    }
    const int64_t at = piece.original / kWord;
    run->add_words(piece.size / kWord);
    run->add_owners(piece.owner);
    run->add_originals(static_cast<int32_t>(at - expected));
    if (piece.owner == kApplicationCode) expected = at + piece.size / kWord;
  }
}

absl::StatusOr<std::vector<Piece>> DecodePieces(const v1::PatchRecord& record,
                                                const patch::CodeObject& original) {
  std::unordered_map<uint64_t, uint32_t> kernels;  // by descriptor
  for (size_t i = 0; i < original.kernels().size(); ++i) {
    kernels.emplace(original.kernels()[i].descriptor_vaddr, static_cast<uint32_t>(i));
  }
  const bool fits = record.segment_size() <= patch::CodeObject::kMaxSize &&
                    record.segment_vaddr() <= UINT64_MAX - record.segment_size();
  if (!fits) return Damaged();
  std::vector<Piece> out;
  uint64_t end = 0;
  for (const v1::CodeRun& run : record.runs()) {
    const auto found = kernels.find(run.descriptor_vaddr());
    if (found == kernels.end()) return Damaged();
    const RunReader reader(record, original.kernels()[found->second], found->second);
    if (!reader.Read(run, end, out)) return Damaged();
  }
  return out;
}

}  // namespace rjdbi::contract
