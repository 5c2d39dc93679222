// Trace records on disk, so that a restart of rjdbid does not lose them: a copy of what
// the record store holds, written a moment later by a thread of its own. SQLite keeps
// it whole through crashes. What cannot be written is still in memory.
#ifndef DAEMON_RECORD_LOG_H_
#define DAEMON_RECORD_LOG_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

struct sqlite3;

namespace rjdbi::daemon {

class RecordLog {
 public:
  struct Chunk {
    uint64_t number = 0, origin = 0;
    std::string attachment;
    int64_t received_unix_ns = 0;
    std::shared_ptr<const std::string> bytes;
    std::vector<uint32_t> sites;
  };

  // file "": nothing is kept. A file that is damaged is set aside under ".bad", and said
  // so in the log.
  explicit RecordLog(std::string file);
  ~RecordLog();  // writes what is left to write
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // What is there, chunks in the order of their numbers, each behind its origin. Once,
  // first of all: nothing is written before.
  void Load(const std::function<void(uint64_t id, const std::string& origin)>& take_origin,
            const std::function<void(Chunk)>& take_chunk);

  void PutOrigin(uint64_t id, std::string origin);
  void Put(Chunk chunk);
  void Erase(uint64_t number);
  void EraseOrigin(uint64_t id);
  std::string problem() const;  // with the last writing; "": none

 private:
  struct Change {
    enum class Kind : uint8_t { kPut, kErase, kPutOrigin, kEraseOrigin };
    Kind kind;
    Chunk chunk;
    std::string origin;
  };
  bool Open();
  void Close();
  void Enqueue(Change change);
  void Run();
  bool Write(const std::vector<Change>& changes);
  bool Apply(const Change& change);

  const std::string file_;
  sqlite3* db_ = nullptr;  // the constructor's, then the thread's
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Change> pending_;
  size_t pending_bytes_ = 0;
  std::string problem_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rjdbi::daemon

#endif  // DAEMON_RECORD_LOG_H_
