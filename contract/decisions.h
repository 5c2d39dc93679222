// The decisions of a record, whichever way it holds them: one by one, or with what
// they have in common said once (DecisionTable). Records come from disk, so nothing
// here believes a number: what a table does not say is empty.
#ifndef CONTRACT_DECISIONS_H_
#define CONTRACT_DECISIONS_H_

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "rjdbi/v1/contract.pb.h"

namespace rjdbi::contract {

// A location that names no kernel becomes the site's; see DecisionTable.
void PlaceViolation(const v1::Location& site, v1::Violation& violation);

// Decisions of one kernel and attachment. Refers to the record.
class DecisionGroup {
 public:
  // A decision by itself.
  explicit DecisionGroup(const v1::Decision& decision) : single_(&decision) {}
  DecisionGroup(const v1::DecisionTable& table, const v1::KernelDecisions& group)
      : table_(&table), group_(&group) {}

  size_t size() const;
  const std::string& kernel() const;
  const std::string& attachment_id() const;
  // What it has in common with others: outcome, violations (their places left out),
  // degradations, costs and effects.
  const v1::Decision& Form(size_t i) const;
  v1::Decision At(size_t i) const;  // the whole decision

  uint64_t kernel_offset(size_t i) const;
  std::optional<uint32_t> counter_index(size_t i) const;
  v1::Location Location(size_t i) const;
  bool has_record_layout(size_t i) const { return Form(i).has_record_layout(); }
  v1::RecordLayout RecordLayout(size_t i) const;

 private:
  const v1::Decision* single_ = nullptr;
  const v1::DecisionTable* table_ = nullptr;
  const v1::KernelDecisions* group_ = nullptr;
};

// All of a record, in order; none is empty.
std::vector<DecisionGroup> DecisionGroups(const v1::AdmissionRecord& record);

// All decisions of a record, in order. Refers to the record.
class Decisions {
 public:
  explicit Decisions(const v1::AdmissionRecord& record);

  size_t size() const { return begins_.back(); }
  bool empty() const { return size() == 0; }
  v1::Decision operator[](size_t i) const;  // made when asked for

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = v1::Decision;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = v1::Decision;
    Iterator(const Decisions* all, size_t group) : all_(all), group_(group) {}
    v1::Decision operator*() const { return all_->groups_[group_].At(at_); }
    Iterator& operator++() {
      if (++at_ == all_->groups_[group_].size()) {
        ++group_;
        at_ = 0;
      }
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) {
      return a.group_ == b.group_ && a.at_ == b.at_;
    }

   private:
    const Decisions* all_;
    size_t group_, at_ = 0;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, groups_.size()}; }

 private:
  std::vector<DecisionGroup> groups_;
  std::vector<size_t> begins_ = {0};  // of the groups, and the end
};

// The record with its decisions one by one.
v1::AdmissionRecord Expanded(v1::AdmissionRecord record);

}  // namespace rjdbi::contract

#endif  // CONTRACT_DECISIONS_H_
