// What has become of the trace records of one load: where each is missing, if it is.
//
// For each site, and exactly:
//   events   = lost in the device's ring (the site's counter) + read by the agent
//   received = stored + rate_limited + dropped
// and for the load, of whose losses no site is known:
//   read = received + rejected + lost in the agent's queue + lost on the way
#ifndef DAEMON_LOAD_RECORDS_H_
#define DAEMON_LOAD_RECORDS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/decision.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

// How many records of which site; only sites that have some.
using RecordsBySite = std::vector<std::pair<uint32_t, uint64_t>>;

// Thread-safe.
class LoadRecords {
 public:
  struct Site {
    std::shared_ptr<const v1::Decision> decision;  // nullptr: unused number
    size_t attachment = 0;                         // index among the question's
  };
  // What one batch turned out to hold.
  struct Parsed {
    struct Record {
      uint32_t offset, bytes, site;
    };
    std::vector<Record> records;  // known sites only, in order
    uint64_t rejected = 0;        // others; a rest that cannot be taken apart is one
  };

  // nullptr: no site of the load writes records.
  static std::shared_ptr<LoadRecords> Make(std::shared_ptr<const Decision> decision,
                                           std::shared_ptr<const Question> question);

  const std::vector<Site>& sites() const { return sites_; }
  const Question& question() const { return *question_; }

  Parsed Parse(const std::string& records) const;
  // False: the batch came before, or so late that it counts as lost already.
  bool IsNew(const v1::RecordBatch& batch) const;
  // Takes note of a batch that is new: the first `kept` records of `parsed` are stored,
  // the rest is beyond the rate limit.
  void Note(const v1::RecordBatch& batch, const Parsed& parsed, size_t kept);
  void NoteDropped(const RecordsBySite& records);  // that were stored
  // What the agent says in its reports. `final`: no batch is on its way any more.
  void NoteTotals(const v1::LoadCounters& totals, bool final);

  // Of a site's record_layout().site(). `device_full` is the caller's: a counter.
  v1::RecordCounts Counts(uint32_t site, uint64_t device_full) const;
  // Without session, load and object.
  v1::RecordLosses Losses() const;

 private:
  void AddSite(v1::Decision made, size_t attachment);

  struct Totals {
    uint64_t read = 0, received = 0, rate_limited = 0, dropped = 0, stored = 0;
  };

  std::shared_ptr<const Question> question_;
  std::vector<Site> sites_;  // by number
  struct Shape {
    uint32_t bytes = 0, kind = 0;
  };
  std::vector<Shape> shapes_;  // of their records; by number

  mutable std::mutex mutex_;
  std::vector<Totals> totals_;  // by number
  uint64_t sequence_ = 0;
  uint64_t written_ = 0, agent_queue_ = 0, unfinished_bytes_ = 0;  // the newest values
  uint64_t received_ = 0, rejected_ = 0;  // records; `received_` includes rejected ones
  uint64_t undelivered_ = 0;
  bool final_ = false;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_LOAD_RECORDS_H_
