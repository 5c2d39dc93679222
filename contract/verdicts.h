// What admission decides, while it works: a few dozen bytes a site. Whatever sites
// have in common is kept once and named by a number. Written out as a
// DecisionTable, which contract/decisions.h reads.
#ifndef CONTRACT_VERDICTS_H_
#define CONTRACT_VERDICTS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "contract/site.h"
#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// Messages that are equal are kept once, and named by their place. 0 names none.
template <typename Message>
class MessagePool {
 public:
  uint32_t Add(const Message& message) {
    const auto [found, fresh] = places_.try_emplace(message.SerializeAsString(), 0);
    if (fresh) {
      messages_.push_back(message);
      found->second = static_cast<uint32_t>(messages_.size());
    }
    return found->second;
  }
  // Of 0: the message without content. Valid as long as the pool.
  const Message& operator[](uint32_t place) const {
    return place == 0 ? Message::default_instance() : messages_[place - 1];
  }

 private:
  std::deque<Message> messages_;
  absl::flat_hash_map<std::string, uint32_t> places_;
};

// One decision. Numbers are those of the table's pools, 0 is none.
struct Verdict {
  uint64_t kernel_offset = 0;
  uint32_t instruction = 0;  // its text
  uint32_t violations = 0, degradations = 0, delta = 0, effects = 0, layout = 0, rate = 0;
  uint32_t counter = 0;        // index plus 1
  uint32_t counter_count = 0;  // as Decision has it
  uint32_t counted_at = 0;     // kernel offset plus 1
  uint32_t record_site = 0;
  SiteFacts site;
  uint8_t outcome = v1::OUTCOME_UNSPECIFIED;
  uint8_t placement = v1::PLACEMENT_UNSPECIFIED;

  bool attached() const {
    return outcome == v1::VERIFIED_ATTACH || outcome == v1::ATTACH_WITH_DECLARED_DEGRADATION;
  }
};

// Verdicts in order, in groups of one kernel and attachment.
class VerdictTable {
 public:
  struct Group {
    size_t kernel = 0, attachment = 0;  // the caller's numbers
    size_t begin = 0, end = 0;
  };

  // Verdicts that are added belong to the group begun last.
  void Begin(size_t kernel, size_t attachment);
  size_t Add(const Verdict& verdict);
  size_t size() const { return verdicts_.size(); }
  Verdict& operator[](size_t i) { return verdicts_[i]; }
  const Verdict& operator[](size_t i) const { return verdicts_[i]; }
  const std::vector<Group>& groups() const { return groups_; }

  // The disassembly of instruction i.
  uint32_t Text(const patch::KernelAnalysis& kernel, uint32_t i);
  const std::string& text(const Verdict& v) const { return texts_[v.instruction]; }
  uint32_t Delta(const v1::ResourceDelta& delta);
  const v1::ResourceDelta& delta(const Verdict& v) const {
    return v.delta == 0 ? v1::ResourceDelta::default_instance() : deltas_[v.delta - 1];
  }
  uint32_t Effects(const v1::InferredEffects& effects) { return effects_.Add(effects); }
  const v1::InferredEffects& effects(const Verdict& v) const { return effects_[v.effects]; }
  uint32_t Rate(const v1::EventRate& rate) { return rates_.Add(rate); }
  const v1::EventRate& rate(const Verdict& v) const { return rates_[v.rate]; }
  // Kept without the site's number.
  uint32_t Layout(v1::RecordLayout layout);
  const v1::RecordLayout& layout(const Verdict& v) const { return layouts_[v.layout]; }
  uint32_t Degradations(const std::vector<v1::Degradation>& degradations);
  const auto& degradations(const Verdict& v) const { return lists_[v.degradations].degradations(); }
  // The verdict's violations and one more. A location that names no kernel is the
  // site's, see DecisionTable.
  void AddViolation(Verdict& v, v1::Violation violation);
  const auto& violations(const Verdict& v) const { return lists_[v.violations].violations(); }
  // The violations of another site of the kernel: their places stay what they are.
  void CopyViolations(const Verdict& from, const patch::Kernel& kernel, Verdict& to);

  // The whole table, without groups that are empty. `kernels` and `ids` are by the
  // numbers of the groups.
  v1::DecisionTable Write(const std::vector<patch::Kernel>& kernels,
                          const std::vector<std::string>& ids) const;

 private:
  v1::Decision Form(const Verdict& v) const;

  std::vector<Verdict> verdicts_;
  std::vector<Group> groups_;
  std::vector<std::string> texts_ = {""};
  absl::flat_hash_map<const patch::Instruction*, uint32_t> text_of_;
  std::deque<v1::ResourceDelta> deltas_;  // from 1 on
  absl::flat_hash_map<std::array<int64_t, 10>, uint32_t> place_of_delta_;
  MessagePool<v1::InferredEffects> effects_;
  MessagePool<v1::EventRate> rates_;
  MessagePool<v1::RecordLayout> layouts_;
  MessagePool<v1::Decision> lists_;  // of violations, or of degradations
};

}  // namespace rjdbi::contract

#endif  // CONTRACT_VERDICTS_H_
