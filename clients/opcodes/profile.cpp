// See the header.
#include "clients/opcodes/profile.h"

#include <algorithm>

namespace rjdbi::clients {
namespace {

// A count of one is one execution by one wavefront (with a reduction, count-waves is
// taken as block-count is).
bool CountsWaves(const std::string& probe) {
  return probe == "block-count" || probe == "count-waves";
}

std::string Mnemonic(const std::string& instruction) {
  return instruction.substr(0, instruction.find(' '));
}

}  // namespace

OpcodeProfiler::OpcodeProfiler(const OpcodeClasses& classes, const v1::GetReportReply& report)
    : classes_(classes), report_(report) {
  for (const v1::Coverage& row : report.coverage().coverage()) {
    if (row.kernel().empty()) continue;
    uint64_t& instructions = instructions_[{row.code_object_sha256(), row.kernel()}];
    instructions = std::max(instructions, row.requested() + row.not_selected());
  }
  for (const v1::SiteCount& count : report.counts()) AddPlace(count);
  for (const auto& [key, place] : places_) {
    const auto& [session, load, object, kernel, offset] = key;
    Sum& sum = SumOf(place.opcode);
    sum.count += place.count;
    sum.sites.insert({{object, kernel}, offset});
    twice_ += place.twice;
  }
}

// Of several attachments' counts of one place the highest: each counts some of its
// executions, and none counts one twice.
void OpcodeProfiler::AddPlace(const v1::SiteCount& count) {
  if (!CountsWaves(count.probe())) {
    ++skipped_;
    return;
  }
  const v1::Location& at = count.location();
  final_ = final_ && count.final();
  if (at.kernel().empty() || at.instruction().empty()) {
    unplaced_ += count.count();
    return;
  }
  const PlaceKey key = {count.session_id(), count.load_id(), count.code_object_sha256(),
                        at.kernel(), at.kernel_offset()};
  const auto [found, fresh] = places_.try_emplace(
      key, Place{count.attachment_id(), Mnemonic(at.instruction()), count.count(), false});
  counted_[{count.code_object_sha256(), at.kernel()}].insert(at.kernel_offset());
  if (fresh) return;
  found->second.twice = true;
  found->second.count = std::max(found->second.count, count.count());
}

OpcodeProfiler::Sum& OpcodeProfiler::SumOf(const std::string& opcode) {
  const auto [row, fresh] = rows_.try_emplace(opcode, 0);
  if (fresh) row->second = classes_.RowOf(opcode);
  return sums_[row->second][opcode];
}

std::vector<OpcodeProfiler::Kernel> OpcodeProfiler::Incomplete() const {
  std::vector<Kernel> incomplete;
  for (const auto& [key, instructions] : instructions_) {
    const auto counted = counted_.find(key);
    const uint64_t of = counted == counted_.end() ? 0 : counted->second.size();
    if (of < instructions) incomplete.push_back({key.first, key.second, instructions, of});
  }
  return incomplete;
}

void OpcodeProfiler::AddListing(const Kernel& kernel, const v1::ListSitesReply& listing) {
  const KernelKey key = {kernel.object, kernel.name};
  std::set<uint64_t> seen = counted_[key];
  for (const v1::Site& site : listing.sites()) {
    const v1::Location& at = site.location();
    if (at.kernel() != kernel.name || !seen.insert(at.kernel_offset()).second) continue;
    ++SumOf(Mnemonic(at.instruction())).not_counted;
    listed_.insert(key);
  }
}

v1::OpcodeProfile OpcodeProfiler::Finish() const {
  v1::OpcodeProfile profile;
  const auto add = [](const Sum& sum, auto& to) {
    to.set_count(to.count() + sum.count);
    to.set_sites(to.sites() + sum.sites.size());
    to.set_sites_not_counted(to.sites_not_counted() + sum.not_counted);
  };
  std::map<std::string, int> class_of;
  for (int i = 0; i < classes_.table().rows_size(); ++i) {
    const v1::OpcodeRule& rule = classes_.table().rows(i);
    v1::OpcodeRowCount& row = *profile.add_rows();
    row.set_row(static_cast<uint32_t>(i));
    row.set_pattern(classes_.Pattern(static_cast<size_t>(i)));
    row.set_class_(rule.class_());
    row.set_off(rule.has_enable() && !rule.enable());
    const auto [found, fresh] = class_of.try_emplace(rule.class_(), profile.classes_size());
    if (fresh) profile.add_classes()->set_class_(rule.class_());
    const auto sums = sums_.find(static_cast<size_t>(i));
    if (sums == sums_.end()) continue;
    for (const auto& [opcode, sum] : sums->second) {
      v1::OpcodeCount& out = *row.add_opcodes();
      out.set_opcode(opcode);
      add(sum, out);
      add(sum, row);
      add(sum, *profile.mutable_classes(found->second));
      profile.set_total(profile.total() + sum.count);
    }
    std::stable_sort(row.mutable_opcodes()->begin(), row.mutable_opcodes()->end(),
                     [](const auto& a, const auto& b) { return a.count() > b.count(); });
  }
  for (const Kernel& kernel : Incomplete()) {
    v1::OpcodeUncovered& out = *profile.add_uncovered();
    out.set_kernel(kernel.name);
    out.set_code_object_sha256(kernel.object);
    out.set_instructions(kernel.instructions);
    out.set_not_counted(kernel.instructions - kernel.counted);
    out.set_listed(listed_.count({kernel.object, kernel.name}) != 0);
  }
  profile.set_final(final_);
  profile.set_gaps(static_cast<uint64_t>(report_.coverage().gaps_size()) +
                   report_.coverage().folded_gaps());
  profile.set_counted_twice(twice_);
  profile.set_skipped_places(skipped_);
  profile.set_unplaced(unplaced_);
  return profile;
}

}  // namespace rjdbi::clients
