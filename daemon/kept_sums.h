// What processes that are gone and no longer listed have left, added up per
// attachment, so that no total ever falls.
#ifndef DAEMON_KEPT_SUMS_H_
#define DAEMON_KEPT_SUMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "daemon/load_record.h"
#include "rjdbi/v1/contract.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

// Bounded: beyond `max_places` the counts of further places go into one without a
// place, and coverage of further kernels is not kept; beyond `max_attachments` the one
// that has received nothing for longest is dropped (attachments that exist receive
// more with each process).
class KeptSums {
 public:
  explicit KeptSums(size_t max_places = size_t{1} << 18, size_t max_attachments = 4096)
      : max_places_(max_places), max_attachments_(max_attachments) {}

  struct KernelCoverage {
    v1::Coverage coverage;
    bool in_place = false;
  };
  struct OfAttachment {
    // By object, kernel, offset. Without session and load.
    std::map<std::tuple<std::string, std::string, uint64_t>, v1::SiteCount> counts;
    std::map<std::pair<std::string, std::string>, KernelCoverage> coverage;  // object, kernel
    std::set<std::string> refused_objects;  // hashes of those with violations of their own
    uint64_t used = 0;                      // when it last received something
  };

  void AddProcess(uint64_t gaps);
  void Add(const LoadRecord& load);

  const std::map<std::string, OfAttachment>& attachments() const { return attachments_; }
  // Of all loads together, with the attachments that it may be of.
  v1::RecordLosses record_losses() const;
  uint64_t processes() const { return processes_; }
  uint64_t gaps() const { return gaps_; }

 private:
  OfAttachment& Of(const std::string& id);
  void AddCount(v1::SiteCount count);
  void AddCoverage(const LoadRecord& load, v1::Coverage coverage);

  size_t max_places_, max_attachments_;
  std::map<std::string, OfAttachment> attachments_;
  v1::RecordLosses record_losses_;
  std::set<std::string> record_attachments_;
  size_t places_ = 0;
  uint64_t processes_ = 0, gaps_ = 0, clock_ = 0;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_KEPT_SUMS_H_
