// One load of a code object by one process, and what its decision has come to.
#ifndef DAEMON_LOAD_RECORD_H_
#define DAEMON_LOAD_RECORD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/decider.h"
#include "daemon/load_records.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

struct LoadRecord {
  std::string session_id;  // hex
  uint64_t load_id = 0;
  bool beside = false;   // an image that was loaded beside the object, for some dispatches
  std::string sha256;    // hex
  DecisionPtr decision;  // nullptr: no attachment wanted the process
  std::shared_ptr<const Question> question;  // attachment "#i" is question->ids[i]
  std::vector<uint64_t> counters;
  bool final = false;
  std::shared_ptr<LoadRecords> records;  // nullptr: no site writes any
  // Set when the process loaded the original after all, in spite of `decision`.
  v1::GapKind not_in_place = v1::GAP_KIND_UNSPECIFIED;

  bool in_place() const { return not_in_place == v1::GAP_KIND_UNSPECIFIED; }
};

bool Attached(v1::Outcome outcome);

// `decided` is part of the load's decision. The answers name attachments by their
// real ids, and sites of a load that is not in place as refused.
std::string RealId(const LoadRecord& load, const std::string& canonical);
v1::Coverage CoverageOf(const LoadRecord& load, const v1::Coverage& decided);
v1::Decision DecisionOf(const LoadRecord& load, const v1::Decision& decided);
// One per counter; none of a load that is not in place.
std::vector<v1::SiteCount> CountsOf(const LoadRecord& load);

}  // namespace rjdbi::daemon

#endif  // DAEMON_LOAD_RECORD_H_
