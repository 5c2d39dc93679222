// Mistakes of the engine in the kernels of a real library: thousands of sites, a mutant
// at each. What is accepted has to be harmless for a reason that code finds, here, not a
// list. And what the engine does right is refused for at most one site in two hundred.
//
// RJDBI_MUTANTS=N: N times as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "contract/admission.h"
#include "contract/seams.h"
#include "patch/isa/isa.h"
#include "tests/contract/expanded.h"
#include "tests/contract/mutating_rewriter.h"
#include "tests/corpus/offload_bundle.h"

namespace rjdbi::contract {
namespace {

using patch::Instruction;
using patch::RegisterSet;
using test::MutatingRewriter;
using Note = MutatingRewriter::Note;
using Site = MutatingRewriter::Site;

constexpr size_t kObjects = 3;  // small ones
constexpr size_t kLeastBytes = 64 << 10;

uint32_t Scale() {
  const char* more = std::getenv("RJDBI_MUTANTS");
  const int n = more != nullptr ? std::atoi(more) : 1;
  return n > 0 ? static_cast<uint32_t>(n) : 1;
}

// ---- Why a mutant may be accepted ----------------------------------------------------------

struct Pair {
  Instruction right, wrong;
  uint32_t right_word = 0, wrong_word = 0;
};

// Instruction by instruction; empty: they do not stand at the same places.
std::vector<Pair> Compare(patch::Isa& isa, const Note& note) {
  std::vector<Pair> pairs;
  for (uint64_t at = 0; at < note.right.size();) {
    const auto right = isa.Decode(note.right, at), wrong = isa.Decode(note.wrong, at);
    if (!right || !wrong || right->size != wrong->size) return {};
    Pair p{*right, *wrong, 0, 0};
    std::memcpy(&p.right_word, note.right.data() + at, 4);
    std::memcpy(&p.wrong_word, note.wrong.data() + at, 4);
    pairs.push_back(p);
    at += right->size;
  }
  return pairs;
}

bool Equal(const Note& note, const Pair& p) {
  return std::equal(note.right.begin() + static_cast<ptrdiff_t>(p.right.offset),
                    note.right.begin() + static_cast<ptrdiff_t>(p.right.offset + p.right.size),
                    note.wrong.begin() + static_cast<ptrdiff_t>(p.right.offset));
}

bool IsPause(const Instruction& in) { return in.waitcnt || in.opcode == "s_nop"; }

// Nothing but waits and s_nop differ.
bool OnlyPauses(patch::Isa& isa, const Note& note) {
  const auto pairs = Compare(isa, note);
  return !pairs.empty() && std::all_of(pairs.begin(), pairs.end(), [&](const Pair& p) {
    return Equal(note, p) || (IsPause(p.right) && IsPause(p.wrong));
  });
}

// They differ where the sequence waits for nothing but its own stores, so that only the
// order in which the host sees them depends on it; distances are kept all the same.
bool PausesNotNeeded(patch::Isa& isa, const Note& note) {
  if (!OnlyPauses(isa, note) || SeamHazard(isa, note.wrong)) return false;
  bool results_in_flight = false;
  for (const Pair& p : Compare(isa, note)) {
    results_in_flight |= p.right.load || p.right.returns_value || p.right.opcode == "s_memtime";
    if (Equal(note, p)) {
      if (p.right.waitcnt) results_in_flight = false;
    } else if (p.right.waitcnt && results_in_flight) {
      return false;
    }
  }
  return true;
}

// The pauses differ, and the wrong ones are no shorter, number by number.
bool PausesLonger(patch::Isa& isa, const Note& note) {
  if (!OnlyPauses(isa, note)) return false;
  for (const Pair& p : Compare(isa, note)) {
    if (Equal(note, p)) continue;
    if (p.right.opcode != p.wrong.opcode) return false;
    const uint32_t right = p.right_word & 0xffff, wrong = p.wrong_word & 0xffff;
    const bool longer = p.right.opcode == "s_nop" ? wrong > right : (wrong & ~right) == 0;
    if (!longer) return false;
  }
  return true;
}

// The same instructions in another order, and those that changed places have nothing to
// do with each other nor with what lies between.
bool Independent(patch::Isa& isa, const Note& note) {
  std::vector<std::string> right, wrong;
  std::vector<Instruction> instructions;
  for (const auto* code : {&note.right, &note.wrong}) {
    for (uint64_t at = 0; at < code->size();) {
      const auto in = isa.Decode(*code, at);
      if (!in) return false;
      (code == &note.right ? right : wrong)
          .emplace_back(code->begin() + static_cast<ptrdiff_t>(at),
                        code->begin() + static_cast<ptrdiff_t>(at + in->size));
      if (code == &note.right) instructions.push_back(*in);
      at += in->size;
    }
  }
  auto a = right, b = wrong;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a != b) return false;
  size_t first = 0, last = right.size();
  while (first < right.size() && right[first] == wrong[first]) ++first;
  while (last > first && right[last - 1] == wrong[last - 1]) --last;
  for (size_t i = first; i < last; ++i) {
    for (size_t j = i + 1; j < last; ++j) {
      const Instruction &x = instructions[i], &y = instructions[j];
      if (right[i] == right[j]) continue;
      if (x.branch || y.branch) return false;
      // A pause that moves is a matter of distances.
      const RegisterSet xd = x.defs | x.partial_defs, yd = y.defs | y.partial_defs;
      const RegisterSet clash = (xd & yd) | (xd & y.uses) | (x.uses & yd);
      // Only what really changed its order counts.
      const bool adjacent = last - first == 2;
      const bool moved = adjacent || i == first || j == last - 1;
      if (moved && !clash.Empty()) return false;
    }
  }
  return true;
}

// One register stands for another, everywhere, and the application needs neither.
bool Renamed(patch::Isa& isa, const Note& note, const RegisterSet& needed) {
  const auto pairs = Compare(isa, note);
  if (pairs.empty()) return false;
  std::map<uint16_t, uint16_t> to, from;
  for (const Pair& p : pairs) {
    if (p.right.opcode != p.wrong.opcode || p.right.operands.size() != p.wrong.operands.size()) {
      return false;
    }
    for (size_t o = 0; o < p.right.operands.size(); ++o) {
      const auto &x = p.right.operands[o], &y = p.wrong.operands[o];
      if (x.kind != y.kind || x.count != y.count || x.imm != y.imm) return false;
      if (x.kind != patch::InstructionOperand::Kind::kRegister) continue;
      for (uint16_t n = 0; n < x.count; ++n) {
        const auto a = static_cast<uint16_t>(x.reg + n), b = static_cast<uint16_t>(y.reg + n);
        if (to.try_emplace(a, b).first->second != b) return false;
        if (from.try_emplace(b, a).first->second != a) return false;
        if (a != b && (needed.Has(a) || needed.Has(b))) return false;
      }
    }
  }
  return true;
}

// A pause, which the distances do not need, is a move to a register that nobody reads.
bool DeadWrite(patch::Isa& isa, const Note& note, const RegisterSet& needed) {
  const auto pairs = Compare(isa, note);
  if (pairs.empty() || SeamHazard(isa, note.wrong)) return false;
  RegisterSet written;
  for (const Pair& p : pairs) {
    written |= p.right.defs;
    if (Equal(note, p)) continue;
    const RegisterSet writes = p.wrong.defs | p.wrong.partial_defs;
    const bool moves = p.wrong.opcode.find("_mov_b") != std::string_view::npos;
    if (p.right.opcode != "s_nop" || !moves || !(writes & needed).Empty()) return false;
    if (!(writes & written).Empty()) return false;  // it might be in use
  }
  // Whatever the sequence reads later, it writes first.
  written = RegisterSet();
  for (const Pair& p : pairs) {
    if (!Equal(note, p)) continue;
    for (const Pair& q : pairs) {
      if (Equal(note, q)) continue;
      const RegisterSet writes = q.wrong.defs | q.wrong.partial_defs;
      if (!((p.right.uses - written) & writes).Empty()) return false;
    }
    written |= p.right.defs;
  }
  return true;
}

// Another lane than lane 0 acts alone.
bool AnotherLane(patch::Isa& isa, const Note& note) {
  const auto pairs = Compare(isa, note);
  for (const Pair& p : pairs) {
    if (Equal(note, p)) continue;
    const bool moves = p.right.opcode == p.wrong.opcode && p.right.opcode.find("s_mov_b") == 0 &&
                       p.wrong.operands.size() == 2 && p.wrong.operands[0].reg == patch::kExecLo;
    if (!moves || p.wrong.operands[1].kind != patch::InstructionOperand::Kind::kImmediate) {
      return false;
    }
    if (std::popcount(static_cast<uint64_t>(p.wrong.operands[1].imm)) != 1) return false;
  }
  return !pairs.empty();
}

// Nothing that the application needs is written: EXEC is kept first and put back last, by
// registers that nothing else writes, and memory is reached through the address that the
// agent fills in. So only what the probe tells is wrong, and only of that a record's
// bounds are proven, not its content.
bool TelemetryAlone(patch::Isa& isa, const Note& note, const RegisterSet& needed) {
  std::vector<Instruction> code;
  for (uint64_t at = 0; at < note.wrong.size(); at += code.back().size) {
    const auto in = isa.Decode(note.wrong, at);
    if (!in) return false;
    code.push_back(*in);
  }
  const unsigned words = isa.wavefront_size() / 32;
  RegisterSet exec;
  exec.Add(patch::kExecLo, words);
  const auto moves = [&](const Instruction& in) {
    return in.opcode == (words == 2 ? "s_mov_b64" : "s_mov_b32") && in.operands.size() == 2 &&
           in.operands[1].kind == patch::InstructionOperand::Kind::kRegister;
  };
  const Instruction* save = nullptr;
  const Instruction* restore = nullptr;
  RegisterSet addresses;
  for (const Instruction& in : code) {
    const RegisterSet writes = in.defs | in.partial_defs;
    if (!((writes - exec) & needed).Empty()) return false;
    const bool saves = moves(in) && in.operands[1].reg == patch::kExecLo;
    if (saves && save == nullptr && restore == nullptr) save = &in;
    if (!(writes & exec).Empty()) restore = &in;
    const bool filled_in = std::any_of(note.fixups.begin(), note.fixups.end(),
                                       [&](const auto& f) { return f.offset == in.offset + 4; });
    if (filled_in) addresses |= writes;
    if (in.memory == patch::MemoryKind::kNone || in.waitcnt) continue;
    if (in.opcode == "s_memtime" || in.opcode == "s_memrealtime") continue;
    const auto& base = *std::find_if(in.operands.rbegin(), in.operands.rend(), [](const auto& o) {
      return o.kind == patch::InstructionOperand::Kind::kRegister;
    });
    if (in.opcode.find("global_") != 0 || base.count != 2 || !addresses.HasAny(base.reg, 2)) {
      return false;
    }
  }
  if (save == nullptr || restore == nullptr || !moves(*restore)) return false;
  if (restore->operands[1].reg != save->operands[0].reg) return false;
  RegisterSet kept;
  kept.Add(save->operands[0].reg, words);
  return std::all_of(code.begin(), code.end(), [&](const Instruction& in) {
    return in.offset == save->offset || ((in.defs | in.partial_defs) & kept).Empty();
  });
}

constexpr const char* kClasses[] = {"waits no shorter",    "wait not needed", "independent order",
                                    "consistent renaming", "another lane",    "dead write",
                                    "record's content",    "unexplained"};
enum Class {
  kLonger,
  kPause,
  kOrder,
  kRenaming,
  kLane,
  kDead,
  kContent,
  kUnexplained,
  kNumClasses
};

Class Classify(patch::Isa& isa, const Note& note, const RegisterSet& needed, bool counts) {
  if (PausesLonger(isa, note)) return kLonger;
  if (PausesNotNeeded(isa, note)) return kPause;
  if (Independent(isa, note)) return kOrder;
  if (Renamed(isa, note, needed)) return kRenaming;
  if (AnotherLane(isa, note)) return kLane;
  if (DeadWrite(isa, note, needed)) return kDead;
  if (!counts && TelemetryAlone(isa, note, needed)) return kContent;
  return kUnexplained;
}

// ---- Admission of everything ----------------------------------------------------------------

struct Probe {
  const char* name;
  const char* sites;
  v1::Placement placement;
  bool counts;
  uint32_t one_in;  // sites
};
constexpr Probe kProbes[] = {
    {"count-waves", "*", v1::CLONE, true, 6},
    {"count-waves", "*", v1::TRAMPOLINE, true, 12},
    {"count-lanes", "*", v1::CLONE, true, 8},
    {"trace-exec", "*", v1::CLONE, false, 24},
    {"trace-address", "memory", v1::CLONE, false, 12},
};

Admission Judge(absl::Span<const uint8_t> object, const Probe& probe, const std::string& kernel,
                patch::Rewriter& rewriter) {
  v1::Attachment a;
  a.set_id("a1");
  a.mutable_spec()->set_kernel_glob(kernel);
  a.mutable_spec()->set_sites(probe.sites);
  a.mutable_spec()->set_probe(probe.name);
  a.mutable_spec()->set_placement(probe.placement);
  a.mutable_spec()->mutable_budget()->set_expected_events_per_second(1);
  return WithDecisions(Admit(object, {a}, DefaultPolicy(), rewriter));
}

struct Row {
  uint64_t mutants = 0, rejected = 0, accepted[kNumClasses] = {};
};

struct Unmutated {
  uint64_t sites = 0, refused = 0;
  std::map<std::string, uint64_t> unproven;  // refused because no proof was found
};

class MutantCorpus : public testing::TestWithParam<const char*> {
 protected:
  void Object(absl::Span<const uint8_t> bytes, uint32_t seed);
  void Right(absl::Span<const uint8_t> bytes, const Probe& probe);
  void Wrong(absl::Span<const uint8_t> bytes, const Probe& probe, uint32_t seed);
  void One(absl::Span<const uint8_t> bytes, const Probe& probe, const Site& site);

  patch::KernelAnalysis& Analysis(size_t kernel) {
    auto& made = analyses_[kernel];
    if (made == nullptr) {
      auto& isa = isas_[object_->kernels()[kernel].wavefront_size];
      if (isa == nullptr) {
        isa = *patch::Isa::Create(object_->target(), object_->kernels()[kernel].wavefront_size);
      }
      made = *patch::KernelAnalysis::Create(*object_, kernel, *isa);
    }
    return *made;
  }

  std::unique_ptr<patch::CodeObject> object_;
  std::map<uint32_t, std::unique_ptr<patch::Isa>> isas_;
  std::map<size_t, std::unique_ptr<patch::KernelAnalysis>> analyses_;
  std::map<size_t, Row> table_;  // by operator
  std::map<std::string, Unmutated> right_;
  size_t shown_ = 0, objects_ = 0;
};

void MutantCorpus::Right(absl::Span<const uint8_t> bytes, const Probe& probe) {
  MutatingRewriter rewriter;
  const Admission a = Judge(bytes, probe, "*", rewriter);
  ASSERT_EQ(a.record.object_violations_size(), 0) << a.record.object_violations(0).DebugString();
  Unmutated& sum = right_[absl::StrCat(probe.name, " ", v1::Placement_Name(probe.placement))];
  for (const v1::Decision& d : a.record.decisions()) {
    ++sum.sites;
    if (d.violations_size() == 0) continue;
    ++sum.refused;
    const std::string& id = d.violations(0).constraint_id();
    if (id.rfind("RJD-E", 0) == 0 || id.rfind("RJD-O", 0) == 0) ++sum.unproven[id];
  }
}

void MutantCorpus::Wrong(absl::Span<const uint8_t> bytes, const Probe& probe, uint32_t seed) {
  MutatingRewriter rewriter;
  rewriter.where = MutatingRewriter::Where::kPlan;
  rewriter.seed = seed;
  rewriter.one_in = std::max(1u, probe.one_in / Scale());
  const Admission a = Judge(bytes, probe, "*", rewriter);
  std::map<std::string, size_t> kernels;
  for (size_t k = 0; k < object_->kernels().size(); ++k) kernels[object_->kernels()[k].name] = k;
  for (const v1::Decision& d : a.record.decisions()) {
    const auto& at = d.site().location();
    const size_t kernel = kernels.at(at.kernel());
    const auto i = Analysis(kernel).InstructionAt(at.kernel_offset());
    if (!i) continue;
    const auto made = rewriter.made.find({kernel, *i});
    if (made == rewriter.made.end()) continue;
    const bool refused = d.outcome() == v1::REJECTED_EFFECT &&
                         d.violations(0).constraint_id().rfind("RJD-E", 0) == 0;
    if (refused) {
      Row& row = table_[made->second.op];
      ++row.mutants;
      ++row.rejected;
      continue;
    }
    MutatingRewriter alone;
    alone.where = MutatingRewriter::Where::kPlan;
    alone.seed = seed;
    alone.only = Site{kernel, *i};
    const Admission one = Judge(bytes, probe, at.kernel(), alone);
    const auto again = alone.made.find({kernel, *i});
    if (again == alone.made.end()) continue;
    Row& row = table_[again->second.op];
    ++row.mutants;
    if (one.patched.empty()) {
      ++row.rejected;
      continue;
    }
    RegisterSet needed = Analysis(kernel).LiveAt(*i, patch::Position::kBefore);
    needed |= Analysis(kernel).PendingAt(*i, patch::Position::kBefore);
    const Class why = Classify(Analysis(kernel).isa(), again->second, needed, probe.counts);
    ++row.accepted[why];
    if (why == kUnexplained && ++shown_ <= 30) {
      ADD_FAILURE() << "accepted without a reason: " << probe.name << " at " << at.kernel() << "+0x"
                    << std::hex << at.kernel_offset() << ", "
                    << test::MutantOperators()[again->second.op].name << ":\n"
                    << again->second.what;
    }
  }
}

void MutantCorpus::Object(absl::Span<const uint8_t> bytes, uint32_t seed) {
  auto parsed = patch::CodeObject::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  analyses_.clear();
  isas_.clear();
  object_ = std::make_unique<patch::CodeObject>(*std::move(parsed));
  ++objects_;
  for (const Probe& probe : kProbes) {
    Right(bytes, probe);
    Wrong(bytes, probe, ++seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(MutantCorpus, EachAcceptedOneHasAReason) {
  uint32_t seed = 0;
  for (const char* library : {RJDBI_ROCSPARSE}) {
    const auto file = test::MappedFile::Open(library);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto objects = test::ExtractBundles(file->bytes());
    ASSERT_TRUE(objects.ok()) << objects.status();
    std::vector<absl::Span<const uint8_t>> wanted;
    for (const auto& object : *objects) {
      if (object.target.find(GetParam()) == std::string::npos) continue;
      if (object.bytes.size() < kLeastBytes) continue;
      wanted.push_back(object.bytes);
    }
    ASSERT_FALSE(wanted.empty());
    std::sort(wanted.begin(), wanted.end(),
              [](const auto& a, const auto& b) { return a.size() < b.size(); });
    // Small ones: each mutant that a sequence's proof lets pass is an admission.
    const size_t small = std::max<size_t>(1, wanted.size() / 3);
    const size_t some = std::min(kObjects, small);
    for (size_t n = 0; n < some; ++n) {
      Object(wanted[n * small / some], seed += 100);
      if (HasFatalFailure()) return;
    }
  }
  std::printf("%-18s %8s %9s", "operator", "mutants", "rejected");
  for (const char* name : kClasses) std::printf("  %s", name);
  std::printf("\n");
  Row all;
  for (const auto& [op, row] : table_) {
    std::printf("%-18s %8llu %9llu", test::MutantOperators()[op].name,
                static_cast<unsigned long long>(row.mutants),
                static_cast<unsigned long long>(row.rejected));
    uint64_t accepted = 0;
    for (size_t c = 0; c < kNumClasses; ++c) {
      std::printf("  %*llu", static_cast<int>(std::strlen(kClasses[c])),
                  static_cast<unsigned long long>(row.accepted[c]));
      accepted += row.accepted[c];
      all.accepted[c] += row.accepted[c];
    }
    std::printf("\n");
    EXPECT_EQ(row.mutants, row.rejected + accepted);
    all.mutants += row.mutants;
    all.rejected += row.rejected;
  }
  std::printf("%zu objects, %llu mutants, %llu rejected\n", objects_,
              static_cast<unsigned long long>(all.mutants),
              static_cast<unsigned long long>(all.rejected));
  RecordProperty("mutants", std::to_string(all.mutants));
  RecordProperty("rejected", std::to_string(all.rejected));
  EXPECT_EQ(all.accepted[kUnexplained], 0u);
  EXPECT_GT(all.mutants, 2000u);
  for (const auto& [probe, sum] : right_) {
    uint64_t unproven = 0;
    for (const auto& [id, sites] : sum.unproven) {
      std::printf("unmutated, %s: %s at %llu\n", probe.c_str(), id.c_str(),
                  static_cast<unsigned long long>(sites));
      unproven += sites;
    }
    std::printf("unmutated, %s: %llu sites, %llu refused, %llu of them for want of a proof\n",
                probe.c_str(), static_cast<unsigned long long>(sum.sites),
                static_cast<unsigned long long>(sum.refused),
                static_cast<unsigned long long>(unproven));
    EXPECT_LE(unproven * 200, sum.sites);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MutantCorpus, testing::Values("gfx90a:xnack-", "gfx1030"),
                         [](const auto& info) { return std::string(info.param).substr(0, 6); });

}  // namespace
}  // namespace rjdbi::contract
