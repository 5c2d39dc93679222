// See the header for the policy.
#include "patch/rewrite/placement.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "patch/analysis/clone_obstacle.h"

namespace rjdbi::patch {
namespace {

constexpr uint64_t kMaxForward = 4 + 4 * uint64_t{32767};  // from the branch's own address
constexpr uint64_t kMaxBackward = 4 * uint64_t{32768} - 4;
constexpr size_t kPreferredHops = 2;
constexpr size_t kAnyHops = std::numeric_limits<size_t>::max();
constexpr uint64_t kKernelAlignment = 256;

// Filler that compilers and linkers leave between functions: zero, s_nop 0,
// s_code_end (gfx10 and later).
bool IsFiller(uint32_t word) { return word == 0 || word == 0xbf800000 || word == 0xbf9f0000; }

uint32_t WordAt(absl::Span<const uint8_t> bytes, size_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

class Placer {
 public:
  Placer(const CodeObject& object, const std::vector<const KernelAnalysis*>& kernels,
         uint64_t segment_vaddr, const BranchEncoding& encoding)
      : object_(object), base_(segment_vaddr), encoding_(encoding) {
    for (uint64_t word : FindFillerWords(object, kernels)) free_.insert(free_.end(), word);
  }

  PlacedCode Place(std::vector<SiteCode>& sites) {
    std::vector<Group> groups = GroupByKernel(sites);
    // First choice of filler and of nearby trampolines for those that have no
    // other way.
    for (Group& group : groups) {
      if (!group.movable) Account(group, [&] { PlaceSiteBySite(group); });
    }
    for (const size_t hops : {size_t{0}, kPreferredHops}) {
      for (Group& group : groups) {
        if (group.done || group.shared) continue;
        Account(group, [&] { group.done = TryInPlace(group, hops); });
      }
    }
    for (Group& group : groups) {
      if (!group.done) Account(group, [&] { CopyKernel(group); });
    }
    BreakClauses(sites);
    return std::move(placed_);
  }

 private:
  struct Group {  // one kernel's sites
    const KernelAnalysis* kernel = nullptr;
    std::vector<SiteCode*> sites;
    bool shared = false, movable = false, done = false;
  };

  // Everything that an attempt changes, so that it can be taken back.
  struct Attempt {
    size_t segment_size = 0;
    std::vector<uint64_t> taken;  // filler words
    std::vector<std::pair<uint64_t, uint32_t>> words;
  };

  std::vector<Group> GroupByKernel(std::vector<SiteCode>& sites) const {
    std::vector<Group> groups;
    for (SiteCode& site : sites) {
      if (groups.empty() || groups.back().kernel != site.kernel) {
        Group group;
        group.kernel = site.kernel;
        group.shared = SharesCode(object_, site.kernel->kernel_index());
        group.movable = PositionIndependent(*site.kernel);
        groups.push_back(std::move(group));
      }
      groups.back().sites.push_back(&site);
    }
    return groups;
  }

  // What `place` adds to the segment is for the group's kernel.
  template <typename Function>
  void Account(const Group& group, Function place) {
    const size_t before = placed_.segment.size();
    place();
    placed_.kernel_bytes[group.kernel->kernel_index()] += placed_.segment.size() - before;
  }

  uint64_t Cursor() const { return base_ + placed_.segment.size(); }

  void Append(uint32_t word) {
    const size_t at = placed_.segment.size();
    placed_.segment.resize(at + 4);
    std::memcpy(placed_.segment.data() + at, &word, sizeof(word));
  }

  uint32_t Branch(uint16_t offset) const { return encoding_.branch | offset; }

  void SetWord(uint64_t vaddr, uint32_t word, Attempt& attempt) const {
    attempt.words.emplace_back(vaddr, word);
  }

  void TakeBack(Attempt& attempt) {
    placed_.segment.resize(attempt.segment_size);
    free_.insert(attempt.taken.begin(), attempt.taken.end());
    attempt = Attempt();
  }

  void Write(uint64_t vaddr, uint32_t word) {
    if (vaddr < base_) {
      placed_.words[vaddr] = word;
    } else {
      std::memcpy(placed_.segment.data() + (vaddr - base_), &word, sizeof(word));
    }
  }

  void Commit(const Attempt& attempt) {
    for (const auto& [vaddr, word] : attempt.words) Write(vaddr, word);
  }

  // Last, when it is known which sites are placed and where their kernels run.
  // An s_clause that is a site itself has become a branch.
  void BreakClauses(const std::vector<SiteCode>& sites) {
    std::set<uint64_t> clauses;
    for (const SiteCode& site : sites) {
      if (site.refusal || !site.broken_clause) continue;
      const uint64_t base = site.anchor_vaddr - OffsetOf(site);
      clauses.insert(base + site.kernel->instructions()[*site.broken_clause].offset);
    }
    for (const SiteCode& site : sites) {
      if (!site.refusal) clauses.erase(site.anchor_vaddr);
    }
    for (uint64_t vaddr : clauses) Write(vaddr, encoding_.nop);
  }

  // The filler word that gets furthest from `from` towards `to`.
  std::optional<uint64_t> NextHop(uint64_t from, uint64_t to) const {
    if (to > from) {
      auto it = free_.upper_bound(std::min(from + kMaxForward, to - 1));
      while (it != free_.begin()) {
        --it;
        if (*it <= from) return std::nullopt;
        if (BranchOffset(encoding_, from, *it)) return *it;
      }
      return std::nullopt;
    }
    for (auto it = free_.lower_bound(from > kMaxBackward ? from - kMaxBackward : 0);
         it != free_.end() && *it < from; ++it) {
      if (*it > to && BranchOffset(encoding_, from, *it)) return *it;
    }
    return std::nullopt;
  }

  // Branch words that lead from `from` to `to`, through at most `hops` relays.
  bool Connect(uint64_t from, uint64_t to, size_t hops, Attempt& attempt) {
    for (size_t used = 0;; ++used) {
      if (auto offset = BranchOffset(encoding_, from, to)) {
        SetWord(from, Branch(*offset), attempt);
        return true;
      }
      const std::optional<uint64_t> hop = used < hops ? NextHop(from, to) : std::nullopt;
      if (!hop) return false;
      SetWord(from, Branch(*BranchOffset(encoding_, from, *hop)), attempt);
      free_.erase(*hop);
      attempt.taken.push_back(*hop);
      from = *hop;
    }
  }

  static bool IsConditional(const SiteCode& site) {
    return site.branch && site.branch->conditional != 0;
  }

  // Where the trampoline's branches out lead, in their order.
  static std::vector<uint64_t> Homes(const SiteCode& site, uint64_t anchor) {
    if (site.ends_program) return {};
    const uint64_t behind = anchor + site.kernel->instructions()[site.instruction].size;
    if (!site.branch) return {behind};
    const uint64_t target = anchor - OffsetOf(site) + static_cast<uint64_t>(site.branch->target);
    if (IsConditional(site)) return {behind, target};
    return {target};
  }

  // What leads out, in bytes.
  static uint64_t TailSize(const SiteCode& site) {
    if (site.ends_program) return 0;
    return IsConditional(site) ? 12 : 4;
  }

  // One of the branches at `out` would have the offset that must not be used.
  bool MeetsErratum(uint64_t out, const std::vector<uint64_t>& homes) const {
    if (!encoding_.offset_3f_is_broken) return false;
    for (size_t i = 0; i < homes.size(); ++i) {
      if (homes[i] == out + 4 * i + 4 + 4 * 0x3f) return true;
    }
    return false;
  }

  // Trampoline at the cursor for a site whose instruction is at `anchor`.
  bool AddTrampoline(SiteCode& site, uint64_t anchor, size_t hops, Attempt& attempt) {
    const uint32_t size = site.kernel->instructions()[site.instruction].size;
    if (encoding_.offset_3f_is_broken && Cursor() == anchor + 4 + 4 * 0x3f) Append(encoding_.nop);
    const uint64_t start = Cursor();
    placed_.segment.insert(placed_.segment.end(), site.body.begin(), site.body.end());
    const std::vector<uint64_t> homes = Homes(site, anchor);
    const uint64_t lead = IsConditional(site) ? 4 : 0;
    while (MeetsErratum(Cursor() + lead, homes)) Append(encoding_.nop);
    site.displaced_vaddr = site.branch ? Cursor() : start + site.displaced;
    if (IsConditional(site)) Append(site.branch->conditional | 1);
    const uint64_t out = Cursor();
    for (size_t i = 0; i < homes.size(); ++i) Append(encoding_.nop);
    if (!Connect(anchor, start, hops, attempt)) return false;
    for (size_t i = 0; i < homes.size(); ++i) {
      if (!Connect(out + 4 * i, homes[i], hops, attempt)) return false;
    }
    for (uint32_t pad = 4; pad < size; pad += 4) SetWord(anchor + pad, encoding_.nop, attempt);
    site.anchor_vaddr = anchor;
    site.trampoline_vaddr = start;
    site.trampoline_size = static_cast<uint32_t>(Cursor() - start);
    return true;
  }

  static uint64_t OffsetOf(const SiteCode& site) {
    return site.kernel->instructions()[site.instruction].offset;
  }
  static uint64_t OriginalAnchor(const SiteCode& site) {
    return site.kernel->kernel().entry_vaddr + OffsetOf(site);
  }

  bool TryInPlace(Group& group, size_t hops) {
    if (hops > 0) {
      // Relays fail fast: even the nearest site would need more of them.
      const uint64_t last = OriginalAnchor(*group.sites.back());
      if (Cursor() > last && (Cursor() - last) / kMaxForward > hops) return false;
    }
    Attempt attempt;
    attempt.segment_size = placed_.segment.size();
    for (SiteCode* site : group.sites) {
      if (AddTrampoline(*site, OriginalAnchor(*site), hops, attempt)) continue;
      TakeBack(attempt);
      return false;
    }
    Commit(attempt);
    return true;
  }

  void PlaceSiteBySite(Group& group) {
    group.done = true;
    for (SiteCode* site : group.sites) {
      if (group.shared) {
        Refuse(*site, Reason::kSiteUnresolvedControl,
               "another kernel descriptor starts in the same code, which cannot be copied apart");
        continue;
      }
      Attempt attempt;
      attempt.segment_size = placed_.segment.size();
      if (AddTrampoline(*site, OriginalAnchor(*site), kAnyHops, attempt)) {
        Commit(attempt);
        continue;
      }
      TakeBack(attempt);
      OutOfReach(*site, Cursor());
    }
  }

  void Refuse(SiteCode& site, Reason reason, std::string detail) const {
    site.refusal = Refusal{reason, "", "", std::move(detail)};
  }

  void OutOfReach(SiteCode& site, uint64_t target) const {
    const uint64_t anchor = OriginalAnchor(site);
    const uint64_t distance = target > anchor ? target - anchor : anchor - target;
    Refuse(site, Reason::kOutOfBranchReach,
           "the new code is out of a branch's reach, and filler for relays is lacking");
    site.refusal->observed = absl::StrCat(distance, " bytes");
    site.refusal->limit = absl::StrCat(kMaxForward, " bytes");
  }

  // Trampolines of the first half go before the copy when not all fit behind it.
  void CopyKernel(Group& group) {
    uint64_t trampolines = 0;
    for (const SiteCode* site : group.sites) trampolines += site->body.size() + TailSize(*site);
    const uint64_t size = group.kernel->code().size();
    const bool split = size + trampolines + kKernelAlignment > kMaxBackward;
    size_t ahead = 0;
    uint64_t ahead_bytes = 0;
    while (split && ahead < group.sites.size() && ahead_bytes < trampolines / 2) {
      ahead_bytes += group.sites[ahead]->body.size() + TailSize(*group.sites[ahead]);
      ++ahead;
    }
    // At most three extra words per trampoline (see AddTrampoline).
    const uint64_t copy = (Cursor() + ahead_bytes + 12 * ahead + kKernelAlignment - 1) /
                          kKernelAlignment * kKernelAlignment;
    Attempt attempt;
    attempt.segment_size = placed_.segment.size();
    std::vector<SiteCode*> late;
    size_t done = 0;
    for (size_t i = 0; i < ahead; ++i) done += AddCopied(*group.sites[i], copy, attempt);
    while (Cursor() < copy) Append(encoding_.nop);
    const absl::Span<const uint8_t> code = group.kernel->code();
    placed_.segment.insert(placed_.segment.end(), code.begin(), code.end());
    for (size_t i = ahead; i < group.sites.size(); ++i) {
      done += AddCopied(*group.sites[i], copy, attempt);
    }
    group.done = true;
    if (done == 0) {
      TakeBack(attempt);
      return;
    }
    Commit(attempt);
    placed_.moved_kernels[group.kernel->kernel_index()] = copy;
  }

  bool AddCopied(SiteCode& site, uint64_t copy, Attempt& attempt) {
    const uint64_t anchor = copy + OffsetOf(site);
    const size_t words = attempt.words.size();
    const size_t segment = placed_.segment.size();
    if (AddTrampoline(site, anchor, 0, attempt)) return true;
    const uint64_t wanted = Cursor();
    attempt.words.resize(words);
    placed_.segment.resize(segment);
    OutOfReach(site, wanted);
    return false;
  }

  const CodeObject& object_;
  const uint64_t base_;
  const BranchEncoding& encoding_;
  std::set<uint64_t> free_;
  PlacedCode placed_;
};

// Stretches of executable ranges that no code symbol covers.
std::vector<CodeObject::Range> UncoveredRanges(const CodeObject& object) {
  std::vector<CodeObject::Range> covered;
  for (const CodeSymbol& s : object.code_symbols()) {
    covered.push_back({s.vaddr, s.vaddr + std::max<uint64_t>(s.size, 4)});
  }
  for (const Kernel& k : object.kernels()) {
    covered.push_back({k.entry_vaddr, k.entry_vaddr + k.code_size});
  }
  std::sort(covered.begin(), covered.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<CodeObject::Range> gaps;
  for (const CodeObject::Range& range : object.executable_ranges()) {
    uint64_t at = range.begin;
    for (const CodeObject::Range& c : covered) {
      if (c.end <= at || c.begin >= range.end) continue;
      if (c.begin > at) gaps.push_back({at, c.begin});
      at = std::max(at, c.end);
    }
    if (at < range.end) gaps.push_back({at, range.end});
  }
  return gaps;
}

}  // namespace

std::optional<uint16_t> BranchOffset(const BranchEncoding& encoding, uint64_t from, uint64_t to) {
  const int64_t distance = static_cast<int64_t>(to) - static_cast<int64_t>(from) - 4;
  if (distance % 4 != 0) return std::nullopt;
  const int64_t words = distance / 4;
  if (words < std::numeric_limits<int16_t>::min() || words > std::numeric_limits<int16_t>::max()) {
    return std::nullopt;
  }
  if (encoding.offset_3f_is_broken && words == 0x3f) return std::nullopt;
  return static_cast<uint16_t>(words);
}

std::vector<uint64_t> FindFillerWords(const CodeObject& object,
                                      const std::vector<const KernelAnalysis*>& kernels) {
  std::vector<uint64_t> targets;  // branches that leave their kernel
  for (const KernelAnalysis* kernel : kernels) {
    if (kernel == nullptr) continue;
    const auto size = static_cast<int64_t>(kernel->code().size());
    for (const Instruction& in : kernel->instructions()) {
      if (in.target_offset && (*in.target_offset < 0 || *in.target_offset >= size)) {
        targets.push_back(kernel->kernel().entry_vaddr + static_cast<uint64_t>(*in.target_offset));
      }
    }
  }
  std::vector<uint64_t> words;
  for (const CodeObject::Range& gap : UncoveredRanges(object)) {
    const uint64_t begin = (gap.begin + 3) / 4 * 4;
    const absl::Span<const uint8_t> bytes = object.AtVaddr(begin, gap.end - begin);
    const bool targeted = std::any_of(targets.begin(), targets.end(),
                                      [&](uint64_t t) { return gap.begin <= t && t < gap.end; });
    bool filler = !targeted && bytes.size() >= 4;
    // All of the gap or nothing: a function without a symbol may contain words
    // that look like filler.
    for (size_t i = 0; filler && i + 4 <= bytes.size(); i += 4) {
      filler = IsFiller(WordAt(bytes, i));
    }
    for (size_t i = 0; filler && i + 4 <= bytes.size(); i += 4) words.push_back(begin + i);
  }
  return words;
}

PlacedCode PlaceSites(const CodeObject& object, const std::vector<const KernelAnalysis*>& kernels,
                      uint64_t segment_vaddr, const BranchEncoding& encoding,
                      std::vector<SiteCode>& sites) {
  return Placer(object, kernels, segment_vaddr, encoding).Place(sites);
}

}  // namespace rjdbi::patch
