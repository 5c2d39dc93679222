// The table of families.
#include "patch/analysis/selector_families.h"

#include <algorithm>

namespace rjdbi::patch {
namespace {

bool AccessesMemory(const Instruction& in) {
  return in.memory != MemoryKind::kNone && (in.load || in.store || in.atomic);
}

template <MemoryKind... kKinds>
bool Touches(const Instruction& in) {
  return AccessesMemory(in) && ((in.memory == kKinds) || ...);
}

constexpr Family kFamilies[] = {
    {"valu", [](const Instruction& in) { return in.valu; }, false},
    {"trans", [](const Instruction& in) { return in.trans; }, false},
    {"mfma", [](const Instruction& in) { return in.mfma; }, false},
    {"salu", [](const Instruction& in) { return in.salu; }, false},
    {"branch", [](const Instruction& in) { return in.branch && !in.indirect && !in.call; }, false},
    {"indirect", [](const Instruction& in) { return in.indirect && !in.call; }, false},
    {"call", [](const Instruction& in) { return in.call; }, false},
    {"barrier", [](const Instruction& in) { return in.barrier; }, false},
    {"wait", [](const Instruction& in) { return in.waitcnt; }, false},
    {"message", [](const Instruction& in) { return in.sendmsg; }, false},
    {"memory", AccessesMemory, true},
    {"smem", Touches<MemoryKind::kScalar>, true},
    {"vmem",
     Touches<MemoryKind::kGlobal, MemoryKind::kFlat, MemoryKind::kScratch, MemoryKind::kBuffer,
             MemoryKind::kImage>,
     true},
    {"global", Touches<MemoryKind::kGlobal>, true},
    {"flat", Touches<MemoryKind::kFlat>, true},
    {"scratch", Touches<MemoryKind::kScratch>, true},
    {"buffer", Touches<MemoryKind::kBuffer>, true},
    {"image", Touches<MemoryKind::kImage>, true},
    {"lds", Touches<MemoryKind::kLds>, true},
    {"gds", Touches<MemoryKind::kGds>, true},
};

constexpr Family kAccesses[] = {
    {"read", [](const Instruction& in) { return in.load; }, false},
    {"write", [](const Instruction& in) { return in.store; }, false},
    {"atomic", [](const Instruction& in) { return in.atomic; }, false},
};

}  // namespace

absl::Span<const Family> Families() { return kFamilies; }
absl::Span<const Family> Accesses() { return kAccesses; }

const Family* FindFamily(absl::Span<const Family> among, std::string_view name) {
  const auto* found = std::find_if(among.begin(), among.end(),
                                   [&](const Family& family) { return family.name == name; });
  return found == among.end() ? nullptr : &*found;
}

}  // namespace rjdbi::patch
