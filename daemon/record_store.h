// Trace records that the daemon holds, so many bytes of them: for each attachment, and
// for all together. The oldest make room for new ones, and are counted as dropped. A
// copy on disk brings them back after a restart.
#ifndef DAEMON_RECORD_STORE_H_
#define DAEMON_RECORD_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "daemon/load_records.h"
#include "daemon/record_log.h"
#include "rjdbi/v1/admission.pb.h"
#include "rjdbi/v1/control.pb.h"

namespace rjdbi::daemon {

// Bytes per second that one process may send: a bucket that holds one second's worth.
class RateLimit {
 public:
  // How many of `bytes` may pass now; 0 as `per_second`: all.
  uint64_t Take(uint64_t bytes, uint64_t per_second, int64_t now_unix_ns);

 private:
  uint64_t level_ = 0;  // bytes that may pass
  int64_t filled_ns_ = 0;
  bool started_ = false;
};

// Whose records they are.
struct RecordOrigin {
  std::string session_id;                 // hex
  std::vector<v1::RecordSource> sources;  // by the number of the site
  std::shared_ptr<LoadRecords> records;   // nullptr: from before the daemon's start
  std::shared_ptr<RateLimit> rate;        // of the process; the store's lock guards it
};
using OriginPtr = std::shared_ptr<const RecordOrigin>;

struct RecordLimits {
  uint64_t bytes_per_attachment = uint64_t{64} << 20;
  uint64_t bytes = uint64_t{512} << 20;            // of all attachments
  uint64_t bytes_per_second = uint64_t{64} << 20;  // of a process; 0: unlimited
};

// Thread-safe.
class RecordStore {
 public:
  // file "": in memory only.
  explicit RecordStore(const RecordLimits& limits, const std::string& file = "");

  void set_limits(const RecordLimits& limits);
  void Add(const OriginPtr& origin, const v1::RecordBatch& batch, int64_t now_unix_ns);
  // The process is no longer listed: what is left of the load's records is dropped.
  void Forget(const LoadRecords& records);

  struct Stats {
    uint64_t bytes = 0, records = 0;
  };
  Stats stats() const;
  std::string write_problem() const { return log_.problem(); }  // "": none
  // Whether records of such an attachment, or a session that begins so, are there.
  bool KnowsAttachment(const std::string& id) const;
  bool KnowsSession(const std::string& prefix) const;
  // What the request asks for. `wants(attachment)`: whether its records are wanted.
  void Get(const v1::GetRecordsRequest& request,
           const std::function<bool(const std::string& attachment)>& wants,
           v1::GetRecordsReply& reply) const;

 private:
  // Of one attachment and one batch; at most 16 KiB.
  struct Chunk {
    OriginPtr origin;
    std::string attachment;
    int64_t received_unix_ns = 0;
    std::shared_ptr<const std::string> bytes;
    std::vector<uint32_t> sites;  // of each record
    size_t cost() const;          // bytes of memory
  };
  using Chunks = std::map<uint64_t, Chunk>;  // by number, which counts all that ever came

  struct OfAttachment {
    std::set<uint64_t> numbers;
    uint64_t bytes = 0;
  };
  class Selection;

  struct OfOrigin {
    uint64_t id = 0;  // on disk
    uint64_t chunks = 0;
  };

  void Restore();
  void Keep(uint64_t number, Chunk chunk);
  void Insert(Chunk chunk);
  void Drop(uint64_t number);
  void MakeRoom(const std::string& attachment);

  mutable std::mutex mutex_;
  RecordLimits limits_;
  Chunks chunks_;
  uint64_t next_number_ = 1;
  std::map<std::string, OfAttachment> attachments_;
  std::map<OriginPtr, OfOrigin> origins_;
  uint64_t next_origin_ = 1;
  Stats stats_;
  RecordLog log_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_RECORD_STORE_H_
